/* The kernels' arguments and constants, for both compilations and for device_gpu.c, which fills in the
 * arguments.
 *
 * A matrix of n outputs by k inputs is one stream of tiles of 128 outputs x 64 inputs (16 KB), k fastest:
 *     [n/128][k/64][8 of 16 outputs][4 of 16 inputs][32 lanes][8]     bf16, padded with +0
 * The innermost 8 values are those that a lane holds of the `a` of mma_bf16 (cu.h). A tile is copied to
 * shared memory unchanged and from there to registers 16 bytes at a time, without bank conflicts.
 *
 * A block of a cache is K [64][head_dim], then V [64][head_dim], bf16. A node of the scratch is K, then V of
 * [head_dim].
 *
 * `bad` is a word with the smallest place << 32 | row that was not finite; ~0: all values were finite. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    CU_TILE_N = 128, CU_TILE_K = 64, CU_TILE = CU_TILE_N * CU_TILE_K,   /* of a matrix */
    /* Number of pieces of a matrix: two blocks for each of the 132 SMs of an H200. Part of the numerics
     * id. */
    CU_PIECES = 264,
    CU_PIECE_MIN = 4,            /* least number of tiles in a piece; part of the numerics id */
    CU_ROWS_FEW = 16, CU_ROWS_MANY = 64,    /* rows of a block of `product`; no result depends on them */
    CU_STAGES = 4,               /* tiles in flight to shared memory */
    CU_BLOCK = 64,                           /* KV_BLOCK */
    /* rows x query heads of a group in a block of `attend`; no result depends on them */
    CU_QUERIES_ONE = 16, CU_QUERIES_FEW = 64, CU_QUERIES_MANY = 128,
    CU_GROUP_MAX = 16,
    CU_NORM_THREADS = 512, CU_SAMPLE_THREADS = 1024, CU_SAMPLE_THREADS_MIN = 128,
        CU_SAMPLE_SHARED = 2048 * 8 + 128,
    CU_SELECT_THREADS = 512, CU_SELECT_SHARED = 256 * 4 + 32,
    /* shared memory that a block may ask for; sm_86 and sm_89 give 99 KB, sm_90 counts 1 KB of its own in a
     * block */
    CU_SHARED_MAX = (96 << 10) + 16,
    CU_SQUARES = 1 << 14,        /* numbers that a block of `squares` adds up */
};

#ifdef __CUDACC__
#define CU_SHARED static __device__ __forceinline__
#else
#define CU_SHARED static inline
#endif
/* Chunks of keys by absolute position: of 256 keys up to 4,096, of 512 up to 16,384, of 1,024 up to 65,536,
 * then of 2,048. Short texts thus have work for every multiprocessor, and long ones few states to merge. Part
 * of the numerics id. */
CU_SHARED size_t cu_chunk_of(size_t pos)
{
    return pos < 4096    ? pos / 256
           : pos < 16384 ? 8 + pos / 512
           : pos < 65536 ? 24 + pos / 1024
                         : 56 + pos / 2048;
}
CU_SHARED size_t cu_chunk_begin(size_t chunk)
{
    return chunk < 16   ? chunk * 256
           : chunk < 40 ? (chunk - 8) * 512
           : chunk < 88 ? (chunk - 24) * 1024
                        : (chunk - 56) * 2048;
}

/* One sequence of the pass, and a tile of its rows for one block of `attend`. */
struct cu_seq {
    char *base, *scratch, *const *shared;        /* struct device_kv */
    uint64_t head_bytes, layer_bytes, node_layer_bytes;
    float *importance; uint64_t importance_step;
    uint32_t row0, n, n_past, tree, shifted, n_shared;
};
struct cu_tile { uint32_t seq, row0, n, pos_min, pos_max; };

/* Tables of the pass in device memory. Their addresses depend on the numbers of rows, sequences and tiles
 * alone. */
struct cu_rows {
    const struct cu_seq *seq;
    const struct cu_tile *tile;
    /* node_at[r]: start of the path of row r in `node` */
    const uint32_t *seq_of, *pos, *hi, *n_node, *node_at;
    const uint32_t *node, *want;
    const int32_t *token;
    const float *cos, *sin;                                    /* [n][half] */
};

/* from: enum dtype; rows r0 .. of the matrix */
struct cu_pack { uint16_t *w; const void *src; uint32_t from, r0, n, k; };
struct cu_embed { struct cu_rows rows; float *x; const void *w; uint32_t type, packed, k; };
struct cu_rmsnorm { uint16_t *y; const float *x, *w; uint64_t *bad, place; uint32_t dim; float eps; };
struct cu_product {
    float *y; uint64_t ldy;
    const uint16_t *x, *w; const float *bias;
    float *part; uint32_t *ticket; uint64_t *bad, place;
    uint32_t rows, n, k, add, pieces, spare;
};
struct cu_rope {
    struct cu_rows rows;
    uint16_t *q; float *qkv, *q_tap; const float *q_norm, *k_norm;
    float eps, scale;
    uint32_t n, n_heads, n_kv_heads, d, dp, layer;
};
struct cu_attend {
    struct cu_rows rows;
    const uint16_t *q; float *part;          /* part [row - row_first][n_heads][chunks][2 + dp]: m, l, o */
    uint32_t n_heads, n_kv_heads, layer, window, chunks, tile0, row_first, spare;
};
struct cu_merge {
    struct cu_rows rows;
    uint16_t *out; const float *part;
    uint32_t n_heads, dp, window, chunks, row_first, n;
};
struct cu_swiglu { uint16_t *h; const float *gate_up; uint64_t n; uint32_t ffn; };
struct cu_gather { uint32_t *dst; const uint32_t *src, *index; uint32_t words, n; };
struct cu_widen { float *y; const uint16_t *x; uint64_t n; };
/* Value i is a function of (seed, i). */
struct cu_noise { uint16_t *y; uint64_t n, seed; float scale; uint32_t blocks; };
struct cu_narrow { uint16_t *y; const float *x; uint64_t n; };

