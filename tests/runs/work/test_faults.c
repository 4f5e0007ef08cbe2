/* Failing calls under the real program: every write, sync, create and delete, every read, every
 * allocation, once and permanently, and pipes that nobody reads. The program never crashes, and its exit
 * codes are documented. Everything that could be read before still exists. The text ends like that of an
 * undisturbed run. After a failed sync nothing more is written. Jobs have 20 tokens for failing
 * allocations, otherwise 200. Short: a part of the calls for each kind of failure; --long: every call. */
#include <glob.h>

#include "tests/store_check.h"
#include "tests/replay.h"

static bool long_run, can_run;
static struct text whole, second;         /* texts of the existing job, and of the job that a verb adds */
#define SECOND "-m " TINY " -p the -n 20 -s 8 --ignore-eos --threads 1"
/* Prepared stores. One queued job of 200 tokens; one of 20 tokens; one paused job of 20 tokens; two jobs
 * of 20 tokens. `start` is the store that the current test starts with. */
static struct prepared { char path[128]; size_t tokens; uint64_t hash; } queued, small, paused, two, *start;

/* step: the short test tries every step-th call */
struct failure { const char *name; unsigned classes; enum fault_what what; int error; int64_t times, step; };

static void restore_store(void)
{
    char journal[128];
    snprintf(journal, sizeof journal, "%s-journal", rig_path);
    unlink(journal);
    copy_file(rig_path, start->path);
}

static void arm(const struct failure *f, int64_t at)
{
    faults_none();
    faults->speed = 1000;                /* a checkpoint every 0.8 ms */
    faults->classes = f->classes;
    faults->what = f->what;
    faults->error = f->error;
    faults->times = f->times;
    faults->at = at;
}

/* Whether the exit code is documented (0 done, 1 failed, 2 usage or input, 75 interrupted) and a message
 * explains any but 0. */
static bool is_documented(int status)
{
    return WIFEXITED(status) && (WEXITSTATUS(status) == 0 || ((WEXITSTATUS(status) == 1 ||
        WEXITSTATUS(status) == 2 || WEXITSTATUS(status) == 75) && strlen(program_err()) > 10));
}

/* Whether the store is unchanged. */
static bool is_unchanged(void)
{
    char journal[128];
    snprintf(journal, sizeof journal, "%s-journal", rig_path);
    return access(journal, F_OK) && file_hash(rig_path) == start->hash;
}

/* Complete the jobs, whatever their state is, and check their texts. */
static void complete_jobs(const struct failure *f, int64_t at)
{
    struct err e = {0};
    struct store *s = rig_open(STORE_WRITE);
    CHECK(store_check(s, &e) == 0, "%s, call %" PRId64 ": %s", f->name, at, e.msg);
    int64_t jobs = rig_sql("SELECT max(id) FROM job");
    for (int64_t i = 1; i <= jobs; i++) {
        struct text t = stored_text(s, i);
        CHECK(begins_with(i > 1 ? &second : &whole, &t, 0), "%s, call %" PRId64, f->name, at);
        free(t.ids);
        enum job_state state = rig_state(s, i);
        if (state == JOB_FAILED || state == JOB_PAUSED)
            CHECK(store_change(s, CHANGE_RESUME, 0, &i, 1, NULL, &e) == 0, "%s", e.msg);
    }
    store_close(s);
    faults_none();
    int status = program(WORK);
    CHECK(exited(status, 0), "%s, call %" PRId64 ": %x %s", f->name, at, status, program_err());
    s = rig_open(STORE_READ);
    for (int64_t i = 1; i <= jobs; i++) {
        struct text t = stored_text(s, i);
        CHECK(rig_state(s, i) == JOB_DONE && t.n == start->tokens &&
                  begins_with(i > 1 ? &second : &whole, &t, t.n),
              "%s, call %" PRId64 ": %zu tokens", f->name, at, t.n);
        free(t.ids);
    }
    store_close(s);
}

