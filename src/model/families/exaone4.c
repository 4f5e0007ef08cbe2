/* EXAONE 4: norms of the heads of queries and keys, norms after each part and none before. With a window the
 * layers that have it turn, and the layers that see all keys do not. Without one all layers turn. */
#include <string.h>

#include "src/model/families/family.h"

/* Layers have the window whose letter is L, where the letters repeat and the last layer has none; or all but
 * every n-th. layer_types wins over both. */
static int read_letters(const struct reading *r, bool windowed[])
{
    const struct config *c = r->c;
    struct json v;
    char letters[CONFIG_LAYERS_MAX + 1] = "";
    bool control;
    uint64_t every = r->f->windows.pattern;
    int found = get_value(r->root, "layer_types", &v, r->e);
    if (found || !c->window)
        return MIN(found, 0);
    found = js_get(r->root, "sliding_window_pattern", &v, r->e);
    const bool named = found > 0 && js_kind(&v) == JS_STRING;
    if (found < 0)
        return -1;
    if (named && js_length(&v, &control) < sizeof letters)
        js_unescape(&v, letters);
    const size_t n = strlen(letters);
    if (named ? !n || strspn(letters, "LG") < n : found && (!js_u64(&v, &every) || !every))
        return js_bad(&v, r->e, "allowed are whole numbers from 1, and 1 to %d letters L and G",
                      CONFIG_LAYERS_MAX);
    for (size_t l = 0; l < c->n_layers; l++)
        windowed[l] = named ? letters[l % n] == 'L' && l + 1 < c->n_layers : (l + 1) % every != 0;
    return 0;
}

static const struct tensor_name names[] = {
    { "post_attention_norm.weight", "post_attention_layernorm.weight" },
    { "post_ffw_norm.weight", "post_feedforward_layernorm.weight" },
    { "attn_norm.weight", NULL }, { "ffn_norm.weight", NULL }, { 0 }
};

const struct family family_exaone4 = {
    .type = "exaone4", .names = LIST("Exaone4ForCausalLM"), .gguf = "exaone4", .tensors = names,
    .missing = MISSING({ "vocab_size", 102400 }, { "intermediate_size", 16384 },
                       { "num_key_value_heads", 32 }, { "rms_norm_eps", 1e-5 }, { "bos_token_id", 0 },
                       { "eos_token_id", 2 }),
    .layer = { .qk_norm = QK_NORM, .norms = NORM_AFTER },
    .windows = { WINDOW_GIVEN, 4096, 4, read_letters, .rest_local = true, .files = FILES_LAYERS,
                 .writes_null = true },
    .freqs = true, .writes_freqs = true,
};
