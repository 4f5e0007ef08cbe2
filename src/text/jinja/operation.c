/* Arithmetic of numbers, texts and lists, and `%` of texts. Start at jj_operation. */
#include "src/text/jinja/jinja_impl.h"

#include <math.h>

void jj_no_operation(struct jinja *j, V a, V b, const char *op)
{
    const V u = a.kind == JJ_UNDEFINED ? a : b;
    if (u.kind == JJ_UNDEFINED && u.s)
        jj_need_defined(j, u, "");
    jj_fail(j, "no '%s' of a %s and a %s", op, jj_type(a), jj_type(b));
}

static int64_t whole_operation(struct jinja *j, int op, int64_t a, int64_t b)
{
    int64_t r = 0;
    bool over = false;
    switch (op) {
    case '+': over = __builtin_add_overflow(a, b, &r); break;
    case '-': over = __builtin_sub_overflow(a, b, &r); break;
    case '*': over = __builtin_mul_overflow(a, b, &r); break;
    case '%': case JJ_OP2('/', '/'):
        if (b == 0)
            jj_fail(j, "division by zero");
        if ((over = b == -1 && a == INT64_MIN))
            break;
        r = op == '%' ? a % b : a / b;
        if (a % b && (a < 0) != (b < 0))
            r += op == '%' ? b : -1;
        break;
    default:                                            /* power */
        for (r = 1; b > 0 && !over; b >>= 1) {
            if (b & 1)
                over = __builtin_mul_overflow(r, a, &r);
            if (b > 1 && __builtin_mul_overflow(a, a, &a))
                over = true;
        }
    }
    if (over)
        jj_fail(j, "a result is beyond 64 bits");
    return r;
}

static double float_operation(struct jinja *j, int op, double a, double b)
{
    double r;
    if (op == '/' || op == '%' || op == JJ_OP2('/', '/')) {
        if (b == 0)
            jj_fail(j, "division by zero");
        if (op == '/')
            return a / b;
        double mod = fmod(a, b), div = (a - mod) / b;
        if (mod != 0 && (b < 0) != (mod < 0)) {
            mod += b;
            div -= 1;
        } else if (mod == 0) {
            mod = copysign(0, b);
        }
        if (op == '%')
            return mod;
        r = floor(div);
        return div == 0 ? copysign(0, a / b) : div - r > 0.5 ? r + 1 : r;
    }
    if (op != JJ_OP2('*', '*'))
        return op == '+' ? a + b : op == '-' ? a - b : a * b;
    if (a == 0 && b < 0)
        jj_fail(j, "zero to a negative power");
    r = pow(a, b);
    if (isfinite(a) && isfinite(b) && !isfinite(r))
        jj_fail(j, isnan(r) ? "a power that is no real number" : "a result is beyond a float");
    return r;
}

static V repeat(struct jinja *j, V v, int64_t times)
{
    const size_t n = times > 0 ? (size_t)times : 0;
    size_t total;
    if (v.kind == JJ_STR) {
        if (!mul_size(v.s->n, n, &total) || total > JJ_ARENA)
            jj_fail(j, "a text is too long");
        char *s = jj_alloc(j, total);
        for (size_t i = 0; v.s->n && i < n; i++)
            memcpy(s + i * v.s->n, v.s->s, v.s->n);
        return jj_str(j, s, total);
    }
    V r = jj_list(j, v.kind);
    const size_t one = v.list->n;
    if (!mul_size(one, n, &total) || total > JJ_STEPS)
        jj_fail(j, "a list is too long");
    jj_step(j, total);
    for (size_t i = 0; i < total; i++)
        jj_append(j, r.list, v.list->v[i % one]);
    return r;
}

