/* longhand inspect: what a model is, what memory it needs, and which files or tensors are missing. A
 * directory that lacks something is described as far as possible; then the call fails with the first
 * problem. struct inspect holds the call; start at examine. */
#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/output.h"
#include "src/base/sheet.h"
#include "src/cli/verbs.h"
#include "src/decode/decode.h"
#include "src/decode/engine.h"
#include "src/decode/weights.h"
#include "src/model/config_tensors.h"
#include "src/model/views.h"
#include "src/model/device_choice.h"
#include "src/model/safetensors.h"
#include "src/request/model_options.h"

enum { MISSING_MAX = 10000, DTYPES_MAX = 16 };

struct inspect {
    const struct options *o;
    struct engine engine;
    bool has_tensors;
    struct err first;                /* the first problem; code 0: none */
    bool has_mtp; struct err mtp;    /* the files have a draft layer; what does not fit */
    char **missing; size_t n_missing;
    struct { const char *name; size_t bytes; } dtype[DTYPES_MAX]; size_t n_dtypes;
    size_t n_params, expert_layers, kv_per_token, kv_windowed, tokens, int8_bytes;
    struct memory_plan plan;
};

static void note_problem(struct inspect *s, const struct err *e)
{
    if (!s->first.code)
        s->first = *e;
}

static void add_missing(void *ctx, const char *name)
{
    struct inspect *s = ctx;
    char **p = s->n_missing < MISSING_MAX ? realloc(s->missing, (s->n_missing + 1) * sizeof *p) : NULL;
    if (!p)
        return;
    s->missing = p;
    if ((p[s->n_missing] = strdup(name)))
        s->n_missing++;
}

static bool is_missing(const struct inspect *s, const char *name)
{
    for (size_t i = 0; i < s->n_missing; i++)
        if (strcmp(s->missing[i], name) == 0)
            return true;
    return false;
}

static bool has_file(const struct inspect *s, const char *file)
{
    char path[PATH_BYTES + 300];
    snprintf(path, sizeof path, "%s/%.255s", s->engine.dir, file);
    return access(path, F_OK) == 0;
}

/* Adds the missing files: the tokenizer, and the weights with all shards that the index names. */
static void add_missing_files(struct inspect *s)
{
    char path[PATH_BYTES + 300], *text;
    struct json root, map, v;
    struct err ignored;
    size_t n;
    if (model_is_file(s->engine.dir))
        return;
    if (!has_file(s, "tokenizer.json"))
        add_missing(s, "tokenizer.json");
    if (has_file(s, "model.safetensors"))
        return;
    if (!has_file(s, "model.safetensors.index.json")) {
        add_missing(s, "model.safetensors");
        return;
    }
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", s->engine.dir);
    if (file_read(&text, &n, path, INDEX_BYTES_MAX, &ignored))
        return;
    if (js_check(&root, path, text, n, &ignored) == 0 && js_kind(&root) == JS_OBJECT &&
        js_get(&root, "weight_map", &map, &ignored) == 1 && js_kind(&map) == JS_OBJECT)
        for (struct js_walk w = js_walk(&map); js_next(&w, NULL, &v);) {
            char *file = js_kind(&v) == JS_STRING ? js_strdup(&v) : NULL;
            if (file && !strchr(file, '/') && !has_file(s, file) && !is_missing(s, file))
                add_missing(s, file);
            free(file);
        }
    free(text);
}

static void count_dtypes(struct inspect *s)
{
    const struct tensors *ts = &s->engine.tensors;
    for (size_t i = 0; i < ts->n; i++) {
        size_t k = 0;
        if (tensor_is_dealt_scales(&ts->t[i]))           /* MXFP4 counts them */
            continue;
        while (k < s->n_dtypes && strcmp(s->dtype[k].name, ts->t[i].dtype_name))
            k++;
        if (k == DTYPES_MAX)
            continue;
        if (k == s->n_dtypes)
            s->dtype[s->n_dtypes++].name = ts->t[i].dtype_name;
        s->dtype[k].bytes += ts->t[i].bytes;
    }
}

