/* Drafting heads: reading them from a checkpoint or a file of their own, and their pass. Start at heads_open
 * (open_path, open_from, read_heads) and at heads_forward. */
#include "src/model/heads.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/model/safetensors.h"

static const char INSIDE[] = "model.medusa_layers.", ALONE[] = "heads.";
enum { PARTS = 3, FINGERPRINT_ROWS = 64 };
static const char *const parts[PARTS] = { "linear.weight", "input_layernorm.weight",
                                          "post_layernorm.weight" };

/* ---- the fingerprint of the model ---- */

/* Hashes a norm of the device; row [hidden] is work space. */
static void hash_norm(uint64_t *h, const struct model *m, const float *v, float *row)
{
    m->dev->download(m->dev, row, v, m->config.hidden * sizeof *row);
    *h = hash64(*h, row, m->config.hidden * sizeof *row);
}

/* Reads FINGERPRINT_ROWS rows of the LM head as floats; false without memory. */
static bool head_rows(const struct model *m, float *rows)
{
    const struct config *c = &m->config;
    int32_t at[FINGERPRINT_ROWS];
    struct workspace *w = NULL;
    struct err ignored;
    for (size_t i = 0; i < FINGERPRINT_ROWS; i++)
        at[i] = (int32_t)(i * c->vocab / FINGERPRINT_ROWS);
    for (size_t i = 0; m->dev->host_memory && i < FINGERPRINT_ROWS; i++)
        mat_row(&m->lm_head, (size_t)at[i], rows + i * c->hidden);
    if (m->dev->host_memory)
        return true;
    if (workspace_open(&w, m, FINGERPRINT_ROWS, KV_BLOCK, &ignored))
        return false;
    int rc = model_mat_rows(m, w, &m->lm_head, at, FINGERPRINT_ROWS, rows, NULL);
    workspace_close(w);
    return rc == 0;
}

static uint64_t hash_sizes(const struct config *c)
{
    const uint64_t sizes[] = { c->n_layers, c->hidden, c->ffn, c->n_heads, c->n_kv_heads, c->head_dim,
                               c->vocab };
    return hash64(HASH64_INIT, sizes, sizeof sizes);
}

static void hash_head(uint64_t *h, const float *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint16_t x = f32_to_bf16(rows[i]);
        *h = hash64(*h, &x, sizeof x);
    }
}

/* Reads row r of a tensor as floats; raw [cols] is work space. */
static bool file_row(const struct tensors *ts, const char *name, size_t r, size_t cols, float *raw,
                     float *row)
{
    const struct tensor *t = tensors_find(ts, name);
    struct err ignored;
    return t && tensor_is_float(t->dtype) && t->n_elements >= (r + 1) * cols &&
           tensors_read_floats(ts, t, r * cols, cols, raw, row, &ignored) == 0;
}

uint64_t heads_fingerprint_of_files(const struct config *c, const struct tensors *ts)
{
    const size_t d = c->hidden;
    const char *head = c->tied ? "model.embed_tokens.weight" : "lm_head.weight";
    float *raw = malloc(2 * d * sizeof *raw), *row = raw + d;
    uint64_t h = hash_sizes(c);
    bool known = raw && !c->norm_plus_one;
    for (size_t i = 0; i <= 2 * c->n_layers && known; i++) {
        char name[96] = "model.norm.weight";
        if (i < 2 * c->n_layers)
            snprintf(name, sizeof name, "model.layers.%zu.%s_layernorm.weight", i / 2,
                     i % 2 ? "post_attention" : "input");
        known = file_row(ts, name, 0, d, raw, row);
        h = known ? hash64(h, row, d * sizeof *row) : h;
    }
    for (size_t i = 0; i < FINGERPRINT_ROWS && known; i++)
        if ((known = file_row(ts, head, i * c->vocab / FINGERPRINT_ROWS, d, raw, row)))
            hash_head(&h, row, d);
    free(raw);
    return known ? h : 0;
}

uint64_t heads_fingerprint(const struct model *m)
{
    const struct config *c = &m->config;
    uint64_t h = hash_sizes(c);
    float *rows = malloc(FINGERPRINT_ROWS * c->hidden * sizeof *rows);
    if (!rows)
        return 0;
    for (size_t i = 0; i < c->n_layers && c->layer[i].norms != NORM_AFTER; i++) {
        hash_norm(&h, m, m->layers[i].norm_attn, rows);
        hash_norm(&h, m, m->layers[i].norm_mlp, rows);
    }
    hash_norm(&h, m, m->norm_final, rows);
    if (head_rows(m, rows))
        hash_head(&h, rows, FINGERPRINT_ROWS * c->hidden);
    free(rows);
    return h;
}

