/* The model's own draft layer as a drafter (src/model/mtp.h): a beam of draft passes. Pass 0 reads the pairs
 * that the text has gained, a token and the model's hidden state before it, the root last. Pass k reads the
 * likeliest candidates of depth k, each with the layer's own hidden state of its parent.
 *
 * Pairs of the text wait in `pending`. Those that the layer reads go to its cache, so that what it drafted
 * never stays: rows of candidates are nodes of the scratch. When the cache is full, its first rows and the
 * last ones remain (--kv-sinks, --kv-budget). While a plan leaves the drafter out, nothing is read, and the
 * last pairs alone wait; the pairs before them are left out for good. Snapshots do not have the cache: it
 * begins anew with the first pass after one.
 *
 * The LM head is most of what a pass reads. The plan may choose passes with a short one instead: they are a
 * way of their own, with seconds and chances of their own. Start reading at mtp_pass() and at
 * mtp_observe(). */
#include <string.h>

#include "src/decode/draft.h"
#include "src/decode/weights.h"
#include "src/model/mtp.h"

enum {
    NODES = MTP_BEAM * (MTP_PASSES - 1), /* rows of a round's candidates */
    PENDING = 512,                   /* the most pairs that wait */
    FIRST_ROWS = MTP_BEAM,           /* the most pairs that pass 0 reads */
};

struct drafts {                      /* of one text */
    struct kv kv;
    size_t sinks, keys;              /* that stay when the cache is full; keys: all of them */
    size_t brief;                    /* the way of passes with the short LM head; 0: none */
    /* The pairs that wait: those of the states of rows next .., [n_pending][hidden] */
    size_t next;
    float *pending; size_t n_pending;
    float *state;                    /* hidden states of the root and of each row, [1 + NODES][hidden] */
    struct row_seconds rows;
    float *input;                    /* [MTP_BEAM][hidden]: states for the rows of a pass */
};

static struct mtp *weights_of(const struct decoder *d) { return d->set.weights[DRAFTER_MTP]; }
static struct drafts *drafts_of(const struct decoder *d) { return d->own[DRAFTER_MTP]; }

/* ---- memory ---- */

static size_t keys_of(const struct draft_settings *s) { return MIN(s->kv_budget, (size_t)MTP_KEYS); }

static struct drafter_memory mtp_memory(const struct decode_setup *set, const struct model *m, size_t n_max)
{
    const size_t slots = MIN(keys_of(&set->draft) + MTP_MORE, n_max) + MTP_PASSES;
    return (struct drafter_memory){
        "mtp cache",
        { device_draft_kv(m->dev), 1, m->config.n_kv_heads, m->head_dim, slots, NODES, 0 },
        (PENDING + 1 + NODES + MTP_BEAM) * m->config.hidden, 0
    };
}

static int mtp_begin(struct decoder *d, struct err *e)
{
    const size_t hidden = d->model->config.hidden;
    struct drafts *s = drafts_of(d);
    (void)e;
    s->pending = d->floats[DRAFTER_MTP];
    s->state = s->pending + PENDING * hidden;
    s->input = s->state + (1 + NODES) * hidden;
    s->keys = keys_of(&d->set.draft);
    s->sinks = MIN(d->set.draft.kv_sinks, s->keys - 1);
    draft_add_cache(d, &drafter_mtp, KV_WINDOW, s->keys);
    if (weights_of(d)->brief.lm_head.w) {       /* no text is shorter than its budget */
        draft_add_cache(d, &drafter_mtp, KV_WINDOW, 0);
        s->brief = d->n_caches;
    }
    return 0;
}

/* Begins anew with the state of row `next`. */
static void forget(struct drafts *s, size_t next)
{
    kv_truncate(&s->kv, 0);
    s->next = next;
    s->n_pending = 0;
}

static void mtp_reset(struct decoder *d) { forget(drafts_of(d), 0); }

/* The layer with the experts of a row, and the LM head. */
static struct pass_cost mtp_reads(const struct decoder *d, size_t i)
{
    const struct mtp *t = weights_of(d);
    const struct drafts *s = drafts_of(d);
    const struct mat *head = &t->draft.own.lm_head;
    const double part = s->brief == i + 1 ? (double)t->brief.lm_head.n / (double)head->n : 1,
                 plain = model_row_bytes(&t->draft.own) + part * (double)mat_bytes(head),
                 without = (1 - part) * (double)mat_bytes(&t->draft.int8.lm_head),
                 stored = t->draft.int8.mem ? model_row_bytes(&t->draft.int8) - without : plain;
    return (struct pass_cost){ planner_bytes(plain, stored), model_draft_kv_bytes(&t->draft.own),
                               (double)s->keys };
}

