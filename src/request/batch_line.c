/* Reads one line of a batch file. The options' table and three tables here say what happens to each field of
 * the body; read_body walks over the fields. Start at batch_line_read. */
#include "src/request/batch_line.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runs/store/selection.h"
#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "src/model/memory_plan.h"
#include "src/request/options_impl.h"
#include "src/sample/logprob.h"

/* ---- the fields ---- */

enum { COMPLETIONS = 1, CHAT = 2, BOTH = 3 };
/* The fields that stand for an option: rows of the options' table say which. */
enum { OPTION_FIELDS_MAX = 48 };
static struct option_field { char name[40]; const struct option *opt; } option_fields[OPTION_FIELDS_MAX];
static size_t n_option_fields;

static void add_field(const char *name, size_t n, const struct option *opt)
{
    assert(n_option_fields < OPTION_FIELDS_MAX && n < sizeof option_fields->name);
    struct option_field *f = &option_fields[n_option_fields++];
    f->opt = opt;
    snprintf(f->name, sizeof f->name, "%.*s", (int)n, name);
    for (char *p = f->name; *p; p++)
        *p = *p == '-' ? '_' : *p;
}

static void make_option_fields(void)
{
    for (const struct option *opt = options_table; opt->name; opt++) {
        if (opt->flags & BODY)
            add_field(opt->name, strlen(opt->name), opt);
        for (const char *p = opt->fields ? opt->fields : ""; *p; p += strcspn(p, " "), p += *p == ' ')
            add_field(p, strcspn(p, " "), opt);
    }
}

/* Lists them once; several threads may ask. */
static void list_option_fields(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_option_fields);
}

enum special { MODEL, PROMPT, MESSAGES, STOP, STOP_IDS, BANNED, BREAKERS, BIAS, METADATA, SPECIALS,
               GENERATION_PROMPT, CONTINUE, TEMPLATE, TEMPLATE_ARGS, EFFORT, TOOLS, DOCUMENTS,
               RESPONSE_FORMAT, LOGPROBS, TOP_LOGPROBS };
static const struct { const char *name; enum special what; unsigned urls; } special_fields[] = {
    { "model", MODEL, BOTH }, { "prompt", PROMPT, COMPLETIONS }, { "messages", MESSAGES, CHAT },
    { "stop", STOP, BOTH }, { "stop_token_ids", STOP_IDS, BOTH }, { "banned_strings", BANNED, BOTH },
    { "dry_sequence_breakers", BREAKERS, BOTH }, { "logit_bias", BIAS, BOTH },
    { "metadata", METADATA, BOTH }, { "add_special_tokens", SPECIALS, BOTH },
    { "add_generation_prompt", GENERATION_PROMPT, CHAT }, { "continue_final_message", CONTINUE, CHAT },
    { "chat_template", TEMPLATE, CHAT }, { "chat_template_kwargs", TEMPLATE_ARGS, CHAT },
    { "reasoning_effort", EFFORT, CHAT }, { "tools", TOOLS, CHAT }, { "documents", DOCUMENTS, CHAT },
    { "response_format", RESPONSE_FORMAT, BOTH }, { "logprobs", LOGPROBS, BOTH },
    { "top_logprobs", TOP_LOGPROBS, BOTH },
};
enum { N_SPECIAL = sizeof special_fields / sizeof *special_fields };

/* Fields that would change the answer, and their neutral values. */
static const struct { const char *name, *neutral[2]; } neutral_fields[] = {
    { "best_of", { "1" } }, { "echo", { "false" } }, { "suffix", { "\"\"" } },
    { "use_beam_search", { "false" } },
    { "include_stop_str_in_output", { "false" } }, { "skip_special_tokens", { "true" } },
    { "truncate_prompt_tokens", { NULL } }, { "bad_words", { "[]" } }, { "allowed_token_ids", { "[]" } },
    { "tool_choice", { "\"none\"", "\"auto\"" } }, { "functions", { "[]" } },
    { "function_call", { "\"none\"", "\"auto\"" } }, { "modalities", { "[\"text\"]" } },
    { "audio", { NULL } }, 
    { "verbosity", { "\"medium\"" } }, { "web_search_options", { NULL } }, { "structured_outputs", { NULL } },
    { "guided_json", { NULL } }, { "guided_regex", { NULL } }, { "guided_choice", { NULL } },
    { "guided_grammar", { NULL } }, { "logits_processors", { "[]" } }, { "vllm_xargs", { "{}" } },
    { "prompt_embeds", { NULL } }, { "repetition_detection", { NULL } },
    /* fields that would add something to the answer */
    { "prompt_logprobs", { NULL } },
    { "return_tokens_as_token_ids", { "false" } }, { "return_token_ids", { "false" } },
};
enum { N_NEUTRAL = sizeof neutral_fields / sizeof *neutral_fields };

