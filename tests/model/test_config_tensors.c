/* A configuration and the tensors of a model: missing tensors, wrong shapes, contradictions. */
#include "src/model/config_tensors.h"
#include "src/model/safetensors.h"
#include "tests/bad.h"

enum { TENSORS = 64 };
struct fake { const char *type; int layers; size_t n; struct { char name[96]; const char *dtype; size_t rows,
    cols; } t[TENSORS]; };

static void add(struct fake *f, const char *name, size_t rows, size_t cols)
{
    assert(f->n < TENSORS);
    snprintf(f->t[f->n].name, sizeof f->t->name, "%s", name);
    f->t[f->n].dtype = "BF16";
    f->t[f->n].rows = rows;
    f->t[f->n++].cols = cols;
}

/* The tensors of a 2-layer model: hidden 64, ffn 128, 4 heads of 16, 2 key/value heads, vocabulary 100. */
static void fill(struct fake *f, bool qkv_bias, bool o_bias, bool mlp_bias, bool qk_norm, bool head)
{
    char name[96];
    static const struct { const char *name; int kind; size_t rows, cols;
    } parts[] = {
        { "input_layernorm.weight", 0, 64, 0 },   { "post_attention_layernorm.weight", 0, 64, 0 },
        { "self_attn.q_proj.weight", 0, 64, 64 }, { "self_attn.k_proj.weight", 0, 32, 64 },
        { "self_attn.v_proj.weight", 0, 32, 64 }, { "self_attn.o_proj.weight", 0, 64, 64 },
        { "mlp.gate_proj.weight", 0, 128, 64 },   { "mlp.up_proj.weight", 0, 128, 64 },
        { "mlp.down_proj.weight", 0, 64, 128 },   { "self_attn.q_proj.bias", 1, 64, 0 },
        { "self_attn.k_proj.bias", 1, 32, 0 },    { "self_attn.v_proj.bias", 1, 32, 0 },
        { "self_attn.o_proj.bias", 2, 64, 0 },    { "mlp.gate_proj.bias", 3, 128, 0 },
        { "mlp.up_proj.bias", 3, 128, 0 },        { "mlp.down_proj.bias", 3, 64, 0 },
        { "self_attn.q_norm.weight", 4, 16, 0 },  { "self_attn.k_norm.weight", 4, 16, 0 },
    };
    const bool has[] = { true, qkv_bias, o_bias, mlp_bias, qk_norm };
    *f = (struct fake){ .type = "llama", .layers = 2 };
    add(f, "model.embed_tokens.weight", 100, 64);
    add(f, "model.norm.weight", 64, 0);
    if (head)
        add(f, "lm_head.weight", 100, 64);
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            if (has[parts[i].kind]) {
                snprintf(name, sizeof name, "model.layers.%d.%s", l, parts[i].name);
                add(f, name, parts[i].rows, parts[i].cols);
            }
}

/* Writes the header of a file with these tensors and returns the number of data bytes. */
static size_t header(const struct fake *f, char *json)
{
    size_t at = 0;
    char *p = json + sprintf(json, "{");
    for (size_t i = 0; i < f->n; i++) {
        size_t bytes = f->t[i].rows * (f->t[i].cols ? f->t[i].cols : 1) *
                       (strcmp(f->t[i].dtype, "F32") == 0  ? 4
                        : strcmp(f->t[i].dtype, "I8") == 0 ? 1
                                                           : 2);
        p += sprintf(p, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%zu", i ? "," : "", f->t[i].name,
                     f->t[i].dtype, f->t[i].rows);
        if (f->t[i].cols)
            p += sprintf(p, ",%zu", f->t[i].cols);
        p += sprintf(p, "],\"data_offsets\":[%zu,%zu]}", at, at + bytes);
        at += bytes;
    }
    sprintf(p, "}");
    return at;
}

static int check(const struct fake *f, const char *more, struct config *c, struct err *e)
{
    char json[2048], head[TENSORS * 256];
    struct tensors ts;
    size_t data = header(f, head);
    snprintf(json, sizeof json,
             "{\"model_type\": \"%s\", \"num_hidden_layers\": %d, \"hidden_size\": 64, "
             "\"intermediate_size\": 128, \"num_attention_heads\": 4, "
             "\"head_dim\": 16, \"num_key_value_heads\": 2, \"vocab_size\": 100, "
             "\"max_position_embeddings\": 512%s%s}", f->type, f->layers, *more ? ", " : "", more);
    if (config_parse(c, "config.json", json, strlen(json), NULL, NULL, 0, e))
        return -2;
    if (tensors_parse(&ts, "model", head, strlen(head), data, e))
        return -3;
    int r = config_check_tensors(c, &ts, e);
    size_t n = 0;
    for (size_t i = 0; i < ts.n; i++)
        n += ts.t[i].n_elements;
    CHECK(r || n == config_count_params(c) || c->tied, "%zu parameters, %zu in the file",
          config_count_params(c), n);
    tensors_close(&ts);
    return r;
}

