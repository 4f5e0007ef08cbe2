/* Attention (defined at struct attn in ops.h; sums here are those of the tensor cores). A block works on one
 * chunk of keys (cu_chunk_of), one KV head, and a tile of rows x query heads of the group ("queries"). It
 * copies keys and values to shared memory once for all queries. In attend_*_few and attend_*_many a warp has
 * 16 queries, or twice 16. In attend_*_one, for at most 16 queries, the four warps share them (attend_one).
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
#include "kernels/cuda/cu.h"
#include "kernels/cuda/cu_args.h"

struct attending {
    const struct cu_attend *a;
    const struct cu_seq *s;
    struct cu_tile tile;
    unsigned dp, mt, group, head;
    bool wide;                       /* attend_one: more than 8 queries */
    size_t lo_last;                  /* first visible position of the tile's last row */
    const char *q;                   /* shared memory: [queries][dp], 16-byte pieces at c ^ (row % 8) */
    char *cache, *const *shared;     /* the cache of this layer and head (cache_block) */
};

FN char *attend_at(const char *rows, unsigned row, unsigned piece, unsigned dp)
{
    return (char *)rows + row * dp * 2 + (piece ^ (row & 7)) * 16;
}

/* Starts the copies of rows row0 .. row0 + n - 1 of a block; rows 0..63: K, 64..127: V. */
FN void attend_load(char *stage, const struct attending *x, size_t block, const unsigned row0,
                    const unsigned n)
{
    const unsigned pieces = x->dp / 8;
    const char *src = cache_block(x->cache, x->shared, x->s->n_shared, block, x->dp);
    UNROLL_ALL
    for (unsigned i = 0; i < n * pieces / 128; i++) {
        const unsigned at = row0 * pieces + i * 128 + tid();
        cp_async16(attend_at(stage, at / pieces, at % pieces, x->dp), src + at * 16, true);
    }
}

