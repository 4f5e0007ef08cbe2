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
#include "src/request/sampling_options.h"

struct edit {
    const struct options *o;
    struct store *s;
    struct job_list jobs;
    const struct job *job;
    struct job_input in;
    struct job_parts parts;
    struct text_reader reader;
    int32_t *given; size_t n_given;              /* the tokens of --append */
    char *text; size_t bytes;                    /* the text of the given tokens */
};

static int edit_open(struct edit *d, const struct options *o, struct err *e)
{
    *d = (struct edit){ .o = o };
    if (store_from_options(&d->s, o, STORE_WRITE, e) || job_from_word(d->s, o->arg[0], &d->jobs, e))
        return -1;
    d->job = &d->jobs.v[0];
    return model_from_options(o, d->s, &d->job->id, 1, e) || store_input(d->s, d->job->id, &d->in, e) ||
        job_parts_read(&d->parts, d->s, d->job->id, d->in.parameters, e) ||
        text_reader_open(&d->reader, d->s, d->job, &d->parts.v->params, e) ? -1 : 0;
}

static void edit_close(struct edit *d)
{
    free(d->given);
    free(d->text);
    text_reader_close(&d->reader);
    job_parts_close(&d->parts);
    job_input_free(&d->in);
    job_list_free(&d->jobs);
    store_close(d->s);
}

static int check_length(const struct edit *d, size_t wanted, struct err *e)
{
    const struct job_params *p = job_parts_last(&d->parts);
    return job_check_length(&d->reader.config, d->in.n_prompt, wanted, p->allow_beyond_context, e);
}

/* Encodes the given tokens: `before` (text whose tokens are dropped), then --append. */
static int encode_given(struct edit *d, const char *before, size_t n_before, struct err *e)
{
    size_t n = d->o->append ? strlen(d->o->append) : 0;
    if (n && text_check_utf8("--append", d->o->append, n, e))
        return -1;
    if (!(d->bytes = n_before + n))
        return 0;
    d->text = malloc(d->bytes + 1);
    if (!d->text)
        return err_set(e, ERR_FAILED, "out of memory");
    memcpy(d->text, before, n_before);
    if (n)
        memcpy(d->text + n_before, d->o->append, n);
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

static int extend(struct edit *d, struct err *e)
{
    const struct job *j = d->job;
    const char *more = d->o->more_tokens;
    size_t n, keep = j->tokens, wanted, n_rest = 0;
    char *rest = NULL;
    if (!more || *more != '+')
        return err_set(e, ERR_INPUT, "extend: %s%s; --tokens +N is needed",
                       more ? "--tokens " : "--tokens is missing", more ? more : "");
    if (parse_size(&n, "--tokens +N", more + 1, 1, 1000000000, e))
        return -1;
    bool stopped = j->finish_reason && strcmp(j->finish_reason, "length") != 0;
    if (stopped && !(d->o->append && *d->o->append)) {
        char why[80];
        terminal_text(why, sizeof why, j->stop_reason ? j->stop_reason : j->finish_reason);
        return err_set(e, ERR_INPUT,
                       "job %" PRId64 " has ended by itself (%s) after %zu tokens, and would end again; "
                       "--append TEXT adds text after its end",
                       j->id, why, j->tokens);
    }
    if (stopped && cut_stop(d, &keep, &rest, &n_rest, e))
        return -1;
    int rc = encode_given(d, rest ? rest : "", n_rest, e);
    free(rest);
    wanted = keep + d->n_given + n;
    if (rc || check_length(d, wanted, e))
        return -1;
    const struct given_text add = { d->given, d->n_given, d->text, d->bytes };
    return store_extend(d->s, j->id, keep, d->n_given ? &add : NULL, wanted, NULL, false, e);
}

int cmd_extend(const struct options *o, struct err *e)
{
    struct edit d;
    int rc = edit_open(&d, o, e) || extend(&d, e) ? -1 : 0;
    edit_close(&d);
    return rc;
}

/* Rejects a fork whose shared tokens already contain a stop string: its text would end at once, whatever
 * follows. */
static int check_fork_goes_on(struct edit *d, struct err *e)
{
    const struct job *j = d->job;
    size_t keep, n_rest;
    char *rest = NULL, why[80];
    if (d->o->at < j->tokens || !j->finish_reason || strcmp(j->finish_reason, "length") == 0)
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
        d->o->at, j->id, why, keep);
}

static int fork_job(struct edit *d, int64_t *id, struct err *e)
{
    const struct options *o = d->o;
    uint64_t seed = o->seed;
    if (!options_given(o, "at"))
        return err_set(e, ERR_INPUT, "fork: --at TOKEN is missing");
    if (!options_given(o, "seed") && getrandom(&seed, sizeof seed, 0) != sizeof seed)
        return err_set(e, ERR_FAILED, "cannot draw a seed: %s; --seed gives one", strerror(errno));
    if (o->at > d->job->tokens)
        return err_set(e, ERR_INPUT, "--at %zu: job %" PRId64 " has %zu tokens", o->at, d->job->id,
                       d->job->tokens);
    if (check_fork_goes_on(d, e) || encode_given(d, "", 0, e))
        return -1;
    const size_t wanted = options_given(o, "tokens") ? o->tokens : d->job->wanted;
    if (wanted <= o->at + d->n_given)
        return err_set(e, ERR_INPUT,
                       "%zu shared and %zu given tokens: --tokens %zu leaves no token to write", o->at,
                       d->n_given, wanted);
    if (check_length(d, wanted, e))
        return -1;
    const struct given_text add = { d->given, d->n_given, d->text, d->bytes };
    const struct fork_spec f = { .at = o->at, .seed = seed, .add = d->n_given ? &add : NULL,
                                 .wanted = wanted };
    return store_fork(d->s, d->job->id, &f, id, e);
}

int cmd_fork(const struct options *o, struct err *e)
{
    struct edit d;
    int64_t id = 0;
    int rc = edit_open(&d, o, e) || fork_job(&d, &id, e) ? -1 : 0;
    edit_close(&d);
    if (rc)
        return rc;
    printf("%" PRId64 "\n", id);
    return (rc = stdout_finish(e)) ? err_while(e, "job %" PRId64 " is in the queue", id) : 0;
}
