/* config.json and generation_config.json are understood as transformers does, with equal rope frequencies. */
#include "src/model/config.h"
#include "src/model/config_tensors.h"
#include "src/model/config.h"
#include "tests/bad.h"

static int parse(struct config *c, const char *json, const char *generation, struct err *e)
{
    return config_parse(c, "config.json", json, strlen(json), "generation_config.json", generation,
                        generation ? strlen(generation) : 0, e);
}

/* The distance of two positive floats in float32 steps. */
static int64_t ulps(float a, uint32_t b)
{
    union { float f; uint32_t u; } x = { a };
    return llabs((int64_t)x.u - (int64_t)b);
}

static size_t n_cases, n_powers, n_exact, n_values;

static void compare_shape(const struct config *c, const char *want, const char *json)
{
    char layers[CONFIG_LAYERS_MAX + 1], got[2 * CONFIG_LAYERS_MAX + 256];
    bool any = false;
    for (size_t l = 0; l < c->n_layers; l++) {
        layers[l] = c->layer[l].window ? '1' : '0';
        any |= c->layer[l].window;
    }
    layers[c->n_layers] = 0;
    snprintf(got, sizeof got, "%zu %zu %zu %zu %zu %zu %zu %zu %d %zu %s %g %d %d", c->vocab, c->hidden,
             c->ffn, c->n_layers, c->n_heads, c->n_kv_heads, c->head_dim, c->max_position, c->tied, c->window,
             layers, c->rms_eps, c->bos, c->n_eos ? c->eos[0] : -1);
    for (size_t l = 0; l < c->n_layers; l++)
        layers[l] = c->layer[l].experts ? '1' : '0';
    const size_t n = strlen(got);
    if (c->n_experts)
        snprintf(got + n, sizeof got - n, " %zu %zu %zu %d %s", c->n_experts, c->experts_used, c->expert_ffn,
                 c->experts_normalised, layers);
    CHECK(strcmp(got, want) == 0, "\n  %s\n  got  %s\n  want %s", json, got, want);
    CHECK(any ? c->window > 0 : true, "%s", json);
}

/* Reads floats in hex into x[0..max) and returns their number. */
static size_t read_hex(char *hex, uint32_t *x, size_t max)
{
    size_t n = 0;
    for (char *p = strtok(hex, " \n"); p; p = strtok(NULL, " \n"))
        if (n < max)
            x[n++] = (uint32_t)strtoul(p, NULL, 16);
    return n;
}

/* Powers are within one float32 step of torch's. Computed from torch's powers, every bit is equal. */
static void compare_rope(const struct config *c, char *rope, char *powers, const char *json)
{
    uint32_t want[HEAD_DIM_MAX / 2 + 1], torch[HEAD_DIM_MAX / 2];
    float power[HEAD_DIM_MAX / 2], inv_freq[HEAD_DIM_MAX / 2], factor;
    size_t n = c->head_dim / 2;
    CHECK(read_hex(rope, want, HEAD_DIM_MAX / 2 + 1) == n + 1 &&
              read_hex(powers, torch, HEAD_DIM_MAX / 2) == n,
          "%s", json);
    rope_powers(c, power);
    for (size_t i = 0; i < n; i++) {
        n_exact += ulps(power[i], torch[i]) == 0;
        n_powers++;
        CHECK(ulps(power[i], torch[i]) <= 1, "%s: power %zu is %a", json, i, (double)power[i]);
        memcpy(&power[i], &torch[i], 4);
    }
    rope_frequencies(c, power, inv_freq, &factor);
    n_values += n + 1;
    CHECK(ulps(factor, want[0]) == 0, "%s: factor %a, want %08x", json, (double)factor, want[0]);
    for (size_t i = 0; i < n; i++)
        CHECK(ulps(inv_freq[i], want[i + 1]) == 0, "%s: frequency %zu is %a, want %08x", json, i,
              (double)inv_freq[i], want[i + 1]);
}

/* CONFIG_FIXTURE names another output of tests/make/make_config_fixture.py. */
static void as_transformers(void)
{
    const char *path = getenv("CONFIG_FIXTURE");
    FILE *f = fopen(path ? path : "tests/data/config_fixture.txt", "r");
    char *line = NULL;
    size_t size = 0;
    CHECK(f, "no fixture");
    while (f && getline(&line, &size, f) > 0) {
        char *json = line, *shape = strchr(json, '\t');
        char *rope = shape ? strchr(shape + 1, '\t') : NULL, *powers = rope ? strchr(rope + 1, '\t') : NULL;
        struct config c;
        struct err e;
        CHECK(powers, "bad line");
        if (!powers)
            break;
        *shape++ = *rope++ = *powers++ = 0;
        n_cases++;
        int r = parse(&c, json, NULL, &e);
        CHECK(r == 0, "%s: %s", json, e.msg);
        if (r)
            continue;
        compare_shape(&c, shape, json);
        compare_rope(&c, rope, powers, json);
    }
    free(line);
    if (f)
        fclose(f);
    CHECK(n_cases >= 60, "%zu cases", n_cases);
    printf("    %zu configurations; %zu of %zu powers are torch's, the others one float32 step off; all %zu "
           "values computed from them equal\n",
           n_cases, n_exact, n_powers, n_values);
}

static const char small[] = "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 128, "
                            "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
                            "\"num_key_value_heads\": 2, \"vocab_size\": 100, \"max_position_embeddings\": "
                            "512, \"bos_token_id\": 1, \"eos_token_id\": 2}";

