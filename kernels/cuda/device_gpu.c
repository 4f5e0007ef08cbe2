/* struct device over the kernels: the launches, grids and tables of each operation. No CUDA call is here: the
 * driver below is the GPU's (cuda.c) or the emulated one (gpu.h). begin() writes the tables of a pass into
 * one buffer and uploads it; the operations then launch kernels on them. Start reading at gpu_begin. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "kernels/cuda/gpu.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

enum { ROW_TILES = 4, LIST_MAX = 4096, STAGING = 8 << 20, SLAB_ROWS = 64 };
#define PART_BYTES ((size_t)144 << 20)       /* bound on the chunk states of a slab of rows */

struct gpu {
    struct device d;
    struct gpu_driver *driver;
    struct device_limits limits;
    size_t slab, chunks_max;
    /* tables of the present pass: `bad`, then the arrays of struct cu_rows */
    char *table; size_t table_bytes;
    char *table_host;
    float *part, *product_part;
    uint32_t *ticket, *list;
    char *staging;
    /* the present pass */
    struct cu_rows rows;
    size_t n, n_want, n_tiles, chunks, n_seqs;
    size_t queries;                          /* of a block of attention: CU_QUERIES_ONE, _FEW or _MANY */
    bool open, bad_downloaded; uint64_t bad;           /* between begin and end; `bad` has been downloaded */
    const struct cu_tile *tile;              /* host memory */
};

