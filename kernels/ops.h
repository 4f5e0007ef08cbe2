/* The table of operations: everything the forward pass and the sampler compute, one pointer each.
 *
 * The plain C twin (generic.c) defines the bits; avx2.c and avx512.c equal it by memcmp. Rule R1: the
 * result for a row is a function of that row alone, so no order below depends on the number of rows, the
 * cut of the work, or the number of threads.
 *
 * Numerics (all part of the numerics id):
 *   bf16(x)   round to nearest even; denormal floats become a zero of the same sign; NaN stays NaN.
 *   dot bf16  acc = +0; for each pair of k ascending: acc = fma(a[2j+1], b[2j+1], acc), then
 *             acc = fma(a[2j], b[2j], acc), each with denormal inputs and results flushed to zero
 *             (tininess after rounding): what VDPBF16PS does. Odd k is padded with +0.
 *   dot f32   acc = +0; k ascending: acc = fma(a[k], b[k], acc), IEEE, no flush; 16-bit weights are
 *             converted exactly.
 *   sums      over a row: 16 partial sums, element i into sum i % 16, ascending; then
 *             s[i] += s[i + 8], s[i + 4], s[i + 2], s[i + 1].
 *   exp2      see exp2_f in twin_impl.h: magic-number rounding, degree-5 polynomial by fmaf, 0 below -126.
 *   attention see struct attn.
 * Everything else is one IEEE operation after another as twin_impl.h writes it; -ffp-contract=off.
 *
 * Activations ("act") are bf16 with --compute bf16 and float with --compute f32. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* DT_I16: caches, see struct attn, and rows that `quantize` left; DT_I8: matrices of drafts alone, see
 * mat_quantize */
enum dtype { DT_OTHER, DT_BF16, DT_F16, DT_F32, DT_I16, DT_I8 };
static inline size_t dtype_size(enum dtype t)
{
    return t == DT_F32 ? 4 : t == DT_I8 ? 1 : t == DT_OTHER ? 0 : 2;
}

enum {
    PANEL = 16,              /* columns of a packed matrix that lie side by side */
    KV_BLOCK = 64,           /* keys of a cache block, aligned to absolute position */
    KV_CHUNK = 2048,         /* keys of a chunk: blocks merge inside it, then chunks merge */
    KV_SCALES = 2 * KV_BLOCK, /* floats between K and V of an int16 block */
};

/* A matrix of n output columns by k inputs, packed in panels of 16 outputs:
 *   BF16, I8  [n/16][k/2][16][2]: one word holds the pair (2j, 2j+1) of one output; behind all panels of I8 a float for each output that its weights are times
 *   F16, F32  [n/16][k][16]
 * n is padded to a multiple of 16 and k to a multiple of 2 with +0. */
struct mat { enum dtype type; size_t n, k; void *w; };

static inline size_t mat_panels(const struct mat *m) { return (m->n + PANEL - 1) / PANEL; }
static inline size_t mat_panel_bytes(const struct mat *m)
{
    return (m->k + 1) / 2 * 2 * PANEL * dtype_size(m->type);
}
/* I8: [n] */
static inline float *mat_scales(const struct mat *m)
{
    return (float *)(void *)((char *)m->w + mat_panels(m) * mat_panel_bytes(m));
}
static inline size_t mat_bytes(const struct mat *m)
{
    return mat_panels(m) * (mat_panel_bytes(m) + (m->type == DT_I8 ? PANEL * sizeof(float) : 0));
}

