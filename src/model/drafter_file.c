/* Files of trained drafters (drafter_file.h). Start reading at open_file() and drafter_read_mat(). */
#include "src/model/drafter_file.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/heads.h"
#include "src/model/safetensors.h"

/* ---- finding ---- */

/* Whether the safetensors file is of this kind, which its metadata have. */
static bool is_of_kind(const char *path, const char *name, const char *kind)
{
    char has[64];
    struct tensors ts = { 0 };
    struct err ignored;
    if (tensors_open_file(&ts, path, &ignored))
        return false;
    const int found = tensors_metadata(&ts, "kind", has, sizeof has, &ignored);
    tensors_close(&ts);
    return found > 0 ? strcmp(has, kind) == 0 : found == 0 && strncmp(name, kind, strlen(kind)) == 0;
}

int drafter_find(char path[PATH_BYTES], const char *model, const char *kind, struct err *e)
{
    char folder[PATH_BYTES], best[256] = "";
    const int n = snprintf(folder, sizeof folder, "%s/drafters", model);
    DIR *dir = n < (int)sizeof folder ? opendir(folder) : NULL;
    for (struct dirent *d; dir && (d = readdir(dir));) {
        const char *end = strrchr(d->d_name, '.');
        char file[2 * PATH_BYTES];
        if (!end || strcmp(end, ".safetensors") || (*best && strcmp(d->d_name, best) >= 0))
            continue;
        snprintf(file, sizeof file, "%s/%s", folder, d->d_name);
        if (strlen(file) < PATH_BYTES && is_of_kind(file, d->d_name, kind))
            snprintf(best, sizeof best, "%s", d->d_name);
    }
    if (dir)
        closedir(dir);
    if (!*best)
        return err_set(e, ERR_INPUT, "%s: no drafter of the kind %s in drafters/; %s:FILE names one", model,
                       kind, kind);
    snprintf(path, PATH_BYTES, "%.*s/%s", PATH_BYTES - 300, folder, best);
    return 0;
}

/* ---- metadata ---- */

/* Checks that a number of __metadata__, if present, is the model's. */
static int check_number(const struct tensors *ts, const char *kind, const char *key, size_t want,
                        struct err *e)
{
    char s[64], *end;
    const int found = tensors_metadata(ts, key, s, sizeof s, e);
    if (found <= 0)
        return found;
    const unsigned long long v = strtoull(s, &end, 10);
    if (end == s || *end || v != want)
        return err_set(e, ERR_INPUT, "%s: a %s drafter of a model with %s %s, this model has %zu",
                       ts->path[0], kind, key, s, want);
    return 0;
}

/* weights: the model's files, where its weights are not there; or NULL. */
static int check_metadata(const struct tensors *ts, const char *kind, const struct model *m,
                          const struct tensors *weights, bool *foreign, struct err *e)
{
    const uint64_t id = m->mem ? heads_fingerprint(m)
                        : weights ? heads_fingerprint_of_files(&m->config, weights) : 0;
    char s[64], own[24];
    int found = tensors_metadata(ts, "kind", s, sizeof s, e);
    if (found < 0)
        return -1;
    if (found && strcmp(s, kind))
        return err_set(e, ERR_INPUT, "%s: __metadata__: kind is %s, allowed is %s", ts->path[0], s, kind);
    if (check_number(ts, kind, "hidden_size", m->config.hidden, e) ||
        check_number(ts, kind, "vocab_size", m->config.vocab, e))
        return -1;
    if (!m->mem && !id)
        return 0;
    if ((found = tensors_metadata(ts, "model", s, sizeof s, e)) < 0)
        return -1;
    snprintf(own, sizeof own, "%016" PRIx64, id);
    *foreign = found && strcmp(s, own);
    if (*foreign && !m->quantised)
        return err_set(e, ERR_INPUT, "%s: a %s drafter of another model: it was trained for %s, this is %s",
                       ts->path[0], kind, s, own);
    return 0;
}

/* ---- opening and closing ---- */

static int open_tensors(struct tensors *ts, struct drafter_file *f, const char *kind,
                        const struct tensors *weights, struct err *e)
{
    *ts = (struct tensors){ 0 };
    if (tensors_open_file(ts, f->path, e))
        return -1;
    if (check_metadata(ts, kind, f->model, weights, &f->foreign, e) == 0)
        return 0;
    tensors_close(ts);
    return -1;
}

