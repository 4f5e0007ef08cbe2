/* Logits -> tokens on the device: the chain of src/sample/sample.h and the coin of src/sample/coin.h, one block per row. For equal logits the result is
 * the CPU's, bit for bit: weights are whole numbers, and every step in double is the same IEEE operations in the same order
 * (weigh.h; log_own in src/sample/coin.c; compiled without contraction). Candidates that a filter drops become -inf. */
#include <assert.h>
#include "kernels/cu.h"
#include "kernels/cu_args.h"
#include "kernels/weigh.h"

enum { CHOOSE_BUCKETS = 2048, CHOOSE_AT_ONCE = 8, CHOOSE_COUNTS = 4, CHOOSE_TEMPERATURE = 0, CHOOSE_TOP_K, CHOOSE_TOP_P, CHOOSE_MIN_P, CHOOSE_ETA, CHOOSE_PENALTIES, CHOOSE_BIAS, CHOOSE_DRY };   /* enum device_step */

struct choosing {                    /* shared memory */
    union {
        uint64_t hist[CHOOSE_BUCKETS];
        struct { double score[CU_CHOOSE_THREADS]; uint32_t id[CU_CHOOSE_THREADS]; } best;
        float old[CU_CHOOSE_THREADS];
    } u;
    uint64_t sum[2], cut;
    double best; uint32_t best_id;
    float top; uint32_t top_id;
    uint32_t bucket, n;
    uint64_t before;
};

FN uint64_t choose_weight(float x, float top) { double d; return weigh_whole(weigh_exp(x, top, &d)); }

FN double choose_log_sum(double k, double f)
{
    const double s = f / (2 + f), z = s * s, half = 0.5 * f * f;
    double r = 2.0 / 23;
    for (int n = 21; n >= 3; n -= 2)
        r = r * z + 2.0 / n;
    r = r * z;
    return k * 0x1.62e42fefap-1 - ((half - (s * (half + r) + k * 0x1.cf79abc9e3b3ap-40)) - f);
}
FN double choose_log(double x)
{
    double k = 0;
    if (x < 0x1p-1000) {
        x *= 0x1p60;
        k = -60;
    }
    uint64_t u = as_bits64(x);
    const uint64_t e = (u + (0x3ffull << 52) - 0x3fe6a09e00000000ull) >> 52;
    k += (double)e - 1023;
    u -= (e - 1023) << 52;
    return choose_log_sum(k, as_double(u) - 1);
}
FN double choose_log1p(double x) { return x > -0.25 ? choose_log_sum(0, x) : choose_log(1 + x); }

/* coin_word: Philox4x32-10. */
FN uint64_t choose_word(uint64_t seed, uint32_t sample, uint64_t position, uint32_t id)
{
    uint32_t x0 = id >> 1, x1 = sample, x2 = (uint32_t)position, x3 = (uint32_t)(position >> 32), k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < 10; i++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        const uint64_t p = (uint64_t)x0 * 0xD2511F53u, q = (uint64_t)x2 * 0xCD9E8D57u;
        x0 = (uint32_t)(q >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)q;
        x2 = (uint32_t)(p >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)p;
    }
    return id & 1 ? x2 | (uint64_t)x3 << 32 : x0 | (uint64_t)x1 << 32;
}
FN double choose_gumbel(uint64_t word)
{
    const double e = word >> 63 ? -choose_log(((double)~word + 0.5) * 0x1p-64) : -choose_log1p(-(((double)word + 0.5) * 0x1p-64));
    return -choose_log(e);
}
/* Not below the noise, and at most 1e-3 above what matters: select_coin_bounds. */
FN float choose_bound(uint64_t word) { return 109.51725f - (float)(int32_t)as_bits((float)(int32_t)(word >> 33)) * 8.2629582e-8f; }

FN bool choose_is(float x) { return x >= -FLT_MAX; }
/* A thread's values i, i + threads(), ..: CHOOSE_AT_ONCE of them asked for at once, as a block alone on its SM has little else to do while one comes. Behind
 * n there is no candidate. */
