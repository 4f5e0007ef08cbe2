/* Owns the object under measurement: a model with a cache of random values at any depth (struct
 * bench_target), and the bytes and operations of its passes (struct bench_work). Start at bench_open and
 * bench_pass_work. */
#include "src/bench/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static uint64_t next_random(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    *s ^= *s << 17;
    return *s;
}

/* n bf16 values, about normal (the sum of 12 uniform ones, less 6), times `scale`. */
static void fill_normal(uint16_t *out, size_t n, float scale, uint64_t *random)
{
    for (size_t i = 0; i < n; i++) {
        float sum = -6.0f;
        for (int j = 0; j < 3; j++)
            for (uint64_t r = next_random(random), k = 0; k < 4; k++, r >>= 16)
                sum += (float)(r & 0xffff) / 65536.0f;
        out[i] = f32_to_bf16(sum * scale);
    }
}

/* ---- a random model in a directory ---- */

enum { LAYERS = 24, HIDDEN = 896, FFN = 4864, HEADS = 14, KV_HEADS = 2, HEAD = 64, VOCAB = 151936,
       TABLE = 1 << 16 };

static const struct { const char *name; size_t rows, cols; } layer_tensors[] = {    /* cols 0: a vector */
    { "input_layernorm.weight", HIDDEN, 0 }, { "post_attention_layernorm.weight", HIDDEN, 0 },
    { "self_attn.q_proj.weight", HEADS * HEAD, HIDDEN }, { "self_attn.q_proj.bias", HEADS * HEAD, 0 },
    { "self_attn.k_proj.weight", KV_HEADS * HEAD, HIDDEN }, { "self_attn.k_proj.bias", KV_HEADS * HEAD, 0 },
    { "self_attn.v_proj.weight", KV_HEADS * HEAD, HIDDEN }, { "self_attn.v_proj.bias", KV_HEADS * HEAD, 0 },
    { "self_attn.o_proj.weight", HIDDEN, HEADS * HEAD }, { "mlp.gate_proj.weight", FFN, HIDDEN },
    { "mlp.up_proj.weight", FFN, HIDDEN }, { "mlp.down_proj.weight", HIDDEN, FFN },
};
enum { LAYER_TENSORS = sizeof layer_tensors / sizeof *layer_tensors };

static const char config_json[] =
    "{\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\", \"hidden_size\": 896, "
    "\"intermediate_size\": 4864,\n"
    " \"num_hidden_layers\": 24, \"num_attention_heads\": 14, \"num_key_value_heads\": 2, \"vocab_size\": "
    "151936,\n"
    " \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0, "
    "\"hidden_act\": \"silu\",\n"
    " \"tie_word_embeddings\": true, \"use_sliding_window\": false, \"torch_dtype\": \"bfloat16\",\n"
    " \"bos_token_id\": 151643, \"eos_token_id\": 151645}\n";

static void header_entry(FILE *f, const char *prefix, const char *name, size_t rows, size_t cols, size_t *at)
{
    size_t bytes = rows * (cols ? cols : 1) * 2;
    fprintf(f, "%s\"%s%s\":{\"dtype\":\"BF16\",\"shape\":[%zu", *at ? "," : "{", prefix, name, rows);
    if (cols)
        fprintf(f, ",%zu", cols);
    fprintf(f, "],\"data_offsets\":[%zu,%zu]}", *at, *at + bytes);
    *at += bytes;
}

/* Values are drawn from a table of normal ones. Norms are 1. */
static void write_tensor(FILE *f, size_t rows, size_t cols, bool norm, const uint16_t *table,
                         uint64_t *random)
{
    enum { BLOCK = 1 << 16 };
    static uint16_t out[BLOCK];
    for (size_t n = rows * (cols ? cols : 1); n; ) {
        size_t now = MIN(n, (size_t)BLOCK);
        for (size_t i = 0; i < BLOCK; i += 4)
            for (uint64_t r = next_random(random), k = 0; k < 4; k++, r >>= 16)
                out[i + k] = norm ? 0x3f80 : table[r & 0xffff];
        fwrite(out, 2, now, f);
        n -= now;
    }
}

