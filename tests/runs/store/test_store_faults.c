/* Failing disks and power cuts under the store. Whatever fails, the remaining file is undamaged and has
 * everything that was acknowledged. Short: every operation in the life of a store fails once,
 * every fourth operation in five other ways; 900 power cuts. --long: every operation in all ways; 12,000
 * cuts. */
#include "runs/work/checkpoint.h"
#include "tests/store_check.h"
#include "tests/runs/store/faulty_vfs.h"
#include "tests/store_rig.h"

static bool long_run;

/* ---- out of memory: this program's own malloc replaces that of the C library ---- */

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__clang__)
#define OWN_MALLOC 1
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
static bool memory_armed, memory_for_ever;
static int64_t memory_n, memory_fail_at, memory_failed;

static bool no_memory(void)
{
    if (!memory_armed)
        return false;
    memory_n++;
    bool fail = memory_n == memory_fail_at || (memory_for_ever && memory_n > memory_fail_at);
    memory_failed += fail;
    return fail;
}

void *malloc(size_t n) { return no_memory() ? NULL : __libc_malloc(n); }
void *calloc(size_t n, size_t size) { return no_memory() ? NULL : __libc_calloc(n, size); }
void *realloc(void *p, size_t n) { return no_memory() ? NULL : __libc_realloc(p, n); }
#endif

/* What a store has acknowledged so far. */
struct acked { bool submitted, batch, done, removed, extended; size_t tokens; };

static int32_t added_ids[3] = { 5, 6, 7 };
static int32_t text[700];                /* of job 1 */

/* Create a store, submit, work, remove, extend, until something fails. The store stays open in *s. */
static int life(struct store **s, struct acked *a, struct err *e)
{
    static const size_t steps[] = { 1, 300, 250, 100 };
    struct job_spec j = rig_job(700), two[2] = { rig_job(10), rig_job(10) };
    struct claim c;
    int64_t ids[2], w;
    int32_t *tokens;
    *a = (struct acked){0};
    if (store_open(s, rig_path, &(struct store_options){ .mode = STORE_CREATE, .busy_seconds = 5 }, e) ||
        store_submit(*s, NULL, &j, 1, ids, NULL, NULL, e))
        return -1;
    a->submitted = true;
    two[0].custom_id = "a";
    two[1].custom_id = "b";
    if (store_submit(*s, "pair", two, 2, ids, NULL, NULL, e))
        return -1;
    a->batch = true;
    if (store_worker_start(*s, &w, e) || store_beat(*s, w, e) || store_claim(*s,
        &(struct claim_request){ .worker = w,
        .job = 1 }, &c, e) != 1)
        return -1;
    if (store_begin(*s, &c, "cpu-1", "fp", false, &tokens, e))
        return -1;
    free(tokens);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        struct metric m = { .source = "", .name = "rounds", .value = 1 };
        if (store_commit(*s, &c, &(struct commit){ .ids = text + c.end.tokens, .n = steps[i], .metrics = &m,
            .n_metrics = 1 }, e))
            return -1;
        a->tokens = c.end.tokens;
    }
    struct job_end end = { .state = JOB_DONE, .finish_reason = "length" };
    if (store_commit(*s, &c, &(struct commit){ .ids = text + c.end.tokens, .n = 49, .end = &end }, e))
        return -1;
    a->tokens = 700;
    a->done = true;
    if (store_change(*s, CHANGE_REMOVE, 0, &ids[0], 1, NULL, e))
        return -1;
    a->removed = true;
    if (store_extend(*s, 1, &(struct edit_spec){ .at = 700, .wanted = 900, .paused = true,
                     .add = { .ids = added_ids, .n = 3, .text = "x", .bytes = 1 } }, e))
        return -1;
    a->extended = true;
    return store_worker_end(*s, w, e);
}

static bool text_holds(struct store *s, size_t n)
{
    int32_t *ids;
    size_t got;
    struct err e;
    bool ok = store_tokens(s, 1, 0, SIZE_MAX, &ids, &got, &e) == 0;
    if (ok)
        ok = got == n && memcmp(ids, text, MIN(n, 700u) * sizeof *ids) == 0 &&
             (n <= 700 || (n == 703 && memcmp(ids + 700, added_ids, sizeof added_ids) == 0));
    free(ids);
    return ok;
}

/* Check that the remaining file is undamaged and has everything that was acknowledged: NULL, or the
 * reason. */