static void bad_config(const char *in, const char *file)
{
    char name[300], path[600], *json;
    size_t n, len = strlen(file);
    struct config c;
    struct err e = { 0 };
    snprintf(name, sizeof name, "config/%s", file);
    snprintf(path, sizeof path, "%s/%s", in, file);
    CHECK(file_read(&json, &n, path, 1 << 20, &e) == 0, "%s", e.msg);
    size_t before = bad_allocated;
    bool generation = len > 16 && strcmp(file + len - 16, ".generation.json") == 0;
    int r = generation ? config_parse(&c, "config.json", small, strlen(small), path, json, n, &e)
                       : config_parse(&c, path, json, n, NULL, NULL, 0, &e);
    bad_check(name, path, r, &e, bad_allocated - before, n);
    free(json);
}

static void refuses_files(void)
{
    bad_seen = 0;
    bad_each("build/data/bad/config", bad_config);
    CHECK(bad_seen == bad_entries("config/"), "%zu files, %zu expected", bad_seen, bad_entries("config/"));
}

/* A missing or too large file, and a generation_config.json that exists but cannot be read. */
static void refuses_no_file(void)
{
    char folder[] = "/tmp/test_config_XXXXXX", path[80], gen[80];
    struct config c;
    struct err e = { 0 };
    CHECK(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/config.json", folder);
    snprintf(gen, sizeof gen, "%s/generation_config.json", folder);
    bad_check("no_config/missing", path, config_read(&c, folder, &e), &e, 0, 0);
    CHECK(mkdir(path, 0700) == 0);
    bad_check("no_config/folder", path, config_read(&c, folder, &e), &e, 0, 0);
    rmdir(path);
    CHECK(mkfifo(path, 0600) == 0);
    bad_check("no_config/fifo", path, config_read(&c, folder, &e), &e, 0, 0);
    unlink(path);
    FILE *f = fopen(path, "w");
    CHECK(f && ftruncate(fileno(f), CONFIG_BYTES_MAX + 1) == 0);
    size_t before = bad_allocated;
    bad_check("no_config/large", path, config_read(&c, folder, &e), &e, bad_allocated - before, 0);
    CHECK(ftruncate(fileno(f), 0) == 0 && fputs(small, f) >= 0 && fclose(f) == 0);
    CHECK(config_read(&c, folder, &e) == 0 && !c.has_generation_config, "%s", e.msg);
    CHECK(symlink("nowhere", gen) == 0);
    bad_check("no_config/generation_link", gen, config_read(&c, folder, &e), &e, 0, 0);
    unlink(gen);
    CHECK(mkdir(gen, 0700) == 0);
    bad_check("no_config/generation_folder", gen, config_read(&c, folder, &e), &e, 0, 0);
    rmdir(gen);
    unlink(path);
    rmdir(folder);
}

/* Nesting of 100,000 is refused fast. A file of keys at the size limit is read fast. */
static void refuses_large(void)
{
    size_t n = 100000, before;
    struct config c;
    struct err e = { 0 };
    char *p = malloc(CONFIG_BYTES_MAX);
    memset(p, '[', n);
    before = bad_allocated;
    bad_check("large/config_nested", "x", config_parse(&c, "x", p, n, NULL, NULL, 0, &e), &e,
              bad_allocated - before, 0);
    n = 0;
    for (p[n++] = '{'; n < CONFIG_BYTES_MAX - 8;)
        n += (size_t)sprintf(p + n, "\"\":{},");
    p[n - 1] = '}';
    before = bad_allocated;
    bad_check("large/config_keys", "x", config_parse(&c, "x", p, n, NULL, NULL, 0, &e), &e,
              bad_allocated - before, 0);
    free(p);
}

static void refuses_every_prefix(void)
{
    char *json;
    size_t n, refused = 0;
    struct config c;
    struct err e;
    CHECK(file_read(&json, &n, "models/demo/config.json", 1 << 20, &e) == 0, "%s", e.msg);
    while (n && json[n - 1] == '\n')
        n--;
    CHECK(config_parse(&c, "x", json, n, NULL, NULL, 0, &e) == 0, "%s", e.msg);
    for (size_t i = 0; i < n; i++)
        refused += config_parse(&c, "x", json, i, NULL, NULL, 0, &e) == -1 && e.code == ERR_INPUT;
    CHECK(refused == n, "%zu of %zu prefixes", refused, n);
    free(json);
}

/* Parses `small` with more members. */
static int parse_with(struct config *c, const char *more, const char *generation, struct err *e)
{
    char json[4096];
    snprintf(json, sizeof json, "%.*s, %s}", (int)strlen(small) - 1, small, more);
    return parse(c, json, generation, e);
}

/* Optional keys and their meaning. */
static void accepts(void)
{
    static const char *const more[] = {
        "\"architectures\": [\"LlamaForCausalLM\"]", "\"architectures\": null", "\"architectures\": []",
            "\"hidden_act\": \"swish\"", "\"quantization_config\": null",
        "\"partial_rotary_factor\": 1.0",
            "\"pretraining_tp\": 2, \"use_cache\": false, \"torch_dtype\": \"float16\", \"pad_token_id\": -1",
                "\"rope_scaling\": null, \"rope_parameters\": null",
        "\"rope_scaling\": {\"type\": \"default\"}",
            "\"rope_scaling\": {\"rope_type\": \"linear\", \"type\": \"mrope\", \"factor\": 2}",
                "\"sliding_window\": null", "\"head_dim\": 16",
        "\"layer_types\": [\"full_attention\", \"full_attention\"]",
            "\"_name_or_path\": \"\\\\x\", \"x\": [[[]]]", "\"attn_logit_softcapping\": null",
                "\"num_local_experts\": 0",
        "\"is_causal\": true", "\"max_length\": 20, \"temperature\": \"hot\"", "\"rope_theta\": 1000000",
            "\"rope_theta\": 1e6",
    };
    struct config c;
    struct err e;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        CHECK(parse_with(&c, more[i], NULL, &e) == 0, "%s: %s", more[i], e.msg);
    CHECK(parse(&c, "{\"architectures\": [\"Qwen3ForCausalLM\"], \"use_qk_norm\": null}", NULL, &e) == 0 &&
              strcmp(c.model_type, "qwen3") == 0 && c.layer[0].qk_norm && !c.qkv_bias,
          "%s", e.msg);
    CHECK(parse(&c, "{\"model_type\": \"qwen2\", \"attention_bias\": true}", NULL, &e) == 0 && c.qkv_bias &&
              !c.o_bias && !c.layer[0].qk_norm,
          "%s", e.msg);
    CHECK(parse(&c, "{\"model_type\": \"qwen3\", \"attention_bias\": true}", NULL, &e) == 0 && c.qkv_bias &&
              c.o_bias,
          "%s", e.msg);
    CHECK(parse_with(&c, "\"attention_bias\": true, \"mlp_bias\": true", NULL, &e) == 0 && c.qkv_bias &&
              c.o_bias && c.mlp_bias,
          "%s", e.msg);
    CHECK(parse(&c, small, NULL, &e) == 0 && !c.qkv_bias && !c.o_bias && !c.mlp_bias && !c.tied);
}

/* The ids that end a text: the union of both files, or the architecture's default if neither has any. */
static void end_ids(void)
{
    struct config c;
    struct err e;
    CHECK(parse(&c, small, NULL, &e) == 0 && c.bos == 1 && c.n_eos == 1 && c.eos[0] == 2);
    CHECK(parse(&c, small, "{\"eos_token_id\": [5, 2, 7], \"bos_token_id\": 9}", &e) == 0 && c.bos == 1 &&
              c.n_eos == 3,
          "%s", e.msg);
    CHECK(c.eos[0] == 2 && c.eos[1] == 5 && c.eos[2] == 7);
    CHECK(parse(&c, small, "{\"eos_token_id\": null}", &e) == 0 && c.n_eos == 1 && c.eos[0] == 2);
    CHECK(!c.no_token_key);
    CHECK(parse(&c, small, "{\"eos_token_id\": [7, 4294967295], \"bos_token_id\": 3}", &e) == 0, "%s", e.msg);
    CHECK(c.bos == 1 && c.n_eos == 2 && c.eos[1] == 7 && strcmp(c.no_token_key, "eos_token_id") == 0 &&
          c.no_token == 4294967295, "%s", e.msg);
    CHECK(parse(&c, "{\"model_type\": \"llama\", \"bos_token_id\": -1, \"eos_token_id\": -1}", NULL, &e) == 0,
          "%s", e.msg);
    CHECK(c.bos == -1 && c.n_eos == 0 && c.no_token == -1);
    CHECK(parse(&c, "{\"model_type\": \"llama\"}", NULL, &e) == 0 && c.bos == 1 && c.n_eos == 1 &&
          c.eos[0] == 2);
    CHECK(parse(&c, "{\"model_type\": \"llama\", \"vocab_size\": 2}", NULL, &e) == 0 && c.bos == 1 &&
          c.n_eos == 0);
    CHECK(parse(&c, "{\"model_type\": \"llama\", \"eos_token_id\": null, \"bos_token_id\": null}", NULL,
                &e) == 0 &&
          c.bos == -1 && c.n_eos == 0);
    CHECK(parse(&c, "{\"model_type\": \"llama\"}", "{\"eos_token_id\": 7}", &e) == 0 && c.n_eos == 1 &&
          c.eos[0] == 7);
    CHECK(parse(&c, "{\"model_type\": \"llama\"}", "{}", &e) == 0 && c.n_eos == 0 && c.bos == 1);
    CHECK(parse(&c, "{\"model_type\": \"qwen2\"}",
                "{\"eos_token_id\": [151645, 151643], \"bos_token_id\": 151643}", &e) == 0 &&
          c.n_eos == 2 && c.bos == 151643);
}

static bool has(const struct config *c, const char *key, const char *value)
{
    const char *v = config_generation(c, key);
    return v && strcmp(v, value) == 0;
}

/* Mistral's wrapper, and the growth of queries. */
static void ministral3(void)
{
    static const char growing[] =
        "{\"model_type\": \"mistral3\", \"text_config\": {\"model_type\": \"ministral3\", "
        "\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 16, "
        "\"original_max_position_embeddings\": 16384%s}}}";
    static const struct { const char *more, *message; } bad[] = {
        { "", "llama_4_scaling_beta is missing" },
        { ", \"llama_4_scaling_beta\": \"0.1\"", "llama_4_scaling_beta" },
        { ", \"llama_4_scaling_beta\": -0.1", "llama_4_scaling_beta" },
        { ", \"llama_4_scaling_beta\": 1e9", "llama_4_scaling_beta" },
        { ", \"llama_4_scaling_beta\": null", "llama_4_scaling_beta" },
        { ", \"llama_5\": 0.1", "is not implemented" },
    };
    static const struct { const char *json, *message; } wrappers[] = {
        { "{\"model_type\": \"mistral3\"}", "text_config is missing" },
        { "{\"model_type\": \"mistral3\", \"text_config\": 3}", "allowed is an object" },
        { "{\"model_type\": \"mistral3\", \"text_config\": {\"model_type\": \"llama\"}}",
          "allowed are mistral and ministral3" },
        { "{\"model_type\": \"mistral3\", \"text_config\": {\"model_type\": \"ministral3\"}}",
          "rope_parameters of rope_type yarn are missing" },
        { "{\"model_type\": \"mistral\", \"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 2, "
          "\"llama_4_scaling_beta\": 0.1}}", "is not implemented" },
    };
    struct config c;
    struct err e;
    char json[600];
    snprintf(json, sizeof json, growing, ", \"llama_4_scaling_beta\": 0.1, \"max_position_embeddings\": 9");
    CHECK(parse(&c, json, NULL, &e) == 0, "%s", e.msg);
    CHECK(!strcmp(c.model_type, "ministral3") && near(c.rope.growth, 0.1, 1e-12, 0) && !c.window &&
          c.rope.original == 16384 && c.context == 262144 && c.head_dim == 128);
    CHECK(config_scale_context(&c, "linear:2", &e) == 0 && near(c.rope.growth, 0.1, 1e-12, 0) &&
          c.rope.original == 16384);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(json, sizeof json, growing, bad[i].more);
        CHECK(parse(&c, json, NULL, &e) == -1 && e.code == ERR_INPUT && strstr(e.msg, bad[i].message),
              "%zu: %s", i, e.msg);
    }
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        CHECK(parse(&c, wrappers[i].json, NULL, &e) == -1 && e.code == ERR_INPUT &&
              strstr(e.msg, wrappers[i].message), "%zu: %s", i, e.msg);
    CHECK(parse(&c, "{\"model_type\": \"mistral3\", \"text_config\": {\"sliding_window\": null}}", NULL,
                &e) == 0 && !strcmp(c.model_type, "mistral") && !c.window, "%s", e.msg);
}

