/* The connection to the store's file, shared by the files of runs/store. Only files of runs/store
 * include this header and sqlite3.h.
 *
 * SQL. Each connection prepares a statement once and keeps it by the address of its text, so every SQL
 * text is a literal. A format string has one letter for each argument:
 *     i int64_t   d int, bool   z size_t   r, f double   t const char * (NULL binds NULL)
 *     n size_t (0 binds NULL)   s the same as t
 *     b const void *, size_t (NULL binds NULL)   h const void *: SHA256_BYTES bytes (NULL binds NULL)
 *     p const int32_t *, size_t: token ids, for two parameters: CRC-32 and the ids, packed (db_run alone)
 * The text of db_run may be several statements, which have the arguments in common.
 *
 *     if (db_begin(s, e))
 *         return -1;
 *     int rc = db_run(s, e, "UPDATE job SET state = 'paused' WHERE id = ?1", "i", id);
 *     return db_end(s, rc, e);                      commits when rc is 0, else rolls back and returns rc
 *
 *     rc = db_read(s, e, "SELECT tokens, state FROM job WHERE id = ?1", "i>zt", id, &tokens, state,
 *                  sizeof state);
 *
 *     sqlite3_stmt *q = db_query(s, e, "SELECT id FROM job WHERE batch = ?1", "i", batch);
 *     while ((rc = db_step(s, q, e)) == 1) ...      0 at the end, -1 on failure
 *     A loop that leaves early calls db_reset(q).
 *
 * Failed writes. After a failed write, db_begin of every connection of this process to the file fails and
 * repeats the reason. */
#pragma once
#include <sqlite3.h>

#include "runs/store/job_fields.h"
#include "runs/store/owner.h"
#include "runs/store/store.h"

enum { STATEMENTS_MAX = 128 };

struct store {
    sqlite3 *db;
    char *path, *shown;                  /* absolute path; path as the user wrote it, for messages */
    struct store_options o;
    const char *fs;                      /* name of the network file system, or NULL */
    char notice[400];                    /* for store_notice */
    struct statement { const char *sql, *next; sqlite3_stmt *st; } q[STATEMENTS_MAX];    /* next: after it */
    size_t n_q;
    struct owner self;                   /* this process; pid 0: not read yet */
    struct watch watch;                  /* beats of other workers */
    double busy_since, waited;           /* the current or last wait for a lock: its start, its seconds */
    uint32_t jitter;                     /* state of the generator for waiting times */
    uint64_t dev, ino;                   /* identity of the file */
    struct open_file *file;              /* entry in the register of open files, or NULL */
    bool writes;                         /* between db_begin and the end of the transaction */
    bool reads;                          /* between store_read_begin and store_read_end */
    int migrated_from;                   /* version of the tables that store_open found; 0: this one */
    bool is_backup;                      /* the file is an untouched backup: the next write says otherwise */
};

/* ---- connections ---- */

/* Register s->file for (s->dev, s->ino). The first connection of this process to the file runs `check`
 * before SQLite opens the file; *first says so. */
int  db_register(struct store *s, int (*check)(struct store *s, struct err *e), bool *first, struct err *e);
/* Open s->path with longhand's settings: rollback journal, synchronous=EXTRA, foreign keys, secure delete. */
int  db_connect(struct store *s, struct err *e);
/* Close the connection, if it is open, and leave the register. */
void db_disconnect(struct store *s);
/* Run one of SQLite's check pragmas. ERR_FAILED carries its first finding. */
int  db_check(struct store *s, const char *pragma, struct err *e);

/* ---- statements ---- */

int  db_run(struct store *s, struct err *e, const char *sql, const char *fmt, ...);
/* Run SQL of several statements, in a transaction. `doing` begins the message of a failure. */
int  db_script(struct store *s, const char *sql, const char *doing, struct err *e);
int64_t db_changes(const struct store *s);           /* rows that the last db_run changed */
/* NULL: failed */
sqlite3_stmt *db_query(struct store *s, struct err *e, const char *sql, const char *fmt, ...);
int  db_step(struct store *s, sqlite3_stmt *q, struct err *e);   /* q NULL: -1, e stays */
void db_reset(sqlite3_stmt *q);
/* The first row: 1; 0: no row; -1. After a '>' the format has a letter for each column, whose place is an
 * argument: a letter of struct db_column, but t is char *, size_t, where SQL's NULL is "". s is char *, a
 * copy for free. h is SHA256_BYTES bytes, which stay as they are if the column has another size. */
