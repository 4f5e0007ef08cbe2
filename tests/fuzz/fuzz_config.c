/* Fuzz target: config.json, then a NUL byte and generation_config.json. */
#include "src/model/config_tensors.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct config c;
    struct err e;
    const uint8_t *nul = n ? memchr(data, 0, n) : NULL;
    size_t first = nul ? (size_t)(nul - data) : n;
    if (config_parse(&c, "config.json", (const char *)data, first, "generation_config.json",
                     nul ? (const char *)nul + 1 : NULL, nul ? n - first - 1 : 0, &e)) {
        if (e.code != ERR_INPUT || !*e.msg || strchr(e.msg, '\n'))
            abort();
        return 0;
    }
    /* An accepted file keeps the promises of config.h. */
    if (!c.n_layers || c.n_layers > CONFIG_LAYERS_MAX || !c.hidden || !c.ffn || !c.n_heads || !c.n_kv_heads ||
        c.n_heads % c.n_kv_heads || !c.head_dim || c.head_dim % 2 || c.head_dim > HEAD_DIM_MAX || !c.vocab ||
        c.context < c.max_position || c.context > CONTEXT_MAX || c.n_eos > CONFIG_EOS_MAX ||
        !(c.rms_eps > 0) || c.bos < -1 || (c.bos >= 0 && (size_t)c.bos >= c.vocab))
        abort();
    for (size_t i = 0; i < c.n_eos; i++)
        if (c.eos[i] < 0 || (size_t)c.eos[i] >= c.vocab)
            abort();
    if (c.n_experts && (c.n_experts > EXPERTS_MAX || !c.experts_used || c.experts_used > c.n_experts ||
                        !c.expert_ffn || c.expert_ffn > EXPERT_FFN_MAX))
        abort();
    for (size_t l = 0; l < c.n_layers; l++)
        if ((c.layer[l].window && c.layer[l].window != c.window) || (c.layer[l].experts && !c.n_experts))
            abort();
    for (size_t l = 0; l < c.n_layers; l++) {            /* layers with heads or caches of others */
        const struct layer_spec *s = &c.layer[l], *from = s->kv_layer > l ? NULL : &c.layer[s->kv_layer];
        if (!s->n_kv_heads || c.n_heads % s->n_kv_heads || !s->head_dim ||
            s->head_dim > c.head_dim || !from || from->head_dim != s->head_dim ||
            from->n_kv_heads != s->n_kv_heads)
            abort();
    }
    const struct delta_config *d = &c.delta;
    if (c.rotary > c.head_dim || !config_mixers(&c, MIXER_ATTENTION) ||
        (config_is_hybrid(&c) && (!d->key_heads || !d->value_heads || d->value_heads % d->key_heads ||
                                  !d->key_dim || !d->value_dim || d->conv < 2 || d->conv > CONV_MAX)))
        abort();
    if (config_count_used(&c) > config_count_params(&c))
        abort();
    for (int scaled = 0; scaled < 2; scaled++) {
        float inv_freq[HEAD_DIM_MAX / 2], factor;
        config_rope(&c, inv_freq, &factor);
        for (size_t i = 0; i < c.rotary / 2; i++)
            if (!isfinite(inv_freq[i]) || !isfinite(factor))
                abort();
        if (config_scale_context(&c, "yarn:4", &e))
            break;
    }
    size_t bytes;
    config_kv_bytes(&c, c.context, 4, &bytes);
    return config_count_params(&c) == 0;
}
