/* The weights of drafters whose files are those of src/model/drafter_file.h: `kind` of the drafter says how a
 * file is read. */
#pragma once
#include "src/decode/weights.h"
#include "src/model/drafter_file.h"

extern const struct drafter_weights file_weights;
