/* Ids -> text. tok_build_shown computes the bytes of each token once. Decoding then concatenates them:
 *
 *   DECODE_BYTES      byte-level: bytes; each maximal subpart that is not UTF-8 becomes U+FFFD
 *   DECODE_SENTENCE   Sequence of Replace, ByteFallback, Fuse, Strip: texts and byte tokens. A run of byte
 *                     tokens is text if all of it is UTF-8, else one U+FFFD for each byte
 *   DECODE_METASPACE  texts; the first loses its replacement characters
 *
 * Start at decode_stream_push. */
#include "src/text/tokenizer_tables.h"
#include "src/text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static const char REPLACEMENT[] = "\xef\xbf\xbd";

/* The value of a token of the form <0xAB>; -1 for any other token. */
static int byte_token(const char *s, size_t n)
{
    static const char hex[] = "0123456789abcdefABCDEF";
    if (n != 6 || memcmp(s, "<0x", 3) || s[5] != '>' || !memchr(hex, s[3], 22) || !memchr(hex, s[4], 22))
        return -1;
    return (int)strtoul((char[]){ s[3], s[4], 0 }, NULL, 16);
}

/* Appends the bytes of a byte-level token. If any of its characters stands for no byte, the token stays as
 * it is. */
static void add_bytes(struct bytes *out, const char *s, size_t n)
{
    size_t start = out->n;
    uint32_t c;
    for (size_t i = 0; i < n;) {
        i += utf8_get(s + i, &c);
        int b = char_to_byte(c);
        if (b < 0) {
            out->n = start;
            bytes_add(out, s, n);
            return;
        }
        bytes_add(out, &(char){ (char)b }, 1);
    }
}

static const struct added *added_by_id(const struct tokenizer *t, uint32_t id)
{
    const size_t at = rows_below(t->added, t->n_added, sizeof *t->added, id);
    return at < t->n_added && t->added[at].id == id ? &t->added[at] : NULL;
}

/* Stores the text of `token` as the decoder sees it. */
static int show(struct tokenizer *t, uint32_t id, const struct span *token, struct bytes *work)
{
    const char *s = t->pool.s + token->at;
    size_t n = token->n, at = t->shown_pool.n;
    if (t->decoder == DECODE_BYTES) {
        add_bytes(&t->shown_pool, s, n);
    } else if (t->decoder == DECODE_METASPACE) {
        bytes_add(&t->shown_pool, s, n);
    } else {
        for (size_t i = 0; i < t->n_replace; i++) {
            struct bytes *to = &work[i % 2];
            to->n = 0;
            tok_replace(to, s, n, &t->replace[i].from, &t->replace[i].to);
            if (to->failed)
                return -1;
            s = to->s ? to->s : "";
            n = to->n;
        }
        int b = t->byte_tokens ? byte_token(s, n) : -1;
        if (b >= 0)
            t->shown_flags[id] |= SHOWN_BYTE;
        bytes_add(&t->shown_pool, b >= 0 ? &(char){ (char)b } : s, b >= 0 ? 1 : n);
    }
    t->shown[id] = (struct span){ (uint32_t)at, (uint32_t)(t->shown_pool.n - at) };
    t->shown_max = MAX(t->shown_max, t->shown_pool.n - at);
    return t->shown_pool.failed || t->shown_pool.n > UINT32_MAX ? -1 : 0;
}

int tok_build_shown(struct tokenizer *t, const char *file, struct err *e)
{
    struct bytes work[2] = { { 0 } };
    t->shown = calloc(t->n + 1, sizeof *t->shown);
    t->shown_flags = calloc(t->n + 1, 1);
    int r = t->shown && t->shown_flags ? 0 : -1;
    e->code = 0;
    for (uint32_t id = 0; id < t->n && !r; id++) {
        /* Hugging Face decodes an added token from its normalized form, and skips a text that equals the
         * content of a special token. */
        const struct added *a = added_by_id(t, id);
        const struct span *token = a ? &a->pattern : &t->content[id];
        if (a) {
            uint32_t same = tok_find(t, t->pool.s + token->at, token->n);
            const struct added *b = same == NO_ID ? NULL : added_by_id(t, same);
            t->shown_flags[id] = b && (b->flags & ADDED_SPECIAL) ? SHOWN_SPECIAL : 0;
        }
        r = show(t, id, token, work);
    }
    free(work[0].s);
    free(work[1].s);
    return r && !e->code ? err_set(e, ERR_FAILED, "%s: no memory for %zu tokens", file, t->n) : r;
}

/* ---- streaming ---- */

enum { RUN_NONE, RUN_GOOD, RUN_BAD };            /* a run of byte tokens may still be text, or cannot be */

void decode_stream_start(struct decode_stream *s, const struct tokenizer *t, bool at_start, bool skip_special)
{
    *s = (struct decode_stream){ .t = t, .skip_special = skip_special, .first = at_start,
                                 .strip = at_start ? t->strip_n : 0 };
}

size_t decode_stream_max(const struct tokenizer *t)
{
    /* every held or new byte may become U+FFFD */
    return 3 * (t->shown_max + DECODE_HELD_MAX);
}

/* Writes text, without the characters that Strip removes from the start. */
static size_t put_text(struct decode_stream *s, char *out, const char *text, size_t n)
{
    const struct text *strip = &s->t->strip;
    while (s->strip > 0 && n > 0) {
        if (n < strip->n || memcmp(text, strip->s, strip->n)) {
            s->strip = 0;
            break;
        }
        text += strip->n;
        n -= strip->n;
        s->strip--;
    }
    memcpy(out, text, n);
    return n;
}

static char *held_bytes(struct decode_stream *s) { return s->room ? s->room : s->held; }

