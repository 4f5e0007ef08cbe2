/* Distinct-n. Words get numbers, and n-grams get numbers as pairs (struct numbers). Start at
 * distinct_symbol. */
#include "src/text/distinct.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/unicode.h"
#include "src/text/word_tables.h"

/* ---- numbers for pairs and words ---- */

/* A hash table with open addressing, at most 3/4 full. An n-gram is the pair (number of its first n - 1
 * symbols, its last symbol), so 64 bits hold it exactly. The key of a word is its hash. The n-th new key gets
 * number n; number 0 marks a free slot. */
struct numbers { uint64_t *key; uint32_t *number; size_t n, room; };

struct tables {
    struct numbers grams[DISTINCT_MAX], words;
    char *bytes; size_t n_bytes, bytes_room;     /* all words, then the word in progress */
    size_t word;                                 /* start of the word in progress */
    size_t *end, end_room;                       /* [words.n]: where the bytes of word number i + 1 end */
    uint32_t *said; size_t n_said, said_room;    /* the numbers of the text's words */
    char tail[4]; size_t n_tail;                 /* an unfinished code point */
    size_t offset;                               /* of the tail in the text */
};

static size_t spread(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return (size_t)(x ^ x >> 32);
}

static int grow(struct numbers *s, const char *what, struct err *e)
{
    struct numbers t = { .n = s->n, .room = s->room ? 2 * s->room : 1 << 10 };
    t.key = calloc(t.room, sizeof *t.key);
    t.number = calloc(t.room, sizeof *t.number);
    if (!t.key || !t.number || t.n >= UINT32_MAX / 2) {
        free(t.key);
        free(t.number);
        return err_set(e, ERR_FAILED, "distinct: out of memory after %zu different %s", s->n, what);
    }
    for (size_t i = 0; i < s->room; i++)
        if (s->number[i]) {
            size_t j = spread(s->key[i]) & (t.room - 1);
            while (t.number[j])
                j = (j + 1) & (t.room - 1);
            t.key[j] = s->key[i];
            t.number[j] = s->number[i];
        }
    free(s->key);
    free(s->number);
    *s = t;
    return 0;
}

/* Whether the word in progress is the word of this number. */
static bool is_word(const struct distinct *d, uint32_t number)
{
    const struct tables *w = d->tables;
    size_t n;
    const char *word = distinct_word(d, number, &n);
    return n == w->n_bytes - w->word && memcmp(word, w->bytes + w->word, n) == 0;
}

/* The number of a key, which of a word is that of the word in progress; a new one gets the next number. */
static int number_of(struct distinct *d, struct numbers *s, uint64_t key, uint32_t *number, struct err *e)
{
    const bool word = s == &d->tables->words;
    if (4 * (s->n + 1) > 3 * s->room && grow(s, word ? "words" : "n-grams", e))
        return -1;
    size_t i = spread(key) & (s->room - 1);
    while (s->number[i] && !(s->key[i] == key && (!word || is_word(d, s->number[i]))))
        i = (i + 1) & (s->room - 1);
    if (!s->number[i]) {
        s->key[i] = key;
        s->number[i] = (uint32_t)++s->n;
    }
    *number = s->number[i];
    return 0;
}

/* ---- words ---- */

/* *list with room for `more` elements of `size` bytes after n. */
static int room_for(void *list, size_t *room, size_t n, size_t more, size_t size, struct err *e)
{
    void **v = list;
    if (n + more <= *room)
        return 0;
    const size_t grown = *room ? 2 * *room : 1 << 10;
    void *p = realloc(*v, grown * size);
    if (!p)
        return err_set(e, ERR_FAILED, "distinct: out of memory (%zu bytes)", grown * size);
    *v = p;
    *room = grown;
    return 0;
}

static int word_append(struct tables *w, uint32_t c, struct err *e)
{
    if (room_for(&w->bytes, &w->bytes_room, w->n_bytes, 4, 1, e))
        return -1;
    w->n_bytes += utf8_put(w->bytes + w->n_bytes, c);
    return 0;
}

/* Ends the word in progress, if there is one. */
static int word_end(struct distinct *d, struct err *e)
{
    struct tables *w = d->tables;
    const size_t n = w->n_bytes - w->word, known = w->words.n;
    uint32_t number;
    if (n == 0)
        return 0;
    if (number_of(d, &w->words, hash64(HASH64_INIT, w->bytes + w->word, n), &number, e) ||
        room_for(&w->end, &w->end_room, known, 1, sizeof *w->end, e) ||
        room_for(&w->said, &w->said_room, w->n_said, 1, sizeof *w->said, e))
        return -1;
    if (number <= known)
        w->n_bytes = w->word;                    /* drop the second copy */
    else
        w->word = w->end[known] = w->n_bytes;
    w->said[w->n_said++] = number;
    return distinct_symbol(d, number, e);
}