/* Run `words` with this failure at every call, or every step-th. Returns how many calls failed. */
static int at_every_call(const struct failure *f, const char *words)
{
    /* the number of calls depends on the clock: try a few more after the first call that is not reached */
    int points = 0, missed = 0;
    for (int64_t at = 1; missed < (long_run ? 20 : 1) && !test_failed_; at += long_run ? 1 : f->step) {
        restore_store();
        arm(f, at);
        int status = program(words);
        const bool fired = faults->fired > 0;
        points += fired;
        missed += !fired;
        CHECK(is_documented(status), "%s: %s, call %" PRId64 ": status %x, said \"%s\"", words, f->name, at,
              status, program_err());
        CHECK(fired || exited(status, 0), "%x %s", status, program_err());
        CHECK(faults->journals_after == 0,
              "%s, call %" PRId64 ": %" PRId64 " transactions after a failed sync", f->name, at,
              (int64_t)faults->journals_after);
        if (fired && (at == 1 || !is_unchanged()))  /* an unchanged store needs no check */
            complete_jobs(f, at);
    }
    return points;
}

/* The same for each kind of failure. */
static void failing_calls(const struct failure *v, size_t n, struct prepared *with, const char *words,
                          int least)
{
    if (!can_run)
        SKIP(NO_PROGRAM);
    start = with;
    for (size_t i = 0; i < n; i++) {
        int points = at_every_call(&v[i], words);
        CHECK(points >= least, "%s: %d calls", v[i].name, points);
        printf("    %.20s: %s: %d calls failed\n", words, v[i].name, points);
        fflush(stdout);
    }
}

static void work_survives_failing_writes(void)
{
    static const struct failure v[] = {
        { "EIO once", CALL_CHANGES, FAULT_ERROR, EIO, 1, 7 },
        { "EIO for ever", CALL_CHANGES, FAULT_ERROR, EIO, INT64_MAX, 13 },
        { "ENOSPC once", CALL_WRITE | CALL_NAME, FAULT_ERROR, ENOSPC, 1, 17 },
        { "ENOSPC for ever", CALL_WRITE | CALL_NAME, FAULT_ERROR, ENOSPC, INT64_MAX, 19 },
        { "EINTR once", CALL_CHANGES, FAULT_ERROR, EINTR, 1, 23 },
        { "EINTR twenty times", CALL_CHANGES, FAULT_ERROR, EINTR, 20, 29 },
        { "short writes once", CALL_WRITE, FAULT_SHORT, 0, 1, 13 },
        { "short writes for ever", CALL_WRITE, FAULT_SHORT, 0, INT64_MAX, 29 },
        { "EIO from a sync", CALL_SYNC, FAULT_ERROR, EIO, 1, 2 },
    };
    failing_calls(v, sizeof v / sizeof *v, &queued, WORK, 4);
}

static void work_survives_failing_reads(void)
{
    static const struct failure v[] = {
        { "reading: EIO once", CALL_READ, FAULT_ERROR, EIO, 1, 17 },
        { "reading: EIO for ever", CALL_READ, FAULT_ERROR, EIO, INT64_MAX, 23 },
        { "reading: EINTR once", CALL_READ, FAULT_ERROR, EINTR, 1, 23 },
        { "reading: short once", CALL_READ, FAULT_SHORT, 0, 1, 23 },
        { "reading: short for ever", CALL_READ, FAULT_SHORT, 0, INT64_MAX, 47 },
    };
    failing_calls(v, sizeof v / sizeof *v, &queued, WORK, 2);
}

static void work_survives_missing_memory(void)
{
    static const struct failure v[] = {
        { "no memory once", CALL_MEMORY, FAULT_ERROR, ENOMEM, 1, 97 },
        { "no memory from there on", CALL_MEMORY, FAULT_ERROR, ENOMEM, INT64_MAX, 197 },
    };
    failing_calls(v, sizeof v / sizeof *v, &small, WORK, 4);
}

