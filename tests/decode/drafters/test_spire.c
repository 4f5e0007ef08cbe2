/* SPIRe's drafter: its passes against those of its training, texts that share a pass, and the keys and values
 * of committed tokens after many rounds. */
#include "src/decode/decode.h"
#include "src/model/spire.h"
#include "tests/drafter_rig.h"
#include "tests/train_bench.h"

static const struct tiny shapes[] = {
    { "spire-gqa", "llama", 48, 56, 4, 2, 16, 97, 3, 0, DT_F32, true, 0 },
    { "spire-biases-padded", "qwen2", 40, 44, 3, 3, 20, 61, 2, 0, DT_F32, false, 0 },
};

static void cache_open(struct kv *kv, const struct rig *r)
{
    struct err e = { 0 };
    const struct kv_size size = { r->dev->kv_type, SPIRE_LAYERS, r->c.n_kv_heads, r->m.head_dim, SPIRE_SLOTS,
                                  SPIRE_DEPTH, 0 };
    if (kv_open(kv, r->dev, &size, &e)) rig_die("cache", &e);
}

/* p = softmax of the model's logits at a position. */
static void model_chances(const struct bench *b, size_t pos, double *p)
{
    const struct config *c = &b->rig.c;
    const float *x = b->hidden + pos * c->hidden;
    float row[256];
    double mean = 0, top = -1e300, sum = 0;
    for (size_t i = 0; i < c->hidden; i++) mean += (double)x[i] * (double)x[i] / (double)c->hidden;
    for (size_t v = 0; v < c->vocab; v++) {
        mat_row(&b->rig.m.lm_head, v, row);
        p[v] = 0;
        for (size_t i = 0; i < c->hidden; i++)
            p[v] += (double)row[i] * (double)x[i] / sqrt(mean + c->rms_eps) * (double)b->rig.m.norm_final[i];
        top = fmax(top, p[v]);
    }
    for (size_t v = 0; v < c->vocab; v++) sum += p[v] = exp(p[v] - top);
    for (size_t v = 0; v < c->vocab; v++) p[v] /= sum;
}

static double overlap(const double *p, const float *logits, size_t vocab)
{
    double top = -1e300, sum = 0, all = 0;
    for (size_t v = 0; v < vocab; v++) top = fmax(top, (double)logits[v]);
    for (size_t v = 0; v < vocab; v++) sum += exp((double)logits[v] - top);
    for (size_t v = 0; v < vocab; v++) all += fmin(p[v], exp((double)logits[v] - top) / sum);
    return all;
}

/* Rounds from position 4, 8, .. with the window's tokens accept what the trainer says of the same window. */
static void passes_equal_training(void)
{
    enum { N = 1 + SPIRE_WINDOW };
    for (size_t shape = 0; shape < 2; shape++) {
        struct bench b;
        struct spire s;
        struct kv kv;
        struct err e = { 0 };
        struct train_score all[TRAIN_OUTPUTS_MAX] = { 0 }, first[TRAIN_OUTPUTS_MAX] = { 0 };
        char path[] = "/tmp/spire-XXXXXX";
        double want[SPIRE_DEPTH], got[SPIRE_DEPTH] = { 0 }, p[256];
        bench_open(&b, &shapes[shape], &(struct bench_settings){ .kind = &train_spire });
        for (size_t i = 0; i < b.u.n_matrix; i++) b.u.w[i] = ref_bf16(ref_to_bf16(b.u.w[i]));
        module_update(&b.u);
        b.win.n = 1 + SPIRE_DEPTH;
        b.u.kind->train(&b.u, &b.win, 0, first);
        b.win.n = N;
        b.u.kind->train(&b.u, &b.win, 0, all);
        for (size_t j = 0; j < SPIRE_DEPTH; j++) want[j] = all[j].accepted - first[j].accepted;
        close(mkstemp(path));
        if (b.u.kind->save(&b.u, path, "", &e) ||
            drafter_open(&s.file, &spire_kind, path, &b.rig.m, false, &e))
            rig_die("file", &e);
        unlink(path);
        cache_open(&kv, &b.rig);
        float *logits = must_alloc(b.rig.c.vocab * sizeof *logits);
        for (size_t root = SPIRE_DEPTH; root + SPIRE_DEPTH < N; root += SPIRE_DEPTH) {
            double chain = 1;
            kv_truncate(&kv, 0);
            for (size_t i = 0; i < root; i++) {      /* in slots of another order */
                const size_t d = b.rig.c.hidden;
                spire_commit(&s, &kv, &(struct spire_memory){ root - 1 - i, i + (i >= SKIP_AT ? SKIP_BY : 0),
                    { b.entering[0] + i * d, b.entering[1] + i * d } }, 1);
            }
            kv.n_past = kv.n_written = root;
            for (size_t j = 0; j < SPIRE_DEPTH; j++) {
                const struct spire_row row = { &kv, j, root + j + SKIP_BY, b.token[root + j] };
                CHECK(spire_forward(&s, &b.rig.m.lm_head, &row, 1, true, logits) == 0);
                model_chances(&b, root + j, p);
                got[j] += chain *= overlap(p, logits, b.rig.c.vocab);
            }
        }
        for (size_t j = 0; j < SPIRE_DEPTH; j++)
            CHECK(near(got[j], want[j], 1e-4, 1e-4), "%s, depth %zu: accepted %g, training %g",
                  shapes[shape].name, j + 1, got[j], want[j]);
        free(logits);
        kv_close(&kv);
        drafter_close(&s.file, &spire_kind);
        bench_close(&b);
    }
}

