/* The two printers of sheets. Start at sheet_members for JSON and at put_rows for text. */
#include "src/base/sheet.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "src/base/base.h"
#include "src/base/output.h"

enum { TEXT_BYTES = 8192 };

static bool ends(const struct row *r) { return !r->key && !r->label; }

/* ---- JSON ---- */

static void put_value(struct json_writer *w, const char *key, const struct value *v);

static void put_records(struct json_writer *w, const char *key, const struct table *t, bool list)
{
    if (list)
        jw_open(w, key, '[');
    for (size_t i = 0; i < t->n; i++) {
        struct row cells[SHEET_COLUMNS_MAX + 1] = { 0 };
        t->cells(t->ctx, i, cells);
        put_value(w, NULL, cells->key ? &(struct value)V_ROWS(cells) : &cells->value);
    }
    if (list)
        jw_close(w, ']');
}

static void put_value(struct json_writer *w, const char *key, const struct value *v)
{
    switch (v->kind) {
    case VALUE_UINT:   jw_uint(w, key, v->u); break;
    case VALUE_INT:    jw_int(w, key, v->i); break;
    case VALUE_REAL:   jw_real(w, key, v->x); break;
    case VALUE_NUMBER: jw_number(w, key, v->x); break;
    case VALUE_DIGITS: jw_format(w, key, "%.*g", v->digits, v->x); break;
    case VALUE_BOOL:   jw_bool(w, key, v->b); break;
    case VALUE_TEXT:   jw_text(w, key, v->s); break;
    case VALUE_BYTES:  jw_bytes(w, key, v->s, v->n); break;
    case VALUE_JSON:   jw_parsed(w, key, v->s); break;
    case VALUE_ROWS:
        jw_open(w, key, '{');
        sheet_members(w, v->rows);
        jw_close(w, '}');
        break;
    case VALUE_TABLE:  put_records(w, key, v->table, true); break;
    }
}

void sheet_members(struct json_writer *w, const struct row *rows)
{
    for (const struct row *r = rows; !ends(r); r++)
        if (r->key && !r->unless)
            put_value(w, r->key, &r->value);
}

/* ---- text ---- */

bool value_is_number(enum value_kind kind) { return kind <= VALUE_DIGITS; }
static bool is_number(const struct value *v) { return value_is_number(v->kind); }

double value_number(struct value v)
{
    return v.kind == VALUE_UINT ? (double)v.u : v.kind == VALUE_INT ? (double)v.i : v.x;
}

static bool has_text(const struct value *v)
{
    return v->kind >= VALUE_TEXT && v->kind <= VALUE_JSON        ? v->s != NULL
           : v->kind >= VALUE_REAL && v->kind <= VALUE_DIGITS ? isfinite(v->x)
                                                               : true;
}

static void put_time(char out[TEXT_BYTES], double seconds)
{
    time_t s = (time_t)seconds;
    struct tm tm;
    if (seconds <= 0 || !localtime_r(&s, &tm) || !strftime(out, TEXT_BYTES, "%Y-%m-%d %H:%M:%S", &tm))
        strcpy(out, "-");
}

/* The value alone. form: the character after the @ of the unit. */
static void form_text(char out[TEXT_BYTES], const struct value *v, char form)
{
    const double x = value_number(*v);
    if (v->kind >= VALUE_TEXT && v->kind <= VALUE_JSON)
        terminal_text(out, TEXT_BYTES, v->s);
    else if (form == 'T')
        put_time(out, x);
    else if (form == 'M')
        snprintf(out, TEXT_BYTES, "%.1f", x / 1048576);
    else if (form == 'B')
        snprintf(out, TEXT_BYTES, "%.2f MB", x / 1e6);
    else if (isdigit((unsigned char)form))
        snprintf(out, TEXT_BYTES, "%.*f", form - '0', x);
    else if (v->kind == VALUE_UINT)
        snprintf(out, TEXT_BYTES, "%" PRIu64, v->u);
    else if (v->kind == VALUE_INT)
        snprintf(out, TEXT_BYTES, "%" PRId64, v->i);
    else
        snprintf(out, TEXT_BYTES, "%.*g", v->kind == VALUE_DIGITS ? v->digits : 6, x);
}

/* The value, at least `wide` columns if it is a number, within its unit. Returns the bytes of the value. */
static size_t put_piece(char out[TEXT_BYTES], const struct row *r, size_t wide)
{
    const char *unit = r->unit ? r->unit : "@", *at = strchr(unit, '@');
    char value[TEXT_BYTES] = "";
    if (r->value.kind == VALUE_BOOL) {
        const char *bar = unit + strcspn(unit, "|");
        snprintf(out, TEXT_BYTES, "%.*s", r->value.b ? (int)(bar - unit) : TEXT_BYTES,
                 r->value.b ? unit : *bar ? bar + 1 : bar);
        return strlen(out);
    }
    if (!at) {
        snprintf(out, TEXT_BYTES, "%s", unit);
        return strlen(out);
    }
    const char form = at[1] && strchr("BMT0123456789", at[1]) ? at[1] : 0;
    if (has_text(&r->value))
        form_text(value, &r->value, form);
    snprintf(out, TEXT_BYTES, "%.*s%*s%s", (int)(at - unit), unit, is_number(&r->value) ? (int)wide : 0,
             value, at + 1 + (form != 0));
    return strlen(value);
}

