/* Requests: prompt and ids from the command line, the checks, and the jobs in the store. Start at
 * request_open. */
#include "src/request/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/input.h"
#include "src/model/model_files.h"
#include "src/request/model_options.h"
#include "src/request/sampling_options.h"
#include "src/sample/chain.h"
#include "src/text/banned.h"
#include "src/text/emit.h"

int request_check_options_texts(const struct options *o, struct err *e)
{
    for (size_t i = 0; i < o->job.stop.n && !o->escape; i++)
        if (strchr(o->job.stop.v[i], '\\')) {
            request_notice(o, "--stop: a backslash stands for itself; -e makes \\n a newline");
            break;
        }
    return stop_check("--stop", o->job.stop.v, o->job.stop.n, e) ||
           banned_check("--ban-phrase", o->job.banned.v, o->job.banned.n, e) ? -1 : 0;
}

static int check_options(const struct options *o, struct err *e)
{
    const char *verb = o->verb->name;
    if (o->shard || o->lines || o->keep)
        return err_set(e, ERR_INPUT, "%s: --%s needs --batch", verb,
                       o->shard ? "shard" : o->lines ? "lines" : "keep");
    if (o->name && batch_name_check("--name", o->name, e))
        return -1;
    if (o->replace && !o->name)
        return err_set(e, ERR_INPUT, "--replace needs --name");
    if (o->messages && (o->prompt || o->prompt_file || o->system))
        return err_set(e, ERR_INPUT, "%s: --messages and --%s: only one of them is allowed", verb,
                       o->prompt ? "prompt" : o->prompt_file ? "prompt-file" : "system");
    if (!o->messages && !o->prompt == !o->prompt_file && !(o->after && !o->prompt))
        return err_set(e, ERR_INPUT, "%s: %s", verb,
                       o->prompt ? "--prompt and --prompt-file: only one of them is allowed"
                                 : "--prompt TEXT or --prompt-file FILE is missing");
    return request_check_options_texts(o, e);
}

void request_take_chat(struct request *r, struct chat_prompt *p)
{
    free(r->job.prompt);
    free(p->text);
    r->job.prompt = p->user;
    r->job.prompt_bytes = p->n_user;
    r->job.prompt_ids = p->ids;
    r->job.prompt_tokens = p->n_ids;
    r->chat = p->facts;
    r->job.chat = p->json;
}

/* Puts the prompt through the chat template. */
static int read_chat(struct request *r, const struct engine *g, struct err *e)
{
    struct chat_prompt p;
    if (conversation_open(&p, g->dir, g->tokenizer, r->o, r->job.prompt, r->job.prompt_bytes, e))
        return -1;
    request_take_chat(r, &p);
    return 0;
}

int request_continues(struct request *r, const struct request_after *after, bool chat,
                      const struct tokenizer *t, struct err *e)
{
    enum { TURN = 32 };                  /* tokens that a template may write around an answer */
    struct chapter_spec *c = &r->job.chapter;
    const struct job_lengths *before = &after->before;
    int32_t *ids = NULL;
    *c = after->chapter;
    r->n_carried = c->carry >= 0 ? MIN((size_t)c->carry, before->text) : before->text;
    r->n_carried += c->carry < 0 && !c->prompted ? before->prompt : 0;
    r->n_carried += chat ? TURN : 0;
    if (c->append && encode_inside(t, &ids, &r->n_given, c->append, strlen(c->append), e))
        return -1;
    free(ids);
    c->n_append = r->n_given;
    c->most = r->job.prompt_tokens + r->n_carried;
    return 0;
}

int request_encode(struct request *r, const struct tokenizer *t, bool specials, struct err *e)
{
    struct job_spec *j = &r->job;
    return tokenizer_encode(t, &j->prompt_ids, &j->prompt_tokens, j->prompt, j->prompt_bytes, specials, e);
}

