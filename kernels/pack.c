/* Code that needs no twins: the layout of matrices and cache blocks, conversions, RoPE angles. Start reading
 * at mat_pack and kv_store. */
#include <assert.h>
#include <math.h>

#include "kernels/quant.h"
#include "kernels/twins.h"

static float load_as_f32(const void *src, enum dtype t, size_t i)
{
    if (t == DT_F32)
        return ((const float *)src)[i];
    if (t == DT_I8)
        return ((const int8_t *)src)[i];
    uint16_t x = ((const uint16_t *)src)[i];
    return t == DT_F16 ? f16_to_f32(x) : bf16_to_f32(x);
}

/* Nearest whole number, even on ties, of |x| < 2^22: the low bits of a sum. */
static inline int16_t nearest(float x) { return (int16_t)(uint16_t)to_bits(x + 0x1.8p23f); }

/* Index of element (row, k) of a packed matrix, in elements. */
static inline size_t mat_at(const struct mat *m, size_t row, size_t k)
{
    size_t panel = row / PANEL * (mat_panel_bytes(m) / dtype_size(m->type)), col = row % PANEL;
    return m->type == DT_BF16 || m->type == DT_I8 ? panel + k / 2 * 2 * PANEL + 2 * col + k % 2
                                                  : panel + k * PANEL + col;
}

/* The 16 rows of a panel of bf16, `pairs` pairs of inputs each, from rows `step` elements apart. A block of
 * 16 pairs is copied first, so that each cache line of a row is read once. */
static void pack_panel(uint16_t *to, const uint16_t *rows, size_t step, size_t pairs)
{
    uint32_t x[PANEL][PANEL], y[PANEL];
    for (size_t j = 0; j < pairs; j += PANEL) {
        const size_t n = MIN_(pairs - j, (size_t)PANEL);
        for (size_t i = 0; i < PANEL; i++)
            memcpy(x[i], rows + i * step + 2 * j, n * sizeof **x);
        for (size_t k = 0; k < n; k++) {
            for (size_t i = 0; i < PANEL; i++)
                y[i] = x[i][k];
            memcpy(to + 2 * PANEL * (j + k), y, sizeof y);
        }
    }
}

void mat_pack(struct mat *m, size_t r0, size_t n, const void *src, enum dtype from)
{
    if (dtype_is_quantised(m->type)) {
        assert(m->type == from);
        quant_pack(m, r0, n, src);
        return;
    }
    for (size_t r = 0; r < n; r++) {
        if (m->type == DT_BF16 && from == DT_BF16 && (r0 + r) % PANEL == 0 && n - r >= PANEL &&
            m->k % 2 == 0) {
            pack_panel((uint16_t *)m->w + mat_at(m, r0 + r, 0), (const uint16_t *)src + r * m->k, m->k,
                       m->k / 2);
            r += PANEL - 1;
            continue;
        }
        const size_t row = r * m->k;
        if (m->type == DT_BF16 && from == DT_BF16) {       /* whole pairs: the fast path */
            const uint16_t *s = (const uint16_t *)src + row;
            uint16_t *to = (uint16_t *)m->w + mat_at(m, r0 + r, 0);
            for (size_t k = 0; k + 2 <= m->k; k += 2)
                memcpy(to + k * PANEL, s + k, 4);
            if (m->k % 2)
                to[(m->k - 1) * PANEL] = s[m->k - 1];
            continue;
        }
        for (size_t k = 0; k < m->k; k++) {
            size_t at = mat_at(m, r0 + r, k);
            if (m->type == DT_F32)
                ((float *)m->w)[at] = load_as_f32(src, from, row + k);
            else if (m->type == from)
                ((uint16_t *)m->w)[at] = ((const uint16_t *)src)[row + k];
            else
                ((uint16_t *)m->w)[at] = f32_to_bf16(load_as_f32(src, from, row + k));
        }
    }
}

void mat_pack_columns(struct mat *m, size_t k0, size_t n, const void *src, enum dtype from)
{
    assert(m->type == DT_F32 || (m->type == DT_BF16 && k0 % 2 == 0));
    for (size_t p = 0; p < mat_panels(m); p++) {
        const size_t cols = MIN_(m->n - p * PANEL, (size_t)PANEL);
        for (size_t k = 0; k < n; k++) {
            const size_t to = mat_at(m, p * PANEL, k0 + k), at = k * m->n + p * PANEL;
            if (m->type == DT_F32)
                for (size_t i = 0; i < cols; i++) ((float *)m->w)[to + i] = load_as_f32(src, from, at + i);
            else if (from == DT_BF16)
                for (size_t i = 0; i < cols; i++)
                    ((uint16_t *)m->w)[to + 2 * i] = ((const uint16_t *)src)[at + i];
            else
                for (size_t i = 0; i < cols; i++)
                    ((uint16_t *)m->w)[to + 2 * i] = f32_to_bf16(load_as_f32(src, from, at + i));
        }
    }
}

