/* Owns the verb `bench`: it reads --points (struct points), measures the machine and the models (struct
 * report), and prints tables or JSON. Start at cmd_bench. */
#include "src/bench/bench.h"
#include "src/base/json_write.h"
#include "src/base/output.h"
#include "src/bench/bench_resume.h"
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

static const size_t ALL_DEPTHS[] = { 0, 4096, 16384, 32768, 65536, 100000 }, QUICK_DEPTHS[] = { 0, 4096,
    32768 };
static const size_t ALL_ROWS[] = { 2, 4, 8, 16, 32, 64 }, QUICK_ROWS[] = { 8, 32 };

/* The points of --points. */
struct points {
    bool machine, kind[BENCH_KINDS], demo, random, quick;
    size_t depth[LIST_MAX], n_depth, rows[LIST_MAX], n_rows;
};

struct report {
    struct bench bench;
    struct points points;
    struct bench_point point[POINTS_MAX]; size_t n;
    char names[2][64];
    bool json, quiet;
    size_t impossible, missed, noisy;
    double peak[PROBE_MULS][2];          /* one thread, all */
    struct { size_t bytes; double rate[2]; } read[16]; size_t n_read;
    double dispatch;
    const char *skipped[4]; size_t n_skipped;
};

/* ---- which points ---- */

static int list_add(size_t *list, size_t *n, const char *word, size_t max, struct err *e)
{
    if (*n == LIST_MAX)
        return err_set(e, ERR_INPUT, "--points: more than %d values of one kind", LIST_MAX);
    return parse_size(&list[(*n)++], "--points", word, 0, max, e);
}

