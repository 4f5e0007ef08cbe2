/* Sampling parameters, and the tokens before the position that is sampled.
 *
 * The sampling chain turns the logits of a position into one token. Its steps run in this order:
 *
 *   bias         l + bias; -inf bans. min_tokens and ignore_eos ban the EOS ids, min_tokens the stop ids too
 *   penalties    once for each distinct token of the window: l < 0 ? l * penalty : l / penalty; then
 *                l - (presence + frequency * count) for the tokens of the generated text
 *   dry          l - multiplier * base^(L - allowed) for every token that would continue a repetition of
 *                L >= allowed tokens (src/sample/dry.h)
 *   top-n-sigma  keeps l >= the largest l - n * standard deviation of all logits
 *   temperature  l / (float)temperature
 *   top-k        keeps the first k candidates
 *   typical      keeps the fewest tokens whose surprise -log p is nearest to the entropy and whose
 *                probabilities sum up to `typical` or more (Meister et al. 2023)
 *   top-p        keeps the shortest prefix whose probabilities sum up to p or more
 *   min-p        keeps p >= min_p * the largest p
 *   eta          keeps p >= min(eta, sqrt(eta) * exp(-entropy)), as Hugging Face transformers does
 *   xtc          with xtc_probability, by a coin of the position: removes the tokens of p >= xtc_threshold,
 *                but for the least probable of them
 *
 * Bias, penalties, DRY and temperature change logits. Each changed logit is rounded to float once and stays
 * within +-FLT_MAX. The other steps are filters. Each filter sees the renormalised survivors of the steps
 * before it, ordered by (logit descending, id ascending), and at least min_keep tokens survive it. A step
 * after a filter changes the survivors only. At temperature 0 the best candidate alone is left after bias,
 * penalties and DRY: the filters change nothing then. */
#pragma once
#include "src/base/base.h"

enum {
    RANK_MAX = 32,                   /* candidates of one ranking */
    CANDIDATE_ROWS_MAX = 1 << 24,    /* candidate rows of --verifier paper */
    SAMPLE_PATH_MAX = 32,            /* tokens of a path; the draft tree is no deeper */
    DRY_BREAKER_MAX = 21, DRY_ALLOWED_MAX = 65536, DRY_LIMIT_MAX = 4096,
};

/* A token sequence that ends a repetition for DRY. */
struct dry_breaker { uint32_t n; int32_t ids[DRY_BREAKER_MAX]; };

/* The text that begins or ends a thought (src/sample/thought.h); n 0: none. */
enum { MARK_MAX = 16 };
struct mark { uint32_t n; int32_t ids[MARK_MAX]; };

/* Every parameter of the sampler. A job records them. */
struct sampling {
    uint64_t seed; uint32_t sample;
    double temperature;              /* 0: greedy */
    long top_k;                      /* <= 0: off */
    double top_p, min_p, eta;        /* 1, 0, 0: off */
    double top_n_sigma, typical;     /* <= 0, 1: off */
    double xtc_probability, xtc_threshold;       /* probability 0: off */
    size_t min_keep;                 /* >= 1 */
    double penalty;                  /* contextual penalty theta; 1: off */
    long penalty_window;             /* its last W tokens of prompt and text; 0: none, -1: all */
    double presence, frequency;      /* over the generated text */
    struct { int32_t id; double bias; } *bias; size_t n_bias;   /* -inf bans */
    double dry_multiplier, dry_base; /* multiplier 0: DRY is off */
    size_t dry_allowed;
    long dry_last_n;                 /* DRY reads the last N tokens of prompt and text; 0: none, -1: all */
    const struct dry_breaker *dry_breakers; size_t n_dry_breakers;   /* ascending by first token */
    size_t text_max;                 /* tokens of the longest text and its prompt; 0 only without DRY */
    size_t min_tokens;               /* EOS and stop ids are banned before this many generated tokens */
    bool ignore_eos;                 /* EOS ids are always banned */
    long thought_budget;             /* tokens of thought before its end mark is given; -1: any number */
    struct mark thought_start, thought_end;
    const int32_t *eos; size_t n_eos, n_stop;    /* EOS ids, then stop ids, which min_tokens alone bans */
};

/* Neutral parameters: temperature 1, filters off, min_keep 1, window 1024, DRY off (base 1.75, allowed 2, all
 * tokens, no breakers). */
void sampling_defaults(struct sampling *s);
/* Checks what depends on the vocabulary: ids and breakers. The table of options has the ranges of numbers,
 * which are checked wherever a parameter is read. ERR_INPUT names the flag. */
int  sampling_check(const struct sampling *s, size_t vocab, struct err *e);
bool sampling_has_penalty(const struct sampling *s);          /* the contextual penalty is on */
bool sampling_has_text_penalty(const struct sampling *s);     /* presence or frequency penalty is on */

/* The tokens before the position that is sampled: tokens[0..n), then path[0..n_path). The path holds the
 * ancestors of a tree node and the node itself. The first n_prompt of the tokens are the prompt.
 * The position is n + n_path. */
struct history {
    const int32_t *tokens; size_t n, n_prompt;
    const int32_t *path; size_t n_path;
    size_t known;                    /* tokens[0..known) equal those of the last call: not read again */
};

static inline int32_t history_token(const struct history *h, size_t i)
{
    return i < h->n ? h->tokens[i] : h->path[i - h->n];
}

/* A candidate for the next token. score: adjusted logit plus the coin's noise (temperature 0: adjusted
 * logit), minus the top adjusted logit. Only differences between scores have a meaning. */
struct candidate { int32_t id; float score; };
