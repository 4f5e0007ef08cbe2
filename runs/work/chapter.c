/* The prompt of a chapter: made by the worker that claims the chapter first, from the text of the job before
 * it as it is then. The prompt is
 *
 *     the chapter's own prompt; without one, and with a carry of -1, the prompt of the job before it,
 *     the carried end of that job's text: all of it, or the last `carry` tokens. If a paragraph begins in
 *     their first quarter (the first token after a blank line), the carried text begins there.
 *
 * In a chat the conversation goes on (src/request/chat_options.h): the carried text, less its thoughts, is
 * the message of the assistant before the chapter's own messages, and with a carry of -1 the messages of the
 * job before it come first.
 *
 * A text that ended with a stop string is carried up to the token before it. Token ids are carried as they
 * are if both jobs have the same tokens, else the text is encoded anew. chapter.append is encoded as text
 * inside a text (encode_inside).
 *
 * struct earlier is the job before it; start at chapter_make. */
#include "runs/work/task.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/memory_file.h"
#include "src/base/sha256.h"
#include "src/request/chat_options.h"
#include "src/request/sampling_options.h"

struct earlier {
    struct job_list jobs; struct job *job;
    struct job_input in;
    struct text_reader reader;
    bool same;                           /* its tokens are those of the chapter */
    struct placed_text text;
    int32_t *ids; size_t n;              /* the tokens of the text that may be carried, */
    size_t *ends;                        /* and where they end in its bytes */
    size_t bytes;                        /* of these tokens */
};

static int no_memory(struct err *e) { return err_set(e, ERR_FAILED, "out of memory for a prompt"); }

/* The text in the tokens of t. */
static int encode_anew(struct earlier *x, const struct tokenizer *t, struct err *e)
{
    struct decode_stream d;
    size_t n = 0;
    free(x->ids);
    x->ids = NULL;
    if (encode_inside(t, &x->ids, &x->n, x->text.text, x->bytes, e))
        return -1;
    char *out = malloc(decode_stream_max(t));
    x->ends = malloc((x->n + 1) * sizeof *x->ends);
    if (!out || !x->ends) {
        free(out);
        return no_memory(e);
    }
    decode_stream_start(&d, t, false, true);
    for (size_t i = 0; i < x->n; i++) {
        n += decode_stream_push(&d, x->ids[i], out);
        x->ends[i] = MIN(n, x->bytes);
    }
    free(out);
    return 0;
}

static int read_earlier(struct earlier *x, struct store *s, const struct chapter *c,
                        const struct tokenizer *t, struct err *e)
{
    int32_t differs;
    if (store_jobs(s, &c->after, 1, &x->jobs, e))
        return -1;
    if (!x->jobs.n)
        return err_set(e, ERR_INPUT, "job %" PRId64 ", whose text it continues, was removed", c->after);
    x->job = &x->jobs.v[0];
    if (x->job->state != JOB_DONE) {
        err_set(e, ERR_AGAIN, "job %" PRId64 " is %s: the chapter after it waits", c->after,
                job_state_name(x->job->state));
        return 1;
    }
    if (store_input(s, c->after, &x->in, e) || job_read_text(&x->reader, s, x->job, &x->text, e) ||
        store_tokens(s, c->after, 0, x->job->tokens, &x->ids, &x->n, e))
        return -1;
    x->n = x->text.kept;
    x->bytes = x->n == x->text.n_ends ? x->text.n : x->n ? x->text.ends[x->n - 1] : 0;
    x->same = !x->reader.tokenizer || tokenizer_same(x->reader.tokenizer, t, &differs);
    if (x->same) {
        x->ends = x->text.ends;
        x->text.ends = NULL;
        return 0;
    }
    return encode_anew(x, t, e);
}

static void close_earlier(struct earlier *x)
{
    free(x->ids);
    free(x->ends);
    placed_text_free(&x->text);
    text_reader_close(&x->reader);
    job_input_free(&x->in);
    job_list_free(&x->jobs);
}

/* Whether a paragraph begins with byte `at`: a blank line is before it. */
static bool begins_paragraph(const char *text, size_t at)
{
    int lines = 0;
    if (text[at] == '\n')
        return false;
    for (; at && strchr(" \t\r\n", text[at - 1]); at--)
        lines += text[at - 1] == '\n';
    return lines > 1;
}

/* The first token that is carried. */
static size_t carried_from(const struct earlier *x, int64_t carry)
{
    if (carry < 0 || (uint64_t)carry >= x->n)
        return 0;
    const size_t first = x->n - (size_t)carry;
    for (size_t i = first; i < first + (size_t)carry / 4; i++)
        if (begins_paragraph(x->text.text, x->ends[i - 1]))
            return i;
    return first;
}

