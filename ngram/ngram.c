/* The table of 4-grams. Two hash tables find an entry by its 4-gram and a lead by its token id. Each lead has
 * a list of groups, one for each frequency, most frequent first; each group has a list of its entries, newest
 * first. An entry that occurs once more moves to the neighbouring group. Start reading at ngram_follow. */
#include "ngram/ngram.h"

#include <string.h>

/* uthash takes all its memory from the arena of the table `t` in scope. When uthash doubles its buckets, the
 * old array stays unused until the next reset. All bucket arrays together therefore need twice the size of
 * the largest array. */
static void *arena_take(struct ngram *t, size_t bytes);
#define uthash_malloc(bytes) arena_take(t, bytes)
#define uthash_free(p, bytes) ((void)(p), (void)(bytes))
#define uthash_fatal(message) assert(!message)
/* uthash also doubles its buckets when a single chain is long. The limit bounds how often that happens. */
#define uthash_expand_fyi(table) ((table)->noexpand |= (table)->num_buckets >= t->buckets_max)
#include <uthash.h>
#include <utlist.h>

struct group;

struct entry {
    int32_t gram[4];                   /* the key */
    struct group *group;               /* the group of the entry's frequency */
    struct entry *prev, *next;         /* in the group, newest first */
    UT_hash_handle hh;
};

/* The entries of one lead and one frequency. */
struct group {
    uint32_t frequency;
    struct entry *entries;             /* never empty */
    struct group *prev, *next;         /* groups of the lead, most frequent first; or the free list */
};

struct lead { int32_t id; struct group *groups; UT_hash_handle hh; };

struct ngram {
    size_t n_max, bytes;
    size_t entered;                    /* the 4-grams that begin at [0, entered) are in the table */
    size_t n_entries, n_leads, n_groups;
    struct entry *by_gram;
    struct lead *by_id;
    struct group *free_groups;
    unsigned buckets_max;              /* of each hash table */
    struct entry *entries;             /* [number of 4-grams of n_max tokens] */
    struct lead *leads;                /* [the same] */
    /* [the same + 1]: every group holds an entry, and one more exists while an entry moves */
    struct group *groups;
    char *arena; size_t arena_used, arena_size;
};

enum { GRAM = 4 };
static size_t grams_of(size_t n) { return n < GRAM ? 0 : n - (GRAM - 1); }

/* Buckets for chains of about 5 entries in a full table. The start is above HASH_INITIAL_NUM_BUCKETS because
 * uthash evaluates noexpand only after it has doubled. */
static unsigned buckets_of(size_t n_max)
{
    unsigned n = 2 * HASH_INITIAL_NUM_BUCKETS;
    while (n < n_max / 5)
        n *= 2;
    return n;
}

static size_t arena_bytes(size_t n_max)
{
    return 2 * (sizeof(UT_hash_table) + 2 * (size_t)buckets_of(n_max) * sizeof(UT_hash_bucket));
}

static void *arena_take(struct ngram *t, size_t bytes)
{
    assert(bytes <= t->arena_size - t->arena_used);
    void *p = t->arena + t->arena_used;
    t->arena_used += (bytes + 7) / 8 * 8;
    return p;
}

size_t ngram_bytes(size_t n_max)
{
    const size_t each = sizeof(struct entry) + sizeof(struct lead) + sizeof(struct group);
    size_t n;
    if (n_max > UINT32_MAX || !mul_size(grams_of(n_max), each, &n) ||
        !add_size(n, sizeof(struct ngram) + sizeof(struct group) + arena_bytes(n_max), &n))
        return SIZE_MAX;
    return n;
}

int ngram_open(struct ngram **out, size_t n_max, struct err *e)
{
    size_t bytes = ngram_bytes(n_max), n = grams_of(n_max);
    struct ngram *t = bytes == SIZE_MAX ? NULL : mem_alloc(bytes);
    *out = NULL;
    if (!t)
        return err_set(e, ERR_FAILED, "4-gram table: no memory for a text of %zu tokens", n_max);
    t->n_max = n_max;
    t->bytes = bytes;
    t->buckets_max = buckets_of(n_max);
    t->entries = (struct entry *)(void *)(t + 1);
    t->leads = (struct lead *)(void *)(t->entries + n);
    t->groups = (struct group *)(void *)(t->leads + n);
    t->arena = (char *)(t->groups + n + 1);
    t->arena_size = arena_bytes(n_max);
    *out = t;
    return 0;
}

void ngram_close(struct ngram *t)
{
    if (t)
        mem_free(t, t->bytes);
}

void ngram_reset(struct ngram *t)
{
    t->by_gram = NULL;
    t->by_id = NULL;
    t->free_groups = NULL;
    t->entered = t->n_entries = t->n_leads = t->n_groups = t->arena_used = 0;
}

static struct lead *lead_of(struct ngram *t, int32_t id)
{
    struct lead *l;
    HASH_FIND(hh, t->by_id, &id, sizeof id, l);
    if (!l) {
        l = &t->leads[t->n_leads++];
        *l = (struct lead){ .id = id };
        HASH_ADD(hh, t->by_id, id, sizeof id, l);
    }
    return l;
}

static struct group *new_group(struct ngram *t, uint32_t frequency)
{
    struct group *g = t->free_groups;
    if (g)
        t->free_groups = g->next;
    else
        g = &t->groups[t->n_groups++];
    *g = (struct group){ .frequency = frequency };
    return g;
}

/* Moves x, which has just occurred once more, to the front of the group of its new frequency. */
static void raise_frequency(struct ngram *t, struct lead *l, struct entry *x)
{
    struct group *old = x->group, *g;
    if (!old) {  /* first occurrence: frequency 1 is the last group */
        g = l->groups ? l->groups->prev : NULL;             /* in utlist the head's prev is the tail */
        if (!g || g->frequency != 1) {
            g = new_group(t, 1);
            DL_APPEND(l->groups, g);
        }
    } else {
        g = old == l->groups ? NULL : old->prev;
        if (!g || g->frequency != old->frequency + 1) {
            g = new_group(t, old->frequency + 1);
            DL_PREPEND_ELEM(l->groups, old, g);
        }
        DL_DELETE(old->entries, x);
        if (!old->entries) {
            DL_DELETE(l->groups, old);
            old->next = t->free_groups;
            t->free_groups = old;
        }
    }
    DL_PREPEND(g->entries, x);
    x->group = g;
}

void ngram_follow(struct ngram *t, const int32_t *tokens, size_t n_visible)
{
    assert(n_visible <= t->n_max);
    for (; t->entered < grams_of(n_visible); t->entered++) {
        const int32_t *gram = tokens + t->entered;
        struct entry *x;
        HASH_FIND(hh, t->by_gram, gram, sizeof x->gram, x);
        if (!x) {
            x = &t->entries[t->n_entries++];
            x->group = NULL;
            memcpy(x->gram, gram, sizeof x->gram);
            HASH_ADD(hh, t->by_gram, gram, sizeof x->gram, x);
        }
        raise_frequency(t, lead_of(t, gram[0]), x);
    }
}

size_t ngram_top(const struct ngram *t, int32_t lead, size_t k, int32_t (*next)[3], uint32_t *frequency)
{
    const struct lead *l;
    size_t n = 0;
    HASH_FIND(hh, t->by_id, &lead, sizeof lead, l);
    for (const struct group *g = l ? l->groups : NULL; g && n < k; g = g->next)
        for (const struct entry *x = g->entries; x && n < k; x = x->next, n++) {
            memcpy(next[n], x->gram + 1, sizeof next[n]);
            frequency[n] = g->frequency;
        }
    return n;
}
