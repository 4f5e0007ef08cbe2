/* Fuzz target: encode(text) with the fixtures of every family; the first byte selects one. It checks that
 * invalid UTF-8 is refused, that byte-level kinds decode to the text, and that words merged in parts give
 * the ids of whole words. */
#include "src/text/tokenizer.h"
#include "src/text/tokenizer_tables.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const fuzz_encode_kinds[] = { "gpt2", "llama3", "qwen2", "llama2", "crossing", "vicuna",
    "mistral-v3", "gpt2-prefix",
                                                 "metaspace-always", "metaspace-never" };
enum { FUZZ_KINDS = sizeof fuzz_encode_kinds / sizeof *fuzz_encode_kinds };

static const struct tokenizer *fuzz_encode_open(size_t kind)
{
    static struct tokenizer *open[FUZZ_KINDS];
    char path[100], *json;
    size_t n;
    struct err e;
    if (!open[kind]) {
        snprintf(path, sizeof path, "build/data/tokenizers/%s.json", fuzz_encode_kinds[kind]);
        if (file_read(&json, &n, path, 1 << 20, &e) ||
            tokenizer_parse(&open[kind], path, json, n, 4096, &e)) {
            fprintf(stderr, "%s\n", e.msg);
            abort();
        }
        free(json);
    }
    return open[kind];
}

static void fuzz_encode_text(size_t kind, const struct tokenizer *t, const char *s, size_t n)
{
    int32_t *ids, *whole;
    size_t n_ids, n_whole, n_text;
    char *text;
    struct err e;
    struct tokenizer uncut = *t;
    uncut.bigram = NULL;
    if (tokenizer_encode(t, &ids, &n_ids, s, n, false, &e) ||
        tokenizer_encode(&uncut, &whole, &n_whole, s, n, false, &e))
        abort();
    if (n_ids != n_whole || memcmp(ids, whole, n_ids * sizeof *ids))
        abort();
    if (tokenizer_decode(t, &text, &n_text, ids, n_ids, false, &e) ||
        utf8_valid_prefix(text, n_text) != n_text)
        abort();
    if (kind < 2 && (n_text != n || memcmp(text, s, n)))
        abort();
    char *nfc = NULL, *again;
    size_t n_nfc, n_again;
    /* an added token would cut the text before it is normalized */
    if (kind == 2 && !memmem(s, n, "<|", 2)) {
        if (unicode_nfc(&nfc, &n_nfc, s, n) || n_nfc != n_text || memcmp(nfc, text, n_text))
            abort();
        if (unicode_nfc(&again, &n_again, nfc, n_nfc) || n_again != n_nfc || memcmp(again, nfc, n_nfc))
            abort();
        free(again);
    }
    free(nfc);
    free(text);
    free(ids);
    free(whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    size_t kind = data[0] % FUZZ_KINDS;
    const struct tokenizer *t = fuzz_encode_open(kind);
    const char *s = (const char *)data + 1;
    size_t valid = utf8_valid_prefix(s, --n);
    if (valid < n) {
        int32_t *ids;
        size_t n_ids;
        struct err e = { 0 };
        char at[60];
        snprintf(at, sizeof at, "at offset %zu is not UTF-8", valid);
        if (tokenizer_encode(t, &ids, &n_ids, s, n, true, &e) != -1 || e.code != ERR_INPUT ||
            !strstr(e.msg, at))
            abort();
    }
    fuzz_encode_text(kind, t, s, valid);
    return 0;
}
