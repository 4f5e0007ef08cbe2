/* Attributes, items and slices of values; functions; methods of texts, lists and dicts; loop.*. Start at
 * jj_attr. */
#include "src/text/jinja/jinja_impl.h"

#include <math.h>
#include <stdlib.h>

#include "src/text/jinja/case_tables.h"

/* The functions of a table have the same parameters. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* ---- arguments ---- */

static const struct jj_str *text(struct jinja *j, V v, const char *what)
{
    if (v.kind != JJ_STR)
        jj_fail(j, "%s: a text is needed, found a %s", what, jj_type(v));
    return v.s;
}
static int64_t whole(struct jinja *j, V v, int64_t otherwise, const char *what)
{
    if (v.kind == JJ_MISSING)
        return otherwise;
    if (!jj_whole(v))
        jj_fail(j, "%s: a whole number is needed, found a %s", what, jj_type(v));
    return jj_i(v);
}

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
    const bool changes_up = u != n || memcmp(self, to_upper, n),
               changes_down = l != n || memcmp(self, to_lower, n);
    *upper = changes_down;
    return changes_up || changes_down;
}

V jj_case(struct jinja *j, const struct jj_str *s, char how)
{
    struct jj_text t = {0};
    bool inside = false, u;
    for (size_t i = 0, n; i < s->n; i += n) {
        uint32_t c;
        char out[16];
        n = jj_char(j, s, i, &c);
        const bool upper = how == 'u' || (how != 'l' && !inside);
        jj_put(j, &t, out, put_case(j, out, c, upper));
        inside = how == 't'   ? is_cased(j, c, &u)
                 : how == 'w' ? !unicode_is_space(c) && !(c && c < 0x80 && strchr("-({[<", (char)c))
                              : true;
    }
    return jj_text(j, &t);
}
static V m_lower(struct jinja *j, V v, const V *p, A a) { return jj_case(j, v.s, 'l'); }
static V m_upper(struct jinja *j, V v, const V *p, A a) { return jj_case(j, v.s, 'u'); }
static V m_capitalize(struct jinja *j, V v, const V *p, A a) { return jj_case(j, v.s, 'c'); }
static V m_title(struct jinja *j, V v, const V *p, A a) { return jj_case(j, v.s, 't'); }

/* Whether all code points pass, and there is one. */
static bool all_of(struct jinja *j, const struct jj_str *s, bool (*pass)(uint32_t c))
{
    uint32_t c;
    for (size_t i = 0; i < s->n;) {
        i += jj_char(j, s, i, &c);
        if (!pass(c))
            return false;
    }
    return s->n > 0;
}
static bool alpha(uint32_t c) { return unicode_class(c) & UNI_LETTER; }
static bool digit(uint32_t c) { return c >= '0' && c <= '9'; }
static bool alnum(uint32_t c) { return unicode_class(c) & (UNI_LETTER | UNI_NUMBER); }
static bool only_case(struct jinja *j, const struct jj_str *s, bool want_upper)
{
    bool some = false, upper;
    uint32_t c;
    for (size_t i = 0; i < s->n;) {
        i += jj_char(j, s, i, &c);
        if (is_cased(j, c, &upper)) {
            if (upper != want_upper)
                return false;
            some = true;
        }
    }
    return some;
}
static V m_isalpha(struct jinja *j, V v, const V *p, A a) { return jj_bool(all_of(j, v.s, alpha)); }
static V m_isdigit(struct jinja *j, V v, const V *p, A a) { return jj_bool(all_of(j, v.s, digit)); }
static V m_isalnum(struct jinja *j, V v, const V *p, A a) { return jj_bool(all_of(j, v.s, alnum)); }
static V m_isspace(struct jinja *j, V v, const V *p, A a)
{
    return jj_bool(all_of(j, v.s, unicode_is_space));
}
static V m_isupper(struct jinja *j, V v, const V *p, A a) { return jj_bool(only_case(j, v.s, true)); }
static V m_islower(struct jinja *j, V v, const V *p, A a) { return jj_bool(only_case(j, v.s, false)); }

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

V jj_strip(struct jinja *j, const struct jj_str *s, const V *chars, bool left, bool right)
{
    const bool space = !jj_given(*chars);
    const size_t used = j->used;
    const struct char_set set = space ? (struct char_set){0} : chars_of(j, text(j, *chars, "strip"));
    size_t from = 0, to = s->n;
    uint32_t c;
    for (int back = !left; back <= right; back++)
        while (from < to) {
            const size_t next = pass(j, s, back ? to : from, back, &c);
            if (space ? !unicode_is_space(c) : c > set.last || !(set.bits[c / 8] >> c % 8 & 1))
                break;
            *(back ? &to : &from) = next;
        }
    j->used = used;                      /* the set may be large */
    return jj_str(j, s->s + from, to - from);
}
static V m_strip(struct jinja *j, V v, const V *p, A a) { return jj_strip(j, v.s, p, true, true); }
static V m_lstrip(struct jinja *j, V v, const V *p, A a) { return jj_strip(j, v.s, p, true, false); }
static V m_rstrip(struct jinja *j, V v, const V *p, A a) { return jj_strip(j, v.s, p, false, true); }

