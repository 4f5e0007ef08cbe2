/* Owns the output of the spec points: medians of runs, sums over windows (struct total), tables and JSON.
 * Start at spec_print_text and spec_print_json. */
#include "src/base/json_write.h"
#include "src/lab/bench.h"
#include "tests/labbench/spec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double WINDOW_GOAL = 0.98;

/* ---- figures ---- */

static const struct spec_run *runs_of(const struct spec *s, const struct spec_window *w, size_t setting)
{
    return &w->run[setting * s->point.repeat];
}

struct spec_run spec_setting_median(const struct spec *s, const struct spec_window *w, size_t setting)
{
    enum { FIELDS = sizeof(struct spec_run) / sizeof(double) };
    union { struct spec_run run; double v[FIELDS]; } m;
    for (size_t f = 0; f < FIELDS; f++) {
        double v[SPEC_REPEAT_MAX];
        for (size_t r = 0; r < s->point.repeat; r++)
            v[r] = ((const double *)&runs_of(s, w, setting)[r])[f];
        m.v[f] = bench_median(v, s->point.repeat);
    }
    return m.run;
}

/* Seconds per token of plain decoding in run r: the mean of its two settings. */
static double plain_seconds(const struct spec *s, const struct spec_window *w, size_t r)
{
    return (runs_of(s, w, SPEC_PLAIN)[r].seconds + runs_of(s, w, SPEC_AGAIN)[r].seconds) / 2;
}

double spec_plain_median(const struct spec *s, const struct spec_window *w)
{
    double v[SPEC_REPEAT_MAX];
    for (size_t r = 0; r < s->point.repeat; r++)
        v[r] = plain_seconds(s, w, r);
    return bench_median(v, s->point.repeat);
}

/* The median of plain seconds / seconds in the same run. `again` is compared with the other plain setting. */
static double window_speedup(const struct spec *s, const struct spec_window *w, size_t setting)
{
    double v[SPEC_REPEAT_MAX];
    for (size_t r = 0; r < s->point.repeat; r++)
        v[r] = (setting == SPEC_AGAIN ? runs_of(s, w, SPEC_PLAIN)[r].seconds : plain_seconds(s, w, r)) /
               runs_of(s, w, setting)[r].seconds;
    return bench_median(v, s->point.repeat);
}

/* Figures over the first tokens of a text, where every window counts for its stretch. Costs are of a round,
 * in one-row passes at the same place; OTHER_COST: sampling, commit and the rest. */
enum { ALPHA, TOKENS, SPEEDUP, PLAIN_SECONDS, SECONDS, ROWS, ROW_COST, DRAFT_COST, PASSES, OTHER_COST,
       CONTROLLER, FIGURES };
static const char *const keys[FIGURES] = {
    "alpha", "tokens_per_round", "speedup", "plain_seconds", "seconds", "rows_per_round", "row_cost",
    "draft_cost", "draft_passes_per_round", "other_cost", "controller_share",
};
struct total { double v[FIGURES]; };

static struct total total_of(const struct spec *s, const struct spec_text *t, size_t setting, size_t tokens)
{
    struct total x = {0};
    double rounds = 0, accepted = 0, depth = 0;
    for (size_t k = 0; k < t->n_windows && t->window[k].lo < tokens; k++) {
        const struct spec_window *w = &t->window[k];
        const struct spec_run m = spec_setting_median(s, w, setting);
        const double n = (double)(MIN(w->hi, tokens) - w->lo);
        const double pass = spec_setting_median(s, w, SPEC_PLAIN).verify;
        rounds += n * m.rounds;
        accepted += n * m.accepted;
        depth += n * m.depth;
        x.v[TOKENS] += n;
        x.v[PLAIN_SECONDS] += n * spec_plain_median(s, w);
        x.v[SECONDS] += n * m.seconds;
        x.v[ROWS] += n * m.rows;
        x.v[PASSES] += n * m.passes;
        x.v[CONTROLLER] += n * m.control;
        x.v[ROW_COST] += n * m.verify / pass;
        x.v[DRAFT_COST] += n * m.draft / pass;
        x.v[OTHER_COST] += n * (m.seconds - m.verify - m.draft) / pass;
    }
    x.v[ALPHA] = depth > 0 ? accepted / depth : 0;       /* TokenSwift, eq. 4 */
    x.v[SPEEDUP] = x.v[PLAIN_SECONDS] / x.v[SECONDS];
    x.v[CONTROLLER] /= x.v[SECONDS];
    x.v[TOKENS] /= rounds, x.v[ROWS] /= rounds, x.v[PASSES] /= rounds;
    x.v[ROW_COST] /= rounds, x.v[DRAFT_COST] /= rounds, x.v[OTHER_COST] /= rounds;
    return x;
}

