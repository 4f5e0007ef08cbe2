/* Filters and tests. Each is a row of a table at the end of its half: name, parameters, how many must be
 * given. */
#include "src/text/jinja/jinja_impl.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* The functions of a table have the same parameters. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

static bool flag(V v) { return v.kind != JJ_MISSING && jj_truth(v); }

/* An undefined value where the filter computes with it. */
static V defined(struct jinja *j, V v)
{
    if (v.kind == JJ_UNDEFINED)
        jj_fail(j, "'%.*s' is undefined", v.s ? (int)MIN(v.s->n, 60u) : 5, v.s ? v.s->s : "value");
    return v;
}

/* The attribute "a.b.0" of v, as make_attrgetter of jinja2; `missing` where it is undefined. */
static V attribute(struct jinja *j, V v, V name, V missing)
{
    if (name.kind == JJ_MISSING || name.kind == JJ_NONE)
        return v;
    if (jj_whole(name)) {
        v = jj_item(j, v, name);
    } else {
        if (name.kind != JJ_STR)
            jj_fail(j, "an attribute is a text or a number");
        for (size_t i = 0, n; i <= name.s->n; i += n + 1) {
            const char *dot = i < name.s->n ? memchr(name.s->s + i, '.', name.s->n - i) : NULL;
            n = dot ? (size_t)(dot - name.s->s) - i : name.s->n - i;
            const V part = jj_str(j, name.s->s + i, n);
            bool digits = n > 0;
            for (size_t k = 0; k < n; k++)
                digits &= part.s->s[k] >= '0' && part.s->s[k] <= '9';
            v = jj_item(j, v, digits && n < 10 ? jj_int(strtol(part.s->s, NULL, 10)) : part);
        }
    }
    return v.kind == JJ_UNDEFINED && missing.kind != JJ_MISSING ? missing : v;
}

/* ---- texts ---- */

static V f_lower(struct jinja *j, V v, const V *p, A a) { return jj_case(j, jj_to_str(j, v).s, 'l'); }
static V f_upper(struct jinja *j, V v, const V *p, A a) { return jj_case(j, jj_to_str(j, v).s, 'u'); }
static V f_string(struct jinja *j, V v, const V *p, A a) { return jj_to_str(j, v); }
static V f_safe(struct jinja *j, V v, const V *p, A a)
{
    struct jj_str *s = jj_alloc(j, sizeof *s);
    *s = *jj_to_str(j, v).s;
    s->safe = true;
    return (V){ .kind = JJ_STR, .s = s };
}
static V f_trim(struct jinja *j, V v, const V *p, A a)
{
    return jj_strip(j, jj_to_str(j, v).s, p, true, true);
}

static V method(struct jinja *j, V v, const char *name, const struct jj_args *a)
{
    const V m = jj_attr(j, v, jj_cstr(j, name).s);
    return jj_call_builtin(j, m.call->builtin, v, a);
}
static V f_capitalize(struct jinja *j, V v, const V *p, A a) { return jj_case(j, jj_to_str(j, v).s, 'c'); }
static V f_title(struct jinja *j, V v, const V *p, A a) { return jj_case(j, jj_to_str(j, v).s, 'w'); }

static V f_replace(struct jinja *j, V v, const V *p, A a)
{
    if (jj_given(p[2]) && !jj_whole(p[2]))
        jj_fail(j, "replace: count is a %s", jj_type(p[2]));
    return jj_replace(j, jj_to_str(j, v).s, jj_to_str(j, p[0]).s, jj_to_str(j, p[1]).s,
                      jj_given(p[2]) ? jj_i(p[2]) : -1);
}

