/* A batch as a table of CSV (RFC 4180) or TSV: each row becomes a line {"prompt": .., ..} of batch_line.h.
 * Start at batch_read_rows.
 *
 * The first row names the columns. prompt or messages is needed. A column with the name of a field of a line
 * is that field: custom_id, metadata (JSON) and every field of the body. All other columns become members of
 * the metadata, as texts, unless it has the member. An empty cell is a missing field. A cell of messages that
 * does not begin with [ is the message of a user. A cell in quotes may contain separators and line ends, and
 * "" for a quote. */
#include "src/request/batch_impl.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "src/base/input.h"
#include "src/base/json_write.h"
#include "src/base/memory_file.h"

enum { CSV_COLUMNS_MAX = 256 };
struct csv_rows {
    const char *file, *at, *end;     /* borrowed: the name in messages; what is left of the table */
    char separator;
    size_t row;                      /* of the last row, from 1: the number that a spreadsheet shows */
    char *room;                      /* of the cells of a row, which follow the names */
    const char *column[CSV_COLUMNS_MAX]; size_t n_columns;
};

/* Takes one cell, copies it to `to`, and moves *at past it. Returns the end of the copy; NULL: its quote does
 * not end. */
static char *read_cell(const char **at, const char *end, char separator, char *to)
{
    const char *p = *at;
    const bool quoted = p < end && *p == '"';
    for (p += quoted; p < end; *to++ = *p++) {
        if (quoted && *p == '"') {
            if (p + 1 < end && p[1] == '"')
                p++;
            else
                break;
        }
        if (!quoted && (*p == separator || *p == '\n' || *p == '\r'))
            break;
    }
    if (quoted && p == end)
        return NULL;
    *at = p + quoted;
    return to;
}

/* Reads the next row: *n cells, which lie in c->room. 1; 0: the table ends; -1. */
static int read_row(struct csv_rows *c, const char *cell[CSV_COLUMNS_MAX], size_t *n, struct err *e)
{
    char *to = c->room;
    *n = 0;
    if (c->at == c->end)
        return 0;
    c->row++;
    for (bool more = true; more; ) {
        if (*n == CSV_COLUMNS_MAX)
            return err_set(e, ERR_INPUT, "%s: row %zu: more than %d columns", c->file, c->row,
                           CSV_COLUMNS_MAX);
        cell[*n] = to;
        if (!(to = read_cell(&c->at, c->end, c->separator, to)))
            return err_set(e, ERR_INPUT, "%s: row %zu, column %zu: the quote that begins the cell does not "
                           "end", c->file, c->row, *n + 1);
        *to++ = 0;
        ++*n;
        more = c->at < c->end && *c->at == c->separator;
        if (!more && c->at < c->end && *c->at != '\n' && *c->at != '\r')
            return err_set(e, ERR_INPUT, "%s: row %zu, column %zu: a character follows the closing quote",
                           c->file, c->row, *n);
        c->at += more;
    }
    c->at += c->at < c->end && *c->at == '\r';
    c->at += c->at < c->end && *c->at == '\n';
    return 1;
}

static bool is_prompt(const char *column) { return !strcmp(column, "prompt") || !strcmp(column, "messages"); }

/* Reads the row of names. */
static int read_names(struct csv_rows *c, struct err *e)
{
    const char *text = c->at, *file = c->file;
    bool prompts = false;
    if (read_row(c, c->column, &c->n_columns, e) < 0)
        return -1;
    for (size_t i = 0; i < c->n_columns; i++) {
        prompts |= is_prompt(c->column[i]);
        c->room += strlen(c->column[i]) + 1;
        for (size_t k = 0; k < i; k++)
            if (strcmp(c->column[i], c->column[k]) == 0)
                return err_set(e, ERR_INPUT, "%s: row 1: two columns have the name \"%s\"", file,
                               c->column[i]);
    }
    if (prompts)
        return 0;
    size_t shown = (size_t)(c->at - text);
    while (shown && (text[shown - 1] == '\n' || text[shown - 1] == '\r'))
        shown--;
    return err_set(e, ERR_INPUT, "%s: row 1: the names of the columns are needed, one of them prompt or "
                   "messages, with a %s between two; found %.*s", file, c->separator == ',' ? "comma" : "tab",
                   (int)(shown > 80 ? utf8_valid_prefix(text, 80) : shown), text);
}

/* A cell of a field as JSON: a number, a list and so on as they are, everything else as a text. */
static void put_field(struct json_writer *w, const char *name, const char *cell)
{
    struct json v;
    struct err ignored;
    if (strcasecmp(cell, "true") == 0 || strcasecmp(cell, "false") == 0)
        jw_bool(w, name, strcasecmp(cell, "true") == 0);
    else if (js_check(&v, "", cell, strlen(cell), &ignored) == 0)
        jw_raw(w, name, cell, strlen(cell));
    else
        jw_text(w, name, cell);
}

