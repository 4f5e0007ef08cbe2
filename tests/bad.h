/* Bad inputs: the files of build/data/bad (tests/make/bad.sh), the line that rejects each file
 * (tests/data/bad_expected.txt), and the memory that a rejection may allocate: the size of the input and
 * BAD_SLACK bytes.
 *
 * bad_expected.txt: name, tab, message, where @ stands for the path that the loader was given. With BAD_PRINT
 * set, lines for that file are printed instead of being checked. */
#pragma once
#include "src/base/base.h"
#include "tests/test.h"
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes allocated since bad_begin, freed ones included: an upper bound of the memory in use at any time. */
static size_t bad_allocated;
enum { BAD_SLACK = 128 << 10 };
/* Where the allocator is ours: the allocation that fails, counted down to 0; negative: none. */
static long bad_fail_at = -1;
static inline bool bad_fails(void) { return bad_fail_at >= 0 && bad_fail_at-- == 0; }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define BAD_SANITIZER 1
#endif
#endif
#if defined(BAD_SANITIZER)
#define BAD_COUNTS 1
#define BAD_CAN_FAIL 0
void __sanitizer_malloc_hook(const volatile void *p, size_t n);
void __sanitizer_malloc_hook(const volatile void *p, size_t n) { (void)p; bad_allocated += n; }
void __sanitizer_free_hook(const volatile void *p);
void __sanitizer_free_hook(const volatile void *p) { (void)p; }
#elif defined(__GLIBC__)
#define BAD_COUNTS 1
#define BAD_CAN_FAIL 1
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *malloc(size_t n) { bad_allocated += n; return bad_fails() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { bad_allocated += n * size; return bad_fails() ? NULL : __libc_calloc(n,
    size); }
void *realloc(void *p, size_t n) { bad_allocated += n; return bad_fails() ? NULL : __libc_realloc(p, n); }
#else
#define BAD_COUNTS 0
#define BAD_CAN_FAIL 0
#endif

static char *bad_table;
static size_t bad_seen;

/* The message expected for `name` with @ replaced, or NULL; malloc'ed. */
static inline char *bad_expected(const char *name, const char *path)
{
    struct err e;
    size_t n, len = strlen(name);
    if (!bad_table && file_read(&bad_table, &n, "tests/data/bad_expected.txt", 1 << 24, &e))
        return NULL;
    for (char *p = bad_table; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL) {
        if (strncmp(p, name, len) || p[len] != '\t')
            continue;
        char *out = calloc(1, 4096 + strlen(path) * 4), *to = out;
        for (p += len + 1; *p && *p != '\n'; p++)
            if (*p == '@')
                to += sprintf(to, "%s", path);
            else
                *to++ = *p;
        return out;
    }
    return NULL;
}

/* Entries of the table that begin with `prefix`: to be compared with bad_seen. */
static inline size_t bad_entries(const char *prefix)
{
    size_t n = 0;
    free(bad_expected("", ""));
    for (char *p = bad_table; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
        n += strncmp(p, prefix, strlen(prefix)) == 0;
    return n;
}

/* The loader returned r with e for `name`, which bad_expected.txt says loads or is refused. Its input has
 * `bytes` bytes; it was given `path`. */
static inline void bad_check(const char *name, const char *path, int r, const struct err *e, size_t allocated,
                             size_t bytes)
{
    bad_seen++;
    char *want = bad_expected(name, path);
    const bool loads = want && strcmp(want, "loads") == 0;
    CHECK(r == (loads ? 0 : -1), "%s is %s %s", name, r ? "refused:" : "accepted", r ? e->msg : "");
    if (r != -1 || loads) {
        free(want);
        return;
    }
    if (getenv("BAD_PRINT")) {
        const char *at = strstr(e->msg, path);
        if (at)
            fprintf(stderr, "%s\t%.*s@%s\n", name, (int)(at - e->msg), e->msg, at + strlen(path));
        else
            fprintf(stderr, "%s\t%s\n", name, e->msg);
        free(want);
        return;
    }
    CHECK(want && strcmp(want, e->msg) == 0, "%s:\n  got  %s\n  want %s", name, e->msg,
          want ? want : "(not in bad_expected.txt)");
    CHECK(e->code == ERR_INPUT && !strchr(e->msg, '\n'), "%s: code %d", name, e->code);
    CHECK(!BAD_COUNTS || allocated <= bytes + BAD_SLACK, "%s: %zu bytes allocated for an input of %zu", name,
          allocated, bytes);
    free(want);
}

/* Call f(folder, file name) for each entry of the folder. */
static inline void bad_each(const char *folder, void (*f)(const char *folder, const char *file))
{
    DIR *d = opendir(folder);
    struct dirent *entry;
    CHECK(d, "%s", folder);
    while (d && (entry = readdir(d)))
        if (entry->d_name[0] != '.')
            f(folder, entry->d_name);
    if (d)
        closedir(d);
}
