/* The throughput model (throughput.h): passes, rounds, the work of each drafter, the paper's grids. Start
 * reading at throughput_round(). */
#include "src/decode/throughput.h"

#include <math.h>
#include <string.h>

double throughput_pass(const struct machine *m, const struct pass_work *w, double texts, double rows)
{
    const double flops = texts * rows * w->flops, read = 1 - pow(1 - w->expert_share, texts * rows),
                 bytes = w->weight_bytes + w->expert_bytes * read + texts * w->kv_bytes;
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

void throughput_tokens(struct draft_work *d, double tokens, size_t passes)
{
    const double c = throughput_chance(tokens, passes);
    double power = 1;
    d->tokens[0] = 1;
    for (size_t k = 1; k <= d->passes; k++)
        d->tokens[k] = d->tokens[k - 1] + (power *= c);
}

/* Rows that draft pass i adds to the verification pass. */
static size_t added(const struct draft_work *d, size_t i) { return i < d->widths ? d->width[i] : 1; }

size_t throughput_rows(const struct draft_work *d, size_t k)
{
    size_t rows = 1;
    for (size_t i = 0; i < k; i++)
        rows += added(d, i);
    return rows;
}

/* The round with k draft passes, by the planner. The planner takes one cost of a draft pass and one chance of
 * its first guess: the means of k passes. */
static struct plan plan_of(const struct round_seconds *s, const struct draft_work *d, size_t k)
{
    struct costs c = { .rows_max = d->passes + 1, .n_caches = 1, .drafted = 1 };
    struct chances h = { .hit = { throughput_chance(d->tokens[k], k) }, .made = { 1, 1 } };
    const struct plan_state fixed = { .ways = 1 << 1, .passes = (long)k, .deepest = d->passes };
    memcpy(c.pass + 1, s->pass, (d->passes + 1) * sizeof *c.pass);
    c.draft[0] = s->draft[k] / (double)k;
    return plan_round(&c, &h, &fixed);
}

struct throughput throughput_best(const struct round_seconds *s, const struct draft_work *d, double texts)
{
    struct plan best = { 0 };
    assert(d->passes >= 1 && d->passes <= PASSES_MAX);
    for (size_t k = d->fixed ? d->passes : 1; k <= d->passes; k++) {
        const struct plan p = plan_of(s, d, k);
        if (p.rate >= best.rate)
            best = p;
    }
    return (struct throughput){ .passes = best.passes, .rows = throughput_rows(d, best.passes),
                                .tokens = best.tokens, .seconds = best.seconds, .rate = texts * best.rate,
                                .speedup = best.rate * s->plain };
}

struct throughput throughput_round(const struct machine *m, const struct pass_work *target,
                                   const struct draft_work *draft, double texts)
{
    struct round_seconds s = { .plain = throughput_pass(m, target, texts, 1) };
    double rows = 1;                 /* of the next draft pass */
    for (size_t k = 0; k <= draft->passes; k++) {
        s.pass[k] = throughput_pass(m, target, texts, (double)throughput_rows(draft, k));
        if (k == draft->passes)
            break;
        s.draft[k + 1] =
            s.draft[k] + throughput_pass(m, &draft->pass, texts, draft->rows > 0 ? draft->rows : rows);
        rows = (double)added(draft, k);
    }
    return throughput_best(&s, draft, texts);
}

/* ---- models and drafters ---- */

/* The part of the layers that have attention; the others have a state of fixed size. */
static double attention_part(const struct config *c)
{
    return (double)config_mixers(c, MIXER_ATTENTION) / (double)c->n_layers;
}

static double expert_part(const struct config *c)
{
    size_t n = 0;
    for (size_t l = 0; l < c->n_layers; l++)
        n += c->kind[l] == LAYER_EXPERTS;
    return (double)n / (double)c->n_layers;
}

/* Weights of the mean decoder layer without norms and experts: of its mixer and its feed-forward part. */
static double layer_weights(const struct config *c)
{
    const double d = (double)c->hidden, q = (double)(c->n_heads * c->head_dim),
                 kv = (double)(c->n_kv_heads * c->head_dim), values = (double)c->delta.value_heads,
                 state = d * ((double)config_delta_channels(c) + 2 * values * (double)c->delta.value_dim +
                              2 * values),
                 attention = d * ((c->gated ? 2 : 1) * q + 2 * kv) + q * d, part = expert_part(c);
    return attention_part(c) * attention + (1 - attention_part(c)) * state +
           (1 - part) * 3 * d * (double)c->ffn +
           part * d * ((double)c->n_experts + 3 * (double)c->shared_ffn);
}

/* Weights of all experts of the mean layer. */
static double layer_experts(const struct config *c)
{
    return expert_part(c) * (double)c->n_experts * 3 * (double)c->hidden * (double)c->expert_ffn;
}

/* Values of keys and values of a position in the mean layer. */
static double layer_kv(const struct config *c)
{
    return attention_part(c) * 2 * (double)(c->n_kv_heads * c->head_dim);
}

/* Operations of attention over one key in the mean layer: products with the key and with the value. */
static double key_flops(const struct config *c)
{
    return attention_part(c) * 4 * (double)(c->n_heads * c->head_dim);
}

static struct pass_work layers_work(const struct config *c, double layers, double byte, double kv_byte,
                                    double keys)
{
    const double w = layers * layer_weights(c), head = (double)c->vocab * (double)c->hidden,
                 experts = layers * layer_experts(c),
                 share = c->n_experts ? (double)c->experts_used / (double)c->n_experts : 0;
    return (struct pass_work){ .weight_bytes = byte * (w + head),
                               .kv_bytes = kv_byte * keys * layers * layer_kv(c),
                               .flops = 2 * (w + share * experts + head) + keys * layers * key_flops(c),
                               .expert_bytes = byte * experts, .expert_share = share };
}

struct pass_work throughput_model(const struct config *c, const struct model_bytes *b, double keys)
{
    return layers_work(c, (double)c->n_layers, b->weight, b->kv, keys);
}

const struct draft_published draft_published[DRAFT_KINDS] = {
    { "partial", 3.891, 4, "SPIRe, MagicDec at 512 tokens" },
    { "tokenswift", 4.36, 4, "TokenSwift, LLaMA3.1-8B at 100,000 tokens: alpha 0.84" },
    { "longspec", 3.25, 5, "LongSpec, Llama-3-8B-262k, GovReport" },
    { "gumiho", 4.46, 7, "Gumiho, Llama-3-8B" },
    { "spire", 3.401, 4, "SPIRe at 512 tokens" },
    { "model", 2.647, 4, "SPIRe, vanilla draft model at 512 tokens" },
    { "mtp", 2.89, 3, "llama.cpp, Qwen3.6-27B, creative prompts" },
    { "suffix", 0, PASSES_MAX, "none: it depends on the text" },
};

static const struct pass_work nothing;

/* Work that only a part of the passes has. */
static struct pass_work part_of(struct pass_work w, double part)
{
    w.weight_bytes *= part, w.kv_bytes *= part, w.flops *= part, w.expert_bytes *= part;
    return w;
}

/* Adds n weights, read in a pass of the drafter, times the part of its passes that read them. */
static void add_weights(struct pass_work *w, double n, double byte, double part)
{
    w->weight_bytes += part * byte * n;
    w->flops += part * 2 * n;
}

/* The draft layer of a model: a layer with attention, and the matrix before it. */
static struct pass_work mtp_work(const struct config *c, double byte, double kv_byte, double keys)
{
    struct config layer = *c;
    layer.n_layers = 1;
    layer.mixer[0] = MIXER_ATTENTION;
    layer.kind[0] = c->n_experts ? LAYER_EXPERTS : LAYER_DENSE;
    struct pass_work w = layers_work(&layer, 1, byte, kv_byte, keys);
    add_weights(&w, 2 * (double)c->hidden * (double)c->hidden, byte, 1);
    return w;
}

struct draft_work throughput_draft(enum draft_kind kind, const struct config *c, const struct config *small,
                                   const struct model_bytes *b, double keys, double tokens)
{
    enum { WINDOW_PART = 8, SINK = 1, SPIRE_WINDOW = 64, LONGSPEC_WINDOW = 512, PARTIAL_BUDGET = 4096,
           HEADS = 3, GUMIHO_SERIAL = 2, GUMIHO_HEADS = 5, SPIRE_LAYERS = 2, MTP_WINDOW = 4096 };
    const double d = (double)c->hidden, q = (double)(c->n_heads * c->head_dim), byte = b->draft_weight,
                 budget = fmin(keys, PARTIAL_BUDGET), part = 1 / (double)draft_published[kind].passes;
    struct draft_work w = { .passes = draft_published[kind].passes };
    throughput_tokens(&w, tokens, w.passes);
    switch (kind) {
    case DRAFT_PARTIAL:
        w.pass = layers_work(c, (double)c->n_layers, byte, b->kv, SINK + floor(keys / WINDOW_PART));
        break;
    case DRAFT_TOKENSWIFT: {         /* one pass over 4,096 keys, then three heads that share the LM head */
        w.pass = part_of(layers_work(c, (double)c->n_layers, byte, b->kv, budget), part);
        add_weights(&w.pass, HEADS * (d * d + (double)c->vocab * d), byte, part);
        w.rows = 1;
        w.fixed = true;
        w.widths = 4, w.width[0] = 1, w.width[1] = 3, w.width[2] = 9, w.width[3] = 27;
        break;
    }
    case DRAFT_LONGSPEC:             /* cross-attention reads the last layer's cache; it projects q and o */
        w.pass = layers_work(c, 1, byte, b->kv, fmin(keys, LONGSPEC_WINDOW) + keys);
        add_weights(&w.pass, 2 * d * q, byte, 1);
        w.widths = 5, w.width[0] = 4;
        for (size_t i = 1; i < w.widths; i++)
            w.width[i] = 16;
        break;
    case DRAFT_GUMIHO:               /* two passes of two layers, then five heads of two matrices at once */
        w.pass = part_of(layers_work(c, GUMIHO_SERIAL, byte, b->kv, keys), GUMIHO_SERIAL * part);
        add_weights(&w.pass, GUMIHO_HEADS * 3 * d * d + (double)c->vocab * d, byte, part);
        w.rows = 8;
        w.fixed = true;
        w.widths = 7;
        for (size_t i = 0; i < w.widths; i++)
            w.width[i] = 9;
        break;
    case DRAFT_SPIRE:                /* memories are projected to keys and values once more */
        w.pass = layers_work(c, SPIRE_LAYERS, byte, b->kv, fmin(keys, SINK + SPIRE_WINDOW));
        w.pass.flops += 2 * SPIRE_LAYERS * d * layer_kv(c);
        break;
    case DRAFT_MODEL:
        w.pass = layers_work(small, (double)small->n_layers, byte, b->kv, keys);
        break;
    case DRAFT_MTP:
        w.pass = mtp_work(c, byte, b->kv, fmin(keys, MTP_WINDOW));
        break;
    default:
        w.pass = nothing;
    }
    return w;
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
static double draft_seconds(const struct measured_rounds *m, const struct pass_bytes *r, size_t length,
                            size_t k)
{
    const double bytes = r->weights + cost_cache_bytes(r, length);
    return (double)k * bytes * between(m, length, cost_size(&m->pass[0], 1), cost_size(&m->pass[1], 1));
}

void throughput_measured(struct round_seconds *s, const struct measured_rounds *m, enum draft_kind kind,
                         const struct draft_work *w, size_t length, size_t texts)
{
    const size_t most = m->draft[kind].most;
    const struct pass_work *p = &w->pass;
    const struct pass_bytes own = { .weights = p->weight_bytes + p->expert_bytes * p->expert_share,
                                    .key = p->kv_bytes / (double)length, .keys = length },
                            *r = most ? &m->draft[kind].reads : &own;
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
    for (size_t k = 1; k <= w->passes; k++) {
        const double one = k <= most ? between(m, length, scale[0] * m->draft[kind].seconds[0][k],
                                               scale[1] * m->draft[kind].seconds[1][k])
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
static struct pass_work spire_pass(const struct spire_shape *s, double keys, double memory_flops)
{
    return (struct pass_work){ body(s), keys * position(s), 2 * body(s) + memory_flops };
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
    const struct pass_work full = spire_pass(t, length, 0),
                           of[SPIRE_DRAFTS] = { spire_pass(&small[grid], length, 0), spire_pass(t, sparse, 0),
                                                spire_pass(p, sparse, 2 * p->d * position(p)) };
    struct draft_work w = { .pass = of[draft], .passes = PASSES, .fixed = true };
    throughput_tokens(&w, tokens[draft], PASSES);
    return throughput_round(&m, &full, &w, batch).speedup;
}
