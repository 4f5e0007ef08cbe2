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

void lab_print_json(const struct lab *b)
{
    printf("{\"device\": ");
    jw_string(stdout, b->dev->name, strlen(b->dev->name));
    printf(", \"numerics\": \"%s\", \"copy\": %.5g, \"upload\": %.5g, \"download\": %.5g, \"train\": %.5g, "
           "\"models\": [",
           b->dev->numerics, b->copy, b->upload, b->download, b->train);
    for (size_t i = 0; i < b->n_models; i++) {
        const struct lab_model *f = &b->model[i];
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
        const struct lab_accepted *a = &b->accepted[i];
        printf("%s{\"drafters\": \"%s\", \"tokens\": %zu, \"tokens_per_round\": %.4f, \"rows\": %.2f, "
               "\"draft_passes\": %.3f, \"tokens_per_second\": %.2f, \"projected_seconds\": %.3f}",
               i ? ", " : "", a->drafters, a->tokens, a->per_round, a->rows, a->passes,
               (double)a->tokens / a->seconds, b->n_models ? lab_project(&b->model[0], a) : 0);
    }
    printf("],\n \"plain_projected_seconds\": %.3f, \"floor_seconds\": %.3f, \"missed\": %zu, \"skipped\": [",
           b->n_models ? lab_project(&b->model[0], NULL) : 0,
           b->n_models && b->copy > 0 ? lab_floor(&b->model[0], b->copy) : 0, b->missed);
    for (size_t i = 0; i < b->n_skipped; i++) {
        printf("%s", i ? ", " : "");
        jw_string(stdout, b->skipped[i], strlen(b->skipped[i]));
    }
    printf("]}\n");
}