static int by_size(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

static int parse_points(struct points *w, const char *list, struct err *e)
{
    static const char *const kinds[BENCH_KINDS] = { "decode", "rows", "prefill", "sampler" };
    bool any_kind = false;
    *w = (struct points){ 0 };
    while (list && *list) {
        char word[64];
        size_t len = strcspn(list, ","), k = 0;
        if (len >= sizeof word)
            return err_set(e, ERR_INPUT, "--points: a word of %zu bytes", len);
        memcpy(word, list, len);
        word[len] = 0;
        list += len + (list[len] == ',');
        while (k < BENCH_KINDS && strcmp(word, kinds[k]))
            k++;
        if (k < BENCH_KINDS)
            any_kind = w->kind[k] = true;
        else if (strcmp(word, "machine") == 0)
            any_kind = w->machine = true;
        else if (strcmp(word, "demo") == 0)
            w->demo = true;
        else if (strcmp(word, "random") == 0)
            w->random = true;
        else if (strcmp(word, "quick") == 0)
            w->quick = true;
        else if (strncmp(word, "depth=", 6) == 0
                     ? list_add(w->depth, &w->n_depth, word + 6, BENCH_DEPTH_MAX, e)
                 : strncmp(word, "m=", 2) == 0
                     ? list_add(w->rows, &w->n_rows, word + 2, BENCH_ROWS_MAX, e)
                     : err_set(e, ERR_INPUT,
                               "--points: \"%s\"; allowed: machine, decode, rows, prefill, sampler, demo, "
                               "random, quick, "
                               "depth=N, m=N; or resume[,at=N]; or spec, spec-short, spec-copy, spec-windows",
                               word))
            return -1;
    }
    if (!any_kind)
        for (size_t k = 0; k < BENCH_KINDS; k++)
            w->machine = w->kind[k] = true;
    if (!w->demo && !w->random)
        w->demo = w->random = true;
    if (!w->n_depth) {
        w->n_depth =
            w->quick ? sizeof QUICK_DEPTHS / sizeof *QUICK_DEPTHS : sizeof ALL_DEPTHS / sizeof *ALL_DEPTHS;
        memcpy(w->depth, w->quick ? QUICK_DEPTHS : ALL_DEPTHS, w->n_depth * sizeof *w->depth);
    }
    if (!w->n_rows) {
        w->n_rows = w->quick ? sizeof QUICK_ROWS / sizeof *QUICK_ROWS : sizeof ALL_ROWS / sizeof *ALL_ROWS;
        memcpy(w->rows, w->quick ? QUICK_ROWS : ALL_ROWS, w->n_rows * sizeof *w->rows);
    }
    qsort(w->depth, w->n_depth, sizeof *w->depth, by_size);
    return 0;
}

/* ---- the machine ---- */

static int measure_machine(struct report *r, struct err *e)
{
    static const size_t mib[] = { 1, 2, 4, 8, 16, 24, 32, 64, 256, 1024 };
    struct bench *b = &r->bench;
    const size_t threads = pool_threads(b->pool), most = (size_t)1 << 30;
    for (int round = 0; round < 3; round++)
        for (int k = 0; k < PROBE_MULS; k++)
            for (int all = 0; all < 2 && probe_mul_supported((enum probe_mul)k); all++) {
                double f = probe_mul_peak((enum probe_mul)k, all ? b->pool : NULL, 0.02);
                r->peak[k][all] = MAX(r->peak[k][all], f);
            }
    b->reference = r->peak[b->used][1];
    for (int k = 0; k < PROBE_I16_YMM; k++)
        if (r->peak[k][0] > 1.02 * r->peak[b->best][0])    /* one thread: less disturbed */
            b->best = (enum probe_mul)k;
    b->used_peak = r->peak[b->used][1];
    b->best_peak = r->peak[b->best][1];
    b->int16_peak = strcmp(b->ops->name, "avx512") == 0 ? r->peak[PROBE_I16_ZMM][1]
                    : strcmp(b->ops->name, "avx2") == 0 ? r->peak[PROBE_I16_YMM][1]
                                                        : 0;
    b->costs = probe_costs(strcmp(b->ops->name, "avx512") == 0 ? PROBE_ISA_AVX512
                           : strcmp(b->ops->name, "avx2") == 0 ? PROBE_ISA_AVX2
                                                               : PROBE_ISA_PLAIN,
                           0.03);
    r->dispatch = probe_dispatch(b->pool, 0.02);
    if (!r->points.machine)
        return 0;
    const char *limit;
    char *buffer = memory_available(&limit) / 2 > most ? mem_alloc(most) : NULL;
    if (!buffer) {
        r->skipped[r->n_skipped++] = "the table of bandwidths (less than 2 GiB of memory is free)";
        return 0;
    }
    memset(buffer, 1, most);
    int rc = 0;
    for (size_t i = 0; i < sizeof mib / sizeof *mib; i++) {
        struct probe_piece seg = { buffer, mib[i] << 20 };
        for (int all = 0; all < 2; all++) {
            size_t n = probe_cut(NULL, &seg, 1, all ? threads : 1);
            struct probe_piece *piece = malloc(n * sizeof *piece);
            if (!piece) {
                rc = err_set(e, ERR_FAILED, "bench: out of memory for %zu pieces", n);
                break;
            }
            probe_cut(piece, &seg, 1, all ? threads : 1);
            struct pool *pool = all ? b->pool : NULL;
            enum probe_read how = probe_read_best(piece, n, pool, 0.01);
            r->read[i].bytes = seg.bytes;
            for (int k = 0; k < 5; k++)
                r->read[i].rate[all] = MAX(r->read[i].rate[all], probe_read_rate(piece, n, how, pool, 0.02));
            free(piece);
        }
        r->n_read = i + 1;
    }
    mem_free(buffer, most);
    return rc;
}

static void print_machine(const struct report *r)
{
    const struct bench *b = &r->bench;
    printf("machine: %zu threads, twin %s, cache of %s, products by %s; best of this CPU: %s\n",
           pool_threads(b->pool), b->ops->name, kv_type_name(b->kv), probe_mul_name(b->used),
           probe_mul_name(b->best));
    printf("  %-22s %10s %10s GFLOP/s\n", "multiply-add", "1 thread", "all");
    for (int k = 0; k < PROBE_MULS; k++)
        if (r->peak[k][1] > 0)
            printf("  %-22s %10.1f %10.1f\n", probe_mul_name((enum probe_mul)k), r->peak[k][0] / 1e9,
                   r->peak[k][1] / 1e9);
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

static const char *const kind_name[BENCH_KINDS] = { "decode", "rows", "prefill", "sampler" };

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
           p->model, kind_name[p->kind], p->depth, p->rows, p->seconds * 1e3, (double)p->rows / p->seconds,
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
    if (r->json)
        return;
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
            return err_while(e, "%s, %s at depth %zu", t->name, kind_name[p.kind], p.depth);
        if (p.share <= 1)
            break;
    }
    if (p.goal == 0 && p.kind == BENCH_ROWS)
        p.goal = p.memory_bound ? 0.75 : 0.60;
    r->point[r->n] = p;
    finish_point(r, &r->point[r->n]);
    return 0;
}

