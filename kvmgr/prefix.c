/* Texts whose caches can be shared: a list, searched from end to end. Start reading at prefix_find. */
#include "kvmgr/prefix.h"

#include <stdlib.h>

static struct kv *cache_of(struct prefix *x) { return x->kv ? x->kv : &x->own; }

static struct kv_mark *mark_of(struct kv *kv) { return kv->state ? &kv->state->mark : &kv->mark; }

static size_t common(const int32_t *a, const int32_t *b, size_t n)
{
    size_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* Of `same` rows in common: those that another cache can begin with now, or once the text has been read. */
static size_t shared_now(struct kv *kv, size_t same, size_t has)
{
    const size_t rows = MIN(same, has), whole = rows / KV_BLOCK * KV_BLOCK, at = mark_of(kv)->at;
    if (!kv->state && kv_holds(kv, whole))
        return kv->ring ? whole : rows;
    return at <= same ? at : 0;
}

/* Whether a mark may move back from its aim to a split. */
static bool worth(size_t split, size_t aim) { return split >= KV_BLOCK && split >= aim - split; }

/* The rows in common that another cache can begin with later: `aim` is where the mark then lies. */
static size_t shared_later(struct kv *kv, size_t same, size_t has, size_t *aim)
{
    const struct kv_mark *m = mark_of(kv);
    const size_t split = same / KV_BLOCK * KV_BLOCK;
    if (!kv->state && !kv->ring)
        return same;
    *aim = m->want;
    if (!m->copy || m->at > split)                   /* it shares more already */
        return 0;
    if (has < split && (m->want <= has || split > m->want || worth(split, m->want)))
        *aim = split;
    return has < *aim && *aim <= same ? *aim : 0;
}

size_t prefix_mark(size_t n_prompt, size_t n_rows, size_t n_split)
{
    const size_t end = MAX((n_prompt - 1) / KV_BLOCK * KV_BLOCK, (size_t)KV_BLOCK);
    return n_split > n_rows && (n_split > end || worth(n_split, end)) ? n_split : MAX(end, n_rows);
}

struct prefix_match prefix_find(struct prefixes *p, const int32_t *tokens, size_t n)
{
    struct prefix_match m = { 0 };
    struct prefix *best = NULL;
    struct kv_mark *coming = NULL;
    size_t mark = 0, aim = 0;
    for (size_t i = 0; i < p->n && n > 0; i++) {
        struct prefix *x = &p->v[i];
        /* a decoder may have rows of tokens that it does not have yet */
        const size_t has = x->n_tokens ? MIN(*x->n_tokens, cache_of(x)->n_past) : cache_of(x)->n_past,
                     will = x->n_tokens ? MAX(*x->n_tokens - 1, has) : has,
                     same = common(x->tokens, tokens, MIN(will, n - 1)),
                     rows = shared_now(cache_of(x), same, has),
                     later = shared_later(cache_of(x), same, has, &aim);
        if (later > m.n_coming) {
            m.n_coming = later;
            coming = mark_of(cache_of(x));
            mark = aim;
        }
        m.n_split = MAX(m.n_split, same / KV_BLOCK * KV_BLOCK);
        if (rows >= KV_BLOCK && (rows > m.n_rows || (rows == m.n_rows && x->used > best->used))) {
            m.n_rows = rows;
            best = x;
        }
    }
    if (coming && coming->copy && m.n_coming > m.n_rows)
        coming->want = mark;
    if (best) {
        m.kv = cache_of(best);
        best->used = ++p->uses;
    }
    return m;
}

static struct prefix *add(struct prefixes *p)
{
    return array_grow(&p->v, p->n, sizeof *p->v) ? &p->v[p->n++] : NULL;
}

static void take_out(struct prefixes *p, size_t i) { p->v[i] = p->v[--p->n]; }

void prefix_join(struct prefixes *p, struct kv *kv, const int32_t *tokens, const size_t *n_tokens)
{
    struct prefix *x = kv->state && !kv->state->mark.copy ? NULL : add(p);
    if (x)
        *x = (struct prefix){ .kv = kv, .tokens = tokens, .n_tokens = n_tokens, .used = ++p->uses };
}

void prefix_leave(struct prefixes *p, const struct kv *kv)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->v[i].kv == kv) {
            take_out(p, i);
            return;
        }
}

void prefix_keep(struct prefixes *p, struct kv *kv, int32_t *tokens)
{
    struct prefix *x = kv->n_past >= KV_BLOCK && (!kv->state || kv->state->mark.at) ? add(p) : NULL;
    if (!x) {
        kv_close(kv);
        free(tokens);
        return;
    }
    kv_retire(kv);
    *x = (struct prefix){ .own = *kv, .tokens = tokens, .used = ++p->uses };
    *kv = (struct kv){ 0 };
}

bool prefix_drop(struct prefixes *p)
{
    size_t oldest = SIZE_MAX;
    for (size_t i = 0; i < p->n; i++)
        if (!p->v[i].kv && (oldest == SIZE_MAX || p->v[i].used < p->v[oldest].used))
            oldest = i;
    if (oldest == SIZE_MAX)
        return false;
    kv_close(&p->v[oldest].own);
    free((int32_t *)p->v[oldest].tokens);
    take_out(p, oldest);
    return true;
}

size_t prefix_kept_bytes(const struct prefixes *p)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        if (!p->v[i].kv)
            n += p->v[i].own.run[p->v[i].own.n_runs - 1]->counted;
    return n;
}

void prefix_close(struct prefixes *p)
{
    while (prefix_drop(p))
        ;
    assert(p->n == 0 && p->total.runs == 0 && p->total.bytes == 0);
    free(p->v);
    *p = (struct prefixes){ 0 };
}
