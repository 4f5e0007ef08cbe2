/* Attention (defined at struct attn in ops.h; sums here are those of the tensor cores). A block works on one
 * chunk of 2,048 keys, one KV head, and a tile of rows x query heads of the group ("queries"). It copies keys
 * and values to shared memory once for all queries. A warp has 16 queries, or twice 16.
 *
 * For a query the order is: blocks of 64 keys ascending; in a block m' = max(m, scores), l = l * 2^(m - m') +
 * sum of p, o = o * 2^(m - m') + p V by four mma of 16 keys. A lane adds up l over its own keys (2q, 2q+1,
 * 2q+8, ...); the four lanes of a query are added at the end of the chunk. An invisible key has score -inf
 * and thus weight 0, which changes nothing. The places of the tile's other queries have no influence (R1).
 *
 * Tree rows see slots n_past .. as their own ancestors. A score is a product of two rows alone, so scores of
 * ancestors are computed from key rows fetched into the columns that they have once committed. Steps of 16
 * keys with such slots are done once for each row, with that row's values fetched and the weights of all
 * other rows 0. Everything else is shared. */
#include "kernels/cu.h"
#include "kernels/cu_args.h"

struct attending {
    const struct cu_attend *a;
    const struct cu_seq *s;
    struct cu_tile tile;
    unsigned dp, mt, group, head;
    const char *q;                   /* shared memory: [queries][dp], 16-byte pieces at c ^ (row % 8) */
    char *cache, *const *shared;     /* the cache of this layer and head (cache_block) */
};

FN char *attend_at(const char *rows, unsigned row, unsigned piece, unsigned dp)
{
    return (char *)rows + row * dp * 2 + (piece ^ (row & 7)) * 16;
}

FN void attend_load(char *stage, const struct attending *x, size_t block)
{
    const unsigned pieces = x->dp / 8;
    const char *src = cache_block(x->cache, x->shared, x->s->n_shared, block, x->dp);
    UNROLL_ALL
    for (unsigned i = 0; i < x->dp / 8; i++) {
        const unsigned at = i * 128 + tid();     /* rows 0..63: K, 64..127: V */
        cp_async16(attend_at(stage, at / pieces, at % pieces, x->dp), src + at * 16, true);
    }
}

FN void attend_query(uint32_t a[4], const struct attending *x, unsigned frag, unsigned step)
{
    const unsigned which = lane() / 8;
    ldmatrix4(a, attend_at(x->q, frag * 16 + which % 2 * 8 + lane() % 8, step * 2 + which / 2, x->dp));
}

/* Keys of the pair of 8-key tiles at row0: b[0], b[1] of the first tile, b[2], b[3] of the second. */
FN void attend_keys(uint32_t b[4], const char *k, unsigned row0, unsigned step, unsigned dp)
{
    const unsigned which = lane() / 8;
    ldmatrix4(b, attend_at(k, row0 + which / 2 * 8 + lane() % 8, step * 2 + which % 2, dp));
}

FN void attend_values(uint32_t b[4], const char *v, unsigned row0, unsigned pair, unsigned dp)
{
    const unsigned which = lane() / 8;
    ldmatrix4_trans(b, attend_at(v, row0 + which % 2 * 8 + lane() % 8, pair * 2 + which / 2, dp));
}

/* Rows of the tile that have queries in a fragment of 16: *r0 .. the returned row - 1. */
FN unsigned attend_rows(const struct attending *x, unsigned frag, unsigned *r0)
{
    const unsigned end = (frag * 16 + 15) / x->group + 1;
    *r0 = frag * 16 / x->group;
    return end < x->tile.n ? end : x->tile.n;
}

/* Fetches K (or V) of 16 slots from position p0 on as `row` of the tile sees them: ancestors from the
 * scratch, committed rows from the block if it is given, else 0. */
