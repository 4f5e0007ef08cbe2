/* Filters and tests. Each is a row of a table at the end of its half: name, parameters, how many must be
 * given. */
#include "src/text/jinja/jinja_impl.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* The functions of a table have the same parameters. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* v; an error where a filter computes with an undefined value. */
static V defined(struct jinja *j, V v) { return jj_need_defined(j, v, "'value' is undefined"); }

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
            const bool digits = n > 0 && n < 10 && strspn(part.s->s, "0123456789") >= n;
            v = jj_item(j, v, digits ? jj_int(strtol(part.s->s, NULL, 10)) : part);
        }
    }
    return v.kind == JJ_UNDEFINED && missing.kind != JJ_MISSING ? missing : v;
}

/* ---- texts ---- */

static V string(struct jinja *j, In x) { return x->self; }
static V safe(struct jinja *j, In x)
{
    const struct jj_str *s = x->self.s;
    return JJ_BOX(j, JJ_STR, struct jj_str, s->s, s->n, s->chars, true);
}
static V replace(struct jinja *j, In x)
{
    const V count = jj_given(x->p[2]) ? x->p[2] : jj_int(-1);
    if (!jj_whole(count))
        jj_fail(j, "replace: count is a %s", jj_type(count));
    return jj_replace(j, jj_to_str(j, x->self).s, jj_to_str(j, x->p[0]).s, jj_to_str(j, x->p[1]).s,
                      jj_i(count));
}

static V indent(struct jinja *j, In x)
{
    const V width = jj_or(x->p[0], jj_int(4));
    struct jj_text t = {0};
    if (x->self.kind != JJ_STR || (width.kind != JJ_STR && !jj_whole(width)))
        jj_fail(j, "indent: a text, and a width or a text are needed");
    const V pad = width.kind == JJ_STR
                      ? width
                      : jj_operation(j, '*', jj_cstr(j, " "), jj_int(MIN(jj_i(width), JJ_OUTPUT)));
    const V all = jj_operation(j, '+', x->self, jj_cstr(j, "\n"));
    const V lines = jj_split_lines(j, &(struct jj_in){ .self = all });
    for (size_t i = 0; i < lines.list->n; i++) {
        const struct jj_str *line = lines.list->v[i].s;
        if (i)
            jj_puts(j, &t, "\n");
        if (i ? line->n || jj_truth(x->p[2]) : jj_truth(x->p[1]))
            jj_put_str(j, &t, pad);
        jj_put(j, &t, line->s, line->n);
    }
    return jj_text(j, &t);
}

/* The texts of the elements, or of their attribute, with the separator between them. */
static V join(struct jinja *j, In x)
{
    struct jj_text t = {0};
    V v;
    bool more = false;
    for (struct jj_iter *it = jj_walk(j, x->self); jj_next(j, it, &v); more = true) {
        if (more && x->p[0].kind != JJ_MISSING)
            jj_put_str(j, &t, x->p[0]);
        jj_put_str(j, &t, attribute(j, v, x->p[1], (V){0}));
    }
    return jj_text(j, &t);
}

