/* The decode loop: opening a decoder, reading the text, and one round of one or several decoders. The data is
 * struct decoder. Start reading at decode_round(): plan, draft, verify, accept (which commits), learn. */
#include "src/decode/decode.h"
#include "kvmgr/prefix.h"
#include "src/decode/verify_published.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)PREFILL_ROWS <= (int)RING_PASS && (int)COST_ROWS_MAX <= (int)RING_PASS &&
                   (int)TREE_DEPTH_MAX < (int)RING_PASS,
               "passes that write to a ring leave the window before them");

size_t decode_work_rows(const struct draft_settings *s, size_t n_max)
{
    return MAX(MIN((size_t)PREFILL_ROWS, n_max), draft_rows(s));
}

void decode_plan(struct memory_plan *plan, const struct decode_setup *setup, const struct model *m,
                 size_t n_max)
{
    const struct draft_settings *draft = &setup->draft;
    const size_t parts[] = {
        n_max * sizeof(int32_t), device_sampler_bytes(m, draft_rows(&setup->draft)), stats_bytes(n_max),
            draft_bytes(draft), setup->logprobs ? m->config.vocab * sizeof(float) : 0,
            setup->logprobs ? (n_max + TREE_DEPTH_MAX + 1) * (1 + setup->best) * sizeof(struct logprob) : 0,
    };
    size_t n = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!add_size(n, parts[i], &n))
            n = SIZE_MAX;
    memory_plan_add(plan, "decoder", n);
    if (!m->dev->host_memory)
        memory_plan_add_on(plan, m->dev, "choosing tokens",
                           device_sampler_device_bytes(m, draft_rows(&setup->draft)));
    draft_plan_states(plan, setup, m, n_max);
}

int decode_open(struct decoder *d, const struct model *m, const struct sampling *p,
                const struct decode_setup *setup, const int32_t *prompt, size_t n_prompt, size_t n_max,
                struct err *e)
{
    static const struct decode_setup plain;
    assert(n_prompt >= 1 && n_prompt <= n_max);
    *d = (struct decoder){ .set = setup ? *setup : plain,
                           .model = m,
                           .n_prompt = n_prompt,
                           .n_tokens = n_prompt,
                           .n_max = n_max,
                           .clock = clock_seconds };
    d->rows_max = draft_rows(&d->set.draft);
    d->count.begun = d->set.start.rows;
    for (size_t i = 0; i < n_prompt; i++)
        assert(prompt[i] >= 0 && (size_t)prompt[i] < m->config.vocab);
    d->tokens = calloc(n_max, sizeof *d->tokens);
    if (!d->tokens) {
        err_set(e, ERR_FAILED, "out of memory for %zu tokens", n_max);
        goto fail;
    }
    memcpy(d->tokens, prompt, n_prompt * sizeof *prompt);
    d->set.best = MIN(d->set.best, m->config.vocab);
    if (d->set.logprobs &&
        (!(d->logprobs = calloc((TREE_DEPTH_MAX + 1) * (1 + d->set.best), sizeof *d->logprobs)) ||
         !(d->row = malloc(m->config.vocab * sizeof *d->row)))) {
        err_set(e, ERR_FAILED, "out of memory for log-probabilities");
        goto fail;
    }
    struct kv_size size = model_text_cache(m, n_max, d->rows_max > 1 ? d->rows_max : 0);
    size.n_shared = d->set.start.rows / KV_BLOCK;
    size.cuts = d->set.cuts;
    size.back = d->set.back ? d->set.back : size.back;
    /* a text that is cut goes back to its prompt at most, where the mark then is */
    if ((size.state.n_layers || size.window) && d->set.start.total)
        size.mark = prefix_mark(n_prompt, d->set.start.rows,
                                size.window && size.cuts ? 0 : d->set.start.split);
    if (kv_open_from(&d->kv, m->dev, &size, d->set.start.from, d->set.start.rows, d->set.start.total, e) ||
        (!d->set.buffers && round_buffers_open(&d->own_buffers, m, decode_work_rows(&d->set.draft, n_max),
                                               d->rows_max, n_max, e)) ||
        device_sampler_open(&d->sampler, m, p, d->rows_max, e) || stats_open(&d->stats, n_max, e))
        goto fail;
    const struct round_buffers *b = d->set.buffers = d->set.buffers ? d->set.buffers : &d->own_buffers;
    assert(b->model == m && b->n_max >= n_max && b->verify_rows >= d->rows_max);
    if (draft_open(d, e))
        goto fail;
    return 0;
fail:
    decode_close(d);
    return -1;
}

