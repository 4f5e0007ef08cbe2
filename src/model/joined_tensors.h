/* Tensors that a file stores joined, along their rows: q, k and v of a layer, and gate and up.
 *
 *     Hugging Face  ...self_attn.qkv_proj.weight, ...mlp.gate_up_proj.weight (Phi-3)
 *     GGUF          attn_qkv of any model, ffn_up of phi3; the reader gives them the names above
 *
 * After the call they are apart, under the names of other models. */
#pragma once
#include "src/model/config.h"
#include "src/model/tensors.h"

/* Whether some tensor is joined. */
bool tensors_have_joined(const struct tensors *ts);
/* Splits the joined tensors of a sorted list, and sorts it again. stored_name stays. ERR_INPUT: a joined
 * tensor has not the rows of the configuration. */
int tensors_split_joined(struct tensors *ts, const struct config *c, struct err *e);

/* The parts of the joined tensor of which `name` is the first part, in order: their names after
 * "model.layers.N.", with "_proj". Returns their number; 0: `name` is no first part. */
enum { JOINED_MAX = 3 };
size_t joined_parts(const char *name, const char *part[JOINED_MAX]);
/* Whether `name` is a further part. */
bool joined_follows(const char *name);
