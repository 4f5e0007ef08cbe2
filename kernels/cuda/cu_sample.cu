/* Samples tokens from logits on the device: the chain of src/sample/sample.h and the coin of
 * src/sample/coin.h, one block for each row. For equal logits the result is the CPU's, bit for bit: weights
 * are whole numbers, and every step in double executes the same IEEE operations in the same order (weigh.h;
 * log_own in src/sample/coin.c; compiled without contraction). Candidates that a filter drops become -inf. */
#include <assert.h>
#include "kernels/cuda/cu.h"
#include "kernels/cuda/cu_args.h"
#include "kernels/weigh.h"

/* from SAMPLE_TEMPERATURE on: enum device_step */
enum { SAMPLE_BUCKETS = 2048, SAMPLE_AT_ONCE = 8, SAMPLE_COUNTS = 4, SAMPLE_TEMPERATURE = 0, SAMPLE_TOP_K,
       SAMPLE_TOP_P, SAMPLE_MIN_P, SAMPLE_ETA, SAMPLE_PENALTIES, SAMPLE_BIAS, SAMPLE_DRY };

struct sample_shared {                    /* shared memory */
    union {
        uint64_t hist[SAMPLE_BUCKETS];
        struct { double score[CU_SAMPLE_THREADS]; uint32_t id[CU_SAMPLE_THREADS]; } best;
        float old[CU_SAMPLE_THREADS];
    } u;
    uint64_t sum[2], cut;
    double best; uint32_t best_id;
    float top; uint32_t top_id;
    uint32_t bucket, n;
    uint64_t before;
};

FN uint64_t sample_weight(float x, float top) { double d; return weigh_whole(weigh_exp(x, top, &d)); }

FN double sample_log_sum(double k, double f)
{
    const double s = f / (2 + f), z = s * s, half = 0.5 * f * f;
    double r = 2.0 / 23;
    for (int n = 21; n >= 3; n -= 2)
        r = r * z + 2.0 / n;
    r = r * z;
    return k * 0x1.62e42fefap-1 - ((half - (s * (half + r) + k * 0x1.cf79abc9e3b3ap-40)) - f);
}
FN double sample_log(double x)
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
    return sample_log_sum(k, as_double(u) - 1);
}
FN double sample_log1p(double x) { return x > -0.25 ? sample_log_sum(0, x) : sample_log(1 + x); }

/* coin_word of ids 2 pair and 2 pair + 1: Philox4x32-10. */
FN void sample_words(uint64_t word[2], uint64_t seed, uint32_t sample, uint64_t position, uint32_t pair)
{
    uint32_t x0 = pair, x1 = sample, x2 = (uint32_t)position, x3 = (uint32_t)(position >> 32),
        k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < 10; i++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        const uint64_t p = (uint64_t)x0 * 0xD2511F53u, q = (uint64_t)x2 * 0xCD9E8D57u;
        x0 = (uint32_t)(q >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)q;
        x2 = (uint32_t)(p >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)p;
    }
    word[0] = x0 | (uint64_t)x1 << 32;
    word[1] = x2 | (uint64_t)x3 << 32;
}
FN double sample_gumbel(uint64_t word)
{
    const double e = word >> 63 ? -sample_log(((double)~word + 0.5) * 0x1p-64)
        : -sample_log1p(-(((double)word + 0.5) * 0x1p-64));
    return -sample_log(e);
}
/* An upper bound of the noise, at most 1e-3 too high where that matters, as in select_coin_bounds. */
FN float sample_bound(uint64_t word)
{
    return 109.51725f - (float)(int32_t)as_bits((float)(int32_t)(word >> 33)) * 8.2629582e-8f;
}

FN bool is_candidate(float x) { return x >= -FLT_MAX; }
/* Loads a thread's values i, i + threads(), .. It issues SAMPLE_AT_ONCE loads before it uses one, because a
 * block alone on its SM cannot hide their latency otherwise. Values from n on are no candidates. */
