/* The job store: one SQLite file that holds the queue, the texts, and how the texts were made. Only
 * runs/store calls sqlite3_*.
 *
 * Promises. A commit that store_commit acknowledged is in the file: every process can read it, and it
 * survives kill -9 and, on a disk whose fsync is honest, a power cut. Every change is one transaction. One
 * worker at a time works on a job. After a job was paused, removed or taken over, its former worker can no
 * longer write to it.
 *
 *     submit        store_open(STORE_CREATE)  store_submit
 *     work          store_worker_start  heartbeat_start (runs/work/worker.h)
 *                   while (store_claim(...) == 1)
 *                       store_begin                   checks numerics and model; returns the tokens so far
 *                       checkpoint_open ... checkpoint_end     runs/work/checkpoint.h calls store_commit
 *                   store_worker_end
 *     run           store_submit with .paused, then work with claim_request.job: no other worker claims it
 *     chapters      store_submit with .chapter; a worker's first claim: store_chapter, store_chapter_make
 *     list, show    selection_parse  store_select  store_jobs  [store_input, store_events]
 *     text, tail    store_tokens, which checks sums and chain; tail repeats it from its last token
 *     pause ...     store_select  store_change
 *     extend, fork  store_extend | store_fork
 *     report        store_jobs  store_metrics  store_rounds  store_spans
 *     verify        store_tokens (checks the chain), then plain passes over the tokens
 *
 * Connections. A struct store is one connection. One thread uses it at a time, and it does not survive
 * fork(). Other threads of the process call store_reopen. Writers wait for each other with jitter, by
 * default for five minutes. Then they fail with ERR_AGAIN and change nothing. A reader that waits for a
 * writer of its own process goes on as soon as that writer has committed. While a store is open, nothing in
 * the process may open the file by other means: closing that descriptor would drop SQLite's locks.
 *
 * Tokens. A text is a list of token ids; token 0 follows the prompt. The job sampled most of them. A span
 * (struct text_span) marks tokens that were given (extend --append) or shared with another job (fork).
 * `tokens` of a job counts all of them, `given` counts those in spans of kind "given". A part
 * (struct text_part) says which parameters or which model made tokens that follow others.
 *
 * Counters. Every measurement is a sum: a row (window, source, name, index) -> value. The window is the
 * 1,000 tokens in which a round began. The source is the drafter, or "" for the whole. The index is a
 * depth or a bucket, or 0. Later attempts add to the values. The total of a job is the sum over its
 * windows. Callers choose the names, so a new drafter needs no new column. Lists need the sums of the
 * counters "tokens" and "seconds" of many jobs, so the job's row has them, too.
 *
 * Errors are struct err: ERR_INPUT for a wrong request, ERR_AGAIN for a database that stays busy,
 * ERR_FAILED for the rest. After a failed write to the disk every connection of the process refuses
 * further writes to the file: a failed fsync must not be repeated. The worker stops, and the next process
 * begins with the state on the disk.
 *
 * Texts and names come from outside: escape them for terminals (err_set does), HTML and CSV. */
#pragma once
#include <string.h>
#include <stdatomic.h>

#include "runs/store/chunk.h"
#include "runs/store/selection.h"
#include "src/base/base.h"
#include "src/sample/logprob.h"
#include "src/text/loop.h"
#include "src/text/retake.h"

struct store;

enum { METRIC_WINDOW = 1000 };           /* tokens */
enum { STORE_VERSION = 8 };              /* user_version of the file */

/* ---- opening ---- */

enum store_mode {
    STORE_READ,                          /* never writes; works on a read-only file */
    STORE_WRITE,                         /* the file must exist */
    STORE_CREATE,                        /* makes a missing file (0600, or see `group`); see make_folders */
};

struct store_options {
    enum store_mode mode;
    bool make_folders;          /* STORE_CREATE also makes missing folders (0700), for the default path */
    bool shared_db;             /* several hosts share it: the user vouches for the locks of the network fs */
    bool group;                 /* STORE_CREATE makes the file 0660, less umask */
    uint64_t max_bytes;         /* store_full; 0: no limit */
    double busy_seconds;                 /* how long to wait for a busy database; 0: 300 */
    double lease_seconds;                /* how long a worker's beat may stand still; 0: 60 */
    /* May be NULL. Once *stop is not 0, a wait for a busy database takes at most 10 s. After the first
     * timeout: at most 0.5 s. */
    const atomic_int *stop;
    long fs_type;                        /* magic number of the file system, for tests; 0: statfs */
};

