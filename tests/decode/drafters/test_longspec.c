/* LongSpec's drafter: its logits against the formulas of src/lab/train/train_longspec.c in double, what each
 * row sees, the levels of its beam, and that its state after many rounds equals the state made from
 * tokens. */
#include "src/decode/decode.h"
#include "src/model/safetensors.h"
#include "tests/drafter_rig.h"

static const struct tiny shapes[] = {
    { "longspec-gqa", "llama", 48, 56, 4, 2, 16, 97, 2, 0, DT_F32, true, 0 },
    /* head_dim padded to 32, odd sizes, other layers with windows */
    { "longspec-odd", "mistral", 45, 51, 7, 1, 20, 61, 2, 70, DT_F32, false, 0 },
    { "longspec-mha", "qwen2", 64, 96, 8, 8, 24, 131, 3, 0, DT_BF16, true, 0 },
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, N_MAX = 1600, NODES = 64 };

struct bench {
    struct rig r; struct longspec l; struct longspec_values v;
    struct kv target, own;
    int32_t token[N_MAX];
};

static void bench_open(struct bench *b, const struct tiny *shape, enum dtype compute, bool int8)
{
    char dir[4096];
    struct err e = { 0 };
    *b = (struct bench){ 0 };
    tiny_write(shape, dir);
    rig_open(&b->r, dir, compute, best_twin(), 2, 256, N_MAX + 64);
    tiny_remove(dir);
    longspec_rig_open(&b->l, &b->r, int8, 5, &b->v);
    rig_tokens(b->token, N_MAX, b->r.c.vocab, 4);
    rig_kv(&b->r, &b->target, N_MAX, 0);
    const struct kv_size own = { b->r.dev->kv_type, 1, b->r.c.n_kv_heads, b->r.m.head_dim, N_MAX, NODES, 0 };
    if (kv_open(&b->own, b->r.dev, &own, &e)) rig_die("cache", &e);
}
static void bench_close(struct bench *b)
{
    kv_close(&b->target), kv_close(&b->own), drafter_close(&b->l.file, &longspec_kind), free(b->v.p.all);
    rig_close(&b->r);
}
/* n committed tokens, of which the drafter's cache has those from `first` on. */
static void commit(struct bench *b, size_t n, size_t first)
{
    float last[256];
    kv_truncate(&b->target, 0), kv_truncate(&b->own, 0);
    rig_run(&b->r, &b->target, b->token, n, 256, NULL, last);
    longspec_read(&b->l, &b->own, first, b->token + first, n - first);
}

/* ---- the formulas ---- */