FN void attend_fetch(char *area, const struct attending *x, unsigned row, size_t p0, const char *committed,
                     bool value)
{
    const unsigned r = x->tile.row0 + row, pieces = x->dp / 8, n_past = x->s->n_past,
                   n_node = x->a->rows.n_node[r];
    const uint32_t *path = x->a->rows.node + x->a->rows.node_at[r];
    const char *nodes = x->s->scratch + x->a->layer * x->s->node_layer_bytes;
    warp_sync();
    UNROLL_NONE
    for (unsigned i = lane(); i < 16 * pieces; i += WARP) {
        const unsigned slot = i / pieces, c = i % pieces;
        const size_t p = p0 + slot;
        uint32_t w[4] = { 0, 0, 0, 0 };
        if (p < n_past && committed)
            load16(w, attend_at(committed, (unsigned)(p % CU_BLOCK), c, x->dp));
        if (p >= n_past && p < (size_t)n_past + n_node)
            load16(w, nodes + (((size_t)path[p - n_past] * x->a->n_kv_heads + x->head) * 2 + (value ? 1
                : 0)) * x->dp * 2 + c * 16);
        store16(attend_at(area, slot, c, x->dp), w);
    }
    warp_sync();
}

/* Whether a slot of p0 .. p0+15 is an ancestor of the row, or before one. */
FN bool attend_touches(const struct attending *x, unsigned row, size_t p0)
{
    return p0 < (size_t)x->s->n_past + x->a->rows.n_node[x->tile.row0 + row];
}

/* Computes scores of ancestors, in the columns of their slots. */
FN void attend_scores_tree(float s[2][8][4], const struct attending *x, size_t block, char *area)
{
    const unsigned n_past = x->s->n_past;
    UNROLL_ALL
    for (unsigned i = 0; i < x->mt; i++) {
        unsigned row;
        const unsigned frag = i * 4 + warp(), end = attend_rows(x, frag, &row);
        UNROLL_NONE
        for (; row < end; row++)
            UNROLL_NONE
            for (unsigned g = 0; g < 4; g++) {
                const size_t p0 = block * CU_BLOCK + g * 16,
                             last = (size_t)n_past + x->a->rows.n_node[x->tile.row0 + row];
                if (p0 + 16 <= n_past || !attend_touches(x, row, p0))
                    continue;
                float t[2][4] = { { 0, 0, 0, 0 }, { 0, 0, 0, 0 } };
                attend_fetch(area, x, row, p0, NULL, false);
                UNROLL_NONE
                for (unsigned step = 0; step < x->dp / 16; step++) {
                    uint32_t q[4], b[4];
                    attend_query(q, x, frag, step);
                    attend_keys(b, area, 0, step, x->dp);
                    mma_bf16(t[0], q, b[0], b[1]);
                    mma_bf16(t[1], q, b[2], b[3]);
                }
                UNROLL_ALL
                /* registers have no run-time index: visit all, write a quarter */
                for (unsigned e = 0; e < 32; e++) {
                    const size_t p = p0 + e / 4 % 2 * 8 + lane() % 4 * 2 + e % 2;
                    if (e / 8 == g && p >= n_past && p < last &&
                        (frag * 16 + lane() / 4 + e % 4 / 2 * 8) / x->group == row)
                        s[i][e / 4][e % 4] = t[e / 4 % 2][e % 4];
                }
            }
    }
}

/* The weights of step j as the `a` of a product with 16 keys. */
FN void attend_weights(uint32_t p[2][4], float s[2][8][4], const struct attending *x, unsigned j)
{
    UNROLL_ALL
    for (unsigned i = 0; i < x->mt; i++)
        UNROLL_ALL
        for (unsigned e = 0; e < 4; e++)
            p[i][e] = pack_bf16(s[i][2 * j + e / 2][e % 2 * 2], s[i][2 * j + e / 2][e % 2 * 2 + 1]);
}

/* o += p V for the 16 keys of step j, row by row. */
FN void attend_values_tree(float o[2][16][4], uint32_t p[2][4], const struct attending *x, size_t block,
                           unsigned j, const char *v, char *area)
{
    const size_t p0 = block * CU_BLOCK + j * 16;
    UNROLL_ALL
    for (unsigned i = 0; i < x->mt; i++) {
        unsigned row;
        const unsigned frag = i * 4 + warp(), end = attend_rows(x, frag, &row);
        UNROLL_NONE
        for (; row < end; row++) {
            if (!attend_touches(x, row, p0))
                continue;
            const bool low = (frag * 16 + lane() / 4) / x->group == row,
                       high = (frag * 16 + lane() / 4 + 8) / x->group == row;
            const uint32_t mine[4] = { low ? p[i][0] : 0, high ? p[i][1] : 0, low ? p[i][2] : 0, high
                                       ? p[i][3] : 0 };
            attend_fetch(area, x, row, p0, v, true);
            UNROLL_ALL
            for (unsigned d = 0; d < x->dp / 16; d++) {
                uint32_t b[4];
                attend_values(b, area, 0, d, x->dp);
                mma_bf16(o[i][2 * d], mine, b[0], b[1]);
                mma_bf16(o[i][2 * d + 1], mine, b[2], b[3]);
            }
        }
    }
}

