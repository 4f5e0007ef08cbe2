/* Snapshots of a decoder: which bytes, taken when, and back into a decoder. The data is struct image. Start
 * reading at image_capture(). */
#include "src/decode/decoder_image.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/sha256.h"

static const char KV[] = "kv", STATES[] = "states", RINGS[] = "rings";
enum { KNOWN = 64 };                     /* fewer tokens say nothing about speed */
static const double PREFILL_GAIN = 3;    /* speed of prefill over that of verification passes, a guess */

/* The drafter after `last` that keeps a state in snapshots. */
static const struct drafter_ops *keeper(const struct decoder *d, const struct drafter_ops *last)
{
    while ((last = drafter_next(d->set.draft.drafters, last)) && !last->snapshot.save)
        ;
    return last;
}

int image_open(struct image *m, struct decoder *d, const struct snapshot_owner *owner, struct err *e)
{
    *m = (struct image){ .d = d,
                         .owner = *owner,
                         .part = calloc(kv_n_heads(&d->kv) * d->kv.n_runs, sizeof *m->part) };
    bool ok = m->part != NULL;
    kv_shape(&d->kv, m->shape);
    if (d->kv.state) {
        const struct delta_shape *s = &d->kv.state->d.shape;
        m->exact_bytes = image_state_bytes(d->model);
        ok = ok && (m->exact = mem_alloc(m->exact_bytes)) != NULL;
        snprintf(m->exact_shape, sizeof m->exact_shape, "%zu of %zu/%zu heads, %zu x %zu, %zu rows",
                 s->n_layers, s->key_heads, s->value_heads, s->key_dim, s->value_dim, s->conv);
    } else if (d->kv.ring) {
        m->exact_bytes = kv_window_bytes(&d->kv);
        ok = ok && (m->exact = mem_alloc(m->exact_bytes)) != NULL;
        snprintf(m->exact_shape, sizeof m->exact_shape, "window of %zu, %zu bytes", d->kv.window,
                 m->exact_bytes);
    }
    for (const struct drafter_ops *o = NULL; ok && (o = keeper(d, o));)
        if ((m->state[o->id].room = o->snapshot.bytes(d)))
            ok = (m->state[o->id].p = mem_alloc(m->state[o->id].room)) != NULL;
    if (ok)
        return 0;
    image_close(m);
    return err_set(e, ERR_FAILED, "out of memory for snapshots");
}

void image_close(struct image *m)
{
    free(m->part);
    mem_free(m->exact, m->exact_bytes);
    for (size_t i = 0; i < N_DRAFTERS; i++)
        mem_free(m->state[i].p, m->state[i].room);
    *m = (struct image){0};
}

/* ---- taking and writing ---- */

size_t image_state_bytes(const struct model *m)
{
    struct kv_size z = model_text_cache(m, m->config.context, 0);
    z.mark = z.window ? KV_BLOCK : 0;
    if (z.window)
        return kv_mark_bytes(&z);
    const size_t fixed = state_fixed_bytes(&z.state);
    const size_t heads = z.n_layers * z.n_kv_heads;      /* hybrids have the same heads in every layer */
    return fixed ? fixed + heads * kv_block_bytes(z.type, z.head_dim) : 0;
}

size_t image_rows(const struct image *m, size_t tokens)
{
    const struct kv *kv = &m->d->kv;
    if (kv->state)
        return kv->n_past;
    const size_t n = MIN(m->most ? MIN(tokens - 1, *m->most) : tokens - 1, kv->n_past) / KV_BLOCK * KV_BLOCK;
    return kv_holds(kv, n) ? n : 0;
}

static void add_section(struct image *m, const char *name, const char *shape,
                        const struct snapshot_part *part, size_t n, struct device *dev)
{
    m->section[m->n_sections++] = (struct snapshot_section){ name, shape, part, n, dev };
}

/* The device whose memory the cache is in; NULL: the host's. */
static struct device *device_of(const struct decoder *d)
{
    return d->kv.dev && !d->kv.dev->host_memory ? d->kv.dev : NULL;
}

enum way { TAKE, GIVE };

/* Copies the states, and of each head the block that rows before and after n share, or the windows before row
 * n, to or from m->exact. */
static void copy_exact(struct image *m, size_t n, enum way way)
{
    struct kv *kv = &m->d->kv;
    struct states *s = kv->state;
    if (!s) {
        kv_window(kv, n, m->exact, way == GIVE);
        return;
    }
    const size_t fixed = state_fixed_bytes(&s->d.shape), block = kv->block_bytes;
    memcpy(way == TAKE ? m->exact : s->mem, way == TAKE ? s->mem : m->exact, fixed);
    for (size_t i = 0; n % KV_BLOCK && i < kv->n_layers * kv->n_kv_heads; i++) {
        char *own = kv_block(kv, i / kv->n_kv_heads, i % kv->n_kv_heads, n),
             *copy = m->exact + fixed + i * block;
        memcpy(way == TAKE ? copy : own, way == TAKE ? own : copy, block);
    }
}

