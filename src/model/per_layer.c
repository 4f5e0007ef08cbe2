/* Embeddings of each layer: rows of the table, read from its file, and their sum with the projection of the
 * token's embedding. Start at per_layer_embed. */
#include "src/model/per_layer.h"

#include <math.h>

#include "kernels/quant.h"

static size_t row_values(const struct config *c) { return c->n_layers * c->per_layer; }

size_t per_layer_bytes(const struct config *c)
{
    return 3 * row_values(c) * sizeof(float);    /* a row as values, as it is stored, and as it is encoded */
}

/* Reads a row of the table into x. */
static int read_row(const struct model *m, size_t row, float *x, char *stored, struct err *e)
{
    const struct tensors *ts = m->files;
    const struct tensor *t = m->table;
    const size_t n = row_values(&m->config), bytes = tensor_stored_bytes(t) / t->dim[0];
    char *made = stored + n * sizeof(float);
    if (read_at(ts->fd[t->shard], ts->path[t->shard], stored, t->offset + row * bytes, bytes, e) ||
        (t->encoded && tensors_make_rows(ts, t, made, stored, row, 1, e)))
        return -1;
    const char *from = t->encoded ? made : stored;
    if (dtype_is_quantised(t->dtype))
        quant_decode(x, t->dtype, from, n);
    for (size_t i = 0; i < n && !dtype_is_quantised(t->dtype); i++)
        x[i] = tensor_value(from, t->dtype, i);
    return 0;
}

int per_layer_embed(const struct model *m, const int32_t *token, size_t n, float *e, char *work,
                    struct err *err)
{
    const struct config *c = &m->config;
    const size_t width = c->per_layer, values = row_values(c);
    const float scale = sqrtf((float)width), half = sqrtf(0.5f),
                eps = (float)(c->rms_eps * (double)c->hidden);   /* the norm is that of e / sqrt(hidden) */
    float *x = (float *)(void *)work;
    if (m->table && tensor_stamp(m->files, m->table) != m->table_stamp)
        return err_set(err, ERR_INPUT, "%s: the file changed while it was read",
                       m->files->path[m->table->shard]);
    for (size_t r = 0; r < n; r++, e += values) {
        if (m->table && read_row(m, (size_t)token[r], x, work + values * sizeof *x, err))
            return -1;
        m->ops->rmsnorm(e, width, DT_F32, e, width, m->norm_per_layer, c->n_layers, width, eps);
        for (size_t i = 0; i < values; i++)
            e[i] = (e[i] + (m->table ? scale * x[i] : 0)) * half;
    }
    return 0;
}
