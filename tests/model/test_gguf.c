/* GGUF files from hostile hands: every check of the container, of the configuration, of the tokenizer and of
 * the tensors has a file that breaks it; then mutations of a good file. Every refusal is one line, with exit
 * code 2. */
#include <unistd.h>

#include "src/model/config_tensors.h"
#include "src/model/encode.h"
#include "src/model/model_files.h"
#include "src/text/tokenizer.h"
#include "tests/model/gguf_rig.h"
#include "tests/test.h"

static bool one_line(const struct err *e)
{
    return e->code == ERR_INPUT && *e->msg && !strchr(e->msg, '\n');
}

/* ---- the container ---- */

/* Where a key's or a name's text begins in the file. */
static uint8_t *find(char *file, size_t n, const char *text)
{
    char *p = memmem(file, n, text, strlen(text));
    if (!p)
        abort();
    return (uint8_t *)p;
}

static void put(uint8_t *p, uint64_t x, size_t bytes) { memcpy(p, &x, bytes); }

/* A patch: `bytes` bytes of x at `at` after the text (before it, if negative). */
struct patch { const char *name, *text; long at; uint64_t x; size_t bytes; const char *says; };

static const struct patch patches[] = {
    { "magic", "GGUF", 0, 'X', 1, "does not begin with GGUF" },
    { "version 1", "GGUF", 4, 1, 4, "version 1 of GGUF, allowed are 2 and 3; convert the model again" },
    { "version 4", "GGUF", 4, 4, 4, "version 4 of GGUF" },
    { "big-endian", "GGUF", 4, 0x03000000, 4, "big-endian" },
    { "tensors 2^63", "GGUF", 8, 1ull << 63, 8, "9223372036854775808 tensors in a file" },
    { "tensors, beyond the cap", "GGUF", 8, 70000, 8, "70000 tensors" },
    { "values 2^63", "GGUF", 16, 1ull << 63, 8, "values in a file" },
    { "values, one too many", "GGUF", 16, 60000, 8, "values in a file" },
    { "key longer than the file", "general.type", -8, 1ull << 40, 8, "a string of 1099511627776 bytes" },
    { "key of 65536 bytes", "general.type", -8, 65536, 8, "at most 65535 are allowed" },
    { "key with a NUL", "general.type", 3, 0, 1, "a key that is empty or holds control characters" },
    { "key that is not UTF-8", "general.type", 3, 0xff, 1,
      "a key that is empty or holds control characters" },
    { "key that is empty", "general.type", -8, 0, 8, "a key that is empty" },
    { "key twice", "tokenizer.ggml.bos_token_id", 15, 'e', 1, "eos_token_id: the key is given twice" },
    { "type of a value", "general.alignment", 17, 13, 4, "a value of type 13, allowed are 0 to 12" },
    { "text longer than the file", "general.type", 16, 1ull << 62, 8,
      "a string: a string of 4611686018427387904 bytes" },
    { "nested array", "tokenizer.ggml.token_type", 29, 9, 4, "an array of type 9" },
    { "unknown elements", "tokenizer.ggml.token_type", 29, 13, 4, "an array of type 13" },
    { "array beyond the file", "tokenizer.ggml.token_type", 33, 1ull << 62, 8,
      "an array of 4611686018427387904 elements" },
    { "strings beyond the file", "tokenizer.ggml.tokens", 29, 1ull << 61, 8,
      "an array of 2305843009213693952" },
    { "alignment 0", "general.alignment", 21, 0, 4, "a power of two from 8 to 65536" },
    { "alignment 4", "general.alignment", 21, 4, 4, "a power of two" },
    { "alignment 24", "general.alignment", 21, 24, 4, "a power of two" },
    { "alignment 2^17", "general.alignment", 21, 1 << 17, 4, "a power of two" },
    { "alignment of another type", "general.alignment", 17, 5, 4, "allowed is a u32" },
    { "name of 64 bytes", "blk.0.attn_norm.weight", -8, 64, 8, "a string of 64 bytes, at most 63" },
    { "name of 0 bytes", "blk.0.attn_norm.weight", -8, 0, 8, "a tensor's name that is empty" },
    { "name with a control byte", "blk.0.attn_norm.weight", 2, 27, 1, "control characters" },
    { "name that is not UTF-8", "blk.0.attn_norm.weight", 2, 0xff, 1, "control characters" },
    { "name with a NUL", "blk.0.attn_norm.weight", 2, 0, 1, "control characters" },
    { "name twice", "blk.1.attn_norm.weight", 4, '0', 1, "tensor \"blk.0.attn_norm.weight\" is given twice" },
    { "0 dimensions", "blk.0.attn_q.weight", 19, 0, 4, "0 dimensions, allowed are 1 to 4" },
    { "5 dimensions", "blk.0.attn_q.weight", 19, 5, 4, "5 dimensions" },
    { "dimension 0", "blk.0.attn_q.weight", 23, 0, 8, "dimension 0 is 0" },
    { "product 2^63", "blk.0.attn_q.weight", 31, 1ull << 58, 8, "with a product below 2^63" },
    { "product wraps to 0", "blk.0.attn_q.weight", 31, 1ull << 59, 8, "with a product below 2^63" },
    { "bytes wrap", "blk.0.attn_q.weight", 31, (1ull << 58) - 1, 8, NULL },
    { "NVFP4", "blk.0.attn_q.weight", 39, 40, 4, "rows of 32 elements, NVFP4 needs a multiple of 64" },
    { "Q1_0", "blk.0.attn_q.weight", 39, 41, 4, "rows of 32 elements, Q1_0 needs a multiple of 128" },
    { "Q2_0", "blk.0.attn_q.weight", 39, 42, 4, "rows of 32 elements, Q2_0 needs a multiple of 64" },
    { "Q8_1", "blk.0.attn_q.weight", 39, 9, 4,
      "tensor \"blk.0.attn_q.weight\": type Q8_1 is not supported" },
    { "a removed type", "blk.0.attn_q.weight", 39, 31, 4,
      "was removed from the format; convert the model again" },
    { "an unknown type", "blk.0.attn_q.weight", 39, 1000, 4, "type 1000 is unknown" },
    { "row and block", "blk.0.attn_q.weight", 39, 12, 4,
      "rows of 32 elements, Q4_K needs a multiple of 256" },
    { "offset with a gap", "blk.0.attn_q.weight", 43, 1 << 20, 8, "the data before it end at" },
    { "offset that overlaps", "blk.0.attn_q.weight", 43, 0, 8, "offset 0, the data before it end at" },
    { "offset 2^64 - 32", "blk.0.attn_q.weight", 43, ~31ull, 8, "offset 18446744073709551584" },
};

