/* A second sampling chain, written from src/sample/sampling.h alone: full sorts, libm, one candidate after
 * the other. If a decision depends on the last digits, `unsure` is set and the case proves nothing. */
#pragma once
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "src/sample/coin.h"
#include "src/sample/sample.h"

struct cand { float x; int32_t id; };

static int cand_order(const void *a_, const void *b_)
{
    const struct cand *a = a_, *b = b_;
    return a->x != b->x ? (a->x > b->x ? -1 : 1) : (a->id > b->id) - (a->id < b->id);
}

static float ref_limited(float x, double y) { return isinf(x) ? x : (float)fmax(-FLT_MAX, fmin(FLT_MAX, y)); }

/* The noise by its definition, in long double. */
static long double ref_gumbel(uint64_t word)
{
    if (word >> 63)
        return -logl(-logl(((long double)~word + 0.5L) * 0x1p-64L));
    return -logl(-log1pl(-((long double)word + 0.5L) * 0x1p-64L));
}

static int32_t ref_token(const struct history *h, size_t i)
{
    return i < h->n ? h->tokens[i] : h->path[i - h->n];
}

static void ref_penalties(struct cand *c, size_t n, const struct sampling *p, size_t vocab,
                          const struct history *h)
{
    size_t all = h->n + h->n_path, window = p->penalty_window < 0 || (size_t)p->penalty_window > all
                                                ? all
                                                : (size_t)p->penalty_window;
    int *recent = calloc(vocab, sizeof *recent), *text = calloc(vocab, sizeof *text);
    for (size_t i = all - window; i < all; i++)
        recent[ref_token(h, i)] = 1;
    for (size_t i = h->n_prompt; i < all; i++)
        text[ref_token(h, i)]++;
    for (size_t i = 0; i < n; i++) {
        int32_t id = c[i].id;
        if (recent[id])
            c[i].x = ref_limited(c[i].x, c[i].x < 0 ? c[i].x * p->penalty : c[i].x / p->penalty);
        if (text[id])
            c[i].x = ref_limited(c[i].x, c[i].x - (p->presence + p->frequency * text[id]));
    }
    free(recent);
    free(text);
}

/* The number of survivors of a filter among the sorted c[0..n). */
static size_t ref_top_p(const struct cand *c, size_t n, double p, bool *unsure)
{
    uint64_t sum = 0, cum = 0;
    double real_sum = 0, real = 0;
    size_t kept = 0, real_kept = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (uint64_t)llrint(exp((double)c[i].x - c[0].x) * 0x1p43);
        real_sum += exp((double)c[i].x - c[0].x);
    }
    double want = ceil(p * (double)sum);
    for (kept = 0; kept < n && (kept == 0 || (double)cum < want); kept++)
        cum += (uint64_t)llrint(exp((double)c[kept].x - c[0].x) * 0x1p43);
    for (real_kept = 0; real_kept < n && (real_kept == 0 || real < p); real_kept++)
        real += exp((double)c[real_kept].x - c[0].x) / real_sum;
    /* with real probabilities the end may differ only where the sum nearly equals p */
    if (kept != real_kept) {
        double lower = 0;
        for (size_t i = 0; i < (kept < real_kept ? kept : real_kept); i++)
            lower += exp((double)c[i].x - c[0].x) / real_sum;
        if (fabs(lower - p) > 1e-7)
            return SIZE_MAX;
    }
    /* llrint(exp) may be off by one */
    if (fabs((double)cum - want) < 16 && kept > 1 && c[kept - 1].x != c[0].x)
        *unsure = true;
    return kept;
}

static size_t ref_eta(const struct cand *c, size_t n, double eps, bool *unsure)
{
    double sum = 0, entropy = 0;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)c[i].x - c[0].x);
    for (size_t i = 0; i < n; i++) {
        double q = exp((double)c[i].x - c[0].x) / sum;
        entropy -= q > 0 ? q * log(q) : 0;
    }
    double least = fmin(eps, sqrt(eps) * exp(-entropy));
    for (size_t i = 0; i < n; i++) {
        double q = exp((double)c[i].x - c[0].x) / sum;
        kept += q >= least;
        *unsure |= fabs(q / least - 1) < 1e-6;
    }
    return kept;
}

static size_t ref_top_n_sigma(const struct cand *c, size_t n, double sigmas, bool *unsure)
{
    long double mean = 0, variance = 0;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        mean += (long double)c[i].x / n;
    for (size_t i = 0; i < n; i++)
        variance += ((long double)c[i].x - mean) * ((long double)c[i].x - mean) / n;
    const long double most = sigmas * sqrtl(variance);
    for (size_t i = 0; i < n; i++) {
        long double below = (long double)c[0].x - c[i].x;
        kept += below <= most;
        *unsure |= below > 0 && fabsl(below - most) <= 1e-10L * fmaxl(most, fabsl((long double)c[0].x));
    }
    return kept;
}