static size_t power_of_two(size_t n)         /* the least power of two >= n */
{
    size_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

const struct device_kind *device_added;

bool device_is_added(const char *word)
{
    const size_t n = device_added ? strlen(device_added->name) : 0;
    return n && strncmp(word, device_added->name, n) == 0 && (!word[n] || word[n] == ':');
}

/* ---- errors, launches, memory ---- */

struct gpu_driver *gpu_driver_of(struct device *d) { return ((struct gpu *)d)->driver; }

void gpu_check(struct device *d, int rc)
{
    if (rc && !*d->error)
        snprintf(d->error, sizeof d->error, "%s", gpu_driver_of(d)->error);
}

void gpu_launch(struct device *d, enum cu_kernel kernel, const void *args, size_t x, size_t y, size_t z,
                unsigned block, size_t shared)
{
    if (*d->error || !x || !y || !z)
        return;
    assert(x < (size_t)1 << 31 && y < 65536 && z < 65536 && shared <= CU_SHARED_MAX);
    const struct gpu_launch l = { kernel, args, { (unsigned)x, (unsigned)y, (unsigned)z }, block, shared };
    gpu_check(d, gpu_driver_of(d)->launch(gpu_driver_of(d), &l));
}

static void gpu_free(struct device *d, void *p, size_t bytes)
{
    (void)bytes;
    if (p)
        gpu_driver_of(d)->free(gpu_driver_of(d), p);
}
static void *gpu_alloc(struct device *d, size_t bytes)
{
    return gpu_driver_of(d)->alloc(gpu_driver_of(d), bytes, true);
}
static size_t gpu_bytes_free(struct device *d)
{
    return gpu_driver_of(d)->bytes_free(gpu_driver_of(d));
}

static void gpu_upload(struct device *d, void *dst, const void *src, size_t bytes)
{
    if (!*d->error)
        gpu_check(d, gpu_driver_of(d)->upload(gpu_driver_of(d), dst, src, bytes));
}

static int download_pieces(struct gpu *g, const struct gpu_piece *p, size_t n)
{
    if (!*g->d.error)
        gpu_check(&g->d, g->driver->download(g->driver, p, n));
    for (size_t i = 0; i < n; i++)
        g->d.downloaded += p[i].bytes;
    g->d.waits++;
    return *g->d.error ? -1 : 0;
}

static int gpu_download(struct device *d, void *dst, const void *src, size_t bytes)
{
    return download_pieces((struct gpu *)d, &(struct gpu_piece){ dst, src, bytes }, 1);
}

static void gpu_copy(struct device *d, void *dst, const void *src, size_t bytes)
{
    if (!*d->error)
        gpu_check(d, gpu_driver_of(d)->copy(gpu_driver_of(d), dst, src, bytes));
}

static void gpu_zero(struct device *d, void *dst, size_t bytes)
{
    if (!*d->error)
        gpu_check(d, gpu_driver_of(d)->zero(gpu_driver_of(d), dst, bytes));
}

static void gpu_fetch_mark(struct device *d)
{
    if (!*d->error)
        gpu_check(d, gpu_driver_of(d)->fetch_mark(gpu_driver_of(d)));
}

static int gpu_fetch(struct device *d, void *dst, const void *src, size_t bytes, char *why, size_t why_size)
{
    return gpu_driver_of(d)->fetch(gpu_driver_of(d), dst, src, bytes, why, why_size);
}

static void gpu_noise(struct device *d, void *dst, size_t n, uint64_t seed, float deviation)
{
    const size_t blocks = MIN((n + 255) / 256, (size_t)8192);
    const struct cu_noise a = { dst, n, seed * UINT64_C(0x9e3779b97f4a7c15), deviation, (uint32_t)blocks };
    gpu_launch(d, CU_noise, &a, blocks, 1, 1, 256, 0);
}

static size_t gpu_head_dim(const struct device *d, size_t head_dim)
{
    (void)d;
    return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 0;
}

/* ---- matrices ---- */

static enum dtype gpu_mat_type(const struct device *d, enum dtype stored, enum dtype compute)
{
    (void)d, (void)stored;
    return compute == DT_BF16 ? DT_BF16 : DT_OTHER;
}

static size_t tiles_k(size_t k) { return (k + CU_TILE_K - 1) / CU_TILE_K; }
static size_t tiles_n(size_t n) { return (n + CU_TILE_N - 1) / CU_TILE_N; }
static size_t mat_pieces(size_t n, size_t k)
{
    return MAX(1, MIN(CU_PIECES, tiles_n(n) * tiles_k(k) / CU_PIECE_MIN));
}

static size_t gpu_mat_size(const struct device *d, enum dtype type, size_t n, size_t k)
{
    (void)d;
    assert(type == DT_BF16);
    return tiles_n(n) * tiles_k(k) * CU_TILE * 2;
}

static void gpu_mat_put(struct device *d, struct mat *m, size_t r0, size_t n, const void *src,
                        enum dtype from)
{
    struct gpu *g = (struct gpu *)d;
    const size_t row = m->k * dtype_size(from), some = MAX(1, STAGING / row);
    assert(m->type == DT_BF16 && m->n <= UINT32_MAX && m->k <= UINT32_MAX && r0 + n <= m->n &&
           row <= STAGING);
    if (!g->staging && !(g->staging = g->driver->alloc(g->driver, STAGING, false))) {
        if (!*d->error)
            snprintf(d->error, sizeof d->error, "no device memory for a staging buffer of weights (%d bytes)",
                     STAGING);
        return;
    }
    for (size_t i = 0; i < n; i += some) {
        const size_t rows = MIN(some, n - i);
        const struct cu_pack a = { m->w, g->staging, from, (uint32_t)(r0 + i), (uint32_t)rows,
                                   (uint32_t)m->k };
        gpu_upload(d, g->staging, (const char *)src + i * row, rows * row);
        gpu_launch(d, CU_pack, &a, (rows * m->k + 255) / 256, 1, 1, 256, 0);
    }
}

/* ---- working memory ---- */

struct sizes { size_t slab, chunks_max, table, part, product_part, ticket, list; };

static struct sizes sizes_of(const struct device_limits *l)
{
    struct sizes s;
    const size_t dp = gpu_head_dim(NULL, l->heads.head_dim), paths = MIN(l->rows_max, MAX(l->node_max, 1));
    s.chunks_max = power_of_two(cu_chunk_of(l->n_max) + 1);
    const size_t per_row = s.chunks_max * l->heads.n_heads * (2 + dp) * sizeof(float);
    s.slab = MAX(1, MIN(MIN((size_t)SLAB_ROWS, l->rows_max), PART_BYTES / per_row));
    s.part = s.slab * per_row;
    s.table = 4096 +
              l->rows_max * (sizeof(struct cu_seq) + sizeof(struct cu_tile) + 7 * sizeof(uint32_t) +
                             l->heads.head_dim * sizeof(float)) +
              (paths * (paths + 1) / 2 + l->rows_max) * sizeof(uint32_t);
    const size_t tiles = l->rows_max > CU_ROWS_FEW
                             ? MIN((size_t)ROW_TILES, (l->rows_max + CU_ROWS_MANY - 1) / CU_ROWS_MANY)
                             : 1;
    s.product_part = tiles * CU_PIECES * 2 * CU_TILE_N *
                     (l->rows_max > CU_ROWS_FEW ? CU_ROWS_MANY : CU_ROWS_FEW) * sizeof(float);
    s.ticket = tiles * tiles_n(l->n_out_max) * sizeof(uint32_t);
    s.list = 2 * LIST_MAX * 3 * sizeof(uint32_t);
    return s;
}

static size_t gpu_reserve_bytes(const struct device *d, const struct device_limits *l)
{
    const struct sizes s = sizes_of(l);
    (void)d;
    return s.table + s.part + s.product_part + s.ticket + s.list;
}

static int gpu_reserve(struct device *d, const struct device_limits *want)
{
    struct gpu *g = (struct gpu *)d;
    struct device_limits *have = &g->limits, l = *want;
    assert(!have->rows_max || memcmp(&have->heads, &l.heads, sizeof l.heads) == 0);
    if (!gpu_head_dim(d, l.heads.head_dim) || l.heads.n_heads / l.heads.n_kv_heads > CU_GROUP_MAX) {
        snprintf(d->error, sizeof d->error,
                 "heads of %zu dimensions, %zu query heads for each of %zu KV heads; at most 128 dimensions "
                 "and %d are supported",
                 l.heads.head_dim, l.heads.n_heads / l.heads.n_kv_heads, l.heads.n_kv_heads, CU_GROUP_MAX);
        return -1;
    }
    l.rows_max = MAX(l.rows_max, have->rows_max), l.n_max = MAX(l.n_max, have->n_max),
    l.node_max = MAX(l.node_max, have->node_max);
    l.n_out_max = MAX(l.n_out_max, have->n_out_max), l.vocab = MAX(l.vocab, have->vocab);
    const struct sizes s = sizes_of(&l);
    const struct { void *slot; size_t bytes; bool zeroed;
    } buffers[] = {
        { &g->table, s.table, false }, { &g->part, s.part, false },
        { &g->product_part, s.product_part, false }, { &g->ticket, s.ticket, true },
        { &g->list, s.list, false },
    };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        void *p;
        memcpy(&p, buffers[i].slot, sizeof p);
        gpu_free(d, p, 0);
        p = g->driver->alloc(g->driver, buffers[i].bytes, buffers[i].zeroed);
        memcpy(buffers[i].slot, &p, sizeof p);
        if (!p && !*d->error)
            snprintf(d->error, sizeof d->error, "out of memory: %zu bytes of working memory",
                     gpu_reserve_bytes(d, &l));
    }
    free(g->table_host);
    g->table_host = malloc(s.table);
    if (!g->table_host && !*d->error)
        snprintf(d->error, sizeof d->error, "out of memory (%zu bytes)", s.table);
    g->table_bytes = s.table, g->slab = s.slab, g->chunks_max = s.chunks_max;
    g->limits = l;
    return *d->error ? -1 : 0;
}