void decode_close_but(struct decoder *d, struct kv *kv, int32_t **tokens)
{
    draft_close(d);
    stats_close(&d->stats);
    device_sampler_close(d->sampler);
    round_buffers_close(&d->own_buffers);
    free(d->logprobs);
    free(d->row);
    *kv = d->kv;
    *tokens = d->tokens;
    *d = (struct decoder){0};
}

void decode_close(struct decoder *d)
{
    struct kv kv;
    int32_t *tokens;
    decode_close_but(d, &kv, &tokens);
    kv_close(&kv);
    free(tokens);
}

void decode_append(struct decoder *d, const int32_t *ids, size_t n)
{
    assert(n <= d->n_max - d->n_tokens);
    for (size_t i = 0; i < n; i++) {
        assert(ids[i] >= 0 && (size_t)ids[i] < d->model->config.vocab);
        d->tokens[d->n_tokens++] = ids[i];
    }
}

/* The next n rows are about to be committed. */
static void set_committed(struct decoder *d, size_t n, const float *hidden, const uint32_t *row)
{
    d->committed.first = d->kv.n_past, d->committed.n_rows = n;
    d->committed.hidden = hidden, d->committed.row = row;
}

/* Whether a drafter reads the hidden states of a prompt. */
static bool reads_prompt(const struct decoder *d)
{
    for (const struct drafter_ops *k = NULL; (k = drafter_next(d->set.draft.drafters, k));)
        if (k->observe && k->reads_prompt)
            return true;
    return false;
}

/* Shows the drafters committed rows. `reading`: a chunk of a prefill, for those that read it. */
static void observe(struct decoder *d, bool reading)
{
    for (const struct drafter_ops *k = NULL; (k = drafter_next(d->set.draft.drafters, k));)
        if (k->observe && (!reading || k->reads_prompt))
            k->observe(d);
}

/* Shows the drafters the text as it is. */
static void observe_tokens(struct decoder *d)
{
    d->committed.n_rows = 0;
    observe(d, false);
}

/* Rows of the next pass of a prefill that has `left` seconds: as many as the last pass says that will do, in
 * steps of SLICE_ROWS. A pass at a smaller depth says nothing: a row takes longer the more rows it sees. */
static size_t slice_rows(const struct decoder *d, double left)
{
    const struct round_buffers *b = d->set.buffers;
    const double fit = b->row_seconds > 0 && d->kv.n_past <= b->row_depth ? left / b->row_seconds : 0;
    return (size_t)MIN(MAX(fit, 0), (double)PREFILL_ROWS) / SLICE_ROWS * SLICE_ROWS;
}

/* The end of the next pass of a prefill up to `of`: states are copied at their mark. */
static size_t before_mark(const struct decoder *d, size_t of)
{
    const struct states *s = d->kv.state;
    return s && s->mark.copy && s->mark.want > d->kv.n_past ? MIN(s->mark.want, of) : of;
}

