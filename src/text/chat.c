/* Opens chat templates: where they stand, and the special tokens that they name. src/text/chat_render.c runs
 * them. Start at chat_open. */
#include "src/text/chat.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "src/base/sha256.h"
#include "src/model/model_files.h"
#include "src/text/chat_builtin.h"

enum { FILE_BYTES_MAX = 1 << 26 };

/* ---- the files of a model ---- */

/* Reads a JSON file of the directory; *data is NULL if it does not exist. */
static int read_json(char **data, struct json *root, char path[PATH_BYTES], const char *dir, const char *name,
                     struct err *e)
{
    size_t n;
    const int rc = model_file_read(data, &n, path, PATH_BYTES, dir, name, FILE_BYTES_MAX, e);
    if (rc || !*data)
        return rc;
    if (js_check(root, path, *data, n, e) == 0 &&
        (js_kind(root) == JS_OBJECT || js_bad(root, e, "an object is needed")))
        return 0;
    free(*data);
    *data = NULL;
    return -1;
}

/* Writes the tokens of a file: members *_token whose value is a text or an added token with its content. */
static int write_tokens(struct json_writer *w, const struct json *root, struct err *e)
{
    static const char end[] = "_token";
    struct json key, v, content;
    for (struct js_walk walk = js_walk(root); js_next(&walk, &key, &v);) {
        char *name = js_strdup(&key);
        if (!name)
            return err_set(e, ERR_FAILED, "%s: no memory for a token", root->file);
        const size_t n = strlen(name), n_end = sizeof end - 1;
        const bool main_one = strcmp(name, "bos_token") == 0 || strcmp(name, "eos_token") == 0;
        int rc = 0;
        if (n > n_end && strcmp(name + n - n_end, end) == 0) {
            v.key[0] = name;
            if (js_kind(&v) == JS_OBJECT && js_get(&v, "content", &content, e) > 0)
                v = content;
            if (js_kind(&v) == JS_STRING)
                jw_value(w, name, &v);
            else if (main_one && js_kind(&v) != JS_NULL)
                rc = js_bad(&v, e, "a token's text is needed");
        }
        free(name);
        if (rc)
            return -1;
    }
    return 0;
}

/* Reads the tokens from tokenizer_config.json, and from special_tokens_map.json, which older tools wrote. */
static int read_tokens(struct chat *c, const char *dir, struct err *e)
{
    static const char *const files[] = { "special_tokens_map.json", "tokenizer_config.json" };
    size_t size;
    FILE *f = memory_file(&c->tokens, &size);
    struct json_writer w = { .f = f };
    int rc = f ? 0 : err_set(e, ERR_FAILED, "no memory for the tokens of a chat");
    if (f)
        jw_open(&w, NULL, '{');
    for (size_t i = 0; i < 2 && rc == 0; i++) {
        char path[PATH_BYTES], *data;
        struct json root;
        rc = read_json(&data, &root, path, dir, files[i], e) || (data && write_tokens(&w, &root, e)) ? -1 : 0;
        free(data);
    }
    if (f)
        jw_close(&w, '}');
    return f && stream_end(f) && rc == 0 ? err_set(e, ERR_FAILED, "no memory for the tokens of a chat") : rc;
}

static int copy_string(char **out, const struct json *v, struct err *e)
{
    *out = js_strdup(v);
    return *out ? 0 : err_set(e, ERR_FAILED, "%s: no memory for a template", v->file);
}

/* Reads chat_template of a JSON file: a text, or a list of templates with names. A template that is not there
 * stays NULL. */
static int templates_of_json(char **text, char **tool_use, const struct json *root, struct err *e)
{
    struct json v, one, name;
    int found = js_get(root, "chat_template", &v, e);
    if (found <= 0 || js_kind(&v) == JS_NULL)
        return MIN(found, 0);
    if (js_kind(&v) == JS_STRING)
        return copy_string(text, &v, e);
    if (js_kind(&v) != JS_ARRAY)
        return js_bad(&v, e, "a text is needed, or a list of objects with name and template");
    for (struct js_walk w = js_walk(&v); js_next(&w, NULL, &one);) {
        if (js_kind(&one) != JS_OBJECT)
            return js_bad(&one, e, "an object with name and template is needed");
        if ((found = js_get(&one, "name", &name, e)) < 0)
            return -1;
        char **to = !found                     ? NULL
                    : js_is(&name, "default")  ? text
                    : js_is(&name, "tool_use") ? tool_use
                                               : NULL;
        if (!to || *to)
            continue;
        if ((found = js_get(&one, "template", &v, e)) <= 0 || js_kind(&v) != JS_STRING)
            return found < 0 ? -1 : js_bad(&one, e, "template is missing or no text");
        if (copy_string(to, &v, e))
            return -1;
    }
    return 0;
}

/* Reads a text file of the directory; *text stays NULL if there is none. */
static int read_file(char **text, char path[PATH_BYTES], const char *dir, const char *name, struct err *e)
{
    size_t n;
    if (snprintf(path, PATH_BYTES, "%s/%s", dir, name) >= PATH_BYTES || access(path, F_OK))
        return 0;
    return file_read(text, &n, path, FILE_BYTES_MAX, e);
}