/* Open a store. Refuses, with one line, a file that is not a database of longhand, has a newer version, is
 * damaged, or is read-only in a writing mode. A refused file stays as it is, byte for byte. The writing
 * modes bring an older version up to date in one transaction. STORE_READ reads an older version as it is. */
int  store_open(struct store **s, const char *path, const struct store_options *o, struct err *e);
/* A further connection to the same file, for another thread. */
int  store_reopen(struct store **out, const struct store *s, struct err *e);
void store_close(struct store *s);       /* NULL is allowed */

/* A line for stderr when the store is on a network file system; else NULL. */
const char *store_notice(const struct store *s);
int store_migrated_from(const struct store *s);      /* the version that store_open replaced; 0: none */
const char *store_path(const struct store *s);       /* absolute */
double store_lease_seconds(const struct store *s);
double wall_seconds(void);               /* since 1970 */

/* $XDG_STATE_HOME/longhand/longhand.db; ~/.local/state if that variable is unset, empty or relative. */
int store_default_path(char *path, size_t size, struct err *e);

/* The name of the network file system with this statfs magic; NULL: a local one. */
const char *store_network_fs(long magic);

/* ---- upkeep ---- */

struct store_size { uint64_t file, unused, models; };    /* bytes: all, of free pages, of stored models */
int store_size(struct store *s, struct store_size *out, struct err *e);
/* Whether texts and snapshots have max_bytes of the store's options or more: 1, and e says so (ERR_FAILED);
 * 0; -1. Free pages do not count. A full store takes no new job (store_submit, store_fork, store_redo,
 * store_extend fail), and store_next and store_claim pass queued jobs that have no token yet. */
int store_full(struct store *s, struct err *e);
struct job_bytes { uint64_t text, input, figures, snapshots; };
/* Bytes of n jobs: out[n]. Pages and indexes are not counted. */
int store_bytes(struct store *s, const int64_t *ids, size_t n, struct job_bytes *out, struct err *e);
/* Give free pages back to the disk. Needs the size of the store as free space meanwhile; other processes
 * wait. A kill at any point leaves the store as it was. */
int store_compact(struct store *s, struct store_size *before, struct store_size *after, struct err *e);
/* Write a copy of the store, of one moment, to `path`: complete or not at all. A file there must be an
 * earlier backup of this store that nothing was written to since; `force` replaces any regular file.
 * ERR_INPUT for another one, which stays as it is. */
int store_backup(struct store *s, const char *path, bool force, struct err *e);

/* Call `found` with a line for everything that is wrong in the file: SQLite's integrity check, rows without
 * a job, sums and chains of all texts. -1: the check could not be made. */
typedef void store_finding(void *ctx, const char *line);
int store_examine(struct store *s, store_finding *found, void *ctx, struct err *e);
/* Test the locks of the store's file system with a file beside the store. */
int store_test_locks(struct store *s, struct err *e);
/* The models of all jobs. `stored`: the store has what reading their texts needs. */
struct model_use {
    const char *model, *fingerprint;     /* fingerprint NULL: not known yet */
    size_t jobs, open, begun;            /* open: neither done nor cancelled; begun: with tokens */
    int64_t first;                       /* the first of these jobs */
    bool stored;
};
struct model_use_list { struct model_use *v; size_t n; struct strings *text; };
int  store_model_uses(struct store *s, struct model_use_list *out, struct err *e);
void model_use_list_free(struct model_use_list *l);

/* ---- submitting ---- */

/* What makes a job a chapter: it continues the text of another job and begins when that one is done. Its
 * prompt is made then: its own prompt, then the carried text. */
struct chapter_spec {
    int64_t after;                       /* the other job; 0: the first sample of custom_id `after_id` of the
                                          * same batch */
    const char *after_id;
    int64_t carry;                       /* at most so many last tokens of its text; -1: the whole text */
    bool prompted;                       /* the job has a prompt of its own. Without one, and with a carry of
                                          * -1, the prompt of the other job is carried, too */
    const char *append; size_t n_append; /* given text at the start of the job's own text, and its tokens */
    size_t most;                         /* tokens of the prompt at most */
};

