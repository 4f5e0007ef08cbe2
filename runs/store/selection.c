/* Parsing the words that select jobs. Start at selection_parse. */
#include "runs/store/selection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/text/distinct.h"

static const char *const state_names[JOB_STATES] = { "queued", "running", "paused", "done", "failed",
    "cancelled" };

const char *job_state_name(enum job_state s)
{
    assert(s < JOB_STATES);
    return state_names[s];
}

int job_state_parse(enum job_state *s, const char *word, struct err *e)
{
    for (int i = 0; i < JOB_STATES; i++)
        if (strcmp(word, state_names[i]) == 0) {
            *s = (enum job_state)i;
            return 0;
        }
    return err_set(e, ERR_INPUT, "state \"%s\": allowed are queued, running, paused, done, failed, cancelled",
                   word);
}

int batch_name_check(const char *what, const char *name, struct err *e)
{
    size_t n = strlen(name);
    bool ok = n > 0 && n <= BATCH_NAME_BYTES_MAX && utf8_valid_prefix(name, n) == n;
    for (size_t i = 0; i < n && ok; i++)
        ok = (unsigned char)name[i] >= 0x20 && name[i] != 0x7f && name[i] != '/';
    return ok ? 0
              : err_set(e, ERR_INPUT,
                        "%s: a name of %zu bytes \"%.60s\"; 1 to %d bytes of UTF-8 without / and control "
                        "bytes are allowed",
                        what, n, name, BATCH_NAME_BYTES_MAX);
}

/* Read a job number and move *s past it; 0: none. */
static int64_t parse_number(const char **s)
{
    char *end;
    if (**s < '0' || **s > '9')
        return 0;
    errno = 0;
    long long v = strtoll(*s, &end, 10);
    *s = end;
    return errno || v < 1 ? 0 : v;
}

static int parse_word(struct selection_term *t, const char *word, struct err *e)
{
    const char *s = word;
    *t = (struct selection_term){ .word = word };
    if (*s == '@') {
        size_t n = strcspn(s + 1, "/");
        if (n > BATCH_NAME_BYTES_MAX)
            return err_set(e, ERR_INPUT, "%.80s...: a name of %zu bytes, at most %d are allowed", word, n,
                           BATCH_NAME_BYTES_MAX);
        memcpy(t->name, s + 1, n);
        if (batch_name_check(word, t->name, e))
            return -1;
        if (s[1 + n] == '/')
            t->custom_id = s + 2 + n;
        return 0;
    }
    t->first = t->last = parse_number(&s);
    if (t->first && *s == '-') {
        s++;
        t->last = parse_number(&s);
    }
    if (!t->first || !t->last || *s)
        return err_set(e, ERR_INPUT,
                       "\"%s\" is no selection of jobs; allowed are a number (7), a range (5-90), @NAME and "
                       "@NAME/custom_id",
                       word);
    if (t->last < t->first)
        return err_set(e, ERR_INPUT, "\"%s\": the range ends before it begins", word);
    return 0;
}

/* A share, from 0 to 1. */
static bool parse_share(double *x, const char *text)
{
    char *end;
    *x = strtod(text, &end);
    return end > text && !*end && *x >= 0 && *x <= 1;
}

/* --distinct-below N:X and --repeats-above X. */
static int parse_shares(struct selection *sel, const struct selection_words *w, struct err *e)
{
    const char *s = w->distinct_below;
    if (s && (*s < '1' || *s > '0' + DISTINCT_MAX || s[1] != ':' ||
              !parse_share(&sel->distinct_below, s + 2)))
        return err_set(e, ERR_INPUT,
                       "--distinct-below: '%s' is not N:X like 2:0.6, with N from 1 to %d and X from 0 to 1",
                       s, DISTINCT_MAX);
    sel->distinct = s ? (size_t)(*s - '0') : 0;
    sel->by_repeats = w->repeats_above;
    if (sel->by_repeats && !parse_share(&sel->repeats_above, w->repeats_above))
        return err_set(e, ERR_INPUT, "--repeats-above: '%s' is not a number from 0 to 1", w->repeats_above);
    return 0;
}

int selection_parse(struct selection *sel, const struct selection_words *w, struct err *e)
{
    static const char *const reasons[] = { "length", "stop", "repetition" };
    bool known = !w->finish;
    *sel = (struct selection){ .finish = w->finish, .loops = w->loops, .shorter = w->shorter,
                               .longer = w->longer, .no_requests = w->no_requests };
    if (w->all && w->n)
        return err_set(e, ERR_INPUT, "--all and \"%s\": only one of them is allowed", w->v[0]);
    const bool narrows = w->state || w->finish || w->loops || w->shorter || w->longer || w->distinct_below ||
                         w->repeats_above;
    if (!w->all && !w->n && !narrows)
        return err_set(
            e, ERR_INPUT,
            "which jobs? Give numbers (7, 5-90), names (@NAME, @NAME/custom_id), --state STATE or --all");
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons && !known; i++)
        known = strcmp(w->finish, reasons[i]) == 0;
    if (!known)
        return err_set(e, ERR_INPUT, "--finish \"%s\": allowed are length, stop, repetition", w->finish);
    if (w->state) {
        sel->by_state = true;
        if (job_state_parse(&sel->state, w->state, e))
            return -1;
    }
    if (parse_shares(sel, w, e))
        return -1;
    if (w->n && !(sel->v = calloc(w->n, sizeof *sel->v)))
        return err_set(e, ERR_FAILED, "out of memory for %zu selections", w->n);
    for (; sel->n < w->n; sel->n++)
        if (parse_word(&sel->v[sel->n], w->v[sel->n], e))
            return -1;
    return 0;
}

void selection_free(struct selection *sel)
{
    free(sel->v);
    *sel = (struct selection){0};
}
