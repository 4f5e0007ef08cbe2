/* Longrope of Phi-3 and Phi-4: a divisor for each frequency, one list for texts within the original length,
 * one for longer ones. Start at config_read_long. */
#include "src/model/config.h"
#include "src/model/config_keys.h"

/* Reads a list of as many divisors as there are frequencies. */
static int read_list(const struct config *c, const struct json *dict, const char *key, float *to,
                     struct err *e)
{
    struct json v, x;
    double d;
    size_t n = 0;
    const int found = js_get(dict, key, &v, e);
    if (found <= 0)
        return found < 0 ? -1 : err_set(e, ERR_INPUT, "%s: %s.%s is missing", dict->file, dict->key[0], key);
    if (js_kind(&v) != JS_ARRAY)
        return js_bad(&v, e, "allowed is a list of numbers");
    for (struct js_walk w = js_walk(&v); js_next(&w, NULL, &x); n++) {
        if (js_real(&x, 1e-6, 1e6, &d, e))
            return -1;
        if (n < c->rotary / 2)
            to[n] = (float)d;
    }
    return n == c->rotary / 2
               ? 0
               : err_set(e, ERR_INPUT,
                         "%s: %s.%s has %zu numbers, needed are %zu: half of the dimensions that turn",
                         dict->file, dict->key[0], key, n, c->rotary / 2);
}

int config_read_long(struct config *c, const struct json *dict, struct err *e)
{
    struct rope_config *r = &c->rope;
    if (read_list(c, dict, "long_factor", r->divisor, e) ||
        read_list(c, dict, "short_factor", r->short_divisor, e) ||
        get_real(dict, "factor", (double)c->max_position / (double)r->original, 1e-6, 1e6, &r->factor, e) ||
        get_real(dict, "attention_factor", 0, 1e-6, 1e6, &r->attention_factor, e))
        return -1;
    r->shorter = c->max_position <= r->original;
    return r->original > 1 || r->factor <= 1 || r->attention_factor != 0
               ? 0
               : err_set(e, ERR_INPUT,
                         "%s: original_max_position_embeddings is 1, longrope needs more than 1", dict->file);
}
