/* The kernels for single rows and for caches, and their index arithmetic beyond 32 bits. */
#include <sys/mman.h>

#include "tests/emulated/emulate.h"
#include "kernels/twins.h"
#include "tests/device_rig.h"

static struct device *dev;

static void open_for(size_t rows_max, size_t n_max, size_t heads, size_t kv_heads, size_t dim)
{
    char why[256] = "";
    if (dev)
        dev->close(dev);
    CHECK(test_device_open(&dev, why, sizeof why) == 0, "%s", why);
    const struct device_limits l = { rows_max, n_max, rows_max, 4096, 4096, { heads, kv_heads, dim,
        dev->head_dim(dev, dim) } };
    CHECK(dev->reserve(dev, &l) == 0, "%s", dev->error);
}

/* Zeroed memory of the device that may exceed the machine's memory: untouched pages take none. */
static char *sparse(size_t bytes)
{
    if (test_on_gpu())
        return dev->alloc(dev, bytes);
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void sparse_free(char *p, size_t bytes)
{
    if (test_on_gpu())
        dev->free(dev, p, bytes);
    else
        munmap(p, bytes);
}

static void embedding_is_the_row_of_the_table(void)
{
    enum { VOCAB = 301, DIM = 100, ROWS = 7 };
    static const enum dtype types[] = { DT_BF16, DT_F16, DT_F32 };
    open_for(ROWS, 64, 4, 2, 64);
    struct device_kv kv = rig_cache(dev, 1, 2, 64, 64, 0);
    struct rig_pass *p = rig_pass(&kv, 0, ROWS, NULL, 32);
    float *x = dev->alloc(dev, ROWS * DIM * sizeof *x);
    for (int i = 0; i < ROWS; i++)
        p->token[i] = (i * 97 + 300) % VOCAB;
    for (size_t t = 0; t < 3; t++) {
        uint32_t *table = malloc(VOCAB * DIM * 4);
        for (size_t i = 0; i < VOCAB * DIM; i++) {
            float f = rig_float();
            uint16_t half = (uint16_t)(rig_random() % 0x7800 | (rig_random() & 0x8000));
            if (types[t] == DT_F32)
                memcpy(table + i, &f, 4);
            else
                ((uint16_t *)(void *)table)[i] = types[t] == DT_BF16 ? f32_to_bf16(f) : half;
        }
        struct mat rows = { types[t], VOCAB, DIM, rig_put(dev, table, VOCAB * DIM * dtype_size(types[t])) };
        struct mat packed = { DT_BF16, VOCAB, DIM, dev->alloc(dev, dev->mat_size(dev, DT_BF16, VOCAB, DIM)) };
        dev->mat_put(dev, &packed, 0, VOCAB, table, types[t]);
        for (int tied = 0; tied < 2; tied++) {
            dev->begin(dev, &p->rows);
            dev->embed(dev, x, tied ? &packed : &rows, tied);
            float *got = rig_get(dev, x, ROWS * DIM * sizeof *got);
            for (size_t i = 0; i < ROWS * DIM; i++) {
                size_t at = (size_t)p->token[i / DIM] * DIM + i % DIM;
                float want;
                memcpy(&want, table + at, 4);
                if (types[t] != DT_F32)
                    want = types[t] == DT_BF16 ? bf16_to_f32(((uint16_t *)(void *)table)[at])
                                               : f16_to_f32(((uint16_t *)(void *)table)[at]);
                if (tied)
                    want = bf16_to_f32(f32_to_bf16(want));
                CHECK(got[i] == want, "type %d, %s: row %zu column %zu: %g, want %g", types[t],
                      tied ? "packed" : "as it lies", i / DIM, i % DIM, got[i], want);
            }
            free(got);
        }
        free(table);
        dev->free(dev, rows.w, 0), dev->free(dev, packed.w, 0);
    }
    rig_pass_free(p);
    rig_cache_free(dev, &kv);
    dev->free(dev, x, 0);
}

static void norm_and_swiglu_are_their_formulas_and_bad_rows_are_noted(void)
{
    enum { ROWS = 5, DIM = 1000 };
    float x[ROWS * DIM], w[DIM];
    struct device_bad bad;
    open_for(ROWS, 64, 4, 2, 64);
    struct device_kv kv = rig_cache(dev, 1, 2, 64, 64, 0);
    struct rig_pass *p = rig_pass(&kv, 0, ROWS, NULL, 32);
    for (int i = 0; i < ROWS * DIM; i++)
        x[i] = 3 * rig_float();
    for (int i = 0; i < DIM; i++)
        w[i] = rig_float();
    float *dx = rig_put(dev, x, sizeof x), *dw = rig_put(dev, w, sizeof w);
    uint16_t *dy = dev->alloc(dev, sizeof x);
    dev->begin(dev, &p->rows);
    dev->rmsnorm(dev, dy, dx, dw, ROWS, DIM, 1e-5f, 3);
    CHECK(dev->end(dev, &bad) == 0 && !bad.any, "%s", dev->error);
    uint16_t *y = rig_get(dev, dy, ROWS * DIM * 2);
    for (int r = 0; r < ROWS; r++) {
        double sum = 0;
        for (int i = 0; i < DIM; i++)
            sum += (double)x[r * DIM + i] * x[r * DIM + i];
        for (int i = 0; i < DIM; i++) {
            double want = x[r * DIM + i] / sqrt(sum / DIM + 1e-5) * w[i];
            CHECK(near(bf16_to_f32(y[r * DIM + i]), want, 1e-6, 0.004), "row %d, %d: %g, want %g", r, i,
                  bf16_to_f32(y[r * DIM + i]), want);
        }
    }
    free(y);
    dev->rmsnorm(dev, dy, dx + 2 * DIM, dw, 1, DIM, 1e-5f, 3);
    y = rig_get(dev, dy, DIM * 2);
    dev->rmsnorm(dev, dy, dx, dw, ROWS, DIM, 1e-5f, 3);
    uint16_t *all = rig_get(dev, dy, ROWS * DIM * 2);
    CHECK(memcmp(all + 2 * DIM, y, DIM * 2) == 0, "a row is not what it is alone");
    free(y), free(all);

    dev->swiglu(dev, dy, dx, 2, DIM);
    y = rig_get(dev, dy, 2 * DIM * 2);
    for (int i = 0; i < 2 * DIM; i++) {
        double g = x[i / DIM * 2 * DIM + i % DIM], u = x[i / DIM * 2 * DIM + DIM + i % DIM],
               want = g / (1 + exp(-g)) * u;
        CHECK(near(bf16_to_f32(y[i]), want, 1e-6, 0.004), "swiglu %d: %g, want %g", i, bf16_to_f32(y[i]),
              want);
    }
    free(y);

    x[4 * DIM + 999] = INFINITY, x[3 * DIM + 1] = NAN;
    dev->upload(dev, dx, x, sizeof x);
    dev->begin(dev, &p->rows);
    dev->rmsnorm(dev, dy, dx, dw, ROWS, DIM, 1e-5f, 9);
    dev->rmsnorm(dev, dy, dx, dw, ROWS, DIM, 1e-5f, 7);
    dev->rmsnorm(dev, dy, dx, dw, ROWS, DIM, 1e-5f, SIZE_MAX);
    CHECK(dev->end(dev, &bad) == 0 && bad.any && bad.row == 3 && bad.place == 7, "%d: row %zu, place %zu",
          bad.any, bad.row, bad.place);
    rig_pass_free(p);
    rig_cache_free(dev, &kv);
    dev->free(dev, dx, 0), dev->free(dev, dw, 0), dev->free(dev, dy, 0);
}

/* RoPE without norms equals the plain C twin bit for bit; K and V lie where the layout says. */
static void rope_is_the_plain_twins_and_stores_what_attention_reads(void)
{
    enum { HEADS = 6, KV = 2, D = 48, DP = 64, ROWS = 9, ALL = HEADS + 2 * KV, PAST = 60 };
    const struct device_heads h = { HEADS, KV, D, DP };
    const int32_t parent[ROWS] = { -1, 0, 0, 1, 2, 2, -1, 6, 3 };
    open_for(ROWS, 128, HEADS, KV, D);
    struct device_kv kv = rig_cache(dev, 3, KV, DP, 128, ROWS);
    float *qkv = calloc(ROWS * ALL * DP, sizeof *qkv), *norm = malloc(D * sizeof *norm);
    for (size_t i = 0; i < ROWS * ALL; i++)
        for (size_t j = 0; j < D; j++)
            qkv[i * DP + j] = rig_float();
    for (size_t j = 0; j < D; j++)
        norm[j] = rig_float() + 2;
    float *dq_tap = dev->alloc(dev, ROWS * HEADS * D * 4), *dnorm = rig_put(dev, norm, D * sizeof *norm);
    uint16_t *dq = dev->alloc(dev, ROWS * HEADS * DP * 2);
    for (int kind = 0; kind < 3; kind++) {       /* a chain; a tree; a chain with norms */
        struct rig_pass *p = rig_pass(&kv, PAST, ROWS, kind == 1 ? parent : NULL, D / 2);
        float *dqkv = rig_put(dev, qkv, ROWS * ALL * DP * sizeof *qkv);
        dev->begin(dev, &p->rows);
        dev->rope(dev, &(struct device_rope){ dq, dqkv, &h, 2, kind == 2 ? dnorm : NULL,
                                              kind == 2 ? dnorm : NULL, 1e-6f,
                                              .q_tap = dq_tap });
        uint16_t *q = rig_get(dev, dq, ROWS * HEADS * DP * 2),
                 *cache = rig_get(dev, kv.base, 3 * kv.layer_bytes);
        uint16_t *scratch = rig_get(dev, kv.scratch, 3 * ROWS * KV * 2 * DP * 2);
        float *tap = rig_get(dev, dq_tap, ROWS * HEADS * D * 4);
        for (size_t r = 0; r < ROWS; r++) {
            float cos[D / 2], sin[D / 2];
            rope_angles(cos, sin, p->angle[r], p->inv_freq, D / 2, 1);
            for (size_t i = 0; i < ALL; i++) {
                float x[DP];
                memcpy(x, qkv + (r * ALL + i) * DP, sizeof x);
                double sum = 0;
                for (size_t j = 0; j < D; j++)
                    sum += (double)x[j] * x[j];
                for (size_t j = 0; kind == 2 && i < HEADS + KV && j < D; j++)
                    x[j] = (float)(x[j] / sqrt(sum / D + 1e-6) * norm[j]);
                if (i < HEADS + KV)
                    ops_generic.rope(x, cos, sin, D);
                const size_t hd = (i - HEADS) % KV, value = i >= HEADS + KV, pos = p->pos[r];
                const uint16_t *stored = kind == 1
                    ? scratch + ((2 * ROWS + r) * KV + hd) * 2 * DP + value * DP
                    : cache + (2 * kv.layer_bytes + hd * kv.head_bytes + pos / 64 * kv.block_bytes) / 2 +
                        value * 64 * DP + pos % 64 * DP;
                const float scale = i < HEADS ? (float)(0x1.71547652b82fep0 / sqrt((double)D)) : 1;
                const uint16_t *got = i < HEADS ? q + (r * HEADS + i) * DP : stored;
                for (size_t j = 0; j < DP; j++) {
                    const bool same = kind == 2 ? near(bf16_to_f32(got[j]), x[j] * scale, 1e-5, 0.005)
                                                : got[j] == f32_to_bf16(x[j] * scale);
                    CHECK(same, "kind %d, row %zu, head %zu, %zu: %g, want %g", kind, r, i, j,
                          bf16_to_f32(got[j]), x[j] * scale);
                    CHECK(kind == 2 || i >= HEADS || j >= D || tap[(r * HEADS + i) * D + j] == x[j], "tap");
                }
            }
        }
        free(q), free(cache), free(scratch), free(tap);
        dev->free(dev, dqkv, 0);
        rig_pass_free(p);
    }
    free(qkv), free(norm);
    rig_cache_free(dev, &kv);
    dev->free(dev, dq, 0), dev->free(dev, dq_tap, 0), dev->free(dev, dnorm, 0);
}

static void rows_are_gathered_widened_and_narrowed(void)
{
    enum { ROWS = 9, DIM = 70 };
    static const uint32_t want[] = { 0, 3, 8 };
    float x[ROWS * DIM];
    open_for(ROWS, 64, 4, 2, 64);
    struct device_kv kv = rig_cache(dev, 1, 2, 64, 64, 0);
    struct rig_pass *p = rig_pass(&kv, 0, ROWS, NULL, 32);
    for (int i = 0; i < ROWS * DIM; i++)
        x[i] = rig_float();
    p->rows.n_want = 3, p->rows.want = want;
    float *dx = rig_put(dev, x, sizeof x), *dy = dev->alloc(dev, sizeof x);
    uint16_t *dh = dev->alloc(dev, sizeof x / 2);
    dev->begin(dev, &p->rows);
    dev->gather(dev, dy, dx, DIM * sizeof *x);
    dev->narrow(dev, dh, dy, 3 * DIM);
    dev->widen(dev, dy, dh, 3 * DIM);
    float *y = rig_get(dev, dy, 3 * DIM * sizeof *y);
    for (int i = 0; i < 3 * DIM; i++)
        CHECK(y[i] == bf16_to_f32(f32_to_bf16(x[want[i / DIM] * DIM + i % DIM])), "%d: %g", i, y[i]);
    free(y);
    rig_pass_free(p);
    rig_cache_free(dev, &kv);
    dev->free(dev, dx, 0), dev->free(dev, dy, 0), dev->free(dev, dh, 0);
}

/* ---- caches ---- */

enum { LAYERS = 2, HEADS = 3, DP = 64, SLOTS = 400 };

static const uint16_t *slot_at(const uint16_t *cache, const struct device_kv *kv, size_t l, size_t h,
                               size_t p, bool value)
{
    return cache + (l * kv->layer_bytes + h * kv->head_bytes + p / 64 * kv->block_bytes) / 2 +
           (value ? 64 * DP : 0) + p % 64 * DP;
}

static void same_slot(const uint16_t *a, const struct device_kv *ka, size_t pa, const uint16_t *b,
                      const struct device_kv *kb, size_t pb, size_t l, size_t h)
{
    for (int v = 0; v < 2; v++)
        CHECK(memcmp(slot_at(a, ka, l, h, pa, v), slot_at(b, kb, l, h, pb, v), DP * 2) == 0,
              "layer %zu head %zu: slot %zu is not row %zu", l, h, pa, pb);
}

static bool before(const float *s, uint32_t a, uint32_t b) { return s[a] > s[b] || (s[a] == s[b] && a > b); }

/* All layers at once, each with its own window and its own kind of scores. */
static void selection_takes_the_best_rows_in_order(void)
{
    static const struct { size_t n_past, sinks, budget, from[LAYERS]; int kind;
    } cases[] = {
        { 390, 4, 100, { 0, 0 }, 0 },   { 390, 4, 5, { 0, 380 }, 0 },     { 390, 1, 380, { 0, 11 }, 1 },
        { 390, 4, 100, { 300, 0 }, 0 }, { 390, 4, 100, { 293, 295 }, 1 }, { 390, 4, 100, { 3, 200 }, 2 },
        { 350, 16, 64, { 0, 286 }, 2 }, { 390, 2, 66, { 0, 326 }, 3 },    { 390, 2, 390, { 0, 0 }, 3 },
    };
    open_for(16, SLOTS, 6, HEADS, DP);
    struct device_kv full = rig_cache(dev, LAYERS, HEADS, DP, SLOTS, 0),
                     part = rig_cache(dev, LAYERS, HEADS, DP, SLOTS, 0);
    uint16_t *host = malloc(LAYERS * full.layer_bytes);
    uint32_t *row = dev->alloc(dev, LAYERS * HEADS * SLOTS * sizeof *row);
    void *work = dev->alloc(dev, dev->select_bytes(dev, LAYERS, HEADS, SLOTS));
    for (size_t i = 0; i < LAYERS * full.layer_bytes / 2; i++)
        host[i] = rig_bf16();
    dev->upload(dev, full.base, host, LAYERS * full.layer_bytes);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        const size_t n_past = cases[c].n_past, sinks = cases[c].sinks, budget = cases[c].budget;
        static float score[LAYERS * HEADS * SLOTS];
        uint32_t from[LAYERS];
        for (size_t l = 0; l < LAYERS; l++)
            from[l] = (uint32_t)cases[c].from[l];
        /* random; many ties; nearly all equal, with zeros of both signs; equal except for the last bits */
        for (size_t i = 0; i < LAYERS * HEADS * SLOTS; i++) {
            const int kind = (cases[c].kind + (i / SLOTS == 1)) % 4;
            score[i] = kind == 0 ? rig_float() : kind == 1 ? (float)(rig_random() % 5) - 2 : kind == 2 ? i % 7
                ? 0.0f : -0.0f : 1 + (float)(rig_random() % 9) * 0x1p-23f;
        }
        float *ds = rig_put(dev, score, sizeof score);
        emulate_set_order((enum emulate_order)(c % 3));
        dev->kv_select(dev, &(struct device_selection){ ds, SLOTS, from, LAYERS, HEADS, n_past, sinks, budget,
            row, SLOTS, work });
        dev->kv_gather(dev, &part, &full, row, SLOTS, budget);
        emulate_set_order(EMULATE_RANDOM);
        uint16_t *got = rig_get(dev, part.base, LAYERS * part.layer_bytes);
        uint32_t *rows = rig_get(dev, row, LAYERS * HEADS * SLOTS * sizeof *row);
        for (size_t l = 0; l < LAYERS; l++)
            for (size_t h = 0; h < HEADS; h++) {
                const float *s = score + (l * HEADS + h) * SLOTS;
                const size_t first = from[l] > sinks ? from[l] : sinks;
                bool taken[SLOTS] = { false };
                for (size_t i = 0, back = first; i < budget; i++) {
                    uint32_t best = i < sinks ? (uint32_t)i : UINT32_MAX;
                    for (uint32_t j = (uint32_t)first; i >= sinks && j < n_past; j++)
                        if (!taken[j] && (best == UINT32_MAX || before(s, j, best)))
                            best = j;
                    if (best == UINT32_MAX)
                        best = (uint32_t)--back;             /* before the window: the nearest first */
                    taken[best] = true;
                    CHECK(rows[(l * HEADS + h) * SLOTS + i] == best,
                          "case %zu, layer %zu, head %zu, slot %zu: row %u, not %u", c, l, h, i,
                          rows[(l * HEADS + h) * SLOTS + i], best);
                    same_slot(got, &part, i, host, &full, best, l, h);
                }
            }
        free(got), free(rows);
        dev->free(dev, ds, 0);
    }
    free(host);
    dev->free(dev, row, 0), dev->free(dev, work, 0);
    rig_cache_free(dev, &full), rig_cache_free(dev, &part);
}

