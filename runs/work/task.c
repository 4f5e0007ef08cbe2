/* One claimed job: from its row in the store to the end of its claim.
 *
 * struct task is the job. task_open does everything that may refuse the job, then task_replay its stored
 * tokens; task_prefill fills the cache; task_take_round follows each round; task_close ends the claim. */
#include "runs/work/task.h"
#include "src/base/notice.h"
#include "src/base/stopping.h"
#include "src/decode/verify_published.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int task_check(struct task *t)
{
    struct err *why = &t->result.why;
    if (heartbeat_lost(t->w->beat, t->place) &&
        store_claim_holds(t->w->store, t->claim.job, t->claim.attempt, why) == 1)
        return task_ends(t, WORK_LOST, why);
    if (stop_signal)
        err_set(why, ERR_AGAIN, "stopped by %s", stop_signal_name());
    else if (worker_out_of_time(t->w))
        err_set(why, ERR_AGAIN, "stopped at --max-time");
    else
        return 0;
    return task_ends(t, WORK_STOPPED, why);
}

int task_read(struct task *t, int64_t job, struct err *e)
{
    struct store *s = t->w->store;
    if (store_jobs(s, &job, 1, &t->jobs, e) || store_input(s, job, &t->input, e) ||
        store_chapter(s, job, &t->chapter, e))
        return TASK_FAILED;
    if (t->jobs.n != 1)
        return err_set(e, ERR_AGAIN, "job %" PRId64 " was removed", job);
    t->job = &t->jobs.v[0];
    if (job_parts_read(&t->parts, t->w->store, job, t->input.parameters, e))
        return TASK_FAILED;
    t->params = job_parts_last(&t->parts);
    return 0;
}

bool task_runs_alone(const struct task *t, int idle)
{
    enum { DEATHS = 2 };
    return t->params->alone || verify_published(&t->params->draft) || idle >= DEATHS;
}

bool task_stays_alone(const struct task *t)
{
    const bool has_committed = checkpoint_committed(t->checkpoint) > t->result.tokens_before;
    return task_runs_alone(t, has_committed ? 0 : t->claim.idle);
}

void task_forget(struct task *t)
{
    if (t->prompt.ids)                   /* task_make_prompt gave them to the input */
        t->input.prompt_ids = NULL;
    if (t->prompt.text)
        t->input.prompt = NULL;
    job_parts_close(&t->parts);
    job_input_free(&t->input);
    job_list_free(&t->jobs);
    chapter_free(&t->chapter);
    chapter_prompt_free(&t->prompt);
    free(t->start);
    t->start = NULL;
    t->n_start = 0;
    t->params = NULL;
    t->job = NULL;
}

int task_make_prompt(struct task *t, struct err *e)
{
    struct job_input *in = &t->input;
    if (!t->chapter.after || t->chapter.made || t->prompt.ids)
        return 0;
    const int rc = chapter_make(&t->prompt, t->w->store, t->job, &t->chapter, in, &t->w->engine, e);
    if (rc)
        return rc;
    free(in->prompt_ids);
    in->prompt_ids = t->prompt.ids;
    in->n_prompt = t->prompt.n;
    if (t->prompt.text) {
        free(in->prompt);
        in->prompt = t->prompt.text;
        in->prompt_bytes = t->prompt.bytes;
    }
    return 0;
}

/* The prompt of a chapter that is claimed for the first time. 0; TASK_ENDS; -1. */
static int store_prompt(struct task *t, struct err *e)
{
    int rc = task_make_prompt(t, e);
    if (rc > 0)                          /* it was extended meanwhile: the chapter waits again */
        return task_ends(t, WORK_STOPPED, e);
    if (rc || !t->prompt.ids || !t->claim.attempt)
        return rc;
    rc = store_chapter_make(t->w->store, &t->claim, &t->prompt, e);
    t->chapter.made = rc == 0;
    t->result.tokens_before = t->result.tokens = t->claim.end.tokens;
    return rc > 0 ? task_ends(t, WORK_LOST, e) : rc;
}

/* The whole length of the text and its prompt in tokens; 0: it has none. */
static size_t length_of(const struct task *t, size_t wanted)
{
    size_t n;
    return t->input.n_prompt && add_size(t->input.n_prompt, wanted, &n) ? n : 0;
}

