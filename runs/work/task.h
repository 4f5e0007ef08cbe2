/* A task: one claimed job in a worker. schedule_job (schedule.c) is the plainest course of one.
 *
 * The functions return 0 (go on) or one of enum task_rc. The task keeps the code: after any but TASK_AGAIN
 * only snapshot_policy_stop, task_stopped and task_close may follow. */
#pragma once
#include "runs/work/read_text.h"
#include "runs/work/snapshot_policy.h"
#include "runs/work/worker.h"

struct work_options {
    enum job_state state_if_stopped;     /* what a job becomes if a signal or the deadline stops it: queued or
                                          * paused */
    bool accept_change;                  /* continue although arithmetic or model differ (store_begin) */
    bool store_rounds;                   /* store a row for every round */
    bool release_if_refused;             /* a job that cannot run here returns to its state before the claim;
                                          * otherwise it fails */
};

/* Where a text goes while it is written. Every function may be NULL. `new_text` is false for text that was
 * stored before this run. */
struct work_output {
    int (*text)(void *ctx, const char *bytes, size_t n, bool new_text, struct err *e);
    int (*id)(void *ctx, int32_t id, bool new_text, struct err *e);
    /* `at_once`: every token is handed over as it is made, and a retake says that tokens before were taken
     * back. Else tokens are handed over when they are settled, at the end all. */
    bool at_once;
    void (*retake)(void *ctx, const struct retake *x);
    /* called once, before the first text, when all checks of the job have passed */
    void (*begins)(void *ctx, const struct decoder *d);
    void *ctx;
};

enum work_end {
    WORK_DONE,                           /* the text is complete; the job is done */
    WORK_FAILED,                         /* the job failed */
    WORK_LOST,                           /* the claim no longer holds; the job is left alone */
    /* the job has state_if_stopped: */
    WORK_STOPPED,                        /* a signal or the deadline stopped the work */
    WORK_OUTPUT_FAILED,                  /* a function of struct work_output failed */
    WORK_DEVICE_FAILED,                  /* the device failed, and the worker should end */
    WORK_WAITS,                          /* the files of its model cannot be read now; no attempt */
    /* the job has its state before the claim (release_if_refused): */
    WORK_REFUSED,                        /* the job cannot run here */
};
struct work_result {
    enum work_end end;
    struct err why;                      /* the reason, unless WORK_DONE */
    size_t tokens_before, tokens;        /* length of the text before and after this run, all its tokens */
    enum finish finish;
    char stop_reason[STOP_STRING_BYTES_MAX + 1]; bool stopped_by_string;     /* else: by a token id */
    double seconds, prefill_seconds;     /* of this run: its rounds, and its prefill */
    struct draft_stats stats;            /* of this run; the caller closes it (stats_close) */
};
static inline double work_speed(const struct work_result *x)     /* tokens of text per second */
{
    return x->seconds > 0 && x->tokens > x->tokens_before
               ? (double)(x->tokens - x->tokens_before) / x->seconds : 0;
}

enum task_rc {
    TASK_FAILED = -1,                    /* the job failed, and *e says why */
    TASK_ENDS = 1,                       /* the work ends here, and task.result says why */
    TASK_STORE_FAILED = 2,               /* the store failed, and *e says why: the worker must stop */
    TASK_AGAIN = 3,                      /* the slice is over; call again */
};

struct task {
    struct worker *w;
    struct claim claim;
    struct work_options options;
    const struct work_output *out;
    struct progress *progress, own_progress;     /* borrowed, or `own_progress` */
    char name[300];                      /* job_label, for progress */
    struct work_result result;
    struct job_list jobs; struct job *job;
    struct job_input input;
    struct job_parts parts; struct job_params *params;   /* of the last part */
    struct chapter chapter; struct chapter_prompt prompt;        /* prompt: made, but not stored yet */
    int32_t *start; size_t n_start;      /* the tokens that the text has: prompt, then stored tokens */
    struct decode_setup setup;
    struct decoder decoder;
    struct replay replay;
    struct retaking *retaking;           /* NULL: the job makes no retakes */
    size_t lent;                         /* of a job with retakes: tokens whose rows others may use */
    struct checkpoint *checkpoint;
    size_t place;                        /* of the heartbeat */
    struct snapshot_policy snapshots;
    bool snapshot_notice_shown;
    int32_t *ids;                        /* tokens that the store had at the beginning */
    char untrained[512];  /* why --drafter auto drafts without a trained drafter; "": it has them */
    double stored[CHECKPOINT_COUNTERS_MAX];      /* by counter of the statistics: what checkpoints received */
    uint8_t sha[SHA256_BYTES];           /* of the whole text */
    struct job_end end;
    size_t bytes; bool reserved;         /* worker_reserve */
    double writing_since;                /* by clock_seconds; 0: not yet */
    bool wants_int8, no_int8;            /* drafts wait for the model in 8 bits; memory has no room for it */
    bool prefilling;                     /* task_prefill has begun */
};

/* The work ends here. */
static inline int task_ends(struct task *t, enum work_end end, const struct err *why)
{
    t->result.end = end;
    t->result.why = *why;
    return TASK_ENDS;
}
/* A replay of the text, with the open model. */
static inline int task_open_replay(struct task *t, struct replay *y, struct err *e)
{
    const struct engine *g = &t->w->engine;
    return replay_open(y, t->w->store, t->job, &t->input, &t->parts, &g->config, g->tokenizer, e);
}

