/* The pass over the data of a model's files. Its work is a list of units; start at read_tensors, then
 * read_unit. */
#include "src/model/reading.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    UNIT_BYTES = 2 * READING_PIECE,      /* an even number of pieces: they are hashed in pairs */
    AHEAD = 16,                          /* units that the kernel is asked to read before they are needed */
};

struct unit {
    size_t tensor;
    int shard; size_t at;                /* the file, and the place in it */
    size_t from, n;                      /* bytes of the tensor's data */
    size_t piece;                        /* number of its first digest */
};

/* The bytes that a unit reads, and the rows that it hands on. */
struct span { size_t from, end, rows_from, row, rows; };

struct pass {
    const struct reading *r;
    struct unit *unit; size_t n, total;
    size_t room_bytes; char *room;       /* [threads][room_bytes] */
    size_t first;                        /* of the units that pool_run works on */
    atomic_size_t next, done;
    atomic_bool stop;
    pthread_mutex_t lock;                /* of the error: that of the first unit which failed */
    size_t failed; struct err e;
};

size_t tensor_pieces(const struct tensor *t)
{
    return (tensor_stored_bytes(t) + READING_PIECE - 1) / READING_PIECE;
}

size_t reading_pieces(const struct tensors *ts)
{
    size_t n = 0;
    for (size_t i = 0; i < ts->n; i++)
        n += tensor_pieces(&ts->t[i]);
    return n;
}

static size_t group_bytes(const struct reading *r, size_t i)
{
    const struct tensor *t = &r->ts->t[i];
    const size_t rows = r->group ? r->group(r->ctx, i) : 0;
    return !rows                    ? 0
           : tensor_is_transposed(t) ? tensor_stored_bytes(t)
                                    : MIN(rows, t->dim[0]) * (tensor_stored_bytes(t) / t->dim[0]);
}

static struct span span_of(const struct reading *r, const struct unit *u)
{
    const struct tensor *t = &r->ts->t[u->tensor];
    const size_t group = group_bytes(r, u->tensor), all = tensor_stored_bytes(t);
    struct span s = { .from = u->from, .end = u->from + u->n };
    const size_t begin = group ? (u->from + group - 1) / group * group : s.end;
    if (begin < s.end) {
        const size_t row_bytes = all / t->dim[0], rows_end = MIN(all, (s.end + group - 1) / group * group);
        s.rows_from = begin;
        s.row = begin / row_bytes;
        s.rows = (rows_end - begin) / row_bytes;
        s.end = rows_end;
        s.from = r->digest ? s.from : begin;
    } else if (!r->digest) {
        s.end = s.from;
    }
    return s;
}

static void hash(const struct reading *r, const struct unit *u, const char *data)
{
    uint8_t (*to)[SHA256_BYTES] = r->digest + u->piece;
    size_t at = 0;
    for (; u->n - at >= 2 * READING_PIECE; at += 2 * READING_PIECE, to += 2)
        sha256_pair(to, data + at, data + at + READING_PIECE, READING_PIECE);
    for (; at < u->n; at += READING_PIECE)
        sha256_of(*to++, data + at, MIN((size_t)READING_PIECE, u->n - at));
}

static void fail(struct pass *p, size_t u, const struct err *e)
{
    pthread_mutex_lock(&p->lock);
    if (u < p->failed) {
        p->failed = u;
        p->e = *e;
    }
    pthread_mutex_unlock(&p->lock);
    p->stop = true;
}

static void read_unit(struct pass *p, size_t i, char *room)
{
    const struct reading *r = p->r;
    const struct unit *u = &p->unit[i];
    const struct tensor *t = &r->ts->t[u->tensor];
    const struct span s = span_of(r, u);
    struct err e = { 0 };
    if (i + AHEAD < p->n) {
        const struct unit *later = u + AHEAD;
        posix_fadvise(r->ts->fd[later->shard], (off_t)later->at, (off_t)later->n, POSIX_FADV_WILLNEED);
    }
    if (read_at(r->ts->fd[t->shard], r->ts->path[t->shard], room, t->offset + s.from, s.end - s.from, &e))
        fail(p, i, &e);
    else if (r->digest)
        hash(r, u, room);
}

static void take_unit(struct pass *p, size_t i, const char *room, size_t thread)
{
    const struct reading *r = p->r;
    const struct unit *u = &p->unit[i];
    const struct span s = span_of(r, u);
    struct err e = { 0 };
    if (s.rows && !p->stop &&
        r->take(r->ctx, u->tensor, s.row, s.rows, room + (s.rows_from - s.from), thread, &e))
        fail(p, i, &e);
    p->done += u->n;
}