FN void choose_load(float v[CHOOSE_AT_ONCE], const float *x, uint32_t i, uint32_t n)
{
    UNROLL_ALL
    for (unsigned j = 0; j < CHOOSE_AT_ONCE; j++)
        v[j] = i + j * threads() < n ? x[i + j * threads()] : -INFINITY;
}
#define CHOOSE_EACH(i, n) for (uint32_t i = tid(); i < (n); i += CHOOSE_AT_ONCE * threads())
/* Which of them are candidates, a bit each: for loops that have much to do for one, and few of them. */
FN unsigned choose_which(const float *x, uint32_t i, uint32_t n)
{
    float v[CHOOSE_AT_ONCE];
    unsigned which = 0;
    choose_load(v, x, i, n);
    UNROLL_ALL
    for (unsigned j = 0; j < CHOOSE_AT_ONCE; j++)
        which |= choose_is(v[j]) ? 1u << j : 0;
    return which;
}
/* `i` is each candidate of the thread, ascending; a statement follows. */
#define CHOOSE_CANDIDATES(i, x, n) \
    CHOOSE_EACH(base_, n) \
        for (unsigned which_ = choose_which(x, base_, n), i; which_ && (i = base_ + low_bit(which_) * threads(), true); which_ &= which_ - 1)

/* Larger logit first, then the lower id: one whole number; no two are equal. */
FN uint64_t choose_key(float x, uint32_t id)
{
    const uint32_t u = as_bits(x + 0.0f);
    return (uint64_t)(u >> 31 ? ~u : u | 0x80000000u) << 32 | (uint32_t)~id;
}

/* The best of the block's (score, id): larger score, then lower id. id UINT32_MAX: none. The result in c->best, c->best_id. */
FN void choose_best(struct choosing *c, double score, uint32_t id)
{
    barrier();
    c->u.best.score[tid()] = score;
    c->u.best.id[tid()] = id;
    for (unsigned n = threads() / 2; n; n /= 2) {
        barrier();
        if (tid() < n) {
            const double s = c->u.best.score[tid() + n];
            const uint32_t other = c->u.best.id[tid() + n], mine = c->u.best.id[tid()];
            if (other != UINT32_MAX && (mine == UINT32_MAX || s > c->u.best.score[tid()] || (s == c->u.best.score[tid()] && other < mine))) {
                c->u.best.score[tid()] = s;
                c->u.best.id[tid()] = other;
            }
        }
    }
    barrier();
    if (tid() == 0) {
        c->best = c->u.best.score[0];
        c->best_id = c->u.best.id[0];
    }
    barrier();
}

/* The largest candidate; false when there is none. */
FN bool choose_top(struct choosing *c, const float *x, uint32_t n)
{
    float top = 0;
    uint32_t id = UINT32_MAX;
    CHOOSE_EACH(i, n) {
        float v[CHOOSE_AT_ONCE];
        choose_load(v, x, i, n);
        UNROLL_ALL
        for (unsigned j = 0; j < CHOOSE_AT_ONCE; j++)
            if (choose_is(v[j]) && (id == UINT32_MAX || v[j] > top)) {
                top = v[j];
                id = i + j * threads();
            }
    }
    choose_best(c, top, id);
    if (tid() == 0) {
        c->top = (float)c->best;
        c->top_id = c->best_id;
    }
    barrier();
    return c->top_id != UINT32_MAX;
}

FN float choose_limited(float x, double y)
{
    return x < -FLT_MAX ? x : y > FLT_MAX ? FLT_MAX : y < -FLT_MAX ? -FLT_MAX : (float)y;
}

