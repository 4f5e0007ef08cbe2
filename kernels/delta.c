/* Gated DeltaNet on the CPU (delta.h). Start at delta_run, then walk_item; delta_plan makes the walks. */
#include "kernels/delta.h"

#include <assert.h>
#include <math.h>

#include "kernels/exp_d.h"
#include "src/base/base.h"

enum { ALONE = 4 };                      /* fewer rows do not wake threads */

static size_t blocks_of(const struct delta_shape *d)
{
    return (delta_wide(d) + DELTA_COLUMNS - 1) / DELTA_COLUMNS;
}

static size_t columns_of(const struct delta_shape *d, size_t block)
{
    return MIN((size_t)DELTA_COLUMNS, delta_wide(d) - block * DELTA_COLUMNS);
}

/* Block b of a value head. Blocks before it are full. */
static float *state_at(const struct device_state *s, size_t layer, size_t head, size_t b)
{
    const struct delta_shape *d = &s->shape;
    return s->state + (layer * d->value_heads + head) * d->key_dim * delta_wide(d) +
           b * d->key_dim * DELTA_COLUMNS;
}

static float *kept_at(const struct device_state *s, size_t layer, size_t row)
{
    return s->kept + (layer * s->kept_max + row) * delta_kept_row(&s->shape);
}

/* ---- buffers ---- */

size_t delta_place(struct delta_room *room, char *mem, const struct device_limits *l, size_t threads)
{
    const struct delta_shape *d = &l->delta;
    const size_t n = d->n_layers ? l->rows_max : 0, values = n * d->value_heads, f = sizeof(float),
                 wide = values * delta_wide(d) * f, slot = d->key_dim * DELTA_COLUMNS * f;
    struct delta_room sizes;
    struct delta_room *to = room ? room : &sizes;
    const struct { void *slot; size_t bytes; } buffers[] = {
        { &to->y, n * delta_channels(d) * f }, { &to->v, wide }, { &to->delta, wide }, { &to->o, wide },
        { &to->qk, n * d->key_heads * f }, { &to->beta, values * f }, { &to->decay, values * f },
        { &to->unit, 2 * d->key_dim * f }, { &to->slot, threads * DELTA_SLOTS * slot },
        { &to->step, delta_steps_max(n) * sizeof(struct delta_walk) },
        { &to->first, (n + 1) * sizeof(size_t) }, { &to->tree, 6 * n * sizeof(int32_t) },
    };
    size_t used = 0;
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        char *p = mem ? mem + used : NULL;
        memcpy(buffers[i].slot, &p, sizeof p);
        used += (buffers[i].bytes + 63) / 64 * 64;
    }
    to->rows_max = n;
    return used;
}

/* ---- plans ---- */

static void add_step(struct delta_room *room, size_t *n, struct delta_walk step)
{
    room->step[(*n)++] = step;
}

/* The beginning of the step for the first row of the pass: the last pending row comes with it. */
static struct delta_walk first_step(const struct device_state *s)
{
    const bool any = s->n_pending > 0;
    return (struct delta_walk){ any ? (int32_t)s->pending[s->n_pending - 1] : -1, -1, -1, -1, any };
}

/* The rows of a text that is certain, or of a chain that is not. */
static void plan_chain(struct delta_room *room, size_t *n, const struct device_seq *s)
{
    struct delta_walk step = first_step(s->kv->state);
    const int16_t slot = s->certain ? -1 : 0;
    for (size_t j = 0; j < s->n; j++) {
        step.now = (int32_t)(s->row0 + j);
        add_step(room, n, step);
        step = (struct delta_walk){ step.now, -1, (int16_t)(j == 0 ? -1 : slot), slot, false };
    }
    if (s->certain)
        add_step(room, n, step);
}

