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

/* A line, by its custom_id. known: its lengths are; bad: it was refused; mine: of this shard. chapter: its
 * number among the chapters, from 1; 0: none. */
struct batch_seen {
    size_t line, samples, chapter;
    bool known, bad, mine;
    struct job_lengths lengths;          /* sampled: 0 without max_tokens */
    UT_hash_handle hh; char custom_id[];
};

struct batch_chapter {
    struct batch_seen *seen;
    char *after, *text; size_t n;        /* custom_id or @NAME/custom_id; the line */
    int64_t job;                         /* a stored job before it; 0: the line `after` */
    struct job_lengths before;
};

static inline int batch_no_memory(struct err *e)
{
    return err_set(e, ERR_FAILED, "out of memory for a batch");
}

/* ---- batch.c ---- */

/* b->read_line reads a line, and puts a chapter aside. c: NULL, or the chapter, whose line is read again. */
/* b->take_line reads a line or row, which is number `number` of the file, from 0. With two or more bad lines
 * the first go to stderr; *e is the first one. -1: the rest is not read. */
/* ---- batch_csv.c ---- */

/* Takes every row of a table. */
int batch_read_rows(struct batch *b, struct batch_notes *notes, const char *text, size_t n, struct err *e);

/* ---- batch_chapters.c: the lines by custom_id, and chapters, which are lines that continue others ---- */

/* The line of this custom_id; NULL. */
struct batch_seen *batch_find(const struct batch *b, const char *custom_id);
/* ERR_INPUT if another line has the custom_id. */
int batch_add_seen(struct batch *b, struct batch_seen **out, const char *custom_id, size_t line,
                   struct err *e);
/* Makes room for one more element of an array of n, which has room for a power of two. */
int batch_grow(void **v, size_t n, size_t size, struct err *e);
/* Counts and prints a bad line. -1: `one` is no mistake of the file. */
int batch_bad_line(struct batch *b, const struct err *one, struct err *e);
/* -1 if lines were bad. table: all were, and the file is perhaps of another kind. */
int batch_check_bad(const struct batch *b, bool table, struct err *e);

/* Puts a chapter aside. */
int batch_defer(struct batch *b, struct batch_seen *seen, const char *after, const char *text, size_t n,
                struct err *e);
/* Reads the chapters whose chains begin in the file, and with a store the others, too. Refuses circles. Bad
 * lines are counted in b->bad. -1: another failure. */
int batch_chain(struct batch *b, struct store *s, struct batch_notes *notes, struct err *e);
void batch_free_chapters(struct batch *b);
