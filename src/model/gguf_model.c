/* GGUF files as a model: the parts of a split file, and tensors under the names of Hugging Face. Start at
 * gguf_model_open. */
#include "src/model/gguf_model.h"

#include "src/model/views.h"
#include "src/model/families/family.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 96 };

/* A number beside a matrix ends in `end` where the matrix ends in ".weight": here it becomes ".scale".
 * Embeddings have none. */
static bool scale_name(char to[NAME_BYTES], const char *name, const char *end, const struct config *c)
{
    char matrix[GGUF_NAME_MAX + 8];
    snprintf(matrix, sizeof matrix, "%.*s.weight", (int)(strlen(name) - strlen(end)), name);
    if (!family_hf_name(to, NAME_BYTES, matrix, c) || !name_ends_in(to, ".weight") ||
        strstr(to, "embed_tokens"))
        return false;
    strcpy(to + strlen(to) - strlen(".weight"), ".scale");
    return true;
}

/* ---- parts ---- */

enum { END_BYTES = 24 };                 /* -00001-of-00003.gguf */

size_t gguf_parts(const char *first)
{
    const size_t n = strlen(first), n_end = strlen("-00001-of-00003.gguf");
    char end[END_BYTES];
    const size_t parts = n > n_end ? strtoul(first + n - 10, NULL, 10) : 0;
    snprintf(end, sizeof end, "-00001-of-%05zu.gguf", MIN(parts, (size_t)GGUF_PARTS_MAX));
    return parts && strcmp(first + n - n_end, end) == 0 ? parts : 1;
}

char *gguf_part_path(char *path, size_t size, const char *first, size_t part, size_t parts)
{
    const size_t n = strlen(first), n_end = strlen("-00001-of-00003.gguf");
    snprintf(path, size, "%.*s-%05zu-of-%05zu.gguf", (int)(n - n_end), first, part + 1, parts);
    return path;
}

/* Opens part i. Its metadata state the number of parts and its own number, from 0. */
static int open_part(struct gguf_model *m, size_t i, const char *path, size_t *count, size_t *no,
                     struct err *e)
{
    struct gguf *g = &m->part[i];
    size_t size = 0;
    *count = 1;
    *no = 0;
    if (tensors_open_shard(&m->ts, i, path, &size, e) ||
        gguf_read(g, m->ts.path[i], m->ts.fd[i], size, e) ||
        gguf_uint(g, "split.count", 0, 0, GGUF_PARTS_MAX, count, e) < 0 ||
        gguf_uint(g, "split.no", 0, 0, GGUF_PARTS_MAX, no, e) < 0)
        return -1;
    *count = MAX(*count, 1);
    return *no < *count ? 0 : gguf_bad(g, "split.no", e, "found %zu, allowed are 0 to %zu", *no, *count - 1);
}

/* The name tells how many parts there may be, the metadata how many there are. */
static int open_first(struct gguf_model *m, const char *path, struct err *e)
{
    size_t n, no;
    m->n = gguf_parts(path);
    m->part = calloc(m->n, sizeof *m->part);
    if (!m->part)
        return err_set(e, ERR_FAILED, "%s: out of memory for %zu parts", path, m->n);
    if (tensors_alloc_shards(&m->ts, m->n, path, e) || open_part(m, 0, path, &n, &no, e))
        return -1;
    if (no)
        return err_set(e, ERR_INPUT,
                       "%s: part %zu of %zu; give the first part, which ends in -00001-of-%05zu.gguf", path,
                       no + 1, n, n);
    if (n > 1 && n != m->n)
        return err_set(e, ERR_INPUT,
                       "%s: the first of %zu parts, whose name must end in -00001-of-%05zu.gguf", path, n, n);
    m->n = m->ts.n_shards = n;
    return 0;
}

int gguf_open_first(struct gguf_model *m, const char *path, struct err *e)
{
    *m = (struct gguf_model){ 0 };
    if (open_first(m, path, e) == 0)
        return 0;
    gguf_model_close(m);
    return -1;
}

