/* The sampler compared with tests/sample/sample_reference.h, its tables with histories, its frequencies with
 * softmax. */
#include "src/sample/chain.h"
#include "tests/sample/sample_reference.h"
#include "tests/test.h"
#include <time.h>

static uint64_t state = 1;
static uint64_t random_bits(void)
{
    uint64_t z = state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}
static size_t below(size_t n) { return (size_t)(random_bits() % n); }
static double unit(void) { return (double)(random_bits() >> 11) * 0x1p-53; }
static double normal(void)
{
    double s = -6;
    for (int i = 0; i < 12; i++)
        s += unit();
    return s;
}

static const struct ops *fastest(void)
{
    const struct ops *best = ops_all[0];
    for (size_t i = 0; ops_all[i]; i++)
        if (ops_all[i]->supported())
            best = ops_all[i];
    return best;
}

enum { KINDS = 13 };
static void make_logits(float *x, size_t n, int kind)
{
    static const double scales[] = { 1, 4, 30, 1e-3, 1e4, 1e30, 1e38, 1e-40, 4, 4, 2, 0, 8 };
    for (size_t i = 0; i < n; i++) {
        double y = normal() * scales[kind];
        x[i] = (float)fmax(-FLT_MAX, fmin(FLT_MAX, y));
        if (kind == 8)
            x[i] = roundf(x[i]);                            /* many ties */
        if (kind == 9 && below(3) == 0)
            x[i] = -INFINITY;
        if (kind == 10 && below(50))
            x[i] = -INFINITY;
        if (kind == 11)
            x[i] = below(2) ? 0.0f : -0.0f;                 /* all equal */
        if (kind == 12)
            x[i] = below(100) ? x[i] : 40 - (float)below(8);
    }
    if (kind == 10 && below(8) == 0)
        for (size_t i = 0; i < n; i++)
            x[i] = -INFINITY;
}

static double pick(const double *v, size_t n) { return v[below(n)]; }
#define PICK(...) \
    pick((const double[]){ __VA_ARGS__ }, sizeof (const double[]){ __VA_ARGS__ } / sizeof(double))

/* bias holds up to 8 entries, eos up to 2. */
static void make_sampling(struct sampling *p, size_t vocab, void *bias, int32_t *eos)
{
    sampling_defaults(p);
    p->bias = bias;
    p->eos = eos;
    p->seed = random_bits();
    p->sample = below(2) ? 0 : (uint32_t)random_bits();
    if (below(2))
        p->temperature = PICK(0, 0.0001, 0.3, 0.7, 0.9, 1.5, 30, 1000);
    if (below(2))
        p->top_k = (long)PICK(1, 2, 3, 5, 40, 1000, 100000, 0, -1);
    if (below(2))
        p->top_p = PICK(1e-9, 0.1, 0.25, 0.5, 0.9, 0.95, 0.999, 0.9999999999);
    if (below(2))
        p->min_p = PICK(1e-20, 0.001, 0.05, 0.1, 0.5, 1);
    if (below(2))
        p->eta = PICK(1e-9, 3e-4, 2e-3, 0.1, 0.9);
    if (below(3) == 0)
        p->min_keep = (size_t)PICK(2, 3, 20, 700, 1000000);
    if (below(2)) {
        p->penalty = PICK(0.5, 1.2, 1.15, 2, 100);
        p->penalty_window = (long)PICK(-1, 0, 1, 2, 7, 64, 1024);
    }
    if (below(3) == 0)
        p->presence = PICK(-2, 0.5, 2);
    if (below(3) == 0)
        p->frequency = PICK(-1, 0.1, 2);
    p->n_eos = vocab > 3 ? below(3) : 0;
    for (size_t i = 0; i < p->n_eos; i++)
        eos[i] = (int32_t)below(vocab);
    if (below(3) == 0)
        p->min_tokens = below(150);
    p->ignore_eos = below(5) == 0;
    p->n_bias = vocab > 12 && below(2) ? below(9) : 0;
    for (size_t i = 0; i < p->n_bias; i++) {
        p->bias[i].id = (int32_t)below(vocab);
        p->bias[i].bias = (float)PICK(-INFINITY, -100, -1, 2.5, 100, 3e38, -3e38);
    }
}

/* Sometimes the filters that are stored only where they are set. */
static void make_late_filters(struct sampling *p)
{
    if (below(4) == 0)
        p->top_n_sigma = PICK(-1, 0.01, 0.5, 1, 2, 5);
    if (below(4) == 0)
        p->typical = PICK(1e-9, 0.2, 0.5, 0.9, 0.95, 0.999);
    if (below(3) == 0) {
        p->xtc_probability = PICK(0.5, 1, 0.1);
        p->xtc_threshold = PICK(1e-6, 0.01, 0.1, 0.3, 0.6);
    }
}

/* All answers of a sampler for a row: the token, the ranking, the token of another candidate row, and
 * whether some ids are banned. */
