/* The check of a GPU's kernels. Start at device_passed; compare has what must be equal. */
#include "src/model/device_check.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/version.h"
#include "src/model/model.h"

/* The text has two chunks of keys, and two blocks of threads share the sums of `down` (cu_args.h). Rows from
 * AT on are compared. A tree has PATH rows of the text, each before a sibling. */
enum { TEXT = 272, AT = 260, BOTH = 50, ROWS = 111, PATH = 7, FEW = 5, VOCAB = 256, ROOM = 256 << 20 };
static const double NEAR = 0.02;     /* root mean square of a row's differences, in shares of its logits' */

/* A model for each size of heads; attention with a bias, and with norms. */
static const char form[] =
    "{\"model_type\": \"%s\", \"architectures\": [\"%sForCausalLM\"], \"hidden_size\": 128, "
    "\"intermediate_size\": 512, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"head_dim\": %d, "
    "\"num_key_value_heads\": 2, \"vocab_size\": %d, \"max_position_embeddings\": 4096, \"rms_norm_eps\": "
    "1e-6, \"rope_theta\": 1e6, \"hidden_act\": \"silu\", \"bos_token_id\": 0, \"eos_token_id\": 1, "
    "\"tie_word_embeddings\": %s}";
static const struct { const char *type, *name, *tied; int head_dim; } models[] = {
    { "qwen2", "Qwen2", "false", 64 }, { "qwen3", "Qwen3", "true", 128 } };

struct side { struct model m; struct workspace *w; struct kv kv[2]; float *logits; void *work;
              float text[TEXT * VOCAB]; };       /* text: the logits of each row */

static int open_side(struct side *s, const struct model_setup *setup, struct err *e)
{
    struct device *dev = setup->dev;
    if (model_random(&s->m, setup, 1, e) || workspace_open(&s->w, &s->m, ROWS, TEXT, e))
        return -1;
    const struct kv_size size = model_cache(&s->m, TEXT, 2 * PATH);
    s->logits = dev->alloc(dev, ROWS * VOCAB * sizeof *s->logits);
    s->work = dev->host_memory ? s->logits : dev->alloc(dev, dev->sample_bytes(dev, ROWS, 0, 0, VOCAB));
    return !s->logits || !s->work || kv_open(&s->kv[0], dev, &size, e) || kv_open(&s->kv[1], dev, &size, e)
               ? -1 : 0;
}

static void close_side(struct side *s)
{
    struct device *dev = s->m.dev;
    kv_close(&s->kv[0]);
    kv_close(&s->kv[1]);
    if (s->work && !dev->host_memory)
        dev->free(dev, s->work, 0);
    if (s->logits)
        dev->free(dev, s->logits, ROWS * VOCAB * sizeof *s->logits);
    workspace_close(s->w);
    model_close(&s->m);
}

static int32_t token_at(size_t i) { return (int32_t)(i * 7919 % VOCAB); }

/* The next n rows of the text, or of both texts; or a tree with the next PATH rows, of which these are
 * wanted. */
static int pass(struct side *s, size_t n, bool both, bool tree, float *out, struct err *e)
{
    uint8_t want[ROWS];
    int32_t token[2][ROWS], parent[2 * PATH];
    struct pass_seq q[2];
    for (size_t i = 0; i < 2 * n; i++) {
        struct kv *kv = &s->kv[i / n];
        const size_t row = i % n;
        token[i / n][row] = token_at(kv->n_past + (tree ? row / 2 : row)) ^ (tree && row % 2);
        want[row] = !tree || row % 2 == 0;
        if (tree)
            parent[row] = (int32_t)row / 2 * 2 - (row < 2 ? 1 : 2);
        q[i / n] = (struct pass_seq){ .kv = kv, .n = n, .token = token[i / n], .parent = tree ? parent : NULL,
                                      .want = want, .logits = s->logits + i / n * n * VOCAB };
    }
    if (model_forward(&s->m, s->w, q, 1 + both, NULL, 0, e))
        return -1;
    for (size_t i = 0; i <= both && !tree; i++)
        kv_advance(&s->kv[i], n);
    return s->m.dev->download(s->m.dev, out, s->logits, (tree ? PATH : n << both) * VOCAB * sizeof *out)
               ? err_set(e, ERR_FAILED, "%s", s->m.dev->error) : 0;
}

