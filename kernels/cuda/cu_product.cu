/* y = x w^T. The matrix is one stream of tiles (cu_args.h), cut evenly into pieces. A block reads its piece
 * from the first byte to the last, each tile once for up to 64 rows. Where pieces share outputs, the block
 * that finishes last adds up their parts in the order of the pieces. Which block is last depends on chance;
 * the result does not. The order over k thus depends on n and k alone (R1). This is a stream-K product with a
 * fixed split.
 *
 * Weights are the `a` of mma (16 outputs), rows of x its `b` (8 rows): a block of 4 warps has 128 outputs, a
 * warp 32. */
#include "kernels/cuda/cu.h"
#include "kernels/cuda/cu_args.h"

FN size_t product_from(size_t tiles, unsigned piece, unsigned pieces) { return tiles * piece / pieces; }
/* The piece of tile t. */
FN unsigned product_piece(size_t tiles, size_t t, unsigned pieces)
{
    return (unsigned)(((t + 1) * pieces - 1) / tiles);
}

FN void product_load_w(char *stage, const struct cu_product *a, size_t t)
{
    const char *src = (const char *)a->w + t * CU_TILE * 2;
    UNROLL_ALL
    for (unsigned i = 0; i < 8; i++)
        cp_async16(stage + (i * 128 + tid()) * 16, src + (i * 128 + tid()) * 16, true);
}

/* 64 inputs of the rows: [row][8 pieces of 16 bytes], piece c at c ^ (row % 8), so that ldmatrix uses every
 * bank once. */
FN void product_load_x(char *stage, const struct cu_product *a, const unsigned nr, unsigned row0, size_t k0)
{
    UNROLL_ALL
    for (unsigned i = 0; i < nr / 16; i++) {
        const unsigned at = i * 128 + tid(), r = at / 8, c = at % 8;
        const size_t k = k0 + c * 8;
        const bool row = row0 + r < a->rows;
        char *dst = stage + r * 128 + (c ^ (r & 7)) * 16;
        const uint16_t *src = a->x + (size_t)(row ? row0 + r : 0) * a->k;
        if (a->k % 8 == 0) {
            cp_async16(dst, row && k < a->k ? src + k : src, row && k < a->k);
        } else {                                 /* rows that are not aligned to 16 bytes */
            uint32_t v[4];
            for (unsigned j = 0; j < 4; j++) {
                const uint32_t lo = row && k + 2 * j < a->k ? src[k + 2 * j] : 0,
                               hi = row && k + 2 * j + 1 < a->k ? src[k + 2 * j + 1] : 0;
                v[j] = lo | hi << 16;
            }
            store16(dst, v);
        }
    }
}

FN void product_tile(float acc[2][8][4], const char *w, const char *x, const unsigned nr)
{
    UNROLL_ALL
    for (unsigned kf = 0; kf < 4; kf++) {
        uint32_t m[2][4];
        load16(m[0], w + ((2 * warp()) * 4 + kf) * 512 + lane() * 16);
        load16(m[1], w + ((2 * warp() + 1) * 4 + kf) * 512 + lane() * 16);
        UNROLL_ALL
        for (unsigned np = 0; np < nr / 16; np++) {
            const unsigned which = lane() / 8, r = (2 * np + which / 2) * 8 + lane() % 8,
                           c = 2 * kf + which % 2;
            uint32_t b[4];
            ldmatrix4(b, x + r * 128 + (c ^ (r & 7)) * 16);
            UNROLL_ALL
            for (unsigned i = 0; i < 2; i++) {
                mma_bf16(acc[i][2 * np], m[i], b[0], b[1]);
                mma_bf16(acc[i][2 * np + 1], m[i], b[2], b[3]);
            }
        }
    }
}