/* What Gemma 3 has by default, in both spellings of its frequencies. */
static void gemma3(void)
{
    struct config c;
    struct err e;
    float local[HEAD_DIM_MAX / 2], plain[HEAD_DIM_MAX / 2], factor;
    CHECK(parse(&c, "{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\", "
                    "\"hidden_size\": 2560, \"intermediate_size\": 10240, \"num_hidden_layers\": 34, "
                    "\"rope_scaling\": {\"factor\": 8.0, \"rope_type\": \"linear\"}, "
                    "\"sliding_window\": 1024}, \"eos_token_id\": [1, 106]}", NULL, &e) == 0, "%s", e.msg);
    CHECK(!strcmp(c.model_type, "gemma3") && c.vocab == 262208 && c.head_dim == 256 && c.n_kv_heads == 4 &&
          c.tied && c.layer[0].gelu && c.layer[0].norms == NORM_BOTH && c.norm_plus_one &&
          c.layer[0].qk_norm && c.n_eos == 2 && c.bos == 2 &&
          c.embed == EMBED_SCALED_ROUNDED && near(c.query_scalar, 256, 0, 0));
    for (size_t l = 0; l < 34; l++)
        CHECK(c.layer[l].window == (l % 6 < 5 ? 1024 : 0) && c.layer[l].local == (l % 6 < 5));
    CHECK(near(c.rope.theta, 1e6, 0, 0) && near(c.rope.local_theta, 1e4, 0, 0) && c.context == 131072);
    CHECK(config_scale_context(&c, "linear:2", &e) == -1 && strstr(e.msg, "are scaled already"), "%s", e.msg);
    /* the frequencies of windowed layers are not scaled */
    CHECK(config_rope_local(&c, local));
    c.rope = (struct rope_config){ .theta = 1e4, .factor = 1 };
    config_rope(&c, plain, &factor);
    CHECK(!memcmp(local, plain, 128 * sizeof *local));

    CHECK(parse(&c, "{\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 3, \"layer_types\": "
                    "[\"full_attention\", \"sliding_attention\", \"full_attention\"], \"rope_parameters\": "
                    "{\"full_attention\": {\"rope_type\": \"linear\", \"factor\": 4, \"rope_theta\": 2e6}, "
                    "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 3e4}}}", NULL,
                &e) == 0, "%s", e.msg);
    CHECK(c.window == 4096 && !c.layer[0].window && c.layer[1].window && !c.layer[2].window &&
          c.rope.type == ROPE_LINEAR && near(c.rope.factor, 4, 0, 0) && near(c.rope.theta, 2e6, 0, 0) &&
          near(c.rope.local_theta, 3e4, 0, 0) && c.n_eos == 1 && c.eos[0] == 1);
    CHECK(parse(&c, "{\"model_type\": \"gemma3_text\", \"rope_theta\": 5e5, \"rope_local_base_freq\": 2e4, "
                    "\"sliding_window_pattern\": 2, \"rope_parameters\": {\"full_attention\": null}}", NULL,
                &e) == 0, "%s", e.msg);
    CHECK(c.layer[0].window && !c.layer[1].window && c.rope.type == ROPE_PLAIN &&
          near(c.rope.theta, 5e5, 0, 0) &&
          near(c.rope.local_theta, 2e4, 0, 0));
    CHECK(config_scale_context(&c, "yarn:2", &e) == 0 && near(c.rope.local_theta, 2e4, 0, 0) &&
          c.context == 262144, "%s", e.msg);
}

