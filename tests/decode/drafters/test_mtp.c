/* The draft layer (MTP) of hybrids: the logits of chained drafts are those of the formulas, in directories
 * and GGUF files; texts with its drafts are those of plain decoding, alone, together, restored and cut; its
 * cache has rows of the text alone; its 8-bit copy is near; files that do not fit are refused. */
#include "src/model/mtp.h"
#include "src/decode/decode.h"
#include "src/decode/decoder_image.h"
#include "src/model/safetensors.h"
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
            draft_model_state(&c->r.m, c->state + (i + k) * d, workspace_residual(c->r.w) + k * d);
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
    CHECK((c->t.draft.int8.mem != NULL) == int8);
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
    if (mtp_forward(&c->t, s, 1, false)) printf("FAIL a pass of the draft layer\n"), exit(1);
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
    const struct kv_size size = model_cache(&c->t.draft.own, at + NODES, NODES);
    if (kv_open(&kv, c->r.dev, &size, &e)) rig_die("cache", &e);
    read_text(c, &kv, at, cut, logits);
    double off = distance(logits, want, c->vocab);
    memcpy(state, c->t.draft.rows + ((at - 1) % MIN(cut, (size_t)MTP_ROWS)) * d, d * sizeof *state);
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
        memcpy(state, c->t.draft.rows + (rows - 1) * d, d * sizeof *state);
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
    { "build/data/models/qwen35-equal-f32", NULL },
    { "build/data/models/qwen35-wrapped-bf16", NULL },
    { "build/data/models/qwen35moe-fused-bf16", NULL },
    { "build/data/models/qwen35moe-fused-bf16", "tests/data/gguf/qwen35moe-fused-bf16.gguf" },
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

#define BIT(x) (1u << DRAFTER_##x)
enum { PROMPT = 90, END = 320 };

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
    *s = (struct decode_setup){ .weights[DRAFTER_MTP] = t };
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
            guessed += round_sources(&d->round, i) >> DRAFTER_MTP & 1;
    }
    return guessed;
}

/* At temperature 0 the candidates of a decoder are the most likely tokens of the fixture's chains. */
static void a_decoder_drafts_the_chain(void)
{
    size_t compared = 0;
    for (size_t i = 0; i < N_FIXTURES; i++) {
        struct chains c;
        open_chains(&c, fixtures[i].dir, fixtures[i].model, DT_F32, false);
        for (uint32_t k = 0; k < c.n; k++) {
            const char *chain = c.mtp + 20 + k * (4 + 4 * (size_t)c.n_drafts * c.vocab);
            const float *want = (const float *)(chain + 4);
            struct sampling p;
            struct decode_setup s = { .weights[DRAFTER_MTP] = &c.t };
            struct decoder d;
            struct err e;
            uint32_t at;
            memcpy(&at, chain, 4);
            sampling_defaults(&p);
            p.temperature = 0, p.text_max = at + 8;
            draft_defaults(&s.draft);
            s.draft.drafters = BIT(MTP), s.draft.weights = WEIGHTS_MODEL;
            s.draft.n_width = c.n_drafts;
            for (uint32_t w = 0; w < c.n_drafts; w++) s.draft.width[w] = 1;
            open_decoder(&d, &c.r, &p, &s, c.ids, at + 1, at + 9);
            if (decode_step(&d, &e)) rig_die("step", &e);
            const struct tree *t = d.round.tree;
            CHECK(t->n == c.n_drafts + 1, "%zu nodes", t->n);
            for (size_t n = 1; n < t->n; n++, compared++)
                CHECK(t->node[n].token == (int32_t)best(want + (n - 1) * c.vocab, c.vocab),
                      "%s: draft %zu after token %u", fixtures[i].dir, n, at);
            decode_close(&d);
        }
        close_chains(&c);
    }
    CHECK(compared == 3 * 6 * N_FIXTURES, "%zu drafts", compared);
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
        for (size_t k = t; k < 3; k++) {
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
                CHECK(!settings[i].n_width || guessed > END / 8, "%s, %s: the layer guessed %zu tokens",
                      tiny_drafting[t].name, settings[i].name, guessed);
                decode_close(&d);
            }
            decode_close(&plain);
            close_tiny(&x);
        }
}

