/* The draft layer (MTP) of hybrids: the logits of chained drafts are those of the formulas, in directories and
 * GGUF files, for rows of any cut and in trees; its 8-bit copy is near; files that do not fit are refused. */
#include "src/base/base.h"
#include "src/model/mtp.h"
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
        printf("# %s: %.1e\n", fixtures[i].model ? fixtures[i].model : fixtures[i].dir, off);
        /* control: the states of the rows after, in place of those before */
        memmove(c.state, c.state + c.r.c.hidden, (c.n_ids - 1) * c.r.c.hidden * sizeof *c.state);
        CHECK(chains_off(&c, 64) > 0.1, "%s: states do not matter", fixtures[i].dir);
        close_chains(&c);
    }
}

int main(void)
{
    RUN(drafts_are_those_of_the_formulas);
    return test_end();
}
