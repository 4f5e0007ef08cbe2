/* Chat templates: prompts and ids equal those of transformers (tests/data/chat,
 * tests/make/make_chat_fixtures.py); where a template stands; what is more than transformers does; refusals
 * and notices. */
#include <dirent.h>
#include <unistd.h>

#include "src/base/json.h"
#include "src/text/chat.h"
#include "tests/test.h"

static char dir[4096];                           /* a model directory with a template only */

static char *text_of(const struct json *v, size_t *n)
{
    char *s = malloc((size_t)(v->end - v->s));
    *n = js_unescape(v, s);
    s[*n] = 0;
    return s;
}

static char *member(const struct json *o, const char *key)
{
    struct json v;
    struct err e;
    size_t n;
    return js_get(o, key, &v, &e) > 0 && js_kind(&v) == JS_STRING ? text_of(&v, &n) : NULL;
}

static bool flag(const struct json *o, const char *key)
{
    struct json v;
    struct err e;
    return js_get(o, key, &v, &e) > 0 && js_kind(&v) == JS_TRUE;
}

static char *path_of(const char *file)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return path;
}

static void write_text(const char *file, const char *text, size_t n)
{
    FILE *f = fopen(path_of(file), "wb");
    if (!f || fwrite(text, 1, n, f) != n || fclose(f))
        abort();
}

static void put_string(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++)
        fprintf(f, (unsigned char)*s < 0x20 || *s == '"' || *s == '\\' ? "\\u%04x" : "%c", (unsigned char)*s);
    fputc('"', f);
}

/* Writes tokenizer_config.json with these tokens (NULL: null) and a template. */
static void write_config(const char *bos, const char *eos, const char *template)
{
    FILE *f = fopen(path_of("tokenizer_config.json"), "w");
    if (!f)
        abort();
    fputs("{\"bos_token\": ", f);
    if (bos)
        put_string(f, bos);
    else
        fputs("null", f);
    fputs(", \"eos_token\": {\"__type\": \"AddedToken\", \"content\": ", f);
    put_string(f, eos ? eos : "</s>");
    fputs("}", f);
    if (template) {
        fputs(", \"chat_template\": ", f);
        put_string(f, template);
    }
    fputs("}", f);
    fclose(f);
}

static void clear(void)
{
    static const char *const files[] = { "chat_template.jinja", "chat_template.json", "tokenizer_config.json",
                                         "special_tokens_map.json" };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        unlink(path_of(files[i]));
}

/* The member of a line, or {0}. */
static struct json get(const struct json *line, const char *key)
{
    struct json v = { .s = NULL };
    struct err e;
    return js_get(line, key, &v, &e) > 0 ? v : (struct json){ .s = NULL };
}

static struct chat_input input_of(const struct json *line)
{
    return (struct chat_input){ .messages = get(line, "messages"), .tools = get(line, "tools"),
                                .documents = get(line, "documents"), .kwargs = { [1] = get(line, "kwargs") },
                                .add_generation_prompt = flag(line, "gen"),
                                .continue_final_message = flag(line, "continue") };
}

/* Checks one line of a fixture. */
static void check_case(const struct chat *c, const struct tokenizer *t, const struct json *line,
                       const char *where, size_t number)
{
    char *error = member(line, "error"), *want = member(line, "text"), *text;
    struct json v = get(line, "ids"), one;
    size_t size, n_want = 0, n_ids = 0, i = 0;
    int32_t *ids;
    struct err e = {0};
    const struct chat_input in = input_of(line);
    int rc = chat_render(c, &in, &text, &size, &e);
    if (error) {
        CHECK(rc && e.code == ERR_INPUT && strstr(e.msg, error), "%s:%zu: %s, want %s", where, number,
              rc ? e.msg : text, error);
    } else {
        struct json w = get(line, "text");
        free(want);
        want = text_of(&w, &n_want);
        CHECK(rc == 0 && size == n_want && !memcmp(text, want, size) && text[size] == 0,
              "%s:%zu: '%s', want '%s'", where, number, rc ? e.msg : text, want);
    }
    if (rc == 0)
        free(text);
    if (!error) {
        int made = chat_encode(c, t, &in, &text, &size, &ids, &n_ids, &e);
        for (struct js_walk w = js_walk(&v); js_next(&w, NULL, &one); i++)
            CHECK(i < n_ids && ids[i] == atoi(one.s), "%s:%zu: id %zu", where, number, i);
        CHECK(i == n_ids, "%s:%zu: %zu ids, want %zu", where, number, n_ids, i);
        CHECK((made == 0) == (i > 0), "%s:%zu: %s", where, number, e.msg);
        free(text);
        free(ids);
    }
    free(error);
    free(want);
}

