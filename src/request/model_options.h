/* Model and number formats from the command line, and notices about a model and a prompt that load, but whose
 * files say two things. */
#pragma once
#include "src/decode/engine.h"
#include "src/request/options.h"

/* The model that a command line names: --model, else LONGHAND_MODEL; NULL: neither. *what: which of them. */
const char *model_of_options(const struct options *o, const char **what);
/* Its directory or file. ERR_INPUT when no model is named, or nothing has the name. */
int model_dir(char dir[PATH_BYTES], const struct options *o, struct err *e);
/* engine_open of the model at `dir`, with --compute, --kv-dtype, --context-scaling, --threads, --device. */
int engine_of_options(struct engine *g, const struct options *o, const char *dir, struct err *e);
/* The same of the model that the command line names. */
int options_open_engine(struct engine *g, const struct options *o, struct err *e);

enum dtype option_compute(int compute);                /* COMPUTE_* of --compute */
enum dtype option_kv(int kv_dtype);                    /* KV_DTYPE_* of --kv-dtype; DT_OTHER: auto */

/* An EOS that the tokenizer alone names; tensors that nothing reads; ids of a GGUF file. The headers of the
 * weights are open. Each notice is said once, after the checks that may refuse the request. */
void model_notices(const struct engine *g, const struct options *o);
/* Whether the ids begin with BOS twice: the tokenizer adds it to a prompt that begins with its text. */
bool begins_with_bos_twice(const struct engine *g, const int32_t *ids, size_t n);
/* The notice. prompts: how many begin so. */
void bos_notice(const struct engine *g, const struct options *o, size_t prompts);
