/* The two printers of sheets. Start at sheet_members for JSON and at put_rows for text. */
#include "src/base/sheet.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/base/base.h"
#include "src/base/output.h"

static bool ends(const struct row *r) { return !r->key && !r->label; }

/* ---- JSON ---- */

static void put_value(struct json_writer *w, const char *key, const struct value *v);

static void put_records(struct json_writer *w, const char *key, const struct table *t, bool list)
{
    if (list)
        jw_open(w, key, t->named ? '{' : '[');
    for (size_t i = 0; i < t->n; i++) {
        struct row cells[SHEET_COLUMNS_MAX + 1] = { 0 };
        t->cells(t->ctx, i, cells);
        put_value(w, t->named ? cells->value.s : NULL,
                  t->named || cells->key ? &(struct value)V_ROWS(cells) : &cells->value);
    }
    if (list)
        jw_close(w, t->named ? '}' : ']');
}

static void put_value(struct json_writer *w, const char *key, const struct value *v)
{
    switch (v->kind) {
    case VALUE_UINT:   (v->digits ? jw_wide : jw_uint)(w, key, v->u); break;
    case VALUE_INT:    jw_int(w, key, v->i); break;
    case VALUE_REAL:   jw_real(w, key, v->x); break;
    case VALUE_NUMBER: jw_number(w, key, v->x); break;
    case VALUE_DIGITS: jw_format(w, key, "%.*g", v->digits, v->x); break;
    case VALUE_FIXED:  jw_format(w, key, "%.*f", v->digits, v->x); break;
    case VALUE_BOOL:   jw_bool(w, key, v->b); break;
    case VALUE_TEXT:   jw_text(w, key, v->s); break;
    case VALUE_BYTES:  jw_bytes(w, key, v->s, v->n); break;
    case VALUE_JSON:   jw_parsed(w, key, v->s); break;
    case VALUE_ROWS:   sheet_object(w, key, v->rows); break;
    case VALUE_TABLE:  put_records(w, key, v->table, true); break;
    }
}

void sheet_members(struct json_writer *w, const struct row *rows)
{
    for (const struct row *r = rows; !ends(r); r++)
        if (r->key && !r->unless && !*r->key && r->value.kind == VALUE_ROWS)
            sheet_members(w, r->value.rows);
        else if (r->key && !r->unless)
            put_value(w, r->key, &r->value);
}

void sheet_object(struct json_writer *w, const char *key, const struct row *rows)
{
    jw_open(w, key, '{');
    sheet_members(w, rows);
    jw_close(w, '}');
}

void sheet_table(struct json_writer *w, const char *key, struct table t) { put_records(w, key, &t, true); }
void sheet_records(struct json_writer *w, const struct table *t) { put_records(w, NULL, t, false); }

/* ---- text ---- */

bool value_is_number(enum value_kind kind) { return kind <= VALUE_FIXED; }
bool value_is_text(enum value_kind kind) { return kind >= VALUE_TEXT && kind <= VALUE_JSON; }
static bool is_number(const struct value *v) { return value_is_number(v->kind); }

double value_number(struct value v)
{
    return v.kind == VALUE_UINT ? (double)v.u : v.kind == VALUE_INT ? (double)v.i : v.x;
}

static bool has_text(const struct value *v)
{
    return value_is_text(v->kind)                              ? v->s != NULL
           : v->kind >= VALUE_REAL && v->kind <= VALUE_FIXED ? isfinite(v->x) : true;
}

static void put_time(char *out, size_t size, double seconds)
{
    time_t s = (time_t)seconds;
    struct tm tm;
    if (seconds <= 0 || !localtime_r(&s, &tm) || !strftime(out, size, "%Y-%m-%d %H:%M:%S", &tm))
        snprintf(out, size, "-");
}

/* 12,345 */
static void put_count(char *out, size_t size, double x)
{
    char digits[32];
    const int n = snprintf(digits, sizeof digits, "%.0f", x);
    for (int i = 0; i < n && size > 2; i++) {
        if (i && digits[i - 1] != '-' && (n - i) % 3 == 0)
            *out++ = ',', size--;
        *out++ = digits[i], size--;
    }
    *out = 0;
}

/* 250 ms, 3.1 s, 4 min 05 s, 2 h 10 min */
static void put_duration(char *out, size_t size, double s)
{
    if (s < 0.9995)
        snprintf(out, size, "%.0f ms", 1e3 * s);
    else if (s < 99.95)
        snprintf(out, size, "%.1f s", s);
    else if (s < 3599.5)
        snprintf(out, size, "%d min %02d s", (int)(s + .5) / 60, (int)(s + .5) % 60);
    else
        snprintf(out, size, "%.0f h %02d min", floor((s + 30) / 3600), (int)fmod((s + 30) / 60, 60));
}

