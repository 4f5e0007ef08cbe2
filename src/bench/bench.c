/* Owns the verb `bench`: it reads --points, measures the machine and the models (struct report), and prints
 * tables or JSON. Start at cmd_bench. */
#include "src/bench/bench.h"
#include "src/base/json_write.h"
#include "src/base/output.h"
#include "src/bench/bench_spec.h"
#include "src/model/device_choice.h"
#include "src/request/model_options.h"
#include "src/sample/sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { POINTS_MAX = 256, LIST_MAX = 16, TRIES = 3 };

/* The words of --points. The first BENCH_KINDS of them are also the names of the kinds of points. */
enum { MACHINE = BENCH_KINDS, DEMO, RANDOM, QUICK, Q8_0, Q4_0, Q4_K_M, BODY, WORDS = BODY + BODIES };
static const char *const words[WORDS] = {
    "decode", "rows", "prefill", "sampler", "texts", "machine", "demo", "random", "quick", "q8_0", "q4_0",
    "q4_k_m", [BODY + BODY_SMALL] = "0.5b", [BODY + BODY_3B] = "3b", [BODY + BODY_MOE] = "moe",
    [BODY + BODY_4B] = "4b", [BODY + BODY_35B] = "35b",
};

struct list { size_t v[LIST_MAX], n; };      /* ascending */
static const struct list all_depths = { { 0, 4096, 16384, 32768, 65536, 100000 }, 6 },
                         quick_depths = { { 0, 4096, 32768 }, 3 },
                         all_rows = { { 2, 4, 8, 16, 32, 64 }, 6 }, quick_rows = { { 8, 32 }, 2 };

struct report {
    const struct options *o;
    struct bench bench;
    bool wanted[WORDS];
    struct list depths, rows;
    size_t prefill;                      /* its rows */
    struct bench_point point[POINTS_MAX]; size_t n;
    char name[4][64];                    /* of the model that --model names, or of the random models */
    size_t impossible, missed, noisy;
    struct { size_t bytes; double rate[2]; } read[16]; size_t n_read;    /* by one thread, by all */
    double dispatch;
    const char *skipped[4]; size_t n_skipped;
};

/* ---- which points ---- */

static int list_add(struct list *l, const char *word, size_t max, struct err *e)
{
    size_t x, i = l->n;
    if (i == LIST_MAX)
        return err_set(e, ERR_INPUT, "--points: more than %d values of one kind", LIST_MAX);
    if (parse_size(&x, "--points", word, 0, max, e))
        return -1;
    for (l->n++; i && l->v[i - 1] > x; i--)
        l->v[i] = l->v[i - 1];
    l->v[i] = x;
    return 0;
}

static int parse_points(struct report *r, struct err *e)
{
    bool *on = r->wanted, any = false;
    for (const char *list = r->o->bench_points; list && *list; ) {
        char word[64];
        size_t len = strcspn(list, ","), k = 0;
        if (len >= sizeof word)
            return err_set(e, ERR_INPUT, "--points: a word of %zu bytes", len);
        snprintf(word, sizeof word, "%.*s", (int)len, list);
        list += len + (list[len] == ',');
        while (k < WORDS && strcmp(word, words[k]))
            k++;
        if (k < WORDS)
            on[k] = true;
        else if (strncmp(word, "depth=", 6) == 0 ? list_add(&r->depths, word + 6, BENCH_DEPTH_MAX, e)
                 : strncmp(word, "m=", 2) == 0 ? list_add(&r->rows, word + 2, BENCH_ROWS_MAX, e)
                 : strncmp(word, "prefill=", 8) == 0
                     ? parse_size(&r->prefill, "--points", word + 8, BENCH_ROWS_MAX + 1, BENCH_PREFILL, e)
                     : err_set(e, ERR_INPUT,
                               "--points: \"%s\"; allowed: machine, decode, rows, texts, prefill, sampler, "
                               "demo, random, 0.5b, 3b, 4b, 35b, moe, q8_0, q4_0, q4_k_m, quick, depth=N, "
                               "m=N, prefill=N; or resume[,at=N]; or spec, spec-short, spec-copy, "
                               "spec-windows",
                               word))
            return -1;
    }
    on[BENCH_PREFILLING] |= r->prefill > 0;
    r->prefill = r->prefill ? r->prefill : BENCH_PREFILL;
    for (size_t k = 0; k <= MACHINE; k++)
        any |= on[k];
    for (size_t k = 0; k <= MACHINE && !any; k++)
        on[k] = k != BENCH_TEXTS;
    for (size_t k = Q8_0; k < WORDS; k++)
        on[RANDOM] |= on[k];
    if (!on[DEMO] && !on[RANDOM])
        on[DEMO] = on[RANDOM] = true;
    if (!r->depths.n)
        r->depths = on[QUICK] ? quick_depths : all_depths;
    if (!r->rows.n)
        r->rows = on[QUICK] ? quick_rows : all_rows;
    while (r->o->tokens && r->depths.n > 1 && r->depths.v[r->depths.n - 1] > r->o->tokens)
        r->depths.n--;
    return 0;
}

