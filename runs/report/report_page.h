/* Pieces of the page that report_html writes: escaped text, and plots as inline SVG. No piece loads or
 * runs anything. */
#pragma once
#include <stdio.h>
#include "src/base/base.h"

/* Begins a page in which nothing can load or run; its body ends with </main></body></html>. */
void page_begin(FILE *f, const char *title);

/* Escapes a text from outside for elements and attributes. Bytes that are not UTF-8, control characters,
 * and characters without width or that change the direction of writing are shown by their number. */
void page_text(FILE *f, const char *s);
/* 12,345 */
void page_count(FILE *f, double x);
/* 3.1 s, 4 min 05 s, 2 h 10 min */
void page_duration(FILE *f, double seconds);
/* With `digits` after the point; a dash for NAN. */
void page_real(FILE *f, double x, int digits);
/* Writes markup with values in it: @c takes a double for page_count, @d a double for page_duration, @0 to
 * @9 a double for page_real, @t a const char * for page_text. */
void page_format(FILE *f, const char *format, ...);

/* y [n]; NAN: a gap. The values from `full` on are of shorter windows: hollow points beside the line. */
struct series {
    const char *name; const double *y; size_t full;
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
