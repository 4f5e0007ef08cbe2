/* The fingerprint of a model, and the stamp of its files. Start at model_fingerprint. */
#include "src/model/fingerprint.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/model/gguf_model.h"
#include "src/model/model_files.h"

static const size_t FILE_BYTES_MAX = (size_t)1 << 30;

static void add_u64(struct sha256 *h, uint64_t v) { sha256_add(h, &v, sizeof v); }

/* Adds the digest of data; NULL: zeros. */
static void add_digest(struct sha256 *h, const void *data, size_t n)
{
    uint8_t digest[SHA256_BYTES] = { 0 };
    if (data)
        sha256_of(digest, data, n);
    sha256_add(h, digest, sizeof digest);
}

/* Adds the header of a GGUF file: its size and its digest. */
static int add_header(struct sha256 *h, const struct gguf_model *m, size_t part, struct err *e)
{
    const size_t n = MIN(m->part[part].data_start, m->part[part].size);
    char *data = malloc(n + 1);
    if (!data)
        return err_set(e, ERR_FAILED, "%s: out of memory for a header of %zu bytes", m->part[part].file, n);
    const int rc = read_at(m->ts.fd[part], m->part[part].file, data, 0, n, e);
    add_u64(h, n);
    if (rc == 0)
        add_digest(h, data, n);
    free(data);
    return rc;
}

/* The fingerprint covers the first MODEL_FILES of these. */
static const char *const names[] = { "config.json", "generation_config.json", "tokenizer.json",
                                     "tokenizer_config.json" };

bool model_uses_file(const char *name)
{
    const char *dot = strncmp(name, "model", 5) == 0 ? strstr(name, ".safetensors") : NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return dot && (strcmp(dot, ".safetensors") == 0 || strcmp(dot, ".safetensors.index.json") == 0);
}

static uint64_t file_stamp(const char *path, const char *name)
{
    struct stat st;
    if (stat(path, &st))
        return 0;
    const uint64_t facts[] = { st.st_dev, st.st_ino, (uint64_t)st.st_size, (uint64_t)st.st_mtim.tv_sec,
                               (uint64_t)st.st_mtim.tv_nsec };
    return hash64(hash64(HASH64_INIT, name, strlen(name)), facts, sizeof facts);
}

uint64_t model_stamp(const char *place)
{
    char path[4096 + 260];
    uint64_t all = 0;
    DIR *d = opendir(place);
    if (!d) {
        const size_t parts = gguf_parts(place);
        for (size_t i = 0; i < parts; i++)
            all += file_stamp(parts == 1 ? place : gguf_part_path(path, sizeof path, place, i, parts), "");
        return all;
    }
    for (struct dirent *x; (x = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", place, x->d_name);
        all += model_uses_file(x->d_name) ? file_stamp(path, x->d_name) : 0;     /* a sum ignores the order */
    }
    closedir(d);
    return all;
}

void model_files_free(struct model_files *f)
{
    for (size_t i = 0; i < MODEL_FILES; i++)
        free(f->data[i]);
    *f = (struct model_files){0};
}

/* Hashes everything but the tensors, and opens these: of a GGUF file, and of a directory, where a small file
 * has its name, its size, and its digest (zeros: it is missing). */
static int hash_gguf(struct sha256 *h, struct model_files *small, struct tensors *ts, const char *place,
                     struct err *e)
{
    struct gguf_model m;
    int rc = 0;
    sha256_add(h, "longhand gguf 1", sizeof "longhand gguf 1");
    if (gguf_model_open(&m, place, e))
        return -1;
    for (size_t i = 0; i < MODEL_FILES && rc == 0; i++)
        rc = gguf_small_file(&small->data[i], &small->n[i], m.part, names[i], e);
    for (size_t i = 0; i < m.n && rc == 0; i++)
        rc = add_header(h, &m, i, e);
    *ts = gguf_take_tensors(&m);
    return rc;
}

static int hash_directory(struct sha256 *h, struct model_files *small, struct tensors *ts, const char *place,
                          struct err *e)
{
    char path[PATH_BYTES + 32];
    sha256_add(h, "longhand model 1", sizeof "longhand model 1");
    for (size_t i = 0; i < MODEL_FILES; i++) {
        if (model_file_read(&small->data[i], &small->n[i], path, sizeof path, place, names[i], FILE_BYTES_MAX,
                            e))
            return -1;
        sha256_add(h, names[i], strlen(names[i]) + 1);
        add_u64(h, small->n[i]);
        add_digest(h, small->data[i], small->n[i]);
    }
    return tensors_open(ts, place, e) || tensors_whole(ts, e) ? -1 : 0;
}

int fingerprint_begin(struct fingerprint *f, struct model_files *files, const char *place, struct err *e)
{
    struct model_files small = { 0 };
    *f = (struct fingerprint){ 0 };
    sha256_start(&f->h);
    int rc = (model_is_file(place) ? hash_gguf : hash_directory)(&f->h, &small, &f->ts, place, e);
    f->n_digests = reading_pieces(&f->ts);
    f->digest = calloc(f->n_digests + 1, sizeof *f->digest);
    if (rc == 0 && !f->digest)
        rc = err_set(e, ERR_FAILED, "out of memory for the fingerprint of %s", place);
    if (rc)
        fingerprint_close(f);
    if (files)
        *files = rc ? (struct model_files){ 0 } : small;
    if (rc || !files)
        model_files_free(&small);
    return rc;
}

void fingerprint_end(const struct fingerprint *f, enum weights weights, char out[FINGERPRINT_BYTES])
{
    struct sha256 h = f->h;
    uint8_t digest[SHA256_BYTES];
    size_t piece = 0;
    for (size_t i = 0; i < f->ts.n; i++) {
        const struct tensor *t = &f->ts.t[i];
        const size_t pieces = tensor_pieces(t);
        sha256_add(&h, t->name, strlen(t->name) + 1);
        sha256_add(&h, t->dtype_name, strlen(t->dtype_name) + 1);
        add_u64(&h, t->n_dims);
        for (size_t k = 0; k < t->n_dims; k++)
            add_u64(&h, t->dim[k]);
        sha256_add(&h, f->digest + piece, pieces * SHA256_BYTES);
        piece += pieces;
    }
    if (weights != WEIGHTS_AS_IS) {
        sha256_add(&h, "weights ", 8);
        sha256_add(&h, weights_names[weights], strlen(weights_names[weights]) + 1);
    }
    sha256_end(&h, digest);
    sha256_hex(out, digest);
}

void fingerprint_close(struct fingerprint *f)
{
    tensors_close(&f->ts);
    free(f->digest);
    *f = (struct fingerprint){ 0 };
}

int model_fingerprint(char out[FINGERPRINT_BYTES], struct model_files *files, const char *place,
                      enum weights weights, struct pool *pool, reading_progress *progress, void *ctx,
                      struct err *e)
{
    struct fingerprint f;
    if (fingerprint_begin(&f, files, place, e))
        return -1;
    const struct reading r = { .ts = &f.ts, .pool = pool, .digest = f.digest, .n_digests = f.n_digests,
                               .progress = progress, .progress_ctx = ctx };
    const int rc = read_tensors(&r, e);
    if (rc == 0)
        fingerprint_end(&f, weights, out);
    else if (files)
        model_files_free(files);
    fingerprint_close(&f);
    return rc && e->code == ERR_AGAIN ? 1 : rc;
}
