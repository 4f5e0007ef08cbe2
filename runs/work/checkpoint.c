/* The queues between the decode loop and the thread that commits to the store.
 *
 * struct committer is the thread of a worker. struct checkpoint is the queue of one job: arrays for the
 * longest possible text, allocated at open. checkpoint_put, on the decode thread, appends to them;
 * commit_thread commits what was appended to all queues since its last commit. Start at these two
 * functions. */
#include "runs/work/checkpoint.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runs/work/thread.h"

static const char *const counter_names[COUNT_ROUNDS_OF] = {
    "checkpoint_commits", "checkpoint_seconds", "checkpoint_cpu_seconds", "checkpoint_put_seconds",
    "prefill_tokens", "prefill_seconds", "shared_tokens", "worker_tokens", "worker_seconds",
    "snapshots", "snapshot_bytes", "snapshot_seconds", "snapshot_cpu_seconds", "snapshot_put_seconds",
    "restored_tokens", "restore_seconds", "restore_saved_seconds",
};

struct committer {
    struct store *store;
    double seconds;                      /* between commits */
    void (*told)(void *ctx, int64_t job); void *ctx;     /* NULL: nobody */
    struct thread thread;
    pthread_cond_t done;
    /* under the thread's lock */
    struct checkpoint *queues[WORKER_JOBS_MAX]; size_t n_queues;
    /* of the committing thread */
    double last_start;                   /* when the last commit began */
    struct checkpoint *committing[WORKER_JOBS_MAX];
    struct job_commit part[WORKER_JOBS_MAX];
};

struct checkpoint {
    /* constant after open; the decode thread registers counters before its first put */
    struct committer *committer;
    size_t base, capacity;               /* tokens of the job that stay; tokens that may be put after them */
    size_t window0, n_windows;           /* windows of METRIC_WINDOW tokens: number of the first, count */
    struct { const char *source, *name; unsigned index; } counter[CHECKPOINT_COUNTERS_MAX];

    /* of the decode thread */
    double round_sum[CHECKPOINT_COUNTERS_MAX];
    double put_seconds;                  /* cost of the last put, and of flushes since */
    double earlier_put_seconds;          /* cost of all puts and flushes before */
    size_t next_settled;                 /* SIZE_MAX: all tokens are */

    /* under the lock of the committer */
    int n_counters;
    int32_t *ids;                        /* [capacity] */
    struct logprob *logprobs; size_t best;   /* [capacity][1 + best], or NULL; committed up to n_put */
    size_t n_put; atomic_size_t n_committed;     /* written under the lock */
    size_t settled;
    struct retakes retakes; size_t cut;  /* not committed yet; tokens that stay in the store, or SIZE_MAX */
    bool begun;                          /* a token was committed */
    struct round_row *rounds; size_t n_rounds;       /* not committed yet; [capacity + 1], or NULL */
    struct note *notes;                  /* [notes_max]; their texts are in note_text[note_bytes] */
    char *note_text;
    size_t n_notes, notes_committed, notes_max, note_bytes, note_used;
    double (*sum)[CHECKPOINT_COUNTERS_MAX];   /* [n_windows]: not committed yet */
    size_t dirty_from, dirty_to;         /* windows with sums that are not committed */
    size_t flushes_requested, flushes_done;
    const struct job_end *end;
    bool in_commit, ended;
    int status;                          /* 0; 1: the job is lost; -1: failed, see `err` */
    struct err err;

    /* of the committing thread */
    struct claim claim;
    struct metric *commit_counters;      /* counters of a commit, [n_windows * CHECKPOINT_COUNTERS_MAX] */
    size_t part_flushes;                 /* the flushes that the commit in progress answers */
    double last_start;                   /* when the job's last commit began */
    double rate;                         /* tokens per second; 0: not known yet */
};

/* The counters' sums of the window in which token c->base + `tokens` lies, for the caller to change; the next
 * commit stores them. The caller holds the lock. */
static double *dirty_window(struct checkpoint *c, size_t tokens)
{
    size_t window = MIN((c->base + tokens) / METRIC_WINDOW - c->window0, c->n_windows - 1);
    c->dirty_from = MIN(c->dirty_from, window);
    c->dirty_to = MAX(c->dirty_to, window + 1);
    return c->sum[window];
}

