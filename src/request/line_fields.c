/* The fields of a line. A table names every field, where it may stand, and the function that reads it; loops
 * over the table do the rest. Start at own_fields. */
#include "src/request/batch_line_impl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runs/store/selection.h"
#include "src/request/kinds.h"
#include "src/sample/logprob.h"

/* Reads the value of l->field. */
typedef int line_reader(struct batch_line *l, const struct json *v, struct err *e);

/* A field of a line: it is read, ignored, or refused unless its value is one of `neutral`, because another
 * one would change the answer. */
struct line_field {
    const char *name;
    unsigned where;                  /* FIELD_* */
    line_reader *read;
    const char *help;                /* NULL: the help lists the name alone, or the option */
    size_t to;                       /* of read_text, read_bool, read_array: the place in struct batch_line */
    bool ignored, refused;
    const char *neutral[2];
    const struct option *opt;        /* the option that the field overrides */
    size_t number;                   /* of a field that is ignored: its bit of batch_notes */
};

/* ---- values ---- */

char *line_room(struct batch_line *l, size_t n)
{
    assert(l->size - l->used > n);
    char *p = l->room + l->used;
    l->used += n + 1;
    p[n] = 0;
    return p;
}

static char *copy_raw(struct batch_line *l, const struct json *v)
{
    size_t n = (size_t)(v->end - v->s);
    char *p = line_room(l, n);
    return memcpy(p, v->s, n);
}

char *line_string(struct batch_line *l, const struct json *v, struct err *e)
{
    bool control;
    if (js_kind(v) != JS_STRING) {
        js_bad(v, e, "allowed is a text");
        return NULL;
    }
    char *p = line_room(l, js_length(v, &control));
    js_unescape(v, p);
    return p;
}

/* Copies a name of 1 to `most` bytes without control characters. NULL: v is none. */
static const char *copy_name(struct batch_line *l, const struct json *v, size_t most)
{
    bool control = false;
    struct err ignored;
    const size_t n = js_kind(v) == JS_STRING ? js_length(v, &control) : 0;
    return n && n <= most && !control ? line_string(l, v, &ignored) : NULL;
}

/* Reads the breakers of DRY from JSON inside a text, as some front ends send them: ["\n", ":"] or "\n", ":".
 * 1: done; 0: the text is a breaker itself; -1: the JSON is no list of texts. */
static int breakers_inside(struct json *list, struct batch_line *l, const struct json *v, struct err *e)
{
    const bool bare = strncmp(v->s, "\"\\\"", 3) == 0;
    bool control;
    struct json one;
    struct err ignored;
    if (!bare && strncmp(v->s, "\"[\\\"", 4) != 0 && strncmp(v->s, "\"[]\"", 4) != 0)
        return 0;
    const size_t n = js_length(v, &control);
    char *room = line_room(l, n + 2);
    room[0] = '[';
    js_unescape(v, room + 1);
    room[n + 1] = ']';
    bool good = js_check(list, v->file, room + !bare, bare ? n + 2 : n, &ignored) == 0 &&
                js_kind(list) == JS_ARRAY;
    for (struct js_walk w = good ? js_walk(list) : (struct js_walk){ 0 }; good && js_next(&w, NULL, &one);)
        good = js_kind(&one) == JS_STRING;
    return good ? 1 : bare ? 0 : js_bad(v, e, "a list of texts is needed, which may be JSON inside a text");
}

/* The texts of an option with a list, in place of those of the command line. */
static int read_texts(struct batch_line *l, const struct json *v, struct err *e)
{
    const struct option *opt = l->field->opt;
    struct text_list *list = option_place(&l->o, opt);
    struct json one, inside;
    if (opt->flags & NULL_IF_EMPTY && js_kind(v) == JS_STRING) {
        const int rc = breakers_inside(&inside, l, v, e);
        if (rc < 0)
            return -1;
        v = rc ? &inside : v;
    }
    assert(l->n_lists < LINE_LISTS_MAX);
    const char **texts = l->list[l->n_lists++] = calloc(js_count(v) + 1, sizeof *texts);
    *list = (struct text_list){ texts, 0 };
    if (!texts)
        return err_set(e, ERR_FAILED, "out of memory for a line");
    if (js_kind(v) != JS_ARRAY) {
        texts[list->n++] = js_kind(v) == JS_OBJECT ? copy_raw(l, v) : line_string(l, v, e);
        return 0;
    }
    for (struct js_walk w = js_walk(v); js_next(&w, NULL, &one);) {
        if (list->n == (size_t)opt->max)
            return js_bad(v, e, "at most %zu texts are allowed", list->n);
        if (!(texts[list->n++] = line_string(l, &one, e)))
            return -1;
    }
    return 0;
}

