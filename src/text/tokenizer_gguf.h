/* The tokenizer of a Hugging Face model as GGUF metadata, for llama.cpp and its relatives. longhand itself
 * reads the whole tokenizer.json, which goes into the file as well: so the ids are the same by
 * construction. */
#pragma once
#include "src/model/gguf_write.h"
#include "src/text/tokenizer.h"

/* json[n]: the tokenizer.json of t. vocab: the model's; ids without a token become "[PAD<id>]". ERR_INPUT:
 * GGUF has no name for the tokenizer's split pattern. */
int tokenizer_put_gguf(struct gguf_out *o, const struct tokenizer *t, const char *json, size_t n,
                       size_t vocab, struct err *e);
