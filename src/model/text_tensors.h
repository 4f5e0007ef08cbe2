/* The tensors of a text model inside a wrapper, under the names of the text model alone:
 *
 *     model.language_model.X          model.X
 *     language_model.model.X          model.X
 *     language_model.lm_head.weight   lm_head.weight
 *
 * Tensors of other towers keep their names, which nobody asks for. */
#pragma once
#include "src/model/tensors.h"

/* Renames tensors of a sorted list, and sorts it again; stored_name stays. The weights of a convolution,
 * [channels, 1, width], become a matrix [channels, width]. */
int tensors_take_text(struct tensors *ts, struct err *e);