/* hist of candidates, or of their weights, by distance from the top; their sum in c->sum[0]. */
FN void choose_tally(struct choosing *c, const float *x, uint32_t n, bool weighted)
{
    for (unsigned i = tid(); i < CHOOSE_BUCKETS; i += threads())
        c->u.hist[i] = 0;
    if (tid() == 0)
        c->sum[0] = 0;
    barrier();
    uint64_t sum = 0;
    CHOOSE_CANDIDATES(i, x, n) {
        const float b = (c->top - x[i]) * (CHOOSE_BUCKETS / 32);
        const uint64_t w = weighted ? choose_weight(x[i], c->top) : 1;
        atomic_add64(&c->u.hist[b < CHOOSE_BUCKETS - 1 ? (unsigned)b : CHOOSE_BUCKETS - 1], w);
        sum += w;
    }
    atomic_add64(&c->sum[0], sum);
    barrier();
}

/* After choose_tally: the key of the last candidate of the shortest prefix (by key, descending) whose sum reaches 1 <= target <= the sum. */
FN uint64_t choose_prefix(struct choosing *c, const float *x, uint32_t n, uint64_t *keys, uint64_t target, bool weighted)
{
    if (tid() == 0) {
        uint64_t sum = 0;
        unsigned b = 0;
        for (; sum + c->u.hist[b] < target && b + 1 < CHOOSE_BUCKETS; b++)      /* with infinite logits nothing has a weight */
            sum += c->u.hist[b];
        c->bucket = b;
        c->before = sum;
        c->n = 0;
    }
    barrier();
    CHOOSE_CANDIDATES(i, x, n) {
        const float b = (c->top - x[i]) * (CHOOSE_BUCKETS / 32);
        if ((b < CHOOSE_BUCKETS - 1 ? (unsigned)b : CHOOSE_BUCKETS - 1) == c->bucket)
            keys[atomic_add(&c->n, 1)] = choose_key(x[i], i);          /* in any order: they are sorted next */
    }
    barrier();
    size_t padded = 1;
    while (padded < c->n)
        padded *= 2;
    for (size_t i = c->n + tid(); i < padded; i += threads())
        keys[i] = 0;
    sort_keys(keys, padded);
    if (tid() == 0) {
        uint64_t sum = c->before;
        unsigned i = 0;
        for (;; i++) {
            sum += weighted ? choose_weight(x[(uint32_t)~keys[i]], c->top) : 1;
            if (sum >= target || i + 1 == c->n)
                break;
        }
        c->cut = keys[i];
    }
    barrier();
    return c->cut;
}

/* Key of the k-th candidate; 0 when there are no more than k. */
FN uint64_t choose_first(struct choosing *c, const float *x, uint32_t n, uint64_t *keys, uint32_t k)
{
    choose_tally(c, x, n, false);
    return c->sum[0] <= k ? 0 : choose_prefix(c, x, n, keys, k, false);
}

/* What stays: keys from `cut` on, logits not further than -d below the top, and the first min_keep. */
FN void choose_keep(struct choosing *c, float *x, const struct cu_choose *a, uint64_t *keys, uint64_t cut, double d)
{
    const uint64_t least = a->min_keep > 1 ? choose_first(c, x, a->vocab, keys, a->min_keep) : UINT64_MAX;
    CHOOSE_EACH(i, a->vocab) {
        float v[CHOOSE_AT_ONCE];
        choose_load(v, x, i, a->vocab);
        UNROLL_ALL
        for (unsigned j = 0; j < CHOOSE_AT_ONCE; j++) {
            const uint64_t key = choose_key(v[j], i + j * threads());
            if (choose_is(v[j]) && key < cut && key < least && !((double)v[j] - (double)c->top >= d))
                x[i + j * threads()] = -INFINITY;
        }
    }
    barrier();
}