static V f_indent(struct jinja *j, V v, const V *p, A a)
{
    const struct jj_str *s = defined(j, v).kind == JJ_STR ? v.s : NULL;
    struct jj_text pad = {0}, t = {0};
    if (!s || (p[0].kind != JJ_MISSING && p[0].kind != JJ_STR && !jj_whole(p[0])))
        jj_fail(j, "indent: a text, and a width or a text are needed");
    if (p[0].kind == JJ_STR)
        jj_put_str(j, &pad, p[0]);
    else
        for (int64_t i = p[0].kind == JJ_MISSING ? 4 : MIN(jj_i(p[0]), JJ_OUTPUT); i > 0; i--)
            jj_puts(j, &pad, " ");
    const struct jj_args none = {0};
    struct jj_text all = {0};
    jj_put_str(j, &all, v);
    jj_puts(j, &all, "\n");
    const V lines = method(j, jj_text(j, &all), "splitlines", &none);
    for (size_t i = 0; i < lines.list->n; i++) {
        const struct jj_str *line = lines.list->v[i].s;
        if (i)
            jj_puts(j, &t, "\n");
        if (i ? line->n || flag(p[2]) : flag(p[1]))
            jj_put(j, &t, pad.s, pad.n);
        jj_put(j, &t, line->s, line->n);
    }
    return jj_text(j, &t);
}

static V f_join(struct jinja *j, V v, const V *p, A a)
{
    struct jj_text t = {0};
    V x;
    bool more = false;
    for (struct jj_iter *it = jj_walk(j, v); jj_next(j, it, &x); more = true) {
        if (more && p[0].kind != JJ_MISSING)
            jj_put_str(j, &t, p[0]);
        jj_put_str(j, &t, attribute(j, x, p[1], (V){0}));
    }
    return jj_text(j, &t);
}

static V f_tojson(struct jinja *j, V v, const V *p, A a)
{
    return jj_to_json(j, v, &p[1], &p[2], flag(p[0]), flag(p[3]));
}
static V f_from_json(struct jinja *j, V v, const V *p, A a)
{
    if (v.kind != JJ_STR)
        jj_fail(j, "from_json: a text is needed, found a %s", jj_type(v));
    return jj_parse_json(j, v.s);
}

static V f_wordcount(struct jinja *j, V v, const V *p, A a)
{
    const struct jj_str *s = jj_to_str(j, v).s;
    int64_t n = 0;
    bool inside = false;
    for (size_t i = 0; i < s->n;) {
        uint32_t c;
        i += jj_char(j, s, i, &c);
        const bool word = unicode_class(c) & UNI_WORD;
        n += word && !inside;
        inside = word;
    }
    return jj_int(n);
}

static V f_format(struct jinja *j, V v, const V *p, A a)
{
    V t = jj_list(j, JJ_TUPLE);
    for (size_t i = 0; i < a->n; i++)
        jj_append(j, t, a->v[i]);
    if (a->n_kw)
        jj_fail(j, "format: names are not supported");
    return jj_format_percent(j, jj_to_str(j, v).s, t);
}

/* ---- numbers ---- */

/* Python's int(text, base) and float(text): white space around, single underscores between digits. */
static bool number_text(struct jinja *j, const struct jj_str *text, char out[100])
{
    const V none = jj_none();
    const struct jj_str *s = jj_strip(j, text, &none, true, true).s;
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++) {
        const bool under = s->s[i] == '_';
        if (under && (i == 0 || i + 1 == s->n || s->s[i - 1] < '0' || s->s[i - 1] > '9' ||
                      s->s[i + 1] < '0' || s->s[i + 1] > '9'))
            return false;
        if (n == 99 || s->s[i] == 0)
            return false;
        if (!under)
            out[n++] = s->s[i];
    }
    out[n] = 0;
    return n > 0 && !unicode_is_space((unsigned char)out[0]);
}
static bool parse_float(struct jinja *j, const struct jj_str *s, double *f)
{
    char number[100], *end;
    if (!number_text(j, s, number) || strpbrk(number, "xXpP("))
        return false;
    *f = strtod(number, &end);
    return *end == 0;
}
static bool parse_int(struct jinja *j, const struct jj_str *s, int base, int64_t *i)
{
    char number[100], *end;
    if (!number_text(j, s, number))
        return false;
    const size_t sign = number[0] == '+' || number[0] == '-';
    const char letter = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : 0;
    char *digits = number + sign;
    if (letter && digits[0] == '0' && (digits[1] | 32) == letter)
        digits += 2;
    if (strpbrk(digits, "+-xX ") || !*digits)
        return false;
    errno = 0;
    *i = strtoll(digits, &end, base);
    if (*end == 0 && errno == ERANGE)
        jj_fail(j, "the number %.40s is beyond 64 bits", number);
    *i = number[0] == '-' ? -*i : *i;
    return *end == 0;
}