/* What a decoder keeps for the drafter begins with its cache (drafters/mtp.c). */
static struct kv *cache_of(struct decoder *d) { return d->own[DRAFTER_MTP]; }

/* Rows of the cache are those of the text, whatever was drafted: a chain and a tree leave the same ones, and
 * so does a text that is read again; a small cache begins with the first of them. */
static void the_cache_has_rows_of_the_text_alone(void)
{
    struct tiny_rig x;
    struct decoder d[4];
    struct decode_setup s;
    const struct sampling p = sampled(1);
    struct err e;
    open_tiny(&x, 0, true);
    for (size_t i = 0; i < 4; i++) {
        set(&s, i < 2 ? i : i == 2 ? 3 : 0, &x.t);
        s.draft.drafters = BIT(MTP);
        open_decoder(&d[i], &x.r, &p, &s, i < 3 ? x.prompt : d[0].tokens, i < 3 ? PROMPT : END - 60, END);
        finish_text(&d[i], END - 40);
        /* one more round: it reads the pairs that the text has gained */
        if (d[i].n_tokens < END && decode_step(&d[i], &e)) rig_die("step", &e);
    }
    struct kv *whole = cache_of(&d[0]);
    for (size_t i = 0; i < 4; i++)
        CHECK(i == 2 || cache_of(&d[i])->n_past >= END - 42, "%zu rows", cache_of(&d[i])->n_past);
    CHECK(rig_same_rows(whole, cache_of(&d[1]), 0, END - 42), "a tree leaves other rows");
    CHECK(rig_same_rows(whole, cache_of(&d[3]), 0, END - 42), "reading again gives other rows");
    const struct kv *small = cache_of(&d[2]);
    CHECK(small->n_past < END - 42 && rig_same_rows(whole, small, 0, 5) &&
              !rig_same_rows(whole, small, 0, small->n_past), "a small cache of %zu rows", small->n_past);
    for (size_t i = 0; i < 4; i++) decode_close(&d[i]);
    close_tiny(&x);
}

/* A cache that is full keeps its first rows and its last ones. */
static void a_full_cache_keeps_its_ends(void)
{
    enum { SINKS = 5, KEYS = 70, N = 200 };
    struct tiny_rig x;
    struct kv kv, whole;
    struct err e;
    open_tiny(&x, 1, false);
    const struct kv_size size = model_cache(&x.t.draft.own, N, 0);
    if (kv_open(&kv, x.r.dev, &size, &e) || kv_open(&whole, x.r.dev, &size, &e)) rig_die("cache", &e);
    rig_inject(&kv, N, 3), rig_inject(&whole, N, 3);
    kv_keep_ends(&kv, SINKS, KEYS - SINKS);
    CHECK(kv.n_past == KEYS && rig_same_rows(&kv, &whole, 0, SINKS), "the first rows");
    float a[2 * HEAD_DIM_MAX], b[2 * HEAD_DIM_MAX];
    for (size_t i = SINKS; i < KEYS; i++) {
        const size_t from = N - KEYS + i;
        kv_get(a, kv.type, kv.head_dim, i % KV_BLOCK, kv_block(&kv, 0, 0, i));
        kv_get(b, kv.type, kv.head_dim, from % KV_BLOCK, kv_block(&whole, 0, 0, from));
        CHECK(!memcmp(a, b, kv_row_bytes(kv.type, kv.head_dim)), "row %zu", i);
    }
    kv_close(&kv), kv_close(&whole);
    close_tiny(&x);
}

