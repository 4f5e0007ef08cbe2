/* The checks of output files. Start at output_check_all. check_reads compares an output with the inputs,
 * check_model with the files of a model, check_place asks whether the file can be written. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/request/output_check.h"
#include "src/base/input.h"
#include "src/base/output.h"
#include "src/model/fingerprint.h"
#include "src/model/gguf_model.h"
#include "src/model/heads.h"
#include "src/request/model_options.h"

static bool is_regular(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* Whether both paths name one regular file, which need not exist yet. */
static bool same_place(const char *a, const char *b)
{
    char x[PATH_BYTES], y[PATH_BYTES];
    if (is_regular(a) || is_regular(b))
        return is_regular(a) && same_file(a, b);
    return access(a, F_OK) && access(b, F_OK) && strcmp(folder_of(x, a), folder_of(y, b)) == 0 &&
           same_file(x, y);
}

/* Refuses the files that a model in `dir` consists of. Training may replace the model's heads. */
static int check_model(const char *dir, const char *option, const char *path, struct err *e)
{
    char file[PATH_BYTES + 260];
    bool same = false;
    for (size_t i = 0, parts = is_regular(dir) ? gguf_parts(dir) : 0; i < parts; i++)
        same |= same_file(parts == 1 ? dir : gguf_part_path(file, sizeof file, dir, i, parts), path);
    DIR *d = is_regular(path) ? opendir(dir) : NULL;
    for (struct dirent *x; d && !same && (x = readdir(d));) {
        snprintf(file, sizeof file, "%s/%s", dir, x->d_name);
        const bool heads = strcmp(x->d_name, HEADS_FILE) == 0 && strcmp(option, "out");
        same = (heads || model_uses_file(x->d_name)) && same_file(file, path);
    }
    if (d)
        closedir(d);
    return same ? err_set(e, ERR_INPUT, "--%s: %s is a file of the model; any other file is allowed", option,
                          path)
                : 0;
}

/* Whether a NAME:FILE of --drafter has this file, or the folder of it. */
static bool is_of_drafter(const struct options *o, const char *path)
{
    char file[PATH_BYTES], heads[PATH_BYTES + sizeof HEADS_FILE];
    bool found = false;
    for (const char *p = o->job.drafter ? o->job.drafter : ""; *p; p += strcspn(p, ","), p += *p == ',')
        for (enum drafter i = 0; i < DRAFTER_ADDED; i++) {
            const size_t n = strlen(drafters[i]->name);
            if (drafters[i]->option != OPTION_FILE || strncmp(p, drafters[i]->name, n) || p[n] != ':')
                continue;
            snprintf(file, sizeof file, "%.*s", (int)strcspn(p + n + 1, ","), p + n + 1);
            snprintf(heads, sizeof heads, "%s/" HEADS_FILE, file);
            found |= same_place(path, file) || (i == DRAFTER_HEADS && same_place(path, heads));
        }
    return found;
}

static int refused(const char *option, const char *path, const char *other, struct err *e)
{
    return err_set(e, ERR_INPUT, "--%s: %s is the file of --%s; any other file is allowed", option, path,
                   other);
}

/* Refuses the files that the command reads. */
static int check_reads(const struct options *o, const char *option, const char *path, struct err *e)
{
    const struct { const char *option, *const *file; size_t n; } in[] = {
        { "prompt-file", &o->prompt_file, 1 },
        { "messages", &o->messages, 1 },
        { "append-file", &o->append_file, 1 },
        { "from", &o->train_from, 1 },
        { "batch", &o->batch, 1 },
        { "data", (const char *const *)o->data.v, o->data.n },
        { "valid", (const char *const *)o->valid.v, o->valid.n },
    };
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        for (size_t k = 0; k < in[i].n; k++)
            if (in[i].file[k] && same_place(path, in[i].file[k]))
                return refused(option, path, in[i].option, e);
    return is_of_drafter(o, path) ? refused(option, path, "drafter", e) : 0;
}