static void rows_are_copied_and_zeroed(void)
{
    static const uint32_t from[] = { 399, 0, 64 }, to[] = { 1, 63, 390 };
    open_for(16, SLOTS, 6, HEADS, DP);
    struct device_kv a = rig_cache(dev, LAYERS, HEADS, DP, SLOTS, 0),
                     b = rig_cache(dev, LAYERS, HEADS, DP, SLOTS, 0);
    uint16_t *host = malloc(LAYERS * a.layer_bytes), zero[DP] = { 0 };
    for (size_t i = 0; i < LAYERS * a.layer_bytes / 2; i++)
        host[i] = rig_bf16() | 1;
    dev->upload(dev, a.base, host, LAYERS * a.layer_bytes);
    dev->kv_copy(dev, &b, &a, from, to, 3);
    dev->kv_zero(dev, &a, 60, 130);
    uint16_t *ga = rig_get(dev, a.base, LAYERS * a.layer_bytes),
             *gb = rig_get(dev, b.base, LAYERS * b.layer_bytes);
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t h = 0; h < HEADS; h++) {
            for (size_t i = 0; i < 3; i++)
                same_slot(gb, &b, to[i], host, &a, from[i], l, h);
            for (size_t p = 0; p < SLOTS; p++)
                for (int v = 0; v < 2; v++) {
                    const bool cleared = p >= 60 && p < 130, copied = p == 1 || p == 63 || p == 390;
                    CHECK(memcmp(slot_at(ga, &a, l, h, p, v), cleared ? zero : slot_at(host, &a, l, h, p, v),
                                 DP * 2) == 0,
                          "slot %zu", p);
                    CHECK(copied || memcmp(slot_at(gb, &b, l, h, p, v), zero, DP * 2) == 0,
                          "slot %zu of the copy", p);
                }
        }
    free(ga), free(gb), free(host);
    rig_cache_free(dev, &a), rig_cache_free(dev, &b);
}

