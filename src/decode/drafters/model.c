/* A smaller model of the same tokenizer as drafter (small_model.h): a chain of draft passes over a cache of
 * its own, which holds the first tokens and the most recent ones, as under the policy `window` of the partial
 * cache. The first pass of a round reads the tokens that it lacks, the root last. Start reading at
 * small_pass(). */
#include <string.h>

#include "src/decode/draft.h"
#include "src/decode/drafters/small_model.h"
#include "src/decode/weights.h"

struct chain {                       /* of one text */
    struct kv kv;
    size_t sinks, keys;              /* keys: that stay when the cache is full */
    size_t first;                    /* position of slot `sinks`: slots before it hold positions 0 .. */
    /* tokens of the rows after the committed ones, which passes of the last round wrote */
    int32_t flight[PASSES_MAX + 1]; size_t n_flight;
};

static struct draft_model *small_of(const struct decoder *d) { return d->set.weights[DRAFTER_MODEL]; }
static struct chain *chain_of(const struct decoder *d) { return d->own[DRAFTER_MODEL]; }
/* The position after the committed rows. */
static size_t end_of(const struct chain *c)
{
    return c->kv.n_past < c->sinks ? c->kv.n_past : c->first + c->kv.n_past - c->sinks;
}

/* ---- memory ---- */

static size_t keys_of(const struct draft_settings *s) { return MIN(s->kv_budget, (size_t)SMALL_KEYS); }

/* Its bytes are planned with the weights, which must be open. */
static struct drafter_memory small_memory(const struct decode_setup *set, const struct model *m, size_t n_max)
{
    const struct draft_model *s = set->weights[DRAFTER_MODEL];
    struct drafter_memory x = { 0 };
    (void)n_max;
    if (s)
        x.kv = model_cache(&s->own, 2 * keys_of(&set->draft) + 2 * SMALL_ROWS, 0);
    x.kv.type = device_draft_kv(m->dev);
    return x;
}

static int small_begin(struct decoder *d, struct err *e)
{
    struct chain *c = chain_of(d);
    (void)e;
    c->keys = keys_of(&d->set.draft);
    c->sinks = MIN(d->set.draft.kv_sinks, c->keys - 1);
    c->first = c->sinks;
    draft_add_cache(d, &drafter_model, KV_WINDOW, c->keys);
    return 0;
}

static void small_reset(struct decoder *d)
{
    struct chain *c = chain_of(d);
    kv_truncate(&c->kv, 0);
    c->first = c->sinks;
    c->n_flight = 0;
}

static void small_cut(struct decoder *d)
{
    struct chain *c = chain_of(d);
    const size_t to = d->kv.n_past;
    c->n_flight = 0;
    if (to < end_of(c) && to < c->first)
        small_reset(d);
    else if (to < end_of(c))
        kv_truncate(&c->kv, c->sinks + to - c->first);
}

static struct pass_cost small_reads(const struct decoder *d, size_t i)
{
    const struct model *m = &small_of(d)->own;
    return (struct pass_cost){ planner_bytes((double)m->weight_bytes,
                                             (double)draft_model_of(small_of(d))->weight_bytes),
                               model_draft_kv_bytes(m), (double)(d->cache[i].budget / 2 * 3) };
}

/* ---- its cache ---- */

/* Keeps the first tokens and the last `keys` - sinks rows. Keys keep the rotation of their positions. */
static void make_room(struct chain *c)
{
    c->first += c->kv.n_past - c->keys;
    kv_keep_ends(&c->kv, c->sinks, c->keys - c->sinks);
}

/* Rows of tokens from position `at` on: the text, in order. */
static struct pass_seq rows_at(struct chain *c, const int32_t *token, size_t n)
{
    if (!c->n_flight && c->kv.n_past + n + PASSES_MAX + 1 > c->kv.n_max)
        make_room(c);
    const size_t shift = c->kv.n_past < c->sinks ? 0 : c->first - c->sinks;
    return (struct pass_seq){ .kv = &c->kv, .n = n, .token = token, .shift = shift };
}

/* Commits the tokens at positions `at` .. `to` - 1. */
static bool read_text(struct decoder *d, size_t at, size_t to)
{
    static const uint8_t none[SMALL_ROWS];
    struct chain *c = chain_of(d);
    struct err ignored;
    for (size_t n; at < to; at += n) {
        /* rows of one pass have one shift */
        n = MIN(to - at, (size_t)SMALL_ROWS);
        n = c->kv.n_past < c->sinks ? MIN(n, c->sinks - c->kv.n_past) : n;
        struct pass_seq seq = rows_at(c, d->tokens + at, n);
        seq.want = none;
        seq.cache_only = true;
        if (model_forward(draft_model_of(small_of(d)), small_of(d)->work, &seq, 1, NULL, 0, &ignored)) {
            small_reset(d);
            return false;
        }
        kv_advance(&c->kv, n);
    }
    return true;
}

