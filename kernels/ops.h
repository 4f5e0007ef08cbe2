/* The table of operations: everything that the forward pass and the sampler compute, one function pointer
 * each.
 *
 * The plain C twin (generic.c) defines the bits; avx2.c and avx512.c equal it by memcmp. Rule R1: the result
 * for a row is a function of that row alone. No order below depends on the number of rows, the split of the
 * work, or the number of threads.
 *
 * Numerics (all part of the numerics id):
 *   bf16(x)   rounds to nearest even; a denormal float becomes a zero of its sign; NaN stays NaN.
 *   dot bf16  acc = +0; for each pair of k ascending: acc = fma(a[2j+1], b[2j+1], acc), then
 *             acc = fma(a[2j], b[2j], acc), with denormal inputs and results flushed to zero each time
 *             (tininess after rounding), as VDPBF16PS does. Odd k is padded with +0.
 *   dot f32   acc = +0; k ascending: acc = fma(a[k], b[k], acc), IEEE, no flush; 16-bit weights are
 *             converted exactly.
 *   sums      over a row: 16 partial sums, element i into sum i % 16, ascending; then
 *             s[i] += s[i + 8], s[i + 4], s[i + 2], s[i + 1].
 *   exp2      exp2_f in twin_impl.h: rounding by a magic number, degree-5 polynomial by fmaf, 0 below -126.
 *   attention see struct attn.
 * Everything else is a sequence of single IEEE operations as twin_impl.h writes it, with -ffp-contract=off.
 *
 * Activations ("act") are bf16 under --compute bf16 and float under --compute f32. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* DT_I16: caches (struct attn) and rows that `quantize` wrote. DT_I8: caches, and matrices for drafts
 * (mat_quantize). DT_I4: caches. */
enum dtype {
    DT_OTHER, DT_BF16, DT_F16, DT_F32, DT_I16, DT_I8, DT_I4,
    /* quantised weights, in blocks: kernels/quant.h */
    DT_Q4_0, DT_Q4_1, DT_Q5_0, DT_Q5_1, DT_Q8_0, DT_Q2_K, DT_Q3_K, DT_Q4_K, DT_Q5_K, DT_Q6_K,
    DT_IQ4_NL, DT_IQ4_XS, DT_MXFP4, DT_TQ1_0, DT_TQ2_0,
    DT_IQ2_XXS, DT_IQ2_XS, DT_IQ2_S, DT_IQ3_XXS, DT_IQ3_S, DT_IQ1_S, DT_IQ1_M, DT_Q1_0, DT_Q2_0,
    DT_NVFP4,
    DT_END,                  /* of the list */
};
static inline size_t dtype_size(enum dtype t)            /* 0: of blocks */
{
    return t == DT_F32 ? 4 : t == DT_I8 ? 1 : t == DT_OTHER || t >= DT_I4 ? 0 : 2;
}
static inline bool dtype_is_quantised(enum dtype t) { return t >= DT_Q4_0; }
/* Weights and bytes of a block of a quantised type. */
static inline size_t dtype_block(enum dtype t)
{
    return t == DT_Q1_0 ? 128 : t == DT_Q2_0 || t == DT_NVFP4 ? 64
         : (t >= DT_Q2_K && t <= DT_Q6_K) || t == DT_IQ4_XS || t >= DT_TQ1_0 ? 256 : 32;
}
static inline size_t dtype_block_bytes(enum dtype t)
{
    switch (t) {
    case DT_Q4_0: case DT_IQ4_NL: case DT_Q1_0: case DT_Q2_0: return 18;
    case DT_Q4_1:   return 20;
    case DT_Q5_0:   return 22;
    case DT_Q5_1:   return 24;
    case DT_Q8_0:   return 34;
    case DT_Q2_K:   return 84;
    case DT_Q3_K:   return 110;
    case DT_Q4_K:   return 144;
    case DT_Q5_K:   return 176;
    case DT_Q6_K:   return 210;
    case DT_IQ4_XS: return 136;
    case DT_MXFP4:  return 17;
    case DT_NVFP4:  return 36;
    case DT_TQ1_0:  return 54;
    case DT_TQ2_0: case DT_IQ2_XXS: return 66;
    case DT_IQ2_XS: return 74;
    case DT_IQ2_S:  return 82;
    case DT_IQ3_XXS: return 98;
    case DT_IQ3_S:  return 110;
    case DT_IQ1_S:  return 50;
    case DT_IQ1_M:  return 56;
    default:        return 0;
    }
}

