/* A batch whose name is known: its stored jobs stay as they are. */
#pragma once
#include "src/model/fingerprint.h"
#include "src/request/batch.h"

/* Whether a stored job that has its model at another place has this very model. */
struct same_model {
    const char *path;                    /* the model; as in the row of a job */
    const char *tokenizer;               /* tokenizer_sha of it */
    struct pool *pool;
    /* The last fingerprint of a folder, for the next job. */
    struct measured { char path[PATH_BYTES], fingerprint[FINGERPRINT_BYTES]; enum weights weights; }
        here, there;
};
/* Jobs that have the model of --model at another place. */
struct batch_moved { struct same_model same; int64_t *ids; size_t n; };
/* Refuses options of the command line that decide texts and that stored jobs of this name do not have. */
int batch_check_stored(const struct batch *b, struct store *s, struct batch_moved *m, struct err *e);
