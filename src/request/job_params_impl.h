/* The members of stored parameters, shared by the writer (job_params_describe.c) and the reader
 * (job_params.c). */
#pragma once
#include "src/request/job_params.h"
#include "src/request/options_impl.h"

/* A member: of a row of the options' table, or (opt NULL) the FILE of `drafter`. */
struct member { char name[40]; const struct option *opt; size_t drafter; };
enum { MEMBERS_MAX = 64 };
/* The members of the object, or of "drafting" within it, in the order of their names. */
const struct member *job_members(bool drafting, size_t *n);
/* The place of the value of a row. */
static inline void *job_place(const struct job_params *p, const struct option *opt)
{
    return (char *)(uintptr_t)p + (opt->field - offsetof(struct options, job));
}
/* The member "order" of every job: the steps of the sampling chain as they were when jobs began to name them.
 * A later step is not among them. */
enum { JOB_STEPS = 8 };
extern const char *const job_step_names[JOB_STEPS];