enum {
    PANEL = 16,              /* columns side by side in a packed matrix */
    KV_BLOCK = 64,           /* keys of a cache block, aligned to absolute position */
    KV_CHUNK = 2048,         /* keys of a chunk: blocks merge inside a chunk, then chunks merge */
    KV_SCALES = 2 * KV_BLOCK, /* floats between K and V of a block of whole numbers */
    QUANT_GROUP = 256,       /* inputs of a product with quantised weights that share a scale */
};

/* A matrix of n output columns by k inputs, packed in panels of 16 outputs:
 *   BF16, I8  [n/16][k/2][16][2]: one word holds the pair (2j, 2j+1) of one output. I8: after all panels
 *             follows a float for each output, the scale of its weights.
 *   F16, F32  [n/16][k][16]
 *   quantised weights: the bits of the file in another order, see kernels/quant_layout.h; k is a multiple of
 *             the block
 * n is padded to a multiple of 16 and k to a multiple of 2 with +0. Products with quantised weights that are
 * `scaled` are multiplied by `scale` before a bias is added. */
struct mat { enum dtype type; size_t n, k; void *w; bool scaled; float scale; };

/* A product of one input with matrices of different types: their outputs follow each other. One matrix unless
 * the file mixes types of which one is quantised. */
enum { MATS_MAX = 4 };
struct mats { struct mat m[MATS_MAX]; size_t n; };
static inline size_t mats_n(const struct mats *y)        /* outputs */
{
    size_t n = 0;
    for (size_t i = 0; i < y->n; i++)
        n += y->m[i].n;
    return n;
}

static inline size_t mat_panels(const struct mat *m) { return (m->n + PANEL - 1) / PANEL; }
static inline size_t mat_panel_bytes(const struct mat *m)
{
    return dtype_is_quantised(m->type) ? m->k / dtype_block(m->type) * dtype_block_bytes(m->type) * PANEL
                                       : (m->k + 1) / 2 * 2 * PANEL * dtype_size(m->type);
}
/* I8: scales [n] */
static inline float *mat_scales(const struct mat *m)
{
    return (float *)(void *)((char *)m->w + mat_panels(m) * mat_panel_bytes(m));
}
static inline size_t mat_bytes(const struct mat *m)
{
    return mat_panels(m) * (mat_panel_bytes(m) + (m->type == DT_I8 ? PANEL * sizeof(float) : 0));
}

/* How a cache stores rows: the type of queries and weights, of keys, and of values. Whole numbers have a
 * scale for each row and KV head, one of K and one of V. Heads of a `rotated` form have gone through
 * `rotate`. */
struct kv_form { const char *name; enum dtype q, k, v; bool rotated; };
static inline struct kv_form kv_form(enum dtype t)
{
    switch (t) {
    case DT_F32: return (struct kv_form){ "f32", DT_F32, DT_F32, DT_F32, false };
    case DT_I16: return (struct kv_form){ "int16", DT_I16, DT_I16, DT_I16, false };
    case DT_I8:  return (struct kv_form){ "int8", DT_I16, DT_I8, DT_I8, true };
    case DT_I4:  return (struct kv_form){ "int4", DT_I16, DT_I8, DT_I4, true };
    default:     return (struct kv_form){ "bf16", DT_BF16, DT_BF16, DT_BF16, false };
    }
}
/* Bytes of n elements. */
static inline size_t kv_bytes_of(enum dtype t, size_t n) { return t == DT_I4 ? n / 2 : n * dtype_size(t); }
/* Elements of a head that are rotated together: the largest power of two that divides its dimensions. */
static inline size_t kv_rotation(size_t head_dim) { return head_dim & (~head_dim + 1); }

