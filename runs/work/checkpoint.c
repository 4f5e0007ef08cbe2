/* The queue between the decode loop and the thread that commits to the store.
 *
 * struct checkpoint holds arrays for the longest possible text, allocated at open. checkpoint_put, on the
 * decode thread, appends to them; checkpoint_thread commits what was appended since its last commit. Start at
 * these two functions. */
#include "runs/work/checkpoint.h"

#include <stdlib.h>
#include <string.h>

#include "runs/work/thread.h"

/* The first counters: the cost of the checkpoints themselves. */
enum { OWN_COMMITS, OWN_SECONDS, OWN_CPU_SECONDS, OWN_PUT_SECONDS, N_OWN };

struct checkpoint {
    /* constant after open; the decode thread registers counters before its first put */
    struct checkpoint_options o;
    size_t base, capacity;               /* tokens of the job at open; tokens that may be put */
    size_t window0, n_windows;           /* windows of METRIC_WINDOW tokens: number of the first, count */
    struct { const char *source, *name; unsigned index; } counter[CHECKPOINT_COUNTERS_MAX];

    /* of the decode thread */
    double round_sum[CHECKPOINT_COUNTERS_MAX];
    double put_seconds;                  /* cost of the last put, and of flushes since */
    double earlier_put_seconds;          /* cost of all puts and flushes before */

    /* under the lock */
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    int n_counters;
    int32_t *ids;                        /* [capacity] */
    size_t n_put, n_committed;
    struct round_row *rounds;            /* [capacity + 1], or NULL */
    size_t n_rounds, rounds_committed;
    struct note *notes;                  /* [notes_max]; their texts are in note_text[note_bytes] */
    char *note_text;
    size_t n_notes, notes_committed, notes_max, note_bytes, note_used;
    double (*sum)[CHECKPOINT_COUNTERS_MAX];   /* [n_windows]: not committed yet */
    size_t dirty_from, dirty_to;         /* windows with sums that are not committed */
    size_t flushes_requested, flushes_done;
    const struct job_end *end;
    bool stop, ended;
    int status;                          /* 0; 1: the job is lost; -1: failed, see `err` */
    struct err err;

