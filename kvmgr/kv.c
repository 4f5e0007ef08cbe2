/* The full key/value cache: sizes, memory, sharing, commit and truncation. Host memory is handled here; for a
 * device's memory the functions call the device's operations. Start reading at kv_open_from. */
#include "kvmgr/kv.h"

#include <stdlib.h>
#include <string.h>

static size_t blocks_of(size_t n) { return n / KV_BLOCK + (n % KV_BLOCK != 0); }

/* The blocks of a ring. The last one is for the rows of a block that a window or a pass touches in part. */
static size_t ring_blocks(const struct kv_size *z)
{
    return z->window && z->heads && z->heads[z->n_layers].ring_first
               ? MIN(blocks_of(z->window + RING_PASS + z->back) + 1, blocks_of(z->n_max))
               : 0;
}

/* Bytes of a position in the rings. */
static size_t ring_row(enum dtype t, const struct kv_heads *heads, size_t n_layers)
{
    return kv_rows_of(t, heads[n_layers].ring_first, heads[n_layers].ring_dims);
}

/* Bytes of the cache's own blocks, of the node scratch and of the table; false when their sum does not fit
 * size_t. */
static bool sizes(const struct kv_size *z, size_t *own, size_t *scratch, size_t *table)
{
    const size_t blocks = blocks_of(z->n_max), ring = ring_blocks(z);
    size_t heads, row, n;
    assert(z->n_shared <= blocks);
    if (z->heads) {
        heads = z->heads[z->n_layers].first;
        row = kv_rows_of(z->type, heads, z->heads[z->n_layers].dims);
    } else if (!mul_size(z->n_layers, z->n_kv_heads, &heads) ||
               !mul_size(heads, kv_row_bytes(z->type, z->head_dim), &row)) {
        return false;
    }
    const size_t rings = ring ? ring_row(z->type, z->heads, z->n_layers) : 0;
    if (!mul_size(row, KV_BLOCK, &n) || !mul_size(n, blocks, own))
        return false;
    *own -= KV_BLOCK * ((row - rings) * z->n_shared + rings * (blocks - ring));
    return mul_size(row, z->node_max, scratch) && mul_size(heads * sizeof(char *), z->n_shared, table) &&
           add_size(*own, *scratch, &n) && add_size(n, *table, &n);
}

/* The most blocks of a ring that hold the window before a row. A ring of a short text has fewer, but such a
 * text may be extended, and its snapshots then belong to a longer ring. */
static size_t window_blocks(size_t window) { return (window + KV_BLOCK - 2) / KV_BLOCK + 1; }

size_t kv_mark_bytes(const struct kv_size *z)
{
    const size_t ring = ring_blocks(z);
    if (!z->mark || !ring)
        return z->mark ? state_fixed_bytes(&z->state) : 0;
    return window_blocks(z->window) * KV_BLOCK * ring_row(z->type, z->heads, z->n_layers);
}

size_t kv_bytes(const struct kv_size *z)
{
    size_t own, scratch, table, n = state_bytes(&z->state, z->node_max);
    const size_t copies = z->cuts ? STATE_COPIES : 0;
    return sizes(z, &own, &scratch, &table) && add_size(n, own + scratch + table, &n) &&
                   add_size(n, copies * state_fixed_bytes(&z->state) + kv_mark_bytes(z), &n)
               ? n
               : SIZE_MAX;
}

size_t kv_run_bytes(const struct kv_size *z)
{
    size_t own, scratch, table;
    return sizes(z, &own, &scratch, &table) && add_size(own, kv_mark_bytes(z), &own) ? own : SIZE_MAX;
}

void *kv_alloc(const struct kv *kv, size_t bytes)
{
    return kv_on_host(kv) || !bytes ? mem_alloc(bytes) : kv->dev->alloc(kv->dev, bytes);
}

