/* Applies the options that name a model, its number formats, and the form of the prompt.
 * Start at options_open_engine. */
#include "src/request/model_options.h"

#include <stdio.h>
#include <string.h>

#include "src/base/input.h"
#include "src/model/find_model.h"
#include "src/text/chat.h"

int model_dir(char dir[PATH_BYTES], const struct options *o, struct err *e)
{
    if (!o->model || !*o->model)
        return err_set(e, ERR_INPUT, "%s: --model DIR is missing", o->verb->name);
    return find_model_dir(dir, o->model, "--model", e);
}

enum dtype option_compute(int compute) { return compute == COMPUTE_F32 ? DT_F32 : DT_BF16; }

enum dtype option_kv(int kv_dtype)
{
    return kv_dtype == KV_DTYPE_INT16 ? DT_I16 : kv_dtype == KV_DTYPE_BF16 ? DT_BF16 : DT_OTHER;
}

int options_open_engine(struct engine *g, const struct options *o, struct err *e)
{
    char dir[PATH_BYTES];
    if (model_dir(dir, o, e))
        return -1;
    return engine_open(g, &(struct engine_spec){ dir, option_compute(o->job.compute), o->job.scaling,
        o->threads, o->device, NULL, option_kv(o->job.kv_dtype), o->job.weights }, e);
}

static int check_chat_options(const struct options *o, struct err *e)
{
    static const char *const names[] = { "system", "chat-template", "thinking", "chat-date" };
    for (size_t i = 0; i < sizeof names / sizeof *names && !o->chat && !o->messages; i++)
        if (options_given(o, names[i]))
            return err_set(e, ERR_INPUT, "--%s needs --chat", names[i]);
    return o->system ? text_check_utf8("--system", o->system, strlen(o->system), e) : 0;
}

int prompt_encode(int32_t **ids, size_t *n_ids, char template[CHAT_NAME_BYTES], const struct options *o,
                  const struct prompt_text *p, struct err *e)
{
    struct chat c;
    template[0] = 0;
    if (check_chat_options(o, e))
        return -1;
    if (!o->chat && !o->messages)
        return tokenizer_encode(p->tokenizer, ids, n_ids, p->text, p->n, true, e);
    if (chat_open(&c, p->dir, o->chat_template, e))
        return -1;
    const struct chat_options how = { .add_generation_prompt = true,
                                      .thinking = o->thinking, .date = o->chat_date };
    const char *system = o->system ? o->system : "";
    const struct chat_message own[] = { { "system", system, strlen(system) }, { "user", p->text, p->n } },
                              *m = p->messages ? p->messages : o->system ? own : own + 1;
    const size_t n = p->messages ? p->n_messages : o->system ? 2 : 1;
    int rc = how.thinking == CHAT_THINKING_OFF && !chat_has_thinking(&c)
                 ? err_set(e, ERR_INPUT, "--thinking off: chat template %s has no such switch", chat_name(&c))
             : how.date && !chat_has_date(&c)
                 ? err_set(e, ERR_INPUT, "--chat-date: chat template %s names no day", chat_name(&c))
                 : chat_encode(&c, p->tokenizer, m, n, &how, ids, n_ids, e);
    snprintf(template, CHAT_NAME_BYTES, "%s", chat_name(&c));
    chat_close(&c);
    return rc;
}
