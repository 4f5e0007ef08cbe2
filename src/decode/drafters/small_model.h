/* A smaller model of the same tokenizer, which drafts for another one (--drafter model:DIR). It shares the
 * device, the threads and the arithmetic of the model that it drafts for. */
#pragma once
#include "src/model/draft_model.h"
#include "src/text/tokenizer.h"

enum {
    SMALL_ROWS = 64,                     /* of a pass */
    SMALL_KEYS = 4096,                   /* the most keys that remain when a cache is full */
    SMALL_SLOTS = 2 * SMALL_KEYS + 2 * SMALL_ROWS, /* of the largest cache of a text */
};

/* dir: a model directory or a GGUF file. m and t are those of the model that it drafts for. int8: its
 * matrices get an 8-bit copy, if it is not quantised. s->rows are logits, [SMALL_ROWS][vocab]. Only with
 * host_memory. ERR_INPUT for another vocabulary. */
int  small_model_open(struct draft_model *s, const char *dir, const struct model *m,
                      const struct tokenizer *t, bool int8, struct err *e);
/* Whether small_model_open would find a model that fits. Reads headers only. *bytes: NULL, or what it would
 * take. */
int  small_model_check(const char *dir, const struct model *m, const struct tokenizer *t, bool int8,
                       size_t *bytes, struct err *e);