void kv_free(const struct kv *kv, void *p, size_t bytes)
{
    if (p && (kv_on_host(kv) || !bytes))
        mem_free(p, bytes);
    else if (p)
        kv->dev->free(kv->dev, p, bytes);
}

static size_t table_bytes(const struct kv *kv)
{
    return kv_n_heads(kv) * kv->n_shared * sizeof *kv->shared;
}

/* ---- runs ---- */

enum { HUGE_PAGE = 2 << 20 };            /* the memory that the first byte written takes */

static struct kv_run *run_open(const struct kv *kv, size_t bytes, struct kv_total *total)
{
    struct kv_run *r = calloc(1, sizeof *r);
    char *base = r ? kv_alloc(kv, bytes) : NULL;
    if (!base) {
        free(r);
        return NULL;
    }
    const size_t own = blocks_of(kv->n_max) - kv->n_shared;
    *r = (struct kv_run){ base, bytes, kv->n_shared, own, kv->ring, 1, total, bytes };
    if (total)
        total->runs++, total->bytes += bytes;
    return r;
}

static void run_drop(const struct kv *kv, struct kv_run *r)
{
    assert(r->refs > 0);
    if (--r->refs)
        return;
    if (r->total)
        r->total->runs--, r->total->bytes -= r->counted;
    kv_free(kv, r->base, r->bytes);
    free(r);
}

size_t kv_layer_of(const struct kv *kv, size_t i)
{
    size_t l = kv->heads ? 0 : i / kv->n_kv_heads;
    while (kv->heads && kv->heads[l + 1].first <= i)
        l++;
    return l;
}

struct kv_size kv_like(const struct kv *kv, size_t n_max)
{
    return (struct kv_size){ .type = kv->type, .n_layers = kv->n_layers, .n_kv_heads = kv->n_kv_heads,
                             .head_dim = kv->head_dim, .n_max = n_max, .heads = kv->heads };
}

char *kv_address(const struct kv *kv, size_t l, size_t h, size_t b, size_t *n)
{
    size_t i = kv->n_runs - 1;
    while (kv->run[i]->first > b)
        i--;
    const struct kv_run *r = kv->run[i];
    const size_t end = i + 1 < kv->n_runs ? kv->run[i + 1]->first : r->first + r->n_blocks;
    const struct kv_heads g = kv_layer(kv, l);
    assert(l < kv->n_layers && h < g.n && b < end && !kv_is_ring(kv, l));
    *n = end - b;
    return r->base + kv_bytes_before(kv->type, &g, r->n_blocks, r->ring) +
           (h * r->n_blocks + b - r->first) * kv_block_bytes(kv->type, g.dim);
}

/* Holds the runs of `from` that have the first n_shared blocks. */
static int share(struct kv *kv, const struct kv *from)
{
    const size_t heads = kv_n_heads(kv), bytes = table_bytes(kv);
    char **table = NULL;
    size_t n = 0;
    kv->run = calloc((from ? from->n_runs : 0) + 1, sizeof *kv->run);
    if (!kv->run)
        return -1;
    for (size_t i = 0; kv->n_shared && i < from->n_runs && from->run[i]->first < kv->n_shared; i++) {
        kv->run[kv->n_runs++] = from->run[i];
        from->run[i]->refs++;
    }
    if (!kv->n_shared)
        return 0;
    kv->shared = kv_alloc(kv, bytes);
    table = kv_on_host(kv) ? kv->shared : malloc(bytes);
    for (size_t i = 0; kv->shared && table && i < heads * kv->n_shared; i++) {
        const size_t l = kv_layer_of(kv, i / kv->n_shared);
        if (!kv_is_ring(kv, l))
            table[i] =
                kv_address(from, l, i / kv->n_shared - kv_layer(kv, l).first, i % kv->n_shared, &n);
    }
    if (!kv_on_host(kv) && kv->shared && table)
        kv->dev->upload(kv->dev, kv->shared, table, bytes);
    if (!kv_on_host(kv))
        free(table);
    return kv->shared && table ? 0 : -1;
}

