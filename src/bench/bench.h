/* `longhand bench`: how close the engine comes to the limits of this machine. Three files:
 *
 *     bench_model.c     a model with a cache at any depth; bytes and operations of a pass
 *     bench_point.c     one point, measured between probes of the machine
 *     bench.c           which points; tables and JSON
 *
 * bench_spec.h measures drafting, bench_resume.c how a killed job continues.
 *
 * A point is a pass, or a sequence of passes, under the roofline max(bytes / bandwidth, FLOPs / peak). Both
 * limits are measured between its samples, on the same memory with the same threads, so share = roof / time
 * compares like with like. */
#pragma once
#include "src/bench/probe.h"
#include "src/decode/decode.h"
#include "src/request/options.h"

enum { BENCH_ROWS_MAX = 64, BENCH_TEXTS_MAX = 16, BENCH_DEPTH_MAX = 100000, BENCH_PREFILL = 2048 };

/* The work of a pass. bytes: packed weights once, visible keys and values once. flops: 2 per multiply-add
 * of products and attention; int16: the part of flops that is done in int16. exps, maxes: elements of
 * softmax and activations, in whole blocks of 64. converts: elements that become bf16. */
struct bench_work { double bytes, flops, int16, exps, maxes, converts; };

struct bench_target {                /* {0} is closed */
    struct device *dev;
    struct model model;
    struct kv kv[BENCH_TEXTS_MAX];   /* random values up to n_past, see bench_depth */
    size_t n_kv;                     /* open caches */
    size_t texts;                    /* of a pass: each has a cache and an equal number of rows */
    struct workspace *work;
    float *logits; size_t logits_bytes;      /* [BENCH_ROWS_MAX][vocab] */
    uint64_t seed;                   /* of the next random values */
    size_t experts_read;             /* in the latest bench_pass */
    int32_t token[BENCH_PREFILL];
};

/* `longhand bench`. Returns 0, or -1 with the line and the exit code, as every verb does. */
int cmd_bench(const struct options *o, struct err *e);
/* The point resume. */
bool bench_resume_wanted(const char *points);
int  bench_resume(const struct options *o, struct err *e);

struct bench;
/* dir NULL: a random model of the body of Qwen2.5-0.5B or -3B (tied embeddings of 151,936), a mixture of
 * experts (as many, not tied), a quarter of Qwen3.5-4B, or a tenth of Qwen3.5-35B-A3B. */
enum bench_body { BODY_SMALL, BODY_3B, BODY_MOE, BODY_4B, BODY_35B, BODIES };
int  bench_config(struct config *c, const char *dir, enum bench_body body, struct err *e);
/* Opens the model with n_kv caches of n_max positions, after a check of memory. t->texts is 1. Call
 * bench_close even after a failure. */
int  bench_open(struct bench_target *t, const struct bench *b, const struct config *c, const char *dir,
                size_t n_kv, size_t n_max, struct err *e);
void bench_close(struct bench_target *t);
/* Finds models/demo below the working directory, or below a folder that holds the program. */
bool bench_find_demo(char dir[PATH_BYTES]);
/* The model that --model names, else models/demo. */
int  bench_model_dir(char dir[PATH_BYTES], const struct options *o, struct err *e);
/* Fills the caches up to `depth` positions with random keys and values. The depth may only grow. */
void bench_depth(struct bench_target *t, size_t depth);
/* Runs `rows` rows after the cached ones, rows / t->texts of each text: one pass with logits of all rows.
 * More than BENCH_ROWS_MAX rows are a prefill of one text in chunks of PREFILL_ROWS, with logits of the last
 * row. The caches do not grow. */
int  bench_pass(struct bench_target *t, size_t rows, struct err *e);
/* Of the latest bench_pass, which had `rows` rows: what a mixture of experts reads depends on the rows. */
struct bench_work bench_work(const struct bench_target *t, size_t depth, size_t rows);
/* The memory that a pass at this depth reads, cut for all threads; free(p->v). */
int  bench_pieces(struct probe_pieces *p, const struct bench_target *t, size_t depth, struct err *e);

enum bench_kind { BENCH_DECODE, BENCH_ROWS, BENCH_PREFILLING, BENCH_SAMPLING, BENCH_TEXTS, BENCH_KINDS };

struct bench_point {
    const char *model;
    enum bench_kind kind;
    size_t depth, rows;              /* more than BENCH_ROWS_MAX for a prefill; BENCH_TEXTS: of a text each */
    struct bench_work work;
    enum probe_mul mul;              /* the instruction of the peak */
    enum probe_read how;
    double seconds, bandwidth, peak; /* medians of the clean samples */
    double bandwidth_range[2];
    double step;                     /* seconds of an empty step; short where cores share a cache */
    double roof, share; bool memory_bound;
    double exp, max, convert;        /* least seconds of these, all threads busy */
    double product_share;            /* of compute-bound points: roof / (seconds without the three); else 0 */
    double goal;                     /* 0: none */
    size_t samples, clean; bool noisy;
    const char *settings;            /* of the sampler */
    double of_pass;                  /* the sampler's share of a one-row pass */
};

struct bench {
    struct pool *pool;
    const struct ops *ops;
    enum dtype compute, kv;
    enum dtype random;               /* type of random weights; DT_OTHER: bf16 */
    enum probe_mul used, best;       /* by this twin's products; the fastest of this CPU */
    enum probe_mul int16;            /* of this twin's int16 products; PROBE_MUL_PLAIN: as fast as `used` */
    struct probe_costs costs;
    double peak[PROBE_MULS][2];      /* one thread, all; when the machine was measured */
    double reference;                /* the best peak of `used` seen so far: an undisturbed machine */
    size_t repeat;                   /* clean samples wanted */
    double patience;                 /* seconds that a point may wait for clean samples */
};

/* Measures p, whose model, kind, depth, rows and goal are set. The target's cache stands at p->depth. */
int bench_measure(struct bench *b, struct bench_target *t, struct bench_point *p, struct err *e);
/* Measures the sampler on random logits of the target's vocabulary. pass: seconds of a one-row pass. */
struct sampling;
int bench_measure_sampler(const struct bench *b, struct bench_target *t, struct bench_point *p,
                          const struct sampling *s, double pass, struct err *e);
/* Sorts v and returns its median. */
double bench_median(double *v, size_t n);
/* The median of n <= BENCH_MEDIAN_MAX doubles that lie `stride` bytes apart. */
enum { BENCH_MEDIAN_MAX = 1000 };
double bench_median_of(const double *x, size_t stride, size_t n);