/* ---- a pass ---- */

/* Reserves the next `bytes` of the table. Returns their host address; *there is their device address. */
static void *table_alloc(struct gpu *g, size_t *at, size_t bytes, const void **there)
{
    void *p = g->table_host + *at;
    *there = g->table + *at;
    *at += (bytes + 15) / 16 * 16;
    assert(*at <= g->table_bytes);
    return p;
}

static struct cu_seq seq_of(const struct device_seq *s)
{
    const struct device_kv *kv = s->kv;
    return (struct cu_seq){ kv->base, kv->scratch, kv->shared, kv->head_bytes, kv->layer_bytes,
                            kv->node_max * kv->n_kv_heads * 2 * kv->head_dim * 2, s->importance,
                            s->importance_step, (uint32_t)s->row0, (uint32_t)s->n, (uint32_t)s->n_past,
                                s->tree, s->shifted, (uint32_t)kv->n_shared };
}

/* Cuts the rows into tiles of attention: at most `rows` rows of one sequence, not across slabs. */
static size_t cut_tiles(const struct gpu *g, const struct device_rows *r, size_t rows, struct cu_tile *tile)
{
    size_t n = 0;
    for (size_t i = 0; i < r->n_seqs; i++)
        for (size_t j = 0, some; j < r->seq[i].n; j += some) {
            const size_t row0 = r->seq[i].row0 + j;
            some = MIN(MIN(rows, r->seq[i].n - j), g->slab - row0 % g->slab);
            struct cu_tile t = { (uint32_t)i, (uint32_t)row0, (uint32_t)some, UINT32_MAX, 0 };
            for (size_t k = row0; k < row0 + some; k++) {
                t.pos_min = MIN(t.pos_min, r->pos[k]);
                t.pos_max = MAX(t.pos_max, r->pos[k]);
            }
            tile[n++] = t;
        }
    return n;
}

