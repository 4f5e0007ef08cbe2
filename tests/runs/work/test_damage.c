/* Damage to the program's own state: foreign, newer, truncated or overwritten files, impossible rows,
 * wrong snapshots. Every verb of the real program ends with a documented code and one line. A refused file
 * stays as it is. A damaged job does not stop the other jobs. No snapshot changes a text.
 *
 *     X1  foreign application_id, newer version, no database, empty, truncated file:
 *             foreign_and_broken_files_are_refused_and_not_changed
 *         truncated write-ahead log: the_store_survives_a_truncated_wal
 *     X2  snapshots of the KV cache with a wrong magic, version, model (its fingerprint covers config,
 *         tokenizer and weights), arithmetic, type of the rows, length, with a wrong bit in every page, torn:
 *             damaged_snapshots_are_not_used; every bit, without the program: test_decoder_image.c
 *         missing snapshot, a pipe, no folder, another job's snapshot: tests/cli/snapshot.sh
 *     X3  token beyond the vocabulary, gap, repeated position, progress beyond the limit:
 *             damaged_jobs_fail_alone; checksums and the chain alone: tests/runs/store/test_chunk.c
 *     X4  no prompt (it is a row, not a path), no model:
 *             damaged_jobs_fail_alone: "no input", "model gone" */
#include <sys/wait.h>
#include <zlib.h>

#include "kvmgr/snapshot.h"
#include "tests/program.h"

static bool can_run;
static char good[128];                   /* job 1: 100 tokens of 200, queued; job 2: 20 tokens, queued */
static struct text second;               /* of job 2 when it is done */

static const char *const verbs[] = { "list", "list --json", "show 1", "text 1", "text 1 --format ids",
                                     "report 1", "report --json 1", "report --html 1",
                                     "verify 1", "run --resume 1 -q --threads 1" };

static void restore_store(void)
{
    char path[128];
    for (const char *const *tail = (const char *const[]){ "-journal", "-wal", "-shm", NULL }; *tail; tail++) {
        snprintf(path, sizeof path, "%s%s", rig_path, *tail);
        unlink(path);
    }
    copy_file(rig_path, good);
}

static void keep(const char *to) { copy_file(to, rig_path); }

/* Whether a command exits with 0, or with a documented code and one printable line. */
static bool well_behaved(const char *words, const char *name)
{
    int status = program(words), code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    const char *said = program_err();
    size_t lines = 0, bad = 0;
    for (const char *p = said; *p; p++) {
        lines += *p == '\n';
        bad += (unsigned char)*p < 0x20 && *p != '\n' && *p != '\t';
    }
    bool ok = (code == 0 || code == 1 || code == 2) && (code == 0 || lines >= 1) &&
              (code != 2 || lines == 1) && !bad && !strstr(said, "ssertion");
    CHECK(ok, "%s: %s: status %x, said \"%s\"", name, words, status, said);
    return ok;
}

/* ---- whole files ---- */

static void overwrite(size_t at, const char *p, size_t n)
{
    FILE *f = fopen(rig_path, "r+b");
    assert(f && fseek(f, (long)at, SEEK_SET) == 0 && fwrite(p, 1, n, f) == n);
    fclose(f);
}

