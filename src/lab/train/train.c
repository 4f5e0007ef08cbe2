/* The trainer: it cuts texts into windows, runs the frozen model over them, gives the hidden states to the
 * modules, steps the optimiser, and writes checkpoints and curves. struct run is one call of train_run.
 * Start at train_run at the end, then run_steps and one_step; train.h explains the method. */
#include "src/lab/train/train.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/model/heads.h"
#include "src/model/memory_plan.h"

enum { PASS_ROWS = 256 };                        /* rows of a pass */

/* tokens of a window, without the prefix; its hidden states, or NULL */
struct span { size_t from, n; float *kept; };

/* One call of train_run. */
struct run {
    struct train *t;
    struct span *span, *held; size_t n_spans, n_held;
    size_t *order, epoch;                        /* the order of the windows in this pass over the data */
    struct kv kv;
    struct workspace *work;
    int32_t *token;
    float *hidden; size_t hidden_bytes;
    size_t room;                                 /* for hidden states of windows that come again */
    float *entering[2];                          /* [window][hidden], or NULL */
    struct train_score *score;                   /* [modules][TRAIN_OUTPUTS_MAX] */
    FILE *csv; uint64_t csv_bytes;               /* the curves, and their length after the last step */
    uint64_t identity;                           /* hash of everything that the result depends on */
    double saved;                                /* when the last checkpoint was written */
};

/* ---- windows ---- */

/* Cut texts into windows and return their number; span NULL: only count them. A window that is too short
 * to train every output is left out. */
static size_t cut_windows(const struct train *t, const struct train_text *text, struct span *span)
{
    const size_t room = t->s.window - t->n_prefix;
    size_t n = 0;
    for (size_t i = 0; i < text->n; i++) {
        const size_t len = text->begin[i + 1] - text->begin[i], pieces = (len + room - 1) / room;
        for (size_t k = 0; k < pieces; k++) {
            const size_t a = k * len / pieces, b = (k + 1) * len / pieces;
            if (b - a + t->n_prefix < 2 + TRAIN_OUTPUTS_MAX)
                continue;
            if (span)
                span[n] = (struct span){ text->begin[i] + a, b - a, NULL };
            n++;
        }
    }
    return n;
}

size_t train_windows(const struct train *t, const struct train_text *text)
{
    return cut_windows(t, text, NULL);
}

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Set the order of the windows in pass `epoch` over the data. It is a function of seed and epoch, so that a
 * checkpoint need not store it. */
static void shuffle(struct run *r, size_t epoch)
{
    uint64_t state = mix(r->t->s.seed * 0x9e3779b97f4a7c15u + epoch + 1);
    for (size_t i = 0; i < r->n_spans; i++)
        r->order[i] = i;
    for (size_t i = r->n_spans; i > 1; i--) {
        size_t j = mix(state += 0x9e3779b97f4a7c15u) % i, o = r->order[i - 1];
        r->order[i - 1] = r->order[j];
        r->order[j] = o;
    }
    r->epoch = epoch;
}

/* Where the positions of a window skip (struct train_settings, skip_max). */
static void draw_skip(const struct train *t, struct train_window *win)
{
    enum { ANCHORS = 5 };
    win->skip_at = win->n;
    if (t->s.skip_max == 0 || win->n > TRAIN_SKIP_TOKENS)
        return;
    win->skip_at = mix(win->key + 1) % ANCHORS;
    win->skip = mix(win->key + 2) % (MIN(t->s.skip_max, t->model->config.context - win->n) + 1);
}

/* Copy the hidden states of a window that comes again, if there is room. */
static void keep(struct run *r, const struct train_text *text, struct span *span, size_t bytes)
{
    const struct train *t = r->t;
    const bool once = text == &t->data && t->s.steps * t->s.batch <= r->n_spans;
    if (once || bytes > r->room || !(span->kept = malloc(bytes)))
        return;
    memcpy(span->kept, r->hidden, bytes);
    r->room -= bytes;
}

