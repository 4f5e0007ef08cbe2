/* The job store: one SQLite file that holds the queue, the texts and how they were made. Nothing else calls sqlite3_*.
 *
 * What it promises. What store_commit has acknowledged is in the file: readable by every process, there after kill -9 and, on a
 * disk whose fsync is honest, after a power cut. Every change is one transaction. A job is worked on by one worker; one that
 * was taken from its worker (paused, removed, taken over) is never written by it again.
 *
 *     submit        store_open(STORE_CREATE)  store_submit
 *     work          store_worker_start  heartbeat_start (runs/work/heartbeat.h)
 *                   while (store_claim(...) == 1)
 *                       store_begin                        numerics and model are the right ones; the tokens so far, checked
 *                       checkpoint_open ... checkpoint_end (runs/work/checkpoint.h; it calls store_commit on its own thread)
 *                   store_worker_end
 *     run           store_submit of a job with .paused, then the same with wish.job: no other worker takes it in between
 *     list, show    selection_parse (runs/store/selection.h)  store_select  store_jobs  [store_input, store_events]
 *     text, tail    store_tokens, which checks sums and chain (tail: again from where it was)
 *     pause ...     store_select  store_pause | store_resume | store_cancel | store_remove
 *     extend, fork  store_extend | store_fork
 *     report        store_jobs  store_metrics  store_rounds  store_spans
 *     verify        store_tokens (the chain), then plain passes over what it gave
 *
 * Connections. A struct store is one connection: one thread at a time, and none of it across fork(). Other threads of the process
 * use store_reopen. Writers wait for each other with jitter, for five minutes by default, then fail with ERR_AGAIN and nothing
 * is changed. Nothing in the process may open the file by other means while a store is open: closing it again would drop SQLite's locks.
 *
 * Tokens. A text is a list of token ids counted from 0 behind the prompt. Most were sampled; a span (struct text_span) says which were given
 * (extend --append) or shared with another job (fork). `tokens` of a job counts all, `given` those of spans of kind "given".
 *
 * Counters. Everything measured is a sum: a row (window, source, name, index) -> value, where window is the 1,000 tokens in which a
 * round began, source the drafter ("" for the whole), index a depth or a bucket (0 where there is one value only). Values of later
 * attempts are added; the total of a job is the sum over its windows. Names are the caller's: a new drafter needs no new column.
 *
 * Errors are struct err: ERR_INPUT for what the user asked, ERR_AGAIN for a database that stays busy, ERR_FAILED for the rest. After
 * a failed write to disk every connection of the process to that file refuses every further write: a failed fsync is not tried again,
 * the worker stops, and who opens the file next begins with what is on the disk.
 * Texts and names come from outside: escape them for terminals (err_set does), HTML and CSV. */
#pragma once
#include <stdatomic.h>

#include "runs/store/chunk.h"
#include "runs/store/selection.h"
#include "src/base/base.h"

struct store;

enum { METRIC_WINDOW = 1000 };           /* tokens */
enum { STORE_VERSION = 2 };              /* user_version of the file */

/* ---- opening ---- */

enum store_mode {
    STORE_READ,                          /* never writes; a file that may only be read will do */
    STORE_WRITE,                         /* the file must be there */
    STORE_CREATE,                        /* made when missing: file 0600, missing folders 0700 */
};

struct store_options {
    enum store_mode mode;
    /* several hosts on a network file system: the user says that its locks are honest */
    bool shared_db;
    double busy_seconds;                 /* how long a busy database is waited for; 0: 300 */
    double lease_seconds;                /* how long a beat may stand still; 0: 60 */
    const atomic_int *stop;              /* may be NULL: once it is not 0, a busy database is waited for ten seconds at most, and after that in vain hardly more */
    long fs_type;                        /* 0: statfs is asked; tests put a file system's magic number here */
};

/* Open a store. A file that is no database of longhand, of a newer version, damaged, or read-only in a writing mode is refused by
 * one line and left as it is, byte for byte. An older version is brought up to date in one transaction (writing modes only). */
int  store_open(struct store **s, const char *path, const struct store_options *o, struct err *e);
/* A further connection to the same file, for another thread. */
int  store_reopen(struct store **out, const struct store *s, struct err *e);
void store_close(struct store *s);       /* NULL is fine */

/* A line for stderr, or NULL: the store is on a network file system, whose locks must be honest. */
const char *store_notice(const struct store *s);
const char *store_path(const struct store *s);
double store_lease_seconds(const struct store *s);
double wall_seconds(void);               /* since 1970 */

