/* Logits equal those of transformers. Every folder of build/data/models (made by tests/make/make_fixtures.py,
 * described in tests/data/README.md) is a tiny model with the ids of a text, transformers' nll of every
 * token and some of its logits. It also has controls: changes of configuration or weights, with the nll
 * that they must give. LOGITS_MODELS=DIR tests other folders of this form. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "src/model/model.h"
#include "src/text/tokenizer.h"
#include "tests/json_at.h"
#include "tests/test.h"

#define NLL_TOLERANCE 1e-3
#define NLL_HYBRID 2e-4                  /* from a program in double precision */
#define NLL_MOE 1e-5                     /* mixtures of experts: a row with other experts would be far off */
#define MOVE_MIN (10 * NLL_TOLERANCE)
#define KL_MAX 5e-4
enum { FIXTURES_MIN = 26, CHUNK_ROWS = 96, FILE_MAX = 1 << 26 };

struct fixture {
    char dir[512], name[128];
    char *bytes;                     /* reference.bin; the arrays below lie in it */
    uint32_t n, vocab, n_at;
    const int32_t *ids;              /* [n] */
    const float *nll;                /* [n - 1], of ids[1..] */
    const uint32_t *at;              /* [n_at] positions whose logits are stored, ascending */
    const float *logits;             /* [n_at][vocab] */
    char *info_text; struct json info;       /* reference.json */
};

static const struct ops *ops;
static struct pool *pool;
static struct fixture *fixtures;
static size_t n_fixtures;

static void fixture_open(struct fixture *f, const char *root, const char *name)
{
    struct err e = { 0 };
    char path[1024];
    size_t size = 0;
    snprintf(f->dir, sizeof f->dir, "%s/%s", root, name);
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(path, sizeof path, "%s/reference.bin", f->dir);
    if (file_read(&f->bytes, &size, path, FILE_MAX, &e) || size < 20 || memcmp(f->bytes, "LHREF001", 8)) {
        printf("%s: no reference (%s)\n", path, e.msg);
        exit(1);
    }
    memcpy(&f->n, f->bytes + 8, 4), memcpy(&f->vocab, f->bytes + 12, 4), memcpy(&f->n_at, f->bytes + 16, 4);
    size_t want = 20 + 4 * (2 * (size_t)f->n - 1 + f->n_at + (size_t)f->n_at * f->vocab);
    snprintf(path, sizeof path, "%s/reference.json", f->dir);
    const size_t bytes = size;
    if (bytes != want || file_read(&f->info_text, &size, path, FILE_MAX, &e) ||
        js_check(&f->info, path, f->info_text, size, &e)) {
        printf("%s: unreadable, or reference.bin has %zu bytes instead of %zu\n", path, bytes, want);
        exit(1);
    }
    f->ids = (const int32_t *)(f->bytes + 20);
    f->nll = (const float *)(f->ids + f->n);
    f->at = (const uint32_t *)(f->nll + f->n - 1);
    f->logits = (const float *)(f->at + f->n_at);
}

static int is_fixture(const struct dirent *d) { return d->d_name[0] != '.' && !strchr(d->d_name, '.'); }

static void fixtures_open(void)
{
    const char *root = getenv("LOGITS_MODELS") ? getenv("LOGITS_MODELS") : "build/data/models";
    struct dirent **list = NULL;
    int n = scandir(root, &list, is_fixture, alphasort);
    fixtures = calloc(n > 0 ? (size_t)n : 1, sizeof *fixtures);
    for (int i = 0; i < n; i++) {
        fixture_open(&fixtures[n_fixtures++], root, list[i]->d_name);
        free(list[i]);
    }
    free(list);
}

/* ---- longhand's side ---- */

/* The experts of each row of a text, as a hash over all layers: computed again from the arguments of
 * device->experts, before it runs. */
static struct { uint64_t *of; size_t pos;
                void (*run)(struct device *, const struct device_experts *); } route;