static void texts_do_not_mix(void)
{
    struct rig r;
    struct spire s;
    struct kv kv[3];
    struct spire_row row[3];
    char dir[4096];
    float alone[3][2][128], both[3][128], y[48];
    struct rng rng = { 5 };
    tiny_write(&shapes[0], dir);
    rig_open(&r, dir, DT_BF16, best_twin(), 2, 64, 128);
    tiny_remove(dir);
    spire_rig_open(&s, &r, true, 3);
    for (size_t i = 0; i < 3; i++) {
        cache_open(&kv[i], &r);
        for (size_t k = 0; k < 48; k++) y[k] = rng_normal(&rng);
        for (size_t k = 0; k < 2 + i; k++)
            spire_commit(&s, &kv[i], &(struct spire_memory){ k, 7 * i + k, { y, y } }, 1);
        kv[i].n_past = kv[i].n_written = 2 + i;
        for (size_t j = 0; j < 2; j++)
            CHECK(spire_forward(&s, &r.m.lm_head,
                                &(struct spire_row){ &kv[i], j, 30 + i + j, (int32_t)(i + j) }, 1, true,
                                alone[i][j]) == 0);
    }
    for (size_t j = 0; j < 2; j++) {
        for (size_t i = 0; i < 3; i++)
            row[i] = (struct spire_row){ &kv[i], j, 30 + i + j, (int32_t)(i + j) };
        float *all = must_alloc(3 * r.c.vocab * sizeof *all);
        CHECK(spire_forward(&s, &r.m.lm_head, row, 3, true, all) == 0);
        for (size_t i = 0; i < 3; i++) {
            memcpy(both[i], all + i * r.c.vocab, r.c.vocab * sizeof *all);
            CHECK(!memcmp(both[i], alone[i][j], r.c.vocab * sizeof *all), "text %zu, pass %zu", i, j);
        }
        free(all);
    }
    for (size_t i = 0; i < 3; i++) kv_close(&kv[i]);
    drafter_close(&s.file, &spire_kind);
    rig_close(&r);
}

static void decoder_open(struct decoder *d, const struct rig *r, struct spire *s, const int32_t *token,
                         size_t n)
{
    struct sampling p;
    struct decode_setup x = { .weights[DRAFTER_SPIRE] = s };
    struct err e = { 0 };
    draft_defaults(&x.draft);
    sampling_defaults(&p);
    p.text_max = 400, p.temperature = 1.2;
    x.draft.drafters = 1u << DRAFTER_SPIRE;
    x.draft.n_width = 3, x.draft.width[0] = 3, x.draft.width[1] = 2, x.draft.width[2] = 1;
    if (decode_open(d, &r->m, &p, &x, token, n, 400, &e) || decode_prefill(d, 0, NULL, NULL, &e))
        rig_die("decoder", &e);
}

/* The ring of a decoder that wrote a text has the bytes of the ring of a decoder that read the text; a saved
 * state gives them back. */
static void the_ring_follows_from_tokens(void)
{
    struct rig r;
    struct spire s;
    struct decoder d, x;
    struct err e = { 0 };
    int32_t token[30];
    char dir[4096];
    size_t compared = 0;
    tiny_write(&shapes[0], dir);
    rig_open(&r, dir, DT_BF16, best_twin(), 2, 256, 500);
    tiny_remove(dir);
    spire_rig_open(&s, &r, true, 3);
    rig_tokens(token, 30, r.c.vocab, 4);
    decoder_open(&d, &r, &s, token, 30);
    const size_t room = drafter_spire.snapshot.bytes(&d);
    char *state[3] = { calloc(1, room), calloc(1, room), calloc(1, room) };
    for (size_t round = 0; d.n_tokens < 380; round++) {
        CHECK(decode_step(&d, &e) == 0, "%s", e.msg);
        if (round % 29 || d.n_tokens > 390)
            continue;
        decoder_open(&x, &r, &s, d.tokens, d.n_tokens);
        const size_t n = drafter_spire.snapshot.save(&d, state[0]),
                     m = drafter_spire.snapshot.save(&x, state[1]);
        CHECK(n == m && n > 1000 && !memcmp(state[0], state[1], n), "%zu and %zu bytes at token %zu", n, m,
              d.n_tokens);
        drafter_spire.reset(&x);
        CHECK(!drafter_spire.passes->prepare(&x) && !drafter_spire.snapshot.load(&x, state[0], n - 1) &&
              drafter_spire.snapshot.load(&x, state[0], n) && drafter_spire.passes->prepare(&x));
        memset(state[2], 0, room);
        CHECK(drafter_spire.snapshot.save(&x, state[2]) == n && !memcmp(state[0], state[2], n));
        CHECK(decode_step(&x, &e) == 0 && decode_step(&d, &e) == 0, "%s", e.msg);
        for (uint32_t i = 1; i <= 3; i++)    /* which of them pass 1 continues also depends on chances */
            CHECK(x.round.tree->node[i].token == d.round.tree->node[i].token, "node %u", i);
        decode_close(&x);
        compared++;
    }
    CHECK(compared > 3, "%zu", compared);
    for (size_t i = 0; i < 3; i++) free(state[i]);
    decode_close(&d);
    drafter_close(&s.file, &spire_kind);
    rig_close(&r);
}

int main(void)
{
    RUN(passes_equal_training);
    RUN(texts_do_not_mix);
    RUN(the_ring_follows_from_tokens);
    return test_end();
}
