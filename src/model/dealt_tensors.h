/* Experts of gpt-oss as published. The matrices are MXFP4 in two tensors, and gate and up share their rows in
 * turn:
 *
 *     ...mlp.experts.gate_up_proj_blocks   U8 [E, 2 ffn, hidden / 32, 16]: byte j of a block holds weights 2j
 *                                          (low bits) and 2j + 1; even rows are gate, odd rows are up
 *     ...mlp.experts.gate_up_proj_scales   U8 [E, 2 ffn, hidden / 32]
 *     ...mlp.experts.gate_up_proj_bias     [E, 2 ffn], even elements are gate
 *     and the same of down_proj, whose rows are its own
 *
 * After tensors_deal_experts each expert has matrices of MXFP4 and vectors for gate, up and down, under the
 * names of expert_tensors.h. tensors_read gives blocks as GGUF files have them. The scales stay in the
 * list, so that a fingerprint covers them. */
#pragma once
#include "src/model/tensors.h"

/* Replaces the tensors of a sorted list, and sorts it again. stored_name stays. ERR_INPUT: a tensor has
 * another shape or type, or scales are missing. */
int tensors_deal_experts(struct tensors *ts, struct err *e);
/* Whether a tensor has the scales of others, whose types count them. */
bool tensor_is_dealt_scales(const struct tensor *t);
