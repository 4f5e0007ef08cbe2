/* Texts of jobs for a server: whole, or as they grow. */
#pragma once
#include <stdio.h>

#include "runs/serve/server.h"

/* A text as it grows. {0} is closed. */
struct growing {
    struct shared_reader *reader;        /* NULL: the text has not begun */
    struct grown_text text;
    size_t from;                         /* the first token that is written */
    bool over;                           /* the job is done, and all of its text was written */
};
/* Write what has been added to the text since the last call, as far as no retake changes it. *job: its row,
 * read now. */
int  growing_more(struct server *sv, struct growing *g, const struct job *job, FILE *to, struct err *e);
void growing_close(struct server *sv, struct growing *g);