/* These two keep no prefix: they move the survivors to the front, in no order, and return their number. */
struct ref_near { double distance, share; struct cand c; };
static int ref_by_distance(const void *a_, const void *b_)
{
    const struct ref_near *a = a_, *b = b_;
    return a->distance != b->distance ? (a->distance < b->distance ? -1 : 1)
                                      : (a->c.id > b->c.id) - (a->c.id < b->c.id);
}

static size_t ref_typical(struct cand *c, size_t n, double p, size_t min_keep, bool *unsure)
{
    struct ref_near *all = malloc(n * sizeof *all);
    double sum = 0, entropy = 0, so_far = 0;
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)c[i].x - c[0].x);
    for (size_t i = 0; i < n; i++) {
        double share = exp((double)c[i].x - c[0].x) / sum;
        entropy -= share > 0 ? share * log(share) : 0;
    }
    for (size_t i = 0; i < n; i++) {
        double log_share = (double)c[i].x - c[0].x - log(sum);
        all[i] = (struct ref_near){ fmin(fabs(-log_share - entropy), FLT_MAX), exp(log_share), c[i] };
    }
    qsort(all, n, sizeof *all, ref_by_distance);
    while (kept < n && (so_far < p || kept < min_keep))
        so_far += all[kept++].share;
    /* A sum near p, and two different logits at nearly one distance at the end, prove nothing. */
    const double near = 1e-6 * (1 + fabs((double)c[0].x) + all[kept - 1].distance);
    so_far = 0;
    for (size_t i = 0; i < kept; i++) {
        so_far += all[i].share;
        *unsure |= fabs(so_far - p) < 1e-9 && i + 1 < n;
    }
    for (size_t i = kept; kept > 0 && i < n; i++) {
        double a = all[kept - 1].distance, b = all[i].distance;
        *unsure |= all[i].c.x != all[kept - 1].c.x && b - a <= near;
    }
    for (size_t i = 0; kept > 0 && i + 1 < kept; i++)
        *unsure |= all[i].c.x != all[kept - 1].c.x && all[kept - 1].distance - all[i].distance <= near;
    for (size_t i = 0; i < kept; i++)
        c[i] = all[i].c;
    free(all);
    return kept;
}

static size_t ref_xtc(struct cand *c, size_t n, double threshold, size_t min_keep, bool *unsure)
{
    double sum = 0;
    size_t above = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)c[i].x - c[0].x);
    for (size_t i = 0; i < n; i++) {
        double share = exp((double)c[i].x - c[0].x) / sum;
        above += share >= threshold;
        *unsure |= fabs(share / threshold - 1) < 1e-6;
    }
    if (above < 2 || n - above + 1 < min_keep)
        return n;
    memmove(c, c + above - 1, (n - above + 1) * sizeof *c);
    return n - above + 1;
}

static size_t ref_min_p(const struct cand *c, size_t n, double min_p, bool *unsure)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        double q = exp((double)c[i].x - c[0].x);
        kept += q >= min_p;
        *unsure |= c[i].x != c[0].x && fabs(q / min_p - 1) < 1e-12;
    }
    return kept;
}

static bool ref_bans(const struct sampling *p, int32_t id, size_t bans)
{
    bool banned = false;
    for (size_t i = 0; i < p->n_bias; i++)
        banned |= p->bias[i].id == id && isinf(p->bias[i].bias);
    for (size_t i = 0; i < bans; i++)
        banned |= p->eos[i] == id;
    return banned;
}

static int32_t ref_lowest_allowed(const struct sampling *p, size_t vocab, size_t bans)
{
    for (int32_t id = 0; (size_t)id < vocab; id++)
        if (!ref_bans(p, id, bans))
            return id;
    return -1;
}

/* Ranks c[0..n), sorted by logit, by score with the coins of `position` (temperature 0: by logit), lowest
 * id first on ties. *unsure: neighbours among the first k + 1 are too close. */
struct ref_scored { long double score; int32_t id; };
static int ref_by_score(const void *a_, const void *b_)
{
    const struct ref_scored *a = a_, *b = b_;
    return a->score != b->score ? (a->score > b->score ? -1 : 1) : (a->id > b->id) - (a->id < b->id);
}

