/* Attributes, items and slices of values; functions; methods of lists and dicts; loop.*; calls of builtins.
 * Start at jj_attr. */
#include "src/text/jinja/jinja_impl.h"

#include <math.h>

/* ---- methods of dicts and lists ---- */

static V get(struct jinja *j, In x)
{
    return jj_or(jj_get(j, x->self.dict, x->p[0]), jj_or(x->p[1], jj_none()));
}
V jj_view(struct jinja *j, In x)
{
    return JJ_BOX(j, JJ_VIEW, struct jj_view, x->self.dict, (enum jj_part)x->how);
}
V jj_copy(struct jinja *j, In x) { return jj_to_list(j, x->self); }
static V with_members(struct jinja *j, V to, const struct jj_dict *from)
{
    for (size_t i = 0; i < from->n; i++)
        jj_set(j, to.dict, from->v[i].key, from->v[i].value);
    return to;
}
static V copy_dict(struct jinja *j, In x) { return with_members(j, jj_dict(j, JJ_DICT), x->self.dict); }
static V pop_key(struct jinja *j, In x)
{
    const V value = jj_or(jj_remove(j, x->self.dict, x->p[0]), x->p[1]);
    if (value.kind == JJ_MISSING)
        jj_fail(j, "pop: no such key");
    return value;
}
static V append(struct jinja *j, In x) { return jj_append(j, x->self.list, x->p[0]), jj_none(); }
static V pop_element(struct jinja *j, In x)
{
    struct jj_list *l = x->self.list;
    int64_t i = jj_need_whole(j, x->p[0], -1, "pop");
    i += i < 0 ? (int64_t)l->n : 0;
    if (i < 0 || i >= (int64_t)l->n)
        jj_fail(j, "pop: the list has %zu elements", l->n);
    const V out = l->v[i];
    jj_step(j, l->n - (size_t)i);
    memmove(l->v + i, l->v + i + 1, (l->n - (size_t)i - 1) * sizeof *l->v);
    l->n--;
    return out;
}
static V index_of(struct jinja *j, In x)
{
    for (size_t i = 0; i < x->self.list->n; i++)
        if (jj_equal(j, x->self.list->v[i], x->p[0]))
            return jj_int((int64_t)i);
    jj_fail(j, "index: the value does not occur");
}
static V count(struct jinja *j, In x)
{
    int64_t n = 0;
    for (size_t i = 0; i < x->self.list->n; i++)
        n += jj_equal(j, x->self.list->v[i], x->p[0]);
    return jj_int(n);
}

/* A row without a function: Python has the method, and this interpreter has not. */
const struct jj_builtin jj_dict_methods[] = {
    { "clear" }, { "copy", "", 0, copy_dict }, { "fromkeys" }, { "get", "key default", 1, get },
    { "items", "", 0, jj_view, JJ_ITEMS }, { "keys", "", 0, jj_view, JJ_KEYS },
    { "pop", "key default", 1, pop_key }, { "popitem" }, { "setdefault" }, { "update" },
    { "values", "", 0, jj_view, JJ_VALUES }, { NULL },
};
const struct jj_builtin jj_list_methods[] = {
    { "append", "value", 1, append }, { "clear" }, { "copy", "", 0, jj_copy }, { "count", "value", 1, count },
    { "extend" }, { "index", "value", 1, index_of }, { "insert" }, { "pop", "index", 0, pop_element },
    { "remove" }, { "reverse" }, { "sort" }, { NULL },
};
const struct jj_builtin jj_tuple_methods[] = {
    { "count", "value", 1, count }, { "index", "value", 1, index_of }, { NULL },
};

/* ---- loop ---- */

static V loop_length(struct jinja *j, struct jj_loop *l)
{
    if (l->length.kind == JJ_MISSING && jj_has_length(l->over)) {
        l->length = jj_int((int64_t)jj_length(j, l->over));
    } else if (l->length.kind == JJ_MISSING) {
        const V rest = jj_to_list(j, (V){ .kind = JJ_ITER, .iter = l->it });
        l->it = jj_walk(j, rest);
        l->length = jj_int((int64_t)rest.list->n + l->index0 + 1 + (l->after.kind != JJ_MISSING));
    }
    return l->length;
}

