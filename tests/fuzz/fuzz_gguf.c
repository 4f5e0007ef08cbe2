/* Fuzz target: a GGUF file, from the container to the configuration and the tokenizer. Input: 2 bytes of the
 * size of the data that follow the header (little endian), then the header. */
#include "src/model/gguf_model.h"
#include "src/text/tokenizer.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const files[] = { "config.json", "generation_config.json", "tokenizer.json",
                                         "tokenizer_config.json" };
    struct gguf g;
    struct err e = { 0 };
    struct config c;
    if (n < 2)
        return 0;
    const size_t room = data[0] | (size_t)data[1] << 8;
    const int rc = gguf_parse(&g, "fuzz", data + 2, n - 2, n - 2 + room, &e);
    if (rc) {
        if (g.value || g.tensor || (rc < 0 && (e.code != ERR_INPUT || !*e.msg || strchr(e.msg, '\n'))))
            abort();
        return 0;
    }
    size_t end = g.data_start;
    for (size_t i = 0; i < g.n_tensors; i++) {           /* tensors follow each other and lie in the file */
        const struct gguf_tensor *t = &g.tensor[i];
        if (t->offset < end || t->offset + t->bytes > g.size || t->offset % g.alignment || !*t->name)
            abort();
        end = t->offset + t->bytes;
    }
    for (size_t i = 1; i < g.n_values; i++)
        if (g.value[i].data < data || g.value[i].data + g.value[i].bytes > data + n)
            abort();
    if (gguf_config(&c, &g, &e) && e.code != ERR_INPUT)
        abort();
    for (size_t i = 0; i < 4; i++) {
        char *text;
        size_t size;
        struct tokenizer *t;
        e = (struct err){ 0 };
        if (gguf_small_file(&text, &size, &g, files[i], &e)) {
            if (e.code != ERR_INPUT || strchr(e.msg, '\n') || text)
                abort();
        } else if (text && i == 2 && tokenizer_parse(&t, "fuzz", text, size, 1 << 20, &e) == 0) {
            tokenizer_close(t);
        }
        free(text);
    }
    gguf_close(&g);
    return 0;
}
