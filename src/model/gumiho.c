/* Gumiho's drafter (gumiho.h): its files, and its passes. Start reading at gumiho_serial() and
 * gumiho_heads(). */
#include "src/model/gumiho.h"

#include <stdio.h>
#include <string.h>

/* Layer 0 reads the output of fc without a norm. */
static const struct drafter_block_kind block_kinds[GUMIHO_LAYERS] = {
    { false, false, "post_attention_layernorm.weight" }, { false, true, "post_attention_layernorm.weight" }
};

/* Inputs of a linear map of a head. */
static size_t inputs(const struct model *m, size_t k) { return m->config.hidden * (k ? 1 : 2); }

/* ---- the file and memory ---- */

struct gumiho_buffers {
    struct drafter_buffers b;            /* GUMIHO_ROWS rows, as the next */
    void *pair;                          /* act [2 hidden]: inputs of fc and of the heads */
    float *y, *pre;                      /* [hidden]: of a head */
    void *guess;                         /* act [hidden]: inputs of the LM head */
    float *ones;                         /* [hidden] */
    struct pass_rows rows;
};

static void gumiho_list(struct drafter_file *f)
{
    const struct model *m = f->model;
    const size_t d = m->config.hidden, bytes = d * sizeof(float), act = d * dtype_size(model_act(m));
    struct gumiho *g = (struct gumiho *)f;
    struct gumiho_buffers none, *b;
    char prefix[64];
    drafter_part(f, &g->buffers, sizeof *b);
    b = g->buffers ? g->buffers : &none;
    DRAFTER_TENSORS(f, &g->fc, "", { "fc.weight", d, 2 * d, 0, 0 });
    DRAFTER_TENSORS(f, &g->fc_bias, "", { "fc.bias", d, 0, 0, 0 });
    for (size_t i = 0; i < GUMIHO_LAYERS; i++) {
        snprintf(prefix, sizeof prefix, "layers.%zu.", i);
        drafter_block_list(f, &g->layer[i], &block_kinds[i], prefix);
    }
    for (size_t i = 0; i < GUMIHO_HEADS; i++)
        for (size_t k = 0; k < GUMIHO_LINEARS; k++) {
            snprintf(prefix, sizeof prefix, "mlp.%zu.%zu.linear.", i, k);
            DRAFTER_TENSORS(f, &g->head[i][k].w, prefix, { "weight", d, inputs(m, k), 0, 0 });
            DRAFTER_TENSORS(f, &g->head[i][k].bias, prefix, { "bias", d, 0, 0, 0 });
        }
    drafter_buffers_list(f, &b->b, GUMIHO_ROWS);
    drafter_rows_list(f, &b->rows, GUMIHO_ROWS, 1);
    drafter_part(f, &b->pair, GUMIHO_ROWS * 2 * act);
    drafter_part(f, &b->y, GUMIHO_ROWS * bytes);
    drafter_part(f, &b->pre, GUMIHO_ROWS * bytes);
    drafter_part(f, &b->guess, GUMIHO_ROWS * act);
    drafter_part(f, &b->ones, bytes);
    for (size_t i = 0; i < d && f->mem; i++)
        b->ones[i] = 1;
}

static int gumiho_read(struct drafter_file *f, const struct tensors *ts, struct err *e)
{
    /* fc and the heads have the widest inputs */
    const struct device_limits limits = { .rows_max = GUMIHO_ROWS, .n_max = 1,
                                           .heads = drafter_block_heads(f->model),
                                           .n_in_max = inputs(f->model, 0) };
    (void)ts;
    return f->mem && f->model->dev->reserve(f->model->dev, &limits)
               ? err_set(e, ERR_FAILED, "%s: out of memory", f->path)
               : 0;
}

const struct drafter_kind gumiho_kind = { "gumiho", sizeof(struct gumiho), gumiho_list, gumiho_read };

/* ---- the serial part ---- */

/* Writes x into half of row r of the inputs of fc. */
static void put_half(const struct gumiho *g, size_t r, bool second, const float *x)
{
    const struct model *m = g->file.model;
    const size_t d = m->config.hidden, act = dtype_size(model_act(m));
    m->dev->narrow(m->dev, (char *)g->buffers->pair + (2 * r + second) * d * act, x, d);
}

/* y = fc of n pairs: of the tokens of the pass, and of states that put_half has written. */
static void connect(const struct gumiho *g, float *y, size_t n)
{
    const struct model *m = g->file.model;
    struct gumiho_buffers *b = g->buffers;
    drafter_embed(m, &b->b);
    for (size_t r = 0; r < n; r++)
        put_half(g, r, false, b->b.x + r * m->config.hidden);
    drafter_product(m, y, &g->fc, b->pair, g->fc_bias, n, false);
}