/* ---- beyond 32 bits ---- */

/* A cache of 32 layers and 100,000 positions in Llama-3.1-8B's geometry: 13 GB of addresses, of which few
 * pages are touched. */
static void attention_reads_the_right_rows_at_100000_positions(void)
{
    enum { N = 100000, L = 32, KVH = 8, D = 128, GROUP = 4 };
    const struct device_heads h = { KVH * GROUP, KVH, D, D };
    struct device_kv kv = { .type = DT_BF16, .n_layers = L, .n_kv_heads = KVH, .head_dim = D,
                            .block_bytes = kv_block_bytes(DT_BF16, D) };
    kv.head_bytes = (size_t)(N / 64 + 1) * kv.block_bytes;
    kv.layer_bytes = KVH * kv.head_bytes;
    open_for(1, N + 1, KVH * GROUP, KVH, D);
    kv.base = sparse(L * kv.layer_bytes);
    if (!kv.base)
        SKIP("no 13 GB of addresses");
    struct rig_pass *p = rig_pass(&kv, N, 1, NULL, 64);
    float *qkv = calloc((KVH * GROUP + 2 * KVH) * D, sizeof *qkv);
    for (size_t i = 0; i < (KVH * GROUP + 2 * KVH) * D; i++)
        qkv[i] = rig_float();
    /* All keys are zero, so all weights except two are equal: only the row's own value and the value of row
     * 70,000 show. */
    const size_t head = 7, at = 70000;
    uint16_t *block = calloc(1, kv.block_bytes);
    for (size_t i = 0; i < D; i++) {
        block[64 * D + at % 64 * D + i] = f32_to_bf16(1000.0f + (float)i * 8);
        block[at % 64 * D + i] = f32_to_bf16(0.0f);
    }
    char *blocks = kv.base + 31 * kv.layer_bytes + head * kv.head_bytes;
    dev->upload(dev, blocks + at / 64 * kv.block_bytes, block, kv.block_bytes);
    float *dqkv = rig_put(dev, qkv, (KVH * GROUP + 2 * KVH) * D * sizeof *qkv);
    uint16_t *dq = dev->alloc(dev, KVH * GROUP * D * 2), *out = dev->alloc(dev, KVH * GROUP * D * 2);
    struct device_bad bad;
    dev->begin(dev, &p->rows);
    dev->rope(dev, &(struct device_rope){ dq, dqkv, &h, 31, NULL, NULL, 0 });
    /* the window begins at 69,991, which keeps the test fast */
    dev->attend(dev, out, dq, &h, 31, N - 69990);
    CHECK(dev->end(dev, &bad) == 0, "%s", dev->error);
    uint16_t *q = rig_get(dev, dq, KVH * GROUP * D * 2), *got = rig_get(dev, out, KVH * GROUP * D * 2);
    uint16_t *own = rig_get(dev, blocks + N / 64 * kv.block_bytes, kv.block_bytes);
    for (size_t g = 0; g < GROUP; g++) {
        double s = 0, n = (double)N - 69990;
        for (size_t i = 0; i < D; i++)
            s += (double)bf16_to_f32(q[(head * GROUP + g) * D + i]) * bf16_to_f32(own[N % 64 * D + i]);
        const double w = exp2(s), sum = n - 1 + w;
        for (size_t i = 0; i < D; i++) {
            double want = (bf16_to_f32(block[64 * D + at % 64 * D + i]) +
                           w * bf16_to_f32(own[64 * D + N % 64 * D + i])) /
                          sum;
            CHECK(near(bf16_to_f32(got[(head * GROUP + g) * D + i]), want, 1e-5, 0.01),
                  "query head %zu, %zu: %g, want %g", g, i, bf16_to_f32(got[(head * GROUP + g) * D + i]),
                  want);
        }
    }
    free(q), free(got), free(qkv), free(block), free(own);
    rig_pass_free(p);
    dev->free(dev, dq, 0), dev->free(dev, out, 0), dev->free(dev, dqkv, 0);
    sparse_free(kv.base, L * kv.layer_bytes);
}