/* ---- open and close ---- */

/* The copy of the states or of the windows counts with the cache's own run. */
static size_t mark_bytes(const struct kv *kv)
{
    return kv->mark.copy                        ? kv_window_bytes(kv)
           : kv->state && kv->state->mark.copy ? state_fixed_bytes(&kv->state->d.shape)
                                               : 0;
}

/* The first row, in whole blocks, of the window before row n. */
static size_t window_first(const struct kv *kv, size_t n)
{
    return (n - MIN(n, kv->window - 1)) / KV_BLOCK * KV_BLOCK;
}

size_t kv_first(const struct kv *kv)
{
    const size_t blocks = blocks_of(kv->n_written);
    return kv->ring ? MAX(kv->ring_from, (blocks - MIN(blocks, kv->ring)) * KV_BLOCK) : 0;
}

bool kv_holds(const struct kv *kv, size_t n) { return !kv->ring || window_first(kv, n) >= kv_first(kv); }

size_t kv_window_bytes(const struct kv *kv)
{
    return kv->ring ? window_blocks(kv->window) * KV_BLOCK * ring_row(kv->type, kv->heads, kv->n_layers)
                    : 0;
}

void kv_window(struct kv *kv, size_t n, char *copy, bool load)
{
    for (size_t l = 0; l < kv->n_layers; l++)
        for (size_t h = 0; h < kv_layer(kv, l).n && kv_is_ring(kv, l); h++)
            for (size_t pos = window_first(kv, n), bytes = kv_head_block(kv, l); pos < n; pos += KV_BLOCK) {
                char *block = kv_block(kv, l, h, pos);
                memcpy(load ? block : copy, load ? copy : block, bytes);
                copy += bytes;
            }
}

static void take_mark(struct kv *kv, size_t n)
{
    kv_window(kv, n, kv->mark.copy, false);
    kv->mark.at = n;
}

/* Copies rows of `from` after the shared blocks, up to n_rows, which are in one block. */
static void copy_tail(struct kv *kv, const struct kv *from, size_t n_rows)
{
    const size_t first = kv->n_shared * KV_BLOCK, n = n_rows - first;
    assert(n < KV_BLOCK && n_rows <= from->n_past);
    uint32_t at[KV_BLOCK];
    for (size_t i = 0; i < n; i++)
        at[i] = (uint32_t)(first + i);
    if (!kv_on_host(kv)) {
        const struct device_kv to = kv_view(kv), source = kv_view(from);
        kv->dev->kv_copy(kv->dev, &to, &source, at, at, n);
    }
    for (size_t l = 0; kv_on_host(kv) && l < kv->n_layers; l++)
        for (size_t h = 0; h < kv_layer(kv, l).n; h++)
            kv_copy(kv_block(kv, l, h, first), 0, kv_block(from, l, h, first), 0, n, kv->type,
                    kv_layer(kv, l).dim);
}

/* Takes the windows before row n from `from`: from its rings, else from its mark. */
static void copy_windows(struct kv *kv, const struct kv *from, size_t n)
{
    kv->ring_from = window_first(kv, n);
    if (!kv_holds(from, n)) {
        assert(from->mark.at == n);
        kv_window(kv, n, from->mark.copy, true);
    }
    for (size_t l = 0; kv_holds(from, n) && l < kv->n_layers; l++)
        for (size_t h = 0; h < kv_layer(kv, l).n && kv_is_ring(kv, l); h++)
            for (size_t pos = kv->ring_from; pos < n; pos += KV_BLOCK)
                memcpy(kv_block(kv, l, h, pos), kv_block(from, l, h, pos), kv_head_block(kv, l));
    if (kv->mark.copy)
        take_mark(kv, n);
}

static void *copy_of(const void *p, size_t n)
{
    void *copy = malloc(n);
    return copy ? memcpy(copy, p, n) : NULL;
}