static const char *const ignored_fields[] = {
    "user", "store", "stream", "stream_options", "service_tier", "parallel_tool_calls", "prompt_cache_key",
    "prompt_cache_retention", "safety_identifier", "request_id", "priority", "cache_salt",
    "spaces_between_special_tokens", "detokenize", "prediction", "length_penalty", "include_reasoning",
    "kv_transfer_params", "mm_processor_kwargs", "early_stopping",
};
enum { N_IGNORED = sizeof ignored_fields / sizeof *ignored_fields };
_Static_assert(N_IGNORED <= 64, "one bit each");

void batch_notes_text(char *out, size_t size, const struct batch_notes *n)
{
    size_t at = 0;
    *out = 0;
    for (size_t i = 0; i < N_IGNORED && at < size; i++)
        if (n->ignored >> i & 1)
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? ", " : "", ignored_fields[i]);
}

/* What stands beside custom_id in the line of a chapter. */
static const char *const chapter_fields[] = { "after", "carry", "append" };
enum { N_CHAPTER = sizeof chapter_fields / sizeof *chapter_fields };

bool batch_line_has_text(const char *name)
{
    return strcmp(name, "prompt") == 0 || strcmp(name, "custom_id") == 0 ||
           strcmp(name, "after") == 0 || strcmp(name, "append") == 0;
}

bool batch_line_has_field(const char *name)
{
    bool known = batch_line_has_text(name) || strcmp(name, "carry") == 0;
    list_option_fields();
    for (size_t i = 0; i < n_option_fields; i++)
        known |= strcmp(name, option_fields[i].name) == 0;
    for (size_t i = 0; i < N_SPECIAL; i++)
        known |= strcmp(name, special_fields[i].name) == 0;
    return known;
}

bool batch_line_is_whole(const char *name)
{
    bool whole = option_is_listed("prompt stop_token_ids logprobs top_logprobs best_of", name);
    for (size_t i = 0; i < n_option_fields; i++) {
        const enum option_kind kind = option_fields[i].opt->kind;
        whole |= (kind == SIZE || kind == LONG || kind == SEED) && strcmp(name, option_fields[i].name) == 0;
    }
    return whole;
}

static void put_names(FILE *f, const char *head, const char *(*name)(size_t), size_t n)
{
    size_t at = (size_t)fprintf(f, "%s", head);
    for (size_t i = 0; i < n; i++) {
        const size_t len = strlen(name(i)) + 2;
        if (at + len > 100)
            at = (size_t)fprintf(f, "\n   ") - 1;
        at += (size_t)fprintf(f, " %s%s", name(i), i + 1 < n ? "," : "\n");
    }
}

static const char *neutral_name(size_t i) { return neutral_fields[i].name; }
static const char *ignored_name(size_t i) { return ignored_fields[i]; }

void batch_line_help(FILE *f)
{
    list_option_fields();
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
        "Fields beside the body, and in short lines:\n"
        "    custom_id               name of the request: @BATCH/custom_id\n"
        "    metadata                any JSON; exports and reports have it\n"
        "    after                   a chapter: the line begins when that custom_id, or @NAME/custom_id, is "
        "done\n"
        "    carry                   and reads the last N tokens of its text after the prompt; without: all\n"
        "    append                  text at the start of the chapter, such as its heading\n\n"
        "Fields of the body:\n"
        "    prompt                  a text, or a list of token ids\n"
        "    messages                a chat: role and content of each message\n"
        "    model                   --model of this line\n",
        f);
    for (size_t i = 0; i < n_option_fields; i++)
        fprintf(f, "    %-23s --%s\n", option_fields[i].name, option_fields[i].opt->name);
    fputs("    stop                    --stop: a text or a list\n"
          "    stop_token_ids          --stop-id: a list\n"
          "    banned_strings          --ban-phrase: a text or a list\n"
          "    logit_bias              --logit-bias: {\"ID\": BIAS, ..}\n"
          "    dry_sequence_breakers   --dry-sequence-breaker: a list\n"
          "    add_special_tokens      false: no BOS before the prompt\n"
          "    add_generation_prompt   false: the chat does not open the assistant's turn\n"
          "    continue_final_message  true: the text continues the last message\n"
          "    chat_template           a name, or the text of a template\n"
          "    chat_template_kwargs    {enable_thinking, date_string}\n"
          "    logprobs                --logprobs: a number; in a chat true or false\n"
          "    top_logprobs            in a chat with logprobs: the number of likeliest tokens\n"
          "    response_format         {\"type\": \"text\"}\n\n", f);
    put_names(f, "Refused, unless neutral, because the answer would change:", neutral_name, N_NEUTRAL);
    put_names(f, "\nIgnored, because no text depends on them:", ignored_name, N_IGNORED);
}