static void every_check_of_the_container_has_its_file(void)
{
    struct gguf g;
    struct err e;
    size_t n;
    for (size_t i = 0; i < sizeof patches / sizeof *patches; i++) {
        const struct patch *p = &patches[i];
        char *file = rig_make(NULL, true, &n);
        put(find(file, n, p->text) + p->at, p->x, p->bytes);
        e = (struct err){ 0 };
        CHECK(gguf_parse(&g, "x.gguf", (uint8_t *)file, n, n, &e) == -1 && one_line(&e), "%s: %s", p->name,
              e.msg);
        CHECK(!p->says || strstr(e.msg, p->says), "%s: %s", p->name, e.msg);
        CHECK(!g.value && !g.tensor, "%s: closed", p->name);
        free(file);
    }
}

/* Every type that the format has or had, and longhand does not read. */
static void other_types_are_refused_by_name(void)
{
    static const struct { uint32_t id; const char *says; } other[] = {
        { 9, "type Q8_1 is" },        { 15, "type Q8_K is" },    { 24, "type I8 is" },
        { 25, "type I16 is" },        { 26, "type I32 is" },     { 27, "type I64 is" },
        { 28, "type F64 is" },
        { 4, "type 4 was" },          { 5, "type 5 was" },       { 31, "type 31 was" },
        { 32, "type 32 was" },        { 33, "type 33 was" },     { 36, "type 36 was" },
        { 37, "type 37 was" },        { 38, "type 38 was" },     { 43, "type 43 is unknown" },
        { UINT32_MAX, "type 4294967295 is unknown" },
    };
    struct gguf g;
    struct err e;
    size_t n;
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        char *file = rig_make(NULL, true, &n);
        put(find(file, n, "blk.1.ffn_down.weight") + 41, other[i].id, 4);
        CHECK(gguf_parse(&g, "x", (uint8_t *)file, n, n, &e) == -1 && one_line(&e), "%u", other[i].id);
        CHECK(strstr(e.msg, "tensor \"blk.1.ffn_down.weight\": ") && strstr(e.msg, other[i].says), "%s",
              e.msg);
        free(file);
    }
}

/* The size is taken once; a file that lost bytes since then is no model. */
static void a_file_that_became_shorter_is_refused(void)
{
    struct gguf g;
    struct err e;
    size_t n;
    char *file = rig_make(NULL, true, &n);
    FILE *f = tmpfile();
    if (!f || fwrite(file, 1, n, f) != n || fflush(f))
        abort();
    CHECK(gguf_read(&g, "x", fileno(f), n, &e) == 0, "%s", e.msg);
    gguf_close(&g);
    CHECK(gguf_read(&g, "x", fileno(f), n + 1, &e) == -1 && one_line(&e), "%s", e.msg);
    CHECK(strstr(e.msg, "the file became shorter"), "%s", e.msg);
    fclose(f);
    free(file);
}

static void a_value_beyond_its_type_is_refused(void)
{
    const struct rig_change c = { "tokenizer.ggml.add_bos_token", GGUF_BOOL, 1, NULL, { 0 } };
    struct gguf g;
    struct err e;
    size_t n;
    char *file = rig_make(&c, true, &n);
    find(file, n, c.key)[strlen(c.key) + 4] = 2;
    CHECK(gguf_parse(&g, "x", (uint8_t *)file, n, n, &e) == -1 && strstr(e.msg, "a bool of 2"), "%s", e.msg);
    free(file);
}

static void a_file_that_ends_early_is_refused(void)
{
    struct gguf g;
    struct err e;
    size_t n, refused = 0;
    char *file = rig_make(NULL, true, &n), *longer = calloc(1, n + 64);
    memcpy(longer, file, n);
    CHECK(gguf_parse(&g, "x", (uint8_t *)file, n, n, &e) == 0, "%s", e.msg);
    const size_t start = g.data_start;
    gguf_close(&g);
    CHECK(gguf_parse(&g, "x", (uint8_t *)longer, n + 64, n + 64, &e) == 0, "bytes after the data: %s", e.msg);
    gguf_close(&g);
    for (size_t have = 0; have < n; have += have < start ? 1 : 997) {
        /* a copy of its own size: a sanitizer sees a read beyond it */
        uint8_t *cut = malloc(have + 1);
        memcpy(cut, file, have);
        e = (struct err){ 0 };
        CHECK(gguf_parse(&g, "x", cut, have, have, &e) == -1 && one_line(&e), "cut at %zu: %s", have, e.msg);
        CHECK(have + GGUF_PAD >= start || gguf_parse(&g, "x", cut, have, n, &e) == 1,
              "%zu bytes of the header", have);
        free(cut);
        refused++;
    }
    CHECK(refused > start);
    free(file);
    free(longer);
}

/* ---- the model ---- */

static bool mutated;                     /* tokens may have changed, too */

/* Opens a file as a model. Its tokenizer must give the letter c the id that it has in every file of the rig.
 */
static int open_file(const char *file, size_t n, struct err *e)
{
    char path[] = "/tmp/longhand-gguf-XXXXXX";
    struct gguf_model m;
    struct tokenizer *t = NULL;
    int fd = mkstemp(path), rc = -1;
    *e = (struct err){ 0 };
    if (fd < 0 || write_bytes(fd, file, n))
        abort();
    close(fd);
    if (gguf_model_open(&m, path, e) == 0) {
        const bool bad = config_check_tensors(&m.config, &m.ts, e) ||
                         tokenizer_open(&t, path, m.config.vocab, e);
        int32_t *ids = NULL;
        size_t n_ids = 0;
        rc = bad ? -1 : 0;
        if (t && !bad && !mutated && m.config.vocab == RIG_VOCAB)
            CHECK(!tokenizer_encode(t, &ids, &n_ids, "c", 1, false, e) && n_ids && ids[n_ids - 1] == 261,
                  "the ids of a text: %s", e->msg);
        free(ids);
        tokenizer_close(t);
        gguf_model_close(&m);
    }
    unlink(path);
    return rc;
}