int  db_read(struct store *s, struct err *e, const char *sql, const char *fmt, ...);

/* ---- transactions ---- */

int  db_begin(struct store *s, struct err *e);       /* BEGIN IMMEDIATE */
int  db_begin_read(struct store *s, struct err *e);  /* several reads of one moment */
int  db_rollback(struct store *s);                   /* always -1 */
/* rc 0: COMMIT. Otherwise roll back and return rc; *e stays. */
int  db_end(struct store *s, int rc, struct err *e);
/* One transaction of n parts, each in its own savepoint. write(s, v, i) writes part i and returns NULL, or
 * the reason why the part is taken back. */
int  db_parts(struct store *s, struct err *e, void *v, size_t n,
              const struct err *(*write)(struct store *s, void *v, size_t i));

/* ---- lists ---- */

/* Strings that live until their list is freed. */
struct strings { struct strings *next; char v[]; };
void  strings_free(struct strings *t);
/* Column `i` of a row as a string in *t. NULL for SQL's NULL; without memory NULL and *failed. */
const char *column_text(sqlite3_stmt *q, int i, struct strings **t, bool *failed);
/* The same as malloc'ed memory. */
char *column_copy(sqlite3_stmt *q, int i, bool *failed);
/* A column of a query and its place in a struct. A list of fields names both once, each as
 * X(letter, place, SQL), with a letter for the type of the place:
 *     'i' int64_t   'z' size_t, uint64_t   'd' int, unsigned   'r' double   'f' float   'b' bool
 *     'n' size_t whose 0 is SQL's NULL
 *     't' const char *: a string of the list; SQL's NULL is NULL, and in the other types 0
 *     's' char *, malloc'ed where it is read; NULL is SQL's
 *
 *     #define SPAN_FIELDS(X) X('z', start, "start") X('t', kind, "kind")
 *     "SELECT 0" SPAN_FIELDS(DB_SQL) " FROM span"
 *     typedef struct text_span row;  static const struct db_column columns[] = { SPAN_FIELDS(DB_PLACE) }; */
struct db_column { char letter; size_t place; };
#define DB_SQL(letter, place, sql, ...) ", " sql
#define DB_PLACE(letter, place, ...) { letter, offsetof(row, place) },
/* Writes the struct *r to a row of a job. The SQL of each field is the name of its column. DB_VALUE needs the
 * pointer `r`, as DB_PLACE needs the type `row`. */
#define DB_PUT(s, e, insert, table, fields, job, more) \
    db_run(s, e, insert " INTO " table " (job" fields(DB_SQL) ") VALUES (?1" fields(DB_PARAMETER) ")" more, \
           (const char[]){ 'i', fields(DB_LETTER) 0 }, job fields(DB_VALUE))
#define DB_PARAMETER(...) ", ?"
#define DB_LETTER(letter, ...) letter,
#define DB_VALUE(letter, place, ...) , r->place
/* Reads the columns from `first` on into the struct at `to`. */
void  db_row(sqlite3_stmt *q, int first, const struct db_column *c, size_t n, void *to, struct strings **t,
             bool *failed);
/* Frees the values of the letter 's' and clears them. */
void  db_row_free(const struct db_column *c, size_t n, void *of);
/* The column of a row of job_fields.h. */
#define FIELD_COLUMN(letter, member, ...) ", " #member
/* The columns of tables of jobs but `job`, and the statement that gives the job ?2 the rows of the job ?1. */
#define CHUNK_COLUMNS ", start, n, link, crc, data"
#define INPUT_COLUMNS ", prompt, ids, crc" INPUT_FIELDS(FIELD_COLUMN)
#define LOGPROB_COLUMNS ", start, n, best, crc, data"
#define PART_COLUMNS ", start, parameters, fingerprint"
#define RETAKE_COLUMNS ", at, token, length, since, reason"
#define SPAN_COLUMNS ", start, n, kind, parent, text"
#define COPY_ROWS(table, columns) \
    "INSERT INTO " table " (job" columns ") SELECT ?2" columns " FROM " table " WHERE job = ?1"
/* After an INSERT of parts: what is NULL stays as it is. */
#define MERGE_PARTS \
    " ON CONFLICT (job, start) DO UPDATE SET parameters = ifnull(excluded.parameters, parameters), " \
    "fingerprint = ifnull(excluded.fingerprint, fingerprint)"