/* Tokens that cannot be read make a shorter start: store_begin reports them. */
struct job_need task_need(struct task *t, size_t wanted, size_t tokens)
{
    const size_t n_prompt = t->input.n_prompt;
    int32_t *ids = NULL;
    size_t n = 0;
    struct err ignored;
    if (params_retake_option(t->params))      /* shared rows are never cut */
        tokens = MIN(tokens, t->job->settled);
    if (tokens && store_tokens(t->w->store, t->job->id, 0, tokens, &ids, &n, &ignored))
        n = 0;
    free(t->start);
    t->start = calloc(n_prompt + n + 1, sizeof *t->start);
    t->n_start = t->start ? n_prompt + n : 0;
    for (size_t i = 0; i < t->n_start; i++)
        t->start[i] = i < n_prompt ? t->input.prompt_ids[i] : ids[i - n_prompt];
    free(ids);
    return (struct job_need){ t->params, length_of(t, wanted), t->start, t->n_start };
}

/* Open the trained drafters that the job drafts with. --drafter auto drafts without one that cannot be
 * opened. */
static int open_trained(struct task *t, struct err *e)
{
    for (size_t i = 0; i < N_DRAFTERS; i++) {
        if (!weights_has((enum drafter)i) || !(t->params->draft.drafters >> i & 1))
            continue;
        if (worker_open_trained(t->w, (enum drafter)i, t->params, e) == 0)
            continue;
        if (!t->params->drafter_auto)
            return -1;
        /* a device without it is nothing that a user can change in the file */
        if (drafters[i]->weights->on_devices || t->w->engine.dev->host_memory)
            snprintf(t->untrained, sizeof t->untrained, "drafting without %s: %.400s", drafters[i]->name,
                     e->msg);
        t->setup.draft.drafters &= ~(1u << i);
    }
    weights_setup(&t->setup, &t->w->engine);
    return 0;
}

/* Before a notice on standard error; false: none is wanted. */
static bool clear_for_notice(struct task *t)
{
    if (t->w->quiet)
        return false;
    progress_clear(t->progress);
    progress_clear(&t->w->progress);
    return true;
}

/* Write a notice to standard error and to the job's history. */
static void write_notice(struct task *t, const char *line)
{
    char name[340];
    checkpoint_note(t->checkpoint, "notice", line);
    if (clear_for_notice(t))
        notice(t->w->progress.show == SHOW_JSON,
               (struct row[]){ NOTICE_TEXT("phase", "notice"), NOTICE_INT("job", t->claim.job),
                                         NOTICE_TEXT("name", t->job->batch),
                                         NOTICE_TEXT("custom_id", t->job->custom_id),
                                         NOTICE_TEXT("message", line), NOTICE_END },
               "job %s: %s", job_name(name, sizeof name, t->claim.job, t->job), line);
}

static void int8_notice(struct task *t)
{
    char line[160];
    if (!t->no_int8)
        return;
    snprintf(line, sizeof line,
             "memory has no room to spare for the model in 8 bits, %zu MiB: drafts are made with the model "
             "itself, which takes longer",
             (model_quantized_bytes(&t->w->engine.config, t->w->engine.dev) >> 20) + 1);
    write_notice(t, line);
}

/* A text with fewer tokens left does not gain back what making the model in 8 bits takes: the time of about
 * 10 passes. A text whose tree is fixed waits for it, so that its statistics do not depend on other jobs. */
enum { INT8_TOKENS = 256 };

/* Drafts use the model in 8 bits if memory has room for it. The first job of a worker makes it at once, for
 * all its jobs; another job makes it in slices between the rounds of those that run. In the foreground a new
 * text that the planner drafts gets its first token before. */
static void open_int8(struct task *t)
{
    const struct worker *w = t->w;
    const bool later = t->out ? !t->params->draft.n_width && t->claim.end.tokens == 0 : w->n_jobs > 1;
    if (!draft_wants_int8(&t->setup.draft, w->engine.dev) || t->setup.draft_model)
        return;
    t->wants_int8 = !later || t->params->draft.n_width ||
                    t->claim.wanted - t->claim.end.tokens >= INT8_TOKENS;
    if (!later)
        task_make_int8(t, 0);
}