/* The last place of `word` in s[0..end). */
static size_t find_before(struct jinja *j, const struct jj_str *s, const struct jj_str *word, size_t end)
{
    for (size_t at = end; at >= word->n; at--) {
        jj_work(j, 2);
        if (s->s[at - 1] != word->s[word->n - 1] || s->s[at - word->n] != word->s[0])
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
        jj_append(j, list, jj_str(j, s->s + MIN(at, word), MAX(at, word) - MIN(at, word)));
    }
}

static void reverse(const V list)
{
    for (size_t i = 0, k = list.list->n; i + 1 < k; i++) {
        const V v = list.list->v[--k];
        list.list->v[k] = list.list->v[i];
        list.list->v[i] = v;
    }
}

static V split(struct jinja *j, const struct jj_str *s, const V *p, bool right)
{
    const int64_t most = whole(j, p[1], -1, "split");
    V list = jj_list(j, JJ_LIST);
    if (!jj_given(p[0])) {
        list = split_words(j, s, most, right);
    } else {
        const struct jj_str *word = text(j, p[0], "split");
        if (word->n == 0)
            jj_fail(j, "split: the separator is empty");
        size_t from = 0, end = s->n, at;
        while ((most < 0 || (int64_t)list.list->n < most) &&
               (at = right ? find_before(j, s, word, end) : jj_find(j, s, word, from)) != SIZE_MAX) {
            jj_append(j, list, right ? jj_str(j, s->s + at + word->n, end - at - word->n)
                                     : jj_str(j, s->s + from, at - from));
            end = right ? at : end;
            from = right ? from : at + word->n;
        }
        jj_append(j, list, jj_str(j, s->s + from, end - from));
    }
    if (right)
        reverse(list);
    return list;
}
V jj_split(struct jinja *j, const struct jj_str *s, V word) { return split(j, s, (V[]){ word, {0} }, false); }
static V m_split(struct jinja *j, V v, const V *p, A a) { return split(j, v.s, p, false); }
static V m_rsplit(struct jinja *j, V v, const V *p, A a) { return split(j, v.s, p, true); }

