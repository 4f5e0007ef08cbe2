/* SmolLM3: some layers have no RoPE, and windows are theirs. */
#include "src/model/families/family.h"

/* Reads the layers without RoPE: zeros in no_rope_layers, else every no_rope_layer_interval-th. */
static int read_unturned(const struct reading *r)
{
    struct config *c = r->c;
    struct json list, x;
    size_t n = 0, every, turns;
    if (get_size(r->root, "no_rope_layer_interval", 4, NULL_REFUSED, INT32_MAX, &every, r->e))
        return -1;
    for (size_t l = 0; l < c->n_layers; l++)
        c->layer[l].local = (l + 1) % every == 0;
    const int found = get_value(r->root, "no_rope_layers", &list, r->e);
    if (found <= 0 || js_kind(&list) != JS_ARRAY)
        return found <= 0 ? found : js_bad(&list, r->e, "allowed is a list of 0 and 1");
    for (struct js_walk w = js_walk(&list); js_next(&w, NULL, &x); n++) {
        if (js_size(&x, 0, 1, &turns, r->e))
            return -1;
        if (n < c->n_layers)
            c->layer[n].local = !turns;
    }
    return n >= c->n_layers
               ? 0 : read_bad(r, "no_rope_layers has %zu entries, num_hidden_layers is %zu: allowed are at "
                              "least as many", n, c->n_layers);
}

/* Files have no key for the layers. */
static int put_unturned(const struct putting *p)
{
    for (size_t l = 0; l < p->c->n_layers; l++)
        if (p->c->layer[l].local != ((l + 1) % 4 == 0))
            return put_lacks(p, "no_rope_layers of other layers than each 4th");
    return 0;
}

/* Windows are in the layers without RoPE. */
static int unturned_rule(const struct reading *r, bool windowed[])
{
    for (size_t l = 0; l < r->c->n_layers; l++)
        windowed[l] = r->c->layer[l].local;
    return 1;
}

const struct family family_smollm3 = {
    .type = "smollm3", .names = LIST("SmolLM3ForCausalLM"), .gguf = "smollm3",
    .reads = LIST("no_rope_layers", "no_rope_layer_interval"),
    .section = { [OF_FACTORS] = SECTION(NULL, read_unturned, NULL, NULL, put_unturned) },
    .missing = MISSING({ "vocab_size", 128256 }, { "hidden_size", 2048 }, { "num_hidden_layers", 36 },
                       { "num_attention_heads", 16 }, { "num_key_value_heads", 4 },
                       { "max_position_embeddings", 32768 }, { "rope_theta", 2e6 },
                       { "tie_word_embeddings", 1 }, { "bos_token_id", 128000 }, { "eos_token_id", 128001 }),
    .as_llama = true, .freqs = true, .attention_bias = true, .mlp_bias = true, .hidden_multiple = true,
    .windows = { WINDOW_SWITCHED, .rule = unturned_rule },
};