int kv_open_from(struct kv *kv, struct device *dev, const struct kv_size *z, const struct kv *from,
                 size_t n_rows, struct kv_total *total, struct err *e)
{
    size_t own, scratch, table;
    assert(z->head_dim % 16 == 0);
    assert(z->n_shared * KV_BLOCK <= n_rows && n_rows <= z->n_max &&
           (!n_rows || (from->dev == dev && from->type == z->type && from->n_layers == z->n_layers &&
                        from->n_kv_heads == z->n_kv_heads && from->head_dim == z->head_dim)));
    *kv = (struct kv){ .dev = dev, .type = z->type, .n_layers = z->n_layers, .n_kv_heads = z->n_kv_heads,
                      .head_dim = z->head_dim, .n_max = z->n_max, .node_max = z->node_max,
                      .n_shared = z->n_shared, .window = z->window, .ring = ring_blocks(z) };
    if (!sizes(z, &own, &scratch, &table))
        return err_set(e, ERR_INPUT, "KV cache of %zu positions: its size does not fit in memory addresses",
                       z->n_max);
    if (z->heads)
        kv->heads = copy_of(z->heads, (z->n_layers + 1) * sizeof *z->heads);
    if (z->heads && !kv->heads) {
        *kv = (struct kv){ 0 };
        return err_set(e, ERR_FAILED, "KV cache of %zu positions: out of memory", z->n_max);
    }
    kv->block_bytes = kv_block_bytes(z->type, z->head_dim);
    kv->head_bytes = kv->block_bytes * ((z->n_max + KV_BLOCK - 1) / KV_BLOCK - z->n_shared);
    kv->layer_bytes = kv->head_bytes * z->n_kv_heads;
    kv->scratch = kv_alloc(kv, scratch);
    assert(!z->heads || kv_on_host(kv));
    kv->mark = (struct kv_mark){ .copy = kv->ring && z->mark ? mem_alloc(kv_mark_bytes(z)) : NULL,
                                 .want = z->mark };
    const bool ready = kv->scratch && (!kv->ring || !z->mark || kv->mark.copy) && share(kv, from) == 0;
    struct kv_run *r = ready ? run_open(kv, own, total) : NULL;
    if (!r) {
        kv_close(kv);
        return err_set(e, ERR_FAILED, "KV cache of %zu positions: out of memory (%zu bytes%s%s)", z->n_max,
                       own + scratch + table, dev ? " on " : "", dev ? dev->name : "");
    }
    assert(!kv->ring || n_rows == z->n_shared * KV_BLOCK);
    assert(!z->state.n_layers || (kv_on_host(kv) && z->mark % KV_BLOCK == 0 &&
                                  (!n_rows || n_rows == from->state->mark.at)));
    if (z->state.n_layers && state_open(&kv->state, &z->state, z->node_max, z->mark, z->cuts, e)) {
        run_drop(kv, r);
        kv_close(kv);
        return -1;
    }
    if (z->state.n_layers && n_rows)
        state_begin(kv->state, from->state);
    if (total && mark_bytes(kv))
        r->counted += mark_bytes(kv), total->bytes += mark_bytes(kv);
    kv->run[kv->n_runs++] = r;
    kv->base = r->base;
    if (n_rows > z->n_shared * KV_BLOCK)
        copy_tail(kv, from, n_rows);
    if (n_rows && kv->ring)
        copy_windows(kv, from, n_rows);
    kv->n_past = kv->n_written = n_rows;
    return 0;
}

int kv_open(struct kv *kv, struct device *dev, const struct kv_size *z, struct err *e)
{
    assert(z->n_shared == 0);
    return kv_open_from(kv, dev, z, NULL, 0, NULL, e);
}

