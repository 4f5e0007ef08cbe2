/* The file of a snapshot (format: snapshot.h). plan_file() derives offsets and sizes from the sections; the
 * reader compares the header with them before it trusts any number. Start reading at snapshot_write and
 * snapshot_open. */
#include "kvmgr/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { VERSION = 2, HEADER = 4096, STRETCH = 32 << 20 };
static const char MAGIC[8] = "LHKVSNAP";

struct section { char name[SNAPSHOT_NAME_BYTES], shape[SNAPSHOT_SHAPE_BYTES]; uint64_t offset, bytes,
                 first_piece; };

struct header {
    char magic[8];
    uint32_t version, n_sections;
    struct snapshot_owner owner;
    uint64_t file_bytes, data_bytes, n_pieces;
    struct section section[SNAPSHOT_SECTIONS_MAX];
    uint32_t table_crc, crc;         /* crc: of all bytes before it */
};
_Static_assert(sizeof(struct header) <= HEADER, "the header has its page");

struct snapshot {
    int fd;
    char path[4096];
    struct header h;
    uint32_t *crc;                   /* [n_pieces] */
};

static uint32_t crc_of(uint32_t crc, const void *p, size_t n)
{
    return (uint32_t)crc32_z(crc, p, n);
}

static uint64_t pieces_of(uint64_t bytes) { return (bytes + SNAPSHOT_PIECE - 1) / SNAPSHOT_PIECE; }

/* ---- sections of a cache ---- */

size_t kv_parts(const struct kv *kv, size_t from, size_t n, bool own, struct snapshot_part *part)
{
    const size_t end = n / KV_BLOCK;
    size_t k = 0, some;
    assert(from % KV_BLOCK == 0 && n % KV_BLOCK == 0 && from <= n && n <= kv->n_max);
    for (size_t l = 0; l < kv->n_layers; l++)
        for (size_t h = 0; h < kv_layer(kv, l).n && !kv_is_ring(kv, l); h++)
            for (size_t b = from / KV_BLOCK; b < end; b += some) {
                char *p = kv_address(kv, l, h, b, &some);
                some = MIN(some, end - b);
                part[k++] = (struct snapshot_part){ own && b < kv->n_shared ? NULL : p,
                                                    some * kv_head_block(kv, l) };
            }
    return k;
}

void kv_shape(const struct kv *kv, char out[SNAPSHOT_SHAPE_BYTES])
{
    snprintf(out, SNAPSHOT_SHAPE_BYTES, "%s %zu layers %zu heads of %zu, blocks of %d%s",
             kv_type_name(kv->type), kv->n_layers, kv->n_kv_heads, kv->head_dim, KV_BLOCK,
             kv->ring ? ", rings" : "");
}

/* ---- writing ---- */

static size_t section_bytes(const struct snapshot_section *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_parts; i++)
        n += s->part[i].n;
    return n;
}

static void plan_file(struct header *h, const struct snapshot_section *s, size_t n)
{
    assert(n <= SNAPSHOT_SECTIONS_MAX);
    memset(h, 0, sizeof *h);
    memcpy(h->magic, MAGIC, sizeof MAGIC);
    h->version = VERSION;
    h->n_sections = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        struct section *x = &h->section[i];
        snprintf(x->name, sizeof x->name, "%s", s[i].name);
        snprintf(x->shape, sizeof x->shape, "%s", s[i].shape);
        x->offset = HEADER + h->data_bytes;
        x->bytes = section_bytes(&s[i]);
        x->first_piece = h->n_pieces;
        h->data_bytes += x->bytes;
        h->n_pieces += pieces_of(x->bytes);
    }
    h->file_bytes = HEADER + h->data_bytes + h->n_pieces * sizeof(uint32_t);
}

uint64_t snapshot_bytes(const struct snapshot_section *s, size_t n)
{
    struct header h;
    plan_file(&h, s, n);
    return h.file_bytes;
}

struct output { int fd; uint64_t at, synced; const atomic_bool *stop; struct err *e; };

