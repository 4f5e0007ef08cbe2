/* A file layer under SQLite for tests: real files, with failures and power cuts.
 *
 * Failures. Every operation that changes the disk (create, write, sync, truncate, delete) is numbered; from number fail_at on it fails,
 * once or for ever, as disks do.
 *
 * Power cuts. At number cut_at the machine is dead: every operation fails, and vfs_after_cut puts on disk one of the states in which the
 * real one could have been left. For every file the model keeps what was synced and what was written since; behind the cut each sector
 * of 512 bytes has the synced content or that of any write since, so that writes are dropped, reordered and torn; the length is the synced one or a later one.
 * A name made or removed since the folder was last synced is there or not. A folder is synced as SQLite's unix layer does it: with the first
 * sync of a journal it made, and behind a delete that asks for it (that is what synchronous=EXTRA adds to FULL). */
#pragma once
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base.h"

enum vfs_sync { VFS_EXTRA, VFS_FULL, VFS_OFF };      /* which syncs the model believes in */
enum { SECTOR = 512, NAMES = 4, INODES = 64 };

struct change { size_t at, n; uint8_t *v; };         /* v NULL: truncated to `at` */
struct inode { uint8_t *synced; size_t n_synced; struct change *change; size_t n_changes; };
struct name { char path[160]; int synced, now; };     /* numbers of inodes; -1: no such name */

static struct {
    sqlite3_vfs *real;
    int64_t n;                           /* operations so far */
    int64_t fail_at; bool for_ever, full, late_delete; int64_t failed;
    int64_t n_reads, fail_read_at;
    bool model;                          /* keep the states for vfs_after_cut */
    int64_t cut_at; bool dead;
    enum vfs_sync sync;
    struct name name[NAMES]; int n_names;
    struct inode inode[INODES]; int n_inodes;
} vfs;

struct faulty { sqlite3_file base; int inode; int name; bool journal; sqlite3_file *real; };

/* ---- the model ---- */

static inline int vfs_name(const char *path)
{
    for (int i = 0; i < vfs.n_names; i++)
        if (strcmp(vfs.name[i].path, path) == 0)
            return i;
    assert(vfs.n_names < NAMES && strlen(path) < sizeof vfs.name->path);
    strcpy(vfs.name[vfs.n_names].path, path);
    vfs.name[vfs.n_names].synced = vfs.name[vfs.n_names].now = -1;
    return vfs.n_names++;
}

static inline void vfs_change(int inode, size_t at, const void *p, size_t n)
{
    if (!vfs.model)
        return;
    struct inode *f = &vfs.inode[inode];
    f->change = realloc(f->change, (f->n_changes + 1) * sizeof *f->change);
    struct change *c = &f->change[f->n_changes++];
    *c = (struct change){ .at = at, .n = n, .v = p ? malloc(n + 1) : NULL };
    if (p)
        memcpy(c->v, p, n);
}

static inline void image_write(uint8_t **v, size_t *n, const struct change *c)
{
    size_t need = c->v ? MAX(*n, c->at + c->n) : c->at;
    *v = realloc(*v, need + 1);
    if (need > *n)
        memset(*v + *n, 0, need - *n);
    *n = need;
    if (c->v)
        memcpy(*v + c->at, c->v, c->n);
}

static inline void vfs_synced(int inode)
{
    struct inode *f = &vfs.inode[inode];
    for (size_t i = 0; i < f->n_changes; i++) {
        image_write(&f->synced, &f->n_synced, &f->change[i]);
        free(f->change[i].v);
    }
    f->n_changes = 0;
}

static inline void vfs_folder_synced(void)
{
    for (int i = 0; i < vfs.n_names; i++)
        vfs.name[i].synced = vfs.name[i].now;
}

static inline void vfs_reset(void)
{
    sqlite3_vfs *real = vfs.real;
    for (int i = 0; i < vfs.n_inodes; i++) {
        for (size_t k = 0; k < vfs.inode[i].n_changes; k++)
            free(vfs.inode[i].change[k].v);
        free(vfs.inode[i].change);
        free(vfs.inode[i].synced);
    }
    memset(&vfs, 0, sizeof vfs);
    vfs.real = real;
}

