/* Errors as values, checked sizes, memory, the clock, and whole files.
 *
 * A function that can fail because of the world (a file, its content, memory) returns 0 or -1 and takes
 * `struct err *e` last. The message is one line without a newline. It names the place, the value that was
 * found, and the values that are allowed. err_set returns -1, so a failure takes one line:
 *
 *     if (n_heads % n_kv_heads)
 *         return err_set(e, ERR_INPUT, "%s: num_attention_heads %zu is not a multiple of ...", ...);
 *
 * Only main prints messages; it exits with e->code. A mistake of the caller is an assert, and asserts stay
 * on. */
#pragma once
#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { ERR_FAILED = 1, ERR_INPUT = 2, ERR_AGAIN = 75 };   /* exit codes; ERR_AGAIN: interrupted */

enum { PATH_BYTES = 4096 };           /* the longest path, with its NUL */

/* `system` is the errno of a file that could not be opened, read or written, and may work later; ENOEXEC for
 * a model whose files are not whole or do not belong together, as while they are copied; else 0. */
struct err { int code, system; short path, words; char msg[1024]; };     /* path, words: err_words */

/* Sets message and code; returns -1. Bytes that are not printable UTF-8 become \xNN, so the content of a
 * hostile file cannot control a terminal. */
int err_set(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* err_set, and e->system = errno. */
int err_set_system(struct err *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Puts "<context>: " before the message; returns -1. */
int err_while(struct err *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The beginning of a format of these, for a path that clients of a server shall not see: the whole path, or
 * all but the name of the file. */
#define ERR_PATH "\1%s: "
#define ERR_FILE "\2%s"
/* The message without that path. */
void err_words(const struct err *e, char *out, size_t size);

/* Message and exit code of a call that failed, also when it failed without setting the error ({0}). */
static inline const char *err_text(const struct err *e)
{
    return e->code ? e->msg : "failed without a message; please report this";
}
static inline int err_exit_code(const struct err *e) { return e->code ? e->code : ERR_FAILED; }

/* The words for n things: plural(n, "job is", "jobs are"). */
static inline const char *plural(size_t n, const char *one, const char *many) { return n == 1 ? one : many; }

/* a*b and a+b in size_t. False when the result does not fit; *out means nothing then. */
static inline bool mul_size(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool add_size(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }
/* Room for one more element of `size` bytes after n elements of the array whose pointer is at `array`. The
 * room doubles. False: no memory, and the array stays. */
bool array_grow(void *array, size_t n, size_t size);

/* Zeroed memory, aligned to 64 bytes; NULL when memory is short. Large blocks use huge pages and come
 * straight from the kernel, so a page that is never touched costs nothing. */
void *mem_alloc(size_t bytes);
void  mem_free(void *p, size_t bytes);
size_t mem_rounded(size_t bytes);                    /* the bytes that mem_alloc reserves */

/* Reads a whole regular file and adds a NUL after its bytes; free(*data). ERR_INPUT when the file is
 * missing, is not regular, has more than `max` bytes, or shrinks while it is read. */
int file_read(char **data, size_t *size, const char *path, size_t max, struct err *e);
/* Reads all of [at, at + n) of an open file. ERR_INPUT when the file ends before. */
int read_at(int fd, const char *path, void *dst, size_t at, size_t n, struct err *e);

/* Creates the file that will replace `path` once it is complete: "PATH.part-" and six digits, which go to
 * `name`. Its permissions are those of any new file. Returns the descriptor, or -1 and errno. */
int file_create_beside(char name[PATH_BYTES], const char *path);
/* Renames `from` to `to`. -1 and errno; EEXIST if there is something at `to`, which stays. File systems
 * without RENAME_NOREPLACE (EINVAL) have hard links, or neither: then a file that appears between the look
 * and the renaming is lost. */
int file_rename_new(const char *from, const char *to);
/* Writes all n bytes; -1 and errno when the disk or the reader of a pipe does not take them. */
int write_bytes(int fd, const void *p, size_t n);

/* Writes the parts, one after the other, to a new file that then replaces `path`. At any time, and after a
 * power cut, `path` is either the old file or the new file. */
struct slice { const void *p; size_t n; };
int file_write(const char *path, const struct slice *part, size_t n_parts, struct err *e);

/* Syncs the names of a folder: files that were created, renamed or deleted in it survive a power cut. -1
 * and errno when the disk fails. Unreadable folders and file systems without this call are ignored. */
int folder_sync(const char *folder);
int name_sync(const char *path);                     /* the folder of `path` */
/* Copies the folder of `path`, with its slash, to `to` and returns the last part of the path. */
const char *folder_of(char to[PATH_BYTES], const char *path);

/* Closes the stream. Not 0: some of the bytes that were written are lost. */
int stream_end(FILE *f);

double clock_seconds(void);                     /* monotonic */
double thread_cpu_seconds(void);                /* of the calling thread */
uint64_t hash64(uint64_t h, const void *p, size_t n);   /* FNV-1a; begin with HASH64_INIT */
#define HASH64_INIT 0xcbf29ce484222325u

/* The length of the valid UTF-8 prefix of s[0..n) (RFC 3629: no overlong forms, no surrogates). */
size_t utf8_valid_prefix(const char *s, size_t n);
/* Whether s[0..n) is the beginning of a code point whose remaining bytes are missing. */
bool utf8_incomplete(const char *s, size_t n);

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
