/* Decoding of quantised weights: every type against gguf-py on random blocks, and factors that are not
 * finite. */
#include "kernels/quant.h"
#include "src/base/base.h"
#include "src/model/gguf.h"
#include "tests/test.h"
#include "tests/quant_type.h"

enum { BLOCKS = 64, BLOCK_BYTES_MAX = 256 };

static uint8_t blocks[BLOCKS * BLOCK_BYTES_MAX];
static float y[BLOCKS * 256];

/* FNV-1a over the floats that gguf-py 0.19.0 decodes from the blocks of make_blocks. Of Q1_0 and Q2_0, which
 * it does not decode, over those of dequantize_row_q1_0 and dequantize_row_q2_0 of llama.cpp. */
static const struct { enum dtype type; uint64_t hash; } expected[] = {
    { DT_Q4_0, 0xc71c51b369f48f76u },
    { DT_Q4_1, 0xc52ed4ed1fa65579u },
    { DT_Q5_0, 0x9b6cd47cf2b2b914u },
    { DT_Q5_1, 0x5297e4a3568433dcu },
    { DT_Q8_0, 0x6e2d1099a7be068au },
    { DT_Q2_K, 0x20f23b65c473860fu },
    { DT_Q3_K, 0x56333ffcc5dfbcebu },
    { DT_Q4_K, 0x02c91fb39f862abbu },
    { DT_Q5_K, 0x725321972eb4cb61u },
    { DT_Q6_K, 0xf1d5fabbfb618bc1u },
    { DT_IQ4_NL, 0xb20febe617b963e7u },
    { DT_IQ4_XS, 0x8c6a91ac7fcacd92u },
    { DT_MXFP4, 0xf02701e3e7cb9777u },
    { DT_TQ1_0, 0x924553eef1312198u },
    { DT_TQ2_0, 0x325d31277e2dd186u },
    { DT_IQ2_XXS, 0x2c3628c77ad5e2d6u },
    { DT_IQ2_XS, 0xf44e1f9fabb38b8eu },
    { DT_IQ2_S, 0xe48f4b9b158c5b8du },
    { DT_IQ3_XXS, 0x6d6d3a0266c09b22u },
    { DT_IQ3_S, 0x58b6836b7deef56bu },
    { DT_IQ1_S, 0xc5b9d526ee7167c8u },
    { DT_IQ1_M, 0x5cf079b0b6c890edu },
    { DT_Q1_0, 0xf7c79275a74dd025u },
    { DT_Q2_0, 0xd874f3a01e5b16e2u },
    { DT_NVFP4, 0xe5bec3ded3c4d89du },
};

/* Random bytes; the highest bit of the exponent of each factor is cleared, so that factors are finite. */
static void make_blocks(const struct quant_type *q)
{
    static const struct { enum dtype type; int at[2]; } factors[] = {
        { DT_Q4_1, { 0, 2 } }, { DT_Q5_1, { 0, 2 } }, { DT_Q2_K, { 80, 82 } }, { DT_Q3_K, { 108, 108 } },
        { DT_Q4_K, { 0, 2 } }, { DT_Q5_K, { 0, 2 } }, { DT_Q6_K, { 208, 208 } },
        { DT_TQ1_0, { 52, 52 } }, { DT_TQ2_0, { 64, 64 } },
        { DT_IQ1_M, { 54, 54 } },
        { DT_MXFP4, { -1, -1 } },            /* the byte itself */
        { DT_NVFP4, { -2, -2 } },            /* none */
    };
    uint64_t s = 1;
    int at[2] = { 0, 0 };
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        if (factors[i].type == q->dtype)
            memcpy(at, factors[i].at, sizeof at);
    for (size_t i = 0; i < BLOCKS * q->bytes; i++) {
        s ^= s << 13;
        s ^= s >> 7;
        s ^= s << 17;
        blocks[i] = (uint8_t)(s * 0x2545f4914f6cdd1du >> 56);
    }
    for (size_t i = 0; i < BLOCKS; i++)
        for (int k = 0; k < 2 && at[k] > -2; k++)
            blocks[i * q->bytes + (size_t)at[k] + 1] &= 0xbf;
}

static void every_type_decodes_as_gguf_py_does(void)
{
    CHECK(sizeof expected / sizeof *expected == DT_END - DT_Q4_0);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const struct quant_type *q = quant_type(expected[i].type);
        const struct gguf_type *g = gguf_types;
        while (g->name && g->dtype != expected[i].type) g++;
        CHECK(g->name && g->block == q->block && g->bytes == q->bytes && strcmp(g->name, q->name) == 0, "%s",
              q->name);
        make_blocks(q);
        CHECK(quant_decode(y, q->dtype, blocks, BLOCKS * q->block), "%s", q->name);
        const uint64_t h = hash64(HASH64_INIT, y, BLOCKS * q->block * sizeof *y);
        CHECK(h == expected[i].hash, "%s: 0x%016llx", q->name, (unsigned long long)h);
    }
    CHECK(!quant_type(DT_BF16) && !quant_type(DT_F32) && !quant_type(DT_I8));
}

static void factors_that_are_not_finite_are_refused(void)
{
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const struct quant_type *q = quant_type(expected[i].type);
        size_t refused = 0;
        /* each byte in turn is the high half of a 16-bit infinity: only factors may be refused */
        const bool mx = q->dtype == DT_MXFP4;        /* of which 253 and more are infinite */
        for (size_t at = mx ? 0 : 1; at < q->bytes; at++) {
            make_blocks(q);
            blocks[3 * q->bytes + at] = mx ? 0xfd : 0xfc;
            refused += !quant_decode(y, q->dtype, blocks, BLOCKS * q->block);
        }
        const bool two = q->dtype == DT_Q4_1 || q->dtype == DT_Q5_1 || q->dtype == DT_Q2_K ||
                         q->dtype == DT_Q4_K || q->dtype == DT_Q5_K;
        /* the factor of IQ1_M has five bits of its exponent in bytes 53 and 55 */
        const bool none = q->dtype == DT_IQ1_M || q->dtype == DT_NVFP4;
        CHECK(refused == (none ? 0 : two ? 2 : 1), "%s: %zu bytes", q->name, refused);
    }
    make_blocks(quant_type(DT_IQ1_M));
    blocks[53] |= 0xc0, blocks[55] |= 0x70;
    CHECK(!quant_decode(y, DT_IQ1_M, blocks, 256));
}

int main(void)
{
    RUN(every_type_decodes_as_gguf_py_does);
    RUN(factors_that_are_not_finite_are_refused);
    return test_end();
}