/* Run the model over a window, unless its hidden states were kept. key: of struct train_window. */
static int hidden_states(struct run *r, const struct train_text *text, struct span *span, uint64_t key,
                         struct train_window *win, struct err *e)
{
    const struct train *t = r->t;
    const size_t n = t->n_prefix + span->n, d = t->model->config.hidden;
    *win = (struct train_window){ .token = r->token, .n = n, .hidden = r->hidden, .kv = &r->kv, .key = key,
                                  .done = (double)t->step / (double)t->s.steps };
    win->entering[0] = r->entering[0], win->entering[1] = r->entering[1];
    draw_skip(t, win);
    memcpy(r->token, t->prefix, t->n_prefix * sizeof *r->token);
    memcpy(r->token + t->n_prefix, text->ids + span->from, span->n * sizeof *r->token);
    if (span->kept) {
        win->hidden = span->kept;
        return 0;
    }
    kv_truncate(&r->kv, 0);
    for (size_t i = 0, to; i < n; i = to) {
        to = MIN(i < win->skip_at ? win->skip_at : n, i + PASS_ROWS);
        struct pass_seq seq = { .kv = &r->kv, .n = to - i, .token = r->token + i,
                                .shift = i < win->skip_at ? 0 : win->skip };
        struct tap taps[2];
        for (size_t k = 0; k < 2 && r->entering[0]; k++)
            taps[k] = (struct tap){ TAP_RESIDUAL, t->model->config.n_layers - 2 + k, r->entering[k] + i * d };
        if (model_forward(t->model, r->work, &seq, 1, taps, r->entering[0] ? 2 : 0, e))
            return err_while(e, "training text, token %zu", span->from + i);
        t->model->dev->copy(t->model->dev, r->hidden + i * d, workspace_residual(r->work),
                            seq.n * d * sizeof *r->hidden);
        kv_advance(&r->kv, seq.n);
    }
    keep(r, text, span, n * d * sizeof *r->hidden);
    return 0;
}

/* ---- checkpoints ---- */

/* A checkpoint is "longhand training 1\n", struct head, then w, m and v of every module, then the hash of
 * all bytes before the hash. Numbers are in native byte order. */
static const char MAGIC[] = "longhand training 1\n";
struct head { uint64_t identity, step, tokens, csv_bytes, n_params; };

/* A hash of everything that the result depends on. Call it before the first step: it includes the first
 * weights. */
static uint64_t identity(const struct train *t)
{
    const struct train_settings *s = &t->s;
    const uint64_t sizes[] = { s->window, s->batch, s->steps, s->warmup, s->valid_every, s->valid_windows,
                               s->seed, t->model->compute,
                               heads_fingerprint(t->model), t->n_prefix, t->n_modules };
    const double reals[] = { s->rate, s->decay, s->clip };
    uint64_t h = hash64(hash64(HASH64_INIT, sizes, sizeof sizes), reals, sizeof reals);
    /* Older checkpoints of the CPU, from before caches of int16, do not include the numerics id. */
    if (!t->model->dev->host_memory || kv_form(t->model->dev->kv_type).q == DT_I16)
        h = hash64(h, t->model->dev->numerics, strlen(t->model->dev->numerics));
    if (t->module->draft_vocab)
        h = hash64(h, &t->module->draft_vocab, sizeof t->module->draft_vocab);
    if (s->skip_max)
        h = hash64(h, &s->skip_max, sizeof s->skip_max);
    h = hash64(h, t->prefix, t->n_prefix * sizeof *t->prefix);
    for (size_t i = 0; i < t->n_modules; i++) {
        const struct module *u = &t->module[i];
        h = hash64(hash64(h, u->name, strlen(u->name) + 1), u->w, u->n_params * sizeof *u->w);
    }
    const struct train_text *const texts[] = { &t->data, &t->valid };
    for (size_t i = 0; i < 2; i++) {
        h = hash64(h, texts[i]->begin, texts[i]->n ? (texts[i]->n + 1) * sizeof *texts[i]->begin : 0);
        h = hash64(h, texts[i]->ids, texts[i]->n ? texts[i]->begin[texts[i]->n] * sizeof *texts[i]->ids : 0);
    }
    return h;
}