#define METRIC_FIELDS(X) \
    X('z', window, "start") X('t', source, "source") X('t', name, "name") X('d', index, "idx") \
    X('r', value, "value")
#define ROUND_FIELDS(X) \
    X('z', start, "start") X('z', tokens, "tokens") X('t', sources, "sources") X('d', depth, "depth") \
    X('d', drafted, "drafted") X('d', rows, "rows") X('d', accepted, "accepted") \
    X('f', draft_seconds, "draft_seconds") X('f', verify_seconds, "verify_seconds")
/* Adds the rows of a query to the list *v [*n] of structs of `size` bytes. Their columns begin at 1. */
struct db_rows { const struct db_column *c; size_t n, size; };
int   db_list(struct store *s, struct err *e, struct db_rows rows, void *v, size_t *n, struct strings **t,
              const char *sql, const char *fmt, ...);
#define DB_ROWS(c, v) ((struct db_rows){ c, sizeof c / sizeof *c, sizeof *(v) })
extern const struct db_rows db_numbers;              /* int64_t */
#define db_ids(s, e, ids, n, ...) db_list(s, e, db_numbers, ids, n, NULL, __VA_ARGS__)
/* The function that reads a list *out, and the one that frees it. After `from`: the arguments of the SQL. */
#define DB_LIST(function, parameters, list, element, fields, from, ...) \
    int function parameters \
    { \
        typedef struct element row; \
        static const struct db_column c[] = { fields(DB_PLACE) }; \
        *out = (struct list){0}; \
        const int rc = db_list(s, e, DB_ROWS(c, out->v), &out->v, &out->n, &out->text, \
                               "SELECT 0" fields(DB_SQL) " FROM " from, __VA_ARGS__); \
        if (rc) \
            list##_free(out); \
        return rc; \
    } \
    DB_LIST_FREE(list)
#define DB_LIST_FREE(list) \
    void list##_free(struct list *l) { free(l->v); strings_free(l->text); *l = (struct list){0}; }
/* For qsort: ascending by the int64_t that an element begins with. */
int   by_number(const void *a, const void *b);
/* The tokens that retakes took back from the rounds of the job in a row of `job`. */
#define TAKEN_BACK(job) \
    "(SELECT ifnull(sum(x.length - x.at), 0) FROM retake x WHERE x.job = " job ".id AND " \
    "x.at >= ifnull(" job ".parent_at, 0))"
/* Columns i .. i + 4 are OWNER_COLUMNS of a worker w. */
#define OWNER_COLUMNS "w.host, w.boot, w.spaces, w.pid, w.start"
void  column_owner(sqlite3_stmt *q, int i, struct owner *o);

/* ---- store_open.c ---- */

/* Apply steps[have .. want-1] and set user_version, in one transaction. */
int  store_migrate(struct store *s, const char *const *steps, int have, int want, struct err *e);

/* ---- store_model.c ---- */

/* The user has accepted the model `now` in place of `before` for a job with so many tokens. ERR_INPUT if it
 * would turn them into another text. record: the change is stored. Part of the caller's transaction. */
int model_adopt(struct store *s, int64_t job, size_t tokens, const char *before, const char *now, bool record,
                struct err *e);
/* The event of a change: what, now, before, tokens. */
#define CHANGE_FORMAT "%s %.150s instead of %.150s from token %zu on"
/* store_model_move of one job. Part of the caller's transaction. */
int model_move(struct store *s, int64_t job, const struct model_place *m, struct err *e);

/* ---- store_input.c ---- */

/* An event of the job. `attempt`: ATTEMPT_NOW is the job's attempt. */
enum { ATTEMPT_NOW = -1 };
int event_add_at(struct store *s, struct err *e, int64_t job, double at, int64_t attempt, const char *kind,
                 const char *text);
int event_add(struct store *s, struct err *e, int64_t job, int64_t attempt, const char *kind, const char *fmt,
              ...) __attribute__((format(printf, 6, 7)));
/* The ids of the prompt: *ids [*n], free(*ids). */
int prompt_read(struct store *s, int64_t job, int32_t **ids, size_t *n, struct err *e);
/* A new job from an old one: its request, queued, with the link that the old one has. Part of the caller's
 * transaction. */
int job_copy(struct store *s, int64_t old, int64_t *id, struct err *e);

/* ---- store_jobs.c ---- */

/* store_submit as a part of the caller's transaction. */
int jobs_submit(struct store *s, const char *batch, const struct job_spec *v, size_t n, int64_t *ids,
                bool *is_new, size_t *bad, struct err *e);
