/* What every file may use: errors as values, checked sizes, the clock, whole files.
 *
 * Errors. A function that can fail because of the world (a file, its content, memory) returns 0 or
 * -1 and takes `struct err *e` last. The message is one line without a newline: what, where, which
 * value, what is allowed. err_set returns -1 so that failing is one line:
 *
 *     if (n_heads % n_kv_heads)
 *         return err_set(e, ERR_INPUT, "%s: num_attention_heads %zu is not a multiple of ...", ...);
 *
 * Only main prints, and exits with e->code. A caller's mistake is an assert, and asserts stay on. */
#pragma once
#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { ERR_FAILED = 1, ERR_INPUT = 2, ERR_AGAIN = 75 };   /* the exit codes of INTERFACES */

enum { PATH_BYTES = 4096 };           /* the longest path, with its NUL */

struct err { int code; char msg[1024]; };

/* Write the message and the code; always -1. Bytes that are no printable UTF-8 in the formatted
 * text are shown as \xNN, so that hostile file content cannot drive a terminal. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Put "<context>: " in front of the message on the way up; always -1. */
int err_while(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* a*b and a+b in size_t; false when they do not fit (then *out is not touched). */
bool mul_size(size_t a, size_t b, size_t *out);
bool add_size(size_t a, size_t b, size_t *out);

/* Zeroed memory on a 64-byte boundary, for huge pages where it is large; NULL when there is none.
 * Large blocks come straight from the kernel: pages never touched cost nothing. */
void *mem_alloc(size_t bytes);
void  mem_free(void *p, size_t bytes);
size_t mem_rounded(size_t bytes);                    /* what mem_alloc takes for so many */

/* The whole of a regular file as bytes with a NUL behind them; free(*data). Anything else (missing,
 * a directory, a FIFO, larger than `max` bytes, changed while read) is an ERR_INPUT that names it. */
int file_read(char **data, size_t *size, const char *path, size_t max, struct err *e);

/* Creates the file that will replace `path` once it is complete: "PATH.part-" and six digits, which go to
 * `name`. Its permissions are those of any new file. Returns the descriptor, or -1 and errno. */
int file_create_beside(char name[PATH_BYTES], const char *path);
/* Writes all n bytes; -1 and errno when the disk or the reader of a pipe does not take them. */
int write_bytes(int fd, const void *p, size_t n);

/* Write a file of these parts, one after the other, aside and then in place of what was there: at any time, and after a power
 * cut, it is the old one or the new one. */
struct slice { const void *p; size_t n; };
int file_write(const char *path, const struct slice *part, size_t n_parts, struct err *e);

/* The names in a folder, or in the one that `path` stands in, on the disk: what was made, renamed or deleted there lasts through a power cut. -1 and errno
 * when the disk cannot; a folder that may not be read, or whose file system has no such call, is left out. */
int folder_sync(const char *folder);
int name_sync(const char *path);

/* closes it; not 0: something that was written to it is lost */
int stream_end(FILE *f);

double clock_seconds(void);                     /* monotonic */
double thread_cpu_seconds(void);                /* that the calling thread has taken */
uint64_t hash64(uint64_t h, const void *p, size_t n);   /* FNV-1a step; start with HASH64_INIT */
#define HASH64_INIT 0xcbf29ce484222325u

/* Length of the valid UTF-8 prefix of s[0..n) (RFC 3629: no overlongs, no surrogates). */
size_t utf8_valid_prefix(const char *s, size_t n);
/* Whether s[0..n), which is no complete code point, may become one when more bytes follow. */
bool utf8_incomplete(const char *s, size_t n);

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
