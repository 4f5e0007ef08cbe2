/* The partial cache against a plain model of its rule (kvmgr/partial.h): a list of positions per slot.
 * Selection sorts all scores. Later rows replace slots from the least important end. Slots hold the bytes of
 * their rows of the full cache. The scores of a pass are the root row's query times the keys, in double.
 *
 * Means are compared with values that follow from the length of the text: the recent rows, the number of rows
 * in a mean, and their mean in double.
 *
 * The rule differs from TokenSwift's program: the root row of the verification pass gives the selecting query
 * (there: the last row of the pass), and the later position wins ties. */
#include "kvmgr/partial.h"
#include "tests/rig.h"

enum { LAYERS = 2, HEADS = 3, DIM = 16, N_MAX = 900 };

/* ---- the model of the rule ---- */

struct rule {
    enum kv_policy policy;
    size_t sinks, budget, n_past, seen;                /* committed rows; rows that partial_follow has seen */
    bool filled;
    size_t replaced, refreshes;                        /* rows committed since the selection */
    size_t at[LAYERS][HEADS][N_MAX];                   /* position of each slot */
};

static bool rule_selects(const struct rule *r)
{
    if (r->policy == KV_WINDOW || r->policy == KV_FULL || r->n_past <= r->budget) return false;
    return !r->filled || (r->policy == KV_DYNAMIC && r->replaced >= r->budget - r->sinks);
}
static const float *sort_scores;
static int by_score(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return sort_scores[x] != sort_scores[y] ? (sort_scores[x] > sort_scores[y] ? -1 : 1) : x > y ? -1 : 1;
}
static void rule_select(struct rule *r, size_t l, const float *score, size_t step, size_t from)
{
    size_t all[N_MAX];
    for (size_t h = 0; h < HEADS; h++) {
        size_t n = 0;
        for (size_t pos = from > r->sinks ? from : r->sinks; pos < r->n_past; pos++) all[n++] = pos;
        sort_scores = score + h * step;
        qsort(all, n, sizeof *all, by_score);
        /* before the window, the nearest first */
        for (size_t pos = from; n < r->budget - r->sinks; ) all[n++] = --pos;
        for (size_t s = 0; s < r->budget; s++) r->at[l][h][s] = s < r->sinks ? s : all[s - r->sinks];
    }
}
static void rule_replace(struct rule *r, size_t pos)
{
    size_t room = r->budget - r->sinks;
    if (r->policy == KV_STATIC) room -= room / 2;
    size_t slot = r->budget - 1 - r->replaced++ % room;
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t h = 0; h < HEADS; h++) r->at[l][h][slot] = pos;
}
static void rule_follow(struct rule *r, size_t n_past)
{
    size_t first = r->seen;
    if (n_past < r->seen || n_past <= r->budget) {
        r->filled = false;
    } else if (!r->filled && r->policy == KV_WINDOW) {
        r->filled = true, r->replaced = 0;
        first = n_past - (r->budget - r->sinks);
        for (size_t l = 0; l < LAYERS; l++)
            for (size_t h = 0; h < HEADS; h++)
                for (size_t s = 0; s < r->sinks; s++) r->at[l][h][s] = s;
    }
    if (r->filled)
        for (size_t pos = first; pos < n_past; pos++) rule_replace(r, pos);
    r->n_past = r->seen = n_past;
}

/* ---- the model and the cache side by side ---- */

struct both { struct kv full; struct partial p; struct rule r; struct rng rng; };

static void both_open(struct both *b, enum dtype t, enum kv_policy policy, size_t sinks, size_t budget,
                      uint64_t seed)
{
    struct err e = { 0 };
    *b = (struct both){ .r = { .policy = policy, .sinks = sinks, .budget = budget }, .rng = { seed } };
    if (kv_open(&b->full, NULL, &(struct kv_size){ t, LAYERS, HEADS, DIM, N_MAX, 0 }, &e) ||
        partial_open(&b->p, &b->full, NULL, policy, sinks, budget, &e))
        rig_die("cache", &e);
}
static void both_close(struct both *b) { partial_close(&b->p), kv_close(&b->full); }

