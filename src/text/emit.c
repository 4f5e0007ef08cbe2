/* Emission: where a text ends, and which bytes may be shown. Its data is struct emit; start at emit_token. */
#include <stdlib.h>
#include <string.h>
#include "src/base/input.h"
#include "src/text/emit.h"

const char *finish_name(enum finish f)
{
    static const char *const name[] = { NULL, "length", "stop", "repetition" };
    return name[f];
}

/* ---- stop strings ---- */

/* A stop string and its match (Knuth, Morris, Pratt). fail[i]: length of the longest proper prefix of s
 * that s[0..i] ends with. matched: length of the longest prefix of s that the text ends with. */
struct stop_match { const char *s; size_t n, matched; uint16_t *fail; };

static void match_start(struct stop_match *k, const char *s, size_t n, uint16_t *fail)
{
    *k = (struct stop_match){ s, n, 0, fail };
    size_t m = 0;
    fail[0] = 0;
    for (size_t i = 1; i < n; i++) {
        while (m && s[i] != s[m])
            m = fail[m - 1];
        m += s[i] == s[m];
        fail[i] = (uint16_t)m;
    }
}

/* Adds a byte. Returns whether it completes the string. `matched` is below n at the next byte. */
static bool match_byte(struct stop_match *k, char c)
{
    while (k->matched && c != k->s[k->matched])
        k->matched = k->fail[k->matched - 1];
    k->matched += c == k->s[k->matched];
    return k->matched == k->n;
}

int stop_check(const char *name, const char *const *stop, size_t n, struct err *e)
{
    if (n > STOP_STRINGS_MAX)
        return err_set(e, ERR_INPUT, "%s: %zu strings, at most %d are allowed", name, n, STOP_STRINGS_MAX);
    for (size_t i = 0; i < n; i++) {
        const size_t bytes = strlen(stop[i]);
        if (bytes == 0 || bytes > STOP_STRING_BYTES_MAX)
            return err_set(e, ERR_INPUT, "%s: a string of %zu bytes, 1 to %d are allowed", name, bytes,
                           STOP_STRING_BYTES_MAX);
        if (text_check_utf8(name, stop[i], bytes, e))
            return -1;
    }
    return 0;
}

/* ---- the interface ---- */

/* Lets the matches of the rules' stop strings begin. m->match has room for them, and their tables follow. */
static void start_matches(struct emit *m)
{
    const struct emit_rules *r = m->rules;
    uint16_t *fail = m->fail;
    for (size_t i = 0; i < r->n_stop; i++) {
        match_start(&m->match[i], r->stop[i], strlen(r->stop[i]), fail);
        fail += m->match[i].n;
    }
}

int emit_open(struct emit *m, const struct emit_rules *rules, const struct tokenizer *t, bool at_start,
              struct err *e)
{
    size_t bytes = 0, n_stop = 0;
    bool loops = false;
    *m = (struct emit){ .rules = rules, .stop_token = -1,
                        .finish = rules->tokens ? FINISH_NONE : FINISH_LENGTH };
    for (const struct emit_rules *r = rules; r; r = r->next) {
        size_t total = 0;
        if (stop_check("--stop", r->stop, r->n_stop, e))
            return -1;
        for (size_t i = 0; i < r->n_stop; i++)
            total += strlen(r->stop[i]);
        bytes = MAX(bytes, total * sizeof *m->fail);
        n_stop = MAX(n_stop, r->n_stop);
        loops |= r->on_loop != ON_LOOP_OFF;
    }
    decode_stream_start(&m->stream, t, at_start, true);
    /* room for less than a stop string, then the bytes of a token and of a flush */
    m->held_max = STOP_STRING_BYTES_MAX + 2 * decode_stream_max(t);
    m->held = malloc(m->held_max);
    m->match = malloc(n_stop * sizeof *m->match + bytes + 1);
    if (loops && loop_open(&m->loop, e)) {
        emit_close(m);
        return -1;
    }
    if (!m->held || !m->match) {
        emit_close(m);
        return err_set(e, ERR_FAILED, "no memory for the text's end (%zu bytes)", m->held_max);
    }
    m->fail = (uint16_t *)(void *)(m->match + n_stop);
    start_matches(m);
    return 0;
}

void emit_close(struct emit *m)
{
    free(m->held);
    free(m->match);
    loop_close(m->loop);
    m->held = NULL;
    m->match = NULL;
    m->loop = NULL;
}

