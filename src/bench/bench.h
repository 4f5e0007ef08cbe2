/* `longhand bench`: the roofline, in three files (the spec points are src/bench/bench_spec.h's): bench_model.c (what is measured: a model, its cache at any depth, and the bytes and
 * operations of a pass), bench_point.c (one point, interleaved with probes), bench.c (which points, tables, JSON).
 *
 * A point is a pass, or a sequence of passes, with its place under the roofline max(bytes / bandwidth, FLOPs / peak). Both
 * limits are measured between its samples on the same memory and threads, so that share = roof / time compares like with like. */
#pragma once
#include "src/bench/probe.h"
#include "src/decode/decode.h"
#include "src/request/options.h"

enum { BENCH_ROWS_MAX = 64, BENCH_DEPTH_MAX = 100000, BENCH_PREFILL = 2048,
       BENCH_PREFILL_CHUNK = PREFILL_ROWS };

/* What a pass must do. bytes: packed weights once, visible keys and values once. flops: 2 per multiply-add of products (int16: the part of them that is done in int16)
 * and attention. The rest are elements of the attention's softmax (blocks of 64 whole) and of the activations. */
struct bench_work { double bytes, flops, int16, exps, maxes, converts; };

struct bench_target {                /* {0} is closed */
    char name[64];
    struct device *dev;
    struct model model;
    struct kv kv;                    /* filled with random values up to n_past, see bench_depth */
    struct workspace *pass, *prefill;
    /* [BENCH_PREFILL], [BENCH_PREFILL_CHUNK], [BENCH_ROWS_MAX][vocab] */
    int32_t *token; uint8_t *want; float *logits;
    uint16_t *noise;                 /* bf16 normal values, 1 MiB and a block more; without an infinity */
    size_t logits_bytes, noise_bytes;
    uint64_t random;
};

/* `longhand bench`. Returns 0, or -1 with the line and the exit code, as every verb does. */
int cmd_bench(const struct options *o, struct err *e);

/* Open the model in `dir` with a cache of n_max positions. Memory is checked first. */
int bench_open(struct bench_target *t, const char *name, const char *dir, size_t n_max, enum dtype compute,
               enum dtype kv, const struct ops *ops, struct pool *pool, uint64_t seed, struct err *e);
void bench_close(struct bench_target *t);
/* Write a random model of Qwen2.5-0.5B's body (bf16, tied embeddings of 151,936) into a new directory. */
int  bench_random_model(char dir[PATH_BYTES], uint64_t seed, struct err *e);
void bench_random_remove(const char *dir);
/* models/demo of the source tree: seen from here, or from where the program lies. */
bool bench_find_demo(char dir[PATH_BYTES]);
/* The cache holds `depth` positions of random keys and values from now on; depth may only grow, except to 0. */
void bench_depth(struct bench_target *t, size_t depth);
/* One pass of `rows` rows behind the cache, logits of all; or the prefill of BENCH_PREFILL tokens into an empty cache. */
int  bench_pass(struct bench_target *t, size_t rows, struct err *e);
int  bench_prefill(struct bench_target *t, struct err *e);
struct bench_work bench_pass_work(const struct bench_target *t, size_t depth, size_t rows, size_t want);
struct bench_work bench_prefill_work(const struct bench_target *t);
/* The memory that a pass at this depth reads, as segments; *n of them, free(). NULL when out of memory. */
struct probe_piece *bench_segments(const struct bench_target *t, size_t depth, size_t *n);

enum bench_kind { BENCH_DECODE, BENCH_ROWS, BENCH_PREFILLING, BENCH_SAMPLING, BENCH_KINDS };

struct bench_point {
    const char *model;
    enum bench_kind kind;
    size_t depth, rows;              /* rows == BENCH_PREFILL for a prefill */
    struct bench_work work;
    enum probe_mul mul;              /* the instruction that the peak is of */
    enum probe_read how;
    double seconds, bandwidth, peak; /* medians of the clean samples */
    double worst_bandwidth, best_bandwidth;
    /* seconds of an empty step of all threads: tells cores that share a cache from those that do not */
    double step;
    double roof, share; bool memory_bound;
    double exp, max, convert;        /* seconds that these take at their own best, all threads busy */
    double product_share;            /* compute-bound points: roof / (seconds without these); else 0 */
    double goal;                     /* 0: none */
    size_t samples, clean; bool noisy;
    char what[64];                   /* sampling: the settings */
    double of_pass;                  /* sampling: share of a pass */
};

struct bench {
    struct pool *pool;
    const struct ops *ops;
    enum dtype compute, kv;
    enum probe_mul used, best;       /* instruction of this twin's products; fastest of this CPU */
    struct probe_costs costs;
    double used_peak, best_peak;     /* of all threads, when the machine was measured */
    double int16_peak;               /* of what sums int16 on this twin; 0: as fast as `used` */
    double reference;                /* peak of `used` when the machine is undisturbed, as seen so far */
    size_t repeat;                   /* clean samples wanted */
    double patience;                 /* seconds a point may take while it waits for them, beyond `repeat` passes */
};

/* Measure p (model, kind, depth, rows and goal are set; the target's cache stands at p->depth). */
int bench_measure(struct bench *b, struct bench_target *t, struct bench_point *p, struct err *e);
/* The sampler on random logits of the target's vocabulary; `pass` is the time of a one-row pass. */
struct sampling;
int bench_measure_sampler(struct bench *b, struct bench_target *t, struct bench_point *p,
                          const struct sampling *s, double pass, struct err *e);
