/* The CUDA kernels, compiled as C for the emulated GPU: against references in double, and against themselves
 * (R1). */
#include "tests/emulated/emulate.h"
#include "kernels/cuda/cu_args.h"
#include "tests/device_rig.h"

static struct device *dev;

static void open_for(size_t rows_max, size_t n_max, size_t heads, size_t kv_heads, size_t dim)
{
    char why[256] = "";
    if (dev)
        dev->close(dev);
    dev = NULL;
    CHECK(test_device_open(&dev, why, sizeof why) == 0, "%s", why);
    const struct device_limits l = { rows_max, n_max, rows_max, 4096, 4096, { heads, kv_heads, dim,
        dev->head_dim(dev, dim) } };
    CHECK(dev->reserve(dev, &l) == 0, "%s", dev->error);
}

/* ---- products ---- */

static void product_case(size_t n, size_t k, const size_t *rows, size_t n_rows, bool biased)
{
    uint16_t *w = malloc(n * k * 2), *x = malloc(128 * k * 2);
    float *bias = malloc(n * sizeof *bias), *before = malloc(128 * n * sizeof *before);
    float *first = NULL;
    for (size_t i = 0; i < n * k; i++)
        w[i] = rig_bf16();
    for (size_t i = 0; i < 128 * k; i++)
        x[i] = rig_bf16();
    for (size_t i = 0; i < n; i++)
        bias[i] = rig_float();
    for (size_t i = 0; i < 128 * n; i++)
        before[i] = rig_float();
    struct mat m = { dev->mat_type(dev, DT_BF16, DT_BF16), n, k, dev->alloc(dev, dev->mat_size(dev, DT_BF16,
        n, k)) };
    dev->mat_put(dev, &m, 0, n / 3, w, DT_BF16);
    dev->mat_put(dev, &m, n / 3, n - n / 3, w + n / 3 * k, DT_BF16);
    void *dx = rig_put(dev, x, 128 * k * 2);
    float *db = rig_put(dev, bias, n * sizeof *bias);
    for (size_t i = 0; i < n_rows; i++) {
        float *dy = rig_put(dev, before, 128 * n * sizeof *before);
        /* another block is the last to add up shared outputs */
        emulate_set_order(EMULATE_DESCENDING);
        dev->product(dev, &(struct device_product){ dy, n, dx, rows[i], &m, biased ? db : NULL, biased,
                                                    SIZE_MAX });
        emulate_set_order(EMULATE_RANDOM);
        float *again = rig_get(dev, dy, rows[i] * n * sizeof *again);
        dev->upload(dev, dy, before, 128 * n * sizeof *before);
        dev->product(dev, &(struct device_product){ dy, n, dx, rows[i], &m, biased ? db : NULL, biased,
                                                    SIZE_MAX });
        float *y = rig_get(dev, dy, rows[i] * n * sizeof *y);
        for (size_t r = 0; i == 0 && r < rows[0]; r++)
            for (size_t c = 0; c < n; c++) {
                double want = 0, size = 0;
                for (size_t j = 0; j < k; j++) {
                    double t = (double)bf16_to_f32(x[r * k + j]) * bf16_to_f32(w[c * k + j]);
                    want += t;
                    size += fabs(t);
                }
                want += biased ? (double)before[r * n + c] + bias[c] : 0;
                CHECK(near(y[r * n + c], want, 1e-6 * (size + 2), 0),
                      "%zux%zu row %zu column %zu: %g, want %g", n, k, r, c, y[r * n + c], want);
                if (test_failed_)
                    return;
            }
        CHECK(!first || memcmp(first, y, (rows[i] < rows[0] ? rows[i] : rows[0]) * n * sizeof *y) == 0,
              "%zu rows of %zux%zu", rows[i], n, k);
        CHECK(memcmp(again, y, rows[i] * n * sizeof *y) == 0,
              "%zu rows of %zux%zu: blocks in another order give another result", rows[i], n, k);
        free(again);
        if (first)
            free(y);
        else
            first = y;
        dev->free(dev, dy, 0);
    }
    free(first), free(w), free(x), free(bias), free(before);
    dev->free(dev, m.w, 0), dev->free(dev, dx, 0), dev->free(dev, db, 0);
}

static void product_is_the_sum_and_a_row_is_a_row(void)
{
    static const size_t rows[] = { 70, 1, 3, 16, 17, 64, 65, 128 };
    open_for(128, 64, 8, 2, 64);
    product_case(200, 100, rows, 8, false);      /* no size is a multiple of a tile */
    product_case(129, 704, rows, 8, true);       /* pieces share a tile of outputs */
    product_case(700, 64, rows + 2, 3, true);
    product_case(16, 1504, rows + 1, 4, false);  /* one tile of outputs, several pieces */
}

static void pieces_cover_every_tile_once(void)
{
    for (size_t tiles = 1; tiles < 3000; tiles += 1 + tiles / 7)
        for (unsigned pieces = 1; pieces <= 264 && pieces <= tiles; pieces += 1 + pieces / 5)
            for (unsigned p = 0; p < pieces; p++)
                for (size_t t = tiles * p / pieces; t < tiles * (p + 1) / pieces; t++)
                    CHECK(((t + 1) * pieces - 1) / tiles == p, "tile %zu of %zu, piece %u of %u", t, tiles, p,
                          pieces);
}