void kv_close(struct kv *kv)
{
    kv_free(kv, kv->scratch, kv_rows_bytes(kv, kv->node_max));
    for (size_t i = 0; i < kv->n_runs; i++)
        run_drop(kv, kv->run[i]);
    free(kv->run);
    mem_free(kv->mark.copy, mark_bytes(kv));
    state_close(kv->state);
    kv_free(kv, kv->shared, table_bytes(kv));
    free((void *)(uintptr_t)kv->heads);
    *kv = (struct kv){ 0 };
}

void kv_retire(struct kv *kv)
{
    const size_t first = kv->n_shared * KV_BLOCK, own = kv->n_written > first ? kv->n_written - first : 0,
                 blocks = blocks_of(own), rings = MIN(blocks_of(kv->n_written), kv->ring);
    const struct kv_heads all = kv_layer(kv, kv->n_layers);
    struct kv_run *r = kv->run[kv->n_runs - 1];
    kv_free(kv, kv->scratch, kv_rows_bytes(kv, kv->node_max));
    kv->scratch = NULL;
    kv->node_max = 0;
    if (kv->state)
        state_retire(kv->state);
    kv->mark.want = kv->mark.at;
    const size_t counts = kv_bytes_before(kv->type, &all, blocks, rings) + all.first * HUGE_PAGE +
                          mark_bytes(kv);
    if (!kv_on_host(kv) || !r->total || counts >= r->counted)
        return;
    r->total->bytes -= r->counted - counts;
    r->counted = counts;
}

struct device_kv kv_view(const struct kv *kv)
{
    return (struct device_kv){ kv->type, kv->n_layers, kv->n_kv_heads, kv->head_dim, kv->base,
                               kv->block_bytes, kv->head_bytes, kv->layer_bytes,
                               kv->scratch, kv->node_max, kv->bias, kv->shared, kv->n_shared,
                               kv->state ? &kv->state->d : NULL, kv->heads, kv->ring };
}

void *kv_block(const struct kv *kv, size_t l, size_t h, size_t pos)
{
    const size_t b = pos / KV_BLOCK;
    const struct kv_heads g = kv_layer(kv, l);
    const size_t own = blocks_of(kv->n_max) - kv->n_shared;
    const bool ring = kv_is_ring(kv, l);
    assert(l < kv->n_layers && h < g.n && pos < kv->n_max && kv_on_host(kv) &&
           (!ring || pos >= kv_first(kv)));
    if (b < kv->n_shared && !ring)
        return kv->shared[(g.first + h) * kv->n_shared + b];
    return kv->base + kv_bytes_before(kv->type, &g, own, kv->ring) +
           (ring ? h * kv->ring + b % kv->ring : h * own + b - kv->n_shared) * kv_head_block(kv, l);
}

void *kv_node(const struct kv *kv, size_t l, size_t node)
{
    const struct kv_heads g = kv_layer(kv, l);
    assert(l < kv->n_layers && node < kv->node_max && kv_on_host(kv));
    return kv->scratch + kv->node_max * kv_rows_of(kv->type, g.first, g.dims) +
           node * g.n * kv_row_bytes(kv->type, g.dim);
}

static void committed(struct kv *kv, size_t n)
{
    const size_t want = kv->mark.want;
    kv->n_past += n;
    kv->n_written = MAX(kv->n_written, kv->n_past);
    if (kv->mark.copy && kv->n_past - n < want && want <= kv->n_past)
        take_mark(kv, want);
}

void kv_advance(struct kv *kv, size_t n)
{
    assert(n <= kv->n_max - kv->n_past);
    if (kv->state)
        state_commit(kv->state, NULL, n);
    committed(kv, n);
}

