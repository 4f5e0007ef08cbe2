/* Drafting heads: logits equal the formulas of src/model/heads.h for random weights. Every twin, number of
 * threads and number of rows gives the same bits. Published files and longhand's own files load; a defect
 * in a file is one line. */
#include "src/model/heads.h"
#include "src/model/safetensors.h"
#include "tests/drafter_rig.h"

enum { ROWS = 13, N_HEADS = 3 };

static const struct tiny shapes[] = {
    { "bf16", "llama", 64, 112, 4, 2, 16, 300, 2, 0, DT_BF16, true, 0 },
    { "f32-odd", "mistral", 51, 40, 3, 1, 16, 130, 2, 0, DT_F32, false, 0 },
    { "f16", "llama", 96, 80, 6, 2, 16, 211, 2, 0, DT_F16, false, 0 },
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void write_heads(const char *path, enum dtype dtype, const char *prefix, size_t n, size_t hidden,
                        const char *metadata)
{
    struct tiny_writer w;
    char *header = NULL;
    size_t size = 0;
    tiny_begin(&w, dtype, 77, metadata, &header, &size);
    tiny_heads(&w, prefix, n, hidden);
    tiny_end(&w, path, &header, &size);
}

/* ---- the reference: double precision from the stored values, x and y rounded as in the products ---- */

struct reference { double w[N_HEADS][96 * 96], in[N_HEADS][96], out[N_HEADS][96]; };

static double stored(const struct tensors *ts, const struct tensor *t, size_t i, enum dtype compute)
{
    struct err e;
    float f = 0;
    uint16_t h = 0;
    if (tensors_read(ts, t, t->dtype == DT_F32 ? (void *)&f : (void *)&h, i * dtype_size(t->dtype),
                     dtype_size(t->dtype), &e))
        abort();
    if (t->dtype != DT_F32)
        f = t->dtype == DT_F16 ? ref_f16(h) : ref_bf16(h);
    return (double)(t->n_dims == 2 ? act_round(compute, f) : f);
}
static void reference_read(struct reference *r, const struct tensors *ts, const char *prefix, size_t d,
                           enum dtype compute)
{
    struct err e = { 0 };
    char name[128];
    for (size_t k = 0; k < N_HEADS; k++) {
        snprintf(name, sizeof name, "%s%zu.linear.weight", prefix, k);
        const struct tensor *w = tensors_need(ts, name, d, d, &e);
        snprintf(name, sizeof name, "%s%zu.input_layernorm.weight", prefix, k);
        const struct tensor *in = tensors_need(ts, name, d, 0, &e);
        snprintf(name, sizeof name, "%s%zu.post_layernorm.weight", prefix, k);
        const struct tensor *out = tensors_need(ts, name, d, 0, &e);
        if (!w || !in || !out) rig_die("tensors of the heads", &e);
        for (size_t i = 0; i < d * d; i++) r->w[k][i] = stored(ts, w, i, compute);
        for (size_t i = 0; i < d; i++)
            r->in[k][i] = stored(ts, in, i, compute), r->out[k][i] = stored(ts, out, i, compute);
    }
}
static void norm(double *y, const double *x, const double *gain, size_t d, double eps, enum dtype act)
{
    double s = 0;
    for (size_t i = 0; i < d; i++) s += x[i] * x[i];
    for (size_t i = 0; i < d; i++) {
        y[i] = x[i] / sqrt(s / (double)d + eps) * gain[i];
        if (act == DT_BF16) y[i] = (double)act_round(act, (float)y[i]);
    }
}
/* Logits [N_HEADS][vocab] of one row. */
static void reference_row(const struct reference *r, const struct model *m, bool chained, const float *h0,
                          double *logits)
{
    const size_t d = m->config.hidden, v = m->config.vocab;
    double h[96], x[96], y[96];
    float *row = must_alloc(d * sizeof *row);
    for (size_t k = 0; k < N_HEADS; k++) {
        for (size_t i = 0; i < d && (!chained || k == 0); i++) h[i] = (double)h0[i];
        norm(x, h, r->in[k], d, m->config.rms_eps, m->compute);
        for (size_t i = 0; i < d; i++)
            for (size_t j = 0; j < d; j++) h[i] += r->w[k][i * d + j] * x[j];
        norm(y, h, r->out[k], d, m->config.rms_eps, m->compute);
        for (size_t t = 0; t < v; t++) {
            double s = 0;
            mat_row(&m->lm_head, t, row);
            for (size_t j = 0; j < d; j++) s += (double)row[j] * y[j];
            logits[k * v + t] = s;
        }
    }
    free(row);
}

static void hidden_states(float *h0, size_t n)
{
    struct rng rng = { 5 };
    for (size_t i = 0; i < n; i++) h0[i] = 3 * rng_normal(&rng);
}
static float *forward(const struct rig *r, const struct heads *h, const float *h0, size_t rows, size_t n)
{
    float *logits = must_alloc(rows * n * r->c.vocab * sizeof *logits);
    size_t bytes = heads_scratch_bytes(h, &r->m, rows);
    /* filled with a pattern: no result may depend on its contents */
    char *scratch = guard_alloc(bytes);
    heads_forward(h, &r->m, h0, rows, n, logits, scratch);
    CHECK(guard_intact(scratch, bytes), "scratch overrun");
    guard_free(scratch);
    return logits;
}
/* In bf16, x and y differ by one rounding (2^-8 relative) where double and float lie on two sides of a
 * tie. */
static void check_logits(const struct rig *r, const struct heads *h, const struct reference *ref,
                         const float *h0, const float *logits, double *worst)
{
    const size_t v = r->c.vocab, d = r->c.hidden;
    double *want = must_alloc(N_HEADS * v * sizeof *want), tol = r->m.compute == DT_BF16 ? 0.03 : 2e-5;
    for (size_t i = 0; i < ROWS; i++) {
        reference_row(ref, &r->m, h->chained, h0 + i * d, want);
        for (size_t j = 0; j < N_HEADS * v; j++) {
            double got = (double)logits[i * N_HEADS * v + j];
            CHECK(near(got, want[j], tol, tol), "row %zu head %zu token %zu: %g, formula %g", i, j / v, j % v,
                  got, want[j]);
            *worst = fmax(*worst, fabs(got - want[j]));
        }
    }
    free(want);
}

static void one_shape(const struct tiny *t, enum dtype compute, bool chained)
{
    static struct reference ref;
    char dir[4096], path[4200];
    float h0[ROWS * 96], *first = NULL;
    double worst = 0;
    tiny_write(t, dir);
    snprintf(path, sizeof path, "%s/" HEADS_FILE, dir);
    write_heads(path, t->dtype, "heads.", N_HEADS, t->hidden,
                chained ? "{\"kind\":\"chained\"}" : "{\"kind\":\"independent\",\"more\":\"x\"}");
    hidden_states(h0, ROWS * t->hidden);
    FOR_TWINS(o)
        for (size_t threads = 1; threads <= 3; threads += 2) {
            struct err e = { 0 };
            struct heads h;
            struct rig r;
            rig_open(&r, dir, compute, o, threads, 4, 64);
            if (heads_open(&h, NULL, &r.m, &e)) rig_die("heads", &e);
            CHECK(h.n == N_HEADS && h.chained == chained && !h.foreign && heads_present(dir));
            float *logits = forward(&r, &h, h0, ROWS, N_HEADS);
            if (!first) {
                struct tensors ts;
                if (tensors_open_file(&ts, path, &e)) rig_die("file", &e);
                reference_read(&ref, &ts, "heads.", t->hidden, compute);
                tensors_close(&ts);
                check_logits(&r, &h, &ref, h0, logits, &worst);
                first = logits;
            } else {
                CHECK(!memcmp(first, logits, ROWS * N_HEADS * t->vocab * sizeof *logits), "%s, %zu threads",
                      o->name, threads);
                free(logits);
            }
            if (t->dtype != DT_F16) {            /* whose rows a gathered matrix rounds */
                rig_shorten(&h.vocab, &r, false, t->vocab / 3);
                float *some = forward(&r, &h, h0, ROWS, N_HEADS);
                for (size_t i = 0, at = 0; i < ROWS * N_HEADS * t->vocab; i++) {
                    const bool in = at < h.vocab.n && i % t->vocab == (size_t)h.vocab.id[at];
                    CHECK(in ? some[i] == first[i] : some[i] == -INFINITY, "%zu: %g", i, (double)some[i]);
                    at = (i + 1) % t->vocab ? at + in : 0;
                }
                free(some), draft_vocab_close(&h.vocab);
            }
            for (size_t n = 1; n <= N_HEADS; n++) {      /* fewer heads and one row alone give the same
                                                          * bits */
                float *one = forward(&r, &h, h0 + 5 * t->hidden, 1, n);
                CHECK(!memcmp(one, first + 5 * N_HEADS * t->vocab, n * t->vocab * sizeof *one),
                      "%s, %zu heads of row 5 alone", o->name, n);
                free(one);
            }
            heads_close(&h);
            rig_close(&r);
        }
    printf("    %s, %s, %s: largest difference to the formula %.2g\n", t->name,
           compute == DT_BF16 ? "bf16" : "f32", chained ? "chained" : "independent", worst);
    free(first);
    unlink(path);
    tiny_remove(dir);
}
static void logits_equal_the_formulas(void)
{
    for (size_t i = 0; i < N_SHAPES; i++)
        for (int k = 0; k < 4; k++)
            one_shape(&shapes[i], k & 1 ? DT_F32 : DT_BF16, k & 2);
}

/* The published form: the heads do not change the model, and the same weights in their own file give the
 * same logits. */
static void heads_inside_a_checkpoint(void)
{
    struct tiny t = shapes[0];
    struct err e = { 0 };
    struct heads a, b;
    struct rig r, plain;
    char dir[4096], dir0[4096], path[4200];
    float h0[ROWS * 96];
    int32_t token[9];
    tiny_write(&t, dir0);
    t.heads_inside = N_HEADS;
    tiny_write(&t, dir);
    CHECK(heads_present(dir) && !heads_present(dir0));
    hidden_states(h0, ROWS * t.hidden);
    rig_open(&r, dir, DT_BF16, best_twin(), 1, 9, 64);
    rig_open(&plain, dir0, DT_BF16, best_twin(), 1, 9, 64);
    struct kv kv, kv0;
    float *x = must_alloc(9 * t.vocab * 4), *y = must_alloc(9 * t.vocab * 4);
    rig_tokens(token, 9, t.vocab, 3);
    rig_kv(&r, &kv, 64, 0), rig_kv(&plain, &kv0, 64, 0);
    rig_pass(&r, &kv, token, NULL, 9, x, true), rig_pass(&plain, &kv0, token, NULL, 9, y, true);
    CHECK(!memcmp(x, y, 9 * t.vocab * 4), "the model differs with heads inside its checkpoint");
    if (heads_open(&a, NULL, &r.m, &e)) rig_die("heads inside", &e);
    CHECK(a.n == N_HEADS && a.chained && !strcmp(a.path, dir));
    CHECK(heads_open(&b, NULL, &plain.m, &e) == -1 && e.code == ERR_INPUT &&
              strstr(e.msg, "no drafting heads"),
          "%s", e.msg);
    /* the same weights with another model object */
    if (heads_open(&b, dir, &plain.m, &e)) rig_die("heads of another directory", &e);
    float *p = forward(&r, &a, h0, ROWS, N_HEADS), *q = forward(&plain, &b, h0, ROWS, N_HEADS);
    CHECK(!memcmp(p, q, ROWS * N_HEADS * t.vocab * 4));
    heads_close(&b);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);      /* the file itself */
    if (heads_open(&b, path, &plain.m, &e)) rig_die("a checkpoint's file", &e);
    CHECK(b.n == N_HEADS);
    heads_close(&b), heads_close(&a);
    free(p), free(q), free(x), free(y);
    kv_close(&kv), kv_close(&kv0);
    rig_close(&r), rig_close(&plain);
    tiny_remove(dir), tiny_remove(dir0);
}