/* Writes one byte of a byte-level text. The held bytes begin a code point, if there are any. */
static size_t put_byte(struct decode_stream *s, char *out, char b)
{
    char *held = held_bytes(s);
    const size_t n = s->n_held + 1;
    held[n - 1] = b;
    s->n_held = utf8_incomplete(held, n) ? n : 0;
    if (s->n_held)
        return 0;
    if (utf8_valid_prefix(held, n) == n) {
        memcpy(out, held, n);
        return n;
    }
    /* this byte cannot complete the held ones, but may begin another code point */
    memcpy(out, REPLACEMENT, 3);
    return n > 1 ? 3 + put_byte(s, out + 3, b) : 3;
}

static size_t put_replacements(struct decode_stream *s, char *out, size_t n)
{
    size_t w = 0;
    for (size_t i = 0; i < n; i++)
        w += put_text(s, out + w, REPLACEMENT, 3);
    return w;
}

/* Handles a byte token: it is held while the run may still be text. */
static size_t put_byte_token(struct decode_stream *s, char *out, char b)
{
    size_t w = 0;
    char *held = held_bytes(s);
    if (s->run == RUN_BAD)
        return put_replacements(s, out, 1);
    s->run = RUN_GOOD;
    /* the run is too long to wait for: release the complete part */
    if (s->n_held == (s->room ? s->room_max : DECODE_HELD_MAX)) {
        w = put_text(s, out, held, s->n_valid);
        s->n_held -= s->n_valid;
        memmove(held, held + s->n_valid, s->n_held);
        s->n_valid = 0;
    }
    held[s->n_held++] = b;
    s->n_valid += utf8_valid_prefix(held + s->n_valid, s->n_held - s->n_valid);
    if (s->n_valid == s->n_held || utf8_incomplete(held + s->n_valid, s->n_held - s->n_valid))
        return w;
    s->run = RUN_BAD;
    w += put_replacements(s, out + w, s->n_held);
    s->n_held = s->n_valid = 0;
    return w;
}

/* Ends a run of byte tokens, or the text. */
static size_t end_run(struct decode_stream *s, char *out)
{
    size_t n = s->n_held;
    const char *held = held_bytes(s);
    bool text = utf8_valid_prefix(held, n) == n;
    s->n_held = s->n_valid = 0;
    s->run = RUN_NONE;
    if (s->t->decoder == DECODE_BYTES && !text)
        n = 1;                                   /* an unfinished code point is one U+FFFD */
    return text ? put_text(s, out, held, n) : put_replacements(s, out, n);
}

size_t decode_stream_push(struct decode_stream *s, int32_t id, char *out)
{
    const struct tokenizer *t = s->t;
    assert(id >= 0 && (size_t)id < t->vocab);
    if ((size_t)id >= t->n || (s->skip_special && (t->shown_flags[id] & SHOWN_SPECIAL)))
        return 0;
    const char *text = t->shown_pool.s + t->shown[id].at;
    size_t n = t->shown[id].n, w = 0;
    if (t->decoder == DECODE_BYTES) {
        for (size_t i = 0; i < n; i++)
            w += put_byte(s, out + w, text[i]);
        return w;
    }
    if (t->decoder == DECODE_SENTENCE) {
        if (t->shown_flags[id] & SHOWN_BYTE)
            return put_byte_token(s, out, text[0]);
        w = end_run(s, out);
        return w + put_text(s, out + w, text, n);
    }
    bool drop = s->first && t->meta_drop;
    s->first = false;
    for (size_t i = 0; i < n;) {
        size_t len = utf8_length((unsigned char)text[i]);
        if (len == t->meta_decode.n && !memcmp(text + i, t->meta_decode.s, len)) {
            if (!drop)
                out[w++] = ' ';
        } else {
            memcpy(out + w, text + i, len);
            w += len;
        }
        i += len;
    }
    return w;
}

size_t decode_stream_flush(struct decode_stream *s, char *out)
{
    return s->n_held ? end_run(s, out) : 0;
}

size_t token_bytes(const struct tokenizer *t, int32_t id, char *out)
{
    struct decode_stream s;
    if (t->decoder != DECODE_BYTES && t->decoder != DECODE_SENTENCE) {
        decode_stream_start(&s, t, false, true);
        return decode_stream_push(&s, id, out);
    }
    if ((size_t)id >= t->n || t->shown_flags[id] & SHOWN_SPECIAL)
        return 0;
    memcpy(out, t->shown_pool.s + t->shown[id].at, t->shown[id].n);
    return t->shown[id].n;
}

int tokenizer_decode(const struct tokenizer *t, char **text, size_t *n, const int32_t *ids, size_t n_ids,
                     bool skip_special, struct err *e)
{
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] < 0 || (size_t)ids[i] >= t->vocab)
            return err_set(e, ERR_INPUT, "ids[%zu]: found %d, allowed are ids from 0 to %zu", i, ids[i],
                           t->vocab - 1);
    struct decode_stream s;
    struct bytes b = { 0 };
    decode_stream_start(&s, t, true, skip_special);
    s.room_max = MAX(n_ids, sizeof s.held);
    s.room = malloc(s.room_max);
    b.failed = !s.room;
    for (size_t i = 0; i <= n_ids && bytes_reserve(&b, 3 * (s.n_held + t->shown_max + 1)); i++)
        b.n += i < n_ids ? decode_stream_push(&s, ids[i], b.s + b.n) : decode_stream_flush(&s, b.s + b.n);
    free(s.room);
    if (bytes_reserve(&b, 1)) {
        b.s[b.n] = 0;
        *text = b.s;
        *n = b.n;
        return 0;
    }
    free(b.s);
    return err_set(e, ERR_FAILED, "no memory for the text of %zu tokens", n_ids);
}