static int measure_samplers(struct report *r, struct bench_target *t, double pass, struct err *e)
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
        *p = (struct bench_point){ .model = t->name, .kind = BENCH_SAMPLING, .rows = 1, .goal = 0.05 };
        snprintf(p->settings, sizeof p->settings, "%s", set[i].name);
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

/* large: decoding at depth 0, prefill and the sampler have goals too. */
static int measure_model(struct report *r, struct bench_target *t, const char *name, const char *dir,
                         bool large, struct err *e)
{
    const struct points *w = &r->points;
    struct config c;
    if (config_read(&c, dir, e))
        return -1;
    size_t deepest = 0, n_max = BENCH_PREFILL, most = c.context;
    for (size_t i = 0; i < w->n_depth; i++)
        if (w->depth[i] + BENCH_ROWS_MAX <= most)
            deepest = w->depth[i];
    n_max = MAX(n_max, deepest + BENCH_ROWS_MAX);
    if (bench_open(t, &r->bench, name, dir, n_max, e))
        return -1;
    double pass = 0;
    struct bench_point p = { .model = name };
    bool need_pass = w->kind[BENCH_SAMPLING] && large;
    if (w->kind[BENCH_PREFILLING] && n_max >= BENCH_PREFILL) {
        p.kind = BENCH_PREFILLING;
        p.rows = BENCH_PREFILL;
        p.goal = large ? 0.60 : 0;
        if (measure_point(r, t, p, e))
            return -1;
    }
    for (size_t i = 0; i < w->n_depth && w->depth[i] <= deepest; i++) {
        bench_depth(t, w->depth[i]);
        p.depth = w->depth[i];
        if (w->kind[BENCH_DECODE] || (need_pass && p.depth == 0)) {
            p.kind = BENCH_DECODE;
            p.rows = 1;
            p.goal = p.depth || large ? 0.80 : 0;
            if (measure_point(r, t, p, e))
                return -1;
            if (pass == 0)
                pass = r->point[r->n - 1].seconds;
        }
        for (size_t j = 0; j < w->n_rows && w->kind[BENCH_ROWS]; j++) {
            p.kind = BENCH_ROWS;
            p.rows = w->rows[j];
            p.goal = 0;
            if (p.rows && measure_point(r, t, p, e))
                return -1;
        }
    }
    return need_pass ? measure_samplers(r, t, pass, e) : 0;
}

static int measure_random(struct report *r, struct err *e)
{
    char dir[PATH_BYTES];
    struct bench_target t = { 0 };
    if (!r->quiet)
        fprintf(stderr, "bench: writing a random model with the body of Qwen2.5-0.5B (988 MB)\n");
    if (bench_random_model(dir, 1, e))
        return -1;
    snprintf(r->names[1], sizeof r->names[1], "0.5B random");
    int rc = measure_model(r, &t, r->names[1], dir, true, e);
    bench_close(&t);
    bench_random_remove(dir);
    return rc;
}

static int measure_models(struct report *r, const struct options *o, struct err *e)
{
    char dir[PATH_BYTES];
    struct bench_target t = { 0 };
    int rc = 0;
    if (o->model) {
        if (model_dir(dir, o, e))
            return -1;
        const char *base = strrchr(dir, '/');
        snprintf(r->names[0], sizeof r->names[0], "%.63s", base && base[1] ? base + 1 : dir);
        rc = measure_model(r, &t, r->names[0], dir, false, e);
        bench_close(&t);
        return rc;
    }
    if (r->points.demo && bench_find_demo(dir)) {
        snprintf(r->names[0], sizeof r->names[0], "demo");
        rc = measure_model(r, &t, r->names[0], dir, false, e);
        bench_close(&t);
    } else if (r->points.demo) {
        r->skipped[r->n_skipped++] = "models/demo (not found from here or from the program)";
    }
    return rc || !r->points.random ? rc : measure_random(r, e);
}

/* ---- JSON ---- */

