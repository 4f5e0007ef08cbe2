/* The tokenizer: fixtures of Hugging Face `tokenizers` (tests/make/make_tokenizers.py), streams, refusals. */
#include "src/base/json.h"
#include "src/text/tokenizer.h"
#include "src/text/tokenizer_tables.h"
#include "tests/bad.h"

static const char *const kinds[] = { "crossing", "gpt2", "gpt2-prefix", "llama2", "llama2-metaspace",
                                     "llama3", "metaspace-always",
                                     "metaspace-never", "mistral-v1", "mistral-v3", "qwen2", "qwen3",
                                     "qwen3.5", "tekken", "gpt-4o", "gemma", "vicuna", "demo" };
enum { KINDS = sizeof kinds / sizeof *kinds };

static struct tokenizer *load(const char *kind)
{
    char path[200], *json;
    size_t n;
    struct err e;
    struct tokenizer *t = NULL;
    if (strcmp(kind, "demo") == 0)
        snprintf(path, sizeof path, "models/demo/tokenizer.json");
    else
        snprintf(path, sizeof path, "build/data/tokenizers/%s.json", kind);
    if (file_read(&json, &n, path, 1 << 24, &e) == 0) {
        CHECK(tokenizer_parse(&t, path, json, n, SIZE_MAX, &e) == 0, "%s", e.msg);
        free(json);
    } else {
        CHECK(false, "%s", e.msg);
    }
    return t;
}

static int32_t find(const struct tokenizer *t, const char *content)
{
    return (int32_t)tok_find(t, content, strlen(content));
}

static char *text_of(const struct json *v, size_t *n)
{
    char *s = malloc((size_t)(v->end - v->s));
    *n = js_unescape(v, s);
    return s;
}

static int32_t *ids_of(const struct json *v, size_t *n)
{
    int32_t *ids = malloc((size_t)(v->end - v->s) * sizeof *ids);
    struct json x;
    *n = 0;
    for (struct js_walk w = js_walk(v); js_next(&w, NULL, &x);)
        ids[(*n)++] = atoi(x.s);
    return ids;
}

static void check_encode(const struct tokenizer *t, const char *kind, const char *s, size_t n,
                         const struct json *want, bool specials)
{
    size_t n_ids, n_want;
    int32_t *ids, *want_ids = ids_of(want, &n_want);
    struct err e;
    CHECK(tokenizer_encode(t, &ids, &n_ids, s, n, specials, &e) == 0, "%s", e.msg);
    CHECK(n_ids == n_want && !memcmp(ids, want_ids, n_ids * sizeof *ids), "%s: %.*s: %zu ids, want %.*s",
          kind, (int)n, s, n_ids, (int)(want->end - want->s), want->s);
    free(ids);
    free(want_ids);
}

/* Decodes as a stream, and checks that every piece is whole code points. The caller frees the text. */
static char *stream(const struct tokenizer *t, const int32_t *ids, size_t n_ids, bool at_start, bool skip,
                    size_t *n)
{
    struct decode_stream s;
    size_t max = decode_stream_max(t), room = max + 1;
    char *out = malloc(room);
    *n = 0;
    decode_stream_start(&s, t, at_start, skip);
    for (size_t i = 0; i <= n_ids; i++) {
        if (room - *n < max)
            out = realloc(out, room = 2 * room + max);
        size_t k = i < n_ids ? decode_stream_push(&s, ids[i], out + *n) : decode_stream_flush(&s, out + *n);
        CHECK(k <= max && utf8_valid_prefix(out + *n, k) == k, "piece %zu", i);
        *n += k;
    }
    return out;
}

