/* longhand extend, fork: continues a text after its end, or from an earlier place. struct edit holds the
 * job that is continued; start at extend and fork_job. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "src/base/input.h"
#include "src/base/output.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"
#include "src/request/request.h"
#include "src/request/sampling_options.h"

struct edit {
    const struct options *o;
    struct store *s;
    struct job_list jobs;
    struct job *job;
    struct moved_model model;
    struct job_input in;
    struct job_parts parts;
    struct span_list spans;
    struct text_reader reader;
    char *append; size_t n_append;               /* --append or --append-file; NULL: none */
    int32_t *given; size_t n_given;              /* its tokens */
    char *text; size_t bytes;                    /* the text of the given tokens */
    size_t at, wanted;                           /* tokens that stay or are shared; length of the text */
    uint64_t seed;                               /* of the fork */
    bool after_end;                              /* extend: nothing of the old text is written again */
    char *parameters;                            /* of the new tokens; NULL: those of the text so far */
};

static int edit_open(struct edit *d, const struct options *o, struct err *e)
{
    *d = (struct edit){ .o = o };
    if (o->replace && !o->name)
        return err_set(e, ERR_INPUT, "--replace needs --name");
    if (o->follow && (!o->name || o->replace || o->run_now))
        return err_set(e, ERR_INPUT, o->name ? "fork: --follow and --%s: only one of them is allowed"
                                             : "fork: --follow needs --name",
                       o->run_now ? "run" : "replace");
    if (!o->run_now && (o->output || o->from_here))
        return err_set(e, ERR_INPUT, "%s: --%s needs --run", o->verb->name,
                       o->output ? "output" : "from-here");
    if (store_from_options(&d->s, o, STORE_WRITE, e) || job_from_word(d->s, o->arg[0], &d->jobs, e))
        return -1;
    d->job = &d->jobs.v[0];
    if (model_from_options(&d->model, o, d->s, &d->jobs, e))
        return -1;
    if (d->model.given)
        d->job->model = d->model.path;       /* as the job will have it */
    return store_input(d->s, d->job->id, &d->in, e) || store_spans(d->s, d->job->id, &d->spans, e) ||
        job_parts_read(&d->parts, d->s, d->job->id, d->in.parameters, e) ||
        text_reader_open(&d->reader, d->s, d->job, &d->parts.v->params, e) ||
        append_from_options(o, &d->append, &d->n_append, e) ? -1 : 0;
}

static void edit_close(struct edit *d)
{
    free(d->append);
    free(d->given);
    free(d->text);
    free(d->parameters);
    text_reader_close(&d->reader);
    span_list_free(&d->spans);
    job_parts_close(&d->parts);
    job_input_free(&d->in);
    job_list_free(&d->jobs);
    store_close(d->s);
}

/* The stored parameters that hold at token `at`; borrowed from l and d. */
static const char *parameters_at(const struct edit *d, const struct part_list *l, size_t at)
{
    const char *now = d->in.parameters;
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i].start <= at && l->v[i].parameters)
            now = l->v[i].parameters;
    return now;
}

/* Makes the parameters of the tokens from `at` on, and checks them as a worker will. n_max: the longest text,
 * prompt included. */
static int change_parameters(struct edit *d, size_t at, size_t n_max, struct err *e)
{
    const struct config *c = &d->reader.config;
    const struct job_binding binding = { d->job->seed, d->job->sample, n_max };
    const char *old;
    struct part_list l;
    struct job_params p = {0};
    if (request_check_options_texts(d->o, e) || store_parts(d->s, d->job->id, &l, e))
        return -1;
    old = parameters_at(d, &l, at);
    int rc = job_change(&d->parameters, old, d->o, d->reader.tokenizer, c->vocab, e);
    if (rc == 0 && d->parameters)
        rc = job_parse(&p, d->parameters, e) ||
             job_bind(&p, c, d->reader.tokenizer, d->job->model, &binding, e) ? -1 : 0;
    job_close(&p);
    part_list_free(&l);
    return rc;
}