V jj_peek(struct jinja *j, struct jj_loop *l)
{
    if (l->after.kind == JJ_MISSING && !jj_next(j, l->it, &l->after))
        l->after.kind = JJ_MISSING;
    return l->after;
}

static V cycle(struct jinja *j, In x)
{
    const struct jj_list *l = &x->a->list;
    if (!l->n || x->a->named.n)
        jj_fail(j, "loop.cycle needs values");
    return l->v[(size_t)x->self.loop->index0 % l->n];
}
static V changed(struct jinja *j, In x)
{
    V now = jj_tuple(j, x->a->list.v, x->a->list.n), *last = &x->self.loop->last_changed;
    const bool same = last->kind != JJ_MISSING && jj_equal(j, *last, now);
    *last = same ? *last : now;
    return jj_bool(!same);
}
const struct jj_builtin jj_loop_methods[] = {
    { "cycle", "*", 0, cycle }, { "changed", "*", 0, changed }, { NULL },
};

static V loop_attr(struct jinja *j, struct jj_loop *l, const struct jj_str *name)
{
    const bool from_0 = name->n && name->s[name->n - 1] == '0';
    if (jj_is(name, "index") || jj_is(name, "index0"))
        return jj_int(l->index0 + !from_0);
    if (jj_is(name, "depth") || jj_is(name, "depth0"))
        return jj_int(!from_0);
    if (jj_is(name, "revindex") || jj_is(name, "revindex0"))
        return jj_int(loop_length(j, l).i - l->index0 - from_0);
    if (jj_is(name, "first"))
        return jj_bool(l->index0 == 0);
    if (jj_is(name, "last"))
        return jj_bool(jj_peek(j, l).kind == JJ_MISSING);
    if (jj_is(name, "length"))
        return loop_length(j, l);
    if (jj_is(name, "previtem"))
        return l->before;
    return jj_is(name, "nextitem") ? jj_peek(j, l) : (V){0};
}

/* ---- attributes and items ---- */

const struct jj_builtin *jj_lookup(const struct jj_builtin *b, const struct jj_str *name)
{
    for (; b && b->name; b++)
        if (jj_is(name, b->name))
            return b;
    return NULL;
}

/* A Python attribute: a method, or one of loop. MISSING: there is none. */
static V own_attr(struct jinja *j, V v, const struct jj_str *name)
{
    static const struct jj_builtin *const methods[] = {
        [JJ_STR] = jj_str_methods,     [JJ_LIST] = jj_list_methods, [JJ_TUPLE] = jj_tuple_methods,
        [JJ_DICT] = jj_dict_methods,   [JJ_LOOP] = jj_loop_methods, [JJ_CALL] = NULL,
    };
    const struct jj_builtin *b = jj_lookup(methods[v.kind], name);
    if (v.kind == JJ_LOOP && !b)
        return loop_attr(j, v.loop, name);
    if (v.kind == JJ_SPACE)
        return jj_get(j, v.dict, (V){ .kind = JJ_STR, .s = name });
    if (name->n > 1 && name->s[0] == '_' && name->s[1] == '_')
        return jj_undefined(name);
    if (b && !b->f)
        jj_fail(j, "the method '%s' of a %s is not supported", b->name, jj_type(v));
    return b ? JJ_BOX(j, JJ_CALL, struct jj_call, .builtin = b, .self = v) : (V){0};
}

/* v[key] without attributes. MISSING: there is none. */
static V own_item(struct jinja *j, V v, V key)
{
    if (v.kind == JJ_DICT)
        return key.kind == JJ_LIST || key.kind == JJ_DICT ? (V){0} : jj_get(j, v.dict, key);
    if (!jj_whole(key) || !(JJ_SEQUENCE >> v.kind & 1))
        return (V){0};
    const int64_t n = (int64_t)jj_length(j, v), i = jj_i(key) + (jj_i(key) < 0 ? n : 0);
    if (i < 0 || i >= n)
        return (V){0};
    return v.kind == JJ_STR ? jj_slice(j, v.s, (size_t)i, (size_t)i + 1) : jj_element(v, (size_t)i);
}

