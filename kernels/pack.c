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
static inline int16_t nearest(float x)
{
    const float r = x + 0x1.8p23f;
    uint32_t bits;
    memcpy(&bits, &r, 4);
    return (int16_t)(uint16_t)bits;
}

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

void kv_store(void *dst, enum dtype t, const float *k, const float *v, size_t head_dim)
{
    if (t == DT_F32) {
        memcpy(dst, k, head_dim * sizeof *k);
        memcpy((float *)dst + head_dim, v, head_dim * sizeof *v);
        return;
    }
    if (t == DT_I16) {
        int16_t *to = dst;
        const float scale[2] = { quantize(to, k, head_dim, 8191, INFINITY), quantize(to + head_dim, v,
            head_dim, 8191, INFINITY) };
        memcpy(to + 2 * head_dim, scale, sizeof scale);
        return;
    }
    uint16_t *to = dst;
    for (size_t i = 0; i < head_dim; i++) {
        to[i] = f32_to_bf16(k[i]);
        to[head_dim + i] = f32_to_bf16(v[i]);
    }
}

/* Copies between a stored row and slot `slot` of a block. A word holds a pair of 16-bit values: of dimensions
 * in K, of keys in V. */
#define KV_MOVE(NAME, TYPE, K_AT, V_AT) \
    static void NAME(TYPE *block, TYPE *row, size_t d, size_t slot, bool put) \
    { \
        for (size_t i = 0; i < d; i++) { \
            TYPE *k = block + (K_AT), *v = block + KV_BLOCK * d + (V_AT); \
            if (put) { *k = row[i]; *v = row[d + i]; } \
            else     { row[i] = *k; row[d + i] = *v; } \
        } \
    }
KV_MOVE(kv_move32, float, i * KV_BLOCK + slot, slot * d + i)

static void kv_move16(uint16_t *block, uint16_t *row, size_t d, size_t slot, bool scaled, bool put)
{
    uint16_t *k = block + slot * 2, *scale = block + KV_BLOCK * d,
             *v = scale + (scaled ? KV_SCALES : 0) * 2 + slot / 2 * d * 2 + slot % 2;
    for (size_t i = 0; i < 2 && scaled; i++)             /* the scales, as floats */
        memcpy(put ? scale + 2 * (i * KV_BLOCK + slot) : row + 2 * (d + i),
               put ? row + 2 * (d + i) : scale + 2 * (i * KV_BLOCK + slot), 4);
    for (size_t i = 0; i < d; i += 2)                    /* a pair of dimensions is a word */
        memcpy(put ? k + i * KV_BLOCK : row + i, put ? row + i : k + i * KV_BLOCK, 4);
    if (put)
        for (size_t i = 0; i < d; i++)
            v[2 * i] = row[d + i];
    else
        for (size_t i = 0; i < d; i++)
            row[d + i] = v[2 * i];
}

void kv_put(void *block, enum dtype t, size_t head_dim, size_t slot, const void *stored)
{
    if (t == DT_F32)
        kv_move32(block, (float *)(uintptr_t)stored, head_dim, slot, true);
    else
        kv_move16(block, (uint16_t *)(uintptr_t)stored, head_dim, slot, t == DT_I16, true);
}

void kv_get(void *stored, enum dtype t, size_t head_dim, size_t slot, const void *block)
{
    if (t == DT_F32)
        kv_move32((float *)(uintptr_t)block, stored, head_dim, slot, false);
    else
        kv_move16((uint16_t *)(uintptr_t)block, stored, head_dim, slot, t == DT_I16, false);
}

static inline void copy_words(void *to, const void *from, size_t n)
{
    if (n == 1)
        memcpy(to, from, 4);
    else
        memcpy(to, from, 4 * n);
}

void kv_copy(void *block, size_t slot, const void *src, size_t from, size_t n, enum dtype t, size_t d)
{
    /* dimensions in a word of K */
    const size_t unit = t == DT_F32 ? 1 : 2, scales = t == DT_I16 ? 2 : 0;
    char *to = block;
    const char *x = src;
    for (size_t i = 0; i < d / unit + scales; i++, to += 4 * KV_BLOCK, x += 4 * KV_BLOCK)
        copy_words(to + 4 * slot, x + 4 * from, n);
    if (t == DT_F32) {
        memcpy(to + 4 * slot * d, x + 4 * from * d, 4 * n * d);
        return;
    }
    for (size_t i = 0, some; i < n; i += some) {             /* a word of V is a pair of rows */
        uint16_t *v = (uint16_t *)(void *)(to + 4 * ((slot + i) / 2 * d)) + (slot + i) % 2;
        const uint16_t *w = (const uint16_t *)(const void *)(x + 4 * ((from + i) / 2 * d)) + (from + i) % 2;
        some = (slot + i) % 2 == 0 && (from + i) % 2 == 0 && i + 1 < n ? 2 : 1;
        if (some == 2)
            memcpy(v, w, 4 * d);
        for (size_t j = 0; j < d && some == 1; j++)
            v[2 * j] = w[2 * j];
    }
}

