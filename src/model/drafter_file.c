/* Files of trained drafters (drafter_file.h). Start at open_file() and drafter_tensors(). */
#include "src/model/drafter_file.h"

#include <dirent.h>
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

/* ---- opening and closing ---- */

/* weights: as drafter_fits. */
static int open_tensors(struct tensors *ts, struct drafter_file *f, const char *kind,
                        const struct tensors *weights, struct err *e)
{
    char s[64], what[64];
    *ts = (struct tensors){ 0 };
    if (tensors_open_file(ts, f->path, e))
        return -1;
    snprintf(what, sizeof what, "a %s drafter", kind);
    const int found = tensors_metadata(ts, "kind", s, sizeof s, e);
    if (found > 0 && strcmp(s, kind))
        err_set(e, ERR_INPUT, "%s: __metadata__: kind is %s, allowed is %s", ts->path[0], s, kind);
    else if (found >= 0 &&
             drafter_fits(ts, what, !f->model->quantised, f->model, weights, &f->foreign, e) == 0)
        return 0;
    tensors_close(ts);
    return -1;
}

/* What a list of parts is for, and its results so far. */
enum list_for { LIST_PLACES, LIST_READ, LIST_SAVE };
enum { OUT_MAX = 96 };
struct drafter_list {
    enum list_for what;
    bool int8; size_t used;              /* places; without f->mem they only count bytes */
    /* reading; without f->mem it only checks. After the first error nothing more is read */
    const struct tensors *ts; struct err *e; int rc;
    struct tensor_out *out; size_t n_out;    /* saving; OUT_MAX has room for d2t, too */
};

/* Bytes of the parts. */
static size_t give_places(struct drafter_file *f, const struct drafter_kind *k, bool int8)
{
    struct drafter_list list = { LIST_PLACES, .int8 = int8 };
    f->weight_bytes = f->plain_bytes = 0;
    f->list = &list;
    k->list(f);
    return list.used;
}

static int take_memory(struct drafter_file *f, const struct drafter_kind *k, bool int8, struct err *e)
{
    f->mem_bytes = give_places(f, k, int8);
    f->mem = mem_alloc(f->mem_bytes);
    if (!f->mem)
        return err_set(e, ERR_FAILED, "%s: out of memory (%zu bytes)", f->path, f->mem_bytes);
    give_places(f, k, int8);
    return 0;
}

static int read_parts(struct drafter_file *f, const struct drafter_kind *k, const struct tensors *ts,
                      struct err *e)
{
    struct drafter_list list = { LIST_READ, .ts = ts, .e = e };
    if (k->read && k->read(f, ts, e))
        return -1;
    f->list = &list;
    k->list(f);
    return list.rc;
}

