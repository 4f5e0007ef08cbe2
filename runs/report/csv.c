/* Writes cells of CSV. */
#include "runs/report/csv.h"

#include <inttypes.h>
#include <math.h>
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

/* Numbers are no formulas: -1 stays as it is. */
static void put_value(FILE *f, const struct value *v)
{
    if (v->kind == VALUE_UINT)
        fprintf(f, "%" PRIu64, v->u);
    else if (v->kind == VALUE_INT)
        fprintf(f, "%" PRId64, v->i);
    else if (v->kind == VALUE_BOOL)
        fputs(v->b ? "true" : "false", f);
    else if (v->kind == VALUE_TEXT && v->s)
        csv_cell(f, v->s, strlen(v->s));
    else if (v->kind == VALUE_JSON && v->s)
        fputs(v->s, f);
    else if (v->kind < VALUE_BOOL && isfinite(v->x))
        fprintf(f, "%.*g", v->digits ? v->digits : 10, v->x);
}

static void put_cells(struct csv *c, const struct row *rows, const char *within)
{
    for (const struct row *r = rows; r->key || r->label; r++) {
        char name[200];
        if (!r->key || r->unless)
            continue;
        if (r->value.kind == VALUE_ROWS) {
            put_cells(c, r->value.rows, r->key);
            continue;
        }
        if (c->cells++)
            fputc(',', c->f);
        const int n = snprintf(name, sizeof name, "%s%s%.100s", within, *within ? " " : "", r->key);
        if (c->head)
            csv_cell(c->f, *within ? name : r->key, *within ? (size_t)n : strlen(r->key));
        else
            put_value(c->f, &r->value);
    }
}

void csv_rows(struct csv *c, const struct row *rows) { put_cells(c, rows, ""); }

void csv_end(struct csv *c)
{
    fputs("\r\n", c->f);
    c->cells = 0;
    c->head = false;
}
