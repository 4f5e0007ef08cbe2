/* longhand submit: puts a text, or a batch of texts, into the queue. Start at cmd_submit. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/output.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"
#include "src/request/batch.h"
#include "src/request/grid.h"
#include "src/request/request.h"

/* Says how long the jobs that `word` selects will take, if this machine has completed a job of their model
 * and it is a minute or more. */
static void say_estimate(const struct options *o, struct store *s, const char *word)
{
    struct job_list jobs = {0};
    struct err ignored;
    char time[32];
    double seconds = NAN;
    if (jobs_from_word(s, word, &jobs, &ignored) == 0 &&
        store_estimate(s, &jobs, &seconds, &ignored) == 0 && seconds >= 60) {
        duration_text(time, seconds);
        request_notice(o, "about %s of work at the speed of the last job of this model", time);
    }
    job_list_free(&jobs);
}

/* Prints the name of a batch, and the estimate. */
static void put_name(const struct options *o, struct store *s, const char *name)
{
    char word[BATCH_NAME_BYTES_MAX + 2];
    puts(name);
    snprintf(word, sizeof word, "@%s", name);
    say_estimate(o, s, word);
}

static int submit_one(const struct options *o, struct err *e)
{
    struct request r = {0};
    struct engine g = {0};
    struct store *s = NULL;
    char word[48];
    int64_t *ids = calloc(o->samples, sizeof *ids);
    int rc = ids ? 0 : err_set(e, ERR_FAILED, "out of memory");
    if (rc == 0 && (rc = request_open(&r, o, &g, e)) == 0 &&
        (rc = store_from_options(&s, o, STORE_CREATE, e)) == 0)
        rc = request_submit(&r, &g, s, false, ids, e);
    for (size_t i = 0; i < o->samples && rc == 0; i++)
        printf("%" PRId64 "\n", ids[i]);
    if (rc == 0 && (rc = stdout_finish(e)) != 0) {
        if (o->samples == 1)
            err_while(e, "job %" PRId64 " is in the queue", ids[0]);
        else                             /* one transaction gives consecutive numbers */
            err_while(e, "jobs %" PRId64 " to %" PRId64 " are in the queue", ids[0], ids[o->samples - 1]);
    }
    if (rc == 0) {
        snprintf(word, sizeof word, "%" PRId64 "-%" PRId64, ids[0], ids[o->samples - 1]);
        say_estimate(o, s, word);
    }
    store_close(s);
    request_close(&r);
    engine_close(&g);
    free(ids);
    return rc;
}

static int submit_batch(const struct options *o, struct err *e)
{
    struct batch b = {0};
    struct store *s = NULL;
    int rc =
        batch_open(&b, o, e) || store_from_options(&s, o, STORE_CREATE, e) || batch_submit(&b, s, e) ? -1 : 0;
    if (rc == 0)
        put_name(o, s, b.name);
    store_close(s);
    batch_close(&b);
    return rc ? rc : stdout_finish(e);
}

static int submit_grid(const struct options *o, struct err *e)
{
    struct grid g;
    struct store *s = NULL;
    int rc = grid_open(&g, o, e) || store_from_options(&s, o, STORE_CREATE, e) || grid_submit(&g, s, e) ? -1
                                                                                                        : 0;
    if (rc == 0)
        put_name(o, s, g.name);
    store_close(s);
    grid_close(&g);
    return rc ? rc : stdout_finish(e);
}

int cmd_submit(const struct options *o, struct err *e)
{
    return o->grid.n ? submit_grid(o, e) : o->batch ? submit_batch(o, e) : submit_one(o, e);
}
