/* longhand run: stores a job and works on it at once; its text goes straight to the output. struct run
 * holds the call; start at run_new and run_resume. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/decode/verify_published.h"
#include "runs/report/report.h"
#include "runs/work/schedule.h"
#include "src/base/json_write.h"
#include "src/base/notice.h"
#include "src/base/output.h"
#include "src/base/stopping.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"
#include "src/request/output_check.h"
#include "src/request/request.h"
#include "src/request/sampling_options.h"

struct run {
    const struct options *o;
    struct request request;
    struct worker worker;
    struct sink out;
    struct job_list jobs;
    const struct job *job;
    size_t n_prompt;
    size_t skip;                         /* bytes of the text that are still to be left out */
    bool to_terminal, wrote, drafts, fixed_tree, lossless;
};

/* ---- messages on standard error ---- */

/* Prints the settings that decide the text, once, after every check that may still reject the job. */
static void print_start(void *ctx, const struct decoder *d)
{
    struct run *r = ctx;
    const struct options *o = r->o;
    char own[256] = "";
    bool drawn = !o->resume && (o->seed_drawn || !options_given(o, "seed"));
    struct progress *p = &r->worker.progress;
    progress_clear(p);
    r->fixed_tree = d->set.draft.n_width > 0;
    r->drafts = d->set.draft.drafters != 0;
    r->lossless = !verify_published(&d->set.draft);
    r->n_prompt = d->n_prompt;
    if (!o->resume)
        describe_generation_config(own, sizeof own, o, &r->worker.engine.config);
    if (o->quiet)
        return;
    if (own[0] && p->show != SHOW_JSON)
        fprintf(stderr, "the model's own settings (generation_config.json): %s\n", own);
    notice(p->show == SHOW_JSON,
           (struct row[]){ NOTICE_TEXT("phase", "start"), NOTICE_INT("job", r->job->id),
                                     { "seed", NULL, V_WIDE(r->job->seed) },
                                     NOTICE_UINT("prompt_tokens", r->n_prompt),
                                     NOTICE_UINT("tokens", r->job->wanted),
                                     NOTICE_TEXT("generation_config", own), NOTICE_END },
           "job: %" PRId64, r->job->id);
    if (p->show != SHOW_JSON) {
        if (*r->request.chat.template)
            fprintf(stderr, "chat template: %s\n",
                    !o->chat_template                                       ? "the model's own"
                    : strlen(r->request.chat.template) < CHAT_NAME_BYTES - 1 ? r->request.chat.template
                                                                            : "the one given");
        if (drawn)
            fprintf(stderr, "seed: %" PRIu64 "\n", r->job->seed);
        if (!r->lossless)
            fprintf(stderr, "%s\n", verify_published_warning);
    }
    if (r->to_terminal && p->show == SHOW_LINE)
        p->show = SHOW_NOTHING;                  /* text and progress would share the terminal */
}

