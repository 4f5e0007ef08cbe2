/* Random models with quantised weights: four layers of hidden size 256 and a small vocabulary, one of each
 * type, and the mix of Q4_K_M, which has layers of both kinds. rig_open (rig.h) takes their names in place of
 * a directory. */
#pragma once
#include "src/model/model.h"
#include <string.h>

struct quant_body { const char *name; enum dtype type; bool mix; };
static const struct quant_body quant_bodies[] __attribute__((unused)) = {
    { "q4_0", DT_Q4_0, false },     { "q4_1", DT_Q4_1, false },     { "q5_0", DT_Q5_0, false },
    { "q5_1", DT_Q5_1, false },     { "q8_0", DT_Q8_0, false },     { "q2_k", DT_Q2_K, false },
    { "q3_k", DT_Q3_K, false },     { "q4_k", DT_Q4_K, false },     { "q5_k", DT_Q5_K, false },
    { "q6_k", DT_Q6_K, false },     { "iq4_nl", DT_IQ4_NL, false }, { "iq4_xs", DT_IQ4_XS, false },
    { "mxfp4", DT_MXFP4, false },   { "tq1_0", DT_TQ1_0, false },   { "tq2_0", DT_TQ2_0, false },
    { "iq2_xxs", DT_IQ2_XXS, false }, { "iq2_xs", DT_IQ2_XS, false }, { "iq2_s", DT_IQ2_S, false },
    { "iq3_xxs", DT_IQ3_XXS, false }, { "iq3_s", DT_IQ3_S, false }, { "iq1_s", DT_IQ1_S, false },
    { "iq1_m", DT_IQ1_M, false },   { "q1_0", DT_Q1_0, false },     { "q2_0", DT_Q2_0, false },
    { "nvfp4", DT_NVFP4, false },   { "q4_k_m", DT_Q4_K, true },
};
enum { QUANT_BODIES = sizeof quant_bodies / sizeof *quant_bodies };

/* NULL: no body has that name. */
static inline const struct quant_body *quant_body(const char *name)
{
    for (size_t i = 0; i < QUANT_BODIES; i++)
        if (!strcmp(quant_bodies[i].name, name))
            return &quant_bodies[i];
    return NULL;
}

static inline int quant_config(struct config *c, struct err *e)
{
    static const char json[] =
        "{\"model_type\":\"qwen2\",\"hidden_size\":256,\"intermediate_size\":512,\"num_hidden_layers\":4,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":300,\"max_position_embeddings\":"
        "4096,"
        "\"rms_norm_eps\":1e-6,\"rope_theta\":100000.0,\"hidden_act\":\"silu\",\"tie_word_embeddings\":true,"
        "\"bos_token_id\":1,\"eos_token_id\":2}";
    return config_parse(c, "random", json, strlen(json), NULL, NULL, 0, e);
}
