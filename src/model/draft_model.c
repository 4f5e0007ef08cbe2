/* Opening and closing a model that drafts (draft_model.h). */
#include "src/model/draft_model.h"

int draft_model_open(struct draft_model *t, const char *dir, const struct config *c, enum weights weights,
                     size_t row_bytes, const struct model *m, struct err *e)
{
    const struct model_setup setup = { .config = c, .compute = m->compute, .dev = m->dev, .ops = m->ops,
                                       .pool = m->pool, .weights = weights };
    *t = (struct draft_model){ .row_bytes = row_bytes };
    if (model_open(&t->own, dir, &setup, e)) {
        *t = (struct draft_model){ 0 };
        return -1;
    }
    t->rows = mem_alloc(row_bytes);
    if (t->rows)
        return 0;
    draft_model_close(t);
    return err_set(e, ERR_FAILED, "%s: out of memory (%zu bytes)", dir, row_bytes);
}

int draft_model_quantize(struct draft_model *t, bool int8, struct err *e)
{
    return int8 && !t->own.quantised && model_quantize(&t->int8, &t->own, NULL, NULL, NULL, e) ? -1 : 0;
}

int draft_model_reserve(struct draft_model *t, size_t rows_max, size_t n_max, struct err *e)
{
    struct workspace *work;
    if (n_max <= t->n_max)
        return 0;
    if (workspace_open(&work, &t->own, rows_max, n_max, e))
        return -1;                       /* other texts keep theirs */
    workspace_close(t->work);
    t->work = work;
    t->n_max = n_max;
    return 0;
}

void draft_model_close(struct draft_model *t)
{
    mem_free(t->rows, t->row_bytes);
    workspace_close(t->work);
    model_close(&t->int8);
    model_close(&t->own);
    *t = (struct draft_model){ 0 };
}

size_t draft_model_bytes(const struct config *c, size_t weight_bytes, size_t row_bytes, const struct model *m,
                         bool int8, size_t rows_max, size_t n_max)
{
    const struct model sizes = { .config = *c, .compute = m->compute, .dev = m->dev, .ops = m->ops,
                                 .pool = m->pool, .head_dim = m->dev->head_dim(m->dev, c->head_dim),
                                 .quantised = m->dev->quantised };
    return weight_bytes + row_bytes +
           (int8 && !m->dev->quantised ? model_quantized_bytes(c, m->dev) : 0) +
           (n_max ? workspace_bytes(&sizes, rows_max, n_max) : 0);
}

void draft_model_state(const struct model *m, float *state, const float *residual)
{
    const size_t d = m->config.hidden;
    m->ops->rmsnorm(state, d, DT_F32, residual, d, m->norm_final, 1, d, (float)m->config.rms_eps);
}
