/* `longhand bench --points resume[,at=N]`: how long a killed job takes to its next token, with and without
 * a snapshot of its cache.
 *
 * `longhand work` writes a job of --tokens (100,000) in a process of its own, and SIGKILL ends it at token
 * N (90,000). The store is copied. Then, --repeat times in turn, a worker continues the job under
 * --kv-snapshot auto, and with the copy under off. The measured time begins with the process and ends when
 * another process can read its first new token; then that worker is killed too. At the end both jobs are
 * written to their end, and their texts are compared. */
#pragma once
#include "src/request/options.h"

bool bench_resume_wanted(const char *points);
int  bench_resume(const struct options *o, struct err *e);
