/* Texts of jobs, read back from the store.
 *
 * Stored token ids become text through the same emission rules that wrote them. `struct replay` does so
 * token by token for the worker and for `tail`; job_read_text reads a whole text. Start at job_read_text. */
#include "runs/work/read_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- replay ---- */

int replay_open(struct replay *y, struct store *s, const struct job *job, const struct job_params *p,
                const struct config *c, const struct tokenizer *t, bool at_start, struct err *e)
{
    *y = (struct replay){ .rules = { .tokens = job->wanted,
                                     .eos = c->eos,
                                     .n_eos = c->n_eos,
                                     .ignore_eos = p->sampling.ignore_eos,
                                     .stop = p->stop.v,
                                     .n_stop = p->stop.n,
                                     .on_loop = p->on_loop } };
    if (store_spans(s, job->id, &y->spans, e))
        return -1;
    if (emit_open(&y->emit, &y->rules, t, at_start, e)) {
        span_list_free(&y->spans);
        return -1;
    }
    return 0;
}

void replay_close(struct replay *y)
{
    emit_close(&y->emit);
    span_list_free(&y->spans);
    *y = (struct replay){0};
}

bool replay_token(struct replay *y, int32_t id, const char **bytes, size_t *n)
{
    bool given = false;
    for (size_t i = 0; i < y->spans.n && !given; i++) {
        const struct text_span *g = &y->spans.v[i];
        given = strcmp(g->kind, "given") == 0 && y->at >= g->start && y->at - g->start < g->n;
    }
    y->at++;
    (given ? emit_given : emit_token)(&y->emit, id, bytes, n);
    return given;
}

/* ---- whole texts ---- */

int text_reader_open(struct text_reader *r, const struct job *job, const struct job_params *p, struct err *e)
{
    const char *scaling = p->scaling ? p->scaling : "";
    if (r->tokenizer && strcmp(r->path, job->model) == 0 && strcmp(r->scaling, scaling) == 0)
        return 0;
    text_reader_close(r);
    snprintf(r->path, sizeof r->path, "%s", job->model);
    snprintf(r->scaling, sizeof r->scaling, "%s", scaling);
    if (config_read(&r->config, r->path, e) ||
        (p->scaling && config_scale_context(&r->config, p->scaling, e)) ||
        tokenizer_open(&r->tokenizer, r->path, r->config.vocab, e)) {
        text_reader_close(r);
        return err_while(
            e, "job %" PRId64 ": its text needs the tokenizer of its model; --format ids needs none",
            job->id);
    }
    return 0;
}

void text_reader_close(struct text_reader *r)
{
    tokenizer_close(r->tokenizer);
    *r = (struct text_reader){0};
}

/* Append bytes and keep a NUL after them. *room is the size of *text. */
static int append_bytes(char **text, size_t *n, size_t *room, const char *bytes, size_t n_bytes,
                        struct err *e)
{
    if (*n + n_bytes + 1 > *room) {
        size_t size = 2 * (*n + n_bytes) + 4096;
        char *p = realloc(*text, size);
        if (!p)
            return err_set(e, ERR_FAILED, "out of memory for a text of %zu bytes", size);
        *text = p;
        *room = size;
    }
    if (n_bytes)
        memcpy(*text + *n, bytes, n_bytes);
    *n += n_bytes;
    (*text)[*n] = 0;
    return 0;
}

/* Replay ids[0..n_ids) and append their text. */
static int replay_all(struct replay *y, const struct text_reader *r, const struct job *job,
                      const int32_t *ids, size_t n_ids, char **text, size_t *n, struct err *e)
{
    const char *bytes = "";
    size_t room = 0, n_bytes = 0;
    int rc = append_bytes(text, n, &room, bytes, n_bytes, e);
    for (size_t i = 0; rc == 0 && i < n_ids && y->emit.finish == FINISH_NONE; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= r->config.vocab)
            return err_set(e, ERR_INPUT,
                           "job %" PRId64 ": token %zu is %" PRId32
                           ", which this model's tokenizer does not have",
                           job->id, i, ids[i]);
        replay_token(y, ids[i], &bytes, &n_bytes);
        rc = append_bytes(text, n, &room, bytes, n_bytes, e);
    }
    if (rc || y->emit.finish != FINISH_NONE || job->state != JOB_DONE)
        return rc;
    emit_flush(&y->emit, &bytes, &n_bytes);      /* an end-of-text token is not stored; the text ends here */
    return append_bytes(text, n, &room, bytes, n_bytes, e);
}

int job_read_text(struct text_reader *r, struct store *s, const struct job *job, char **text, size_t *n,
                  struct err *e)
{
    struct job_params p = {0};
    struct job_input in = {0};
    struct replay y = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    *n = 0;
    *text = job->tokens ? NULL : calloc(1, 1);
    if (*text)                           /* an empty text needs no model */
        return 0;
    int rc = store_input(s, job->id, &in, e) || job_parse(&p, in.parameters, e) ||
                     text_reader_open(r, job, &p, e) ||
                     store_tokens(s, job->id, 0, job->tokens, &ids, &n_ids, e) ||
                     replay_open(&y, s, job, &p, &r->config, r->tokenizer, in.prompt_bytes == 0 && !p.chat, e)
                 ? -1
                 : 0;
    if (rc == 0) {
        rc = replay_all(&y, r, job, ids, n_ids, text, n, e);
        replay_close(&y);
    }
    free(ids);
    job_close(&p);
    job_input_free(&in);
    if (rc) {
        free(*text);
        *text = NULL;
    }
    return rc;
}

int job_read_ids(struct store *s, const struct job *job, int32_t **ids, size_t *n, struct err *e)
{
    struct span_list spans;
    size_t n_all;
    *n = 0;
    if (store_spans(s, job->id, &spans, e))
        return -1;
    int rc = store_tokens(s, job->id, 0, job->tokens, ids, &n_all, e);
    for (size_t i = 0, k = 0; rc == 0 && i < n_all; i++) {
        while (k < spans.n && (strcmp(spans.v[k].kind, "given") || i >= spans.v[k].start + spans.v[k].n))
            k++;
        if (k == spans.n || i < spans.v[k].start)
            (*ids)[(*n)++] = (*ids)[i];
    }
    span_list_free(&spans);
    return rc;
}