/* ---- pairs of the text ---- */

/* The first n pending pairs as rows of a pass, in whose cache there is room for them and for candidates. */
static struct pass_seq pending_rows(const struct decoder *d, size_t n)
{
    struct drafts *s = drafts_of(d);
    if (s->kv.n_past + n + MTP_PASSES > s->kv.n_max)
        kv_keep_ends(&s->kv, s->sinks, s->keys - s->sinks);
    return (struct pass_seq){ .kv = &s->kv, .n = n, .token = d->tokens + s->next + 1, .state = s->pending,
                              .shift = s->next + 1 - s->kv.n_past };
}

static void drop_pending(const struct decoder *d, size_t n)
{
    struct drafts *s = drafts_of(d);
    const size_t hidden = d->model->config.hidden;
    s->next += n;
    s->n_pending -= n;
    memmove(s->pending, s->pending + n * hidden, s->n_pending * hidden * sizeof *s->pending);
}

/* The first n pending pairs go to the cache. */
static void read_pending(struct decoder *d, size_t n)
{
    static const uint8_t none[MTP_ROWS];
    for (size_t some; n > 0; n -= some) {
        some = MIN(n, (size_t)MTP_ROWS);
        struct pass_seq seq = pending_rows(d, some);
        seq.want = none;
        mtp_forward(weights_of(d), &seq, 1, false);
        kv_advance(&drafts_of(d)->kv, some);
        drop_pending(d, some);
    }
}

/* Leaves out the first n pending pairs, but reads those that begin the cache. */
static void leave_out(struct decoder *d, size_t n)
{
    struct drafts *s = drafts_of(d);
    const size_t sinks = MIN(n, s->sinks - MIN(s->sinks, s->kv.n_past));
    read_pending(d, sinks);
    drop_pending(d, n - sinks);
}

/* A planned text reads no more than the last pairs: others that it might read before the drafter is asked
 * would take the time of many passes. */
static void mtp_observe(struct decoder *d)
{
    struct drafts *s = drafts_of(d);
    const size_t hidden = d->model->config.hidden, seen = d->planner.on ? (size_t)PENDING : s->keys;
    /* another text, or rows that were read elsewhere */
    if (d->committed.n_rows && d->committed.first != s->next + s->n_pending)
        forget(s, d->committed.first);
    for (size_t i = 0; i < d->committed.n_rows; i++) {
        const size_t row = d->committed.first + i;
        if (row + seen < d->n_tokens - 1 && s->kv.n_past + s->n_pending >= s->sinks) {
            leave_out(d, s->n_pending);
            s->next = row + 1;
            continue;
        }
        if (s->n_pending == PENDING && d->planner.on)
            leave_out(d, PENDING / 2);
        else if (s->n_pending == PENDING)
            read_pending(d, PENDING);
        draft_model_state(d->model, s->pending + s->n_pending++ * hidden, committed_hidden(d, i));
    }
}

/* Pass 0 reads a few pairs before the root's, unless each of them would need experts of its own. */
static bool mtp_prepare(struct decoder *d)
{
    struct drafts *s = drafts_of(d);
    const size_t most = d->model->config.n_experts ? 1 : FIRST_ROWS;
    if (s->n_pending == 0 || s->next + s->n_pending != d->kv.n_past)
        return false;
    if (s->n_pending > most)
        read_pending(d, s->n_pending - most);
    return true;
}

/* ---- passes ---- */

/* Pass 0 reads the pairs that wait, the root's last. Rows of the others get the states of their parents. */
static bool mtp_choose(struct decoder *d, struct pass_part *p)
{
    struct drafts *s = drafts_of(d);
    const size_t hidden = d->model->config.hidden;
    if (d->round.passes == 0) {
        p->n = 1;
        p->rows = s->n_pending;
        return true;
    }
    if (!draft_beam(d, DRAFTER_MTP, MTP_BEAM, s->rows.more, p))
        return false;
    const int32_t *parent = d->round.beam.parent + d->round.beam.from;
    for (size_t i = 0; i < p->n; i++)
        memcpy(s->input + i * hidden, s->state + (size_t)(parent[i] + 1) * hidden, hidden * sizeof *s->input);
    return true;
}