static int append_bytes(struct output *o, const char *p, size_t n)
{
    while (n) {
        if (o->stop && atomic_load(o->stop))
            return err_set(o->e, ERR_AGAIN, "stopped");
        ssize_t w = pwrite(o->fd, p, MIN(n, (size_t)SNAPSHOT_PIECE), (off_t)o->at);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return err_set(o->e, ERR_FAILED, "%s", w < 0 ? strerror(errno) : "the disk accepts no bytes");
        p += w;
        n -= (size_t)w;
        o->at += (uint64_t)w;
        if (o->at - o->synced >= STRETCH) {
            if (fdatasync(o->fd))
                return err_set(o->e, ERR_FAILED, "%s", strerror(errno));
            o->synced = o->at;
        }
    }
    return 0;
}

/* buffer: SNAPSHOT_PIECE bytes, used for parts in a device's memory. */
static int write_section(struct output *o, const struct snapshot_section *s, uint32_t *crc, char *buffer)
{
    char why[512];
    size_t in_piece = 0, k = 0;
    uint32_t sum = 0;
    for (size_t i = 0; i < s->n_parts; i++)
        for (size_t at = 0; at < s->part[i].n;) {
            const char *p = (const char *)s->part[i].p + at;
            size_t n = MIN(s->part[i].n - at, SNAPSHOT_PIECE - in_piece);
            if (s->dev) {
                if (s->dev->fetch(s->dev, buffer, p, n, why, sizeof why))
                    return err_set(o->e, ERR_FAILED, "%s", why);
                p = buffer;
            }
            sum = crc_of(sum, p, n);
            if (append_bytes(o, p, n))
                return -1;
            at += n;
            in_piece += n;
            if (in_piece == SNAPSHOT_PIECE) {
                crc[k++] = sum;
                in_piece = sum = 0;
            }
        }
    if (in_piece)
        crc[k] = sum;
    return 0;
}

int snapshot_write(int fd, const struct snapshot_owner *owner, const struct snapshot_section *s, size_t n,
                   const atomic_bool *stop, struct err *e)
{
    char page[HEADER] = {0};
    struct header h;
    struct output o = { .fd = fd, .at = HEADER, .stop = stop, .e = e };
    plan_file(&h, s, n);
    h.owner = *owner;
    uint32_t *crc = calloc(h.n_pieces + 1, sizeof *crc);
    char *buffer = malloc(SNAPSHOT_PIECE);
    if (!crc || !buffer) {
        free(crc);
        free(buffer);
        return err_set(e, ERR_FAILED, "out of memory");
    }
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = write_section(&o, &s[i], crc + h.section[i].first_piece, buffer);
    if (rc == 0)
        rc = append_bytes(&o, (const char *)crc, h.n_pieces * sizeof *crc);
    h.table_crc = crc_of(0, crc, h.n_pieces * sizeof *crc);
    free(crc);
    free(buffer);
    h.crc = crc_of(0, &h, offsetof(struct header, crc));
    memcpy(page, &h, sizeof h);
    o.at = o.synced = 0;
    return rc ? -1 : append_bytes(&o, page, sizeof page);
}

/* ---- reading ---- */

static int read_bytes(const struct snapshot *f, void *p, size_t n, uint64_t at, struct err *e)
{
    for (char *c = p; n;) {
        ssize_t r = pread(f->fd, c, n, (off_t)at);
        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return err_set(e, ERR_FAILED, ERR_PATH "%s at offset %llu", f->path,
                           r < 0 ? strerror(errno) : "ends",
                           (unsigned long long)at);
        c += r;
        n -= (size_t)r;
        at += (uint64_t)r;
    }
    return 0;
}

/* Compares the header with the header that plan_file() would make from the sections' sizes. Nothing in the
 * header is trusted before that. */