struct bad_model { const char *says; int form; struct rig_change c; };
static const struct bad_model bad_models[] = {
    { "found gemma5, allowed are llama, mistral3, qwen2, qwen3, qwen2moe, qwen3moe, qwen35, qwen35moe, "
      "gemma3, "
      "gemma4, gemma4-assistant, smollm3, exaone4, phi3, olmo2, granite, gpt-oss", true,
      { "general.architecture", GGUF_STRING, 0, "gemma5", { 0 } } },
    { "sliding_window: the key is missing", 3,
      { "gemma3.attention.sliding_window", RIG_DROP, 0, NULL, { 0 } } },
    { "sliding_window: found 0", 3, { "gemma3.attention.sliding_window", GGUF_U32, 0, NULL, { 0 } } },
    { "sliding_window: found 4294967295", 3,
      { "gemma3.attention.sliding_window", GGUF_U32, 4294967295.0, NULL, { 0 } } },
    { "sliding_window: a whole number is needed", 3,
      { "gemma3.attention.sliding_window", GGUF_STRING, 0, "16", { 0 } } },
    { "sliding_window_pattern: found 0", 3,
      { "gemma3.attention.sliding_window_pattern", GGUF_U32, 0, NULL, { 0 } } },
    { "sliding_window_pattern: a whole number is needed", 3,
      { "gemma3.attention.sliding_window_pattern", GGUF_STRING, 0, "6", { 0 } } },
    { "sliding_window_pattern: an array of booleans is needed", 3,
      { "gemma3.attention.sliding_window_pattern", GGUF_ARRAY, 1, NULL, { 0 } } },
    { "sliding_window_pattern: 3 layers, needed are 2", 3,
      { "gemma3.attention.sliding_window_pattern", RIG_BOOLS, 3, NULL, { 0 } } },
    { "freq_base_swa: found 0", 3, { "gemma3.rope.freq_base_swa", GGUF_F32, 0, NULL, { 0 } } },
    { "freq_base_swa: found nan", 3, { "gemma3.rope.freq_base_swa", GGUF_F32, NAN, NULL, { 0 } } },
    { "freq_base_swa: a number is needed", 3, { "gemma3.rope.freq_base_swa", GGUF_STRING, 0, "x", { 0 } } },
    { "scaling.factor: found nan", 3, { "gemma3.rope.scaling.factor", GGUF_F32, NAN, NULL, { 0 } } },
    { "tensor \"blk.1.post_ffw_norm.weight\" is missing", 3,
      { "blk.1.post_ffw_norm.weight", RIG_DROP, 0, NULL, { 0 } } },
    { "tensor \"blk.0.post_attention_norm.weight\" is missing", 3,
      { "blk.0.post_attention_norm.weight", RIG_DROP, 0, NULL, { 0 } } },
    { "tensor \"blk.0.attn_q.bias\" is not one of a gemma3 model", 3,
      { "blk.0.attn_q.bias", RIG_ADD, 0, NULL, { 32, 0 } } },
    { "tensor \"rope_freqs.weight\" in a gemma3 model", 3, { "rope_freqs.weight", RIG_ADD, 0, NULL,
      { 8, 0 } } },
    { "tensor \"blk.0.post_ffw_norm.weight\" is not one of a llama model", true,
      { "blk.0.post_ffw_norm.weight", RIG_ADD, 0, NULL, { 32, 0 } } },
    { "general.architecture: the key is missing", true, { "general.architecture", RIG_DROP, 0, NULL,
      { 0 } } },
    { "found ge\\x0am\\x1b[31mma, allowed", true,
      { "general.architecture", GGUF_STRING, 0, "ge\nm\x1b[31mma", { 0 } } },
    { "general.architecture: a string is needed", true,
      { "general.architecture", GGUF_U32, 1, NULL, { 0 } } },
    { "found imatrix, allowed is model", true, { "general.type", GGUF_STRING, 0, "imatrix", { 0 } } },
    { "found mmproj, allowed is model", true, { "general.type", GGUF_STRING, 0, "mmproj", { 0 } } },
    { "context_length: found 0", true, { "llama.context_length", GGUF_U32, 0, NULL, { 0 } } },
    { "context_length: found 4294967295", true,
      { "llama.context_length", GGUF_U32, 4294967295.0, NULL, { 0 } } },
    { "embedding_length: found 0", true, { "llama.embedding_length", GGUF_U32, 0, NULL, { 0 } } },
    { "feed_forward_length: found 0", true, { "llama.feed_forward_length", GGUF_U32, 0, NULL, { 0 } } },
    { "attention.head_count 3 is not a multiple of llama.attention.head_count_kv 2", true,
      { "llama.attention.head_count", GGUF_U32, 3, NULL, { 0 } } },
    { "scaling.factor: found nan", true, { "llama.rope.scaling.factor", GGUF_F32, NAN, NULL, { 0 } } },
    { "tokenizer.ggml.tokens", true, { "tokenizer.ggml.tokens", RIG_DROP, 0, NULL, { 0 } } },
    { "found adapter, allowed is model", true, { "general.type", GGUF_STRING, 0, "adapter", { 0 } } },
    { "llama.block_count: found 0, allowed are 1 to 512", true, { "llama.block_count", GGUF_U32, 0, NULL,
      { 0 } } },
    { "found 513, allowed are 1 to 512", true, { "llama.block_count", GGUF_U32, 513, NULL, { 0 } } },
    { "llama.block_count: a whole number is needed", true, { "llama.block_count", GGUF_F32, 2, NULL,
      { 0 } } },
    { "llama.block_count: the key is missing", true, { "llama.block_count", RIG_DROP, 0, NULL, { 0 } } },
    { "num_hidden_layers is 3", true, { "llama.block_count", GGUF_U32, 3, NULL, { 0 } } },
    { "block_count is 1", true, { "llama.block_count", GGUF_U32, 1, NULL, { 0 } } },
    { "head_count: found 0", true, { "llama.attention.head_count", GGUF_U32, 0, NULL, { 0 } } },
    { "head_count_kv: found 3", true, { "llama.attention.head_count_kv", GGUF_U32, 3, NULL, { 0 } } },
    { "an array of 1 elements, one for each of 2 layers", true,
      { "llama.attention.head_count", GGUF_ARRAY, 2, NULL, { 0 } } },
    { "llama.attention.key_length is 7, allowed are even numbers", true,
      { "llama.attention.key_length", GGUF_U32, 7, NULL, { 0 } } },
    { "found 514, allowed are 2 to 512", true, { "llama.attention.key_length", GGUF_U32, 514, NULL, { 0 } } },
    { "dimension_count: found 8", true, { "llama.rope.dimension_count", GGUF_U32, 8, NULL, { 0 } } },
    { "rms_epsilon: found nan", true, { "llama.attention.layer_norm_rms_epsilon", GGUF_F32, NAN, NULL,
      { 0 } } },
    { "rms_epsilon: found 0", true, { "llama.attention.layer_norm_rms_epsilon", GGUF_F32, 0, NULL, { 0 } } },
    { "freq_base: found inf", true, { "llama.rope.freq_base", GGUF_F32, INFINITY, NULL, { 0 } } },
    { "freq_base: found -1", true, { "llama.rope.freq_base", GGUF_F32, -1, NULL, { 0 } } },
    { "scaling.factor: found -2", true, { "llama.rope.scaling.factor", GGUF_F32, -2, NULL, { 0 } } },
    { "scaling.type: found longrope, allowed are none, linear and yarn", true,
      { "llama.rope.scaling.type", GGUF_STRING, 0, "longrope", { 0 } } },
    { "expert_used_count: the key is missing, or 0", true,
      { "llama.expert_count", GGUF_U32, 8, NULL, { 0 } } },
    { "expert_used_count: found 2, allowed are 0 to 0", true,
      { "llama.expert_used_count", GGUF_U32, 2, NULL, { 0 } } },
    { "expert_count: found 1025, allowed are 0 to 1024", 2,
      { "llama.expert_count", GGUF_U32, 1025, NULL, { 0 } } },
    { "expert_used_count: found 6, allowed are 0 to 5", 2,
      { "llama.expert_used_count", GGUF_U32, 6, NULL, { 0 } } },
    { "expert_weights_norm: found false", 2, { "llama.expert_weights_norm", GGUF_BOOL, 0, NULL, { 0 } } },
    { "expert_gating_func: found 2, this is not implemented", 2,
      { "llama.expert_gating_func", GGUF_U32, 2, NULL, { 0 } } },
    { "expert_shared_count: found 1, this is not", 2,
      { "llama.expert_shared_count", GGUF_U32, 1, NULL, { 0 } } },
    { "qwen3moe.expert_count: the key is missing, or 0", 2,
      { "general.architecture", GGUF_STRING, 0, "qwen3moe", { 0 } } },
    { "tensor \"blk.0.ffn_gate_inp.weight\": shape [5, 32], the metadata needs [4, 32]", 2,
      { "llama.expert_count", GGUF_U32, 4, NULL, { 0 } } },
    { "tensor \"blk.1.ffn_up_exps.weight\" is missing, needed with shape [64, 32]", 2,
      { "blk.1.ffn_up_exps.weight", RIG_DROP, 0, NULL, { 0 } } },
    { "tensor \"blk.1.ffn_gate_inp.weight\" is missing, needed with shape [5, 32]", 2,
      { "blk.1.ffn_gate_inp.weight", RIG_DROP, 0, NULL, { 0 } } },
    { "tensor \"blk.0.ffn_down_exps.weight\" is missing", 2,
      { "blk.0.ffn_down_exps.weight", 0, 4, NULL, { 64, 32 } } },
    { "tensor \"blk.0.ffn_gate_exps.weight\" has expert 5, the number of experts is 5", 2,
      { "blk.0.ffn_gate_exps.weight", 0, 6, NULL, { 32, 64 } } },
    { "tensor \"blk.0.ffn_gate.weight\" is not one of a mixtral model", 2,
      { "blk.0.ffn_gate.weight", RIG_ADD, 0, NULL, { 32, 64 } } },
    { "tensor \"blk.0.ffn_gate.3.weight\" is not one of a mixtral model", 2,
      { "blk.0.ffn_gate.3.weight", RIG_ADD, 0, NULL, { 32, 64 } } },
    { "tensor \"blk.0.ffn_gate_inp.weight\" is not one of a llama model", true,
      { "blk.0.ffn_gate_inp.weight", RIG_ADD, 0, NULL, { 32, 5 } } },
    { "softcapping: found 50", true, { "llama.attn_logit_softcapping", GGUF_F32, 50, NULL, { 0 } } },
    { "causal: found false", true, { "llama.attention.causal", GGUF_BOOL, 0, NULL, { 0 } } },
    { "eos_token_id: a whole number", true, { "tokenizer.ggml.eos_token_id", GGUF_STRING, 0, "2", { 0 } } },
    { "allowed are up to 64 ids below 300", true, { "longhand.eos_token_ids", GGUF_ARRAY, -1, NULL, { 0 } } },
    { "tokenizer.ggml.model: found bert, allowed are gpt2, llama and gemma4", true,
      { "tokenizer.ggml.model", GGUF_STRING, 0, "bert", { 0 } } },
    { "tokenizer.ggml.pre: found falcon, this pattern is not implemented", false,
      { "tokenizer.ggml.pre", GGUF_STRING, 0, "falcon", { 0 } } },
    { "tokenizer.ggml.pre: the key is missing", false, { "tokenizer.ggml.pre", RIG_DROP, 0, NULL, { 0 } } },
    { "tokenizer.ggml.merges: the key is missing", false, { "tokenizer.ggml.merges", RIG_DROP, 0, NULL,
      { 0 } } },
    { "merges: an array of strings is needed", false, { "tokenizer.ggml.merges", GGUF_ARRAY, 1, NULL,
      { 0 } } },
    { "token_type: 1 elements for 300 tokens", true, { "tokenizer.ggml.token_type", GGUF_ARRAY, 1, NULL,
      { 0 } } },
    { "scores: 1 elements for 300 tokens", true, { "tokenizer.ggml.scores", GGUF_ARRAY, 1, NULL, { 0 } } },
    { "token 260 has the score NaN", true, { "score", 0, 0, NULL, { 0 } } },
    { "all tokens have one score and the file has no merges", true, { "score", 0, 1, NULL, { 0 } } },
    { "token 260 is not UTF-8", true, { "token", 0, 260, "\xff", { 0 } } },
    { "split.no: found 5", true, { "split.no", GGUF_U32, 5, NULL, { 0 } } },
    { "the first of 2 parts, whose name must end in", true, { "split.count", GGUF_U32, 2, NULL, { 0 } } },
    { "split.tensors.count: found 21, the parts have 20", true, { "split.tensors.count", GGUF_U32, 21, NULL,
      { 0 } } },
    { "tensor \"blk.1.ffn_up.weight\" is missing", true, { "blk.1.ffn_up.weight", RIG_DROP, 0, NULL,
      { 0 } } },
    { "tensor \"output_norm.weight\" is missing", true, { "output_norm.weight", RIG_DROP, 0, NULL, { 0 } } },
    { "shape [16, 32], the metadata need", true, { "blk.1.attn_k.weight", 0, 0, NULL, { 32, 16 } } },
    { "shape [32, 1], the metadata need", true, { "blk.0.attn_norm.weight", 0, 0, NULL, { 1, 32 } } },
    { "tensor \"blk.0.mystery.weight\" is not one of", true, { "blk.0.mystery.weight", RIG_ADD, 0, NULL,
      { 32, 0 } } },
    { "tensor \"blk.2.attn_norm.weight\": block_count is 2", true,
      { "blk.2.attn_norm.weight", RIG_ADD, 0, NULL, { 32, 0 } } },
    { "tensor \"blk.1.attn_q.bias\" is not one of a llama model whose first layer has no such bias", true,
      { "blk.1.attn_q.bias", RIG_ADD, 0, NULL, { 32, 0 } } },
    { "sliding_window_pattern: 3 layers, needed are 2", 4,
      { "gemma4.attention.sliding_window_pattern", RIG_BOOLS, 3, NULL, { 0 } } },
    { "sliding_window_pattern: 1 layers, needed are 2", 4,
      { "gemma4.attention.sliding_window_pattern", RIG_BOOLS, 1, NULL, { 0 } } },
    { "head_count_kv: found 3, allowed are 1 to 2", 4,
      { "gemma4.attention.head_count_kv", RIG_NUMBERS, 2, NULL, { 2, 3 } } },
    { "an array of 2 whole numbers is needed", 4,
      { "gemma4.attention.head_count_kv", RIG_NUMBERS, 3, NULL, { 2, 1 } } },
    { "tensor \"blk.0.attn_k.weight\": shape [32, 32], the metadata need", 4,
      { "gemma4.attention.head_count_kv", RIG_NUMBERS, 2, NULL, { 1, 1 } } },
    { "value_length_swa: found 16, allowed are 32 to 32", 4,
      { "gemma4.attention.key_length_swa", GGUF_U32, 32, NULL, { 0 } } },
    { "value_length: found 32, allowed are 48 to 48", 4,
      { "gemma4.attention.key_length", GGUF_U32, 48, NULL, { 0 } } },
    { "expert_used_count: found 6, allowed are 0 to 5", 4,
      { "gemma4.expert_used_count", GGUF_U32, 6, NULL, { 0 } } },
    { "exps.weight\": shape", 4, { "gemma4.expert_feed_forward_length", GGUF_U32, 32, NULL, { 0 } } },
    { "128 in layer 1 and 64 in layer 0", 4,
      { "gemma4.feed_forward_length", RIG_NUMBERS, 2, NULL, { 64, 128 } } },
    { "num_kv_shared_layers is 1, but no layer before layer 1", 4,
      { "gemma4.attention.shared_kv_layers", GGUF_U32, 1, NULL, { 0 } } },
    { "per_layer", 4, { "gemma4.embedding_length_per_layer_input", GGUF_U32, 16, NULL, { 0 } } },
    { "sliding_window_pattern: 3 layers, needed are 2", 7,
      { "exaone4.attention.sliding_window_pattern", RIG_BOOLS, 3, NULL, { 0 } } },
    { "tensor \"blk.0.attn_norm.weight\" is not one of", 7,
      { "blk.0.attn_norm.weight", RIG_ADD, 0, NULL, { 32, 0 } } },
    { "tensor \"blk.0.ffn_norm.weight\" is not one of", 7,
      { "blk.0.ffn_norm.weight", RIG_ADD, 0, NULL, { 32, 0 } } },
    { "tensor \"rope_freqs.weight\" in a exaone4 model with rope.scaling", 7,
      { "rope_freqs.weight", RIG_ADD, 0, NULL, { 8, 0 } } },
    { "expert_feed_forward_length: found 32, allowed are 64 to 64", 5,
      { "gpt-oss.expert_feed_forward_length", GGUF_U32, 32, NULL, { 0 } } },
    { "tensor \"blk.0.attn_q_norm.weight\" is not one of", true,
      { "blk.0.attn_q_norm.weight", RIG_ADD, 0, NULL, { 16, 0 } } },
    { "blk.0.attn_qkv.weight\" has 95 rows, needed are 96", true,
      { "blk.0.attn_qkv.weight", RIG_ADD, 0, NULL, { 32, 95 } } },
    { "element 0 is 0, allowed are numbers above 0", true, { "rope_freqs.weight", RIG_ADD, 0, NULL,
      { 8, 0 } } },
    { "needed is F32 [8]", true, { "rope_freqs.weight", RIG_ADD, 0, NULL, { 9, 0 } } },
};

