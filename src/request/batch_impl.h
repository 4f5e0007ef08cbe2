/* What the files of a batch share. */
#pragma once
#include <uthash.h>

#include "src/model/fingerprint.h"
#include "src/request/batch.h"
#include "src/request/batch_line.h"

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

/* ---- batch.c ---- */

/* Reads a line, and puts a chapter aside. c: NULL, or the chapter, whose line is read again. */
int batch_read_line(struct batch *b, size_t line, bool mine, const char *text, size_t n,
                    struct batch_chapter *c, struct batch_notes *notes, struct err *e);

/* Reads a line or row, which is number `number` of the file, from 0. With two or more bad lines the first go
 * to stderr; *e is the first one. -1: the rest is not read. */
int batch_take_line(struct batch *b, struct batch_notes *notes, size_t line, size_t number, const char *text,
                    size_t n, struct err *e);

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

/* ---- batch_stored.c: a batch whose name is known; its stored jobs stay as they are ---- */

/* The last fingerprint of a folder, for the next job; {0}: none yet. */
struct measured { char path[PATH_BYTES], fingerprint[FINGERPRINT_BYTES]; enum weights weights; };
/* Jobs that have the model of --model at another place; `here` is that model, `there` the one of a job. */
struct batch_moved { int64_t *ids; size_t n; struct measured here, there; };
/* Refuses options of the command line that decide texts and that stored jobs of this name do not have. */
int batch_check_stored(const struct batch *b, struct store *s, struct batch_moved *m, struct err *e);
