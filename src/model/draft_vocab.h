/* The short vocabulary of a trained drafter: the tokens that it guesses, which are the most frequent ones of
 * the text that it was trained on. Other tokens are never guessed: their draft logits are -infinity. The LM
 * head is most of what a small drafter reads, so that a short one makes passes and training cheaper (FR-Spec,
 * arXiv:2502.14856; EAGLE-3, arXiv:2503.01840).
 *
 * In a file the vocabulary is the tensor d2t of EAGLE-3's checkpoints, I64 [n]: token i of the vocabulary is
 * token i + d2t[i] of the model. Tokens ascend, so d2t never falls. A file without it guesses all tokens.
 *
 * Drafting on the host multiplies with a copy of the LM head's rows, made when the drafter opens. Elsewhere
 * the product has all rows, and a bias keeps the other tokens out. */
#pragma once
#include "src/model/model.h"

#define DRAFT_VOCAB_TENSOR "d2t"

struct draft_vocab {                     /* {0}: all tokens */
    size_t n;
    int32_t *id;                         /* [n], ascending */
    struct mat head;                     /* the host's; w NULL: not gathered */
    float *bias;                         /* the device's [vocab], or NULL */
    struct device *dev;                  /* owns `bias` */
    size_t bytes;                        /* of `head` or `bias` */
};

/* The type of a trained drafter's matrices on the host. */
static inline enum dtype drafter_mat_type(const struct model *m, bool int8)
{
    return int8 ? DT_I8 : m->compute == DT_F32 ? DT_F32 : DT_BF16;
}
/* The n most frequent tokens of a text, the lower id on ties; a text with fewer gives the lowest ids. n = 0,
 * and less than twice the n tokens in all: all tokens. */
int  draft_vocab_count(struct draft_vocab *v, size_t n, size_t vocab, const int32_t *token, size_t n_tokens,
                       struct err *e);
/* The vocabulary of a file, for a model with `vocab` tokens. */
int  draft_vocab_read(struct draft_vocab *v, const struct tensors *ts, size_t vocab, struct err *e);
/* Makes the copy of the LM head of m. int8: in 8 bits. Does nothing for all tokens. */
int  draft_vocab_gather(struct draft_vocab *v, const struct model *m, bool int8, struct err *e);
/* The bytes that it will take for the vocabulary of a file; 0: the file has none, or cannot be read. Uses the
 * model's config, device and compute. */
size_t draft_vocab_bytes(const char *path, const struct model *m, bool int8);
void draft_vocab_close(struct draft_vocab *v);

/* logits [rows][m->config.vocab] = LMHead x, x act [rows][hidden]. head: an LM head of m, for all tokens.
 * place: as in struct device_product. */
void draft_vocab_product(const struct draft_vocab *v, const struct model *m, const struct mat *head,
                         const void *x, size_t rows, float *logits, size_t place);
/* The matrix that a product over `head` reads. */
static inline const struct mat *draft_vocab_head(const struct draft_vocab *v, const struct mat *head)
{
    return v->head.w ? &v->head : head;
}
