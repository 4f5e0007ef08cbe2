/* What the jobs of a worker share: the memory ledger, the buffers of passes, and trained drafters. Start at
 * worker_reserve. */
#include "runs/work/worker.h"

#include <stdio.h>
#include <string.h>

#include "src/model/heads.h"

/* Rows that one pass over several jobs verifies; a job with a larger tree raises it (decode_round makes
 * several passes if the trees of all jobs together have more rows). */
enum { ROWS = 64 };

static size_t rows_at_least(const struct worker *w) { return w->parallel > 1 ? ROWS : 0; }

/* ---- trained drafters ---- */

static const char *trained_path(const struct worker *w, enum drafter s, const struct job_params *p)
{
    return p->file[s] ? p->file[s] : w->engine.path;
}

/* The stamp of the files at `path`: a file, or a model folder. There heads are tensors of the model's files
 * or a file HEADS_FILE, and other drafters are in the folder drafters/. */
static uint64_t trained_stamp(const char *path)
{
    char heads[PATH_BYTES + sizeof HEADS_FILE + 1], folder[PATH_BYTES + 16];
    snprintf(heads, sizeof heads, "%s/" HEADS_FILE, path);
    snprintf(folder, sizeof folder, "%s/drafters", path);
    return model_stamp(path) + model_stamp(heads) + model_stamp(folder);
}

static void close_trained(struct worker *w, enum drafter s)
{
    weights_close(&w->engine, s);
    w->trained[s].path[0] = 0;
    w->trained[s].bytes = 0;
}

static bool is_the_one(const struct worker *w, enum drafter s, const struct job_params *p)
{
    const char *path = trained_path(w, s, p);
    return strcmp(w->trained[s].path, path) == 0 && w->trained[s].stamp == trained_stamp(path);
}

bool worker_has_trained(const struct worker *w, const struct job_params *p)
{
    bool all = true;
    for (size_t i = 0; i < N_DRAFTERS && w->n_jobs; i++)
        if (weights_has((enum drafter)i) && p->draft.drafters >> i & 1 && w->trained[i].path[0])
            all &= is_the_one(w, (enum drafter)i, p);
    return all;
}

int worker_open_trained(struct worker *w, enum drafter s, const struct job_params *p, struct err *e)
{
    if (is_the_one(w, s, p))
        return 0;
    close_trained(w, s);
    const size_t bytes = weights_bytes(s, &p->draft, p->file[s], &w->engine);
    w->trained[s].stamp = trained_stamp(trained_path(w, s, p));
    if (weights_open(&w->engine, s, &p->draft, p->file[s], e))
        return -1;
    w->trained[s].bytes = w->engine.dev->host_memory ? bytes : 0;
    snprintf(w->trained[s].path, sizeof w->trained[s].path, "%s", trained_path(w, s, p));
    return 0;
}

/* ---- memory ---- */

static bool buffers_fit(const struct worker *w, const struct draft_settings *draft, size_t n_max)
{
    const struct round_buffers *b = &w->buffers;
    return b->work && b->model == &w->engine.model && b->n_max >= n_max &&
           b->pass_rows >= MAX(decode_work_rows(draft, n_max), rows_at_least(w)) &&
           b->verify_rows >= MAX(draft_rows(draft), rows_at_least(w));
}

int worker_open_buffers(struct worker *w, const struct draft_settings *draft, size_t n_max, struct err *e)
{
    struct round_buffers larger, *b = &w->buffers;
    const bool same = b->model == &w->engine.model;
    if (buffers_fit(w, draft, n_max))
        return 0;
    const size_t rows = MAX(draft_rows(draft), rows_at_least(w));
    const size_t pass_rows = MAX(decode_work_rows(draft, n_max), rows);
    if (round_buffers_open(&larger, &w->engine.model, MAX(pass_rows, same ? b->pass_rows : 0),
                           MAX(rows, same ? b->verify_rows : 0), MAX(n_max, same ? b->n_max : 0), e))
        return -1;
    if (same) {
        larger.costs = b->costs;
        larger.row_seconds = b->row_seconds;
        larger.row_depth = b->row_depth;
    }
    round_buffers_close(b);
    *b = larger;
    return 0;
}