enum { SOME_IDS = 12 };
struct answers { int32_t id, row_id; size_t n; struct candidate ranked[RANK_MAX]; bool bans[SOME_IDS]; };

static void run_sampler(struct answers *answers, const struct sampling *p, const float *logits,
                        size_t vocab, const struct ops *ops, struct pool *pool, const struct history *h,
                        size_t k, uint32_t row, const int32_t *ids)
{
    float *x = malloc(vocab * sizeof *x);
    struct sampler *s;
    struct err e;
    memset(answers, 0, sizeof *answers);
    CHECK(!sampler_open(&s, p, vocab, ops, pool, &e), "%s", e.msg);
    memcpy(x, logits, vocab * sizeof *x);
    answers->id = sampler_sample(s, x, h);
    memcpy(x, logits, vocab * sizeof *x);
    answers->n = sampler_rank(s, x, h, k, answers->ranked);
    memcpy(x, logits, vocab * sizeof *x);
    answers->row_id = sampler_sample_row(s, x, h, row);
    for (size_t i = 0; i < SOME_IDS; i++)
        answers->bans[i] = sampler_bans(s, ids[i], h);
    sampler_close(s);
    free(x);
}

/* One random case of row, parameters and history. Every twin, with one thread and three, must equal the
 * reference. */
struct tally { size_t cases, unsure, unsure_ranks, sampled, filtered, ranked, none, other_rows, bans; };
static void random_case(size_t vocab, int kind, struct pool *pool, struct tally *t)
{
    struct { int32_t id; double bias; } bias[8];
    int32_t eos[4], tokens[260], path[8], ids_asked[SOME_IDS];
    struct sampling p;
    struct err e;
    bool unsure, unsure_rank, unsure_row;
    size_t kept = 0, row_kept = 0, ids = 1 + below(MIN(vocab, 300));
    float *logits = malloc(vocab * sizeof *logits);
    struct history h = { tokens, below(250), 0, path, below(3) ? 0 : below(8) };
    make_logits(logits, vocab, kind);
    make_sampling(&p, vocab, bias, eos);
    make_late_filters(&p);
    p.n_stop = vocab > 14 ? below(3) : 0;
    for (size_t i = 0; i < p.n_stop; i++)
        eos[p.n_eos + i] = (int32_t)below(vocab);
    for (size_t i = 0; i < h.n; i++)
        tokens[i] = (int32_t)below(ids);
    for (size_t i = 0; i < h.n_path; i++)
        path[i] = (int32_t)below(ids);
    h.n_prompt = below(h.n + 1);
    const size_t k = 1 + below(below(3) ? RANK_MAX : 3), position = h.n + h.n_path;
    const uint32_t row = below(2) ? (uint32_t)below(50) : (uint32_t)below(CANDIDATE_ROWS_MAX);
    for (size_t i = 0; i < SOME_IDS; i++)
        ids_asked[i] = i < p.n_bias                        ? p.bias[i].id
                       : i < p.n_bias + p.n_eos + p.n_stop ? eos[i - p.n_bias]
                                                           : (int32_t)below(vocab);
    const uint64_t row_position = position + ((uint64_t)row << 40);
    struct cand *left = ref_chain(&p, logits, vocab, &h, position, &unsure, &kept),
                *row_left = ref_chain(&p, logits, vocab, &h, row_position, &unsure_row, &row_kept);
    CHECK(left && row_left, "the reference agrees with itself (vocabulary %zu, kind %d)", vocab, kind);
    CHECK(!sampling_check(&p, vocab, &e), "%s", e.msg);
    if (test_failed_)
        return;
    struct ref_scored *by_row = malloc((row_kept + 1) * sizeof *by_row),
                      *want = malloc((kept + 1) * sizeof *want);
    unsure_rank = unsure;
    by_row[0].id = want[0].id = ref_lowest_allowed(&p, vocab, ref_banned_ends(&p, &h));
    ref_rank(by_row, row_left, row_kept, &p, row_position, 1, &unsure_row);
    ref_rank(want, left, kept, &p, position, 1, &unsure);
    ref_rank(want, left, kept, &p, position, k, &unsure_rank);
    t->cases++;
    t->unsure += unsure;
    t->unsure_ranks += unsure_rank;
    t->sampled += kept > 1 && p.temperature > 0;
    t->filtered += kept < vocab;
    t->ranked += kept > 1 && k > 1 && !unsure_rank;
    t->none += kept == 0;
    t->other_rows += by_row[0].id != want[0].id;
    struct answers first, answers;
    for (size_t i = 0; ops_all[i] && !test_failed_; i++)
        for (int threads = 0; ops_all[i]->supported() && threads < 2; threads++) {
            run_sampler(&answers, &p, logits, vocab, ops_all[i], threads ? pool : NULL, &h, k, row,
                        ids_asked);
            if (i == 0 && threads == 0)
                first = answers;
            CHECK(!memcmp(&answers, &first, sizeof answers),
                  "%s, %d: differs from plain C (vocabulary %zu, kind %d, k %zu)", ops_all[i]->name, threads,
                  vocab, kind, k);
        }
    CHECK(unsure || first.id == want[0].id,
          "%d, want %d (vocabulary %zu, kind %d, T %g, k %ld, p %g, min-p %g, eta %g, keep %zu, kept %zu)",
          (int)first.id, (int)want[0].id, vocab, kind, p.temperature, p.top_k, p.top_p, p.min_p, p.eta,
          p.min_keep, kept);
    CHECK(unsure_row || first.row_id == by_row[0].id, "row %u: %d, want %d", row, (int)first.row_id,
          (int)by_row[0].id);
    CHECK(unsure || first.n == MIN(k, kept), "%zu ranked, want %zu of %zu", first.n, k, kept);
    CHECK(first.n ? first.ranked[0].id == first.id : first.id == want[0].id,
          "the first of the ranking is the sampled token");
    for (size_t i = 0; !unsure_rank && i < first.n; i++) {
        double score = (double)fmaxl(want[i].score, -FLT_MAX);
        CHECK(first.ranked[i].id == want[i].id && near((double)first.ranked[i].score, score, 1e-5, 1e-6),
              "rank %zu of %zu: %d %g, want %d %g (vocabulary %zu, kind %d, T %g)", i, k,
              (int)first.ranked[i].id, (double)first.ranked[i].score, (int)want[i].id, score, vocab, kind,
              p.temperature);
    }
    for (size_t i = 0; i < SOME_IDS; i++) {
        CHECK(first.bans[i] == ref_bans(&p, ids_asked[i], ref_banned_ends(&p, &h)), "id %d",
              (int)ids_asked[i]);
        t->bans += first.bans[i];
    }
    free(logits);
    free(left);
    free(row_left);
    free(by_row);
    free(want);
}

