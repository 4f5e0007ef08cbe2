/* LongSpec's drafter (src/model/longspec.h): a beam of draft passes of one layer. Pass 0 reads the root; pass
 * k reads the likeliest nodes of depth k below the nodes that pass k - 1 read, at most LONGSPEC_BEAM of them.
 * The rows of a round's passes stay in the scratch of the drafter's own cache, and no key moves. After the
 * round the cache reads the committed tokens again. Start reading at longspec_pass().
 *
 * The paper's beam is 4, 16, 16, 16, 16 candidates of the largest product of chances. Here a candidate has
 * the chance that its calibration cell has shown, the planner says how many passes pay, and a node becomes a
 * row of the next pass where its children's gain is worth that row's time. A fixed --tree says how many
 * children each node gets. */
#include <math.h>
#include <string.h>

#include "src/decode/draft.h"
#include "src/decode/file_weights.h"
#include "src/model/longspec.h"

enum {
    BEAM = 16, PASSES = 5,           /* training has queries of up to 5 tokens after the model's last key */
    NODES = 1 + (PASSES - 1) * BEAM,
    RECENT = LONGSPEC_WINDOW - 1,    /* rows before a row that it sees */
    SLOTS = 2 * RECENT + KV_BLOCK,   /* when they are full, the last RECENT rows move to the front */
    /* rows that a planned text begins with: the window grows with the text. A trial that reads RECENT rows
     * takes up to seven one-row passes of models/demo longer. */
    AT_FIRST = 128,
};

struct beam {                        /* of one text */
    struct kv kv;                    /* the drafter's own: slot s has position first + s */
    size_t first;
    struct row_seconds rows;
};

static struct longspec *weights_of(const struct decoder *d) { return d->set.weights[DRAFTER_LONGSPEC]; }
static struct beam *beam_of(const struct decoder *d) { return d->own[DRAFTER_LONGSPEC]; }

/* ---- memory ---- */

static struct drafter_memory longspec_memory(const struct decode_setup *set, const struct model *m,
                                             size_t n_max)
{
    (void)set, (void)n_max;
    return (struct drafter_memory){
        "LongSpec's window",
        { device_draft_kv(m->dev), 1, m->config.n_kv_heads, m->head_dim, SLOTS, NODES, 0 }, 0, 0
    };
}

static void longspec_reset(struct decoder *d)
{
    kv_truncate(&beam_of(d)->kv, 0);
    beam_of(d)->first = 0;
}

static void longspec_cut(struct decoder *d)
{
    struct beam *b = beam_of(d);
    if (d->kv.n_past < b->first)
        longspec_reset(d);
    else if (d->kv.n_past < b->first + b->kv.n_past)
        kv_truncate(&b->kv, d->kv.n_past - b->first);
}

/* The layer's matrices, the LM head, the keys of the model's last layer, and of its own cache the window. */
static struct pass_cost longspec_reads(const struct decoder *d, size_t i)
{
    const struct longspec *l = weights_of(d);
    const struct model *m = d->model;
    const double key = model_kv_bytes(m) / (double)m->config.n_layers;
    (void)i;
    return (struct pass_cost){ planner_bytes((double)l->file.plain_bytes, (double)l->file.weight_bytes) +
                                   file_weights_head(d, &l->file) + RECENT * key,
                               key, HUGE_VAL };
}

/* ---- the drafter's own cache ---- */

/* Reads the committed tokens that the cache lacks, or begins anew with the last ones. Without a committed
 * row the cross-attention has nothing to read. */
static bool longspec_prepare(struct decoder *d)
{
    struct beam *b = beam_of(d);
    const size_t to = d->kv.n_past, first = d->planner.on ? AT_FIRST : RECENT;
    size_t at = b->first + b->kv.n_past;
    if (at + first < to) {
        b->kv.n_past = 0;
        b->first = at = to - MIN(to, first);
    }
    for (size_t n; at < to; at += n) {
        if (b->kv.n_past == SLOTS) {
            b->first += SLOTS - RECENT;
            kv_keep_last(&b->kv, RECENT);
        }
        n = MIN(to - at, SLOTS - b->kv.n_past);
        longspec_read(weights_of(d), &b->kv, b->first, d->tokens + at, n);
    }
    return to > 0;
}

/* ---- a pass ---- */

/* The root is the first row. */
static bool longspec_choose(struct decoder *d, struct pass_part *p)
{
    if (d->round.passes)
        return draft_beam(d, DRAFTER_LONGSPEC, BEAM, beam_of(d)->rows.more, p);
    d->round.beam.node[0] = 0, d->round.beam.parent[0] = -1;
    p->token[0] = d->round.tree->node[0].token;
    d->round.beam.n = p->rows = p->n = 1;
    return true;
}

static int longspec_pass(struct decoder *const *d, size_t n, struct pass_part *const *part, double *end)
{
    struct longspec_seq seq[BATCH_MAX];
    (void)end;
    for (size_t i = 0; i < n; i++) {
        struct beam *b = beam_of(d[i]);
        seq[i] = (struct longspec_seq){ .target = &d[i]->kv, .own = &b->kv, .first = b->first,
                                        .node0 = d[i]->round.beam.from, .n = part[i]->n,
                                        .token = part[i]->token, .parent = d[i]->round.beam.parent };
    }
    return longspec_forward(weights_of(d[0]), &d[0]->set.draft_model->lm_head, seq, n, part[0]->logits);
}

static void longspec_learn(struct decoder *d, const struct pass_part *p, double seconds)
{
    row_seconds_learn(&beam_of(d)->rows, p->rows, seconds);
}

/* ---- the table ---- */

static size_t longspec_rows(const struct draft_settings *s, size_t n_text)
{
    (void)n_text;
    return fixed_tree_beam(s, s->n_width, BEAM);
}

static double longspec_prior(size_t i) { return calibrate_ranked(i, 0.9); }

static const struct drafter_passes passes = {
    .acceptance_max = 0.8, .most = PASSES, .rows = LONGSPEC_ROWS, .per_depth = true, .by_depth = true,
    .prepare = longspec_prepare, .reads = longspec_reads, .choose = longspec_choose, .forward = longspec_pass,
    .learn = longspec_learn
};

const struct drafter_ops drafter_longspec = {
    .id = DRAFTER_LONGSPEC, .name = "longspec", .turn = TURN_PASSES, .option = OPTION_FILE, .int8 = true,
    .every_layer = true, .weights = &file_weights, .kind = &longspec_kind, .rows = longspec_rows,
    .prior = longspec_prior, .passes = &passes, .state = sizeof(struct beam), .memory = longspec_memory,
    .reset = longspec_reset, .cut = longspec_cut,
};