/* Attention of m rows of one sequence over its cache, in one layer.
 *
 * The cache of a layer and KV head is contiguous, in blocks of 64 keys. A block is
 *   K [head_dim/2][64][2], V [32][head_dim][2]      (bf16: pairs of dimensions, pairs of keys)
 *   K [head_dim/2][64][2], float ks[64], float vs[64], V [32][head_dim][2]
 *                                                   (int16, int8: a key is K ks, a value V vs)
 *   as int8, but V [32][head_dim/2][2]              (int4: byte 8p + i of a key, i < 8, has dimension 16p + i
 *                                                   in its low half and 16p + 8 + i in its high half)
 *   K [head_dim][64], V [64][head_dim]              (f32)
 * A pass over its keys or dimensions reads a block from the first byte to the last, which suits the
 * prefetchers of CPUs. head_dim is a multiple of 16; the model pads smaller heads with +0.
 *
 * Row r sees positions lo[r] <= p < hi[r] of the cache. A tree row also sees its ancestors and itself:
 * node[r*node_max + i], i < n_node[r], are indices into the scratch, at positions hi[r] + i. Scratch node s
 * of KV head h holds K, then V of [head_dim] in stored form (whole numbers: then ks and vs), at scratch +
 * (s*n_kv_heads + h) * kv_row_bytes.
 *
 * For a query row q (already times log2(e)/sqrt(head_dim), rounded to act):
 *   state of a chunk: m = -inf, l[16] = 0, o[head_dim] = 0; for its blocks with a visible key, ascending:
 *     s[64] = dot(q, K), plus the bias of the slots if given; invisible slots are -inf
 *     m' = max(m, max s);  a = exp2(m - m')
 *     p[64] = exp2(s - m');  l[i] = fma(l[i], a, p[i]) (bf16: flushed), then + p[16+i], + p[32+i], + p[48+i]
 *     o = fma(o, a, +0), then dot-accumulated over the 64 keys of act(p) with V (bf16: in pairs, odd first)
 *   An invisible slot has p = +0. The fma of the next step turns a -0 into +0, so a finite value in such a
 *   slot has no effect.
 *   int16, int8, int4: products are summed in int32, exact in any order and below 2^31 (see kv_store):
 *     s = (float(sum q K) * ks) * qs;  p and l as for f32
 *     w[64] = p * vs;  u = the larger of max(w) * (1/32767) and sum(w) * (1/261888), at least 2^-100
 *     (sum: "sums"; both factors rounded to float)
 *     o = fma(float(sum W V), u, o * a), W = w * (1/u) rounded to nearest even: 12 to 15 bits; act(p) has 8
 *   chunks, ascending: m' = max(m, mc); a = exp2(m - m'), b = exp2(mc - m');
 *     l = fma(lc, b, l*a);  o = fma(oc, b, fma(o, a, +0)); the first chunk's state is the start (l: "sums")
 *   out = act(fma(o, 1/l, +0)); a rotated form: act(rotate(fma(o, 1/l, +0))) */
struct attn {
    enum dtype type;                 /* of the cache: kv_form */
    enum dtype out;                  /* DT_BF16 or DT_F32, act; DT_OTHER: float if the type is */
    size_t m, n_heads, n_kv_heads, head_dim;
    const void *q;                   /* kv_form.q [n_kv_heads][m][n_heads/n_kv_heads][head_dim] */
    const float *q_scale;            /* DT_I16: qs [n_kv_heads][m][n_heads/n_kv_heads] */
    /* block b of head h (attn_block): shared[h * n_shared + b] if b < n_shared, else kv + h * head_bytes + (b
     * - n_shared) * block_bytes. In a ring of so many blocks b is b % ring, and n_shared is 0 */
    const char *kv;
    size_t head_bytes, block_bytes, ring;
    char *const *shared; size_t n_shared;
    const size_t *lo, *hi;           /* [m] */
    const uint32_t *n_node, *node;   /* NULL: no tree */
    size_t node_max;
    const void *scratch;
    float *part;                     /* [n_chunks][n_kv_heads][m][group][ATTN_STATE(head_dim)] */
    /* NULL, or [n_kv_heads][importance_step]: for row 0 and each committed position of the blocks that it
     * sees, the sum of q.k over the group's query heads, ascending (TokenSwift eq. 2, times
     * log2(e)/sqrt(head_dim)). The pass computes it from the scores that it needs anyway. */
    float *importance;
    size_t importance_step;
    /* NULL, or a number added to the score of every slot of the visible blocks, for all heads: finite, and 0
     * or at least 2^-64 in size. A slot that represents n similar keys has bias log2(n). */
    const float *bias;
    size_t chunk0, n_chunks;         /* chunks that any row sees: chunk0 .. chunk0 + n_chunks - 1 */
    /* NULL, or [n_heads]: a logit of each head that joins the softmax after the last chunk and has no value.
     * With s = fp32(logit * log2(e)) and top = max(m, s): o = o exp2(m - top), l = fma(l, exp2(m - top),
     * exp2(s - top)). */
    const float *logit;
};
static inline const char *attn_block(const struct attn *a, size_t h, size_t b)
{
    b = a->ring ? b % a->ring : b;
    return b < a->n_shared ? a->shared[h * a->n_shared + b]
                           : a->kv + h * a->head_bytes + (b - a->n_shared) * a->block_bytes;
}
#define ATTN_STATE(head_dim) (16 + 16 + (size_t)(head_dim))   /* m (first of 16), l[16], o */
static inline const char *kv_type_name(enum dtype t) { return kv_form(t).name; }
/* Bytes of one position of several KV heads, of `dims` dimensions together: K and V in stored form. */
static inline size_t kv_rows_of(enum dtype t, size_t heads, size_t dims)
{
    const struct kv_form f = kv_form(t);
    return kv_bytes_of(f.k, dims) + kv_bytes_of(f.v, dims) + (f.q == DT_I16 ? heads * 2 * sizeof(float) : 0);
}
static inline size_t kv_row_bytes(enum dtype t, size_t head_dim) { return kv_rows_of(t, 1, head_dim); }
static inline size_t kv_block_bytes(enum dtype t, size_t head_dim)
{
    return KV_BLOCK * kv_row_bytes(t, head_dim);
}
/* A layer of a cache: its KV heads, their dimensions, and the heads and dimensions of all layers before, and
 * of those before that are rings, as this one may be (kvmgr/kv.h). 32 bits hold them (config.h has the
 * largest ones) and keep struct config small, which lies on stacks. */
