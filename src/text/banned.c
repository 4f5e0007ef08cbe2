/* Banned phrases as a tree of their folded code points. A node is a beginning of phrases; `fail` leads to the
 * longest other node that ends it. Nodes are made in the order of their depth, so that those of `fail` exist.
 * Start at banned_add. */
#include "src/text/banned.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/input.h"
#include "src/base/unicode.h"

enum { ROOT = 0 };
static const char REPLACEMENT[] = "\xef\xbf\xbd";

/* A code point and the node before it. phrase: the shortest that the node ends with, or NULL. */
struct node { uint32_t before, c, fail, depth; const char *phrase; uint32_t phrase_depth; };
struct banned { struct node *node; size_t n; uint32_t *slot, mask; };     /* slots: node, or 0 */

int banned_check(const char *name, const char *const *phrase, size_t n, struct err *e)
{
    if (n > BANNED_MAX)
        return err_set(e, ERR_INPUT, "%s: %zu phrases, at most %d are allowed", name, n, BANNED_MAX);
    for (size_t i = 0; i < n; i++) {
        const size_t bytes = strlen(phrase[i]);
        if (bytes == 0 || bytes > BANNED_BYTES_MAX)
            return err_set(e, ERR_INPUT, "%s: a phrase of %zu bytes, 1 to %d are allowed", name, bytes,
                           BANNED_BYTES_MAX);
        if (text_check_utf8(name, phrase[i], bytes, e))
            return -1;
        if (strstr(phrase[i], REPLACEMENT))
            return err_set(e, ERR_INPUT, "%s: '%s' has U+FFFD, which stands for bytes that are no text", name,
                           phrase[i]);
    }
    return 0;
}

/* The slot of the node after `before` with code point c; an empty one: there is none. */
static uint32_t *slot_of(const struct banned *b, uint32_t before, uint32_t c)
{
    uint32_t i = (before * 0x9e3779b1u ^ c * 0x85ebca6bu) * 0xc2b2ae35u;
    for (i = (i >> 7) & b->mask; b->slot[i]; i = (i + 1) & b->mask) {
        const struct node *x = &b->node[b->slot[i]];
        if (x->before == before && x->c == c)
            break;
    }
    return &b->slot[i];
}

/* The node of the longest end of the text that begins a phrase, after one more code point. */
static uint32_t next_node(const struct banned *b, uint32_t node, uint32_t c)
{
    for (;; node = b->node[node].fail) {
        const uint32_t next = *slot_of(b, node, c);
        if (next || node == ROOT)
            return next;
    }
}

/* The node after `before` with code point c, made unless it exists. */
static uint32_t add_node(struct banned *b, uint32_t before, uint32_t c)
{
    uint32_t *slot = slot_of(b, before, c);
    if (*slot)
        return *slot;
    struct node *x = &b->node[b->n];
    *x = (struct node){ before, c, before == ROOT ? ROOT : next_node(b, b->node[before].fail, c),
                        b->node[before].depth + 1 };
    x->phrase = b->node[x->fail].phrase;
    x->phrase_depth = b->node[x->fail].phrase_depth;
    return *slot = (uint32_t)b->n++;
}

/* Adds the code points of all phrases, first their first ones. rest[i] and at[i]: of phrase i, what is left,
 * and the node of what was added. */
static void add_phrases(struct banned *b, const char *const *phrase, size_t n, const char **rest,
                        uint32_t *at)
{
    bool more = true;
    memcpy(rest, phrase, n * sizeof *rest);
    while (more) {
        more = false;
        for (size_t i = 0; i < n; i++) {
            uint32_t c;
            if (!*rest[i])
                continue;
            rest[i] += utf8_get(rest[i], &c);
            at[i] = add_node(b, at[i], unicode_fold(c));
            more |= *rest[i] != 0;
            struct node *x = &b->node[at[i]];
            if (!*rest[i] && !x->phrase) {
                x->phrase = phrase[i];
                x->phrase_depth = x->depth;
            }
        }
    }
}

int banned_open(struct banned **out, const char *const *phrase, size_t n, struct err *e)
{
    size_t bytes = 1, slots = 2;
    for (size_t i = 0; i < n; i++)
        bytes += strlen(phrase[i]);
    while (slots < 2 * bytes)
        slots *= 2;
    struct banned *b = *out = calloc(1, sizeof *b);
    const char **rest = calloc(n, sizeof *rest);
    uint32_t *at = calloc(n, sizeof *at);
    if (b)
        *b = (struct banned){ .node = calloc(bytes, sizeof *b->node), .n = 1,
                              .slot = calloc(slots, sizeof *b->slot), .mask = (uint32_t)slots - 1 };
    const bool room = b && b->node && b->slot && rest && at;
    if (room)
        add_phrases(b, phrase, n, rest, at);
    free(rest);
    free(at);
    if (room)
        return 0;
    banned_close(b);
    *out = NULL;
    return err_set(e, ERR_FAILED, "out of memory for %zu banned phrases", n);
}

void banned_close(struct banned *b)
{
    if (!b)
        return;
    free(b->node);
    free(b->slot);
    free(b);
}

/* Takes a byte of a token. Returns whether it completes a code point, *c. */
static bool add_byte(struct banned_match *m, size_t token, char byte, uint32_t *c)
{
    if (!m->n_held)
        m->held_token = token;
    m->held[m->n_held++] = byte;
    if (utf8_incomplete(m->held, m->n_held))
        return false;
    const size_t n = m->n_held;
    m->n_held = 0;
    if (utf8_valid_prefix(m->held, n) == n) {
        utf8_get(m->held, c);
        return true;
    }
    m->state = ROOT;                     /* the held bytes are no text; this byte may begin a code point */
    return n > 1 && add_byte(m, token, byte, c);
}

const char *banned_add(struct banned_match *m, size_t token, const char *bytes, size_t n, size_t *begin)
{
    const struct banned *b = m->phrases;
    for (size_t i = 0; i < n; i++) {
        uint32_t c;
        if (!add_byte(m, token, bytes[i], &c))
            continue;
        m->token[m->n++ % BANNED_BYTES_MAX] = m->held_token;
        m->state = next_node(b, m->state, unicode_fold(c));
        const struct node *x = &b->node[m->state];
        if (x->phrase) {
            *begin = m->token[(m->n - x->phrase_depth) % BANNED_BYTES_MAX];
            return x->phrase;
        }
    }
    return NULL;
}

size_t banned_may_begin(const struct banned_match *m, size_t tokens)
{
    const size_t depth = m->phrases->node[m->state].depth;
    return depth ? m->token[(m->n - depth) % BANNED_BYTES_MAX] : m->n_held ? m->held_token : tokens;
}