/* The tokens before the carried ones: *ids, for free. */
static int own_prompt(const struct earlier *x, const struct chapter *c, const struct job_input *in,
                      const struct tokenizer *t, int32_t **ids, size_t *n, struct err *e)
{
    const struct job_input *from = c->carry < 0 && !c->prompted ? &x->in : in;
    char *text;
    size_t bytes;
    if (from == in || x->same) {
        *n = from->n_prompt;
        if (!(*ids = malloc((*n + 1) * sizeof **ids)))
            return no_memory(e);
        memcpy(*ids, from->prompt_ids, *n * sizeof **ids);
        return 0;
    }
    if (tokenizer_decode(x->reader.tokenizer, &text, &bytes, from->prompt_ids, from->n_prompt, true, e))
        return -1;
    const int rc = tokenizer_encode(t, ids, n, text, bytes, true, e);
    free(text);
    return rc;
}

/* Own prompt and carried text, as ids, and as text if the chapter has no prompt of its own. */
static int join(struct chapter_prompt *p, const struct earlier *x, const struct chapter *c,
                const struct job_input *in, const struct tokenizer *t, struct err *e)
{
    const size_t from = carried_from(x, c->carry), at = from ? x->ends[from - 1] : 0;
    const char *before = c->carry < 0 ? x->in.prompt : "";
    size_t own;
    p->carried = x->n - from;
    if (own_prompt(x, c, in, t, &p->ids, &own, e))
        return -1;
    p->n = own + p->carried;
    int32_t *ids = realloc(p->ids, (p->n + 1) * sizeof *ids);
    if (!ids)
        return no_memory(e);
    p->ids = ids;
    if (p->carried)
        memcpy(ids + own, x->ids + from, p->carried * sizeof *ids);
    if (p->n == 0)
        return err_set(e, ERR_INPUT, "job %" PRId64 " has an empty text and the chapter after it no prompt: "
                       "at least one token is needed", c->after);
    if (c->prompted)
        return 0;
    FILE *f = memory_file(&p->text, &p->bytes);
    if (!f)
        return no_memory(e);
    fputs(before, f);
    fwrite(x->text.text + at, 1, x->bytes - at, f);
    return stream_end(f) ? no_memory(e) : 0;
}

/* The next turn of a chat. */
static int join_chat(struct chapter_prompt *p, const struct earlier *x, const struct chapter *c,
                     const struct job_input *in, const struct engine *g, struct err *e)
{
    const size_t from = carried_from(x, c->carry);
    const size_t at = MAX(from ? x->ends[from - 1] : 0, MIN(x->text.answer, x->bytes));
    struct chat_turn turn[2];
    size_t turns = 0;
    struct chat_prompt chat = {0};
    p->carried = x->n - from;
    if (c->carry < 0 && !x->in.chat && x->in.prompt_bytes)
        turn[turns++] = (struct chat_turn){ "user", x->in.prompt, x->in.prompt_bytes };
    if (c->carry && x->text.text)
        turn[turns++] = (struct chat_turn){ "assistant", x->text.text + at, x->bytes - at };
    int rc = conversation_continue(&p->chat, in->chat, c->carry < 0 ? x->in.chat : NULL, turn, turns, e) ||
             conversation_render(&chat, p->chat, g->dir, g->tokenizer, e) ? -1 : 0;
    p->ids = chat.ids;
    p->n = chat.n_ids;
    chat.ids = NULL;
    chat_prompt_free(&chat);
    return rc;
}

int chapter_make(struct chapter_prompt *p, struct store *s, const struct job *job, const struct chapter *c,
                 const struct job_input *in, const struct engine *g, struct err *e)
{
    struct earlier x = {0};
    *p = (struct chapter_prompt){0};
    int rc = read_earlier(&x, s, c, g->tokenizer, e);
    if (rc == 0 && in->chat)
        rc = join_chat(p, &x, c, in, g, e);
    else if (rc == 0)
        rc = join(p, &x, c, in, g->tokenizer, e);
    if (rc == 0 && c->append)
        rc = encode_inside(g->tokenizer, &p->append, &p->n_append, c->append, strlen(c->append), e);
    if (rc == 0 && x.job->has_sha)
        memcpy(p->sha, x.job->sha, sizeof p->sha);
    else if (rc == 0)
        sha256_of(p->sha, x.text.text, x.text.n);
    close_earlier(&x);
    if (rc)
        chapter_prompt_free(p);
    return rc < 0 ? err_while(e, "job %" PRId64, job->id) : rc;
}

void chapter_prompt_free(struct chapter_prompt *p)
{
    free(p->ids);
    free(p->text);
    free(p->append);
    free(p->chat);
    *p = (struct chapter_prompt){0};
}