/* The value of 16 stored bits; unit: scale of int16. */
static inline float from_16(uint32_t x, const bool int16, float unit)
{
    return int16 ? (float)(int16_t)(uint16_t)x * unit : bf16_to_f32((uint16_t)x);
}

/* Reads a block in the order of its bytes. */
static inline __attribute__((always_inline)) void kv_sum16(float *k, float *v, const bool int16, size_t d,
                                                           const uint32_t *block, size_t from, size_t to)
{
    const float *unit = (const float *)(const void *)(block + d / 2 * KV_BLOCK);  /* scales of K, then of V */
    enum { LANES = 16 };
    const size_t whole = from + (to - from) / LANES * LANES;
    for (size_t i = 0; i < d / 2; i++, block += KV_BLOCK) {          /* a word is a pair of dimensions */
        float even[LANES] = { 0 }, odd[LANES] = { 0 };
        for (size_t s = from; s < whole; s += LANES)
            for (size_t j = 0; j < LANES; j++) {
                even[j] += from_16(block[s + j], int16, int16 ? unit[s + j] : 0);
                odd[j] += from_16(block[s + j] >> 16, int16, int16 ? unit[s + j] : 0);
            }
        for (size_t n = LANES / 2; n && whole > from; n /= 2)
            for (size_t j = 0; j < n; j++) {
                even[j] += even[j + n];
                odd[j] += odd[j + n];
            }
        for (size_t s = whole; s < to; s++) {
            even[0] += from_16(block[s], int16, int16 ? unit[s] : 0);
            odd[0] += from_16(block[s] >> 16, int16, int16 ? unit[s] : 0);
        }
        k[2 * i] += even[0];
        k[2 * i + 1] += odd[0];
    }
    block += int16 ? KV_SCALES : 0;
    for (size_t s = from; s < to; s += 2 - s % 2) {                  /* a word is a pair of rows */
        const float *u = unit + KV_BLOCK + s;
        const uint32_t *row = block + s / 2 * d;
        if (s % 2 == 0 && s + 1 < to)
            for (size_t i = 0; i < d; i++)
                v[i] +=
                    from_16(row[i], int16, int16 ? u[0] : 0) + from_16(row[i] >> 16, int16, int16 ? u[1] : 0);
        else
            for (size_t i = 0; i < d; i++)
                v[i] += from_16(row[i] >> 16 * (s % 2), int16, int16 ? u[0] : 0);
    }
}

void kv_sum(float *k, float *v, enum dtype t, size_t head_dim, const void *block, size_t from, size_t to)
{
    const float *x = block;
    if (t == DT_I16)
        kv_sum16(k, v, true, head_dim, block, from, to);
    else if (t == DT_BF16)
        kv_sum16(k, v, false, head_dim, block, from, to);
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

/* sin and cos of r in [-pi/4, pi/4] by their Taylor series; the first term left out is below 1e-18. */
static double sin_small(double r)
{
    double z = r * r, s = 1.0 / 355687428096000;
    s = s * z - 1.0 / 1307674368000;
    s = s * z + 1.0 / 6227020800;
    s = s * z - 1.0 / 39916800;
    s = s * z + 1.0 / 362880;
    s = s * z - 1.0 / 5040;
    s = s * z + 1.0 / 120;
    s = s * z - 1.0 / 6;
    return r + r * (z * s);
}

static double cos_small(double r)
{
    double z = r * r, c = -1.0 / 6402373705728000;
    c = c * z + 1.0 / 20922789888000;
    c = c * z - 1.0 / 87178291200;
    c = c * z + 1.0 / 479001600;
    c = c * z - 1.0 / 3628800;
    c = c * z + 1.0 / 40320;
    c = c * z - 1.0 / 720;
    c = c * z + 1.0 / 24;
    return 1.0 - z / 2 + z * z * c;
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
