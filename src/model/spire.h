/* SPIRe's drafter (arXiv:2504.06419): the tensors of its two blocks, and files that hold them. The equations
 * are in src/lab/train/train_spire.c.
 *
 * No checkpoint is published. A file of `train spire` is a safetensors file with the names of the model's own
 * layers, counted from 0; q = n_heads * head_dim and kv = n_kv_heads * head_dim:
 *     layers.{i}.self_attn.{q,k,v}_proj.weight, and .bias if the model's have biases
 *     layers.{i}.self_attn.o_proj.weight
 *     layers.{i}.mlp.{gate,up,down}_proj.weight
 *     layers.{i}.input_layernorm.weight, layers.{i}.post_attention_layernorm.weight
 *     norm.weight                     before the LM head
 *     memory.weight [2][3]            w of the memory vectors, before the softmax
 * Embedding and LM head are the model's. */
#pragma once
#include "src/model/drafter_block.h"

enum { SPIRE_LAYERS = 2, SPIRE_DEPTH = 4, SPIRE_WINDOW = 64, SPIRE_MIX = SPIRE_LAYERS + 1 };

/* Rows of a pass; slots of the drafter's own cache, which are position 0 and the last 64 positions. */
enum { SPIRE_ROWS = 64, SPIRE_SLOTS = 1 + SPIRE_WINDOW };

struct spire {                           /* {0} is closed */
    struct drafter_file file;
    struct drafter_block layer[SPIRE_LAYERS];
    float *norm, share[SPIRE_LAYERS][SPIRE_MIX];           /* share: softmax of memory.weight, */
    const float *memory;                 /* which is here to be written: [SPIRE_LAYERS][SPIRE_MIX] */
    struct spire_buffers *buffers;       /* of a pass of SPIRE_ROWS rows */
};
extern const struct drafter_kind spire_kind;

/* One token of a text: pass `node` of its round. own: a cache of SPIRE_LAYERS layers and at least SPIRE_DEPTH
 * nodes; its n_past slots are visible, in any order, and the nodes of passes before. */
struct spire_row { struct kv *own; size_t node, position; int32_t token; };
/* One pass of n <= SPIRE_ROWS rows. logits [n][vocab], by `head`, an LM head of the model. memories: writes
 * the memories of the rows to their nodes, for later passes. -1: a logit is not finite. */
int spire_forward(struct spire *s, const struct mat *head, const struct spire_row *row, size_t n,
                  bool memories, float *logits);
/* A committed token: the model's residuals that enter its last two layers. */
struct spire_memory { size_t slot, position; const float *entering[SPIRE_LAYERS]; };
/* Writes keys and values of n committed tokens to slots of a cache. */
void spire_commit(struct spire *s, struct kv *own, const struct spire_memory *row, size_t n);