int decode_prefill(struct decoder *d, double seconds, decode_progress *progress, void *ctx, struct err *e)
{
    static const uint8_t none[PREFILL_ROWS];     /* no row needs logits */
    size_t of = d->n_tokens - 1, from = d->kv.n_past;
    double start = clock_seconds();
    const double ends = start + seconds;
    int r = 0;
    while (d->kv.n_past < of && r == 0) {
        const size_t most = seconds > 0 ? slice_rows(d, ends - start) : PREFILL_ROWS,
                     n = MIN(MAX(most, (size_t)SLICE_ROWS), before_mark(d, of) - d->kv.n_past);
        if (most < SLICE_ROWS && d->kv.n_past > from)
            return 1;
        struct pass_seq seq = { .kv = &d->kv, .n = n, .token = d->tokens + d->kv.n_past,
                                .certain = true, .want = none, .cache_only = !reads_prompt(d) };
        if (model_forward(d->model, d->set.buffers->work, &seq, 1, NULL, 0, e))
            return err_while(e, "prompt token %zu", d->kv.n_past);
        set_committed(d, n, workspace_residual(d->set.buffers->work), NULL);
        kv_advance(&d->kv, n);
        observe(d, true);
        d->count.prefill_tokens += n;
        const double now = clock_seconds();
        d->count.prefill_seconds += now - start;
        if (n >= SLICE_ROWS || d->set.buffers->row_seconds == 0) {
            d->set.buffers->row_seconds = (now - start) / (double)n;
            d->set.buffers->row_depth = d->kv.n_past;
        }
        start = now;
        if (progress && !progress(ctx, d->kv.n_past - from, of - from) && d->kv.n_past < of)
            r = 1;
    }
    if (r == 0)
        observe_tokens(d);
    d->count.prefill_seconds += clock_seconds() - start;
    return r;
}

/* ---- one round ---- */

/* The last n different tokens of the text, the last one first, and then from its end again: rows of equal
 * tokens would go to the same experts. */
static void recent_tokens(const struct decoder *d, int32_t *token, size_t n)
{
    enum { RECENT = 4096 };
    size_t found = 0;
    for (size_t i = d->n_tokens; i-- > 0 && found < n && d->n_tokens - i <= RECENT;) {
        size_t k = 0;
        while (k < found && token[k] != d->tokens[i])
            k++;
        if (k == found)
            token[found++] = d->tokens[i];
    }
    for (size_t i = found; i < n; i++)
        token[i] = token[i - found];
}

/* Times the passes that the planner asks for. Their rows stand after the text and are never committed. */
static int time_passes(struct decoder *d, struct err *e)
{
    static const uint8_t all[COST_ROWS_MAX] = { [0 ... COST_ROWS_MAX - 1] = 1 };  /* every row has logits */
    static const int32_t parent[COST_ROWS_MAX] = { -1 };    /* all but the first below the root */
    struct planner *p = &d->planner;
    struct workspace *work = d->set.buffers->work;
    float *logits = d->set.buffers->logits;
    int32_t token[COST_ROWS_MAX];
    for (size_t i; (i = planner_size_due(p, d->n_max - d->n_tokens)) < COST_SIZES;) {
        recent_tokens(d, token, cost_rows(i));
        struct pass_seq seq = { .kv = &d->kv, .n = cost_rows(i), .token = token, .want = all,
                                .logits = logits };
        const struct history h = decoder_history(d, NULL, 0);
        const double start = clock_seconds();
        int rc = model_forward_begin(d->model, work, &seq, 1, e);
        if (rc == 0) {
            device_sampler_set_tree(d->sampler, logits, &h, seq.n, parent, token);
            rc = model_forward_end(d->model, work, &seq, 1, e);
        }
        if (rc && *d->model->dev->error)
            return -1;
        /* values that are not finite: the time of the pass counts all the same */
        if (rc)
            kv_truncate(&d->kv, d->kv.n_past);
        const double seconds = clock_seconds() - start;
        planner_experts_read(p, seq.n, d->model->dev->experts_read);
        planner_timed(p, i, d->kv.n_past, seconds);
    }
    return 0;
}

/* Begins the round of n decoders: times the passes that are due, and plans. */
static int plan(struct decoder *const *d, size_t n, struct err *e)
{
    assert(n >= 1 && n <= BATCH_MAX);
    for (size_t i = 0; i < n; i++) {
        struct decoder *x = d[i];
        const double start = clock_seconds();
        assert(x->n_tokens < x->n_max && x->kv.n_past == x->n_tokens - 1 &&
               x->set.buffers == d[0]->set.buffers);
        x->round.failed = false;
        if (time_passes(x, e))
            return -1;
        x->round.calibrating = x->round.control = clock_seconds() - start;
        tree_start(x->round.tree, x->tokens[x->n_tokens - 1], x->n_max - x->n_tokens - 1);
    }
    draft_plan(d, n);
    return 0;
}