static V f_int(struct jinja *j, V v, const V *p, A a)
{
    const V otherwise = p[0].kind == JJ_MISSING ? jj_int(0) : p[0];
    const int64_t base = p[1].kind == JJ_MISSING ? 10 : jj_whole(p[1]) ? jj_i(p[1]) : 0;
    double f = 0;
    int64_t i;
    if (base < 2 || base > 36)
        jj_fail(j, "int: base is a number from 2 to 36");
    if (jj_whole(defined(j, v)))
        return jj_int(jj_i(v));
    if (v.kind == JJ_STR && parse_int(j, v.s, (int)base, &i))
        return jj_int(i);
    if (v.kind != JJ_FLOAT && (v.kind != JJ_STR || !parse_float(j, v.s, &f)))
        return otherwise;
    f = v.kind == JJ_FLOAT ? v.f : f;
    if (!isfinite(f))
        return otherwise;
    if (fabs(f) >= 9.2e18)
        jj_fail(j, "a number is beyond 64 bits");
    return jj_int((int64_t)f);
}
static V f_float(struct jinja *j, V v, const V *p, A a)
{
    double f;
    if (jj_number(defined(j, v)))
        return jj_float(jj_f(v));
    if (v.kind == JJ_STR && parse_float(j, v.s, &f))
        return jj_float(f);
    return p[0].kind == JJ_MISSING ? jj_float(0) : p[0];
}
static V f_abs(struct jinja *j, V v, const V *p, A a)
{
    if (!jj_number(defined(j, v)))
        jj_fail(j, "abs of a %s", jj_type(v));
    if (v.kind == JJ_FLOAT)
        return jj_float(fabs(v.f));
    if (jj_i(v) == INT64_MIN)
        jj_fail(j, "a result is beyond 64 bits");
    return jj_int(llabs(jj_i(v)));
}
static V f_round(struct jinja *j, V v, const V *p, A a)
{
    const int64_t digits = p[0].kind == JJ_MISSING ? 0 : jj_whole(p[0]) ? jj_i(p[0]) : 99;
    const struct jj_str *how = p[1].kind == JJ_STR ? p[1].s : NULL;
    char out[400];
    if (!jj_number(defined(j, v)) || digits < 0 || digits > 30 ||
        (how && !jj_is(how, "common") && !jj_is(how, "ceil") && !jj_is(how, "floor")))
        jj_fail(j, "round: a number, digits from 0 to 30, and common, ceil or floor are needed");
    if (how && !jj_is(how, "common")) {
        const double scale = pow(10, (double)digits), x = jj_f(v) * scale;
        return jj_float((jj_is(how, "ceil") ? ceil(x) : floor(x)) / scale);
    }
    if (jj_whole(v))
        return jj_int(jj_i(v));
    if (!isfinite(v.f))
        return v;
    snprintf(out, sizeof out, "%.*f", (int)digits, v.f);
    return jj_float(strtod(out, NULL));
}

/* ---- lists ---- */

static V f_length(struct jinja *j, V v, const V *p, A a) { return jj_int((int64_t)jj_length(j, v)); }
static V f_list(struct jinja *j, V v, const V *p, A a) { return jj_to_list(j, v); }
static V f_default(struct jinja *j, V v, const V *p, A a)
{
    return v.kind == JJ_UNDEFINED || (flag(p[1]) && !jj_truth(v))
               ? p[0].kind == JJ_MISSING ? jj_str(j, "", 0) : p[0]
               : v;
}
static V f_first(struct jinja *j, V v, const V *p, A a)
{
    V x;
    return jj_next(j, jj_walk(j, v), &x) ? x : jj_undefined(NULL);
}
static V f_last(struct jinja *j, V v, const V *p, A a)
{
    if (v.kind == JJ_ITER)
        jj_fail(j, "last: an iterator has no last element before its end");
    const V list = jj_to_list(j, v);
    return list.list->n ? list.list->v[list.list->n - 1] : jj_undefined(NULL);
}

