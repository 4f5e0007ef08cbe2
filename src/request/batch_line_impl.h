/* What batch_line.c and line_fields.c share: the values of a line, and the loop over its members. */
#pragma once
#include "src/request/batch_line.h"

/* Takes n bytes and a NUL from the line's room. */
char *line_room(struct batch_line *l, size_t n);
/* Copies a string without its escapes. NULL: v is no string, and e is set. */
char *line_string(struct batch_line *l, const struct json *v, struct err *e);
int line_unknown_field(const struct batch_line *l, const struct json *key, struct err *e);
/* Reads the members of an object that stand where `where` (FIELD_*) allows. Others are errors; in the object
 * around a body those that are no fields belong to the form of the line. */
int line_read_members(struct batch_line *l, const struct json *object, unsigned where, struct err *e);
/* The field of this name, after line_read_members; NULL: there is none. */
const struct line_field *line_find_field(const struct json *key);
