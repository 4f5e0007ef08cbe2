/* The worker: a store, a model, and one job at a time.
 *
 * The first part keeps the model for the next job. The second part is one job (struct task), in four steps:
 * prepare (everything that may refuse the job), rebuild (its state from the store), write_text (rounds),
 * end_claim. Start at worker_run. */
#include "runs/work/worker.h"
#include "src/base/json_write.h"
#include "src/base/stopping.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The counters of the store that are fields of struct draft_stats: a number, a double of seconds, an array
 * of numbers from depth 1 on, or an array of numbers per drafter. */
enum counter_kind { NUMBER, SECONDS, PER_DEPTH, PER_SOURCE };
#define COUNTER(name, field, kind, n) { name, offsetof(struct draft_stats, field), kind, n }
static const struct counter {
    const char *name;
    size_t offset;
    enum counter_kind kind;
    size_t n;
} counters[] = {
    COUNTER("tokens", tokens, NUMBER, 1),
    COUNTER("rounds", rounds, NUMBER, 1),
    COUNTER("drafted", drafted, NUMBER, 1),
    COUNTER("verified_rows", verified_rows, NUMBER, 1),
    COUNTER("accepted", accepted, NUMBER, 1),
    COUNTER("drafted_depth", drafted_depth, NUMBER, 1),
    COUNTER("beta_accepted", beta_accepted, NUMBER, 1),
    COUNTER("draft_passes", draft_passes, NUMBER, 1),
    COUNTER("refreshes", refreshes, NUMBER, 1),
    COUNTER("seconds", seconds, SECONDS, 1),
    COUNTER("draft_seconds", draft, SECONDS, 1),
    COUNTER("verify_seconds", verify, SECONDS, 1),
    COUNTER("control_seconds", control, SECONDS, 1),
    COUNTER("plain_seconds", plain, SECONDS, 1),
    COUNTER("reached", reached, PER_DEPTH, TREE_DEPTH_MAX + 1),
    COUNTER("accepted_at", accepted_at, PER_DEPTH, TREE_DEPTH_MAX + 1),
    COUNTER("histogram", histogram, PER_DEPTH, TREE_DEPTH_MAX + 2),
    COUNTER("drafted", source_drafted, PER_SOURCE, N_SOURCES),
    COUNTER("accepted", source_accepted, PER_SOURCE, N_SOURCES),
    { NULL, 0, NUMBER, 0 },
};

static double counter_value(const struct draft_stats *s, const struct counter *c, size_t i)
{
    const void *field = (const char *)s + c->offset;
    return c->kind == SECONDS ? *(const double *)field : (double)((const size_t *)field)[i];
}

/* ---- the worker ---- */

int worker_open(struct worker *w, struct store *s, struct err *e)
{
    w->store = s;
    if (device_choice_numerics(w->device, w->numerics, &w->n_numerics, e) ||
        store_worker_start(s, &w->number, e))
        return -1;
    if (heartbeat_start(&w->beat, s, w->number, e) || committer_open(&w->committer, s, 0, e)) {
        struct err ignored;
        heartbeat_stop(w->beat);
        w->beat = NULL;
        store_worker_end(s, w->number, &ignored);
        return -1;
    }
    snapshot_files_delete_unused(s);           /* files of dead workers */
    return 0;
}

void worker_close(struct worker *w)
{
    struct err ignored;
    committer_close(w->committer);
    heartbeat_stop(w->beat);
    if (w->number)
        store_worker_end(w->store, w->number, &ignored);
    engine_close(&w->engine);
    *w = (struct worker){0};
}

struct claim_request worker_claim_request(const struct worker *w, int64_t job)
{
    return (struct claim_request){ .worker = w->number,
                                   .job = job,
                                   .model = w->loaded ? w->engine.path : NULL,
                                   .numerics = w->numerics,
                                   .n_numerics = w->n_numerics };
}

static bool show_hashing(void *ctx, size_t done, size_t of)
{
    struct worker *w = ctx;
    w->progress.of = of;
    progress_at(&w->progress, done);
    return !stop_signal;
}

