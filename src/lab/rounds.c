/* Measures passes and rounds for `longhand plan` (rounds.h). One length after the other has a set of decoders
 * over one prompt (struct rig), which take turns. Start at rounds_measure, then take_turn. */
#include "src/lab/rounds.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/stopping.h"
#include "src/lab/bench.h"
#include "src/decode/weights.h"
#include "src/request/model_options.h"

enum {
    TURNS = 5,
    ROUNDS_LEAST = 4, ROUNDS_MOST = 20,      /* of a setting in a turn */
    PASSES = 5,                      /* of each size in a turn; the first is not counted */
    /* tokens that a text may grow: rounds with 1, 2, .. 5 draft passes make at most 20 together */
    ROOM = TURNS * ROUNDS_MOST * 20 + COST_ROWS_MAX,
    SHORTEST = 256, LONGEST = 12288,
    OWN_ROWS = 2 * KV_BLOCK,         /* that each decoder reads itself: SPIRe needs their residuals */
};
static const double TURN_SECONDS = 0.02;     /* of a setting in a turn, if they allow ROUNDS_LEAST */

/* ---- drafters ---- */

/* Whether rounds of a drafter are measured. */
static bool has_rounds(size_t d)
{
    return forecast_of(d) && forecast_of(d)->tree.n_width;
}

/* The drafters whose number of draft passes the plan does not choose. */
static bool is_fixed(size_t d) { return forecast_of(d)->fixed; }

/* The settings of a tree of k draft passes. */
static void set_passes(struct draft_settings *s, size_t d, size_t k)
{
    if (!is_fixed(d) && drafters[d]->passes->per_depth)
        s->n_width = k;
    else if (!is_fixed(d))
        s->draft_passes = (long)k;
}

struct subject {                      /* the model and its drafters */
    struct engine engine;
    struct draft_settings set[N_DRAFTERS];
    unsigned kinds;                  /* that are measured */
    bool int8;
    struct progress progress;
};

/* Settings as --drafter and --tree make them. */
static void make_settings(struct draft_settings *s, size_t d)
{
    const struct forecast *f = forecast_of(d);
    draft_defaults(s);
    s->drafters = f->tree.drafters;
    s->draft_passes = f->tree.draft_passes;
    s->n_width = f->tree.n_width;
    memcpy(s->width, f->tree.width, sizeof s->width);
    s->kv_fixed = true;
}

/* Whether the model has and supports all drafters of the tree of a drafter. */
static bool is_there(const struct engine *g, size_t d)
{
    const unsigned set = forecast_of(d)->tree.drafters;
    for (enum drafter i = 0; i < N_DRAFTERS; i++)
        if (set >> i & 1 &&
            ((weights_has(i) && !weights_present(i, g->dir)) || !(draft_of_config(&g->config) >> i & 1)))
            return false;
    return true;
}

/* Opens the model, if the memory has room for it and a text of LONGEST tokens, and those of its drafters. */
static int open_subject(struct subject *s, const struct options *o, unsigned kinds, struct err *e)
{
    struct memory_plan plan = { 0 };
    progress_open(&s->progress, PROGRESS_AUTO, false);
    if (options_open_engine(&s->engine, o, e))
        return -1;
    engine_plan(&plan, &s->engine, LONGEST, PREFILL_ROWS, 1);
    if (memory_plan_check(&plan, "--hardware GFLOPS:GBS needs no memory", e) ||
        engine_load(&s->engine, NULL, &s->progress, e))
        return -1;
    for (size_t k = 0; k < N_DRAFTERS; k++) {
        if (!(kinds >> k & 1) || !has_rounds(k) || !is_there(&s->engine, k))
            continue;
        make_settings(&s->set[k], k);
        for (enum drafter i = 0; i < N_DRAFTERS; i++)
            if (weights_has(i) && s->set[k].drafters >> i & 1 && !s->engine.weights[i] &&
                weights_open(&s->engine, i, &s->set[k], NULL, e))
                return -1;
        s->kinds |= 1u << k;
        s->int8 |= draft_wants_int8(&s->set[k], s->engine.dev);
    }
    s->int8 = s->int8 && engine_int8(&s->engine, 0, &s->progress, e) == 0;
    return 0;
}

