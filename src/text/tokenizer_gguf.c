/* Writing a tokenizer as GGUF metadata. Start at tokenizer_put_gguf. */
#include "src/text/tokenizer_gguf.h"

#include <stdlib.h>
#include <string.h>

#include "src/text/tokenizer_tables.h"

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_USER = 4, TYPE_UNUSED = 5, TYPE_BYTE = 6 };

/* The name of a byte-level split pattern; NULL: it has none. */
static const char *pre_name(const struct tokenizer *t)
{
    const bool nfc = t->n_norm == 1 && t->norm[0].kind == NORM_NFC;
    if (t->n_split == 2 && t->split[0] == SPLIT_DIGITS && t->split[1] == SPLIT_GPT2 && !t->n_norm &&
        !t->ignore_merges)
        return "smollm";
    if (t->n_split != 1 || (t->n_norm && !nfc))
        return NULL;
    switch (t->split[0]) {
    case SPLIT_QWEN2:  return nfc && !t->ignore_merges ? "qwen2" : NULL;
    case SPLIT_QWEN35: return nfc && !t->ignore_merges ? "qwen35" : NULL;
    case SPLIT_LLAMA3: return nfc ? NULL : t->ignore_merges ? "llama-bpe" : "dbrx";
    case SPLIT_TEKKEN: return nfc || !t->ignore_merges ? NULL : "tekken";
    case SPLIT_GPT4O:  return nfc || t->ignore_merges ? NULL : "gpt-4o";
    case SPLIT_GPT2:   return nfc || t->ignore_merges ? NULL : "gpt-2";
    default:           return NULL;
    }
}

static void put_tokens(struct gguf_out *o, const struct tokenizer *t, size_t vocab)
{
    char name[32];
    gguf_put_array(o, "tokenizer.ggml.tokens", GGUF_STRING, vocab);
    for (size_t i = 0; i < vocab; i++)
        if (i < t->n && t->content[i].n)
            gguf_add_text(o, t->pool.s + t->content[i].at, t->content[i].n);
        else
            gguf_add_text(o, name, (size_t)snprintf(name, sizeof name, "[PAD%zu]", i));
}

static int put_types(struct gguf_out *o, const struct tokenizer *t, size_t vocab, struct err *e)
{
    uint32_t *type = malloc(vocab * sizeof *type);
    if (!type)
        return err_set(e, ERR_FAILED, "out of memory for %zu tokens", vocab);
    for (size_t i = 0; i < vocab; i++)
        type[i] = i < t->n && t->content[i].n ? TYPE_NORMAL : TYPE_UNUSED;
    for (size_t b = 0; b < 256; b++)
        if (t->has_fallback && t->byte_fallback[b] < vocab)
            type[t->byte_fallback[b]] = TYPE_BYTE;
    for (size_t i = 0; i < t->n_added; i++)
        type[t->added[i].id] = t->added[i].flags & ADDED_SPECIAL ? TYPE_CONTROL : TYPE_USER;
    if (t->unk != NO_ID && !t->byte_level)
        type[t->unk] = TYPE_UNKNOWN;
    gguf_put_array(o, "tokenizer.ggml.token_type", GGUF_I32, vocab);
    for (size_t i = 0; i < vocab; i++)
        gguf_add_u32(o, type[i]);
    free(type);
    return 0;
}

/* Writes merges in the order of their ranks, and the score of each token: minus the rank of the first merge
 * that makes it. A later merge of the same pair replaced the earlier one, whose rank stays empty. */
static int put_merges(struct gguf_out *o, const struct tokenizer *t, size_t vocab, struct err *e)
{
    const struct merge **by_rank = calloc(t->n_merges + 1, sizeof *by_rank);
    float *score = calloc(vocab, sizeof *score);
    struct bytes text = { 0 };
    size_t n = 0;
    for (size_t i = 0; by_rank && i <= t->merge_mask; i++)
        if (t->merge[i].a != NO_ID) {
            by_rank[t->merge[i].rank] = &t->merge[i];
            n++;
        }
    if (by_rank && score) {
        gguf_put_array(o, "tokenizer.ggml.merges", GGUF_STRING, n);
        for (size_t i = 0; i < t->n_merges; i++) {
            const struct merge *m = by_rank[i];
            if (!m)
                continue;
            const struct span a = t->content[m->a], b = t->content[m->b];
            text.n = 0;
            bytes_add(&text, t->pool.s + a.at, a.n);
            bytes_add(&text, " ", 1);
            bytes_add(&text, t->pool.s + b.at, b.n);
            if (text.failed)
                break;
            gguf_add_text(o, text.s, text.n);
            if (score[m->to] == 0)
                score[m->to] = -(float)(i + 1);
        }
    }
    if (score && !t->byte_level) {
        gguf_put_array(o, "tokenizer.ggml.scores", GGUF_F32, vocab);
        for (size_t i = 0; i < vocab; i++)
            gguf_add_f32(o, score[i]);
    }
    const int rc = by_rank && score ? 0 : err_set(e, ERR_FAILED, "out of memory for %zu merges", t->n_merges);
    free(text.s);
    free(by_rank);
    free(score);
    return rc;
}

int tokenizer_put_gguf(struct gguf_out *o, const struct tokenizer *t, const char *json, size_t n,
                       size_t vocab, struct err *e)
{
    const char *pre = t->byte_level ? pre_name(t) : "default", *model = t->byte_level ? "gpt2" : "llama";
    bool prefix = t->metaspace && t->meta_prepend != PREPEND_NEVER;
    for (size_t i = 0; i < t->n_norm; i++)
        prefix |= t->norm[i].kind == NORM_PREPEND;
    if (!pre)
        return err_set(e, ERR_INPUT,
                       "tokenizer.json: GGUF has no name for this normalizer and split pattern");
    gguf_put_text(o, "tokenizer.ggml.model", model, strlen(model));
    gguf_put_text(o, "tokenizer.ggml.pre", pre, strlen(pre));
    put_tokens(o, t, vocab);
    if (put_types(o, t, vocab, e) || put_merges(o, t, vocab, e))
        return -1;
    gguf_put_bool(o, "tokenizer.ggml.add_bos_token", t->n_prefix > 0);
    gguf_put_bool(o, "tokenizer.ggml.add_eos_token", t->n_suffix > 0);
    if (!t->byte_level) {
        gguf_put_bool(o, "tokenizer.ggml.add_space_prefix", prefix);
        if (t->unk != NO_ID)
            gguf_put_uint(o, "tokenizer.ggml.unknown_token_id", t->unk);
    }
    gguf_put_text(o, "tokenizer.huggingface.json", json, n);
    return 0;
}