static void every_check_of_a_model_has_its_file(void)
{
    struct err e;
    size_t n;
    for (int form = 0; form < RIG_FORMS; form++) {
        char *file = rig_make(NULL, form, &n);
        CHECK(open_file(file, n, &e) == 0, "the unchanged file: %s", e.msg);
        free(file);
    }
    for (size_t i = 0; i < sizeof bad_models / sizeof *bad_models; i++) {
        const struct bad_model *b = &bad_models[i];
        char *file = rig_make(&b->c, b->form, &n);
        CHECK(open_file(file, n, &e) == -1 && one_line(&e) && strstr(e.msg, b->says), "%s: %s: %s", b->c.key,
              b->says, e.msg);
        free(file);
    }
}

/* Files of newer families without one of their tensors, and with one of another shape. */
static void each_tensor_is_needed_as_it_is(void)
{
    for (int form = 4; form < RIG_FORMS; form++) {
        struct gguf g;
        struct err e;
        size_t n, n_changed;
        char *file = rig_make(NULL, form, &n);
        CHECK(gguf_parse(&g, "x", (uint8_t *)file, n, n, &e) == 0 && g.n_tensors >= 24, "%s", e.msg);
        for (size_t i = 0; i < g.n_tensors; i++)
            for (int wide = 0; wide < 2; wide++) {
                const struct gguf_tensor *t = &g.tensor[i];
                const struct rig_change c = { t->name, wide ? 0 : RIG_DROP, 0, NULL,
                                              { t->dim[0] * 2, t->n_dims > 1 ? t->dim[1] : 0 } };
                char *changed = rig_make(&c, form, &n_changed);
                const bool last = !wide && strcmp(t->name, "blk.1.attn_norm.weight") == 0;
                CHECK(open_file(changed, n_changed, &e) == -1 && one_line(&e) &&
                          strstr(e.msg, last ? "the files have tensors of 1 layers" : t->name),
                      "%s of a %s model, %s: %s", t->name, rig_archs[form], wide ? "wide" : "missing", e.msg);
                free(changed);
            }
        gguf_close(&g);
        free(file);
    }
}