/* Checks that whole-list and stream decoding give `want`. With want_n -1 only that both agree. */
static void check_decode(const struct tokenizer *t, const char *kind, const int32_t *ids, size_t n_ids,
                         bool skip, const char *want, size_t n_want)
{
    size_t n, n_stream;
    char *text, *pieces;
    struct err e;
    CHECK(tokenizer_decode(t, &text, &n, ids, n_ids, skip, &e) == 0, "%s", e.msg);
    CHECK(strlen(text) <= n && text[n] == 0 && utf8_valid_prefix(text, n) == n);
    if (want)
        CHECK(n == n_want && !memcmp(text, want, n), "%s: got \"%s\", want \"%.*s\"", kind, text, (int)n_want,
              want);
    pieces = stream(t, ids, n_ids, true, skip, &n_stream);
    CHECK(n_stream == n && !memcmp(pieces, text, n), "%s: the stream gives \"%.*s\", the whole \"%s\"", kind,
          (int)n_stream, pieces, text);
    free(text);
    free(pieces);
}

static void ids_and_texts_equal_hugging_face(void)
{
    size_t n_lines = 0;
    for (size_t k = 0; k < KINDS; k++) {
        char path[200], *line = NULL;
        size_t max = 0;
        ssize_t len;
        struct err e;
        struct tokenizer *t = load(kinds[k]);
        snprintf(path, sizeof path, "build/data/tokenizers/%s.jsonl", kinds[k]);
        FILE *f = fopen(path, "r");
        CHECK(t && f, "%s", path);
        while (t && f && (len = getline(&line, &max, f)) > 0) {
            struct json row, v[5];
            size_t i = 0, n, n_ids, n_want;
            CHECK(js_check(&row, path, line, (size_t)len, &e) == 0, "%s", e.msg);
            for (struct js_walk w = js_walk(&row); i < 5 && js_next(&w, NULL, &v[i]);)
                i++;
            CHECK(i == 5);
            char *text = text_of(&v[0], &n);
            int32_t *ids = ids_of(&v[1], &n_ids);
            check_encode(t, kinds[k], text, n, &v[1], true);
            check_encode(t, kinds[k], text, n, &v[2], false);
            for (size_t skip = 0; skip < 2; skip++) {
                char *want = text_of(&v[3 + skip], &n_want);
                check_decode(t, kinds[k], ids, n_ids, skip, want, n_want);
                free(want);
            }
            free(text);
            free(ids);
            n_lines++;
        }
        free(line);
        if (f)
            fclose(f);
        tokenizer_close(t);
    }
    CHECK(n_lines >= 30 * KINDS, "%zu lines", n_lines);
}

static uint64_t seed = 1;
static uint32_t rnd(uint32_t n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((seed >> 33) % n);
}

/* Random ids. Most decode to invalid UTF-8: byte tokens, and tokens that end inside a code point, in any
 * order. */
static void streams_equal_whole_lists(void)
{
    for (size_t k = 0; k < KINDS; k++) {
        struct tokenizer *t = load(kinds[k]);
        for (size_t i = 0; t && i < 3000; i++) {
            int32_t ids[40];
            size_t n = rnd(40);
            uint32_t range = i % 3 ? 300 : (uint32_t)tokenizer_size(t);
            for (size_t j = 0; j < n; j++)
                ids[j] = (int32_t)rnd(range);
            check_decode(t, kinds[k], ids, n, i & 1, NULL, 0);
        }
        tokenizer_close(t);
    }
}

static void check_ids(const struct tokenizer *t, const char *text, size_t n, const char *want)
{
    size_t n_ids, w = 0;
    int32_t *ids;
    struct err e;
    char got[200] = "";
    CHECK(tokenizer_encode(t, &ids, &n_ids, text, n, false, &e) == 0, "%s", e.msg);
    for (size_t i = 0; i < n_ids && w < 150; i++)
        w += (size_t)snprintf(got + w, sizeof got - w, i ? " %d" : "%d", ids[i]);
    CHECK(strcmp(got, want) == 0, "got %s, want %s", got, want);
    free(ids);
}

