/* Owns the object under measurement: a model with a cache of random values at any depth (struct
 * bench_target), and the bytes and operations of its passes (struct bench_work). Start at bench_open and
 * bench_work. */
#include "src/bench/bench.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/request/model_options.h"

/* ---- a model and its cache ---- */

static const char random_json[] =
    "{\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\", \"torch_dtype\": \"bfloat16\","
    " \"hidden_size\": 896, \"intermediate_size\": 4864, \"num_hidden_layers\": 24,"
    " \"num_attention_heads\": 14, \"num_key_value_heads\": 2, \"vocab_size\": 151936,"
    " \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0,"
    " \"hidden_act\": \"silu\", \"tie_word_embeddings\": true, \"use_sliding_window\": false,"
    " \"bos_token_id\": 151643, \"eos_token_id\": 151645}";

static const char random_3b_json[] =
    "{\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\", \"torch_dtype\": \"bfloat16\","
    " \"hidden_size\": 2048, \"intermediate_size\": 11008, \"num_hidden_layers\": 36,"
    " \"num_attention_heads\": 16, \"num_key_value_heads\": 2, \"vocab_size\": 151936,"
    " \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0,"
    " \"hidden_act\": \"silu\", \"tie_word_embeddings\": true, \"use_sliding_window\": false,"
    " \"bos_token_id\": 151643, \"eos_token_id\": 151645}";

/* 8 of the 48 layers of Qwen3-30B-A3B. Its embedding has deviation 1, unlike a tied one, so rows of different
 * tokens go to different experts. */
static const char random_moe_json[] =
    "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"model_type\": \"qwen3_moe\","
    " \"hidden_size\": 2048, \"intermediate_size\": 6144, \"num_hidden_layers\": 8,"
    " \"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"head_dim\": 128, \"vocab_size\": 151936,"
    " \"num_experts\": 128, \"num_experts_per_tok\": 8, \"moe_intermediate_size\": 768,"
    " \"norm_topk_prob\": true, \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-06,"
    " \"rope_theta\": 1000000.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false,"
    " \"bos_token_id\": 151643, \"eos_token_id\": 151645}";

/* A quarter of Qwen3.5-4B: 8 of 32 layers, 6 of them with a state, and a quarter of the vocabulary. */
static const char random_4b_json[] =
    "{\"architectures\": [\"Qwen3_5ForCausalLM\"], \"model_type\": \"qwen3_5_text\","
    " \"hidden_size\": 2560, \"intermediate_size\": 9216, \"num_hidden_layers\": 8,"
    " \"num_attention_heads\": 16, \"num_key_value_heads\": 4, \"head_dim\": 256, \"vocab_size\": 62080,"
    " \"full_attention_interval\": 4, \"linear_num_value_heads\": 32, \"attn_output_gate\": true,"
    " \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e7,"
    " \"partial_rotary_factor\": 0.25},"
    " \"max_position_embeddings\": 262144, \"rms_norm_eps\": 1e-06, \"hidden_act\": \"silu\","
    " \"tie_word_embeddings\": true, \"bos_token_id\": 1, \"eos_token_id\": 2}";

/* A tenth of Qwen3.5-35B-A3B: 4 of 40 layers, 3 of them with a state, and a tenth of the vocabulary. */
static const char random_35b_json[] =
    "{\"architectures\": [\"Qwen3_5MoeForCausalLM\"], \"model_type\": \"qwen3_5_moe_text\","
    " \"hidden_size\": 2048, \"num_hidden_layers\": 4, \"num_experts\": 256, \"num_experts_per_tok\": 8,"
    " \"moe_intermediate_size\": 512, \"shared_expert_intermediate_size\": 512,"
    " \"num_attention_heads\": 16, \"num_key_value_heads\": 2, \"head_dim\": 256, \"vocab_size\": 24832,"
    " \"full_attention_interval\": 4, \"linear_num_value_heads\": 32, \"attn_output_gate\": true,"
    " \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 1e7,"
    " \"partial_rotary_factor\": 0.25},"
    " \"max_position_embeddings\": 262144, \"rms_norm_eps\": 1e-06, \"hidden_act\": \"silu\","
    " \"tie_word_embeddings\": false, \"bos_token_id\": 1, \"eos_token_id\": 2}";