/* ---- the machine ---- */

/* The table of bandwidths: working sets from the first cache level to main memory. */
static int measure_reads(struct report *r, struct err *e)
{
    static const size_t mib[] = { 1, 2, 4, 8, 16, 24, 32, 64, 256, 1024 };
    const size_t most = (size_t)1 << 30;
    const char *limit;
    char *buffer = memory_available(&limit) / 2 > most ? mem_alloc(most) : NULL;
    int rc = 0;
    if (!buffer) {
        r->skipped[r->n_skipped++] = "the table of bandwidths (less than 2 GiB of memory is free)";
        return 0;
    }
    memset(buffer, 1, most);
    for (size_t i = 0; i < 2 * sizeof mib / sizeof *mib && rc == 0; i++) {
        const size_t all = i % 2, bytes = mib[i / 2] << 20;
        struct pool *pool = all ? r->bench.pool : NULL;
        struct probe_piece whole = { buffer, bytes };
        struct probe_pieces m;
        rc = probe_cut(&m, &(struct probe_pieces){ &whole, 1 }, pool ? pool_threads(pool) : 1, e);
        if (rc)
            break;
        enum probe_read how = probe_read_best(&m, pool, 0.01);
        double *rate = &r->read[i / 2].rate[all];
        for (int k = 0; k < 5; k++) {
            const double now = probe_read_rate(&m, how, pool, 0.02);
            *rate = MAX(*rate, now);
        }
        free(m.v);
        r->read[i / 2].bytes = bytes;
        r->n_read = i / 2 + 1;
    }
    mem_free(buffer, most);
    return rc;
}

/* The instructions of each twin: products of f32, bf16 and int16. */
static const struct twin { const char *name; enum probe_mul f32, bf16, int16; } twins[] = {
    { "avx512", PROBE_FMA_ZMM, PROBE_BF16_ZMM, PROBE_I16_ZMM },
    { "avx2", PROBE_FMA_YMM, PROBE_FMA_YMM, PROBE_I16_YMM },
    { "generic", PROBE_MUL_PLAIN, PROBE_MUL_PLAIN, PROBE_MUL_PLAIN },
};

static int measure_machine(struct report *r, struct err *e)
{
    struct bench *b = &r->bench;
    const struct twin *twin = twins;
    while (strcmp(twin->name, b->ops->name))
        twin++;
    b->used = b->compute == DT_BF16 ? twin->bf16 : twin->f32;
    b->int16 = twin->int16;
    for (int round = 0; round < 3; round++)
        for (int k = 0; k < PROBE_MULS; k++)
            for (int all = 0; all < 2 && probe_mul_supported((enum probe_mul)k); all++) {
                double f = probe_mul_peak((enum probe_mul)k, all ? b->pool : NULL, 0.02);
                b->peak[k][all] = MAX(b->peak[k][all], f);
            }
    b->reference = b->peak[b->used][1];
    for (int k = 0; k < PROBE_I16_YMM; k++)
        if (b->peak[k][0] > 1.02 * b->peak[b->best][0])    /* one thread: less disturbed */
            b->best = (enum probe_mul)k;
    b->costs = probe_costs(twin->f32, 0.03);
    r->dispatch = probe_dispatch(b->pool, 0.02);
    return r->wanted[MACHINE] ? measure_reads(r, e) : 0;
}

