/* Tensors as GGUF has them. Start at gguf_form_read. */
#include "src/model/gguf_form.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/exp_d.h"
#include "src/model/encode.h"
#include "src/model/families/family.h"

float changed(float x, enum change c)
{
    const double limited = MAX(-600.0, MIN(600.0, (double)x));
    return c == MINUS_EXP ? (float)-exp_d(limited) : c == PLUS_ONE ? x + 1 : x;
}

struct gguf_form gguf_form(const struct config *c, const char *name)
{
    const size_t keys = 2 * c->delta.key_heads * c->delta.key_dim, dim = c->delta.value_dim;
    const struct { const char *end; struct gguf_form form; } of[] = {
        { ".in_proj_qkv.weight", { AS_IS, keys, dim, false } },
        { ".conv1d.weight", { AS_IS, keys, dim, false } },
        { ".in_proj_z.weight", { AS_IS, 0, dim, false } },
        { ".in_proj_b.weight", { AS_IS, 0, 1, false } },
        { ".in_proj_a.weight", { AS_IS, 0, 1, false } },
        { ".dt_bias", { AS_IS, 0, 1, true } },
        { ".A_log", { MINUS_EXP, 0, 1, true } },
        { ".out_proj.weight", { AS_IS, 0, dim, true } },
        { ".linear_attn.norm.weight", { AS_IS, 0, 0, false } },
        { "norm.weight", { PLUS_ONE, 0, 0, false } },
        { ".pre_fc_norm_embedding.weight", { PLUS_ONE, 0, 0, false } },
        { ".pre_fc_norm_hidden.weight", { PLUS_ONE, 0, 0, false } },
    };
    for (size_t i = 0; c->norm_plus_one && i < sizeof of / sizeof *of; i++)
        if (name_ends_in(name, of[i].end))
            return of[i].form;
    if (c->family->as_llama && (strstr(name, "self_attn.q_proj.") || strstr(name, "self_attn.k_proj.")))
        return (struct gguf_form){ .columns = name_ends_in(name, ".bias"), .paired = c->head_dim };
    return (struct gguf_form){ 0 };
}

size_t gguf_form_source(const struct gguf_form *f, const struct config *c, size_t i)
{
    const size_t d = f->paired, pair = d ? i % d : 0;
    if (d)
        return i - pair + pair % 2 * (d / 2) + pair / 2;
    const size_t keys = c->delta.key_heads, members = f->width ? c->delta.value_heads / keys : 1;
    if (!f->width || i < f->skip)
        return i;
    const size_t head = (i - f->skip) / f->width, in = (i - f->skip) % f->width;
    return f->skip + (head % keys * members + head / keys) * f->width + in;
}

/* A layer that the model does not have may have any shape. */
static int check_heads(const struct gguf_form *f, const struct tensors *ts, const struct tensor *t,
                       const struct config *c, struct err *e)
{
    const size_t has = f->columns ? t->cols : t->dim[0],
                 needed = f->paired ? MAX(has / f->paired, (size_t)1) * f->paired
                                    : f->skip + c->delta.value_heads * f->width;
    return has == needed || (!f->width && !f->paired)
               ? 0
               : tensor_bad(ts, t, e, ": %zu %s, needed are %zu", has, f->columns ? "columns" : "rows",
                            needed);
}

int gguf_form_read(const struct tensors *ts, const struct tensor *t, const struct config *c, void *dst,
                   size_t row, size_t n, struct err *e)
{
    const struct gguf_form f = gguf_form(c, t->name);
    const size_t row_bytes = t->bytes / (t->n_dims == 2 ? t->dim[0] : 1);
    if (f.change == AS_IS && !f.width && !f.paired)
        return tensors_read(ts, t, dst, row * row_bytes, n * row_bytes, e);
    if (check_heads(&f, ts, t, c, e))
        return -1;
    const size_t stored = t->cols * dtype_size(t->stored_dtype),
                 bytes = t->cols / t->encoded->block * t->encoded->bytes;
    char *source = malloc(stored);
    float *x = malloc(t->cols * sizeof *x);
    int rc = source && x ? 0
                         : err_set(e, ERR_FAILED, "%s: out of memory for a row of %zu bytes",
                                   ts->path[t->shard], stored);
    for (size_t r = row; rc == 0 && r < row + n; r++) {
        const size_t from = f.columns ? r : gguf_form_source(&f, c, r);
        rc = read_at(ts->fd[t->shard], ts->path[t->shard], source, t->offset + from * stored, stored, e);
        for (size_t k = 0; rc == 0 && k < t->cols; k++)
            x[k] = changed(tensor_value(source, t->stored_dtype, f.columns ? gguf_form_source(&f, c, k) : k),
                           f.change);
        if (rc == 0 && !encode_row((char *)dst + (r - row) * bytes, t->encoded, x, DT_F32, t->cols))
            rc = tensor_bad(ts, t, e, ": row %zu: %s cannot hold its weights", from, t->encoded->name);
    }
    free(source);
    free(x);
    return rc;
}
