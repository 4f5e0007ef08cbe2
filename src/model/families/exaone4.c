/* EXAONE 4: norms of the heads of queries and keys, norms after each part and none before. With a window the
 * layers that have it turn, and the layers that see all keys do not. Without one all layers turn. */
#include <string.h>

#include "src/model/families/family.h"

/* Which layers have the window: those whose letter is L, where the letters repeat and the last layer has
 * none; or all but every n-th. */
static int read_letters(const struct reading *r, bool windowed[])
{
    const struct config *c = r->c;
    struct json v;
    char letters[CONFIG_LAYERS_MAX + 1] = "";
    bool control;
    uint64_t every = r->f->pattern;
    const int found = js_get(r->root, "sliding_window_pattern", &v, r->e);
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

static int read_layers(const struct reading *r)
{
    struct config *c = r->c;
    struct json v, list;
    bool windowed[CONFIG_LAYERS_MAX] = { 0 };
    int found = js_get(r->root, "sliding_window", &v, r->e);
    c->window = found ? 0 : 4096;
    if (found < 0 || (found && !is_null(&v) && js_size(&v, 1, INT32_MAX, &c->window, r->e)))
        return -1;
    found = read_layer_types(r, &list, "sliding_attention", windowed);
    if (found < 0 || (!found && c->window && read_letters(r, windowed)))
        return -1;
    if (!c->window && memchr(windowed, true, c->n_layers))
        return js_bad(&list, r->e, "sliding_attention needs sliding_window");
    set_windows(c, windowed);
    for (size_t l = 0; l < c->n_layers; l++)
        c->layer[l].local = c->window && !windowed[l];   /* the local frequencies turn nothing */
    return 0;
}

static void write_no_window(const struct writing *w)
{
    if (!w->c->window)
        jw_null(w->w, "sliding_window");
}

static int get_layers(struct getting *m) { return m->c->window ? get_pattern(m) : 0; }
static int put_windowed(const struct putting *p) { return p->c->window ? put_pattern(p) : 0; }

static const struct tensor_name names[] = {
    { "post_attention_norm.weight", "post_attention_layernorm.weight" },
    { "post_ffw_norm.weight", "post_feedforward_layernorm.weight" },
    { "attn_norm.weight", NULL }, { "ffn_norm.weight", NULL }, { 0 }
};

const struct family family_exaone4 = {
    .type = "exaone4", .names = LIST("Exaone4ForCausalLM"), .gguf = "exaone4", .tensors = names,
    .section = { [OF_WINDOW] = SECTION(window_keys, NULL, NULL, write_no_window, NULL),
                 [OF_LAYERS] = SECTION(NULL, read_layers, get_layers, write_pattern, put_windowed) },
    .missing = MISSING({ "vocab_size", 102400 }, { "intermediate_size", 16384 },
                       { "num_key_value_heads", 32 }, { "rms_norm_eps", 1e-5 }, { "bos_token_id", 0 },
                       { "eos_token_id", 2 }),
    .layer = { .qk_norm = QK_NORM, .norms = NORM_AFTER },
    .pattern = 4, .freqs = true, .writes_freqs = true,
};