static void print_machine(const struct report *r)
{
    const struct bench *b = &r->bench;
    printf("machine: %zu threads, twin %s, cache of %s, products by %s; best of this CPU: %s\n",
           pool_threads(b->pool), b->ops->name, kv_type_name(b->kv), probe_mul_name(b->used),
           probe_mul_name(b->best));
    printf("  %-22s %10s %10s GFLOP/s\n", "multiply-add", "1 thread", "all");
    for (int k = 0; k < PROBE_MULS; k++)
        if (b->peak[k][1] > 0)
            printf("  %-22s %10.1f %10.1f\n", probe_mul_name((enum probe_mul)k), b->peak[k][0] / 1e9,
                   b->peak[k][1] / 1e9);
    if (r->n_read)
        printf("  %-22s %10s %10s GB/s\n", "read, working set", "1 thread", "all");
    for (size_t i = 0; i < r->n_read; i++)
        printf("  %15zu MiB    %10.1f %10.1f\n", r->read[i].bytes >> 20, r->read[i].rate[0] / 1e9,
               r->read[i].rate[1] / 1e9);
    printf("  per element on one thread: exp2 %.3f ns, maximum %.3f ns, to bf16 %.3f ns; an empty step of "
           "all threads %.2f us\n\n",
           b->costs.exp2 * 1e9, b->costs.max * 1e9, b->costs.convert * 1e9, r->dispatch * 1e6);
}

/* ---- points ---- */

static void print_header(void)
{
    printf("%-14s %-7s %6s %5s %9s %9s %8s %7s %7s %9s %3s %6s %5s  %6s %6s %6s %7s %6s\n", "model", "point",
           "depth", "rows", "ms", "tokens/s", "MB", "GB/s", "GF/s", "roof ms", "by", "share", "goal", "exp",
           "max", "cvt", "product", "step");
}

static bool meets(const struct bench_point *p)
{
    return p->kind == BENCH_SAMPLING ? p->of_pass <= p->goal : p->share >= p->goal;
}

static void print_point(const struct bench_point *p)
{
    if (p->kind == BENCH_SAMPLING) {
        printf("%-14s %-7s %6s %5s %9.4f   %s: %.1f %% of a one-row pass, goal <= %.0f %%%s\n", p->model,
               "sampler", "", "1", p->seconds * 1e3, p->settings, 100 * p->of_pass, 100 * p->goal,
               meets(p) ? "" : " MISSED");
        return;
    }
    char goal[16] = "-", product[16] = "-";
    if (p->product_share > 0)
        snprintf(product, sizeof product, "%.1f%%", 100 * p->product_share);
    if (p->goal > 0)
        snprintf(goal, sizeof goal, "%.0f%s", 100 * p->goal, meets(p) ? "" : "!");
    printf("%-14s %-7s %6zu %5zu %9.4f %9.1f %8.1f %7.1f %7.1f %9.4f %3s %5.1f%% %5s  %5.1f%% %5.1f%% "
           "%5.1f%% %7s %4.2fus%s\n",
           p->model, words[p->kind], p->depth, p->rows, p->seconds * 1e3, (double)p->rows / p->seconds,
           p->work.bytes / 1e6, p->bandwidth / 1e9, p->peak / 1e9, p->roof * 1e3,
           p->memory_bound ? "mem" : "mul", 100 * p->share, goal, 100 * p->exp / p->seconds,
           100 * p->max / p->seconds, 100 * p->convert / p->seconds, product, p->step * 1e6,
           p->noisy ? " ~" : "");
}

static void finish_point(struct report *r, struct bench_point *p)
{
    r->impossible += p->share > 1;
    r->missed += p->goal > 0 && !meets(p);
    r->noisy += p->noisy;
    r->n++;
    if (!r->o->json)
        print_point(p);
    fflush(stdout);
}

/* A share above 100 % means that the probe missed the machine's speed at that moment. The point is measured
 * again; a share that stays above 100 % is an error. */
static int measure_point(struct report *r, struct bench_target *t, struct bench_point p, struct err *e)
{
    if (r->n == POINTS_MAX)
        return err_set(e, ERR_INPUT, "--points: more than %d points", POINTS_MAX);
    for (int i = 0; i < TRIES; i++) {
        if (bench_measure(&r->bench, t, &p, e))
            return err_while(e, "%s, %s at depth %zu", p.model, words[p.kind], p.depth);
        if (p.share <= 1)
            break;
    }
    if (p.goal == 0 && (p.kind == BENCH_ROWS || p.kind == BENCH_TEXTS))
        p.goal = p.memory_bound ? 0.75 : 0.60;
    r->point[r->n] = p;
    finish_point(r, &r->point[r->n]);
    return 0;
}

