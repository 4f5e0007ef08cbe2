/* Texts of jobs for a server: whole, or as they grow; and answers whose bytes come while they are sent. */
#pragma once
#include <stdio.h>

#include "runs/serve/http.h"

/* A text as it grows. {0} is closed. */
struct growing {
    struct shared_reader *reader;        /* NULL: the text has not begun */
    struct grown_text text;
    size_t from;                         /* the first token that is written */
    bool over;                           /* the job is done, and all of its text was written */
};
/* Write what has been added to the text since the last call, as far as no retake changes it: the answer, and
 * the thoughts before it (struct grown_part). *job: its row, read now. */
int  growing_more(struct server *sv, struct growing *g, const struct job *job, FILE *to, FILE *thought,
                  struct err *e);
/* The same as texts, each followed by a NUL; grown_answer_free, also after a failure. */
struct grown_answer { char *text, *thought; size_t n, n_thought; };
int  growing_text(struct server *sv, struct growing *g, const struct job *job, struct grown_answer *x,
                  struct err *e);
void grown_answer_free(struct grown_answer *x);
void growing_close(struct server *sv, struct growing *g);

/* An answer that grows: the first member of call.state. libmicrohttpd asks for its bytes in the thread of the
 * connection, which may wait. */
struct flow {
    struct call *c;
    const int64_t *ids; size_t n;        /* the jobs whose news may bring more */
    /* Write what can be sent now. 1: there will be more; 0: that is all; -1: the answer is cut off. */
    int (*more)(struct flow *x, FILE *f);
    const char *silence;                 /* sent when nothing was for a while; NULL: nothing is */
    bool over;                           /* all is written */
    char *out; size_t n_out, at;         /* what is written, and how much of it was handed over; free */
    double sent;                         /* when the last bytes were handed over */
};
int answer_flow(struct flow *x, const char *type);