/* A tree. at: the slot of the state before a row; next: the first slot that its subtree may use. */
static void plan_tree(struct delta_room *room, size_t *n, const struct device_seq *s,
                      const struct device_rows *rows)
{
    int32_t *parent = room->tree, *size = parent + room->rows_max, *heavy = size + room->rows_max,
            *at = heavy + room->rows_max, *next = at + room->rows_max, *stack = next + room->rows_max;
    const int32_t rows_n = (int32_t)s->n;
    size_t top = 0;
    struct delta_walk first = first_step(s->kv->state);
    for (int32_t j = 0; j < rows_n; j++) {
        const size_t r = s->row0 + (size_t)j;
        const uint32_t *path = rows->node + r * rows->node_step, k = rows->n_node[r];
        parent[j] = k > 1 ? (int32_t)path[k - 2] : -1;
        size[j] = 1;
        heavy[j] = -1;
    }
    for (int32_t j = rows_n - 1; j >= 0; j--) {
        const int32_t p = parent[j];
        if (p >= 0)
            size[p] += size[j];
        if (p >= 0 && (heavy[p] < 0 || size[j] > size[heavy[p]]))
            heavy[p] = j;
        else if (p < 0)
            stack[top++] = j;
    }
    while (top > 0) {
        const int32_t j = stack[--top], p = parent[j], row = (int32_t)s->row0 + j;
        struct delta_walk step = { -1, row, -1, -1, false };
        at[j] = -1, next[j] = 0;
        if (p < 0) {
            step.before = first.before, step.kept = first.kept;
            first = (struct delta_walk){ -1, -1, -1, -1, false };
        } else {
            const bool in_place = j == heavy[p] && at[p] >= 0;
            at[j] = in_place ? at[p] : next[p];
            next[j] = in_place ? next[p] : next[p] + 1;
            step.before = (int32_t)s->row0 + p, step.from = (int16_t)at[p], step.to = (int16_t)at[j];
        }
        assert(at[j] < DELTA_SLOTS);
        add_step(room, n, step);
        if (heavy[j] >= 0)
            stack[top++] = heavy[j];
        for (int32_t c = rows_n - 1; c > j; c--)
            if (parent[c] == j && c != heavy[j])
                stack[top++] = c;
    }
}

void delta_plan(struct delta_room *room, const struct device_rows *rows)
{
    size_t n = 0;
    for (size_t i = 0; i < rows->n_seqs; i++) {
        const struct device_seq *s = &rows->seq[i];
        room->first[i] = n;
        assert(s->certain || s->n <= s->kv->state->kept_max);
        if (s->tree)
            plan_tree(room, &n, s, rows);
        else
            plan_chain(room, &n, s);
    }
    room->first[rows->n_seqs] = n;
}

/* ---- rows before the walk ---- */

struct call { const struct delta_run *r; const struct device_delta *a; size_t step; };
typedef void row_fn(const struct call *c, const struct device_seq *s, size_t row);
struct rows_job { const struct call *c; row_fn *fn; };

static const struct device_seq *seq_of(const struct device_rows *rows, size_t row)
{
    size_t i = 0;
    while (row >= rows->seq[i].row0 + rows->seq[i].n)
        i++;
    return &rows->seq[i];
}

static void rows_item(void *ctx, size_t i, size_t thread)
{
    const struct rows_job *j = ctx;
    (void)thread;
    j->fn(j->c, seq_of(j->c->r->rows, i), i);
}

static void each_row(const struct call *c, row_fn *fn)
{
    struct rows_job j = { c, fn };
    const size_t n = c->r->rows->n;
    if (n >= ALONE)
        pool_run(c->r->pool, n, rows_item, &j);
    for (size_t i = 0; n < ALONE && i < n; i++)
        rows_item(&j, i, 0);
}

static const float *mixed_at(const struct call *c, size_t row) { return c->a->mixed + row * c->step; }

