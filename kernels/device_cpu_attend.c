/* Attention of the device `cpu`: the rotation of queries and keys, and the pass over the caches. Start at
 * cpu_attend. */
#include "kernels/device_cpu.h"

#include <assert.h>
#include <math.h>

#include "kernels/exp_d.h"
#include "kernels/pool.h"
#include "kernels/twins.h"
#include "src/base/base.h"

enum { HEAD_DIM_MAX = 512 };

static const float ones[HEAD_DIM_MAX] = { [0 ... HEAD_DIM_MAX - 1] = 1 };

struct rope_args { const struct device_rope *a; double scale; };

/* The factor on the queries of row r (struct device_rows). */
static double growth(const struct device_rows *p, size_t r)
{
    return p->growth == 0 ? 1 : 1 + p->growth * log_d(1 + (double)(p->angle[r] / p->growth_length));
}

/* The block that a pass writes row `pos` to: never a shared one. */
static void *block_at(const struct device_kv *kv, size_t l, size_t h, size_t pos)
{
    const size_t ring = device_kv_ring(kv, l), bytes = kv_block_bytes(kv->type, device_kv_heads(kv, l).dim);
    assert(pos / KV_BLOCK >= kv->n_shared);
    return device_kv_base(kv, l) + (ring ? h * ring + pos / KV_BLOCK % ring
                                         : h * device_kv_own(kv) + pos / KV_BLOCK - kv->n_shared) * bytes;
}

static char *node_at(const struct device_kv *kv, size_t l, size_t node)
{
    const struct kv_heads g = device_kv_heads(kv, l);
    return device_kv_scratch(kv, l) + node * g.n * kv_row_bytes(kv->type, g.dim);
}

/* Stores k and v of row r in the form of the cache, before any attention reads them. Overwrites them. */
static void store_kv(const struct cpu *c, const struct device_rope *p, size_t r, float *k, float *v)
{
    const struct device_seq *s = &c->rows->seq[c->seq_of[r]];
    const bool rotated = kv_form(s->kv->type).rotated;
    const size_t dp = p->heads->padded, pos = c->rows->pos[r], bytes = kv_row_bytes(s->kv->type, dp);
    char *node = s->tree ? node_at(s->kv, p->layer, s->node0 + r - s->row0) : NULL;
    for (size_t h = 0; h < p->heads->n_kv_heads; h++, k += dp, v += dp) {
        if (rotated) {
            c->ops->rotate(k, dp, 1 / (float)kv_rotation(dp));
            c->ops->rotate(v, dp, 1 / (float)kv_rotation(dp));
        }
        if (node) {
            kv_store(node + h * bytes, s->kv->type, k, v, dp);
        } else {
            float stored[2 * HEAD_DIM_MAX];
            kv_store(stored, s->kv->type, k, v, dp);
            kv_put(block_at(s->kv, p->layer, h, pos), s->kv->type, dp, pos % KV_BLOCK, stored);
        }
    }
}

/* Rotates q and k, stores k and v, and arranges q for attention: by slab, then [kv
 * head][row][group][head_dim]. */
