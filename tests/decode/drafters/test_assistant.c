/* The drafter of Gemma 4: the logits of chained drafts are those of transformers; a decoder drafts the same
 * tokens; its 8-bit copy is near; it is found beside its model; texts with its drafts are those of plain
 * decoding, alone, together and cut; drafters that do not fit are refused. */
#include "src/model/assistant.h"
#include "src/decode/decode.h"
#include "src/model/mtp.h"
#include "tests/rig.h"

#define MODEL "build/data/models/gemma4-layers-f32"
#define BIT(x) (1u << DRAFTER_##x)
enum { FILE_MAX = 1 << 24, N_MAX = 700 };

/* A model, its drafter, and the drafts of the fixture (tests/make/make_assistant.py). */
struct fixture {
    struct rig r;
    struct draft_model t;
    char *reference, *drafts;
    const int32_t *ids, *token;          /* token[0]: what the model says after the rows; then the drafts */
    const float *logits;
    uint32_t rows, n, vocab;
};

static char *read_all(const char *name, const char *magic)
{
    char path[512], *bytes;
    struct err e;
    size_t size;
    snprintf(path, sizeof path, MODEL "/%s", name);
    if (file_read(&bytes, &size, path, FILE_MAX, &e)) rig_die("fixture", &e);
    if (size < 20 || memcmp(bytes, magic, 8)) printf("FAIL %s is no fixture\n", path), exit(1);
    return bytes;
}

/* file: the drafter; NULL: the one that is found. */
static void open_fixture(struct fixture *f, const char *file, enum dtype compute, bool int8)
{
    struct err e;
    char path[PATH_BYTES];
    rig_open(&f->r, MODEL, compute, best_twin(), 2, 512, N_MAX);
    f->reference = read_all("reference.bin", "LHREF001");
    f->drafts = read_all("assistant/reference.bin", "LHASST01");
    memcpy(&f->rows, f->drafts + 8, 4), memcpy(&f->n, f->drafts + 12, 4);
    memcpy(&f->vocab, f->drafts + 16, 4);
    f->ids = (const int32_t *)(f->reference + 20), f->token = (const int32_t *)(f->drafts + 20);
    f->logits = (const float *)(f->token + f->n + 1);
    CHECK(f->vocab == f->r.c.vocab && f->n == 4);
    if (!assistant_find(path, MODEL) || strcmp(path, MODEL "/assistant"))
        printf("FAIL %s is not found\n", path), exit(1);
    if (assistant_open(&f->t, file ? file : path, &f->r.m, int8, &e) ||
        draft_model_reserve(&f->t, ASSISTANT_ROWS, N_MAX, &e))
        rig_die("drafter", &e);
    CHECK((f->t.int8.mem != NULL) == int8);
}

static void close_fixture(struct fixture *f)
{
    draft_model_close(&f->t), rig_close(&f->r);
    free(f->reference), free(f->drafts);
}

/* The largest distance of a chain's logits from those of the fixture. `shift`: rows that the text lacks. */
static double chain_off(struct fixture *f, size_t shift)
{
    static const uint8_t none[512];
    const size_t d = f->r.c.hidden, rows = f->rows - shift;
    float *h = must_alloc(d * sizeof *h), *input = must_alloc(2 * d * sizeof *input),
          *logits = must_alloc(f->vocab * sizeof *logits);
    double off = 0;
    struct kv kv;
    struct err e;
    rig_kv(&f->r, &kv, N_MAX, 0);
    struct pass_seq s = { .kv = &kv, .n = rows, .token = f->ids, .certain = true, .want = none };
    if (model_forward(&f->r.m, f->r.w, &s, 1, NULL, 0, &e)) rig_die("pass", &e);
    draft_model_state(&f->r.m, h, workspace_residual(f->r.w) + (rows - 1) * d);
    kv_advance(&kv, rows);
    for (size_t i = 0; i < f->n; i++) {
        assistant_input(&f->r.m, f->token[i], h, input);
        struct pass_seq row = { .kv = &kv, .n = 1, .token = f->token, .logits = logits, .state = input,
                                .reads = true };
        if (assistant_forward(&f->t, &row, 1)) printf("FAIL a pass of the drafter\n"), exit(1);
        CHECK(kv.n_past == rows && kv.n_written == rows);
        memcpy(h, f->t.rows, d * sizeof *h);
        for (size_t k = 0; k < f->vocab; k++)
            off = MAX(off, fabs((double)logits[k] - (double)f->logits[i * f->vocab + k]));
    }
    kv_close(&kv);
    free(h), free(input), free(logits);
    return off;
}

