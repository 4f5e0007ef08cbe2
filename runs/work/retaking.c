/* Retakes of a task: what the loop rule decides, the cut, and the output that waits until tokens are settled.
 * Start at retaking_rule and retaking_cut. */
#include "runs/work/task.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int retaking_check(const struct job_params *p, const struct engine *g, struct err *e)
{
    return params_retake_option(p) && !g->dev->host_memory
               ? err_set(e, ERR_INPUT, "%s: not supported on this device; --device cpu supports it",
                         params_retake_option(p))
               : 0;
}

/* A text is not cut before given and shared tokens, nor before a part with other parameters or another
 * model. */
static int read_floor(const struct task *t, size_t *floor, struct err *e)
{
    struct part_list parts;              /* store_begin may have added one, for another model */
    *floor = t->parts.v[t->parts.n - 1].start;
    for (size_t i = 0; i < t->replay.spans.n; i++)
        *floor = MAX(*floor, t->replay.spans.v[i].start + t->replay.spans.v[i].n);
    if (store_parts(t->w->store, t->claim.job, &parts, e))
        return -1;
    for (size_t i = 0; i < parts.n; i++)
        if (parts.v[i].fingerprint)
            *floor = MAX(*floor, parts.v[i].start);
    part_list_free(&parts);
    return 0;
}

/* Prepares the phrases of the last part, and finds the first part that has the same ones up to the last. */
static int open_phrases(struct task *t, struct err *e)
{
    struct retaking *r = t->retaking;
    const struct text_list *l = &t->params->banned;
    size_t part = t->parts.n - 1;
    if (!l->n)
        return 0;
    for (bool same = true; same && part > 0; part -= same) {
        const struct text_list *before = &t->parts.v[part - 1].params.banned;
        same = before->n == l->n;
        for (size_t i = 0; i < l->n && same; i++)
            same = strcmp(before->v[i], l->v[i]) == 0;
    }
    r->banned_from = t->parts.v[part].start;
    r->bytes = malloc(decode_stream_max(t->w->engine.tokenizer));
    if (!r->bytes)
        return err_set(e, ERR_FAILED, "out of memory");
    if (banned_check("banned_strings", l->v, l->n, e) || banned_open(&r->banned, l->v, l->n, e))
        return -1;
    r->match.phrases = r->banned;
    return 0;
}

int retaking_open(struct task *t, struct err *e)
{
    struct retaking *r = t->retaking = calloc(1, sizeof *r);
    const int most = t->params->on_loop >> CHOICE_BITS;
    if (!r)
        return err_set(e, ERR_FAILED, "out of memory");
    if (store_retakes(t->w->store, t->claim.job, &r->list, &r->settled, e) || read_floor(t, &r->floor, e))
        return -1;
    r->settled = r->settled_before = MIN(r->settled, t->claim.end.tokens);
    r->limits = (struct retake_limits){ .most = most ? (size_t)most : RETAKES,
                                        .min_tokens = t->params->sampling.min_tokens };
    r->shows = t->out && (t->out->text || t->out->id) && !t->out->at_once;
    return (r->shows && task_open_replay(t, &r->shown, e)) || open_phrases(t, e) ? -1 : 0;
}

void retaking_close(struct task *t)
{
    struct retaking *r = t->retaking;
    if (!r)
        return;
    if (r->shown.rules)
        replay_close(&r->shown);
    retakes_free(&r->list);
    banned_close(r->banned);
    free(r->bytes);
    free(r);
    t->retaking = NULL;
}

/* Rows before the last settled token's are final. */
static void lend(struct task *t) { t->lent = MAX(t->decoder.n_prompt + t->retaking->settled, (size_t)2) - 1; }

static void forbid(struct task *t, size_t at)
{
    int32_t id[FORBIDDEN_MAX];
    const size_t n = retakes_forbidden(&t->retaking->list, at, id);
    decode_cut(&t->decoder, t->decoder.n_prompt + at, id, n);
}

int retaking_begin(struct task *t)
{
    if (!t->retaking)
        return 0;
    lend(t);
    t->snapshots.image.most = &t->lent;
    if (t->decoder.kv.state)
        t->decoder.kv.state->final = &t->lent;
    forbid(t, t->claim.end.tokens);
    return retaking_show(t, &t->result.why) ? task_ends(t, WORK_OUTPUT_FAILED, &t->result.why) : 0;
}

bool retaking_token(struct task *t, int32_t id, bool given, bool new_text)
{
    struct retaking *r = t->retaking;
    const size_t n = t->replay.emit.n;
    size_t begin;
    if (!r || !r->banned || n <= r->banned_from)
        return false;
    if (given) {
        r->match = (struct banned_match){ .phrases = r->banned };
        return false;
    }
    const char *phrase = banned_add(&r->match, n - 1, r->bytes,
                                    token_bytes(t->w->engine.tokenizer, id, r->bytes), &begin);
    if (!phrase || !new_text)
        return false;
    const size_t at = MAX(begin, MAX(r->floor, r->settled));
    r->verdict = RETAKE_CUTS;
    r->next = (struct retake){ at, t->decoder.tokens[t->decoder.n_prompt + at], n, begin };
    snprintf(r->next.phrase, sizeof r->next.phrase, "%s", phrase);
    return true;
}

