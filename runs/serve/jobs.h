/* /v1/jobs: the verbs about jobs, /tokenize, /detokenize and /metrics. */
#pragma once
#include "runs/serve/http.h"

/* The row of the job in the path, for job_list_free. Else -1, and *rc is the answer. */
int call_job(struct call *c, struct job_list *jobs, enum MHD_Result *rc);

enum MHD_Result answer_jobs(struct call *c);             /* list --json */
enum MHD_Result answer_job(struct call *c);              /* show --json */
enum MHD_Result answer_job_text(struct call *c);         /* text, and with ?follow=1 tail -f; ?from=TOKEN */
enum MHD_Result answer_job_report(struct call *c);       /* report --json */
enum MHD_Result answer_job_pause(struct call *c);
enum MHD_Result answer_job_resume(struct call *c);
enum MHD_Result answer_job_cancel(struct call *c);
enum MHD_Result answer_job_priority(struct call *c);     /* {"priority": P} */
/* The members of the body are options of the verb, as {"tokens": 500, "stop": ["End"]}. */
enum MHD_Result answer_job_extend(struct call *c);       /* the job that has the text then */
enum MHD_Result answer_job_fork(struct call *c);         /* the new job */
enum MHD_Result answer_job_remove(struct call *c);
enum MHD_Result answer_tokenize(struct call *c);         /* as vLLM's */
enum MHD_Result answer_detokenize(struct call *c);
enum MHD_Result answer_metrics(struct call *c);          /* as work --metrics */
