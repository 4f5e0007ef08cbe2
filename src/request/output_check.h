/* Checks that the files a command writes are writable, distinct, and not among the files it reads. All of
 * them replace what exists under their names, so the command must find a mistake before hours of work, not
 * after. */
#pragma once
#include "src/request/options.h"

/* Checks --output, --json-stats and --curves against the inputs, the model of --model, and each other.
 * ERR_INPUT with one line. */
int output_check_all(const struct options *o, struct err *e);
/* Checks the same outputs against the files of a model that only became known later. */
int output_check_model(const struct options *o, const char *dir, struct err *e);
/* Checks one more output file, which belongs to `option`. */
int output_check_one(const struct options *o, const char *option, const char *path, struct err *e);
