/* Statistics of drafting: sums over rounds, windows of 1,000 tokens, and their JSON. Start reading at
 * stats_add(). */
#include "src/decode/stats.h"

#include <stdlib.h>
#include <string.h>

size_t stats_bytes(size_t n_max) { return (n_max / STATS_WINDOW + 1) * sizeof(struct window_stats); }

int stats_open(struct draft_stats *s, size_t n_max, struct err *e)
{
    *s = (struct draft_stats){ .n_windows = n_max / STATS_WINDOW + 1 };
    s->window = calloc(s->n_windows, sizeof *s->window);
    return s->window ? 0 : err_set(e, ERR_FAILED, "out of memory for the statistics of %zu tokens", n_max);
}

void stats_close(struct draft_stats *s)
{
    free(s->window);
    *s = (struct draft_stats){0};
}

void stats_clear(struct draft_stats *s)
{
    struct window_stats *w = s->window;
    size_t n = s->n_windows;
    memset(w, 0, n * sizeof *w);
    *s = (struct draft_stats){ .window = w, .n_windows = n };
}

/* A round that crosses the border of two windows counts in both, in proportion to its tokens. */
static void add_windows(struct draft_stats *s, const struct round_stats *r, size_t tokens)
{
    for (size_t at = s->from + s->tokens, end = at + tokens; at < end;) {
        struct window_stats *w = &s->window[MIN(at / STATS_WINDOW, s->n_windows - 1)];
        size_t n = MIN(end, (at / STATS_WINDOW + 1) * STATS_WINDOW) - at;
        w->seconds += r->seconds * (double)n / (double)tokens;
        w->rounds += (double)n / (double)tokens;
        w->tokens += n;
        at += n;
    }
}

void stats_add(struct draft_stats *s, const struct round_stats *r, size_t tokens)
{
    assert(tokens <= r->tokens);
    if (tokens == 0)
        return;
    const size_t accepted = MIN(tokens, r->tokens - 1);
    add_windows(s, r, tokens);
    s->tokens += tokens;
    s->rounds++;
    s->drafted += r->drafted;
    s->verified_rows += r->rows;
    s->accepted += accepted;
    s->drafted_depth += r->drafted_depth;
    s->beta_accepted += r->ngram_covers >= accepted ? accepted : 0;
    s->draft_passes += r->draft_passes;
    s->refreshes += r->refreshes;
    s->to_host += r->to_host;
    /* nothing was reached after the last token of the text */
    for (size_t d = 1; d <= TREE_DEPTH_MAX && d <= tokens; d++) {
        s->reached[d] += r->n_reached[d];
        s->accepted_at[d] += d <= accepted;
    }
    s->histogram[MIN(tokens, (size_t)TREE_DEPTH_MAX + 1)]++;
    for (size_t i = 0; i < N_SOURCES; i++) {
        s->source_drafted[i] += r->source_drafted[i];
        for (size_t d = 0; d < accepted; d++)
            s->source_accepted[i] += r->path_sources[d] >> i & 1;
    }
    s->seconds += r->seconds;
    s->draft += r->draft;
    s->verify += r->verify;
    s->control += r->control;
    s->plain += r->plain * (double)tokens;
}

static void put_list(FILE *f, const char *name, const size_t *v, size_t from, size_t n)
{
    while (n > from && !v[n - 1])
        n--;
    fprintf(f, "\"%s\": [", name);
    for (size_t i = from; i < n; i++)
        fprintf(f, "%s%zu", i > from ? ", " : "", v[i]);
    fputs("], ", f);
}

static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

static void put_share(FILE *f, const char *name, size_t n, size_t of)
{
    if (of)
        fprintf(f, "\"%s\": %.4f, ", name, (double)n / (double)of);
    else
        fprintf(f, "\"%s\": null, ", name);
}

void stats_json(FILE *f, const struct draft_stats *s, bool tree_fixed)
{
    fprintf(f, "\"rounds\": %zu, \"mean_acceptance_length\": %.4f, ", s->rounds,
            ratio((double)s->tokens, (double)s->rounds));
    put_share(f, "alpha", s->accepted, s->drafted_depth);
    put_share(f, "beta", s->beta_accepted, tree_fixed ? s->drafted_depth : 0);
    fprintf(f, "\"drafted\": %zu, \"verified_rows\": %zu, \"accepted\": %zu, \"draft_passes\": %zu, ",
            s->drafted, s->verified_rows, s->accepted, s->draft_passes);
    put_list(f, "reached_per_depth", s->reached, 1, TREE_DEPTH_MAX + 1);
    put_list(f, "accepted_per_depth", s->accepted_at, 1, TREE_DEPTH_MAX + 1);
    put_list(f, "acceptance_histogram", s->histogram, 1, TREE_DEPTH_MAX + 2);
    fputs("\"sources\": {", f);
    for (size_t i = 0, any = 0; i < N_SOURCES; i++)
        if (s->source_drafted[i])
            fprintf(f, "%s\"%s\": {\"drafted\": %zu, \"accepted\": %zu}", any++ ? ", " : "", source_names[i],
                    s->source_drafted[i], s->source_accepted[i]);
    fprintf(f,
            "}, \"time\": {\"draft\": %.6f, \"verify\": %.6f, \"checkpoint\": %.6f, \"controller\": %.6f, "
            "\"other\": %.6f}, \"refreshes\": %zu, \"windows\": [",
            s->draft, s->verify, s->put, s->control, s->seconds - s->draft - s->verify - s->control,
            s->refreshes);
    const size_t first = s->from / STATS_WINDOW;
    for (size_t i = first; i < s->n_windows && s->window[i].tokens; i++)
        fprintf(f, "%s{\"start\": %zu, \"tokens\": %zu, \"seconds\": %.6f, \"mean_acceptance_length\": %.4f}",
                i > first ? ", " : "", MAX(i * STATS_WINDOW, s->from), s->window[i].tokens,
                s->window[i].seconds, ratio((double)s->window[i].tokens, s->window[i].rounds));
    fputs("]", f);
}