/* The keys of newer families, each in six ways: missing, a text, 0, 2^32 - 1, an array of the number 1, and
 * true. x: the file is refused in a line with the key's name; o: in another line; -: it is read. */
static void each_key_in_six_ways(void)
{
    static const struct { int form; const char *key, *fate; } keys[] = {
        { 4, "attention.head_count_kv", "oxxxxx" },
        { 4, "attention.key_length", "oxxxxx" },
        { 4, "attention.value_length", "-xxxxx" },
        { 4, "attention.key_length_swa", "xxxxxx" },
        { 4, "attention.value_length_swa", "-xxxxx" },
        { 4, "attention.sliding_window", "xxxxxx" },
        { 4, "attention.sliding_window_pattern", "xxxxxx" },
        { 4, "attention.shared_kv_layers", "-x-xxx" },
        { 4, "embedding_length_per_layer_input", "-x-xxx" },
        { 4, "rope.dimension_count", "-xxxxx" },
        { 4, "rope.dimension_count_swa", "-xxxxx" },
        { 4, "rope.freq_base_swa", "-xx-xx" },
        { 4, "final_logit_softcapping", "-x-xxx" },
        { 4, "feed_forward_length", "xxxxxx" },
        { 4, "expert_count", "oxoxxx" },
        { 4, "expert_used_count", "xxxxxx" },
        { 4, "expert_feed_forward_length", "xxxxxx" },
        { 5, "attention.sliding_window", "xxxxxx" },
        { 5, "expert_count", "oxoxxx" },
        { 5, "expert_used_count", "xxxxxx" },
        { 5, "expert_feed_forward_length", "-xxxxx" },
        { 5, "rope.scaling.type", "-xxxxx" },
        { 5, "rope.scaling.factor", "-x-xxx" },
        { 5, "rope.scaling.original_context_length", "-xxxxx" },
        { 5, "rope.scaling.yarn_beta_fast", "-xxxxx" },
        { 5, "rope.scaling.yarn_beta_slow", "-xxxxx" },
        { 6, "attention.sliding_window", "xxxxxx" },
        { 6, "attention.sliding_window_pattern", "-xxxxx" },
        { 6, "rope.freq_base_swa", "-xx-xx" },
        { 6, "rope.scaling.yarn_attn_factor", "-xxxxx" },
        { 6, "rope.scaling.factor", "-x-xxx" },
        { 7, "attention.sliding_window", "-x-xxx" },
        { 7, "attention.sliding_window_pattern", "-xxxxx" },
        { 7, "attention.key_length", "-xxxxx" },
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char key[80], fate[7] = "";
        snprintf(key, sizeof key, "%s.%s", rig_archs[keys[i].form], keys[i].key);
        const struct rig_change ways[] = {
            { key, RIG_DROP, 0, NULL, { 0 } },  { key, GGUF_STRING, 0, "x", { 0 } },
            { key, GGUF_U32, 0, NULL, { 0 } },  { key, GGUF_U32, 4294967295.0, NULL, { 0 } },
            { key, GGUF_ARRAY, 1, NULL, { 0 } }, { key, GGUF_BOOL, 1, NULL, { 0 } },
        };
        for (size_t k = 0; k < 6; k++) {
            size_t n;
            struct err e;
            char *file = rig_make(&ways[k], keys[i].form, &n);
            const int rc = open_file(file, n, &e);
            CHECK(rc == 0 || one_line(&e), "%s, way %zu: %s", key, k, e.msg);
            fate[k] = rc == 0 ? '-' : strstr(e.msg, keys[i].key) ? 'x' : 'o';
            if (fate[k] != keys[i].fate[k])
                printf("    %s, way %zu: %s\n", key, k, rc ? e.msg : "it is read");
            free(file);
        }
        CHECK(strcmp(fate, keys[i].fate) == 0, "%s: %s, wanted %s", key, fate, keys[i].fate);
    }
}

