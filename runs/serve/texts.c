/* Texts of jobs. The tokens come from the store, and a few tokenizers are shared by all threads. Start at
 * growing_more and answer_flow. */
#include "runs/serve/http.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/memory_file.h"

static const double LOOK_SECONDS = 1, SILENT_SECONDS = 15;

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
    return grown_begin(&g->text, sv->reader, job, e) ||
           take_reader(sv, &g->reader, job, &g->text.parts.v->params, e) ||
           grown_open(&g->text, sv->reader, job, &g->reader->reader, e) ? -1 : 0;
}

/* The next tokens: 1: there may be more. */
static int put_next(struct server *sv, struct growing *g, const struct job *job, FILE *to, FILE *thought,
                    struct err *e)
{
    enum { AT_ONCE = 4096 };
    const struct replay *y = &g->text.replay;
    const size_t before = y->at;
    const struct grown_part part = { g->from, MIN(before + AT_ONCE, job_final(job)), to, thought };
    if (grown_more(&g->text, sv->reader, job, &g->reader->reader, &part, e))
        return -1;
    if (y->at == before + AT_ONCE && y->emit.finish == FINISH_NONE)
        return 1;
    g->over = job->state == JOB_DONE;
    return g->over ? grown_end(&g->text, job, &part, e) : 0;
}

int growing_more(struct server *sv, struct growing *g, const struct job *job, FILE *to, FILE *thought,
                 struct err *e)
{
    int rc = 1;
    if (g->over || (!job->tokens && job->state != JOB_DONE))
        return 0;
    while (rc == 1) {                    /* other threads have their turn meanwhile */
        pthread_mutex_lock(&sv->reading);
        rc = g->reader ? 0 : begin(sv, g, job, e);
        rc = rc ? rc : put_next(sv, g, job, to, thought, e);
        pthread_mutex_unlock(&sv->reading);
    }
    return rc;
}

int growing_text(struct server *sv, struct growing *g, const struct job *job, struct grown_answer *x,
                 struct err *e)
{
    *x = (struct grown_answer){ 0 };
    FILE *f = memory_file(&x->text, &x->n), *thought = memory_file(&x->thought, &x->n_thought);
    const int rc = f && thought ? growing_more(sv, g, job, f, thought, e) : 0;
    const bool lost = (!f || stream_end(f)) | (!thought || stream_end(thought));
    return lost && rc == 0 ? err_set(e, ERR_FAILED, "out of memory for a text") : rc;
}

void grown_answer_free(struct grown_answer *x)
{
    free(x->text);
    free(x->thought);
}

void growing_close(struct server *sv, struct growing *g)
{
    pthread_mutex_lock(&sv->reading);
    grown_close(&g->text);
    if (g->reader)
        g->reader->users--;
    pthread_mutex_unlock(&sv->reading);
    *g = (struct growing){0};
}

/* ---- answers that grow ---- */

/* The next bytes, after a wait: 0; -1: the client is gone, or the answer cannot go on. */
static int fill(struct flow *x)
{
    struct server *sv = x->c->sv;
    while (!x->over) {
        const uint64_t seen = news_count(sv, x->ids, x->n);
        free(x->out);
        x->out = NULL;
        x->at = x->n_out = 0;
        FILE *f = call_is_gone(x->c) ? NULL : memory_file(&x->out, &x->n_out);
        if (!f)
            return -1;
        const int more = x->more(x, f);
        x->over = more == 0;
        if (more == 1 && x->silence && clock_seconds() - x->sent >= SILENT_SECONDS)
            fputs(x->silence, f);
        if (stream_end(f) || more < 0)
            return -1;
        if (x->n_out)
            return 0;
        if (!x->over)
            news_wait(sv, x->ids, x->n, seen, LOOK_SECONDS);
    }
    return 0;
}

static ssize_t flow_read(void *ctx, uint64_t position, char *to, size_t max)
{
    struct flow *x = ctx;
    (void)position;
    if (x->at == x->n_out && fill(x))
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (x->at == x->n_out)
        return MHD_CONTENT_READER_END_OF_STREAM;
    const size_t n = MIN(max, x->n_out - x->at);
    memcpy(to, x->out + x->at, n);
    x->at += n;
    x->sent = clock_seconds();
    return (ssize_t)n;
}

int answer_flow(struct flow *x, const char *type)
{
    enum { BLOCK = 16384 };
    x->sent = clock_seconds();
    return call_respond(x->c, MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, flow_read, x, NULL),
                        type);
}
