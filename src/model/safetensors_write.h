/* Writes a safetensors file of floats. Its tensors are BF16 (rounded, nearest even) or F32, or I64: a list of
 * ids, each minus its index. */
#pragma once
#include "kernels/ops.h"
#include "src/base/base.h"

struct tensor_out {
    char name[96];
    enum dtype dtype;                    /* DT_BF16 or DT_F32 */
    size_t rows, cols;                   /* cols 0: one dimension */
    const float *data;
    const int32_t *ids;                  /* not NULL: in place of dtype and data */
};
struct metadata_out { const char *key, *value; };
/* The file appears under its name when it is complete. */
int safetensors_write(const char *path, const struct tensor_out *t, size_t n, const struct metadata_out *meta,
                      size_t n_meta, struct err *e);
