/* The folder of uploads and batches. Start at file_path. */
#include "runs/serve/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "src/base/memory_file.h"

int new_id(char id[FILE_ID_BYTES], const char *prefix)
{
    struct timespec now;
    uint32_t random;
    if (clock_gettime(CLOCK_REALTIME, &now) || getrandom(&random, sizeof random, 0) != sizeof random)
        return -1;
    /* the order of ids is that of time */
    snprintf(id, FILE_ID_BYTES, "%s%08" PRIx32 "%08" PRIx32, prefix, (uint32_t)now.tv_sec,
             (uint32_t)(now.tv_nsec / 1000) << 12 | (random & 0xfff));
    return 0;
}

bool id_is(const char *id, const char *prefix, const char *end)
{
    const size_t n = strlen(prefix);
    return strncmp(id, prefix, n) == 0 && strspn(id + n, "0123456789abcdef") == 16 &&
           strcmp(id + n + 16, end) == 0;
}

int file_path(char path[PATH_BYTES], const struct server *sv, const char *id, const char *end, struct err *e)
{
    char folder[PATH_BYTES];
    snprintf(folder, sizeof folder, "%.4000s.files", store_path(sv->reader));
    if (mkdir(folder, 0700) ? errno != EEXIST : name_sync(folder) != 0)
        return err_set(e, ERR_FAILED, ERR_PATH "cannot be made: %s", folder, strerror(errno));
    snprintf(path, PATH_BYTES, "%.4006s/%.31s%.16s", folder, id, end);
    return 0;
}

bool facts_read(const struct server *sv, const char *id, char **text, struct json *facts)
{
    char path[PATH_BYTES];
    struct err ignored;
    size_t n;
    *text = NULL;
    if (file_path(path, sv, id, ".json", &ignored) == 0 &&
        file_read(text, &n, path, 1 << 20, &ignored) == 0 &&
        js_check(facts, "facts", *text, n, &ignored) == 0)
        return true;
    free(*text);
    return false;
}

int facts_write(const struct server *sv, const char *id, const struct row *rows, struct err *e)
{
    char path[PATH_BYTES], *text = NULL;
    size_t n;
    FILE *f = memory_file(&text, &n);
    if (f)
        sheet_object(&(struct json_writer){ .f = f, .digits = 15 }, NULL, rows);
    int rc = !f || stream_end(f) ? err_set(e, ERR_FAILED, "out of memory") : 0;
    rc = rc || file_path(path, sv, id, ".json", e) || file_write(path, &(struct slice){ text, n }, 1, e) ? -1
                                                                                                         : 0;
    free(text);
    return rc;
}

static int newest_first(const void *a, const void *b) { return -strcmp(a, b); }

int list_ids(struct file_ids *l, const struct server *sv, const char *prefix, bool results, struct err *e)
{
    char folder[PATH_BYTES];
    struct dirent *x;
    DIR *d = NULL;
    int rc = file_path(folder, sv, "", "", e);
    if (rc == 0 && !(d = opendir(folder)))
        rc = err_set(e, ERR_FAILED, ERR_PATH "%s", folder, strerror(errno));
    while (rc == 0 && (x = readdir(d))) {
        const char *digits = x->d_name + strlen(prefix);
        if (!id_is(x->d_name, prefix, ".json"))
            continue;
        void *more = realloc(l->v, (l->n + 2) * sizeof *l->v);
        if (!more) {
            rc = err_set(e, ERR_FAILED, "out of memory for a list of files");
            break;
        }
        l->v = more;
        snprintf(l->v[l->n++], FILE_ID_BYTES, "%s%.16s%s", results ? FILE_PREFIX : prefix, digits,
                 results ? OUTPUT_END : "");
        if (results)
            snprintf(l->v[l->n++], FILE_ID_BYTES, FILE_PREFIX "%.16s" ERRORS_END, digits);
    }
    if (d)
        closedir(d);
    if (l->n)
        qsort(l->v, l->n, sizeof *l->v, newest_first);
    return rc;
}

void folder_clean(const struct server *sv)
{
    enum { DEAD_SECONDS = 600 };         /* another server of this store may live */
    char path[PATH_BYTES];
    struct err ignored;
    struct dirent *x;
    struct stat st;
    DIR *d = file_path(path, sv, "", "", &ignored) ? NULL : opendir(path);
    while (d && (x = readdir(d)))
        if ((id_is(x->d_name, FILE_PREFIX, PIECE_END) || id_is(x->d_name, RESULTS_PREFIX, "")) &&
            fstatat(dirfd(d), x->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            wall_seconds() - (double)st.st_mtime > DEAD_SECONDS)
            unlinkat(dirfd(d), x->d_name, 0);
    if (d)
        closedir(d);
}

int answer_one(struct call *c, const char *what, put_fn *put, struct err *e)
{
    return put(c, c->id) ? 0 : call_fail(c, e, MHD_HTTP_NOT_FOUND, "there is no %s %s", what, c->id);
}

int answer_ids(struct call *c, struct file_ids *l, put_fn *put, struct err *e)
{
    const char *limit = call_argument(c, "limit"), *after = call_argument(c, "after"), *last = NULL;
    size_t most = 10000, i = 0;
    if (limit && parse_size(&most, "limit", limit, 1, 10000, e))
        return -1;
    jw_open(&c->w, NULL, '{');
    jw_text(&c->w, "object", "list");
    jw_open(&c->w, "data", '[');
    while (after && i < l->n && strcmp(l->v[i], after) >= 0)
        i++;
    for (; i < l->n && most; i++)
        if (put(c, l->v[i])) {
            most--;
            last = l->v[i];
        }
    jw_close(&c->w, ']');
    jw_text(&c->w, "last_id", last);
    jw_bool(&c->w, "has_more", i < l->n);
    jw_close(&c->w, '}');
    return 0;
}
