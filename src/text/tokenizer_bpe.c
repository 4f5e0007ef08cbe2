/* Byte-pair merging, with the ids of Hugging Face `tokenizers`: the pair of the lowest rank first, the
 * leftmost on ties. A heap of (rank, position) over a linked list of symbols gives O(n log n) for a word
 * of n symbols. Start at bpe_word, then merge_symbols. */
#include "src/text/tokenizer_tables.h"

#include <stdlib.h>
#include <string.h>

enum { CACHE_SLOTS = 8192 };

void bpe_free(struct bpe *w)
{
    free(w->ids);
    free(w->sym);
    free(w->heap);
    free(w->cache);
}

void bpe_id(struct bpe *w, uint32_t id)
{
    if (tok_grow((void **)&w->ids, &w->ids_max, w->n_ids + 1, sizeof *w->ids, &w->failed))
        w->ids[w->n_ids++] = (int32_t)id;
}

static void add_symbol(struct bpe *w, uint32_t id)
{
    if (w->n_sym >= INT32_MAX - 1)
        w->failed = true;                        /* more than positions can count */
    if (!tok_grow((void **)&w->sym, &w->sym_max, w->n_sym + 1, sizeof *w->sym, &w->failed))
        return;
    int32_t at = (int32_t)w->n_sym++;
    w->sym[at] = (struct symbol){ id, at - 1, at + 1 };
}

/* Adds the symbol of a character that the vocabulary may lack. An unknown character waits in *unk until
 * the next known character, as in Hugging Face; byte tokens may overtake it. */
static void add_character(struct bpe *w, const char *s, size_t n, uint32_t *unk)
{
    const struct tokenizer *t = w->t;
    uint32_t id = tok_find(t, s, n);
    if (id < t->n_model) {
        if (*unk != NO_ID)
            add_symbol(w, *unk);
        *unk = NO_ID;
        add_symbol(w, id);
        return;
    }
    if (t->has_fallback) {
        size_t i = 0;
        while (i < n && t->byte_fallback[(unsigned char)s[i]] != NO_ID)
            i++;
        if (i == n) {
            for (i = 0; i < n; i++)
                add_symbol(w, t->byte_fallback[(unsigned char)s[i]]);
            return;
        }
    }
    if (t->unk == NO_ID)
        return;                                  /* without an unknown token the character is dropped */
    if (*unk != NO_ID && !t->fuse_unk)
        add_symbol(w, *unk);
    *unk = t->unk;
}

static void add_symbols(struct bpe *w, const char *s, size_t n)
{
    const struct tokenizer *t = w->t;
    uint32_t unk = NO_ID;
    w->n_sym = 0;
    for (size_t i = 0; i < n;) {
        const unsigned char b = (unsigned char)s[i];
        const size_t len = t->byte_level ? 1 : utf8_length(b);
        char c[4];
        if (len == 1 && t->byte_id[b] != NO_ID && unk == NO_ID)
            add_symbol(w, t->byte_id[b]);
        else if (t->byte_level)
            add_character(w, c, utf8_put(c, byte_to_char(b)), &unk);
        else
            add_character(w, s + i, len, &unk);
        i += len;
    }
    if (unk != NO_ID)
        add_symbol(w, unk);
}

/* A 4-ary heap, smallest first. An entry is rank << 32 | position. */
static void heap_down(uint64_t *h, size_t n, size_t i)
{
    uint64_t x = h[i];
    for (;;) {
        size_t c = 4 * i + 1, best = c;
        if (c >= n)
            break;
        for (size_t k = c + 1; k < MIN(c + 4, n); k++)
            if (h[k] < h[best])
                best = k;
        if (h[best] >= x)
            break;
        h[i] = h[best];
        i = best;
    }
    h[i] = x;
}

static void heap_push(struct bpe *w, const struct merge *m, size_t pos)
{
    if (!m || !tok_grow((void **)&w->heap, &w->heap_max, w->n_heap + 1, sizeof *w->heap, &w->failed))
        return;
    uint64_t x = (uint64_t)m->rank << 32 | pos;
    size_t i = w->n_heap++;
    for (; i > 0 && w->heap[(i - 1) / 4] > x; i = (i - 1) / 4)
        w->heap[i] = w->heap[(i - 1) / 4];
    w->heap[i] = x;
}

static uint64_t heap_pop(struct bpe *w)
{
    uint64_t x = w->heap[0];
    w->heap[0] = w->heap[--w->n_heap];
    if (w->n_heap)
        heap_down(w->heap, w->n_heap, 0);
    return x;
}

