/* Rows of a fixed --tree. */
#pragma once
#include "src/decode/draft.h"

/* The candidates of a tree in which every node has its depth's width: the sum of the products of widths. */
static inline size_t fixed_tree_rows(const struct draft_settings *s)
{
    size_t rows = 0, level = 1;
    for (size_t i = 0; i < s->n_width; i++)
        rows += level *= s->width[i];
    return rows;
}
/* The width at a depth; below the last one passes continue with one candidate. */
static inline size_t fixed_tree_width(const struct draft_settings *s, size_t depth)
{
    return depth < s->n_width ? s->width[depth] : 1;
}
/* The depth that passes of one depth each reach. */
static inline size_t fixed_tree_depth(const struct draft_settings *s)
{
    return MAX(s->n_width, (size_t)MAX(s->draft_passes, 0));
}
/* The candidates of so many passes that each continue at most `beam` nodes. */
static inline size_t fixed_tree_beam(const struct draft_settings *s, size_t passes, size_t beam)
{
    size_t rows = 0, nodes = 1;
    for (size_t i = 0; i < passes; i++)
        rows += nodes = MIN(nodes, beam) * fixed_tree_width(s, i);
    return rows;
}