void number_text(char *out, size_t size, double x, char form)
{
    if (form == 'T')
        put_time(out, size, x);
    else if (form == ',')
        put_count(out, size, x);
    else if (form == 'D')
        put_duration(out, size, x);
    else if (form == 'M')
        snprintf(out, size, "%.1f", x / 1048576);
    else if (form == 'B')
        snprintf(out, size, "%.2f MB", x / 1e6);
    else
        snprintf(out, size, "%.*f", form - '0', x);
}

/* The value alone. form: the character after the @ of the unit; 0: none. */
static void form_text(char out[SHEET_TEXT], const struct value *v, char form, bool page)
{
    enum { ROOM = SHEET_TEXT - 1024 };   /* the unit and other values of the line follow */
    if (value_is_text(v->kind) && page)
        snprintf(out, ROOM, "%.*s", (int)utf8_valid_prefix(v->s, strnlen(v->s, ROOM - 1)), v->s);
    else if (value_is_text(v->kind))
        terminal_text(out, ROOM, v->s);
    else if (form)
        number_text(out, SHEET_TEXT, value_number(*v), form);
    else if (v->kind == VALUE_UINT)
        snprintf(out, SHEET_TEXT, "%" PRIu64, v->u);
    else if (v->kind == VALUE_INT)
        snprintf(out, SHEET_TEXT, "%" PRId64, v->i);
    else
        snprintf(out, SHEET_TEXT, "%.*g", v->kind == VALUE_DIGITS ? v->digits : 6, v->x);
}

/* The value, at least `wide` columns if it is a number, within its unit. Returns the bytes of the value. */
static size_t put_piece(char out[SHEET_TEXT], const struct row *r, size_t wide, bool page)
{
    const char *unit = r->unit ? r->unit : "@", *at = strchr(unit, '@');
    char value[SHEET_TEXT] = "";
    if (r->value.kind == VALUE_BOOL) {
        const char *bar = unit + strcspn(unit, "|");
        snprintf(out, SHEET_TEXT, "%.*s", r->value.b ? (int)(bar - unit) : SHEET_TEXT,
                 r->value.b ? unit : *bar ? bar + 1 : bar);
        return strlen(out);
    }
    if (!at) {
        snprintf(out, SHEET_TEXT, "%s", unit);
        return strlen(out);
    }
    const char form = at[1] && strchr(",BDMT0123456789", at[1]) ? at[1] : 0;
    if (has_text(&r->value))
        form_text(value, &r->value, form, page);
    snprintf(out, SHEET_TEXT, "%.*s%*s%s", (int)(at - unit), unit, is_number(&r->value) ? (int)wide : 0,
             value, at + 1 + (form != 0));
    return strlen(value);
}

void row_text(char out[SHEET_TEXT], const struct row *r, bool page)
{
    *out = 0;
    if (has_text(&r->value))
        put_piece(out, r, 0, page);
}

void value_text(char *out, size_t size, struct value v)
{
    char text[SHEET_TEXT];
    row_text(text, &(struct row){ .value = v }, false);
    snprintf(out, size, "%s", text);
}

/* A label or the unit of a cell that ends with a colon begins a sentence: it stands in no column. */
static bool begins_sentence(const char *s) { return *s && s[strlen(s) - 1] == ':'; }

void sheet_lines(struct sheet_lines *l, const struct row *rows, bool unknown_too)
{
    for (const struct row *r = rows; !ends(r); r++)
        if (r->value.kind == VALUE_ROWS && !r->label && !r->unless) {
            sheet_lines(l, r->value.rows, unknown_too);
        } else if (r->label && !r->unless && (unknown_too || has_text(&r->value))) {
            assert(l->n < SHEET_ROWS_MAX);
            l->v[l->n++] = r;
        }
}

/* Prints a line of the table, or with f NULL only widens the columns. */
static void put_line(FILE *f, const struct sheet_lines *l, bool head, size_t *wide, size_t gap, size_t most)
{
    char text[SHEET_TEXT];
    for (size_t c = 0, used = 0; c < l->n && used < most; c++) {
        const struct row *r = l->v[c];
        if (head)
            terminal_text(text, sizeof text, r->label);
        else
            row_text(text, r, false);
        if (!*text && !has_text(&r->value))
            strcpy(text, "-");
        const bool sentence = r->unit && begins_sentence(r->unit) && !head;
        const bool right = is_number(&r->value), left = sentence || c + 1 == l->n;
        gap = MIN(gap, most - used);
        const size_t n = terminal_cut(text, most - used - gap);
        const int pad = (int)MIN(wide[c] - MIN(n, wide[c]), most - used - gap - n);
        if (f)
            fprintf(f, "%*s%*s%s%*s", (int)gap, "", right ? pad : 0, "", text, right || left ? 0 : pad, "");
        else if (!left || right)
            wide[c] = MAX(wide[c], n);
        used += gap + n + (size_t)pad;
        gap = sentence ? 1 : 2;
    }
    if (f)
        fputc('\n', f);
}

