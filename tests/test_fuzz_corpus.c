/* The corpora of the fuzzers, replayed: what was interesting once stays harmless. */
#include "tests/corpus.h"

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
