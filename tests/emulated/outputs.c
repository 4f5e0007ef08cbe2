/* What a launch writes (outputs.h). Each function knows the arguments of one kernel (cu_args.h). */
#include "tests/emulated/outputs.h"

struct visitor { output_visit *visit; void *ctx; };
static void each(const struct visitor *v, void *p, size_t bytes, bool whole)
{
    if (p && bytes)
        v->visit(v->ctx, p, bytes, whole);
}

static void of_product(const struct cu_product *a, const struct gpu_launch *l, const struct visitor *v)
{
    const size_t rows = l->kernel == CU_product_few ? CU_ROWS_FEW : CU_ROWS_MANY;
    for (size_t r = 0; r < a->rows; r++)
        each(v, a->y + r * a->ldy, a->n * sizeof *a->y, !a->add);
    each(v, a->part, l->grid[0] * (size_t)a->pieces * 2 * CU_TILE_N * rows * sizeof *a->part, true);
}

/* The row of K and V of a slot. Both arguments count from the cache's own blocks, the only ones that a kernel
 * writes. */
static void cache_row(char *head, size_t slot, size_t dp, bool whole, const struct visitor *v)
{
    char *k = head + slot / CU_BLOCK * 2 * CU_BLOCK * dp * 2 + slot % CU_BLOCK * dp * 2;
    each(v, k, dp * 2, whole);
    each(v, k + CU_BLOCK * dp * 2, dp * 2, whole);
}

static void of_rope(const struct cu_rope *a, const struct visitor *v)
{
    const size_t heads = a->n_heads + 2 * a->n_kv_heads;
    each(v, a->q, (size_t)a->n * a->n_heads * a->dp * 2, true);
    each(v, a->qkv, a->n * heads * a->dp * sizeof *a->qkv, false);
    each(v, a->q_tap, (size_t)a->n * a->n_heads * a->d * sizeof *a->q_tap, true);
    for (size_t r = 0; r < a->n; r++) {
        const struct cu_seq *s = &a->rows.seq[a->rows.seq_of[r]];
        const size_t node = (size_t)a->n_kv_heads * 2 * a->dp * 2;
        if (s->tree)
            each(v, s->scratch + a->layer * s->node_layer_bytes + (r - s->row0) * node, node, true);
        for (size_t h = 0; h < a->n_kv_heads && !s->tree; h++)
            cache_row(s->base + a->layer * s->layer_bytes + h * s->head_bytes,
                      a->rows.pos[r] - s->n_shared * CU_BLOCK, a->dp, true, v);
    }
}

static void of_attend(const struct cu_attend *a, const struct gpu_launch *l, const struct visitor *v)
{
    const size_t dp = l->kernel == CU_attend_64_one || l->kernel == CU_attend_64_few ||
                      l->kernel == CU_attend_64_many ? 64 : 128;
    const struct cu_tile *tile = a->rows.tile + a->tile0, *last = &tile[l->grid[0] - 1];
    each(v, a->part, (last->row0 + last->n - a->row_first) * (size_t)a->n_heads * a->chunks * (2 + dp) *
         sizeof *a->part, true);
    for (size_t i = 0; i < l->grid[0]; i++) {
        const struct cu_seq *s = &a->rows.seq[tile[i].seq];
        for (size_t h = 0; h < a->n_kv_heads && s->importance && tile[i].row0 == s->row0; h++)
            each(v, s->importance + (a->layer * (size_t)a->n_kv_heads + h) * s->importance_step,
                 s->n_past * sizeof *s->importance, false);
    }
}

static void of_kv_copy(const struct cu_kv_copy *a, const struct gpu_launch *l, const struct visitor *v)
{
    for (size_t y = 0; y < l->grid[1]; y++)
        for (size_t i = 0; i < l->grid[0]; i++)
            cache_row(a->dst.base + y / a->n_kv_heads * a->dst.layer_bytes +
                      y % a->n_kv_heads * a->dst.head_bytes,
                      (a->to ? a->to[i] : a->to0 + i) - a->dst.n_shared * CU_BLOCK, a->dp, false, v);
}