static V m_splitlines(struct jinja *j, V v, const V *p, A a)
{
    V list = jj_list(j, JJ_LIST);
    const bool keep = p[0].kind != JJ_MISSING && jj_truth(p[0]);
    size_t from = 0;
    for (size_t i = 0, n; i < v.s->n; i += n) {
        uint32_t c;
        n = jj_char(j, v.s, i, &c);
        if (!((c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029))
            continue;
        n += c == '\r' && i + 1 < v.s->n && v.s->s[i + 1] == '\n';
        jj_append(j, list, jj_str(j, v.s->s + from, i + (keep ? n : 0) - from));
        from = i + n;
    }
    if (from < v.s->n)
        jj_append(j, list, jj_str(j, v.s->s + from, v.s->n - from));
    return list;
}

static V partition(struct jinja *j, V v, V separator, bool right)
{
    const struct jj_str *s = v.s, *word = text(j, separator, "partition");
    if (word->n == 0)
        jj_fail(j, "partition: the separator is empty");
    const size_t at = right ? find_before(j, s, word, s->n) : jj_find(j, s, word, 0);
    const V empty = jj_str(j, "", 0);
    V t = jj_list(j, JJ_TUPLE);
    jj_append(j, t, at != SIZE_MAX ? jj_str(j, s->s, at) : right ? empty : v);
    jj_append(j, t, at != SIZE_MAX ? separator : empty);
    jj_append(j, t, at != SIZE_MAX ? jj_str(j, s->s + at + word->n, s->n - at - word->n) : right ? v : empty);
    return t;
}
static V m_partition(struct jinja *j, V v, const V *p, A a) { return partition(j, v, p[0], false); }
static V m_rpartition(struct jinja *j, V v, const V *p, A a) { return partition(j, v, p[0], true); }

V jj_replace(struct jinja *j, const struct jj_str *s, const struct jj_str *from, const struct jj_str *to,
             int64_t count)
{
    struct jj_text t = {0};
    size_t p = 0;
    while (count != 0 && p <= s->n) {
        size_t at = from->n ? jj_find(j, s, from, p) : p;
        if (at == SIZE_MAX)
            break;
        jj_step(j, 1);
        jj_put(j, &t, s->s + p, at - p);
        jj_put(j, &t, to->s, to->n);
        p = at + from->n;
        if (!from->n) {                                 /* an empty text is found before every code point */
            const size_t n = p < s->n ? utf8_length((unsigned char)s->s[p]) : 0;
            jj_put(j, &t, s->s + p, n);
            p += n ? n : 1;
        }
        count -= count > 0;
    }
    if (p < s->n)
        jj_put(j, &t, s->s + p, s->n - p);
    return jj_text(j, &t);
}
static V m_replace(struct jinja *j, V v, const V *p, A a)
{
    return jj_replace(j, v.s, text(j, p[0], "replace"), text(j, p[1], "replace"),
                      whole(j, p[2], -1, "replace"));
}

/* ---- searching ---- */

/* A bound of a slice or a search: counted from the end if negative, and kept in 0..n. */
static size_t bound(struct jinja *j, V v, size_t n, size_t otherwise, const char *what)
{
    if (!jj_given(v))
        return otherwise;
    int64_t i = whole(j, v, 0, what);
    i = i < 0 ? MAX(i + (int64_t)n, 0) : i;
    return MIN((size_t)i, n);
}

/* The part of s that the arguments from and to of a search give; *shift: where it begins, in code points. */
static const struct jj_str *part(struct jinja *j, const struct jj_str *s, const V *p, size_t *shift,
                                 bool *none)
{
    const size_t from = bound(j, p[0], s->chars, 0, "start"), to = bound(j, p[1], s->chars, s->chars, "end");
    *shift = from;
    *none = from > to || (jj_whole(p[0]) && jj_i(p[0]) > (int64_t)s->chars);
    return from == 0 && to == s->chars ? s : jj_slice(j, s, from, to).s;
}

static bool affix(struct jinja *j, const struct jj_str *s, const struct jj_str *word, bool end)
{
    jj_work(j, 8 + word->n / 16);
    return word->n <= s->n && !memcmp(s->s + (end ? s->n - word->n : 0), word->s, word->n);
}
static V has_affix(struct jinja *j, V v, const V *p, bool end)
{
    size_t shift;
    bool none;
    const struct jj_str *s = part(j, v.s, p + 1, &shift, &none);
    if (p[0].kind != JJ_TUPLE)
        return jj_bool(affix(j, s, text(j, p[0], "startswith"), end) && !none);
    for (size_t i = 0; i < p[0].list->n; i++)
        if (affix(j, s, text(j, p[0].list->v[i], "startswith"), end) && !none)
            return jj_bool(true);
    return jj_bool(false);
}
static V m_startswith(struct jinja *j, V v, const V *p, A a) { return has_affix(j, v, p, false); }
static V m_endswith(struct jinja *j, V v, const V *p, A a) { return has_affix(j, v, p, true); }
static V m_removeprefix(struct jinja *j, V v, const V *p, A a)
{
    const struct jj_str *word = text(j, p[0], "removeprefix");
    return affix(j, v.s, word, false) ? jj_str(j, v.s->s + word->n, v.s->n - word->n) : v;
}
static V m_removesuffix(struct jinja *j, V v, const V *p, A a)
{
    const struct jj_str *word = text(j, p[0], "removesuffix");
    return affix(j, v.s, word, true) ? jj_str(j, v.s->s, v.s->n - word->n) : v;
}

static int64_t search(struct jinja *j, V v, const V *p, bool last)
{
    size_t shift;
    bool none;
    const struct jj_str *word = text(j, p[0], "find"), *s = part(j, v.s, p + 1, &shift, &none);
    if (none)
        return -1;
    const size_t at = word->n == 0 ? (last ? s->n : 0)
                      : last       ? find_before(j, s, word, s->n)
                                   : jj_find(j, s, word, 0);
    return at == SIZE_MAX ? -1 : (int64_t)(shift + jj_str(j, s->s, at).s->chars);
}
static V m_find(struct jinja *j, V v, const V *p, A a) { return jj_int(search(j, v, p, false)); }
static V m_rfind(struct jinja *j, V v, const V *p, A a) { return jj_int(search(j, v, p, true)); }
static V m_str_index(struct jinja *j, V v, const V *p, A a)
{
    const int64_t at = search(j, v, p, false);
    if (at < 0)
        jj_fail(j, "index: the text does not occur");
    return jj_int(at);
}
static V m_str_count(struct jinja *j, V v, const V *p, A a)
{
    const struct jj_str *word = text(j, p[0], "count");
    int64_t n = 0;
    if (!word->n)
        return jj_int((int64_t)v.s->chars + 1);
    for (size_t at = 0; (at = jj_find(j, v.s, word, at)) != SIZE_MAX; at += word->n)
        n++;
    return jj_int(n);
}

static V m_join(struct jinja *j, V v, const V *p, A a)
{
    struct jj_text t = {0};
    V x;
    bool more = false;
    for (struct jj_iter *it = jj_walk(j, p[0]); jj_next(j, it, &x); more = true) {
        if (more)
            jj_put_str(j, &t, v);
        jj_put_str(j, &t, (V){ .kind = JJ_STR, .s = text(j, x, "join") });
    }
    return jj_text(j, &t);
}

/* Fills a text up to `width`: how 'l' keeps it left, 'r' right, 'c' in the middle. */
static V pad(struct jinja *j, V v, const V *p, char how)
{
    const int64_t width = whole(j, p[0], 0, "width");
    const struct jj_str *fill = p[1].kind == JJ_MISSING ? jj_cstr(j, " ").s : text(j, p[1], "fill");
    const size_t n = width > (int64_t)v.s->chars ? (size_t)width - v.s->chars : 0;
    if (fill->chars != 1 || n > JJ_OUTPUT)
        jj_fail(j, "the fill is one character, the width at most %d", JJ_OUTPUT);
    const size_t left = how == 'l' ? 0 : how == 'r' ? n : n / 2 + (n & (size_t)width & 1);
    struct jj_text t = {0};
    for (size_t i = 0; i < n; i++) {
        if (i == left)
            jj_put_str(j, &t, v);
        jj_put(j, &t, fill->s, fill->n);
    }
    if (left == n)
        jj_put_str(j, &t, v);
    return jj_text(j, &t);
}
static V m_ljust(struct jinja *j, V v, const V *p, A a) { return pad(j, v, p, 'l'); }
static V m_rjust(struct jinja *j, V v, const V *p, A a) { return pad(j, v, p, 'r'); }
static V m_center(struct jinja *j, V v, const V *p, A a) { return pad(j, v, p, 'c'); }
static V m_zfill(struct jinja *j, V v, const V *p, A a)
{
    const bool sign = v.s->n && strchr("+-", v.s->s[0]);
    const V q[2] = { jj_int(whole(j, p[0], 0, "width") - sign), jj_cstr(j, "0") };
    if (!sign)
        return pad(j, v, q, 'r');
    struct jj_text t = {0};
    jj_put(j, &t, v.s->s, 1);
    jj_put_str(j, &t, pad(j, jj_str(j, v.s->s + 1, v.s->n - 1), q, 'r'));
    return jj_text(j, &t);
}

/* ---- format ---- */

static V m_format(struct jinja *j, V v, const V *unused, A a)
{
    const struct jj_str *s = v.s;
    struct jj_text t = {0};
    size_t next = 0;
    enum { NOT_YET, COUNTED, NUMBERED } how = NOT_YET;
    for (size_t i = 0; i < s->n; i++) {
        const char c = s->s[i];
        if (c != '{' && c != '}') {
            jj_put(j, &t, &c, 1);
            continue;
        }
        if (i + 1 < s->n && s->s[i + 1] == c) {
            jj_put(j, &t, &c, 1);
            i++;
            continue;
        }
        const char *end = c == '{' ? memchr(s->s + i, '}', s->n - i) : NULL;
        if (!end)
            jj_fail(j, "format: a single '%c'", c);
        const struct jj_str name = { s->s + i + 1, (size_t)(end - s->s) - i - 1, 0 };
        const size_t digits = strspn(name.s, "0123456789");
        const V *value = NULL;
        if (digits == name.n) {
            if (digits > 4 || how == (name.n ? COUNTED : NUMBERED))
                jj_fail(j, "format: {} and {0} in one text");
            how = name.n ? NUMBERED : COUNTED;
            const size_t at = name.n ? (size_t)strtoul(name.s, NULL, 10) : next++;
            value = at < a->n ? &a->v[at] : NULL;
        } else {
            jj_work(j, 4 * a->n_kw);
            for (size_t k = 0; k < a->n_kw; k++)
                if (jj_same(a->kw[k].name, &name))
                    value = &a->kw[k].value;
        }
        if (!value)
            jj_fail(j, "format: no value for '{%.*s}' (only {}, {0} and {name} are supported)",
                    (int)MIN(name.n, 60u), name.s);
        jj_put_str(j, &t, *value);
        i = (size_t)(end - s->s);
    }
    return jj_text(j, &t);
}

/* One conversion of `%`: its flags, width and precision are those of printf. */
static void put_percent(struct jinja *j, struct jj_text *t, const char *spec, char letter, V v)
{
    char format[40], out[1400];           /* 999 digits after the point of the largest number */
    jj_step(j, 8);
    for (const char *p = spec; *p; p++)
        if (strspn(p, "0123456789") > 3)
            jj_fail(j, "%%: a width or precision of more than 3 digits");
    if (letter == 's' || letter == 'r') {
        struct jj_text one = {0};
        if (letter == 's')
            jj_put_str(j, &one, v);
        else
            jj_put_repr(j, &one, v);
        if (spec[0])
            jj_fail(j, "%%: a width of a text is not supported");
        jj_put(j, t, one.s, one.n);
        return;
    }
    if (!strchr("difx", letter) || !jj_number(v) || (letter == 'x' && !jj_whole(v)))
        jj_fail(j, "%%%c of a %s is not supported", letter, jj_type(v));
    if (letter == 'f') {
        snprintf(format, sizeof format, "%%%sf", spec);
        snprintf(out, sizeof out, format, jj_f(v));
    } else {
        if (v.kind == JJ_FLOAT && !(fabs(v.f) < 9e18))
            jj_fail(j, "%%%c: the number is beyond 64 bits", letter);
        const long long i = v.kind == JJ_FLOAT ? (long long)v.f : (long long)jj_i(v);
        snprintf(format, sizeof format, "%%%sll%c", spec, letter);
        if (letter == 'x' && i < 0)
            jj_fail(j, "%%x of a negative number is not supported");
        snprintf(out, sizeof out, format, i);
    }
    jj_puts(j, t, out);
}

V jj_format_percent(struct jinja *j, const struct jj_str *s, V values)
{
    struct jj_text t = {0};
    const bool tuple = values.kind == JJ_TUPLE;
    const size_t n = tuple ? values.list->n : 1;
    size_t used = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->s[i] != '%') {
            jj_put(j, &t, s->s + i, 1);
            continue;
        }
        char spec[8];
        size_t k = 0;
        while (++i < s->n && strchr("0123456789.-+ ", s->s[i]) && s->s[i] && k < sizeof spec - 1)
            spec[k++] = s->s[i];
        spec[k] = 0;
        if (i >= s->n)
            jj_fail(j, "%%: the format is not complete");
        if (s->s[i] == '%') {
            jj_puts(j, &t, "%");
            continue;
        }
        if (used == n)
            jj_fail(j, "%%: more conversions than values");
        put_percent(j, &t, spec, s->s[i], tuple ? values.list->v[used] : values);
        used++;
    }
    if (used < n && values.kind != JJ_DICT && values.kind != JJ_LIST && values.kind != JJ_UNDEFINED &&
        values.kind != JJ_RANGE_OF)
        jj_fail(j, "%%: fewer conversions than values");
    return jj_text(j, &t);
}