/* Bytes of all caches in the host's memory. */
static size_t cache_bytes(const struct worker *w)
{
    return w->engine.dev->host_memory ? w->prefixes.total.bytes : 0;
}

/* Bytes of the model in 8 bits and of trained drafters. */
static size_t drafter_bytes_held(const struct worker *w)
{
    size_t n = w->engine.int8.mem_bytes;
    for (size_t i = 0; i < N_DRAFTERS; i++)
        n += w->trained[i].bytes;
    return n;
}

/* No job runs: close what only drafts use. Whether there was any. */
static bool close_drafters(struct worker *w)
{
    const bool any = drafter_bytes_held(w) > 0;
    engine_drop_int8(&w->engine);
    for (size_t i = 0; i < N_DRAFTERS; i++)
        close_trained(w, (enum drafter)i);
    return any;
}

/* Bytes of weights and buffers, on the device. */
static size_t model_bytes_held(const struct worker *w)
{
    const struct round_buffers *b = &w->buffers;
    return (w->loaded ? w->engine.weight_bytes : 0) +
           (b->work ? b->logits_bytes + workspace_bytes(b->model, b->pass_rows, b->n_max) : 0);
}

size_t worker_held(const struct worker *w)
{
    const struct engine *g = &w->engine;
    if (!g->dev)
        return 0;
    return (g->dev->host_memory ? model_bytes_held(w) : 0) + drafter_bytes_held(w) + cache_bytes(w) +
           (g->tokenizer ? tokenizer_bytes(g->tokenizer) : 0) + w->reserved;
}

/* Bytes that further jobs may take. */
static size_t room(const struct worker *w, const char **limit)
{
    const size_t held = worker_held(w);
    size_t all = memory_limit(held, limit);
    all -= MIN(all, MAX(all / 16, (size_t)32 << 20));
    if (w->max_memory && w->max_memory < all) {
        all = w->max_memory;
        *limit = "--max-memory";
    }
    return all - MIN(all, held);
}

bool worker_has_room(const struct worker *w, size_t bytes)
{
    const char *limit;
    const size_t left = room(w, &limit), spare = MAX(left / 8, (size_t)32 << 20);
    return bytes <= left - MIN(left, spare);
}

/* Bytes of the blocks that a job's cache has of its own, in the host's memory. */
static size_t own_bytes(const struct worker *w, size_t n_max, size_t n_shared)
{
    const struct engine *g = &w->engine;
    struct kv_size size = model_text_cache(&g->model, n_max, 0);
    size.n_shared = n_shared;
    size.mark = KV_BLOCK;
    return g->dev->host_memory ? kv_run_bytes(&size) : 0;
}

/* No job runs: close what an earlier job left and this one cannot use, or has no room beside. */
static void make_room(struct worker *w, const struct job_need *need, size_t n_shared)
{
    if (!buffers_fit(w, &need->params->draft, need->n_max))
        round_buffers_close(&w->buffers);
    if (!job_has_room(need->params, &w->engine, need->n_max, n_shared, w->engine.weight_bytes)) {
        close_drafters(w);
        round_buffers_close(&w->buffers);
    }
}

static int check_limit(const struct worker *w, const struct memory_plan *plan, struct err *e)
{
    return w->max_memory ? memory_plan_check_in(plan, w->max_memory, "--max-memory",
                                                "fewer --tokens need less, --max-memory allows more", e)
                         : 0;
}

