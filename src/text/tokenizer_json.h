/* Reading objects of tokenizer.json: shared by tokenizer_json.c (components, the whole file) and tokenizer_model.c
 * (vocabulary, merges, added tokens). */
#pragma once
#include "src/base/json.h"
#include "src/text/tokenizer_tables.h"

struct field { const char *name; struct json v; bool there, required; };

/* The members of an object into the fields of the same names, which end with a NULL name. A key that no field has, a
 * key given twice, and a required key that is missing are errors. */
int tok_fields(const struct json *object, struct field *f, struct err *e);
static inline bool field_null(const struct field *f) { return !f->there || js_kind(&f->v) == JS_NULL; }
/* A flag with a default, which null is too. */
int tok_flag(const struct field *f, bool *x, bool otherwise, struct err *e);
int tok_no_memory(const struct json *v, struct err *e);

int tok_read_model(struct tokenizer *t, const struct json *v, size_t n_added, struct err *e);
/* The number of added tokens; then, behind model and normalizer, the tokens themselves. */
int tok_count_added(const struct field *f, size_t *n, struct err *e);
int tok_read_added(struct tokenizer *t, const struct field *f, size_t n, struct err *e);
/* Behind everything else: what encoding looks up. */
int tok_prepare(struct tokenizer *t, const struct json *root, struct err *e);