static V iterator(struct jinja *j, V list)
{
    return (V){ .kind = JJ_ITER, .iter = jj_walk(j, list) };
}
static V f_reverse(struct jinja *j, V v, const V *p, A a)
{
    const V list = jj_to_list(j, v);
    V out = jj_list(j, JJ_LIST);
    for (size_t i = list.list->n; i-- > 0;)
        jj_append(j, out, list.list->v[i]);
    if (v.kind != JJ_STR)
        return iterator(j, out);
    return f_join(j, out, (V[JJ_PARAMS]){{0}}, a);
}
static V f_items(struct jinja *j, V v, const V *p, A a)
{
    const struct jj_args none = {0};
    if (v.kind == JJ_UNDEFINED)
        return iterator(j, jj_list(j, JJ_LIST));
    if (v.kind != JJ_DICT)
        jj_fail(j, "items: a dict is needed, found a %s", jj_type(v));
    return iterator(j, method(j, v, "items", &none));
}

/* The value by which sort, unique, min and max compare: texts without case unless asked. */
static V sort_key(struct jinja *j, V v, V by, bool exact)
{
    v = attribute(j, v, by, (V){0});
    return v.kind == JJ_STR && !exact ? jj_case(j, v.s, 'l') : v;
}

static V sorted(struct jinja *j, V list, const V *keys, bool reverse)
{
    const size_t n = list.list->n, *order = jj_order(j, keys, n, reverse);
    V out = jj_list(j, JJ_LIST);
    for (size_t i = 0; i < n; i++)
        jj_append(j, out, list.list->v[order[i]]);
    return out;
}

/* A key is the list of the attributes' values, as in jinja2: two undefined values are equal there. */
static V f_sort(struct jinja *j, V v, const V *p, A a)
{
    const V list = jj_to_list(j, v);
    V *keys = jj_alloc(j, list.list->n * sizeof *keys + 8), names = jj_list(j, JJ_LIST);
    if (p[2].kind == JJ_STR)
        names = jj_split(j, p[2].s, jj_cstr(j, ","));
    else
        jj_append(j, names, p[2]);
    for (size_t i = 0; i < list.list->n; i++) {
        keys[i] = jj_list(j, JJ_LIST);
        for (size_t k = 0; k < names.list->n; k++)
            jj_append(j, keys[i], sort_key(j, list.list->v[i], names.list->v[k], flag(p[1])));
    }
    return sorted(j, list, keys, flag(p[0]));
}

static V f_dictsort(struct jinja *j, V v, const V *p, A a)
{
    const struct jj_args none = {0};
    const bool by_value = p[1].kind == JJ_STR && jj_is(p[1].s, "value");
    if (v.kind != JJ_DICT ||
        (p[1].kind != JJ_MISSING && !by_value && !(p[1].kind == JJ_STR && jj_is(p[1].s, "key"))))
        jj_fail(j, "dictsort: a dict, and by 'key' or 'value' are needed");
    const V list = jj_to_list(j, method(j, v, "items", &none));
    V *keys = jj_alloc(j, list.list->n * sizeof *keys + 8);
    for (size_t i = 0; i < list.list->n; i++)
        keys[i] = sort_key(j, list.list->v[i].list->v[by_value], (V){0}, flag(p[0]));
    return sorted(j, list, keys, flag(p[2]));
}

static V f_unique(struct jinja *j, V v, const V *p, A a)
{
    V out = jj_list(j, JJ_LIST), seen = jj_dict(j, JJ_DICT), x;
    for (struct jj_iter *it = jj_walk(j, v); jj_next(j, it, &x);) {
        const V key = sort_key(j, x, p[1], flag(p[0]));
        if (!jj_get(j, seen.dict, key)) {
            jj_set(j, seen.dict, key, x);
            jj_append(j, out, x);
        }
    }
    return iterator(j, out);
}

static V extreme(struct jinja *j, V v, const V *p, int want)
{
    V best = jj_undefined(NULL), best_key = best, x;
    bool some = false;
    for (struct jj_iter *it = jj_walk(j, v); jj_next(j, it, &x); some = true) {
        const V key = sort_key(j, x, p[1], flag(p[0]));
        if (!some || jj_compare(j, defined(j, key), defined(j, best_key)) == want)
            best = x, best_key = key;
    }
    return best;
}
static V f_min(struct jinja *j, V v, const V *p, A a) { return extreme(j, v, p, -1); }
static V f_max(struct jinja *j, V v, const V *p, A a) { return extreme(j, v, p, 1); }

