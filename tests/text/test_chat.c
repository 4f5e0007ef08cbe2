/* Chat templates: prompts and ids equal those of transformers (tests/data/chat,
 * tests/make/make_chat_fixtures.py); recognition; refusals. */
#include <dirent.h>
#include <unistd.h>

#include "src/text/chat.h"
#include "src/base/json.h"
#include "tests/test.h"

enum { MESSAGES_MAX = 16 };

struct fixture { char name[64], *data; struct json head; struct tokenizer *t; };
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

/* Checks one line of a fixture. */
static void check_case(const struct chat *c, const struct tokenizer *t, const struct json *line,
                       const char *where, size_t number)
{
    struct chat_message m[MESSAGES_MAX];
    char *role[MESSAGES_MAX], *content[MESSAGES_MAX], *date = member(line, "date"),
                                                      *error = member(line, "error"), *text;
    struct json list, one, v;
    size_t n = 0, size, n_want;
    struct err e;
    struct chat_options o = { .add_generation_prompt = flag(line, "gen"), .continue_final_message = flag(line,
        "continue"),
                              .thinking = flag(line, "no_thinking") ? CHAT_THINKING_OFF
                                        : flag(line, "thinking")    ? CHAT_THINKING_ON
                                                                    : CHAT_THINKING_OWN,
                              .date = date };
    js_get(line, "messages", &list, &e);
    for (struct js_walk w = js_walk(&list); js_next(&w, NULL, &one); n++) {
        struct js_walk pair = js_walk(&one);
        size_t n_role;
        if (n == MESSAGES_MAX)
            abort();
        js_next(&pair, NULL, &v), role[n] = text_of(&v, &n_role);
        js_next(&pair, NULL, &v), content[n] = text_of(&v, &m[n].n_content);
        m[n].role = role[n], m[n].content = content[n];
    }
    int rc = chat_render(c, m, n, &o, &text, &size, &e);
    if (error) {
        CHECK(rc && e.code == ERR_INPUT, "%s:%zu: made '%s', want '%s'", where, number, rc ? "" : text,
              error);
        CHECK(!rc || strstr(e.msg, error), "%s:%zu: %s, want %s", where, number, e.msg, error);
    } else {
        js_get(line, "text", &v, &e);
        char *want = text_of(&v, &n_want);
        CHECK(rc == 0, "%s:%zu: %s", where, number, e.msg);
        CHECK(rc || (size == n_want && !memcmp(text, want, size) && text[size] == 0),
              "%s:%zu: '%s', want '%s'", where, number, rc ? "" : text, want);
        free(want);
        int32_t *ids = NULL;
        size_t n_ids = 0, i = 0;
        js_get(line, "ids", &v, &e);
        int made = chat_encode(c, t, m, n, &o, &ids, &n_ids, &e);
        for (struct js_walk w = js_walk(&v); js_next(&w, NULL, &one); i++)
            CHECK(i < n_ids && ids[i] == atoi(one.s), "%s:%zu: id %zu", where, number, i);
        CHECK(i == n_ids, "%s:%zu: %zu ids, want %zu", where, number, n_ids, i);
        CHECK((made == 0) == (i > 0), "%s:%zu: %s", where, number, e.msg);
        free(ids);
    }
    if (rc == 0)
        free(text);
    for (size_t i = 0; i < n; i++)
        free(role[i]), free(content[i]);
    free(date);
    free(error);
}

/* Checks all lines of a fixture and returns their number. */
static size_t check_fixture(const char *name)
{
    char path[300], *data, *tokenizer = NULL;
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
         line = end + 1, number++) {
        struct json root, v, one;
        if (js_check(&root, path, line, (size_t)(end - line), &e)) {
            CHECK(false, "%s", e.msg);
            break;
        }
        if (number > 0) {
            check_case(&c, t, &root, name, number + 1);
            continue;
        }
        char *bos = member(&root, "bos"), *eos = member(&root, "eos"), file[300];
        tokenizer = member(&root, "tokenizer");
        write_config(bos, eos, NULL);
        CHECK(chat_open(&c, dir, name, &e) == 0, "%s", e.msg);
        snprintf(file, sizeof file, "tests/data/tokenizers/%s.json", tokenizer);
        char *json;
        size_t n_json;
        if (file_read(&json, &n_json, file, 1 << 26, &e) ||
            tokenizer_parse(&t, file, json, n_json, SIZE_MAX, &e)) {
            CHECK(false, "%s", e.msg);
            break;
        }
        free(json);
        js_get(&root, "hashes", &v, &e);
        for (struct js_walk w = js_walk(&v); js_next(&w, NULL, &one);) {
            size_t n_hash;
            char *hash = text_of(&one, &n_hash);
            const char *known = chat_template_name_of_hash(hash);
            CHECK(known && !strcmp(known, name), "%s: %s is %s", name, hash, known ? known : "unknown");
            free(hash);
        }
        free(bos);
        free(eos);
    }
    chat_close(&c);
    tokenizer_close(t);
    free(tokenizer);
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
    CHECK(n_names == 22, "%zu", n_names);
    clear();
}

