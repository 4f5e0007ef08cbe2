/* Counts what a test program allocates, by standing in for the C library's functions (glibc): allocations() is the number of
 * calls so far, of malloc, calloc, realloc, aligned_alloc, posix_memalign and mmap, in any thread. Sanitizers stand there
 * themselves: then ALLOCATIONS_COUNTED is 0. Include in one file of the program. */
#pragma once
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define ALLOCATIONS_COUNTED 0
#endif
#endif
#if !defined(ALLOCATIONS_COUNTED)
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define ALLOCATIONS_COUNTED 0
#else
#define ALLOCATIONS_COUNTED 1
#endif
#endif

#if ALLOCATIONS_COUNTED
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static atomic_size_t allocations_;
static inline size_t allocations(void) { return atomic_load(&allocations_); }

void *malloc(size_t n) { atomic_fetch_add(&allocations_, 1); return __libc_malloc(n); }
void *calloc(size_t n, size_t size) { atomic_fetch_add(&allocations_, 1); return __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { atomic_fetch_add(&allocations_, 1); return __libc_realloc(p, n); }
void *aligned_alloc(size_t boundary, size_t n) { atomic_fetch_add(&allocations_,
    1); return __libc_memalign(boundary, n); }
int posix_memalign(void **p, size_t boundary, size_t n)
{
    atomic_fetch_add(&allocations_, 1);
    *p = __libc_memalign(boundary, n);
    return *p ? 0 : ENOMEM;
}
void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    atomic_fetch_add(&allocations_, 1);
    return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
}
#else
static inline size_t allocations(void) { return 0; }
#endif
