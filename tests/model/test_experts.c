/* Mixtures of experts: the operation of the device against its definition (kernels/device.h) in double
 * precision, ties, the number of experts that a pass reads, quantised weights in passes of every size, and
 * models that are refused. tests/model/test_logits.c compares whole models with transformers,
 * tests/model/test_r1.c rows with rows. */
#include "src/model/config_tensors.h"
#include "src/model/views.h"
#include "src/model/safetensors.h"
#include "tests/rig.h"

/* ---- the operation ---- */

enum { HIDDEN = 39, FFN = 21, EXPERTS = 7, USED = 3, ROWS = 50, SHARED = 27 };

struct layer_rig {
    struct pool *pool; struct device *dev;
    float x[ROWS * HIDDEN], norm[HIDDEN], router[EXPERTS * HIDDEN];
    float gate_up[EXPERTS][2 * FFN * HIDDEN], down[EXPERTS][HIDDEN * FFN];
    float shared_gate[HIDDEN], shared_gate_up[2 * SHARED * HIDDEN], shared_down[HIDDEN * SHARED];
    struct mat mats[4 + 2 * EXPERTS];
    struct device_expert expert[EXPERTS], shared;
    struct device_experts args;
};

static struct mat *packed(struct layer_rig *r, size_t i, enum dtype type, size_t n, size_t k, const float *w)
{
    r->mats[i] = (struct mat){ type, n, k, NULL };
    r->mats[i].w = mem_alloc(mat_bytes(&r->mats[i]));
    mat_pack(&r->mats[i], 0, n, w, DT_F32);
    return &r->mats[i];
}

static void layer_open(struct layer_rig *r, const struct ops *o, bool f32, bool normalise, uint64_t seed)
{
    struct rng rng = { seed };
    char why[256];
    const enum dtype type = f32 ? DT_F32 : DT_BF16;
    memset(r, 0, sizeof *r);
    r->pool = pool_open(3);
    if (device_cpu_open(&r->dev, o, r->pool, f32 ? DT_F32 : DT_BF16, why, sizeof why)) abort();
    for (size_t i = 0; i < ROWS * HIDDEN; i++) r->x[i] = rng_normal(&rng);
    for (size_t i = 0; i < HIDDEN; i++) r->norm[i] = 1 + 0.3f * rng_normal(&rng);
    for (size_t i = 0; i < EXPERTS * HIDDEN; i++) r->router[i] = 0.3f * rng_normal(&rng);
    for (size_t e = 0; e < EXPERTS; e++) {
        for (size_t i = 0; i < 2 * FFN * HIDDEN; i++)
            r->gate_up[e][i] = ref_bf16(ref_to_bf16(0.2f * rng_normal(&rng)));
        for (size_t i = 0; i < HIDDEN * FFN; i++)
            r->down[e][i] = ref_bf16(ref_to_bf16(0.2f * rng_normal(&rng)));
        r->expert[e].gate_up.n = 1;
        r->expert[e].gate_up.m[0] = *packed(r, 1 + 2 * e, type, 2 * FFN, HIDDEN, r->gate_up[e]);
        r->expert[e].down = *packed(r, 2 + 2 * e, type, HIDDEN, FFN, r->down[e]);
    }
    r->args = (struct device_experts){
        r->x, ROWS, r->norm,   1e-6f, packed(r, 0, DT_F32, EXPERTS, HIDDEN, r->router), r->expert, EXPERTS,
        USED, FFN,  normalise, 5
    };
    struct device_limits l = { .rows_max = ROWS, .n_max = 64, .heads = { 1, 1, 16, 16 }, .n_in_max = HIDDEN,
                               .experts = { EXPERTS, USED, HIDDEN, SHARED } };
    if (r->dev->reserve(r->dev, &l)) abort();
}