/* The text of longhand's own ChatML template, from the fixture. */
static char *own_template(void)
{
    char *data, *text = NULL;
    size_t n;
    struct err e;
    struct json root, v, one;
    if (file_read(&data, &n, "tests/data/chat/chatml.jsonl", 1 << 26, &e))
        abort();
    js_check(&root, "chatml.jsonl", data, (size_t)(strchr(data, '\n') - data), &e);
    js_get(&root, "own", &v, &e);
    struct js_walk w = js_walk(&v);
    js_next(&w, NULL, &one);
    text = text_of(&one, &n);
    free(data);
    return text;
}

static void check_recognised(const char *what, bool known)
{
    struct chat c;
    struct err e;
    int rc = chat_open(&c, dir, NULL, &e);
    CHECK(rc == 0 || !known, "%s: %s", what, e.msg);
    if (rc == 0) {
        CHECK(!strcmp(chat_name(&c), "chatml") == known, "%s: %s", what, chat_name(&c));
        chat_close(&c);
    } else {
        CHECK(e.code == ERR_INPUT && strstr(e.msg, "--chat-template NAME") && strstr(e.msg, "zephyr"),
              "%s: %s", what, e.msg);
    }
}

static void a_template_is_recognised_wherever_it_stands(void)
{
    char *own = own_template(), other[4096], list[8192];
    size_t n = strlen(own);
    check_recognised("no file", false);
    write_config(NULL, NULL, NULL);
    check_recognised("no template", false);
    write_config(NULL, NULL, own);
    check_recognised("tokenizer_config.json", true);
    snprintf(other, sizeof other, "%s ", own);
    write_config(NULL, NULL, other);
    check_recognised("one space more", false);
    write_text("chat_template.jinja", own, n);
    check_recognised("chat_template.jinja goes before tokenizer_config.json", true);
    write_text("chat_template.jinja", own, n - 1);
    check_recognised("without the newline at its end", true);
    snprintf(other, sizeof other, "%s\n", own);
    write_text("chat_template.jinja", other, n + 1);
    check_recognised("with two", false);
    size_t k = 0;
    for (size_t i = 0; i < n; k++, i++) {
        if (own[i] == '\n')
            other[k++] = '\r';
        other[k] = own[i];
    }
    write_text("chat_template.jinja", other, k);
    check_recognised("CR LF", true);
    for (size_t i = 0; i < n; i++)
        other[i] = own[i] == '\n' ? '\r' : own[i];
    write_text("chat_template.jinja", other, n);
    check_recognised("CR", true);
    clear();
    write_config(NULL, NULL, own);
    char *config, *value;
    struct err e;
    if (file_read(&config, &n, path_of("tokenizer_config.json"), 1 << 20, &e))
        abort();
    value = strstr(config, "\"chat_template\": ") + 17;
    value[strlen(value) - 1] = 0;                /* drops the object's bracket */
    clear();
    n = (size_t)snprintf(list, sizeof list,
                         "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"x\"}, {\"name\": "
                         "\"default\", \"template\": %s}]}",
                         value);
    write_text("tokenizer_config.json", list, n);
    check_recognised("the default of several", true);
    clear();
    n = (size_t)snprintf(list, sizeof list, "{\"chat_template\": %s}", value);
    write_text("chat_template.json", list, n);
    check_recognised("chat_template.json", true);
    free(config);
    free(own);
    clear();
}