/* The escapes of JSON are resolved already, so a backslash that is left stands for itself, and the option's
 * syntax needs two. An empty list becomes "none", as in --dry-sequence-breaker. */
static void escape_texts(struct batch_line *l, struct text_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const char *text = list->v[i];
        size_t more = 0;
        for (const char *p = text; *p; p++)
            more += *p == '\\';
        if (!more)
            continue;
        char *out = line_room(l, strlen(text) + more); /* `room` has enough bytes for each of the line */
        list->v[i] = out;
        for (; *text; *out++ = *text++)
            if (*text == '\\')
                *out++ = '\\';
    }
    if (!list->n)
        list->v[list->n++] = "none";
}

static int read_ids(struct batch_line *l, const struct json *v, struct err *e)
{
    struct id_list *ids = option_place(&l->o, l->field->opt);
    struct json one;
    char spelled[64];
    size_t id;
    snprintf(spelled, sizeof spelled, "body.%s", l->field->name);
    ids->n = 0;
    for (struct js_walk w = js_walk(v); js_next(&w, NULL, &one);)
        if (js_whole_size(&one, 0, INT32_MAX, &id, e) || id_list_add(ids, (int32_t)id, spelled, e))
            return -1;
    return 0;
}

static int read_option(struct batch_line *l, const struct json *v, struct err *e)
{
    const struct option *opt = l->field->opt;
    const struct kind *kind = &kinds[opt->kind];
    char spelled[64], number[JS_NUMBER_MAX + 1];
    const char *value = number;
    const size_t n = (size_t)(v->end - v->s);
    if (!(kind->json >> js_kind(v) & 1))
        return js_bad(v, e, "allowed is %s", kind->allowed);
    if (kind->texts) {
        const int rc = read_texts(l, v, e);
        if (rc == 0 && (opt->flags & NULL_IF_EMPTY))
            escape_texts(l, option_place(&l->o, opt));
        return rc;
    }
    if (kind->count)
        return read_ids(l, v, e);
    if (js_kind(v) == JS_STRING) {
        value = line_string(l, v, e);
    } else {
        if (n > JS_NUMBER_MAX)
            return js_bad(v, e, "a number of at most %d digits is allowed", JS_NUMBER_MAX);
        memcpy(number, v->s, n);
        number[n] = 0;
    }
    snprintf(spelled, sizeof spelled, "body.%s", l->field->name);
    if (options_assign(&l->o, opt->name, spelled, value, e))
        return err_while(e, "%s", v->file);
    l->seeded |= opt->kind == SEED;
    return 0;
}

/* ---- readers of single fields ---- */

static void *place(struct batch_line *l) { return (char *)l + l->field->to; }

static int read_text(struct batch_line *l, const struct json *v, struct err *e)
{
    char *text = line_string(l, v, e);
    *(const char **)place(l) = text;
    return text ? 0 : -1;
}

static int read_bool(struct batch_line *l, const struct json *v, struct err *e)
{
    return js_bool(v, place(l), e);
}

/* An array of objects for the template. */
static int read_array(struct batch_line *l, const struct json *v, struct err *e)
{
    if (js_kind(v) != JS_ARRAY)
        return js_bad(v, e, "allowed is an array of objects");
    if (js_count(v))
        *(struct json *)place(l) = *v;
    return 0;
}

static int read_custom_id(struct batch_line *l, const struct json *v, struct err *e)
{
    l->job.custom_id = copy_name(l, v, BATCH_CUSTOM_ID_BYTES_MAX);
    return l->job.custom_id ? 0
                            : js_bad(v, e, "allowed is a text of 1 to %d bytes without control characters",
                                     BATCH_CUSTOM_ID_BYTES_MAX);
}

static int read_after(struct batch_line *l, const struct json *v, struct err *e)
{
    l->job.chapter.after_id = copy_name(l, v, BATCH_CUSTOM_ID_BYTES_MAX + BATCH_NAME_BYTES_MAX + 2);
    return l->job.chapter.after_id
               ? 0 : js_bad(v, e, "allowed is the custom_id of another line, or @NAME/custom_id");
}