static int measure_samplers(struct report *r, struct bench_target *t, const char *name, double pass,
                            struct err *e)
{
    static const struct { const char *name; double temperature, top_p, min_p, penalty; long top_k;
    } set[] = {
        { "greedy", 0, 1, 0, 1, 0 },
        { "temperature 1", 1, 1, 0, 1, 0 },
        { "temperature 1, min-p 0.05", 1, 1, 0.05, 1, 0 },
        { "temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, penalty 1.1", 0.8, 0.95, 0.05, 1.1, 40 },
        { "temperature 1, top-p 0.95", 1, 0.95, 0, 1, 0 },
    };
    for (size_t i = 0; i < sizeof set / sizeof *set && r->n < POINTS_MAX; i++) {
        struct bench_point *p = &r->point[r->n];
        struct sampling s;
        *p = (struct bench_point){ .model = name, .kind = BENCH_SAMPLING, .rows = 1, .goal = 0.05,
                                   .settings = set[i].name };
        sampling_defaults(&s);
        s.seed = 1;
        s.temperature = set[i].temperature;
        s.top_p = set[i].top_p;
        s.min_p = set[i].min_p;
        s.penalty = set[i].penalty;
        s.penalty_window = 1024;
        s.top_k = set[i].top_k;
        if (bench_measure_sampler(&r->bench, t, p, &s, pass, e))
            return -1;
        finish_point(r, p);
    }
    return 0;
}

/* Several rows of one text, and one row of each of several texts. */
static int measure_rows(struct report *r, struct bench_target *t, struct bench_point p, struct err *e)
{
    static const enum bench_kind kinds[] = { BENCH_ROWS, BENCH_TEXTS };
    p.goal = 0;
    for (size_t i = 0; i < 2 * r->rows.n; i++) {
        p.kind = kinds[i / r->rows.n];
        p.rows = r->rows.v[i % r->rows.n];
        t->texts = p.kind == BENCH_TEXTS ? p.rows : 1;
        if (r->wanted[p.kind] && p.rows && t->texts <= t->n_kv && measure_point(r, t, p, e))
            return -1;
    }
    t->texts = 1;
    return 0;
}

/* With goals decoding at depth 0 and prefill have goals too, and the sampler is measured. */
static int measure_points(struct report *r, struct bench_target *t, struct bench_point p, bool goals,
                          size_t n_depths, struct err *e)
{
    const bool samplers = r->wanted[BENCH_SAMPLING] && goals;
    double pass = 0;
    if (r->wanted[BENCH_PREFILLING]) {
        p.kind = BENCH_PREFILLING;
        p.rows = r->prefill;
        p.goal = goals ? 0.60 : 0;
        if (measure_point(r, t, p, e))
            return -1;
    }
    for (size_t i = 0; i < n_depths; i++) {
        p.depth = r->depths.v[i];
        bench_depth(t, p.depth);
        if (r->wanted[BENCH_DECODE] || (samplers && p.depth == 0)) {
            p.kind = BENCH_DECODE;
            p.rows = 1;
            p.goal = p.depth || goals ? 0.80 : 0;
            if (measure_point(r, t, p, e))
                return -1;
            if (pass == 0)
                pass = r->point[r->n - 1].seconds;
        }
        if (measure_rows(r, t, p, e))
            return -1;
    }
    return samplers ? measure_samplers(r, t, p.model, pass, e) : 0;
}

/* The caches that the points need. */
static size_t texts_most(const struct report *r)
{
    size_t most = 1;
    for (size_t j = 0; j < r->rows.n && r->wanted[BENCH_TEXTS]; j++)
        most = MAX(most, MIN(r->rows.v[j], (size_t)BENCH_TEXTS_MAX));
    return most;
}

static enum bench_body body_of(const struct report *r)
{
    size_t body = BODIES - 1;
    while (body > BODY_SMALL && !r->wanted[BODY + body])
        body--;
    return (enum bench_body)body;
}

