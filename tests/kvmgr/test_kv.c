/* The cache: sizes, the place of rows, commits of paths (the bytes of their nodes), and truncation. */
#include "kvmgr/kv.h"
#include "tests/kv_exchange.h"
#include "tests/reference.h"
#include "tests/test.h"

static const enum dtype types[] = { DT_BF16, DT_F32, DT_I16, DT_I8, DT_I4 };

static void random_bytes(void *p, size_t n, struct rng *rng)
{
    for (size_t i = 0; i < n; i++) ((unsigned char *)p)[i] = (unsigned char)(1 + rng_below(rng, 255));
}
/* The stored row at `pos` of layer l, head h. */
static void get(const struct kv *kv, size_t l, size_t h, size_t pos, void *row)
{
    kv_get(row, kv->type, kv->head_dim, pos % KV_BLOCK, kv_block(kv, l, h, pos));
}
static size_t row_bytes(const struct kv *kv) { return kv_row_bytes(kv->type, kv->head_dim); }
static bool is_zero(const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (((const unsigned char *)p)[i]) return false;
    return true;
}
/* Writes n rows from n_past on, as a pass of plain rows does. */
static void append(struct kv *kv, size_t n, struct rng *rng, unsigned char *truth)
{
    size_t bytes = row_bytes(kv);
    for (size_t i = 0; i < n; i++)
        for (size_t l = 0; l < kv->n_layers; l++)
            for (size_t h = 0; h < kv->n_kv_heads; h++) {
                size_t pos = kv->n_past + i;
                unsigned char *row = truth + ((l * kv->n_kv_heads + h) * kv->n_max + pos) * bytes;
                random_bytes(row, bytes, rng);
                kv_put(kv_block(kv, l, h, pos), kv->type, kv->head_dim, pos % KV_BLOCK, row);
            }
    kv->n_written = MAX(kv->n_written, kv->n_past + n);
    kv_advance(kv, n);
}
static void check_rows(const struct kv *kv, const unsigned char *truth, const char *when)
{
    unsigned char row[2 * 128 * 4];
    size_t bytes = row_bytes(kv);
    for (size_t l = 0; l < kv->n_layers; l++)
        for (size_t h = 0; h < kv->n_kv_heads; h++)
            for (size_t pos = 0; pos < kv->n_past; pos++) {
                get(kv, l, h, pos, row);
                CHECK(!memcmp(row, truth + ((l * kv->n_kv_heads + h) * kv->n_max + pos) * bytes, bytes),
                      "%s: layer %zu head %zu position %zu", when, l, h, pos);
            }
}

