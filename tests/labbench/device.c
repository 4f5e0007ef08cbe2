#include "src/base/json_write.h"
#include "src/base/output.h"
#include "src/base/stopping.h"
#include "src/request/model_options.h"
#include "tests/labbench/lab.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/bench/bench.h"
#include "src/model/device_choice.h"

enum { COPY, DECODE, ROWS, DRAFT, HEADS, PREFILL, TRAIN, PROJECT, DEMO };
static const char *const words[] = { "copy", "decode", "rows", "draft", "heads", "prefill", "train",
                                     "project", "demo" };
static const size_t depths[] = { 0, 4096, 16384, 32768, 65536, 100000 }, tiny_depths[] = { 0, 100 };
/* tokens of plain decoding that a depth has room for */
enum { SAMPLES_MAX = 64, TOKENS = 4096, TOKENS_HEADS = 3 };
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

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of one call: the median of samples of so many calls that a sample is not too short. */
typedef int call(void *ctx, struct err *e);
static int timed(const struct bench_device *b, call *f, void *ctx, double *seconds, struct err *e)
{
    double v[SAMPLES_MAX], once = 0;
    for (int i = 0; i < 3; i++) {                /* the first records, the second is the first that plays */
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
    qsort(v, n, sizeof *v, ascending);
    *seconds = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
    return 0;
}

/* ---- words ---- */

static void head(const struct bench_device *b)
{
    if (!b->json)
        printf("%-16s %-9s %6s %5s %9s %10s %8s %8s %7s %7s\n", "model", "point", "depth", "rows", "ms",
               "tokens/s", "GB", "GB/s", "share", "goal");
}

/* share: of the copy bandwidth, or with `ratio` the time of one row's pass that this one takes. */
static void say(struct bench_device *b, const char *model, const char *point, size_t depth, size_t rows,
                double seconds, double bytes, double share, double goal, bool ratio)
{
    const bool missed = goal > 0 && (ratio ? share > goal : share < goal);
    char s[16] = "-", g[16] = "-";
    b->missed += missed;
    if (b->json)
        return;
    if (share > 0)
        snprintf(s, sizeof s, ratio ? "%.2fx" : "%.1f%%", ratio ? share : 100 * share);
    if (goal > 0)
        snprintf(g, sizeof g, ratio ? "%.2fx%s" : "%.0f%%%s", ratio ? goal : 100 * goal, missed ? "!" : "");
    printf("%-16s %-9s %6zu %5zu %9.4f %10.1f %8.3f %8.1f %7s %7s\n", model, point, depth, rows,
           1e3 * seconds, (double)rows / seconds, bytes / 1e9, bytes / seconds / 1e9, s, g);
    fflush(stdout);
}

/* ---- the device's own ---- */

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

static int measure_copies(struct bench_device *b, struct err *e)
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
    int32_t token[PREFILL_ROWS], parent[BENCH_NODES];
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

/* The decoder stands behind `depth` rows. Depths ascend. */
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
    if (t->d.n_tokens + 1 >= t->d.n_max && go_to(t, t->depth, e))      /* no room for more: from here again */
        return -1;
    return decode_step(&t->d, e);
}

static int one_pass(void *ctx, struct err *e)
{
    struct target *t = ctx;
    static const uint8_t all[BENCH_NODES] = { [0 ... BENCH_NODES - 1] = 1 };
    struct pass_seq s = { .kv = &t->d.kv, .n = t->rows, .token = t->token, .parent = t->parent, .want = all,
                          .logits = t->d.logits };
    return model_forward(&t->model, t->d.work, &s, 1, NULL, 0, e);
}

static int one_chunk(void *ctx, struct err *e)
{
    struct target *t = ctx;
    static const uint8_t none[PREFILL_ROWS];
    struct pass_seq s = { .kv = &t->d.kv, .n = t->rows, .token = t->token, .want = none };
    return model_forward(&t->model, t->d.work, &s, 1, NULL, 0, e);
}

