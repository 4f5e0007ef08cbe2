/* The settings of RoPE in config.json and in GGUF files. Families add keys (struct family). Start at
 * read_rope. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/model/families/family.h"

enum { NEIGHBOURS = 64 };

static const char partial[] = "partial_rotary_factor";
static const struct rope_name ropes[] = { { "default", ROPE_PLAIN }, { "linear", ROPE_LINEAR },
                                          { "llama3", ROPE_LLAMA3 }, { "yarn", ROPE_YARN },
                                          { "dynamic", ROPE_DYNAMIC }, { 0 } };

/* Of GGUF files: in every one, and with YaRN. */
static const struct key scaling_keys[] = {
    { "factor", "rope.scaling.factor", REAL(rope.factor), 0, 1e6, 1 }, { 0 }
}, yarn_keys[] = {
    { "original_max_position_embeddings", "rope.scaling.original_context_length", SIZE(rope.original), 1,
      CONTEXT_MAX, 0 },
    { "beta_fast", "rope.scaling.yarn_beta_fast", REAL(rope.beta_fast), 1e-6, 1e6, 32 },
    { "beta_slow", "rope.scaling.yarn_beta_slow", REAL(rope.beta_slow), 1e-6, 1e6, 1 },
    { 0 }
};

static const struct rope_name *ropes_of(const struct family *f) { return f->ropes ? f->ropes : ropes; }

bool family_has_rope(const struct family *f, enum rope_type type)
{
    const struct rope_name *n = ropes_of(f);
    while (n->name && n->type != type)
        n++;
    return n->name;
}

/* ---- config.json ---- */

int missing_key(const struct json *in, const char *key, struct err *e)
{
    return err_set(e, ERR_INPUT, "%s: %s%s%s is missing", in->file, in->key[0] ? in->key[0] : "",
                   in->key[0] ? "." : "", key);
}

int need_real(const struct json *in, const char *key, double lo, double hi, double *x, struct err *e)
{
    struct json v;
    const int found = js_get(in, key, &v, e);
    if (found <= 0)
        return found < 0 ? -1 : missing_key(in, key, e);
    return js_real(&v, lo, hi, x, e);
}

int need_yarn(const struct reading *r)
{
    return r->c->rope.type == ROPE_YARN
               ? 0 : read_bad(r, "rope_parameters of rope_type yarn are missing, %s needs them", r->f->type);
}

/* mrope_section, mrope_interleaved: the three positions of a token of text are equal, so the division of the
 * frequencies among them has no effect. */
static int read_rope_keys(const struct reading *r, const struct json *dict)
{
    static const char *const known[] = {
        "type", "rope_type", "rope_theta", "factor", "original_max_position_embeddings", "low_freq_factor",
        "high_freq_factor", "beta_fast", "beta_slow", "attention_factor", "mscale", "mscale_all_dim",
        "truncate", partial, "finetuned", NULL
    };
    struct json key, v;
    for (struct js_walk w = js_walk(dict); js_next(&w, &key, &v);) {
        char name[64] = "";
        bool control;
        if (js_length(&key, &control) < sizeof name)
            name[js_unescape(&key, name)] = 0;
        if (!in_list(known, name) && !in_list(r->f->rope_keys, name) && !is_null(&v))
            return js_bad(&key, r->e, "this key of %s is not implemented", dict->key[0]);
    }
    return 0;
}

static int read_rope_type(const struct reading *r, const struct json *dict)
{
    struct json v;
    char allowed[128] = "";
    int found = js_get(dict, "rope_type", &v, r->e);
    if (found == 0)
        found = js_get(dict, "type", &v, r->e);
    if (found <= 0)
        return found;
    for (const struct rope_name *n = ropes_of(r->f); n->name; n++) {
        if (js_is(&v, n->name)) {
            r->c->rope.type = n->type;
            return 0;
        }
        const size_t used = strlen(allowed);
        if (!used || n->type != n[-1].type)      /* older names of a type stay out */
            snprintf(allowed + used, sizeof allowed - used, "%s%s",
                     !used ? "" : n[1].name && n[1].type != n->type ? ", " : " and ", n->name);
    }
    return js_bad(&v, r->e, "allowed %s %s", strchr(allowed, ' ') ? "are" : "is", allowed);
}

/* Reads original_max_position_embeddings: from the top level, else from the scaling, else
 * max_position_embeddings. */