void value_text(char *out, size_t size, struct value v)
{
    char text[TEXT_BYTES] = "";
    if (has_text(&v))
        form_text(text, &v, 0);
    snprintf(out, size, "%s", text);
}

/* A label or a cell that ends with a colon begins a sentence: it stands in no column. */
static bool begins_sentence(const char *s) { return *s && s[strlen(s) - 1] == ':'; }

struct lines { const struct row *v[SHEET_ROWS_MAX]; size_t n; };

/* The rows that the text has, those of objects without a label among them. */
static void list_rows(struct lines *l, const struct row *rows, bool unknown_too)
{
    for (const struct row *r = rows; !ends(r); r++)
        if (r->value.kind == VALUE_ROWS && !r->label && !r->unless) {
            list_rows(l, r->value.rows, unknown_too);
        } else if (r->label && !r->unless && (unknown_too || has_text(&r->value))) {
            assert(l->n < SHEET_ROWS_MAX);
            l->v[l->n++] = r;
        }
}

/* Prints a line of the table, or with f NULL only widens the columns. */
static void put_line(FILE *f, const struct lines *l, bool head, size_t *wide, const char *indent)
{
    char text[TEXT_BYTES];
    const char *gap = indent;
    for (size_t c = 0; c < l->n; c++) {
        const struct row *r = l->v[c];
        if (head)
            snprintf(text, sizeof text, "%s", r->label);
        else if (has_text(&r->value))
            put_piece(text, r, 0);
        else
            strcpy(text, "-");
        const bool left = begins_sentence(text) || c + 1 == l->n;
        const int room = is_number(&r->value) ? (int)wide[c] : left ? 0 : -(int)wide[c];
        if (f)
            fprintf(f, "%s%*s%s", gap, room, text, c + 1 < l->n ? "" : "\n");
        else if (!left || is_number(&r->value))
            wide[c] = MAX(wide[c], strlen(text));
        gap = begins_sentence(text) ? " " : "  ";
    }
}

static void put_table(FILE *f, const struct table *t, const char *indent)
{
    size_t wide[SHEET_ROWS_MAX] = { 0 };
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < t->n; i++) {
            struct row cells[SHEET_COLUMNS_MAX + 1] = { 0 };
            struct lines l = { .n = 0 };
            t->cells(t->ctx, i, cells);
            list_rows(&l, cells, true);
            if (i == 0 && *cells->label)
                put_line(pass ? f : NULL, &l, true, wide, indent);
            put_line(pass ? f : NULL, &l, false, wide, indent);
        }
}

static void put_rows(FILE *f, const struct row *rows, const char *indent)
{
    struct lines l = { .n = 0 };
    char text[TEXT_BYTES];
    size_t labels = 0, numbers = 0;
    list_rows(&l, rows, false);
    for (size_t i = 0; i < l.n; i++) {
        if (l.v[i]->value.kind >= VALUE_ROWS)
            continue;
        if (!begins_sentence(l.v[i]->label))
            labels = MAX(labels, strlen(l.v[i]->label));
        if (*indent && is_number(&l.v[i]->value))
            numbers = MAX(numbers, put_piece(text, l.v[i], 0));
    }
    for (size_t i = 0; i < l.n; i++) {
        const struct row *r = l.v[i];
        size_t before = 0, pieces = 0;
        while (before < i && strcmp(l.v[before]->label, r->label))
            before++;
        if (r->value.kind >= VALUE_ROWS) {
            fprintf(f, *r->label ? "\n%s\n" : "%s", r->label);
            if (r->value.kind == VALUE_ROWS)
                put_rows(f, r->value.rows, "  ");
            else
                put_table(f, r->value.table, *r->label ? "  " : "");
            continue;
        }
        if (before < i)
            continue;
        if (begins_sentence(r->label))
            fprintf(f, "%s%s ", indent, r->label);
        else
            fprintf(f, "%s%-*s", indent, (int)(labels ? labels + 2 : 0), r->label);
        for (size_t k = i; k < l.n; k++) {
            if (l.v[k]->value.kind >= VALUE_ROWS || strcmp(l.v[k]->label, r->label))
                continue;
            put_piece(text, l.v[k], numbers);
            if (*text)
                fprintf(f, "%s%s", !pieces++ ? "" : *text == '(' ? " " : ", ", text);
        }
        putc('\n', f);
    }
}

void sheet_print(bool json, enum jw_style style, int digits, const struct row *rows)
{
    if (json) {
        struct json_writer w = jw_begin(stdout, style, digits);
        sheet_members(&w, rows);
        jw_end(&w);
    } else {
        put_rows(stdout, rows, "");
    }
}

void sheet_list(bool json, const struct table *t)
{
    struct json_writer w = { .f = stdout, .style = t->n > 1 ? JW_LIST : JW_LINE, .digits = 15 };
    if (!json) {
        put_table(stdout, t, "");
        return;
    }
    put_records(&w, NULL, t, t->n > 1);
    putchar('\n');
}
