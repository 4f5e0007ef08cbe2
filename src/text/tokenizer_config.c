/* What a tokenizer_config.json adds to the tokenizer: the added tokens that stand only there
 * (`added_tokens_decoder`), as transformers does, and the token that ends a text (`eos_token`). Start at
 * tokenizer_add_config. */
#include <stdlib.h>
#include <string.h>

#include "src/base/json.h"
#include "src/base/memory_file.h"
#include "src/model/model_files.h"
#include "src/text/tokenizer.h"

enum { CONFIG_MAX = 16 << 20, EXTRA_MAX = 1 << 16 };

/* An entry of added_tokens_decoder: {"ID": {"content": .., "lstrip": .., ..}}. */
struct extra { uint64_t id; struct json content, flags; };

static int by_id(const void *a, const void *b)
{
    const struct extra *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

/* Whether a token has this content. No writer of such files escapes what another does not. */
static bool is_added(const struct json *added, const struct json *content)
{
    const ptrdiff_t n = content->end - content->s;
    struct json v, x;
    for (struct js_walk w = js_walk(added); js_next(&w, NULL, &v);)
        if (js_kind(&v) == JS_OBJECT && js_get(&v, "content", &x, &(struct err){ 0 }) == 1 &&
            x.end - x.s == n && memcmp(x.s, content->s, (size_t)n) == 0)
            return true;
    return false;
}

/* Lists the entries of the decoder that `added` lacks, by id. The caller frees *list. */
static size_t list_extra(struct extra **list, const struct json *decoder, const struct json *added)
{
    struct json key, v;
    size_t n = 0;
    *list = NULL;
    for (struct js_walk w = js_walk(decoder); js_next(&w, &key, &v) && n < EXTRA_MAX;) {
        struct extra x = { 0, .flags = v };
        const struct json digits = { .s = key.s + 1, .end = key.end - 1, .text = key.text, .file = key.file };
        if (digits.s == digits.end || *digits.s < '0' || *digits.s > '9' || !js_u64(&digits, &x.id) ||
            js_kind(&v) != JS_OBJECT || js_get(&v, "content", &x.content, &(struct err){ 0 }) != 1 ||
            is_added(added, &x.content))
            continue;
        if (!array_grow(list, n, sizeof **list))
            return 0;
        (*list)[n++] = x;
    }
    if (n)
        qsort(*list, n, sizeof **list, by_id);
    return n;
}

/* Writes tokenizer.json with the extra tokens at the end of its added_tokens. */
static char *write_merged(size_t *n, const char *json, size_t n_json, const struct json *added,
                          const struct extra *list, size_t n_list)
{
    char *text = NULL;
    FILE *f = memory_file(&text, n);
    if (!f)
        return NULL;
    const size_t close = (size_t)(added->end - 1 - json);
    struct js_walk w = js_walk(added);
    bool more = js_next(&w, NULL, &(struct json){ 0 });
    fwrite(json, 1, close, f);
    for (size_t i = 0; i < n_list; i++, more = true)
        fprintf(f, "%s{\"id\":%zu,%.*s", more ? "," : "", (size_t)list[i].id,
                (int)(list[i].flags.end - list[i].flags.s - 1), list[i].flags.s + 1);
    fwrite(json + close, 1, n_json - close, f);
    if (stream_end(f) == 0)
        return text;
    free(text);
    return NULL;
}

/* The text with the extra tokens; NULL if there are none, or the tokenizer has no room for them. */
static char *merge(size_t *n, const char *json, size_t n_json, const char *config, size_t n_config,
                   size_t vocab)
{
    struct json root, added, other, decoder;
    struct extra *list = NULL;
    struct err e = { 0 };
    char *text = NULL;
    if (js_check_with_nul(&root, "tokenizer.json", json, n_json, &e) || js_kind(&root) != JS_OBJECT ||
        js_get(&root, "added_tokens", &added, &e) != 1 || js_kind(&added) != JS_ARRAY ||
        js_check_with_nul(&other, "tokenizer_config.json", config, n_config, &e) ||
        js_kind(&other) != JS_OBJECT ||
        js_get(&other, "added_tokens_decoder", &decoder, &e) != 1 || js_kind(&decoder) != JS_OBJECT)
        return NULL;
    const size_t n_list = list_extra(&list, &decoder, &added);
    if (n_list)
        text = write_merged(n, json, n_json, &added, list, n_list);
    free(list);
    struct tokenizer *t = NULL;
    if (text && tokenizer_parse(&t, "tokenizer.json", text, *n, vocab, &e)) {
        free(text);
        text = NULL;
    }
    tokenizer_close(t);
    return text;
}

int tokenizer_add_config(char **json, size_t *n, const char *place, size_t vocab, struct err *e)
{
    char path[PATH_BYTES + 32], *config;
    size_t n_config, n_merged = 0;
    if (model_is_file(place))            /* a GGUF file lists all its tokens */
        return 0;
    if (model_file_read(&config, &n_config, path, sizeof path, place, "tokenizer_config.json", CONFIG_MAX, e))
        return -1;
    char *merged = config ? merge(&n_merged, *json, *n, config, n_config, vocab) : NULL;
    free(config);
    if (merged) {
        free(*json);
        *json = merged;
        *n = n_merged;
    }
    return 0;
}

int32_t tokenizer_eos(const struct tokenizer *t, const char *place)
{
    char path[PATH_BYTES + 32], *config, *text = NULL;
    struct json root, v, content;
    struct err ignored = { 0 };
    int32_t id = -1;
    size_t n;
    if (model_file_read(&config, &n, path, sizeof path, place, "tokenizer_config.json", CONFIG_MAX,
                        &ignored) || !config)
        return -1;
    if (js_check(&root, path, config, n, &ignored) == 0 && js_kind(&root) == JS_OBJECT &&
        js_get(&root, "eos_token", &v, &ignored) == 1) {
        if (js_kind(&v) == JS_OBJECT && js_get(&v, "content", &content, &ignored) == 1)
            v = content;
        text = js_kind(&v) == JS_STRING ? js_strdup(&v) : NULL;
    }
    if (text)
        id = tokenizer_special(t, text, strlen(text));
    free(text);
    free(config);
    return id;
}
