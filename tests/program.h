/* The real program under faults: ./longhand of the same build as a child. tests/faults.c stands in front of
 * its C library, and its database is the store of the rig (tests/store_rig.h).
 *
 *     program_open()                                     once; false: not with sanitizers, print SKIP
 *     faults_none(); faults->classes = ..; faults->at = 7;
 *     int status = program("work -q --threads 1")        or program_start, a signal, program_wait
 *     program_err()                                      its standard error
 *     program_close() */
#pragma once
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>

#include "tests/faults.h"
#include "tests/store_rig.h"

#define TINY "build/data/models/llama2-bf16"     /* some 20,000 tokens a second */
#define NO_PROGRAM "the sanitizers want the place in front of the C library for themselves"

static struct faults *faults;
/* instead of the files, where set: standard output and error of the next programs */
static int program_fd[3] = { -1, -1, -1 };
static bool program_new_space;           /* the next programs are each in a pid namespace of their own */
static char program_dir[4096], program_page[64], program_out[80], program_said[80];

static inline bool program_open(void)
{
    char so[4200];
    ssize_t n = readlink("/proc/self/exe", program_dir, sizeof program_dir - 1);
    assert(n > 0);
    program_dir[n] = 0;
    *strrchr(program_dir, '/') = 0;
    snprintf(so, sizeof so, "%s/faults.so", program_dir);
    if (access(so, R_OK))
        return false;
    strcpy(program_page,
           access("/dev/shm", W_OK) ? "/tmp/longhand-faults-XXXXXX" : "/dev/shm/longhand-faults-XXXXXX");
    int fd = mkstemp(program_page);
    assert(fd >= 0 && ftruncate(fd, sizeof *faults) == 0);
    faults = mmap(NULL, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert(faults != MAP_FAILED);
    close(fd);
    snprintf(program_out, sizeof program_out, "%s.out", program_page);
    snprintf(program_said, sizeof program_said, "%s.err", program_page);
    return true;
}

static inline void program_close(void)
{
    if (!faults)
        return;
    munmap(faults, sizeof *faults);
    unlink(program_page);
    unlink(program_out);
    unlink(program_said);
}

/* No faults from here on; counters at 0. */
static inline void faults_none(void) { memset(faults, 0, sizeof *faults); }

/* Start `file` with these words, split at blanks, at most 30. */
/* The program takes its default path, which is then rig_path. */
static bool program_uses_default_store;

static inline pid_t program_start_as(const char *file, const char *words)
{
    static char text[5000], preload[4200];
    char *argv[32] = { (char *)"longhand" }, *save = NULL;
    size_t n = 1;
    snprintf(text, sizeof text, "%s", words);
    for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        assert(n < 31);
        argv[n++] = w;
    }
    snprintf(preload, sizeof preload, "%s/faults.so", program_dir);
    fflush(stdout);
    pid_t pid = program_new_space ? (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0) : fork();
    if (pid)
        return pid;
    int out = program_fd[1] >= 0 ? program_fd[1] : open(program_out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int err = program_fd[2] >= 0 ? program_fd[2] : open(program_said, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (dup2(out, 1) < 0 || dup2(err, 2) < 0 ||
        setenv("LONGHAND_DB", program_uses_default_store ? "" : rig_path, 1) ||
        setenv("LD_PRELOAD", preload, 1) || setenv("LONGHAND_FAULTS", program_page, 1))
        _exit(127);
    close(out);
    close(err);
    execv(file, argv);
    _exit(127);
}

static inline pid_t program_start(const char *words)
{
    char file[4200];
    snprintf(file, sizeof file, "%s/longhand", program_dir);
    if (truncate(program_said, 0) && errno != ENOENT)
        abort();
    return program_start_as(file, words);
}

static inline int program_wait(pid_t pid)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        assert(errno == EINTR);
    return status;
}

/* Status as of waitpid. */
static inline int program(const char *words) { return program_wait(program_start(words)); }
static inline bool exited(int status, int code) { return WIFEXITED(status) && WEXITSTATUS(status) == code; }
static inline bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

/* The start of a file as text; the same memory each time. */
static inline const char *file_start(const char *path)
{
    static char text[2048];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = 0;
    if (f)
        fclose(f);
    return text;
}
static inline const char *program_err(void) { return file_start(program_said); }

static inline void copy_file(const char *to, const char *from)
{
    char *data;
    size_t n;
    struct err e;
    if (file_read(&data, &n, from, 1 << 28, &e))
        abort();
    FILE *f = fopen(to, "wb");
    assert(f && fwrite(data, 1, n, f) == n);
    fclose(f);
    free(data);
}

/* ---- jobs of the tiny model ---- */

struct text { int32_t *ids; size_t n; };

/* Tokens of a job now; ids NULL: it cannot be read. */
static inline struct text stored_text(struct store *s, int64_t job)
{
    struct text t = {0};
    struct err e = {0};
    if (store_tokens(s, job, 0, SIZE_MAX, &t.ids, &t.n, &e))
        printf("    %s\n", e.msg);
    return t;
}

/* Whether `t` is a beginning of `whole` with at least `least` tokens. */
static inline bool begins_with(const struct text *whole, const struct text *t, size_t least)
{
    return t->ids && t->n <= whole->n && t->n >= least &&
           memcmp(whole->ids, t->ids, t->n * sizeof *t->ids) == 0;
}

/* Queue n jobs of this many tokens by the program, into a store that may not be there yet. */
static inline void submit_tiny(size_t tokens, size_t n)
{
    char words[256];
    snprintf(words, sizeof words, "submit -m " TINY " -p the -n %zu -s 7 --ignore-eos --threads 1", tokens);
    for (size_t i = 0; i < n; i++)
        if (!exited(program(words), 0)) {
            printf("    %s\n", program_err());
            abort();
        }
}
#define WORK "work -q --threads 1 --max-attempts 0"

/* What an undisturbed run writes. */
static inline struct text undisturbed(size_t tokens)
{
    rig_new();
    faults_none();
    submit_tiny(tokens, 1);
    if (!exited(program(WORK), 0)) {
        printf("    %s\n", program_err());
        abort();
    }
    struct store *s = rig_open(STORE_READ);
    struct text t = stored_text(s, 1);
    assert(t.n == tokens);
    store_close(s);
    return t;
}