void kv_place(struct kv *kv, size_t n)
{
    assert(n <= kv->n_max && (kv->state || kv->ring));
    kv->n_past = n;
    kv->n_written = MAX(kv->n_written, MIN((n + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK, kv->n_max));
    if (kv->state)
        state_place(kv->state, n);
    else
        kv->ring_from = window_first(kv, n);
    if (kv->mark.copy)
        take_mark(kv, n);
}

void kv_commit_path(struct kv *kv, const uint32_t *node, size_t n)
{
    assert(n <= kv->n_max - kv->n_past);
    if (!kv_on_host(kv)) {
        const struct device_kv view = kv_view(kv);
        kv->dev->kv_commit(kv->dev, &view, kv->n_past, node, n);
    }
    for (size_t l = 0; kv_on_host(kv) && l < kv->n_layers; l++)
        for (size_t i = 0; i < n; i++) {
            const char *from = kv_node(kv, l, node[i]);
            const struct kv_heads g = kv_layer(kv, l);
            for (size_t h = 0; h < g.n; h++, from += kv_row_bytes(kv->type, g.dim))
                kv_put(kv_block(kv, l, h, kv->n_past + i), kv->type, g.dim, (kv->n_past + i) % KV_BLOCK,
                       from);
        }
    if (kv->state)
        state_commit(kv->state, node, n);
    committed(kv, n);
}

/* Where a cut at n_past goes back to. Sets ring_from, and says whether the windows there are in the mark. */
static size_t ring_truncate(struct kv *kv, size_t n_past, bool *back)
{
    *back = !kv_holds(kv, n_past);
    kv->ring_from = kv_first(kv);
    if (kv->mark.at > n_past)
        kv->mark.at = 0;
    if (!*back)
        return n_past;
    kv->ring_from = kv->mark.at ? window_first(kv, kv->mark.at) : 0;
    return kv->mark.at;
}

void kv_truncate(struct kv *kv, size_t n_past)
{
    assert(n_past <= kv->n_past && n_past >= kv->n_shared * KV_BLOCK);
    static const float zero[2 * 1024];
    assert(kv->head_dim <= 1024);
    const size_t cut = n_past;
    bool back = false;
    if (kv->state)
        n_past = state_truncate(kv->state, n_past);
    if (kv->ring)
        n_past = ring_truncate(kv, n_past, &back);
    assert(n_past >= kv->n_shared * KV_BLOCK);
    if (!kv_on_host(kv)) {
        const struct device_kv view = kv_view(kv);
        kv->dev->kv_zero(kv->dev, &view, n_past, MAX(kv->n_written, n_past));
    }
    for (size_t l = 0; kv_on_host(kv) && l < kv->n_layers; l++)
        for (size_t h = 0; h < kv_layer(kv, l).n && !(back && kv_is_ring(kv, l)); h++) {
            size_t pos = back ? cut : n_past;        /* other caches may share the rows between */
            for (; pos % KV_BLOCK && pos < kv->n_written; pos++)
                kv_put(kv_block(kv, l, h, pos), kv->type, kv_layer(kv, l).dim, pos % KV_BLOCK, zero);
            for (; pos < kv->n_written; pos += KV_BLOCK)
                memset(kv_block(kv, l, h, pos), 0, kv_head_block(kv, l));
        }
    kv->n_past = n_past;
    kv->n_written = n_past;
    if (back && n_past)
        kv_window(kv, n_past, kv->mark.copy, true);
}

void kv_keep_ends(struct kv *kv, size_t first, size_t last)
{
    const size_t from = kv->n_past - last;
    assert(kv_on_host(kv) && first + last <= kv->n_past && !kv->n_shared);
    for (size_t l = 0; l < kv->n_layers; l++)
        for (size_t h = 0; h < kv_layer(kv, l).n; h++)
            for (size_t i = 0, n; i < last; i += n) {
                const size_t src = from + i, to = first + i;
                n = MIN(last - i, KV_BLOCK - MAX(src % KV_BLOCK, to % KV_BLOCK));
                kv_copy(kv_block(kv, l, h, to), to % KV_BLOCK, kv_block(kv, l, h, src), src % KV_BLOCK, n,
                        kv->type, kv_layer(kv, l).dim);
            }
    kv->n_past = first + last;
}