/* Inputs 2j and 2j + 1 of a panel, pair by pair. */
static void load_pair(float x[2 * PANEL], const struct mat *m, size_t p, size_t j)
{
    const char *panel = (const char *)m->w + p * mat_panel_bytes(m);
    if (m->type == DT_BF16) {
        for (size_t i = 0; i < 2 * PANEL; i++)
            x[i] = bf16_to_f32(((const uint16_t *)(const void *)panel)[2 * PANEL * j + i]);
        return;
    }
    for (size_t i = 0; i < PANEL; i++) {
        x[2 * i] = load_as_f32(panel, m->type, 2 * j * PANEL + i);
        x[2 * i + 1] = load_as_f32(panel, m->type, (2 * j + 1) * PANEL + i);
    }
}

void mat_quantize(struct mat *to, const struct mat *from, size_t p0, size_t p1)
{
    const size_t pairs = (from->k + 1) / 2;
    assert(to->type == DT_I8 && to->n == from->n && to->k == from->k);
    for (size_t p = p0; p < p1; p++) {
        float x[2 * PANEL], most[2 * PANEL] = { 0 }, *scale = mat_scales(to) + p * PANEL;
        int8_t *w = (int8_t *)to->w + p * mat_panel_bytes(to);
        for (size_t j = 0; j < pairs; j++) {
            load_pair(x, from, p, j);
            for (size_t i = 0; i < 2 * PANEL; i++)
                most[i] = fabsf(x[i]) > most[i] ? fabsf(x[i]) : most[i];
        }
        for (size_t i = 0; i < PANEL; i++) {
            const float m = most[2 * i] > most[2 * i + 1] ? most[2 * i] : most[2 * i + 1];
            scale[i] = m / 127;
            most[2 * i] = most[2 * i + 1] = m > 0x1p-100f ? 127 / m : 0;      /* from here on a factor */
        }
        for (size_t j = 0; j < pairs; j++) {
            load_pair(x, from, p, j);
            for (size_t i = 0; i < 2 * PANEL; i++)
                w[2 * PANEL * j + i] = (int8_t)nearest(x[i] * most[i]);
        }
    }
}

void mat_row(const struct mat *m, size_t r, float *y)
{
    if (dtype_is_quantised(m->type)) {
        quant_row(m, r, y);
        return;
    }
    for (size_t k = 0; k < m->k; k++)
        y[k] = load_as_f32(m->w, m->type, mat_at(m, r, k));
    for (size_t k = 0; m->type == DT_I8 && k < m->k; k++)
        y[k] *= mat_scales(m)[r];
}

/* Quantises a row as kv_store describes: u is the larger of max|x| / top and sum|x| / total. Returns u. */
static float quantize(int16_t *y, const float *x, size_t n, float top, float total)
{
    float most = 0, s[16] = { 0 };
    for (size_t i = 0; i < n; i += 16)
        for (size_t j = 0; j < 16; j++) {
            const float a = fabsf(x[i + j]);
            most = a > most ? a : most;
            s[j] += a;
        }
    for (size_t k = 8; k > 0; k /= 2)
        for (size_t i = 0; i < k; i++)
            s[i] += s[i + k];
    float u = s[0] / total;
    u = most / top > u ? most / top : u;
    u = u < 0x1p-100f ? 0x1p-100f : u;
    u = s[0] < INFINITY ? u : NAN;
    const float inverse = 1.0f / u;
    for (size_t i = 0; i < n; i++)
        y[i] = nearest(x[i] * inverse);
    return u;
}

void kv_query(int16_t *q, float *scale, const float *x, float times, size_t head_dim)
{
    float turned[512];
    assert(head_dim <= 512 && head_dim % 16 == 0);
    for (size_t i = 0; i < head_dim; i++)
        turned[i] = x[i] * times;
    *scale = quantize(q, turned, head_dim, 32767, 261888);
}

