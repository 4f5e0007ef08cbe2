/* The draft layer of Qwen3.5 (MTP, multi-token prediction), which lies in the model's own files: one layer
 * with attention, dense or with experts as the model's layers are. From the token at position i and the
 * hidden state of the row before it, it predicts the token at i + 1:
 *
 *     z  = fuse [norm_token(E[token i]); norm_state(h[i-1])]     h: the model's rows after its final norm
 *     z  = layer(z)                            RoPE position i; keys and values in a cache of its own
 *     h' = norm_final(z)                       the logits are those of the model's LM head on h'
 *
 * A further draft continues with the drafted token and h' in place of h. Keys and values of a row depend on
 * its token and state alone, so a pass without logits computes nothing else (model_forward).
 *
 * The layer is a struct model of one layer (config.drafts), and its pass is the model's. Its files have
 *
 *     mtp.fc.weight                            [hidden, 2 hidden]: the columns of the token first
 *     mtp.pre_fc_norm_embedding.weight, mtp.pre_fc_norm_hidden.weight, mtp.norm.weight     [hidden]
 *     mtp.layers.0.*                           as a layer with attention
 *     mtp.embed_tokens.weight, mtp.lm_head.weight     optional, in place of the model's
 *
 * GGUF files have them as blk.L.nextn.*, and the layer as blk.L.*, L being the number of layers before it. */
#pragma once
#include "src/model/draft_model.h"

enum {
    MTP_ROWS = 64,                       /* the most rows of a pass */
    MTP_PASSES = 8, MTP_BEAM = 8,        /* of a round; candidates that a pass reads */
    MTP_BRIEF = 32768,                   /* tokens that a short LM head has */
    MTP_KEYS = 4096,                     /* the most keys that remain when a cache is full, */
    MTP_MORE = 512,                      /* and those that it gains before */
    MTP_SLOTS = MTP_KEYS + MTP_MORE + MTP_PASSES,    /* of the largest cache */
};

struct mtp {                             /* {0} is closed */
    struct draft_model draft;            /* rows: [MTP_ROWS][hidden], h' of the rows of the last pass */
    /* The model for drafts with a short LM head: the first MTP_BRIEF tokens, which are the most frequent ones
     * where ids follow the merges of a tokenizer. lm_head.w NULL: the vocabulary is not much larger. */
    struct model brief;
    void *head; size_t head_bytes;       /* holds it, or NULL */
};

/* Whether a model has the layer. Looks at names only. */
bool mtp_present(const char *dir);
/* Whether the tensors of the layer of m fit its configuration. m: config, device and compute. *bytes: of its
 * weights in memory. */
int  mtp_check(const struct model *m, const struct tensors *ts, size_t *bytes, struct err *e);
/* The bytes that mtp_open takes for a layer with weights of weight_bytes. */
size_t mtp_bytes(const struct model *m, size_t weight_bytes, bool int8);
/* Reads the layer of m, which is open and outlives it, from `dir`. int8: its matrices, and the LM head for
 * drafts, get an 8-bit copy, if m is not quantised. Only with host_memory. */
int  mtp_open(struct mtp *t, const struct model *m, const char *dir, enum weights weights, bool int8,
              struct err *e);
void mtp_close(struct mtp *t);
/* For mtp_open and tests: makes the short LM head, of the first n tokens. */
int  mtp_shorten(struct mtp *t, size_t n, struct err *e);
/* A pass over at most MTP_ROWS rows, each with `state` and `want`. t->draft.rows receives h' of the rows,
 * unless none of them has logits. brief: with the short LM head; the logits of other tokens are -infinity. 0,
 * or -1 where a value is not finite. */
int  mtp_forward(struct mtp *t, struct pass_seq *seqs, size_t n_seqs, bool brief);