/* The `conv` inputs of a row, the oldest first: its ancestors in the pass, and before them the last rows. */
static void inputs_of(const struct call *c, const struct device_seq *s, size_t row, const float **x)
{
    const struct device_rows *p = c->r->rows;
    const struct delta_shape *d = c->a->shape;
    const size_t taps = d->conv, own = s->tree ? p->n_node[row] : row - s->row0 + 1;
    const float *last = s->kv->state->rows + c->a->layer * (taps - 1) * delta_channels(d);
    for (size_t back = 0; back < taps; back++) {
        size_t r = row - back;
        if (back < own && s->tree)
            r = s->row0 + p->node[row * p->node_step + own - 1 - back];
        x[taps - 1 - back] =
            back < own ? mixed_at(c, r) : last + (taps - 2 - (back - own)) * delta_channels(d);
    }
}

static float sigmoid(float x)
{
    return isnan(x) ? x : (float)(1 / (1 + exp_d(-(double)MAX(-80.0f, MIN(80.0f, x)))));
}

/* exp(decay * log(1 + exp(x))) for decay <= 0; a state that grows is none. */
static float decay_of(float decay, float x)
{
    const double e = x < 20 ? exp_d(MAX(-600.0, (double)x)) : 0,
                 softplus = x >= 20 ? (double)x : e < 1e-9 ? e : log_d(1 + e), g = (double)decay * softplus;
    return !isnan(x) && g <= 0 ? (float)exp_d(MAX(-600.0, g)) : NAN;
}

static void prepare_row(const struct call *c, const struct device_seq *s, size_t row)
{
    const struct delta_room *room = c->r->room;
    const struct delta_shape *d = c->a->shape;
    const struct ops *ops = c->r->ops;
    const size_t channels = delta_channels(d), keys = d->key_heads * d->key_dim, wide = delta_wide(d),
                 heads = d->value_heads;
    const float *x[16], *b = mixed_at(c, row) + channels + heads * d->value_dim, *a = b + heads;
    float *y = room->y + row * channels, *v = room->v + row * heads * wide;
    const float eps = (float)(1e-6 / (double)d->key_dim);
    inputs_of(c, s, row, x);
    ops->convolve(y, x, c->a->conv, d->conv, channels);
    ops->rmsnorm(y, d->key_dim, DT_F32, y, d->key_dim, room->unit, d->key_heads, d->key_dim, eps);
    ops->rmsnorm(y + keys, d->key_dim, DT_F32, y + keys, d->key_dim, room->unit + d->key_dim, d->key_heads,
                 d->key_dim, eps);
    for (size_t h = 0; h < d->key_heads; h++) {
        const float *k = y + keys + h * d->key_dim;
        ops->rows_dot(room->qk + row * d->key_heads + h, y + h * d->key_dim, &k, 1, d->key_dim);
    }
    for (size_t h = 0; h < heads; h++) {
        memcpy(v + h * wide, y + 2 * keys + h * d->value_dim, d->value_dim * sizeof *v);
        memset(v + h * wide + d->value_dim, 0, (wide - d->value_dim) * sizeof *v);
        room->beta[row * heads + h] = sigmoid(b[h]);
        room->decay[row * heads + h] = decay_of(c->a->decay[h], a[h] + c->a->dt_bias[h]);
    }
}

/* ---- the walk ---- */

static size_t key_of(const struct delta_shape *d, size_t head)
{
    return d->dealt ? head % d->key_heads : head / (d->value_heads / d->key_heads);
}

/* Where a row's parts are for a block of columns of a head. */
static struct delta_row row_at(const struct call *c, size_t row, size_t head, size_t b)
{
    const struct delta_room *room = c->r->room;
    const struct delta_shape *d = c->a->shape;
    const size_t wide = delta_wide(d), key = key_of(d, head),
                 keys = d->key_heads * d->key_dim, at = row * d->value_heads + head,
                 column = at * wide + b * DELTA_COLUMNS;
    const float *q = room->y + row * delta_channels(d) + key * d->key_dim;
    return (struct delta_row){ q + keys, q, room->v + column, room->qk[row * d->key_heads + key],
                               room->beta[at], room->decay[at], room->delta + column, room->o + column };
}