/* Copy weights and moments of all modules from the GPU, if they are there. */
static int fetch_modules(struct train *t, struct err *e)
{
    for (size_t i = 0; i < t->n_modules; i++)
        if (module_fetch(&t->module[i], e))
            return -1;
    return 0;
}

/* Put the curves on the disk. A checkpoint records their length, so they must not be shorter after a power
 * cut. */
static int curves_sync(struct run *r, struct err *e)
{
    if (!r->csv)
        return 0;
    if (fflush(r->csv) || ferror(r->csv) ||
        (fsync(fileno(r->csv)) && errno != EINVAL && errno != ENOTSUP && errno != EROFS))   /* e.g. a pipe */
        return err_set(e, ERR_FAILED, "%s: cannot write: %s", r->t->curves, strerror(errno));
    return 0;
}

static int checkpoint_write(struct run *r, struct err *e)
{
    struct train *t = r->t;
    struct slice part[3 * TRAIN_MODULES_MAX + 3];
    struct head head = { .identity = r->identity, .step = t->step, .tokens = t->tokens };
    uint64_t hash = HASH64_INIT;
    size_t n = 0;
    double now = clock_seconds();
    if (fetch_modules(t, e) || curves_sync(r, e))
        return -1;
    head.csv_bytes = r->csv_bytes;
    part[n++] = (struct slice){ MAGIC, sizeof MAGIC - 1 };
    part[n++] = (struct slice){ &head, sizeof head };
    for (size_t i = 0; i < t->n_modules; i++) {
        const struct module *u = &t->module[i];
        const float *const a[] = { u->w, u->m, u->v };
        head.n_params += u->n_params;
        for (size_t k = 0; k < 3; k++)
            part[n++] = (struct slice){ a[k], u->n_params * sizeof(float) };
    }
    for (size_t i = 0; i < n; i++)
        hash = hash64(hash, part[i].p, part[i].n);
    part[n++] = (struct slice){ &hash, sizeof hash };
    int rc = file_write(t->checkpoint, part, n, e);
    r->saved = clock_seconds();
    t->seconds[TRAIN_STORE] += r->saved - now;
    return rc;
}

/* Cut the curves to the length that they had at the checkpoint, and open them at their end. */
static int curves_continue(struct run *r, uint64_t bytes, struct err *e)
{
    const struct train *t = r->t;
    r->csv = fopen(t->curves, "r+");
    if (!r->csv || fseek(r->csv, 0, SEEK_END) || (uint64_t)ftell(r->csv) < bytes)
        return err_set(e, ERR_INPUT, "%s: the curves up to the checkpoint %s are missing", t->curves,
                       t->checkpoint);
    r->csv_bytes = bytes;
    if (ftruncate(fileno(r->csv), (off_t)bytes) || fseek(r->csv, 0, SEEK_END))
        return err_set(e, ERR_FAILED, "%s: cannot write: %s", t->curves, strerror(errno));
    return 0;
}