/* What fails the first job, such as a model that was only partly read, does not affect the second job. */
static void work_continues_after_a_failed_job(void)
{
    static const struct failure v[] = {
        { "reading: EIO once", CALL_READ, FAULT_ERROR, EIO, 1, 3 },
        { "no memory once", CALL_MEMORY, FAULT_ERROR, ENOMEM, 1, 61 },
    };
    failing_calls(v, sizeof v / sizeof *v, &two, WORK, 4);
}

/* Afterwards one or two jobs are queued; the first one always exists. */
static void submit_survives_failing_calls(void)
{
    static const struct failure v[] = {
        { "EIO once", CALL_CHANGES, FAULT_ERROR, EIO, 1, 3 },
        { "ENOSPC for ever", CALL_WRITE | CALL_NAME, FAULT_ERROR, ENOSPC, INT64_MAX, 5 },
        { "reading: EIO once", CALL_READ, FAULT_ERROR, EIO, 1, 13 },
        { "no memory once", CALL_MEMORY, FAULT_ERROR, ENOMEM, 1, 97 },
        { "no memory from there on", CALL_MEMORY, FAULT_ERROR, ENOMEM, INT64_MAX, 197 },
    };
    failing_calls(v, sizeof v / sizeof *v, &small, "submit " SECOND, 2);
}

/* `run` starts a new text or resumes a paused one. */
static void run_survives_failing_calls(void)
{
    static const struct failure v[] = {
        { "EIO once", CALL_CHANGES, FAULT_ERROR, EIO, 1, 11 },
        { "ENOSPC for ever", CALL_WRITE | CALL_NAME, FAULT_ERROR, ENOSPC, INT64_MAX, 23 },
        { "short writes for ever", CALL_WRITE, FAULT_SHORT, 0, INT64_MAX, 41 },
        { "reading: EIO once", CALL_READ, FAULT_ERROR, EIO, 1, 31 },
        { "no memory once", CALL_MEMORY, FAULT_ERROR, ENOMEM, 1, 211 },
        { "no memory from there on", CALL_MEMORY, FAULT_ERROR, ENOMEM, INT64_MAX, 331 },
    };
    failing_calls(v, sizeof v / sizeof *v, &small, "run " SECOND, 2);
    failing_calls(v, sizeof v / sizeof *v, &paused, "run --resume 1 --threads 1", 2);
}

static void resume_survives_failing_calls(void)
{
    static const struct failure v[] = {
        { "EIO once", CALL_CHANGES, FAULT_ERROR, EIO, 1, 3 },
        { "ENOSPC for ever", CALL_WRITE | CALL_NAME, FAULT_ERROR, ENOSPC, INT64_MAX, 5 },
        { "reading: EIO once", CALL_READ, FAULT_ERROR, EIO, 1, 13 },
        { "no memory once", CALL_MEMORY, FAULT_ERROR, ENOMEM, 1, 97 },
        { "no memory from there on", CALL_MEMORY, FAULT_ERROR, ENOMEM, INT64_MAX, 197 },
    };
    failing_calls(v, sizeof v / sizeof *v, &paused, "resume 1", 2);
}

static bool output_has(const char *words)
{
    char *p;
    size_t n;
    struct err e;
    if (file_read(&p, &n, program_out, 1 << 28, &e))
        return false;
    const bool has = memmem(p, n, words, strlen(words)) != NULL;
    free(p);
    return has;
}