int bench_config(struct config *c, const char *dir, enum bench_body body, struct err *e)
{
    static const char *const bodies[] = {
        [BODY_SMALL] = random_json, [BODY_3B] = random_3b_json, [BODY_MOE] = random_moe_json,
        [BODY_4B] = random_4b_json, [BODY_35B] = random_35b_json,
    };
    const char *json = bodies[body];
    return dir ? config_read(c, dir, e)
               : config_parse(c, "random model", json, strlen(json), NULL, NULL, 0, e);
}

/* Opens the model of `dir`, or random weights, after a check of memory. */
static int open_model(struct bench_target *t, const struct model_setup *s, const char *dir,
                      const struct kv_size *cache, size_t n_kv, struct err *e)
{
    struct tensors ts = { 0 };
    struct memory_plan plan = { 0 };
    size_t weights;
    int rc = dir && (tensors_open(&ts, dir, e) ||
                     model_plan_bytes(s->config, &ts, s->compute, s->dev, &weights, e)) ? -1 : 0;
    if (!dir)
        weights = model_random_bytes(s);
    tensors_close(&ts);
    if (rc)
        return -1;
    memory_plan_add(&plan, "weights", weights);
    memory_plan_add(&plan, n_kv > 1 ? "KV caches" : "KV cache", n_kv * kv_bytes(cache));
    memory_plan_add(&plan, "logits", t->logits_bytes);
    if (memory_plan_check(&plan, "--tokens N (the deepest point)", e))
        return -1;
    return dir ? model_open(&t->model, dir, s, e) : model_random(&t->model, s, 1, e);
}

int bench_open(struct bench_target *t, const struct bench *b, const struct config *c, const char *dir,
               size_t n_kv, size_t n_max, struct err *e)
{
    *t = (struct bench_target){ .seed = 1000, .texts = 1 };
    if (!mul_size(c->vocab, BENCH_ROWS_MAX * sizeof(float), &t->logits_bytes))
        return err_set(e, ERR_INPUT, "%s/config.json: vocab_size %zu is too large", dir, c->vocab);
    if (device_cpu_open(&t->dev, b->ops, b->pool, b->kv, e->msg, sizeof e->msg))
        return err_set(e, ERR_FAILED, "bench: out of memory");
    const struct model_setup setup = { c, b->compute, t->dev, b->ops, b->pool, .random = b->random,
                                        .random_mix = true };
    const struct model sizes = { .config = *c, .dev = t->dev,
                                 .head_dim = t->dev->head_dim(t->dev, c->head_dim) };
    const struct kv_size cache = model_cache(&sizes, n_max, config_is_hybrid(c) ? BENCH_ROWS_MAX : 0);
    if (open_model(t, &setup, dir, &cache, n_kv, e))
        return -1;
    for (size_t i = 0; i < BENCH_PREFILL; i++)
        t->token[i] = (int32_t)(i * 7919 % c->vocab);
    if (!(t->logits = mem_alloc(t->logits_bytes)))
        return err_set(e, ERR_FAILED, "bench: out of memory (%zu bytes of logits)", t->logits_bytes);
    for (; t->n_kv < n_kv; t->n_kv++)
        if (kv_open(&t->kv[t->n_kv], t->dev, &cache, e))
            return -1;
    return workspace_open(&t->work, &t->model, PREFILL_ROWS, n_max, e);
}

void bench_close(struct bench_target *t)
{
    workspace_close(t->work);
    while (t->n_kv)
        kv_close(&t->kv[--t->n_kv]);
    model_close(&t->model);
    if (t->dev)
        t->dev->close(t->dev);
    mem_free(t->logits, t->logits_bytes);
}

/* Turns random bf16 bits into an int16 block: a third of each number is within the bounds of int16 rows,
 * and the scale makes keys and values of a few units. */
static void make_int16(struct kv *kv, char *block)
{
    const size_t scales = KV_BLOCK * kv->head_dim * sizeof(int16_t),
                 end = scales + KV_SCALES * sizeof(float);
    int16_t *n = (int16_t *)(void *)block;
    for (size_t i = 0; i < kv->block_bytes / sizeof *n; i++)
        n[i] /= 3;
    for (size_t at = scales; at < end; at += sizeof(float))
        memcpy(block + at, &(float){ 3e-4f }, sizeof(float));
}

