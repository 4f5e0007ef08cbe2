/* Owns spec-best: auto against fixed trees, passes, budgets and policies, which a user could find by hand. */
#include <stdio.h>

#include "tests/labbench/lab.h"

static const double BEST_GOAL = 0.95;

#define CHAINS(name, flags) \
    { "chain1/" name, "--drafter partial --tree 1 --draft-passes 1 --kv-budget " flags }, \
    { "chain2/" name, "--drafter partial --tree 1 --draft-passes 2 --kv-budget " flags }, \
    { "chain3/" name, "--drafter partial --tree 1 --draft-passes 3 --kv-budget " flags }, \
    { "chain4/" name, "--drafter partial --tree 1 --draft-passes 4 --kv-budget " flags }, \
    { "chain6/" name, "--drafter partial --tree 1 --draft-passes 6 --kv-budget " flags }
static const struct spec_setting best_settings[] = {
    SPEC_COMMON, CHAINS("256", "256"), CHAINS("1024", "1024"), CHAINS("4096", "4096"),
    CHAINS("m256", "256 --kv-policy mean"), CHAINS("m1024", "1024 --kv-policy mean"),
    CHAINS("m4096", "4096 --kv-policy mean"),
    CHAINS("w256", "256 --kv-policy window"), CHAINS("w1024", "1024 --kv-policy window"),
    CHAINS("w4096", "4096 --kv-policy window"),
    { "wide2/256", "--drafter partial --tree 2 --draft-passes 3 --kv-budget 256" },
    { "heads-1", "--drafter heads --tree 1" },
    { "heads-11", "--drafter heads --tree 1,1" },
    { "heads-21", "--drafter heads --tree 2,1" },
    { "heads-22", "--drafter heads --tree 2,2" },
    { "heads-311", "--drafter heads --tree 3,1,1" },
    { "swift-11", "--drafter heads,partial --tree 1,1 --kv-budget 256" },
    { "swift-111", "--drafter heads,partial --tree 1,1,1 --kv-budget 256" },
    { "swift-121", "--drafter heads,partial --tree 1,2,1 --kv-budget 1024" },
    { "swift2-11", "--drafter heads,partial --tree 1,1 --draft-passes 2 --kv-budget 256" },
    { "swift3-11", "--drafter heads,partial --tree 1,1 --draft-passes 3 --kv-budget 256" },
    { "ngram-1", "--drafter ngram --tree 1 --ngram-k 1 --ngram-lead root" },
    { "ngram-4", "--drafter ngram --tree 1 --ngram-k 4 --ngram-lead root" },
    { "suffix", "--drafter suffix --tree 1" },
    { "chain3+ngram", "--drafter partial,ngram --tree 1 --draft-passes 3 --kv-budget 256 --ngram-k 2" },
    { "chain3+suffix", "--drafter partial,suffix --tree 1 --draft-passes 3 --kv-budget 256" },
};

/* The fastest fixed setting by these seconds, or SPEC_PLAIN. */
static size_t best_fixed(const struct spec *s, const double *seconds)
{
    size_t best = SPEC_PLAIN;
    for (size_t i = SPEC_OTHERS; i < s->n_settings; i++)
        if (seconds[i] < seconds[best])
            best = i;
    return best;
}

/* Auto against the fastest fixed setting of every window, and of the whole text. */
static void print_best(const struct spec *s, const struct spec_text *t)
{
    double sum[SPEC_SETTINGS_MAX] = {0}, changing = 0;
    printf("\n%8s  %-14s %8s %8s %12s (goal %.2f)\n", "token", "best fixed", "its", "auto's", "auto/best",
           BEST_GOAL);
    for (size_t k = 0; k < t->n_windows; k++) {
        const struct spec_window *w = &t->window[k];
        double seconds[SPEC_SETTINGS_MAX], n = (double)(w->hi - w->lo);
        for (size_t i = 0; i < s->n_settings; i++) {
            seconds[i] = i < SPEC_AUTO ? spec_plain_median(s, w) : spec_setting_median(s, w, i).seconds;
            sum[i] += n * seconds[i];
        }
        size_t best = best_fixed(s, seconds);
        changing += n * seconds[best];
        printf("%8zu  %-14s %8.2f %8.2f %12.3f%s\n", w->from, s->setting[best].name,
               seconds[SPEC_PLAIN] / seconds[best], seconds[SPEC_PLAIN] / seconds[SPEC_AUTO],
               seconds[best] / seconds[SPEC_AUTO],
               seconds[best] < BEST_GOAL * seconds[SPEC_AUTO] ? " !" : "");
    }
    size_t best = best_fixed(s, sum);
    printf("the whole text: auto %.2f, best fixed setting %s %.2f (auto/best %.3f), the best of each window "
           "%.2f (auto/best %.3f)\n",
           sum[SPEC_PLAIN] / sum[SPEC_AUTO], s->setting[best].name, sum[SPEC_PLAIN] / sum[best],
           sum[best] / sum[SPEC_AUTO], sum[SPEC_PLAIN] / changing, changing / sum[SPEC_AUTO]);
    for (size_t i = SPEC_OTHERS; i < s->n_settings; i++)
        printf("  %-14s %6.2f   %s\n", s->setting[i].name, sum[SPEC_PLAIN] / sum[i],
               s->setting[i].flags ? s->setting[i].flags : "the flags of this command");
}

const struct spec_point lab_points[] = {
    { "spec-best", SPEC_WINDOWS, best_settings, sizeof best_settings / sizeof *best_settings, 100000, 20000,
      400, 2, 200, { 4096 }, print_best },
    { .name = NULL },
};
