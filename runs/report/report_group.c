/* Compares jobs by their parameters: groups for --by, baselines of speedups, and labels of what differs
 * between jobs. Start at reports_group, reports_find_speedups and reports_find_differences. */
#include "runs/report/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/model_caches.h"
#include "src/request/job_params.h"
#include "src/sample/coin.h"

static int no_memory(struct err *e) { return err_set(e, ERR_FAILED, "out of memory for the report"); }

/* ---- values of parameters ---- */

/* Whether `name` is `of`, which may be spelled as the option is, with - for _. */
static bool is_name(const char *name, const char *of)
{
    while (*name && (*name == *of || (*name == '_' && *of == '-')))
        name++, of++;
    return !*name && !*of;
}

static const char *without_prefix(const char *name)
{
    return strncmp(name, "drafting.", 9) == 0 ? name + 9 : name;
}

static const struct report_parameter *find_parameter(const struct report *r, const char *name)
{
    for (size_t i = 0; i < r->n_parameters; i++)
        if (is_name(r->parameter[i].name, name))
            return &r->parameter[i];
    for (size_t i = 0; i < r->n_parameters; i++)     /* then "drafter" for "drafting.drafter" */
        if (is_name(without_prefix(r->parameter[i].name), name))
            return &r->parameter[i];
    return NULL;
}

const char *report_own(struct report_value *v, const struct job *j, size_t i)
{
    const struct { const char *name, *text; uint64_t n; } own[] = {
        { "model", j->model }, { "fingerprint", j->fingerprint }, { "numerics", j->numerics },
        { "seed", NULL, j->seed }, { "sample", NULL, j->sample }, { "prompt_tokens", NULL, j->prompt_tokens },
        { "tokens", NULL, j->wanted }, { "name", j->batch }, { "custom_id", j->custom_id }, { NULL } };
    *v = (struct report_value){ .text = own[i].text, .is_text = i < 3 || i >= REPORT_OWN_SHOWN };
    if (!v->is_text)
        snprintf(v->number, sizeof v->number, "%" PRIu64, own[i].n);
    return own[i].name;
}

/* The value of a parameter; .text NULL: the job has no such parameter. */
static struct report_value value_of(const struct report *r, const char *name)
{
    struct report_value v;
    const char *own;
    for (size_t i = 0; (own = report_own(&v, r->job, i)); i++)
        if (is_name(own, name) && strcmp(own, "fingerprint")) {
            v.text = v.is_text && !v.text ? "" : v.text;
            return v;
        }
    v = (struct report_value){ .is_text = true };
    const struct report_parameter *p = find_parameter(r, name);
    if (p) {
        v.text = p->value ? p->value : "null";
        v.is_text = p->is_text;
    }
    return v;
}

const char *report_value_text(const struct report_value *v) { return v->text ? v->text : v->number; }

struct value report_value(const struct report_value *v)
{
    const char *s = report_value_text(v);
    return v->is_text || (!*s && !v->text) ? (struct value)V_TEXT(*s || v->text ? s : NULL)
                                           : (struct value)V_JSON(s);
}

/* ---- groups ---- */

const struct figure_column report_group_columns[GROUP_FIGURES] = {
    { "tokens_per_second", "tokens/s", 1 },
    { "speedup", "speedup", 2 },
    { "mean_acceptance_length", "acceptance length", 2 },
    { "alpha", "alpha", 4 },
    { "repetitions", "loops", 2 },
    { "distinct_1", "distinct-1", 4 },
    { "distinct_2", "distinct-2", 4 },
    { "distinct_3", "distinct-3", 4 },
    { "distinct_4", "distinct-4", 4 },
};

size_t report_group_figures(const struct reports *l)
{
    return l->equal_lengths ? GROUP_FIGURES : GROUP_FIGURES - DISTINCT_MAX;
}

size_t report_full_windows(const struct report *r)
{
    return r->n_windows - r->window[r->n_windows - 1].partial;
}

double report_with(const struct report *r, size_t n)
{
    return r->sum.shareable > 0 ? r->list[LIST_JOBS][n] / r->sum.shareable : NAN;
}