struct kv_heads { uint32_t n : 20, dim : 12, first, dims, ring_first : 31, ring : 1, ring_dims; };
/* The entry of layer l in a list of all layers, whose last entry has the sums; list NULL: every layer has n
 * heads of `dim`. */
static inline struct kv_heads kv_heads_of(const struct kv_heads *list, size_t n, size_t dim, size_t l)
{
    return list ? list[l]
                : (struct kv_heads){ .n = (uint32_t)n, .dim = (uint32_t)dim, .first = (uint32_t)(l * n),
                                     .dims = (uint32_t)(l * n * dim) };
}

/* Bytes of the layers before g, of which rings have `ring` blocks, the others n; ring 0: all have n. */
static inline size_t kv_bytes_before(enum dtype t, const struct kv_heads *g, size_t n, size_t ring)
{
    const size_t heads = ring ? g->ring_first : 0, dims = ring ? g->ring_dims : 0;
    return KV_BLOCK *
           (n * kv_rows_of(t, g->first - heads, g->dims - dims) + ring * kv_rows_of(t, heads, dims));
}

/* A step of a recurrent state (Gated DeltaNet, arXiv:2412.06464, equation 10): n columns, a multiple of 16,
 * of the state of one head, [dim][n]. A row has a key k and a query q [dim], both normalised, a value v [n],
 * and the numbers qk = q . k, beta and decay. The state stays one row back: a step first takes the row
 * before.
 *
 *   before    to[i][j] = fma(k[i], delta[j], decay * from[i][j]), with the row before; to may be from
 *             NULL: the state is `from`, and `to` is not used
 *   now       r = +0; r = fma(k[i], to[i][j], r), i ascending; p likewise with q
 *             delta[j] = beta * (v[j] - decay * r)
 *             o[j] = fma(qk, delta[j], decay * p)        the output q . (state with this row)
 *             NULL: nothing */
struct delta_row { const float *k, *q, *v; float qk, beta, decay; float *delta, *o; };
struct delta_step { const float *from; float *to; size_t dim, n; const struct delta_row *before, *now; };

/* Selection and logits processing (bodies in select.h). A row of logits holds floats and -inf, never NaN or
 * +inf.
 *
 * The weight of a logit x below the largest logit `top` is exp(x - top) in units of 2^-43, a whole number.
 * Sums of weights are exact in any order, so no filter needs a sorted row. 2^20 weights fit in 64 bits. */
enum { SELECT_BUCKETS = 2048, COIN_BLOCK = 512, SELECT_MAX = 1 << 20 };
#define WEIGHT_ONE (UINT64_C(1) << 43)
#define TAIL_ERROR 2e-5
struct coin_key { uint64_t seed, position; uint32_t sample; };

