/* Owns the points of a GPU: copies, and passes of a model at depths (struct target). Start at lab_device. */
#include "src/model/heads.h"
#include "src/base/json_write.h"
#include "src/base/output.h"
#include "src/base/stopping.h"
#include "src/request/model_options.h"
#include "tests/labbench/lab.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/lab/bench.h"
#include "src/model/find_model.h"
#include "src/model/device_choice.h"

static const char *const words[LAB_POINTS] = { "copy", "decode", "rows", "draft", "heads", "prefill", "train",
                                               "project", "demo", "kernels", "modes", "profile" };
static const size_t depths[] = { 0, 4096, 16384, 32768, 65536, 100000 }, tiny_depths[] = { 0, 100 };
enum { SAMPLES_MAX = 64, N_HEADS = 3, TOKENS = 4096 };      /* TOKENS: room for plain decoding at a depth */
static const double SAMPLE_SECONDS = 0.02;

/* Llama 3.1 8B, and a tiny model of the same kind, for the emulation. */
static const char llama_8b[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 4096, "
    "\"intermediate_size\": 14336, \"num_hidden_layers\": 32,\n"
    " \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": 128, \"vocab_size\": 128256, "
    "\"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-05,\n"
    " \"rope_theta\": 500000.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"bos_token_id\": "
    "128000, \"eos_token_id\": 128001}";
static const char llama_tiny[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 128, "
    "\"intermediate_size\": 128, \"num_hidden_layers\": 1,\n"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 1, \"head_dim\": 128, \"vocab_size\": 256, "
    "\"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-05,\n"
    " \"rope_theta\": 500000.0, \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"bos_token_id\": "
    "0, \"eos_token_id\": 1}";

/* ---- time ---- */

/* Seconds of one call: the median of samples, each of enough calls to last SAMPLE_SECONDS. */
typedef int call(void *ctx, struct err *e);
static int timed(const struct lab *b, call *f, void *ctx, double *seconds, struct err *e)
{
    double v[SAMPLES_MAX], once = 0;
    for (int i = 0; i < 3; i++) {                /* the first call records the graph */
        double start = clock_seconds();
        if (f(ctx, e))
            return -1;
        once = clock_seconds() - start;
        if (b->tiny)
            break;
    }
    const size_t runs = b->tiny ? 1 : (size_t)(SAMPLE_SECONDS / once) + 1,
                 n = MIN(b->repeat, (size_t)SAMPLES_MAX);
    for (size_t i = 0; i < n; i++) {
        double start = clock_seconds();
        for (size_t j = 0; j < runs; j++)
            if (f(ctx, e))
                return -1;
        v[i] = (clock_seconds() - start) / (double)runs;
        if (stop_signal)
            return err_set(e, ERR_AGAIN, "bench: stopped by %s", stop_signal_name());
    }
    *seconds = bench_median(v, n);
    return 0;
}

/* ---- copies ---- */

struct copies { struct device *dev; char *a, *b, *host; size_t bytes; };
enum { COPIES = 8 };

static int wait_for(struct device *dev, const void *p, struct err *e)
{
    char byte;
    return dev->download(dev, &byte, p, 1) ? err_set(e, ERR_FAILED, "%s: %s", dev->name, dev->error) : 0;
}

static int copy_inside(void *ctx, struct err *e)
{
    struct copies *c = ctx;
    for (int i = 0; i < COPIES; i++)
        c->dev->copy(c->dev, c->b, c->a, c->bytes);
    return wait_for(c->dev, c->b, e);
}

static int copy_in(void *ctx, struct err *e)
{
    struct copies *c = ctx;
    c->dev->upload(c->dev, c->a, c->host, c->bytes / 4);
    return wait_for(c->dev, c->a, e);
}

static int copy_out(void *ctx, struct err *e)
{
    struct copies *c = ctx;
    return c->dev->download(c->dev, c->host, c->a, c->bytes / 4)
               ? err_set(e, ERR_FAILED, "%s: %s", c->dev->name, c->dev->error)
               : 0;
}

static int measure_copies(struct lab *b, struct err *e)
{
    struct device *dev = b->dev;
    struct copies c = { .dev = dev, .bytes = b->tiny ? (size_t)1 << 20 : (size_t)1 << 30 };
    double inside = 0, in = 0, out = 0;
    c.a = dev->alloc(dev, c.bytes);
    c.b = dev->alloc(dev, c.bytes);
    c.host = mem_alloc(c.bytes / 4);
    int rc = c.a && c.b && c.host
                 ? 0
                 : err_set(e, ERR_FAILED, "bench: %s: out of memory for two buffers of %zu bytes", dev->name,
                           c.bytes);
    if (rc == 0) {
        memset(c.host, 1, c.bytes / 4);
        dev->noise(dev, c.a, c.bytes / 2, 1, 1);
        rc = timed(b, copy_inside, &c, &inside, e) || timed(b, copy_in, &c, &in, e) || timed(b, copy_out, &c,
            &out, e) ? -1 : 0;
    }
    if (rc == 0) {
        b->copy = 2.0 * COPIES * (double)c.bytes / inside;
        b->upload = (double)c.bytes / 4 / in;
        b->download = (double)c.bytes / 4 / out;
        if (!b->json)
            printf("%s (%s): copies inside it %.1f GB/s (read and written), uploads %.1f GB/s, downloads "
                   "%.1f GB/s\n",
                   dev->name, dev->numerics, b->copy / 1e9, b->upload / 1e9, b->download / 1e9);
    }
    dev->free(dev, c.a, c.bytes);
    dev->free(dev, c.b, c.bytes);
    mem_free(c.host, c.bytes / 4);
    return rc;
}

/* ---- a model at its depths ---- */

struct target {
    struct model model;
    struct decoder d;                /* plain; its cache, buffers and logits serve all passes */
    struct kv partial;
    struct heads heads; void *heads_scratch; float *h0;
    size_t n_max, rows, depth;
    uint64_t seed;
    struct sampling sampling;
    int32_t token[PREFILL_ROWS], parent[LAB_NODES];
};

/* Random keys and values in the whole blocks that hold slots from .. to-1. */
static void fill(struct target *t, struct kv *kv, size_t from, size_t to)
{
    struct device *dev = kv->dev;
    const size_t first = from / KV_BLOCK,
                 last = MIN((to + KV_BLOCK - 1) / KV_BLOCK, kv->head_bytes / kv->block_bytes);
    for (size_t l = 0; l < kv->n_layers && last > first; l++)
        for (size_t h = 0; h < kv->n_kv_heads; h++)
            dev->noise(dev, kv->base + l * kv->layer_bytes + h * kv->head_bytes + first * kv->block_bytes,
                       (last - first) * kv->block_bytes / 2, t->seed++, 1);
    kv->n_past = to;
    kv->n_written = MAX(kv->n_written, to);
}

/* Puts the decoder at `depth` cached rows. Depths ascend. */
static int go_to(struct target *t, size_t depth, struct err *e)
{
    struct decoder *d = &t->d;
    fill(t, &d->kv, MIN(t->depth, depth), depth);
    while (d->n_tokens < depth + 1)
        decode_append(d, &(int32_t){ (int32_t)(d->n_tokens * 31 % d->model->config.vocab) }, 1);
    t->depth = depth;
    return decode_restart(d, depth + 1, &t->sampling, e);
}

static int one_step(void *ctx, struct err *e)
{
    struct target *t = ctx;
    if (t->d.n_tokens + 1 >= t->d.n_max && go_to(t, t->depth, e))    /* no room left: start again */
        return -1;
    return decode_step(&t->d, e);
}

static int one_pass(void *ctx, struct err *e)
{
    struct target *t = ctx;
    static const uint8_t all[LAB_NODES] = { [0 ... LAB_NODES - 1] = 1 };
    struct pass_seq s = { .kv = &t->d.kv, .n = t->rows, .token = t->token, .parent = t->parent, .want = all,
                          .logits = t->d.set.buffers->logits };
    return model_forward(&t->model, t->d.set.buffers->work, &s, 1, NULL, 0, e);
}

static int one_chunk(void *ctx, struct err *e)
{
    struct target *t = ctx;
    static const uint8_t none[PREFILL_ROWS];
    struct pass_seq s = { .kv = &t->d.kv, .n = t->rows, .token = t->token, .want = none };
    return model_forward(&t->model, t->d.set.buffers->work, &s, 1, NULL, 0, e);
}

static int one_draft(void *ctx, struct err *e)
{
    struct target *t = ctx;
    struct pass_seq s = { .kv = &t->partial, .n = 1, .token = t->token, .logits = t->d.set.buffers->logits,
                          .shift = t->depth };
    return model_forward(&t->model, t->d.set.buffers->work, &s, 1, NULL, 0, e);
}

static int one_heads(void *ctx, struct err *e)
{
    struct target *t = ctx;
    heads_forward(&t->heads, &t->model, t->h0, 1, N_HEADS, t->d.set.buffers->logits, t->heads_scratch);
    return wait_for(t->model.dev, t->d.set.buffers->logits, e);
}

static int open_heads(struct target *t, struct err *e)
{
    struct heads *h = &t->heads;
    struct device *dev = t->model.dev;
    const size_t d = t->model.config.hidden, mat = dev->mat_size(dev, DT_BF16, d, d),
                 norm = (d * sizeof(float) + 255) / 256 * 256;
    *h = (struct heads){ .n = N_HEADS, .chained = true, .dev = dev, .mem_bytes = N_HEADS * mat + norm };
    h->mem = dev->alloc(dev, h->mem_bytes);
    t->h0 = malloc(d * sizeof *t->h0);
    t->heads_scratch = h->mem && t->h0 ? dev->alloc(dev, heads_scratch_bytes(h, &t->model, 1)) : NULL;
    if (!t->heads_scratch)
        return err_set(e, ERR_FAILED, "bench: %s: out of memory for heads (%zu bytes)", dev->name,
                       h->mem_bytes);
    for (size_t i = 0; i < d; i++)
        t->h0[i] = 1;
    dev->upload(dev, (char *)h->mem + N_HEADS * mat, t->h0, d * sizeof *t->h0);
    for (size_t i = 0; i < h->n; i++) {
        h->head[i].w = (struct mat){ DT_BF16, d, d, (char *)h->mem + i * mat };
        h->head[i].norm_in = h->head[i].norm_out = (float *)(void *)((char *)h->mem + N_HEADS * mat);
        dev->noise(dev, h->head[i].w.w, mat / 2, t->seed++, 1 / sqrtf((float)d));
    }
    return 0;
}

static void close_target(struct target *t)
{
    struct device *dev = t->model.dev;
    if (!dev)
        return;
    kv_close(&t->partial);
    dev->free(dev, t->heads_scratch, 0);
    heads_close(&t->heads);
    free(t->h0);
    decode_close(&t->d);
    model_close(&t->model);
}

/* How many of the depths fit the memory and the context. */
static size_t depths_that_fit(struct lab *b, struct target *t, const char *name)
{
    const struct config *c = &t->model.config;
    const size_t room = b->dev->bytes_free(b->dev), most = room - room / 16;
    const size_t row =
        kv_bytes(&(struct kv_size){ DT_BF16, c->n_layers, c->n_kv_heads, t->model.head_dim, KV_BLOCK,
                                    0 }) / KV_BLOCK;
    size_t n = b->n_depth;
    for (; n > 1; n--) {
        const size_t n_max = b->depth[n - 1] + TOKENS + PREFILL_ROWS;
        const size_t scratch =
            workspace_bytes(&t->model, PREFILL_ROWS, n_max) + LAB_NODES * c->vocab * sizeof(float);
        if (n_max <= c->context && n_max * row + scratch <= most)
            break;
    }
    if (n < b->n_depth)
        lab_skip(
            b,
            "%s at %zu and more tokens: %.1f GB are free on %s after the weights, a token takes %zu bytes",
            name, b->depth[n], (double)room / 1e9, b->dev->name, row);
    return n;
}

/* Opens everything but the model itself. */
static int open_target(struct target *t, struct err *e)
{
    struct sampling *s = &t->sampling;
    /* A fixed tree of heads that do not exist: the decoder gets scratch and logits for many rows, and drafts
     * nothing. */
    const struct decode_setup setup = {
        .draft = { .drafters = 1u << DRAFTER_HEADS, .n_width = 1, .width = { 1 }, .rows_max = LAB_NODES },
    };
    sampling_defaults(s);
    s->seed = 1;
    s->min_p = 0.1;
    s->penalty = 1.2;
    s->ignore_eos = true;
    s->eos = t->model.config.eos;
    s->n_eos = t->model.config.n_eos;
    for (size_t i = 0; i < sizeof t->token / sizeof *t->token; i++)
        t->token[i] = (int32_t)(i * 7919 % t->model.config.vocab);
    for (size_t i = 0; i < LAB_NODES; i++)
        t->parent[i] = i ? (int32_t)(i - 1) / 2 : -1;
    if (decode_open(&t->d, &t->model, s, &setup, t->token, 1, t->n_max, e))
        return -1;
    t->d.set.draft.drafters = 0;
    return 0;
}

static double share_of_copy(const struct lab *b, double bytes, double seconds)
{
    return b->copy > 0 ? bytes / seconds / b->copy : 0;
}

/* A pass of so many rows may take this many times as long as one of a row. */
static double goal_of(size_t rows)
{
    return rows == 4 ? 1.05 : rows == 8 ? 1.1 : rows == 16 ? 1.15 : rows == 64 ? 1.6 : 0;
}

/* A round after one that is not shown to the profiler. */
static int profile_step(const struct lab *b, struct target *t, struct err *e)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), *symbol[2] = { NULL, NULL };
    int (*f[2])(void) = { NULL, NULL };
    for (int i = 0; lib && i < 2; i++)
        symbol[i] = dlsym(lib, i ? "cuProfilerStop" : "cuProfilerStart");
    memcpy(f, symbol, sizeof f);
    if (!b->tiny && (!f[0] || !f[1]))
        return err_set(e, ERR_FAILED, "bench: the NVIDIA driver has no cuProfilerStart");
    if (one_step(t, e) || (f[0] && f[0]() != 0) || one_step(t, e) || (f[1] && f[1]() != 0))
        return *e->msg ? -1 : err_set(e, ERR_FAILED, "bench: cuProfilerStart or cuProfilerStop failed");
    return go_to(t, t->depth, e);
}

