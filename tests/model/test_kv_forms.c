/* What the forms of a cache cost: the mean divergence of the model's distributions under int8 and int4 from
 * those under int16, for the openings (models/demo). The perplexity of long texts rises by it; that of one
 * short text changes by chance. Channels of the keys that are 30 and 100 times as large as others, in one
 * dimension or in a pair of RoPE, cost little with the rotation of heads, and much without it. The last case
 * leaves the other dimensions few bits. */
#include <math.h>

#include "src/text/tokenizer.h"
#include "tests/rig.h"

enum { TOKENS = 2000, ROWS = 250, CHANNEL = 5, VOCAB = 4096 };

static int32_t token[TOKENS];

static void read_openings(void)
{
    static const char *const names[] = { "malay", "mcteague", "portrait", "udolpho", "vanity-fair" };
    static char text[16384];
    size_t n = 0, got;
    struct tokenizer *t;
    struct err e;
    int32_t *ids;
    for (size_t i = 0; i < 5; i++) {
        char path[64];
        snprintf(path, sizeof path, "models/demo/openings/%s.txt", names[i]);
        FILE *f = fopen(path, "rb");
        CHECK(f, "%s", path);
        n += f ? fread(text + n, 1, sizeof text - n, f) : 0;
        if (f) fclose(f);
    }
    if (tokenizer_open(&t, "models/demo", SIZE_MAX, &e) || tokenizer_encode(t, &ids, &got, text, n, true, &e))
        rig_die("tokenizer", &e);
    CHECK(got >= TOKENS, "%zu tokens", got);
    memcpy(token, ids, MIN(got, (size_t)TOKENS) * sizeof *ids);
    free(ids);
    tokenizer_close(t);
}

/* ---- the planted outliers ---- */

static float times;                      /* 1: none */
static bool pair, unrotated, of_keys;
static struct ops changed;

/* A query is divided by what its keys are multiplied by. Keys and values alternate. */
static void planted_rotate(float *x, size_t dim, float factor)
{
    const bool query = factor == 1;
    of_keys = !query && !of_keys;
    for (size_t i = CHANNEL; (query || of_keys) && i < dim; i += dim / 2) {
        x[i] = query ? x[i] / times : x[i] * times;
        if (!pair) break;
    }
    if (!unrotated)
        best_twin()->rotate(x, dim, factor);
}
static void merge(const struct attn *a, void *out, size_t r0, size_t r1)
{
    struct attn b = *a;
    b.type = unrotated ? DT_I16 : a->type;                   /* which is not turned back */
    best_twin()->attend_merge(&b, out, r0, r1);
}

static float *logits_of(enum dtype kv)
{
    struct rig r;
    struct kv cache;
    changed = *best_twin();
    changed.rotate = planted_rotate, changed.attend_merge = merge;
    rig_open_kv(&r, "models/demo", DT_BF16, kv, &changed, 1, ROWS, TOKENS);
    rig_kv(&r, &cache, TOKENS, 0);
    float *logits = must_alloc(TOKENS * VOCAB * sizeof *logits);
    CHECK(r.c.vocab == VOCAB);
    rig_run(&r, &cache, token, TOKENS, ROWS, logits, NULL);
    kv_close(&cache), rig_close(&r);
    return logits;
}

static double log_sum(const float *x)
{
    double all = 0;
    for (size_t k = 0; k < VOCAB; k++)
        all += exp((double)x[k]);
    return log(all);
}

/* Mean divergence from `base`, in per cent of perplexity. */
static double cost(enum dtype kv, const float *base)
{
    float *logits = logits_of(kv);
    double sum = 0;
    for (size_t i = 0; i < TOKENS; i++) {
        const float *x = base + i * VOCAB, *y = logits + i * VOCAB;
        const double of_x = log_sum(x), of_y = log_sum(y);
        for (size_t k = 0; k < VOCAB; k++) {
            const double p = (double)x[k] - of_x, q = (double)y[k] - of_y;
            sum += exp(p) * (p - q);
        }
    }
    free(logits);
    return 100 * sum / TOKENS;
}

static void few_bits_cost_little(void)
{
    times = 1;
    float *base = logits_of(DT_I16);
    const double int8 = cost(DT_I8, base), int4 = cost(DT_I4, base);
    printf("    int8 %.4f %%, int4 %.3f %%\n", int8, int4);
    CHECK(int8 < 0.1 && int4 < 0.5);
    for (int i = 0; i < 4; i++) {
        times = i / 2 ? 100 : 30, pair = i % 2, unrotated = false;
        const double rotated = cost(DT_I8, base);
        unrotated = true;
        const double plain = cost(DT_I8, base);
        unrotated = false;
        printf("    outliers of %g%s: int8 %.4f %%, without rotation %.3f %%\n", (double)times,
               pair ? " in a pair" : "", rotated, plain);
        CHECK(rotated < (i < 3 ? 0.1 : 0.3) && plain > 0.1 && plain > 10 * rotated);
    }
    free(base);
}

int main(void)
{
    read_openings();
    RUN(few_bits_cost_little);
    return test_end();
}