static void put_lines(FILE *f, const struct table *t, size_t *wide, size_t indent, size_t most)
{
    for (size_t i = 0; i < t->n; i++) {
        struct row cells[SHEET_COLUMNS_MAX + 1] = { 0 };
        struct sheet_lines l = { .n = 0 };
        t->cells(t->ctx, i, cells);
        sheet_lines(&l, cells, true);
        if (i == 0 && *l.v[0]->label)
            put_line(f, &l, true, wide, indent, most);
        put_line(f, &l, false, wide, indent, most);
    }
}

void sheet_columns(FILE *f, const struct table *t, size_t wide[SHEET_COLUMNS_MAX], size_t most)
{
    put_lines(f, t, wide, 0, most);
}

static void put_table(FILE *f, const struct table *t, size_t indent)
{
    size_t wide[SHEET_COLUMNS_MAX] = { 0 };
    put_lines(NULL, t, wide, indent, SIZE_MAX);
    put_lines(f, t, wide, indent, SIZE_MAX);
}

static bool is_of_line(const struct sheet_lines *l, size_t i, size_t k)
{
    return l->v[k]->value.kind < VALUE_ROWS && strcmp(l->v[k]->label, l->v[i]->label) == 0;
}

bool line_text(char out[SHEET_TEXT], const struct sheet_lines *l, size_t i, size_t numbers, bool page)
{
    char text[SHEET_TEXT];
    size_t used = 0;
    *out = 0;
    for (size_t k = 0; k < i; k++)
        if (is_of_line(l, i, k))
            return false;
    for (size_t k = i; k < l->n && used < SHEET_TEXT; k++) {
        if (!is_of_line(l, i, k))
            continue;
        put_piece(text, l->v[k], numbers, page);
        if (*text)
            used += (size_t)snprintf(out + used, SHEET_TEXT - used, "%s%s",
                                     !used ? "" : strchr("(;", *text) ? " " + (*text == ';') : ", ", text);
    }
    return true;
}

static void put_rows(FILE *f, const struct row *rows, const char *indent)
{
    struct sheet_lines l = { .n = 0 };
    char text[SHEET_TEXT];
    size_t labels = 0, numbers = 0;
    sheet_lines(&l, rows, false);
    for (size_t i = 0; i < l.n; i++) {
        if (l.v[i]->value.kind >= VALUE_ROWS)
            continue;
        if (!begins_sentence(l.v[i]->label))
            labels = MAX(labels, strlen(l.v[i]->label));
        if (*indent && is_number(&l.v[i]->value))
            numbers = MAX(numbers, put_piece(text, l.v[i], 0, false));
    }
    for (size_t i = 0; i < l.n; i++) {
        const struct row *r = l.v[i];
        const bool apart = begins_sentence(r->label);
        if (r->value.kind >= VALUE_ROWS) {
            fprintf(f, *r->label ? "\n%s\n" : "%s", r->label);
            if (r->value.kind == VALUE_ROWS)
                put_rows(f, r->value.rows, "  ");
            else
                put_table(f, r->value.table, *r->label ? 2 : 0);
        } else if (r->value.kind == VALUE_JSON) {        /* whole, however long */
            char *all = malloc(4 * strlen(r->value.s) + 16);
            if (all)
                terminal_text(all, 4 * strlen(r->value.s) + 16, r->value.s);
            fprintf(f, "%s%-*s%s\n", indent, (int)labels + 2, r->label, all ? all : "");
            free(all);
        } else if (line_text(text, &l, i, numbers, false)) {
            char label[1000];
            terminal_text(label, sizeof label, r->label);
            fprintf(f, "%s%-*s%s%s\n", indent, (int)(labels && !apart ? labels + 2 : 0), label,
                    apart ? " " : "", text);
        }
    }
}

void sheet_text(FILE *f, const struct row *rows) { put_rows(f, rows, ""); }

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
        put_table(stdout, t, 0);
        return;
    }
    put_records(&w, NULL, t, t->n > 1);
    putchar('\n');
}
