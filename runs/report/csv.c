/* Writes cells of CSV. */
#include "runs/report/csv.h"

#include <string.h>

void csv_cell(FILE *f, const char *s, size_t n)
{
    const bool formula = n && *s && strchr("=+-@\t\r", *s);
    bool quoted = formula;
    for (size_t i = 0; i < n && !quoted; i++)
        quoted = s[i] && strchr(",\"\r\n;'", s[i]);
    if (!quoted) {
        fwrite(s, 1, n, f);
        return;
    }
    fputs(formula ? "\"'" : "\"", f);
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"')
            fputc('"', f);
        fputc(s[i], f);
    }
    fputc('"', f);
}