/* a + b. A text that the filter `safe` marked escapes the other one for HTML, as in jinja2. */
static V joined(struct jinja *j, const struct jj_str *a, const struct jj_str *b)
{
    static const char marks[] = "&<>'\"", *const names[] = { "&amp;", "&lt;", "&gt;", "&#39;", "&#34;" };
    struct jj_text t = { .s = jj_alloc(j, a->n + b->n), .cap = a->n + b->n };
    for (int k = 0; k < 2; k++) {
        const struct jj_str *s = k ? b : a, *other = k ? a : b;
        const bool escape = other->safe && !s->safe;
        for (size_t i = 0; i < s->n; i += escape ? 1 : s->n) {
            const char *at = escape && s->s[i] ? strchr(marks, s->s[i]) : NULL;
            if (at)
                jj_puts(j, &t, names[at - marks]);
            else
                jj_put(j, &t, s->s + i, escape ? 1 : s->n);
        }
    }
    const struct jj_str *r = jj_text(j, &t).s;
    return JJ_BOX(j, JJ_STR, struct jj_str, r->s, r->n, r->chars, a->safe || b->safe);
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
        (letter == 's' ? jj_put_str : jj_put_repr)(j, t, v);
        if (spec[0])
            jj_fail(j, "%%: a width of a text is not supported");
        return;
    }
    if (!strchr("difx", letter) || !jj_number(v) || (letter == 'x' && !jj_whole(v)))
        jj_fail(j, "%%%c of a %s is not supported", letter, jj_type(v));
    snprintf(format, sizeof format, letter == 'f' ? "%%%sf" : "%%%sll%c", spec, letter);
    if (letter == 'f') {
        snprintf(out, sizeof out, format, jj_f(v));
    } else {
        if (v.kind == JJ_FLOAT && !(fabs(v.f) < 9e18))
            jj_fail(j, "%%%c: the number is beyond 64 bits", letter);
        const long long i = v.kind == JJ_FLOAT ? (long long)v.f : (long long)jj_i(v);
        if (letter == 'x' && i < 0)
            jj_fail(j, "%%x of a negative number is not supported");
        snprintf(out, sizeof out, format, i);
    }
    jj_puts(j, t, out);
}

static V format_percent(struct jinja *j, const struct jj_str *s, V values)
{
    enum { MAY_STAY = JJ_KIND(DICT) | JJ_KIND(LIST) | JJ_KIND(UNDEFINED) | JJ_KIND(RANGE_OF) };
    struct jj_text t = {0};
    const bool tuple = values.kind == JJ_TUPLE;
    const size_t n = tuple ? values.list->n : 1;
    const V *v = tuple ? values.list->v : &values;
    size_t used = 0;
    for (size_t i = 0; i < s->n; i++) {
        char spec[8] = "";
        const bool plain = s->s[i] != '%';
        for (size_t k = 0; !plain && ++i < s->n && s->s[i] && strchr("0123456789.-+ ", s->s[i]) && k < 7; k++)
            spec[k] = s->s[i];
        if (i >= s->n)
            jj_fail(j, "%%: the format is not complete");
        if (plain || s->s[i] == '%')
            jj_put(j, &t, s->s + i, 1);
        else if (used == n)
            jj_fail(j, "%%: more conversions than values");
        else
            put_percent(j, &t, spec, s->s[i], v[used++]);
    }
    if (used < n && !(MAY_STAY >> values.kind & 1))
        jj_fail(j, "%%: fewer conversions than values");
    return jj_text(j, &t);
}

V jj_operation(struct jinja *j, int op, V a, V b)
{
    const char name[3] = { (char)(op & 255), (char)(op >> 8), 0 };
    if (jj_whole(a) && jj_whole(b) && op != '/' && !(op == JJ_OP2('*', '*') && jj_i(b) < 0))
        return jj_int(whole_operation(j, op, jj_i(a), jj_i(b)));
    if (jj_number(a) && jj_number(b))
        return jj_float(float_operation(j, op, jj_f(a), jj_f(b)));
    if (op == '%' && a.kind == JJ_STR)
        return format_percent(j, a.s, b);
    if (op == '*') {
        const V seq = jj_whole(a) ? b : a, times = jj_whole(a) ? a : b;
        if (jj_whole(times) && (seq.kind == JJ_STR || seq.kind == JJ_LIST || seq.kind == JJ_TUPLE))
            return repeat(j, seq, jj_i(times));
    }
    if (op != '+' || a.kind != b.kind || (a.kind != JJ_STR && a.kind != JJ_LIST && a.kind != JJ_TUPLE))
        jj_no_operation(j, a, b, name);
    if (a.kind == JJ_STR)
        return joined(j, a.s, b.s);
    V r = jj_list(j, a.kind);
    jj_step(j, a.list->n + b.list->n);
    for (size_t i = 0; i < a.list->n + b.list->n; i++)
        jj_append(j, r.list, i < a.list->n ? a.list->v[i] : b.list->v[i - a.list->n]);
    return r;
}
