/* A batch as a table of CSV (RFC 4180) or TSV: each row becomes a line {"prompt": .., ..} of batch_line.h.
 *
 * The first row names the columns. prompt or messages is needed. A column with the name of a field of a line
 * is that field: custom_id, metadata (JSON) and every field of the body. All other columns become members of
 * the metadata, as texts, unless it has the member. An empty cell is a missing field. A cell of messages that
 * does not begin with [ is the message of a user. A cell in quotes may contain separators and line ends, and
 * "" for a quote. */
#pragma once
#include "src/base/base.h"

enum { CSV_COLUMNS_MAX = 256 };
struct csv_cell { char *text; size_t n; };               /* a NUL follows */
struct csv_rows {                    /* {0} is closed */
    const char *file, *at, *end;     /* borrowed: the name in messages; what is left of the table */
    char separator;
    size_t row;                      /* of the last row, from 1: the number that a spreadsheet shows */
    char *names, *room;              /* of the columns; of the cells of a row */
    struct csv_cell column[CSV_COLUMNS_MAX]; size_t n_columns;
};
/* Reads the row of names. text[n] is borrowed. */
int  csv_open(struct csv_rows *c, const char *file, const char *text, size_t n, char separator,
              struct err *e);
/* The next row that is not empty, as JSON: 1, free(*json); 0: the table ends; -1. */
int  csv_next(struct csv_rows *c, char **json, size_t *n, struct err *e);
void csv_close(struct csv_rows *c);
