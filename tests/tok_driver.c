/* Tokenizes line by line, for scripts/check_tokenizers.py.
 *
 *   tok_driver encode FILE [plain]     JSON strings in, one array of ids per line out ("plain": no template)
 *   tok_driver decode FILE [skip]      arrays of ids in, JSON strings out ("skip": without special tokens)
 *   tok_driver time FILE TEXT          seconds to load FILE and to encode the whole of TEXT
 *
 * Decoding also runs the stream decoder from the start, and exits with 1 if the texts differ. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/json.h"
#include "src/text/tokenizer.h"

static _Noreturn void die(const struct err *e)
{
    fprintf(stderr, "%s\n", e->msg);
    exit(e->code);
}

static void put_string(const char *s, size_t n)
{
    putchar('"');
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == '"' || s[i] == '\\')
            printf("\\u%04x", s[i]);
        else
            putchar(s[i]);
    puts("\"");
}

/* Reads the JSON string of a line. Unlike src/base/json.h it accepts \u0000, which is text, too. It needs
 * no escapes beyond U+00FF: the script writes those characters as they are. */
static size_t read_string(const char *line, size_t n, char *to)
{
    static const char from[] = "bfnrt\"\\/", is[] = "\b\f\n\r\t\"\\/";
    size_t w = 0;
    for (size_t i = 1; i < n && line[i] != '"'; i++) {
        unsigned x;
        if (line[i] != '\\')
            to[w++] = line[i];
        else if (line[++i] != 'u')
            to[w++] = is[strchr(from, line[i]) - from];
        else if (sscanf(line + i + 1, "00%2x", &x) == 1 && x < 0x80)
            to[w++] = (char)x, i += 4;
        else
            fprintf(stderr, "line: an escape this driver does not know\n"), exit(2);
    }
    return w;
}

static void encode_line(const struct tokenizer *t, const char *line, size_t n_line, char *work, bool specials)
{
    struct err e;
    int32_t *ids;
    size_t n;
    if (tokenizer_encode(t, &ids, &n, work, read_string(line, n_line, work), specials, &e))
        die(&e);
    putchar('[');
    for (size_t i = 0; i < n; i++)
        printf(i ? ",%d" : "%d", ids[i]);
    puts("]");
    free(ids);
}

static void decode_line(const struct tokenizer *t, const struct json *v, char *work, bool skip)
{
    struct err e;
    int32_t *ids = (int32_t *)work;
    size_t n = 0, n_text, w = 0;
    struct json x;
    char *text, *out;
    for (struct js_walk k = js_walk(v); js_next(&k, NULL, &x);)
        ids[n++] = atoi(x.s);
    if (tokenizer_decode(t, &text, &n_text, ids, n, skip, &e))
        die(&e);
    struct decode_stream s;
    decode_stream_start(&s, t, true, skip);
    out = malloc(n_text + decode_stream_max(t));
    for (size_t i = 0; i <= n; i++) {
        w += i < n ? decode_stream_push(&s, ids[i], out + w) : decode_stream_flush(&s, out + w);
        if (w > n_text || memcmp(out, text, w)) {
            fprintf(stderr, "the stream differs from the whole at token %zu of ", i);
            fprintf(stderr, "%.*s\n", (int)(v->end - v->s), v->s);
            exit(1);
        }
    }
    if (w != n_text) {
        fprintf(stderr, "the stream gives %zu bytes, the whole %zu\n", w, n_text);
        exit(1);
    }
    put_string(text, n_text);
    free(text);
    free(out);
}

static void run_lines(const struct tokenizer *t, bool decode, bool option)
{
    struct err e;
    char *line = NULL, *work = NULL;
    size_t max = 0;
    ssize_t n;
    while ((n = getline(&line, &max, stdin)) > 0) {
        struct json v;
        work = realloc(work, 4 * (size_t)n + 16);
        if (!decode)
            encode_line(t, line, (size_t)n, work, !option);
        else if (js_check(&v, "line", line, (size_t)n, &e))
            die(&e);
        else
            decode_line(t, &v, work, option);
    }
    free(line);
    free(work);
}

int main(int argc, char **argv)
{
    struct err e;
    char *json, *text = NULL;
    size_t n, n_text = 0, n_ids;
    int32_t *ids;
    struct tokenizer *t = NULL;
    if (argc < 3) {
        fprintf(stderr, "usage: tok_driver encode|decode|time FILE [plain|skip|TEXT]\n");
        return 2;
    }
    double t0 = clock_seconds();
    if (file_read(&json, &n, argv[2], 1 << 28, &e) || tokenizer_parse(&t, argv[2], json, n, SIZE_MAX, &e))
        die(&e);
    free(json);
    double loaded = clock_seconds() - t0;
    if (strcmp(argv[1], "time")) {
        run_lines(t, !strcmp(argv[1], "decode"), argc > 3);
    } else {
        if (argc < 4 || file_read(&text, &n_text, argv[3], 1 << 28, &e))
            die(&e);
        t0 = clock_seconds();
        if (tokenizer_encode(t, &ids, &n_ids, text, n_text, true, &e))
            die(&e);
        printf("load %.3f s, %zu bytes in memory; %zu bytes -> %zu ids in %.3f s\n", loaded,
               tokenizer_bytes(t), n_text, n_ids, clock_seconds() - t0);
        free(ids);
        free(text);
    }
    tokenizer_close(t);
    return 0;
}
