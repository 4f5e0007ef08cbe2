/* The published verifier (verify_published.h): its settings, its accept rule, and what it refuses.
 * Start reading at verify_published_accept(). */
#include "src/decode/verify_published.h"

#include <string.h>

const char verify_published_warning[] =
    "--verifier paper: not lossless, this is not the text that the model alone would write";

/* The drafters whose candidates it checks: those of TokenSwift, other readers of the text, and that of
 * tests. */
static const unsigned CHECKED = 1u << DRAFTER_HEADS | 1u << DRAFTER_PARTIAL | 1u << DRAFTER_NGRAM |
                                1u << DRAFTER_SUFFIX | 1u << DRAFTER_ADDED;

int verify_published_check(const struct draft_settings *s, struct err *e)
{
    if (!verify_published(s))
        return 0;
    if (!s->drafters)
        return err_set(e, ERR_INPUT, "--verifier paper: there is nothing to verify with --drafter none");
    if (!s->n_width)
        return err_set(e, ERR_INPUT, "--verifier paper: needs a fixed --tree (or --preset tokenswift)");
    for (enum drafter d = 0; d < N_DRAFTERS; d++)
        if ((s->drafters & ~CHECKED) >> d & 1)
            return err_set(e, ERR_INPUT, "--verifier paper: is TokenSwift's, and does not check %s",
                           drafter_name(d));
    if (s->rows_max)
        return err_set(
            e, ERR_INPUT,
            "--verifier paper: checks every candidate, a pass of at most %zu rows (rows_max) would not",
            s->rows_max);
    return 0;
}

int verify_published_refuse(const struct draft_settings *s, long long job, struct err *e)
{
    return verify_published(s)
               ? err_set(e, ERR_INPUT,
                         "job %lld was made with --verifier paper: its text is not the model's own", job)
               : 0;
}

size_t verify_published_accept(const struct tree *t, const struct history *text,
                               struct device_sampler *sampler, const float *logits, uint32_t *path,
                               int32_t *bonus)
{
    size_t n_best = 0, ties = 0;
    assert(t->n_kept == t->n);                   /* every candidate row is verified */
    for (uint32_t row = 0; row < MAX(t->n_chains, (size_t)1); row++) {
        int32_t token[TREE_DEPTH_MAX + 1], sample;
        uint32_t mine[TREE_DEPTH_MAX + 1], end = t->n_chains ? t->chain[row] : 0;
        size_t depth = t->node[end].depth, n = 0;
        for (uint32_t i = end; i; i = t->node[i].parent)
            mine[t->node[i].depth] = (uint32_t)t->node[i].row;
        mine[0] = 0;
        tree_path(t, end, token);
        do {
            struct history h = *text;
            h.path = token, h.n_path = n;
            sample = device_sampler_token_row(sampler, logits, mine[n], &h, row);
        } while (n < depth && sample == token[n] && ++n <= depth);
        ties = n + 1 == n_best ? ties + 1 : n + 1 > n_best ? 1 : ties;
        bool wins =
            n + 1 > n_best ||
            (n + 1 == n_best && sampler_random_below(device_sampler_host(sampler), text, row, ties) == 0);
        if (wins) {
            n_best = n + 1;
            memcpy(path, mine, n_best * sizeof *path);
            *bonus = sample;
        }
    }
    return n_best;
}
