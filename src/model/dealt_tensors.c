/* Experts of gpt-oss as published. Start at tensors_deal_experts. */
#include "src/model/dealt_tensors.h"

#include <stdio.h>
#include <string.h>

#include "src/model/config.h"

enum { BLOCK = 32, NIBBLES = 16, BLOCK_BYTES = 1 + NIBBLES };

/* The tensors after ".mlp.experts.", and the parts that take their rows in turn. */
static const struct dealt { const char *name; bool matrix; size_t turns; const char *part[2]; } dealt[] = {
    { "gate_up_proj_blocks", true, 2, { "gate_proj", "up_proj" } },
    { "gate_up_proj_bias", false, 2, { "gate_proj", "up_proj" } },
    { "down_proj_blocks", true, 1, { "down_proj" } },
    { "down_proj_bias", false, 1, { "down_proj" } },
};
static const char experts[] = ".mlp.experts.";

static const struct dealt *dealt_of(const char *name)
{
    const char *s = strstr(name, experts);
    for (size_t i = 0; s && i < sizeof dealt / sizeof *dealt; i++)
        if (strcmp(s + strlen(experts), dealt[i].name) == 0)
            return &dealt[i];
    return NULL;
}

bool tensor_is_dealt_scales(const struct tensor *t) { return t->turns && t->dtype == DT_OTHER; }

static int bad_shape(const struct tensors *ts, const struct tensor *t, const char *needed, struct err *e)
{
    return err_set(e, ERR_INPUT, "%s: tensor \"%.*s\": dtype %s with %zu dimensions; needed is %s",
                   ts->path[t->shard], TENSOR_NAME_SHOWN, t->stored_name, t->dtype_name, t->n_dims, needed);
}

/* The scales of a tensor of blocks. */
static const struct tensor *find_scales(const struct tensors *ts, const struct tensor *t, struct err *e)
{
    char name[TENSOR_NAME_MAX + 1];
    const size_t n = strlen(t->name) - strlen("blocks");
    snprintf(name, sizeof name, "%.*sscales", (int)n, t->name);
    const struct tensor *s = tensors_find(ts, name);
    if (!s)
        err_set(e, ERR_INPUT, "%s: tensor \"%.*s\" is missing, the scales of \"%.*s\"", ts->path[t->shard],
                TENSOR_NAME_SHOWN, name, TENSOR_NAME_SHOWN, t->stored_name);
    else if (strcmp(s->dtype_name, "U8") || s->n_dims != 3 || memcmp(s->dim, t->dim, 3 * sizeof *t->dim))
        s = NULL, bad_shape(ts, tensors_find(ts, name), "U8, the scales of the blocks of each row", e);
    return s;
}

static int check(const struct tensors *ts, const struct tensor *t, const struct dealt *d, struct err *e)
{
    char needed[128];
    snprintf(needed, sizeof needed, "%s for up to %d experts with %srows",
             d->matrix ? "U8 [experts, rows, blocks, 16]" : "BF16, F16 or F32 [experts, rows]", EXPERTS_MAX,
             d->turns > 1 ? "an even number of " : "");
    if (t->n_dims != (d->matrix ? 4 : 2) || !t->dim[0] || t->dim[0] > EXPERTS_MAX || !t->dim[1] ||
        t->dim[1] % d->turns || (d->matrix ? strcmp(t->dtype_name, "U8") || t->dim[3] != NIBBLES || !t->dim[2]
                                           : !tensor_is_float(t->dtype)))
        return bad_shape(ts, t, needed, e);
    if (d->matrix && t->dim[2] > TENSOR_SCALES_READ / d->turns)
        return err_set(e, ERR_INPUT, "%s: tensor \"%.*s\": rows of %zu blocks, at most %zu are allowed",
                       ts->path[t->shard], TENSOR_NAME_SHOWN, t->stored_name, t->dim[2],
                       TENSOR_SCALES_READ / d->turns);
    return !d->matrix || find_scales(ts, t, e) ? 0 : -1;
}

/* Writes the parts of all experts of a tensor to `to`. Returns the bytes of their names. */
static size_t deal(struct tensor *to, const struct tensor t, const struct tensor *scales,
                   const struct dealt *d, char *room)
{
    const size_t rows = t.dim[1], cols = d->matrix ? t.dim[2] * BLOCK : 1, n = t.dim[0] * d->turns;
    const char *s = strstr(t.name, experts) + strlen(experts);
    char *at = room;
    for (size_t i = 0; i < n; i++, to++) {
        const size_t x = i / d->turns;
        *to = t;
        to->turns = d->turns, to->turn = i % d->turns;
        to->dim[0] = rows / d->turns, to->dim[1] = cols, to->n_dims = d->matrix ? 2 : 1;
        to->n_elements = to->dim[0] * cols;
        to->offset = t.offset + x * (t.bytes / t.dim[0]);
        to->bytes = t.bytes / n;
        if (d->matrix) {
            to->dtype = DT_MXFP4, to->dtype_name = "MXFP4";
            to->bytes = to->n_elements / BLOCK * BLOCK_BYTES;
            to->scales_shard = scales->shard;
            to->scales_offset = scales->offset + x * (scales->bytes / scales->dim[0]);
        }
        to->name = at;
        at += sprintf(at, "%.*s%zu.%s.%s", (int)(s - t.name), t.name, x, d->part[i % d->turns],
                      d->matrix ? "weight" : "bias") + 1;
    }
    return (size_t)(at - room);
}

int tensors_deal_experts(struct tensors *ts, struct err *e)
{
    enum { MORE = 32 };                  /* bytes by which a name grows */
    const size_t n = ts->n;
    size_t parts = 0, bytes = 0, kept = 0;
    for (size_t i = 0; i < n; i++) {
        const struct tensor *t = &ts->t[i];
        const struct dealt *d = dealt_of(t->name);
        if (d && check(ts, t, d, e))
            return -1;
        parts += d ? t->dim[0] * d->turns : 0;
        bytes += d ? t->dim[0] * d->turns * (strlen(t->name) + MORE) : 0;
    }
    if (!parts)
        return 0;
    char *room = tensors_extend(ts, ts->path[0], parts, bytes, e);
    if (!room)
        return -1;
    for (size_t i = 0, made = n; i < n; i++) {           /* the first n stay sorted for find_scales */
        const struct dealt *d = dealt_of(ts->t[i].name);
        const struct tensor *scales = d && d->matrix ? find_scales(ts, &ts->t[i], e) : NULL;
        if (scales)
            ts->t[scales - ts->t].turns = 1;
        if (d)
            room += deal(&ts->t[made], ts->t[i], scales, d, room);
        made += d ? ts->t[i].dim[0] * d->turns : 0;
    }
    for (size_t i = 0; i < n + parts; i++)
        if (i >= n || !dealt_of(ts->t[i].name))
            ts->t[kept++] = ts->t[i];
    ts->n = kept;
    return tensors_sort(ts, e);
}