static void of_kv_zero(const struct cu_kv_zero *a, const struct gpu_launch *l, const struct visitor *v)
{
    for (size_t y = 0; y < l->grid[1]; y++)
        for (size_t i = 0; i < l->grid[0]; i++)
            cache_row(a->dst.base + y / a->n_kv_heads * a->dst.layer_bytes +
                      y % a->n_kv_heads * a->dst.head_bytes, a->from + i - a->dst.n_shared * CU_BLOCK, a->dp,
                      true, v);
}

static void of_kv_select(const struct cu_kv_select *a, const struct gpu_launch *l, const struct visitor *v)
{
    for (size_t i = 0; i < (size_t)l->grid[0] * l->grid[1]; i++) {
        each(v, a->row + i * a->row_step, a->budget * sizeof *a->row, true);
        each(v, a->keys + i * a->keys_step, a->keys_step * sizeof *a->keys, true);
    }
}

static void of_sample(const struct cu_sample *a, size_t n, const struct visitor *v)
{
    each(v, a->best, n * a->k * sizeof *a->best, true);
    each(v, a->x, n * a->vocab * sizeof *a->x, true);
    each(v, a->work, n * a->work_step * sizeof *a->work, true);
}

/* Operations of training write some of their buffers in place. */
static void of_training(const struct gpu_launch *l, const struct visitor *v)
{
    const size_t n = l->grid[0];
    if (l->kernel == CU_norm_back) {
        const struct cu_norm_back *a = l->args;
        each(v, a->dx, n * a->dim * sizeof *a->dx, false);
        each(v, a->scale, n * sizeof *a->scale, true);
    } else if (l->kernel == CU_gain_back) {
        const struct cu_gain_back *a = l->args;
        each(v, a->dw, a->dim * sizeof *a->dw, false);
    } else if (l->kernel == CU_xent) {
        const struct cu_xent *a = l->args;
        each(v, a->g, n * a->vocab * sizeof *a->g, false);
        each(v, a->loss, n * sizeof *a->loss, false);
    } else if (l->kernel == CU_squares) {
        const struct cu_squares *a = l->args;
        each(v, a->part, n * sizeof *a->part, true);
    }
}

static void of_row(const struct gpu_launch *l, const struct visitor *v)
{
    const size_t n = l->grid[0];
    if (l->kernel == CU_embed) {
        const struct cu_embed *a = l->args;
        each(v, a->x, n * a->k * sizeof *a->x, true);
    } else if (l->kernel == CU_rmsnorm) {
        const struct cu_rmsnorm *a = l->args;
        each(v, a->y, n * a->dim * sizeof *a->y, true);
    } else if (l->kernel == CU_merge) {
        const struct cu_merge *a = l->args;
        const size_t row = (size_t)a->n_heads * a->dp;
        each(v, a->out + a->row_first * row, a->n * row * sizeof *a->out, true);
    } else if (l->kernel == CU_swiglu) {
        const struct cu_swiglu *a = l->args;
        each(v, a->h, a->n * sizeof *a->h, true);
    } else if (l->kernel == CU_gather) {
        const struct cu_gather *a = l->args;
        each(v, a->dst, n * a->words * sizeof *a->dst, true);
    } else if (l->kernel == CU_widen) {
        const struct cu_widen *a = l->args;
        each(v, a->y, a->n * sizeof *a->y, true);
    } else if (l->kernel == CU_narrow) {
        const struct cu_narrow *a = l->args;
        each(v, a->y, a->n * sizeof *a->y, true);
    }
}

void emulated_outputs(const struct gpu_launch *l, output_visit *visit, void *ctx)
{
    const struct visitor v = { visit, ctx };
    switch (l->kernel) {
    case CU_product_few: case CU_product_many: of_product(l->args, l, &v); break;
    case CU_attend_64_one: case CU_attend_64_few: case CU_attend_64_many: case CU_attend_128_one:
    case CU_attend_128_few: case CU_attend_128_many:
        of_attend(l->args, l, &v); break;
    case CU_rope: of_rope(l->args, &v); break;
    case CU_kv_copy: of_kv_copy(l->args, l, &v); break;
    case CU_kv_zero: of_kv_zero(l->args, l, &v); break;
    case CU_kv_select: of_kv_select(l->args, l, &v); break;
    case CU_sample: of_sample(l->args, l->grid[0], &v); break;
    case CU_norm_back: case CU_gain_back: case CU_xent: case CU_squares: of_training(l, &v); break;
    default: of_row(l, &v);
    }
}