static int read_original(const struct reading *r, const struct json *dict)
{
    static const char key[] = "original_max_position_embeddings";
    struct json v;
    int found = js_get(r->root, key, &v, r->e);
    if (found == 0)
        found = js_get(dict, key, &v, r->e);
    r->c->rope.original = r->c->max_position;
    return found == 1 ? js_size(&v, 1, CONTEXT_MAX, &r->c->rope.original, r->e) : found;
}

static int read_yarn(const struct reading *in, const struct json *dict)
{
    struct rope_config *r = &in->c->rope;
    struct err *e = in->e;
    struct json v;
    int found = js_get(dict, "factor", &v, e);
    if (found <= 0)
        return found < 0 ? -1 : missing_key(dict, "factor", e);
    r->factor = (double)in->c->max_position / (double)r->original;
    if (is_null(&v) ? r->factor < 1 : js_real(&v, 1, 1e6, &r->factor, e))
        return is_null(&v) ? js_bad(&v, e, "max_position_embeddings is below the original length: allowed "
                                           "are numbers from 1") : -1;
    if (get_real(dict, "beta_fast", 0, 0, 1e6, &r->beta_fast, e) ||
        get_real(dict, "beta_slow", 0, 0, 1e6, &r->beta_slow, e) ||
        get_real(dict, "mscale", 0, 0, 1e6, &r->mscale, e) ||
        get_real(dict, "mscale_all_dim", 0, 0, 1e6, &r->mscale_all_dim, e) ||
        get_real(dict, "attention_factor", 0, 1e-6, 1e6, &r->attention_factor, e) ||
        get_bool(dict, "truncate", true, &r->truncate, e))
        return -1;
    r->beta_fast = r->beta_fast == 0 ? 32 : r->beta_fast;
    r->beta_slow = r->beta_slow == 0 ? 1 : r->beta_slow;
    return 0;
}

/* Reads the settings of a type that scales. */
static int read_scaling(const struct reading *in, const struct json *dict)
{
    struct rope_config *r = &in->c->rope;
    struct err *e = in->e;
    struct json v;
    const int has = js_get(dict, partial, &v, e);
    if (has < 0 || (has && in->f->partial <= 0 && r->type != ROPE_DIVIDED && !is_neutral(&v, ONE)))
        return has < 0 ? -1 : js_bad(&v, e, "allowed is 1");
    if ((r->type == ROPE_LLAMA3 || r->type == ROPE_YARN) && read_original(in, dict))
        return -1;
    if ((r->type == ROPE_LINEAR || r->type == ROPE_DYNAMIC || r->type == ROPE_LLAMA3) &&
        need_real(dict, "factor", 1, 1e6, &r->factor, e))
        return -1;
    if (r->type == ROPE_LLAMA3 &&
        (need_real(dict, "low_freq_factor", 1e-6, 1e6, &r->low_freq_factor, e) ||
         need_real(dict, "high_freq_factor", 1e-6, 1e6, &r->high_freq_factor, e)))
        return -1;
    if (r->type == ROPE_LLAMA3 && r->high_freq_factor <= r->low_freq_factor)
        return read_bad(in, "%s.high_freq_factor is %g, it must be above low_freq_factor %g", dict->key[0],
                        r->high_freq_factor, r->low_freq_factor);
    return r->type == ROPE_YARN ? read_yarn(in, dict) : 0;
}

/* Reads the settings of the windowed layers, which are not scaled. */
static int read_sliding(struct config *c, const struct json *v, struct err *e)
{
    struct json key, x;
    if (need_object(v, e))
        return -1;
    for (struct js_walk w = js_walk(v); js_next(&w, &key, &x);) {
        if (js_is(&key, "rope_type") ? !js_is(&x, "default") : !js_is(&key, "rope_theta"))
            return js_bad(js_is(&key, "rope_type") ? &x : &key, e,
                          "allowed in sliding_attention are rope_theta, and rope_type \"default\"");
    }
    return get_real(v, "rope_theta", c->rope.local_theta, 1, 1e30, &c->rope.local_theta, e);
}

/* Reads theta of the windowed layers. *dict: rope_parameters, or with *found 0 the root; both become those of
 * the other layers. old: *dict is rope_scaling, which is for the other layers alone. */