static void print_end(const struct run *r, const struct work_result *w)
{
    const size_t wanted = r->job->wanted;
    char speed[96], line[PATH_BYTES];
    int n = snprintf(speed, sizeof speed, "%.2f s, %.1f tokens/s", w->seconds, work_speed(w));
    if (r->drafts && w->stats.rounds)
        snprintf(speed + n, sizeof speed - (size_t)n, ", %.2f tokens a pass",
                 (double)w->stats.tokens / (double)w->stats.rounds);
    if (r->o->quiet)
        return;
    const bool stopped = w->stopped_by_string || w->finish == FINISH_STOP;
    if (w->stopped_by_string)
        snprintf(line, sizeof line, "stop string after %zu of %zu %s, %s", w->tokens, wanted,
                 plural(wanted, "token", "tokens"), speed);
    else if (stopped && !r->o->tokens && !r->o->resume)      /* the end that was asked for */
        snprintf(line, sizeof line, "end of text (token %s) after %zu %s, %s", w->stop_reason, w->tokens,
                 plural(w->tokens, "token", "tokens"), speed);
    else if (stopped)
        snprintf(line, sizeof line, "end of text (token %s) after %zu of %zu %s, %s; --ignore-eos or "
                                    "--min-tokens N continues",
                 w->stop_reason, w->tokens, wanted, plural(wanted, "token", "tokens"), speed);
    else
        snprintf(line, sizeof line, "%zu %s, %s", w->tokens, plural(w->tokens, "token", "tokens"), speed);
    if (stopped || r->o->progress != PROGRESS_NONE)
        notice(r->o->progress == PROGRESS_JSON,
               (struct row[]){
                   NOTICE_TEXT("phase", "done"), NOTICE_UINT("tokens", w->tokens), NOTICE_UINT("of", wanted),
                   NOTICE_TEXT("finish_reason", finish_name(w->finish)),
                   /* a stop string, the id of a token, or null */
                   { "stop_reason", NULL, V_TEXT(w->stop_reason), .unless = !w->stopped_by_string },
                   { "stop_reason", NULL, V_JSON(*w->stop_reason ? w->stop_reason : NULL),
                     .unless = w->stopped_by_string },
                   NOTICE_REAL("seconds", w->seconds), NOTICE_REAL("tokens_per_second", work_speed(w)),
                   NOTICE_UINT("prompt_tokens", r->n_prompt),
                   NOTICE_REAL("prefill_seconds", w->prefill_seconds), NOTICE_INT("job", r->job->id),
                   NOTICE_END },
               "%s", line);
}

/* Writes --json-stats: the fields of `report --json` that a single run has. They cover this attempt, which
 * began at token `from`. With several texts, those of text I go to FILE.I. */
static int write_stats(const struct run *r, const struct work_result *x, struct err *e)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, r->o->samples > 1 ? "%s.%" PRIu32 : "%s", r->o->json_stats, r->job->sample);
    FILE *f = fopen(path, "w");
    if (!f)
        return err_set(e, ERR_FAILED, "--json-stats: %s: cannot write: %s", path, strerror(errno));
    const struct draft_stats *s = &x->stats;
    struct json_writer w = jw_begin(f, JW_LINE, 0);
    jw_text(&w, "finish_reason", finish_name(x->finish));
    jw_text(&w, "model", r->worker.engine.dir);
    jw_wide(&w, "seed", r->job->seed);
    jw_bool(&w, "lossless", r->lossless);
    jw_uint(&w, "prompt_tokens", r->n_prompt);
    jw_uint(&w, "tokens", x->tokens);
    jw_uint(&w, "from", x->tokens_before);
    report_put_stats(&w, s, x->tokens - MIN(x->tokens, x->tokens_before), x->prefill_seconds, r->fixed_tree);
    if (s->to_host)                          /* ids and scores; logits stay on the device */
        jw_format(&w, "device_to_host_bytes_per_round", "%.1f", (double)s->to_host / (double)s->rounds);
    jw_end(&w);
    if (stream_end(f))
        return err_set(e, ERR_FAILED, "--json-stats: %s: cannot write: %s", path, strerror(errno));
    return 0;
}

/* ---- the text ---- */

static int put_text(void *ctx, const char *bytes, size_t n, bool new_text, struct err *e)
{
    struct run *r = ctx;
    if (r->o->format != FORMAT_TEXT || (r->o->from_here && !new_text))
        return 0;
    const size_t skip = MIN(n, r->skip);
    r->skip -= skip;
    r->wrote |= n > skip;
    return n > skip ? sink_write(&r->out, bytes + skip, n - skip, e) : 0;
}

static int put_id(void *ctx, int32_t id, bool new_text, struct err *e)
{
    struct run *r = ctx;
    char line[16];
    if (r->o->format != FORMAT_IDS || (r->o->from_here && !new_text))
        return 0;
    r->wrote = true;
    return sink_write(&r->out, line, (size_t)snprintf(line, sizeof line, "%" PRId32 "\n", id), e);
}

