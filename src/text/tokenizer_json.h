/* Reading objects of tokenizer.json: for tokenizer_json.c (components, the whole file) and tokenizer_model.c
 * (vocabulary, merges, added tokens). */
#pragma once
#include "src/base/json.h"
#include "src/text/tokenizer_tables.h"

struct field { const char *name; bool required, given; struct json v; };

/* Reads the members of an object into the fields of their names; a NULL name ends the fields. An unknown
 * key, a repeated key and a missing required key are errors. */
int tok_fields(const struct json *object, struct field *f, struct err *e);
static inline bool field_null(const struct field *f) { return !f->given || js_kind(&f->v) == JS_NULL; }
/* Reads a flag. null and a missing key give the default. */
int tok_flag(const struct field *f, bool *x, bool otherwise, struct err *e);
int tok_no_memory(const struct json *v, struct err *e);

int tok_read_model(struct tokenizer *t, const struct json *v, size_t n_added, struct err *e);
/* Counts the added tokens. tok_read_added reads them, after model and normalizer. */
int tok_count_added(const struct field *f, size_t *n, struct err *e);
int tok_read_added(struct tokenizer *t, const struct field *f, size_t n, struct err *e);
/* Builds the tables for encoding, after everything else is read. */
int tok_prepare(struct tokenizer *t, const struct json *root, struct err *e);
