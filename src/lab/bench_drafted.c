/* Owns the point drafted: one text that drafting writes from its beginning to the deepest point, and the
 * tokens a second on the way. Start at bench_drafted. */
#include "src/base/stopping.h"
#include "src/lab/bench.h"
#include "src/decode/weights.h"
#include "src/request/draft_options.h"

#include <stdlib.h>
#include <string.h>

static const char PROMPT[] =
    "Chapter I\n\nIt was late in the evening when the two travellers came to the inn.";

/* Opens the drafters that the options choose, after a check of memory. */
static int open_drafters(struct engine *g, struct decode_setup *x, const struct options *o, size_t n_max,
                         struct err *e)
{
    struct drafter_files files;
    struct memory_plan plan = { 0 };
    struct progress none;
    progress_open(&none, PROGRESS_NONE, true);
    if (draft_from_options(&x->draft, &files, o, g->dir, sizeof PROMPT, e))
        return -1;
    draft_notices(o, g, "");
    engine_plan(&plan, g, n_max, decode_work_rows(&x->draft, n_max), draft_rows(&x->draft));
    memory_plan_deduct(&plan, 0, g->weight_bytes);
    decode_plan(&plan, x, &g->model, n_max);
    if (memory_plan_check(&plan, "--tokens N (the deepest point)", e))
        return -1;
    for (enum drafter d = 0; d < N_DRAFTERS; d++)
        if (weights_has(d) && x->draft.drafters >> d & 1 &&
            weights_open(g, d, &x->draft, *files.path[d] ? files.path[d] : NULL, e))
            return -1;
    weights_setup(x, g);
    if (draft_wants_int8(&x->draft, g->dev) && engine_int8(g, 0, &none, e) < 0)
        return -1;
    x->draft_model = engine_has_int8(g);
    return 0;
}

/* Writes up to `to` tokens: sum has the tokens, passes and seconds that it took. */
static int write_to(struct decoder *d, size_t to, double sum[3], struct err *e)
{
    for (sum[0] = sum[1] = sum[2] = 0; d->n_tokens < to; sum[1]++) {
        if (stop_signal)
            return err_set(e, ERR_AGAIN, "bench: stopped by %s", stop_signal_name());
        if (decode_step(d, e))
            return -1;
        sum[0] += (double)d->round.tokens;
        sum[2] += d->round.seconds;
    }
    return 0;
}

int bench_drafted(struct engine *g, const struct options *o, struct bench_point *p, size_t n, struct err *e)
{
    static struct decoder d;
    struct decode_setup x = { 0 };
    struct options own = *o;
    struct sampling s;
    int32_t *prompt = NULL;
    size_t n_prompt = 0;
    const size_t n_max = n ? p[n - 1].depth + sizeof PROMPT + BENCH_DRAFTED + TREE_DEPTH_MAX : 0;
    if (!n)
        return 0;
    if (preset_apply(&own, false, e))
        return -1;
    s = own.job.sampling;
    s.ignore_eos = true;
    s.eos = g->config.eos;
    s.n_eos = g->config.n_eos;
    int rc = open_drafters(g, &x, o, n_max, e) ||
             tokenizer_encode(g->tokenizer, &prompt, &n_prompt, PROMPT, strlen(PROMPT), true, e) ||
             decode_open(&d, &g->model, &s, &x, prompt, n_prompt, n_max, e) ||
             decode_prefill(&d, 0, NULL, NULL, e) ? -1 : 0;
    for (size_t i = 0; i < n && rc == 0; i++) {
        double sum[3];
        rc = write_to(&d, n_prompt + p[i].depth, sum, e) ||
             write_to(&d, n_prompt + p[i].depth + BENCH_DRAFTED, sum, e);
        p[i].seconds = sum[2] / sum[0];
        p[i].per_pass = sum[0] / sum[1];
    }
    decode_close(&d);
    free(prompt);
    return rc ? -1 : 0;
}
