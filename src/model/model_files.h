/* The files of a model, in any format: its tensors. A model lies in a directory as Hugging Face publishes it. */
#pragma once
#include "src/model/tensors.h"

/* Opens the tensors of the model at `place`. ERR_INPUT names the file, the tensor and the value. */
int tensors_open(struct tensors *ts, const char *place, struct err *e);
