/* Files that a command writes take the place of what stands under their names: before hours of work it is said where one of them cannot be written, is one that
 * the command reads, or is another one too. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/cmd.h"
#include "src/fingerprint.h"

static bool is_regular(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* The folder of `path`; its last part. */
static const char *folder_of(char to[PATH_BYTES], const char *path)
{
    const char *slash = strrchr(path, '/');
    snprintf(to, PATH_BYTES, "%.*s", slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
    return slash ? slash + 1 : path;
}

/* One regular file, be it there or not. */
static bool same_place(const char *a, const char *b)
{
    char x[PATH_BYTES], y[PATH_BYTES];
    if (is_regular(a) || is_regular(b))
        return is_regular(a) && same_file(a, b);
    return access(a, F_OK) && access(b, F_OK) && strcmp(folder_of(x, a), folder_of(y, b)) == 0 && same_file(x, y);
}

static int check_model(const struct options *o, const char *option, const char *path, struct err *e)
{
    char dir[PATH_BYTES], file[PATH_BYTES + 260];
    struct err ignored;
    const bool train = o->verb->bit == VERB_TRAIN;
    int rc = 0;
    DIR *d = o->model && is_regular(path) && model_dir(dir, o, &ignored) == 0 ? opendir(dir) : NULL;
    for (struct dirent *x; d && rc == 0 && (x = readdir(d));) {
        snprintf(file, sizeof file, "%s/%s", dir, x->d_name);
        if (train && strncmp(x->d_name, "heads", 5) == 0)         /* may be made again */
            continue;
        if (model_reads(x->d_name) && same_file(file, path))
            rc = err_set(e, ERR_INPUT, "--%s: %s is a file of the model; any other file is allowed", option, path);
    }
    if (d)
        closedir(d);
    return rc;
}

static int check_reads(const struct options *o, const char *option, const char *path, struct err *e)
{
    const char *heads = o->drafter ? strstr(o->drafter, "heads:") : NULL;
    char heads_file[PATH_BYTES];
    snprintf(heads_file, sizeof heads_file, "%.*s", heads ? (int)strcspn(heads + 6, ",") : 0, heads ? heads + 6 : "");
    const struct { const char *option, *const *file; size_t n; } in[] = {
        { "prompt-file", &o->prompt_file, 1 }, { "batch", &o->batch, 1 }, { "drafter", (const char *[]){ heads ? heads_file : NULL }, 1 },
        { "data", (const char *const *)o->data.v, o->data.n }, { "valid", (const char *const *)o->valid.v, o->valid.n },
    };
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        for (size_t k = 0; k < in[i].n; k++)
            if (in[i].file[k] && same_place(path, in[i].file[k]))
                return err_set(e, ERR_INPUT, "--%s: %s is the file of --%s; any other file is allowed", option, path, in[i].option);
    return 0;
}

static int check_writes(const struct options *o, const char *option, const char *path, struct err *e)
{
    const struct { const char *option, *file; } out[] = { { o->verb->bit == VERB_TRAIN ? "out" : "output", o->output }, { "json-stats", o->json_stats }, { "curves", o->curves } };
    for (size_t i = 0; i < sizeof out / sizeof *out; i++)
        if (out[i].file && strcmp(out[i].option, option) && strcmp(out[i].file, "-") && same_place(path, out[i].file))
            return err_set(e, ERR_INPUT, "--%s: %s is the file of --%s; any other file is allowed", option, path, out[i].option);
    return 0;
}

/* Whether a file can be made or replaced there. What is no regular file (a pipe, a device) is left to who opens it. */
static int check_place(const char *option, const char *path, struct err *e)
{
    char folder[PATH_BYTES];
    struct stat st;
    const bool there = stat(path, &st) == 0;
    folder_of(folder, path);
    if (there && S_ISDIR(st.st_mode))
        errno = EISDIR;
    else if (!there ? access(folder, W_OK | X_OK) == 0 : !S_ISREG(st.st_mode) || access(path, W_OK) == 0)
        return 0;
    return err_set(e, ERR_INPUT, "--%s: %s: cannot write: %s", option, path, strerror(errno));
}

int output_check(const struct options *o, const char *option, const char *path, struct err *e)
{
    if (!*path || strcmp(path, "-") == 0)
        return err_set(e, ERR_INPUT, "--%s: '%s' is not the name of a file", option, path);
    if (strlen(path) >= PATH_BYTES)
        return err_set(e, ERR_INPUT, "--%s: a path of %zu bytes, at most %d are allowed", option, strlen(path), PATH_BYTES - 1);
    return check_reads(o, option, path, e) || check_writes(o, option, path, e) || check_model(o, option, path, e) || check_place(option, path, e) ? -1 : 0;
}

int outputs_check(const struct options *o, struct err *e)
{
    const bool train = o->verb->bit == VERB_TRAIN;
    if (o->output && (train || (*o->output && strcmp(o->output, "-"))) && output_check(o, train ? "out" : "output", o->output, e))
        return -1;
    return (o->json_stats && output_check(o, "json-stats", o->json_stats, e)) || (o->curves && output_check(o, "curves", o->curves, e)) ? -1 : 0;
}