struct job_spec {
    const char *custom_id;               /* NULL outside a batch, and of one job that has the name alone */
    bool alone;                          /* no request of a batch: the name must be new, */
    bool replace;                        /* or is taken from the single jobs that have it */
    size_t line;                         /* in the batch file, from 1; 0: none. Orders an export */
    uint32_t sample;
    const char *identity; size_t identity_bytes;     /* equal requests have equal bytes; stored as SHA-256 */
    char *parameters;                    /* JSON object with everything that decides the text */
    const char *metadata;                /* JSON of the input line, or NULL */
    char *chat;                          /* JSON of a chat (src/request/chat_options.h); NULL: none */
    const char *model, *fingerprint;     /* path; fingerprint NULL: not known yet */
    char *prompt; size_t prompt_bytes;   /* what the user wrote; prompt_ids is what the model reads */
    int32_t *prompt_ids; size_t prompt_tokens;
    uint64_t seed;
    bool seed_drawn;                     /* by this submission; an earlier one has drawn another */
    size_t wanted;                       /* length of the text in tokens, given ones included */
    int priority;                        /* higher first; default 0 */
    bool paused;                         /* not in the queue: only a claim that names the job gets it */
    struct chapter_spec chapter;         /* {0}: it continues no other job */
    const char *refusal;                 /* NULL; else why a job that does not exist yet cannot be stored */
};

static inline bool spec_is_chapter(const struct job_spec *j)
{
    return j->chapter.after || j->chapter.after_id;
}
/* Frees the malloc'ed texts and ids of a job: all but model and fingerprint. */
void job_spec_free(struct job_spec *j);

/* Store n jobs in one transaction, all or none. `batch` is NULL or a name (batch_name_check) of a batch,
 * or of what one command line submits (`alone`).
 *
 * A (batch, custom_id, sample) that exists with the same identity is not stored again; its line number is
 * updated. With ERR_INPUT the call stores nothing, and *bad (may be NULL) is the index of the job that
 * caused it: it is new and has a refusal, the triple exists with another identity, occurs twice with
 * different identities in v, or adds a sample to an older custom_id (its seed would differ from the others).
 * For other failures *bad is n.
 *
 * ids[n] receives the job numbers; is_new[n] (may be NULL) says which jobs were added. */
int store_submit(struct store *s, const char *batch, const struct job_spec *v, size_t n, int64_t *ids,
                 bool *is_new, size_t *bad, struct err *e);

/* A request to a server (longhand serve): its samples are jobs of their own, outside batches. While the
 * server lives, no other worker claims them. */
struct request_spec {
    int64_t worker;                      /* of the server */
    bool chat;                           /* /v1/chat/completions; else /v1/completions */
    const char *key;                     /* Idempotency-Key, of one of the two; NULL: none */
    uint8_t sha[SHA256_BYTES];           /* of what decides the answer */
};
/* A request, whose samples are the jobs v[n]. rc 0: ids[n] are new; 1: the key is known with the same sha,
 * and ids[n] are the jobs of the earlier request, of which failed and cancelled ones are queued again, now
 * for this server; SUBMIT_OTHER, and err says so: the key is known with another sha; -1: err says why. */
enum { SUBMIT_OTHER = 2 };
struct request_submit {
    struct request_spec r;
    const struct job_spec *v; size_t n;
    int64_t *ids;
    int rc; struct err err;
};
/* Store n requests in one transaction. One that fails changes nothing. -1: all have failed. */
int store_submit_requests(struct store *s, struct request_submit *const *v, size_t n, struct err *e);
/* Cancel those of n jobs that are requests; a job that store_extend has taken over is none.
 * removes: remove them too, but not one that a waiting chapter continues. */
int store_requests_end(struct store *s, const int64_t *ids, size_t n, bool removes, struct err *e);
/* Cancel a request that its server can never write: `why` is its error. 1; 0: the job is no request; -1. */
int store_request_refuse(struct store *s, int64_t job, const char *why, struct err *e);
/* Remove the jobs of requests that nobody will ask for any more: cancelled ones, those with a key that have
 * ended `keep` seconds ago, and those without a key whose server has ended; none that a waiting chapter
 * continues. */
int store_requests_forget(struct store *s, double keep, size_t *removed, struct err *e);
/* A short name of the store, for ids that clients see: 8 hexadecimal digits. */
int store_name(struct store *s, char name[9], struct err *e);

/* What decided the text of a stored request when it was submitted. */
struct stored_request {
    size_t wanted; bool extended;        /* extend changes `wanted` */
    int64_t job;
    uint64_t seed;
    char *model, *fingerprint, *parameters;      /* fingerprint NULL: not known yet */
};
/* 1: *out, for stored_request_free; 0: the batch has no such request; -1. */
int  store_request(struct store *s, const char *batch, const char *custom_id, uint32_t sample,
                   struct stored_request *out, struct err *e);
void stored_request_free(struct stored_request *r);

/* ---- reading jobs ---- */