static bool in_word(uint32_t c)
{
    const size_t n = sizeof word_ranges / sizeof *word_ranges;
    if (c < 0x80)
        return (c | 0x20) - 'a' < 26u || c - '0' < 10u || c == '\'';
    const size_t i = rows_below(word_ranges, n, sizeof *word_ranges, c + 1);
    return c == 0x2019 || (i > 0 && word_ranges[i - 1].to >= c);
}

static int word_point(struct distinct *d, uint32_t c, struct err *e)
{
    const size_t n = sizeof case_folds / sizeof *case_folds;
    if (!in_word(c))
        return word_end(d, e);
    if (c < 0x80)
        return word_append(d->tables, c - 'A' < 26u ? c | 0x20 : c, e);
    const size_t at = rows_below(case_folds, n, sizeof *case_folds, c);
    if (at == n || case_folds[at].from != c)
        return word_append(d->tables, c, e);
    for (size_t i = 0; i < 3 && case_folds[at].to[i]; i++)
        if (word_append(d->tables, case_folds[at].to[i], e))
            return -1;
    return 0;
}

/* ---- the interface ---- */

int distinct_open(struct distinct *d, struct err *e)
{
    *d = (struct distinct){ .tables = calloc(1, sizeof *d->tables) };
    return d->tables ? 0 : err_set(e, ERR_FAILED, "distinct: out of memory");
}

void distinct_close(struct distinct *d)
{
    struct tables *t = d->tables;
    for (size_t i = 0; t && i <= DISTINCT_MAX; i++) {
        const struct numbers *s = i < DISTINCT_MAX ? &t->grams[i] : &t->words;
        free(s->key);
        free(s->number);
    }
    if (t) {
        free(t->bytes);
        free(t->end);
        free(t->said);
    }
    free(t);
    *d = (struct distinct){0};
}

int distinct_symbol(struct distinct *d, uint32_t symbol, struct err *e)
{
    uint32_t longer = 0;                         /* number of the i symbols before this one; i = 0: 0 */
    size_t n = MIN(d->n_suffix + 1, (size_t)DISTINCT_MAX);
    for (size_t i = 0; i < n; i++) {             /* n-grams of i + 1 symbols that end here */
        uint32_t before = i ? longer : 0;
        longer = d->suffix[i];
        if (number_of(d, &d->tables->grams[i], (uint64_t)before << 32 | symbol, &d->suffix[i], e))
            return -1;
        d->total[i]++;
        d->different[i] = d->tables->grams[i].n;
    }
    d->n_suffix = n;
    return 0;
}

int distinct_text(struct distinct *d, const char *s, size_t n, struct err *e)
{
    struct tables *w = d->tables;
    size_t i = 0;
    uint32_t c;
    if (w->n_tail) {                             /* finish the code point that the last piece cut */
        while (i < n && utf8_incomplete(w->tail, w->n_tail))
            w->tail[w->n_tail++] = s[i++];
        if (utf8_incomplete(w->tail, w->n_tail))
            return 0;
        if (utf8_valid_prefix(w->tail, w->n_tail) != w->n_tail)
            return err_set(e, ERR_INPUT, "invalid UTF-8 at offset %zu", w->offset);
        utf8_get(w->tail, &c);
        if (word_point(d, c, e))
            return -1;
        w->offset += w->n_tail;
        w->n_tail = 0;
    }
    size_t valid = i + utf8_valid_prefix(s + i, n - i), start = i;
    while (i < valid) {
        i += utf8_get(s + i, &c);
        if (word_point(d, c, e))
            return -1;
    }
    w->offset += i - start;
    if (i == n)
        return 0;
    if (!utf8_incomplete(s + i, n - i))
        return err_set(e, ERR_INPUT, "invalid UTF-8 at offset %zu", w->offset);
    memcpy(w->tail, s + i, n - i);
    w->n_tail = n - i;
    return 0;
}

int distinct_end(struct distinct *d, struct err *e)
{
    if (d->tables->n_tail)
        return err_set(e, ERR_INPUT, "invalid UTF-8 at offset %zu", d->tables->offset);
    return word_end(d, e);
}

double distinct_ratio(const struct distinct *d, size_t n)
{
    assert(n >= 1 && n <= DISTINCT_MAX);
    return d->total[n - 1] ? (double)d->different[n - 1] / (double)d->total[n - 1] : NAN;
}

const uint32_t *distinct_words(const struct distinct *d, size_t *n)
{
    *n = d->tables->n_said;
    return d->tables->said;
}

const char *distinct_word(const struct distinct *d, uint32_t number, size_t *n_bytes)
{
    const struct tables *w = d->tables;
    assert(number >= 1 && number <= w->words.n);
    const size_t from = number > 1 ? w->end[number - 2] : 0;
    *n_bytes = w->end[number - 1] - from;
    return w->bytes + from;
}
