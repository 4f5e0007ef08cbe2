/* The lines of a batch file by custom_id, and its chapters: lines that continue others. batch.c reads every
 * line once and puts chapters aside; batch_chain reads them when the lines before them are known. */
#pragma once
#include <uthash.h>

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

/* The line of this custom_id; NULL. */
struct batch_seen *batch_find(const struct batch *b, const char *custom_id);
/* ERR_INPUT if another line has the custom_id. */
int batch_add_seen(struct batch *b, struct batch_seen **out, const char *custom_id, size_t line,
                   struct err *e);
/* Makes room for one more element of a growing array. */
int batch_grow(void **v, size_t n, size_t *room, size_t size, struct err *e);
/* Counts and prints a bad line. -1: `one` is no mistake of the file. */
int batch_bad_line(struct batch *b, const struct err *one, struct err *e);
/* -1 if lines were bad. table: all were, and the file is perhaps of another kind. */
int batch_check_bad(const struct batch *b, bool table, struct err *e);

/* Puts a chapter aside. */
int batch_defer(struct batch *b, struct batch_seen *seen, const char *after, const char *text, size_t n,
                struct err *e);
/* Reads the chapters whose chains begin in the file, and with a store the others, too. Refuses circles. Bad
 * lines are counted in b->bad. -1: another failure. reader: reads the line of a chapter. */
typedef int batch_reader(struct batch *b, size_t line, bool mine, const char *text, size_t n,
                         struct batch_chapter *c, struct batch_notes *notes, struct err *e);
int batch_chain(struct batch *b, struct store *s, batch_reader *reader, struct batch_notes *notes,
                struct err *e);
void batch_free_chapters(struct batch *b);
