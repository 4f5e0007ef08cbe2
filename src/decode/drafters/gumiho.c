/* Gumiho's drafter (src/model/gumiho.h): two serial passes, then a pass of the heads. Pass 0 reads the pairs
 * that the text has gained and guesses the token after the root; pass 1 reads the likeliest of these guesses
 * side by side; pass 2 asks the five heads below the likeliest paths of two. The tree grows by the chances of
 * the guesses, and the planner keeps the nodes of the largest reach: the published dynamic tree and rerank,
 * with calibrated chances in place of the drafter's own. A fixed --tree says how many children a node gets.
 *
 * A committed pair costs a copy of its state. The states of the window wait in a ring until the drafter is
 * asked; then its cache reads those that it lacks. A snapshot holds the ring. A text that was rebuilt from
 * tokens alone has no states: its ring begins anew. Start reading at gumiho_pass() and gumiho_prepare(). */
#include <string.h>

#include "src/decode/draft.h"
#include "src/decode/file_weights.h"
#include "src/model/draft_model.h"
#include "src/model/gumiho.h"

enum {
    BEAM = 16,                       /* rows of pass 1 */
    PASSES = 3, SERIAL = 2,
    FIRST_ROWS = 16,                 /* the most pairs that pass 0 reads */
    /* pairs that a planned text begins with: the window grows with the text, and a trial is short */
    AT_FIRST = 128,
    RECENT = GUMIHO_WINDOW - 1,      /* pairs before a pair that it sees */
    SLOTS = 2 * RECENT + KV_BLOCK,   /* when they are full, the last RECENT rows move to the front */
};

struct serial {                      /* of one text */
    struct kv kv;                    /* slot s holds pair first + s */
    size_t first;
    /* The model's hidden states of pairs begin .. end - 1: pair p at row p % keep of ring, [keep][hidden]. */
    float *ring; size_t keep, begin, end;
    /* This round: the state that pass 0 drafted, then those of pass 1, [1 + BEAM][hidden] */
    float *state;
    struct row_seconds rows[PASSES];
};

static struct gumiho *weights_of(const struct decoder *d) { return d->set.weights[DRAFTER_GUMIHO]; }
static struct serial *serial_of(const struct decoder *d) { return d->own[DRAFTER_GUMIHO]; }
/* The pair that the cache reads next. */
static size_t next_pair(const struct serial *s) { return s->first + s->kv.n_past; }

/* ---- memory ---- */

static size_t kept(size_t n_max) { return MIN((size_t)GUMIHO_WINDOW, n_max); }

static struct drafter_memory gumiho_memory(const struct decode_setup *set, const struct model *m,
                                           size_t n_max)
{
    (void)set;
    return (struct drafter_memory){
        "Gumiho's window",
        { device_draft_kv(m->dev), GUMIHO_LAYERS, m->config.n_kv_heads, m->head_dim,
          MIN((size_t)SLOTS, n_max), BEAM, 0 },
        (kept(n_max) + 1 + BEAM) * m->config.hidden, 0
    };
}

static int gumiho_begin(struct decoder *d, struct err *e)
{
    struct serial *s = serial_of(d);
    (void)e;
    s->keep = kept(d->n_max);
    s->ring = d->floats[DRAFTER_GUMIHO];
    s->state = s->ring + s->keep * d->model->config.hidden;
    return 0;
}

/* Begins anew with pair `first`. */
static void forget(struct serial *s, size_t first)
{
    kv_truncate(&s->kv, 0);
    s->first = s->begin = s->end = first;
}

static void gumiho_reset(struct decoder *d) { forget(serial_of(d), 0); }

static void gumiho_cut(struct decoder *d)
{
    struct serial *s = serial_of(d);
    const size_t to = d->kv.n_past;
    if (to >= s->end)
        return;
    if (to <= s->begin) {
        forget(s, to);
        return;
    }
    s->end = to;
    if (to <= s->first) {                /* the cache begins anew with the states that are left */
        kv_truncate(&s->kv, 0);
        s->first = s->begin;
    } else if (to <= next_pair(s)) {     /* the next pass reads a pair at least */
        kv_truncate(&s->kv, to - 1 - s->first);
    }
}

/* The mean pass: a third of the matrices of two serial passes and one of the heads, and the LM head. */
static struct pass_cost gumiho_reads(const struct decoder *d, size_t i)
{
    const struct drafter_file *f = &weights_of(d)->file;
    const struct model *m = d->model;
    const double layers = GUMIHO_LAYERS * model_draft_kv_bytes(m) / (double)m->config.n_layers;
    size_t heads = 0;
    (void)i;
    for (size_t k = 0; k < GUMIHO_HEADS * GUMIHO_LINEARS; k++)
        heads += mat_bytes(&weights_of(d)->head[k / GUMIHO_LINEARS][k % GUMIHO_LINEARS].w);
    const double of_heads = (double)heads / (double)f->weight_bytes;
    return (struct pass_cost){ planner_bytes((double)f->plain_bytes, (double)f->weight_bytes) *
                                       (2 - of_heads) / PASSES +
                                   file_weights_head(d, f),
                               layers, GUMIHO_WINDOW };
}

