/* The file of a snapshot: rows of the caches of one text, as named sections with checksums. A snapshot saves
 * the pass over the text when a job resumes. It is never needed, and a file with a single wrong bit is not
 * used.
 *
 *     header      4096 bytes: "LHKVSNAP", version, owner (struct snapshot_owner), sections, CRC-32 of
 *                 the table and of the header
 *     data        section after section, in pieces of 1 MiB counted from the start of each section (the last
 *                 piece is shorter)
 *     table       CRC-32 of each piece
 *
 * Numbers are little-endian; data has the bytes of memory. The header is written last, so an unfinished file
 * has none.
 *
 *     write   snapshot_write(fd, &owner, sections, n, &stop, &e)     the caller syncs and renames
 *     read    snapshot_open(&f, path, &e)      header and table
 *             snapshot_check(f, pool, &e)      every piece, before anything is changed
 *             snapshot_read(f, ...)            into memory; checks each piece once more
 *             snapshot_close(f) */
#pragma once
#include <stdatomic.h>

#include "kernels/pool.h"
#include "kvmgr/kv.h"

enum { SNAPSHOT_SECTIONS_MAX = 8, SNAPSHOT_NAME_BYTES = 32, SNAPSHOT_SHAPE_BYTES = 64,
       SNAPSHOT_PIECE = 1 << 20 };

struct snapshot_owner {
    int64_t job, attempt;
    /* of the model; of the arithmetic; value of --context-scaling */
    char fingerprint[68], numerics[36], context[64];
    uint8_t chain[32];  /* SHA-256 of the first `tokens` token ids, prompt included, 32 bits each */
    uint64_t from, tokens;           /* the file has rows from .. tokens-1 of the target's cache */
    /* estimated time of a pass over the first `tokens` tokens when the file was written */
    double rebuild_seconds;
};

/* Memory that a section is written from or read into; p NULL: these bytes are not read. */
struct snapshot_part { void *p; size_t n; };
struct snapshot_section {
    /* shape: the meaning of the bytes; a section is read back only into the same shape */
    const char *name, *shape;
    const struct snapshot_part *part; size_t n_parts;
    /* NULL: the parts lie in the host's memory. Otherwise they lie in the device's memory and are fetched
     * while the device computes; the caller calls fetch_mark. */
    struct device *dev;
};

/* The section "kv" of the target's cache: rows from .. n-1, both multiples of KV_BLOCK, so that rows written
 * meanwhile share no block with them; without rings. Fills part[all heads * n_runs]; returns the number of
 * parts. own: the shared blocks are not read. */
size_t kv_parts(const struct kv *kv, size_t from, size_t n, bool own, struct snapshot_part *part);
void   kv_shape(const struct kv *kv, char out[SNAPSHOT_SHAPE_BYTES]);

/* Bytes of the file. */
uint64_t snapshot_bytes(const struct snapshot_section *s, size_t n);
/* Writes from offset 0 of fd. The memory of the parts must not change meanwhile. The file is synced in
 * stretches, so that the syncs of other files do not wait for gigabytes. *stop (may be NULL) is read between
 * pieces: ERR_AGAIN. */
int snapshot_write(int fd, const struct snapshot_owner *o, const struct snapshot_section *s, size_t n,
                   const atomic_bool *stop, struct err *e);

struct snapshot;
int  snapshot_open(struct snapshot **f, const char *path, struct err *e);
const struct snapshot_owner *snapshot_owner(const struct snapshot *f);
/* pool NULL: one thread */
int  snapshot_check(const struct snapshot *f, struct pool *pool, struct err *e);
/* Size of the section of this name and shape; 0: no such section. */
size_t snapshot_size(const struct snapshot *f, const char *name, const char *shape);
/* Reads a section into the parts, which together have its size (asserted). After a failure the parts hold
 * undefined bytes. Parts in a device's memory: call it on the device's thread. */
int snapshot_read(const struct snapshot *f, const struct snapshot_section *s, struct pool *pool,
                  struct err *e);
void snapshot_close(struct snapshot *f);                 /* NULL is allowed */