/* On a terminal: what stands before was taken back to x->at. */
static void print_retake(void *ctx, const struct retake *x)
{
    struct run *r = ctx;
    if (r->o->quiet || !r->to_terminal)
        return;
    progress_clear(&r->worker.progress);
    notice(r->o->progress == PROGRESS_JSON,
           (struct row[]){ NOTICE_TEXT("phase", "retake"), NOTICE_UINT("at", x->at),
                                     NOTICE_UINT("length", x->length), NOTICE_END },
           "\n[the text %s%s%s; its last %zu %s taken back]",
           *x->phrase ? "has the phrase '" : "repeats itself", x->phrase, *x->phrase ? "'" : "",
           x->length - x->at, plural(x->length - x->at, "token is", "tokens are"));
}

/* Names the pieces of the output that other runs left, as a killed one does. */
static void name_pieces(const struct run *r)
{
    char folder[PATH_BYTES], list[400] = "";
    const char *name = folder_of(folder, r->out.path);
    const size_t n = strlen(name);
    struct dirent *x;
    DIR *d = r->out.path[0] ? opendir(folder) : NULL;
    while (d && (x = readdir(d)))
        if (strncmp(x->d_name, name, n) == 0 && strncmp(x->d_name + n, ".part-", 6) == 0 &&
            strspn(x->d_name + n + 6, "0123456789abcdef") == 6 && !x->d_name[n + 12])
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", x->d_name);
    if (d)
        closedir(d);
    if (*list)
        request_notice(r->o, "beside %s: %s, of runs that were interrupted or still write", r->out.path,
                       list);
}

/* Adds " --NAME WORD" to a command that people copy, quoted for a shell where that is necessary. */
static void add_word(char *out, size_t size, const char *option, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    size_t n = strlen(out);
    n += (size_t)snprintf(out + n, size - n, " %s ", option);
    if (n + 2 >= size)
        return;
    if (*word && strspn(word, plain) == strlen(word)) {
        snprintf(out + n, size - n, "%s", word);
        return;
    }
    out[n++] = '\'';
    for (; *word && n + 6 < size; word++)
        if (*word == '\'')
            n += (size_t)snprintf(out + n, size - n, "'\\''");
        else
            out[n++] = *word;
    snprintf(out + n, size - n, "'");
}

/* The command that continues the job and leads where this one was going. */
static void resume_command(const struct run *r, int64_t id, char *out, size_t size)
{
    const struct options *o = r->o;
    char path[PATH_BYTES];
    snprintf(out, size, "longhand run --resume %" PRId64, id);
    if (o->output) {
        snprintf(path, sizeof path, o->samples > 1 ? "%s.%" PRIu32 : "%s", o->output,
                 r->job ? r->job->sample : 0);
        add_word(out, size, "-o", path);
    }
    if (o->format == FORMAT_IDS)
        add_word(out, size, "--format", "ids");
    if (o->db.n)
        add_word(out, size, "--db", o->db.v[0]);
}

/* Sets the message and exit code after the work on a job. */
static int conclude(struct run *r, struct work_result *w, struct err *e)
{
    const int64_t id = r->job->id;
    char more[PATH_BYTES + 64] = "", command[700];
    resume_command(r, id, command, sizeof command);
    if (r->to_terminal && r->wrote)
        fputc('\n', stderr);                     /* messages begin on a line of their own */
    if (w->end == WORK_DONE) {
        if (sink_finish(&r->out, e))
            return -1;
        name_pieces(r);
        print_end(r, w);
        return r->o->json_stats ? write_stats(r, w, e) : 0;
    }
    sink_abandon(&r->out);
    if (r->out.temporary[0])
        snprintf(more, sizeof more, "; the text so far is in %s", r->out.temporary);
    r->out = (struct sink){ .fd = STDOUT_FILENO };
    switch (w->end) {
    case WORK_FAILED:
        return err_set(e, w->why.code == ERR_INPUT ? ERR_INPUT : ERR_FAILED, "job %" PRId64 ": %.800s%s", id,
                       w->why.msg, more);
    case WORK_REFUSED:
        return err_set(e, w->why.code, "%.700s%.300s", w->why.msg, more);
    case WORK_LOST:
        return err_set(e, ERR_AGAIN, "%.500s, after %zu of %zu %s%s", w->why.msg, w->tokens,
                       r->job->wanted, plural(r->job->wanted, "token", "tokens"), more);
    default:
        break;
    }
    return err_set(e, w->why.code == ERR_AGAIN ? ERR_AGAIN : ERR_FAILED,
                   "%.250s after %zu of %zu %s%.250s; %.350s continues it, or longhand resume %" PRId64
                   " and longhand work",
                   w->why.msg, w->tokens, r->job->wanted, plural(r->job->wanted, "token", "tokens"), more,
                   command, id);
}