/* ---- values ---- */

/* Takes n bytes and a NUL from the line's room. */
static char *take_room(struct batch_line *l, size_t n)
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
    char *p = take_room(l, n);
    return memcpy(p, v->s, n);
}

/* Copies a string without its escapes. NULL: v is no string, and e is set. */
static char *copy_string(struct batch_line *l, const struct json *v, struct err *e)
{
    bool control;
    if (js_kind(v) != JS_STRING) {
        js_bad(v, e, "allowed is a text");
        return NULL;
    }
    char *p = take_room(l, js_length(v, &control));
    js_unescape(v, p);
    return p;
}

static int read_option_field(struct batch_line *l, const struct option_field *f, const struct json *v,
                             struct err *e)
{
    const enum js_kind kind = js_kind(v);
    const bool flag = f->opt->kind == FLAG, word = f->opt->kind == CHOICE;
    char spelled[64], number[JS_NUMBER_MAX + 1];
    const char *value = number;
    if (!(flag ? kind == JS_TRUE || kind == JS_FALSE : kind == (word ? JS_STRING : JS_NUMBER)))
        return js_bad(v, e, "allowed is %s", flag ? "true or false" : word ? "a text" : "a number");
    if (word) {
        value = copy_string(l, v, e);
    } else {
        size_t n = (size_t)(v->end - v->s);
        if (n > JS_NUMBER_MAX)
            return js_bad(v, e, "a number of at most %d digits is allowed", JS_NUMBER_MAX);
        memcpy(number, v->s, n);
        number[n] = 0;
    }
    snprintf(spelled, sizeof spelled, "body.%s", f->name);
    if (options_assign(&l->o, f->opt->name, spelled, value, e))
        return err_while(e, "%s", v->file);
    l->seeded |= strcmp(f->name, "seed") == 0;
    return 0;
}

/* Reads a text or an array of texts. */
static int read_texts(struct batch_line *l, const struct json *v, const char **list, size_t most,
                      struct text_list *out, struct err *e)
{
    struct json one;
    size_t n = 0;
    if (js_kind(v) == JS_STRING) {
        if (!(list[n++] = copy_string(l, v, e)))
            return -1;
    } else if (js_kind(v) == JS_ARRAY) {
        for (struct js_walk w = js_walk(v); js_next(&w, NULL, &one);) {
            if (n == most)
                return js_bad(v, e, "at most %zu texts are allowed", most);
            if (!(list[n++] = copy_string(l, &one, e)))
                return -1;
        }
    } else {
        return js_bad(v, e, "allowed is a text or an array of texts");
    }
    *out = (struct text_list){ list, n };
    return 0;
}

static int read_stop_ids(struct id_list *l, const struct json *v, struct err *e)
{
    struct json one;
    size_t id;
    if (js_kind(v) != JS_ARRAY)
        return js_bad(v, e, "allowed is an array of token ids");
    l->n = 0;
    for (struct js_walk w = js_walk(v); js_next(&w, NULL, &one);)
        if (js_whole_size(&one, 0, INT32_MAX, &id, e) ||
            id_list_add(l, (int32_t)id, "body.stop_token_ids", e))
            return -1;
    return 0;
}

/* The escapes of JSON are resolved already, so a backslash that is left stands for itself, and the
 * option's syntax needs two. An empty list becomes "none", as in --dry-sequence-breaker. */