static void ref_norm(double *y, const double *x, const float *gain, size_t n, double eps)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += x[i] * x[i];
    for (size_t i = 0; i < n; i++) y[i] = x[i] / sqrt(sum / (double)n + eps) * (double)gain[i];
}
/* y = (add ? y : 0) + W x + bias, W [n][k] */
static void ref_product(double *y, const float *w, const float *bias, const double *x, size_t n, size_t k,
                        bool add)
{
    for (size_t i = 0; i < n; i++) {
        double sum = bias ? (double)bias[i] : 0;
        for (size_t j = 0; j < k; j++) sum += (double)w[i * k + j] * x[j];
        y[i] = sum + (add ? y[i] : 0);
    }
}
static void ref_rope(const struct bench *b, double *x, size_t heads, size_t pos)
{
    const size_t d = b->r.c.head_dim, half = d / 2;
    float cos[HEAD_DIM_MAX], sin[HEAD_DIM_MAX];
    rope_angles(cos, sin, pos, b->r.m.inv_freq, half, b->r.m.rope_factor);
    for (size_t h = 0; h < heads; h++, x += d)
        for (size_t i = 0; i < half; i++) {
            const double a = x[i], c = x[i + half];
            x[i] = a * (double)cos[i] - c * (double)sin[i];
            x[i + half] = c * (double)cos[i] + a * (double)sin[i];
        }
}
/* out [heads][dim]; keys and values [kv head][n][dim] */
static void ref_attend(const struct config *c, double *out, const double *q, const double *k, const double *v,
                       size_t n)
{
    const size_t d = c->head_dim, group = c->n_heads / c->n_kv_heads;
    double *p = must_alloc(n * sizeof *p);
    for (size_t h = 0; h < c->n_heads; h++) {
        const double *kh = k + h / group * n * d, *vh = v + h / group * n * d;
        double most = -1e300, sum = 0;
        for (size_t i = 0; i < n; i++) {
            p[i] = 0;
            for (size_t j = 0; j < d; j++) p[i] += q[h * d + j] * kh[i * d + j];
            most = fmax(most, p[i] /= sqrt((double)d));
        }
        for (size_t i = 0; i < n; i++) sum += p[i] = exp(p[i] - most);
        for (size_t j = 0; j < d; j++) {
            out[h * d + j] = 0;
            for (size_t i = 0; i < n; i++) out[h * d + j] += p[i] / sum * vh[i * d + j];
        }
    }
    free(p);
}
/* qkv of a token at a position, rotated. */
static void ref_qkv(const struct bench *b, double *x, double *qkv, int32_t token, size_t pos)
{
    const struct config *c = &b->r.c;
    const size_t d = c->hidden, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim;
    float e[1024];
    double xn[1024];
    model_embedding(&b->r.m, token, e);
    for (size_t i = 0; i < d; i++) x[i] = (double)e[i];
    ref_norm(xn, x, b->v.w.block.norm_attn, d, c->rms_eps);
    ref_product(qkv, b->v.w.block.qkv.w, b->v.w.block.qkv_bias, xn, q + 2 * kv, d, false);
    ref_rope(b, qkv, c->n_heads + c->n_kv_heads, pos);
}
/* The layer that the drafter reads: keys and values of n rows from `from` on. */
static void ref_target(const struct bench *b, double *k, double *v, size_t from, size_t n)
{
    const struct config *c = &b->r.c;
    for (size_t h = 0; h < c->n_kv_heads; h++)
        for (size_t i = 0; i < n; i++) {
            float kf[HEAD_DIM_MAX] = { 0 }, vf[HEAD_DIM_MAX] = { 0 };
            const size_t pos = from + i, l = config_last_global(c);
            kv_sum(kf, vf, b->target.type, b->target.head_dim, kv_block(&b->target, l, h, pos),
                   pos % KV_BLOCK, pos % KV_BLOCK + 1);
            for (size_t j = 0; j < c->head_dim; j++)
                k[(h * n + i) * c->head_dim + j] = (double)kf[j],
                                                v[(h * n + i) * c->head_dim + j] = (double)vf[j];
        }
}
/* Logits after the n committed tokens and a path of m tokens. */
static void ref_logits(const struct bench *b, double *logits, size_t n, const int32_t *path, size_t m)
{
    const struct config *c = &b->r.c;
    const size_t d = c->hidden, dim = c->head_dim, q = c->n_heads * dim, kv = c->n_kv_heads * dim,
                 ff = c->ffn, end = n + m, from = end - MIN(end, (size_t)513), keys = end - from,
                 seen = c->layer[config_last_global(c)].window ? MIN(n, c->window) : n;
    double x[1024], xn[1024], qkv[2048], out[1024], gu[2048], *k = must_alloc(2 * kv * MAX(keys, n) * 8),
           *v = k + kv * MAX(keys, n);
    float row[1024];
    for (size_t i = 0; i < keys; i++) {
        const size_t pos = from + i;
        ref_qkv(b, x, qkv, pos < n ? b->token[pos] : path[pos - n], pos);
        for (size_t h = 0; h < c->n_kv_heads; h++) {
            memcpy(k + (h * keys + i) * dim, qkv + q + h * dim, dim * sizeof *k);
            memcpy(v + (h * keys + i) * dim, qkv + q + kv + h * dim, dim * sizeof *k);
        }
    }
    ref_attend(c, out, qkv, k, v, keys);
    ref_product(x, b->v.w.block.o.w, NULL, out, d, q, true);
    ref_norm(xn, x, b->v.w.norm_cross, d, c->rms_eps);
    ref_product(qkv, b->v.w.cross_q.w, b->v.w.cross_q_bias, xn, q, d, false);
    ref_rope(b, qkv, c->n_heads, end - 1);
    ref_target(b, k, v, n - seen, seen);
    ref_attend(c, out, qkv, k, v, seen);
    ref_product(x, b->v.w.cross_o.w, NULL, out, d, q, true);
    ref_norm(xn, x, b->v.w.block.norm_mlp, d, c->rms_eps);
    ref_product(gu, b->v.w.block.gate_up.w, NULL, xn, 2 * ff, d, false);
    for (size_t i = 0; i < ff; i++) gu[i] = gu[i] / (1 + exp(-gu[i])) * gu[ff + i];
    ref_product(x, b->v.w.block.down.w, NULL, gu, d, ff, true);
    for (size_t i = 0; i < c->vocab; i++) {
        mat_row(&b->r.m.lm_head, i, row);
        ref_product(&logits[i], row, NULL, x, 1, d, false);
    }
    free(k);
}

