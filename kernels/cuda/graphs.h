/* Recorded passes (CUDA graphs) by key, for both drivers of device_gpu.c: which graphs stay and which make
 * room. A graph takes device memory for each of its kernels: about 10 KB on newer drivers by NVIDIA's
 * account, 64 KB on older drivers as measured by users. A pass of an 8B model has 324 kernels. The memory
 * plan therefore reserves GRAPHS_BYTES, and graphs are kept up to that sum of the sizes that the device
 * reports. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* GRAPHS_STALE: number of passes without use after which a graph may make room */
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

/* Whether another graph may be recorded. *old: NULL, or a graph that was removed and that the caller destroys
 * in either case. Nothing is recorded while no graph is stale: a pass without a graph costs less than
 * recording graphs again and again. */
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
