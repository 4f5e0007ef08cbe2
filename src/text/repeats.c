/* Finds repeated words and phrases in the numbers of words. Start at repeats_find. */
#include "src/text/repeats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* n-grams of the words by where they last ended. Open addressing; end 0 marks a free slot. A slot is its n
 * words, so equal hashes do no harm. */
struct slot { uint32_t end, count; };
struct grams { const uint32_t *word; size_t n, length; struct slot *slot; size_t room; };

/* The slot of the n-gram that ends before word `end`. */
static struct slot *gram(const struct grams *g, size_t end)
{
    const uint32_t *at = g->word + end - g->length;
    size_t i = hash64(HASH64_INIT, at, g->length * sizeof *at) & (g->room - 1);
    while (g->slot[i].end &&
           memcmp(g->word + g->slot[i].end - g->length, at, g->length * sizeof *at) != 0)
        i = (i + 1) & (g->room - 1);
    return &g->slot[i];
}

static void mark_repeats(struct repeats *r, struct grams *g)
{
    g->length = REPEAT_GRAM;
    for (size_t end = REPEAT_GRAM; end <= g->n; end++) {
        struct slot *s = gram(g, end);
        r->repeats[end - 1] = s->end && end - s->end <= REPEAT_REACH;
        s->end = (uint32_t)end;
    }
}

/* Counts the phrases of `length` words among the words that no phrase has taken. Copies that overlap count
 * once. Returns the end of the phrase that reaches the largest number of copies first; *count is that
 * number. */
static size_t most_repeated(struct grams *g, const uint8_t *taken, size_t length, size_t *count)
{
    size_t free_words = 0, best = 0;
    *count = 0;
    g->length = length;
    memset(g->slot, 0, g->room * sizeof *g->slot);
    for (size_t end = 1; end <= g->n; end++) {
        free_words = taken[end - 1] ? 0 : free_words + 1;
        if (free_words < length)
            continue;
        struct slot *s = gram(g, end);
        if (s->end && end - s->end < length)
            continue;
        s->end = (uint32_t)end;
        if (++s->count > *count)
            *count = s->count, best = end;
    }
    return best;
}

static int add_phrase(struct repeats *r, const struct distinct *d, const uint32_t *word, size_t n,
                      size_t count, struct err *e)
{
    struct phrase *p = &r->phrase[r->n_phrases];
    size_t bytes = 0, length;
    for (size_t i = 0; i < n; i++)
        distinct_word(d, word[i], &length), bytes += length + 1;
    if (!(p->text = malloc(bytes)))
        return err_set(e, ERR_FAILED, "repeats: out of memory");
    char *to = p->text;
    for (size_t i = 0; i < n; i++) {
        const char *from = distinct_word(d, word[i], &length);
        memcpy(to, from, length);
        to[length] = i + 1 < n ? ' ' : 0;
        to += length + 1;
    }
    p->words = n;
    p->count = count;
    r->n_phrases++;
    return 0;
}

/* Marks the copies of the phrase of n words that ends before word `end`. */
static void take(uint8_t *taken, const struct grams *g, size_t end, size_t n)
{
    const uint32_t *phrase = g->word + end - n;
    for (size_t at = 0; at + n <= g->n; at++)
        if (memcmp(g->word + at, phrase, n * sizeof *phrase) == 0 && !memchr(taken + at, 1, n)) {
            memset(taken + at, 1, n);
            at += n - 1;
        }
}

static int find_phrases(struct repeats *r, const struct distinct *d, struct grams *g, uint8_t *taken,
                        struct err *e)
{
    while (r->n_phrases < PHRASES_MAX) {
        size_t best = 0, best_end = 0, best_length = 0, best_count = 0, count;
        for (size_t length = PHRASE_SHORTEST; length <= PHRASE_LONGEST && length <= g->n; length++) {
            const size_t end = most_repeated(g, taken, length, &count);
            if (count < PHRASE_COUNT)
                break;                   /* a longer phrase is not more frequent */
            if (count * length > best)
                best = count * length, best_end = end, best_length = length, best_count = count;
        }
        if (!best)
            return 0;
        take(taken, g, best_end, best_length);
        if (add_phrase(r, d, g->word + best_end - best_length, best_length, best_count, e))
            return -1;
    }
    return 0;
}

int repeats_find(struct repeats *r, const struct distinct *d, struct err *e)
{
    struct grams g = { .room = 64 };
    *r = (struct repeats){0};
    g.word = distinct_words(d, &g.n);
    if (g.n >= UINT32_MAX)
        return err_set(e, ERR_FAILED, "repeats: %zu words, fewer than 2^32 - 1 are allowed", g.n);
    while (g.room < 2 * g.n)
        g.room *= 2;
    g.slot = calloc(g.room, sizeof *g.slot);
    r->repeats = calloc(g.n + 1, 1);
    r->n = g.n;
    uint8_t *taken = calloc(g.n + 1, 1);
    int rc = g.slot && r->repeats && taken ? 0 : err_set(e, ERR_FAILED, "repeats: out of memory");
    if (rc == 0) {
        mark_repeats(r, &g);
        rc = find_phrases(r, d, &g, taken, e);
    }
    free(g.slot);
    free(taken);
    if (rc)
        repeats_close(r);
    return rc;
}

void repeats_close(struct repeats *r)
{
    free(r->repeats);
    for (size_t i = 0; i < r->n_phrases; i++)
        free(r->phrase[i].text);
    *r = (struct repeats){0};
}

double repeats_share(const struct repeats *r, size_t from, size_t to)
{
    size_t n = 0;
    assert(to <= r->n);
    for (size_t i = from; i < to; i++)
        n += r->repeats[i];
    return to > from ? (double)n / (double)(to - from) : NAN;
}
