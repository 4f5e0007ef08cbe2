/* What a verb prints, described once: a sheet of rows. One printer writes it as text, another one as JSON.
 *
 *     const struct row rows[] = {
 *         { "model", "model", V_TEXT(dir) },                   model   DIR            "model": "DIR",
 *         { "layers", "shape", V_UINT(n), "@ layers" },        shape   6 layers, hidden 256
 *         { "hidden", "shape", V_UINT(h), "hidden @" },               "layers": 6, "hidden": 256,
 *         { "window", "context", V_UINT(w), .unless = !w },
 *         { "memory", "memory, MiB", V_ROWS(memory) },         a paragraph            "memory": {..},
 *         { "jobs", "", V_TABLE(&table) },                     a table                "jobs": [{..}, ..]
 *         { 0 } };
 *     sheet_print(o->json, JW_LINE, 6, rows);
 *
 * JSON has the rows with a key, in their order. Text has the rows with a label: those of one label share the
 * line of the first one, with commas between. A label, or the unit of a cell, that ends with a colon begins a
 * sentence. A value that is not known (a text NULL, a number NAN) is null in JSON and no part of the text.
 * Texts may come from outside: what is not printable becomes \xNN, and a long one ends in "...".
 * Pages have the rows and tables of the text (src/base/page.h).
 *
 * An object with a label is a paragraph: the label, and an indented line for each of its rows, with numbers
 * aligned. An object without a label lends its rows to the lines of the sheet around it, and one with the key
 * "" lends its members to the object around it. */
#pragma once
#include "src/base/json_write.h"

enum value_kind { VALUE_UINT, VALUE_INT, VALUE_REAL, VALUE_NUMBER, VALUE_DIGITS, VALUE_FIXED, VALUE_BOOL,
                  VALUE_TEXT, VALUE_BYTES, VALUE_JSON, VALUE_ROWS, VALUE_TABLE };
struct value {
    enum value_kind kind;
    union { uint64_t u; int64_t i; double x; bool b; const struct row *rows; const struct table *table;
            struct { const char *s; size_t n; }; };
    int digits;
};
#define V_UINT(n) { VALUE_UINT, { .u = (n) } }
#define V_WIDE(n) { VALUE_UINT, { .u = (n) }, 64 }           /* as jw_wide */
#define V_INT(n) { VALUE_INT, { .i = (n) } }
#define V_REAL(v) { VALUE_REAL, { .x = (v) } }               /* as jw_real */
#define V_NUMBER(v) { VALUE_NUMBER, { .x = (v) } }           /* as jw_number */
#define V_DIGITS(v, n) { VALUE_DIGITS, { .x = (v) }, (n) }   /* with n digits at most, as %g */
#define V_FIXED(v, n) { VALUE_FIXED, { .x = (v) }, (n) }     /* with n digits after the point */
#define V_BOOL(v) { VALUE_BOOL, { .b = (v) } }
#define V_TEXT(v) { VALUE_TEXT, { .s = (v) } }
#define V_BYTES(v, bytes) { VALUE_BYTES, { .s = (v), .n = (bytes) } }
#define V_JSON(v) { VALUE_JSON, { .s = (v) } }               /* as jw_parsed */
#define V_ROWS(v) { VALUE_ROWS, { .rows = (v) } }
#define V_TABLE(v) { VALUE_TABLE, { .table = (v) } }

struct row {
    const char *key;                 /* of JSON; NULL: no part of JSON */
    const char *label;               /* of text; NULL: no part of the text */
    struct value value;
    /* What stands around the value, which is @; NULL: nothing. @0 to @9: so many decimals; @, a count as
     * 12,345; @D: seconds as 4 min 05 s; @B: bytes in MB; @M: bytes in MiB, without the word; @T: seconds
     * since 1970 as local time. Of a V_BOOL: the words for true and, after a |, for false. */
    const char *unit;
    bool unless;                     /* leaves the row out */
    const char *link;                /* where a page links the value to; NULL: nowhere */
};

/* Records of equal rows. JSON: an array of objects or, if the rows have no key, of values. Text: a line of
 * the labels, unless the first one is "", and a line for each record. */
struct table {
    size_t n;
    /* Fills the cells of record i, at most SHEET_COLUMNS_MAX; all are {0} before. */
    void (*cells)(const void *ctx, size_t i, struct row *cells);
    const void *ctx;
    bool named;                      /* JSON is an object; the first cell, a text, is the key of its record */
};
enum { SHEET_ROWS_MAX = 160, SHEET_COLUMNS_MAX = 64, SHEET_TEXT = 8192 };

/* Prints to standard output; the caller ends it with stdout_finish. digits: of V_REAL and V_NUMBER. */
void sheet_print(bool json, enum jw_style style, int digits, const struct row *rows);
void sheet_text(FILE *f, const struct row *rows);
/* The lines of a table, cut to `most` columns of a terminal; f NULL: only widens the columns. Tables with one
 * `wide`, which begins as {0}, have columns of the same widths. */
void sheet_columns(FILE *f, const struct table *t, size_t wide[SHEET_COLUMNS_MAX], size_t most);
/* The records alone: as JSON one is an object, several are an array with a line for each. */
void sheet_list(bool json, const struct table *t);
/* A value as the text has it, "" if it is not known; whether values of a kind are numbers, and a number. */
void value_text(char *out, size_t size, struct value v);
bool value_is_number(enum value_kind kind);
bool value_is_text(enum value_kind kind);
double value_number(struct value v);
/* The rows as an object, and as members of an open one. */
void sheet_object(struct json_writer *w, const char *key, const struct row *rows);
void sheet_members(struct json_writer *w, const struct row *rows);
void sheet_table(struct json_writer *w, const char *key, struct table t);
void sheet_records(struct json_writer *w, const struct table *t);     /* of an open array */

/* For the printer of pages: the rows that the text has, those of objects without a label among them. */
struct sheet_lines { const struct row *v[SHEET_ROWS_MAX]; size_t n; };
void sheet_lines(struct sheet_lines *l, const struct row *rows, bool unknown_too);
/* The value within its unit; "" if it is not known. page: a text as it is, for the caller to escape. */
void row_text(char out[SHEET_TEXT], const struct row *r, bool page);
/* The values that share the line of row i, numbers with `wide` columns. False: an earlier row has it. */
bool line_text(char out[SHEET_TEXT], const struct sheet_lines *l, size_t i, size_t wide, bool page);
/* A number in a form: the character that stands after the @ of a unit. */
void number_text(char *out, size_t size, double x, char form);
