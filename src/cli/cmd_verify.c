/* longhand verify: derives the tokens of a stored text again, one plain pass each, from the tokens before
 * them. struct check holds the call; start at cmd_verify. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "src/decode/verify_published.h"
#include "runs/work/worker.h"
#include "src/base/output.h"
#include "src/base/sheet.h"
#include "src/base/stopping.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"

struct check {
    const struct options *o;
    struct store *s;
    struct job_list jobs;
    const struct job *job;
    struct job_input in;
    struct job_parts parts;
    struct worker worker;                        /* only for its model; the store does not know it */
    struct decoder decoder;
    int32_t *ids; size_t n;
    struct retakes retakes;
    unsigned char *wanted; size_t n_wanted;      /* [n]: the tokens to derive */
};

/* Leaves out the tokens that another model made, before --accept-numerics-change was given. */
static void leave_other_models(struct check *c)
{
    const struct part_list *l = &c->parts.stored;
    bool other = false;
    for (size_t i = 0; i < l->n; i++) {
        const size_t end = i + 1 < l->n ? MIN(l->v[i + 1].start, c->n) : c->n;
        if (l->v[i].fingerprint)
            other = strcmp(l->v[i].fingerprint, c->worker.fingerprint) != 0;
        for (size_t k = l->v[i].start; k < end && other; k++)
            c->wanted[k] = 0;
    }
}

/* Selects the tokens to derive: every sampled token, or --sample N of them at random. */
static int select_tokens(struct check *c, struct err *e)
{
    struct span_list spans;
    size_t left, to_take;
    c->wanted = malloc(c->n + 1);
    if (!c->wanted)
        return err_set(e, ERR_FAILED, "out of memory");
    memset(c->wanted, 1, c->n + 1);
    if (store_spans(c->s, c->job->id, &spans, e))
        return -1;
    for (size_t i = 0; i < spans.n; i++)         /* tokens of another seed cannot be derived */
        for (size_t k = spans.v[i].start; k < spans.v[i].start + spans.v[i].n && k < c->n; k++)
            c->wanted[k] = 0;
    span_list_free(&spans);
    leave_other_models(c);
    for (size_t i = left = 0; i < c->n; i++)
        left += c->wanted[i];
    to_take = c->n_wanted = options_given(c->o, "sample") ? MIN(c->o->sample, left) : left;
    for (size_t i = 0; i < c->n; i++) {
        uint64_t r = 0;
        if (!c->wanted[i])
            continue;
        if (to_take < left && getrandom(&r, sizeof r, 0) != sizeof r)
            return err_set(e, ERR_FAILED, "no random numbers");
        c->wanted[i] = r % left < to_take;
        to_take -= c->wanted[i];
        left--;
    }
    return 0;
}

/* Binds the parameters of every part to the model. */
static int bind_parts(struct check *c, size_t n_max, struct err *e)
{
    const struct engine *g = &c->worker.engine;
    const struct job_binding binding = { c->job->seed, c->job->sample, n_max };
    for (size_t i = 0; i < c->parts.n; i++) {
        struct job_params *p = &c->parts.v[i].params;
        p->draft = (struct draft_settings){0};
        p->drafter_auto = false;
        if (job_bind(p, &g->config, g->tokenizer, g->dir, &binding, e) || job_check_memory(p, g, n_max, 0, e))
            return -1;
    }
    return 0;
}

static int check_open(struct check *c, struct err *e)
{
    struct worker *w = &c->worker;
    if (store_from_options(&c->s, c->o, STORE_READ, e) || job_from_word(c->s, c->o->arg[0], &c->jobs, e))
        return -1;
    c->job = &c->jobs.v[0];
    if (store_input(c->s, c->job->id, &c->in, e) ||
        job_parts_read(&c->parts, c->s, c->job->id, c->in.parameters, e) ||
        store_retakes(c->s, c->job->id, &c->retakes, NULL, e) ||
        verify_published_refuse(&c->parts.v->params.draft, c->job->id, e))
        return -1;
    /* store_tokens checks the sums and the chain. */
    if (store_tokens(c->s, c->job->id, 0, SIZE_MAX, &c->ids, &c->n, e))
        return -1;
    w->threads = c->o->threads;
    w->device = c->o->device;
    if (worker_open_model(w, c->job, &c->parts.v->params, e))
        return -1;
    if (c->job->numerics && strcmp(c->job->numerics, w->engine.dev->numerics))
        return err_set(e, ERR_INPUT, "job %" PRId64 " was made with numerics %s, here it is %s", c->job->id,
                       c->job->numerics, w->engine.dev->numerics);
    if (c->retakes.n && !w->engine.dev->host_memory)
        return err_set(e, ERR_INPUT, "job %" PRId64 " has retakes, which verify derives on a CPU alone",
                       c->job->id);
    const size_t n_max = c->in.n_prompt + c->n + 1;
    if (bind_parts(c, n_max, e) || worker_load_model(w, e))
        return -1;
    if (c->job->fingerprint && strcmp(c->job->fingerprint, w->fingerprint))
        return err_set(e, ERR_INPUT, "job %" PRId64 " was made with another model than %s holds now",
                       c->job->id, c->job->model);
    if (select_tokens(c, e))
        return -1;
    for (size_t i = 0; i < c->in.n_prompt + c->n; i++) {
        int32_t id = i < c->in.n_prompt ? c->in.prompt_ids[i] : c->ids[i - c->in.n_prompt];
        if (id < 0 || (size_t)id >= w->engine.config.vocab)
            return err_set(e, ERR_FAILED,
                           "job %" PRId64 ": %s %zu is %" PRId32 ", beyond the model's vocabulary of %zu",
                           c->job->id, i < c->in.n_prompt ? "prompt token" : "token",
                           i < c->in.n_prompt ? i : i - c->in.n_prompt, id, w->engine.config.vocab);
    }
    const struct decode_setup setup = { .cuts = c->retakes.n > 0 };
    return decode_open(&c->decoder, &w->engine.model, &c->parts.v->params.sampling, &setup, c->in.prompt_ids,
                       c->in.n_prompt, n_max, e);
}

