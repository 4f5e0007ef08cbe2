/* The sampler: runs the chain of one row and lets the coin decide. Start at run_chain and
 * sampler_sample_row. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "src/sample/coin.h"
#include "src/sample/sample_impl.h"
#include "src/sample/thought.h"

static size_t round64(size_t n) { return (n + 63) / 64 * 64; }

size_t sampler_bytes(size_t vocab)
{
    assert(vocab <= SELECT_MAX);
    return round64(sizeof(struct sampler)) + chain_bytes(vocab) + token_counts_bytes(vocab);
}

int sampler_open(struct sampler **out, const struct sampling *p, size_t vocab, const struct ops *ops,
                 struct pool *pool, struct err *e)
{
    *out = NULL;
    if (sampling_check(p, vocab, e)) {
        assert(e->code == ERR_FAILED);       /* the caller has checked p: only memory can be missing */
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
    token_counts_open(&s->counts, p, vocab, m + chain_bytes(vocab));
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

const struct sampling *sampler_settings(const struct sampler *s) { return &s->p; }

size_t sampler_banned_ends(const struct sampling *p, const struct history *h)
{
    return h->n + h->n_path - h->n_prompt < p->min_tokens ? p->n_eos + p->n_stop
           : p->ignore_eos                                ? p->n_eos
                                                          : 0;
}

int32_t sampler_lowest_allowed(struct sampler *s, const struct history *h)
{
    uint32_t *banned = s->chain.at;              /* work space that the finished chain no longer needs */
    const size_t ends = sampler_banned_ends(&s->p, h);
    int32_t id = 0;
    memset(banned, 0, s->chain.vocab * sizeof *banned);
    for (size_t i = 0; i < s->p.n_bias; i++)
        banned[s->p.bias[i].id] |= s->p.bias[i].bias < -FLT_MAX;
    for (size_t i = 0; i < ends; i++)
        banned[s->p.eos[i]] = 1;
    while (banned[id])                           /* sampling_check ensures that one id is allowed */
        id++;
    return id;
}

uint64_t sampler_position(const struct history *h, uint32_t row)
{
    assert(row < CANDIDATE_ROWS_MAX);
    return h->n + h->n_path + ((uint64_t)row << 40);
}

static struct coin_key key_of(const struct sampler *s, const struct history *h, uint32_t row)
{
    return (struct coin_key){ s->p.seed, sampler_position(h, row), s->p.sample };
}

/* Runs all steps of the chain on the logits, with the coins of a candidate row. */
static void run_chain(struct sampler *s, float *logits, const struct history *h, uint32_t row)
{
    const struct sampling *p = &s->p;
    struct chain *c = &s->chain;
    assert(h->n_prompt <= h->n);
    const bool tables = s->counts.on_window || s->counts.on_text || s->dry.on;
    const bool extends = tables && history_digest_extend(&s->seen, h);
    token_counts_follow(&s->counts, h, extends);
    dry_enter(&s->dry, h, extends);
    const struct coin_key key = key_of(s, h, row);
    chain_start(c, logits, &key);
    chain_bias(c, p, sampler_banned_ends(p, h));
    chain_penalties(c, p, &s->counts);
    chain_dry(c, &s->dry);
    for (const struct chain_step *step = chain_steps; p->temperature != 0 && step->name; step++)
        if (step->on(p))
            step->apply(c, p);
    token_counts_drop_path(&s->counts, h);
    dry_leave(&s->dry);
}

int32_t sampler_sample_row(struct sampler *s, float *logits, const struct history *h, uint32_t row)
{
    struct candidate one;
    run_chain(s, logits, h, row);
    const int32_t given = thought_token(&s->p, h);
    if (given >= 0)
        return given;
    int32_t id = s->p.temperature == 0                  ? chain_best(&s->chain)
                 : chain_rank(&s->chain, true, 1, &one) ? one.id : -1;
    return id < 0 ? sampler_lowest_allowed(s, h) : id;
}

size_t sampler_random_below(const struct sampler *s, const struct history *h, uint32_t row, size_t n)
{
    const struct coin_key key = key_of(s, h, row);
    return coin_word(key.seed, key.sample, key.position, COIN_ID_CHOICE) % n;
}

int32_t sampler_sample(struct sampler *s, float *logits, const struct history *h)
{
    return sampler_sample_row(s, logits, h, 0);
}

size_t sampler_rank(struct sampler *s, float *logits, const struct history *h, size_t k,
                    struct candidate *out)
{
    run_chain(s, logits, h, 0);
    const int32_t given = thought_token(&s->p, h);
    if (given >= 0) {
        out[0] = (struct candidate){ given, 0 };
        return 1;
    }
    return chain_rank(&s->chain, s->p.temperature != 0, k, out);
}

bool sampler_bans(const struct sampler *s, int32_t id, const struct history *h)
{
    const struct sampling *p = &s->p;
    const size_t ends = sampler_banned_ends(p, h);
    bool banned = false;
    for (size_t i = 0; i < p->n_bias; i++)
        banned |= p->bias[i].id == id && p->bias[i].bias < -FLT_MAX;
    for (size_t i = 0; i < ends; i++)
        banned |= p->eos[i] == id;
    return banned;
}
