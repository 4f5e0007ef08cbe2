/* Milliseconds per token of sampler_sample and sampler_rank on one thread, for every twin of this machine. It
 * measures processor time, which other load does not change. Built by hand; not a test.
 *
 *     bench_sample [vocabulary (151936)] [history (100000)] */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "src/sample/coin.h"
#include "src/sample/sample.h"

enum { ROWS = 4, TIMES = 24 };

struct setting { const char *name; void (*set)(struct sampling *p); };
static void greedy(struct sampling *p) { p->temperature = 0; }
static void pure(struct sampling *p) { (void)p; }
static void top_p(struct sampling *p) { p->top_p = 0.95; }
static void min_p(struct sampling *p) { p->min_p = 0.05; }
static void top_k(struct sampling *p) { p->top_k = 40; }
static void eta(struct sampling *p) { p->eta = 3e-4; }
static void penalty(struct sampling *p)
{
    p->penalty = 1.2, p->penalty_window = -1, p->presence = p->frequency = 0.1;
}
static void window(struct sampling *p) { p->penalty = 1.2; }
static void filters(struct sampling *p)
{
    p->temperature = 0.8, p->top_k = 5000, p->top_p = 0.95, p->min_p = 0.02, p->eta = 3e-4, p->min_keep = 3;
}
static void everything(struct sampling *p) { penalty(p); filters(p); p->min_tokens = 1; }
static void tokenswift(struct sampling *p) { p->min_p = 0.1; p->penalty = 1.2; p->min_keep = 20; }

static const struct setting settings[] = {
    { "greedy", greedy }, { "temperature 1", pure }, { "top-p 0.95", top_p }, { "min-p 0.05", min_p },
    { "top-k 40", top_k },
    { "eta 3e-4", eta }, { "penalty, window 1024", window }, { "penalties, all history", penalty },
    { "all filters", filters }, { "TokenSwift", tokenswift }, { "everything", everything },
};

/* Kinds of rows: normal logits of this deviation; 0: like a model's (one or a few ids far above the rest). */
static const float kinds[] = { 0, 4, 1, 0.001f };

static void make_row(float *x, size_t n, float deviation, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        double sum = -6;
        for (uint32_t k = 0; k < 12; k++)
            sum += (double)coin_word(seed, k, i, 0) * 0x1p-64;
        x[i] = (float)(sum * (deviation > 0 ? (double)deviation : 2.5));
    }
    for (size_t i = 0; deviation <= 0 && i < 40; i++)
        x[coin_word(seed, 99, i, 1) % n] = 16 - 0.25f * (float)i;
}

/* sampler_rank: numbers of candidates, and the names of their settings. */
static const size_t ks[] = { 1, 4, 10, 20 };
static const struct setting ranked[] = { { "greedy", greedy }, { "temperature 1", pure }, { "min-p 0.05",
    min_p } };

static size_t vocab, n_history;
static float *rows, *x;
static int32_t *history;

/* The median time of sampler_sample, or of sampler_rank with k. */
static double ms_per_row(const struct ops *ops, const struct setting *setting, size_t k)
{
    static const int32_t eos[] = { 0 };
    struct candidate out[RANK_MAX];
    struct sampling p;
    struct sampler *s;
    struct err e;
    double ms[TIMES];
    sampling_defaults(&p);
    p.eos = eos;
    p.n_eos = 1;
    setting->set(&p);
    if (sampling_check(&p, vocab, &e) || sampler_open(&s, &p, vocab, ops, NULL, &e))
        exit((fprintf(stderr, "%s\n", e.msg), 1));
    for (size_t j = 0; j < TIMES; j++) {
        struct history h = { history, n_history + j, n_history / 2, NULL, 0, 0 };
        memcpy(x, rows + j % ROWS * vocab, vocab * sizeof *x);
        double from = thread_cpu_seconds();
        if (k)
            sampler_rank(s, x, &h, k, out);
        else
            sampler_sample(s, x, &h);
        ms[j] = 1e3 * (thread_cpu_seconds() - from);
        for (size_t m = j; m > 0 && ms[m] < ms[m - 1]; m--) {
            double swap = ms[m];
            ms[m] = ms[m - 1];
            ms[m - 1] = swap;
        }
    }
    sampler_close(s);
    return ms[TIMES / 2];
}

int main(int argc, char **argv)
{
    vocab = argc > 1 ? strtoull(argv[1], NULL, 10) : 151936;
    n_history = argc > 2 ? strtoull(argv[2], NULL, 10) : 100000;
    rows = malloc(ROWS * vocab * sizeof *rows);
    x = malloc(vocab * sizeof *x);
    history = malloc((n_history + TIMES) * sizeof *history);
    if (!rows || !x || !history)
        return 1;
    /* a history like a text: a few ids often, many seldom */
    for (size_t i = 0; i < n_history + TIMES; i++)
        history[i] = (int32_t)(vocab * pow((double)coin_word(7, 0, i, 0) * 0x1p-64, 4));
    printf("ms per token, vocabulary %zu, history %zu, one thread; median of %d\n", vocab, n_history, TIMES);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (size_t r = 0; r < ROWS; r++)
            make_row(rows + r * vocab, vocab, kinds[k], r);
        printf("\n%-28s", kinds[k] > 0 ? "normal logits, deviation" : "logits as of a model");
        if (kinds[k] > 0)
            printf(" %g", (double)kinds[k]);
        printf("\n%-28s", "");
        for (size_t t = 0; ops_all[t]; t++)
            printf(" %10s", ops_all[t]->supported() ? ops_all[t]->name : "-");
        printf("\n");
        for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
            printf("%-28s", settings[i].name);
            for (size_t t = 0; ops_all[t]; t++)
                if (ops_all[t]->supported())
                    printf(" %10.3f", ms_per_row(ops_all[t], &settings[i], 0));
            printf("\n");
        }
        for (size_t i = 0; i < sizeof ranked / sizeof *ranked; i++)
            for (size_t j = 0; j < sizeof ks / sizeof *ks; j++) {
                printf("rank %2zu, %-19s", ks[j], ranked[i].name);
                for (size_t t = 0; ops_all[t]; t++)
                    if (ops_all[t]->supported())
                        printf(" %10.4f", ms_per_row(ops_all[t], &ranked[i], ks[j]));
                printf("\n");
            }
    }
    free(rows);
    free(x);
    free(history);
    return 0;
}