/* dir NULL: the random model, which is as large as the models that goals are for. */
static int measure_model(struct report *r, const char *name, const char *dir, struct err *e)
{
    struct config c;
    struct bench_target t = { 0 };
    size_t n = r->depths.n;
    if (bench_config(&c, dir, body_of(r), e))
        return -1;
    while (n && r->depths.v[n - 1] + BENCH_ROWS_MAX > c.context)
        n--;
    const size_t n_max = MAX((size_t)BENCH_PREFILL, (n ? r->depths.v[n - 1] : 0) + BENCH_ROWS_MAX);
    int rc = bench_open(&t, &r->bench, &c, dir, texts_most(r), n_max, e) ||
             measure_points(r, &t, (struct bench_point){ .model = name }, !dir, n, e);
    bench_close(&t);
    return rc ? -1 : 0;
}

/* The random body: bf16, or the quantised types that --points names. */
static int measure_random(struct report *r, struct err *e)
{
    static const struct { int word; enum dtype type; const char *name; } types[] = {
        { RANDOM, DT_OTHER, "random" }, { Q8_0, DT_Q8_0, "Q8_0" }, { Q4_0, DT_Q4_0, "Q4_0" },
        { Q4_K_M, DT_Q4_K, "Q4_K_M" } };
    static const char *const bodies[BODIES] = { "0.5B", "3B", "MoE", "4B/4", "35B/10" };
    const bool typed = r->wanted[Q8_0] || r->wanted[Q4_0] || r->wanted[Q4_K_M];
    int rc = 0;
    for (size_t i = typed ? 1 : 0; i < (typed ? sizeof types / sizeof *types : 1) && rc == 0; i++)
        if (r->wanted[types[i].word]) {
            snprintf(r->name[i], sizeof r->name[i], "%s %s", bodies[body_of(r)], types[i].name);
            r->bench.random = types[i].type;
            rc = measure_model(r, r->name[i], NULL, e);
        }
    return rc;
}

static int measure_models(struct report *r, struct err *e)
{
    char dir[PATH_BYTES];
    int rc = 0;
    if (r->o->model) {
        if (model_dir(dir, r->o, e))
            return -1;
        const char *base = strrchr(dir, '/');
        snprintf(*r->name, sizeof *r->name, "%.63s", base && base[1] ? base + 1 : dir);
        return measure_model(r, *r->name, dir, e);
    }
    if (r->wanted[DEMO] && bench_find_demo(dir))
        rc = measure_model(r, "demo", dir, e);
    else if (r->wanted[DEMO])
        r->skipped[r->n_skipped++] = "models/demo (not found from here or from the program)";
    return rc || !r->wanted[RANDOM] ? rc : measure_random(r, e);
}

/* ---- JSON ---- */

static void json_point(struct json_writer *w, const struct bench_point *p)
{
    const struct { const char *key; double value; } reals[] = {
        { "tokens_per_second", (double)p->rows / p->seconds }, { "bandwidth", p->bandwidth },
        { "peak", p->peak }, { "roof_seconds", p->roof }, { "share", p->share }, { "exp_seconds", p->exp },
        { "max_seconds", p->max }, { "convert_seconds", p->convert },
        { "product_share", p->product_share }, { "step_seconds", p->step },
    };
    jw_open(w, NULL, '{');
    jw_text(w, "model", p->model);
    jw_text(w, "point", words[p->kind]);
    jw_uint(w, "depth", p->depth);
    jw_uint(w, "rows", p->rows);
    jw_real(w, "seconds", p->seconds);
    if (p->kind == BENCH_SAMPLING) {
        jw_text(w, "settings", p->settings);
        jw_real(w, "share_of_pass", p->of_pass);
    } else {
        jw_uint(w, "bytes", (uint64_t)p->work.bytes);
        jw_uint(w, "flops", (uint64_t)p->work.flops);
        for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
            jw_real(w, reals[i].key, reals[i].value);
        jw_reals(w, "bandwidth_range", p->bandwidth_range, 2);
        jw_text(w, "read", probe_read_name(p->how));
        jw_text(w, "instruction", probe_mul_name(p->mul));
        jw_text(w, "bound", p->memory_bound ? "memory" : "compute");
        jw_uint(w, "samples", p->samples);
        jw_uint(w, "clean", p->clean);
        jw_bool(w, "noisy", p->noisy);
    }
    jw_real(w, "goal", p->goal > 0 ? p->goal : NAN);         /* NAN: null */
    if (p->goal > 0)
        jw_bool(w, "met", meets(p));
    jw_close(w, '}');
}