static size_t rows_of(struct decoder *const *d, size_t n)
{
    size_t rows = 0;
    for (size_t i = 0; i < n; i++)
        rows += d[i]->round.tree->n_kept;
    return rows;
}

/* How many of the n decoders one pass can verify. */
static size_t pass_fits(struct decoder *const *d, size_t n)
{
    size_t k = 1;
    while (k < n && rows_of(d, k + 1) <= d[0]->set.buffers->verify_rows)
        k++;
    assert(rows_of(d, k) <= d[0]->set.buffers->verify_rows);
    return k;
}

/* One pass of the model over the kept nodes of n decoders. A device that samples does so after each node. The
 * rows of a chain go directly to their places after the committed rows. A failure leaves no row. */
static int verify(struct decoder *const *d, size_t n, struct err *e)
{
    static const uint8_t all[TREE_ROWS_MAX] = { [0 ... TREE_ROWS_MAX - 1] = 1 };
    struct round_buffers *b = d[0]->set.buffers;
    struct pass_seq seq[BATCH_MAX];
    const size_t rows = rows_of(d, n);
    float *logits = b->logits;
    bool scores = false;
    for (size_t i = 0; i < n; i++) {
        struct tree *t = d[i]->round.tree;
        d[i]->round.logits = logits;
        logits += t->n_kept * d[i]->model->config.vocab;
        seq[i] = (struct pass_seq){ .kv = &d[i]->kv, .n = t->n_kept, .token = t->kept_token, .want = all,
                                    .logits = d[i]->round.logits };
        if (!tree_is_chain(t))
            seq[i].parent = t->kept_parent;
        const struct drafter_ops *maker = draft_pass_maker(d[i]);
        if (maker && maker->passes->score && !scores)    /* a pass has room for the importance of one text */
            maker->passes->score(d[i], &seq[i]);
        d[i]->round.selects = seq[i].scored;
        scores |= d[i]->round.selects;
    }
    const double start = clock_seconds();
    int rc = model_forward_begin(d[0]->model, b->work, seq, n, e);
    for (size_t i = 0; i < n && rc == 0; i++) {
        const struct tree *t = d[i]->round.tree;
        const struct history h = decoder_history(d[i], NULL, 0);
        if (!verify_published(&d[i]->set.draft))
            device_sampler_set_tree(d[i]->sampler, d[i]->round.logits, &h, t->n_kept, t->kept_parent,
                                    t->kept_token);
    }
    if (rc || model_forward_end(d[0]->model, b->work, seq, n, e)) {
        for (size_t i = 0; i < n; i++)
            kv_truncate(&d[i]->kv, d[i]->kv.n_past);     /* no weight makes a NaN of a chain's row finite */
        return err_while(e, "token %zu", d[0]->n_tokens - d[0]->n_prompt);
    }
    const double seconds = clock_seconds() - start;
    planner_experts_read(&d[0]->planner, rows, d[0]->model->dev->experts_read);
    for (size_t i = 0; i < n; i++) {
        struct decoder *x = d[i];
        const size_t own = x->round.tree->n_kept;
        x->round.verify = seconds * (double)own / (double)rows;
        planner_verified(&x->planner, x->kv.n_past, own, rows, seconds, !x->round.selects);
    }
    return 0;
}

/* Keeps row `at` of the logits. A failure shows in the device's `error`. */
static void keep_row(struct decoder *d, size_t at)
{
    struct device *dev = d->model->dev;
    const size_t vocab = d->model->config.vocab;
    if (dev->host_memory)
        memcpy(d->row, d->round.logits + at * vocab, vocab * sizeof *d->row);
    else if (dev->download(dev, d->row, d->round.logits + at * vocab, vocab * sizeof *d->row))
        memset(d->row, 0, vocab * sizeof *d->row);
}