/* Examines weights and tokenizer. Each may fail without ending the examination. */
static void examine_files(struct inspect *s)
{
    struct engine *g = &s->engine;
    struct err e = {0};
    add_missing_files(s);
    s->has_tensors =
        tensors_open_as(&g->tensors, g->dir, (enum weights)s->o->job.weights, g->config.tied, &e) == 0;
    if (!s->has_tensors) {
        note_problem(s, &e);
    } else {
        device_quantised(g->dev, model_is_quantised(&g->tensors));
        g->model.quantised = g->dev->quantised;
        count_dtypes(s);
        config_missing_tensors(&g->config, &g->tensors, add_missing, s);
        if (config_check_tensors(&g->config, &g->tensors, &e))
            note_problem(s, &e);
    }
    if (!s->has_tensors || s->first.code ||
        model_plan_bytes(&g->config, &g->tensors, g->compute, g->dev, &g->weight_bytes, &e)) {
        /* the configuration alone does not know the padding */
        if (s->has_tensors && !s->first.code)
            note_problem(s, &e);
        const struct config *c = &g->config;     /* without a table that stays in its file */
        g->weight_bytes = (s->n_params - c->n_layers * c->per_layer * c->per_layer_vocab) *
                          dtype_size(g->compute);
    }
    if (s->has_tensors && tensors_find(&g->tensors, "mtp.fc.weight")) {
        s->has_mtp = true;
        if (weights_check(DRAFTER_MTP, NULL, g, &s->mtp) == 0)
            g->own_bytes[DRAFTER_MTP] = drafters[DRAFTER_MTP]->weights->of_model(g);
    }
    if (tokenizer_open(&g->tokenizer, g->dir, g->config.vocab, &e)) {
        g->tokenizer = NULL;
        note_problem(s, &e);
    }
}

static int examine(struct inspect *s, struct err *e)
{
    struct engine *g = &s->engine;
    const char *why = "";
    enum dtype kv;
    g->compute = option_compute(s->o->job.compute);
    if (model_dir(g->dir, s->o, e) || config_read(&g->config, g->dir, e))
        return -1;
    if (s->o->job.scaling && config_scale_context(&g->config, s->o->job.scaling, e))
        return -1;
    g->ops = ops_for_cpu(&why);
    if (!g->ops)
        return err_set(e, ERR_INPUT, "LONGHAND_ISA '%s': %s", getenv("LONGHAND_ISA"), why);
    g->pool = pool_open(s->o->threads ? s->o->threads : pool_default_threads());
    if (!g->pool)
        return err_set(e, ERR_FAILED, "cannot start threads");
    g->model.config = g->config;
    g->model.compute = g->compute;
    g->model.ops = g->ops;
    g->model.pool = g->pool;
    if (device_choice_cpu_kv(&kv, g->compute, option_kv(s->o->job.kv_dtype), e))
        return -1;
    if (device_cpu_open(&g->dev, g->ops, g->pool, kv, e->msg, sizeof e->msg))
        return err_set(e, ERR_FAILED, "out of memory");
    g->model.dev = g->dev;
    g->model.head_dim = g->dev->head_dim(g->dev, g->config.head_dim);
    s->n_params = config_count_params(&g->config);
    s->expert_layers = model_expert_layers(&g->model);
    examine_files(s);
    const struct config *c = &g->config;
    s->tokens = s->o->tokens ? s->o->tokens : c->context;
    const struct kv_size cache = model_text_cache(&g->model, s->tokens, 0);
    s->kv_per_token = (size_t)(model_kv_bytes(&g->model) - model_windowed_bytes(&g->model));
    s->kv_windowed = kv_run_bytes(&cache) -
                     (s->tokens + KV_BLOCK - 1) / KV_BLOCK * KV_BLOCK * s->kv_per_token;
    struct decode_setup setup = { 0 };
    draft_defaults(&setup.draft);
    setup.draft.drafters &= draft_of_config(c);
    for (enum drafter d = 0; d < N_DRAFTERS; d++)
        setup.draft.drafters |= (unsigned)(g->own_bytes[d] > 0) << d;
    engine_plan(&s->plan, g, s->tokens, decode_work_rows(&setup.draft, s->tokens), draft_rows(&setup.draft));
    for (enum drafter d = 0; d < N_DRAFTERS; d++)
        if (g->own_bytes[d])
            memory_plan_add(&s->plan, drafters[d]->name, weights_bytes(d, &setup.draft, NULL, g));
    decode_plan(&s->plan, &setup, &g->model, s->tokens);
    s->int8_bytes = g->dev->quantised || config_is_hybrid(c) ? 0 : model_quantized_bytes(c, g->dev);
    return 0;
}

