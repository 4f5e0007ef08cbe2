/* submit --grid. Start at grid_open: it parses the options, then adds one combination after the other. */
#include "src/request/grid.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/json.h"
#include "src/request/draft_options.h"
#include "src/request/options_impl.h"
#include "src/request/sampling_options.h"

static int no_memory(struct err *e) { return err_set(e, ERR_FAILED, "out of memory for a grid"); }

/* Takes over a text, so that grid_close frees it. NULL: no memory. */
static char *keep(struct grid *g, char *text)
{
    if (text && text_list_add(&g->text, text))
        return text;
    free(text);
    return NULL;
}

/* ---- the options ---- */

static int add_value(struct grid *g, struct grid_option *p, char *value, struct err *e)
{
    const enum option_kind kind = p->opt->kind;
    const struct json number = { .s = value, .end = value + strlen(value) };
    char digits[24];
    if ((kind == SIZE || kind == LONG || kind == SEED) && js_digits(&number, digits) &&
        !(value = keep(g, strdup(digits))))     /* 4.0 is 4, in names, too */
        return no_memory(e);
    for (size_t i = 0; i < p->values.n; i++)
        if (strcmp(p->values.v[i], value) == 0)
            return err_set(e, ERR_INPUT, "--grid %s: the value %s is given twice", p->name, value);
    return text_list_add(&p->values, value) ? 0 : no_memory(e);
}

/* Parses NAME=A,B,.. */
static int parse_option(struct grid *g, const char *word, struct err *e)
{
    char *text = keep(g, strdup(word)), *value = text ? strchr(text, '=') : NULL;
    if (!text)
        return no_memory(e);
    if (!value || value == text || !value[1])
        return err_set(e, ERR_INPUT, "--grid: '%s' is not NAME=A,B,.. like temperature=0.6,0.8", word);
    *value++ = 0;
    if (g->n_options == GRID_OPTIONS_MAX)
        return err_set(e, ERR_INPUT, "--grid: more than %d options", GRID_OPTIONS_MAX);
    struct grid_option *p = &g->option[g->n_options];
    *p = (struct grid_option){ .name = text, .opt = option_named(text, g->o.verb->bit) };
    if (!p->opt || !(p->opt->verbs & g->o.verb->bit) || !(p->opt->flags & GRID))
        return err_set(e, ERR_INPUT,
                       "--grid: '%s' is no option of sampling, drafting or length, such as temperature, "
                       "penalty, drafter, tokens or seed", text);
    for (size_t i = 0; i < g->n_options; i++)
        if (g->option[i].opt == p->opt)
            return err_set(e, ERR_INPUT, "--grid: %s is given twice", p->opt->name);
    g->n_options++;
    for (char *end; value; value = end) {
        if ((end = strchr(value, ',')))
            *end++ = 0;
        if (add_value(g, p, value, e))
            return -1;
    }
    return 0;
}

static int parse_options(struct grid *g, const struct options *o, struct err *e)
{
    if (o->batch || o->replace)
        return err_set(e, ERR_INPUT, "--grid and %s: only one of them is allowed",
                       o->batch ? "--batch" : "--replace");
    g->n = o->samples;
    for (size_t i = 0; i < o->grid.n; i++) {
        if (parse_option(g, o->grid.v[i], e))
            return -1;
        if ((g->n *= g->option[i].values.n) > GRID_JOBS_MAX)
            return err_set(e, ERR_INPUT, "--grid: more than %d texts", GRID_JOBS_MAX);
    }
    return 0;
}

/* ---- combinations ---- */

/* Sets the options of combination `c` and writes its name: the last option changes first. */
static int set_combination(struct grid *g, size_t c, char *name, size_t size, struct err *e)
{
    size_t at[GRID_OPTIONS_MAX], n = 0;
    for (size_t k = g->n_options; k-- > 0; c /= g->option[k].values.n)
        at[k] = c % g->option[k].values.n;
    for (size_t k = 0; k < g->n_options; k++) {
        const struct grid_option *p = &g->option[k];
        const enum option_kind kind = p->opt->kind;
        char spelled[80], *value = keep(g, strdup(p->values.v[at[k]]));
        if (!value)
            return no_memory(e);
        if (kind == DRAFTERS || kind == WIDTHS)
            option_respell(value, '+', ',');
        snprintf(spelled, sizeof spelled, "--grid %.60s", p->name);
        if (options_assign(&g->o, p->opt->name, spelled, value, e))
            return -1;
        n += (size_t)snprintf(name + MIN(n, size), size - MIN(n, size), "%s%s=%s", k ? "," : "", p->name,
                              p->values.v[at[k]]);
    }
    return n < size - 16 ? 0 : err_set(e, ERR_INPUT, "--grid: the name of a combination has %zu bytes", n);
}