bool retaking_rule(struct task *t, const struct repetition *p)
{
    struct retaking *r = t->retaking;
    const size_t n = t->replay.emit.n;
    size_t at;
    if (!r || params_on_loop(t->params) != ON_LOOP_RETAKE)
        return false;
    retaking_settle(t);
    r->limits.floor = MAX(r->floor, r->settled);
    r->verdict = retake_of_loop(&r->list, p->start, n, &r->limits, &at);
    if (r->verdict != RETAKE_NOT)
        r->next = (struct retake){ at, t->decoder.tokens[t->decoder.n_prompt + at], n, p->start };
    return r->verdict != RETAKE_NOT;
}

void retaking_settle(struct task *t)
{
    struct retaking *r = t->retaking;
    if (!r)
        return;
    r->settled = retake_settled(params_on_loop(t->params) == ON_LOOP_RETAKE ? t->replay.emit.loop : NULL,
                                &r->match, t->replay.emit.n, r->settled);
    checkpoint_settled(t->checkpoint, r->settled);
    lend(t);
}

/* Makes the emission that of the first `at` tokens. */
static int emit_again(struct task *t, size_t at, struct err *e)
{
    const int32_t *text = t->decoder.tokens + t->decoder.n_prompt;
    struct retaking *r = t->retaking;
    const char *bytes;
    size_t n;
    replay_close(&t->replay);
    if (task_open_replay(t, &t->replay, e))
        return -1;
    r->match = (struct banned_match){ .phrases = r->banned };
    while (t->replay.at < at) {
        const int32_t id = text[t->replay.at];
        retaking_token(t, id, replay_token(&t->replay, id, &bytes, &n), false);
    }
    if (r->verdict == RETAKE_ENDS)
        replay_end(&t->replay, FINISH_REPETITION, &bytes, &n);
    return 0;
}

int retaking_cut(struct task *t, struct err *e)
{
    struct retaking *r = t->retaking;
    int32_t id[FORBIDDEN_MAX];
    if (!r || r->verdict == RETAKE_NOT)
        return 0;
    const struct retake *x = &r->next;
    r->ends = r->verdict == RETAKE_ENDS;
    const size_t n = r->ends ? 0 : retakes_forbidden(&r->list, x->at, id);
    bool again = false;
    for (size_t i = 0; i < n; i++)
        again |= id[i] == x->token;
    if (again)
        err_set(e, ERR_FAILED, "token %zu is %" PRId32 " again, which is forbidden there: the model did not "
                "choose it", x->at, x->token);
    else if (n == FORBIDDEN_MAX)
        err_set(e, ERR_FAILED, "%d tokens are forbidden at token %zu, the next one would be %" PRId32,
                FORBIDDEN_MAX, x->at, x->token);
    if (again || n == FORBIDDEN_MAX)
        return *x->phrase ? err_while(e, "the banned phrase '%s' cannot be avoided", x->phrase) : TASK_FAILED;
    const int rc = r->ends ? 0 : checkpoint_retake(t->checkpoint, x, e);
    if (rc)
        return rc < 0 ? TASK_STORE_FAILED : rc;
    if (retakes_add(&r->list, x, e) || emit_again(t, x->at, e))
        return TASK_FAILED;
    forbid(t, x->at);
    r->verdict = RETAKE_NOT;
    if (t->out && t->out->at_once && t->out->retake)
        t->out->retake(t->out->ctx, x);
    return 0;
}

int retaking_show(struct task *t, struct err *e)
{
    struct retaking *r = t->retaking;
    const struct emit *m = &t->replay.emit;
    const bool over = m->finish != FINISH_NONE;
    const char *bytes;
    size_t n;
    if (!r || !r->shows)
        return 0;
    const struct work_output *out = t->out;
    while (r->shown.at < (over ? m->n : r->settled)) {
        const size_t at = r->shown.at;
        const int32_t id = t->decoder.tokens[t->decoder.n_prompt + at];
        const bool new_text = at >= r->settled_before;
        replay_token(&r->shown, id, &bytes, &n);
        if ((out->text && n && out->text(out->ctx, bytes, n, new_text, e)) ||
            (out->id && out->id(out->ctx, id, new_text, e)))
            return -1;
    }
    if (!over || r->shown.emit.finish != FINISH_NONE)
        return 0;
    replay_end(&r->shown, m->finish, &bytes, &n);
    return out->text && n ? out->text(out->ctx, bytes, n, true, e) : 0;
}