/* Bans the forbidden tokens in the root's row. */
static void forbid(struct decoder *d)
{
    for (size_t i = 0; i < d->forbidden.n && d->forbidden.at == d->n_tokens; i++)
        d->round.logits[d->forbidden.id[i]] = -INFINITY;
}

/* Walks down the tree by the target's own samples, one per visited node. The first sample that no candidate
 * carries is the bonus. */
static void walk(struct decoder *d)
{
    struct round *r = &d->round;
    struct tree *t = r->tree;
    int32_t token[TREE_DEPTH_MAX + 1];
    struct history h = decoder_history(d, NULL, 0);
    size_t at = 0;
    if (verify_published(&d->set.draft)) {
        r->tokens = verify_published_accept(t, &h, d->sampler, r->logits, r->path, &r->bonus);
        return;
    }
    for (r->tokens = 0;;) {
        r->path[r->tokens++] = (uint32_t)at;
        h.path = token, h.n_path = r->tokens - 1;
        if (d->logprobs)
            keep_row(d, at);
        if (d->forbidden.n && at == 0)
            forbid(d);
        r->bonus = device_sampler_token(d->sampler, r->logits, at, &h);
        if (d->logprobs)
            logprobs_of_row(d->logprobs + (r->tokens - 1) * (1 + d->set.best), d->set.best, d->row,
                            d->model->config.vocab, r->bonus);
        draft_learn(d, t->kept[at], r->bonus);
        const uint32_t next = tree_child(t, t->kept[at], r->bonus);
        if (!next || t->node[next].row < 0)
            return;
        token[r->tokens - 1] = r->bonus;
        at = (size_t)t->node[next].row;
    }
}

/* Commits the rows of the path, appends its candidates and the bonus, and shows them to the drafters.
 * residual: of the decoder's rows in the pass, [n_kept][hidden]. */
static void commit(struct decoder *d, const float *residual)
{
    const struct round *r = &d->round;
    const struct tree *t = r->tree;
    set_committed(d, r->tokens, residual, r->path);
    if (tree_is_chain(t))
        kv_advance(&d->kv, r->tokens);
    else
        kv_commit_path(&d->kv, r->path, r->tokens);
    for (size_t i = 1; i < r->tokens; i++)
        d->tokens[d->n_tokens++] = t->kept_token[r->path[i]];
    d->tokens[d->n_tokens++] = r->bonus;
    observe(d, false);
}

static void fail(struct decoder *d, const struct err *e)
{
    d->round.failed = true;
    d->round.why = *e;
}

/* After a pass over n decoders: appends the tokens that it verified. */
static void accept(struct decoder *const *d, size_t n)
{
    const float *residual = workspace_residual(d[0]->set.buffers->work);    /* of all rows of the pass */
    const struct device *dev = d[0]->model->dev;
    struct err e;
    for (size_t i = 0; i < n; i++) {
        const size_t rows = d[i]->round.tree->n_kept;
        walk(d[i]);
        if (*dev->error) {
            err_set(&e, ERR_FAILED, "%s: %s", dev->name, dev->error);
            fail(d[i], &e);
            continue;
        }
        commit(d[i], residual);
        residual += rows * d[i]->model->config.hidden;
    }
}

/* After a pass over d alone failed: keeps the root, so that a guess with values that are not finite does not
 * end the text. Returns whether guesses existed. */
static bool forget_guesses(struct decoder *d)
{
    const bool any = d->round.tree->n_kept > 1;
    if (!any || verify_published(&d->set.draft) || *d->model->dev->error)
        return false;
    tree_keep(d->round.tree, 1);
    return true;
}

/* Seconds that one token would take here without drafting: a pass of one row, as the planner knows it, and
 * the rest of the round. Without a known cost (a fixed tree) it is the time that each token of the round
 * took. */