/* One state of an inode behind the cut. */
static inline uint8_t *inode_after_cut(const struct inode *f, size_t *n_out)
{
    uint8_t *v = malloc(f->n_synced + 1);
    size_t n = f->n_synced;
    if (n)
        memcpy(v, f->synced, n);
    for (size_t i = 0; i < f->n_changes; i++) {
        const struct change *c = &f->change[i];
        if (!c->v) {
            if (rand() % 2)
                image_write(&v, &n, c);
            continue;
        }
        int all = rand() % 4;            /* 0: nothing of it, 1: all; else each sector by itself */
        for (size_t at = c->at; at < c->at + c->n;) {
            size_t some = MIN(SECTOR - at % SECTOR, c->at + c->n - at);
            if (all == 1 || (all > 1 && rand() % 2))
                image_write(&v, &n, &(struct change){ .at = at, .n = some, .v = c->v + (at - c->at) });
            at += some;
        }
    }
    *n_out = n;
    return v;
}

/* Put one state behind the cut on disk. Every store must be closed. */
static inline void vfs_after_cut(void)
{
    for (int i = 0; i < vfs.n_names; i++) {
        const struct name *m = &vfs.name[i];
        int inode = rand() % 2 ? m->synced : m->now;
        size_t n = 0;
        unlink(m->path);
        if (inode < 0)
            continue;
        uint8_t *v = inode_after_cut(&vfs.inode[inode], &n);
        FILE *f = fopen(m->path, "wb");
        assert(f && fwrite(v, 1, n, f) == n);
        fclose(f);
        free(v);
    }
}

/* Begin again with what is on disk now, all of it synced. */
static inline void vfs_again_from_disk(void)
{
    struct name name[NAMES];
    int n = vfs.n_names;
    enum vfs_sync sync = vfs.sync;
    memcpy(name, vfs.name, sizeof name);
    vfs_reset();
    vfs.model = true;
    vfs.sync = sync;
    for (int i = 0; i < n; i++) {
        int k = vfs_name(name[i].path);
        FILE *f = fopen(name[i].path, "rb");
        if (!f)
            continue;
        struct inode *d = &vfs.inode[vfs.n_inodes];
        vfs.name[k].synced = vfs.name[k].now = vfs.n_inodes++;
        fseek(f, 0, SEEK_END);
        d->n_synced = (size_t)ftell(f);
        d->synced = malloc(d->n_synced + 1);
        rewind(f);
        size_t got = fread(d->synced, 1, d->n_synced, f);
        assert(got == d->n_synced);
        fclose(f);
    }
}

/* ---- the layer ---- */

/* Count an operation: 0 it may go on, else it fails. */
static inline int vfs_op(int error)
{
    if (vfs.dead)
        return error;
    vfs.n++;
    if (vfs.cut_at && vfs.n == vfs.cut_at) {
        vfs.dead = true;
        return error;
    }
    if (vfs.fail_at && (vfs.n == vfs.fail_at || (vfs.for_ever && vfs.n > vfs.fail_at))) {
        vfs.failed++;
        return vfs.full && error == SQLITE_IOERR_WRITE ? SQLITE_FULL : error;
    }
    return 0;
}

#define REAL(f) (((struct faulty *)(f))->real)

