/* The drafter of Gemma 4 (src/model/assistant.h): a beam of draft passes over the cache of the model. Pass 0
 * reads the root with the model's state before it; pass k reads the likeliest nodes of depth k with the
 * states that pass k - 1 left for their parents. Between rounds one state is kept, of the last committed row.
 * A text that was rebuilt from tokens has none until its next round. Start reading at assistant_pass(). */
#include <math.h>
#include <string.h>

#include "src/decode/draft.h"
#include "src/decode/weights.h"
#include "src/model/assistant.h"

enum { NODES = 1 + (ASSISTANT_PASSES - 1) * ASSISTANT_BEAM };

struct guesses {                     /* of one text; widths: hidden of the model */
    size_t at;                       /* `last` is the state of row at - 1; 0: of none */
    struct row_seconds rows;
    float *last;                     /* [hidden] */
    float *state;                    /* [1 + NODES][hidden]: what the rows of the root and of nodes left */
    float *input;                    /* [ASSISTANT_BEAM][2 * hidden] */
};

static struct draft_model *weights_of(const struct decoder *d) { return d->set.weights[DRAFTER_ASSISTANT]; }
static struct guesses *guesses_of(const struct decoder *d) { return d->own[DRAFTER_ASSISTANT]; }

/* ---- memory ---- */

static struct drafter_memory assistant_memory(const struct decode_setup *set, const struct model *m,
                                              size_t n_max)
{
    (void)set, (void)n_max;
    return (struct drafter_memory){ .floats = (1 + 1 + NODES + 2 * ASSISTANT_BEAM) * m->config.hidden };
}

static void assistant_plan(struct memory_plan *plan, const struct decode_setup *set, const struct model *m,
                           size_t n_max)
{
    const struct draft_model *t = set->weights[DRAFTER_ASSISTANT];
    /* texts share one; that of m is about as large */
    const size_t work = t && t->n_max >= n_max ? 0 : workspace_bytes(t ? &t->own : m, ASSISTANT_ROWS, n_max);
    memory_plan_add(plan, "assistant's buffers",
                    work + assistant_memory(set, m, n_max).floats * sizeof(float));
}

static int assistant_begin(struct decoder *d, struct err *e)
{
    const size_t hidden = d->model->config.hidden;
    struct guesses *s = guesses_of(d);
    s->last = d->floats[DRAFTER_ASSISTANT];
    s->state = s->last + hidden;
    s->input = s->state + (1 + NODES) * hidden;
    return draft_model_reserve(weights_of(d), ASSISTANT_ROWS, d->kv.n_max, e);
}

static void assistant_reset(struct decoder *d) { guesses_of(d)->at = 0; }

/* All weights, and for each key what the global layers read. */
static struct pass_cost assistant_reads(const struct decoder *d, size_t i)
{
    const struct draft_model *t = weights_of(d);
    const struct config *c = &t->own.config, *m = &d->model->config;
    double part = 0;
    (void)i;
    for (size_t l = 0; l < c->n_layers; l++)
        part += c->layer[l].window ? 0 : (double)(c->layer[l].n_kv_heads * c->layer[l].head_dim);
    part /= (double)m->heads[config_caches(m)].dims;
    return (struct pass_cost){ planner_bytes((double)t->own.weight_bytes,
                                             (double)draft_model_of(t)->weight_bytes),
                               part * model_kv_bytes(d->model), HUGE_VAL };
}

/* ---- the text ---- */

static void assistant_observe(struct decoder *d)
{
    struct guesses *s = guesses_of(d);
    const size_t n = d->committed.n_rows;
    s->at = n ? d->committed.first + n : 0;
    if (n)
        draft_model_state(d->model, s->last, committed_hidden(d, n - 1));
}

static bool assistant_prepare(struct decoder *d)
{
    return guesses_of(d)->at > 0 && guesses_of(d)->at == d->kv.n_past;
}

/* ---- a pass ---- */

static bool assistant_choose(struct decoder *d, struct pass_part *p)
{
    struct guesses *s = guesses_of(d);
    const size_t hidden = d->model->config.hidden;
    if (d->round.passes == 0) {
        p->n = p->rows = 1;
        assistant_input(d->model, d->round.tree->node[0].token, s->last, s->input);
        return true;
    }
    if (!draft_beam(d, DRAFTER_ASSISTANT, ASSISTANT_BEAM, s->rows.more, p))
        return false;
    const int32_t *parent = d->round.beam.parent + d->round.beam.from;
    for (size_t i = 0; i < p->n; i++)
        assistant_input(d->model, p->token[i], s->state + (size_t)(parent[i] + 1) * hidden,
                        s->input + i * 2 * hidden);
    return true;
}

