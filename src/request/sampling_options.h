/* Sampling parameters from the command line and the model's generation_config.json. */
#pragma once
#include <stdio.h>
#include "src/model/config.h"
#include "src/request/options.h"
#include "src/sample/sample.h"
#include "src/text/tokenizer.h"

/* Flags win over the model's own settings (unless --generation-config none), these over the neutral ones.
 * `do_sample: false` in the file is greedy, as in Hugging Face. eos is borrowed from c. The seed is drawn
 * when --seed is not given. t NULL: DRY is left without its breakers, for parameters that are to be stored and bound to a model later. text_max: tokens of prompt and text together. Checked by sampling_check. sampling_free afterwards, whatever it
 * returns. */
int sampling_from_options(struct sampling *s, const struct options *o, const struct config *c,
                          const struct tokenizer *t, size_t text_max, struct err *e);
/* The breakers of DRY from texts, none: the default ones. As in llama.cpp: a token whose text contains the breaker is one, and where the end of
 * a token's text is the beginning of the breaker, that token and the tokens of the rest (at most 20) are one; here the rest is
 * encoded as it stands inside a text (there as at the beginning of one, which matters where a tokenizer puts a space there). */
int sampling_breakers(struct sampling *s, const struct text_list *texts, const struct tokenizer *t,
                      struct err *e);
void sampling_free(struct sampling *s);

/* "temperature 1, min-p 0.05": what the model's file says, or "" when it says nothing that is used. */
void sampling_own_settings(char *text, size_t size, const struct options *o, const struct config *c);
