/* Texts of jobs, read back from the store.
 *
 * Stored token ids become text through the same emission rules that wrote them. `struct replay` does so
 * token by token; grown_more writes the text of further tokens, job_read_text that of all. Start at
 * grown_more. */
#include "runs/work/read_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/memory_file.h"

/* ---- parts ---- */

int job_parts_read(struct job_parts *p, struct store *s, int64_t job, const char *first, struct err *e)
{
    *p = (struct job_parts){0};
    if (store_parts(s, job, &p->stored, e))
        return -1;
    const struct part_list *l = &p->stored;
    int rc = (p->v = calloc(l->n + 1, sizeof *p->v)) ? 0 : err_set(e, ERR_FAILED, "out of memory");
    if (rc == 0 && !(l->n && l->v[0].start == 0 && l->v[0].parameters))
        rc = job_parse(&p->v[p->n++].params, first, e);
    for (size_t i = 0; rc == 0 && i < l->n; i++) {
        if (!l->v[i].parameters)
            continue;
        p->v[p->n].start = l->v[i].start;
        rc = job_parse(&p->v[p->n++].params, l->v[i].parameters, e);
    }
    if (rc)
        job_parts_close(p);
    return rc;
}

void job_parts_close(struct job_parts *p)
{
    for (size_t i = 0; i < p->n; i++)
        job_close(&p->v[i].params);
    free(p->v);
    part_list_free(&p->stored);
    *p = (struct job_parts){0};
}

/* ---- replay ---- */

/* The rules of each part. A part that ended before its min_tokens was written by a program whose stop strings
 * and loop rule did not know them. */
static struct emit_rules *rules_of(const struct job *job, const struct job_parts *p, const struct config *c)
{
    struct emit_rules *rules = calloc(p->n, sizeof *rules + sizeof(struct text_ends));
    struct text_ends *ends = (struct text_ends *)(rules + p->n);
    for (size_t i = 0; rules && i < p->n; i++) {
        const struct job_params *x = &p->v[i].params;
        job_ends(&ends[i], x, c);
        rules[i] = (struct emit_rules){ .tokens = job->wanted, .eos = ends[i].id, .n_eos = ends[i].n_eos,
                                        .n_stop_ids = ends[i].n_stop, .ignore_eos = x->sampling.ignore_eos,
                                        .stop = x->stop.v, .n_stop = x->stop.n,
                                        .on_loop = params_on_loop(x) };
        const bool last = i + 1 == p->n;
        const size_t end = !last ? p->v[i + 1].start : job->state == JOB_DONE ? job->tokens : SIZE_MAX;
        if (end >= x->sampling.min_tokens)
            rules[i].min_tokens = x->sampling.min_tokens;
        if (!last) {
            rules[i].next = &rules[i + 1];
            rules[i].until = end;
        }
    }
    return rules;
}

int replay_open(struct replay *y, struct store *s, const struct job *job, const struct job_input *in,
                const struct job_parts *p, const struct config *c, const struct tokenizer *t, struct err *e)
{
    const bool at_start = in->prompt_bytes == 0 && !p->v->params.chat;
    *y = (struct replay){ .rules = rules_of(job, p, c) };
    if (!y->rules)
        return err_set(e, ERR_FAILED, "out of memory");
    sha256_start(&y->sha);
    if (store_spans(s, job->id, &y->spans, e) || emit_open(&y->emit, y->rules, t, at_start, e)) {
        span_list_free(&y->spans);
        free(y->rules);
        y->rules = NULL;
        return -1;
    }
    return 0;
}

void replay_close(struct replay *y)
{
    emit_close(&y->emit);
    span_list_free(&y->spans);
    free(y->rules);
    *y = (struct replay){0};
}

bool replay_token(struct replay *y, int32_t id, const char **bytes, size_t *n)
{
    const bool given = token_is_given(&y->spans, y->at++);
    (given ? emit_given : emit_token)(&y->emit, id, bytes, n);
    sha256_add(&y->sha, *bytes, *n);
    return given;
}

