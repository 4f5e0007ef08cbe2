/* The words of stored parameters, shared by the writer (job_params_describe.c) and the reader
 * (job_params.c). Each list is indexed by its enum. */
#pragma once
#include "src/request/job_params.h"

enum { JOB_POLICIES = 6 };
struct job_policy { const char *name; enum kv_policy policy; };
extern const struct job_policy job_policies[JOB_POLICIES];
extern const char *const job_step_names[CHAIN_STEPS];
extern const char *const job_compute_names[2], *const job_kv_names[3], *const job_lead_names[3],
    *const job_verifier_names[2], *const job_weight_names[2], *const job_encoded_names[2];
