/* Reads the stored parameters of a job and binds them to its model. Start at job_parse; the members
 * are rows of the options' table, and kinds.c reads their values. */
#include "src/request/job_params.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/input.h"
#include "src/base/unicode.h"
#include "src/decode/verify_published.h"
#include "src/decode/weights.h"
#include "src/request/kinds.h"
#include "src/request/sampling_options.h"

/* ---- the members ---- */

#define KEPT_NAME(name, ...) #name,
static const char *const kept_names[] = { KEPT_FIELDS(KEPT_NAME) NULL };
static struct member members[2][MEMBERS_MAX];
static size_t n_members[2];

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct member *)a)->name, ((const struct member *)b)->name);
}

static void list_members(void)
{
    for (const struct option *opt = options_table; opt->name; opt++)
        if (opt->flags & STORED) {
            const bool drafting = opt->flags & DRAFT;
            struct member *m = &members[drafting][n_members[drafting]++];
            *m = (struct member){ .kind = opt->kind, .opt = opt,
                                  .at = opt->field - offsetof(struct options, job),
                                  .when_set = opt->flags & WHEN_SET,
                                  .may_lack = opt->flags & (LATER | WHEN_SET) };
            option_member(m->name, opt);
        }
    for (size_t i = 0; i < DRAFTER_ADDED; i++)
        if (drafters[i]->option != OPTION_NONE) {
            struct member *m = &members[true][n_members[true]++];
            *m = (struct member){ .kind = TEXT, .at = offsetof(struct job_params, file) + i * sizeof(char *),
                                  .when_set = i != DRAFTER_HEADS, .may_lack = i != DRAFTER_HEADS };
            snprintf(m->name, sizeof m->name, "%s_file", drafter_name(i));
        }
    for (size_t i = 0; kept_names[i]; i++) {
        struct member *m = &members[false][n_members[false]++];
        *m = (struct member){ .kind = TEXT, .at = offsetof(struct job_params, kept) + i * sizeof(char *),
                              .when_set = true, .may_lack = true };
        snprintf(m->name, sizeof m->name, "%s", kept_names[i]);
    }
    for (int i = 0; i < 2; i++) {
        assert(n_members[i] <= MEMBERS_MAX);
        qsort(members[i], n_members[i], sizeof **members, by_name);
    }
}

const struct member *job_members(bool drafting, size_t *n)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, list_members);
    *n = n_members[drafting];
    return members[drafting];
}

/* ---- reading ---- */

static void read_object(struct reader *r, const struct json *object, bool drafting);

static void read_member(struct reader *r, const struct member *m, const struct json *v)
{
    double number;
    r->m = m;
    if (m->opt && (m->opt->flags & DECIDES) && js_double(v, &number) && !option_in_range(m->opt, number)) {
        char range[96];
        reader_bad(r, option_range(range, m->opt));
    } else if (m->kind != DRAFTING_FORM) {
        kinds[m->kind].read(r, v, (char *)r->p + m->at);
    } else if (js_kind(v) == JS_OBJECT) {
        read_object(r, v, true);
    } else {
        reader_bad(r, "an object");
    }
}

/* Reads the members in any order; those of the canonical text come in the order of the table. A member that
 * is missing is an error, unless older versions wrote none and did what its default says. */
static void read_object(struct reader *r, const struct json *object, bool drafting)
{
    struct json key, v;
    size_t n, next = 0;
    const struct member *m = job_members(drafting, &n);
    bool seen[MEMBERS_MAX] = { false };
    for (struct js_walk w = js_walk(object); !r->failed && js_next(&w, &key, &v);) {
        size_t i = next, tried = 0;
        for (; tried < n && !js_is(&key, m[i].name); tried++)
            i = (i + 1) % n;
        if (tried == n || seen[i]) {
            const size_t shown = utf8_valid_prefix(key.s, MIN((size_t)(key.end - key.s), (size_t)40));
            r->failed = true;
            err_set(r->e, ERR_INPUT, "parameters: member \"%.*s\" is %s", (int)shown, key.s,
                    tried == n ? "unknown; a newer version of longhand made it" : "given twice");
            return;
        }
        seen[i] = true;
        next = (i + 1) % n;
        read_member(r, &m[i], &v);
    }
    for (size_t i = 0; i < n && !r->failed; i++)
        if (!seen[i] && !m[i].may_lack) {
            r->failed = true;
            err_set(r->e, ERR_INPUT, "parameters: \"%s\" is missing", m[i].name);
        }
}

