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

#include "src/base/json_write.h"
#include "src/base/output.h"
#include "src/cli/verbs.h"
#include "src/decode/decode.h"
#include "src/decode/engine.h"
#include "src/decode/weights.h"
#include "src/model/config_tensors.h"
#include "src/model/dealt_tensors.h"
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

static void print_json(const struct inspect *s, size_t available, const char *limit)
{
    const struct config *c = &s->engine.config;
    struct json_writer w = jw_begin(stdout, JW_LINE, 6);
    jw_text(&w, "model", s->engine.dir);
    jw_text(&w, "architecture", c->model_type);
    jw_uint(&w, "parameters", s->n_params);
    jw_uint(&w, "layers", c->n_layers);
    jw_uint(&w, "hidden", c->hidden);
    jw_uint(&w, "feed_forward", c->ffn);
    if (c->n_experts) {
        jw_open(&w, "experts", '{');
        jw_uint(&w, "layers", s->expert_layers);
        jw_uint(&w, "experts", c->n_experts);
        jw_uint(&w, "per_token", c->experts_used);
        jw_uint(&w, "feed_forward", c->expert_ffn);
        if (c->shared_ffn)
            jw_uint(&w, "shared_feed_forward", c->shared_ffn);
        jw_uint(&w, "parameters_per_token", config_count_used(c));
        jw_close(&w, '}');
    }
    jw_uint(&w, "heads", c->n_heads);
    jw_uint(&w, "kv_heads", c->n_kv_heads);
    jw_uint(&w, "head_dim", c->head_dim);
    if (c->heads_differ) {               /* kv_heads and head_dim are the largest ones */
        jw_open(&w, "kv_heads_by_layer", '[');
        for (size_t l = 0; l < c->n_layers; l++)
            jw_uint(&w, NULL, c->heads[l].n);
        jw_close(&w, ']');
        jw_open(&w, "head_dim_by_layer", '[');
        for (size_t l = 0; l < c->n_layers; l++)
            jw_uint(&w, NULL, c->heads[l].dim);
        jw_close(&w, ']');
    }
    if (c->kv_shared)
        jw_uint(&w, "kv_shared_layers", c->kv_shared);
    if (c->per_layer)
        jw_uint(&w, "per_layer_embedding", c->per_layer);
    jw_uint(&w, "vocabulary", c->vocab);
    jw_bool(&w, "tied_embeddings", c->tied);
    jw_uint(&w, "context", c->context);
    jw_text(&w, "rope", rope_name(c));
    jw_number(&w, "sliding_window", c->window ? (double)c->window : NAN);
    jw_uint(&w, "bytes", s->engine.tensors.data_bytes);
    jw_open(&w, "bytes_per_dtype", '{');
    for (size_t i = 0; i < s->n_dtypes; i++)
        jw_uint(&w, s->dtype[i].name, s->dtype[i].bytes);
    jw_close(&w, '}');
    jw_uint(&w, "kv_bytes_per_token", s->kv_per_token);
    if (c->window)                       /* of the layers with a window, which `per_token` leaves out */
        jw_uint(&w, "kv_bytes_windowed", s->kv_windowed);
    jw_bool(&w, "draft_layer", s->engine.own_bytes[DRAFTER_MTP] > 0);
    jw_text(&w, "compute", s->engine.compute == DT_F32 ? "f32" : "bf16");
    jw_uint(&w, "tokens", s->tokens);
    jw_open(&w, "memory", '{');
    for (size_t i = 0; i < s->plan.n; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s", s->plan.item[i].name);
        for (char *p = name; *p; p++)
            *p = *p == ' ' ? '_' : (char)tolower((unsigned char)*p);     /* "KV cache" -> "kv_cache" */
        jw_uint(&w, name, s->plan.item[i].bytes);
    }
    jw_uint(&w, "total", s->plan.total);
    jw_uint(&w, "model_in_8_bits_if_there_is_room", s->int8_bytes);
    jw_number(&w, "available", available < SIZE_MAX ? (double)available : NAN);
    jw_text(&w, "limit", limit);
    jw_close(&w, '}');
    jw_open(&w, "missing", '[');
    for (size_t i = 0; i < s->n_missing; i++)
        jw_text(&w, NULL, s->missing[i]);
    jw_close(&w, ']');
    jw_end(&w);
}

