/* Frequencies of RoPE that a GGUF file has as tensors of divisors: rope_freqs.weight of Llama 3, and the two
 * lists of longrope. Start at gguf_read_rope. */
#include "src/model/families/family.h"
#include "src/model/gguf_model.h"

#include <math.h>
#include <string.h>

static const char freqs[] = "rope_freqs.weight", longer[] = "rope_factors_long.weight",
                  shorter[] = "rope_factors_short.weight";

bool gguf_is_of_rope(const char *name)
{
    return strcmp(name, freqs) == 0 || strcmp(name, longer) == 0 || strcmp(name, shorter) == 0;
}

/* Reads a tensor of divisors. 1; 0: there is none. */
static int read_divisors(const struct gguf_model *m, const char *name, float *to, struct err *e)
{
    const struct config *c = &m->config;
    const struct tensor *t = tensors_find(&m->ts, name);
    const size_t n = c->rotary / 2;
    if (!t)
        return 0;
    const char *file = m->ts.path[t->shard];
    if ((c->rope.type != ROPE_PLAIN && !c->layer[0].scaled) ||
        !(name == freqs ? c->family->freqs : family_has_rope(c->family, ROPE_LONG)))
        return err_set(e, ERR_INPUT, "%s: tensor \"%s\" in a %s model%s", file, name, c->model_type,
                       c->rope.type == ROPE_PLAIN ? "" : " with rope.scaling");
    if (t->dtype != DT_F32 || t->n_elements != n)
        return err_set(e, ERR_INPUT, "%s: tensor \"%s\": %s [%zu], needed is F32 [%zu]", file, name,
                       t->dtype_name, t->n_elements, n);
    if (tensors_read(&m->ts, t, to, 0, t->bytes, e))
        return -1;
    for (size_t k = 0; k < n; k++)
        if (!(isfinite(to[k]) && to[k] > 0))
            return err_set(e, ERR_INPUT, "%s: tensor \"%s\": element %zu is %g, allowed are numbers above 0",
                           file, name, k, (double)to[k]);
    return 1;
}

/* Longrope: both lists, and the keys beside them. The factor on cos and sin is 1 without its key. */
static int read_long(struct gguf_model *m, struct err *e)
{
    struct rope_config *r = &m->config.rope;
    const int has_long = read_divisors(m, longer, r->divisor, e),
              has_short = has_long < 0 ? -1 : read_divisors(m, shorter, r->short_divisor, e);
    if (has_short < 0)
        return -1;
    if (has_long != has_short)
        return err_set(e, ERR_INPUT, "%s: tensor \"%s\" is missing, the other list of its kind is there",
                       m->part->file, has_long ? shorter : longer);
    if (!has_long)
        return 0;
    r->type = ROPE_LONG;
    r->original = m->config.max_position;
    r->attention_factor = 1;
    if (gguf_uint(m->part, "phi3.rope.scaling.original_context_length", 0, 1, CONTEXT_MAX, &r->original,
                  e) < 0 ||
        gguf_real(m->part, "phi3.rope.scaling.attn_factor", 1e-6, 1e6, &r->attention_factor, e) < 0)
        return -1;
    r->shorter = m->config.max_position <= r->original;
    return 0;
}

int gguf_read_rope(struct gguf_model *m, struct err *e)
{
    const int found = read_divisors(m, freqs, m->config.rope.divisor, e);
    if (found > 0)
        m->config.rope.type = ROPE_DIVIDED;
    for (size_t i = 0; m->config.layer[0].scaled && i < m->config.rotary / 2; i++)
        if (m->config.rope.divisor[i] >= 1e29f)          /* 1e30 there: the pair does not turn */
            m->config.rope.divisor[i] = INFINITY;
    return found < 0 ? -1 : read_long(m, e);
}