static const char *check_file(const struct acked *a, bool go_on)
{
    static char why[1200];
    struct store *s;
    struct err e = {0};
    struct job_list l;
    const char *bad = NULL;
    if (store_open(&s, rig_path, &(struct store_options){ .mode = STORE_CREATE, .busy_seconds = 5 }, &e) ||
        store_check(s, &e)) {
        snprintf(why, sizeof why, "%s", e.msg);
        store_close(s);
        return why;
    }
    if (store_jobs(s, (int64_t[]){ 1, 2, 3 }, 3, &l, &e)) {
        store_close(s);
        return "the jobs cannot be read";
    }
    size_t first = l.n && l.v[0].id == 1, others = l.n - first;
    if (a->submitted && !first)
        bad = "a submitted job is lost";
    else if (a->batch && others != 2 && !(a->done && others == 1))
        bad = "a batch is lost, or half of it";
    else if (!a->batch && others != 0 && others != 2)
        bad = "half a batch is there";
    else if (a->removed && others != 1)
        bad = "a removed job is back";
    else if (first && (l.v[0].tokens < a->tokens || (a->extended && l.v[0].tokens != 703) ||
                       !text_holds(s, l.v[0].tokens)))
        bad = "acknowledged tokens are lost";
    else if (first && a->done && l.v[0].state != JOB_DONE && l.v[0].state != JOB_PAUSED)
        bad = "a finished job is not";
    if (!bad && go_on && first && l.v[0].tokens < 700) {     /* and work on the text can continue */
        int64_t w = rig_worker(s);
        struct claim c;
        rig_sql("UPDATE worker SET start = start - 1 WHERE id <> (SELECT max(id) FROM worker)");
        if (rig_claim(s, w, 1, &c) != 1 || rig_commit(s, &c, 700 - c.end.tokens,
            &(struct job_end){ .state = JOB_DONE }, &e) || !text_holds(s, 700))
            bad = "the text cannot be gone on with";
    }
    job_list_free(&l);
    store_close(s);
    return bad;
}

static void the_file_survives_any_failed_write(void)
{
    static const char *const ways[] = { "once", "for ever", "disk full once", "disk full for ever",
                                        "delete done but not synced", "read" };
    struct acked a;
    struct err e;
    int points = 0, refusals = 0, full = 0;
    for (int way = 0; way < 6; way++) {
        int64_t n = 0;
        for (bool fired = true; fired && !test_failed_;) {
            struct store *s = NULL;
            n += long_run || way == 0 || n < 20 ? 1 : 4;
            rig_new();
            vfs_reset();
            if (way == 5)
                vfs.fail_read_at = n;
            else
                vfs.fail_at = n;
            vfs.for_ever = way == 1 || way == 3;
            vfs.full = way == 2 || way == 3;
            vfs.late_delete = way == 4;
            e = (struct err){0};
            int rc = life(&s, &a, &e);
            fired = vfs.failed > 0;
            CHECK(!fired || rc == -1 || way == 5, "%s %" PRId64 ": the failure was not seen", ways[way], n);
            CHECK(fired || rc == 0, "%s %" PRId64 ": %s", ways[way], n, e.msg);
            if (strstr(e.msg, "the disk is full")) {     /* in a statement, or in the commit */
                CHECK(!strstr(e.msg, "reading"), "operation %" PRId64 ": %s", n, e.msg);
                full++;
            }
            if (s && rc && way < 5) {    /* this connection must write no more */
                int64_t before = vfs.n;
                struct err again = {0};
                CHECK(store_change(s, CHANGE_PAUSE, 0, (int64_t[]){ 1 }, 1, NULL, &again) == -1 &&
                      strstr(again.msg,
                    "nothing more is written"), "%s %" PRId64 ": %s", ways[way], n, again.msg);
                CHECK(vfs.n == before);
                refusals++;
            }
            store_close(s);
            int64_t fail_at = vfs.fail_at, fail_read_at = vfs.fail_read_at;
            vfs.fail_at = vfs.fail_read_at = 0;
            const char *bad = check_file(&a, true);
            CHECK(!bad, "%s, operation %" PRId64 ": %s", ways[way], fail_at + fail_read_at, bad);
            points += fired;
        }
        CHECK(n > (way == 5 ? 20 : 200), "%s: only %" PRId64 " operations", ways[way], n);
    }
    vfs_reset();
    CHECK(refusals > 200 && full > 50, "%d %d", refusals, full);
    printf("    %d failures, each followed by a check and the rest of the text\n", points);
}

