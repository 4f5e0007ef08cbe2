/* longhand train: trains drafters for a model on texts. struct job holds the call; start at train. The
 * training itself is in src/lab/train. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/device_train.h"
#include "src/base/input.h"
#include "src/base/json_write.h"
#include "src/base/output.h"
#include "src/base/stopping.h"
#include "src/lab/train_page.h"
#include "src/cli/verbs.h"
#include "src/decode/engine.h"
#include "src/model/heads.h"
#include "src/model/memory_plan.h"
#include "src/request/model_options.h"
#include "src/request/output_check.h"
#include "src/text/tokenizer.h"
#include "src/lab/train/train.h"

enum { KIND_CHAINED, KIND_INDEPENDENT, KIND_BOTH };

struct job {
    const struct options *o;
    struct engine engine;
    struct progress progress;
    struct train train;
    struct module module[2];
    struct draft_vocab vocab;
    struct lm_back back;
    struct heads first[2];               /* the heads of --from */
    char out[2][PATH_BYTES], checkpoint[PATH_BYTES];
    char page[PATH_BYTES], curves[PATH_BYTES];           /* of --html; "": none */
    struct train_score last[2 * TRAIN_OUTPUTS_MAX];      /* on held-out text */
    const struct module_kind *kind;
};

/* Reads and encodes texts, without the tokens that the tokenizer adds before and after a text. */
static int read_texts(struct train_text *t, const struct tokenizer *tok, const struct text_list *files,
                      struct err *e)
{
    size_t room = 0;
    t->begin = calloc(files->n + 1, sizeof *t->begin);
    if (!t->begin)
        return err_set(e, ERR_FAILED, "out of memory");
    for (; t->n < files->n; t->n++) {
        char *text;
        int32_t *ids;
        size_t n, len, used = t->begin[t->n];
        if (stop_signal)
            return err_set(e, ERR_FAILED, "stopped by %s while reading texts", stop_signal_name());
        if (text_read_utf8(&text, &len, files->v[t->n], e))
            return -1;
        int rc = tokenizer_encode(tok, &ids, &n, text, len, false, e);
        free(text);
        if (rc)
            return err_while(e, "%s", files->v[t->n]);
        if (used + n > room) {
            room = 2 * (used + n);
            int32_t *more = realloc(t->ids, room * sizeof *more);
            if (!more) {
                free(ids);
                return err_set(e, ERR_FAILED, "out of memory for %zu tokens", room);
            }
            t->ids = more;
        }
        memcpy(t->ids + used, ids, n * sizeof *ids);
        free(ids);
        t->begin[t->n + 1] = used + n;
    }
    return 0;
}

/* Reads the tokens that the tokenizer adds before a text: its encoding of an empty text. */
static int read_prefix(struct job *j, struct err *e)
{
    int32_t *ids;
    size_t n;
    if (tokenizer_encode(j->engine.tokenizer, &ids, &n, "", 0, true, e))
        return -1;
    while (n && j->engine.config.n_eos && ids[n - 1] == j->engine.config.eos[0])
        n--;                         /* a template may also add an end */
    if (n <= TRAIN_PREFIX_MAX)
        memcpy(j->train.prefix, ids, n * sizeof *ids);
    free(ids);
    j->train.n_prefix = n;
    return n <= TRAIN_PREFIX_MAX
               ? 0
               : err_set(e, ERR_INPUT, "the tokenizer puts %zu tokens before a text, at most %d are allowed",
                         n, TRAIN_PREFIX_MAX);
}

/* ---- settings and data ---- */

