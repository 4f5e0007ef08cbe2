/* DRY: finds the tokens that would continue a repetition, with an index of the text. Start at dry_enter. */
#include "src/sample/dry.h"

#include <float.h>
#include <string.h>

enum { BREAKS_ALONE = 1, BREAKS_LONGER = 2 };

static bool is_on(const struct sampling *p) { return p->dry_multiplier != 0 && p->dry_last_n != 0; }

static size_t exponent_limit(double base)
{
    size_t k = 0;
    if (base > 1)
        for (double power = base; k < DRY_LIMIT_MAX && power <= FLT_MAX; power *= base)
            k++;
    return k;
}

static size_t own_bytes(size_t vocab) { return vocab * (sizeof(uint32_t) + sizeof(int32_t) + 1); }

size_t dry_bytes(const struct sampling *p, size_t vocab)
{
    size_t n = 0;
    if (is_on(p) && !add_size(suffix_bytes(p->text_max), own_bytes(vocab), &n))
        return SIZE_MAX;
    return n;
}

int dry_open(struct dry *d, const struct sampling *p, size_t vocab, struct err *e)
{
    *d = (struct dry){ .on = is_on(p), .p = p };
    if (!d->on)
        return 0;
    assert(p->text_max > 0);
    d->limit = exponent_limit(p->dry_base);
    d->bytes = own_bytes(vocab);
    if (suffix_open_lengths(&d->index, p->text_max, p->dry_allowed, p->dry_allowed + d->limit, e))
        return err_while(e, "--dry-multiplier");
    if (!(d->memory = mem_alloc(d->bytes))) {
        dry_close(d);
        return err_set(e, ERR_FAILED, "--dry-multiplier: no memory for %zu bytes", d->bytes);
    }
    d->found.length = d->memory;
    d->found.ids = (int32_t *)(d->found.length + vocab);
    d->breaks = (unsigned char *)(d->found.ids + vocab);
    for (size_t i = 0; i < p->n_dry_breakers; i++)
        d->breaks[p->dry_breakers[i].ids[0]] |= p->dry_breakers[i].n == 1 ? BREAKS_ALONE : BREAKS_LONGER;
    return 0;
}

void dry_close(struct dry *d)
{
    suffix_close(d->index);
    mem_free(d->memory, d->bytes);
    *d = (struct dry){0};
}

/* The length of the longest breaker that begins at i and ends at `end` or before; 0 if there is none. */
static size_t breaker_at(const struct dry *d, const struct history *h, size_t i, size_t end)
{
    const struct dry_breaker *b = d->p->dry_breakers;
    const int32_t first = history_token(h, i);
    size_t lo = 0, hi = d->p->n_dry_breakers, best = d->breaks[first] & BREAKS_ALONE ? 1 : 0;
    if (!(d->breaks[first] & BREAKS_LONGER))
        return best;
    while (lo < hi) {                                     /* finds the first breaker that begins with
                                                           * `first` */
        size_t mid = lo + (hi - lo) / 2;
        if (b[mid].ids[0] < first) lo = mid + 1; else hi = mid;
    }
    for (; lo < d->p->n_dry_breakers && b[lo].ids[0] == first; lo++) {
        size_t j = 1;
        if (b[lo].n <= best || b[lo].n > end - i)
            continue;
        while (j < b[lo].n && b[lo].ids[j] == history_token(h, i + j))
            j++;
        if (j == b[lo].n)
            best = j;
    }
    return best;
}

/* The number of tokens after the breaker that begins nearest to the end, at most `most`. Breakers lie within
 * [from, end). */
static size_t tokens_after_breaker(const struct dry *d, const struct history *h, size_t from, size_t most)
{
    const size_t end = h->n + h->n_path;
    for (size_t i = end; i > from && end - i < most + DRY_BREAKER_MAX; ) {
        size_t n = breaker_at(d, h, --i, end);
        if (n)
            return MIN(end - i - n, most);
    }
    return most;
}

void dry_enter(struct dry *d, const struct history *h, bool extends)
{
    if (!d->on)
        return;
    const size_t end = h->n + h->n_path, last = d->p->dry_last_n < 0 ? SIZE_MAX : (size_t)d->p->dry_last_n,
                 from = end > last ? end - last : 0;
    if (!extends)
        suffix_reset(d->index);
    suffix_follow(d->index, h->tokens, h->n);
    const size_t most = tokens_after_breaker(d, h, from, d->p->dry_allowed + d->limit);
    suffix_followers(d->index, h->tokens, h->n, h->path, h->n_path, from, most, &d->found);
    size_t n = 0;
    for (size_t i = 0; i < d->found.n; i++) {             /* breakers of one token get no penalty */
        int32_t id = d->found.ids[i];
        if (d->breaks[id] & BREAKS_ALONE)
            d->found.length[id] = 0;
        else
            d->found.ids[n++] = id;
    }
    d->found.n = n;
}

double dry_penalty(const struct dry *d, int32_t id)
{
    double power = 1, square = d->p->dry_base;
    for (size_t k = d->found.length[id] - d->p->dry_allowed; k; k /= 2, square *= square)
        if (k & 1)
            power *= square;
    return d->p->dry_multiplier * power;
}

void dry_leave(struct dry *d)
{
    for (size_t i = 0; i < d->found.n; i++)
        d->found.length[d->found.ids[i]] = 0;
    d->found.n = 0;
}