static void holds_back_what_is_unfinished(void)
{
    struct tokenizer *t = load("llama2");
    struct decode_stream s;
    char *out = malloc(decode_stream_max(t));
    int32_t e2 = find(t, "<0xE2>"), x82 = find(t, "<0x82>"), ac = find(t, "<0xAC>"), a = find(t, "a");
    CHECK(e2 == 3 + 0xe2 && a > 0);
    decode_stream_start(&s, t, false, true);
    CHECK(decode_stream_push(&s, e2, out) == 0 && decode_stream_push(&s, x82, out) == 0 &&
          decode_stream_push(&s, ac, out) == 0);
    CHECK(decode_stream_push(&s, a, out) == 4 && !memcmp(out, "\xe2\x82\xac" "a", 4));
    /* bytes that cannot be completed become one U+FFFD each, at once */
    CHECK(decode_stream_push(&s, e2, out) == 0 && decode_stream_push(&s, e2, out) == 6 &&
          !memcmp(out, "\xef\xbf\xbd\xef\xbf\xbd", 6));
    CHECK(decode_stream_push(&s, ac, out) == 3 && decode_stream_push(&s, a, out) == 1);
    CHECK(decode_stream_push(&s, e2, out) == 0 && decode_stream_flush(&s, out) == 3 &&
          decode_stream_flush(&s, out) == 0);
    /* a run too long to hold is released, except its last bytes */
    size_t n = 0;
    for (int i = 0; i < 3 * DECODE_HELD_MAX; i++)
        n += decode_stream_push(&s, i % 3 == 0 ? e2 : i % 3 == 1 ? x82 : ac, out);
    n += decode_stream_flush(&s, out);
    CHECK(n == 3 * DECODE_HELD_MAX, "%zu", n);
    free(out);
    tokenizer_close(t);

    t = load("gpt2");
    out = malloc(decode_stream_max(t));
    int32_t b1 = find(t, "\xc3\xa2"), b2 = find(t, "\xc4\xa4");      /* bytes e2, 82 */
    decode_stream_start(&s, t, true, true);
    CHECK(b1 > 0 && b2 > 0 && decode_stream_push(&s, b1, out) == 0 && decode_stream_push(&s, b2, out) == 0);
    CHECK(decode_stream_push(&s, b1, out) == 3 && decode_stream_push(&s, b2, out) == 0 &&
          decode_stream_flush(&s, out) == 3);
    free(out);
    tokenizer_close(t);
}

static void a_text_that_goes_on_keeps_its_space(void)
{
    static const char *const with_space[] = { "llama2", "mistral-v3", "metaspace-always" };
    for (size_t i = 0; i < 3; i++) {
        struct tokenizer *t = load(with_space[i]);
        int32_t *ids;
        size_t n_ids, n;
        struct err e;
        CHECK(tokenizer_encode(t, &ids, &n_ids, "the end", 7, false, &e) == 0);
        char *s = stream(t, ids, n_ids, true, true, &n);
        CHECK(n == 7 && !memcmp(s, "the end", 7), "%.*s", (int)n, s);
        free(s);
        s = stream(t, ids, n_ids, false, true, &n);
        CHECK(n == 8 && !memcmp(s, " the end", 8), "%.*s", (int)n, s);
        free(s);
        free(ids);
        tokenizer_close(t);
    }
}

static void refuses_text_that_is_no_utf8(void)
{
    static const struct { const char *s; size_t n, at;
    } bad[] = {
        { "abc\xff", 4, 3 },          { "\x80", 1, 0 },         { "a\xe2\x82", 3, 1 },
        { "a\xe2\x82z", 4, 1 },       { "\xc0\x80", 2, 0 },     { "xy\xed\xa0\x80", 5, 2 },
        { "\xf4\x90\x80\x80", 4, 0 }, { "\xf0\x9f\x98", 3, 0 },
    };
    for (size_t k = 0; k < KINDS; k++) {
        struct tokenizer *t = load(kinds[k]);
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            int32_t *ids;
            size_t n;
            struct err e = { 0 };
            char at[40];
            snprintf(at, sizeof at, "at offset %zu is", bad[i].at);
            CHECK(tokenizer_encode(t, &ids, &n, bad[i].s, bad[i].n, true, &e) == -1 && e.code == ERR_INPUT &&
                      strstr(e.msg, at),
                  "%s", e.msg);
        }
        tokenizer_close(t);
    }
}

