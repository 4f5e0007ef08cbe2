/* Looks names up in the caches of other programs. `caches` lists these caches in the order of the search; a
 * function for each layout adds what fits. Start at model_fits_caches. */
#include "src/model/model_caches.h"

#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/json.h"
#include "src/model/gguf_model.h"

/* A name, and which of its files. */
struct wanted { char name[256], quant[128]; };         /* quant "": any */

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Formats a path. False: it is too long. */
static bool __attribute__((format(printf, 2, 3))) path_of(char out[PATH_BYTES], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(out, PATH_BYTES, format, args);
    va_end(args);
    return n >= 0 && n < PATH_BYTES;
}

/* Adds a word to a list of names, as far as the list has room. */
static void add_word(char *list, size_t size, const char *word)
{
    const size_t n = strlen(list);
    if (n + strlen(word) + 8 < size)
        snprintf(list + n, size - n, "%s%s", n ? ", " : "", word);
    else if (n > 3 && strcmp(list + n - 3, "...") && n + 6 < size)
        snprintf(list + n, size - n, ", ...");
}

/* `where`: the folder that the list names the path in. */
static void add_fit(struct model_fits *f, const char *path, const char *where)
{
    const size_t n = strlen(where);
    const char *slash = strrchr(path, '/');
    if (f->n++ == 0) {
        snprintf(f->path, sizeof f->path, "%s", path);
        snprintf(f->where, sizeof f->where, "%s", where);
    }
    add_word(f->list, sizeof f->list, path[n] ? path + n + 1 : slash ? slash + 1 : path);
}

/* ---- folders ---- */

/* What a folder holds, in the order of names, without hidden files:
 *     for (struct entries x = entries_of(folder); next_entry(&x, path);)          path: of the entry */
struct entries { const char *folder; struct dirent **list; int n, i; };

static struct entries entries_of(const char *folder)
{
    struct entries x = { .folder = folder };
    x.n = scandir(folder, &x.list, NULL, alphasort);
    return x;
}

static bool next_entry(struct entries *x, char path[PATH_BYTES])
{
    bool found = false;
    while (!found && x->i < x->n) {
        const char *name = x->list[x->i]->d_name;
        found = *name != '.' && path_of(path, "%s/%s", x->folder, name);
        free(x->list[x->i++]);
    }
    if (!found && x->n >= 0)
        free(x->list);
    return found;
}

static bool has_safetensors(const char *dir)
{
    char path[PATH_BYTES];
    return (path_of(path, "%s/model.safetensors", dir) && access(path, F_OK) == 0) ||
           (path_of(path, "%s/model.safetensors.index.json", dir) && access(path, F_OK) == 0);
}

/* Whether a file is named as a GGUF file, and not as a later part of a split one. */
static bool is_gguf(const char *name)
{
    const size_t n = strlen(name);
    if (n <= 5 || strcmp(name + n - 5, ".gguf"))
        return false;
    return n <= 20 || strncmp(name + n - 20, "-00001", 6) == 0 || name[n - 20] != '-' ||
           strncmp(name + n - 14, "-of-", 4);
}

/* Whether a GGUF file is a model by its metadata: not a projector of images, an adapter or an importance
 * matrix. Old projectors have no general.type. The reader of models tells what is wrong with a bad file. */
static bool is_model(const char *path)
{
    struct gguf_model m;
    struct slice type = { "model", 5 }, architecture = { "", 0 };
    struct err ignored;
    if (gguf_open_first(&m, path, &ignored))
        return true;
    gguf_string(m.part, "general.type", &type, &ignored);
    gguf_string(m.part, "general.architecture", &architecture, &ignored);
    const bool is = slice_is(type, "model") && !slice_is(architecture, "clip");
    gguf_model_close(&m);
    return is;
}

/* Whether `word` stands in a path between other characters than letters, digits and _; case does not matter.
 * "Q4_K_M" is a word of "a-q4_k_m.gguf", "Q4_K" is not. An empty word is everywhere. */