/* As engine_int8, with progress. */
static int make_int8(struct task *t, double seconds)
{
    struct engine *g = &t->w->engine;
    struct err ignored;
    if (!g->int8.mem && !worker_has_room(t->w, model_quantized_bytes(&g->config, g->dev)))
        return -1;
    const struct progress before = *t->progress;
    stop_notice_for("the model in 8 bits");
    const int rc = engine_int8(g, seconds, t->progress, &ignored);
    stop_notice_for(NULL);
    progress_clear(t->progress);
    *t->progress = before;
    t->progress->drawn = false;
    return rc;
}

/* Jobs that have joined since the task was opened may have taken the room: it is looked at here. */
bool task_make_int8(struct task *t, double seconds)
{
    struct engine *g = &t->w->engine;
    struct decoder *d = &t->decoder;
    const bool made = engine_has_int8(g);
    if (!t->wants_int8 || (t->out && t->writing_since > 0 && d->n_tokens == d->n_prompt))
        return false;
    const int rc = made ? 0 : make_int8(t, seconds);
    t->wants_int8 = rc > 0;
    t->no_int8 = rc < 0;
    if (rc == 0)
        draft_with(d, &g->int8);
    if (t->writing_since > 0)
        int8_notice(t);
    return rc >= 0 && !made;
}

/* Whether the prompt's ids come from another tokenizer than the model has now. A job that has begun has the
 * fingerprint of its model, which store_begin compares. */
static bool other_tokenizer(const struct task *t)
{
    const char *was = t->params->tokenizer;
    return was && !t->job->fingerprint && strcmp(was, tokenizer_sha(t->w->engine.tokenizer)) != 0;
}

static int check_tokenizer(const struct task *t, struct err *e)
{
    const char *now = tokenizer_sha(t->w->engine.tokenizer);
    if (!other_tokenizer(t) || t->options.accept_change)
        return 0;
    return err_set(e, ERR_INPUT,
                   "job %" PRId64 " was submitted with the tokenizer %.16s.., and %s has %.16s.. now: the "
                   "ids of its prompt would mean another text; --accept-numerics-change goes on all the same",
                   t->job->id, t->params->tokenizer, t->job->model, now);
}

/* Check prompt, length, parameters and memory. */
static int check_job(struct task *t, struct err *e)
{
    struct worker *w = t->w;
    struct engine *g = &w->engine;
    const size_t n_prompt = t->input.n_prompt;
    if (check_tokenizer(t, e))
        return -1;
    for (size_t i = 0; i < n_prompt; i++)
        if (t->input.prompt_ids[i] < 0 || (size_t)t->input.prompt_ids[i] >= g->config.vocab)
            return err_set(e, ERR_INPUT,
                           "prompt token %zu is %" PRId32 ", beyond the model's vocabulary of %zu", i,
                           t->input.prompt_ids[i], g->config.vocab);
    const size_t n_max = length_of(t, t->claim.wanted);
    if (!n_max)
        return err_set(e, ERR_INPUT, "%zu prompt tokens, %zu wanted: no length for a text", n_prompt,
                       t->claim.wanted);
    const struct job_binding binding = { t->job->seed, t->job->sample, n_max };
    if (job_bind(t->params, &g->config, g->tokenizer, g->dir, &binding, e) ||
        job_check_length(&g->config, n_prompt, t->claim.wanted, t->params->allow_beyond_context, e))
        return -1;
    const struct job_need need = task_need(t, t->claim.wanted, t->claim.end.tokens);
    struct prefix_match m;
    t->reserved = worker_reserve(w, &need, &t->bytes, &m, e) == 0;
    t->setup.start.from = m.kv;
    t->setup.start.rows = m.n_rows;
    t->setup.start.split = m.n_split;
    t->setup.start.total = &w->prefixes.total;
    if (!t->reserved)                    /* the worker has no memory for the job */
        t->result.end = WORK_REFUSED;
    return t->reserved ? 0 : -1;
}

/* Do everything that may refuse the job: parameters, memory, model, trained drafters. 1: a signal interrupted
 * it, or t->result says why it ends. */