static V member(struct jinja *j, V v, V key, bool attr_first)
{
    V out = {0};
    jj_need_defined(j, v, "the value is undefined");
    for (int k = 0; k < 2 && out.kind == JJ_MISSING; k++)
        if (attr_first == (k == 1))
            out = own_item(j, v, key);
        else if (key.kind == JJ_STR)
            out = own_attr(j, v, key.s);
    return out.kind != JJ_MISSING ? out : jj_undefined(key.kind == JJ_STR ? key.s : NULL);
}
V jj_attr(struct jinja *j, V v, V name) { return member(j, v, name, true); }
V jj_item(struct jinja *j, V v, V key) { return member(j, v, key, false); }

V jj_slice_of(struct jinja *j, V v, V from, V to, V step_value)
{
    jj_need_defined(j, v, "the value is undefined");
    if (!(JJ_SEQUENCE >> v.kind & 1))
        jj_fail(j, "a %s has no slices", jj_type(v));
    const int64_t n = (int64_t)jj_length(j, v),
                  step = jj_given(step_value) ? jj_need_whole(j, step_value, 1, "slice") : 1;
    if (step == 0)
        jj_fail(j, "a slice with step 0");
    const int64_t a = jj_bound(j, from, n, step < 0, step < 0 ? n - 1 : 0, "slice");
    const int64_t b = jj_bound(j, to, n, step < 0, step < 0 ? -1 : n, "slice");
    if (v.kind == JJ_STR && step == 1)
        return jj_slice(j, v.s, (size_t)a, (size_t)b);
    const uint64_t by = step > 0 ? (uint64_t)step : -(uint64_t)step;
    const int64_t span = step > 0 ? b - a : a - b;
    const size_t count = span > 0 ? ((uint64_t)span - 1) / by + 1 : 0;
    if (v.kind == JJ_RANGE_OF) {
        const struct jj_range *r = v.range;
        if (by > JJ_RANGE)
            jj_fail(j, "a slice with such a step is not supported");
        return JJ_BOX(j, JJ_RANGE_OF, struct jj_range, r->from + a * r->step, r->from + b * r->step,
                      r->step * step, count);
    }
    V list = jj_list(j, v.kind == JJ_STR ? JJ_LIST : v.kind);
    const V whole_text = v.kind == JJ_STR ? jj_to_list(j, v) : v;
    jj_step(j, count);
    for (size_t i = 0; i < count; i++)
        jj_append(j, list.list, whole_text.list->v[a + (int64_t)i * step]);
    return v.kind == JJ_STR ? jj_join(j, list, (V){0}) : list;
}

/* ---- functions ---- */

static V range(struct jinja *j, In x)
{
    const V *p = x->p;
    const bool one = p[1].kind == JJ_MISSING;
    const int64_t from = one ? 0 : jj_need_whole(j, p[0], 0, "range");
    const int64_t to = jj_need_whole(j, one ? p[0] : p[1], 0, "range");
    const int64_t step = jj_need_whole(j, p[2], 1, "range");
    if (step == 0)
        jj_fail(j, "range: the step is 0");
    const long double n = ceill(((long double)to - from) / step);
    if (n > JJ_RANGE)
        jj_fail(j, "a range has at most %d numbers", JJ_RANGE);
    return JJ_BOX(j, JJ_RANGE_OF, struct jj_range, from, to, step, n > 0 ? (size_t)n : 0);
}

