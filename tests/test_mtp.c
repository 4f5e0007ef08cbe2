/* The draft layer (MTP) of hybrids: the logits of chained drafts are those of the formulas, in directories and
 * GGUF files, for rows of any cut and in trees; its 8-bit copy is near; files that do not fit are refused. */
#include "src/decode/decode.h"
#include "tests/rig.h"

#define TOLERANCE 1e-4
enum { FILE_MAX = 1 << 24, ROWS_MAX = 2304, NODES = 8 };

/* ---- fixtures ---- */

/* A model with the text and the drafts of a fixture (tests/data/README.md). */
struct chains {
    struct rig r;
    struct mtp t;
    char *mtp, *reference;
    const int32_t *ids;
    uint32_t n_ids, n, n_drafts, vocab;
    float *state;                        /* [n_ids][hidden]: the model's rows after its final norm */
};

static char *read_all(const char *dir, const char *name, const char *magic)
{
    char path[512], *bytes;
    struct err e;
    size_t size;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (file_read(&bytes, &size, path, FILE_MAX, &e)) rig_die("fixture", &e);
    if (size < 20 || memcmp(bytes, magic, 8)) printf("FAIL %s is no fixture\n", path), exit(1);
    return bytes;
}

static void read_states(struct chains *c)
{
    static const uint8_t none[256];
    const size_t d = c->r.c.hidden;
    struct kv kv;
    struct err e;
    rig_kv(&c->r, &kv, ROWS_MAX, 0);
    c->state = must_alloc(c->n_ids * d * sizeof *c->state);
    for (size_t i = 0, n; i < c->n_ids; i += n) {
        n = MIN(c->n_ids - i, sizeof none);
        struct pass_seq s = { .kv = &kv, .n = n, .token = c->ids + i, .certain = true, .want = none };
        if (model_forward(&c->r.m, c->r.w, &s, 1, NULL, 0, &e)) rig_die("pass", &e);
        for (size_t k = 0; k < n; k++)
            mtp_state(&c->r.m, c->state + (i + k) * d, workspace_residual(c->r.w) + k * d);
        kv_advance(&kv, n);
    }
    kv_close(&kv);
}

/* dir: of the fixture; model: NULL, or another form of its model. */
static void open_chains(struct chains *c, const char *dir, const char *model, enum dtype compute, bool int8)
{
    struct err e;
    model = model ? model : dir;
    rig_open(&c->r, model, compute, best_twin(), 2, 256, ROWS_MAX);
    c->mtp = read_all(dir, "mtp.bin", "LHMTP001"), c->reference = read_all(dir, "reference.bin", "LHREF001");
    c->ids = (const int32_t *)(c->reference + 20);
    memcpy(&c->n_ids, c->reference + 8, 4);
    memcpy(&c->n, c->mtp + 8, 4), memcpy(&c->n_drafts, c->mtp + 12, 4), memcpy(&c->vocab, c->mtp + 16, 4);
    CHECK(c->vocab == c->r.c.vocab && c->n >= 4 && c->n_drafts == 3 && c->n_ids <= ROWS_MAX - 8);
    CHECK(mtp_present(model), "%s has no layer", model);
    if (mtp_open(&c->t, &c->r.m, model, WEIGHTS_AS_IS, int8, &e)) rig_die("layer", &e);
    CHECK((c->t.int8.mem != NULL) == int8);
    read_states(c);
}

static void close_chains(struct chains *c)
{
    mtp_close(&c->t);
    rig_close(&c->r);
    free(c->mtp), free(c->reference), free(c->state);
}

static void mtp_pass(struct chains *c, struct pass_seq *s)
{
    if (mtp_forward(&c->t, s, 1)) printf("FAIL a pass of the draft layer\n"), exit(1);
}

/* Reads the pairs of the text ids[0 .. at] in passes of `cut` rows; the last one has logits. */
static void read_text(struct chains *c, struct kv *kv, size_t at, size_t cut, float *logits)
{
    static const uint8_t none[MTP_ROWS], last[MTP_ROWS + 1] = { [MTP_ROWS] = 1 };
    for (size_t i = 0, n; i < at; i += n) {
        n = MIN(MIN(cut, (size_t)MTP_ROWS), at - i);
        const bool ends = i + n == at;
        struct pass_seq s = { .kv = kv, .n = n, .token = c->ids + i + 1, .shift = i + 1 - kv->n_past,
                              .state = c->state + i * c->r.c.hidden, .logits = logits,
                              .want = ends ? last + MTP_ROWS + 1 - n : none };
        mtp_pass(c, &s);
        kv_advance(kv, n);
    }
}