static V f_sum(struct jinja *j, V v, const V *p, A a)
{
    V total = p[1].kind == JJ_MISSING ? jj_int(0) : p[1], x;
    for (struct jj_iter *it = jj_walk(j, v); jj_next(j, it, &x);)
        total = jj_operation(j, '+', total, attribute(j, x, p[0], (V){0}));
    return total;
}

static V f_attr(struct jinja *j, V v, const V *p, A a)
{
    if (v.kind == JJ_UNDEFINED)
        defined(j, v);
    const V name = jj_to_str(j, p[0]);
    return v.kind == JJ_DICT || v.kind == JJ_LIST ? jj_undefined(name.s) : jj_attr(j, v, name.s);
}

/* ---- map, select, reject: iterators that apply a filter or a test to each element ---- */

struct applied {
    const struct jj_builtin *builtin;
    struct jj_args args;
    V attribute, missing;
    bool wanted;                                        /* select: the test's result */
};

static bool next_mapped(struct jinja *j, struct jj_iter *it, V *v)
{
    const struct applied *m = it->what;
    if (!jj_next(j, it->from, v))
        return false;
    *v = m->builtin ? jj_call_builtin(j, m->builtin, *v, &m->args)
                    : attribute(j, *v, m->attribute, m->missing);
    return true;
}
static bool next_selected(struct jinja *j, struct jj_iter *it, V *v)
{
    const struct applied *m = it->what;
    while (jj_next(j, it->from, v)) {
        const V x = attribute(j, *v, m->attribute, (V){0});
        if (jj_truth(m->builtin ? jj_call_builtin(j, m->builtin, x, &m->args) : x) == m->wanted)
            return true;
    }
    return false;
}

static V lazily(struct jinja *j, V over, struct applied m,
                bool (*next)(struct jinja *, struct jj_iter *, V *))
{
    struct applied *kept = jj_alloc(j, sizeof *kept);
    struct jj_iter *it = jj_alloc(j, sizeof *it);
    *kept = m;
    if (!jj_truth(over))                                /* None, False and 0 are empty here, as in jinja2 */
        over = jj_list(j, JJ_LIST);
    *it = (struct jj_iter){ .from = jj_walk(j, over), .next = next, .what = kept };
    return (V){ .kind = JJ_ITER, .iter = it };
}

static V f_map(struct jinja *j, V v, const V *p, A a)
{
    struct applied m = { .missing.kind = JJ_MISSING };
    if (a->n == 0) {
        for (size_t i = 0; i < a->n_kw; i++)
            if (jj_is(a->kw[i].name, "attribute"))
                m.attribute = a->kw[i].value;
            else if (jj_is(a->kw[i].name, "default"))
                m.missing = a->kw[i].value;
            else
                jj_fail(j, "map has no argument '%.*s'", (int)MIN(a->kw[i].name->n, 60u), a->kw[i].name->s);
        if (!jj_given(m.attribute))
            jj_fail(j, "map needs a filter or an attribute");
    } else {
        m.builtin = a->v[0].kind == JJ_STR ? jj_filter(a->v[0].s) : NULL;
        if (!m.builtin)
            jj_fail(j, "map: no such filter");
        m.args = (struct jj_args){ a->v + 1, a->n - 1, a->kw, a->n_kw };
    }
    return lazily(j, v, m, next_mapped);
}

static V chosen(struct jinja *j, V v, A a, bool by_attribute, bool wanted)
{
    struct applied m = { .wanted = wanted };
    const size_t skip = by_attribute;
    if (a->n < skip)
        jj_fail(j, "selectattr needs an attribute");
    if (by_attribute)
        m.attribute = a->v[0];
    if (a->n > skip) {
        m.builtin = a->v[skip].kind == JJ_STR ? jj_test(a->v[skip].s) : NULL;
        if (!m.builtin)
            jj_fail(j, "select: no such test");
        m.args = (struct jj_args){ a->v + skip + 1, a->n - skip - 1, a->kw, a->n_kw };
    }
    return lazily(j, v, m, next_selected);
}
static V f_select(struct jinja *j, V v, const V *p, A a) { return chosen(j, v, a, false, true); }
static V f_reject(struct jinja *j, V v, const V *p, A a) { return chosen(j, v, a, false, false); }
static V f_selectattr(struct jinja *j, V v, const V *p, A a) { return chosen(j, v, a, true, true); }
static V f_rejectattr(struct jinja *j, V v, const V *p, A a) { return chosen(j, v, a, true, false); }