static int check_header(const struct header *h, const char *page, uint64_t file_bytes, const char *path,
                        struct err *e)
{
    if (memcmp(h->magic, MAGIC, sizeof MAGIC))
        return err_set(e, ERR_FAILED, ERR_PATH "not a snapshot, or an unfinished one", path);
    if (h->version != VERSION)
        return err_set(e, ERR_FAILED, ERR_PATH "snapshot version %u; this program reads version %d", path,
                       h->version, VERSION);
    if (h->crc != crc_of(0, h, offsetof(struct header, crc)))
        return err_set(e, ERR_FAILED, ERR_PATH "the header is damaged", path);
    for (size_t i = sizeof *h; i < HEADER; i++)
        if (page[i])
            return err_set(e, ERR_FAILED, ERR_PATH "the header is damaged", path);
    uint64_t data = 0, pieces = 0;
    bool ok = h->n_sections <= SNAPSHOT_SECTIONS_MAX && h->file_bytes == file_bytes &&
              !h->owner.fingerprint[sizeof h->owner.fingerprint - 1] &&
              !h->owner.numerics[sizeof h->owner.numerics - 1] &&
              !h->owner.context[sizeof h->owner.context - 1];
    for (size_t i = 0; i < h->n_sections && ok; i++) {
        const struct section *x = &h->section[i];
        ok = !x->name[sizeof x->name - 1] && !x->shape[sizeof x->shape - 1] && x->offset == HEADER + data &&
             x->first_piece == pieces && x->bytes <= file_bytes - HEADER - data;
        data += x->bytes;
        pieces += pieces_of(x->bytes);
    }
    if (!ok || data != h->data_bytes || pieces != h->n_pieces ||
        HEADER + data + pieces * sizeof(uint32_t) != file_bytes)
        return err_set(e, ERR_FAILED, ERR_PATH "%llu bytes, %llu are in the header", path,
                       (unsigned long long)file_bytes, (unsigned long long)h->file_bytes);
    return 0;
}

/* Opens the file of f->path and reads its header and table. */
static int read_head(struct snapshot *f, struct err *e)
{
    struct stat st;
    char page[HEADER];
    f->fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (f->fd < 0)
        return err_set(e, ERR_FAILED, ERR_PATH "%s", f->path, strerror(errno));
    if (fstat(f->fd, &st) || !S_ISREG(st.st_mode))
        return err_set(e, ERR_FAILED, ERR_PATH "not a regular file", f->path);
    if ((uint64_t)st.st_size < HEADER)
        return err_set(e, ERR_FAILED, ERR_PATH "not a snapshot, or an unfinished one", f->path);
    if (read_bytes(f, page, HEADER, 0, e))
        return -1;
    memcpy(&f->h, page, sizeof f->h);
    if (check_header(&f->h, page, (uint64_t)st.st_size, f->path, e))
        return -1;
    f->crc = calloc(f->h.n_pieces + 1, sizeof *f->crc);
    if (!f->crc)
        return err_set(e, ERR_FAILED, ERR_PATH "out of memory", f->path);
    if (read_bytes(f, f->crc, f->h.n_pieces * sizeof *f->crc, HEADER + f->h.data_bytes, e))
        return -1;
    return crc_of(0, f->crc, f->h.n_pieces * sizeof *f->crc) == f->h.table_crc
               ? 0 : err_set(e, ERR_FAILED, ERR_PATH "the table of checksums is damaged", f->path);
}

int snapshot_open(struct snapshot **out, const char *path, struct err *e)
{
    struct snapshot *f = *out = calloc(1, sizeof *f);
    if (!f)
        return err_set(e, ERR_FAILED, "out of memory");
    snprintf(f->path, sizeof f->path, "%s", path);
    if (read_head(f, e) == 0)
        return 0;
    snapshot_close(f);
    *out = NULL;
    return -1;
}

void snapshot_close(struct snapshot *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    free(f->crc);
    free(f);
}

const struct snapshot_owner *snapshot_owner(const struct snapshot *f) { return &f->h.owner; }

static const struct section *find(const struct snapshot *f, const char *name, const char *shape)
{
    for (size_t i = 0; i < f->h.n_sections; i++)
        if (strcmp(f->h.section[i].name, name) == 0 && strcmp(f->h.section[i].shape, shape) == 0)
            return &f->h.section[i];
    return NULL;
}

size_t snapshot_size(const struct snapshot *f, const char *name, const char *shape)
{
    const struct section *x = find(f, name, shape);
    return x ? (size_t)x->bytes : 0;
}

/* Pieces of a section, read by the threads of a pool. The first failure is kept. */
struct reading {
    const struct snapshot *f;
    const struct section *x;
    const struct snapshot_section *to;   /* NULL: the pieces are only checked */
    size_t first;                        /* the piece of item 0 of the pool */
    bool each;  /* true: a buffer for each piece, for a device; false: a buffer for each thread */
    char *buffer;                        /* [threads or pieces][SNAPSHOT_PIECE] */
    atomic_flag reported;
    atomic_bool failed;
    struct err *e;
};