static void note_routes(struct device *dev, const struct device_experts *a)
{
    const size_t k = a->router->k, n = a->n_experts;
    float *x = malloc((k + n) * sizeof *x), *r = x + k;
    for (size_t i = 0; i < a->n && route.of; i++) {
        ops->rmsnorm(x, k, DT_F32, a->x + i * k, k, a->norm, 1, k, a->eps);
        ops->matmul(r, n, DT_F32, x, k, 1, a->router, NULL, false, 0, mat_panels(a->router));
        uint64_t chosen[EXPERTS_MAX / 64] = { 0 };
        for (size_t j = 0; j < a->used; j++) {
            const size_t best = ops->argmax(r, n);
            chosen[best / 64] |= UINT64_C(1) << best % 64, r[best] = -INFINITY;
        }
        uint64_t *to = &route.of[route.pos + i];
        *to = hash64(*to ? *to : HASH64_INIT, chosen, sizeof chosen);
    }
    free(x);
    route.run(dev, a);
}

typedef void row_fn(void *ctx, size_t pos, const float *logits);

/* Passes all rows of the text through an open model, in chunks; row() gets the logits of each row. */
static int forward_text(const struct model *m, const struct fixture *f, row_fn *row, void *ctx, struct err *e)
{
    struct kv kv = { 0 };
    struct workspace *w = NULL;
    uint8_t want[CHUNK_ROWS];
    float *logits = malloc(CHUNK_ROWS * (size_t)f->vocab * sizeof *logits);
    const struct kv_size size = model_cache(m, f->n, 0);
    int rc = kv_open(&kv, m->dev, &size, e);
    if (rc == 0)
        rc = workspace_open(&w, m, CHUNK_ROWS, f->n, e);
    memset(want, 1, sizeof want);
    for (size_t pos = 0; rc == 0 && pos < f->n; pos += CHUNK_ROWS) {
        size_t n = MIN((size_t)CHUNK_ROWS, f->n - pos);
        struct pass_seq s = { .kv = &kv, .n = n, .token = f->ids + pos, .certain = true,
                              .want = want, .logits = logits };
        route.pos = pos;
        rc = model_forward(m, w, &s, 1, NULL, 0, e);
        for (size_t i = 0; rc == 0 && i < n; i++)
            row(ctx, pos + i, logits + i * f->vocab);
        if (rc == 0)
            kv_advance(&kv, n);
    }
    workspace_close(w);
    kv_close(&kv);
    free(logits);
    return rc;
}

/* Opens the model of a folder and passes the text through it. no_qk_norm removes the norms of queries and
 * keys. kv: the type of the cache; DT_F32 means --compute f32. */
static int forward_dir(const char *dir, enum dtype kv, bool no_qk_norm, const struct fixture *f, row_fn *row,
                       void *ctx, struct err *e)
{
    struct config config;
    struct model m = { 0 };
    if (config_read(&config, dir, e))
        return -1;
    if (config.context < f->n)
        return err_set(e, ERR_INPUT, "context %zu is below the %u tokens of the text", config.context,
                       (unsigned)f->n);
    if (config.vocab != f->vocab)
        return err_set(e, ERR_INPUT, "vocabulary %zu instead of %u", config.vocab, (unsigned)f->vocab);
    struct device *dev;
    if (device_cpu_open(&dev, ops, pool, kv, e->msg, sizeof e->msg))
        return -1;
    route.run = dev->experts, dev->experts = note_routes;
    const struct model_setup setup = { &config, kv == DT_F32 ? DT_F32 : DT_BF16, dev, ops, pool };
    int rc = model_open(&m, dir, &setup, e);
    assert(!no_qk_norm || config.layer[0].qk_norm);
    if (no_qk_norm)
        for (size_t l = 0; l < m.config.n_layers; l++)
            m.config.layer[l].qk_norm = QK_AS_IS;
    if (rc == 0)
        rc = forward_text(&m, f, row, ctx, e);
    model_close(&m);
    dev->close(dev);
    return rc;
}

static double log_sum_exp(const float *x, size_t n)
{
    double top = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++)
        top = MAX(top, (double)x[i]);
    for (size_t i = 0; i < n; i++)
        sum += exp(x[i] - top);
    return top + log(sum);
}

/* sum over p of p * (log p - log q) */
static double divergence(const float *p, const float *q, size_t n)
{
    double zp = log_sum_exp(p, n), zq = log_sum_exp(q, n), sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp(p[i] - zp) * ((p[i] - zp) - (q[i] - zq));
    return sum;
}

