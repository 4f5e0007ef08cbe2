/* The lines of a batch, and the bodies of a server: opens the models that they name, and turns each into a
 * request, whose samples become jobs. Start at batch_read_line. The fields of a line are read in
 * batch_line.c, the lines of a file in batch_file.c. */
#include "src/request/batch_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "src/base/input.h"
#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "src/base/sha256.h"
#include "src/model/find_model.h"
#include "src/request/model_options.h"
#include "src/request/output_check.h"
#include "src/request/request.h"
#include "src/text/emit.h"

enum { CHECKED_MAX = 1000, CHECKED_BYTES_MAX = 1 << 16, HEAVY_MAX = 4, HEAVY_BYTES = 1 << 20 };

/* ---- models ---- */

int batch_find_model(struct batch *b, struct batch_model **out, const char *name, const char *what,
                     struct err *e)
{
    struct batch_model *m = b->model;
    char dir[PATH_BYTES];
    if (!name || !*name)
        return err_set(e, ERR_INPUT, "body.model is missing, and so are --model and LONGHAND_MODEL");
    while (m < b->model + b->n_models && strcmp(m->name, name))
        m++;
    *out = m;
    if (m == b->model + b->n_models) {
        if (b->n_models == BATCH_MODELS_MAX)
            return err_set(e, ERR_INPUT, "%s: '%s' is model number %d of this file, at most %d are allowed",
                           what, name, BATCH_MODELS_MAX + 1, BATCH_MODELS_MAX);
        *m = (struct batch_model){ .name = strdup(name), .lock = PTHREAD_MUTEX_INITIALIZER };
        sem_init(&m->heavy, 0, HEAVY_MAX);
        if (!m->name)
            return batch_no_memory(e);
        b->n_models++;
        m->failed = find_model_dir(dir, name, what, &m->why) || output_check_model(b->o, dir, &m->why) ||
                    engine_of_options(&m->engine, b->o, dir, &m->why);
    }
    if (m->failed)
        *e = m->why;
    return m->failed ? -1 : 0;
}

/* Finds the chat template of a line: its own, the one of --chat-template, or the model's, which is opened
 * once. */
static const struct chat *find_template(struct batch_model *m, const struct batch_line *l, struct chat *own,
                                        struct err *e)
{
    const char *dir = m->engine.dir;
    if (l->template && chat_open(own, dir, l->template, CHAT_TEXT, e)) {
        err_while(e, "body.chat_template");
        return NULL;
    }
    if (l->template)
        return own;
    if (!m->chat_opened) {
        m->chat_opened = true;
        m->chat_failed = chat_open(&m->chat, dir, l->o.chat_template, CHAT_FILE, &m->chat_why) != 0;
    }
    if (m->chat_failed)
        *e = m->chat_why;
    return m->chat_failed ? NULL : &m->chat;
}

/* ---- prompts ---- */

/* A chat that goes on: its prompt after some answer, so that the template has seen it. */
static int read_next_turn(struct chat_prompt *p, const struct engine *g, struct err *e)
{
    const struct chat_turn answer = { "assistant", ".", 1 };
    char *own = p->json, *json = NULL;
    p->json = NULL;
    chat_prompt_free(p);
    const int rc = conversation_continue(&json, own, NULL, &answer, 1, e) ||
                   conversation_render(p, json, g->dir, g->tokenizer, e) ? -1 : 0;
    p->json = own;
    free(json);
    return rc;
}