/* ---- decoders at one length ---- */

/* Of a round with k draft passes of each drafter: a value for each turn. [0]: without drafts. */
struct figures { double seconds[TURNS], rows[TURNS], length[TURNS]; };

struct rig {
    struct subject *s;
    size_t length, n_max;
    struct round_buffers buffers;
    struct decoder plain, d[N_DRAFTERS];
    int32_t *prompt;
    double pass[COST_SIZES][TURNS];
    struct figures round[N_DRAFTERS][PASSES_MAX + 1], none;
};

static void close_rig(struct rig *r)
{
    for (size_t k = 0; k < N_DRAFTERS; k++)
        decode_close(&r->d[k]);
    decode_close(&r->plain);
    round_buffers_close(&r->buffers);
    free(r->prompt);
}

static void set_up(struct decode_setup *x, struct rig *r, size_t kind)
{
    const struct model *m = &r->s->engine.model;
    *x = (struct decode_setup){ .buffers = &r->buffers, .draft = r->s->set[kind] };
    weights_setup(x, &r->s->engine);
    x->draft_model = r->s->int8 && draft_wants_int8(&x->draft, m->dev) ? &r->s->engine.int8 : NULL;
}

/* Rows of the plain text's cache that the others begin with, in whole blocks. */
static size_t shared_rows(const struct rig *r) { return (r->length - OWN_ROWS) / KV_BLOCK * KV_BLOCK; }

static int check_stop(struct err *e)
{
    return stop_signal ? err_set(e, ERR_FAILED, "plan: stopped by %s", stop_signal_name()) : 0;
}

static bool goes_on(void *ctx, size_t done, size_t of)
{
    (void)ctx, (void)done, (void)of;
    return !stop_signal;
}

/* Opens one decoder and reads the prompt. */
static int open_decoder(struct decoder *d, struct rig *r, struct decode_setup *x, struct err *e)
{
    const struct model *m = &r->s->engine.model;
    struct sampling p;
    sampling_defaults(&p);
    p.ignore_eos = true;
    if (d != &r->plain) {
        x->start.from = &r->plain.kv;
        x->start.rows = shared_rows(r);
    }
    return decode_open(d, m, &p, x, r->prompt, r->length, r->n_max, e) ||
                   decode_prefill(d, 0, goes_on, NULL, e) < 0
               ? -1
               : check_stop(e);
}

static int open_rig(struct rig *r, struct err *e)
{
    const struct model *m = &r->s->engine.model;
    struct memory_plan plan = { 0 }, each = { 0 };
    struct decode_setup x[N_DRAFTERS], plain = { .buffers = &r->buffers };
    const size_t shared = shared_rows(r);
    r->n_max = r->length + ROOM;
    size_t rows = COST_ROWS_MAX, work = MAX(rows, decode_work_rows(&plain.draft, r->n_max));
    for (size_t k = 0; k < N_DRAFTERS; k++)
        if (r->s->kinds >> k & 1) {
            set_up(&x[k], r, k);
            rows = MAX(rows, draft_rows(&x[k].draft));
            work = MAX(work, decode_work_rows(&x[k].draft, r->n_max));
        }
    engine_plan_shared(&plan, &r->s->engine, r->n_max, work, rows);
    memory_plan_deduct(&plan, 0, r->s->engine.weight_bytes);
    engine_plan_cache(&plan, &r->s->engine, r->n_max, 1, 0);
    for (size_t k = 0; k < N_DRAFTERS; k++)
        if (r->s->kinds >> k & 1) {
            each.n = 0;                  /* only the totals matter */
            decode_plan(&each, &x[k], m, r->n_max);
            engine_plan_cache(&each, &r->s->engine, r->n_max, draft_rows(&x[k].draft), shared / KV_BLOCK);
        }
    memory_plan_add(&plan, "decoders", each.total);
    if (each.device_total)
        memory_plan_add_on(&plan, m->dev, "decoders", each.device_total);
    if (memory_plan_check(&plan, "shorter --lengths need less", e))
        return -1;
    if (!(r->prompt = calloc(r->length, sizeof *r->prompt)))
        return err_set(e, ERR_FAILED, "plan: out of memory");
    for (size_t i = 0; i < r->length; i++)
        r->prompt[i] = (int32_t)(i * 7919 % m->config.vocab);
    if (round_buffers_open(&r->buffers, m, work, rows, r->n_max, e) || open_decoder(&r->plain, r, &plain, e))
        return -1;
    for (size_t k = 0; k < N_DRAFTERS; k++)
        if (r->s->kinds >> k & 1 && open_decoder(&r->d[k], r, &x[k], e))
            return -1;
    return 0;
}