static int open_others(struct gguf_model *m, const char *first, struct err *e)
{
    char path[PATH_BYTES + END_BYTES];
    size_t count, no, all = m->part->n_tensors;
    for (size_t i = 1; i < m->n; i++, all += m->part[i - 1].n_tensors) {
        if (open_part(m, i, gguf_part_path(path, sizeof path, first, i, m->n), &count, &no, e))
            return -1;
        if (count != m->n || no != i)
            return err_set(e, ERR_INPUT, "%s: it says part %zu of %zu, expected is part %zu of %zu", path,
                           no + 1, count, i + 1, m->n);
    }
    size_t expected = all;
    if (gguf_uint(m->part, "split.tensors.count", 0, 0, TENSORS_MAX, &expected, e) < 0)
        return -1;
    return all == expected ? 0
                           : gguf_bad(m->part, "split.tensors.count", e, "found %zu, the parts have %zu",
                                      expected, all);
}

/* ---- frequencies of RoPE ---- */

/* Files have them as tensors of divisors: rope_freqs.weight of Llama 3, and the two lists of longrope. */
static const char freqs[] = "rope_freqs.weight", longer[] = "rope_factors_long.weight",
                  shorter[] = "rope_factors_short.weight";

static bool is_of_rope(const char *name)
{
    return strcmp(name, freqs) == 0 || strcmp(name, longer) == 0 || strcmp(name, shorter) == 0;
}

/* Reads a tensor of divisors. 1; 0: there is none. */
static int read_divisors(const struct gguf_model *m, const char *name, float *to, struct err *e)
{
    const struct config *c = &m->config;
    const struct tensor *t = tensors_find(&m->ts, name);
    const size_t n = c->rotary / 2;
    if (!t)
        return 0;
    if ((c->rope.type != ROPE_PLAIN && !c->layer[0].scaled) ||
        !(name == freqs ? c->family->freqs : family_has_rope(c->family, ROPE_LONG)))
        return tensor_bad(&m->ts, t, e, " in a %s model%s", c->model_type,
                          c->rope.type == ROPE_PLAIN ? "" : " with rope.scaling");
    if (t->dtype != DT_F32 || t->n_elements != n)
        return tensor_bad(&m->ts, t, e, ": %s [%zu], needed is F32 [%zu]", t->dtype_name, t->n_elements, n);
    if (tensors_read(&m->ts, t, to, 0, t->bytes, e))
        return -1;
    for (size_t k = 0; k < n; k++)
        if (!(isfinite(to[k]) && to[k] > 0))
            return tensor_bad(&m->ts, t, e, ": element %zu is %g, allowed are numbers above 0", k,
                              (double)to[k]);
    return 1;
}

/* Longrope: both lists, and the keys beside them. The factor on cos and sin is 1 without its key. */
static int read_long(struct gguf_model *m, struct err *e)
{
    struct rope_config *r = &m->config.rope;
    const int has_long = read_divisors(m, longer, r->divisor, e),
              has_short = has_long < 0 ? -1 : read_divisors(m, shorter, r->short_divisor, e);
    if (has_short < 0)
        return -1;
    if (has_long != has_short)
        return err_set(e, ERR_INPUT, "%s: tensor \"%s\" is missing, the other list of its kind is there",
                       m->part->file, has_long ? shorter : longer);
    if (!has_long)
        return 0;
    r->type = ROPE_LONG;
    r->original = m->config.max_position;
    r->attention_factor = 1;
    if (gguf_uint(m->part, "phi3.rope.scaling.original_context_length", 0, 1, CONTEXT_MAX, &r->original,
                  e) < 0 ||
        gguf_real(m->part, "phi3.rope.scaling.attn_factor", 1e-6, 1e6, &r->attention_factor, e) < 0)
        return -1;
    r->shorter = m->config.max_position <= r->original;
    return 0;
}

static int read_rope_tensors(struct gguf_model *m, struct err *e)
{
    const int found = read_divisors(m, freqs, m->config.rope.divisor, e);
    if (found > 0)
        m->config.rope.type = ROPE_DIVIDED;
    for (size_t i = 0; m->config.layer[0].scaled && i < m->config.rotary / 2; i++)
        if (m->config.rope.divisor[i] >= 1e29f)          /* 1e30 there: the pair does not turn */
            m->config.rope.divisor[i] = INFINITY;
    return found < 0 ? -1 : read_long(m, e);
}

