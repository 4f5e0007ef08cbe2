/* What a browser shows: the queue, a job, its report, and a form that queues a text. */
#pragma once
#include "runs/serve/http.h"

enum MHD_Result answer_page(struct call *c);
enum MHD_Result answer_job_page(struct call *c);
enum MHD_Result answer_report_page(struct call *c);
enum MHD_Result answer_form(struct call *c);
