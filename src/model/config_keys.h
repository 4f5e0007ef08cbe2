/* Keys of configurations, with the values of missing ones. -1: an error, a key that is given twice or has a
 * value that is not allowed. */
#pragma once
#include "src/base/json.h"

static inline bool is_null(const struct json *v) { return js_kind(v) == JS_NULL; }
/* 1: *v exists and is not null. 0: missing, or null. */
int get_value(const struct json *in, const char *key, struct json *v, struct err *e);
/* 0, or -1 for a value that is no object. */
int need_object(const struct json *v, struct err *e);
/* These return 0 or -1: a whole number from 1 to hi; a number from lo to hi, where null counts as missing;
 * true or false. */
enum null { NULL_REFUSED, NULL_MISSING };
int get_size(const struct json *in, const char *key, size_t missing, enum null null, size_t hi, size_t *x,
             struct err *e);
int get_real(const struct json *in, const char *key, double missing, double lo, double hi, double *x,
             struct err *e);
int get_bool(const struct json *in, const char *key, bool missing, bool *x, struct err *e);

/* A key that may have one value, a string; null counts as missing. 1, 0: missing, or -1. */
int read_word(const struct json *in, const char *key, const char *allowed, struct err *e);
bool is_one_of(const struct json *v, const char *const *words);

/* Values of a key that change nothing; null never does. */
enum neutral { NULL_ONLY = 0, ZERO = 1, ONE = 2, NO = 4, YES = 8, EMPTY = 16 };
struct foreign { const char *key; int neutral; };
bool is_neutral(const struct json *v, int neutral);