int worker_open_model(struct worker *w, const struct job *job, const struct job_params *p, struct err *e)
{
    struct engine *g = &w->engine;
    bool same = g->path[0] && strcmp(g->path, job->model) == 0 && g->compute == p->compute &&
                (g->kv == p->kv || g->dev->kv_type == p->kv) &&
                strcmp(g->scaling, p->scaling ? p->scaling : "") == 0 &&
                device_choice_matches(w->device, g->dev->numerics, job->numerics) && !*g->dev->error &&
                model_stamp(g->dir) == g->stamp;
    if (same)
        return 0;
    engine_close(g);
    w->loaded = false;
    w->heads_path[0] = 0;
    const struct engine_spec spec = { job->model, p->compute, p->scaling, w->threads,
                                      w->device,  job->numerics, p->kv };
    if (engine_open(g, &spec, e) == 0)
        return 0;
    g->path[0] = 0;
    return -1;
}

int worker_load_model(struct worker *w, struct err *e)
{
    struct engine *g = &w->engine;
    if (w->loaded)
        return 0;
    stop_notice_for("the model to be read");
    progress_phase(&w->progress, "checking the model", "bytes", 0);
    int rc = model_fingerprint(w->fingerprint, g->dir, g->pool, show_hashing, w, e);
    if (rc == 0 && (rc = engine_load(g, &w->progress, e)) == 0)
        w->loaded = true;
    /* if the files changed meanwhile, configuration, weights and fingerprint may not belong together */
    if (rc == 0 && model_stamp(g->dir) != g->stamp) {
        rc = err_set(e, ERR_FAILED, "%s was changed while it was read", g->dir);
        model_close(&g->model);
        g->path[0] = 0;                      /* the next job opens it again */
        w->loaded = false;
    }
    stop_notice_for(NULL);
    progress_clear(&w->progress);
    if (stop_signal) {
        err_set(e, ERR_AGAIN, "stopped by %s before %s was read", stop_signal_name(), g->dir);
        return 1;
    }
    return rc;
}

/* ---- one job ----
 *
 * The functions below return 0: go on; 1: the work ends here, and t->r says why; -1: the job failed, and *e
 * says why; STORE_FAILED: the store failed, and *e says why. */
enum { STORE_FAILED = 2 };

struct task {
    struct worker *w;
    struct claim *c;
    const struct work_options *options;
    const struct work_output *out;
    struct work_result *r;
    struct job_list jobs; struct job *job;
    struct job_input input;
    struct job_params params;
    struct decode_setup setup;
    struct decoder decoder;
    struct replay replay;
    struct checkpoint *checkpoint;
    size_t place;                        /* of the heartbeat */
    struct snapshot_policy snapshots;
    bool snapshot_notice_shown;
    char no_heads[512];                  /* notice why drafting goes without heads; "": none */
    int32_t *ids;                        /* tokens of earlier attempts, [c->end.tokens] */
    int counter[CHECKPOINT_COUNTERS_MAX];
    int prefill_tokens, prefill_seconds;
    struct draft_stats stored;           /* the statistics that the checkpoints have received */
    struct job_end end;
};

/* Whether the work must stop now; t->r says why. */
static bool must_stop(struct task *t)
{
    struct err *why = &t->r->why;
    if (heartbeat_lost(t->w->beat, t->place) && store_claim_holds(t->w->store, t->c->job, t->c->attempt, why) == 1) {
        t->r->end = WORK_LOST;
        return true;
    }
    if (stop_signal)
        err_set(why, ERR_AGAIN, "stopped by %s", stop_signal_name());
    else if (t->w->deadline > 0 && clock_seconds() >= t->w->deadline)
        err_set(why, ERR_AGAIN, "stopped at --max-time");
    else
        return false;
    t->r->end = WORK_STOPPED;
    return true;
}

