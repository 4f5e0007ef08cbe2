/* `longhand bench --points resume[,at=N]`: how long a killed job takes to its next token, with and without a snapshot of its cache.
 *
 * A job of --tokens (100,000) is written by `longhand work` in a process of its own, as a user would, and killed (SIGKILL) at token N (90,000).
 * Its store is copied. Then, --repeat times in turn, a worker takes the job with --kv-snapshot auto, and one takes the copy with off;
 * the time from the start of the process (model and all) to the first new token that another process can read is what is
 * measured, and the worker is killed again. At the end both are written to their end, and the two texts are compared token by token. */
#pragma once
#include "src/request/options.h"

bool bench_resume_wanted(const char *points);
int  bench_resume(const struct options *o, struct err *e);