/* Gives the layer a shared expert, whose gate is open by a half to nearly all. */
static void add_shared(struct layer_rig *r, bool f32, uint64_t seed)
{
    struct rng rng = { seed };
    const enum dtype type = f32 ? DT_F32 : DT_BF16;
    const size_t at = 1 + 2 * EXPERTS;
    for (size_t i = 0; i < HIDDEN; i++) r->shared_gate[i] = 0.3f * rng_normal(&rng);
    for (size_t i = 0; i < 2 * SHARED * HIDDEN; i++)
        r->shared_gate_up[i] = ref_bf16(ref_to_bf16(0.2f * rng_normal(&rng)));
    for (size_t i = 0; i < HIDDEN * SHARED; i++)
        r->shared_down[i] = ref_bf16(ref_to_bf16(0.2f * rng_normal(&rng)));
    r->args.shared_gate = packed(r, at, DT_F32, 1, HIDDEN, r->shared_gate);
    r->shared.gate_up.n = 1;
    r->shared.gate_up.m[0] = *packed(r, at + 1, type, 2 * SHARED, HIDDEN, r->shared_gate_up);
    r->shared.down = *packed(r, at + 2, type, HIDDEN, SHARED, r->shared_down);
    r->args.shared = &r->shared, r->args.shared_ffn = SHARED;
}

/* Runs rows from .. from + n - 1. Returns the place of a row that is not finite, else SIZE_MAX. */
static size_t layer_run(struct layer_rig *r, size_t from, size_t n)
{
    static const uint32_t zero[ROWS];
    static const int32_t token[ROWS];
    static const struct device_kv kv;
    const struct device_seq seq = { .kv = &kv, .n = n };
    const float freq = 1;
    const struct device_rows rows = { .n = n,
                                      .n_seqs = 1,
                                      .seq = &seq,
                                      .token = token,
                                      .pos = zero,
                                      .hi = zero,
                                      .angle = zero,
                                      .n_node = zero,
                                      .node = zero,
                                      .inv_freq = &freq,
                                      .n_freq = 1,
                                      .rope_factor = 1 };
    struct device_bad bad;
    struct device_experts a = r->args;
    a.x += from * HIDDEN, a.n = n;
    r->dev->begin(r->dev, &rows);
    r->dev->experts(r->dev, &a);
    r->dev->end(r->dev, &bad);
    return bad.any ? bad.place * 1000 + from + bad.row : SIZE_MAX;
}

static void layer_close(struct layer_rig *r)
{
    for (size_t i = 0; i < sizeof r->mats / sizeof *r->mats; i++)
        if (r->mats[i].w) mem_free(r->mats[i].w, mat_bytes(&r->mats[i]));
    r->dev->close(r->dev), pool_close(r->pool);
}

static double rounded(double x, bool f32) { return f32 ? x : (double)ref_bf16(ref_to_bf16((float)x)); }

/* y += weight * network(in) in double precision: gate_up [2 ffn][HIDDEN], down [HIDDEN][ffn]. */
static void add_network(double *y, const double *in, double weight, const float *gate_up, const float *down,
                        size_t ffn, bool f32)
{
    double h[SHARED];
    for (size_t f = 0; f < ffn; f++) {
        double g = 0, u = 0;
        for (size_t i = 0; i < HIDDEN; i++)
            g += in[i] * gate_up[f * HIDDEN + i], u += in[i] * gate_up[(ffn + f) * HIDDEN + i];
        h[f] = rounded(g / (1 + exp(-g)) * u, f32);
    }
    for (size_t i = 0; i < HIDDEN; i++) {
        double d = 0;
        for (size_t f = 0; f < ffn; f++) d += h[f] * down[i * ffn + f];
        y[i] += d * weight;
    }
}

/* One row in double precision, with the roundings of the operands. */
static void by_definition(const struct layer_rig *r, const float *x, double *y, uint32_t *chosen, bool f32)
{
    double norm[HIDDEN], in[HIDDEN], p[EXPERTS], mean = 0, top = -INFINITY, all = 0, sum = 0;
    bool used[EXPERTS] = { false };
    for (size_t i = 0; i < HIDDEN; i++) mean += (double)x[i] * x[i] / HIDDEN;
    for (size_t i = 0; i < HIDDEN; i++) {
        norm[i] = x[i] / sqrt(mean + 1e-6) * r->norm[i];
        in[i] = rounded(norm[i], f32), y[i] = x[i];
    }
    for (size_t e = 0; e < EXPERTS; e++) {
        p[e] = 0;
        for (size_t i = 0; i < HIDDEN; i++) p[e] += norm[i] * r->router[e * HIDDEN + i];
        top = fmax(top, p[e]);
    }
    for (size_t k = 0; k < USED; k++) {
        size_t best = EXPERTS;
        for (size_t e = 0; e < EXPERTS; e++)
            if (!used[e] && (best == EXPERTS || p[e] > p[best])) best = e;
        used[best] = true, chosen[k] = (uint32_t)best;
    }
    for (size_t e = 0; e < EXPERTS; e++) all += p[e] = exp(p[e] - top);
    for (size_t e = 0; e < EXPERTS; e++) sum += used[e] ? p[e] : 0;
    for (size_t e = 0; e < EXPERTS; e++)
        if (used[e])
            add_network(y, in, p[e] / (r->args.normalise ? sum : all), r->gate_up[e], r->down[e], FFN, f32);
    if (!r->args.shared)
        return;
    double s = 0;
    for (size_t i = 0; i < HIDDEN; i++) s += norm[i] * r->shared_gate[i];
    add_network(y, in, 1 / (1 + exp(-s)), r->shared_gate_up, r->shared_down, SHARED, f32);
}