void report_name(const struct report *r, char *out, size_t size)
{
    const struct job *j = r->job;
    char sample[JOB_SAMPLE_BYTES];
    job_sample(sample, j);
    int n = snprintf(out, size, "%s%s%s%s%s", j->batch ? "@" : "", j->batch ? j->batch : "",
                     j->batch && j->custom_id ? "/" : "", j->custom_id ? j->custom_id : "", sample);
    if (r->db && (size_t)n < size) {
        if (n == 0)
            n = snprintf(out, size, "job %" PRId64, j->id);
        snprintf(out + n, size - (size_t)n, " in %s", r->db);
    }
}

/* Mean and standard deviation over the jobs of a group. */
double report_interval(size_t n, double sd)
{
    static const double first[] = { NAN,   12.706, 4.303, 3.182, 2.776, 2.571,
                                    2.447, 2.365,  2.306, 2.262, 2.228 };      /* by degrees of freedom */
    if (n < 2)
        return NAN;
    const double df = (double)n - 1, z = 1.959964, cube = z * z * z;
    const double t = n <= sizeof first / sizeof *first ? first[n - 1]
                                        : z + (cube + z) / (4 * df) +
                                              (5 * cube * z * z + 16 * cube + 3 * z) / (96 * df * df);
    return t * sd / sqrt((double)n);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The interval of the mean of n speedups: percentiles of the means of samples that are drawn, with a fixed
 * seed, from the pairs of job and baseline (paired bootstrap). */
static void find_interval(struct report_figure_sum *s, const double *x)
{
    enum { SAMPLES = 2000, TAIL = SAMPLES / 40 };
    double mean[SAMPLES] = { 0 };
    for (uint32_t k = 0; k < SAMPLES; k++)
        for (size_t i = 0; i < s->n; i++)
            mean[k] += x[coin_word(0, k, i, 0) % s->n] / (double)s->n;
    qsort(mean, SAMPLES, sizeof *mean, by_size);
    s->low = mean[TAIL];
    s->high = mean[SAMPLES - 1 - TAIL];
}

/* x: room for the values of the jobs. */
static struct report_figure_sum figure_sum(const struct reports *l, const struct report_group *g, size_t f,
                                           double *x)
{
    struct report_figure_sum s = { 0, NAN, NAN, NAN, NAN };
    double sum = 0, squares = 0;
    for (size_t i = 0; i < g->n && f < report_group_figures(l); i++) {
        x[s.n] = figure(&l->v[g->job[i]].sum, report_group_columns[f].figure);
        if (isnan(x[s.n]))
            continue;
        sum += x[s.n++];
        s.mean = sum / (double)s.n;
    }
    for (size_t i = 0; i < s.n; i++)
        squares += (x[i] - s.mean) * (x[i] - s.mean);
    if (s.n > 1)
        s.sd = sqrt(squares / (double)(s.n - 1));
    if (s.n > 1 && f == GROUP_SPEEDUP)
        find_interval(&s, x);
    return s;
}

static int unknown_parameter(const struct report *r, const char *by, struct err *e)
{
    char known[800] = "";
    size_t n = 0;
    for (size_t i = 0; i < r->n_parameters && n < sizeof known; i++)
        n += (size_t)snprintf(known + n, sizeof known - n, "%s, ", r->parameter[i].name);
    return err_set(
        e, ERR_INPUT,
        "--by %s: job %" PRId64
        " has no such parameter; it has %smodel, numerics, seed, sample, prompt_tokens, tokens, name, "
        "custom_id",
        by, r->job->id, known);
}

/* Cuts options.by at its commas. */
static int parse_by(struct reports *l, struct err *e)
{
    if (!(l->by_text = strdup(l->o.by)))
        return no_memory(e);
    for (char *p = l->by_text, *end; p; p = end) {
        if ((end = strchr(p, ',')))
            *end++ = 0;
        if (l->n_by == REPORT_BY_MAX)
            return err_set(e, ERR_INPUT, "--by: more than %d parameters", REPORT_BY_MAX);
        if (!*p)
            return err_set(e, ERR_INPUT, "--by: '%s' has an empty name", l->o.by);
        l->by[l->n_by++] = p;
    }
    return 0;
}

static int read_values(struct reports *l, struct err *e)
{
    if (!(l->value = calloc(l->n * l->n_by + 1, sizeof *l->value)))
        return no_memory(e);
    for (size_t k = 0; k < l->n_by; k++) {
        bool any = l->n == 0;
        for (size_t i = 0; i < l->n; i++) {
            struct report_value *v = &l->value[i * l->n_by + k];
            *v = value_of(&l->v[i], l->by[k]);
            any |= v->text || v->number[0];
        }
        if (!any)
            return unknown_parameter(&l->v[0], l->by[k], e);
    }
    return 0;
}

static int value_order(const struct report_value *a, const struct report_value *b)
{
    const char *s = report_value_text(a), *t = report_value_text(b);
    char *end_s, *end_t;
    const double p = strtod(s, &end_s), q = strtod(t, &end_t);
    if (!*s || !*t || *end_s || *end_t || (p == q && (a->is_text || fabs(p) >= 0x1p53)))
        return strcmp(s, t);
    return (p > q) - (p < q);            /* 0.5 and 0.50 are one number */
}

static int values_order(const struct reports *l, size_t i, size_t j)
{
    int d = 0;
    for (size_t k = 0; k < l->n_by && !d; k++)
        d = value_order(&l->value[i * l->n_by + k], &l->value[j * l->n_by + k]);
    return d;
}

static int job_order(const void *a, const void *b, void *l)
{
    const size_t i = *(const size_t *)a, j = *(const size_t *)b;
    const int d = values_order(l, i, j);
    return d ? d : (i > j) - (i < j);
}

int reports_group(struct reports *l, struct err *e)
{
    if (parse_by(l, e) || read_values(l, e))
        return -1;
    l->order = calloc(l->n + 1, sizeof *l->order);
    l->group = calloc(l->n + 1, sizeof *l->group);
    double *x = calloc(l->n + 1, sizeof *x);
    if (!l->order || !l->group || !x) {
        free(x);
        return no_memory(e);
    }
    for (size_t i = 0; i < l->n; i++)
        l->order[i] = i;
    qsort_r(l->order, l->n, sizeof *l->order, job_order, l);
    for (size_t i = 0, end; i < l->n; i = end) {
        struct report_group *g = &l->group[l->n_groups++];
        for (end = i + 1; end < l->n && values_order(l, l->order[i], l->order[end]) == 0;)
            end++;
        *g = (struct report_group){ .value = &l->value[l->order[i] * l->n_by],
                                    .job = l->order + i,
                                    .n = end - i };
        for (size_t f = 0; f < GROUP_FIGURES; f++)
            g->figure[f] = figure_sum(l, g, f, x);
        for (size_t k = 0; k < g->n; k++)
            g->shared += !ran_alone(&l->v[g->job[k]].sum);
    }
    free(x);
    return 0;
}

void report_group_label(const struct reports *l, const struct report_group *g, char *out, size_t size)
{
    size_t n = 0;
    *out = 0;
    for (size_t k = 0; k < l->n_by && n < size; k++)
        n += (size_t)snprintf(out + n, size - n, "%s%s=%s", k ? ", " : "", l->by[k],
                              report_value_text(&g->value[k]));
    out[utf8_valid_prefix(out, strlen(out))] = 0;
}

/* ---- baselines ---- */

static bool same_name(const char *a, const char *b) { return strcmp(a ? a : "", b ? b : "") == 0; }

static bool same_text(const struct report *x, const struct report *y)
{
    const struct job *j = x->job, *k = y->job;
    return j->seed == k->seed && j->sample == k->sample && j->tokens == k->tokens && j->given == k->given &&
           j->parent_at == k->parent_at && memcmp(x->prompt, y->prompt, sizeof x->prompt) == 0 &&
           memcmp(j->sha, k->sha, sizeof j->sha) == 0 && same_name(x->db, y->db) &&
           same_name(j->fingerprint, k->fingerprint) && same_name(j->numerics, k->numerics) &&
           job_same_text(x->json, y->json);
}

/* Whether the job can be on one side of a comparison. */
static bool is_measured(const struct report *r)
{
    return r->job->state == JOB_DONE && r->job->numerics && r->sum.rounds > 0 && ran_alone(&r->sum);
}

static int by_sha(const void *a, const void *b)
{
    const struct report *x = *(const struct report *const *)a, *y = *(const struct report *const *)b;
    return memcmp(x->job->sha, y->job->sha, sizeof x->job->sha);
}

/* Of several baselines the last one in the list counts. */
int reports_find_speedups(struct reports *l, struct err *e)
{
    size_t n = 0;
    const struct report **plain = calloc(l->n + 1, sizeof *plain);
    if (!plain)
        return no_memory(e);
    for (const struct report *p = l->v; p < l->v + l->n; p++)
        if (p->undrafted && is_measured(p))
            plain[n++] = p;
    qsort(plain, n, sizeof *plain, by_sha);
    for (struct report *r = l->v; r < l->v + l->n; r++) {
        const struct report *best = NULL, **at = bsearch(&r, plain, n, sizeof *plain, by_sha);
        while (at > plain && by_sha(&r, at - 1) == 0)
            at--;
        for (; at && !r->undrafted && is_measured(r) && at < plain + n && by_sha(&r, at) == 0; at++)
            best = *at > best && same_text(r, *at) ? *at : best;
        if (best) {
            r->sum.speedup = figure(&r->sum, "tokens_per_second") / figure(&best->sum, "tokens_per_second");
            r->plain = best->job->id;
        }
    }
    free(plain);
    return 0;
}

const char *report_baseline_command(char out[REPORT_COMMAND], const struct report *r)
{
    const struct job *j = r->job;
    const bool lacks = !r->undrafted && is_measured(r) && !r->plain && !j->given && !j->parent_at &&
                       !r->unique;
    if (!lacks)
        return NULL;
    snprintf(out, REPORT_COMMAND,
             "longhand fork %" PRId64 " --at 0 --seed %" PRIu64 " --drafter none --alone%s%s", j->id, j->seed,
             r->db ? " --db " : "", r->db ? r->db : "");
    return out;
}

/* ---- differences ---- */

static bool differs(const struct reports *l, const char *name)
{
    const struct report_value first = value_of(&l->v[0], name);
    for (size_t i = 1; i < l->n; i++) {
        const struct report_value v = value_of(&l->v[i], name);
        if (strcmp(report_value_text(&v), report_value_text(&first)))
            return true;
    }
    return false;
}

static void add_difference(struct reports *l, const char *name)
{
    for (size_t i = 0; i < l->n_differing; i++)
        if (strcmp(l->differing[i], name) == 0)
            return;
    if (l->n_differing < REPORT_DIFFERING_MAX && differs(l, name))
        l->differing[l->n_differing++] = name;
}

/* Whether the jobs have the same stored parameters, as those of one batch do. */
static bool same_parameters(const struct reports *l)
{
    size_t i = 1;
    while (i < l->n && strcmp(l->v[i].json, l->v[0].json) == 0)
        i++;
    return i == l->n;
}

/* Parameters of sampling come before those of drafting, of which the drafter is the first, and the seed is
 * the last. Prompt and length have columns or files of their own. */
void reports_find_differences(struct reports *l)
{
    if (l->n < 2)
        return;
    const struct report *r = &l->v[0];
    const size_t n = same_parameters(l) ? 0 : r->n_parameters;
    add_difference(l, "model");
    for (size_t i = 0; i < n; i++)
        if (!strchr(r->parameter[i].name, '.'))
            add_difference(l, r->parameter[i].name);
    if (n)
        add_difference(l, "drafting.drafter");
    for (size_t i = 0; i < n; i++)
        if (strncmp(r->parameter[i].name, "drafting.", 9) == 0)
            add_difference(l, r->parameter[i].name);
    bool named = true;
    for (size_t i = 0; i < l->n; i++)
        named &= l->v[i].job->custom_id != NULL;
    if (!named)
        add_difference(l, "seed");
}

void report_label(const struct reports *l, const struct report *r, char *out, size_t size)
{
    size_t n = 0;
    *out = 0;
    for (size_t k = 0; k < l->n_differing && n < size; k++) {
        const struct report_value v = value_of(r, l->differing[k]);
        const char *s = report_value_text(&v);
        char name[256];
        if (strcmp(l->differing[k], "model") == 0) {
            model_name(name, sizeof name, s);
            s = name;
        }
        n += (size_t)snprintf(out + n, size - n, "%s%s=%s", k ? ", " : "", without_prefix(l->differing[k]),
                              s);
    }
    out[utf8_valid_prefix(out, strlen(out))] = 0;
}