/* ---- methods of dicts and lists ---- */

static V m_get(struct jinja *j, V v, const V *p, A a)
{
    const V *found = jj_get(j, v.dict, p[0]);
    return found ? *found : p[1].kind == JJ_MISSING ? jj_none() : p[1];
}
static V view(struct jinja *j, V v, enum jj_part part_of)
{
    struct jj_view *w = jj_alloc(j, sizeof *w);
    *w = (struct jj_view){ v.dict, part_of };
    return (V){ .kind = JJ_VIEW, .view = w };
}
static V m_keys(struct jinja *j, V v, const V *p, A a) { return view(j, v, JJ_KEYS); }
static V m_values(struct jinja *j, V v, const V *p, A a) { return view(j, v, JJ_VALUES); }
static V m_items(struct jinja *j, V v, const V *p, A a) { return view(j, v, JJ_ITEMS); }
static V m_dict_copy(struct jinja *j, V v, const V *p, A a)
{
    V d = jj_dict(j, JJ_DICT);
    for (size_t i = 0; i < v.dict->n; i++)
        jj_set(j, d.dict, v.dict->v[i].key, v.dict->v[i].value);
    return d;
}
static V m_dict_pop(struct jinja *j, V v, const V *p, A a)
{
    V value;
    if (jj_remove(j, v.dict, p[0], &value))
        return value;
    if (p[1].kind == JJ_MISSING)
        jj_fail(j, "pop: no such key");
    return p[1];
}
static V m_append(struct jinja *j, V v, const V *p, A a) { return jj_append(j, v, p[0]), jj_none(); }
static V m_list_pop(struct jinja *j, V v, const V *p, A a)
{
    struct jj_list *l = v.list;
    int64_t i = whole(j, p[0], -1, "pop");
    i += i < 0 ? (int64_t)l->n : 0;
    if (i < 0 || i >= (int64_t)l->n)
        jj_fail(j, "pop: the list has %zu elements", l->n);
    const V out = l->v[i];
    jj_step(j, l->n - (size_t)i);
    memmove(l->v + i, l->v + i + 1, (l->n - (size_t)i - 1) * sizeof *l->v);
    l->n--;
    return out;
}
static V m_list_copy(struct jinja *j, V v, const V *p, A a) { return jj_to_list(j, v); }
static V m_index(struct jinja *j, V v, const V *p, A a)
{
    for (size_t i = 0; i < v.list->n; i++)
        if (jj_equal(j, v.list->v[i], p[0]))
            return jj_int((int64_t)i);
    jj_fail(j, "index: the value does not occur");
}
static V m_count(struct jinja *j, V v, const V *p, A a)
{
    int64_t n = 0;
    for (size_t i = 0; i < v.list->n; i++)
        n += jj_equal(j, v.list->v[i], p[0]);
    return jj_int(n);
}