static int admit(struct task *t, struct err *e)
{
    struct worker *w = t->w;
    int rc = worker_open_model(w, t->job, t->params, e);
    if (rc && e->system)
        t->result.end = WORK_WAITS;
    if (rc || (rc = store_prompt(t, e)) != 0)
        return rc;
    if (check_job(t, e) || retaking_check(t->params, &w->engine, e))
        return -1;
    t->setup.draft = t->params->draft;
    t->setup.cuts = params_retake_option(t->params) != NULL;
    t->setup.logprobs = t->params->logprobs >= 0;
    t->setup.best = (size_t)MAX(t->params->logprobs, 0L);
    rc = worker_load_model(w, e);
    if (rc < 0 && e->system)
        t->result.end = WORK_WAITS;
    return rc ? rc : open_trained(t, e);
}

static int prepare(struct task *t, struct err *e)
{
    struct worker *w = t->w;
    struct engine *g = &w->engine;
    const int rc = admit(t, e);
    const size_t n_max = length_of(t, t->claim.wanted);
    if (rc)
        return rc;
    t->setup.buffers = &w->buffers;
    if (draft_wants_int8(&t->setup.draft, g->dev))
        t->setup.draft_model = engine_has_int8(g);
    if (worker_open_buffers(w, &t->setup.draft, n_max, e) ||
        decode_open(&t->decoder, &g->model, &t->params->sampling, &t->setup, t->input.prompt_ids,
                    t->input.n_prompt, n_max, e))
        return -1;
    t->lent = MAX(t->input.n_prompt, (size_t)2) - 1;     /* not the row that a cut to the prompt forgets */
    prefix_join(&w->prefixes, &t->decoder.kv, t->decoder.tokens,
                params_retake_option(t->params) ? &t->lent : &t->decoder.n_tokens);
    open_int8(t);
    if (stop_signal)
        return TASK_ENDS;
    return task_open_replay(t, &t->replay, e);
}

static void repetition_notice(struct task *t, const struct repetition *p)
{
    const struct job *j = t->job;
    const bool stop = params_on_loop(t->params) == ON_LOOP_STOP;
    const bool alone = t->out != NULL;   /* else one of several texts, which has a name */
    char name[340];
    if (!clear_for_notice(t))
        return;
    notice(t->w->progress.show == SHOW_JSON,
           (struct row[]){ NOTICE_TEXT("phase", "repetition"), NOTICE_INT("job", j->id),
                                     NOTICE_TEXT("name", j->batch), NOTICE_TEXT("custom_id", j->custom_id),
                                     NOTICE_UINT("start", p->start), NOTICE_UINT("found", p->found),
                                     NOTICE_UINT("period", p->period), NOTICE_END },
           "%s%s%sthe text repeats itself since token %zu, every %zu %s%s", alone ? "" : "job ",
           alone ? "" : job_name(name, sizeof name, j->id, j), alone ? "" : ": ", p->start, p->period,
           plural(p->period, "token", "tokens"),
           stop ? "; it ends here" : alone ? "; --on-loop stop would end it here" : "");
}

/* Send the text that one token adds to the output, and a notice when the loop rule finds a repetition. */
static int send_token(struct task *t, int32_t id, bool new_text, struct err *e)
{
    const struct work_output *out = t->out;
    struct emit *m = &t->replay.emit;
    const char *bytes;
    size_t n, before = m->n;
    size_t repetitions = m->repetitions;
    bool given = replay_token(&t->replay, id, &bytes, &n);
    if (m->n > before && retaking_token(t, id, given, new_text))
        return 0;
    if (new_text && m->repetitions > repetitions) {
        struct repetition p;
        char note[128];                  /* for people: a report finds the repetition again by itself */
        const bool current = loop_current(m->loop, &p);
        /* a stop string that the same token completes has ended the text before */
        if (current && m->finish != FINISH_STOP && retaking_rule(t, &p))
            return 0;
        if (current) {
            snprintf(note, sizeof note, "since token %zu, about every %zu tokens; noticed at token %zu",
                     p.start, p.period, p.found);
            checkpoint_note(t->checkpoint, "repetition", note);
            repetition_notice(t, &p);
        }
    }
    if (t->retaking && t->retaking->shows)
        return 0;
    if (out && out->text && n && out->text(out->ctx, bytes, n, new_text, e))
        return -1;
    return out && out->id && m->n > before ? out->id(out->ctx, id, new_text, e) : 0;
}

/* Show the notice of the snapshot policy, once. */
static void snapshot_notice(struct task *t)
{
    if (!t->snapshot_notice_shown && t->snapshots.notice[0]) {
        t->snapshot_notice_shown = true;
        write_notice(t, t->snapshots.notice);
    }
}

