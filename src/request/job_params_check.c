/* Whether a job fits: its tokens into the model's context, its decoder into memory. The memory is itemised
 * by job_plan. Start at job_check_length and job_check_memory. */
#include "src/request/job_params.h"

#include "src/decode/decoder_image.h"
#include "src/decode/weights.h"
#include "src/sample/dry.h"

int job_check_length(const struct config *c, size_t n_prompt, size_t tokens, bool allow_beyond, struct err *e)
{
    const bool dynamic = c->rope.type == ROPE_DYNAMIC;
    if ((tokens <= c->context && n_prompt <= c->context - tokens) || (allow_beyond && !dynamic))
        return 0;
    return err_set(e, ERR_INPUT, dynamic
                   ? "%zu prompt tokens + --tokens %zu are beyond the %zu of this model's dynamic NTK "
                     "scaling: past its original length all earlier keys would have to turn again; "
                     "--context-scaling yarn:F helps"
                   : "%zu prompt tokens + --tokens %zu are beyond this model's context of %zu; fewer tokens, "
                     "--context-scaling yarn:F or --allow-beyond-context help", n_prompt, tokens, c->context);
}

void job_plan(struct memory_plan *plan, const struct job_params *p, const struct engine *g, size_t n_max,
              size_t n_shared)
{
    const struct decode_setup setup = { .draft = p->draft, .logprobs = p->logprobs >= 0,
                                        .best = (size_t)MAX(p->logprobs, 0L) };
    engine_plan_cache(plan, g, n_max, draft_rows(&setup.draft), n_shared);
    decode_plan(plan, &setup, &g->model, n_max);
    memory_plan_add(plan, "DRY", dry_bytes(&p->sampling, g->config.vocab));
    const bool hybrid = config_is_hybrid(&g->config);
    if (hybrid || g->config.window)
        memory_plan_add(plan, hybrid ? "copy of the states" : "copy of the windows",
                        image_state_bytes(&g->model));
    const struct kv_size z = model_cache(&g->model, 1, 0);
    if (params_retake_option(p))
        memory_plan_add(plan, "states to go back to", STATE_COPIES * state_fixed_bytes(&z.state));
}

void job_plan_shared(struct memory_plan *plan, const struct job_params *p, const struct engine *g,
                     size_t n_max, size_t rows)
{
    const struct decode_setup setup = { .draft = p->draft };
    engine_plan_shared(plan, g, n_max, MAX(decode_work_rows(&setup.draft, n_max), rows),
                       MAX(draft_rows(&setup.draft), rows));
}

void job_plan_trained(struct memory_plan *plan, const struct job_params *p, const struct engine *g)
{
    for (size_t i = 0; i < N_DRAFTERS; i++)
        if (weights_has((enum drafter)i) && p->draft.drafters >> i & 1 && !g->weights[i])
            memory_plan_add_on(plan, g->dev, drafter_name(i),
                               weights_bytes((enum drafter)i, &p->draft, p->file[i], g));
}

static void plan_alone(struct memory_plan *plan, const struct job_params *p, const struct engine *g,
                       size_t n_max, size_t n_shared, size_t held)
{
    job_plan_shared(plan, p, g, n_max, 0);
    job_plan_trained(plan, p, g);
    job_plan(plan, p, g, n_max, n_shared);
    memory_plan_deduct(plan, 0, held);
}

bool job_has_room(const struct job_params *p, const struct engine *g, size_t n_max, size_t n_shared,
                  size_t held)
{
    struct memory_plan plan = {0};
    struct err ignored;
    const char *limit;
    const size_t spare = MAX(memory_available(&limit) / 8, (size_t)32 << 20);
    plan_alone(&plan, p, g, n_max, n_shared, held);
    memory_plan_add(&plan, "spare", spare);
    return memory_plan_check(&plan, "", &ignored) == 0;
}

size_t job_length_in_memory(const struct job_params *p, const struct engine *g, size_t n_min, size_t n_max,
                            size_t held)
{
    struct job_params x = *p;            /* with the length that is tried */
    size_t low = n_min, high = n_max, n = n_max;
    while (low < high) {                 /* low fits or is n_min, high + 1 does not fit or is beyond n_max */
        x.sampling.text_max = n;
        if (job_has_room(&x, g, n, 0, held))
            low = n;
        else
            high = n - 1;
        n = low + (high - low + 1) / 2;
    }
    return low;
}

/* When the plan is too large and a smaller form of the cache would fit, the message names the form. */
int job_check_memory(const struct job_params *p, const struct engine *g, size_t n_max, size_t held,
                     struct err *e)
{
    struct memory_plan plan = {0};
    struct device *dev = g->dev;
    const enum dtype type = dev->kv_type;
    char helps[96] = "fewer --tokens need less";
    struct err ignored;
    if (draft_check_model(&p->draft, dev, &g->config, e))
        return -1;
    plan_alone(&plan, p, g, n_max, 0, held);
    if (memory_plan_check(&plan, helps, e) == 0)
        return 0;
    for (enum dtype t = DT_I8; dev->host_memory && type != DT_F32 && t <= DT_I4; t++) {
        struct memory_plan other = {0};
        dev->kv_type = t;
        plan_alone(&other, p, g, n_max, 0, held);
        if (kv_row_bytes(t, 16) < kv_row_bytes(type, 16) && memory_plan_check(&other, "", &ignored) == 0) {
            snprintf(helps, sizeof helps, "fewer --tokens need less, and a text with --kv-dtype %s fits",
                     kv_type_name(t));
            break;
        }
    }
    dev->kv_type = type;
    return memory_plan_check(&plan, helps, e);
}

int job_check_beside(const struct job_params *p, const struct engine *g, size_t n_max, size_t held,
                     size_t max_memory, struct err *e)
{
    struct memory_plan plan = {0};
    const char *limit;
    if (draft_check_model(&p->draft, g->dev, &g->config, e))
        return -1;
    plan_alone(&plan, p, g, n_max, 0, 0);
    plan.dev = NULL;                     /* its free memory says nothing: jobs run */
    size_t all = memory_limit(held, &limit);
    if (max_memory && max_memory < all) {
        all = max_memory;
        limit = "--max-memory";
    }
    return memory_plan_check_in(&plan, all, limit, "fewer max_tokens need less", e);
}