static struct pool *three;

static void sampler_equals_the_reference(void)
{
    static const size_t vocabs[] = { 1, 2, 3, 7, 16, 31, 63, 64, 65, 100, 257, 511, 512, 513, 1000, 1025,
                                     2049, 5000 };
    struct tally t = {0};
    state = 1;
    for (int i = 0; i < 6000 && !test_failed_; i++)
        random_case(vocabs[below(sizeof vocabs / sizeof *vocabs)], (int)below(KINDS), three, &t);
    CHECK(t.unsure < t.cases / 30 && t.sampled > t.cases / 4 && t.filtered > t.cases / 3,
          "%zu cases, %zu unsure, %zu sampled, %zu filtered", t.cases, t.unsure, t.sampled, t.filtered);
    CHECK(t.unsure_ranks < t.cases / 15 && t.ranked > t.cases / 4 && t.none > 20 &&
              t.other_rows > t.cases / 5 && t.bans > t.cases / 4,
          "%zu cases, %zu unsure rankings, %zu ranked, %zu of none, %zu of other rows, %zu bans", t.cases,
          t.unsure_ranks, t.ranked, t.none, t.other_rows, t.bans);
}

static void sampler_equals_the_reference_at_large_vocabularies(void)
{
    static const size_t vocabs[] = { 32000, 50257, 128256, 151936 };
    struct tally t = {0};
    state = 2;
    for (int i = 0; i < 4 * KINDS && !test_failed_; i++)
        random_case(vocabs[i / KINDS], i % KINDS, three, &t);
    CHECK(t.unsure <= t.cases / 8, "%zu of %zu unsure", t.unsure, t.cases);
}

/* Scores below every float: their float bound is -inf, but the candidates still exist. */
static void ranking_reaches_beyond_floats(void)
{
    enum { V = 300 };
    struct history none = {0};
    struct sampling p;
    struct sampler *s;
    struct err e;
    sampling_defaults(&p);
    for (size_t i = 0; ops_all[i]; i++) {
        float x[V];
        struct candidate out[RANK_MAX];
        if (!ops_all[i]->supported())
            continue;
        for (int j = 0; j < V; j++)
            x[j] = -FLT_MAX * (1 - (float)(j * 7 % V) / 1000);
        x[5] = FLT_MAX;
        CHECK(!sampler_open(&s, &p, V, ops_all[i], NULL, &e));
        CHECK(sampler_rank(s, x, &none, RANK_MAX, out) == RANK_MAX && out[0].id == 5 &&
              out[1].score == -FLT_MAX);
        for (int j = 1; j < RANK_MAX; j++)
            CHECK(out[j].id * 7 % V == V - j, "%s: rank %d: %d", ops_all[i]->name, j, (int)out[j].id);
        sampler_close(s);
    }
}

static int by_id(const void *a, const void *b)
{
    return (((const struct cand *)a)->id > ((const struct cand *)b)->id) -
           (((const struct cand *)a)->id < ((const struct cand *)b)->id);
}

static void step_alone(struct chain *c, const char *name, struct sampling p)
{
    const struct chain_step *step = chain_steps;
    while (strcmp(step->name, name) != 0)
        step++;
    step->apply(c, &p);
}

