/* GGUF files as a model: the parts of a split file, and tensors under the names of Hugging Face. Start at
 * gguf_model_open. */
#include "src/model/gguf_model.h"

#include "src/model/expert_tensors.h"
#include "src/model/gguf_form.h"
#include "src/model/joined_tensors.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names ---- */

static const struct name { const char *gguf, *hf;
} outside[] = {
    { "token_embd.weight", "model.embed_tokens.weight" }, { "output_norm.weight", "model.norm.weight" },
    { "output.weight", "lm_head.weight" },
    { "nextn.pre_projection.weight", "pre_projection.weight" },
    { "nextn.post_projection.weight", "post_projection.weight" },
    { "per_layer_token_embd.weight", PER_LAYER_TABLE },
    { "per_layer_model_proj.weight", "model.per_layer_model_projection.weight" },
    { "per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight" },
}, in_layer[] = {                        /* after "blk.N." and "model.layers.N." */
    { "attn_norm.weight", "input_layernorm.weight" },    { "attn_q.weight", "self_attn.q_proj.weight" },
    { "attn_q.bias", "self_attn.q_proj.bias" },          { "attn_k.weight", "self_attn.k_proj.weight" },
    { "attn_k.bias", "self_attn.k_proj.bias" },          { "attn_v.weight", "self_attn.v_proj.weight" },
    { "attn_v.bias", "self_attn.v_proj.bias" },          { "attn_output.weight", "self_attn.o_proj.weight" },
    { "attn_output.bias", "self_attn.o_proj.bias" },     { "attn_q_norm.weight", "self_attn.q_norm.weight" },
    { "attn_k_norm.weight", "self_attn.k_norm.weight" },
    { "ffn_norm.weight", "post_attention_layernorm.weight" },
    { "ffn_gate.weight", "mlp.gate_proj.weight" },       { "ffn_gate.bias", "mlp.gate_proj.bias" },
    { "ffn_up.weight", "mlp.up_proj.weight" },           { "ffn_up.bias", "mlp.up_proj.bias" },
    { "ffn_down.weight", "mlp.down_proj.weight" },       { "ffn_down.bias", "mlp.down_proj.bias" },
    /* joined_tensors.c splits them */
    { "attn_qkv.weight", "self_attn.qkv_proj.weight" },  { "attn_qkv.bias", "self_attn.qkv_proj.bias" },
    /* of all experts; expert_tensors.c splits them */
    { "ffn_gate_inp.weight", "mlp.gate.weight" },
    { "ffn_gate_exps.weight", "mlp.experts.gate_proj.weight" },
    { "ffn_up_exps.weight", "mlp.experts.up_proj.weight" },
    { "ffn_down_exps.weight", "mlp.experts.down_proj.weight" },
    { "ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj.weight" },
    { "ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight" },
    { "ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight" },
    { "ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight" },
    { "ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight" },
}, in_hybrid[] = {                       /* of layers of hybrids; the first two in place of those above */
    { "post_attention_norm.weight", "post_attention_layernorm.weight" },
    { "attn_qkv.weight", "linear_attn.in_proj_qkv.weight" },
    { "attn_gate.weight", "linear_attn.in_proj_z.weight" },
    { "ssm_beta.weight", "linear_attn.in_proj_b.weight" },
    { "ssm_alpha.weight", "linear_attn.in_proj_a.weight" },
    { "ssm_conv1d.weight", "linear_attn.conv1d.weight" }, { "ssm_a", "linear_attn.A_log" },
    { "ssm_dt.bias", "linear_attn.dt_bias" },             { "ssm_norm.weight", "linear_attn.norm.weight" },
    { "ssm_out.weight", "linear_attn.out_proj.weight" },
}, in_gemma[] = {                        /* in place of those above */
    { "post_attention_norm.weight", "post_attention_layernorm.weight" },
    { "ffn_norm.weight", "pre_feedforward_layernorm.weight" },
    { "post_ffw_norm.weight", "post_feedforward_layernorm.weight" },
}, in_gemma4[] = {                       /* the first three as in_gemma */
    { "post_attention_norm.weight", "post_attention_layernorm.weight" },
    { "ffn_norm.weight", "pre_feedforward_layernorm.weight" },
    { "post_ffw_norm.weight", "post_feedforward_layernorm.weight" },
    { "layer_output_scale.weight", "layer_scalar" },     { "ffn_gate_inp.scale", "router.scale" },
    { "ffn_down_exps.scale", "router.per_expert_scale" },
    { "post_ffw_norm_1.weight", "post_feedforward_layernorm_1.weight" },
    { "pre_ffw_norm_2.weight", "pre_feedforward_layernorm_2.weight" },
    { "post_ffw_norm_2.weight", "post_feedforward_layernorm_2.weight" },
    { "inp_gate.weight", "per_layer_input_gate.weight" }, { "proj.weight", "per_layer_projection.weight" },
    { "post_norm.weight", "post_per_layer_input_norm.weight" },
}, in_oss[] = {                          /* beside those above */
    { "post_attention_norm.weight", "post_attention_layernorm.weight" },
    { "attn_sinks.weight", "self_attn.sinks" }, { "ffn_gate_inp.bias", "mlp.gate.bias" },
    { "ffn_gate_exps.bias", "mlp.experts.gate_proj.bias" },
    { "ffn_up_exps.bias", "mlp.experts.up_proj.bias" },
    { "ffn_down_exps.bias", "mlp.experts.down_proj.bias" },
}, in_phi[] = {                          /* in place of those above */
    { "ffn_up.weight", "mlp.gate_up_proj.weight" },
}, parts_of_phi[] = {                    /* where the parts of joined tensors are */
    { "attn_qkv.weight", "self_attn.q_proj.weight" }, { "attn_qkv.weight", "self_attn.k_proj.weight" },
    { "attn_qkv.weight", "self_attn.v_proj.weight" }, { "ffn_up.weight", "mlp.gate_proj.weight" },
    { "ffn_up.weight", "mlp.up_proj.weight" },
}, drafting[] = {                        /* of the layer that only drafts; whole names */
    { "nextn.eh_proj.weight", "mtp.fc.weight" }, { "nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight" },
    { "nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight" },
    { "nextn.shared_head_norm.weight", "mtp.norm.weight" },
    { "nextn.embed_tokens.weight", "mtp.embed_tokens.weight" },
    { "nextn.shared_head_head.weight", "mtp.lm_head.weight" },
};
#define LENGTH(a) (sizeof(a) / sizeof *(a))
enum { NAME_BYTES = 96 };