/* Blocks are filled whole: values after n_past are finite, and the kernels give them no weight. As f32, a
 * pair of bf16 values is one normal float. */
static void fill(struct bench_target *t, struct kv *kv, size_t depth)
{
    const size_t first = kv->n_past / KV_BLOCK * KV_BLOCK, n = (depth - first + KV_BLOCK - 1) / KV_BLOCK;
    assert(depth >= kv->n_past);
    for (size_t i = 0; n && i < kv->n_layers * kv->n_kv_heads; i++) {
        char *block = kv_block(kv, i / kv->n_kv_heads, i % kv->n_kv_heads, first);
        t->dev->noise(t->dev, block, n * kv->block_bytes / 2, t->seed++, 1);
        for (size_t j = 0; j < n && kv->type == DT_I16; j++)
            make_int16(kv, block + j * kv->block_bytes);
    }
    kv->n_past = depth;
    kv->n_written = MAX(kv->n_written, depth);
    if (kv->state)
        state_place(kv->state, depth);
}

void bench_depth(struct bench_target *t, size_t depth)
{
    for (size_t i = 0; i < t->n_kv; i++)
        fill(t, &t->kv[i], depth);
}

static int prefill(struct bench_target *t, size_t rows, struct err *e)
{
    static const uint8_t none[PREFILL_ROWS];
    struct kv *kv = t->kv;
    const size_t depth = kv->n_past;
    int rc = 0;
    for (size_t at = 0, n; at < rows && rc == 0; at += n) {
        n = MIN(rows - at, (size_t)PREFILL_ROWS);
        struct pass_seq s = { .kv = kv, .n = n, .token = t->token + at, .certain = true,
                              .logits = t->logits, .want = at + n < rows ? none : NULL };
        rc = model_forward(&t->model, t->work, &s, 1, NULL, 0, e);
        t->experts_read += t->dev->experts_read;
        kv_advance(kv, n);
    }
    kv->n_past = depth;
    if (kv->state)
        state_place(kv->state, depth);
    return rc;
}

int bench_pass(struct bench_target *t, size_t rows, struct err *e)
{
    static const uint8_t all[BENCH_ROWS_MAX] = { [0 ... BENCH_ROWS_MAX - 1] = 1 };
    struct pass_seq s[BENCH_TEXTS_MAX];
    const size_t n = rows / t->texts;
    t->experts_read = 0;
    if (rows > BENCH_ROWS_MAX)
        return prefill(t, rows, e);
    for (size_t i = 0; i < t->texts; i++)
        s[i] = (struct pass_seq){ .kv = &t->kv[i], .n = n, .token = t->token + i * n, .want = all,
                                  .logits = t->logits + i * n * t->model.config.vocab };
    const int rc = model_forward(&t->model, t->work, s, t->texts, NULL, 0, e);
    t->experts_read = t->dev->experts_read;
    return rc;
}

/* ---- work of a pass ---- */

/* The first position that a row at `pos` sees in this layer. */
static size_t first_seen(const struct config *c, size_t layer, size_t pos)
{
    return c->window && c->windowed[layer] && pos + 1 > c->window ? pos + 1 - c->window : 0;
}

static void add_product(struct bench_work *w, const struct mat *m, size_t rows)
{
    w->bytes += (double)mat_bytes(m);
    const double flops = 2.0 * (double)m->n * (double)m->k * (double)rows;
    w->flops += flops;
    w->int16 += dtype_is_quantised(m->type) ? flops : 0;
}

static void add_products(struct bench_work *w, const struct mats *y, size_t rows)
{
    for (size_t i = 0; i < y->n; i++)
        add_product(w, &y->m[i], rows);
}