static void ref_rank(struct ref_scored *out, const struct cand *c, size_t n, const struct sampling *p,
                     uint64_t position, size_t k, bool *unsure)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = (struct ref_scored){ (long double)c[i].x - c[0].x, c[i].id };
        if (p->temperature > 0)
            out[i].score += ref_gumbel(coin_word(p->seed, p->sample, position, (uint32_t)c[i].id));
    }
    if (p->temperature > 0)
        qsort(out, n, sizeof *out, ref_by_score);
    for (size_t i = 0; p->temperature > 0 && i + 1 < n && i < k; i++)
        *unsure |= out[i].score - out[i + 1].score < 1e-11L + 1e-15L * fabsl(out[i].score);
}

/* How many of the ids p->eos are banned: all before min_tokens, else with ignore_eos those of EOS. */
static size_t ref_banned_ends(const struct sampling *p, const struct history *h)
{
    if (h->n + h->n_path - h->n_prompt < p->min_tokens)
        return p->n_eos + p->n_stop;
    return p->ignore_eos ? p->n_eos : 0;
}

/* The candidates that the chain keeps, sorted by logit; the caller frees them. `position` names the coins.
 * NULL if the reference contradicts itself. */
static struct cand *ref_chain(const struct sampling *p, const float *logits, size_t vocab,
                              const struct history *h, uint64_t position, bool *unsure, size_t *n_kept)
{
    const double xtc_draw = (double)(coin_word(p->seed, p->sample, position, UINT32_MAX - 1) >> 11) * 0x1p-53;
    struct cand *c = malloc(vocab * sizeof *c);
    size_t n = 0;
    const size_t bans = ref_banned_ends(p, h);
    const bool greedy = p->temperature == 0;
    *unsure = false;
    for (size_t i = 0; i < vocab; i++)
        c[i] = (struct cand){ logits[i], (int32_t)i };
    n = vocab;
    enum { STEP_BIAS, STEP_PENALTIES, STEP_DRY, STEP_TOP_N_SIGMA, STEP_TEMPERATURE, STEP_TOP_K,
           STEP_TYPICAL, STEP_TOP_P, STEP_MIN_P, STEP_ETA, STEP_XTC, STEPS };
    for (int step = 0; step < STEPS; step++) {
        size_t kept = 0, m;
        for (size_t i = 0; i < n; i++)
            if (!isinf(c[i].x))
                c[kept++] = c[i];
        n = kept;
        qsort(c, n, sizeof *c, cand_order);
        if (n == 0)
            break;
        m = n;
        switch (step) {
        case STEP_BIAS:
            for (size_t i = 0; i < n; i++) {
                for (size_t j = 0; j < p->n_bias; j++)
                    if (p->bias[j].id == c[i].id)
                        c[i].x = isinf(p->bias[j].bias)
                                     ? -INFINITY
                                     : ref_limited(c[i].x, (double)c[i].x + p->bias[j].bias);
                for (size_t j = 0; j < bans; j++)
                    if (p->eos[j] == c[i].id)
                        c[i].x = -INFINITY;
            }
            break;
        case STEP_PENALTIES: ref_penalties(c, n, p, vocab, h); break;
        case STEP_TEMPERATURE:
            for (size_t i = 0; !greedy && i < n; i++)
                c[i].x = ref_limited(c[i].x, (float)(c[i].x / (float)p->temperature));
            break;
        case STEP_TOP_N_SIGMA:
            if (!greedy && p->top_n_sigma > 0)
                m = ref_top_n_sigma(c, n, p->top_n_sigma, unsure);
            break;
        case STEP_TYPICAL:
            if (!greedy && p->typical < 1)
                m = n = ref_typical(c, n, p->typical, p->min_keep, unsure);
            break;
        case STEP_XTC:
            if (!greedy && p->xtc_probability > 0 && xtc_draw < p->xtc_probability)
                m = n = ref_xtc(c, n, p->xtc_threshold, p->min_keep, unsure);
            break;
        case STEP_TOP_K: if (!greedy && p->top_k > 0) m = MIN(n, (size_t)p->top_k); break;
        case STEP_TOP_P: if (!greedy && p->top_p < 1) m = ref_top_p(c, n, p->top_p, unsure); break;
        case STEP_MIN_P: if (!greedy && p->min_p > 0) m = ref_min_p(c, n, p->min_p, unsure); break;
        case STEP_ETA:   if (!greedy && p->eta > 0) m = ref_eta(c, n, p->eta, unsure); break;
        default: break;
        }
        if (m == SIZE_MAX) {
            free(c);
            return NULL;
        }
        n = MIN(n, MAX(m, p->min_keep));
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!isinf(c[i].x))
            c[kept++] = c[i];
    qsort(c, kept, sizeof *c, cand_order);
    *n_kept = kept;
    return c;
}
