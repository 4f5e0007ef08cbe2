/* longhand text, tail: the text of jobs, also while it is written. cmd_text prints whole texts; struct
 * tail and follow print the end of one text and what is added to it. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runs/report/export.h"
#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "src/base/output.h"
#include "src/base/stopping.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"

/* The texts that a verb prints. */
struct texts {
    const struct options *o;
    struct store *s;
    struct text_reader reader;
    struct sink out;
    size_t found;                                /* places of --find */
};

static int put_ids(struct sink *out, const int32_t *ids, size_t n, struct err *e)
{
    char block[4096];
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        at += (size_t)snprintf(block + at, sizeof block - at, "%" PRId32 "\n", ids[i]);
        if (at > sizeof block - 16 || i + 1 == n) {
            if (sink_write(out, block, at, e))
                return -1;
            at = 0;
        }
    }
    return 0;
}

static bool with_prompt(const struct options *o) { return options_given(o, "with-prompt"); }

/* The job's input, with the text that the model read in place of what the user wrote. They differ in a chat
 * and in a chapter. */
static int read_prompt(struct texts *x, const struct job *job, struct job_input *in, struct err *e)
{
    struct job_params p = {0};
    char *text = NULL;
    size_t n;
    if (store_input(x->s, job->id, in, e))
        return -1;
    if (x->o->with_prompt == PROMPT_USER || x->o->format == FORMAT_IDS)
        return 0;
    int rc = job_parse(&p, in->parameters, e);
    if (rc == 0 && (p.chat || job->after) && (rc = text_reader_open(&x->reader, x->s, job, &p, e)) == 0 &&
        (rc = tokenizer_decode(x->reader.tokenizer, &text, &n, in->prompt_ids, in->n_prompt, !p.chat,
                               e)) == 0) {
        free(in->prompt);
        in->prompt = text;
        in->prompt_bytes = n;
    }
    job_close(&p);
    if (rc)
        job_input_free(in);
    return rc;
}

/* An empty line ends what the user of a chat wrote: the text answers it and does not continue it. */
static int put_end_of_message(const struct job_input *in, struct sink *out, struct err *e)
{
    struct job_params p;
    if (job_parse(&p, in->parameters, e))
        return -1;
    const int rc = p.chat ? sink_write(out, "\n\n", 2, e) : 0;
    job_close(&p);
    return rc;
}

/* Prints the prompt, as text or as ids. */
static int put_prompt(struct texts *x, const struct job *job, struct err *e)
{
    struct job_input in;
    if (read_prompt(x, job, &in, e))
        return -1;
    int rc = x->o->format == FORMAT_IDS ? put_ids(&x->out, in.prompt_ids, in.n_prompt, e)
                                        : sink_write(&x->out, in.prompt, in.prompt_bytes, e);
    if (rc == 0 && x->o->with_prompt == PROMPT_USER)
        rc = put_end_of_message(&in, &x->out, e);
    job_input_free(&in);
    return rc;
}

/* Prints the places of --find. */
static int put_places(struct texts *x, const struct job *job, struct err *e)
{
    struct placed_text t;
    struct text_place at = {0};
    char line[100];
    int rc = job_read_text(&x->reader, x->s, job, &t, e);
    const size_t from = rc || x->o->with_thinking ? 0 : t.answer;
    for (at.byte = from; rc == 0 && placed_text_find(&t, x->o->find, &at);) {
        int n = snprintf(line, sizeof line, "job %" PRId64 ": token %zu, byte %zu\n", job->id, at.token,
                         at.byte - from);
        rc = sink_write(&x->out, line, (size_t)n, e);
    }
    x->found += at.n;
    if (rc == 0)
        placed_text_free(&t);
    return rc;
}

static void put_json_ids(struct json_writer *w, const char *key, const int32_t *ids, size_t n)
{
    jw_open(w, key, '[');
    for (size_t i = 0; i < n; i++)
        jw_int(w, NULL, ids[i]);
    jw_close(w, ']');
}

