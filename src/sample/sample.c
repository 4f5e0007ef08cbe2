#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "src/sample/sample_impl.h"

void sampling_defaults(struct sampling *s)
{
    *s = (struct sampling){ .temperature = 1, .top_p = 1, .min_keep = 1, .penalty = 1, .penalty_window = 1024,
                            .dry_base = 1.75, .dry_allowed = 2, .dry_last_n = -1, .n_order = CHAIN_STEPS };
    for (size_t i = 0; i < CHAIN_STEPS; i++)
        s->order[i] = (enum chain_step)i;
}

static const char *const step_names[CHAIN_STEPS] = { "bias", "penalties", "dry", "temperature", "top-k",
    "top-p", "min-p", "eta" };

static int check_order(const struct sampling *s, struct err *e)
{
    const bool needed[CHAIN_STEPS] = {
        [STEP_BIAS] = s->n_bias || (s->n_eos && (s->min_tokens || s->ignore_eos)),
        [STEP_PENALTIES] = (s->penalty != 1 && s->penalty_window) || s->presence != 0 || s->frequency != 0,
        [STEP_DRY] = s->dry_multiplier != 0 && s->dry_last_n != 0,
        [STEP_TEMPERATURE] = s->temperature != 1 && s->temperature != 0,
        [STEP_TOP_K] = s->top_k > 0,
        [STEP_TOP_P] = s->top_p<1, [STEP_MIN_P] = s->min_p> 0,
        [STEP_ETA] = s->eta > 0,
    };
    bool seen[CHAIN_STEPS] = {0};
    if (s->n_order > CHAIN_STEPS)
        return err_set(e, ERR_INPUT, "order of the sampling chain: %zu steps, at most %d exist", s->n_order,
                       CHAIN_STEPS);
    for (size_t i = 0; i < s->n_order; i++) {
        unsigned step = s->order[i];
        if (step >= CHAIN_STEPS || seen[step])
            return err_set(e, ERR_INPUT,
                           "order of the sampling chain: step %zu is %s, every step may stand there once",
                           i + 1, step >= CHAIN_STEPS ? "unknown" : step_names[step]);
        seen[step] = true;
    }
    for (size_t i = 0; i < CHAIN_STEPS; i++)
        if (needed[i] && !seen[i])
            return err_set(e, ERR_INPUT, "order of the sampling chain: %s is used and not among the steps",
                           step_names[i]);
    return 0;
}

/* Every id in range, and one at least that is not banned. */
static int check_ids(const struct sampling *s, size_t vocab, struct err *e)
{
    unsigned char *banned = calloc(vocab, 1);
    size_t n_banned = 0;
    bool eos = s->min_tokens || s->ignore_eos;
    if (!banned)
        return err_set(e, ERR_FAILED, "no memory for %zu token ids", vocab);
    for (size_t i = 0; i < s->n_bias + (eos ? s->n_eos : 0); i++) {
        bool is_bias = i < s->n_bias;
        int32_t id = is_bias ? s->bias[i].id : s->eos[i - s->n_bias];
        if (id < 0 || (size_t)id >= vocab) {
            free(banned);
            return err_set(e, ERR_INPUT, "%s: token id %d is not in the vocabulary, allowed are 0 to %zu",
                           is_bias ? "--logit-bias" : "end-of-text ids", (int)id, vocab - 1);
        }
        float bias = is_bias ? s->bias[i].bias : -INFINITY;
        if (isnan(bias) || bias > FLT_MAX) {
            free(banned);
            return err_set(e, ERR_INPUT,
                           "--logit-bias: %g for token id %d, allowed are finite numbers and -inf",
                           (double)bias, (int)id);
        }
        n_banned += isinf(bias) && !banned[id];
        banned[id] |= isinf(bias);
    }
    free(banned);
    if (n_banned == vocab)
        return err_set(e, ERR_INPUT, "--logit-bias: all %zu token ids are banned, at least one must be left",
                       vocab);
    return 0;
}

