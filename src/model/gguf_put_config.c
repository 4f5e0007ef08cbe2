/* The configuration of a model as GGUF metadata, the inverse of gguf_config.c. */
#include <string.h>

#include "src/model/families/family.h"
#include "src/model/gguf_model.h"

/* The ids that begin and end a text, which stand before the section of RoPE. */
static void put_ids(struct gguf_out *o, const struct config *c)
{
    if (c->bos >= 0)
        gguf_put_uint(o, "tokenizer.ggml.bos_token_id", (size_t)c->bos);
    if (!c->n_eos)
        return;
    gguf_put_uint(o, "tokenizer.ggml.eos_token_id", (size_t)c->eos[0]);
    gguf_put_array(o, "longhand.eos_token_ids", GGUF_U32, c->n_eos);
    for (size_t i = 0; i < c->n_eos; i++)
        gguf_add_u32(o, (uint32_t)c->eos[i]);
}

int gguf_put_config(struct gguf_out *o, const struct config *c, bool drafts, float *divisor,
                    bool *has_divisor, struct err *e)
{
    const struct putting p = { c->family, c, o, drafts, divisor, has_divisor, e };
    gguf_put_text(o, "general.architecture", p.f->gguf, strlen(p.f->gguf));
    gguf_put_text(o, "general.type", "model", 5);
    gguf_put_uint(o, "general.quantization_version", 2);
    for (enum section_of i = 0; i < SECTIONS; i++) {
        const struct section *s = family_section(p.f, i);
        if (i == OF_ROPE)
            put_ids(o, c);
        keys_put(&p, s->keys);
        if (s->put && s->put(&p))
            return -1;
    }
    return 0;
}
