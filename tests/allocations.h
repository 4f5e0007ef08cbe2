/* Counts the allocations of a test program, and lets one fail, by replacing functions of the C library
 * (glibc). allocations() is the number of calls so far, in any thread, of malloc, calloc, realloc,
 * aligned_alloc, posix_memalign and mmap. The call with number allocation_to_fail returns NULL, unless it
 * is mmap. Sanitizers replace these functions themselves: then ALLOCATIONS_COUNTED is 0. Include in one
 * file of the program. */
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
static size_t allocation_to_fail;        /* 0: none */
static inline size_t allocations(void) { return atomic_load(&allocations_); }
static inline int allocation_fails(void)
{
    return atomic_fetch_add(&allocations_, 1) + 1 == allocation_to_fail;
}

void *malloc(size_t n) { return allocation_fails() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return allocation_fails() ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return allocation_fails() ? NULL : __libc_realloc(p, n); }
void *aligned_alloc(size_t boundary, size_t n)
{
    return allocation_fails() ? NULL : __libc_memalign(boundary, n);
}
int posix_memalign(void **p, size_t boundary, size_t n)
{
    *p = allocation_fails() ? NULL : __libc_memalign(boundary, n);
    return *p ? 0 : ENOMEM;
}
void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    atomic_fetch_add(&allocations_, 1);
    return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
}
#else
static size_t allocation_to_fail __attribute__((unused));
static inline size_t allocations(void) { return 0; }
#endif