static bool has_word(const char *path, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = path; n && (p = strcasestr(p, word)); p++)
        if ((p == path || !isalnum((unsigned char)p[-1])) && !isalnum((unsigned char)p[n]) && p[n] != '_')
            return true;
    return n == 0;
}

/* Adds the GGUF models of `dir` whose names begin with `prefix`, and of the folders `depth` levels below. */
static void add_ggufs(struct model_fits *f, const char *dir, const char *where, const char *prefix,
                      const char *quant, int depth)
{
    char path[PATH_BYTES];
    for (struct entries x = entries_of(dir); next_entry(&x, path);) {
        const char *name = path + strlen(dir) + 1;
        if (depth && is_dir(path))
            add_ggufs(f, path, where, prefix, quant, depth - 1);
        else if (is_gguf(name) && strncmp(name, prefix, strlen(prefix)) == 0 &&
                 has_word(path + strlen(where), quant) && is_model(path))
            add_fit(f, path, where);
    }
}

static void add_folder(struct model_fits *f, const char *dir, const char *where, const char *quant)
{
    if (!*quant && has_safetensors(dir))
        add_fit(f, dir, where);
    else
        add_ggufs(f, dir, where, "", quant, 1);
}

/* Adds the snapshots that hold a model, or without `model` all of them. */
static void add_snapshots(struct model_fits *f, const char *folder, const char *quant, bool model)
{
    char path[PATH_BYTES];
    for (struct entries x = entries_of(folder); next_entry(&x, path);)
        if (is_dir(path) && model)
            add_folder(f, path, folder, quant);
        else if (is_dir(path))
            add_fit(f, path, folder);
}

/* The folder of one repository in the hub cache. A snapshot without weights fits if no other does: the reader
 * of the model says what is missing. */
static void add_repository(struct model_fits *f, const char *repository, const char *quant)
{
    char path[PATH_BYTES], *hash = NULL;
    size_t n;
    struct err ignored;
    if (path_of(path, "%s/refs/main", repository) && file_read(&hash, &n, path, 256, &ignored) == 0) {
        hash[strcspn(hash, " \r\n\t")] = 0;
        if (*hash && strspn(hash, "0123456789abcdef") == strlen(hash) &&
            path_of(path, "%s/snapshots/%s", repository, hash) && is_dir(path))
            add_folder(f, path, path, quant);
    }
    free(hash);
    if (path_of(path, "%s/snapshots", repository) && f->n == 0)
        add_snapshots(f, path, quant, true);
    if (f->n == 0 && !*quant)
        add_snapshots(f, path, quant, false);
}

void model_fits_folder(struct model_fits *f, const char *folder)
{
    char path[PATH_BYTES];
    if (has_safetensors(folder))
        add_fit(f, folder, folder);
    else
        add_ggufs(f, folder, folder, "", "", 0);
    if (f->n == 0 && path_of(path, "%s/snapshots", folder) && is_dir(path))
        add_repository(f, folder, "");
}

/* ---- layouts ---- */

typedef int search(struct model_fits *f, const char *cache, const struct wanted *w, struct err *e);

static int search_hub(struct model_fits *f, const char *cache, const struct wanted *w, struct err *e)
{
    char path[PATH_BYTES];
    const char *slash = strchr(w->name, '/');
    (void)e;
    if (slash && path_of(path, "%s/models--%.*s--%s", cache, (int)(slash - w->name), w->name, slash + 1))
        add_repository(f, path, w->quant);
    return 0;
}

static int search_llama(struct model_fits *f, const char *cache, const struct wanted *w, struct err *e)
{
    char prefix[sizeof w->name + 1];
    if (search_hub(f, cache, w, e) || f->n || !strchr(w->name, '/'))
        return 0;
    snprintf(prefix, sizeof prefix, "%s_", w->name);
    *strchr(prefix, '/') = '_';
    add_ggufs(f, cache, cache, prefix, w->quant, 0);
    return 0;
}