static bool is_other(const char *column, const char *cell)
{
    return *cell && !(batch_line_field(column) & FIELD_READ);
}

/* The metadata of a row with cells of columns that are no fields. They join the members of `own`, the cell of
 * the column metadata, which have precedence; NULL: there is none. -1: out of memory. */
static int put_metadata(struct json_writer *w, const struct csv_rows *c, const char *const *cell,
                        const char *own)
{
    struct json all, key, v;
    struct err ignored;
    const bool object = own && js_check(&all, "", own, strlen(own), &ignored) == 0 &&
                        js_kind(&all) == JS_OBJECT;
    jw_open(w, "metadata", '{');
    if (own && !object)
        jw_text(w, "metadata", own);
    if (object)
        for (struct js_walk at = js_walk(&all); js_next(&at, &key, &v);) {
            char *name = js_strdup(&key);
            if (!name)
                return -1;
            jw_value(w, name, &v);
            free(name);
        }
    for (size_t i = 0; i < c->n_columns; i++)
        if (is_other(c->column[i], cell[i]) && !(object && js_get(&all, c->column[i], &v, &ignored)))
            jw_text(w, c->column[i], cell[i]);
    jw_close(w, '}');
    return 0;
}

static int put_row(struct json_writer *w, const struct csv_rows *c, const char *const *cell)
{
    const char *metadata = NULL;
    const char *empty = NULL;            /* a column with the prompt, where no cell of the row has one */
    bool others = false, asks = false;
    for (size_t i = 0; i < c->n_columns; i++) {
        const bool prompt = is_prompt(c->column[i]);
        empty = prompt && !*cell[i] ? c->column[i] : empty;
        asks |= *cell[i] && (prompt || strcmp(c->column[i], "after") == 0);
        others |= is_other(c->column[i], cell[i]);
        metadata = *cell[i] && strcmp(c->column[i], "metadata") == 0 ? cell[i] : metadata;
    }
    jw_open(w, NULL, '{');
    if (!asks)
        jw_text(w, empty, NULL);
    for (size_t i = 0; i < c->n_columns; i++) {
        const char *name = c->column[i];
        if (!*cell[i] || is_other(name, cell[i]) || (others && cell[i] == metadata))
            continue;
        if (batch_line_field(name) & FIELD_TEXT) {
            jw_text(w, name, cell[i]);
        } else if (strcmp(name, "messages") == 0 && *cell[i] != '[') {
            jw_open(w, name, '[');
            chat_put(w, "user", cell[i], strlen(cell[i]));
            jw_close(w, ']');
        } else {
            put_field(w, name, cell[i]);
        }
    }
    const int rc = others ? put_metadata(w, c, cell, metadata) : 0;
    jw_close(w, '}');
    return rc;
}

/* The next row that is not empty, as JSON: 1, free(*json); 0: the table ends; -1. */
static int next_row(struct csv_rows *c, char **json, size_t *n, struct err *e)
{
    const char *cell[CSV_COLUMNS_MAX];
    size_t n_cells;
    int rc;
    *json = NULL;
    do
        rc = read_row(c, cell, &n_cells, e);
    while (rc == 1 && n_cells == 1 && !*cell[0]);
    if (rc != 1)
        return rc;
    if (n_cells != c->n_columns)
        return err_set(e, ERR_INPUT, "%s: row %zu: %zu cells, row 1 names %zu columns", c->file, c->row,
                       n_cells, c->n_columns);
    FILE *f = memory_file(json, n);
    if (!f)
        return batch_no_memory(e);
    struct json_writer w = { .f = f };
    rc = put_row(&w, c, cell);
    return stream_end(f) || rc ? batch_no_memory(e) : 1;
}

int batch_read_rows(struct batch *b, const char *text, size_t n, struct err *e)
{
    char *json, *room = malloc(n + CSV_COLUMNS_MAX + 1);
    struct csv_rows c = { b->file, text, text + n, .separator = b->separator, .room = room };
    size_t n_json;
    int rc = !room ? batch_no_memory(e) : text_check_utf8(b->file, text, n, e) ||
             text_check_nul(b->file, text, n, e) || read_names(&c, e) ? -1 : 0;
    while (rc == 0 && (rc = next_row(&c, &json, &n_json, e)) == 1) {
        rc = batch_take_line(b, c.row, json, n_json, e);
        free(json);
    }
    free(room);
    return rc;
}
