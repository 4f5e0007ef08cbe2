/* Methods of texts, and the filters that do the same. Their rows stand at the end. */
#include "src/text/jinja/jinja_impl.h"

#include <stdlib.h>

#include "src/text/jinja/case_tables.h"

/* ---- case ---- */

/* The mapping of c to the other case; a few code points have two or three. */
static size_t put_case(struct jinja *j, char *out, uint32_t c, bool upper)
{
    jj_work(j, c < 0x80 ? 8 : 32);
    for (size_t i = 0; c >= 0x80 && i < sizeof case_specials / sizeof *case_specials; i++)
        if (case_specials[i].upper == upper && case_specials[i].c == c)
            return (size_t)snprintf(out, 16, "%s", case_specials[i].to);
    const struct case_run *runs = upper ? upper_runs : lower_runs;
    size_t lo = 0,
           hi = upper ? sizeof upper_runs / sizeof *upper_runs : sizeof lower_runs / sizeof *lower_runs;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (c > runs[mid].last)
            lo = mid + 1;
        else
            hi = mid;
    }
    const struct case_run *r = &runs[lo];
    if (c >= r->first && c <= r->last && (c - r->first) % r->step == 0)
        c = (uint32_t)((int32_t)c + r->delta);
    return utf8_put(out, c);
}

static bool is_cased(struct jinja *j, uint32_t c, bool *upper)
{
    char to_upper[16], to_lower[16], self[4];
    const size_t n = utf8_put(self, c), u = put_case(j, to_upper, c, true),
                 l = put_case(j, to_lower, c, false);
    *upper = l != n || memcmp(self, to_lower, n);
    return *upper || u != n || memcmp(self, to_upper, n);
}

V jj_change_case(struct jinja *j, In x)
{
    const struct jj_str *s = x->self.s;
    struct jj_text t = {0};
    bool inside = false, u;
    for (size_t i = 0, n; i < s->n; i += n) {
        uint32_t c;
        char out[16];
        n = jj_char(j, s, i, &c);
        const bool upper = x->how == 'u' || (x->how != 'l' && !inside);
        jj_put(j, &t, out, put_case(j, out, c, upper));
        inside = x->how == 't'   ? is_cased(j, c, &u)
                 : x->how == 'w' ? !unicode_is_space(c) && !(c && c < 0x80 && strchr("-({[<", (char)c))
                                 : true;
    }
    return jj_text(j, &t);
}

/* Whether all code points pass, and there is one. islower and isupper look at those with case alone. */
V jj_all_are(struct jinja *j, In x)
{
    const struct jj_str *s = x->self.s;
    bool some = false, upper;
    uint32_t c;
    for (size_t i = 0; i < s->n;) {
        i += jj_char(j, s, i, &c);
        const bool by_case = x->how == 'l' || x->how == 'u';
        if (by_case && !is_cased(j, c, &upper))
            continue;
        if (by_case          ? upper != (x->how == 'u')
            : x->how == 'd'  ? c < '0' || c > '9'
            : x->how == ' '  ? !unicode_is_space(c)
                             : !(unicode_class(c) & (UNI_LETTER | (x->how == 'n' ? UNI_NUMBER : 0))))
            return jj_bool(false);
        some = true;
    }
    return jj_bool(some);
}

/* ---- stripping, splitting, replacing ---- */

/* The place after the code point at `at`, or before the one that ends there. */
static size_t pass(struct jinja *j, const struct jj_str *s, size_t at, bool back, uint32_t *c)
{
    if (!back)
        return at + jj_char(j, s, at, c);
    do
        at--;
    while (at > 0 && ((unsigned char)s->s[at] & 0xc0) == 0x80);
    jj_char(j, s, at, c);
    return at;
}

