/* Power cuts under the real program. While jobs are queued, worked on, removed and extended, from the
 * first start on, a log records every change of the disk, call by call. Then the disk is rebuilt in states
 * in which a power cut at any call could have left it: unsynced writes are dropped, reordered and torn;
 * created and deleted files and folders are there or not. Whatever another process could read before the
 * cut must still exist. The same cuts on a disk that ignores the syncs of synchronous=EXTRA, or all syncs,
 * show that the test detects losses. Short: 1,500 cuts and 2 x 300; --long: 12,000 and 2 x 1,000. */
#include "tests/store_check.h"
#include "tests/replay.h"

static bool long_run;

enum { JOBS = 3 };
/* by job number */
struct seen { bool there[JOBS + 1], gone[JOBS + 1]; size_t tokens[JOBS + 1]; };

static struct log recorded;
static struct seen *acked;               /* [recorded.n], after each record */
static struct text final_text[JOBS + 1];
static char from[96], scratch[96], store_there[128];

/* Read the jobs of a database file. */
static void read_jobs(struct seen *v, const char *path)
{
    struct store *s;
    struct err e = {0};
    if (store_open(&s, path, &(struct store_options){ .mode = STORE_READ }, &e))
        return;                          /* an empty file */
    for (int64_t job = 1; job <= JOBS; job++) {
        struct job_list l;
        CHECK(store_jobs(s, &job, 1, &l, &e) == 0, "%s", e.msg);
        v->gone[job] = v->gone[job] || (v->there[job] && !l.n);
        v->there[job] = l.n > 0;
        v->tokens[job] = l.n ? l.v[0].tokens : 0;
        job_list_free(&l);
    }
    store_close(s);
}

static void run_command(const char *words)
{
    int status = program(words);
    CHECK(exited(status, 0), "%s: %x %s", words, status, program_err());
}

/* Record the session, and the jobs that could be read after each record. */
static void record_session(void)
{
    struct seen now = {0};
    rig_new();
    strcpy(from, rig_dir);
    snprintf(scratch, sizeof scratch, "%s.cut", program_page);
    snprintf(store_there, sizeof store_there, "%s/a/longhand/longhand.db", scratch);
    mkdir(scratch, 0700);
    /* the default path, whose folders the program makes */
    snprintf(rig_path, sizeof rig_path, "%s/a", rig_dir);
    setenv("XDG_STATE_HOME", rig_path, 1);
    snprintf(rig_path, sizeof rig_path, "%s/a/longhand/longhand.db", rig_dir);
    program_uses_default_store = true;
    faults_none();
    faults->speed = 1000;                /* a checkpoint every 0.8 ms */
    log_begin();
    submit_tiny(200, 1);
    run_command(WORK);
    submit_tiny(60, 2);
    run_command(WORK " --max-jobs 1");
    run_command("remove 3 -q");
    run_command("extend 1 --tokens +40");
    run_command(WORK);
    log_end(&recorded);
    struct store *s = rig_open(STORE_READ);
    for (int64_t job = 1; job < JOBS; job++)
        final_text[job] = stored_text(s, job);
    CHECK(final_text[1].n == 240 && final_text[2].n == 60);
    store_close(s);
    acked = calloc(recorded.n, sizeof *acked);
    disk_reset();
    for (size_t i = 0; i < recorded.n; i++) {
        play(&recorded, i, BELIEVE_ALL);
        if (readable_at(&recorded, i)) {
            disk_put(true, from, scratch);
            read_jobs(&now, store_there);
        }
        acked[i] = now;
    }
    CHECK(now.tokens[1] == 240 && now.tokens[2] == 60 && now.gone[3]);
}

/* Check the disk after a cut: NULL, or a description of the loss. */
static const char *lost(const struct seen *a)
{
    static char why[1200];
    struct store *s;
    struct err e = {0};
    const char *bad = NULL;
    if (store_open(&s, store_there, &(struct store_options){ .mode = STORE_CREATE, .make_folders = true },
                   &e) || store_check(s, &e)) {
        snprintf(why, sizeof why, "%s", e.msg);
        store_close(s);
        return why;
    }
    for (int64_t job = 1; job <= JOBS && !bad; job++) {
        struct job_list l;
        if (store_jobs(s, &job, 1, &l, &e))
            bad = "the jobs cannot be read";
        else if (a->there[job] && !l.n && job != 3)
            bad = "a job is lost";
        else if (a->gone[job] && l.n)
            bad = "a removed job is back";
        else if (l.n && job != 3) {
            struct text t = stored_text(s, job);
            if (!begins_with(&final_text[job], &t, a->tokens[job]))
                bad = "acknowledged tokens are lost";
            free(t.ids);
        }
        job_list_free(&l);
    }
    store_close(s);
    return bad;
}

/* Make `want` cuts, spread over the session. Returns how many lost something. */
static int cuts(enum believe b, int want, char *first, size_t size)
{
    int n_lost = 0, done = 0;
    first[0] = 0;
    srand(23);
    disk_reset();
    for (size_t i = 0; i < recorded.n; i++) {
        play(&recorded, i, b);
        for (; done < (int)((double)(i + 1) / (double)recorded.n * want); done++) {
            disk_put(false, from, scratch);
            const char *bad = lost(&acked[i]);
            n_lost += bad != NULL;
            if (bad && !first[0])
                snprintf(first, size, "change %zu of %zu: %s", i, recorded.n, bad);
        }
    }
    disk_reset();
    return n_lost;
}

static void power_cuts_lose_nothing_readable(void)
{
    const int want = long_run ? 12000 : 1500;
    char first[1300];
    if (!program_open())
        SKIP(NO_PROGRAM);
    record_session();
    int n = cuts(BELIEVE_ALL, want, first, sizeof first);
    CHECK(n == 0, "%d of %d: %s", n, want, first);
    printf("    %d cuts over %zu changes\n", want, recorded.n);
}

static void power_cuts_with_weaker_syncs_lose_data(void)
{
    const int want = long_run ? 1000 : 300;
    char full[1300], none[1300];
    if (!recorded.n)
        SKIP(NO_PROGRAM);
    int n_full = cuts(BELIEVE_FULL, want, full, sizeof full),
        n_none = cuts(BELIEVE_NONE, want, none, sizeof none);
    CHECK(n_full > want / 100 && n_none > want / 10, "%d and %d of %d", n_full, n_none, want);
    printf("    of %d cuts synchronous=FULL loses %d (%s), OFF %d (%s)\n", want, n_full, full, n_none, none);
}

int main(int argc, char **argv)
{
    char cmd[128];
    long_run = argc > 1 && strcmp(argv[1], "--long") == 0;
    RUN(power_cuts_lose_nothing_readable);
    RUN(power_cuts_with_weaker_syncs_lose_data);
    for (int i = 1; i <= JOBS; i++)
        free(final_text[i].ids);
    free(acked);
    log_free(&recorded);
    snprintf(cmd, sizeof cmd, "rm -rf '%s'", scratch);
    if (scratch[0] && system(cmd))
        perror(cmd);
    rig_end();
    program_close();
    return test_end();
}
