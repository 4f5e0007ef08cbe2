/* The draft layer (mtp.h): its configuration, opening it, and its pass. Start reading at mtp_open(). */
#include "src/model/mtp.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

bool mtp_present(const char *dir) { return tensors_have(dir, "mtp.fc.weight"); }

/* The configuration of the layer: one layer with attention. */
static void mtp_config(struct config *of, const struct config *c)
{
    *of = *c;
    of->n_layers = 1;
    of->drafts = true;
    of->layer[0].mixer = MIXER_ATTENTION;
    of->layer[0].experts = c->n_experts > 0;
    of->layer[0].window = 0;
    config_layers(of);
    of->delta = (struct delta_config){ 0 };
}

int mtp_check(const struct model *m, const struct tensors *ts, size_t *bytes, struct err *e)
{
    struct config c;
    mtp_config(&c, &m->config);
    return model_plan_bytes(&c, ts, m->compute, m->dev, bytes, e);
}

static size_t hidden_bytes(const struct model *m) { return MTP_ROWS * m->config.hidden * sizeof(float); }

/* Bytes of an 8-bit copy of the short LM head. */
static size_t brief_bytes(const struct model *m)
{
    return mat_bytes(&(struct mat){ DT_I8, MTP_BRIEF, m->config.hidden, NULL });
}

static bool has_brief(const struct model *m) { return m->config.vocab >= 2 * (size_t)MTP_BRIEF; }

size_t mtp_bytes(const struct model *m, size_t weight_bytes, bool int8)
{
    struct config c;
    mtp_config(&c, &m->config);
    return draft_model_bytes(&c, weight_bytes, hidden_bytes(m), m, int8, MTP_ROWS, MTP_SLOTS) +
           (int8 && !m->dev->quantised && has_brief(m) ? brief_bytes(m) : 0);
}

/* Embedding and LM head are those of the model, unless the file has others. */
static void borrow(struct model *layer, const struct model *m)
{
    if (!layer->embed.w) {
        layer->embed = m->embed.w ? m->embed : m->lm_head;
        layer->embed_packed = !m->embed.w;
    }
    if (!layer->lm_head.w)
        layer->lm_head = m->lm_head;
}

int mtp_shorten(struct mtp *t, size_t n, struct err *e)
{
    struct mat head = t->draft.own.lm_head;
    head.n = n;
    t->brief = *draft_model_of(&t->draft);
    if (t->draft.int8.mem) {                   /* an 8-bit matrix has its scales at its end */
        t->head_bytes = mat_bytes(&(struct mat){ DT_I8, n, head.k, NULL });
        t->head = mem_alloc(t->head_bytes);
        if (!t->head)
            return err_set(e, ERR_FAILED, "the draft layer: out of memory (%zu bytes)", t->head_bytes);
        t->brief.lm_head = (struct mat){ DT_I8, n, head.k, t->head };
        model_quantize_mat(&t->brief.lm_head, &head, t->draft.own.pool);
    } else {
        t->brief.lm_head = head;
    }
    return 0;
}

int mtp_open(struct mtp *t, const struct model *m, const char *dir, enum weights weights, bool int8,
             struct err *e)
{
    struct config c;
    *t = (struct mtp){ 0 };
    mtp_config(&c, &m->config);
    if (!m->dev->host_memory)
        return err_set(e, ERR_INPUT, "%s: --drafter mtp is not supported on this device; --device cpu "
                                     "supports it", m->dev->name);
    if (draft_model_open(&t->draft, dir, &c, weights, hidden_bytes(m), m, e))
        return -1;
    borrow(&t->draft.own, m);
    if (draft_model_quantize(&t->draft, int8, e) || (has_brief(m) && mtp_shorten(t, MTP_BRIEF, e)) ||
        draft_model_reserve(&t->draft, MTP_ROWS, MTP_SLOTS, e)) {
        mtp_close(t);
        return -1;
    }
    return 0;
}

void mtp_close(struct mtp *t)
{
    mem_free(t->head, t->head_bytes);
    draft_model_close(&t->draft);
    *t = (struct mtp){ 0 };
}

int mtp_forward(struct mtp *t, struct pass_seq *seqs, size_t n_seqs, bool brief)
{
    const struct tap tap = { TAP_HIDDEN, 0, t->draft.rows };
    const size_t vocab = t->draft.own.config.vocab;
    const struct model *m = brief ? &t->brief : draft_model_of(&t->draft);
    struct err ignored;
    if (model_forward(m, t->draft.work, seqs, n_seqs, &tap, 1, &ignored))
        return -1;
    for (size_t i = 0; i < n_seqs && brief; i++) {
        float *row = seqs[i].logits;
        for (size_t j = 0; j < seqs[i].n; j++) {
            for (size_t k = t->brief.lm_head.n; seqs[i].want[j] && k < vocab; k++)
                row[k] = -INFINITY;
            row += seqs[i].want[j] * vocab;
        }
    }
    return 0;
}
