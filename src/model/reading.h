/* One pass over the data of a model's files. All threads of the pool read, hash, and hand rows on to the
 * caller, who packs them. So a model is read once, and its fingerprint costs no second pass.
 *
 * The files are read in the order of their bytes, in units of some MiB. A unit hands on the groups of rows
 * that begin in it; to complete the last group it reads on beyond its end. */
#pragma once
#include "kernels/pool.h"
#include "src/base/sha256.h"
#include "src/model/tensors.h"

/* bytes that have one digest; the last piece of a tensor may be shorter */
enum { READING_PIECE = 1 << 20 };

/* Called by the calling thread with the bytes done; false stops the pass with ERR_AGAIN. */
typedef bool reading_progress(void *ctx, size_t done, size_t total);

struct reading {                         /* everything is borrowed */
    const struct tensors *ts;        /* data are handed on as the files store them, also if ts is encoded */
    struct pool *pool;                   /* NULL: the calling thread reads alone */
    /* NULL, or receives the digests of the pieces of all tensors, in the order of ts. reading_pieces: their
     * number, which is compared with n_digests. */
    uint8_t (*digest)[SHA256_BYTES]; size_t n_digests;
    /* Rows of tensor i that stay together when they are handed on; 0: it is only hashed. NULL: all are. */
    size_t (*group)(void *ctx, size_t i);
    /* Takes rows [row, row + n) of tensor i: whole groups, or the last of the tensor. thread: below
     * pool_threads. */
    int (*take)(void *ctx, size_t i, size_t row, size_t n, const char *src, size_t thread, struct err *e);
    void *ctx;
    bool take_alone;                     /* only the calling thread calls take */
    reading_progress *progress; void *progress_ctx;      /* progress may be NULL */
};

size_t reading_pieces(const struct tensors *ts);
size_t tensor_pieces(const struct tensor *t);        /* of one tensor, as the file stores it */
int read_tensors(const struct reading *r, struct err *e);
