/* SPIRe's drafter (src/model/spire.h): a chain of up to four draft passes of two blocks. Pass 0 reads the
 * root, pass k the likeliest child of the node before. Committed tokens come from the model's own residuals,
 * which a verification pass leaves in the workspace: those of position 0 and of the last 64 positions are
 * copied to a ring of slots. Their keys and values are computed when the drafter is asked. Keys have the
 * rotation of their positions, so that the order of the slots does not matter. Start reading at
 * spire_pass(), spire_observe() and spire_prepare().
 *
 * The paper samples its drafts; here each pass proposes its likeliest tokens under the coin of their
 * position, as every drafter does (draft.h). */
#include <string.h>

#include "src/decode/draft.h"
#include "src/decode/file_weights.h"
#include "src/model/spire.h"

struct ring {                        /* of one text */
    struct kv kv;                    /* n_past: slots in use */
    /* Positions start .. end - 1 were committed; the slots hold the last of them, and with `sink` position 0
     * before them. Those before `read` are in the cache. */
    size_t start, end, read;
    bool sink;
    /* residuals that enter the model's last layers, [SPIRE_SLOTS][SPIRE_LAYERS][hidden] */
    float *slot;
};

static struct spire *weights_of(const struct decoder *d) { return d->set.weights[DRAFTER_SPIRE]; }
static struct ring *ring_of(const struct decoder *d) { return d->own[DRAFTER_SPIRE]; }

/* ---- memory ---- */

static size_t slot_bytes(const struct model *m) { return SPIRE_LAYERS * m->config.hidden * sizeof(float); }

static struct drafter_memory spire_memory(const struct decode_setup *set, const struct model *m, size_t n_max)
{
    enum { ROWS_USUAL = 256 };       /* of a prefill; the workspace keeps their residuals */
    (void)set, (void)n_max;
    return (struct drafter_memory){
        "SPIRe's window",
        { device_draft_kv(m->dev), SPIRE_LAYERS, m->config.n_kv_heads, m->head_dim, SPIRE_SLOTS, SPIRE_DEPTH,
          0 },
        SPIRE_SLOTS * SPIRE_LAYERS * m->config.hidden, workspace_keep_bytes(m, ROWS_USUAL)
    };
}

static int spire_begin(struct decoder *d, struct err *e)
{
    ring_of(d)->slot = d->floats[DRAFTER_SPIRE];
    return workspace_keep(d->set.buffers->work, d->model, e);
}

static size_t slots_of(const struct ring *r)
{
    return MIN(r->sink + (r->end - r->start), (size_t)SPIRE_SLOTS);
}

/* A text that begins at `start`. */
static void forget(struct ring *r, size_t start)
{
    kv_truncate(&r->kv, 0);
    r->sink = start == 0;
    r->start = r->end = r->read = start + r->sink;
}

static void spire_reset(struct decoder *d) { forget(ring_of(d), SIZE_MAX); }

/* Once the ring has wrapped, slots of tokens before the cut are overwritten. */
static void spire_cut(struct decoder *d)
{
    struct ring *r = ring_of(d);
    const size_t to = d->kv.n_past;
    if (r->start == SIZE_MAX || to >= r->end)    /* nothing was prepared; nothing is cut */
        return;
    if (to <= r->start || r->sink + (r->end - r->start) > SPIRE_SLOTS) {
        forget(r, MAX(to, (size_t)1));
        return;
    }
    r->end = to;
    r->read = MIN(r->read, to);
    r->kv.n_past = r->kv.n_written = slots_of(r);
}

/* The blocks' matrices and the LM head. */
static struct pass_cost spire_reads(const struct decoder *d, size_t i)
{
    const struct spire *s = weights_of(d);
    (void)i;
    return (struct pass_cost){ planner_bytes((double)s->file.plain_bytes, (double)s->file.weight_bytes) +
                                   file_weights_head(d, &s->file) };
}

/* ---- committed tokens ---- */

/* The slot of a position that the ring has. */
static size_t slot_of(const struct ring *r, size_t at)
{
    return r->sink && at == 0 ? 0 : r->sink + (at - r->start) % (SPIRE_SLOTS - r->sink);
}

static float *residual_of(const struct decoder *d, size_t at, size_t layer)
{
    const struct ring *r = ring_of(d);
    return r->slot + (slot_of(r, at) * SPIRE_LAYERS + layer) * d->model->config.hidden;
}

static void spire_observe(struct decoder *d)
{
    struct ring *r = ring_of(d);
    struct workspace *work = d->set.buffers->work;
    const size_t hidden = d->model->config.hidden, first = d->committed.first, n = d->committed.n_rows;
    const float *all = workspace_residual(work);
    if (n == 0)
        return;
    if (!workspace_entering(work, d->model, 0)) {        /* another workspace than at opening */
        struct err ignored;
        workspace_keep(work, d->model, &ignored);
        return;
    }
    if (first == 0 || first != r->end)   /* another text, or rows that were read elsewhere */
        forget(r, first);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < SPIRE_LAYERS && (first + i == 0 || i + SPIRE_SLOTS - r->sink >= n); k++)
            memcpy(residual_of(d, first + i, k),
                   workspace_entering(work, d->model, k) + (committed_hidden(d, i) - all),
                   hidden * sizeof *all);
    r->end = first + n;
}