static void equals_its_definition(void)
{
    FOR_TWINS(o)
        for (int k = 0; k < 8; k++) {
            const bool f32 = k & 1, normalise = k & 2;
            struct layer_rig r;
            double y[HIDDEN], worst = 0, off = 0;
            bool read[EXPERTS] = { false };
            size_t n_read = 0;
            layer_open(&r, o, f32, normalise, 11 + (uint64_t)k);
            if (k & 4) add_shared(&r, f32, 3);
            static float x[ROWS * HIDDEN];
            memcpy(x, r.x, sizeof x);
            CHECK(layer_run(&r, 0, ROWS) == SIZE_MAX);
            for (size_t i = 0; i < ROWS; i++) {
                uint32_t chosen[USED];
                by_definition(&r, x + i * HIDDEN, y, chosen, f32);
                for (size_t c = 0; c < USED; c++) n_read += !read[chosen[c]], read[chosen[c]] = true;
                for (size_t j = 0; j < HIDDEN; j++)
                    worst = fmax(worst, fabs(r.x[i * HIDDEN + j] - y[j])),
                    off += fabs(x[i * HIDDEN + j] - y[j]);
            }
            /* a value on the border of two bf16 numbers may be rounded to the other one */
            CHECK(worst < (f32 ? 2e-6 : 4e-3) && off / (ROWS * HIDDEN) > 0.05,
                  "%s, %s: off by %.2e, mean %.2e", o->name, f32 ? "f32" : "bf16", worst,
                  off / (ROWS * HIDDEN));
            CHECK(r.dev->experts_read == n_read, "%zu experts read, %zu chosen", r.dev->experts_read, n_read);
            memcpy(r.x, x, sizeof x);
            CHECK(layer_run(&r, 3, 1) == SIZE_MAX && r.dev->experts_read == USED, "%zu experts for a row",
                  r.dev->experts_read);
            layer_close(&r);
        }
}

/* Experts 1, 2, 4 and 6 have the same router: of four equal products the three lowest ids are chosen. */
static void ties_go_to_the_lower_id(void)
{
    FOR_TWINS(o) {
        struct layer_rig r;
        static float x[ROWS * HIDDEN], y[ROWS * HIDDEN];
        layer_open(&r, o, true, true, 5);
        memcpy(x, r.x, sizeof x);
        for (size_t i = 0; i < HIDDEN; i++) {
            static const int top[] = { 1, 2, 4, 6 };
            for (size_t e = 0; e < EXPERTS; e++) r.router[e * HIDDEN + i] = i ? 0 : -1;
            for (size_t k = 0; k < 4; k++) r.router[(size_t)top[k] * HIDDEN + i] = i ? 0 : 1;
        }
        for (size_t i = 0; i < ROWS; i++) x[i * HIDDEN] = 1 + fabsf(x[i * HIDDEN]);
        r.norm[0] = 1;
        mat_pack(&r.mats[0], 0, EXPERTS, r.router, DT_F32);
        for (size_t e = 0; e < EXPERTS; e++) {
            memcpy(r.x, x, sizeof x);
            layer_run(&r, 0, ROWS);
            if (e == 0) memcpy(y, r.x, sizeof y);
            for (size_t i = 0; i < HIDDEN * FFN; i++) r.down[e][i] *= 1.5f;
            mat_pack(&r.expert[e].down, 0, HIDDEN, r.down[e], DT_F32);
            memcpy(r.x, x, sizeof x);
            layer_run(&r, 0, ROWS);
            const bool chosen = e == 1 || e == 2 || e == 4;
            CHECK((memcmp(y, r.x, sizeof y) != 0) == chosen, "%s: expert %zu", o->name, e);
            memcpy(y, r.x, sizeof y);
        }
        CHECK(r.dev->experts_read == USED, "%zu", r.dev->experts_read);
        layer_close(&r);
    }
}