static void refuses_ids_outside_the_model(void)
{
    struct tokenizer *t = NULL;
    struct err e;
    char *text = NULL, *json;
    size_t n;
    CHECK(file_read(&json, &n, "build/data/tokenizers/llama2.json", 1 << 24, &e) == 0);
    CHECK(tokenizer_parse(&t, "t", json, n, 2000, &e) == 0);
    int32_t room = 1999, over = 2000, negative = -1;
    /* an id of the model, but of no token */
    CHECK(tokenizer_size(t) < 2000 && tokenizer_decode(t, &text, &n, &room, 1, true, &e) == 0 && n == 0);
    free(text);
    CHECK(tokenizer_decode(t, &text, &n, &over, 1, true, &e) == -1 && e.code == ERR_INPUT);
    CHECK(strcmp(e.msg, "ids[0]: found 2000, allowed are ids from 0 to 1999") == 0, "%s", e.msg);
    CHECK(tokenizer_decode(t, &text, &n, &negative, 1, true, &e) == -1 && e.code == ERR_INPUT);
    tokenizer_close(t);
    free(json);
}

/* Whether a token is special: decoding with skip_special gives no text for it. */
static bool is_left_out(const struct tokenizer *t, int32_t id)
{
    char *all, *shown;
    size_t n_all, n_shown;
    struct err e;
    CHECK(tokenizer_decode(t, &all, &n_all, &id, 1, false, &e) == 0 &&
              tokenizer_decode(t, &shown, &n_shown, &id, 1, true, &e) == 0 && n_all > 0,
          "%s", e.msg);
    free(all), free(shown);
    return n_shown == 0;
}

static void finds_tokens_by_content(void)
{
    struct tokenizer *t = load("llama3");
    CHECK(find(t, "<|begin_of_text|>") == 1500 && is_left_out(t, 1500) &&
          find(t, "<|begin|>") == (int32_t)NO_ID);
    CHECK(tokenizer_size(t) == 1510 && !is_left_out(t, 0));
    CHECK(tokenizer_bytes(t) > 30000 && tokenizer_bytes(t) < 1000000);
    tokenizer_close(t);
    t = load("qwen3");
    CHECK(find(t, "<think>") > 0 && !is_left_out(t, find(t, "<think>")));
    tokenizer_close(t);
    tokenizer_close(NULL);
}

static void takes_nul_as_text(void)
{
    struct tokenizer *t = load("gpt2");
    char want[40];
    snprintf(want, sizeof want, "%d %d", find(t, "a"), find(t, "\xc4\x80"));
    check_ids(t, "a\0", 2, want);
    tokenizer_close(t);
}

/* 1 MiB of one pattern: a quadratic step anywhere would take hours. */
static void long_texts_of_one_thing(void)
{
    enum { MB = 1 << 20 };
    static const char *const of[] = { "a", " ", "\n", "1", "'", "<", "\xcc\x81", "q\xcc\x81\xcc\xa3",
                                      "\xe2\x96\x81", "e ",
                                      "\xe1\x84\x80\xe1\x85\xa1", "\xf0\x9f\x98\x80",
                                      "<s>", "<|", "\xe3\x80\x80", "e\n\t", "\xcc\x81\xcc\xa3" };
    static const char *const some[] = { "crossing", "llama2", "llama3", "qwen2", "qwen3.5" };
    char *s = malloc(MB + 8);
    for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
        struct tokenizer *t = load(some[k]);
        for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
            size_t unit = strlen(of[i]), n = MB / unit * unit, n_ids, n_text;
            int32_t *ids;
            struct err e;
            char *text;
            for (size_t j = 0; j < n; j += unit)
                memcpy(s + j, of[i], unit);
            CHECK(tokenizer_encode(t, &ids, &n_ids, s, n, false, &e) == 0, "%s", e.msg);
            CHECK(tokenizer_decode(t, &text, &n_text, ids, n_ids, false, &e) == 0, "%s", e.msg);
            if (strcmp(some[k], "llama3") == 0)
                CHECK(n_text == n && !memcmp(text, s, n), "%s: %zu of \"%s\"", some[k], n, of[i]);
            free(ids);
            free(text);
        }
        tokenizer_close(t);
    }
    free(s);
}