int drafter_save(const char *path, const struct model *m, const struct draft_vocab *v, const char *kind,
                 const char *note, struct tensor_out *t, size_t n, struct err *e)
{
    const uint64_t fingerprint = heads_fingerprint(m);
    const bool brief = v && v->n;
    char hidden[24], vocab[24], model[24], guessed[24];
    if (!fingerprint)
        return err_set(e, ERR_FAILED, "%s: out of memory", path);
    snprintf(hidden, sizeof hidden, "%zu", m->config.hidden);
    snprintf(vocab, sizeof vocab, "%zu", m->config.vocab);
    snprintf(model, sizeof model, "%016" PRIx64, fingerprint);
    snprintf(guessed, sizeof guessed, "%zu", brief ? v->n : 0);
    const struct metadata_out meta[] = { { "kind", kind }, { "hidden_size", hidden }, { "vocab_size", vocab },
                                         { "model", model }, { "training", note },
                                         { "draft_vocab_size", guessed } };
    if (brief)
        t[n] = (struct tensor_out){ DRAFT_VOCAB_TENSOR, .rows = v->n, .ids = v->id };
    return safetensors_write(path, t, n + brief, meta, sizeof meta / sizeof *meta - !brief, e);
}

/* Checks that a number of __metadata__, if present, is the model's. */
static int check_number(const struct tensors *ts, const char *what, const char *key, size_t want,
                        struct err *e)
{
    char s[64], *end;
    const int found = tensors_metadata(ts, key, s, sizeof s, e);
    if (found <= 0)
        return found;
    const unsigned long long v = strtoull(s, &end, 10);
    if (end == s || *end || v != want)
        return err_set(e, ERR_INPUT, "%s: %s of a model with %s %s, this model has %zu", ts->path[0], what,
                       key, s, want);
    return 0;
}

int drafter_fits(const struct tensors *ts, const char *what, bool same, const struct model *m,
                 const struct tensors *weights, bool *foreign, struct err *e)
{
    char s[64], own[24];
    if (check_number(ts, what, "hidden_size", m->config.hidden, e) ||
        check_number(ts, what, "vocab_size", m->config.vocab, e))
        return -1;
    const uint64_t id = m->mem ? heads_fingerprint(m)
                        : weights ? heads_fingerprint_of_files(&m->config, weights) : 0;
    if (!m->mem && !id)
        return 0;
    const int found = tensors_metadata(ts, "model", s, sizeof s, e);
    if (found < 0)
        return -1;
    snprintf(own, sizeof own, "%016" PRIx64, id);
    *foreign = found && strcmp(s, own);
    return *foreign && same ? err_set(e, ERR_INPUT, "%s: %s of another model: it was trained for %s, this is "
                                      "%s", ts->path[0], what, s, own)
                            : 0;
}

/* ---- reading ---- */

/* The name of tensor i of the heads that `prefix` begins. */
enum { NAME_BYTES = 96 };
static const char *name_of(char name[NAME_BYTES], const char *prefix, size_t i)
{
    snprintf(name, NAME_BYTES, "%s%zu.%s", prefix, i / PARTS, parts[i % PARTS]);
    return name;
}

/* Counts the heads whose tensors begin with `prefix`, from 0 without a gap. Any other tensor with that
 * prefix is an error. */
static int count_heads(const struct tensors *ts, const char *prefix, size_t *n, struct err *e)
{
    char name[NAME_BYTES];
    for (*n = 0; *n <= HEADS_MAX && tensors_find(ts, name_of(name, prefix, *n * PARTS));)
        ++*n;
    if (*n > HEADS_MAX)
        return err_set(e, ERR_INPUT, "%s: more than %d heads, at most that many are allowed", ts->path[0],
                       HEADS_MAX);
    for (size_t i = 0; i < ts->n; i++) {
        const struct tensor *t = &ts->t[i];
        bool known = false;
        if (strncmp(t->name, prefix, strlen(prefix)))
            continue;
        for (size_t k = 0; k < *n * PARTS && !known; k++)
            known = strcmp(t->name, name_of(name, prefix, k)) == 0;
        if (!known)
            return err_set(e, ERR_INPUT,
                           "%s: tensor \"%.200s\" is not part of a head: allowed are %sK.linear.weight, "
                           ".input_layernorm.weight and .post_layernorm.weight, K counted from 0 without a "
                           "gap", ts->path[t->shard], t->name, prefix);
    }
    return 0;
}