struct nll_ctx { const struct fixture *f; double *nll, worst_logit; size_t next_at; };

static void take_nll(void *ctx, size_t pos, const float *logits)
{
    struct nll_ctx *c = ctx;
    const struct fixture *f = c->f;
    if (pos + 1 < f->n)
        c->nll[pos] = log_sum_exp(logits, f->vocab) - logits[f->ids[pos + 1]];
    if (c->next_at < f->n_at && f->at[c->next_at] == pos) {
        const float *want = f->logits + c->next_at++ * f->vocab;
        for (size_t i = 0; i < f->vocab; i++)
            c->worst_logit = fmax(c->worst_logit, fabs((double)logits[i] - want[i]));
    }
}

/* ---- tests ---- */

static void every_fixture_is_there(void)
{
    const bool others = getenv("LOGITS_MODELS") != NULL;     /* random models have no controls */
    CHECK(n_fixtures >= (others ? 1 : FIXTURES_MIN), "%zu fixtures", n_fixtures);
    for (size_t i = 0; i < n_fixtures && !others; i++)
        CHECK(fixtures[i].n >= 2000 && fixtures[i].n_at >= 16 &&
                  count_at(&fixtures[i].info, "controls") > 0,
              "%s", fixtures[i].name);
}

static void text_gives_the_ids(void)
{
    for (size_t i = 0; i < n_fixtures; i++) {
        const struct fixture *f = &fixtures[i];
        struct tokenizer *t = NULL;
        struct err e = { 0 };
        char path[1024], *text = NULL;
        size_t size = 0, n = 0;
        int32_t *ids = NULL;
        char *file = text_at(&f->info, "text");
        snprintf(path, sizeof path, "%s/../%s", f->dir, file ? file : "");
        free(file);
        int rc = tokenizer_open(&t, f->dir, f->vocab, &e) || file_read(&text, &size, path, FILE_MAX, &e)
              || tokenizer_encode(t, &ids, &n, text, size, true, &e);
        CHECK(rc == 0, "%s: %s", f->name, e.msg);
        CHECK(rc || (n == f->n && memcmp(ids, f->ids, n * sizeof *ids) == 0),
              "%s: %zu ids, %u expected, or others", f->name, n, (unsigned)f->n);
        free(ids), free(text), tokenizer_close(t);
    }
}

static bool is_moe(const struct fixture *f) { return strstr(f->name, "moe") || strstr(f->name, "mixtral"); }
static double tolerance(const struct fixture *f)
{
    return strstr(f->name, "qwen35") ? NLL_HYBRID : is_moe(f) ? NLL_MOE : NLL_TOLERANCE;
}

static void f32_nll_equals_transformers(void)
{
    for (size_t i = 0; i < n_fixtures; i++) {
        const struct fixture *f = &fixtures[i];
        struct err e = { 0 };
        struct nll_ctx c = { .f = f, .nll = calloc(f->n, sizeof *c.nll) };
        int rc = forward_dir(f->dir, DT_F32, false, f, take_nll, &c, &e);
        double worst = 0;
        size_t at = 0;
        for (size_t k = 0; rc == 0 && k + 1 < f->n; k++)
            if (!(fabs(c.nll[k] - f->nll[k]) <= worst))      /* true for a NaN, too */
                worst = fabs(c.nll[k] - f->nll[k]), at = k;
        CHECK(rc == 0, "%s: %s", f->name, e.msg);
        CHECK(rc || c.next_at == f->n_at, "%s", f->name);
        CHECK(rc || worst <= tolerance(f), "%s: nll of token %zu is off by %.2e",
              f->name, at + 1, worst);
        if (rc == 0)
            printf("    %-28s max |d nll| %.1e, max |d logit| %.1e\n", f->name, worst, c.worst_logit);
        free(c.nll);
    }
}

/* route: of the rows under f32, and of this run. Rows whose experts differ are only counted. */
struct kl_ctx { const struct fixture *f; float *f32; uint64_t *route, *own; size_t n_f32, n_hf, others;
                double against_hf, against_f32; size_t next_at; };

