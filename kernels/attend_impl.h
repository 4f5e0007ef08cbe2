/* Attention over a KV cache (attend and attend_merge of ops.h), written once for all twins. twin_impl.h
 * includes this file after its tile products, and says what a twin defines. Start reading at OP(attend). */

enum { ATTN_WIDE_TILES = 32 / ATTN_ROWS_MAX };

/* Scratch of one thread: scores and weights of a tile, and one private block. */
struct attn_work {
    float s[2][ATTN_ROWS_MAX][KV_BLOCK];    /* scores of this block and the next */
    float p[ATTN_ROWS_MAX][KV_BLOCK];       /* weights: act [ATTN_ROWS_MAX][KV_BLOCK] */
    float alpha[ATTN_ROWS_MAX], unit[ATTN_ROWS_MAX];    /* unit: scale of the int16 weights */
    size_t wide[ATTN_WIDE_TILES];           /* the tiles in wide form: first row * ATTN_ROWS_MAX + rows - 1 */
    char block[];  /* Under WIDE the wide queries follow: float [ATTN_WIDE_TILES][ATTN_ROWS_MAX][head_dim]. */
};

/* The queries of rows from..to-1 of a head, stored at q, in the form that the products need; i is the index
 * of their tile. */
static const char *left_operand(const struct attn *a, const char *q, size_t from, size_t to, size_t i,
                                struct attn_work *w)
{
#if WIDE
    const size_t d = a->head_dim, at = i % ATTN_WIDE_TILES, name = from * ATTN_ROWS_MAX + (to - from - 1);
    float *wide = (float *)(void *)(w->block + a->block_bytes) + at * ATTN_ROWS_MAX * d;
    if (a->type != DT_BF16)
        return q;
    if (w->wide[at] != name)
        for (size_t k = 0; k < (to - from) * d; k++)
            wide[k] = from_bits((uint32_t)((const uint16_t *)(const void *)q)[k] << 16);
    w->wide[at] = name;
    return (const char *)wide;
#else
    (void)a, (void)from, (void)to, (void)i, (void)w;
    return q;
#endif
}

/* exp2_f for x <= 0 or NaN. */
INLINE v16 v16_exp2(v16 x)
{
    const v16 magic = v16_set1(0x1.8p23f);
    v16 t = v16_add(x, magic), f = v16_sub(x, v16_sub(t, magic)), p = v16_set1(EXP2_5);
    p = v16_fma(p, f, v16_set1(EXP2_4));
    p = v16_fma(p, f, v16_set1(EXP2_3));
    p = v16_fma(p, f, v16_set1(EXP2_2));
    p = v16_fma(p, f, v16_set1(EXP2_1));
    p = v16_fma(p, f, v16_set1(1.0f));
    return v16_zero_below(v16_mul(p, v16_pow2(t)), x, -126.0f);
}

/* Updates the maximum m of one row's state. Returns the factor for l and o. Slots outside [from, to) are
 * invisible. */
INLINE float update_maximum(float *state, float *s, size_t from, size_t to)
{
    if (from > 0 || to < KV_BLOCK)
        for (size_t i = 0; i < KV_BLOCK; i++)
            s[i] = i >= from && i < to ? s[i] : -INFINITY;
    float m = v16_top(v16_max(v16_max(v16_load(s), v16_load(s + 16)),
                              v16_max(v16_load(s + 32), v16_load(s + 48))));
    m = state[0] > m ? state[0] : m;
    /* 2^0 is exact; most blocks of a long text do not change the maximum */
    const float a = state[0] == m ? 1.0f : exp2_f(state[0] - m);
    state[0] = m;
    return a;
}

/* Turns the scores of one row into weights and updates l. p = weights in act. int16: s = weights times scale;
 * returns their unit. */