void replay_end(struct replay *y, enum finish f, const char **bytes, size_t *n)
{
    emit_end(&y->emit, f, bytes, n);
    sha256_add(&y->sha, *bytes, *n);
}

void replay_sha(const struct replay *y, uint8_t out[SHA256_BYTES])
{
    struct sha256 h = y->sha;
    sha256_end(&h, out);
}

int replay_check(const struct replay *y, const struct job *job, struct err *e)
{
    uint8_t sha[SHA256_BYTES];
    replay_sha(y, sha);
    return job->state == JOB_DONE && job->has_sha && memcmp(sha, job->sha, sizeof sha)
               ? err_set(e, ERR_FAILED,
                         "job %" PRId64 ": the text that was read differs from the text that was written "
                         "(SHA-256); longhand doctor checks the store",
                         job->id)
               : 0;
}

/* ---- the model that a text needs ---- */

/* Open what the store has of the model. A model of a later longhand may have a configuration that this
 * program refuses; its texts can be read all the same. */
static int open_stored(struct text_reader *r, const struct model_record *m, const struct job_params *p,
                       struct err *e)
{
    struct config *c = &r->config;
    struct err ignored;
    if (m->n_eos > CONFIG_EOS_MAX)
        return err_set(e, ERR_FAILED, "the stored model has %zu EOS ids, at most %d are allowed", m->n_eos,
                       CONFIG_EOS_MAX);
    if (config_parse(c, "config.json", m->config, strlen(m->config), "generation_config.json", m->generation,
                     m->generation ? strlen(m->generation) : 0, &ignored) ||
        (p->scaling && config_scale_context(c, p->scaling, &ignored)))
        *c = (struct config){ .context = CONTEXT_MAX };
    c->vocab = m->vocab;
    c->n_eos = m->n_eos;
    memcpy(c->eos, m->eos, m->n_eos * sizeof *c->eos);
    return tokenizer_parse(&r->tokenizer, "the stored tokenizer", m->tokenizer, m->n_tokenizer, m->vocab, e);
}

static int open_folder(struct text_reader *r, const struct job *job, const struct job_params *p,
                       struct err *e)
{
    if (config_read(&r->config, job->model, e) == 0 &&
        (!p->scaling || config_scale_context(&r->config, p->scaling, e) == 0) &&
        tokenizer_open(&r->tokenizer, job->model, r->config.vocab, e) == 0)
        return 0;
    return err_while(e,
                     "job %" PRId64 ": its text needs the tokenizer of its model, which this store does not "
                     "have yet (longhand doctor --repair keeps it); --format ids needs none",
                     job->id);
}

/* A job without tokens has no text that could be read wrongly. */
static void tell_unchecked(struct text_reader *r, const struct job *job)
{
    if (r->told || !job->tokens)
        return;
    r->told = true;
    fprintf(stderr,
            "job %" PRId64 ": the store does not have the tokenizer that wrote its text, so the one in %s "
            "reads it, unchecked; longhand doctor --repair keeps it\n",
            job->id, job->model);
}

int text_reader_open(struct text_reader *r, struct store *s, const struct job *job,
                     const struct job_params *p, struct err *e)
{
    const char *scaling = p->scaling ? p->scaling : "", *f = job->fingerprint;
    const bool same = r->tokenizer && strcmp(r->scaling, scaling) == 0;
    struct model_record m;
    if (same && f && strcmp(r->model, f) == 0)
        return 0;
    int stored = f ? store_model(s, f, &m, e) : 0;
    if (stored < 0)
        return -1;
    if (stored == 0 && same && strcmp(r->model, job->model) == 0) {
        tell_unchecked(r, job);
        return 0;
    }
    const bool told = r->told;
    text_reader_close(r);
    snprintf(r->model, sizeof r->model, "%s", stored ? f : job->model);
    snprintf(r->scaling, sizeof r->scaling, "%s", scaling);
    int rc = stored ? open_stored(r, &m, p, e) : open_folder(r, job, p, e);
    if (stored)
        model_record_free(&m);
    if (rc)
        text_reader_close(r);
    r->told = told;
    if (rc == 0 && !stored)
        tell_unchecked(r, job);
    return rc;
}

