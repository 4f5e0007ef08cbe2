/* Finds a model: its directory, or its GGUF file. find_model_dir is the entry: a path that exists is used,
 * any other name is looked up in the caches of other programs (model_caches.c). */
#include "src/model/find_model.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/model/model_caches.h"

/* S_IFDIR, S_IFREG, or another kind; 0: there is nothing. */
static mode_t kind_of(const char *path)
{
    struct stat st;
    return stat(path, &st) ? 0 : st.st_mode & S_IFMT;
}

/* Whether a word that is no path may be the name of a model in a cache. */
static bool is_name(const char *m)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/-";
    const size_t n = strlen(m);
    size_t slashes = 0;
    for (const char *p = m; (p = strchr(p, '/')); p++)
        slashes++;
    return n && strspn(m, allowed) == n && !strchr("./:-", *m) && !strchr("/:", m[n - 1]) &&
           !strstr(m, "..") && !strstr(m, "//") && slashes <= 2 && (n < 5 || strcmp(m + n - 5, ".gguf"));
}

static int several(const struct model_fits *f, const char *m, const char *advice, const char *what,
                   struct err *e)
{
    return err_set(e, ERR_INPUT, "%s: '%.200s' fits several models in %.250s: %.400s; name %s", what, m,
                   f->where, f->list, advice);
}

static int find_in_caches(char dir[PATH_BYTES], const char *m, const char *what, struct err *e)
{
    struct model_fits f = {0};
    char searched[600], ignored[600], name[300];
    const char *colon = strrchr(m, ':');
    if (model_fits_caches(&f, m, searched, e))
        return err_while(e, "%s: '%.200s'", what, m);
    if (f.n > 1)
        return several(&f, m, colon ? "the path of one" : "the path of one, or add :QUANT to the name", what,
                       e);
    if (f.n == 1) {
        snprintf(dir, PATH_BYTES, "%s", f.path);
        return 0;
    }
    snprintf(name, sizeof name, "%.*s", colon ? (int)(colon - m) : 0, m);
    if (colon && model_fits_caches(&f, name, ignored, e) == 0 && f.n)
        return err_set(e, ERR_INPUT, "%s: '%.200s': no '%s' is in %.250s; it has %.300s", what, m, colon + 1,
                       f.where, f.list);
    return err_set(e, ERR_INPUT,
                   "%s: '%.200s' is not a file or directory here, and %s%s; longhand downloads nothing", what,
                   m, *searched ? "not the name of a model in "
                                : "no cache of Hugging Face, llama.cpp, LM Studio or Ollama was found, in "
                                  "which it might be a name", searched);
}

int find_model_dir(char dir[PATH_BYTES], const char *m, const char *what, struct err *e)
{
    size_t n = strlen(m);
    struct model_fits f = {0};
    if (n >= PATH_BYTES)
        return err_set(e, ERR_INPUT, "%s: a path of %zu bytes, at most %d are allowed", what, n,
                       PATH_BYTES - 1);
    const mode_t kind = kind_of(m);
    if (kind != S_IFDIR && kind != S_IFREG) {
        if (is_name(m))
            return find_in_caches(dir, m, what, e);
        return err_set(e, ERR_INPUT, "%s: %s: %s", what, m,
                       access(m, F_OK) ? strerror(errno) : "not a directory and not a file");
    }
    memcpy(dir, m, n + 1);
    if (kind == S_IFREG)
        return 0;
    while (n > 1 && dir[n - 1] == '/')
        dir[--n] = 0;
    model_fits_folder(&f, dir);
    if (f.n > 1)
        return several(&f, m, "the path of one", what, e);
    if (f.n)
        snprintf(dir, PATH_BYTES, "%s", f.path);
    return 0;
}

int find_model_or_demo(char dir[PATH_BYTES], const char *name, const char *what, struct err *e)
{
    char program[PATH_BYTES];
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - sizeof "/models/demo");
    if (name)
        return find_model_dir(dir, name, what, e);
    snprintf(dir, PATH_BYTES, "models/demo");
    while (kind_of(dir) != S_IFDIR) {
        const char *slash = n > 0 ? memrchr(program, '/', (size_t)n) : NULL;
        if (!slash)
            return err_set(e, ERR_INPUT, "models/demo was not found; --model DIR names a model");
        n = slash - program;
        snprintf(dir, PATH_BYTES, "%.*s/models/demo", (int)n, program);
    }
    return 0;
}