static void random_rows(struct kv *kv, size_t from, size_t n, struct rng *rng)
{
    uint32_t row[2 * DIM + 2];
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t h = 0; h < HEADS; h++)
            for (size_t pos = from; pos < from + n; pos++) {
                rig_random_row(row, kv->type, DIM, rng);
                kv_put(kv_block(kv, l, h, pos), kv->type, DIM, pos % KV_BLOCK, row);
            }
    kv->n_written = MAX(kv->n_written, from + n);
}
/* Whether every slot holds the bytes of its position. */
static bool same_slots(const struct both *b)
{
    float x[2 * DIM + 2], y[2 * DIM + 2];
    const size_t bytes = kv_row_bytes(b->full.type, DIM);
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t h = 0; h < HEADS; h++)
            for (size_t s = 0; s < b->r.budget; s++) {
                size_t pos = b->r.at[l][h][s];
                kv_get(x, b->full.type, DIM, s % KV_BLOCK, kv_block(&b->p.kv, l, h, s));
                kv_get(y, b->full.type, DIM, pos % KV_BLOCK, kv_block(&b->full, l, h, pos));
                if (memcmp(x, y, bytes)) {
                    printf("    layer %zu head %zu slot %zu is not row %zu of %zu\n", l, h, s, pos,
                           b->full.n_past);
                    return false;
                }
            }
    return true;
}
static void compare(struct both *b, const char *what)
{
    CHECK(partial_needs_scores(&b->p) == rule_selects(&b->r), "%s: at %zu: %d", what, b->r.n_past,
          rule_selects(&b->r));
    CHECK(partial_kv(&b->p) == (b->r.filled ? &b->p.kv : &b->full), "%s: at %zu", what, b->r.n_past);
    CHECK(b->p.refreshes == b->r.refreshes, "%s: at %zu: %zu refreshes, not %zu", what, b->r.n_past,
          b->p.refreshes, b->r.refreshes);
    if (b->r.filled)
        CHECK(b->p.kv.n_past == b->r.budget && same_slots(b), "%s: at %zu", what, b->r.n_past);
}
/* One round: draft passes write rows after the slots, the verification pass selects when it is time,
 * `accepted` rows are committed. */
static void round_of(struct both *b, size_t accepted, const size_t *window, bool ties)
{
    static float score[HEADS * (N_MAX + 3)];
    const size_t step = N_MAX + 3;
    if (b->r.filled)
        random_rows(&b->p.kv, b->r.budget, rng_below(&b->rng, PARTIAL_ROWS_MAX + 1), &b->rng);
    if (rule_selects(&b->r)) {
        for (size_t l = 0; l < LAYERS; l++) {
            size_t from = window[l] && b->r.n_past + 1 > window[l] ? b->r.n_past + 1 - window[l] : 0;
            for (size_t i = 0; i < HEADS * step; i++)
                score[i] = i % step < from || i % step >= b->r.n_past ? NAN
                           : ties                                     ? (float)rng_below(&b->rng, 5) - 2
                                                                      : rng_normal(&b->rng);
            partial_select(&b->p, l, score, step, from);
            rule_select(&b->r, l, score, step, from);
        }
        b->r.filled = true, b->r.replaced = 0, b->r.refreshes++;
        b->r.seen = b->r.n_past;
    }
    random_rows(&b->full, b->full.n_past, accepted, &b->rng);
    kv_advance(&b->full, accepted);
    partial_follow(&b->p);
    rule_follow(&b->r, b->full.n_past);
}
static void prefill(struct both *b, size_t n)
{
    random_rows(&b->full, b->full.n_past, n, &b->rng);
    kv_advance(&b->full, n);
    partial_follow(&b->p);
    rule_follow(&b->r, b->full.n_past);
}

/* ---- tests ---- */