static void gpu_begin(struct device *d, const struct device_rows *r)
{
    struct gpu *g = (struct gpu *)d;
    const size_t n = r->n, group = g->limits.heads.n_heads / g->limits.heads.n_kv_heads,
                 angles = n * r->n_freq * sizeof(float), words = n * sizeof(uint32_t);
    size_t at = 0, longest = 0, last = 0, n_node = 0;
    const void *bad;
    assert(n >= 1 && n <= g->limits.rows_max && r->n_seqs <= n && r->n_want <= n);
    *(uint64_t *)table_alloc(g, &at, sizeof(uint64_t), &bad) = UINT64_MAX;
    struct cu_seq *seq = table_alloc(g, &at, r->n_seqs * sizeof *seq, (const void **)&g->rows.seq);
    uint32_t *seq_at = table_alloc(g, &at, words, (const void **)&g->rows.seq_of);
    memcpy(table_alloc(g, &at, words, (const void **)&g->rows.token), r->token, words);
    memcpy(table_alloc(g, &at, words, (const void **)&g->rows.pos), r->pos, words);
    memcpy(table_alloc(g, &at, words, (const void **)&g->rows.hi), r->hi, words);
    uint32_t *count = table_alloc(g, &at, words, (const void **)&g->rows.n_node),
             *node_at = table_alloc(g, &at, words, (const void **)&g->rows.node_at);
    float *cos = table_alloc(g, &at, angles, (const void **)&g->rows.cos),
          *sin = table_alloc(g, &at, angles, (const void **)&g->rows.sin);
    if (r->n_want)
        memcpy(table_alloc(g, &at, r->n_want * sizeof(uint32_t), (const void **)&g->rows.want), r->want,
               r->n_want * sizeof(uint32_t));
    for (size_t i = 0; i < r->n_seqs; i++) {
        assert(r->seq[i].kv->type == DT_BF16 &&
               r->seq[i].kv->head_dim == gpu_head_dim(d, g->limits.heads.head_dim));
        seq[i] = seq_of(&r->seq[i]);
        longest = MAX(longest, r->seq[i].n);
        for (size_t j = r->seq[i].row0; j < r->seq[i].row0 + r->seq[i].n; j++) {
            seq_at[j] = (uint32_t)i;
            count[j] = r->seq[i].tree ? r->n_node[j] : 0;
            node_at[j] = (uint32_t)n_node;
            n_node += count[j];
            last = MAX(last, r->pos[j]);
        }
    }
    for (size_t i = 0; i < n; i++)
        rope_angles(cos + i * r->n_freq, sin + i * r->n_freq, r->angle[i], r->inv_freq, r->n_freq,
                    r->rope_factor);
    g->queries = longest * group <= CU_QUERIES_ONE   ? CU_QUERIES_ONE
                 : longest * group <= CU_QUERIES_FEW ? CU_QUERIES_FEW
                                                     : CU_QUERIES_MANY;
    struct cu_tile *tile = (struct cu_tile *)(void *)(g->table_host + at);
    g->tile = tile;
    g->n_tiles = cut_tiles(g, r, g->queries / group, tile);
    table_alloc(g, &at, g->n_tiles * sizeof *tile, (const void **)&g->rows.tile);
    uint32_t *node = table_alloc(g, &at, n_node * sizeof *node, (const void **)&g->rows.node);
    for (size_t i = 0; n_node && i < n; i++)      /* set only if there are sequences */
        if (count[i])
            memcpy(node + node_at[i], r->node + i * r->node_step, count[i] * sizeof *node);
    g->chunks = power_of_two(cu_chunk_of(last) + 1);
    assert(g->chunks <= g->chunks_max);
    g->n = n, g->n_seqs = r->n_seqs, g->n_want = r->n_want;
    g->open = true, g->bad_downloaded = false;
    gpu_upload(d, g->table, g->table_host, at);
}

static bool gpu_graph_begin(struct device *d, uint64_t key)
{
    struct gpu *g = (struct gpu *)d;
    const uint64_t shape[] = { key, g->n, g->n_seqs, g->n_want, g->n_tiles, g->chunks, g->queries };
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        h = (h ^ shape[i]) * UINT64_C(0x9e3779b97f4a7c15), h ^= h >> 29;
    if (*d->error)
        return false;
    const bool launched = g->driver->graph_begin(g->driver, h);
    gpu_check(d, *g->driver->error ? -1 : 0);
    d->played += launched;
    return launched;
}

static bool gpu_graph_end(struct device *d)
{
    struct gpu *g = (struct gpu *)d;
    const int rc = g->driver->graph_end(g->driver);
    gpu_check(d, rc < 0 ? -1 : 0);
    return rc <= 0;
}