/* Values that no text needs, of files that llama.cpp loads, too. Each changed file gives the ids of the
 * unchanged one for a text that the change does not touch. */
static void values_that_no_text_needs_are_ignored(void)
{
    static const struct { int form; struct rig_change c; } loads[] = {
        { 1, { "llama.vocab_size", GGUF_U32, 301, NULL, { 0 } } },
        { 1, { "tokenizer.ggml.bos_token_id", GGUF_U32, 32000, NULL, { 0 } } },
        { 1, { "tokenizer.ggml.eos_token_id", GGUF_U32, 4294967295.0, NULL, { 0 } } },
        { 1, { "tokenizer.ggml.eot_token_id", GGUF_U32, 4294967295.0, NULL, { 0 } } },
        { 1, { "tokenizer.ggml.unknown_token_id", GGUF_U32, 300, NULL, { 0 } } },
        { 1, { "token_type", 0, 0, NULL, { 0 } } },
        { 1, { "token_type", 0, 7, NULL, { 0 } } },
        { 1, { "token_type", 0, -1, NULL, { 0 } } },
        { 1, { "token", 0, 3, "<0x-1>", { 0 } } },
        { 1, { "token", 0, 260, "", { 0 } } },
        { 1, { "token", 0, 260, "a", { 0 } } },                /* two of one text */
        { 0, { "token", 0, 260, "a", { 0 } } },
        { 0, { "token", 0, 260, "", { 0 } } },
        { 0, { "token", 0, 260, "\xe6\x97\xa5", { 0 } } },     /* a character of no byte */
        { 0, { "tokenizer.ggml.merges", RIG_MERGES, 0, "zz qq", { 0 } } },
        { 3, { "gemma3.attention.sliding_window_pattern", RIG_BOOLS, 2, NULL, { 0 } } },
        { 3, { "gemma3.attention.sliding_window_pattern", GGUF_U32, 2147483647.0, NULL, { 0 } } },
    };
    struct err e;
    size_t n;
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        char *file = rig_make(&loads[i].c, loads[i].form, &n);
        CHECK(open_file(file, n, &e) == 0, "%s, case %zu: %s", loads[i].c.key, i, e.msg);
        free(file);
    }
}

