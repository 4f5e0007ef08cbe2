/* longhand score: how likely a model finds a text, of a file or of a job. struct score holds the call; start
 * at score_piece. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/input.h"
#include "src/base/output.h"
#include "src/base/sheet.h"
#include "src/base/stopping.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"
#include "src/decode/engine.h"
#include "src/model/memory_plan.h"
#include "src/model/model.h"
#include "src/request/job_params.h"
#include "src/request/model_options.h"
#include "src/sample/logprob.h"

enum { SCORE_ROWS = 64 };            /* rows of a pass; their logits are held */

struct score {
    const struct options *o;
    struct engine engine;
    struct progress progress;
    int32_t *ids; size_t n;
    size_t first;                    /* the first token that counts: of a job, the one after the prompt */
    size_t piece;                    /* tokens that are scored in one cache */
    double *nll;                     /* [n - 1]: entry i belongs to ids[i + 1]; NAN: not scored */
    struct kv kv;
    struct workspace *work;
    float *logits; size_t logits_bytes;      /* of the device */
    float *host;                     /* a copy on the host; equal to logits where the device is the CPU */
    double sum; size_t scored;
};

struct rows { const struct score *s; size_t first; };

/* The negative log-likelihood of the token after row i. */
static void row_nll(void *ctx, size_t i, size_t thread)
{
    const struct rows *r = ctx;
    size_t vocab = r->s->engine.config.vocab;
    const float *x = r->s->host + i * vocab;
    (void)thread;
    r->s->nll[r->first + i] = log_sum_exp(x, vocab) - x[r->s->ids[r->first + i + 1]];
}

/* Scores tokens [from, from + n), with token `from` at position 0. */
static int score_piece(struct score *s, size_t from, size_t n, struct err *e)
{
    static const uint8_t all[SCORE_ROWS] = { [0 ... SCORE_ROWS - 1] = 1 };
    struct device *dev = s->engine.dev;
    kv_truncate(&s->kv, 0);
    for (size_t done = 0; done + 1 < n;) {
        size_t rows = MIN((size_t)SCORE_ROWS, n - 1 - done);
        struct pass_seq seq = { .kv = &s->kv, .n = rows, .token = s->ids + from + done,
                                .certain = true, .want = all, .logits = s->logits };
        struct rows r = { s, from + done };
        if (stop_signal)
            return err_set(e, ERR_FAILED, "stopped by %s after %zu of %zu %s", stop_signal_name(),
                           from + done, s->n, plural(s->n, "token", "tokens"));
        if (model_forward(&s->engine.model, s->work, &seq, 1, NULL, 0, e))
            return err_while(e, "token %zu", from + done);
        kv_advance(&s->kv, rows);
        if (s->host != s->logits &&
            dev->download(dev, s->host, s->logits, rows * s->engine.config.vocab * sizeof *s->host))
            return err_set(e, ERR_FAILED, "token %zu: %s: %s", from + done, dev->name, dev->error);
        pool_run(s->engine.pool, rows, row_nll, &r);
        done += rows;
        progress_at(&s->progress, from + done);
    }
    return 0;
}

static int check_length(struct score *s, struct err *e)
{
    const struct config *c = &s->engine.config;
    if (s->n < 2)
        return err_set(e, ERR_INPUT, "%s: %zu token, at least 2 are needed", s->o->arg[0], s->n);
    if (s->o->window > c->context)
        return err_set(e, ERR_INPUT, "--window %zu is beyond this model's context of %zu", s->o->window,
                       c->context);
    if (!s->o->window && s->n > c->context)
        return err_set(
            e, ERR_INPUT,
            "%s: %zu tokens are beyond this model's context of %zu; --window N scores it in pieces%s",
            s->o->arg[0], s->n, c->context,
            c->rope.type == ROPE_DYNAMIC ? "" : ", --context-scaling yarn:F stretches the context");
    s->piece = s->o->window ? MIN(s->o->window, s->n) : s->n;
    return 0;
}

/* Whether the word names a job and no file: a number is a job unless there are --model and such a file. */
static bool is_job(const struct options *o)
{
    const char *word = o->arg[0];
    return *word == '@' || (word[strspn(word, "0123456789")] == 0 && (!o->model || access(word, F_OK)));
}

/* Opens the model of the job, with the number formats that it is written with, or that of --model. */
static int open_job(struct score *s, struct store *db, const struct job *j, const struct job_input *in,
                    struct err *e)
{
    struct options o = *s->o;
    struct job_params p;
    int32_t *ids = NULL;
    size_t n = 0;
    if (job_parse(&p, in->parameters, e))
        return -1;
    if (!o.model) {
        o.model = j->model;
        o.job.compute = p.compute;
        o.job.kv_dtype = p.kv_dtype;
        o.job.weights = p.weights;
        o.job.scaling = p.scaling;
    }
    int rc = options_open_engine(&s->engine, &o, e) || store_tokens(db, j->id, 0, j->tokens, &ids, &n, e);
    if (rc == 0 && p.tokenizer && strcmp(p.tokenizer, tokenizer_sha(s->engine.tokenizer)))
        rc = err_set(e, ERR_INPUT,
                     "job %" PRId64 ": the model has another tokenizer than the job; longhand text %" PRId64
                     " >FILE and longhand score --model DIR FILE score its text", j->id, j->id);
    s->first = in->n_prompt;
    s->n = in->n_prompt + n;
    if (rc == 0 && !(s->ids = malloc((s->n + 1) * sizeof *s->ids)))
        rc = err_set(e, ERR_FAILED, "out of memory for %zu tokens", s->n);
    for (size_t i = 0; i < s->n && rc == 0; i++) {
        s->ids[i] = i < s->first ? in->prompt_ids[i] : ids[i - s->first];
        if (s->ids[i] < 0 || (size_t)s->ids[i] >= s->engine.config.vocab)
            rc = err_set(e, ERR_INPUT,
                         "job %" PRId64 ": token id %" PRId32 " is beyond the model's vocabulary of %zu",
                         j->id, s->ids[i], s->engine.config.vocab);
    }
    free(ids);
    job_close(&p);
    return rc ? -1 : 0;
}