/* Lengths at which cumulative figures are printed. */
static size_t mark(const struct spec *s, size_t k)
{
    return s->point.kind == SPEC_SHORT ? s->point.length : s->point.length * (k + 1) / SPEC_MARKS;
}
static size_t n_marks(const struct spec *s) { return s->point.kind == SPEC_SHORT ? 1 : SPEC_MARKS; }

static double goal(const struct spec *s)
{
    bool bf16 = strcmp(s->engine.ops->name, "avx512") == 0 && s->engine.compute == DT_BF16;
    return s->point.kind == SPEC_SHORT ? 1.3 : s->point.kind == SPEC_WINDOWS ? 0 : bf16 ? 3 : 1.6;
}

/* ---- tables ---- */

void spec_print_head(const struct spec *s, const struct spec_text *t)
{
    const struct sampling *p = &s->sampling;
    printf("\n%s: %s, %zu prompt tokens (prefill %.2f s), %zu tokens, seed %llu, temperature %g, top-p %g, "
           "min-p %g, penalty %g over %ld, min-keep %zu; %s, twin %s, %zu threads, drafts with %s\n",
           s->point.name, t->name, t->n_prompt, t->prefill_seconds, s->point.length,
           (unsigned long long)p->seed, p->temperature, p->top_p, p->min_p, p->penalty, p->penalty_window,
           p->min_keep, s->engine.model.path, s->engine.ops->name, pool_threads(s->engine.pool),
           s->int8 ? "the model in 8 bits" : "the model itself");
    printf("windows of %zu tokens, one for every %zu, in turns of %zu, %zu runs of each setting; speed "
           "relative to plain decoding, medians\n\n%8s %9s %7s",
           s->point.size, s->point.every, s->slice, s->point.repeat, "token", "plain ms", "again");
    for (size_t i = SPEC_AUTO; i < s->n_settings; i++)
        printf(" %*s", (int)MAX(strlen(s->setting[i].name), (size_t)6), s->setting[i].name);
    puts("");
    fflush(stdout);
}

void spec_print_window(const struct spec *s, const struct spec_window *w)
{
    printf("%8zu %9.4f %7.3f", w->from, spec_plain_median(s, w) * 1e3, window_speedup(s, w, SPEC_AGAIN));
    for (size_t i = SPEC_AUTO; i < s->n_settings; i++) {
        double x = window_speedup(s, w, i);
        printf(" %*.2f%s", (int)MAX(strlen(s->setting[i].name), (size_t)6) - (x < WINDOW_GOAL), x,
               x < WINDOW_GOAL ? "!" : "");
    }
    puts("");
    fflush(stdout);
}

static void print_marks(const struct spec *s, const struct spec_text *t)
{
    printf("\n%8s  %-14s %6s %12s %8s %10s %9s %10s\n", "tokens", "setting", "alpha", "tokens/round",
           "speedup", "plain min", "min", "saved min");
    for (size_t k = 0; k < n_marks(s); k++)
        for (size_t i = SPEC_AUTO; i < s->n_settings; i++) {
            struct total x = total_of(s, t, i, mark(s, k));
            printf("%8zu  %-14s %6.2f %12.2f %8.2f %10.3f %9.3f %10.3f\n", mark(s, k), s->setting[i].name,
                   x.v[ALPHA], x.v[TOKENS], x.v[SPEEDUP], x.v[PLAIN_SECONDS] / 60, x.v[SECONDS] / 60,
                   (x.v[PLAIN_SECONDS] - x.v[SECONDS]) / 60);
        }
}