FN void choose_filter(struct choosing *c, float *x, const struct cu_choose *a, uint64_t *keys, unsigned step)
{
    if (!choose_top(c, x, a->vocab))
        return;
    if (step == CHOOSE_TOP_K) {
        struct cu_choose all = *a;
        all.min_keep = 1;
        choose_keep(c, x, &all, keys, choose_first(c, x, a->vocab, keys, a->top_k), INFINITY);
    } else if (step == CHOOSE_TOP_P) {
        choose_tally(c, x, a->vocab, true);
        const double want = a->top_p * (double)c->sum[0];
        uint64_t target = (uint64_t)want;
        target += (double)target < want ? 1 : 0;
        choose_keep(c, x, a, keys, choose_prefix(c, x, a->vocab, keys, target > 1 ? target : 1, true), INFINITY);
    } else if (step == CHOOSE_MIN_P) {
        choose_keep(c, x, a, keys, UINT64_MAX, choose_log(a->min_p));
    } else {
        if (tid() == 0)
            c->sum[0] = c->sum[1] = 0;
        barrier();
        uint64_t w = 0, wd = 0;
        CHOOSE_CANDIDATES(i, x, a->vocab) {
            double d;
            const double e = weigh_exp(x[i], c->top, &d);
            w += weigh_whole(e);
            wd += weigh_whole(e * -d);
        }
        atomic_add64(&c->sum[0], w);
        atomic_add64(&c->sum[1], wd);
        barrier();
        const double log_sum = choose_log((double)c->sum[0] / 0x1p43), entropy = log_sum + (double)c->sum[1] / (double)c->sum[0];
        const double log_eps = choose_log(a->eta), other = 0.5 * log_eps - entropy, least = (log_eps < other ? log_eps : other) + log_sum;
        barrier();                               /* the sums are read before choose_keep counts anew */
        choose_keep(c, x, a, keys, UINT64_MAX, least < 0 ? least : 0);
    }
}

FN float choose_penalised(float x, const struct cu_choose *a, uint32_t window, uint32_t text)
{
    if (window)
        x = choose_limited(x, x < 0 ? x * a->penalty : x / a->penalty);
    return text ? choose_limited(x, x - (a->presence + a->frequency * text)) : x;
}

FN void choose_penalties(struct choosing *c, float *x, const struct cu_choose *a, const struct cu_choice *row)
{
    const uint32_t *list = a->count + 3 * (size_t)row->count;            /* id, window, text: what the row's path adds */
    barrier();
    if (tid() < row->n_count)
        c->u.old[tid()] = x[list[3 * tid()]];
    barrier();
    for (uint32_t i = tid(); i < a->vocab; i += CHOOSE_COUNTS * threads()) {
        uint32_t window[CHOOSE_COUNTS], text[CHOOSE_COUNTS];
        UNROLL_ALL
        for (unsigned j = 0; j < CHOOSE_COUNTS; j++) {
            const uint32_t at = i + j * threads();
            window[j] = at < a->vocab ? a->counts[at] : 0;
            text[j] = at < a->vocab ? a->counts[a->vocab + at] : 0;
        }
        UNROLL_ALL
        for (unsigned j = 0; j < CHOOSE_COUNTS; j++)
            if (window[j] | text[j])
                x[i + j * threads()] = choose_penalised(x[i + j * threads()], a, window[j], text[j]);
    }
    barrier();
    if (tid() < row->n_count) {
        const uint32_t *e = list + 3 * tid();
        x[e[0]] = choose_penalised(c->u.old[tid()], a, a->counts[e[0]] + e[1], a->counts[a->vocab + e[0]] + e[2]);
    }
    barrier();
}

FN void choose_edit(float *x, const struct cu_edit *list, uint32_t n)
{
    barrier();
    for (uint32_t i = tid(); i < n; i += threads()) {
        float *at = &x[list[i].id];
        *at = list[i].add == -INFINITY ? -INFINITY : choose_limited(*at, (double)*at + list[i].add);
    }
    barrier();
}

FN double choose_score(const struct choosing *c, const struct cu_choose *a, uint64_t position, float x, uint32_t id)
{
    return a->greedy ? (double)x : ((double)x - c->top) + choose_gumbel(choose_word(a->seed, a->sample, position, id));
}

