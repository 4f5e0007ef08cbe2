/* Short vocabularies of trained drafters (draft_vocab.h). Start reading at draft_vocab_product(). */
#include "src/model/draft_vocab.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/safetensors.h"

/* ---- the tokens ---- */

struct counted { size_t n; int32_t id; };

static int by_count(const void *a, const void *b)
{
    const struct counted *x = a, *y = b;
    return x->n != y->n ? (x->n < y->n) - (x->n > y->n) : (x->id > y->id) - (x->id < y->id);
}

static int by_id(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

int draft_vocab_count(struct draft_vocab *v, size_t n, size_t vocab, const int32_t *token, size_t n_tokens,
                      struct err *e)
{
    *v = (struct draft_vocab){ 0 };
    if (n == 0 || vocab < 2 * n)
        return 0;
    struct counted *all = calloc(vocab, sizeof *all);
    v->id = malloc(n * sizeof *v->id);
    if (!all || !v->id) {
        free(all);
        return err_set(e, ERR_FAILED, "out of memory for a vocabulary of %zu tokens", n);
    }
    for (size_t i = 0; i < vocab; i++)
        all[i].id = (int32_t)i;
    for (size_t i = 0; i < n_tokens; i++)
        all[token[i]].n++;
    qsort(all, vocab, sizeof *all, by_count);
    for (; v->n < n; v->n++)
        v->id[v->n] = all[v->n].id;
    qsort(v->id, n, sizeof *v->id, by_id);
    free(all);
    return 0;
}

int draft_vocab_read(struct draft_vocab *v, const struct tensors *ts, size_t vocab, struct err *e)
{
    const struct tensor *t = tensors_find(ts, DRAFT_VOCAB_TENSOR);
    int64_t least = 0;
    *v = (struct draft_vocab){ 0 };
    if (!t)
        return 0;
    if (strcmp(t->dtype_name, "I64") || t->n_dims != 1)
        return tensor_bad(ts, t, e, ": dtype %s with %zu dimensions, allowed is I64 with one", t->dtype_name,
                          t->n_dims);
    if (t->dim[0] == 0 || t->dim[0] > vocab)
        return tensor_bad(ts, t, e, ": %zu tokens, allowed are 1 to %zu", t->dim[0], vocab);
    const size_t n = t->dim[0];
    int64_t *more = malloc(n * sizeof *more);
    v->id = malloc(n * sizeof *v->id);
    int rc = more && v->id ? tensors_read(ts, t, more, 0, n * sizeof *more, e)
                           : err_set(e, ERR_FAILED, "%s: out of memory", ts->path[t->shard]);
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (more[i] < least || more[i] > (int64_t)(vocab - n))
            rc = tensor_bad(ts, t, e, ": element %zu is %" PRId64 ", allowed are %" PRId64 " to %zu", i,
                            more[i], least, vocab - n);
        least = more[i];
        v->id[i] = (int32_t)(least + (int64_t)i);
    }
    free(more);
    v->n = n;
    if (rc)
        draft_vocab_close(v);
    return rc;
}

/* ---- the LM head ---- */

static bool on_host(const struct model *m) { return !m->dev || m->dev->host_memory; }

static size_t bytes_of(size_t n, const struct model *m, bool int8)
{
    const struct mat head = { drafter_mat_type(m, int8), n, m->config.hidden, NULL };
    return on_host(m) ? mat_bytes(&head) + 64 : m->config.vocab * sizeof(float);
}

size_t draft_vocab_bytes(const char *path, const struct model *m, bool int8)
{
    struct draft_vocab v = { 0 };
    struct tensors ts = { 0 };
    struct err ignored;
    if (tensors_open_file(&ts, path, &ignored) == 0)
        draft_vocab_read(&v, &ts, m->config.vocab, &ignored);
    tensors_close(&ts);
    const size_t n = v.n;
    draft_vocab_close(&v);
    return n ? bytes_of(n, m, int8) : 0;
}

/* Packs the rows. Returns false without memory. */
static bool gather_rows(const struct draft_vocab *v, const struct model *m, struct mat *to)
{
    float *row = malloc(to->k * sizeof *row);
    for (size_t i = 0; row && i < v->n; i++) {
        mat_row(&m->lm_head, (size_t)v->id[i], row);
        mat_pack(to, i, 1, row, DT_F32);
    }
    free(row);
    return row != NULL;
}

static bool gather(struct draft_vocab *v, const struct model *m, bool int8)
{
    struct mat wide = { drafter_mat_type(m, false), v->n, m->config.hidden, NULL };
    const size_t bytes = bytes_of(v->n, m, false);
    v->head = (struct mat){ drafter_mat_type(m, int8), v->n, m->config.hidden, mem_alloc(v->bytes) };
    wide.w = int8 ? mem_alloc(bytes) : v->head.w;
    const bool ok = v->head.w && wide.w && gather_rows(v, m, &wide);
    if (int8 && ok)
        model_quantize_mat(&v->head, &wide, m->pool);
    if (int8)
        mem_free(wide.w, bytes);
    return ok;
}

static bool make_bias(struct draft_vocab *v, const struct model *m)
{
    float *bias = malloc(v->bytes);
    v->bias = m->dev->alloc(m->dev, v->bytes);
    for (size_t i = 0; bias && i < m->config.vocab; i++)
        bias[i] = -1e30f;                /* finite: a device may sample nothing from infinite logits */
    for (size_t i = 0; bias && i < v->n; i++)
        bias[v->id[i]] = 0;
    if (bias && v->bias)
        m->dev->upload(m->dev, v->bias, bias, v->bytes);
    free(bias);
    return bias && v->bias;
}

int draft_vocab_gather(struct draft_vocab *v, const struct model *m, bool int8, struct err *e)
{
    if (v->n == 0)
        return 0;
    v->bytes = bytes_of(v->n, m, int8);
    v->dev = m->dev;
    return (on_host(m) ? gather(v, m, int8) : make_bias(v, m))
               ? 0
               : err_set(e, ERR_FAILED, "out of memory for the short vocabulary of a drafter (%zu bytes)",
                         v->bytes);
}

void draft_vocab_close(struct draft_vocab *v)
{
    if (v->bias)
        v->dev->free(v->dev, v->bias, v->bytes);
    if (v->head.w)
        mem_free(v->head.w, v->bytes);
    free(v->id);
    *v = (struct draft_vocab){ 0 };
}

/* Moves the n logits at the begin of a row to their tokens, the last one first: no id is below its index. */
static void spread(const struct draft_vocab *v, float *row, size_t vocab)
{
    size_t end = vocab;
    for (size_t i = v->n; i-- > 0;) {
        const size_t at = (size_t)v->id[i];
        const float x = row[i];
        while (end > at + 1)
            row[--end] = -INFINITY;
        row[--end] = x;
    }
    while (end > 0)
        row[--end] = -INFINITY;
}

void draft_vocab_product(const struct draft_vocab *v, const struct model *m, const struct mat *head,
                         const void *x, size_t rows, float *logits, size_t place)
{
    const size_t vocab = m->config.vocab;
    assert(v->n == 0 || v->head.w || v->bias);
    m->dev->product(m->dev, &(struct device_product){ logits, vocab, x, rows, draft_vocab_head(v, head),
                                                      v->bias, false, place });
    for (size_t r = 0; v->head.w && r < rows; r++)
        spread(v, logits + r * vocab, vocab);
}