static int search_lm_studio(struct model_fits *f, const char *cache, const struct wanted *w, struct err *e)
{
    char path[PATH_BYTES];
    (void)e;
    if (strchr(w->name, '/') && path_of(path, "%s/%s", cache, w->name))
        add_folder(f, path, path, w->quant);
    return 0;
}

static const char SHA256_PREFIX[] = "sha256:";

/* Replaces the path of a manifest by that of the model's file. */
static int follow_manifest(char path[PATH_BYTES], const char *cache, struct err *e)
{
    static const char model[] = "application/vnd.ollama.image.model",
                      adapter[] = "application/vnd.ollama.image.adapter";
    struct json root, layers, layer, type, digest;
    char *text, sha[80] = "";
    bool adapted = false, control;
    size_t n;
    if (file_read(&text, &n, path, 1 << 20, e))
        return -1;
    int rc = js_check(&root, path, text, n, e);
    if (rc == 0 && js_get(&root, "layers", &layers, e) == 1)
        for (struct js_walk w = js_walk(&layers); js_next(&w, NULL, &layer);) {
            if (js_get(&layer, "mediaType", &type, e) != 1 || js_get(&layer, "digest", &digest, e) != 1)
                continue;
            adapted = adapted || js_is(&type, adapter);
            if (js_is(&type, model) && !*sha && js_kind(&digest) == JS_STRING &&
                js_length(&digest, &control) < sizeof sha)
                sha[js_unescape(&digest, sha)] = 0;
        }
    const size_t at = sizeof SHA256_PREFIX - 1;
    if (rc == 0 && adapted)
        rc = err_set(e, ERR_INPUT, "%s: the model has an adapter; a model with its adapter merged into it is "
                                   "needed", path);
    else if (rc == 0 && (strncmp(sha, SHA256_PREFIX, at) || strlen(sha) != at + 64 ||
                         strspn(sha + at, "0123456789abcdef") != 64))
        rc = err_set(e, ERR_INPUT, "%s: no layer of type %s with a SHA-256, which a GGUF model has", path,
                     model);
    else if (rc == 0 && !path_of(path, "%s/blobs/sha256-%s", cache, sha + at))
        rc = err_set(e, ERR_INPUT, "%s: the path is too long", cache);
    free(text);
    return rc;
}

static int search_ollama(struct model_fits *f, const char *cache, const struct wanted *w, struct err *e)
{
    char folder[PATH_BYTES], path[PATH_BYTES];
    const char *slash = strchr(w->name, '/');
    const char *host = !slash ? "registry.ollama.ai/library/" : strchr(slash + 1, '/') ? "" :
                       "registry.ollama.ai/";
    if (!path_of(folder, "%s/manifests/%s%s", cache, host, w->name) ||
        !path_of(path, "%s/%s", folder, *w->quant ? w->quant : "latest"))
        return 0;
    if (access(path, F_OK) == 0)
        add_fit(f, path, folder);
    else if (!*w->quant)
        for (struct entries x = entries_of(folder); next_entry(&x, path);)
            if (!is_dir(path))
                add_fit(f, path, folder);
    return f->n == 1 ? follow_manifest(f->path, cache, e) : 0;
}

/* ---- the search ---- */

/* The caches in the order of the search: an environment variable, and the folder below it. */
static const struct cache { const char *variable, *below; search *search; } caches[] = {
    { "HF_HUB_CACHE", "", search_hub },
    { "HUGGINGFACE_HUB_CACHE", "", search_hub },
    { "HF_HOME", "/hub", search_hub },
    { "XDG_CACHE_HOME", "/huggingface/hub", search_hub },
    { "HOME", "/.cache/huggingface/hub", search_hub },
    { "LLAMA_CACHE", "", search_llama },
    { "XDG_CACHE_HOME", "/llama.cpp", search_llama },
    { "HOME", "/.cache/llama.cpp", search_llama },
    { "HOME", "/.lmstudio/models", search_lm_studio },
    { "OLLAMA_MODELS", "", search_ollama },
    { "HOME", "/.ollama/models", search_ollama },
    { NULL, "/usr/share/ollama/.ollama/models", search_ollama },
};

