/* Retakes: a text that fell into repetition, or has a banned phrase, is cut back, and the token that stood at
 * the cut is forbidden there.
 *
 * The state of a text is its tokens and its list of retakes. A retake at position p drops every retake at a
 * position after p, for its context is gone. So no beginning is followed by the same token twice, and the
 * search ends. Forbidden tokens have the logit -inf before every step of the sampling chain, and the coin of
 * the position stays: the choice is the model's own distribution without these tokens. Plain decoding defines
 * the retakes; drafted, resumed and verified texts make the same.
 *
 *     loop rule    With ON_LOOP_RETAKE the text is cut to s = repetition.start, so the first copy stays. A
 *                  retake belongs to a series if its s is less than RETAKE_SERIES tokens after the furthest
 *                  s of the series. After N retakes or RETAKE_CUT_MAX cut tokens of a series the text ends
 *                  at s, FINISH_REPETITION. If that is before min_tokens, it goes on as with ON_LOOP_WARN.
 *     phrase       A text that has a banned phrase (src/text/banned.h) is cut to max(floor, the token in
 *                  which the phrase begins). The settled point is after that token where a cut has made the
 *                  end of the text before it the beginning of a phrase again. Matching starts anew after
 *                  given tokens, and where the phrases change.
 *     floor        The settled point, the end of the last given or shared token, or the start of a part with
 *                  other parameters, whichever is last. A text is not cut before it.
 *     settled      A token is settled if it lies before the run of the loop rule, or before the last
 *                  LOOP_GRAM - 1 tokens if there is none, and before the token in which a phrase may begin.
 *                  The settled point never falls. Only settled tokens are final.
 *
 * The order for each token is: given, end-of-text token, banned phrase, stop string, loop rule, length. */
#pragma once
#include "src/text/banned.h"
#include "src/text/loop.h"

enum {
    RETAKES = 32, RETAKES_MAX = 1000,    /* of a series, without N; the most N */
    RETAKE_CUT_MAX = 16384, RETAKE_SERIES = 1024,
    FORBIDDEN_MAX = 256,                 /* tokens at one position */
};

struct retake {
    size_t at; int32_t token;            /* where the text was cut, and the token that stood there */
    size_t length;                       /* of the text, before the cut */
    size_t since;                        /* the first token that repeats, or in which the phrase begins */
    char phrase[BANNED_BYTES_MAX + 1];   /* "": a repetition */
};
/* All retakes of a text in the order in which they were made; those that others dropped, too. {0}: none. */
struct retakes { struct retake *v; size_t n; };

int  retakes_add(struct retakes *l, const struct retake *x, struct err *e);
void retakes_free(struct retakes *l);
/* The tokens that are forbidden at position `at`, in the order of the retakes, of a text that has at least so
 * many tokens. Returns their number. */
size_t retakes_forbidden(const struct retakes *l, size_t at, int32_t id[FORBIDDEN_MAX]);
/* What becomes of a text of n tokens in which the loop rule fires, the repetition having begun at `since`. */
enum retake_verdict { RETAKE_NOT, RETAKE_CUTS, RETAKE_ENDS };
struct retake_limits { size_t most, floor, min_tokens; };
/* *at: the length that the text is cut to, unless RETAKE_NOT. */
enum retake_verdict retake_of_loop(const struct retakes *l, size_t since, size_t n,
                                   const struct retake_limits *x, size_t *at);
/* The settled point of a text of n tokens that was settled up to `before`. l: its loop rule; NULL: the rule
 * takes nothing back. m: its phrases; m->phrases NULL: none. */
size_t retake_settled(const struct loop *l, const struct banned_match *m, size_t n, size_t before);
