/* /v1/files. Start at take_upload and answer_upload. */
#include "runs/serve/http.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const uint64_t KEEP_FREE = (uint64_t)256 << 20;
#define NEEDED "multipart/form-data with purpose and file is needed"
#define DAMAGED "the multipart body is damaged"

/* ---- uploads ---- */

struct upload {
    struct MHD_PostProcessor *parts;
    char id[FILE_ID_BYTES], path[PATH_BYTES];    /* path: of the piece; "": there is none */
    char name[256], purpose[32];
    int fd;
    size_t bytes;
};

/* The rest of the upload is read and dropped. */
static enum MHD_Result fail(struct call *c, unsigned status, const char *why)
{
    if (!c->why.code)
        call_fail(c, &c->why, status, "%s", why);
    return MHD_YES;
}

static enum MHD_Result take_part(void *ctx, enum MHD_ValueKind kind, const char *key, const char *name,
                                 const char *type, const char *encoding, const char *bytes, uint64_t at,
                                 size_t n)
{
    struct call *c = ctx;
    struct upload *u = c->state;
    struct statvfs disk;
    struct err ignored;
    (void)kind, (void)type, (void)encoding;
    if (!key)                            /* a part without a name */
        return MHD_YES;
    if (strcmp(key, "purpose") == 0 && at + n < sizeof u->purpose)
        memcpy(u->purpose + at, bytes, n);
    if (strcmp(key, "file") || c->why.code)
        return MHD_YES;
    /* a part whose first byte is in another packet begins twice */
    if (at == 0 && u->fd >= 0 && (u->bytes || strncmp(u->name, name ? name : "upload", sizeof u->name - 1)))
        return fail(c, MHD_HTTP_BAD_REQUEST, "two parts are named file");
    if (u->fd < 0) {
        snprintf(u->name, sizeof u->name, "%s", name ? name : "upload");
        if (new_id(u->id, FILE_PREFIX) || file_path(u->path, c->sv, u->id, PIECE_END, &ignored) ||
            (u->fd = open(u->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) < 0)
            return fail(c, MHD_HTTP_INTERNAL_SERVER_ERROR, "the file cannot be made");
    }
    u->bytes += n;
    if (u->bytes > c->sv->o->max_upload)
        return fail(c, MHD_HTTP_CONTENT_TOO_LARGE, "the file is larger than --max-upload");
    if (fstatvfs(u->fd, &disk) == 0 && (uint64_t)disk.f_bavail * disk.f_frsize < KEEP_FREE + n)
        return fail(c, MHD_HTTP_INSUFFICIENT_STORAGE, "less than 256 MiB of the disk would stay free");
    if (write_bytes(u->fd, bytes, n))
        return fail(c, MHD_HTTP_INSUFFICIENT_STORAGE, strerror(errno));
    return MHD_YES;
}

void take_upload(struct call *c, const char *bytes, size_t n)
{
    struct upload *u = c->state;
    if (!u && (u = c->state = calloc(1, sizeof *u))) {
        u->fd = -1;
        u->parts = MHD_create_post_processor(c->c, 65536, take_part, c);
        if (!u->parts)
            fail(c, MHD_HTTP_BAD_REQUEST, NEEDED);
    }
    if (u && u->parts && MHD_post_process(u->parts, bytes, n) != MHD_YES)
        fail(c, MHD_HTTP_BAD_REQUEST, DAMAGED);
}

void drop_upload(struct call *c)
{
    struct upload *u = c->state;
    if (!u)
        return;
    if (u->parts)
        MHD_destroy_post_processor(u->parts);
    if (u->fd >= 0)
        close(u->fd);
    if (u->path[0])
        unlink(u->path);
    free(u);
    c->state = NULL;
}

/* The object of a file, of 8 rows. */
static void file_rows(struct row out[8], const char *id, size_t bytes, double created, const char *name,
                      const char *purpose)
{
    const struct row rows[] = {
        { "id", NULL, V_TEXT(id) },
        { "object", NULL, V_TEXT("file") },
        { "bytes", NULL, V_UINT(bytes) },
        { "created_at", NULL, V_INT((int64_t)created) },
        { "filename", NULL, V_TEXT(name) },
        { "purpose", NULL, V_TEXT(purpose) },
        { "status", NULL, V_TEXT("processed") },
        { 0 } };
    memcpy(out, rows, sizeof rows);
}

/* Gives the file its name, durably. */
static int keep(struct call *c, struct upload *u, struct err *e)
{
    char path[PATH_BYTES];
    struct row rows[8];
    if (file_path(path, c->sv, u->id, "", e))
        return -1;
    if (fsync(u->fd) || rename(u->path, path))
        return err_set(e, ERR_FAILED, ERR_PATH "%s", path, strerror(errno));
    u->path[0] = 0;
    file_rows(rows, u->id, u->bytes, wall_seconds(), u->name, u->purpose);
    return facts_write(c->sv, u->id, rows, e);
}

int answer_upload(struct call *c, struct err *e)
{
    struct upload *u = c->state;
    if (!u)
        return err_set(e, ERR_INPUT, NEEDED);
    const bool whole = MHD_destroy_post_processor(u->parts) == MHD_YES;
    u->parts = NULL;
    if (!whole)
        return err_set(e, ERR_INPUT, DAMAGED);
    if (u->fd < 0)
        return err_set(e, ERR_INPUT, "the part file is missing");
    if (strcmp(u->purpose, "batch"))
        return err_set(e, ERR_INPUT, "purpose: batch is allowed");
    if (keep(c, u, e))
        return -1;
    snprintf(c->id, sizeof c->id, "%s", u->id);
    return answer_one(c, e);
}

/* ---- reading ---- */

static bool is_result(const char *id)
{
    return id_is(id, FILE_PREFIX, OUTPUT_END) || id_is(id, FILE_PREFIX, ERRORS_END);
}

/* The object of a file: of an upload, or of what a batch wrote. ended: not before the batch has ended. */
static bool put_facts(struct call *c, const char *id, bool ended)
{
    char *text, name[64];
    struct json facts;
    struct row rows[8];
    if (is_result(id)) {
        const double created = batch_created(c, id, ended);
        snprintf(name, sizeof name, "%s.jsonl", id);
        file_rows(rows, id, 0, created, name, "batch_output");
        if (created > 0)
            sheet_object(&c->w, NULL, rows);
        return created > 0;
    }
    if (!id_is(id, FILE_PREFIX, "") || !facts_read(c->sv, id, &text, &facts))
        return false;
    jw_value(&c->w, NULL, &facts);
    free(text);
    return true;
}

bool put_file(struct call *c, const char *id) { return put_facts(c, id, false); }

static int no_file(struct call *c, struct err *e)
{
    return call_fail(c, e, MHD_HTTP_NOT_FOUND, "there is no file %s", c->id);
}

bool put_wanted_file(struct call *c, const char *id)
{
    const char *purpose = call_argument(c, "purpose");
    return (!purpose || strcmp(purpose, is_result(id) ? "batch_output" : "batch") == 0) &&
           put_facts(c, id, true);
}

int answer_content(struct call *c, struct err *e)
{
    char path[PATH_BYTES];
    struct stat st;
    int fd = -1;
    if (is_result(c->id))
        fd = batch_write_results(c, c->id, e);
    else if (id_is(c->id, FILE_PREFIX, "") && file_path(path, c->sv, c->id, "", e) == 0)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st))
        return e->code ? -1 : no_file(c, e);
    return call_respond(c, MHD_create_response_from_fd64((uint64_t)st.st_size, fd),
                        "application/octet-stream");
}

int answer_delete_file(struct call *c, struct err *e)
{
    char path[PATH_BYTES], facts[PATH_BYTES];
    if (!id_is(c->id, FILE_PREFIX, ""))
        return no_file(c, e);
    if (file_path(path, c->sv, c->id, "", e) || file_path(facts, c->sv, c->id, ".json", e))
        return -1;
    if (unlink(facts))
        return no_file(c, e);
    unlink(path);
    return call_deleted(c, "file");
}
