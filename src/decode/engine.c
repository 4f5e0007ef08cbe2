/* Opens, loads and closes the engine. Its data is struct engine; start at engine_open. */
#include "src/decode/engine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/stopping.h"
#include "src/decode/weights.h"
#include "src/model/config_tensors.h"
#include "src/model/device_choice.h"
#include "src/model/fingerprint.h"

static struct model sizes_only(const struct engine *g)
{
    return (struct model){ .config = g->config, .compute = g->compute, .dev = g->dev, .ops = g->ops,
                           .pool = g->pool, .head_dim = g->dev->head_dim(g->dev, g->config.head_dim),
                           .quantised = g->dev->quantised };
}

static int open_files(struct engine *g, const struct engine_spec *s, struct err *e)
{
    if (config_read(&g->config, g->dir, e) ||
                   (s->scaling && config_scale_context(&g->config, s->scaling, e)) ||
                   tensors_open_as(&g->tensors, g->dir, g->encoding, g->config.tied, e) ||
                   config_check_tensors(&g->config, &g->tensors, e) ||
                   tokenizer_open(&g->tokenizer, g->dir, g->config.vocab, e))
        return -1;
    g->own_eos = tokenizer_eos(g->tokenizer, g->dir);
    for (size_t i = 0; i < g->config.n_eos; i++)
        if (g->config.eos[i] == g->own_eos)
            g->own_eos = -1;
    return 0;
}

int engine_open(struct engine *g, const struct engine_spec *s, struct err *e)
{
    const char *why = "";
    *g = (struct engine){ .compute = s->compute, .kv = s->kv, .encoding = s->weights };
    snprintf(g->dir, sizeof g->dir, "%s", s->dir);
    snprintf(g->scaling, sizeof g->scaling, "%s", s->scaling ? s->scaling : "");
    if (model_absolute_path(g->path, g->dir))
        return err_set_system(e, ERR_INPUT, "model %s: %s", g->dir, strerror(errno));
    g->stamp = model_stamp(g->dir);
    if (open_files(g, s, e)) {
        e->system = e->system ? e->system : ENOEXEC;
        goto fail;
    }
    g->ops = ops_for_cpu(&why);
    if (!g->ops)
        err_set(e, ERR_INPUT, "LONGHAND_ISA '%s': %s", getenv("LONGHAND_ISA"), why);
    if (!g->ops)
        goto fail;
    size_t n_threads = s->threads ? s->threads : pool_default_threads();
    g->pool = pool_open(n_threads);
    if (!g->pool) {
        err_set(e, ERR_FAILED, "--threads: cannot start %zu threads", n_threads);
        goto fail;
    }
    const struct device_choice_model wanted = { &g->config, &g->tensors, g->compute, g->kv, g->ops, g->pool };
    if (device_choice_open(&g->dev, s->device, s->numerics, &wanted, e))
        goto fail;
    g->model = sizes_only(g);
    if (model_plan_bytes(&g->config, &g->tensors, g->compute, g->dev, &g->weight_bytes, e))
        goto fail;
    for (enum drafter d = 0; d < N_DRAFTERS; d++)
        if (drafters[d] && drafters[d]->weights && drafters[d]->weights->of_model)
            g->own_bytes[d] = drafters[d]->weights->of_model(g);
    return 0;
fail:
    engine_close(g);
    return -1;
}

void engine_plan_shared(struct memory_plan *plan, const struct engine *g, size_t n_max, size_t rows,
                        size_t want)
{
    size_t logits;
    if (!mul_size(want, g->config.vocab, &logits) || !mul_size(logits, sizeof(float), &logits))
        logits = SIZE_MAX;
    memory_plan_add_on(plan, g->dev, "weights", g->weight_bytes);
    memory_plan_add_on(plan, g->dev, "workspace", workspace_bytes(&g->model, rows, n_max));
    memory_plan_add_on(plan, g->dev, "logits", logits);
    if (g->dev->graph_bytes)
        memory_plan_add_on(plan, g->dev, "recorded passes", g->dev->graph_bytes);
    memory_plan_add(plan, "tokenizer", g->tokenizer ? tokenizer_bytes(g->tokenizer) : 0);
}

void engine_plan_cache(struct memory_plan *plan, const struct engine *g, size_t n_max, size_t want,
                       size_t n_shared)
{
    struct kv_size size = model_text_cache(&g->model, n_max, want > 1 ? want : 0);
    const size_t fixed = state_fixed_bytes(&size.state), all = state_bytes(&size.state, size.node_max);
    size.n_shared = n_shared;
    size.state.n_layers = 0;
    size.mark = size.window ? KV_BLOCK : 0;
    memory_plan_add_on(plan, g->dev, "KV cache", kv_bytes(&size));
    if (fixed) {
        memory_plan_add(plan, "recurrent states", fixed);
        memory_plan_add(plan, "rows for the states", all - fixed);
        memory_plan_add(plan, "states to share", fixed);
    }
}

void engine_plan(struct memory_plan *plan, const struct engine *g, size_t n_max, size_t rows, size_t want)
{
    engine_plan_shared(plan, g, n_max, rows, want);
    engine_plan_cache(plan, g, n_max, want, 0);
}

static bool loading(void *ctx, size_t done, size_t total)
{
    struct progress *p = ctx;
    p->of = total;
    progress_at(p, done);
    return !stop_signal;
}

int engine_load(struct engine *g, struct fingerprint *f, struct progress *p, struct err *e)
{
    tensors_close(&g->tensors);
    g->tensors = (struct tensors){0};
    progress_phase(p, "loading", "bytes", g->weight_bytes);
    const struct model_setup setup = { &g->config, g->compute, g->dev,     g->ops, g->pool,
                                       loading,    p,          g->encoding, f };
    if (model_open(&g->model, g->dir, &setup, e) == 0)
        return 0;
    g->model = sizes_only(g);     /* sizes for the next job, which reads the weights again */
    return e->code == ERR_AGAIN
               ? err_set(e, ERR_FAILED, "stopped by %s before %s was read", stop_signal_name(), g->dir)
               : -1;
}

struct making { struct progress *p; double ends; };   /* ends 0: no limit */

static bool quantizing(void *ctx, size_t done, size_t total)
{
    const struct making *s = ctx;
    return loading(s->p, done, total) && (s->ends == 0 || clock_seconds() < s->ends);
}

int engine_int8(struct engine *g, double seconds, struct progress *p, struct err *e)
{
    struct making s = { p, seconds > 0 ? clock_seconds() + seconds : 0 };
    if (g->int8_done.whole)
        return 0;
    progress_phase(p, "making the model in 8 bits", "bytes", 0);
    return model_quantize(&g->int8, &g->model, &g->int8_done, quantizing, &s, e);
}

const struct model *engine_has_int8(const struct engine *g) { return g->int8_done.whole ? &g->int8 : NULL; }

void engine_drop_int8(struct engine *g)
{
    model_close(&g->int8);
    g->int8_done = (struct model_quantized){0};
}

void engine_close(struct engine *g)
{
    engine_drop_int8(g);
    if (g->model.mem)                /* otherwise only what sizes are computed from */
        model_close(&g->model);
    for (enum drafter d = 0; d < N_DRAFTERS; d++)
        weights_close(g, d);
    tensors_close(&g->tensors);
    if (g->dev)
        g->dev->close(g->dev);
    if (g->pool)
        pool_close(g->pool);
    tokenizer_close(g->tokenizer);
    *g = (struct engine){0};
}