FN void sample_load(float v[SAMPLE_AT_ONCE], const float *x, uint32_t i, uint32_t n)
{
    UNROLL_ALL
    for (unsigned j = 0; j < SAMPLE_AT_ONCE; j++)
        v[j] = i + j * threads() < n ? x[i + j * threads()] : -INFINITY;
}
#define SAMPLE_EACH(i, n) for (uint32_t i = tid(); i < (n); i += SAMPLE_AT_ONCE * threads())
/* A bit for each of these values that is a candidate, for loops with much work on few candidates. */
FN unsigned candidate_bits(const float *x, uint32_t i, uint32_t n)
{
    float v[SAMPLE_AT_ONCE];
    unsigned which = 0;
    sample_load(v, x, i, n);
    UNROLL_ALL
    for (unsigned j = 0; j < SAMPLE_AT_ONCE; j++)
        which |= is_candidate(v[j]) ? 1u << j : 0;
    return which;
}
/* Runs the following statement for each candidate `i` of the thread, ascending. */
#define SAMPLE_CANDIDATES(i, x, n) \
    SAMPLE_EACH(base_, n) \
        for (unsigned which_ = candidate_bits(x, base_, n), i; \
             which_ && (i = base_ + low_bit(which_) * threads(), true); which_ &= which_ - 1)

/* The key orders candidates by logit, the lower id first on ties. Keys are unique. */
FN uint64_t sample_key(float x, uint32_t id)
{
    return ordered_key(x, ~id);
}

/* Finds the block's best (score, id), the lower id on ties; id UINT32_MAX stands for none. The result is in
 * c->best, c->best_id. */