/* Adds where extend and fork gave tokens. */
static int put_given(struct json_writer *w, struct store *s, const struct job *job, struct err *e)
{
    struct span_list spans;
    if (store_spans(s, job->id, &spans, e))
        return -1;
    jw_open(w, "given", '[');
    for (size_t i = 0; i < spans.n; i++)
        if (strcmp(spans.v[i].kind, "given") == 0) {
            jw_open(w, NULL, '{');
            jw_uint(w, "start", spans.v[i].start);
            jw_uint(w, "tokens", spans.v[i].n);
            jw_close(w, '}');
        }
    jw_close(w, ']');
    span_list_free(&spans);
    return 0;
}

/* A text as it is shown, or its ids; shown_free. */
struct shown { struct placed_text text; int32_t *ids; const char *s; size_t n; };

/* Reads a text or its ids. Of a text the end is shown, without the thoughts that are not. */
static int read_shown(struct texts *x, const struct job *job, struct shown *t, struct err *e)
{
    *t = (struct shown){0};
    if (x->o->format == FORMAT_IDS)
        return store_tokens(x->s, job->id, 0, job->tokens, &t->ids, &t->n, e);
    if (job_read_text(&x->reader, x->s, job, &t->text, e))
        return -1;
    const size_t from = x->o->with_thinking ? 0 : t->text.answer;
    if (from && from == t->text.n)
        request_notice(x->o, "job %" PRId64 ": the text has no answer after its thoughts; --with-thinking "
                       "shows them", job->id);
    t->s = t->text.text + from;
    t->n = t->text.n - from;
    return 0;
}

static void shown_free(struct shown *t)
{
    placed_text_free(&t->text);
    free(t->ids);
}

/* Adds an object with number, name, the prompt with --with-prompt, and the text or its ids. */
static int put_json(struct texts *x, const struct job *job, struct json_writer *w, struct err *e)
{
    const bool as_ids = x->o->format == FORMAT_IDS;
    struct job_input in = {0};
    struct shown t = {0};
    char name[512];
    int rc = (with_prompt(x->o) && read_prompt(x, job, &in, e)) || read_shown(x, job, &t, e) ? -1 : 0;
    if (rc == 0) {
        job_label(name, sizeof name, job);
        jw_open(w, NULL, '{');
        jw_int(w, "job", job->id);
        jw_text(w, "name", *name ? name : NULL);
        if (with_prompt(x->o) && as_ids)
            put_json_ids(w, "prompt_ids", in.prompt_ids, in.n_prompt);
        else if (with_prompt(x->o))
            jw_bytes(w, "prompt", in.prompt, in.prompt_bytes);
        if (as_ids) {
            put_json_ids(w, "ids", t.ids, t.n);
            rc = put_given(w, x->s, job, e);
        } else {
            jw_bytes(w, "text", t.s, t.n);
        }
        jw_close(w, '}');
    }
    job_input_free(&in);
    shown_free(&t);
    return rc;
}

/* text --json: an array of objects. */
static int text_json(struct texts *x, const struct job_list *jobs, struct err *e)
{
    struct whole out;
    struct json_writer w = { .f = whole_begin(&out, e), .style = JW_LIST };
    int rc = 0;
    if (!w.f)
        return -1;
    jw_open(&w, NULL, '[');
    for (size_t i = 0; rc == 0 && i < jobs->n; i++)
        rc = put_json(x, &jobs->v[i], &w, e);
    jw_close(&w, ']');
    fputc('\n', w.f);
    return whole_end(&out, rc, x->o->output, x->o->force ? EARLIER_ANY : EARLIER_KIND, e);
}

/* Prints one text in the form that the options ask for. */
static int put_text(struct texts *x, const struct job *job, struct text_before *before, struct err *e)
{
    const bool prompt = with_prompt(x->o), as_ids = x->o->format == FORMAT_IDS;
    struct shown t = {0};
    char *begins = NULL;
    const int rc = read_shown(x, job, &t, e) ||
                   export_text_begins(&begins, before, job, prompt ? NULL : t.s, prompt || as_ids ? 0 : t.n,
                                      x->o->between, x->o->headings, e) ||
                   sink_write(&x->out, begins, strlen(begins), e) || (prompt && put_prompt(x, job, e)) ||
                   (as_ids ? put_ids(&x->out, t.ids, t.n, e) : sink_write(&x->out, t.s, t.n, e)) ? -1 : 0;
    free(begins);
    shown_free(&t);
    return rc;
}

