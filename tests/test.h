/* The test framework: CHECK, RUN, SKIP. RUN prints "ok NAME", "FAIL NAME" or "skip NAME (why)". A program
 * ends with `return test_end();`, which is 1 when a test failed. */
#pragma once
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the build has a sanitizer. Time limits are multiplied by SLOWER. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif
#define SLOWER (SANITIZED ? 10.0 : 1.0)

static int test_failed_, test_n_failed_;
static const char *test_skipped_;

#define CHECK(cond, ...) do { if (!(cond)) { test_failed_ = 1; \
    printf("    %s:%d: %s:", __FILE__, __LINE__, #cond); printf(" " __VA_ARGS__); printf("\n"); } } while (0)
/* Whether |got - want| <= atol + rtol*|want|. NaN and infinity never pass. */
static inline bool near(double got, double want, double atol, double rtol)
{
    return isfinite(got) && isfinite(want) && fabs(got - want) <= atol + rtol * fabs(want);
}
#define SKIP(why) do { test_skipped_ = (why); return; } while (0)
/* TEST_ONLY=WORD runs only the tests whose names contain WORD. */
static inline bool test_left_out(const char *name)
{
    const char *only = getenv("TEST_ONLY");
    return only && !strstr(name, only);
}
/* TEST_SHARD=2/3: only every third test of a program, from the second one on. scripts/run-tests.sh runs
 * all three shards side by side. A test of another shard prints nothing. */
static int test_index_;
static inline bool test_in_shard(void)
{
    const char *shard = getenv("TEST_SHARD");
    int first = 1, count = 1;
    if (shard && (sscanf(shard, "%d/%d", &first, &count) != 2 || first < 1 || first > count))
        abort();
    return test_index_++ % count == first - 1;
}
#define RUN(f) do { if (!test_in_shard()) break; \
    test_failed_ = 0; test_skipped_ = test_left_out(#f) ? "not asked for" : NULL; fflush(stdout); \
    if (!test_skipped_) f(); \
    if (test_failed_) { test_n_failed_++; printf("FAIL %s\n", #f); } \
    else if (test_skipped_) printf("skip %s (%s)\n", #f, test_skipped_); \
    else printf("ok %s\n", #f); \
    fflush(stdout); } while (0)
static inline int test_end(void) { return test_n_failed_ ? 1 : 0; }