/* Importance of the committed keys of this block to the first row of the sequence: summed over the group's
 * query heads, ascending. */
FN void attend_importance(float s[2][8][4], const struct attending *x, size_t block)
{
    float *to = x->s->importance + (x->a->layer * (size_t)x->a->n_kv_heads + x->head) * x->s->importance_step;
    UNROLL_ALL
    for (unsigned t = 0; t < 16; t++) {
        const size_t p = block * CU_BLOCK + t / 2 * 8 + lane() % 4 * 2 + t % 2;
        float sum = 0;
        for (unsigned g = 0; g < x->group; g++)
            sum = sum +
                  shfl(g < 8 ? s[0][t / 2][t % 2] : s[0][t / 2][t % 2 + 2], (int)(g % 8 * 4 + lane() % 4));
        if (lane() < 4 && p < x->s->n_past)
            to[p] = sum;
    }
}

/* One block of 64 keys for the queries of this warp. stage: K and V of committed slots; other: the stage that
 * no copy targets while the block touches the tree. */
FN void attend_block(float o[2][16][4], float m[2][2], float l[2][2], const unsigned sees[2][2][2],
                     const struct attending *x, size_t block, const char *stage, char *other, bool scored)
{
    const unsigned dp = x->dp, n_past = x->s->n_past;
    const bool touched = x->s->tree && block * CU_BLOCK + CU_BLOCK > n_past,
               shared_keys = !x->s->tree || block * CU_BLOCK < n_past;
    const char *v = stage + CU_BLOCK * dp * 2;
    char *area = other + warp() * 16 * dp * 2;
    float s[2][8][4];
    for (unsigned i = 0; i < 2; i++)
        for (unsigned j = 0; j < 8; j++)
            s[i][j][0] = s[i][j][1] = s[i][j][2] = s[i][j][3] = 0;
    if (shared_keys) {
        UNROLL_ALL
        for (unsigned step = 0; step < dp / 16; step++) {
            uint32_t q[2][4];
            UNROLL_ALL
            for (unsigned i = 0; i < x->mt; i++)
                attend_query(q[i], x, i * 4 + warp(), step);
            UNROLL_ALL
            for (unsigned j = 0; j < 4; j++) {
                uint32_t b[4];
                attend_keys(b, stage, j * 16, step, dp);
                UNROLL_ALL
                for (unsigned i = 0; i < x->mt; i++) {
                    mma_bf16(s[i][2 * j], q[i], b[0], b[1]);
                    mma_bf16(s[i][2 * j + 1], q[i], b[2], b[3]);
                }
            }
        }
        if (scored)
            attend_importance(s, x, block);
    }
    if (touched)
        attend_scores_tree(s, x, block, area);
    UNROLL_ALL
    for (unsigned i = 0; i < x->mt; i++)
        UNROLL_ALL
        for (unsigned h = 0; h < 2; h++) {       /* queries lane / 4 and lane / 4 + 8 */
            float top = -INFINITY, sum = 0;
            UNROLL_ALL
            for (unsigned t = 0; t < 16; t++) {
                const size_t p = block * CU_BLOCK + t / 2 * 8 + lane() % 4 * 2 + t % 2;
                float *at = &s[i][t / 2][h * 2 + t % 2];
                *at = p >= sees[i][h][0] && p < sees[i][h][1] ? *at : -INFINITY;
                top = max_of(top, *at);
            }
            top = max_of(top, shfl_xor(top, 1));
            top = max_of(top, shfl_xor(top, 2));
            top = max_of(top, m[i][h]);
            const bool none = top == -INFINITY;
            const float fade = none ? 1.0f : exp2_fast(m[i][h] - top);
            UNROLL_ALL
            for (unsigned t = 0; t < 16; t++) {
                float *at = &s[i][t / 2][h * 2 + t % 2];
                *at = none ? 0.0f : exp2_fast(*at - top);
                sum = sum + *at;
            }
            m[i][h] = top;
            l[i][h] = fmaf(l[i][h], fade, sum);
            UNROLL_ALL
            for (unsigned d = 0; d < dp / 8; d++) {
                o[i][d][h * 2] = o[i][d][h * 2] * fade;
                o[i][d][h * 2 + 1] = o[i][d][h * 2 + 1] * fade;
            }
        }
    UNROLL_ALL
    for (unsigned j = 0; j < 4; j++) {
        uint32_t p[2][4];
        if (touched && block * CU_BLOCK + j * 16 + 16 > n_past)
            continue;
        attend_weights(p, s, x, j);
        UNROLL_ALL
        for (unsigned d = 0; d < dp / 16; d++) {
            uint32_t b[4];
            attend_values(b, v, j * 16, d, dp);
            UNROLL_ALL
            for (unsigned i = 0; i < x->mt; i++) {
                mma_bf16(o[i][2 * d], p[i], b[0], b[1]);
                mma_bf16(o[i][2 * d + 1], p[i], b[2], b[3]);
            }
        }
    }
    UNROLL_NONE
    for (unsigned j = 0; j < 4; j++) {           /* steps with ancestors follow the steps without */
        uint32_t p[2][4];
        if (!touched || block * CU_BLOCK + j * 16 + 16 <= n_past)
            continue;
        UNROLL_ALL
        for (unsigned k = 0; k < 4; k++)
            if (k == j)
                attend_weights(p, s, x, k);
        attend_values_tree(o, p, x, block, j, shared_keys ? v : NULL, area);
    }
}