static int at_depth(struct lab *b, struct target *t, struct lab_model *f, struct lab_depth *at, bool large,
                    struct err *e)
{
    const bool goals = large && !b->tiny;
    struct lab_line line = { f->name, "decode", at->depth, 1 };
    line.bytes = f->weight_bytes + (double)at->depth * f->row_bytes;
    if (go_to(t, at->depth, e))
        return -1;
    if (b->points[DECODE]) {
        if (timed(b, one_step, t, &at->decode, e))
            return -1;
        line.seconds = at->decode;
        line.share = share_of_copy(b, line.bytes, at->decode);
        line.goal = goals && b->copy > 0 ? 0.85 : 0;
        lab_print_line(b, line);
        if (go_to(t, at->depth, e))
            return -1;
    }
    if (b->points[PROFILE] && profile_step(b, t, e))
        return -1;
    line.point = "rows";
    line.ratio = true;
    for (size_t i = 0; b->points[ROWS] && i < LAB_PASSES; i++) {
        line.rows = t->rows = lab_rows[i];
        if (timed(b, one_pass, t, &at->pass[i], e))
            return -1;
        line.seconds = at->pass[i];
        line.share = at->pass[i] / at->pass[0];
        line.goal = goals ? goal_of(t->rows) : 0;
        lab_print_line(b, line);
    }
    return 0;
}