/* A planned text whose prompt is long reads its first pairs and its last ones. */
static void a_planned_text_leaves_pairs_out(void)
{
    enum { LONG = 900, SINKS = 16 };
    struct tiny_rig x;
    struct decoder d[2];
    struct decode_setup s;
    const struct sampling p = sampled(1);
    struct err e;
    int32_t prompt[LONG];
    float a[2 * HEAD_DIM_MAX], b[2 * HEAD_DIM_MAX];
    open_tiny(&x, 0, true);
    rig_tokens(prompt, LONG, x.r.c.vocab, 5);
    for (size_t i = 0; i < 2; i++) {
        set(&s, i ? 5 : 0, &x.t);
        open_decoder(&d[i], &x.r, &p, &s, prompt, LONG, LONG + 20);
        if (i) CHECK(cache_of(&d[i])->n_past == SINKS, "%zu rows were read", cache_of(&d[i])->n_past);
        if (decode_step(&d[i], &e)) rig_die("step", &e);
    }
    const struct kv *whole = cache_of(&d[0]), *kv = cache_of(&d[1]);
    CHECK(whole->n_past == LONG - 1 && kv->n_past > SINKS + 200 && kv->n_past < SINKS + 600, "%zu rows",
          kv->n_past);
    for (size_t i = 0; i < kv->n_past; i++) {
        const size_t from = i < SINKS ? i : whole->n_past - kv->n_past + i;
        kv_get(a, kv->type, kv->head_dim, i % KV_BLOCK, kv_block(kv, 0, 1, i));
        kv_get(b, kv->type, kv->head_dim, from % KV_BLOCK, kv_block(whole, 0, 1, from));
        CHECK(!memcmp(a, b, kv_row_bytes(kv->type, kv->head_dim)), "row %zu", i);
    }
    decode_close(&d[0]), decode_close(&d[1]);
    close_tiny(&x);
}

/* Three texts in common rounds make the guesses that each makes alone. */
static void texts_together(void)
{
    enum { TEXTS = 3 };
    struct tiny_rig x;
    struct decoder d[2][TEXTS], *list[TEXTS];
    struct round_buffers buffers = { 0 };
    struct decode_setup s;
    struct err e;
    size_t guessed[2][TEXTS] = { 0 };
    open_tiny(&x, 1, true);
    if (round_buffers_open(&buffers, &x.r.m, 256, 128, END, &e)) rig_die("buffers", &e);
    for (size_t i = 0; i < TEXTS; i++) {
        struct sampling p = sampled(i);
        p.seed = 10 + i;
        set(&s, i % 2, &x.t);
        s.draft.drafters = BIT(MTP);
        open_decoder(&d[0][i], &x.r, &p, &s, x.prompt, PROMPT - 20 * i, END);
        guessed[0][i] = finish_text(&d[0][i], END);
        s.buffers = &buffers;
        open_decoder(&d[1][i], &x.r, &p, &s, x.prompt, PROMPT - 20 * i, END);
    }
    for (size_t n = TEXTS; n > 0;) {
        n = 0;
        for (size_t i = 0; i < TEXTS; i++)
            if (d[1][i].n_tokens < END) list[n++] = &d[1][i];
        if (n && decode_round(list, n, &e)) rig_die("round", &e);
        for (size_t i = 0; i < n; i++)
            for (size_t k = 0; k + 1 < list[i]->round.tokens; k++)
                guessed[1][list[i] - d[1]] += round_sources(&list[i]->round, k) >> DRAFTER_MTP & 1;
    }
    for (size_t i = 0; i < TEXTS; i++) {
        CHECK(!memcmp(d[0][i].tokens, d[1][i].tokens, END * sizeof(int32_t)), "text %zu differs", i);
        CHECK(guessed[0][i] == guessed[1][i] && guessed[0][i] > END / 8, "text %zu: %zu and %zu guesses", i,
              guessed[0][i], guessed[1][i]);
        decode_close(&d[0][i]), decode_close(&d[1][i]);
    }
    round_buffers_close(&buffers);
    close_tiny(&x);
}

/* A restored text begins with an empty cache: the first round has no draft, and later ones do. So does a text
 * that is begun again from an earlier token. */
