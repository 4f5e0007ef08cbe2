/* The file of a snapshot: rows of the caches of one text, as named sections with checksums. What it saves is the pass over the text; it is
 * never needed, and a file that is not in every bit what it should be is not used.
 *
 *     header      4096 bytes: "LHKVSNAP", version, whose it is (struct snapshot_owner), sections, CRC-32 of the table and of itself
 *     data        section after section, in pieces of 1 MiB counted from the beginning of each section (the last one shorter)
 *     table       CRC-32 of each piece
 *
 * Numbers are little-endian, data is what memory holds. The header is written last, so that a file which was not finished has none.
 *
 *     write   snapshot_write(fd, &owner, sections, n, &stop, &e)     syncing and renaming is the caller's
 *     read    snapshot_open(&f, path, &e)      header and table
 *             snapshot_check(f, pool, &e)      every piece, before anything is touched
 *             snapshot_read(f, ...)            into place; each piece is checked once more on its way
 *             snapshot_close(f) */
#pragma once
#include <stdatomic.h>

#include "kernels/pool.h"
#include "kvmgr/kv.h"

enum { SNAPSHOT_SECTIONS_MAX = 8, SNAPSHOT_NAME_BYTES = 32, SNAPSHOT_SHAPE_BYTES = 64,
       SNAPSHOT_PIECE = 1 << 20 };

struct snapshot_owner {
    int64_t job, attempt;
    /* of the model; of the arithmetic; --context-scaling */
    char fingerprint[68], numerics[36], context[64];
    uint8_t chain[32];               /* SHA-256 of the ids of the first `tokens` tokens, prompt included, 32 bits each */
    uint64_t from, tokens;           /* rows from .. tokens-1 of the target's cache */
    double rebuild_seconds;          /* that a pass over the first `tokens` would take, as estimated when it was written */
};

struct snapshot_part { void *p; size_t n; };             /* memory that a section comes from, or goes to */
struct snapshot_section {
    const char *name, *shape;        /* shape: what the bytes mean; read back only where it is the same */
    const struct snapshot_part *part; size_t n_parts;
    /* NULL: the parts are the host's memory; else its memory, fetched beside what it does (fetch_mark is the
     * caller's) */
    struct device *dev;
};

/* The target's cache: "kv", rows from .. n-1, multiples of KV_BLOCK, so that rows that are written meanwhile share no block with
 * them. part[n_layers * n_kv_heads]. */
size_t kv_parts(const struct kv *kv, size_t from, size_t n, struct snapshot_part *part);
void   kv_shape(const struct kv *kv, char out[SNAPSHOT_SHAPE_BYTES]);

/* Bytes of the file. */
uint64_t snapshot_bytes(const struct snapshot_section *s, size_t n);
/* From offset 0 of fd. What the parts name must not change meanwhile. Written in stretches that are on the disk before the next one begins, so
 * that other files' syncs do not wait for gigabytes. *stop (may be NULL) is looked at between pieces: ERR_AGAIN. */
int snapshot_write(int fd, const struct snapshot_owner *o, const struct snapshot_section *s, size_t n,
                   const atomic_bool *stop, struct err *e);

struct snapshot;
int  snapshot_open(struct snapshot **f, const char *path, struct err *e);
const struct snapshot_owner *snapshot_owner(const struct snapshot *f);
/* pool NULL: one thread */
int  snapshot_check(const struct snapshot *f, struct pool *pool, struct err *e);
/* Size of a section of this name and shape; 0: there is none. */
size_t snapshot_size(const struct snapshot *f, const char *name, const char *shape);
/* Its bytes into the parts, which have its size together (asserted). On failure they hold anything. On the device's thread, where they are its memory. */
int snapshot_read(const struct snapshot *f, const struct snapshot_section *s, struct pool *pool,
                  struct err *e);
void snapshot_close(struct snapshot *f);                 /* NULL is fine */