#define FIVE "\"sliding_attention\", \"sliding_attention\", \"sliding_attention\", \"sliding_attention\", " \
             "\"full_attention\", "
/* Gemma 4 31B as published, in a wrapper, and the spelling that transformers writes now. */
static void gemma4(void)
{
    struct config c, d;
    struct err e;
    float f[HEAD_DIM_MAX / 2], local[HEAD_DIM_MAX / 2], plain[HEAD_DIM_MAX / 2], factor;
    CHECK(parse(&c, "{\"model_type\": \"gemma4\", \"text_config\": {\"model_type\": \"gemma4_text\", "
                    "\"hidden_size\": 5376, \"intermediate_size\": 21504, \"num_hidden_layers\": 60, "
                    "\"num_attention_heads\": 32, \"num_key_value_heads\": 16, \"head_dim\": 256, "
                    "\"global_head_dim\": 512, \"num_global_key_value_heads\": 4, \"attention_k_eq_v\": "
                    "true, \"hidden_size_per_layer_input\": 0, \"final_logit_softcapping\": 30.0, "
                    "\"use_bidirectional_attention\": \"vision\", \"sliding_window\": 1024}}", NULL, &e) == 0,
          "%s", e.msg);
    CHECK(!strcmp(c.model_type, "gemma4") && c.heads_differ && c.n_kv_heads == 16 && c.head_dim == 512 &&
          c.tied && c.layer[0].gelu && c.layer[0].norms == NORM_BOTH && !c.norm_plus_one &&
          c.layer[0].v_norm && c.layer[0].scaled &&
          near(c.softcap, 30, 0, 0) && near(c.query_scalar, 1, 0, 0) && !c.experts_beside && c.bos == 2);
    for (size_t l = 0; l < 60; l++) {
        const bool in = l % 6 < 5;
        CHECK(c.layer[l].window == (in ? 1024 : 0) && c.layer[l].local == in && c.layer[l].v_is_k == !in &&
              c.layer[l].n_kv_heads == (in ? 16 : 4) && c.layer[l].head_dim == (in ? 256 : 512),
              "layer %zu", l);
    }
    CHECK(c.heads[60].first == 50 * 16 + 10 * 4 && c.heads[60].dims == 50 * 16 * 256 + 10 * 4 * 512);
    CHECK(config_scale_context(&c, "linear:2", &e) == -1 && strstr(e.msg, "not for gemma4 models"), "%s",
          e.msg);
    /* 64 of 256 pairs turn, as in a head of 512; a theta of their own for windowed layers */
    config_rope(&c, f, &factor);
    CHECK(config_rope_local(&c, local) && config_local_rotary(&c) == 256 && c.rotary == 512);
    d = c;
    d.rope = (struct rope_config){ .theta = 1e6, .factor = 1 };
    config_rope(&d, plain, &factor);
    CHECK(!memcmp(f, plain, 64 * sizeof *f) && plain[64] != 0);
    for (size_t i = 64; i < 256; i++)
        CHECK(f[i] == 0);
    d.rotary = 256, d.rope.theta = 1e4;
    config_rope(&d, plain, &factor);
    CHECK(!memcmp(local, plain, 128 * sizeof *local));

    CHECK(parse(&c, "{\"model_type\": \"gemma4_unified_text\", \"num_hidden_layers\": 3, \"layer_types\": "
                    "[\"full_attention\", \"sliding_attention\", \"sliding_attention\"], \"head_dim\": 64, "
                    "\"per_layer_config\": {\"0\": {\"head_dim\": 32, \"num_key_value_heads\": 2}, "
                    "\"2\": {\"head_dim\": 32, \"num_key_value_heads\": 2}}, \"enable_moe_block\": true, "
                    "\"num_experts\": 9, \"top_k_experts\": 3, \"moe_intermediate_size\": 7, "
                    "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"proportional\", "
                    "\"rope_theta\": 2e6, \"factor\": 8}}}", NULL, &e) == 0, "%s", e.msg);
    CHECK(!c.layer[0].window && c.layer[1].window && !c.layer[2].window &&
          c.layer[0].head_dim == 32 && c.layer[1].n_kv_heads == 4 &&
          c.head_dim == 64 && c.rotary == 32 && c.experts_beside && c.layer[2].experts &&
          c.n_experts == 9 && c.experts_used == 3 && c.expert_ffn == 7 && c.layer[2].ffn == 9216 &&
          !c.layer[0].v_is_k && near(c.softcap, 0, 0, 0) && near(c.rope.theta, 2e6, 0, 0) &&
          near(c.rope.divisor[0], 8, 0, 0) && near(c.rope.divisor[15], 8, 0, 0) && c.window == 1024 &&
          c.context == 262144 && !c.per_layer);

    /* E2B: 15 of 35 layers have keys and values; the others read those of layers 13 and 14 */
    CHECK(parse(&c, "{\"model_type\": \"gemma4_text\", \"num_hidden_layers\": 35, \"hidden_size\": 1536, "
                    "\"intermediate_size\": 6144, \"num_key_value_heads\": 1, \"num_kv_shared_layers\": 20, "
                    "\"use_double_wide_mlp\": true, \"layer_types\": [" FIVE FIVE FIVE FIVE FIVE FIVE
                    "\"sliding_attention\", \"sliding_attention\", \"sliding_attention\", "
                    "\"sliding_attention\", \"full_attention\"]}", NULL, &e) == 0, "%s", e.msg);
    CHECK(config_caches(&c) == 15 && c.per_layer == 256 && c.per_layer_vocab == 262144 && c.window == 512 &&
          c.context == 131072 && c.heads[15].dims == 12 * 256 + 3 * 512);
    for (size_t l = 0; l < 35; l++)
        CHECK(c.layer[l].kv_layer == (l < 15 ? l : l % 5 == 4 ? 14 : 13) &&
              c.layer[l].ffn == (l < 15 ? 6144 : 12288) && config_owns_kv(&c, l) == (l < 15), "%zu", l);
}

