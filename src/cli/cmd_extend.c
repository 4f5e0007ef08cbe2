/* longhand extend, fork: continues a text after its end, or from an earlier place (runs/work/edit.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runs/work/edit.h"
#include "src/base/output.h"
#include "src/cli/cmd_store.h"
#include "src/cli/verbs.h"

/* --from-here: the bytes of the text that the edit keeps, which are not printed. A character that the last
 * kept token leaves incomplete counts as new. */
static int old_bytes(struct edit *d, size_t *n, struct err *e)
{
    static const char broken[] = "\xEF\xBF\xBD";
    struct placed_text t;
    if (!d->o->from_here || d->to.at == 0)
        return 0;
    const char *retakes = params_retake_option(job_parts_last(&d->parts));
    if (d->after_end && !d->to.add.n && !d->parameters && retakes)
        return err_set(e, ERR_INPUT, "extend: --from-here: job %" PRId64 " has %s, which may take back "
                       "tokens from before its end; leave out --from-here", d->job->id, retakes);
    if (job_read_text(&d->reader, d->s, d->job, &t, e))
        return -1;
    *n = d->after_end || d->to.at >= d->job->tokens ? t.n : t.ends[d->to.at - 1];
    while (*n >= 3 && memcmp(t.text + *n - 3, broken, 3) == 0)
        *n -= 3;
    placed_text_free(&t);
    return 0;
}

/* --run: the change is made when nothing refuses the job any more. */
static int change_and_run(struct edit *d, struct err *e)
{
    char number[24];
    struct options run = *d->o;
    snprintf(number, sizeof number, "%" PRId64, d->job->id);
    run.resume = number;
    run.from_here = false;               /* old_bytes */
    struct run_change c = { .job = { d->job->id, d->job->model, d->parameters, d->to.at, d->to.wanted,
                                     d->o->accept_change },
                            .make = edit_make, .ctx = d };
    return old_bytes(d, &c.skip, e) || run_changed(&run, d->s, &c, e) ? -1 : 0;
}

static int change(struct edit *d, struct job_list *jobs, int64_t *id, struct err *e)
{
    const struct options *o = d->o;
    struct moved_model model;
    if (!o->run_now && (o->output || o->from_here))
        return err_set(e, ERR_INPUT, "%s: --%s needs --run", o->verb->name,
                       o->output ? "output" : "from-here");
    if (store_from_options(&d->s, o, STORE_WRITE, e) || job_from_word(d->s, o->arg[0], jobs, e) ||
        model_from_options(&model, o, d->s, jobs, e))
        return -1;
    d->job = jobs->v;
    if (model.given) {
        d->job->model = model.path;      /* as the job will have it */
        d->to.model = &model.place;
    }
    if (edit_open(d, e) || edit_plan(d, e))
        return -1;
    return o->run_now ? change_and_run(d, e) : edit_make(d, id, e);
}

int cmd_edit(const struct options *o, struct err *e)
{
    struct edit d = { .o = o };
    struct job_list jobs = {0};
    int64_t id = 0;
    const int rc = change(&d, &jobs, &id, e);
    const bool is_new = d.later || o->verb->bit == VERB_FORK;
    if (rc == 0 && d.later && !o->quiet)
        fprintf(stderr, "job %" PRId64 " goes on with the text of job %" PRId64 " when that one is done\n",
                id, d.job->id);
    edit_close(&d);
    job_list_free(&jobs);
    store_close(d.s);
    if (rc || o->run_now)
        return rc;
    if (is_new)
        printf("%" PRId64 "\n", id);
    if (!d.later && !o->quiet)
        fprintf(stderr, "job %" PRId64 " is queued: longhand run --resume %" PRId64 " writes it, and so does "
                "longhand work\n", id, id);
    return is_new && stdout_finish(e) ? err_while(e, "job %" PRId64 " is in the queue", id) : 0;
}