static double plain_seconds(const struct decoder *d)
{
    const struct round *r = &d->round;
    const struct planner *p = &d->planner;
    const double pass = r->tree->n_kept == 1 ? r->verify : p->on ? planner_pass_seconds(p, d->kv.n_past) : 0;
    return pass > 0 ? pass + r->seconds - r->draft - r->verify - r->control : r->seconds / (double)r->tokens;
}

/* The planners learn from the round, which took `seconds`. Each decoder gets its share by rows. */
static int learn(struct decoder *const *d, size_t n, double seconds, size_t to_host, struct err *e)
{
    struct planner *p[BATCH_MAX] = { &d[0]->planner };
    const size_t rows = rows_of(d, n);
    size_t n_done = 0;
    for (size_t i = 0; i < n; i++) {
        struct round *r = &d[i]->round;
        if (r->failed) {
            *e = r->why;
            continue;
        }
        r->seconds = r->calibrating + seconds * (double)r->tree->n_kept / (double)rows;
        r->to_host = to_host;
        r->plain = plain_seconds(d[i]);
        planner_done(&d[i]->planner, r->tokens, r->expected);
        p[n_done++] = &d[i]->planner;
    }
    const double predicted = n_done == n ? planner_round_done(p, n, seconds) : 0;
    for (size_t i = 0; i < n; i++)
        d[i]->round.predicted = predicted * (double)d[i]->round.tree->n_kept / (double)rows;
    return n_done == n ? 0 : -1;
}

/* After a failed pass each of its decoders gets a pass of its own, then one without guesses, so that a value
 * that is not finite ends its own text only. */
int decode_round(struct decoder *const *d, size_t n, struct err *e)
{
    const struct device *dev = d[0]->model->dev;
    const size_t downloaded = dev->downloaded;
    double seconds = -clock_seconds();
    if (plan(d, n, e)) {
        for (size_t i = 0; i < n; i++)
            fail(d[i], e);
        return -1;
    }
    draft_round(d, n);
    for (size_t i = 0, some, alone = 0; i < n; i += some) {
        some = i < alone ? 1 : pass_fits(d + i, n - i);
        if (verify(d + i, some, e) == 0)
            accept(d + i, some);
        else if (some > 1)
            alone = i + some, some = 0;
        else if (forget_guesses(d[i]))
            some = 0;
        else
            fail(d[i], e);
    }
    seconds += clock_seconds();
    for (size_t i = 0; i < n; i++)
        seconds -= d[i]->round.calibrating;
    return learn(d, n, seconds, dev->downloaded - downloaded, e);
}

int decode_step(struct decoder *d, struct err *e) { return decode_round(&d, 1, e); }

void decode_add_stats(struct decoder *d, size_t tokens) { stats_add(&d->stats, &d->round, tokens); }

void decode_cut(struct decoder *d, size_t n, const int32_t *forbidden, size_t n_forbidden)
{
    assert(n >= d->n_prompt && n <= d->n_tokens && n_forbidden <= FORBIDDEN_MAX);
    assert(d->model->dev->host_memory);
    const bool cut = n < d->n_tokens;
    d->n_tokens = n;
    d->forbidden.at = n;
    d->forbidden.n = n_forbidden;
    memcpy(d->forbidden.id, forbidden, n_forbidden * sizeof *forbidden);
    if (d->kv.n_past > n - 1)
        kv_truncate(&d->kv, n - 1);
    if (!cut)
        return;
    draft_cut(d);
    observe_tokens(d);
}

int decode_restart(struct decoder *d, size_t n, const struct sampling *p, struct err *e)
{
    assert(n >= d->n_prompt && n <= d->n_tokens);
    d->n_tokens = n;
    d->forbidden.n = 0;
    if (d->kv.n_past > n - 1)
        kv_truncate(&d->kv, n - 1);
    device_sampler_close(d->sampler);
    d->sampler = NULL;
    stats_clear(&d->stats);
    if (device_sampler_open(&d->sampler, d->model, p, d->rows_max, e))
        return -1;
    draft_reset(d);
    observe_tokens(d);
    return 0;
}
