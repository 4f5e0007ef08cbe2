/* What a test tells tests/faults.c, a library that stands in front of the C library of a program under test (LD_PRELOAD), and what it
 * hears from it: one page of shared memory, a file named by $LONGHAND_FAULTS. The page outlives a killed program.
 *
 * Calls of the chosen classes are counted over all threads and processes that see the page. At number `at` (and the `times` - 1
 * behind it) `what` happens. In `log` the library writes what changed under the folder `root`, in order, for tests/test_power.c. */
#pragma once
#include <stdint.h>

enum fault_class {
    CALL_WRITE = 1,                      /* write, pwrite64, ftruncate */
    CALL_SYNC = 2,                       /* fsync, fdatasync */
    CALL_NAME = 4,                       /* open that makes a file, unlink, rename, mkdir, link; fchmod, fchown */
    CALL_READ = 8,                       /* read, pread64 */
    CALL_MEMORY = 16,                    /* malloc and its kin, anonymous mmap */
    CALL_CHANGES = CALL_WRITE | CALL_SYNC | CALL_NAME,
};
enum fault_what {
    FAULT_KILL,                          /* SIGKILL in place of the call */
    FAULT_KILL_BEHIND,                   /* the call, then SIGKILL */
    FAULT_KILL_HALF,                     /* half of what a write is to write, then SIGKILL; other calls as BEHIND */
    FAULT_ERROR,                         /* the call fails with `error` */
    FAULT_SHORT,                         /* a read or write does one half (at least a byte) and says so */
};

struct faults {
    /* set by the test */
    unsigned classes;
    enum fault_what what;
    int error;
    int64_t at, times;                   /* at 0: never */
    double speed;                        /* of the clocks that only go forwards, waits included; 0: as they are */
    _Atomic double wall;                 /* seconds that the wall clock is ahead */
    char root[128], log[160];
    /* set by the library */
    _Atomic int64_t n, fired;
    /* syncs, and transactions begun (their journals), by a process in which the sync of a */
    _Atomic int64_t syncs_behind;
    _Atomic int64_t journals_behind;     /* file had failed */
};

/* Records of the log: this, then the path (n_path bytes), then n bytes written. */
enum record_kind { REC_CREATE, REC_WRITE, REC_TRUNCATE, REC_SYNC, REC_UNLINK, REC_RENAME, REC_MKDIR,
                   REC_UNLOCK };
/* RENAME: `n` bytes are the new path; SYNC of a folder too */
struct record { uint32_t kind, n_path; int64_t at; uint64_t n; };
