/* The drafter of Gemma 4 ("assistant"): a few layers that attend the caches of the model that they draft for,
 * and keep none. A guess after token t costs one row,
 *
 *     x  = fuse [E(t) sqrt(hidden of the model); h]      E: the model's embeddings
 *     x  = layers(x)                                     queries alone, over the cache of the model's last
 *                                                        layer that has one of the same kind: with a window,
 *                                                        or without
 *     h' = project norm(x), and the logits are those of the drafter's own LM head on norm(x)
 *
 * where h is the model's state after its final norm in the row before the text's last token. A further guess
 * continues with the guessed token and h' in place of h. All rows of a round stand at the position of the
 * text's last token, and see the committed rows alone. So nothing follows the text, and nothing is rebuilt
 * when a job resumes.
 *
 * The drafter is a struct model with config.backbone, and its pass is the model's. Directories name it
 * gemma4_assistant or gemma4_unified_assistant, GGUF files gemma4-assistant. Its ordering of the vocabulary
 * (masked_embedding), which lets an LM head skip tokens, is not used. */
#pragma once
#include "src/model/draft_model.h"

enum { ASSISTANT_ROWS = 64,              /* the most rows of a pass */
       ASSISTANT_PASSES = 8, ASSISTANT_BEAM = 8 };       /* of a round; candidates that a pass reads */

/* Finds the drafter of a model: beside it, as MODEL-assistant (a directory or a .gguf file) or in the folder
 * assistant/, or in a cache of Hugging Face's tools under the model's name with -assistant. False: there is
 * none. */
bool assistant_find(char path[PATH_BYTES], const char *model);
/* Whether `place`, a directory or GGUF file, is a drafter for m, of which config, compute and device are
 * needed. Reads headers only. *bytes: NULL, or what assistant_open would take. ERR_INPUT. */
int  assistant_check(const char *place, const struct model *m, bool int8, size_t *bytes, struct err *e);
/* m is open and outlives the drafter. t->rows are [ASSISTANT_ROWS][backbone]: h' of the rows of the last
 * pass. int8: its matrices get an 8-bit copy, if it is not quantised. Beside a quantised model, weights of 16
 * bits are read as Q8_0. Only with host_memory. */
int  assistant_open(struct draft_model *t, const char *place, const struct model *m, bool int8,
                    struct err *e);
/* Writes the input of a row, [2 * hidden of m]: the embedding of its token, and h. */
void assistant_input(const struct model *m, int32_t token, const float *h, float *input);
/* One pass: each sequence has the cache of a text (kv), `reads`, and its inputs as `state`. 0, or -1 where a
 * value is not finite. */
int  assistant_forward(struct draft_model *t, struct pass_seq *seqs, size_t n_seqs);
