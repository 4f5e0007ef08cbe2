/* Owns the verb `bench`: it reads --points, measures the machine and the model (struct report), and prints a
 * table or JSON. Start at cmd_bench. */
#include "src/lab/bench.h"
#include "src/base/json_write.h"
#include "src/base/output.h"
#include "src/base/stopping.h"
#include "src/model/find_model.h"
#include "src/request/model_options.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { POINTS_MAX = 256, LIST_MAX = 16, TRIES = 3 };

static const char *const names[BENCH_KINDS] = { "decode", "rows", "prefill", "texts", "drafted" };
struct list { size_t v[LIST_MAX], n; };      /* ascending */
static const struct list all_depths = { { 0, 4096, 16384, 32768, 65536, 100000 }, 6 },
                         quick_depths = { { 0, 4096, 32768 }, 3 },
                         all_rows = { { 2, 4, 8, 16, 32, 64 }, 6 }, quick_rows = { { 8, 32 }, 2 };

struct report {
    const struct options *o;
    char dir[PATH_BYTES];
    const char *model;                   /* the last part of dir */
    struct bench bench;
    bool wanted[BENCH_KINDS], any, quick, profile;
    struct list depths, rows;
    size_t prefill;                      /* its rows */
    struct bench_point point[POINTS_MAX]; size_t n;
    size_t impossible, missed, noisy;
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

static int parse_word(struct report *r, const char *word, struct err *e)
{
    for (size_t k = 0; k < BENCH_KINDS; k++)
        if (strcmp(word, names[k]) == 0) {
            r->wanted[k] = r->any = true;
            return 0;
        }
    if (strcmp(word, "quick") == 0)
        r->quick = true;
    else if (strcmp(word, "profile") == 0)
        r->profile = true;
    else if (strncmp(word, "depth=", 6) == 0)
        return list_add(&r->depths, word + 6, BENCH_DEPTH_MAX, e);
    else if (strncmp(word, "m=", 2) == 0)
        return list_add(&r->rows, word + 2, BENCH_ROWS_MAX, e);
    else if (strncmp(word, "prefill=", 8) == 0)
        return parse_size(&r->prefill, "--points", word + 8, BENCH_ROWS_MAX + 1, BENCH_PREFILL, e) ||
               parse_word(r, names[BENCH_PREFILLING], e) ? -1 : 0;
    else
        return err_set(e, ERR_INPUT, "--points: \"%s\"; allowed: decode, drafted, rows, texts, prefill, "
                       "quick, profile, depth=N, m=N, prefill=N", word);
    return 0;
}

static int parse_points(struct report *r, struct err *e)
{
    char list[1024], *at = NULL;
    r->prefill = BENCH_PREFILL;
    snprintf(list, sizeof list, "%s", r->o->bench_points ? r->o->bench_points : "");
    if (r->o->bench_points && strlen(r->o->bench_points) >= sizeof list)
        return err_set(e, ERR_INPUT, "--points: more than %zu bytes", sizeof list - 1);
    for (char *word = strtok_r(list, ",", &at); word; word = strtok_r(NULL, ",", &at))
        if (parse_word(r, word, e))
            return -1;
    for (size_t k = 0; k < BENCH_KINDS && !r->any; k++)
        r->wanted[k] = k != BENCH_TEXTS && k != BENCH_DRAFTING;
    if (!r->depths.n)
        r->depths = r->quick ? quick_depths : all_depths;
    if (!r->rows.n)
        r->rows = r->quick ? quick_rows : all_rows;
    while (r->o->tokens && r->depths.n > 1 && r->depths.v[r->depths.n - 1] > r->o->tokens)
        r->depths.n--;
    return 0;
}

/* ---- points ---- */

/* Shares of the roofline that the engine should reach. */
static double goal_of(const struct bench_point *p)
{
    return p->kind == BENCH_DECODE ? 0.80 : p->kind == BENCH_PREFILLING || !p->memory_bound ? 0.60 : 0.75;
}

static void print_point(const struct report *r, const struct bench_point *p)
{
    printf("%-16s %-8s %6zu %5zu %10.4f %10.1f", r->model, names[p->kind], p->depth, p->rows,
           p->seconds * 1e3, (double)p->rows / p->seconds);
    if (p->kind == BENCH_DRAFTING)
        printf("   %.2f tokens a pass\n", p->per_pass);
    else
        printf(" %8.1f %8.1f  %-6s %6.1f%% %4.0f%s%s\n", p->bandwidth / 1e9, p->peak / 1e9,
               p->memory_bound ? "memory" : "peak", 100 * p->share, 100 * p->goal,
               p->share < p->goal ? "!" : "", p->noisy ? " ~" : "");
    fflush(stdout);
}

/* By operation: milliseconds, the share of the pass, that of the threads which work, and what is read. */
static void print_profile(const struct report *r, const struct bench_point *p)
{
    const double threads = (double)pool_threads(r->bench.g.pool);
    for (size_t i = 0; i < BENCH_OPS && p->profiled > 0; i++) {
        const struct bench_op *op = &p->op[i];
        if (op->seconds <= 0)
            continue;
        printf("    %-12s %9.4f ms %5.1f %%, threads busy %5.1f %%", bench_op_name((enum bench_op_kind)i),
               op->seconds * 1e3, 100 * op->seconds / p->profiled, 100 * op->busy / op->seconds / threads);
        if (op->bytes > 0)
            printf(", %7.1f MB, %6.1f GB/s", op->bytes / 1e6, op->bytes / op->seconds / 1e9);
        printf("\n");
    }
    fflush(stdout);
}

/* A share above 100 % means that the probe missed the machine's speed at that moment. The point is measured
 * again; a share that stays above 100 % is an error. */
static int measure_point(struct report *r, struct bench_target *t, struct bench_point p, struct err *e)
{
    if (r->n == POINTS_MAX)
        return err_set(e, ERR_INPUT, "--points: more than %d points", POINTS_MAX);
    t->texts = p.kind == BENCH_TEXTS ? p.rows : 1;
    for (int i = 0; i < TRIES && (i == 0 || p.share > 1); i++)
        if (bench_measure(&r->bench, t, &p, e))
            return err_while(e, "%s, %s at depth %zu", r->model, names[p.kind], p.depth);
    if (r->profile && bench_profile(t, &p, e))
        return -1;
    p.goal = goal_of(&p);
    r->impossible += p.share > 1;
    r->missed += p.share < p.goal;
    r->noisy += p.noisy;
    r->point[r->n] = p;
    if (!r->o->json) {
        print_point(r, &p);
        print_profile(r, &p);
    }
    r->n++;
    return 0;
}

/* One row, several rows of one text, and one row of each of several texts, at every depth. */
static int measure_points(struct report *r, struct bench_target *t, size_t n_depths, struct err *e)
{
    if (r->wanted[BENCH_PREFILLING] &&
        measure_point(r, t, (struct bench_point){ .kind = BENCH_PREFILLING, .rows = r->prefill }, e))
        return -1;
    for (size_t i = 0; i < n_depths; i++) {
        struct bench_point p = { .kind = BENCH_DECODE, .depth = r->depths.v[i], .rows = 1 };
        bench_depth(t, p.depth);
        if (r->wanted[BENCH_DECODE] && measure_point(r, t, p, e))
            return -1;
        for (size_t j = 0; j < 2 * r->rows.n; j++) {
            p.kind = j < r->rows.n ? BENCH_ROWS : BENCH_TEXTS;
            p.rows = r->rows.v[j % r->rows.n];
            if (r->wanted[p.kind] && p.rows && (p.kind == BENCH_ROWS || p.rows <= t->n_kv) &&
                measure_point(r, t, p, e))
                return -1;
        }
    }
    return 0;
}

static int measure_drafted(struct report *r, size_t n_depths, struct err *e)
{
    struct bench_point *p = &r->point[r->n];
    if (!r->wanted[BENCH_DRAFTING])
        return 0;
    if (r->n + n_depths > POINTS_MAX)
        return err_set(e, ERR_INPUT, "--points: more than %d points", POINTS_MAX);
    for (size_t i = 0; i < n_depths; i++)
        p[i] = (struct bench_point){ .kind = BENCH_DRAFTING, .depth = r->depths.v[i], .rows = 1 };
    if (bench_drafted(&r->bench.g, r->o, p, n_depths, e))
        return -1;
    for (size_t i = 0; i < n_depths && !r->o->json; i++)
        print_point(r, &p[i]);
    r->n += n_depths;
    return 0;
}

static int measure_model(struct report *r, struct err *e)
{
    struct bench_target t;
    size_t n = r->depths.n, texts = 1;
    while (n && r->depths.v[n - 1] + BENCH_DRAFTED > r->bench.g.config.context)
        n--;
    for (size_t j = 0; j < r->rows.n && r->wanted[BENCH_TEXTS]; j++)
        texts = MAX(texts, MIN(r->rows.v[j], (size_t)BENCH_TEXTS_MAX));
    const size_t n_max = MAX((size_t)BENCH_PREFILL, (n ? r->depths.v[n - 1] : 0) + BENCH_ROWS_MAX);
    const int rc = bench_open(&t, &r->bench.g, texts, n_max, e) || measure_points(r, &t, n, e);
    bench_close(&t);
    return rc || measure_drafted(r, n, e) ? -1 : 0;
}

/* ---- JSON ---- */

#define REAL(key, member) { key, offsetof(struct bench_point, member) }
static const struct { const char *key; size_t at; } reals[] = {
    REAL("bandwidth", bandwidth), REAL("peak", peak), REAL("roof_seconds", roof), REAL("share", share),
    REAL("exp_seconds", exp), REAL("max_seconds", max), REAL("convert_seconds", convert),
    REAL("product_share", product_share), REAL("step_seconds", step), REAL("goal", goal),
};

static void json_profile(struct json_writer *w, const struct bench_point *p)
{
    jw_real(w, "profiled_seconds", p->profiled);
    jw_open(w, "operations", '[');
    for (size_t i = 0; i < BENCH_OPS; i++) {
        jw_open(w, NULL, '{');
        jw_text(w, "operation", bench_op_name((enum bench_op_kind)i));
        jw_real(w, "seconds", p->op[i].seconds);
        jw_real(w, "busy_seconds", p->op[i].busy);
        jw_uint(w, "bytes", (uint64_t)p->op[i].bytes);
        jw_close(w, '}');
    }
    jw_close(w, ']');
}

static void json_point(struct json_writer *w, const struct report *r, const struct bench_point *p)
{
    jw_open(w, NULL, '{');
    jw_text(w, "model", r->model);
    jw_text(w, "point", names[p->kind]);
    jw_uint(w, "depth", p->depth);
    jw_uint(w, "rows", p->rows);
    jw_real(w, "seconds", p->seconds);
    jw_real(w, "tokens_per_second", (double)p->rows / p->seconds);
    if (p->kind == BENCH_DRAFTING) {
        jw_real(w, "tokens_per_pass", p->per_pass);
    } else {
        jw_uint(w, "bytes", (uint64_t)p->work.bytes);
        jw_uint(w, "flops", (uint64_t)p->work.flops);
        for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
            jw_real(w, reals[i].key, *(const double *)(const void *)((const char *)p + reals[i].at));
        jw_bool(w, "met", p->share >= p->goal);
        jw_reals(w, "bandwidth_range", p->bandwidth_range, 2);
        jw_text(w, "read", probe_read_name(p->how));
        jw_text(w, "instruction", probe_mul_name(r->bench.used));
        jw_text(w, "bound", p->memory_bound ? "memory" : "compute");
        jw_uint(w, "samples", p->samples);
        jw_uint(w, "clean", p->clean);
        jw_bool(w, "noisy", p->noisy);
    }
    if (p->profiled > 0)
        json_profile(w, p);
    jw_close(w, '}');
}

static void print_json(const struct report *r)
{
    const struct bench *b = &r->bench;
    struct json_writer w = jw_begin(stdout, JW_INDENTED, 9);
    jw_uint(&w, "threads", pool_threads(b->g.pool));
    jw_text(&w, "isa", b->g.ops->name);
    jw_text(&w, "compute", b->g.compute == DT_F32 ? "f32" : "bf16");
    jw_text(&w, "kv_dtype", kv_type_name(b->g.dev->kv_type));
    jw_open(&w, "peak", '{');
    jw_reals(&w, probe_mul_name(b->used), b->peak[b->used], 2);
    jw_close(&w, '}');
    jw_real(&w, "exp2_seconds", b->costs.exp2);
    jw_real(&w, "max_seconds", b->costs.max);
    jw_real(&w, "convert_seconds", b->costs.convert);
    jw_open(&w, "points", '[');
    for (size_t i = 0; i < r->n; i++)
        json_point(&w, r, &r->point[i]);
    jw_close(&w, ']');
    jw_uint(&w, "missed", r->missed);
    jw_uint(&w, "noisy", r->noisy);
    jw_uint(&w, "impossible", r->impossible);
    jw_end(&w);
}

/* ---- the verb ---- */

/* The instructions of each twin: products of f32, bf16 and int16. */
static const struct twin { const char *name; enum probe_mul f32, bf16, int16; } twins[] = {
    { "avx512", PROBE_FMA_ZMM, PROBE_BF16_ZMM, PROBE_I16_ZMM },
    { "avx2", PROBE_FMA_YMM, PROBE_FMA_YMM, PROBE_I16_YMM },
    { "generic", PROBE_MUL_PLAIN, PROBE_MUL_PLAIN, PROBE_MUL_PLAIN },
};

static void measure_machine(struct bench *b)
{
    const struct twin *twin = twins;
    while (strcmp(twin->name, b->g.ops->name))
        twin++;
    b->used = b->g.compute == DT_BF16 ? twin->bf16 : twin->f32;
    b->int16 = twin->int16;
    for (int i = 0; i < 12; i++) {
        const enum probe_mul k = i % 4 < 2 ? b->used : b->int16;
        b->peak[k][i % 2] = MAX(b->peak[k][i % 2], probe_mul_peak(k, i % 2 ? b->g.pool : NULL, 0.02));
    }
    b->reference = b->peak[b->used][1];
    b->costs = probe_costs(b->g.ops, 0.03);
}

static int finish(const struct report *r, struct err *e)
{
    if (r->o->json)
        print_json(r);
    else
        printf("%zu points, %zu miss their goal (!), %zu have fewer than three undisturbed samples (~)\n",
               r->n, r->missed, r->noisy);
    if (stdout_finish(e))
        return -1;
    return r->impossible ? err_set(e, ERR_FAILED, "bench: %zu points above 100 %% of the roofline: the "
                                   "probes missed the machine's speed", r->impossible)
                         : 0;
}

int cmd_bench(const struct options *o, struct err *e)
{
    static struct report report;
    struct report *r = &report;
    struct bench *b = &r->bench;
    struct options own = *o;
    const char *what, *name = model_of_options(o, &what);
    if (strcmp(o->device, "auto") && strcmp(o->device, "cpu"))
        return err_set(e, ERR_INPUT, "bench: --device %s: labbench (make bench) measures GPUs", o->device);
    r->o = o;
    own.device = "cpu";
    own.model = r->dir;
    if (parse_points(r, e) || find_model_or_demo(r->dir, name, what, e) ||
        options_open_engine(&b->g, &own, e))
        return -1;
    r->model = strrchr(r->dir, '/') && strrchr(r->dir, '/')[1] ? strrchr(r->dir, '/') + 1 : r->dir;
    b->repeat = o->repeat ? MIN(o->repeat, 60) : r->quick ? 3 : 7;
    b->patience = r->quick ? 1.0 : 4.0;
    stop_signals_catch();
    measure_machine(b);
    if (!o->json)
        printf("%zu threads, twin %s, cache of %s, products by %s: %.1f GFLOP/s\n"
               "%-16s %-8s %6s %5s %10s %10s %8s %8s  %-6s %7s %4s\n", pool_threads(b->g.pool),
               b->g.ops->name, kv_type_name(b->g.dev->kv_type), probe_mul_name(b->used),
               b->peak[b->used][1] / 1e9, "model", "point", "depth", "rows", "ms", "tokens/s", "GB/s",
               "GFLOP/s", "bound", "share", "goal");
    const int rc = measure_model(r, e) || finish(r, e) ? -1 : 0;
    engine_close(&b->g);
    return rc;
}