static void keep_row(void *ctx, size_t pos, const float *logits)
{
    struct kl_ctx *c = ctx;
    memcpy(c->f32 + pos * c->f->vocab, logits, c->f->vocab * sizeof *logits);
}

static void take_kl(void *ctx, size_t pos, const float *logits)
{
    struct kl_ctx *c = ctx;
    const struct fixture *f = c->f;
    const bool same = c->route[pos] == c->own[pos], stored = c->next_at < f->n_at && f->at[c->next_at] == pos;
    c->others += !same;
    c->against_f32 += same ? divergence(c->f32 + pos * f->vocab, logits, f->vocab) : 0, c->n_f32 += same;
    if (stored && same)
        c->against_hf += divergence(f->logits + c->next_at * f->vocab, logits, f->vocab), c->n_hf++;
    c->next_at += stored;
}

static int take_kl_of(struct kl_ctx *c, enum dtype kv, struct err *e)
{
    c->own = route.of = calloc(c->f->n, sizeof *c->own);
    const int rc = forward_dir(c->f->dir, kv, false, c->f, take_kl, c, e);
    c->against_hf /= (double)MAX(c->n_hf, (size_t)1), c->against_f32 /= (double)MAX(c->n_f32, (size_t)1);
    free(c->own);
    return rc;
}

/* Mean KL from transformers at the stored positions, and at all positions from --compute f32, which equals
 * transformers, with either kind of cache; of a mixture of experts over the rows that have the same experts,
 * nearly all. */
static void bf16_is_near_transformers(void)
{
    double kl[2] = { 0 };                    /* of bf16 and int16, all fixtures */
    for (size_t i = 0; i < n_fixtures; i++) {
        const struct fixture *f = &fixtures[i];
        struct err e = { 0 };
        struct kl_ctx c = { .f = f, .f32 = calloc((size_t)f->n * f->vocab, sizeof *c.f32),
                            .route = calloc(f->n, sizeof *c.route) }, b = c;
        route.of = c.route;
        int rc = forward_dir(f->dir, DT_F32, false, f, keep_row, &c, &e) || take_kl_of(&c, DT_I16, &e) ||
                 take_kl_of(&b, DT_BF16, &e);
        route.of = NULL;
        CHECK(rc == 0, "%s: %s", f->name, e.msg);
        CHECK(rc || c.against_hf <= KL_MAX, "%s: mean KL %.2e at %u positions", f->name, c.against_hf,
              (unsigned)f->n_at);
        CHECK(rc || (c.others <= f->n / 40 && c.n_hf >= f->n_at - 2), "%s: %zu rows have other experts",
              f->name, c.others);
        CHECK(rc || c.against_f32 <= KL_MAX, "%s: mean KL %.2e at all positions", f->name, c.against_f32);
        CHECK(rc || c.against_f32 >= 1e-9, "%s: mean KL %.2e: was this bf16?", f->name, c.against_f32);
        if (rc == 0)
            printf("    %-28s mean KL %.1e (%u positions against transformers), %.1e (all, against f32; %.1e "
                   "with a cache of bf16), %zu rows with other experts\n",
                   f->name, c.against_hf, (unsigned)f->n_at, c.against_f32, b.against_f32, c.others);
        if (!strstr(f->name, "qwen35"))      /* of a hybrid few layers have a cache */
            kl[0] += b.against_f32, kl[1] += c.against_f32;
        free(c.f32), free(c.route);
    }
    printf("    mean of all against f32: %.3e with a cache of int16, %.3e with one of bf16\n",
           kl[1] / (double)n_fixtures, kl[0] / (double)n_fixtures);
    CHECK(kl[1] < 0.95 * kl[0], "a cache of int16 is no nearer to f32 than one of bf16: %g, %g", kl[1],
          kl[0]);
}

/* ---- controls: a changed copy of the folder ---- */

static void copy_file(const char *from, const char *to)
{
    struct err e = { 0 };
    char *data = NULL;
    size_t n = 0;
    int rc = file_read(&data, &n, from, FILE_MAX, &e);
    FILE *out = fopen(to, "wb");
    if (rc || !out || fwrite(data, 1, n, out) != n || fclose(out)) {
        printf("cannot copy %s to %s\n", from, to);
        exit(1);
    }
    free(data);
}

