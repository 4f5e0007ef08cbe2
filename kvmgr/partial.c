/* The partial cache. `row` names the row of the full cache in each slot, `n_seen` counts the followed rows.
 * Selection: partial_select. New rows: partial_follow, which calls replace_rows or follow_means. Snapshots:
 * partial_save and partial_load. */
#include "kvmgr/partial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static bool needs_copy(const struct kv *full, enum kv_policy policy, size_t budget)
{
    return policy != KV_FULL && budget < full->n_max;
}

/* Bytes of the sums of the last mean and of the bias of every slot. */
static size_t mean_bytes(const struct kv *full, size_t budget)
{
    const size_t sums = 2 * kv_layer(full, full->n_layers).dims,
                 slots = (budget + PARTIAL_ROWS_MAX + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK;
    return kv_on_host(full) ? (sums + slots) * sizeof(float) : 0;
}

size_t partial_bytes(const struct kv *full, enum kv_policy policy, size_t budget, size_t n_max)
{
    size_t n, bytes, rows;
    if (policy == KV_FULL || budget >= n_max)
        return 0;
    const struct kv_size own = kv_like(full, budget + PARTIAL_ROWS_MAX);
    n = kv_bytes(&own);
    if (!kv_on_host(full))
        bytes = full->dev->select_bytes(full->dev, full->n_layers, full->n_kv_heads, budget);
    else if (!mul_size(n_max, full->n_kv_heads * sizeof(uint32_t), &bytes))
        return SIZE_MAX;
    return n != SIZE_MAX && add_size(n, bytes, &n) && add_size(n, mean_bytes(full, budget), &n) &&
           mul_size(budget * sizeof(uint32_t), kv_n_heads(full), &rows) && add_size(n, rows,
               &n) ? n : SIZE_MAX;
}

int partial_open(struct partial *p, struct kv *full, struct pool *pool, enum kv_policy policy, size_t sinks,
                 size_t budget, struct err *e)
{
    assert(sinks >= 1 && sinks < budget && policy != KV_AUTO && (policy != KV_MEAN || kv_on_host(full)));
    *p = (struct partial){ .full = full, .pool = pool, .policy = policy, .sinks = sinks,
                           .budget = budget, .budget_max = budget };
    if (!needs_copy(full, policy, budget))
        return 0;
    p->work_bytes = kv_on_host(full)
                        ? full->n_kv_heads * full->n_max * sizeof(uint32_t)
                        : full->dev->select_bytes(full->dev, full->n_layers, full->n_kv_heads, budget);
    p->work = kv_alloc(full, p->work_bytes);
    p->row_bytes = kv_n_heads(full) * budget * sizeof *p->row;
    p->row = kv_alloc(full, p->row_bytes);
    p->from = calloc(full->n_layers, sizeof *p->from);
    p->mean_bytes = mean_bytes(full, budget);
    p->sum = p->mean_bytes ? mem_alloc(p->mean_bytes) : NULL;
    p->bias = p->sum ? p->sum + 2 * kv_layer(full, full->n_layers).dims : NULL;
    if (!p->work || !p->row || !p->from || (p->mean_bytes && !p->sum)) {
        err_set(e, ERR_FAILED, "partial KV cache: out of memory (%zu bytes)",
                p->work_bytes + p->row_bytes + p->mean_bytes);
        partial_close(p);
        return -1;
    }
    const struct kv_size own = kv_like(full, budget + PARTIAL_ROWS_MAX);
    if (kv_open(&p->kv, full->dev, &own, e)) {
        partial_close(p);
        return -1;
    }
    if (kv_on_host(full))  /* touch the pages now, not in the first rounds that use them */
        memset(p->kv.base, 0, p->kv.run[0]->bytes);
    return 0;
}

void partial_close(struct partial *p)
{
    kv_close(&p->kv);
    kv_free(p->full, p->work, p->work_bytes);
    kv_free(p->full, p->row, p->row_bytes);
    mem_free(p->sum, p->mean_bytes);
    free(p->from);
    *p = (struct partial){0};
}

void partial_change(struct partial *p, enum kv_policy policy, size_t budget)
{
    if (!p->work || (policy == p->policy && budget == p->budget))
        return;
    assert(budget > p->sinks && budget <= p->budget_max &&
           (kv_selects(policy) || policy == KV_WINDOW || (policy == KV_MEAN && p->sum)));
    p->policy = policy;
    p->budget = budget;
    p->filled = false;
    p->kv.n_past = 0;
    partial_follow(p);
}

struct kv *partial_kv(struct partial *p) { return p->filled ? &p->kv : p->full; }

static void copy_row(struct partial *p, size_t l, size_t h, size_t from, size_t slot)
{
    const struct kv *f = p->full;
    from = kv_nearest(f, l, from);
    kv_copy(kv_block(&p->kv, l, h, slot), slot % KV_BLOCK, kv_block(f, l, h, from), from % KV_BLOCK, 1,
            f->type, kv_layer(f, l).dim);
    p->row[(kv_layer(f, l).first + h) * p->budget_max + slot] = (uint32_t)from;
}

/* Copies rows from[i] of the full cache to slots to[i], in all layers and heads. No slot is twice in `to`. */
static void copy_rows(struct partial *p, const uint32_t *from, const uint32_t *to, size_t n)
{
    if (!kv_on_host(p->full)) {
        const struct device_kv dst = kv_view(&p->kv), src = kv_view(p->full);
        p->full->dev->kv_copy(p->full->dev, &dst, &src, from, to, n);
        return;
    }
    for (size_t l = 0; l < p->kv.n_layers; l++)
        for (size_t h = 0; h < kv_layer(&p->kv, l).n; h++)
            for (size_t i = 0; i < n; i++)
                copy_row(p, l, h, from[i], to[i]);
}

bool partial_needs_scores(const struct partial *p)
{
    if (!p->work || !kv_selects(p->policy) || p->full->n_past <= p->budget)
        return false;
    return !p->filled || (p->policy == KV_DYNAMIC && p->n_recent >= p->budget - p->sinks);
}

/* Says that the slots up to the budget are filled, with the rows of the text up to n_seen. */
static void set_filled(struct partial *p, size_t n_recent, size_t n_seen)
{
    p->filled = true;
    p->n_recent = n_recent;
    p->n_seen = n_seen;
    p->kv.n_past = p->kv.n_written = p->budget;
    p->kv.bias = NULL;
}

/* ---- selection ---- */

/* a ranks before b: the larger score, then the later position. */
static bool ranks_before(const float *score, uint32_t a, uint32_t b)
{
    return score[a] > score[b] || (score[a] == score[b] && a > b);
}

enum { FEW = 16 };

static void sort_few(uint32_t *at, size_t n, const float *score)
{
    for (size_t i = 1; i < n; i++) {
        uint32_t x = at[i];
        size_t j = i;
        for (; j > 0 && ranks_before(score, x, at[j - 1]); j--)
            at[j] = at[j - 1];
        at[j] = x;
    }
}

/* Partitions at[0..n), n > FEW, so that the better rows come first; returns their number, 1 .. n-1. This is
 * Hoare's partition: no two rows are equal, and a median of three is neither the best nor the worst. */
static size_t split(uint32_t *at, size_t n, const float *score)
{
    uint32_t a = at[0], b = at[n / 2], c = at[n - 1];
    uint32_t pivot = ranks_before(score, a, b)
                         ? (ranks_before(score, b, c) ? b : ranks_before(score, a, c) ? c : a)
                         : (ranks_before(score, a, c) ? a : ranks_before(score, b, c) ? c : b);
    size_t i = 0, j = n - 1;
    for (;;) {
        while (ranks_before(score, at[i], pivot)) i++;
        while (ranks_before(score, pivot, at[j])) j--;
        if (i >= j)
            return j + 1;
        uint32_t t = at[i];
        at[i++] = at[j], at[j--] = t;
    }
}

/* Puts the `want` best rows of at[0..n) to the front, the best one first; the others follow in any order. It
 * recurses into the smaller part, which bounds the depth by log2 n. */
static void best_first(uint32_t *at, size_t n, size_t want, const float *score)
{
    while (n > FEW) {
        const size_t m = split(at, n, score), rest = want > m ? want - m : 0;
        if (rest && m <= n - m) {
            best_first(at, m, m, score);
            at += m, n -= m, want = rest;
        } else {
            if (rest)
                best_first(at + m, n - m, rest, score);
            n = m, want -= rest;
        }
    }
    sort_few(at, n, score);
}

struct selecting { struct partial *p; size_t layer; const float *score; size_t step, from; };

static void select_head(void *ctx, size_t h, size_t thread)
{
    const struct selecting *x = ctx;
    struct partial *p = x->p;
    const size_t n_past = p->full->n_past, want = p->budget - p->sinks, first = MAX(x->from, p->sinks);
    const float *s = x->score + h * x->step;
    uint32_t *at = (uint32_t *)p->work + h * p->full->n_max;
    size_t n = 0;
    (void)thread;
    for (size_t i = first; i < n_past; i++)
        at[n++] = (uint32_t)i;
    best_first(at, n, MIN(n, want), s);
    n = MIN(n, want);
    /* a layer's window ends here: the nearest rows before it fill the rest, so that no slot is empty */
    for (size_t i = first; n < want && i-- > p->sinks;)
        at[n++] = (uint32_t)i;
    for (size_t i = 0; i < p->sinks; i++)
        copy_row(p, x->layer, h, i, i);
    for (size_t i = 0; i < want; i++)
        copy_row(p, x->layer, h, at[i], p->sinks + i);
}

/* Selects all layers in one launch: one layer has fewer heads than a GPU has multiprocessors. */
static void select_on_device(struct partial *p, const float *score, size_t step)
{
    struct device *dev = p->full->dev;
    const struct device_kv dst = kv_view(&p->kv), src = kv_view(p->full);
    const struct device_selection s = { score, step, p->from, p->kv.n_layers, p->kv.n_kv_heads,
                                        p->full->n_past, p->sinks, p->budget,
                                        p->row, p->budget_max, p->work };
    dev->kv_select(dev, &s);
    dev->kv_gather(dev, &dst, &src, p->row, p->budget_max, p->budget);
}

void partial_select(void *partial, size_t layer, const float *score, size_t step, size_t from)
{
    struct partial *p = partial;
    struct selecting x = { p, layer, score, step, from };
    if (!kv_on_host(p->full)) {
        p->from[layer] = (uint32_t)from;
        if (layer + 1 == p->kv.n_layers)
            select_on_device(p, score - layer * p->kv.n_kv_heads * step, step);
    } else if (p->pool)
        pool_run(p->pool, kv_layer(&p->kv, layer).n, select_head, &x);
    else
        for (size_t h = 0; h < kv_layer(&p->kv, layer).n; h++)
            select_head(&x, h, 0);
    if (layer + 1 == p->kv.n_layers) {
        set_filled(p, 0, p->full->n_past);
        p->refreshes++;
    }
}

/* ---- following the full cache ---- */

enum { SOME = 64 };

/* The number of slots, counted from the last, that new rows replace in turn. */
static size_t ring_slots(const struct partial *p)
{
    const size_t free = p->budget - p->sinks;
    return p->policy == KV_STATIC ? (free + 1) / 2 : free;
}

/* Copies rows from .. to-1 of the full cache over the least important rows or the oldest recent rows. */
static void replace_rows(struct partial *p, size_t from, size_t to)
{
    const size_t turn = ring_slots(p);
    /* rows that later ones would replace at once */
    const size_t skip = to - from > turn ? to - from - turn : 0;
    p->n_recent += skip;
    for (size_t i = from + skip; i < to;) {
        uint32_t rows[SOME], slots[SOME];
        size_t n = 0;
        for (; n < MIN((size_t)SOME, turn) && i < to; n++) {
            rows[n] = (uint32_t)i++;
            slots[n] = (uint32_t)(p->budget - 1 - p->n_recent++ % turn);
        }
        copy_rows(p, rows, slots, n);
    }
}

static void copy_sinks(struct partial *p)
{
    uint32_t at[SOME];
    for (size_t i = 0; i < p->sinks;) {
        size_t n = 0;
        for (; n < SOME && i < p->sinks; n++)
            at[n] = (uint32_t)i++;
        copy_rows(p, at, at, n);
    }
}

/* ---- means ---- */

static size_t means_max(const struct partial *p) { return (p->budget - p->sinks) / 2; }
static size_t n_means(size_t far, size_t group) { return (far + group - 1) / group; }

static float bias_of(size_t n)
{
    return (float)(1.3 * log2((double)n) - 0.4 * 0x1.71547652b82fep0 * (1 - 1 / (double)n));
}

/* Extends the means of one layer and head from p->n_far rows in means of `group` to `to` rows in means of
 * p->group. */
struct averaging { struct partial *p; size_t group, to; };

static void put_mean(const struct partial *p, size_t l, size_t h, size_t at, const float *sum, size_t n)
{
    const struct kv *kv = &p->kv;
    const size_t d = kv_layer(kv, l).dim, slot = p->budget - means_max(p) + at;
    float mean[2 * 1024], row[2 * 1024];
    assert(d <= 1024);
    for (size_t i = 0; i < 2 * d; i++)
        mean[i] = sum[i] / (float)n;
    kv_store(row, kv->type, mean, mean + d, d);
    kv_put(kv_block(kv, l, h, slot), kv->type, d, slot % KV_BLOCK, row);
}

/* sum += times * the mean in a slot */
static void add_mean(const struct partial *p, size_t l, size_t h, size_t at, float *sum, size_t times)
{
    const struct kv *kv = &p->kv;
    const size_t d = kv_layer(kv, l).dim, slot = p->budget - means_max(p) + at;
    float mean[2 * 1024] = { 0 };
    kv_sum(mean, mean + d, kv->type, d, kv_block(kv, l, h, slot), slot % KV_BLOCK, slot % KV_BLOCK + 1);
    for (size_t i = 0; i < 2 * d; i++)
        sum[i] += (float)times * mean[i];
}

/* Merges neighbours: n means of `group` rows become half as many. The last mean exists as a sum, which goes
 * on growing. */
static void merge_means(const struct partial *p, size_t l, size_t h, size_t n, size_t group, float *sum)
{
    const size_t last = n - 1;
    for (size_t i = 0; 2 * i + 1 < last; i++) {
        float both[2 * 1024] = { 0 };
        add_mean(p, l, h, 2 * i, both, 1);
        add_mean(p, l, h, 2 * i + 1, both, 1);
        put_mean(p, l, h, i, both, 2);
    }
    if (last % 2)
        add_mean(p, l, h, last - 1, sum, group);
    put_mean(p, l, h, last / 2, sum, p->n_far - last / 2 * 2 * group);
}

static void average_head(void *ctx, size_t i, size_t thread)
{
    const struct averaging *x = ctx;
    const struct partial *p = x->p;
    const struct kv *full = p->full;
    const size_t l = kv_layer_of(full, i);
    const struct kv_heads g = kv_layer(full, l);
    const size_t d = g.dim, h = i - g.first;
    float *sum = p->sum + 2 * (g.dims + h * d);
    (void)thread;
    for (size_t group = x->group; group < p->group && p->n_far; group *= 2)
        merge_means(p, l, h, n_means(p->n_far, group), group, sum);
    for (size_t far = p->n_far; far < x->to;) {
        const size_t at = far / p->group, begin = at * p->group, end = MIN(x->to, begin + p->group);
        if (far == begin)
            memset(sum, 0, 2 * d * sizeof *sum);
        while (far < end) {
            const size_t pos = p->sinks + far, n = MIN(end - far, KV_BLOCK - pos % KV_BLOCK);
            kv_sum(sum, sum + d, full->type, d, kv_block(full, l, h, kv_nearest(full, l, pos)),
                   pos % KV_BLOCK, pos % KV_BLOCK + n);
            far += n;
        }
        put_mean(p, l, h, at, sum, end - begin);
    }
}

/* Puts the first `to` rows after the sinks into means. */
static void average(struct partial *p, size_t to)
{
    const size_t max = means_max(p), first = p->budget - max, heads = kv_n_heads(&p->kv);
    struct averaging x = { p, p->group, to };
    while (n_means(to, p->group) > max)
        p->group *= 2;
    if (p->pool && (to - p->n_far >= KV_BLOCK || p->group > x.group))
        pool_run(p->pool, heads, average_head, &x);
    else
        for (size_t i = 0; i < heads; i++)
            average_head(&x, i, 0);
    for (size_t i = p->group > x.group ? 0 : p->n_far / p->group; i < max; i++)
        p->bias[first + i] = i * p->group < to ? bias_of(MIN(p->group, to - i * p->group)) : 0;
    p->n_far = to;
    p->kv.n_past = first + n_means(to, p->group);
    p->kv.n_written = MAX(p->kv.n_written, p->kv.n_past);
}

static void follow_means(struct partial *p, size_t n_past)
{
    const size_t max = means_max(p), recent = p->budget - p->sinks - max;
    if (!p->filled) {
        copy_sinks(p);
        p->filled = true;
        p->n_recent = p->n_far = p->n_seen = 0;
        p->group = MEAN_ROWS;
        memset(p->bias, 0, (char *)p->sum + p->mean_bytes - (char *)p->bias);
        p->kv.bias = p->bias;
    }
    /* as many rows as are contiguous in both caches */
    for (size_t i = MAX(p->n_seen, n_past - recent), n; i < n_past; i += n) {
        const size_t turn = (i - p->sinks) % recent, slot = p->sinks + turn;
        n = MIN(MIN(n_past - i, recent - turn), KV_BLOCK - MAX(i % KV_BLOCK, slot % KV_BLOCK));
        for (size_t l = 0; l < p->kv.n_layers; l++)
            for (size_t h = 0; h < kv_layer(&p->kv, l).n; h++)
                kv_copy(kv_block(&p->kv, l, h, slot), slot % KV_BLOCK,
                        kv_block(p->full, l, h, kv_nearest(p->full, l, i)), i % KV_BLOCK, n, p->kv.type,
                        kv_layer(&p->kv, l).dim);
    }
    if (max)
        average(p, n_past - recent - p->sinks);
    else
        p->kv.n_past = p->kv.n_written = p->budget;
}

void partial_follow(struct partial *p)
{
    if (!p->work)
        return;
    const size_t n_past = p->full->n_past;
    if (n_past < p->n_seen || n_past <= p->budget) {    /* truncated or short: start again */
        p->filled = false;
        p->n_recent = 0;
        p->n_seen = n_past;
        p->kv.n_past = 0;
        return;
    }
    if (!p->filled && p->policy == KV_WINDOW) {
        copy_sinks(p);
        set_filled(p, 0, n_past - (p->budget - p->sinks));
    }
    if (p->policy == KV_MEAN)
        follow_means(p, n_past);
    else if (p->filled)
        replace_rows(p, p->n_seen, n_past);
    p->n_seen = n_past;
}

/* ---- snapshots ---- */

/* uint32_t row[rows][budget] follows. Under `mean` no rows follow: means are computed again. */
struct state { uint64_t policy, budget, n_recent, n_seen, rows; };

size_t partial_state_bytes(const struct partial *p)
{
    return p->work ? sizeof(struct state) + p->row_bytes : 0;
}

/* The device's list has the selected rows. The rows since then follow from it: the k-th of them has slot
 * budget - 1 - k % ring unless a later one replaced it. */
static bool rows_of_device(const struct partial *p, uint32_t *row)
{
    const size_t n_rows = kv_n_heads(&p->kv), first = p->n_seen - p->n_recent;
    if (p->full->dev->download(p->full->dev, row, p->row, p->row_bytes))
        return false;
    for (size_t i = 0; i < n_rows; i++) {
        uint32_t *at = row + i * p->budget;
        memmove(at, row + i * p->budget_max, p->budget * sizeof *row);
        for (size_t slot = 0; slot < p->sinks; slot++)
            at[slot] = (uint32_t)slot;
        for (size_t back = 0; back < MIN(ring_slots(p), p->n_recent); back++)
            at[p->budget - 1 - back] =
                (uint32_t)(first + (p->n_recent - 1) - (p->n_recent - 1 - back) % ring_slots(p));
    }
    return true;
}

size_t partial_save(const struct partial *p, void *out)
{
    const size_t heads = kv_n_heads(&p->kv), bytes = p->budget * sizeof *p->row;
    const struct state s = { p->policy, p->budget, p->n_recent, p->n_seen, p->policy == KV_MEAN ? 0 : heads };
    char *to = out;
    if (!p->work || !p->filled)
        return 0;
    memcpy(to, &s, sizeof s);
    to += sizeof s;
    if (p->policy == KV_MEAN)
        return sizeof s;
    if (!kv_on_host(p->full))
        return rows_of_device(p, (uint32_t *)(void *)to) ? sizeof s + heads * bytes : 0;
    for (size_t i = 0; i < heads; i++, to += bytes)
        memcpy(to, p->row + i * p->budget_max, bytes);
    return (size_t)(to - (char *)out);
}

static void restore_on_device(struct partial *p, const char *row)
{
    struct device *dev = p->full->dev;
    const struct device_kv dst = kv_view(&p->kv), src = kv_view(p->full);
    const size_t bytes = p->budget * sizeof *p->row;
    for (size_t i = 0; i < kv_n_heads(&p->kv); i++)
        dev->upload(dev, p->row + i * p->budget_max, row + i * bytes, bytes);
    dev->kv_gather(dev, &dst, &src, p->row, p->budget_max, p->budget);
}

bool partial_load(struct partial *p, const void *state, size_t n)
{
    struct state s;
    const size_t heads = kv_n_heads(&p->kv), n_past = p->full->n_past;
    const char *from = (const char *)state + sizeof s;
    if (!p->work || n < sizeof s)
        return false;
    memcpy(&s, state, sizeof s);
    if (s.policy > KV_MEAN || s.budget <= p->sinks || s.budget > p->budget_max ||
        s.rows != (s.policy == KV_MEAN ? 0 : heads) || n != sizeof s + s.rows * s.budget * sizeof(uint32_t) ||
        s.n_seen > n_past || n_past <= s.budget || s.n_recent > n_past)
        return false;
    if (s.policy == KV_MEAN) {
        if (!p->sum)
            return false;
        partial_change(p, KV_MEAN, s.budget);
        partial_follow(p);
        return true;
    }
    for (size_t i = 0; i < heads * s.budget; i++) {
        uint32_t row;
        memcpy(&row, from + i * sizeof row, sizeof row);
        if (row >= n_past)
            return false;
    }
    p->policy = (enum kv_policy)s.policy;
    p->budget = s.budget;
    if (!kv_on_host(p->full))
        restore_on_device(p, from);
    for (size_t l = 0; l < p->kv.n_layers && kv_on_host(p->full); l++)
        for (size_t h = 0; h < kv_layer(&p->kv, l).n; h++)
            for (size_t i = 0; i < s.budget; i++, from += sizeof(uint32_t)) {
                uint32_t row;
                memcpy(&row, from, sizeof row);
                copy_row(p, l, h, row, i);
            }
    set_filled(p, s.n_recent, s.n_seen);
    partial_follow(p);
    return true;
}
