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

static int newest_first(const void *a, const void *b) { return -strcmp(a, b); }

int list_ids(const struct server *sv, const char *prefix, char (**ids)[FILE_ID_BYTES], size_t *n,
             struct err *e)
{
    char folder[PATH_BYTES];
    struct dirent *x;
    size_t room = 0;
    *ids = NULL;
    *n = 0;
    if (file_path(folder, sv, "", "", e))
        return -1;
    DIR *d = opendir(folder);
    if (!d)
        return err_set(e, ERR_FAILED, ERR_PATH "%s", folder, strerror(errno));
    while ((x = readdir(d))) {
        if (!id_is(x->d_name, prefix, ".json"))
            continue;
        if (*n == room) {
            void *more = realloc(*ids, (room = 2 * room + 16) * sizeof **ids);
            if (!more) {
                closedir(d);
                free(*ids);
                return err_set(e, ERR_FAILED, "out of memory for a list of files");
            }
            *ids = more;
        }
        snprintf((*ids)[(*n)++], FILE_ID_BYTES, "%.*s", (int)(strlen(x->d_name) - 5), x->d_name);
    }
    closedir(d);
    if (*n)
        qsort(*ids, *n, sizeof **ids, newest_first);
    return 0;
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

int answer_ids(struct call *c, char (*ids)[FILE_ID_BYTES], size_t n, put_fn *put, struct err *e)
{
    const char *limit = call_argument(c, "limit"), *after = call_argument(c, "after"), *last = NULL;
    size_t most = 10000, shown = 0, i = 0;
    if (limit && parse_size(&most, "limit", limit, 1, 10000, e))
        return -1;
    if (n)
        qsort(ids, n, sizeof *ids, newest_first);
    jw_open(&c->w, NULL, '{');
    jw_text(&c->w, "object", "list");
    jw_open(&c->w, "data", '[');
    while (after && i < n && strcmp(ids[i], after) >= 0)
        i++;
    for (; i < n && shown < most; i++)
        if (put(c, ids[i])) {
            shown++;
            last = ids[i];
        }
    jw_close(&c->w, ']');
    jw_text(&c->w, "last_id", last);
    jw_bool(&c->w, "has_more", i < n);
    jw_close(&c->w, '}');
    return 0;
}