static const char *rope_name(const struct config *c)
{
    static const char *const names[] = { "plain", "linear", "llama3", "yarn", "dynamic",
                                         "divided", "longrope" };
    return names[c->rope.type];
}

static void layer_heads(const void *config, size_t i, struct row *cell)
{
    *cell = (struct row){ .value = V_UINT(((const struct config *)config)->layer[i].n_kv_heads) };
}

static void layer_dims(const void *config, size_t i, struct row *cell)
{
    *cell = (struct row){ .value = V_UINT(((const struct config *)config)->layer[i].head_dim) };
}

static void missing_name(const void *of, size_t i, struct row *cell)
{
    *cell = (struct row){ .label = "", .value = V_TEXT(((const struct inspect *)of)->missing[i]) };
}

/* Texts that rows borrow. */
struct texts { char units[DTYPES_MAX][32], keys[MEMORY_ITEMS_MAX][64], limit[80]; };

static void dtype_rows(struct row out[DTYPES_MAX + 1], struct texts *t, const struct inspect *s)
{
    for (size_t i = 0; i < s->n_dtypes; i++) {
        snprintf(t->units[i], sizeof t->units[i], "%s@ in %s%s", i ? "" : "(", s->dtype[i].name,
                 i + 1 < s->n_dtypes ? "" : ")");
        out[i] = (struct row){ s->dtype[i].name, "bytes", V_UINT(s->dtype[i].bytes), t->units[i] };
    }
    out[s->n_dtypes] = (struct row){ 0 };
}

static void memory_rows(struct row out[MEMORY_ITEMS_MAX + 5], struct texts *t, const struct inspect *s)
{
    const char *limit;
    const size_t available = memory_available(&limit), n = s->plan.n;
    for (size_t i = 0; i < n; i++) {
        snprintf(t->keys[i], sizeof t->keys[i], "%s", s->plan.item[i].name);
        for (char *p = t->keys[i]; *p; p++)
            *p = *p == ' ' ? '_' : (char)tolower((unsigned char)*p);     /* "KV cache" -> "kv_cache" */
        out[i] = (struct row){ t->keys[i], s->plan.item[i].name, V_UINT(s->plan.item[i].bytes), "@M" };
    }
    snprintf(t->limit, sizeof t->limit, "@M  (%s)", limit);
    const struct row sums[] = {
        { "total", "sum", V_UINT(s->plan.total), "@M" },
        { "model_in_8_bits_if_there_is_room", s->int8_bytes ? "and" : NULL, V_UINT(s->int8_bytes),
          "@M  (if there is room to spare: the model in 8 bits, for drafts)" },
        { "available", "available", V_NUMBER(available < SIZE_MAX ? (double)available : NAN), t->limit },
        { "limit", NULL, V_TEXT(limit) },
        { 0 } };
    memcpy(out + n, sums, sizeof sums);
}

enum { EXPERT_ROWS = 7 };
static void expert_rows(struct row out[EXPERT_ROWS], const struct inspect *s)
{
    const struct config *c = &s->engine.config;
    const struct row rows[EXPERT_ROWS] = {
        { "layers", "experts", V_UINT(s->expert_layers), "@ layers" },
        { "experts", "experts", V_UINT(c->n_experts), "@ in each" },
        { "per_token", "experts", V_UINT(c->experts_used), "@ of them for a token" },
        { "feed_forward", "experts", V_UINT(c->expert_ffn), "feed-forward @" },
        { "shared_feed_forward", "experts", V_UINT(c->shared_ffn), "shared @", .unless = !c->shared_ffn },
        { "parameters_per_token", "experts", V_UINT(config_count_used(c)), "a token uses @ parameters" },
        { 0 } };
    memcpy(out, rows, sizeof rows);
}

