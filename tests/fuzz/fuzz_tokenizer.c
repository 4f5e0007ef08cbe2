/* Fuzz target: tokenizer.json. An accepted file must encode and decode anything, with equal results of the
 * stream and the whole list. */
#include "src/text/tokenizer.h"
#include <stdlib.h>
#include <string.h>

static void fuzz_tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n_ids)
{
    struct decode_stream s;
    struct err e;
    char *text, *out = malloc((n_ids + 1) * decode_stream_max(t));
    size_t n, w = 0;
    if (!out || tokenizer_decode(t, &text, &n, ids, n_ids, n_ids & 1, &e))
        abort();
    decode_stream_start(&s, t, true, n_ids & 1);
    for (size_t i = 0; i < n_ids; i++)
        w += decode_stream_push(&s, ids[i], out + w);
    w += decode_stream_flush(&s, out + w);
    if (w != n || memcmp(out, text, n) || utf8_valid_prefix(text, n) != n)
        abort();
    free(text);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const texts[] = { "ab ab  b\n<s>a",
                                         "\xe2\x96\x81\x61\xcc\x81 \xf0\x9f\x98\x80 1234 'S it's", " " };
    struct tokenizer *t;
    struct err e;
    if (tokenizer_parse(&t, "fuzz", (const char *)data, n, 4096, &e)) {
        if (t || e.code != ERR_INPUT || strchr(e.msg, '\n'))
            abort();
        return 0;
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int32_t *ids;
        size_t n_ids;
        if (tokenizer_encode(t, &ids, &n_ids, texts[i], strlen(texts[i]), i & 1, &e))
            abort();
        for (size_t k = 0; k < n_ids; k++)
            if (ids[k] < 0 || (size_t)ids[k] >= tokenizer_size(t))
                abort();
        fuzz_tokenizer_decode(t, ids, n_ids);
        free(ids);
    }
    int32_t all[41];
    for (size_t k = 0; k < 41; k++)
        all[k] = (int32_t)(k < 30 ? k * (n % 7 + 1) % (tokenizer_size(t) + 1) : k % 3);
    fuzz_tokenizer_decode(t, all, 40 + n % 2);
    tokenizer_close(t);
    return 0;
}