/* Opens the file, and reads it where the model has weights. */
static int open_file(struct drafter_file *f, const struct drafter_kind *k, const char *path,
                     const struct model *m, bool int8, const struct tensors *weights, struct err *e)
{
    struct tensors ts;
    memset(f, 0, k->size);
    f->kind = k;
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
    int rc = draft_vocab_read(&f->vocab, &ts, m->config.vocab, e) || read_parts(f, k, &ts, e) ? -1 : 0;
    if (rc == 0 && m->mem && (take_memory(f, k, int8, e) || read_parts(f, k, &ts, e) ||
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
    const size_t bytes = give_places(f, k, int8);
    free(f);
    return bytes;
}

int drafter_write(struct drafter_file *f, const struct drafter_kind *k, const char *path,
                  const struct model *m, const struct draft_vocab *v, const char *note, struct err *e)
{
    struct tensor_out out[OUT_MAX];
    struct drafter_list list = { LIST_SAVE, .out = out };
    f->model = m;
    f->list = &list;
    k->list(f);
    return drafter_save(path, m, v, k->name, note, out, list.n_out, e);
}

/* ---- reading tensors ---- */

static size_t padded(size_t n, size_t head, size_t to) { return head ? n / head * to : n; }

/* Copies n values in heads of `head`, each padded with zeros. */
static void pad(float *to, const float *from, size_t n, size_t head, size_t head_padded)
{
    for (size_t i = 0; i < n; i++)
        to[head ? i / head * head_padded + i % head : i] = from[i];
}

/* Reads a tensor into rows r0 .. of a matrix, or into the floats of `to`. Without both it only checks. */
static int read_tensor(const struct drafter_file *f, const char *name, const struct drafter_tensor *x,
                       struct mat *w, float *to, size_t r0)
{
    struct device *dev = f->model->dev;
    const struct tensors *ts = f->list->ts;
    struct err *e = f->list->e;
    const struct tensor *t = tensors_need(ts, name, x->rows, x->cols, e);
    const size_t head = f->model->head_dim, rows = x->cols ? x->rows : 1, cols = x->cols ? x->cols : x->rows;
    if (!t)
        return -1;
    if (x->cols && !tensor_is_float(t->dtype))
        return tensor_bad(ts, t, e, ": dtype %s, allowed are BF16, F16 and F32", t->dtype_name);
    if (!w && !to)
        return 0;
    const size_t in_heads = x->cols ? x->head_cols : x->head_rows;
    float *raw = malloc(cols * sizeof *raw), *row = malloc(cols * sizeof *row),
          *out = calloc(padded(cols, in_heads, head), sizeof *out);
    int rc = raw && row && out ? 0 : err_set(e, ERR_FAILED, "%s: out of memory", ts->path[t->shard]);
    for (size_t r = 0; r < rows && rc == 0; r++) {
        const size_t at = x->head_rows ? r / x->head_rows * head + r % x->head_rows : r;
        if ((rc = tensors_read_floats(ts, t, r * cols, cols, raw, row, e)))
            break;
        pad(w ? out : to + r0, row, cols, in_heads, head);
        if (w)
            dev->mat_put(dev, w, r0 + at, 1, out, DT_F32);
    }
    free(raw), free(row), free(out);
    return rc;
}

/* Reads tensors whose rows follow each other. A matrix is first read in 16 bits or floats, then put into 8
 * bits. */
static int read_tensors(const struct drafter_file *f, struct mat *w, float *to, const char *prefix,
                        const struct drafter_tensor *t, size_t n)
{
    const struct model *m = f->model;
    const bool int8 = w && w->type == DT_I8;
    struct mat wide = w ? *w : (struct mat){ 0 };
    size_t r0 = 0;
    int rc = 0;
    if (int8) {
        wide.type = drafter_mat_type(m, false);
        wide.w = mem_alloc(mat_bytes(&wide));
        if (!wide.w)
            return err_set(f->list->e, ERR_FAILED, "%s: out of memory (%zu bytes)", f->list->ts->path[0],
                           mat_bytes(&wide));
    }
    for (size_t i = 0; i < n && rc == 0; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s%s", prefix, t[i].name);
        rc = read_tensor(f, name, &t[i], w ? &wide : NULL, to, r0);
        r0 += padded(t[i].rows, t[i].head_rows, m->head_dim);
    }
    if (int8) {
        if (rc == 0)
            model_quantize_mat(w, &wide, m->pool);
        mem_free(wide.w, mat_bytes(&wide));
    }
    return rc;
}

/* ---- lists ---- */

void drafter_part(struct drafter_file *f, void *slot, size_t bytes)
{
    if (f->list->what != LIST_PLACES)
        return;
    char *p = f->mem ? (char *)f->mem + f->list->used : NULL;
    memcpy(slot, &p, sizeof p);
    f->list->used += (bytes + 63) / 64 * 64 + 64;    /* with an odd k a product reads one element more */
}

void drafter_put(struct drafter_file *f, const char *name, enum dtype type, size_t rows, size_t cols,
                 const float *data)
{
    struct drafter_list *l = f->list;
    if (l->what != LIST_SAVE)
        return;
    assert(l->n_out + 1 < OUT_MAX);
    l->out[l->n_out] = (struct tensor_out){ .dtype = type, .rows = rows, .cols = cols, .data = data };
    snprintf(l->out[l->n_out++].name, sizeof l->out->name, "%s", name);
}

static void place(struct drafter_file *f, void *slot, const struct drafter_tensor *t, size_t n)
{
    const size_t head = f->model->head_dim, k = padded(t->cols, t->head_cols, head);
    size_t rows = 0;
    for (size_t i = 0; i < n; i++)
        rows += padded(t[i].rows, t[i].head_rows, head);
    if (!t->cols) {
        drafter_part(f, slot, rows * sizeof(float));
        return;
    }
    struct mat *w = slot;
    *w = (struct mat){ drafter_mat_type(f->model, f->list->int8), rows, k, NULL };
    drafter_part(f, &w->w, mat_bytes(w));
    f->weight_bytes += mat_bytes(w);
    f->plain_bytes += rows * k * 2;
}

void drafter_tensors(struct drafter_file *f, void *slot, const char *prefix, const struct drafter_tensor *t,
                     size_t n)
{
    struct drafter_list *l = f->list;
    struct mat *w = t->cols ? slot : NULL;
    float *floats = w ? w->w : *(float **)slot;
    if (l->what == LIST_PLACES)
        place(f, slot, t, n);
    else if (l->what == LIST_READ)
        l->rc = l->rc ? l->rc : read_tensors(f, f->mem ? w : NULL, w ? NULL : floats, prefix, t, n);
    for (size_t i = 0; i < n && l->what == LIST_SAVE; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s%s", prefix, t[i].name);
        drafter_put(f, name, w ? DT_BF16 : DT_F32, t[i].rows, t[i].cols, floats);
        floats += t[i].rows * MAX(t[i].cols, (size_t)1);
    }
}