/* Read the job, its input and its parameters. Needs no claim. 0; TASK_FAILED. A chapter that has no prompt
 * yet gets it with the open model (chapter.c), and task_open stores it. */
int task_read(struct task *t, int64_t job, struct err *e);
/* Whether the job must run alone: it asks for that, its verifier's text depends on other rows, or its last
 * two attempts died with their workers. After task_read. */
bool task_runs_alone(const struct task *t, int idle);
/* Make the prompt of a chapter in memory, unless it exists. The worker has the job's model open. 0; 1: the
 * job before it is not done; -1. */
int task_make_prompt(struct task *t, struct err *e);
/* What worker_reserve needs; n_max 0: the text has no length. After task_read. */
struct job_need task_need(struct task *t, size_t wanted, size_t tokens);
/* Read the job unless task_read has, check it, open its decoder and replay its stored tokens. */
int task_open(struct task *t, struct err *e);
/* Whether a job could go on here after a change by extend or fork: model, arithmetic, memory, drafters. The
 * worker keeps the model that it has loaded for the job. The store stays as it is. */
struct job_change {
    int64_t job;
    const char *model;                   /* its place after the change */
    const char *parameters;              /* of the new tokens; NULL: those of the job's end */
    size_t tokens, wanted;               /* tokens that stay; length of the text in tokens */
    bool accept_change;
};
int task_try(struct worker *w, const struct job_change *c, struct err *e);
/* Fill the cache for at most `seconds` (0: no limit), or one pass if that takes longer. */
int task_prefill(struct task *t, double seconds, struct err *e);
bool task_is_complete(const struct task *t);
/* Whether it takes part in rounds. False: task_prefill comes first, also after a retake of a hybrid, which
 * forgets more rows than were taken back (kvmgr/state.h). */
bool task_writes(const struct task *t);
/* After task_prefill returned 0, and unless the text is complete already. */
void task_begins_writing(struct task *t);
/* Whether the work on the task must stop now: TASK_ENDS, else 0. */
int task_check(struct task *t);
/* Between rounds: make the model in 8 bits, if the task waits for it, for about `seconds` (0: no limit), at
 * least one layer. Whether that took time. In the foreground a text gets its first token before. */
bool task_make_int8(struct task *t, double seconds);
/* What one round made for all its tasks together. */
struct round_total { size_t tasks, tokens; double seconds; };
/* Hand on the tokens, the text and the counters of the decoder's last round. total: NULL if the task cannot
 * have company. */
int task_take_round(struct task *t, const struct round_total *total, struct err *e);
/* Whether a task that joined alone must stay so: until it has committed something, or to its end. */
bool task_stays_alone(const struct task *t);
/* Free what task_read has read; the task can read another job. */
void task_forget(struct task *t);
/* Wait until `deadline` for the snapshot that snapshot_policy_stop may have begun. */
void task_stopped(struct task *t, double deadline);
/* End the claim as `rc` and t->result say, and free the task except t->result, whose statistics the caller
 * closes. 0; -1: the store failed, or another process holds it (ERR_AGAIN). *e is the error of a failed task
 * on entry. */
int task_close(struct task *t, int rc, struct err *e);

/* The prompt of a chapter (chapter.c). `in`: its input; its model is open in g. 0: *p, for
 * chapter_prompt_free; 1: the job before it is not done, and e says so; -1. */
int chapter_make(struct chapter_prompt *p, struct store *s, const struct job *job, const struct chapter *c,
                 const struct job_input *in, const struct engine *g, struct err *e);
void chapter_prompt_free(struct chapter_prompt *p);

/* What a task keeps of a job that makes retakes (src/text/retake.h), beside its decoder and its emission. The
 * functions are called in the order in which they stand here. From retaking_begin on they do nothing for a
 * task that makes no retakes. */
struct retaking {
    struct retakes list;
    struct retake_limits limits;
    size_t floor;                        /* limits.floor without the settled point */
    size_t settled, settled_before;      /* now; when the task was opened */
    struct retake next; enum retake_verdict verdict;     /* of the rule; RETAKE_NOT: the text goes on */
    bool ends;                           /* `next` ended the text; it is committed with the end */
    struct replay shown; bool shows;     /* the output of settled tokens; whether there is one */
    struct banned *banned;               /* the phrases; NULL: none */
    struct banned_match match; char *bytes;      /* of the text since token banned_from; room for a token's */
    size_t banned_from;
};

/* Refuses a device on which a text cannot be cut. */
int  retaking_check(const struct job_params *p, const struct engine *g, struct err *e);
/* After store_begin, before checkpoint_open. */
int  retaking_open(struct task *t, struct err *e);
/* When the stored tokens were replayed and the decoder has them. 0; TASK_ENDS: the output failed, and
 * t->result says why. */
int  retaking_begin(struct task *t);
/* After each token that the emission took, also a stored one. Whether a new token completes a banned phrase,
 * so that the text will be taken back. */
bool retaking_token(struct task *t, int32_t id, bool given, bool new_text);
/* The loop rule has fired at the last token of the emission: whether the text will be taken back, or end. */
bool retaking_rule(struct task *t, const struct repetition *p);
/* After the tokens of a round, before they are put. */
void retaking_settle(struct task *t);
/* After that: takes the text back, if it must be. TASK_ENDS: the job is lost, and *e says why. */
int  retaking_cut(struct task *t, struct err *e);
/* After that: the output. 0; -1: it failed. */
int  retaking_show(struct task *t, struct err *e);
void retaking_close(struct task *t);