static void trained_notice(struct task *t)
{
    char line[PATH_BYTES + 160];
    if (t->untrained[0])
        write_notice(t, t->untrained);
    for (size_t i = 0; i < N_DRAFTERS; i++) {
        if (!(t->setup.draft.drafters >> i & 1) || !weights_are_foreign(&t->w->engine, (enum drafter)i))
            continue;
        weights_foreign_line(line, sizeof line, (enum drafter)i, t->w->trained[i].path);
        write_notice(t, line);
    }
}

static void open_snapshot_policy(struct task *t)
{
    struct worker *w = t->w;
    struct snapshot_owner owner;
    memset(&owner, 0, sizeof owner);
    owner.job = t->claim.job;
    owner.attempt = t->claim.attempt;
    snprintf(owner.fingerprint, sizeof owner.fingerprint, "%s", w->fingerprint);
    snprintf(owner.numerics, sizeof owner.numerics, "%s", w->engine.dev->numerics);
    snprintf(owner.context, sizeof owner.context, "%s", w->engine.scaling);
    /* a snapshot of a hybrid has its last rows, which a retake may change while they are written */
    const bool cut = t->setup.cuts && t->decoder.kv.state;
    snapshot_policy_open(&t->snapshots, cut ? KV_SNAPSHOT_OFF : w->snapshot, w->snapshot_max, w->store,
                         &t->claim, t->checkpoint, &t->decoder, &owner);
}

static bool prefill_pass(void *ctx, size_t done, size_t of)
{
    struct task *t = ctx;
    t->progress->of = of;
    progress_at(t->progress, done);
    snapshot_policy_prefill_pass(&t->snapshots);
    return !task_check(t);
}

/* Replay the stored tokens through the emission. */
static int replay_stored(struct task *t, struct err *e)
{
    for (size_t i = 0; i < t->claim.end.tokens; i++) {
        if (t->ids[i] < 0 || (size_t)t->ids[i] >= t->w->engine.config.vocab)
            return err_set(e, ERR_FAILED, "token %zu is %" PRId32 ", beyond the model's vocabulary", i,
                           t->ids[i]);
        if (t->replay.emit.finish == FINISH_NONE && send_token(t, t->ids[i], false, &t->result.why))
            return task_ends(t, WORK_OUTPUT_FAILED, &t->result.why);
    }
    return 0;
}

bool task_writes(const struct task *t)
{
    return t->writing_since > 0 && t->decoder.kv.n_past == t->decoder.n_tokens - 1;
}

bool task_is_complete(const struct task *t) { return t->replay.emit.finish != FINISH_NONE; }

/* Before the first slice: what snapshots have of the cache. */
static void begin_prefill(struct task *t)
{
    struct decoder *d = &t->decoder;
    assert(d->count.begun <= t->n_start && d->count.begun < d->n_tokens &&
           memcmp(d->tokens, t->start, d->count.begun * sizeof *t->start) == 0);
    d->stats.from = t->claim.end.tokens;
    if (d->count.begun)
        checkpoint_add(t->checkpoint, COUNT_SHARED_TOKENS, (double)d->count.begun);
    stop_notice_for("the snapshot to be read");
    snapshot_policy_restore(&t->snapshots);
    snapshot_notice(t);
    progress_phase(t->progress, t->claim.end.tokens ? "reading prompt and text" : "reading the prompt",
                   "tokens", d->n_tokens - 1);
    t->prefilling = true;
}

int task_prefill(struct task *t, double seconds, struct err *e)
{
    struct decoder *d = &t->decoder;
    const double start = clock_seconds();
    if (task_is_complete(t))
        return 0;
    if (!t->prefilling)
        begin_prefill(t);
    const size_t before = d->count.prefill_tokens;
    stop_notice_for("this pass over the text");
    int rc = decode_prefill(d, seconds, prefill_pass, t, e);
    stop_notice_for(NULL);
    const double took = clock_seconds() - start;
    t->result.prefill_seconds += took;
    checkpoint_add(t->checkpoint, COUNT_PREFILL_TOKENS, (double)(d->count.prefill_tokens - before));
    checkpoint_add(t->checkpoint, COUNT_PREFILL_SECONDS, took);
    if (rc == 1 && t->result.end != WORK_STOPPED && t->result.end != WORK_LOST)
        return TASK_AGAIN;
    progress_clear(t->progress);
    if (rc == 0 && t->writing_since == 0)
        snapshot_policy_prefilled(&t->snapshots, d->count.prefill_seconds);
    return rc;
}