/* The text of an option, `given` of `name`, or else of a file. */
static int read_text(char **text, size_t *n, const char *name, const char *given, const char *file,
                     struct err *e)
{
    if (!given)
        return text_read_prompt(text, n, file, e);
    *n = strlen(given);
    if (text_check_utf8(name, given, *n, e))
        return -1;
    return (*text = strdup(given)) ? 0 : err_set(e, ERR_FAILED, "out of memory");
}

static int read_prompt(struct request *r, const struct engine *g, const struct request_after *after,
                       struct err *e)
{
    const struct options *o = r->o;
    const bool none = after && !o->prompt && !o->prompt_file;
    if (chat_check_options(o, e))
        return -1;
    if (o->messages)
        return read_chat(r, g, e);
    if (read_text(&r->job.prompt, &r->job.prompt_bytes, "--prompt", none ? "" : o->prompt, o->prompt_file, e))
        return -1;
    if (o->prompt_file && r->job.prompt_bytes == 0)
        request_notice(o, "%s: the prompt is empty", o->prompt_file);
    if (o->chat && !none)
        return read_chat(r, g, e);
    /* a chapter that carries all before it begins as that does */
    return request_encode(r, g->tokenizer, !none || after->chapter.carry >= 0, e);
}

/* Reads the stored parameters back, so that a mistake fails here and not in a worker. */
int request_check(struct request *r, const struct engine *g, struct err *e)
{
    struct job_params p = {0};
    const size_t n_prompt = r->job.prompt_tokens + r->n_carried;
    size_t n_max = n_prompt + r->job.wanted;
    const struct job_binding binding = { .text_max = n_max };
    int rc = job_parse(&p, r->job.parameters, e) ||
             job_bind(&p, &g->config, g->tokenizer, g->dir, &binding, e) ? -1 : 0;
    if (rc == 0 && !r->o->tokens) {
        const size_t fits = job_length_in_memory(&p, g, n_prompt + r->n_given + 1, n_max, r->o->held);
        r->less = fits < n_max;
        r->job.wanted = fits - n_prompt;
        n_max = fits;
    }
    if (rc == 0)
        rc = r->o->held ? job_check_beside(&p, g, n_max, r->o->held, r->o->max_memory, e)
                     : job_check_memory(&p, g, n_max, 0, e);
    job_close(&p);
    return rc;
}

int request_describe(struct request *r, const struct engine *g, struct err *e)
{
    const struct options *o = r->o;
    struct job_params p = o->job;
    const size_t context = g->config.context, n_prompt = r->job.prompt_tokens + r->n_carried;
    r->job.wanted = r->n_given + (o->tokens ? o->tokens : 1);
    if (!o->tokens && context > n_prompt + r->job.wanted)
        r->job.wanted = context - n_prompt;
    r->less = false;
    if (job_check_length(&g->config, n_prompt, r->job.wanted, o->job.allow_beyond_context && o->tokens, e) ||
        sampling_from_options(&r->sampling, o, &g->config, NULL, n_prompt + r->job.wanted, e))
        return -1;
    p.sampling = r->sampling;
    if (p.sampling.thought_budget >= 0 && !p.thinking_end) {
        p.thinking_start = r->chat.thought_start;
        p.thinking_end = r->chat.thought_end;
        if (!p.thinking_end)
            return err_set(e, ERR_INPUT, "--thinking-budget: %s; --thinking-end TEXT says how a thought ends",
                           r->chat.template[0] ? "the chat template has no mark of a thought that is known"
                                               : "without a chat template nothing marks a thought");
    }
    return job_describe(&r->job.parameters, &p, o, g, n_prompt, &r->chat, e);
}

/* Says how long a text without --tokens may become. */
static void notice_length(const struct request *r, const struct engine *g)
{
    char most[80] = "the end of the context";
    if (r->less)
        snprintf(most, sizeof most, "as far as memory holds (the context has %zu)", g->config.context);
    if (!r->o->tokens)
        request_notice(r->o, "without --tokens the text goes to its own end, at most %zu tokens, %s",
                       r->job.wanted, most);
}