static int check_length(const struct edit *d, size_t wanted, struct err *e)
{
    const struct job_params *p = job_parts_last(&d->parts);
    return job_check_length(&d->reader.config, d->in.n_prompt, wanted, p->allow_beyond_context, e);
}

/* Encodes the given tokens: `before` (text whose tokens are dropped), then --append. */
static int encode_given(struct edit *d, const char *before, size_t n_before, struct err *e)
{
    const size_t n = d->n_append;
    if (!(d->bytes = n_before + n))
        return 0;
    d->text = malloc(d->bytes + 1);
    if (!d->text)
        return err_set(e, ERR_FAILED, "out of memory");
    memcpy(d->text, before, n_before);
    if (n)
        memcpy(d->text + n_before, d->append, n);
    d->text[d->bytes] = 0;
    return encode_inside(d->reader.tokenizer, &d->given, &d->n_given, d->text, d->bytes, e);
}

/* For a text that ended with a stop string. *keep: how many tokens stay so that no part of the string
 * remains. *rest: the text after these tokens, which has to be given again; free(*rest). */
static int cut_stop(struct edit *d, size_t *keep, char **rest, size_t *n_rest, struct err *e)
{
    int32_t *ids = NULL;
    size_t n_ids = 0, whole, n, shown = 0;
    char *text = NULL;
    const char *bytes;
    struct replay y;
    if (job_read_text(&d->reader, d->s, d->job, &text, &whole, e) ||
        store_tokens(d->s, d->job->id, 0, SIZE_MAX, &ids, &n_ids, e) ||
        replay_open(&y, d->s, d->job, &d->parts, &d->reader.config, d->reader.tokenizer,
                    d->in.prompt_bytes == 0 && !d->parts.v->params.chat, e)) {
        free(text);
        free(ids);
        return -1;
    }
    *keep = 0;
    for (size_t i = 0; i < n_ids && y.emit.finish == FINISH_NONE; i++) {
        replay_token(&y, ids[i], &bytes, &n);
        shown += n;
        /* no part of the stop string has begun */
        if (y.emit.finish == FINISH_NONE && y.emit.n_held == 0 && y.emit.stream.n_held == 0) {
            *keep = i + 1;
            *n_rest = shown;
        }
    }
    if (*keep == 0)
        *n_rest = 0;
    *rest = strdup(text + *n_rest);
    *n_rest = whole - *n_rest;
    replay_close(&y);
    free(text);
    free(ids);
    return *rest ? 0 : err_set(e, ERR_FAILED, "out of memory");
}

/* extend of a job that is queued or running: its continuation is a chapter of its own. */
static int continue_later(struct edit *d, int64_t *id, struct err *e)
{
    const struct job *j = d->job;
    const char *more = d->o->more_tokens;
    struct job_lengths before;
    struct part_list parts = {0};
    size_t n;
    if (d->o->run_now)
        return err_set(e, ERR_INPUT, "extend: job %" PRId64 " is %s, so --run cannot go on with it now",
                       j->id, job_state_name(j->state));
    if (!more || *more != '+')
        return err_set(e, ERR_INPUT, "extend: --tokens +N is needed");
    if (parse_count(&n, "--tokens +N", more + 1, 1, 1000000000, e) ||
        store_lengths(d->s, j->id, &before, e) || encode_given(d, "", 0, e))
        return -1;
    const size_t most = before.prompt + before.text;
    const bool beyond = job_parts_last(&d->parts)->allow_beyond_context;
    if (job_check_length(&d->reader.config, most, d->n_given + n, beyond, e) ||
        change_parameters(d, SIZE_MAX, most + d->n_given + n, e) ||
        store_parts(d->s, j->id, &parts, e))
        return -1;
    const struct chapter_spec c = { .after = j->id, .carry = -1, .append = d->append, .n_append = d->n_given,
                                    .most = most };
    const struct job_spec spec = {
        .alone = true, .replace = d->o->replace, .model = j->model, .fingerprint = j->fingerprint,
        .parameters = d->parameters ? d->parameters : parameters_at(d, &parts, SIZE_MAX), .seed = j->seed,
        .wanted = d->n_given + n, .priority = j->priority, .chapter = &c
    };
    const int rc = store_submit(d->s, d->o->name, &spec, 1, id, NULL, NULL, e);
    part_list_free(&parts);
    return rc;
}

