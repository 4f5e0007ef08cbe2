/* A batch file -> jobs. The whole file is read and checked before anything is stored; one bad line and nothing is.
 *
 *     struct batch b;
 *     if (batch_open(&b, o, &e)) ...           the bad lines are on stderr, one line each; e is the only one, or their number
 *     if (batch_submit(&b, store, &e)) ...     one transaction
 *     b.name, b.ids[0 .. b.n), b.n_new
 *     batch_close(&b);
 *
 * Line i of the file (from 1, empty ones counted) belongs to part (i-1) mod N + 1 of --shard I/N; the other lines are checked, and not stored. A request
 * of n samples is n jobs. The seed of a line without one is the first 8 bytes (little-endian) of the SHA-256 of S (64 bits, little-endian) and custom_id,
 * where S is --seed, or drawn. The same custom_id in two lines is an error.
 *
 * Submitting a name again adds what is new. What is there stays as it is, also where the options of the command line are others now; only the body of
 * a request is compared. Models (--model, else that of the body) are opened once each, without weights. */
#pragma once
#include "runs/store/store.h"
#include "src/request/options.h"

enum { BATCH_MODELS_MAX = 16, BATCH_ERRORS_SHOWN = 20 };

struct batch {                           /* {0} is closed */
    const struct options *o;
    const char *file;                    /* as messages name it */
    char name[BATCH_NAME_BYTES_MAX + 1];
    uint64_t seed;                       /* S */
    struct batch_request *v; size_t n_requests, room;
    struct job_spec *spec; size_t n, room_specs;     /* by line, then sample; strings belong to `v` */
    int64_t *ids; size_t n_new;          /* after batch_submit: the job of each spec */
    struct batch_model *model; size_t n_models;
    struct batch_seen *seen;             /* custom_ids of all lines */
};

int  batch_open(struct batch *b, const struct options *o, struct err *e);
int  batch_submit(struct batch *b, struct store *s, struct err *e);
void batch_close(struct batch *b);