static void the_file_survives_any_failed_allocation(void)
{
#ifdef OWN_MALLOC
    struct acked a;
    int points = 0;
    for (int way = 0; way < 2; way++) {
        int64_t step = 1;
        bool fired = true;
        for (int64_t n = 1; fired && !test_failed_; n += step) {
            struct store *s = NULL;
            struct err e = {0};
            rig_new();
            vfs_reset();
            memory_n = memory_failed = 0;
            memory_fail_at = n;
            memory_for_ever = way == 1;
            memory_armed = true;
            int rc = life(&s, &a, &e);
            store_close(s);
            memory_armed = false;
            fired = memory_failed > 0;
            CHECK(fired || rc == 0, "%s", e.msg);
            CHECK(rc == 0 || e.msg[0], "allocation %" PRId64, n);
            const char *bad = check_file(&a, true);
            CHECK(!bad, "allocation %" PRId64 ": %s", n, bad);
            points += fired;
            step = long_run || n < 60 ? 1 : 1 + n % 41;
        }
    }
    CHECK(points > 200, "%d", points);
    printf("    %d allocations failed\n", points);
#else
    SKIP("the sanitizers have their own malloc");
#endif
}

static void a_failed_checkpoint_is_not_repeated(void)
{
    struct err e = {0};
    struct claim claim;
    struct checkpoint *c;
    rig_new();
    vfs_reset();
    struct store *s = rig_open(STORE_CREATE);
    int64_t job = rig_submit(s, 1000);
    CHECK(rig_claim(s, rig_worker(s), 0, &claim) == 1);
    struct committer *k;
    CHECK(committer_open(&k, s, 0.001, NULL, NULL, &e) == 0 &&
          checkpoint_open(&c, k, &claim, &(struct checkpoint_options){0}, &e) == 0);
    int32_t *v = rig_tokens(job, 0, 1000);
    CHECK(checkpoint_put(c, v, 10, NULL, &e) == 0 && checkpoint_flush(c, &e) == 0);
    vfs.fail_at = vfs.n + 3;             /* a sync or a write of the next commit fails once */
    CHECK(checkpoint_put(c, v + 10, 10, NULL, &e) == 0);
    CHECK(checkpoint_flush(c, &e) == -1 && strstr(e.msg, "disk I/O error"), "%s", e.msg);
    int64_t ops = vfs.n;
    for (size_t i = 20; i < 60; i += 10) {
        CHECK(checkpoint_put(c, v + i, 10, NULL, &e) == -1 && strstr(e.msg, "disk I/O error") &&
                  !strstr(e.msg, "nothing more is written"),
              "%s", e.msg);
        usleep(3000);
    }
    CHECK(checkpoint_end(c, &(struct job_end){ .state = JOB_DONE }, NULL, &e) == -1);
    CHECK(vfs.n == ops, "%" PRId64 " operations more", vfs.n - ops);
    checkpoint_close(c);
    committer_close(k);
    free(v);
    CHECK(rig_text_is(s, job, 10));
    store_close(s);
    vfs_reset();
}

/* Open and close the store, as the first process after a cut does, until a second cut at operation `at`. */
static bool recover_until(int64_t at)
{
    struct store *s = NULL;
    struct err e;
    int64_t worker;
    vfs.cut_at = at;
    if (store_open(&s, rig_path, &(struct store_options){ .mode = STORE_CREATE, .busy_seconds = 5 }, &e) == 0)
        store_worker_start(s, &worker, &e);
    store_close(s);
    bool cut = vfs.dead;
    vfs.dead = false;
    vfs.cut_at = 0;
    return cut;
}

/* A process dies: everything it wrote exists, nothing later. At every operation, and for some deaths at
 * every operation of the recovery. */
static void a_death_at_any_operation_loses_nothing(void)
{
    struct acked a;
    struct err e;
    int deaths = 0, again = 0;
    bool died = true;
    for (int64_t at = 1; died && !test_failed_; at++)
        for (int64_t second = 0; second == 0 || (died && at % 9 == 0); second++) {
            struct store *s = NULL;
            rig_new();
            vfs_reset();
            vfs.cut_at = at;
            life(&s, &a, &e);
            store_close(s);
            died = vfs.dead;
            deaths += died && second == 0;
            vfs.dead = false;
            vfs.cut_at = 0;
            vfs.n = 0;
            if (second > 0) {
                if (!recover_until(second))
                    break;
                again++;
            }
            const char *bad = check_file(&a, true);
            CHECK(!bad, "operation %" PRId64 ", then %" PRId64 ": %s", at, second, bad);
        }
    vfs_reset();
    CHECK(deaths > 200 && again > 200, "%d %d", deaths, again);
    printf("    %d deaths, %d more during recovery\n", deaths, again);
}