/* Reads the text, and the beginning of the other. */
static int read_text(struct side *s, struct err *e)
{
    for (size_t at = 0; at < TEXT; at = s->kv->n_past)
        if (pass(s, at ? MIN((size_t)ROWS, TEXT - at) : BOTH, !at, false, s->text + at * VOCAB, e))
            return -1;
    return 0;
}

/* Whether the n rows from `at` on of the text have logits near those of got, or (near 0) the same. */
static int same(const struct side *s, const float *got, size_t at, size_t n, double near, const char *where,
                struct err *e)
{
    const float *x = s->text + at * VOCAB;
    for (size_t row = at; row < at + n; row++, x += VOCAB, got += VOCAB) {
        double sum = 0, diff = 0;
        for (size_t i = 0; i < VOCAB; i++)
            sum += (double)x[i] * x[i], diff += ((double)x[i] - got[i]) * ((double)x[i] - got[i]);
        if (near > 0 ? !(diff <= near * near * sum) : memcmp(x, got, VOCAB * sizeof *x))
            return err_set(e, ERR_FAILED, "row %zu has other logits %s", row, where);
    }
    return 0;
}

/* With a temperature near 0 the likeliest token of a row wins, whatever the filters do. */
static int sampled(struct side *s, const float *got, size_t n, struct err *e)
{
    const struct device_chain chain = {
        .temperature = 1e-6, .top_k = 40, .top_p = 0.95, .min_p = 0.05, .min_keep = 1, .n_order = 4,
        .order = { DEVICE_TEMPERATURE, DEVICE_TOP_K, DEVICE_TOP_P, DEVICE_MIN_P } };
    struct device_pick pick[ROWS] = { 0 };
    struct device_candidate best[ROWS];
    for (size_t i = 0; i < n; i++)
        pick[i].position = pick[i].row = (uint32_t)i;
    if (s->m.dev->sample(s->m.dev, best, 1, s->logits, VOCAB, &chain,
                         &(struct device_picks){ .pick = pick, .n = n, .work = s->work }))
        return err_set(e, ERR_FAILED, "%s", s->m.dev->error);
    for (size_t i = 0; i < n * VOCAB; i++)
        if (best[i / VOCAB].id < 0 || got[i] > got[i / VOCAB * VOCAB + (size_t)best[i / VOCAB].id])
            return err_set(e, ERR_FAILED, "the token that is sampled is not the likeliest");
    return 0;
}

static int compare(struct side *cpu, struct side *gpu, struct err *e)
{
    uint32_t path[PATH];
    float *got = cpu->text;
    if (read_text(cpu, e) || read_text(gpu, e) || same(gpu, got, 0, TEXT, NEAR, "than on the CPU", e))
        return -1;
    for (size_t n = 1; n <= FEW; n += FEW - 1)
        for (kv_truncate(gpu->kv, AT); gpu->kv->n_past < AT + 2 * FEW;)
            if (pass(gpu, n, false, false, got, e) ||
                same(gpu, got, gpu->kv->n_past - n, n, 0, n > 1 ? "in a pass of a few" : "alone", e))
                return -1;
    for (uint32_t i = 0; i < PATH; i++)
        path[i] = 2 * i;
    kv_truncate(gpu->kv, AT);
    if (pass(gpu, 2 * PATH, false, true, got, e) || same(gpu, got, AT, PATH, 0, "in a tree", e))
        return -1;
    kv_commit_path(gpu->kv, path, PATH);
    return pass(gpu, FEW, true, false, got, e) || same(gpu, got, AT + PATH, FEW, 0, "after a tree", e) ||
           same(gpu, got + FEW * VOCAB, BOTH, FEW, 0, "beside another text", e) ||
           sampled(gpu, got, 2 * FEW, e) ? -1 : 0;
}