static void json_point(struct json_writer *w, const struct bench_point *p)
{
    const struct { const char *key; double value; } reals[] = {
        { "tokens_per_second", (double)p->rows / p->seconds }, { "bytes", p->work.bytes },
        { "flops", p->work.flops }, { "bandwidth", p->bandwidth }, { "peak", p->peak },
        { "roof_seconds", p->roof }, { "share", p->share }, { "exp_seconds", p->exp },
        { "max_seconds", p->max }, { "convert_seconds", p->convert },
        { "product_share", p->product_share }, { "step_seconds", p->step },
    };
    jw_open(w, NULL, '{');
    jw_text(w, "model", p->model);
    jw_text(w, "point", kind_name[p->kind]);
    jw_uint(w, "depth", p->depth);
    jw_uint(w, "rows", p->rows);
    jw_real(w, "seconds", p->seconds);
    if (p->kind == BENCH_SAMPLING) {
        jw_text(w, "settings", p->settings);
        jw_real(w, "share_of_pass", p->of_pass);
    } else {
        for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
            jw_real(w, reals[i].key, reals[i].value);
        jw_open(w, "bandwidth_range", '[');
        jw_real(w, NULL, p->worst_bandwidth);
        jw_real(w, NULL, p->best_bandwidth);
        jw_close(w, ']');
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
    struct json_writer w = { .f = stdout, .digits = 9, .style = JW_INDENTED };
    jw_open(&w, NULL, '{');
    jw_uint(&w, "threads", pool_threads(b->pool));
    jw_text(&w, "isa", b->ops->name);
    jw_text(&w, "compute", b->compute == DT_F32 ? "f32" : "bf16");
    jw_text(&w, "kv_dtype", kv_type_name(b->kv));
    jw_open(&w, "peak", '{');
    for (int k = 0; k < PROBE_MULS; k++)
        if (r->peak[k][1] > 0) {
            jw_open(&w, probe_mul_name((enum probe_mul)k), '[');
            jw_real(&w, NULL, r->peak[k][0]);
            jw_real(&w, NULL, r->peak[k][1]);
            jw_close(&w, ']');
        }
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
    jw_close(&w, '}');
    putchar('\n');
}

/* ---- the verb ---- */

static enum probe_mul instruction_of(const struct ops *ops, enum dtype compute)
{
    if (strcmp(ops->name, "avx512") == 0)
        return compute == DT_BF16 ? PROBE_BF16_ZMM : PROBE_FMA_ZMM;
    return strcmp(ops->name, "avx2") == 0 ? PROBE_FMA_YMM : PROBE_MUL_PLAIN;
}

static int finish(const struct report *r, struct err *e)
{
    const struct bench_point *first = r->point;
    if (r->json) {
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
        r->impossible, first->model, kind_name[first->kind], first->depth, first->rows, 100 * first->share);
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
    const char *why = NULL;
    struct report *r = calloc(1, sizeof *r);
    int rc = -1;
    if (!r)
        return err_set(e, ERR_FAILED, "bench: out of memory");
    struct bench *b = &r->bench;
    r->json = o->json;
    r->quiet = o->quiet;
    if (parse_points(&r->points, o->bench_points, e))
        goto out;
    if (o->tokens)
        while (r->points.n_depth > 1 && r->points.depth[r->points.n_depth - 1] > o->tokens)
            r->points.n_depth--;
    b->compute = option_compute(o);
    if (device_choice_cpu_kv(&b->kv, b->compute, option_kv(o->kv_dtype), e))
        goto out;
    b->ops = ops_for_cpu(&why);
    if (!b->ops) {
        err_set(e, ERR_INPUT, "%s", why);
        goto out;
    }
    b->used = instruction_of(b->ops, b->compute);
    b->repeat = o->repeat ? MIN(o->repeat, 60) : r->points.quick ? 3 : 7;
    b->patience = r->points.quick ? 1.0 : 4.0;
    b->pool = pool_open(o->threads ? o->threads : pool_default_threads());
    if (!b->pool) {
        err_set(e, ERR_FAILED, "bench: cannot make threads");
        goto out;
    }
    if (measure_machine(r, e))
        goto out;
    if (!r->json) {
        print_machine(r);
        print_header();
    }
    rc = measure_models(r, o, e) || finish(r, e) ? -1 : 0;
out:
    pool_close(b->pool);
    free(r);
    return rc;
}