/* Fills in rows r .. of text i. */
static void place(struct gumiho *g, const struct gumiho_seq *s, size_t i, size_t r)
{
    struct pass_rows *p = &g->buffers->rows;
    const size_t n_past = s->own->n_past;
    assert(s->candidates ? s->n <= s->own->node_max && s->out : n_past + s->n <= s->own->n_max);
    p->kv[i] = kv_view(s->own);
    p->seq[i] = (struct device_seq){ .kv = &p->kv[i], .row0 = r, .n = s->n, .n_past = n_past,
                                     .tree = s->candidates };
    for (size_t j = 0; j < s->n; j++, r++) {
        const size_t pos = n_past + (s->candidates ? 0 : j);
        pass_row(p, r, s->token[j], pos, pos + !s->candidates, s->first + pos, s->candidates);
        p->node[r] = (uint32_t)j;
        put_half(g, r, true, s->state + j * s->step);
    }
}

/* Copies the rows that `out` wants, and gathers them as inputs of the LM head. Returns their number. */
static size_t take_rows(struct gumiho *g, const struct gumiho_seq *seq, size_t n_seqs)
{
    const struct model *m = g->file.model;
    struct gumiho_buffers *b = g->buffers;
    const size_t d = m->config.hidden, act = dtype_size(model_act(m));
    size_t r = 0, wanted = 0;
    for (size_t i = 0; i < n_seqs; r += seq[i++].n) {
        const size_t n = !seq[i].out ? 0 : seq[i].candidates ? seq[i].n : 1;
        const float *x = b->b.x + (r + seq[i].n - n) * d;
        if (n == 0)
            continue;
        memcpy(seq[i].out, x, n * d * sizeof *x);
        m->dev->narrow(m->dev, (char *)b->guess + wanted * d * act, x, n * d);
        wanted += n;
    }
    return wanted;
}

int gumiho_serial(struct gumiho *g, const struct mat *head, const struct gumiho_seq *seq, size_t n_seqs,
                  float *logits)
{
    const struct model *m = g->file.model;
    struct gumiho_buffers *b = g->buffers;
    struct device_bad ignored;
    size_t n = 0;
    for (size_t i = 0; i < n_seqs; n += seq[i++].n) {
        assert(n + seq[i].n <= GUMIHO_ROWS);
        place(g, &seq[i], i, n);
    }
    const struct device_rows rows = pass_rows_of(m, &b->rows, n, n_seqs);
    m->dev->begin(m->dev, &rows);
    connect(g, b->y, n);
    memcpy(b->b.x, b->y, n * m->config.hidden * sizeof *b->y);
    for (size_t i = 0; i < GUMIHO_LAYERS; i++) {
        drafter_project(m, &g->layer[i], &b->b, i, b->b.x, n);
        if (i + 1 == GUMIHO_LAYERS && !logits)           /* keys and values are all that is wanted */
            break;
        drafter_attend(m, &g->layer[i], &b->b, i, GUMIHO_WINDOW, n);
        drafter_feed_forward(m, &g->layer[i], &b->b, n);
    }
    for (size_t i = 0; i < n_seqs; i++)
        if (!seq[i].candidates)
            kv_advance(seq[i].own, seq[i].n);
    return logits ? drafter_lm_head(&g->file, head, b->guess, take_rows(g, seq, n_seqs), logits)
                  : m->dev->end(m->dev, &ignored);
}

/* ---- the heads ---- */

/* b->y = the output of head i for n branches, whose inputs are in b->pair. */
static void run_head(const struct gumiho *g, size_t i, size_t n)
{
    const struct model *m = g->file.model;
    struct gumiho_buffers *b = g->buffers;
    const size_t d = m->config.hidden;
    for (size_t k = 0; k < GUMIHO_LINEARS; k++) {
        const void *in = k ? b->b.xn : b->pair;
        if (k)
            m->dev->narrow(m->dev, b->b.xn, b->y, n * d);
        drafter_product(m, b->pre, &g->head[i][k].w, in, g->head[i][k].bias, n, false);
        float *silu = k ? b->b.x : b->y;
        for (size_t r = 0; r < n; r++)
            m->ops->swiglu(silu + r * d, DT_F32, b->pre + r * d, b->ones, d);
        for (size_t j = 0; k && j < n * d; j++)
            b->y[j] += silu[j];
    }
}

int gumiho_heads(struct gumiho *g, const struct mat *head, const struct gumiho_branch *branch, size_t n,
                 size_t n_heads, float *logits)
{
    const struct model *m = g->file.model;
    struct gumiho_buffers *b = g->buffers;
    struct pass_rows *p = &b->rows;
    const size_t d = m->config.hidden, act = dtype_size(model_act(m));
    assert(n <= GUMIHO_BRANCHES && n_heads <= GUMIHO_HEADS);
    for (size_t r = 0; r < 2 * n; r++) {
        pass_row(p, r, branch[r / 2].token[r % 2], 0, 0, 0, 0);
        put_half(g, r, true, branch[r / 2].state[r % 2]);
    }
    const struct device_rows rows = pass_rows_of(m, p, 2 * n, 0);
    m->dev->begin(m->dev, &rows);
    connect(g, b->y, 2 * n);
    m->dev->narrow(m->dev, b->pair, b->y, 2 * n * d);
    for (size_t i = 0; i < n_heads; i++) {
        run_head(g, i, n);
        for (size_t r = 0; r < n; r++)
            m->dev->narrow(m->dev, (char *)b->guess + (r * n_heads + i) * d * act, b->y + r * d, d);
    }
    return drafter_lm_head(&g->file, head, b->guess, n * n_heads, logits);
}
