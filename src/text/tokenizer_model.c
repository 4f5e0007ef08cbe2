/* The model of tokenizer.json: vocabulary, merges and added tokens, and the lookup tables for encoding.
 * Start at tok_read_model, tok_read_added and tok_prepare. */
#include "src/text/tokenizer.h"
#include "src/text/tokenizer_tables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Reads a token's content into the pool. It may be empty; one with a NUL becomes so, as no text has it. */
static int read_content(struct tokenizer *t, const struct json *v, size_t max, struct span *x, struct err *e)
{
    size_t raw = (size_t)(v->end - v->s);
    if (js_kind(v) != JS_STRING)
        return js_bad(v, e, "a string is needed");
    if (!bytes_reserve(&t->pool, raw))
        return tok_no_memory(v, e);
    size_t n = js_unescape(v, t->pool.s + t->pool.n);
    if (n > max)
        return js_bad(v, e, "a token has at most %zu bytes", max);
    n = memchr(t->pool.s + t->pool.n, 0, n) ? 0 : n;
    *x = (struct span){ (uint32_t)t->pool.n, (uint32_t)n };
    t->pool.n += n;
    t->token_max = MAX(t->token_max, n);
    return 0;
}

/* Enters the content of id into the hash; false if the hash already holds it, and may not. */
static bool enter(struct tokenizer *t, uint32_t id)
{
    uint32_t *slot = tok_slot(t, t->pool.s + t->content[id].at, t->content[id].n);
    const bool free_slot = *slot == NO_ID || t->repeats;
    *slot = free_slot ? id : *slot;
    return free_slot;
}

static size_t hash_size(size_t n)
{
    size_t size = 4;
    while (size < 2 * n)
        size *= 2;
    return size;
}

/* Reads the vocabulary. An id without a token, and an id whose token is empty, is a hole: no text makes it,
 * and its text is empty, as in Hugging Face. */
static int read_vocab(struct tokenizer *t, const struct json *v, size_t n_added, struct err *e)
{
    struct json k, x;
    if (js_kind(v) != JS_OBJECT)
        return js_bad(v, e, "an object is needed");
    size_t n = 0;                        /* ids, holes included */
    for (struct js_walk w = js_walk(v); js_next(&w, NULL, &x);) {
        uint64_t id;
        if (!js_u64(&x, &id) || id >= TOK_IDS_MAX)
            return js_bad(&x, e, "an id is a whole number below %d", TOK_IDS_MAX);
        if (id >= t->vocab)
            return js_bad(&x, e, "the model has %zu ids", t->vocab);
        n = MAX(n, (size_t)id + 1);
    }
    size_t size = hash_size(n + n_added);
    t->n_room = n + n_added + 1;
    t->content = calloc(t->n_room, sizeof *t->content);
    t->slot = malloc(size * sizeof *t->slot);
    if (!t->content || !t->slot)
        return tok_no_memory(v, e);
    memset(t->slot, 0xff, size * sizeof *t->slot);
    t->slot_mask = size - 1;
    for (struct js_walk w = js_walk(v); js_next(&w, &k, &x);) {
        uint64_t id = 0;
        struct span content;
        js_u64(&x, &id);
        if (t->content[id].n)
            return js_bad(&x, e, "another token has this id");
        if (read_content(t, &k, TOK_TOKEN_MAX, &content, e))
            return -1;
        t->content[id] = content;
        if (content.n && !enter(t, (uint32_t)id))
            return js_bad(&k, e, "the token is given twice");
    }
    t->n = t->n_model = n;
    return 0;
}

/* Reads a merge: its two parts, one after the other, in `b`; *n_a is the length of the first. */
static int merge_parts(const struct json *v, struct bytes *b, size_t *n_a, struct err *e)
{
    b->n = 0;
    if (!bytes_reserve(b, (size_t)(v->end - v->s)))
        return tok_no_memory(v, e);
    if (js_kind(v) == JS_STRING) {
        b->n = js_unescape(v, b->s);
        char *space = memchr(b->s, ' ', b->n);
        if (!space || memchr(space + 1, ' ', (size_t)(b->s + b->n - space - 1)))
            return js_bad(v, e, "a merge is two tokens with one space between");
        *n_a = (size_t)(space - b->s);
        memmove(space, space + 1, --b->n - *n_a);
        return 0;
    }
    struct json x;
    size_t n = 0;
    for (struct js_walk w = js_walk(v); js_next(&w, NULL, &x); n++) {
        if (js_kind(&x) != JS_STRING || n == 2)
            return js_bad(v, e, "a merge is a list of two tokens");
        *n_a = b->n;
        b->n += js_unescape(&x, b->s + b->n);
    }
    return n == 2 ? 0 : js_bad(v, e, "a merge is a list of two tokens");
}