/* Whether a block has committed keys: a block without any is not loaded. */
FN bool attend_committed(const struct attending *x, size_t block)
{
    return !x->s->tree || block * CU_BLOCK < x->s->n_past;
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
 * scratch, committed rows from the block if it is given, else 0. Of each row it fetches the pieces c0 ..
 * c0 + pieces - 1. */
FN void attend_fetch(char *area, const struct attending *x, unsigned row, size_t p0, const char *committed,
                     bool value, unsigned c0, const unsigned pieces)
{
    const unsigned r = x->tile.row0 + row, n_past = x->s->n_past, n_node = x->a->rows.n_node[r];
    const uint32_t *path = x->a->rows.node + x->a->rows.node_at[r];
    const char *nodes = x->s->scratch + x->a->layer * x->s->node_layer_bytes;
    warp_sync();
    UNROLL_NONE
    for (unsigned i = lane(); i < 16 * pieces; i += WARP) {
        const unsigned slot = i / pieces, c = c0 + i % pieces;
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

/* Scores of the fragment's queries with the 16 slots from p0 on as `row` sees them; committed rows count as
 * 0. */
FN void attend_slots(float t[2][4], const struct attending *x, unsigned frag, unsigned row, size_t p0,
                     char *area)
{
    for (unsigned e = 0; e < 4; e++)
        t[0][e] = t[1][e] = 0;
    attend_fetch(area, x, row, p0, NULL, false, 0, x->dp / 8);
    UNROLL_NONE
    for (unsigned step = 0; step < x->dp / 16; step++) {
        uint32_t q[4], b[4];
        attend_query(q, x, frag, step);
        attend_keys(b, area, 0, step, x->dp);
        mma_bf16(t[0], q, b[0], b[1]);
        mma_bf16(t[1], q, b[2], b[3]);
    }
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
                float t[2][4];
                attend_slots(t, x, frag, row, p0, area);
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
FN void attend_weights(uint32_t p[4], float s[8][4], unsigned j)
{
    UNROLL_ALL
    for (unsigned e = 0; e < 4; e++)
        p[e] = pack_bf16(s[2 * j + e / 2][e % 2 * 2], s[2 * j + e / 2][e % 2 * 2 + 1]);
}

/* The weights of one row of the tile, 0 for all others. */
FN void attend_mine(uint32_t mine[4], const uint32_t p[4], const struct attending *x, unsigned frag,
                    unsigned row)
{
    const bool low = (frag * 16 + lane() / 4) / x->group == row,
               high = (frag * 16 + lane() / 4 + 8) / x->group == row;
    UNROLL_ALL
    for (unsigned e = 0; e < 4; e++)
        mine[e] = (e % 2 ? high : low) ? p[e] : 0;
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
            uint32_t mine[4];
            attend_mine(mine, p[i], x, frag, row);
            attend_fetch(area, x, row, p0, v, true, 0, x->dp / 8);
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

/* Importance of `tiles` times 8 committed keys from p0 on to the first row of the sequence: summed over the
 * group's query heads, ascending. */
FN void attend_importance(float s[][4], const unsigned tiles, const struct attending *x, size_t p0)
{
    float *to = x->s->importance + (x->a->layer * (size_t)x->a->n_kv_heads + x->head) * x->s->importance_step;
    UNROLL_ALL
    for (unsigned t = 0; t < 2 * tiles; t++) {
        const size_t p = p0 + t / 2 * 8 + lane() % 4 * 2 + t % 2;
        float sum = 0;
        for (unsigned g = 0; g < x->group; g++)
            sum = sum + shfl(g < 8 ? s[t / 2][t % 2] : s[t / 2][t % 2 + 2], (int)(g % 8 * 4 + lane() % 4));
        if (lane() < 4 && p < x->s->n_past)
            to[p] = sum;
    }
}

/* Whether every query of the tile sees every key of the block: no score needs a mask. */
FN bool attend_whole(const struct attending *x, size_t block)
{
    return block * CU_BLOCK >= x->lo_last && block * CU_BLOCK + CU_BLOCK <= (size_t)x->tile.pos_min + 1;
}

/* Turns the scores of a block with one query of this lane, half h of the fragment, into weights; rescales the
 * sums of this query. whole: attend_whole */
FN void attend_soften(float s[8][4], float o[][4], const unsigned tiles, float *m, float *l,
                      const unsigned h, const unsigned sees[2], size_t begin, bool whole)
{
    float top = -INFINITY, sum = 0;
    if (!whole)
        UNROLL_ALL
        for (unsigned t = 0; t < 16; t++) {
            const size_t p = begin + t / 2 * 8 + lane() % 4 * 2 + t % 2;
            float *at = &s[t / 2][h * 2 + t % 2];
            *at = p >= sees[0] && p < sees[1] ? *at : -INFINITY;
        }
    UNROLL_ALL
    for (unsigned t = 0; t < 16; t++)
        top = max_of(top, s[t / 2][h * 2 + t % 2]);
    top = max_of(top, shfl_xor(top, 1));
    top = max_of(top, shfl_xor(top, 2));
    top = max_of(top, *m);
    /* Without a visible key so far every score is -inf, and 2^-inf = 0 is its weight. */
    const bool none = top == -INFINITY;
    const float fade = none ? 1.0f : exp2_fast(*m - top), base = none ? 0.0f : top;
    UNROLL_ALL
    for (unsigned t = 0; t < 16; t++) {
        float *at = &s[t / 2][h * 2 + t % 2];
        *at = exp2_fast(*at - base);
        sum = sum + *at;
    }
    *m = top;
    *l = fmaf(*l, fade, sum);
    UNROLL_ALL
    for (unsigned d = 0; d < tiles; d++) {
        o[d][h * 2] = o[d][h * 2] * fade;
        o[d][h * 2 + 1] = o[d][h * 2 + 1] * fade;
    }
}

/* One block of 64 keys for the queries of this warp. stage: K and V of committed slots; other: the stage that
 * no copy targets while the block touches the tree. */
FN void attend_block(float o[2][16][4], float m[2][2], float l[2][2], const unsigned sees[2][2][2],
                     const struct attending *x, size_t block, const char *stage, char *other, bool scored)
{
    const unsigned dp = x->dp, n_past = x->s->n_past;
    const bool touched = x->s->tree && block * CU_BLOCK + CU_BLOCK > n_past,
               shared_keys = attend_committed(x, block);
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
            attend_importance(s[0], 8, x, block * CU_BLOCK);
    }
    if (touched)
        attend_scores_tree(s, x, block, area);
    const bool whole = attend_whole(x, block);
    UNROLL_ALL
    for (unsigned i = 0; i < x->mt; i++)
        UNROLL_ALL
        for (unsigned h = 0; h < 2; h++)         /* queries lane / 4 and lane / 4 + 8 */
            attend_soften(s[i], o[i], dp / 8, &m[i][h], &l[i][h], h, sees[i][h], block * CU_BLOCK, whole);
    UNROLL_ALL
    for (unsigned j = 0; j < 4; j++) {
        uint32_t p[2][4];
        if (touched && block * CU_BLOCK + j * 16 + 16 > n_past)
            continue;
        UNROLL_ALL
        for (unsigned i = 0; i < x->mt; i++)
            attend_weights(p[i], s[i], j);
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
                UNROLL_ALL
                for (unsigned i = 0; i < x->mt; i++)
                    attend_weights(p[i], s[i], k);
        attend_values_tree(o, p, x, block, j, shared_keys ? v : NULL, area);
    }
}

/* Writes the state of the query of this lane, half h of the fragment: `tiles` times 8 dimensions from d0 on,
 * and (sums) m and l. */
FN void attend_write(float o[][4], const unsigned tiles, float m, float l, const unsigned h,
                     const struct attending *x, size_t chunk, unsigned query, unsigned d0, bool sums)
{
    const unsigned row = x->tile.row0 + query / x->group - x->a->row_first;
    l = l + shfl_xor(l, 1);
    l = l + shfl_xor(l, 2);
    if (query / x->group >= x->tile.n)
        return;
    float *to = x->a->part + (((size_t)row * x->a->n_heads + x->head * x->group + query % x->group) *
                              x->a->chunks + chunk) * (2 + x->dp);
    if (sums && lane() % 4 == 0) {
        to[0] = m;
        to[1] = l;
    }
    to += 2 + d0 + lane() % 4 * 2;
    UNROLL_ALL
    for (unsigned d = 0; d < tiles; d++) {
        to[d * 8] = o[d][h * 2];
        to[d * 8 + 1] = o[d][h * 2 + 1];
    }
}

FN size_t attend_lo(const struct cu_seq *s, size_t pos, unsigned window)
{
    return window && !s->shifted && pos + 1 > window ? pos + 1 - window : 0;
}

/* Finds the tile of this block and its range of blocks of keys; false: no row of the tile sees the chunk. */
FN bool attend_find(struct attending *x, const struct cu_attend *a, size_t chunk, size_t *b0, size_t *b1)
{
    x->a = a, x->q = (char *)shared();
    x->tile = a->rows.tile[a->tile0 + block_x()];
    x->s = &a->rows.seq[x->tile.seq];
    x->group = a->n_heads / a->n_kv_heads, x->head = block_y();
    x->cache = x->s->base + a->layer * x->s->layer_bytes + x->head * x->s->head_bytes;
    x->shared = x->s->shared + ((size_t)a->layer * a->n_kv_heads + x->head) * x->s->n_shared;
    x->lo_last = attend_lo(x->s, x->tile.pos_max, a->window);
    *b0 = max_size(cu_chunk_begin(chunk), attend_lo(x->s, x->tile.pos_min, a->window)) / CU_BLOCK;
    *b1 = min_size(cu_chunk_begin(chunk + 1) - 1, x->tile.pos_max) / CU_BLOCK;
    return *b0 <= *b1;
}

/* Starts the copies of the tile's n queries to shared memory. */
FN void attend_load_queries(const struct attending *x, const unsigned n)
{
    const unsigned pieces = x->dp / 8;
    for (unsigned i = tid(); i < n * pieces; i += threads()) {
        const unsigned query = i / pieces;
        const bool is = query / x->group < x->tile.n;
        const size_t row = x->tile.row0 + (is ? query / x->group : 0);
        cp_async16(attend_at(x->q, query, i % pieces, x->dp), x->a->q + (row * x->a->n_heads + x->head *
                   x->group + query % x->group) * x->dp + i % pieces * 8, is);
    }
}

/* What a query sees: its first visible position, and the end of the visible positions. */
FN void attend_sees(unsigned sees[2], const struct attending *x, unsigned query)
{
    const bool is = query / x->group < x->tile.n;
    const unsigned pos = is ? x->a->rows.pos[x->tile.row0 + query / x->group] : 0;
    sees[0] = is ? (unsigned)attend_lo(x->s, pos, x->a->window) : 0;
    sees[1] = is ? pos + 1 : 0;
}

FN void attend(const struct cu_attend *a, const unsigned dp, const unsigned mt)
{
    struct attending x;
    float o[2][16][4], m[2][2], l[2][2];
    unsigned sees[2][2][2];
    const size_t chunk = a->chunks - 1 - block_z();      /* long chunks first: short ones fill the end */
    size_t b0, b1;
    char *stages = (char *)shared() + mt * 64 * dp * 2;
    const unsigned stage_bytes = 2 * CU_BLOCK * dp * 2;
    depend_wait();
    depend_launch();
    x.dp = dp, x.mt = mt;
    if (!attend_find(&x, a, chunk, &b0, &b1))
        return;
    attend_load_queries(&x, mt * 64);
    for (unsigned i = 0; i < 2; i++)
        for (unsigned h = 0; h < 2; h++) {
            m[i][h] = -INFINITY;
            l[i][h] = 0;
            sees[i][h][0] = sees[i][h][1] = 0;
            if (i < mt)
                attend_sees(sees[i][h], &x, (i * 4 + warp()) * 16 + lane() / 4 + h * 8);
        }
    for (unsigned i = 0; i < 2; i++)
        for (unsigned d = 0; d < 16; d++)
            o[i][d][0] = o[i][d][1] = o[i][d][2] = o[i][d][3] = 0;
    const bool works = warp() * 16 < x.tile.n * x.group;
    const bool scored = x.s->importance && x.tile.row0 == x.s->row0 && warp() == 0;
    if (attend_committed(&x, b0))
        attend_load(stages, &x, b0, 0, 2 * CU_BLOCK);
    cp_commit();
    for (size_t b = b0; b <= b1; b++) {
        char *stage = stages + (b - b0) % 2 * stage_bytes, *other = stages + (b - b0 + 1) % 2 * stage_bytes;
        if (b < b1 && attend_committed(&x, b + 1))
            attend_load(other, &x, b + 1, 0, 2 * CU_BLOCK);
        cp_commit();
        cp_wait(1);
        barrier();
        if (works)
            attend_block(o, m, l, sees, &x, b, stage, other, scored);
        barrier();
    }
    UNROLL_ALL
    for (unsigned i = 0; i < mt; i++)
        UNROLL_ALL
        for (unsigned h = 0; h < 2; h++)
            attend_write(o[i], dp / 8, m[i][h], l[i][h], h, &x, chunk,
                         (i * 4 + warp()) * 16 + lane() / 4 + h * 8, 0, true);
}

KERNEL(attend_64_few, attend, 128, 3) { attend(&a, 64, 1); }
KERNEL(attend_64_many, attend, 128, 2) { attend(&a, 64, 2); }
KERNEL(attend_128_few, attend, 128, 2) { attend(&a, 128, 1); }
KERNEL(attend_128_many, attend, 128, 1) { attend(&a, 128, 2); }

/* ---- at most 16 queries ---- */

/* Scores of 16 keys of a block (16 times the warp on), with all queries, into `scores`: pairs [8 tiles of 8
 * keys][2 halves of the queries][lane] as the lanes of an mma hold them. */
FN void attend_one_scores(uint64_t *scores, uint32_t q[8][4], const struct attending *x, size_t block,
                          const char *stage, char *area, bool scored)
{
    const size_t p0 = block * CU_BLOCK + warp() * 16;
    float s[2][4];
    for (unsigned e = 0; e < 4; e++)
        s[0][e] = s[1][e] = 0;
    if (attend_committed(x, block)) {
        UNROLL_ALL
        for (unsigned step = 0; step < x->dp / 16; step++) {
            uint32_t b[4];
            attend_keys(b, stage, warp() * 16, step, x->dp);
            mma_bf16(s[0], q[step], b[0], b[1]);
            mma_bf16(s[1], q[step], b[2], b[3]);
        }
        if (scored)
            attend_importance(s, 2, x, p0);
    }
    if (x->s->tree && p0 + 16 > x->s->n_past)
        UNROLL_NONE
        for (unsigned row = 0; row < x->tile.n; row++) {
            const size_t last = (size_t)x->s->n_past + x->a->rows.n_node[x->tile.row0 + row];
            float t[2][4];
            if (!attend_touches(x, row, p0))
                continue;
            attend_slots(t, x, 0, row, p0, area);
            UNROLL_ALL
            for (unsigned e = 0; e < 8; e++) {
                const size_t p = p0 + e / 4 * 8 + lane() % 4 * 2 + e % 2;
                if (p >= x->s->n_past && p < last && (lane() / 4 + e % 4 / 2 * 8) / x->group == row)
                    s[e / 4][e % 4] = t[e / 4][e % 4];
            }
        }
    UNROLL_ALL
    for (unsigned i = 0; i < 4; i++)
        if (i % 2 == 0 || x->wide)
            scores[(warp() * 4 + i) * WARP + lane()] = as_bits(s[i / 2][i % 2 * 2]) |
                (uint64_t)as_bits(s[i / 2][i % 2 * 2 + 1]) << 32;
}

/* o += p V of this warp's dimensions: tiles of 8 from warp * dp / 32 on. */
FN void attend_one_values(float o[4][4], float s[8][4], const struct attending *x, size_t block,
                          const char *stage, char *area)
{
    const unsigned dp = x->dp, n_past = x->s->n_past, pairs = dp / 64, first = warp() * pairs;
    const bool touched = x->s->tree && block * CU_BLOCK + CU_BLOCK > n_past;
    const char *v = stage + CU_BLOCK * dp * 2;
    UNROLL_ALL
    for (unsigned j = 0; j < 4; j++) {
        uint32_t p[4];
        if (touched && block * CU_BLOCK + j * 16 + 16 > n_past)
            continue;
        attend_weights(p, s, j);
        UNROLL_ALL
        for (unsigned d = 0; d < pairs; d++) {
            uint32_t b[4];
            attend_values(b, v, j * 16, first + d, dp);
            mma_bf16(o[2 * d], p, b[0], b[1]);
            mma_bf16(o[2 * d + 1], p, b[2], b[3]);
        }
    }
    if (!touched)
        return;
    UNROLL_ALL
    for (unsigned j = 0; j < 4; j++) {
        const size_t p0 = block * CU_BLOCK + j * 16;
        UNROLL_NONE
        for (unsigned row = 0; p0 + 16 > n_past && row < x->tile.n; row++) {
            uint32_t p[4], mine[4];
            if (!attend_touches(x, row, p0))
                continue;
            attend_weights(p, s, j);
            attend_mine(mine, p, x, 0, row);
            attend_fetch(area, x, row, p0, attend_committed(x, block) ? v : NULL, true, first * 2,
                         2 * pairs);
            UNROLL_ALL
            for (unsigned d = 0; d < pairs; d++) {
                uint32_t b[4];
                attend_values(b, area, 0, first + d, dp);
                mma_bf16(o[2 * d], mine, b[0], b[1]);
                mma_bf16(o[2 * d + 1], mine, b[2], b[3]);
            }
        }
    }
}

/* The four warps share the queries. In a block of 64 keys each warp computes the scores of 16 keys and passes
 * them on through shared memory. Each warp then turns all scores into weights and adds up the weighted values
 * of a quarter of the dimensions. Every score, weight and sum has the order of attend(). With at most 8
 * queries, rows 8 to 15 of the fragments are left out.
 *
 * K and V arrive one after the other: three of the four halves of the two stages are in flight. While a
 * block touches the tree, no copy targets the other stage. A first block that was committed before the pass
 * is loaded before the preceding kernel has ended: what wrote it ended before the tables of the pass were
 * uploaded. */
FN void attend_one(const struct cu_attend *a, const unsigned dp)
{
    struct attending x;
    uint32_t q[8][4];
    float o[4][4], m[2], l[2];
    unsigned sees[2][2];
    const size_t chunk = a->chunks - 1 - block_z();      /* long chunks first: short ones fill the end */
    size_t b0, b1;
    uint64_t *scores = (uint64_t *)((char *)shared() + CU_QUERIES_ONE * dp * 2);
    char *stages = (char *)scores + CU_QUERIES_ONE * CU_BLOCK * 4;
    const unsigned stage_bytes = 2 * CU_BLOCK * dp * 2;
    x.dp = dp, x.mt = 1;
    const bool any = attend_find(&x, a, chunk, &b0, &b1), early = (b0 + 1) * CU_BLOCK <= x.s->n_past;
    if (any && early)
        attend_load(stages, &x, b0, 0, 2 * CU_BLOCK);
    depend_wait();
    depend_launch();
    if (!any)
        return;
    x.wide = x.tile.n * x.group > 8;
    attend_load_queries(&x, CU_QUERIES_ONE);
    if (!early && attend_committed(&x, b0))
        attend_load(stages, &x, b0, 0, 2 * CU_BLOCK);
    if (b0 < b1 && attend_committed(&x, b0 + 1))
        attend_load(stages + stage_bytes, &x, b0 + 1, 0, CU_BLOCK);
    cp_commit();
    for (unsigned h = 0; h < 2; h++) {
        m[h] = -INFINITY;
        l[h] = 0;
        attend_sees(sees[h], &x, lane() / 4 + h * 8);
    }
    for (unsigned d = 0; d < 4; d++)
        o[d][0] = o[d][1] = o[d][2] = o[d][3] = 0;
    const bool scored = x.s->importance && x.tile.row0 == x.s->row0;
    for (size_t b = b0; b <= b1; b++) {
        char *stage = stages + (b - b0) % 2 * stage_bytes, *other = stages + (b - b0 + 1) % 2 * stage_bytes,
             *area = other + warp() * 16 * dp * 2;
        float s[8][4];
        if (b == b0)
            cp_wait(0);
        else
            cp_wait(2);
        barrier();                   /* K has arrived; the values of the preceding block have been used */
        if (b < b1 && attend_committed(&x, b + 1))
            attend_load(other, &x, b + 1, CU_BLOCK, CU_BLOCK);
        cp_commit();
        if (b == b0)
            UNROLL_ALL
            for (unsigned step = 0; step < dp / 16; step++)
                attend_query(q[step], &x, 0, step);
        attend_one_scores(scores, q, &x, b, stage, area, scored);
        cp_wait(2);
        barrier();                   /* V and the scores have arrived; the keys have been used */
        if (b + 1 < b1 && attend_committed(&x, b + 2))
            attend_load(stage, &x, b + 2, 0, CU_BLOCK);
        cp_commit();
        UNROLL_ALL
        for (unsigned i = 0; i < 16; i++) {
            const uint64_t two = i % 2 == 0 || x.wide ? scores[i * WARP + lane()] : 0;
            s[i / 2][i % 2 * 2] = as_float((uint32_t)two);
            s[i / 2][i % 2 * 2 + 1] = as_float((uint32_t)(two >> 32));
        }
        const bool whole = attend_whole(&x, b);
        attend_soften(s, o, dp / 32, &m[0], &l[0], 0, sees[0], b * CU_BLOCK, whole);
        if (x.wide)
            attend_soften(s, o, dp / 32, &m[1], &l[1], 1, sees[1], b * CU_BLOCK, whole);
        attend_one_values(o, s, &x, b, stage, area);
    }
    UNROLL_ALL
    for (unsigned h = 0; h < 2; h++)
        attend_write(o, dp / 32, m[h], l[h], h, &x, chunk, lane() / 4 + h * 8, warp() * (dp / 4),
                     warp() == 0);
}

KERNEL(attend_64_one, attend, 128, 3) { attend_one(&a, 64); }
KERNEL(attend_128_one, attend, 128, 3) { attend_one(&a, 128); }

/* ---- chunks ---- */

/* Merges chunks, ascending; one block for each row and head, a thread for each dimension. The factors of up
 * to threads() chunks are made at once, from the maxima up to each chunk. MERGE_AHEAD values are loaded at
 * once, because the chain of sums would wait for each otherwise. */
enum { MERGE_AHEAD = 32 };
KERNEL(merge, merge, 128, 1)
{
    float *fade = (float *)shared(), *join = fade + threads(), *sum = join + threads(),
          *tops = sum + threads();
    const size_t item = block_x(), row = a.row_first + item / a.n_heads;
    depend_launch();
    const size_t pos = a.rows.pos[row],
                 c0 = cu_chunk_of(attend_lo(&a.rows.seq[a.rows.seq_of[row]], pos, a.window)),
                 c1 = cu_chunk_of(pos) + 1;
    float m = -INFINITY, l = 0, o = 0;
    depend_wait();
    for (size_t base = c0; base < c1; base += threads()) {
        const float *part = a.part + (item * a.chunks + base) * (2 + a.dp);
        const unsigned n = (unsigned)min_size(c1 - base, threads());
        const bool is = tid() < n;
        const float mine = is ? part[(size_t)tid() * (2 + a.dp)] : -INFINITY,
                    add = is ? part[(size_t)tid() * (2 + a.dp) + 1] : 0.0f;
        float top = mine, before = m;
        UNROLL_ALL
        for (unsigned i = 1; i < WARP; i *= 2) {
            const float other = shfl(top, (int)(lane() < i ? lane() : lane() - i));
            top = max_of(top, other);
        }
        if (lane() == WARP - 1)
            tops[warp()] = top;
        barrier();
        for (unsigned i = 0; i < threads() / WARP; i++) {
            before = i < warp() ? max_of(before, tops[i]) : before;
            m = max_of(m, tops[i]);
        }
        float last = shfl(top, (int)(lane() ? lane() - 1 : 0));
        last = lane() ? max_of(before, last) : before;
        top = max_of(before, top);
        fade[tid()] = last == -INFINITY ? 0.0f : exp2_fast(last - top);
        join[tid()] = mine == -INFINITY ? 0.0f : exp2_fast(mine - top);
        sum[tid()] = add;
        barrier();
        for (unsigned c = 0; c < n; c += MERGE_AHEAD) {
            float v[MERGE_AHEAD];
            UNROLL_ALL
            for (unsigned i = 0; i < MERGE_AHEAD; i++)
                v[i] = c + i < n ? part[(size_t)(c + i) * (2 + a.dp) + 2 + tid()] : 0.0f;
            UNROLL_ALL
            for (unsigned i = 0; i < MERGE_AHEAD; i++)
                if (c + i < n) {
                    l = fmaf(sum[c + i], join[c + i], l * fade[c + i]);
                    o = fmaf(v[i], join[c + i], o * fade[c + i]);
                }
        }
        barrier();                               /* the factors have been used */
    }
    a.out[(row * a.n_heads + item % a.n_heads) * a.dp + tid()] = to_bf16(o / l);
}
