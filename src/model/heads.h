/* Drafting heads: a few small matrices that guess tokens further ahead from one hidden state of the model (TokenSwift, section
 * 3.2, equation 1, with the two norms that its published weights need). For head i = 1..n, h_0 the residual before the
 * final norm:
 *
 *     u_i = W_i RMSNorm(h_{i-1}; norm_in_i)      h_i = h_{i-1} + u_i      logits_i = LMHead(RMSNorm(h_i; norm_out_i))
 *
 * Independent heads (as Medusa's are of each other) read h_0 in place of h_{i-1}. The norms' epsilon and the LM head are the
 * model's. Counted from 0, as in files, head k at position t predicts the token at t + 2 + k; the model itself that at t + 1.
 *
 * Files. Inside a full checkpoint, as TokenSwift publishes them (chained), next to the model's own tensors:
 *     model.medusa_layers.{k}.linear.weight [hidden, hidden], .input_layernorm.weight [hidden], .post_layernorm.weight [hidden]
 * or alone in a safetensors file of any name, as `train heads` writes them, with __metadata__ (strings):
 *     heads.{k}.linear.weight, .input_layernorm.weight, .post_layernorm.weight
 *     kind "chained" or "independent"; hidden_size, vocab_size: of the model; model: its fingerprint (heads_fingerprint)
 * BF16, F16 or F32. Heads are counted from 0 without a gap. Heads of another model of the same shape draft badly; no text depends on them. */
#pragma once
#include "src/model/model.h"

enum { HEADS_MAX = 16 };
#define HEADS_FILE "heads.safetensors"

struct heads {                           /* {0} is closed */
    size_t n;
    bool chained;
    bool foreign;                        /* the file says that it was made for another model */
    struct { struct mat w; float *norm_in, *norm_out; } head[HEADS_MAX];
    char path[4096];                     /* where they come from */
    struct device *dev;                  /* of the model: matrices and norms lie there */
    void *mem; size_t mem_bytes;
};

/* path: a safetensors file, a model directory, or NULL: the model's own directory. In a directory: the heads inside its
 * checkpoint, else its heads.safetensors. Matrices are packed as the model's are (BF16 with --compute bf16). Not to find
 * any is an ERR_INPUT too. */
int  heads_open(struct heads *h, const char *path, const struct model *m, struct err *e);
void heads_close(struct heads *h);
/* What n heads of a BF16 file hold in the memory of the model's device, from the model's config, device and compute alone. */
size_t heads_bytes(const struct model *m, size_t n);
/* Whether heads_open would find heads there that fit, from their header: for a model whose weights are not read (of it config, device and compute are used). */
int  heads_check(const char *path, const struct model *m, struct err *e);
/* Whether a model directory has heads: by names alone, nothing is checked. */
bool heads_present(const char *dir);

/* logits [rows][n][vocab] of heads 0..n-1 (1 <= n <= h->n) from h0 [rows][hidden], the residual before the final norm. One LM-head
 * product for all rows and heads, so that it is read once. Products have bf16 operands with --compute bf16; h_i are floats. h0,
 * logits and scratch (heads_scratch_bytes of at least as many rows) are the device's; rows * n <= MODEL_ROWS_MIN where they
 * are not the host's, and some workspace is open. */
void heads_forward(const struct heads *h, const struct model *m, const float *h0, size_t rows, size_t n,
                   float *logits, void *scratch);
size_t heads_scratch_bytes(const struct heads *h, const struct model *m, size_t rows);

/* What tells models of one shape apart: sizes, norms and some rows of the LM head. The same with any --compute. */
uint64_t heads_fingerprint(const struct model *m);
