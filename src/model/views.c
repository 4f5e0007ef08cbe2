/* Tensors as their files store them become those of one set of names. Start at view_all. */
#include "src/model/views.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES_BYTES = 1 << 14, BLOCK = 32, NIBBLES = 16, BLOCK_BYTES = 1 + NIBBLES };
static const char experts[] = ".experts.";

struct viewing {
    struct tensors *ts; const struct config *c;
    struct tensor *out; size_t n;        /* the new list */
    char *names; size_t names_left;
    struct err *e;
};

/* Adds a copy of a tensor. NULL: out of memory, or there are too many. */
static struct tensor *keep(struct viewing *v, const struct tensor *t)
{
    if (v->n == TENSORS_MAX)
        return err_set(v->e, ERR_INPUT, "%s: more than %d tensors, at most that many are allowed",
                       v->ts->path[t->shard], TENSORS_MAX), NULL;
    if (!array_grow(&v->out, v->n, sizeof *v->out))
        return err_set(v->e, ERR_FAILED, "out of memory for %zu tensors", v->n + 1), NULL;
    v->out[v->n] = *t;
    return &v->out[v->n++];
}

/* The same, under a name of its own. */
static struct tensor *__attribute__((format(printf, 3, 4)))
    add(struct viewing *v, const struct tensor *t, const char *format, ...)
{
    char name[TENSOR_NAME_MAX + 64];
    va_list args;
    va_start(args, format);
    const size_t bytes = (size_t)vsnprintf(name, sizeof name, format, args) + 1;
    va_end(args);
    if (bytes > v->names_left) {
        v->names_left = MAX(bytes, (size_t)NAMES_BYTES);
        v->names = tensors_extend(v->ts, v->ts->path[0], 0, v->names_left, v->e);
        if (!v->names)
            return NULL;
    }
    struct tensor *to = keep(v, t);
    if (!to)
        return NULL;
    to->name = memcpy(v->names, name, bytes);
    v->names += bytes;
    v->names_left -= bytes;
    return to;
}

/* Replaces each tensor by what `view` adds for it; one for which it adds nothing stays. */
static int view_all(struct tensors *ts, const struct config *c,
                    int (*view)(struct viewing *v, const struct tensor *t), struct err *e)
{
    struct viewing v = { .ts = ts, .c = c, .e = e };
    for (size_t i = 0; i < ts->n; i++) {
        const size_t before = v.n;
        if (view(&v, &ts->t[i]) || (v.n == before && !keep(&v, &ts->t[i]))) {
            free(v.out);
            return -1;
        }
    }
    if (!v.n)
        return 0;
    free(ts->t);
    ts->t = v.out;
    ts->n = v.n;
    return tensors_sort(ts, e);
}

/* ---- a text model inside a wrapper ---- */

static int take_text(struct viewing *v, const struct tensor *t)
{
    static const char *const prefixes[][2] = {
        { "model.language_model.", "model." }, { "language_model.model.", "model." },
        { "language_model.lm_head.", "lm_head." }, { "model.mtp.", "mtp." },
    };
    const char *prefix = "", *rest = t->name;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && rest == t->name; i++)
        if (strncmp(t->name, prefixes[i][0], strlen(prefixes[i][0])) == 0)
            prefix = prefixes[i][1], rest = t->name + strlen(prefixes[i][0]);
    const bool convolution = t->n_dims == 3 && t->dim[1] == 1 && name_ends_in(rest, ".conv1d.weight");
    if (rest == t->name && !convolution)
        return 0;
    struct tensor *to = add(v, t, "%s%s", prefix, rest);
    if (to && convolution)
        to->n_dims = 2, to->dim[1] = to->dim[2];
    return to ? 0 : -1;
}

int tensors_take_text(struct tensors *ts, struct err *e) { return view_all(ts, NULL, take_text, e); }

/* ---- experts ---- */

/* Parts of names: of Mixtral, and of the routers of gpt-oss and Gemma 4; at the end those of an expert. */
static const char *const renamed[][2] = { { ".block_sparse_moe.", ".mlp." }, { ".mlp.router.", ".mlp.gate." },
                                          { ".router.proj.", ".mlp.gate." } },
                  *const of_mixtral[][2] = { { ".w1.", ".gate_proj." }, { ".w2.", ".down_proj." },
                                             { ".w3.", ".up_proj." } };

/* Tensors of all experts of a layer: what follows ".experts." in their names, and what the parts of their
 * rows become. Dealt ones are those of gpt-oss as published, whose parts take their rows in turn: `blocks`
 * has the weights of a matrix, the others have biases. GGUF files have the last three, under these names. */
static const struct fused {
    const char *name; size_t parts; const char *part[2]; bool dealt, blocks;
} fused[] = {
    { "gate_up_proj_blocks", 2, { "gate_proj", "up_proj" }, true, true },
    { "gate_up_proj_bias", 2, { "gate_proj", "up_proj" }, true },
    { "down_proj_blocks", 1, { "down_proj" }, true, true },
    { "down_proj_bias", 1, { "down_proj" }, true },
    { "gate_up_proj", 2, { "gate_proj", "up_proj" } }, { "gate_proj", 1, { "gate_proj" } },
    { "up_proj", 1, { "up_proj" } },                   { "down_proj", 1, { "down_proj" } },
};