/* Training (bodies in train.h). */
/* largest logit; the target's logit; sum of exp(x - top); number of logits that rank before the target */
struct xent { float top, at, sum; uint32_t above; };
/* xent of the target; sum of p (top - x); sum of p; sum of min(p, q) with q = softmax(x) */
struct mixed { struct xent xent; float cross, mass, overlap; };
struct adamw {  /* One step of AdamW. b^t: the betas to the power of the step number, which starts at 1. */
    float beta1, beta2, eps;
    float scale;                     /* factor of the gradient (clipping) */
    float keep;                      /* 1 - rate * weight decay */
    float rate, root;                /* learning rate / (1 - beta1^t); 1 / sqrt(1 - beta2^t) */
};

struct ops {
    const char *name;                /* "generic", "avx2", "avx512" */
    bool (*supported)(void);         /* whether this CPU can run the twin */

    /* y[r*ldy + n] = (add ? y : 0) + (dot(x row r, column n) + bias[n]) for panels [p0, p1), rows 0..m-1. x:
     * act [m][ldx]. With act bf16, w is BF16; with odd k, x[k] must be finite, because it is multiplied by
     * +0. bias may be NULL: nothing is added; add without bias is y + dot.
     *
     * With act I16 and w I8 (drafts): x as `quantize` writes it, ldx >= quantized_row(k), and dot = (sum *
     * scale of w) * scale of x, where the sum is exact in int32.
     *
     * With act F32 and quantised w: "dot f32" over the weights as quant_decode gives them. */
    void (*matmul)(float *y, size_t ldy, enum dtype act, const void *x, size_t ldx, size_t m,
                   const struct mat *w, const float *bias, bool add, size_t p0, size_t p1);

    /* Quantises a row of k act to whole numbers y[k] (odd k: then a 0), followed by their scale u as two
     * int16. y is x * (1/u) rounded to nearest even, with u the larger of max|x| / 32767 and sum|x| / 2^24
     * ("sums"), at least 2^-100, NaN where the sum is not finite. A sum of products with 8-bit weights is
     * thus below 2^31 for up to 2^17 inputs; with more inputs drafts may be poor. */
    void (*quantize)(int16_t *y, enum dtype act, const void *x, size_t k);

    /* Products with quantised weights. x: m rows as quantize_groups writes them, row_bytes apart; the rest as
     * in matmul. For each output:
     *
     *   acc = +0; for each group of 256 inputs, ascending (the last one may be shorter):
     *       c = +0; for each sub-block of the weights, ascending:
     *           c = fma(float(int32 sum of q x), scale, c)
     *           with minima also c = fma(float(int32 sum of x), -min, c)
     *       acc = fma(c, scale of x, acc)
     *
     * q: the whole numbers of the type, offsets subtracted (Q4_0: -8 .. 7); scale and min: the exact products
     * of the factors of the file. Q4_1 and Q5_1 have -min = their second factor. The sums are exact in any
     * order:
     * 32 * 127 * 32767 < 2^31. A sub-block has 32 weights, in Q2_K, Q3_K and Q6_K 16. */
    void (*matmul_quantized)(float *y, size_t ldy, const void *x, size_t row_bytes, size_t m,
                             const struct mat *w,
                             const float *bias, bool add, size_t p0, size_t p1);
    /* Quantises a row of k floats, a multiple of 32, in groups of 256: x * (1/u) rounded to nearest even,
     * with u = max|x| / 32767, at least 2^-100, NaN where a value is not finite. */
    void (*quantize_groups)(void *row, const float *x, size_t k);

    /* y = act(x * (1/sqrt(sum(x^2)/dim + eps)) * w), rows of dim; y act [m][ldy], x [m][ldx]; act DT_F32 or
     * DT_BF16. */
    void (*rmsnorm)(void *y, size_t ldy, enum dtype act, const float *x, size_t ldx, const float *w, size_t m,
                    size_t dim, float eps);