/* The store failed during the work: names the piece of the text, and how to continue. */
static void store_failed(struct run *r, int64_t id, struct err *e)
{
    char command[700];
    sink_abandon(&r->out);
    if (r->out.temporary[0]) {
        const struct err why = *e;
        err_set(e, why.code, "%.500s; the text so far is in %.400s", why.msg, r->out.temporary);
    }
    r->out = (struct sink){ .fd = STDOUT_FILENO };
    if (!stop_signal)
        return;
    resume_command(r, id, command, sizeof command);
    err_while(e, "stopped by %s, and %s continues from the last checkpoint", stop_signal_name(), command);
}

static int work_on(struct run *r, int64_t id, struct err *e)
{
    const struct options *o = r->o;
    r->to_terminal = r->out.fd == STDOUT_FILENO && isatty(STDOUT_FILENO);
    const struct work_options how = { .state_if_stopped = JOB_PAUSED, .accept_change = o->accept_change,
                                      .store_rounds = o->rounds, .release_if_refused = true };
    const struct work_output out = { .text = put_text, .id = put_id,
                                     .at_once = r->to_terminal && r->o->format == FORMAT_TEXT,
                                     .retake = print_retake, .begins = print_start, .ctx = r };
    struct store *s = r->worker.store;
    struct claim_request wish = worker_claim_request(&r->worker, id);
    struct claim claim;
    struct work_result w;
    wish.numerics = NULL;                        /* store_begin reports different arithmetic */
    if (store_claim(s, &wish, &claim, e) < 0 || store_jobs(s, &id, 1, &r->jobs, e))
        return -1;
    if (r->jobs.n != 1)
        return err_set(e, ERR_AGAIN, "job %" PRId64 " was removed", id);
    r->job = &r->jobs.v[0];
    r->wrote = false;
    int rc = schedule_job(&r->worker, &claim, &how, &out, &w, e);
    if (rc == 0)
        rc = conclude(r, &w, e);
    else
        store_failed(r, id, e);
    stats_close(&w.stats);
    job_list_free(&r->jobs);
    return rc;
}

static int open_output(struct run *r, size_t sample, struct err *e)
{
    const struct options *o = r->o;
    const bool one = o->samples == 1 || !o->output;
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s.%zu", one ? "" : o->output, sample);
    return sink_open(&r->out, one ? o->output : path, e);
}

/* ---- the verb ---- */

static int run_new(struct run *r, struct store **s, struct err *e)
{
    const struct options *o = r->o;
    int64_t *ids = calloc(o->samples, sizeof *ids);
    int rc = ids ? 0 : err_set(e, ERR_FAILED, "out of memory");
    if (rc == 0 && o->samples > 1 && (!o->output || strcmp(o->output, "-") == 0))
        rc = err_set(e, ERR_INPUT, "--samples %zu: more than one text needs -o FILE; text I goes to FILE.I",
                     o->samples);
    if (rc == 0)
        rc = request_open(&r->request, o, &r->worker.engine, NULL, e);
    if (rc == 0 && (rc = open_output(r, 0, e)) == 0) {
        rc = store_from_options(s, o, STORE_CREATE, e) || worker_open(&r->worker, *s, e) ||
             request_submit(&r->request, &r->worker.engine, *s, true, ids, e) ? -1 : 0;
        for (size_t i = 0; i < o->samples && rc == 0; i++)
            rc = (i ? open_output(r, i, e) : 0) || work_on(r, ids[i], e) ? -1 : 0;
        sink_abandon(&r->out);
    }
    free(ids);
    return rc;
}

