/* Owns the point "kernels" of a GPU: every operation of a pass by itself, at the shapes of 8B and 70B models.
 * Calls of an operation are recorded as one pass and timed by the clock of the host, less the time of one
 * wait, so neither launches nor waits of the host count. Weights, caches and activations rotate through
 * REGION bytes, more than any L2 cache holds, so each call reads them from memory. Start reading at
 * lab_kernels. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cuda/gpu.h"
#include "src/base/stopping.h"
#include "src/lab/bench.h"
#include "tests/labbench/lab.h"

enum { ROWS_MAX = 64, CALLS_MAX = 64, LAYERS_MAX = 256, SINKS = 16, BUDGET = 4096 };
#define REGION ((size_t)512 << 20)
static const size_t row_counts[] = { 1, 4, 16, ROWS_MAX };
static const struct shape {
    const char *name; size_t hidden, ffn, heads, kv_heads, dim, vocab, depth[2];
} real[] = { { "8B", 4096, 14336, 32, 8, 128, 128256, { 4096, 100000 } },
             { "70B", 8192, 28672, 64, 8, 128, 128256, { 4096, 100000 } } },
  tiny = { "tiny", 128, 192, 4, 2, 64, 300, { 70, 130 } };

/* One geometry on an open device. a, b: memory that activations rotate through; w: weights. */
struct ops_bench {
    struct lab *lab;
    struct device *dev;
    const struct shape *s;
    struct device_heads heads;
    size_t region, rows, depth;
    char *a, *b, *w; size_t w_bytes;
    float *norm, *logits; void *work;
    struct kv kv, part;              /* part: the partial cache that a selection of rows goes to */
    struct device_kv view, part_view;
    uint32_t *row; void *select; size_t budget;
    struct device_seq seq;
    struct device_rows table;
    int32_t token[ROWS_MAX];
    uint32_t pos[ROWS_MAX], hi[ROWS_MAX], want[ROWS_MAX];
    float inv_freq[64];
    size_t n, k;                     /* of the product */
    uint64_t key;
};

/* Piece i of a region that holds pieces of these bytes, beginning again where it is full. */
static char *piece(char *region, size_t size, size_t i, size_t bytes)
{
    const size_t step = (bytes + 255) / 256 * 256;
    return region + (size > step ? i % (size / step) : 0) * step;
}

/* ---- operations: call number i; the bytes of a call that must cross the memory bus ---- */

typedef void op_call(struct ops_bench *t, size_t i);
typedef double op_bytes(const struct ops_bench *t);

static void call_embed(struct ops_bench *t, size_t i)
{
    const struct mat m = { DT_BF16, t->s->vocab, t->s->hidden, t->w };
    t->dev->embed(t->dev, (void *)piece(t->a, t->region, i, t->rows * t->s->hidden * 4), &m, true);
}
static double bytes_embed(const struct ops_bench *t) { return (double)(t->rows * t->s->hidden * 6); }

static void call_rmsnorm(struct ops_bench *t, size_t i)
{
    const size_t n = t->rows * t->s->hidden;
    t->dev->rmsnorm(t->dev, piece(t->b, t->region, i, n * 2), (void *)piece(t->a, t->region, i, n * 4),
                    t->norm, t->rows, t->s->hidden, 1e-5f, SIZE_MAX);
}
static double bytes_rmsnorm(const struct ops_bench *t) { return (double)((t->rows * 6 + 4) * t->s->hidden); }

static void call_product(struct ops_bench *t, size_t i)
{
    const size_t bytes = t->dev->mat_size(t->dev, DT_BF16, t->n, t->k);
    const struct mat m = { DT_BF16, t->n, t->k, piece(t->w, t->w_bytes, i, bytes) };
    t->dev->product(t->dev, &(struct device_product){
        (void *)piece(t->a, t->region, i, t->rows * t->n * 4), t->n,
        piece(t->b, t->region, i, t->rows * t->k * 2), t->rows, &m, NULL, false, SIZE_MAX });
}
static double bytes_product(const struct ops_bench *t)
{
    return (double)(t->n * t->k * 2 + t->rows * (t->k * 2 + t->n * 4));
}

