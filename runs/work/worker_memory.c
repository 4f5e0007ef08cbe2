/* What the jobs of a worker share: the memory ledger, the buffers of passes, and the heads. Start at
 * worker_reserve. */
#include "runs/work/worker.h"

#include <stdio.h>
#include <string.h>

/* Rows that one pass over several jobs verifies; a job with a larger tree raises it (decode_round makes
 * several passes if the trees of all jobs together have more rows). */
enum { ROWS = 64 };

static size_t rows_at_least(const struct worker *w) { return w->parallel > 1 ? ROWS : 0; }

/* ---- heads ---- */

static const char *heads_path(const struct worker *w, const struct job_params *p)
{
    return p->heads_file ? p->heads_file : w->engine.path;
}

/* The stamp of the heads at `path`. In a model folder, the heads are tensors of the model's files or a file
 * HEADS_FILE. */
static uint64_t heads_stamp(const char *path)
{
    char file[PATH_BYTES + sizeof HEADS_FILE + 1];
    snprintf(file, sizeof file, "%s/" HEADS_FILE, path);
    return model_stamp(path) + model_stamp(file);
}

static void close_heads(struct worker *w)
{
    heads_close(&w->engine.heads);
    w->heads_path[0] = 0;
}

bool worker_has_heads(const struct worker *w, const struct job_params *p)
{
    const char *path = heads_path(w, p);
    return !(p->draft.drafters >> SOURCE_HEADS & 1) || w->n_jobs == 0 || !w->heads_path[0] ||
           (strcmp(w->heads_path, path) == 0 && w->heads_stamp == heads_stamp(path));
}

int worker_open_heads(struct worker *w, const struct job_params *p, struct err *e)
{
    const char *path = heads_path(w, p);
    const uint64_t stamp = heads_stamp(path);
    if (strcmp(w->heads_path, path) == 0 && w->heads_stamp == stamp)
        return 0;
    close_heads(w);
    w->heads_stamp = stamp;
    if (heads_open(&w->engine.heads, p->heads_file, &w->engine.model, e))
        return -1;
    snprintf(w->heads_path, sizeof w->heads_path, "%s", path);
    return 0;
}

/* ---- memory ---- */

static size_t buffer_bytes(const struct round_buffers *b)
{
    return b->work ? b->logits_bytes + workspace_bytes(b->model, b->pass_rows, b->n_max) : 0;
}

static bool buffers_fit(const struct worker *w, const struct decode_setup *setup, size_t n_max)
{
    const struct round_buffers *b = &w->buffers;
    return b->work && b->model == &w->engine.model && b->n_max >= n_max &&
           b->pass_rows >= MAX(decode_work_rows(setup, n_max), rows_at_least(w)) &&
           b->verify_rows >= MAX(decode_verify_rows(setup), rows_at_least(w));
}

int worker_open_buffers(struct worker *w, const struct decode_setup *setup, size_t n_max, struct err *e)
{
    struct round_buffers larger, *b = &w->buffers;
    const bool same = b->model == &w->engine.model;
    if (buffers_fit(w, setup, n_max))
        return 0;
    const size_t rows = MAX(decode_verify_rows(setup), rows_at_least(w));
    const size_t pass_rows = MAX(decode_work_rows(setup, n_max), rows);
    if (round_buffers_open(&larger, &w->engine.model, MAX(pass_rows, same ? b->pass_rows : 0),
                           MAX(rows, same ? b->verify_rows : 0), MAX(n_max, same ? b->n_max : 0), e))
        return -1;
    if (same)
        larger.costs = b->costs;
    round_buffers_close(b);
    *b = larger;
    return 0;
}

/* No job runs: close what an earlier job left and this one cannot use, or has no room beside. */
static void make_room(struct worker *w, const struct job_params *p, size_t n_max)
{
    struct engine *g = &w->engine;
    const struct decode_setup setup = { .draft = p->draft };
    if (!buffers_fit(w, &setup, n_max))
        round_buffers_close(&w->buffers);
    if ((g->int8.mem || g->heads.mem || w->buffers.work) && !job_has_room(p, g, n_max, 0)) {
        model_close(&g->int8);
        close_heads(w);
        round_buffers_close(&w->buffers);
    }
}

static int check_limit(const struct worker *w, const struct memory_plan *plan, struct err *e)
{
    return w->max_memory ? memory_plan_check_in(plan, w->max_memory, "--max-memory",
                                                "fewer --tokens need less, --max-memory allows more", e)
                         : 0;
}

static int reserve_first(struct worker *w, const struct job_params *p, size_t n_max, size_t *bytes,
                         struct err *e)
{
    const struct engine *g = &w->engine;
    struct memory_plan plan = {0}, own = {0};
    if (draft_check_device(&p->draft, g->dev, e))
        return -1;
    make_room(w, p, n_max);
    job_plan_shared(&plan, p, g, n_max, rows_at_least(w));
    w->reserved = plan.total;
    job_plan(&plan, p, g, n_max);
    job_plan(&own, p, g, n_max);
    if (check_limit(w, &plan, e))
        return -1;
    memory_plan_deduct(&plan, 0, (w->loaded ? g->weight_bytes : 0) + buffer_bytes(&w->buffers));
    *bytes = own.total;
    return memory_plan_check(&plan, "fewer --tokens need less", e);
}

static int reserve_further(struct worker *w, const struct job_params *p, size_t n_max, size_t *bytes,
                           struct err *e)
{
    const struct engine *g = &w->engine;
    const struct decode_setup setup = { .draft = p->draft };
    struct memory_plan plan = {0};
    const char *limit;
    if (draft_check_device(&p->draft, g->dev, e))
        return -1;
    job_plan(&plan, p, g, n_max);
    *bytes = plan.total;
    if (!buffers_fit(w, &setup, n_max)) {        /* larger ones are opened beside those in use */
        struct memory_plan shared = {0};
        job_plan_shared(&shared, p, g, n_max, rows_at_least(w));
        memory_plan_deduct(&shared, 0, g->weight_bytes);
        memory_plan_add(&plan, "larger buffers", shared.total);
    }
    size_t all = memory_limit(w->reserved, &limit);
    all -= MIN(all, MAX(all / 16, (size_t)32 << 20));
    if (w->max_memory && w->max_memory < all) {
        all = w->max_memory;
        limit = "--max-memory";
    }
    return memory_plan_check_in(&plan, all - MIN(all, w->reserved), limit, "it waits for memory", e);
}

int worker_reserve(struct worker *w, const struct job_params *p, size_t n_max, size_t *bytes, struct err *e)
{
    if (w->n_jobs ? reserve_further(w, p, n_max, bytes, e) : reserve_first(w, p, n_max, bytes, e))
        return -1;
    w->reserved += *bytes;
    w->n_jobs++;
    return 0;
}

void worker_release(struct worker *w, size_t bytes)
{
    w->reserved -= bytes;
    w->n_jobs--;
}
