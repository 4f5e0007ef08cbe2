/* The lower layer of the tokenizer: growing memory, hash tables of tokens and merges, GPT-2's byte alphabet,
 * normalizers, and reading of JSON objects. Its data are in src/text/tokenizer_tables.h; start there. */
#include "src/text/tokenizer_tables.h"

#include <stdlib.h>
#include <string.h>

/* ---- growing memory ---- */

bool tok_grow(void **p, size_t *max, size_t need, size_t item, bool *failed)
{
    if (need <= *max)
        return !*failed;
    size_t bytes, n = MAX(need, *max + *max / 2 + 64);
    void *q = *failed || !mul_size(n, item, &bytes) ? NULL : realloc(*p, bytes);
    if (!q) {
        *failed = true;
        return false;
    }
    *p = q;
    *max = n;
    return true;
}

bool bytes_reserve(struct bytes *b, size_t more)
{
    size_t need;
    if (!add_size(b->n, MAX(more, 1), &need) || need > SIZE_MAX / 2)
        b->failed = true;
    return !b->failed && tok_grow((void **)&b->s, &b->max, need, 1, &b->failed);
}

void bytes_add(struct bytes *b, const char *s, size_t n)
{
    if (n == 0 || !bytes_reserve(b, n))
        return;
    memcpy(b->s + b->n, s, n);
    b->n += n;
}

/* ---- hash tables ---- */

static uint64_t tok_hash(const char *s, size_t n)
{
    uint64_t h = n * 0x9e3779b97f4a7c15u, x;
    for (; n >= 8; s += 8, n -= 8) {
        memcpy(&x, s, 8);
        h = (h ^ x) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    x = 0;
    memcpy(&x, s, n);
    h = (h ^ x) * 0xff51afd7ed558ccdu;
    h ^= h >> 29;
    h *= 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 32;
}

static uint64_t tok_pair_hash(uint32_t a, uint32_t b)
{
    uint64_t h = ((uint64_t)a << 32 | b) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}

uint32_t *tok_slot(const struct tokenizer *t, const char *s, size_t n)
{
    for (size_t i = tok_hash(s, n) & t->slot_mask;; i = (i + 1) & t->slot_mask) {
        const uint32_t id = t->slot[i];
        if (id == NO_ID || (t->content[id].n == n && !memcmp(t->pool.s + t->content[id].at, s, n)))
            return &t->slot[i];
    }
}

struct merge *tok_merge_slot(const struct tokenizer *t, uint32_t a, uint32_t b)
{
    for (size_t i = tok_pair_hash(a, b) & t->merge_mask;; i = (i + 1) & t->merge_mask) {
        struct merge *m = &t->merge[i];
        if ((m->a == a && m->b == b) || m->a == NO_ID)
            return m;
    }
}

uint64_t *tok_bigram_slot(uint64_t *table, size_t mask, uint64_t x)
{
    size_t i = tok_pair_hash((uint32_t)(x >> 32), (uint32_t)x) & mask;
    while (table[i] != x && table[i] != NO_BIGRAM)
        i = (i + 1) & mask;
    return &table[i];
}

/* ---- the byte-level alphabet ---- */

/* A printable Latin-1 byte is its own character. The 68 other bytes are U+0100 and on, in order. */
static bool is_printable(unsigned b)
{
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
}

uint32_t byte_to_char(unsigned b)
{
    if (is_printable(b))
        return b;
    return b <= 0x20 ? 0x100 + b : b <= 0xa0 ? 0x121 + (b - 0x7f) : 0x143;
}

int char_to_byte(uint32_t c)
{
    if (c < 0x100)
        return is_printable(c) ? (int)c : -1;
    if (c > 0x143)
        return -1;
    return c == 0x143 ? 0xad : c <= 0x120 ? (int)c - 0x100 : (int)c - 0x121 + 0x7f;
}

/* ---- normalizers ---- */

void tok_replace(struct bytes *out, const char *s, size_t n, const struct text *from, const struct text *to)
{
    const char *end = s + n, *hit;
    while ((hit = memmem(s, (size_t)(end - s), from->s, from->n)) != NULL) {
        bytes_add(out, s, (size_t)(hit - s));
        bytes_add(out, to->s, to->n);
        s = hit + from->n;
    }
    bytes_add(out, s, (size_t)(end - s));
}

int tok_normalize(const struct tokenizer *t, const char *s, size_t n, struct bytes *out, struct bytes *work,
                  const char **r, size_t *n_r)
{
    *r = s;
    *n_r = n;
    out->n = work->n = 0;
    for (size_t i = 0; i < t->n_norm && *n_r > 0; i++) {
        const struct norm_step *step = &t->norm[i];
        struct bytes *to = *r == out->s ? work : out;
        to->n = 0;
        if (!bytes_reserve(to, 1))
            return -1;
        if (step->kind == NORM_NFC) {
            char *nfc;
            size_t n_nfc;
            if (unicode_nfc(&nfc, &n_nfc, *r, *n_r))
                return -1;
            bytes_add(to, nfc, n_nfc);
            free(nfc);
        } else if (step->kind == NORM_PREPEND) {
            bytes_add(to, step->to.s, step->to.n);
            bytes_add(to, *r, *n_r);
        } else {
            tok_replace(to, *r, *n_r, &step->from, &step->to);
        }
        if (to->failed)
            return -1;
        *r = to->s;
        *n_r = to->n;
    }
    return 0;
}

/* ---- objects of tokenizer.json ---- */

int tok_fields(const struct json *object, struct field *f, struct err *e)
{
    struct json k, v;
    if (js_kind(object) != JS_OBJECT)
        return js_bad(object, e, "an object is needed");
    for (struct js_walk w = js_walk(object); js_next(&w, &k, &v);) {
        size_t i = 0;
        while (f[i].name && !js_is(&k, f[i].name))
            i++;
        if (!f[i].name)
            return js_bad(&k, e, "the key is unknown");
        if (f[i].given)
            return js_bad(&k, e, "the key is given twice");
        f[i].given = true;
        f[i].v = v;
        f[i].v.key[object->key[0] != NULL] = f[i].name;
    }
    for (size_t i = 0; f[i].name; i++)
        if (f[i].required && !f[i].given)
            return js_bad(object, e, "the key \"%s\" is missing", f[i].name);
    return 0;
}

int tok_flag(const struct field *f, bool *x, bool otherwise, struct err *e)
{
    *x = otherwise;
    return field_null(f) ? 0 : js_bool(&f->v, x, e);
}

int tok_no_memory(const struct json *v, struct err *e)
{
    return err_set(e, ERR_FAILED, "%s: no memory for the tokenizer", v->file);
}
