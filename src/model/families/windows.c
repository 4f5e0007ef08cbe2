/* Windows in some of the layers, whose frequencies may be others. Start at read_pattern. */
#include <string.h>

#include "src/model/families/family.h"

static const char pattern[] = "sliding_window_pattern";

int read_layer_types(const struct reading *r, struct json *v, const char *special, bool is[])
{
    struct json x;
    size_t n = 0;
    const int found = get_value(r->root, "layer_types", v, r->e);
    if (found <= 0)
        return found;
    if (js_kind(v) != JS_ARRAY)
        return js_bad(v, r->e, "allowed is a list of names");
    for (struct js_walk w = js_walk(v); js_next(&w, NULL, &x); n++) {
        const bool one = js_is(&x, special);
        if (!one && !js_is(&x, "full_attention"))
            return js_bad(&x, r->e, "allowed are \"full_attention\" and \"%s\"", special);
        if (n < r->c->n_layers)
            is[n] = one;
    }
    return n == r->c->n_layers ? 1
                               : err_set(r->e, ERR_INPUT, "%s: layer_types has %zu entries, "
                                         "num_hidden_layers is %zu: they must agree", v->file, n,
                                         r->c->n_layers);
}

void set_windows(struct config *c, const bool windowed[])
{
    for (size_t l = 0; l < c->n_layers; l++)
        c->layer[l].window = windowed[l] ? c->window : 0;
}

int read_pattern(const struct reading *r)
{
    struct config *c = r->c;
    struct json v;
    size_t every;
    bool derived[CONFIG_LAYERS_MAX] = { 0 }, windowed[CONFIG_LAYERS_MAX];
    if (get_size(r->root, "sliding_window", 4096, NULL_REFUSED, INT32_MAX, &c->window, r->e) ||
        get_size(r->root, pattern, r->f->pattern, NULL_MISSING, INT32_MAX, &every, r->e))
        return -1;
    for (size_t l = 0; l < c->n_layers; l++)
        derived[l] = (l + 1) % every != 0;
    memcpy(windowed, derived, sizeof derived);
    const int found = read_layer_types(r, &v, "sliding_attention", windowed),
              has = get_value(r->root, pattern, &(struct json){ 0 }, r->e);
    if (found < 0 || has < 0)
        return -1;
    if (found && has && memcmp(windowed, derived, sizeof derived))
        return js_bad(&v, r->e, "%s %zu names other layers: they must agree", pattern, every);
    set_windows(c, windowed);
    for (size_t l = 0; l < c->n_layers; l++)
        c->layer[l].local = r->f->local && windowed[l];
    return 0;
}

/* A key names the layers with a window, or says that every n-th has none. */
int get_pattern(struct getting *m)
{
    static const char name[] = "attention.sliding_window_pattern";
    struct config *c = m->c;
    size_t every = m->f->pattern;
    char key[KEY_BYTES];
    const struct gguf_value *v = gguf_find(m->g, gguf_key(key, m->f, name)), *list = NULL;
    if (v && v->is_array ? gguf_array(m->g, key, GGUF_BOOL, &list, m->e) < 0
                         : read_uint(m, name, 0, 1, INT32_MAX, &every) < 0)
        return -1;
    if (list && list->n != c->n_layers)
        return gguf_bad(m->g, key, m->e, "%zu layers, needed are %zu", list->n, c->n_layers);
    for (size_t l = 0; l < c->n_layers; l++)
        c->layer[l].window = (list ? gguf_int_at(list, l) : (int64_t)((l + 1) % every)) ? c->window : 0;
    return 0;
}

/* Whether a layer has a window, or a state. */
static bool is_special(const struct layer_spec *s) { return s->window || s->mixer != MIXER_ATTENTION; }

void write_layer_types(const struct writing *w, const char *special)
{
    jw_open(w->w, "layer_types", '[');
    for (size_t l = 0; l < w->c->n_layers; l++)
        jw_text(w->w, NULL, is_special(&w->c->layer[l]) ? special : "full_attention");
    jw_close(w->w, ']');
}

void write_pattern(const struct writing *w)
{
    write_layer_types(w, "sliding_attention");
}

void put_layers(const struct putting *p, const char *name, size_t n)
{
    char key[KEY_BYTES];
    gguf_put_array(p->o, gguf_key(key, p->f, name), GGUF_BOOL, n);
    for (size_t l = 0; l < n; l++)
        gguf_add_bool(p->o, l < p->c->n_layers && is_special(&p->c->layer[l]));
}

int put_pattern(const struct putting *p)
{
    if (p->f->local)
        put_real(p, "rope.freq_base_swa", p->c->rope.local_theta);
    put_layers(p, "attention.sliding_window_pattern", p->c->n_layers);
    return 0;
}

const struct key needed_window_keys[] = {
    { "sliding_window", "attention.sliding_window", SIZE(window), 1, INT32_MAX, 0, NEEDED | UNREAD },
    { 0 }
};
const struct section window_of_some = { needed_window_keys, NULL, NULL, NULL, NULL },
                     layers_of_pattern = { NULL, read_pattern, get_pattern, write_pattern, put_pattern };