static void chunks_cover_every_key_once(void)
{
    size_t next = 0;
    for (size_t p = 0; p < 300000; p++) {
        const size_t c = cu_chunk_of(p), begin = cu_chunk_begin(c), end = cu_chunk_begin(c + 1);
        CHECK(p >= begin && p < end && begin % CU_BLOCK == 0 && (p > begin || c == next),
              "position %zu, chunk %zu from %zu to %zu", p, c, begin, end);
        next = c + 1;
    }
}

/* ---- attention ---- */

struct geometry { size_t heads, kv_heads, dim; };
static struct geometry geo;
static struct device_kv cache;
static uint16_t *kv_host;            /* as in the cache: [2 layers][kv_heads][blocks] */

static void fill_cache(size_t n_max, size_t node_max)
{
    cache = rig_cache(dev, 2, geo.kv_heads, dev->head_dim(dev, geo.dim), n_max, node_max);
    const size_t n = 2 * cache.layer_bytes / 2;
    kv_host = malloc(n * 2);
    for (size_t i = 0; i < n; i++)
        kv_host[i] = rig_bf16();
    dev->upload(dev, cache.base, kv_host, n * 2);
}

static void free_cache(void)
{
    rig_cache_free(dev, &cache);
    free(kv_host);
}

static float key(size_t layer, size_t h, size_t p, size_t i, bool value)
{
    const size_t dp = cache.head_dim;
    return bf16_to_f32(
        kv_host[(layer * cache.layer_bytes + h * cache.head_bytes + p / 64 * cache.block_bytes) / 2 +
                (value ? 64 * dp : 0) + p % 64 * dp + i]);
}

/* Returns act [n][heads][dp] of a pass with these queries. */
static uint16_t *attend(struct rig_pass *p, const uint16_t *q, size_t layer, size_t window)
{
    const size_t size = p->rows.n * geo.heads * cache.head_dim * 2;
    const struct device_heads h = { geo.heads, geo.kv_heads, geo.dim, cache.head_dim };
    struct device_bad bad;
    void *dq = rig_put(dev, q, size), *out = dev->alloc(dev, size);
    dev->begin(dev, &p->rows);
    dev->attend(dev, out, dq, &h, layer, window);
    CHECK(dev->end(dev, &bad) == 0 && !bad.any, "%s", dev->error);
    uint16_t *got = rig_get(dev, out, size);
    dev->free(dev, dq, 0), dev->free(dev, out, 0);
    return got;
}

static uint16_t *random_queries(size_t n)
{
    const size_t size = n * geo.heads * cache.head_dim;
    uint16_t *q = malloc(size * 2);
    for (size_t i = 0; i < size; i++)
        q[i] = rig_bf16();
    return q;
}

/* Softmax in double with powers of two. Probabilities are rounded to bf16 before the sum with V, so the
 * tolerance is 2^-8 of the summed values. */
static void check_row(const uint16_t *got, const uint16_t *q, size_t layer, size_t h, size_t lo, size_t end,
                      const char *what)
{
    const size_t group = geo.heads / geo.kv_heads, dp = cache.head_dim;
    double top = -INFINITY, sum = 0, *s = malloc((end + 1) * sizeof *s), *out = calloc(dp, sizeof *out);
    for (size_t p = lo; p < end; p++) {
        s[p] = 0;
        for (size_t i = 0; i < dp; i++)
            s[p] += (double)bf16_to_f32(q[i]) * key(layer, h / group, p, i, false);
        top = fmax(top, s[p]);
    }
    for (size_t p = lo; p < end; p++) {
        s[p] = exp2(s[p] - top);
        sum += s[p];
        for (size_t i = 0; i < dp; i++)
            out[i] += s[p] * key(layer, h / group, p, i, true);
    }
    for (size_t i = 0; i < dp; i++)
        CHECK(near(bf16_to_f32(got[i]), out[i] / sum, 8e-3, 8e-3), "%s, head %zu, dimension %zu: %g, want %g",
              what, h, i, bf16_to_f32(got[i]), out[i] / sum);
    free(s), free(out);
}