/* Readers print the same bytes or fail. A report that cannot read the model says that it has no words. */
static void readers_survive_failing_calls(void)
{
    static const struct failure v[] = {
        { "EIO once", CALL_READ, FAULT_ERROR, EIO, 1, 11 },
        { "short reads for ever", CALL_READ, FAULT_SHORT, 0, INT64_MAX, 31 },
        { "no memory once", CALL_MEMORY, FAULT_ERROR, ENOMEM, 1, 83 },
        { "no memory from there on", CALL_MEMORY, FAULT_ERROR, ENOMEM, INT64_MAX, 211 },
    };
    static const char *const verbs[] = { "text 1", "text 1 --format ids", "list --json", "report 1",
                                         "report --json 1", "show 1", "export 1 --format jsonl" };
    uint64_t right;
    int points = 0;
    if (!can_run)
        SKIP(NO_PROGRAM);
    start = &queued;
    restore_store();
    faults_none();
    CHECK(exited(program(WORK), 0));
    for (size_t k = 0; k < sizeof verbs / sizeof *verbs; k++) {
        faults_none();
        CHECK(exited(program(verbs[k]), 0), "%s", program_err());
        right = file_hash(program_out);
        for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
            bool fired = true;
            for (int64_t at = 1; fired && !test_failed_; at += long_run ? 1 : v[i].step) {
                arm(&v[i], at);
                faults->speed = 0;
                int status = program(verbs[k]);
                fired = faults->fired > 0;
                points += fired;
                CHECK(is_documented(status), "%s: %s, call %" PRId64 ": status %x, said \"%s\"", verbs[k],
                      v[i].name, at, status, program_err());
                CHECK(!exited(status, 0) || file_hash(program_out) == right ||
                          (strncmp(verbs[k], "report", 6) == 0 &&
                           output_has("model's folder cannot be read any more")),
                      "%s: %s, call %" PRId64 ": %s", verbs[k], v[i].name, at, file_start(program_out));
            }
        }
    }
    CHECK(points > 100, "%d", points);
    printf("    %d calls failed\n", points);
}

/* Count and delete the temporary files that an export has left beside its output. */
static size_t count_temporary_files(const char *out)
{
    char pattern[160];
    glob_t g;
    snprintf(pattern, sizeof pattern, "%s.part-*", out);
    const size_t n = glob(pattern, 0, NULL, &g) == 0 ? g.gl_pathc : 0;
    for (size_t i = 0; i < n; i++)
        unlink(g.gl_pathv[i]);
    globfree(&g);
    return n;
}

/* An export leaves either the old file or the complete new file. A message names a remaining temporary
 * file, unless its deletion failed. */
static void exported_files_survive_failing_calls(void)
{
    static const struct failure v[] = {
        { "EIO once", CALL_CHANGES, FAULT_ERROR, EIO, 1, 1 },
        { "ENOSPC for ever", CALL_WRITE | CALL_NAME, FAULT_ERROR, ENOSPC, INT64_MAX, 1 },
        { "short writes for ever", CALL_WRITE, FAULT_SHORT, 0, INT64_MAX, 1 },
        { "EINTR once", CALL_CHANGES, FAULT_ERROR, EINTR, 1, 1 },
        { "no memory once", CALL_MEMORY, FAULT_ERROR, ENOMEM, 1, 101 },
        { "no memory from there on", CALL_MEMORY, FAULT_ERROR, ENOMEM, INT64_MAX, 211 },
    };
    char out[128], words[200], right[2048];
    int points = 0, replaced = 0;
    if (!can_run)
        SKIP(NO_PROGRAM);
    start = &queued;
    restore_store();
    faults_none();
    snprintf(out, sizeof out, "%s.exported", program_page);
    snprintf(words, sizeof words, "export 1 --format text -o %s --force", out);
    CHECK(exited(program(WORK), 0) && exited(program(words), 0), "%s", program_err());
    strcpy(right, file_start(out));
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        bool fired = true;
        for (int64_t at = 1; fired && !test_failed_; at += long_run ? 1 : v[i].step) {
            FILE *f = fopen(out, "w");
            fputs("old", f);
            fclose(f);
            arm(&v[i], at);
            int status = program(words);
            fired = faults->fired > 0;
            points += fired;
            bool is_new = strcmp(file_start(out), right) == 0;
            replaced += fired && is_new;
            CHECK(is_documented(status) &&
                      (is_new || (strcmp(file_start(out), "old") == 0 && !exited(status, 0))),
                  "%s, call %" PRId64 ": status %x, said \"%s\", the file has \"%s\"", v[i].name, at, status,
                  program_err(), file_start(out));
            CHECK(!count_temporary_files(out) || strstr(program_err(), ".part-") ||
                      (v[i].times > 1 && v[i].classes & CALL_NAME),
                  "%s, call %" PRId64 ": said \"%s\"", v[i].name, at, program_err());
        }
    }
    unlink(out);
    CHECK(points > 30 && replaced > 0 && strlen(right) > 200, "%d, %d", points, replaced);
    printf("    %d calls failed, the file was replaced in spite of %d\n", points, replaced);
}