static int read_job(struct score *s, struct err *e)
{
    struct store *db = NULL;
    struct job_list jobs = {0};
    struct job_input in = {0};
    int rc = store_from_options(&db, s->o, STORE_READ, e) || job_from_word(db, s->o->arg[0], &jobs, e) ||
             store_input(db, jobs.v[0].id, &in, e) || open_job(s, db, &jobs.v[0], &in, e) ? -1 : 0;
    job_input_free(&in);
    job_list_free(&jobs);
    store_close(db);
    return rc;
}

static int read_file(struct score *s, struct err *e)
{
    char *text;
    size_t n;
    if (options_open_engine(&s->engine, s->o, e) || text_read_utf8(&text, &n, s->o->arg[0], e))
        return -1;
    int rc = tokenizer_encode(s->engine.tokenizer, &s->ids, &s->n, text, n, true, e);
    free(text);
    return rc;
}

static int prepare(struct score *s, struct err *e)
{
    struct memory_plan plan = {0};
    if ((is_job(s->o) ? read_job(s, e) : read_file(s, e)) || check_length(s, e))
        return -1;
    engine_plan(&plan, &s->engine, s->piece, SCORE_ROWS, SCORE_ROWS);
    memory_plan_add(&plan, "tokens", s->n * (sizeof *s->ids + sizeof *s->nll));
    return memory_plan_check(&plan, "a smaller --window needs less", e);
}

static int open_buffers(struct score *s, struct err *e)
{
    const struct model *m = &s->engine.model;
    const struct config *c = &m->config;
    s->nll = malloc(s->n * sizeof *s->nll);
    s->logits_bytes = SCORE_ROWS * c->vocab * sizeof *s->logits;
    s->logits = m->dev->alloc(m->dev, s->logits_bytes);
    s->host = m->dev->host_memory ? s->logits : malloc(s->logits_bytes);
    if (!s->nll || !s->logits || !s->host)
        return err_set(e, ERR_FAILED, "out of memory for %zu tokens", s->n);
    for (size_t i = 0; i < s->n; i++)
        s->nll[i] = NAN;
    const struct kv_size cache = model_text_cache(m, s->piece, 0);
    return kv_open(&s->kv, m->dev, &cache, e) || workspace_open(&s->work, m, SCORE_ROWS, s->piece, e) ? -1
                                                                                                      : 0;
}

static void token_id(const void *of, size_t i, struct row *cell)
{
    *cell = (struct row){ .value = V_INT(((const struct score *)of)->ids[i]) };
}

static void token_nll(const void *of, size_t i, struct row *cell)
{
    *cell = (struct row){ .value = V_DIGITS(((const struct score *)of)->nll[i], 10) };
}

static void print(const struct score *s)
{
    const bool all = s->o->per_token, any = s->scored > 0;
    const double mean = any ? s->sum / (double)s->scored : NAN;
    const struct table ids = { s->n, token_id, s }, nll = { s->n - 1, token_nll, s };
    const struct row rows[] = {
        { "tokens", "", V_UINT(s->n), plural(s->n, "@ token", "@ tokens") },
        { "scored", "", V_UINT(s->scored), "@ scored" },
        { "nll", "", V_DIGITS(s->sum, 17), "nll @6" },
        { NULL, "", V_NUMBER(mean), "(@6 per token)" },
        { "perplexity", "", V_DIGITS(exp(mean), 17), "perplexity @4" },
        { "token_ids", NULL, V_TABLE(&ids), .unless = !all },
        { "token_nll", NULL, V_TABLE(&nll), .unless = !all },
        { 0 } };
    for (size_t i = 0; all && !s->o->json && i < s->n; i++)      /* lines for scripts */
        printf(i && !isnan(s->nll[i - 1]) ? "%" PRId32 "\t%.6f\n" : "%" PRId32 "\t-\n", s->ids[i],
               i ? s->nll[i - 1] : NAN);
    sheet_print(s->o->json, JW_LINE, 0, rows);
}

static int score(struct score *s, struct err *e)
{
    progress_open(&s->progress, s->o->progress, s->o->quiet);
    if (engine_load(&s->engine, NULL, &s->progress, e) || open_buffers(s, e))
        return -1;
    progress_phase(&s->progress, "scoring", "tokens", s->n);
    for (size_t from = 0; from < s->n; from += s->piece)
        if (score_piece(s, from, MIN(s->piece, s->n - from), e))
            return -1;
    for (size_t i = 0; i + 1 < s->n; i++)
        if (i + 1 < s->first) {
            s->nll[i] = NAN;
        } else if (!isnan(s->nll[i])) {
            s->sum += s->nll[i];
            s->scored++;
        }
    progress_clear(&s->progress);
    print(s);
    return stdout_finish(e);
}

int cmd_score(const struct options *o, struct err *e)
{
    static struct score s;
    s.o = o;
    stop_signals_catch();
    int rc = prepare(&s, e) || score(&s, e) ? -1 : 0;
    progress_clear(&s.progress);
    if (s.work)
        workspace_close(s.work);
    kv_close(&s.kv);
    if (s.host != s.logits)
        free(s.host);
    if (s.engine.dev)
        s.engine.dev->free(s.engine.dev, s.logits, s.logits_bytes);
    free(s.nll);
    free(s.ids);
    engine_close(&s.engine);
    return rc;
}