/* --resume of a job that is done: its text, which the store has. */
static int write_done(struct run *r, struct store *s, const struct job *j, struct err *e)
{
    const struct options *o = r->o;
    struct text_reader reader = {0};
    int32_t *ids = NULL;
    struct placed_text text = {0};
    size_t n = 0;
    if (o->json_stats)
        return err_set(e, ERR_INPUT,
                       "--json-stats: job %" PRId64
                       " is done, and nothing is left to measure; longhand report "
                       "%" PRId64 " --json has its figures",
                       j->id, j->id);
    int rc = o->from_here               ? 0
             : o->format == FORMAT_IDS ? store_tokens(s, j->id, 0, j->tokens, &ids, &n, e)
                                       : job_read_text(&reader, s, j, &text, e);
    for (size_t i = 0; i < n && ids && rc == 0; i++)
        rc = put_id(r, ids[i], true, e);
    if (rc == 0 && text.text)
        rc = put_text(r, text.text, text.n, true, e);
    if (rc == 0 && (rc = sink_finish(&r->out, e)) == 0) {
        name_pieces(r);
        if (job_is_cut_short(j))
            job_names_add(&r->worker.cut, j, "");
        request_notice(o, "job %" PRId64 " is done: %zu %s", j->id, j->tokens,
                       plural(j->tokens, "token", "tokens"));
    }
    placed_text_free(&text);
    free(ids);
    text_reader_close(&reader);
    return rc;
}

static int run_resume(struct run *r, struct store **s, struct err *e)
{
    const struct options *o = r->o;
    const char *own = options_of_job(o);
    struct job_list named;
    if (own)
        return err_set(e, ERR_INPUT, "--resume %s and --%s: the job has its own", o->resume, own);
    if (store_from_options(s, o, STORE_WRITE, e) || job_from_word(*s, o->resume, &named, e))
        return -1;
    const int64_t id = named.v[0].id;
    int rc = output_check_model(o, named.v[0].model, e) || open_output(r, 0, e) ? -1 : 0;
    r->out.earlier = o->force ? EARLIER_ANY : EARLIER_TEXT;
    if (rc == 0 && named.v[0].state == JOB_DONE) {
        rc = write_done(r, *s, &named.v[0], e);
        sink_discard(&r->out);
        job_list_free(&named);
        return rc;
    }
    job_list_free(&named);
    if (rc)
        return -1;
    rc = sink_check(&r->out, e) || worker_open(&r->worker, *s, e) || work_on(r, id, e) ? -1 : 0;
    sink_abandon(&r->out);
    return rc;
}

static void run_begin(struct run *r, const struct options *o)
{
    memset(r, 0, sizeof *r);
    r->o = o;
    r->out.fd = STDOUT_FILENO;
    worker_from_options(&r->worker, o);
    stop_signals_catch();
    stop_notice_open(o->progress == PROGRESS_JSON, o->quiet);
}

static void run_end(struct run *r)
{
    progress_clear(&r->worker.progress);
    worker_close(&r->worker);
    request_close(&r->request);
    stop_notice_close();
}

int run_changed(const struct options *o, struct store *s, const struct run_change *c, struct err *e)
{
    static struct run r;
    int64_t id;
    if (output_check_model(o, c->job.model, e))
        return -1;
    run_begin(&r, o);
    r.skip = c->skip;
    int rc = open_output(&r, 0, e);
    if (rc == 0) {
        rc = worker_open(&r.worker, s, e) || task_try(&r.worker, &c->job, e) || c->make(c->ctx, &id, e) ||
             work_on(&r, id, e) ? -1 : 0;
        sink_abandon(&r.out);
    }
    run_end(&r);
    return rc;
}

int cmd_run(const struct options *o, struct err *e)
{
    static struct run r;
    struct store *s = NULL;
    if (o->from_here && !options_given(o, "resume"))
        return err_set(e, ERR_INPUT, "--from-here needs --resume JOB");
    run_begin(&r, o);
    int rc = o->batch                     ? cmd_run_batch(o, e)
             : options_given(o, "resume") ? run_resume(&r, &s, e)
                                          : run_new(&r, &s, e);
    run_end(&r);
    store_close(s);
    return rc;
}