static void accepts(void)
{
    struct fake f;
    struct config c;
    struct err e = { 0 };
    fill(&f, false, false, false, false, true);
    CHECK(check(&f, "", &c, &e) == 0, "%s", e.msg);
    f.t[3].dtype = "F32";
    f.t[4].dtype = "F16";
    CHECK(check(&f, "", &c, &e) == 0, "%s", e.msg);
    CHECK(check(&f, "\"tie_word_embeddings\": true", &c, &e) == 0, "%s", e.msg);      /* accepts a copy */
    fill(&f, false, false, false, false, false);
    CHECK(check(&f, "\"tie_word_embeddings\": true", &c, &e) == 0, "%s", e.msg);
    fill(&f, true, true, true, false, true);
    CHECK(check(&f, "\"attention_bias\": true, \"mlp_bias\": true", &c, &e) == 0, "%s", e.msg);
    fill(&f, true, false, false, false, true);
    f.type = "qwen2";
    CHECK(check(&f, "", &c, &e) == 0, "%s", e.msg);
    fill(&f, false, false, false, true, true);
    f.type = "qwen3";
    CHECK(check(&f, "", &c, &e) == 0, "%s", e.msg);
    /* Other tensors are ignored: more layers, buffers, heads of drafters. */
    fill(&f, false, false, false, false, false);
    add(&f, "model.layers.2.input_layernorm.weight", 64, 0);
    add(&f, "model.layers.0.self_attn.rotary_emb.inv_freq", 8, 0);
    add(&f, "medusa_head.0.0.linear.weight", 64, 64);
    CHECK(check(&f, "\"tie_word_embeddings\": true", &c, &e) == 0, "%s", e.msg);
}

/* Each tensor missing, of another shape, of another type: the error is one line with its name. */
static void refuses_each(void)
{
    struct fake full, f;
    struct config c;
    struct err e;
    static const char more[] = "\"attention_bias\": true, \"mlp_bias\": true";
    fill(&full, true, true, true, false, true);
    for (size_t i = 0; i < full.n; i++) {
        f = full;
        memmove(&f.t[i], &f.t[i + 1], (f.n - i - 1) * sizeof *f.t);
        f.n--;
        CHECK(check(&f, more, &c, &e) == -1 && e.code == ERR_INPUT &&
                  (strstr(e.msg, full.t[i].name) || strstr(e.msg, "num_hidden_layers")),
              "%s: %s", full.t[i].name, e.msg);
        for (int k = 0; k < 4; k++) {
            f = full;
            if (k == 0)
                f.t[i].rows += 1;
            else if (k == 1)
                f.t[i].cols = f.t[i].cols ? 0 : 1;
            else if (k == 2)
                f.t[i].cols += 2;
            else
                f.t[i].dtype = "I8";
            CHECK(check(&f, more, &c, &e) == -1 && e.code == ERR_INPUT && strstr(e.msg, full.t[i].name),
                  "%s, %d: %s", full.t[i].name, k, e.msg);
            CHECK(strstr(e.msg, k < 3 ? "config.json needs" : "allowed are BF16, F16 and F32"), "%s", e.msg);
        }
    }
}

static void refuses(void)
{
    struct fake f;
    struct config c;
    struct err e = { 0 };
    fill(&f, false, false, false, false, true);
    f.layers = 3;
    bad_check("tensors/c3_layers", "model", check(&f, "", &c, &e), &e, 0, 0);
    f.layers = 2;
    f.t[0].rows = 101;
    bad_check("tensors/c4_vocab", "model", check(&f, "", &c, &e), &e, 0, 0);
    fill(&f, false, false, false, false, false);
    bad_check("tensors/c8_untied_without_head", "model", check(&f, "", &c, &e), &e, 0, 0);
    fill(&f, false, false, false, false, true);
    f.t[2].dtype = "F32";
    bad_check("tensors/c8_tied_other_type", "model", check(&f, "\"tie_word_embeddings\": true", &c, &e), &e,
              0, 0);
    f.t[2].dtype = "BF16";
    f.t[2].rows = 99;
    bad_check("tensors/c8_tied_other_shape", "model", check(&f, "\"tie_word_embeddings\": true", &c, &e), &e,
              0, 0);
    fill(&f, false, false, false, false, true);
    f.type = "qwen2";
    bad_check("tensors/c10_qwen2_without_biases", "model", check(&f, "", &c, &e), &e, 0, 0);
    f.type = "qwen3";
    bad_check("tensors/c10_qwen3_without_norms", "model", check(&f, "", &c, &e), &e, 0, 0);
    f.type = "llama";
    f.t[5].cols = 32;
    bad_check("tensors/c10_shape", "model", check(&f, "", &c, &e), &e, 0, 0);
    fill(&f, false, false, false, false, true);
    f.t[5].dtype = "I8";
    bad_check("tensors/c10_type", "model", check(&f, "", &c, &e), &e, 0, 0);
}