/* The best candidate whose score is below `last`, or equal with a larger id. Bounds spare most candidates the logarithms. */
FN void choose_next(struct choosing *c, const float *x, const struct cu_choose *a, uint64_t position, double last, uint32_t last_id)
{
    double best = 0;
    uint32_t id = UINT32_MAX;
    CHOOSE_CANDIDATES(i, x, a->vocab) {
        if (!a->greedy && id != UINT32_MAX) {
            const float u = (x[i] - c->top) + choose_bound(choose_word(a->seed, a->sample, position, i));
            if ((double)u < best - 2e-3 - 3e-7 * fabs(best))
                continue;
        }
        const double score = choose_score(c, a, position, x[i], i);
        if ((score < last || (score == last && i > last_id)) && (id == UINT32_MAX || score > best)) {
            best = score;
            id = i;
        }
    }
    choose_best(c, best, id);
}

KERNEL(choose, choose, CU_CHOOSE_THREADS, 1)
{
    struct choosing *c = (struct choosing *)shared();
    static_assert(sizeof(struct choosing) <= CU_CHOOSE_SHARED, "cu_args.h");
    depend_wait();
    const struct cu_choice *row = &a.choice[block_x()];
    const float *logits = a.logits + (size_t)row->row * a.vocab;
    float *x = a.x + (size_t)block_x() * a.vocab;
    uint64_t *keys = a.work + (size_t)block_x() * a.work_step;
    CHOOSE_EACH(i, a.vocab) {
        float v[CHOOSE_AT_ONCE];
        choose_load(v, logits, i, a.vocab);
        UNROLL_ALL
        for (unsigned j = 0; j < CHOOSE_AT_ONCE; j++)
            if (i + j * threads() < a.vocab)
                x[i + j * threads()] = v[j];
    }
    for (unsigned s = 0; s < a.n_order; s++) {
        const unsigned step = a.order[s];
        if (step == CHOOSE_TEMPERATURE) {
            barrier();
            CHOOSE_EACH(i, a.greedy || a.temperature == 1 ? 0 : a.vocab) {
                float v[CHOOSE_AT_ONCE];
                choose_load(v, x, i, a.vocab);
                UNROLL_ALL
                for (unsigned j = 0; j < CHOOSE_AT_ONCE; j++)
                    if (i + j * threads() < a.vocab)
                        x[i + j * threads()] = choose_limited(v[j], v[j] / a.temperature);
            }
            barrier();
        } else if (step == CHOOSE_PENALTIES) {
            if (a.counts)
                choose_penalties(c, x, &a, row);
        } else if (step == CHOOSE_BIAS) {
            choose_edit(x, a.edit + row->edit, row->n_edit);
        } else if (step == CHOOSE_DRY) {
            choose_edit(x, a.edit + row->dry, row->n_dry);
        } else if (!a.greedy) {
            choose_filter(c, x, &a, keys, step);
        }
    }
    struct cu_candidate *best = a.best + (size_t)block_x() * a.k;
    uint32_t found = 0, last_id = UINT32_MAX;
    double last = INFINITY;
    if (choose_top(c, x, a.vocab))
        for (; found < a.k; found++) {
            choose_next(c, x, &a, row->position, last, last_id);
            if (c->best_id == UINT32_MAX)
                break;
            last = c->best;
            last_id = c->best_id;
            if (tid() == 0) {
                const double score = a.greedy ? last - c->top : last;
                best[found].id = (int32_t)last_id;
                best[found].score = (float)(score > -FLT_MAX ? score : -FLT_MAX);
            }
        }
    for (; found < a.k; found++)
        if (tid() == 0) {
            best[found].id = -1;
            best[found].score = 0;
        }
}

KERNEL(count, count, 256, 1)
{
    const uint32_t i = block_x() * threads() + tid();
    depend_wait();
    if (i < a.n) {
        const uint32_t *e = a.list + 3 * (size_t)i;
        a.counts[e[0]] += e[1];
        a.counts[a.vocab + e[0]] += e[2];
    }
}