/* f NULL: Python has the method, and this interpreter has not. */
const struct jj_builtin jj_str_methods[] = {
    { "capitalize", "", 0, m_capitalize }, { "casefold", "", 0, NULL },
    { "center", "width fill", 1, m_center },
    { "count", "word", 1, m_str_count }, { "encode", "", 0, NULL },
    { "endswith", "word start end", 1, m_endswith },
    { "expandtabs", "", 0, NULL }, { "find", "word start end", 1, m_find }, { "format", "*", 0, m_format },
    { "format_map", "", 0, NULL }, { "index", "word start end", 1, m_str_index },
    { "isalnum", "", 0, m_isalnum },
    { "isalpha", "", 0, m_isalpha }, { "isascii", "", 0, NULL }, { "isdecimal", "", 0, m_isdigit },
    { "isdigit", "", 0, m_isdigit }, { "isidentifier", "", 0, NULL }, { "islower", "", 0, m_islower },
    { "isnumeric", "", 0, m_isdigit }, { "isprintable", "", 0, NULL }, { "isspace", "", 0, m_isspace },
    { "istitle", "", 0, NULL }, { "isupper", "", 0, m_isupper }, { "join", "values", 1, m_join },
    { "ljust", "width fill", 1, m_ljust }, { "lower", "", 0, m_lower }, { "lstrip", "chars", 0, m_lstrip },
    { "maketrans", "", 0, NULL }, { "partition", "sep", 1, m_partition },
    { "removeprefix", "word", 1, m_removeprefix },
    { "removesuffix", "word", 1, m_removesuffix }, { "replace", "old new count", 2, m_replace },
    { "rfind", "word start end", 1, m_rfind }, { "rindex", "", 0, NULL },
    { "rjust", "width fill", 1, m_rjust },
    { "rpartition", "sep", 1, m_rpartition }, { "rsplit", "sep maxsplit", 0, m_rsplit },
    { "rstrip", "chars", 0, m_rstrip }, { "split", "sep maxsplit", 0, m_split },
    { "splitlines", "keepends", 0, m_splitlines }, { "startswith", "word start end", 1, m_startswith },
    { "strip", "chars", 0, m_strip }, { "swapcase", "", 0, NULL }, { "title", "", 0, m_title },
    { "translate", "", 0, NULL }, { "upper", "", 0, m_upper }, { "zfill", "width", 1, m_zfill }, { NULL },
};
const struct jj_builtin jj_dict_methods[] = {
    { "clear", "", 0, NULL }, { "copy", "", 0, m_dict_copy }, { "fromkeys", "", 0, NULL },
    { "get", "key default", 1, m_get }, { "items", "", 0, m_items }, { "keys", "", 0, m_keys },
    { "pop", "key default", 1, m_dict_pop }, { "popitem", "", 0, NULL }, { "setdefault", "", 0, NULL },
    { "update", "", 0, NULL }, { "values", "", 0, m_values }, { NULL },
};
const struct jj_builtin jj_list_methods[] = {
    { "append", "value", 1, m_append }, { "clear", "", 0, NULL }, { "copy", "", 0, m_list_copy },
    { "count", "value", 1, m_count }, { "extend", "", 0, NULL }, { "index", "value", 1, m_index },
    { "insert", "", 0, NULL }, { "pop", "index", 0, m_list_pop }, { "remove", "", 0, NULL },
    { "reverse", "", 0, NULL }, { "sort", "", 0, NULL }, { NULL },
};
const struct jj_builtin jj_tuple_methods[] = {
    { "count", "value", 1, m_count }, { "index", "value", 1, m_index }, { NULL },
};