/* ERR_AGAIN: the check could not begin. */
static int check(size_t model, device_opener *open_gpu, struct err *e)
{
    const char *why;
    const struct ops *ops = ops_for_cpu(&why);
    struct pool *pool = pool_open(1);
    struct side *side = calloc(2, sizeof *side);
    struct device *cpu = NULL, *gpu = NULL;
    struct config c;
    char json[1024];
    const int n = snprintf(json, sizeof json, form, models[model].type, models[model].name,
                           models[model].head_dim, VOCAB, models[model].tied);
    snprintf(e->msg, sizeof e->msg, "%s", ops ? "memory is short" : why);
    int rc = !ops || !pool || !side || config_parse(&c, "check", json, (size_t)n, NULL, NULL, 0, e) ||
             device_cpu_open(&cpu, ops, pool, DT_BF16, e->msg, sizeof e->msg) ||
             open_gpu(&gpu, e->msg, sizeof e->msg) || gpu->bytes_free(gpu) < ROOM ||
             open_side(&side[0], &(struct model_setup){ &c, DT_BF16, cpu, ops, .maker = cpu }, e) ||
             open_side(&side[1], &(struct model_setup){ &c, DT_BF16, gpu, ops, .maker = cpu }, e);
    e->code = rc && !(gpu && *gpu->error) ? ERR_AGAIN : ERR_FAILED;
    if (rc == 0)
        rc = compare(&side[0], &side[1], e);
    for (size_t i = 0; i < 2 && side; i++)
        close_side(&side[i]);
    free(side);
    if (cpu)
        cpu->close(cpu);
    if (gpu)
        gpu->close(gpu);
    if (pool)
        pool_close(pool);
    return rc ? -1 : 0;
}

/* Opens the file for a key, whose folder is made where it can be. */
static int open_file(char *path, size_t size, const char *key, int flags)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    const bool own = cache && *cache == '/';
    snprintf(path, size - 40, "%s%s", own ? cache : home ? home : "", own ? "" : "/.cache");
    mkdir(path, 0700);
    mkdir(strcat(path, "/longhand"), 0700);
    sprintf(path + strlen(path), "/gpu-%016llx", (unsigned long long)hash64(HASH64_INIT, key, strlen(key)));
    return open(path, flags | O_CLOEXEC, 0600);
}

bool device_passed(const struct device *gpu, device_opener *again, char *why, size_t why_size)
{
    char path[PATH_BYTES], key[512], text[3000], *last;
    struct err e = { 0 };
    struct stat program = { 0 };
    int rc = 0;
    stat("/proc/self/exe", &program);
    snprintf(key, sizeof key, "%s, %s, longhand %s of %lld.%09ld", gpu->id, gpu->numerics, LONGHAND_VERSION,
             (long long)program.st_mtim.tv_sec, program.st_mtim.tv_nsec);
    const int fd = open_file(path, sizeof path, key, again ? O_RDWR | O_CREAT : O_RDONLY), no = errno;
    /* another process may be checking, and only a check waits for it */
    const bool busy = fd >= 0 && flock(fd, again ? LOCK_EX : LOCK_SH | LOCK_NB) && !again;
    ssize_t n = fd < 0 || busy ? 0 : read(fd, text, sizeof text - 1);
    if (n <= 0 && again) {
        dprintf(fd, "%s\nfailed: the program ended in it\n", key);          /* unless a line follows */
        for (size_t i = 0; i < sizeof models / sizeof *models && rc == 0; i++)
            rc = check(i, again, &e);
        n = snprintf(text, sizeof text, rc == 0 ? "passed\n" : e.code == ERR_AGAIN ? "could not run: %s\n"
                                                                                   : "failed: %s\n", e.msg);
        dprintf(fd, "%s", text);
        if (rc && e.code == ERR_AGAIN)
            unlink(path);
    }
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n - 1 : 0] = 0;                 /* the end of the last line */
    last = strrchr(text, '\n');
    last = last ? last + 1 : text;
    snprintf(why, why_size, *last ? "the check of the GPU's kernels %s (%s%s%s)" : "", last, path,
             fd < 0 ? ": " : strcmp(last, "passed") ? "; without this file it is checked again" : "",
             fd < 0 ? strerror(no) : "");
    return strcmp(last, "passed") == 0 || (!again && !*last);
}
