/* SPIRe's drafter (spire.h): its files, and its pass. Start reading at spire_forward() and spire_commit(). */
#include "src/model/spire.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the file and memory ---- */

struct spire_buffers {
    struct drafter_buffers b;            /* SPIRE_ROWS rows, as the next */
    float *memory[SPIRE_LAYERS];
    struct pass_rows rows;
};

static void spire_list(struct drafter_file *f)
{
    const struct drafter_block_kind k = { f->model->config.qkv_bias, true,
                                          "post_attention_layernorm.weight" };
    const size_t d = f->model->config.hidden, bytes = d * sizeof(float);
    struct spire *s = (struct spire *)f;
    struct spire_buffers none, *b;
    drafter_part(f, &s->buffers, sizeof *b);
    b = s->buffers ? s->buffers : &none;
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "layers.%zu.", i);
        drafter_block_list(f, &s->layer[i], &k, prefix);
        drafter_part(f, &b->memory[i], SPIRE_ROWS * bytes);
    }
    DRAFTER_TENSORS(f, &s->norm, "", { "norm.weight", d, 0, 0, 0 });
    drafter_put(f, "memory.weight", DT_F32, SPIRE_LAYERS, SPIRE_MIX, s->memory);
    drafter_buffers_list(f, &b->b, SPIRE_ROWS);
    drafter_rows_list(f, &b->rows, SPIRE_ROWS, SPIRE_DEPTH);
}

/* The shares of the memories. */
static int spire_read(struct drafter_file *f, const struct tensors *ts, struct err *e)
{
    const struct model *m = f->model;
    struct spire *s = (struct spire *)f;
    if (m->config.n_layers < SPIRE_LAYERS)
        return err_set(e, ERR_INPUT, "--drafter spire: a model of %zu layers, at least %d are needed",
                       m->config.n_layers, SPIRE_LAYERS);
    const struct tensor *t = tensors_need(ts, "memory.weight", SPIRE_LAYERS, SPIRE_MIX, e);
    float w[SPIRE_LAYERS][SPIRE_MIX];
    if (!t || t->dtype != DT_F32)
        return t ? tensor_bad(ts, t, e, ": dtype %s, allowed is F32", t->dtype_name) : -1;
    if (tensors_read(ts, t, w, 0, sizeof w, e))
        return -1;
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        double sum = 0;
        for (size_t l = 0; l < SPIRE_MIX; l++)
            sum += exp((double)w[i][l]);
        if (!isfinite(sum))
            return tensor_bad(ts, t, e, ": not a finite number, or one beyond 709");
        for (size_t l = 0; l < SPIRE_MIX; l++)
            s->share[i][l] = (float)(exp((double)w[i][l]) / sum);
    }
    return 0;
}

const struct drafter_kind spire_kind = { "spire", sizeof(struct spire), spire_list, spire_read };

/* ---- the pass ---- */

/* memory += share x of depth l */
static void remember(const struct spire *s, size_t l, size_t n)
{
    const struct spire_buffers *b = s->buffers;
    for (size_t i = 0; i < SPIRE_LAYERS; i++)
        for (size_t k = 0; k < n * s->file.model->config.hidden; k++)
            b->memory[i][k] = (l ? b->memory[i][k] : 0) + s->share[i][l] * b->b.x[k];
}

int spire_forward(struct spire *s, const struct mat *head, const struct spire_row *row, size_t n,
                  bool memories, float *logits)
{
    const struct model *m = s->file.model;
    struct spire_buffers *b = s->buffers;
    struct pass_rows *p = &b->rows;
    struct device *d = m->dev;
    assert(n <= SPIRE_ROWS);
    for (size_t r = 0; r < n; r++) {
        assert(row[r].node < SPIRE_DEPTH && row[r].node < row[r].own->node_max);
        p->kv[r] = kv_view(row[r].own);
        p->seq[r] = (struct device_seq){ .kv = &p->kv[r], .row0 = r, .n = 1, .n_past = row[r].own->n_past,
                                         .tree = true, .node0 = row[r].node };
        const size_t past = row[r].own->n_past;
        pass_row(p, r, row[r].token, past + row[r].node, past, row[r].position, row[r].node + 1);
        for (uint32_t i = 0; i < p->n_node[r]; i++)
            p->node[r * SPIRE_DEPTH + i] = i;
    }
    const struct device_rows rows = pass_rows_of(m, p, n, n);
    d->begin(d, &rows);
    drafter_embed(m, &b->b);
    remember(s, 0, n);
    for (size_t i = 0; i < SPIRE_LAYERS; i++) {
        drafter_project(m, &s->layer[i], &b->b, i, b->b.x, n);
        drafter_attend(m, &s->layer[i], &b->b, i, 0, n);
        drafter_feed_forward(m, &s->layer[i], &b->b, n);
        remember(s, i + 1, n);
    }
    for (size_t i = 0; i < SPIRE_LAYERS && memories; i++)
        drafter_project(m, &s->layer[i], &b->b, i, b->memory[i], n);
    d->rmsnorm(d, b->b.xn, b->b.x, s->norm, n, m->config.hidden, (float)m->config.rms_eps, 0);
    return drafter_lm_head(&s->file, head, b->b.xn, n, logits);
}

void spire_commit(struct spire *s, struct kv *own, const struct spire_memory *row, size_t n)
{
    const size_t hidden = s->file.model->config.hidden;
    struct spire_buffers *b = s->buffers;
    struct pass_rows *p = &b->rows;
    struct device *d = s->file.model->dev;
    struct device_bad ignored;
    for (size_t done = 0, some; done < n; done += some) {
        some = MIN(n - done, (size_t)SPIRE_ROWS);
        p->kv[0] = kv_view(own);
        p->seq[0] = (struct device_seq){ .kv = &p->kv[0], .n = some };
        for (size_t r = 0; r < some; r++) {
            const struct spire_memory *x = &row[done + r];
            assert(x->slot < own->n_max);
            pass_row(p, r, 0, x->slot, x->slot + 1, x->position, 0);
            for (size_t i = 0; i < SPIRE_LAYERS; i++)
                memcpy(b->memory[i] + r * hidden, x->entering[i], hidden * sizeof(float));
        }
        const struct device_rows rows = pass_rows_of(s->file.model, p, some, 1);
        d->begin(d, &rows);
        for (size_t i = 0; i < SPIRE_LAYERS; i++)
            drafter_project(s->file.model, &s->layer[i], &b->b, i, b->memory[i], some);
        d->end(d, &ignored);
    }
}
