/* R1 for whole passes on a device: the logits of a row are the same bytes for any number of rows in the pass,
 * as rows after the text or as a chain in a tree. On a GPU: two layers of Llama-3.1-8B's shape, 1 to 128 rows
 * and 900, at lengths up to 100,000. On the emulated GPU: a few of these cases. */
#include "kernels/cuda/gpu.h"
#include "src/model/model.h"
#include "tests/device_open.h"
#include "tests/test.h"

enum { ROWS_MAX = 900, TREE_MAX = 128 };
static struct device *dev;
static struct config config;
static struct model model;
static struct workspace *work;
static struct kv kv;
static int32_t token[ROWS_MAX], chain[TREE_MAX];
static uint8_t all[ROWS_MAX];
/* device memory [rows][vocab]; host memory: of single rows, of the present pass */
static float *logits, *one, *got;

static const char large[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 4096, "
    "\"intermediate_size\": 14336, \"num_hidden_layers\": 2, \"num_attention_heads\": 32,\n"
    " \"num_key_value_heads\": 8, \"head_dim\": 128, \"vocab_size\": 8192, \"max_position_embeddings\": "
    "131072, \"rms_norm_eps\": 1e-05, \"rope_theta\": 500000.0,\n"
    " \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"bos_token_id\": 0, \"eos_token_id\": 1}";
static const char tiny[] =
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 128, "
    "\"intermediate_size\": 256, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,\n"
    " \"num_key_value_heads\": 1, \"head_dim\": 64, \"vocab_size\": 256, \"max_position_embeddings\": "
    "131072, \"rms_norm_eps\": 1e-05, \"rope_theta\": 500000.0,\n"
    " \"hidden_act\": \"silu\", \"tie_word_embeddings\": false, \"bos_token_id\": 0, \"eos_token_id\": 1}";

/* Random rows up to n; the slots after them hold finite values. */
static void fill(size_t n)
{
    const size_t blocks = MIN(n / KV_BLOCK + 1, kv.head_bytes / kv.block_bytes);
    for (size_t l = 0; l < kv.n_layers; l++)
        for (size_t h = 0; h < kv.n_kv_heads; h++)
            dev->noise(dev, kv.base + l * kv.layer_bytes + h * kv.head_bytes, blocks * kv.block_bytes / 2,
                       100 + l * 64 + h, 1);
    kv.n_past = n;
    kv.n_written = MAX(kv.n_written, n);
}

static bool pass(size_t at, size_t from, size_t n, bool tree, float *out)
{
    struct err e;
    struct pass_seq s = { .kv = &kv, .n = n, .token = token + from, .parent = tree ? chain : NULL,
                          .want = all, .logits = logits };
    kv.n_past = at + from;
    if (model_forward(&model, work, &s, 1, NULL, 0, &e) ||
        dev->download(dev, out, logits, n * config.vocab * sizeof *out)) {
        CHECK(false, "%zu rows at %zu: %s%s", n, at, e.msg, dev->error);
        return false;
    }
    return true;
}

static void same(size_t at, size_t n, bool tree)
{
    for (size_t r = 0; r < n && !test_failed_; r++)
        CHECK(memcmp(got + r * config.vocab, one + r * config.vocab, config.vocab * sizeof *got) == 0,
              "row %zu of %zu%s after %zu rows differs from the row alone", r, n, tree ? " in a tree" : "",
                  at);
}

static uint64_t hash_ = HASH64_INIT;             /* of the logits of the rows alone */
static void rows_are_the_rows_alone_at(size_t at, const size_t *sizes, size_t n_sizes, size_t most)
{
    fill(at);
    for (size_t i = 0; i < most; i++)
        if (!pass(at, i, 1, false, one + i * config.vocab))
            return;
    CHECK(memcmp(one, one + config.vocab, config.vocab * sizeof *one),
          "two rows are alike: nothing is compared");
    hash_ = hash64(hash_, one, most * config.vocab * sizeof *one);
    for (size_t i = 0; i < n_sizes && !test_failed_; i++) {
        if (pass(at, 0, sizes[i], false, got))
            same(at, sizes[i], false);
        if (sizes[i] <= TREE_MAX && pass(at, 0, sizes[i], true, got))
            same(at, sizes[i], true);
    }
}

static size_t sizes[ROWS_MAX], n_sizes, lengths[16], n_lengths;

/* On the emulated GPU the logits of all rows have a hash in tests/golden.txt, under GPU_NUMERICS_VERSION. A
 * changed definition raises the version and adds a line; lines of a published version are never edited. */
static void logits_are_golden(void)
{
    char line[256], want[32] = "", have[32];
    FILE *f = fopen("tests/golden.txt", "r");
    CHECK(f, "tests/golden.txt is missing");
    while (f && fgets(line, sizeof line, f)) {
        int version;
        char of[128], value[32];
        if (sscanf(line, "%d %127s %31s", &version, of, value) == 3 && version == GPU_NUMERICS_VERSION &&
            !strcmp(of, "emulated-gpu-logits"))
            strcpy(want, value);
    }
    if (f)
        fclose(f);
    snprintf(have, sizeof have, "%016llx", (unsigned long long)hash_);
    CHECK(!strcmp(have, want), "%s, numerics version %d of the GPU has %s: a definition changed, raise "
          "GPU_NUMERICS_VERSION", have, GPU_NUMERICS_VERSION, *want ? want : "none");
}

static void a_row_is_a_row_at_every_length(void)
{
    for (size_t i = 0; i < n_lengths && !test_failed_; i++)
        rows_are_the_rows_alone_at(lengths[i], sizes, n_sizes, sizes[n_sizes - 1]);
}

int main(void)
{
    static const size_t few[] = { 1, 2, 16, 17, 65 }, short_ones[] = { 0, 2040 }, long_ones[] = { 0, 1, 63,
        2047, 4096, 16000, 32768, 65535, 99990 };
    struct err e;
    char why[256];
    if (test_device_open(&dev, why, sizeof why)) {
        printf("skip test_device_r1 (%s)\n", why);
        return 0;
    }
    const bool gpu = test_on_gpu();
    const char *json = gpu ? large : tiny;
    for (size_t n = 1; gpu && n <= 128; n++)
        sizes[n_sizes++] = n;
    if (gpu)
        sizes[n_sizes++] = ROWS_MAX;
    for (size_t i = 0; !gpu && i < sizeof few / sizeof *few; i++)
        sizes[n_sizes++] = few[i];
    n_lengths = gpu ? sizeof long_ones / sizeof *long_ones : sizeof short_ones / sizeof *short_ones;
    memcpy(lengths, gpu ? long_ones : short_ones, n_lengths * sizeof *lengths);
    const size_t rows = sizes[n_sizes - 1], n_max = lengths[n_lengths - 1] + rows;
    memset(all, 1, sizeof all);
    if (config_parse(&config, "model", json, strlen(json), NULL, NULL, 0, &e) ||
        model_random(&model, &(struct model_setup){ &config, DT_BF16, dev }, 1, &e) ||
        kv_open(&kv, dev, &(struct kv_size){ DT_BF16, config.n_layers, config.n_kv_heads, model.head_dim,
                                             n_max, TREE_MAX }, &e) ||
        workspace_open(&work, &model, rows, n_max, &e)) {
        printf("FAIL test_device_r1 (%s)\n", e.msg);
        return 1;
    }
    for (size_t i = 0; i < ROWS_MAX; i++)
        token[i] = (int32_t)(i * 7919 % config.vocab);
    for (size_t i = 0; i < TREE_MAX; i++)
        chain[i] = (int32_t)i - 1;
    logits = dev->alloc(dev, rows * config.vocab * sizeof *logits);
    one = malloc(rows * config.vocab * sizeof *one);
    got = malloc(rows * config.vocab * sizeof *got);
    RUN(a_row_is_a_row_at_every_length);
    if (!gpu)
        RUN(logits_are_golden);
    printf("note %zu row counts from 1 to %zu, each also as a chain in a tree up to %d rows, at %zu lengths "
           "up to %zu\n",
           n_sizes, rows, TREE_MAX, n_lengths, lengths[n_lengths - 1]);
    free(one), free(got);
    dev->free(dev, logits, 0);
    workspace_close(work);
    kv_close(&kv);
    model_close(&model);
    dev->close(dev);
    return test_end();
}