/* A template of no table runs; errors of the template are the caller's, in one line. */
static void check_program(const char *template, const char *want, const char *reason)
{
    struct chat c;
    struct err e = {0};
    char *text = NULL;
    size_t n;
    write_config("<s>", "</s>", template);
    int rc = chat_open(&c, dir, NULL, &e);
    if (rc == 0) {
        const struct chat_message m[] = { { "system", "S\0s", 3 }, { "user", " u ", 3 } };
        rc = chat_render(&c, m, 2, &(struct chat_options){ .add_generation_prompt = true }, &text, &n, &e);
        CHECK(strlen(chat_name(&c)) == 64, "%s", chat_name(&c));
        chat_close(&c);
    }
    CHECK((rc == 0) == (want != NULL), "%s: %s", template, rc ? e.msg : text);
    CHECK(rc || !want || (n == strlen(want) + 1 && !memcmp(text + 2, want + 1, n - 2)), "%s: %s", template, text);
    CHECK(!reason || (e.code == ERR_INPUT && strstr(e.msg, reason)), "%s: %s", template, e.msg);
    if (rc == 0)
        free(text);
}

static void a_template_of_its_own_is_run(void)
{
    check_program("{% for m in messages %}{{ m.content + '|' + m['role'] | upper }}{% endfor %}{{ bos_token }}"
                  "{{ add_generation_prompt }}{{ tools is none }}", "Ss|SYSTEM u |USER<s>TrueTrue", NULL);
    check_program("a\n{% if %}", NULL, "tokenizer_config.json, line 2: ");
    check_program("{{ raise_exception('No ' + messages[0].role) }}", NULL, "tokenizer_config.json, line 1: No system");
    clear();
}

static int render(const char *name, const char *role, const struct chat_options *o, struct err *e)
{
    struct chat c;
    char *text;
    size_t n;
    if (chat_open(&c, dir, name, e))
        return -1;
    int rc = chat_render(&c, &(struct chat_message){ role, "x", 1 }, role[0] ? 1 : 0, o, &text, &n, e);
    if (rc == 0)
        free(text);
    chat_close(&c);
    return rc;
}

static void refusals_say_what_is_wrong(void)
{
    struct err e;
    const struct chat_options gen = { .add_generation_prompt = true }, both = { true, true };
    write_config(NULL, NULL, NULL);
    CHECK(render("chatml", "user", &gen, &e) == 0, "%s", e.msg);
    CHECK(render("chatml", "tool", &gen, &e) && strstr(e.msg, "message 1: role 'tool'"), "%s", e.msg);
    CHECK(render("chatml", "", &gen, &e) && strstr(e.msg, "at least one message"), "%s", e.msg);
    CHECK(render("chatml", "user", &both, &e) && strstr(e.msg, "exclude each other"), "%s", e.msg);
    CHECK(render("llama2", "user", &gen, &e) && strstr(e.msg, "BOS"), "%s", e.msg);
    CHECK(render("ChatML", "user", &gen, &e) && strstr(e.msg, "'ChatML'") && strstr(e.msg, "qwen2.5"), "%s",
          e.msg);
    write_text("special_tokens_map.json", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}", 40);
    CHECK(render("llama2", "user", &gen, &e), "broken JSON is refused");
    write_text("special_tokens_map.json", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}", 41);
    CHECK(render("llama2", "user", &gen, &e) == 0, "%s", e.msg);
    struct chat c;
    char *text;
    size_t n;
    CHECK(chat_open(&c, dir, "chatml", &e) == 0, "%s", e.msg);
    CHECK(chat_render(&c, &(struct chat_message){ "user", "a\xff", 2 }, 1, &gen, &text, &n, &e) &&
          strstr(e.msg, "0xff at offset 1"), "%s", e.msg);
    chat_close(&c);
    clear();
    write_text("tokenizer_config.json", "{\"chat_template\": 7}", 20);
    CHECK(chat_open(&c, dir, NULL, &e) && e.code == ERR_INPUT && strstr(e.msg, "chat_template"), "%s", e.msg);
    write_text("tokenizer_config.json", "{\"bos_token\": 7}", 16);
    CHECK(chat_open(&c, dir, "chatml", &e) && e.code == ERR_INPUT && strstr(e.msg, "bos_token"), "%s", e.msg);
    clear();
}

int main(void)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/longhand-chat-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(dir))
        return 1;
    RUN(every_template_equals_transformers);
    RUN(a_template_is_recognised_wherever_it_stands);
    RUN(a_template_of_its_own_is_run);
    RUN(refusals_say_what_is_wrong);
    rmdir(dir);
    return test_end();
}