/* Seconds of all chunks up to the deepest point: the time of a chunk is linear between measured depths. */
static double sum_of_chunks(const struct lab_model *f, size_t rows)
{
    double sum = 0;
    for (size_t i = 1; i < f->n; i++)
        sum += (f->at[i - 1].prefill + f->at[i].prefill) / 2 * (double)(f->at[i].depth - f->at[i - 1].depth) /
               (double)rows;
    return sum;
}

static int after_depths(struct lab *b, struct target *t, struct lab_model *f, struct err *e)
{
    const struct config *c = &t->model.config;
    const size_t deepest = f->at[f->n - 1].depth;
    f->partial = MIN((size_t)4096, deepest);
    if (b->points[DRAFT] && f->partial) {
        if (kv_open(&t->partial, b->dev, &(struct kv_size){ DT_BF16, c->n_layers, c->n_kv_heads,
                                                            t->model.head_dim, f->partial + PARTIAL_ROWS_MAX,
                                                            0 }, e))
            return -1;
        fill(t, &t->partial, 0, f->partial);
        t->depth = deepest - f->partial;         /* the shift */
        if (timed(b, one_draft, t, &f->draft, e))
            return -1;
        const double bytes = f->weight_bytes + (double)f->partial * f->row_bytes;
        lab_print_line(b, (struct lab_line){ f->name, "draft", f->partial, 1, f->draft, bytes,
                                             share_of_copy(b, bytes, f->draft), 0, false });
    }
    if (b->points[HEADS]) {
        if (open_heads(t, e) || timed(b, one_heads, t, &f->heads, e))
            return -1;
        const double bytes = (double)(N_HEADS * c->hidden * c->hidden + c->vocab * c->hidden) * 2;
        lab_print_line(b, (struct lab_line){ f->name, "heads", 0, 1, f->heads, bytes,
                                             share_of_copy(b, bytes, f->heads), 0, false });
    }
    t->rows = b->tiny ? 20 : PREFILL_ROWS;
    for (size_t i = 0; b->points[PREFILL] && i < f->n; i++) {
        t->d.kv.n_past = f->at[i].depth;         /* later rows are written again */
        if (timed(b, one_chunk, t, &f->at[i].prefill, e))
            return -1;
        const double bytes = f->weight_bytes + (double)f->at[i].depth * f->row_bytes;
        lab_print_line(b, (struct lab_line){ f->name, "prefill", f->at[i].depth, t->rows, f->at[i].prefill,
                                             bytes, 0, 0, false });
    }
    if (b->points[PREFILL] && deepest && !b->json)
        printf("%-16s %-9s %6zu tokens: %.1f s by reading them again (the sum of its chunks, linear between "
               "depths)%s",
               f->name, "resume", deepest, sum_of_chunks(f, t->rows), b->upload > 0 ? "" : "\n");
    if (b->points[PREFILL] && deepest && !b->json && b->upload > 0)
        printf(", %.1f s by the upload of %.2f GB (computed)\n", (double)deepest * f->row_bytes / b->upload,
               (double)deepest * f->row_bytes / 1e9);
    return 0;
}