static size_t best(const float *logits, size_t n)
{
    size_t at = 0;
    for (size_t i = 1; i < n; i++)
        if (logits[i] > logits[at]) at = i;
    return at;
}

static double distance(const float *a, const float *b, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++) most = MAX(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

/* The largest distance of a chain's logits from those of the fixture. Row k of the chain is node k of a tree
 * whose first rows are other tokens: each pass has one row, and its path is the last rows. */
static double chain_off(struct chains *c, const char *at_chain, size_t cut)
{
    const size_t d = c->r.c.hidden;
    float *logits = must_alloc(c->vocab * sizeof *logits), *state = must_alloc(3 * d * sizeof *state);
    static const uint8_t one[] = { 1, 1 };
    const float *want = (const float *)(at_chain + 4);
    int32_t parent[NODES] = { -1, -1 }, token[2];
    struct kv kv;
    struct err e;
    uint32_t at;
    memcpy(&at, at_chain, 4);
    const struct kv_size size = model_cache(&c->t.layer, at + NODES, NODES);
    if (kv_open(&kv, c->r.dev, &size, &e)) rig_die("cache", &e);
    read_text(c, &kv, at, cut, logits);
    double off = distance(logits, want, c->vocab);
    memcpy(state, c->t.hidden + ((at - 1) % MIN(cut, (size_t)MTP_ROWS)) * d, d * sizeof *state);
    memcpy(state + d, state, d * sizeof *state);
    float *two = must_alloc(2 * c->vocab * sizeof *two);
    for (uint32_t k = 1; k < c->n_drafts; k++) {
        /* the first pass also has a row of another token, which nothing may see */
        const size_t rows = k == 1 ? 2 : 1;
        token[rows - 1] = (int32_t)best(want + (k - 1) * c->vocab, c->vocab);
        token[0] = rows == 2 ? (token[1] + 1) % (int32_t)c->vocab : token[0];
        struct pass_seq s = { .kv = &kv, .n = rows, .token = token, .parent = parent, .want = one,
                              .logits = two, .shift = at + 1 - kv.n_past, .node0 = k == 1 ? 0 : k,
                              .state = state };
        mtp_pass(c, &s);
        off = MAX(off, distance(two + (rows - 1) * c->vocab, want + k * c->vocab, c->vocab));
        memcpy(state, c->t.hidden + (rows - 1) * d, d * sizeof *state);
        parent[k + 1] = (int32_t)k;
    }
    kv_close(&kv);
    free(logits), free(two), free(state);
    return off;
}

static double chains_off(struct chains *c, size_t cut)
{
    double off = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        const double x = chain_off(c, c->mtp + 20 + i * (4 + 4 * (size_t)c->n_drafts * c->vocab), cut);
        off = MAX(off, x);
    }
    return off;
}

static const struct { const char *dir, *model; } fixtures[] = {
    { "tests/data/models/qwen35-equal-f32", NULL },
    { "tests/data/models/qwen35-wrapped-bf16", NULL },
    { "tests/data/models/qwen35moe-fused-bf16", NULL },
    { "tests/data/models/qwen35moe-fused-bf16", "tests/data/gguf/qwen35moe-fused-bf16.gguf" },
};
enum { N_FIXTURES = sizeof fixtures / sizeof *fixtures };

static void drafts_are_those_of_the_formulas(void)
{
    for (size_t i = 0; i < N_FIXTURES; i++) {
        struct chains c;
        open_chains(&c, fixtures[i].dir, fixtures[i].model, DT_F32, false);
        const double off = chains_off(&c, i % 2 ? 64 : 7);
        CHECK(off <= TOLERANCE, "%s: %g", fixtures[i].dir, off);
        /* control: the states of the rows after, in place of those before */
        memmove(c.state, c.state + c.r.c.hidden, (c.n_ids - 1) * c.r.c.hidden * sizeof *c.state);
        CHECK(chains_off(&c, 64) > 0.1, "%s: states do not matter", fixtures[i].dir);
        close_chains(&c);
    }
}

/* ---- decoders ---- */

#define BIT(x) (1u << SOURCE_##x)
enum { PROMPT = 90, END = 420 };