static void foreign_and_broken_files_are_refused_and_not_changed(void)
{
    static const struct { const char *name, *sql; long size; size_t at, n; const char *says; } cases[] = {
        { "foreign application_id", "PRAGMA application_id=7", -1, 0, 0, "another program" },
        { "no application_id", "PRAGMA application_id=0", -1, 0, 0, "another program" },
        { "newer", "PRAGMA user_version=99", -1, 0, 0, "newer longhand" },
        { "negative version", "PRAGMA user_version=-1", -1, 0, 0, "newer longhand" },
        { "no database", NULL, -1, 0, 16, "not a database" },
        { "twenty bytes", NULL, 20, 0, 0, "not a database" },
        { "cut in half", NULL, 40000, 0, 0, "damaged" },
        { "cut in the header", NULL, 99, 0, 0, "not a database" },
        { "only the header", NULL, 100, 0, 0, "damaged" },
        { "page size 3", NULL, -1, 16, 2, "damaged" },
        { "a table overwritten", NULL, -1, 100, 60, "damaged" },
    };
    static const char noise[64] = "\xa5\x03\xa5\xa5\xa5\xa5\xa5\xa5\xa5\xa5\xa5\xa5\xa5\xa5\xa5\xa5\xa5\xa5"
                                  "\xa5\xa5\xa5\xa5\xa5\xa5\xa5\xa5\xa5\xa5\xa5\xa5\xa5";
    static const char *const changing[] = { "work -q", "submit -m " TINY " -p the -n 5", "pause 1",
                                            "remove 1", "fork 1 --at 5", "extend 1 --tokens +5" };
    if (!can_run)
        SKIP(NO_PROGRAM);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        restore_store();
        if (cases[i].sql)
            rig_sql(cases[i].sql);
        if (cases[i].size >= 0)
            CHECK(truncate(rig_path, cases[i].size) == 0);
        if (cases[i].n)
            overwrite(cases[i].at, noise, cases[i].n);
        uint64_t before = file_hash(rig_path);
        for (size_t k = 0; k < sizeof verbs / sizeof *verbs; k++)
            well_behaved(verbs[k], cases[i].name);
        for (size_t k = 0; k < sizeof changing / sizeof *changing; k++) {
            well_behaved(changing[k], cases[i].name);
            CHECK(strstr(program_err(), cases[i].says), "%s: %s: %s", cases[i].name, changing[k],
                  program_err());
        }
        CHECK(file_hash(rig_path) == before, "%s: the file was changed", cases[i].name);
    }
    restore_store();
    CHECK(truncate(rig_path, 0) == 0);
    for (size_t k = 0; k < sizeof verbs / sizeof *verbs; k++)
        well_behaved(verbs[k], "empty");
    CHECK(exited(program("submit -m " TINY " -p the -n 5"), 0) && rig_sql("SELECT count(*) FROM job") == 1,
          "%s", program_err());
}

/* A foreign sqlite3 has put the file into WAL mode and died. Its log is truncated at every page and
 * between pages. */
static void the_store_survives_a_truncated_wal(void)
{
    char wal[128], keep_wal[160];
    struct stat st;
    int refused = 0, opened = 0;
    if (!can_run)
        SKIP(NO_PROGRAM);
    restore_store();
    pid_t pid = fork();
    if (pid == 0) {                      /* ends with an open connection, so the log stays */
        sqlite3 *db;
        int rc = sqlite3_open(rig_path, &db) ||
                 sqlite3_exec(db, "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0", NULL, NULL, NULL);
        for (int i = 0; i < 5 && !rc; i++)
            rc = sqlite3_exec(db,
                              "UPDATE job SET priority = priority + 1; INSERT INTO batch (name, created) "
                              "VALUES (hex(randomblob(8)), 0)",
                              NULL, NULL, NULL);
        _exit(rc ? 1 : 0);
    }
    CHECK(exited(program_wait(pid), 0));
    snprintf(wal, sizeof wal, "%s-wal", rig_path);
    snprintf(keep_wal, sizeof keep_wal, "%s.wal", program_page);
    char base[160];
    snprintf(base, sizeof base, "%s.base", program_page);
    CHECK(stat(wal, &st) == 0 && st.st_size > 10000, "%ld", (long)st.st_size);
    copy_file(keep_wal, wal);
    keep(base);
    for (off_t n = 0; n <= st.st_size; n += n < 64 ? 16 : 2068) {
        restore_store();
        copy_file(rig_path, base);
        copy_file(wal, keep_wal);
        CHECK(truncate(wal, n) == 0);
        well_behaved("list", "wal");
        bool ok = well_behaved("pause 2 -q", "wal") && exited(program("list"), 0);
        opened += ok;
        refused += !ok;
        if (ok)
            CHECK(rig_sql("SELECT count(*) FROM pragma_integrity_check() WHERE integrity_check = 'ok'") ==
                      1 &&
                  rig_sql("SELECT tokens FROM job WHERE id = 1") == 100);
    }
    unlink(base);
    unlink(keep_wal);
    CHECK(opened > 5, "%d opened, %d refused", opened, refused);
}