/* ---- the committing thread ---- */

static bool is_over(const struct checkpoint *c) { return c->status || c->ended; }

/* When the next commit is due: 0: at once; INFINITY: nothing waits. The caller holds the lock. */
static double next_due(const struct committer *k)
{
    double due = INFINITY;
    for (size_t i = 0; i < k->n_queues; i++) {
        const struct checkpoint *c = k->queues[i];
        if (is_over(c))
            continue;
        if (c->end || c->flushes_requested > c->flushes_done || (!c->begun && c->n_put > c->n_committed))
            return 0;
        if (c->n_put > c->n_committed || c->n_notes > c->notes_committed || c->retakes.n)
            due = k->last_start + k->seconds;
    }
    return due;
}

/* Wait for a reason to commit; false: stop. The caller holds the lock. */
static bool wait_for_work(struct committer *k)
{
    while (!k->thread.stop) {
        const double due = next_due(k);
        if (clock_seconds() >= due)
            return true;
        if (due < INFINITY)
            cond_wait_until(&k->thread.wake, &k->thread.lock, due);
        else
            pthread_cond_wait(&k->thread.wake, &k->thread.lock);
    }
    return false;
}

/* Collect everything put since the last commit. The caller holds the lock; takes a few microseconds. */
static void gather(struct checkpoint *c, struct commit *b)
{
    *b = (struct commit){ .ids = c->ids + c->n_committed,
                          .n = c->n_put - c->n_committed,
                          .logprobs = c->logprobs ? c->logprobs + c->n_committed * (1 + c->best) : NULL,
                          .best = c->best,
                          .rounds = c->rounds, .n_rounds = c->n_rounds,
                          .cut = c->cut, .retakes = c->retakes.v, .n_retakes = c->retakes.n,
                          .settled = c->settled,
                          .metrics = c->commit_counters,
                          .end = c->end,
                          .notes = c->notes + c->notes_committed,
                          .n_notes = c->n_notes - c->notes_committed };
    for (size_t w = c->dirty_from; w < c->dirty_to; w++)
        for (int i = 0; i < c->n_counters; i++) {
            double v = c->sum[w][i];
            c->sum[w][i] = 0;
            if (v != 0)
                c->commit_counters[b->n_metrics++] =
                    (struct metric){ .window = (c->window0 + w) * METRIC_WINDOW,
                                     .source = c->counter[i].source,
                                     .name = c->counter[i].name,
                                     .index = c->counter[i].index,
                                     .value = v };
        }
    c->dirty_from = c->n_windows;
    c->dirty_to = 0;
}

/* Update the rate: tokens of text per second, averaged over about ten seconds. n: by how many tokens the text
 * has grown, below 0 after a retake. */
static void update_rate(struct checkpoint *c, double n, double now)
{
    double dt = now - c->last_start;
    if (!c->begun || dt <= 0)            /* the time before the first token was prefill */
        return;
    double keep = c->rate > 0 ? 10 / (10 + dt) : 0;
    c->rate = MAX(keep * c->rate + (1 - keep) * n / dt, 0.0);
}

/* Make a part for every job that has something to commit. The caller holds the lock. */
static size_t gather_all(struct committer *k, double now)
{
    size_t n = 0;
    for (size_t i = 0; i < k->n_queues; i++) {
        struct checkpoint *c = k->queues[i];
        struct commit b;
        if (is_over(c))
            continue;
        gather(c, &b);
        c->part_flushes = c->flushes_requested;
        if (!b.n && !b.n_retakes && !b.n_metrics && !b.n_rounds && !b.n_notes && !b.end) {
            c->flushes_done = c->part_flushes;
            continue;
        }
        update_rate(c, (double)(c->base + c->n_put) - (double)c->claim.end.tokens, now);
        b.rate = c->rate;
        c->last_start = now;
        c->in_commit = true;
        k->committing[n] = c;
        k->part[n].claim = &c->claim;
        k->part[n++].add = b;
    }
    return n;
}

/* Note the result of a job's part, and its share of the cost. Nothing was taken back meanwhile, for take_back
 * waits for the end of a commit. The caller holds the lock. */