    /* y[i] = act(silu(g[i]) * u[i]), silu(g) = g / (1 + exp2(-g*log2e)) */
    void (*swiglu)(void *y, enum dtype act, const float *g, const float *u, size_t n);
    /* x[i] = cap * (1 - 2 / (1 + exp2(x[i] * (2 log2(e) / cap)))), which is cap * tanh(x[i] / cap) */
    void (*softcap)(float *x, float cap, size_t n);
    /* y[i] = act(gelu(g[i]) * u[i]), gelu(g) = g / (1 + exp2(-z)) with z = g * fma(g*g, b, a), which is
     * g/2 (1 + tanh(sqrt(2/pi) (g + 0.044715 g^3))) */
    void (*geglu)(void *y, enum dtype act, const float *g, const float *u, size_t n);

    /* In place on one head x[dim]: rotates (x[i], x[i+dim/2]) by angle i: x0*c - x1*s, x1*c + x0*s. */
    void (*rope)(float *x, const float *cos, const float *sin, size_t dim);
    /* In place on one head x[dim], dim <= 512: in each block of kv_rotation(dim) elements, for distances 1,
     * 2, 4, .. of a pair (a, b): (a + b, a - b); then times factor. With factor 1 / kv_rotation(dim) it is
     * the inverse of factor 1. */
    void (*rotate)(float *x, size_t dim, float factor);

    /* y = act(x * scale) */
    void (*round)(void *y, enum dtype act, const float *x, float scale, size_t n);

    /* Computes the states of chunk c and KV head h for rows [r0, r1) (all query heads of the group). work:
     * attn_work_bytes. */
    void (*attend)(const struct attn *a, size_t h, size_t c, size_t r0, size_t r1, void *work);
    /* Merges the chunks of rows [r0, r1) and writes act out [m][n_heads*head_dim]. */
    void (*attend_merge)(const struct attn *a, void *out, size_t r0, size_t r1);

    /* Whether every x is finite. */
    bool (*finite)(const float *x, size_t n);

    void (*delta)(const struct delta_step *s);
    /* y[c] = silu(sum of w[t][c] * x[t][c]), t ascending from +0, each product rounded; w [taps][n] */
    void (*convolve)(float *y, const float *const *x, const float *w, size_t taps, size_t n);
    /* y = act(y * (1 / (1 + exp2(-g*log2e)))), y act */
    void (*gate)(void *y, enum dtype act, const float *g, size_t n);

    /* Index of the largest of n >= 1 logits, the lowest index on ties. */
    size_t (*argmax)(const float *x, size_t n);
    /* x = x / t; a result that overflows becomes +-FLT_MAX; -inf stays. */
    void (*temper)(float *x, size_t n, float t);
    /* x = x >= cut ? x : -inf;   x = x == value ? -inf : x */
    void (*cut_below)(float *x, size_t n, float cut);
    void (*cut_equal)(float *x, size_t n, float value);
    /* Writes the indices of the logits lo <= x <= hi, ascending, and returns their number; SIZE_MAX when
     * there are more than max. */
    size_t (*between)(uint32_t *at, size_t max, const float *x, size_t n, float lo, float hi);
    /* w[i] = weight(x[i]) */
    void (*weigh)(uint64_t *w, const float *x, size_t n, float top);
    /* hist[bucket(x)] += weighted ? weight(x) : 1 for every x >= cut; bucket(x) = min((int)((top - x) *
     * per_unit), last). */
    void (*tally)(uint64_t hist[SELECT_BUCKETS], const float *x, size_t n, float top, float cut,
                  float per_unit, bool weighted);
    /* sum[0] += weight(x), sum[1] += weight(x) * (top - x), for every x >= cut. */
    void (*moments)(uint64_t sum[2], const float *x, size_t n, float top, float cut);
    /* The sum of exp(x - top) over cut <= x < limit, within TAIL_ERROR of that sum and 1e-17 for each x. */
    double (*tail)(const float *x, size_t n, float top, float cut, float limit);
    /* u[i] is an upper bound, within 1e-3 and close where it matters, of (x[i] - top) plus the Gumbel noise
     * of the id, which is ids[i], or first + i when ids is NULL (first even). n <= COIN_BLOCK. Returns the
     * largest bound. */
    float (*coin_bounds)(float *u, const float *x, const uint32_t *ids, uint32_t first, size_t n,
                         const struct coin_key *key, float top);

