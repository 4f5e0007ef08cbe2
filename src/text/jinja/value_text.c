/* JSON to values, and values to texts: str, repr, and the filter tojson, which is json.dumps(v, ensure_ascii,
 * indent, separators, sort_keys). */
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
        char *number = memcpy(jj_alloc(j, n + 1), v->s, n);
        int64_t i;
        number[n] = 0;
        if (strspn(number, "-0123456789") < n)           /* 4.0 is a float */
            return jj_float(strtod(number, NULL));
        return js_i64(v, &i) ? jj_int(i) : (V){ .kind = JJ_BIG, .s = jj_str(j, number, n).s };
    }
    case JS_ARRAY: {
        V list = jj_list(j, JJ_LIST);
        for (struct js_walk w = js_walk(v); js_next(&w, NULL, &one);)
            jj_append(j, list.list, jj_from_json(j, &one));
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

V jj_parse_json(struct jinja *j, In x)
{
    const struct jj_str *s = jj_need_text(j, x->self, "from_json");
    struct json root;
    struct err why;
    if (js_check_with_nul(&root, "from_json", s->s, s->n, &why))
        jj_fail(j, "%s", why.msg);
    return jj_from_json(j, &root);
}

/* ---- numbers and texts ---- */

static void put_float(struct jinja *j, struct jj_text *t, double f)
{
    char digits[40], out[400];
    int n = 0;
    do {                                                /* the shortest digits that give f */
        jj_step(j, 8);
        snprintf(digits, sizeof digits, "%.*e", n, f);
    } while (strtod(digits, NULL) != f && ++n < 17);
    const int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        snprintf(out, sizeof out, "%.*f", MAX(n - exponent, 1), f);
    } else {
        *strchr(digits, 'e') = 0;
        snprintf(out, sizeof out, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
    }
    jj_puts(j, t, out);
}

/* How a value is written. */
struct print {
    struct jj_text *t;
    bool json;                                          /* else as repr */
    const struct jj_str *indent, *comma, *colon;
    bool ascii, sorted;
    int level;
};

/* Python's repr escapes what it cannot print; here that is the control characters, separators and code points
 * without a character. */
static bool is_hidden(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c <= 0xa0) || c == 0xad || (unicode_is_space(c) && c != ' ') ||
           (c >= 0x200b && c <= 0x200f) || (c >= 0x202a && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) ||
           c == 0xfeff || (c >= 0xe000 && c <= 0xf8ff) || (c >= 0xfff0 && c <= 0xfffb);
}

static void put_quoted(struct jinja *j, struct print *p, const struct jj_str *s)
{
    static const char shorts[] = "n\nr\rt\t\\\\b\bf\f";           /* repr has the first four */
    const bool one = s->n && memchr(s->s, '\'', s->n), two = s->n && memchr(s->s, '"', s->n);
    const char quote = p->json || (one && !two) ? '"' : '\'';
    jj_put(j, p->t, &quote, 1);
    for (size_t i = 0, n; i < s->n; i += n) {
        uint32_t c;
        char out[16];
        n = jj_char(j, s, i, &c);
        const char *letter = c == (unsigned char)quote ? &quote : NULL;
        for (size_t k = 0; k < (p->json ? 12 : 8) && !letter; k += 2)
            letter = (unsigned char)shorts[k + 1] == c ? shorts + k : NULL;
        if (letter)
            snprintf(out, sizeof out, "\\%c", *letter);
        else if (p->json ? c >= 0x20 && (!p->ascii || c < 0x80) : !is_hidden(c))
            snprintf(out, sizeof out, "%.*s", (int)n, s->s + i);
        else if (c >= 0x10000)
            snprintf(out, sizeof out, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                     0xdc00 + ((c - 0x10000) & 0x3ff));
        else
            snprintf(out, sizeof out, p->json || c >= 0x100 ? "\\u%04x" : "\\x%02x", c);
        jj_puts(j, p->t, out);
    }
    jj_put(j, p->t, &quote, 1);
}

/* ---- values ---- */

static void put_value(struct jinja *j, struct print *p, V v);

static void new_line(struct jinja *j, struct print *p)
{
    if (!p->indent)
        return;
    jj_puts(j, p->t, "\n");
    for (int i = 0; i < p->level; i++)
        jj_put(j, p->t, p->indent->s, p->indent->n);
}

/* A key of JSON is a text. */
static void put_key(struct jinja *j, struct print *p, V key)
{
    const bool quoted = p->json && key.kind != JJ_STR;
    if (quoted && !jj_number(key) && key.kind != JJ_NONE)
        jj_fail(j, "tojson: a %s cannot be a key", jj_type(key));
    jj_puts(j, p->t, quoted ? "\"" : "");
    put_value(j, p, key);
    jj_puts(j, p->t, quoted ? "\"" : "");
}

/* The members of a dict, for sort_keys by key. */
static struct jj_entry *members(struct jinja *j, const struct print *p, const struct jj_dict *dict)
{
    if (!p->sorted || !dict->n)
        return dict->v;
    struct jj_entry *e = memcpy(jj_alloc(j, dict->n * sizeof *e), dict->v, dict->n * sizeof *e);
    V *keys = jj_alloc(j, dict->n * sizeof *keys);
    for (size_t i = 0; i < dict->n; i++)
        keys[i] = dict->v[i].key;
    jj_sort(j, e, sizeof *e, keys, dict->n, false);
    return e;
}

