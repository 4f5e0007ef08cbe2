/* The device of the tests of GPU kernels: the emulated GPU, or a GPU with LONGHAND_TEST_DEVICE=cuda. */
#pragma once
#include "kernels/device.h"
#include "tests/emulated/emulated.h"
#include <stdlib.h>
#include <string.h>

static inline bool test_on_gpu(void)
{
    const char *s = getenv("LONGHAND_TEST_DEVICE");
    return s && strcmp(s, "cuda") == 0;
}

static inline int test_device_open(struct device **d, char *why, size_t size)
{
    return test_on_gpu() ? device_cuda_open(d, 0, why, size) : device_emulated_open(d, why, size);
}