static int read_merge(struct tokenizer *t, const struct json *v, struct bytes *b, struct err *e)
{
    size_t n_a = 0;
    if (merge_parts(v, b, &n_a, e))
        return -1;
    if (memchr(b->s, 0, b->n))           /* of tokens that no text has */
        return 0;
    uint32_t a = tok_find(t, b->s, n_a), c = tok_find(t, b->s + n_a, b->n - n_a),
             to = tok_find(t, b->s, b->n);
    if (a == NO_ID || c == NO_ID)
        return js_bad(v, e, "the %s part is not a token of the vocabulary", a == NO_ID ? "first" : "second");
    if (to == NO_ID)
        return js_bad(v, e, "the merged text is not a token of the vocabulary");
    /* of two merges of one pair Hugging Face keeps the last */
    *tok_merge_slot(t, a, c) = (struct merge){ a, c, (uint32_t)t->n_merges, to };
    t->merge_to[t->n_merges++] = to;
    return 0;
}

static int read_merges(struct tokenizer *t, const struct json *v, struct err *e)
{
    struct json x;
    size_t n = 0;
    enum js_kind kind = JS_STRING;
    if (js_kind(v) != JS_ARRAY)
        return js_bad(v, e, "a list is needed");
    for (struct js_walk w = js_walk(v); js_next(&w, NULL, &x);) {
        if (n == 0)
            kind = js_kind(&x);
        x.key[1] = "merges";
        if ((kind != JS_STRING && kind != JS_ARRAY) || js_kind(&x) != kind)
            return js_bad(&x, e, "merges are all \"a b\" or all [\"a\", \"b\"]");
        if (++n > TOK_MERGES_MAX)
            return js_bad(&x, e, "at most %d merges are allowed", TOK_MERGES_MAX);
    }
    size_t size = hash_size(n);
    t->merge = malloc(size * sizeof *t->merge);
    t->merge_to = malloc((n + 1) * sizeof *t->merge_to);
    if (!t->merge || !t->merge_to)
        return tok_no_memory(v, e);
    memset(t->merge, 0xff, size * sizeof *t->merge);
    t->merge_mask = size - 1;
    struct bytes b = { 0 };
    int r = 0;
    for (struct js_walk w = js_walk(v); !r && js_next(&w, NULL, &x);) {
        x.key[1] = "merges";
        static const char header[] = "\"#version";
        if (kind == JS_STRING && (size_t)(x.end - x.s) >= sizeof header &&
            !memcmp(x.s, header, sizeof header - 1))
            continue;                            /* the first line of a merges.txt */
        r = read_merge(t, &x, &b, e);
    }
    free(b.s);
    return r;
}

/* Checks a key that must be null or "", as in every model of these families. */
static int refuse_text(const struct field *f, struct err *e)
{
    return field_null(f) || js_is(&f->v, "") ? 0 : js_bad(&f->v, e, "only null or \"\" is implemented");
}

int tok_read_model(struct tokenizer *t, const struct json *v, size_t n_added, struct err *e)
{
    struct field f[] = { { "type" }, { "dropout" }, { "unk_token" }, { "continuing_subword_prefix" },
                         { "end_of_word_suffix" }, { "fuse_unk" }, { "byte_fallback" }, { "ignore_merges" },
                         { "vocab", true }, { "merges", true }, { "repeats" }, { 0 } };
    double dropout = 0;
    struct json type;
    int has_type = js_kind(v) == JS_OBJECT ? js_get(v, "type", &type, e) : 0;
    if (has_type < 0)
        return -1;
    if (has_type && !js_is(&type, "BPE"))      /* first, because other models have other keys */
        return js_bad(&type, e, "the model implemented is BPE");
    if (tok_fields(v, f, e) || (!field_null(&f[1]) && js_real(&f[1].v, 0, 0, &dropout, e)) ||
        refuse_text(&f[3], e) || refuse_text(&f[4], e) || tok_flag(&f[5], &t->fuse_unk, false, e) ||
        tok_flag(&f[6], &t->has_fallback, false, e) || tok_flag(&f[7], &t->ignore_merges, false, e) ||
        tok_flag(&f[10], &t->repeats, false, e) ||
        read_vocab(t, &f[8].v, n_added, e) || read_merges(t, &f[9].v, e))
        return -1;
    t->unk = NO_ID;                      /* also where unk_token is no token of the vocabulary */
    if (!field_null(&f[2])) {
        struct span unk;
        if (read_content(t, &f[2].v, TOK_TOKEN_MAX, &unk, e))
            return -1;
        t->unk = unk.n ? tok_find(t, t->pool.s + unk.at, unk.n) : NO_ID;
    }
    for (unsigned b = 0; b < 256; b++) {
        char s[8];
        t->byte_fallback[b] = tok_find(t, s, (size_t)snprintf(s, sizeof s, "<0x%02X>", b));
    }
    return 0;
}

