/* A request for a text from the command line or a line of a batch, checked and ready to be stored: `submit` and `run` begin alike. */
#pragma once
#include "runs/store/store.h"
#include "src/request/job_params.h"

struct request {                     /* {0} is closed */
    const struct options *o;
    char *prompt; size_t prompt_bytes;
    int32_t *ids; size_t n_ids;
    const char *chat_template;       /* its name; NULL: no chat */
    struct sampling sampling;        /* as the command line says, seed drawn or given */
    char *parameters;                /* JSON */
};

/* Opens g (headers, configuration, tokenizer; no weights) and checks everything that can be checked without weights. */
int  request_open(struct request *r, const struct options *o, struct engine *g, struct err *e);
/* The second half of it, in two: with prompt and ids there, the length, the parameters; then all that a worker would refuse. The latter depends on parameters
 * and length alone, and with DRY it takes a walk over the vocabulary. */
int  request_describe(struct request *r, const struct engine *g, struct err *e);
int  request_check(const struct request *r, const struct engine *g, struct err *e);
void request_close(struct request *r);
/* --samples jobs in one transaction; ids [o->samples]. */
int request_submit(const struct request *r, const struct engine *g, struct store *s, bool paused,
                   int64_t *ids, struct err *e);
/* What stop strings must be; `name` is what messages call them. */
int  request_check_stop(const char *name, const struct text_list *stop, struct err *e);