/* ---- a tree over three passes ---- */

/*      0
 *     / \
 *    1   2        passes: 0 | 1 2 | 3 4 5
 *    |\   \
 *    3 4   5                                */
enum { TREE = 6 };
static const int32_t parents[TREE] = { -1, 0, 0, 1, 1, 2 };
static const size_t begins[4] = { 0, 1, 3, 6 };

static void run_tree(struct bench *b, size_t n, size_t first, float *logits)
{
    for (size_t p = 0; p < 3; p++) {
        const struct longspec_seq s = { .target = &b->target, .own = &b->own, .first = first,
                                        .node0 = begins[p], .n = begins[p + 1] - begins[p],
                                        .token = b->token + n + begins[p], .parent = parents };
        CHECK(longspec_forward(&b->l, &b->r.m.lm_head, &s, 1, logits + begins[p] * b->r.c.vocab) == 0);
    }
}

static void logits_equal_the_formulas(void)
{
    static const size_t lengths[] = { 1, 40, 511, 513, 700, 1100 };
    for (size_t k = 0; k < N_SHAPES; k++) {
        struct bench b;
        double worst = 0;
        bench_open(&b, &shapes[k], DT_F32, false);
        const size_t vocab = b.r.c.vocab;
        float *got = must_alloc(TREE * vocab * 4), *part = must_alloc(TREE * vocab * 4);
        double *want = must_alloc(vocab * 8), spread = 0;
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            const size_t n = lengths[i], first = n > 512 ? n - 512 : 0;
            commit(&b, n, 0);
            run_tree(&b, n, 0, got);
            for (size_t node = 0; node < TREE; node++) {
                int32_t path[TREE];
                size_t m = 0;
                for (int32_t at = (int32_t)node; at >= 0; at = parents[at]) m++;
                for (int32_t at = (int32_t)node, j = (int32_t)m; at >= 0; at = parents[at])
                    path[--j] = b.token[n + (size_t)at];
                ref_logits(&b, want, n, path, m);
                for (size_t t = 0; t < vocab; t++) {
                    worst = fmax(worst, fabs((double)got[node * vocab + t] - want[t]));
                    spread = fmax(spread, fabs(want[t]));
                }
            }
            /* tokens older than 512 count through the model's cache alone */
            commit(&b, n, first);
            run_tree(&b, n, first, part);
            for (size_t t = 0; t < TREE * vocab; t++)
                worst = fmax(worst, fabs((double)(got[t] - part[t])));
        }
        printf("    %s: largest difference %.2g of logits up to %.1f\n", shapes[k].name, worst, spread);
        CHECK(worst <= 1e-3, "%s: %g", shapes[k].name, worst);
        free(got), free(part), free(want);
        bench_close(&b);
    }
}

/* Element i of a tensor of the fixture. */
static float *fixture(const struct tensors *ts, const char *name, size_t *n)
{
    struct err e = { 0 };
    const struct tensor *t = tensors_find(ts, name);
    char *raw = t ? must_alloc(t->bytes) : NULL;
    if (!t || tensors_read(ts, t, raw, 0, t->bytes, &e)) rig_die(name, &e);
    float *v = must_alloc(t->n_elements * sizeof *v);
    for (size_t i = 0; i < t->n_elements; i++) v[i] = tensor_value(raw, t->dtype, i);
    *n = t->n_elements;
    free(raw);
    return v;
}

