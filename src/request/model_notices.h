/* Notices about a model and a prompt that load, but whose files say two things. Each is said once, after the
 * checks that may refuse the request. */
#pragma once
#include "src/decode/engine.h"
#include "src/request/options.h"

/* An EOS that the tokenizer alone names; tensors that nothing reads; ids of a GGUF file. The headers of the
 * weights are open. */
void model_notices(const struct engine *g, const struct options *o);
/* Whether the ids begin with BOS twice: the tokenizer adds it to a prompt that begins with its text. */
bool begins_with_bos_twice(const struct engine *g, const int32_t *ids, size_t n);
/* The notice. prompts: how many begin so. */
void bos_notice(const struct engine *g, const struct options *o, size_t prompts);