struct job {
    int64_t id;
    const char *batch, *custom_id;       /* NULL: none */
    size_t line;
    uint32_t sample;
    uint64_t seed;
    const char *model, *fingerprint;     /* fingerprint NULL: not known yet */
    const char *numerics;                /* NULL: not begun */
    enum job_state state;
    int priority;
    int64_t attempt;                     /* raised by every claim, pause, cancel, resume, take-over */
    size_t prompt_tokens, tokens, given, wanted;
    size_t settled;                      /* tokens that no retake takes back; SIZE_MAX: all (job_final) */
    size_t resumes;                      /* claims that found tokens */
    double rate;                         /* recent tokens per second while it runs; else, or if `gone`, 0 */
    size_t made; double seconds;         /* tokens of this job's rounds that were not taken back, and seconds
                                          * of decoding: sums of all attempts */
    const char *opening;                 /* the first characters of the prompt */
    const char *finish_reason, *stop_reason;   /* length, stop, repetition; NULL while unfinished */
    const char *error;                   /* of a failed job, or of a request that was refused; else NULL */
    bool has_sha; uint8_t sha[SHA256_BYTES];     /* SHA-256 of the text of a job that is done */
    int64_t parent; size_t parent_at;    /* fork: the parent job and the token; 0: not a fork */
    /* wall clock, seconds since 1970, for people only; 0: not yet */
    double created, started, updated, ended;
    const char *host; int64_t pid;       /* of the worker while it runs; else NULL and 0 */
    double stalled;                      /* seconds since a running job last stored something, if it should
                                          * have; else 0 */
    bool gone;                           /* "running", but the kernel says that the worker has ended */
    bool shared;                         /* store_mark_shared: other jobs were in some of its rounds */
    /* a chapter: the job that it continues (perhaps removed), and its name as people read it; 0, NULL */
    int64_t after; const char *after_name;
    const char *waits;                   /* a queued chapter that cannot begin: the state of that job, or
                                          * "removed"; else NULL */
    bool older;                          /* that job has another text now than the one that was continued */
};

/* The tokens that stay whatever happens: without retakes, and at the end, all of them. */
size_t job_final(const struct job *j);
static inline bool job_is_cut_short(const struct job *j)     /* by the loop rule */
{
    return j->finish_reason && strcmp(j->finish_reason, "repetition") == 0;
}
/* The name of a job as people read it: @NAME/custom_id, with /sample for further samples of a line, or of
 * which job it is a fork; "": none. */
void job_label(char *out, size_t size, const struct job *j);
/* "/1" for a further sample of a custom_id that does not have the number in it; else "". */
enum { JOB_SAMPLE_BYTES = 24 };
void job_sample(char out[JOB_SAMPLE_BYTES], const struct job *j);

struct job_list { struct job *v; size_t n; struct strings *text; };   /* the list owns its strings */

/* The numbers of the selected jobs, ascending; free(*ids). A number, name or custom_id that does not exist
 * is an error; a range selects the jobs that exist. */
int  store_select(struct store *s, const struct selection *sel, int64_t **ids, size_t *n, struct err *e);
/* The rows of these jobs in this order, all of one moment. Leaves out jobs that no longer exist. */
int  store_jobs(struct store *s, const int64_t *ids, size_t n, struct job_list *out, struct err *e);
void job_list_free(struct job_list *l);
/* Seconds that the queued and running jobs of the list still take at the mean speed of the last job of the
 * same model that this machine completed. NAN: there is no such job of some model. */
int  store_estimate(struct store *s, const struct job_list *l, double *seconds, struct err *e);

struct job_input {
    char *prompt; size_t prompt_bytes;   /* a NUL follows */
    int32_t *prompt_ids; size_t n_prompt;
    char *parameters, *metadata, *chat;  /* JSON; metadata and chat may be NULL */
};
int  store_input(struct store *s, int64_t job, struct job_input *out, struct err *e);
void job_input_free(struct job_input *in);

struct store_counts {
    size_t jobs[JOB_STATES];
    size_t tokens, wanted;               /* of queued, running, paused and done jobs */
    size_t open_tokens;           /* that queued and running jobs still lack; open_tokens / rate is the ETA */
    double rate;                         /* tokens per second of all live workers */
};
/* Counts of a batch's jobs; `batch` NULL: of all jobs. */
int store_counts(struct store *s, const char *batch, struct store_counts *out, struct err *e);

/* ---- chapters (struct chapter_spec) ---- */