/* ---- a turn ---- */

/* Passes of cost_rows(i) rows after the plain text, with logits of all rows. They are not committed. */
static int time_size(struct rig *r, size_t i, size_t turn, struct err *e)
{
    static const uint8_t all[COST_ROWS_MAX] = { [0 ... COST_ROWS_MAX - 1] = 1 };
    struct decoder *d = &r->plain;
    const struct device *dev = d->model->dev;
    double seconds = 0;
    for (size_t n = 0; n < PASSES; n++) {
        struct pass_seq seq = { .kv = &d->kv, .n = cost_rows(i), .token = r->prompt, .want = all,
                                .logits = r->buffers.logits };
        const double start = clock_seconds();
        if (model_forward(d->model, r->buffers.work, &seq, 1, NULL, 0, e))
            return -1;
        seconds += n > 0 ? clock_seconds() - start : 0;
        if (n == 0)
            cost_experts_read(&r->buffers.costs, seq.n, dev->experts_read);
    }
    r->pass[i][turn] = seconds / (PASSES - 1);
    return 0;
}

static double mean(const double *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    return sum / (double)n;
}

/* Means, because a text takes the sum of its rounds. The first quarter of a turn's rounds is not counted: it
 * finds the CPU's caches as another setting left them. */
static int time_rounds(struct decoder *d, struct figures *f, size_t turn, struct err *e)
{
    double seconds[ROUNDS_MOST], rows[ROUNDS_MOST], spent = 0;
    const size_t from = d->kv.n_past;
    size_t n = 0;
    while (n < ROUNDS_LEAST || (n < ROUNDS_MOST && spent < TURN_SECONDS)) {
        if (check_stop(e) || decode_step(d, e))
            return -1;
        seconds[n] = d->round.seconds - d->round.calibrating;
        rows[n] = (double)d->round.tree->n_kept;
        spent += seconds[n++];
    }
    f->seconds[turn] = mean(seconds + n / 4, n - n / 4);
    f->rows[turn] = mean(rows + n / 4, n - n / 4);
    f->length[turn] = (double)(from + d->kv.n_past) / 2;
    return 0;
}

/* The least draft passes of a drafter's rounds; 0: it is not measured. */
static size_t least_passes(const struct rig *r, size_t d)
{
    if (!(r->s->kinds >> d & 1))
        return 0;
    return is_fixed(d) ? forecast_of(d)->passes : 1;
}

static int take_turn(struct rig *r, size_t turn, struct err *e)
{
    for (size_t i = 0; i < COST_SIZES; i++)
        if (time_size(r, i, turn, e))
            return -1;
    if (time_rounds(&r->plain, &r->none, turn, e))
        return -1;
    for (size_t k = 0; k < N_DRAFTERS; k++)
        for (size_t n = least_passes(r, k); n && n <= forecast_of(k)->passes; n++) {
            set_passes(&r->d[k].set.draft, k, n);
            if (time_rounds(&r->d[k], &r->round[k][n], turn, e))
                return -1;
        }
    return 0;
}

