/* The models that a worker could not read: struct missing, a short list. Start at missing_add. */
#include "runs/work/missing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/fingerprint.h"

/* Make m->list anew. -1: no memory. */
static int write_list(struct missing *m)
{
    size_t size = 2, at = 0;
    free(m->list);
    m->list = NULL;
    if (!missing_first(m))
        return 0;
    for (size_t i = 0; i < m->n; i++)
        size += strlen(m->v[i].path) + 1;
    m->list = malloc(size);
    if (!m->list)
        return -1;
    m->list[at++] = '\n';
    for (size_t i = 0; i < m->n; i++)
        if (m->v[i].waits)
            at += (size_t)sprintf(m->list + at, "%s\n", m->v[i].path);
    m->list[at] = 0;
    return 0;
}

int missing_add(struct missing *m, const char *path, const struct err *why)
{
    struct missing_model *x = m->v;
    while (x && x < m->v + m->n && strcmp(x->path, path))
        x++;
    if (!x || x == m->v + m->n) {
        struct missing_model *v = realloc(m->v, (m->n + 1) * sizeof *v);
        char *copy = strdup(path);
        if (v)
            m->v = v;
        if (!v || !copy) {
            free(copy);
            return -1;
        }
        x = &m->v[m->n++];
        *x = (struct missing_model){ .path = copy };
    }
    char text[sizeof x->why];
    snprintf(text, sizeof text, "%.*s", (int)sizeof text - 1, why->msg);
    const bool is_new = strcmp(text, x->why) != 0;
    memcpy(x->why, text, sizeof text);
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