/* The code points of a text: bit c % 8 of byte c / 8, up to the largest one. */
struct char_set { uint8_t *bits; uint32_t last; };
static struct char_set chars_of(struct jinja *j, const struct jj_str *s)
{
    struct char_set set = {0};
    uint32_t c;
    for (size_t i = 0; i < s->n; set.last = MAX(set.last, c))
        i += jj_char(j, s, i, &c);
    set.bits = memset(jj_alloc(j, set.last / 8 + 1), 0, set.last / 8 + 1);
    for (size_t i = 0; i < s->n; set.bits[c / 8] |= (uint8_t)(1 << c % 8))
        i += jj_char(j, s, i, &c);
    return set;
}

V jj_strip(struct jinja *j, In x)
{
    const struct jj_str *s = x->self.s;
    const bool space = !jj_given(x->p[0]);
    const size_t used = j->used;
    const struct char_set set = space ? (struct char_set){0} : chars_of(j, jj_need_text(j, x->p[0], "strip"));
    size_t from = 0, to = s->n;
    uint32_t c;
    for (int back = !(x->how & LEFT); back <= !!(x->how & RIGHT); back++)
        while (from < to) {
            const size_t next = pass(j, s, back ? to : from, back, &c);
            if (space ? !unicode_is_space(c) : c > set.last || !(set.bits[c / 8] >> c % 8 & 1))
                break;
            *(back ? &to : &from) = next;
        }
    j->used = used;                      /* the set may be large */
    return jj_str(j, s->s + from, to - from);
}

/* The last place of `word` in s[0..end). */
static size_t find_before(struct jinja *j, const struct jj_str *s, const struct jj_str *word, size_t end)
{
    for (size_t at = end; at >= word->n; at--) {
        jj_work(j, 2);
        if (word->n && (s->s[at - 1] != word->s[word->n - 1] || s->s[at - word->n] != word->s[0]))
            continue;
        jj_work(j, word->n / 8);
        if (!memcmp(s->s + at - word->n, word->s, word->n))
            return at - word->n;
    }
    return SIZE_MAX;
}

/* str.split() without a separator: words between white space. From the right, `most` counts there. */
static V split_words(struct jinja *j, const struct jj_str *s, int64_t most, bool right)
{
    V list = jj_list(j, JJ_LIST);
    const size_t end = right ? 0 : s->n;
    size_t at = s->n - end, next;
    uint32_t c;
    for (;;) {
        while (at != end && (next = pass(j, s, at, right, &c), unicode_is_space(c)))
            at = next;
        if (at == end)
            return list;
        const size_t word = at;
        if (most >= 0 && (int64_t)list.list->n == most)
            at = end;
        while (at != end && (next = pass(j, s, at, right, &c), !unicode_is_space(c)))
            at = next;
        jj_append(j, list.list, jj_str(j, s->s + MIN(at, word), MAX(at, word) - MIN(at, word)));
    }
}

void jj_reverse(struct jj_list *l)
{
    for (size_t i = 0, k = l->n; i + 1 < k; i++) {
        const V v = l->v[--k];
        l->v[k] = l->v[i];
        l->v[i] = v;
    }
}

V jj_split(struct jinja *j, In x)
{
    const struct jj_str *s = x->self.s;
    const bool right = x->how == RIGHT, words = !jj_given(x->p[0]);
    const int64_t most = jj_need_whole(j, x->p[1], -1, "split");
    const struct jj_str *word = words ? NULL : jj_need_text(j, x->p[0], "split");
    const V list = words ? split_words(j, s, most, right) : jj_list(j, JJ_LIST);
    if (word && !word->n)
        jj_fail(j, "split: the separator is empty");
    for (size_t from = 0, end = s->n, at = 0; word && at != SIZE_MAX;) {
        at = (int64_t)list.list->n == most ? SIZE_MAX
             : right                       ? find_before(j, s, word, end)
                                           : jj_find(j, s, word, from);
        const size_t a = !right || at == SIZE_MAX ? from : at + word->n, b = right ? end : MIN(at, end);
        jj_append(j, list.list, jj_str(j, s->s + a, b - a));
        *(right ? &end : &from) = right ? at : at + word->n;
    }
    if (right)
        jj_reverse(list.list);
    return list;
}

