/* longhand plan: predicted speed of drafters on machines and models that one may not have. The throughput
 * model does the work (src/lab/throughput.h). Start at cmd_plan. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runs/report/report.h"
#include "src/base/page.h"
#include "src/base/output.h"
#include "src/base/sheet.h"
#include "src/base/stopping.h"
#include "src/lab/probe.h"
#include "src/lab/rounds.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"
#include "src/lab/throughput.h"
#include "src/model/find_model.h"
#include "src/model/model_files.h"

enum { LIST_MAX = 16 };

/* ---- shapes and machines ---- */

static const struct shape {
    const char *name;
    size_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    size_t experts, used, expert_ffn, shared_ffn;    /* in every layer */
    size_t value_heads;              /* of Qwen3.5, whose every 4th layer has attention */
} shapes[] = {
    { "llama3.2-1b", 16, 2048, 32, 8, 64, 8192, 128256 },
    { "llama3.2-3b", 28, 3072, 24, 8, 128, 8192, 128256 },
    { "llama3-8b", 32, 4096, 32, 8, 128, 14336, 128256 },
    { "llama3-70b", 80, 8192, 64, 8, 128, 28672, 128256 },
    { "llama2-7b", 32, 4096, 32, 32, 128, 11008, 32000 },
    { "mistral-7b", 32, 4096, 32, 8, 128, 14336, 32768 },
    { "qwen2.5-0.5b", 24, 896, 14, 2, 64, 4864, 151936 },
    { "qwen2.5-3b", 36, 2048, 16, 2, 128, 11008, 151936 },
    { "qwen2.5-7b", 28, 3584, 28, 4, 128, 18944, 152064 },
    { "qwen2.5-14b", 48, 5120, 40, 8, 128, 13824, 152064 },
    { "qwen3-8b", 36, 4096, 32, 8, 128, 12288, 151936 },
    { "qwen3-32b", 64, 5120, 64, 8, 128, 25600, 151936 },
    { "qwen3-30b-a3b", 48, 2048, 32, 4, 128, 6144, 151936, 128, 8, 768 },
    { "qwen3.5-4b", 32, 2560, 16, 4, 256, 9216, 248320, .value_heads = 32 },
    { "qwen3.5-27b", 64, 5120, 24, 4, 256, 17408, 248320, .value_heads = 48 },
    { "qwen3.5-35b-a3b", 40, 2048, 16, 2, 256, 0, 248320, 256, 8, 512, 512, 32 },
};

static const struct hardware { const char *name, *what; struct machine m; bool cpu; } machines[] = {
    { "h100", "NVIDIA H100 SXM: 989 TFLOP/s in bf16, 3.35 TB/s", { 989e12, 3.35e12 }, false },
    { "h200", "NVIDIA H200: 989 TFLOP/s in bf16, 4.8 TB/s", { 989e12, 4.8e12 }, false },
    { "zen4", "two cores of a Zen 4 server: 462 GFLOP/s in int16, 44 GB/s", { 462e9, 44e9 }, true },
};

enum { SHAPES = sizeof shapes / sizeof *shapes, MACHINES = sizeof machines / sizeof *machines };

static int read_shape(struct config *c, const char *name, const char *option, struct err *e)
{
    char known[512] = "";
    for (const struct shape *s = shapes; s < shapes + SHAPES; s++) {
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", *known ? ", " : "", s->name);
        if (strcmp(s->name, name))
            continue;
        *c = (struct config){ .n_layers = s->layers, .hidden = s->hidden, .n_heads = s->heads,
                              .n_kv_heads = s->kv_heads, .head_dim = s->head_dim, .ffn = s->ffn,
                              .vocab = s->vocab, .n_experts = s->experts, .experts_used = s->used,
                              .expert_ffn = s->expert_ffn, .shared_ffn = s->shared_ffn };
        const bool states = s->value_heads;
        if (states)
            c->delta = (struct delta_config){ 16, s->value_heads, 128, 128, 4 };
        for (size_t l = 0; l < c->n_layers; l++)
            c->layer[l] = (struct layer_spec){ .mixer = states && (l + 1) % 4 ? MIXER_DELTA : MIXER_ATTENTION,
                                               .gated = states, .experts = s->experts };
        config_layers(c);
        return 0;
    }
    return err_set(e, ERR_INPUT, "%s: unknown shape '%s' (%s)", option, name, known);
}

