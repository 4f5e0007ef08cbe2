/* The log of what programs changed (tests/faults.h), played into the model of a disk (tests/disk.h). */
#pragma once
#include "tests/disk.h"
#include "tests/program.h"

/* path: NUL-terminated copy */
struct entry { enum record_kind kind; const char *path; const char *data; size_t at, n; };
struct log { char *bytes; struct entry *v; size_t n; char *paths; char root[128]; };

/* Have programs log what they change under the rig's folder. */
static inline void log_begin(void)
{
    snprintf(faults->root, sizeof faults->root, "%s", rig_dir);
    snprintf(faults->log, sizeof faults->log, "%s.log", program_page);
    unlink(faults->log);
}

static inline void log_free(struct log *l)
{
    free(l->bytes);
    free(l->v);
    free(l->paths);
    *l = (struct log){0};
}

/* Read it, and stop logging. A record that a kill cut off ends it. */
static inline void log_end(struct log *l)
{
    size_t size = 0, n_paths = 0;
    struct err e;
    *l = (struct log){0};
    strcpy(l->root, faults->root);
    if (access(faults->log, F_OK) == 0 && file_read(&l->bytes, &size, faults->log, 1 << 28, &e))
        abort();
    unlink(faults->log);
    faults->log[0] = 0;
    l->paths = malloc(2 * size + 1);
    for (size_t at = 0; size - at >= sizeof(struct record);) {
        struct record r;
        memcpy(&r, l->bytes + at, sizeof r);
        const char *path = l->bytes + at + sizeof r;
        at += sizeof r + r.n_path + r.n;
        if (at > size)
            break;
        if ((l->n & (l->n - 1)) == 0)
            l->v = realloc(l->v, (l->n ? 2 * l->n : 1) * sizeof *l->v);
        char *name = memcpy(l->paths + n_paths, path, r.n_path);
        name[r.n_path] = 0;
        n_paths += r.n_path + 1;
        l->v[l->n++] = (struct entry){ r.kind, name, path + r.n_path, (size_t)r.at, (size_t)r.n };
    }
}

/* The syncs that take effect on the disk. FULL: all but those of a folder after an unlink in it, which only
 * synchronous=EXTRA makes. */
enum believe { BELIEVE_ALL, BELIEVE_FULL, BELIEVE_NONE };

static inline void play(const struct log *l, size_t i, enum believe b)
{
    const struct entry *r = &l->v[i];
    bool top = strcmp(r->path, l->root) == 0;            /* it was there before the log began */
    if (r->kind == REC_UNLOCK)
        return;
    struct name *m = top ? NULL : disk_name(r->path);
    int now = top ? -1 : disk_now(m);
    bool folder = top || (now >= 0 && disk.inode[now].folder);
    switch (r->kind) {
    case REC_CREATE:   disk_make(m, false); break;
    case REC_MKDIR:    disk_make(m, true); break;
    case REC_WRITE:    disk_change(now, r->at, r->data, r->n); break;
    case REC_TRUNCATE: disk_change(now, r->at, NULL, 0); break;
    case REC_UNLINK:   disk_set_name(m, -1); break;
    case REC_RENAME: {
        char to[sizeof m->path];
        snprintf(to, sizeof to, "%.*s", (int)r->n, r->data);
        disk_set_name(m, -1);
        disk_set_name(disk_name(to), now);
        break;
    }
    case REC_SYNC:
        if (b == BELIEVE_NONE || (b == BELIEVE_FULL && folder && i && l->v[i - 1].kind == REC_UNLINK))
            break;
        if (folder)
            disk_sync_folder(r->path);
        else
            disk_sync(now);
        break;
    default: break;
    }
}

/* Whether other processes can read the database of record i from here on: a lock was released, and no commit
 * is in progress. */
static inline bool readable_at(const struct log *l, size_t i)
{
    char journal[200];
    snprintf(journal, sizeof journal, "%s-journal", l->v[i].path);
    return l->v[i].kind == REC_UNLOCK && !strstr(l->v[i].path, "-journal") &&
           disk_now(disk_name(journal)) < 0;
}