/* $XDG_STATE_HOME/longhand/longhand.db; ~/.local/state where it is unset, empty or relative. */
int store_default_path(char *path, size_t size, struct err *e);

/* Whether `magic` of statfs is a file system whose locks cross a network: its name, or NULL. */
const char *store_network_fs(long magic);

/* The whole file: SQLite's integrity check, foreign keys, every text's sums and chain. Reads everything. */
int store_check(struct store *s, struct err *e);

/* ---- submitting ---- */

struct job_spec {
    const char *custom_id;               /* NULL outside a batch */
    size_t line;                         /* of the batch file, from 1; 0: none. The order of an export */
    uint32_t sample;
    /* what makes a second submit of this custom_id the same request: kept as SHA-256 */
    const char *identity; size_t identity_bytes;
    const char *parameters;              /* a JSON object with everything that decides the text */
    const char *metadata;                /* JSON of the input line, or NULL */
    const char *model, *fingerprint;     /* path; fingerprint NULL: not known yet */
    const char *prompt; size_t prompt_bytes;
    const int32_t *prompt_ids; size_t n_prompt;
    uint64_t seed;
    size_t wanted;                       /* tokens that the text is to have, given ones included */
    int priority;                        /* higher first; 0 */
    bool paused;                         /* not in the queue: whoever names it takes it */
};

/* Store n jobs in one transaction: all or none. `batch`: NULL, or a name (batch_name_check), and then every job has a custom_id.
 * (batch, custom_id, sample) that is there already with the same identity is no new job (its line becomes that of v); with another one the call fails
 * with ERR_INPUT, *bad (if not NULL) is its index and nothing is stored; the same pair twice in v counts as such, and so does
 * one more sample of a custom_id from before: it would have another seed than the others. *bad is n for
 * other failures. ids[n] get the numbers; is_new[n] (may be NULL) which were added. */
int store_submit(struct store *s, const char *batch, const struct job_spec *v, size_t n, int64_t *ids,
                 bool *is_new, size_t *bad, struct err *e);

/* ---- reading jobs ---- */

struct job {
    int64_t id;
    const char *batch, *custom_id;       /* NULL: none */
    size_t line;
    uint32_t sample;
    uint64_t seed;
    const char *model, *fingerprint;     /* NULL: not known yet */
    const char *numerics;                /* NULL: not begun */
    enum job_state state;
    int priority;
    int64_t attempt;                     /* raised by every claim, pause, cancel, resume, take-over */
    size_t prompt_tokens, tokens, given, wanted;
    size_t resumes;                      /* claims that found tokens */
    double rate;                         /* tokens per second of late while it runs, else 0; 0 when it is `gone` */
    const char *finish_reason, *stop_reason;   /* length, stop, repetition; NULL while unfinished */
    const char *error;                   /* of a failed job; else NULL */
    int64_t parent; size_t parent_at;    /* fork: of which job, at which token; 0: none */
    double created, started, updated, ended;   /* seconds since 1970, by the wall clock, for people only; 0: not yet */
    const char *host; int64_t pid;       /* of the worker while it runs; else NULL and 0 */
    bool gone;                           /* it runs by name only: the kernel says that its worker has ended, and the next one takes it */
};

struct job_list { struct job *v; size_t n; struct strings *text; };   /* strings live as long as the list */

/* The numbers of the selected jobs, ascending; free(*ids). A number, name or custom_id that is not there is an error; a range gives
 * those that are. */
int  store_select(struct store *s, const struct selection *sel, int64_t **ids, size_t *n, struct err *e);
/* The rows of these jobs in this order, all of one moment. One that is gone by now is left out. */
int  store_jobs(struct store *s, const int64_t *ids, size_t n, struct job_list *out, struct err *e);
void job_list_free(struct job_list *l);

struct job_input {
    char *prompt; size_t prompt_bytes;   /* NUL behind it */
    int32_t *prompt_ids; size_t n_prompt;
    char *parameters, *metadata;         /* JSON; metadata may be NULL */
};
int  store_input(struct store *s, int64_t job, struct job_input *out, struct err *e);
void job_input_free(struct job_input *in);

struct store_counts {
    size_t jobs[JOB_STATES];
    size_t tokens, wanted;               /* of queued, running, paused and done jobs: done of total */
    size_t open_tokens;                  /* still to make by queued and running jobs: over `rate` the ETA of the queue */
    double rate;                         /* tokens per second of all that run; of workers that have ended nothing */
};
/* Of the jobs of a batch; NULL: of all. */
int store_counts(struct store *s, const char *batch, struct store_counts *out, struct err *e);