static void call_rope(struct ops_bench *t, size_t i)
{
    const size_t row = (t->s->heads + 2 * t->s->kv_heads) * t->heads.padded;
    t->dev->rope(t->dev, &(struct device_rope){
        .q = piece(t->b, t->region, i, t->rows * row * 2), .qkv = (void *)piece(t->a, t->region, i,
        t->rows * row * 4), .heads = &t->heads, .layer = i % t->view.n_layers, .eps = 1e-5f });
}
static double bytes_rope(const struct ops_bench *t)
{
    return (double)(t->rows * t->heads.padded * (6 * t->s->heads + 12 * t->s->kv_heads));
}

static void call_attend(struct ops_bench *t, size_t i)
{
    const size_t bytes = t->rows * t->s->heads * t->heads.padded * 2;
    t->dev->attend(t->dev, piece(t->a, t->region, i, bytes), piece(t->b, t->region, i, bytes), &t->heads,
                   i % t->view.n_layers, 0);
}
static double bytes_attend(const struct ops_bench *t)
{
    return (double)(t->heads.padded * 4 * ((t->depth + t->rows) * t->s->kv_heads + t->rows * t->s->heads));
}

static void call_swiglu(struct ops_bench *t, size_t i)
{
    const size_t n = t->rows * t->s->ffn;
    t->dev->swiglu(t->dev, piece(t->b, t->region, i, n * 2), (void *)piece(t->a, t->region, i, n * 8),
                   t->rows, t->s->ffn);
}
static double bytes_swiglu(const struct ops_bench *t) { return (double)(t->rows * t->s->ffn * 10); }

static void call_gather(struct ops_bench *t, size_t i)
{
    const size_t bytes = t->rows * t->s->hidden * 2;
    t->dev->gather(t->dev, piece(t->a, t->region, i, bytes), piece(t->b, t->region, i, bytes),
                   t->s->hidden * 2);
}
static double bytes_gather(const struct ops_bench *t) { return (double)(t->rows * t->s->hidden * 4); }

static void call_commit(struct ops_bench *t, size_t i)
{
    (void)i;
    t->dev->kv_commit(t->dev, &t->view, t->depth, t->want, t->rows);
}
static double bytes_commit(const struct ops_bench *t)
{
    return (double)(t->rows * t->view.n_layers * t->s->kv_heads * t->heads.padded * 8);
}

static void call_widen(struct ops_bench *t, size_t i)
{
    const size_t n = t->rows * t->s->hidden;
    t->dev->widen(t->dev, (void *)piece(t->a, t->region, i, n * 4), piece(t->b, t->region, i, n * 2), n);
}
static double bytes_widen(const struct ops_bench *t) { return (double)(t->rows * t->s->hidden * 6); }

static void call_count(struct ops_bench *t, size_t i)
{
    struct device_count list[ROWS_MAX];
    for (size_t r = 0; r < t->rows; r++)
        list[r] = (struct device_count){ (uint32_t)t->token[r], 1, 1 };
    t->dev->count(t->dev, (void *)piece(t->b, t->region, i, t->s->vocab * 8), t->s->vocab, list, t->rows);
}
static double bytes_count(const struct ops_bench *t) { return (double)(t->rows * (12 + 16)); }

/* The scores of all layers; the operation also sorts what it takes. */
static void call_select(struct ops_bench *t, size_t i)
{
    static const uint32_t from[LAYERS_MAX];
    const struct device_kv *v = &t->view;
    const size_t bytes = v->n_layers * v->n_kv_heads * t->depth * 4;
    t->dev->kv_select(t->dev, &(struct device_selection){
        (void *)piece(t->a, t->region, i, bytes), t->depth, from, v->n_layers, v->n_kv_heads, t->depth,
        MIN(SINKS, t->budget / 2), t->budget, t->row, t->budget, t->select });
}
static double bytes_select(const struct ops_bench *t)
{
    return (double)(t->view.n_layers * t->s->kv_heads * 4 * (t->depth + t->budget));
}

