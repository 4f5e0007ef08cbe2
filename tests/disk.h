/* A model of a disk for power cuts: what was synced, what was changed since, and the states in which a power
 * cut could leave the real disk.
 *
 * Contents. For every file the model keeps the synced content and the writes since. After a cut, each sector
 * of 512 bytes has the synced content or that of any write since: writes are dropped, reordered and torn. The
 * length is the synced one or a later one.
 *
 * Names. For every name of a file or folder the model keeps the inode that it named when its folder was last
 * synced, and those since. After a cut the name stands for any of them: creates, unlinks and renames are lost
 * too, each by itself. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/base.h"

enum { SECTOR = 512, NAMES = 24, NAME_STATES = 8, INODES = 4096 };

struct change { size_t at, n; uint8_t *v; };         /* v NULL: truncated to `at` */
struct inode { uint8_t *synced; size_t n_synced; struct change *change; size_t n_changes; bool folder; };
/* state[]: the inodes that the name stood for, -1: none; the first is synced, the last is the present one */
struct name { char path[200]; int state[NAME_STATES], n_states; };

static struct { struct name name[NAMES]; int n_names; struct inode inode[INODES]; int n_inodes; } disk;

static inline void disk_reset(void)
{
    for (int i = 0; i < disk.n_inodes; i++) {
        for (size_t k = 0; k < disk.inode[i].n_changes; k++)
            free(disk.inode[i].change[k].v);
        free(disk.inode[i].change);
        free(disk.inode[i].synced);
    }
    memset(disk.inode, 0, (size_t)disk.n_inodes * sizeof *disk.inode);
    disk.n_names = disk.n_inodes = 0;
}

/* ---- names ---- */

static inline struct name *disk_name(const char *path)
{
    for (int i = 0; i < disk.n_names; i++)
        if (strcmp(disk.name[i].path, path) == 0)
            return &disk.name[i];
    assert(disk.n_names < NAMES && strlen(path) < sizeof disk.name->path);
    struct name *m = &disk.name[disk.n_names++];
    strcpy(m->path, path);
    m->state[0] = -1;
    m->n_states = 1;
    return m;
}

static inline int disk_now(const struct name *m) { return m->state[m->n_states - 1]; }

static inline void disk_set_name(struct name *m, int inode)
{
    if (m->n_states == NAME_STATES)      /* forget the oldest state after the synced one */
        memmove(m->state + 1, m->state + 2, (size_t)(--m->n_states - 1) * sizeof *m->state);
    m->state[m->n_states++] = inode;
}

/* A new empty file or folder of this name; its inode. */
static inline int disk_make(struct name *m, bool folder)
{
    assert(disk.n_inodes < INODES);
    disk.inode[disk.n_inodes].folder = folder;
    disk_set_name(m, disk.n_inodes);
    return disk.n_inodes++;
}

static inline void name_synced(struct name *m)
{
    m->state[0] = disk_now(m);
    m->n_states = 1;
}

/* The names in a folder are on the disk; NULL: in all. */
static inline void disk_sync_folder(const char *folder)
{
    size_t n = folder ? strlen(folder) : 0;
    for (int i = 0; i < disk.n_names; i++) {
        const char *p = disk.name[i].path;
        if (!folder || (strncmp(p, folder, n) == 0 && p[n] == '/' && !strchr(p + n + 1, '/')))
            name_synced(&disk.name[i]);
    }
}

/* ---- contents ---- */

static inline void disk_change(int inode, size_t at, const void *p, size_t n)
{
    struct inode *f = &disk.inode[inode];
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

static inline void disk_sync(int inode)
{
    struct inode *f = &disk.inode[inode];
    for (size_t i = 0; i < f->n_changes; i++) {
        image_write(&f->synced, &f->n_synced, &f->change[i]);
        free(f->change[i].v);
    }
    f->n_changes = 0;
}

/* ---- the real disk ---- */

/* The content of an inode in one state after a cut, or (`whole`) as it is now. */
static inline uint8_t *inode_image(const struct inode *f, bool whole, size_t *n_out)
{
    uint8_t *v = malloc(f->n_synced + 1);
    size_t n = f->n_synced;
    if (n)
        memcpy(v, f->synced, n);
    for (size_t i = 0; i < f->n_changes; i++) {
        const struct change *c = &f->change[i];
        if (!c->v) {
            if (whole || rand() % 2)
                image_write(&v, &n, c);
            continue;
        }
        int all = whole ? 1 : rand() % 4;        /* 0: nothing of it, 1: all; else each sector by itself */
        for (size_t at = c->at; at < c->at + c->n;) {
            size_t part = MIN(SECTOR - at % SECTOR, c->at + c->n - at);
            if (all == 1 || (all > 1 && rand() % 2))
                image_write(&v, &n, &(struct change){ .at = at, .n = part, .v = c->v + (at - c->at) });
            at += part;
        }
    }
    *n_out = n;
    return v;
}

/* Put the files on the real disk as they are now (`whole`) or in one state after a cut. The prefix `from` of
 * their paths becomes `to` (both "": unchanged). Every store must be closed. */
static inline void disk_put(bool whole, const char *from, const char *to)
{
    char path[400];
    size_t skip = strlen(from);
    for (int i = disk.n_names; i-- > 0;) {
        snprintf(path, sizeof path, "%s%s", to, disk.name[i].path + skip);
        if (unlink(path))
            rmdir(path);
    }
    for (int i = 0; i < disk.n_names; i++) {     /* a folder comes before what is in it */
        const struct name *m = &disk.name[i];
        int inode = whole ? disk_now(m) : m->state[rand() % m->n_states];
        size_t n = 0;
        assert(strncmp(m->path, from, skip) == 0);
        snprintf(path, sizeof path, "%s%s", to, m->path + skip);
        if (inode < 0)
            continue;
        if (disk.inode[inode].folder) {
            mkdir(path, 0700);
            continue;
        }
        FILE *f = fopen(path, "wb");
        if (!f)                          /* its folder is lost */
            continue;
        uint8_t *v = inode_image(&disk.inode[inode], whole, &n);
        size_t put = fwrite(v, 1, n, f);
        assert(put == n);
        fclose(f);
        free(v);
    }
}

/* Add a file of the real disk to the model, as synced. Returns its inode, or -1. */
static inline int disk_take(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        return -1;
    struct name *m = disk_name(path);
    int k = disk_make(m, false);
    struct inode *d = &disk.inode[k];
    fseek(f, 0, SEEK_END);
    d->n_synced = (size_t)ftell(f);
    d->synced = malloc(d->n_synced + 1);
    rewind(f);
    size_t got = fread(d->synced, 1, d->n_synced, f);
    assert(got == d->n_synced);
    fclose(f);
    name_synced(m);
    return k;
}
