/* A file layer under SQLite for tests: real files, with failures and power cuts.
 *
 * Failures. Every operation that changes the disk (create, write, sync, truncate, delete) has a number. The
 * operation fail_at fails, or all operations from fail_at on (for_ever), as disks do.
 *
 * Power cuts. At operation cut_at the machine is dead: every operation fails, and vfs_after_cut puts on the
 * disk one of the states in which a power cut could leave it (tests/disk.h). Folders are synced as SQLite's
 * unix layer does: with the first sync of a journal that SQLite created, and after a delete that asks for it.
 * synchronous=EXTRA asks for it; FULL does not. */
#pragma once
#include <sqlite3.h>

#include "tests/disk.h"

enum vfs_sync { VFS_EXTRA, VFS_FULL, VFS_OFF };      /* which syncs the model believes in */

static struct {
    sqlite3_vfs *real;
    int64_t n;                           /* operations so far */
    int64_t fail_at; bool for_ever, full, late_delete; int64_t failed;
    int64_t n_reads, fail_read_at;
    bool model;                          /* keep the states for vfs_after_cut */
    int64_t cut_at; bool dead;
    enum vfs_sync sync;
} vfs;

struct faulty { sqlite3_file base; int inode; bool journal; sqlite3_file *real; };

static inline void vfs_reset(void)
{
    sqlite3_vfs *real = vfs.real;
    disk_reset();
    memset(&vfs, 0, sizeof vfs);
    vfs.real = real;
}

static inline void vfs_change(int inode, size_t at, const void *p, size_t n)
{
    if (vfs.model)
        disk_change(inode, at, p, n);
}

/* Put one state after the cut on the real disk. Every store must be closed. */
static inline void vfs_after_cut(void) { disk_put(false, "", ""); }

/* Begin again with what is on disk now, all of it synced. */
static inline void vfs_again_from_disk(void)
{
    char path[NAMES][sizeof disk.name->path];
    int n = disk.n_names;
    enum vfs_sync sync = vfs.sync;
    for (int i = 0; i < n; i++)
        strcpy(path[i], disk.name[i].path);
    vfs_reset();
    vfs.model = true;
    vfs.sync = sync;
    for (int i = 0; i < n; i++)
        disk_take(path[i]);
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
        /* the write in progress when the power goes may reach the disk, or a part of it */
        if (vfs.dead && !was_dead)
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
        disk_sync(x->inode);
        if (x->journal) {
            disk_sync_folder(NULL);
            x->journal = false;
        }
    }
    return x->real->pMethods->xSync(x->real, flags);
}
static inline int f_size(sqlite3_file *f, sqlite3_int64 *n)
{
    return REAL(f)->pMethods->xFileSize(REAL(f), n);
}
static inline int f_lock(sqlite3_file *f, int l) { return REAL(f)->pMethods->xLock(REAL(f), l); }
static inline int f_unlock(sqlite3_file *f, int l) { return REAL(f)->pMethods->xUnlock(REAL(f), l); }
static inline int f_reserved(sqlite3_file *f, int *r)
{
    return REAL(f)->pMethods->xCheckReservedLock(REAL(f), r);
}
static inline int f_control(sqlite3_file *f, int op, void *p)
{
    return REAL(f)->pMethods->xFileControl(REAL(f), op, p);
}
static inline int f_sector(sqlite3_file *f) { return REAL(f)->pMethods->xSectorSize(REAL(f)); }
static inline int f_device(sqlite3_file *f) { return REAL(f)->pMethods->xDeviceCharacteristics(REAL(f)); }

static inline int v_open(sqlite3_vfs *v, const char *path, sqlite3_file *f, int flags, int *out)
{
    static const sqlite3_io_methods methods = { 1, f_close, f_read, f_write, f_truncate, f_sync, f_size,
                                                f_lock, f_unlock, f_reserved, f_control, f_sector, f_device,
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
        struct name *m = disk_name(path);
        if (disk_now(m) < 0 || !exists) {        /* (the store itself makes its file, empty) */
            disk_make(m, false);
            x->journal = (flags & SQLITE_OPEN_MAIN_JOURNAL) != 0;
        }
        x->inode = disk_now(m);
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
        disk_set_name(disk_name(path), -1);
        if (sync_folder && vfs.sync == VFS_EXTRA)
            disk_sync_folder(NULL);
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
