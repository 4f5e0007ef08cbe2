/* The drafters, one line each: the name of the number, and the file src/decode/drafters/NAME.c, which defines
 * drafter_NAME. Lists, reports and bits have this order. No file has it: jobs, snapshots and stores have
 * names. To add a drafter, write its file and add a line (CONTRIBUTING.md). */
#pragma once

#define DRAFTERS(X)              \
    X(HEADS, heads)              \
    X(PARTIAL, partial)          \
    X(NGRAM, ngram)              \
    X(SUFFIX, suffix)            \
    X(LONGSPEC, longspec)        \
    X(SPIRE, spire)              \
    X(GUMIHO, gumiho)            \
    X(MODEL, model)              \
    X(MTP, mtp)                  \
    X(ASSISTANT, assistant)

#define DRAFTER_NUMBER(number, file) DRAFTER_##number,
/* DRAFTER_ADDED, a drafter of tests, is the last. */
enum drafter { DRAFTERS(DRAFTER_NUMBER) DRAFTER_ADDED, N_DRAFTERS };
#undef DRAFTER_NUMBER

/* "heads", "partial", .. */
const char *drafter_name(enum drafter d);
