/* Owns the output of the points of a GPU: table, projection, JSON. */
#include <stdio.h>
#include <string.h>

#include "src/base/json_write.h"
#include "tests/labbench/lab.h"

void lab_print_header(const struct lab *b)
{
    if (!b->json)
        printf("%-16s %-9s %6s %5s %9s %10s %8s %8s %7s %7s\n", "model", "point", "depth", "rows", "ms",
               "tokens/s", "GB", "GB/s", "share", "goal");
}

void lab_print_line(struct lab *b, struct lab_line x)
{
    const bool missed = x.goal > 0 && (x.ratio ? x.share > x.goal : x.share < x.goal);
    const double scale = x.ratio ? 1 : 100;
    char share[16] = "-", goal[16] = "-";
    b->missed += missed;
    if (b->json)
        return;
    if (x.share > 0)
        snprintf(share, sizeof share, x.ratio ? "%.2fx" : "%.1f%%", scale * x.share);
    if (x.goal > 0)
        snprintf(goal, sizeof goal, x.ratio ? "%.2fx%s" : "%.0f%%%s", scale * x.goal, missed ? "!" : "");
    printf("%-16s %-9s %6zu %5zu %9.4f %10.1f %8.3f %8.1f %7s %7s\n", x.model, x.point, x.depth, x.rows,
           1e3 * x.seconds, (double)x.rows / x.seconds, x.bytes / 1e9, x.bytes / x.seconds / 1e9, share,
           goal);
    fflush(stdout);
}

void lab_print_kernel(struct lab *b, const struct lab_kernel *x)
{
    char share[16] = "-";
    if (b->json)
        return;
    if (b->n_kernels == 1)
        printf("%-6s %-10s %7s %5s %10s %10s %9s %7s\n", "shape", "operation", "depth", "rows", "us", "MB",
               "GB/s", "share");
    if (b->copy > 0)
        snprintf(share, sizeof share, "%.1f%%", 100 * x->bytes / x->seconds / b->copy);
    printf("%-6s %-10s %7zu %5zu %10.2f %10.3f %9.1f %7s\n", x->shape, x->name, x->depth, x->rows,
           1e6 * x->seconds, x->bytes / 1e6, x->bytes / x->seconds / 1e9, share);
    fflush(stdout);
}

static void json_kernels(struct json_writer *w, const struct lab *b)
{
    jw_open(w, "kernels", '[');
    for (size_t i = 0; i < b->n_kernels; i++) {
        const struct lab_kernel *x = &b->kernel[i];
        jw_open(w, NULL, '{');
        jw_text(w, "shape", x->shape);
        jw_text(w, "operation", x->name);
        jw_uint(w, "depth", x->depth);
        jw_uint(w, "rows", x->rows);
        jw_real(w, "seconds", x->seconds);
        jw_uint(w, "bytes", (uint64_t)x->bytes);
        jw_real(w, "share", b->copy > 0 && x->seconds > 0 ? x->bytes / x->seconds / b->copy : 0);
        jw_close(w, '}');
    }
    jw_close(w, ']');
}

void lab_print_projection(const struct lab *b)
{
    const struct lab_model *f = &b->model[0];
    const size_t tokens = f->at[f->n - 1].depth;
    for (size_t i = 0; i < b->n_accepted; i++) {
        const struct lab_accepted *a = &b->accepted[i];
        printf("demo on real text, %s: %.2f tokens a round, %.1f rows, %.2f draft passes; %.0f tokens/s (%zu "
               "tokens)\n",
               a->drafters, a->per_round, a->rows, a->passes, (double)a->tokens / a->seconds, a->tokens);
    }
    if (!tokens || f->at[0].pass[0] <= 0 || f->at[0].decode <= 0)
        return;
    printf("projection of %zu tokens with %s, not a measurement:\n", tokens, f->name);
    printf("  plain: sum of decode(depth) = %.2f min; bandwidth floor: sum of bytes(depth) / copy bandwidth "
           "= %.2f min\n",
           lab_project(f, NULL) / 60, lab_floor(f, b->copy) / 60);
    for (size_t i = 0; i < b->n_accepted; i++)
        printf("  %s: sum of [rows(r, depth)%s + %.2f draft + t * choice] / t, r = %.1f rows and t = %.2f "
               "tokens a round, choice = decode - one row = %.2f min\n",
               b->accepted[i].drafters, b->accepted[i].heads ? " + heads" : "", b->accepted[i].passes,
               b->accepted[i].rows, b->accepted[i].per_round, lab_project(f, &b->accepted[i]) / 60);
    printf("  the paper, 100,000 tokens on an A100: 300 min plain, 90 min TokenSwift; the goal on an H200: 4 "
           "min\n");
}

