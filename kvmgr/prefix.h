/* Texts whose caches can be shared by texts that begin alike.
 *
 *     prefix_join(&p, &kv, tokens, &n_tokens)   a decoder's cache, while it is open
 *     m = prefix_find(&p, tokens, n)            before another decoder opens its cache (kv_open_from)
 *     prefix_leave(&p, &kv)                     before the decoder closes
 *     prefix_keep(&p, &kv, tokens)              its cache stays, for later texts
 *     prefix_drop(&p)                           its memory is needed
 *
 * All caches have one shape and belong to one set of weights, one arithmetic and one context scaling: the
 * owner closes the list before it opens another model. Texts are compared token by token. Full blocks are
 * shared, the rows after them are copied. One thread uses a list.
 *
 * Of caches with rings whole blocks are shared, up to the last one in common if the rings hold the window
 * there, else up to the mark. Of caches with recurrent states the rows up to their mark are shared, with the
 * states there. A text is read
 * before it is known who will share with it. So its mark is aimed at the end of its prompt. Once another text
 * is known, the mark is aimed at their split, the largest multiple of KV_BLOCK within what they have in
 * common: by prefix_find while the first text has not been read so far, and in the second text, which knows
 * n_split when it is opened (prefix_mark). A split before the middle of the old aim is not worth that. */
#pragma once
#include "kvmgr/kv.h"

struct prefix {
    struct kv *kv;                   /* of a decoder; NULL: `own` */
    const int32_t *tokens;           /* of the decoder, or owned: row i of the cache is that of tokens[i] */
    const size_t *n_tokens;          /* of the decoder */
    struct kv own;
    uint64_t used;                   /* by the order of uses */
};
struct prefixes {                    /* {0} is empty */
    struct prefix *v; size_t n;
    uint64_t uses;
    struct kv_total total;           /* of the caches of the list and of all that share with them */
};

struct prefix_match {
    const struct kv *kv;             /* NULL: no cache has a block in common; valid until the list changes */
    size_t n_rows;                   /* committed rows in common, less than n; at least a block, or 0 */
    size_t n_coming;                 /* rows in common that a cache will have when its text has been read */
    size_t n_split;                  /* the most rows in common, in whole blocks, read or not */
};
/* The cache whose committed rows have most of tokens[0..n) in common, and the last used of equals. Aims the
 * mark of a text that is being read. */
struct prefix_match prefix_find(struct prefixes *p, const int32_t *tokens, size_t n);
/* Where a text with a prompt of n_prompt tokens keeps its states for others: at least a block, and not before
 * its own n_rows shared rows. */
size_t prefix_mark(size_t n_prompt, size_t n_rows, size_t n_split);

/* The arguments stay the decoder's and must be valid until prefix_leave. If memory is short the cache is not
 * listed. */
void prefix_join(struct prefixes *p, struct kv *kv, const int32_t *tokens, const size_t *n_tokens);
void prefix_leave(struct prefixes *p, const struct kv *kv);
/* Takes over the cache and its tokens, [n_past] or more, from malloc. Both are freed if they hold less than
 * a block, or if memory is short. */
void prefix_keep(struct prefixes *p, struct kv *kv, int32_t *tokens);
/* Closes the kept cache that was not used for longest. False: none is kept. */
bool prefix_drop(struct prefixes *p);
/* Bytes of the own blocks of all kept caches. */
size_t prefix_kept_bytes(const struct prefixes *p);
/* Closes all kept caches; no decoder is listed (asserted). */
void prefix_close(struct prefixes *p);