static void a_vocabulary_has_the_most_frequent_tokens(void)
{
    static const int32_t text[] = { 9, 3, 9, 7, 5, 3, 9 };
    static const struct { size_t n, tokens; int32_t id[5]; } want[] = {
        { 1, 7, { 9 } }, { 2, 7, { 3, 9 } }, { 3, 7, { 3, 5, 9 } }, { 5, 7, { 0, 3, 5, 7, 9 } },
        { 3, 0, { 0, 1, 2 } },
    };
    struct draft_vocab v;
    struct err e = { 0 };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        CHECK(draft_vocab_count(&v, want[i].n, 10, text, want[i].tokens, &e) == 0 && v.n == want[i].n &&
              !memcmp(v.id, want[i].id, v.n * sizeof *v.id), "vocabulary %zu", i);
        draft_vocab_close(&v);
    }
    CHECK(draft_vocab_count(&v, 6, 10, text, 7, &e) == 0 && v.n == 0);   /* not half of all tokens */
    CHECK(draft_vocab_count(&v, 0, 10, text, 7, &e) == 0 && v.n == 0);
}

static void bad(const struct rig *r, const char *path, const char *want)
{
    struct err e = { 0 };
    struct heads h;
    int rc = heads_open(&h, path, &r->m, &e);
    CHECK(rc == -1 && e.code == ERR_INPUT && strstr(e.msg, want) && !strchr(e.msg, '\n'),
          "'%s' expected, got %d: %s", want, rc, e.msg);
    CHECK(h.mem == NULL && h.n == 0, "left open after: %s", e.msg);
    if (rc == 0) heads_close(&h);
}
static void bad_files_are_refused_with_one_line(void)
{
    static const char ok[] =
        "{\"kind\":\"chained\",\"hidden_size\":\"64\",\"vocab_size\":\"300\",\"model\":\"0123456789abcdef\"}";
    const size_t d = 64;
    struct err e = { 0 };
    struct heads h;
    struct rig r;
    char dir[4096], path[4200], other[4200];
    tiny_write(&shapes[0], dir);
    rig_open(&r, dir, DT_BF16, best_twin(), 1, 4, 64);
    snprintf(path, sizeof path, "%s/" HEADS_FILE, dir), snprintf(other, sizeof other, "%s/other", dir);
    bad(&r, NULL,
        "no drafting heads: neither model.medusa_layers.0.linear.weight in its checkpoint nor a file "
        "heads.safetensors");
    bad(&r, other, "other: cannot open");
    write_heads(path, DT_BF16, "heads.", 2, d, NULL),
        bad(&r, NULL, "kind is missing, allowed are chained and independent");
    write_heads(path, DT_BF16, "heads.", 2, d, "{\"kind\":\"chain\"}"),
        bad(&r, NULL, "kind is chain, allowed are");
    write_heads(path, DT_BF16, "heads.", 2, d, "{\"kind\":\"chained\",\"vocab_size\":\"301\"}"),
        bad(&r, NULL, "vocab_size 301, this model has 300");
    write_heads(path, DT_BF16, "heads.", 2, d, "{\"kind\":\"chained\",\"hidden_size\":\"64x\"}"),
        bad(&r, NULL, "hidden_size 64x, this model has 64");
    write_heads(path, DT_BF16, "heads.", 2, 32, "{\"kind\":\"chained\"}"),
        bad(&r, NULL, "\"heads.0.linear.weight\": shape [32, 32], config.json needs [64, 64]");
    write_heads(path, DT_BF16, "head.", 2, d, ok), bad(&r, NULL, "no tensor \"heads.0.linear.weight\"");
    write_heads(path, DT_BF16, "heads.1", 2, d, ok),
        bad(&r, NULL, "heads.10.input_layernorm.weight\" is not part of a head");
    write_heads(path, DT_BF16, "heads.", HEADS_MAX + 1, d, ok), bad(&r, NULL, "more than 16 heads");
    write_heads(path, DT_BF16, "heads.", HEADS_MAX, d, ok);
    CHECK(heads_open(&h, NULL, &r.m, &e) == 0 && h.n == HEADS_MAX && h.foreign, "%s", e.msg);
    heads_close(&h);
    /* JSON escapes are decoded; a long note is cut */
    char note[400];
    snprintf(note, sizeof note, "{\"kind\":\"ch\\u0061in\\u0065d\",\"model\":\"%0300d\",\"other\":\"\"}", 7);
    write_heads(path, DT_F32, "heads.", 2, d, note);
    CHECK(heads_open(&h, NULL, &r.m, &e) == 0 && h.n == 2 && h.chained && h.foreign, "%s", e.msg);
    heads_close(&h);
    /* a value that is not finite, a cut file, a missing file */
    write_heads(path, DT_BF16, "heads.", 1, d, ok);
    FILE *f = fopen(path, "r+b");
    fseek(f, -7, SEEK_END), fputc(0x7f, f), fseek(f, -8, SEEK_END), fputc(0xc0, f), fclose(f);
    bad(&r, NULL, "\"heads.0.post_layernorm.weight\": element 60 is not a finite number");
    if (truncate(path, 3000)) abort();
    bad(&r, NULL, "data_offsets end at");
    unlink(path);
    rig_close(&r), tiny_remove(dir);
}

/* The fingerprint depends on the weights, not on the arithmetic. */
static void fingerprint_tells_models_apart(void)
{
    uint64_t seen[N_TINY];
    for (size_t i = 0; i < N_TINY; i++) {
        char dir[4096];
        struct rig a, b;
        tiny_write(&tiny_models[i], dir);
        rig_open(&a, dir, DT_BF16, best_twin(), 1, 1, 64), rig_open(&b, dir, DT_F32, ops_all[0], 1, 1, 64);
        seen[i] = heads_fingerprint(&a.m);
        CHECK(seen[i] == heads_fingerprint(&b.m), "%s", tiny_models[i].name);
        a.m.norm_final[3] += 0.001f;
        CHECK(seen[i] != heads_fingerprint(&a.m));
        for (size_t j = 0; j < i; j++) CHECK(seen[i] != seen[j]);
        rig_close(&a), rig_close(&b), tiny_remove(dir);
    }
}

int main(void)
{
    RUN(logits_equal_the_formulas);
    RUN(heads_inside_a_checkpoint);
    RUN(a_vocabulary_has_the_most_frequent_tokens);
    RUN(bad_files_are_refused_with_one_line);
    RUN(fingerprint_tells_models_apart);
    return test_end();
}
