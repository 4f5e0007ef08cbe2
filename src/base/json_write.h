/* Writes JSON: strings to a stream, and checks that jansson had memory for everything. */
#pragma once
#include <jansson.h>
#include <stdio.h>
#include "src/base/base.h"

/* Writes n bytes as a quoted string. A byte that is not UTF-8, as in a file's name, becomes the text \xNN. */
void put_json(FILE *f, const char *s, size_t n);
/* The string as a jansson value, with the same treatment of bytes that are not UTF-8; NULL becomes null. */
json_t *json_text(const char *s);

/* jansson drops a value silently when memory for it is missing. json_watch makes it record failed
 * allocations; json_whole, called after JSON was built, then fails with ERR_FAILED. */
void json_watch(void);
int  json_whole(struct err *e);