static void drafts_are_those_of_transformers(void)
{
    struct fixture f;
    open_fixture(&f, NULL, DT_F32, false);
    const double off = chain_off(&f, 0);
    CHECK(off <= 1e-4, "%g", off);
    CHECK(chain_off(&f, 1) > 0.1);
    close_fixture(&f);
    open_fixture(&f, MODEL "/assistant/assistant.gguf", DT_F32, false);
    const double of_file = chain_off(&f, 0);
    CHECK(of_file <= 1e-4, "%g", of_file);
    close_fixture(&f);
    open_fixture(&f, NULL, DT_BF16, true);
    const double near = chain_off(&f, 0);
    CHECK(near > 0 && near < 0.3, "%g", near);
    close_fixture(&f);
}

static struct sampling sampled(size_t k)
{
    static const double temperature[] = { 0, 0.7, 1 };
    struct sampling p;
    sampling_defaults(&p);
    p.seed = k, p.temperature = temperature[k], p.text_max = N_MAX;
    return p;
}

static void open_decoder(struct decoder *d, const struct fixture *f, const struct sampling *p,
                         const struct decode_setup *s, size_t n_prompt)
{
    struct err e;
    if (decode_open(d, &f->r.m, p, s, f->ids, n_prompt, N_MAX, &e) || decode_prefill(d, 0, NULL, NULL, &e))
        rig_die("decoder", &e);
}

static void step(struct decoder *d)
{
    struct err e;
    if (decode_step(d, &e)) rig_die("step", &e);
}

/* At temperature 0 the first round has no state to draft from, and the second drafts the fixture's tokens. */
static void a_decoder_drafts_the_chain(void)
{
    struct fixture f;
    struct decoder d;
    const struct sampling p = sampled(0);
    open_fixture(&f, NULL, DT_F32, false);
    struct decode_setup s = { .weights[DRAFTER_ASSISTANT] = &f.t };
    draft_defaults(&s.draft);
    s.draft.drafters = BIT(ASSISTANT), s.draft.weights = WEIGHTS_MODEL, s.draft.n_width = f.n;
    for (size_t w = 0; w < f.n; w++) s.draft.width[w] = 1;
    open_decoder(&d, &f, &p, &s, f.rows);
    step(&d);
    CHECK(d.round.tree->n == 1 && d.tokens[f.rows] == f.token[0]);
    step(&d);
    CHECK(d.round.tree->n == f.n + 1, "%zu nodes", d.round.tree->n);
    for (size_t i = 1; i < d.round.tree->n; i++)
        CHECK(d.round.tree->node[i].token == f.token[i], "draft %zu", i);
    decode_close(&d);
    close_fixture(&f);
}