/* Whether the remaining candidates of c are those of want[0..n), id by id. */
static bool same_candidates(const struct chain *c, struct cand *want, size_t n)
{
    size_t found = 0;
    qsort(want, n, sizeof *want, by_id);
    for (size_t i = 0; i < c->n; i++)
        if (c->x[i] >= c->cut) {
            int32_t id = (int32_t)(c->ids ? c->ids[i] : i);
            if (found == n || want[found].id != id || want[found].x != c->x[i])
                return false;
            found++;
        }
    return found == n;
}

/* p beside the exact sum of a prefix, where the last unit of the sum of all weights decides. */
static void top_p_is_exact_to_one_unit(void)
{
    enum { V = 3000 };
    static float logits[V];
    static struct cand all[V];
    void *memory = mem_alloc(chain_bytes(V));
    size_t cuts = 0;
    state = 44;
    for (int i = 0; i < 600 && !test_failed_; i++) {
        const struct coin_key key = { 1, (uint64_t)i, 0 };
        struct chain c;
        uint64_t w, sum = 0, part = 0;
        size_t m = 0, last = below(60);
        make_logits(logits, V, PICK(2, 12, 12, 12) > 2 ? 12 : 2);
        for (int j = 0; j < V; j++)
            all[j] = (struct cand){ logits[j], j };
        qsort(all, V, sizeof *all, cand_order);
        for (size_t j = 0; j < V; j++) {
            ops_all[0]->weigh(&w, &all[j].x, 1, all[0].x);
            sum += w, part += j <= last ? w : 0;
        }
        const double p = nextafter((double)part / (double)sum, PICK(0, 0.5, 1)), want = ceil(p * (double)sum);
        for (part = 0; m < V && (double)part < want; m++) {
            ops_all[0]->weigh(&w, &all[m].x, 1, all[0].x);
            part += w;
        }
        chain_open(&c, V, i % 2 ? fastest() : ops_all[0], NULL, memory);
        chain_start(&c, logits, &key);
        step_alone(&c, "top-p", (struct sampling){ .top_p = p, .min_keep = 1 });
        CHECK(same_candidates(&c, all, m), "case %d: p %.17g, want %zu", i, p, m);
        cuts += m == last + 1 || m == last + 2;
    }
    CHECK(cuts > 300, "%zu", cuts);
    mem_free(memory, chain_bytes(V));
}

/* Filters in a random order with temperatures between them. All survivors of each step are compared, not
 * only the winner. */
static void filters_keep_what_the_reference_keeps(void)
{
    enum { V_MAX = 40000 };
    static float logits[V_MAX];
    static struct cand all[V_MAX], copy[V_MAX];
    void *memory = mem_alloc(chain_bytes(V_MAX));
    size_t unsure_cases = 0, cuts = 0;
    state = 8;
    for (int i = 0; i < 1500 && !test_failed_; i++) {
        const struct ops *ops = i % 2 ? fastest() : ops_all[0];
        size_t vocab = i % 50 == 0 ? V_MAX : 1 + below(below(4) ? 1500 : 5000), n = 0;
        struct chain c;
        bool unsure = false;
        make_logits(logits, vocab, (int)below(KINDS));
        for (size_t j = 0; j < vocab; j++)
            if (!isinf(logits[j]))
                all[n++] = (struct cand){ logits[j], (int32_t)j };
        chain_open(&c, vocab, ops, NULL, memory);
        const struct coin_key key = { 1, (uint64_t)i, 0 };
        chain_start(&c, logits, &key);
        for (int step = 0; step < 4 && n > 0 && !unsure; step++) {
            size_t least = below(3) ? 1 : 1 + below(below(2) ? 30 : vocab + 3), m = n,
                   k = 1 + below(below(2) ? 60 : vocab + 3);
            double p = below(2) ? unit() : PICK(1e-9, 0.25, 0.5, 0.75, 0.9, 0.99, 0.9999999);
            p = p > 0 ? p : 0.5;
            qsort(all, n, sizeof *all, cand_order);
            struct sampling set = { .min_keep = least };
            const char *name;
            switch (below(8)) {
            case 0: m = MIN(n, k); set.min_keep = least = 1; set.top_k = (long)k; name = "top-k"; break;
            case 1: m = ref_top_p(all, n, p, &unsure); set.top_p = p; name = "top-p"; break;
            case 2: set.min_p = p *= p * p; m = ref_min_p(all, n, p, &unsure); name = "min-p"; break;
            case 3: set.eta = p *= p * p; m = ref_eta(all, n, p, &unsure); name = "eta"; break;
            case 4:
                set.top_n_sigma = p *= 4, name = "top-n-sigma";
                m = ref_top_n_sigma(all, n, p, &unsure);
                break;
            case 5: set.typical = p; m = ref_typical(all, n, p, least, &unsure); name = "typical"; break;
            case 6:
                set.xtc_probability = 1, set.xtc_threshold = p *= p * p, name = "xtc-probability";
                m = ref_xtc(all, n, p, least, &unsure);
                break;
            default:
                set.temperature = 0.5 + p, name = "temperature";
                for (size_t j = 0; j < n; j++)
                    all[j].x = ref_limited(all[j].x, all[j].x / (float)(0.5 + p));
                break;
            }
            step_alone(&c, name, set);
            const bool prefix = *name != 'x' && strcmp(name, "typical") != 0;
            CHECK(m != SIZE_MAX, "the reference is at one with itself");
            m = prefix ? MIN(n, MAX(m, least)) : m;
            cuts += m < n;
            n = m;
            memcpy(copy, all, n * sizeof *all);
            CHECK(unsure || same_candidates(&c, copy, n),
                  "case %d, step %d, vocabulary %zu, p %g, min-keep %zu, want %zu", i, step, vocab, p, least,
                  n);
        }
        unsure_cases += unsure;
    }
    CHECK(unsure_cases < 200 && cuts > 1000, "%zu unsure, %zu cuts", unsure_cases, cuts);
    mem_free(memory, chain_bytes(V_MAX));
}