/* ---- committed pairs ---- */

static float *state_of(const struct decoder *d, size_t pair)
{
    const struct serial *s = serial_of(d);
    return s->ring + pair % s->keep * d->model->config.hidden;
}

static void gumiho_observe(struct decoder *d)
{
    struct serial *s = serial_of(d);
    /* another text, or rows that were read elsewhere */
    if (d->committed.n_rows && d->committed.first != s->end)
        forget(s, d->committed.first);
    for (size_t i = 0; i < d->committed.n_rows; i++, s->end++)
        if (s->end + s->keep >= d->n_tokens - 1)         /* the ring will still have it after the text */
            draft_model_state(d->model, state_of(d, s->end), committed_hidden(d, i));
    s->begin = MAX(s->begin, s->end - MIN(s->end, s->keep));
}

/* The next n pairs, which do not wrap in the ring, as rows of a pass. */
static struct gumiho_seq committed_rows(const struct decoder *d, size_t n, float *out)
{
    struct serial *s = serial_of(d);
    if (s->kv.n_past + n > s->kv.n_max) {
        s->first += s->kv.n_past - RECENT;
        kv_keep_last(&s->kv, RECENT);
    }
    return (struct gumiho_seq){ .own = &s->kv, .first = s->first, .n = n,
                                .token = d->tokens + next_pair(s) + 1, .state = state_of(d, next_pair(s)),
                                .step = d->model->config.hidden, .out = out };
}

/* Reads the committed pairs that the cache lacks but for the last ones, which pass 0 reads, or begins anew
 * with the last ones. */
static bool gumiho_prepare(struct decoder *d)
{
    struct serial *s = serial_of(d);
    const size_t to = s->end, most = d->planner.on ? AT_FIRST : RECENT;
    if (s->begin == to || to != d->kv.n_past)
        return false;
    if (next_pair(s) + most < to || next_pair(s) < s->begin) {
        kv_truncate(&s->kv, 0);
        s->first = MAX(s->begin, to - MIN(to, most));
    }
    for (;;) {
        const size_t at = next_pair(s), whole = s->keep - at % s->keep;  /* pairs before the ring wraps */
        if (to - at <= MIN((size_t)FIRST_ROWS, whole))
            break;
        const size_t n = MIN(MIN(to - at - 1, whole), (size_t)GUMIHO_ROWS);
        const struct gumiho_seq seq = committed_rows(d, n, NULL);
        gumiho_serial(weights_of(d), NULL, &seq, 1, NULL);
    }
    return true;
}

/* ---- passes ---- */

/* The heads that a text wants: with a fixed tree those that its depth needs. */
static size_t heads_of(const struct decoder *d)
{
    const size_t depth = d->set.draft.n_width ? d->set.draft.n_width : SERIAL + GUMIHO_HEADS,
                 heads = MIN(depth, (size_t)SERIAL + GUMIHO_HEADS) - MIN(depth, (size_t)SERIAL);
    return MIN(MAX(heads, (size_t)1), d->set.buffers->verify_rows);
}

/* Pass 0 reads committed pairs, pass 1 the likeliest guesses of pass 0, and pass 2 asks the heads below the
 * likeliest guesses of pass 1. */
static bool gumiho_choose(struct decoder *d, struct pass_part *p)
{
    struct serial *s = serial_of(d);
    const size_t verify_rows = d->set.buffers->verify_rows;
    if (d->round.passes == 0) {
        p->rows = s->end - next_pair(s);
        p->n = 1;
        return true;
    }
    const bool serial = d->round.passes < SERIAL;
    p->heads = serial ? 0 : heads_of(d);
    const size_t most = serial ? MIN((size_t)BEAM, verify_rows)
                               : MIN((size_t)GUMIHO_BRANCHES, verify_rows / p->heads);
    const bool any = draft_beam(d, DRAFTER_GUMIHO, most, s->rows[d->round.passes].more, p);
    p->rows = serial ? p->n : p->n * GUMIHO_HEADS;
    return any;
}

static int serial_pass(struct decoder *const *d, size_t n, struct pass_part *const *part)
{
    const size_t hidden = d[0]->model->config.hidden;
    struct gumiho_seq seq[BATCH_MAX];
    for (size_t i = 0; i < n; i++) {
        struct serial *s = serial_of(d[i]);
        seq[i] = d[i]->round.passes == 0
                     ? committed_rows(d[i], part[i]->rows, s->state)
                     : (struct gumiho_seq){ .own = &s->kv, .first = s->first, .n = part[i]->n,
                                            .token = part[i]->token, .state = s->state, .candidates = true,
                                            .out = s->state + hidden };
    }
    return gumiho_serial(weights_of(d[0]), &d[0]->set.draft_model->lm_head, seq, n, part[0]->logits);
}