static int one_draft(void *ctx, struct err *e)
{
    struct target *t = ctx;
    struct pass_seq s = { .kv = &t->partial, .n = 1, .token = t->token, .logits = t->d.logits,
                          .shift = t->depth };
    return model_forward(&t->model, t->d.work, &s, 1, NULL, 0, e);
}

static int ask_heads(void *ctx, struct err *e)
{
    struct target *t = ctx;
    heads_forward(&t->heads, &t->model, t->h0, 1, TOKENS_HEADS, t->d.logits, t->heads_scratch);
    return wait_for(t->model.dev, t->d.logits, e);
}

static int open_heads(struct target *t, struct err *e)
{
    struct heads *h = &t->heads;
    struct device *dev = t->model.dev;
    const size_t d = t->model.config.hidden, mat = dev->mat_size(dev, DT_BF16, d, d),
                 norm = (d * sizeof(float) + 255) / 256 * 256;
    *h = (struct heads){ .n = TOKENS_HEADS, .chained = true, .dev = dev, .mem_bytes = TOKENS_HEADS * mat + norm };
    h->mem = dev->alloc(dev, h->mem_bytes);
    t->h0 = malloc(d * sizeof *t->h0);
    t->heads_scratch = h->mem && t->h0 ? dev->alloc(dev, heads_scratch_bytes(h, &t->model, 1)) : NULL;
    if (!t->heads_scratch)
        return err_set(e, ERR_FAILED, "bench: %s: out of memory for heads (%zu bytes)", dev->name,
                       h->mem_bytes);
    for (size_t i = 0; i < d; i++)
        t->h0[i] = 1;
    dev->upload(dev, (char *)h->mem + TOKENS_HEADS * mat, t->h0, d * sizeof *t->h0);
    for (size_t i = 0; i < h->n; i++) {
        h->head[i].w = (struct mat){ DT_BF16, d, d, (char *)h->mem + i * mat };
        h->head[i].norm_in = h->head[i].norm_out = (float *)(void *)((char *)h->mem + TOKENS_HEADS * mat);
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

/* Room for the cache of the deepest point: which depths there are. */
static size_t deepest_that_fits(struct bench_device *b, struct target *t, const char *name)
{
    const struct config *c = &t->model.config;
    const size_t room = b->dev->bytes_free(b->dev), most = room - room / 16,
                 row =
                     kv_bytes(DT_BF16, c->n_layers, c->n_kv_heads, t->model.head_dim, KV_BLOCK, 0) / KV_BLOCK;
    size_t n = b->n_depth;
    while (n > 1 && (b->depth[n - 1] + TOKENS + PREFILL_ROWS > c->context ||
                     (b->depth[n - 1] + TOKENS + PREFILL_ROWS) * row +
           workspace_bytes(&t->model, PREFILL_ROWS,
                           b->depth[n - 1] + TOKENS + PREFILL_ROWS) + BENCH_NODES * c->vocab * sizeof(float) > most))
        n--;
    if (n < b->n_depth)
        bench_device_skip(
            b,
            "%s at %zu and more tokens: %.1f GB are free on %s behind the weights, a token takes %zu bytes",
            name, b->depth[n], (double)room / 1e9, b->dev->name, row);
    return n;
}

/* What the model needs besides weights, which are there. */
static int open_target(struct target *t, struct err *e)
{
    struct sampling *s = &t->sampling;
    /* A fixed tree of heads that do not exist: the decoder gets scratch and logits for many rows, and drafts nothing. */
    const struct decode_setup setup = { .draft = { .drafters = 1u << SOURCE_HEADS, .n_width = 1, .width = { 1 },
                                                   .rows_max = BENCH_NODES } };
    sampling_defaults(s);
    s->seed = 1;
    s->min_p = 0.1;
    s->penalty = 1.2;
    s->ignore_eos = true;
    s->eos = t->model.config.eos;
    s->n_eos = t->model.config.n_eos;
    for (size_t i = 0; i < sizeof t->token / sizeof *t->token; i++)
        t->token[i] = (int32_t)(i * 7919 % t->model.config.vocab);
    for (size_t i = 0; i < BENCH_NODES; i++)
        t->parent[i] = i ? (int32_t)(i - 1) / 2 : -1;
    if (decode_open(&t->d, &t->model, s, &setup, t->token, 1, t->n_max, e))
        return -1;
    t->d.draft.set.drafters = 0;
    return 0;
}

static double goal_of(size_t rows, size_t depth)
{
    return rows == 16 ? 1.15 : rows == 64 ? depth <= 32768 ? 1.25 : 1.6 : 0;
}

static int at_depth(struct bench_device *b, struct target *t, struct bench_of *f, struct bench_at *at,
                    bool large, struct err *e)
{
    const double bytes = f->weight_bytes + (double)at->depth * f->row_bytes;
    const bool goals = large && !b->tiny;
    if (go_to(t, at->depth, e))
        return -1;
    if (b->wish[DECODE]) {
        if (timed(b, one_step, t, &at->decode, e))
            return -1;
        say(b, f->name, "decode", at->depth, 1, at->decode, bytes,
            b->copy > 0 ? bytes / at->decode / b->copy : 0, goals && b->copy > 0 ? 0.8 : 0, false);
        if (go_to(t, at->depth, e))
            return -1;
    }
    for (size_t i = 0; b->wish[ROWS] && i < 3; i++) {
        t->rows = bench_sizes[i];
        if (timed(b, one_pass, t, &at->pass[i], e))
            return -1;
        say(b, f->name, "rows", at->depth, t->rows, at->pass[i], bytes, at->pass[i] / at->pass[0],
            goals ? goal_of(t->rows, at->depth) : 0, true);
    }
    return 0;
}

/* Seconds that all chunks up to the deepest point take: the time of a chunk is a broken line through those measured. */
static double sum_of_chunks(const struct bench_of *f, size_t rows)
{
    double sum = 0;
    for (size_t i = 1; i < f->n; i++)
        sum += (f->at[i - 1].prefill + f->at[i].prefill) / 2 * (double)(f->at[i].depth - f->at[i - 1].depth) /
               (double)rows;
    return sum;
}

static int beside_depths(struct bench_device *b, struct target *t, struct bench_of *f, struct err *e)
{
    const struct config *c = &t->model.config;
    const size_t deepest = f->at[f->n - 1].depth;
    f->partial = MIN((size_t)4096, deepest);
    if (b->wish[DRAFT] && f->partial) {
        if (kv_open(&t->partial, b->dev, DT_BF16, c->n_layers, c->n_kv_heads, t->model.head_dim,
                    f->partial + PARTIAL_ROWS_MAX, 0, e))
            return -1;
        fill(t, &t->partial, 0, f->partial);
        t->depth = deepest - f->partial;         /* the shift */
        if (timed(b, one_draft, t, &f->draft, e))
            return -1;
        const double bytes = f->weight_bytes + (double)f->partial * f->row_bytes;
        say(b, f->name, "draft", f->partial, 1, f->draft, bytes, b->copy > 0 ? bytes / f->draft / b->copy : 0,
            0, false);
    }
    if (b->wish[HEADS]) {
        if (open_heads(t, e) || timed(b, ask_heads, t, &f->heads, e))
            return -1;
        const double bytes = (double)(TOKENS_HEADS * c->hidden * c->hidden + c->vocab * c->hidden) * 2;
        say(b, f->name, "heads", 0, 1, f->heads, bytes, b->copy > 0 ? bytes / f->heads / b->copy : 0, 0,
            false);
    }
    t->rows = b->tiny ? 20 : PREFILL_ROWS;
    for (size_t i = 0; b->wish[PREFILL] && i < f->n; i++) {
        t->d.kv.n_past = f->at[i].depth;         /* rows behind it are written anew */
        if (timed(b, one_chunk, t, &f->at[i].prefill, e))
            return -1;
        say(b, f->name, "prefill", f->at[i].depth, t->rows, f->at[i].prefill,
            f->weight_bytes + (double)f->at[i].depth * f->row_bytes, 0, 0, false);
    }
    if (b->wish[PREFILL] && deepest && !b->json)
        printf("%-16s %-9s %6zu tokens: %.1f s by reading them again (the sum of its chunks, between depths "
               "a straight line)%s",
               f->name, "resume", deepest, sum_of_chunks(f, t->rows), b->upload > 0 ? "" : "\n");
    if (b->wish[PREFILL] && deepest && !b->json && b->upload > 0)
        printf(", %.1f s by the upload of %.2f GB (computed)\n", (double)deepest * f->row_bytes / b->upload,
               (double)deepest * f->row_bytes / 1e9);
    return 0;
}

/* The model of t is open. */
static int measure(struct bench_device *b, struct target *t, const char *name, bool large, struct err *e)
{
    struct bench_of *f = &b->of[b->n_of++];
    const struct config *c = &t->model.config;
    const size_t n = deepest_that_fits(b, t, name);
    *f = (struct bench_of){ .name = name, .weight_bytes = (double)(t->model.weight_bytes - (t->model.embed.w ? t->model.embed.n * t->model.embed.k * 2 : 0)),
                            .row_bytes = 4.0 * (double)(c->n_layers * c->n_kv_heads * t->model.head_dim) };
    t->n_max = b->depth[n - 1] + (b->tiny ? BENCH_NODES : TOKENS) + PREFILL_ROWS;
    if (open_target(t, e))
        return -1;
    for (size_t i = 0; i < n; i++) {
        f->at[f->n++].depth = b->depth[i];
        if (at_depth(b, t, f, &f->at[i], large, e))
            return -1;
    }
    return beside_depths(b, t, f, e);
}

static int do_random(struct bench_device *b, struct err *e)
{
    static struct config c;
    static struct target t;
    const char *json = b->tiny ? llama_tiny : llama_8b;
    t = (struct target){ .seed = 1000 };
    if (config_parse(&c, "random model", json, strlen(json), NULL, NULL, 0, e))
        return -1;
    const double start = clock_seconds();
    int rc = model_random(&t.model, &c, b->dev, b->ops, b->pool, 1, e);
    if (rc)
        return -1;
    rc = wait_for(b->dev, t.model.mem, e);
    if (rc == 0 && !b->json)
        printf("random weights of %s: %.2f GB, made there in %.2f s\n",
               b->tiny ? "a tiny model" : "Llama-3.1-8B's geometry", (double)t.model.weight_bytes / 1e9,
               clock_seconds() - start);
    head(b);
    rc = rc || measure(b, &t, b->tiny ? "tiny random" : "8B random", true, e) ? -1 : 0;
    if (rc == 0 && b->wish[TRAIN]) {
        kv_close(&t.partial);
        decode_close(&t.d);
        rc = bench_train(b, &t.model, e);
    }
    close_target(&t);
    return rc;
}

static int do_demo(struct bench_device *b, struct err *e)
{
    static struct config c;
    static struct target t;
    char dir[PATH_BYTES];
    if (b->o->model ? model_dir(dir, b->o, e) : 0)
        return -1;
    if (!b->o->model && !bench_find_demo(dir)) {
        bench_device_skip(b, "models/demo: not found from here or from the program");
        return 0;
    }
    t = (struct target){ .seed = 9000 };
    if (config_read(&c, dir, e) ||
        model_open(&t.model, dir, &(struct model_setup){ &c, DT_BF16, b->dev, b->ops, b->pool }, e))
        return -1;
    int rc = measure(b, &t, b->o->model ? "model" : "demo", false, e);
    close_target(&t);
    return rc;
}

/* ---- JSON, the end ---- */

static void print_json(const struct bench_device *b)
{
    printf("{\"device\": ");
    put_json(stdout, b->dev->name, strlen(b->dev->name));
    printf(", \"numerics\": \"%s\", \"copy\": %.5g, \"upload\": %.5g, \"download\": %.5g, \"train\": %.5g, "
           "\"models\": [",
           b->dev->numerics, b->copy, b->upload, b->download, b->train);
    for (size_t i = 0; i < b->n_of; i++) {
        const struct bench_of *f = &b->of[i];
        printf("%s\n {\"model\": \"%s\", \"weight_bytes\": %.0f, \"row_bytes\": %.0f, \"draft_rows\": %zu, "
               "\"draft_seconds\": %.6g, \"heads_seconds\": %.6g, \"depths\": [",
               i ? "," : "", f->name, f->weight_bytes, f->row_bytes, f->partial, f->draft, f->heads);
        for (size_t j = 0; j < f->n; j++)
            printf("%s\n  {\"depth\": %zu, \"decode_seconds\": %.6g, \"decode_share\": %.4f, "
                   "\"pass_seconds\": {\"1\": %.6g, \"16\": %.6g, \"64\": %.6g}, \"prefill_seconds\": %.6g}",
                   j ? "," : "", f->at[j].depth, f->at[j].decode,
                   f->at[j].decode > 0 && b->copy > 0
                       ? (f->weight_bytes + (double)f->at[j].depth * f->row_bytes) / f->at[j].decode / b->copy
                       : 0,
                   f->at[j].pass[0], f->at[j].pass[1], f->at[j].pass[2], f->at[j].prefill);
        printf("]}");
    }
    printf("],\n \"accepted\": [");
    for (size_t i = 0; i < b->n_accepted; i++) {
        const struct bench_accepted *a = &b->accepted[i];
        printf("%s{\"drafters\": \"%s\", \"tokens\": %zu, \"tokens_per_round\": %.4f, \"rows\": %.2f, "
               "\"draft_passes\": %.3f, \"tokens_per_second\": %.2f, \"projected_seconds\": %.3f}",
               i ? ", " : "", a->drafters, a->tokens, a->per_round, a->rows, a->passes,
               (double)a->tokens / a->seconds, b->n_of ? bench_project(&b->of[0], a) : 0);
    }
    printf("],\n \"plain_projected_seconds\": %.3f, \"floor_seconds\": %.3f, \"missed\": %zu, \"skipped\": [",
           b->n_of ? bench_project(&b->of[0], NULL) : 0,
           b->n_of && b->copy > 0 ? bench_floor(&b->of[0], b->copy) : 0, b->missed);
    for (size_t i = 0; i < b->n_skipped; i++) {
        printf("%s", i ? ", " : "");
        put_json(stdout, b->skipped[i], strlen(b->skipped[i]));
    }
    printf("]}\n");
}

static void print_projection(const struct bench_device *b)
{
    const struct bench_of *f = &b->of[0];
    const size_t tokens = f->at[f->n - 1].depth;
    for (size_t i = 0; i < b->n_accepted; i++) {
        const struct bench_accepted *a = &b->accepted[i];
        printf("demo on real text, %s: %.2f tokens a round, %.1f rows, %.2f draft passes; %.0f tokens/s (%zu "
               "tokens)\n",
               a->drafters, a->per_round, a->rows, a->passes, (double)a->tokens / a->seconds, a->tokens);
    }
    if (!tokens || f->at[0].pass[0] <= 0 || f->at[0].decode <= 0)
        return;
    printf("projection of %zu tokens with %s, not a measurement:\n", tokens, f->name);
    printf("  plain: sum of decode(depth) = %.2f min; bandwidth floor: sum of bytes(depth) / copy bandwidth "
           "= %.2f min\n",
           bench_project(f, NULL) / 60, bench_floor(f, b->copy) / 60);
    for (size_t i = 0; i < b->n_accepted; i++)
        printf("  %s: sum of [rows(r, depth)%s + %.2f draft + t * choice] / t, r = %.1f rows and t = %.2f "
               "tokens a round, choice = decode - one row = %.2f min\n",
               b->accepted[i].drafters, b->accepted[i].heads ? " + heads" : "", b->accepted[i].passes,
               b->accepted[i].rows, b->accepted[i].per_round, bench_project(f, &b->accepted[i]) / 60);
    printf("  the paper, 100,000 tokens on an A100: 300 min plain, 90 min TokenSwift; the goal on an H200: 4 "
           "min\n");
}

static int read_wish(struct bench_device *b, struct err *e)
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
            any = b->wish[k] = true;
        else if (len > 6 && len < 32 && strncmp(list, "depth=", 6) == 0 && b->n_depth < BENCH_AT_MAX) {
            char number[32];
            snprintf(number, sizeof number, "%.*s", (int)len - 6, list + 6);
            if (parse_size(&b->depth[b->n_depth], "--points depth", number,
                           b->n_depth ? b->depth[b->n_depth - 1] + 1 : 0, BENCH_DEPTH_MAX, e))
                return -1;
            b->n_depth++;
        } else
            return err_set(e, ERR_INPUT,
                           "--points: \"%.*s\"; on a GPU are allowed: copy, decode, rows, draft, heads, "
                           "prefill, train, project, demo, depth=N (ascending, %d at most); "
                           "or spec and its relatives",
                           (int)MIN(len, (size_t)60), list, BENCH_AT_MAX);
    }
    for (size_t k = 0; k < sizeof words / sizeof *words && !any; k++)
        b->wish[k] = true;
    for (size_t k = DECODE; k <= PREFILL; k++)
        b->random |= b->wish[k];
    b->random |= b->wish[PROJECT] || b->wish[TRAIN];
    /* demo, and none of the points by name: all of them */
    for (size_t k = DECODE; k <= PREFILL && !b->random; k++)
        b->wish[k] = b->wish[DEMO];
    if (b->wish[PROJECT])
        b->wish[DECODE] = b->wish[ROWS] = b->wish[COPY] = b->wish[DRAFT] = b->wish[HEADS] = true;
    const size_t *from = b->tiny ? tiny_depths : depths,
                 n = b->tiny ? sizeof tiny_depths / sizeof *tiny_depths : sizeof depths / sizeof *depths;
    for (size_t i = 0; i < n && (!b->n_depth || b->n_depth == i); i++)
        b->depth[b->n_depth++] = from[i];
    return 0;
}