FN void sample_best(struct sample_shared *c, double score, uint32_t id)
{
    barrier();
    c->u.best.score[tid()] = score;
    c->u.best.id[tid()] = id;
    for (unsigned n = threads() / 2; n; n /= 2) {
        barrier();
        if (tid() < n) {
            const double s = c->u.best.score[tid() + n];
            const uint32_t other = c->u.best.id[tid() + n], mine = c->u.best.id[tid()];
            if (other != UINT32_MAX && (mine == UINT32_MAX || s > c->u.best.score[tid()] ||
                                        (s == c->u.best.score[tid()] && other < mine))) {
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

/* Finds the largest candidate; false when there is none. */
FN bool sample_top(struct sample_shared *c, const float *x, uint32_t n)
{
    float top = 0;
    uint32_t id = UINT32_MAX;
    SAMPLE_EACH(i, n) {
        float v[SAMPLE_AT_ONCE];
        sample_load(v, x, i, n);
        UNROLL_ALL
        for (unsigned j = 0; j < SAMPLE_AT_ONCE; j++)
            if (is_candidate(v[j]) && (id == UINT32_MAX || v[j] > top)) {
                top = v[j];
                id = i + j * threads();
            }
    }
    sample_best(c, top, id);
    if (tid() == 0) {
        c->top = (float)c->best;
        c->top_id = c->best_id;
    }
    barrier();
    return c->top_id != UINT32_MAX;
}

FN float sample_limited(float x, double y)
{
    return x < -FLT_MAX ? x : y > FLT_MAX ? FLT_MAX : y < -FLT_MAX ? -FLT_MAX : (float)y;
}

/* Adds the numbers of all threads to a shared sum: one addition for each warp, because 1,024 threads that add
 * to one word wait for each other. Every thread of the block calls it. */
FN void sample_add(uint64_t *sum, uint64_t x)
{
    x = warp_sum64(x);
    if (lane() == 0)
        atomic_add64(sum, x);
}

/* Histogram of candidates, or of their weights, by distance from the top; their sum is c->sum[0]. */
FN void sample_tally(struct sample_shared *c, const float *x, uint32_t n, bool weighted)
{
    for (unsigned i = tid(); i < SAMPLE_BUCKETS; i += threads())
        c->u.hist[i] = 0;
    if (tid() == 0)
        c->sum[0] = 0;
    barrier();
    uint64_t sum = 0;
    SAMPLE_CANDIDATES(i, x, n) {
        const float b = (c->top - x[i]) * (SAMPLE_BUCKETS / 32);
        const uint64_t w = weighted ? sample_weight(x[i], c->top) : 1;
        atomic_add64(&c->u.hist[b < SAMPLE_BUCKETS - 1 ? (unsigned)b : SAMPLE_BUCKETS - 1], w);
        sum += w;
    }
    sample_add(&c->sum[0], sum);
    barrier();
}

/* After sample_tally: the key of the last candidate of the shortest prefix (by key, descending) whose sum
 * reaches 1 <= target <= the sum. */
FN uint64_t sample_prefix(struct sample_shared *c, const float *x, uint32_t n, uint64_t *keys,
                          uint64_t target, bool weighted)
{
    if (tid() == 0) {
        uint64_t sum = 0;
        unsigned b = 0;
        /* with infinite logits all weights are 0 */
        for (; sum + c->u.hist[b] < target && b + 1 < SAMPLE_BUCKETS; b++)
            sum += c->u.hist[b];
        c->bucket = b;
        c->before = sum;
        c->n = 0;
    }
    barrier();
    SAMPLE_CANDIDATES(i, x, n) {
        const float b = (c->top - x[i]) * (SAMPLE_BUCKETS / 32);
        if ((b < SAMPLE_BUCKETS - 1 ? (unsigned)b : SAMPLE_BUCKETS - 1) == c->bucket)
            keys[atomic_add(&c->n, 1)] = sample_key(x[i], i);  /* in any order: they are sorted next */
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
            sum += weighted ? sample_weight(x[(uint32_t)~keys[i]], c->top) : 1;
            if (sum >= target || i + 1 == c->n)
                break;
        }
        c->cut = keys[i];
    }
    barrier();
    return c->cut;
}

/* Key of the k-th candidate; 0 when there are at most k. */
FN uint64_t sample_first(struct sample_shared *c, const float *x, uint32_t n, uint64_t *keys, uint32_t k)
{
    sample_tally(c, x, n, false);
    return c->sum[0] <= k ? 0 : sample_prefix(c, x, n, keys, k, false);
}

/* Keeps the candidates with keys from `cut` on, logits at most -d below the top, and the first min_keep. */
FN void sample_keep(struct sample_shared *c, float *x, const struct cu_sample *a, uint64_t *keys,
                    uint64_t cut, double d)
{
    const uint64_t least = a->min_keep > 1 ? sample_first(c, x, a->vocab, keys, a->min_keep) : UINT64_MAX;
    SAMPLE_EACH(i, a->vocab) {
        float v[SAMPLE_AT_ONCE];
        sample_load(v, x, i, a->vocab);
        UNROLL_ALL
        for (unsigned j = 0; j < SAMPLE_AT_ONCE; j++) {
            const uint64_t key = sample_key(v[j], i + j * threads());
            if (is_candidate(v[j]) && key < cut && key < least && !((double)v[j] - (double)c->top >= d))
                x[i + j * threads()] = -INFINITY;
        }
    }
    barrier();
}

FN void sample_filter(struct sample_shared *c, float *x, const struct cu_sample *a, uint64_t *keys,
                      unsigned step)
{
    if (!sample_top(c, x, a->vocab))
        return;
    if (step == SAMPLE_TOP_K) {
        struct cu_sample all = *a;
        all.min_keep = 1;
        sample_keep(c, x, &all, keys, sample_first(c, x, a->vocab, keys, a->top_k), INFINITY);
    } else if (step == SAMPLE_TOP_P) {
        sample_tally(c, x, a->vocab, true);
        const double want = a->top_p * (double)c->sum[0];
        uint64_t target = (uint64_t)want;
        target += (double)target < want ? 1 : 0;
        sample_keep(c, x, a, keys, sample_prefix(c, x, a->vocab, keys, target > 1 ? target : 1, true),
                    INFINITY);
    } else if (step == SAMPLE_MIN_P) {
        sample_keep(c, x, a, keys, UINT64_MAX, sample_log(a->min_p));
    } else {
        if (tid() == 0)
            c->sum[0] = c->sum[1] = 0;
        barrier();
        uint64_t w = 0, wd = 0;
        SAMPLE_CANDIDATES(i, x, a->vocab) {
            double d;
            const double e = weigh_exp(x[i], c->top, &d);
            w += weigh_whole(e);
            wd += weigh_whole(e * -d);
        }
        sample_add(&c->sum[0], w);
        sample_add(&c->sum[1], wd);
        barrier();
        const double log_sum = sample_log((double)c->sum[0] / 0x1p43),
            entropy = log_sum + (double)c->sum[1] / (double)c->sum[0];
        const double log_eps = sample_log(a->eta), other = 0.5 * log_eps - entropy,
            least = (log_eps < other ? log_eps : other) + log_sum;
        barrier();                               /* the sums are read before sample_keep counts anew */
        sample_keep(c, x, a, keys, UINT64_MAX, least < 0 ? least : 0);
    }
}

FN float sample_penalised(float x, const struct cu_sample *a, uint32_t window, uint32_t text)
{
    if (window)
        x = sample_limited(x, x < 0 ? x * a->penalty : x / a->penalty);
    return text ? sample_limited(x, x - (a->presence + a->frequency * text)) : x;
}

FN void sample_penalties(struct sample_shared *c, float *x, const struct cu_sample *a,
                         const struct cu_pick *row)
{
    /* id, window, text: changes of the counts by the row's path */
    const uint32_t *list = a->count + 3 * (size_t)row->count;
    barrier();
    if (tid() < row->n_count)
        c->u.old[tid()] = x[list[3 * tid()]];
    barrier();
    for (uint32_t i = tid(); i < a->vocab; i += SAMPLE_COUNTS * threads()) {
        uint32_t window[SAMPLE_COUNTS], text[SAMPLE_COUNTS];
        UNROLL_ALL
        for (unsigned j = 0; j < SAMPLE_COUNTS; j++) {
            const uint32_t at = i + j * threads();
            window[j] = at < a->vocab ? a->counts[at] : 0;
            text[j] = at < a->vocab ? a->counts[a->vocab + at] : 0;
        }
        UNROLL_ALL
        for (unsigned j = 0; j < SAMPLE_COUNTS; j++)
            if (window[j] | text[j])
                x[i + j * threads()] = sample_penalised(x[i + j * threads()], a, window[j], text[j]);
    }
    barrier();
    if (tid() < row->n_count) {
        const uint32_t *e = list + 3 * tid();
        x[e[0]] = sample_penalised(c->u.old[tid()], a, a->counts[e[0]] + e[1],
                                   a->counts[a->vocab + e[0]] + e[2]);
    }
    barrier();
}

FN void sample_edit(float *x, const struct cu_edit *list, uint32_t n)
{
    barrier();
    for (uint32_t i = tid(); i < n; i += threads()) {
        float *at = &x[list[i].id];
        *at = list[i].add == -INFINITY ? -INFINITY : sample_limited(*at, (double)*at + list[i].add);
    }
    barrier();
}

FN double sample_score(const struct sample_shared *c, const struct cu_sample *a, float x, uint64_t word)
{
    return a->greedy ? (double)x : ((double)x - c->top) + sample_gumbel(word);
}

/* Runs over the candidates in pairs of ids, which share a call of Philox; a thread's ids ascend. Without a
 * list it finds the thread's best score and id (UINT32_MAX: none). With a list it appends the ids with scores
 * of at least *best and counts them in c->n. Bounds spare most candidates the logarithms. */
FN void sample_scan(struct sample_shared *c, const float *x, const struct cu_sample *a, uint64_t position,
                    uint32_t *list, double *best, uint32_t *id)
{
    for (uint32_t base = 2 * tid(); base < a->vocab; base += SAMPLE_AT_ONCE * threads()) {
        unsigned which = 0;
        UNROLL_ALL
        for (unsigned j = 0; j < SAMPLE_AT_ONCE; j++) {
            const uint32_t i = base + j / 2 * 2 * threads() + j % 2;
            which |= i < a->vocab && is_candidate(x[i]) ? 1u << j : 0;
        }
        while (which) {
            const unsigned pair = low_bit(which) / 2;
            uint64_t word[2] = { 0, 0 };
            if (!a->greedy)
                sample_words(word, a->seed, a->sample, position, base / 2 + pair * threads());
            UNROLL_NONE
            for (unsigned e = 0; e < 2; e++, word[0] = word[1]) {
                const uint32_t i = base + pair * 2 * threads() + e;
                if (!(which >> (2 * pair + e) & 1))
                    continue;
                if (!a->greedy && (list || *id != UINT32_MAX) &&
                    (double)((x[i] - c->top) + sample_bound(word[0])) < *best - 2e-3 - 3e-7 * fabs(*best))
                    continue;
                const double score = sample_score(c, a, x[i], word[0]);
                if (!(score < INFINITY))             /* of infinite logits */
                    continue;
                if (list && score >= *best)
                    list[atomic_add(&c->n, 1)] = i;
                if (!list && (*id == UINT32_MAX || score > *best)) {
                    *best = score;
                    *id = i;
                }
            }
            which &= ~(3u << 2 * pair);
        }
    }
}

/* The k-th largest of the threads' best scores (id UINT32_MAX: none); -inf if fewer threads have one. At
 * least k candidates have this score or a better one. k <= threads() */
FN double sample_least(struct sample_shared *c, double best, uint32_t id, uint32_t k)
{
    const uint64_t u = as_bits64(best + 0.0), sign = (uint64_t)1 << 63;
    barrier();
    c->u.hist[tid()] = id == UINT32_MAX ? 0 : u & sign ? ~u : u | sign;
    if (tid() == 0)
        c->n = 0;
    sort_keys(c->u.hist, threads());
    const uint64_t key = c->u.hist[k - 1];
    return key ? as_double(key & sign ? key & ~sign : ~key) : -INFINITY;
}

/* Finds the best candidate of the list with a score below `last`, or with an equal score and a larger id.
 * *mine: score of the thread's first candidate, once it is `known` */
FN void sample_next(struct sample_shared *c, const float *x, const struct cu_sample *a, uint64_t position,
                    const uint32_t *list, double *mine, bool known, double last, uint32_t last_id)
{
    double best = 0;
    uint32_t id = UINT32_MAX;
    UNROLL_NONE
    for (uint32_t i = tid(); i < c->n; i += threads()) {
        const uint32_t at = list[i];
        double score = *mine;
        if (i != tid() || !known) {
            uint64_t word[2] = { 0, 0 };
            if (!a->greedy)
                sample_words(word, a->seed, a->sample, position, at / 2);
            score = sample_score(c, a, x[at], at % 2 ? word[1] : word[0]);
        }
        *mine = i == tid() ? score : *mine;
        if ((score < last || (score == last && at > last_id)) &&
            (id == UINT32_MAX || score > best || (score == best && at < id))) {
            best = score;
            id = at;
        }
    }
    sample_best(c, best, id);
}

/* Writes the k best candidates; returns their number. One scan finds the best. For more, a second scan lists
 * the few candidates among which they are. */
FN uint32_t sample_choose(struct sample_shared *c, const float *x, const struct cu_sample *a,
                          uint64_t position, uint32_t *list, struct cu_candidate *best)
{
    double last = INFINITY, mine = 0;
    uint32_t found = 0, last_id = UINT32_MAX, id = UINT32_MAX;
    UNROLL_NONE
    for (unsigned scan = 0; scan < (a->k > 1 ? 2u : 1u); scan++) {
        if (scan)
            mine = sample_least(c, mine, id, a->k);
        sample_scan(c, x, a, position, scan ? list : NULL, &mine, &id);
    }
    if (a->k == 1)
        sample_best(c, mine, id);
    barrier();                                   /* the list is complete */
    for (; found < a->k; found++) {
        if (a->k > 1)
            sample_next(c, x, a, position, list, &mine, found > 0, last, last_id);
        if (c->best_id == UINT32_MAX)
            break;
        last = c->best;
        last_id = c->best_id;
        if (tid() == 0) {
            const double score = a->greedy ? last - c->top : last;
            best[found].id = (int32_t)last_id;
            best[found].score = (float)(score > -FLT_MAX ? score : -FLT_MAX);
        }
    }
    return found;
}

/* Writes n logits, divided by a temperature other than 1. */
FN void sample_temper(float *to, const float *from, uint32_t n, float temperature)
{
    SAMPLE_EACH(i, n) {
        float v[SAMPLE_AT_ONCE];
        sample_load(v, from, i, n);
        UNROLL_ALL
        for (unsigned j = 0; j < SAMPLE_AT_ONCE; j++)
            if (i + j * threads() < n)
                to[i + j * threads()] = temperature == 1 ? v[j] : sample_limited(v[j], v[j] / temperature);
    }
}

KERNEL(sample, sample, CU_SAMPLE_THREADS, 1)
{
    struct sample_shared *c = (struct sample_shared *)shared();
    static_assert(sizeof(struct sample_shared) <= CU_SAMPLE_SHARED, "cu_args.h");
    depend_wait();
    const struct cu_pick *row = &a.pick[block_x()];
    const float *logits = a.logits + (size_t)row->row * a.vocab;
    float *x = a.x + (size_t)block_x() * a.vocab;
    uint64_t *keys = a.work + (size_t)block_x() * a.work_step;
    sample_temper(x, logits, a.vocab, 1);
    for (unsigned s = 0; s < a.n_order; s++) {
        const unsigned step = a.order[s];
        if (step == SAMPLE_TEMPERATURE) {
            barrier();
            if (!a.greedy && a.temperature != 1)
                sample_temper(x, x, a.vocab, a.temperature);
            barrier();
        } else if (step == SAMPLE_PENALTIES) {
            if (a.counts)
                sample_penalties(c, x, &a, row);
        } else if (step == SAMPLE_BIAS) {
            sample_edit(x, a.edit + row->edit, row->n_edit);
        } else if (step == SAMPLE_DRY) {
            sample_edit(x, a.edit + row->dry, row->n_dry);
        } else if (!a.greedy) {
            sample_filter(c, x, &a, keys, step);
        }
    }
    struct cu_candidate *best = a.best + (size_t)block_x() * a.k;
    uint32_t found = 0;
    if (sample_top(c, x, a.vocab))
        found = sample_choose(c, x, &a, row->position, (uint32_t *)keys, best);
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
