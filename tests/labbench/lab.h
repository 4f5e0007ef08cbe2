/* labbench: measurements that developers need and users do not. Product objects do the work; the emulated
 * GPU takes part.
 *
 * `labbench --device cuda[:N]` measures what a GPU does with a model of Llama-3.1-8B's geometry, whose
 * random weights are made on the GPU, and with models/demo. The most important points come first, and each
 * is printed as it ends, so a run that is cut off has shown something.
 *
 *     copy      GB/s of copies inside the device (read and written), of uploads and of downloads
 *     decode    a round of plain decoding at a depth, the choice of the token included; share: bytes / copy
 *               rate / time
 *     rows      a verification pass of N rows, as a tree (row i is a child of row (i-1)/2), against a one-row
 *               pass
 *     draft     a draft pass over a partial cache of 4,096 rows
 *     heads     three drafting heads with random weights after one row
 *     prefill   a chunk of PREFILL_ROWS rows at each depth; resume: the sum of all chunks up to a depth, and
 *               the upload of such a cache
 *     train     tokens/s of `train heads` with three heads; skipped without cuBLAS
 *     project   tokens per round of models/demo on real text; from all this, the time of a text as long as
 *               the deepest point
 *
 *     kernels   every operation of a pass by itself at the shapes of 8B and 70B models, for 1, 4, 16 and 64
 *               rows: microseconds, GB/s, share of the copy rate (kernels.c)
 *     modes     decode, and again with programmatic dependent launch off, and with graphs off too
 *     profile   one round of plain decoding at each depth between cuProfilerStart and cuProfilerStop, for
 *               `ncu --profile-from-start off`; not measured, and only where it is named
 *
 * A cache at a depth holds normal random values. Times are medians of wall-clock times of calls that wait
 * for the device, after calls that are not counted (the first call of a kind records its CUDA graph). With
 * `--device emulated` a tiny model takes the same way: a test.
 *
 * `labbench --points spec...` compares drafting with plain decoding at windows of long texts (spec.h);
 * `spec-best` compares auto with 61 fixed settings.
 *
 * Files: main.c, lab.c (shared), device.c (points), kernels.c, device_out.c (tables, JSON), project.c,
 * train.c, spec.c, spec_text.c, spec_out.c, sweep.c (spec-best). */
#pragma once
#include "tests/labbench/spec.h"
#include "src/decode/decode.h"

#include <stdio.h>

enum { LAB_DEPTHS_MAX = 8, LAB_NODES = 64, LAB_DRAFTERS = 3, LAB_PASSES = 5 };
enum lab_point { COPY, DECODE, ROWS, DRAFT, HEADS, PREFILL, TRAIN, PROJECT, DEMO, KERNELS, MODES, PROFILE,
                 LAB_POINTS };
extern const size_t lab_rows[LAB_PASSES];    /* 1, 4, 8, 16, 64 */

struct lab_depth {                   /* a model at one depth: seconds; 0: not measured */
    size_t depth;
    double decode, pass[LAB_PASSES], prefill;        /* passes of lab_rows rows */
};

struct lab_model {                   /* figures of one model */
    const char *name;
    double weight_bytes, row_bytes;  /* what a pass reads: of the weights, per position of the cache */
    double draft, heads;             /* seconds */
    size_t partial;                  /* rows of the draft pass's cache */
    struct lab_depth at[LAB_DEPTHS_MAX]; size_t n;
};

struct lab_accepted {                /* models/demo on real text with one set of drafters */
    const char *drafters; bool heads;
    size_t tokens; double seconds;
    double per_round, rows, passes;  /* of a round: tokens, verified rows, draft passes */
};

struct lab_kernel {                  /* an operation; bytes: what a call must read and write */
    const char *shape, *name;
    size_t depth, rows;
    double seconds, bytes;
};

struct lab {
    const struct options *o;
    struct device *dev;
    const struct ops *ops;
    struct pool *pool;
    bool tiny, json, points[LAB_POINTS];
    bool random;                     /* some point needs the random model */
    size_t depth[LAB_DEPTHS_MAX], n_depth, repeat;
    double copy, upload, download;   /* bytes per second */
    double train;                    /* tokens per second; 0: not measured */
    struct lab_model model[4]; size_t n_models;
    struct lab_kernel kernel[160]; size_t n_kernels;
    struct lab_accepted accepted[LAB_DRAFTERS]; size_t n_accepted;
    size_t missed;                   /* goals */
    char skipped[8][200]; size_t n_skipped;
};

/* LABBENCH_JSON=FILE: the JSON goes there, besides the tables on standard output; after an error or a signal,
 * too, with what was measured before. */
int  lab_device(const struct options *o, struct err *e);
/* Notes a part that was left out, and why. */
void lab_skip(struct lab *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* device_out.c. A point: share is bytes / copy rate / time or, with `ratio`, the time in one-row passes. */
struct lab_line {
    const char *model, *point;
    size_t depth, rows;
    double seconds, bytes, share, goal;
    bool ratio;
};
void lab_print_kernel(struct lab *b, const struct lab_kernel *x);
void lab_print_header(const struct lab *b);
void lab_print_line(struct lab *b, struct lab_line x);
void lab_print_projection(const struct lab *b);
void lab_print_json(const struct lab *b, FILE *f);

/* Opens the device of the options again; what was allocated on the former one must be free. */
int  lab_open_device(struct lab *b, struct err *e);
/* kernels.c */
int  lab_kernels(struct lab *b, struct err *e);
/* train.c. Sets b->train, with model m; or notes why it was skipped. */
int  lab_train(struct lab *b, const struct model *m, struct err *e);
/* sweep.c */
extern const struct spec_point lab_points[];

/* lab_project.c. Tokens per round of models/demo, b->accepted. */
int  lab_accept(struct lab *b, struct err *e);
/* Seconds of a text that grows from nothing to the deepest point: with this drafting, or plain (NULL). */
double lab_project(const struct lab_model *f, const struct lab_accepted *a);
/* Seconds to read weights and cache once for each of its tokens at a bandwidth. */
double lab_floor(const struct lab_model *f, double bandwidth);