static void slots_after_many_rounds(void)
{
    static const size_t none[LAYERS] = { 0 }, windowed[LAYERS] = { 0, 50 };
    static const struct { size_t sinks, budget, prompt; } cases[] = {
        { 1, 2, 1 }, { 4, 40, 10 }, { 16, 64, 64 }, { 16, 64, 65 }, { 5, 130, 300 }, { 16, 100, 100 },
        { 1, 200, 190 }, { 60, 80, 30 },
        { 16, N_MAX - 1, 700 }, { 16, N_MAX - 40, N_MAX - 45 },
    };
    size_t refreshes = 0;
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases && !test_failed_; i++)
        for (int policy = KV_DYNAMIC; policy <= KV_WINDOW && !test_failed_; policy++) {
            struct both b;
            char what[80];
            const size_t c = i / 2;
            snprintf(what, sizeof what, "case %zu policy %d", i, policy);
            both_open(&b, (enum dtype[]){ DT_I16, DT_BF16, DT_I8, DT_I4, DT_F32 }[i % 5],
                      (enum kv_policy)policy, cases[c].sinks, cases[c].budget, 7 + i);
            prefill(&b, cases[c].prompt);
            compare(&b, what);
            for (size_t accepted;
                 (accepted = 1 + rng_below(&b.rng, 5)) + b.full.n_past < N_MAX && !test_failed_;) {
                round_of(&b, accepted, i % 2 ? windowed : none, c % 2);
                compare(&b, what);
                /* rows of rounds without draft passes, followed together */
                const size_t rows = 1 + rng_below(&b.rng, 150);
                if (rng_below(&b.rng, 40) == 0 && b.full.n_past + rows + 5 < N_MAX) {
                    prefill(&b, rows);
                    compare(&b, what);
                }
            }
            if (policy == KV_STATIC)
                CHECK(b.r.refreshes == (b.full.n_past - 5 > cases[c].budget), "%s: %zu", what, b.r.refreshes);
            refreshes += b.r.refreshes;
            both_close(&b);
        }
    printf("    %zu selections\n", refreshes);
    CHECK(refreshes > 500);
}

/* With one row a round and a budget of B with S sinks, the first selection comes with the first pass over
 * more than B rows, and the next ones every B - S rounds. */
static void refresh_at_the_right_round(void)
{
    static const size_t none[LAYERS] = { 0 };
    struct both b;
    both_open(&b, DT_BF16, KV_DYNAMIC, 16, 80, 3);
    prefill(&b, 60);
    for (size_t round = 0; round < 300; round++) {
        size_t before = b.p.refreshes;
        bool selects = b.full.n_past >= 81 && (b.full.n_past - 81) % 64 == 0;
        CHECK(partial_needs_scores(&b.p) == selects, "round %zu, %zu rows", round, b.full.n_past);
        round_of(&b, 1, none, false);
        CHECK(b.p.refreshes - before == selects);
    }
    both_close(&b);
}

static void resized(void)
{
    static const size_t none[LAYERS] = { 0 };
    static const size_t budgets[] = { 40, 200, 64, 17, 199, 100 };
    for (int policy = KV_DYNAMIC; policy <= KV_WINDOW && !test_failed_; policy++) {
        struct both b;
        both_open(&b, DT_BF16, (enum kv_policy)policy, 16, 200, 11);
        prefill(&b, 120);
        for (size_t i = 0; i < 150 && !test_failed_; i++) {
            if (i % 9 == 4) {
                size_t budget = budgets[i / 9 % 6];
                partial_change(&b.p, (enum kv_policy)policy, budget);
                if (budget != b.r.budget) {
                    b.r.budget = budget, b.r.filled = false;
                    rule_follow(&b.r, b.r.n_past);
                }
                compare(&b, "resized");
            }
            round_of(&b, 1 + rng_below(&b.rng, 5), none, false);
            compare(&b, "after a resize");
        }
        both_close(&b);
    }
}

/* After a truncation and new rows, no old row remains. */
static void truncated_and_written_again(void)
{
    static const size_t none[LAYERS] = { 0 };
    for (int policy = KV_DYNAMIC; policy <= KV_WINDOW && !test_failed_; policy++) {
        struct both b;
        both_open(&b, DT_BF16, (enum kv_policy)policy, 8, 60, 13);
        prefill(&b, 70);
        for (size_t i = 0; i < 120 && !test_failed_; i++) {
            if (i % 8 == 7) {
                size_t keep = b.full.n_past - 1 - rng_below(&b.rng, b.full.n_past / 2);
                kv_truncate(&b.full, keep);
                partial_follow(&b.p);
                rule_follow(&b.r, keep);
                compare(&b, "truncated");
            }
            round_of(&b, 1 + rng_below(&b.rng, 6), none, true);
            compare(&b, "written again");
        }
        both_close(&b);
    }
}