static int read_job(struct task *t, struct err *e)
{
    struct store *s = t->w->store;
    if (store_jobs(s, &t->c->job, 1, &t->jobs, e) || store_input(s, t->c->job, &t->input, e))
        return -1;
    if (t->jobs.n != 1)
        return err_set(e, ERR_AGAIN, "job %" PRId64 " was removed", t->c->job);
    t->job = &t->jobs.v[0];
    return 0;
}

static void close_heads(struct worker *w)
{
    heads_close(&w->engine.heads);
    w->heads_path[0] = 0;
}

/* The stamp of the heads at `path`. In a model folder, the heads are tensors of the model's files or a file
 * HEADS_FILE. */
static uint64_t heads_stamp(const char *path)
{
    char file[PATH_BYTES + sizeof HEADS_FILE + 1];
    snprintf(file, sizeof file, "%s/" HEADS_FILE, path);
    return model_stamp(path) + model_stamp(file);
}

/* Open the heads that the job drafts with. If they cannot be opened, --drafter auto drafts without them. */
static int open_heads(struct task *t, struct err *e)
{
    struct worker *w = t->w;
    const char *path = t->params.heads_file ? t->params.heads_file : w->engine.path;
    if (!(t->params.draft.drafters >> SOURCE_HEADS & 1))
        return 0;
    const uint64_t stamp = heads_stamp(path);
    if (strcmp(w->heads_path, path) || w->heads_stamp != stamp) {
        close_heads(w);
        w->heads_stamp = stamp;
        if (heads_open(&w->engine.heads, t->params.heads_file, &w->engine.model, e)) {
            if (!t->params.drafter_auto)
                return -1;
            snprintf(t->no_heads, sizeof t->no_heads, "drafting without heads: %.400s", e->msg);
            t->setup.draft.drafters &= ~(1u << SOURCE_HEADS);
            return 0;
        }
        snprintf(w->heads_path, sizeof w->heads_path, "%s", path);
    }
    t->setup.heads = &w->engine.heads;
    return 0;
}

/* Make the 8-bit model for drafts, if memory has room for it. A failure only means that drafts use the
 * model itself. */
static void open_int8(struct task *t, size_t n_max)
{
    struct worker *w = t->w;
    struct engine *g = &w->engine;
    struct err ignored;
    if (!draft_wants_int8(&t->params.draft, g->dev) ||
        (!g->int8.mem && !job_has_room(&t->params, g, n_max, model_quantized_bytes(&g->config, g->dev))))
        return;
    stop_notice_for("the model in 8 bits");
    if (engine_int8(g, &w->progress, &ignored) == 0)
        t->setup.draft_model = &g->int8;
    stop_notice_for(NULL);
    progress_clear(&w->progress);
}