static int reserve_first(struct worker *w, const struct job_need *need, size_t n_shared, struct err *e)
{
    const struct engine *g = &w->engine;
    struct memory_plan plan = {0};
    make_room(w, need, n_shared);
    const size_t kept = cache_bytes(w) + drafter_bytes_held(w);
    job_plan_shared(&plan, need->params, g, need->n_max, rows_at_least(w));
    job_plan_trained(&plan, need->params, g);
    job_plan(&plan, need->params, g, need->n_max, n_shared);
    if (kept)
        memory_plan_add(&plan, "caches and drafters of earlier jobs", kept);
    if (check_limit(w, &plan, e))
        return -1;
    if (kept)
        memory_plan_deduct(&plan, plan.n - 1, kept);
    memory_plan_deduct(&plan, 0, model_bytes_held(w));
    return memory_plan_check(&plan, "fewer --tokens need less", e);
}

static int reserve_further(struct worker *w, const struct job_need *need, size_t n_shared, struct err *e)
{
    const struct engine *g = &w->engine;
    struct memory_plan plan = {0};
    const char *limit;
    job_plan(&plan, need->params, g, need->n_max, n_shared);
    job_plan_trained(&plan, need->params, g);
    if (!buffers_fit(w, &need->params->draft, need->n_max)) {    /* larger ones are opened beside them */
        struct memory_plan shared = {0};
        job_plan_shared(&shared, need->params, g, need->n_max, rows_at_least(w));
        memory_plan_deduct(&shared, 0, g->weight_bytes);
        memory_plan_add(&plan, "larger buffers", shared.total);
    }
    const size_t left = room(w, &limit);
    return memory_plan_check_in(&plan, left, limit, "it waits for memory", e);
}

int worker_check_alone(const struct worker *w, const struct job_need *need, struct err *e)
{
    const struct engine *g = &w->engine;
    struct memory_plan plan = {0};
    const char *limit;
    if (draft_check_model(&need->params->draft, g->dev, &g->config, e))
        return -1;
    job_plan_shared(&plan, need->params, g, need->n_max, rows_at_least(w));
    job_plan(&plan, need->params, g, need->n_max, 0);
    plan.dev = NULL;                     /* its free memory says nothing: jobs run */
    if (check_limit(w, &plan, e))
        return -1;
    const size_t all = memory_limit(worker_held(w), &limit),     /* an estimate: jobs run */
                 spare = MIN(MAX(all / 16, (size_t)32 << 20), SIZE_MAX - all);
    return memory_plan_check_in(&plan, all + spare, limit, "", e)
               ? memory_plan_check_in(&plan, all, limit, "fewer --tokens need less", e)
               : 0;
}

int worker_reserve(struct worker *w, const struct job_need *need, size_t *bytes, struct prefix_match *m,
                   struct err *e)
{
    if (draft_check_model(&need->params->draft, w->engine.dev, &w->engine.config, e))
        return -1;
    for (;;) {
        *m = prefix_find(&w->prefixes, need->start, need->n_start);
        const size_t n_shared = m->n_rows / KV_BLOCK;
        if ((w->n_jobs ? reserve_further : reserve_first)(w, need, n_shared, e) == 0) {
            struct memory_plan own = {0};
            job_plan(&own, need->params, &w->engine, need->n_max, n_shared);
            *bytes = own.total - MIN(own.total, own_bytes(w, need->n_max, n_shared));
            w->reserved += *bytes;
            w->n_jobs++;
            return 0;
        }
        if (prefix_drop(&w->prefixes) || (w->n_jobs == 0 && close_drafters(w)))
            continue;
        if (w->n_jobs)                   /* a better reason, if it has one */
            worker_check_alone(w, need, e);
        return -1;
    }
}

void worker_release(struct worker *w, size_t bytes)
{
    w->reserved -= bytes;
    w->n_jobs--;
}

/* Kept caches take at most as much as they leave to others. */
void worker_keep(struct worker *w, struct kv *kv, int32_t *tokens)
{
    struct device *dev = w->engine.dev;
    const char *limit;
    prefix_keep(&w->prefixes, kv, tokens);
    while (prefix_kept_bytes(&w->prefixes) >
               (dev->host_memory ? memory_available(&limit) : dev->bytes_free(dev)) &&
           prefix_drop(&w->prefixes))
        ;
}
