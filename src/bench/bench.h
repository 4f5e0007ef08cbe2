/* `longhand bench`: how close the engine comes to the limits of this machine. Three files:
 *
 *     bench_model.c     a model with a cache at any depth; bytes and operations of a pass
 *     bench_point.c     one point, measured between probes of the machine
 *     bench.c           which points; tables and JSON
 *
 * Drafting is measured by bench_spec.h, going on with a killed job by bench_resume.h.
 *
 * A point is a pass, or a sequence of passes, under the roofline max(bytes / bandwidth, FLOPs / peak). Both
 * limits are measured between its samples, on the same memory with the same threads, so share = roof / time
 * compares like with like. */
#pragma once
#include "src/bench/probe.h"
#include "src/decode/decode.h"
#include "src/request/options.h"

enum { BENCH_ROWS_MAX = 64, BENCH_DEPTH_MAX = 100000, BENCH_PREFILL = 2048,
       BENCH_PREFILL_CHUNK = PREFILL_ROWS };

/* The work of a pass. bytes: packed weights once, visible keys and values once. flops: 2 per multiply-add
 * of products and attention; int16: the part of flops that is done in int16. exps, maxes: elements of
 * softmax and activations, in whole blocks of 64. converts: elements that become bf16. */
struct bench_work { double bytes, flops, int16, exps, maxes, converts; };

struct bench_target {                /* {0} is closed */
    char name[64];
    struct device *dev;
    struct model model;
    struct kv kv;                    /* random values up to n_past, see bench_depth */
    struct workspace *pass, *prefill;
    /* [BENCH_PREFILL], [BENCH_PREFILL_CHUNK], [BENCH_ROWS_MAX][vocab] */
    int32_t *token; uint8_t *want; float *logits;
    uint16_t *noise;                 /* finite bf16 normal values, 1 MiB and a block more */
    size_t logits_bytes, noise_bytes;
    uint64_t random;
};

/* `longhand bench`. Returns 0, or -1 with the line and the exit code, as every verb does. */
int cmd_bench(const struct options *o, struct err *e);

struct bench;
/* Opens the model in `dir` with a cache of n_max positions, after a check of memory. */
int  bench_open(struct bench_target *t, const struct bench *b, const char *name, const char *dir,
                size_t n_max, struct err *e);
void bench_close(struct bench_target *t);
/* Writes a random model of Qwen2.5-0.5B's body (bf16, tied embeddings of 151,936) into a new directory. */
int  bench_random_model(char dir[PATH_BYTES], uint64_t seed, struct err *e);
void bench_random_remove(const char *dir);
/* Finds models/demo of the source tree, from the working directory or from the program. */
bool bench_find_demo(char dir[PATH_BYTES]);
/* Fills the cache up to `depth` positions with random keys and values. depth may only grow, or be 0. */
void bench_depth(struct bench_target *t, size_t depth);
/* One pass of `rows` rows after the cached ones, with logits of all; a prefill of BENCH_PREFILL tokens. */
int  bench_pass(struct bench_target *t, size_t rows, struct err *e);
int  bench_prefill(struct bench_target *t, struct err *e);
struct bench_work bench_pass_work(const struct bench_target *t, size_t depth, size_t rows, size_t want);
struct bench_work bench_prefill_work(const struct bench_target *t);
/* The memory that a pass at this depth reads, as *n segments; free(). NULL when out of memory. */
struct probe_piece *bench_segments(const struct bench_target *t, size_t depth, size_t *n);

enum bench_kind { BENCH_DECODE, BENCH_ROWS, BENCH_PREFILLING, BENCH_SAMPLING, BENCH_KINDS };

struct bench_point {
    const char *model;
    enum bench_kind kind;
    size_t depth, rows;              /* rows == BENCH_PREFILL for a prefill */
    struct bench_work work;
    enum probe_mul mul;              /* the instruction of the peak */
    enum probe_read how;
    double seconds, bandwidth, peak; /* medians of the clean samples */
    double worst_bandwidth, best_bandwidth;
    double step;                     /* seconds of an empty step; short where cores share a cache */
    double roof, share; bool memory_bound;
    double exp, max, convert;        /* least seconds of these, all threads busy */
    double product_share;            /* of compute-bound points: roof / (seconds without the three); else 0 */
    double goal;                     /* 0: none */
    size_t samples, clean; bool noisy;
    char settings[64];               /* of the sampler */
    double of_pass;                  /* the sampler's share of a one-row pass */
};

struct bench {
    struct pool *pool;
    const struct ops *ops;
    enum dtype compute, kv;
    enum probe_mul used, best;       /* by this twin's products; the fastest of this CPU */
    struct probe_costs costs;
    double used_peak, best_peak;     /* of all threads, when the machine was measured */
    double int16_peak;               /* of this twin's int16 products; 0: as fast as `used` */
    double reference;                /* the best peak of `used` seen so far: an undisturbed machine */
    size_t repeat;                   /* clean samples wanted */
    double patience;                 /* seconds that a point may wait for clean samples */
};

/* Measures p, whose model, kind, depth, rows and goal are set. The target's cache stands at p->depth. */
int bench_measure(struct bench *b, struct bench_target *t, struct bench_point *p, struct err *e);
/* Measures the sampler on random logits of the target's vocabulary. pass: seconds of a one-row pass. */
struct sampling;
int bench_measure_sampler(struct bench *b, struct bench_target *t, struct bench_point *p,
                          const struct sampling *s, double pass, struct err *e);
/* Sorts v and returns its median. */
double bench_median(double *v, size_t n);