/* Attention of m rows of one sequence over its cache, one layer.
 *
 * The cache of a layer and KV head is contiguous, in blocks of 64 keys; a block is
 *   K [head_dim/2][64][2] then V [32][head_dim][2]      (bf16: pairs of dimensions, pairs of keys)
 *   K [head_dim/2][64][2], float ks[64], float vs[64], V [32][head_dim][2]      (int16: a key is K ks, a value V vs)
 *   K [head_dim][64]      then V [64][head_dim]         (f32)
 * so that one pass over its keys or dimensions reads it from the first byte to the last, as the prefetchers of CPUs like it.
 * head_dim is a multiple of 16 here; smaller ones are padded with +0 by the model.
 *
 * Row r sees positions lo[r] <= p < hi[r] of the cache. A tree row also sees its ancestors and itself:
 * node[r*node_max + i], i < n_node[r], are indices into the scratch, standing at positions hi[r] + i.
 * Scratch node s, KV head h: K then V of [head_dim] in stored form (int16: then its ks and vs), at scratch + (s*n_kv_heads + h) * kv_row_bytes.
 *
 * For a query row q (already times log2(e)/sqrt(head_dim), rounded to act):
 *   state of a chunk: m = -inf, l[16] = 0, o[head_dim] = 0; for its blocks with a visible key, ascending:
 *     s[64] = dot(q, K) + bias of the slots (where there is one), invisible slots -inf;  m' = max(m, max s);  a = exp2(m - m')
 *     p[64] = exp2(s - m');  l[i] = fma(l[i], a, p[i]) (bf16: flushed), then + p[16+i], + p[32+i], + p[48+i]
 *     o = fma(o, a, +0), then dot-accumulated over the 64 keys of act(p) with V (in pairs, odd first, for bf16)
 *   Invisible slots have p = +0; the fma at the next step makes a -0 they might leave +0, so what lies
 *   in such a slot cannot be seen as long as it is finite.
 *   int16: products are summed in int32, exact in any order and below 2^31 (see kv_store):
 *     s = (float(sum q K) * ks) * qs;  p and l as for f32
 *     w[64] = p * vs;  u = max(w) * (1/32767) or sum(w) * (1/261888), whichever is larger, at least 2^-100 (sum: "sums"; both factors rounded to float)
 *     o = fma(float(sum W V), u, o * a) with W = w * (1/u) rounded to nearest even: 12 to 15 bits, where act(p) has 8
 *   chunks, ascending: m' = max(m, mc); a = exp2(m - m'), b = exp2(mc - m');
 *     l = fma(lc, b, l*a);  o = fma(oc, b, fma(o, a, +0)); the first one is taken as it is (l summed as "sums").
 *   out = act(fma(o, 1/l, +0)).  */
struct attn {
    /* of cache and q: DT_BF16 or DT_I16 (out is bf16), DT_F32 (out is float) */
    enum dtype type;
    size_t m, n_heads, n_kv_heads, head_dim;
    const void *q;                   /* type [n_kv_heads][m][n_heads/n_kv_heads][head_dim] */
    const float *q_scale;            /* DT_I16: qs [n_kv_heads][m][n_heads/n_kv_heads] */
    const char *kv;                  /* block b of head h at kv + h*head_bytes + b*block_bytes */
    size_t head_bytes, block_bytes;
    const size_t *lo, *hi;           /* [m] */
    const uint32_t *n_node, *node;   /* NULL: no tree */
    size_t node_max;
    const void *scratch;
    float *part;                     /* [n_chunks][n_kv_heads][m][group][ATTN_STATE(head_dim)] */
    float *importance;               /* or NULL. [n_kv_heads][importance_step]: of row 0 and each committed position of the blocks that it sees
                                      * the sum over the group's query heads, ascending, of q.k as defined above (TokenSwift eq. 2, times
                                      * log2(e)/sqrt(head_dim)): fused with the pass's own QK, whose scores it takes */
    size_t importance_step;
    const float *bias;               /* or NULL: nothing is added. Of every slot of the blocks that are seen, the same for all heads: 0, or at least 2^-64
                                      * in size and finite. What stands for n alike keys has log2(n) */
    size_t chunk0, n_chunks;         /* chunks that any row sees: chunk0 .. chunk0 + n_chunks - 1 */
};
#define ATTN_STATE(head_dim) (16 + 16 + (size_t)(head_dim))   /* m (first of 16), l[16], o */
static inline const char *kv_type_name(enum dtype t)
{
    return t == DT_F32 ? "f32" : t == DT_I16 ? "int16" : "bf16";
}
/* One position of a KV head: K and V in stored form. */
static inline size_t kv_row_bytes(enum dtype t, size_t head_dim)
{
    return 2 * head_dim * dtype_size(t) + (t == DT_I16 ? 2 * sizeof(float) : 0);
}
static inline size_t kv_block_bytes(enum dtype t, size_t head_dim)
{
    return KV_BLOCK * kv_row_bytes(t, head_dim);
}

/* Selection and logits processing (bodies in select.h). A row of logits holds floats and -inf, never NaN or +inf.
 *
 * The weight of a logit x below the largest one `top` is exp(x - top) in units of 2^-43, a whole number: sums of
 * weights are exact in any order, so no filter needs a sorted row. 2^20 weights fit in 64 bits. */
enum { SELECT_BUCKETS = 2048, COIN_BLOCK = 512, SELECT_MAX = 1 << 20 };
#define WEIGHT_ONE (UINT64_C(1) << 43)
struct coin_key { uint64_t seed, position; uint32_t sample; };

/* Training (bodies in train.h). */
struct xent { float top, at, sum; uint32_t above; };   /* largest logit; the target's; sum of exp(x - top); logits ranked before the target */
struct adamw {                       /* one step of AdamW; b^t: the betas to the power of the step, counted from 1 */
    float beta1, beta2, eps;
    float scale;                     /* of the gradient (clipping) */
    float keep;                      /* 1 - rate * weight decay */
    float rate, root;                /* learning rate / (1 - beta1^t); 1 / sqrt(1 - beta2^t) */
};