static int heads_pass(struct decoder *const *d, size_t n, struct pass_part *const *part)
{
    const size_t hidden = d[0]->model->config.hidden;
    struct gumiho_branch branch[GUMIHO_BRANCHES];
    size_t all = 0;
    for (size_t i = 0; i < n; i++) {
        const struct tree *t = d[i]->round.tree;
        const int32_t *row = d[i]->round.beam.parent + d[i]->round.beam.from;
        float *state = serial_of(d[i])->state;
        for (size_t k = 0; k < part[i]->n; k++)
            branch[all++] = (struct gumiho_branch){
                { state, state + (size_t)(1 + row[k]) * hidden },
                { t->node[t->node[part[i]->node[k]].parent].token, part[i]->token[k] }
            };
    }
    return gumiho_heads(weights_of(d[0]), &d[0]->set.draft_model->lm_head, branch, all, part[0]->heads,
                        part[0]->logits);
}

/* Texts of a round are at the same pass. */
static int gumiho_pass(struct decoder *const *d, size_t n, struct pass_part *const *part, double *end)
{
    (void)end;
    return part[0]->heads ? heads_pass(d, n, part) : serial_pass(d, n, part);
}

/* Pass g->passes - 1 is over: rows[] are of rows, or of branches. */
static void gumiho_learn(struct decoder *d, const struct pass_part *p, double seconds)
{
    row_seconds_learn(&serial_of(d)->rows[d->round.passes - 1], p->n, seconds);
}

/* ---- snapshots ---- */

/* The state in a snapshot: `end`, then the states of the last pairs. */
static size_t gumiho_state_bytes(const struct decoder *d)
{
    const struct serial *s = serial_of(d);
    return sizeof s->end + s->keep * d->model->config.hidden * sizeof *s->ring;
}

static size_t gumiho_save(const struct decoder *d, void *out)
{
    const struct serial *s = serial_of(d);
    const size_t row = d->model->config.hidden * sizeof *s->ring;
    char *at = out;
    memcpy(at, &s->end, sizeof s->end);
    at += sizeof s->end;
    for (size_t p = s->begin; p < s->end; p++, at += row)
        memcpy(at, state_of(d, p), row);
    return s->begin < s->end ? (size_t)(at - (char *)out) : 0;
}

/* Puts states before those that the ring has got since. */
static bool gumiho_load(struct decoder *d, const void *state, size_t n)
{
    struct serial *s = serial_of(d);
    const size_t row = d->model->config.hidden * sizeof *s->ring;
    const char *rows = (const char *)state + sizeof s->end;
    size_t end;
    if (n < sizeof end || (n - sizeof end) % row)
        return false;
    memcpy(&end, state, sizeof end);
    if (s->begin == s->end)
        forget(s, d->kv.n_past);
    const size_t saved = (n - sizeof end) / row, from = MAX(end - saved, s->end - MIN(s->end, s->keep));
    if (saved > MIN(end, s->keep) || end < s->begin)
        return false;
    for (size_t p = from; p < s->begin; p++)
        memcpy(state_of(d, p), rows + (p - (end - saved)) * row, row);
    kv_truncate(&s->kv, 0);
    s->first = s->begin = MIN(s->begin, from);
    return true;
}

/* ---- the table ---- */

/* Every candidate of a depth has the depth's width. */
static size_t gumiho_rows(const struct draft_settings *s, size_t n_text)
{
    (void)n_text;
    return fixed_tree_beam(s, MIN(fixed_tree_depth(s), (size_t)SERIAL + GUMIHO_HEADS), SIZE_MAX);
}

/* The two tokens of the serial passes, then those of the heads. */
static double gumiho_prior(size_t i) { return calibrate_ranked(i, i / 16 < SERIAL ? 0.9 : 0.75); }

static const struct drafter_passes passes = {
    .acceptance_max = 0.8, .most = PASSES, .rows = GUMIHO_BRANCHES * GUMIHO_HEADS, .per_depth = true,
    .by_depth = true, .prepare = gumiho_prepare, .reads = gumiho_reads, .choose = gumiho_choose,
    .forward = gumiho_pass, .learn = gumiho_learn
};

const struct drafter_ops drafter_gumiho = {
    .id = DRAFTER_GUMIHO, .name = "gumiho", .turn = TURN_PASSES, .option = OPTION_FILE, .int8 = true,
    .every_layer = true, .whole_tree = true, .weights = &file_weights, .kind = &gumiho_kind,
    .rows = gumiho_rows, .prior = gumiho_prior, .passes = &passes, .state = sizeof(struct serial),
    .memory = gumiho_memory, .open = gumiho_begin, .reset = gumiho_reset, .cut = gumiho_cut,
    .reads_prompt = true, .observe = gumiho_observe,
    .snapshot = { .bytes = gumiho_state_bytes, .save = gumiho_save, .load = gumiho_load },
};
