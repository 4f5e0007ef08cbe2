/* Replays the corpora of the fuzzers, so an input that once failed stays harmless. Each fuzz target is
 * compiled in under a name of its own. */
#include "tests/fuzz/corpus.h"

#define LLVMFuzzerTestOneInput fuzz_safetensors
#include "tests/fuzz/fuzz_safetensors.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_config
#include "tests/fuzz/fuzz_config.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_json
#include "tests/fuzz/fuzz_json.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_tokenizer
#include "tests/fuzz/fuzz_tokenizer.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_encode
#include "tests/fuzz/fuzz_encode.c"
#undef LLVMFuzzerTestOneInput

#define LLVMFuzzerTestOneInput fuzz_gguf
#include "tests/fuzz/fuzz_gguf.c"
#undef LLVMFuzzerTestOneInput

#define LLVMFuzzerTestOneInput fuzz_quant
#include "tests/fuzz/fuzz_quant.c"
#undef LLVMFuzzerTestOneInput

#define LLVMFuzzerTestOneInput fuzz_template
#include "tests/fuzz/fuzz_template.c"
#undef LLVMFuzzerTestOneInput

static void quant(void) { replay_corpus("build/data/corpus/quant", fuzz_quant); }
static void gguf(void) { replay_corpus("build/data/corpus/gguf", fuzz_gguf); }
static void safetensors(void) { replay_corpus("build/data/corpus/safetensors", fuzz_safetensors); }
static void config(void) { replay_corpus("build/data/corpus/config", fuzz_config); }
static void json(void) { replay_corpus("build/data/corpus/json", fuzz_json); }
static void tokenizer(void) { replay_corpus("build/data/corpus/tokenizer", fuzz_tokenizer); }
static void encode(void) { replay_corpus("build/data/corpus/encode", fuzz_encode); }

static void template(void)
{
    replay_corpus("build/data/corpus/template", fuzz_template);
    CHECK(template_rendered > 0, "no template was rendered");
}

int main(void)
{
    RUN(gguf);
    RUN(quant);
    RUN(safetensors);
    RUN(config);
    RUN(json);
    RUN(tokenizer);
    RUN(encode);
    RUN(template);
    return test_end();
}