FN void attend_write(float o[2][16][4], float m[2][2], float l[2][2], const struct attending *x, size_t chunk)
{
    const unsigned dp = x->dp;
    UNROLL_ALL
    for (unsigned i = 0; i < x->mt; i++)
        UNROLL_ALL
        for (unsigned h = 0; h < 2; h++) {
            const unsigned query = (i * 4 + warp()) * 16 + lane() / 4 + h * 8,
                           row = x->tile.row0 + query / x->group - x->a->row_first;
            float sum = l[i][h];
            sum = sum + shfl_xor(sum, 1);
            sum = sum + shfl_xor(sum, 2);
            if (query / x->group >= x->tile.n)
                continue;
            float *to = x->a->part + (((size_t)row * x->a->n_heads + x->head * x->group + query % x->group) *
                                      x->a->chunks + chunk) * (2 + dp);
            if (lane() % 4 == 0) {
                to[0] = m[i][h];
                to[1] = sum;
            }
            UNROLL_ALL
            for (unsigned d = 0; d < dp / 8; d++) {
                to[2 + d * 8 + lane() % 4 * 2] = o[i][d][h * 2];
                to[2 + d * 8 + lane() % 4 * 2 + 1] = o[i][d][h * 2 + 1];
            }
        }
}

FN size_t attend_lo(const struct cu_seq *s, size_t pos, unsigned window)
{
    return window && !s->shifted && pos + 1 > window ? pos + 1 - window : 0;
}

