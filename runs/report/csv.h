/* CSV (RFC 4180). */
#pragma once
#include "src/base/sheet.h"

/* Writes a text of n bytes from outside as one cell: quoted where needed. An apostrophe stands before what a
 * spreadsheet would compute. */
void csv_cell(FILE *f, const char *s, size_t n);

/* Lines from rows of sheets: those with a key are the columns, of an object one for each of its rows. With
 * `head` the first line has the keys. */
struct csv { FILE *f; bool head; size_t cells; };
void csv_rows(struct csv *c, const struct row *rows);    /* cells of the line, after those that it has */
void csv_end(struct csv *c);