/* Checks the options of extend, and sets d->keep and d->wanted. */
static int plan_extend(struct edit *d, struct err *e)
{
    const struct job *j = d->job;
    const char *more = d->o->more_tokens;
    size_t n, n_rest = 0;
    char *rest = NULL;
    if (!more || *more != '+')
        return err_set(e, ERR_INPUT, "extend: %s%s; --tokens +N is needed",
                       more ? "--tokens " : "--tokens is missing", more ? more : "");
    if (parse_count(&n, "--tokens +N", more + 1, 1, 1000000000, e))
        return -1;
    d->at = j->tokens;
    bool stopped = j->finish_reason && strcmp(j->finish_reason, "length") != 0;
    if (change_parameters(d, SIZE_MAX, d->in.n_prompt + j->tokens + n, e))
        return -1;
    if (stopped && !d->n_append && !d->parameters) {
        char why[80];
        terminal_text(why, sizeof why, j->stop_reason ? j->stop_reason : j->finish_reason);
        return err_set(e, ERR_INPUT,
                       "job %" PRId64 " has ended by itself (%s) after %zu %s, and would end again; "
                       "--append TEXT adds text after its end, and another --stop or --ignore-eos goes on",
                       j->id, why, j->tokens, plural(j->tokens, "token", "tokens"));
    }
    d->after_end = !stopped || d->n_append;
    if (stopped && cut_stop(d, &d->at, &rest, &n_rest, e))
        return -1;
    if (!d->n_append)                    /* other parameters: the text goes on where the stop string began */
        n_rest = 0;
    int rc = encode_given(d, rest ? rest : "", n_rest, e);
    free(rest);
    d->wanted = d->at + d->n_given + n;
    return rc || check_length(d, d->wanted, e) ? -1 : 0;
}

static int extend(void *ctx, int64_t *id, struct err *e)
{
    struct edit *d = ctx;
    const struct given_text add = { d->given, d->n_given, d->text, d->bytes };
    const struct extend_spec x = { .keep = d->at, .add = d->n_given ? &add : NULL, .wanted = d->wanted,
                                   .parameters = d->parameters, .paused = d->o->run_now,
                                   .name = d->o->name, .replace = d->o->replace,
                                   .model = d->model.given ? &d->model.place : NULL };
    *id = d->job->id;
    return store_extend(d->s, d->job->id, &x, e);
}

/* Rejects a fork whose shared tokens already contain a stop string: its text would end at once, whatever
 * follows. */
static int check_fork_goes_on(struct edit *d, struct err *e)
{
    const struct job *j = d->job;
    size_t keep, n_rest;
    char *rest = NULL, why[80];
    if (d->at < j->tokens || !j->finish_reason || strcmp(j->finish_reason, "length") == 0)
        return 0;
    if (cut_stop(d, &keep, &rest, &n_rest, e))
        return -1;
    free(rest);
    if (keep == j->tokens)               /* the text ended with an end-of-text token, which is not stored */
        return 0;
    terminal_text(why, sizeof why, j->stop_reason ? j->stop_reason : j->finish_reason);
    return err_set(
        e, ERR_INPUT,
        "--at %zu: job %" PRId64
        " has ended by itself (%s) within these tokens, and so would its fork; --at %zu leaves the end out",
        d->at, j->id, why, keep);
}