static const struct module_kind *const kinds[] = {
    &train_heads, &train_longspec, &train_gumiho, &train_spire,
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* FILE.safetensors -> FILE-independent.safetensors */
static void second_name(char to[PATH_BYTES], const char *out)
{
    const char *dot = strrchr(out, '.');
    size_t stem = dot && !strchr(dot, '/') ? (size_t)(dot - out) : strlen(out);
    snprintf(to, PATH_BYTES, "%.*s-independent%s", (int)stem, out, out + stem);
}

static int read_kind(struct job *j, struct err *e)
{
    const struct options *o = j->o;
    char known[256] = "";
    for (size_t i = 0; i < N_KINDS; i++) {
        const size_t n = strlen(known);
        snprintf(known + n, sizeof known - n, "%s%s", !i ? "" : i + 1 < N_KINDS ? ", " : " or ",
                 kinds[i]->name);
        if (o->n_args == 1 && strcmp(o->arg[0], kinds[i]->name) == 0)
            j->kind = kinds[i];
    }
    if (!j->kind)
        return err_set(e, ERR_INPUT, "train: '%s' is not %s; "
                       "usage: longhand train KIND --model DIR --data FILES... --out FILE",
                       o->n_args ? o->arg[0] : "", known);
    if (j->kind != &train_heads && (o->train_from || options_given(o, "kind") || options_given(o, "heads")))
        return err_set(e, ERR_INPUT, "train %s: --from, --kind and --heads are for train heads", o->arg[0]);
    if (config_is_hybrid(&j->engine.config))
        return err_set(e, ERR_INPUT,
                       "train %s: no trained drafter supports models with recurrent states (%s)", o->arg[0],
                       j->engine.config.model_type);
    if (j->engine.config.heads_differ && j->kind != &train_heads)
        return err_set(e, ERR_INPUT,
                       "train %s: models whose layers have different heads (%s) are not supported", o->arg[0],
                       j->engine.config.model_type);
    if (options_given(o, "ablate") && j->kind != &train_spire)
        return err_set(e, ERR_INPUT, "train %s: --ablate is for train spire", o->arg[0]);
    if (!j->kind->gpu && !j->engine.dev->host_memory)
        return err_set(e, ERR_INPUT, "train %s: %s: only the CPU can train it", o->arg[0],
                       j->engine.dev->name);
    return 0;
}

/* Defaults of heads: the paper trains models of 7 and 8 billion parameters (hidden size 4096) with a rate of
 * 0.005, in 200 steps of 120 windows of 8,192 tokens. Adam moves every weight by about the rate, so an output
 * moves by the rate times the sum of its inputs. A smaller model therefore needs a larger rate to move as
 * far. Weight decay keeps the paper's product of rate and decay. A step is one window by default because
 * small models have small budgets. */
static int read_settings(struct job *j, struct err *e)
{
    const struct options *o = j->o;
    if (read_kind(j, e))
        return -1;
    const size_t window = o->window ? o->window : MIN(j->kind->window, j->engine.config.context);
    if (!o->output)
        return err_set(e, ERR_INPUT, "train: --out FILE is missing");
    if (!o->data.n)
        return err_set(e, ERR_INPUT, "train: --data FILES... is missing");
    if (strlen(o->output) > PATH_BYTES - 64)
        return err_set(e, ERR_INPUT, "--out: a path of %zu bytes, at most %d are allowed", strlen(o->output),
                       PATH_BYTES - 64);
    if (window > j->engine.config.context)
        return err_set(e, ERR_INPUT, "--window %zu is beyond this model's context of %zu", window,
                       j->engine.config.context);
    if (window < 4 * TRAIN_OUTPUTS_MAX)
        return err_set(e, ERR_INPUT, "--window %zu: at least %d are needed", window, 4 * TRAIN_OUTPUTS_MAX);
    snprintf(j->out[0], PATH_BYTES, "%s", o->output);
    second_name(j->out[1], o->output);
    snprintf(j->checkpoint, PATH_BYTES, "%s.checkpoint", o->output);
    if (o->curves)
        snprintf(j->curves, PATH_BYTES, "%s", o->curves);
    if (o->html) {
        snprintf(j->page, PATH_BYTES, "%s.html", o->output);
        if (!o->curves)
            snprintf(j->curves, PATH_BYTES, "%s.csv", o->output);
        if (output_check_one(o, "out", j->page, e) ||
            (!o->curves && output_check_one(o, "out", j->curves, e)))
            return -1;
    }
    if ((o->train_kind == KIND_BOTH && output_check_one(o, "out", j->out[1], e)) ||
        output_check_one(o, "out", j->checkpoint, e))
        return -1;
    j->train.s = (struct train_settings){
        .window = window, .batch = o->train_batch,
        .rate = options_given(o, "learning-rate") ? o->train_rate
        : j->kind->rate > 0 ? j->kind->rate : MIN(0.2, 0.005 * 4096 / (double)j->engine.config.hidden),
        .skip_max = j->kind->skip_max,
        .clip = o->train_clip, .warmup = o->train_warmup, .seed = options_given(o, "seed") ? o->seed : 42,
        .valid_every = o->valid_every, .valid_windows = o->valid_windows,
        .checkpoint_seconds = o->checkpoint_seconds,
    };
    struct train_settings *s = &j->train.s;
    s->decay = options_given(o, "weight-decay") ? o->train_decay : s->rate > 0.005 ? 0.0005 / s->rate : 0.1;
    return 0;
}

static int read_data(struct job *j, struct err *e)
{
    struct train *t = &j->train;
    if (read_prefix(j, e) || read_texts(&t->data, j->engine.tokenizer, &j->o->data, e) ||
        read_texts(&t->valid, j->engine.tokenizer, &j->o->valid, e))
        return -1;
    if (draft_vocab_count(&j->vocab, j->o->draft_vocab, j->engine.config.vocab, t->data.ids,
                          t->data.begin[t->data.n], e))
        return -1;
    const size_t windows = train_windows(t, &t->data);
    if (windows == 0)
        return err_set(e, ERR_INPUT, "--data: no text of at least %d tokens", 2 + TRAIN_OUTPUTS_MAX);
    t->s.steps = j->o->train_steps ? j->o->train_steps : MAX((windows + t->s.batch - 1) / t->s.batch, 1);
    t->s.warmup = MIN(t->s.warmup, t->s.steps / 4);
    return 0;
}

/* ---- reports ---- */

static double per_token(const struct train_score *s, double x) { return s->n ? x / (double)s->n : NAN; }

static double top1_of(const struct train_score *s) { return 100 * per_token(s, (double)s->top1); }
static double top3_of(const struct train_score *s) { return 100 * per_token(s, (double)s->top3); }
static double accepted_of(const struct train_score *s) { return 100 * per_token(s, s->accepted); }

/* Figures of every output; a dash for an output that no window has trained. */
static void print_scores(FILE *f, const struct train_score *s, size_t n)
{
    static const struct {
        const char *before, *format; double (*of)(const struct train_score *);
    } figures[] = { { " (", "%.3f", train_loss }, { "), top-1 ", "%.1f", top1_of },
                    { " %, top-3 ", "%.1f", top3_of }, { " %, accepted ", "%.1f", accepted_of } };
    const size_t n_figures = s->accepted > 0 ? 4 : 3;
    double loss = 0, accepted = 0;
    for (size_t k = 0; k < n; k++) {
        loss += s[k].n ? train_loss(&s[k]) : 0;
        accepted += accepted_of(&s[k]) / 100;
    }
    fprintf(f, "loss %.4f", loss);
    for (size_t i = 0; i < n_figures; i++) {
        fputs(figures[i].before, f);
        for (size_t k = 0; k < n; k++) {
            fputs(k ? " " : "", f);
            if (s[k].n)
                fprintf(f, figures[i].format, figures[i].of(&s[k]));
            else
                fputc('-', f);
        }
    }
    fputs(" %", f);
    if (n_figures == 4)
        fprintf(f, ", %.3f tokens per round", 1 + accepted);
    fputc('\n', f);
}

static void on_report(void *ctx, const struct train *t, size_t step, bool valid,
                      const struct train_score *score)
{
    struct job *j = ctx;
    struct progress *p = &j->progress;
    if (valid) {
        struct err ignored;              /* the page at the end reports it */
        memcpy(j->last, score, t->n_modules * TRAIN_OUTPUTS_MAX * sizeof *score);
        if (*j->page)
            train_page_write(j->page, j->curves, &ignored);
    }
    else
        progress_at(p, step * t->s.batch * t->s.window);
    if (p->show == SHOW_NOTHING || (!valid && step % MAX(t->s.valid_every / 10, 1) && step != t->s.steps))
        return;
    progress_clear(p);
    for (size_t i = 0; i < t->n_modules; i++) {
        const struct train_score *s = score + i * TRAIN_OUTPUTS_MAX;
        if (p->show == SHOW_JSON) {
            for (size_t k = 0; k < t->module[i].n_outputs; k++) {
                struct json_writer w = jw_begin(stderr, JW_LINE, 0);
                jw_uint(&w, "step", step);
                jw_uint(&w, "steps", t->s.steps);
                jw_text(&w, "kind", t->module[i].name);
                jw_text(&w, "text", valid ? "valid" : "train");
                jw_uint(&w, "head", k);
                jw_format(&w, "loss", "%.6f", train_loss(&s[k]));
                jw_format(&w, "top1", "%.6f", per_token(&s[k], (double)s[k].top1));
                jw_format(&w, "top3", "%.6f", per_token(&s[k], (double)s[k].top3));
                jw_format(&w, "accepted", "%.6f", per_token(&s[k], s[k].accepted));
                jw_end(&w);
            }
        } else {
            fprintf(stderr, "step %zu of %zu, %s, %s: ", step, t->s.steps, t->module[i].name,
                    valid ? "held-out text" : "its windows");
            print_scores(stderr, s, t->module[i].n_outputs);
        }
    }
}

static void print_times(const struct job *j)
{
    const struct train *t = &j->train;
    double heads[HEADS_TIMES] = { 0 }, all = 0;
    for (size_t i = 0; i < t->n_modules; i++)
        for (size_t k = 0; k < HEADS_TIMES; k++)
            heads[k] += t->module[i].seconds[k];
    for (size_t k = 0; k < TRAIN_TIMES; k++)
        all += t->seconds[k];
    fprintf(stderr,
            "%zu tokens in %.1f s, %.0f tokens/s without held-out text: model %.1f s, drafter %.1f s, "
            "optimiser %.1f s, checkpoints %.1f s; "
            "held-out text %.1f s\n",
            t->run_tokens, all, (double)t->run_tokens / (all - t->seconds[TRAIN_VALID]),
            t->seconds[TRAIN_FORWARD], t->seconds[TRAIN_MODULES], t->seconds[TRAIN_OPTIMISER],
            t->seconds[TRAIN_STORE], t->seconds[TRAIN_VALID]);
    if (j->kind == &train_heads)
        fprintf(stderr, "of the heads' time: forward %.1f s, LM head %.1f s, loss %.1f s, LM head back "
                        "%.1f s, back %.1f s\n", heads[HEADS_FORWARD], heads[HEADS_LM], heads[HEADS_LOSS],
                heads[HEADS_LM_BACK], heads[HEADS_BACK]);
}

/* ---- the run ---- */

static int check_memory(struct job *j, struct err *e)
{
    struct memory_plan plan = {0};
    struct train shape = j->train;
    const struct config *c = &j->engine.config;
    struct device *dev = j->engine.dev;
    /* on the host a short vocabulary has a matrix for each direction */
    size_t rows = j->vocab.n ? 2 * j->vocab.n : c->vocab,
           bytes = c->hidden * rows * (dev->host_memory ? sizeof(float) : 2);
    shape.model = &j->engine.model;
    for (size_t i = 0; i < j->train.n_modules; i++) {
        if (module_plan(&j->module[i], shape.model, e))
            return -1;
        bytes += j->module[i].bytes;
    }
    memory_plan_add_on(&plan, dev, "weights", j->engine.weight_bytes);
    memory_plan_add(&plan, "tokens", j->train.data.begin[j->train.data.n] * sizeof(int32_t));
    if (dev->graph_bytes)
        memory_plan_add_on(&plan, dev, "recorded passes", dev->graph_bytes);
    memory_plan_add_on(&plan, dev, "cache, workspace", train_device_bytes(&shape));
    memory_plan_add(&plan, "moments", train_host_bytes(&shape));
    memory_plan_add_on(&plan, dev, j->kind == &train_heads ? "heads" : "drafter", bytes);
    return memory_plan_check(&plan, "a smaller --window needs less", e);
}

/* Opens the heads that --from names for module i. */
static int open_first(struct job *j, size_t i, struct err *e)
{
    static const char *const names[] = { "independent", "chained" };
    char path[PATH_BYTES];
    struct heads *h = &j->first[i];
    struct module *u = &j->module[i];
    if (i == 0)
        snprintf(path, sizeof path, "%s", j->o->train_from);
    else
        second_name(path, j->o->train_from);
    if (heads_open(h, path, &j->engine.model, e))
        return -1;
    u->first = h;
    return h->n == u->heads && h->chained == u->chained
               ? 0
               : err_set(e, ERR_INPUT, "--from: %s: %zu %s heads, to be trained are %zu %s ones", path, h->n,
                         names[h->chained], u->heads, names[u->chained]);
}

static int train_all(struct job *j, struct err *e)
{
    struct train *t = &j->train;
    const int kind = j->o->train_kind;
    t->module = j->module;
    t->n_modules = kind == KIND_BOTH ? 2 : 1;
    for (size_t i = 0; i < t->n_modules; i++) {
        const bool chained = kind != KIND_INDEPENDENT && i == 0;
        j->module[i] = (struct module){
            .kind = j->kind, .out = j->out[i], .window = t->s.window, .seed = t->s.seed, .heads = j->o->heads,
            .name = j->kind != &train_heads ? j->kind->name : chained ? "chained" : "independent",
            .chained = chained, .draft_vocab = j->vocab.n,
            .ablation = (enum spire_ablation)j->o->train_ablation };
    }
    if (check_memory(j, e) || engine_load(&j->engine, NULL, &j->progress, e) ||
        lm_back_open(&j->back, &j->engine.model, &j->vocab, e))
        return -1;
    t->model = &j->engine.model;
    t->checkpoint = j->checkpoint;
    t->curves = *j->curves ? j->curves : NULL;
    t->stop = &stop_signal;
    t->report = on_report;
    t->ctx = j;
    for (size_t i = 0; i < t->n_modules; i++)
        if ((j->o->train_from && open_first(j, i, e)) || module_open(&j->module[i], t->model, &j->back, e))
            return -1;
    progress_clear(&j->progress);
    if (j->progress.show == SHOW_LINE || j->progress.show == SHOW_PLAIN)
        fprintf(stderr, "%zu tokens in %zu windows, held out %zu; %zu steps of %zu windows\n",
                t->data.begin[t->data.n], train_windows(t, &t->data),
                t->valid.n ? t->valid.begin[t->valid.n] : 0, t->s.steps, t->s.batch);
    progress_phase(&j->progress, "training", "tokens", t->s.steps * t->s.batch * t->s.window);
    return train_run(t, e);
}

/* Prints the scores on standard output. */
static int print_results(const struct job *j, struct err *e)
{
    const struct train *t = &j->train;
    for (size_t i = 0; i < t->n_modules; i++) {
        const struct module *u = &t->module[i];
        const struct train_score *s = j->last + i * TRAIN_OUTPUTS_MAX;
        printf("%s: %s", u->out, u->name);
        if (s->n) {
            fputs(", held-out text: ", stdout);
            print_scores(stdout, s, u->n_outputs);
        } else
            putchar('\n');
    }
    return stdout_finish(e);
}

/* Rejects a GPU without cuBLAS before any data is read. */
static int check_device(struct job *j, struct err *e)
{
    struct device *d = j->engine.dev;
    char why[512];
    if (!d->host_memory && device_train_open(d, why, sizeof why))
        return err_set(e, ERR_INPUT, "train heads: %s: %s", d->name, why);
    return 0;
}

static int train(struct job *j, struct err *e)
{
    struct options own = *j->o;
    progress_open(&j->progress, j->o->progress, j->o->quiet);
    if (strcmp(own.device, "auto") == 0)
        own.device = "cpu";              /* the result depends on the device, so a GPU must be requested */
    if (options_open_engine(&j->engine, &own, e) || check_device(j, e) || read_settings(j, e) ||
        read_data(j, e))
        return -1;
    int rc = train_all(j, e);
    progress_clear(&j->progress);
    if (rc == 0 && *j->page)
        rc = train_page_write(j->page, j->curves, e);
    if (j->train.run_tokens && (j->progress.show == SHOW_LINE || j->progress.show == SHOW_PLAIN))
        print_times(j);
    return rc ? rc : print_results(j, e);
}

int cmd_train(const struct options *o, struct err *e)
{
    struct job *j = calloc(1, sizeof *j);
    if (!j)
        return err_set(e, ERR_FAILED, "out of memory");
    j->o = o;
    stop_signals_catch();
    int rc = train(j, e);
    for (size_t i = 0; i < 2; i++) {
        module_close(&j->module[i]);
        heads_close(&j->first[i]);
    }
    lm_back_close(&j->back);
    draft_vocab_close(&j->vocab);
    free(j->train.data.ids);
    free(j->train.data.begin);
    free(j->train.valid.ids);
    free(j->train.valid.begin);
    engine_close(&j->engine);
    free(j);
    return rc;
}