static void no_copy_without_need(void)
{
    struct both b;
    both_open(&b, DT_BF16, KV_FULL, 16, 64, 1);
    prefill(&b, 500);
    CHECK(partial_kv(&b.p) == &b.full && !partial_needs_scores(&b.p) && !b.p.kv.base &&
          partial_bytes(&b.full, KV_FULL, 64, N_MAX) == 0);
    struct partial closed = { 0 };
    partial_follow(&closed);                     /* a decoder without this drafter */
    both_close(&b);
    both_open(&b, DT_BF16, KV_DYNAMIC, 16, N_MAX, 1);
    prefill(&b, N_MAX - 1);
    CHECK(partial_kv(&b.p) == &b.full && !partial_needs_scores(&b.p) && !b.p.kv.base &&
          partial_bytes(&b.full, KV_DYNAMIC, N_MAX, N_MAX) == 0);
    partial_change(&b.p, KV_DYNAMIC, 20);
    CHECK(partial_kv(&b.p) == &b.full);
    both_close(&b);
    both_open(&b, DT_BF16, KV_DYNAMIC, 16, 64, 1);
    CHECK(partial_bytes(&b.full, KV_DYNAMIC, 64, N_MAX) >=
          kv_bytes(&(struct kv_size){ DT_BF16, LAYERS, HEADS, DIM, 64 + PARTIAL_ROWS_MAX, 0 }) +
              b.p.work_bytes);
    both_close(&b);
}

/* ---- means ---- */

static void row_of(double *x, const struct kv *kv, size_t l, size_t h, size_t pos)
{
    float row[2 * DIM + 2];
    kv_get(row, kv->type, DIM, pos % KV_BLOCK, kv_block(kv, l, h, pos));
    for (size_t i = 0; i < 2 * DIM; i++) x[i] = rig_row_at(row, kv->type, DIM, i);
}
/* Checks a cache of means over the first n rows, whatever its history. Returns the difference, or NULL. */
static const char *means_differ(struct both *b)
{
    static char why[120];
    const struct partial *p = &b->p;
    const size_t n = b->full.n_past, sinks = p->sinks, max = (p->budget - sinks) / 2,
                 recent = p->budget - sinks - max, far = max ? n - recent - sinks : 0;
    size_t group = 64;
    double want[2 * DIM], got[2 * DIM], x[2 * DIM];
    if (partial_needs_scores(p)) return "it wants scores";
    if (n <= p->budget) return partial_kv(&b->p) == &b->full ? NULL : "a copy of a short text";
    if (partial_kv(&b->p) != &p->kv || p->policy != KV_MEAN) return "no copy";
    while (max && (far + group - 1) / group > max) group *= 2;
    const size_t means = max ? (far + group - 1) / group : 0, slots = sinks + recent + means;
    if (p->kv.n_past != slots || slots > p->budget) return "another number of slots";
    if (!p->kv.bias) return "no bias";
    for (size_t s = 0; s < (p->kv.n_max + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK; s++) {
        const size_t i = s - sinks - recent,
                     count = s < slots && s >= sinks + recent ? MIN(group, far - i * group) : 1;
        const double bias = (1.3 * log((double)count) - 0.4 * (1 - 1 / (double)count)) / log(2);
        snprintf(why, sizeof why, "n %zu slot %zu of %zu rows: bias %g, not %g", n, s, count,
                 (double)p->kv.bias[s], bias);
        if (!(fabs(p->kv.bias[s] - bias) <= 1e-5)) return why;
    }
    for (size_t l = 0; l < LAYERS; l++)
        for (size_t h = 0; h < HEADS; h++)
            for (size_t s = 0; s < slots; s++) {
                const bool mean = s >= sinks + recent;
                size_t pos = s < sinks ? s : n - recent, count = 1;
                if (mean) pos = sinks + (s - sinks - recent) * group, count = MIN(group, sinks + far - pos);
                else if (s >= sinks) while ((pos - sinks) % recent != s - sinks) pos++;
                memset(want, 0, sizeof want);
                for (size_t k = 0; k < count; k++) {
                    row_of(x, &b->full, l, h, pos + k);
                    for (size_t i = 0; i < 2 * DIM; i++) want[i] += x[i] / (double)count;
                }
                row_of(got, &p->kv, l, h, s);
                for (size_t i = 0; i < 2 * DIM; i++) {
                    /* rounded once for each doubling */
                    const double bound = count == 1 && !mean ? 0 : b->full.type == DT_F32 ? 1e-6
                        : b->full.type == DT_I16 ? 6 * 2.0 / 16382
                        : kv_form(b->full.type).rotated
                            ? 6 * 2.0 / (i >= DIM && b->full.type == DT_I4 ? 14 : 254)
                        : 5 * (fabs(want[i]) + 0.1) / 256;
                    snprintf(why, sizeof why,
                             "n %zu layer %zu head %zu slot %zu, rows %zu + %zu: [%zu] is %g, not %g", n, l,
                             h, s, pos, count, i, got[i], want[i]);
                    if (!(fabs(got[i] - want[i]) <= bound)) return why;
                }
            }
    return NULL;
}
#define MEANS(b, ...) do { const char *why_ = means_differ(b); CHECK(!why_, __VA_ARGS__); \
                           if (why_) printf("    %s\n", why_); } while (0)
