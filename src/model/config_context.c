/* Layers of a configuration, the usable length of a model, and --context-scaling. */
#include <stdlib.h>
#include <string.h>

#include "src/base/json.h"
#include "src/model/config.h"

size_t config_last_global(const struct config *c)
{
    size_t l = c->n_layers;
    while (l > 0 && c->layer[l - 1].window)
        l--;
    return (l ? l : c->n_layers) - 1;
}

/* The layer whose cache a layer reads: itself, or one before it; NO_LAYER: there is none. */
static uint16_t kv_layer(const struct config *c, size_t layer)
{
    size_t l = layer;
    while (!config_owns_kv(c, l) || c->layer[l].window != c->layer[layer].window)
        if (l-- == 0)
            return NO_LAYER;
    return (uint16_t)l;
}

void config_layers(struct config *c)
{
    for (size_t l = 0; l < c->n_layers; l++) {
        struct layer_spec *s = &c->layer[l];
        const bool own = config_owns_kv(c, l);
        if (!c->heads_differ)
            s->n_kv_heads = c->n_kv_heads, s->head_dim = c->head_dim;
        s->kv_layer = kv_layer(c, l);
        s->beside = s->experts && c->experts_beside;
        s->ffn = s->experts && !s->beside ? 0 : c->ffn_doubled && !own ? 2 * c->ffn : c->ffn;
    }
}

bool config_is_hybrid(const struct config *c) { return config_mixers(c, MIXER_DELTA) > 0; }

size_t config_mixers(const struct config *c, enum mixer_kind kind)
{
    size_t n = 0;
    for (size_t l = 0; l < c->n_layers; l++)
        n += c->layer[l].mixer == kind;
    return n;
}

size_t config_caches(const struct config *c) { return config_mixers(c, MIXER_ATTENTION) - c->kv_shared; }

static double mean_dims(const struct config *c, bool queries)
{
    size_t dims = 0;
    for (size_t l = 0; l < c->n_layers; l++)
        dims += (queries ? c->n_heads : c->layer[l].n_kv_heads) * c->layer[l].head_dim;
    return (double)dims / (double)c->n_layers;
}

double config_mean_keys(const struct config *c) { return mean_dims(c, false); }
double config_mean_queries(const struct config *c) { return mean_dims(c, true); }

bool config_has_local(const struct config *c)
{
    size_t l = 0;
    while (l < c->n_layers && !c->layer[l].local)
        l++;
    return l < c->n_layers;
}

size_t config_context(const struct config *c)
{
    double n = (double)c->max_position;
    if (c->rope.type == ROPE_LINEAR && !c->rope.within)
        n *= c->rope.factor;
    if (c->rope.type == ROPE_LONG && c->rope.shorter)
        n = MIN(n, (double)c->rope.original);
    if (c->rope.type == ROPE_YARN && (double)c->rope.original * c->rope.factor > n)
        n = (double)c->rope.original * c->rope.factor;
    return n <= CONTEXT_MAX ? (size_t)n : 0;
}

/* Reads a decimal number in [lo, hi] at *s and moves *s after it. */
static bool scan_number(const char **s, double lo, double hi, double *x)
{
    char text[JS_NUMBER_MAX + 1], *end;
    size_t n = strspn(*s, "0123456789.eE+-");
    if (n > JS_NUMBER_MAX || **s < '0' || **s > '9')
        return false;
    memcpy(text, *s, n);
    text[n] = 0;
    *x = strtod(text, &end);
    *s += n;
    return *end == 0 && *x >= lo && *x <= hi;
}

int config_scale_context(struct config *c, const char *spec, struct err *e)
{
    struct config n = *c;
    if (c->rope.type == ROPE_LONG && strcmp(spec, "short") == 0) {
        c->rope.shorter = true;
        c->context = config_context(c);
        return 0;
    }
    if (c->rope.type == ROPE_LONG)
        return err_set(e, ERR_INPUT, "--context-scaling: found %s, allowed for this %s model is short", spec,
                       c->model_type);
    if (c->layer[0].scaled)
        return err_set(e, ERR_INPUT, "--context-scaling: not for %s models, of whose heads a part turns in "
                       "global layers", c->model_type);
    if (c->rope.within && c->rope.type != ROPE_PLAIN)
        return err_set(e, ERR_INPUT, "--context-scaling: the positions of this %s model are scaled already",
                       c->model_type);
    double factor, original = (double)(c->rope.type == ROPE_YARN ? c->rope.original : c->max_position);
    bool yarn = strncmp(spec, "yarn:", 5) == 0, linear = strncmp(spec, "linear:", 7) == 0;
    const char *s = spec + (yarn ? 5 : 7);
    if ((!yarn && !linear) || !scan_number(&s, 1, 1e6, &factor) ||
        (yarn && *s == ':' && (s++, !scan_number(&s, 1, CONTEXT_MAX, &original))) || *s ||
        original != (double)(size_t)original)
        return err_set(e, ERR_INPUT,
                       "--context-scaling: found %s, allowed are yarn:F, yarn:F:ORIG and linear:F with F "
                       "from 1, ORIG a whole number", spec);
    n.rope = (struct rope_config){ .type = yarn ? ROPE_YARN : ROPE_LINEAR, .theta = c->rope.theta,
                                   .factor = factor, .beta_fast = 32, .beta_slow = 1, .truncate = true,
                                   .original = yarn ? (size_t)original : 0 };
    n.rope.local_theta = c->rope.local_theta;
    if (c->rope.growth != 0) {           /* of the distance that the model was trained for */
        n.rope.growth = c->rope.growth;
        n.rope.original = yarn ? n.rope.original : c->rope.original;
    }
    n.context = config_context(&n);
    if (!n.context || (yarn && n.rope.theta <= 1))
        return err_set(e, ERR_INPUT,
                       "--context-scaling: %s makes a context of more than %d positions, or rope_theta is 1",
                       spec, CONTEXT_MAX);
    *c = n;
    return 0;
}