static inline int f_close(sqlite3_file *f)
{
    int rc = REAL(f)->pMethods ? REAL(f)->pMethods->xClose(REAL(f)) : 0;
    free(REAL(f));
    return rc;
}
static inline int f_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at)
{
    if (vfs.fail_read_at && ++vfs.n_reads == vfs.fail_read_at)
        return vfs.failed++, SQLITE_IOERR_READ;
    return REAL(f)->pMethods->xRead(REAL(f), p, n, at);
}
static inline int f_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
    struct faulty *x = (struct faulty *)f;
    bool was_dead = vfs.dead;
    int rc = vfs_op(SQLITE_IOERR_WRITE);
    if (rc) {
        if (vfs.dead && !was_dead)       /* the write in progress when the power goes may reach the disk, or a part of it */
            vfs_change(x->inode, (size_t)at, p, (size_t)n);
        return rc;
    }
    vfs_change(x->inode, (size_t)at, p, (size_t)n);
    return x->real->pMethods->xWrite(x->real, p, n, at);
}
static inline int f_truncate(sqlite3_file *f, sqlite3_int64 n)
{
    struct faulty *x = (struct faulty *)f;
    int rc = vfs_op(SQLITE_IOERR_TRUNCATE);
    if (rc)
        return rc;
    vfs_change(x->inode, (size_t)n, NULL, 0);
    return x->real->pMethods->xTruncate(x->real, n);
}
static inline int f_sync(sqlite3_file *f, int flags)
{
    struct faulty *x = (struct faulty *)f;
    int rc = vfs_op(SQLITE_IOERR_FSYNC);
    if (rc)
        return rc;
    if (vfs.model && vfs.sync != VFS_OFF) {
        vfs_synced(x->inode);
        if (x->journal) {
            vfs_folder_synced();
            x->journal = false;
        }
    }
    return x->real->pMethods->xSync(x->real, flags);
}
static inline int f_size(sqlite3_file *f, sqlite3_int64 *n) { return REAL(f)->pMethods->xFileSize(REAL(f), n); }
static inline int f_lock(sqlite3_file *f, int l) { return REAL(f)->pMethods->xLock(REAL(f), l); }
static inline int f_unlock(sqlite3_file *f, int l) { return REAL(f)->pMethods->xUnlock(REAL(f), l); }
static inline int f_reserved(sqlite3_file *f, int *r) { return REAL(f)->pMethods->xCheckReservedLock(REAL(f), r); }
static inline int f_control(sqlite3_file *f, int op, void *p) { return REAL(f)->pMethods->xFileControl(REAL(f), op, p); }
static inline int f_sector(sqlite3_file *f) { return REAL(f)->pMethods->xSectorSize(REAL(f)); }
static inline int f_device(sqlite3_file *f) { return REAL(f)->pMethods->xDeviceCharacteristics(REAL(f)); }

static inline int v_open(sqlite3_vfs *v, const char *path, sqlite3_file *f, int flags, int *out)
{
    static const sqlite3_io_methods methods = { 1, f_close, f_read, f_write, f_truncate, f_sync, f_size, f_lock, f_unlock, f_reserved, f_control, f_sector, f_device,
                                                0, 0, 0, 0, 0, 0 };
    struct faulty *x = (struct faulty *)f;
    (void)v;
    int exists = path && access(path, F_OK) == 0;
    x->base.pMethods = NULL;
    int rc = path && !exists && (flags & SQLITE_OPEN_CREATE) ? vfs_op(SQLITE_CANTOPEN) : 0;
    if (rc)
        return rc;
    x->real = calloc(1, (size_t)vfs.real->szOsFile);
    if (!x->real)
        return SQLITE_NOMEM;
    rc = vfs.real->xOpen(vfs.real, path, x->real, flags, out);
    if (rc) {
        free(x->real);
        return rc;
    }
    x->journal = false;
    if (vfs.model && path) {
        x->name = vfs_name(path);
        struct name *m = &vfs.name[x->name];
        if (m->now < 0 || !exists) {     /* (the store itself makes its file, empty) */
            assert(vfs.n_inodes < INODES);
            m->now = vfs.n_inodes++;
            x->journal = (flags & SQLITE_OPEN_MAIN_JOURNAL) != 0;
        }
        x->inode = m->now;
    }
    x->base.pMethods = &methods;
    return 0;
}

static inline int v_delete(sqlite3_vfs *v, const char *path, int sync_folder)
{
    (void)v;
    int rc = vfs_op(SQLITE_IOERR_DELETE);
    if (rc && !(vfs.late_delete && !vfs.dead))
        return rc;
    if (vfs.model) {
        vfs.name[vfs_name(path)].now = -1;
        if (sync_folder && vfs.sync == VFS_EXTRA)
            vfs_folder_synced();
    }
    int real = vfs.real->xDelete(vfs.real, path, sync_folder);
    return rc ? SQLITE_IOERR_DIR_FSYNC : real;
}

/* Make it SQLite's default. */
static inline void vfs_install(void)
{
    static sqlite3_vfs v;
    vfs.real = sqlite3_vfs_find(NULL);
    v = *vfs.real;
    v.iVersion = 1;
    v.szOsFile = sizeof(struct faulty);
    v.zName = "faulty";
    v.xOpen = v_open;
    v.xDelete = v_delete;
    int rc = sqlite3_vfs_register(&v, 1);
    assert(rc == SQLITE_OK);
}