static void rope_rows(const struct cpu *c, const void *args, size_t r0, size_t r1)
{
    const struct rope_args *job = args;
    const struct device_rope *p = job->a;
    const struct device_heads *g = p->heads;
    const size_t d = g->head_dim, dp = g->padded, kv_heads = p->queries ? 0 : g->n_kv_heads,
                 q_step = p->gated ? 2 * dp : dp, half = p->local ? c->rows->n_local : c->rows->n_freq,
                 group = g->n_heads / g->n_kv_heads;
    const float *cosines = p->local ? c->local_cos : c->cos, *sines = p->local ? c->local_sin : c->sin;
    for (size_t r = r0; r < r1; r++) {
        const struct device_seq *s = &c->rows->seq[c->seq_of[r]];
        const struct kv_form f = kv_form(s->kv->type);
        const float scale = (float)(job->scale * growth(c->rows, r));
        float *q = p->qkv + r * (g->n_heads * q_step + 2 * kv_heads * dp), *k = q + g->n_heads * q_step;
        if (p->v_is_k)
            memcpy(k + kv_heads * dp, k, kv_heads * dp * sizeof *k);
        for (int i = 0; p->whole && i < 2; i++) {
            const size_t n = (i ? kv_heads : g->n_heads) * d;
            c->ops->rmsnorm(i ? k : q, n, DT_F32, i ? k : q, n, i ? p->k_norm : p->q_norm, 1, n, p->eps);
        }
        for (size_t h = 0; p->v_norm && h < kv_heads; h++)
            c->ops->rmsnorm(k + (kv_heads + h) * dp, dp, DT_F32, k + (kv_heads + h) * dp, dp, ones, 1, d,
                            p->eps);
        for (size_t h = 0; h < g->n_heads + kv_heads; h++) {
            float *x = h < g->n_heads ? q + h * q_step : k + (h - g->n_heads) * dp;
            const float *norm = h < g->n_heads ? p->q_norm : p->k_norm;
            if (norm && !p->whole)
                c->ops->rmsnorm(x, dp, DT_F32, x, dp, norm, 1, d, p->eps);
            c->ops->rope(x, cosines + r * half, sines + r * half, 2 * half);
            if (p->q_tap && h < g->n_heads)
                memcpy(p->q_tap + (r * g->n_heads + h) * d, x, d * sizeof *x);
        }
        if (!p->queries)
            store_kv(c, p, r, k, k + g->n_kv_heads * dp);
        const size_t in_slab = (r - s->row0) % c->slab, first = r - in_slab,
                     rows = MIN(c->slab, s->row0 + s->n - first);
        for (size_t h = 0; h < g->n_heads; h++) {
            const size_t at = first * g->n_heads + (h / group * rows + in_slab) * group + h % group;
            if (f.rotated)
                c->ops->rotate(q + h * q_step, dp, 1);
            if (f.q == DT_I16)
                kv_query((int16_t *)p->q + at * dp, &c->q_scale[at], q + h * q_step, scale, dp);
            else
                c->ops->round((char *)p->q + at * dp * dtype_size(f.q), f.q, q + h * q_step, scale, dp);
        }
    }
}

void cpu_rope(struct device *d, const struct device_rope *a)
{
    struct cpu *c = (struct cpu *)d;
    /* log2(e)/sqrt(head_dim): scores are then exponents of 2 */
    const struct rope_args p = {
        a, 0x1.71547652b82fep0 / sqrt(a->scalar != 0 ? a->scalar : (double)a->heads->head_dim)
    };
    cpu_each_row(c, rope_rows, &p, c->rows->n);
}

/* Rows of one sequence. pieces: number of items that its rows are cut into; end: items up to its last one. */
struct slab { struct attn a; char *out; size_t row0, pieces, end; };

/* Slabs that are computed together, of consecutive rows: texts that have one row each share one run of the
 * pool. */
enum { ATTEND_SLABS = 16 };
struct attending { const struct cpu *c; struct slab slab[ATTEND_SLABS]; size_t n; };

static void attend_item(void *ctx, size_t i, size_t thread)
{
    const struct attending *all = ctx;
    const struct slab *p = all->slab;
    for (; i >= p->end; p++)
        ;
    i -= p == all->slab ? 0 : p[-1].end;
    const size_t piece = i % p->pieces, chunk = i / p->pieces % p->a.n_chunks,
                 h = i / p->pieces / p->a.n_chunks;
    all->c->ops->attend(&p->a, h, p->a.chunk0 + chunk, piece * p->a.m / p->pieces,
                        (piece + 1) * p->a.m / p->pieces, all->c->work + thread * all->c->work_bytes);
}

static void merge_rows(const struct cpu *c, const void *args, size_t r0, size_t r1)
{
    const struct attending *all = args;
    const size_t row0 = all->slab->row0;
    for (const struct slab *p = all->slab; p < all->slab + all->n; p++) {
        const size_t from = MAX(row0 + r0, p->row0), to = MIN(row0 + r1, p->row0 + p->a.m);
        if (from < to)
            c->ops->attend_merge(&p->a, p->out, from - p->row0, to - p->row0);
    }
}

static void attend_slabs(struct attending *all)
{
    const struct slab *last = &all->slab[all->n - 1];
    pool_run(all->c->pool, last->end, attend_item, all);
    cpu_each_row(all->c, merge_rows, all, last->row0 + last->a.m - all->slab->row0);
    all->n = 0;
}

/* The number of pieces of the rows, for each chunk of a head. Many rows: about four items for each thread,
 * because items take unequal times, with several tiles each. Few rows: the split that ends first, if reading
 * a chunk takes as long as 1.5 query rows (2 rows of 2 after 5,120 tokens, two threads, on Zen 3: 0.68 ms
 * apart, 0.59 ms together). The last chunk counts by its keys. */