static void sizes_are_checked(void)
{
    CHECK(kv_bytes(&(struct kv_size){ DT_BF16, 6, 2, 64, 100000, 0 }) ==
              (size_t)6 * 2 * ((100000 + 63) / 64) * kv_block_bytes(DT_BF16, 64),
          "%zu", kv_bytes(&(struct kv_size){ DT_BF16, 6, 2, 64, 100000, 0 }));
    CHECK(kv_bytes(&(struct kv_size){ DT_F32, 2, 3, 16, 64, 5 }) == 2 * 3 * kv_block_bytes(DT_F32, 16) + 2 *
          5 * 3 * 2 * 16 * 4,
          "%zu", kv_bytes(&(struct kv_size){ DT_F32, 2, 3, 16, 64, 5 }));
    struct err e = { 0 };
    struct kv kv;
    CHECK(kv_open(&kv, NULL, &(struct kv_size){ DT_F32, 1000, 1000, 512, SIZE_MAX / 4096, 0 }, &e) == -1 &&
          e.code && e.msg[0] &&
              !strchr(e.msg, '\n'),
          "%s", e.msg);
    CHECK(kv_bytes(&(struct kv_size){ DT_F32, 1000, 1000, 512, SIZE_MAX / 4096, 0 }) == SIZE_MAX);
    kv_close(&kv);
    kv = (struct kv){ 0 };
    kv_close(&kv);
}
/* Every (layer, head, block) has bytes of its own inside the allocation, which can be written as a whole. */
static void blocks_do_not_overlap(void)
{
    for (int t = 0; t < 5; t++) {
        struct kv kv;
        struct err e;
        CHECK(!kv_open(&kv, NULL, &(struct kv_size){ types[t], 3, 2, 48, 200, 7 }, &e), "%s", e.msg);
        size_t bb = kv_block_bytes(types[t], 48), blocks = 4, i = 0;
        CHECK(kv.n_past == 0 && kv.n_max == 200);
        for (size_t l = 0; l < 3; l++)
            for (size_t h = 0; h < 2; h++)
                for (size_t b = 0; b < blocks; b++, i++) {
                    char *p = kv_block(&kv, l, h, MIN(b * 64, 199));
                    CHECK(p == kv_block(&kv, l, h, MIN(b * 64 + 63, 199)) &&
                          p == kv.base + l * kv.layer_bytes + h * kv.head_bytes + b * kv.block_bytes);
                    CHECK(is_zero(p, bb), "not zero when opened");
                    memset(p, (int)i + 1, bb);
                }
        i = 0;
        for (size_t l = 0; l < 3; l++)
            for (size_t h = 0; h < 2; h++)
                for (size_t b = 0; b < blocks; b++, i++)
                    for (size_t k = 0; k < bb; k++)
                        CHECK(((char *)kv_block(&kv, l, h, b * 64))[k] == (char)(i + 1));
        i = 0;
        size_t node = 2 * kv_row_bytes(types[t], 48);
        for (size_t l = 0; l < 3; l++)
            for (size_t s = 0; s < 7; s++)
                memset(kv_node(&kv, l, s), (int)++i, node);
        i = 0;
        for (size_t l = 0; l < 3; l++)
            for (size_t s = 0; s < 7; s++, i++)
                CHECK(((char *)kv_node(&kv, l, s))[0] == (char)(i + 1) &&
                      ((char *)kv_node(&kv, l, s))[node - 1] == (char)(i + 1));
        CHECK(((char *)kv_block(&kv, 2, 1, 199))[bb - 1] == 24, "node scratch overlaps the cache");
        kv_close(&kv);
        CHECK(!kv.base);
        kv_close(&kv);                                         /* twice is harmless */
    }
}
static void a_path_is_copied_byte_for_byte(void)
{
    struct rng rng = { 71 };
    for (int k = 0; k < 40; k++) {
        struct kv kv;
        struct err e;
        size_t layers = 1 + k % 3, heads = 1 + k % 2, d = k % 4 ? 16 : 128, n_max = 400;
        CHECK(!kv_open(&kv, NULL, &(struct kv_size){ types[k % 3], layers, heads, d, n_max, 160 }, &e), "%s",
              e.msg);
        size_t bytes = row_bytes(&kv);
        unsigned char *truth = must_alloc(layers * heads * n_max * bytes);
        append(&kv, (size_t)(k * 7) % 130, &rng, truth);
        for (int round = 0; round < 3; round++) {
            uint32_t path[160];
            size_t n = k % 5 == 0 ? 0 : k % 5 == 1 ? 80 : rng_below(&rng, 20);
            for (size_t i = 0, at = 0; i < n; i++) path[i] = (uint32_t)at, at += 1 + rng_below(&rng, 2);
            for (size_t l = 0; l < layers; l++)
                for (size_t s = 0; s < 160; s++)
                    random_bytes(kv_node(&kv, l, s), heads * bytes, &rng);
            for (size_t i = 0; i < n; i++)
                for (size_t l = 0; l < layers; l++)
                    for (size_t h = 0; h < heads; h++)
                        memcpy(truth + ((l * heads + h) * n_max + kv.n_past + i) * bytes,
                               (char *)kv_node(&kv, l, path[i]) + h * bytes, bytes);
            size_t before = kv.n_past;
            kv_commit_path(&kv, path, n);
            CHECK(kv.n_past == before + n);
            check_rows(&kv, truth, "after a path");
        }
        free(truth);
        kv_close(&kv);
    }
}
static void truncation_forgets(void)
{
    struct rng rng = { 72 };
    static const size_t lengths[] = { 0, 1, 63, 64, 65, 128, 190, 191 };
    for (int t = 0; t < 5; t++)
        for (size_t i = 0; i < 8; i++) {
            struct kv kv;
            struct err e;
            CHECK(!kv_open(&kv, NULL, &(struct kv_size){ types[t], 2, 2, 32, 200, 0 }, &e), "%s", e.msg);
            unsigned char *truth = must_alloc(2 * 2 * 200 * row_bytes(&kv)), row[2 * 128 * 4];
            append(&kv, 191, &rng, truth);
            kv_truncate(&kv, lengths[i]);
            CHECK(kv.n_past == lengths[i]);
            check_rows(&kv, truth, "what remains");
            for (size_t l = 0; l < 2; l++)
                for (size_t h = 0; h < 2; h++)
                    for (size_t pos = lengths[i]; pos < 200; pos++) {
                        get(&kv, l, h, pos, row);
                        CHECK(is_zero(row, row_bytes(&kv)), "position %zu is not forgotten", pos);
                    }
            append(&kv, 3, &rng, truth);                       /* the cache can grow again */
            check_rows(&kv, truth, "after going on");
            free(truth);
            kv_close(&kv);
        }
}