static void print_text(const struct inspect *s, size_t available, const char *limit)
{
    const struct config *c = &s->engine.config;
    const double MiB = 1048576;
    printf("model         %s\narchitecture  %s%s%s%s\n", s->engine.dir, c->model_type,
           c->qkv_bias ? ", q/k/v biases" : "", c->qk_norm ? ", q/k norms" : "",
           c->tied ? ", tied embeddings" : "");
    printf("shape         %zu layers, hidden %zu, feed-forward %zu, %zu heads, ",
           c->n_layers, c->hidden, c->ffn, c->n_heads);
    const struct kv_heads first = config_heads(c, 0), last = config_heads(c, c->n_layers - 1);
    printf("%" PRIu32 " KV heads of %" PRIu32 ", ", first.n, first.dim);
    if (c->heads_differ)
        printf("%" PRIu32 " of %" PRIu32 " in global layers, ", last.n, last.dim);
    printf("vocabulary %zu\n", c->vocab);
    if (c->kv_shared)
        printf("shared        the last %zu layers read the cache of others\n", c->kv_shared);
    if (c->per_layer)
        printf("embeddings    %zu of each layer, read from the file for each token\n", c->per_layer);
    if (c->n_experts)
        printf("experts       %zu of %zu in %zu layers, feed-forward %zu%s%.0zu; a token uses %zu "
               "parameters\n",
               c->experts_used, c->n_experts, s->expert_layers, c->expert_ffn,
               c->shared_ffn ? ", shared " : "", c->shared_ffn, config_count_used(c));
    printf("parameters    %zu\nbytes         %zu", s->n_params, s->engine.tensors.data_bytes);
    for (size_t i = 0; i < s->n_dtypes; i++)
        printf("%s%zu in %s", i ? ", " : " (", s->dtype[i].bytes, s->dtype[i].name);
    printf("%s\ncontext       %zu, RoPE %s", s->n_dtypes ? ")" : "", c->context, rope_name(c));
    if (c->window)
        printf(", sliding window %zu", c->window);
    printf("\nKV cache      %zu bytes per token (%s)", s->kv_per_token,
           kv_type_name(s->engine.dev->kv_type));
    if (c->window)
        printf(", %zu in windowed layers", s->kv_windowed);
    printf("\n");
    if (s->has_mtp)
        printf("draft layer   %s%s\n",
               s->engine.own_bytes[DRAFTER_MTP] ? "MTP, one layer (--drafter mtp)" : "unusable: ",
               s->mtp.msg);
    printf("\nmemory for %zu tokens, MiB\n", s->tokens);
    for (size_t i = 0; i < s->plan.n; i++)
        printf("  %-20s%12.1f\n", s->plan.item[i].name, (double)s->plan.item[i].bytes / MiB);
    printf("  %-20s%12.1f\n", "sum", (double)s->plan.total / MiB);
    if (s->int8_bytes)
        printf("  %-20s%12.1f  (if there is room to spare: the model in 8 bits, for drafts)\n", "and",
               (double)s->int8_bytes / MiB);
    if (available != SIZE_MAX)
        printf("  %-20s%12.1f  (%s)\n", "available", (double)available / MiB, limit);
    printf(s->n_missing ? "\nmissing\n" : "\nmissing       nothing\n");
    for (size_t i = 0; i < s->n_missing; i++)
        printf("  %s\n", s->missing[i]);
}

int cmd_inspect(const struct options *o, struct err *e)
{
    static struct inspect s;
    const char *limit;
    s.o = o;
    int rc = examine(&s, e);
    if (rc == 0) {
        size_t available = memory_available(&limit);
        (o->json ? print_json : print_text)(&s, available, limit);
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
