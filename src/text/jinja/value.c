/* Values: the arena, texts, lists, dicts, iterators, comparison. Start at struct jj_value. */
#include "src/text/jinja/jinja_impl.h"

#include <math.h>
#include <stdlib.h>

/* ---- errors, memory, limits ---- */

void jj_fail(struct jinja *j, const char *format, ...)
{
    char reason[700];
    va_list ap;
    va_start(ap, format);
    vsnprintf(reason, sizeof reason, format, ap);
    va_end(ap);
    err_set(j->e, ERR_INPUT, ERR_FILE ", line %u: %s", j->name, j->line, reason);
    longjmp(j->failed, 1);
}

V jj_need_defined(struct jinja *j, V v, const char *unnamed)
{
    if (v.kind == JJ_UNDEFINED && v.s)
        jj_fail(j, "'%.*s' is undefined", JJ_SHOWN(v.s));
    if (v.kind == JJ_UNDEFINED)
        jj_fail(j, "%s", unnamed);
    return v;
}

void *jj_alloc(struct jinja *j, size_t bytes)
{
    const size_t size = ((bytes + 15) & ~(size_t)15) + JJ_GAP;
    if (bytes > JJ_ARENA || size > JJ_ARENA - j->used)
        jj_fail(j, "the template needs more than %d MiB of memory", JJ_ARENA >> 20);
    jj_work(j, 16 + bytes / 4);
    void *p = j->arena + j->used;
    j->used += size;
    jj_unpoison(p, bytes);
    jj_poison((char *)p + bytes, size - bytes);
    return p;
}

void *jj_grow(struct jinja *j, void *v, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return v;
    const size_t more = MAX((size_t)4, n + n / 2 + 1);
    void *p = jj_alloc(j, more * size);
    if (n)
        memcpy(p, v, n * size);
    *cap = more;
    return p;
}

void jj_look(struct jinja *j)
{
    const uint64_t most = (uint64_t)JJ_STEPS * JJ_STEP;
    if (j->work > most)
        jj_fail(j, "the template takes more than %d steps", JJ_STEPS);
    if (clock_seconds() > j->deadline)
        jj_fail(j, "the template takes longer than one second");
    j->look = MIN(j->work + 4096 * JJ_STEP, most + 1);
}

void jj_deeper(struct jinja *j)
{
    if (++j->depth > JJ_DEPTH)
        jj_fail(j, "more than %d levels", JJ_DEPTH);
}

/* ---- texts ---- */

void jj_put(struct jinja *j, struct jj_text *t, const char *s, size_t n)
{
    jj_work(j, 4 + n / 4);
    if (n > t->cap - t->n) {
        if (t == j->main_out)
            jj_fail(j, "the prompt has more than %d MiB", JJ_OUTPUT >> 20);
        const size_t cap = MAX((size_t)64, (t->n + n) * 2);
        char *p = jj_alloc(j, cap);
        if (t->n)
            memcpy(p, t->s, t->n);
        t->s = p;
        t->cap = cap;
    }
    if (n)
        memcpy(t->s + t->n, s, n);
    t->n += n;
}

void jj_puts(struct jinja *j, struct jj_text *t, const char *s) { jj_put(j, t, s, strlen(s)); }

V jj_str(struct jinja *j, const char *s, size_t n)
{
    size_t chars = 0;
    for (size_t i = 0; i < n; i++)
        chars += ((unsigned char)s[i] & 0xc0) != 0x80;
    jj_work(j, JJ_STEP + n / 4);
    return JJ_BOX(j, JJ_STR, struct jj_str, s ? s : "", n, chars);   /* a text that never grew has no bytes */
}

V jj_cstr(struct jinja *j, const char *s) { return jj_str(j, s, strlen(s)); }
V jj_text(struct jinja *j, const struct jj_text *t) { return jj_str(j, t->s, t->n); }

/* The byte where code point i begins. */
static size_t byte_of(struct jinja *j, const struct jj_str *s, size_t i)
{
    if (s->chars == s->n)
        return i;
    size_t at = 0;
    jj_work(j, i);
    while (i-- > 0)
        at += utf8_length((unsigned char)s->s[at]);
    return at;
}

V jj_slice(struct jinja *j, const struct jj_str *s, size_t from, size_t to)
{
    const size_t a = byte_of(j, s, from), b = from < to ? byte_of(j, s, to) : a;
    return jj_str(j, s->s + a, b - a);
}

bool jj_is(const struct jj_str *s, const char *text)
{
    return s->n == strlen(text) && !memcmp(s->s, text, s->n);
}
bool jj_same(const struct jj_str *a, const struct jj_str *b)
{
    return a->n == b->n && !memcmp(a->s, b->s, a->n);
}