static int read_carry(struct batch_line *l, const struct json *v, struct err *e)
{
    size_t carry = 0;
    const int rc = js_whole_size(v, 0, 1000000000, &carry, e);
    l->job.chapter.carry = (int64_t)carry;
    return rc;
}

static int read_metadata(struct batch_line *l, const struct json *v, struct err *e)
{
    if (l->job.metadata)
        return js_bad(v, e, "custom_id has metadata beside it, too; only one of them is allowed");
    l->job.metadata = copy_raw(l, v);
    return 0;
}

/* batch_line_prompt or the chat template reads the value. */
static int read_input(struct batch_line *l, const struct json *v, struct err *e)
{
    (void)e;
    *(l->chat ? &l->in.messages : &l->prompt) = *v;
    return 0;
}

/* A chat template writes BOS itself, so a chat line must not add it again. */
static int read_special_tokens(struct batch_line *l, const struct json *v, struct err *e)
{
    bool on;
    if (js_bool(v, &on, e))
        return -1;
    if (l->chat && on)
        return js_bad(v, e, "a chat template writes its special tokens itself; only false is allowed");
    l->no_specials = !on;
    return 0;
}

static int read_generation_prompt(struct batch_line *l, const struct json *v, struct err *e)
{
    l->prompt_given = true;
    return js_bool(v, &l->in.add_generation_prompt, e);
}

static int read_kwargs(struct batch_line *l, const struct json *v, struct err *e)
{
    struct json key, one;
    if (js_kind(v) != JS_OBJECT)
        return js_bad(v, e, "allowed is an object");
    l->in.kwargs[1] = *v;
    l->kwargs = copy_raw(l, v);
    for (struct js_walk w = js_walk(v); js_next(&w, &key, &one);)
        if (js_is(&key, "enable_thinking") && (js_kind(&one) == JS_TRUE || js_kind(&one) == JS_FALSE))
            l->thinking = js_kind(&one) == JS_TRUE ? CHAT_THINKING_ON : CHAT_THINKING_OFF;
    return 0;
}

static int read_effort(struct batch_line *l, const struct json *v, struct err *e)
{
    for (int i = 0; i < 3; i++)
        if (js_is(v, chat_efforts[i])) {
            l->thinking = CHAT_EFFORT_LOW + i;
            return 0;
        }
    return js_bad(v, e, "allowed are low, medium and high; chat_template_kwargs takes what a template knows");
}

static int read_response_format(struct batch_line *l, const struct json *v, struct err *e)
{
    struct json type;
    int found = js_kind(v) == JS_OBJECT ? js_get(v, "type", &type, e) : 0;
    (void)l;                             /* text is what every line gets */
    if (found < 0)
        return -1;
    return found && js_is(&type, "text") ? 0 : js_bad(v, e, "only {\"type\": \"text\"} is supported");
}

/* "logprobs": true with "top_logprobs": N of a chat, "logprobs": N of a completion. */
static int read_top_logprobs(struct batch_line *l, const struct json *v, struct err *e)
{
    if (js_kind(v) != JS_NUMBER || !js_i64(v, &l->top) || l->top < 0 || l->top > LOGPROBS_BEST_MAX)
        return js_bad(v, e, "allowed is a whole number from 0 to %d", LOGPROBS_BEST_MAX);
    return 0;
}

static int read_logprobs(struct batch_line *l, const struct json *v, struct err *e)
{
    const enum js_kind kind = js_kind(v);
    l->logprobs = kind != JS_FALSE;
    if (kind == JS_FALSE || (l->chat && kind == JS_TRUE))
        return 0;
    return l->chat ? js_bad(v, e, "allowed is true or false") : read_top_logprobs(l, v, e);
}

/* ---- the fields ---- */