/* Inside a transaction: cancel those of n jobs that are requests. */
int requests_cancel(struct store *s, const int64_t *ids, size_t n, struct err *e);
/* Inside a transaction: cancel the requests without a key of this worker, which has ended. */
int requests_abandon(struct store *s, int64_t worker, struct err *e);
/* Give the job a name of its own; NULL: it has the one it had. Part of the caller's transaction. */
int job_rename(struct store *s, int64_t job, const char *name, bool replace, struct err *e);

/* ---- chapters.c ---- */

/* The queue's order. */
#define QUEUE_ORDER "ifnull(chain, id), depth DESC, id"
/* Within the statements about a row of `job`: it is a chapter that must wait. */
#define CHAPTER_WAITS \
    "EXISTS (SELECT 1 FROM chapter c WHERE c.job = job.id AND c.sha IS NULL AND NOT EXISTS " \
    "(SELECT 1 FROM job p WHERE p.id = c.after AND p.state = 'done'))"
/* The rows of the chapters among n jobs of a submission. Part of the caller's transaction. */
int chapters_add(struct store *s, int64_t batch, const struct job_spec *v, size_t n, const int64_t *ids,
                 const bool *is_new, struct err *e);
/* ERR_INPUT if chapters other than ids[0..n), ascending, wait for one of them. */
int chapters_refuse(struct store *s, const int64_t *ids, size_t n, struct err *e);
/* If `old` is a chapter: its copy `job`, whose rows in job and input exist, waits for `after` (0: for the
 * same job) and has no prompt yet. */
int chapter_renew(struct store *s, int64_t old, int64_t job, int64_t after, struct err *e);
/* edit_spec.follow: before the fork of job `old` is made, copies of the chapters before it; afterwards the
 * fork's place in the book, and the chapters after it. Parts of the caller's transaction. */
struct new_book { int64_t batch, last; };            /* last: the copy that the fork continues; 0: none */
int book_copy(struct store *s, int64_t old, const char *name, struct new_book *b, struct err *e);
int book_follow(struct store *s, int64_t old, int64_t now, const struct new_book *b, struct err *e);
/* ERR_INPUT if this job is a chapter that must wait. */
int chapter_check(struct store *s, int64_t job, struct err *e);

/* ---- logprobs.c ---- */

/* Write the log-probabilities v [n][1 + best] of tokens start .. start + n - 1; logprobs_cut deletes those of
 * the tokens from `keep` on. Parts of the caller's transaction. */
int logprobs_append(struct store *s, int64_t job, size_t start, const struct logprob *v, size_t n,
                    size_t best, struct err *e);
int logprobs_cut(struct store *s, int64_t job, size_t keep, struct err *e);

/* ---- store_retakes.c: parts of the caller's transaction; they keep end->retakes ---- */

int retakes_append(struct store *s, int64_t job, struct text_end *end, const struct retake *v, size_t n,
                   struct err *e);
/* Delete the retakes from token `keep` on. */
int retakes_cut(struct store *s, int64_t job, size_t keep, struct text_end *end, struct err *e);
/* Give the job `to` the retakes of `from` before token `before`. */
int retakes_copy(struct store *s, int64_t from, int64_t to, size_t before, struct text_end *end,
                 struct err *e);
/* Read the chain. */
int retakes_chain(struct store *s, int64_t job, struct text_end *end, struct err *e);

/* ---- store_text.c ---- */

/* Delete the tokens from `keep` on and what belongs to them but parts and retakes; move *end. */
int chunks_cut(struct store *s, int64_t job, size_t keep, struct text_end *end, struct err *e);

/* Write chunks so that ids[0..n) follow *end, and move *end. Part of the caller's transaction. */
int chunks_append(struct store *s, int64_t job, struct text_end *end, const int32_t *ids, size_t n,
                  struct err *e);
/* Append given tokens with their span. Then bring the job's row in line with its chunks and spans. Part of
 * the caller's transaction. */
int append_given(struct store *s, int64_t job, struct text_end *end, const struct given_text *g,
                 size_t wanted, struct err *e);
/* The chain's end as job.link stores it: after the last chunk, full or not. */
struct chain_link chunks_link(const struct text_end *end);
/* All tokens of a job and the end of its text. Part of the caller's transaction. */
int chunks_read(struct store *s, int64_t job, int32_t **ids, struct text_end *end, struct err *e);