static void snapshots_and_cuts_begin_anew(void)
{
    static const struct snapshot_owner owner = { .job = 7, .attempt = 1, .fingerprint = "f",
                                                 .numerics = "n" };
    struct tiny_rig x;
    struct decoder plain, d[2];
    struct image m[2];
    struct decode_setup s;
    const struct sampling p = sampled(1);
    struct err e;
    char path[4200];
    open_tiny(&x, 0, true);
    open_decoder(&plain, &x.r, &p, NULL, x.prompt, PROMPT, END);
    finish_text(&plain, END);
    set(&s, 1, &x.t);
    s.draft.drafters = BIT(MTP);
    open_decoder(&d[0], &x.r, &p, &s, x.prompt, PROMPT, END);
    snprintf(path, sizeof path, "%s/image", x.dir);
    if (image_open(&m[0], &d[0], &owner, &e)) rig_die("image", &e);
    finish_text(&d[0], 200);
    FILE *f = fopen(path, "wb");
    CHECK(f && image_capture(&m[0], 0, image_rows(&m[0], d[0].n_tokens)) > 0 &&
              image_write(&m[0], fileno(f), NULL, &e) == 0, "%s", e.msg);
    if (f) fclose(f);
    if (decode_open(&d[1], &x.r.m, &p, &s, x.prompt, PROMPT, END, &e)) rig_die("decoder", &e);
    decode_append(&d[1], d[0].tokens + PROMPT, d[0].n_tokens - PROMPT);
    if (image_open(&m[1], &d[1], &owner, &e)) rig_die("image", &e);
    CHECK(image_restore(&m[1], path, &e) == 0 && d[1].kv.n_past == d[0].kv.n_past, "%s", e.msg);
    if (decode_prefill(&d[1], 0, NULL, NULL, &e) || decode_step(&d[1], &e)) rig_die("step", &e);
    CHECK(cache_of(&d[1])->n_past == 0 && d[1].round.tree->n == 1, "the first round drafted");
    CHECK(finish_text(&d[1], END) > 20, "too few guesses after a snapshot");
    CHECK(!memcmp(d[1].tokens, plain.tokens, END * sizeof *d[1].tokens), "the text differs");
    struct sampling again = p;
    again.sample = 1;
    if (decode_restart(&d[1], 180, &again, &e) || decode_prefill(&d[1], 0, NULL, NULL, &e))
        rig_die("restart", &e);
    CHECK(finish_text(&d[1], END) > 20, "too few guesses after a cut");
    if (decode_restart(&plain, 180, &again, &e) || decode_prefill(&plain, 0, NULL, NULL, &e))
        rig_die("restart", &e);
    finish_text(&plain, END);
    CHECK(!memcmp(d[1].tokens, plain.tokens, END * sizeof *d[1].tokens), "the text differs after a cut");
    for (int i = 0; i < 2; i++) image_close(&m[i]), decode_close(&d[i]);
    decode_close(&plain);
    unlink(path);
    close_tiny(&x);
}

/* A layer whose values are not finite guesses nothing, and the text is the same. */
static void a_layer_that_is_not_finite(void)
{
    struct tiny_rig x;
    struct decoder plain, d;
    struct decode_setup s;
    const struct sampling p = sampled(0);
    open_tiny(&x, 0, true);
    x.t.draft.int8.layers->norm_mlp[3] = NAN;
    open_decoder(&plain, &x.r, &p, NULL, x.prompt, PROMPT, 200);
    set(&s, 1, &x.t);
    open_decoder(&d, &x.r, &p, &s, x.prompt, PROMPT, 200);
    finish_text(&plain, 200);
    CHECK(finish_text(&d, 200) == 0 && !memcmp(d.tokens, plain.tokens, 200 * sizeof *d.tokens));
    decode_close(&d), decode_close(&plain);
    close_tiny(&x);
}

/* In 8 bits few guesses differ. */
static void the_copy_in_8_bits_is_near(void)
{
    struct chains c[2];
    size_t same = 0, of = 0;
    for (int i = 0; i < 2; i++) open_chains(&c[i], fixtures[1].dir, NULL, DT_BF16, i);
    const size_t plain = c[1].t.draft.own.weight_bytes + mat_bytes(&c[1].r.m.lm_head);
    CHECK(c[1].t.draft.int8.weight_bytes < plain * 7 / 10, "%zu and %zu bytes",
          c[1].t.draft.int8.weight_bytes, plain);
    for (size_t at = 20; at < 700; at += 20, of++) {
        float *logits[2];
        for (int i = 0; i < 2; i++) {
            struct kv kv;
            struct err e;
            const struct kv_size size = model_cache(&c[i].t.draft.own, at + 1, 0);
            logits[i] = must_alloc(c[i].vocab * sizeof *logits[i]);
            if (kv_open(&kv, c[i].r.dev, &size, &e)) rig_die("cache", &e);
            read_text(&c[i], &kv, at, 64, logits[i]);
            kv_close(&kv);
        }
        same += best(logits[0], c[0].vocab) == best(logits[1], c[1].vocab);
        CHECK(memcmp(logits[0], logits[1], c[0].vocab * sizeof *logits[0]), "8 bits have the same bytes");
        free(logits[0]), free(logits[1]);
    }
    CHECK(same >= of * 9 / 10, "%zu of %zu guesses are the same", same, of);
    for (int i = 0; i < 2; i++) close_chains(&c[i]);
}

