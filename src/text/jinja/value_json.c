/* JSON to values, and the filter tojson: json.dumps(v, ensure_ascii, indent, separators, sort_keys). */
#include "src/text/jinja/jinja_impl.h"

#include <math.h>
#include <stdlib.h>

static V text_of(struct jinja *j, const struct json *v)
{
    char *s = jj_alloc(j, (size_t)(v->end - v->s));
    return jj_str(j, s, js_unescape(v, s));
}

V jj_from_json(struct jinja *j, const struct json *v)
{
    struct json key, one;
    jj_work(j, JJ_STEP + (size_t)(v->end - v->s));      /* js_next walks over the whole value */
    switch (js_kind(v)) {
    case JS_NULL: return jj_none();
    case JS_FALSE: return jj_bool(false);
    case JS_TRUE: return jj_bool(true);
    case JS_STRING: return text_of(j, v);
    case JS_NUMBER: {
        const size_t n = (size_t)(v->end - v->s);
        char *number = jj_alloc(j, n + 1);
        int64_t i;
        memcpy(number, v->s, n);
        number[n] = 0;
        if (strspn(number, "-0123456789") < n)           /* 4.0 is a float */
            return jj_float(strtod(number, NULL));
        return js_i64(v, &i) ? jj_int(i) : (V){ .kind = JJ_BIG, .s = jj_str(j, number, n).s };
    }
    case JS_ARRAY: {
        V list = jj_list(j, JJ_LIST);
        for (struct js_walk w = js_walk(v); js_next(&w, NULL, &one);)
            jj_append(j, list, jj_from_json(j, &one));
        return list;
    }
    case JS_OBJECT: {
        V dict = jj_dict(j, JJ_DICT);
        for (struct js_walk w = js_walk(v); js_next(&w, &key, &one);)
            jj_set(j, dict.dict, text_of(j, &key), jj_from_json(j, &one));
        return dict;
    }
    }
    return jj_none();
}

V jj_parse_json(struct jinja *j, const struct jj_str *s)
{
    struct json root;
    struct err why;
    if (js_check_with_nul(&root, "from_json", s->s, s->n, &why))
        jj_fail(j, "%s", why.msg);
    return jj_from_json(j, &root);
}

void jj_put_json_string(struct jinja *j, struct jj_text *t, const struct jj_str *s, bool ascii)
{
    static const char shorts[] = "b\bf\fn\nr\rt\t\"\"\\\\";
    jj_puts(j, t, "\"");
    for (size_t i = 0, n; i < s->n; i += n) {
        uint32_t c;
        char out[16];
        n = jj_char(j, s, i, &c);
        const char *letter = NULL;
        for (const char *p = shorts; *p && !letter; p += 2)
            letter = (unsigned char)p[1] == c ? p : NULL;
        if (letter)
            snprintf(out, sizeof out, "\\%c", *letter);
        else if (c < 0x20 || (ascii && c >= 0x7f && c < 0x10000 && c != 0x7f))
            snprintf(out, sizeof out, "\\u%04x", c);
        else if (ascii && c >= 0x10000)
            snprintf(out, sizeof out, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                     0xdc00 + ((c - 0x10000) & 0x3ff));
        else {
            jj_put(j, t, s->s + i, n);
            continue;
        }
        jj_puts(j, t, out);
    }
    jj_puts(j, t, "\"");
}

struct dump { struct jj_text t; const struct jj_str *indent, *comma, *colon; bool ascii, sorted; int level; };

