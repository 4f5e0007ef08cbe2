/* Model and number formats from the command line. */
#pragma once
#include "src/decode/engine.h"
#include "src/request/options.h"

/* The model that a command line names: --model, else LONGHAND_MODEL; NULL: neither. *what: which of them. */
const char *model_of_options(const struct options *o, const char **what);
/* Its directory or file. ERR_INPUT when no model is named, or nothing has the name. */
int model_dir(char dir[PATH_BYTES], const struct options *o, struct err *e);
/* engine_open with the model, --compute, --kv-dtype, --context-scaling, --threads and --device. */
int options_open_engine(struct engine *g, const struct options *o, struct err *e);

enum dtype option_compute(int compute);                /* COMPUTE_* of --compute */
enum dtype option_kv(int kv_dtype);                    /* KV_DTYPE_* of --kv-dtype; DT_OTHER: auto */
