/* Fuzz target: the file of a snapshot. Byte 0 of the input says which parts to make valid (1: checksums of
 * the pieces, 2: of the table, 4: of the header, 8: the file size); without that no input would pass the
 * checksums. Then follow the header, without the zeros at the end of its page, data and table. */
#include "kvmgr/snapshot.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* struct header of kvmgr/snapshot.c */
enum { SNAP_PAGE = 4096, SNAP_HEADER = 1248, SNAP_N_SECTIONS = 12, SNAP_FILE_BYTES = 256,
       SNAP_DATA_BYTES = 264, SNAP_N_PIECES = 272,
       SNAP_SECTION = 280, SNAP_SECTION_BYTES = 120, SNAP_NUMBERS = 96, SNAP_TABLE_CRC = 1240,
           SNAP_CRC = 1244, SNAP_DATA_MAX = 64 << 10 };

static uint64_t snap_get(const char *p, size_t n) { uint64_t v = 0; memcpy(&v, p, n); return v; }
static uint32_t snap_sum(const char *p, size_t n) { return (uint32_t)crc32_z(0, (const void *)p, n); }
static const char *snap_section(const char *file, size_t i)
{
    return file + SNAP_SECTION + i * SNAP_SECTION_BYTES;
}
static size_t snap_sections(const char *file)
{
    return (size_t)MIN(snap_get(file + SNAP_N_SECTIONS, 4), (uint64_t)SNAPSHOT_SECTIONS_MAX);
}

/* Makes the parts valid that the first byte names. Numbers in the header count as far as they stay inside the
 * file. */
static void snap_make_right(char *file, size_t size, unsigned what)
{
    if (what & 8) {
        uint64_t v = size;
        memcpy(file + SNAP_FILE_BYTES, &v, 8);
    }
    uint64_t data = snap_get(file + SNAP_DATA_BYTES, 8), pieces = snap_get(file + SNAP_N_PIECES, 8);
    if (data <= size - SNAP_PAGE && pieces <= (size - SNAP_PAGE - data) / 4) {
        char *table = file + SNAP_PAGE + data;
        for (size_t i = 0; what & 1 && i < snap_sections(file); i++) {
            const char *x = snap_section(file, i) + SNAP_NUMBERS;
            uint64_t at = snap_get(x, 8), n = snap_get(x + 8, 8), piece = snap_get(x + 16, 8);
            if (at > size || n > size - at || n > SNAPSHOT_PIECE || piece >= pieces)
                continue;
            uint32_t sum = snap_sum(file + at, n);
            memcpy(table + 4 * piece, &sum, 4);
        }
        uint32_t sum = snap_sum(table, 4 * pieces);
        if (what & 2)
            memcpy(file + SNAP_TABLE_CRC, &sum, 4);
    }
    uint32_t sum = snap_sum(file, SNAP_CRC);
    if (what & 4)
        memcpy(file + SNAP_CRC, &sum, 4);
}

static void snap_failed(const struct err *e)
{
    if (e->code != ERR_FAILED || !*e->msg)
        abort();
    for (const char *p = e->msg; *p; p++)
        if ((unsigned char)*p < 0x20 || (unsigned char)*p > 0x7e)
            abort();
}

static size_t snap_good;                     /* number of valid files, for a test */

/* The bytes read for each section are the bytes that the file has for it. */
static void snap_read_all(const struct snapshot *f, const char *file, size_t size)
{
    struct err e;
    const bool good = snapshot_check(f, NULL, &e) == 0;
    snap_good += good;
    if (!good)
        snap_failed(&e);
    for (size_t i = 0; i < snap_sections(file); i++) {
        const char *name = snap_section(file, i), *shape = name + SNAPSHOT_NAME_BYTES;
        size_t n = snapshot_size(f, name, shape), first = 0, at = (size_t)snap_get(name + SNAP_NUMBERS, 8);
        while (strcmp(snap_section(file, first), name) ||
               strcmp(snap_section(file, first) + SNAPSHOT_NAME_BYTES, shape))
            first++;
        if (at > size || n > size - at)
            abort();
        char *to = malloc(n + 1);
        const struct snapshot_part parts[] = { { to, n / 3 }, { to, 0 }, { to + n / 3, n - n / 3 } };
        int rc = snapshot_read(f, &(struct snapshot_section){ name, shape, parts, 3, NULL }, NULL, &e);
        if (rc)
            snap_failed(&e);
        if ((rc && good) || (rc == 0 && first == i && memcmp(to, file + at, n)))
            abort();
        free(to);
    }
}

static char snap_path[40];
static void snap_end(void) { unlink(snap_path); }

static int snap_file(void)
{
    static int fd = -1;
    if (fd < 0) {
        strcpy(snap_path,
               access("/dev/shm", W_OK) ? "/tmp/longhand-fuzz-XXXXXX" : "/dev/shm/longhand-fuzz-XXXXXX");
        fd = mkstemp(snap_path);
        if (fd < 0 || atexit(snap_end))
            abort();
    }
    return fd;
}

/* If the offsets above no longer match struct header, this fuzzer tests nothing. */
static void snap_check_layout(void)
{
    static char file[SNAP_PAGE + 100], again[SNAP_PAGE + 100];
    char bytes[5] = "right";
    struct snapshot_owner o;
    struct err e;
    memset(&o, 0, sizeof o);
    const struct snapshot_part part = { bytes, sizeof bytes };
    const struct snapshot_section s = { "kv", "bytes", &part, 1, NULL };
    int fd = snap_file();
    size_t size = (size_t)snapshot_bytes(&s, 1);
    if (ftruncate(fd, 0) || snapshot_write(fd, &o, &s, 1, NULL, &e) ||
        pread(fd, file, sizeof file, 0) != (ssize_t)size)
        abort();
    memcpy(again, file, sizeof file);
    memset(again + SNAP_FILE_BYTES, 0, 8), memset(again + SNAP_TABLE_CRC, 0, 8),
        memset(again + size - 4, 0, 4);
    snap_make_right(again, size, 15);
    if (memcmp(file, again, sizeof file))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static bool checked;
    struct snapshot *f;
    struct err e;
    if (n < 1 + SNAP_HEADER || n > SNAP_DATA_MAX)
        return 0;
    if (!checked)
        snap_check_layout();
    checked = true;
    size_t rest = n - 1 - SNAP_HEADER, size = SNAP_PAGE + rest;
    char *file = calloc(size, 1);
    memcpy(file, data + 1, SNAP_HEADER);
    memcpy(file + SNAP_PAGE, data + 1 + SNAP_HEADER, rest);
    snap_make_right(file, size, data[0]);
    int fd = snap_file();
    if (ftruncate(fd, 0) || pwrite(fd, file, size, 0) != (ssize_t)size)
        abort();
    if (snapshot_open(&f, snap_path, &e)) {
        if (f)
            abort();
        snap_failed(&e);
    } else {
        const struct snapshot_owner *o = snapshot_owner(f);
        if (memcmp(o, file + 16, sizeof *o) || strlen(o->fingerprint) >= sizeof o->fingerprint ||
            strlen(o->context) >= sizeof o->context)
            abort();
        snap_read_all(f, file, size);
        snapshot_close(f);
    }
    free(file);
    return 0;
}
