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

/* --after and what belongs to it. *append: for free. */
static int after_from_options(struct request_after *a, char **append, const struct options *o,
                              struct store *s, struct err *e)
{
    struct job_list jobs = {0};
    size_t n;
    *a = (struct request_after){ .chapter.carry = options_given(o, "carry") ? (int64_t)o->carry : -1 };
    if (o->samples != 1)
        return err_set(e, ERR_INPUT, "--after and --samples: a chapter is one text");
    if (append_from_options(o, append, &n, e) || job_from_word(s, o->after, &jobs, e))
        return -1;
    a->chapter.after = jobs.v[0].id;
    a->chapter.append = *append;
    const bool chat = o->chat || o->messages;
    a->chapter.prompted = chat ? a->chapter.carry >= 0 : o->prompt || o->prompt_file;
    if (chat && *append) {
        job_list_free(&jobs);
        return err_set(e, ERR_INPUT,
                       "--append and --chat: a chat has no given text; the next message can say it");
    }
    job_list_free(&jobs);
    return store_lengths(s, a->chapter.after, &a->before, e);
}

static int submit_one(const struct options *o, struct err *e)
{
    struct request r = {0};
    struct request_after after;
    struct options own = *o;
    static struct engine g;
    struct store *s = NULL;
    char word[48], *append = NULL;
    int64_t *ids = calloc(o->samples, sizeof *ids);
    int rc = ids ? 0 : err_set(e, ERR_FAILED, "out of memory");
    if (rc == 0 && o->after) {
        rc = store_from_options(&s, o, STORE_WRITE, e) || after_from_options(&after, &append, o, s, e) ? -1
                                                                                                       : 0;
        own.tokens = o->tokens || rc ? o->tokens : after.before.sampled;
    }
    if (rc == 0 && (rc = request_open(&r, &own, &g, o->after ? &after : NULL, e)) == 0 && !s)
        rc = store_from_options(&s, o, STORE_CREATE, e);
    if (rc == 0)
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
    free(append);
    free(ids);
    return rc;
}

/* A batch, or the jobs of a grid. */
static int submit_many(const struct options *o, struct err *e)
{
    struct batch b = {0};
    static struct grid g;
    struct store *s = NULL;
    const bool grid = o->grid.n > 0;
    char word[BATCH_NAME_BYTES_MAX + 2];
    int rc = (grid ? grid_open(&g, o, e) : batch_open(&b, o, e)) ||
             store_from_options(&s, o, STORE_CREATE, e) ||
             (grid ? grid_submit(&g, s, e) : batch_submit(&b, s, e)) ? -1 : 0;
    if (rc == 0) {
        snprintf(word, sizeof word, "@%s", grid ? g.name : b.name);
        puts(word + 1);
        say_estimate(o, s, word);
    }
    store_close(s);
    if (grid)
        grid_close(&g);
    else
        batch_close(&b);
    return rc ? rc : stdout_finish(e);
}

int cmd_submit(const struct options *o, struct err *e)
{
    static const char *const others[] = { "carry", "append", "append-file" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (options_given(o, others[i]) && !o->after)
            return err_set(e, ERR_INPUT, "submit: --%s needs --after", others[i]);
    if (o->after && (o->batch || o->grid.n))
        return err_set(e, ERR_INPUT, "--after and --%s: %s", o->batch ? "batch" : "grid",
                       o->batch ? "the lines of a batch have their own" : "a chapter is one text");
    return o->grid.n || o->batch ? submit_many(o, e) : submit_one(o, e);
}