/* Logits one float apart around the threshold: x - top >= log(p) decides in double. */
static void thresholds_are_exact_to_one_float(void)
{
    enum { N = 64 };
    static const float tops[] = { 0, 1.5f, -7.3f, 1000, 3e-39f };
    void *memory = mem_alloc(chain_bytes(N));
    for (size_t t = 0; t < sizeof tops / sizeof *tops; t++)
        for (int i = 1; i < 40; i++) {
            float x[N] = { tops[t] }, y = (float)(tops[t] + log(i / 41.0));
            size_t want = 1, got = 0;
            for (int j = 0; j < N / 2; j++)
                y = nextafterf(y, -INFINITY);
            for (int j = 1; j < N; j++) {
                x[j] = y = nextafterf(y, INFINITY);
                want += (double)x[j] - tops[t] >= log(i / 41.0);
            }
            struct chain c;
            chain_open(&c, N, ops_all[0], NULL, memory);
            chain_start(&c, x, &(struct coin_key){0});
            step_alone(&c, "min-p", (struct sampling){ .min_p = i / 41.0, .min_keep = 1 });
            for (size_t j = 0; j < c.n; j++)
                got += c.x[j] >= c.cut;
            CHECK(got == want && want > 20 && want < 45, "top %g, p %d/41: %zu, want %zu", (double)tops[t], i,
                  got, want);
        }
    mem_free(memory, chain_bytes(N));
}

/* The limit is 0, and the differences of 600 million floats round to it. */
static void a_limit_of_0_is_found_at_once(void)
{
    enum { N = 4 };
    float x[N] = { 1, -1, 1, -1 };
    size_t left = 0;
    struct chain c;
    void *memory = mem_alloc(chain_bytes(N));
    const clock_t start = clock();
    chain_open(&c, N, ops_all[0], NULL, memory);
    chain_start(&c, x, &(struct coin_key){0});
    step_alone(&c, "top-n-sigma", (struct sampling){ .top_n_sigma = 1, .min_keep = 1 });
    CHECK(clock() - start < CLOCKS_PER_SEC / 4 * (clock_t)SLOWER);
    for (size_t j = 0; j < c.n; j++)
        left += c.x[j] >= c.cut;
    CHECK(left == 2, "%zu", left);
    mem_free(memory, chain_bytes(N));
}

/* A sampler that follows a text, and jumps to other texts and back, equals a new sampler each time. */
static void tables_follow_any_history(void)
{
    enum { V = 300, N = 700 };
    static const long windows[] = { -1, 0, 1, 13, 100, 1000 };
    int32_t text[2][N], path[20];
    float logits[V], x[V];
    struct err e;
    size_t differ = 0;
    state = 3;
    for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
        struct sampling p;
        struct sampler *s, *fresh;
        sampling_defaults(&p);
        p.penalty = 1.3;
        p.penalty_window = windows[w];
        p.presence = 0.3;
        p.frequency = 0.2;
        p.temperature = w % 2 ? 1 : 0;
        for (size_t i = 0; i < N; i++) {
            text[0][i] = (int32_t)below(V);
            text[1][i] = i % 200 == 77 ? (int32_t)below(V) : text[0][i];       /* a near copy */
        }
        CHECK(!sampler_open(&s, &p, V, ops_all[0], NULL, &e));
        for (size_t n = 0, i = 0; i < 1500; i++, n = below(100) ? (n + below(3)) % N : below(N)) {
            size_t prompt = below(40) ? 50 : 60;
            struct history h = { text[below(30) == 0], n, MIN(n, prompt), path, below(2) ? 0 : below(20) };
            for (size_t j = 0; j < h.n_path; j++)
                path[j] = (int32_t)below(V);
            make_logits(logits, V, 3);
            memcpy(x, logits, sizeof x);
            int32_t got = sampler_sample(s, x, &h);
            memcpy(x, logits, sizeof x);
            CHECK(!sampler_open(&fresh, &p, V, ops_all[0], NULL, &e));
            int32_t want = sampler_sample(fresh, x, &h);
            sampler_close(fresh);
            memcpy(x, logits, sizeof x);
            struct history none = { NULL, 0, 0, NULL, 0 };
            struct sampling neutral;
            sampling_defaults(&neutral);
            neutral.temperature = 0;
            CHECK(!sampler_open(&fresh, &neutral, V, ops_all[0], NULL, &e));
            differ += sampler_sample(fresh, x, &none) != want;
            sampler_close(fresh);
            CHECK(got == want, "window %ld, step %zu, n %zu, path %zu", windows[w], i, h.n, h.n_path);
            if (test_failed_)
                return;
        }
        sampler_close(s);
    }
    CHECK(differ > 1000, "the tables decide nothing: %zu", differ);
}

