#include "src/decode.h"

#include <stdlib.h>
#include <string.h>

size_t decode_bytes(size_t n_max, size_t vocab)
{
    size_t n;
    if (!mul_size(n_max, sizeof(int32_t), &n) || !add_size(n, sampler_bytes(vocab), &n))
        return SIZE_MAX;
    return n;
}

int decode_open(struct decoder *d, const struct model *m, const struct sampling *p, const int32_t *prompt, size_t n_prompt,
                size_t n_max, struct err *e)
{
    const struct config *c = &m->config;
    assert(n_prompt >= 1 && n_prompt <= n_max);
    *d = (struct decoder){ .model = m, .n_prompt = n_prompt, .n_tokens = n_prompt, .n_max = n_max };
    for (size_t i = 0; i < n_prompt; i++)
        assert(prompt[i] >= 0 && (size_t)prompt[i] < c->vocab);
    d->logits_bytes = c->vocab * sizeof *d->logits;
    d->tokens = calloc(n_max, sizeof *d->tokens);
    d->logits = mem_alloc(d->logits_bytes);
    if (!d->tokens || !d->logits) {
        err_set(e, ERR_FAILED, "out of memory for %zu tokens", n_max);
        goto fail;
    }
    memcpy(d->tokens, prompt, n_prompt * sizeof *prompt);
    if (kv_open(&d->kv, m->compute, c->n_layers, c->n_kv_heads, m->head_dim, n_max, 0, e) ||
        workspace_open(&d->work, m, MIN((size_t)PREFILL_ROWS, n_max), n_max, e) ||
        sampler_open(&d->sampler, p, c->vocab, m->ops, m->pool, e))
        goto fail;
    return 0;
fail:
    decode_close(d);
    return -1;
}

void decode_close(struct decoder *d)
{
    if (d->sampler)
        sampler_close(d->sampler);
    if (d->work)
        workspace_close(d->work);
    kv_close(&d->kv);
    mem_free(d->logits, d->logits_bytes);
    free(d->tokens);
    *d = (struct decoder){0};
}

int decode_prefill(struct decoder *d, decode_progress *progress, void *ctx, struct err *e)
{
    static const uint8_t none[PREFILL_ROWS];     /* no row's logits are wanted */
    size_t of = d->n_tokens - 1, from = d->kv.n_past;
    double start = clock_seconds();
    int r = 0;
    while (d->kv.n_past < of && r == 0) {
        size_t n = MIN((size_t)PREFILL_ROWS, of - d->kv.n_past);
        struct pass_seq seq = { .kv = &d->kv, .n = n, .token = d->tokens + d->kv.n_past, .want = none };
        if (model_forward(d->model, d->work, &seq, 1, NULL, 0, e))
            return err_while(e, "prompt token %zu", d->kv.n_past);
        kv_advance(&d->kv, n);
        if (progress && !progress(ctx, d->kv.n_past - from, of - from) && d->kv.n_past < of)
            r = 1;
    }
    d->count.prefill_tokens += d->kv.n_past - from;
    d->count.prefill_seconds += clock_seconds() - start;
    return r;
}

int decode_step(struct decoder *d, struct err *e)
{
    double start = clock_seconds();
    assert(d->n_tokens < d->n_max && d->kv.n_past == d->n_tokens - 1);

    /* draft, trim: plain decoding proposes nothing, the tree is its root */
    struct pass_seq seq = { .kv = &d->kv, .n = 1, .token = d->tokens + d->n_tokens - 1, .logits = d->logits };

    /* verify: one pass of the model over the tree, writing the root's row of the cache */
    if (model_forward(d->model, d->work, &seq, 1, NULL, 0, e))
        return err_while(e, "token %zu", d->n_tokens - d->n_prompt);

    /* accept: walk down by the target's own samples; behind the root no node carries it, so it is the bonus */
    struct history h = { .tokens = d->tokens, .n = d->n_tokens, .n_prompt = d->n_prompt };
    int32_t bonus = sampler_choose(d->sampler, d->logits, &h);

    /* commit: nothing above this line changed what the run has produced */
    kv_advance(&d->kv, 1);
    d->tokens[d->n_tokens++] = bonus;
    d->count.rounds++;
    d->count.step_seconds += clock_seconds() - start;
    return 0;
}

int decode_restart(struct decoder *d, size_t n, const struct sampling *p, struct err *e)
{
    assert(n >= d->n_prompt && n <= d->n_tokens);
    d->n_tokens = n;
    if (d->kv.n_past > n - 1)
        kv_truncate(&d->kv, n - 1);
    sampler_close(d->sampler);
    d->sampler = NULL;
    return sampler_open(&d->sampler, p, d->model->config.vocab, d->model->ops, d->model->pool, e);
}