void drafter_part(struct drafter_file *f, void *slot, size_t bytes)
{
    char *p = f->mem ? (char *)f->mem + f->used : NULL;
    memcpy(slot, &p, sizeof p);
    f->used += (bytes + 63) / 64 * 64 + 64;          /* with an odd k a product reads one element more */
}

void drafter_matrix(struct drafter_file *f, struct mat *w, size_t n, size_t k, bool int8)
{
    *w = (struct mat){ drafter_mat_type(f->model, int8), n, k, NULL };
    drafter_part(f, &w->w, mat_bytes(w));
    f->weight_bytes += mat_bytes(w);
    f->plain_bytes += n * k * 2;
}

/* Without memory it only counts the bytes. */
static size_t lay_out(struct drafter_file *f, const struct drafter_kind *k, bool int8)
{
    f->used = f->weight_bytes = f->plain_bytes = 0;
    k->layout(f, int8);
    return f->used;
}

static int take_memory(struct drafter_file *f, const struct drafter_kind *k, bool int8, struct err *e)
{
    f->mem_bytes = lay_out(f, k, int8);
    f->mem = mem_alloc(f->mem_bytes);
    if (!f->mem)
        return err_set(e, ERR_FAILED, "%s: out of memory (%zu bytes)", f->path, f->mem_bytes);
    lay_out(f, k, int8);
    return 0;
}

/* Opens the file, and reads it where the model has weights. */
static int open_file(struct drafter_file *f, const struct drafter_kind *k, const char *path,
                     const struct model *m, bool int8, const struct tensors *weights, struct err *e)
{
    struct tensors ts;
    memset(f, 0, k->size);
    f->model = m;
    if (!path && drafter_find(f->path, m->path, k->name, e))
        return -1;
    if (path && snprintf(f->path, sizeof f->path, "%s", path) >= (int)sizeof f->path)
        return err_set(e, ERR_INPUT, "%s: a path of %zu bytes, at most %zu are allowed", k->name,
                       strlen(path), sizeof f->path - 1);
    if (!m->dev->host_memory)
        return err_set(e, ERR_INPUT, "%s: --drafter %s is not supported on this device; --device cpu "
                                     "supports it", m->dev->name, k->name);
    if (open_tensors(&ts, f, k->name, weights, e))
        return -1;
    /* without memory `read` only checks */
    int rc = draft_vocab_read(&f->vocab, &ts, m->config.vocab, e) || k->read(f, &ts, e) ? -1 : 0;
    if (rc == 0 && m->mem && (take_memory(f, k, int8, e) || k->read(f, &ts, e) ||
                              draft_vocab_gather(&f->vocab, m, int8, e)))
        rc = -1;
    tensors_close(&ts);
    if (rc)
        drafter_close(f, k);
    return rc;
}

int drafter_open(struct drafter_file *f, const struct drafter_kind *k, const char *path,
                 const struct model *m, bool int8, struct err *e)
{
    return open_file(f, k, path, m, int8, NULL, e);
}

void drafter_close(struct drafter_file *f, const struct drafter_kind *k)
{
    if (f->mem)
        mem_free(f->mem, f->mem_bytes);
    draft_vocab_close(&f->vocab);
    memset(f, 0, k->size);
}

int drafter_check(const struct drafter_kind *k, const char *path, const struct model *m,
                  const struct tensors *weights, struct err *e)
{
    struct drafter_file *f = malloc(k->size);
    assert(!m->mem);
    if (!f)
        return err_set(e, ERR_FAILED, "%s: out of memory", k->name);
    const int rc = open_file(f, k, path, m, false, weights, e);
    drafter_close(f, k);
    free(f);
    return rc;
}

size_t drafter_bytes(const struct drafter_kind *k, const struct model *m, bool int8)
{
    struct drafter_file *f = calloc(1, k->size);
    if (!f)
        return SIZE_MAX;
    f->model = m;
    const size_t bytes = lay_out(f, k, int8);
    free(f);
    return bytes;
}

/* ---- tensors ---- */

/* Copies n values in heads of `head`, each padded with zeros. */
static void pad(float *to, const float *from, size_t n, size_t head, size_t padded)
{
    for (size_t i = 0; i < n; i++)
        to[head ? i / head * padded + i % head : i] = from[i];
}