static void json_model(struct json_writer *w, const struct lab *b, const struct lab_model *f)
{
    jw_open(w, NULL, '{');
    jw_text(w, "model", f->name);
    jw_uint(w, "weight_bytes", (uint64_t)f->weight_bytes);
    jw_uint(w, "row_bytes", (uint64_t)f->row_bytes);
    jw_uint(w, "draft_rows", f->partial);
    jw_real(w, "draft_seconds", f->draft);
    jw_real(w, "heads_seconds", f->heads);
    jw_open(w, "depths", '[');
    for (size_t j = 0; j < f->n; j++) {
        const struct lab_depth *at = &f->at[j];
        const double bytes = f->weight_bytes + (double)at->depth * f->row_bytes;
        jw_open(w, NULL, '{');
        jw_uint(w, "depth", at->depth);
        jw_real(w, "decode_seconds", at->decode);
        jw_real(w, "decode_share", at->decode > 0 && b->copy > 0 ? bytes / at->decode / b->copy : 0);
        jw_open(w, "pass_seconds", '{');
        for (size_t k = 0; k < LAB_PASSES; k++) {
            char rows[24];
            snprintf(rows, sizeof rows, "%zu", lab_rows[k]);
            jw_real(w, rows, at->pass[k]);
        }
        jw_close(w, '}');
        jw_real(w, "prefill_seconds", at->prefill);
        jw_close(w, '}');
    }
    jw_close(w, ']');
    jw_close(w, '}');
}

void lab_print_json(const struct lab *b, FILE *f)
{
    struct json_writer w = { .f = f, .digits = 9, .style = JW_INDENTED };
    jw_open(&w, NULL, '{');
    jw_text(&w, "device", b->dev->name);
    jw_text(&w, "numerics", b->dev->numerics);
    jw_real(&w, "copy", b->copy);
    jw_real(&w, "upload", b->upload);
    jw_real(&w, "download", b->download);
    jw_real(&w, "train", b->train);
    jw_open(&w, "models", '[');
    for (size_t i = 0; i < b->n_models; i++)
        json_model(&w, b, &b->model[i]);
    jw_close(&w, ']');
    json_kernels(&w, b);
    jw_open(&w, "accepted", '[');
    for (size_t i = 0; i < b->n_accepted; i++) {
        const struct lab_accepted *a = &b->accepted[i];
        jw_open(&w, NULL, '{');
        jw_text(&w, "drafters", a->drafters);
        jw_uint(&w, "tokens", a->tokens);
        jw_real(&w, "tokens_per_round", a->per_round);
        jw_real(&w, "rows", a->rows);
        jw_real(&w, "draft_passes", a->passes);
        jw_real(&w, "tokens_per_second", (double)a->tokens / a->seconds);
        jw_real(&w, "projected_seconds", b->n_models ? lab_project(&b->model[0], a) : 0);
        jw_close(&w, '}');
    }
    jw_close(&w, ']');
    jw_real(&w, "plain_projected_seconds", b->n_models ? lab_project(&b->model[0], NULL) : 0);
    jw_real(&w, "floor_seconds", b->n_models && b->copy > 0 ? lab_floor(&b->model[0], b->copy) : 0);
    jw_uint(&w, "missed", b->missed);
    jw_open(&w, "skipped", '[');
    for (size_t i = 0; i < b->n_skipped; i++)
        jw_text(&w, NULL, b->skipped[i]);
    jw_close(&w, ']');
    jw_close(&w, '}');
    putc('\n', f);
}