/* Measures this machine: the fastest products of bf16 or f32, and reading of 1 GiB, or what memory allows. */
static int measure(struct hardware *h, size_t threads, struct err *e)
{
    enum { ROUNDS = 3 };
    struct pool *pool = pool_open(threads ? threads : pool_default_threads());
    const char *limit;
    const size_t bytes = MIN((size_t)1 << 30, memory_available(&limit) / 4 / 64 * 64);
    char *buffer = pool ? mem_alloc(bytes) : NULL;
    struct probe_piece whole = { buffer, bytes };
    struct probe_pieces pieces = { 0 };
    int rc = buffer ? 0 : err_set(e, ERR_FAILED, "plan: out of memory to measure this machine");
    if (rc == 0) {
        memset(buffer, 1, bytes);
        rc = probe_cut(&pieces, &(struct probe_pieces){ &whole, 1 }, pool_threads(pool), e);
    }
    for (int i = 0; rc == 0 && i < ROUNDS; i++) {
        for (int k = 0; k < PROBE_I16_YMM; k++)
            if (probe_mul_supported((enum probe_mul)k))
                h->m.flops = fmax(h->m.flops, probe_mul_peak((enum probe_mul)k, pool, 0.05));
        h->m.bandwidth = fmax(h->m.bandwidth, probe_read_rate(&pieces, probe_read_best(&pieces, pool, 0.05),
                                                              pool, 0.1));
    }
    free(pieces.v);
    mem_free(buffer, bytes);
    pool_close(pool);
    return rc;
}

/* Whether the plan measures the model itself. In hybrids, rows that are not committed need copies of states,
 * and a plain text has room for none. */
static bool measures_model(const struct options *o, const struct config *c)
{
    return o->model && (!o->hardware || strcmp(o->hardware, "measured") == 0) && !config_is_hybrid(c);
}

static int read_hardware(struct hardware *h, char what[128], const struct options *o, bool model,
                         struct err *e)
{
    const char *name = o->hardware ? o->hardware : "measured";
    double gflops, gbs;
    char *end;
    for (size_t i = 0; i < MACHINES; i++)
        if (strcmp(machines[i].name, name) == 0) {
            *h = machines[i];
            return 0;
        }
    *h = (struct hardware){ .name = name, .what = what, .cpu = true };
    if (model) {
        snprintf(what, 128, "this machine, measured with the model");
        return 0;
    }
    if (strcmp(name, "measured") == 0) {
        if (measure(h, o->threads, e))
            return -1;
        snprintf(what, 128, "this machine, measured: %.0f GFLOP/s, %.1f GB/s", h->m.flops / 1e9,
                 h->m.bandwidth / 1e9);
        return 0;
    }
    gflops = strtod(name, &end);
    gbs = *end == ':' ? strtod(end + 1, &end) : 0;
    if (*end || !(gflops > 0 && isfinite(gflops)) || !(gbs > 0 && isfinite(gbs)))
        return err_set(e, ERR_INPUT, "--hardware: '%s' is not h100, h200, zen4, measured or GFLOPS:GBS, such "
                       "as 989000:3350", name);
    snprintf(what, 128, "%.0f GFLOP/s, %.1f GB/s", gflops, gbs);
    h->m = (struct machine){ gflops * 1e9, gbs * 1e9 };
    h->cpu = false;
    return 0;
}

/* ---- the command line ---- */

struct predicted {
    bool on;
    /* of a round with the published number of draft passes; by depth: and of one with i draft passes */
    double tokens, at[PASSES_MAX + 1]; bool by_depth;
    const char *where; char from[32];
};