static void closed_pipes_lose_nothing(void)
{
    static const struct { const char *words; int fd, want; } cases[] = {
        { "run --resume 1 --threads 1", 1, 75 }, { "run --resume 1 --threads 1 --format ids -q", 1, 75 },
        { "run --resume 1 --threads 1 --progress json", 2, 0 },
        { "work --threads 1 --progress json", 2, 0 }, { "work --threads 1", 1, 0 },
    };
    static const struct failure f = { "a closed pipe", 0, FAULT_ERROR, 0, 0, 0 };
    if (!can_run)
        SKIP(NO_PROGRAM);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int fd[2];
        CHECK(pipe(fd) == 0);
        close(fd[0]);
        start = &queued;
        restore_store();
        faults_none();
        program_fd[cases[i].fd] = fd[1];
        int status = program(cases[i].words);
        program_fd[cases[i].fd] = -1;
        close(fd[1]);
        CHECK(exited(status, cases[i].want), "%s: %x %s", cases[i].words, status, program_err());
        CHECK(cases[i].fd != 2 || cases[i].want != 0 ||
              rig_sql("SELECT count(*) FROM job WHERE state = 'done'") == 1);
        CHECK(cases[i].want != 75 || strstr(program_err(), "continue") || strstr(cases[i].words, "-q"), "%s",
              program_err());
        complete_jobs(&f, (int64_t)i);
    }
}

/* Copy the current store. */
static void copy_store(struct prepared *b, const char *name, size_t tokens)
{
    snprintf(b->path, sizeof b->path, "%s.%s", program_page, name);
    copy_file(b->path, rig_path);
    b->tokens = tokens;
    b->hash = file_hash(b->path);
}

int main(int argc, char **argv)
{
    long_run = argc > 1 && strcmp(argv[1], "--long") == 0;
    can_run = program_open();
    if (can_run) {
        whole = undisturbed(200);
        rig_new();
        if (!exited(program("submit " SECOND), 0) || !exited(program(WORK), 0))
            abort();
        struct store *s = rig_open(STORE_READ);
        second = stored_text(s, 1);
        store_close(s);
        rig_new();
        submit_tiny(200, 1);
        copy_store(&queued, "queued", 200);
        rig_new();
        submit_tiny(20, 1);
        copy_store(&small, "small", 20);
        if (!exited(program("submit " SECOND), 0))
            abort();
        copy_store(&two, "two", 20);
        rig_new();
        submit_tiny(20, 1);
        if (!exited(program("pause 1"), 0))
            abort();
        copy_store(&paused, "paused", 20);
    }
    RUN(work_survives_failing_writes);
    RUN(work_survives_failing_reads);
    RUN(work_survives_missing_memory);
    RUN(work_continues_after_a_failed_job);
    RUN(submit_survives_failing_calls);
    RUN(run_survives_failing_calls);
    RUN(resume_survives_failing_calls);
    RUN(readers_survive_failing_calls);
    RUN(exported_files_survive_failing_calls);
    RUN(closed_pipes_lose_nothing);
    free(whole.ids);
    free(second.ids);
    for (struct prepared *const *b = (struct prepared *[]){ &queued, &small, &paused, &two, NULL }; *b; b++)
        if ((*b)->path[0])
            unlink((*b)->path);
    rig_end();
    program_close();
    return test_end();
}