static size_t padded_size(size_t n, size_t head, size_t padded) { return head ? n / head * padded : n; }

/* Reads row r of a tensor as floats; `raw` is work space. */
static int read_row(const struct tensors *ts, const struct tensor *t, size_t r, size_t cols, void *raw,
                    float *row, struct err *e)
{
    const size_t bytes = cols * dtype_size(t->dtype);
    if (tensors_read(ts, t, raw, r * bytes, bytes, e))
        return -1;
    for (size_t i = 0; i < cols; i++) {
        row[i] = tensor_value(raw, t->dtype, i);
        if (!isfinite(row[i]))
            return err_set(e, ERR_INPUT, "%s: tensor \"%s\": element %zu is not a finite number",
                           ts->path[t->shard], t->name, r * cols + i);
    }
    return 0;
}

int drafter_read_mat(const struct tensors *ts, const struct drafter_mat *x, size_t padded, struct mat *m,
                     size_t r0, struct device *dev, struct err *e)
{
    const struct tensor *t = tensors_need(ts, x->name, x->rows, x->cols, e);
    if (!t)
        return -1;
    if (!tensor_is_float(t->dtype))
        return err_set(e, ERR_INPUT, "%s: tensor \"%s\": dtype %s, allowed are BF16, F16 and F32",
                       ts->path[t->shard], t->name, t->dtype_name);
    if (!m)
        return 0;
    const size_t wide = padded_size(x->cols, x->head_cols, padded);
    float *raw = malloc(x->cols * sizeof *raw), *row = malloc(x->cols * sizeof *row),
          *out = calloc(wide, sizeof *out);
    int rc = raw && row && out ? 0 : err_set(e, ERR_FAILED, "%s: out of memory", ts->path[t->shard]);
    for (size_t r = 0; r < x->rows && rc == 0; r++) {
        rc = read_row(ts, t, r, x->cols, raw, row, e);
        pad(out, row, x->cols, x->head_cols, padded);
        const size_t at = x->head_rows ? r / x->head_rows * padded + r % x->head_rows : r;
        if (rc == 0)
            dev->mat_put(dev, m, r0 + at, 1, out, DT_F32);
    }
    free(raw), free(row), free(out);
    return rc;
}

enum dtype drafter_mat_type(const struct model *m, bool int8)
{
    return int8 ? DT_I8 : m->compute == DT_F32 ? DT_F32 : DT_BF16;
}

/* In 16 bits or floats first, then in 8 bits. */
int drafter_read_product(struct mat *to, const struct tensors *ts, const struct drafter_mat *t, size_t n,
                         const struct model *m, struct err *e)
{
    const bool int8 = to && to->type == DT_I8;
    struct mat wide = to ? *to : (struct mat){ 0 };
    size_t r0 = 0;
    int rc = 0;
    if (int8) {
        wide.type = drafter_mat_type(m, false);
        wide.w = mem_alloc(mat_bytes(&wide));
        if (!wide.w)
            return err_set(e, ERR_FAILED, "%s: out of memory (%zu bytes)", ts->path[0], mat_bytes(&wide));
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        rc = drafter_read_mat(ts, &t[i], m->head_dim, to ? &wide : NULL, r0, m->dev, e);
        r0 += t[i].head_rows ? t[i].rows / t[i].head_rows * m->head_dim : t[i].rows;
    }
    if (int8) {
        if (rc == 0)
            model_quantize_mat(to, &wide, m->pool);
        mem_free(wide.w, mat_bytes(&wide));
    }
    return rc;
}

int drafter_read_vector(const struct tensors *ts, const char *name, size_t n, size_t head, size_t padded,
                        float *v, struct err *e)
{
    const struct tensor *t = tensors_need(ts, name, n, 0, e);
    if (!t || !v)
        return t ? 0 : -1;
    float *raw = malloc(n * sizeof *raw), *row = malloc(n * sizeof *row);
    int rc = raw && row ? read_row(ts, t, 0, n, raw, row, e)
                        : err_set(e, ERR_FAILED, "%s: out of memory", ts->path[t->shard]);
    if (rc == 0)
        pad(v, row, n, head, padded);
    free(raw), free(row);
    return rc;
}