struct chapter {                         /* {0}: the job is no chapter */
    int64_t after, carry;                /* carry -1: the whole text */
    size_t own;                          /* tokens of its prompt that were not carried */
    bool prompted, made;                 /* made: the prompt exists, and the job depends on no other one */
    char *append;                        /* NULL: none */
};
int  store_chapter(struct store *s, int64_t job, struct chapter *out, struct err *e);
void chapter_free(struct chapter *c);
/* How long the prompt and the text of a job can become, and how many tokens of the text are to be sampled. */
struct job_lengths { size_t prompt, text, sampled; };
int  store_lengths(struct store *s, int64_t job, struct job_lengths *out, struct err *e);

/* Puts n records of `size` bytes, each with a job, into the order in which books are read: a job is followed
 * by the chapters that continue it and by those after them; apart from that the order stays. */
int  jobs_in_chains(void *records, size_t n, size_t size, const struct job *(*job_of)(const void *record),
                    struct err *e);

/* ---- models ---- */

/* What reading the texts of a model needs. The store has it once for each fingerprint, and once for each
 * tokenizer. */
struct model_record {
    char *tokenizer; size_t n_tokenizer;         /* tokenizer.json; a NUL follows */
    size_t vocab;                                /* token ids are below it */
    int32_t *eos; size_t n_eos;                  /* the ids that end a text */
    char *config, *generation;                   /* config.json; generation_config.json or NULL */
};
/* Whether the store has the model: 1, 0, -1. */
int  store_model_has(struct store *s, const char *fingerprint, struct err *e);
/* Keep a model. The caller has computed the fingerprint of the very bytes in *m. A model that the store has
 * stays as it is. */
int  store_model_put(struct store *s, const char *fingerprint, const struct model_record *m, struct err *e);
/* Add the SHA-256 of finished texts that have none. A job that goes on meanwhile is left out. */
struct text_sha { int64_t job, attempt; uint8_t sha[SHA256_BYTES]; };
int  store_add_sha(struct store *s, const struct text_sha *v, size_t n, struct err *e);
/* Read a model; model_record_free. Checks the tokenizer's SHA-256. 1; 0: the store does not have it; -1. */
int  store_model(struct store *s, const char *fingerprint, struct model_record *m, struct err *e);
void model_record_free(struct model_record *m);
/* The place of a model now, and its fingerprint. ERR_INPUT, and nothing changes, if a job has another
 * fingerprint, unless `accept`. Then the job has this fingerprint from its next token on; what the new model
 * would read differently is refused all the same. A job that has not begun may have no fingerprint yet. */
struct model_place { const char *path, *fingerprint; bool accept; };
int  store_model_move(struct store *s, const int64_t *ids, size_t n, const struct model_place *m,
                      struct err *e);

/* ---- changing jobs ---- */

enum change_kind {
    CHANGE_PRIORITY,                     /* jobs neither done nor cancelled, whose attempts go on */
    CHANGE_PAUSE,                        /* queued and running jobs */
    CHANGE_RESUME,                       /* paused and failed jobs; also clears error and idle attempts */
    CHANGE_CANCEL,                       /* all but done and cancelled jobs */
    CHANGE_REMOVE,                       /* leaves nothing in the file; chapters wait for the job for ever */
    /* the same, but ERR_INPUT, and nothing is removed, if a live worker is writing one of the jobs, or
     * chapters that stay wait for one */
    CHANGE_REMOVE_IDLE,
};
/* Change n jobs in one transaction. The call leaves jobs in other states as they are. *changed (may be NULL)
 * counts those that changed, whose attempts are raised. priority: of CHANGE_PRIORITY. After cancel and
 * remove, snapshot_files_delete_unused deletes the snapshot files. */
int store_change(struct store *s, enum change_kind kind, int priority, const int64_t *ids, size_t n,
                 size_t *changed, struct err *e);

/* Text that extend or fork appends: its tokens, and as the user gave it. */
struct given_text { int32_t *ids; size_t n; char *text; size_t bytes; };

/* How a text goes on after extend, or in a fork. */
struct edit_spec {
    /* tokens that stay, or that the fork shares. Fewer than the job has: extend deletes those after them,
     * which serves only to drop an end such as EOS */
    size_t at;
    struct given_text add;               /* appended; n 0: nothing */
    size_t wanted;                       /* tokens that the text will have */
    const char *parameters;              /* from token `at` on; NULL: those of the text before it hold on */
    bool paused;                         /* the job is paused, not queued */
    const struct model_place *model;     /* as store_model_move; NULL: it stays */
    const char *name; bool replace;      /* of the job alone, as in job_spec; NULL: extend keeps its name */
    uint64_t seed; uint32_t sample;      /* of a fork */
    bool follow;                         /* fork: make a book called `name`: copies of the chapters before
                                          * the job, the fork, and the chapters after it, queued again */
};
/* Continue a job that is neither queued nor running. */
int store_extend(struct store *s, int64_t job, const struct edit_spec *x, struct err *e);
/* Make a new job, outside batches, from a job in any state, but for a chapter without a prompt. The job's
 * parts before `at` come along. */
