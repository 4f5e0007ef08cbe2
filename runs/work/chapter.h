/* The prompt of a chapter: made by the worker that claims the chapter first, from the text of the job before
 * it as it is then. The prompt is
 *
 *     the chapter's own prompt; without one, and with a carry of -1, the prompt of the job before it,
 *     the carried end of that job's text: all of it, or the last `carry` tokens. If a paragraph begins in
 *     their first quarter (the first token after a blank line), the carried text begins there.
 *
 * In a chat the conversation goes on (src/request/conversation.h): the carried text, less its thoughts, is
 * the message of the assistant before the chapter's own messages, and with a carry of -1 the messages of the
 * job before it come first.
 *
 * A text that ended with a stop string is carried up to the token before it. Token ids are carried as they
 * are if both jobs have the same tokens, else the text is encoded anew. chapter.append is encoded as text
 * inside a text (encode_inside). */
#pragma once
#include "runs/store/store.h"
#include "src/decode/engine.h"

/* `in`: the input of the chapter; its model is open in g. 0: *p, for chapter_prompt_free; 1: the job before
 * it is not done, and e says so; -1. */
int chapter_make(struct chapter_prompt *p, struct store *s, const struct job *job, const struct chapter *c,
                 const struct job_input *in, const struct engine *g, struct err *e);
void chapter_prompt_free(struct chapter_prompt *p);
