/* Sampling settings from the command line and the model's generation_config.json. */
#pragma once
#include "src/model/config.h"
#include "src/request/options.h"
#include "src/sample/sample.h"
#include "src/text/tokenizer.h"

/* Options override the model's own settings (ignored with --generation-config none), which override the
 * neutral ones. `do_sample: false` in the model's file means greedy, as in Hugging Face. The EOS ids are
 * borrowed from c. Without --seed the seed is drawn. text_max: tokens of prompt and text together. t NULL:
 * DRY gets no breakers, because the parameters will be stored and bound to a model later. The result has
 * passed sampling_check. Call sampling_free whatever this returns. */
int sampling_from_options(struct sampling *s, const struct options *o, const struct config *c,
                          const struct tokenizer *t, size_t text_max, struct err *e);
/* Sets the breakers of DRY from texts; an empty list stands for the default breakers. As in llama.cpp, a
 * token whose text contains the breaker is a breaker; and a token whose text ends with the beginning of
 * the breaker, together with the tokens of the rest (at most 20), is one too. llama.cpp encodes that rest
 * as the beginning of a text; longhand uses encode_inside. */
int sampling_breakers(struct sampling *s, const struct text_list *texts, const struct tokenizer *t,
                      struct err *e);
void sampling_free(struct sampling *s);
/* Adds the biases of --logit-bias. */
int sampling_biases(struct sampling *s, const struct options *o, size_t vocab, struct err *e);

/* "temperature 1, min-p 0.05": the settings of the model's file that are used, or "". */
void describe_generation_config(char *text, size_t size, const struct options *o, const struct config *c);

/* Says what --preset story sets, if it is given. c NULL: for models that are not known yet. */
void notice_story(const struct options *o, const struct config *c);

/* Token ids of text[0..n) as they stand in the middle of a text; free(*ids). The text is encoded after a
 * newline, because many tokenizers put a space before the first word of a text. */
int encode_inside(const struct tokenizer *t, int32_t **ids, size_t *n_ids, const char *text, size_t n,
                  struct err *e);