static void a_router_that_is_not_finite_is_named(void)
{
    struct layer_rig r;
    layer_open(&r, best_twin(), true, true, 9);
    r.x[4 * HIDDEN + 7] = INFINITY;
    CHECK(layer_run(&r, 0, ROWS) == 5004);
    layer_close(&r);
    layer_open(&r, best_twin(), true, true, 9);
    add_shared(&r, true, 3);
    r.shared_gate[2] = INFINITY;
    mat_pack(&r.mats[1 + 2 * EXPERTS], 0, 1, r.shared_gate, DT_F32);
    CHECK(layer_run(&r, 3, 5) == 5003);
    layer_close(&r);
}

/* ---- quantised weights ---- */

static void rig_of_type(struct rig *r, enum dtype type, bool f32, const struct ops *o, size_t threads)
{
    static const char json[] =
        "{\"model_type\":\"qwen2_moe\",\"hidden_size\":256,\"intermediate_size\":64,\"num_hidden_layers\":3,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":320,\"max_position_embeddings\":"
        "4096,"
        "\"rope_theta\":100000.0,\"num_experts\":16,\"num_experts_per_tok\":3,\"moe_intermediate_size\":256,"
        "\"norm_topk_prob\":true,\"mlp_only_layers\":[1],\"shared_expert_intermediate_size\":512}";
    struct err e = { 0 };
    memset(r, 0, sizeof *r);
    r->pool = pool_open(threads), r->rows_max = 300, r->n_max = 300;
    if (device_cpu_open(&r->dev, o, r->pool, f32 ? DT_F32 : DT_I16, e.msg, sizeof e.msg))
        rig_die("device", &e);
    if (config_parse(&r->c, "random", json, strlen(json), NULL, NULL, 0, &e)) rig_die("config", &e);
    const struct model_setup s = { .config = &r->c,
                                   .compute = f32 ? DT_F32 : DT_BF16,
                                   .dev = r->dev,
                                   .ops = o,
                                   .pool = r->pool,
                                   .random = type,
                                   .random_mix = true };
    if (model_random(&r->m, &s, 7, &e)) rig_die("model", &e);
    if (workspace_open(&r->w, &r->m, r->rows_max, r->n_max, &e)) rig_die("workspace", &e);
}

static void quantised_rows_are_rows(void)
{
    enum { N = 100 };
    static const enum dtype types[] = { DT_Q4_0, DT_Q8_0, DT_Q4_K, DT_Q6_K, DT_OTHER };
    static const size_t sizes[] = { 1, 2, 7, 64, N };
    for (size_t t = 0; t < 5; t++)
        for (int f32 = 0; f32 < 2; f32++) {
            float *want = NULL;
            int32_t token[N];
            FOR_TWINS(o) {
                struct rig r;
                struct kv kv;
                const size_t n = o == ops_all[0] || SLOW_BUILD ? 20 : N;
                rig_of_type(&r, types[t], f32, o, 1 + t % 3);
                rig_kv(&r, &kv, N, 0), rig_tokens(token, N, r.c.vocab, 3);
                float *got = must_alloc(N * r.c.vocab * sizeof *got);
                for (size_t s = 0; s < 5; s++) {
                    kv_truncate(&kv, 0);
                    rig_run(&r, &kv, token, n, MIN(sizes[s], n), got, NULL);
                    if (!want) {
                        want = must_alloc(N * r.c.vocab * sizeof *want);
                        memcpy(want, got, n * r.c.vocab * sizeof *got);
                    }
                    /* plain C comes first and has fewer rows */
                    CHECK(memcmp(want, got, 20 * r.c.vocab * sizeof *got) == 0 &&
                              (s == 0 || memcmp(want, got, n * r.c.vocab * sizeof *got) == 0),
                          "type %d, f32 %d, %s: passes of %zu rows", types[t], f32, o->name, sizes[s]);
                    if (s == 0) memcpy(want, got, n * r.c.vocab * sizeof *got);
                    CHECK(r.dev->experts_read >= 2 * 3 && r.dev->experts_read <= 2 * 16, "%zu",
                          r.dev->experts_read);
                }
                free(got), kv_close(&kv), rig_close(&r);
            }
            free(want);
        }
}