static const struct job *itself(const void *job) { return job; }

static int put_texts(const struct options *o, struct store_part *p, struct err *e)
{
    struct texts x = { .o = o, .s = p->store, .out = { .fd = STDOUT_FILENO } };
    struct text_before before = {0};
    struct job_list *l = &p->jobs;       /* chapters go after the texts that they continue */
    int rc = l->n ? jobs_in_chains(l->v, l->n, sizeof *l->v, itself, e) : 0;
    if (rc == 0)
        rc = o->json ? text_json(&x, l, e) : sink_open(&x.out, o->output, e);
    x.out.earlier = o->force ? EARLIER_ANY : EARLIER_TEXT;
    for (size_t i = 0; rc == 0 && i < l->n && !o->json; i++)
        rc = o->find ? put_places(&x, &l->v[i], e) : put_text(&x, &l->v[i], &before, e);
    rc = rc ? rc : sink_finish(&x.out, e);
    if (rc == 0 && o->find && !x.found)
        rc = err_set(e, ERR_FAILED, "--find: no such place");
    sink_discard(&x.out);
    text_reader_close(&x.reader);
    return rc;
}

int cmd_text(const struct options *o, struct err *e)
{
    if (o->find && (!*o->find || with_prompt(o) || o->json || options_given(o, "format")))
        return err_set(e, ERR_INPUT, *o->find ? "--find and --%s: only one of them is allowed"
                                              : "--find: '' is no phrase",
                       with_prompt(o) ? "with-prompt" : o->json ? "json" : "format");
    if (o->with_prompt == PROMPT_USER && o->format == FORMAT_IDS)
        return err_set(e, ERR_INPUT,
                       "--with-prompt=user and --format ids: what the user wrote has no ids; the "
                       "model's prompt has");
    if ((o->between || o->headings) && (o->json || o->find || o->format == FORMAT_IDS))
        return err_set(e, ERR_INPUT, "--%s is for texts alone: not for --%s",
                       o->between ? "between" : "headings",
                       o->json ? "json" : o->find ? "find" : "format ids");
    return with_jobs(o, STORE_READ, false, put_texts, e);
}

/* ---- tail ---- */

enum { TAIL_TOKENS = 100 };
static const double FOLLOW_SECONDS = 0.25;

struct tail {
    struct texts x;
    struct grown_text text;
    size_t from;                                 /* the first token that is shown */
    size_t at;                                   /* ids: the next token */
    struct text_before before; bool begun;       /* the text of the job has begun */
};

/* A text that is followed is shown as far as no retake changes it. */
static size_t upto(const struct tail *t, const struct job *job)
{
    return t->x.o->follow ? job_final(job) : SIZE_MAX;
}

/* Prints the new token ids. The model is not needed. */
static int print_new_ids(struct tail *t, const struct job *job, struct err *e)
{
    int32_t *ids = NULL;
    size_t n = 0;
    if (t->at == 0)
        t->at = t->from;
    int rc = store_tokens(t->x.s, job->id, t->at, upto(t, job), &ids, &n, e);
    if (rc == 0)
        rc = put_ids(&t->x.out, ids, n, e);
    t->at += n;
    free(ids);
    return rc;
}

static bool is_open(const struct job *job)
{
    return job->state == JOB_RUNNING || job->state == JOB_QUEUED || job->state == JOB_PAUSED;
}

static int tail_open(struct tail *t, const struct job *job, struct err *e)
{
    return grown_begin(&t->text, t->x.s, job, e) ||
                   text_reader_open(&t->x.reader, t->x.s, job, &t->text.parts.v->params, e) ||
                   grown_open(&t->text, t->x.s, job, &t->x.reader, e)
               ? -1
               : 0;
}

