/* The tensors of experts under one set of names. Start at tensors_split_experts. */
#include "src/model/expert_tensors.h"

#include <stdio.h>
#include <string.h>

#include "src/model/config.h"

static const char experts[] = ".experts.";
/* Parts of names: of Mixtral, and of the routers of gpt-oss and Gemma 4. */
static const char *const renamed[][2] = { { ".block_sparse_moe.", ".mlp." },
                                          { ".mlp.router.", ".mlp.gate." },
                                          { ".router.proj.", ".mlp.gate." } };
enum { RENAMED = sizeof renamed / sizeof *renamed };

/* The part of a name that has another one, and its row in the table; NULL: there is none. */
static const char *find_renamed(const char *name, size_t *row)
{
    const char *s = NULL;
    for (*row = 0; *row < RENAMED && !(s = strstr(name, renamed[*row][0])); ++*row)
        ;
    return s;
}

/* Parts of a fused tensor: its name after ".experts.", and what each part becomes. GGUF files have the last
 * three, under these names (gguf_model.c). */
static const struct fused { const char *name; size_t parts; const char *part[2]; } fused[] = {
    { "gate_up_proj", 2, { "gate_proj", "up_proj" } }, { "gate_proj", 1, { "gate_proj" } },
    { "up_proj", 1, { "up_proj" } },                   { "down_proj", 1, { "down_proj" } },
};
static const char *const of_mixtral[][2] = { { "w1", "gate_proj" }, { "w2", "down_proj" },
                                             { "w3", "up_proj" } };

static bool is_bias(const char *name) { return name_ends_in(name, ".bias"); }
static bool is_scale(const char *name) { return name_ends_in(name, ".scale"); }       /* one number */

/* The form of a fused tensor; NULL: it is none. */
static const struct fused *fused_of(const char *name)
{
    const char *s = strstr(name, experts);
    for (size_t i = 0; s && i < sizeof fused / sizeof *fused; i++) {
        const size_t n = strlen(fused[i].name);
        const char *rest = s + strlen(experts) + n;
        if (strncmp(s + strlen(experts), fused[i].name, n) == 0 &&
            (!*rest || strcmp(rest, ".weight") == 0 || is_bias(rest) || is_scale(rest)))
            return &fused[i];
    }
    return NULL;
}

/* The part of a name before ".experts.", renamed. */
static size_t put_prefix(char *to, const char *name, size_t n)
{
    size_t row;
    const char *s = find_renamed(name, &row);
    if (!s || s >= name + n)
        return (size_t)sprintf(to, "%.*s", (int)n, name);
    const size_t before = (size_t)(s - name), after = before + strlen(renamed[row][0]);
    return (size_t)sprintf(to, "%.*s%s%.*s", (int)before, name, renamed[row][1], (int)(n - MIN(n, after)),
                           name + MIN(n, after));
}

/* Renames a tensor of one expert of Mixtral, or a router. Returns the bytes of the new name. */
static size_t rename_tensor(struct tensor *t, char *room)
{
    const char *s = strstr(t->name, experts), *rest = s ? strchr(s + strlen(experts), '.') : NULL;
    size_t n = put_prefix(room, t->name, rest ? (size_t)(rest + 1 - t->name) : strlen(t->name));
    for (size_t i = 0; rest && i < 3; i++) {
        const size_t old = strlen(of_mixtral[i][0]);
        if (strncmp(rest + 1, of_mixtral[i][0], old) == 0 && rest[1 + old] == '.')
            n += (size_t)sprintf(room + n, "%s%s", of_mixtral[i][1], rest + 1 + old), rest = NULL;
    }
    if (rest)
        n += (size_t)sprintf(room + n, "%s", rest + 1);
    t->name = room;
    return n + 1;
}

static int check_fused(const struct tensors *ts, const struct tensor *t, const struct fused *f, struct err *e)
{
    if (is_scale(t->name) && t->n_dims == 1)
        return 0;
    if (t->n_dims != (is_bias(t->name) ? 2 : 3) || !t->dim[0] || t->dim[0] > EXPERTS_MAX || !t->dim[1] ||
        t->dim[1] % f->parts)
        return err_set(e, ERR_INPUT,
                       "%s: tensor \"%.*s\" has %zu dimensions, the first of %zu, the second of %zu; needed "
                       "are 3: up to %d experts, %srows, columns",
                       ts->path[t->shard], TENSOR_NAME_SHOWN, t->stored_name, t->n_dims,
                       t->n_dims ? t->dim[0] : 0, t->n_dims > 1 ? t->dim[1] : 0, EXPERTS_MAX,
                       f->parts > 1 ? "an even number of " : "");
    return 0;
}

/* Adds the matrices of all experts of a fused tensor. Returns the bytes of their names. */
static size_t split(struct tensors *ts, struct tensor t, const struct fused *f, char *room)
{
    const size_t n = t.dim[0] * f->parts, before = (size_t)(strstr(t.name, experts) - t.name);
    char *at = room;
    for (size_t i = 0; i < n; i++) {
        struct tensor *to = &ts->t[ts->n++];
        *to = t;
        to->n_dims = t.n_dims - 1, to->dim[0] = t.dim[1] / f->parts, to->dim[1] = t.dim[2];
        to->n_elements = t.n_elements / n, to->bytes = t.bytes / n;
        to->offset = t.offset + i * to->bytes;
        if (is_scale(t.name))
            to->n_dims = to->dim[0] = to->n_elements = 1, to->bytes = t.bytes / t.dim[0],
            to->offset = t.offset + i / f->parts * to->bytes;
        to->name = at;
        at += put_prefix(at, t.name, before);
        if (at - to->name < 4 || memcmp(at - 4, ".mlp", 4))      /* Gemma 4 */
            at += sprintf(at, ".mlp");
        at += sprintf(at, "%s%zu.%s.%s", experts, i / f->parts, f->part[i % f->parts],
                      is_bias(t.name) ? "bias" : is_scale(t.name) ? "scale" : "weight") + 1;
    }
    return (size_t)(at - room);
}

int tensors_split_experts(struct tensors *ts, struct err *e)
{
    enum { MORE = 32 };                  /* bytes by which a name grows */
    const size_t n = ts->n;
    size_t matrices = 0, bytes = 0, kept = 0, row;
    for (size_t i = 0; i < n; i++) {
        const struct tensor *t = &ts->t[i];
        const struct fused *f = fused_of(t->name);
        if (f && check_fused(ts, t, f, e))
            return -1;
        matrices += f ? t->dim[0] * f->parts : 0;
        bytes += (f ? t->dim[0] * f->parts : find_renamed(t->name, &row) != NULL) * (strlen(t->name) + MORE);
    }
    if (!bytes)
        return 0;
    char *room = tensors_extend(ts, ts->path[0], matrices, bytes, e);
    if (!room)
        return -1;
    for (size_t i = 0; i < n; i++) {
        const struct fused *f = fused_of(ts->t[i].name);
        if (f)
            room += split(ts, ts->t[i], f, room);
        else if (find_renamed(ts->t[i].name, &row))
            room += rename_tensor(&ts->t[i], room);
    }
    for (size_t i = 0; i < ts->n; i++)
        if (i >= n || !fused_of(ts->t[i].name))
            ts->t[kept++] = ts->t[i];
    ts->n = kept;
    return tensors_sort(ts, e);
}