/* ---- changing jobs ---- */

/* One transaction for all n. Applies to: pause queued, running; resume paused, failed; cancel all but done and cancelled; remove all.
 * *changed (may be NULL): to how many; the others are left as they are. All raise the attempt. resume forgets the error and the
 * idle attempts; remove leaves nothing of the job in the file. Behind cancel and remove snapshot_files_collect deletes snapshot files. */
int store_pause(struct store *s, const int64_t *ids, size_t n, size_t *changed, struct err *e);
int store_resume(struct store *s, const int64_t *ids, size_t n, size_t *changed, struct err *e);
int store_cancel(struct store *s, const int64_t *ids, size_t n, size_t *changed, struct err *e);
int store_remove(struct store *s, const int64_t *ids, size_t n, size_t *changed, struct err *e);

struct given_text {                           /* what extend and fork put behind the text */
    const int32_t *ids; size_t n;
    const char *text; size_t bytes;      /* as given */
};

/* Let a job that is neither queued nor running go on: its first `keep` tokens (fewer than it has only to drop an end such as EOS; the
 * rest is forgotten), then `add` (NULL: nothing), until it has `wanted` tokens. It is queued, or paused when `paused`. */
int store_extend(struct store *s, int64_t job, size_t keep, const struct given_text *add, size_t wanted,
                 bool paused, struct err *e);

struct fork_spec {
    size_t at;                           /* how many tokens are shared; at most what the job has now */
    uint64_t seed;
    const struct given_text *add;             /* NULL: nothing */
    size_t wanted;
    const char *parameters;              /* NULL: as the job's */
    bool paused;
};
/* A new job, outside batches, from a job in any state. */
int store_fork(struct store *s, int64_t job, const struct fork_spec *f, int64_t *id, struct err *e);

/* ---- reading texts and figures ---- */

/* Tokens [from, to) of a job, at most as many as there are: *n of them, free(*ids). Every chunk that is touched is checked against
 * its sum and the link before it; a failure names job, chunk and tokens. */
int store_tokens(struct store *s, int64_t job, size_t from, size_t to, int32_t **ids, size_t *n,
                 struct err *e);

/* kind "given": put in by extend or fork, with its text (NULL when the end was cut off since); "shared": made by `parent`. By start;
 * given ones may lie inside shared ones. */
struct text_span { size_t start, n; const char *kind; int64_t parent; const char *text; size_t bytes; };
struct span_list { struct text_span *v; size_t n; struct strings *text; };
int  store_spans(struct store *s, int64_t job, struct span_list *out, struct err *e);
void span_list_free(struct span_list *l);

/* window: its first token */
struct metric { size_t window; const char *source, *name; unsigned index; double value; };
struct metric_list { struct metric *v; size_t n; struct strings *text; };
/* By window, source, name, index ascending. */
int  store_metrics(struct store *s, int64_t job, struct metric_list *out, struct err *e);
void metric_list_free(struct metric_list *l);

struct round_row {
    size_t start, tokens;                /* the first token it made, and how many (bonus included) */
    const char *sources;                 /* of the accepted path: "heads", "heads+ngram", "" */
    unsigned depth, drafted, rows, accepted;
    float draft_seconds, verify_seconds;
};
struct round_list { struct round_row *v; size_t n; struct strings *text; };
int  store_rounds(struct store *s, int64_t job, struct round_list *out, struct err *e);
void round_list_free(struct round_list *l);

struct event { double at; int64_t job, attempt; const char *kind, *text; };
struct event_list { struct event *v; size_t n; struct strings *text; };
int  store_events(struct store *s, int64_t job, struct event_list *out, struct err *e);
void event_list_free(struct event_list *l);

/* ---- working ---- */

/* Make this process known as a worker: *worker is its number. On a network file system a second host is refused here, unless
 * shared_db is set and a test shows that locks work. */
int store_worker_start(struct store *s, int64_t *worker, struct err *e);
/* Raise the beat. */
int store_beat(struct store *s, int64_t worker, struct err *e);
/* The worker leaves: jobs it still has are queued again. */
int store_worker_end(struct store *s, int64_t worker, struct err *e);