/* The prompt of a chat. The options of the line become those that hold for it. */
static int read_chat(struct batch_model *m, struct batch_line *l, struct request *r, struct err *e)
{
    struct chat own = {0};
    struct chat_prompt p = {0};
    if (l->thinking != CHAT_THINKING_OWN)
        l->o.thinking = l->thinking;
    if (chat_input_of(&l->in, &l->o, e))
        return -1;
    const bool heavy = l->template || l->in.messages.end - l->in.messages.s > HEAVY_BYTES;
    while (heavy && sem_wait(&m->heavy))
        ;                                /* a signal */
    const struct chat *c = find_template(m, l, &own, e);
    int rc = c ? 0 : -1;
    if (rc == 0) {
        rc = chat_prompt_make(&p, c, m->engine.tokenizer, &l->in, l->served ? NULL : &m->chat_notes, e) ||
             conversation_put(&p.json, &l->in, l->template ? l->template : l->o.chat_template,
                              l->template ? CHAT_TEXT : CHAT_FILE, e) ||
             (l->job.chapter.after_id && l->job.chapter.carry > 0 &&
              read_next_turn(&p, &m->engine, e)) ? -1 : 0;
        rc = rc ? err_while(e, "body.messages") : chat_check_places(c, &l->in, e);
    }
    chat_close(&own);
    if (heavy)
        sem_post(&m->heavy);
    request_take_chat(r, &p);
    if (l->kwargs)
        l->o.chat_kwargs = l->kwargs;
    return rc;
}

static int read_prompt(struct batch_model *m, struct batch_line *l, struct request *r, struct err *e)
{
    const struct tokenizer *t = m->engine.tokenizer;
    struct job_spec *j = &r->job;
    const char *text = "";
    size_t n = 0;
    int rc = 0;
    /* a chapter that carries all before it begins as that does */
    const bool specials = !l->no_specials && (l->prompt.s || l->job.chapter.carry >= 0);
    if (l->prompt.s)
        rc = batch_line_prompt(l, m->engine.config.vocab, &j->prompt_ids, &j->prompt_tokens, &text, &n, e);
    if (rc)
        return rc < 0 ? -1 : tokenizer_decode(t, &j->prompt, &j->prompt_bytes, j->prompt_ids,
                                              j->prompt_tokens, true, e);
    if (!(j->prompt = malloc(n + 1)))
        return batch_no_memory(e);
    memcpy(j->prompt, text, n);
    j->prompt[n] = 0;
    j->prompt_bytes = n;
    if (request_encode(r, t, specials, e))
        return -1;
    if (!l->served && begins_with_bos_twice(&m->engine, j->prompt_ids, j->prompt_tokens))
        m->bos_twice++;                  /* not for a body: threads share the model of a front */
    return 0;
}

