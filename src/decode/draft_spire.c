/* SPIRe's drafter (src/model/spire.h): a chain of up to four draft passes of two blocks. Pass 0 reads the
 * root, pass k the likeliest child of the node before. Committed tokens come from the model's own residuals,
 * which a verification pass leaves in the workspace: position 0 and the last 64 positions, in a ring of
 * slots. Keys have the rotation of their positions, so that the order of the slots does not matter. Start
 * reading at spire_expand() and spire_observe().
 *
 * The paper samples its drafts; here each pass proposes its likeliest tokens under the coin of their
 * position, as every drafter does (draft.h). */
#include <stdlib.h>
#include <string.h>

#include "src/decode/draft.h"

struct ring {                        /* of one text */
    struct kv kv;                    /* n_past: slots in use */
    /* Positions start .. end - 1 were committed; the slots hold the last of them, and with `sink` position 0
     * before them. */
    size_t start, end;
    bool sink;
};

static struct ring *ring_of(const struct drafting *g) { return g->own[SOURCE_SPIRE]; }

/* ---- memory ---- */

static struct kv_size cache_size(const struct model *m)
{
    return (struct kv_size){ m->dev->kv_type, SPIRE_LAYERS, m->config.n_kv_heads, m->head_dim, SPIRE_SLOTS,
                             SPIRE_DEPTH, 0 };
}

static size_t spire_size(const struct draft_settings *s, const struct model *m, size_t n_max)
{
    enum { ROWS_USUAL = 256 };       /* of a prefill; the workspace keeps their residuals */
    const struct kv_size size = cache_size(m);
    (void)s, (void)n_max;
    return sizeof(struct ring) + kv_bytes(&size) + workspace_keep_bytes(m, ROWS_USUAL);
}

static int spire_begin(struct drafting *g, size_t n_max, struct err *e)
{
    const struct kv_size size = cache_size(g->model);
    struct ring *r = calloc(1, sizeof *r);
    (void)n_max;
    if (!r)
        return err_set(e, ERR_FAILED, "drafting: out of memory");
    g->own[SOURCE_SPIRE] = r;
    draft_add_cache(g, &draft_spire, KV_FULL, SIZE_MAX);
    return workspace_keep(g->buffers->work, g->model, e) || kv_open(&r->kv, g->model->dev, &size, e) ? -1 : 0;
}

static void spire_end(struct drafting *g)
{
    struct ring *r = ring_of(g);
    if (r)
        kv_close(&r->kv);
    free(r);
    g->own[SOURCE_SPIRE] = NULL;
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
    r->start = r->end = start + r->sink;
}

static void spire_reset(struct drafting *g) { forget(ring_of(g), 0); }

/* The blocks' matrices and the LM head. */
static struct pass_bytes spire_reads(const struct drafting *g, size_t i)
{
    const struct spire *s = g->spire;
    (void)i;
    return (struct pass_bytes){ planner_bytes((double)s->file.plain_bytes, (double)s->file.weight_bytes) +
                                    planner_bytes((double)mat_bytes(&g->model->lm_head),
                                                  (double)mat_bytes(&g->draft_model->lm_head)),
                                0, SIZE_MAX, SPIRE_DEPTH };
}

/* ---- committed tokens ---- */

static void spire_observe(struct drafting *g, const struct observed *o)
{
    struct ring *r = ring_of(g);
    const size_t hidden = g->model->config.hidden, n = o->n_rows;
    const float *all = workspace_residual(g->buffers->work);
    struct spire_memory row[SPIRE_SLOTS];
    size_t rows = 0;
    if (n == 0)
        return;
    if (!workspace_entering(g->buffers->work, g->model, 0)) {        /* another workspace than at opening */
        struct err ignored;
        workspace_keep(g->buffers->work, g->model, &ignored);
        return;
    }
    if (o->first == 0 || o->first != r->end)     /* another text, or rows that were read elsewhere */
        forget(r, o->first);
    const size_t recent = SPIRE_SLOTS - r->sink;
    for (size_t i = 0; i < n; i++) {
        const size_t at = o->first + i;
        if (at != 0 && i + recent < n)
            continue;
        struct spire_memory *x = &row[rows++];
        x->position = at;
        x->slot = at == 0 ? 0 : r->sink + (at - r->start) % recent;
        for (size_t k = 0; k < SPIRE_LAYERS; k++)
            x->entering[k] = workspace_entering(g->buffers->work, g->model, k) +
                             (observed_hidden(o, i, hidden) - all);
    }
    spire_commit(g->spire, &r->kv, row, rows);
    r->end = o->first + n;
    r->kv.n_past = r->kv.n_written = slots_of(r);
}

static bool spire_prepare(struct drafting *g)
{
    const struct ring *r = ring_of(g);
    return r->kv.n_past > 0 && r->end == g->kv->n_past;
}

/* ---- a pass ---- */

/* The node that the next pass of a text continues. false: the chain has ended. */
static bool next_node(const struct drafting *g, uint32_t *node)
{
    const struct tree *t = g->tree;
    *node = g->passes ? tree_best_child(t, g->pass_node) : 0;
    return g->passes < SPIRE_DEPTH && (!g->passes || *node) && t->node[*node].depth < t->max_depth;
}