int model_fits_caches(struct model_fits *f, const char *name, char searched[600], struct err *e)
{
    struct wanted w = {0};
    const char *slash = strrchr(name, '/'), *colon = strchr(slash ? slash : name, ':');
    const size_t n = colon ? (size_t)(colon - name) : strlen(name);
    *searched = 0;
    if (n >= sizeof w.name || (colon && strlen(colon + 1) >= sizeof w.quant))
        return 0;
    memcpy(w.name, name, n);
    snprintf(w.quant, sizeof w.quant, "%s", colon ? colon + 1 : "");
    for (size_t i = 0; i < sizeof caches / sizeof *caches && f->n == 0; i++) {
        const struct cache *c = &caches[i];
        const char *base = c->variable ? getenv(c->variable) : "";
        char path[PATH_BYTES];
        if (!base || (c->variable && !*base) || !path_of(path, "%s%s", base, c->below) || !is_dir(path))
            continue;
        add_word(searched, 600, path);
        if (c->search(f, path, &w, e))
            return -1;
    }
    return 0;
}

/* ---- names ---- */

/* Finds the manifest below `dir` that names a digest, and writes its path from byte `skip` on. */
static bool find_manifest(char *out, size_t size, const char *dir, size_t skip, const char *digest, int depth)
{
    char path[PATH_BYTES], *text;
    struct err ignored;
    bool found = false;
    size_t n;
    for (struct entries x = entries_of(dir); next_entry(&x, path);) {
        if (!found && is_dir(path)) {
            found = depth > 0 && find_manifest(out, size, path, skip, digest, depth - 1);
        } else if (!found && file_read(&text, &n, path, 1 << 20, &ignored) == 0) {
            found = strstr(text, digest) != NULL;
            free(text);
            if (found)
                snprintf(out, size, "%s", path + skip);
        }
    }
    return found;
}

/* The name of a file in the blobs of Ollama. */
static bool ollama_name(char *out, size_t size, const char *path, const char *blobs, const char *sha)
{
    char folder[PATH_BYTES], digest[PATH_BYTES], found[PATH_BYTES];
    const char *name = found;
    if (!path_of(folder, "%.*s/manifests", (int)(blobs - path), path) ||
        !path_of(digest, "%s%s\"", SHA256_PREFIX, sha) ||
        !find_manifest(found, sizeof found, folder, strlen(folder) + 1, digest, 3))
        return false;
    for (const char *const *p = (const char *const[]){ "registry.ollama.ai/", "library/", NULL }; *p; p++)
        name += strncmp(name, *p, strlen(*p)) == 0 ? strlen(*p) : 0;
    char *slash = strrchr(found, '/');
    if (slash >= name)
        *slash = ':';
    snprintf(out, size, "%s", name);
    return true;
}

void model_name(char *out, size_t size, const char *path)
{
    static const char hub[] = "/models--", snapshots[] = "/snapshots/", blobs[] = "/blobs/sha256-";
    const char *slash = strrchr(path, '/'), *repository = strstr(path, hub), *blob = strstr(path, blobs);
    const char *snapshot = repository ? strstr(repository, snapshots) : NULL;
    if (snapshot && slash == snapshot + sizeof snapshots - 2) {
        size_t n = 0;
        for (const char *p = repository + sizeof hub - 1; p < snapshot && n + 1 < size; p++)
            out[n++] = p[0] == '-' && p[1] == '-' ? (p++, '/') : *p;
        out[n] = 0;
    } else if (!blob || !ollama_name(out, size, path, blob, blob + sizeof blobs - 1)) {
        snprintf(out, size, "%s", slash && slash[1] ? slash + 1 : path);
    }
}