/* ---- lists and dicts ---- */

V jj_list(struct jinja *j, enum jj_kind kind) { return JJ_BOX(j, kind, struct jj_list, 0); }
V jj_dict(struct jinja *j, enum jj_kind kind) { return JJ_BOX(j, kind, struct jj_dict, 0); }

void jj_append(struct jinja *j, struct jj_list *l, V v)
{
    l->v = jj_grow(j, l->v, l->n, &l->cap, sizeof *l->v);
    l->v[l->n++] = v;
}

V jj_tuple(struct jinja *j, const V *v, size_t n)
{
    V t = jj_list(j, JJ_TUPLE);
    for (size_t i = 0; i < n; i++)
        jj_append(j, t.list, v[i]);
    return t;
}

/* Equal values have equal hashes: 1, 1.0 and True are one key. */
static uint64_t hash(struct jinja *j, V v)
{
    double whole;
    jj_work(j, 8 + (v.kind == JJ_STR ? v.s->n : 0));
    switch (v.kind) {
    case JJ_NONE: return 1;
    case JJ_BOOL: case JJ_INT: return hash64(HASH64_INIT, &(int64_t){ jj_i(v) }, 8);
    case JJ_FLOAT:
        if (modf(v.f, &whole) == 0 && fabs(v.f) < 9e18)
            return hash(j, jj_int((int64_t)v.f));
        return hash64(HASH64_INIT, &v.f, 8);
    case JJ_BIG: case JJ_STR: return hash64(HASH64_INIT, v.s->s, v.s->n);
    case JJ_UNDEFINED: return 2;
    case JJ_TUPLE: {
        uint64_t h = 3;
        jj_deeper(j);
        for (size_t i = 0; i < v.list->n; i++)
            h = h * 31 + hash(j, v.list->v[i]);
        j->depth--;
        return h;
    }
    default: jj_fail(j, "a %s cannot be a key", jj_type(v));
    }
}

static void index_entry(struct jinja *j, struct jj_dict *d, size_t i)
{
    size_t at = d->v[i].hash & (d->slots - 1);
    for (; d->index[at]; at = (at + 1) & (d->slots - 1))
        jj_work(j, 4);                                  /* clients choose keys whose hashes collide */
    d->index[at] = (uint32_t)i + 1;
}

static void index_all(struct jinja *j, struct jj_dict *d)
{
    if (d->n < 8) {
        d->slots = 0;
        return;
    }
    if (d->n * 2 > d->slots) {
        for (d->slots = 32; d->slots < d->n * 4; d->slots *= 2);
        d->index = jj_alloc(j, d->slots * sizeof *d->index);
    }
    memset(d->index, 0, d->slots * sizeof *d->index);
    for (size_t i = 0; i < d->n; i++)
        index_entry(j, d, i);
}

static struct jj_entry *find(struct jinja *j, const struct jj_dict *d, V key, uint64_t h)
{
    jj_step(j, 1);
    if (d->n < 8) {
        for (size_t i = 0; i < d->n; i++)
            if (d->v[i].hash == h && jj_equal(j, d->v[i].key, key))
                return &d->v[i];
        return NULL;
    }
    for (size_t at = h & (d->slots - 1); d->index[at]; at = (at + 1) & (d->slots - 1)) {
        struct jj_entry *e = &d->v[d->index[at] - 1];
        jj_work(j, 4);
        if (e->hash == h && jj_equal(j, e->key, key))
            return e;
    }
    return NULL;
}

bool jj_set(struct jinja *j, struct jj_dict *d, V key, V value)
{
    const uint64_t h = hash(j, key);
    struct jj_entry *e = find(j, d, key, h);
    if (e) {
        e->value = value;
        return false;
    }
    d->v = jj_grow(j, d->v, d->n, &d->cap, sizeof *d->v);
    d->v[d->n++] = (struct jj_entry){ key, value, h };
    if (d->n >= 8 && d->n * 2 <= d->slots)
        index_entry(j, d, d->n - 1);
    else
        index_all(j, d);
    return true;
}

V jj_get(struct jinja *j, const struct jj_dict *d, V key)
{
    const struct jj_entry *e = find(j, d, key, hash(j, key));
    return e ? e->value : (V){0};
}

V jj_remove(struct jinja *j, struct jj_dict *d, V key)
{
    struct jj_entry *e = find(j, d, key, hash(j, key));
    if (!e)
        return (V){0};
    const V value = e->value;
    memmove(e, e + 1, (size_t)(d->v + d->n - (e + 1)) * sizeof *e);
    d->n--;
    jj_step(j, d->n);
    index_all(j, d);
    return value;
}

