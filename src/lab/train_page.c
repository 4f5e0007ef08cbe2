/* The page of a training (train_page.h). The lines of the CSV become points: one for each measurement on
 * held-out text, or without any about POINTS of the steps; a loss in training is the mean of the steps since
 * the point before. Start reading at train_page_write(). */
#include "src/lab/train_page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/page.h"
#include "src/base/output.h"
#include "src/lab/train/train.h"

enum { POINTS = 200 };

struct line { size_t step, output; char module[32]; bool valid; double loss, top1, accepted; };
struct curves { struct line *line; size_t n; };

/* The figures of one module at its points: [TRAIN_OUTPUTS_MAX][n]. */
struct figures {
    size_t n, outputs;
    double *x, *in_training, *held_out;  /* [n]; the losses are sums over outputs */
    double *loss, *top1, *accepted;      /* of held-out text, or of the training's windows */
    bool has_accepted, has_valid;
};

static int read_curves(struct curves *c, const char *path, struct err *e)
{
    char *text;
    size_t size, room = 0;
    if (file_read(&text, &size, path, SIZE_MAX / 2, e))
        return -1;
    char *p = strchr(text, '\n'), *next;
    for (; p && *++p && (next = strchr(p, '\n')); p = next) {
        struct line x = { 0 };
        char kind[8];
        if (sscanf(p, "%zu,%*u,%31[^,],%7[^,],%zu,%lf,%lf,%*f,%*f,%lf", &x.step, x.module, kind, &x.output,
                   &x.loss, &x.top1, &x.accepted) != 7 || x.output >= TRAIN_OUTPUTS_MAX) {
            free(text);
            return err_set(e, ERR_INPUT, "%s: line %zu: not a line of the curves of a training", path,
                           c->n + 2);
        }
        x.valid = strcmp(kind, "valid") == 0;
        if (c->n == room) {
            room = 2 * room + 64;
            struct line *more = realloc(c->line, room * sizeof *more);
            if (!more) {
                free(text);
                return err_set(e, ERR_FAILED, "out of memory for the page");
            }
            c->line = more;
        }
        c->line[c->n++] = x;
    }
    free(text);
    return 0;
}

/* Counts the points of a module, or fills them in. */
static void measure(struct figures *g, const struct curves *c, const char *module, size_t every)
{
    size_t n = 0, rows = 0;
    double sum = 0, own = 0;
    for (size_t i = 0; i < c->n; i++) {
        const struct line *l = &c->line[i];
        if (strcmp(l->module, module))
            continue;
        g->outputs = MAX(g->outputs, l->output + 1);
        g->has_valid |= l->valid;
        g->has_accepted |= l->accepted > 0;
        if (!l->valid)
            sum += isfinite(l->loss) ? l->loss : 0, rows += l->output == 0;
        const bool point = g->has_valid ? l->valid : l->step % every == 0;
        if (!point)
            continue;
        n += l->output == 0;
        if (!g->x)
            continue;
        const size_t at = n - 1, to = l->output * g->n + at;
        if (l->output == 0)
            g->x[at] = (double)l->step, own = 0;
        g->loss[to] = l->loss, g->top1[to] = l->top1, g->accepted[to] = l->accepted;
        own += isfinite(l->loss) ? l->loss : 0;
        if (l->output + 1 < g->outputs)
            continue;
        g->held_out[at] = l->valid ? own : NAN;
        g->in_training[at] = rows ? sum / (double)rows : NAN;
        sum = 0, rows = 0;
    }
    g->n = n;
}

static void plot(FILE *f, const struct figures *g, const char *title, const char *note, const double *y,
                 bool shares)
{
    struct series v[TRAIN_OUTPUTS_MAX];
    char name[TRAIN_OUTPUTS_MAX][24];
    for (size_t k = 0; k < g->outputs; k++) {
        snprintf(name[k], sizeof name[k], "output %zu", k + 1);
        v[k] = (struct series){ name[k], y + k * g->n };
    }
    page_plot(f, &(struct page_plot){ .title = title, .note = note, .x = g->x, .n = g->n,
                                      .length = g->n ? g->x[g->n - 1] : 1, .shares = shares },
              v, g->outputs);
}

static void put_module(FILE *f, const struct figures *g, const char *module)
{
    const char *text = g->has_valid ? "held-out text, by training step" : "the windows of the step, by step";
    page_format(f, "<h2>@t</h2><div class=\"plots\">", module);
    page_plot(f, &(struct page_plot){ .title = "Loss", .note = "sum over the outputs, by training step; in "
                                      "training: mean of the steps since the point before",
                                      .x = g->x, .n = g->n, .length = g->n ? g->x[g->n - 1] : 1 },
              (struct series[]){ { "in training", g->in_training }, { "held-out text", g->held_out } },
              g->has_valid ? 2 : 1);
    plot(f, g, "Loss of each output", text, g->loss, false);
    plot(f, g, "First choices that are right", text, g->top1, true);
    if (g->has_accepted)
        plot(f, g, "Accepted up to each output", text, g->accepted, true);
    fputs("</div>", f);
}

/* Allocates the figures of a module and fills them in. */
static int figures_of(struct figures *g, const struct curves *c, const char *module, struct err *e)
{
    size_t steps = 0;
    for (size_t i = 0; i < c->n; i++)
        steps = MAX(steps, c->line[i].step);
    const size_t every = MAX(steps / POINTS, 1);
    *g = (struct figures){ 0 };
    measure(g, c, module, every);        /* whether there is held-out text */
    measure(g, c, module, every);
    double *all = calloc(3 * (g->n + 1) * (1 + TRAIN_OUTPUTS_MAX), sizeof *all);
    if (!all)
        return err_set(e, ERR_FAILED, "out of memory for the page");
    const size_t n = g->n;
    g->x = all, g->in_training = all + n, g->held_out = all + 2 * n, g->loss = all + 3 * n;
    g->top1 = g->loss + n * TRAIN_OUTPUTS_MAX, g->accepted = g->top1 + n * TRAIN_OUTPUTS_MAX;
    measure(g, c, module, every);
    return 0;
}

static bool is_new(const struct curves *c, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(c->line[k].module, c->line[i].module) == 0)
            return false;
    return true;
}

static int write_modules(FILE *f, const struct curves *c, struct err *e)
{
    for (size_t i = 0; i < MIN(c->n, (size_t)TRAIN_MODULES_MAX * TRAIN_OUTPUTS_MAX); i++) {
        struct figures g;
        if (!is_new(c, i))
            continue;
        if (figures_of(&g, c, c->line[i].module, e))
            return -1;
        put_module(f, &g, c->line[i].module);
        free(g.x);
    }
    return 0;
}

int train_page_write(const char *path, const char *curves, struct err *e)
{
    struct curves c = { 0 };
    struct whole out;
    int rc = read_curves(&c, curves, e) || !whole_begin(&out, e) ? -1 : 0;
    if (rc == 0) {
        page_begin(out.f, "training", NULL);
        fputs("<h1>Training</h1>", out.f);
        rc = write_modules(out.f, &c, e);
        page_end(out.f, NULL, NULL);
        rc = whole_end(&out, rc, path, EARLIER_ANY, e);
    }
    free(c.line);
    return rc;
}