/* ---- refusals ---- */

static void bad_tokenizer(const char *in, const char *file)
{
    char name[300], path[600], *json;
    size_t n;
    struct tokenizer *t = NULL;
    struct err e = { 0 };
    snprintf(name, sizeof name, "tokenizer/%s", file);
    snprintf(path, sizeof path, "%s/%s", in, file);
    CHECK(file_read(&json, &n, path, 1 << 20, &e) == 0, "%s", e.msg);
    size_t before = bad_allocated;
    int r = tokenizer_parse(&t, path, json, n, 64, &e);
    bad_check(name, path, r, &e, bad_allocated - before, n);
    tokenizer_close(t);
    free(json);
}

static void refuses_files(void)
{
    bad_seen = 0;
    bad_each("build/data/bad/tokenizer", bad_tokenizer);
    CHECK(bad_seen >= 150 && bad_seen == bad_entries("tokenizer/"), "%zu files, %zu expected", bad_seen,
          bad_entries("tokenizer/"));
}

static int parse(const char *json, size_t n, struct err *e)
{
    struct tokenizer *t;
    int r = tokenizer_parse(&t, "t", json, n, 1 << 24, e);
    CHECK(r == 0 || t == NULL);
    tokenizer_close(t);
    return r;
}

static void refuses_every_cut(void)
{
    char *json;
    size_t n;
    struct err e;
    CHECK(file_read(&json, &n, "build/data/tokenizers/llama2.json", 1 << 24, &e) == 0);
    for (size_t i = 0; i < n; i += i < 4000 || i + 200 > n ? 1 : 37)
        CHECK(parse(json, i, &e) == -1 && e.code == ERR_INPUT, "%zu bytes", i);
    CHECK(parse(json, n, &e) == 0, "%s", e.msg);
    free(json);
}

/* A small valid tokenizer with these `vocab` and `merges`. */
static int parse_model(const char *vocab, const char *merges, struct err *e)
{
    static const char form[] = "{\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"vocab\":{%s},\"merges\":[%s]}}";
    size_t n = strlen(vocab) + strlen(merges) + sizeof form;
    char *json = malloc(n);
    int r = parse(json, (size_t)snprintf(json, n, form, vocab, merges), e);
    free(json);
    return r;
}

static char *repeat(const char *s, size_t n, const char *before, const char *after)
{
    size_t unit = strlen(s), a = strlen(before);
    char *out = malloc(a + unit * n + strlen(after) + 1);
    memcpy(out, before, a);
    for (size_t i = 0; i < n; i++)
        memcpy(out + a + i * unit, s, unit);
    strcpy(out + a + unit * n, after);
    return out;
}