/* ---- loop ---- */

V jj_loop_length(struct jinja *j, struct jj_loop *l)
{
    if (l->length.kind == JJ_MISSING && jj_has_length(l->over)) {
        l->length = jj_int((int64_t)jj_length(j, l->over));
    } else if (l->length.kind == JJ_MISSING) {
        V rest = jj_list(j, JJ_LIST), v;
        while (jj_next(j, l->it, &v))
            jj_append(j, rest, v);
        l->it = jj_walk(j, rest);
        l->length = jj_int((int64_t)rest.list->n + l->index0 + 1 + (l->after.kind != JJ_MISSING));
    }
    return l->length;
}

static V peek(struct jinja *j, struct jj_loop *l)
{
    if (l->after.kind == JJ_MISSING && !jj_next(j, l->it, &l->after))
        l->after.kind = JJ_MISSING;
    return l->after;
}

static V m_cycle(struct jinja *j, V v, const V *p, A a)
{
    if (!a->n || a->n_kw)
        jj_fail(j, "loop.cycle needs values");
    return a->v[(size_t)v.loop->index0 % a->n];
}
static V m_changed(struct jinja *j, V v, const V *p, A a)
{
    V now = jj_list(j, JJ_TUPLE);
    for (size_t i = 0; i < a->n; i++)
        jj_append(j, now, a->v[i]);
    if (v.loop->last_changed.kind != JJ_MISSING && jj_equal(j, v.loop->last_changed, now))
        return jj_bool(false);
    v.loop->last_changed = now;
    return jj_bool(true);
}
const struct jj_builtin jj_loop_methods[] = {
    { "cycle", "*", 0, m_cycle }, { "changed", "*", 0, m_changed }, { NULL },
};

static bool loop_attr(struct jinja *j, struct jj_loop *l, const struct jj_str *name, V *v)
{
    if (jj_is(name, "index"))
        *v = jj_int(l->index0 + 1);
    else if (jj_is(name, "index0"))
        *v = jj_int(l->index0);
    else if (jj_is(name, "first"))
        *v = jj_bool(l->index0 == 0);
    else if (jj_is(name, "last"))
        *v = jj_bool(peek(j, l).kind == JJ_MISSING);
    else if (jj_is(name, "length"))
        *v = jj_loop_length(j, l);
    else if (jj_is(name, "revindex"))
        *v = jj_int(jj_loop_length(j, l).i - l->index0);
    else if (jj_is(name, "revindex0"))
        *v = jj_int(jj_loop_length(j, l).i - l->index0 - 1);
    else if (jj_is(name, "previtem"))
        *v = l->index0 == 0 ? jj_undefined(name) : l->before;
    else if (jj_is(name, "nextitem"))
        *v = peek(j, l).kind == JJ_MISSING ? jj_undefined(name) : l->after;
    else if (jj_is(name, "depth") || jj_is(name, "depth0"))
        *v = jj_int(l->depth0 + jj_is(name, "depth"));
    else
        return false;
    return true;
}