int store_fork(struct store *s, int64_t job, const struct edit_spec *f, int64_t *id, struct err *e);

/* Queue a new job for each of n jobs that are done, failed or cancelled: the same request is written again,
 * under the next sample number, with seed[i] (seed NULL: the job's own). The old jobs stay. now[n] receives
 * the new jobs; 0: the job is in another state, or was redone before. ERR_INPUT, and nothing changes, for a
 * job that goes on with given text or other parameters (extend, fork). A chapter continues the text that the
 * job before it has then. One transaction. */
int store_redo(struct store *s, const int64_t *ids, size_t n, const uint64_t *seed, int64_t *now,
               struct err *e);

/* ---- reading texts and figures ---- */

/* All reads between these two calls see the database at one moment. Keep the time short: no writer can
 * commit meanwhile. Nothing may be written before store_read_end. */
int  store_read_begin(struct store *s, struct err *e);
void store_read_end(struct store *s);

/* Tokens [from, to) of a job, limited to those that exist: *n of them, free(*ids). Checks each chunk that
 * it touches against its sum and the link before it; a failure names job, chunk and tokens. */
int store_tokens(struct store *s, int64_t job, size_t from, size_t to, int32_t **ids, size_t *n,
                 struct err *e);

/* kind "given": put in by extend or fork, with its text (NULL if its end was cut off later). kind
 * "shared": made by `parent`. Given spans may lie inside shared ones. Lists are in order of `start`. */
struct text_span { size_t start, n; const char *kind; int64_t parent; const char *text; size_t bytes; };
struct span_list { struct text_span *v; size_t n; struct strings *text; };
int  store_spans(struct store *s, int64_t job, struct span_list *out, struct err *e);
void span_list_free(struct span_list *l);
/* Whether extend or fork gave a token. */
bool token_is_given(const struct span_list *l, size_t token);

/* The log-probabilities that jobs with --logprobs have, of the first n tokens, whose ids the caller gives:
 * (*out)[n][1 + best], free(*out). First the token itself, then the best ones, best first; id -1: not known,
 * as of given tokens. Values have a resolution of 0.0001. */
int store_logprobs(struct store *s, int64_t job, const int32_t *ids, size_t n, size_t best,
                   struct logprob **out, struct err *e);

/* A part of a text: from token `start` on, up to the next part, other parameters or another model hold.
 * NULL: as before. The parameters of the first tokens are those of struct job_input, unless a part begins at
 * token 0. Lists are in order of `start`. */
struct text_part { size_t start; const char *parameters, *fingerprint; };
struct part_list { struct text_part *v; size_t n; struct strings *text; };
int  store_parts(struct store *s, int64_t job, struct part_list *out, struct err *e);
void part_list_free(struct part_list *l);

/* window: first token */
struct metric { size_t window; const char *source, *name; unsigned index; double value; };
struct metric_list { struct metric *v; size_t n; struct strings *text; };
/* By window, source, name, index, ascending. */
int  store_metrics(struct store *s, int64_t job, struct metric_list *out, struct err *e);
/* Sets `shared` of each job of the list. */
int  store_mark_shared(struct store *s, struct job_list *l, struct err *e);
void metric_list_free(struct metric_list *l);

struct round_row {
    size_t start, tokens;                /* its first token; tokens that it made, the bonus token included */
    const char *sources;                 /* drafters of the accepted path: "heads", "heads+ngram", "" */
    unsigned depth, drafted, rows, accepted;
    float draft_seconds, verify_seconds;
};
struct round_list { struct round_row *v; size_t n; struct strings *text; };
int  store_rounds(struct store *s, int64_t job, struct round_list *out, struct err *e);
void round_list_free(struct round_list *l);

/* The first repetition that the loop rule finds in a text, as in a report. 1; 0: none; -1. */
int  store_repetition(struct store *s, int64_t job, struct repetition *out, struct err *e);

/* How many retakes the job has made after the tokens that it shares with others, and how many tokens they
 * took back. */
int store_retake_cost(struct store *s, int64_t job, size_t *n, size_t *cut, struct err *e);

struct event { double at; int64_t job, attempt; const char *kind, *text; };
/* The retakes of a text, in their order, and its settled point (SIZE_MAX: all tokens are settled);
 * retakes_free. settled may be NULL. */