/* With the short LM head the logits of its tokens have the same bits, and others are not guessed; texts that
 * plan with both heads are those of plain decoding. */
static void a_short_head(void)
{
    enum { TOKENS = 48 };
    static const uint8_t want[] = { 0, 1, 0, 1 };
    static const int32_t token[] = { 3, 1, 4, 1 };
    for (int int8 = 0; int8 < 2; int8++) {
        struct tiny_rig x;
        struct kv kv;
        struct err e;
        open_tiny(&x, 0, int8);
        CHECK(!x.t.brief.lm_head.w, "a small vocabulary has a short head");
        if (mtp_shorten(&x.t, TOKENS, &e)) rig_die("head", &e);
        const size_t vocab = x.r.c.vocab, bytes = 2 * vocab * sizeof(float);
        float *logits[2] = { must_alloc(bytes), must_alloc(bytes) },
              *state = must_alloc(4 * x.r.c.hidden * sizeof *state);
        struct rng rng = { 3 };
        for (size_t i = 0; i < 4 * x.r.c.hidden; i++) state[i] = rng_normal(&rng);
        const struct kv_size size = model_cache(&x.t.draft.own, 8, 0);
        if (kv_open(&kv, x.r.dev, &size, &e)) rig_die("cache", &e);
        for (int brief = 0; brief < 2; brief++) {
            struct pass_seq s = { .kv = &kv, .n = 4, .token = token, .want = want, .state = state,
                                  .logits = logits[brief] };
            if (mtp_forward(&x.t, &s, 1, brief)) rig_die("pass", &e);
        }
        for (size_t r = 0; r < 2; r++)
            for (size_t i = 0; i < vocab; i++)
                CHECK(logits[1][r * vocab + i] == (i < TOKENS ? logits[0][r * vocab + i] : -INFINITY),
                      "row %zu, token %zu", r, i);
        kv_close(&kv);
        free(logits[0]), free(logits[1]), free(state);
        struct decoder plain, d;
        struct decode_setup s;
        const struct sampling p = sampled(1);
        open_decoder(&plain, &x.r, &p, NULL, x.prompt, PROMPT, END);
        finish_text(&plain, END);
        set(&s, 5, &x.t);
        open_decoder(&d, &x.r, &p, &s, x.prompt, PROMPT, END);
        CHECK(d.n_caches == 2);
        finish_text(&d, END);
        CHECK(!memcmp(d.tokens, plain.tokens, END * sizeof *d.tokens), "the text differs");
        CHECK(d.planner.cache[0].guesses > 0 && d.planner.cache[1].guesses > 0, "%g and %g passes",
              d.planner.cache[0].guesses, d.planner.cache[1].guesses);
        decode_close(&plain), decode_close(&d);
        close_tiny(&x);
    }
}

/* With tied embeddings a short LM head leaves the embeddings of all tokens. */
static void a_short_head_of_tied_embeddings(void)
{
    static const uint8_t want = 1;
    for (int int8 = 0; int8 < 2; int8++) {
        struct chains c;
        struct kv kv;
        struct err e;
        open_chains(&c, fixtures[0].dir, NULL, DT_BF16, int8);
        CHECK(c.r.c.tied);
        if (mtp_shorten(&c.t, 48, &e)) rig_die("head", &e);
        float *logits[2] = { must_alloc(c.vocab * 4), must_alloc(c.vocab * 4) };
        const struct kv_size size = model_cache(&c.t.draft.own, 8, 0);
        if (kv_open(&kv, c.r.dev, &size, &e)) rig_die("cache", &e);
        for (int brief = 0; brief < 2; brief++) {
            struct pass_seq s = { .kv = &kv, .n = 1, .token = &(int32_t){ 300 }, .want = &want,
                                  .state = c.state, .logits = logits[brief] };
            if (mtp_forward(&c.t, &s, 1, brief)) rig_die("pass", &e);
        }
        CHECK(!memcmp(logits[0], logits[1], 48 * sizeof(float)) && logits[1][48] == -INFINITY);
        kv_close(&kv);
        free(logits[0]), free(logits[1]);
        close_chains(&c);
    }
}