static void merge_symbols(struct bpe *w)
{
    const struct tokenizer *t = w->t;
    struct symbol *sym = w->sym;
    int32_t n = (int32_t)w->n_sym;
    w->n_heap = 0;
    for (int32_t i = 0; i + 1 < n; i++)
        heap_push(w, tok_merge(t, sym[i].id, sym[i + 1].id), (size_t)i);
    while (w->n_heap && !w->failed) {
        uint64_t top = heap_pop(w);
        int32_t pos = (int32_t)(top & UINT32_MAX), next = sym[pos].next;
        if (sym[pos].id == NO_ID || next == n)
            continue;                            /* merged into another symbol, or the last symbol */
        /* An entry is stale if its pair is gone. A new pair with the same result counts as the old pair. */
        uint32_t to = t->merge_to[top >> 32];
        const struct merge *m = tok_merge(t, sym[pos].id, sym[next].id);
        if (!m || m->to != to)
            continue;
        sym[pos].id = to;
        sym[next].id = NO_ID;
        sym[pos].next = sym[next].next;
        next = sym[pos].next;
        if (next < n)
            sym[next].prev = pos;
        if (sym[pos].prev >= 0)
            heap_push(w, tok_merge(t, sym[sym[pos].prev].id, to), (size_t)sym[pos].prev);
        if (next < n)
            heap_push(w, tok_merge(t, to, sym[next].id), (size_t)pos);
    }
}

/* The id of the whole word in the model's vocabulary, or NO_ID. */
static uint32_t whole_word(const struct tokenizer *t, const char *s, size_t n)
{
    if (n > t->token_max)
        return NO_ID;
    if (!t->byte_level) {
        uint32_t id = tok_find(t, s, n);
        return id < t->n_model ? id : NO_ID;
    }
    char local[256], *c = 2 * n <= sizeof local ? local : malloc(2 * n);
    size_t len = 0;
    if (!c)
        return NO_ID;
    for (size_t i = 0; i < n; i++)
        len += utf8_put(c + len, byte_to_char((unsigned char)s[i]));
    uint32_t id = tok_find(t, c, len);
    if (c != local)
        free(c);
    return id < t->n_model ? id : NO_ID;
}

static void merge_word(struct bpe *w, const char *s, size_t n)
{
    add_symbols(w, s, n);
    if (w->n_sym > 1)
        merge_symbols(w);
    for (size_t i = 0; i < w->n_sym; i++)
        if (w->sym[i].id != NO_ID)
            bpe_id(w, w->sym[i].id);
}

/* Merges a word, or copies the ids of an earlier occurrence. Words of at most 24 bytes are cached. */
static void cached_word(struct bpe *w, const char *s, size_t n)
{
    uint64_t key[3] = { 0 };
    if (!w->cache || n > sizeof key) {
        merge_word(w, s, n);
        return;
    }
    memcpy(key, s, n);
    uint64_t h =
        (key[0] ^ key[1] * 0x9e3779b97f4a7c15u ^ key[2] * 0xc2b2ae3d27d4eb4fu) * 0xff51afd7ed558ccdu + n;
    struct cached *c = &w->cache[(h ^ h >> 29) * 0x9e3779b97f4a7c15u >> 51];
    _Static_assert(CACHE_SLOTS == 1 << 13, "64 - 51 bits");
    if (c->len == n && !memcmp(c->key, key, sizeof key)) {
        if (!tok_grow((void **)&w->ids, &w->ids_max, w->n_ids + c->n, sizeof *w->ids, &w->failed))
            return;
        memcpy(w->ids + w->n_ids, w->ids + c->at, c->n * sizeof *w->ids);
        w->n_ids += c->n;
        return;
    }
    size_t at = w->n_ids;
    merge_word(w, s, n);
    if (w->failed || at > UINT32_MAX)
        return;
    memcpy(c->key, key, sizeof key);
    c->at = (uint32_t)at;
    c->n = (uint16_t)(w->n_ids - at);
    c->len = (uint16_t)n;
}

static bool known_character(const struct tokenizer *t, const char *s, size_t n)
{
    return (n == 1 ? t->byte_id[(unsigned char)*s] : tok_find(t, s, n)) < t->n_model;
}

/* The end of the next part of a word that can be merged on its own. A whole text may be one word
 * (SentencePiece). If two known characters are neighbours in no result of a merge, no merge ever joins
 * them, so the word can be cut between them. The parts are short and mostly cached. */
static size_t segment_end(const struct tokenizer *t, const char *s, size_t i, size_t n)
{
    uint32_t a, b;
    size_t before = i, len = utf8_get(s + i, &a);
    for (i += len; i < n; i += len, a = b) {
        size_t n_before = len;
        len = utf8_get(s + i, &b);
        if (*tok_bigram_slot(t->bigram, t->bigram_mask, tok_bigram(a, b)) == NO_BIGRAM &&
            known_character(t, s + before, n_before) && known_character(t, s + i, len))
            return i;
        before = i;
    }
    return n;
}

void bpe_use_cache(struct bpe *w)
{
    w->cache = calloc(CACHE_SLOTS, sizeof *w->cache);      /* without memory, encoding is only slower */
}

void bpe_word(struct bpe *w, const char *s, size_t n)
{
    const struct tokenizer *t = w->t;
    if (n == 0)
        return;
    if (t->ignore_merges) {
        uint32_t id = whole_word(t, s, n);
        if (id != NO_ID) {
            bpe_id(w, id);
            return;
        }
    }
    if (!t->bigram) {
        cached_word(w, s, n);
        return;
    }
    for (size_t i = 0, end; i < n; i = end) {
        end = segment_end(t, s, i, n);
        cached_word(w, s + i, end - i);
    }
}