/* Do everything that may refuse the job: parameters, model, memory. */
static int prepare(struct task *t, struct err *e)
{
    struct worker *w = t->w;
    struct engine *g = &w->engine;
    size_t n_prompt, n_max;
    if (job_parse(&t->params, t->input.parameters, e) || worker_open_model(w, t->job, &t->params, e))
        return -1;
    n_prompt = t->input.n_prompt;
    for (size_t i = 0; i < n_prompt; i++)
        if (t->input.prompt_ids[i] < 0 || (size_t)t->input.prompt_ids[i] >= g->config.vocab)
            return err_set(e, ERR_INPUT,
                           "prompt token %zu is %" PRId32 ", beyond the model's vocabulary of %zu", i,
                           t->input.prompt_ids[i], g->config.vocab);
    if (!n_prompt || !add_size(n_prompt, t->c->wanted, &n_max))
        return err_set(e, ERR_INPUT, "%zu prompt tokens, %zu wanted: no length for a text", n_prompt,
                       t->c->wanted);
    const struct job_binding binding = { t->job->seed, t->job->sample, n_max };
    if (job_bind(&t->params, &g->config, g->tokenizer, g->dir, &binding, e) ||
        job_check_length(&g->config, n_prompt, t->c->wanted, t->params.allow_beyond_context, e))
        return -1;
    /* free the 8-bit model and the heads of the previous job if this job needs their memory */
    if ((g->int8.mem || g->heads.mem) && !job_has_room(&t->params, g, n_max, 0)) {
        model_close(&g->int8);
        close_heads(w);
    }
    if (job_check_memory(&t->params, g, n_max, w->loaded ? g->weight_bytes : 0, e))
        return -1;
    t->setup.draft = t->params.draft;
    int rc = worker_load_model(w, e);
    if (rc || open_heads(t, e))
        return rc ? rc : -1;
    open_int8(t, n_max);
    if (stop_signal)
        return 1;
    if (decode_open(&t->decoder, &g->model, &t->params.sampling, &t->setup, t->input.prompt_ids, n_prompt,
                    n_max, e) ||
        replay_open(&t->replay, w->store, t->job, &t->params, &g->config, g->tokenizer,
                    t->input.prompt_bytes == 0 && !t->params.chat, e))
        return -1;
    return 0;
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
    if (new_text && m->repetitions > repetitions) {
        struct repetition p;
        char note[128];                  /* for people: a report finds the repetition again by itself */
        if (loop_current(m->loop, &p)) {
            snprintf(note, sizeof note, "since token %zu, about every %zu tokens; noticed at token %zu",
                     p.start, p.period, p.found);
            checkpoint_note(t->checkpoint, "repetition", note);
            if (out && out->repeats)
                out->repeats(out->ctx, &p);
        }
    }
    if (out && out->text && n && out->text(out->ctx, bytes, n, new_text, e))
        return -1;
    return out && out->id && !given && m->n > before ? out->id(out->ctx, id, new_text, e) : 0;
}

/* Write a notice to standard error and to the job's history. */
static void write_notice(struct task *t, const char *line)
{
    struct worker *w = t->w;
    checkpoint_note(t->checkpoint, "notice", line);
    if (w->quiet)
        return;
    progress_clear(&w->progress);
    if (w->progress.show == SHOW_JSON) {
        struct json_writer j = jw_begin(stderr, JW_LINE, 0);
        jw_text(&j, "phase", "notice");
        jw_int(&j, "job", t->c->job);
        jw_text(&j, "message", line);
        jw_end(&j);
    } else {
        fprintf(stderr, "job %" PRId64 ": %s\n", t->c->job, line);
    }
}

/* Show the notice of the snapshot policy, once. */
static void snapshot_notice(struct task *t)
{
    if (!t->snapshot_notice_shown && t->snapshots.notice[0]) {
        t->snapshot_notice_shown = true;
        write_notice(t, t->snapshots.notice);
    }
}

static void int8_notice(struct task *t)
{
    char line[160];
    if (t->setup.draft_model || !draft_wants_int8(&t->params.draft, t->w->engine.dev))
        return;
    snprintf(line, sizeof line,
             "memory has no room to spare for the model in 8 bits, %zu MiB: drafts are made with the model "
             "itself, which takes longer",
             (model_quantized_bytes(&t->w->engine.config, t->w->engine.dev) >> 20) + 1);
    write_notice(t, line);
}

static void heads_notice(struct task *t)
{
    char line[PATH_BYTES + 128];
    if (t->no_heads[0])
        write_notice(t, t->no_heads);
    if (!t->setup.heads || !t->setup.heads->foreign)
        return;
    snprintf(line, sizeof line,
             "%s: these heads were trained for another model: few of their guesses will come true, and the "
             "text is the same",
             t->w->heads_path);
    write_notice(t, line);
}

static void open_snapshot_policy(struct task *t)
{
    struct worker *w = t->w;
    struct snapshot_owner owner;
    memset(&owner, 0, sizeof owner);
    owner.job = t->c->job;
    owner.attempt = t->c->attempt;
    snprintf(owner.fingerprint, sizeof owner.fingerprint, "%s", w->fingerprint);
    snprintf(owner.numerics, sizeof owner.numerics, "%s", w->engine.dev->numerics);
    snprintf(owner.context, sizeof owner.context, "%s", w->engine.scaling);
    snapshot_policy_open(&t->snapshots, w->snapshot, w->snapshot_max, w->store, t->c, t->checkpoint,
                         &t->decoder, &owner);
}