static int read_local_rope(const struct reading *r, struct json *dict, bool old, int *found)
{
    struct config *c = r->c;
    struct json key, v, all = *dict;
    c->rope.within = true;
    if (get_real(r->root, "rope_local_base_freq", family_missing(r->f, "rope_local_base_freq", c->rope.theta),
                 1, 1e30, &c->rope.local_theta, r->e))
        return -1;
    if (old || !*found)
        return 0;
    *found = 0;
    *dict = *r->root;
    if (need_object(&all, r->e))
        return -1;
    for (struct js_walk w = js_walk(&all); js_next(&w, &key, &v);) {
        const bool full = js_is(&key, "full_attention");
        if (!full && !js_is(&key, "sliding_attention"))
            return js_bad(&key, r->e, "allowed in rope_parameters are full_attention and sliding_attention");
        if (js_kind(&v) == JS_NULL)
            continue;
        if (!full && read_sliding(c, &v, r->e))
            return -1;
        if (full)
            *dict = v, *found = 1;
    }
    return 0;
}

/* Reads how many dimensions of a head turn. The settings of RoPE win over the older key beside them. */
static int read_rotary(const struct reading *r, const struct json *dict)
{
    struct config *c = r->c;
    double older, factor;
    c->rotary = c->head_dim;
    if (r->f->partial <= 0)
        return 0;
    if (get_real(r->root, partial, r->f->partial, 0, 1, &older, r->e) ||
        get_real(dict, partial, older, 0, 1, &factor, r->e))
        return -1;
    c->rotary = (size_t)((double)c->head_dim * factor);
    return c->rotary >= 2 && c->rotary % 2 == 0
               ? 0 : read_bad(r, "%s %g of head_dim %zu makes %zu dimensions, allowed are even numbers from "
                              "2", partial, factor, c->head_dim, c->rotary);
}

int read_rope(const struct reading *in)
{
    struct rope_config *r = &in->c->rope;
    struct json dict = *in->root;
    struct err *e = in->e;
    *r = (struct rope_config){ .factor = 1, .truncate = true };
    if (get_real(in->root, "rope_theta", family_missing(in->f, "rope_theta", 10000), 1, 1e30, &r->theta, e))
        return -1;
    /* The old spelling wins if it is not empty, as in transformers. */
    int found = get_value(in->root, "rope_scaling", &dict, e);
    if (found == 1 && js_kind(&dict) == JS_OBJECT && is_neutral(&dict, EMPTY))
        found = 0;
    const bool old = found > 0;
    if (found == 0)
        found = get_value(in->root, "rope_parameters", &dict, e);
    if (found < 0 || (in->f->local && read_local_rope(in, &dict, old, &found)))
        return -1;
    if (found && (need_object(&dict, e) || read_rope_type(in, &dict) || read_rope_keys(in, &dict) ||
                  get_real(&dict, "rope_theta", r->theta, 1, 1e30, &r->theta, e) || read_scaling(in, &dict)))
        return -1;
    if (read_rotary(in, found ? &dict : in->root) || (in->f->rope && in->f->rope(in, found ? &dict : NULL)))
        return -1;
    if (r->type == ROPE_YARN && r->theta <= 1)
        return read_bad(in, "rope_theta is 1, yarn needs more than 1");
    if (r->type == ROPE_DYNAMIC && in->c->rotary == 2)
        return read_bad(in, "head_dim is 2, dynamic rope needs more");
    in->c->context = config_context(in->c);
    return in->c->context
               ? 0 : read_bad(in, "%s.factor %g makes a context of more than %d positions", dict.key[0],
                              r->factor, CONTEXT_MAX);
}

/* ---- GGUF ---- */