static int write_weights(FILE *f, uint64_t random)
{
    char *header = NULL, prefix[32];
    size_t size, at = 0;
    FILE *h = open_memstream(&header, &size);
    uint16_t *table = malloc(TABLE * sizeof *table);
    if (!h || !table)
        return -1;
    header_entry(h, "model.", "embed_tokens.weight", VOCAB, HIDDEN, &at);
    header_entry(h, "model.", "norm.weight", HIDDEN, 0, &at);
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < LAYER_TENSORS; i++) {
            snprintf(prefix, sizeof prefix, "model.layers.%d.", l);
            header_entry(h, prefix, layer_tensors[i].name, layer_tensors[i].rows, layer_tensors[i].cols, &at);
        }
    fputc('}', h);
    fflush(h);
    while (size % 8) {
        fputc(' ', h);
        fflush(h);
    }
    fclose(h);
    uint64_t length = size;
    fwrite(&length, 8, 1, f);
    fwrite(header, 1, size, f);
    free(header);
    fill_normal(table, TABLE, 0.03f, &random);      /* about 1/sqrt(896): products keep the size of x */
    write_tensor(f, VOCAB, HIDDEN, false, table, &random);
    write_tensor(f, HIDDEN, 0, true, table, &random);
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < LAYER_TENSORS; i++)
            write_tensor(f, layer_tensors[i].rows, layer_tensors[i].cols, i < 2, table, &random);
    free(table);
    return ferror(f) ? -1 : 0;
}

int bench_random_model(char dir[PATH_BYTES], uint64_t seed, struct err *e)
{
    const char *tmp = getenv("TMPDIR");
    char path[PATH_BYTES + 32];
    snprintf(dir, PATH_BYTES, "%s/longhand-bench-XXXXXX", tmp && *tmp ? tmp : "/var/tmp");
    if (!mkdtemp(dir))
        return err_set(e, ERR_FAILED,
                       "%s: cannot make a directory for the random model: %s (TMPDIR chooses another place)",
                       dir, strerror(errno));
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = fopen(path, "w");
    bool bad = !f || fputs(config_json, f) < 0;
    bad = (f && fclose(f)) || bad;
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    f = bad ? NULL : fopen(path, "wb");
    bad = !f || write_weights(f, seed | 1);
    bad = (f && fclose(f)) || bad;
    if (!bad)
        return 0;
    err_set(e, ERR_FAILED, "%s: cannot write the random model (988 MB): %s (TMPDIR chooses another place)",
            path, strerror(errno));
    bench_random_remove(dir);
    return -1;
}

void bench_random_remove(const char *dir)
{
    char path[PATH_BYTES + 32];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/config.json", dir);
    unlink(path);
    rmdir(dir);
}

/* ---- a model and its cache ---- */

enum { NOISE = 1 << 19 };            /* bf16 values that cache blocks are copied from */
static const uint64_t SEED = 20261120;

static int plan_check(const struct config *c, const char *dir, enum dtype compute, const struct device *dev,
                      size_t n_max, size_t extra, struct err *e)
{
    struct tensors ts = { 0 };
    struct memory_plan plan = { 0 };
    size_t weights;
    if (tensors_open(&ts, dir, e))
        return -1;
    int rc = model_plan_bytes(c, &ts, compute, dev, &weights, e);
    tensors_close(&ts);
    if (rc)
        return -1;
    memory_plan_add(&plan, "weights", weights);
    memory_plan_add(&plan, "KV cache",
               kv_bytes(&(struct kv_size){ dev->kv_type, c->n_layers, c->n_kv_heads,
                                           dev->head_dim(dev, c->head_dim), n_max, 0 }));
    memory_plan_add(&plan, "logits and noise", extra);
    return memory_plan_check(&plan, "--tokens N (the deepest point)", e);
}

