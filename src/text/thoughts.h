/* The thoughts that an answer begins with. A model that thinks writes them before the answer, each between a
 * start mark and an end mark of its template (chat_thought_pair). Where the answer begins is a function of
 * the prompt and the tokens (docs/architecture.md, rule R3).
 *
 * A thought is open if the prompt ends with a start mark, or if nothing but white space and other thoughts
 * stands before a start mark in the text. A start mark after the first word of the answer is text. Marks may
 * be special tokens, which have no bytes in the text.
 *
 *     thoughts_begin, then thoughts_token for each token until x->state is THOUGHTS_OVER */
#pragma once
#include "src/text/tokenizer.h"

/* THOUGHTS_MAY: a start mark may follow. THOUGHTS_OPEN: within a thought. THOUGHTS_OVER: the answer has
 * begun, and no further token changes anything. */
enum thoughts_state { THOUGHTS_OVER, THOUGHTS_MAY, THOUGHTS_OPEN };
enum { THOUGHT_MARK_MAX = 128 };         /* bytes of a mark */

struct thoughts {                        /* {0} is closed: a text without thoughts */
    enum thoughts_state state;
    bool ended;                          /* a thought has ended, */
    size_t begins;                       /* after so many bytes of the text */
    const char *const *pair;             /* of the open thought */
    struct decode_stream stream;         /* with the names of special tokens */
    char *raw; size_t n;                 /* its bytes that are not decided */
};
/* prompt: its n last tokens, or all. Tokens that the vocabulary lacks are no mark. ERR_FAILED: out of
 * memory. */
int thoughts_begin(struct thoughts *x, const struct tokenizer *t, const int32_t *prompt, size_t n,
                   struct err *e);
/* total: the bytes of the text with this token, whether they are shown yet or not, and of a stop string that
 * the token completes. */
void thoughts_token(struct thoughts *x, int32_t id, size_t total);
/* Whether byte c after a thought is no part of the answer: white space, or the rest of a character that the
 * thought left unfinished. */
static inline bool thoughts_trims(const struct thoughts *x, char c)
{
    return x->ended && (c == ' ' || c == '\t' || c == '\r' || c == '\n' || ((unsigned char)c & 0xc0) == 0x80);
}
void thoughts_end(struct thoughts *x);