#define TO(place) offsetof(struct batch_line, place)
#define READ(letter, member, name, where, reader, help) \
    { name, where, read_##reader, help, TO(job.member) },
#define KEPT(name, where, help) \
    { #name, where, read_text, help, TO(o.job.kept[KEPT_##name]) },
#define REFUSED(name, ...) { name, FIELD_BODY, .refused = true, .neutral = { __VA_ARGS__ } }
#define IGNORED(name) { name, FIELD_BODY, .ignored = true }
#define read_none NULL

static const struct line_field own_fields[] = {
    JOB_FIELDS(READ) PROMPT_FIELD(READ) INPUT_FIELDS(READ) KEPT_FIELDS(KEPT)
    { "after", FIELD_BESIDE | FIELD_TEXT, read_after,
      "a chapter: the line begins when that custom_id, or @NAME/custom_id, is done" },
    { "carry", FIELD_BESIDE, read_carry, "and reads the last N tokens of its text after the prompt; without: "
      "all" },
    { "append", FIELD_BESIDE, read_text,
      "text at the start of the chapter, such as its heading", TO(job.chapter.append) },
    { "add_special_tokens", FIELD_BODY, read_special_tokens, "false: no BOS before the prompt" },
    { "add_generation_prompt", FIELD_CHAT, read_generation_prompt,
      "false: the chat does not open the assistant's turn" },
    { "continue_final_message", FIELD_CHAT, read_bool, "true: the text continues the last message",
      TO(in.continue_final_message) },
    { "chat_template", FIELD_CHAT, read_text, "a name, or the text of a template", TO(template) },
    { "chat_template_kwargs", FIELD_CHAT, read_kwargs, "{enable_thinking, date_string}" },
    { "reasoning_effort", FIELD_CHAT, read_effort, "low, medium or high: a variable of the template" },
    { "tools", FIELD_CHAT, read_array,
      "a list for a chat template that names it; calls come back as the model wrote them", TO(in.tools) },
    { "documents", FIELD_CHAT, read_array, "a list for a chat template that names it", TO(in.documents) },
    { "logprobs", FIELD_BODY | FIELD_WHOLE, read_logprobs,
      "--logprobs: a number; in a chat true or false" },
    { "top_logprobs", FIELD_BODY | FIELD_WHOLE, read_top_logprobs,
      "in a chat with logprobs: the number of likeliest tokens" },
    { "response_format", FIELD_BODY, read_response_format, "{\"type\": \"text\"}" },
    { "best_of", FIELD_BODY | FIELD_WHOLE, .refused = true, .neutral = { "1" } },
    REFUSED("echo", "false"), REFUSED("suffix", "\"\""), REFUSED("use_beam_search", "false"),
    REFUSED("include_stop_str_in_output", "false"), REFUSED("skip_special_tokens", "true"),
    REFUSED("truncate_prompt_tokens", NULL), REFUSED("bad_words", "[]"), REFUSED("allowed_token_ids", "[]"),
    REFUSED("tool_choice", "\"none\"", "\"auto\""), REFUSED("functions", "[]"),
    REFUSED("function_call", "\"none\"", "\"auto\""), REFUSED("modalities", "[\"text\"]"),
    REFUSED("audio", NULL), REFUSED("verbosity", "\"medium\""), REFUSED("web_search_options", NULL),
    REFUSED("structured_outputs", NULL), REFUSED("guided_json", NULL), REFUSED("guided_regex", NULL),
    REFUSED("guided_choice", NULL), REFUSED("guided_grammar", NULL), REFUSED("logits_processors", "[]"),
    REFUSED("vllm_xargs", "{}"), REFUSED("prompt_embeds", NULL), REFUSED("repetition_detection", NULL),
    /* these would add something to the answer */
    REFUSED("prompt_logprobs", NULL), REFUSED("return_tokens_as_token_ids", "false"),
    REFUSED("return_token_ids", "false"),
    IGNORED("user"), IGNORED("store"), IGNORED("stream"), IGNORED("stream_options"), IGNORED("service_tier"),
    IGNORED("parallel_tool_calls"), IGNORED("prompt_cache_key"), IGNORED("prompt_cache_retention"),
    IGNORED("safety_identifier"), IGNORED("request_id"), IGNORED("priority"), IGNORED("cache_salt"),
    IGNORED("spaces_between_special_tokens"), IGNORED("detokenize"), IGNORED("prediction"),
    IGNORED("length_penalty"), IGNORED("include_reasoning"), IGNORED("kv_transfer_params"),
    IGNORED("mm_processor_kwargs"), IGNORED("early_stopping"),
};

enum { N_OWN = sizeof own_fields / sizeof *own_fields, FIELDS_MAX = N_OWN + 48 };
static struct line_field fields[FIELDS_MAX];     /* those above with a name, and those of options */
static size_t n_fields;

/* A row for each of the names, separated by spaces. */
static void add_options(const struct option *opt, const char *names)
{
    static char room[FIELDS_MAX][40];
    const bool whole = opt->kind == SIZE || opt->kind == LONG || opt->kind == SEED || opt->kind == IDS;
    for (const char *p = names; p && *p; p += strcspn(p, " "), p += *p == ' ') {
        assert(n_fields < FIELDS_MAX && strcspn(p, " ") < sizeof *room);
        char *name = room[n_fields];
        snprintf(name, sizeof *room, "%.*s", (int)strcspn(p, " "), p);
        option_respell(name, '-', '_');
        fields[n_fields++] = (struct line_field){ name, FIELD_BODY | (whole ? FIELD_WHOLE : 0), read_option,
                                                  .opt = opt };
    }
}

static void make_fields(void)
{
    size_t n_ignored = 0;
    for (size_t i = 0; i < N_OWN; i++)
        if (own_fields[i].name) {
            fields[n_fields] = own_fields[i];
            fields[n_fields].where |= own_fields[i].read == read_text ? FIELD_TEXT : 0;
            fields[n_fields++].number = n_ignored;
            n_ignored += own_fields[i].ignored;
        }
    assert(n_ignored <= 64);
    for (const struct option *opt = options_table; opt->name; opt++) {
        add_options(opt, opt->flags & BODY ? opt->name : NULL);
        add_options(opt, opt->fields);
    }
}

/* Makes the rows of the options once; several threads may ask. */
static void list_fields(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_fields);
}

const struct line_field *line_find_field(const struct json *key)
{
    for (size_t i = 0; i < n_fields; i++)
        if (js_is(key, fields[i].name))
            return &fields[i];
    return NULL;
}

unsigned batch_line_field(const char *name)
{
    size_t i = 0;
    list_fields();
    while (i < n_fields && strcmp(fields[i].name, name))
        i++;
    return i == n_fields ? 0 : fields[i].where | (fields[i].read ? FIELD_READ : 0);
}

void batch_notes_text(char *out, size_t size, const struct batch_notes *n)
{
    size_t at = 0;
    *out = 0;
    for (size_t i = 0; i < n_fields && at < size; i++)
        if (fields[i].ignored && n->ignored >> fields[i].number & 1)
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? ", " : "", fields[i].name);
}