struct claim_request {
    int64_t worker;
    int64_t job;                         /* this one, queued, paused or failed; 0: the next of the queue */
    const char *batch;                   /* only jobs of this batch; NULL: any */
    const char *model;                   /* the path of the loaded one, preferred within equal priority; NULL: none */
    const char *const *numerics; size_t n_numerics;   /* what this worker can compute; n_numerics 0: anything */
    int max_attempts;                    /* in a row that get nowhere (store_claim); 0: never give up */
};

/* of one job by one worker; the caller keeps it, store_begin and store_commit change it */
struct claim {
    int64_t job, attempt;
    bool begun;                          /* by store_begin: tokens may be added */
    enum job_state was;                  /* before: what a worker that cannot do the job ends it with */
    size_t tokens, wanted;               /* in the store at the last commit; tokens that the text is to have */
    struct chain_link link;                    /* behind the full chunks */
    int32_t part[CHUNK_TOKENS]; size_t n_part;   /* the last chunk, not yet full */
};

/* Take a job (behind store_worker_start). 1: *c is it; 0: there is none now (another worker's jobs may still come back); -1: failed, and with wish.job also when that
 * job cannot be had, saying why. First, jobs of workers that died are put back: at once where the kernel knows or no row tells of the worker, else after
 * the lease, for which the same store must be asked again and again (once a second will do). A job that max_attempts
 * claims in a row left without a token, without a snapshot of more of the text and without putting it back, fails. Queue order: priority, the loaded model, number. */
int store_claim(struct store *s, const struct claim_request *w, struct claim *c, struct err *e);

/* Before the first token: the numerics id and model fingerprint that the worker has. An unstarted job gets them; one with tokens must have the
 * same, else -1 with ERR_INPUT and what differs, unless `accept_change`, which is put down as an event. *ids: the c->tokens tokens
 * so far, sums and chain checked; free(*ids). 1: the job is no longer this worker's. */
int store_begin(struct store *s, struct claim *c, const char *numerics, const char *fingerprint,
                bool accept_change, int32_t **ids, struct err *e);

struct job_end {
    /* JOB_DONE, JOB_FAILED, JOB_PAUSED, or JOB_QUEUED: to be gone on with by anybody */
    enum job_state state;
    const char *finish_reason, *stop_reason;   /* with JOB_DONE */
    const char *error;                   /* with JOB_FAILED */
};

struct note { const char *kind, *text; double at; };  /* an event of this attempt; at: seconds since 1970 */

struct commit {                           /* what one commit adds */
    const int32_t *ids; size_t n;        /* tokens behind c->tokens; none is allowed */
    const struct metric *metrics; size_t n_metrics;      /* values are added to those that are there */
    const struct round_row *rounds; size_t n_rounds;
    const struct note *notes; size_t n_notes;            /* before the end's own event */
    double rate;                         /* tokens per second of late */
    const struct job_end *end;           /* NULL: it goes on */
};

/* All of it in one transaction, on disk when it returns 0. 1: the job is no longer this worker's, nothing was written, and e says
 * what became of it. -1: nothing was written (or, when the failure was in the very last step, all of it). */
int store_commit(struct store *s, struct claim *c, const struct commit *b, struct err *e);

/* Whether the claim still holds: 0 yes, 1 no (e says why), -1. Reads only. */
int store_claim_holds(struct store *s, int64_t job, int64_t attempt, struct err *e);

/* Rows of snapshot files, whose life is in runs/work/snapshot_files.h. */
enum { STORE_SNAPSHOTS_MAX = 64 };
/* rows start .. tokens-1 of the caches */
struct snapshot_row { char name[96]; size_t start, tokens; };
/* A file that is complete on disk takes the place of all that begin at its start or behind it. Fenced as store_commit. One that ends behind all that
 * there were is progress, as a token is (max_attempts). Rows go with the end of the job (done, failed, cancelled) and with the job. */
int store_snapshot_set(struct store *s, const struct claim *c, const struct snapshot_row *r, uint64_t bytes,
                       struct err *e);
/* In their order: n of them, each beginning where the one before it ends, the first at 0. -1: it cannot be read, or what follows these n does not fit. */
int store_snapshot_list(struct store *s, int64_t job, struct snapshot_row row[STORE_SNAPSHOTS_MAX], size_t *n,
                        struct err *e);
/* Forget the job's rows from this start on, whose files are not to be had. Fenced as store_commit. */
int store_snapshot_drop(struct store *s, const struct claim *c, size_t start, struct err *e);
/* Whether a file of this name, of this job and attempt, is needed: a row names it, or the attempt is at work. 1, 0, -1. */
int store_snapshot_wanted(struct store *s, int64_t job, int64_t attempt, const char *name, struct err *e);