/* tests/make/make_longspec_fixture.py */
static void logits_equal_those_of_pytorch(void)
{
    enum { PYTORCH_NODES = 4 };
    static const int32_t parent[PYTORCH_NODES] = { -1, 0, 0, 1 };
    static const char path[] = "tests/data/longspec_fixture.safetensors";
    struct rig r;
    struct longspec l;
    struct tensors ts = { 0 };
    struct kv target, own;
    struct err e = { 0 };
    int32_t token[1024];
    size_t n_token, n_keys, n_values, n_logits;
    rig_open(&r, "build/data/models/llama2-bf16", DT_F32, best_twin(), 2, 64, 1024);
    if (drafter_open(&l.file, &longspec_kind, path, &r.m, false, &e) || tensors_open_file(&ts, path, &e))
        rig_die(path, &e);
    float *tokens = fixture(&ts, "fixture.token", &n_token), *keys = fixture(&ts, "fixture.keys", &n_keys),
          *values = fixture(&ts, "fixture.values", &n_values),
          *want = fixture(&ts, "fixture.logits", &n_logits),
          *got = must_alloc(n_logits * sizeof *got);
    const size_t n = n_token - PYTORCH_NODES, dim = r.c.head_dim, vocab = r.c.vocab;
    for (size_t i = 0; i < n_token; i++) token[i] = (int32_t)tokens[i];
    rig_kv(&r, &target, n, 0);
    for (size_t h = 0; h < r.c.n_kv_heads; h++)
        for (size_t i = 0; i < n; i++) {
            float k[HEAD_DIM_MAX] = { 0 }, v[HEAD_DIM_MAX] = { 0 }, stored[2 * HEAD_DIM_MAX];
            memcpy(k, keys + (h * n + i) * dim, dim * sizeof *k);
            memcpy(v, values + (h * n + i) * dim, dim * sizeof *v);
            kv_store(stored, target.type, k, v, target.head_dim);
            kv_put(kv_block(&target, r.c.n_layers - 1, h, i), target.type, target.head_dim, i % KV_BLOCK,
                   stored);
        }
    kv_advance(&target, n);
    const struct kv_size size = { r.dev->kv_type, 1, r.c.n_kv_heads, r.m.head_dim, 1024, NODES, 0 };
    if (kv_open(&own, r.dev, &size, &e)) rig_die("cache", &e);
    longspec_read(&l, &own, 0, token, n);
    const struct longspec_seq s = { &target, &own, 0, 0, PYTORCH_NODES, token + n, parent };
    CHECK(longspec_forward(&l, &r.m.lm_head, &s, 1, got) == 0 && n_logits == PYTORCH_NODES * vocab);
    double worst = 0;
    for (size_t i = 0; i < n_logits; i++) worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
    printf("    largest difference %.2g\n", worst);
    CHECK(worst <= 1e-3, "%g", worst);
    free(tokens), free(keys), free(values), free(want), free(got);
    kv_close(&target), kv_close(&own), drafter_close(&l.file, &longspec_kind), tensors_close(&ts);
    rig_close(&r);
}

/* Rows of several texts in one pass have the bits of passes of their own. */
static void texts_do_not_mix(void)
{
    struct bench b, c;
    bench_open(&b, &shapes[0], DT_BF16, true);
    bench_open(&c, &shapes[0], DT_BF16, true);
    const size_t vocab = b.r.c.vocab;
    float *both = must_alloc(2 * TREE * vocab * 4), *alone = must_alloc(2 * TREE * vocab * 4);
    commit(&b, 300, 0), commit(&c, 77, 0);
    for (size_t p = 0; p < 3; p++) {
        const size_t n = begins[p + 1] - begins[p];
        const struct longspec_seq s[2] = {
            { &b.target, &b.own, 0, begins[p], n, b.token + begins[p], parents },
            { &c.target, &c.own, 0, begins[p], n, c.token + 9 + begins[p], parents } };
        CHECK(longspec_forward(&b.l, &b.r.m.lm_head, s, 2, both) == 0);
        CHECK(longspec_forward(&b.l, &b.r.m.lm_head, s, 1, alone) == 0);
        CHECK(longspec_forward(&b.l, &b.r.m.lm_head, s + 1, 1, alone + n * vocab) == 0);
        CHECK(!memcmp(both, alone, 2 * n * vocab * 4), "pass %zu", p);
    }
    free(both), free(alone);
    bench_close(&b), bench_close(&c);
}

/* ---- the drafter ---- */

static void decoder_open(struct decoder *d, struct bench *b, const size_t *width, size_t n_width, long passes,
                         size_t n, size_t n_max)
{
    struct decode_setup s = { .weights[DRAFTER_LONGSPEC] = &b->l };
    struct sampling p;
    struct err e = { 0 };
    draft_defaults(&s.draft);
    s.draft.drafters = 1u << DRAFTER_LONGSPEC;
    s.draft.n_width = n_width, s.draft.draft_passes = passes;
    for (size_t i = 0; i < n_width; i++) s.draft.width[i] = width[i];
    sampling_defaults(&p);
    p.text_max = n_max, p.temperature = 1.2;
    if (decode_open(d, &b->r.m, &p, &s, b->token, n, n_max, &e) || decode_prefill(d, 0, NULL, NULL, &e))
        rig_die("decoder", &e);
}