/* ---- tensors ---- */

/* Adds a tensor of a file under its Hugging Face name. *room: for the names. */
static void add(struct gguf_model *m, size_t part, const struct gguf_tensor *t, const char *name, char **room)
{
    struct tensor *to = &m->ts.t[m->ts.n++];
    *to = (struct tensor){ .dtype_name = t->type->name, .dtype = t->type->dtype, .n_dims = t->n_dims,
                           .shard = (int)part, .offset = t->offset, .bytes = t->bytes,
                           .n_elements = t->n_elements };
    for (size_t i = 0; i < t->n_dims; i++)
        to->dim[i] = t->dim[t->n_dims - 1 - i];
    if (t->n_dims == 1 && name_ends_in(name, ".mlp.shared_expert_gate.weight"))
        to->n_dims = 2, to->dim[1] = to->dim[0], to->dim[0] = 1;
    to->name = strcpy(*room, name);
    *room += strlen(name) + 1;
    to->stored_name = strcpy(*room, t->name);
    *room += strlen(t->name) + 1;
    m->ts.data_bytes += to->bytes;
}

static int add_tensor(struct gguf_model *m, size_t part, const struct gguf_tensor *t, char **room,
                      struct err *e)
{
    char name[NAME_BYTES];
    const char *rest = "";
    const size_t layer = gguf_layer_of(t->name, &rest);
    if (is_of_rope(t->name)) {
        add(m, part, t, t->name, room);
        return 0;
    }
    if (layer != SIZE_MAX && layer >= m->config.n_layers + m->config.family->draft_layer)
        return err_set(e, ERR_INPUT, "%s: tensor \"%s\": block_count is %zu", m->part[part].file, t->name,
                       m->config.n_layers);
    if (name_ends_in(t->name, ".input_scale") && scale_name(name, t->name, ".input_scale", &m->config))
        return 0;                        /* for activations of 4 bits */
    if (!family_hf_name(name, sizeof name, t->name, &m->config) &&
        !(name_ends_in(t->name, ".scale") && scale_name(name, t->name, ".scale", &m->config)))
        return err_set(e, ERR_INPUT, "%s: tensor \"%s\" is not one of a %s model", m->part[part].file,
                       t->name, m->config.model_type);
    add(m, part, t, name, room);
    return 0;
}

/* A scale is one number for a quantised matrix, or one for each expert. */
static int check_scales(const struct tensors *ts, struct err *e)
{
    for (const struct tensor *t = ts->t; t < ts->t + ts->n; t++) {
        char name[NAME_BYTES];
        if (!name_ends_in(t->name, ".scale") || name_ends_in(t->name, ".router.scale"))
            continue;
        snprintf(name, sizeof name, "%.*s.weight", (int)(strlen(t->name) - strlen(".scale")), t->name);
        const struct tensor *w = tensors_find(ts, name);
        const size_t needed = w && w->n_dims == 3 ? w->dim[0] : 1;
        if (!w || !dtype_is_quantised(w->dtype))
            return tensor_bad(ts, t, e, " is the scale of %s%s, allowed are quantised types",
                              w ? "weights of " : "a missing tensor", w ? w->dtype_name : "");
        if (t->dtype != DT_F32 || t->n_dims != 1 || t->dim[0] != needed)
            return tensor_bad(ts, t, e, ": %zu elements of %s, needed are %zu of F32", t->n_elements,
                              t->dtype_name, needed);
    }
    return 0;
}

/* Biases of a llama model are those that its first layer has. No tensor may be left that the forward pass
 * does not use. */