/* ---- rows ---- */

static void damaged_jobs_fail_alone(void)
{
    /* `text`: part of the text verb's message; `work`: part of job 1's error or state after `work`; NULL:
     * may succeed */
    static const struct { const char *name, *sql, *text, *work; } cases[] = {
        { "chunk of zeros", "UPDATE chunk SET data = zeroblob(length(data)) WHERE job = 1", "chunk 0",
          "chunk 0" },
        { "chunk cut", "UPDATE chunk SET data = substr(data, 1, 9) WHERE job = 1", "chunk 0", "chunk 0" },
        { "chunk as text", "UPDATE chunk SET data = 'abc' WHERE job = 1", "chunk 0", "chunk 0" },
        { "gap", "UPDATE chunk SET start = 512 WHERE job = 1", "missing", "missing" },
        { "chunk gone", "DELETE FROM chunk WHERE job = 1", "missing", "missing" },
        { "chunk twice", "INSERT INTO chunk SELECT job, 50, n, crc, link, data FROM chunk WHERE job = 1",
          "chunk", "chunk" },
        { "a chunk after the end",
          "INSERT INTO chunk SELECT job, 512, n, crc, link, data FROM chunk WHERE job = 1", NULL, "chunk" },
        { "chunk of 2^40 tokens", "UPDATE chunk SET n = 1099511627776 WHERE job = 1", "chunk 0", "chunk 0" },
        { "tokens beyond the text", "UPDATE job SET tokens = 5000 WHERE id = 1", "chunk 0", "chunk 0" },
        { "2^62 tokens", "UPDATE job SET tokens = 4611686018427387904 WHERE id = 1", "", "" },
        { "negative tokens", "UPDATE job SET tokens = -1 WHERE id = 1", "damaged", "damaged" },
        { "progress beyond the limit", "UPDATE job SET wanted = 50 WHERE id = 1", NULL, NULL },
        { "negative limit", "UPDATE job SET wanted = -5 WHERE id = 1", NULL, "" },
        { "limit of 2^62", "UPDATE job SET wanted = 4611686018427387904 WHERE id = 1", NULL, "" },
        { "no link", "UPDATE job SET link = x'' WHERE id = 1", "row of job 1 is damaged", "damaged" },
        { "no input", "DELETE FROM input WHERE job = 1", "", "" },
        { "prompt ids of zeros", "UPDATE input SET ids = zeroblob(9) WHERE job = 1", "prompt", "prompt" },
        { "2^40 prompt tokens", "UPDATE job SET prompt_tokens = 1099511627776 WHERE id = 1", "damaged",
          "damaged" },
        { "parameters: no JSON", "UPDATE input SET parameters = 'x{' WHERE job = 1", "parameters",
          "parameters" },
        { "parameters: empty", "UPDATE input SET parameters = '{}' WHERE job = 1", "parameters",
          "parameters" },
        { "parameters: deep",
          "UPDATE input SET parameters = replace(hex(zeroblob(100000)), '00', '[') WHERE job = 1",
              "parameters", "parameters" },
        { "parameters: a newer one",
          "UPDATE input SET parameters = json_set(parameters, '$.later', 1) WHERE job = 1", "newer",
              "newer" },
        { "parameters: another order of the steps",
          "UPDATE input SET parameters = json_set(parameters, '$.order', "
          "json('[\"dry\",\"bias\",\"penalties\",\"temperature\",\"top_k\",\"top_p\",\"min_p\",\"eta\"]'))"
          " WHERE job = 1", "order", "order" },
        { "parameters: one member is missing",
          "UPDATE input SET parameters = json_remove(parameters, '$.top_p') WHERE job = 1", "top_p",
              "top_p" },
        { "parameters: wrong type",
          "UPDATE input SET parameters = json_set(parameters, '$.temperature', 'hot') WHERE job = 1",
              "temperature", "temperature" },
        { "parameters: a tree of a million",
          "UPDATE input SET parameters = json_set(parameters, '$.drafting.tree', json('[1000000]')) "
          "WHERE job = 1", NULL, NULL },
        { "model gone", "UPDATE job SET model = '/nowhere/at all' WHERE id = 1", NULL, "queued" },
        { "model another one", "UPDATE job SET fingerprint = 'x' WHERE id = 1", NULL, "made with model" },
        { "numerics of another kind", "UPDATE job SET numerics = 'gpu-9' WHERE id = 1", NULL, "queued" },
        { "a span after the end",
          "INSERT INTO span (job, start, n, kind) VALUES (1, 4000000000000, 9, 'given')", NULL, NULL },
        { "a negative span", "INSERT INTO span (job, start, n, kind) VALUES (1, -5, -9, 'given')", NULL,
          NULL },
        { "a span of another kind", "INSERT INTO span (job, start, n, kind) VALUES (1, 0, 9, 'x')", NULL,
          NULL },
        { "figures of depths that are not there",
          "UPDATE metric SET idx = 2000000000 + idx WHERE job = 1 AND idx > 0; "
          "INSERT INTO metric VALUES (1, 0, '', 'reached', -7, 1), (1, 0, '', 'histogram', 999999, 1)",
          NULL, NULL },
        { "figures of windows that are not there",
          "INSERT INTO metric VALUES (1, 4000000000000000000, '', 'tokens', 0, 1), "
          "(1, -1000, '', 'rounds', 0, 1), (1, 77, '', 'seconds', 0, 1)", NULL, NULL },
        { "figures beyond all numbers", "UPDATE metric SET value = 9e999 WHERE job = 1", NULL, NULL },
        { "figures as text", "UPDATE metric SET value = 'x' WHERE job = 1", NULL, NULL },
        { "figures of nobody", "INSERT INTO metric VALUES (1, 0, char(27) || '[2J', char(27), 0, 1)", NULL,
          NULL },
        { "rounds that cannot be",
          "INSERT INTO round VALUES (1, -1, -1, '', -1, -1, -1, -1, -1, -1), "
          "(1, 4000000000000, 1, '', 2000000000, 1, 1, 1, 0, 0)", NULL, NULL },
        { "hostile words", "UPDATE job SET error = char(27) || ']0;x' || char(7), "
          "custom_id = char(27) || '[2J', stop_reason = x'80ff', finish_reason = char(27) WHERE id = 1", NULL,
              NULL },
        { "times that are none",
          "UPDATE job SET created = 9e999, started = -9e999, updated = 'x', ended = 1e300 WHERE id = 1", NULL,
              NULL },
        { "a prompt token beyond the vocabulary", "!prompt", NULL, "vocabulary" },
        { "a token beyond the vocabulary", "!token", "5000", "vocabulary" },
    };
    if (!can_run)
        SKIP(NO_PROGRAM);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *name = cases[i].name;
        struct err e = {0};
        restore_store();
        if (strcmp(cases[i].sql, "!token") == 0) {
            struct store *s = rig_open(STORE_WRITE);
            CHECK(store_change(s, CHANGE_PAUSE, 0, (int64_t[]){ 1 }, 1, NULL, &e) == 0 &&
                  store_extend(s, 1, &(struct edit_spec){ .at = 100, .wanted = 200,
                      .add = { .ids = (int32_t[]){ 5000 }, .n = 1, .text = "x",
                                                   .bytes = 1 } }, &e) == 0, "%s", e.msg);
            store_close(s);
        } else if (strcmp(cases[i].sql, "!prompt") == 0) {
            struct store *s = rig_open(STORE_WRITE);
            struct job_input in;
            struct job_list l;
            int64_t id = 1;
            CHECK(store_input(s, 1, &in, &e) == 0 && store_jobs(s, &id, 1, &l, &e) == 0);
            struct job_spec j = { .parameters = in.parameters, .model = l.v[0].model, .prompt = "x",
                                  .prompt_bytes = 1, .prompt_ids = (int32_t[]){ 5000 }, .prompt_tokens = 1,
                                  .wanted = 20 };
            CHECK(store_submit(s, NULL, &j, 1, &id, NULL, NULL, &e) == 0 &&
                  store_change(s, CHANGE_REMOVE, 0, (int64_t[]){ 1 },
                1, NULL, &e) == 0);
            store_close(s);
            rig_sql("PRAGMA foreign_keys=OFF; UPDATE job SET id = 1 WHERE id = 3; UPDATE input SET job = 1 "
                    "WHERE job = 3; UPDATE event SET job = 1 WHERE job = 3");
            job_input_free(&in);
            job_list_free(&l);
        } else {
            rig_sql(cases[i].sql);
        }
        char damaged[160];
        snprintf(damaged, sizeof damaged, "%s.damaged", program_page);
        keep(damaged);
        for (size_t k = 0; k < sizeof verbs / sizeof *verbs; k++) {
            copy_file(rig_path, damaged);
            well_behaved(verbs[k], name);
            if (cases[i].text && strcmp(verbs[k], "text 1") == 0)
                CHECK(program_err()[0] && strstr(program_err(), cases[i].text), "%s: text: %s", name,
                      program_err());
        }
        copy_file(rig_path, damaged);
        well_behaved(WORK, name);
        struct store *s = rig_open(STORE_READ);
        struct text t = stored_text(s, 2);
        CHECK(rig_state(s, 2) == JOB_DONE && begins_with(&second, &t, second.n), "%s: the other job", name);
        free(t.ids);
        struct job_list l;
        if (cases[i].work && store_jobs(s, (int64_t[]){ 1 }, 1, &l, &e) == 0) {
            const char *said = l.v[0].error ? l.v[0].error : job_state_name(l.v[0].state);
            CHECK(l.v[0].state != JOB_DONE && strstr(said, cases[i].work), "%s: work: %s", name, said);
            job_list_free(&l);
        }
        store_close(s);
        unlink(damaged);
    }
}

