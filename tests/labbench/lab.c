/* What the parts of labbench share. */
#include "tests/labbench/lab.h"

#include <stdarg.h>
#include <stdio.h>

const size_t lab_rows[LAB_PASSES] = { 1, 4, 8, 16, 64 };

void lab_skip(struct lab *b, const char *fmt, ...)
{
    va_list args;
    if (b->n_skipped == sizeof b->skipped / sizeof *b->skipped)
        return;
    va_start(args, fmt);
    vsnprintf(b->skipped[b->n_skipped++], sizeof *b->skipped, fmt, args);
    va_end(args);
}