/* Derives token `at`: with the first 0, 1, .. of its forbidden tokens the model gives the next of them, and
 * at last the token. *own: what it gives; *stored: what it should give. */
static int derive_token(struct check *c, size_t at, int32_t *own, int32_t *stored, struct err *e)
{
    struct decoder *d = &c->decoder;
    int32_t forbidden[FORBIDDEN_MAX];
    const size_t n = retakes_forbidden(&c->retakes, at, forbidden), length = d->n_tokens;
    for (size_t i = 0; i <= n; i++) {
        if (n)
            decode_cut(d, length, forbidden, i);
        const int rc = decode_prefill(d, 0, not_stopped, NULL, e);   /* a hybrid goes back further */
        if (rc > 0)
            return err_set(e, ERR_AGAIN, "stopped by %s", stop_signal_name());
        if (rc || decode_step(d, e))
            return -1;
        *own = d->tokens[d->n_tokens - 1];
        *stored = i < n ? forbidden[i] : c->ids[at];
        if (*own != *stored)
            return 0;
    }
    return 0;
}

/* Derives the tokens, those of each part with its own parameters. *at: the first token that differs, or c->n;
 * *own: what the model derives there, *stored: the store. */
static int derive(struct check *c, size_t *at, int32_t *own, int32_t *stored, struct err *e)
{
    struct decoder *d = &c->decoder;
    size_t part = 0;
    progress_phase(&c->worker.progress, "verifying", "tokens", c->n);
    for (*at = 0; *at < c->n; ++*at) {
        if (stop_signal)
            return err_set(e, ERR_AGAIN, "stopped by %s after %zu of %zu %s", stop_signal_name(), *at,
                           c->n, plural(c->n, "token", "tokens"));
        if (part + 1 < c->parts.n && *at == c->parts.v[part + 1].start &&
            decode_restart(d, d->n_tokens, &c->parts.v[++part].params.sampling, e))
            return -1;
        if (!c->wanted[*at]) {
            decode_append(d, &c->ids[*at], 1);
            continue;
        }
        if (derive_token(c, *at, own, stored, e))
            return -1;
        if (*own != *stored)
            break;
        progress_at(&c->worker.progress, *at + 1);
    }
    return 0;
}

static int print_result(const struct check *c, size_t at, int32_t own, int32_t stored, struct err *e)
{
    const bool same = at == c->n;
    char title[32];
    snprintf(title, sizeof title, "job %" PRId64 ":", c->job->id);
    const struct row differs[] = { { "token", NULL, V_UINT(at) },
                                   { "stored", NULL, V_INT(stored) },
                                   { "derived", NULL, V_INT(own) },
                                   { 0 } };
    const struct row rows[] = { { "job", NULL, V_INT(c->job->id) },
                                { "identical", NULL, V_BOOL(same) },
                                { "tokens", title, V_UINT(c->n), plural(c->n, "@ token", "@ tokens") },
                                { NULL, title, V_TEXT("chain whole") },
                                { "checked", title, V_UINT(c->n_wanted), "@ derived again: identical" },
                                { "first_difference", NULL, V_TEXT(NULL), .unless = !same },
                                { "first_difference", NULL, V_ROWS(differs), .unless = same },
                                { 0 } };
    if (same || c->o->json)
        sheet_print(c->o->json, JW_LINE, 0, rows);
    if (stdout_finish(e))
        return -1;
    return same ? 0
                : err_set(e, ERR_FAILED,
                          "job %" PRId64 ": token %zu is %" PRId32 " in the store, the model says %" PRId32,
                          c->job->id, at, stored, own);
}

int cmd_verify(const struct options *o, struct err *e)
{
    static struct check c;
    c.o = o;
    size_t at = 0;
    int32_t own = 0, stored = 0;
    stop_signals_catch();
    progress_open(&c.worker.progress, o->progress, o->quiet);
    int rc = check_open(&c, e) || derive(&c, &at, &own, &stored, e) ? -1 : 0;
    progress_clear(&c.worker.progress);
    if (rc == 0)
        rc = print_result(&c, at, own, stored, e);
    decode_close(&c.decoder);
    engine_close(&c.worker.engine);
    model_files_free(&c.worker.files);
    job_parts_close(&c.parts);
    job_input_free(&c.in);
    job_list_free(&c.jobs);
    retakes_free(&c.retakes);
    free(c.ids);
    free(c.wanted);
    store_close(c.s);
    return rc;
}
