/* What a snapshot holds of a decoder, and the way back.
 *
 *     image_open(&m, &decoder, &owner, &e)      behind decode_open; all memory is taken here
 *     image_take(&m, from, tokens)              between rounds or passes of decode_prefill: which rows, and a copy of what drafters know (small)
 *     image_write(&m, fd, stop, &e)             on any thread, while the decoder goes on: rows that are committed never change
 *     image_restore(&m, path, &e)               behind decode_append, before decode_prefill; file after file
 *     image_restore_drafters(&m)                behind decode_prefill
 *     image_close(&m)
 *
 * Sections: "kv", the rows of the target's cache in whole blocks; and one per drafter that keeps what its
 * passes cost to learn, by the drafter's name ("partial": what is selected, and what is known of its
 * budgets). Tables of the text itself are made again from the tokens. A drafter's section that does not fit
 * is left out, and costs one selection. */
#pragma once
#include "kvmgr/snapshot.h"
#include "src/decode/decode.h"

struct image {                           /* {0} is closed */
    struct decoder *d;                   /* borrowed */
    /* chain, tokens and rebuild_seconds: of what was taken, or restored */
    struct snapshot_owner owner;
    struct snapshot_part *part;          /* of the cache, [n_layers * n_kv_heads] */
    struct { void *p; size_t room, n; } state[N_SOURCES];
    struct snapshot_part state_part[N_SOURCES];
    struct snapshot_section section[SNAPSHOT_SECTIONS_MAX]; size_t n_sections;
    char shape[SNAPSHOT_SHAPE_BYTES];
    bool pending;                        /* state[] is what was read, and not the drafters' yet */
    /* rows that came from a snapshot; what its writer thought that they cost */
    size_t restored; double restored_seconds;
};

/* owner: job, attempt, fingerprint, numerics and context are taken over. */
int  image_open(struct image *m, struct decoder *d, const struct snapshot_owner *owner, struct err *e);
void image_close(struct image *m);

/* The most rows, up to `tokens` and those that are committed, that can be kept: how many. */
size_t image_rows(const struct image *m, size_t tokens);
/* Rows from .. rows-1, as image_rows gives them. The bytes of the file. */
uint64_t image_take(struct image *m, size_t from, size_t rows);
/* A snapshot_write_fn over what was taken. */
int  image_write(void *image, int fd, const atomic_bool *stop, struct err *e);

/* The file's rows, which follow those that are restored, into the cache of a decoder that has all its tokens.
 * On failure (not whole, not of this job, model or arithmetic, not of this text, not the next) e says why and
 * the decoder is as it was. */
int  image_restore(struct image *m, const char *path, struct err *e);
void image_restore_drafters(struct image *m);

/* Seconds that a pass over the first n tokens of the text would take: by operations, at the speed of this
 * attempt's own reading, or of the one that wrote the snapshot that was restored; before there is either,
 * three times that of the writing. 0: nothing is known. */
double image_rebuild_seconds(const struct image *m, size_t n);