static void call_kv_gather(struct ops_bench *t, size_t i)
{
    (void)i;
    t->dev->kv_gather(t->dev, &t->part_view, &t->view, t->row, t->budget, t->budget);
}
static double bytes_kv_gather(const struct ops_bench *t)
{
    return (double)(t->view.n_layers * t->s->kv_heads * t->budget * t->heads.padded * 8);
}

static void call_sample(struct ops_bench *t, size_t i)
{
    static struct device_candidate best[ROWS_MAX];
    struct device_pick pick[ROWS_MAX];
    const struct device_chain chain = { .temperature = 1, .min_keep = 1, .top_p = 1, .min_p = 0.05,
                                        .penalty = 1, .order = { DEVICE_TEMPERATURE, DEVICE_MIN_P },
                                        .n_order = 2, .seed = 1 };
    for (size_t r = 0; r < t->rows; r++)
        pick[r] = (struct device_pick){ .position = i * ROWS_MAX + r, .row = (uint32_t)r };
    t->dev->sample(t->dev, best, 1, t->logits, t->s->vocab, &chain,
                   &(struct device_picks){ .pick = pick, .n = t->rows, .work = t->work });
}
static double bytes_sample(const struct ops_bench *t) { return (double)(t->rows * t->s->vocab * 4); }

/* ---- time ---- */

/* Waits for all work of the device. */
static void wait_for(struct ops_bench *t)
{
    char byte;
    t->dev->download(t->dev, &byte, t->a, 1);
}

/* sample, count, kv_commit and kv_select upload their lists, so they cannot be recorded: their times contain
 * these. */
static int point(struct ops_bench *t, const char *name, op_call *call, op_bytes *bytes, bool recorded,
                 struct err *e)
{
    struct lab *b = t->lab;
    struct device *dev = t->dev;
    const double least = bytes(t) / 4e12 + 2e-6;                 /* about what a call takes */
    const size_t calls = b->tiny ? 2 : MAX(4, MIN((size_t)CALLS_MAX, (size_t)(2e-3 / least)));
    double v[64];
    const size_t n = MIN(b->repeat, sizeof v / sizeof *v);
    dev->free(dev, dev->alloc(dev, 1), 1);                       /* forgets the recorded passes */
    t->key++;
    for (size_t i = 0; i < n + 1; i++) {                         /* the first is not counted */
        struct device_bad bad;
        if (recorded)
            dev->begin(dev, &t->table);
        wait_for(t);
        const double idle = clock_seconds();
        wait_for(t);
        const double start = clock_seconds(), wait = start - idle;
        if (!recorded || !dev->graph_begin(dev, t->key)) {
            for (size_t j = 0; j < calls; j++)
                call(t, j);
            if (recorded && !dev->graph_end(dev))
                return err_set(e, ERR_FAILED, "%s: no memory for a recorded pass", dev->name);
        }
        wait_for(t);
        const double all = clock_seconds() - start - wait;
        if (*dev->error || (recorded && dev->end(dev, &bad)))
            return err_set(e, ERR_FAILED, "%s: %s: %s", dev->name, name, dev->error);
        v[i ? i - 1 : 0] = all / (double)calls;
        if (stop_signal)
            return err_set(e, ERR_AGAIN, "bench: stopped by %s", stop_signal_name());
    }
    const struct lab_kernel x = { t->s->name, name, t->depth, t->rows, bench_median(v, n), bytes(t) };
    if (b->n_kernels < sizeof b->kernel / sizeof *b->kernel)
        b->kernel[b->n_kernels++] = x;
    lab_print_kernel(b, &x);
    return 0;
}

/* ---- a geometry ---- */

