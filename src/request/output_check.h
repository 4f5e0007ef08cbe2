/* Checks that the files a command writes are writable, distinct, and not among the files it reads. All of
 * them replace what exists under their names, so the command must find a mistake before hours of work, not
 * after. */
#pragma once
#include "src/request/options.h"

/* Checks --output, --json-stats, --curves and --metrics against the inputs, the model of --model, and each
 * other, and refuses to replace databases, their journals, and without --force a file that is no earlier
 * output, as far as this is known before the work. ERR_INPUT with one line. */
int output_check_all(const struct options *o, struct err *e);
/* Whether an output may take the place of a file: of a database never. */
int output_kept(const struct options *o, const char *option, const char *path, struct err *e);
/* Checks the same outputs against the files of a model that only became known later. */
int output_check_model(const struct options *o, const char *dir, struct err *e);
/* Checks them against a database, which need not exist when the other checks are made. */
int output_check_store(const struct options *o, const char *db, struct err *e);
/* Checks one more output file, which belongs to `option`. */
int output_check_one(const struct options *o, const char *option, const char *path, struct err *e);