/* What may follow a name without its end. */
static bool is_kind(const char *end)
{
    return strcmp(end, ".weight") == 0 || strcmp(end, ".bias") == 0 || strcmp(end, ".scale") == 0;
}

/* The form of a fused tensor, and what follows its name: ".weight", ".bias", ".scale" or nothing; NULL: it is
 * none. */
static const struct fused *fused_of(const char *name, const char **kind)
{
    const char *s = strstr(name, experts), *rest = s ? s + strlen(experts) : "";
    for (const struct fused *f = fused; f < fused + sizeof fused / sizeof *fused; f++) {
        *kind = rest + strlen(f->name);
        if (strncmp(rest, f->name, strlen(f->name)) == 0 && (!**kind || (!f->dealt && is_kind(*kind))))
            return f;
    }
    return NULL;
}

/* Replaces the first of the parts that a name has. */
static bool replace(char *to, size_t size, const char *name, const char *const (*parts)[2], size_t n)
{
    const char *s = NULL;
    size_t i = 0;
    while (i < n && !(s = strstr(name, parts[i][0])))
        i++;
    if (s)
        snprintf(to, size, "%.*s%s%s", (int)(s - name), name, parts[i][1], s + strlen(parts[i][0]));
    return s;
}

bool tensor_is_dealt_scales(const struct tensor *t) { return t->turns && t->dtype == DT_OTHER; }

static int bad_shape(const struct tensors *ts, const struct tensor *t, const char *needed, struct err *e)
{
    return tensor_bad(ts, t, e, ": dtype %s with %zu dimensions; needed is %s", t->dtype_name, t->n_dims,
                      needed);
}

/* Finds the scales of a tensor of blocks, and marks them. */
static const struct tensor *find_scales(const struct tensors *ts, const struct tensor *t, struct err *e)
{
    char name[TENSOR_NAME_MAX + 1];
    snprintf(name, sizeof name, "%.*sscales", (int)(strlen(t->name) - strlen("blocks")), t->name);
    const struct tensor *s = tensors_find(ts, name);
    if (!s)
        return err_set(e, ERR_INPUT, "%s: tensor \"%.*s\" is missing, the scales of \"%.*s\"",
                       ts->path[t->shard], TENSOR_NAME_SHOWN, name, TENSOR_NAME_SHOWN, t->stored_name), NULL;
    if (strcmp(s->dtype_name, "U8") || s->n_dims != 3 || memcmp(s->dim, t->dim, 3 * sizeof *t->dim))
        return bad_shape(ts, s, "U8, the scales of the blocks of each row", e), NULL;
    ts->t[s - ts->t].turns = 1;          /* the list is sorted: they come after their blocks */
    return s;
}

static int check_dealt(const struct tensors *ts, const struct tensor *t, const struct fused *f, struct err *e)
{
    char needed[128];
    snprintf(needed, sizeof needed, "%s for up to %d experts with %srows",
             f->blocks ? "U8 [experts, rows, blocks, 16]" : "BF16, F16 or F32 [experts, rows]", EXPERTS_MAX,
             f->parts > 1 ? "an even number of " : "");
    if (t->n_dims != (f->blocks ? 4 : 2) || !t->dim[0] || t->dim[0] > EXPERTS_MAX || !t->dim[1] ||
        t->dim[1] % f->parts || (f->blocks ? strcmp(t->dtype_name, "U8") || t->dim[3] != NIBBLES || !t->dim[2]
                                           : !tensor_is_float(t->dtype)))
        return bad_shape(ts, t, needed, e);
    return f->blocks && t->dim[2] > TENSOR_SCALES_READ / f->parts
               ? tensor_bad(ts, t, e, ": rows of %zu blocks, at most %zu are allowed", t->dim[2],
                            TENSOR_SCALES_READ / f->parts)
               : 0;
}

/* Whether a fused tensor is one of gpt-oss as transformers writes it: its biases have a name of their own. */
static bool is_transposed(const struct tensors *ts, const struct tensor *t)
{
    char name[TENSOR_NAME_MAX + 8];
    snprintf(name, sizeof name, "%s_bias", t->name);
    return t->n_dims == 3 && tensors_find(ts, name);
}

/* rows: the dimension that counts them. */
static int check_fused(const struct tensors *ts, const struct tensor *t, const struct fused *f, bool bias,
                       size_t rows, struct err *e)
{
    if (t->n_dims == (bias ? 2 : 3) && t->dim[0] && t->dim[0] <= EXPERTS_MAX && t->dim[1] && t->dim[rows] &&
        t->dim[rows] % f->parts == 0)
        return 0;
    return tensor_bad(ts, t, e, " has %zu dimensions, the first of %zu, the second of %zu; needed are 3: up "
                      "to %d experts, %srows, columns", t->n_dims, t->n_dims ? t->dim[0] : 0,
                      t->n_dims > 1 ? t->dim[1] : 0, EXPERTS_MAX, f->parts > 1 ? "an even number of " : "");
}

