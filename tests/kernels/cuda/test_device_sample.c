/* The kernel samples the tokens that the sampler samples from the same logits, for any chain of filters. */
#include "tests/emulated/emulate.h"
#include "src/sample/device_sampler.h"
#include "src/decode/tree.h"
#include "tests/device_rig.h"

static struct device *dev;
enum { VOCAB = 3001, ROWS = 4, PROMPT = 20, TEXT = 60 };

static struct sampling random_sampling(int c)
{
    struct sampling s;
    sampling_defaults(&s);
    s.seed = rig_random() * (uint64_t)rig_random();
    s.sample = (uint32_t)c;
    s.temperature = c % 5 == 0 ? 0 : c % 5 == 1 ? 1 : 0.3 + rig_random() % 100 / 50.0;
    s.top_k = c % 3 ? (long)(rig_random() % (c % 2 ? 40 : VOCAB + 5)) : 0;
    s.top_p = c % 4 ? 0.05 + rig_random() % 95 / 100.0 : 1;
    s.min_p = c % 3 == 1 ? rig_random() % 100 / 200.0 : 0;
    s.eta = c % 4 == 3 ? 0.0005 * (1 + rig_random() % 100) : 0;
    s.min_keep = c % 6 == 5 ? 1 + rig_random() % 30 : 1;
    s.penalty = c % 2 ? 1.3 : 1;
    s.presence = c % 4 == 2 ? 0.7 : 0;
    s.frequency = c % 4 == 1 ? 0.2 : 0;
    s.penalty_window = 30;
    return s;
}

static struct device_chain chain_of(const struct sampling *s, const uint32_t *counts)
{
    struct device_chain c = { .temperature = s->temperature, .top_k = s->top_k > 0 ? (size_t)s->top_k : 0,
                              .min_keep = s->min_keep, .top_p = s->top_p, .min_p = s->min_p,
        .eta = s->eta, .penalty = s->penalty, .presence = s->presence, .frequency = s->frequency,
        .seed = s->seed, .sample = s->sample, .counts = counts,
        .order = { DEVICE_BIAS, DEVICE_PENALTIES, DEVICE_DRY, DEVICE_TEMPERATURE, DEVICE_TOP_K, DEVICE_TOP_P,
                   DEVICE_MIN_P, DEVICE_ETA }, .n_order = DEVICE_STEPS };
    return c;
}

/* Logits as models produce them; or many equal values; or a few large ones; some banned. */
static void random_logits(float *x, int kind)
{
    for (size_t i = 0; i < VOCAB; i++) {
        const float a = rig_float() + rig_float() + rig_float();
        x[i] = kind == 0 ? 4 * a : kind == 1 ? (float)(int)(2 * a) : i % 300 == 7 ? 20 + a : a;
        if (rig_random() % 50 == 0)
            x[i] = -INFINITY;
    }
}