static void attention_case(size_t heads, size_t kv_heads, size_t dim, size_t n_past, size_t n, size_t window)
{
    geo = (struct geometry){ heads, kv_heads, dim };
    open_for(256, n_past + n, heads, kv_heads, dim);
    fill_cache(n_past + n, 0);
    const size_t row = geo.heads * cache.head_dim;
    struct rig_pass *p = rig_pass(&cache, n_past, n, NULL, 32);
    uint16_t *q = random_queries(n), *got = attend(p, q, 1, window);
    for (size_t r = 0; r < n; r += n > 8 ? n / 5 : 1) {
        char what[128];
        const size_t end = n_past + r + 1;
        snprintf(what, sizeof what, "%zu/%zu x %zu, row %zu of %zu after %zu, window %zu", heads, kv_heads,
                 dim, r, n, n_past, window);
        for (size_t h = 0; h < heads; h += heads - 1)
            check_row(got + r * row + h * cache.head_dim, q + r * row + h * cache.head_dim, 1, h,
                      window && end > window ? end - window : 0, end, what);
        struct rig_pass *one = rig_pass(&cache, n_past + r, 1, NULL, 32);
        uint16_t *alone = attend(one, q + r * row, 1, window);
        CHECK(memcmp(alone, got + r * row, row * 2) == 0, "%s: not what it is alone", what);
        rig_pass_free(one);
        free(alone);
    }
    emulate_set_order(EMULATE_DESCENDING);
    uint16_t *again = attend(p, q, 1, window);
    emulate_set_order(EMULATE_RANDOM);
    CHECK(memcmp(again, got, n * row * 2) == 0,
          "threads in another order give another result: a barrier is missing");
    rig_pass_free(p);
    free(q), free(got), free(again);
    free_cache();
}

static void attention_is_softmax_and_a_row_is_a_row(void)
{
    attention_case(8, 2, 64, 0, 1, 0);
    attention_case(8, 2, 64, 60, 9, 0);
    attention_case(8, 2, 128, 130, 20, 0);       /* more than 64 queries */
    /* a group that divides no fragment; padded heads; several tiles and slabs */
    attention_case(6, 2, 48, 63, 100, 0);
    attention_case(4, 4, 64, 2040, 17, 0);       /* across a chunk */
    attention_case(8, 1, 64, 4090, 8, 0);        /* chunks of 256 keys, then of 512 */
    attention_case(8, 2, 64, 4300, 3, 300);
    attention_case(8, 2, 64, 2200, 5, 100);      /* windowed, over and after a chunk's border */
    attention_case(8, 2, 64, 2049, 90, 70);
}

/* Nodes of a tree give the results of their paths committed to the cache. */
static void tree_case(size_t heads, size_t kv_heads, size_t dim, size_t n_past, const int32_t *parent,
                      size_t n, size_t step, size_t window)
{
    geo = (struct geometry){ heads, kv_heads, dim };
    open_for(RIG_ROWS, n_past + n + 1, heads, kv_heads, dim);
    fill_cache(n_past + n, n);
    const size_t row = geo.heads * cache.head_dim, dp = cache.head_dim, node = kv_heads * 2 * dp;
    uint16_t *scratch = malloc(2 * n * node * 2);
    for (size_t i = 0; i < 2 * n * node; i++)
        scratch[i] = rig_bf16();
    dev->upload(dev, cache.scratch, scratch, 2 * n * node * 2);
    struct rig_pass *p = rig_pass(&cache, n_past, n, parent, 32);
    uint16_t *q = random_queries(n), *got = attend(p, q, 1, window);
    for (size_t r = 0; r < n; r += step) {
        const size_t len = p->n_node[r];
        dev->kv_commit(dev, &cache, n_past, p->node + r * n, len);
        struct rig_pass *one = rig_pass(&cache, n_past + len - 1, 1, NULL, 32);
        uint16_t *alone = attend(one, q + r * row, 1, window);
        CHECK(memcmp(alone, got + r * row, row * 2) == 0,
              "node %zu of %zu after %zu, depth %zu: differs from the row in the cache", r, n, n_past, len);
        /* restore random bytes in the slots that no row may see */
        dev->upload(dev, cache.base, kv_host, 2 * cache.layer_bytes);
        rig_pass_free(one);
        free(alone);
    }
    rig_pass_free(p);
    free(q), free(got), free(scratch);
    free_cache();
}

static void tree_nodes_are_what_their_paths_are(void)
{
    int32_t parent[RIG_ROWS];
    for (size_t i = 0; i < RIG_ROWS; i++)        /* [1, 3, 3, 3, ..] and random ones */
        parent[i] = i == 0 ? -1 : i < 40 ? (int32_t)(i - 1) / 3 : (int32_t)(rig_random() % i);
    tree_case(8, 2, 64, 100, parent, 14, 1, 0);
    tree_case(8, 2, 128, 60, parent, 40, 3, 0);          /* boundary inside a path */
    tree_case(6, 2, 64, 0, parent, 64, 7, 0);            /* nothing committed */
    tree_case(8, 2, 64, 64, parent, 30, 3, 20);          /* on a border, windowed */
    tree_case(4, 1, 64, 2046, parent, 25, 2, 0);         /* across a chunk */
    for (int32_t i = 0; i < 100; i++)
        parent[i] = i - 1;                               /* a chain over two borders */
    tree_case(8, 2, 64, 30, parent, 100, 9, 0);
}

int main(void)
{
    char why[256];
    struct device *d;
    if (test_device_open(&d, why, sizeof why)) {
        printf("skip test_device (%s)\n", why);
        return 0;
    }
    d->close(d);
    RUN(pieces_cover_every_tile_once);
    RUN(chunks_cover_every_key_once);
    RUN(product_is_the_sum_and_a_row_is_a_row);
    RUN(attention_is_softmax_and_a_row_is_a_row);
    RUN(tree_nodes_are_what_their_paths_are);
    if (dev)
        dev->close(dev);
    return test_end();
}
