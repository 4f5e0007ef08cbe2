/* The weights of drafters whose files are those of src/model/drafter_file.h: `kind` of the drafter says how a
 * file is read. */
#pragma once
#include "src/decode/weights.h"
#include "src/model/drafter_file.h"

extern const struct drafter_weights file_weights;

/* What a pass of a drafter with such a file reads of the LM head, as planner_bytes. */
double file_weights_head(const struct decoder *d, const struct drafter_file *f);
