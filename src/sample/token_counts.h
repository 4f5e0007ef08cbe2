/* Token counts for the penalties: how often each token occurs in the last W tokens of a history, and in
 * its generated text. The counts derive from the tokens alone. Following a history that grows costs its
 * new tokens. */
#pragma once
#include "kernels/device.h"
#include "src/sample/sampling.h"

/* Identifies the history that tables were made from: a hash over its tokens, without its path. {0}: empty. */
struct history_digest { size_t n, n_prompt; uint64_t lanes[8]; };
/* Whether h is the history of the last call with tokens added. The digest becomes that of h. */
bool history_digest_extend(struct history_digest *k, const struct history *h);

/* A multiset of tokens: its distinct tokens in any order, and how often each occurs. */
struct count_set {
    uint32_t *count, *slot;              /* [vocab]; slot[ids[i]] == i */
    int32_t *ids; size_t n;              /* [n] */
};

struct token_counts {
    bool on_window, on_text;
    size_t window;                       /* SIZE_MAX: all */
    struct count_set last, text;         /* of the last `window` tokens; of the generated tokens */
    size_t n;                            /* tokens of the history in the sets */
};

size_t token_counts_bytes(size_t vocab);
/* memory[token_counts_bytes(vocab)] is zeroed, 8-byte aligned, and stays the caller's. */
void token_counts_open(struct token_counts *c, const struct sampling *p, size_t vocab, void *memory);
/* Makes the sets those of tokens and path of h. extends: h has the prompt and begins with the tokens of the
 * history of the last call. */
void token_counts_follow(struct token_counts *c, const struct history *h, bool extends);
/* The changes that tokens from .. to - 1 of h make to the counts; the path's tokens follow the tokens.
 * Writes at most 2 (to - from) entries to list, each id once, and returns their number. */
size_t token_counts_delta(const struct token_counts *c, const struct history *h, size_t from, size_t to,
                          struct device_count *list);
/* Removes the path of h again; h is the history of the last token_counts_follow. */
void token_counts_drop_path(struct token_counts *c, const struct history *h);