    /* Backward pass of rmsnorm for m rows of dim: s = 1/sqrt(sum(x^2)/dim + eps), c = sum(dy w x) (both as
     * "sums"), dx = (add ? dx : 0) + fma(-x, c s^3 / dim, dy w s); dw[i] = fma(dy[i], x[i] s, dw[i]), row
     * after row. x and dx [m][ldx], dy [m][ldy]. */
    void (*rmsnorm_back)(float *dx, size_t ldx, bool add, float *dw, const float *dy, size_t ldy,
                         const float *x, const float *w, size_t m, size_t dim, float eps);
    /* Cross-entropy of a row of n finite logits against the token `target`: -log softmax(x)[target] =
     * log(sum) + top - at. Its gradient goes to g = act(softmax(x) - 1 at the target) unless g is NULL. x is
     * overwritten with exp(x - top). `above` counts the larger logits and the equal logits of lower index: 0
     * when the target is the argmax. */
    void (*xent)(void *g, enum dtype act, float *x, size_t n, size_t target, struct xent *out);
    /* m = fma(beta1, m, (1 - beta1) x), v = fma(beta2, v, (1 - beta2) x x) with x = g scale;
     * w = fma(keep, w, -(rate m / (sqrt(v) root + eps))). */
    void (*adamw)(float *w, float *m, float *v, const float *g, size_t n, const struct adamw *a);
    /* A row of attention. s[lo..hi) = softmax(s * scale), the rest of s[n] = 0, and y = act(s); lo <= hi <=
     * n. The sum has the lanes of "sums", counted from lo. */
    void (*softmax)(void *y, enum dtype act, float *s, size_t lo, size_t hi, size_t n, float scale);
    /* Its gradient: dp[lo..hi) = p (dp - sum(p dp)) scale, the rest of dp[n] = 0, and ds = act(dp). */
    void (*softmax_back)(void *ds, enum dtype act, const float *p, float *dp, size_t lo, size_t hi, size_t n,
                         float scale);
    /* The gradient of y = silu(g) u: du = dy silu(g), dg = dy u silu'(g). */
    void (*swiglu_back)(float *dg, float *du, const float *g, const float *u, const float *dy, size_t n);
    /* SPIRe's mixed loss of a row of n finite logits against probabilities p: omega (log(sum) mass + cross) -
     * (1 - omega) overlap, the cross-entropy and the expected acceptance. Its gradient goes to g unless g is
     * NULL: act(omega (mass q - p) - (1 - omega) q ([q < p] - a)), a = the sum of q where q < p. x is
     * overwritten with q. Sums are "sums". */
    void (*mixed)(void *g, enum dtype act, float *x, const float *p, size_t n, size_t target, float omega,
                  struct mixed *out);
    /* Attention over chosen rows of dim. s[i] = dot(x, row[i]) ("sums", fma) */
    void (*rows_dot)(float *s, const float *x, const float *const *row, size_t n, size_t dim);
    /* y = fma(w[i], row[i], y), i ascending */
    void (*rows_sum)(float *y, const float *w, const float *const *row, size_t n, size_t dim);
    /* row[i] = fma(w[i], x, row[i]) */
    void (*rows_add)(float *const *row, const float *w, const float *x, size_t n, size_t dim);
};

size_t attn_work_bytes(enum dtype t, size_t head_dim);   /* scratch of one thread in attend */

/* Packs rows [r0, r0+n) of the matrix from row-major src ([n][m->k] of type `from`). F16 and F32 become BF16
 * by rounding; 16-bit values become F32 exactly; blocks of quantised weights keep their bits. */
void mat_pack(struct mat *m, size_t r0, size_t n, const void *src, enum dtype from);
/* Packs columns [k0, k0+n) of the matrix from the rows of row-major src ([n][m->n] of type `from`): it packs
 * a transpose. k0 is even for BF16. With odd m->k the padding column is not written and must be zero. */
void mat_pack_columns(struct mat *m, size_t k0, size_t n, const void *src, enum dtype from);
/* Quantises panels [p0, p1) of a BF16, F16 or F32 matrix to 8 bits, into a DT_I8 matrix of the same size. The
 * weights of each output are whole numbers up to 127 times a scale. */
void mat_quantize(struct mat *to, const struct mat *from, size_t p0, size_t p1);
/* number of int16 in a row that `quantize` writes */
static inline size_t quantized_row(size_t k) { return (k + 1) / 2 * 2 + 2; }
/* A row that quantize_groups wrote: the whole numbers [k], the sums of 16 and of 32 of them as int32 and as
 * floats, and the scales of the groups. */