/* The model of t is open. */
static int measure(struct lab *b, struct target *t, const char *name, bool large, struct err *e)
{
    struct lab_model *f = &b->model[b->n_models++];
    const struct config *c = &t->model.config;
    const size_t n = depths_that_fit(b, t, name);
    const size_t embedding = t->model.embed.w ? t->model.embed.n * t->model.embed.k * 2 : 0;
    *f = (struct lab_model){
        .name = name,
        .weight_bytes = (double)(t->model.weight_bytes - embedding),
        .row_bytes = 4.0 * (double)(c->n_layers * c->n_kv_heads * t->model.head_dim),
    };
    t->n_max = b->depth[n - 1] + (b->tiny ? LAB_NODES : TOKENS) + PREFILL_ROWS;
    if (open_target(t, e))
        return -1;
    for (size_t i = 0; i < n; i++) {
        f->at[f->n++].depth = b->depth[i];
        if (at_depth(b, t, f, &f->at[i], large, e))
            return -1;
    }
    return after_depths(b, t, f, e);
}

static int measure_random(struct lab *b, const char *name, struct err *e)
{
    static struct config c;
    static struct target t;
    const char *json = b->tiny ? llama_tiny : llama_8b;
    t = (struct target){ .seed = 1000 };
    if (config_parse(&c, "random model", json, strlen(json), NULL, NULL, 0, e))
        return -1;
    const double start = clock_seconds();
    int rc = model_random(&t.model, &(struct model_setup){ &c, DT_BF16, b->dev, b->ops, b->pool }, 1, e);
    if (rc)
        return -1;
    rc = wait_for(b->dev, t.model.mem, e);
    if (rc == 0 && !b->json)
        printf("random weights of %s: %.2f GB, made there in %.2f s\n",
               b->tiny ? "a tiny model" : "Llama-3.1-8B's geometry", (double)t.model.weight_bytes / 1e9,
               clock_seconds() - start);
    lab_print_header(b);
    rc = rc || measure(b, &t, name, true, e) ? -1 : 0;
    if (rc == 0 && b->points[TRAIN]) {
        kv_close(&t.partial);
        decode_close(&t.d);
        rc = lab_train(b, &t.model, e);
    }
    close_target(&t);
    return rc;
}