FN void attend(const struct cu_attend *a, const unsigned dp, const unsigned mt)
{
    struct attending x;
    float o[2][16][4], m[2][2], l[2][2];
    unsigned sees[2][2][2];          /* of a query: first visible position, end of the visible positions */
    const size_t chunk = block_z();
    char *stages = (char *)shared() + mt * 64 * dp * 2;
    const unsigned stage_bytes = 2 * CU_BLOCK * dp * 2, pieces = dp / 8;
    depend_wait();
    depend_launch();
    x.a = a, x.dp = dp, x.mt = mt, x.q = (char *)shared();
    x.tile = a->rows.tile[a->tile0 + block_x()];
    x.s = &a->rows.seq[x.tile.seq];
    x.group = a->n_heads / a->n_kv_heads, x.head = block_y();
    x.cache = x.s->base + a->layer * x.s->layer_bytes + x.head * x.s->head_bytes;
    x.shared = x.s->shared + ((size_t)a->layer * a->n_kv_heads + x.head) * x.s->n_shared;
    const size_t b0 =
        max_size(chunk * (CU_CHUNK / CU_BLOCK), attend_lo(x.s, x.tile.pos_min, a->window) / CU_BLOCK);
    const size_t b1 =
        min_size(chunk * (CU_CHUNK / CU_BLOCK) + CU_CHUNK / CU_BLOCK - 1, x.tile.pos_max / CU_BLOCK);
    if (b0 > b1)
        return;
    for (unsigned i = tid(); i < mt * 64 * pieces; i += threads()) {
        const unsigned query = i / pieces, row = x.tile.row0 + query / x.group;
        const bool is = query / x.group < x.tile.n;
        cp_async16(attend_at(x.q, query, i % pieces, dp),
                   a->q + ((size_t)(is ? row
                                    : x.tile.row0) * a->n_heads + x.head * x.group + query % x.group) * dp +
                                        i % pieces * 8, is);
    }
    for (unsigned i = 0; i < 2; i++)
        for (unsigned h = 0; h < 2; h++) {
            const unsigned query = (i * 4 + warp()) * 16 + lane() / 4 + h * 8,
                           row = x.tile.row0 + query / x.group;
            const bool is = i < mt && query / x.group < x.tile.n;
            m[i][h] = -INFINITY;
            l[i][h] = 0;
            sees[i][h][0] = is ? (unsigned)attend_lo(x.s, a->rows.pos[row], a->window) : 0;
            sees[i][h][1] = is ? a->rows.pos[row] + 1 : 0;
        }
    for (unsigned i = 0; i < 2; i++)
        for (unsigned d = 0; d < 16; d++)
            o[i][d][0] = o[i][d][1] = o[i][d][2] = o[i][d][3] = 0;
    const bool works = warp() * 16 < x.tile.n * x.group;
    const bool scored = x.s->importance && x.tile.row0 == x.s->row0 && warp() == 0;
    if (!x.s->tree || b0 * CU_BLOCK < x.s->n_past)
        attend_load(stages, &x, b0);
    cp_commit();
    for (size_t b = b0; b <= b1; b++) {
        char *stage = stages + (b - b0) % 2 * stage_bytes, *other = stages + (b - b0 + 1) % 2 * stage_bytes;
        if (b < b1 && (!x.s->tree || (b + 1) * CU_BLOCK < x.s->n_past))
            attend_load(other, &x, b + 1);
        cp_commit();
        cp_wait(1);
        barrier();
        if (works)
            attend_block(o, m, l, sees, &x, b, stage, other, scored);
        barrier();
    }
    attend_write(o, m, l, &x, chunk);
}

KERNEL(attend_64_few, attend, 128, 3) { attend(&a, 64, 1); }
KERNEL(attend_64_many, attend, 128, 2) { attend(&a, 64, 2); }
KERNEL(attend_128_few, attend, 128, 2) { attend(&a, 128, 1); }
KERNEL(attend_128_many, attend, 128, 1) { attend(&a, 128, 2); }

/* Merges chunks, ascending; one warp for each row and head. A lane has dimensions lane, lane + 32, .. */
KERNEL(merge, merge, 128, 1)
{
    const size_t item = (size_t)block_x() * (threads() / WARP) + warp(), r = item / a.n_heads;
    depend_wait();
    depend_launch();
    if (r >= a.n)
        return;
    const size_t row = a.row_first + r, pos = a.rows.pos[row];
    const float *part = a.part + item * a.chunks * (2 + a.dp);
    float m = -INFINITY, l = 0, o[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    for (size_t c = attend_lo(&a.rows.seq[a.rows.seq_of[row]], pos, a.window) / CU_CHUNK; c <= pos / CU_CHUNK;
         c++) {
        const float *p = part + c * (2 + a.dp), mc = p[0], top = max_of(m, mc);
        const float fade = m == -INFINITY ? 0.0f : exp2_fast(m - top),
                    join = mc == -INFINITY ? 0.0f : exp2_fast(mc - top);
        m = top;
        l = fmaf(p[1], join, l * fade);
        UNROLL_ALL
        for (unsigned i = 0; i < 8; i++)
            if (lane() + i * WARP < a.dp)
                o[i] = fmaf(p[2 + lane() + i * WARP], join, o[i] * fade);
    }
    UNROLL_ALL
    for (unsigned i = 0; i < 8; i++)
        if (lane() + i * WARP < a.dp)
            a.out[(row * a.n_heads + item % a.n_heads) * a.dp + lane() + i * WARP] = to_bf16(o[i] / l);
}
