/* Decoder blocks of trained drafters (drafter_block.h). Start reading at drafter_block_read() and
 * drafter_project(). */
#include "src/model/drafter_block.h"

#include <stdio.h>
#include <string.h>

/* ---- memory and files ---- */

void drafter_block_layout(struct drafter_file *f, struct drafter_block *b, const struct drafter_block_kind *k,
                          bool int8)
{
    const struct config *c = &f->model->config;
    const size_t d = c->hidden, dp = f->model->head_dim, q = c->n_heads * dp, kv = c->n_kv_heads * dp;
    drafter_matrix(f, &b->qkv, q + 2 * kv, d, int8);
    drafter_matrix(f, &b->o, d, q, int8);
    drafter_matrix(f, &b->gate_up, 2 * c->ffn, d, int8);
    drafter_matrix(f, &b->down, d, c->ffn, int8);
    if (k->bias)
        drafter_part(f, &b->qkv_bias, (q + 2 * kv) * sizeof(float));
    if (k->norm_attn)
        drafter_part(f, &b->norm_attn, d * sizeof(float));
    drafter_part(f, &b->norm_mlp, d * sizeof(float));
}

void drafter_buffers_layout(struct drafter_file *f, struct drafter_buffers *b, size_t n)
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

void drafter_rows_layout(struct drafter_file *f, struct drafter_rows *r, size_t n, size_t step)
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

/* The tensors of a block in a file. */
enum tensor_at { AT_Q, AT_K, AT_V, AT_O, AT_GATE, AT_UP, AT_DOWN, AT_NORM_ATTN, AT_NORM_MLP, AT_Q_BIAS,
                 AT_K_BIAS, AT_V_BIAS };
static void name_of(char to[96], enum tensor_at at, const struct drafter_block_kind *k, const char *prefix)
{
    static const char *const names[DRAFTER_BLOCK_TENSORS] = {
        "self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",
        "self_attn.o_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight",
        "input_layernorm.weight", NULL, "self_attn.q_proj.bias", "self_attn.k_proj.bias",
        "self_attn.v_proj.bias",
    };
    snprintf(to, 96, "%s%s", prefix, at == AT_NORM_MLP ? k->norm_mlp : names[at]);
}

size_t drafter_block_tensors(const struct model *m, const struct drafter_block_weights *w,
                             const struct drafter_block_kind *k, const char *prefix, struct tensor_out *t)
{
    const struct config *c = &m->config;
    const size_t d = c->hidden, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim, ff = c->ffn;
    const float *kb = w->kv_bias;
    const struct { size_t rows, cols; const float *data; } part[DRAFTER_BLOCK_TENSORS] = {
        [AT_Q] = { q, d, w->q }, [AT_K] = { kv, d, w->kv }, [AT_V] = { kv, d, w->kv + kv * d },
        [AT_O] = { d, q, w->o }, [AT_GATE] = { ff, d, w->gate_up }, [AT_UP] = { ff, d, w->gate_up + ff * d },
        [AT_DOWN] = { d, ff, w->down }, [AT_NORM_ATTN] = { d, 0, w->norm_attn },
        [AT_NORM_MLP] = { d, 0, w->norm_mlp }, [AT_Q_BIAS] = { q, 0, w->q_bias },
        [AT_K_BIAS] = { kv, 0, kb }, [AT_V_BIAS] = { kv, 0, kb ? kb + kv : NULL },
    };
    size_t n = 0;
    for (size_t i = 0; i < DRAFTER_BLOCK_TENSORS; i++) {
        if (!part[i].data)
            continue;
        t[n] = (struct tensor_out){ .dtype = part[i].cols ? DT_BF16 : DT_F32, .rows = part[i].rows,
                                    .cols = part[i].cols, .data = part[i].data };
        name_of(t[n++].name, (enum tensor_at)i, k, prefix);
    }
    return n;
}

int drafter_block_read(const struct drafter_file *f, struct drafter_block *b,
                       const struct drafter_block_kind *k, const char *prefix, const struct tensors *ts,
                       struct err *e)
{
    const struct model *m = f->model;
    const struct config *c = &m->config;
    const size_t d = c->hidden, hd = c->head_dim, q = c->n_heads * hd, kv = c->n_kv_heads * hd, ff = c->ffn,
                 dp = m->head_dim;
    char n[DRAFTER_BLOCK_TENSORS][96];
    for (size_t i = 0; i < DRAFTER_BLOCK_TENSORS; i++)
        name_of(n[i], (enum tensor_at)i, k, prefix);
    const struct drafter_mat qkv[] = { { n[AT_Q], q, d, hd, 0 }, { n[AT_K], kv, d, hd, 0 },
                                       { n[AT_V], kv, d, hd, 0 } },
        o = { n[AT_O], d, q, 0, hd },
        gate_up[] = { { n[AT_GATE], ff, d, 0, 0 }, { n[AT_UP], ff, d, 0, 0 } },
        down = { n[AT_DOWN], d, ff, 0, 0 };
    const struct { struct mat *m; const struct drafter_mat *t; size_t n; } mats[] = {
        { &b->qkv, qkv, 3 }, { &b->o, &o, 1 }, { &b->gate_up, gate_up, 2 }, { &b->down, &down, 1 },
    };
    for (size_t i = 0; i < sizeof mats / sizeof *mats; i++)
        if (drafter_read_product(f->mem ? mats[i].m : NULL, ts, mats[i].t, mats[i].n, m, e))
            return -1;
    float *qb = f->mem ? b->qkv_bias : NULL, *kb = qb ? qb + c->n_heads * dp : NULL,
          *vb = qb ? kb + c->n_kv_heads * dp : NULL;
    if (k->bias && (drafter_read_vector(ts, n[AT_Q_BIAS], q, hd, dp, qb, e) ||
                    drafter_read_vector(ts, n[AT_K_BIAS], kv, hd, dp, kb, e) ||
                    drafter_read_vector(ts, n[AT_V_BIAS], kv, hd, dp, vb, e)))
        return -1;
    if (k->norm_attn && drafter_read_vector(ts, n[AT_NORM_ATTN], d, 0, 0, f->mem ? b->norm_attn : NULL, e))
        return -1;
    return drafter_read_vector(ts, n[AT_NORM_MLP], d, 0, 0, f->mem ? b->norm_mlp : NULL, e);
}

/* ---- a pass ---- */

struct device_heads drafter_block_heads(const struct model *m)
{
    return (struct device_heads){ m->config.n_heads, m->config.n_kv_heads, m->config.head_dim, m->head_dim };
}

struct device_rows drafter_rows_of(const struct model *m, const struct drafter_rows *r, size_t n,
                                   size_t n_seqs)
{
    return (struct device_rows){ .n = n, .n_seqs = n_seqs, .seq = r->seq, .token = r->token, .pos = r->pos,
                                 .hi = r->hi, .angle = r->angle, .n_node = r->n_node, .node = r->node,
                                 .node_step = r->step, .inv_freq = m->inv_freq,
                                 .n_freq = m->config.rotary / 2, .rope_factor = m->rope_factor };
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