static struct tokenizer *open_tokenizer(const char *name)
{
    char file[300], *json;
    struct tokenizer *t = NULL;
    struct err e;
    size_t n;
    snprintf(file, sizeof file, "build/data/tokenizers/%s.json", name);
    CHECK(file_read(&json, &n, file, 1 << 26, &e) == 0 &&
              tokenizer_parse(&t, file, json, n, SIZE_MAX, &e) == 0,
          "%s", e.msg);
    free(json);
    return t;
}

/* Checks all lines of a fixture and returns their number. A line with a name begins another template. */
static size_t check_fixture(const char *name)
{
    char path[300], *data;
    size_t n, number = 0;
    struct err e;
    struct tokenizer *t = NULL;
    struct chat c = {0};
    snprintf(path, sizeof path, "tests/data/chat/%s.jsonl", name);
    if (file_read(&data, &n, path, 1 << 26, &e)) {
        CHECK(false, "%s", e.msg);
        return 0;
    }
    for (char *line = data, *end; (end = memchr(line, '\n', (size_t)(data + n - line))) != NULL;
         line = end + 1) {
        struct json root;
        number++;
        if (js_check(&root, path, line, (size_t)(end - line), &e)) {
            CHECK(false, "%s", e.msg);
            break;
        }
        char *template_name = member(&root, "name");
        if (!template_name) {
            check_case(&c, t, &root, name, number);
            continue;
        }
        char *bos = member(&root, "bos"), *eos = member(&root, "eos"), *own = member(&root, "template"),
             *tokenizer = member(&root, "tokenizer");
        write_config(bos, eos, own);
        chat_close(&c);
        CHECK(chat_open(&c, dir, own ? NULL : template_name, CHAT_TEXT, &e) == 0, "%s", e.msg);
        tokenizer_close(t);
        t = open_tokenizer(tokenizer);
        free(template_name), free(bos), free(eos), free(own), free(tokenizer);
    }
    chat_close(&c);
    tokenizer_close(t);
    free(data);
    return number;
}

static void every_template_equals_transformers(void)
{
    size_t n_names = 0;
    char names[1024], *rest = names;
    snprintf(names, sizeof names, "%s", CHAT_NAMES);
    for (char *name; (name = strsep(&rest, ",")) != NULL; n_names++) {
        name += *name == ' ';
        CHECK(check_fixture(name) > 150, "%s", name);
    }
    CHECK(n_names == 7, "%zu", n_names);
    clear();
}

static void everything_of_a_chat_equals_transformers(void)
{
    CHECK(check_fixture("own") > 140);
    clear();
}

/* ---- where a template stands ---- */

/* The prompt of the model's template for "x" of a user; NULL and the reason in *e. */
static char *prompt(const char *template, const char *input, struct err *e)
{
    struct chat c;
    struct json root;
    char *text = NULL;
    size_t n;
    *e = (struct err){0};
    if (chat_open(&c, dir, template, CHAT_TEXT, e))
        return NULL;
    CHECK(js_check(&root, "input", input, strlen(input), e) == 0, "%s", e->msg);
    const struct chat_input in = input_of(&root);
    chat_render(&c, &in, &text, &n, e);
    chat_close(&c);
    return text;
}

#define ASK "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"gen\": true}"
#define ASK_TOOLS "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"tools\": [{\"a\": 1}]}"

/* want: the prompt; else `reason` is part of the refusal. */
static void check_prompt(const char *template, const char *input, const char *want, const char *reason)
{
    struct err e;
    char *text = prompt(template, input, &e);
    CHECK(want ? text && !strcmp(text, want) : !text, "%s: %s, want %s", input, text ? text : e.msg,
          want ? want : reason);
    CHECK(!reason || (e.code == ERR_INPUT && strstr(e.msg, reason)), "%s: %s, want %s", input, e.msg, reason);
    free(text);
}

