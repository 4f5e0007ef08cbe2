/* How often each token occurs in the part of a history that the penalties look at: its last W tokens, and its
 * generated tokens. Derived from the tokens alone; follows a history that grows at the cost of the new tokens. */
#pragma once
#include "kernels/device.h"
#include "src/sample/sampling.h"

/* The history that tables were made from: a hash over its tokens (never over a path) notices any other one. */
struct history_digest { size_t n, n_prompt; uint64_t lanes[8]; };      /* {0}: the empty one */
/* Whether h is the history of the last call with tokens added; h is the one to compare with from now on. */
bool history_digest_extend(struct history_digest *k, const struct history *h);

/* The distinct tokens of a multiset, in any order, and their numbers. */
struct count_set { uint32_t *count, *slot; int32_t *ids; size_t n; };   /* count, slot [vocab]; ids[n]; slot[ids[i]] == i */

struct token_counts {
    bool on_window, on_text;
    size_t window;                       /* SIZE_MAX: all */
    struct count_set last, text;         /* of the last `window` tokens; of the generated ones */
    size_t n;                            /* tokens of the history they hold */
};

size_t token_counts_bytes(size_t vocab);
/* memory[token_counts_bytes(vocab)] zeroed, 8-byte aligned, stays the caller's. */
void token_counts_open(struct token_counts *c, const struct sampling *p, size_t vocab, void *memory);
/* The sets of tokens and path of h. goes_on: it begins with the tokens and has the prompt of the h before. */
void token_counts_follow(struct token_counts *c, const struct history *h, bool goes_on);
/* What tokens from .. to - 1 of h, its path counted on behind its tokens, change: list, no id twice, at most 2 (to - from) of them. Their number. */
size_t token_counts_delta(const struct token_counts *c, const struct history *h, size_t from, size_t to,
                     struct device_count *list);
/* Take the path of h away again; h is that of token_counts_follow. */
void token_counts_drop_path(struct token_counts *c, const struct history *h);
