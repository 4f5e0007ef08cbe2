/* The throughput model (throughput.h): passes, rounds, drafters, the paper's grids. Start
 * reading at throughput_round(). */
#include "src/lab/throughput.h"

#include <math.h>
#include <string.h>

double throughput_pass(const struct machine *m, const struct pass_cost *p, double texts, double rows)
{
    const double flops = texts * rows * p->flops, read = 1 - pow(1 - p->share, texts * rows),
                 bytes = p->weights + p->experts * read + texts * p->key * p->keys;
    return fmax(flops / m->flops, bytes / m->bandwidth);
}

double throughput_chance(double tokens, size_t passes)
{
    double low = 0, high = 1;
    for (int i = 0; i < 200; i++) {      /* more halvings than a double has bits */
        const double c = (low + high) / 2;
        double sum = 1, power = 1;
        for (size_t k = 0; k < passes; k++)
            sum += power *= c;
        *(sum < tokens ? &low : &high) = c;
    }
    return (low + high) / 2;
}

void throughput_tokens(struct drafting *d, double tokens, size_t passes)
{
    const double c = throughput_chance(tokens, passes);
    double power = 1;
    d->tokens[0] = 1;
    for (size_t k = 1; k <= d->of->passes; k++)
        d->tokens[k] = d->tokens[k - 1] + (power *= c);
}

/* Rows that draft pass i adds to the verification pass. */
static size_t added(const struct drafting *d, size_t i) { return i < d->of->widths ? d->of->width[i] : 1; }

/* Rows of the verification pass after k draft passes. */
static size_t throughput_rows(const struct drafting *d, size_t k)
{
    size_t rows = 1;
    for (size_t i = 0; i < k; i++)
        rows += added(d, i);
    return rows;
}

/* The round with k draft passes, by the planner. The planner takes one cost of a draft pass and one chance of
 * its first guess: the means of k passes. */
static struct plan plan_of(const struct round_seconds *s, const struct drafting *d, size_t k)
{
    const size_t passes = d->of->passes;
    struct plan_input x = { .rows_max = passes + 1, .n_caches = 1, .drafted = 1,
                            .draft = { s->draft[k] / (double)k },
                            .acceptance = { throughput_chance(d->tokens[k], k) }, .made = { 1, 1 },
                            .limits = { .caches = 1 << 1, .passes = (long)k, .depth = passes } };
    memcpy(x.pass + 1, s->pass, (passes + 1) * sizeof *x.pass);
    return plan_round(&x);
}

struct throughput throughput_best(const struct round_seconds *s, const struct drafting *d, double texts)
{
    struct plan best = { 0 };
    assert(d->of->passes >= 1 && d->of->passes <= PASSES_MAX);
    for (size_t k = d->of->fixed ? d->of->passes : 1; k <= d->of->passes; k++) {
        const struct plan p = plan_of(s, d, k);
        if (p.rate >= best.rate)
            best = p;
    }
    return (struct throughput){ .passes = best.passes, .rows = throughput_rows(d, best.passes),
                                .tokens = best.tokens, .seconds = best.seconds, .rate = texts * best.rate,
                                .speedup = best.rate * s->plain };
}

struct throughput throughput_round(const struct machine *m, const struct pass_cost *target,
                                   const struct drafting *draft, double texts)
{
    struct round_seconds s = { .plain = throughput_pass(m, target, texts, 1) };
    const struct forecast *f = draft->of;
    double rows = 1;                 /* of the next draft pass */
    for (size_t k = 0; k <= f->passes; k++) {
        s.pass[k] = throughput_pass(m, target, texts, (double)throughput_rows(draft, k));
        if (k == f->passes)
            break;
        s.draft[k + 1] = s.draft[k] + throughput_pass(m, &draft->pass, texts, f->rows > 0 ? f->rows : rows);
        rows = (double)added(draft, k);
    }
    return throughput_best(&s, draft, texts);
}

/* ---- measured costs ---- */

/* The value at `length` of what is a at the first length and b at the second. */
static double between(const struct measured_rounds *m, size_t length, double a, double b)
{
    const double from = (double)m->length[0], to = (double)m->length[1],
                 part = ((double)length - from) / (to - from);
    return a + (b - a) * fmax(0, fmin(1, part));
}

/* A pass of `rows` rows for each text. */
static double pass_seconds(const struct measured_rounds *m, size_t length, size_t texts, size_t rows)
{
    double s[2];
    for (int i = 0; i < 2; i++)
        s[i] = (double)texts * cost_pass(&m->pass[i], length, texts, rows, rows * texts);
    return between(m, length, s[0], s[1]);
}