void text_reader_close(struct text_reader *r)
{
    tokenizer_close(r->tokenizer);
    *r = (struct text_reader){0};
}

/* ---- texts that grow ---- */

int grown_begin(struct grown_text *g, struct store *s, const struct job *job, struct err *e)
{
    return store_input(s, job->id, &g->in, e) ||
           job_parts_read(&g->parts, s, job->id, g->in.parameters, e) ? -1 : 0;
}

int grown_open(struct grown_text *g, struct store *s, const struct job *job, const struct text_reader *r,
               struct err *e)
{
    const struct job_input *in = &g->in;
    const int rc = (g->parts.v->params.chat &&
                    thoughts_begin(&g->thoughts, r->tokenizer, in->prompt_ids, in->n_prompt, e)) ||
                   replay_open(&g->replay, s, job, in, &g->parts, &r->config, r->tokenizer, e) ? -1 : 0;
    job_input_free(&g->in);
    return rc;
}

/* The bytes of a text with the last token: those that were released and those that are held back because they
 * may become a stop string or a code point, or have become one. */
static size_t bytes_of(const struct replay *y, size_t released)
{
    const struct emit *m = &y->emit;
    return released + m->n_held + m->stream.n_held;
}

/* Writes bytes of the text from place `at` on: to the thoughts or to the answer. */
static void put_at(struct grown_text *g, size_t at, const char *bytes, size_t n,
                   const struct grown_part *part)
{
    const struct thoughts *x = &g->thoughts;
    size_t thought = x->state == THOUGHTS_OPEN ? n : MIN(n, x->begins - MIN(x->begins, at));
    while (!g->answered && thought < n && thoughts_trims(x, bytes[thought]))
        thought++;
    g->answered |= thought < n;
    if (part->thought)
        fwrite(bytes, 1, thought, part->thought);
    fwrite(bytes + thought, 1, n - thought, part->to);
}

/* Writes the bytes that follow the first g->bytes. Those that a start mark may contain or follow wait. */
static int grown_put(struct grown_text *g, const char *bytes, size_t n, const struct grown_part *part,
                     struct err *e)
{
    const size_t at = g->bytes;
    g->bytes += n;
    if (g->thoughts.state == THOUGHTS_MAY) {
        char *early = realloc(g->early, g->n_early + n + 1);
        if (!early)
            return err_set(e, ERR_FAILED, "out of memory for a text of %zu bytes", g->bytes);
        if (n)
            memcpy(early + g->n_early, bytes, n);
        g->early = early;
        g->n_early += n;
        return 0;
    }
    put_at(g, at - g->n_early, g->early, g->n_early, part);
    g->n_early = 0;
    put_at(g, at, bytes, n, part);
    return 0;
}

int grown_more(struct grown_text *g, struct store *s, const struct job *job, const struct text_reader *r,
               const struct grown_part *part, struct err *e)
{
    struct replay *y = &g->replay;
    struct placed_text *t = &g->whole;
    int32_t *ids = NULL;
    size_t n = 0, n_bytes;
    const char *bytes;
    int rc = store_tokens(s, job->id, y->at, part->upto, &ids, &n, e);
    for (size_t i = 0; i < n && rc == 0 && y->emit.finish == FINISH_NONE; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= r->config.vocab) {
            rc = err_set(e, ERR_INPUT, "job %" PRId64 ": token %zu is %" PRId32 ", which this model's "
                         "tokenizer does not have", job->id, y->at, ids[i]);
            break;
        }
        const bool wanted = y->at >= part->from;
        replay_token(y, ids[i], &bytes, &n_bytes);
        const size_t stopped = y->emit.stop_string ? strlen(y->emit.stop_string) : 0;
        thoughts_token(&g->thoughts, ids[i], bytes_of(y, g->bytes + n_bytes) + stopped);
        if (wanted)
            rc = grown_put(g, bytes, n_bytes, part, e);
        else
            g->bytes += n_bytes;
        if (t->ends)
            t->ends[t->n_ends++] = bytes_of(y, g->bytes);
        if (y->emit.finish == FINISH_NONE && bytes_of(y, 0) == 0) {
            t->clear = y->at;
            t->clear_bytes = g->bytes;
        }
    }
    free(ids);
    return rc;
}