int bench_open(struct bench_target *t, const struct bench *b, const char *name, const char *dir, size_t n_max,
               struct err *e)
{
    struct config config;
    *t = (struct bench_target){ .random = SEED | 1 };
    snprintf(t->name, sizeof t->name, "%s", name);
    if (config_read(&config, dir, e))
        return -1;
    if (!mul_size(config.vocab, BENCH_ROWS_MAX * sizeof(float), &t->logits_bytes))
        return err_set(e, ERR_INPUT, "%s/config.json: vocab_size %zu is too large", dir, config.vocab);
    t->noise_bytes = NOISE * 2 + kv_block_bytes(DT_F32, HEAD_DIM_MAX);
    if (device_cpu_open(&t->dev, b->ops, b->pool, b->kv, e->msg, sizeof e->msg))
        return err_set(e, ERR_FAILED, "%s: out of memory", name);
    if (plan_check(&config, dir, b->compute, t->dev, n_max, t->logits_bytes + t->noise_bytes, e) ||
        model_open(&t->model, dir, &(struct model_setup){ &config, b->compute, t->dev, b->ops, b->pool }, e))
        goto fail;
    t->token = malloc(BENCH_PREFILL * sizeof *t->token);
    t->want = calloc(BENCH_PREFILL_CHUNK, 1);
    t->logits = mem_alloc(t->logits_bytes);
    t->noise = mem_alloc(t->noise_bytes);
    if (!t->token || !t->want || !t->logits || !t->noise) {
        err_set(e, ERR_FAILED, "%s: out of memory (%zu bytes of logits)", name, t->logits_bytes);
        goto fail;
    }
    fill_normal(t->noise, t->noise_bytes / 2, 1.0f, &t->random);
    for (size_t i = 0; i < BENCH_PREFILL; i++)
        t->token[i] = (int32_t)(next_random(&t->random) % config.vocab);
    if (kv_open(&t->kv, t->dev, &(struct kv_size){ t->dev->kv_type, config.n_layers, config.n_kv_heads,
                                                   t->model.head_dim, n_max, 0 }, e) ||
        workspace_open(&t->pass, &t->model, BENCH_ROWS_MAX, n_max, e) ||
        workspace_open(&t->prefill, &t->model, BENCH_PREFILL_CHUNK, n_max, e))
        goto fail;
    return 0;
fail:
    bench_close(t);
    return -1;
}