/* What the keys of EXAONE 4 mean: only layers with a window turn, and without a window all do. */
static void keys_of_exaone4(void)
{
    static const struct { struct rig_change c; int windowed[RIG_LAYERS], local[RIG_LAYERS]; } of[] = {
        { { "none", 0, 0, NULL, { 0 } }, { 1, 1 }, { 0, 0 } },
        { { "exaone4.attention.sliding_window_pattern", GGUF_U32, 2, NULL, { 0 } }, { 1, 0 }, { 0, 1 } },
        { { "exaone4.attention.sliding_window_pattern", RIG_BOOLS, 2, NULL, { 0 } }, { 1, 0 }, { 0, 1 } },
        { { "exaone4.attention.sliding_window", RIG_DROP, 0, NULL, { 0 } }, { 0, 0 }, { 0, 0 } },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct gguf g;
        struct config c;
        struct err e = { 0 };
        size_t n;
        char *file = rig_make(&of[i].c, 7, &n);
        CHECK(gguf_parse(&g, "x", (uint8_t *)file, n, n, &e) == 0 && gguf_config(&c, &g, &e) == 0, "%s",
              e.msg);
        CHECK(c.layer[0].norms == NORM_AFTER && c.layer[0].qk_norm == QK_NORM &&
              fabs(c.rope.local_theta) < 1e-9);
        for (size_t l = 0; l < RIG_LAYERS; l++)
            CHECK(c.layer[l].window == (of[i].windowed[l] ? 16 : 0) && c.layer[l].local == of[i].local[l],
                  "case %zu, layer %zu", i, l);
        gguf_close(&g);
        free(file);
    }
}

/* What the keys of Gemma 3 mean, and what they do not say. */
static void keys_of_gemma3(void)
{
    const struct { struct rig_change c; int windowed[RIG_LAYERS]; double local; } of[] = {
        { { "none", 0, 0, NULL, { 0 } }, { 1, 1 }, 1e4 },
        { { "gemma3.attention.sliding_window_pattern", GGUF_U32, 2, NULL, { 0 } }, { 1, 0 }, 1e4 },
        { { "gemma3.attention.sliding_window_pattern", RIG_BOOLS, 2, NULL, { 0 } }, { 1, 0 }, 1e4 },
        { { "gemma3.rope.freq_base_swa", GGUF_F32, 3e4, NULL, { 0 } }, { 1, 1 }, 3e4 },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct gguf g;
        struct config c;
        struct err e = { 0 };
        size_t n;
        char *file = rig_make(&of[i].c, 3, &n);
        CHECK(gguf_parse(&g, "x", (uint8_t *)file, n, n, &e) == 0 && gguf_config(&c, &g, &e) == 0, "%s",
              e.msg);
        CHECK(c.embed == EMBED_SCALED && !c.norm_plus_one && c.layer[0].norms == NORM_BOTH &&
              c.layer[0].gelu && c.window == 16 &&
              fabs(c.query_scalar - 16) < 1e-3 && fabs(c.rope.local_theta - of[i].local) < 1e-3 &&
              fabs(c.rope.theta - 10000) < 1e-3);
        for (size_t l = 0; l < RIG_LAYERS; l++)
            CHECK((c.layer[l].window > 0) == of[i].windowed[l], "case %zu, layer %zu", i, l);
        gguf_close(&g);
        free(file);
    }
}

/* ---- split files ---- */

static void write_part(const char *folder, const char *name, const struct rig_change *c, int part)
{
    char path[300];
    size_t n;
    struct err e;
    char *file = rig_make_part(c, true, part, &n);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (file_write(path, &(struct slice){ file, n }, 1, &e))
        abort();
    free(file);
}

static void parts_are_one_model(void)
{
    static const char first[] = "m-00001-of-00002.gguf", second[] = "m-00002-of-00002.gguf";
    const struct rig_change no = { "split.no", GGUF_U32, 0, NULL, { 0 } },
                            three = { "split.count", GGUF_U32, 3, NULL, { 0 } },
                            sum = { "split.tensors.count", GGUF_U32, 19, NULL, { 0 } },
                            again = { "output_norm.weight", RIG_ADD, 0, NULL, { RIG_HIDDEN, 0 } };
    char folder[] = "/tmp/longhand-gguf-XXXXXX", path[300], other[300];
    struct gguf_model m;
    struct err e;
    if (!mkdtemp(folder))
        abort();
    snprintf(path, sizeof path, "%s/%s", folder, first);
    snprintf(other, sizeof other, "%s/%s", folder, second);
    write_part(folder, first, NULL, 1);
    CHECK(gguf_model_open(&m, path, &e) == -1 && strstr(e.msg, "00002-of-00002.gguf: cannot open"), "%s",
          e.msg);
    write_part(folder, second, NULL, 2);
    CHECK(gguf_model_open(&m, path, &e) == 0 && m.n == 2 && m.ts.n == 20, "%s", e.msg);
    CHECK(config_check_tensors(&m.config, &m.ts, &e) == 0, "%s", e.msg);
    gguf_model_close(&m);
    CHECK(gguf_model_open(&m, other, &e) == -1 && strstr(e.msg, "part 2 of 2; give the first part"), "%s",
          e.msg);
    write_part(folder, second, &no, 2);
    CHECK(gguf_model_open(&m, path, &e) == -1, "two first parts");
    CHECK(strstr(e.msg, "it says part 1 of 2, expected is part 2 of 2"), "%s", e.msg);
    write_part(folder, second, &three, 2);
    CHECK(gguf_model_open(&m, path, &e) == -1 && strstr(e.msg, "it says part 2 of 3"), "%s", e.msg);
    write_part(folder, second, NULL, 2);
    write_part(folder, first, &sum, 1);
    CHECK(gguf_model_open(&m, path, &e) == -1 && strstr(e.msg, "found 19, the parts have 20"), "%s", e.msg);
    write_part(folder, first, &again, 1);        /* a tensor of the second part, too */
    CHECK(gguf_model_open(&m, path, &e) == -1 && one_line(&e), "a tensor in two parts");
    CHECK(strstr(e.msg, "tensor \"output_norm.weight\" is also in "), "%s", e.msg);
    unlink(path);
    unlink(other);
    rmdir(folder);
}

/* ---- mutations ---- */

static uint64_t state = 1;
static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545f4914f6cdd1du >> 11;
}

enum { FLIP, BYTE, LENGTH, CUT, MOVE, KINDS };

