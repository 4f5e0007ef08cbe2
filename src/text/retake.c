/* The list of retakes, and what the loop rule makes of it. Start at retake_of_loop. */
#include "src/text/retake.h"

#include <stdlib.h>

int retakes_add(struct retakes *l, const struct retake *x, struct err *e)
{
    if (!array_grow(&l->v, l->n, sizeof *l->v))
        return err_set(e, ERR_FAILED, "out of memory for %zu retakes", l->n + 1);
    l->v[l->n++] = *x;
    return 0;
}

void retakes_free(struct retakes *l)
{
    free(l->v);
    *l = (struct retakes){0};
}

size_t retakes_forbidden(const struct retakes *l, size_t at, int32_t id[FORBIDDEN_MAX])
{
    size_t from = l->n, n = 0;
    while (from > 0 && l->v[from - 1].at >= at)
        from--;
    for (size_t i = from; i < l->n && n < FORBIDDEN_MAX; i++)
        if (l->v[i].at == at)
            id[n++] = l->v[i].token;
    return n;
}

/* The series that a retake from `since` would belong to. */
struct series { size_t n, cut, furthest; };

static struct series series_of(const struct retakes *l, size_t since)
{
    struct series s = {0};
    for (size_t i = 0; i < l->n; i++) {
        const struct retake *x = &l->v[i];
        if (*x->phrase)
            continue;
        if (s.n && x->since >= s.furthest + RETAKE_SERIES)
            s = (struct series){0};
        s.n++;
        s.cut += x->length - x->at;
        s.furthest = MAX(s.furthest, x->since);
    }
    return s.n && since >= s.furthest + RETAKE_SERIES ? (struct series){0} : s;
}

enum retake_verdict retake_of_loop(const struct retakes *l, size_t since, size_t n,
                                   const struct retake_limits *x, size_t *at)
{
    const struct series s = series_of(l, since);
    const bool ends = s.n >= x->most || s.cut >= RETAKE_CUT_MAX;
    *at = MAX(x->floor, since);
    assert(*at < n);
    return !ends ? RETAKE_CUTS : *at < x->min_tokens ? RETAKE_NOT : RETAKE_ENDS;
}

size_t retake_settled(const struct loop *l, const struct banned_match *m, size_t n, size_t before)
{
    size_t from = n;
    if (l) {
        from -= MIN(n, (size_t)LOOP_GRAM - 1);
        loop_run(l, &from);
    }
    return MAX(before, m->phrases ? MIN(from, banned_may_begin(m, n)) : from);
}