static void print_bounds(const struct spec *s, const struct spec_text *t)
{
    printf("\ncosts of a round, in one-row passes at the same place; other: sampling, commit and the rest\n"
           "%-14s %12s %10s %12s %9s %12s %7s %11s\n",
           "setting", "tokens/round", "rows/round", "cost of them", "drafting", "draft passes", "other",
           "controller");
    for (size_t i = 0; i < s->n_settings; i++) {
        struct total x = total_of(s, t, i, s->point.length);
        if (i != SPEC_AGAIN)
            printf("%-14s %12.2f %10.2f %12.2f %9.2f %12.2f %7.2f %10.2f%%\n", s->setting[i].name,
                   x.v[TOKENS], x.v[ROWS], x.v[ROW_COST], x.v[DRAFT_COST], x.v[PASSES], x.v[OTHER_COST],
                   100 * x.v[CONTROLLER]);
    }
}

void spec_print_text(const struct spec *s, const struct spec_text *t)
{
    size_t slow = 0;
    for (size_t k = 0; k < t->n_windows; k++)
        slow += window_speedup(s, &t->window[k], SPEC_AUTO) < WINDOW_GOAL;
    if (!s->point.print)
        print_marks(s, t);
    print_bounds(s, t);
    if (s->point.print)
        s->point.print(s, t);
    printf("auto below %.2f of plain: %zu of %zu windows", WINDOW_GOAL, slow, t->n_windows);
    if (t->own_tokens)
        printf("; between the windows auto wrote %zu tokens in %.1f s", t->own_tokens, t->own_seconds);
    printf("; %.0f s in all\n", t->seconds);
    fflush(stdout);
}

/* Mean and standard deviation over the texts: alpha, tokens per round, speedup, minutes saved. */
static void over_texts(const struct spec *s, size_t setting, size_t tokens, double mean[4],
                       double deviation[4])
{
    for (int f = 0; f < 4; f++) {
        double sum = 0, squares = 0, n = (double)s->n_texts;
        for (size_t i = 0; i < s->n_texts; i++) {
            struct total x = total_of(s, &s->text[i], setting, tokens);
            const double v = f < 3 ? x.v[f] : (x.v[PLAIN_SECONDS] - x.v[SECONDS]) / 60;
            sum += v;
            squares += v * v;
        }
        mean[f] = sum / n;
        deviation[f] = n > 1 ? sqrt(MAX(0, (squares - sum * sum / n) / (n - 1))) : 0;
    }
}

void spec_print_all(const struct spec *s)
{
    double mean[4], deviation[4];
    if (s->point.print || s->n_texts == 0)
        return;
    if (s->n_texts > 1)
        printf("\nall %zu texts, mean and standard deviation; sums of seconds per token of the sampled "
               "windows, each for its stretch of text\n"
               "%8s  %-14s %13s %15s %13s %17s\n",
               s->n_texts, "tokens", "setting", "alpha", "tokens/round", "speedup", "saved min");
    for (size_t k = 0; k < n_marks(s) && s->n_texts > 1; k++)
        for (size_t i = SPEC_AUTO; i < s->n_settings; i++) {
            over_texts(s, i, mark(s, k), mean, deviation);
            printf("%8zu  %-14s %6.2f +- %.2f %7.2f +- %.2f %6.2f +- %.2f %9.3f +- %.3f\n", mark(s, k),
                   s->setting[i].name, mean[0], deviation[0], mean[1], deviation[1], mean[2], deviation[2],
                   mean[3], deviation[3]);
        }
    over_texts(s, SPEC_AUTO, s->point.length, mean, deviation);
    if (goal(s) > 0)
        printf("auto over %zu tokens: %.2f times plain decoding, goal %.1f%s\n", s->point.length, mean[2],
               goal(s), mean[2] < goal(s) ? ", MISSED" : "");
}

