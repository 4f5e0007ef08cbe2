/* The tensors of a model under one set of names. Files store them in several forms; a view takes a tensor of
 * a sorted list and replaces it by others, which lie in the same bytes. stored_name stays, and the list is
 * sorted again. ERR_INPUT: a tensor has another shape or type than its form, or one is given twice. */
#pragma once
#include "src/model/config.h"
#include "src/model/tensors.h"

/* A text model inside a wrapper: model.language_model.X, language_model.model.X and language_model.lm_head
 * lose the wrapper's part. Tensors of other towers keep their names, which nobody asks for. The weights of a
 * convolution, [channels, 1, width], become a matrix [channels, width]. */
int tensors_take_text(struct tensors *ts, struct err *e);

/* Experts in one of five forms become the first one. Routers get the name ...mlp.gate.weight.
 *
 *     per expert    ...mlp.experts.E.gate_proj.weight, up_proj and down_proj; Mixtral calls them
 *                   ...block_sparse_moe.experts.E.w1.weight, w3 and w2
 *     fused         ...mlp.experts.gate_up_proj [E, 2 ffn, hidden], gate rows first, and down_proj
 *     GGUF          a tensor [E, rows, cols] for each of gate, up and down, and [E, rows] for their biases
 *     dealt         those of gpt-oss as published
 *     transposed    those of gpt-oss as transformers writes them: ...mlp.experts.gate_up_proj
 *                   [E, hidden, 2 ffn], even columns are gate; down_proj [E, ffn, hidden]; biases as dealt
 *
 * Dealt matrices are MXFP4 in two tensors, and gate and up share their rows in turn:
 *
 *     ...mlp.experts.gate_up_proj_blocks   U8 [E, 2 ffn, hidden / 32, 16]: byte j of a block holds weights 2j
 *                                          (low bits) and 2j + 1; even rows are gate, odd rows are up
 *     ...mlp.experts.gate_up_proj_scales   U8 [E, 2 ffn, hidden / 32]
 *     ...mlp.experts.gate_up_proj_bias     [E, 2 ffn], even elements are gate
 *     and the same of down_proj, whose rows are its own
 *
 * tensors_read gives blocks as GGUF files have them, and the rows of transposed matrices. The scales stay in
 * the list, so that a fingerprint covers them. */
int tensors_split_experts(struct tensors *ts, struct err *e);
/* Whether a tensor has the scales of others, whose types count them. */
bool tensor_is_dealt_scales(const struct tensor *t);

/* Tensors that are joined along their rows: q, k and v of a layer, gate and up (Phi-3; attn_qkv of any GGUF
 * file), and the network of Granite 4, which has other names. They become the parts, as others have them. */
bool tensors_have_joined(const struct tensors *ts);
int tensors_split_joined(struct tensors *ts, const struct config *c, struct err *e);
/* The parts of the joined tensor of which `name` is the first part, in order: their names after
 * "model.layers.N.", with "_proj". Returns their number; 0: `name` is no first part. */
enum { JOINED_MAX = 3 };
size_t joined_parts(const char *name, const char *part[JOINED_MAX]);
/* Whether `name` is a further part. */
bool joined_follows(const char *name);