static void part_done(struct checkpoint *c, const struct job_commit *part, double seconds, double cpu)
{
    const struct commit *b = &part->add;
    c->in_commit = false;
    if (part->rc == 0) {
        c->begun |= b->n > 0;
        c->n_committed += b->n;
        c->retakes.n = 0;
        c->cut = SIZE_MAX;
        c->n_rounds -= b->n_rounds;
        if (c->n_rounds)
            memmove(c->rounds, c->rounds + b->n_rounds, c->n_rounds * sizeof *c->rounds);
        c->notes_committed += b->n_notes;
        c->flushes_done = c->part_flushes;
        c->ended = b->end != NULL;
    } else {
        c->status = part->rc;
        c->err = part->err;
    }
    double *sum = dirty_window(c, c->n_committed);
    sum[COUNT_COMMITS]++;
    sum[COUNT_COMMIT_SECONDS] += seconds;
    sum[COUNT_COMMIT_CPU_SECONDS] += cpu;
}

static void *commit_thread(void *p)
{
    struct committer *k = p;
    struct err e;
    pthread_mutex_lock(&k->thread.lock);
    while (wait_for_work(k)) {
        double start = clock_seconds(), cpu = thread_cpu_seconds();
        const size_t n = gather_all(k, start);
        k->last_start = start;
        if (n) {
            pthread_mutex_unlock(&k->thread.lock);
            store_commit_all(k->store, k->part, n, &e);      /* every part has its own result */
            pthread_mutex_lock(&k->thread.lock);
        }
        const double seconds = clock_seconds() - start;
        cpu = thread_cpu_seconds() - cpu;
        for (size_t i = 0; i < n; i++) {
            part_done(k->committing[i], &k->part[i], seconds / (double)n, cpu / (double)n);
            if (k->told)
                k->told(k->ctx, k->committing[i]->claim.job);
        }
        pthread_cond_broadcast(&k->done);
    }
    pthread_mutex_unlock(&k->thread.lock);
    return NULL;
}

int committer_open(struct committer **out, const struct store *s, double seconds,
                   void (*told)(void *ctx, int64_t job), void *ctx, struct err *e)
{
    struct committer *k = calloc(1, sizeof *k);
    *out = NULL;
    if (!k)
        return err_set(e, ERR_FAILED, "out of memory for checkpoints");
    k->seconds = seconds > 0 ? seconds : CHECKPOINT_SECONDS;
    k->told = told;
    k->ctx = ctx;
    thread_open(&k->thread);
    cond_init(&k->done);
    if (store_reopen(&k->store, s, e) || thread_start(&k->thread, commit_thread, k, "checkpoints", e)) {
        store_close(k->store);
        free(k);
        return -1;
    }
    *out = k;
    return 0;
}

void committer_close(struct committer *k)
{
    if (!k)
        return;
    assert(k->n_queues == 0);
    thread_stop(&k->thread);
    pthread_cond_destroy(&k->done);
    store_close(k->store);
    free(k);
}

/* ---- the decode thread ---- */

static void free_all(struct checkpoint *c)
{
    free(c->ids);
    free(c->logprobs);
    free(c->sum);
    free(c->commit_counters);
    free(c->rounds);
    free(c->notes);
    free(c->note_text);
    retakes_free(&c->retakes);
    free(c);
}