FN void product_write(const struct cu_product *a, float acc[2][8][4], const unsigned nr, unsigned row0,
                      size_t n_tile)
{
    const size_t out = n_tile * CU_TILE_N + warp() * 32 + lane() / 4;  /* and outputs 8, 16, 24 further on */
    const unsigned r0 = row0 + lane() % 4 * 2;
    float *y = a->y + r0 * a->ldy + out, bias[4];
    UNROLL_ALL
    for (unsigned e = 0; e < 4; e++)
        bias[e] = a->bias && out + e * 8 < a->n ? a->bias[out + e * 8] : 0.0f;
    UNROLL_ALL
    for (unsigned j = 0; j < nr / 4; j++, y += j % 2 ? a->ldy : 7 * a->ldy) {
        const unsigned r = r0 + j / 2 * 8 + j % 2;
        bool bad = false;
        if (r >= a->rows)
            break;
        UNROLL_ALL
        for (unsigned e = 0; e < 4; e++)
            if (out + e * 8 < a->n) {
                float v = acc[e / 2][j / 2][e % 2 * 2 + j % 2];
                v = a->bias ? v + bias[e] : v;
                v = a->add ? y[e * 8] + v : v;
                bad = bad || !is_finite(v);
                y[e * 8] = v;
            }
        if (bad && a->place != UINT64_MAX)
            atomic_min64(a->bad, a->place << 32 | r);
    }
}

/* The part of a tile of outputs that a piece has summed: [rows][128 outputs]. A piece has up to two: of the
 * tile that it continues, and of the tile that it begins. */
FN float *product_part(const struct cu_product *a, const unsigned nr, unsigned piece, bool begins)
{
    return a->part + (((size_t)block_x() * a->pieces + piece) * 2 + (begins ? 1 : 0)) * nr * CU_TILE_N;
}

/* Adds up the parts of pieces p0 .. p1, of which p0 begins the tile, in this order and writes y; a thread has
 * one output of each row. It loads `ahead` parts of `some` rows at once. */
FN void product_sum(const struct cu_product *a, const unsigned nr, size_t n_tile, unsigned p0, unsigned p1,
                    const unsigned some, const unsigned ahead)
{
    const size_t out = n_tile * CU_TILE_N + tid();
    const unsigned row0 = block_x() * nr, n = a->rows - row0 < nr ? a->rows - row0 : nr;
    const bool is = out < a->n;
    const float bias = is && a->bias ? a->bias[out] : 0.0f;
    for (unsigned r = 0; r < n; r += some) {
        float *y = a->y + (row0 + r) * a->ldy + out, sum[16], old[16];
        UNROLL_ALL
        for (unsigned j = 0; j < some; j++) {
            old[j] = is && a->add && r + j < n ? y[j * a->ldy] : 0.0f;
            sum[j] = 0;
        }
        for (unsigned p = p0; p <= p1; p += ahead) {
            float v[16][16];
            UNROLL_ALL
            for (unsigned i = 0; i < ahead; i++) {
                const float *from = product_part(a, nr, p + i, p + i == p0) + r * CU_TILE_N + tid();
                UNROLL_ALL
                for (unsigned j = 0; j < some; j++)
                    v[i][j] = p + i <= p1 && r + j < n ? load_fresh(from + j * CU_TILE_N) : 0.0f;
            }
            UNROLL_ALL
            for (unsigned i = 0; i < ahead; i++)
                UNROLL_ALL
                for (unsigned j = 0; j < some; j++)
                    if (p + i <= p1)
                        sum[j] = p + i == p0 ? v[i][j] : sum[j] + v[i][j];
        }
        UNROLL_ALL
        for (unsigned j = 0; j < some; j++)
            if (is && r + j < n) {
                const float v = a->bias ? sum[j] + bias : sum[j];
                y[j * a->ldy] = a->add ? old[j] + v : v;
                if (!is_finite(a->add ? old[j] + v : v) && a->place != UINT64_MAX)
                    atomic_min64(a->bad, a->place << 32 | (row0 + r + j));
            }
    }
}

/* Shares the outputs of n_tile that this block has summed from tile ka (in k) on, without the first or last
 * tile of the row of tiles. Writes the part to memory, valid rows only. The block that comes last adds up all
 * parts. */