static int check_dry(const struct sampling *s, size_t vocab, struct err *e)
{
    if (!(s->dry_multiplier >= 0 && s->dry_multiplier <= 1000))
        return err_set(e, ERR_INPUT, "--dry-multiplier %g: must be 0 (off) to 1000", s->dry_multiplier);
    if (!(s->dry_base >= 1 && s->dry_base <= 100))
        return err_set(e, ERR_INPUT, "--dry-base %g: must be 1 to 100", s->dry_base);
    if (s->dry_allowed < 1 || s->dry_allowed > DRY_ALLOWED_MAX)
        return err_set(e, ERR_INPUT, "--dry-allowed-length %zu: must be 1 to %d", s->dry_allowed,
                       DRY_ALLOWED_MAX);
    if (s->dry_last_n < -1)
        return err_set(e, ERR_INPUT,
                       "--dry-penalty-last-n %ld: must be -1 (all), 0 (none) or a number of tokens",
                       s->dry_last_n);
    for (size_t i = 0; i < s->n_dry_breakers; i++) {
        const struct dry_breaker *b = &s->dry_breakers[i];
        if (b->n < 1 || b->n > DRY_BREAKER_MAX)
            return err_set(e, ERR_INPUT,
                           "--dry-sequence-breaker: a breaker of %u tokens, allowed are 1 to %d",
                           (unsigned)b->n, DRY_BREAKER_MAX);
        for (uint32_t j = 0; j < b->n; j++)
            if (b->ids[j] < 0 || (size_t)b->ids[j] >= vocab)
                return err_set(
                    e, ERR_INPUT,
                    "--dry-sequence-breaker: token id %d is not in the vocabulary, allowed are 0 to %zu",
                    (int)b->ids[j], vocab - 1);
        if (i && b[-1].ids[0] > b->ids[0])
            return err_set(e, ERR_INPUT,
                           "--dry-sequence-breaker: breaker %zu begins with token %d and follows one with "
                           "%d; they must ascend",
                           i, (int)b->ids[0], (int)b[-1].ids[0]);
    }
    return 0;
}

int sampling_check(const struct sampling *s, size_t vocab, struct err *e)
{
    if (vocab < 1 || vocab > SELECT_MAX)
        return err_set(e, ERR_INPUT, "vocabulary of %zu tokens, allowed are 1 to %d", vocab, SELECT_MAX);
    if (!(s->temperature == 0 || (s->temperature >= 1e-4 && s->temperature <= 1e4)))
        return err_set(e, ERR_INPUT, "--temperature %g: must be 0 (greedy) or 0.0001 to 10000",
                       s->temperature);
    if (!(s->top_p > 0 && s->top_p <= 1))
        return err_set(e, ERR_INPUT, "--top-p %g: must be above 0 and at most 1 (off)", s->top_p);
    if (!(s->min_p >= 0 && s->min_p <= 1))
        return err_set(e, ERR_INPUT, "--min-p %g: must be 0 (off) to 1", s->min_p);
    if (!(s->eta >= 0 && s->eta < 1))
        return err_set(e, ERR_INPUT, "--eta %g: must be at least 0 (off) and below 1", s->eta);
    if (s->min_keep < 1)
        return err_set(e, ERR_INPUT, "--min-keep 0: must be at least 1");
    if (!(s->penalty >= 0.01 && s->penalty <= 100))
        return err_set(e, ERR_INPUT, "--penalty %g: must be 0.01 to 100, 1 is off", s->penalty);
    if (s->penalty_window < -1)
        return err_set(e, ERR_INPUT, "--penalty-window %ld: must be -1 (all), 0 (none) or a number of tokens",
                       s->penalty_window);
    if (!(s->presence >= -100 && s->presence <= 100))
        return err_set(e, ERR_INPUT, "--presence-penalty %g: must be -100 to 100", s->presence);
    if (!(s->frequency >= -100 && s->frequency <= 100))
        return err_set(e, ERR_INPUT, "--frequency-penalty %g: must be -100 to 100", s->frequency);
    return check_dry(s, vocab, e) || check_order(s, e) || check_ids(s, vocab, e) ? -1 : 0;
}

static size_t round64(size_t n) { return (n + 63) / 64 * 64; }

size_t sampler_bytes(size_t vocab)
{
    assert(vocab <= SELECT_MAX);
    return round64(sizeof(struct sampler)) + chain_bytes(vocab) + counts_bytes(vocab);
}

int sampler_open(struct sampler **out, const struct sampling *p, size_t vocab, const struct ops *ops,
                 struct pool *pool, struct err *e)
{
    *out = NULL;
    if (sampling_check(p, vocab, e)) {
        assert(e->code == ERR_FAILED);       /* the caller has checked: only memory can be missing */
        return -1;
    }
    size_t bytes = sampler_bytes(vocab);
    char *m = mem_alloc(bytes);
    if (!m)
        return err_set(e, ERR_FAILED, "sampler: no memory for %zu bytes", bytes);
    struct sampler *s = (struct sampler *)(void *)m;
    s->p = *p;
    s->bytes = bytes;
    m += round64(sizeof *s);
    chain_open(&s->chain, vocab, ops, pool, m);
    counts_start(&s->counts, p, vocab, m + chain_bytes(vocab));
    if (dry_open(&s->dry, &s->p, vocab, e)) {
        sampler_close(s);
        return -1;
    }
    *out = s;
    return 0;
}