/* ---- snapshots ---- */

/* offsets in the header */
enum { OWNER = 16, LENGTHS = OWNER + sizeof(struct snapshot_owner), SECTION = LENGTHS + 24,
       CRC = SECTION + SNAPSHOT_SECTIONS_MAX * 120 + 4 };
#define OWNER_AT(member) (OWNER + offsetof(struct snapshot_owner, member))

/* A job of 200 tokens that was interrupted with a snapshot: the store, and the snapshot file. */
static struct { char store[128], path[200]; uint8_t *bytes; size_t n; struct text whole; } left;

static void snapshot_folder(char out[128]) { snprintf(out, 128, "%s.snapshots", rig_path); }

static void make_a_snapshot(void)
{
    char prompt[128], words[400], folder[128], command[300];
    int fd[2];
    struct err e;
    rig_new();
    faults_none();
    snprintf(prompt, sizeof prompt, "%s.prompt", program_page);
    FILE *f = fopen(prompt, "w");
    for (int i = 0; i < 20; i++)
        fprintf(f, "The %dth day at sea. ", i);
    fclose(f);
    snprintf(words, sizeof words, "submit -m " TINY " -f %s -n 200 -s 7 --ignore-eos --threads 1", prompt);
    for (int i = 0; i < 2; i++)
        CHECK(exited(program(words), 0), "%s", program_err());
    unlink(prompt);
    CHECK(exited(program("run --resume 2 -q --threads 1 --kv-snapshot off"), 0), "%s", program_err());
    struct store *s = rig_open(STORE_READ);
    left.whole = stored_text(s, 2);
    store_close(s);
    CHECK(exited(program("remove 2 -q"), 0) && pipe(fd) == 0 && left.whole.n == 200, "%s", program_err());
    close(fd[0]);                        /* a closed pipe: the program stops at its first output */
    program_fd[1] = fd[1];
    CHECK(exited(program("run --resume 1 -q --threads 1 --kv-snapshot on"), 75), "%s", program_err());
    program_fd[1] = -1;
    close(fd[1]);
    program("resume 1 -q");
    snapshot_folder(folder);
    snprintf(command, sizeof command, "ls %s/1-*.kv", folder);
    FILE *ls = popen(command, "r");
    CHECK(ls && fgets(left.path, sizeof left.path, ls), "no snapshot");
    if (ls)
        pclose(ls);
    left.path[strcspn(left.path, "\n")] = 0;
    CHECK(file_read((char **)&left.bytes, &left.n, left.path, 1 << 28, &e) == 0, "%s", e.msg);
    snprintf(left.store, sizeof left.store, "%s.left", program_page);
    keep(left.store);
}

