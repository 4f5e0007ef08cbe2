/* What a task keeps of a job that makes retakes (src/text/retake.h), beside its decoder and its emission. The
 * functions are called in the order in which they stand here. From retaking_begin on they do nothing for a
 * task that makes no retakes. */
#pragma once
#include "runs/work/task.h"

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
