/* Windows in some of the layers, whose frequencies may be others. Start at read_pattern. */
#include <string.h>

#include "src/model/families/family.h"

static const char pattern[] = "sliding_window_pattern";

int config_read_layer_types(struct config *c, const struct json *v, struct err *e)
{
    struct json x;
    size_t n = 0;
    if (js_kind(v) != JS_ARRAY)
        return js_bad(v, e, "allowed is a list of names");
    for (struct js_walk w = js_walk(v); js_next(&w, NULL, &x); n++) {
        const bool sliding = js_is(&x, "sliding_attention");
        if (!sliding && !js_is(&x, "full_attention"))
            return js_bad(&x, e, "allowed are \"full_attention\" and \"sliding_attention\"");
        if (n < c->n_layers)
            c->windowed[n] = sliding;
    }
    return check_layers(c, v, n, e);
}

int check_layers(const struct config *c, const struct json *list, size_t n, struct err *e)
{
    return n == c->n_layers ? 0
                            : err_set(e, ERR_INPUT,
                                      "%s: layer_types has %zu entries, num_hidden_layers is %zu: they must "
                                      "agree", list->file, n, c->n_layers);
}

int read_pattern(const struct reading *r)
{
    struct config *c = r->c;
    struct json v;
    size_t every;
    uint8_t derived[CONFIG_LAYERS_MAX] = { 0 };
    if (get_size(r->root, "sliding_window", 4096, NULL_REFUSED, INT32_MAX, &c->window, r->e) ||
        get_size(r->root, pattern, r->f->pattern, NULL_MISSING, INT32_MAX, &every, r->e))
        return -1;
    for (size_t l = 0; l < c->n_layers; l++)
        derived[l] = (l + 1) % every != 0;
    memcpy(c->windowed, derived, sizeof derived);
    const int found = get_value(r->root, "layer_types", &v, r->e),
              has = get_value(r->root, pattern, &(struct json){ 0 }, r->e);
    if (found < 0 || has < 0 || (found && config_read_layer_types(c, &v, r->e)))
        return -1;
    if (found && has && memcmp(c->windowed, derived, sizeof derived))
        return js_bad(&v, r->e, "%s %zu names other layers: they must agree", pattern, every);
    memcpy(c->local, c->windowed, r->f->local ? sizeof c->local : 0);
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
        c->windowed[l] = list ? gguf_int_at(list, l) != 0 : (l + 1) % every != 0;
    return 0;
}

void write_layer_types(const struct writing *w, const uint8_t *layers, const char *one)
{
    jw_open(w->w, "layer_types", '[');
    for (size_t l = 0; l < w->c->n_layers; l++)
        jw_text(w->w, NULL, layers[l] ? one : "full_attention");
    jw_close(w->w, ']');
}

void write_pattern(const struct writing *w)
{
    write_layer_types(w, w->c->windowed, "sliding_attention");
}

void put_layers(const struct putting *p, const char *name, const uint8_t *layers, size_t n)
{
    char key[KEY_BYTES];
    gguf_put_array(p->o, gguf_key(key, p->f, name), GGUF_BOOL, n);
    for (size_t l = 0; l < n; l++)
        gguf_add_bool(p->o, l < p->c->n_layers && layers[l]);
}

int put_pattern(const struct putting *p)
{
    if (p->f->local)
        put_real(p, "rope.freq_base_swa", p->c->rope.local_theta);
    put_layers(p, "attention.sliding_window_pattern", p->c->windowed, p->c->n_layers);
    return 0;
}

const struct key needed_window_keys[] = {
    { "sliding_window", "attention.sliding_window", SIZE(window), 1, INT32_MAX, 0, NEEDED | UNREAD },
    { 0 }
};
const struct section window_of_some = { needed_window_keys, NULL, NULL, NULL, NULL },
                     layers_of_pattern = { NULL, read_pattern, get_pattern, write_pattern, put_pattern };