/* The layer of a name "blk.N.REST", and *rest. SIZE_MAX for any other name. */
static size_t layer_of(const char *name, const char **rest)
{
    size_t n = 0;
    if (strncmp(name, "blk.", 4) || name[4] < '0' || name[4] > '9' || (name[4] == '0' && name[5] != '.'))
        return SIZE_MAX;
    for (name += 4; *name >= '0' && *name <= '9' && n < 1000000; name++)
        n = 10 * n + (size_t)(*name - '0');
    *rest = name + 1;
    return *name == '.' ? n : SIZE_MAX;
}

/* The name that Hugging Face gives to a tensor of a hybrid; false if it is one that others have, too, or
 * none. */
static bool hybrid_name(char to[NAME_BYTES], const char *rest, const char *prefix, bool drafts)
{
    for (size_t i = 0; drafts && i < LENGTH(drafting); i++)
        if (strcmp(rest, drafting[i].gguf) == 0) {
            snprintf(to, NAME_BYTES, "%s", drafting[i].hf);
            return true;
        }
    for (size_t i = 0; i < LENGTH(in_hybrid); i++)
        if (strcmp(rest, in_hybrid[i].gguf) == 0) {
            snprintf(to, NAME_BYTES, "%s%s", prefix, in_hybrid[i].hf);
            return true;
        }
    return false;
}

/* The name that Hugging Face gives to a tensor; false if it has none. */
static bool hf_name(char to[NAME_BYTES], const char *name, const struct config *c)
{
    const char *rest = "";
    char prefix[NAME_BYTES / 2];
    for (size_t i = 0; i < LENGTH(outside); i++)
        if (strcmp(name, outside[i].gguf) == 0) {
            snprintf(to, NAME_BYTES, "%s", outside[i].hf);
            return true;
        }
    const size_t layer = layer_of(name, &rest);
    const bool hybrid = config_is_hybrid(c), drafts = hybrid && layer == c->n_layers;
    if (drafts)
        snprintf(prefix, sizeof prefix, "mtp.layers.0.");
    else
        snprintf(prefix, sizeof prefix, "model.layers.%zu.", layer);
    if (layer == SIZE_MAX)
        return false;
    if (hybrid && hybrid_name(to, rest, prefix, drafts))
        return true;
    const struct name *own = c->layer_scale   ? in_gemma4
                             : c->norms_after ? in_gemma
                             : c->head_logits ? in_oss
                                              : in_phi;
    const size_t n_own = c->layer_scale    ? LENGTH(in_gemma4)
                         : c->norms_after ? LENGTH(in_gemma)
                         : c->head_logits ? LENGTH(in_oss)
                         : gguf_is_phi(c)  ? LENGTH(in_phi)
                                           : 0;
    for (size_t i = 0; i < n_own; i++)
        if (strcmp(rest, own[i].gguf) == 0) {
            snprintf(to, NAME_BYTES, "%s%s", prefix, own[i].hf);
            return true;
        }
    for (size_t i = 0; i < LENGTH(in_layer); i++)
        if (strcmp(rest, in_layer[i].gguf) == 0 && !(hybrid && strcmp(rest, "ffn_norm.weight") == 0)) {
            snprintf(to, NAME_BYTES, "%s%s", prefix, in_layer[i].hf);
            return true;
        }
    return false;
}

