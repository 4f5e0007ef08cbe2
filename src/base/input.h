/* Reads texts that a user names: files, pipes, standard input. */
#pragma once
#include <sys/types.h>
#include "src/base/base.h"

enum { TEXT_BYTES_MAX = 1 << 30 };
/* Opens a file, a pipe or ("-") standard input. Returns the descriptor, or -1. */
int input_open(const char *path, struct err *e);
/* Reads at most n bytes. Returns their number, 0 at the end, or -1. A stop signal ends a wait for input with
 * ERR_FAILED. */
ssize_t input_read(int fd, const char *path, void *p, size_t n, struct err *e);
void input_close(int fd);            /* -1 is allowed */
/* What messages call a path: "-" is standard input. */
const char *input_name(const char *path);

/* Reads all of an input, and adds a NUL after it; free(*data). */
int text_read(char **data, size_t *n, const char *path, struct err *e);
/* text_read, and ERR_INPUT unless the text is UTF-8. */
int text_read_utf8(char **data, size_t *n, const char *path, struct err *e);
/* ERR_INPUT with the offset of the first byte that is not UTF-8; messages call the text `what`. */
int text_check_utf8(const char *what, const char *s, size_t n, struct err *e);
/* ERR_INPUT with the offset of the first NUL. */
int text_check_nul(const char *what, const char *s, size_t n, struct err *e);
/* text_read_utf8 for a text that a model continues: without a byte order mark, and without NUL. */
int text_read_prompt(char **data, size_t *n, const char *path, struct err *e);

/* Whether both paths exist and lead to the same file. */
bool same_file(const char *a, const char *b);