int checkpoint_open(struct checkpoint **out, struct committer *k, const struct claim *claim,
                    const struct checkpoint_options *o, struct err *e)
{
    struct checkpoint *c = calloc(1, sizeof *c);
    const size_t tokens = claim->end.tokens, more = MAX(claim->wanted, tokens) - tokens;
    *out = NULL;
    if (!c)
        return err_set(e, ERR_FAILED, "out of memory for checkpoints");
    c->committer = k;
    c->claim = *claim;
    c->settled = c->cut = SIZE_MAX;
    c->next_settled = o->retakes ? o->settled : SIZE_MAX;
    c->base = MIN(c->next_settled, tokens);
    c->n_put = c->n_committed = tokens - c->base;
    c->capacity = c->n_put + more;
    c->window0 = c->base / METRIC_WINDOW;
    c->n_windows = (c->base + c->capacity) / METRIC_WINDOW - c->window0 + 1;
    c->dirty_from = c->n_windows;
    c->ids = calloc(c->capacity + 1, sizeof *c->ids);
    c->logprobs = o->logprobs ? calloc((c->capacity + 1) * (1 + o->best), sizeof *c->logprobs) : NULL;
    c->best = o->best;
    c->sum = calloc(c->n_windows, sizeof *c->sum);
    c->commit_counters = calloc(c->n_windows * CHECKPOINT_COUNTERS_MAX, sizeof *c->commit_counters);
    c->rounds = o->rounds ? calloc(c->capacity + 1, sizeof *c->rounds) : NULL;
    c->notes_max = CHECKPOINT_NOTES + more / CHECKPOINT_NOTES;
    c->note_bytes = CHECKPOINT_NOTE_BYTES + more;
    c->notes = calloc(c->notes_max, sizeof *c->notes);
    c->note_text = malloc(c->note_bytes);
    if (!c->ids || (o->logprobs && !c->logprobs) || !c->sum || !c->commit_counters ||
        (o->rounds && !c->rounds) || !c->notes || !c->note_text) {
        free_all(c);
        return err_set(e, ERR_FAILED, "out of memory for checkpoints of %zu tokens", more);
    }
    if (c->n_put)
        memcpy(c->ids, o->ids + c->base, c->n_put * sizeof *c->ids);
    for (unsigned i = 0; i < COUNTS; i++)
        checkpoint_counter(c, "", i < COUNT_ROUNDS_OF ? counter_names[i] : "jobs",
                           i < COUNT_ROUNDS_OF ? 0 : i - COUNT_ROUNDS_OF + 1);
    pthread_mutex_lock(&k->thread.lock);
    assert(k->n_queues < WORKER_JOBS_MAX);
    k->queues[k->n_queues++] = c;
    pthread_mutex_unlock(&k->thread.lock);
    *out = c;
    return 0;
}

void checkpoint_settled(struct checkpoint *c, size_t settled) { c->next_settled = settled; }

/* Needs no lock: the committing thread reads no tokens from n_put on. */
void checkpoint_put_logprobs(struct checkpoint *c, const struct logprob *v, size_t n)
{
    assert(c->logprobs && n <= c->capacity - c->n_put);
    memcpy(c->logprobs + c->n_put * (1 + c->best), v, n * (1 + c->best) * sizeof *v);
}

int checkpoint_counter(struct checkpoint *c, const char *source, const char *name, unsigned index)
{
    assert(c->n_counters < CHECKPOINT_COUNTERS_MAX && !c->begun);
    int i = c->n_counters++;
    c->counter[i].source = source;
    c->counter[i].name = name;
    c->counter[i].index = index;
    return i;
}

void checkpoint_add(struct checkpoint *c, int counter, double value)
{
    assert(counter > COUNT_PUT_SECONDS && counter < c->n_counters);
    c->round_sum[counter] += value;
}

static int status(struct checkpoint *c, struct err *e)
{
    if (c->status)
        *e = c->err;
    return c->status;
}

int checkpoint_put(struct checkpoint *c, const int32_t *ids, size_t n, const struct round_row *round,
                   struct err *e)
{
    double start = clock_seconds();
    pthread_mutex_lock(&c->committer->thread.lock);
    assert(n <= c->capacity - c->n_put && !c->end);
    double *sum = dirty_window(c, c->n_put);
    if (n)
        memcpy(c->ids + c->n_put, ids, n * sizeof *ids);
    if (round && c->rounds && n) {
        c->rounds[c->n_rounds] = *round;
        c->rounds[c->n_rounds].start = c->base + c->n_put;
        c->rounds[c->n_rounds++].tokens = n;
    }
    c->round_sum[COUNT_PUT_SECONDS] = c->put_seconds;
    c->earlier_put_seconds += c->put_seconds;
    for (int i = 0; i < c->n_counters; i++)
        sum[i] += c->round_sum[i];
    bool wake = c->n_put == c->n_committed && n > 0;
    c->n_put += n;
    c->settled = c->next_settled;
    int rc = status(c, e);
    if (wake)
        pthread_cond_signal(&c->committer->thread.wake);
    pthread_mutex_unlock(&c->committer->thread.lock);
    memset(c->round_sum, 0, sizeof c->round_sum);
    c->put_seconds = clock_seconds() - start;        /* counted with the next round */
    return rc;
}