/* Adds the guesses of a pass. Returns the number of new nodes. */
static size_t take(struct drafting *g, uint32_t node, const float *logits)
{
    const struct tree *t = g->tree;
    const size_t added = draft_propose(g, &node, 1, logits, draft_width(g, node), SOURCE_SPIRE, GUESS_SPIRE,
                                       g->passes);
    const uint32_t next = tree_best_child(t, node);
    g->pass_node = node;
    g->passes++;
    g->next_reach = next && g->passes < SPIRE_DEPTH ? t->node[next].reach : 0;
    return added;
}

/* One pass for n texts with the same LM head. */
static void pass_of(struct drafting *const *g, const uint32_t *node, size_t n, size_t *added)
{
    const size_t vocab = g[0]->model->config.vocab;
    float *logits = g[0]->buffers->logits;
    struct spire_row row[BATCH_MAX];
    const double start = g[0]->clock();
    for (size_t i = 0; i < n; i++)
        row[i] = (struct spire_row){ .own = &ring_of(g[i])->kv, .node = g[i]->passes,
                                     .position = g[i]->kv->n_past + g[i]->passes,
                                     .token = g[i]->tree->node[node[i]].token };
    const int rc = spire_forward(g[0]->spire, &g[0]->draft_model->lm_head, row, n, true, logits);
    for (size_t i = 0; i < n; i++) {
        added[i] = rc ? 0 : take(g[i], node[i], logits + i * vocab);
        if (rc) {                    /* only guesses are lost; no value that is not finite may stay */
            forget(ring_of(g[i]), 0);
            g[i]->next_reach = 0;
        }
    }
    draft_passed(g, n, start);
}

static int spire_expand(struct drafting *const *g, size_t n, bool *more, struct err *e)
{
    const size_t most = MIN((size_t)SPIRE_ROWS, g[0]->buffers->verify_rows);
    (void)e;
    for (size_t i = 0; i < n;) {     /* lots: as many texts as fit a pass */
        struct drafting *live[BATCH_MAX];
        uint32_t node[BATCH_MAX];
        size_t added[BATCH_MAX], at[BATCH_MAX], n_live = 0;
        for (; i < n && n_live < most && (!n_live || g[i]->draft_model == live[0]->draft_model); i++) {
            more[i] = false;
            g[i]->next_reach = 0;
            if (next_node(g[i], &node[n_live])) {
                at[n_live] = i;
                live[n_live++] = g[i];
            }
        }
        if (n_live)
            pass_of(live, node, n_live, added);
        for (size_t k = 0; k < n_live; k++)
            more[at[k]] = added[k] > 0;
    }
    return 0;
}

/* ---- snapshots ---- */

/* The state in a snapshot: this struct, then the rows of the slots by layer and head. */
struct saved_ring { size_t start, end, slots; bool sink; };

static size_t spire_state_bytes(const struct drafting *g)
{
    return sizeof(struct saved_ring) + kv_rows_bytes(&ring_of(g)->kv, SPIRE_SLOTS);
}

static size_t spire_save(const struct drafting *g, void *out)
{
    struct ring *r = ring_of(g);
    struct saved_ring s;
    memset(&s, 0, sizeof s);
    s.start = r->start, s.end = r->end, s.slots = r->kv.n_past, s.sink = r->sink;
    memcpy(out, &s, sizeof s);
    kv_exchange(&r->kv, 0, s.slots, (char *)out + sizeof s, false);
    return s.slots ? sizeof s + kv_rows_bytes(&r->kv, s.slots) : 0;
}

static bool spire_load(struct drafting *g, const void *state, size_t n)
{
    struct ring *r = ring_of(g);
    struct saved_ring s;
    if (n < sizeof s)
        return false;
    memcpy(&s, state, sizeof s);
    if (s.slots > SPIRE_SLOTS || n != sizeof s + kv_rows_bytes(&r->kv, s.slots) || s.end != g->kv->n_past ||
        s.start > s.end || s.slots != MIN(s.sink + (s.end - s.start), (size_t)SPIRE_SLOTS))
        return false;
    forget(r, 0);
    r->start = s.start, r->end = s.end, r->sink = s.sink;
    char *rows = (char *)(uintptr_t)state + sizeof s;
    kv_exchange(&r->kv, 0, s.slots, rows, true);
    r->kv.n_past = r->kv.n_written = s.slots;
    return true;
}

const struct drafter_ops draft_spire = { .source = SOURCE_SPIRE,
                                         .item = "SPIRe's window",
                                         .reads_prompt = true,
                                         .pass_per_depth = true,
                                         .bytes = spire_size,
                                         .open = spire_begin,
                                         .close = spire_end,
                                         .reset = spire_reset,
                                         .prepare = spire_prepare,
                                         .reads = spire_reads,
                                         .expand = spire_expand,
                                         .observe = spire_observe,
                                         .state_bytes = spire_state_bytes,
                                         .save = spire_save,
                                         .load = spire_load };