static bool is_given(const struct edit *d, size_t token)
{
    for (size_t i = 0; i < d->spans.n; i++)
        if (strcmp(d->spans.v[i].kind, "given") == 0 && token >= d->spans.v[i].start &&
            token - d->spans.v[i].start < d->spans.v[i].n)
            return true;
    return false;
}

/* Sets d->at from --at or --at-text. */
static int find_place(struct edit *d, struct err *e)
{
    const struct options *o = d->o;
    const bool by_text = options_given(o, "at-text");
    struct placed_text t;
    struct text_place place = {0};
    char phrase[80];
    if (o->follow && !by_text && !options_given(o, "at")) {
        while (d->at < d->job->tokens && is_given(d, d->at))     /* the heading stays */
            d->at++;
        return 0;
    }
    if (by_text == options_given(o, "at"))
        return err_set(e, ERR_INPUT, by_text ? "fork: --at and --at-text: only one of them is allowed"
                                             : "fork: --at TOKEN or --at-text PHRASE is missing");
    d->at = o->at;
    if (!by_text)
        return d->at <= d->job->tokens ? 0
                                       : err_set(e, ERR_INPUT, "--at %zu: job %" PRId64 " has %zu %s",
                                                 d->at, d->job->id, d->job->tokens,
                                                 plural(d->job->tokens, "token", "tokens"));
    if (!*o->at_text)
        return err_set(e, ERR_INPUT, "--at-text: '' is no phrase");
    if (job_read_places(&d->reader, d->s, d->job, &t, e))
        return -1;
    while (place.n < o->occurrence && placed_text_find(&t, o->at_text, &place))
        ;
    placed_text_free(&t);
    terminal_text(phrase, sizeof phrase, o->at_text);
    if (place.n < o->occurrence)
        return err_set(e, ERR_INPUT,
                       "--at-text: the text of job %" PRId64 " has \"%s\" %zu %s, not %zu",
                       d->job->id, phrase, place.n, plural(place.n, "time", "times"), o->occurrence);
    d->at = place.token;
    return 0;
}

/* Checks the options of fork, and sets d->at, d->seed and d->wanted. */
static int plan_fork(struct edit *d, struct err *e)
{
    const struct options *o = d->o;
    d->seed = o->seed;
    if (find_place(d, e))
        return -1;
    if (!options_given(o, "seed") && getrandom(&d->seed, sizeof d->seed, 0) != sizeof d->seed)
        return err_set(e, ERR_FAILED, "cannot draw a seed: %s; --seed gives one", strerror(errno));
    if (check_fork_goes_on(d, e) || encode_given(d, "", 0, e))
        return -1;
    d->wanted = options_given(o, "tokens") ? o->tokens : d->job->wanted;
    if (d->wanted <= d->at + d->n_given)
        return err_set(e, ERR_INPUT,
                       "%zu shared and %zu given tokens: --tokens %zu leaves no token to write", d->at,
                       d->n_given, d->wanted);
    return check_length(d, d->wanted, e) || change_parameters(d, d->at, d->in.n_prompt + d->wanted, e) ? -1
                                                                                                       : 0;
}

static int fork_job(void *ctx, int64_t *id, struct err *e)
{
    struct edit *d = ctx;
    const struct given_text add = { d->given, d->n_given, d->text, d->bytes };
    const struct fork_spec f = { .at = d->at, .seed = d->seed, .add = d->n_given ? &add : NULL,
                                 .wanted = d->wanted, .parameters = d->parameters, .paused = d->o->run_now,
                                 .name = d->o->name, .replace = d->o->replace, .follow = d->o->follow,
                                 .model = d->model.given ? &d->model.place : NULL };
    return store_fork(d->s, d->job->id, &f, id, e);
}

/* ---- the verbs ---- */