/* A round under `mean`: rows in flight, rows committed. */
static void mean_round(struct both *b, size_t n)
{
    if (partial_kv(&b->p) == &b->p.kv)
        random_rows(&b->p.kv, b->p.kv.n_past, rng_below(&b->rng, PARTIAL_ROWS_MAX + 1), &b->rng);
    random_rows(&b->full, b->full.n_past, n, &b->rng);
    kv_advance(&b->full, n);
    partial_follow(&b->p);
}
static const struct { size_t sinks, budget, doublings;
} mean_cases[] = {
    { 4, 12, 2 }, { 1, 2, 0 },   { 1, 3, 4 },   { 2, 5, 4 },   { 3, 10, 3 },
    { 2, 13, 2 }, { 16, 40, 1 }, { 5, 130, 0 }, { 60, 80, 1 },
};
enum { N_MEAN_CASES = sizeof mean_cases / sizeof *mean_cases };
static void mean_open(struct both *b, enum dtype t, size_t c, struct pool *pool)
{
    struct err e = { 0 };
    *b = (struct both){ .rng = { 90 + c } };
    if (kv_open(&b->full, NULL, &(struct kv_size){ t, LAYERS, HEADS, DIM, N_MAX, 0 }, &e) ||
        partial_open(&b->p, &b->full, pool, KV_MEAN, mean_cases[c].sinks, mean_cases[c].budget, &e))
        rig_die("cache", &e);
}
static const enum dtype kinds[] = { DT_I16, DT_F32, DT_BF16, DT_I8, DT_I4 };

static void means_are_means(void)
{
    struct pool *pool = pool_open(2);
    for (size_t i = 0; i < 4 * N_MEAN_CASES && !test_failed_; i++) {
        struct both b;
        const size_t c = i / 4;
        mean_open(&b, kinds[i % 5], c, i & 2 ? pool : NULL);
        size_t group = 0, doublings = 0;
        for (size_t round = 0; b.full.n_past < N_MAX - 1 && !test_failed_; round++) {
            const size_t n = i & 2 ? (round % 7 == 6 ? 90 : 1 + rng_below(&b.rng, 9)) : 1;
            mean_round(&b, MIN(n, N_MAX - 1 - b.full.n_past));
            if (i & 2 || round % 16 == 0 || b.p.n_far % 64 < 2)
                MEANS(&b, "case %zu of form %zu", c, i % 4);
            doublings += group && b.p.group > group;
            group = b.p.filled ? b.p.group : 0;
        }
        CHECK(i & 2 || doublings == mean_cases[c].doublings, "case %zu: %zu doublings", c, doublings);
        both_close(&b);
    }
    pool_close(pool);
}
/* The text is truncated and written again, budgets and policies change, and the means remain those of the
 * present text. */
