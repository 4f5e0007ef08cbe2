/* The index of earlier places. `newest` and `older` chain the places by a hash of their last `key` tokens; a
 * query walks one chain. `same_gram` and `older_gram` chain them by a rolling hash of their last most + 1
 * tokens; indexing uses these chains to drop an older place with the same gram. Start reading at enter(). */
#include "ngram/suffix.h"

#include <string.h>

enum { KEY_MAX = 8 };
static const uint64_t MULTIPLIER = UINT64_C(0x9E3779B97F4A7C15);

struct suffix {
    size_t n_max, bytes, least, most, key;
    int shift;                           /* hash >> shift is below the number of chains */
    size_t n;                            /* indexed tokens: the places [key - 1, n - 1) have been entered */
    uint64_t gram_hash, gram_drop;       /* rolling hash of the last most + 1 tokens; MULTIPLIER^(most + 1) */
    /* Places are stored plus 1; 0 stands for none. */
    uint32_t *newest, *same_gram;        /* [chains]: by the last `key` tokens; by the (most + 1)-gram */
    uint32_t *older, *newer;             /* [n_max]: neighbours in a chain of `newest` */
    uint32_t *older_gram;                /* [n_max]: next in a chain of `same_gram` */
};

static int log_chains(size_t n_max)
{
    int log = 4;
    while (log < 32 && ((size_t)1 << log) < n_max)
        log++;
    return log;
}

size_t suffix_bytes(size_t n_max)
{
    size_t n;
    if (n_max >= UINT32_MAX || !mul_size(n_max, 3, &n) || !add_size(n, (size_t)2 << log_chains(n_max), &n) ||
        !mul_size(n, sizeof(uint32_t), &n) || !add_size(n, sizeof(struct suffix), &n))
        return SIZE_MAX;
    return n;
}

int suffix_open_lengths(struct suffix **out, size_t n_max, size_t least, size_t most, struct err *e)
{
    assert(1 <= least && least <= most);
    size_t bytes = suffix_bytes(n_max), chains = (size_t)1 << log_chains(n_max);
    struct suffix *s = bytes == SIZE_MAX ? NULL : mem_alloc(bytes);
    *out = NULL;
    if (!s)
        return err_set(e, ERR_FAILED, "index of matches: no memory for a text of %zu tokens", n_max);
    *s = (struct suffix){ .n_max = n_max, .bytes = bytes, .least = least, .most = most,
                          .key = MIN(least, (size_t)KEY_MAX),
                          .shift = 64 - log_chains(n_max), .gram_drop = 1 };
    for (size_t i = 0; i <= most; i++)
        s->gram_drop *= MULTIPLIER;
    s->newest = (uint32_t *)(void *)(s + 1);
    s->same_gram = s->newest + chains;
    s->older = s->same_gram + chains;
    s->newer = s->older + n_max;
    s->older_gram = s->newer + n_max;
    *out = s;
    return 0;
}

int suffix_open(struct suffix **s, size_t n_max, struct err *e)
{
    return suffix_open_lengths(s, n_max, SUFFIX_LEAST, SUFFIX_MOST, e);
}

void suffix_close(struct suffix *s)
{
    if (s)
        mem_free(s, s->bytes);
}

void suffix_reset(struct suffix *s)
{
    size_t chains = (size_t)1 << (64 - s->shift);
    if (s->n)
        memset(s->newest, 0, 2 * chains * sizeof *s->newest);
    s->n = 0;
    s->gram_hash = 0;
}

/* The high bits of the product depend on all bits of x. */
static size_t chain_of(const struct suffix *s, uint64_t x)
{
    return (x ^ x >> 32) * UINT64_C(0xD6E8FEB86659FD93) >> s->shift;
}

/* ---- indexing ---- */

/* Removes place p from its chain of `newest`. */
static void unlink_place(struct suffix *s, size_t chain, size_t p)
{
    if (s->newer[p])
        s->older[s->newer[p] - 1] = s->older[p];
    else
        s->newest[chain] = s->older[p];
    if (s->older[p])
        s->newer[s->older[p] - 1] = s->newer[p];
}

