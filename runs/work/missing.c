/* The models that a worker could not read: struct missing, a short list. Start at missing_add. */
#include "runs/work/missing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/memory_file.h"
#include "src/model/fingerprint.h"

/* Make m->list anew. -1: no memory. */
static int write_list(struct missing *m)
{
    size_t n;
    free(m->list);
    m->list = NULL;
    FILE *f = missing_first(m) ? memory_file(&m->list, &n) : NULL;
    if (!f)
        return missing_first(m) ? -1 : 0;
    fputc('\n', f);
    for (size_t i = 0; i < m->n; i++)
        if (m->v[i].waits)
            fprintf(f, "%s\n", m->v[i].path);
    return stream_end(f) ? -1 : 0;
}

int missing_add(struct missing *m, const char *path, const struct err *why)
{
    size_t i = 0;
    while (i < m->n && strcmp(m->v[i].path, path))
        i++;
    if (i == m->n) {
        struct missing_model *v = realloc(m->v, (m->n + 1) * sizeof *v);
        m->v = v ? v : m->v;
        if (!v || !(v[i] = (struct missing_model){ .path = strdup(path) }).path)
            return -1;
        m->n++;
    }
    struct missing_model *x = &m->v[i];
    const bool is_new = strncmp(why->msg, x->why, sizeof x->why - 1) != 0;
    snprintf(x->why, sizeof x->why, "%.*s", (int)sizeof x->why - 1, why->msg);
    x->stamp = model_stamp(path);
    x->at = clock_seconds();
    x->waits = true;
    return write_list(m) ? -1 : is_new;
}

void missing_look_again(struct missing *m)
{
    bool changed = false;
    for (size_t i = 0; i < m->n; i++) {
        struct missing_model *x = &m->v[i];
        const bool late = clock_seconds() - x->at > MISSING_RETRY_SECONDS;
        if (x->waits && (late || model_stamp(x->path) != x->stamp)) {
            x->waits = false;
            changed = true;
        }
    }
    if (changed)
        write_list(m);                   /* without memory no job is left alone, which is right, too */
}

const struct missing_model *missing_first(const struct missing *m)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->v[i].waits)
            return &m->v[i];
    return NULL;
}

void missing_free(struct missing *m)
{
    for (size_t i = 0; i < m->n; i++)
        free(m->v[i].path);
    free(m->v);
    free(m->list);
    *m = (struct missing){0};
}
