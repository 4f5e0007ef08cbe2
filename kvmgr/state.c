/* The recurrent states of one decoder (state.h). */
#include "kvmgr/state.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/delta.h"

/* Floats of the states, and of the last inputs of the convolutions. */
static size_t state_floats(const struct delta_shape *d)
{
    return d->n_layers * d->value_heads * d->key_dim * delta_wide(d);
}

static size_t input_floats(const struct delta_shape *d)
{
    return d->n_layers * (d->conv - 1) * delta_channels(d);
}

size_t state_fixed_bytes(const struct delta_shape *d)
{
    return d->n_layers ? (state_floats(d) + input_floats(d)) * sizeof(float) : 0;
}

size_t state_bytes(const struct delta_shape *d, size_t n)
{
    size_t kept, bytes = 0;
    n = MAX(n, (size_t)1);
    if (!d->n_layers)
        return 0;
    return mul_size(d->n_layers * delta_kept_row(d), n, &kept) && mul_size(kept, sizeof(float), &kept) &&
                   add_size(kept, state_fixed_bytes(d) + n * sizeof(uint32_t), &bytes)
               ? bytes
               : SIZE_MAX;
}

int state_open(struct states **out, const struct delta_shape *d, size_t n, size_t mark, bool cuts,
               struct err *e)
{
    const size_t bytes = state_bytes(d, n);
    struct states *s = calloc(1, sizeof *s);
    char *mem = s && bytes < SIZE_MAX ? mem_alloc(bytes) : NULL;
    if (mem && mark)
        s->mark.copy = mem_alloc(state_fixed_bytes(d));
    bool ok = mem && (!mark || s->mark.copy);
    for (size_t i = 0; i < STATE_COPIES && cuts && ok; i++)
        ok = (s->copy[i] = mem_alloc(state_fixed_bytes(d))) != NULL;
    if (!ok) {
        if (s) {
            s->d.shape = *d, s->mem = mem, s->bytes = mem ? bytes : 0;
            state_close(s);
        }
        return err_set(e, ERR_FAILED, "recurrent states: out of memory (%zu bytes)", bytes);
    }
    float *f = (float *)(void *)mem;
    n = MAX(n, (size_t)1);
    s->mem = mem, s->bytes = bytes, s->mark.want = mark;
    s->d = (struct device_state){ .shape = *d, .state = f, .rows = f + state_floats(d),
                                  .kept = f + state_floats(d) + input_floats(d), .kept_max = n };
    s->path = (uint32_t *)(void *)(s->d.kept + d->n_layers * n * delta_kept_row(d));
    s->d.pending = s->path;
    *out = s;
    return 0;
}

void state_close(struct states *s)
{
    if (s) {
        state_retire(s);
        mem_free(s->mark.copy, s->mark.copy ? state_fixed_bytes(&s->d.shape) : 0);
    }
    free(s);
}

void state_retire(struct states *s)
{
    mem_free(s->mem, s->bytes);
    for (size_t i = 0; i < STATE_COPIES; i++) {
        mem_free(s->copy[i], s->copy[i] ? state_fixed_bytes(&s->d.shape) : 0);
        s->copy[i] = NULL;
    }
    s->mark.want = s->mark.at;           /* no other mark will come */
    s->mem = NULL;
    s->bytes = 0;
}

static void take_mark(struct states *s)
{
    memcpy(s->mark.copy, s->mem, state_fixed_bytes(&s->d.shape));
    s->mark.at = s->at;
}

/* Replaces the older copy when the newer one is STATE_EVERY rows old, and no cut goes back beyond it. */
static void take_copy(struct states *s)
{
    const size_t old = s->copy_at[0] > s->copy_at[1], newer = s->copy_at[1 - old];
    if (!s->copy[old] || s->at < newer + STATE_EVERY || (s->final && newer > *s->final))
        return;
    memcpy(s->copy[old], s->mem, state_fixed_bytes(&s->d.shape));
    s->copy_at[old] = s->at;
}

void state_begin(struct states *s, const struct states *from)
{
    assert(from->mark.at);
    memcpy(s->mem, from->mark.copy, state_fixed_bytes(&s->d.shape));
    s->at = from->mark.at;
    if (s->mark.copy)
        take_mark(s);
}

void state_passed(struct states *s, size_t n)
{
    assert(!s->ahead);
    s->at += s->d.n_pending;
    s->d.n_pending = 0;
    s->ahead = n;
    if (!n)
        take_copy(s);
}

void state_commit(struct states *s, const uint32_t *node, size_t n)
{
    assert(s->ahead ? s->ahead == n && !node : !s->d.n_pending && n <= s->d.kept_max);
    for (size_t i = 0; i < n && !s->ahead; i++)
        s->path[i] = node ? node[i] : (uint32_t)i;
    if (s->ahead) {
        s->at += n;
        take_copy(s);
    } else {
        s->d.n_pending = n;
    }
    s->ahead = 0;
    if (s->mark.copy && s->at == s->mark.want && !s->d.n_pending)
        take_mark(s);
}

size_t state_truncate(struct states *s, size_t n)
{
    if (!s->ahead && n >= s->at) {
        assert(n <= s->at + s->d.n_pending);
        s->d.n_pending = n - s->at;
        return n;
    }
    const void *back = NULL;
    size_t at = 0;
    if (s->mark.at > n)                  /* its rows are forgotten as well */
        s->mark.at = 0;
    if (s->mark.at)
        back = s->mark.copy, at = s->mark.at;
    for (size_t i = 0; i < STATE_COPIES; i++) {
        if (s->copy_at[i] > n)
            s->copy_at[i] = 0;
        if (s->copy_at[i] > at)
            back = s->copy[i], at = s->copy_at[i];
    }
    if (back)
        memcpy(s->mem, back, state_fixed_bytes(&s->d.shape));
    else
        memset(s->mem, 0, state_fixed_bytes(&s->d.shape));
    state_place(s, at);
    return at;
}

void state_settle(struct states *s, const struct ops *ops, struct pool *pool)
{
    assert(!s->ahead);
    delta_settle(&s->d, ops, pool);
    s->at += s->d.n_pending;
    s->d.n_pending = 0;
}

void state_place(struct states *s, size_t n)
{
    s->at = n;
    s->ahead = s->d.n_pending = 0;
}