/* A number beside a matrix ends in `end` where the matrix ends in ".weight": here it becomes ".scale".
 * Embeddings have none. */
static bool scale_name(char to[NAME_BYTES], const char *name, const char *end, const struct config *c)
{
    char matrix[GGUF_NAME_MAX + 8];
    snprintf(matrix, sizeof matrix, "%.*s.weight", (int)(strlen(name) - strlen(end)), name);
    if (!hf_name(to, matrix, c) || !name_ends_in(to, ".weight") || strstr(to, "embed_tokens"))
        return false;
    strcpy(to + strlen(to) - strlen(".weight"), ".scale");
    return true;
}

/* Writes GGUF's name of a tensor of a layer that the table has. */
static void spell_layer(char *to, size_t size, const char *name, const struct name *table, size_t n_table)
{
    char hf[NAME_BYTES];
    const size_t n = strlen("model.layers.");
    if (strncmp(name, "model.layers.", n))
        return;
    const size_t digits = strspn(name + n, "0123456789");
    for (size_t i = 0; i < n_table; i++) {
        snprintf(hf, sizeof hf, "%.*s%s", (int)(n + digits + 1), name, table[i].hf);
        if (strcmp(name, hf) == 0)
            snprintf(to, size, "blk.%.*s.%s", (int)digits, name + n, table[i].gguf);
    }
}

/* The tensor that has all experts, if `name` is that of one expert; else `name`. */
static const char *of_all_experts(char joined[NAME_BYTES], const char *name)
{
    const char *expert = strstr(name, ".mlp.experts.");
    if (!expert)
        return name;
    expert += strlen(".mlp.experts.");
    snprintf(joined, NAME_BYTES, "%.*s%s", (int)(expert - name), name,
             expert + strspn(expert, "0123456789") + (*expert >= '0' && *expert <= '9'));
    return joined;
}

static void gguf_name(char *to, size_t size, const char *name)
{
    char joined[NAME_BYTES];
    name = of_all_experts(joined, name);
    for (size_t i = 0; i < LENGTH(outside); i++)
        if (strcmp(name, outside[i].hf) == 0)
            snprintf(to, size, "%s", outside[i].gguf);
    spell_layer(to, size, name, in_layer, LENGTH(in_layer));
}

static void gguf_hybrid_name(char *to, size_t size, const char *name)
{
    gguf_name(to, size, name);
    spell_layer(to, size, name, in_hybrid, LENGTH(in_hybrid));
}

static void gguf_gemma_name(char *to, size_t size, const char *name)
{
    gguf_name(to, size, name);
    spell_layer(to, size, name, in_gemma, LENGTH(in_gemma));
}

static void gguf_gemma4_name(char *to, size_t size, const char *name)
{
    gguf_name(to, size, name);
    spell_layer(to, size, name, in_gemma4, LENGTH(in_gemma4));
}

static void gguf_phi_name(char *to, size_t size, const char *name)
{
    gguf_name(to, size, name);
    spell_layer(to, size, name, parts_of_phi, LENGTH(parts_of_phi));
}

static void gguf_oss_name(char *to, size_t size, const char *name)
{
    char joined[NAME_BYTES];
    gguf_name(to, size, name);
    spell_layer(to, size, of_all_experts(joined, name), in_oss, LENGTH(in_oss));
}

gguf_spell *gguf_speller(const struct config *c)
{
    return config_is_hybrid(c)   ? gguf_hybrid_name
           : c->layer_scale      ? gguf_gemma4_name
           : c->norms_after      ? gguf_gemma_name
           : c->head_logits      ? gguf_oss_name
           : gguf_is_phi(c)      ? gguf_phi_name
                                 : gguf_name;
}

