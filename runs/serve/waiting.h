/* A client that waits for texts, and the parts of answers. */
#pragma once
#include "runs/serve/http.h"
#include "runs/serve/texts.h"

enum { SAMPLES_MAX = 64 };

/* A client that waits for the texts of its jobs. */
struct waiting {
    struct server *sv;
    int64_t ids[SAMPLES_MAX]; size_t n;
    bool chat, keyed;                    /* keyed: the jobs go on without the client */
    bool stream, usage;
    char id[48];                         /* cmpl-STORE-JOB */
};

/* Ends the wait: no job stays that nobody waits for, unless it has a key. */
void waiting_end(struct waiting *w, bool gone);
/* What is wrong with the jobs, so that no answer will come: an HTTP status and a message; 0: nothing. */
unsigned waiting_failed(const struct waiting *w, const struct job_list *jobs, char *message, size_t size);
/* id, object, created and model of an answer; the object stays open. */
void put_head(struct json_writer *w, const struct waiting *x, const char *object, double created);
void put_usage(struct json_writer *w, const struct job_list *jobs);
/* finish_reason and stop_reason of a job that is done, whose text *g was read. */
void put_finish(struct json_writer *w, const struct job *j, const struct growing *g);