FN void product_share(const struct cu_product *a, float acc[2][8][4], const unsigned nr, size_t tiles,
                      size_t tiles_k, size_t n_tile, size_t ka, unsigned *came_last)
{
    const size_t first = n_tile * tiles_k, n_tiles = tiles / tiles_k;
    const unsigned p0 = product_piece(tiles, first, a->pieces),
                   p1 = product_piece(tiles, first + tiles_k - 1, a->pieces);
    float *mine = product_part(a, nr, block_y(), !ka);
    UNROLL_ALL
    for (unsigned j = 0; j < nr / 8; j++)
        UNROLL_ALL
        for (unsigned i = 0; i < 2; i++)
            UNROLL_ALL
            for (unsigned e = 0; e < 4; e++) {
                const unsigned r = j * 8 + lane() % 4 * 2 + e % 2;
                if (block_x() * nr + r < a->rows)
                    mine[r * CU_TILE_N + warp() * 32 + i * 16 + e / 2 * 8 + lane() / 4] = acc[i][j][e];
            }
    barrier();
    /* One thread acts for all: the barriers before and after carry its fences to the others. */
    if (tid() == 0) {
        uint32_t *ticket = a->ticket + block_x() * n_tiles + n_tile;
        fence();
        *came_last = atomic_add(ticket, 1) == p1 - p0;
        if (*came_last)
            *ticket = 0;                         /* ready for the next product */
        fence();
    }
    barrier();
    if (!*came_last)
        return;
    if (nr == CU_ROWS_MANY)
        product_sum(a, nr, n_tile, p0, p1, 16, 8);
    else if (a->rows > 1)
        product_sum(a, nr, n_tile, p0, p1, 8, 4);
    else
        product_sum(a, nr, n_tile, p0, p1, 1, 16);
}

FN void product(const struct cu_product *a, const unsigned nr)
{
    const size_t tiles_k = (a->k + CU_TILE_K - 1) / CU_TILE_K,
                 tiles = (a->n + CU_TILE_N - 1) / CU_TILE_N * tiles_k;
    const size_t t0 = product_from(tiles, block_y(), a->pieces),
                 t1 = product_from(tiles, block_y() + 1, a->pieces);
    const unsigned stage_bytes = CU_TILE * 2 + nr * 128;
    char *stages = (char *)shared();
    unsigned *came_last = (unsigned *)(stages + CU_STAGES * stage_bytes);
    float acc[2][8][4];
    size_t ka = t0 % tiles_k;
    /* Weights may be read before the preceding kernel has ended. */
    for (unsigned i = 0; i < CU_STAGES - 1; i++)
        if (t0 + i < t1)
            product_load_w(stages + i * stage_bytes, a, t0 + i);
    depend_wait();
    depend_launch();
    for (unsigned i = 0; i < CU_STAGES - 1; i++) {
        if (t0 + i < t1)
            product_load_x(stages + i * stage_bytes + CU_TILE * 2, a, nr, block_x() * nr,
                           (t0 + i) % tiles_k * CU_TILE_K);
        cp_commit();
    }
    for (unsigned i = 0; i < 2; i++)
        for (unsigned j = 0; j < 8; j++)
            acc[i][j][0] = acc[i][j][1] = acc[i][j][2] = acc[i][j][3] = 0;
    for (size_t t = t0; t < t1; t++) {
        const size_t next = t + CU_STAGES - 1, kt = t % tiles_k;
        cp_wait(CU_STAGES - 2);
        barrier();
        if (next < t1) {
            char *stage = stages + (next - t0) % CU_STAGES * stage_bytes;
            product_load_w(stage, a, next);
            product_load_x(stage + CU_TILE * 2, a, nr, block_x() * nr, next % tiles_k * CU_TILE_K);
        }
        cp_commit();
        const char *stage = stages + (t - t0) % CU_STAGES * stage_bytes;
        product_tile(acc, stage, stage + CU_TILE * 2, nr);
        if (kt + 1 == tiles_k || t + 1 == t1) {
            if (ka == 0 && kt + 1 == tiles_k)
                product_write(a, acc, nr, block_x() * nr, t / tiles_k);
            else
                product_share(a, acc, nr, tiles, tiles_k, t / tiles_k, ka, came_last);
            ka = 0;
            for (unsigned i = 0; i < 2; i++)
                for (unsigned j = 0; j < 8; j++)
                    acc[i][j][0] = acc[i][j][1] = acc[i][j][2] = acc[i][j][3] = 0;
        }
    }
}

KERNEL(product_few, product, 128, 3) { product(&a, CU_ROWS_FEW); }
KERNEL(product_many, product, 128, 2) { product(&a, CU_ROWS_MANY); }