static void set_rows(struct ops_bench *t, size_t rows)
{
    t->rows = rows;
    for (size_t i = 0; i < rows; i++) {
        t->pos[i] = (uint32_t)(t->depth + i);
        t->hi[i] = t->pos[i] + 1;
        t->want[i] = (uint32_t)i;
        t->token[i] = (int32_t)(i * 7919 % t->s->vocab);
    }
    t->seq = (struct device_seq){ .kv = &t->view, .n = rows, .n_past = t->depth };
    t->table = (struct device_rows){ .n = rows, .n_seqs = 1, .seq = &t->seq, .token = t->token, .pos = t->pos,
                                     .hi = t->hi, .angle = t->pos, .n_want = rows, .want = t->want,
                                     .inv_freq = t->inv_freq, .n_freq = t->s->dim / 2, .rope_factor = 1 };
}

static int products(struct ops_bench *t, struct err *e)
{
    const struct shape *s = t->s;
    const struct { const char *name; size_t n, k; } list[] = {
        { "qkv", (s->heads + 2 * s->kv_heads) * s->dim, s->hidden },
        { "o", s->hidden, s->heads * s->dim },
        { "gate_up", 2 * s->ffn, s->hidden },
        { "down", s->hidden, s->ffn },
        { "lm_head", s->vocab, s->hidden },
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        t->n = list[i].n, t->k = list[i].k;
        if (point(t, list[i].name, call_product, bytes_product, true, e))
            return -1;
    }
    return 0;
}

/* All operations with t->rows rows; those of the cache at its depth. first: also those without a cache. With
 * one row also those whose time does not depend on rows. */
static int operations(struct ops_bench *t, bool first, struct err *e)
{
    if (first && (point(t, "embed", call_embed, bytes_embed, true, e) ||
                  point(t, "rmsnorm", call_rmsnorm, bytes_rmsnorm, true, e) || products(t, e) ||
                  point(t, "rope", call_rope, bytes_rope, true, e) ||
                  point(t, "swiglu", call_swiglu, bytes_swiglu, true, e) ||
                  point(t, "gather", call_gather, bytes_gather, true, e) ||
                  point(t, "widen", call_widen, bytes_widen, true, e) ||
                  point(t, "count", call_count, bytes_count, false, e) ||
                  point(t, "sample", call_sample, bytes_sample, false, e) ||
                  point(t, "kv_commit", call_commit, bytes_commit, false, e)))
        return -1;
    if (t->rows == 1 && (point(t, "kv_select", call_select, bytes_select, false, e) ||
                         point(t, "kv_gather", call_kv_gather, bytes_kv_gather, true, e)))
        return -1;
    return point(t, "attend", call_attend, bytes_attend, true, e);
}

/* Caches of as many layers as exceed the region, and the selection from one to the other. */
static int open_caches(struct ops_bench *t, size_t depth, struct err *e)
{
    struct device *dev = t->dev;
    struct kv_size size = { DT_BF16, 1, t->s->kv_heads, t->heads.padded, depth + ROWS_MAX, ROWS_MAX };
    size.n_layers = MIN(t->region / kv_bytes(&size) + 1, (size_t)LAYERS_MAX);
    t->depth = depth;
    t->budget = MIN((size_t)BUDGET, depth / 2);
    const size_t heads = size.n_layers * size.n_kv_heads;
    t->row = dev->alloc(dev, heads * t->budget * sizeof *t->row);
    t->select = dev->alloc(dev, dev->select_bytes(dev, size.n_layers, size.n_kv_heads, t->budget));
    if (!t->row || !t->select)
        return err_set(e, ERR_FAILED, "bench: %s: out of memory for a selection", dev->name);
    if (kv_open(&t->kv, dev, &size, e))
        return -1;
    size.n_max = t->budget, size.node_max = 0;
    if (kv_open(&t->part, dev, &size, e))
        return -1;
    dev->noise(dev, t->kv.base, t->kv.n_layers * t->kv.layer_bytes / 2, 4, 1);
    t->view = kv_view(&t->kv), t->part_view = kv_view(&t->part);
    return 0;
}

