/* extend and fork. Start at edit_plan and edit_make. */
#include "runs/work/edit.h"
#include "src/base/output.h"
#include "src/request/request.h"
#include "src/request/sampling_options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* The stored parameters that hold at token `at`; borrowed. */
static const char *parameters_at(const struct edit *d, size_t at)
{
    const struct part_list *l = &d->parts.stored;
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
    struct job_params p = {0};
    if (request_check_options_texts(d->o, e))
        return -1;
    int rc = job_change(&d->parameters, parameters_at(d, at), d->o, d->reader.tokenizer, c->vocab, e);
    if (rc == 0 && d->parameters)
        rc = job_parse(&p, d->parameters, e) ||
             job_bind(&p, c, d->reader.tokenizer, d->job->model, &binding, e) ? -1 : 0;
    job_close(&p);
    d->to.parameters = d->parameters;
    return rc;
}

static int check_length(const struct edit *d, size_t n_prompt, struct err *e)
{
    const struct job_params *p = job_parts_last(&d->parts);
    return job_check_length(&d->reader.config, n_prompt, d->to.wanted, p->allow_beyond_context, e);
}

/* Encodes the given tokens: `before` (text whose tokens are dropped), then --append. */
static int encode_given(struct edit *d, const char *before, size_t n_before, struct err *e)
{
    struct given_text *add = &d->to.add;
    if (!(add->bytes = n_before + d->n_append))
        return 0;
    add->text = malloc(add->bytes + 1);
    if (!add->text)
        return err_set(e, ERR_FAILED, "out of memory");
    memcpy(add->text, before, n_before);
    if (d->n_append)
        memcpy(add->text + n_before, d->append, d->n_append);
    add->text[add->bytes] = 0;
    return encode_inside(d->reader.tokenizer, &add->ids, &add->n, add->text, add->bytes, e);
}

/* extend of a job that is queued or running: its continuation is a chapter of its own. */
static int plan_later(struct edit *d, size_t n, struct err *e)
{
    const struct job *j = d->job;
    struct job_lengths before;
    if (d->o->run_now)
        return err_set(e, ERR_INPUT, "extend: job %" PRId64 " is %s, so --run cannot go on with it now",
                       j->id, job_state_name(j->state));
    if (store_lengths(d->s, j->id, &before, e) || encode_given(d, "", 0, e))
        return -1;
    d->most = before.prompt + before.text;
    d->to.wanted = d->to.add.n + n;
    return check_length(d, d->most, e) || change_parameters(d, SIZE_MAX, d->most + d->to.wanted, e) ? -1 : 0;
}

static int make_later(struct edit *d, int64_t *id, struct err *e)
{
    const struct job *j = d->job;
    const char *parameters = d->parameters ? d->parameters : parameters_at(d, SIZE_MAX);
    const struct job_spec spec = {
        .alone = true, .replace = d->o->replace, .model = j->model, .fingerprint = j->fingerprint,
        .parameters = (char *)(uintptr_t)parameters, .seed = j->seed,
        .wanted = d->to.wanted, .priority = j->priority,
        .chapter = { .after = j->id, .carry = -1, .append = d->append, .n_append = d->to.add.n,
                     .most = d->most }
    };
    return store_submit(d->s, d->o->name, &spec, 1, id, NULL, NULL, e);
}

/* Checks the options of extend, and sets d->to.at and d->to.wanted. */
static int plan_extend(struct edit *d, struct err *e)
{
    const struct job *j = d->job;
    const char *more = d->o->more_tokens;
    struct placed_text t = {0};
    size_t n;
    if (!more || *more != '+')
        return err_set(e, ERR_INPUT, "extend: %s%s; --tokens +N is needed",
                       more ? "--tokens " : "--tokens is missing", more ? more : "");
    if (parse_count(&n, "--tokens +N", more + 1, 1, 1000000000, e))
        return -1;
    if (d->later)
        return plan_later(d, n, e);
    d->to.at = j->tokens;
    const bool stopped = j->finish_reason && strcmp(j->finish_reason, "length") != 0;
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
    if (stopped) {                       /* no part of a stop string remains */
        if (job_read_text(&d->reader, d->s, j, &t, e))
            return -1;
        d->to.at = t.clear;
    }
    /* with other parameters alone the text goes on where the stop string began */
    const size_t n_rest = d->n_append ? t.n - t.clear_bytes : 0;
    const int rc = encode_given(d, n_rest ? t.text + t.clear_bytes : "", n_rest, e);
    placed_text_free(&t);
    d->to.wanted = d->to.at + d->to.add.n + n;
    return rc || check_length(d, d->in.n_prompt, e) ? -1 : 0;
}

/* Rejects a fork whose shared tokens already contain a stop string: its text would end at once, whatever
 * follows. */
static int check_fork_goes_on(struct edit *d, struct err *e)
{
    const struct job *j = d->job;
    struct placed_text t;
    char why[80];
    if (d->to.at < j->tokens || !j->finish_reason || strcmp(j->finish_reason, "length") == 0)
        return 0;
    if (job_read_text(&d->reader, d->s, j, &t, e))
        return -1;
    const size_t keep = t.clear;
    placed_text_free(&t);
    if (keep == j->tokens)               /* the text ended with an end-of-text token, which is not stored */
        return 0;
    terminal_text(why, sizeof why, j->stop_reason ? j->stop_reason : j->finish_reason);
    return err_set(
        e, ERR_INPUT,
        "--at %zu: job %" PRId64
        " has ended by itself (%s) within these tokens, and so would its fork; --at %zu leaves the end out",
        d->to.at, j->id, why, keep);
}