V jj_split_lines(struct jinja *j, In x)
{
    const struct jj_str *s = x->self.s;
    V list = jj_list(j, JJ_LIST);
    size_t from = 0;
    for (size_t i = 0, n; i < s->n; i += n) {
        uint32_t c;
        n = jj_char(j, s, i, &c);
        if (!((c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029))
            continue;
        n += c == '\r' && i + 1 < s->n && s->s[i + 1] == '\n';
        jj_append(j, list.list, jj_str(j, s->s + from, i + (jj_truth(x->p[0]) ? n : 0) - from));
        from = i + n;
    }
    if (from < s->n)
        jj_append(j, list.list, jj_str(j, s->s + from, s->n - from));
    return list;
}

static V partition(struct jinja *j, In x)
{
    const struct jj_str *s = x->self.s, *word = jj_need_text(j, x->p[0], "partition");
    const bool right = x->how == RIGHT;
    if (word->n == 0)
        jj_fail(j, "partition: the separator is empty");
    const size_t at = right ? find_before(j, s, word, s->n) : jj_find(j, s, word, 0);
    const V empty = jj_str(j, "", 0);
    if (at == SIZE_MAX)
        return jj_tuple(j, (V[]){ right ? empty : x->self, empty, right ? x->self : empty }, 3);
    const V before = jj_str(j, s->s, at), after = jj_str(j, s->s + at + word->n, s->n - at - word->n);
    return jj_tuple(j, (V[]){ before, x->p[0], after }, 3);
}

V jj_replace(struct jinja *j, const struct jj_str *s, const struct jj_str *from, const struct jj_str *to,
             int64_t count)
{
    struct jj_text t = {0};
    size_t p = 0;
    for (; count != 0; count -= count > 0) {
        const size_t at = from->n ? jj_find(j, s, from, p) : p;
        if (at == SIZE_MAX)
            break;
        jj_step(j, 1);
        jj_put(j, &t, s->s + p, at - p);
        jj_put(j, &t, to->s, to->n);
        p = at + from->n;
        if (!from->n && p == s->n)
            break;
        const size_t one = from->n ? 0 : utf8_length((unsigned char)s->s[p]);
        jj_put(j, &t, s->s + p, one);                   /* an empty text is found before every code point */
        p += one;
    }
    if (p < s->n)
        jj_put(j, &t, s->s + p, s->n - p);
    return jj_text(j, &t);
}
static V m_replace(struct jinja *j, In x)
{
    return jj_replace(j, x->self.s, jj_need_text(j, x->p[0], "replace"), jj_need_text(j, x->p[1], "replace"),
                      jj_need_whole(j, x->p[2], -1, "replace"));
}

/* ---- searching ---- */

int64_t jj_bound(struct jinja *j, V v, int64_t n, bool back, int64_t otherwise, const char *what)
{
    if (!jj_given(v))
        return otherwise;
    int64_t i = jj_need_whole(j, v, 0, what);
    if (i < 0)
        i = MAX(i + n, back ? -1 : 0);
    return MIN(i, back ? n - 1 : n);
}

/* The part of the text between the bounds of a search; NULL: no part, not even an empty one. */
static const struct jj_str *part(struct jinja *j, In x)
{
    const struct jj_str *s = x->self.s;
    const V first = x->p[1];
    const int64_t n = (int64_t)s->chars, from = jj_bound(j, first, n, false, 0, "start"),
                  to = jj_bound(j, x->p[2], n, false, n, "end");
    if (from > to || (jj_whole(first) && jj_i(first) > n))
        return NULL;
    return from == 0 && to == n ? s : jj_slice(j, s, (size_t)from, (size_t)to).s;
}

static bool affix(struct jinja *j, const struct jj_str *s, const struct jj_str *word, bool end)
{
    jj_work(j, 8 + word->n / 16);
    return word->n <= s->n && !memcmp(s->s + (end ? s->n - word->n : 0), word->s, word->n);
}
static V has_affix(struct jinja *j, In x)
{
    const struct jj_str *s = part(j, x);
    const bool several = x->p[0].kind == JJ_TUPLE;
    const V *words = several ? x->p[0].list->v : x->p;
    for (size_t i = 0; i < (several ? x->p[0].list->n : 1); i++) {
        const struct jj_str *word = jj_need_text(j, words[i], "startswith");
        if (s && affix(j, s, word, x->how == RIGHT))
            return jj_bool(true);
    }
    return jj_bool(false);
}
static V without_affix(struct jinja *j, In x)
{
    const bool end = x->how == RIGHT;
    const struct jj_str *s = x->self.s,
                        *word = jj_need_text(j, x->p[0], end ? "removesuffix" : "removeprefix");
    return affix(j, s, word, end) ? jj_str(j, s->s + (end ? 0 : word->n), s->n - word->n) : x->self;
}

/* find, rfind and index */
static V search(struct jinja *j, In x)
{
    const struct jj_str *word = jj_need_text(j, x->p[0], "find"), *s = part(j, x);
    const bool right = x->how == RIGHT;
    const size_t at = !s ? SIZE_MAX : right ? find_before(j, s, word, s->n) : jj_find(j, s, word, 0);
    if (at != SIZE_MAX)
        return jj_int((int64_t)jj_str(j, x->self.s->s, (size_t)(s->s + at - x->self.s->s)).s->chars);
    if (x->how == 'i')
        jj_fail(j, "index: the text does not occur");
    return jj_int(-1);
}
static V count(struct jinja *j, In x)
{
    const struct jj_str *s = x->self.s, *word = jj_need_text(j, x->p[0], "count");
    int64_t n = 0;
    if (!word->n)
        return jj_int((int64_t)s->chars + 1);
    for (size_t at = 0; (at = jj_find(j, s, word, at)) != SIZE_MAX; at += word->n)
        n++;
    return jj_int(n);
}

V jj_join(struct jinja *j, V texts, V separator)
{
    struct jj_text t = {0};
    V x;
    bool more = false;
    for (struct jj_iter *it = jj_walk(j, texts); jj_next(j, it, &x); more = true) {
        if (more && separator.kind != JJ_MISSING)
            jj_put_str(j, &t, separator);
        jj_need_text(j, x, "join");
        jj_put_str(j, &t, x);
    }
    return jj_text(j, &t);
}
static V join(struct jinja *j, In x) { return jj_join(j, x->p[0], x->self); }

/* Fills a text up to a width: how LEFT keeps it left, RIGHT right, 0 in the middle; 'z' puts zeros after its
 * sign. */
static V pad(struct jinja *j, In x)
{
    const struct jj_str *s = x->self.s;
    const int64_t width = jj_need_whole(j, x->p[0], 0, "width");
    const V filling = jj_or(x->p[1], jj_cstr(j, x->how == 'z' ? "0" : " "));
    const struct jj_str *fill = jj_need_text(j, filling, "fill");
    const size_t n = width > (int64_t)s->chars ? (size_t)width - s->chars : 0;
    if (fill->chars != 1 || n > JJ_OUTPUT)
        jj_fail(j, "the fill is one character, the width at most %d", JJ_OUTPUT);
    const size_t left = x->how == LEFT ? 0 : x->how ? n : n / 2 + (n & (size_t)width & 1);
    const size_t sign = x->how == 'z' && s->n && strchr("+-", s->s[0]);
    struct jj_text t = {0};
    jj_put(j, &t, s->s, sign);
    for (size_t i = 0; i <= n; i++) {
        if (i == left)
            jj_put(j, &t, s->s + sign, s->n - sign);
        if (i < n)
            jj_put(j, &t, fill->s, fill->n);
    }
    return jj_text(j, &t);
}

/* ---- format ---- */

/* The value of the field `name` of format: of {} the next one, of {0} by its place, else by its name. *next
 * counts the fields {}; SIZE_MAX after a {0}. */
static V field(struct jinja *j, const struct jj_args *a, const struct jj_str *name, size_t *next)
{
    const size_t digits = strspn(name->s, "0123456789");
    if (digits < name->n)
        return jj_get(j, &a->named, (V){ .kind = JJ_STR, .s = name });
    if (digits > 4 || (name->n ? *next != 0 && *next != SIZE_MAX : *next == SIZE_MAX))
        jj_fail(j, "format: {} and {0} in one text");
    const size_t at = name->n ? (size_t)strtoul(name->s, NULL, 10) : *next;
    *next = name->n ? SIZE_MAX : *next + 1;
    return at < a->list.n ? a->list.v[at] : (V){0};
}

static V format(struct jinja *j, In x)
{
    const struct jj_str *s = x->self.s;
    struct jj_text t = {0};
    size_t next = 0;
    for (size_t i = 0; i < s->n; i++) {
        const char c = s->s[i];
        const bool twice = i + 1 < s->n && s->s[i + 1] == c;
        if ((c != '{' && c != '}') || twice) {
            jj_put(j, &t, &c, 1);
            i += c == '{' || c == '}';
            continue;
        }
        const char *end = c == '{' ? memchr(s->s + i, '}', s->n - i) : NULL;
        if (!end)
            jj_fail(j, "format: a single '%c'", c);
        const struct jj_str name = { .s = s->s + i + 1, .n = (size_t)(end - s->s) - i - 1 };
        const V value = field(j, x->a, &name, &next);
        if (value.kind == JJ_MISSING)
            jj_fail(j, "format: no value for '{%.*s}' (only {}, {0} and {name} are supported)",
                    JJ_SHOWN(&name));
        jj_put_str(j, &t, value);
        i = (size_t)(end - s->s);
    }
    return jj_text(j, &t);
}

/* A row without a function: Python has the method, and this interpreter has not. */
const struct jj_builtin jj_str_methods[] = {
    { "capitalize", "", 0, jj_change_case, 'c' }, { "casefold" }, { "center", "width fill", 1, pad },
    { "count", "word", 1, count }, { "encode" }, { "endswith", "word start end", 1, has_affix, RIGHT },
    { "expandtabs" }, { "find", "word start end", 1, search }, { "format", "*", 0, format },
    { "format_map" }, { "index", "word start end", 1, search, 'i' }, { "isalnum", "", 0, jj_all_are, 'n' },
    { "isalpha", "", 0, jj_all_are, 'a' }, { "isascii" }, { "isdecimal", "", 0, jj_all_are, 'd' },
    { "isdigit", "", 0, jj_all_are, 'd' }, { "isidentifier" }, { "islower", "", 0, jj_all_are, 'l' },
    { "isnumeric", "", 0, jj_all_are, 'd' }, { "isprintable" }, { "isspace", "", 0, jj_all_are, ' ' },
    { "istitle" }, { "isupper", "", 0, jj_all_are, 'u' }, { "join", "values", 1, join },
    { "ljust", "width fill", 1, pad, LEFT }, { "lower", "", 0, jj_change_case, 'l' },
    { "lstrip", "chars", 0, jj_strip, LEFT }, { "maketrans" }, { "partition", "sep", 1, partition },
    { "removeprefix", "word", 1, without_affix }, { "removesuffix", "word", 1, without_affix, RIGHT },
    { "replace", "old new count", 2, m_replace }, { "rfind", "word start end", 1, search, RIGHT },
    { "rindex" }, { "rjust", "width fill", 1, pad, RIGHT }, { "rpartition", "sep", 1, partition, RIGHT },
    { "rsplit", "sep maxsplit", 0, jj_split, RIGHT }, { "rstrip", "chars", 0, jj_strip, RIGHT },
    { "split", "sep maxsplit", 0, jj_split }, { "splitlines", "keepends", 0, jj_split_lines },
    { "startswith", "word start end", 1, has_affix }, { "strip", "chars", 0, jj_strip, LEFT | RIGHT },
    { "swapcase" }, { "title", "", 0, jj_change_case, 't' }, { "translate" },
    { "upper", "", 0, jj_change_case, 'u' }, { "zfill", "width", 1, pad, 'z' }, { NULL },
};