static void tokens_equal_the_samplers(void)
{
    int32_t tokens[PROMPT + TEXT], path[ROWS] = { 5, 5, 900, 12 };
    float *logits = malloc(ROWS * VOCAB * sizeof *logits), *mine = malloc(VOCAB * sizeof *mine);
    for (int i = 0; i < PROMPT + TEXT; i++)
        tokens[i] = (int32_t)(rig_random() % 40);
    for (int c = 0; c < 60; c++) {
        emulate_set_order((enum emulate_order)(c % 3));
        struct sampling s = random_sampling(c);
        struct { int32_t id; double bias; } bias[] = { { 3, 5 }, { 11, -INFINITY }, { 2999, -2.5f } };
        struct device_edit edit[] = { { 3, 5 }, { 11, (double)-INFINITY }, { 2999, -2.5 } };
        struct err e;
        struct sampler *sampler;
        struct device_pick pick[ROWS];
        struct device_count count[ROWS * 2 * ROWS];
        size_t n_count = 0;
        static uint32_t counts[2 * VOCAB];
        s.bias = (void *)bias, s.n_bias = c % 3 ? 3 : 0;
        CHECK(sampling_check(&s, VOCAB, &e) == 0, "%s", e.msg);
        CHECK(sampler_open(&sampler, &s, VOCAB, ops_for_cpu(&(const char *){ 0 }), NULL, &e) == 0, "%s",
              e.msg);
        /* Counts of the text, on the device, and changes by a path: its tokens enter, and the oldest of the
         * window leave. */
        memset(counts, 0, sizeof counts);
        for (int i = 0; i < PROMPT + TEXT; i++) {
            counts[tokens[i]] += i >= PROMPT + TEXT - 30 && s.penalty != 1;
            counts[VOCAB + tokens[i]] += i >= PROMPT && (s.presence != 0 || s.frequency != 0);
        }
        uint32_t *dcounts = dev->alloc(dev, sizeof counts);
        struct device_count all[VOCAB];
        for (uint32_t i = 0; i < VOCAB; i++)
            all[i] = (struct device_count){ i, (int32_t)counts[i], (int32_t)counts[VOCAB + i] };
        dev->count(dev, dcounts, VOCAB, all, VOCAB);
        for (size_t r = 0; r < ROWS; r++) {
            struct device_count *mine_count = count + n_count;
            size_t n = 0;
            for (size_t j = 0; j < 2 * r; j++) {  /* r tokens of the path enter, r of the text leave */
                const int32_t id = j < r ? path[j] : tokens[PROMPT + TEXT - 30 + (int)(j - r)];
                size_t k = 0;
                while (k < n && mine_count[k].id != (uint32_t)id)
                    k++;
                if (k == n)
                    mine_count[n++] = (struct device_count){ (uint32_t)id, 0, 0 };
                mine_count[k].window += s.penalty != 1 ? j < r ? 1 : -1 : 0;
                mine_count[k].text += j < r && (s.presence != 0 || s.frequency != 0);
            }
            pick[r] = (struct device_pick){ .position = PROMPT + TEXT + r,
                                                .row = (uint32_t)(ROWS - 1 - r), .n_edit = (uint32_t)s.n_bias,
                                                .count = (uint32_t)n_count, .n_count = (uint32_t)n };
            n_count += n;
            random_logits(logits + r * VOCAB, (c + (int)r) % 3);
        }
        const struct device_chain chain = chain_of(&s, dcounts);
        float *dl = rig_put(dev, logits, ROWS * VOCAB * sizeof *logits);
        const struct device_picks picks = { pick, ROWS, edit, s.n_bias, count, n_count, dev->alloc(dev,
            dev->sample_bytes(dev, ROWS, 3, sizeof count / sizeof *count, VOCAB)) };
        struct device_candidate first[ROWS], got[ROWS * 5];
        const size_t before = dev->downloaded;
        CHECK(dev->sample(dev, first, 1, dl, VOCAB, &chain, &picks) == 0, "%s", dev->error);
        CHECK(dev->downloaded - before == sizeof first, "%zu bytes", dev->downloaded - before);
        /* the logits are unchanged */
        CHECK(dev->sample(dev, got, 5, dl, VOCAB, &chain, &picks) == 0, "%s", dev->error);
        for (size_t r = 0; r < ROWS; r++) {
            const struct history h = { tokens, PROMPT + TEXT, PROMPT, path, r, 0 };
            struct candidate best[5];
            const float *row = logits + pick[r].row * VOCAB;
            memcpy(mine, row, VOCAB * sizeof *mine);
            const int32_t want = sampler_sample(sampler, mine, &h);
            CHECK(first[r].id == want, "case %d row %zu: %d, the sampler samples %d", c, r, first[r].id,
                  want);
            memcpy(mine, row, VOCAB * sizeof *mine);
            const size_t n = sampler_rank(sampler, mine, &h, 5, best);
            for (size_t k = 0; k < 5; k++) {
                const struct device_candidate *g = &got[r * 5 + k];
                CHECK(k < n ? g->id == best[k].id && g->score == best[k].score : g->id == -1,
                      "case %d row %zu rank %zu: %d (%g), %zu by the sampler: %d (%g)", c, r, k, g->id,
                      g->score, n, k < n ? best[k].id : -1, k < n ? best[k].score : 0);
            }
        }
        dev->free(dev, picks.work, 0);
        dev->free(dev, dl, 0), dev->free(dev, dcounts, 0);
        sampler_close(sampler);
        if (test_failed_)
            break;
    }
    emulate_set_order(EMULATE_RANDOM);
    free(logits), free(mine);
}

static void an_empty_row_gives_no_token(void)
{
    float x[VOCAB];
    struct device_candidate got;
    struct device_chain chain = { .temperature = 1, .min_keep = 1, .top_p = 0.5, .penalty = 1,
                                  .order = { DEVICE_TOP_P }, .n_order = 1 };
    struct device_pick pick = { .position = 3 };
    const struct device_picks picks = { &pick, 1, NULL, 0, NULL, 0, dev->alloc(dev,
        dev->sample_bytes(dev, 1, 0, 0, VOCAB)) };
    for (int i = 0; i < VOCAB; i++)
        x[i] = -INFINITY;
    float *dl = rig_put(dev, x, sizeof x);
    CHECK(dev->sample(dev, &got, 1, dl, VOCAB, &chain, &picks) == 0 && got.id == -1, "%d", got.id);
    dev->free(dev, dl, 0), dev->free(dev, picks.work, 0);
}