/* The outputs that the options name. Text I of several texts, and its statistics, go to FILE.I. */
enum { OUTPUTS = 4 };
struct output { const char *option, *file; };
struct outputs { struct output v[OUTPUTS]; };
static struct outputs outputs_of(const struct options *o)
{
    /* NULL for standard output, and for an empty name, which sink_open refuses */
    const char *text = o->output && *o->output && strcmp(o->output, "-") ? o->output : NULL;
    const struct output first = { "output", text }, trained = { "out", o->output };
    return (struct outputs){ { o->verb->bit == VERB_TRAIN ? trained : first, { "json-stats", o->json_stats },
                               { "curves", o->curves }, { "metrics", o->metrics } } };
}

/* ---- what no output replaces ---- */

static bool begins_with(const char *path, const char *magic, size_t n)
{
    char begin[64] = "";
    FILE *f = is_regular(path) ? fopen(path, "rb") : NULL;
    const size_t got = f ? fread(begin, 1, sizeof begin, f) : 0;
    if (f)
        fclose(f);
    return got >= n && memcmp(begin, magic, n) == 0;
}

static bool is_database(const char *path) { return begins_with(path, "SQLite format 3", 16); }

/* Whether SQLite keeps this file beside the database `db`. */
static bool is_journal(const char *path, const char *db)
{
    static const char *const ends[] = { "-journal", "-wal", "-shm" };
    char file[PATH_BYTES + 16];
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        snprintf(file, sizeof file, "%s%s", db, ends[i]);
        if (same_place(path, file))
            return true;
    }
    return false;
}

/* Whether a file may be an earlier output. Where that depends on what is written, the verb asks, too (struct
 * sink). A training that continues replaces its curves and pages. */
static bool may_be_earlier(const struct options *o, const char *option, const char *path)
{
    static const char stats[] = "{\"finish_reason\": ", metrics[] = "# HELP vllm:num_requests_running ";
    char checkpoint[PATH_BYTES + 16];
    if (strcmp(option, "json-stats") == 0 || strcmp(option, "metrics") == 0)
        return begins_with(path, *option == 'j' ? stats : metrics,
                           *option == 'j' ? sizeof stats - 1 : sizeof metrics - 1);
    snprintf(checkpoint, sizeof checkpoint, "%s.checkpoint", o->output ? o->output : "");
    if (o->verb->bit == VERB_TRAIN)
        return o->output && access(checkpoint, F_OK) == 0 &&
               (strcmp(path, checkpoint) == 0 || begins_with(path, "step,tokens,module,", 19) ||
                begins_with(path, "<!DOCTYPE html><!-- longhand -->", 32));
    return o->batch || o->resume || o->verb->bit & (VERB_TEXT | VERB_REPORT | VERB_EXPORT | VERB_PLAN);
}

/* Refuses databases and their journals, and without --force a file that is no earlier output. */
int output_kept(const struct options *o, const char *option, const char *path, struct err *e)
{
    char db[PATH_BYTES], *real = realpath(path, NULL);
    const char *what = NULL, *file = real ? real : path, *dash = strrchr(file, '-');
    snprintf(db, sizeof db, "%.*s", dash ? (int)(dash - file) : 0, file);
    if (is_database(file))
        what = "a database; any other file is allowed";
    else if (is_database(db) && is_journal(file, db))
        what = "the journal of a database; any other file is allowed";
    else if (!o->force && sink_replaces(path) && !may_be_earlier(o, option, path))
        what = "a file that is there already; any other file is allowed, and --force replaces it";
    free(real);
    return what ? err_set(e, ERR_INPUT, "--%s: %s is %s", option, path, what) : 0;
}

int output_check_store(const struct options *o, const char *db, struct err *e)
{
    const struct outputs out = outputs_of(o);
    for (const struct output *x = out.v; x < out.v + OUTPUTS; x++)
        if (x->file && (same_file(x->file, db) || is_journal(x->file, db)))
            return err_set(e, ERR_INPUT, "--%s: %s is the %s; any other file is allowed", x->option, x->file,
                           same_file(x->file, db) ? "database" : "journal of the database");
    return 0;
}