static void print(const struct inspect *s)
{
    const struct config *c = &s->engine.config;
    const struct layer_spec *first = &c->layer[0], *last = &c->layer[c->n_layers - 1];
    char heads[80], title[64], kv[40];
    struct texts texts;
    struct row types[DTYPES_MAX + 1], memory[MEMORY_ITEMS_MAX + 5], experts[EXPERT_ROWS];
    dtype_rows(types, &texts, s);
    memory_rows(memory, &texts, s);
    expert_rows(experts, s);
    snprintf(heads, sizeof heads, "%u KV heads of %d", first->n_kv_heads, first->head_dim);
    if (c->heads_differ)
        snprintf(heads + strlen(heads), sizeof heads - strlen(heads), ", %u of %d in global layers",
                 last->n_kv_heads, last->head_dim);
    snprintf(kv, sizeof kv, "@ bytes per token (%s)", kv_type_name(s->engine.dev->kv_type));
    snprintf(title, sizeof title, "memory for %zu tokens, MiB", s->tokens);
    const struct table by_layer[] = { { c->n_layers, layer_heads, c }, { c->n_layers, layer_dims, c } },
                       missing = { s->n_missing, missing_name, s };
    const struct row rows[] = {
        { "model", "model", V_TEXT(s->engine.dir) },
        { "architecture", "architecture", V_TEXT(c->model_type) },
        { NULL, "architecture", V_BOOL(c->qkv_bias), "q/k/v biases" },
        { NULL, "architecture", V_BOOL(c->layer[0].qk_norm), "q/k norms" },
        { "parameters", "parameters", V_UINT(s->n_params) },
        { "layers", "shape", V_UINT(c->n_layers), "@ layers" },
        { "hidden", "shape", V_UINT(c->hidden), "hidden @" },
        { "feed_forward", "shape", V_UINT(c->ffn), "feed-forward @" },
        { "experts", NULL, V_ROWS(experts), .unless = !c->n_experts },
        { "heads", "shape", V_UINT(c->n_heads), "@ heads" },
        { NULL, "shape", V_TEXT(heads) },
        { "kv_heads", NULL, V_UINT(c->n_kv_heads) },     /* the largest ones of all layers */
        { "head_dim", NULL, V_UINT(c->head_dim) },
        { "kv_heads_by_layer", NULL, V_TABLE(&by_layer[0]), .unless = !c->heads_differ },
        { "head_dim_by_layer", NULL, V_TABLE(&by_layer[1]), .unless = !c->heads_differ },
        { "kv_shared_layers", "shared", V_UINT(c->kv_shared), "the last @ layers read the cache of others",
          .unless = !c->kv_shared },
        { "per_layer_embedding", "embeddings", V_UINT(c->per_layer),
          "@ of each layer, read from the file for each token", .unless = !c->per_layer },
        { "vocabulary", "shape", V_UINT(c->vocab), "vocabulary @" },
        { "tied_embeddings", "architecture", V_BOOL(c->tied), "tied embeddings" },
        { "context", "context", V_UINT(c->context) },
        { "rope", "context", V_TEXT(rope_name(c)), "RoPE @" },
        { "sliding_window", "context", V_NUMBER(c->window ? (double)c->window : NAN), "sliding window @" },
        { "bytes", "bytes", V_UINT(s->engine.tensors.data_bytes) },
        { "bytes_per_dtype", NULL, V_ROWS(types) },
        { "kv_bytes_per_token", "KV cache", V_UINT(s->kv_per_token), kv },
        { "kv_bytes_windowed", "KV cache", V_UINT(s->kv_windowed), "@ in windowed layers",
          .unless = !c->window },
        { "draft_layer", s->has_mtp ? "draft layer" : NULL, V_BOOL(s->engine.own_bytes[DRAFTER_MTP] > 0),
          "MTP, one layer (--drafter mtp)|unusable" },
        { NULL, "draft layer", V_TEXT(s->mtp.code ? s->mtp.msg : NULL) },
        { "compute", NULL, V_TEXT(s->engine.compute == DT_F32 ? "f32" : "bf16") },
        { "tokens", NULL, V_UINT(s->tokens) },
        { NULL, "missing", V_TEXT("nothing"), .unless = s->n_missing },
        { "memory", title, V_ROWS(memory) },
        { "missing", s->n_missing ? "missing" : NULL, V_TABLE(&missing) },
        { 0 } };
    sheet_print(s->o->json, JW_LINE, 6, rows);
}

int cmd_inspect(const struct options *o, struct err *e)
{
    static struct inspect s;
    s.o = o;
    int rc = examine(&s, e);
    if (rc == 0) {
        print(&s);
        rc = stdout_finish(e);
    }
    if (rc == 0 && s.first.code) {
        *e = s.first;
        rc = -1;
    }
    for (size_t i = 0; i < s.n_missing; i++)
        free(s.missing[i]);
    free(s.missing);
    engine_close(&s.engine);
    return rc;
}