/* Nodes of each depth with children: the rows of each pass. */
static void a_beam_of_4_16_16_16_16(void)
{
    static const size_t width[] = { 4, 4, 4, 4, 4 }, rows[] = { 1, 4, 16, 16, 16 };
    struct bench b;
    struct decoder d;
    struct err e = { 0 };
    bench_open(&b, &shapes[2], DT_BF16, false);
    decoder_open(&d, &b, width, 5, -1, 20, 60);
    CHECK(draft_check(&d.set.draft, &e) == 0 && decode_step(&d, &e) == 0, "%s", e.msg);
    size_t n[6] = { 0 }, below[6] = { 0 };
    for (size_t i = 0; i < d.round.tree->n; i++) {
        const struct node *x = &d.round.tree->node[i];
        n[MIN(x->depth, 5)]++, below[MIN(x->depth, 5)] += x->first != 0;
    }
    CHECK(d.round.passes == 5 && n[1] == 4 && n[2] == 16 && n[3] == 64 && n[5] == 64);
    for (size_t i = 0; i < 5; i++) CHECK(below[i] == rows[i], "pass %zu reads %zu rows", i, below[i]);
    /* the rows of a pass are the likeliest nodes of their depth */
    for (size_t k = 3; k < 5; k++) {
        float least = 2, most = 0;
        for (size_t i = 0; i < d.round.tree->n; i++) {
            const struct node *x = &d.round.tree->node[i];
            if (x->depth == k && x->first) least = MIN(least, x->reach);
            if (x->depth == k && !x->first) most = MAX(most, x->reach);
        }
        CHECK(least >= most, "depth %zu: %g was left out, %g was read", k, (double)most, (double)least);
    }
    decode_close(&d);
    bench_close(&b);
}

/* A decoder that wrote a long text drafts what a decoder drafts that reads the text: after full caches, after
 * rounds without drafts, and after a cut of the text. The two caches hold the same rows in other slots, which
 * changes the order of sums: in f32 that is 1e-6 of a score, in bf16 it turns near ties of guesses. */
static void state_follows_from_tokens(void)
{
    static const size_t width[] = { 2, 2, 1 };
    struct bench b;
    struct decoder d, x;
    struct err e = { 0 };
    struct sampling p;
    size_t compared = 0, accepted = 0;
    bench_open(&b, &shapes[0], DT_F32, false);
    decoder_open(&d, &b, width, 3, -1, 30, N_MAX);
    sampling_defaults(&p);
    p.text_max = N_MAX, p.temperature = 1.2;
    for (size_t round = 0; d.n_tokens < N_MAX - 40; round++) {
        const size_t from = d.n_tokens;
        const bool check = round % 37 == 0 || (from > 1080 && from < 1100);
        if (round == 100 && decode_restart(&d, 40, &p, &e)) rig_die("restart", &e);
        CHECK(decode_step(&d, &e) == 0, "%s", e.msg);
        accepted += d.n_tokens - from - 1;
        if (!check || round == 100)
            continue;
        memcpy(b.token, d.tokens, from * sizeof *b.token);
        decoder_open(&x, &b, width, 3, -1, from, N_MAX);
        CHECK(decode_step(&x, &e) == 0, "%s", e.msg);
        const struct tree *s = d.round.tree, *t = x.round.tree;
        bool same = s->n == t->n;
        for (uint32_t i = 1; i < t->n && same; i++) {    /* in any order: estimates of chances differ */
            int32_t path[TREE_DEPTH_MAX];
            uint32_t at = 0;
            tree_path(t, i, path);
            for (size_t k = 0; k < t->node[i].depth && same; k++)
                same = (at = tree_child(s, at, path[k])) != 0;
        }
        CHECK(same, "other guesses at token %zu", from);
        decode_close(&x);
        compared++;
    }
    printf("    %zu rounds compared, %zu guesses accepted\n", compared, accepted);
    CHECK(compared >= 20 && accepted > 50);
    decode_close(&d);
    bench_close(&b);
}

int main(void)
{
    RUN(logits_equal_the_formulas);
    RUN(logits_equal_those_of_pytorch);
    RUN(texts_do_not_mix);
    RUN(a_beam_of_4_16_16_16_16);
    RUN(state_follows_from_tokens);
    return test_end();
}
