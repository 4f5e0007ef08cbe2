/* longhand tokenize: texts to token ids and back, whole or line by line (--jsonl). struct lines reads
 * lines; start at tokenize_lines and tokenize_whole. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/input.h"
#include "src/base/json.h"
#include "src/base/json_write.h"
#include "src/base/output.h"
#include "src/cli/verbs.h"
#include "src/request/chat_options.h"
#include "src/request/model_options.h"
#include "src/text/tokenizer.h"

enum { LINE_BYTES_MAX = 1 << 30, INPUT_BYTES = 1 << 20 };

/* Reads the lines of a file one at a time. Before a read that may block, the output so far is flushed. */
struct lines {
    int fd; const char *name;
    char *buf; size_t from, to, room;
    size_t number;                   /* of the current line, from 1 */
    bool end;
};

static int lines_open(struct lines *l, const char *path, struct err *e)
{
    bool std = !path || strcmp(path, "-") == 0;
    *l = (struct lines){ .fd = std ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC),
                         .name = std ? "standard input" : path, .room = INPUT_BYTES };
    if (l->fd < 0)
        return err_set(e, ERR_INPUT, "%s: cannot open: %s", path, strerror(errno));
    l->buf = malloc(l->room);
    return l->buf ? 0 : err_set(e, ERR_FAILED, "out of memory");
}

static void lines_close(struct lines *l)
{
    if (l->fd > STDIN_FILENO)
        close(l->fd);
    free(l->buf);
}

static int lines_fill(struct lines *l, struct err *e)
{
    if (l->from > 0) {
        memmove(l->buf, l->buf + l->from, l->to - l->from);
        l->to -= l->from;
        l->from = 0;
    }
    if (l->to == l->room) {
        char *p = l->room >= LINE_BYTES_MAX ? NULL : realloc(l->buf, 2 * l->room);
        if (!p)
            return err_set(e, ERR_INPUT, "%s: line %zu is longer than %zu bytes", l->name, l->number + 1,
                           l->room);
        l->buf = p;
        l->room *= 2;
    }
    if (stdout_finish(e))
        return -1;
    for (;;) {
        ssize_t r = read(l->fd, l->buf + l->to, l->room - l->to);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return err_set(e, ERR_INPUT, "%s: cannot read: %s", l->name, strerror(errno));
        l->end = r == 0;
        l->to += (size_t)r;
        return 0;
    }
}

/* The next line, without its line end; valid until the next call. Returns 1, 0 at the end of the file, or
 * -1. */
static int lines_next(struct lines *l, char **line, size_t *n, struct err *e)
{
    size_t seen = 0;
    for (;;) {
        char *nl = memchr(l->buf + l->from + seen, '\n', l->to - l->from - seen);
        if (nl || (l->end && l->to > l->from)) {
            *line = l->buf + l->from;
            *n = (nl ? (size_t)(nl - l->buf) : l->to) - l->from;
            l->from += *n + (nl != NULL);
            l->number++;
            return 1;
        }
        if (l->end)
            return 0;
        seen = l->to - l->from;
        if (lines_fill(l, e))
            return -1;
    }
}

/* ---- one line of JSON ---- */

/* Checks a line; `name` holds what messages call it. */
static int line_value(struct json *v, char name[PATH_BYTES + 32], const struct lines *l, const char *line,
                      size_t n, struct err *e)
{
    snprintf(name, PATH_BYTES + 32, "%s: line %zu", l->name, l->number);
    return js_check_with_nul(v, name, line, n, e);
}

/* Reads a JSON array of ids into (*ids)[0..*n_ids), which has room for *room and grows. */
static int line_ids(const struct json *v, int32_t **ids, size_t *n_ids, size_t *room, struct err *e)
{
    struct json x;
    size_t id;
    if (js_kind(v) != JS_ARRAY)
        return js_bad(v, e, "allowed is an array of token ids");
    *n_ids = 0;
    for (struct js_walk w = js_walk(v); js_next(&w, NULL, &x);) {
        if (js_whole_size(&x, 0, INT32_MAX, &id, e))
            return -1;
        if (*n_ids == *room) {
            size_t more = *room ? 2 * *room : 1024;
            int32_t *q = realloc(*ids, more * sizeof *q);
            if (!q)
                return err_set(e, ERR_FAILED, "out of memory");
            *ids = q;
            *room = more;
        }
        (*ids)[(*n_ids)++] = (int32_t)id;
    }
    return 0;
}

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
        putc_unlocked('\n', stdout);
    } else {
        fwrite(text, 1, n, stdout);
    }
    free(text);
    return 0;
}

static int tokenize_lines(const struct tokenizer *t, const char *path, bool decode, struct err *e)
{
    struct lines l;
    struct json v;
    char name[PATH_BYTES + 32], *line;
    int32_t *ids = NULL;
    size_t n, n_ids = 0, room = 0;
    int more = 0, rc = lines_open(&l, path, e);
    while (rc == 0 && (more = lines_next(&l, &line, &n, e)) > 0) {
        rc = line_value(&v, name, &l, line, n, e);
        if (rc == 0 && !decode)
            rc = encode_line(t, line, &v, e);
        else if (rc == 0 && (rc = line_ids(&v, &ids, &n_ids, &room, e)) == 0 &&
                 (rc = decode_ids(t, ids, n_ids, true, e)))
            err_while(e, "%s", name);
    }
    free(ids);
    lines_close(&l);
    return rc || more < 0 ? -1 : 0;
}

/* ---- whole texts ---- */

static int whole_ids(int32_t **ids, size_t *n_ids, const char *text, size_t n, const char *name,
                     struct err *e)
{
    size_t room = n / 2 + 1;                     /* an id takes at least a digit and a space */
    *n_ids = 0;
    *ids = malloc(room * sizeof **ids);
    if (!*ids)
        return err_set(e, ERR_FAILED, "out of memory");
    for (const char *p = text, *end = text + n; p < end;) {
        char word[16] = "";
        size_t len = 0;
        long v;
        if (strchr(" \t\r\n,[]", *p) && *p) {
            p++;
            continue;
        }
        while (p + len < end && p[len] && !strchr(" \t\r\n,[]", p[len]))
            len++;
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
