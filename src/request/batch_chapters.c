/* The lines of a batch file by custom_id, and those that continue others (batch_impl.h). Start at
 * batch_chain. */
#include "src/request/batch_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lines ---- */

int batch_grow(void **v, size_t n, size_t size, struct err *e)
{
    if (n && (n < 256 || n & (n - 1)))
        return 0;
    void *p = realloc(*v, MAX(2 * n, 256) * size);
    if (!p)
        return batch_no_memory(e);
    *v = p;
    return 0;
}

struct batch_seen *batch_find(const struct batch *b, const char *custom_id)
{
    struct batch_seen *s;
    HASH_FIND(hh, b->seen, custom_id, strlen(custom_id), s);
    return s;
}

int batch_add_seen(struct batch *b, struct batch_seen **out, const char *custom_id, size_t line,
                   struct err *e)
{
    struct batch_seen *s = batch_find(b, custom_id);
    size_t n = strlen(custom_id);
    if (s)
        return err_set(e, ERR_INPUT, "custom_id: \"%s\" is also in line %zu; each line needs its own",
                       custom_id, s->line);
    s = calloc(1, sizeof *s + n + 1);
    if (!s)
        return batch_no_memory(e);
    *out = s;
    s->line = line;
    memcpy(s->custom_id, custom_id, n + 1);
    HASH_ADD(hh, b->seen, custom_id[0], n, s);
    return 0;
}

int batch_bad_line(struct batch *b, const struct err *one, struct err *e)
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

int batch_check_bad(const struct batch *b, bool table, struct err *e)
{
    if (b->bad > 1)
        err_set(e, ERR_INPUT, "%s: %zu of %zu %ss are bad%s; nothing was queued%s", b->file, b->bad, b->lines,
                b->row, b->bad > BATCH_ERRORS_SHOWN ? ", the first 20 are above" : "",
                table ? " (with --lines each line is a prompt, --csv reads a table)" : "");
    return b->bad ? -1 : 0;
}

/* ---- chapters ---- */

int batch_defer(struct batch *b, struct batch_seen *seen, const char *after, const char *text, size_t n,
                struct err *e)
{
    const size_t n_name = strlen(b->name);
    if (*after == '@' && strncmp(after + 1, b->name, n_name) == 0 && after[1 + n_name] == '/')
        after += n_name + 2;             /* the batch itself */
    if (strcmp(after, seen->custom_id) == 0)
        return err_set(e, ERR_INPUT, "after: \"%s\" is this line itself", after);
    if (batch_grow((void **)&b->chapter, b->n_chapters, sizeof *b->chapter, e))
        return -1;
    struct batch_chapter *c = &b->chapter[b->n_chapters++];
    *c = (struct batch_chapter){ .seen = seen, .after = strdup(after), .text = strndup(text, n), .n = n };
    seen->chapter = b->n_chapters;
    return c->after && c->text ? 0 : batch_no_memory(e);
}

void batch_free_chapters(struct batch *b)
{
    for (size_t i = 0; i < b->n_chapters; i++) {
        free(b->chapter[i].after);
        free(b->chapter[i].text);
    }
    free(b->chapter);
}

/* The line of the file that a chapter continues; NULL: a stored job. */
static struct batch_seen *line_before(const struct batch *b, const struct batch_chapter *c)
{
    return *c->after == '@' ? NULL : batch_find(b, c->after);
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
static int find_before(const struct batch *b, struct batch_chapter *c, struct store *s, struct err *e)
{
    const struct batch_seen *seen = line_before(b, c);
    if (!seen)                           /* another shard's store has the job */
        return !s || !c->seen->mine ? 0 : find_job(b, c, s, e) ? -1 : 1;
    if (!seen->known)
        return 0;
    if (seen->samples != 1)
        return err_set(e, ERR_INPUT, "after: \"%s\" has %zu samples, and a chapter continues one text",
                       c->after, seen->samples);
    c->seen->mine = seen->mine;          /* a chain is in one shard */
    c->before = seen->lengths;
    return 1;
}

/* Refuses a chapter that continues itself, by way of others. */
static int check_circle(const struct batch *b, const struct batch_chapter *c, struct err *e)
{
    const struct batch_seen *at = line_before(b, c);
    for (size_t i = 0; i < b->n_chapters && at && at->chapter && at != c->seen; i++)
        at = line_before(b, &b->chapter[at->chapter - 1]);
    return at == c->seen ? err_set(e, ERR_INPUT, "after: \"%s\" waits for itself: it comes after \"%s\", and "
                                   "that one, directly or not, after \"%s\"",
                                   c->seen->custom_id, c->after, c->seen->custom_id)
                         : 0;
}

static int by_line(const void *a, const void *b)
{
    const struct job_spec *x = a, *y = b;
    return x->line != y->line ? (x->line > y->line) - (x->line < y->line)
                              : (x->sample > y->sample) - (x->sample < y->sample);
}

/* Reads the chapters that can be read now, or `circles`: refuses those that never can. How many; -1. */
static int read_some(struct batch *b, struct store *s, bool circles, struct batch_notes *notes, struct err *e)
{
    int read = 0;
    for (size_t i = 0; i < b->n_chapters; i++) {
        struct batch_chapter *c = &b->chapter[i];
        struct err one = {0};
        if (c->seen->known || c->seen->bad)
            continue;
        int rc = circles ? check_circle(b, c, &one) : find_before(b, c, s, &one);
        if (rc < 0)
            err_while(&one, "%s: %s %zu", b->file, b->row, c->seen->line);
        if (rc == 1) {
            read++;
            rc = b->read_line(b, c->seen->line, c->seen->mine, c->text, c->n, c, notes, &one);
        }
        c->seen->bad = rc < 0;
        if (rc < 0 && batch_bad_line(b, &one, e))
            return -1;
    }
    return read;
}

int batch_chain(struct batch *b, struct store *s, struct batch_notes *notes, struct err *e)
{
    int read;
    while ((read = read_some(b, s, false, notes, e)) > 0)
        ;
    if (read < 0 || read_some(b, s, true, notes, e) < 0)
        return -1;
    if (b->n_chapters && b->n)
        qsort(b->spec, b->n, sizeof *b->spec, by_line);
    return 0;
}