/* Three texts in common rounds, with trees and as planned; one is cut and written again. */
static void texts_are_those_of_plain_decoding(void)
{
    enum { TEXTS = 3, END = 520 };
    struct fixture f;
    struct round_buffers buffers = { 0 };
    struct decoder plain, d[TEXTS], *list[TEXTS];
    struct err e;
    open_fixture(&f, NULL, DT_BF16, true);
    if (round_buffers_open(&buffers, &f.r.m, 256, 128, N_MAX, &e)) rig_die("buffers", &e);
    size_t guessed = 0;
    for (size_t planned = 0; planned < 2; planned++) {
        struct decode_setup s = { .buffers = &buffers, .weights[DRAFTER_ASSISTANT] = &f.t };
        draft_defaults(&s.draft);
        s.draft.drafters = BIT(ASSISTANT) | BIT(NGRAM);
        s.draft.n_width = planned ? 0 : 3;
        s.draft.width[0] = 3, s.draft.width[1] = 2, s.draft.width[2] = 2;
        for (size_t i = 0; i < TEXTS; i++) {
            const struct sampling p = sampled(i);
            open_decoder(&d[i], &f, &p, &s, f.rows - 20 * i);
        }
        for (size_t n = TEXTS, cut = 0; n > 0;) {
            n = 0;
            for (size_t i = 0; i < TEXTS; i++)
                if (d[i].n_tokens < END) list[n++] = &d[i];
            if (n && decode_round(list, n, &e)) rig_die("round", &e);
            for (size_t i = 0; i < n; i++)
                for (size_t k = 1; k < list[i]->round.tree->n; k++)
                    guessed += list[i]->round.tree->node[k].sources >> DRAFTER_ASSISTANT & 1;
            if (!cut && d[0].n_tokens > 420) {
                decode_cut(&d[0], 400, NULL, 0);
                cut = 1;
            }
        }
        for (size_t i = 0; i < TEXTS; i++) {
            const struct sampling p = sampled(i);
            const struct decode_setup none = { 0 };
            open_decoder(&plain, &f, &p, &none, f.rows - 20 * i);
            while (plain.n_tokens < END) step(&plain);
            CHECK(!memcmp(plain.tokens, d[i].tokens, END * sizeof(int32_t)), "text %zu differs", i);
            decode_close(&plain), decode_close(&d[i]);
        }
    }
    CHECK(guessed > 1000, "%zu guesses", guessed);
    round_buffers_close(&buffers);
    close_fixture(&f);
}

static void refuses_what_does_not_fit(void)
{
    struct rig r;
    struct config c;
    struct err e;
    size_t bytes;
    char path[PATH_BYTES];
    CHECK(config_read(&c, MODEL "/assistant", &e) == -1 && e.code == ERR_INPUT &&
          strstr(e.msg, "drafter of Gemma 4; --drafter assistant:"), "%s", e.msg);
    rig_open(&r, MODEL, DT_BF16, best_twin(), 1, 64, 64);
    CHECK(assistant_check(MODEL "/assistant", &r.m, true, &bytes, &e) == 0 && bytes > 50000);
    CHECK(assistant_check(MODEL, &r.m, false, NULL, &e) == -1 && strstr(e.msg, "is a model, not a drafter"),
          "%s", e.msg);
    rig_close(&r);
    rig_open(&r, "build/data/models/gemma4-experts-f32", DT_BF16, best_twin(), 1, 64, 64);
    CHECK(assistant_check(MODEL "/assistant", &r.m, false, NULL, &e) == -1 &&
          strstr(e.msg, "drafts for a model with states of 40"), "%s", e.msg);
    CHECK(!assistant_find(path, "build/data/models/gemma4-experts-f32"));
    rig_close(&r);
    rig_open(&r, "build/data/models/gemma3-bf16", DT_BF16, best_twin(), 1, 64, 64);
    CHECK(assistant_check(MODEL "/assistant", &r.m, false, NULL, &e) == -1 &&
          strstr(e.msg, "drafts for Gemma 4, not for gemma3 models"), "%s", e.msg);
    rig_close(&r);
}

int main(void)
{
    RUN(drafts_are_those_of_transformers);
    RUN(a_decoder_drafts_the_chain);
    RUN(texts_are_those_of_plain_decoding);
    RUN(refuses_what_does_not_fit);
    return test_end();
}