const struct jj_builtin jj_filters[] = {
    { "abs", "", 0, f_abs }, { "attr", "name", 1, f_attr }, { "capitalize", "", 0, f_capitalize },
    { "count", "", 0, f_length }, { "d", "default_value boolean", 0, f_default },
    { "default", "default_value boolean", 0, f_default },
    { "dictsort", "case_sensitive by reverse", 0, f_dictsort },
    { "first", "", 0, f_first }, { "float", "default", 0, f_float }, { "format", "*", 0, f_format },
    { "from_json", "", 0, f_from_json }, { "indent", "width first blank", 0, f_indent },
    { "int", "default base", 0, f_int }, { "items", "", 0, f_items }, { "join", "d attribute", 0, f_join },
    { "last", "", 0, f_last }, { "length", "", 0, f_length }, { "list", "", 0, f_list },
    { "lower", "", 0, f_lower },
    { "map", "*", 0, f_map }, { "max", "case_sensitive attribute", 0, f_max },
    { "min", "case_sensitive attribute", 0, f_min }, { "reject", "*", 0, f_reject },
    { "rejectattr", "*", 0, f_rejectattr }, { "replace", "old new count", 2, f_replace },
    { "reverse", "", 0, f_reverse }, { "round", "precision method", 0, f_round }, { "safe", "", 0, f_safe },
    { "select", "*", 0, f_select }, { "selectattr", "*", 0, f_selectattr },
    { "sort", "reverse case_sensitive attribute", 0, f_sort }, { "string", "", 0, f_string },
    { "sum", "attribute start", 0, f_sum }, { "title", "", 0, f_title },
    { "tojson", "ensure_ascii indent separators sort_keys", 0, f_tojson }, { "trim", "chars", 0, f_trim },
    { "unique", "case_sensitive attribute", 0, f_unique }, { "upper", "", 0, f_upper },
    { "wordcount", "", 0, f_wordcount }, { NULL },
};

/* ---- tests ---- */