static void report(struct pass *p)
{
    const struct reading *r = p->r;
    const size_t done = p->done;
    struct err e = { 0 };
    if (p->stop || !r->progress || r->progress(r->progress_ctx, done, p->total))
        return;
    err_set(&e, ERR_AGAIN, "stopped after %zu of %zu bytes", done, p->total);
    fail(p, 0, &e);
}

/* Each thread takes the next unit, so the files are read in order. */
static void work(void *ctx, size_t item, size_t thread)
{
    struct pass *p = ctx;
    char *room = p->room + thread * p->room_bytes;
    (void)item;
    for (size_t i; !p->stop && (i = p->next++) < p->n;) {
        read_unit(p, i, room);
        take_unit(p, i, room, thread);
        if (thread == 0)
            report(p);
    }
}

static void read_item(void *ctx, size_t i, size_t thread)
{
    struct pass *p = ctx;
    (void)thread;
    read_unit(p, p->first + i, p->room + i * p->room_bytes);
}

/* Calls fn for n items. */
static void in_pool(struct pass *p, size_t n, void (*fn)(void *ctx, size_t i, size_t thread))
{
    if (p->r->pool)
        pool_run(p->r->pool, n, fn, p);
    else if (n)
        fn(p, 0, 0);
}

static void run(struct pass *p, size_t threads)
{
    if (!p->r->take_alone)
        in_pool(p, threads, work);
    for (size_t n; p->r->take_alone && p->first < p->n && !p->stop; p->first += n) {
        n = MIN(threads, p->n - p->first);
        in_pool(p, n, read_item);
        for (size_t i = 0; i < n; i++)
            take_unit(p, p->first + i, p->room + i * p->room_bytes, 0);
        report(p);
    }
}

static int by_place(const void *a, const void *b)
{
    const struct unit *x = a, *y = b;
    return x->shard != y->shard ? (x->shard > y->shard) - (x->shard < y->shard)
                                : (x->at > y->at) - (x->at < y->at);
}

/* Lists the units in the order of the files. */
static int list(struct pass *p, struct err *e)
{
    const struct reading *r = p->r;
    size_t room = 0;
    p->unit = malloc((reading_pieces(r->ts) + 1) * sizeof *p->unit);
    if (!p->unit)
        return err_set(e, ERR_FAILED, "out of memory for a list of %zu pieces", reading_pieces(r->ts));
    for (size_t i = 0, piece = 0; i < r->ts->n; piece += tensor_pieces(&r->ts->t[i++])) {
        const struct tensor *t = &r->ts->t[i];
        const size_t all = tensor_stored_bytes(t), group = group_bytes(r, i);
        for (size_t at = 0; at < all && (group || r->digest); at += UNIT_BYTES) {
            const size_t n = MIN((size_t)UNIT_BYTES, all - at);
            p->unit[p->n++] = (struct unit){ i, t->shard, t->offset + at, at, n, piece + at / READING_PIECE };
            p->total += n;
        }
        room = MAX(room, group);
    }
    p->room_bytes = (room + UNIT_BYTES + 63) / 64 * 64;
    qsort(p->unit, p->n, sizeof *p->unit, by_place);
    return 0;
}

int read_tensors(const struct reading *r, struct err *e)
{
    struct pass p = { .r = r, .lock = PTHREAD_MUTEX_INITIALIZER, .failed = SIZE_MAX };
    const size_t threads = r->pool ? pool_threads(r->pool) : 1;
    if (r->digest && r->n_digests != reading_pieces(r->ts))
        return err_set(e, ERR_FAILED, "%s was changed while it was read",
                       r->ts->n_shards ? r->ts->path[0] : "the model");
    int rc = list(&p, e);
    if (rc == 0 && !(p.room = mem_alloc(threads * p.room_bytes)))
        rc = err_set(e, ERR_FAILED, "out of memory for reading (%zu bytes)", threads * p.room_bytes);
    if (rc == 0) {
        run(&p, threads);
        if (p.failed != SIZE_MAX) {
            *e = p.e;
            rc = -1;
        }
    }
    mem_free(p.room, threads * p.room_bytes);
    free(p.unit);
    pthread_mutex_destroy(&p.lock);
    return rc;
}