/* Computes the keys and values that the cache lacks. */
static bool spire_prepare(struct decoder *d)
{
    struct ring *r = ring_of(d);
    struct spire_memory row[SPIRE_SLOTS];
    const size_t from = r->end - MIN(r->end - r->start, (size_t)SPIRE_SLOTS - r->sink);
    size_t rows = 0;
    if (r->end != d->kv.n_past || slots_of(r) == 0)
        return false;
    for (size_t at = r->sink && r->kv.n_past == 0 ? 0 : MAX(from, r->read); at < r->end;
         at = MAX(at + 1, MAX(from, r->read))) {
        struct spire_memory *x = &row[rows++];
        x->position = at;
        x->slot = slot_of(r, at);
        for (size_t k = 0; k < SPIRE_LAYERS; k++)
            x->entering[k] = residual_of(d, at, k);
    }
    spire_commit(weights_of(d), &r->kv, row, rows);
    r->read = r->end;
    r->kv.n_past = r->kv.n_written = slots_of(r);
    return true;
}

/* ---- a pass ---- */

static int spire_pass(struct decoder *const *d, size_t n, struct pass_part *const *part, double *end)
{
    struct spire_row row[BATCH_MAX];
    (void)end;
    for (size_t i = 0; i < n; i++)
        row[i] = (struct spire_row){ .own = &ring_of(d[i])->kv, .node = d[i]->round.passes,
                                     .position = d[i]->kv.n_past + d[i]->round.passes,
                                     .token = d[i]->round.tree->node[part[i]->node[0]].token };
    return spire_forward(weights_of(d[0]), &d[0]->set.draft_model->lm_head, row, n, true, part[0]->logits);
}

static bool spire_choose(struct decoder *d, struct pass_part *p) { return draft_chain(d, p); }

/* ---- snapshots ---- */

/* The state in a snapshot: this struct, then the residuals of the slots. */
struct saved_ring { size_t start, end; bool sink; };

static size_t spire_state_bytes(const struct decoder *d)
{
    return sizeof(struct saved_ring) + SPIRE_SLOTS * slot_bytes(d->model);
}

static size_t spire_save(const struct decoder *d, void *out)
{
    const struct ring *r = ring_of(d);
    const size_t bytes = slots_of(r) * slot_bytes(d->model);
    struct saved_ring s;
    memset(&s, 0, sizeof s);
    s.start = r->start, s.end = r->end, s.sink = r->sink;
    memcpy(out, &s, sizeof s);
    memcpy((char *)out + sizeof s, r->slot, bytes);
    return bytes ? sizeof s + bytes : 0;
}

static bool spire_load(struct decoder *d, const void *state, size_t n)
{
    struct ring *r = ring_of(d);
    struct saved_ring s;
    if (n < sizeof s)
        return false;
    memcpy(&s, state, sizeof s);
    if (s.end != d->kv.n_past || s.start > s.end ||
        n != sizeof s + MIN(s.sink + (s.end - s.start), (size_t)SPIRE_SLOTS) * slot_bytes(d->model))
        return false;
    forget(r, 0);
    r->start = r->read = s.start, r->end = s.end, r->sink = s.sink;
    memcpy(r->slot, (const char *)state + sizeof s, n - sizeof s);
    return true;
}

/* ---- the table ---- */

static size_t spire_rows(const struct draft_settings *s, size_t n_text)
{
    (void)n_text;
    return fixed_tree_beam(s, MIN(fixed_tree_depth(s), (size_t)SPIRE_DEPTH), 1);
}

static double spire_prior(size_t i) { return calibrate_ranked(i, 0.9); }

static const struct drafter_passes passes = {
    .acceptance_max = 0.8, .most = SPIRE_DEPTH, .rows = SPIRE_ROWS, .per_depth = true, .chain = true,
    .by_depth = true, .prepare = spire_prepare, .reads = spire_reads, .choose = spire_choose,
    .forward = spire_pass
};

const struct drafter_ops drafter_spire = {
    .id = DRAFTER_SPIRE, .name = "spire", .turn = TURN_PASSES, .option = OPTION_FILE, .int8 = true,
    .every_layer = true, .weights = &file_weights, .kind = &spire_kind, .rows = spire_rows,
    .prior = spire_prior, .passes = &passes, .state = sizeof(struct ring), .memory = spire_memory,
    .open = spire_begin, .reset = spire_reset, .cut = spire_cut, .reads_prompt = true,
    .observe = spire_observe,
    .snapshot = { .bytes = spire_state_bytes, .save = spire_save, .load = spire_load },
};
