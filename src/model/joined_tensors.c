/* Tensors that are stored joined along their rows. Start at tensors_split_joined. */
#include "src/model/joined_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct joined { const char *whole; size_t n; const char *part[JOINED_MAX]; } joined[] = {
    { "self_attn.qkv_proj", 3, { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj" } },
    { "mlp.gate_up_proj", 2, { "mlp.gate_proj", "mlp.up_proj" } },
    /* of Granite 4 dense; the last one has another name alone */
    { "shared_mlp.input_linear", 2, { "mlp.gate_proj", "mlp.up_proj" } },
    { "shared_mlp.output_linear", 1, { "mlp.down_proj" } },
};
enum { N_JOINED = sizeof joined / sizeof *joined };

/* The place of `word` in a name of a layer, where ".weight", ".bias" or ".scale" follows; NULL: it is not
 * there. */
static const char *find_word(const char *name, const char *word)
{
    const char *s = strncmp(name, "model.layers.", 13) ? NULL : strstr(name, word), *end = s + strlen(word);
    return s && (strcmp(end, ".weight") == 0 || strcmp(end, ".bias") == 0 || strcmp(end, ".scale") == 0)
               ? s
               : NULL;
}

static const struct joined *joined_of(const char *name)
{
    for (size_t i = 0; i < N_JOINED; i++)
        if (find_word(name, joined[i].whole))
            return &joined[i];
    return NULL;
}

size_t joined_parts(const char *name, const char *part[JOINED_MAX])
{
    for (size_t i = 0; i < N_JOINED; i++)
        if (joined[i].n > 1 && find_word(name, joined[i].part[0])) {
            memcpy(part, joined[i].part, sizeof joined[i].part);
            return joined[i].n;
        }
    return 0;
}

bool joined_follows(const char *name)
{
    for (size_t i = 0; i < N_JOINED; i++)
        for (size_t k = 1; k < joined[i].n; k++)
            if (find_word(name, joined[i].part[k]))
                return true;
    return false;
}

bool tensors_have_joined(const struct tensors *ts)
{
    for (size_t i = 0; i < ts->n; i++)
        if (joined_of(ts->t[i].name))
            return true;
    return false;
}

/* Rows of a part in the layer of a name. */
static size_t part_rows(const struct joined *j, size_t k, const struct config *c, const char *name)
{
    const size_t l = MIN(strtoul(name + strlen("model.layers."), NULL, 10), c->n_layers - 1);
    const struct kv_heads g = config_heads(c, l);
    return j == joined ? (k ? g.n : c->n_heads) * g.dim : j->n > 1 ? config_ffn(c, l) : c->hidden;
}

/* Adds the parts of a joined tensor. Returns the bytes of their names; 0: an error. */
static size_t split(struct tensors *ts, struct tensor t, const struct config *c, char *room, struct err *e)
{
    const struct joined *j = joined_of(t.name);
    const char *s = find_word(t.name, j->whole);
    const bool scale = strcmp(s + strlen(j->whole), ".scale") == 0;      /* that of all parts */
    char *at = room;
    size_t rows = 0, needed = 0;
    for (size_t k = 0; k < j->n; k++)
        needed += part_rows(j, k, c, t.name);
    if (!scale && (!needed || t.n_dims < 1 || t.n_dims > 2 || t.dim[0] != needed)) {
        err_set(e, ERR_INPUT, "%s: tensor \"%.*s\" has %zu rows, needed are %zu", ts->path[t.shard],
                TENSOR_NAME_SHOWN, t.stored_name, t.n_dims ? t.dim[0] : 0, needed);
        return 0;
    }
    for (size_t k = 0; k < j->n; rows += part_rows(j, k++, c, t.name)) {
        struct tensor *to = &ts->t[ts->n++];
        *to = t;
        if (!scale) {
            to->dim[0] = part_rows(j, k, c, t.name);
            to->n_elements = t.n_elements / needed * to->dim[0];
            to->bytes = t.bytes / needed * to->dim[0];
            to->offset = t.offset + t.bytes / needed * rows;
        }
        to->name = at;
        at += sprintf(at, "%.*s%s%s", (int)(s - t.name), t.name, j->part[k], s + strlen(j->whole)) + 1;
    }
    return (size_t)(at - room);
}

int tensors_split_joined(struct tensors *ts, const struct config *c, struct err *e)
{
    const size_t n = ts->n;
    size_t parts = 0, bytes = 0, kept = 0;
    for (size_t i = 0; i < n; i++) {
        const struct joined *j = joined_of(ts->t[i].name);
        parts += j ? j->n : 0;
        bytes += j ? j->n * (strlen(ts->t[i].name) + 1) : 0;
    }
    if (!parts)
        return 0;
    char *room = tensors_extend(ts, ts->path[0], parts, bytes, e);
    if (!room)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (joined_of(ts->t[i].name)) {
            const size_t used = split(ts, ts->t[i], c, room, e);
            if (!used)
                return -1;
            room += used;
        }
    for (size_t i = 0; i < ts->n; i++)
        if (i >= n || !joined_of(ts->t[i].name))
            ts->t[kept++] = ts->t[i];
    ts->n = kept;
    return tensors_sort(ts, e);
}
