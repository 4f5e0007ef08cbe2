/* Chooses the reader of a model's files. Start at model_is_file. */
#include "src/model/model_files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/model/encode.h"
#include "src/model/gguf_model.h"
#include "src/model/views.h"
#include "src/model/safetensors.h"

bool model_is_file(const char *place)
{
    struct stat st;
    return stat(place, &st) == 0 && !S_ISDIR(st.st_mode);
}

/* Reads config.json and, if it exists, generation_config.json. */
static int config_read_directory(struct config *c, const char *dir, struct err *e)
{
    char path[PATH_BYTES + 32], gen_path[PATH_BYTES + 32], *json = NULL, *gen = NULL;
    size_t n = 0, gen_n = 0;
    struct stat st;
    snprintf(path, sizeof path, "%s/config.json", dir);
    snprintf(gen_path, sizeof gen_path, "%s/generation_config.json", dir);
    int r = file_read(&json, &n, path, CONFIG_BYTES_MAX, e) ||
                    ((lstat(gen_path, &st) == 0 || errno != ENOENT) &&
                     file_read(&gen, &gen_n, gen_path, CONFIG_BYTES_MAX, e))
                ? -1
                : config_parse(c, path, json, n, gen_path, gen, gen_n, e);
    free(json);
    free(gen);
    return r;
}

int config_read(struct config *c, const char *place, struct err *e)
{
    if (config_read_any(c, place, e))
        return -1;
    if (c->backbone)
        return err_set(e, ERR_INPUT, "%s: this is a drafter of Gemma 4; --drafter assistant:%s uses it "
                                     "beside the model that it drafts for", place, place);
    return 0;
}

int config_read_any(struct config *c, const char *place, struct err *e)
{
    struct gguf_model m;
    if (!model_is_file(place))
        return config_read_directory(c, place, e);
    if (gguf_model_open(&m, place, e))
        return -1;
    *c = m.config;
    gguf_model_close(&m);
    return 0;
}

int tensors_open(struct tensors *ts, const char *place, struct err *e)
{
    struct gguf_model m;
    if (!model_is_file(place)) {
        struct config c;
        if (safetensors_open(ts, place, e))
            return -1;
        if (!tensors_have_joined(ts) ||
            (config_read_directory(&c, place, e) == 0 && tensors_split_joined(ts, &c, e) == 0))
            return 0;
        tensors_close(ts);
        return -1;
    }
    *ts = (struct tensors){ 0 };
    if (gguf_model_open(&m, place, e))
        return -1;
    *ts = gguf_take_tensors(&m);
    return 0;
}

bool tensors_have(const char *place, const char *name)
{
    struct tensors ts;
    struct err ignored;
    if (tensors_open(&ts, place, &ignored))
        return false;
    const bool found = tensors_find(&ts, name);
    tensors_close(&ts);
    return found;
}

int tensors_open_as(struct tensors *ts, const char *place, enum weights w, bool tied, struct err *e)
{
    if (tensors_open(ts, place, e))
        return -1;
    if (w == WEIGHTS_AS_IS || tensors_encode(ts, w, tied, e) == 0)
        return 0;
    tensors_close(ts);
    return -1;
}

int model_file_read(char **data, size_t *n, char *path, size_t size, const char *place, const char *name,
                    size_t max, struct err *e)
{
    struct gguf_model m;
    const bool is_file = model_is_file(place);
    *data = NULL;
    *n = 0;
    if ((size_t)snprintf(path, size, is_file ? "%s: %s" : "%s/%s", place, name) >= size)
        return err_set(e, ERR_INPUT, "%.100s..: the path is longer than %zu bytes", place, size);
    if (!is_file)
        return access(path, F_OK) == 0 ? file_read(data, n, path, max, e) : 0;
    if (gguf_open_first(&m, place, e))
        return -1;
    int rc = gguf_small_file(data, n, m.part, name, e);
    gguf_model_close(&m);
    if (rc == 0 && *n > max) {
        free(*data);
        *data = NULL;
        rc = err_set(e, ERR_INPUT, "%s: %zu bytes, at most %zu are allowed", path, *n, max);
    }
    return rc;
}

int model_absolute_path(char path[PATH_BYTES], const char *place)
{
    const char *slash = strrchr(place, '/'), *name = slash ? slash + 1 : place;
    char dir[PATH_BYTES] = ".";
    const bool is_file = model_is_file(place);
    if (is_file && slash)
        snprintf(dir, sizeof dir, "%.*s", (int)MAX(slash - place, 1), place);
    char *real = realpath(is_file ? dir : place, NULL);
    if (!real)
        return -1;
    const size_t n =
        (size_t)snprintf(path, PATH_BYTES, "%s%s%s", real, is_file ? "/" : "", is_file ? name : "");
    free(real);
    if (n >= PATH_BYTES)
        errno = ENAMETOOLONG;
    return n < PATH_BYTES ? 0 : -1;
}
