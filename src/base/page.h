/* Pages: one style, one frame, the rows and tables of sheets, and plots as inline SVG. Report, plan, train
 * and the server have their pages from here. No piece loads or runs anything. */
#pragma once
#include <stdio.h>
#include "src/base/sheet.h"

/* Begins a page, with the style. nonce: of the style, as the header of the answer allows it; NULL: nothing
 * can load or run, and the page says so itself. script: NULL for none. */
void page_begin(FILE *f, const char *title, const char *nonce);
void page_end(FILE *f, const char *nonce, const char *script);

/* Escapes a text from outside for elements and attributes. Bytes that are not UTF-8, control characters,
 * and characters without width or that change the direction of writing are shown by their number. */
void page_text(FILE *f, const char *s);
/* Writes markup with values in it: @c takes a double, a count; @d a double, seconds; @0 to @9 a double with
 * so many decimals; @t a const char * for page_text. A dash stands for NAN. */
void page_format(FILE *f, const char *format, ...);

/* Rows of a sheet as pairs; those of one label share one. And the two cells of each record of a table. */
void page_rows(FILE *f, const struct row *rows);
void page_pairs(FILE *f, const struct table *t);
/* A table in a card. */
void page_table(FILE *f, const struct table *t);
/* The cells of a record, or with `head` those of the head, for a table with more than a sheet has. */
void page_cells(FILE *f, const struct row *cells, bool head);

/* y [n]; NAN: a gap. The last `shorter` values are of shorter windows: hollow points beside the line. */
struct series {
    const char *name; const double *y; size_t shorter;
    const double *half;              /* [n]: half of an error bar, NAN: none; NULL: none at all */
};
#define PAGE_HOLLOW "a hollow one is of the last window, if it is shorter."

/* A dashed vertical line, which shows its name under the pointer. */
struct page_mark { double x; char name[160]; };

/* Lines over a text of `length` tokens, with points at x[n]. */
struct page_plot {
    const char *title, *note;
    const double *x; size_t n;
    double length;
    double low;                      /* where the axis begins, unless 0 is easier to read */
    bool shares;                     /* values are 0..1 and shown in percent */
    bool no_legend;                  /* page_legend stands elsewhere */
    const struct page_mark *mark; size_t n_marks;
};
/* Each line has its values in the attribute data-y, and `half` in data-half. */
void page_plot(FILE *f, const struct page_plot *p, const struct series *v, size_t n_series);
/* The names of lines. Lines after the sixth are wider. */
void page_legend(FILE *f, const struct series *v, size_t n);
/* Bars side by side, one for each of v[n]; `from` is the number of the first. */
void page_bars(FILE *f, const char *title, const char *note, const double *v, size_t n, size_t from);
/* One bar cut into parts, with a legend that shows their shares. */
struct part { const char *name; double value; };
void page_parts(FILE *f, const struct part *v, size_t n);
