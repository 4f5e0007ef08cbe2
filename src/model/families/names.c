/* GGUF's names of tensors and those of Hugging Face. Start at family_hf_name and family_gguf_name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/families/family.h"
#include "src/model/tensors.h"

static const struct tensor_name llama_names[] = {
    { "token_embd.weight", "model.embed_tokens.weight", OUTSIDE },
    { "output_norm.weight", "model.norm.weight", OUTSIDE },
    { "output.weight", "lm_head.weight", OUTSIDE },
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
    /* views.c splits these: q, k and v, and all experts of a layer */
    { "attn_qkv.weight", "self_attn.qkv_proj.weight" },  { "attn_qkv.bias", "self_attn.qkv_proj.bias" },
    { "ffn_gate_inp.weight", "mlp.gate.weight" },
    { "ffn_gate_exps.weight", "mlp.experts.gate_proj.weight" },
    { "ffn_up_exps.weight", "mlp.experts.up_proj.weight" },
    { "ffn_down_exps.weight", "mlp.experts.down_proj.weight" },
    { "ffn_gate_up_exps.weight", "mlp.experts.gate_up_proj.weight" },
    { "ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight" },
    { "ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight" },
    { "ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight" },
    { "ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight" }, { 0 }
};

size_t gguf_layer_of(const char *name, const char **rest)
{
    size_t n = 0;
    if (strncmp(name, "blk.", 4) || name[4] < '0' || name[4] > '9' || (name[4] == '0' && name[5] != '.'))
        return SIZE_MAX;
    for (name += 4; *name >= '0' && *name <= '9' && n < 1000000; name++)
        n = 10 * n + (size_t)(*name - '0');
    *rest = name + 1;
    return *name == '.' ? n : SIZE_MAX;
}

/* The row of a name in one of the two languages, of rows outside of layers or in them; NULL: there is none.
 * drafts: the rows of the layer that only drafts, too. */
static const struct tensor_name *find(const struct family *f, const char *name, bool gguf, bool outside,
                                      bool drafts)
{
    const struct tensor_name *const tables[] = { f->tensors, llama_names };
    for (size_t i = 0; i < 2; i++)
        for (const struct tensor_name *t = tables[i]; t && t->gguf; t++) {
            const char *here = gguf ? t->gguf : t->hf;
            if (here && strcmp(here, name) == 0 && (t->place == OUTSIDE) == outside &&
                (t->place != DRAFTS || drafts))
                return t;
        }
    return NULL;
}

bool family_hf_name(char *to, size_t size, const char *name, const struct config *c)
{
    const char *rest = name;
    const size_t layer = gguf_layer_of(name, &rest);
    const bool outside = layer == SIZE_MAX, drafts = c->family->draft_layer && layer == c->n_layers;
    const struct tensor_name *t = find(c->family, outside ? name : rest, true, outside, drafts);
    if (!t || !t->hf)
        return false;
    if (outside || t->place == DRAFTS)
        snprintf(to, size, "%s", t->hf);
    else if (drafts)
        snprintf(to, size, "mtp.layers.0.%s", t->hf);
    else
        snprintf(to, size, "model.layers.%zu.%s", layer, t->hf);
    return true;
}

void family_gguf_name(char *to, size_t size, const char *name, const struct family *f, size_t n_layers)
{
    static const char layers[] = "model.layers.", drafts[] = "mtp.layers.0.", experts[] = ".mlp.experts.";
    char joined[TENSOR_NAME_SHOWN];
    const char *expert = strstr(name, experts), *rest = expert ? expert + strlen(experts) : NULL;
    size_t layer = n_layers;
    if (rest && *rest >= '0' && *rest <= '9') {  /* that of all experts has no number */
        snprintf(joined, sizeof joined, "%.*s%s", (int)(rest - name), name,
                 rest + strspn(rest, "0123456789") + 1);
        name = joined;
    }
    const struct tensor_name *t = find(f, name, false, true, false);
    if (t) {
        snprintf(to, size, "%s", t->gguf);
        return;
    }
    if (strncmp(name, layers, strlen(layers)) == 0) {
        char *end;
        layer = strtoul(name + strlen(layers), &end, 10);
        rest = end + 1;
        if (end == name + strlen(layers) || *end != '.')
            return;
    } else {
        rest = strncmp(name, drafts, strlen(drafts)) ? name : name + strlen(drafts);
        if (!f->draft_layer || strncmp(name, "mtp.", 4))
            return;
    }
    t = find(f, rest, false, false, rest == name);
    if (t)
        snprintf(to, size, "blk.%zu.%s", layer, t->gguf);
}
