/* What a test tells tests/faults.c, and what the library reports back. tests/faults.c is a library that a
 * program under test preloads before the C library (LD_PRELOAD). Both share one page of memory, a file
 * named by $LONGHAND_FAULTS. The page outlives a killed program.
 *
 * The library counts the calls of the chosen classes over all threads and processes that see the page. At
 * call number `at` and the `times` - 1 calls after it, `what` happens. The library writes to `log` what
 * changed under the folder `root`, in order, for tests/runs/work/test_power.c. */
#pragma once
#include <stdint.h>

enum fault_class {
    CALL_WRITE = 1,                      /* write, pwrite64, ftruncate */
    CALL_SYNC = 2,                       /* fsync, fdatasync */
    CALL_NAME = 4,                       /* creating open, unlink, rename, mkdir, link; fchmod, fchown */
    CALL_READ = 8,                       /* read, pread64 */
    CALL_MEMORY = 16,                    /* malloc and its relatives, anonymous mmap */
    CALL_CHANGES = CALL_WRITE | CALL_SYNC | CALL_NAME,
};
enum fault_what {
    FAULT_KILL,                          /* SIGKILL in place of the call */
    FAULT_KILL_AFTER,                   /* the call, then SIGKILL */
    FAULT_KILL_HALF,                     /* half of a write, then SIGKILL; other calls as KILL_AFTER */
    FAULT_ERROR,                         /* the call fails with `error` */
    FAULT_SHORT,                         /* a read or write transfers half of its bytes, at least one */
};

struct faults {
    /* set by the test */
    unsigned classes;
    enum fault_what what;
    int error;
    int64_t at, times;                   /* at 0: never */
    double speed;                        /* of the monotonic clocks and of waits; 0: unchanged */
    _Atomic double wall;                 /* offset of the wall clock in seconds */
    char root[128], log[160];
    /* set by the library */
    _Atomic int64_t n, fired;
    /* syncs, and begun transactions (their journals), of processes whose sync of a file had failed */
    _Atomic int64_t syncs_behind;
    _Atomic int64_t journals_after;     /* file had failed */
};

/* Records of the log: this, then the path (n_path bytes), then n bytes written. */
enum record_kind { REC_CREATE, REC_WRITE, REC_TRUNCATE, REC_SYNC, REC_UNLINK, REC_RENAME, REC_MKDIR,
                   REC_UNLOCK };
/* RENAME: `n` bytes are the new path; SYNC of a folder too */
struct record { uint32_t kind, n_path; int64_t at; uint64_t n; };