/* Prints the new text, after what stands before it as in the verb text, and checks it when it has ended. */
static int print_new_text(struct tail *t, const struct job *job, struct err *e)
{
    char *text = NULL, *begins = NULL;
    size_t n = 0;
    FILE *f = memory_file(&text, &n);
    const struct grown_part part = { t->from, upto(t, job), f, f };
    if (!f)
        return err_set(e, ERR_FAILED, "out of memory for a text");
    int rc = grown_more(&t->text, t->x.s, job, &t->x.reader, &part, e);
    const int bad = rc == 0 && job->state == JOB_DONE ? grown_end(&t->text, job, &part, e) : 0;
    if (stream_end(f))
        rc = err_set(e, ERR_FAILED, "out of memory for a text");
    if (rc == 0 && n && t->begun)
        export_text_grows(&t->before, text, n);
    else if (rc == 0 && (n || !is_open(job)))
        rc = export_text_begins(&begins, &t->before, job, text, n, NULL, false, e);
    t->begun |= begins != NULL;
    if (rc == 0 && begins)
        rc = sink_write(&t->x.out, begins, strlen(begins), e);
    if (rc == 0 && n)
        rc = sink_write(&t->x.out, text, n, e);
    free(begins);
    free(text);
    return rc ? rc : bad;
}

/* Whether the reader of the pipe is gone. A write would fail, but the next write may be far off. */
static bool output_closed(void)
{
    struct pollfd p = { .fd = STDOUT_FILENO };
    return poll(&p, 1, 0) == 1 && p.revents & POLLERR;
}

/* Prints the end of the text of a job and, with --follow, new text until the job has ended. */
static int follow(struct tail *t, int64_t id, struct err *e)
{
    struct job_list jobs;
    const bool as_text = t->x.o->format == FORMAT_TEXT;
    bool open = false, more = true;
    char word[24];
    int rc = 0;
    snprintf(word, sizeof word, "%" PRId64, id);
    t->begun = false;
    while (more && rc == 0) {
        if (stop_signal) {
            rc = err_set(e, ERR_AGAIN, "stopped by %s", stop_signal_name());
            break;
        }
        if ((rc = job_from_word(t->x.s, word, &jobs, e)) != 0)
            break;
        const struct job *job = &jobs.v[0];
        if (as_text && !open && (rc = tail_open(t, job, e)) == 0)
            open = true;
        more = t->x.o->follow && is_open(job);
        if (rc == 0)
            rc = as_text ? print_new_text(t, job, e) : print_new_ids(t, job, e);
        job_list_free(&jobs);
        if (more && rc == 0 && output_closed()) {
            errno = EPIPE;
            rc = err_set_system(e, ERR_AGAIN, "standard output was closed");
        }
        if (more && rc == 0)
            nanosleep(&(struct timespec){ .tv_nsec = (long)(FOLLOW_SECONDS * 1e9) }, NULL);
    }
    grown_close(&t->text);
    t->from = t->at = 0;
    return rc;
}

/* The same for the texts of several jobs, one after the other, as the verb text prints them. */
static int follow_all(struct tail *t, const char *word, struct err *e)
{
    struct job_list l;
    const bool given = options_given(t->x.o, "from");
    size_t all = 0, i = 0;
    if (jobs_from_word(t->x.s, word, &l, e))
        return -1;
    int rc = l.n ? jobs_in_chains(l.v, l.n, sizeof *l.v, itself, e)
                 : err_set(e, ERR_INPUT, "there is no job %s", word);
    for (size_t k = 0; k < l.n; k++)
        all += l.v[k].tokens;
    t->from = given ? t->x.o->from : all - MIN(all, (size_t)TAIL_TOKENS);
    for (; i + 1 < l.n && t->from >= l.v[i].tokens && !(t->x.o->follow && is_open(&l.v[i])); i++)
        t->from -= l.v[i].tokens;
    if (l.n && !given && t->from > l.v[i].tokens)    /* texts after one that is still written */
        t->from = l.v[i].tokens - MIN(l.v[i].tokens, (size_t)TAIL_TOKENS);
    for (; i < l.n && rc == 0; i++)
        rc = follow(t, l.v[i].id, e);
    job_list_free(&l);
    return rc;
}

int cmd_tail(const struct options *o, struct err *e)
{
    struct tail t = { .x = { .o = o, .out = { .fd = STDOUT_FILENO } } };
    stop_signals_catch();
    if (store_from_options(&t.x.s, o, STORE_READ, e))
        return -1;
    int rc = follow_all(&t, o->arg[0], e);
    text_reader_close(&t.x.reader);
    store_close(t.x.s);
    return rc;
}