/* Continue from the n bytes of a checkpoint. */
static int checkpoint_restore(struct run *r, const char *data, size_t n, struct err *e)
{
    struct train *t = r->t;
    struct head head;
    size_t params = 0, at = sizeof MAGIC - 1 + sizeof head;
    uint64_t hash;
    for (size_t i = 0; i < t->n_modules; i++)
        params += t->module[i].n_params;
    if (n < at + sizeof hash || memcmp(data, MAGIC, sizeof MAGIC - 1))
        return err_set(e, ERR_INPUT, "%s: not a checkpoint of training; remove it to start over",
                       t->checkpoint);
    memcpy(&head, data + sizeof MAGIC - 1, sizeof head);
    memcpy(&hash, data + n - sizeof hash, sizeof hash);
    if (hash != hash64(HASH64_INIT, data, n - sizeof hash))
        return err_set(e, ERR_INPUT, "%s: damaged (its hash differs from its bytes); remove it to start over",
                       t->checkpoint);
    if (head.identity != r->identity || head.n_params != params ||
        n != at + 3 * params * sizeof(float) + sizeof hash)
        return err_set(e, ERR_INPUT,
                       "%s: made with other settings, data, another model or on another kind of device; give "
                       "the same ones to continue, or remove it to start over",
                       t->checkpoint);
    for (size_t i = 0; i < t->n_modules; i++) {
        struct module *u = &t->module[i];
        float *const a[] = { u->w, u->m, u->v };
        for (size_t k = 0; k < 3; k++, at += u->n_params * sizeof(float))
            memcpy(a[k], data + at, u->n_params * sizeof(float));
        module_update(u);
    }
    t->step = t->resumed = head.step;
    t->tokens = head.tokens;
    return t->curves ? curves_continue(r, head.csv_bytes, e) : 0;
}

/* Continue from the checkpoint if it exists; otherwise begin the curves and write a first checkpoint. */
static int resume(struct run *r, struct err *e)
{
    struct train *t = r->t;
    char *data;
    size_t n;
    r->identity = identity(t);
    if (access(t->checkpoint, F_OK) == 0) {
        if (file_read(&data, &n, t->checkpoint, SIZE_MAX / 2, e))
            return -1;
        int rc = checkpoint_restore(r, data, n, e);
        free(data);
        return rc;
    }
    if (t->curves && (!(r->csv = fopen(t->curves, "w")) || name_sync(t->curves)))
        return err_set(e, ERR_INPUT, "%s: cannot write: %s", t->curves, strerror(errno));
    if (r->csv)
        r->csv_bytes = (uint64_t)fprintf(r->csv, "step,tokens,module,text,output,loss,top1,top3,rate,"
                                                   "accepted\n");
    return checkpoint_write(r, e);       /* a folder that is not writable fails now, not hours later */
}

/* ---- the run ---- */

/* Append the scores of the last step, or of held-out text, to the curves, and pass them to the caller. */
static void report_scores(struct run *r, bool valid)
{
    struct train *t = r->t;
    for (size_t i = 0; r->csv && i < t->n_modules; i++)
        for (size_t k = 0; k < t->module[i].n_outputs; k++) {
            const struct train_score *s = &r->score[i * TRAIN_OUTPUTS_MAX + k];
            const double n = s->n ? (double)s->n : NAN;
            fprintf(r->csv, "%zu,%zu,%s,%s,%zu,%.6f,%.6f,%.6f,%.6g,%.6f\n", t->step, t->tokens,
                    t->module[i].name, valid ? "valid" : "train", k, train_loss(s), (double)s->top1 / n,
                    (double)s->top3 / n, t->step ? train_rate(&t->s, t->step - 1) : 0, s->accepted / n);
        }
    if (valid && r->csv)
        fflush(r->csv);
    if (t->report)
        t->report(t->ctx, t, t->step, valid, r->score);
}

/* A GPU reports an error of earlier work later. */
static int check_device(const struct train *t, struct err *e)
{
    const struct device *d = t->model->dev;
    return *d->error ? err_set(e, ERR_FAILED, "%s: %s", d->name, d->error) : 0;
}

static bool stopped(const struct run *r) { return r->t->stop && *r->t->stop; }

/* Run one window through the model and every module, and add the seconds of the two to *times[0] and
 * *times[1]. */
static int one_window(struct run *r, const struct train_text *text, struct span *span, uint64_t key,
                      float weight, double *times[2], struct err *e)
{
    struct train *t = r->t;
    struct train_window win;
    const double start = clock_seconds();
    if (hidden_states(r, text, span, key, &win, e))
        return -1;
    const double mid = clock_seconds();
    for (size_t i = 0; i < t->n_modules; i++)
        t->module[i].kind->train(&t->module[i], &win, weight, r->score + i * TRAIN_OUTPUTS_MAX);
    *times[0] += mid - start;
    *times[1] += clock_seconds() - mid;
    return check_device(t, e);
}

