/* The options of --chat, and the prompt that they make. Start at chat_prompt_make. */
#include "src/request/chat_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/input.h"

int chat_check_options(const struct options *o, struct err *e)
{
    static const char *const names[] = { "system", "chat-template", "chat-template-kwargs", "thinking",
                                         "chat-date" };
    for (size_t i = 0; i < sizeof names / sizeof *names && !o->chat && !o->messages; i++)
        if (options_given(o, names[i]))
            return err_set(e, ERR_INPUT, "--%s needs --%s", names[i],
                           o->verb->bit & VERB_TOKENIZE ? "messages" : "chat");
    return o->system ? text_check_utf8("--system", o->system, strlen(o->system), e) : 0;
}

/* Variables that are members of struct chat_input. */
static int check_kwargs(const struct json *v, struct err *e)
{
    static const char *const own[] = { "messages", "tools", "documents", "add_generation_prompt" };
    struct json key, one;
    if (js_kind(v) != JS_OBJECT)
        return js_bad(v, e, "allowed is an object");
    for (struct js_walk w = js_walk(v); js_next(&w, &key, &one);)
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            if (js_is(&key, own[i]))
                return js_bad(v, e, "%s is no variable of this object", own[i]);
    return 0;
}

int chat_input_of(struct chat_input *in, const struct options *o, struct err *e)
{
    *in = (struct chat_input){ .add_generation_prompt = true, .thinking = o->thinking, .date = o->chat_date };
    if (chat_day(&in->day, "--chat-date", o->chat_date, e))
        return -1;
    if (!o->chat_kwargs)
        return 0;
    return js_check(&in->kwargs[0], "--chat-template-kwargs", o->chat_kwargs, strlen(o->chat_kwargs), e) ||
                   check_kwargs(&in->kwargs[0], e)
               ? -1
               : 0;
}

int chat_prompt_make(struct chat_prompt *p, const struct chat *c, const struct tokenizer *t,
                     const struct chat_input *in, struct chat_notes *notes, struct err *e)
{
    *p = (struct chat_prompt){0};
    if (in->kwargs[1].s && check_kwargs(&in->kwargs[1], e))
        return -1;
    if (chat_encode(c, t, in, &p->text, &p->n, &p->ids, &p->n_ids, e) ||
        chat_user_text(&in->messages, &p->user, &p->n_user, e)) {
        chat_prompt_free(p);
        return -1;
    }
    snprintf(p->facts.template, sizeof p->facts.template, "%s", c->name);
    chat_thought_marks(c, &p->facts.thought_start, &p->facts.thought_end);
    if (in->date || chat_has_day(c)) {
        struct tm day;
        gmtime_r(&in->day, &day);
        strftime(p->facts.day, sizeof p->facts.day, "%Y-%m-%d", &day);
    }
    if (notes && !*notes->variables)
        chat_notice(notes->variables, sizeof notes->variables, c, in);
    if (notes && !*notes->marks)
        chat_marks_notice(notes->marks, sizeof notes->marks, c, t);
    return 0;
}

void chat_prompt_free(struct chat_prompt *p)
{
    free(p->text);
    free(p->user);
    free(p->ids);
    free(p->json);
    *p = (struct chat_prompt){0};
}

void chat_notes_print(const struct chat_notes *notes, const struct options *o)
{
    if (*notes->variables)
        request_notice(o, "%s", notes->variables);
    if (*notes->marks)
        request_notice(o, "%s", notes->marks);
}