/* Adds the samples of a request. */
static int add_jobs(struct grid *g, size_t c, const struct request *r, const char *name, struct err *e)
{
    char *text = NULL;
    const bool drawn = g->o.seed_drawn;      /* its identity has -1 */
    const int bytes = asprintf(&text, "%s\n%s%" PRIu64 "\n%zu\n%s\n", r->job.parameters, drawn ? "-" : "",
                               drawn ? 1 : r->sampling.seed, g->o.tokens, g->first.job.prompt);
    const char *identity = bytes < 0 ? NULL : keep(g, text);
    for (size_t i = 0; i < g->o.samples; i++) {
        const size_t at = c * g->o.samples + i;
        if (asprintf(&text, "%s/%zu", name, i) < 0 || !(text = keep(g, text)) || !identity)
            return no_memory(e);
        g->spec[at] = request_job(r, &g->engine, i);
        g->spec[at].custom_id = text;
        g->spec[at].line = at + 1;
        g->spec[at].identity = identity;
        g->spec[at].identity_bytes = (size_t)bytes;
    }
    return 0;
}

/* Combinations after the first one share its prompt, ids and seed. */
static int add_combination(struct grid *g, size_t c, struct err *e)
{
    char name[512];
    struct request r = { .o = &g->o, .job = g->first.job, .chat = g->first.chat };
    r.job.parameters = NULL;
    int rc = set_combination(g, c, name, sizeof name, e) || request_describe(&r, &g->engine, e) ||
             request_check(&r, &g->engine, e) ? -1 : 0;
    if (!keep(g, r.job.parameters) && rc == 0)
        rc = no_memory(e);
    rc = rc ? rc : add_jobs(g, c, &r, name, e);
    if (rc == 0) {
        strcat(name, ": ");              /* set_combination left room */
        draft_notices(&g->o, &g->engine, name);
    }
    sampling_free(&r.sampling);
    return rc;
}

static int name_grid(struct grid *g, const char *name, struct err *e)
{
    if (name && (strlen(name) >= sizeof g->name || batch_name_check("--name", name, e)))
        return e->code ? -1 : err_set(e, ERR_INPUT, "--name: more than %d bytes", BATCH_NAME_BYTES_MAX);
    snprintf(g->name, sizeof g->name, name ? "%s" : "grid-%s", name ? name : g->seed);
    return 0;
}

int grid_open(struct grid *g, const struct options *o, struct err *e)
{
    char name[512];
    *g = (struct grid){ .o = *o };
    g->o.name = NULL;
    if (parse_options(g, o, e) || set_combination(g, 0, name, sizeof name, e) ||
        request_open(&g->first, &g->o, &g->engine, NULL, e))
        return -1;
    snprintf(g->seed, sizeof g->seed, "%" PRIu64, g->first.sampling.seed);
    if (name_grid(g, o->name, e))
        return -1;
    for (size_t k = 0; k < g->n_options; k++) {
        g->seeds |= g->option[k].opt->field == offsetof(struct options, seed);
        g->o.job.alone |= strcmp(g->option[k].opt->group, "Drafting") == 0;
    }
    if (!options_given(&g->o, "seed") && options_assign(&g->o, "seed", "--seed", g->seed, e))
        return -1;
    g->spec = calloc(g->n, sizeof *g->spec);
    g->ids = calloc(g->n, sizeof *g->ids);
    if (!g->spec || !g->ids)
        return no_memory(e);
    for (size_t c = 0; c < g->n / g->o.samples; c++)
        if (add_combination(g, c, e))
            return -1;
    return 0;
}

int grid_submit(struct grid *g, struct store *s, struct err *e)
{
    bool *is_new = calloc(g->n, sizeof *is_new);
    size_t bad = g->n;
    if (!is_new)
        return no_memory(e);
    const size_t combinations = g->n / g->o.samples;
    int rc = store_submit(s, g->name, g->spec, g->n, g->ids, is_new, &bad, e);
    if (rc && e->code == ERR_INPUT && bad < g->n)
        err_while(e, "@%s/%s (--name gives the grid another name)", g->name, g->spec[bad].custom_id);
    for (size_t i = 0; i < g->n && rc == 0; i++)
        g->n_new += is_new[i];
    if (rc == 0)
        request_notice(&g->o, "@%s: %zu %s (%zu new), %zu %s of %zu %s%s; %s%s",
                       g->name, g->n, plural(g->n, "job", "jobs"), g->n_new, combinations,
                       plural(combinations, "combination", "combinations"), g->o.samples,
                       plural(g->o.samples, "text", "texts"), g->o.job.alone ? ", each written alone" : "",
                       g->seeds ? "the seeds of --grid" : "seed ", g->seeds ? "" : g->seed);
    free(is_new);
    return rc;
}

void grid_close(struct grid *g)
{
    request_close(&g->first);
    engine_close(&g->engine);
    for (size_t i = 0; i < GRID_OPTIONS_MAX; i++)
        free(g->option[i].values.v);
    for (size_t i = 0; i < g->text.n; i++)
        free((char *)(uintptr_t)g->text.v[i]);
    free(g->text.v);
    free(g->spec);
    free(g->ids);
    *g = (struct grid){0};
}