/* A device of its own for each model: its working memory is for one shape of heads. */
static int open_device(struct bench_device *b, struct err *e)
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

int bench_device(const struct options *o, struct err *e)
{
    static struct bench_device b;
    const char *why = NULL;
    b = (struct bench_device){ .o = o, .json = o->json, .tiny = device_is_added(o->device) };
    b.repeat = o->repeat ? o->repeat : b.tiny ? 1 : 7;
    if (device_choice_is_all(o->device))
        return err_set(e, ERR_INPUT, "bench: --device %s: one GPU at a time is measured (cuda:N)", o->device);
    if (read_wish(&b, e))
        return -1;
    if (!(b.ops = ops_for_cpu(&why)))
        return err_set(e, ERR_INPUT, "%s", why);
    if (!(b.pool = pool_open(o->threads ? o->threads : pool_default_threads())))
        return err_set(e, ERR_FAILED, "bench: cannot make threads");
    stop_signals_catch();
    int rc = open_device(&b, e);
    if (rc == 0 && b.wish[COPY])
        rc = measure_copies(&b, e);
    if (rc == 0 && b.random)
        rc = do_random(&b, e);
    if (rc == 0 && b.wish[PROJECT] && (rc = bench_accept(&b, e)) == 0 && !b.json)
        print_projection(&b);
    if (rc == 0 && b.wish[DEMO])
        rc = open_device(&b, e) || do_demo(&b, e) ? -1 : 0;
    if (rc == 0 && b.json)
        print_json(&b);
    for (size_t i = 0; i < b.n_skipped && !b.json; i++)
        printf("skipped: %s\n", b.skipped[i]);
    if (rc == 0 && !b.json)
        printf("%zu points miss their goal (!)\n", b.missed);
    if (b.dev)
        b.dev->close(b.dev);
    pool_close(b.pool);
    return rc || stdout_finish(e) ? -1 : 0;
}