/* Checks that a file can be made or replaced at `path`. For an output that is written under a temporary
 * name and renamed, the permissions of its folder decide. A pipe or a device is not checked. */
static int check_place(const char *option, const char *path, struct err *e)
{
    char folder[PATH_BYTES], *real = realpath(path, NULL);
    struct stat st;
    const bool exists = stat(path, &st) == 0,
               renamed = strcmp(option, "json-stats") && strcmp(option, "curves");
    folder_of(folder, real && strlen(real) < PATH_BYTES ? real : path);
    free(real);
    if (exists && S_ISDIR(st.st_mode))
        errno = EISDIR;
    else if (exists && !S_ISREG(st.st_mode))
        return 0;
    else if (access(exists && !renamed ? path : folder, exists && !renamed ? W_OK : W_OK | X_OK) == 0)
        return 0;
    return err_set(e, ERR_INPUT, "--%s: %s: cannot write: %s", option, path, strerror(errno));
}

static size_t n_texts(const struct options *o)
{
    return o->verb->bit == VERB_RUN && !o->batch && o->samples > 1 ? o->samples : 1;
}

static int output_name(char to[PATH_BYTES], const struct options *o, const struct output *x, size_t text,
                       struct err *e)
{
    if (!*x->file || strcmp(x->file, "-") == 0)
        return err_set(e, ERR_INPUT, "--%s: '%s' is not the name of a file", x->option, x->file);
    if (strlen(x->file) >= PATH_BYTES - 24)
        return err_set(e, ERR_INPUT, "--%s: a path of %zu bytes, at most %d are allowed", x->option,
                       strlen(x->file), PATH_BYTES - 25);
    snprintf(to, PATH_BYTES, n_texts(o) > 1 ? "%s.%zu" : "%s", x->file, text);
    return 0;
}

int output_check_model(const struct options *o, const char *dir, struct err *e)
{
    const struct outputs out = outputs_of(o);
    char path[PATH_BYTES];
    for (const struct output *x = out.v; x < out.v + OUTPUTS; x++)
        for (size_t k = 0; x->file && k < n_texts(o); k++)
            if (output_name(path, o, x, k, e) || check_model(dir, x->option, path, e))
                return -1;
    return 0;
}

int output_check_one(const struct options *o, const char *option, const char *path, struct err *e)
{
    const struct outputs out = outputs_of(o);
    for (const struct output *x = out.v; x < out.v + OUTPUTS; x++)
        if (x->file && strcmp(x->option, option) && same_place(path, x->file))
            return refused(option, path, x->option, e);
    return check_reads(o, option, path, e) || check_place(option, path, e) ||
           output_kept(o, option, path, e) ? -1 : 0;
}

int output_check_all(const struct options *o, struct err *e)
{
    const struct outputs out = outputs_of(o);
    const struct output *const end = out.v + OUTPUTS;
    char path[PATH_BYTES], other[PATH_BYTES], dir[PATH_BYTES];
    struct err ignored;
    for (const struct output *x = out.v; x < end; x++)
        for (size_t k = 0; x->file && k < n_texts(o); k++) {
            if (output_name(path, o, x, k, e) || check_reads(o, x->option, path, e) ||
                check_place(x->option, path, e))
                return -1;
            for (const struct output *y = x + 1; y < end; y++)
                if (y->file && output_name(other, o, y, k, &ignored) == 0 && same_place(path, other))
                    return refused(x->option, path, y->option, e);
        }
    if (o->verb->bit & (VERBS_MODEL | VERB_SUBMIT) && model_dir(dir, o, &ignored) == 0 &&
        output_check_model(o, dir, e))
        return -1;
    for (const struct output *x = out.v; x < end; x++)
        for (size_t k = 0; x->file && k < n_texts(o); k++)
            if (output_name(path, o, x, k, e) || output_kept(o, x->option, path, e))
                return -1;
    return 0;
}
