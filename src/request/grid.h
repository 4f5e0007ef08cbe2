/* submit --grid: one request for every combination of the values of some options, as jobs of one batch.
 *
 *     struct grid g;
 *     if (grid_open(&g, o, &e) || grid_submit(&g, store, &e)) ...
 *     g.name, g.ids[0 .. g.n)
 *     grid_close(&g);
 *
 * All combinations have the same prompt and, unless the grid names seeds, the same seed, so sample i has the
 * same coins in each. Jobs of a grid over options of drafting are written alone (--alone). The
 * custom_id names the combination and the sample: "temperature=0.6,penalty=1/0". The batch is called --name,
 * else grid-SEED. Submitting the same grid again adds nothing. */
#pragma once
#include "src/request/request.h"

enum { GRID_OPTIONS_MAX = 8, GRID_JOBS_MAX = 100000 };

struct option;
struct grid_option { const char *name; const struct option *opt; struct text_list values; };

struct grid {                            /* {0} is closed */
    struct options o;                    /* the command line, with the values of one combination */
    struct engine engine;
    struct request first;                /* the first combination; it has the prompt of all */
    struct grid_option option[GRID_OPTIONS_MAX]; size_t n_options;
    char name[BATCH_NAME_BYTES_MAX + 1], seed[24];
    bool seeds;                          /* one of the options is the seed */
    struct text_list text;               /* the words of the options, parameters, custom_ids, identities */
    struct job_spec *spec; size_t n;
    int64_t *ids; size_t n_new;
};

int  grid_open(struct grid *g, const struct options *o, struct err *e);
int  grid_submit(struct grid *g, struct store *s, struct err *e);
void grid_close(struct grid *g);
