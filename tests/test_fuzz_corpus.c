/* The corpora of the fuzzers, replayed: what was interesting once stays harmless. */
#include "tests/test.h"
#include <dirent.h>
#include <stdint.h>

#define LLVMFuzzerTestOneInput fuzz_safetensors
#include "tests/fuzz_safetensors.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_config
#include "tests/fuzz_config.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_json
#include "tests/fuzz_json.c"
#undef LLVMFuzzerTestOneInput
#if __has_include("tests/fuzz_tokenizer.c")
#define LLVMFuzzerTestOneInput fuzz_tokenizer
#include "tests/fuzz_tokenizer.c"
#undef LLVMFuzzerTestOneInput
#endif
#if __has_include("tests/fuzz_encode.c")
#define LLVMFuzzerTestOneInput fuzz_encode
#include "tests/fuzz_encode.c"
#undef LLVMFuzzerTestOneInput
#endif

static void replay(const char *folder, int (*target)(const uint8_t *data, size_t n))
{
    DIR *d = opendir(folder);
    struct dirent *entry;
    char path[600], *data;
    struct err e;
    size_t n, files = 0;
    CHECK(d, "%s", folder);
    while (d && (entry = readdir(d))) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (file_read(&data, &n, path, 1 << 26, &e)) {
            CHECK(0, "%s", e.msg);
            continue;
        }
        /* An allocation of exactly this size, so that a sanitizer sees a read behind it. */
        uint8_t *exact = malloc(n ? n : 1);
        memcpy(exact, data, n);
        free(data);
        target(exact, n);
        free(exact);
        files++;
    }
    if (d)
        closedir(d);
    CHECK(files > 0, "%s: %zu files", folder, files);
    printf("    %s: %zu inputs\n", folder, files);
}

static void safetensors(void) { replay("tests/corpus/safetensors", fuzz_safetensors); }
static void config(void) { replay("tests/corpus/config", fuzz_config); }
static void json(void) { replay("tests/corpus/json", fuzz_json); }
#if __has_include("tests/fuzz_tokenizer.c")
static void tokenizer(void) { replay("tests/corpus/tokenizer", fuzz_tokenizer); }
#endif
#if __has_include("tests/fuzz_encode.c")
static void encode(void) { replay("tests/corpus/encode", fuzz_encode); }
#endif

int main(void)
{
    RUN(safetensors);
    RUN(config);
    RUN(json);
#if __has_include("tests/fuzz_tokenizer.c")
    RUN(tokenizer);
#endif
#if __has_include("tests/fuzz_encode.c")
    RUN(encode);
#endif
    return test_end();
}