static void a_template_is_found_wherever_it_stands(void)
{
    static const char several[] = "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"r\"}, {\"name\": "
                                  "\"tool_use\", \"template\": \"t{{ tools }}\"}, {\"name\": \"default\", "
                                  "\"template\": \"d\"}]}";
    check_prompt(NULL, ASK, NULL, "no chat template; --chat-template names one of chatml");
    write_config(NULL, NULL, NULL);
    check_prompt(NULL, ASK, NULL, "no chat template");
    write_config(NULL, NULL, "config");
    check_prompt(NULL, ASK, "config", NULL);
    write_text("chat_template.json", "{\"chat_template\": \"json\"}", 25);
    check_prompt(NULL, ASK, "json", NULL);
    write_text("chat_template.jinja", "jinja\n", 6);
    check_prompt(NULL, ASK, "jinja", NULL);
    clear();
    write_text("tokenizer_config.json", several, sizeof several - 1);
    check_prompt(NULL, ASK, "d", NULL);
    check_prompt(NULL, ASK_TOOLS, "t[{'a': 1}]", NULL);
    write_text("tokenizer_config.json", "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"r\"}]}",
               53);
    check_prompt(NULL, ASK, NULL, "no chat template");
    write_text("tokenizer_config.json", "{\"chat_template\": 7}", 20);
    check_prompt(NULL, ASK, NULL, "chat_template");
    write_text("tokenizer_config.json", "{\"bos_token\": 7}", 16);
    check_prompt("chatml", ASK, NULL, "bos_token");
    clear();
    write_config("<s>", "</s>", NULL);
    check_prompt("{{ bos_token }}{{ messages[0].content }}", ASK, "<s>x", NULL);
    check_prompt("llama9", ASK, NULL, "'llama9': unknown, allowed are chatml");
    check_prompt("qwen2.5", ASK, NULL, "'qwen2.5': this version has it no more, allowed are chatml");
    write_text("special_tokens_map.json", "{\"pad_token\": {\"content\": \"<p>\"}}", 33);
    check_prompt("{{ pad_token }}{{ eos_token }}", ASK, "<p></s>", NULL);
    write_text("special_tokens_map.json", "{\"pad_token\": {\"content\": \"<p>\"}}", 32);
    check_prompt("{{ pad_token }}", ASK, NULL, "special_tokens_map.json");
    clear();
    check_prompt("llama2", ASK, NULL, "chat template llama2: it writes bos_token");
}

/* ---- messages of clients ---- */

#define PRINT "{% for m in messages %}{{ m }}{% endfor %}"
#define LOOP "{% for m in messages %}{% for p in m.content %}{{ p }}{% endfor %}{% endfor %}"
#define ONE(message) "{\"messages\": [" message "]}"

static void messages_of_clients_are_read(void)
{
    check_prompt(PRINT, ONE("{\"role\": \"developer\", \"content\": \"x\"}"),
                 "{'role': 'system', 'content': 'x'}", NULL);
    check_prompt(PRINT "{{ 'developer' }}", ONE("{\"role\": \"developer\", \"content\": \"\"}"),
                 "{'role': 'developer', 'content': ''}developer", NULL);
    check_prompt(PRINT,
                 ONE("{\"role\": \"user\", \"content\": \"x\", \"refusal\": null, \"annotations\": [], "
                     "\"audio\": {}, \"function_call\": null, \"id\": \"\"}"),
                 "{'role': 'user', 'content': 'x'}", NULL);
    check_prompt(PRINT, ONE("{\"role\": \"user\", \"content\": \"x\", \"annotations\": [1]}"), NULL,
                 "message 1.annotations (offset 62): found [1], a message has role");
    check_prompt(PRINT "{{ m.mood }}", ONE("{\"role\": \"user\", \"content\": \"x\", \"mood\": 2}"), NULL,
                 "'m' is undefined");
    check_prompt("{{ messages[0].mood }}", ONE("{\"role\": \"user\", \"content\": \"x\", \"mood\": 2}"), "2",
                 NULL);
    check_prompt("{{ messages[0].content }}",
                 ONE("{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, "
                     "{\"type\": \"text\", \"text\": \"\u00e9\"}]}"),
                 "a\n\xc3\xa9", NULL);
    check_prompt(LOOP, ONE("{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}"),
                 "{'type': 'text', 'text': 'a'}", NULL);
    check_prompt(LOOP, ONE("{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}"), NULL,
                 "message 1.content (offset 43): found");
    check_prompt(PRINT, ONE("{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}"), NULL,
                 "only parts {\"type\"");
    check_prompt(PRINT, ONE("{\"role\": \"user\", \"content\": 7}"), NULL, "message 1.content (offset");
    check_prompt(PRINT, ONE("{\"role\": \"user\"}"), NULL, "message 1 (offset 14): found");
    check_prompt(PRINT, ONE("{\"role\": \"user\", \"content\": null}"), NULL,
                 "a message is an object with role and content");
    check_prompt(PRINT, ONE("{\"content\": \"x\"}"), NULL, "a message is an object with role and content");
    check_prompt(PRINT, ONE("{\"role\": \"user\", \"role\": \"user\", \"content\": \"x\"}"), NULL,
                 "one role and one content");
    check_prompt(PRINT, ONE("7"), NULL, "a message is an object");
    check_prompt(PRINT, "{\"messages\": []}", NULL, "at least one message");
    check_prompt(
        PRINT,
        "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"gen\": true, \"continue\": true}", NULL,
        "exclude each other");
    check_prompt("a\n{% if %}", ASK, NULL, "the chat template given, line 2: ");
    check_prompt("{{ raise_exception('No ' + messages[0].role) }}", ASK, NULL,
                 "the chat template given, line 1: No user");
}