int get_rope(struct getting *m)
{
    struct rope_config *r = &m->c->rope;
    struct slice type = { "linear", 6 };
    r->theta = 10000;
    if (read_real(m, "rope.freq_base", 1, 1e30, &r->theta) < 0 ||
        gguf_string(m->g, KEY(m, "rope.scaling.type"), &type, m->e) < 0 ||
        keys_get(m, scaling_keys) || keys_get(m, yarn_keys) || keys_get(m, m->f->yarn_keys) ||
        (!gguf_find(m->g, KEY(m, "rope.scaling.factor")) &&
         read_real(m, "rope.scale_linear", 1e-6, 1e6, &r->factor) < 0))
        return -1;
    r->original = r->original ? r->original : m->c->max_position;
    r->local_theta = family_missing(m->f, "rope_local_base_freq", r->theta);
    if (m->f->local && read_real(m, "rope.freq_base_swa", 1, 1e30, &r->local_theta) < 0)
        return -1;
    const bool linear = slice_is(type, "linear"), yarn = slice_is(type, "yarn");
    if (!linear && !yarn && !slice_is(type, "none") &&
        !(slice_is(type, "longrope") && family_has_rope(m->f, ROPE_LONG)))
        return get_bad(m, "rope.scaling.type", "found %.*s, allowed are none, linear and yarn", SHOWN(type));
    if (r->factor != 0 && r->factor != 1 && (linear || yarn))
        r->type = yarn ? ROPE_YARN : ROPE_LINEAR;
    return 0;
}

void write_rope(const struct writing *w)
{
    const struct config *c = w->c;
    const struct rope_config *r = &c->rope;
    const bool linear = r->type == ROPE_LINEAR, yarn = r->type == ROPE_YARN;
    jw_open(w->w, "rope_parameters", '{');
    if (w->f->local) {
        jw_open(w->w, "sliding_attention", '{');
        write_float(w->w, "rope_theta", r->local_theta);
        jw_close(w->w, '}');
        jw_open(w->w, "full_attention", '{');
    }
    write_float(w->w, "rope_theta", r->theta);
    if (w->f->partial > 0)               /* read_rotary rounds the product down */
        write_float(w->w, partial,
                    c->rotary < c->head_dim ? ((double)c->rotary + 0.5) / (double)c->head_dim : 1);
    jw_text(w->w, "rope_type", linear ? "linear" : yarn ? "yarn" : ropes_of(w->f)->name);
    keys_write(w, linear || yarn ? scaling_keys : NULL);
    keys_write(w, yarn ? yarn_keys : NULL);
    keys_write(w, yarn ? w->f->yarn_keys : NULL);
    if (w->f->local)
        jw_close(w->w, '}');
    jw_close(w->w, '}');
}

/* The divisor r of a frequency f with f / r == wanted, in floats. */
static float divisor_of(float f, float wanted)
{
    const float r = f / wanted;
    float up = r, down = r;
    for (int i = 0; i < NEIGHBOURS; i++) {
        if (f / up == wanted)
            return up;
        if (f / down == wanted)
            return down;
        up = nextafterf(up, INFINITY);
        down = nextafterf(down, 0);
    }
    return r;
}

static void find_divisors(const struct config *c, float *divisor)
{
    struct config plain = *c;
    float f[HEAD_DIM_MAX / 2], wanted[HEAD_DIM_MAX / 2], factor;
    plain.rope.type = ROPE_PLAIN;
    config_rope(&plain, f, &factor);
    config_rope(c, wanted, &factor);
    for (size_t i = 0; i < c->head_dim / 2; i++)
        divisor[i] = divisor_of(f[i], wanted[i]);
}

int put_rope(const struct putting *p)
{
    const struct rope_config *r = &p->c->rope;
    const bool yarn = r->type == ROPE_YARN, grows = r->growth != 0;
    put_uint(p, "rope.dimension_count", p->c->rotary);
    put_real(p, "rope.freq_base", r->theta);
    *p->has_divisor = r->type == ROPE_LLAMA3;
    if (r->type == ROPE_LLAMA3) {
        if (!p->f->writes_freqs)
            return put_lacks(p, "rope_type llama3 of another model than llama");
        find_divisors(p->c, p->divisor);
    }
    if (r->type == ROPE_DYNAMIC)
        return put_lacks(p, "rope_type dynamic");
    if (yarn && ((r->attention_factor != 0 && !has_key(p->f->yarn_keys, "attention_factor")) ||
                 r->mscale != grows || (!grows && r->mscale_all_dim != 0) ||
                 r->truncate == has_key(p->f->yarn_keys, "truncate")))
        return put_lacks(p, "yarn with attention_factor, mscale or truncate");
    if (yarn || r->type == ROPE_LINEAR)
        put_text(p, "rope.scaling.type", yarn ? "yarn" : "linear");
    keys_put(p, yarn || r->type == ROPE_LINEAR ? scaling_keys : NULL);
    keys_put(p, yarn ? yarn_keys : NULL);
    keys_put(p, yarn ? p->f->yarn_keys : NULL);
    return 0;
}