static void refuses_what_is_too_large(void)
{
    struct err e = { 0 };
    char *s = repeat("x", 65537, "\"", "\":0");
    CHECK(parse_model(s, "", &e) == -1 && strstr(e.msg, "a token has at most 65536 bytes"), "%s", e.msg);
    free(s);
    s = repeat("x", 65536, "\"", "\":0");
    CHECK(parse_model(s, "", &e) == 0, "%s", e.msg);
    free(s);
    s = repeat("x", 100 << 20, "\"", "\":0");
    CHECK(parse_model(s, "", &e) == -1 && strstr(e.msg, "a token has at most 65536 bytes"), "%s", e.msg);
    free(s);
    s = repeat("\"a a\",", 4 << 20, "", "\"a a\"");
    CHECK(parse_model("\"a\":0,\"aa\":1", s, &e) == -1 && strstr(e.msg, "at most 4194304 merges"), "%s",
          e.msg);
    free(s);
    for (size_t depth = 64; depth <= 100000; depth = depth == 64 ? 100000 : depth + 1) {
        s = repeat("[", depth, "{\"model\":", "");
        CHECK(parse(s, strlen(s), &e) == -1 && strstr(e.msg, "at most 64 nested levels"), "%s", e.msg);
        free(s);
        s = repeat("{\"model\":", depth, "", "");
        CHECK(parse(s, strlen(s), &e) == -1 && e.code == ERR_INPUT, "%s", e.msg);
        free(s);
    }
    char dir[] = "/tmp/test-tokenizer-XXXXXX", path[100];
    struct tokenizer *t;
    CHECK(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    FILE *f = fopen(path, "w");
    CHECK(f && ftruncate(fileno(f), 200 << 20) == 0 && fclose(f) == 0);
    CHECK(tokenizer_open(&t, dir, 100, &e) == -1 && strstr(e.msg, "at most 134217728 are allowed"), "%s",
          e.msg);
    unlink(path);
    CHECK(tokenizer_open(&t, dir, 100, &e) == -1 &&
              strstr(e.msg, "/tokenizer.json: cannot open: No such file"),
          "%s", e.msg);
    CHECK(mkdir(path, 0700) == 0 && tokenizer_open(&t, dir, 100, &e) == -1 &&
              strstr(e.msg, "not a regular file"),
          "%s", e.msg);
    rmdir(path);
    CHECK(mkfifo(path, 0600) == 0 && tokenizer_open(&t, dir, 100, &e) == -1 &&
              strstr(e.msg, "not a regular file"),
          "%s", e.msg);
    unlink(path);
    rmdir(dir);
}

/* Odd but valid files: missing optional keys, duplicate merges, patterns made of regex characters. */
#define ADDED(id, text) "{\"id\":" id ",\"content\":\"" text "\",\"single_word\":false,\"lstrip\":false," \
    "\"rstrip\":false,\"normalized\":false,\"special\":true}"

static void settings_and_ids_that_no_text_needs(void)
{
    static const char json[] =
        "{\"truncation\":{\"direction\":\"Right\",\"max_length\":2,\"strategy\":\"LongestFirst\","
        "\"stride\":0},\"padding\":{\"strategy\":{\"Fixed\":9},\"direction\":\"Right\","
        "\"pad_to_multiple_of\":null,\"pad_id\":0,\"pad_type_id\":0,\"pad_token\":\"a\"},"
        "\"added_tokens\":[" ADDED("9", "<s>") "," ADDED("4", "") "," ADDED("10", "<t>") "],"
        "\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"unk_token\":\"<unk>\","
        "\"vocab\":{\"a\":0,\"b\":1,\"ab\":3},\"merges\":[\"a b\"]}}";
    struct tokenizer *t;
    struct err e = { 0 };
    int32_t hole = 5;
    char *text = NULL;
    size_t n = 1;
    CHECK(tokenizer_parse(&t, "t", json, sizeof json - 1, 12, &e) == 0, "%s", e.msg);
    check_ids(t, "abba<s>?ab<t>", 13, "3 1 0 9 3 10");
    CHECK(tokenizer_size(t) == 11 && tokenizer_decode(t, &text, &n, &hole, 1, false, &e) == 0 && n == 0);
    free(text);
    tokenizer_close(t);
}

static void accepts_what_hugging_face_accepts(void)
{
    struct err e = { 0 };
    CHECK(parse_model("\"a\":0,\"b\":1,\"ab\":2", "\"#version: 0.2\",\"a b\",\"a b\"", &e) == 0, "%s", e.msg);
    CHECK(parse_model("\"\\u0061\":1,\"b\":0,\"ab\":2", "[\"a\",\"b\"]", &e) == 0, "%s", e.msg);
    static const char regexlike[] =
        "{\"decoder\":{\"type\":\"Fuse\"},\"added_tokens\":[{\"id\":1,\"content\":\".*\",\"single_word\":"
        "false,\"lstrip\":false,\"rstrip\":false,"
        "\"normalized\":false,\"special\":false},{\"id\":2,\"content\":\".*+\",\"single_word\":false,"
        "\"lstrip\":false,\"rstrip\":false,"
        "\"normalized\":false,\"special\":false},{\"id\":3,\"content\":\".\",\"single_word\":false,"
        "\"lstrip\":false,\"rstrip\":false,"
        "\"normalized\":false,\"special\":false}],\"model\":{\"vocab\":{\"a\":0},\"merges\":[]}}";
    struct tokenizer *t;
    CHECK(tokenizer_parse(&t, "t", regexlike, sizeof regexlike - 1, 4, &e) == 0, "%s", e.msg);
    check_ids(t, "a.*a.*+..*b.", 12, "0 1 0 2 3 1 3");
    tokenizer_close(t);
}

/* Classes and NFC at a few code points; scripts/check_tokenizers.py compares all of them. */
static void unicode_is_that_of_the_library(void)
{
    CHECK(unicode_class('a') == (UNI_LETTER | UNI_WORD | UNI_LOWER) &&
          unicode_class('A') == (UNI_LETTER | UNI_WORD | UNI_UPPER) &&
          unicode_class('7') == (UNI_NUMBER | UNI_WORD) && unicode_class('_') == UNI_WORD);
    CHECK(unicode_class(0x85) == UNI_SPACE && unicode_class(0x180e) == 0 && unicode_class(0x200b) == 0 &&
          unicode_class(0x10ffff) == 0);
    CHECK(unicode_class(0x2160) == (UNI_NUMBER | UNI_WORD) && unicode_class(0x301) == (UNI_WORD | UNI_MARK) &&
          unicode_class(0x1f600) == 0);
    static const char *const nfc[][2] = {
        { "abc", "abc" }, { "e\xcc\x81", "\xc3\xa9" }, { "q\xcc\x87\xcc\xa3", "q\xcc\xa3\xcc\x87" },
        { "\xe2\x84\xab", "\xc3\x85" },
        { "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c" }, { "\xe0\xa5\x98",
            "\xe0\xa4\x95\xe0\xa4\xbc" }, { "\xcc\x81", "\xcc\x81" }, { "", "" },
    };
    for (size_t i = 0; i < sizeof nfc / sizeof *nfc; i++) {
        char *out;
        size_t n;
        CHECK(unicode_nfc(&out, &n, nfc[i][0], strlen(nfc[i][0])) == 0);
        CHECK(n == strlen(nfc[i][1]) && !memcmp(out, nfc[i][1], n), "%s", nfc[i][0]);
        free(out);
    }
}

int main(void)
{
    RUN(ids_and_texts_equal_hugging_face);
    RUN(streams_equal_whole_lists);
    RUN(holds_back_what_is_unfinished);
    RUN(a_text_that_goes_on_keeps_its_space);
    RUN(refuses_text_that_is_no_utf8);
    RUN(refuses_ids_outside_the_model);
    RUN(finds_tokens_by_content);
    RUN(takes_nul_as_text);
    RUN(long_texts_of_one_thing);
    RUN(unicode_is_that_of_the_library);
    RUN(accepts_what_hugging_face_accepts);
    RUN(settings_and_ids_that_no_text_needs);
    RUN(refuses_files);
    RUN(refuses_every_cut);
    RUN(refuses_what_is_too_large);
    return test_end();
}