/* The rows of `kv` from one position on, written anew. */
static void go_on(struct kv *kv, size_t to, struct rng *rng, unsigned char *truth,
                  const unsigned char *before)
{
    memcpy(truth, before, kv->n_layers * kv->n_kv_heads * kv->n_max * row_bytes(kv));
    append(kv, to - kv->n_past, rng, truth);
}
/* Caches b and c begin with rows of a, d with rows of c; they are closed in every order. */
static void shared_blocks_are_freed_once(void)
{
    static const size_t rows[] = { 64, 150, 191, 192, 256 };
    enum { N = 300 };
    struct rng rng = { 73 };
    for (int t = 0; t < 5; t++)
        for (size_t i = 0; i < 24; i++) {
            const size_t n = rows[i % 5], shared = n / KV_BLOCK;
            struct kv_size z = { types[t], 2, 2, 32, N, 3 };
            struct kv_total total = { 0 };
            struct kv kv[4];
            struct err e;
            unsigned char *truth[4];
            for (int k = 0; k < 4; k++)
                truth[k] = must_alloc(2 * 2 * N * kv_row_bytes(types[t], 32));
            CHECK(!kv_open_from(&kv[0], NULL, &z, NULL, 0, &total, &e), "%s", e.msg);
            append(&kv[0], 280, &rng, truth[0]);
            const size_t whole = kv_bytes(&z);
            z.n_shared = shared;
            for (int k = 1; k < 3; k++) {
                CHECK(!kv_open_from(&kv[k], NULL, &z, &kv[0], n, &total, &e), "%s", e.msg);
                CHECK(kv[k].n_past == n && kv_block(&kv[k], 1, 1, 0) == kv_block(&kv[0], 1, 1, 0) &&
                      kv_block(&kv[k], 1, 1, n) != kv_block(&kv[0], 1, 1, n));
                go_on(&kv[k], 290, &rng, truth[k], truth[0]);
            }
            CHECK(kv_bytes(&z) < whole && total.runs == 3);
            z.n_shared = 270 / KV_BLOCK;         /* blocks of a, then of c */
            CHECK(!kv_open_from(&kv[3], NULL, &z, &kv[2], 270, &total, &e), "%s", e.msg);
            go_on(&kv[3], 299, &rng, truth[3], truth[2]);
            size_t order[4] = { 0, 1, 2, 3 };    /* permutation i */
            for (size_t k = 0, left = i; k < 4; left /= 4 - k, k++) {
                const size_t j = k + left % (4 - k), x = order[j];
                order[j] = order[k], order[k] = x;
            }
            for (int k = 0; k < 4; k++) {
                kv_close(&kv[order[k]]);
                for (int j = k + 1; j < 4; j++)
                    check_rows(&kv[order[j]], truth[order[j]], "after another cache was closed");
            }
            CHECK(total.runs == 0 && total.bytes == 0, "%zu runs of %zu bytes are left", total.runs,
                  total.bytes);
            for (int k = 0; k < 4; k++)
                free(truth[k]);
        }
}

