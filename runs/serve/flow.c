/* Answers that grow. Start at flow_read. */
#include "runs/serve/flow.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/memory_file.h"

static const double LOOK_SECONDS = 1, SILENT_SECONDS = 15;

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
        const int more = x->more(x->ctx, f);
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

ssize_t flow_read(void *ctx, uint64_t position, char *to, size_t max)
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