/* ---- properties ---- */

const char *jj_type(V v)
{
    static const char *const names[] = {
        "missing value", "undefined value", "None", "bool",      "int",   "float",    "int", "str",
        "list",          "tuple",           "dict", "dict view", "range", "iterator", "namespace",
        "loop",          "function"
    };
    return names[v.kind];
}

/* The length of a value that has one. */
static size_t size_of(V v)
{
    switch (v.kind) {
    case JJ_STR: return v.s->chars;
    case JJ_LIST: case JJ_TUPLE: return v.list->n;
    case JJ_DICT: return v.dict->n;
    case JJ_VIEW: return v.view->dict->n;
    case JJ_RANGE_OF: return v.range->n;
    default: return 0;
    }
}

size_t jj_length(struct jinja *j, V v)
{
    if (!jj_has_length(v))
        jj_fail(j, "a %s has no length", jj_type(v));
    return size_of(v);
}

bool jj_truth(V v)
{
    if (jj_number(v))
        return jj_f(v) != 0;
    return jj_has_length(v) ? size_of(v) > 0 : v.kind > JJ_NONE;
}

V jj_element(V v, size_t i)
{
    return v.kind == JJ_RANGE_OF ? jj_int(v.range->from + (int64_t)i * v.range->step) : v.list->v[i];
}

/* ---- arguments ---- */

const struct jj_str *jj_need_text(struct jinja *j, V v, const char *what)
{
    if (v.kind != JJ_STR)
        jj_fail(j, "%s: a text is needed, found a %s", what, jj_type(v));
    return v.s;
}
int64_t jj_need_whole(struct jinja *j, V v, int64_t otherwise, const char *what)
{
    v = jj_or(v, jj_int(otherwise));
    if (!jj_whole(v))
        jj_fail(j, "%s: a whole number is needed, found a %s", what, jj_type(v));
    return jj_i(v);
}

/* ---- iteration ---- */

struct jj_iter *jj_walk(struct jinja *j, V v)
{
    if (v.kind == JJ_ITER)
        return v.iter;
    if (v.kind == JJ_LOOP)
        jj_fail(j, "a loop over 'loop' is not supported");
    if (!jj_has_length(v))
        jj_fail(j, "a %s cannot be iterated over", jj_type(v));
    return JJ_BOX(j, JJ_ITER, struct jj_iter, .over = v).iter;
}

V jj_lazily(struct jinja *j, struct jj_iter *from, bool (*next)(struct jinja *, struct jj_iter *, V *),
            const void *what, size_t size)
{
    return JJ_BOX(j, JJ_ITER, struct jj_iter, .from = from, .next = next,
                  .what = memcpy(jj_alloc(j, size), what, size));
}

bool jj_next(struct jinja *j, struct jj_iter *it, V *v)
{
    jj_step(j, 1);
    if (it->next) {
        jj_deeper(j);
        const bool some = it->next(j, it, v);
        j->depth--;
        return some;
    }
    const V o = it->over;
    if (o.kind == JJ_STR) {
        if (it->at >= o.s->n)
            return false;
        const size_t n = utf8_length((unsigned char)o.s->s[it->at]);
        *v = jj_str(j, o.s->s + it->at, n);
        it->at += n;
        return true;
    }
    if (it->at >= jj_length(j, o))
        return false;
    const size_t i = it->at++;
    const struct jj_dict *d = o.kind == JJ_DICT ? o.dict : o.kind == JJ_VIEW ? o.view->dict : NULL;
    if (!d)
        *v = jj_element(o, i);
    else if (o.kind == JJ_DICT || o.view->part == JJ_KEYS)
        *v = d->v[i].key;
    else
        *v = o.view->part == JJ_VALUES ? d->v[i].value : jj_tuple(j, (V[]){ d->v[i].key, d->v[i].value }, 2);
    return true;
}

V jj_to_list(struct jinja *j, V v)
{
    V list = jj_list(j, JJ_LIST), x;
    for (struct jj_iter *it = jj_walk(j, v); jj_next(j, it, &x);)
        jj_append(j, list.list, x);
    return list;
}

/* ---- comparison ---- */

static int compare_numbers(V a, V b)
{
    if (jj_whole(a) && jj_whole(b))
        return (jj_i(a) > jj_i(b)) - (jj_i(a) < jj_i(b));
    const long double x = a.kind == JJ_FLOAT ? (long double)a.f : (long double)jj_i(a);
    const long double y = b.kind == JJ_FLOAT ? (long double)b.f : (long double)jj_i(b);
    return isnan(x) || isnan(y) ? 2 : (x > y) - (x < y);
}