/* The names of the fields that are refused or ignored. */
static void put_names(FILE *f, const char *head, bool ignored)
{
    size_t at = (size_t)fprintf(f, "%s", head);
    const char *comma = "";
    for (size_t i = 0; i < n_fields; i++) {
        if (!(ignored ? fields[i].ignored : fields[i].refused))
            continue;
        at += (size_t)fprintf(f, "%s", comma);
        if (at + strlen(fields[i].name) + 2 > 101)
            at = (size_t)fprintf(f, "\n   ") - 1;
        at += (size_t)fprintf(f, " %s", fields[i].name);
        comma = ",";
    }
    fputc('\n', f);
}

void batch_line_help(FILE *f)
{
    list_fields();
    fputs(
        "A batch is a file with one request a line, in one of these forms:\n\n"
        "    {\"custom_id\": \"a\", \"method\": \"POST\", \"url\": \"/v1/completions\", "
        "\"body\": {\"prompt\": ..}}\n"
        "    {\"custom_id\": \"b\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": "
        "{..}}\n"
        "    {\"prompt\": \"Chapter 1\", \"max_tokens\": 4000, \"metadata\": {\"book\": 7}}\n"
        "    {\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"seed\": 3}\n\n"
        "FILE.csv and FILE.tsv (or --csv) are tables: the first row names the columns, and columns that are\n"
        "no field become metadata. With --lines each line is a prompt, as plain text. A request without\n"
        "custom_id has the number of its line. Options of the command line are the defaults. A whole number\n"
        "may be written as 4.0 or 4e3. A seed of -1 is drawn once, when the line is first queued.\n\n"
        "Fields beside the body, and in short lines:\n", f);
    for (int body = 0; body < 2; body++) {
        for (size_t i = 0; i < n_fields; i++)
            if (fields[i].help && body == !(fields[i].where & FIELD_BESIDE))
                fprintf(f, "    %-23s %s\n", fields[i].name, fields[i].help);
        fputs(body ? "" : "\nFields of the body:\n", f);
    }
    for (size_t i = 0; i < n_fields; i++)
        if (fields[i].opt) {
            const struct kind *k = &kinds[fields[i].opt->kind];
            fprintf(f, "    %-23s --%s%s%s\n", fields[i].name, fields[i].opt->name, k->count ? ": " : "",
                    k->count ? k->allowed : "");
        }
    put_names(f, "\nRefused, unless neutral, because the answer would change:", false);
    put_names(f, "\nIgnored, because no text depends on them:", true);
}