/* Sets d->to.at from --at or --at-text. */
static int find_place(struct edit *d, struct err *e)
{
    const struct options *o = d->o;
    const bool by_text = options_given(o, "at-text");
    struct placed_text t;
    struct text_place place = {0};
    char phrase[80];
    if (o->follow && !by_text && !options_given(o, "at")) {
        while (d->to.at < d->job->tokens && token_is_given(&d->spans, d->to.at))     /* the heading stays */
            d->to.at++;
        return 0;
    }
    if (by_text == options_given(o, "at"))
        return err_set(e, ERR_INPUT, by_text ? "fork: --at and --at-text: only one of them is allowed"
                                             : "fork: --at TOKEN or --at-text PHRASE is missing");
    d->to.at = o->at;
    if (!by_text)
        return d->to.at <= d->job->tokens
                   ? 0
                   : err_set(e, ERR_INPUT, "--at %zu: job %" PRId64 " has %zu %s", d->to.at, d->job->id,
                             d->job->tokens, plural(d->job->tokens, "token", "tokens"));
    if (!*o->at_text)
        return err_set(e, ERR_INPUT, "--at-text: '' is no phrase");
    if (job_read_text(&d->reader, d->s, d->job, &t, e))
        return -1;
    while (place.n < o->occurrence && placed_text_find(&t, o->at_text, &place))
        ;
    placed_text_free(&t);
    terminal_text(phrase, sizeof phrase, o->at_text);
    if (place.n < o->occurrence)
        return err_set(e, ERR_INPUT,
                       "--at-text: the text of job %" PRId64 " has \"%s\" %zu %s, not %zu",
                       d->job->id, phrase, place.n, plural(place.n, "time", "times"), o->occurrence);
    d->to.at = place.token;
    return 0;
}

/* Checks the options of fork, and sets d->to.at, d->to.seed and d->to.wanted. */
static int plan_fork(struct edit *d, struct err *e)
{
    const struct options *o = d->o;
    d->to.seed = o->seed;
    d->to.sample = options_given(o, "drafter") ? d->job->sample : 0;     /* for the same text */
    if (find_place(d, e))
        return -1;
    if (!options_given(o, "seed") && getrandom(&d->to.seed, sizeof d->to.seed, 0) != sizeof d->to.seed)
        return err_set(e, ERR_FAILED, "cannot draw a seed: %s; --seed gives one", strerror(errno));
    if (check_fork_goes_on(d, e) || encode_given(d, "", 0, e))
        return -1;
    d->to.wanted = options_given(o, "tokens") ? o->tokens : d->job->wanted;
    if (d->to.wanted <= d->to.at + d->to.add.n)
        return err_set(e, ERR_INPUT,
                       "%zu shared and %zu given tokens: --tokens %zu leaves no token to write", d->to.at,
                       d->to.add.n, d->to.wanted);
    return check_length(d, d->in.n_prompt, e) ||
                   change_parameters(d, d->to.at, d->in.n_prompt + d->to.wanted, e) ? -1 : 0;
}

/* ---- both ---- */

int edit_open(struct edit *d, struct err *e)
{
    const struct options *o = d->o;
    if (o->replace && !o->name)
        return err_set(e, ERR_INPUT, "--replace needs --name");
    if (o->follow && (!o->name || o->replace || o->run_now))
        return err_set(e, ERR_INPUT, o->name ? "fork: --follow and --%s: only one of them is allowed"
                                             : "fork: --follow needs --name",
                       o->run_now ? "run" : "replace");
    d->to.paused = o->run_now;
    d->to.name = o->name;
    d->to.replace = o->replace;
    d->to.follow = o->follow;
    return store_input(d->s, d->job->id, &d->in, e) || store_spans(d->s, d->job->id, &d->spans, e) ||
        job_parts_read(&d->parts, d->s, d->job->id, d->in.parameters, e) ||
        text_reader_open(&d->reader, d->s, d->job, &d->parts.v->params, e) ||
        append_from_options(o, &d->append, &d->n_append, e) ? -1 : 0;
}

void edit_close(struct edit *d)
{
    free(d->append);
    free(d->to.add.ids);
    free(d->to.add.text);
    free(d->parameters);
    text_reader_close(&d->reader);
    span_list_free(&d->spans);
    job_parts_close(&d->parts);
    job_input_free(&d->in);
}

int edit_plan(struct edit *d, struct err *e)
{
    d->later = d->o->verb->bit == VERB_EXTEND &&
               (d->job->state == JOB_QUEUED || d->job->state == JOB_RUNNING);
    return (d->o->verb->bit == VERB_FORK ? plan_fork : plan_extend)(d, e);
}

int edit_make(void *ctx, int64_t *id, struct err *e)
{
    struct edit *d = ctx;
    *id = d->job->id;
    return d->later                       ? make_later(d, id, e)
           : d->o->verb->bit == VERB_FORK ? store_fork(d->s, d->job->id, &d->to, id, e)
                                          : store_extend(d->s, d->job->id, &d->to, e);
}