/* Of the scales max|x| / 7 * (1 - i / 16) for 4 bits the one of least squared error. */
static float int4_scale(const float *x, size_t n, float u)
{
    float best = u, least = INFINITY;
    for (int i = 0; i < 8; i++) {
        const float at = u * (1 - (float)i / 16), inverse = 1 / at;
        float s[16] = { 0 }, error = 0;
        for (size_t k = 0; k < n; k += 16)
            for (size_t j = 0; j < 16; j++) {
                float y = x[k + j] * inverse;
                y = y > 7 ? 7 : y < -7 ? -7 : y;
                y = x[k + j] - ((y + 0x1.8p23f) - 0x1.8p23f) * at;
                s[j] += y * y;
            }
        for (size_t j = 0; j < 16; j++)
            error += s[j];
        best = error < least ? at : best;
        least = error < least ? error : least;
    }
    return best;
}

/* Writes K or V of a row of whole numbers. Returns its scale. */
static float store_whole(void *dst, enum dtype t, const float *x, size_t n)
{
    int16_t y[512];
    int8_t *to = dst;
    if (t == DT_I16)
        return quantize(dst, x, n, 8191, INFINITY);
    float u = quantize(y, x, n, t == DT_I8 ? 127 : 7, INFINITY);
    for (size_t i = 0; t == DT_I8 && i < n; i++)
        to[i] = (int8_t)y[i];
    if (t == DT_I8)
        return u;
    u = u > 0x1p-100f ? int4_scale(x, n, u) : u;
    const float inverse = 1 / u;
    for (size_t i = 0; i < n; i++) {
        const float z = x[i] * inverse;
        y[i] = nearest(z > 7 ? 7 : z < -7 ? -7 : z);
    }
    for (size_t i = 0; i < n / 2; i++)
        to[i] = (int8_t)((y[i / 8 * 16 + i % 8] & 15) | y[i / 8 * 16 + 8 + i % 8] * 16);
    return u;
}

void kv_store(void *dst, enum dtype t, const float *k, const float *v, size_t head_dim)
{
    const struct kv_form f = kv_form(t);
    char *to = (char *)dst + kv_bytes_of(f.k, head_dim);
    if (t == DT_F32) {
        memcpy(dst, k, head_dim * sizeof *k);
        memcpy(to, v, head_dim * sizeof *v);
    } else if (f.q == DT_I16) {
        const float scale[2] = { store_whole(dst, f.k, k, head_dim), store_whole(to, f.v, v, head_dim) };
        memcpy(to + kv_bytes_of(f.v, head_dim), scale, sizeof scale);
    } else {
        for (size_t i = 0; i < head_dim; i++) {
            ((uint16_t *)dst)[i] = f32_to_bf16(k[i]);
            ((uint16_t *)dst)[head_dim + i] = f32_to_bf16(v[i]);
        }
    }
}

/* Where a block has its parts. A word of K has a pair of dimensions (f32: one), and a block has a word of
 * each key side by side. V has elements of `element` bytes (of 4 bits: pairs), n_v a key; two keys are side
 * by side (f32: keys follow each other). */
struct kv_layout { size_t word, n_words, scales, element, n_v; };
static inline struct kv_layout kv_layout(enum dtype t, size_t d)
{
    const struct kv_form f = kv_form(t);
    const size_t word = f.k == DT_I8 ? 2 : 4;
    return (struct kv_layout){ word, kv_bytes_of(f.k, d) / word, f.q == DT_I16 ? 2 : 0,
                               f.v == DT_F32 ? 4 : f.v == DT_I8 || f.v == DT_I4 ? 1 : 2,
                               f.v == DT_I4 ? d / 2 : d };
}

/* Copies n elements of so many bytes to places `step` bytes apart. */
static inline void spread(char *to, size_t step, const char *row, size_t bytes, size_t n)
{
    for (size_t i = 0; i < n; i++, to += step, row += bytes)
        memcpy(to, row, bytes);
}

void kv_put(void *block, enum dtype t, size_t head_dim, size_t slot, const void *stored)
{
    const struct kv_layout l = kv_layout(t, head_dim);
    const char *row = stored;
    char *k = (char *)block + slot * l.word, *scale = (char *)block + l.n_words * l.word * KV_BLOCK,
         *v = scale + l.scales * KV_BLOCK * sizeof(float);
    if (l.word == 2)
        spread(k, 2 * KV_BLOCK, row, 2, l.n_words);
    else
        spread(k, 4 * KV_BLOCK, row, 4, l.n_words);
    row += l.n_words * l.word;
    if (l.element == 4)
        spread(v + slot * 4 * head_dim, 4, row, 4, head_dim);
    else if (l.element == 2)
        spread(v + 2 * (slot / 2 * head_dim * 2 + slot % 2), 4, row, 2, head_dim);
    else
        spread(v + slot / 2 * l.n_v * 2 + slot % 2, 2, row, 1, l.n_v);
    spread(scale + 4 * slot, 4 * KV_BLOCK, row + l.n_v * l.element, 4, l.scales);
}