INLINE float softmax_weights(float *state, float a, float *s, void *p, enum dtype act, const float *scale)
{
    float *l = state + 16;
    const v16 top = v16_set1(state[0]);
    v16 x[4];
    UNROLL for (int i = 0; i < 4; i++) {
        x[i] = v16_exp2(v16_sub(v16_load(s + 16 * i), top));
        if (act == DT_I16)
            continue;
#if WIDE
        v16_store((float *)p + 16 * i, act == DT_BF16 ? v16_round_bf16(x[i]) : x[i]);
#else
        if (act == DT_BF16)
            v16_store_bf16((uint16_t *)p + 16 * i, x[i]);
        else
            v16_store((float *)p + 16 * i, x[i]);
#endif
    }
    v16 sum = v16_fma(v16_load(l), v16_set1(a), x[0]);
    if (act == DT_BF16)
        sum = v16_flush(sum);
    v16_store(l, v16_add(v16_add(v16_add(sum, x[1]), x[2]), x[3]));
    if (act != DT_I16)
        return 0;
    UNROLL for (int i = 0; i < 4; i++) {
        x[i] = v16_mul(x[i], v16_load(scale + 16 * i));
        v16_store(s + 16 * i, x[i]);
    }
    float unit = v16_sum(v16_add(v16_add(v16_add(x[0], x[1]), x[2]), x[3])) * (1.0f / 261888);
    const float peak = v16_top(v16_max(v16_max(x[0], x[1]), v16_max(x[2], x[3]))) * (1.0f / 32767);
    unit = peak > unit ? peak : unit;
    return unit < 0x1p-100f ? 0x1p-100f : unit;
}

/* Up to ATTN_ROWS_MAX consecutive query rows of a head, t0, t0 + 1, .. (row of the pass = t / group). */
struct tile_rows {
    const struct attn *a;
    const char *q;
    const char *left;                /* q in the form that the products need */
    const float *q_scale;            /* scales of int16 queries */
    float *state;
    size_t t0;
    int rows;
    size_t extra;                    /* visible positions after hi: nodes in a private block */
    size_t ahead; int lines;         /* prefetching, see struct tile_args */
    struct attn_work *w;
};

/* The scales of a block's keys and values, and the block's values. */
INLINE const float *block_scales(const struct attn *a, const char *block)
{
    return (const float *)(const void *)(block + KV_BLOCK * kv_bytes_of(kv_form(a->type).k, a->head_dim));
}
INLINE const char *block_values(const struct attn *a, const char *block)
{
    return (const char *)block_scales(a, block) +
           (kv_form(a->type).q == DT_I16 ? KV_SCALES * sizeof(float) : 0);
}

static __attribute__((noinline)) void tile_scores(const struct tile_rows *t, const char *block, int turn)
{
    const size_t d = t->a->head_dim;
    const struct kv_form f = kv_form(t->a->type);
    struct tile_args k = {
        t->w->s[turn][0], KV_BLOCK, NULL, f.q, f.k, t->left, d, block, column_bytes(f.k),
        KV_BLOCK / PANEL * column_bytes(f.k), d, t->ahead, t->lines, WIDE, t->q_scale,
        f.q == DT_I16 ? block_scales(t->a, block) : NULL };
    tile_span(k, t->rows, KV_BLOCK / PANEL);
}

/* Importance of the committed keys of block b to row 0: the sum of the scores over the heads of the group. */
static __attribute__((noinline)) void score_block(const struct tile_rows *t, size_t b, const float *s,
                                                  bool first)
{
    const struct attn *a = t->a;
    const size_t group = a->n_heads / a->n_kv_heads, row = a->head_dim * dtype_size(kv_form(a->type).q),
        begin = b * KV_BLOCK;
    const size_t n = a->hi[0] - begin < KV_BLOCK ? a->hi[0] - begin : KV_BLOCK;
    const size_t h = (size_t)(t->q - (const char *)a->q) / (a->m * group * row);
    float *to = a->importance + h * a->importance_step + begin;
    for (size_t i = 0; begin < a->hi[0] && i < n; i++)
        to[i] = first ? s[i] : to[i] + s[i];
}