static bool prefill_pass(void *ctx, size_t done, size_t of)
{
    struct task *t = ctx;
    t->w->progress.of = of;
    progress_at(&t->w->progress, done);
    snapshot_policy_prefill_pass(&t->snapshots);
    return !must_stop(t);
}

/* Rebuild the state of the job: replay the stored tokens through the emission, then fill the cache. */
static int rebuild(struct task *t, struct err *e)
{
    struct decoder *d = &t->decoder;
    double start = clock_seconds();
    for (size_t i = 0; i < t->c->end.tokens; i++) {
        if (t->ids[i] < 0 || (size_t)t->ids[i] >= t->w->engine.config.vocab)
            return err_set(e, ERR_FAILED, "token %zu is %" PRId32 ", beyond the model's vocabulary", i,
                           t->ids[i]);
        if (t->replay.emit.finish == FINISH_NONE && send_token(t, t->ids[i], false, &t->r->why)) {
            t->r->end = WORK_OUTPUT_FAILED;
            return 1;
        }
    }
    if (t->replay.emit.finish != FINISH_NONE)
        return 0;
    decode_append(d, t->ids, t->c->end.tokens);
    d->stats.from = t->c->end.tokens;
    stop_notice_for("the snapshot to be read");
    snapshot_policy_restore(&t->snapshots);
    snapshot_notice(t);
    progress_phase(&t->w->progress, t->c->end.tokens ? "reading prompt and text" : "reading the prompt",
                   "tokens", d->n_tokens - 1);
    stop_notice_for("this pass over the text");
    int rc = decode_prefill(d, prefill_pass, t, e);
    stop_notice_for(NULL);
    progress_clear(&t->w->progress);
    t->r->prefill_seconds = clock_seconds() - start;
    checkpoint_add(t->checkpoint, t->prefill_tokens, (double)d->count.prefill_tokens);
    checkpoint_add(t->checkpoint, t->prefill_seconds, t->r->prefill_seconds);
    if (rc == 0)
        snapshot_policy_prefilled(&t->snapshots, d->count.prefill_seconds);
    return rc;
}

static void open_counters(struct task *t)
{
    size_t k = 0;
    for (const struct counter *c = counters; c->name; c++)
        for (size_t i = c->kind == PER_DEPTH; i < c->n; i++)
            t->counter[k++] = c->kind == PER_SOURCE
                                  ? checkpoint_counter(t->checkpoint, source_names[i], c->name, 0)
                                  : checkpoint_counter(t->checkpoint, "", c->name, (unsigned)i);
    t->prefill_tokens = checkpoint_counter(t->checkpoint, "", "prefill_tokens", 0);
    t->prefill_seconds = checkpoint_counter(t->checkpoint, "", "prefill_seconds", 0);
}

/* Add to the store's counters what the round added to the statistics. */
static void add_counters(struct task *t)
{
    const struct draft_stats *now = &t->decoder.stats;
    size_t k = 0;
    for (const struct counter *c = counters; c->name; c++)
        for (size_t i = c->kind == PER_DEPTH; i < c->n; i++, k++) {
            double added = counter_value(now, c, i) - counter_value(&t->stored, c, i);
            if (added != 0)
                checkpoint_add(t->checkpoint, t->counter[k], added);
        }
    t->stored = *now;
}

/* The names of the drafters on the accepted path; a static string. */
static const char *path_sources(const struct round_stats *r)
{
    static char names[1 << N_SOURCES][40];       /* only one thread of a process runs a decoder */
    unsigned set = 0;
    for (size_t i = 0; i + 1 < r->tokens; i++)
        set |= r->path_sources[i];
    if (set && !names[set][0])
        for (size_t i = 0; i < N_SOURCES; i++)
            if (set >> i & 1)
                snprintf(names[set] + strlen(names[set]), sizeof names[set] - strlen(names[set]), "%s%s",
                         names[set][0] ? "+" : "", source_names[i]);
    return names[set];
}