static void enter_bigram(uint64_t *table, size_t mask, uint64_t x, size_t *n)
{
    uint64_t *slot = tok_bigram_slot(table, mask, x);
    *n += *slot != x;
    *slot = x;
}

static bool grow_bigrams(struct tokenizer *t)
{
    size_t old = t->bigram ? t->bigram_mask + 1 : 0, size = old ? 2 * old : 1024, n = 0;
    uint64_t *table = malloc(size * sizeof *table);
    if (!table)
        return false;
    memset(table, 0xff, size * sizeof *table);
    for (size_t i = 0; i < old; i++)
        if (t->bigram[i] != NO_BIGRAM)
            enter_bigram(table, size - 1, t->bigram[i], &n);
    free(t->bigram);
    t->bigram = table;
    t->bigram_mask = size - 1;
    return true;
}

/* Collects the pairs of neighbouring characters inside the results of all merges. */
static bool collect_bigrams(struct tokenizer *t)
{
    size_t n = 0;
    if (!grow_bigrams(t))
        return false;
    for (size_t i = 0; i < t->n_merges; i++) {
        const struct span *c = &t->content[t->merge_to[i]];
        const char *s = t->pool.s + c->at;
        uint32_t a, b;
        for (size_t k = utf8_get(s, &a); k < c->n; a = b) {
            k += utf8_get(s + k, &b);
            if (2 * n > t->bigram_mask && !grow_bigrams(t))
                return false;
            enter_bigram(t->bigram, t->bigram_mask, tok_bigram(a, b), &n);
        }
    }
    return true;
}

int tok_prepare(struct tokenizer *t, const struct json *root, struct err *e)
{
    for (unsigned b = 0; b < 256; b++) {
        char c[4];
        uint32_t id = t->byte_level || b < 0x80
                          ? tok_find(t, c, utf8_put(c, t->byte_level ? byte_to_char(b) : b)) : NO_ID;
        t->byte_id[b] = id < t->n_model ? id : NO_ID;
    }
    /* a byte-level model needs no bigrams: its words are short */
    return t->byte_level || collect_bigrams(t) ? 0 : tok_no_memory(root, e);
}

/* ---- added tokens ---- */

/* Makes room for ids below n. */
static int reserve_ids(struct tokenizer *t, size_t n, const struct json *v, struct err *e)
{
    if (n <= t->n_room)
        return 0;
    struct span *more = calloc(n, sizeof *more);
    if (!more)
        return tok_no_memory(v, e);
    memcpy(more, t->content, t->n_room * sizeof *more);
    free(t->content);
    t->content = more;
    t->n_room = n;
    return 0;
}

/* Reads the added token that follows t->added. An empty one becomes a hole. */
static int read_one_added(struct tokenizer *t, const struct json *v, struct err *e)
{
    struct added *a = &t->added[t->n_added];
    struct field f[] = { { "id", true }, { "content", true }, { "single_word", true }, { "lstrip", true },
                         { "rstrip", true }, { "normalized", true }, { "special", true }, { 0 } };
    size_t id;
    bool flag;
    if (tok_fields(v, f, e) || js_size(&f[0].v, 0, TOK_IDS_MAX - 1, &id, e) ||
        read_content(t, &f[1].v, TOK_ADDED_MAX, &a->content, e))
        return -1;
    for (size_t i = 0; i < 5; i++) {
        if (js_bool(&f[2 + i].v, &flag, e))
            return -1;
        a->flags |= flag ? 1u << i : 0;
    }
    if (id >= t->vocab)
        return a->content.n ? js_bad(&f[0].v, e, "the model has %zu ids", t->vocab) : 0;
    /* An added token has the id of its content in the vocabulary, or else one that no token has. */
    uint32_t known = a->content.n ? tok_find(t, t->pool.s + a->content.at, a->content.n) : NO_ID;
    if (known != NO_ID && id != known)
        return js_bad(&f[0].v, e, "its content has the id %u", known);
    if (reserve_ids(t, id + 1, v, e))
        return -1;
    if (known == NO_ID && id < t->n && t->content[id].n)
        return js_bad(&f[0].v, e, "another token has this id");
    a->id = (uint32_t)id;
    t->n = MAX(t->n, id + 1);
    if (!a->content.n)
        return 0;
    t->n_added++;
    if (known == NO_ID) {
        t->content[id] = a->content;
        enter(t, a->id);
    }
    a->pattern = a->content;
    if (!(a->flags & ADDED_NORMALIZED) || !t->n_norm)
        return 0;
    struct bytes out = { 0 }, work = { 0 };
    const char *r;
    size_t n;
    int bad = tok_normalize(t, t->pool.s + a->content.at, a->content.n, &out, &work, &r, &n);
    if (!bad && n > 0) {
        a->pattern = (struct span){ (uint32_t)t->pool.n, (uint32_t)n };
        bytes_add(&t->pool, r, n);
    }
    bad |= t->pool.failed;
    free(out.s);
    free(work.s);
    return bad ? tok_no_memory(v, e) : n == 0 ? js_bad(&f[1].v, e, "the normalizer leaves nothing of it") : 0;
}