/* Adds the parts of each expert. `name` may be another one than the tensor has. */
static int split_fused(struct viewing *v, const struct tensor *t, const char *name, const struct fused *f,
                       const char *kind)
{
    const bool bias = strcmp(kind, ".bias") == 0, scale = strcmp(kind, ".scale") == 0 && t->n_dims == 1;
    const size_t before = (size_t)(strstr(name, experts) - name);
    const bool mlp = before >= 4 && memcmp(name + before - 4, ".mlp", 4) == 0;       /* not of Gemma 4 */
    const struct tensor *scales = NULL;
    const bool turned = !f->dealt && !*kind && is_transposed(v->ts, t), dealt = f->dealt || turned;
    const size_t rows = turned ? 2 : 1;
    if ((f->dealt ? check_dealt(v->ts, t, f, v->e) : !scale && check_fused(v->ts, t, f, bias, rows, v->e)) ||
        (f->blocks && !(scales = find_scales(v->ts, t, v->e))))
        return -1;
    const size_t parts = scale ? 1 : f->parts, n = t->dim[0] * parts;
    for (size_t i = 0; i < t->dim[0] * f->parts; i++) {
        const size_t x = i / f->parts, turn = i % f->parts;
        struct tensor *to = add(v, t, "%.*s%s%s%zu.%s%s", (int)before, name, mlp ? "" : ".mlp", experts, x,
                                f->part[turn], *kind ? kind : f->dealt && !f->blocks ? ".bias" : ".weight");
        if (!to)
            return -1;
        to->n_dims = scale ? 1 : t->n_dims - 1;
        to->dim[0] = scale ? 1 : t->dim[rows] / f->parts, to->dim[1] = t->dim[3 - rows];
        to->n_elements = t->n_elements / n;
        to->bytes = t->bytes / n;
        to->offset = t->offset + (scale || dealt ? x * parts : i) * to->bytes;
        if (dealt)
            to->turns = f->parts, to->turn = turn;
        if (f->blocks) {
            to->n_dims = 2, to->dim[1] = t->dim[2] * BLOCK;
            to->dtype = DT_MXFP4, to->dtype_name = "MXFP4";
            to->n_elements = to->dim[0] * to->dim[1];
            to->bytes = to->n_elements / BLOCK * BLOCK_BYTES;
            to->scales_shard = scales->shard;
            to->scales_offset = scales->offset + x * (scales->bytes / scales->dim[0]);
        }
    }
    return 0;
}

static int split_experts(struct viewing *v, const struct tensor *t)
{
    char name[TENSOR_NAME_MAX + 64], whole[TENSOR_NAME_MAX + 64];
    const char *kind;
    const bool has = replace(name, sizeof name, t->name, renamed, sizeof renamed / sizeof *renamed);
    const char *now = has ? name : t->name;
    const struct fused *f = fused_of(now, &kind);
    if (f)
        return split_fused(v, t, now, f, kind);
    if (!has)
        return 0;
    if (strstr(now, experts) && replace(whole, sizeof whole, now, of_mixtral, 3))
        now = whole;
    return add(v, t, "%s", now) ? 0 : -1;
}

int tensors_split_experts(struct tensors *ts, struct err *e) { return view_all(ts, NULL, split_experts, e); }

/* ---- joined along their rows ---- */

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
    const char *s = strncmp(name, "model.layers.", 13) ? NULL : strstr(name, word);
    return s && is_kind(s + strlen(word)) ? s : NULL;
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
    const struct layer_spec *s = &c->layer[l];
    return j == joined ? (k ? s->n_kv_heads : c->n_heads) * s->head_dim : j->n > 1 ? s->ffn : c->hidden;
}

static int split_joined(struct viewing *v, const struct tensor *t)
{
    const struct joined *j = joined_of(t->name);
    size_t row = 0, needed = 0;
    if (!j)
        return 0;
    const char *s = find_word(t->name, j->whole), *kind = s + strlen(j->whole);
    const bool scale = strcmp(kind, ".scale") == 0;      /* that of all parts */
    for (size_t k = 0; k < j->n; k++)
        needed += part_rows(j, k, v->c, t->name);
    if (!scale && (!needed || t->n_dims < 1 || t->n_dims > 2 || t->dim[0] != needed))
        return tensor_bad(v->ts, t, v->e, " has %zu rows, needed are %zu", t->n_dims ? t->dim[0] : 0, needed);
    for (size_t k = 0; k < j->n; k++) {
        const size_t rows = part_rows(j, k, v->c, t->name);
        struct tensor *to = add(v, t, "%.*s%s%s", (int)(s - t->name), t->name, j->part[k], kind);
        if (!to)
            return -1;
        if (!scale) {
            to->dim[0] = rows;
            to->n_elements = t->n_elements / needed * rows;
            to->bytes = t->bytes / needed * rows;
            to->offset = t->offset + t->bytes / needed * row;
        }
        row += rows;
    }
    return 0;
}

int tensors_split_joined(struct tensors *ts, const struct config *c, struct err *e)
{
    return view_all(ts, c, split_joined, e);
}
