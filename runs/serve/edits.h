/* extend and fork: the members of the body are options of the verb, as {"tokens": 500, "stop": ["End"]}. */
#pragma once
#include "runs/serve/http.h"

enum MHD_Result answer_job_extend(struct call *c);       /* the job that has the text then */
enum MHD_Result answer_job_fork(struct call *c);         /* the new job */
