/* Which jobs a command names: 7, 5-90, @NAME, @NAME/custom_id, @NAME/custom_id/sample, --state STATE,
 * --finish REASON, --loops, --shorter-than N, --longer-than N, --distinct-below N:X, --repeats-above X,
 * --all.
 *
 * Several words select the union of their jobs: `7 @novel` is job 7 and the batch "novel". The options narrow
 * the union; without words they select from all jobs. Nothing here knows the store:
 * store_select turns a selection into job numbers. */
#pragma once
#include "src/base/base.h"

enum job_state { JOB_QUEUED, JOB_RUNNING, JOB_PAUSED, JOB_DONE, JOB_FAILED, JOB_CANCELLED, JOB_STATES };
enum { BATCH_NAME_BYTES_MAX = 200 };

const char *job_state_name(enum job_state s);
/* Fails with ERR_INPUT and the list of states. */
int job_state_parse(enum job_state *s, const char *word, struct err *e);

/* Check a batch name: 1 to 200 bytes of UTF-8 without '/' and control bytes. `what` begins the message. */
int batch_name_check(const char *what, const char *name, struct err *e);

struct selection_term {
    const char *word;                /* as the user wrote it; borrowed */
    int64_t first, last;             /* job numbers; 0 for a name */
    char name[BATCH_NAME_BYTES_MAX + 1];
    const char *custom_id;           /* points into word; NULL: the whole batch */
};

struct selection {
    struct selection_term *v; size_t n;      /* n 0: every job */
    bool by_state; enum job_state state;
    const char *finish;                      /* finish_reason; NULL: any */
    bool loops;                              /* only jobs whose text has a repetition (store_repetition) */
    size_t shorter, longer;                  /* tokens of the text: below `shorter`, above `longer`; 0: any */
    size_t distinct; double distinct_below;  /* Distinct-n of the tokens, with this n; 0: any */
    bool no_requests;                        /* without words: not the jobs of requests to a server */
    bool by_repeats; double repeats_above;   /* share of the words that repeat (src/text/repeats.h), which
                                              * the caller of store_select has to compute */
};

/* The words of a command line. They are borrowed and must outlive the selection. */
struct selection_words {
    const char *const *v; size_t n;
    const char *state, *finish; bool loops, all;
    size_t shorter, longer;
    const char *distinct_below, *repeats_above;      /* "N:X" and "X"; NULL: any */
    bool no_requests;
};
/* No words, no option that narrows, and no `all` is an error; a verb whose default is every job passes
 * `all`. `all` together with words is an error. Call selection_free also after a failure. */
int selection_parse(struct selection *sel, const struct selection_words *w, struct err *e);
void selection_free(struct selection *sel);