static int gpu_end(struct device *d, struct device_bad *bad)
{
    struct gpu *g = (struct gpu *)d;
    const struct gpu_piece word = { &g->bad, g->table, sizeof g->bad };
    const int rc = g->bad_downloaded && !*d->error ? 0 : download_pieces(g, &word, 1);
    g->open = false;
    *bad = (struct device_bad){ g->bad != UINT64_MAX, (size_t)(g->bad & UINT32_MAX), (size_t)(g->bad >> 32) };
    return rc;
}

static uint64_t place_of(size_t place) { return place == SIZE_MAX ? UINT64_MAX : place; }

static void gpu_embed(struct device *d, float *x, const struct mat *table, bool packed)
{
    struct gpu *g = (struct gpu *)d;
    const struct cu_embed a = { g->rows, x, table->w, table->type, packed, (uint32_t)table->k };
    gpu_launch(d, CU_embed, &a, g->n, 1, 1, 256, 0);
}

static void gpu_rmsnorm(struct device *d, void *y, const float *x, const float *w, size_t n, size_t dim,
                        float eps, size_t place)
{
    struct gpu *g = (struct gpu *)d;
    const struct cu_rmsnorm a = { y, x, w, (uint64_t *)(void *)g->table, place_of(place), (uint32_t)dim,
                                  eps };
    gpu_launch(d, CU_rmsnorm, &a, n, 1, 1, CU_NORM_THREADS, CU_NORM_THREADS / 32 * sizeof(float));
}

static void gpu_product(struct device *d, const struct device_product *p)
{
    struct gpu *g = (struct gpu *)d;
    const struct mat *w = p->w;
    const size_t tile = p->n <= CU_ROWS_FEW ? CU_ROWS_FEW : CU_ROWS_MANY, pieces = mat_pieces(w->n, w->k),
                 some = ROW_TILES * tile;
    assert(w->n <= g->limits.n_out_max && p->n <= g->limits.rows_max);
    for (size_t r = 0; r < p->n; r += some) {
        const size_t rows = MIN(some, p->n - r);
        const struct cu_product a = {
            p->y + r * p->ldy, p->ldy, (const uint16_t *)p->x + r * w->k, w->w, p->bias, g->product_part,
            g->ticket, (uint64_t *)(void *)g->table, place_of(p->place), (uint32_t)rows, (uint32_t)w->n,
            (uint32_t)w->k, p->add, (uint32_t)pieces, 0 };
        gpu_launch(d, tile == CU_ROWS_FEW ? CU_product_few : CU_product_many, &a, (rows + tile - 1) / tile,
               pieces, 1, 128, CU_STAGES * (CU_TILE * 2 + tile * 128) + 16);
    }
}

static void gpu_rope(struct device *d, const struct device_rope *p)
{
    struct gpu *g = (struct gpu *)d;
    const struct device_heads *h = p->heads;
    const struct cu_rope a = { g->rows, p->q, p->qkv, p->q_tap, p->q_norm, p->k_norm, p->eps,
                               (float)(0x1.71547652b82fep0 / sqrt((double)h->head_dim)), (uint32_t)g->n,
                               (uint32_t)h->n_heads, (uint32_t)h->n_kv_heads, (uint32_t)h->head_dim,
                               (uint32_t)h->padded, (uint32_t)p->layer };
    gpu_launch(d, CU_rope, &a, (g->n * (h->n_heads + 2 * h->n_kv_heads) + 3) / 4, 1, 1, 128, 0);
}

/* Computes slab by slab: the chunk states of a slab fit the working memory. */
static void gpu_attend(struct device *d, void *out, const void *q, const struct device_heads *h, size_t layer,
                       size_t window)
{
    struct gpu *g = (struct gpu *)d;
    static const enum cu_kernel kernels[2][3] = {
        { CU_attend_64_one, CU_attend_64_few, CU_attend_64_many },
        { CU_attend_128_one, CU_attend_128_few, CU_attend_128_many } };
    const size_t dp = h->padded, 
                 which = g->queries == CU_QUERIES_ONE ? 0 : g->queries == CU_QUERIES_FEW ? 1 : 2;
    /* queries, two blocks of K and V, and scores that warps exchange */
    const size_t bytes = g->queries * dp * 2 + 2 * 2 * KV_BLOCK * dp * 2 +
                         (which ? 0 : CU_QUERIES_ONE * KV_BLOCK * sizeof(float));
    for (size_t t0 = 0, t1; t0 < g->n_tiles; t0 = t1) {
        const size_t row0 = g->tile[t0].row0, slab = row0 / g->slab;
        for (t1 = t0; t1 < g->n_tiles && g->tile[t1].row0 / g->slab == slab; t1++)
            ;
        const size_t rows = (t1 < g->n_tiles ? g->tile[t1].row0 : g->n) - row0;
        const struct cu_attend a = { g->rows, q, g->part, (uint32_t)h->n_heads, (uint32_t)h->n_kv_heads,
                                     (uint32_t)layer, (uint32_t)window,
                                     (uint32_t)g->chunks, (uint32_t)t0, (uint32_t)row0, 0 };
        const struct cu_merge b = { g->rows, out, g->part, (uint32_t)h->n_heads, (uint32_t)dp,
                                    (uint32_t)window, (uint32_t)g->chunks, (uint32_t)row0, (uint32_t)rows };
        gpu_launch(d, kernels[dp == 128][which], &a, t1 - t0, h->n_kv_heads, g->chunks, 128, bytes);
        gpu_launch(d, CU_merge, &b, rows * h->n_heads, 1, 1, (unsigned)dp,
                   (3 * dp + dp / 32) * sizeof(float));
    }
}