static struct delta_row kept_row_at(const struct device_state *s, size_t layer, size_t row, size_t head,
                                    size_t b)
{
    const struct delta_shape *d = &s->shape;
    const size_t wide = delta_wide(d), key = key_of(d, head);
    float *k = kept_at(s, layer, row) + delta_channels(d), *delta = k + d->key_heads * d->key_dim;
    return (struct delta_row){ .k = k + key * d->key_dim, .delta = delta + head * wide + b * DELTA_COLUMNS,
                               .decay = delta[d->value_heads * wide + head] };
}

/* Applies the first n pending rows to a block. */
static void apply_pending(const struct device_state *s, const struct ops *ops, size_t layer, size_t head,
                          size_t b, size_t n)
{
    const struct delta_shape *d = &s->shape;
    float *state = state_at(s, layer, head, b);
    for (size_t i = 0; i < n; i++) {
        const struct delta_row before = kept_row_at(s, layer, s->pending[i], head, b);
        ops->delta(&(struct delta_step){ state, state, d->key_dim, columns_of(d, b), &before, NULL });
    }
}

static void walk_item(void *ctx, size_t i, size_t thread)
{
    const struct call *c = ctx;
    const struct delta_room *room = c->r->room;
    const struct delta_shape *d = c->a->shape;
    const size_t blocks = blocks_of(d), b = i % blocks, head = i / blocks % d->value_heads,
                 seq = i / blocks / d->value_heads, slot_size = d->key_dim * DELTA_COLUMNS;
    const struct device_state *s = c->r->rows->seq[seq].kv->state;
    float *state = state_at(s, c->a->layer, head, b), *slot = room->slot + thread * DELTA_SLOTS * slot_size;
    apply_pending(s, c->r->ops, c->a->layer, head, b, s->n_pending - (s->n_pending > 0));
    for (size_t k = room->first[seq]; k < room->first[seq + 1]; k++) {
        const struct delta_walk *w = &room->step[k];
        struct delta_row before, now;
        if (w->before >= 0)
            before = w->kept ? kept_row_at(s, c->a->layer, (size_t)w->before, head, b)
                             : row_at(c, (size_t)w->before, head, b);
        if (w->now >= 0)
            now = row_at(c, (size_t)w->now, head, b);
        c->r->ops->delta(&(struct delta_step){
            w->from < 0 ? state : slot + (size_t)w->from * slot_size,
            w->to < 0 ? state : slot + (size_t)w->to * slot_size, d->key_dim, columns_of(d, b),
            w->before >= 0 ? &before : NULL, w->now >= 0 ? &now : NULL });
    }
}

/* ---- rows after the walk ---- */

/* What a row that is not certain would add to the state. */
static void keep_row(const struct call *c, const struct device_seq *s, size_t row)
{
    const struct delta_room *room = c->r->room;
    const struct delta_shape *d = c->a->shape;
    const size_t channels = delta_channels(d), keys = d->key_heads * d->key_dim,
                 values = d->value_heads * delta_wide(d);
    float *to = kept_at(s->kv->state, c->a->layer, row - s->row0);
    memcpy(to, mixed_at(c, row), channels * sizeof *to);
    memcpy(to + channels, room->y + row * channels + keys, keys * sizeof *to);
    memcpy(to + channels + keys, room->delta + row * values, values * sizeof *to);
    memcpy(to + channels + keys + values, room->decay + row * d->value_heads, d->value_heads * sizeof *to);
}