uint64_t batch_line_seed(uint64_t seed, const char *custom_id)
{
    uint8_t bytes[SHA256_BYTES];
    struct sha256 h;
    uint64_t out = 0;
    for (size_t i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(seed >> 8 * i);
    sha256_start(&h);
    sha256_add(&h, bytes, 8);
    sha256_add(&h, custom_id, strlen(custom_id));
    sha256_end(&h, bytes);
    for (size_t i = 0; i < 8; i++)
        out |= (uint64_t)bytes[i] << 8 * i;
    return out;
}

/* ---- lines ---- */

/* The request of a line that names a built-in template of an older version. A job that exists stays as it is;
 * a new one is refused. */
static int refuse_later(struct request *r, const char *dir, const char *template, struct err *e)
{
    struct chat c;
    struct err why = {0};
    chat_open(&c, dir, template, CHAT_TEXT, &why);
    r->job.wanted = r->o->tokens;
    r->sampling.seed = r->o->seed;
    r->job.prompt = strdup("");
    r->job.parameters = strdup("{}");
    r->job.refusal = strdup(err_text(&why));
    return r->job.prompt && r->job.parameters && r->job.refusal ? 0 : batch_no_memory(e);
}

/* A copy of a text that lives only as long as its line. */
static bool keep_text(const char **text) { return !*text || (*text = strdup(*text)); }

/* Adds a job to those of the batch. NULL: no memory. */
static struct job_spec *add_spec(struct batch *b, struct job_spec j)
{
    if (!array_grow(&b->spec, b->n, sizeof j))
        return NULL;
    b->spec[b->n] = j;
    return &b->spec[b->n++];
}

/* Adds the samples of a request to the jobs of the batch. The first one owns their texts (job_spec_free). */
static int add_request(struct batch *b, const struct batch_line *l, struct request *r,
                       const struct batch_model *m, size_t line, struct err *e)
{
    struct job_spec *j = add_spec(b, request_job(r, &m->engine, 0));
    char *identity = NULL;
    if (!j)
        return batch_no_memory(e);
    r->job = (struct job_spec){0};
    j->custom_id = b->is_body ? NULL : l->job.custom_id;
    j->alone = b->is_body;
    j->line = line;
    j->metadata = l->job.metadata;
    j->seed_drawn = l->o.seed_drawn || b->o->seed_drawn;
    j->priority = (int)b->o->priority;
    const bool kept = keep_text(&j->custom_id) & keep_text(&j->metadata) & keep_text(&j->chapter.after_id) &
                      keep_text(&j->chapter.append);
    if (!kept)
        return batch_no_memory(e);
    if (batch_line_identity(l, &identity, &j->identity_bytes, e))
        return -1;
    j->identity = identity;
    for (size_t i = 1; i < l->o.samples && j; i++)
        if ((j = add_spec(b, *j)))
            j->sample = (uint32_t)i;
    return j ? 0 : batch_no_memory(e);
}

static void free_checked(struct batch_model *m)
{
    struct checked *c, *next;
    HASH_ITER(hh, m->checked, c, next) {
        HASH_DEL(m->checked, c);
        free(c);
    }
}

/* request_check, once for all lines with the same parameters. */
static int check_once(struct batch_model *m, struct request *r, struct err *e)
{
    struct checked *c;
    const size_t n = strlen(r->job.parameters), n_prompt = r->job.prompt_tokens + r->n_carried;
    pthread_mutex_lock(&m->lock);
    HASH_FIND(hh, m->checked, r->job.parameters, n, c);
    const size_t n_max = c ? c->n_max : 0, fits = c ? c->fits : 0;
    pthread_mutex_unlock(&m->lock);
    if (!r->o->tokens && fits > n_prompt + r->n_given) {
        r->less = fits < n_prompt + r->job.wanted;
        r->job.wanted = MIN(r->job.wanted, fits - n_prompt);
        return 0;
    }
    if (r->o->tokens && n_prompt + r->job.wanted <= n_max)
        return 0;
    if (request_check(r, &m->engine, e))
        return -1;
    pthread_mutex_lock(&m->lock);
    if (HASH_COUNT(m->checked) > CHECKED_MAX)            /* bodies come from outside */
        free_checked(m);
    HASH_FIND(hh, m->checked, r->job.parameters, n, c);
    if (!c && n <= CHECKED_BYTES_MAX && (c = calloc(1, sizeof *c + n + 1))) {
        memcpy(c->parameters, r->job.parameters, n + 1);
        HASH_ADD(hh, m->checked, parameters[0], n, c);
    }
    if (c) {
        c->n_max = MAX(c->n_max, n_prompt + r->job.wanted);
        c->fits = r->o->tokens ? c->fits : n_prompt + r->job.wanted;
    }
    pthread_mutex_unlock(&m->lock);
    return 0;
}

/* c: NULL if the line is no chapter. */
static int describe_request(struct batch *b, struct batch_line *l, struct request *r, struct batch_model **m,
                            const struct batch_chapter *c, struct err *e)
{
    char seed[24];
    const char *what, *name = model_of_options(b->o, &what);
    if (b->o->served && l->job.model && strcmp(l->job.model, b->o->served))
        return err_set(e, ERR_INPUT, "body.model: this server has no such model; it has %s", b->o->served);
    if (!b->o->model && !b->o->served && l->job.model)
        name = l->job.model, what = "body.model";
    if (batch_find_model(b, m, name, what, e))
        return -1;
    if (!l->seeded) {
        snprintf(seed, sizeof seed, "%" PRIu64, batch_line_seed(b->seed, l->job.custom_id));
        if (options_assign(&l->o, "seed", "seed", seed, e))
            return -1;
    }
    r->o = &l->o;
    const char *template = l->template ? l->template : l->o.chat_template;
    if (l->chat && template && chat_name_is_gone(template))
        return refuse_later(r, (*m)->engine.dir, template, e);
    if (l->chat ? read_chat(*m, l, r, e) : read_prompt(*m, l, r, e))
        return -1;
    if (c) {
        struct request_after after = { l->job.chapter, c->before };
        after.chapter.after = c->job;
        after.chapter.after_id = c->after;
        after.chapter.prompted = l->prompt.s || (l->chat && after.chapter.carry >= 0);
        l->o.tokens = l->o.tokens ? l->o.tokens : c->before.sampled;
        if (request_continues(r, &after, l->chat, (*m)->engine.tokenizer, e))
            return -1;
    }
    if (r->job.prompt_tokens + r->n_carried == 0)
        return err_set(e, ERR_INPUT, "body.prompt is empty and this model's tokenizer puts no token before a "
                       "text; at least one token is needed");
    const struct text_list *banned = &l->o.job.banned, *stop = &l->o.job.stop;
    return stop_check("body.stop", stop->v, stop->n, e) ||
           banned_check("body.banned_strings", banned->v, banned->n, e) ||
           request_describe(r, &(*m)->engine, e) || check_once(*m, r, e) ? -1 : 0;
}

/* --lines: a line of text as a line of JSON; free(*json). */
static int line_as_json(char **json, size_t *n_json, const char *where, const char *text, size_t n,
                        struct err *e)
{
    n -= n && text[n - 1] == '\r';
    if (text_check_utf8(where, text, n, e) || text_check_nul(where, text, n, e))
        return -1;
    FILE *f = memory_file(json, n_json);
    if (!f)
        return batch_no_memory(e);
    struct json_writer w = { .f = f };
    jw_open(&w, NULL, '{');
    jw_bytes(&w, "prompt", text, n);
    jw_close(&w, '}');
    return stream_end(f) ? batch_no_memory(e) : 0;
}

/* Makes the request of a line, and adds it to the jobs if it is of this shard. */
static int read_request(struct batch *b, struct batch_line *l, struct batch_seen *seen, struct err *e)
{
    struct batch_model *m;
    struct request r = {0};
    int rc = describe_request(b, l, &r, &m, seen->chapter, e);
    if (rc == 0) {
        if (!b->is_body && !m->unfiltered)
            m->unfiltered = request_notice_unfiltered(&r, &m->engine);
        b->notes.no_length += !l->o.tokens;
        b->notes.less += !l->o.tokens && r.less;
        seen->samples = l->o.samples;
        seen->lengths = (struct job_lengths){ r.job.prompt_tokens + r.n_carried, r.job.wanted, l->o.tokens };
        rc = seen->mine ? add_request(b, l, &r, m, seen->line, e) : 0;
    }
    request_close(&r);
    return rc;
}

struct batch_seen *batch_find(const struct batch *b, const char *custom_id)
{
    struct batch_seen *s;
    HASH_FIND(hh, b->seen, custom_id, strlen(custom_id), s);
    return s;
}

/* ERR_INPUT if another line has the custom_id. */
static int add_seen(struct batch *b, struct batch_seen **out, const char *custom_id, size_t line,
                    struct err *e)
{
    struct batch_seen *s = batch_find(b, custom_id);
    size_t n = strlen(custom_id);
    if (s)
        return err_set(e, ERR_INPUT, "custom_id: \"%s\" is also in %s %zu; each %s needs its own",
                       custom_id, b->row, s->line, b->row);
    s = calloc(1, sizeof *s + n + 1);
    if (!s)
        return batch_no_memory(e);
    *out = s;
    s->line = line;
    s->mine = (line - 1 - (b->separator != 0)) % b->shards + 1 == b->shard;  /* row 1 of a table has names */
    memcpy(s->custom_id, custom_id, n + 1);
    HASH_ADD(hh, b->seen, custom_id[0], n, s);
    return 0;
}

/* Puts a chapter aside. */
static int defer(const struct batch *b, struct batch_seen *seen, const char *after, const char *text,
                 size_t n, struct err *e)
{
    const size_t n_name = strlen(b->name);
    struct batch_chapter *c;
    if (*after == '@' && strncmp(after + 1, b->name, n_name) == 0 && after[1 + n_name] == '/')
        after += n_name + 2;             /* the batch itself */
    if (strcmp(after, seen->custom_id) == 0)
        return err_set(e, ERR_INPUT, "after: \"%s\" is this %s itself", after, b->row);
    if (!(seen->chapter = c = calloc(1, sizeof *c + n + strlen(after) + 2)))
        return batch_no_memory(e);
    memcpy(c->text, text, n);
    c->n = n;
    c->after = strcpy(c->text + n + 1, after);
    return 0;
}

int batch_read_line(struct batch *b, size_t line, const char *text, size_t n, struct batch_seen *seen,
                    struct err *e)
{
    char where[PATH_BYTES], number[24], *json = NULL;
    struct batch_line l = {0};
    const bool chapter = seen != NULL;
    struct batch_notes again = {0};              /* a chapter is read twice and counted once */
    snprintf(where, sizeof where, "%s: %s %zu", b->file, b->row, line);
    int rc = b->o->lines ? line_as_json(&json, &n, where, text, n, e) : 0;
    if (rc == 0)
        rc = batch_line_read(&l, b->o, where, json ? json : text, n, chapter ? &again : &b->notes, e);
    snprintf(number, sizeof number, "%zu", line);
    if (rc == 0 && !l.job.custom_id)
        l.job.custom_id = number;
    const bool read = rc == 0;
    if (read && !chapter)
        rc = add_seen(b, &seen, l.job.custom_id, line, e);
    if (rc == 0)
        rc = l.job.chapter.after_id && !chapter ? defer(b, seen, l.job.chapter.after_id, text, n, e)
                                                : read_request(b, &l, seen, e);
    /* messages of batch_line_read begin with the line already */
    if (read && rc && strncmp(e->msg, where, strlen(where)))
        err_while(e, "%s", where);
    batch_line_close(&l);
    free(json);
    return rc;
}

/* ---- requests of a server ---- */

int batch_open_front(struct batch *b, const struct options *o, struct err *e)
{
    const char *what, *name = model_of_options(o, &what);
    struct batch_model *m;
    const struct batch_line line = { .o = *o };
    struct err ignored;                  /* requests with messages have it */
    *b = (struct batch){ .o = o };
    if (!(b->model = calloc(BATCH_MODELS_MAX, sizeof *b->model)))
        return batch_no_memory(e);
    if (batch_find_model(b, &m, name, what, e))
        return -1;
    find_template(m, &line, NULL, &ignored);
    return 0;
}

const struct engine *batch_front_engine(const struct batch *front) { return &front->model->engine; }

int batch_open_body(struct batch *b, const struct batch *front, const struct options *o, bool chat,
                    const char *text, size_t n, struct err *e)
{
    struct batch_line l = {0};
    struct batch_seen seen = { .mine = true };
    *b = (struct batch){ .o = o, .seed = o->seed, .model = front->model, .n_models = 1, .is_body = true };
    const bool given = options_given(o, "seed") && !o->seed_drawn;
    if (!given && getrandom(&b->seed, sizeof b->seed, 0) != sizeof b->seed)
        return err_set(e, ERR_FAILED, "cannot draw a seed: %s", strerror(errno));
    int rc = batch_line_read_body(&l, b->o, chat, BATCH_BODY, text, n, &b->notes, e);
    l.job.custom_id = "request";
    rc = rc || read_request(b, &l, &seen, e) ? -1 : 0;
    batch_line_close(&l);
    return rc;
}

void batch_close(struct batch *b)
{
    struct batch_seen *s, *next;
    HASH_ITER(hh, b->seen, s, next) {
        HASH_DEL(b->seen, s);
        free(s->chapter);
        free(s);
    }
    for (size_t i = 0; i < b->n; i++)
        if (b->spec[i].sample == 0)
            job_spec_free(&b->spec[i]);
    for (size_t i = 0; i < b->n_models && !b->is_body; i++) {
        free_checked(&b->model[i]);
        chat_close(&b->model[i].chat);
        engine_close(&b->model[i].engine);
        free(b->model[i].name);
    }
    free(b->spec);
    free(b->ids);
    free(b->is_body ? NULL : b->model);
    *b = (struct batch){0};
}
