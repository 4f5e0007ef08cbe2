/* Token counts for the penalties: two multisets that follow a history. Start at token_counts_follow. */
#include <string.h>
#include "src/sample/token_counts.h"

size_t token_counts_bytes(size_t vocab) { return 6 * vocab * sizeof(uint32_t); }

void token_counts_open(struct token_counts *c, const struct sampling *p, size_t vocab, void *memory)
{
    uint32_t *u = memory;
    *c = (struct token_counts){
        .on_window = sampling_has_penalty(p),
        .on_text = sampling_has_text_penalty(p),
        .window = p->penalty_window < 0 ? SIZE_MAX : (size_t)p->penalty_window,
        .last = { u, u + vocab, (int32_t *)(u + 2 * vocab), 0 },
        .text = { u + 3 * vocab, u + 4 * vocab, (int32_t *)(u + 5 * vocab), 0 },
    };
}

static void add(struct count_set *s, int32_t id)
{
    if (s->count[id]++ == 0) {
        s->slot[id] = (uint32_t)s->n;
        s->ids[s->n++] = id;
    }
}

static void drop(struct count_set *s, int32_t id)
{
    assert(s->count[id] > 0);
    if (--s->count[id] == 0) {
        int32_t moved = s->ids[--s->n];
        s->ids[s->slot[id]] = moved;
        s->slot[moved] = s->slot[id];
    }
}

static void clear(struct count_set *s)
{
    for (size_t i = 0; i < s->n; i++)
        s->count[s->ids[i]] = 0;
    s->n = 0;
}

/* Adds token i, and drops the token that leaves the window; or undoes that, with add and drop exchanged. */
typedef void change_fn(struct count_set *s, int32_t id);
static void step(struct token_counts *c, const struct history *h, size_t i, change_fn *enter,
                 change_fn *leave)
{
    if (c->on_window) {
        enter(&c->last, history_token(h, i));
        if (i >= c->window)
            leave(&c->last, history_token(h, i - c->window));
    }
    if (c->on_text && i >= h->n_prompt)
        enter(&c->text, history_token(h, i));
}

static struct device_count *entry_of(struct device_count *list, size_t *n, int32_t id)
{
    size_t i = 0;
    while (i < *n && list[i].id != (uint32_t)id)
        i++;
    if (i == *n)
        list[(*n)++] = (struct device_count){ (uint32_t)id, 0, 0 };
    return &list[i];
}

size_t token_counts_delta(const struct token_counts *c, const struct history *h, size_t from, size_t to,
                          struct device_count *list)
{
    size_t n = 0;
    for (size_t i = from; i < to; i++) {         /* as step */
        if (c->on_window) {
            entry_of(list, &n, history_token(h, i))->window++;
            if (i >= c->window)
                entry_of(list, &n, history_token(h, i - c->window))->window--;
        }
        if (c->on_text && i >= h->n_prompt)
            entry_of(list, &n, history_token(h, i))->text++;
    }
    return n;
}

/* Eight hashes side by side, so that no step waits for the previous one. */
static void hash_on(uint64_t lanes[8], const int32_t *tokens, size_t from, size_t to)
{
    uint64_t l[8];
    memcpy(l, lanes, sizeof l);
    for (; from < to && from % 8; from++)
        l[from % 8] = (l[from % 8] ^ (uint32_t)tokens[from]) * UINT64_C(0x9E3779B97F4A7C15);
    for (; from + 8 <= to; from += 8)
        for (int j = 0; j < 8; j++)
            l[j] = (l[j] ^ (uint32_t)tokens[from + (size_t)j]) * UINT64_C(0x9E3779B97F4A7C15);
    for (; from < to; from++)
        l[from % 8] = (l[from % 8] ^ (uint32_t)tokens[from]) * UINT64_C(0x9E3779B97F4A7C15);
    memcpy(lanes, l, sizeof l);
}

bool history_digest_extend(struct history_digest *k, const struct history *h)
{
    uint64_t lanes[8] = {0};
    bool same = k->n <= h->n && k->n_prompt == h->n_prompt;
    if (same && h->known < k->n) {
        hash_on(lanes, h->tokens, 0, k->n);
        same = !memcmp(lanes, k->lanes, sizeof lanes);
    }
    if (!same)
        *k = (struct history_digest){ .n_prompt = h->n_prompt };
    hash_on(k->lanes, h->tokens, k->n, h->n);
    k->n = h->n;
    return same;
}

void token_counts_follow(struct token_counts *c, const struct history *h, bool extends)
{
    if (!c->on_window && !c->on_text)
        return;
    assert(h->n_prompt <= h->n);
    if (!extends) {
        clear(&c->last);
        clear(&c->text);
        c->n = 0;
    }
    for (size_t i = c->n; i < h->n + h->n_path; i++)
        step(c, h, i, add, drop);
    c->n = h->n;
}

void token_counts_drop_path(struct token_counts *c, const struct history *h)
{
    if (!c->on_window && !c->on_text)
        return;
    for (size_t i = h->n + h->n_path; i-- > h->n; )
        step(c, h, i, drop, add);
}