static void means_follow_every_change(void)
{
    static const size_t none[LAYERS] = { 0 };
    for (size_t i = 0; i < 2 * N_MEAN_CASES && !test_failed_; i++) {
        struct both b, other;
        const size_t c = i / 2, sinks = mean_cases[c].sinks, budget = mean_cases[c].budget;
        char state[4096];
        mean_open(&b, kinds[i % 5], c, NULL);
        for (size_t turn = 0; turn < 25 && !test_failed_; turn++) {
            const size_t rows = 1 + rng_below(&b.rng, 300);
            mean_round(&b, MIN(rows, N_MAX - 1 - b.full.n_past));
            mean_round(&b, MIN((size_t)1, N_MAX - 1 - b.full.n_past));
            MEANS(&b, "case %zu, turn %zu", c, turn);
            /* a truncated text is followed with the next row */
            if (turn % 3 == 0) {
                kv_truncate(&b.full, b.full.n_past - rng_below(&b.rng, b.full.n_past));
                partial_follow(&b.p);
                mean_round(&b, 1);
                MEANS(&b, "case %zu, turn %zu, truncated", c, turn);
            } else if (turn % 3 == 1) {
                partial_change(&b.p, KV_MEAN, sinks + 1 + rng_below(&b.rng, budget - sinks));
                MEANS(&b, "case %zu, turn %zu, another budget", c, turn);
            } else {
                b.r = (struct rule){ .policy = turn % 2 ? KV_WINDOW : KV_DYNAMIC, .sinks = sinks,
                                     .budget = b.p.budget, .refreshes = b.p.refreshes };
                partial_change(&b.p, b.r.policy, b.r.budget);
                rule_follow(&b.r, b.full.n_past);
                for (size_t round = 0; round < 8 && b.full.n_past < N_MAX - 8; round++) {
                    round_of(&b, 3, none, false);
                    compare(&b, "away from means");
                    CHECK(!b.r.filled || !b.p.kv.bias, "a bias under policy %d", b.r.policy);
                }
                partial_change(&b.p, KV_MEAN, budget);
                MEANS(&b, "case %zu, turn %zu, back", c, turn);
            }
            if (b.full.n_past > N_MAX - 320)
                kv_truncate(&b.full, 1 + rng_below(&b.rng, 300)), partial_follow(&b.p);
        }
        /* a snapshot: another cache of the same text */
        mean_round(&b, 200);
        size_t n = partial_save(&b.p, state);
        CHECK(n > 0 && n <= partial_state_bytes(&b.p) && n <= sizeof state, "%zu bytes", n);
        other = b;
        struct err e = { 0 };
        if (partial_open(&other.p, &other.full, NULL, KV_WINDOW, sinks, budget, &e)) rig_die("cache", &e);
        CHECK(!partial_load(&other.p, state, n - 1) && other.p.policy == KV_WINDOW &&
              partial_load(&other.p, state, n));
        MEANS(&other, "case %zu, loaded", c);
        partial_close(&other.p);
        both_close(&b);
    }
}
/* The comparison above notices a row in the wrong mean, a mean that was not rewritten, and a wrong count. */
static void wrong_means_are_seen(void)
{
    struct both b;
    float row[2 * DIM], kept[2 * DIM];
    mean_open(&b, DT_F32, 0, NULL);
    mean_round(&b, 700);
    MEANS(&b, "as it is");
    const size_t last = b.p.kv.n_past - 1;
    char *block = kv_block(&b.p.kv, 1, 2, last);
    kv_get(kept, DT_F32, DIM, last % KV_BLOCK, block);
    for (size_t i = 0; i < 2 * DIM; i += 2 * DIM - 1) {
        memcpy(row, kept, sizeof row);
        row[i] += 0.5f / 256;                            /* about one row of the group */
        kv_put(block, DT_F32, DIM, last % KV_BLOCK, row);
        CHECK(means_differ(&b));
    }
    kv_put(block, DT_F32, DIM, last % KV_BLOCK, kept);
    MEANS(&b, "put back");
    b.p.bias[last] += 0.01f;
    CHECK(means_differ(&b));
    both_close(&b);
}

/* ---- scores of a real pass ---- */

struct caught { float *score; size_t n_kv, step, n_max, from[16], calls; };
static void catch_scores(void *ctx, size_t layer, const float *score, size_t step, size_t from)
{
    struct caught *c = ctx;
    c->from[layer] = from, c->calls++;
    for (size_t h = 0; h < c->n_kv; h++)
        memcpy(c->score + (layer * c->n_kv + h) * c->n_max, score + h * step, c->n_max * sizeof *score);
}

/* The scores of a pass are eq. 2 with the root row's query: the sum over the group's heads of q.k, times
 * log2(e)/sqrt(head_dim), with q rounded to act. For chains and trees, every layer, and windows. */
