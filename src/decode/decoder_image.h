/* What a snapshot holds of a decoder, and how a decoder gets it back.
 *
 *     image_open(&m, &decoder, &owner, &e)      after decode_open; takes all memory
 *     image_capture(&m, from, rows)             between rounds, or between chunks of decode_prefill: notes
 *                                               the rows to write, copies the small state of the drafters
 *     image_write(&m, fd, stop, &e)             on any thread while the decoder continues: committed rows
 *                                               never change
 *     image_restore(&m, path, &e)               after decode_append, before decode_prefill; file after file
 *     image_restore_drafters(&m)                after decode_prefill
 *     image_close(&m)
 *
 * Section "kv" holds rows of the target's cache in whole blocks. A drafter whose state is dear to rebuild has
 * a section of its own, named after the drafter. "partial" holds the selection and what is known about each
 * cache budget. Tables of the text are rebuilt from the tokens. A drafter's section that does not fit is
 * ignored, which costs one selection.
 *
 * The decoder of a model with rings also has a section "rings": the windows before its last row.
 *
 * The decoder of a hybrid also has a section "states": its recurrent states, which cannot be cut back, and
 * the block that its last rows share with later ones. Such an image is exact: it has all rows that are
 * committed, and no fewer, so whoever captures it first commits the tokens of these rows. */
#pragma once
#include "kvmgr/snapshot.h"
#include "src/decode/decode.h"

struct image {                           /* {0} is closed */
    struct decoder *d;                   /* borrowed */
    /* its chain, tokens and rebuild_seconds describe the rows that were captured or restored last */
    struct snapshot_owner owner;
    struct snapshot_part *part;          /* of the cache, [all heads * n_runs] */
    /* a copy of the states of a hybrid and of the last block of each head; or of the windows; or NULL */
    char *exact; size_t exact_bytes;
    struct snapshot_part exact_part;
    char exact_shape[SNAPSHOT_SHAPE_BYTES];
    struct { void *p; size_t room, n; } state[N_DRAFTERS];
    struct snapshot_part state_part[N_DRAFTERS];
    struct snapshot_section section[SNAPSHOT_SECTIONS_MAX]; size_t n_sections;
    char shape[SNAPSHOT_SHAPE_BYTES];
    const size_t *most;                  /* rows that may be captured; NULL: all that are committed */
    /* state[] was read from a file, and the drafters do not have it yet */
    bool pending;
    /* rows that came from a snapshot; seconds that their prefill would take, as its writer estimated */
    size_t restored; double restored_seconds;
};

/* Takes job, attempt, fingerprint, numerics and context from `owner`. */
int  image_open(struct image *m, struct decoder *d, const struct snapshot_owner *owner, struct err *e);
void image_close(struct image *m);

/* The most bytes of that copy; 0: none. */
size_t image_state_bytes(const struct model *m);
/* The number of rows that a snapshot of a text with `tokens` >= 1 stored tokens can hold: committed rows in
 * whole blocks, without that of the last token, which a resumed text reads again. With an exact image: all
 * committed rows. */
size_t image_rows(const struct image *m, size_t tokens);
/* Captures rows from .. rows-1, where `rows` comes from image_rows. Returns the size of the file in bytes. */
uint64_t image_capture(struct image *m, size_t from, size_t rows);
/* A snapshot_write_fn: writes the captured rows and states. */
int  image_write(void *image, int fd, const atomic_bool *stop, struct err *e);

/* Reads the rows of a file, which continue the restored rows, into the cache of a decoder that has all its
 * tokens. Fails for a damaged file, for another job, model, arithmetic or text, and for a file that is not
 * the next one; then the decoder is unchanged. */
int  image_restore(struct image *m, const char *path, struct err *e);
void image_restore_drafters(struct image *m);

/* Estimates the seconds that reading the first n tokens takes. The number of operations is exact. The speed
 * is that of this attempt's prefill, else that of the attempt that wrote the restored snapshot, else three
 * times the speed of verification passes. 0: nothing is known. */
double image_rebuild_seconds(const struct image *m, size_t n);