struct setup {
    const struct options *o;
    struct config target, small;
    struct hardware hardware; char what[128];
    struct model_bytes bytes;
    size_t length[LIST_MAX], n_lengths, texts[LIST_MAX], n_texts;
    struct predicted drafter[N_DRAFTERS];
    enum drafter listed[N_DRAFTERS]; size_t n_listed;    /* those that are predicted, as named */
    bool measured; struct measured_rounds rounds;    /* of --model on this machine */
};

static int read_list(size_t *v, size_t *n, const char *name, const char *text, size_t max, struct err *e)
{
    *n = 0;
    for (const char *p = text;; p++) {
        char number[24];
        const size_t len = strcspn(p, ",");
        if (*n == LIST_MAX || len == 0 || len >= sizeof number)
            return err_set(e, ERR_INPUT, "%s: '%s' is not a list of at most %d whole numbers like 1000,8000",
                           name, text, LIST_MAX);
        memcpy(number, p, len);
        number[len] = 0;
        if (parse_size(&v[(*n)++], name, number, 1, max, e))
            return -1;
        p += len;
        if (!*p)
            return 0;
    }
}

/* The next word of a list, without its comma; false at the end. */
static bool next_word(char word[64], const char **p)
{
    const size_t n = strcspn(*p, ",");
    snprintf(word, 64, "%.*s", (int)MIN(n, (size_t)63), *p);
    if (!**p)
        return false;
    *p += n + ((*p)[n] == ',');
    return true;
}

static int find_drafter(const char *option, const char *name, struct err *e)
{
    char list[256] = "";
    for (enum drafter k = 0; k < DRAFTER_ADDED; k++) {
        if (!forecast_of(k))
            continue;
        if (strcmp(forecast_of(k)->name, name) == 0)
            return (int)k;
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "",
                 forecast_of(k)->name);
    }
    return err_set(e, ERR_INPUT, "%s: '%s' is not one of %s", option, name, list);
}

static void list_drafter(struct setup *s, int k)
{
    if (!s->drafter[k].on)
        s->listed[s->n_listed++] = (enum drafter)k;
    s->drafter[k].on = true;
}

/* A drafter of --drafter, with the acceptance that was published. */
static void add_drafter(struct setup *s, int k)
{
    list_drafter(s, k);
    s->drafter[k].tokens = forecast_of(k)->tokens;
    s->drafter[k].where = forecast_of(k)->where;
}

static int read_drafters(struct setup *s, struct err *e)
{
    const char *p = s->o->drafters;
    char word[64];
    for (enum drafter k = 0; k < DRAFTER_ADDED && !p; k++)
        if (forecast_of(k) && forecast_of(k)->tree.n_width)
            add_drafter(s, (int)k);
    while (p && next_word(word, &p)) {
        char *shape = strchr(word, ':');
        if (shape)
            *shape++ = 0;
        const int k = find_drafter("--drafter", word, e);
        const bool takes = k >= 0 && drafters[k]->option == OPTION_DIR;
        if (k < 0 || (shape && !takes))
            return k < 0 ? -1 : err_set(e, ERR_INPUT, "--drafter: %s takes no ':%s'", word, shape);
        if (takes && !shape)
            return err_set(e, ERR_INPUT, "--drafter: %s needs a shape, such as %s:llama3.2-1b", word, word);
        if (shape && read_shape(&s->small, shape, "--drafter", e))
            return -1;
        add_drafter(s, k);
    }
    return 0;
}

/* Tokens of a round with drafter k as a job had them. A fixed tree that is deep enough shows them by
 * depth. */
static void take_acceptance(struct predicted *d, int k, const struct report *r)
{
    const size_t passes = forecast_of(k)->passes;
    d->tokens = figure(&r->sum, "mean_acceptance_length");
    d->by_depth = r->tree_fixed && passes < FIGURE_DEPTHS && r->list[LIST_REACHED][passes] > 0;
    d->at[0] = 1;
    for (size_t i = 1; d->by_depth && i <= passes; i++)
        d->at[i] = d->at[i - 1] + r->list[LIST_ACCEPTED][i] / r->sum.rounds;
    d->tokens = d->by_depth ? d->at[passes] : d->tokens;
}