static void open_counter(void *ctx, size_t k, const char *source, const char *name, unsigned index,
                         double value)
{
    struct task *t = ctx;
    const int counter = checkpoint_counter(t->checkpoint, source, name, index);
    assert(counter == COUNTS + (int)k);
    t->stored[k] = value;
}

/* Add to a counter of the store what the round added to it in the statistics. */
static void add_counter(void *ctx, size_t k, const char *source, const char *name, unsigned index,
                        double value)
{
    struct task *t = ctx;
    (void)source, (void)name, (void)index;
    if (value != t->stored[k])
        checkpoint_add(t->checkpoint, COUNTS + (int)k, value - t->stored[k]);
    t->stored[k] = value;
}

/* The names of the drafters on the accepted path; a static string. */
static const char *path_sources(const struct round *r)
{
    static char names[1 << N_DRAFTERS][64];       /* only one thread of a process runs a decoder */
    unsigned set = 0;
    for (size_t i = 0; i + 1 < r->tokens; i++)
        set |= round_sources(r, i);
    if (set && !names[set][0])
        for (size_t i = 0; i < N_DRAFTERS; i++)
            if (set >> i & 1)
                snprintf(names[set] + strlen(names[set]), sizeof names[set] - strlen(names[set]), "%s%s",
                         names[set][0] ? "+" : "", drafter_name(i));
    return names[set];
}

int task_take_round(struct task *t, const struct round_total *total, struct err *e)
{
    struct decoder *d = &t->decoder;
    struct emit *m = &t->replay.emit;
    const struct retaking *r = t->retaking;
    const size_t from = d->n_tokens - d->round.tokens, first = m->n;
    int rc = 0;
    for (size_t i = from; i < d->n_tokens && m->finish == FINISH_NONE && rc == 0 && !(r && r->verdict); i++)
        rc = send_token(t, d->tokens[i], true, &t->result.why);
    const size_t kept = !r || !r->verdict ? m->n - first : r->next.at - MIN(r->next.at, first);
    retaking_settle(t);
    decode_add_stats(d, m->n - first);
    stats_each(&d->stats, add_counter, t);
    if (total) {
        checkpoint_add(t->checkpoint, COUNT_WORKER_TOKENS, (double)total->tokens);
        checkpoint_add(t->checkpoint, COUNT_WORKER_SECONDS, total->seconds);
        checkpoint_add(t->checkpoint, COUNT_ROUNDS_OF + (int)total->tasks - 1, 1);
    }
    const struct round *s = &d->round;
    struct round_row row = { .tokens = kept,
                             .sources = path_sources(s),
                             .depth = (unsigned)round_depth(s),
                             .drafted = (unsigned)round_drafted(s),
                             .rows = (unsigned)s->tree->n_kept,
                             .accepted = (unsigned)MIN(kept, s->tokens - 1),
                             .draft_seconds = (float)s->draft,
                             .verify_seconds = (float)s->verify };
    struct err why;
    if (d->logprobs)
        checkpoint_put_logprobs(t->checkpoint, d->logprobs, kept);
    int put = checkpoint_put(t->checkpoint, d->tokens + from, kept, &row, &why);
    put = put < 0 ? TASK_STORE_FAILED : put ? TASK_ENDS : retaking_cut(t, &why);
    rc = rc || put ? rc : retaking_show(t, &t->result.why);
    if (rc)
        return task_ends(t, WORK_OUTPUT_FAILED, &t->result.why);
    if (put == TASK_ENDS)
        return task_ends(t, WORK_LOST, &why);
    if (put) {
        *e = why;
        return put;
    }
    struct progress *p = t->progress;
    p->passes = d->stats.rounds;
    if (progress_due(p))
        p->stored = checkpoint_committed(t->checkpoint);
    progress_at(p, m->n);
    snapshot_policy_round(&t->snapshots);
    snapshot_notice(t);
    return 0;
}