static int score_held_out(struct run *r, struct err *e)
{
    struct train *t = r->t;
    const size_t n = MIN(t->s.valid_windows, r->n_held);
    memset(r->score, 0, t->n_modules * TRAIN_OUTPUTS_MAX * sizeof *r->score);
    for (size_t i = 0; i < n && !stopped(r); i++)
        if (one_window(r, &t->valid, &r->held[(2 * i + 1) * r->n_held / (2 * n)], mix(i), 0,
                       (double *[]){ &t->seconds[TRAIN_VALID], &t->seconds[TRAIN_VALID] }, e))
            return -1;
    if (n && !stopped(r))
        report_scores(r, true);
    return 0;
}

/* One step: a batch of windows, then the optimiser. A stop signal leaves the state as before the step. */
static int one_step(struct run *r, struct err *e)
{
    struct train *t = r->t;
    size_t tokens = 0;
    memset(r->score, 0, t->n_modules * TRAIN_OUTPUTS_MAX * sizeof *r->score);
    for (size_t b = 0; b < t->s.batch; b++) {
        const size_t at = t->step * t->s.batch + b;
        if (stopped(r))
            return 0;
        if (at / r->n_spans != r->epoch)
            shuffle(r, at / r->n_spans);
        struct span *span = &r->span[r->order[at % r->n_spans]];
        if (one_window(r, &t->data, span, mix(t->s.seed + mix(at)), 1 / (float)t->s.batch,
                       (double *[]){ &t->seconds[TRAIN_FORWARD], &t->seconds[TRAIN_MODULES] }, e))
            return -1;
        tokens += span->n;
    }
    const double start = clock_seconds();
    for (size_t i = 0; i < t->n_modules; i++)
        if (!isfinite(train_step(&t->module[i], &t->s, t->step)))
            return check_device(t, e) ? -1 : err_set(e, ERR_FAILED,
                "%s: the gradient of step %zu is not finite; a lower --learning-rate may help",
                    t->module[i].name, t->step);
    t->seconds[TRAIN_OPTIMISER] += clock_seconds() - start;
    t->step++;
    t->tokens += tokens;
    t->run_tokens += tokens;
    report_scores(r, false);
    r->csv_bytes = r->csv ? (uint64_t)ftell(r->csv) : 0;
    return 0;
}

static int run_steps(struct run *r, struct err *e)
{
    struct train *t = r->t;
    r->saved = clock_seconds();
    for (;;) {
        /* A checkpoint is the state right after a step. If held-out text is due after that step, the run that
         * continues from the checkpoint scores it. */
        if ((t->step % t->s.valid_every == 0 || t->step == t->s.steps) && score_held_out(r, e))
            return -1;
        if (!stopped(r) && t->step == t->s.steps)
            return 0;
        if (!stopped(r) && one_step(r, e))
            return -1;
        const bool stop = stopped(r);    /* read once: a stop that comes later gets a checkpoint of its own */
        if ((stop || (t->step < t->s.steps && clock_seconds() - r->saved >= t->s.checkpoint_seconds)) &&
            checkpoint_write(r, e))
            return -1;
        if (stop)
            return err_set(e, ERR_AGAIN, "stopped after step %zu of %zu; the same command continues from %s",
                           t->step, t->s.steps, t->checkpoint);
    }
}

/* Save every module, then remove the checkpoint. */
static int finish(struct run *r, struct err *e)
{
    struct train *t = r->t;
    char note[160];
    if (fetch_modules(t, e))
        return -1;
    snprintf(note, sizeof note, "%zu steps of %zu windows of %zu tokens, rate %g, seed %" PRIu64, t->s.steps,
             t->s.batch, t->s.window, t->s.rate, t->s.seed);
    for (size_t i = 0; i < t->n_modules; i++)
        if (t->module[i].kind->save(&t->module[i], t->module[i].out, note, e))
            return -1;
    if (curves_sync(r, e))
        return -1;
    if (unlink(t->checkpoint) && errno != ENOENT)
        return err_set(e, ERR_FAILED, "%s: cannot remove: %s", t->checkpoint, strerror(errno));
    return 0;
}