/* Enters the place before token i, which is its follower. */
static void enter(struct suffix *s, const int32_t *tokens, size_t i)
{
    const size_t p = i - 1, gram = s->most + 1;
    uint64_t h = 0;
    for (size_t j = 0; j < s->key; j++)
        h = h * MULTIPLIER + (uint32_t)tokens[p - s->key + 1 + j] + 1;
    const size_t chain = chain_of(s, h);
    if (i + 1 >= gram) {
        const size_t bucket = chain_of(s, s->gram_hash);
        uint32_t *link = &s->same_gram[bucket];
        while (*link && memcmp(tokens + *link - gram + 1, tokens + i - gram + 1, gram * sizeof *tokens))
            link = &s->older_gram[*link - 1];
        if (*link) {                                   /* an older place with this gram leaves both chains */
            size_t old = *link - 1;
            *link = s->older_gram[old];
            unlink_place(s, chain, old);
        }
        s->older_gram[p] = s->same_gram[bucket];
        s->same_gram[bucket] = (uint32_t)p + 1;
    }
    s->older[p] = s->newest[chain];
    s->newer[p] = 0;
    if (s->older[p])
        s->newer[s->older[p] - 1] = (uint32_t)p + 1;
    s->newest[chain] = (uint32_t)p + 1;
}

void suffix_follow(struct suffix *s, const int32_t *tokens, size_t n)
{
    assert(n <= s->n_max);
    for (size_t i = s->n; i < n; i++) {
        s->gram_hash = s->gram_hash * MULTIPLIER + (uint32_t)tokens[i] + 1;
        if (i > s->most)
            s->gram_hash -= s->gram_drop * ((uint64_t)(uint32_t)tokens[i - s->most - 1] + 1);
        if (i >= s->key)
            enter(s, tokens, i);
    }
    s->n = MAX(s->n, n);
}

/* ---- queries ---- */

/* end: length of tokens and path together */
struct text { const int32_t *tokens; size_t n; const int32_t *path; size_t end; };

static int32_t at(const struct text *x, size_t i) { return i < x->n ? x->tokens[i] : x->path[i - x->n]; }

/* The newest place of the chain that the text's end selects, plus 1; 0 for none. */
static uint32_t first_place(const struct suffix *s, const struct text *x)
{
    uint64_t h = 0;
    if (x->end < s->key)
        return 0;
    for (size_t j = 0; j < s->key; j++)
        h = h * MULTIPLIER + (uint32_t)at(x, x->end - s->key + j) + 1;
    return s->newest[chain_of(s, h)];
}

/* The length of the match at p, within [from, end) and at most limit; 0 unless it is longer than `best`. The
 * comparison begins at the token that a longer match needs. */
static size_t longer(const struct text *x, size_t p, size_t from, size_t best, size_t limit)
{
    limit = p < from ? 0 : MIN(limit, p - from + 1);
    if (limit <= best)
        return 0;
    for (size_t j = best + 1; j-- > 0; )
        if (at(x, p - j) != at(x, x->end - 1 - j))
            return 0;
    size_t length = best + 1;
    while (length < limit && at(x, p - length) == at(x, x->end - 1 - length))
        length++;
    return length;
}

/* Visits places newest first: the places that are not indexed yet, then the places of the chain. */
#define FOR_PLACES(p, s, x) \
    for (size_t p##_late = (x).end < 2 ? 0 : (x).end - 1, p##_first = (s)->n ? (s)->n - 1 : 0, \
                p##_link = first_place(s, &(x)), p; \
         p##_late > p##_first ? (p = --p##_late, true) \
         : p##_link           ? (p = p##_link - 1, p##_link = (s)->older[p], true) \
                              : false; )

size_t suffix_longest(const struct suffix *s, const int32_t *tokens, size_t n, const int32_t *path,
                      size_t n_path, int32_t *next, size_t max, size_t *n_next)
{
    const struct text x = { tokens, n, path, n + n_path };
    size_t best = s->least - 1, place = 0;
    assert(n >= s->n && max <= SUFFIX_NEXT_MAX);
    *n_next = 0;
    FOR_PLACES(p, s, x) {
        size_t length = longer(&x, p, 0, best, s->most);
        if (length) {
            best = length;
            place = p;
            if (best == s->most)
                break;
        }
    }
    if (best < s->least)
        return 0;
    for (size_t i = place + 1; *n_next < max; i++, ++*n_next)
        next[*n_next] = i < x.end ? at(&x, i) : next[i - x.end];
    return best;
}

void suffix_followers(const struct suffix *s, const int32_t *tokens, size_t n, const int32_t *path,
                      size_t n_path, size_t from, size_t limit, struct followers *f)
{
    const struct text x = { tokens, n, path, n + n_path };
    assert(n >= s->n && limit <= s->most);
    f->n = 0;
    if (limit < s->least)
        return;
    FOR_PLACES(p, s, x) {
        int32_t v = at(&x, p + 1);
        size_t best = f->length[v], length = longer(&x, p, from, MAX(best, s->least - 1), limit);
        if (length) {
            if (!best)
                f->ids[f->n++] = v;
            f->length[v] = (uint32_t)length;
        }
        if (p < from)
            break;
    }
}