/* Layers without RoPE: every fourth, or those of a list; windows are theirs. */
static void smollm3(void)
{
    struct config c;
    struct err e;
    float local[HEAD_DIM_MAX / 2];
    CHECK(parse(&c, "{\"model_type\": \"smollm3\", \"num_hidden_layers\": 8}", NULL, &e) == 0, "%s", e.msg);
    CHECK(c.tied && !c.window && near(c.rope.theta, 2e6, 0, 0) && c.head_dim == 128 && c.n_kv_heads == 4);
    for (size_t l = 0; l < 8; l++)
        CHECK(c.layer[l].local == (l % 4 == 3));
    CHECK(config_rope_local(&c, local));
    for (size_t i = 0; i < c.rotary / 2; i++)
        CHECK(local[i] == 0);
    CHECK(parse(&c, "{\"model_type\": \"smollm3\", \"num_hidden_layers\": 3, "
                    "\"no_rope_layers\": [1, 0, 0, 1], \"use_sliding_window\": true, "
                    "\"sliding_window\": 64, \"tie_word_embeddings\": false}", NULL, &e) == 0, "%s", e.msg);
    CHECK(!c.tied && config_has_local(&c));
    for (size_t l = 0; l < 3; l++)
        CHECK(c.layer[l].local == (l > 0) && c.layer[l].window == (l > 0 ? 64 : 0));
    CHECK(config_scale_context(&c, "yarn:2", &e) == 0 && config_rope_local(&c, local) && local[0] == 0);
    CHECK(parse(&c, "{\"model_type\": \"llama\"}", NULL, &e) == 0 && !config_rope_local(&c, local));
}

