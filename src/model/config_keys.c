/* Reading of keys with defaults. */
#include "src/model/config_keys.h"

int get_value(const struct json *in, const char *key, struct json *v, struct err *e)
{
    int found = js_get(in, key, v, e);
    return found == 1 && js_kind(v) == JS_NULL ? 0 : found;
}

int need_object(const struct json *v, struct err *e)
{
    return js_kind(v) == JS_OBJECT ? 0 : js_bad(v, e, "allowed is an object");
}

int get_size(const struct json *in, const char *key, size_t missing, enum null null, size_t hi,
                    size_t *x, struct err *e)
{
    struct json v;
    int found = null == NULL_MISSING ? get_value(in, key, &v, e) : js_get(in, key, &v, e);
    *x = missing;
    return found == 1 ? js_size(&v, 1, hi, x, e) : found;
}

int get_real(const struct json *in, const char *key, double missing, double lo, double hi, double *x,
                    struct err *e)
{
    struct json v;
    int found = get_value(in, key, &v, e);
    *x = missing;
    return found == 1 ? js_real(&v, lo, hi, x, e) : found;
}

int get_bool(const struct json *in, const char *key, bool missing, bool *x, struct err *e)
{
    struct json v;
    int found = js_get(in, key, &v, e);
    *x = missing;
    return found == 1 ? js_bool(&v, x, e) : found;
}

int read_word(const struct json *in, const char *key, const char *allowed, struct err *e)
{
    struct json v;
    const int found = get_value(in, key, &v, e);
    return found > 0 && !js_is(&v, allowed) ? js_bad(&v, e, "allowed is \"%s\"", allowed) : found;
}

bool is_one_of(const struct json *v, const char *const *words)
{
    while (words && *words && !js_is(v, *words))
        words++;
    return words && *words;
}

bool is_neutral(const struct json *v, int neutral)
{
    double x;
    switch (js_kind(v)) {
    case JS_NULL:   return true;
    case JS_FALSE:  return neutral & NO;
    case JS_TRUE:   return neutral & YES;
    case JS_NUMBER: return js_double(v, &x) && ((x == 0 && (neutral & ZERO)) || (x == 1 && (neutral & ONE)));
    case JS_STRING: return false;
    default:        return (neutral & EMPTY) &&
                           !js_next(&(struct js_walk){ *v, v->s + 1 }, NULL, &(struct json){ 0 });
    }
}