/* Drop the rounds from token `at` on that are not committed, and let the one before end there. */
static void cut_rounds(struct checkpoint *c, size_t at)
{
    while (c->n_rounds && c->rounds[c->n_rounds - 1].start >= at)
        c->n_rounds--;
    struct round_row *last = c->n_rounds ? &c->rounds[c->n_rounds - 1] : NULL;
    if (last)
        last->tokens = MIN(last->tokens, at - last->start);
}

/* Waits for a commit in progress. The caller holds the lock. */
static int take_back(struct checkpoint *c, const struct retake *x, struct err *e)
{
    while (c->in_commit)
        pthread_cond_wait(&c->committer->done, &c->committer->thread.lock);
    const int rc = status(c, e);
    assert(x->at >= c->base && x->at - c->base <= c->n_put && !c->end);
    if (rc || retakes_add(&c->retakes, x, e))
        return rc ? rc : -1;
    c->n_put = x->at - c->base;
    if (c->n_committed > c->n_put) {
        c->n_committed = c->n_put;
        c->cut = x->at;
    }
    cut_rounds(c, x->at);
    return 0;
}

int checkpoint_retake(struct checkpoint *c, const struct retake *x, struct err *e)
{
    const double start = clock_seconds();
    struct committer *k = c->committer;
    pthread_mutex_lock(&k->thread.lock);
    const int rc = take_back(c, x, e);
    pthread_cond_signal(&k->thread.wake);
    pthread_mutex_unlock(&k->thread.lock);
    c->put_seconds += clock_seconds() - start;
    return rc;
}

double checkpoint_put_seconds(const struct checkpoint *c) { return c->earlier_put_seconds + c->put_seconds; }

void checkpoint_note(struct checkpoint *c, const char *kind, const char *text)
{
    pthread_mutex_lock(&c->committer->thread.lock);
    size_t room = c->note_bytes - c->note_used,
           n = utf8_valid_prefix(text, MIN(strlen(text), room ? room - 1 : 0));
    if (c->n_notes < c->notes_max && room) {
        char *copy = c->note_text + c->note_used;
        memcpy(copy, text, n);
        copy[n] = 0;
        c->note_used += n + 1;
        c->notes[c->n_notes++] = (struct note){ kind, copy, wall_seconds() };
        pthread_cond_signal(&c->committer->thread.wake);
    }
    pthread_mutex_unlock(&c->committer->thread.lock);
}

/* Wait until flush number `flush`, or the end, is committed. Releases the lock, which the caller holds. */
static int wait_done(struct checkpoint *c, size_t flush, struct err *e)
{
    pthread_cond_signal(&c->committer->thread.wake);
    while (c->status == 0 && (c->end ? !c->ended : c->flushes_done < flush))
        pthread_cond_wait(&c->committer->done, &c->committer->thread.lock);
    int rc = status(c, e);
    pthread_mutex_unlock(&c->committer->thread.lock);
    return rc;
}

int checkpoint_flush(struct checkpoint *c, struct err *e)
{
    double start = clock_seconds();
    pthread_mutex_lock(&c->committer->thread.lock);
    assert(!c->end);
    int rc = wait_done(c, ++c->flushes_requested, e);
    c->put_seconds += clock_seconds() - start;
    return rc;
}

int checkpoint_end(struct checkpoint *c, const struct job_end *end, const struct retake *last, struct err *e)
{
    int rc = checkpoint_put(c, NULL, 0, NULL, e);    /* counters added after the last round */
    if (rc)
        return rc;
    pthread_mutex_lock(&c->committer->thread.lock);
    if (last && (rc = take_back(c, last, e))) {
        pthread_mutex_unlock(&c->committer->thread.lock);
        return rc;
    }
    c->end = end;
    return wait_done(c, 0, e);
}

void checkpoint_close(struct checkpoint *c)
{
    if (!c)
        return;
    struct committer *k = c->committer;
    pthread_mutex_lock(&k->thread.lock);
    while (c->in_commit)
        pthread_cond_wait(&k->done, &k->thread.lock);
    size_t i = 0;
    while (k->queues[i] != c)
        i++;
    k->queues[i] = k->queues[--k->n_queues];
    pthread_mutex_unlock(&k->thread.lock);
    free_all(c);
}

size_t checkpoint_committed(struct checkpoint *c) { return c->base + c->n_committed; }