/* Copies V of n keys; a word is a pair of keys. */
#define KV_COPY_V(NAME, TYPE) \
    static void NAME(TYPE *to, size_t slot, const TYPE *x, size_t from, size_t n, size_t d) \
    { \
        for (size_t i = 0, some; i < n; i += some) { \
            TYPE *v = to + (slot + i) / 2 * d * 2 + (slot + i) % 2; \
            const TYPE *w = x + (from + i) / 2 * d * 2 + (from + i) % 2; \
            some = (slot + i) % 2 == 0 && (from + i) % 2 == 0 && i + 1 < n ? 2 : 1; \
            if (some == 2) \
                memcpy(v, w, 2 * d * sizeof *v); \
            for (size_t j = 0; j < d && some == 1; j++) \
                v[2 * j] = w[2 * j]; \
        } \
    }
KV_COPY_V(kv_copy_v8, uint8_t)
KV_COPY_V(kv_copy_v16, uint16_t)

void kv_copy(void *block, size_t slot, const void *src, size_t from, size_t n, enum dtype t, size_t d)
{
    const struct kv_layout l = kv_layout(t, d);
    char *to = block;
    const char *x = src;
    for (size_t i = 0; i < l.n_words + l.scales; i++) {
        const size_t w = i < l.n_words ? l.word : 4;
        if (n == 1 && w == 4)
            memcpy(to + 4 * slot, x + 4 * from, 4);
        else
            memcpy(to + w * slot, x + w * from, w * n);
        to += w * KV_BLOCK, x += w * KV_BLOCK;
    }
    if (l.element == 4)
        memcpy(to + 4 * slot * d, x + 4 * from * d, 4 * n * d);
    else if (l.element == 2)
        kv_copy_v16((uint16_t *)(void *)to, slot, (const uint16_t *)(const void *)x, from, n, d);
    else
        kv_copy_v8((uint8_t *)to, slot, (const uint8_t *)x, from, n, l.n_v);
}

/* Half `odd` of the word i of a pair of stored values. */
static inline float half_of(const enum dtype t, const void *words, size_t i, const bool odd)
{
    if (t == DT_I8)
        return (float)((const int8_t *)words)[2 * i + odd];
    const uint32_t x = ((const uint32_t *)words)[i] >> 16 * odd;
    return t == DT_I16 ? (float)(int16_t)(uint16_t)x : bf16_to_f32((uint16_t)x);
}

/* Reads the keys of a block in the order of its bytes; unit: their scales, or NULL. */
static inline __attribute__((always_inline)) void sum_keys(float *k, const enum dtype t, size_t d,
                                                           const char *block, const float *unit, size_t from,
                                                           size_t to)
{
    enum { LANES = 16 };
    const size_t whole = from + (to - from) / LANES * LANES;
    for (size_t i = 0; i < d / 2; i++, block += KV_BLOCK * 2 * dtype_size(t)) {
        float even[LANES] = { 0 }, odd[LANES] = { 0 };
        for (size_t s = from; s < whole; s += LANES)
            for (size_t j = 0; j < LANES; j++) {
                even[j] += half_of(t, block, s + j, false) * (unit ? unit[s + j] : 1);
                odd[j] += half_of(t, block, s + j, true) * (unit ? unit[s + j] : 1);
            }
        for (size_t n = LANES / 2; n && whole > from; n /= 2)
            for (size_t j = 0; j < n; j++) {
                even[j] += even[j + n];
                odd[j] += odd[j + n];
            }
        for (size_t s = whole; s < to; s++) {
            even[0] += half_of(t, block, s, false) * (unit ? unit[s] : 1);
            odd[0] += half_of(t, block, s, true) * (unit ? unit[s] : 1);
        }
        k[2 * i] += even[0];
        k[2 * i + 1] += odd[0];
    }
}

/* Element i of V of key s. */
static inline float value_at(const enum dtype t, const char *values, size_t d, size_t s, size_t i)
{
    if (t != DT_I4)
        return half_of(t, values + s / 2 * d * 2 * dtype_size(t), i, s % 2);
    const int x = ((const int8_t *)values)[(s / 2 * (d / 2) + i / 16 * 8 + i % 8) * 2 + s % 2], low = x & 15;
    return (float)(i % 16 < 8 ? low - (low & 8) * 2 : (x - low) / 16);
}