/* The path counts as if it were part of the tokens, for position and generated tokens, too. */
static void path_equals_appended_tokens(void)
{
    enum { V = 200, N = 60 };
    int32_t tokens[N], eos[2] = { 3, 9 };
    float logits[V], x[V];
    struct err e;
    size_t differ = 0;
    state = 4;
    for (int i = 0; i < 2000; i++) {
        struct sampling p;
        struct sampler *s;
        sampling_defaults(&p);
        p.penalty = 1.5;
        p.penalty_window = (long)PICK(-1, 0, 3, 10, 50);
        p.frequency = 0.5;
        p.seed = (uint64_t)i;
        p.eos = eos;
        p.n_eos = 2;
        p.min_tokens = 30;
        for (size_t j = 0; j < N; j++)
            tokens[j] = (int32_t)below(V);
        make_logits(logits, V, 0);
        size_t n = 20 + below(N - 20), prompt = below(20), split = prompt + below(n - prompt + 1);
        struct history whole = { tokens, n, prompt, NULL, 0 }, parts = { tokens, split, prompt,
            tokens + split, n - split };
        struct history before_path = { tokens, split, prompt, NULL, 0 };
        CHECK(!sampler_open(&s, &p, V, ops_all[0], NULL, &e));
        memcpy(x, logits, sizeof x);
        int32_t want = sampler_sample(s, x, &whole);
        memcpy(x, logits, sizeof x);
        CHECK(sampler_sample(s, x, &parts) == want, "case %d", i);
        memcpy(x, logits, sizeof x);
        differ += split < n && sampler_sample(s, x, &before_path) != want;
        sampler_close(s);
    }
    CHECK(differ > 1000, "%zu", differ);
}

static int32_t choose(const struct sampling *p, const float *logits, size_t vocab, struct history h)
{
    struct sampler *s;
    struct err e;
    float *x = malloc(vocab * sizeof *x);
    memcpy(x, logits, vocab * sizeof *x);
    int32_t id = -1;
    if (!sampling_check(p, vocab, &e) && !sampler_open(&s, p, vocab, ops_all[0], NULL, &e)) {
        id = sampler_sample(s, x, &h);
        sampler_close(s);
    }
    free(x);
    return id;
}

static void greedy_takes_the_lowest_of_the_best(void)
{
    const float logits[] = { -1, 3, 2.5f, 3, 3 }, none[] = { -INFINITY, -INFINITY, -INFINITY, -INFINITY,
        -INFINITY };
    const int32_t tokens[] = { 1, 1, 1, 4 }, eos[] = { 0, 3 };
    struct { int32_t id; double bias; } ban[] = { { 0, -INFINITY }, { 1, 5 } };
    struct sampling p;
    sampling_defaults(&p);
    p.temperature = 0;
    CHECK(choose(&p, logits, 5, (struct history){0}) == 1);
    p.penalty = 1.1;                                       /* applied once for any count: 3/1.1 > 2.5 */
    CHECK(choose(&p, logits, 5, (struct history){ tokens, 4, 4, NULL, 0 }) == 3);
    const float low[] = { -4, -3, -3.5f, -9,
                          -3.4f };      /* a negative logit is multiplied: -3 * 1.2 < -3.5 */
    p.penalty = 1.2;
    CHECK(choose(&p, low, 5, (struct history){ tokens, 4, 4, NULL, 0 }) == 2);
    p.penalty_window = 1;
    CHECK(choose(&p, low, 5, (struct history){ tokens, 4, 4, NULL, 0 }) == 1);
    p.penalty = 1;
    p.frequency = 0.2;                                     /* counts the text alone: token 1 occurs 3 times */
    CHECK(choose(&p, low, 5, (struct history){ tokens, 4, 4, NULL, 0 }) == 1);
    CHECK(choose(&p, low, 5, (struct history){ tokens, 4, 0, NULL, 0 }) == 2);
    CHECK(choose(&p, low, 5, (struct history){ tokens, 4, 2, NULL, 0 }) == 1);
    sampling_defaults(&p);
    p.temperature = 0;
    p.eos = eos;
    p.n_eos = 2;
    p.bias = (void *)ban;
    p.n_bias = 1;
    CHECK(choose(&p, none, 5, (struct history){0}) == 1, "all -inf: the lowest that is not banned");
    p.min_tokens = 3;
    const float end_best[] = { 0, 1, 0, 9, 0 };
    CHECK(choose(&p, end_best, 5, (struct history){ tokens, 2, 0, NULL, 0 }) == 1, "text of 2: banned");
    CHECK(choose(&p, end_best, 5, (struct history){ tokens, 3, 0, NULL, 0 }) == 3, "text of 3: allowed");
    CHECK(choose(&p, end_best, 5, (struct history){ tokens, 3, 1, NULL, 0 }) == 1,
          "the prompt does not count");
    p.ignore_eos = true;
    CHECK(choose(&p, end_best, 5, (struct history){ tokens, 4, 0, NULL, 0 }) == 1);
}

