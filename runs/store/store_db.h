/* Inside the store: what its files share. Only store*.c include this and sqlite3.h.
 *
 * Statements are prepared once per connection and kept by the address of their text, so every SQL text is a literal. Arguments
 * follow a format, one letter each:   i int64_t   d int   z size_t   r double   t const char * (NULL is NULL)
 *                                     b const void *, size_t (NULL is NULL)
 *
 *     if (db_begin(s, e)) return -1;
 *     if (db_run(s, e, "UPDATE job SET state = 'paused' WHERE id = ?1", "i", id)) goto fail;
 *     return db_commit(s, e);
 * fail:
 *     return db_rollback(s);                        always -1; e stays
 *
 *     sqlite3_stmt *q = db_query(s, e, "SELECT id FROM job WHERE batch = ?1", "i", batch);
 *     while ((rc = db_step(s, q, e)) == 1) ...      0 at the end, -1; both leave q reset. Leaving earlier: db_reset(q)
 *
 * A failed write breaks the file for this process: db_begin of every connection refuses from then on, saying why. */
#pragma once
#include <sqlite3.h>

#include "runs/store/owner.h"
#include "runs/store/store.h"

enum { STATEMENTS_MAX = 128 };

struct store {
    sqlite3 *db;
    char *path, *shown;                  /* absolute; as the user wrote it */
    struct store_options o;
    const char *fs;                      /* name of a network file system, or NULL */
    char notice[400];
    struct { const char *sql; sqlite3_stmt *st; } q[STATEMENTS_MAX];
    size_t n_q;
    /* filled by store_worker_start, and where others' workers are looked at; pid 0: not yet */
    struct owner self;
    struct watch watch;
    double busy_since, waited;           /* seconds, of the wait for others that is or was the last one */
    uint32_t jitter;
    uint64_t dev, ino;                   /* of the file */
    struct open_file *file;              /* in the register of open ones, or NULL */
    bool writes;                         /* between db_begin and its end */
};

/* store.c */
int  db_begin(struct store *s, struct err *e);       /* BEGIN IMMEDIATE */
int  db_begin_read(struct store *s, struct err *e);  /* for several reads of one moment; end with db_commit */
int  db_commit(struct store *s, struct err *e);
int  db_rollback(struct store *s);
/* the one of SQLite's checks that this pragma is: ERR_FAILED with what it found */
int  db_check(struct store *s, const char *pragma, struct err *e);
int  db_run(struct store *s, struct err *e, const char *sql, const char *fmt, ...);
int64_t db_changes(const struct store *s);           /* rows changed by the last db_run */
sqlite3_stmt *db_query(struct store *s, struct err *e, const char *sql, const char *fmt, ...);   /* NULL: failed */
int  db_step(struct store *s, sqlite3_stmt *q, struct err *e);
void db_reset(sqlite3_stmt *q);
/* First column of the first row: 1, none: 0, -1. */
int  db_get(struct store *s, struct err *e, int64_t *out, const char *sql, const char *fmt, ...);
/* Apply steps[have..want) and set user_version, in one transaction. */
int  store_migrate(struct store *s, const char *const *steps, int have, int want, struct err *e);

/* Strings of a list: blocks that live until the list is freed. */
struct strings { struct strings *next; size_t used, size; char v[]; };
void  strings_free(struct strings *t);
/* Column `i` of a row as a string in *t; NULL where it is NULL, or without memory (then *failed). */
const char *column_text(sqlite3_stmt *q, int i, struct strings **t, bool *failed);

/* store_jobs.c */
int event_put(struct store *s, int64_t job, int64_t attempt, const char *kind, const char *text, double at,
              struct err *e);
/* now */
int event_add(struct store *s, int64_t job, int64_t attempt, const char *kind, const char *text,
              struct err *e);

/* store_text.c */
struct chunks_end { size_t tokens; struct chain_link link; size_t n_part; int32_t part[CHUNK_TOKENS]; };
/* Write chunks so that ids[0..n) stand behind *end, and move *end; part of the caller's transaction. */
int chunks_append(struct store *s, int64_t job, struct chunks_end *end, const int32_t *ids, size_t n,
                  struct err *e);
/* The chain's end as it is to stand in job.link: behind the last chunk, full or not. */
struct chain_link chunks_link(const struct chunks_end *end);
/* All tokens of a job and where the text ends; inside the caller's transaction. */
int chunks_read(struct store *s, int64_t job, int32_t **ids, struct chunks_end *end, struct err *e);