static void put_elements(struct jinja *j, struct print *p, V v, const char *open, const char *close)
{
    const bool dict = v.kind == JJ_DICT || v.kind == JJ_SPACE;
    const struct jj_entry *e = dict ? members(j, p, v.dict) : NULL;
    struct jj_iter *it = dict ? NULL : jj_walk(j, v);
    V x;
    size_t i = 0;
    jj_puts(j, p->t, open);
    p->level++;
    for (; dict ? i < v.dict->n : jj_next(j, it, &x); i++) {
        if (i)
            jj_put(j, p->t, p->comma->s, p->comma->n);
        new_line(j, p);
        if (dict) {
            put_key(j, p, e[i].key);
            jj_put(j, p->t, p->colon->s, p->colon->n);
            x = e[i].value;
        }
        put_value(j, p, x);
    }
    p->level--;
    if (i)
        new_line(j, p);
    jj_puts(j, p->t, v.kind == JJ_TUPLE && i == 1 && !p->json ? ",)" : close);
}

static void put_value(struct jinja *j, struct print *p, V v)
{
    static const char *const words[2][6] = { { "None", "True", "False", "nan", "inf", "-inf" },
                                             { "null", "true", "false", "NaN", "Infinity", "-Infinity" } };
    static const char *const views[] = { "dict_keys([", "dict_values([", "dict_items([" };
    const char *const *word = words[p->json];
    char number[80];
    jj_step(j, 1);
    jj_deeper(j);
    if (p->json && (v.kind == JJ_UNDEFINED || v.kind > JJ_DICT))
        jj_fail(j, "tojson: a %s has no JSON form", jj_type(v));
    switch (v.kind) {
    case JJ_MISSING: case JJ_UNDEFINED: jj_puts(j, p->t, "Undefined"); break;
    case JJ_NONE: jj_puts(j, p->t, word[0]); break;
    case JJ_BOOL: jj_puts(j, p->t, v.b ? word[1] : word[2]); break;
    case JJ_INT:
        snprintf(number, sizeof number, "%lld", (long long)v.i);
        jj_puts(j, p->t, number);
        break;
    case JJ_FLOAT:
        if (isfinite(v.f))
            put_float(j, p->t, v.f);
        else
            jj_puts(j, p->t, isnan(v.f) ? word[3] : v.f > 0 ? word[4] : word[5]);
        break;
    case JJ_BIG: jj_put(j, p->t, v.s->s, v.s->n); break;
    case JJ_STR: put_quoted(j, p, v.s); break;
    case JJ_LIST: put_elements(j, p, v, "[", "]"); break;
    case JJ_TUPLE: put_elements(j, p, v, p->json ? "[" : "(", p->json ? "]" : ")"); break;
    case JJ_DICT: put_elements(j, p, v, "{", "}"); break;
    case JJ_VIEW: put_elements(j, p, v, views[v.view->part], "])"); break;
    case JJ_SPACE: put_elements(j, p, v, "<Namespace {", "}>"); break;
    case JJ_RANGE_OF:
        snprintf(number, sizeof number, v.range->step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
                 (long long)v.range->from, (long long)v.range->to, (long long)v.range->step);
        jj_puts(j, p->t, number);
        break;
    case JJ_ITER: case JJ_LOOP: case JJ_CALL: jj_fail(j, "a %s has no text", jj_type(v));
    }
    j->depth--;
}

void jj_put_repr(struct jinja *j, struct jj_text *t, V v)
{
    static const struct jj_str comma = { .s = ", ", .n = 2 }, colon = { .s = ": ", .n = 2 };
    put_value(j, &(struct print){ .t = t, .comma = &comma, .colon = &colon }, v);
}

void jj_put_str(struct jinja *j, struct jj_text *t, V v)
{
    if (v.kind == JJ_STR)
        jj_put(j, t, v.s->s, v.s->n);
    else if (v.kind != JJ_UNDEFINED)
        jj_put_repr(j, t, v);
}

V jj_to_str(struct jinja *j, V v)
{
    if (v.kind == JJ_STR)
        return v;
    struct jj_text t = {0};
    jj_put_str(j, &t, v);
    return jj_text(j, &t);
}

V jj_to_json(struct jinja *j, In x)
{
    const V *indent = &x->p[1], *separators = &x->p[2];
    struct jj_text t = {0};
    struct print p = { .t = &t, .json = true, .ascii = jj_truth(x->p[0]), .sorted = jj_truth(x->p[3]) };
    if (jj_whole(*indent)) {
        const int64_t n = MAX(jj_i(*indent), 0);
        if (n > 1000)
            jj_fail(j, "tojson: indent %lld is above 1000", (long long)n);
        p.indent = jj_str(j, memset(jj_alloc(j, (size_t)n), ' ', (size_t)n), (size_t)n).s;
    } else if (indent->kind == JJ_STR) {
        p.indent = indent->s;
    } else if (jj_given(*indent)) {
        jj_fail(j, "tojson: indent is a %s", jj_type(*indent));
    }
    p.comma = jj_cstr(j, p.indent ? "," : ", ").s;
    p.colon = jj_cstr(j, ": ").s;
    if (jj_given(*separators)) {
        if ((separators->kind != JJ_TUPLE && separators->kind != JJ_LIST) || separators->list->n != 2 ||
            separators->list->v[0].kind != JJ_STR || separators->list->v[1].kind != JJ_STR)
            jj_fail(j, "tojson: separators are two texts");
        p.comma = separators->list->v[0].s;
        p.colon = separators->list->v[1].s;
    }
    put_value(j, &p, x->self);
    return jj_text(j, &t);
}