static int assistant_pass(struct decoder *const *d, size_t n, struct pass_part *const *part, double *end)
{
    static const uint8_t all[ASSISTANT_BEAM] = { [0 ... ASSISTANT_BEAM - 1] = 1 };
    static const int32_t token[ASSISTANT_BEAM];          /* the inputs have their embeddings */
    struct draft_model *t = weights_of(d[0]);
    struct pass_seq seq[BATCH_MAX];
    const float *state = t->rows;
    (void)end;
    for (size_t i = 0; i < n; i++) {
        seq[i] = (struct pass_seq){ .kv = &d[i]->kv, .n = part[i]->rows, .token = token, .want = all,
                                    .logits = part[i]->logits, .state = guesses_of(d[i])->input,
                                    .reads = true };
        part[i]->hidden = state;
        state += part[i]->rows * d[i]->model->config.hidden;
    }
    return assistant_forward(t, seq, n);
}

/* Keeps the states that the rows left, for their children. */
static void assistant_keep(struct decoder *d, const struct pass_part *p)
{
    struct guesses *s = guesses_of(d);
    const size_t hidden = d->model->config.hidden, at = d->round.passes == 1 ? 0 : 1 + d->round.beam.from;
    memcpy(s->state + at * hidden, p->hidden, p->n * hidden * sizeof *s->state);
}

static void assistant_learn(struct decoder *d, const struct pass_part *p, double seconds)
{
    row_seconds_learn(&guesses_of(d)->rows, p->rows, seconds);
}

/* ---- weights: beside the model, or where the user says ---- */

static int find(const struct drafter_ops *o, char path[PATH_BYTES], const char *model, struct err *e)
{
    (void)o;
    return assistant_find(path, model)
               ? 0
               : err_set(e, ERR_INPUT, "--drafter: %s has no assistant beside it; assistant:DIR names one",
                         model);
}

static int check(const struct weights_at *at, struct err *e)
{
    return assistant_check(at->path, &at->g->model, false, NULL, e);
}

static size_t bytes(const struct weights_at *at)
{
    struct err ignored;
    size_t n = 0;
    if (at->path)
        assistant_check(at->path, &at->g->model, at->int8, &n, &ignored);
    return n;
}

static int open_weights(void *weights, const struct weights_at *at, struct err *e)
{
    return assistant_open(weights, at->path, &at->g->model, at->int8, e);
}

static void close_weights(void *weights) { draft_model_close(weights); }

static const struct drafter_weights weights = {
    .size = sizeof(struct draft_model),
    .missing = "has no drafter of Gemma 4 beside it, MODEL-assistant or assistant/; --drafter assistant:DIR "
               "names one",
    .find = find,
    .check = check,
    .bytes = bytes,
    .open = open_weights,
    .close = close_weights,
};

/* ---- the table ---- */

static size_t assistant_rows(const struct draft_settings *s, size_t n_text)
{
    (void)n_text;
    return fixed_tree_beam(s, MIN(fixed_tree_depth(s), (size_t)ASSISTANT_PASSES), ASSISTANT_BEAM);
}

static double assistant_prior(size_t i) { return calibrate_ranked(i, 0.9); }

static const struct drafter_passes passes = {
    .acceptance_max = 0.9, .most = ASSISTANT_PASSES, .rows = ASSISTANT_ROWS, .per_depth = true,
    .by_depth = true, .prepare = assistant_prepare, .reads = assistant_reads, .choose = assistant_choose,
    .forward = assistant_pass, .keep = assistant_keep, .learn = assistant_learn
};

const struct drafter_ops drafter_assistant = {
    .id = DRAFTER_ASSISTANT, .name = "assistant", .turn = TURN_PASSES, .option = OPTION_FILE,
    .weights = &weights, .rows = assistant_rows, .prior = assistant_prior, .passes = &passes,
    .state = sizeof(struct guesses), .memory = assistant_memory, .plan = assistant_plan,
    .open = assistant_begin, .reset = assistant_reset, .observe = assistant_observe,
};