/* dict and namespace; how: the kind */
static V make_dict(struct jinja *j, In x)
{
    const struct jj_list *l = &x->a->list;
    V d = jj_dict(j, (enum jj_kind)x->how), pair;
    if (l->n > 1)
        jj_fail(j, "dict takes one value");
    if (l->n && l->v[0].kind == JJ_DICT)
        with_members(j, d, l->v[0].dict);
    else if (l->n)
        for (struct jj_iter *it = jj_walk(j, l->v[0]); jj_next(j, it, &pair);) {
            const V list = jj_to_list(j, pair);
            if (list.list->n != 2)
                jj_fail(j, "dict: pairs are needed");
            jj_set(j, d.dict, list.list->v[0], list.list->v[1]);
        }
    with_members(j, d, &x->a->named);
    for (size_t i = 0; d.kind == JJ_SPACE && i < d.dict->n; i++)
        if (d.dict->v[i].key.kind == JJ_STR && d.dict->v[i].key.s->n && d.dict->v[i].key.s->s[0] == '_')
            jj_fail(j, "an attribute of a namespace cannot begin with an underscore");
    return d;
}

static V raise(struct jinja *j, In x)
{
    const V s = jj_to_str(j, x->p[0]);
    jj_fail(j, "%.*s", (int)MIN(s.s->n, 600u), s.s->s);
}

static V strftime_now(struct jinja *j, In x)
{
    const struct jj_str *format = jj_need_text(j, x->p[0], "strftime_now");
    char copy[1000], out[1000];
    struct tm day;
    if (format->n > sizeof copy - 2)
        jj_fail(j, "strftime_now: the text is too long");
    snprintf(copy, sizeof copy, "%.*s ", (int)format->n, format->s);      /* never empty: 0 is an error */
    gmtime_r(&j->now, &day);
    const size_t n = strftime(out, sizeof out, copy, &day);
    if (n == 0)
        jj_fail(j, "strftime_now: the text is too long");
    return jj_str(j, memcpy(jj_alloc(j, n), out, n), n - 1);
}

const struct jj_builtin jj_functions[] = {
    { "range", "start stop step", 1, range }, { "dict", "*", 0, make_dict, JJ_DICT },
    { "namespace", "*", 0, make_dict, JJ_SPACE }, { "raise_exception", "message", 1, raise },
    { "strftime_now", "format", 1, strftime_now }, { NULL },
};

/* ---- calls of builtins ---- */

/* The place of parameter `name` in the words of `params`; their number if it is not there, or NULL. */
static size_t parameter(const char *params, const struct jj_str *name)
{
    size_t i = 0;
    for (const char *p = params; *p; i++) {
        const size_t n = (size_t)(strchrnul(p, ' ') - p);
        if (name && n == name->n && !memcmp(p, name->s, n))
            return i;
        p += n + (p[n] == ' ');
    }
    return i;
}

V jj_call_builtin(struct jinja *j, const struct jj_builtin *b, V self, const struct jj_args *a)
{
    struct jj_in in = { .self = self, .a = a, .how = b->how };
    V *p = in.p;
    size_t bytes = self.kind == JJ_STR ? self.s->n : 0;
    for (size_t i = 0; i < a->list.n; i++)
        bytes += a->list.v[i].kind == JJ_STR ? a->list.v[i].s->n : 0;
    jj_work(j, bytes / 8);               /* a builtin without jj_char has the limit of time, too */
    if (b->params[0] == '*')
        return b->f(j, &in);
    const size_t n = parameter(b->params, NULL);
    if (a->list.n > n)
        jj_fail(j, "%s takes %zu %s, found %zu", b->name, n, plural(n, "argument", "arguments"), a->list.n);
    for (size_t i = 0; i < a->list.n; i++)
        p[i] = a->list.v[i];
    for (size_t i = 0; i < a->named.n; i++) {
        const struct jj_entry *e = &a->named.v[i];
        const size_t at = parameter(b->params, e->key.s);
        if (at == n || p[at].kind != JJ_MISSING)
            jj_fail(j, "%s has no argument '%.*s', or has it twice", b->name, JJ_SHOWN(e->key.s));
        p[at] = e->value;
    }
    for (int i = 0; i < b->required; i++)
        if (p[i].kind == JJ_MISSING)
            jj_fail(j, "%s needs %d %s", b->name, b->required,
                    plural((size_t)b->required, "argument", "arguments"));
    if (b->take == TEXT)
        in.self = jj_to_str(j, self);
    else if (b->take == DEFINED)
        jj_need_defined(j, self, "'value' is undefined");
    return b->f(j, &in);
}
