/* The check of a GPU's kernels, without which `--device auto` takes the CPU. A small random model, the same
 * on both devices, reads a text: logits must be near the CPU's, and the bits of a row must not depend on the
 * other rows of its pass. The result is kept for each GPU, driver and program: a file in XDG_CACHE_HOME
 * (~/.cache)/longhand. Where none can be written, every call checks. */
#pragma once
#include "kernels/device.h"

/* Opens the GPU that is checked. */
typedef int device_opener(struct device **, char *why, size_t why_size);
/* Whether the open GPU has passed; why: the result, and its file. Without a result it is checked now, on a
 * device of its own. again NULL: nothing is checked, and false means that the GPU has failed. */
bool device_passed(const struct device *gpu, device_opener *again, char *why, size_t why_size);