/* Router and experts of a layer; the bytes of the experts that were read are added for the whole pass. */
static void add_experts(struct bench_work *w, const struct config *c, const struct layer *y, size_t rows)
{
    const struct device_expert *x = y->expert;
    add_product(w, &y->router, rows);
    for (size_t i = 0; i <= x->n_gate_up; i++) {
        const struct mat *m = i < x->n_gate_up ? &x->gate_up[i] : &x->down;
        add_product(w, m, rows * c->experts_used);
        w->bytes -= (double)mat_bytes(m);
    }
    if (!c->shared_ffn)
        return;
    add_product(w, &y->shared_gate, rows);
    for (size_t i = 0; i < y->shared.n_gate_up; i++)
        add_product(w, &y->shared.gate_up[i], rows);
    add_product(w, &y->shared.down, rows);
}

/* Each of the texts has rows / texts rows. */
static void add_attention(struct bench_work *w, const struct model *m, size_t l, size_t depth, size_t rows,
                          size_t texts)
{
    const struct config *c = &m->config;
    const size_t width = c->n_heads * m->head_dim, n = rows / texts;
    add_products(w, &m->layers[l].qkv, rows);
    add_product(w, &m->layers[l].o, rows);
    w->bytes += (double)(texts * (depth + n - first_seen(c, l, depth))) *
                (double)(c->n_kv_heads * kv_row_bytes(m->dev->kv_type, m->head_dim));
    for (size_t r = 0; r < rows; r++) {
        const size_t pos = depth + r % n, from = first_seen(c, l, pos), to = pos + 1,
                     slots = (to + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK - from / KV_BLOCK * KV_BLOCK;
        const double flops = 4.0 * (double)width * (double)(to - from), exps = (double)(c->n_heads * slots);
        w->flops += flops;
        w->int16 += m->dev->kv_type == DT_I16 ? flops : 0;
        w->exps += exps;
        w->maxes += exps;
        w->converts += exps;
    }
    w->exps += c->gated ? (double)(rows * width) : 0;
    w->converts += (double)(rows * 2 * width);
}

/* A row multiplies an element of a state by its decay and adds three products. */
static void add_delta(struct bench_work *w, const struct model *m, size_t l, size_t rows, size_t texts)
{
    const struct delta_shape d = model_cache(m, 1, 0).state;
    const size_t outputs = d.value_heads * d.value_dim;
    add_products(w, &m->layers[l].mix, rows);
    add_product(w, &m->layers[l].out, rows);
    w->bytes += (double)(texts * state_fixed_bytes(&d) / d.n_layers);
    w->flops += 7.0 * (double)(rows * d.value_heads * delta_wide(&d) * d.key_dim);
    w->exps += (double)(rows * (delta_channels(&d) + outputs + 2 * d.value_heads));
    w->converts += (double)(rows * outputs);
}

static void add_chunk(struct bench_work *w, const struct model *m, size_t depth, size_t rows, size_t texts)
{
    const struct config *c = &m->config;
    for (size_t l = 0; l < c->n_layers; l++) {
        const struct layer *y = &m->layers[l];
        const bool dense = c->kind[l] == LAYER_DENSE;
        const size_t ffn = dense ? c->ffn : c->experts_used * c->expert_ffn + c->shared_ffn;
        if (c->mixer[l] == MIXER_DELTA)
            add_delta(w, m, l, rows, texts);
        else
            add_attention(w, m, l, depth, rows, texts);
        if (dense)
            add_products(w, &y->gate_up, rows), add_product(w, &y->down, rows);
        else
            add_experts(w, c, y, rows);
        w->exps += (double)(rows * ffn);
        w->converts += (double)(rows * (2 * c->hidden + ffn));
    }
}

struct bench_work bench_work(const struct bench_target *t, size_t depth, size_t rows)
{
    struct bench_work w = { .bytes = (double)t->experts_read * model_bytes_an_expert(&t->model) };
    for (size_t at = 0; at < rows; at += PREFILL_ROWS)
        add_chunk(&w, &t->model, depth + at, MIN(rows - at, (size_t)PREFILL_ROWS), t->texts);
    add_product(&w, &t->model.lm_head, rows <= BENCH_ROWS_MAX ? rows : 1);
    return w;
}

static void add_expert_pieces(struct probe_pieces *s, const struct device_expert *x)
{
    for (size_t i = 0; i < x->n_gate_up; i++)
        s->v[s->n++] = (struct probe_piece){ x->gate_up[i].w, mat_bytes(&x->gate_up[i]) };
    s->v[s->n++] = (struct probe_piece){ x->down.w, mat_bytes(&x->down) };
}

/* Adds the matrices that a row reads in a layer; experts: some, far from each other. */
static void add_pieces(struct probe_pieces *s, const struct config *c, const struct layer *y, bool dense)
{
    const bool state = y->mix.n > 0;
    const struct mats *first = state ? &y->mix : &y->qkv;
    const struct mat *mats[2 * MATS_MAX + 2] = { state ? &y->out : &y->o };
    size_t n = 1;
    for (size_t i = 0; i < first->n; i++)
        mats[n++] = &first->m[i];
    for (size_t i = 0; dense && i < y->gate_up.n; i++)
        mats[n++] = &y->gate_up.m[i];
    mats[n++] = dense ? &y->down : &y->router;
    for (size_t i = 0; i < n; i++)
        s->v[s->n++] = (struct probe_piece){ mats[i]->w, mat_bytes(mats[i]) };
    for (size_t k = 0; !dense && k < c->experts_used; k++)
        add_expert_pieces(s, &y->expert[k * c->n_experts / c->experts_used]);
    if (!dense && c->shared_ffn)
        add_expert_pieces(s, &y->shared);
}

/* Adds what a row reads of the text's cache in a layer, or the states. */
static void add_cache_pieces(struct probe_pieces *s, const struct model *m, const struct kv *kv, size_t l,
                             size_t depth)
{
    const struct config *c = &m->config;
    const size_t slot = m->layers[l].slot, from = first_seen(c, l, depth) / KV_BLOCK,
                 to = (depth + KV_BLOCK) / KV_BLOCK;
    if (c->mixer[l] == MIXER_DELTA) {
        const struct delta_shape *d = &kv->state->d.shape;
        const size_t floats = d->value_heads * d->key_dim * delta_wide(d);
        s->v[s->n++] = (struct probe_piece){ (const char *)(kv->state->d.state + slot * floats),
                                           floats * sizeof(float) };
        return;
    }
    for (size_t h = 0; h < c->n_kv_heads; h++)
        s->v[s->n++] = (struct probe_piece){ kv_block(kv, slot, h, from * KV_BLOCK),
                                             (to - from) * kv->block_bytes };
}

int bench_pieces(struct probe_pieces *p, const struct bench_target *t, size_t depth, struct err *e)
{
    const struct model *m = &t->model;
    const struct config *c = &m->config;
    const size_t most = 2 * MATS_MAX + 2 + 3 * (c->experts_used + 1) + t->texts * c->n_kv_heads;
    struct probe_pieces s = { malloc((c->n_layers * most + 1) * sizeof *s.v), 0 };
    if (!s.v)
        return err_set(e, ERR_FAILED, "bench: out of memory");
    for (size_t l = 0; l < c->n_layers; l++) {
        add_pieces(&s, c, &m->layers[l], c->kind[l] == LAYER_DENSE);
        for (size_t i = 0; i < t->texts; i++)
            add_cache_pieces(&s, m, &t->kv[i], l, depth);
    }
    s.v[s.n++] = (struct probe_piece){ m->lm_head.w, mat_bytes(&m->lm_head) };
    int rc = probe_cut(p, &s, pool_threads(m->pool), e);
    free(s.v);
    return rc;
}

/* ---- models/demo ---- */

bool bench_find_demo(char dir[PATH_BYTES])
{
    char program[PATH_BYTES];
    struct stat s;
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - sizeof "/models/demo");
    snprintf(dir, PATH_BYTES, "models/demo");
    while (stat(dir, &s) || !S_ISDIR(s.st_mode)) {
        const char *slash = n > 0 ? memrchr(program, '/', (size_t)n) : NULL;
        if (!slash)
            return false;
        n = slash - program;
        snprintf(dir, PATH_BYTES, "%.*s/models/demo", (int)n, program);
    }
    return true;
}

int bench_model_dir(char dir[PATH_BYTES], const struct options *o, struct err *e)
{
    if (o->model)
        return model_dir(dir, o, e);
    if (bench_find_demo(dir))
        return 0;
    return err_set(e, ERR_INPUT, "bench: models/demo was not found; --model DIR names another model");
}