/* Changes the header of a file in a random place. */
static void mutate(char *file, size_t *n, size_t header, int kind)
{
    static const uint64_t odd[] = { 0, 1, 255, 65536, 1u << 31, 0xffffffff, 1ull << 32, 1ull << 62,
        1ull << 63, ~0ull };
    const size_t at = draw() % header;
    if (kind == FLIP)
        file[at] = (char)(file[at] ^ 1 << draw() % 8);
    if (kind == BYTE)
        file[at] = (char)draw();
    if (kind == LENGTH)
        memcpy(file + MIN(at, header - 8), &odd[draw() % 10], 8);
    if (kind == CUT)
        *n = draw() % *n;
    if (kind == MOVE)
        memmove(file + at, file + draw() % header, MIN((size_t)16, header - at));
}

/* Mutations of each kind until 200 are refused, for each form of file. Others leave a valid file: a letter of
 * a token, another number. */
static void mutations_are_refused_with_one_line(void)
{
    enum { COUNT = 200, AT_MOST = 20000 };
    static const char *const forms[] = { "gpt2", "llama", "experts", "gemma3", "gemma4", "gpt-oss", "olmo2",
                                         "exaone4" },
                      *const names[KINDS] = { "bits", "bytes", "numbers", "cut files", "moved bytes" };
    struct gguf g;
    struct err e;
    size_t n, size;
    mutated = true;
    for (int form = 0; form < RIG_FORMS; form++)
        for (int kind = 0; kind < KINDS; kind++) {
            size_t refused = 0, tried = 0;
            for (; refused < COUNT && tried < AT_MOST; tried++) {
                char *file = rig_make(NULL, form, &n);
                CHECK(gguf_parse(&g, "x", (uint8_t *)file, n, n, &e) == 0);
                const size_t header = g.data_start;
                gguf_close(&g);
                size = n;
                mutate(file, &size, header, kind);
                const int rc = open_file(file, size, &e);
                CHECK(rc == 0 || one_line(&e), "%s, mutation %zu: %s", names[kind], tried, e.msg);
                refused += rc != 0;
                free(file);
            }
            printf("    %s, %s: %zu of %zu mutations refused\n", forms[form], names[kind],
                   refused, tried);
            CHECK(refused == COUNT && (kind != CUT || tried == COUNT), "%s", names[kind]);
        }
}

/* Files of hybrids, each with one change: a tensor of another name, or a mutation. A file is refused in one
 * line, or it still has everything that the model needs. */
static void changed_files_of_hybrids(void)
{
    static const char *const names[] = { "qwen35-grouped-bf16", "qwen35moe-fused-bf16" };
    enum { COUNT = SANITIZED ? 20 : 50 };
    size_t refused = 0, read = 0;
    for (size_t k = 0; k < 2; k++) {
        char path[200], *file, *copy;
        struct gguf g;
        struct err e;
        size_t n;
        snprintf(path, sizeof path, "tests/data/gguf/%s.gguf", names[k]);
        if (file_read(&file, &n, path, 1 << 20, &e)) abort();
        CHECK(open_file(file, n, &e) == 0 && gguf_parse(&g, "x", (uint8_t *)file, n, n, &e) == 0, "%s",
              e.msg);
        const size_t start = g.data_start;
        for (size_t i = 0; i < g.n_tensors; i++) {
            uint8_t *at = find(file, n, g.tensor[i].name) + strlen(g.tensor[i].name) - 1;
            *at ^= 1;
            CHECK(open_file(file, n, &e) == -1 && e.code == ERR_INPUT && one_line(&e), "%s: %s",
                  g.tensor[i].name, e.msg);
            *at ^= 1;
        }
        copy = malloc(n);
        for (size_t i = 0; i < COUNT * KINDS; i++) {
            size_t now = n;
            memcpy(copy, file, n);
            mutate(copy, &now, start, (int)(i % KINDS));
            const int rc = open_file(copy, now, &e);
            CHECK(rc == 0 || (e.code == ERR_INPUT && one_line(&e)), "mutation %zu: %s", i, e.msg);
            refused += rc != 0, read += rc == 0;
        }
        free(copy);
        gguf_close(&g), free(file);
    }
    CHECK(refused > 50 && read > 0, "%zu refused, %zu read", refused, read);
}

/* ---- encoding ---- */

static void blocks_have_the_bytes_of_the_reference(void)
{
    /* 32 weights whose blocks were computed by gguf-py 0.19.0 */
    float x[32];
    uint8_t q8[34], q4[18];
    for (int i = 0; i < 32; i++)
        x[i] = (float)((i * 37 + 11) % 64 - 31) / 16;
    const struct gguf_type *t8 = encode_type(WEIGHTS_Q8_0, "w", false, 2, 32),
                           *t4 = encode_type(WEIGHTS_Q4_0, "w", false, 2, 32);
    CHECK(t8->bytes == 34 && t4->bytes == 18);
    CHECK(encode_row(q8, t8, x, DT_F32, 32) && encode_row(q4, t4, x, DT_F32, 32));
    CHECK(hash64(HASH64_INIT, q8, sizeof q8) == 0x2ec870a8827e8074u, "0x%llx",
          (unsigned long long)hash64(HASH64_INIT, q8, sizeof q8));
    CHECK(hash64(HASH64_INIT, q4, sizeof q4) == 0x165a1afff33960bdu, "0x%llx",
          (unsigned long long)hash64(HASH64_INIT, q4, sizeof q4));
    x[7] = NAN;
    CHECK(!encode_row(q8, t8, x, DT_F32, 32));
    x[7] = 1e9f;                                 /* the scale is beyond 65504 */
    CHECK(!encode_row(q8, t8, x, DT_F32, 32) && !encode_row(q4, t4, x, DT_F32, 32));
    memset(x, 0, sizeof x);
    CHECK(encode_row(q8, t8, x, DT_F32, 32) && q8[0] == 0 && q8[1] == 0 && q8[33] == 0);
}

int main(void)
{
    RUN(every_check_of_the_container_has_its_file);
    RUN(other_types_are_refused_by_name);
    RUN(a_file_that_became_shorter_is_refused);
    RUN(a_value_beyond_its_type_is_refused);
    RUN(a_file_that_ends_early_is_refused);
    RUN(every_check_of_a_model_has_its_file);
    RUN(each_key_in_six_ways);
    RUN(each_tensor_is_needed_as_it_is);
    RUN(values_that_no_text_needs_are_ignored);
    RUN(keys_of_gemma3);
    RUN(keys_of_exaone4);
    RUN(parts_are_one_model);
    RUN(mutations_are_refused_with_one_line);
    RUN(changed_files_of_hybrids);
    RUN(blocks_have_the_bytes_of_the_reference);
    return test_end();
}