int job_parse(struct job_params *p, const char *text, struct err *e)
{
    struct json root;
    struct err why;
    const size_t n = strlen(text);
    *p = (struct job_params){ .kv_dtype = -1, .logprobs = -1 };
    if (js_check(&root, "parameters", text, n, &why) || js_kind(&root) != JS_OBJECT)
        return err_set(e, ERR_INPUT, "parameters: no JSON object");
    /* enough, because a decoded string and its NUL are shorter than the string with its quotes */
    if (!(p->strings = malloc(n + 1)))
        return err_set(e, ERR_FAILED, "out of memory for the parameters");
    sampling_defaults(&p->sampling);
    draft_defaults(&p->draft);
    char *room = p->strings;
    struct reader r = { .p = p, .room = &room, .e = e };
    read_object(&r, &root, false);
    if (p->kv_dtype < 0)                 /* older versions had bf16 alone */
        p->kv_dtype = p->compute == COMPUTE_F32 ? KV_DTYPE_AUTO : KV_DTYPE_BF16;
    if (p->draft.draft_passes == 0)
        p->draft.drafters &= ~(1u << DRAFTER_PARTIAL);
    if (r.failed || (p->draft.drafters && draft_check(&p->draft, e))) {
        job_close(p);
        return -1;
    }
    return 0;
}

void job_close(struct job_params *p)
{
    sampling_free(&p->sampling);
    free(p->stop.v);
    free(p->breakers.v);
    free(p->banned.v);
    free(p->strings);
    *p = (struct job_params){0};
}

void job_bind_drafters(struct job_params *p, const struct config *c, const char *model_dir)
{
    for (size_t i = 0; p->drafter_auto && i < N_DRAFTERS; i++)
        p->draft.drafters |= weights_of_auto((unsigned)weights_present((enum drafter)i, model_dir) << i,
                                             p->draft.n_width > 0);
    if (p->drafter_auto)
        p->draft.drafters &= draft_of_config(c);
}

/* Adds the ids that are not there, and returns their number. */
static size_t add_ends(struct text_ends *x, const int32_t *ids, size_t n)
{
    const size_t there = x->n_eos + x->n_stop;
    size_t at = there;
    for (size_t i = 0; i < n; i++) {
        size_t k = 0;
        while (k < at && x->id[k] != ids[i])
            k++;
        x->id[k] = ids[i];
        at = MAX(at, k + 1);
    }
    return at - there;
}

void job_ends(struct text_ends *x, const struct job_params *p, const struct config *c)
{
    *x = (struct text_ends){0};
    x->n_eos = add_ends(x, c->eos, c->n_eos);
    x->n_eos += add_ends(x, p->eos_ids.v, p->eos_ids.n);
    x->n_stop = add_ends(x, p->stop_ids.v, p->stop_ids.n);
}

static int bind_mark(struct mark *m, const char *text, const struct tokenizer *t, struct err *e)
{
    int32_t *ids = NULL;
    size_t n = 0;
    m->n = 0;
    if (!text)
        return 0;
    int rc = text_check_utf8("--thinking-end", text, strlen(text), e) ||
             tokenizer_encode(t, &ids, &n, text, strlen(text), false, e) ? -1 : 0;
    if (rc == 0 && (n == 0 || n > MARK_MAX))
        rc = err_set(e, ERR_INPUT, "--thinking-end: a mark of %zu tokens, allowed are 1 to %d", n, MARK_MAX);
    if (rc == 0) {
        memcpy(m->ids, ids, n * sizeof *ids);
        m->n = (uint32_t)n;
    }
    free(ids);
    return rc;
}

int job_bind(struct job_params *p, const struct config *c, const struct tokenizer *t, const char *model_dir,
             const struct job_binding *b, struct err *e)
{
    struct sampling *s = &p->sampling;
    s->seed = b->seed;
    s->sample = b->sample;
    s->text_max = b->text_max;
    job_ends(&p->ends, p, c);
    s->eos = p->ends.id;
    s->n_eos = p->ends.n_eos;
    s->n_stop = p->ends.n_stop;
    job_bind_drafters(p, c, model_dir);
    if (s->dry_multiplier != 0 && sampling_breakers(s, &p->breakers, t, e))
        return -1;
    if (s->thought_budget >= 0 &&
        (bind_mark(&s->thought_start, p->thinking_start, t, e) ||
         bind_mark(&s->thought_end, p->thinking_end, t, e)))
        return -1;
    if (params_retake_option(p) && verify_published(&p->draft))
        return err_set(e, ERR_INPUT, "%s: --verifier paper cannot take a text back", params_retake_option(p));
    return sampling_check(s, c->vocab, e);
}