/* The logits of heads are not checked. A row without any candidate must end, and must not affect other
 * rows. */
static void infinite_logits_end_too(void)
{
    float x[2 * VOCAB];
    struct device_candidate got[2];
    struct device_chain chain = { .temperature = 1, .top_k = 5, .min_keep = 2, .top_p = 0.5, .min_p = 0.1,
                                  .eta = 0.01, .penalty = 1,
                                  .order = { DEVICE_TOP_P, DEVICE_TOP_K, DEVICE_MIN_P, DEVICE_ETA },
                                  .n_order = 4 };
    struct device_pick pick[2] = { { .position = 3 }, { .position = 4, .row = 1 } };
    const struct device_picks picks = { pick, 2, NULL, 0, NULL, 0, dev->alloc(dev,
        dev->sample_bytes(dev, 2, 0, 0, VOCAB)) };
    for (int kind = 0; kind < 3; kind++) {
        for (int i = 0; i < VOCAB; i++) {
            x[i] = kind == 0 ? NAN : kind == 1 && i == 9 ? INFINITY : kind == 2 ? INFINITY : (float)(i % 50);
            x[VOCAB + i] = i == 17 ? 80 : 0;
        }
        float *dl = rig_put(dev, x, sizeof x);
        CHECK(dev->sample(dev, got, 1, dl, VOCAB, &chain, &picks) == 0 && got[0].id >= -1 &&
                  got[0].id < VOCAB && got[1].id == 17,
              "kind %d: %d, %d", kind, got[0].id, got[1].id);
        dev->free(dev, dl, 0);
    }
    dev->free(dev, picks.work, 0);
}

/* ---- src/sample/device_sampler.h: trees with more rows than a launch, and growing texts ---- */

enum { WORDS = 150, NODES = 150, LONGEST = 400, RANKED = 4 };

struct forest { int32_t parent[NODES], token[NODES], path[NODES][TREE_DEPTH_MAX]; size_t depth[NODES]; };

/* Node i is a child of an earlier node; some chains have the largest depth. */
static void grow(struct forest *f)
{
    f->parent[0] = -1, f->depth[0] = 0;
    for (int i = 1; i < NODES; i++) {
        int up = i % 3 ? i - 1 : (int)(rig_random() % (uint32_t)i);
        while (f->depth[up] == TREE_DEPTH_MAX)
            up = f->parent[up];
        f->parent[i] = up, f->depth[i] = f->depth[up] + 1, f->token[i] = (int32_t)(rig_random() % 12);
        memcpy(f->path[i], f->path[up], sizeof f->path[up]);
        f->path[i][f->depth[i] - 1] = f->token[i];
    }
}

static struct history history_of(const struct forest *f, struct history h, size_t i)
{
    h.path = f->path[i], h.n_path = f->depth[i];
    return h;
}

/* One round over a text: the tokens after all nodes, a level of rankings, and a candidate row of the
 * published verifier. */
static void as_the_sampler(struct device_sampler *c, struct sampler *s, struct history text, float *logits,
                           float *there, const char *what)
{
    static struct forest f;
    static float mine[WORDS];
    struct candidate got[DEVICE_SAMPLER_RANKS * RANKED], want[RANKED];
    struct history level[DEVICE_SAMPLER_RANKS];
    size_t found[DEVICE_SAMPLER_RANKS];
    grow(&f);
    for (size_t i = 0; i < NODES * WORDS; i++)
        logits[i] = 3 * rig_float();
    for (size_t i = 0; i < WORDS; i++)
        logits[7 * WORDS + i] = -INFINITY;                       /* no candidate remains */
    for (size_t i = 0; i < WORDS; i++)
        if ((int32_t)i != text.tokens[text.n - 7])
            /* after the text only tokens that would repeat it: penalised, not banned */
            logits[i] = -INFINITY;
    dev->upload(dev, there, logits, NODES * WORDS * sizeof *logits);
    device_sampler_set_tree(c, there, &text, NODES, f.parent, f.token);
    for (size_t i = 0; i < NODES; i++) {
        const struct history h = history_of(&f, text, i);
        memcpy(mine, logits + i * WORDS, sizeof mine);
        const int32_t token = device_sampler_token(c, there, i, &h), pick = sampler_sample(s, mine, &h);
        CHECK(token == pick, "%s, node %zu at depth %zu: %d, the sampler samples %d", what, i, h.n_path,
              token, pick);
    }
    for (size_t i = 0; i < DEVICE_SAMPLER_RANKS; i++)
        level[i] = history_of(&f, text, NODES - 1 - i);
    device_sampler_rank(c, there + 5 * WORDS, level, DEVICE_SAMPLER_RANKS, RANKED, got, found);
    for (size_t i = 0; i < DEVICE_SAMPLER_RANKS; i++) {
        memcpy(mine, logits + 5 * WORDS, sizeof mine);
        const size_t n = sampler_rank(s, mine, &level[i], RANKED, want);
        CHECK(found[i] == n && memcmp(got + i * RANKED, want, n * sizeof *want) == 0,
              "%s, ranking %zu: %zu found, %zu by the sampler", what, i, found[i], n);
    }
    for (uint32_t row = 0; row < 3; row++) {
        memcpy(mine, logits + 9 * WORDS, sizeof mine);
        const int32_t token = device_sampler_token_row(c, there, 9, &level[3], row),
                      pick = sampler_sample_row(s, mine, &level[3], row);
        CHECK(token == pick, "%s, row %u of candidates: %d, the sampler samples %d", what, row, token,
              pick);
    }
}