static V t_defined(struct jinja *j, V v, const V *p, A a) { return jj_bool(v.kind != JJ_UNDEFINED); }
static V t_undefined(struct jinja *j, V v, const V *p, A a) { return jj_bool(v.kind == JJ_UNDEFINED); }
static V t_none(struct jinja *j, V v, const V *p, A a) { return jj_bool(v.kind == JJ_NONE); }
static V t_string(struct jinja *j, V v, const V *p, A a) { return jj_bool(v.kind == JJ_STR); }
static V t_mapping(struct jinja *j, V v, const V *p, A a) { return jj_bool(v.kind == JJ_DICT); }
static V t_iterable(struct jinja *j, V v, const V *p, A a) { return jj_bool(jj_iterable(v)); }
static V t_sequence(struct jinja *j, V v, const V *p, A a)
{
    return jj_bool(jj_has_length(v) && v.kind != JJ_VIEW);
}
static V t_boolean(struct jinja *j, V v, const V *p, A a) { return jj_bool(v.kind == JJ_BOOL); }
static V t_number(struct jinja *j, V v, const V *p, A a) { return jj_bool(jj_number(v) || v.kind == JJ_BIG); }
static V t_integer(struct jinja *j, V v, const V *p, A a) { return jj_bool(!strcmp(jj_type(v), "int")); }
static V t_float(struct jinja *j, V v, const V *p, A a) { return jj_bool(v.kind == JJ_FLOAT); }
static V t_true(struct jinja *j, V v, const V *p, A a) { return jj_bool(v.kind == JJ_BOOL && v.b); }
static V t_false(struct jinja *j, V v, const V *p, A a) { return jj_bool(v.kind == JJ_BOOL && !v.b); }
static V t_callable(struct jinja *j, V v, const V *p, A a)
{
    return jj_bool(v.kind == JJ_CALL || v.kind == JJ_UNDEFINED || v.kind == JJ_LOOP);
}
static V t_in(struct jinja *j, V v, const V *p, A a) { return jj_bool(jj_contains(j, p[0], v)); }
static V t_eq(struct jinja *j, V v, const V *p, A a) { return jj_bool(jj_equal(j, v, p[0])); }
static V t_ne(struct jinja *j, V v, const V *p, A a) { return jj_bool(!jj_equal(j, v, p[0])); }
static int order(struct jinja *j, V v, V w) { return jj_compare(j, defined(j, v), defined(j, w)); }
static V t_lt(struct jinja *j, V v, const V *p, A a) { return jj_bool(order(j, v, p[0]) == -1); }
static V t_gt(struct jinja *j, V v, const V *p, A a) { return jj_bool(order(j, v, p[0]) == 1); }
static V t_le(struct jinja *j, V v, const V *p, A a)
{
    const int o = order(j, v, p[0]);
    return jj_bool(o == -1 || o == 0);
}
static V t_ge(struct jinja *j, V v, const V *p, A a)
{
    const int o = order(j, v, p[0]);
    return jj_bool(o == 1 || o == 0);
}
/* Whether v % num equals `want`. */
static V remainder_is(struct jinja *j, V v, V num, int64_t want)
{
    return jj_bool(jj_equal(j, jj_operation(j, '%', v, num), jj_int(want)));
}
static V t_divisible(struct jinja *j, V v, const V *p, A a) { return remainder_is(j, v, p[0], 0); }
static V t_even(struct jinja *j, V v, const V *p, A a) { return remainder_is(j, v, jj_int(2), 0); }
static V t_odd(struct jinja *j, V v, const V *p, A a) { return remainder_is(j, v, jj_int(2), 1); }
static V t_lower(struct jinja *j, V v, const V *p, A a) { return method(j, jj_to_str(j, v), "islower", a); }
static V t_upper(struct jinja *j, V v, const V *p, A a) { return method(j, jj_to_str(j, v), "isupper", a); }
static V t_sameas(struct jinja *j, V v, const V *p, A a)
{
    if (jj_number(v) || v.kind == JJ_STR)
        return v.kind == JJ_BOOL ? jj_bool(p[0].kind == JJ_BOOL && p[0].b == v.b)
                                 : jj_bool(v.kind == p[0].kind && jj_equal(j, v, p[0]));
    return jj_bool(v.kind == p[0].kind && (v.kind <= JJ_NONE || v.call == p[0].call));
}
static V t_filter(struct jinja *j, V v, const V *p, A a)
{
    if (v.kind == JJ_LIST || v.kind == JJ_DICT)
        jj_fail(j, "a %s is no name of a filter", jj_type(v));
    return jj_bool(v.kind == JJ_STR && jj_filter(v.s));
}

const struct jj_builtin jj_tests[] = {
    { "defined", "", 0, t_defined }, { "undefined", "", 0, t_undefined }, { "none", "", 0, t_none },
    { "string", "", 0, t_string }, { "mapping", "", 0, t_mapping }, { "iterable", "", 0, t_iterable },
    { "sequence", "", 0, t_sequence }, { "boolean", "", 0, t_boolean }, { "number", "", 0, t_number },
    { "integer", "", 0, t_integer }, { "float", "", 0, t_float }, { "true", "", 0, t_true },
    { "false", "", 0, t_false }, { "callable", "", 0, t_callable }, { "in", "seq", 1, t_in },
    { "eq", "value", 1, t_eq }, { "equalto", "value", 1, t_eq }, { "==", "value", 1, t_eq },
    { "ne", "value", 1, t_ne }, { "!=", "value", 1, t_ne }, { "lt", "value", 1, t_lt },
    { "lessthan", "value", 1, t_lt }, { "<", "value", 1, t_lt }, { "gt", "value", 1, t_gt },
    { "greaterthan", "value", 1, t_gt }, { ">", "value", 1, t_gt }, { "le", "value", 1, t_le },
    { "<=", "value", 1, t_le }, { "ge", "value", 1, t_ge }, { ">=", "value", 1, t_ge },
    { "divisibleby", "num", 1, t_divisible }, { "even", "", 0, t_even }, { "odd", "", 0, t_odd },
    { "lower", "", 0, t_lower }, { "upper", "", 0, t_upper }, { "sameas", "other", 1, t_sameas },
    { "filter", "", 0, t_filter }, { NULL },
};

const struct jj_builtin *jj_filter(const struct jj_str *name) { return jj_lookup(jj_filters, name); }
const struct jj_builtin *jj_test(const struct jj_str *name) { return jj_lookup(jj_tests, name); }
