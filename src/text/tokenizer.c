/* Encoding. A text is cut at its added tokens, normalized, cut at the normalized added tokens, split into
 * words (pre-tokenizer), and each word is merged (tokenizer_bpe.c). Start at tokenizer_encode. */
#include "src/model/model_files.h"
#include "src/text/tokenizer_tables.h"
#include "src/text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int tokenizer_open(struct tokenizer **t, const char *place, size_t vocab, struct err *e)
{
    char path[PATH_BYTES + 32], *json;
    size_t n;
    if (model_file_read(&json, &n, path, sizeof path, place, "tokenizer.json", TOK_FILE_MAX, e) ||
        (!json && file_read(&json, &n, path, TOK_FILE_MAX, e)))
        return -1;
    char sha[SHA256_HEX];
    sha256_text(sha, json, n);           /* of the file: it names the tokenizer of a prompt's ids */
    *t = NULL;
    int r = tokenizer_add_config(&json, &n, place, vocab, e) || tokenizer_parse(t, path, json, n, vocab, e);
    if (r == 0)
        memcpy((*t)->sha, sha, sizeof sha);
    free(json);
    return r ? -1 : 0;
}

size_t tokenizer_bytes(const struct tokenizer *t)
{
    return sizeof *t + t->pool.max + t->shown_pool.max + t->n * (sizeof *t->content + sizeof *t->shown + 1) +
           (t->slot_mask + 1) * sizeof *t->slot + (t->merge_mask + 1) * sizeof *t->merge +
           t->n_merges * sizeof *t->merge_to + (t->bigram ? t->bigram_mask + 1 : 0) * sizeof *t->bigram +
           t->n_added * (sizeof *t->added + sizeof *t->raw.sorted);
}

size_t tokenizer_size(const struct tokenizer *t) { return t->n; }
int32_t tokenizer_bos(const struct tokenizer *t) { return t->n_prefix ? t->prefix[0] : -1; }
const char *tokenizer_sha(const struct tokenizer *t) { return t->sha; }

/* ---- encoding ---- */

struct encoder {
    const struct tokenizer *t;
    struct bpe bpe;
    struct bytes norm, norm_work;  /* a normalized piece, and the piece before the last step */
    struct bytes spaced;           /* a piece with its leading space, or with Metaspace's characters */
};

/* Byte d of the i-th pattern of a set. */
static unsigned char pattern_byte(const struct tokenizer *t, const struct match_set *set, size_t i, size_t d)
{
    return (unsigned char)t->pool.s[set->sorted[i]->pattern.at + d];
}

/* The longest added token at the leftmost place from `from` on; NULL if there is none. */
static const struct added *find_added(const struct tokenizer *t, const struct match_set *set, const char *s,
                                      size_t n, size_t from, size_t *at)
{
    for (size_t i = from; i < n; i++) {
        unsigned char b = (unsigned char)s[i];
        size_t lo = set->first[b], hi = set->first[b + 1];
        const struct added *best = NULL;
        /* patterns lo..hi-1 share s[i..i+d); a pattern that ends here sorts first */
        for (size_t d = 1; lo < hi; d++) {
            if (set->sorted[lo]->pattern.n == d)
                best = set->sorted[lo++];
            if (i + d == n)
                break;
            unsigned char next = (unsigned char)s[i + d];
            for (size_t end = hi; lo < end;) {                     /* lo: the first with a byte >= next */
                size_t mid = lo + (end - lo) / 2;
                if (pattern_byte(t, set, mid, d) < next) lo = mid + 1; else end = mid;
            }
            for (size_t begin = lo; begin < hi;) {                 /* hi: the first with a byte > next */
                size_t mid = begin + (hi - begin) / 2;
                if (pattern_byte(t, set, mid, d) <= next) begin = mid + 1; else hi = mid;
            }
        }
        if (best) {
            *at = i;
            return best;
        }
    }
    return NULL;
}

static size_t char_before(const char *s, size_t at, uint32_t *c)
{
    do at--; while (((unsigned char)s[at] & 0xc0) == 0x80);
    utf8_get(s + at, c);
    return at;
}

/* Whether a letter, digit or the like touches s[from..to) on either side. */
static bool inside_word(const char *s, size_t n, size_t from, size_t to)
{
    uint32_t c;
    if (from > 0) {
        char_before(s, from, &c);
        if (unicode_class(c) & UNI_WORD)
            return true;
    }
    if (to == n)
        return false;
    utf8_get(s + to, &c);
    return unicode_class(c) & UNI_WORD;
}

/* Handles a piece of text without added tokens. `first`: the piece begins where the whole text begins. */
typedef void piece_fn(struct encoder *x, const char *s, size_t n, bool first);

/* Cuts s[0..n) at the added tokens of a set: emits their ids, and passes the text between them to `piece`. */
static void extract_added(struct encoder *x, const struct match_set *set, const char *s, size_t n,
                          bool first, piece_fn *piece)
{
    const struct tokenizer *t = x->t;
    size_t done = 0, from = 0, start;
    const struct added *a;
    uint32_t c;
    while (set->n && (a = find_added(t, set, s, n, from, &start)) != NULL) {
        size_t stop = start + a->pattern.n;
        from = stop;
        if ((a->flags & ADDED_SINGLE_WORD) && inside_word(s, n, start, stop))
            continue;
        if (a->flags & ADDED_LSTRIP) {
            while (start > done) {
                size_t p = char_before(s, start, &c);
                if (!(unicode_class(c) & UNI_SPACE))
                    break;
                start = p;
            }
            start = MAX(start, done);
        }
        if (a->flags & ADDED_RSTRIP)
            while (stop < n) {
                size_t len = utf8_get(s + stop, &c);
                if (!(unicode_class(c) & UNI_SPACE))
                    break;
                stop += len;
            }
        if (done < start)
            piece(x, s + done, start - done, first && done == 0);
        bpe_id(&x->bpe, a->id);
        done = stop;
    }
    if (done < n)
        piece(x, s + done, n - done, first && done == 0);
}

