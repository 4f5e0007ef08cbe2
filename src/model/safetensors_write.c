/* Writing safetensors files: the JSON header, padded to a multiple of 8 bytes, then the data in the order of
 * the tensors. Start at safetensors_write. */
#include "src/model/safetensors_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/json_write.h"
#include "src/base/memory_file.h"

static size_t elements(const struct tensor_out *t) { return t->rows * (t->cols ? t->cols : 1); }
static size_t bytes_of(const struct tensor_out *t)
{
    return elements(t) * (t->ids ? 8 : dtype_size(t->dtype));
}

static void write_header(FILE *f, const struct tensor_out *t, size_t n, const struct metadata_out *meta,
                         size_t n_meta, const size_t *size)
{
    struct json_writer w = { .f = f, .style = JW_COMPACT };
    size_t at = 0;
    jw_open(&w, NULL, '{');
    jw_open(&w, "__metadata__", '{');                /* its values must be strings */
    for (size_t i = 0; i < n_meta; i++)
        jw_text(&w, meta[i].key, meta[i].value);
    jw_close(&w, '}');
    for (size_t i = 0; i < n; i++) {
        jw_open(&w, t[i].name, '{');
        jw_text(&w, "dtype", t[i].ids ? "I64" : t[i].dtype == DT_BF16 ? "BF16" : "F32");
        jw_open(&w, "shape", '[');
        jw_uint(&w, NULL, t[i].rows);
        if (t[i].cols)
            jw_uint(&w, NULL, t[i].cols);
        jw_close(&w, ']');
        jw_open(&w, "data_offsets", '[');
        jw_uint(&w, NULL, at);
        jw_uint(&w, NULL, at += bytes_of(&t[i]));
        jw_close(&w, ']');
        jw_close(&w, '}');
    }
    jw_close(&w, '}');
    while (fflush(f) == 0 && *size % 8)
        fputc(' ', f);
}

int safetensors_write(const char *path, const struct tensor_out *t, size_t n, const struct metadata_out *meta,
                      size_t n_meta, struct err *e)
{
    char *header = NULL;
    size_t size = 0, total = 0;
    for (size_t i = 0; i < n; i++)
        total += bytes_of(&t[i]);
    char *data = malloc(total);
    FILE *f = memory_file(&header, &size);
    if (f)
        write_header(f, t, n, meta, n_meta, &size);
    const bool written = f && stream_end(f) == 0;
    int rc;
    if (data && written) {
        char *to = data;
        for (size_t i = 0; i < n; to += bytes_of(&t[i++]))
            for (size_t j = 0; j < elements(&t[i]); j++)
                if (t[i].ids)            /* the place may be odd */
                    memcpy(to + 8 * j, &(int64_t){ t[i].ids[j] - (int64_t)j }, 8);
                else if (t[i].dtype == DT_BF16)
                    ((uint16_t *)(void *)to)[j] = f32_to_bf16(t[i].data[j]);
                else
                    ((float *)(void *)to)[j] = t[i].data[j];
        const struct slice part[] = { { &size, sizeof size }, { header, size }, { data, total } };
        rc = file_write(path, part, 3, e);
    } else {
        rc = err_set(e, ERR_FAILED, "%s: out of memory", path);
    }
    free(header);
    free(data);
    return rc;
}