/* ---- models that are refused ---- */

static char *text_of(const char *path, size_t *n)
{
    struct err e = { 0 };
    char *text = NULL;
    if (file_read(&text, n, path, 1 << 26, &e)) rig_die(path, &e);
    return text;
}

/* Replaces the first `from` of a file by `to`. A safetensors file begins with the length of its header. */
static void edit(const char *dir, const char *file, const char *from, const char *to)
{
    char path[4200];
    size_t n;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    char *text = text_of(path, &n), *at = memmem(text, n, from, strlen(from));
    CHECK(at, "no %s in %s", from, file);
    FILE *f = fopen(path, "wb");
    if (!at || !f) abort();
    if (strcmp(file, "config.json")) {
        uint64_t header;
        memcpy(&header, text, 8), header += strlen(to) - strlen(from), memcpy(text, &header, 8);
    }
    fwrite(text, 1, (size_t)(at - text), f), fputs(to, f);
    fwrite(at + strlen(from), 1, n - (size_t)(at - text) - strlen(from), f);
    fclose(f), free(text);
}

static const struct tiny *tiny_of(const char *type)
{
    size_t i = 0;
    while (strcmp(tiny_models[i].type, type)) i++;
    return &tiny_models[i];
}

/* One line for a model with one change: of the configuration, or of a name in the header of the weights. */
static void refuses_models(void)
{
    static const struct { const char *type, *file, *from, *to, *says;
    } bad[] = {
        { "qwen3_moe", "config.json", "\"num_experts\":9", "\"num_experts\":8",
          "tensor \"model.layers.0.mlp.gate.weight\": shape [9, 64], config.json needs [8, 64]" },
        { "qwen3_moe", "config.json", "\"num_experts_per_tok\":3", "\"num_experts_per_tok\":10",
          "num_experts_per_tok is 10, allowed are 1 to num_experts 9" },
        { "qwen3_moe", "config.json", "\"moe_intermediate_size\":40", "\"moe_intermediate_size\":41",
          "tensor \"model.layers.0.mlp.experts.0.gate_proj.weight\": shape [40, 64], config.json needs [41, "
          "64]" },
        { "qwen3_moe", "config.json", "\"mlp_only_layers\":[1]", "\"mlp_only_layers\":[]",
          "tensor \"model.layers.1.mlp.gate.weight\" is missing, needed with shape [9, 64]" },
        { "qwen3_moe", "model.safetensors", "layers.2.mlp.experts.7.up", "layers.2.mlp.experts.X.up",
          "tensor \"model.layers.2.mlp.experts.7.up_proj.weight\" is missing, needed with shape [40, 64]" },
        { "qwen3_moe", "model.safetensors", "layers.2.mlp.gate.weight", "layers.2.mlp.date.weight",
          "tensor \"model.layers.2.mlp.gate.weight\" is missing, needed with shape [9, 64]" },
        { "qwen3_moe", "model.safetensors", "layers.2.input_layernorm", "layers.0.mlp.experts.9.gate_proj",
          "the files have tensors of 2 layers" },
        { "qwen3_moe", "model.safetensors", "layers.2.post_attention_layernorm",
          "layers.0.mlp.experts.9.gate_proj",
          "tensor \"model.layers.0.mlp.experts.9.gate_proj.weight\" has expert 9, the number of experts is "
          "9" },
        { "qwen2_moe", "config.json", "\"shared_expert_intermediate_size\":47",
          "\"shared_expert_intermediate_size\":48",
          "tensor \"model.layers.0.mlp.shared_expert.gate_proj.weight\": shape [47, 56], config.json needs "
          "[48, 56]" },
        { "qwen2_moe", "model.safetensors", "layers.0.mlp.shared_expert_gate",
          "layers.0.mlp.shared_expert_gaze",
          "tensor \"model.layers.0.mlp.shared_expert_gate.weight\" is missing, needed with shape [1, 56]" },
        { "qwen3_moe", "config.json", "\"num_experts\":9",
          "\"shared_expert_intermediate_size\":8,\"num_experts\":9",
          "found 8, this is not implemented for qwen3_moe models" },
        { "mixtral", "config.json", "\"num_local_experts\":5", "\"num_local_experts\":6",
          "tensor \"model.layers.0.block_sparse_moe.gate.weight\": shape [5, 52], config.json needs [6, "
          "52]" },
        { "mixtral", "model.safetensors", "moe.experts.4.w2", "moe.experts.4.w4",
          "tensor \"model.layers.0.mlp.experts.4.down_proj.weight\" is missing, needed with shape [52, 51]" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char dir[4096];
        struct config c;
        struct tensors ts = { 0 };
        struct err e = { 0 };
        tiny_write(tiny_of(bad[i].type), dir);
        edit(dir, bad[i].file, bad[i].from, bad[i].to);
        const int rc =
            config_read(&c, dir, &e) || tensors_open(&ts, dir, &e) || config_check_tensors(&c, &ts, &e);
        CHECK(rc && e.code == ERR_INPUT && strstr(e.msg, bad[i].says) && !strchr(e.msg, '\n'),
              "%s:\n  got  %s\n  want %s", bad[i].to, rc ? e.msg : "nothing", bad[i].says);
        tensors_close(&ts), tiny_remove(dir);
    }
}

/* A fused tensor of a wrong shape, experts given twice, and more experts than the configuration has. */
static void refuses_forms(void)
{
    static const struct { const char *name, *shape; size_t bytes; const char *more, *says;
    } bad[] = {
        { "a.mlp.experts.gate_up_proj", "[2,3,4]", 48, "",
          "needed are 3: up to 1024 experts, an even number of" },
        { "a.mlp.experts.gate_up_proj", "[6,4]", 48, "",
          "has 2 dimensions, the first of 6, the second of 4" },
        { "a.mlp.experts.down_proj", "[1025,1,1]", 2050, "", "has 3 dimensions, the first of 1025" },
        { "a.mlp.experts.down_proj", "[2,3,4]", 48,
          ",\"a.mlp.experts.1.down_proj.weight\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[48,50]}",
          "tensor \"a.mlp.experts." },
    };
    for (size_t i = 0; i < 4; i++) {
        char json[512];
        struct tensors ts;
        struct err e = { 0 };
        const int n = snprintf(json, sizeof json,
                               "{\"%s\":{\"dtype\":\"BF16\",\"shape\":%s,\"data_offsets\":[0,%zu]}%s}",
                               bad[i].name, bad[i].shape, bad[i].bytes, bad[i].more);
        CHECK(tensors_parse(&ts, "file", json, (size_t)n, bad[i].bytes + (*bad[i].more ? 2 : 0), &e) == 0,
              "%s", e.msg);
        CHECK(tensors_split_experts(&ts, &e) == -1 && e.code == ERR_INPUT && strstr(e.msg, bad[i].says),
              "%s %s: %s", bad[i].name, bad[i].shape, e.msg);
        tensors_close(&ts);
    }
}

/* NaN in a router stops the pass with position and layer. */
static void nan_in_a_router_stops_the_pass(void)
{
    for (int k = 0; k < 2; k++) {
        char dir[4096];
        struct rig r;
        struct kv kv;
        int32_t token[5];
        struct err e = { 0 };
        tiny_write(tiny_of(k ? "mixtral" : "qwen3_moe"), dir);
        rig_open(&r, dir, DT_BF16, best_twin(), 2, 8, 64);
        rig_kv(&r, &kv, 64, 0), rig_tokens(token, 5, r.c.vocab, 1);
        float *logits = must_alloc(r.c.vocab * sizeof *logits);
        const size_t layer = k ? 1 : 2;
        struct mat *router = &r.m.layers[layer].router;
        if (router->type == DT_F32)
            ((float *)router->w)[PANEL] = NAN;           /* input 1 of expert 0 */
        else
            ((uint16_t *)router->w)[1] = 0x7fc0;
        struct pass_seq s = { .kv = &kv, .n = 5, .token = token, .logits = logits };
        char want[64];
        snprintf(want, sizeof want, "not a finite number at position 0, layer %zu", layer);
        CHECK(model_forward(&r.m, r.w, &s, 1, NULL, 0, &e) == -1 && e.code == ERR_FAILED &&
                  strstr(e.msg, want),
              "%s", e.msg);
        free(logits), kv_close(&kv), rig_close(&r), tiny_remove(dir);
    }
}

int main(void)
{
    RUN(equals_its_definition);
    RUN(ties_go_to_the_lower_id);
    RUN(a_router_that_is_not_finite_is_named);
    RUN(quantised_rows_are_rows);
    RUN(refuses_models);
    RUN(refuses_forms);
    RUN(nan_in_a_router_stops_the_pass);
    return test_end();
}
