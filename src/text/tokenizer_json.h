/* Reading tokenizer.json: what tokenizer_model.c (vocabulary, merges, added tokens) does for tokenizer_json.c
 * (components, the whole file). */
#pragma once
#include "src/text/tokenizer_tables.h"

int tok_read_model(struct tokenizer *t, const struct json *v, size_t n_added, struct err *e);
/* Counts the added tokens. tok_read_added reads them, after model and normalizer. */
int tok_count_added(const struct field *f, size_t *n, struct err *e);
int tok_read_added(struct tokenizer *t, const struct field *f, size_t n, struct err *e);
/* Builds the tables for encoding, after everything else is read. */
int tok_prepare(struct tokenizer *t, const struct json *root, struct err *e);