static int by_id(const void *a, const void *b)
{
    const struct added *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static int by_pattern(const void *a, const void *b, void *pool)
{
    const struct span *x = &(*(struct added *const *)a)->pattern, *y = &(*(struct added *const *)b)->pattern;
    int r = memcmp((char *)pool + x->at, (char *)pool + y->at, MIN(x->n, y->n));
    return r ? r : (x->n > y->n) - (x->n < y->n);
}

static int build_set(struct tokenizer *t, struct match_set *set, bool normalized, const struct json *v,
                     struct err *e)
{
    set->sorted = malloc((t->n_added + 1) * sizeof *set->sorted);
    if (!set->sorted)
        return tok_no_memory(v, e);
    for (size_t i = 0; i < t->n_added; i++)
        if (!!(t->added[i].flags & ADDED_NORMALIZED) == normalized)
            set->sorted[set->n++] = &t->added[i];
    qsort_r(set->sorted, set->n, sizeof *set->sorted, by_pattern, t->pool.s);
    for (size_t i = 1; i < set->n; i++)
        if (!by_pattern(&set->sorted[i - 1], &set->sorted[i], t->pool.s))
            return err_set(e, ERR_INPUT,
                           "%s: added_tokens: the tokens %u and %u have the same (normalized) content",
                           v->file, set->sorted[i - 1]->id, set->sorted[i]->id);
    for (size_t i = set->n; i-- > 0;)
        set->first[(unsigned char)t->pool.s[set->sorted[i]->pattern.at]] = (uint32_t)i + 1;
    /* 0: no pattern begins with this byte */
    for (uint32_t b = 256, next = (uint32_t)set->n; b-- > 0;) {
        next = set->first[b] ? set->first[b] - 1 : next;
        set->first[b] = next;
        set->first[256] = (uint32_t)set->n;
    }
    return 0;
}

int tok_count_added(const struct field *f, size_t *n, struct err *e)
{
    struct json x;
    *n = 0;
    if (field_null(f))
        return 0;
    if (js_kind(&f->v) != JS_ARRAY)
        return js_bad(&f->v, e, "a list is needed");
    for (struct js_walk w = js_walk(&f->v); js_next(&w, NULL, &x);)
        if (++*n > TOK_IDS_MAX)
            return js_bad(&x, e, "at most %d tokens are allowed", TOK_IDS_MAX);
    return 0;
}

int tok_read_added(struct tokenizer *t, const struct field *f, size_t n, struct err *e)
{
    struct json x;
    t->added = calloc(n + 1, sizeof *t->added);
    if (!t->added)
        return tok_no_memory(&f->v, e);
    if (n)
        for (struct js_walk w = js_walk(&f->v); js_next(&w, NULL, &x);)
            if (read_one_added(t, &x, e))
                return -1;
    qsort(t->added, t->n_added, sizeof *t->added, by_id);
    for (size_t i = 1; i < t->n_added; i++)
        if (t->added[i - 1].id == t->added[i].id)
            return js_bad(&f->v, e, "the token of id %u is added twice", t->added[i].id);
    return build_set(t, &t->raw, false, &f->v, e) || build_set(t, &t->normalized, true, &f->v, e) ? -1 : 0;
}

int32_t tokenizer_special(const struct tokenizer *t, const char *text, size_t n)
{
    const uint32_t id = n ? tok_find(t, text, n) : NO_ID;
    for (size_t i = 0; i < t->n_added; i++)
        if (t->added[i].id == id && (t->added[i].flags & ADDED_SPECIAL))
            return (int32_t)id;
    return -1;
}