/* Longrope: the list is the model's choice, and --context-scaling short chooses the other one. */
static void phi3(void)
{
    static const char *const text =
        "{\"model_type\": \"phi3\", \"num_hidden_layers\": 2, \"hidden_size\": 64, "
        "\"num_attention_heads\": 4, \"partial_rotary_factor\": 0.5, \"max_position_embeddings\": 131072, %s"
        "\"rope_scaling\": {\"type\": \"su\", \"long_factor\": [1, 2, 4, 8], "
        "\"short_factor\": [1, 1, 1, 2]}}";
    struct config c;
    struct err e;
    char json[512];
    float plain[4], f[4], factor;
    snprintf(json, sizeof json, text, "");
    CHECK(parse(&c, json, NULL, &e) == 0, "%s", e.msg);
    CHECK(c.head_dim == 16 && c.rotary == 8 && c.n_kv_heads == 4 && c.rope.original == 4096 && !c.window &&
          c.rope.type == ROPE_LONG && c.context == 131072 && !c.rope.shorter && c.eos[0] == 32000);
    rope_powers(&c, plain);
    config_rope(&c, f, &factor);
    CHECK(near(factor, sqrt(1 + log(32) / log(4096)), 1e-6, 0), "%.9g", factor);
    for (size_t i = 0; i < 4; i++)
        CHECK(f[i] == 1 / ((float)(1 << i) * plain[i]));
    CHECK(config_scale_context(&c, "yarn:2", &e) == -1 && strstr(e.msg, "phi3 model is short"), "%s", e.msg);
    CHECK(config_scale_context(&c, "short", &e) == 0 && c.context == 4096 && c.rope.shorter);
    config_rope(&c, f, &factor);
    CHECK(near(factor, sqrt(1 + log(32) / log(4096)), 1e-6, 0));
    for (size_t i = 0; i < 4; i++)
        CHECK(f[i] == 1 / ((i == 3 ? 2.0f : 1.0f) * plain[i]));
    /* within its original length a model has the short list */
    snprintf(json, sizeof json, text, "\"original_max_position_embeddings\": 131072, ");
    CHECK(parse(&c, json, NULL, &e) == 0 && c.rope.shorter && c.context == 131072, "%s", e.msg);
    config_rope(&c, f, &factor);
    CHECK(factor == 1);
    CHECK(parse(&c, "{\"model_type\": \"phi3\", \"sliding_window\": 2047}", NULL, &e) == 0, "%s", e.msg);
    CHECK(c.window == 2047 && c.layer[0].window && c.rotary == 96 && c.rope.type == ROPE_PLAIN);
    CHECK(config_scale_context(&c, "short", &e) == -1, "a model without longrope");
}

static void gpt_oss(void)
{
    struct config c;
    struct err e;
    CHECK(parse(&c, "{\"model_type\": \"gpt_oss\", \"num_hidden_layers\": 4, \"num_local_experts\": 32, "
                    "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 32.0, \"truncate\": false, "
                    "\"original_max_position_embeddings\": 4096}}", NULL, &e) == 0, "%s", e.msg);
    CHECK(c.qkv_bias && c.o_bias && c.experts_bias && c.layer[0].head_logits && c.n_experts == 32 &&
          c.experts_used == 4 && c.expert_ffn == 2880 && c.experts_normalised && c.window == 128 &&
          !c.rope.truncate && c.context == 131072 && near(c.swiglu_limit, 7, 0, 0) &&
          near(c.swiglu_alpha, 1.702, 0, 0) && near(c.rope.theta, 150000, 0, 0) && c.head_dim == 64);
    for (size_t l = 0; l < 4; l++)
        CHECK(c.layer[l].window == (l % 2 ? 0 : 128) && c.layer[l].experts);
    CHECK(parse(&c, "{\"model_type\": \"gpt_oss\"}", NULL, &e) == -1 &&
              strstr(e.msg, "rope_parameters of rope_type yarn are missing, gpt_oss needs"), "%s", e.msg);
}

