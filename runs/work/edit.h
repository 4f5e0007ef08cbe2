/* extend and fork: a text that goes on after its end, or from an earlier place. edit_open and edit_plan check
 * everything and change nothing. edit_make changes the store. */
#pragma once
#include "runs/work/read_text.h"
#include "src/request/options.h"

struct edit {
    /* of the caller, borrowed; of `to`, too, its model */
    const struct options *o;                     /* of the verb extend or fork */
    struct store *s;
    struct job *job;                             /* with the model's new place */
    /* after edit_open and edit_plan */
    struct job_input in;
    struct job_parts parts;
    struct span_list spans;
    struct text_reader reader;
    char *append; size_t n_append;               /* --append or --append-file; NULL: none */
    size_t most;                                 /* later: length of the text before it, at most */
    bool after_end;                              /* extend: nothing of the old text is written again */
    bool later;                                  /* extend of a job that is queued or running: a chapter */
    char *parameters;                            /* to.parameters, for free */
    struct edit_spec to;                         /* what the store is told; add.ids and add.text: for free */
};

int  edit_open(struct edit *d, struct err *e);
void edit_close(struct edit *d);
int  edit_plan(struct edit *d, struct err *e);
/* *id: the job that has the new text. ctx: a struct edit, after edit_plan. */
int  edit_make(void *ctx, int64_t *id, struct err *e);