void bench_close(struct bench_target *t)
{
    if (t->pass)
        workspace_close(t->pass);
    if (t->prefill)
        workspace_close(t->prefill);
    kv_close(&t->kv);
    model_close(&t->model);
    if (t->dev)
        t->dev->close(t->dev);
    free(t->token);
    free(t->want);
    mem_free(t->logits, t->logits_bytes);
    mem_free(t->noise, t->noise_bytes);
    *t = (struct bench_target){ 0 };
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
 * pair of normal bf16 values is one normal float. */
void bench_depth(struct bench_target *t, size_t depth)
{
    struct kv *kv = &t->kv;
    assert(depth == 0 || depth >= kv->n_past);
    for (size_t pos = kv->n_past / KV_BLOCK * KV_BLOCK; pos < depth; pos += KV_BLOCK)
        for (size_t l = 0; l < kv->n_layers; l++)
            for (size_t h = 0; h < kv->n_kv_heads; h++) {
                memcpy(kv_block(kv, l, h, pos), t->noise + next_random(&t->random) % NOISE / 32 * 32,
                       kv->block_bytes);
                if (kv->type == DT_I16)
                    make_int16(kv, kv_block(kv, l, h, pos));
            }
    kv->n_past = depth;
    kv->n_written = MAX(kv->n_written, depth);
}

int bench_pass(struct bench_target *t, size_t rows, struct err *e)
{
    assert(rows <= BENCH_ROWS_MAX);
    memset(t->want, 1, rows);
    struct pass_seq s = { .kv = &t->kv, .n = rows, .token = t->token, .want = t->want, .logits = t->logits };
    return model_forward(&t->model, t->pass, &s, 1, NULL, 0, e);
}

_Static_assert(BENCH_PREFILL % BENCH_PREFILL_CHUNK == 0, "the prefill is made of whole chunks");
int bench_prefill(struct bench_target *t, struct err *e)
{
    t->kv.n_past = 0;
    int rc = 0;
    for (size_t at = 0; at < BENCH_PREFILL && rc == 0; at += BENCH_PREFILL_CHUNK) {
        memset(t->want, 0, BENCH_PREFILL_CHUNK);
        t->want[BENCH_PREFILL_CHUNK - 1] = at + BENCH_PREFILL_CHUNK == BENCH_PREFILL;
        struct pass_seq s = { .kv = &t->kv, .n = BENCH_PREFILL_CHUNK, .token = t->token + at, .want = t->want,
                              .logits = t->logits };
        rc = model_forward(&t->model, t->prefill, &s, 1, NULL, 0, e);
        kv_advance(&t->kv, BENCH_PREFILL_CHUNK);
    }
    t->kv.n_past = 0;
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
    w->flops += 2.0 * (double)m->n * (double)m->k * (double)rows;
}

struct bench_work bench_pass_work(const struct bench_target *t, size_t depth, size_t rows, size_t want)
{
    const struct model *m = &t->model;
    const struct config *c = &m->config;
    const double key_bytes = (double)(c->n_kv_heads * kv_row_bytes(m->dev->kv_type, m->head_dim));
    struct bench_work w = { 0 };
    for (size_t l = 0; l < c->n_layers; l++) {
        const struct layer *y = &m->layers[l];
        add_product(&w, &y->qkv, rows);
        add_product(&w, &y->o, rows);
        add_product(&w, &y->gate_up, rows);
        add_product(&w, &y->down, rows);
        w.bytes += (double)(depth + rows - first_seen(c, l, depth)) * key_bytes;
        for (size_t r = 0; r < rows; r++) {
            size_t from = first_seen(c, l, depth + r), to = depth + r + 1;
            size_t slots = (to + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK - from / KV_BLOCK * KV_BLOCK;
            w.flops += 4.0 * (double)(c->n_heads * m->head_dim) * (double)(to - from);
            w.int16 += m->dev->kv_type == DT_I16
                           ? 4.0 * (double)(c->n_heads * m->head_dim) * (double)(to - from)
                           : 0;
            w.exps += (double)(c->n_heads * slots);
        }
        w.maxes = w.exps;
        w.converts += (double)(rows * (2 * c->hidden + 2 * c->n_heads * m->head_dim + c->ffn));
    }
    w.converts += w.exps;
    w.exps += (double)(c->n_layers * rows * c->ffn);
    if (want)
        add_product(&w, &m->lm_head, want);
    return w;
}

struct bench_work bench_prefill_work(const struct bench_target *t)
{
    struct bench_work sum = { 0 };
    for (size_t at = 0; at < BENCH_PREFILL; at += BENCH_PREFILL_CHUNK) {
        struct bench_work w =
            bench_pass_work(t, at, BENCH_PREFILL_CHUNK, at + BENCH_PREFILL_CHUNK == BENCH_PREFILL);
        sum.bytes += w.bytes;
        sum.flops += w.flops;
        sum.int16 += w.int16;
        sum.exps += w.exps;
        sum.maxes += w.maxes;
        sum.converts += w.converts;
    }
    return sum;
}

struct probe_piece *bench_segments(const struct bench_target *t, size_t depth, size_t *n)
{
    const struct model *m = &t->model;
    const struct config *c = &m->config;
    struct probe_piece *s = malloc((c->n_layers * (4 + c->n_kv_heads) + 1) * sizeof *s);
    *n = 0;
    if (!s)
        return NULL;
    for (size_t l = 0; l < c->n_layers; l++) {
        const struct layer *y = &m->layers[l];
        const struct mat *mats[4] = { &y->qkv, &y->o, &y->gate_up, &y->down };
        for (int i = 0; i < 4; i++)
            s[(*n)++] = (struct probe_piece){ mats[i]->w, mat_bytes(mats[i]) };
        size_t from = first_seen(c, l, depth) / KV_BLOCK, to = (depth + KV_BLOCK) / KV_BLOCK;
        for (size_t h = 0; h < c->n_kv_heads; h++)
            s[(*n)++] = (struct probe_piece){ kv_block(&t->kv, l, h, from * KV_BLOCK),
                                              (to - from) * t->kv.block_bytes };
    }
    s[(*n)++] = (struct probe_piece){ m->lm_head.w, mat_bytes(&m->lm_head) };
    return s;
}

static bool is_directory(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

bool bench_find_demo(char dir[PATH_BYTES])
{
    char exe[PATH_BYTES];
    snprintf(dir, PATH_BYTES, "models/demo");
    if (is_directory(dir))
        return true;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    for (int up = 0; n > 0 && up < 4; up++) {
        exe[n] = 0;
        char *slash = strrchr(exe, '/');
        if (!slash)
            break;
        *slash = 0;
        n = (ssize_t)strlen(exe);
        if (snprintf(dir, PATH_BYTES, "%s/models/demo", exe) < PATH_BYTES && is_directory(dir))
            return true;
    }
    return false;
}