static int job_acceptance(struct predicted *d, int k, const struct options *o, const char *word,
                          struct err *e)
{
    struct store *store = NULL;
    struct job_list jobs = { 0 };
    struct reports l = { 0 };
    int rc = store_from_options(&store, o, STORE_READ, e) || job_from_word(store, word, &jobs, e) ? -1 : 0;
    if (rc == 0)
        rc = reports_open(&l, &(struct report_from){ store, &jobs.v[0].id, 1 }, 1,
                          &(struct report_options){ 0 }, e);
    if (rc == 0 && (l.n != 1 || !(figure(&l.v[0].sum, "mean_acceptance_length") >= 1)))
        rc = err_set(e, ERR_INPUT, "--acceptance: job %s has no rounds yet", word);
    if (rc == 0)
        take_acceptance(d, k, &l.v[0]);
    reports_close(&l);
    job_list_free(&jobs);
    store_close(store);
    return rc;
}

static int read_acceptance(struct setup *s, struct err *e)
{
    const char *p = s->o->acceptance ? s->o->acceptance : "";
    char word[64];
    while (next_word(word, &p)) {
        char *value = strchr(word, '=');
        if (!value)
            return err_set(e, ERR_INPUT, "--acceptance: '%s' is not NAME=TOKENS or NAME=@JOB", word);
        *value++ = 0;
        const int k = find_drafter("--acceptance", word, e);
        if (k < 0)
            return -1;
        struct predicted *d = &s->drafter[k];
        if (drafters[k]->option == OPTION_DIR && !d->on)
            return err_set(e, ERR_INPUT, "--acceptance: %s needs --drafter %s:SHAPE", word, word);
        list_drafter(s, k);
        d->by_depth = false;             /* the last word about a drafter counts */
        if (*value == '@' ? job_acceptance(d, k, s->o, value + 1, e)
                          : parse_real(&d->tokens, "--acceptance", value, 1, PASSES_MAX + 1, e))
            return -1;
        if (d->tokens > (double)forecast_of(k)->passes + 1)
            return err_set(e, ERR_INPUT, "--acceptance: %s=%s: %zu draft passes make at most %zu tokens a "
                           "round", word, value, forecast_of(k)->passes, forecast_of(k)->passes + 1);
        snprintf(d->from, sizeof d->from, *value == '@' ? "job %.20s" : "given", value + 1);
        d->where = d->from;
    }
    for (size_t i = 0; i < s->n_listed; i++)
        if (!(s->drafter[s->listed[i]].tokens >= 1))
            return err_set(e, ERR_INPUT, "--drafter: %s needs --acceptance %s=TOKENS",
                           forecast_of(s->listed[i])->name, forecast_of(s->listed[i])->name);
    return 0;
}

/* Measures the model of --model on this machine. */
static int measure_model(struct setup *s, struct err *e)
{
    size_t shortest = SIZE_MAX, longest = 0;
    unsigned kinds = 0;
    for (size_t i = 0; i < s->n_lengths; i++)
        shortest = MIN(shortest, s->length[i]), longest = MAX(longest, s->length[i]);
    for (size_t i = 0; i < s->n_listed; i++)
        kinds |= 1u << s->listed[i];
    s->measured = true;
    s->bytes.draft_weight = planner_bytes(s->bytes.weight, s->bytes.draft_weight);
    stop_signals_catch();
    return rounds_measure(&s->rounds, s->o, kinds, shortest, longest, e);
}

/* Whether a model's weights are there. A plan needs no more than its config.json. */
static bool has_weights(const char *place)
{
    static const char *const files[] = { "model.safetensors", "model.safetensors.index.json" };
    char path[PATH_BYTES + 40];
    bool found = model_is_file(place);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", place, files[i]);
        found |= access(path, F_OK) == 0;
    }
    return found;
}