/* ---- the members of an object ---- */

/* Whether v is this JSON text, which contains no spaces; white space between its tokens does not matter. */
static bool is_value(const struct json *v, const char *text)
{
    bool quoted = false;
    for (const char *p = v->s; p < v->end; p++) {
        if (!quoted && strchr(" \t\r\n", *p))
            continue;
        quoted ^= *p == '"';
        if (*p != *text++)
            return false;
    }
    return !*text;
}

/* The value must be one that does not change the answer. */
static int check_neutral(const char *const neutral[2], const struct json *v, struct err *e)
{
    char digits[24] = "";
    js_digits(v, digits);                        /* 1.0 is 1 */
    for (size_t k = 0; k < 2 && neutral[k]; k++)
        if (is_value(v, neutral[k]) || strcmp(neutral[k], digits) == 0)
            return 0;
    if (!neutral[0])
        return js_bad(v, e, "it would change the answer and is not supported");
    return js_bad(v, e, "it would change the answer, and only %s%s%s is supported", neutral[0],
                  neutral[1] ? " or " : "", neutral[1] ? neutral[1] : "");
}

int line_unknown_field(const struct batch_line *l, const struct json *key, struct err *e)
{
    size_t n = (size_t)(key->end - key->s);
    int shown = (int)(n > 60 ? utf8_valid_prefix(key->s, 60) : n);
    return err_set(
        e, ERR_INPUT, "%s: body (offset %zu): the field %.*s is unknown for %s, and it may change the text; "
        "what does not belongs into \"metadata\"",
        key->file, js_offset(key), shown, key->s, l->chat ? "/v1/chat/completions" : "/v1/completions");
}

/* Some options have two fields; a line must use only one. max_completion_tokens overrides max_tokens: 1 if
 * the field f counts for nothing. */
static int check_other_names(const struct line_field *f, const bool set[FIELDS_MAX], const struct json *v,
                             struct err *e)
{
    for (size_t k = 0; k < n_fields && f->opt; k++) {
        const char *other = fields[k].name;
        if (!set[k] || &fields[k] == f || fields[k].opt != f->opt)
            continue;
        if (strcmp(other, "max_completion_tokens") == 0)
            return 1;
        if (strcmp(other, "max_tokens"))
            return js_bad(v, e, "body.%s means the same; only one of them is allowed", other);
    }
    return 0;
}

/* Reads a value that is not null. set: the fields that have been read. */
static int read_field(struct batch_line *l, const struct line_field *f, bool set[FIELDS_MAX],
                      const struct json *v, struct err *e)
{
    l->field = f;
    if (f->refused)
        return check_neutral(f->neutral, v, e);
    if (f->ignored) {
        l->ignored |= (uint64_t)1 << f->number;
        return 0;
    }
    const int rc = check_other_names(f, set, v, e);
    set[f - fields] = true;
    return rc ? MIN(rc, 0) : f->read(l, v, e);
}

int line_read_members(struct batch_line *l, const struct json *object, unsigned where, struct err *e)
{
    struct json key, v;
    bool seen[FIELDS_MAX] = { false }, set[FIELDS_MAX] = { false };  /* set: seen and not null */
    list_fields();
    for (struct js_walk w = js_walk(object); js_next(&w, &key, &v);) {
        const struct line_field *f = line_find_field(&key);
        const bool stands = f && f->where & where, beside = f && !(f->where & FIELD_BODY);
        if (!stands && where == FIELD_BESIDE && f && !f->ignored)
            return err_set(e, ERR_INPUT, "%s: offset %zu: the field \"%s\" stands beside body; it is allowed "
                           "only inside body", key.file, js_offset(&key), f->name);
        if (!stands && (where == FIELD_BESIDE || js_kind(&v) == JS_NULL))
            continue;
        if (!stands)
            return line_unknown_field(l, &key, e);
        v.key[0] = beside ? f->name : "body";
        v.key[1] = beside ? NULL : f->name;
        if (seen[f - fields] && beside)
            return js_bad(&v, e, "it stands twice in the line");
        if (seen[f - fields])
            return err_set(e, ERR_INPUT, "%s: body (offset %zu): the field \"%s\" is given twice", key.file,
                           js_offset(&key), f->name);
        seen[f - fields] = true;
        if (js_kind(&v) != JS_NULL && read_field(l, f, set, &v, e))
            return -1;
    }
    return 0;
}