void gguf_draft_name(char *to, size_t size, const char *name, size_t layer)
{
    static const char prefix[] = "mtp.layers.0.";
    char hf[NAME_BYTES];
    snprintf(hf, sizeof hf, "model.layers.%zu.%s", layer, name + MIN(strlen(prefix), strlen(name)));
    if (strncmp(name, prefix, strlen(prefix)) == 0)
        gguf_hybrid_name(to, size, hf);
    for (size_t i = 0; i < LENGTH(drafting); i++)
        if (strcmp(name, drafting[i].hf) == 0)
            snprintf(to, size, "blk.%zu.%s", layer, drafting[i].gguf);
}

/* ---- parts ---- */

static int check_file(int fd, const char *path, size_t *size, struct err *e)
{
    struct stat st;
    if (fd < 0)
        return err_set(e, ERR_INPUT, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return err_set(e, ERR_INPUT, "%s: not a regular file", path);
    *size = (size_t)st.st_size;
    return 0;
}

/* The number of parts that the metadata state, and the number of this one. */
static int split_of(const struct gguf *g, size_t *count, size_t *no, struct err *e)
{
    *count = 1;
    *no = 0;
    if (gguf_uint(g, "split.count", 0, 0, GGUF_PARTS_MAX, count, e) < 0 ||
        gguf_uint(g, "split.no", 0, 0, GGUF_PARTS_MAX, no, e) < 0)
        return -1;
    *count = MAX(*count, 1);
    return *no < *count ? 0 : gguf_bad(g, "split.no", e, "found %zu, allowed are 0 to %zu", *no, *count - 1);
}

int gguf_open_first(struct gguf *g, int *fd, const char *path, struct err *e)
{
    size_t size = 0, count, no;
    *g = (struct gguf){ 0 };
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int rc =
        check_file(*fd, path, &size, e) || gguf_read(g, path, *fd, size, e) || split_of(g, &count, &no, e)
            ? -1
            : 0;
    if (rc == 0 && no)
        rc = err_set(e, ERR_INPUT,
                     "%s: part %zu of %zu; give the first part, which ends in -00001-of-%05zu.gguf", path,
                     no + 1, count, count);
    if (rc == 0)
        return 0;
    gguf_close(g);
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return -1;
}

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

/* Opens part i of a split file, whose first part is open. */
static int open_part(struct gguf_model *m, size_t i, const char *first, struct err *e)
{
    char path[PATH_BYTES + END_BYTES];
    size_t size = 0, count, no;
    if (gguf_parts(first) != m->n)
        return err_set(e, ERR_INPUT,
                       "%s: the first of %zu parts, whose name must end in -00001-of-%05zu.gguf", first, m->n,
                       m->n);
    gguf_part_path(path, sizeof path, first, i, m->n);
    if (tensors_open_shard(&m->ts, i, path, &size, e) ||
        gguf_read(&m->part[i], m->ts.path[i], m->ts.fd[i], size, e) || split_of(&m->part[i], &count, &no, e))
        return -1;
    if (count != m->n || no != i)
        return err_set(e, ERR_INPUT, "%s: it says part %zu of %zu, expected is part %zu of %zu", path, no + 1,
                       count, i + 1, m->n);
    return 0;
}

static int open_parts(struct gguf_model *m, const char *path, struct err *e)
{
    struct gguf first;
    size_t no, expected, all = 0;
    int fd;
    if (gguf_open_first(&first, &fd, path, e))
        return -1;
    size_t count;
    int rc = split_of(&first, &count, &no, e);
    m->n = count;
    m->part = calloc(m->n, sizeof *m->part);
    if (rc == 0 && !m->part)
        rc = err_set(e, ERR_FAILED, "%s: out of memory for %zu parts", path, m->n);
    if (rc || tensors_alloc_shards(&m->ts, m->n, path, e) || tensors_set_path(&m->ts, 0, path, e)) {
        gguf_close(&first);
        close(fd);
        return -1;
    }
    m->ts.fd[0] = fd;
    m->part[0] = first;
    m->part[0].file = m->ts.path[0];
    for (size_t i = 1; i < m->n && rc == 0; i++)
        rc = open_part(m, i, path, e);
    for (size_t i = 0; i < m->n; i++)
        all += m->part[i].n_tensors;
    expected = all;
    if (rc || gguf_uint(&m->part[0], "split.tensors.count", 0, 0, TENSORS_MAX, &expected, e) < 0)
        return -1;
    return all == expected ? 0
                           : gguf_bad(&m->part[0], "split.tensors.count", e, "found %zu, the parts have %zu",
                                      expected, all);
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
    const size_t layer = layer_of(t->name, &rest);
    if (gguf_is_of_rope(t->name)) {
        add(m, part, t, t->name, room);
        return 0;
    }
    const bool hybrid = config_is_hybrid(&m->config);
    if (layer != SIZE_MAX && layer >= m->config.n_layers + hybrid)
        return err_set(e, ERR_INPUT, "%s: tensor \"%s\": block_count is %zu", m->part[part].file, t->name,
                       m->config.n_layers);
    if (name_ends_in(t->name, ".input_scale") && scale_name(name, t->name, ".input_scale", &m->config))
        return 0;                        /* for activations of 4 bits */
    if (!hf_name(name, t->name, &m->config) &&
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
            return err_set(e, ERR_INPUT,
                           "%s: tensor \"%s\" is the scale of %s%s, allowed are quantised types",
                           ts->path[t->shard], t->stored_name, w ? "weights of " : "a missing tensor",
                           w ? w->dtype_name : "");
        if (t->dtype != DT_F32 || t->n_dims != 1 || t->dim[0] != needed)
            return err_set(e, ERR_INPUT, "%s: tensor \"%s\": %zu elements of %s, needed are %zu of F32",
                           ts->path[t->shard], t->stored_name, t->n_elements, t->dtype_name, needed);
    }
    return 0;
}

/* Biases of a llama model are those that its first layer has. No tensor may be left that the forward pass
 * does not use. */
static int use_tensors(struct gguf_model *m, struct err *e)
{
    struct config *c = &m->config;
    const struct tensors *ts = &m->ts;
    if (gguf_is_llama(c)) {
        c->qkv_bias = tensors_find(ts, "model.layers.0.self_attn.q_proj.bias");
        c->o_bias = tensors_find(ts, "model.layers.0.self_attn.o_proj.bias");
        c->mlp_bias = tensors_find(ts, "model.layers.0.mlp.gate_proj.bias");
    }
    c->tied = !tensors_find(ts, "lm_head.weight");
    char value[NAME_BYTES];
    snprintf(value, sizeof value, "model.layers.%zu.self_attn.v_proj.weight",
             config_kv_layer(c, c->n_layers - 1));
    c->v_is_k = c->v_is_k && !tensors_find(ts, value);
    for (size_t l = 0; l < c->n_layers; l++) {
        snprintf(value, sizeof value, "model.layers.%zu.self_attn.v_proj.weight", l);
        const struct tensor *t = config_v_is_k(c, l) ? tensors_find(ts, value) : NULL;
        if (t)
            return err_set(e, ERR_INPUT, "%s: tensor \"%s\": the last layer has no attn_v; values in some of "
                           "the global layers are not implemented", ts->path[t->shard], t->stored_name);
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
                          : norm             ? c->qk_norm
                          : shared           ? c->shared_ffn > 0
                          : router || expert ? c->n_experts > 0
                          : of_dense         ? c->n_experts == 0 || c->experts_beside
                                             : true;
        if (!used)
            return err_set(e, ERR_INPUT, "%s: tensor \"%s\" is not one of a %s model%s",
                           ts->path[ts->t[i].shard], ts->t[i].stored_name, c->model_type,
                           bias ? " whose first layer has no such bias" : "");
    }
    return 0;
}

static int list_tensors(struct gguf_model *m, struct err *e)
{
    size_t n = 0;
    m->ts.config_name = "the metadata";
    m->ts.spell = gguf_speller(&m->config);
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
    for (size_t i = 0; i < m->ts.n && gguf_is_llama(&m->config); i++)
        if (strstr(m->ts.t[i].name, "self_attn.q_proj.") || strstr(m->ts.t[i].name, "self_attn.k_proj."))
            m->ts.t[i].head_rows = m->config.head_dim;
    return gguf_read_rope(m, e) || use_tensors(m, e) ? -1 : 0;
}

int gguf_model_open(struct gguf_model *m, const char *path, struct err *e)
{
    *m = (struct gguf_model){ 0 };
    if (open_parts(m, path, e) == 0 && gguf_config(&m->config, &m->part[0], e) == 0 &&
        list_tensors(m, e) == 0)
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