static __attribute__((noinline)) void tile_weights(const struct tile_rows *t, size_t b, const char *block,
                                                   int turn)
{
    const size_t st = ATTN_STATE(t->a->head_dim), group = t->a->n_heads / t->a->n_kv_heads,
        begin = b * KV_BLOCK;
    const enum dtype type = kv_form(t->a->type).q;
    const float *scale = block_scales(t->a, block) + KV_BLOCK;
    struct attn_work *w = t->w;
    int16_t *p16 = (int16_t *)w->p;          /* 16-bit weights */
    for (size_t i = 0; type == DT_I16 && t->lines && i < KV_SCALES * sizeof(float); i += 64)
        __builtin_prefetch((const char *)(scale - KV_BLOCK) + t->ahead + i, 0, 2);
    /* Each step runs for all rows before the next step. The rows do not wait for each other, which saves 1 to
     * 3 %. */
    for (int j = 0; j < t->rows; j++) {
        const size_t r = (t->t0 + (size_t)j) / group, lo = t->a->lo[r], hi = t->a->hi[r] + t->extra;
        const size_t from = lo > begin ? lo - begin : 0, to = hi - begin < KV_BLOCK ? hi - begin : KV_BLOCK;
        float *s = w->s[turn][j];
        if (t->a->importance && r == 0)
            score_block(t, b, s, t->t0 + (size_t)j == 0);
        for (size_t i = 0; t->a->bias && i < KV_BLOCK; i++)
            s[i] += t->a->bias[begin + i];
        w->alpha[j] = update_maximum(t->state + (size_t)j * st, s, from, to);
    }
    for (int j = 0; j < t->rows; j++) {
        float *state = t->state + (size_t)j * st, *s = w->s[turn][j];
        w->unit[j] =
            type == DT_I16    ? softmax_weights(state, w->alpha[j], s, NULL, DT_I16, scale)
            : type == DT_BF16 ? softmax_weights(state, w->alpha[j], s,
                                                WIDE ? (void *)w->p[j] : (void *)(p16 + j * KV_BLOCK),
                                                DT_BF16, NULL)
                              : softmax_weights(state, w->alpha[j], s, w->p[j], DT_F32, NULL);
    }
    for (int j = 0; type == DT_I16 && j < t->rows; j++) {
        const v16 inverse = v16_set1(1.0f / w->unit[j]);
        UNROLL for (int i = 0; i < 4; i++)
            v16_store_i16(p16 + j * KV_BLOCK + 16 * i, v16_mul(v16_load(w->s[turn][j] + 16 * i), inverse));
    }
}

static __attribute__((noinline)) void tile_values(const struct tile_rows *t, const char *block)
{
    const size_t d = t->a->head_dim;
    const struct kv_form f = kv_form(t->a->type);
    struct tile_args v = {
        t->state + 32, ATTN_STATE(d), t->w->alpha, f.q, f.v, (const char *)t->w->p, KV_BLOCK,
        block_values(t->a, block), column_bytes(f.v), d / PANEL * column_bytes(f.v), KV_BLOCK, t->ahead,
        t->lines, WIDE, t->w->unit, NULL };
    tile_span(v, t->rows, d / PANEL);
}

/* Attends to blocks b .. b + n - 1 for query rows t0..t1-1 of a head, which all see a part of each block. n >
 * 1 only with a single tile: the scores of the next block are computed between the weights and the values of
 * this block, so that neither waits for the other; the blocks are contiguous. Meanwhile the block `ahead`
 * bytes further (0: none) is prefetched, by the first tile or half by each of the first two: a burst would
 * stall on memory, and the hardware does not look far enough ahead. */
static void attend_blocks(const struct attn *a, size_t h, size_t b, size_t n, const char *block, size_t extra,
                          size_t ahead,
                          size_t t0, size_t t1, float *state, struct attn_work *w)
{
    const enum dtype type = kv_form(a->type).q;
    const size_t d = a->head_dim, row = d * dtype_size(type), rows = t1 - t0;
    const char *q = (const char *)a->q + h * a->m * (a->n_heads / a->n_kv_heads) * row;
    const float *q_scale = type == DT_I16 ? a->q_scale + h * a->m * (a->n_heads / a->n_kv_heads) : NULL;
    const size_t n_tiles = (rows + ATTN_ROWS_MAX - 1) / ATTN_ROWS_MAX;
    for (size_t i = 0; i < n_tiles; i++) {
        const size_t from = t0 + i * rows / n_tiles, to = t0 + (i + 1) * rows / n_tiles;
        const int lines = ahead == 0 || rows <= FEW_ROWS || i > !AHEAD_IN_LINE ? 0
                          : n_tiles == 1 || AHEAD_IN_LINE                      ? 4
                                                                               : 2;
        const struct tile_rows t = {
            a, q + from * row, left_operand(a, q + from * row, from, to, i, w),
            q_scale ? q_scale + from : NULL, state + from * ATTN_STATE(d), from, (int)(to - from), extra,
            ahead + 8 * PANEL * i, lines, w };
        tile_scores(&t, block, 0);
        for (size_t j = 0; j < n; j++) {
            tile_weights(&t, b + j, block + j * a->block_bytes, j & 1);
            if (j + 1 < n)
                tile_scores(&t, block + (j + 1) * a->block_bytes, ~j & 1);
            tile_values(&t, block + j * a->block_bytes);
        }
    }
}