/* A model and its draft layer use buffers of one device. Without memory for larger ones these stay. */
static void buffers_that_do_not_fit(void)
{
    const struct device_limits large = { .rows_max = 64, .n_max = (size_t)1 << 52, .n_in_max = 64,
                                         .heads = { 4, 2, 16, 16 } };
    struct tiny_rig x;
    open_tiny(&x, 0, false);
    float *logits[2];
    for (size_t i = 0; i < 2; i++) {
        struct kv kv;
        logits[i] = must_alloc(x.r.c.vocab * sizeof **logits);
        if (i) CHECK(x.r.dev->reserve(x.r.dev, &large) == -1, "2^52 slots fit");
        rig_kv(&x.r, &kv, 64, 64);
        rig_pass(&x.r, &kv, x.prompt, NULL, 40, logits[i], false);
        kv_close(&kv);
    }
    CHECK(!memcmp(logits[0], logits[1], x.r.c.vocab * sizeof **logits), "the logits differ");
    free(logits[0]), free(logits[1]);
    close_tiny(&x);
}

/* Headers of a draft layer that does not fit its model. */
static void wrong_layers_are_refused(void)
{
    static const struct { const char *name, *with, *says; } cases[] = {
        { "mtp.layers.0.self_attn.k_proj.weight", "mtp.layers.0.self_attn.x_proj.weight",
          "\"mtp.layers.0.self_attn.k_proj.weight\" is missing" },
        { "mtp.fc.weight\":{\"dtype\":\"F32\",\"shape\":[52,104]",
          "mtp.fc.weight\":{\"dtype\":\"F32\",\"shape\":[104,52]", "\"mtp.fc.weight\": shape [104, 52]" },
        { "\"model.norm.weight\"", "\"mtp.layers.1.input_layernorm.weight\"", "one draft layer" },
    };
    struct tiny_rig x;
    char path[4200];
    open_tiny(&x, 1, false);
    snprintf(path, sizeof path, "%s/model.safetensors", x.dir);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tensors ts = { 0 };
        struct err e = { .msg = "" };
        char *bytes;
        size_t size, n = 0, bytes_of_layer;
        if (file_read(&bytes, &size, path, FILE_MAX, &e)) rig_die("file", &e);
        memcpy(&n, bytes, 8);
        char *header = must_alloc(n + 100);
        memcpy(header, bytes + 8, n), header[n] = 0;
        char *at = strstr(header, cases[i].name);
        CHECK(at != NULL, "%s", cases[i].name);
        if (at) {
            const size_t old = strlen(cases[i].name), new = strlen(cases[i].with);
            memmove(at + new, at + old, n - (size_t)(at - header) - old);
            memcpy(at, cases[i].with, new);
            if (tensors_parse(&ts, "file", header, n + new - old, size - n - 8, &e)) rig_die("header", &e);
            CHECK(mtp_check(&x.r.m, &ts, &bytes_of_layer, &e) && e.code == ERR_INPUT &&
                      strstr(e.msg, cases[i].says), "%s", e.msg);
            tensors_close(&ts);
        }
        free(header), free(bytes);
    }
    close_tiny(&x);
}

int main(void)
{
    RUN(drafts_are_those_of_the_formulas);
    RUN(a_decoder_drafts_the_chain);
    RUN(the_copy_in_8_bits_is_near);
    RUN(text_is_that_of_plain_decoding);
    RUN(the_cache_has_rows_of_the_text_alone);
    RUN(a_full_cache_keeps_its_ends);
    RUN(a_planned_text_leaves_pairs_out);
    RUN(texts_together);
    RUN(snapshots_and_cuts_begin_anew);
    RUN(a_layer_that_is_not_finite);
    RUN(a_short_head);
    RUN(a_short_head_of_tied_embeddings);
    RUN(buffers_that_do_not_fit);
    RUN(wrong_layers_are_refused);
    return test_end();
}