static uint32_t header_crc(const uint8_t *p) { return (uint32_t)crc32_z(0, p, CRC); }

/* Continue the job with these bytes as its snapshot. It uses them, or, with `why` in a notice, it does
 * not. The text is always the same. */
static void continue_with_snapshot(const char *name, const uint8_t *p, size_t n, const char *why)
{
    char folder[128], sql[300];
    snapshot_folder(folder);
    copy_file(rig_path, left.store);
    mkdir(folder, 0700);
    FILE *f = fopen(left.path, "wb");
    CHECK(f && fwrite(p, 1, n, f) == n && fclose(f) == 0, "%s", name);
    int status = program("work -q --threads 1 --kv-snapshot on");
    CHECK(exited(status, 0) && !program_err()[0], "%s: status %x, said \"%s\"", name, status, program_err());
    struct store *s = rig_open(STORE_READ);
    struct text t = stored_text(s, 1);
    CHECK(rig_state(s, 1) == JOB_DONE && t.n == left.whole.n && begins_with(&left.whole, &t, t.n),
          "%s: %zu tokens", name, t.n);
    free(t.ids);
    store_close(s);
    snprintf(sql, sizeof sql,
             "SELECT count(*) FROM event WHERE job = 1 AND kind = 'notice' AND text LIKE 'the snapshot is "
             "not used%%%s%%'",
             why ? why : "");
    CHECK(rig_sql(sql) == (why ? 1 : 0), "%s: no notice with \"%s\"", name, why);
    CHECK(rig_sql("SELECT count(*) FROM event WHERE job = 1 AND kind = 'restored'") == (why ? 0 : 1), "%s",
          name);
    CHECK(access(folder, F_OK) != 0, "%s: the file is still there", name);
}

