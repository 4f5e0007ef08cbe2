/* Pieces of the page that report_html writes: escaped text and plots as inline SVG. No piece loads or runs anything. */
#pragma once
#include <stdio.h>
#include "src/base/base.h"

extern const char page_style[];

/* Text from anywhere as HTML. Bytes that are no UTF-8, control characters and those that turn the direction of writing or have no width are shown by
 * their number. In attributes the same. */
void page_text(FILE *f, const char *s);
/* 12,345 */
void page_count(FILE *f, double x);
/* 3.1 s, 4 min 05 s, 2 h 10 min */
void page_duration(FILE *f, double seconds);
/* With `digits` behind the point; a dash for NAN. */
void page_real(FILE *f, double x, int digits);

enum page_unit { UNIT_NUMBER, UNIT_SHARE };      /* a share is 0..1 and shown in percent */

struct series { const char *name; const double *y; };    /* y [n]; NAN: a gap */

/* Lines over a text of `length` tokens: points at x[n], from `low` up (or from 0, where that is easier to read). The values are in the attribute data-y of each line. */
void page_plot(FILE *f, double length, const char *title, const char *note, const double *x, size_t n,
               const struct series *v, size_t n_series, double low, enum page_unit unit);
/* Bars side by side, one for each of v[n]; `from` is the number of the first. */
void page_bars(FILE *f, const char *title, const char *note, const double *v, size_t n, size_t from);
/* One bar cut into parts, with a legend that has their shares. */
struct part { const char *name; double value; };
void page_parts(FILE *f, const struct part *v, size_t n);