/* Settings of drafting: fixed trees, and plans. */
static const struct setting {
    const char *name;
    unsigned drafters;
    size_t width[8], n_width, keys;      /* keys: --kv-budget, 0: that of the defaults */
    long passes;
} settings[] = {
    { "a chain", BIT(MTP), { 1, 1, 1, 1, 1, 1, 1, 1 }, 8, 0, -1 },
    { "a tree", BIT(MTP) | BIT(NGRAM), { 3, 2, 2, 1 }, 4, 0, -1 },
    { "one wide pass, three more", BIT(MTP), { 4 }, 1, 0, 4 },
    { "a small cache", BIT(MTP) | BIT(SUFFIX), { 2, 1, 1 }, 3, 40, -1 },
    { "as planned", BIT(MTP) | BIT(NGRAM) | BIT(SUFFIX), { 0 }, 0, 0, -1 },
    { "planned, three passes", BIT(MTP), { 0 }, 0, 0, 3 },
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

static void set(struct decode_setup *s, size_t i, struct mtp *t)
{
    *s = (struct decode_setup){ .mtp = t };
    draft_defaults(&s->draft);
    s->draft.drafters = settings[i].drafters;
    memcpy(s->draft.width, settings[i].width, sizeof settings[i].width);
    s->draft.n_width = settings[i].n_width, s->draft.draft_passes = settings[i].passes;
    if (settings[i].keys)
        s->draft.kv_budget = settings[i].keys, s->draft.kv_sinks = 5;
}

static void open_decoder(struct decoder *d, const struct rig *r, const struct sampling *p,
                         const struct decode_setup *s, const int32_t *prompt, size_t n_prompt, size_t n_max)
{
    struct err e;
    if (decode_open(d, &r->m, p, s, prompt, n_prompt, n_max, &e) || decode_prefill(d, 0, NULL, NULL, &e))
        rig_die("decoder", &e);
}

/* Writes the text up to n tokens. Returns how many of them the draft layer guessed. */
static size_t finish_text(struct decoder *d, size_t n)
{
    struct err e;
    size_t guessed = 0;
    while (d->n_tokens < n) {
        if (decode_step(d, &e)) rig_die("step", &e);
        for (size_t i = 0; i + 1 < d->round.tokens; i++)
            guessed += d->round.path_sources[i] >> SOURCE_MTP & 1;
    }
    return guessed;
}

/* A tiny model with a draft layer. */
struct tiny_rig { struct rig r; struct mtp t; char dir[4096]; int32_t prompt[PROMPT]; };

static void open_tiny(struct tiny_rig *x, size_t i, bool int8)
{
    struct err e;
    tiny_write(&tiny_drafting[i], x->dir);
    rig_open(&x->r, x->dir, DT_BF16, best_twin(), 2, 64, 64);
    if (mtp_open(&x->t, &x->r.m, x->dir, WEIGHTS_AS_IS, int8, &e)) rig_die("layer", &e);
    rig_tokens(x->prompt, PROMPT, x->r.c.vocab, 2);
}

static void close_tiny(struct tiny_rig *x)
{
    mtp_close(&x->t);
    rig_close(&x->r), tiny_remove(x->dir);
}

static struct sampling sampled(size_t k)
{
    static const double temperature[] = { 0, 0.7, 1 };
    struct sampling p;
    sampling_defaults(&p);
    p.seed = k, p.temperature = temperature[k], p.text_max = END;
    if (k == 2) p.penalty = 1.1, p.penalty_window = 30, p.min_p = 0.02;
    return p;
}

static void text_is_that_of_plain_decoding(void)
{
    for (size_t t = 0; t < N_TINY_DRAFTING; t++)
        for (size_t k = 0; k < 3; k++) {
            struct tiny_rig x;
            struct decoder plain, d;
            struct decode_setup s;
            const struct sampling p = sampled(k);
            open_tiny(&x, t, k != 1);
            open_decoder(&plain, &x.r, &p, NULL, x.prompt, PROMPT, END);
            finish_text(&plain, END);
            for (size_t i = 0; i < N_SETTINGS; i++) {
                set(&s, i, &x.t);
                open_decoder(&d, &x.r, &p, &s, x.prompt, PROMPT, END);
                const size_t guessed = finish_text(&d, END);
                CHECK(!memcmp(d.tokens, plain.tokens, END * sizeof *d.tokens), "%s, %s, temperature %g",
                      tiny_drafting[t].name, settings[i].name, p.temperature);
                CHECK(!settings[i].n_width || guessed > END / 5, "%s, %s: the layer guessed %zu tokens",
                      tiny_drafting[t].name, settings[i].name, guessed);
                decode_close(&d);
            }
            decode_close(&plain);
            close_tiny(&x);
        }
}

int main(void)
{
    RUN(drafts_are_those_of_the_formulas);
    RUN(text_is_that_of_plain_decoding);
    return test_end();
}
