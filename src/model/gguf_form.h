/* How tensors lie in a GGUF file. Of architecture llama rows 2b and 2b + 1 of a head of q and k are rows b
 * and b + d/2 of the model. Of models whose norms hold w - 1 norms hold 1 + w. In hybrids A_log holds
 * -exp(A_log), and value head (key head g, member r) is head r * key_heads + g, which reorders rows, and
 * columns of out_proj. */
#pragma once
#include "src/model/config.h"
#include "src/model/tensors.h"

/* What values become: w + 1, or -exp(w) where the files hold A_log. */
enum change { AS_IS, PLUS_ONE, MINUS_EXP };
float changed(float x, enum change c);

struct gguf_form {
    enum change change;
    /* rows (or columns) from `skip` on are value heads of `width` rows; 0: the order stays */
    size_t skip, width; bool columns;
    size_t paired;                       /* rows (or columns) of a head, whose halves lie in pairs; 0: none */
};
/* The form of a tensor of the model, by its Hugging Face name. */
struct gguf_form gguf_form(const struct config *c, const char *name);
/* The row (column) of the directory's tensor that is row (column) i of the file's. */
size_t gguf_form_source(const struct gguf_form *f, const struct config *c, size_t i);
/* Rows row .. row+n-1 of the file's tensor, encoded as tensors_encode says. A vector is one row. ERR_INPUT:
 * the tensor has not the value heads of the model. */
int gguf_form_read(const struct tensors *ts, const struct tensor *t, const struct config *c, void *dst,
                   size_t row, size_t n, struct err *e);