/* A matrix of more than 2^31 elements: its last rows are found. */
static void weights_beyond_2_31_elements_are_found_again(void)
{
    enum { N = 150016, K = 16384, LAST = 3 };
    const size_t bytes = (size_t)N * K * 2;
    open_for(LAST, 64, 4, 2, 64);
    char *w = sparse(bytes);
    if (!w)
        SKIP("no 5 GB of addresses");
    CHECK(dev->mat_size(dev, DT_BF16, N, K) == bytes, "size");
    struct mat m = { DT_BF16, N, K, w };
    uint16_t *rows = malloc(LAST * K * 2);
    for (size_t i = 0; i < LAST * K; i++)
        rows[i] = rig_bf16();
    dev->mat_put(dev, &m, N - LAST, LAST, rows, DT_BF16);
    /* the last tile, element by element, by the layout in cu_args.h: [16 outputs][16 inputs] in the order of
     * mma */
    uint16_t *tile = rig_get(dev, w + ((size_t)N / 128 * (K / 64) - 1) * 8192 * 2, 8192 * 2);
    for (size_t r = 0; r < LAST; r++)
        for (size_t k = K - 64; k < K; k++) {
            const size_t out = 128 - LAST + r, in = k % 64, lane = out % 8 * 4 + in % 8 / 2,
                         word = out % 16 / 8 + in % 16 / 8 * 2;
            CHECK(tile[(out / 16 * 4 + in / 16) * 256 + lane * 8 + word * 2 + in % 2] == rows[r * K + k],
                  "row %zu, input %zu", r, k);
        }
    struct device_kv kv = rig_cache(dev, 1, 2, 64, 64, 0);
    struct rig_pass *p = rig_pass(&kv, 0, LAST, NULL, 32);
    float *dx = dev->alloc(dev, LAST * K * sizeof(float));
    for (int i = 0; i < LAST; i++)
        p->token[i] = N - LAST + i;
    dev->begin(dev, &p->rows);
    dev->embed(dev, dx, &m, true);
    float *x = rig_get(dev, dx, LAST * K * sizeof *x);
    for (size_t i = 0; i < LAST * K; i++)
        CHECK(x[i] == bf16_to_f32(rows[i]), "row %zu, %zu", i / K, i % K);
    free(x), free(rows), free(tile);
    rig_pass_free(p);
    rig_cache_free(dev, &kv);
    dev->free(dev, dx, 0);
    sparse_free(w, bytes);
}