/* Adds the n bytes after the held ones. Returns true at the first stop string; `held` then ends before it. */
static bool add_bytes(struct emit *m, size_t n)
{
    for (size_t end = m->n_held + n; m->n_held < end; ) {
        char c = m->held[m->n_held++];
        const struct stop_match *found = NULL;
        for (size_t i = 0; i < m->rules->n_stop; i++) {
            struct stop_match *k = &m->match[i];
            if (!match_byte(k, c))
                continue;
            if (m->n < m->rules->min_tokens)
                k->matched = k->fail[k->n - 1];
            else if (!found || k->n > found->n)
                found = k;
        }
        if (found) {
            m->n_held -= found->n;
            m->stop_string = found->s;
            return true;
        }
    }
    return false;
}

static bool add_flush(struct emit *m)
{
    return add_bytes(m, decode_stream_flush(&m->stream, m->held + m->n_held));
}

/* Drops the bytes that the last call showed. */
static void drop_shown(struct emit *m)
{
    memmove(m->held, m->held + m->n_shown, m->n_held);
    m->n_shown = 0;
}

/* Shows the held bytes except the last `keep`. */
static void show(struct emit *m, size_t keep, const char **out, size_t *n)
{
    assert(keep <= m->n_held);
    *out = m->held;
    *n = m->n_shown = m->n_held - keep;
    m->n_held = keep;
}

static bool same_stop(const struct emit_rules *a, const struct emit_rules *b)
{
    bool same = a->n_stop == b->n_stop;
    for (size_t i = 0; same && i < a->n_stop; i++)
        same = strcmp(a->stop[i], b->stop[i]) == 0;
    return same;
}

/* Before each token: takes the rules of the part that begins with it. Held bytes come out with the token. */
static void follow_rules(struct emit *m)
{
    const struct emit_rules *old = m->rules;
    if (!old->next || m->n < old->until)
        return;
    m->rules = old->next;
    if (!same_stop(old, m->rules))
        start_matches(m);
    if (m->loop && old->on_loop != m->rules->on_loop)
        loop_restart(m->loop);
}

void emit_token(struct emit *m, int32_t id, const char **out, size_t *n)
{
    size_t keep = 0;
    assert(m->finish == FINISH_NONE);
    drop_shown(m);
    follow_rules(m);
    const struct emit_rules *r = m->rules;
    for (size_t i = r->ignore_eos ? r->n_eos : 0; i < r->n_eos + r->n_stop_ids; i++)
        if (r->eos[i] == id) {
            m->finish = FINISH_STOP;
            if (!add_flush(m))
                m->stop_token = id;
            show(m, 0, out, n);
            return;
        }
    m->n++;
    const bool found = m->loop && loop_token(m->loop, id), repeats = found && r->on_loop != ON_LOOP_OFF;
    const bool stop = repeats && r->on_loop == ON_LOOP_STOP && m->n >= r->min_tokens;
    m->repetitions += repeats;
    if (add_bytes(m, decode_stream_push(&m->stream, id, m->held + m->n_held)) ||
        ((stop || m->n == r->tokens) && add_flush(m)))
        m->finish = FINISH_STOP;
    else if (stop)
        m->finish = FINISH_REPETITION;
    else if (m->n == r->tokens)
        m->finish = FINISH_LENGTH;
    else
        for (size_t i = 0; i < r->n_stop; i++)
            keep = MAX(keep, m->match[i].matched);
    show(m, keep, out, n);
}

void emit_given(struct emit *m, int32_t id, const char **out, size_t *n)
{
    assert(m->finish == FINISH_NONE);
    drop_shown(m);
    follow_rules(m);
    m->n++;
    if (m->loop)
        loop_given(m->loop, id);
    m->n_held += decode_stream_push(&m->stream, id, m->held + m->n_held);
    if (m->n == m->rules->tokens) {
        m->n_held += decode_stream_flush(&m->stream, m->held + m->n_held);
        m->finish = FINISH_LENGTH;
    }
    for (size_t i = 0; i < m->rules->n_stop; i++)
        m->match[i].matched = 0;
    show(m, 0, out, n);
}

void emit_end(struct emit *m, enum finish f, const char **out, size_t *n)
{
    assert(m->finish == FINISH_NONE);
    emit_flush(m, out, n);
    m->finish = f;
}

void emit_flush(struct emit *m, const char **out, size_t *n)
{
    drop_shown(m);
    if (m->finish == FINISH_NONE) {
        add_flush(m);
        m->stop_string = NULL;
    }
    show(m, 0, out, n);
}