/* Positions of whole blocks; those of other images are. */
static size_t whole(size_t rows) { return rows / KV_BLOCK * KV_BLOCK; }

uint64_t image_capture(struct image *m, size_t from, size_t rows)
{
    struct decoder *d = m->d;
    struct device *dev = device_of(d);
    if (dev)
        dev->fetch_mark(dev);            /* the copies that commit these rows may be under way */
    m->owner.from = from;
    m->owner.tokens = rows;
    m->owner.rebuild_seconds = image_rebuild_seconds(m, rows);
    m->n_sections = 0;
    add_section(m, KV, m->shape, m->part, kv_parts(&d->kv, whole(from), whole(rows), false, m->part), dev);
    if (d->kv.state) {
        assert(rows == d->kv.n_past);
        state_settle(d->kv.state, d->model->ops, d->model->pool);
    }
    if (m->exact) {
        copy_exact(m, rows, TAKE);
        m->exact_part = (struct snapshot_part){ m->exact, m->exact_bytes };
        add_section(m, d->kv.state ? STATES : RINGS, m->exact_shape, &m->exact_part, 1, NULL);
    }
    for (const struct drafter_ops *o = NULL; (o = keeper(d, o));) {
        const enum drafter i = o->id;
        if (m->state[i].room && !m->pending)
            m->state[i].n = o->snapshot.save(d, m->state[i].p);
        if (!m->state[i].n)
            continue;
        m->state_part[i] = (struct snapshot_part){ m->state[i].p, m->state[i].n };
        add_section(m, o->name, m->shape, &m->state_part[i], 1, NULL);
    }
    return snapshot_bytes(m->section, m->n_sections);
}

static void chain_of(uint8_t out[SHA256_BYTES], const int32_t *ids, size_t n)
{
    struct sha256 h;
    sha256_start(&h);
    sha256_add(&h, ids, n * sizeof *ids);
    sha256_end(&h, out);
}

int image_write(void *image, int fd, const atomic_bool *stop, struct err *e)
{
    const struct image *m = image;
    struct snapshot_owner owner = m->owner;
    chain_of(owner.chain, m->d->tokens, owner.tokens);
    return snapshot_write(fd, &owner, m->section, m->n_sections, stop, e);
}

/* ---- restoring ---- */

/* Checks the header: whether the file belongs to this text. */
static int check_owner(const struct image *m, const struct snapshot *f, const char *path, struct err *e)
{
    const struct snapshot_owner *o = snapshot_owner(f), *mine = &m->owner;
    const struct decoder *d = m->d;
    uint8_t chain[SHA256_BYTES];
    if (o->job != mine->job)
        return err_set(e, ERR_FAILED, "%s: of job %lld, not %lld", path, (long long)o->job,
                       (long long)mine->job);
    if (strcmp(o->fingerprint, mine->fingerprint))
        return err_set(e, ERR_FAILED, "%s: of another model", path);
    if (strcmp(o->numerics, mine->numerics))
        return err_set(e, ERR_FAILED, "%s: of other arithmetic, %s, not %s", path, o->numerics,
                       mine->numerics);
    if (strcmp(o->context, mine->context))
        return err_set(e, ERR_FAILED, "%s: of another context scaling, \"%s\", not \"%s\"", path, o->context,
                       mine->context);
    if (o->from != m->restored)
        return err_set(e, ERR_FAILED, "%s: from token %llu on, not from %zu", path,
                       (unsigned long long)o->from, m->restored);
    if (o->tokens <= o->from || (!d->kv.state && o->tokens % KV_BLOCK) || o->tokens > d->n_tokens - 1)
        return err_set(e, ERR_FAILED, "%s: of %llu tokens, the text has %zu", path,
                       (unsigned long long)o->tokens, d->n_tokens);
    chain_of(chain, d->tokens, o->tokens);
    if (memcmp(chain, o->chain, sizeof chain))
        return err_set(e, ERR_FAILED, "%s: of another text", path);
    return 0;
}

/* Reads the sections of the drafters, for use after the rest of the text has been read. */
static void read_states(struct image *m, const struct snapshot *f)
{
    struct err ignored;
    for (const struct drafter_ops *o = NULL; (o = keeper(m->d, o));) {
        const enum drafter i = o->id;
        size_t n = m->state[i].room ? snapshot_size(f, o->name, m->shape) : 0;
        m->state[i].n = 0;
        if (!n || n > m->state[i].room)
            continue;
        m->state_part[i] = (struct snapshot_part){ m->state[i].p, n };
        const struct snapshot_section s = { o->name, m->shape, &m->state_part[i], 1, NULL };
        if (snapshot_read(f, &s, m->d->model->pool, &ignored) == 0)
            m->state[i].n = n;
    }
}

