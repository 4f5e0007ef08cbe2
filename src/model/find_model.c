/* Finds a model: its directory, or its GGUF file. find_model_dir is the entry: a name that exists is used as
 * it is; a name of the form org/name is looked up in the hub cache, where refs/main names the snapshot. */
#include "src/model/find_model.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static bool is_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* The hub cache of Hugging Face's own tools. */
static void cache_dir(char *out, size_t size)
{
    const char *hub = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME"), *xdg = getenv("XDG_CACHE_HOME"),
               *user = getenv("HOME");
    if (hub && *hub)
        snprintf(out, size, "%s", hub);
    else if (home && *home)
        snprintf(out, size, "%s/hub", home);
    else if (xdg && *xdg)
        snprintf(out, size, "%s/huggingface/hub", xdg);
    else
        snprintf(out, size, "%s/.cache/huggingface/hub", user ? user : "");
}

/* org/name -> CACHE/models--org--name/snapshots/HASH; refs/main holds the hash. */
static int cached_model(char dir[PATH_BYTES], const char *name, const char *what, struct err *e)
{
    char cache[PATH_BYTES / 2], ref[PATH_BYTES], *hash;
    const char *slash = strchr(name, '/');
    size_t n;
    cache_dir(cache, sizeof cache);
    snprintf(ref, sizeof ref, "%s/models--%.*s--%.200s/refs/main", cache, (int)MIN(slash - name, 200), name,
             slash + 1);
    if (access(ref, F_OK))
        return err_set(e, ERR_INPUT,
                       "%s: '%s' is not a directory here, and is not in the Hugging Face cache %s", what,
                       name, cache);
    if (file_read(&hash, &n, ref, 256, e))
        return -1;
    hash[strcspn(hash, " \r\n\t")] = 0;
    bool ok = *hash && strspn(hash, "0123456789abcdef") == strlen(hash);
    int len = snprintf(dir, PATH_BYTES, "%s/models--%.*s--%.200s/snapshots/%s", cache,
                       (int)MIN(slash - name, 200), name, slash + 1, hash);
    free(hash);
    if (!ok)
        return err_set(e, ERR_INPUT, "%s: not the hash of a snapshot", ref);
    if (len >= PATH_BYTES || !is_dir(dir))
        return err_set(e, ERR_INPUT, "%s: names the snapshot %s, which is not a directory", ref, dir);
    return 0;
}

/* Whether the directory holds the weights of a Hugging Face model. */
static bool has_safetensors(const char *dir)
{
    char path[PATH_BYTES + 40];
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    if (access(path, F_OK) == 0)
        return true;
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    return access(path, F_OK) == 0;
}

static bool is_gguf(const char *name)
{
    const size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, ".gguf") == 0;
}

/* Whether a name is that of a later part of a split file. */
static bool is_later_part(const char *name)
{
    const size_t n = strlen(name);
    return n > 20 && strncmp(name + n - 20, "-00001", 6) && name[n - 20] == '-' &&
           strncmp(name + n - 14, "-of-", 4) == 0;
}

/* Replaces a directory without safetensors by the one GGUF model in it. */
static int use_gguf(char dir[PATH_BYTES], const char *what, struct err *e)
{
    char first[256] = "", second[256] = "";
    DIR *d = has_safetensors(dir) ? NULL : opendir(dir);
    if (!d)
        return 0;
    for (struct dirent *x; (x = readdir(d));)
        if (is_gguf(x->d_name) && !is_later_part(x->d_name))
            snprintf(*first ? second : first, sizeof first, "%s", x->d_name);
    closedir(d);
    const size_t n = strlen(dir);
    if (*second)
        return err_set(e, ERR_INPUT,
                       "%s: %s: the directory holds several models, such as %s and %s; name the file", what,
                       dir, strcmp(first, second) < 0 ? first : second,
                       strcmp(first, second) < 0 ? second : first);
    if (*first && (size_t)snprintf(dir + n, PATH_BYTES - n, "/%s", first) >= PATH_BYTES - n)
        return err_set(e, ERR_INPUT, "%s: %s: the path is too long", what, first);
    return 0;
}

int find_model_dir(char dir[PATH_BYTES], const char *m, const char *what, struct err *e)
{
    size_t n = strlen(m);
    if (n >= PATH_BYTES)
        return err_set(e, ERR_INPUT, "%s: a path of %zu bytes, at most %d are allowed", what, n,
                       PATH_BYTES - 1);
    if (is_dir(m)) {
        memcpy(dir, m, n + 1);
        while (n > 1 && dir[n - 1] == '/')
            dir[--n] = 0;
        return use_gguf(dir, what, e);
    }
    if (is_file(m)) {
        memcpy(dir, m, n + 1);
        return 0;
    }
    const char *slash = strchr(m, '/');
    if (slash && slash != m && slash[1] && !strchr(slash + 1, '/') && m[0] != '.')
        return cached_model(dir, m, what, e) || use_gguf(dir, what, e) ? -1 : 0;
    return err_set(e, ERR_INPUT, "%s: %s: %s", what, m,
                   access(m, F_OK) ? strerror(errno) : "not a directory and not a file");
}

int find_model_or_demo(char dir[PATH_BYTES], const char *name, struct err *e)
{
    char program[PATH_BYTES];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - sizeof "/models/demo");
    if (name)
        return find_model_dir(dir, name, "--model", e);
    snprintf(dir, PATH_BYTES, "models/demo");
    while (!is_dir(dir)) {
        const char *slash = n > 0 ? memrchr(program, '/', (size_t)n) : NULL;
        if (!slash)
            return err_set(e, ERR_INPUT, "models/demo was not found; --model DIR names a model");
        n = slash - program;
        snprintf(dir, PATH_BYTES, "%.*s/models/demo", (int)n, program);
    }
    return 0;
}