/* ---- attributes and items ---- */

const struct jj_builtin *jj_lookup(const struct jj_builtin *b, const struct jj_str *name)
{
    for (; b && b->name; b++)
        if (jj_is(name, b->name))
            return b;
    return NULL;
}

V jj_function_of(struct jinja *j, const struct jj_builtin *b, V self)
{
    struct jj_call *c = jj_alloc(j, sizeof *c);
    *c = (struct jj_call){ .builtin = b, .self = self };
    return (V){ .kind = JJ_CALL, .call = c };
}

_Noreturn static void undefined(struct jinja *j, V v)
{
    if (v.s)
        jj_fail(j, "'%.*s' is undefined", (int)MIN(v.s->n, 60u), v.s->s);
    jj_fail(j, "the value is undefined");
}

/* A Python attribute: a method, or one of loop. */
static bool own_attr(struct jinja *j, V v, const struct jj_str *name, V *out)
{
    const struct jj_builtin *methods = v.kind == JJ_STR     ? jj_str_methods
                                       : v.kind == JJ_DICT  ? jj_dict_methods
                                       : v.kind == JJ_LIST  ? jj_list_methods
                                       : v.kind == JJ_TUPLE ? jj_tuple_methods
                                       : v.kind == JJ_LOOP  ? jj_loop_methods
                                                            : NULL;
    const struct jj_builtin *b = jj_lookup(methods, name);
    if (v.kind == JJ_LOOP && !b)
        return loop_attr(j, v.loop, name, out);
    if (v.kind == JJ_SPACE) {
        const V *found = jj_get(j, v.dict, (V){ .kind = JJ_STR, .s = name });
        return found ? (*out = *found, true) : false;
    }
    if (name->n > 1 && name->s[0] == '_' && name->s[1] == '_')
        return *out = jj_undefined(name), true;
    if (!b)
        return false;
    if (!b->f)
        jj_fail(j, "the method '%s' of a %s is not supported", b->name, jj_type(v));
    return *out = jj_function_of(j, b, v), true;
}

/* v[key] without attributes. */
static bool own_item(struct jinja *j, V v, V key, V *out)
{
    if (v.kind == JJ_DICT) {
        if (key.kind == JJ_LIST || key.kind == JJ_DICT)
            return false;
        const V *found = jj_get(j, v.dict, key);
        return found ? (*out = *found, true) : false;
    }
    if (!jj_whole(key) ||
        !(v.kind == JJ_STR || v.kind == JJ_LIST || v.kind == JJ_TUPLE || v.kind == JJ_RANGE_OF))
        return false;
    const int64_t n = (int64_t)jj_length(j, v), i = jj_i(key) + (jj_i(key) < 0 ? n : 0);
    if (i < 0 || i >= n)
        return false;
    *out = v.kind == JJ_STR ? jj_slice(j, v.s, (size_t)i, (size_t)i + 1) : jj_element(v, (size_t)i);
    return true;
}

V jj_attr(struct jinja *j, V v, const struct jj_str *name)
{
    V out;
    if (v.kind == JJ_UNDEFINED)
        undefined(j, v);
    return own_attr(j, v, name, &out) || own_item(j, v, (V){ .kind = JJ_STR, .s = name }, &out)
               ? out
               : jj_undefined(name);
}

V jj_item(struct jinja *j, V v, V key)
{
    V out;
    if (v.kind == JJ_UNDEFINED)
        undefined(j, v);
    if (own_item(j, v, key, &out) || (key.kind == JJ_STR && own_attr(j, v, key.s, &out)))
        return out;
    return jj_undefined(key.kind == JJ_STR ? key.s : NULL);
}

/* A bound of a slice with a step; from -1 to n. */
static int64_t slice_bound(struct jinja *j, V v, int64_t n, bool back, int64_t otherwise)
{
    if (!jj_given(v))
        return otherwise;
    int64_t i = whole(j, v, 0, "slice");
    if (i < 0)
        i = MAX(i + n, back ? -1 : 0);
    return MIN(i, back ? n - 1 : n);
}

static V slice_of_range(struct jinja *j, const struct jj_range *r, int64_t a, int64_t b, int64_t step)
{
    struct jj_range *part_of = jj_alloc(j, sizeof *part_of);
    const int64_t n = step > 0 ? (b - a + step - 1) / step : (a - b - step - 1) / -step;
    if (step > JJ_RANGE || step < -JJ_RANGE)
        jj_fail(j, "a slice with such a step is not supported");
    *part_of = (struct jj_range){ r->from + a * r->step, r->from + b * r->step, r->step * step,
                                  n > 0 ? (size_t)n : 0 };
    return (V){ .kind = JJ_RANGE_OF, .range = part_of };
}