    /* of the committing thread */
    pthread_t thread;
    struct store *store;
    struct claim claim;
    struct metric *commit_counters;      /* counters of a commit, [n_windows * CHECKPOINT_COUNTERS_MAX] */
    double last_start;                   /* when the last commit began */
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

/* Whether tokens or notes wait for a commit. The caller holds the lock. */
static bool pending(const struct checkpoint *c)
{
    return c->n_put > c->n_committed || c->n_notes > c->notes_committed;
}

/* Wait for a reason to commit; false: stop. The caller holds the lock. */
static bool wait_for_work(struct checkpoint *c)
{
    while (!c->stop && c->status == 0) {
        const bool first = c->n_committed == 0 && c->n_put > 0;
        double due = first ? 0 : c->last_start + c->o.seconds, now = clock_seconds();
        if (c->end || c->flushes_requested > c->flushes_done || (pending(c) && now >= due))
            return true;
        if (pending(c))
            cond_wait_until(&c->work, &c->lock, due);
        else
            pthread_cond_wait(&c->work, &c->lock);
    }
    return false;
}

/* Collect everything put since the last commit. The caller holds the lock; takes a few microseconds. */
static void gather(struct checkpoint *c, struct commit *b)
{
    *b = (struct commit){ .ids = c->ids + c->n_committed,
                          .n = c->n_put - c->n_committed,
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
    if (c->rounds) {
        b->rounds = c->rounds + c->rounds_committed;
        b->n_rounds = c->n_rounds - c->rounds_committed;
    }
}

/* Update the rate: tokens per second, averaged over about ten seconds. */
static void update_rate(struct checkpoint *c, size_t n, double now)
{
    double dt = now - c->last_start;
    if (c->n_committed == 0 || dt <= 0)  /* the time before the first token was prefill */
        return;
    double keep = c->rate > 0 ? 10 / (10 + dt) : 0;
    c->rate = keep * c->rate + (1 - keep) * (double)n / dt;
}

static void *checkpoint_thread(void *p)
{
    struct checkpoint *c = p;
    struct commit b;
    struct err e;
    pthread_mutex_lock(&c->lock);
    while (wait_for_work(c)) {
        size_t flushes = c->flushes_requested, n_put = c->n_put, n_rounds = c->n_rounds, n_notes = c->n_notes;
        gather(c, &b);
        pthread_mutex_unlock(&c->lock);
        double start = clock_seconds(), cpu = thread_cpu_seconds();
        update_rate(c, b.n, start);
        b.rate = c->rate;
        bool nothing = !b.n && !b.n_metrics && !b.n_rounds && !b.n_notes && !b.end;
        int rc = nothing ? 0 : store_commit(c->store, &c->claim, &b, &e);
        double seconds = clock_seconds() - start;
        cpu = thread_cpu_seconds() - cpu;
        c->last_start = start;
        pthread_mutex_lock(&c->lock);
        if (rc == 0) {
            c->n_committed = n_put;
            c->rounds_committed = n_rounds;
            c->notes_committed = n_notes;
            c->flushes_done = flushes;
            c->ended = b.end != NULL;
            if (b.end)
                c->stop = true;
        } else {
            c->status = rc;
            c->err = e;
        }
        double *sum = dirty_window(c, n_put);
        sum[OWN_COMMITS]++;
        sum[OWN_SECONDS] += seconds;
        sum[OWN_CPU_SECONDS] += cpu;
        pthread_cond_broadcast(&c->done);
    }
    pthread_cond_broadcast(&c->done);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- the decode thread ---- */

static void free_all(struct checkpoint *c)
{
    store_close(c->store);
    free(c->ids);
    free(c->sum);
    free(c->commit_counters);
    free(c->rounds);
    free(c->notes);
    free(c->note_text);
    free(c);
}

int checkpoint_open(struct checkpoint **out, const struct store *s, const struct claim *claim,
                    const struct checkpoint_options *o, struct err *e)
{
    static const char *const own[N_OWN] = { "checkpoint_commits", "checkpoint_seconds",
                                            "checkpoint_cpu_seconds", "checkpoint_put_seconds" };
    struct checkpoint *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return err_set(e, ERR_FAILED, "out of memory for checkpoints");
    c->o = *o;
    if (c->o.seconds <= 0)
        c->o.seconds = CHECKPOINT_SECONDS;
    c->claim = *claim;
    c->base = claim->end.tokens;
    c->capacity = claim->wanted > claim->end.tokens ? claim->wanted - claim->end.tokens : 0;
    c->window0 = c->base / METRIC_WINDOW;
    c->n_windows = (c->base + c->capacity) / METRIC_WINDOW - c->window0 + 1;
    c->dirty_from = c->n_windows;
    c->ids = calloc(c->capacity + 1, sizeof *c->ids);
    c->sum = calloc(c->n_windows, sizeof *c->sum);
    c->commit_counters = calloc(c->n_windows * CHECKPOINT_COUNTERS_MAX, sizeof *c->commit_counters);
    c->rounds = o->rounds ? calloc(c->capacity + 1, sizeof *c->rounds) : NULL;
    c->notes_max = CHECKPOINT_NOTES + c->capacity / CHECKPOINT_NOTES;
    c->note_bytes = CHECKPOINT_NOTE_BYTES + c->capacity;
    c->notes = calloc(c->notes_max, sizeof *c->notes);
    c->note_text = malloc(c->note_bytes);
    if (!c->ids || !c->sum || !c->commit_counters || (o->rounds && !c->rounds) || !c->notes ||
        !c->note_text) {
        err_set(e, ERR_FAILED, "out of memory for checkpoints of %zu tokens", c->capacity);
        goto fail;
    }
    for (int i = 0; i < N_OWN; i++)
        checkpoint_counter(c, "", own[i], 0);
    pthread_mutex_init(&c->lock, NULL);
    cond_init(&c->work);
    cond_init(&c->done);
    if (store_reopen(&c->store, s, e) || thread_start(&c->thread, checkpoint_thread, c, "checkpoints", e))
        goto fail;
    *out = c;
    return 0;
fail:
    free_all(c);
    return -1;
}

int checkpoint_counter(struct checkpoint *c, const char *source, const char *name, unsigned index)
{
    assert(c->n_counters < CHECKPOINT_COUNTERS_MAX && c->n_put == 0);
    int i = c->n_counters++;
    c->counter[i].source = source;
    c->counter[i].name = name;
    c->counter[i].index = index;
    return i;
}

void checkpoint_add(struct checkpoint *c, int counter, double value)
{
    assert(counter >= N_OWN && counter < c->n_counters);
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
    pthread_mutex_lock(&c->lock);
    assert(n <= c->capacity - c->n_put && !c->end);
    double *sum = dirty_window(c, c->n_put);
    if (n)
        memcpy(c->ids + c->n_put, ids, n * sizeof *ids);
    if (round && c->rounds && n) {
        c->rounds[c->n_rounds] = *round;
        c->rounds[c->n_rounds].start = c->base + c->n_put;
        c->rounds[c->n_rounds++].tokens = n;
    }
    c->round_sum[OWN_PUT_SECONDS] = c->put_seconds;
    c->earlier_put_seconds += c->put_seconds;
    for (int i = 0; i < c->n_counters; i++)
        sum[i] += c->round_sum[i];
    bool wake = c->n_put == c->n_committed && n > 0;
    c->n_put += n;
    int rc = status(c, e);
    if (wake)
        pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
    memset(c->round_sum, 0, sizeof c->round_sum);
    c->put_seconds = clock_seconds() - start;        /* counted with the next round */
    return rc;
}

double checkpoint_put_seconds(const struct checkpoint *c) { return c->earlier_put_seconds + c->put_seconds; }

void checkpoint_note(struct checkpoint *c, const char *kind, const char *text)
{
    pthread_mutex_lock(&c->lock);
    size_t room = c->note_bytes - c->note_used,
           n = utf8_valid_prefix(text, MIN(strlen(text), room ? room - 1 : 0));
    if (c->n_notes < c->notes_max && room) {
        char *copy = c->note_text + c->note_used;
        memcpy(copy, text, n);
        copy[n] = 0;
        c->note_used += n + 1;
        c->notes[c->n_notes++] = (struct note){ kind, copy, wall_seconds() };
        pthread_cond_signal(&c->work);
    }
    pthread_mutex_unlock(&c->lock);
}

/* Wait until flush number `flush`, or the end, is committed. Releases the lock, which the caller holds. */
static int wait_done(struct checkpoint *c, size_t flush, struct err *e)
{
    pthread_cond_signal(&c->work);
    while (c->status == 0 && (c->end ? !c->ended : c->flushes_done < flush))
        pthread_cond_wait(&c->done, &c->lock);
    int rc = status(c, e);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

int checkpoint_flush(struct checkpoint *c, struct err *e)
{
    double start = clock_seconds();
    pthread_mutex_lock(&c->lock);
    assert(!c->end);
    int rc = wait_done(c, ++c->flushes_requested, e);
    c->put_seconds += clock_seconds() - start;
    return rc;
}

int checkpoint_end(struct checkpoint *c, const struct job_end *end, struct err *e)
{
    int rc = checkpoint_put(c, NULL, 0, NULL, e);    /* counters added after the last round */
    if (rc)
        return rc;
    pthread_mutex_lock(&c->lock);
    c->end = end;
    return wait_done(c, 0, e);
}

void checkpoint_close(struct checkpoint *c)
{
    if (!c)
        return;
    thread_stop(c->thread, &c->lock, &c->work, &c->stop);
    pthread_cond_destroy(&c->done);
    free_all(c);
}

size_t checkpoint_committed(struct checkpoint *c)
{
    pthread_mutex_lock(&c->lock);
    size_t n = c->base + c->n_committed;
    pthread_mutex_unlock(&c->lock);
    return n;
}