/* ---- results ---- */

/* What a round takes beside its pass; below 0 where other programs slowed the pass more than the round. */
static double beside_pass(const struct cost_model *m, struct figures *f)
{
    const size_t length = (size_t)bench_median(f->length, TURNS),
                 rows = (size_t)(bench_median(f->rows, TURNS) + 0.5);
    return bench_median(f->seconds, TURNS) - cost_pass(m, length, 1, rows, rows);
}

static void take_figures(struct measured_rounds *m, size_t at, struct rig *r)
{
    struct cost_model *c = &m->pass[at];
    const struct model *x = &r->s->engine.model;
    struct planner_experts experts = { 0 };
    if (x->config.n_experts > x->config.experts_used)
        experts = (struct planner_experts){ model_bytes_an_expert(x), (double)model_expert_layers(x),
                                            (double)x->config.n_experts, (double)x->config.experts_used };
    cost_start(c, model_row_bytes(x), model_kv_bytes(x), &experts);
    c->windowed_bytes = model_windowed_bytes(x), c->window = x->config.window;
    c->fresh = r->buffers.costs.fresh;
    for (size_t i = 0; i < COST_SIZES; i++)
        cost_measured(c, i, r->length, bench_median(r->pass[i], TURNS));
    m->length[at] = r->length;
    m->rest[at] = fmax(0, beside_pass(c, &r->none));
    for (size_t k = 0; k < N_DRAFTERS; k++)
        for (size_t n = least_passes(r, k); n && n <= forecast_of(k)->passes; n++) {
            m->draft[k].reads = r->d[k].planner.reads[0].pass;
            m->draft[k].most = n;
            m->draft[k].seconds[at][n] = fmax(0, beside_pass(c, &r->round[k][n]) - m->rest[at]);
        }
}

/* The two lengths. */
static int choose_lengths(size_t length[2], size_t shortest, size_t longest, size_t context, struct err *e)
{
    const size_t least = 2 * SHORTEST, most = MIN((size_t)LONGEST, context - MIN(context, (size_t)ROOM));
    if (most < least)
        return err_set(e, ERR_INPUT, "--hardware measured: this model's context of %zu tokens is too short: "
                       "measuring needs %zu; --hardware GFLOPS:GBS needs none", context, least + ROOM);
    length[1] = MIN(MAX(longest + longest / 2, least), most);
    length[0] = MIN(MAX(shortest / 2, (size_t)SHORTEST), length[1] / 2);
    return 0;
}

int rounds_measure(struct measured_rounds *m, const struct options *o, unsigned kinds, size_t shortest,
                   size_t longest, struct err *e)
{
    static struct subject s;
    size_t length[2];
    *m = (struct measured_rounds){ 0 };
    int rc = open_subject(&s, o, kinds, e) ||
             choose_lengths(length, shortest, longest, s.engine.config.context, e) ? -1 : 0;
    progress_phase(&s.progress, "measuring", "turns", 2 * TURNS);
    for (size_t i = 0; i < 2 && rc == 0; i++) {
        struct rig *r = calloc(1, sizeof *r);
        if (!r) {
            rc = err_set(e, ERR_FAILED, "plan: out of memory");
            break;
        }
        r->s = &s;
        r->length = length[i];
        rc = open_rig(r, e);
        for (size_t t = 0; t < TURNS && rc == 0; t++) {
            rc = take_turn(r, t, e);
            progress_at(&s.progress, i * TURNS + t + 1);
        }
        if (rc == 0)
            take_figures(m, i, r);
        close_rig(r);
        free(r);
    }
    progress_clear(&s.progress);
    engine_close(&s.engine);
    return rc;
}