static void scores_of_a_pass(void)
{
    enum { PAST = 333, ROWS = 6 };
    static const int32_t parent[ROWS] = { -1, 0, 0, 1, 2, 3 };
    for (size_t m = 0; m < N_TINY; m++)
        for (int form = 0; form < 6; form++) {           /* rows or a tree, in each type of cache */
            struct rig r;
            struct kv kv;
            struct err e = { 0 };
            char dir[4096];
            int32_t token[PAST + ROWS];
            double worst = 0;
            tiny_write(&tiny_models[m], dir);
            rig_open_kv(&r, dir, form / 2 == 2 ? DT_F32 : DT_BF16, (enum dtype[]){ DT_I16, DT_BF16,
                DT_F32 }[form / 2], best_twin(), 2, 64, 512);
            const struct config *c = &r.c;
            const size_t n = form & 1 ? ROWS : 1, wide = c->head_dim;
            rig_kv(&r, &kv, 512, 64);
            rig_tokens(token, PAST + ROWS, c->vocab, 5 + m);
            float *last = must_alloc(c->vocab * 4),
                  *query = must_alloc(c->n_layers * ROWS * c->n_heads * wide * 4);
            struct caught got = { must_alloc(c->n_layers * c->n_kv_heads * 512 * 4), c->n_kv_heads, 0, 512,
                                  { 0 }, 0 };
            struct tap taps[16];
            rig_run(&r, &kv, token, PAST, 64, NULL, last);
            for (size_t l = 0; l < c->n_layers; l++) taps[l] = (struct tap){ TAP_QUERY, l,
                query + l * n * c->n_heads * wide };
            struct pass_seq s = { .kv = &kv, .n = n, .token = token + PAST, .parent = form & 1 ? parent
                                  : NULL, .scored = catch_scores, .scored_ctx = &got };
            if (model_forward(&r.m, r.w, &s, 1, taps, c->n_layers, &e)) rig_die("pass", &e);
            CHECK(got.calls == c->n_layers, "%zu calls", got.calls);
            for (size_t l = 0; l < c->n_layers; l++) {
                size_t from = c->layer[l].window && PAST + 1 > c->window ? PAST + 1 - c->window : 0;
                CHECK(got.from[l] == from, "layer %zu: from %zu", l, got.from[l]);
                const struct device_heads g = model_heads(&r.m, l);
                const size_t group = g.n_heads / g.n_kv_heads, d = g.head_dim;
                for (size_t h = 0; h < g.n_kv_heads; h++)
                    for (size_t pos = from; pos < PAST; pos++) {
                        float row[2 * HEAD_DIM_MAX];
                        const double scalar = c->query_scalar != 0 ? c->query_scalar : (double)d;
                        double sum = 0, size = 0, slip = 0, scale = 1.4426950408889634 / sqrt(scalar);
                        kv_get(row, kv.type, g.padded, pos % KV_BLOCK, kv_block(&kv, l, h, pos));
                        for (size_t j = 0; j < group; j++) {
                            double most = 0, all = 0, keys = 0;
                            for (size_t i = 0; i < d; i++) {
                                double q = scale * taps[l].out[(h * group + j) * d + i],
                                       k = rig_row_at(row, kv.type, g.padded, i);
                                sum += q * k, size += fabs(q * k);
                                most = fmax(most, fabs(q)), all += fabs(q), keys += fabs(k);
                            }
                            /* half a unit of the query in int16 */
                            slip += 0.501 * fmax(most / 32767, all / 261888) * keys;
                        }
                        double off = fabs(got.score[(l * c->n_kv_heads + h) * 512 + pos] - sum),
                               bound = size * (kv.type == DT_BF16 ? 0x1.1p-8 : 0x1p-18) +
                                       (kv.type == DT_I16 ? slip : 0) + 1e-30;
                        worst = fmax(worst, off / bound);
                        CHECK(off <= bound, "%s layer %zu head %zu position %zu: %g, not %g",
                              tiny_models[m].name, l, h, pos,
                              (double)got.score[(l * c->n_kv_heads + h) * 512 + pos], sum);
                        if (test_failed_) goto done;
                    }
            }
done:
            free(last), free(query), free(got.score);
            kv_close(&kv), rig_close(&r), tiny_remove(dir);
        }
}

int main(void)
{
    RUN(slots_after_many_rounds);
    RUN(refresh_at_the_right_round);
    RUN(resized);
    RUN(truncated_and_written_again);
    RUN(no_copy_without_need);
    RUN(means_are_means);
    RUN(means_follow_every_change);
    RUN(wrong_means_are_seen);
    RUN(scores_of_a_pass);
    return test_end();
}