/* The upper limit of chi-square, kept with probability about 1 - 1e-5 (Wilson, Hilferty). */
static double chi2_limit(double n) { return n * pow(1 - 2 / (9 * n) + 4.265 * sqrt(2 / (9 * n)), 3); }

/* Chi-square of counts for given probabilities. Bins of less than 20 expected are merged. *df: degrees of
 * freedom. */
static double chi2_of(const unsigned *count, const double *p, size_t n, double total, double *df)
{
    double chi2 = 0, c = 0, q = 0;
    *df = -1;
    for (size_t i = 0; i < n; i++) {
        c += count[i];
        q += p[i] * total;
        if (q >= 20) {
            chi2 += (c - q) * (c - q) / q;
            *df += 1;
            c = q = 0;
        }
    }
    return q > 0 ? chi2 + (c - q) * (c - q) / MAX(q, 1) : chi2;
}

/* Draws along positions, sample numbers or seeds. Expected probabilities are softmax after the reference's
 * chain; for temperature and top-k a sort computes them. */
static void frequencies_are_those_of_softmax(void)
{
    enum { V = 40, DRAWS = 150000 };
    state = 5;
    for (int set = 0; set < 9; set++) {
        float logits[V], x[V];
        double p[V], sum = 0, df;
        unsigned count[V] = {0}, pairs[16] = {0};
        struct sampling s;
        struct sampler *sampler;
        struct err e;
        int32_t last = 0;
        make_logits(logits, V, set < 3 ? 0 : set < 6 ? 8 : 3);
        sampling_defaults(&s);
        s.temperature = set % 2 ? 0.7 : 1;
        s.top_k = set > 5 ? 30 : 0;
        CHECK(!sampler_open(&sampler, &s, V, ops_all[0], NULL, &e));
        for (int i = 0; i < V; i++) {
            int rank = 0;
            for (int j = 0; j < V; j++)
                rank += logits[j] > logits[i] || (logits[j] == logits[i] && j < i);
            p[i] = s.top_k && rank >= s.top_k ? 0 : exp(logits[i] / s.temperature);
            sum += p[i];
        }
        for (int i = 0; i < V; i++)
            p[i] /= sum;
        for (uint32_t i = 0; i < DRAWS; i++) {
            s.seed = set % 3 == 2 ? i : 77;
            s.sample = set % 3 == 1 ? i : 0;
            if (set % 3) {                                 /* seed and sample belong to the sampler: open a
                                                            * new one */
                sampler_close(sampler);
                CHECK(!sampler_open(&sampler, &s, V, ops_all[0], NULL, &e));
            }
            static int32_t tokens[DRAWS];
            memcpy(x, logits, sizeof x);
            int32_t id = sampler_sample(sampler, x, &(struct history){ tokens, set % 3 ? 5 : i, 0, NULL, 0 });
            count[id]++;
            pairs[last % 4 * 4 + id % 4]++;
            last = id;
        }
        sampler_close(sampler);
        double chi2 = chi2_of(count, p, V, DRAWS, &df), four[4] = {0}, both[16];
        CHECK(chi2 < chi2_limit(df) && df > 3, "set %d: chi-square %g, %g degrees", set, chi2, df);
        for (int i = 0; i < V; i++)
            four[i % 4] += p[i];
        for (int i = 0; i < 16; i++)
            both[i] = four[i / 4] * four[i % 4];
        chi2 = chi2_of(pairs, both, 16, DRAWS, &df);
        CHECK(chi2 < chi2_limit(df), "set %d: one draw depends on the next: %g", set, chi2);
        p[0] += 0.01, p[1] -= 0.01;                        /* the test finds a distribution that is 1 % off */
        if (set == 0)
            CHECK(chi2_of(count, p, V, DRAWS, &df) > chi2_limit(df) || p[1] < 0.01);
    }
}

