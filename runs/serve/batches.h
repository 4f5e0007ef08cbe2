/* /v1/batches: an uploaded file becomes jobs named after the batch, by the rules of `submit --batch`. A
 * thread checks the files, one after the other, without a lock. What the server knows of a batch beside its
 * jobs is in ID.json in the folder of the files. */
#pragma once
#include "runs/serve/http.h"

enum { BATCH_LINES_MAX = 50000, BATCH_BYTES_MAX = 65536 };       /* bytes: of a request for a batch */

answer_fn answer_new_batch;
answer_fn answer_batches;
answer_fn answer_batch;
answer_fn answer_cancel_batch;

/* The thread that checks files; it begins with those that an earlier server left. */
int  batches_start(struct server *sv, struct err *e);
void batches_stop(struct server *sv);            /* also where batches_start was not called */

/* When the batch whose results this file has was made, in seconds since 1970; 0: there is none. */
double batch_created(struct call *c, const char *file);
/* Whether the batch has ended with such results. */
bool batch_has(struct call *c, const char *file);
/* Writes the results of a batch as `export` does: a descriptor of the file, or -1. */
int  batch_write_results(struct call *c, const char *file, struct err *e);
