/* Arithmetic of numbers, texts and lists. Start at jj_operation. */
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
    struct jj_text t = {0};
    t.cap = a->n + b->n;
    t.s = jj_alloc(j, t.cap);
    for (int k = 0; k < 2; k++) {
        const struct jj_str *s = k ? b : a, *other = k ? a : b;
        if (s->safe || !other->safe) {
            jj_put(j, &t, s->s, s->n);
            continue;
        }
        for (size_t i = 0; i < s->n; i++) {
            static const char marks[] = "&<>'\"", *const names[] = { "&amp;", "&lt;", "&gt;", "&#39;",
                                                                     "&#34;" };
            const char *at = s->s[i] ? strchr(marks, s->s[i]) : NULL;
            if (at)
                jj_puts(j, &t, names[at - marks]);
            else
                jj_put(j, &t, &s->s[i], 1);
        }
    }
    struct jj_str *r = jj_alloc(j, sizeof *r);
    *r = *jj_text(j, &t).s;
    r->safe = a->safe || b->safe;
    return (V){ .kind = JJ_STR, .s = r };
}

V jj_operation(struct jinja *j, int op, V a, V b)
{
    const char name[3] = { (char)(op & 255), (char)(op >> 8), 0 };
    if (jj_whole(a) && jj_whole(b) && op != '/' && !(op == JJ_OP2('*', '*') && jj_i(b) < 0))
        return jj_int(whole_operation(j, op, jj_i(a), jj_i(b)));
    if (jj_number(a) && jj_number(b))
        return jj_float(float_operation(j, op, jj_f(a), jj_f(b)));
    if (op == '%' && a.kind == JJ_STR)
        return jj_format_percent(j, a.s, b);
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
