/* Encoding of weights: blocks of 32 with one 16-bit scale. Start at encode_row and tensors_encode. */
#include "src/model/encode.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 32 };

const char *const weights_names[4] = { "as-is", "q8_0", "q4_0", "bf16" };

static const struct gguf_type *type_of(enum dtype dtype)
{
    const struct gguf_type *t = gguf_types;
    while (t->dtype != dtype)
        t++;
    return t;
}

uint16_t f32_to_f16(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    const uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    u &= 0x7fffffff;
    if (u >= 0x47800000)                         /* 65536 and more, infinity, NaN */
        return sign | (u > 0x7f800000 ? 0x7e00 : 0x7c00);
    if (u < 0x38800000) {                        /* subnormal: a multiple of 2^-24 */
        float y;
        memcpy(&y, &u, 4);
        return (uint16_t)(sign | (uint16_t)lrintf(y * 0x1p24f));
    }
    return (uint16_t)(sign | ((u + 0xfff + (u >> 13 & 1)) - 0x38000000) >> 13);
}

/* Stores the scale of a block. False: it is not finite in 16 bits. */
static bool put_scale(uint8_t *to, float d)
{
    const uint16_t h = f32_to_f16(d);
    memcpy(to, &h, 2);
    return (h & 0x7c00) != 0x7c00;
}

/* q = x / d, rounded half away from 0, d = the largest magnitude / 127. */
static bool encode_q8_0(uint8_t *to, const float *x)
{
    float most = 0;
    for (size_t i = 0; i < BLOCK; i++)
        most = fmaxf(most, fabsf(x[i]));
    const float d = most / 127, inverse = d != 0 ? 1 / d : 0;
    for (size_t i = 0; i < BLOCK; i++)
        to[2 + i] = (uint8_t)(int8_t)roundf(x[i] * inverse);
    return put_scale(to, d);
}

/* q = x / d + 8.5, cut, d = the value of the largest magnitude / -8. Element i and i + 16 share a byte. */
static bool encode_q4_0(uint8_t *to, const float *x)
{
    float most = 0, max = 0;
    for (size_t i = 0; i < BLOCK; i++)
        if (fabsf(x[i]) > most) {
            most = fabsf(x[i]);
            max = x[i];
        }
    const float d = max / -8, inverse = d != 0 ? 1 / d : 0;
    for (size_t i = 0; i < BLOCK / 2; i++) {
        const int low = (int)(x[i] * inverse + 8.5f), high = (int)(x[i + BLOCK / 2] * inverse + 8.5f);
        to[2 + i] = (uint8_t)(MIN(low, 15) | MIN(high, 15) << 4);
    }
    return put_scale(to, d);
}

bool encode_row(void *to, const struct gguf_type *type, const void *src, enum dtype from, size_t n)
{
    float x[BLOCK];
    uint8_t *p = to;
    assert(n % type->block == 0);
    for (size_t i = 0; i < n; i += BLOCK, p += BLOCK / type->block * type->bytes) {
        const size_t some = MIN((size_t)BLOCK, n - i);
        for (size_t k = 0; k < some; k++) {
            x[k] = tensor_value(src, from, i + k);
            if (!isfinite(x[k]))
                return false;
        }
        if (type->dtype == DT_F32)
            memcpy(p, x, some * sizeof *x);
        for (size_t k = 0; type->dtype == DT_BF16 && k < some; k++)
            ((uint16_t *)(void *)p)[k] = f32_to_bf16(x[k]);
        if ((type->dtype == DT_Q8_0 && !encode_q8_0(p, x)) || (type->dtype == DT_Q4_0 && !encode_q4_0(p, x)))
            return false;
    }
    return true;
}

/* Whether the products of a matrix are those of floats: routers, gates of shared experts, convolutions. */
static bool stays_float(const char *name)
{
    return name_ends_in(name, ".mlp.gate.weight") || name_ends_in(name, ".mlp.shared_expert_gate.weight") ||
           name_ends_in(name, ".conv1d.weight");
}

const struct gguf_type *encode_type(enum weights w, const char *name, bool tied, size_t n_dims, size_t cols)
{
    const bool logits = strcmp(name, tied ? "model.embed_tokens.weight" : "lm_head.weight") == 0 ||
                        strcmp(name, PER_LAYER_TABLE) == 0;      /* which is not in memory */
    if (n_dims < 2 || stays_float(name))
        return type_of(DT_F32);
    if (w == WEIGHTS_BF16 || cols % BLOCK)
        return type_of(DT_BF16);
    return type_of(w == WEIGHTS_Q8_0 || logits ? DT_Q8_0 : DT_Q4_0);
}

int tensors_encode(struct tensors *ts, enum weights w, bool tied, struct err *e)
{
    ts->data_bytes = 0;
    for (size_t i = 0; i < ts->n; i++) {
        struct tensor *t = &ts->t[i];
        if (*t->dtype_name == 'I')           /* numbers of tokens, no weights */
            continue;
        if (!tensor_is_float(t->dtype))
            return err_set(e, ERR_INPUT, "%s: tensor \"%s\": dtype %s; encoded can be BF16, F16 and F32",
                           ts->path[t->shard], t->stored_name, t->dtype_name);
        const size_t cols = t->n_dims ? t->dim[t->n_dims - 1] : 1;
        const struct gguf_type *type = encode_type(w, t->name, tied, t->n_dims, cols);
        t->stored_dtype = t->dtype;
        t->encoded = type;
        t->cols = cols;
        t->dtype = type->dtype;
        t->dtype_name = type->name;
        t->bytes = t->n_elements / type->block * type->bytes;
        ts->data_bytes += t->bytes;
    }
    return 0;
}