void task_begins_writing(struct task *t)
{
    if (t->writing_since > 0)            /* it has read again after a retake */
        return;
    progress_phase(t->progress, "writing", "tokens", t->claim.wanted);
    progress_from(t->progress, t->replay.emit.n);
    trained_notice(t);
    int8_notice(t);
    t->writing_since = clock_seconds();
}

static void note_finish(struct task *t)
{
    const struct emit *m = &t->replay.emit;
    struct work_result *r = &t->result;
    r->finish = m->finish;
    r->stopped_by_string = m->stop_string != NULL;
    r->stop_reason[0] = 0;
    if (m->stop_string)
        snprintf(r->stop_reason, sizeof r->stop_reason, "%s", m->stop_string);
    else if (m->finish == FINISH_STOP)
        snprintf(r->stop_reason, sizeof r->stop_reason, "%" PRId32, m->stop_token);
    replay_sha(&t->replay, t->sha);
    t->end = (struct job_end){ .state = JOB_DONE, .finish_reason = finish_name(m->finish),
                               .stop_reason = r->stop_reason[0] ? r->stop_reason : NULL, .sha = t->sha };
}

/* End the claim as t->result says. */
static int end_claim(struct task *t, struct err *e)
{
    struct work_result *r = &t->result;
    char why[sizeof r->why.msg];         /* clients of a server read what the store has */
    err_words(&r->why, why, sizeof why);
    switch (r->end) {
    case WORK_DONE: note_finish(t); break;
    case WORK_LOST: return 0;
    case WORK_FAILED: t->end = (struct job_end){ .state = JOB_FAILED, .error = why }; break;
    case WORK_REFUSED:
        t->end = (struct job_end){ .state = t->claim.was == JOB_RUNNING ? JOB_QUEUED : t->claim.was };
        if (t->claim.was == JOB_FAILED)
            t->end.error = t->job && t->job->error ? t->job->error : why;
        break;
    case WORK_WAITS:
        t->end = (struct job_end){ .state = t->options.state_if_stopped, .undo = true };
        break;
    case WORK_STOPPED:
    case WORK_OUTPUT_FAILED:
    case WORK_DEVICE_FAILED: t->end = (struct job_end){ .state = t->options.state_if_stopped }; break;
    }
    struct commit b = { .end = &t->end };
    const struct retaking *x = t->retaking;
    int rc = t->checkpoint ? checkpoint_end(t->checkpoint, &t->end,
                                            x && x->ends && r->end == WORK_DONE ? &x->next : NULL, e)
                           : store_commit(t->w->store, &t->claim, &b, e);
    if (rc > 0)
        task_ends(t, WORK_LOST, e);
    return rc < 0 ? -1 : 0;
}

int task_open(struct task *t, struct err *e)
{
    struct worker *w = t->w;
    t->result.tokens_before = t->result.tokens = t->claim.end.tokens;
    t->place = heartbeat_watch(w->beat, t->claim.job, t->claim.attempt);
    if (t->chapter.after && !t->chapter.made)    /* another worker may have made the prompt meanwhile */
        task_forget(t);
    int rc = t->job ? 0 : task_read(t, t->claim.job, e);
    if (rc == 0 && (rc = prepare(t, e)) > 0 && !t->result.why.msg[0])
        task_check(t);
    if (rc)
        return rc;
    if (worker_store_model(w, e))
        return TASK_STORE_FAILED;
    rc = store_begin(w->store, &t->claim, w->engine.dev->numerics, w->fingerprint, t->options.accept_change,
                     &t->ids, e);
    if (rc)
        return rc > 0 ? task_ends(t, WORK_LOST, e) : TASK_FAILED;
    if (params_retake_option(t->params) && retaking_open(t, e))
        return TASK_FAILED;
    const struct checkpoint_options o = { .rounds = t->options.store_rounds,
                                          .logprobs = t->decoder.logprobs != NULL,
                                          .best = t->decoder.set.best, .retakes = t->retaking != NULL,
                                          .ids = t->ids,
                                          .settled = t->retaking ? t->retaking->settled : 0 };
    if (checkpoint_open(&t->checkpoint, w->committer, &t->claim, &o, e))
        return TASK_STORE_FAILED;
    stats_each(&t->decoder.stats, open_counter, t);
    if (other_tokenizer(t))
        checkpoint_note(t->checkpoint, "accepted change",
                        "another tokenizer than the prompt's ids come from");
    open_snapshot_policy(t);
    if (t->out && t->out->begins)
        t->out->begins(t->out->ctx, &t->decoder);
    rc = replay_stored(t, e);
    /* before other jobs ask what they have in common with it */
    if (rc == 0 && (t->retaking || !task_is_complete(t)))
        decode_append(&t->decoder, t->ids, t->claim.end.tokens);
    return rc ? rc : retaking_begin(t);
}

