/* The tensors of a text model inside a wrapper (text_tensors.h). */
#include "src/model/text_tensors.h"

#include <stdio.h>
#include <string.h>

static const char *const prefixes[][2] = {
    { "model.language_model.", "model." }, { "language_model.model.", "model." },
    { "language_model.lm_head.", "lm_head." },   { "model.mtp.", "mtp." },
};

/* Writes the name under which the text model knows a tensor. Returns its bytes; 0: the name stays. */
static size_t put_name(char *to, const char *name)
{
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        const size_t n = strlen(prefixes[i][0]);
        if (strncmp(name, prefixes[i][0], n) == 0)
            return (size_t)sprintf(to, "%s%s", prefixes[i][1], name + n) + 1;
    }
    return 0;
}

static void flatten_convolution(struct tensor *t)
{
    static const char end[] = ".conv1d.weight";
    const size_t n = strlen(t->name);
    if (t->n_dims == 3 && t->dim[1] == 1 && n > sizeof end && strcmp(t->name + n + 1 - sizeof end, end) == 0)
        t->n_dims = 2, t->dim[1] = t->dim[2];
}

int tensors_take_text(struct tensors *ts, struct err *e)
{
    size_t bytes = 0;
    for (size_t i = 0; i < ts->n; i++)
        bytes += strlen(ts->t[i].name) + 1;
    char *room = tensors_extend(ts, ts->path[0], 0, bytes, e);
    if (!room)
        return -1;
    for (size_t i = 0; i < ts->n; i++) {
        const size_t n = put_name(room, ts->t[i].name);
        if (n)
            ts->t[i].name = room;
        room += n;
        flatten_convolution(&ts->t[i]);
    }
    return tensors_sort(ts, e);
}