static void a_second_power_cut_during_recovery_loses_nothing(void)
{
    const int want = long_run ? 4000 : 100;
    struct acked a;
    struct err e;
    int lost = 0, second = 0;
    char first[1300] = "";
    srand(19);
    for (int i = 0; i < 20 * want && second < want; i++) {
        struct store *s = NULL;
        rig_new();
        vfs_reset();
        vfs.model = true;
        vfs.cut_at = 1 + rand() % 450;
        int64_t at = vfs.cut_at;
        life(&s, &a, &e);
        store_close(s);
        vfs_after_cut();
        vfs_again_from_disk();
        if (!recover_until(1 + rand() % 14))
            continue;
        second++;
        vfs_after_cut();
        vfs.model = false;
        const char *bad = check_file(&a, true);
        lost += bad != NULL;
        if (bad && !first[0])
            snprintf(first, sizeof first, "operation %" PRId64 ": %s", at, bad);
    }
    vfs_reset();
    CHECK(lost == 0 && second == want, "%d of %d: %s", lost, second, first);
    printf("    %d second cuts\n", second);
}

/* Make `want` power cuts, at each operation in turn. Returns how many lost something acknowledged. */
static int cuts(enum vfs_sync sync, int want, int *done, char *first, size_t size)
{
    enum { STATES = 6 };                 /* disk states for one cut */
    int lost = 0;
    struct acked a;
    struct err e;
    *done = 0;
    srand(17);
    first[0] = 0;
    for (int64_t at = 1; *done < want;) {
        struct store *s = NULL;
        rig_new();
        vfs_reset();
        vfs.model = true;
        vfs.sync = sync;
        vfs.cut_at = at;
        int rc = life(&s, &a, &e);
        store_close(s);
        bool cut = vfs.dead;
        CHECK(cut == (rc != 0), "%s", e.msg);
        if (!cut) {                      /* after the last operation: a cut when everything is done */
            at = 1;
        } else {
            at++;
        }
        for (int k = 0; k < STATES && *done < want; k++, ++*done) {
            bool model = vfs.model;
            vfs_after_cut();
            vfs.model = false;
            vfs.dead = false;
            vfs.cut_at = 0;
            const char *bad = check_file(&a, k == 0);
            vfs.model = model;
            if (bad && !first[0])
                snprintf(first, size, "operation %" PRId64 ": %s", at - 1, bad);
            lost += bad != NULL;
        }
    }
    vfs_reset();
    return lost;
}

static void power_cuts_lose_nothing_acknowledged(void)
{
    char first[1300];
    int done, lost = cuts(VFS_EXTRA, long_run ? 12000 : 900, &done, first, sizeof first);
    CHECK(lost == 0, "%d of %d: %s", lost, done, first);
    printf("    %d power cuts\n", done);
}

static void power_cuts_with_weaker_syncs_lose_data(void)
{
    char full[1300], off[1300];
    int done, lost_full = cuts(VFS_FULL, 600, &done, full, sizeof full),
              lost_off = cuts(VFS_OFF, 600, &done, off, sizeof off);
    CHECK(lost_full > 10 && lost_off > 100, "%d and %d of %d", lost_full, lost_off, done);
    printf("    of %d cuts synchronous=FULL loses %d (%s), OFF %d (%s)\n", done, lost_full, full, lost_off,
           off);
}

int main(int argc, char **argv)
{
    long_run = argc > 1 && strcmp(argv[1], "--long") == 0;
    vfs_install();
    for (size_t i = 0; i < 700; i++)
        text[i] = rig_token(1, i);
    RUN(the_file_survives_any_failed_write);
    RUN(the_file_survives_any_failed_allocation);
    RUN(a_failed_checkpoint_is_not_repeated);
    RUN(a_death_at_any_operation_loses_nothing);
    RUN(power_cuts_lose_nothing_acknowledged);
    RUN(a_second_power_cut_during_recovery_loses_nothing);
    RUN(power_cuts_with_weaker_syncs_lose_data);
    rig_end();
    return test_end();
}