int grown_end(struct grown_text *g, const struct job *job, const struct grown_part *part, struct err *e)
{
    const char *bytes;
    size_t n;
    if (g->replay.emit.finish == FINISH_NONE) {
        replay_end(&g->replay, FINISH_NONE, &bytes, &n);
        if (g->replay.at > part->from && grown_put(g, bytes, n, part, e))
            return -1;
    }
    put_at(g, g->bytes - g->n_early, g->early, g->n_early, part);        /* no start mark follows */
    g->n_early = 0;
    return replay_check(&g->replay, job, e);
}

void grown_close(struct grown_text *g)
{
    if (g->replay.rules)
        replay_close(&g->replay);
    job_parts_close(&g->parts);
    thoughts_end(&g->thoughts);
    job_input_free(&g->in);
    free(g->early);
    placed_text_free(&g->whole);
    *g = (struct grown_text){0};
}

/* ---- whole texts ---- */

/* Where the answer begins: after the thoughts and the white space after them. */
static size_t answer_of(const struct placed_text *t, const struct thoughts *x, bool done)
{
    const bool open = x->state == THOUGHTS_OPEN || (x->state == THOUGHTS_MAY && !done);
    size_t at = open ? t->n : MIN(x->begins, t->n);
    while (at < t->n && thoughts_trims(x, t->text[at]))
        at++;
    return at;
}

/* A whole text is a text that grows at once. */
int job_read_text(struct text_reader *r, struct store *s, const struct job *job, struct placed_text *t,
                  struct err *e)
{
    const bool done = job->state == JOB_DONE;
    struct grown_text g = {0};
    *t = (struct placed_text){ .text = job->tokens ? NULL : calloc(1, 1) };
    if (t->text)                         /* an empty text needs no model */
        return 0;
    struct placed_text *x = &g.whole;
    FILE *f = memory_file(&x->text, &x->n);
    const struct grown_part part = { 0, job->tokens, f, f };
    x->ends = malloc((job->tokens + 1) * sizeof *x->ends);
    int rc = !f || !x->ends ? err_set(e, ERR_FAILED, "out of memory")
             : grown_begin(&g, s, job, e) || text_reader_open(r, s, job, &g.parts.v->params, e) ||
                     grown_open(&g, s, job, r, e) || grown_more(&g, s, job, r, &part, e) ||
                     (done && grown_end(&g, job, &part, e)) ? -1 : 0;
    if (rc == 0)                         /* what a start mark may follow is text here */
        fwrite(g.early, 1, g.n_early, f);
    if (f && stream_end(f) && rc == 0)
        rc = err_set(e, ERR_FAILED, "out of memory for a text of %zu bytes", g.bytes);
    if (rc == 0) {
        x->answer = answer_of(x, &g.thoughts, done);
        x->kept = x->n_ends;
        if (g.replay.emit.stop_string)
            do                           /* the last token completes the string */
                x->kept--;
            while (x->kept && x->ends[x->kept - 1] > x->n);
        *t = *x;
        *x = (struct placed_text){0};
    }
    grown_close(&g);
    return rc;
}

void placed_text_free(struct placed_text *t)
{
    free(t->text);
    free(t->ends);
    *t = (struct placed_text){0};
}

bool placed_text_find(const struct placed_text *t, const char *phrase, struct text_place *at)
{
    const size_t n = strlen(phrase), from = at->byte + (at->n > 0);
    const char *p = from <= t->n ? memmem(t->text + from, t->n - from, phrase, n) : NULL;
    if (!p)
        return false;
    at->byte = (size_t)(p - t->text);
    while (at->token < t->n_ends && t->ends[at->token] <= at->byte)
        at->token++;
    at->n++;
    return true;
}