/* Follows the text: rows of the last round's passes stay where their tokens came true, and the rest is read
 * but for the last tokens, which the first pass reads. */
static bool small_prepare(struct decoder *d)
{
    enum { WITH_ROOT = 16 };             /* committed tokens that the first pass reads, at most */
    struct chain *c = chain_of(d);
    const size_t to = d->kv.n_past;
    for (size_t i = 0; i < c->n_flight && end_of(c) < to && c->flight[i] == d->tokens[end_of(c)]; i++)
        kv_advance(&c->kv, 1);
    c->n_flight = 0;
    const size_t recent = to - MIN(to, c->keys - c->sinks);
    if (end_of(c) < recent) {            /* what lies between is left out */
        kv_truncate(&c->kv, MIN(c->kv.n_past, c->sinks));
        if (!read_text(d, c->kv.n_past, c->sinks))
            return false;
        c->first = MAX(recent, c->sinks);
    }
    return to - end_of(c) <= WITH_ROOT || read_text(d, end_of(c), to - WITH_ROOT);
}

/* ---- draft passes ---- */

/* The first pass reads the tokens that the cache lacks, with the root. */
static bool small_choose(struct decoder *d, struct pass_part *p)
{
    if (!draft_chain(d, p))
        return false;
    if (d->round.passes == 0)
        p->rows = d->n_tokens - end_of(chain_of(d));
    return true;
}

static int small_pass(struct decoder *const *d, size_t n, struct pass_part *const *part, double *end)
{
    struct draft_model *s = small_of(d[0]);
    struct pass_seq seq[BATCH_MAX];
    struct err ignored;
    (void)end;
    for (size_t i = 0; i < n; i++) {
        struct chain *c = chain_of(d[i]);
        const int32_t *token = d[i]->round.passes ? &d[i]->round.tree->node[part[i]->node[0]].token
                                            : d[i]->tokens + d[i]->n_tokens - part[i]->rows;
        seq[i] = rows_at(c, token, part[i]->rows);
        seq[i].logits = part[i]->logits = s->rows + i * s->own.config.vocab;
        c->kv.n_past += c->n_flight;     /* rows in flight are seen */
    }
    const int rc = model_forward(draft_model_of(s), s->work, seq, n, NULL, 0, &ignored);
    for (size_t i = 0; i < n; i++)
        chain_of(d[i])->kv.n_past -= chain_of(d[i])->n_flight;
    return rc;
}

/* All rows but the last are the text's. */
static void small_keep(struct decoder *d, const struct pass_part *p)
{
    struct chain *c = chain_of(d);
    kv_advance(&c->kv, p->rows - 1);
    c->flight[c->n_flight++] = d->round.tree->node[p->node[0]].token;
}

/* ---- weights: a folder or file that the user names ---- */

static int find(const struct drafter_ops *o, char path[PATH_BYTES], const char *model, struct err *e)
{
    (void)o, (void)path, (void)model;
    return err_set(e, ERR_INPUT, "--drafter: model needs a model: model:DIR");
}

static int check(const struct weights_at *at, struct err *e)
{
    return small_model_check(at->path, &at->g->model, at->g->tokenizer, false, NULL, e);
}

static size_t bytes(const struct weights_at *at)
{
    struct err ignored;
    size_t n = 0;
    if (at->path)
        small_model_check(at->path, &at->g->model, at->g->tokenizer, at->int8, &n, &ignored);
    return n;
}

static int open_weights(void *weights, const struct weights_at *at, struct err *e)
{
    return small_model_open(weights, at->path, &at->g->model, at->g->tokenizer, at->int8, e);
}

static void close_weights(void *weights) { draft_model_close(weights); }

static const struct drafter_weights weights = { .size = sizeof(struct draft_model), .find = find,
                                                .check = check, .bytes = bytes, .open = open_weights,
                                                .close = close_weights };

/* ---- the table ---- */

static size_t small_rows(const struct draft_settings *s, size_t n_text)
{
    (void)n_text;
    return fixed_tree_beam(s, fixed_tree_depth(s), 1);
}

static double small_prior(size_t i) { return calibrate_ranked(i, 0.9); }

static const struct drafter_passes passes = {
    .acceptance_max = 0.9, .most = PASSES_MAX, .rows = SMALL_ROWS, .per_depth = true, .chain = true,
    .prepare = small_prepare, .reads = small_reads, .choose = small_choose, .forward = small_pass,
    .keep = small_keep
};

const struct drafter_ops drafter_model = {
    .id = DRAFTER_MODEL, .name = "model", .turn = TURN_PASSES, .option = OPTION_DIR, .weights = &weights,
    .rows = small_rows, .prior = small_prior, .passes = &passes, .state = sizeof(struct chain),
    .memory = small_memory, .open = small_begin, .reset = small_reset, .cut = small_cut,
};