static inline __attribute__((always_inline)) void sum_values(float *v, const enum dtype t, size_t d,
                                                             const char *values, const float *unit,
                                                             size_t from, size_t to)
{
    for (size_t s = from; s < to; s += 2 - s % 2)                    /* a word is a pair of rows */
        if (s % 2 == 0 && s + 1 < to)
            for (size_t i = 0; i < d; i++)
                v[i] += value_at(t, values, d, s, i) * (unit ? unit[s] : 1) +
                        value_at(t, values, d, s + 1, i) * (unit ? unit[s + 1] : 1);
        else
            for (size_t i = 0; i < d; i++)
                v[i] += value_at(t, values, d, s, i) * (unit ? unit[s] : 1);
}

void kv_sum(float *k, float *v, enum dtype t, size_t head_dim, const void *block, size_t from, size_t to)
{
    const struct kv_form f = kv_form(t);
    const float *x = block;
    const char *keys = block, *values = keys + KV_BLOCK * kv_bytes_of(f.k, head_dim);
    const float *unit = f.q == DT_I16 ? (const float *)(const void *)values : NULL;
    values += unit ? KV_SCALES * sizeof *unit : 0;
    if (f.k == DT_I8)        sum_keys(k, DT_I8, head_dim, keys, unit, from, to);
    else if (f.k == DT_I16)  sum_keys(k, DT_I16, head_dim, keys, unit, from, to);
    else if (f.k == DT_BF16) sum_keys(k, DT_BF16, head_dim, keys, NULL, from, to);
    unit = unit ? unit + KV_BLOCK : NULL;
    if (f.v == DT_I4)        sum_values(v, DT_I4, head_dim, values, unit, from, to);
    else if (f.v == DT_I8)   sum_values(v, DT_I8, head_dim, values, unit, from, to);
    else if (f.v == DT_I16)  sum_values(v, DT_I16, head_dim, values, unit, from, to);
    else if (f.v == DT_BF16) sum_values(v, DT_BF16, head_dim, values, NULL, from, to);
    for (size_t i = 0; t == DT_F32 && i < head_dim; i++)
        for (size_t s = from; s < to; s++)
            k[i] += x[i * KV_BLOCK + s];
    for (size_t s = from; t == DT_F32 && s < to; s++)
        for (size_t i = 0; i < head_dim; i++)
            v[i] += x[(KV_BLOCK + s) * head_dim + i];
}

size_t attn_work_bytes(enum dtype t, size_t head_dim)
{
    /* struct attn_work with the largest tile of any twin, a private block, and 32 queries as floats; a
     * multiple of a cache line */
    return (TILE_ROWS_MAX * (3 * KV_BLOCK + 2 + sizeof(size_t)) * sizeof(float) +
            kv_block_bytes(t, head_dim) + 32 * head_dim * sizeof(float) + 127) /
           64 * 64;
}

/* The Taylor series of sin and cos in [-pi/4, pi/4], after their first terms, in powers of z = r^2; the first
 * term left out is below 1e-18. */
static double series(const double c[8], double z)
{
    double s = c[0];
    for (int i = 1; i < 8; i++)
        s = s * z + c[i];
    return s;
}

static double sin_small(double r)
{
    static const double c[8] = { 1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800,
                                 -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6 };
    return r + r * (r * r * series(c, r * r));
}

static double cos_small(double r)
{
    static const double c[8] = { -1.0 / 6402373705728000, 1.0 / 20922789888000, -1.0 / 87178291200,
                                 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24 };
    return 1.0 - r * r / 2 + r * r * (r * r) * series(c, r * r);
}

void rope_angles(float *cos, float *sin, size_t position, const float *inv_freq, size_t n_freq, float factor)
{
    /* pi/2 in two parts: k times the first part, which has 33 bits, is exact for k < 2^20 */
    const double pio2_hi = 0x1.921fb544p0, pio2_lo = 0x1.0b4611a626331p-34;
    for (size_t i = 0; i < n_freq; i++) {
        float angle = (float)position * inv_freq[i];
        double x = angle, k = floor(x * 0x1.45f306dc9c883p-1 + 0.5);
        double r = (x - k * pio2_hi) - k * pio2_lo, s = sin_small(r), c = cos_small(r);
        unsigned quarter = (unsigned)((int64_t)k & 3);
        double sx = quarter & 1 ? c : s, cx = quarter & 1 ? s : c;
        sin[i] = (float)(quarter & 2 ? -sx : sx) * factor;
        cos[i] = (float)((quarter + 1) & 2 ? -cx : cx) * factor;
    }
}