static int mtp_pass(struct decoder *const *d, size_t n, struct pass_part *const *part, double *end)
{
    struct mtp *t = weights_of(d[0]);
    const float *hidden = t->draft.rows;
    struct pass_seq seq[BATCH_MAX];
    uint8_t want[BATCH_MAX][MTP_BEAM] = { 0 };
    bool brief = true;                   /* if the plans of all texts say so */
    (void)end;
    for (size_t i = 0; i < n; i++) {
        struct drafts *s = drafts_of(d[i]);
        const struct pass_part *p = part[i];
        brief &= s->brief && d[i]->planner.plan.cache == s->brief;
        if (d[i]->round.passes == 0)
            seq[i] = pending_rows(d[i], p->rows);
        else
            seq[i] = (struct pass_seq){ .kv = &s->kv, .n = p->rows, .token = p->token,
                                        .parent = d[i]->round.beam.parent, .node0 = d[i]->round.beam.from,
                                        .state = s->input, .shift = s->next + 1 - s->kv.n_past };
        memset(want[i] + p->rows - p->n, 1, p->n);
        seq[i].want = want[i];
        seq[i].logits = p->logits;
        part[i]->hidden = hidden;
        hidden += p->rows * d[i]->model->config.hidden;
    }
    return mtp_forward(t, seq, n, brief);
}

/* Keeps the hidden states of a text's rows, after pass 0 that of the root. */
static void mtp_keep(struct decoder *d, const struct pass_part *p)
{
    struct drafts *s = drafts_of(d);
    const size_t hidden = d->model->config.hidden;
    if (d->round.passes == 1) {
        kv_advance(&s->kv, p->rows);
        drop_pending(d, p->rows);
        memcpy(s->state, p->hidden + (p->rows - 1) * hidden, hidden * sizeof *p->hidden);
    } else
        memcpy(s->state + (1 + d->round.beam.from) * hidden, p->hidden, p->n * hidden * sizeof *p->hidden);
}

static void mtp_learn(struct decoder *d, const struct pass_part *p, double seconds)
{
    row_seconds_learn(&drafts_of(d)->rows, p->rows, seconds);
}

/* ---- weights: a layer of the model's own files ---- */

static int check(const struct weights_at *at, struct err *e)
{
    size_t n;
    return mtp_check(&at->g->model, &at->g->tensors, &n, e);
}

static size_t bytes_in_files(const struct engine *g)
{
    struct err ignored;
    size_t n;
    return mtp_check(&g->model, &g->tensors, &n, &ignored) ? 0 : n;
}

static size_t bytes(const struct weights_at *at)
{
    return mtp_bytes(&at->g->model, at->g->own_bytes[DRAFTER_MTP], at->int8);
}

static int open_weights(void *weights, const struct weights_at *at, struct err *e)
{
    return mtp_open(weights, &at->g->model, at->g->dir, at->g->encoding, at->int8, e);
}

static void close_weights(void *weights) { mtp_close(weights); }

static const struct drafter_weights weights = {
    .size = sizeof(struct mtp),
    .missing = "has no draft layer (MTP): its files have no tensor mtp.fc.weight",
    .present = mtp_present,
    .check = check,
    .bytes = bytes,
    .open = open_weights,
    .close = close_weights,
    .of_model = bytes_in_files,
};

/* ---- the table ---- */

static size_t mtp_rows(const struct draft_settings *s, size_t n_text)
{
    (void)n_text;
    return fixed_tree_beam(s, MIN(fixed_tree_depth(s), (size_t)MTP_PASSES), MTP_BEAM);
}

static double mtp_prior(size_t i) { return calibrate_ranked(i, 0.9); }

static const struct drafter_passes passes = {
    .acceptance_max = 0.9, .most = MTP_PASSES, .rows = MTP_ROWS, .per_depth = true, .by_depth = true,
    .prepare = mtp_prepare, .reads = mtp_reads, .choose = mtp_choose, .forward = mtp_pass, .keep = mtp_keep,
    .learn = mtp_learn
};

const struct drafter_ops drafter_mtp = {
    .id = DRAFTER_MTP, .name = "mtp", .turn = TURN_PASSES, .weights = &weights, .rows = mtp_rows,
    .prior = mtp_prior, .passes = &passes, .state = sizeof(struct drafts), .memory = mtp_memory,
    .open = mtp_begin, .reset = mtp_reset, .reads_prompt = true, .observe = mtp_observe,
};
