/* Fuzz target: a safetensors header. Input: 4 bytes of data length (little endian), then the header. */
#include "src/model/safetensors.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct tensors ts;
    struct err e;
    if (n < 4)
        return 0;
    uint64_t data_bytes =
        data[0] | (uint64_t)data[1] << 8 | (uint64_t)data[2] << 16 | (uint64_t)data[3] << 24;
    if (tensors_parse(&ts, "fuzz", (const char *)data + 4, n - 4, data_bytes, &e)) {
        if (e.code != ERR_INPUT || !*e.msg || strchr(e.msg, '\n') || ts.t)
            abort();
        return 0;
    }
    /* Accepted tensors are sorted, tile the data, and are found by name. */
    size_t sum = 0;
    for (size_t i = 0; i < ts.n; i++) {
        const struct tensor *t = &ts.t[i];
        if (!*t->name || (i && strcmp(t[-1].name, t->name) >= 0) || tensors_find(&ts, t->name) != t ||
            t->n_dims > TENSOR_DIMS_MAX)
            abort();
        if (t->offset < 8 + (n - 4) || t->offset + t->bytes > 8 + (n - 4) + data_bytes)
            abort();
        tensors_need(&ts, t->name, t->n_dims ? t->dim[0] : 1, t->n_dims == 2 ? t->dim[1] : 0, &e);
        sum += t->bytes;
    }
    if (sum != data_bytes || ts.data_bytes != data_bytes)
        abort();
    tensors_close(&ts);
    return 0;
}
