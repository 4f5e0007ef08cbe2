/* What a browser shows: the queue, a job, and a form that queues a text. */
#pragma once
#include "runs/serve/http.h"

answer_fn answer_page;
answer_fn answer_job_page;
answer_fn answer_form;
/* A page with the message, for struct route. */
void put_failed_page(struct call *c, const char *message);
