#include "src/cmd_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int store_from_options(struct store **s, const struct options *o, enum store_mode mode, struct err *e)
{
    char path[PATH_BYTES];
    const char *env = getenv("LONGHAND_DB"), *db = o->db.n ? o->db.v[o->db.n - 1] : env && *env ? env : NULL;
    const struct store_options so = { .mode = mode, .shared_db = o->shared_db };
    if (!db && store_default_path(path, sizeof path, e))
        return -1;
    if (store_open(s, db ? db : path, &so, e))
        return -1;
    if (store_notice(*s) && !o->quiet)
        fprintf(stderr, "%s\n", store_notice(*s));
    return 0;
}

int jobs_from_options(struct store *s, const struct options *o, bool every, int64_t **ids, struct job_list *jobs, struct err *e)
{
    struct selection sel;
    size_t n = 0;
    *ids = NULL;
    *jobs = (struct job_list){0};
    int rc = selection_parse(&sel, o->arg, o->n_args, o->state, o->all || (every && !o->n_args && !o->state), e);
    if (rc == 0)
        rc = store_select(s, &sel, ids, &n, e);
    selection_free(&sel);
    if (rc == 0)
        rc = store_jobs(s, *ids, n, jobs, e);
    if (rc) {
        free(*ids);
        *ids = NULL;
    }
    return rc;
}

int job_from_word(struct store *s, const char *word, struct job_list *jobs, struct err *e)
{
    struct selection sel;
    int64_t *ids = NULL;
    size_t n = 0;
    *jobs = (struct job_list){0};
    int rc = selection_parse(&sel, &word, 1, NULL, false, e);
    if (rc == 0)
        rc = store_select(s, &sel, &ids, &n, e);
    selection_free(&sel);
    if (rc == 0 && n != 1)
        rc = err_set(e, ERR_INPUT, "%s: %zu jobs, one is needed", word, n);
    if (rc == 0)
        rc = store_jobs(s, ids, n, jobs, e);
    if (rc == 0 && jobs->n != 1) {
        job_list_free(jobs);
        rc = err_set(e, ERR_INPUT, "there is no job %s", word);
    }
    free(ids);
    return rc;
}

void printable(char *out, size_t size, const char *s)
{
    struct err e;
    err_set(&e, 0, "%s", s);
    size_t n = strlen(e.msg);
    if (n >= size) {
        n = utf8_valid_prefix(e.msg, size - 4);
        memcpy(e.msg + n, "...", 4);
    }
    memcpy(out, e.msg, strlen(e.msg) + 1);
}

int text_reader_for(struct text_reader *r, const struct job *job, const struct job_params *p, struct err *e)
{
    const char *scaling = p->scaling ? p->scaling : "";
    if (r->tokenizer && strcmp(r->path, job->model) == 0 && strcmp(r->scaling, scaling) == 0)
        return 0;
    text_reader_close(r);
    snprintf(r->path, sizeof r->path, "%s", job->model);
    snprintf(r->scaling, sizeof r->scaling, "%s", scaling);
    if (config_read(&r->config, r->path, e) || (p->scaling && config_scale_context(&r->config, p->scaling, e)) ||
        tokenizer_open(&r->tokenizer, r->path, r->config.vocab, e)) {
        text_reader_close(r);
        return err_while(e, "job %" PRId64 ": its text needs the tokenizer of its model; --format ids reads it without", job->id);
    }
    return 0;
}

void text_reader_close(struct text_reader *r)
{
    tokenizer_close(r->tokenizer);
    *r = (struct text_reader){0};
}

int job_read_text(struct text_reader *r, struct store *s, const struct job *job, char **text, size_t *n, struct err *e)
{
    struct job_params p = {0};
    struct job_input in = {0};
    struct replay y = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0, room = 0, n_bytes;
    const char *bytes;
    *text = NULL;
    *n = 0;
    int rc = store_input(s, job->id, &in, e);
    if (rc == 0 && (rc = job_parse(&p, in.parameters, e)) == 0 && (rc = text_reader_for(r, job, &p, e)) == 0 &&
        (rc = store_tokens(s, job->id, 0, SIZE_MAX, &ids, &n_ids, e)) == 0)
        rc = replay_open(&y, s, job, &p, &r->config, r->tokenizer, in.prompt_bytes == 0 && !p.chat, e);
    bool open = rc == 0;
    for (size_t i = 0; rc == 0 && i <= n_ids && y.emit.finish == FINISH_NONE; i++) {
        if (i == n_ids && job->state != JOB_DONE)
            break;
        if (i == n_ids) {                /* an end-of-text token is not stored: the text ends here */
            emit_flush(&y.emit, &bytes, &n_bytes);
        } else if (ids[i] < 0 || (size_t)ids[i] >= r->config.vocab) {
            rc = err_set(e, ERR_INPUT, "job %" PRId64 ": token %zu is %" PRId32 ", which this model's tokenizer does not have", job->id, i, ids[i]);
            break;
        } else {
            replay_token(&y, ids[i], &bytes, &n_bytes);
        }
        if (*n + n_bytes + 1 > room) {
            room = 2 * (*n + n_bytes) + 4096;
            char *q = realloc(*text, room);
            if (!q) {
                rc = err_set(e, ERR_FAILED, "out of memory for a text of %zu bytes", room);
                break;
            }
            *text = q;
        }
        memcpy(*text + *n, bytes, n_bytes);
        *n += n_bytes;
    }
    if (rc == 0 && !*text)
        *text = calloc(1, 1);
    if (rc == 0)
        (*text)[*n] = 0;
    if (open)
        replay_close(&y);
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
    int rc = store_tokens(s, job->id, 0, SIZE_MAX, ids, &n_all, e);
    for (size_t i = 0, k = 0; rc == 0 && i < n_all; i++) {
        while (k < spans.n && (strcmp(spans.v[k].kind, "given") || i >= spans.v[k].start + spans.v[k].n))
            k++;
        if (k == spans.n || i < spans.v[k].start)
            (*ids)[(*n)++] = (*ids)[i];
    }
    span_list_free(&spans);
    return rc;
}