static size_t pieces_of(size_t rows, size_t group, size_t heads, size_t keys, size_t threads)
{
    const size_t chunk = MIN(keys, (size_t)KV_CHUNK), whole = heads * (keys / chunk);
    const double all = (double)(heads * keys) / (double)chunk;
    size_t best = MAX(MIN((4 * threads + whole - 1) / whole, rows * group / (4 * TILE_ROWS_MAX)), 1);
    double least = INFINITY;
    if (threads == 1)
        return 1;
    for (size_t p = best, most = MIN(rows, best + threads); p <= most; p++) {
        const double items =
            MAX((double)((whole * p + threads - 1) / threads), all * (double)p / (double)threads);
        const double ends = items * (1.5 + (double)(group * ((rows + p - 1) / p)));
        if (ends < least) {
            least = ends;
            best = p;
        }
    }
    return MIN(best, rows);
}

/* The slab of the rows from row0 on, without its place for chunk states. */
static struct slab slab_of(const struct cpu *c, size_t row0, const struct device_heads *h, size_t layer,
                           size_t window)
{
    const struct device_rows *w = c->rows;
    const struct device_seq *s = &w->seq[c->seq_of[row0]];
    const struct device_kv *kv = s->kv;
    const size_t rows = MIN(c->slab, s->row0 + s->n - row0), ring = device_kv_ring(kv, layer),
                 n_shared = ring ? 0 : kv->n_shared;
    size_t first = SIZE_MAX, last = 0;
    for (size_t r = row0; r < row0 + rows; r++) {
        c->lo[r] = window && !s->shifted && w->pos[r] + 1 > window ? w->pos[r] + 1 - window : 0;
        first = MIN(first, c->lo[r]);
        last = MAX(last, w->pos[r]);
    }
    return (struct slab){
        .row0 = row0,
        .pieces = pieces_of(rows, h->n_heads / h->n_kv_heads, h->n_kv_heads, last + 1 - first,
                            pool_threads(c->pool)),
        .a = { .type = kv->type,
               .out = device_act(&c->d),
               .m = rows,
               .n_heads = h->n_heads,
               .n_kv_heads = h->n_kv_heads,
               .head_dim = h->padded,
               .q_scale = c->q_scale + row0 * h->n_heads,
               .kv = device_kv_base(kv, layer),
               .head_bytes = (ring ? ring : device_kv_own(kv)) * kv_block_bytes(kv->type, h->padded),
               .block_bytes = kv_block_bytes(kv->type, h->padded),
               .ring = ring,
               .n_shared = n_shared,
               .shared = n_shared ? kv->shared + device_kv_heads(kv, layer).first * n_shared : NULL,
               .lo = c->lo + row0,
               .hi = c->hi + row0,
               .n_node = s->tree ? w->n_node + row0 : NULL,
               .node = s->tree ? w->node + row0 * w->node_step : NULL,
               .node_max = w->node_step,
               .scratch = s->tree ? device_kv_scratch(kv, layer) : NULL,
               .chunk0 = first / KV_CHUNK,
               .n_chunks = last / KV_CHUNK - first / KV_CHUNK + 1,
               .importance = row0 == s->row0 ? s->importance : NULL,
               .importance_step = s->importance_step,
               .bias = kv->bias,
               .logit = h->logit }
    };
}

/* Computes the rows in slabs that bound the chunk states. */
void cpu_attend(struct device *d, void *out, const void *q, const struct device_heads *h, size_t layer,
                size_t window)
{
    struct cpu *c = (struct cpu *)d;
    const enum dtype type = c->rows->seq->kv->type;          /* all caches of a pass have one */
    const size_t in_bytes = h->n_heads * h->padded * dtype_size(kv_form(type).q),
                 out_bytes = h->n_heads * h->padded * dtype_size(device_act(d)),
                 state = h->n_heads * ATTN_STATE(h->padded), room = c->part_bytes / sizeof(float);
    struct attending all = { .c = c };
    size_t used = 0;                     /* floats of c->part */
    for (size_t row0 = 0; row0 < c->rows->n;) {
        struct slab p = slab_of(c, row0, h, layer, window);
        const size_t need = p.a.n_chunks * p.a.m * state;
        assert(p.a.type == type && need <= room);
        if (all.n == ATTEND_SLABS || (all.n && used + need > room)) {
            attend_slabs(&all);
            used = 0;
        }
        p.a.q = (const char *)q + row0 * in_bytes;
        p.a.part = c->part + used;
        p.out = (char *)out + row0 * out_bytes;
        p.end = p.a.n_chunks * h->n_kv_heads * p.pieces + (all.n ? all.slab[all.n - 1].end : 0);
        all.slab[all.n++] = p;
        used += need;
        row0 += p.a.m;
    }
    attend_slabs(&all);
}