static int compare_texts(struct jinja *j, const struct jj_str *a, const struct jj_str *b)
{
    jj_work(j, MIN(a->n, b->n) / 16);
    const int d = memcmp(a->s, b->s, MIN(a->n, b->n));
    return d ? (d > 0) - (d < 0) : (a->n > b->n) - (a->n < b->n);
}

static bool equal_dicts(struct jinja *j, const struct jj_dict *a, const struct jj_dict *b)
{
    for (size_t i = 0; i < a->n; i++) {
        const struct jj_entry *e = find(j, b, a->v[i].key, a->v[i].hash);
        if (!e || !jj_equal(j, a->v[i].value, e->value))
            return false;
    }
    return a->n == b->n;
}

bool jj_equal(struct jinja *j, V a, V b)
{
    jj_step(j, 1);
    if (jj_number(a) && jj_number(b))
        return compare_numbers(a, b) == 0;
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case JJ_MISSING: case JJ_UNDEFINED: case JJ_NONE: return true;
    case JJ_BIG: case JJ_STR: return a.s == b.s || compare_texts(j, a.s, b.s) == 0;
    case JJ_VIEW: return a.view == b.view;
    case JJ_SPACE: case JJ_ITER: case JJ_LOOP: case JJ_CALL: return a.call == b.call;
    default: break;
    }
    bool same = jj_length(j, a) == jj_length(j, b);
    jj_deeper(j);
    if (same && a.kind == JJ_DICT)
        same = equal_dicts(j, a.dict, b.dict);
    else
        for (size_t i = 0; same && i < jj_length(j, a); i++)
            same = jj_equal(j, jj_element(a, i), jj_element(b, i));
    j->depth--;
    return same;
}

int jj_compare(struct jinja *j, V a, V b)
{
    jj_step(j, 1);
    if (jj_number(a) && jj_number(b))
        return compare_numbers(a, b);
    if (a.kind == JJ_STR && b.kind == JJ_STR)
        return compare_texts(j, a.s, b.s);
    if (a.kind != b.kind || (a.kind != JJ_LIST && a.kind != JJ_TUPLE))
        jj_fail(j, "a %s and a %s have no order", jj_type(a), jj_type(b));
    jj_deeper(j);
    int order = (a.list->n > b.list->n) - (a.list->n < b.list->n);
    for (size_t i = 0; i < MIN(a.list->n, b.list->n); i++)
        if (!jj_equal(j, a.list->v[i], b.list->v[i])) {
            order = jj_compare(j, a.list->v[i], b.list->v[i]);
            break;
        }
    j->depth--;
    return order;
}

void jj_sort(struct jinja *j, void *v, size_t size, const V *keys, size_t n, bool reverse)
{
    char *sorted = v, *old = memcpy(jj_alloc(j, n * size), v, n * size);
    size_t *from = jj_alloc(j, n * sizeof *from), *to = jj_alloc(j, n * sizeof *to);
    for (size_t i = 0; i < n; i++)
        from[i] = i;
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            const size_t mid = MIN(lo + width, n), hi = MIN(lo + 2 * width, n);
            for (size_t a = lo, b = mid, k = lo; k < hi; k++) {
                const bool right = a == mid || (b < hi && jj_compare(j, keys[from[b]], keys[from[a]]) ==
                                                              (reverse ? 1 : -1));
                to[k] = right ? from[b++] : from[a++];
            }
        }
        size_t *t = from;
        from = to;
        to = t;
    }
    for (size_t i = 0; i < n; i++)
        memcpy(sorted + i * size, old + from[i] * size, size);
}

size_t jj_find(struct jinja *j, const struct jj_str *s, const struct jj_str *word, size_t from)
{
    const char *p = memmem(s->s + from, s->n - from, word->s, word->n);
    const size_t at = p ? (size_t)(p - s->s) : SIZE_MAX;
    jj_work(j, 16 + ((p ? at : s->n) - from + word->n) / 2);
    return at;
}

bool jj_contains(struct jinja *j, V box, V v)
{
    if (box.kind == JJ_STR) {
        if (v.kind != JJ_STR)
            jj_fail(j, "'in' of a text needs a text, found a %s", jj_type(v));
        return jj_find(j, box.s, v.s, 0) != SIZE_MAX;
    }
    if (box.kind == JJ_DICT || (box.kind == JJ_VIEW && box.view->part == JJ_KEYS))
        return jj_get(j, box.kind == JJ_DICT ? box.dict : box.view->dict, v).kind != JJ_MISSING;
    V x;
    for (struct jj_iter *it = jj_walk(j, box); jj_next(j, it, &x);)
        if (jj_equal(j, x, v))
            return true;
    return false;
}