static void print_json(const struct report *r)
{
    const struct bench *b = &r->bench;
    struct json_writer w = jw_begin(stdout, JW_INDENTED, 9);
    jw_uint(&w, "threads", pool_threads(b->pool));
    jw_text(&w, "isa", b->ops->name);
    jw_text(&w, "compute", b->compute == DT_F32 ? "f32" : "bf16");
    jw_text(&w, "kv_dtype", kv_type_name(b->kv));
    jw_open(&w, "peak", '{');
    for (int k = 0; k < PROBE_MULS; k++)
        if (b->peak[k][1] > 0)
            jw_reals(&w, probe_mul_name((enum probe_mul)k), b->peak[k], 2);
    jw_close(&w, '}');
    jw_open(&w, "bandwidth", '[');
    for (size_t i = 0; i < r->n_read; i++) {
        jw_open(&w, NULL, '[');
        jw_uint(&w, NULL, r->read[i].bytes);
        jw_real(&w, NULL, r->read[i].rate[0]);
        jw_real(&w, NULL, r->read[i].rate[1]);
        jw_close(&w, ']');
    }
    jw_close(&w, ']');
    jw_real(&w, "exp2_seconds", b->costs.exp2);
    jw_real(&w, "max_seconds", b->costs.max);
    jw_real(&w, "convert_seconds", b->costs.convert);
    jw_real(&w, "dispatch_seconds", r->dispatch);
    jw_open(&w, "points", '[');
    for (size_t i = 0; i < r->n; i++)
        json_point(&w, &r->point[i]);
    jw_close(&w, ']');
    jw_uint(&w, "missed", r->missed);
    jw_uint(&w, "noisy", r->noisy);
    jw_uint(&w, "impossible", r->impossible);
    jw_end(&w);
}

/* ---- the verb ---- */

static int finish(const struct report *r, struct err *e)
{
    const struct bench_point *first = r->point;
    if (r->o->json) {
        print_json(r);
    } else {
        for (size_t i = 0; i < r->n_skipped; i++)
            printf("skipped: %s\n", r->skipped[i]);
        printf("%zu points, %zu miss their goal (!), %zu have fewer than three undisturbed samples (~)\n",
               r->n, r->missed, r->noisy);
    }
    if (stdout_finish(e))
        return -1;
    if (!r->impossible)
        return 0;
    while (first->share <= 1)
        first++;
    return err_set(
        e, ERR_FAILED,
        "bench: %zu points above 100 %% of the roofline, the first: %s, %s, depth %zu, %zu rows: %.1f %%; "
        "the probes missed the machine's speed",
        r->impossible, first->model, words[first->kind], first->depth, first->rows, 100 * first->share);
}

int cmd_bench(const struct options *o, struct err *e)
{
    if (bench_spec_wanted(o->bench_points, spec_points))
        return bench_spec(o, spec_points, e);
    if (bench_resume_wanted(o->bench_points))
        return bench_resume(o, e);
    if (strcmp(o->device, "auto") && strcmp(o->device, "cpu"))
        return err_set(e, ERR_INPUT,
                       "bench: --device %s: only the spec points run on a GPU; labbench (make bench) "
                       "measures GPUs",
                       o->device);
    static struct report report;
    struct report *r = &report;
    struct bench *b = &r->bench;
    const char *why = NULL;
    r->o = o;
    b->compute = option_compute(o);
    if (parse_points(r, e) || device_choice_cpu_kv(&b->kv, b->compute, option_kv(o->kv_dtype), e))
        return -1;
    b->ops = ops_for_cpu(&why);
    if (!b->ops)
        return err_set(e, ERR_INPUT, "%s", why);
    b->repeat = o->repeat ? MIN(o->repeat, 60) : r->wanted[QUICK] ? 3 : 7;
    b->patience = r->wanted[QUICK] ? 1.0 : 4.0;
    b->pool = pool_open(o->threads ? o->threads : pool_default_threads());
    if (!b->pool)
        return err_set(e, ERR_FAILED, "bench: cannot make threads");
    int rc = measure_machine(r, e);
    if (rc == 0 && !o->json) {
        print_machine(r);
        print_header();
    }
    rc = rc || measure_models(r, e) || finish(r, e) ? -1 : 0;
    pool_close(b->pool);
    return rc;
}