/* Builds the block that holds the ancestors of row r, as if they were committed. */
static void build_block(const struct attn *a, size_t h, size_t b, size_t r, char *block)
{
    const size_t d = a->head_dim, begin = b * KV_BLOCK, hi = a->hi[r], n = a->n_node[r];
    if (begin < hi)
        memcpy(block, attn_block(a, h, b), a->block_bytes);
    else
        memset(block, 0, a->block_bytes);
    for (size_t slot = begin < hi ? hi - begin : 0; slot < KV_BLOCK && begin + slot < hi + n; slot++) {
        size_t node = a->node[r * a->node_max + (begin + slot - hi)];
        kv_put(block, a->type, d, slot, (const char *)a->scratch + (node * a->n_kv_heads + h)
               * kv_row_bytes(a->type, d));
    }
}

/* Whether row r sees committed block b through the cache itself. */
INLINE bool row_sees_block(const struct attn *a, size_t r, size_t b)
{
    size_t hi = a->hi[r];
    bool tree = a->n_node && a->n_node[r] > 0;
    if (tree)
        hi = hi / KV_BLOCK * KV_BLOCK;     /* a block with tree nodes is built for each row alone */
    return b * KV_BLOCK < hi && (b + 1) * KV_BLOCK > a->lo[r];
}

static bool rows_see_block(const struct attn *a, size_t r0, size_t r1, size_t b)
{
    while (r0 < r1 && row_sees_block(a, r0, b))
        r0++;
    return r0 == r1;
}

/* Committed blocks of the chunk. Each block is used by all rows that see it while it is in the first-level
 * cache. */
static void attend_committed(const struct attn *a, size_t h, size_t c, size_t r0, size_t r1, float *state,
                             struct attn_work *w)
{
    const size_t group = a->n_heads / a->n_kv_heads, b0 = c * (KV_CHUNK / KV_BLOCK),
        b1 = b0 + KV_CHUNK / KV_BLOCK;
    size_t first = b1, last = 0;
    for (size_t r = r0; r < r1; r++) {
        first = a->lo[r] / KV_BLOCK < first ? a->lo[r] / KV_BLOCK : first;
        last = a->hi[r] > last ? a->hi[r] : last;
    }
    last = (last + KV_BLOCK - 1) / KV_BLOCK;
    last = last < b1 ? last : b1;
    const bool overlap = SCORES_FIRST && (r1 - r0) * group > FEW_ROWS && (r1 - r0) * group <= ATTN_ROWS_MAX;
    for (size_t b = first > b0 ? first : b0, n; b < last; b += n) {
        const char *block = attn_block(a, h, b);
        for (n = 0; overlap && b + n < last && rows_see_block(a, r0, r1, b + n) &&
                    attn_block(a, h, b + n) == block + n * a->block_bytes;)
            n++;
        if (n > 0) {
            attend_blocks(a, h, b, n, block, 0, a->block_bytes, r0 * group, r1 * group, state, w);
            continue;
        }
        n = 1;
        for (size_t r = r0, end; r < r1; r = end) {
            while (r < r1 && !row_sees_block(a, r, b)) r++;
            for (end = r; end < r1 && row_sees_block(a, end, b);) end++;
            if (end > r)
                attend_blocks(a, h, b, 1, block, 0, a->block_bytes, r * group, end * group, state, w);
        }
    }
}

