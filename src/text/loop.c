/* The loop rule of src/text/loop.h. A hash table maps each gram (LOOP_GRAM tokens) of the last windows to
 * its newest position. Start at loop_token. */
#include "src/text/loop.h"

#include <stdlib.h>
#include <string.h>

enum { RING = 4 * LOOP_WINDOW, SLOTS = 4 * LOOP_WINDOW };
_Static_assert((RING & (RING - 1)) == 0 && (SLOTS & (SLOTS - 1)) == 0, "positions are masked");

struct loop {
    size_t n;                        /* tokens so far */
    size_t since;                    /* the first position whose gram is in the table */
    int32_t token[RING];             /* indexed by position & (RING - 1) */
    uint32_t slot[SLOTS];            /* newest position of a gram (its last token) - since + 1; 0: free */
    size_t score;                    /* of the run */
    size_t repeats, distance;        /* of the run's repeating tokens: number, sum of distances */
    size_t start, highest, at_highest;
    bool found, ended;               /* inside a found repetition; the last token ended one */
    struct repetition last;
};

int loop_open(struct loop **l, struct err *e)
{
    *l = calloc(1, sizeof **l);
    return *l ? 0 : err_set(e, ERR_FAILED, "no memory for the loop rule (%zu bytes)", sizeof **l);
}

void loop_close(struct loop *l) { free(l); }

static bool same_gram(const struct loop *l, size_t a, size_t b)
{
    for (size_t i = 0; i < LOOP_GRAM; i++)
        if (l->token[(a - i) & (RING - 1)] != l->token[(b - i) & (RING - 1)])
            return false;
    return true;
}

/* The slot of the gram that ends at `at`, or the free slot for it. */
static uint32_t *slot_of(struct loop *l, size_t at)
{
    uint64_t h = 0;
    for (size_t i = 0; i < LOOP_GRAM; i++)
        h = (h ^ (uint32_t)l->token[(at - i) & (RING - 1)]) * UINT64_C(0x9e3779b97f4a7c15);
    size_t i = (size_t)(h >> 40) & (SLOTS - 1);
    while (l->slot[i] && !same_gram(l, l->since + l->slot[i] - 1, at))
        i = (i + 1) & (SLOTS - 1);
    return &l->slot[i];
}

/* Rebuilds the table with the grams of the last window. This happens every LOOP_WINDOW tokens, so the
 * table is at most half full and never refers to a token that has left the ring. */
static void rebuild(struct loop *l)
{
    memset(l->slot, 0, sizeof l->slot);
    l->since = l->n - LOOP_WINDOW;
    for (size_t at = l->since; at < l->n; at++)
        *slot_of(l, at) = (uint32_t)(at - l->since + 1);
}

/* Stores the token. Returns the distance of the newest place with its gram, 0 if the window has none. */
static size_t store(struct loop *l, int32_t id)
{
    size_t at = l->n++, distance = 0;
    l->token[at & (RING - 1)] = id;
    if (at + 1 < LOOP_GRAM)
        return 0;
    uint32_t *s = slot_of(l, at);
    if (*s && at - (l->since + *s - 1) <= LOOP_WINDOW)
        distance = at - (l->since + *s - 1);
    *s = (uint32_t)(at - l->since + 1);
    if (l->n - l->since == 2 * LOOP_WINDOW)
        rebuild(l);
    return distance;
}

static void end_run(struct loop *l)
{
    l->ended = l->found;
    l->found = false;
    l->score = l->repeats = l->distance = l->highest = 0;
}

void loop_restart(struct loop *l)
{
    end_run(l);
    l->ended = false;
}

void loop_given(struct loop *l, int32_t id)
{
    l->ended = false;
    store(l, id);
}

bool loop_token(struct loop *l, int32_t id)
{
    const size_t at = l->n, d = store(l, id);
    l->ended = false;
    if (d == 0) {
        l->score -= MIN(l->score, (size_t)LOOP_FALL);
        if (l->score == 0 || (l->found && l->score + LOOP_LEAVE <= l->highest))
            end_run(l);
        return false;
    }
    if (l->score == 0)
        l->start = at + 1 - LOOP_GRAM;
    l->repeats++;
    l->distance += d;
    if (++l->score >= l->highest) {
        l->highest = l->score;
        l->at_highest = at;
    }
    if (l->found) {
        l->last.end = l->at_highest + 1;
        l->last.period = (l->distance + l->repeats / 2) / l->repeats;
        return false;
    }
    if (l->score < LOOP_SCORE || l->score * l->repeats < LOOP_COPIES * l->distance)
        return false;
    l->found = true;
    l->highest = l->score;
    l->at_highest = at;
    l->last = (struct repetition){ l->start, at, at + 1, (l->distance + l->repeats / 2) / l->repeats };
    return true;
}

bool loop_run(const struct loop *l, size_t *start)
{
    if (l->score)
        *start = l->start;
    return l->score > 0;
}

bool loop_current(const struct loop *l, struct repetition *r)
{
    if (l->found)
        *r = l->last;
    return l->found;
}

bool loop_ended(const struct loop *l, struct repetition *r)
{
    if (l->ended)
        *r = l->last;
    return l->ended;
}