/* do_copy: copies every file except the reference, and no folder; else removes the copy. */
static void for_files(const char *from, const char *to, bool do_copy)
{
    char a[1024], b[1024];
    struct dirent *d;
    DIR *dir = opendir(from);
    while (dir && (d = readdir(dir)))
        if (d->d_name[0] != '.' && strchr(d->d_name, '.') && strncmp(d->d_name, "reference.", 10)) {
            snprintf(a, sizeof a, "%s/%s", from, d->d_name), snprintf(b, sizeof b, "%s/%s", to, d->d_name);
            if (do_copy)
                copy_file(a, b);
            else
                unlink(b);
        }
    if (dir)
        closedir(dir);
    if (!do_copy)
        rmdir(to);
}

/* Copies the members of an object, except those that `set` has or `drop` lists. */
static void copy_members(struct json_writer *w, const struct json *object, const struct json *set,
                         const struct json *drop)
{
    struct json key, v, x;
    for (struct js_walk walk = js_walk(object); js_next(&walk, &key, &v);) {
        char *name = js_strdup(&key);
        bool changed = set && set->s && json_at(set, name).s;
        if (drop && drop->s)
            for (struct js_walk d = js_walk(drop); js_next(&d, NULL, &x);)
                changed |= js_is(&x, name);
        if (!changed)
            jw_value(w, name, &v);
        free(name);
    }
}

/* Sets the members of "set" in config.json and drops those of "drop". */
static void change_config(const char *dir, const struct json *control)
{
    const struct json set = json_at(control, "set"), drop = json_at(control, "drop");
    char path[1024], *text = NULL, *out = NULL;
    struct json config;
    struct err e = { 0 };
    size_t size, n;
    snprintf(path, sizeof path, "%s/config.json", dir);
    FILE *f = memory_file(&out, &n);
    struct json_writer w = { .f = f, .digits = 17 };
    int rc = file_read(&text, &size, path, FILE_MAX, &e) || js_check(&config, path, text, size, &e);
    CHECK(f && rc == 0, "%s", e.msg);
    if (f && rc == 0) {
        jw_open(&w, NULL, '{');
        copy_members(&w, &config, &set, &drop);
        if (set.s)
            copy_members(&w, &set, NULL, &drop);
        jw_close(&w, '}');
        CHECK(stream_end(f) == 0 && file_write(path, &(struct slice){ out, n }, 1, &e) == 0, "%s", e.msg);
    }
    free(out), free(text);
}

static bool ends_with_one_of(const char *name, const struct json *control, const char *list)
{
    struct json l = json_at(control, list), v;
    bool any = false;
    if (l.s)
        for (struct js_walk w = js_walk(&l); js_next(&w, NULL, &v);) {
            char *end = js_strdup(&v);
            size_t n = strlen(name), m = strlen(end);
            any |= n >= m && strcmp(name + n - m, end) == 0;
            free(end);
        }
    return any;
}

/* The number 1 in each type. */
static void fill_ones(char *data, const struct tensor *t)
{
    const uint16_t half = t->dtype == DT_BF16 ? 0x3f80 : 0x3c00;
    const float one = 1;
    for (size_t i = 0; i < t->n_elements; i++)
        memcpy(data + i * dtype_size(t->dtype), t->dtype == DT_F32 ? (const void *)&one : &half,
               dtype_size(t->dtype));
}

static void swap_heads(char *data, const struct tensor *t, size_t n_kv_heads, size_t a, size_t b)
{
    size_t n = t->bytes / n_kv_heads;
    for (size_t i = 0; i < n; i++) {
        char c = data[a * n + i];
        data[a * n + i] = data[b * n + i], data[b * n + i] = c;
    }
}