static int read_breakers(struct batch_line *l, const struct json *v, struct err *e)
{
    if (read_texts(l, v, l->breaker, BATCH_TEXTS_MAX, &l->o.job.breakers, e))
        return -1;
    for (size_t i = 0; i < l->o.job.breakers.n; i++) {
        const char *text = l->breaker[i];
        size_t more = 0;
        for (const char *p = text; *p; p++)
            more += *p == '\\';
        if (!more)
            continue;
        char *out = take_room(l, strlen(text) + more); /* `room` has two bytes for each byte of the line */
        l->breaker[i] = out;
        for (; *text; *out++ = *text++)
            if (*text == '\\')
                *out++ = '\\';
    }
    if (l->o.job.breakers.n == 0) {
        l->breaker[0] = "none";
        l->o.job.breakers = (struct text_list){ l->breaker, 1 };
    }
    return 0;
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

/* An array of objects for the template. */
static int read_array(struct json *to, const struct json *v, struct err *e)
{
    if (js_kind(v) != JS_ARRAY)
        return js_bad(v, e, "allowed is an array of objects");
    if (js_count(v))
        *to = *v;
    return 0;
}

static int check_response_format(const struct json *v, struct err *e)
{
    struct json type;
    int found = js_kind(v) == JS_OBJECT ? js_get(v, "type", &type, e) : 0;
    if (found < 0)
        return -1;
    return found && js_is(&type, "text") ? 0 : js_bad(v, e, "only {\"type\": \"text\"} is supported");
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

/* logprobs: 1 and 0 as in a chat; -1: not given. top: top_logprobs. */
struct chat_flags { bool prompt_given, prompt, open; int logprobs; int64_t top; };

/* "logprobs": N of a completion; "logprobs": true with "top_logprobs": N of a chat. */
static int read_logprobs(struct batch_line *l, const struct json *v, bool is_top, struct chat_flags *f,
                         struct err *e)
{
    int64_t n = 0;
    const enum js_kind kind = js_kind(v);
    const bool number = is_top || !l->chat;
    if (!is_top && kind == JS_FALSE)
        f->logprobs = 0;
    else if (!is_top && l->chat && kind == JS_TRUE)
        f->logprobs = 1;
    else if (!number || kind != JS_NUMBER || !js_i64(v, &n) || n < 0 || n > LOGPROBS_BEST_MAX)
        return number ? js_bad(v, e, "allowed is a whole number from 0 to %d", LOGPROBS_BEST_MAX)
                      : js_bad(v, e, "allowed is true or false");
    else if (is_top)
        f->top = n;
    else
        f->logprobs = 1, f->top = n;
    return 0;
}

static int read_special_field(struct batch_line *l, enum special what, const struct json *v,
                              struct chat_flags *f, struct err *e)
{
    switch (what) {
    case MODEL:    return (l->model = copy_string(l, v, e)) ? 0 : -1;
    case PROMPT:   l->prompt = *v; return 0;
    case MESSAGES: l->in.messages = *v; return 0;
    case STOP:     return read_texts(l, v, l->stop, BATCH_TEXTS_MAX, &l->o.job.stop, e);
    case BANNED:   return read_texts(l, v, l->banned, BANNED_MAX, &l->o.job.banned, e);
    case STOP_IDS: return read_stop_ids(&l->o.job.stop_ids, v, e);
    case BREAKERS: return read_breakers(l, v, e);
    case BIAS:
        if (js_kind(v) != JS_OBJECT)
            return js_bad(v, e, "allowed is an object {\"ID\": BIAS, ..}");
        l->bias[0] = copy_raw(l, v);
        l->o.logit_bias = (struct text_list){ l->bias, 1 };
        return 0;
    case METADATA:
        if (l->metadata)
            return js_bad(v, e, "custom_id has metadata beside it, too; only one of them is allowed");
        l->metadata = v->s;
        l->n_metadata = (size_t)(v->end - v->s);
        return 0;
    case SPECIALS:          return read_special_tokens(l, v, e);
    case GENERATION_PROMPT: f->prompt_given = true; return js_bool(v, &f->prompt, e);
    case CONTINUE:          return js_bool(v, &f->open, e);
    case TEMPLATE:          return (l->template = copy_string(l, v, e)) ? 0 : -1;
    case TEMPLATE_ARGS:     return read_kwargs(l, v, e);
    case EFFORT:            return read_effort(l, v, e);
    case TOOLS:             return read_array(&l->in.tools, v, e);
    case DOCUMENTS:         return read_array(&l->in.documents, v, e);
    case RESPONSE_FORMAT:   return check_response_format(v, e);
    case LOGPROBS:          return read_logprobs(l, v, false, f, e);
    case TOP_LOGPROBS:      return read_logprobs(l, v, true, f, e);
    }
    return 0;
}

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
static int check_neutral(size_t i, const struct json *v, struct err *e)
{
    const char *const *neutral = neutral_fields[i].neutral;
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

/* ---- the body ---- */

/* The number of a field: special, neutral, ignored fields, then those that stand for options. */
enum { N_REFUSED = N_SPECIAL + N_NEUTRAL, FIRST_OPTION = N_REFUSED + N_IGNORED,
       N_FIELDS_MAX = FIRST_OPTION + OPTION_FIELDS_MAX };

static const char *field_name(size_t i)
{
    return i < N_SPECIAL      ? special_fields[i].name
           : i < N_REFUSED    ? neutral_fields[i - N_SPECIAL].name
           : i < FIRST_OPTION ? ignored_fields[i - N_REFUSED]
                              : option_fields[i - FIRST_OPTION].name;
}

/* N_FIELDS_MAX if the url has no such field. */
static size_t find_field(const struct batch_line *l, const struct json *key)
{
    const unsigned url = l->chat ? CHAT : COMPLETIONS;
    const size_t n = FIRST_OPTION + n_option_fields;
    size_t i = 0;
    while (i < n && !js_is(key, field_name(i)))
        i++;
    return i == n || (i < N_SPECIAL && !(special_fields[i].urls & url)) ? N_FIELDS_MAX : i;
}

static int unknown_field(const struct batch_line *l, const struct json *key, struct err *e)
{
    size_t n = (size_t)(key->end - key->s);
    int shown = (int)(n > 60 ? utf8_valid_prefix(key->s, 60) : n);
    return err_set(
        e, ERR_INPUT, "%s: body (offset %zu): the field %.*s is unknown for %s, and it may change the text; "
        "what does not belongs into \"metadata\"",
        key->file, js_offset(key), shown, key->s, l->chat ? "/v1/chat/completions" : "/v1/completions");
}

/* Some fields have two names; a line must use only one. max_completion_tokens overrides max_tokens: 1 if the
 * field counts for nothing. */
static int check_other_names(size_t i, const bool set[OPTION_FIELDS_MAX], const struct json *v, struct err *e)
{
    for (size_t k = 0; k < n_option_fields; k++) {
        const char *other = option_fields[k].name;
        if (!set[k] || k == i || option_fields[k].opt != option_fields[i].opt)
            continue;
        if (strcmp(other, "max_completion_tokens") == 0)
            return 1;
        if (strcmp(other, "max_tokens"))
            return js_bad(v, e, "body.%s means the same; only one of them is allowed", other);
    }
    return 0;
}

static int read_custom_id(struct batch_line *l, const struct json *v, struct err *e)
{
    bool control = false;
    size_t n = js_kind(v) == JS_STRING ? js_length(v, &control) : 0;
    if (n == 0 || n > BATCH_CUSTOM_ID_BYTES_MAX || control)
        return js_bad(v, e, "allowed is a text of 1 to %d bytes without control characters",
                      BATCH_CUSTOM_ID_BYTES_MAX);
    l->custom_id = copy_string(l, v, e);
    return 0;
}

/* Reads a field of a chapter: 1; 0: it is none; -1. */
static int read_chapter_field(struct batch_line *l, const struct json *key, const struct json *value,
                              struct err *e)
{
    struct json v = *value;
    size_t i = 0, carry, n;
    bool control = false;
    while (i < N_CHAPTER && !js_is(key, chapter_fields[i]))
        i++;
    if (i == N_CHAPTER || js_kind(&v) == JS_NULL)
        return i < N_CHAPTER;
    v.key[0] = chapter_fields[i];
    if (i == 0 ? l->after != NULL : i == 1 ? l->carry >= 0 : l->append != NULL)
        return js_bad(&v, e, "it stands twice in the line");
    if (i == 0) {
        n = js_kind(&v) == JS_STRING ? js_length(&v, &control) : 0;
        if (n == 0 || n > BATCH_CUSTOM_ID_BYTES_MAX + BATCH_NAME_BYTES_MAX + 2 || control)
            return js_bad(&v, e, "allowed is the custom_id of another line, or @NAME/custom_id");
        return (l->after = copy_string(l, &v, e)) ? 1 : -1;
    }
    if (i == 2)
        return (l->append = copy_string(l, &v, e)) ? 1 : -1;
    if (js_whole_size(&v, 0, 1000000000, &carry, e))
        return -1;
    l->carry = (int64_t)carry;
    return 1;
}

static int read_body(struct batch_line *l, struct batch_notes *notes, struct err *e)
{
    struct chat_flags f = { .prompt = true, .logprobs = -1 };
    struct json key, v;
    bool seen[N_FIELDS_MAX] = { false }, set[OPTION_FIELDS_MAX] = { false };  /* set: seen and not null */
    uint64_t ignored = 0;
    for (struct js_walk w = js_walk(&l->body); js_next(&w, &key, &v);) {
        if (l->plain && js_is(&key, "custom_id")) {
            v.key[0] = "custom_id";
            if (js_kind(&v) != JS_NULL && read_custom_id(l, &v, e))
                return -1;
            continue;
        }
        const int chapter = l->plain ? read_chapter_field(l, &key, &v, e) : 0;
        if (chapter < 0)
            return -1;
        if (chapter)
            continue;
        size_t i = find_field(l, &key);
        if (i == N_FIELDS_MAX && js_kind(&v) == JS_NULL)
            continue;
        if (i == N_FIELDS_MAX)
            return unknown_field(l, &key, e);
        if (seen[i])
            return err_set(e, ERR_INPUT, "%s: body (offset %zu): the field \"%s\" is given twice", key.file,
                           js_offset(&key), field_name(i));
        seen[i] = true;
        v.key[0] = "body";
        v.key[1] = field_name(i);
        if (js_kind(&v) == JS_NULL) {
            continue;
        }
        int rc = 0;
        if (i < N_SPECIAL) {
            rc = read_special_field(l, special_fields[i].what, &v, &f, e);
        } else if (i < N_REFUSED) {
            rc = check_neutral(i - N_SPECIAL, &v, e);
        } else if (i < FIRST_OPTION) {
            ignored |= (uint64_t)1 << (i - N_REFUSED);
        } else {
            rc = check_other_names(i - FIRST_OPTION, set, &v, e);
            rc = rc ? MIN(rc, 0) : read_option_field(l, &option_fields[i - FIRST_OPTION], &v, e);
            set[i - FIRST_OPTION] = true;
        }
        if (rc)
            return -1;
    }
    if (f.top && f.logprobs != 1)
        return err_set(e, ERR_INPUT, "%s: body.top_logprobs needs \"logprobs\": true", l->body.file);
    if (f.logprobs >= 0)
        l->o.job.logprobs = f.logprobs ? (long)f.top : -1;
    if (f.open && f.prompt_given && f.prompt)
        return err_set(e, ERR_INPUT,
                       "%s: body: continue_final_message and add_generation_prompt exclude each other",
                       l->body.file);
    l->in.continue_final_message = f.open;
    l->in.add_generation_prompt = f.prompt && !f.open;
    notes->ignored |= ignored;
    notes->lines += ignored != 0;
    return 0;
}

/* ---- the line ---- */

static int require(int found, const struct json *line, const char *key, const char *allowed, struct err *e)
{
    return found < 0 ? -1
           : found   ? 0
                     : err_set(e, ERR_INPUT, "%s: %s is missing, %s", line->file, key, allowed);
}

/* Refuses fields of the body that stand outside the body, where they would have no effect. */
static int check_misplaced(const struct json *line, struct err *e)
{
    struct json key, v;
    for (struct js_walk w = js_walk(line); js_next(&w, &key, &v);)
        for (size_t i = 0; i < FIRST_OPTION + n_option_fields; i++)
            if ((i < N_REFUSED || i >= FIRST_OPTION) && js_is(&key, field_name(i)) &&
                !js_is(&key, "metadata"))
                return err_set(
                    e, ERR_INPUT,
                    "%s: offset %zu: the field \"%s\" stands beside body; it is allowed only inside body",
                    line->file, js_offset(&key), field_name(i));
    return 0;
}

/* --chat: the messages of a prompt: one of the user, after --system. */
static void put_messages(struct json_writer *w, const struct batch_line *l, const struct json *prompt)
{
    jw_open(w, "messages", '[');
    if (l->o.system) {
        jw_open(w, NULL, '{');
        jw_text(w, "role", "system");
        jw_text(w, "content", l->o.system);
        jw_close(w, '}');
    }
    jw_open(w, NULL, '{');
    jw_text(w, "role", "user");
    jw_value(w, "content", prompt);
    jw_close(w, '}');
    jw_close(w, ']');
}

/* The body of a chat of --chat: all members of the line but custom_id and metadata. */
static int put_chat_body(struct json_writer *w, struct batch_line *l, const struct json *line, struct err *e)
{
    struct json key, v;
    char name[80];
    bool control;
    jw_open(w, NULL, '{');
    for (struct js_walk at = js_walk(line); js_next(&at, &key, &v);) {
        const bool id = js_is(&key, "custom_id"), metadata = js_is(&key, "metadata");
        const int chapter = read_chapter_field(l, &key, &v, e);
        if (chapter < 0)
            return -1;
        if (js_is(&key, "prompt") && js_kind(&v) != JS_STRING)
            return js_bad(&v, e, "with --chat a text is needed");
        if (id && js_kind(&v) != JS_NULL && read_custom_id(l, &v, e))
            return -1;
        if (metadata && js_kind(&v) != JS_NULL) {
            l->metadata = v.s;
            l->n_metadata = (size_t)(v.end - v.s);
        }
        if (js_is(&key, "prompt"))
            put_messages(w, l, &v);
        if (id || metadata || chapter || js_is(&key, "prompt"))
            continue;
        if (js_length(&key, &control) >= sizeof name)
            return unknown_field(l, &key, e);
        name[js_unescape(&key, name)] = 0;
        jw_value(w, name, &v);
    }
    jw_close(w, '}');
    return 0;
}

/* A line without url and body: the same request as /v1/completions with its fields, or with messages or
 * --chat as /v1/chat/completions. */
static int read_plain(struct batch_line *l, const struct json *line, struct err *e)
{
    struct json ignored;
    size_t n;
    char *body = NULL;
    l->chat = l->o.chat || js_get(line, "messages", &ignored, e) == 1;
    l->plain = !l->o.chat;
    l->body = *line;
    if (l->plain)
        return 0;
    FILE *f = memory_file(&body, &n);
    if (!f)
        return err_set(e, ERR_FAILED, "out of memory for a line");
    struct json_writer w = { .f = f };
    int rc = put_chat_body(&w, l, line, e);
    if (stream_end(f) && rc == 0)
        rc = err_set(e, ERR_FAILED, "out of memory for a line");
    if (rc == 0) {
        char *room = take_room(l, n);
        memcpy(room, body, n);
        rc = js_check(&l->body, line->file, room, n, e);
    }
    free(body);
    l->o.system = NULL;                          /* a message now */
    return rc;
}

static int read_head(struct batch_line *l, const struct json *line, struct err *e)
{
    struct json key, v;
    if (require(js_get(line, "custom_id", &v, e), line, "custom_id", "a text is needed", e))
        return -1;
    if (read_custom_id(l, &v, e))
        return -1;
    int found = js_get(line, "method", &v, e);
    if (found < 0 || (found && !js_is(&v, "POST")))
        return found < 0 ? -1 : js_bad(&v, e, "only \"POST\" is allowed");
    const int url = js_get(line, "url", &v, e);
    l->chat = url == 1 && js_is(&v, "/v1/chat/completions");
    if (url < 0 || (url && !l->chat && !js_is(&v, "/v1/completions")))
        return url < 0 ? -1 : js_bad(&v, e, "/v1/completions and /v1/chat/completions are allowed");
    for (struct js_walk w = js_walk(line); js_next(&w, &key, &v);)
        if (read_chapter_field(l, &key, &v, e) < 0)
            return -1;
    found = js_get(line, "metadata", &v, e);
    if (found < 0)
        return -1;
    if (found && js_kind(&v) != JS_NULL) {
        l->metadata = v.s;
        l->n_metadata = (size_t)(v.end - v.s);
    }
    if (require(js_get(line, "body", &l->body, e), line, "body", "an object is needed", e))
        return -1;
    if (js_kind(&l->body) != JS_OBJECT)
        return js_bad(&l->body, e, "allowed is an object");
    if (!url)
        l->chat = js_get(&l->body, "messages", &v, e) == 1;
    return 0;
}

/* What must not stand together in the line of a chapter. */
static int check_chapter(const struct batch_line *l, const char *where, struct err *e)
{
    if (!l->after && (l->carry >= 0 || l->append))
        return err_set(e, ERR_INPUT, "%s: %s needs after", where, l->append ? "append" : "carry");
    if (!l->after)
        return 0;
    if (l->chat && l->append)
        return err_set(e, ERR_INPUT, "%s: append: a chat has no given text; its next message can say it",
                       where);
    if (l->o.samples != 1)
        return err_set(e, ERR_INPUT, "%s: %zu samples of a line with after, 1 is allowed (n, --samples)",
                       where, l->o.samples);
    return 0;
}

/* The fields of the body, and what must be there. */
static int read_rest(struct batch_line *l, const char *where, struct batch_notes *notes, struct err *e)
{
    if (read_body(l, notes, e) || check_chapter(l, where, e))
        return -1;
    const struct json *need = l->chat ? &l->in.messages : &l->prompt;
    if (!need->s && l->after && !l->chat)
        return 0;
    if (!need->s)
        return err_set(e, ERR_INPUT, "%s: body.%s is missing", where, l->chat ? "messages" : "prompt");
    if (l->chat && js_kind(need) != JS_ARRAY)
        return js_bad(need, e, "allowed is an array of messages");
    return 0;
}

int batch_line_read(struct batch_line *l, const struct options *o, const char *where, const char *text,
                    size_t n, struct batch_notes *notes, struct err *e)
{
    struct json line;
    list_option_fields();
    *l = (struct batch_line){ .o = *o, .size = 3 * n + 512, .carry = -1 };
    if (o->chat && o->system)
        l->size += 8 * strlen(o->system);        /* an escaped copy, and one that is not */
    if (js_check(&line, where, text, n, e))
        return -1;
    if (js_kind(&line) != JS_OBJECT)
        return js_bad(&line, e, "allowed is an object with custom_id, method, url and body");
    if (!(l->room = malloc(l->size)))
        return err_set(e, ERR_FAILED, "out of memory for a line of %zu bytes", n);
    struct json ignored;
    const bool prompt = js_get(&line, "prompt", &ignored, e) == 1,
               plain = (prompt || js_get(&line, "messages", &ignored, e) == 1 ||
                        js_get(&line, "after", &ignored, e) == 1) &&
                       !js_get(&line, "body", &ignored, e) && !js_get(&line, "url", &ignored, e) &&
                       !js_get(&line, "method", &ignored, e);
    if ((!plain || !prompt) && o->chat)
        return err_set(e, ERR_INPUT, "%s: --chat is for lines {\"prompt\": ..} and --lines; the url of this "
                       "line says whether it is a chat", where);
    if (plain ? read_plain(l, &line, e) : read_head(l, &line, e) || check_misplaced(&line, e))
        return -1;
    return read_rest(l, where, notes, e);
}

int batch_line_read_body(struct batch_line *l, const struct options *o, bool chat, const char *where,
                         const char *text, size_t n, struct batch_notes *notes, struct err *e)
{
    list_option_fields();
    *l = (struct batch_line){ .o = *o, .size = 3 * n + 512, .carry = -1, .chat = chat, .served = true };
    if (js_check(&l->body, where, text, n, e))
        return -1;
    if (js_kind(&l->body) != JS_OBJECT)
        return js_bad(&l->body, e, "allowed is an object");
    if (!(l->room = malloc(l->size)))
        return err_set(e, ERR_FAILED, "out of memory for a body of %zu bytes", n);
    return read_rest(l, where, notes, e);
}

void batch_line_close(struct batch_line *l)
{
    free(l->room);
    *l = (struct batch_line){0};
}

/* ---- prompts ---- */

static int read_ids(const struct json *v, size_t vocab, int32_t **ids, size_t *n_ids, struct err *e)
{
    struct json one;
    size_t n = 0, id;
    for (struct js_walk w = js_walk(v); js_next(&w, NULL, &one);)
        n++;
    *n_ids = 0;
    *ids = malloc((n + 1) * sizeof **ids);
    if (!*ids)
        return err_set(e, ERR_FAILED, "out of memory for a prompt of %zu tokens", n);
    for (struct js_walk w = js_walk(v); js_next(&w, NULL, &one); (*ids)[(*n_ids)++] = (int32_t)id)
        if (js_whole_size(&one, 0, vocab - 1, &id, e)) {
            free(*ids);
            *ids = NULL;
            return -1;
        }
    return 1;
}

int batch_line_prompt(struct batch_line *l, size_t vocab, int32_t **ids, size_t *n_ids, const char **text,
                      size_t *n_text, struct err *e)
{
    struct json v = l->prompt, one, more;
    *ids = NULL;
    if (js_kind(&v) == JS_ARRAY) {
        struct js_walk w = js_walk(&v);
        const bool any = js_next(&w, NULL, &one),
                   list = any && (js_kind(&one) == JS_STRING || js_kind(&one) == JS_ARRAY);
        size_t prompts = any;
        while (list && js_next(&w, NULL, &more))
            prompts++;
        if (prompts > 1)
            return js_bad(&v, e,
                          "it has %zu prompts and one is allowed: give each its own line and custom_id "
                          "(several texts of one prompt: n)",
                          prompts);
        if (list)
            v = one;
    }
    if (js_kind(&v) == JS_ARRAY)
        return read_ids(&v, vocab, ids, n_ids, e);
    if (js_kind(&v) != JS_STRING)
        return js_bad(&v, e, "allowed are a text, or an array of token ids from 0 to %zu", vocab - 1);
    if (!(*text = copy_string(l, &v, e)))
        return -1;
    *n_text = strlen(*text);
    return 0;
}