static int measure_demo(struct lab *b, struct err *e)
{
    static struct config c;
    static struct target t;
    char dir[PATH_BYTES];
    if (find_model_or_demo(dir, b->o->model, "--model", e)) {
        lab_skip(b, "%s", e->msg);
        return b->o->model ? -1 : 0;
    }
    t = (struct target){ .seed = 9000 };
    if (config_read(&c, dir, e) ||
        model_open(&t.model, dir, &(struct model_setup){ &c, DT_BF16, b->dev, b->ops, b->pool }, e))
        return -1;
    int rc = measure(b, &t, b->o->model ? "model" : "demo", false, e);
    close_target(&t);
    return rc;
}

/* Decoding without overlapping kernels, then without graphs too. The default mode is the point "decode". */
static int measure_modes(struct lab *b, struct err *e)
{
    static const struct { const char *off, *name, *tiny_name; } mode[] = {
        { "overlap", "8B no overlap", "tiny no overlap" },
        { "graphs,overlap", "8B no graphs", "tiny no graphs" },
    };
    const char *before = getenv("LONGHAND_CUDA_OFF");
    bool points[LAB_POINTS];
    int rc = 0;
    memcpy(points, b->points, sizeof points);
    memset(b->points, 0, sizeof b->points);
    b->points[DECODE] = true;
    for (size_t i = 0; i < sizeof mode / sizeof *mode && rc == 0; i++) {
        setenv("LONGHAND_CUDA_OFF", mode[i].off, 1);
        rc = lab_open_device(b, e) || measure_random(b, b->tiny ? mode[i].tiny_name : mode[i].name, e)
                 ? -1 : 0;
    }
    if (before)
        setenv("LONGHAND_CUDA_OFF", before, 1);
    else
        unsetenv("LONGHAND_CUDA_OFF");
    memcpy(b->points, points, sizeof points);
    return rc ? -1 : lab_open_device(b, e);
}

