/* Chooses the reader of a model's files. Start at tensors_open. */
#include "src/model/model_files.h"

#include "src/model/safetensors.h"

int tensors_open(struct tensors *ts, const char *place, struct err *e)
{
    return safetensors_open(ts, place, e);
}
