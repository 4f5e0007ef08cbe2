/* The tensors of experts under one set of names. Files store them in three forms:
 *
 *     per expert    ...mlp.experts.E.gate_proj.weight, up_proj and down_proj; Mixtral calls them
 *                   ...block_sparse_moe.experts.E.w1.weight, w3 and w2
 *     fused         ...mlp.experts.gate_up_proj [E, 2 ffn, hidden], gate rows first, and down_proj
 *     GGUF          a tensor [E, rows, cols] for each of gate, up and down, and [E, rows] for their biases
 *
 * After the call they are per expert, under the first names, and the router is ...mlp.gate.weight (of gpt-oss
 * ...mlp.router.weight and bias before). */
#pragma once
#include "src/model/tensors.h"

/* Splits and renames tensors of a sorted list, and sorts it again. stored_name stays. ERR_INPUT: a fused
 * tensor has another shape, or an expert is given twice. */
int tensors_split_experts(struct tensors *ts, struct err *e);
