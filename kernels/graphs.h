/* Recorded passes by key, for both drivers below device_gpu.c: which are kept, and which must go. A graph takes device memory for each of its kernels: about
 * 10 KB by what NVIDIA says of newer drivers, 64 KB by what users of older ones measured. A pass of an 8B model has 324, so graphs are kept up to
 * GRAPHS_BYTES, which is part of the memory plan, by what the device says each took. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* passes after which a graph may make room for another */
enum { GRAPHS_MAX = 256, GRAPH_NODE_BYTES = 64 << 10, GRAPHS_STALE = 512 };
#define GRAPHS_BYTES ((size_t)256 << 20)

struct graphs {
    struct { uint64_t key, used; size_t bytes; void *graph; } at[GRAPHS_MAX];
    size_t n, bytes;
    uint64_t passes;
};

static inline void *graphs_find(struct graphs *g, uint64_t key)
{
    g->passes++;
    for (size_t i = 0; i < g->n; i++)
        if (g->at[i].key == key) {
            g->at[i].used = g->passes;
            return g->at[i].graph;
        }
    return NULL;
}

/* Whether one more may be recorded. *old: one to be destroyed in either case, taken out, or NULL. Without one that is stale nothing is: a pass without a graph costs
 * less than recording one again and again. */
static inline bool graphs_room(struct graphs *g, void **old)
{
    size_t oldest = 0;
    *old = NULL;
    if (g->n < GRAPHS_MAX && g->bytes < GRAPHS_BYTES)
        return true;
    for (size_t i = 1; i < g->n; i++)
        if (g->at[i].used < g->at[oldest].used)
            oldest = i;
    if (g->passes - g->at[oldest].used < GRAPHS_STALE)
        return false;
    *old = g->at[oldest].graph;
    g->bytes -= g->at[oldest].bytes;
    g->at[oldest] = g->at[--g->n];
    return g->bytes < GRAPHS_BYTES;
}

static inline void graphs_keep(struct graphs *g, uint64_t key, void *graph, size_t bytes)
{
    g->at[g->n].key = key, g->at[g->n].used = g->passes, g->at[g->n].bytes = bytes, g->at[g->n].graph = graph;
    g->n++;
    g->bytes += bytes;
}