struct ops {
    const char *name;                /* "generic", "avx2", "avx512", "neon" */
    bool (*supported)(void);         /* whether this CPU can run it */

    /* y[r*ldy + n] = (add ? y : 0) + (dot(x row r, column n) + bias[n]) for panels [p0, p1), rows 0..m-1.
     * x: act [m][ldx]; act bf16 needs w BF16, and with odd k a finite x[k], which +0 is multiplied by. bias may be NULL:
     * nothing is added; add without bias is y + dot.
     * With act I16 and w I8, for drafts: x as `quantize` leaves it, ldx >= quantized_row(k), and dot = (sum * w's scale) * x's scale, the sum exact in int32. */
    void (*matmul)(float *y, size_t ldy, enum dtype act, const void *x, size_t ldx, size_t m,
                   const struct mat *w, const float *bias, bool add, size_t p0, size_t p1);

    /* A row of k act to whole numbers y[k], then (k odd: 0 before it) their scale u as two int16: rounded to nearest even of x * (1/u), u = max|x| / 32767 or
     * sum|x| / 2^24 ("sums"), whichever is larger, at least 2^-100, NaN where the sum is not finite. So a sum of products with weights of 8 bits is below 2^31
     * for up to 2^17 inputs (with more, guesses may be poor). */
    void (*quantize)(int16_t *y, enum dtype act, const void *x, size_t k);

    /* y = act(x * (1/sqrt(sum(x^2)/dim + eps)) * w), rows of dim; y act [m][ldy], x [m][ldx]; act DT_F32 or DT_BF16. */
    void (*rmsnorm)(void *y, size_t ldy, enum dtype act, const float *x, size_t ldx, const float *w, size_t m,
                    size_t dim, float eps);

    /* y[i] = act(silu(g[i]) * u[i]), silu(g) = g / (1 + exp2(-g*log2e)) */
    void (*swiglu)(void *y, enum dtype act, const float *g, const float *u, size_t n);

    /* In place on one head x[dim]: (x[i], x[i+dim/2]) turned by angle i: x0*c - x1*s, x1*c + x0*s. */
    void (*rope)(float *x, const float *cos, const float *sin, size_t dim);

    /* y = act(x * scale) */
    void (*round)(void *y, enum dtype act, const float *x, float scale, size_t n);

    /* The chunk c states of KV head h for rows [r0, r1) (all query heads of the group). work: attn_work_bytes. */
    void (*attend)(const struct attn *a, size_t h, size_t c, size_t r0, size_t r1, void *work);
    /* Merge the chunks of rows [r0, r1), write act out [m][n_heads*head_dim]. */
    void (*attend_merge)(const struct attn *a, void *out, size_t r0, size_t r1);

    /* Whether every x is finite. */
    bool (*finite)(const float *x, size_t n);

    /* Index of the largest of n >= 1 logits, the lowest one on ties. */
    size_t (*argmax)(const float *x, size_t n);
    /* x = x / t, what overflows becomes +-FLT_MAX; -inf stays. */
    void (*temper)(float *x, size_t n, float t);
    /* x = x >= cut ? x : -inf;   x = x == value ? -inf : x */
    void (*cut_below)(float *x, size_t n, float cut);
    void (*cut_equal)(float *x, size_t n, float value);
    /* Indices of the logits lo <= x <= hi, ascending, and their number; SIZE_MAX when there are more than max. */
    size_t (*between)(uint32_t *at, size_t max, const float *x, size_t n, float lo, float hi);
    /* w[i] = weight(x[i]) */
    void (*weigh)(uint64_t *w, const float *x, size_t n, float top);
    /* hist[bucket(x)] += weighted ? weight(x) : 1 for every x >= cut; bucket(x) = min((int)((top - x) * per_unit), last). */
    void (*tally)(uint64_t hist[SELECT_BUCKETS], const float *x, size_t n, float top, float cut,
                  float per_unit, bool weighted);
    /* sum[0] += weight(x), sum[1] += weight(x) * (top - x), for every x >= cut. */
    void (*moments)(uint64_t sum[2], const float *x, size_t n, float top, float cut);
    /* u[i] >= (x[i] - top) + Gumbel noise of its id - 1e-3, and hardly more where that matters; the id is ids[i], or
     * first + i with ids NULL (first even). n <= COIN_BLOCK. Returns the largest. */
    float (*coin_bounds)(float *u, const float *x, const uint32_t *ids, uint32_t first, size_t n,
                         const struct coin_key *key, float top);