size_t train_host_bytes(const struct train *t)
{
    size_t params = 0;
    for (size_t i = 0; i < t->n_modules; i++)
        params += t->module[i].n_params;
    return 4 * params * sizeof(float);
}

size_t train_device_bytes(const struct train *t)
{
    const struct model *m = t->model;
    const struct kv_size cache = model_cache(m, t->s.window, 0);
    return kv_bytes(&cache) + workspace_bytes(m, PASS_ROWS, t->s.window) +
           t->s.window * m->config.hidden * sizeof(float);
}

static int open_run(struct run *r, struct err *e)
{
    struct train *t = r->t;
    const struct model *m = t->model;
    const struct config *c = &m->config;
    r->n_spans = cut_windows(t, &t->data, NULL);
    r->n_held = cut_windows(t, &t->valid, NULL);
    assert(r->n_spans > 0);
    r->span = calloc(r->n_spans, sizeof *r->span);
    r->order = malloc(r->n_spans * sizeof *r->order);
    r->held = calloc(r->n_held + 1, sizeof *r->held);
    r->token = malloc(t->s.window * sizeof *r->token);
    r->score = calloc(t->n_modules * TRAIN_OUTPUTS_MAX, sizeof *r->score);
    r->hidden_bytes = t->s.window * c->hidden * sizeof *r->hidden;
    r->hidden = m->dev->alloc(m->dev, r->hidden_bytes);
    for (size_t i = 0; i < t->n_modules; i++)
        for (size_t k = 0; k < 2 && t->module[i].kind->entering && !r->entering[k]; k++)
            if (!(r->entering[k] = malloc(r->hidden_bytes)))
                return err_set(e, ERR_FAILED, "out of memory for windows of %zu tokens", t->s.window);
    if (!r->span || !r->order || !r->held || !r->token || !r->score || !r->hidden)
        return err_set(e, ERR_FAILED, "out of memory for windows of %zu tokens", t->s.window);
    cut_windows(t, &t->data, r->span);
    cut_windows(t, &t->valid, r->held);
    shuffle(r, 0);
    /* Kinds whose positions move need the model each time. */
    bool moves = t->s.skip_max > 0;
    for (size_t i = 0; i < t->n_modules; i++)
        moves |= t->module[i].kind->skip_max > 0;
    if (!moves && m->dev->host_memory)
        r->room = memory_available(&(const char *){ NULL }) / 2;
    const struct kv_size cache = model_cache(m, t->s.window, 0);
    return kv_open(&r->kv, m->dev, &cache, e) ? -1 : workspace_open(&r->work, m, PASS_ROWS, t->s.window, e);
}

int train_run(struct train *t, struct err *e)
{
    struct run r = { .t = t };
    assert(t->n_modules >= 1 && t->n_modules <= TRAIN_MODULES_MAX && t->s.steps && t->s.batch &&
           t->s.valid_every && t->s.warmup < t->s.steps);
    int rc = open_run(&r, e) || resume(&r, e) || run_steps(&r, e) || finish(&r, e) ? -1 : 0;
    if (r.csv && fclose(r.csv) && !rc)
        rc = err_set(e, ERR_FAILED, "%s: cannot write: %s", t->curves, strerror(errno));
    workspace_close(r.work);
    kv_close(&r.kv);
    t->model->dev->free(t->model->dev, r.hidden, r.hidden_bytes);
    for (size_t i = 0; r.span && i < r.n_spans; i++)
        free(r.span[i].kept);
    for (size_t i = 0; r.held && i < r.n_held; i++)
        free(r.held[i].kept);
    void *const mine[] = { r.entering[0], r.entering[1], r.span, r.order, r.held, r.token, r.score };
    for (size_t i = 0; i < sizeof mine / sizeof *mine; i++)
        free(mine[i]);
    return rc;
}