/* Drops the rows of a file that changed after the check. */
static void drop_rows(struct image *m, size_t from, size_t rows)
{
    struct kv *kv = &m->d->kv;
    kv->n_written = MAX(rows, kv->n_written);
    if (kv->state)
        kv_place(kv, rows), from = m->restored = 0;
    kv_truncate(kv, MAX(from, kv->n_shared * KV_BLOCK));
}

/* Reads the states or the windows. */
static int read_exact(struct image *m, const struct snapshot *f, const char *path, struct err *e)
{
    m->exact_part = (struct snapshot_part){ m->exact, m->exact_bytes };
    const char *name = m->d->kv.state ? STATES : RINGS;
    const struct snapshot_section s = { name, m->exact_shape, &m->exact_part, 1, NULL };
    if (snapshot_size(f, name, m->exact_shape) != m->exact_bytes)
        return err_set(e, ERR_FAILED, "%s: no %s of %s", path, name, m->exact_shape);
    return snapshot_read(f, &s, m->d->model->pool, e);
}

int image_restore(struct image *m, const char *path, struct err *e)
{
    struct decoder *d = m->d;
    struct snapshot *f;
    assert(d->kv.n_past >= m->restored);
    if (snapshot_open(&f, path, e))
        return -1;
    int rc = check_owner(m, f, path, e);
    const size_t from = m->restored, rows = rc ? from : (size_t)snapshot_owner(f)->tokens;
    const struct snapshot_section s = { KV, m->shape, m->part,
                                        rc ? 0 : kv_parts(&d->kv, whole(from), whole(rows), true, m->part),
                                        device_of(d) };
    size_t want = 0;
    for (size_t i = 0; i < s.n_parts; i++)
        want += s.part[i].n;
    if (rc == 0 && snapshot_size(f, KV, m->shape) != want)
        rc = err_set(e, ERR_FAILED, "%s: no rows of a cache of %s", path, m->shape);
    if (rc == 0)
        rc = snapshot_check(f, d->model->pool, e);
    if (rc == 0 && m->exact)
        rc = read_exact(m, f, path, e);
    if (rc == 0 && (rc = snapshot_read(f, &s, d->model->pool, e)) != 0)
        drop_rows(m, from, rows);
    if (rc == 0) {
        if (m->exact && rows > d->kv.n_past)
            copy_exact(m, rows, GIVE), kv_place(&d->kv, rows);
        else if (m->exact)
            ;                            /* a shared beginning has more */
        else
            kv_advance(&d->kv, rows - MIN(rows, d->kv.n_past));
        m->restored = rows;
        m->restored_seconds = snapshot_owner(f)->rebuild_seconds;
        read_states(m, f);
        m->pending = true;
    }
    snapshot_close(f);
    return rc ? -1 : 0;
}

void image_restore_drafters(struct image *m)
{
    m->pending = false;
    for (const struct drafter_ops *o = NULL; (o = keeper(m->d, o));)
        if (m->state[o->id].n)
            o->snapshot.load(m->d, m->state[o->id].p, m->state[o->id].n);
}

/* ---- the cost of reading the text again ---- */

/* Operations of reading tokens [from, to): products, and attention, which grows with the length. */
static double operations(const struct model *m, size_t from, size_t to)
{
    const struct config *c = &m->config;
    const double hidden = (double)c->hidden, q = config_mean_queries(c), kv = config_mean_keys(c),
                 a = (double)from, b = (double)to;
    double params = 0;
    for (size_t l = 0; l < c->n_layers; l++)
        params += 2 * hidden * (q + kv) +
                  3 * hidden * (double)(c->layer[l].ffn + (c->layer[l].experts
                                            ? c->experts_used * c->expert_ffn + c->shared_ffn : 0));
    return 2 * params * (b - a) + (double)c->n_layers * 2 * q * (b * b - a * a);
}

double image_rebuild_seconds(const struct image *m, size_t n)
{
    const struct decoder *d = m->d;
    const size_t read = d->count.prefill_tokens, from = MAX(m->restored, d->count.begun);
    double of = operations(d->model, 0, n);
    if (read >= KNOWN)
        return of / operations(d->model, from, from + read) * d->count.prefill_seconds;
    if (m->restored && m->restored_seconds > 0)
        return of / operations(d->model, 0, m->restored) * m->restored_seconds;
    if (d->stats.tokens >= KNOWN && d->stats.verify > 0)
        return of /
               (operations(d->model, d->n_tokens - d->stats.tokens, d->n_tokens) *
                (double)d->stats.verified_rows / (double)d->stats.tokens) *
               d->stats.verify / PREFILL_GAIN;
    return 0;
}