static int use_tensors(struct gguf_model *m, struct err *e)
{
    struct config *c = &m->config;
    const struct tensors *ts = &m->ts;
    if (c->family->as_llama) {
        c->qkv_bias = tensors_find(ts, "model.layers.0.self_attn.q_proj.bias");
        c->o_bias = tensors_find(ts, "model.layers.0.self_attn.o_proj.bias");
        c->mlp_bias = tensors_find(ts, "model.layers.0.mlp.gate_proj.bias");
    }
    c->tied = !tensors_find(ts, "lm_head.weight");
    char value[NAME_BYTES];
    snprintf(value, sizeof value, "model.layers.%d.self_attn.v_proj.weight",
             c->layer[c->n_layers - 1].kv_layer);
    const bool has_values = tensors_find(ts, value);
    for (size_t l = 0; l < c->n_layers; l++) {
        struct layer_spec *s = &c->layer[l];
        snprintf(value, sizeof value, "model.layers.%zu.self_attn.v_proj.weight", l);
        const struct tensor *t = s->v_is_k ? tensors_find(ts, value) : NULL;
        s->v_is_k = s->v_is_k && !has_values;
        if (t && !has_values)
            return tensor_bad(ts, t, e, ": the last layer has no attn_v; values in some of the global layers "
                              "are not implemented");
    }
    for (size_t i = 0; i < ts->n; i++) {
        const char *name = ts->t[i].name;
        const bool router = name_ends_in(name, ".mlp.gate.weight"), expert = strstr(name, ".mlp.experts."),
                   shared = strstr(name, ".mlp.shared_expert"),
                   of_dense = !expert && name_ends_in(name, "_proj.weight") && strstr(name, ".mlp.");
        const bool bias = name_ends_in(name, ".bias"),
                   norm = name_ends_in(name, "q_norm.weight") || name_ends_in(name, "k_norm.weight");
        const bool of_layers = strstr(name, "per_layer");
        const bool used = of_layers ? c->per_layer > 0
                          : bias ? strstr(name, ".mlp.")     ? c->mlp_bias || c->experts_bias
                                 : strstr(name, ".o_proj.") ? c->o_bias
                                                            : c->qkv_bias
                          : norm             ? c->layer[0].qk_norm != QK_AS_IS
                          : shared           ? c->shared_ffn > 0
                          : router || expert ? c->n_experts > 0
                          : of_dense         ? c->n_experts == 0 || c->experts_beside
                                             : true;
        if (!used)
            return tensor_bad(ts, &ts->t[i], e, " is not one of a %s model%s", c->model_type,
                              bias ? " whose first layer has no such bias" : "");
    }
    return 0;
}

static int list_tensors(struct gguf_model *m, struct err *e)
{
    size_t n = 0;
    m->ts.config_name = "the metadata";
    m->ts.n_layers = m->config.n_layers;
    m->ts.family = m->config.family;
    for (size_t i = 0; i < m->n; i++)
        n += m->part[i].n_tensors;
    char *room = tensors_extend(&m->ts, m->part[0].file, n, n * (NAME_BYTES + GGUF_NAME_MAX + 1), e);
    if (!room)
        return -1;
    for (size_t i = 0; i < m->n; i++)
        for (size_t k = 0; k < m->part[i].n_tensors; k++)
            if (add_tensor(m, i, &m->part[i].tensor[k], &room, e))
                return -1;
    if (tensors_sort(&m->ts, e) || check_scales(&m->ts, e) || tensors_split_joined(&m->ts, &m->config, e) ||
        tensors_split_experts(&m->ts, e))
        return -1;
    for (size_t i = 0; i < m->ts.n && m->config.family->as_llama; i++)
        if (strstr(m->ts.t[i].name, "self_attn.q_proj.") || strstr(m->ts.t[i].name, "self_attn.k_proj."))
            m->ts.t[i].head_rows = m->config.head_dim;
    return read_rope_tensors(m, e) || use_tensors(m, e) ? -1 : 0;
}

int gguf_model_open(struct gguf_model *m, const char *path, struct err *e)
{
    if (gguf_open_first(m, path, e))
        return -1;
    if (open_others(m, path, e) == 0 && gguf_config(&m->config, m->part, e) == 0 && list_tensors(m, e) == 0)
        return 0;
    gguf_model_close(m);
    return -1;
}

struct tensors gguf_take_tensors(struct gguf_model *m)
{
    const struct tensors ts = m->ts;     /* its names lie in memory of their own */
    m->ts = (struct tensors){ 0 };
    gguf_model_close(m);
    return ts;
}

void gguf_model_close(struct gguf_model *m)
{
    for (size_t i = 0; m->part && i < m->n; i++)
        gguf_close(&m->part[i]);
    free(m->part);
    tensors_close(&m->ts);
    *m = (struct gguf_model){ 0 };
}