/* Layers with 4 heads of 16, 1 of 48 and 2 of 32 dimensions: nodes, blocks, copies and shared blocks. */
static void layers_have_heads_of_their_own(void)
{
    static const struct kv_heads heads[] = { { 4, 16, 0, 0 }, { 1, 48, 4, 64 }, { 2, 32, 5, 112 },
                                             { 0, 0, 7, 176 } };
    for (int t = 0; t < 5; t++) {
        struct kv_size z = { .type = types[t], .n_layers = 3, .n_kv_heads = 4, .head_dim = 48, .n_max = 200,
                             .node_max = 70, .heads = heads };
        struct kv kv, other;
        struct err e;
        uint32_t path[70];
        char *copy = must_alloc(kv_rows_of(types[t], 7, 176));
        CHECK(kv_bytes(&z) == (256 + 70) * kv_rows_of(types[t], 7, 176), "%zu", kv_bytes(&z));
        CHECK(!kv_open(&kv, NULL, &z, &e), "%s", e.msg);
        for (size_t l = 0; l < 3; l++)
            for (size_t s = 0; s < 70; s++)
                memset(kv_node(&kv, l, s), (int)(l * 70 + s + 1),
                       heads[l].n * kv_row_bytes(types[t], heads[l].dim));
        for (uint32_t s = 0; s < 70; s++)
            path[s] = s;
        kv_commit_path(&kv, path, 70);
        z.n_shared = 1;
        CHECK(!kv_open_from(&other, NULL, &z, &kv, 70, NULL, &e), "%s", e.msg);
        CHECK(kv_block(&other, 2, 1, 63) == kv_block(&kv, 2, 1, 0) &&
              kv_block(&other, 1, 0, 64) != kv_block(&kv, 1, 0, 64));
        for (size_t i = 0; i < 7; i++) {
            const size_t l = kv_layer_of(&kv, i), d = heads[l].dim;
            CHECK(l == (i < 4 ? 0 : i < 5 ? 1 : 2));
            for (size_t s = 0; s < 70; s++) {
                kv_get(copy, types[t], d, s % KV_BLOCK, kv_block(&other, l, i - heads[l].first, s));
                for (size_t k = 0; k < kv_row_bytes(types[t], d); k++)
                    CHECK(copy[k] == (char)(l * 70 + s + 1), "head %zu, row %zu", i, s);
            }
        }
        kv_exchange(&kv, 69, 1, copy, false);
        CHECK(copy[0] == 70 && copy[kv_rows_bytes(&kv, 1) - 1] == (char)210);
        kv_truncate(&kv, 69);
        kv_exchange(&kv, 69, 1, copy, false);
        CHECK(is_zero(copy, kv_rows_bytes(&kv, 1)));
        kv_close(&other);
        kv_close(&kv);
        free(copy);
    }
}

int main(void)
{
    RUN(sizes_are_checked);
    RUN(blocks_do_not_overlap);
    RUN(a_path_is_copied_byte_for_byte);
    RUN(truncation_forgets);
    RUN(shared_blocks_are_freed_once);
    RUN(layers_have_heads_of_their_own);
    return test_end();
}