static void close_caches(struct ops_bench *t)
{
    kv_close(&t->kv);
    kv_close(&t->part);
    t->dev->free(t->dev, t->row, 0);
    t->dev->free(t->dev, t->select, 0);
    t->row = NULL, t->select = NULL;
}

static int open_buffers(struct ops_bench *t, struct err *e)
{
    const struct shape *s = t->s;
    struct device *dev = t->dev;
    const size_t widest = MAX(MAX(2 * s->ffn, s->vocab), (s->heads + 2 * s->kv_heads) * t->heads.padded),
                 largest = dev->mat_size(dev, DT_BF16, s->vocab, s->hidden);
    const struct device_limits l = { ROWS_MAX, s->depth[1] + ROWS_MAX, ROWS_MAX, widest, s->vocab, t->heads,
                                     s->ffn };
    t->w_bytes = MAX(largest, t->region);
    t->a = dev->alloc(dev, MAX(t->region, ROWS_MAX * widest * 4));
    t->b = dev->alloc(dev, MAX(t->region, ROWS_MAX * widest * 4));
    t->w = dev->alloc(dev, t->w_bytes);
    t->norm = dev->alloc(dev, s->hidden * sizeof *t->norm);
    t->logits = dev->alloc(dev, ROWS_MAX * s->vocab * sizeof *t->logits);
    t->work = dev->alloc(dev, dev->sample_bytes(dev, ROWS_MAX, 0, 0, s->vocab));
    if (!t->a || !t->b || !t->w || !t->norm || !t->logits || !t->work || dev->reserve(dev, &l))
        return err_set(e, ERR_FAILED, "bench: %s: out of memory for the kernels of %s", dev->name, s->name);
    dev->noise(dev, t->a, t->region / 2, 1, 1);
    dev->noise(dev, t->b, t->region / 2, 2, 1);
    dev->noise(dev, t->w, t->w_bytes / 2, 3, 0.02f);
    dev->widen(dev, t->logits, t->b, MIN(t->region / 2, ROWS_MAX * s->vocab));
    return 0;
}

static int measure_shape(struct ops_bench *t, struct err *e)
{
    const struct device *dev = t->dev;
    const struct shape *s = t->s;
    t->heads = (struct device_heads){ s->heads, s->kv_heads, s->dim, dev->head_dim(dev, s->dim) };
    for (size_t i = 0; i < s->dim / 2; i++)
        t->inv_freq[i] = 1 / (float)(i + 1);
    if (open_buffers(t, e))
        return -1;
    for (size_t d = 0; d < 2; d++) {
        if (open_caches(t, s->depth[d], e))
            return -1;
        for (size_t i = 0; i < (t->lab->tiny ? 2 : sizeof row_counts / sizeof *row_counts); i++) {
            set_rows(t, row_counts[i]);
            if (operations(t, d == 0, e))
                return -1;
        }
        close_caches(t);
    }
    return 0;
}

int lab_kernels(struct lab *b, struct err *e)
{
    static struct ops_bench t;
    const size_t n = b->tiny ? 1 : sizeof real / sizeof *real;
    for (size_t i = 0; i < n; i++) {
        if (lab_open_device(b, e))               /* its working memory is for one shape of heads */
            return -1;
        t = (struct ops_bench){ .lab = b, .dev = b->dev, .s = b->tiny ? &tiny : &real[i],
                            .region = b->tiny ? (size_t)1 << 20 : REGION };
        const int rc = measure_shape(&t, e);
        void *const mine[] = { t.a, t.b, t.w, t.norm, t.logits, t.work };
        close_caches(&t);
        for (size_t j = 0; j < sizeof mine / sizeof *mine; j++)
            if (mine[j])
                b->dev->free(b->dev, mine[j], 0);
        if (rc)
            return -1;
    }
    return lab_open_device(b, e);
}
