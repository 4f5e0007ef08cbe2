/* longhand tokenize: texts to token ids and back, whole or line by line (--jsonl). Start at tokenize_lines
 * and tokenize_whole. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/input.h"
#include "src/base/json.h"
#include "src/base/json_write.h"
#include "src/base/output.h"
#include "src/cli/verbs.h"
#include "src/request/batch_line.h"
#include "src/request/chat_options.h"
#include "src/request/model_options.h"
#include "src/text/tokenizer.h"

enum { LINE_BYTES_MAX = 1 << 30, INPUT_BYTES = 1 << 20 };

/* A file of which getline reads one line after the other. */
struct lines {
    int fd; const char *path;
    size_t number, bytes;            /* of lines, and of the line that is read; a buffer is not exact */
    bool failed; struct err *e;
};

/* Before a read that may block, the output so far is flushed. */
static ssize_t lines_fill(void *of, char *p, size_t n)
{
    struct lines *l = of;
    ssize_t r = -1;
    if (l->bytes > LINE_BYTES_MAX)
        err_set(l->e, ERR_INPUT, "%s: line %zu is longer than %d bytes", input_name(l->path), l->number + 1,
                LINE_BYTES_MAX);
    else if (stdout_finish(l->e) == 0)
        r = input_read(l->fd, l->path, p, n, l->e);
    l->failed = r < 0;
    l->bytes += r > 0 ? (size_t)r : 0;
    return r;
}

/* printf would take as long as the encoding. */
static void put_id(int32_t id)
{
    char s[12], *p = s + sizeof s;
    uint32_t v = (uint32_t)id;
    do
        *--p = (char)('0' + v % 10);
    while (v /= 10);
    fwrite_unlocked(p, 1, (size_t)(s + sizeof s - p), stdout);
}

static void put_ids(const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        put_id(ids[i]);
        putc_unlocked('\n', stdout);
    }
}

static int encode_line(const struct tokenizer *t, char *line, const struct json *v, struct err *e)
{
    int32_t *ids;
    size_t n_ids;
    if (js_kind(v) != JS_STRING)
        return js_bad(v, e, "allowed is a string");
    const size_t n = js_unescape(v, line);       /* in place: an escape is longer than its character */
    if (tokenizer_encode(t, &ids, &n_ids, line, n, true, e))
        return err_while(e, "%s", v->file);
    putc_unlocked('[', stdout);
    for (size_t i = 0; i < n_ids; i++) {
        fputs_unlocked(i ? ", " : "", stdout);
        put_id(ids[i]);
    }
    fputs_unlocked("]\n", stdout);
    free(ids);
    return 0;
}

static int decode_ids(const struct tokenizer *t, const int32_t *ids, size_t n_ids, bool json, struct err *e)
{
    char *text;
    size_t n;
    if (tokenizer_decode(t, &text, &n, ids, n_ids, true, e))
        return -1;
    if (json) {
        jw_string(stdout, text, n);
        putchar('\n');
    } else {
        fwrite(text, 1, n, stdout);
    }
    free(text);
    return 0;
}

/* One line of JSON. `name` is what messages call it. */
static int tokenize_line(const struct tokenizer *t, const char *name, char *line, size_t n, bool decode,
                         struct err *e)
{
    struct json v;
    int32_t *ids;
    size_t n_ids;
    if (js_check_with_nul(&v, name, line, n, e))
        return -1;
    if (!decode)
        return encode_line(t, line, &v, e);
    if (js_kind(&v) != JS_ARRAY)
        return js_bad(&v, e, "allowed is an array of token ids");
    if (batch_line_ids(&v, INT32_MAX, &ids, &n_ids, e))
        return -1;
    const int rc = decode_ids(t, ids, n_ids, true, e);
    free(ids);
    return rc ? err_while(e, "%s", name) : 0;
}