/* k draft passes that were not measured, in one-row passes' seconds for each byte. */
static double draft_seconds(const struct measured_rounds *m, const struct pass_cost *r, size_t length,
                            size_t k)
{
    const double bytes = r->weights + cost_cache_bytes(r, length);
    return (double)k * bytes * between(m, length, cost_size(&m->pass[0], 1), cost_size(&m->pass[1], 1));
}

void throughput_measured(struct round_seconds *s, const struct measured_rounds *m, enum drafter d,
                         const struct drafting *w, size_t length, size_t texts)
{
    const size_t most = m->draft[d].most;
    const struct pass_cost *p = &w->pass,
                           own = { .weights = p->weights + p->experts * p->share,
                                   .key = p->key * p->keys / (double)length, .keys = (double)length },
                           *r = most ? &m->draft[d].reads : &own;
    const double n = (double)texts, rest = n * between(m, length, m->rest[0], m->rest[1]);
    double share = n, scale[2] = { 1, 1 };       /* scale: the bytes here by those where it was measured */
    if (r->weights > 0)
        share = n * between(m, length, cost_draft_share(&m->pass[0], r, length, texts),
                            cost_draft_share(&m->pass[1], r, length, texts));
    for (int i = 0; i < 2 && r->weights > 0; i++)
        scale[i] = (r->weights + cost_cache_bytes(r, length)) /
                   (r->weights + cost_cache_bytes(r, m->length[i]));
    s->plain = rest + pass_seconds(m, length, texts, 1);
    s->draft[0] = 0;
    s->pass[0] = s->plain;
    for (size_t k = 1; w->of && k <= w->of->passes; k++) {
        const double one = k <= most ? between(m, length, scale[0] * m->draft[d].seconds[0][k],
                                               scale[1] * m->draft[d].seconds[1][k])
                                     : draft_seconds(m, r, length, k);
        s->draft[k] = share * one;
        s->pass[k] = rest + pass_seconds(m, length, texts, throughput_rows(w, k));
    }
}

/* ---- the paper's grids ---- */

const char *const spire_drafts[SPIRE_DRAFTS] = { "vanilla", "magicdec", "spire" };

/* SPIRe's Table of models: layers, width, query heads, KV heads, head size, feed-forward width. */
struct spire_shape { double layers, d, heads, kv_heads, head_dim, ffn; };

static double body(const struct spire_shape *s)
{
    const double q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    return s->layers * (2 * s->d + s->d * (q + 2 * kv) + q * s->d + 3 * s->d * s->ffn);
}

static double position(const struct spire_shape *s) { return 2 * s->layers * s->kv_heads * s->head_dim; }

/* Values have one byte. The machine makes 600 operations in the time of a byte. Attention, embedding and LM
 * head are left out, and a sparse cache holds one sink and an eighth of the length. */
static struct pass_cost spire_pass(const struct spire_shape *s, double keys, double memory_flops)
{
    return (struct pass_cost){ body(s), position(s), keys, 2 * body(s) + memory_flops };
}

double spire_speedup(size_t grid, size_t draft, size_t b, size_t l)
{
    static const struct spire_shape target[SPIRE_GRIDS] = { { 8, 512, 8, 8, 128, 4096 },
                                                            { 80, 8192, 64, 8, 128, 28672 } },
        small[SPIRE_GRIDS] = { { 4, 256, 8, 8, 64, 2048 }, { 32, 4096, 32, 8, 128, 14336 } },
        pruned[SPIRE_GRIDS] = { { 2, 512, 8, 8, 128, 4096 }, { 20, 8192, 64, 8, 128, 28672 } };
    static const double tokens[SPIRE_DRAFTS] = { 2.647, 3.891, 3.401 };
    enum { PASSES = 4, PART = 8 };
    const struct machine m = { 600, 1 };
    const double batch = (double)(1u << b), length = (double)((grid ? 4096u : 32u) << l),
                 sparse = 1 + floor(length / PART);
    const struct spire_shape *t = &target[grid], *p = &pruned[grid];
    const struct pass_cost full = spire_pass(t, length, 0),
                           of[SPIRE_DRAFTS] = { spire_pass(&small[grid], length, 0), spire_pass(t, sparse, 0),
                                                spire_pass(p, sparse, 2 * p->d * position(p)) };
    static const struct forecast forecast = { "", PASSES, .fixed = true };
    struct drafting w = { &forecast, of[draft] };
    throughput_tokens(&w, tokens[draft], PASSES);
    return throughput_round(&m, &full, &w, batch).speedup;
}