bool request_notice_unfiltered(const struct request *r, const struct engine *g)
{
    const struct options *o = r->o;
    const struct sampling *s = &r->sampling;
    char *template = NULL;
    struct err ignored;
    if (g->config.has_generation_config || !model_is_file(g->dir) || options_given(o, "temperature") ||
        o->generation_config == GENERATION_NONE || chat_template_text(&template, g->dir, &ignored) ||
        !template)
        return false;
    free(template);
    for (size_t i = 0; chain_steps[i].name; i++)
        if (chain_steps[i].on(s))
            return false;
    request_notice(o, "%s names no sampling settings, so temperature 1 without filters, at which small chat "
                      "models write gibberish; --preset story or --min-p 0.05 helps", g->dir);
    return true;
}

int request_open(struct request *r, const struct options *o, struct engine *g,
                 const struct request_after *after, struct err *e)
{
    *r = (struct request){ .o = o };
    if (check_options(o, e) || options_open_engine(g, o, e))
        return -1;
    notice_story(o, &g->config);
    if (read_prompt(r, g, after, e) ||
        (after && request_continues(r, after, o->chat || o->messages, g->tokenizer, e)))
        return -1;
    if (r->job.prompt_tokens + r->n_carried == 0)
        return err_set(e, ERR_INPUT, "%s: the prompt is empty and this model's tokenizer puts no token "
                       "before a text; at least one token is needed",
                       o->prompt ? "--prompt" : o->prompt_file ? o->prompt_file : "--carry 0");
    if (request_describe(r, g, e) || request_check(r, g, e))
        return -1;
    model_notices(g, o);
    if (!*r->chat.template && begins_with_bos_twice(g, r->job.prompt_ids, r->job.prompt_tokens))
        bos_notice(g, o, 1);
    notice_length(r, g);
    request_notice_unfiltered(r, g);
    return 0;
}

void request_close(struct request *r)
{
    sampling_free(&r->sampling);
    r->job.chapter = (struct chapter_spec){0};           /* its texts are borrowed */
    job_spec_free(&r->job);
    *r = (struct request){0};
}

struct job_spec request_job(const struct request *r, const struct engine *g, size_t i)
{
    struct job_spec j = r->job;
    j.model = g->path;
    j.seed = r->sampling.seed;
    j.sample = (uint32_t)i;
    j.priority = (int)r->o->priority;
    return j;
}

int request_submit(const struct request *r, const struct engine *g, struct store *s, bool paused,
                   int64_t *ids, struct err *e)
{
    const struct options *o = r->o;
    enum { DIGITS = 24 };
    struct job_spec *v = calloc(o->samples, sizeof *v);
    /* custom_ids, if a name has several jobs */
    char (*number)[DIGITS] = calloc(o->samples, sizeof *number);
    int rc = v && number ? 0 : err_set(e, ERR_FAILED, "out of memory for %zu jobs", o->samples);
    for (size_t i = 0; i < o->samples && rc == 0; i++) {
        snprintf(number[i], DIGITS, "%zu", i);
        v[i] = request_job(r, g, i);
        v[i].custom_id = o->name && o->samples > 1 ? number[i] : NULL;
        v[i].alone = true;
        v[i].replace = o->replace;
        v[i].paused = paused;
    }
    rc = rc ? rc : store_submit(s, o->name, v, o->samples, ids, NULL, NULL, e);
    free(number);
    free(v);
    return rc;
}

int append_from_options(const struct options *o, char **text, size_t *n, struct err *e)
{
    *text = NULL;
    *n = 0;
    if (o->append && o->append_file)
        return err_set(e, ERR_INPUT, "--append and --append-file: only one of them is allowed");
    return o->append || o->append_file ? read_text(text, n, "--append", o->append, o->append_file, e) : 0;
}