    /* The way back through rmsnorm for m rows of dim: s = 1/sqrt(sum(x^2)/dim + eps), c = sum(dy w x) (both as "sums"),
     * dx = (add ? dx : 0) + fma(-x, c s^3 / dim, dy w s);  dw[i] = fma(dy[i], x[i] s, dw[i]) row after row. x and dx [m][ldx], dy [m][ldy]. */
    void (*rmsnorm_back)(float *dx, size_t ldx, bool add, float *dw, const float *dy, size_t ldy,
                         const float *x, const float *w, size_t m, size_t dim, float eps);
    /* Cross-entropy of a row of n finite logits against the token `target`, -log softmax(x)[target] = log(sum) + top - at, and
     * its gradient g = act(softmax(x) - 1 at the target), or g NULL. x is overwritten with exp(x - top). `above` counts the logits
     * that are larger, and equal ones of lower index: 0 where the target is the argmax. */
    void (*xent)(void *g, enum dtype act, float *x, size_t n, size_t target, struct xent *out);
    /* m = fma(beta1, m, (1 - beta1) x), v = fma(beta2, v, (1 - beta2) x x) with x = g scale;
     * w = fma(keep, w, -(rate m / (sqrt(v) root + eps))). */
    void (*adamw)(float *w, float *m, float *v, const float *g, size_t n, const struct adamw *a);
};

size_t attn_work_bytes(enum dtype t, size_t head_dim);   /* scratch of one thread in attend */

/* Rows [r0, r0+n) of the matrix from row-major src ([n][m->k] of type `from`) into the packed form. F16 and
 * F32 become BF16 by rounding, 16-bit become F32 exactly. */
void mat_pack(struct mat *m, size_t r0, size_t n, const void *src, enum dtype from);
/* Columns [k0, k0+n) of the matrix from row-major src, whose rows they are ([n][m->n] of type `from`): packing a transpose.
 * k0 is even for BF16. Where m->k is odd, the column of padding is left as it is (zeroed memory). */
void mat_pack_columns(struct mat *m, size_t k0, size_t n, const void *src, enum dtype from);
/* Panels [p0, p1) of a BF16, F16 or F32 matrix in 8 bits, into a matrix of type DT_I8 and its size: each output's weights are whole numbers up to 127 times a scale. */
void mat_quantize(struct mat *to, const struct mat *from, size_t p0, size_t p1);
/* int16 of a row that `quantize` leaves */
static inline size_t quantized_row(size_t k) { return (k + 1) / 2 * 2 + 2; }
/* Row r as floats: an embedding look-up, also from the packed form of a tied lm_head. */
void mat_row(const struct mat *m, size_t r, float *y);
/* K and V of one KV head (float [head_dim], already rotated) in stored form, as scratch has it: K then V.
 * int16: x * (1/u) rounded to float, then to the nearest whole number (even on ties), u = max|x| / 8191, at least 2^-100; then u of K and of V.
 * u is NaN where the sum of |x| is not finite. The query beside it the same with u = max|x| / 32767 or sum|x| / 261888 ("sums"), whichever is
 * larger: so |sum q K| <= (261888 + head_dim/2) * 8191 < 2^31 up to 512 dimensions. */
void kv_store(void *dst, enum dtype t, const float *k, const float *v, size_t head_dim);
void kv_query(int16_t *q, float *scale, const float *x, float times, size_t head_dim);     /* of x * times */
/* Put a stored K,V into slot (0..63) of a block, and read it back. */
void kv_put(void *block, enum dtype t, size_t head_dim, size_t slot, const void *stored);
void kv_get(void *stored, enum dtype t, size_t head_dim, size_t slot, const void *block);
/* Slots from .. from+n-1 of one block to slot .. slot+n-1 of another one. */
void kv_copy(void *block, size_t slot, const void *src, size_t from, size_t n, enum dtype t, size_t head_dim);
/* k[] and v[] plus the rows in slots from .. to-1 of a block. */
void kv_sum(float *k, float *v, enum dtype t, size_t head_dim, const void *block, size_t from, size_t to);
/* cos and sin of fp32(position) * inv_freq, times `factor`; [n_freq] each. Double arithmetic of our own. */
void rope_angles(float *cos, float *sin, size_t position, const float *inv_freq, size_t n_freq, float factor);
uint16_t f32_to_bf16(float x);
float f16_to_f32(uint16_t x);
static inline float bf16_to_f32(uint16_t x)
{
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* Every twin of this build, plain C first, ends with NULL. */
extern const struct ops *const ops_all[];
/* The twin that LONGHAND_ISA names, else the fastest this CPU has; NULL (and *why) when it names none we have. */
const struct ops *ops_for_cpu(const char **why);
/* Numerics id of this build and this CPU: "cpu-1" on x86 and plain C. */
#define NUMERICS_VERSION 1