/* Decode one round; hand on its tokens, its text and its counters. -1: the model failed. */
static int write_round(struct task *t, struct err *e)
{
    struct decoder *d = &t->decoder;
    struct emit *m = &t->replay.emit;
    const size_t from = d->n_tokens, first = m->n;
    int rc = 0;
    if (decode_step(d, e))
        return -1;
    for (size_t i = from; i < d->n_tokens && m->finish == FINISH_NONE && rc == 0; i++)
        rc = send_token(t, d->tokens[i], true, &t->r->why);
    decode_add_stats(d, m->n - first);
    add_counters(t);
    const struct round_stats *s = &d->round;
    struct round_row row = { .tokens = m->n - first,
                             .sources = path_sources(s),
                             .depth = (unsigned)s->drafted_depth,
                             .drafted = (unsigned)s->drafted,
                             .rows = (unsigned)s->rows,
                             .accepted = (unsigned)MIN(m->n - first, s->tokens - 1),
                             .draft_seconds = (float)s->draft,
                             .verify_seconds = (float)s->verify };
    struct err why;
    int put = checkpoint_put(t->checkpoint, d->tokens + from, m->n - first, &row, &why);
    if (rc) {
        t->r->end = WORK_OUTPUT_FAILED;
        return 1;
    }
    if (put < 0) {
        *e = why;
        return STORE_FAILED;
    }
    if (put) {
        t->r->end = WORK_LOST;
        t->r->why = why;
        return 1;
    }
    struct progress *p = &t->w->progress;
    p->passes = d->stats.rounds;
    if (progress_due(p))
        p->stored = checkpoint_committed(t->checkpoint);
    progress_at(p, m->n);
    return 0;
}

/* Decode rounds until the text ends. */
static int write_text(struct task *t, struct err *e)
{
    struct emit *m = &t->replay.emit;
    int rc = 0;
    progress_phase(&t->w->progress, "writing", "tokens", t->c->wanted);
    progress_from(&t->w->progress, m->n);
    heads_notice(t);
    int8_notice(t);
    double start = clock_seconds();
    stop_notice_for("this round");
    while (m->finish == FINISH_NONE && rc == 0) {
        rc = must_stop(t) ? 1 : write_round(t, e);
        snapshot_policy_round(&t->snapshots);
        snapshot_notice(t);
    }
    stop_notice_for(NULL);
    t->r->seconds = clock_seconds() - start;
    progress_clear(&t->w->progress);
    return rc;
}

static void note_finish(struct task *t)
{
    const struct emit *m = &t->replay.emit;
    struct work_result *r = t->r;
    r->finish = m->finish;
    r->stopped_by_string = m->stop_string != NULL;
    r->stop_reason[0] = 0;
    if (m->stop_string)
        snprintf(r->stop_reason, sizeof r->stop_reason, "%s", m->stop_string);
    else if (m->finish == FINISH_STOP)
        snprintf(r->stop_reason, sizeof r->stop_reason, "%" PRId32, m->stop_token);
    t->end = (struct job_end){ .state = JOB_DONE, .finish_reason = finish_name(m->finish),
                               .stop_reason = r->stop_reason[0] ? r->stop_reason : NULL };
}

/* End the claim as t->r says. */
static int end_claim(struct task *t, struct err *e)
{
    struct work_result *r = t->r;
    switch (r->end) {
    case WORK_DONE: note_finish(t); break;
    case WORK_LOST: return 0;
    case WORK_FAILED: t->end = (struct job_end){ .state = JOB_FAILED, .error = r->why.msg }; break;
    case WORK_REFUSED:
        t->end = (struct job_end){ .state = t->c->was == JOB_RUNNING ? JOB_QUEUED : t->c->was };
        if (t->c->was == JOB_FAILED)
            t->end.error = t->job && t->job->error ? t->job->error : r->why.msg;
        break;
    case WORK_STOPPED:
    case WORK_OUTPUT_FAILED:
    case WORK_DEVICE_FAILED: t->end = (struct job_end){ .state = t->options->state_if_stopped }; break;
    }
    struct commit b = { .end = &t->end };
    int rc =
        t->checkpoint ? checkpoint_end(t->checkpoint, &t->end, e) : store_commit(t->w->store, t->c, &b, e);
    if (rc > 0) {
        r->end = WORK_LOST;
        r->why = *e;
    }
    return rc < 0 ? -1 : 0;
}