/* The bytes of a weight in memory: the mean over the model's files, with --weights, where they are quantised;
 * else those of bf16. */
static int read_weight_bytes(struct setup *s, const char *place, struct err *e)
{
    static const double by_option[] = { 2, 34.0 / 32, 18.0 / 32 };       /* as-is, q8_0, q4_0 */
    struct tensors ts = { 0 };
    double bytes = 0, n = 0;
    s->bytes.weight = by_option[s->o->job.weights];
    if (!s->o->model || !has_weights(place))
        return 0;
    if (tensors_open_as(&ts, place, (enum weights)s->o->job.weights, s->target.tied, e))
        return -1;
    for (size_t i = 0; i < ts.n; i++) {
        bytes += (double)ts.t[i].bytes;
        n += (double)ts.t[i].n_elements;
    }
    if (model_is_quantised(&ts))
        s->bytes.weight = bytes / n;
    tensors_close(&ts);
    return 0;
}

static int read_setup(struct setup *s, const struct options *o, struct err *e)
{
    char dir[PATH_BYTES];
    *s = (struct setup){ .o = o };
    if (o->model && o->shape)
        return err_set(e, ERR_INPUT, "plan: --model and --shape: only one of them is allowed");
    if (o->model ? find_model_dir(dir, o->model, "--model", e) || config_read(&s->target, dir, e)
                 : read_shape(&s->target, o->shape ? o->shape : "llama3-8b", "--shape", e))
        return -1;
    if (read_list(s->length, &s->n_lengths, "--lengths",
                  o->lengths ? o->lengths : "1000,8000,32000,100000", 1 << 27, e) ||
        read_list(s->texts, &s->n_texts, "--batch-sizes", o->batch_sizes ? o->batch_sizes : "1", 1 << 16,
                  e) ||
        read_drafters(s, e) || read_acceptance(s, e) ||
        read_weight_bytes(s, dir, e) ||
        read_hardware(&s->hardware, s->what, o, measures_model(o, &s->target), e))
        return -1;
    s->bytes.draft_weight = s->hardware.cpu ? fmin(s->bytes.weight, 1) : s->bytes.weight;
    s->bytes.kv = 2;
    return measures_model(o, &s->target) ? measure_model(s, e) : 0;
}

/* ---- output ---- */

static struct throughput predict(const struct setup *s, enum drafter kind, size_t length, size_t texts)
{
    const double keys = (double)length;
    const struct pass_cost target = forecast_pass(&s->target, &s->bytes, keys);
    const struct predicted *d = &s->drafter[kind];
    struct drafting w = { forecast_of(kind), forecast_draft(kind, &s->target, &s->small, &s->bytes, keys) };
    struct round_seconds r;
    throughput_tokens(&w, d->tokens, w.of->passes);
    if (d->by_depth)
        memcpy(w.tokens, d->at, sizeof w.tokens);
    if (!s->measured)
        return throughput_round(&s->hardware.m, &target, &w, (double)texts);
    throughput_measured(&r, &s->rounds, kind, &w, length, texts);
    return throughput_best(&r, &w, (double)texts);
}

static struct throughput plain(const struct setup *s, size_t length, size_t texts)
{
    const struct pass_cost w = forecast_pass(&s->target, &s->bytes, (double)length);
    const struct drafting none = { 0 };
    struct round_seconds r = { 0 };
    if (s->measured)
        throughput_measured(&r, &s->rounds, DRAFTER_SUFFIX, &none, length, texts);
    const double seconds = s->measured ? r.plain : throughput_pass(&s->hardware.m, &w, (double)texts, 1);
    return (struct throughput){ 0, 1, 1, seconds, (double)texts / seconds, 1 };
}

