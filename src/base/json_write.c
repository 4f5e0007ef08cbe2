/* Writes JSON strings, and records when jansson runs out of memory. */
#include "src/base/json_write.h"

#include <stdatomic.h>
#include <stdlib.h>

void put_json(FILE *f, const char *s, size_t n)
{
    size_t valid = utf8_valid_prefix(s, n);
    putc_unlocked('"', f);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (i == valid) {
            fprintf(f, "\\\\x%02x", c);
            valid = i + 1 + utf8_valid_prefix(s + i + 1, n - i - 1);
        } else if (c == '"' || c == '\\')
            putc_unlocked('\\', f), putc_unlocked(c, f);
        else if (c == '\n')
            fputs_unlocked("\\n", f);
        else if (c == '\t')
            fputs_unlocked("\\t", f);
        else if (c == '\r')
            fputs_unlocked("\\r", f);
        else if (c < 0x20 || c == 0x7f)
            fprintf(f, "\\u%04x", c);
        else
            putc_unlocked(c, f);
    }
    putc_unlocked('"', f);
}

json_t *json_text(const char *s)
{
    struct err shown;
    json_t *v = s ? json_string(s) : json_null();
    if (!v)
        err_set(&shown, 0, "%s", s);
    return v ? v : json_string(shown.msg);
}

static atomic_bool json_short;

static void *json_memory(size_t n)
{
    void *p = malloc(n);
    if (!p)
        atomic_store(&json_short, true);
    return p;
}

void json_watch(void) { json_set_alloc_funcs(json_memory, free); }

int json_whole(struct err *e)
{
    return atomic_load(&json_short) ? err_set(e, ERR_FAILED, "out of memory for JSON") : 0;
}