static void queued_notice(const struct options *o, int64_t id)
{
    if (!o->quiet)
        fprintf(stderr,
                "job %" PRId64 " is queued: longhand run --resume %" PRId64 " writes it, and so does "
                "longhand work\n", id, id);
}

/* --from-here: the bytes of the text that the edit keeps, which are not printed. A character that the last
 * kept token leaves incomplete counts as new. */
static int old_bytes(struct edit *d, size_t *n, struct err *e)
{
    static const char broken[] = "\xEF\xBF\xBD";
    struct placed_text t;
    if (!d->o->from_here || d->at == 0)
        return 0;
    const char *retakes = params_retake_option(job_parts_last(&d->parts));
    if (d->after_end && !d->n_given && !d->parameters && retakes)
        return err_set(e, ERR_INPUT, "extend: --from-here: job %" PRId64 " has %s, which may take back "
                       "tokens from before its end; leave out --from-here", d->job->id, retakes);
    if (job_read_places(&d->reader, d->s, d->job, &t, e))
        return -1;
    *n = d->after_end || d->at >= d->job->tokens ? t.n : t.ends[d->at - 1];
    while (*n >= 3 && memcmp(t.text + *n - 3, broken, 3) == 0)
        *n -= 3;
    placed_text_free(&t);
    return 0;
}

/* --run: the change is made when nothing refuses the job any more. */
static int change_and_run(struct edit *d, int (*make)(void *, int64_t *, struct err *), struct err *e)
{
    const struct options *o = d->o;
    char number[24];
    char *argv[] = { "longhand", "run", "--resume", number, NULL };
    struct options run;
    snprintf(number, sizeof number, "%" PRId64, d->job->id);
    if (options_parse(&run, 4, argv, e))
        return -1;
    run.db = o->db;
    run.shared_db = o->shared_db;
    run.accept_change = o->accept_change;
    run.threads = o->threads;
    run.device = o->device;
    run.output = o->output;
    run.progress = o->progress;
    run.quiet = o->quiet;
    struct run_change c = { .job = { d->job->id, d->job->model, d->parameters, d->at, d->wanted,
                                     o->accept_change },
                            .make = make, .ctx = d };
    const int rc = old_bytes(d, &c.skip, e) || run_changed(&run, d->s, &c, e) ? -1 : 0;
    run.db = (struct text_list){0};
    options_free(&run);
    return rc;
}

int cmd_extend(const struct options *o, struct err *e)
{
    struct edit d;
    int64_t id = 0;
    int rc = edit_open(&d, o, e);
    const bool later = rc == 0 && (d.job->state == JOB_QUEUED || d.job->state == JOB_RUNNING);
    if (later)
        rc = continue_later(&d, &id, e);
    else if (rc == 0 && (rc = plan_extend(&d, e)) == 0)
        rc = o->run_now ? change_and_run(&d, extend, e) : extend(&d, &id, e);
    if (rc == 0 && later && !o->quiet)
        fprintf(stderr, "job %" PRId64 " goes on with the text of job %" PRId64 " when that one is done\n",
                id, d.job->id);
    edit_close(&d);
    if (rc == 0 && !o->run_now && !later)
        queued_notice(o, id);
    if (later && rc == 0) {
        printf("%" PRId64 "\n", id);
        rc = stdout_finish(e);
    }
    return rc;
}

int cmd_fork(const struct options *o, struct err *e)
{
    struct edit d;
    int64_t id = 0;
    int rc = edit_open(&d, o, e) || plan_fork(&d, e) ? -1 : 0;
    if (rc == 0)
        rc = o->run_now ? change_and_run(&d, fork_job, e) : fork_job(&d, &id, e);
    edit_close(&d);
    if (rc || o->run_now)
        return rc;
    printf("%" PRId64 "\n", id);
    queued_notice(o, id);
    return stdout_finish(e) ? err_while(e, "job %" PRId64 " is in the queue", id) : 0;
}