static void finish_row(const struct call *c, const struct device_seq *s, size_t row)
{
    const struct delta_room *room = c->r->room;
    const struct delta_shape *d = c->a->shape;
    const size_t channels = delta_channels(d), keys = d->key_heads * d->key_dim, wide = delta_wide(d),
                 heads = d->value_heads, values = heads * d->value_dim;
    float *normed = room->y + row * channels + 2 * keys;     /* v is no longer needed there */
    c->r->ops->rmsnorm(normed, d->value_dim, DT_F32, room->o + row * heads * wide, wide, c->a->norm, heads,
                       d->value_dim, c->a->eps);
    c->r->ops->swiglu((char *)c->a->out + row * values * dtype_size(c->r->act), c->r->act,
                      mixed_at(c, row) + channels, normed, values);
    if (!s->certain)
        keep_row(c, s, row);
}

/* The last inputs of the convolution become the last of themselves and n more. */
static void roll(float *last, const struct delta_shape *d, const float *const *more, size_t n)
{
    const size_t channels = delta_channels(d), room = d->conv - 1, some = MIN(n, room);
    memmove(last, last + some * channels, (room - some) * channels * sizeof *last);
    for (size_t i = 0; i < some; i++)
        memcpy(last + (room - some + i) * channels, more[n - some + i], channels * sizeof *last);
}

static void roll_pending(const struct device_state *s, size_t layer)
{
    const struct delta_shape *d = &s->shape;
    const float *more[16];
    const size_t some = MIN(s->n_pending, d->conv - 1);
    for (size_t i = 0; i < some; i++)
        more[i] = kept_at(s, layer, s->pending[s->n_pending - some + i]);
    roll(s->rows + layer * (d->conv - 1) * delta_channels(d), d, more, some);
}

static void roll_rows(const struct call *c, const struct device_seq *s)
{
    const struct delta_shape *d = c->a->shape;
    const float *more[16];
    const size_t some = MIN(s->n, d->conv - 1);
    for (size_t i = 0; i < some; i++)
        more[i] = mixed_at(c, s->row0 + s->n - some + i);
    roll(s->kv->state->rows + c->a->layer * (d->conv - 1) * delta_channels(d), d, more, some);
}

void delta_run(const struct delta_run *r, const struct device_delta *a)
{
    const struct delta_shape *d = a->shape;
    struct call c = { r, a, delta_channels(d) + d->value_heads * (d->value_dim + 2) };
    for (size_t i = 0; i < d->key_dim; i++) {
        r->room->unit[i] = 1.0f / (float)d->key_dim;
        r->room->unit[d->key_dim + i] = 1.0f / sqrtf((float)d->key_dim);
    }
    for (size_t i = 0; i < r->rows->n_seqs; i++)
        roll_pending(r->rows->seq[i].kv->state, a->layer);
    each_row(&c, prepare_row);
    pool_run(r->pool, r->rows->n_seqs * d->value_heads * blocks_of(d), walk_item, &c);
    each_row(&c, finish_row);
    for (size_t i = 0; i < r->rows->n_seqs; i++)
        if (r->rows->seq[i].certain)
            roll_rows(&c, &r->rows->seq[i]);
}

/* ---- without a pass ---- */

struct settling { const struct device_state *s; const struct ops *ops; };

static void settle_item(void *ctx, size_t i, size_t thread)
{
    const struct settling *x = ctx;
    const struct delta_shape *d = &x->s->shape;
    const size_t blocks = blocks_of(d), b = i % blocks, head = i / blocks % d->value_heads,
                 layer = i / blocks / d->value_heads;
    (void)thread;
    apply_pending(x->s, x->ops, layer, head, b, x->s->n_pending);
}

void delta_settle(const struct device_state *s, const struct ops *ops, struct pool *pool)
{
    for (size_t l = 0; l < s->shape.n_layers && s->n_pending; l++)
        roll_pending(s, l);
    if (s->n_pending)
        pool_run(pool, s->shape.n_layers * s->shape.value_heads * blocks_of(&s->shape), settle_item,
                 &(struct settling){ s, ops });
}