/* OLMo 3 as published, in both spellings, and its defaults. */
static void olmo3(void)
{
    static const char *const ropes[] = {
        "\"rope_theta\": 6e5, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 8.0, "
        "\"attention_factor\": 1.2, \"original_max_position_embeddings\": 8192}",
        "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"yarn\", \"factor\": 8.0, "
        "\"attention_factor\": 1.2, \"original_max_position_embeddings\": 8192, \"rope_theta\": 6e5}, "
        "\"sliding_attention\": {\"rope_type\": \"default\", \"rope_theta\": 6e5}}",
    };
    struct config c;
    struct err e;
    for (size_t i = 0; i < 2; i++) {
        char text[600];
        snprintf(text, sizeof text, "{\"model_type\": \"olmo3\", \"max_position_embeddings\": 65536, %s}",
                 ropes[i]);
        CHECK(parse(&c, text, NULL, &e) == 0, "%s", e.msg);
        CHECK(c.layer[0].norms == NORM_AFTER && c.layer[0].qk_norm == QK_NORM_WHOLE &&
              !c.tied && c.window == 4096 &&
              c.n_kv_heads == 32 && c.head_dim == 128 && c.context == 65536 && c.rope.type == ROPE_YARN &&
              near(c.rope.attention_factor, 1.2, 0, 0) && near(c.rope.theta, 6e5, 0, 0) &&
              near(c.rope.local_theta, 6e5, 0, 0) && near(c.rms_eps, 1e-5, 0, 0));
        for (size_t l = 0; l < c.n_layers; l++)
            CHECK(c.layer[l].window == (l % 4 != 3 ? 4096 : 0) && c.layer[l].local == (l % 4 != 3),
                  "layer %zu", l);
    }
    CHECK(parse(&c, "{\"model_type\": \"olmo3\"}", NULL, &e) == 0 && c.rope.type == ROPE_PLAIN &&
              near(c.rope.theta, 5e5, 0, 0) && near(c.rope.local_theta, 5e5, 0, 0), "%s", e.msg);
}

/* EXAONE 4: the 32B and the 1.2B as published, other ways to name the layers, and its defaults. */
static void exaone4(void)
{
    static const struct { const char *keys; size_t window; const char *layers; } of[] = {
        { "\"sliding_window\": 4096, \"sliding_window_pattern\": \"LLLG\"", 4096, "LLLGLLG" },
        { "\"sliding_window\": 100, \"sliding_window_pattern\": \"LG\"", 100, "LGLGLGG" },
        { "\"sliding_window\": 100, \"sliding_window_pattern\": 3", 100, "LLGLLGL" },
        { "\"sliding_window_pattern\": \"G\"", 4096, "GGGGGGG" },
        { "\"rope_theta\": 10000", 4096, "LLLGLLL" },
        { "\"sliding_window\": null, \"sliding_window_pattern\": null", 0, "-------" },
        { "\"sliding_window\": null, \"sliding_window_pattern\": 0", 0, "-------" },
        /* the list wins, as in transformers */
        { "\"sliding_window\": 8, \"sliding_window_pattern\": \"LLLG\", \"layer_types\": ["
          "\"full_attention\", \"sliding_attention\", \"full_attention\", \"sliding_attention\", "
          "\"full_attention\", \"full_attention\", \"sliding_attention\"]", 8, "GLGLGGL" },
    };
    struct config c;
    struct err e;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char text[600];
        snprintf(text, sizeof text, "{\"model_type\": \"exaone4\", \"num_hidden_layers\": 7, %s}",
                 of[i].keys);
        CHECK(parse(&c, text, NULL, &e) == 0, "%s", e.msg);
        CHECK(c.layer[0].norms == NORM_AFTER && c.layer[0].qk_norm == QK_NORM && c.window == of[i].window &&
              near(c.rope.local_theta, 0, 0, 0), "%s", of[i].keys);
        for (size_t l = 0; l < 7; l++)
            CHECK(c.layer[l].window == (of[i].layers[l] == 'L' ? of[i].window : 0) &&
                  c.layer[l].local == (of[i].layers[l] == 'G'), "%s, layer %zu", of[i].keys, l);
    }
    CHECK(parse(&c, "{\"model_type\": \"exaone4\"}", NULL, &e) == 0 && c.hidden == 4096 && c.ffn == 16384 &&
              c.n_layers == 32 && c.n_heads == 32 && c.n_kv_heads == 32 && c.vocab == 102400 && c.bos == 0 &&
              c.n_eos == 1 && c.eos[0] == 2 && c.max_position == 2048 && near(c.rms_eps, 1e-5, 0, 0) &&
              near(c.rope.theta, 1e4, 0, 0) && !c.tied, "%s", e.msg);
}