static void put_number(struct jinja *j, struct dump *d, V v)
{
    if (v.kind == JJ_FLOAT && !isfinite(v.f))
        jj_puts(j, &d->t, isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity");
    else if (v.kind == JJ_BOOL)
        jj_puts(j, &d->t, v.b ? "true" : "false");
    else
        jj_put_repr(j, &d->t, v);
}

static void new_line(struct jinja *j, struct dump *d)
{
    if (!d->indent)
        return;
    jj_puts(j, &d->t, "\n");
    for (int i = 0; i < d->level; i++)
        jj_put(j, &d->t, d->indent->s, d->indent->n);
}

static void put_key(struct jinja *j, struct dump *d, V key)
{
    if (key.kind == JJ_STR) {
        jj_put_json_string(j, &d->t, key.s, d->ascii);
        return;
    }
    if (!jj_number(key) && key.kind != JJ_NONE)
        jj_fail(j, "tojson: a %s cannot be a key", jj_type(key));
    jj_puts(j, &d->t, key.kind == JJ_NONE ? "\"null" : "\"");
    if (key.kind != JJ_NONE)
        put_number(j, d, key);
    jj_puts(j, &d->t, "\"");
}

static void put_json(struct jinja *j, struct dump *d, V v);

/* The members of a dict, for sort_keys by key. */
static struct jj_entry *members(struct jinja *j, const struct dump *d, const struct jj_dict *dict)
{
    if (!d->sorted)
        return dict->v;
    struct jj_entry *e = jj_alloc(j, dict->n * sizeof *e);
    V *keys = jj_alloc(j, dict->n * sizeof *keys);
    for (size_t i = 0; i < dict->n; i++)
        keys[i] = dict->v[i].key;
    const size_t *order = jj_order(j, keys, dict->n, false);
    for (size_t i = 0; i < dict->n; i++)
        e[i] = dict->v[order[i]];
    return e;
}

static void put_json_members(struct jinja *j, struct dump *d, V v)
{
    const bool dict = v.kind == JJ_DICT;
    const size_t n = jj_length(j, v);
    jj_puts(j, &d->t, dict ? "{" : "[");
    d->level++;
    const struct jj_entry *e = dict ? members(j, d, v.dict) : NULL;
    for (size_t i = 0; i < n; i++) {
        if (i)
            jj_put(j, &d->t, d->comma->s, d->comma->n);
        new_line(j, d);
        if (dict) {
            put_key(j, d, e[i].key);
            jj_put(j, &d->t, d->colon->s, d->colon->n);
        }
        put_json(j, d, dict ? e[i].value : v.list->v[i]);
    }
    d->level--;
    if (n)
        new_line(j, d);
    jj_puts(j, &d->t, dict ? "}" : "]");
}

static void put_json(struct jinja *j, struct dump *d, V v)
{
    jj_step(j, 1);
    jj_deeper(j);
    if (v.kind == JJ_NONE)
        jj_puts(j, &d->t, "null");
    else if (v.kind == JJ_STR)
        jj_put_json_string(j, &d->t, v.s, d->ascii);
    else if (jj_number(v) || v.kind == JJ_BIG)
        put_number(j, d, v);
    else if (v.kind == JJ_LIST || v.kind == JJ_TUPLE || v.kind == JJ_DICT)
        put_json_members(j, d, v);
    else
        jj_fail(j, "tojson: a %s has no JSON form", jj_type(v));
    j->depth--;
}

V jj_to_json(struct jinja *j, V v, const V *indent, const V *separators, bool ascii, bool sorted)
{
    struct dump d = { .ascii = ascii, .sorted = sorted };
    if (jj_whole(*indent)) {
        const int64_t n = MAX(jj_i(*indent), 0);
        if (n > 1000)
            jj_fail(j, "tojson: indent %lld is above 1000", (long long)n);
        char *spaces = jj_alloc(j, (size_t)n + 1);
        memset(spaces, ' ', (size_t)n);
        d.indent = jj_str(j, spaces, (size_t)n).s;
    } else if (indent->kind == JJ_STR) {
        d.indent = indent->s;
    } else if (indent->kind != JJ_NONE && indent->kind != JJ_MISSING) {
        jj_fail(j, "tojson: indent is a %s", jj_type(*indent));
    }
    d.comma = jj_cstr(j, d.indent ? "," : ", ").s;
    d.colon = jj_cstr(j, ": ").s;
    if (separators->kind != JJ_MISSING && separators->kind != JJ_NONE) {
        if ((separators->kind != JJ_TUPLE && separators->kind != JJ_LIST) || separators->list->n != 2 ||
            separators->list->v[0].kind != JJ_STR || separators->list->v[1].kind != JJ_STR)
            jj_fail(j, "tojson: separators are two texts");
        d.comma = separators->list->v[0].s;
        d.colon = separators->list->v[1].s;
    }
    put_json(j, &d, v);
    return jj_text(j, &d.t);
}