struct quantized { int16_t *x; int32_t *sum16, *sum32; float *float16, *float32, *scale; };
static inline struct quantized quantized_at(const void *row, size_t k)
{
    struct quantized q = { (int16_t *)(uintptr_t)row };
    q.sum16 = (int32_t *)(void *)(q.x + k);
    q.sum32 = q.sum16 + k / 16;
    q.float16 = (float *)(void *)(q.sum32 + k / 32);
    q.float32 = q.float16 + k / 16;
    q.scale = q.float32 + k / 32;
    return q;
}
static inline size_t quantized_groups_bytes(size_t k)    /* of a row */
{
    return (2 * k + (k / 16 + k / 32) * 8 + (k + QUANT_GROUP - 1) / QUANT_GROUP * 4 + 63) / 64 * 64;
}
/* Row r as floats: an embedding look-up, also from the packed form of a tied lm_head. */
void mat_row(const struct mat *m, size_t r, float *y);
/* Writes K and V of one KV head (float [head_dim], after RoPE and `rotate`) in stored form, K then V. int16:
 * x * (1/u) rounded to float, then to the nearest whole number (even on ties), with u = max|x| / 8191, at
 * least 2^-100; then u of K and u of V. u is NaN where the sum of |x| is not finite. int8: 127 instead of
 * 8191. V of int4: -7 .. 7, and of the scales max|x| / 7 * (1 - i / 16), i < 8, the first of least squared
 * error. kv_query does the same for a query with u = the larger of max|x| / 32767 and sum|x| / 261888
 * ("sums"), so |sum q K| <= (261888 + head_dim/2) * 8191 < 2^31 up to 512 dimensions. */
void kv_store(void *dst, enum dtype t, const float *k, const float *v, size_t head_dim);
/* quantises x * times */
void kv_query(int16_t *q, float *scale, const float *x, float times, size_t head_dim);
/* Copies a stored row into slot (0..63) of a block. */
void kv_put(void *block, enum dtype t, size_t head_dim, size_t slot, const void *stored);
/* Copies slots from .. from+n-1 of one block to slots slot .. slot+n-1 of another block. */
void kv_copy(void *block, size_t slot, const void *src, size_t from, size_t n, enum dtype t, size_t head_dim);
/* Adds the rows in slots from .. to-1 of a block to k[] and v[]. */
void kv_sum(float *k, float *v, enum dtype t, size_t head_dim, const void *block, size_t from, size_t to);
/* cos and sin of fp32(position) * inv_freq, times `factor`; [n_freq] each. Computed in double without the C
 * library, so the bits are the same everywhere. */
void rope_angles(float *cos, float *sin, size_t position, const float *inv_freq, size_t n_freq, float factor);
#define OPS_INLINE static inline __attribute__((always_inline, unused))
OPS_INLINE float from_bits(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
OPS_INLINE uint32_t to_bits(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
OPS_INLINE float bf16_to_f32(uint16_t x) { return from_bits((uint32_t)x << 16); }
/* Rounds to nearest even; a denormal becomes a zero of its sign, NaN a quiet NaN of its sign. */
OPS_INLINE uint16_t f32_to_bf16(float x)
{
    uint32_t u = to_bits(x), a = u & 0x7fffffff;
    uint32_t r = (u + 0x7fff + (u >> 16 & 1)) >> 16;
    r = a < 0x00800000 ? u >> 16 & 0x8000 : r;
    r = a > 0x7f800000 ? (u >> 16 | 0x40) : r;
    return (uint16_t)r;
}
float f16_to_f32(uint16_t x);

/* The twins of this build, plain C first: their names with sep in between, and their tables up to NULL. */
#if defined(__x86_64__)
#define TWIN_NAMES(sep) "generic" sep "avx2" sep "avx512"
#else
#define TWIN_NAMES(sep) "generic"
#endif
extern const struct ops *const ops_all[];
/* The twin that LONGHAND_ISA names, else the fastest twin that this CPU can run. NULL and *why when
 * LONGHAND_ISA names an unknown twin or one that this CPU cannot run. */
const struct ops *ops_for_cpu(const char **why);
/* Numerics id of this build and this CPU: "cpu-1" on x86 and plain C. */
#define NUMERICS_VERSION 1
