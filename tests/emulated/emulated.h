/* The emulated GPU: device_gpu.c over the kernels compiled as C. Programs that link tests/emulated/
 * offer it as the device "emulated" (device_added of kernels/device.h). It is slow: it is for tests of
 * correctness. */
#pragma once
#include "kernels/device.h"

enum { EMULATED_GPUS = 2 };

/* Returns 0, or -1 with a reason of one line in why. */
int device_emulated_open(struct device **out, char *why, size_t why_size);