/* Row i of the table: plain decoding, then each drafter, at each length and number of texts. */
static void plan_row(const void *setup, size_t i, struct row *cell)
{
    const struct setup *s = setup;
    const size_t drafter = i % (s->n_listed + 1), at = i / (s->n_listed + 1);
    const size_t length = s->length[at % s->n_lengths], texts = s->texts[at / s->n_lengths];
    const struct throughput t = drafter ? predict(s, s->listed[drafter - 1], length, texts)
                                        : plain(s, length, texts);
    cell[0] = (struct row){ "length", "length", V_UINT(length) };
    cell[1] = (struct row){ "texts", "texts", V_UINT(texts) };
    cell[2] = (struct row){ "drafter", "drafter",
                            V_TEXT(drafter ? forecast_of(s->listed[drafter - 1])->name : "none") };
    cell[3] = (struct row){ "draft_passes", "passes", V_UINT(t.passes) };
    cell[4] = (struct row){ "rows", "rows", V_UINT(t.rows) };
    cell[5] = (struct row){ "tokens_per_round", "tokens", V_DIGITS(t.tokens, 6), "@2" };
    cell[6] = (struct row){ "seconds_per_round", NULL, V_DIGITS(t.seconds, 6) };
    cell[7] = (struct row){ NULL, "round ms", V_REAL(t.seconds * 1e3), "@3" };
    cell[8] = (struct row){ "tokens_per_second", "tokens/s", V_DIGITS(t.rate, 6), "@1" };
    cell[9] = (struct row){ "speedup", "speedup", V_DIGITS(t.speedup, 6), "@2" };
}

static void measured_length(const void *setup, size_t i, struct row *cell)
{
    *cell = (struct row){ .value = V_UINT(((const struct setup *)setup)->rounds.length[i]) };
}

static void print(const struct setup *s)
{
    const struct table plan = { s->n_texts * s->n_lengths * (s->n_listed + 1), plan_row, s },
                       lengths = { 2, measured_length, s };
    struct row acceptance[N_DRAFTERS + 1] = { { 0 } };
    char unit[N_DRAFTERS][200], costs[120];
    for (size_t i = 0; i < s->n_listed; i++) {
        const enum drafter k = s->listed[i];
        snprintf(unit[k], sizeof unit[k], "@2 tokens in %zu passes (%s)", forecast_of(k)->passes,
                 s->drafter[k].where);
        acceptance[i] = (struct row){ forecast_of(k)->name, forecast_of(k)->name,
                                      V_DIGITS(s->drafter[k].tokens, 6), unit[k] };
    }
    snprintf(costs, sizeof costs,
             s->measured ? "passes and rounds of this model, measured at %zu and %zu tokens"
                         : "limits: every pass runs at full bandwidth or at full speed of products",
             s->rounds.length[0], s->rounds.length[1]);
    const struct row rows[] = {
        { "hardware", NULL, V_TEXT(s->hardware.name) },
        { NULL, "machine", V_TEXT(s->hardware.what) },
        { "flops", NULL, V_DIGITS(s->hardware.m.flops, 6), .unless = s->measured },
        { "bandwidth", NULL, V_DIGITS(s->hardware.m.bandwidth, 6), .unless = s->measured },
        { "model", "model", V_TEXT(s->o->model ? s->o->model : s->o->shape ? s->o->shape : "llama3-8b") },
        { "measured_lengths", NULL, V_TABLE(&lengths), .unless = !s->measured },
        { "bytes_per_weight", "model", V_DIGITS(s->bytes.weight, 6), "@2 bytes a weight" },
        { NULL, "costs", V_TEXT(costs) },
        { "acceptance", "acceptance", V_ROWS(acceptance) },
        { "plan", "prediction", V_TABLE(&plan) },
        { 0 } };
    sheet_print(s->o->json, JW_LINE, 0, rows);
    for (size_t i = 0; s->measured && !s->o->json && i < s->n_listed; i++)
        if (s->listed[i] != DRAFTER_SUFFIX && !s->rounds.draft[s->listed[i]].most)
            printf("%s: draft passes were not measured: as long for each byte as a pass of one row.\n",
                   forecast_of(s->listed[i])->name);
}