/* Mean, deviation and tails are right. Equal indices give equal values for any count; other seeds give other
 * values. */
static void noise_is_normal_and_a_function_of_its_index(void)
{
    enum { N = 70001 };
    double sum = 0, square = 0, far = 0, both = 0;
    open_for(1, 64, 4, 2, 64);
    uint16_t *at = dev->alloc(dev, N * 2);
    dev->noise(dev, at, N, 7, 3);
    uint16_t *a = rig_get(dev, at, N * 2);
    static const uint16_t none[N];
    dev->upload(dev, at, none, N * 2);
    dev->noise(dev, at, N / 2, 7, 3);
    uint16_t *b = rig_get(dev, at, N * 2);
    CHECK(memcmp(a, b, N / 2 * 2) == 0 && memcmp(b + N / 2, none, (N - N / 2) * 2) == 0,
          "the first half again, and nothing after it");
    free(b);
    dev->noise(dev, at, N, 8, 3);
    b = rig_get(dev, at, N * 2);
    for (size_t i = 0; i < N; i++) {
        const double x = bf16_to_f32(a[i]), y = bf16_to_f32(b[i]);
        sum += x, square += x * x, far += fabs(x) > 6, both += x * y;
    }
    CHECK(fabs(sum / N) < 0.05 && fabs(sqrt(square / N) - 3) < 0.05 && fabs(far / N - 0.0455) < 0.005,
          "mean %g, deviation %g, beyond two of them %g", sum / N, sqrt(square / N), far / N);
    CHECK(fabs(both / N) < 0.15, "two seeds: %g", both / N);
    free(a), free(b);
    dev->free(dev, at, 0);
}

int main(void)
{
    char why[256];
    if (test_device_open(&dev, why, sizeof why)) {
        printf("skip test_device_rows (%s)\n", why);
        return 0;
    }
    RUN(embedding_is_the_row_of_the_table);
    RUN(norm_and_swiglu_are_their_formulas_and_bad_rows_are_noted);
    RUN(rope_is_the_plain_twins_and_stores_what_attention_reads);
    RUN(rows_are_gathered_widened_and_narrowed);
    RUN(selection_takes_the_best_rows_in_order);
    RUN(rows_are_copied_and_zeroed);
    RUN(attention_reads_the_right_rows_at_100000_positions);
    RUN(noise_is_normal_and_a_function_of_its_index);
    RUN(weights_beyond_2_31_elements_are_found_again);
    dev->close(dev);
    return test_end();
}
