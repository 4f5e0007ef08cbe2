/* Writes log-probabilities as JSON. Start at token_logprobs_put. */
#include "runs/report/export_logprobs.h"

#include <math.h>
#include <stdlib.h>

int token_logprobs_read(struct token_logprobs *l, struct store *s, const struct job *j,
                        const struct job_params *p, struct err *e)
{
    *l = (struct token_logprobs){0};
    if (p->logprobs < 0)
        return 0;
    l->best = (size_t)p->logprobs;
    if (store_tokens(s, j->id, 0, j->tokens, &l->ids, &l->n, e) ||
        store_logprobs(s, j->id, l->ids, l->n, l->best, &l->v, e)) {
        token_logprobs_close(l);
        return -1;
    }
    return 0;
}

void token_logprobs_close(struct token_logprobs *l)
{
    free(l->ids);
    free(l->v);
    *l = (struct token_logprobs){0};
}

/* A writer of tokens. room: for the text of one. */
struct put { struct json_writer *w; const struct tokenizer *t; char *room; };

/* Writes the text of a token into room, with a NUL after its *n bytes. */
static const char *text_of(const struct put *p, int32_t id, size_t *n)
{
    struct decode_stream s;
    decode_stream_start(&s, p->t, false, false);
    *n = decode_stream_push(&s, id, p->room);
    *n += decode_stream_flush(&s, p->room + *n);
    p->room[*n] = 0;
    return p->room;
}

/* A special token has the bytes of its name. */
static void put_bytes(const struct put *p, const char *key, int32_t id)
{
    size_t n = token_bytes(p->t, id, p->room);
    if (!n)
        text_of(p, id, &n);
    jw_open(p->w, key, '[');
    for (size_t i = 0; i < n; i++)
        jw_uint(p->w, NULL, (unsigned char)p->room[i]);
    jw_close(p->w, ']');
}

static void put_value(const struct put *p, const char *key, float x)
{
    jw_format(p->w, key, "%.4f", isinf(x) ? -9999.0 : (double)x);
}

/* The object stays open. */
static void put_token(const struct put *p, const struct logprob *v)
{
    size_t n;
    const char *text = text_of(p, v->id, &n);
    jw_open(p->w, NULL, '{');
    jw_bytes(p->w, "token", text, n);
    jw_int(p->w, "id", v->id);
    put_value(p, "logprob", v->value);
    put_bytes(p, "bytes", v->id);
}

static void put_tokens(const struct put *p, const char *key, const struct token_logprobs *l)
{
    jw_open(p->w, key, '[');
    for (size_t i = 0; i < l->n; i++) {
        const struct logprob *v = l->v + i * (1 + l->best);
        if (v->id < 0) {
            jw_null(p->w, NULL);
            continue;
        }
        put_token(p, v);
        jw_open(p->w, "top_logprobs", '[');
        for (size_t k = 1; k <= l->best && v[k].id >= 0; k++) {
            put_token(p, &v[k]);
            jw_close(p->w, '}');
        }
        jw_close(p->w, ']');
        jw_close(p->w, '}');
    }
    jw_close(p->w, ']');
}

static void put_arrays(const struct put *p, const struct token_logprobs *l)
{
    size_t n;
    jw_open(p->w, "tokens", '[');
    for (size_t i = 0; i < l->n; i++) {
        const char *text = text_of(p, l->ids[i], &n);
        jw_bytes(p->w, NULL, text, n);
    }
    jw_close(p->w, ']');
    jw_open(p->w, "bytes", '[');
    for (size_t i = 0; i < l->n; i++)
        put_bytes(p, NULL, l->ids[i]);
    jw_close(p->w, ']');
    jw_open(p->w, "token_logprobs", '[');
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i * (1 + l->best)].id < 0)
            jw_null(p->w, NULL);
        else
            put_value(p, NULL, l->v[i * (1 + l->best)].value);
    jw_close(p->w, ']');
    jw_open(p->w, "top_logprobs", '[');
    for (size_t i = 0; i < l->n; i++) {
        const struct logprob *v = l->v + i * (1 + l->best);
        jw_open(p->w, NULL, '{');
        for (size_t k = 1; k <= l->best && v[k].id >= 0; k++)
            put_value(p, text_of(p, v[k].id, &n), v[k].value);
        jw_close(p->w, '}');
    }
    jw_close(p->w, ']');
}

int token_logprobs_put(struct json_writer *w, const char *key, const struct token_logprobs *l,
                       const struct tokenizer *t, enum logprobs_form form, struct err *e)
{
    if (!l->v || !t) {                   /* no tokenizer was needed for an empty text */
        jw_null(w, key);
        return 0;
    }
    const struct put p = { w, t, malloc(2 * decode_stream_max(t) + 1) };
    if (!p.room)
        return err_set(e, ERR_FAILED, "out of memory for the text of a token");
    if (form == LOGPROBS_TOKENS) {
        put_tokens(&p, key, l);
    } else {
        jw_open(w, key, '{');
        if (form == LOGPROBS_CHAT)
            put_tokens(&p, "content", l);
        else
            put_arrays(&p, l);
        jw_close(w, '}');
    }
    free(p.room);
    return 0;
}