/* A page with one plot for each number of texts: speedup over the length. */
static int print_html(const struct setup *s, struct err *e)
{
    double x[LIST_MAX], y[N_DRAFTERS][LIST_MAX];
    struct whole out;
    FILE *f = whole_begin(&out, e);
    if (!f)
        return -1;
    page_begin(f, "plan", NULL);
    page_format(f, "<h1>Predicted speedup</h1><p class=\"note\">@t. @t</p><div class=\"plots\">",
                s->hardware.what, s->measured ? "Passes and rounds were measured with the model."
                            : "Every pass runs at full bandwidth or at full speed of products.");
    for (size_t b = 0; b < s->n_texts; b++) {
        struct series v[N_DRAFTERS];
        char title[64];
        for (size_t l = 0; l < s->n_lengths; l++)
            x[l] = (double)s->length[l];
        for (size_t i = 0; i < s->n_listed; i++) {
            for (size_t l = 0; l < s->n_lengths; l++)
                y[i][l] = predict(s, s->listed[i], s->length[l], s->texts[b]).speedup;
            v[i] = (struct series){ forecast_of(s->listed[i])->name, y[i] };
        }
        snprintf(title, sizeof title, "Speedup, %zu %s at once", s->texts[b],
                 plural(s->texts[b], "text", "texts"));
        page_plot(f, &(struct page_plot){ .title = title, .note = "tokens per second over plain decoding, by "
                                          "length of the text", .x = x, .n = s->n_lengths,
                                          .length = x[s->n_lengths - 1] }, v, s->n_listed);
    }
    fputs("</div>", f);
    page_end(f, NULL, NULL);
    return whole_end(&out, 0, s->o->output, s->o->force ? EARLIER_ANY : EARLIER_KIND, e);
}

/* ---- the paper's grids ---- */

static int paper(const struct options *o, struct err *e)
{
    static const char *const title[SPIRE_GRIDS] = { "Figure 4, 67M", "Figure 6, Llama 3 70B" };
    size_t equal = 0, all = 0;
    if (strcmp(o->paper, "spire"))
        return err_set(e, ERR_INPUT, "--paper: '%s' is not spire", o->paper);
    for (size_t g = 0; g < SPIRE_GRIDS; g++)
        for (size_t d = 0; d < SPIRE_DRAFTS; d++) {
            printf("%s, %s: batch by length\n%6s", title[g], spire_drafts[d], "");
            for (size_t l = 0; l < SPIRE_LENGTHS; l++)
                printf(" %7u", (g ? 4096u : 32u) << l);
            putchar('\n');
            for (size_t b = 0; b < SPIRE_BATCHES; b++) {
                printf("%6u", 1u << b);
                for (size_t l = 0; l < SPIRE_LENGTHS; l++) {
                    const double x = spire_speedup(g, d, b, l);
                    const bool same = rint(x * 1e4) == spire_golden[g][d][b][l];
                    printf(" %6.2f%c", x, same ? ' ' : '*');
                    equal += same;
                    all++;
                }
                putchar('\n');
            }
            putchar('\n');
        }
    printf("%zu of %zu cells equal the paper's\n", equal, all);
    if (stdout_finish(e))
        return -1;
    return equal == all ? 0 : err_set(e, ERR_FAILED, "plan: %zu cells differ, marked *", all - equal);
}

int cmd_plan(const struct options *o, struct err *e)
{
    static struct setup s;
    if (o->json && o->html)
        return err_set(e, ERR_INPUT, "--json and --html: only one of them is allowed");
    if (o->output && !o->html)
        return err_set(e, ERR_INPUT, "plan: -o needs --html");
    if (o->paper)
        return paper(o, e);
    if (read_setup(&s, o, e))
        return -1;
    if (o->html)
        return print_html(&s, e);
    print(&s);
    return stdout_finish(e);
}