/* Copies bytes [at, at + n) of the section to their parts. */
static void scatter(const struct snapshot_section *s, size_t at, const char *p, size_t n)
{
    for (size_t i = 0; n; i++) {
        if (at >= s->part[i].n) {
            at -= s->part[i].n;
            continue;
        }
        size_t k = MIN(n, s->part[i].n - at);
        if (s->part[i].p && s->dev)
            s->dev->upload(s->dev, (char *)s->part[i].p + at, p, k);
        else if (s->part[i].p)
            memcpy((char *)s->part[i].p + at, p, k);
        p += k;
        n -= k;
        at = 0;
    }
}

static void read_piece(void *ctx, size_t i, size_t thread)
{
    struct reading *r = ctx;
    struct err e;
    char *buffer = r->buffer + (r->each ? i : thread) * SNAPSHOT_PIECE;
    i += r->first;
    uint64_t at = (uint64_t)i * SNAPSHOT_PIECE;
    size_t n = (size_t)MIN((uint64_t)SNAPSHOT_PIECE, r->x->bytes - at);
    if (atomic_load(&r->failed))
        return;
    int rc = read_bytes(r->f, buffer, n, r->x->offset + at, &e);
    if (rc == 0 && crc_of(0, buffer, n) != r->f->crc[r->x->first_piece + i])
        rc = err_set(&e, ERR_FAILED, ERR_PATH "section %s is damaged in its bytes %llu to %llu", r->f->path,
                     r->x->name, (unsigned long long)at, (unsigned long long)at + n);
    if (rc && !atomic_flag_test_and_set(&r->reported))
        *r->e = e;
    if (rc)
        atomic_store(&r->failed, true);
    else if (r->to && !r->each)
        scatter(r->to, (size_t)at, buffer, n);
}

static int read_section(const struct snapshot *f, const struct section *x, const struct snapshot_section *to,
                        struct pool *pool, struct err *e)
{
    struct reading r = { .f = f, .x = x, .to = to, .each = to && to->dev,
                         .reported = ATOMIC_FLAG_INIT, .e = e };
    const size_t threads = pool ? pool_threads(pool) : 1, n = (size_t)pieces_of(x->bytes),
                 some = r.each ? 4 * threads : MAX(n, 1);
    r.buffer = malloc((r.each ? some : threads) * SNAPSHOT_PIECE);
    if (!r.buffer)
        return err_set(e, ERR_FAILED, ERR_PATH "out of memory", f->path);
    for (; r.first < n && !atomic_load(&r.failed); r.first += some) {
        const size_t now = MIN(some, n - r.first);
        if (pool)
            pool_run(pool, now, read_piece, &r);
        else
            for (size_t i = 0; i < now; i++)
                read_piece(&r, i, 0);
        /* only one thread may call a device */
        for (size_t i = 0; r.each && i < now && !atomic_load(&r.failed); i++) {
            const size_t at = (r.first + i) * SNAPSHOT_PIECE;
            scatter(to, at, r.buffer + i * SNAPSHOT_PIECE,
                    MIN((size_t)SNAPSHOT_PIECE, (size_t)x->bytes - at));
        }
    }
    free(r.buffer);
    if (!atomic_load(&r.failed) && r.each && *to->dev->error)
        return err_set(e, ERR_FAILED, "%s: %s", to->dev->name, to->dev->error);
    return atomic_load(&r.failed) ? -1 : 0;
}

int snapshot_check(const struct snapshot *f, struct pool *pool, struct err *e)
{
    for (size_t i = 0; i < f->h.n_sections; i++)
        if (read_section(f, &f->h.section[i], NULL, pool, e))
            return -1;
    return 0;
}

int snapshot_read(const struct snapshot *f, const struct snapshot_section *s, struct pool *pool,
                  struct err *e)
{
    const struct section *x = find(f, s->name, s->shape);
    assert(x && x->bytes == section_bytes(s));
    return read_section(f, x, s, pool, e);
}
