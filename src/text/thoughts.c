/* The thoughts that an answer begins with. Start at thoughts_token. */
#include "src/text/thoughts.h"

#include <stdlib.h>
#include <string.h>

#include "src/text/chat.h"

enum { PROMPT_TOKENS = 32 };             /* in which a start mark at the end of a prompt is looked for */

/* gpt-oss writes the name of its channel before an answer without a thought. The mark ends at once. */
static const char *const answer_channel[] = { "<|channel|>final<|message|>", "" };

static const char *const *pair_of(size_t i)
{
    const char *const *pair = chat_thought_pair(i);
    return pair || !i || !chat_thought_pair(i - 1) ? pair : answer_channel;
}

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* The length of a mark without white space at its end. */
static size_t mark_length(const char *mark)
{
    size_t n = strlen(mark);
    while (n && is_space(mark[n - 1]))
        n--;
    assert(n < THOUGHT_MARK_MAX);
    return n;
}

/* The pair whose start mark the prompt ends with; NULL: none. */
static const char *const *opened_by(const char *prompt, size_t n)
{
    const char *const *pair;
    while (n && is_space(prompt[n - 1]))
        n--;
    for (size_t i = 0; (pair = pair_of(i)); i++) {
        const size_t m = mark_length(pair[0]);
        if (n >= m && memcmp(prompt + n - m, pair[0], m) == 0)
            return pair;
    }
    return NULL;
}

int thoughts_begin(struct thoughts *x, const struct tokenizer *t, const int32_t *prompt, size_t n,
                   struct err *e)
{
    const size_t last = MIN(n, (size_t)PROMPT_TOKENS);
    char *text = NULL;
    size_t bytes = 0;
    *x = (struct thoughts){ .state = THOUGHTS_MAY };
    struct err ignored;
    if (tokenizer_decode(t, &text, &bytes, prompt + n - last, last, false, &ignored))
        bytes = 0;
    x->pair = opened_by(text, bytes);
    free(text);
    if (x->pair)
        x->state = THOUGHTS_OPEN;
    decode_stream_start(&x->stream, t, false, false);
    x->raw = malloc(THOUGHT_MARK_MAX + decode_stream_max(t));
    return x->raw ? 0 : err_set(e, ERR_FAILED, "out of memory");
}

void thoughts_end(struct thoughts *x)
{
    free(x->raw);
    *x = (struct thoughts){ 0 };
}

static void drop(struct thoughts *x, size_t n)
{
    memmove(x->raw, x->raw + n, x->n - n);
    x->n -= n;
}

/* Looks for a start mark. Whether the state has changed. */
static bool look_for_start(struct thoughts *x)
{
    const char *const *pair;
    size_t space = 0;
    while (space < x->n && is_space(x->raw[space]))
        space++;
    drop(x, space);
    if (!x->n)
        return false;
    x->state = THOUGHTS_OVER;
    for (size_t i = 0; (pair = pair_of(i)); i++) {
        const size_t m = mark_length(pair[0]);
        if (memcmp(x->raw, pair[0], MIN(m, x->n)))
            continue;
        x->state = x->n < m ? THOUGHTS_MAY : THOUGHTS_OPEN;
        if (x->state == THOUGHTS_OPEN) {
            x->pair = pair;
            drop(x, m);
            return true;
        }
    }
    return false;
}

/* Looks for the end mark. Whether the state has changed. */
static bool look_for_end(struct thoughts *x, size_t total)
{
    const size_t m = mark_length(x->pair[1]);
    const char *end = memmem(x->raw, x->n, x->pair[1], m);
    if (!end) {
        drop(x, x->n - MIN(x->n, m - 1));
        return false;
    }
    drop(x, (size_t)(end - x->raw) + m);
    x->ended = true;
    x->begins = total - MIN(total, x->n + x->stream.n_held);
    x->state = THOUGHTS_MAY;
    return true;
}

void thoughts_token(struct thoughts *x, int32_t id, size_t total)
{
    if (x->state == THOUGHTS_OVER)
        return;
    x->n += decode_stream_push(&x->stream, id, x->raw + x->n);
    assert(x->n <= THOUGHT_MARK_MAX + decode_stream_max(x->stream.t));
    while (x->state != THOUGHTS_OVER &&
           (x->state == THOUGHTS_MAY ? look_for_start(x) : look_for_end(x, total)))
        ;
}