void sampler_close(struct sampler *s)
{
    if (!s)
        return;
    dry_close(&s->dry);
    mem_free(s, s->bytes);
}

bool sampler_bans_eos(const struct sampling *p, const struct history *h)
{
    return p->ignore_eos || h->n + h->n_path - h->n_prompt < p->min_tokens;
}

int32_t sampler_lowest(struct sampler *s, const struct history *h)
{
    uint32_t *banned = s->chain.at;              /* work space of a chain that has come to its end */
    const bool eos = sampler_bans_eos(&s->p, h);
    int32_t id = 0;
    memset(banned, 0, s->chain.vocab * sizeof *banned);
    for (size_t i = 0; i < s->p.n_bias; i++)
        banned[s->p.bias[i].id] |= s->p.bias[i].bias < -FLT_MAX;
    for (size_t i = 0; eos && i < s->p.n_eos; i++)
        banned[s->p.eos[i]] = 1;
    while (banned[id])                           /* sampling_check: there is one */
        id++;
    return id;
}

/* The chain from the logits to the candidates that are left. */
static void run_chain(struct sampler *s, float *logits, const struct history *h)
{
    const struct sampling *p = &s->p;
    struct chain *c = &s->chain;
    const bool greedy = p->temperature == 0;
    assert(h->n_prompt <= h->n);
    const bool goes_on = (s->counts.on_window || s->counts.on_text || s->dry.on) && past_goes_on(&s->past, h);
    counts_enter(&s->counts, h, goes_on);
    dry_enter(&s->dry, h, goes_on);
    chain_start(c, logits);
    for (size_t i = 0; i < p->n_order; i++)
        switch (p->order[i]) {
        case STEP_BIAS:        chain_bias(c, p, sampler_bans_eos(p, h)); break;
        case STEP_PENALTIES:   chain_penalties(c, p, &s->counts); break;
        case STEP_TEMPERATURE: if (!greedy) chain_temperature(c, p->temperature); break;
        case STEP_TOP_K:       if (!greedy && p->top_k > 0) chain_top_k(c, MAX((size_t)p->top_k,
            p->min_keep)); break;
        case STEP_TOP_P:       if (!greedy && p->top_p < 1) chain_top_p(c, p->top_p, p->min_keep); break;
        case STEP_MIN_P:       if (!greedy && p->min_p > 0) chain_min_p(c, p->min_p, p->min_keep); break;
        case STEP_ETA:         if (!greedy && p->eta > 0) chain_eta(c, p->eta, p->min_keep); break;
        case STEP_DRY:         chain_dry(c, &s->dry); break;
        case CHAIN_STEPS:      break;
        }
    counts_leave(&s->counts, h);
    dry_leave(&s->dry);
}

uint64_t sampler_position(const struct history *h, uint32_t row)
{
    assert(row < ROWS_MAX);
    return h->n + h->n_path + ((uint64_t)row << 40);
}

static struct coin_key key_of(const struct sampler *s, const struct history *h, uint32_t row)
{
    return (struct coin_key){ s->p.seed, sampler_position(h, row), s->p.sample };
}

int32_t sampler_choose_row(struct sampler *s, float *logits, const struct history *h, uint32_t row)
{
    struct candidate one;
    const struct coin_key key = key_of(s, h, row);
    run_chain(s, logits, h);
    int32_t id = s->p.temperature == 0                  ? chain_best(&s->chain)
                 : chain_rank(&s->chain, &key, 1, &one) ? one.id
                                                        : -1;
    return id < 0 ? sampler_lowest(s, h) : id;
}

size_t sampler_pick(const struct sampler *s, const struct history *h, uint32_t row, size_t n)
{
    const struct coin_key key = key_of(s, h, row);
    return coin_word(key.seed, key.sample, key.position, UINT32_MAX) % n;
}

int32_t sampler_choose(struct sampler *s, float *logits, const struct history *h)
{
    return sampler_choose_row(s, logits, h, 0);
}

size_t sampler_rank(struct sampler *s, float *logits, const struct history *h, size_t k,
                    struct candidate *out)
{
    const struct coin_key key = key_of(s, h, 0);
    run_chain(s, logits, h);
    return chain_rank(&s->chain, s->p.temperature == 0 ? NULL : &key, k, out);
}

bool sampler_bans(const struct sampler *s, int32_t id, const struct history *h)
{
    const struct sampling *p = &s->p;
    bool banned = false;
    for (size_t i = 0; i < p->n_bias; i++)
        banned |= p->bias[i].id == id && p->bias[i].bias < -FLT_MAX;
    for (size_t i = 0; sampler_bans_eos(p, h) && i < p->n_eos; i++)
        banned |= p->eos[i] == id;
    return banned;
}