/* The cache of the longest context of the largest shapes exceeds size_t: refused before anything is
 * allocated. */
static void refuses_sizes(void)
{
    static const char json[] =
        "{\"model_type\": \"mistral\", \"sliding_window\": null, \"num_hidden_layers\": 512, "
        "\"hidden_size\": 1048576, \"num_attention_heads\": 65536, \"num_key_value_heads\": 65536, "
        "\"head_dim\": 512, \"max_position_embeddings\": 1073741824, \"vocab_size\": 16777216, "
        "\"intermediate_size\": 16777216}";
    struct config c;
    struct tensors ts;
    struct err e = { 0 };
    size_t b;
    CHECK(config_parse(&c, "config.json", json, strlen(json), NULL, NULL, 0, &e) == 0, "%s", e.msg);
    CHECK(!config_kv_bytes(&c, c.context, 4, &b) && config_kv_bytes(&c, 1, 4, &b) &&
          b == (size_t)512 * 2 * 65536 * 512 * 4);
    /* 512 layers of 2 x 2^20 x 2^25 + 2 x 2^20 x 2^25 + 3 x 2^24 x 2^20 weights, and the rest */
    CHECK(config_count_params(&c) ==
          (size_t)512 * (4 * ((size_t)1 << 45) + 3 * ((size_t)1 << 44) + (2 << 20)) + (1 << 20) +
              2 * ((size_t)1 << 44));
    CHECK(tensors_parse(&ts, "model", "{}", 2, 0, &e) == 0);
    bad_check("tensors/c9_cache", "model", config_check_tensors(&c, &ts, &e), &e, 0, 0);
    tensors_close(&ts);
}

/* Tied, with a lm_head.weight on disk: a copy of the embedding is accepted, one different byte is not. */
static void tied_bytes(void)
{
    char folder[] = "/tmp/test_tensors_XXXXXX", path[80], head[TENSORS * 256];
    struct fake f;
    struct config c;
    struct tensors ts;
    struct err e = { 0 };
    fill(&f, false, false, false, false, true);
    CHECK(check(&f, "\"tie_word_embeddings\": true", &c, &e) == 0);
    size_t data = header(&f, head), n = strlen(head), embed = 100 * 64 * 2, at = 64 * 2 + embed;
    char *file = calloc(1, 8 + n + data);
    memcpy(file, &n, 8);
    memcpy(file + 8, head, n);
    for (size_t i = 0; i < embed; i++)
        file[8 + n + i] = file[8 + n + at + i] = (char)(i * 7);
    CHECK(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    for (int k = 0; k < 2; k++) {
        FILE *out = fopen(path, "wb");
        file[8 + n + at + embed - 1] ^= (char)k;
        CHECK(out && fwrite(file, 1, 8 + n + data, out) == 8 + n + data && fclose(out) == 0);
        CHECK(tensors_open(&ts, folder, &e) == 0, "%s", e.msg);
        int r = config_check_tensors(&c, &ts, &e);
        if (k)
            bad_check("tensors/c8_tied_other_bytes", path, r, &e, 0, 0);
        else
            CHECK(r == 0, "%s", e.msg);
        tensors_close(&ts);
    }
    free(file);
    unlink(path);
    rmdir(folder);
}

static void demo(void)
{
    struct config c;
    struct tensors ts;
    struct err e;
    if (access("models/demo/model.safetensors", R_OK))
        SKIP("models/demo is not here");
    CHECK(config_read(&c, "models/demo", &e) == 0 && tensors_open(&ts, "models/demo", &e) == 0 &&
              config_check_tensors(&c, &ts, &e) == 0,
          "%s", e.msg);
    CHECK(config_count_params(&c) == ts.data_bytes / 2, "%zu parameters, %zu bytes", config_count_params(&c),
          ts.data_bytes);
    CHECK(c.n_eos == 1 && c.eos[0] == 4095 && c.bos == 4094 && c.context == 131072 &&
          strcmp(config_generation(&c, "do_sample"), "true") == 0 &&
          strtod(config_generation(&c, "temperature"), NULL) == 1 &&
          strtod(config_generation(&c, "min_p"), NULL) == 0.05);
    tensors_close(&ts);
}

int main(void)
{
    RUN(accepts);
    RUN(refuses_each);
    RUN(refuses);
    RUN(refuses_sizes);
    RUN(tied_bytes);
    RUN(demo);
    free(bad_table);
    return test_end();
}