/* ---- the program ---- */

static int parse_points(struct lab *b, struct err *e)
{
    const char *list = b->o->bench_points;
    bool any = false;
    for (size_t len; list && *list; list += len + (list[len] == ',')) {
        size_t k = 0;
        len = strcspn(list, ",");
        while (k < sizeof words / sizeof *words &&
               !(strlen(words[k]) == len && strncmp(list, words[k], len) == 0))
            k++;
        if (k < sizeof words / sizeof *words)
            any = b->points[k] = true;
        else if (len > 6 && len < 32 && strncmp(list, "depth=", 6) == 0 && b->n_depth < LAB_DEPTHS_MAX) {
            char number[32];
            snprintf(number, sizeof number, "%.*s", (int)len - 6, list + 6);
            if (parse_size(&b->depth[b->n_depth], "--points depth", number,
                           b->n_depth ? b->depth[b->n_depth - 1] + 1 : 0, BENCH_DEPTH_MAX, e))
                return -1;
            b->n_depth++;
        } else
            return err_set(e, ERR_INPUT,
                           "--points: \"%.*s\"; allowed on a GPU: copy, decode, rows, draft, heads, "
                           "prefill, train, project, demo, kernels, modes, profile, depth=N (ascending, at "
                           "most %d); or spec-best",
                           (int)MIN(len, (size_t)60), list, LAB_DEPTHS_MAX);
    }
    for (size_t k = 0; k < PROFILE && !any; k++)
        b->points[k] = true;
    b->points[DECODE] |= b->points[MODES];
    b->points[COPY] |= b->points[KERNELS] || b->points[MODES];
    for (size_t k = DECODE; k <= PREFILL; k++)
        b->random |= b->points[k];
    b->random |= b->points[PROJECT] || b->points[TRAIN] || b->points[PROFILE];
    /* demo, and no point by name: all of them */
    for (size_t k = DECODE; k <= PREFILL && !b->random; k++)
        b->points[k] = b->points[DEMO];
    if (b->points[PROJECT])
        b->points[DECODE] = b->points[ROWS] = b->points[COPY] = b->points[DRAFT] = b->points[HEADS] = true;
    const size_t *from = b->tiny ? tiny_depths : depths,
                 n = b->tiny ? sizeof tiny_depths / sizeof *tiny_depths : sizeof depths / sizeof *depths;
    for (size_t i = 0; i < n && (!b->n_depth || b->n_depth == i); i++)
        b->depth[b->n_depth++] = from[i];
    return 0;
}