/* From the claim to the last token. */
static int run_task(struct task *t, struct err *e)
{
    struct worker *w = t->w;
    int rc = prepare(t, e);
    if (rc) {
        if (rc > 0)
            must_stop(t);
        return rc;
    }
    rc = store_begin(w->store, t->c, w->engine.dev->numerics, w->fingerprint, t->options->accept_change,
                     &t->ids, e);
    if (rc > 0) {
        t->r->end = WORK_LOST;
        t->r->why = *e;
        return 1;
    }
    if (rc < 0)
        return -1;
    if (checkpoint_open(&t->checkpoint, w->committer, t->c, t->options->store_rounds, e))
        return STORE_FAILED;
    open_counters(t);
    open_snapshot_policy(t);
    if (t->out && t->out->begins)
        t->out->begins(t->out->ctx, &t->decoder, &t->params);
    rc = rebuild(t, e);
    if (rc == 0 && t->replay.emit.finish == FINISH_NONE)
        rc = write_text(t, e);
    return rc;
}

static void close_task(struct task *t)
{
    snapshot_policy_close(&t->snapshots);
    checkpoint_close(t->checkpoint);
    if (t->replay.rules.tokens || t->replay.emit.held)
        replay_close(&t->replay);
    decode_close(&t->decoder);
    job_close(&t->params);
    job_input_free(&t->input);
    job_list_free(&t->jobs);
    free(t->ids);
}

int worker_run(struct worker *w, struct claim *c, const struct work_options *options,
               const struct work_output *out, struct work_result *r, struct err *e)
{
    struct task t = { .w = w, .c = c, .options = options, .out = out, .r = r };
    *r = (struct work_result){ .tokens_before = c->end.tokens, .tokens = c->end.tokens };
    w->progress.job = out ? 0 : c->job;          /* progress in the foreground needs no job number */
    t.place = heartbeat_watch(w->beat, c->job, c->attempt);
    int rc = read_job(&t, e);
    if (rc == 0)
        rc = run_task(&t, e);
    /* another process holds the store, or removed the job */
    const bool busy = rc < 0 && e->code == ERR_AGAIN;
    if (rc < 0) {                        /* a damaged row of the store fails this job, not the queue */
        const struct device *dev = w->engine.dev;
        r->end = dev && *dev->error                             ? WORK_DEVICE_FAILED
                 : options->release_if_refused && !t.checkpoint ? WORK_REFUSED
                 : busy                                         ? WORK_STOPPED
                                                                : WORK_FAILED;
        r->why = *e;
    }
    if (rc == 1 && t.checkpoint && (r->end == WORK_STOPPED || r->end == WORK_OUTPUT_FAILED)) {
        snapshot_policy_stop(&t.snapshots);
        snapshot_notice(&t);
    }
    snapshot_policy_close(&t.snapshots);
    rc = rc == STORE_FAILED ? -1 : end_claim(&t, e);
    if (rc == 0 && busy && r->end == WORK_STOPPED) {
        *e = r->why;
        rc = -1;
    }
    if (t.replay.at)
        r->tokens = t.replay.emit.n;
    r->stats = t.decoder.stats;
    r->stats.put = t.checkpoint ? checkpoint_put_seconds(t.checkpoint) : 0;
    t.decoder.stats.window = NULL;
    progress_clear(&w->progress);
    heartbeat_forget(w->beat, t.place);
    close_task(&t);
    snapshot_files_delete_unused(w->store);
    return rc;
}