/* Reads the model's templates, and the path of the file. They are NULL if there are none. */
static int read_templates(char **text, char **tool_use, char path[PATH_BYTES], const char *dir, struct err *e)
{
    static const char *const files[] = { "chat_template.json", "tokenizer_config.json" };
    char other[PATH_BYTES];
    *text = *tool_use = NULL;
    int rc = read_file(text, path, dir, "chat_template.jinja", e);
    if (*text)
        return read_file(tool_use, other, dir, "additional_chat_templates/tool_use.jinja", e);
    for (size_t i = 0; i < 2 && !*text && rc == 0; i++) {
        char *data;
        struct json root;
        rc = read_json(&data, &root, path, dir, files[i], e);
        if (rc == 0 && data)
            rc = templates_of_json(text, tool_use, &root, e);
        free(data);
    }
    return rc;
}

int chat_template_text(char **text, const char *place, struct err *e)
{
    char path[PATH_BYTES], *tool_use;
    const int rc = read_templates(text, &tool_use, path, place, e);
    free(tool_use);
    return rc;
}

/* ---- opening ---- */

/* Parses the texts of templates. `format` with `what` is how messages call them. */
static int open_texts(struct chat *c, const char *format, const char *what, const char *text,
                      const char *tool_use, struct err *e)
{
    if (asprintf(&c->label, format, what) < 0) {
        c->label = NULL;
        return err_set(e, ERR_FAILED, "no memory for a chat template");
    }
    sha256_text(c->name, text, strlen(text));
    return jinja_open(&c->t, c->label, text, strlen(text), e) ||
                   (tool_use && jinja_open(&c->tool_use, c->label, tool_use, strlen(tool_use), e))
               ? -1
               : 0;
}

static int open_own(struct chat *c, const char *dir, struct err *e)
{
    char path[PATH_BYTES], *text, *tool_use;
    int rc = read_templates(&text, &tool_use, path, dir, e);
    if (rc == 0 && !text)
        rc = err_set(e, ERR_INPUT,
                     ERR_PATH "the model has no chat template; --chat-template names one of %s, or a file",
                     dir, CHAT_NAMES);
    if (rc == 0)
        rc = open_texts(c, "%s", path, text, tool_use, e);
    free(text);
    free(tool_use);
    return rc;
}

static int open_file(struct chat *c, const char *path, struct err *e)
{
    char *text;
    size_t n;
    if (file_read(&text, &n, path, FILE_BYTES_MAX, e))
        return -1;
    const int rc = open_texts(c, "%s", path, text, NULL, e);
    free(text);
    return rc;
}

static int open_builtin(struct chat *c, size_t i, struct err *e)
{
    static const char *const tokens[] = { "bos_token", "eos_token" };
    struct json root, v;
    if (open_texts(c, "chat template %s", chat_builtin[i].name, chat_builtin[i].text, NULL, e) ||
        js_check(&root, "tokens", c->tokens, strlen(c->tokens), e))
        return -1;
    snprintf(c->name, sizeof c->name, "%s", chat_builtin[i].name);
    for (size_t k = 0; k < 2; k++) {
        bool some = false;
        struct json key;
        for (struct js_walk w = js_walk(&root); js_next(&w, &key, &v);)
            some |= js_is(&key, tokens[k]);
        if (!some && jinja_names(c->t, tokens[k]))
            return err_set(e, ERR_INPUT, "%s: it writes %s, and the model's tokenizer_config.json has none",
                           c->label, tokens[k]);
    }
    return 0;
}

bool chat_name_is_gone(const char *name)
{
    for (size_t i = 0; i < sizeof chat_gone / sizeof *chat_gone; i++)
        if (strcmp(chat_gone[i], name) == 0)
            return true;
    return false;
}

static int open_given(struct chat *c, const char *template, enum chat_source source, struct err *e)
{
    for (size_t i = 0; i < sizeof chat_builtin / sizeof *chat_builtin; i++)
        if (strcmp(chat_builtin[i].name, template) == 0)
            return open_builtin(c, i, e);
    if (strchr(template, '{'))
        return open_texts(c, "%s", "the chat template given", template, NULL, e);
    if (source == CHAT_FILE && access(template, F_OK) == 0)
        return open_file(c, template, e);
    return err_set(e, ERR_INPUT, "chat template '%s': %s, allowed are %s, %s", template,
                   chat_name_is_gone(template) ? "this version has it no more" : "unknown", CHAT_NAMES,
                   source == CHAT_FILE ? "a file, and a text in Jinja" : "and a text in Jinja");
}

int chat_open(struct chat *c, const char *dir, const char *template, enum chat_source source, struct err *e)
{
    *c = (struct chat){0};
    if (read_tokens(c, dir, e) == 0 &&
        (template ? open_given(c, template, source, e) : open_own(c, dir, e)) == 0)
        return 0;
    chat_close(c);
    return -1;
}

void chat_close(struct chat *c)
{
    jinja_close(c->t);
    jinja_close(c->tool_use);
    free(c->label);
    free(c->tokens);
    *c = (struct chat){0};
}
