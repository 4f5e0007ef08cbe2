/* Texts of jobs. The tokens come from the store, and a few tokenizers are shared by all threads. Start at
 * growing_more. */
#include "runs/serve/texts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- all under the lock `reading` ---- */

/* The tokenizer of a job that has begun: one that is open, else one that nobody uses. */
static int take_reader(struct server *sv, struct shared_reader **out, const struct job *job,
                       const struct job_params *p, struct err *e)
{
    const char *scaling = p->scaling ? p->scaling : "";
    struct shared_reader *x = NULL;
    for (size_t i = 0; i < READERS; i++) {
        struct text_reader *r = &sv->texts[i].reader;
        const bool same = r->tokenizer && job->fingerprint && strcmp(r->model, job->fingerprint) == 0 &&
                          strcmp(r->scaling, scaling) == 0;
        if (same || (!x && !sv->texts[i].users))
            x = &sv->texts[i];
        if (same)
            break;
    }
    if (!x)
        return err_set(e, ERR_AGAIN, "texts of more than %d models are being read at once", READERS);
    if (text_reader_open(&x->reader, sv->reader, job, p, e))
        return -1;
    x->users++;
    *out = x;
    return 0;
}

static int begin(struct server *sv, struct growing *g, const struct job *job, struct err *e)
{
    struct job_input in;
    if (store_input(sv->reader, job->id, &in, e))
        return -1;
    const bool at_start = in.prompt_bytes == 0;
    int rc = job_parts_read(&g->parts, sv->reader, job->id, in.parameters, e);
    job_input_free(&in);
    if (rc || take_reader(sv, &g->reader, job, &g->parts.v->params, e))
        return -1;
    return replay_open(&g->replay, sv->reader, job, &g->parts, &g->reader->reader.config,
                       g->reader->reader.tokenizer, at_start && !g->parts.v->params.chat, e);
}

/* The next tokens, of which there are at most `final`: 1: there may be more. */
static int put_tokens(struct server *sv, struct growing *g, const struct job *job, FILE *to, struct err *e)
{
    enum { AT_ONCE = 4096 };
    const size_t final = job_final(job);
    struct replay *y = &g->replay;
    int32_t *ids = NULL;
    size_t n = 0, n_bytes;
    const char *bytes;
    int rc = store_tokens(sv->reader, job->id, y->at, MIN(y->at + AT_ONCE, final), &ids, &n, e);
    for (size_t i = 0; i < n && rc == 0 && y->emit.finish == FINISH_NONE; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= g->reader->reader.config.vocab) {
            rc = err_set(e, ERR_FAILED, "job %" PRId64 ": token %zu is %" PRId32 ", which its tokenizer does "
                         "not have", job->id, y->at, ids[i]);
            break;
        }
        const bool wanted = y->at >= g->from;
        replay_token(y, ids[i], &bytes, &n_bytes);
        if (wanted)
            fwrite(bytes, 1, n_bytes, to);
    }
    free(ids);
    if (rc == 0 && n == AT_ONCE && y->emit.finish == FINISH_NONE)
        return 1;
    if (rc || job->state != JOB_DONE)
        return rc;
    if (y->emit.finish == FINISH_NONE) {
        replay_flush(y, &bytes, &n_bytes);
        if (y->at > g->from)
            fwrite(bytes, 1, n_bytes, to);
    }
    g->over = true;
    return replay_check(y, job, e);
}

int growing_more(struct server *sv, struct growing *g, const struct job *job, FILE *to, struct err *e)
{
    int rc = 1;
    if (g->over || (!job->tokens && job->state != JOB_DONE))
        return 0;
    while (rc == 1) {                    /* other threads have their turn meanwhile */
        pthread_mutex_lock(&sv->reading);
        rc = g->reader ? 0 : begin(sv, g, job, e);
        rc = rc ? rc : put_tokens(sv, g, job, to, e);
        pthread_mutex_unlock(&sv->reading);
    }
    return rc;
}

void growing_close(struct server *sv, struct growing *g)
{
    pthread_mutex_lock(&sv->reading);
    if (g->replay.rules)
        replay_close(&g->replay);
    if (g->reader)
        g->reader->users--;
    pthread_mutex_unlock(&sv->reading);
    job_parts_close(&g->parts);
    *g = (struct growing){0};
}
