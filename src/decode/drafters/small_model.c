/* Opening a model that drafts for another one (small_model.h). Start reading at small_model_open(). */
#include "src/decode/drafters/small_model.h"

#include "src/model/config_tensors.h"

/* The ids of a draft must mean the same tokens. */
static int check_vocabulary(const char *dir, const struct config *c, const struct model *m,
                            const struct tokenizer *t, struct err *e)
{
    struct tokenizer *own;
    int32_t id;
    if (c->vocab != m->config.vocab)
        return err_set(e, ERR_INPUT, "--drafter: model:%s: a vocabulary of %zu tokens, the model has %zu",
                       dir, c->vocab, m->config.vocab);
    if (tokenizer_open(&own, dir, c->vocab, e))
        return -1;
    const bool same = tokenizer_same(own, t, &id);
    tokenizer_close(own);
    return same ? 0
                : err_set(e, ERR_INPUT, "--drafter: model:%s: another tokenizer: token %d is not the model's",
                          dir, (int)id);
}

/* Reads the configuration and the headers of the weights, and checks them. */
static int open_headers(struct config *c, struct tensors *ts, const char *dir, const struct model *m,
                        const struct tokenizer *t, struct err *e)
{
    if (!m->dev->host_memory)
        return err_set(e, ERR_INPUT, "%s: --drafter model:DIR is not supported on this device; --device cpu "
                                     "supports it", m->dev->name);
    if (config_read(c, dir, e) || check_vocabulary(dir, c, m, t, e) ||
        tensors_open_as(ts, dir, WEIGHTS_AS_IS, c->tied, e))
        return -1;
    if (config_check_tensors(c, ts, e) == 0 && model_is_quantised(ts) == m->dev->quantised &&
        !config_is_hybrid(c))
        return 0;
    if (config_is_hybrid(c))
        err_set(e, ERR_INPUT, "--drafter: model:%s: models with recurrent states (%s) do not draft", dir,
                c->model_type);
    else if (model_is_quantised(ts) != m->dev->quantised)
        err_set(e, ERR_INPUT, "--drafter: model:%s: %s; a model with quantised weights drafts for one of its "
                              "kind only", dir,
                m->dev->quantised ? "its weights are not quantised" : "its weights are quantised");
    tensors_close(ts);
    return -1;
}

static size_t logits_bytes(const struct config *c) { return SMALL_ROWS * c->vocab * sizeof(float); }

int small_model_check(const char *dir, const struct model *m, const struct tokenizer *t, bool int8,
                      size_t *bytes, struct err *e)
{
    struct config c;
    struct tensors ts = { 0 };
    size_t weights;
    if (open_headers(&c, &ts, dir, m, t, e))
        return -1;
    int rc = model_plan_bytes(&c, &ts, m->compute, m->dev, &weights, e);
    if (rc == 0 && bytes)
        *bytes = draft_model_bytes(&c, weights, logits_bytes(&c), m, int8, SMALL_ROWS, SMALL_SLOTS);
    tensors_close(&ts);
    return rc;
}

int small_model_open(struct draft_model *s, const char *dir, const struct model *m, const struct tokenizer *t,
                     bool int8, struct err *e)
{
    struct tensors ts = { 0 };
    struct config c;
    *s = (struct draft_model){ 0 };
    if (open_headers(&c, &ts, dir, m, t, e))
        return -1;
    tensors_close(&ts);
    if (draft_model_open(s, dir, &c, WEIGHTS_AS_IS, logits_bytes(&c), m, e))
        return -1;
    if (draft_model_quantize(s, int8, e) == 0 && draft_model_reserve(s, SMALL_ROWS, SMALL_SLOTS, e) == 0)
        return 0;
    draft_model_close(s);
    return -1;
}