static int read_metadata(struct heads *h, const struct tensors *ts, const struct model *m, struct err *e)
{
    char s[64];
    const int found = tensors_metadata(ts, "kind", s, sizeof s, e);
    if (found < 0)
        return -1;
    if (!found || (strcmp(s, "chained") && strcmp(s, "independent")))
        return err_set(e, ERR_INPUT, "%s: __metadata__: kind %s%s, allowed are chained and independent",
                       ts->path[0], found ? "is " : "is missing", found ? s : "");
    h->chained = strcmp(s, "chained") == 0;
    return drafter_fits(ts, "heads", false, m, NULL, &h->foreign, e);
}

static size_t padded(size_t bytes) { return (bytes + 255) / 256 * 256 + 256; }

static size_t head_bytes(const struct model *m, enum dtype type)
{
    const size_t d = m->config.hidden;
    return padded(m->dev->mat_size(m->dev, type, d, d)) + 2 * padded(d * sizeof(float));
}

size_t heads_bytes(const struct model *m, size_t n)
{
    return n * head_bytes(m, m->dev->mat_type(m->dev, DT_BF16, m->compute));
}

static int read_heads(struct heads *h, const struct tensors *ts, const char *prefix, const struct model *m,
                      struct err *e)
{
    const size_t d = m->config.hidden;
    const struct tensor *t[HEADS_MAX * PARTS];
    struct device *dev = m->dev;
    char name[NAME_BYTES];
    for (size_t i = 0; i < h->n * PARTS; i++)
        if (!(t[i] = tensors_need(ts, name_of(name, prefix, i), d, i % PARTS ? 0 : d, e)))
            return -1;
    if (!m->mem)
        return 0;
    for (size_t k = 0; k < h->n; k++) {
        h->head[k].w = (struct mat){ dev->mat_type(dev, t[k * PARTS]->dtype, m->compute), d, d, NULL };
        h->mem_bytes += head_bytes(m, h->head[k].w.type);
    }
    h->dev = dev;
    h->mem = dev->alloc(dev, h->mem_bytes);
    float *x = malloc(2 * PANEL * d * sizeof *x);
    int rc = h->mem && x ? 0 : err_set(e, ERR_FAILED, "%s: out of memory for the heads (%zu bytes)", h->path,
                                       h->mem_bytes + 2 * PANEL * d * sizeof *x);
    char *at = h->mem;
    for (size_t i = 0; i < h->n * PARTS && rc == 0; i++) {
        const struct tensor *from = t[i];
        struct mat *w = &h->head[i / PARTS].w;
        float **norm = i % PARTS == 1 ? &h->head[i / PARTS].norm_in : &h->head[i / PARTS].norm_out;
        if (i % PARTS == 0)
            w->w = at;
        else
            *norm = (float *)(void *)at;
        at += padded(i % PARTS ? d * sizeof **norm : dev->mat_size(dev, w->type, d, d));
        for (size_t r = 0, n, rows = from->n_elements / d; r < rows && rc == 0; r += n) {
            float *stored = x + PANEL * d;
            n = MIN((size_t)PANEL, rows - r);
            rc = tensors_read_floats(ts, from, r * d, n * d, stored, x, e);
            if (rc == 0 && i % PARTS == 0)
                dev->mat_put(dev, w, r, n, stored, from->dtype);
            else if (rc == 0)
                dev->upload(dev, *norm, x, d * sizeof *x);
        }
    }
    free(x);
    return rc == 0 && *dev->error ? err_set(e, ERR_FAILED, "%s: %s", dev->name, dev->error) : rc;
}

/* Reads the heads among these tensors: 1 if there are any, 0 if none, -1 after an error. */
static int open_from(struct heads *h, const struct tensors *ts, const struct model *m, struct err *e)
{
    size_t inside, alone;
    if (count_heads(ts, INSIDE, &inside, e) || count_heads(ts, ALONE, &alone, e))
        return -1;
    h->n = inside ? inside : alone;
    h->chained = true;
    if (h->n == 0)
        return 0;
    if (!inside && (read_metadata(h, ts, m, e) || draft_vocab_read(&h->vocab, ts, m->config.vocab, e)))
        return -1;
    return read_heads(h, ts, inside ? INSIDE : ALONE, m, e) ? -1 : 1;
}

