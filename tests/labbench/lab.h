/* `longhand bench --device cuda[:N]`: what a GPU does with a model of Llama-3.1-8B's geometry, whose random weights are made on it, and with
 * models/demo. The most important points come first, each is printed as it ends: a run that is cut off has shown something.
 *
 *     copy      GB/s of a copy inside the device (read and written), and of uploads and downloads
 *     decode    one round of plain decoding at a depth, the choice of the token included; share: its bytes / copy bandwidth / time
 *     rows      a verification pass of N rows, as a tree (row i hangs under row (i-1)/2), beside a pass of one row
 *     draft     a draft pass over a partial cache of 4,096 rows
 *     heads     three drafting heads with random weights behind one row
 *     prefill   a chunk of PREFILL_ROWS rows at each depth; resume: the sum of all chunks up to a depth, and the upload of such a cache
 *     train     tokens/s of `train heads` with three heads (src/bench/bench_train.c); skipped without cuBLAS
 *     project   tokens per round of models/demo on real text, and from all that the time of a text as long as the deepest point
 *
 * A cache at a depth holds normal random values. Times are medians of wall-clock times of calls that wait for the device, behind calls that
 * are not counted (the first of a kind records its CUDA graph). The device `emulated` does the same with a tiny model: a test.
 *
 * Two files: bench_device.c (points and tables), bench_project.c (models/demo on real text, the projection). */
#pragma once
#include "src/bench/bench_spec.h"
#include "src/decode/decode.h"

enum { BENCH_AT_MAX = 8, BENCH_NODES = 64, BENCH_DRAFTS = 3 };

struct bench_at {                    /* one depth of one model: seconds; 0: not measured */
    size_t depth;
    double decode, pass[3], prefill; /* passes of bench_sizes rows */
};
extern const size_t bench_sizes[3];  /* 1, 16, 64 */

struct bench_of {                    /* figures of one model */
    const char *name;
    double weight_bytes, row_bytes;  /* what a pass reads: of the weights, per position of the cache */
    double draft, heads;             /* seconds */
    size_t partial;                  /* rows of the draft pass's cache */
    struct bench_at at[BENCH_AT_MAX]; size_t n;
};

struct bench_accepted {              /* models/demo on real text with one set of drafters */
    const char *drafters; bool heads;
    /* per round: tokens, rows verified, draft passes */
    size_t tokens; double per_round, rows, passes, seconds;
};

struct bench_device {
    const struct options *o;
    struct device *dev;
    const struct ops *ops;
    struct pool *pool;
    bool tiny, json, wish[9], random;
    size_t depth[BENCH_AT_MAX], n_depth, repeat;
    double copy, upload, download;   /* bytes per second */
    double train;                    /* tokens per second; 0: not measured */
    struct bench_of of[2]; size_t n_of;
    struct bench_accepted accepted[BENCH_DRAFTS]; size_t n_accepted;
    size_t missed;
    char skipped[8][200]; size_t n_skipped;
};

int  bench_device(const struct options *o, struct err *e);
void bench_device_skip(struct bench_device *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* b->train, of the random model; or a line under what was skipped. */
int  bench_train(struct bench_device *b, const struct model *m, struct err *e);

extern const struct spec_point lab_points[];     /* sweep.c */

/* bench_project.c. Tokens per round of models/demo, b->accepted. */
int  bench_accept(struct bench_device *b, struct err *e);
/* Seconds of a text that grows from nothing to the deepest point: of plain decoding (NULL), or with such drafting. */
double bench_project(const struct bench_of *f, const struct bench_accepted *a);
/* The same of reading weights and cache once per token at a bandwidth. */
double bench_floor(const struct bench_of *f, double bandwidth);
