/* Which layers have a window, as struct windows of a family says. Start at read_window. */
#include <string.h>

#include "src/model/families/family.h"

static const char window_key[] = "attention.sliding_window",
                  pattern_key[] = "attention.sliding_window_pattern";

/* ---- config.json ---- */

int read_layer_types(const struct reading *r, const char *key, struct json *v, const char *special, bool is[])
{
    struct json x;
    size_t n = 0;
    const int found = get_value(r->root, key, v, r->e);
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
                               : read_bad(r, "%s has %zu entries, num_hidden_layers is %zu: they must agree",
                                          key, n, r->c->n_layers);
}

int pattern_rule(const struct reading *r, bool windowed[])
{
    static const char key[] = "sliding_window_pattern";
    size_t every;
    if (get_size(r->root, key, r->f->windows.pattern, NULL_MISSING, INT32_MAX, &every, r->e))
        return -1;
    for (size_t l = 0; l < r->c->n_layers; l++)
        windowed[l] = (l + 1) % every != 0;
    return get_value(r->root, key, &(struct json){ 0 }, r->e);
}

static int rule_of(const struct reading *r, bool windowed[])
{
    const struct windows *f = &r->f->windows;
    for (size_t l = 0; l < r->c->n_layers; l++)
        windowed[l] = !f->pattern || (l + 1) % f->pattern;
    return f->rule ? f->rule(r, windowed) : !f->pattern;
}

/* Reads the window; 0: there is none. *use: the keys of layers count. A section before may have another
 * number for a missing key. */
static int read_size(const struct reading *r, bool *use)
{
    const struct windows *f = &r->f->windows;
    struct json v;
    *use = f->given != WINDOW_NULL;
    if (f->given == WINDOW_SWITCHED && get_bool(r->root, "use_sliding_window", false, use, r->e))
        return -1;
    const int found = js_get(r->root, "sliding_window", &v, r->e);
    if (found < 0)
        return -1;
    const bool number = found && (f->given == WINDOW_NEEDED || !is_null(&v));
    if (f->given == WINDOW_NULL && number)
        return js_bad(&v, r->e, "%s models have no window: allowed is null", r->f->type);
    const size_t missing = r->c->window ? r->c->window : f->missing;
    r->c->window = *use && !found ? missing : 0;
    return *use && number ? js_size(&v, 1, INT32_MAX, &r->c->window, r->e) : 0;
}

int read_window(const struct reading *r)
{
    const struct windows *f = &r->f->windows;
    struct config *c = r->c;
    struct json list;
    bool use, rule[CONFIG_LAYERS_MAX] = { false }, windowed[CONFIG_LAYERS_MAX];
    if (f->given == WINDOW_UNREAD)
        return 0;
    if (read_size(r, &use))
        return -1;
    const int must_agree = use ? rule_of(r, rule) : 0;
    if (!c->window)
        memset(rule, 0, sizeof rule);
    memcpy(windowed, rule, sizeof rule);
    if (must_agree < 0 || read_layer_types(r, "layer_types", &list, "sliding_attention", windowed) < 0)
        return -1;
    for (size_t l = 0; l < c->n_layers; l++) {
        struct layer_spec *s = &c->layer[l];
        if (!c->window && windowed[l])
            return js_bad(&list, r->e, "sliding_attention needs %ssliding_window",
                          f->given == WINDOW_SWITCHED ? "use_sliding_window and " : "");
        if (must_agree && windowed[l] != rule[l])
            return js_bad(&list, r->e, "layer %zu of this %s model has %s_attention", l, r->f->type,
                          rule[l] ? "sliding" : "full");
        s->window = windowed[l] ? c->window : 0;
        if (r->f->local || f->rest_local)
            s->local = c->window && windowed[l] == r->f->local;
    }
    return 0;
}

/* ---- GGUF ---- */

const struct key window_keys[] = {
    { "sliding_window", window_key, SIZE(window), 1, INT32_MAX, 0, NONZERO | UNREAD },
    { 0 }
};

/* With FILES_LAYERS a key names the layers that have the window, or says that every n-th has none. */
int get_windows(struct getting *m)
{
    const struct windows *f = &m->f->windows;
    struct config *c = m->c;
    size_t every = f->pattern;
    const char *key = KEY(m, pattern_key);
    const struct gguf_value *v = gguf_find(m->g, key), *list = NULL;
    if (f->given == WINDOW_NEEDED && need_uint(m, window_key, 0, INT32_MAX, &c->window))
        return -1;
    if (!c->window)
        return 0;
    if (f->files == FILES_NONE)
        return get_bad(m, window_key, "found %zu, for %s this is not implemented; allowed is 0", c->window,
                       m->f->gguf);
    if (f->files == FILES_WINDOW)
        return v ? get_bad(m, pattern_key, "windows in some of the layers are not implemented") : 0;
    if (v && v->is_array ? gguf_array(m->g, key, GGUF_BOOL, &list, m->e) < 0
                         : read_uint(m, pattern_key, 0, 1, INT32_MAX, &every) < 0)
        return -1;
    if (list && list->n != c->n_layers)
        return get_bad(m, pattern_key, "%zu layers, needed are %zu", list->n, c->n_layers);
    for (size_t l = 0; l < c->n_layers; l++)
        c->layer[l].window = (list ? gguf_int_at(list, l) : (int64_t)((l + 1) % every)) ? c->window : 0;
    return 0;
}

void write_no_window(const struct writing *w)
{
    if (w->f->windows.writes_null && !w->c->window)
        jw_null(w->w, "sliding_window");
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

void write_windows(const struct writing *w)
{
    if (w->f->windows.files == FILES_LAYERS)
        write_layer_types(w, "sliding_attention");
}

void put_layers(const struct putting *p, const char *name, size_t n)
{
    gguf_put_array(p->o, KEY(p, name), GGUF_BOOL, n);
    for (size_t l = 0; l < n; l++)
        gguf_add_bool(p->o, l < p->c->n_layers && is_special(&p->c->layer[l]));
}

/* A file that says the window alone has it in the layers that the rule of the family says. */
static bool is_rule(const struct putting *p)
{
    struct config c = *p->c;
    struct json none;
    bool rule[CONFIG_LAYERS_MAX], same = true;
    js_check(&none, "", "{}", 2, p->e);
    rule_of(&(struct reading){ p->f, &c, &none, &none, p->e }, rule);
    for (size_t l = 0; l < c.n_layers; l++)
        same &= (c.layer[l].window > 0) == rule[l];
    return same;
}

int put_windows(const struct putting *p)
{
    if (!p->c->window)
        return 0;
    if (p->f->windows.files != FILES_LAYERS)
        return p->f->windows.files == FILES_WINDOW && is_rule(p)
                   ? 0
                   : put_lacks(p, "a window in some of the layers");
    if (p->f->local)
        put_real(p, "rope.freq_base_swa", p->c->rope.local_theta);
    put_layers(p, pattern_key, p->c->n_layers);
    return 0;
}
