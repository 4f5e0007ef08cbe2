/* /v1/jobs: the verbs about jobs; /tokenize and /detokenize. */
#pragma once
#include "runs/serve/http.h"

/* Answers with what `put` writes about the job of the path. s: a connection of its own. */
typedef int put_job_fn(struct call *c, struct store *s, const struct job *job, struct err *e);
int answer_about(struct call *c, put_job_fn *put, struct err *e);

answer_fn answer_jobs;             /* list --json */
answer_fn answer_job;              /* show --json */
answer_fn answer_job_text;         /* text, and with ?follow=1 tail -f; ?from=TOKEN */
void drop_following(struct call *c);             /* ends it, as struct route's drop */
answer_fn answer_job_report;       /* report --json */
answer_fn answer_report_page;      /* report --html */
answer_fn answer_job_pause;
answer_fn answer_job_resume;
answer_fn answer_job_cancel;
answer_fn answer_job_priority;     /* {"priority": P} */
/* The members of the body are options of the verb, as {"tokens": 500, "stop": ["End"]}. */
answer_fn answer_job_extend;       /* the job that has the text then */
answer_fn answer_job_fork;         /* the new job */
answer_fn answer_job_remove;
answer_fn answer_tokenize;         /* as vLLM's */
answer_fn answer_detokenize;