struct cu_cache {
    char *base, *scratch, *const *shared;        /* struct device_kv */
    uint64_t head_bytes, layer_bytes, node_layer_bytes, n_shared;
};
/* Row from[(layer * n_kv_heads + head) * from_step + i] of src (its scratch node if `nodes`) goes to slot
 * to[i], or to slot to0 + i when `to` is NULL. */
struct cu_kv_copy { struct cu_cache dst, src; const uint32_t *from, *to; uint32_t from_step, to0, n_kv_heads,
                    dp, nodes, spare; };
struct cu_kv_zero { struct cu_cache dst; uint32_t from, n, n_kv_heads, dp; };
/* struct device_selection; keys [n_layers][n_kv_heads][keys_step], keys_step a power of two >= budget -
 * sinks. */
struct cu_kv_select {
    const float *importance; uint64_t importance_step, keys_step, row_step;
    const uint32_t *from;
    uint32_t *row; uint64_t *keys;
    uint32_t n_past, sinks, budget, n_kv_heads;
};
/* list [n][3]: id, window, text */
struct cu_count { uint32_t *counts; const uint32_t *list; uint32_t vocab, n; };

/* Sampling from one row of logits (struct device_pick); offsets into the lists of the call. */
struct cu_edit { uint32_t id, spare; double add; };
struct cu_pick { uint64_t position; uint32_t row, edit, n_edit, dry, n_dry, count, n_count, spare; };
struct cu_candidate { int32_t id; float score; };
enum { CU_STEPS_MAX = 8, CU_RANK_MAX = 32 };
struct cu_sample {
    /* count [][3]: id, window, text */
    const float *logits; const struct cu_pick *pick; const struct cu_edit *edit; const uint32_t *count;
    const uint32_t *counts;                                 /* [2][vocab] or NULL */
    struct cu_candidate *best;                              /* [n][k] */
    double top_p, min_p, eta, presence, frequency, penalty;
    /* work [n][work_step]: candidates around a cut; work_step is a power of two >= vocab */
    uint64_t seed, *work, work_step;
    float *x;                                           /* [n][vocab]: the logits as the chain changes them */
    float temperature; uint32_t greedy, sample, vocab, top_k, min_keep, k, n_order;
    uint8_t order[CU_STEPS_MAX];                            /* enum device_step */
};

/* Training (kernels/cuda/device_train.h). */
struct cu_loss { float top, at, sum; uint32_t above; };                 /* struct xent */
struct cu_norm_back { float *dx; const float *dy, *x, *w; float *scale; float eps, weight; uint32_t dim,
                      add; };
struct cu_gain_back { float *dw; const float *dy, *x, *scale; uint32_t rows,
                      dim; float weight; uint32_t spare; };
struct cu_xent { const float *logits; uint16_t *g; const int32_t *target; struct cu_loss *loss;
                 uint32_t vocab, spare; };
struct cu_squares { const float *g; double *part; uint64_t n; };
struct cu_adamw { float *w, *m, *v, *g; uint16_t *w16; uint64_t n, n_matrix; float beta1, beta2, eps, scale,
                  keep, rate, root, spare; };

/* Every kernel and its arguments. Variants (few and many rows, head_dim) give a row the same bits; they
 * differ in the number of rows that a block holds. */
#define CU_KERNELS(X)                                                                                        \
    X(pack, pack) X(embed, embed) X(rmsnorm, rmsnorm) X(product_few, product) X(product_many, product)       \
    X(rope, rope) X(attend_64_one, attend) X(attend_64_few, attend) X(attend_64_many, attend)                \
    X(attend_128_one, attend) X(attend_128_few, attend) X(attend_128_many, attend) X(merge, merge)           \
    X(swiglu, swiglu) X(gather, gather) X(widen, widen) X(narrow, narrow) X(noise, noise)                    \
    X(kv_copy, kv_copy) X(kv_zero, kv_zero) X(kv_select, kv_select) X(count, count) X(sample, sample)        \
    X(norm_back, norm_back) X(gain_back, gain_back) X(xent, xent) X(squares, squares) X(adamw, adamw)
#define X(name, args) CU_##name,
enum cu_kernel { CU_KERNELS(X) CU_N_KERNELS };
#undef X
