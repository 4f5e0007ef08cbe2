/* What a task keeps of a job that makes retakes (src/text/retake.h), beside its decoder and its emission.
 *
 *     retaking_check(params, engine, &e)     refuses a device on which a text cannot be cut
 *     retaking_open(t, &e)                   after store_begin, before checkpoint_open
 *     retaking_begin(t)                      when the stored tokens were replayed and the decoder has them
 *     retaking_token(t, id, given, new)      after each token that the emission took, also a stored one
 *     retaking_rule(t, &repetition)          the loop rule has fired at the last token of the emission
 *     retaking_settle(t)                     after the tokens of a round, before they are put
 *     retaking_cut(t, &e)                    after that: takes the text back, if the rule has fired
 *     retaking_show(t, &e)                   after that: the output
 *     retaking_close(t)
 *
 * All but the first three do nothing for a task that makes no retakes. */
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

bool retaking_wanted(const struct job_params *p);
int  retaking_check(const struct job_params *p, const struct engine *g, struct err *e);
int  retaking_open(struct task *t, struct err *e);
/* 0; TASK_ENDS: the output failed, and t->result says why. */
int  retaking_begin(struct task *t);
/* Whether a new token completes a banned phrase, so that the text will be taken back. */
bool retaking_token(struct task *t, int32_t id, bool given, bool new_text);
/* Whether the text will be taken back, or end. */
bool retaking_rule(struct task *t, const struct repetition *p);
void retaking_settle(struct task *t);
/* 0; 1: the job is lost; -1: the store failed, or the job if *failed. */
int  retaking_cut(struct task *t, bool *failed, struct err *e);
/* 0; -1: the output failed. */
int  retaking_show(struct task *t, struct err *e);
void retaking_close(struct task *t);
