/* A batch file -> jobs. batch_open reads and checks the whole file; if one line is bad, nothing is stored.
 *
 *     struct batch b;
 *     if (batch_open(&b, o, &e)) ...           the bad lines are on stderr, unless e describes the only one
 *     if (batch_submit(&b, store, &e)) ...     one transaction
 *     b.name, b.ids[0 .. b.n), b.n_new
 *     batch_close(&b);
 *
 * Chapters (struct chapter_spec). A line may continue another one, wherever that one stands in the file, or a
 * stored job. Such lines are read again in the order of their chains, when the lengths before them are known;
 * those that continue stored jobs by batch_submit.
 *
 * --shard I/N: line i of the file (from 1, empty lines included) belongs to part (i-1) mod N + 1, a chapter
 * to the part of the line that it continues. The other lines are checked and not stored. A request of n
 * samples is n jobs. A line without a seed gets the first 8 bytes (little-endian) of the SHA-256 of S (64
 * bits, little-endian) and custom_id. S is --seed, or drawn. Two lines must not have the same custom_id.
 *
 * Submitting a batch of a known name adds its new requests. Existing jobs stay unchanged. If an option that
 * was given on the command line decides texts and differs from that of a stored job, the submission is
 * refused, unless --keep is given. A drawn seed and options of drafting and of the machine never count. Nor
 * does the place of --model: jobs that have this very model at another place have it here from now on. Each
 * model (--model, else the model of the body) is opened once, without weights. */
#pragma once
#include "src/request/batch_line.h"

enum { BATCH_MODELS_MAX = 16, BATCH_ERRORS_SHOWN = 20 };

struct batch {                           /* {0} is closed */
    const struct options *o;
    const char *file, *row;              /* its name in messages, and what its lines are called */
    char separator;                      /* of the cells of a table; 0: the file has lines */
    char name[BATCH_NAME_BYTES_MAX + 1];
    uint64_t seed;                       /* S */
    struct job_spec *spec; size_t n;     /* by line, then sample; sample 0 owns the texts */
    int64_t *ids; size_t n_new;          /* after batch_submit: the job of each spec */
    struct batch_model *model; size_t n_models;
    struct batch_seen *seen;             /* the custom_ids of all lines */
    size_t lines, bad, shard, shards;    /* lines read, and bad ones; --shard */
    struct batch_notes notes;            /* of all lines */
    bool is_body;                        /* of batch_open_body: `model` belongs to another batch */
};

int  batch_open(struct batch *b, const struct options *o, struct err *e);
int  batch_submit(struct batch *b, struct store *s, struct err *e);
void batch_close(struct batch *b);

/* The requests of a server. A front is a batch without lines whose model and chat template are open, without
 * weights. Threads share a front, each with bodies of its own. */
int  batch_open_front(struct batch *front, const struct options *o, struct err *e);
const struct engine *batch_front_engine(const struct batch *front);
/* Turns the body of a request to /v1/completions or /v1/chat/completions into the jobs b->spec[0 .. b->n),
 * for store_submit_request; batch_close. Messages about the body begin with BATCH_BODY. o: of the front, with
 * options.held of now; it must live as long as b. */
#define BATCH_BODY "request"
int  batch_open_body(struct batch *b, const struct batch *front, const struct options *o, bool chat,
                     const char *text, size_t n, struct err *e);
/* The seed of a line without a seed. */
uint64_t batch_line_seed(uint64_t seed, const char *custom_id);