/* Blocks of the chunk that contain nodes of tree row r, built for the row. */
static void attend_nodes(const struct attn *a, size_t h, size_t c, size_t r, float *state,
                         struct attn_work *w)
{
    const size_t group = a->n_heads / a->n_kv_heads, b0 = c * (KV_CHUNK / KV_BLOCK),
        b1 = b0 + KV_CHUNK / KV_BLOCK;
    const size_t nodes = a->n_node[r], end = (a->hi[r] + nodes + KV_BLOCK - 1) / KV_BLOCK;
    size_t b = a->hi[r] / KV_BLOCK;
    for (b = b > b0 ? b : b0; nodes && b < b1 && b < end; b++)
        if ((b + 1) * KV_BLOCK > a->lo[r]) {
            build_block(a, h, b, r, w->block);
            attend_blocks(a, h, b, 1, w->block, nodes, 0, r * group, (r + 1) * group, state, w);
        }
}

static void OP(attend)(const struct attn *a, size_t h, size_t c, size_t r0, size_t r1, void *work)
{
    const size_t group = a->n_heads / a->n_kv_heads, st = ATTN_STATE(a->head_dim);
    float *state = a->part + ((c - a->chunk0) * a->n_kv_heads + h) * a->m * group * st;
    memset(((struct attn_work *)work)->wide, 0xff, sizeof ((struct attn_work *)work)->wide);
    for (size_t t = r0 * group; t < r1 * group; t++) {
        memset(state + t * st, 0, st * sizeof *state);
        state[t * st] = -INFINITY;
    }
    FTZ_BEGIN(a->type == DT_BF16);
    attend_committed(a, h, c, r0, r1, state, work);
    for (size_t r = r0; a->n_node && r < r1; r++)
        attend_nodes(a, h, c, r, state, work);
    FTZ_END;
}

static void OP(attend_merge)(const struct attn *a, void *out, size_t r0, size_t r1)
{
    const size_t group = a->n_heads / a->n_kv_heads, d = a->head_dim, st = ATTN_STATE(d);
    const size_t chunk_step = a->n_kv_heads * a->m * group * st;
    for (size_t r = r0; r < r1; r++) {
        const size_t end = a->hi[r] + (a->n_node ? a->n_node[r] : 0);
        const size_t c0 = a->lo[r] / KV_CHUNK, c1 = (end + KV_CHUNK - 1) / KV_CHUNK;
        for (size_t head = 0; head < a->n_heads; head++) {
            float *s = a->part + (c0 - a->chunk0) * chunk_step
                + ((head / group * a->m + r) * group + head % group) * st;
            float m = s[0], l = tree_sum(s + 16), *o = s + 32;
            for (size_t c = c0 + 1; c < c1; c++) {
                float *t = s + (c - c0) * chunk_step, lc = tree_sum(t + 16);
                float top = m > t[0] ? m : t[0], x = exp2_f(m - top), y = exp2_f(t[0] - top);
                for (size_t i = 0; i < d; i++)
                    o[i] = fmaf(t[32 + i], y, fmaf(o[i], x, 0.0f));
                l = fmaf(lc, y, l * x);
                m = top;
            }
            if (a->logit) {
                const float joins = a->logit[head] * 0x1.715476p0f, top = m > joins ? m : joins,
                            x = exp2_f(m - top);
                for (size_t i = 0; i < d; i++)
                    o[i] = fmaf(o[i], x, 0.0f);
                l = fmaf(l, x, exp2_f(joins - top));
            }
            const float inv = 1.0f / l;
            const size_t at = (r * a->n_heads + head) * d;
            for (size_t i = 0; i < d; i++)
                o[i] = fmaf(o[i], inv, 0.0f);
            if (kv_form(a->type).rotated)
                OP(rotate)(o, d, 1);
            if (a->out == DT_BF16 || (a->out == DT_OTHER && a->type != DT_F32))
                for (size_t i = 0; i < d; i++) ((uint16_t *)out)[at + i] = f32_to_bf16(o[i]);
            else
                memcpy((float *)out + at, o, d * sizeof *o);
        }
    }
}