static int change_weights(const char *dir, const struct json *control, struct err *e)
{
    struct tensors ts = { 0 };
    struct config config;
    const bool swap = json_at(control, "swap_kv_heads").s != NULL;
    if (config_read(&config, dir, e) || tensors_open(&ts, dir, e))
        return -1;
    for (size_t i = 0; i < ts.n; i++) {
        const struct tensor *t = &ts.t[i];
        bool zero = ends_with_one_of(t->stored_name, control, "zero");
        bool one = ends_with_one_of(t->name, control, "one");
        bool swapped = swap && (strstr(t->name, ".k_proj.") || strstr(t->name, ".v_proj."));
        if (!zero && !one && !swapped)
            continue;
        char *data = calloc(1, t->bytes);
        int rc = tensors_read(&ts, t, data, 0, t->bytes, e);
        if (zero)
            memset(data, 0, t->bytes);
        else if (one)
            fill_ones(data, t);
        else
            swap_heads(data, t, config.n_kv_heads, (size_t)number_at(control, "swap_kv_heads.0"),
                       (size_t)number_at(control, "swap_kv_heads.1"));
        int fd = open(ts.path[t->shard], O_WRONLY | O_CLOEXEC);
        if (rc == 0 && (fd < 0 || pwrite(fd, data, t->bytes, (off_t)t->offset) != (ssize_t)t->bytes))
            rc = err_set(e, ERR_FAILED, "%s: cannot be changed", ts.path[t->shard]);
        close(fd);
        free(data);
        if (rc) {
            tensors_close(&ts);
            return -1;
        }
    }
    tensors_close(&ts);
    return 0;
}

static void check_control(const struct fixture *f, const struct json *control)
{
    char label[100];
    struct json flag = json_at(control, "no_qk_norm");
    bool no_qk_norm = flag.s && js_kind(&flag) == JS_TRUE;
    char *name = text_at(control, "name");
    snprintf(label, sizeof label, "%s", name ? name : "");
    free(name);
    const char *tmp = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    size_t at = (size_t)number_at(control, "at");
    double want = number_at(control, "nll");
    struct err e = { 0 };
    char dir[512];
    snprintf(dir, sizeof dir, "%s/longhand-logits-XXXXXX", tmp);
    if (!mkdtemp(dir)) {
        CHECK(false, "%s cannot be made", dir);
        return;
    }
    for_files(f->dir, dir, true);
    change_config(dir, control);
    struct nll_ctx c = { .f = f, .nll = calloc(f->n, sizeof *c.nll) };
    int rc = change_weights(dir, control, &e) || forward_dir(dir, DT_F32, no_qk_norm, f, take_nll, &c, &e);
    CHECK(rc == 0, "%s, %s: %s", f->name, label, e.msg);
    CHECK(rc || fabs(c.nll[at] - f->nll[at]) >= MOVE_MIN, "%s, %s: token %zu moved by %.2e only", f->name,
          label, at + 1, fabs(c.nll[at] - f->nll[at]));
    CHECK(rc || near(c.nll[at], want, NLL_TOLERANCE, 0),
          "%s, %s: nll of token %zu is %.6f, transformers %.6f", f->name, label, at + 1, c.nll[at], want);
    free(c.nll);
    for_files(f->dir, dir, false);
}

static void controls_move_the_nll(void)
{
    size_t n = 0;
    for (size_t k = 0; k < n_fixtures; k++) {
        struct json controls = json_at(&fixtures[k].info, "controls"), control;
        if (controls.s)
            for (struct js_walk w = js_walk(&controls); js_next(&w, NULL, &control); n++)
                check_control(&fixtures[k], &control);
    }
    printf("    %zu controls\n", n);
    if (n == 0)
        SKIP("these models come without controls");
}

int main(void)
{
    const char *why = NULL;
    ops = ops_for_cpu(&why);
    pool = pool_open(MIN(pool_default_threads(), (size_t)4));
    if (!ops || !pool) {
        printf("FAIL test_logits (%s)\n", why ? why : "no threads");
        return 1;
    }
    fixtures_open();
    RUN(every_fixture_is_there);
    RUN(text_gives_the_ids);
    RUN(f32_nll_equals_transformers);
    RUN(controls_move_the_nll);
    RUN(bf16_is_near_transformers);
    for (size_t i = 0; i < n_fixtures; i++)
        free(fixtures[i].bytes), free(fixtures[i].info_text);
    free(fixtures);
    pool_close(pool);
    return test_end();
}