/* ---- JSON ---- */

static void json_total(struct json_writer *w, const struct spec *s, const struct spec_text *t, size_t setting,
                       size_t tokens)
{
    struct total x = total_of(s, t, setting, tokens);
    jw_open(w, NULL, '{');
    jw_text(w, "setting", s->setting[setting].name);
    jw_uint(w, "tokens", tokens);
    for (size_t i = 0; i < FIGURES; i++)
        jw_real(w, keys[i], x.v[i]);
    jw_close(w, '}');
}

static void json_window(struct json_writer *w, const struct spec *s, const struct spec_window *x)
{
    jw_open(w, NULL, '{');
    jw_uint(w, "from", x->from);
    jw_uint(w, "tokens", x->tokens);
    jw_open(w, "stands_for", '[');
    jw_uint(w, NULL, x->lo);
    jw_uint(w, NULL, x->hi);
    jw_close(w, ']');
    jw_real(w, "plain_seconds_per_token", spec_plain_median(s, x));
    jw_open(w, "settings", '{');
    for (size_t i = 0; i < s->n_settings; i++) {
        const struct spec_run m = spec_setting_median(s, x, i);
        jw_open(w, s->setting[i].name, '{');
        jw_real(w, "speedup", window_speedup(s, x, i));
        jw_real(w, "seconds_per_token", m.seconds);
        jw_real(w, "tokens_per_round", 1 / m.rounds);
        jw_real(w, "rows_per_round", m.rows / m.rounds);
        jw_open(w, "runs", '[');
        for (size_t r = 0; r < s->point.repeat; r++)
            jw_real(w, NULL, runs_of(s, x, i)[r].seconds);
        jw_close(w, ']');
        jw_close(w, '}');
    }
    jw_close(w, '}');
    jw_close(w, '}');
}

static void json_text(struct json_writer *w, const struct spec *s, const struct spec_text *t)
{
    jw_open(w, NULL, '{');
    jw_text(w, "name", t->name);
    jw_uint(w, "prompt_tokens", t->n_prompt);
    jw_real(w, "prefill_seconds", t->prefill_seconds);
    jw_real(w, "bench_seconds", t->seconds);
    jw_open(w, "auto_between", '{');
    jw_uint(w, "tokens", t->own_tokens);
    jw_real(w, "seconds", t->own_seconds);
    jw_close(w, '}');
    jw_open(w, "windows", '[');
    for (size_t k = 0; k < t->n_windows; k++)
        json_window(w, s, &t->window[k]);
    jw_close(w, ']');
    jw_open(w, "cumulative", '[');
    for (size_t k = 0; k < n_marks(s); k++)
        for (size_t j = SPEC_AGAIN; j < s->n_settings; j++)
            json_total(w, s, t, j, mark(s, k));
    jw_close(w, ']');
    jw_close(w, '}');
}

void spec_print_json(const struct spec *s)
{
    struct json_writer w = jw_begin(stdout, JW_INDENTED, 6);
    jw_text(&w, "point", s->point.name);
    jw_uint(&w, "threads", pool_threads(s->engine.pool));
    jw_text(&w, "isa", s->engine.ops->name);
    jw_text(&w, "draft_weights", s->int8 ? "int8" : "model");
    jw_uint(&w, "length", s->point.length);
    jw_uint(&w, "every", s->point.every);
    jw_uint(&w, "window", s->point.size);
    jw_uint(&w, "slice", s->slice);
    jw_uint(&w, "repeat", s->point.repeat);
    jw_real(&w, "goal", goal(s));
    jw_open(&w, "settings", '{');
    for (size_t i = 0; i < s->n_settings; i++)
        jw_text(&w, s->setting[i].name, s->setting[i].flags ? s->setting[i].flags : "given");
    jw_close(&w, '}');
    jw_open(&w, "texts", '[');
    for (size_t i = 0; i < s->n_texts; i++)
        json_text(&w, s, &s->text[i]);
    jw_close(&w, ']');
    jw_end(&w);
}