static void gpu_swiglu(struct device *d, void *h, const float *gate_up, size_t n, size_t ffn)
{
    const struct cu_swiglu a = { h, gate_up, n * ffn, (uint32_t)ffn };
    gpu_launch(d, CU_swiglu, &a, (n * ffn + 255) / 256, 1, 1, 256, 0);
}

static void gpu_gather(struct device *d, void *dst, const void *src, size_t row_bytes)
{
    struct gpu *g = (struct gpu *)d;
    const struct cu_gather a = { dst, src, g->rows.want, (uint32_t)(row_bytes / 4), (uint32_t)g->n_want };
    assert(row_bytes % 4 == 0);
    gpu_launch(d, CU_gather, &a, g->n_want, 1, 1, 256, 0);
}

static void gpu_widen(struct device *d, float *y, const void *x, size_t n)
{
    const struct cu_widen a = { y, x, n };
    gpu_launch(d, CU_widen, &a, (n + 255) / 256, 1, 1, 256, 0);
}

static void gpu_narrow(struct device *d, void *y, const float *x, size_t n)
{
    const struct cu_narrow a = { y, x, n };
    gpu_launch(d, CU_narrow, &a, (n + 255) / 256, 1, 1, 256, 0);
}

/* ---- caches ---- */

static struct cu_cache cache_of(const struct device_kv *kv)
{
    return (struct cu_cache){ kv->base, kv->scratch, kv->shared, kv->head_bytes, kv->layer_bytes,
                              kv->node_max * kv->n_kv_heads * 2 * kv->head_dim * 2, kv->n_shared };
}

static void copy_rows(struct device *d, const struct device_kv *dst, const struct device_kv *src,
                      const uint32_t *from, const uint32_t *to, size_t to0, size_t n, bool nodes)
{
    struct gpu *g = (struct gpu *)d;
    for (size_t i = 0; i < n; i += LIST_MAX) {
        const size_t some = MIN((size_t)LIST_MAX, n - i);
        gpu_upload(d, g->list, from + i, some * sizeof *from);
        if (to)
            gpu_upload(d, g->list + LIST_MAX, to + i, some * sizeof *to);
        const struct cu_kv_copy a = { cache_of(dst), cache_of(src), g->list, to ? g->list + LIST_MAX : NULL,
                                      0, (uint32_t)(to0 + i),
                                      (uint32_t)dst->n_kv_heads, (uint32_t)dst->head_dim, nodes, 0 };
        gpu_launch(d, CU_kv_copy, &a, some, dst->n_layers * dst->n_kv_heads, 1, 32, 0);
    }
}

static void gpu_kv_commit(struct device *d, const struct device_kv *kv, size_t n_past, const uint32_t *node,
                          size_t n)
{
    copy_rows(d, kv, kv, node, NULL, n_past, n, true);
}

static void gpu_kv_copy(struct device *d, const struct device_kv *dst, const struct device_kv *src,
                        const uint32_t *from, const uint32_t *to, size_t n)
{
    copy_rows(d, dst, src, from, to, 0, n, false);
}

static void gpu_kv_zero(struct device *d, const struct device_kv *kv, size_t from, size_t to)
{
    const struct cu_kv_zero a = { cache_of(kv), (uint32_t)from, (uint32_t)(to - from),
                                  (uint32_t)kv->n_kv_heads, (uint32_t)kv->head_dim };
    gpu_launch(d, CU_kv_zero, &a, to > from ? to - from : 0, kv->n_layers * kv->n_kv_heads, 1, 32,
           0);
}

static size_t gpu_select_bytes(const struct device *d, size_t n_layers, size_t n_kv_heads, size_t budget)
{
    (void)d;
    return n_layers * n_kv_heads * power_of_two(budget) * sizeof(uint64_t);
}