int store_retakes(struct store *s, int64_t job, struct retakes *out, size_t *settled, struct err *e);

struct event_list { struct event *v; size_t n; struct strings *text; };
int  store_events(struct store *s, int64_t job, struct event_list *out, struct err *e);
void event_list_free(struct event_list *l);

/* ---- working ---- */

/* Register this process as worker number *worker. On a network file system a second host is refused,
 * unless shared_db is set and a test of the locks passes. */
int store_worker_start(struct store *s, int64_t *worker, struct err *e);
/* Raise the beat. */
int store_beat(struct store *s, int64_t worker, struct err *e);
/* Remove the worker and queue its running jobs again. */
int store_worker_end(struct store *s, int64_t worker, struct err *e);

struct claim_request {
    int64_t worker;
    int64_t job;                         /* this queued, paused or failed job; 0: the next of the queue */
    const char *batch;                   /* only jobs of this batch; NULL: any */
    const char *model;             /* path of the loaded model, preferred within equal priority; NULL: none */
    const char *only_model;              /* only jobs of the model at this path; NULL: any */
    int max_attempts;              /* consecutive attempts without progress before a job fails; 0: no limit */
    /* lists of the form "\none\ntwo\n" */
    const char *numerics;                /* arithmetics that the worker supports; NULL: any */
    const char *skip, *missing;          /* jobs, and models of jobs, that stay in the queue; NULL: none */
};

/* Where a text ends: everything that appending to it needs. */
struct text_end {
    size_t tokens;
    size_t n_retakes; struct chain_link retakes;     /* SHA-256 chain over their rows */
    struct chain_link link;              /* after the full chunks */
    size_t n_part; int32_t part[CHUNK_TOKENS];       /* the last chunk while it is not full */
};

/* A worker's right to write to one job. The caller keeps it; store_begin and store_commit change it. */
struct claim {
    int64_t job, attempt;
    bool begun;                          /* by store_begin: tokens may be added */
    enum job_state was;                  /* state before the claim, for a worker that cannot do the job */
    size_t wanted;                       /* length of the text in tokens when it is complete */
    int idle;                            /* attempts in a row, before this one, that ended without progress */
    bool first;                          /* the job was never claimed before */
    struct text_end end;                 /* end.tokens: in the store after the last commit */
};

/* Jobs of dead workers return to the queue: at once if the kernel knows that the worker has ended or no row
 * names the worker, else after the lease. To measure the lease, call again on the same store, about once a
 * second. `worker`: the caller's number. 0; -1. */
int store_requeue_dead(struct store *s, int64_t worker, struct err *e);
/* Claim a job, after store_worker_start. 1: *c is the claim. 0: no job is available now, though jobs of
 * other workers may come back. -1: failed, or the job of request.job is not available.
 *
 * First, jobs of dead workers return to the queue. A job fails when max_attempts consecutive claims ended
 * without a token, without a longer snapshot, and without a release. The queue is ordered by priority, loaded
 * model, number. A chapter has the place of the first job of its chain, later chapters before earlier ones: a
 * book that has begun goes on before another one begins. It waits until the job before it is done. */
int store_claim(struct store *s, const struct claim_request *request, struct claim *c, struct err *e);
/* Whether queued chapters (of this batch; NULL: of any) wait for a job that is running: 1, 0, -1. */
int store_chapters_wait(struct store *s, const char *batch, struct err *e);
/* The job that store_claim would claim next: 1; 0: none; -1. Reads only, and does not look for dead
 * workers. idle: attempts in a row without progress. */
struct next_job { int64_t job; int idle, priority; };
int store_next(struct store *s, const struct claim_request *r, struct next_job *next, struct err *e);

/* Check a claim before the first token. A new job receives the worker's numerics id and model fingerprint.
 * A job with tokens must have the same ones; otherwise the call fails with ERR_INPUT and the difference,
 * or, with `accept_change`, records an event. *ids receives the c->end.tokens tokens so far, with sums and
 * chain checked; free(*ids). 1: the worker has lost the job. */
int store_begin(struct store *s, struct claim *c, const char *numerics, const char *fingerprint,
                bool accept_change, int32_t **ids, struct err *e);
/* Store the prompt of a claimed chapter, before store_begin, in one transaction: as store_commit. */
struct chapter_prompt {
    int32_t *ids; size_t n;              /* what the model reads */
    char *text; size_t bytes;            /* in place of the stored prompt, if it is empty; NULL: it stays */
    int32_t *append; size_t n_append;    /* the tokens of chapter.append */
    char *chat;                          /* in place of the stored chat; NULL: it stays */
    size_t carried;                      /* tokens, for the job's history */
    uint8_t sha[SHA256_BYTES];           /* of the text that is continued */
};
int store_chapter_make(struct store *s, struct claim *c, const struct chapter_prompt *p, struct err *e);
/* The same comparison before the job is changed so that it begins again, with `tokens` of its tokens. record:
 * a difference that is accepted becomes an event, as part of the caller's transaction; else it only reads. */
