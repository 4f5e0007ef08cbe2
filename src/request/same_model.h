/* Whether a stored job that has its model at another place has this very model. Start at same_model. */
#pragma once
#include "runs/store/store.h"
#include "src/model/fingerprint.h"

/* The last fingerprint of a folder, for the next job. */
struct measured { char path[PATH_BYTES], fingerprint[FINGERPRINT_BYTES]; enum weights weights; };
struct same_model {
    const char *path;                    /* the model; as in the row of a job */
    const char *tokenizer;               /* tokenizer_sha of it */
    struct pool *pool;
    struct measured here, there;         /* begin as {0} */
};
/* 1: the job's fingerprint is the model's. A job that has not begun has none: then the model at its place
 * counts, and if that cannot be read, the tokenizer of its prompt. 0: another model; -1: this one cannot be
 * read, or a stop signal (ERR_AGAIN). */
int same_model(struct same_model *m, const struct stored_request *r, struct err *e);