void task_stopped(struct task *t, double deadline)
{
    snapshot_policy_stopped(&t->snapshots, deadline);
    snapshot_notice(t);
}

/* Close the decoder, and keep its cache for texts that begin alike. */
static void close_decoder(struct task *t)
{
    struct worker *w = t->w;
    struct kv kv;
    int32_t *tokens;
    if (!t->decoder.model)
        return;
    prefix_leave(&w->prefixes, &t->decoder.kv);
    const size_t n_tokens = t->decoder.n_tokens;
    decode_close_but(&t->decoder, &kv, &tokens);
    kv.n_past = MIN(kv.n_past, n_tokens);
    if (*w->engine.dev->error)           /* its caches are invalid */
        kv.n_past = 0;
    worker_keep(w, &kv, tokens);
}

static void free_task(struct task *t)
{
    snapshot_policy_close(&t->snapshots);
    checkpoint_close(t->checkpoint);
    if (t->replay.rules)
        replay_close(&t->replay);
    retaking_close(t);
    close_decoder(t);
    if (t->reserved)
        worker_release(t->w, t->bytes);
    task_forget(t);
    free(t->ids);
}

/* The task reads the job, and then takes the fields that the change will give it. */
static int try_change(struct task *t, const struct job_change *c, struct err *e)
{
    struct worker *w = t->w;
    if (task_read(t, c->job, e))
        return -1;
    t->job->model = c->model;
    t->claim.wanted = c->wanted;
    t->claim.end.tokens = c->tokens;
    if (c->parameters) {
        job_close(t->params);
        if (job_parse(t->params, c->parameters, e))
            return -1;
    }
    return admit(t, e) ||
           store_check_begin(w->store, c->job, c->tokens, w->engine.dev->numerics, w->fingerprint,
                             c->accept_change, false, e) ? -1 : 0;
}

int task_try(struct worker *w, const struct job_change *c, struct err *e)
{
    struct task *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ERR_FAILED, "out of memory");
    t->w = w;
    t->progress = &w->progress;
    t->options.accept_change = c->accept_change;
    const int rc = try_change(t, c, e);
    free_task(t);
    free(t);
    return rc;
}

int task_close(struct task *t, int rc, struct err *e)
{
    struct worker *w = t->w;
    struct work_result *r = &t->result;
    /* another process holds the store, or removed the job */
    const bool busy = rc == TASK_FAILED && e->code == ERR_AGAIN;
    if (rc == TASK_FAILED) {             /* a damaged row of the store fails this job, not the queue */
        const struct device *dev = w->engine.dev;
        const bool refused = t->options.release_if_refused && !t->claim.begun;
        const bool known = r->end == WORK_REFUSED || r->end == WORK_WAITS;       /* by admit */
        task_ends(t, dev && *dev->error ? WORK_DEVICE_FAILED
                     : refused          ? WORK_REFUSED
                     : known            ? r->end
                     : busy             ? WORK_STOPPED
                                        : WORK_FAILED, e);
    }
    snapshot_policy_close(&t->snapshots);
    rc = rc == TASK_STORE_FAILED ? -1 : end_claim(t, e);
    if (rc == 0 && busy && r->end == WORK_STOPPED) {
        *e = r->why;
        rc = -1;
    }
    if (rc == 0 && r->end == WORK_DONE && r->finish == FINISH_REPETITION)
        job_names_add(&w->cut, t->job, "");
    if (t->replay.at)
        r->tokens = t->replay.emit.n;
    r->stats = t->decoder.stats;
    r->seconds = r->stats.seconds;
    r->stats.put = t->checkpoint ? checkpoint_put_seconds(t->checkpoint) : 0;
    t->decoder.stats.window = NULL;
    progress_clear(t->progress);
    heartbeat_forget(w->beat, t->place);
    free_task(t);
    return rc;
}
