/* A client that waits for texts, and the parts of answers. */
#pragma once
#include "runs/serve/flow.h"
#include "runs/serve/texts.h"

enum { SAMPLES_MAX = 64 };

/* The state of a request for texts, from its jobs to the last byte of its answer. */
struct waiting {
    struct flow flow;                    /* of a stream */
    struct server *sv;
    int64_t ids[SAMPLES_MAX]; size_t n;
    bool chat, keyed;                    /* keyed: the jobs go on without the client */
    bool stream, usage;
    bool settled;                        /* the jobs are done, or go on after this server */
    char id[48];                         /* cmpl-STORE-JOB */
    struct growing text[SAMPLES_MAX];
    /* of a stream: which choices have sent their finish_reason, whether the first events were sent, and
     * whether the last one was */
    bool finished[SAMPLES_MAX], begun, ended;
};

/* Ends the wait, as struct route's drop: no job stays that nobody waits for, unless it has a key. */
void drop_waiting(struct call *c);
/* What is new of text i, whose job was read now; free(*text). */
int  waiting_text(struct waiting *w, size_t i, const struct job *job, char **text, size_t *n, struct err *e);
/* What is wrong with the jobs, so that no answer will come: an HTTP status and a message; 0: nothing. */
unsigned waiting_failed(struct waiting *w, const struct job_list *jobs, char *message, size_t size);
/* id, object, created and model of an answer; the object stays open. */
void put_head(struct json_writer *w, const struct waiting *x, const char *object, double created);
void put_usage(struct json_writer *w, const struct job_list *jobs);
/* finish_reason and stop_reason of a job that is done, whose text *g was read. */
void put_finish(struct json_writer *w, const struct job *j, const struct growing *g);