static void gpu_kv_select(struct device *d, const struct device_selection *s)
{
    struct gpu *g = (struct gpu *)d;
    const struct cu_kv_select a = { s->importance, s->importance_step, power_of_two(s->budget), s->row_step,
                                    g->list, s->row, s->work, (uint32_t)s->n_past,
                                    (uint32_t)s->sinks, (uint32_t)s->budget, (uint32_t)s->n_kv_heads };
    assert(s->budget <= s->n_past && s->sinks >= 1 && s->sinks < s->budget && s->budget <= s->row_step &&
           s->n_layers <= LIST_MAX);
    gpu_upload(d, g->list, s->from, s->n_layers * sizeof *s->from);
    gpu_launch(d, CU_kv_select, &a, s->n_kv_heads, s->n_layers, 1, CU_SELECT_THREADS, CU_SELECT_SHARED);
}

static void gpu_kv_gather(struct device *d, const struct device_kv *dst, const struct device_kv *src,
                        const uint32_t *row, size_t row_step, size_t n)
{
    const struct cu_kv_copy a = { cache_of(dst), cache_of(src), row, NULL, (uint32_t)row_step, 0,
                                  (uint32_t)dst->n_kv_heads, (uint32_t)dst->head_dim, 0, 0 };
    gpu_launch(d, CU_kv_copy, &a, n, dst->n_layers * dst->n_kv_heads, 1, 32, 0);
}

/* ---- logits ---- */

static void gpu_count(struct device *d, uint32_t *counts, size_t vocab, const struct device_count *list,
                      size_t n)
{
    struct gpu *g = (struct gpu *)d;
    for (size_t i = 0; i < n; i += LIST_MAX) {
        const size_t some = MIN((size_t)LIST_MAX, n - i);
        const struct cu_count a = { counts, g->list, (uint32_t)vocab, (uint32_t)some };
        gpu_upload(d, g->list, list + i, some * sizeof *list);
        gpu_launch(d, CU_count, &a, (some + 255) / 256, 1, 1, 256, 0);
    }
}

/* Layout of the working memory of `sample`: the lists, the candidates that are downloaded, and the rows as
 * the chain changes them. */
struct call { size_t edit, count, best, x, keys, keys_step, bytes; };

static struct call call_of(size_t n, size_t n_edit, size_t n_count, size_t vocab)
{
    struct call s = { .keys_step = power_of_two(vocab) };
    s.edit = n * sizeof(struct cu_pick);
    s.count = s.edit + n_edit * sizeof(struct cu_edit);
    s.best = (s.count + n_count * sizeof(struct device_count) + 15) / 16 * 16;
    s.x = (s.best + n * CU_RANK_MAX * sizeof(struct cu_candidate) + 255) / 256 * 256;
    s.keys = (s.x + n * vocab * sizeof(float) + 255) / 256 * 256;
    s.bytes = s.keys + n * s.keys_step * sizeof(uint64_t);
    return s;
}

static size_t gpu_sample_bytes(const struct device *d, size_t n, size_t n_edit, size_t n_count, size_t vocab)
{
    (void)d;
    return call_of(n, n_edit, n_count, vocab).bytes;
}