/* open_from for a file, or for the tensors of a directory. */
static int open_path(struct heads *h, const char *path, bool is_dir, const struct model *m, struct err *e)
{
    struct tensors ts = { 0 };
    snprintf(h->path, sizeof h->path, "%s", path);
    if (is_dir ? tensors_open(&ts, path, e) : tensors_open_file(&ts, path, e))
        return -1;
    int r = tensors_whole(&ts, e) ? -1 : open_from(h, &ts, m, e);
    tensors_close(&ts);
    return r;
}

int heads_open(struct heads *h, const char *path, const struct model *m, struct err *e)
{
    struct stat st;
    char file[sizeof h->path + sizeof HEADS_FILE + 1];
    *h = (struct heads){ 0 };
    if (!path && model_is_file(m->path))
        return err_set(e, ERR_INPUT,
                       "%s: a GGUF model has no drafting heads of its own; heads:FILE names some", m->path);
    path = path ? path : m->path;
    if (strlen(path) >= sizeof h->path)
        return err_set(e, ERR_INPUT, "drafting heads: a path of %zu bytes, at most %zu are allowed",
                       strlen(path), sizeof h->path - 1);
    const bool is_dir = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    snprintf(file, sizeof file, "%s%s", path, is_dir ? "/" HEADS_FILE : "");
    int r = is_dir ? open_path(h, path, true, m, e) : 0;
    if (r == 0 && is_dir && access(file, F_OK))
        r = err_set(e, ERR_INPUT, "%s: no drafting heads: neither %s0.%s in its checkpoint nor a file "
                                  HEADS_FILE, path, INSIDE, parts[0]);
    if (r == 0 && (r = open_path(h, file, false, m, e)) == 0)
        r = err_set(e, ERR_INPUT, "%s: no tensor \"%s0.%s\": the file holds no drafting heads", file, ALONE,
                    parts[0]);
    if (r < 0)
        heads_close(h);
    return r < 0 ? -1 : 0;
}

int heads_check(const char *path, const struct model *m, struct err *e)
{
    struct heads h;
    assert(!m->mem);
    int rc = heads_open(&h, path, m, e);
    heads_close(&h);
    return rc;
}

bool heads_present(const char *dir)
{
    char path[4200], name[NAME_BYTES];
    if (model_is_file(dir))
        return false;
    snprintf(path, sizeof path, "%s/" HEADS_FILE, dir);
    if (access(path, F_OK) == 0)
        return true;
    return tensors_have(dir, name_of(name, INSIDE, 0));
}

void heads_close(struct heads *h)
{
    if (h->dev)
        h->dev->free(h->dev, h->mem, h->mem_bytes);
    draft_vocab_close(&h->vocab);
    *h = (struct heads){ 0 };
}

/* ---- the pass ---- */

size_t heads_scratch_bytes(const struct heads *h, const struct model *m, size_t rows)
{
    const size_t d = m->config.hidden, act = dtype_size(model_act(m));
    return padded(rows * d * act) + padded(rows * d * sizeof(float)) + padded(rows * h->n * d * act);
}

void heads_forward(const struct heads *h, const struct model *m, const float *h0, size_t rows, size_t n,
                   float *logits, void *scratch)
{
    const size_t d = m->config.hidden, act = dtype_size(model_act(m)), row = d * act;
    const float eps = (float)m->config.rms_eps;
    struct device *dev = m->dev;
    char *x = scratch, *y = x + padded(rows * row) + padded(rows * d * sizeof(float));
    float *hi = (float *)(void *)(x + padded(rows * row));
    assert(n >= 1 && n <= h->n);
    if (d % 2) {                                 /* a product reads one element after the last row */
        dev->zero(dev, x + rows * row, act);
        dev->zero(dev, y + rows * n * row, act);
    }
    for (size_t k = 0; k < n; k++) {
        if (k == 0 || !h->chained)
            dev->copy(dev, hi, h0, rows * d * sizeof *hi);
        dev->rmsnorm(dev, x, hi, h->head[k].norm_in, rows, d, eps, SIZE_MAX);
        dev->product(dev, &(struct device_product){ hi, d, x, rows, &h->head[k].w, NULL, true, SIZE_MAX });
        for (size_t r = 0; r < rows; r++)
            dev->rmsnorm(dev, y + (r * n + k) * row, hi + r * d, h->head[k].norm_out, 1, d, eps, SIZE_MAX);
    }
    draft_vocab_product(&h->vocab, m, &m->lm_head, y, rows * n, logits, SIZE_MAX);
}
