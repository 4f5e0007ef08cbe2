/* Cells of CSV (RFC 4180). */
#pragma once
#include <stdio.h>
#include "src/base/base.h"

/* Writes a text of n bytes from outside as one cell: quoted where needed. An apostrophe stands before what a
 * spreadsheet would compute. */
void csv_cell(FILE *f, const char *s, size_t n);
