/* Owns the projection: tokens per round of models/demo on real text, and the time of a long text computed
 * from the times of device.c. Start at lab_accept and lab_project. */
#include "src/decode/weights.h"
#include "src/base/input.h"
#include "src/base/stopping.h"
#include "tests/labbench/lab.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/find_model.h"

/* ---- models/demo on real text ---- */

/* The tokens of the opening number `which`; free(*ids). Returns 1 where no such opening exists. */
static int opening(const struct engine *g, size_t which, int32_t **ids, size_t *n, struct err *e)
{
    char path[PATH_BYTES + 300], folder[PATH_BYTES + 16], *text;
    struct dirent **found;
    size_t bytes, seen = 0;
    snprintf(folder, sizeof folder, "%s/openings", g->dir);
    int files = scandir(folder, &found, NULL, alphasort);
    path[0] = 0;
    for (int i = 0; i < files; i++) {
        const char *end = strrchr(found[i]->d_name, '.');
        if (end && strcmp(end, ".txt") == 0 && seen++ == which)
            snprintf(path, sizeof path, "%s/%s", folder, found[i]->d_name);
        free(found[i]);
    }
    if (files >= 0)
        free(found);
    if (!path[0])
        return 1;
    if (text_read_utf8(&text, &bytes, path, e))
        return -1;
    int rc = tokenizer_encode(g->tokenizer, ids, n, text, bytes, true, e);
    free(text);
    return rc;
}

static int write_text(const struct engine *g, const struct sampling *s, const struct decode_setup *setup,
                      const int32_t *prompt, size_t n_prompt, size_t tokens, struct lab_accepted *a,
                      struct err *e)
{
    static struct decoder d;
    if (decode_open(&d, &g->model, s, setup, prompt, n_prompt, n_prompt + tokens, e))
        return -1;
    int rc = decode_prefill(&d, 0, NULL, NULL, e);
    const double start = clock_seconds();
    while (rc == 0 && d.n_tokens < d.n_max) {
        rc = stop_signal ? err_set(e, ERR_AGAIN, "bench: stopped by %s", stop_signal_name())
                         : decode_step(&d, e);
        if (rc == 0)
            decode_add_stats(&d, d.round.tokens);
    }
    a->seconds += clock_seconds() - start;
    a->tokens += d.stats.tokens;
    a->per_round += (double)d.stats.rounds;      /* sums, until all texts are written */
    a->rows += (double)d.stats.verified_rows;
    a->passes += (double)d.stats.draft_passes;
    decode_close(&d);
    return rc;
}

/* One set of drafters over the openings. */
static int accept(struct lab *b, const struct engine *g, struct lab_accepted *a, unsigned set,
                  struct err *e)
{
    const size_t texts = b->tiny ? 1 : 3, tokens = b->tiny ? 6 : 3000, most = b->tiny ? 20 : 1000;
    struct decode_setup setup = { .weights[DRAFTER_HEADS] = a->heads ? g->weights[DRAFTER_HEADS] : NULL };
    struct sampling s;
    draft_defaults(&setup.draft);
    setup.draft.drafters = set;
    sampling_defaults(&s);
    s.min_p = 0.1;
    s.penalty = 1.2;
    s.ignore_eos = true;
    s.eos = g->config.eos;
    s.n_eos = g->config.n_eos;
    for (size_t i = 0; i < texts; i++) {
        int32_t *ids;
        size_t n;
        int rc = opening(g, i, &ids, &n, e);
        if (rc)
            return rc < 0 ? -1 : i ? 0 : err_set(e, ERR_INPUT, "bench: %s has no openings", g->dir);
        s.seed = i + 1;
        rc = write_text(g, &s, &setup, ids, MIN(n, most), tokens, a, e);
        free(ids);
        if (rc)
            return -1;
    }
    const double rounds = a->per_round;
    a->per_round = (double)a->tokens / rounds;
    a->rows /= rounds;
    a->passes /= rounds;
    return 0;
}

int lab_accept(struct lab *b, struct err *e)
{
    static struct engine g;
    char dir[PATH_BYTES];
    struct progress quiet;
    if (find_model_or_demo(dir, NULL, "--model", e)) {
        lab_skip(b, "the projection: %s", e->msg);
        return 0;
    }
    progress_open(&quiet, PROGRESS_NONE, true);
    int rc = engine_open(&g, &(struct engine_spec){ dir, DT_BF16, NULL, b->o->threads, b->o->device,
        NULL }, e);
    if (rc)
        return -1;
    rc = engine_load(&g, NULL, &quiet, e) ||
         weights_open(&g, DRAFTER_HEADS, &(struct draft_settings){ 0 }, NULL, e) ? -1 : 0;
    static const struct { const char *name; unsigned set;
    } sets[LAB_DRAFTERS] = {
        { "ngram,suffix", 1u << DRAFTER_NGRAM | 1u << DRAFTER_SUFFIX },
        { "heads,ngram,suffix", 1u << DRAFTER_HEADS | 1u << DRAFTER_NGRAM | 1u << DRAFTER_SUFFIX },
        { "heads,partial,ngram,suffix",
          1u << DRAFTER_HEADS | 1u << DRAFTER_PARTIAL | 1u << DRAFTER_NGRAM | 1u << DRAFTER_SUFFIX },
    };
    for (size_t i = 0; i < LAB_DRAFTERS && rc == 0; i++) {
        struct lab_accepted *a = &b->accepted[i];
        *a = (struct lab_accepted){ .drafters = sets[i].name, .heads = sets[i].set >> DRAFTER_HEADS & 1 };
        if ((rc = accept(b, &g, a, sets[i].set, e)) == 0)
            b->n_accepted++;
    }
    engine_close(&g);
    return rc;
}

/* ---- the projection ---- */

/* Seconds of a pass of `rows` rows, linear between measured sizes. */
static double pass_of(const struct lab_depth *at, double rows)
{
    size_t i = 0;
    while (i + 2 < LAB_PASSES && rows > (double)lab_rows[i + 1])
        i++;
    const double from = (double)lab_rows[i], to = (double)lab_rows[i + 1];
    return at->pass[i] + (at->pass[i + 1] - at->pass[i]) * (rows - from) / (to - from);
}

/* Seconds per token at a depth. */
static double token_of(const struct lab_model *f, const struct lab_depth *at, const struct lab_accepted *a)
{
    if (!a)
        return at->decode;
    const double choice = MAX(0.0, at->decode - at->pass[0]);
    return (pass_of(at, a->rows) + (a->heads ? f->heads : 0) + a->passes * f->draft) / a->per_round + choice;
}

double lab_project(const struct lab_model *f, const struct lab_accepted *a)
{
    double sum = 0;
    for (size_t i = 1; i < f->n; i++)
        sum += (token_of(f, &f->at[i - 1], a) + token_of(f, &f->at[i], a)) / 2 *
               (double)(f->at[i].depth - f->at[i - 1].depth);
    return sum;
}

double lab_floor(const struct lab_model *f, double bandwidth)
{
    const double n = f->n ? (double)f->at[f->n - 1].depth : 0;
    return n * (f->weight_bytes + n / 2 * f->row_bytes) / bandwidth;
}