static int gpu_sample(struct device *d, struct device_candidate *best, size_t k, const float *logits,
                      size_t vocab, const struct device_chain *p, const struct device_picks *c)
{
    struct gpu *g = (struct gpu *)d;
    const struct call s = call_of(c->n, c->n_edit, c->n_count, vocab);
    char *w = c->work;
    unsigned block = CU_SAMPLE_THREADS_MIN;      /* no result depends on it */
    while (block < CU_SAMPLE_THREADS && block * 2 < vocab)
        block *= 2;
    static_assert(sizeof(struct device_pick) == sizeof(struct cu_pick) &&
                      sizeof(struct device_edit) == sizeof(struct cu_edit) &&
                      sizeof(struct device_candidate) == sizeof(struct cu_candidate),
                  "they go up and come down as they lie");
    assert(k >= 1 && k <= CU_RANK_MAX && p->n_order <= CU_STEPS_MAX && vocab <= SELECT_MAX);
    for (size_t i = 0; i < c->n; i++)
        assert(c->pick[i].n_count <= block && c->pick[i].count + c->pick[i].n_count <= c->n_count &&
               c->pick[i].edit + c->pick[i].n_edit <= c->n_edit &&
               c->pick[i].dry + c->pick[i].n_dry <= c->n_edit);
    struct cu_sample a = { .logits = logits, .pick = (void *)w, .edit = (void *)(w + s.edit),
                           .count = (void *)(w + s.count), .counts = p->counts,
        .best = (void *)(w + s.best), .top_p = p->top_p, .min_p = p->min_p, .eta = p->eta,
        .presence = p->presence, .frequency = p->frequency,
        .penalty = p->penalty, .seed = p->seed, .work = (void *)(w + s.keys), .work_step = s.keys_step,
        .x = (void *)(w + s.x),
        .temperature = (float)p->temperature, .greedy = p->temperature == 0, .sample = p->sample,
        .vocab = (uint32_t)vocab,
        .top_k = (uint32_t)MIN(MAX(p->top_k, p->min_keep), vocab), .min_keep = (uint32_t)MIN(p->min_keep,
            vocab), .k = (uint32_t)k };
    for (size_t i = 0; i < p->n_order; i++) {
        const enum device_step step = p->order[i];
        const bool off = (step == DEVICE_TOP_K && !p->top_k) || (step == DEVICE_TOP_P && p->top_p >= 1) ||
                         (step == DEVICE_MIN_P && p->min_p <= 0) || (step == DEVICE_ETA && p->eta <= 0);
        if (!off)
            a.order[a.n_order++] = (uint8_t)step;
    }
    gpu_upload(d, w, c->pick, c->n * sizeof *c->pick);
    if (c->n_edit)
        gpu_upload(d, w + s.edit, c->edit, c->n_edit * sizeof *c->edit);
    if (c->n_count)
        gpu_upload(d, w + s.count, c->count, c->n_count * sizeof *c->count);
    gpu_launch(d, CU_sample, &a, c->n, 1, 1, block, CU_SAMPLE_SHARED);
    const struct gpu_piece piece[] = { { best, w + s.best, c->n * k * sizeof *best }, { &g->bad, g->table,
        sizeof g->bad } };
    const bool with_bad = g->open && !g->bad_downloaded;
    g->bad_downloaded |= with_bad;
    return download_pieces(g, piece, with_bad ? 2 : 1);
}

/* ---- open ---- */

static void gpu_close(struct device *d)
{
    struct gpu *g = (struct gpu *)d;
    void *const mine[] = { g->table, g->part, g->product_part, g->ticket, g->list, g->staging };
    for (size_t i = 0; i < sizeof mine / sizeof *mine; i++)
        gpu_free(d, mine[i], 0);
    free(g->table_host);
    g->driver->close(g->driver);
    free(g);
}

int gpu_open(struct device **out, struct gpu_driver *driver, char *why, size_t why_size)
{
    struct gpu *g = calloc(1, sizeof *g);
    if (!g) {
        snprintf(why, why_size, "out of memory");
        driver->close(driver);
        return -1;
    }
    g->driver = driver;
    g->d = (struct device){ .kind = driver->kind, .kv_type = DT_BF16, .close = gpu_close, .alloc = gpu_alloc,
                            .free = gpu_free, .bytes_free = gpu_bytes_free, .upload = gpu_upload,
        .download = gpu_download, .copy = gpu_copy, .zero = gpu_zero, .noise = gpu_noise,
        .fetch_mark = gpu_fetch_mark,
        .fetch = gpu_fetch, .head_dim = gpu_head_dim, .mat_type = gpu_mat_type, .mat_size = gpu_mat_size,
        .mat_put = gpu_mat_put, .reserve_bytes = gpu_reserve_bytes, .reserve = gpu_reserve,
        .begin = gpu_begin, .graph_begin = gpu_graph_begin,
        .graph_end = gpu_graph_end, .end = gpu_end, .embed = gpu_embed, .rmsnorm = gpu_rmsnorm,
        .product = gpu_product, .rope = gpu_rope, .attend = gpu_attend,
        .swiglu = gpu_swiglu, .gather = gpu_gather, .widen = gpu_widen, .narrow = gpu_narrow,
        .kv_commit = gpu_kv_commit, .kv_copy = gpu_kv_copy,
        .kv_zero = gpu_kv_zero, .kv_select = gpu_kv_select, .select_bytes = gpu_select_bytes,
        .kv_gather = gpu_kv_gather, .count = gpu_count, .sample = gpu_sample,
            .sample_bytes = gpu_sample_bytes };
    memcpy(g->d.name, driver->name, sizeof g->d.name);
    g->d.graph_bytes = driver->graph_bytes;
    memcpy(g->d.numerics, driver->numerics, sizeof g->d.numerics);
    memcpy(g->d.id, driver->id, sizeof g->d.id);
    *out = &g->d;
    return 0;
}
