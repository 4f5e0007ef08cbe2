/* Checks that the files a command writes are writable, distinct, and not among the files it reads. */
#pragma once
#include "src/request/options.h"

/* Checks --output, --json-stats and --curves against the inputs, the model of --model, and each other.
 * ERR_INPUT with one line. */
int  outputs_check(const struct options *o, struct err *e);
/* The same outputs against the files of a model that only became known later. */
int  outputs_check_model(const struct options *o, const char *dir, struct err *e);
/* One more output file, which belongs to `option`. */
int  output_check(const struct options *o, const char *option, const char *path, struct err *e);