/* ---- options ---- */

static void options_are_variables(void)
{
    struct chat c;
    struct err e;
    struct json root;
    char *text, line[700];
    size_t n;
    time_t day;
    static const char t[] =
        "{{ strftime_now('%d %B %Y %H:%M') }}|{{ date_string }}|{{ enable_thinking }}|{{ thinking }}|"
        "{{ reasoning_effort }}|<|mark|><|im_end|>";
    CHECK(js_check(&root, "input", ASK, strlen(ASK), &e) == 0);
    struct chat_input in = input_of(&root);
    CHECK(chat_day(&in.day, "--chat-date", "2024-07-06", &e) == 0 &&
          chat_open(&c, dir, t, CHAT_TEXT, &e) == 0);
    in.date = "2024-07-06";
    in.thinking = CHAT_THINKING_OFF;
    CHECK(chat_render(&c, &in, &text, &n, &e) == 0, "%s", e.msg);
    CHECK(!strcmp(text, "06 July 2024 00:00|06 Jul 2024|False|False||<|mark|><|im_end|>"), "%s", text);
    free(text);
    in.date = "6 Jul 2024";
    in.thinking = CHAT_EFFORT_HIGH;
    CHECK(chat_render(&c, &in, &text, &n, &e) == 0, "%s", e.msg);
    CHECK(!strcmp(text, "06 July 2024 00:00|6 Jul 2024|||high|<|mark|><|im_end|>"), "%s", text);
    free(text);
    chat_notice(line, sizeof line, &c, &in);
    CHECK(!*line, "%s", line);
    struct tokenizer *qwen = open_tokenizer("qwen2");
    chat_marks_notice(line, sizeof line, &c, qwen);
    CHECK(strstr(line, "no tokens of this model: <|mark|>") && !strstr(line, "im_end"), "%s", line);
    tokenizer_close(qwen);
    chat_close(&c);
    CHECK(chat_open(&c, dir, "chatml", CHAT_TEXT, &e) == 0 && !chat_has_day(&c), "%s", e.msg);
    chat_notice(line, sizeof line, &c, &in);
    CHECK(!strcmp(line, "chat template chatml never names reasoning_effort, strftime_now"), "%s", line);
    chat_close(&c);
    CHECK(chat_day(&day, "--chat-date", "6 Jul 2024", &e) == 0 && day == in.day);
    CHECK(chat_day(&day, "--chat-date", NULL, &e) == 0 && day % 86400 == 0 &&
          llabs(day - time(NULL)) < 2 * 86400);
    CHECK(chat_day(&day, "--chat-date", "30 Feb 2024", &e) && strstr(e.msg, "'30 Feb 2024' is no day"), "%s",
          e.msg);
    CHECK(chat_day(&day, "--chat-date", "2024-07-06x", &e));
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/longhand-chat-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return 1;
    RUN(every_template_equals_transformers);
    RUN(everything_of_a_chat_equals_transformers);
    RUN(a_template_is_found_wherever_it_stands);
    RUN(messages_of_clients_are_read);
    RUN(options_are_variables);
    rmdir(dir);
    return test_end();
}