static void generation_settings(void)
{
    struct config c;
    struct err e;
    CHECK(parse(&c, small, NULL, &e) == 0 && !c.has_generation_config && c.n_generation == 0 &&
          !*c.generation_unknown);
    CHECK(parse(&c, small,
                "{\"do_sample\": true, \"temperature\": 0.6, \"top_k\": 20, \"top_p\": 0.95, \"min_p\": 0, "
                "\"eta_cutoff\": 3e-4, \"repetition_penalty\": 1.05}",
                &e) == 0,
          "%s", e.msg);
    CHECK(c.has_generation_config && has(&c, "do_sample", "true") && has(&c, "temperature", "0.6") &&
          has(&c, "top_k", "20") && has(&c, "top_p", "0.95") && has(&c, "min_p", "0") &&
          has(&c, "eta_cutoff", "3e-4") && has(&c, "repetition_penalty", "1.05") && !*c.generation_unknown);
    CHECK(parse(&c, small, "{\"do_sample\": false, \"temperature\": 0.9, \"top_k\": null, \"top_p\": null}",
                &e) == 0 &&
              has(&c, "do_sample", "false") && has(&c, "temperature", "0.9") && c.n_generation == 2,
          "%s", e.msg);
    CHECK(parse(&c, small, "{\"top_p\": 0.9, \"top_p\": 0.8}", &e) != 0, "a key given twice");
    CHECK(parse(&c, small,
                "{\"typical_p\": 1.0, \"num_beams\": 1, \"epsilon_cutoff\": 0.0, \"bad_words_ids\": null, "
                "\"max_length\": 4096, \"transformers_version\": \"4.31\"}", &e) == 0 &&
          !*c.generation_unknown && !config_generation(&c, "do_sample"), "%s", e.msg);
    CHECK(parse(&c, small, "{\"epsilon_cutoff\": 0.9}", &e) == 0 &&
              strcmp(c.generation_unknown, "epsilon_cutoff 0.9") == 0,
          "%s", c.generation_unknown);
    CHECK(parse(&c, small, "{\"suppress_tokens\": [1, 2]}", &e) == 0 &&
              strcmp(c.generation_unknown, "suppress_tokens [1, 2]") == 0,
          "%s", c.generation_unknown);
}

/* The usable length, from the file and with --context-scaling. */
static void context(void)
{
    static const struct { const char *rope; size_t context; } files[] = {
        { "\"rope_scaling\": null", 512 },
        { "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}", 2048 },
        { "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 1.7}", 870 },
        { "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4}", 512 },
        { "\"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
          "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 128}", 512 },
        { "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 64}",
          512 },
        { "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4, \"original_max_position_embeddings\": 256}",
          1024 },
        { "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}", 2048 },
        { "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": null, \"original_max_position_embeddings\": "
          "128}", 512 },
    };
    static const struct { const char *spec; size_t context, original; double factor; enum rope_type type;
    } specs[] = {
        { "yarn:4", 2048, 512, 4, ROPE_YARN },        { "yarn:4:256", 1024, 256, 4, ROPE_YARN },
        { "yarn:1.5:100", 512, 100, 1.5, ROPE_YARN }, { "linear:2", 1024, 0, 2, ROPE_LINEAR },
        { "yarn:1e1", 5120, 512, 10, ROPE_YARN },
    };
    static const char *const bad[] = { "", "yarn", "yarn:", "yarn:0", "yarn:0.5", "yarn:-2", "yarn:nan",
                                       "yarn:inf", "yarn: 2", "yarn:2:", "yarn:2:0", "yarn:2:1.5",
                                           "yarn:2:-1", "yarn:2:3:4",
        "yarn:2x", "linear:2:100", "ntk:2", "YARN:2", "yarn:1e9", "linear:1e6x", "yarn:0x2",
            "yarn:1000000:1073741824" };
    struct config c, n;
    struct err e;
    float inv[8], plain[8], f;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        CHECK(parse_with(&c, files[i].rope, NULL, &e) == 0 && c.context == files[i].context, "%s: %zu",
              files[i].rope, c.context);
    CHECK(parse(&c, small, NULL, &e) == 0);
    config_rope(&c, plain, &f);
    CHECK(f == 1);
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        n = c;
        CHECK(config_scale_context(&n, specs[i].spec, &e) == 0 && n.context == specs[i].context &&
                  n.rope.original == specs[i].original && n.rope.factor == specs[i].factor &&
                  n.rope.type == specs[i].type,
              "%s: %zu", specs[i].spec, n.context);
        config_rope(&n, inv, &f);
        CHECK(inv[7] < plain[7] && (f > 1) == (n.rope.type == ROPE_YARN), "%s", specs[i].spec);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        n = c;
        CHECK(config_scale_context(&n, bad[i], &e) == -1 && e.code == ERR_INPUT && strstr(e.msg, bad[i]) &&
                  memcmp(&n, &c, sizeof c) == 0,
              "%s is accepted", bad[i]);
    }
    /* On a yarn model the original length is kept. */
    CHECK(parse_with(&c, files[6].rope, NULL, &e) == 0 && config_scale_context(&c, "yarn:8", &e) == 0 &&
          c.context == 2048 && c.rope.original == 256);
}

int main(void)
{
    RUN(as_transformers);
    RUN(accepts);
    RUN(end_ids);
    RUN(ministral3);
    RUN(gemma3);
    RUN(gemma4);
    RUN(smollm3);
    RUN(phi3);
    RUN(gpt_oss);
    RUN(olmo3);
    RUN(exaone4);
    RUN(generation_settings);
    RUN(context);
    RUN(refuses_files);
    RUN(refuses_no_file);
    RUN(refuses_every_prefix);
    RUN(refuses_large);
    free(bad_table);
    return test_end();
}
