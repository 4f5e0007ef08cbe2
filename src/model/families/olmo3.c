/* OLMo 3: norms of queries and keys of all heads at once, norms after each part and none before, windows in
 * three of four layers. */
#include "src/model/families/family.h"

static int check_heads(const struct reading *r)
{
    const struct config *c = r->c;
    return c->head_dim % 16 == 0
               ? 0 : read_bad(r, "heads of %zu dimensions: allowed for %s models are multiples of 16",
                              c->head_dim, c->model_type);
}

static const struct key yarn_keys[] = {
    { "attention_factor", "rope.scaling.yarn_attn_factor", REAL(rope.attention_factor), 1e-6, 1e6, 0,
      NONZERO },
    { 0 }
};

const struct family family_olmo3 = {
    .type = "olmo3", .names = LIST("Olmo3ForCausalLM"), .gguf = "olmo2", .tensors = norms_after,
    .section = { [OF_FACTORS] = SECTION(NULL, check_heads) },
    .missing = MISSING({ "vocab_size", 50304 }, { "rms_norm_eps", 1e-5 }, { "rope_theta", 5e5 },
                       { "eos_token_id", 50279 }),
    .layer = { .qk_norm = QK_NORM_WHOLE, .norms = NORM_AFTER },
    .windows = { WINDOW_NEEDED, 4096, 4, pattern_rule, .files = FILES_LAYERS },
    .hidden_multiple = true, .local = true, .yarn_keys = yarn_keys,
};