/* Each model has a device of its own, whose working memory is for one shape of heads. */
int lab_open_device(struct lab *b, struct err *e)
{
    char why[512] = "";
    const char *word = b->o->device;
    if (b->dev)
        b->dev->close(b->dev);
    b->dev = NULL;
    if (b->tiny ? device_added->open(&b->dev, why, sizeof why)
                : device_cuda_open(&b->dev, strcmp(word, "cuda") ? strtoul(word + 5, NULL, 10) : 0, why,
                                   sizeof why))
        return err_set(e, ERR_INPUT, "--device %s: %s (auto and cpu are available)", word, why);
    return 0;
}

int lab_device(const struct options *o, struct err *e)
{
    static struct lab b;
    const char *why = NULL;
    b = (struct lab){ .o = o, .json = o->json, .tiny = device_is_added(o->device) };
    b.repeat = o->repeat ? o->repeat : b.tiny ? 1 : 7;
    if (device_choice_is_all(o->device))
        return err_set(e, ERR_INPUT, "bench: --device %s: one GPU at a time is measured (cuda:N)", o->device);
    if (parse_points(&b, e))
        return -1;
    if (!(b.ops = ops_for_cpu(&why)))
        return err_set(e, ERR_INPUT, "%s", why);
    if (!(b.pool = pool_open(o->threads ? o->threads : pool_default_threads())))
        return err_set(e, ERR_FAILED, "bench: cannot make threads");
    stop_signals_catch();
    int rc = lab_open_device(&b, e);
    if (rc == 0 && b.points[COPY])
        rc = measure_copies(&b, e);
    if (rc == 0 && b.points[KERNELS])
        rc = lab_kernels(&b, e);
    if (rc == 0 && b.random)
        rc = measure_random(&b, b.tiny ? "tiny random" : "8B random", e);
    if (rc == 0 && b.points[MODES])
        rc = measure_modes(&b, e);
    if (rc == 0 && b.points[PROJECT] && (rc = lab_accept(&b, e)) == 0 && !b.json)
        lab_print_projection(&b);
    if (rc == 0 && b.points[DEMO])
        rc = lab_open_device(&b, e) || measure_demo(&b, e) ? -1 : 0;
    if (rc == 0 && b.json)
        lab_print_json(&b, stdout);
    const char *path = getenv("LABBENCH_JSON");
    FILE *also = b.dev && path && *path ? fopen(path, "w") : NULL;
    if (also)
        lab_print_json(&b, also);
    if (b.dev && path && *path && (!also || fclose(also)) && rc == 0)
        rc = err_set(e, ERR_FAILED, "bench: %s cannot be written", path);
    for (size_t i = 0; i < b.n_skipped && !b.json; i++)
        printf("skipped: %s\n", b.skipped[i]);
    if (rc == 0 && !b.json)
        printf("%zu points miss their goal (!)\n", b.missed);
    if (b.dev)
        b.dev->close(b.dev);
    pool_close(b.pool);
    return rc || stdout_finish(e) ? -1 : 0;
}
