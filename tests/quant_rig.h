/* Random models with quantised weights: two layers and a small vocabulary, one of each type, and the mix of
 * Q4_K_M. */
#pragma once
#include "tests/rig.h"

struct quant_body { const char *name; enum dtype type; bool mix; };
static const struct quant_body quant_bodies[] __attribute__((unused)) = {
    { "q4_0", DT_Q4_0, false },     { "q4_1", DT_Q4_1, false },     { "q5_0", DT_Q5_0, false },
    { "q5_1", DT_Q5_1, false },     { "q8_0", DT_Q8_0, false },     { "q2_k", DT_Q2_K, false },
    { "q3_k", DT_Q3_K, false },     { "q4_k", DT_Q4_K, false },     { "q5_k", DT_Q5_K, false },
    { "q6_k", DT_Q6_K, false },     { "iq4_nl", DT_IQ4_NL, false }, { "iq4_xs", DT_IQ4_XS, false },
    { "q4_k_m", DT_Q4_K, true },
};
enum { QUANT_BODIES = sizeof quant_bodies / sizeof *quant_bodies };

/* Hidden 256; in the mix with layers of both kinds. kv DT_OTHER: the type of --kv-dtype auto. */
static inline void quant_rig_open(struct rig *r, const struct quant_body *b, enum dtype compute,
                                  enum dtype kv, const struct ops *o, size_t threads)
{
    static const char json[] =
        "{\"model_type\":\"qwen2\",\"hidden_size\":256,\"intermediate_size\":512,\"num_hidden_layers\":4,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":300,\"max_position_embeddings\":"
        "4096,"
        "\"rms_norm_eps\":1e-6,\"rope_theta\":100000.0,\"hidden_act\":\"silu\",\"tie_word_embeddings\":true,"
        "\"bos_token_id\":1,\"eos_token_id\":2}";
    struct err e = { 0 };
    const size_t rows = 64, n_max = 2100;
    if (kv == DT_OTHER)
        kv = compute == DT_F32 ? DT_F32 : DT_I16;
    memset(r, 0, sizeof *r);
    r->pool = pool_open(threads), r->rows_max = rows, r->n_max = n_max;
    if (device_cpu_open(&r->dev, o, r->pool, kv, e.msg, sizeof e.msg)) rig_die("device", &e);
    if (config_parse(&r->c, "random", json, strlen(json), NULL, NULL, 0, &e)) rig_die("config", &e);
    const struct model_setup s = { .config = &r->c,
                                   .compute = compute,
                                   .dev = r->dev,
                                   .ops = o,
                                   .pool = r->pool,
                                   .random = b->type,
                                   .random_mix = b->mix };
    if (model_random(&r->m, &s, 7, &e)) rig_die("model", &e);
    if (model_random_bytes(&s) != r->m.mem_bytes) abort();
    if (workspace_open(&r->w, &r->m, rows, n_max, &e)) rig_die("workspace", &e);
}
