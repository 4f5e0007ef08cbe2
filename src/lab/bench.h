/* `longhand bench`: how fast this machine is with a model, and how near the engine comes to the machine's
 * limits.
 *
 *     bench_model.c     a model with a cache at any depth; bytes and operations of a pass
 *     bench_point.c     one point, measured between probes of the machine
 *     bench_drafted.c   the tokens a second of a text that drafting writes
 *     profile.c         the seconds of a pass by operation
 *     bench.c           which points; the table and JSON
 *
 * A point is a pass, or a sequence of passes, under the roofline max(bytes / bandwidth, FLOPs / peak). Both
 * limits are measured between its samples, on the same memory with the same threads, so share = roof / time
 * compares like with like. tests/labbench has the measurements that only developers need. */
#pragma once
#include "src/lab/probe.h"
#include "src/decode/decode.h"
#include "src/decode/engine.h"
#include "src/lab/roofline.h"
#include "src/request/options.h"

enum { BENCH_ROWS_MAX = 64, BENCH_TEXTS_MAX = 16, BENCH_DEPTH_MAX = 100000, BENCH_PREFILL = 2048,
       BENCH_DRAFTED = 400 };

struct bench_target {                /* {0} is closed */
    struct engine *g;                /* borrowed */
    struct work_read read;           /* its matrices */
    struct round_buffers buffers;
    struct kv kv[BENCH_TEXTS_MAX];
    size_t n_kv;                     /* open caches */
    size_t texts;                    /* of a pass: each has a cache and an equal number of rows */
    size_t experts_read;             /* in the latest bench_pass */
    int32_t token[BENCH_PREFILL];
};

enum bench_kind { BENCH_DECODE, BENCH_ROWS, BENCH_PREFILLING, BENCH_TEXTS, BENCH_DRAFTING, BENCH_KINDS };

/* A pass by operation of the device. `other`: embeddings, gathers, and the loop over layers. */
enum bench_op_kind { OP_MATRICES, OP_HEAD, OP_ATTENTION, OP_ROPE, OP_NORMS, OP_ACTIVATION, OP_EXPERTS,
                     OP_STATES, OP_OTHER, BENCH_OPS };
struct bench_op {
    double seconds;
    double busy;                     /* seconds of all threads together; the rest of them is waiting */
    double bytes;                    /* read of matrices and caches; 0: not counted */
};

struct bench_point {
    enum bench_kind kind;
    size_t depth, rows;              /* more than BENCH_ROWS_MAX for a prefill; BENCH_TEXTS: of a text each */
    double seconds;
    double per_pass;                 /* BENCH_DRAFTING: tokens; such a point has no figures below */
    struct work work;
    enum probe_read how;
    double bandwidth, peak;          /* medians of the clean samples, as `seconds` */
    double bandwidth_range[2];
    double step;                     /* seconds of an empty step; short where cores share a cache */
    double roof, share; bool memory_bound;
    double exp, max, convert;        /* least seconds of these, all threads busy */
    double product_share;            /* of compute-bound points: roof / (seconds without the three); else 0 */
    double goal;                     /* 0: none */
    size_t samples, clean; bool noisy;
    struct bench_op op[BENCH_OPS];
    double profiled;                 /* seconds of a pass while it was profiled; 0: it was not */
};

struct bench {
    struct engine g;                 /* the model, on the CPU */
    enum probe_mul used, int16;      /* by this twin's products, and by its products of int16 */
    struct probe_costs costs;
    double peak[PROBE_MULS][2];      /* one thread, all; of `used` and `int16`, when bench began */
    double reference;                /* the best peak of `used` seen so far: an undisturbed machine */
    size_t repeat;                   /* clean samples wanted */
    double patience;                 /* seconds that a point may wait for clean samples */
};

/* `longhand bench`. Returns 0, or -1 with the line and the exit code, as every verb does. */
int cmd_bench(const struct options *o, struct err *e);

/* Loads the engine's model, after a check of memory, and opens n_kv caches of n_max positions. t->texts is 1.
 * Call bench_close even after a failure. */
int  bench_open(struct bench_target *t, struct engine *g, size_t n_kv, size_t n_max, struct err *e);
void bench_close(struct bench_target *t);
/* Fills the caches up to `depth` positions with keys and values. The depth may only grow. */
void bench_depth(struct bench_target *t, size_t depth);
/* Runs `rows` rows after the cached ones, rows / t->texts of each text: one pass with logits of all rows.
 * More than BENCH_ROWS_MAX rows are a prefill of one text in chunks of PREFILL_ROWS, with logits of the last
 * row. The caches do not grow. */
int  bench_pass(struct bench_target *t, size_t rows, struct err *e);
/* Of the latest bench_pass, which had `rows` rows: what a mixture of experts reads depends on the rows. */
struct work bench_work(const struct bench_target *t, size_t depth, size_t rows);
/* The memory that a pass at this depth reads, cut for all threads; free(p->v). */
int  bench_pieces(struct probe_pieces *p, const struct bench_target *t, size_t depth, struct err *e);

/* Measures p, whose kind, depth and rows are set. The target's cache stands at p->depth. */
int bench_measure(struct bench *b, struct bench_target *t, struct bench_point *p, struct err *e);
/* Sets p->op of a point that bench_measure measured, from passes of half a second. */
int bench_profile(struct bench_target *t, struct bench_point *p, struct err *e);
const char *bench_op_name(enum bench_op_kind);
/* Writes a text of a model that bench_open loaded, with the drafting that the options choose, and measures
 * BENCH_DRAFTED tokens from each of n ascending depths: p[i] of p[0..n). Sampling: that of --preset. */
int bench_drafted(struct engine *g, const struct options *o, struct bench_point *p, size_t n, struct err *e);

/* Sorts v and returns its median. */
double bench_median(double *v, size_t n);