/* Runs split steps i..n_split-1, then merges the words. ByteLevel adds its leading space to every piece
 * that the steps before it made. */
static void split_words(struct encoder *x, size_t i, const char *s, size_t n)
{
    const struct tokenizer *t = x->t;
    if (i == t->n_split) {
        bpe_word(&x->bpe, s, n);
        return;
    }
    if (t->split[i] == SPLIT_PREFIX_SPACE) {
        x->spaced.n = 0;
        if (s[0] != ' ')
            bytes_add(&x->spaced, " ", 1);
        bytes_add(&x->spaced, s, n);
        if (x->spaced.failed)
            x->bpe.failed = true;
        else
            split_words(x, i + 1, x->spaced.s, x->spaced.n);
        return;
    }
    while (n > 0) {
        size_t len = split_next(t->split[i], s, n);
        split_words(x, i + 1, s, len);
        s += len;
        n -= len;
    }
}

static void metaspace_words(struct encoder *x, const char *s, size_t n, bool first)
{
    const struct tokenizer *t = x->t;
    const struct text *meta = &t->meta, space = { " ", 1 };
    struct bytes *b = &x->spaced;
    b->n = 0;
    bool starts = n >= meta->n && !memcmp(s, meta->s, meta->n);
    if (s[0] != ' ' && !starts &&
        (t->meta_prepend == PREPEND_ALWAYS || (t->meta_prepend == PREPEND_FIRST && first)))
        bytes_add(b, meta->s, meta->n);
    tok_replace(b, s, n, &space, meta);
    if (b->failed) {
        x->bpe.failed = true;
        return;
    }
    if (!t->meta_split) {
        bpe_word(&x->bpe, b->s, b->n);
        return;
    }
    for (size_t i = 0; i < b->n;) {              /* each replacement character begins a word */
        size_t from = i + utf8_length((unsigned char)b->s[i]);
        const char *next = memmem(b->s + from, b->n - from, meta->s, meta->n);
        size_t end = next ? (size_t)(next - b->s) : b->n;
        bpe_word(&x->bpe, b->s + i, end - i);
        i = end;
    }
}

static void words(struct encoder *x, const char *s, size_t n, bool first)
{
    if (x->t->metaspace)
        metaspace_words(x, s, n, first);
    else
        split_words(x, 0, s, n);
}

static void normalized_piece(struct encoder *x, const char *s, size_t n, bool first)
{
    if (tok_normalize(x->t, s, n, &x->norm, &x->norm_work, &s, &n))
        x->bpe.failed = true;
    else if (n > 0)
        extract_added(x, &x->t->normalized, s, n, first, words);
}

int tokenizer_encode(const struct tokenizer *t, int32_t **ids, size_t *n_ids, const char *text, size_t n,
                     bool specials, struct err *e)
{
    enum { CACHE_FROM = 4096 };                  /* bytes of text for which a word cache pays */
    if (n > TOK_TEXT_MAX)
        return err_set(e, ERR_INPUT, "text: %zu bytes, at most %d can be tokenized at once", n, TOK_TEXT_MAX);
    size_t valid = utf8_valid_prefix(text, n);
    if (valid < n)
        return err_set(e, ERR_INPUT, "text: byte 0x%02x at offset %zu is not UTF-8",
                       (unsigned char)text[valid], valid);
    struct encoder x = { .t = t, .bpe = { .t = t } };
    if (n > CACHE_FROM)
        bpe_use_cache(&x.bpe);
    for (size_t i = 0; specials && i < t->n_prefix; i++)
        bpe_id(&x.bpe, (uint32_t)t->prefix[i]);
    extract_added(&x, &t->raw, text, n, true, normalized_piece);
    for (size_t i = 0; specials && i < t->n_suffix; i++)
        bpe_id(&x.bpe, (uint32_t)t->suffix[i]);
    if (!x.bpe.ids && !x.bpe.failed)
        x.bpe.failed = !(x.bpe.ids = malloc(1));
    *ids = x.bpe.failed ? NULL : x.bpe.ids;
    *n_ids = x.bpe.n_ids;
    if (!x.bpe.failed)
        x.bpe.ids = NULL;
    int r = x.bpe.failed ? err_set(e, ERR_FAILED, "text: no memory to tokenize %zu bytes", n) : 0;
    bpe_free(&x.bpe);
    free(x.norm.s);
    free(x.norm_work.s);
    free(x.spaced.s);
    return r;
}

bool tokenizer_same(const struct tokenizer *a, const struct tokenizer *b, int32_t *id)
{
    const size_t n = MIN(a->n, b->n);
    size_t i = 0;
    while (i < n && a->content[i].n == b->content[i].n &&
           memcmp(a->pool.s + a->content[i].at, b->pool.s + b->content[i].at,
                  a->content[i].n) == 0)
        i++;
    *id = (int32_t)i;
    return i == n && a->n == b->n;
}