static void damaged_snapshots_are_not_used(void)
{
    /* A byte of the header is XORed with `with`; sealed: the checksum is made to fit */
    static const struct { const char *name; size_t at; uint8_t with; bool sealed; const char *why;
    } cases[] = {
        { "magic", 0, 'L' ^ 'l', true, "not a snapshot" },
        { "version", 8, 3, true, "version 1; this program reads version 2" },
        { "the header's own sum", CRC, 1, false, "the header is damaged" },
        { "job", OWNER_AT(job), 6, true, "of job 7, not 1" },
        { "model", OWNER_AT(fingerprint), 1, true, "another model" },
        { "model, unsealed", OWNER_AT(fingerprint), 1, false, "the header is damaged" },
        { "a fingerprint without an end", OWNER_AT(fingerprint) + 67, 1, true, "in the header" },
        { "arithmetic", OWNER_AT(numerics), 1, true, "other arithmetic" },
        { "context scaling", OWNER_AT(context), 'x', true, "another context scaling" },
        { "another text", OWNER_AT(chain) + 31, 128, true, "another text" },
        { "rows from the middle on", OWNER_AT(from), 64, true, "from token 64" },
        { "a row more", OWNER_AT(tokens), 1, true, "the text has" },
        { "more rows than text", OWNER_AT(tokens) + 1, 64, true, "the text has" },
        { "2^63 rows", OWNER_AT(tokens) + 7, 128, true, "the text has" },
        { "type of the rows", SECTION + SNAPSHOT_NAME_BYTES, 1, true, "no rows of a cache" },
        { "name of the section", SECTION, 1, true, "no rows of a cache" },
        { "254 sections", 12, 0xff, true, "in the header" },
        { "length of the file", LENGTHS, 1, true, "in the header" },
        { "length of the data", LENGTHS + 8 + 7, 255, true, "in the header" },
        { "number of pieces", LENGTHS + 16 + 7, 64, true, "in the header" },
        { "place of a section", SECTION + 96, 16, true, "in the header" },
        { "length of a section", SECTION + 104 + 7, 255, true, "in the header" },
        { "first piece of a section", SECTION + 112, 1, true, "in the header" },
    };
    uint32_t sum;
    if (!can_run)
        SKIP(NO_PROGRAM);
    make_a_snapshot();
    uint8_t *p = left.bytes;
    memcpy(&sum, p + CRC, 4);
    srand(5);
    CHECK(left.n > 5 * 4096 && sum == header_crc(p), "%zu bytes", left.n);
    if (test_failed_)
        return;
    continue_with_snapshot("as it was", p, left.n, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        p[cases[i].at] ^= cases[i].with;
        if (cases[i].sealed)
            memcpy(p + CRC, &(uint32_t){ header_crc(p) }, 4);
        continue_with_snapshot(cases[i].name, p, left.n, cases[i].why);
        p[cases[i].at] ^= cases[i].with;
        memcpy(p + CRC, &sum, 4);
    }
    size_t pages = 0;
    for (size_t page = 0; page < left.n; page += 4096, pages++) {
        const size_t i = page + (size_t)rand() % MIN((size_t)4096, left.n - page), bit = (size_t)rand() % 8;
        char name[64];
        snprintf(name, sizeof name, "bit %zu of byte %zu", bit, i);
        p[i] ^= (uint8_t)(1 << bit);
        continue_with_snapshot(name, p, left.n, "");
        p[i] ^= (uint8_t)(1 << bit);
    }
    const size_t lengths[] = { 0, 1, 8, CRC, 4095, 4096, 4097, left.n / 2, left.n - 4096, left.n - 1 };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        continue_with_snapshot("torn", p, lengths[i], "");
    p = realloc(p, left.n + 1);
    p[left.n] = 0;
    continue_with_snapshot("a byte more", p, left.n + 1, "in the header");
    memset(p + left.n - 4096, 0, 4096);
    continue_with_snapshot("a tail of zeros", p, left.n, "damaged");
    free(p);
    free(left.whole.ids);
    unlink(left.store);
    printf("    a snapshot of %zu bytes, a bit in each of %zu pages\n", left.n, pages);
}

int main(void)
{
    can_run = program_open();
    if (can_run) {
        rig_new();
        faults_none();
        submit_tiny(100, 1);
        CHECK(exited(program(WORK), 0) && exited(program("extend 1 --tokens +100"), 0), "%s", program_err());
        submit_tiny(20, 1);
        snprintf(good, sizeof good, "%s.good", program_page);
        keep(good);
        CHECK(exited(program(WORK), 0));
        struct store *s = rig_open(STORE_READ);
        second = stored_text(s, 2);
        store_close(s);
    }
    RUN(foreign_and_broken_files_are_refused_and_not_changed);
    RUN(the_store_survives_a_truncated_wal);
    RUN(damaged_jobs_fail_alone);
    RUN(damaged_snapshots_are_not_used);
    free(second.ids);
    if (good[0])
        unlink(good);
    rig_end();
    program_close();
    return test_end();
}
