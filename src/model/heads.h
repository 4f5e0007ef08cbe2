/* Drafting heads: a few small matrices that guess tokens further ahead from one hidden state of the model
 * (TokenSwift, section 3.2, equation 1, with the two norms that its published weights need). For head i =
 * 1..n, and h_0 the residual before the final norm:
 *
 *     u_i = W_i RMSNorm(h_{i-1}; norm_in_i)
 *     h_i = h_{i-1} + u_i
 *     logits_i = LMHead(RMSNorm(h_i; norm_out_i))
 *
 * Independent heads, as in Medusa, read h_0 instead of h_{i-1}. The epsilon of the norms and the LM head are
 * the model's. Files count heads from 0: head k at position t predicts the token at t + 2 + k. The model
 * itself predicts the token at t + 1.
 *
 * Two kinds of file hold heads.
 *
 * A full checkpoint, as TokenSwift publishes it, next to the model's own tensors. Its heads are chained:
 *     model.medusa_layers.{k}.linear.weight [hidden, hidden]
 *     model.medusa_layers.{k}.input_layernorm.weight [hidden]
 *     model.medusa_layers.{k}.post_layernorm.weight [hidden]
 * A safetensors file of any name, as `train heads` writes it:
 *     heads.{k}.linear.weight, .input_layernorm.weight, .post_layernorm.weight
 *     d2t                      the short vocabulary (draft_vocab.h), if the heads have one
 * with these strings in __metadata__:
 *     kind                     "chained" or "independent"
 *     hidden_size, vocab_size  of the model
 *     draft_vocab_size         the tokens of d2t, if it is there
 *     model                    heads_fingerprint of the model
 *
 * Types are BF16, F16 or F32. Heads are counted from 0 without a gap. Heads that were trained for another
 * model of the same shape draft badly, but the text does not depend on them. */
#pragma once
#include "src/model/draft_vocab.h"
#include "src/model/safetensors_write.h"

enum { HEADS_MAX = 16, USUAL_HEADS = 4 };  /* USUAL_HEADS: assumed before a file is read */
#define HEADS_FILE "heads.safetensors"

struct heads {                           /* {0} is closed */
    size_t n;
    bool chained;
    bool foreign;                        /* the file names another model */
    struct { struct mat w; float *norm_in, *norm_out; } head[HEADS_MAX];
    struct draft_vocab vocab;            /* heads_open leaves draft_vocab_gather to those who draft */
    char path[4096];                     /* the file or directory they were read from */
    struct device *dev;                  /* the model's; matrices and norms lie in its memory */
    void *mem; size_t mem_bytes;
};

/* path: a safetensors file, a model directory, or NULL for the model's own directory. In a directory: the
 * heads inside its checkpoint, else its heads.safetensors. Matrices are packed as the model's are (BF16
 * with --compute bf16). ERR_INPUT if there are no heads, too. */
int  heads_open(struct heads *h, const char *path, const struct model *m, struct err *e);
void heads_close(struct heads *h);
/* The bytes that n heads of a BF16 file hold in the device's memory. Uses the model's config, device and
 * compute. */
size_t heads_bytes(const struct model *m, size_t n);
/* Whether heads_open would find heads there that fit. Reads headers only. Of the model, whose weights are
 * not read, it uses config, device and compute. */
int  heads_check(const char *path, const struct model *m, struct err *e);
/* Whether a model directory has heads. Looks at names only and checks nothing. */
bool heads_present(const char *dir);

/* logits [rows][n][vocab] of heads 0..n-1 (1 <= n <= h->n) from h0 [rows][hidden], the residual before the
 * final norm. A single LM-head product serves all rows and heads, so the LM head is read once. Products
 * have bf16 operands with --compute bf16; the h_i are floats. h0, logits and scratch (heads_scratch_bytes
 * for at least as many rows) are the device's. Without host_memory, rows * n <= MODEL_ROWS_MIN and a
 * workspace must be open. */
void heads_forward(const struct heads *h, const struct model *m, const float *h0, size_t rows, size_t n,
                   float *logits, void *scratch);
size_t heads_scratch_bytes(const struct heads *h, const struct model *m, size_t rows);

/* Tells models of one shape apart: a hash of sizes, norms and some rows of the LM head. It does not depend on
 * --compute. 0: out of memory. */
uint64_t heads_fingerprint(const struct model *m);
/* The same from the model's files, before its weights are read. 0: unknown, because weights are quantised or
 * changed while they are read. */
uint64_t heads_fingerprint_of_files(const struct config *c, const struct tensors *ts);
/* Checks the model that a drafter was trained for: the numbers of __metadata__, where they are present, and
 * whether it names another model than m: *foreign, which is an error if the model must be `same`. what: the
 * words of an error for the drafter. weights: the model's files, where its weights are not there; NULL: the
 * name is not compared then. */
int drafter_fits(const struct tensors *ts, const char *what, bool same, const struct model *m,
                 const struct tensors *weights, bool *foreign, struct err *e);
/* Writes the file of a trained drafter of model m. Its __metadata__ are kind, hidden_size, vocab_size, model
 * (heads_fingerprint) and training, the `note`. v: its short vocabulary, which adds draft_vocab_size, and d2t
 * to t, which has room for n + 1 tensors; NULL: none. */
int drafter_save(const char *path, const struct model *m, const struct draft_vocab *v, const char *kind,
                 const char *note, struct tensor_out *t, size_t n, struct err *e);
