/* LongSpec's drafter (longspec.h): its files, and its pass. Start reading at longspec_forward(). */
#include "src/model/longspec.h"

static const struct drafter_block_kind block_kind = { true, true, "post_cross_attention_layernorm.weight" };

/* ---- the file and memory ---- */

/* The rows of a pass: in its own cache for the self-attention, in the model's for the cross-attention. */
enum part { SELF, CROSS };

struct longspec_buffers {
    struct drafter_buffers b;            /* LONGSPEC_ROWS rows */
    struct pass_rows rows[2];
};

static void longspec_list(struct drafter_file *f)
{
    const struct config *c = &f->model->config;
    const size_t d = c->hidden, hd = c->head_dim, q = c->n_heads * hd;
    struct longspec *l = (struct longspec *)f;
    struct longspec_buffers none, *b;
    drafter_part(f, &l->buffers, sizeof *b);
    b = l->buffers ? l->buffers : &none;
    drafter_block_list(f, &l->block, &block_kind, "");
    DRAFTER_TENSORS(f, &l->cross_q, "", { "cross_attn.q_proj.weight", q, d, hd, 0 });
    DRAFTER_TENSORS(f, &l->cross_o, "", { "cross_attn.o_proj.weight", d, q, 0, hd });
    DRAFTER_TENSORS(f, &l->cross_q_bias, "", { "cross_attn.q_proj.bias", q, 0, hd, 0 });
    DRAFTER_TENSORS(f, &l->norm_cross, "", { "post_self_attention_layernorm.weight", d, 0, 0, 0 });
    drafter_buffers_list(f, &b->b, LONGSPEC_ROWS);
    drafter_rows_list(f, &b->rows[SELF], LONGSPEC_ROWS, LONGSPEC_DEPTH_MAX);
    drafter_rows_list(f, &b->rows[CROSS], LONGSPEC_ROWS, 1);
}

const struct drafter_kind longspec_kind = { "longspec", sizeof(struct longspec), longspec_list, NULL };

/* ---- the pass ---- */

/* Fills in rows r .. of text i: all of them see the committed rows of the model, and of their own cache the
 * window before them and their path. */
static void place(struct longspec_buffers *b, const struct longspec_seq *s, size_t i, size_t r)
{
    struct pass_rows *own = &b->rows[SELF], *cross = &b->rows[CROSS];
    const size_t n_past = s->own->n_past, seen = s->target->n_past;
    assert(seen >= 1 && s->node0 + s->n <= s->own->node_max);
    own->kv[i] = kv_view(s->own);
    cross->kv[i] = kv_view(s->target);
    own->seq[i] = (struct device_seq){ .kv = &own->kv[i], .row0 = r, .n = s->n, .n_past = n_past,
                                       .tree = true, .node0 = s->node0 };
    cross->seq[i] = (struct device_seq){ .kv = &cross->kv[i], .row0 = r, .n = s->n, .n_past = seen };
    for (size_t j = 0; j < s->n; j++, r++) {
        uint32_t *path = own->node + r * LONGSPEC_DEPTH_MAX, n = 0;
        for (int32_t at = (int32_t)(s->node0 + j); at >= 0; at = s->parent[at])
            n++;
        assert(n <= LONGSPEC_DEPTH_MAX);
        const size_t pos = n_past + n - 1;
        pass_row(own, r, s->token[j], pos, n_past, s->first + pos, n);
        pass_row(cross, r, 0, seen - 1, seen, s->first + pos, 0);
        for (int32_t at = (int32_t)(s->node0 + j); at >= 0; at = s->parent[at])
            path[--n] = (uint32_t)at;
    }
}

/* The embeddings, and q, k and v of the self-attention; k and v go to the drafter's cache. */
static void run_qkv(const struct longspec *l, const struct device_rows *rows)
{
    const struct model *m = l->file.model;
    const struct drafter_buffers *b = &l->buffers->b;
    m->dev->begin(m->dev, rows);
    drafter_embed(m, b);
    drafter_project(m, &l->block, b, 0, b->x, rows->n);
}

static void run_cross(const struct longspec *l, const struct device_rows *rows)
{
    const struct model *m = l->file.model;
    const struct device_heads heads = drafter_block_heads(m);
    const struct drafter_buffers *b = &l->buffers->b;
    const size_t layer = config_last_global(&m->config);
    struct device *d = m->dev;
    d->begin(d, rows);
    d->rmsnorm(d, b->xn, b->x, l->norm_cross, rows->n, m->config.hidden, (float)m->config.rms_eps, SIZE_MAX);
    drafter_product(m, b->qkv, &l->cross_q, b->xn, l->cross_q_bias, rows->n, false);
    d->rope(d, &(struct device_rope){ .q = b->q, .qkv = b->qkv, .heads = &heads, .queries = true });
    d->attend(d, b->attn, b->q, &heads, layer, m->config.layer[layer].window);
    drafter_product(m, b->x, &l->cross_o, b->attn, NULL, rows->n, true);
}

int longspec_forward(struct longspec *l, const struct mat *head, const struct longspec_seq *seqs,
                     size_t n_seqs, float *logits)
{
    const struct model *m = l->file.model;
    struct longspec_buffers *b = l->buffers;
    size_t n = 0;
    for (size_t i = 0; i < n_seqs; n += seqs[i++].n) {
        assert(n + seqs[i].n <= LONGSPEC_ROWS);
        place(b, &seqs[i], i, n);
    }
    const struct device_rows self = pass_rows_of(m, &b->rows[SELF], n, n_seqs),
                             cross = pass_rows_of(m, &b->rows[CROSS], n, n_seqs);
    run_qkv(l, &self);
    drafter_attend(m, &l->block, &b->b, 0, LONGSPEC_WINDOW, n);
    run_cross(l, &cross);
    drafter_feed_forward(m, &l->block, &b->b, n);
    m->dev->narrow(m->dev, b->b.xn, b->b.x, n * m->config.hidden);         /* without a final norm */
    return drafter_lm_head(&l->file, head, b->b.xn, n, logits);
}

void longspec_read(struct longspec *l, struct kv *own, size_t first, const int32_t *token, size_t n)
{
    struct pass_rows *b = &l->buffers->rows[SELF];
    struct device_bad ignored;
    for (size_t done = 0, some; done < n; done += some) {
        some = MIN(n - done, (size_t)LONGSPEC_ROWS);
        assert(own->n_past + some <= own->n_max);
        b->kv[0] = kv_view(own);
        b->seq[0] = (struct device_seq){ .kv = &b->kv[0], .n = some, .n_past = own->n_past };
        for (size_t j = 0, pos = own->n_past; j < some; j++, pos++)
            pass_row(b, j, token[done + j], pos, pos + 1, first + pos, 0);
        const struct device_rows rows = pass_rows_of(l->file.model, b, some, 1);
        run_qkv(l, &rows);
        l->file.model->dev->end(l->file.model->dev, &ignored);
        kv_advance(own, some);
    }
}
