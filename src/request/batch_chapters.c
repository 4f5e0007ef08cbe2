/* Takes the lines of a batch file one by one, and those that continue others in the order of their chains.
 * Start at batch_take_line and batch_chain. */
#include "src/request/batch_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/stopping.h"

/* ---- lines ---- */

/* Counts and prints a bad line. -1: `one` is no mistake of the file. */
static int bad_line(struct batch *b, const struct err *one, struct err *e)
{
    if (one->code != ERR_INPUT) {
        *e = *one;
        return -1;
    }
    if (++b->bad == 2)
        fprintf(stderr, "%s\n", e->msg);
    if (b->bad == 1)
        *e = *one;
    else if (b->bad <= BATCH_ERRORS_SHOWN)
        fprintf(stderr, "%s\n", one->msg);
    return 0;
}

int batch_take_line(struct batch *b, size_t line, const char *text, size_t n, struct err *e)
{
    struct err one = {0};
    b->lines++;
    if (stop_signal)
        return err_set(e, ERR_AGAIN, "stopped by %s; nothing was queued", stop_signal_name());
    return batch_read_line(b, line, text, n, NULL, &one) ? bad_line(b, &one, e) : 0;
}

/* ---- chapters ---- */

/* The line of the file that a chapter continues; NULL: a stored job. */
static const struct batch_seen *line_before(const struct batch *b, const struct batch_seen *seen)
{
    return *seen->chapter->after == '@' ? NULL : batch_find(b, seen->chapter->after);
}

/* Finds the stored job that a chapter continues. */
static int find_job(const struct batch *b, struct batch_chapter *c, struct store *s, struct err *e)
{
    struct selection sel = {0};
    char word[BATCH_NAME_BYTES_MAX + BATCH_CUSTOM_ID_BYTES_MAX + 4];
    const char *const words[] = { word };
    const struct selection_words w = { .v = words, .n = 1 };
    int64_t *ids = NULL;
    size_t n = 0;
    if (*c->after == '@')
        snprintf(word, sizeof word, "%s", c->after);
    else
        snprintf(word, sizeof word, "@%s/%s", b->name, c->after);
    int rc = selection_parse(&sel, &w, e) || store_select(s, &sel, &ids, &n, e) ? -1 : 0;
    if (rc && e->code == ERR_INPUT)
        err_set(e, ERR_INPUT, "after: \"%s\" is no custom_id of this file, and no job is %s", c->after, word);
    if (rc == 0 && n != 1)
        rc = err_set(e, ERR_INPUT, "after: \"%s\" are %zu jobs, one is allowed", c->after, n);
    if (rc == 0) {
        c->job = ids[0];
        rc = store_lengths(s, c->job, &c->before, e);
    }
    selection_free(&sel);
    free(ids);
    return rc;
}

/* What is before a chapter: 1; 0: not known yet; -1. */
static int find_before(const struct batch *b, struct batch_seen *seen, struct store *s, struct err *e)
{
    const struct batch_seen *before = line_before(b, seen);
    if (!before)                         /* another shard's store has the job */
        return !s || !seen->mine ? 0 : find_job(b, seen->chapter, s, e) ? -1 : 1;
    if (before->samples > 1)
        return err_set(e, ERR_INPUT, "after: \"%s\" has %zu samples, and a chapter continues one text",
                       seen->chapter->after, before->samples);
    seen->mine = before->mine;           /* a chain is in one shard */
    seen->chapter->before = before->lengths;
    return (int)before->samples;
}

/* Refuses a chapter that continues itself, by way of others. */
static int check_circle(const struct batch *b, const struct batch_seen *seen, struct err *e)
{
    const struct batch_seen *at = line_before(b, seen);
    for (size_t i = 0; i < HASH_COUNT(b->seen) && at && at->chapter && at != seen; i++)
        at = line_before(b, at);
    if (at != seen)
        return 0;
    return err_set(e, ERR_INPUT, "after: \"%s\" waits for itself: it comes after \"%s\", and that one, "
                   "directly or not, after \"%s\"", seen->custom_id, seen->chapter->after, seen->custom_id);
}

static int by_line(const void *a, const void *b)
{
    const struct job_spec *x = a, *y = b;
    return x->line != y->line ? (x->line > y->line) - (x->line < y->line)
                              : (x->sample > y->sample) - (x->sample < y->sample);
}

/* Reads the chapters that can be read now, or `circles`: refuses those that never can. How many; -1. */
static int read_some(struct batch *b, struct store *s, bool circles, struct err *e)
{
    int read = 0;
    for (struct batch_seen *seen = b->seen; seen; seen = seen->hh.next) {
        struct batch_chapter *c = seen->chapter;
        struct err one = {0};
        if (!c || seen->samples || c->bad)
            continue;
        int rc = circles ? check_circle(b, seen, &one) : find_before(b, seen, s, &one);
        if (rc < 0)
            err_while(&one, "%s: %s %zu", b->file, b->row, seen->line);
        if (rc == 1) {
            read++;
            rc = batch_read_line(b, seen->line, c->text, c->n, seen, &one);
        }
        c->bad = rc < 0;
        if (rc < 0 && bad_line(b, &one, e))
            return -1;
    }
    return read;
}

int batch_chain(struct batch *b, struct store *s, struct err *e)
{
    int read;
    bool any = false;
    while ((read = read_some(b, s, false, e)) > 0)
        any = true;
    if (read < 0 || read_some(b, s, true, e) < 0)
        return -1;
    if (any && b->n)
        qsort(b->spec, b->n, sizeof *b->spec, by_line);
    return 0;
}
