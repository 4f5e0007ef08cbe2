/* Decoder blocks of trained drafters (drafter_block.h). Start reading at drafter_block_list() and
 * drafter_project(). */
#include "src/model/drafter_block.h"

#include <stdio.h>
#include <string.h>

/* ---- memory and files ---- */

void drafter_block_list(struct drafter_file *f, struct drafter_block *b, const struct drafter_block_kind *k,
                        const char *prefix)
{
    const struct config *c = &f->model->config;
    const size_t d = c->hidden, hd = c->head_dim, q = c->n_heads * hd, kv = c->n_kv_heads * hd, ff = c->ffn;
    DRAFTER_TENSORS(f, &b->qkv, prefix, { "self_attn.q_proj.weight", q, d, hd, 0 },
                    { "self_attn.k_proj.weight", kv, d, hd, 0 }, { "self_attn.v_proj.weight", kv, d, hd, 0 });
    DRAFTER_TENSORS(f, &b->o, prefix, { "self_attn.o_proj.weight", d, q, 0, hd });
    DRAFTER_TENSORS(f, &b->gate_up, prefix, { "mlp.gate_proj.weight", ff, d, 0, 0 },
                    { "mlp.up_proj.weight", ff, d, 0, 0 });
    DRAFTER_TENSORS(f, &b->down, prefix, { "mlp.down_proj.weight", d, ff, 0, 0 });
    if (k->norm_attn)
        DRAFTER_TENSORS(f, &b->norm_attn, prefix, { "input_layernorm.weight", d, 0, 0, 0 });
    DRAFTER_TENSORS(f, &b->norm_mlp, prefix, { k->norm_mlp, d, 0, 0, 0 });
    if (k->bias)
        DRAFTER_TENSORS(f, &b->qkv_bias, prefix, { "self_attn.q_proj.bias", q, 0, hd, 0 },
                        { "self_attn.k_proj.bias", kv, 0, hd, 0 },
                        { "self_attn.v_proj.bias", kv, 0, hd, 0 });
}

void drafter_buffers_list(struct drafter_file *f, struct drafter_buffers *b, size_t n)
{
    const struct config *c = &f->model->config;
    const size_t d = c->hidden, dp = f->model->head_dim, q = c->n_heads * dp, kv = c->n_kv_heads * dp,
                 act = dtype_size(model_act(f->model));
    const struct { void *slot; size_t bytes; } part[] = {
        { &b->x, d * sizeof(float) }, { &b->qkv, (q + 2 * kv) * sizeof(float) },
        { &b->gate_up, 2 * c->ffn * sizeof(float) }, { &b->xn, d * act }, { &b->q, q * act },
        { &b->attn, q * act }, { &b->h, c->ffn * act },
    };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        drafter_part(f, part[i].slot, n * part[i].bytes);
}

void drafter_rows_list(struct drafter_file *f, struct pass_rows *r, size_t n, size_t step)
{
    uint32_t **const each[] = { &r->pos, &r->hi, &r->n_node, &r->angle };
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        drafter_part(f, each[i], n * sizeof **each);
    drafter_part(f, &r->token, n * sizeof *r->token);
    drafter_part(f, &r->node, n * step * sizeof *r->node);
    drafter_part(f, &r->kv, n * sizeof *r->kv);
    drafter_part(f, &r->seq, n * sizeof *r->seq);
    r->step = step;
}

/* ---- a pass ---- */

struct device_heads drafter_block_heads(const struct model *m)
{
    return (struct device_heads){ m->config.n_heads, m->config.n_kv_heads, m->config.head_dim, m->head_dim };
}

void drafter_product(const struct model *m, float *y, const struct mat *w, const void *x, const float *bias,
                     size_t n, bool add)
{
    m->dev->product(m->dev, &(struct device_product){ y, w->n, x, n, w, bias, add, SIZE_MAX });
}

int drafter_lm_head(const struct drafter_file *f, const struct mat *head, const void *x, size_t n,
                    float *logits)
{
    struct device *d = f->model->dev;
    struct device_bad bad;
    draft_vocab_product(&f->vocab, f->model, head, x, n, logits, 0);
    return d->end(d, &bad) || bad.any ? -1 : 0;
}

void drafter_embed(const struct model *m, const struct drafter_buffers *b)
{
    m->dev->embed(m->dev, b->x, m->embed.w ? &m->embed : &m->lm_head, !m->embed.w);
}

static void norm(const struct model *m, void *y, const float *x, const float *gain, size_t n)
{
    m->dev->rmsnorm(m->dev, y, x, gain, n, m->config.hidden, (float)m->config.rms_eps, SIZE_MAX);
}

void drafter_project(const struct model *m, const struct drafter_block *k, const struct drafter_buffers *b,
                     size_t layer, const float *x, size_t n)
{
    const struct device_heads heads = drafter_block_heads(m);
    if (k->norm_attn)
        norm(m, b->xn, x, k->norm_attn, n);
    else
        m->dev->narrow(m->dev, b->xn, x, n * m->config.hidden);
    drafter_product(m, b->qkv, &k->qkv, b->xn, k->qkv_bias, n, false);
    m->dev->rope(m->dev, &(struct device_rope){ .q = b->q, .qkv = b->qkv, .heads = &heads, .layer = layer });
}

void drafter_attend(const struct model *m, const struct drafter_block *k, const struct drafter_buffers *b,
                    size_t layer, size_t window, size_t n)
{
    const struct device_heads heads = drafter_block_heads(m);
    m->dev->attend(m->dev, b->attn, b->q, &heads, layer, window);
    drafter_product(m, b->x, &k->o, b->attn, NULL, n, true);
}

void drafter_feed_forward(const struct model *m, const struct drafter_block *k,
                          const struct drafter_buffers *b, size_t n)
{
    norm(m, b->xn, b->x, k->norm_mlp, n);
    drafter_product(m, b->gate_up, &k->gate_up, b->xn, NULL, n, false);
    m->dev->swiglu(m->dev, b->h, b->gate_up, n, m->config.ffn);
    drafter_product(m, b->x, &k->down, b->h, NULL, n, true);
}