static int tokenize_lines(const struct tokenizer *t, const char *path, bool decode, struct err *e)
{
    struct lines l = { .fd = input_open(path, e), .path = path, .e = e };
    char name[PATH_BYTES + 32], *line = NULL, *buffer = malloc(INPUT_BYTES);
    size_t room = 0;
    ssize_t n;
    FILE *f = buffer ? fopencookie(&l, "r", (cookie_io_functions_t){ .read = lines_fill }) : NULL;
    int rc = l.fd < 0 ? -1 : f ? setvbuf(f, buffer, _IOFBF, INPUT_BYTES)
                               : err_set(e, ERR_FAILED, "out of memory");
    for (; rc == 0 && (n = getline(&line, &room, f)) > 0 && !l.failed; l.bytes = 0) {
        snprintf(name, sizeof name, "%s: line %zu", input_name(path), ++l.number);
        rc = tokenize_line(t, name, line, (size_t)n - (line[n - 1] == '\n'), decode, e);
    }
    if (rc == 0 && !l.failed && !feof(f))
        rc = err_set(e, ERR_FAILED, "out of memory");
    if (f)
        fclose(f);
    input_close(l.fd);
    free(buffer);
    free(line);
    return rc || l.failed ? -1 : 0;
}

/* ---- whole texts ---- */

static int whole_ids(int32_t **ids, size_t *n_ids, const char *text, size_t n, const char *name,
                     struct err *e)
{
    static const char between[] = " \t\r\n,[]";
    size_t room = n / 2 + 1;                     /* an id takes at least a digit and a space */
    *n_ids = 0;
    *ids = malloc(room * sizeof **ids);
    if (!*ids)
        return err_set(e, ERR_FAILED, "out of memory");
    for (const char *p = text + strspn(text, between); p < text + n; p += strspn(p, between)) {
        char word[16] = "";
        const size_t len = strcspn(p, between);
        long v;
        memcpy(word, p, MIN(len, sizeof word - 1));
        if (len >= sizeof word || len == 0 || parse_long(&v, name, word, 0, INT32_MAX, e))
            return err_set(e, ERR_INPUT, "%s: offset %zu: '%s' is not a token id", name, (size_t)(p - text),
                           word);
        (*ids)[(*n_ids)++] = (int32_t)v;
        p += len;
    }
    return 0;
}

static int tokenize_whole(const struct tokenizer *t, const char *path, bool decode, struct err *e)
{
    int32_t *ids = NULL;
    char *text;
    size_t n, n_ids;
    int rc;
    if (decode ? text_read(&text, &n, path, e) : text_read_utf8(&text, &n, path, e))
        return -1;
    if (decode) {
        rc = whole_ids(&ids, &n_ids, text, n, path, e) || decode_ids(t, ids, n_ids, false, e) ? -1 : 0;
    } else if (!(rc = tokenizer_encode(t, &ids, &n_ids, text, n, true, e))) {
        put_ids(ids, n_ids);
    }
    free(ids);
    free(text);
    return rc;
}

/* --messages: the ids of the prompt that a chat template makes, or with --render its text. */
static int tokenize_chat(const struct tokenizer *t, const char *dir, const struct options *o, struct err *e)
{
    struct chat_prompt p;
    if (o->n_args || o->decode || o->jsonl)
        return err_set(e, ERR_INPUT, "tokenize: --messages and %s: only one of them is allowed",
                       o->n_args ? o->arg[0] : o->decode ? "--decode" : "--jsonl");
    if (conversation_open(&p, dir, t, o, NULL, 0, e))
        return -1;
    if (o->render)
        fwrite(p.text, 1, p.n, stdout);
    else
        put_ids(p.ids, p.n_ids);
    chat_prompt_free(&p);
    return 0;
}

int cmd_tokenize(const struct options *o, struct err *e)
{
    static struct config config;
    struct tokenizer *t;
    struct err ignored;
    char dir[PATH_BYTES];
    if (model_dir(dir, o, e))
        return -1;
    /* A tokenizer works without a model. Where longhand cannot run the configuration, ids are limited by
     * the tokenizer alone. */
    size_t vocab = config_read(&config, dir, &ignored) ? INT32_MAX : config.vocab;
    if (tokenizer_open(&t, dir, vocab, e))
        return -1;
    const char *path = o->n_args ? o->arg[0] : "-";
    int rc = chat_check_options(o, e)   ? -1
             : o->messages              ? tokenize_chat(t, dir, o, e)
             : o->render                ? err_set(e, ERR_INPUT, "--render needs --messages")
             : o->jsonl ? tokenize_lines(t, path, o->decode, e) : tokenize_whole(t, path, o->decode, e);
    tokenizer_close(t);
    if (rc)
        return -1;
    return stdout_finish(e);
}