V jj_slice_of(struct jinja *j, V v, V from, V to, V step_value)
{
    if (v.kind == JJ_UNDEFINED)
        undefined(j, v);
    if (v.kind != JJ_STR && v.kind != JJ_LIST && v.kind != JJ_TUPLE && v.kind != JJ_RANGE_OF)
        jj_fail(j, "a %s has no slices", jj_type(v));
    const int64_t n = (int64_t)jj_length(j, v),
                  step = jj_given(step_value) ? whole(j, step_value, 1, "slice") : 1;
    if (step == 0)
        jj_fail(j, "a slice with step 0");
    const int64_t a = slice_bound(j, from, n, step < 0, step < 0 ? n - 1 : 0);
    const int64_t b = slice_bound(j, to, n, step < 0, step < 0 ? -1 : n);
    if (v.kind == JJ_STR && step == 1)
        return jj_slice(j, v.s, (size_t)a, (size_t)b);
    if (v.kind == JJ_RANGE_OF)
        return slice_of_range(j, v.range, a, b, step);
    V list = jj_list(j, v.kind == JJ_STR ? JJ_LIST : v.kind);
    const V whole_text = v.kind == JJ_STR ? jj_to_list(j, v) : v;
    for (int64_t i = a; step > 0 ? i < b : i > b; i += step) {
        jj_step(j, 1);
        jj_append(j, list, whole_text.list->v[i]);
        if (step > INT64_MAX - n || step < INT64_MIN + n)
            break;
    }
    if (v.kind != JJ_STR)
        return list;
    const V joined = list;
    return m_join(j, jj_str(j, "", 0), &joined, NULL);
}

/* ---- functions ---- */

static V f_range(struct jinja *j, V v, const V *p, A a)
{
    const bool one = p[1].kind == JJ_MISSING;
    const int64_t from = one ? 0 : whole(j, p[0], 0, "range"), to = whole(j, one ? p[0] : p[1], 0, "range");
    const int64_t step = whole(j, p[2], 1, "range");
    if (step == 0)
        jj_fail(j, "range: the step is 0");
    const long double n = ceill(((long double)to - from) / step);
    if (n > JJ_RANGE)
        jj_fail(j, "a range has at most %d numbers", JJ_RANGE);
    struct jj_range *r = jj_alloc(j, sizeof *r);
    *r = (struct jj_range){ from, to, step, n > 0 ? (size_t)n : 0 };
    return (V){ .kind = JJ_RANGE_OF, .range = r };
}

static V make_dict(struct jinja *j, const struct jj_args *a, enum jj_kind kind)
{
    V d = jj_dict(j, kind), pair;
    if (a->n > 1)
        jj_fail(j, "dict takes one value");
    if (a->n && a->v[0].kind == JJ_DICT)
        for (size_t i = 0; i < a->v[0].dict->n; i++)
            jj_set(j, d.dict, a->v[0].dict->v[i].key, a->v[0].dict->v[i].value);
    else if (a->n)
        for (struct jj_iter *it = jj_walk(j, a->v[0]); jj_next(j, it, &pair);) {
            const V list = jj_to_list(j, pair);
            if (list.list->n != 2)
                jj_fail(j, "dict: pairs are needed");
            jj_set(j, d.dict, list.list->v[0], list.list->v[1]);
        }
    for (size_t i = 0; i < a->n_kw; i++)
        jj_set(j, d.dict, (V){ .kind = JJ_STR, .s = a->kw[i].name }, a->kw[i].value);
    for (size_t i = 0; kind == JJ_SPACE && i < d.dict->n; i++)
        if (d.dict->v[i].key.kind == JJ_STR && d.dict->v[i].key.s->n && d.dict->v[i].key.s->s[0] == '_')
            jj_fail(j, "an attribute of a namespace cannot begin with an underscore");
    return d;
}
static V f_dict(struct jinja *j, V v, const V *p, A a) { return make_dict(j, a, JJ_DICT); }
static V f_namespace(struct jinja *j, V v, const V *p, A a) { return make_dict(j, a, JJ_SPACE); }

static V f_raise(struct jinja *j, V v, const V *p, A a)
{
    const V s = jj_to_str(j, p[0]);
    jj_fail(j, "%.*s", (int)MIN(s.s->n, 600u), s.s->s);
}

static V f_strftime(struct jinja *j, V v, const V *p, A a)
{
    const struct jj_str *format = text(j, p[0], "strftime_now");
    char copy[1000], out[1000];
    struct tm day;
    if (format->n > sizeof copy - 2)
        jj_fail(j, "strftime_now: the text is too long");
    snprintf(copy, sizeof copy, "%.*s ", (int)format->n, format->s);      /* never empty: 0 is an error */
    gmtime_r(&j->now, &day);
    const size_t n = strftime(out, sizeof out, copy, &day);
    if (n == 0)
        jj_fail(j, "strftime_now: the text is too long");
    char *kept = jj_alloc(j, n);
    memcpy(kept, out, n);
    return jj_str(j, kept, n - 1);
}

const struct jj_builtin jj_functions[] = {
    { "range", "start stop step", 1, f_range }, { "dict", "*", 0, f_dict },
    { "namespace", "*", 0, f_namespace },
    { "raise_exception", "message", 1, f_raise }, { "strftime_now", "format", 1, f_strftime }, { NULL },
};
const struct jj_builtin *jj_function(const struct jj_str *name) { return jj_lookup(jj_functions, name); }