/* Flat and steep rows over a whole vocabulary, in classes of 5,000 ids. */
static void frequencies_hold_at_a_large_vocabulary(void)
{
    enum { V = 150000, CLASSES = 30, DRAWS = 1500 };
    float *logits = malloc(V * sizeof *logits), *x = malloc(V * sizeof *x);
    static int32_t tokens[DRAWS];
    for (int kind = 0; kind < 2; kind++) {
        double p[CLASSES] = {0}, sum = 0, df;
        unsigned count[CLASSES] = {0};
        struct sampling s;
        struct sampler *sampler;
        struct err e;
        state = 6;
        make_logits(logits, V, kind);
        for (int i = 0; i < V; i++) {
            p[i / (V / CLASSES)] += exp((double)logits[i]);
            sum += exp((double)logits[i]);
        }
        for (int i = 0; i < CLASSES; i++)
            p[i] /= sum;
        sampling_defaults(&s);
        CHECK(!sampler_open(&sampler, &s, V, fastest(), NULL, &e));
        for (size_t i = 0; i < DRAWS; i++) {
            memcpy(x, logits, V * sizeof *x);
            count[(size_t)sampler_sample(sampler, x, &(struct history){ tokens, i, 0, NULL,
                0 }) / (V / CLASSES)]++;
        }
        sampler_close(sampler);
        double chi2 = chi2_of(count, p, CLASSES, DRAWS, &df);
        CHECK(chi2 < chi2_limit(df) && df > 5, "kind %d: chi-square %g, %g degrees", kind, chi2, df);
    }
    free(logits);
    free(x);
}

/* One hash over many sampled tokens: texts must not change with the build, the compiler or the machine. */
static void choices_are_the_golden_ones(void)
{
    uint64_t h = HASH64_INIT;
    float x[3000];
    int32_t tokens[400];
    state = 7;
    for (int i = 0; i < 400; i++)
        tokens[i] = (int32_t)below(3000);
    for (int i = 0; i < 600; i++) {
        struct { int32_t id; double bias; } bias[8];
        int32_t eos[2];
        struct sampling p;
        struct sampler *s;
        struct err e;
        make_sampling(&p, 3000, bias, eos);
        make_logits(x, 3000, i % KINDS);
        CHECK(!sampler_open(&s, &p, 3000, fastest(), NULL, &e));
        int32_t id = sampler_sample(s, x, &(struct history){ tokens, 100 + below(300), 100, NULL, 0 });
        h = hash64(h, &id, sizeof id);
        sampler_close(s);
    }
    CHECK(h == UINT64_C(0xe159b4579fb1cd04), "%016llx", (unsigned long long)h);
}

static void bad_ids_are_refused_by_name(void)
{
    struct sampling p;
    struct err e = {0};
    struct { int32_t id; double bias; } bias[] = { { 10, 1 }, { 1, NAN }, { 0, -INFINITY },
                                                   { 1, -INFINITY } };
    int32_t eos[] = { -2, 1 };
    sampling_defaults(&p);
    CHECK(!sampling_check(&p, 10, &e) && !sampling_check(&p, SELECT_MAX, &e));
    CHECK(sampling_check(&p, 0, &e) && sampling_check(&p, SELECT_MAX + 1, &e));
    sampling_defaults(&p);
    p.bias = (void *)bias;
    p.n_bias = 1;
    CHECK(sampling_check(&p, 10, &e) == -1 &&
              strstr(e.msg, "--logit-bias: token id 10 is not in the vocabulary, allowed are 0 to 9"),
          "%s", e.msg);
    p.bias = (void *)(bias + 1);
    CHECK(sampling_check(&p, 10, &e) == -1 && strstr(e.msg, "allowed are finite numbers and -inf"), "%s",
          e.msg);
    p.bias = (void *)(bias + 2);
    p.n_bias = 2;
    CHECK(!sampling_check(&p, 3, &e));
    CHECK(sampling_check(&p, 2, &e) == -1 && strstr(e.msg, "all 2 token ids are banned"), "%s", e.msg);
    p.n_bias = 1;
    p.eos = eos + 1;
    p.n_eos = 1;
    CHECK(!sampling_check(&p, 2, &e));
    p.min_tokens = 1;
    CHECK(sampling_check(&p, 2, &e) == -1 && strstr(e.msg, "all 2 token ids are banned"), "%s", e.msg);
    p.eos = eos;
    CHECK(sampling_check(&p, 10, &e) == -1 && strstr(e.msg, "token id -2"), "%s", e.msg);
}

int main(void)
{
    three = pool_open(3);
    RUN(greedy_takes_the_lowest_of_the_best);
    RUN(bad_ids_are_refused_by_name);
    RUN(filters_keep_what_the_reference_keeps);
    RUN(top_p_is_exact_to_one_unit);
    RUN(thresholds_are_exact_to_one_float);
    RUN(sampler_equals_the_reference);
    RUN(sampler_equals_the_reference_at_large_vocabularies);
    RUN(ranking_reaches_beyond_floats);
    RUN(tables_follow_any_history);
    RUN(path_equals_appended_tokens);
    RUN(frequencies_are_those_of_softmax);
    RUN(frequencies_hold_at_a_large_vocabulary);
    RUN(choices_are_the_golden_ones);
    RUN(a_limit_of_0_is_found_at_once);
    pool_close(three);
    return test_end();
}