static V wordcount(struct jinja *j, In x)
{
    const struct jj_str *s = x->self.s;
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

static V format(struct jinja *j, In x)
{
    if (x->a->named.n)
        jj_fail(j, "format: names are not supported");
    return jj_operation(j, '%', jj_to_str(j, x->self), jj_tuple(j, x->a->list.v, x->a->list.n));
}

/* ---- numbers ---- */

/* Python's int(text, base) and float(text): white space around, single underscores between digits. */
static bool number_text(const struct jj_str *text, char out[100])
{
    const char *s = text->s + unicode_lstrip(text->s, text->n);
    const size_t length = unicode_rstrip(s, (size_t)(text->s + text->n - s));
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        const bool under = s[i] == '_';
        if (n == 99 || s[i] == 0 || (under && (i == 0 || i + 1 == length || !jj_is_digit(s[i - 1]) ||
                                               !jj_is_digit(s[i + 1]))))
            return false;
        if (!under)
            out[n++] = s[i];
    }
    out[n] = 0;
    return n > 0 && !unicode_is_space((unsigned char)out[0]);
}
static bool parse_float(const struct jj_str *s, double *f)
{
    char number[100], *end;
    if (!number_text(s, number) || strpbrk(number, "xXpP("))
        return false;
    *f = strtod(number, &end);
    return *end == 0;
}
static bool parse_int(struct jinja *j, const struct jj_str *s, int base, int64_t *i)
{
    char number[100], *end;
    if (!number_text(s, number))
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

static V to_int(struct jinja *j, In x)
{
    const V v = x->self, otherwise = jj_or(x->p[0], jj_int(0));
    const int64_t base = x->p[1].kind == JJ_MISSING ? 10 : jj_whole(x->p[1]) ? jj_i(x->p[1]) : 0;
    double f = v.kind == JJ_FLOAT ? v.f : NAN;
    int64_t i;
    if (base < 2 || base > 36)
        jj_fail(j, "int: base is a number from 2 to 36");
    if (jj_whole(defined(j, v)))
        return jj_int(jj_i(v));
    if (v.kind == JJ_STR && parse_int(j, v.s, (int)base, &i))
        return jj_int(i);
    if ((v.kind == JJ_STR && !parse_float(v.s, &f)) || !isfinite(f))
        return otherwise;
    if (fabs(f) >= 9.2e18)
        jj_fail(j, "a number is beyond 64 bits");
    return jj_int((int64_t)f);
}
static V to_float(struct jinja *j, In x)
{
    double f;
    if (jj_number(x->self))
        return jj_float(jj_f(x->self));
    if (x->self.kind == JJ_STR && parse_float(x->self.s, &f))
        return jj_float(f);
    return jj_or(x->p[0], jj_float(0));
}
static V absolute(struct jinja *j, In x)
{
    const V v = x->self;
    if (!jj_number(v))
        jj_fail(j, "abs of a %s", jj_type(v));
    if (v.kind == JJ_FLOAT)
        return jj_float(fabs(v.f));
    return jj_i(v) < 0 ? jj_operation(j, '-', jj_int(0), v) : jj_int(jj_i(v));
}
static V rounded(struct jinja *j, In x)
{
    const V v = x->self;
    const int64_t digits = x->p[0].kind == JJ_MISSING ? 0 : jj_whole(x->p[0]) ? jj_i(x->p[0]) : 99;
    const bool up = jj_says(x->p[1], "ceil"), down = jj_says(x->p[1], "floor");
    char out[400];
    if (!jj_number(v) || digits < 0 || digits > 30 ||
        (x->p[1].kind == JJ_STR && !up && !down && !jj_says(x->p[1], "common")))
        jj_fail(j, "round: a number, digits from 0 to 30, and common, ceil or floor are needed");
    if (up || down) {
        const double scale = pow(10, (double)digits), scaled = jj_f(v) * scale;
        return jj_float((up ? ceil(scaled) : floor(scaled)) / scale);
    }
    if (jj_whole(v))
        return jj_int(jj_i(v));
    if (!isfinite(v.f))
        return v;
    snprintf(out, sizeof out, "%.*f", (int)digits, v.f);
    return jj_float(strtod(out, NULL));
}

/* ---- lists ---- */

static V length(struct jinja *j, In x) { return jj_int((int64_t)jj_length(j, x->self)); }
static V otherwise(struct jinja *j, In x)
{
    if (x->self.kind != JJ_UNDEFINED && (jj_truth(x->self) || !jj_truth(x->p[1])))
        return x->self;
    return jj_or(x->p[0], jj_str(j, "", 0));
}
static V first(struct jinja *j, In x)
{
    V v;
    return jj_next(j, jj_walk(j, x->self), &v) ? v : jj_undefined(NULL);
}
static V last(struct jinja *j, In x)
{
    if (x->self.kind == JJ_ITER)
        jj_fail(j, "last: an iterator has no last element before its end");
    const V list = jj_to_list(j, x->self);
    return list.list->n ? list.list->v[list.list->n - 1] : jj_undefined(NULL);
}

static V iterator(struct jinja *j, V list) { return (V){ .kind = JJ_ITER, .iter = jj_walk(j, list) }; }
static V reverse(struct jinja *j, In x)
{
    const V list = jj_to_list(j, x->self);
    jj_reverse(list.list);
    return x->self.kind == JJ_STR ? jj_join(j, list, (V){0}) : iterator(j, list);
}
static V items_of(struct jinja *j, V dict)
{
    return jj_view(j, &(struct jj_in){ .self = dict, .how = JJ_ITEMS });
}
static V items(struct jinja *j, In x)
{
    if (x->self.kind == JJ_UNDEFINED)
        return iterator(j, jj_list(j, JJ_LIST));
    if (x->self.kind != JJ_DICT)
        jj_fail(j, "items: a dict is needed, found a %s", jj_type(x->self));
    return iterator(j, items_of(j, x->self));
}

/* The value by which sort, unique, min and max compare: texts without case unless asked. */
static V sort_key(struct jinja *j, V v, V by, bool exact)
{
    v = attribute(j, v, by, (V){0});
    return v.kind == JJ_STR && !exact ? jj_change_case(j, &(struct jj_in){ .self = v, .how = 'l' }) : v;
}

/* `by`: the attributes, for a key that is the list of their values, as in jinja2, where two undefined values
 * are equal; or one attribute, whose value is the key. */
static V sorted(struct jinja *j, V list, V by, bool exact, bool reverse)
{
    const size_t n = list.list->n;
    V *keys = jj_alloc(j, n * sizeof *keys);
    for (size_t i = 0; i < n; i++) {
        keys[i] = by.kind == JJ_INT ? sort_key(j, list.list->v[i], by, exact) : jj_list(j, JJ_LIST);
        for (size_t k = 0; by.kind != JJ_INT && k < by.list->n; k++)
            jj_append(j, keys[i].list, sort_key(j, list.list->v[i], by.list->v[k], exact));
    }
    if (n)
        jj_sort(j, list.list->v, sizeof(V), keys, n, reverse);
    return list;
}

static V sort(struct jinja *j, In x)
{
    const V list = jj_to_list(j, x->self), by = x->p[2];
    const V names = by.kind == JJ_STR ? jj_split(j, &(struct jj_in){ .self = by, .p = { jj_cstr(j, ",") } })
                                      : jj_tuple(j, &by, 1);
    return sorted(j, list, names, jj_truth(x->p[1]), jj_truth(x->p[0]));
}

static V dictsort(struct jinja *j, In x)
{
    const V by = jj_or(x->p[1], jj_cstr(j, "key"));
    const bool by_value = jj_says(by, "value");
    if (x->self.kind != JJ_DICT || (!by_value && !jj_says(by, "key")))
        jj_fail(j, "dictsort: a dict, and by 'key' or 'value' are needed");
    const V list = jj_to_list(j, items_of(j, x->self));
    return sorted(j, list, jj_int(by_value), jj_truth(x->p[0]), jj_truth(x->p[2]));
}

static V unique(struct jinja *j, In x)
{
    V out = jj_list(j, JJ_LIST), seen = jj_dict(j, JJ_DICT), v;
    for (struct jj_iter *it = jj_walk(j, x->self); jj_next(j, it, &v);) {
        const V key = sort_key(j, v, x->p[1], jj_truth(x->p[0]));
        if (jj_set(j, seen.dict, key, v))
            jj_append(j, out.list, v);
    }
    return iterator(j, out);
}

/* min and max; how: the result of a comparison with the best one so far */
static V extreme(struct jinja *j, In x)
{
    V best = jj_undefined(NULL), best_key = {0}, v;
    for (struct jj_iter *it = jj_walk(j, x->self); jj_next(j, it, &v);) {
        const V key = sort_key(j, v, x->p[1], jj_truth(x->p[0]));
        if (best_key.kind == JJ_MISSING || jj_compare(j, defined(j, key), defined(j, best_key)) == x->how)
            best = v, best_key = key;
    }
    return best;
}

static V sum(struct jinja *j, In x)
{
    V total = jj_or(x->p[1], jj_int(0)), v;
    for (struct jj_iter *it = jj_walk(j, x->self); jj_next(j, it, &v);)
        total = jj_operation(j, '+', total, attribute(j, v, x->p[0], (V){0}));
    return total;
}

static V attr(struct jinja *j, In x)
{
    const V name = jj_to_str(j, x->p[0]);
    return x->self.kind == JJ_DICT || x->self.kind == JJ_LIST ? jj_undefined(name.s)
                                                              : jj_attr(j, x->self, name);
}

/* ---- map, select, reject: iterators that apply a filter or a test to each element ---- */

enum { REJECTED, SELECTED, BY_ATTRIBUTE, MAPPED = 4 };      /* values of `how` */
struct applied {
    const struct jj_builtin *builtin;
    struct jj_args args;
    V attribute, missing;
    int how;
};

static bool next_applied(struct jinja *j, struct jj_iter *it, V *v)
{
    const struct applied *m = it->what;
    while (jj_next(j, it->from, v)) {
        V x = attribute(j, *v, m->attribute, m->missing);
        if (m->builtin)
            x = jj_call_builtin(j, m->builtin, x, &m->args);
        if (m->how == MAPPED)
            *v = x;
        if (m->how == MAPPED || jj_truth(x) == (m->how & SELECTED))
            return true;
    }
    return false;
}

static V apply(struct jinja *j, In x)
{
    const struct jj_list *l = &x->a->list;
    const struct jj_dict *named = &x->a->named;
    const bool maps = x->how == MAPPED;
    const size_t skip = x->how & BY_ATTRIBUTE ? 1 : 0;
    struct applied m = { .how = x->how };
    if (l->n < skip)
        jj_fail(j, "selectattr needs an attribute");
    if (skip)
        m.attribute = l->v[0];
    if (l->n > skip) {
        m.builtin = l->v[skip].kind == JJ_STR ? jj_lookup(maps ? jj_filters : jj_tests, l->v[skip].s) : NULL;
        if (!m.builtin)
            jj_fail(j, maps ? "map: no such filter" : "select: no such test");
        m.args = (struct jj_args){ { l->v + skip + 1, l->n - skip - 1 }, *named };
    }
    for (size_t i = 0; maps && !m.builtin && i < named->n; i++)
        if (jj_is(named->v[i].key.s, "attribute"))
            m.attribute = named->v[i].value;
        else if (jj_is(named->v[i].key.s, "default"))
            m.missing = named->v[i].value;
        else
            jj_fail(j, "map has no argument '%.*s'", JJ_SHOWN(named->v[i].key.s));
    if (maps && !m.builtin && !jj_given(m.attribute))
        jj_fail(j, "map needs a filter or an attribute");
    /* None, False and 0 are empty here, as in jinja2. */
    struct jj_iter *over = jj_walk(j, jj_truth(x->self) ? x->self : jj_list(j, JJ_LIST));
    return jj_lazily(j, over, next_applied, &m, sizeof m);
}

const struct jj_builtin jj_filters[] = {
    { "abs", "", 0, absolute, 0, DEFINED }, { "attr", "name", 1, attr, 0, DEFINED },
    { "capitalize", "", 0, jj_change_case, 'c', TEXT }, { "count", "", 0, length },
    { "d", "default_value boolean", 0, otherwise }, { "default", "default_value boolean", 0, otherwise },
    { "dictsort", "case_sensitive by reverse", 0, dictsort }, { "first", "", 0, first },
    { "float", "default", 0, to_float, 0, DEFINED }, { "format", "*", 0, format },
    { "from_json", "", 0, jj_parse_json }, { "indent", "width first blank", 0, indent, 0, DEFINED },
    { "int", "default base", 0, to_int }, { "items", "", 0, items }, { "join", "d attribute", 0, join },
    { "last", "", 0, last }, { "length", "", 0, length }, { "list", "", 0, jj_copy },
    { "lower", "", 0, jj_change_case, 'l', TEXT }, { "map", "*", 0, apply, MAPPED },
    { "max", "case_sensitive attribute", 0, extreme, 1 },
    { "min", "case_sensitive attribute", 0, extreme, -1 }, { "reject", "*", 0, apply, REJECTED },
    { "rejectattr", "*", 0, apply, REJECTED | BY_ATTRIBUTE },
    { "replace", "old new count", 2, replace }, { "reverse", "", 0, reverse },
    { "round", "precision method", 0, rounded, 0, DEFINED }, { "safe", "", 0, safe, 0, TEXT },
    { "select", "*", 0, apply, SELECTED }, { "selectattr", "*", 0, apply, SELECTED | BY_ATTRIBUTE },
    { "sort", "reverse case_sensitive attribute", 0, sort }, { "string", "", 0, string, 0, TEXT },
    { "sum", "attribute start", 0, sum }, { "title", "", 0, jj_change_case, 'w', TEXT },
    { "tojson", "ensure_ascii indent separators sort_keys", 0, jj_to_json },
    { "trim", "chars", 0, jj_strip, LEFT | RIGHT, TEXT },
    { "unique", "case_sensitive attribute", 0, unique }, { "upper", "", 0, jj_change_case, 'u', TEXT },
    { "wordcount", "", 0, wordcount, 0, TEXT }, { NULL },
};

/* ---- tests ---- */

/* how: the kinds that pass */
static V is_kind(struct jinja *j, In x) { return jj_bool(x->how >> x->self.kind & 1); }
static V is_bool(struct jinja *j, In x) { return jj_bool(x->self.kind == JJ_BOOL && x->self.b == x->how); }
static V is_in(struct jinja *j, In x) { return jj_bool(jj_contains(j, x->p[0], x->self)); }
static V is_equal(struct jinja *j, In x) { return jj_bool(jj_equal(j, x->self, x->p[0]) == x->how); }

/* how: the results of a comparison that pass, as bits; nothing passes for a NaN */
enum { LESS = 1, EQUAL = 2, GREATER = 4 };
static V is_ordered(struct jinja *j, In x)
{
    return jj_bool(x->how >> (jj_compare(j, defined(j, x->self), defined(j, x->p[0])) + 1) & 1);
}
/* divisibleby, and even and odd for 2; how: the remainder */
static V is_remainder(struct jinja *j, In x)
{
    return jj_bool(jj_equal(j, jj_operation(j, '%', x->self, jj_or(x->p[0], jj_int(2))), jj_int(x->how)));
}
static V is_same(struct jinja *j, In x)
{
    const V v = x->self, other = x->p[0];
    if (v.kind != other.kind)
        return jj_bool(false);
    return jj_bool(jj_number(v) || v.kind == JJ_STR ? jj_equal(j, v, other)
                                                    : v.kind <= JJ_NONE || v.call == other.call);
}
static V is_filter(struct jinja *j, In x)
{
    if (x->self.kind == JJ_LIST || x->self.kind == JJ_DICT)
        jj_fail(j, "a %s is no name of a filter", jj_type(x->self));
    return jj_bool(x->self.kind == JJ_STR && jj_lookup(jj_filters, x->self.s));
}

const struct jj_builtin jj_tests[] = {
    { "defined", "", 0, is_kind, ~JJ_KIND(UNDEFINED) }, { "undefined", "", 0, is_kind, JJ_KIND(UNDEFINED) },
    { "none", "", 0, is_kind, JJ_KIND(NONE) }, { "string", "", 0, is_kind, JJ_KIND(STR) },
    { "mapping", "", 0, is_kind, JJ_KIND(DICT) }, { "iterable", "", 0, is_kind, JJ_ITERABLE },
    { "sequence", "", 0, is_kind, JJ_SIZED & ~JJ_KIND(VIEW) }, { "boolean", "", 0, is_kind, JJ_KIND(BOOL) },
    { "number", "", 0, is_kind, JJ_KIND(BOOL) | JJ_KIND(INT) | JJ_KIND(FLOAT) | JJ_KIND(BIG) },
    { "integer", "", 0, is_kind, JJ_KIND(INT) | JJ_KIND(BIG) }, { "float", "", 0, is_kind, JJ_KIND(FLOAT) },
    { "callable", "", 0, is_kind, JJ_KIND(CALL) | JJ_KIND(UNDEFINED) | JJ_KIND(LOOP) },
    { "true", "", 0, is_bool, true }, { "false", "", 0, is_bool, false }, { "in", "seq", 1, is_in },
    { "eq", "value", 1, is_equal, true }, { "equalto", "value", 1, is_equal, true },
    { "==", "value", 1, is_equal, true }, { "ne", "value", 1, is_equal, false },
    { "!=", "value", 1, is_equal, false }, { "lt", "value", 1, is_ordered, LESS },
    { "lessthan", "value", 1, is_ordered, LESS }, { "<", "value", 1, is_ordered, LESS },
    { "gt", "value", 1, is_ordered, GREATER }, { "greaterthan", "value", 1, is_ordered, GREATER },
    { ">", "value", 1, is_ordered, GREATER }, { "le", "value", 1, is_ordered, LESS | EQUAL },
    { "<=", "value", 1, is_ordered, LESS | EQUAL }, { "ge", "value", 1, is_ordered, GREATER | EQUAL },
    { ">=", "value", 1, is_ordered, GREATER | EQUAL }, { "divisibleby", "num", 1, is_remainder, 0 },
    { "even", "", 0, is_remainder, 0 }, { "odd", "", 0, is_remainder, 1 },
    { "lower", "", 0, jj_all_are, 'l', TEXT }, { "upper", "", 0, jj_all_are, 'u', TEXT },
    { "sameas", "other", 1, is_same }, { "filter", "", 0, is_filter }, { NULL },
};