static void trees_equal_the_samplers(void)
{
    static const int32_t eos[] = { 11, 3, 20 };
    static struct { int32_t id; double bias; } bias[] = { { 3, 5 }, { 0, -INFINITY }, { 90, -2.5f } };
    static const struct dry_breaker breaker[] = { { 1, { 2 } } };
    static const long windows[] = { -1, 40, 0, 5, 1024, 0 };
    const struct model m = { .dev = dev, .config.vocab = WORDS, .ops = ops_for_cpu(&(const char *){ 0 }) };
    float *logits = malloc(NODES * WORDS * sizeof *logits),
          *there = dev->alloc(dev, NODES * WORDS * sizeof *there);
    int32_t tokens[LONGEST], others[LONGEST];
    for (int i = 0; i < LONGEST; i++)
        tokens[i] = i < 40 ? (int32_t)(rig_random() % 12) : 4 + i % 7,
        others[i] = (int32_t)(rig_random() % 12);
    for (int c = 0; c < 6; c++) {
        struct sampling p = random_sampling(c);
        struct device_sampler *sampler;
        struct sampler *s;
        struct err e;
        p.top_k = MIN(p.top_k, WORDS), p.min_keep = MIN(p.min_keep, (size_t)20);
        p.penalty_window = windows[c], p.bias = (void *)bias, p.n_bias = c % 2 ? 3 : 0;
        p.eos = eos, p.n_eos = 3, p.min_tokens = c * 3 % 4 * 40, p.ignore_eos = c == 4,
        p.text_max = LONGEST + 1;
        /* up to the limit of floats */
        p.dry_multiplier = c % 3 == 2 ? 1000 : c == 3 ? 0.5 : 0, p.dry_allowed = 1, p.dry_base = 100;
        p.dry_breakers = breaker, p.n_dry_breakers = 1;
        CHECK(sampling_check(&p, WORDS, &e) == 0, "%s", e.msg);
        CHECK(device_sampler_open(&sampler, &m, &p, NODES, &e) == 0 &&
                  sampler_open(&s, &p, WORDS, m.ops, NULL, &e) == 0,
              "%s", e.msg);
        const struct { const int32_t *tokens; size_t n, known; const char *what;
        } text[] = { { tokens, 30, 0, "first" },         { tokens, 33, 30, "three more" },
                     { tokens, 33, 33, "the same" },     { tokens, 180, 33, "many more" },
                     { others, 170, 0, "another text" }, { others, 175, 170, "and five more" } };
        for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
            char what[64];
            snprintf(what, sizeof what, "case %d, %s", c, text[i].what);
            as_the_sampler(sampler, s, (struct history){ text[i].tokens, text[i].n, 20, NULL, 0,
                text[i].known }, logits, there, what);
        }
        device_sampler_close(sampler), sampler_close(s);
    }
    dev->free(dev, there, 0), free(logits);
}

int main(void)
{
    char why[256];
    if (test_device_open(&dev, why, sizeof why)) {
        printf("skip test_device_sample (%s)\n", why);
        return 0;
    }
    const struct device_limits l = { ROWS, 64, 0, 64, VOCAB, { 4, 2, 64, 64 } };
    if (dev->reserve(dev, &l))
        return 1;
    RUN(tokens_equal_the_samplers);
    RUN(an_empty_row_gives_no_token);
    RUN(infinite_logits_end_too);
    RUN(trees_equal_the_samplers);
    dev->close(dev);
    return test_end();
}
