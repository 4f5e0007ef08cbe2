/* The engine: everything that computes with one model. It holds the model, its tokenizer, the weights of
 * drafters, the threads and the device.
 *
 *     engine_open         configuration, tokenizer, device, threads; reads only the headers of the weights
 *     engine_plan         what a decoder will need, to be checked before the weights are read
 *     engine_load         the weights
 *     engine_int8         optional: the 8-bit copy that drafts use
 *     engine_close
 *
 * Opening takes two steps so that cheap checks come before the weights are read. */
#pragma once
#include "src/base/base.h"
#include "src/base/progress.h"
#include "src/decode/drafters.h"
#include "src/model/memory_plan.h"
#include "src/model/model.h"
#include "src/text/tokenizer.h"

struct engine {                      /* {0} is closed */
    /* of drafters, each as its file in drafters/ has it; NULL: not open (weights.h) */
    void *weights[N_DRAFTERS];
    size_t own_bytes[N_DRAFTERS];    /* of those in the model's own files; 0: none that fit */
    char dir[PATH_BYTES];            /* as the user named the folder */
    char path[PATH_BYTES];           /* the folder's absolute path, links resolved */
    char scaling[64];                /* --context-scaling, or "" */
    struct config config;
    struct tokenizer *tokenizer;
    int32_t own_eos;                 /* EOS of the tokenizer that config.eos lacks; -1: none */
    const struct ops *ops;
    struct pool *pool;
    struct device *dev;
    enum dtype compute, kv;          /* as requested; kv DT_OTHER: auto */
    enum weights encoding;           /* as requested */
    struct tensors tensors;          /* headers only; engine_load closes them */
    struct model model;              /* before engine_load: only the fields that sizes are computed from */
    struct model int8; struct model_quantized int8_done;     /* where drafting wants it (engine_int8) */
    size_t weight_bytes;
    uint64_t stamp;                  /* model_stamp before anything was read */
};

struct engine_spec {
    const char *dir; enum dtype compute;
    const char *scaling; size_t threads;           /* NULL: the model's own; 0: the default */
    const char *device, *numerics;                 /* see src/model/device_choice.h */
    enum dtype kv;                                 /* DT_OTHER: auto */
    enum weights weights;
};

/* Opens configuration (with context scaling), tokenizer, CPU operations, threads, device, and the headers
 * of the weights. After a failure the engine is closed, and e->system is not 0 if the model's files were the
 * reason. */
int engine_open(struct engine *g, const struct engine_spec *s, struct err *e);
/* Reads the weights, with progress. f: NULL, or a fingerprint that was begun; the same pass completes it.
 * ERR_FAILED when a stop signal interrupts it. */
int engine_load(struct engine *g, struct fingerprint *f, struct progress *p, struct err *e);
/* Makes the 8-bit copy unless it exists, with progress. 0; 1: a stop signal interrupted it, or `seconds` (0:
 * no limit) are over, and a further call goes on; -1. */
int engine_int8(struct engine *g, double seconds, struct progress *p, struct err *e);
/* The copy, if it is whole; else NULL. */
const struct model *engine_has_int8(const struct engine *g);
void engine_drop_int8(struct engine *g);
void engine_close(struct engine *g);

/* Adds to `plan` what all decoders share: the weights, the tokenizer, and the buffers of passes (buffers.h)
 * of `rows` rows, of which `want` have logits, over texts of at most n_max tokens. */
void engine_plan_shared(struct memory_plan *plan, const struct engine *g, size_t n_max, size_t rows,
                        size_t want);
/* Adds to `plan` the KV cache of one decoder with n_max positions. `want` rows of a pass have logits; more
 * than one means a tree, whose nodes need scratch. n_shared blocks belong to other caches. */
void engine_plan_cache(struct memory_plan *plan, const struct engine *g, size_t n_max, size_t want,
                       size_t n_shared);
/* Both, for one decoder. */
void engine_plan(struct memory_plan *plan, const struct engine *g, size_t n_max, size_t rows, size_t want);
