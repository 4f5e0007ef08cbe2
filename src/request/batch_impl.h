/* What the files of a batch share. */
#pragma once
#include <pthread.h>
#include <semaphore.h>
#include <uthash.h>

#include "src/decode/engine.h"
#include "src/request/batch.h"
#include "src/request/batch_line.h"
#include "src/request/chat_options.h"

/* parameters that request_check has accepted for this model and texts of at most n_max tokens; fits: the
 * longest text without a length, 0 if there was none yet */
struct checked { size_t n_max, fits; UT_hash_handle hh; char parameters[]; };

/* A model that requests name. The first request opens it. Threads share the model of a front; chats with
 * large messages or a template of their own take much memory, so HEAVY_MAX of them are read at a time. */
struct batch_model {
    char *name;
    struct engine engine;
    bool failed; struct err why;
    struct chat chat; bool chat_opened, chat_failed; struct err chat_why;
    struct chat_notes chat_notes;
    size_t bos_twice;                /* prompts that begin with the text of BOS */
    pthread_mutex_t lock; struct checked *checked;
    sem_t heavy;
    bool unfiltered;                     /* request_notice_unfiltered has spoken of it */
};

/* What a line has that continues another one. */
struct batch_chapter {
    bool bad;                            /* it was refused */
    int64_t job;                         /* a stored job before it; 0: the line `after` */
    struct job_lengths before;
    const char *after;                   /* custom_id or @NAME/custom_id */
    size_t n; char text[];               /* the line */
};

/* A line, by its custom_id. samples: 0 until it is read, and then its lengths are known. mine: of this
 * shard. chapter: NULL: it is none. */
struct batch_seen {
    size_t line, samples;
    bool mine;
    struct job_lengths lengths;          /* sampled: 0 without max_tokens */
    struct batch_chapter *chapter;
    UT_hash_handle hh; char custom_id[];
};

static inline int batch_no_memory(struct err *e)
{
    return err_set(e, ERR_FAILED, "out of memory for a batch");
}

/* ---- batch.c ---- */

/* Finds or opens the model of a line. A model that cannot be opened fails every line that names it. */
int batch_find_model(struct batch *b, struct batch_model **out, const char *name, const char *what,
                     struct err *e);
/* The line of this custom_id; NULL. */
struct batch_seen *batch_find(const struct batch *b, const char *custom_id);
/* Reads a line, and puts a chapter aside. seen: NULL, or a chapter, whose line is read again. */
int batch_read_line(struct batch *b, size_t line, const char *text, size_t n, struct batch_seen *seen,
                    struct err *e);

/* ---- batch_chapters.c ---- */

/* Reads a line or row of the file. With two or more bad lines the first go to stderr; *e is the first one.
 * -1: the rest is not read. */
int batch_take_line(struct batch *b, size_t line, const char *text, size_t n, struct err *e);
/* Reads the chapters whose chains begin in the file, and with a store the others, too. Refuses circles. Bad
 * lines are counted in b->bad. -1: another failure. */
int batch_chain(struct batch *b, struct store *s, struct err *e);

/* ---- batch_csv.c ---- */

/* Takes every row of a table. */
int batch_read_rows(struct batch *b, const char *text, size_t n, struct err *e);