int store_check_begin(struct store *s, int64_t job, size_t tokens, const char *numerics,
                      const char *fingerprint, bool accept_change, bool record, struct err *e);

struct job_end {
    enum job_state state;      /* JOB_DONE, JOB_FAILED, JOB_PAUSED, or JOB_QUEUED (any worker may continue) */
    const char *finish_reason, *stop_reason;   /* with JOB_DONE */
    const char *error;                   /* with JOB_FAILED */
    const uint8_t *sha;                  /* with JOB_DONE: SHA-256 of the text [32]; NULL: not known */
    bool undo;                           /* with JOB_QUEUED, JOB_PAUSED, before store_begin: the claim is no
                                          * attempt, and the job's history does not mention it */
};

struct note { const char *kind, *text; double at; };  /* an event of this attempt; at: seconds since 1970 */

struct commit {                          /* the additions of one commit */
    /* Before the tokens: with retakes the text is cut to `cut` tokens if it has more, what belongs to the
     * tokens from there on is deleted, and the retakes are added. That is progress, as tokens are. */
    size_t cut; const struct retake *retakes; size_t n_retakes;
    size_t settled;                      /* src/text/retake.h; SIZE_MAX: all tokens are */
    const int32_t *ids; size_t n;        /* tokens after c->end.tokens; may be none */
    const struct logprob *logprobs; size_t best;     /* of these tokens: [n][1 + best]; NULL: none */
    const struct metric *metrics; size_t n_metrics;      /* added to the stored values */
    const struct round_row *rounds; size_t n_rounds;
    const struct note *notes; size_t n_notes;            /* stored before the event of `end` */
    double rate;                         /* recent tokens per second */
    const struct job_end *end;           /* NULL: the job continues */
};

/* Commit all of it in one transaction. 0: it is on the disk. 1: the worker has lost the job; nothing was
 * written, and e says what became of the job. -1: nothing was written, or, if the very last step failed,
 * all of it. */
int store_commit(struct store *s, struct claim *c, const struct commit *b, struct err *e);

/* The part of one job in a commit of several jobs. */
struct job_commit {
    struct claim *claim;
    struct commit add;
    int rc; struct err err;              /* the result: as store_commit returns it */
    struct text_end text_end;            /* scratch */
};
/* Commit the parts of n jobs in one transaction, each in its own savepoint. A part that fails, or whose job
 * is lost, writes nothing, and the other parts are written. -1: nothing was written (or all, if the very last
 * step failed), and every part has rc -1. */
int store_commit_all(struct store *s, struct job_commit *v, size_t n, struct err *e);

/* Whether the claim still holds: 0 yes; 1 no, and e says why; -1 failed. Reads only. */
int store_claim_holds(struct store *s, int64_t job, int64_t attempt, struct err *e);

/* ---- rows of snapshot files (runs/work/snapshot_files.h) ---- */

enum { STORE_SNAPSHOTS_MAX = 64 };
/* holds rows start .. tokens-1 of the caches */
struct snapshot_row { char name[96]; size_t start, tokens; };
/* Record a file that is complete on the disk. It replaces all rows from r->start on. Fenced like
 * store_commit. A file that ends after all earlier ones counts as progress, as a token does
 * (max_attempts). The end of the job (done, failed, cancelled, removed) deletes its rows. */
int store_snapshot_set(struct store *s, const struct claim *c, const struct snapshot_row *r, uint64_t bytes,
                       struct err *e);
/* The job's rows in order: *n of them, each starts where the previous one ends, the first at 0. -1: they
 * cannot be read, or the row after these *n does not fit. */
int store_snapshot_list(struct store *s, int64_t job, struct snapshot_row row[STORE_SNAPSHOTS_MAX], size_t *n,
                        struct err *e);
/* Delete the job's rows from this start on, because their files are missing or bad. Fenced like
 * store_commit. */
int store_snapshot_drop(struct store *s, const struct claim *c, size_t start, struct err *e);
/* Whether a file of this name, job and attempt is needed: a row names it, or the attempt is running. 1, 0,
 * -1. */
int store_snapshot_wanted(struct store *s, int64_t job, int64_t attempt, const char *name, struct err *e);
