/* The job store: submitting, finding, changing, texts and figures, damage. Claims are in
 * test_store_claims.c. */
#include <time.h>

#include "tests/store_check.h"
#include "tests/store_rig.h"

/* ---- submitting and finding ---- */

static void submitted_jobs_can_be_read_back(void)
{
    struct err e = {0};
    struct job_list l;
    struct job_input in;
    int64_t id;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    struct job_spec j = rig_job(1234);
    j.prompt = "a\0b";
    j.prompt_bytes = 3;
    j.priority = -5;
    j.fingerprint = "abc";
    CHECK(store_submit(s, NULL, &j, 1, &id, NULL, NULL, &e) == 0, "%s", e.msg);
    CHECK(id == 1, "jobs are numbered from 1");
    CHECK(store_jobs(s, &id, 1, &l, &e) == 0 && l.n == 1);
    const struct job *k = &l.v[0];
    CHECK(k->seed == UINT64_MAX - 3 && k->wanted == 1234 && k->prompt_tokens == 5 && k->tokens == 0 &&
          k->priority == -5 && k->state == JOB_QUEUED);
    CHECK(!k->batch && !k->custom_id && !k->numerics && !k->error && !k->finish_reason && !k->host &&
          strcmp(k->fingerprint, "abc") == 0 && k->created > 1e9 && k->started == 0);
    job_list_free(&l);
    CHECK(store_input(s, id, &in, &e) == 0, "%s", e.msg);
    CHECK(in.prompt_bytes == 3 && memcmp(in.prompt, "a\0b", 4) == 0 && in.n_prompt == 5 &&
          memcmp(in.prompt_ids, rig_prompt, sizeof rig_prompt) == 0);
    CHECK(strcmp(in.parameters, j.parameters) == 0 && !in.metadata);
    job_input_free(&in);
    CHECK(store_input(s, 99, &in, &e) == -1 && strstr(e.msg, "no job 99"));
    store_close(s);
}

static void a_batch_name_makes_submitting_idempotent(void)
{
    struct job_spec v[3];
    int64_t ids[3], again[3];
    bool is_new[3];
    size_t bad;
    struct err e = {0};
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    static const char *const names[] = { "a", "b/with slash", "a" };
    for (int i = 0; i < 3; i++) {
        v[i] = rig_job(10);
        v[i].custom_id = names[i];
        v[i].line = (size_t)i + 1;
        v[i].identity = names[i];
        v[i].identity_bytes = strlen(names[i]);
        v[i].metadata = "{\"k\":1}";
    }
    v[2].sample = 1;
    CHECK(store_submit(s, "novel", v, 2, ids, is_new, &bad, &e) == 0 && is_new[0] && is_new[1], "%s", e.msg);
    CHECK(store_submit(s, "novel", v, 3, again, is_new, &bad, &e) == -1 && bad == 2 && e.code == ERR_INPUT &&
              strstr(e.msg, "without sample 1"),
          "a request keeps its samples: %zu %s", bad, e.msg);
    v[2].custom_id = "c";
    CHECK(store_submit(s, "novel", v, 3, again, is_new, &bad, &e) == 0 && !is_new[0] && !is_new[1] &&
              is_new[2],
          "%s", e.msg);
    CHECK(again[0] == ids[0] && again[1] == ids[1] && again[2] == 3);
    v[1].identity = "other";
    v[1].identity_bytes = 5;
    CHECK(store_submit(s, "novel", v, 3, again, is_new, &bad, &e) == -1 && bad == 1 && e.code == ERR_INPUT &&
              strstr(e.msg, "b/with slash"),
          "%zu %s", bad, e.msg);
    CHECK(store_submit(s, "second", v, 3, again, is_new, &bad, &e) == 0, "another name is another batch: %s",
          e.msg);
    v[0].custom_id = "new";
    v[1].custom_id = "new";
    CHECK(store_submit(s, "third", v, 2, again, is_new, &bad, &e) == -1 && bad == 1,
          "twice in one file: %zu %s", bad, e.msg);
    CHECK(rig_sql("SELECT count(*) FROM job") == 6 && rig_sql("SELECT count(*) FROM batch") == 2,
          "nothing of a refused batch stays");
    CHECK(store_submit(s, "no/slash", v, 1, again, is_new, &bad, &e) == -1 && e.code == ERR_INPUT);
    CHECK(store_change(s, CHANGE_REMOVE, 0, ids, 2, NULL, &e) == 0);
    CHECK(rig_sql("SELECT count(*) FROM batch") == 2);
    CHECK(store_change(s, CHANGE_REMOVE, 0, (int64_t[]){ 3 }, 1, NULL, &e) == 0 &&
              rig_sql("SELECT count(*) FROM batch") == 1,
          "a batch goes with its last job");
    int64_t last = rig_submit(s, 5);
    CHECK(store_change(s, CHANGE_REMOVE, 0, &last, 1, NULL, &e) == 0 && rig_submit(s, 5) == last + 1,
          "a number is never used again");
    store_close(s);
}

static char *selected(struct store *s, const char *state, bool all, int n, const char *const *words)
{
    static char out[1200];
    struct selection sel;
    int64_t *ids;
    size_t k;
    struct err e = {0};
    out[0] = 0;
    if (selection_parse(&sel, &(struct selection_words){ words, (size_t)n, state, NULL, false, all }, &e) ||
        store_select(s, &sel, &ids, &k, &e)) {
        snprintf(out, sizeof out, "%s", e.msg);
    } else {
        for (size_t i = 0; i < k; i++)
            snprintf(out + strlen(out), sizeof out - strlen(out), "%s%" PRId64, i ? " " : "", ids[i]);
        free(ids);
    }
    selection_free(&sel);
    return out;
}

static void selections_select_the_named_jobs(void)
{
    struct err e = {0};
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    for (int i = 0; i < 6; i++)
        rig_submit(s, 10);
    struct job_spec v[2] = { rig_job(1), rig_job(1) };
    int64_t ids[2];
    v[0].custom_id = "x";
    v[1].custom_id = "y/z";
    CHECK(store_submit(s, "no vel", v, 2, ids, NULL, NULL, &e) == 0);
    CHECK(store_change(s, CHANGE_PAUSE, 0, (int64_t[]){ 2, 7 }, 2, NULL, &e) == 0);
#define SEL(...) (const char *const[]){ __VA_ARGS__ }
    const struct {
        const char *const *words;
        int n;
        const char *state;
        bool all;
        const char *want;
    } cases[] = {
        { SEL("3"), 1, NULL, false, "3" }, { SEL("2-4"), 1, NULL, false, "2 3 4" }, { SEL("4-99"), 1, NULL,
            false, "4 5 6 7 8" },
        { SEL("3", "1", "2-3", "1"), 4, NULL, false, "1 2 3" }, { SEL("@no vel"), 1, NULL, false, "7 8" },
        { SEL("@no vel/y/z"), 1, NULL, false, "8" },
        { SEL("@no vel/x", "1"), 2, NULL, false, "1 7" }, { NULL, 0, "paused", false, "2 7" },
        { SEL("@no vel"), 1, "paused", false, "7" },
        { SEL("1-3"), 1, "queued", false, "1 3" }, { NULL, 0, "done", false, "" }, { NULL, 0, NULL, true,
            "1 2 3 4 5 6 7 8" }, { NULL, 0, "paused", true, "2 7" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *got = selected(s, cases[i].state, cases[i].all, cases[i].n, cases[i].words);
        CHECK(strcmp(got, cases[i].want) == 0, "case %zu: %s", i, got);
    }
    static const struct { const char *word, *says; } wrong[] = {
        { "9", "no job 9" }, { "20-30", "selected by \"20-30\"" }, { "0", "no selection" },
        { "-3", "no selection" }, { "3-", "no selection" }, { "3x", "no selection" },
        { "", "no selection" }, { "5-2", "ends before" }, { "99999999999999999999", "no selection" },
        { "@", "1 to 200 bytes" }, { "@none", "\"@none\"" },
        { "@no vel/q", "\"@no vel/q\"" }, { "novel", "no selection" }, { "@\x01", "control bytes" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *got = selected(s, NULL, false, 1, &wrong[i].word);
        CHECK(strstr(got, wrong[i].says), "%s: %s", wrong[i].word, got);
    }
    CHECK(strstr(selected(s, NULL, false, 0, NULL), "which jobs"));
    CHECK(strstr(selected(s, "runing", false, 0, NULL), "allowed are queued"));
    CHECK(strstr(selected(s, NULL, true, 1, SEL("1")), "only one"));
    store_close(s);
}

/* ---- changing ---- */

static void verbs_change_only_jobs_in_the_right_state(void)
{
    struct err e = {0};
    struct claim c;
    size_t changed;
    int64_t all[6];
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    int64_t w = rig_worker(s);
    for (int i = 0; i < 6; i++)
        all[i] = rig_submit(s, 100);
    CHECK(rig_claim(s, w, 2, &c) == 1);
    CHECK(rig_claim(s, w, 3, &c) == 1 && rig_commit(s, &c, 5, &(struct job_end){ .state = JOB_DONE,
        .finish_reason = "length" }, &e) == 0);
    CHECK(rig_claim(s, w, 4, &c) == 1 && rig_commit(s, &c, 7, &(struct job_end){ .state = JOB_FAILED,
        .error = "x" }, &e) == 0);
    CHECK(store_change(s, CHANGE_CANCEL, 0, (int64_t[]){ 5 }, 1, &changed, &e) == 0 && changed == 1);
    /* 1 queued, 2 running, 3 done, 4 failed, 5 cancelled, 6 queued */
    struct store_counts n;
    CHECK(store_counts(s, NULL, &n, &e) == 0 && n.jobs[JOB_QUEUED] == 2 && n.jobs[JOB_RUNNING] == 1 &&
          n.jobs[JOB_DONE] == 1 && n.jobs[JOB_FAILED] == 1 && n.jobs[JOB_CANCELLED] == 1);
    CHECK(n.tokens == 5 && n.wanted == 400 && n.open_tokens == 300, "%zu %zu %zu", n.tokens, n.wanted,
          n.open_tokens);
    CHECK(store_change(s, CHANGE_PAUSE, 0, all, 6, &changed, &e) == 0 && changed == 3);
    CHECK(store_change(s, CHANGE_RESUME, 0, all, 6, &changed, &e) == 0 && changed == 4);
    CHECK(store_change(s, CHANGE_CANCEL, 0, all, 6, &changed, &e) == 0 && changed == 4);
    CHECK(rig_state(s, 3) == JOB_DONE && rig_text_is(s, 3, 5) && rig_text_is(s, 4, 7), "texts stay readable");
    CHECK(store_change(s, CHANGE_REMOVE, 0, all, 6, &changed, &e) == 0 && changed == 6);
    CHECK(store_change(s, CHANGE_REMOVE, 0, all, 6, &changed, &e) == 0 && changed == 0);
    CHECK(rig_sql("SELECT (SELECT count(*) FROM input) + (SELECT count(*) FROM chunk) + (SELECT count(*) "
                  "FROM event) + (SELECT count(*) FROM metric)") == 0);
    store_close(s);
}

static void removed_jobs_leave_nothing_in_the_file(void)
{
    static char secret[] = "nobody may read this sentence again";
    struct err e = {0};
    char *data;
    size_t n;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    struct job_spec j = rig_job(100);
    int64_t id;
    j.prompt = secret;
    j.prompt_bytes = sizeof secret - 1;
    CHECK(store_submit(s, NULL, &j, 1, &id, NULL, NULL, &e) == 0);
    CHECK(file_read(&data, &n, rig_path, 1 << 24, &e) == 0 && memmem(data, n, secret, sizeof secret - 1));
    free(data);
    CHECK(store_change(s, CHANGE_REMOVE, 0, &id, 1, NULL, &e) == 0);
    CHECK(file_read(&data, &n, rig_path, 1 << 24, &e) == 0 && !memmem(data, n, secret, sizeof secret - 1));
    free(data);
    store_close(s);
}

/* ---- texts and figures ---- */

static void a_text_grows_and_can_be_read_in_parts(void)
{
    static const size_t steps[] = { 1, 1, CHUNK_TOKENS - 3, 1, 1, CHUNK_TOKENS - 1,
                                    1 + 2 * (1024 - CHUNK_TOKENS), 3000, 17, 2047, 0, 887 };
    struct err e = {0};
    struct claim c, back;
    size_t all = 0;
    rig_new();
    struct store *s = rig_open(STORE_CREATE), *reader = rig_open(STORE_READ);
    int64_t job = rig_submit(s, 8000), w = rig_worker(s);
    CHECK(rig_claim(s, w, 0, &c) == 1);
    CHECK(rig_text_is(s, job, 0));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        CHECK(rig_commit(s, &c, steps[i], NULL, &e) == 0, "%s", e.msg);
        all += steps[i];
        CHECK(c.end.tokens == all && rig_text_is(reader, job, all), "%zu", all);
        if (i % 3 == 2) {                        /* continue with another worker */
            CHECK(rig_commit(s, &c, 0, &(struct job_end){ .state = JOB_QUEUED }, &e) == 0);
            CHECK(rig_claim(s, w, 0, &back) == 1 && back.end.tokens == all &&
                  back.end.n_part == all % CHUNK_TOKENS);
            c = back;
        }
    }
    CHECK(all == 8000 && rig_sql("SELECT count(*) FROM chunk") == (8000 + CHUNK_TOKENS - 1) / CHUNK_TOKENS);
    static const size_t edges[] = { 0, 1, CHUNK_TOKENS - 1, CHUNK_TOKENS, CHUNK_TOKENS + 1, 2048, 4000, 7168,
                                    7999, 8000, 9000 };
    for (size_t a = 0; a < sizeof edges / sizeof *edges; a++)
        for (size_t b = a; b < sizeof edges / sizeof *edges; b++) {
            int32_t *ids, *want = rig_tokens(job, edges[a], 8000);
            size_t n, from = MIN(edges[a], 8000u), to = MIN(edges[b], 8000u);
            CHECK(store_tokens(reader, job, edges[a], edges[b], &ids, &n, &e) == 0, "%s", e.msg);
            CHECK(n == to - from && memcmp(ids, want, n * sizeof *ids) == 0, "%zu to %zu", edges[a],
                  edges[b]);
            free(ids);
            free(want);
        }
    CHECK(rig_sql("SELECT resumes FROM job") == 4);
    int32_t *ids;
    size_t n;
    CHECK(store_tokens(reader, 55, 0, 1, &ids, &n, &e) == -1 && strstr(e.msg, "no job 55"));
    store_close(reader);
    store_close(s);
}

static void figures_add_up(void)
{
    struct err e = {0};
    struct claim c;
    struct metric_list m;
    struct round_list r;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    int64_t job = rig_submit(s, 5000), w = rig_worker(s);
    CHECK(rig_claim(s, w, 0, &c) == 1);
    for (int i = 0; i < 3; i++) {
        struct metric v[] = { { .window = 1000, .source = "ngram", .name = "accepted", .value = 2 },
                              { .window = 0, .source = "", .name = "rounds", .value = 1.5 },
                              { .window = 0, .source = "", .name = "depth", .index = 3, .value = i } };
        struct round_row rounds[] = { { .start = (size_t)i * 10, .tokens = 4, .sources = "heads+ngram",
                                        .depth = 3, .drafted = 40, .rows = 12, .accepted = 3,
                                        .draft_seconds = 0.25f,
                                        .verify_seconds = 0.5f } };
        struct commit b = { .metrics = v, .n_metrics = 3, .rounds = rounds, .n_rounds = 1, .rate = 12.5 };
        CHECK(store_commit(s, &c, &b, &e) == 0, "%s", e.msg);
    }
    CHECK(store_metrics(s, job, &m, &e) == 0 && m.n == 3, "%zu", m.n);
    CHECK(m.v[0].window == 0 && strcmp(m.v[0].name, "depth") == 0 && m.v[0].index == 3 && m.v[0].value == 3);
    CHECK(m.v[1].value == 4.5 && m.v[2].window == 1000 && strcmp(m.v[2].source, "ngram") == 0 &&
          m.v[2].value == 6);
    metric_list_free(&m);
    CHECK(store_rounds(s, job, &r, &e) == 0 && r.n == 3 && r.v[2].start == 20 && r.v[2].rows == 12 &&
          r.v[2].draft_seconds == 0.25f && strcmp(r.v[2].sources, "heads+ngram") == 0);
    round_list_free(&r);
    struct store_counts n;
    CHECK(store_counts(s, NULL, &n, &e) == 0 && n.rate == 12.5);
    CHECK(rig_commit(s, &c, 9, &(struct job_end){ .state = JOB_DONE, .finish_reason = "stop",
        .stop_reason = "THE END" }, &e) == 0);
    struct job_list l;
    CHECK(store_jobs(s, &job, 1, &l, &e) == 0 && l.v[0].rate == 0 &&
          strcmp(l.v[0].stop_reason, "THE END") == 0 && l.v[0].ended > 0 && !l.v[0].host);
    job_list_free(&l);
    struct snapshot_row row[STORE_SNAPSHOTS_MAX];
    size_t files;
    CHECK(store_snapshot_list(s, job, row, &files, &e) == 0 && files == 0);
    store_close(s);
}

static bool starts(const int32_t *ids, int64_t job, size_t n)
{
    int32_t *want = rig_tokens(job, 0, n);
    bool same = memcmp(ids, want, n * sizeof *ids) == 0;
    free(want);
    return same;
}

/* Whether the job's parts are `expected`: "START=PARAMETERS " for each. */
static bool parts_are(struct store *s, int64_t job, const char *expected)
{
    struct err e;
    struct part_list l;
    char text[200] = "";
    if (store_parts(s, job, &l, &e))
        return false;
    for (size_t i = 0; i < l.n; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%zu=%s ", l.v[i].start,
                 l.v[i].parameters ? l.v[i].parameters : "-");
    part_list_free(&l);
    return strcmp(text, expected) == 0;
}

static int extend(struct store *s, int64_t job, size_t keep, size_t wanted, const char *parameters,
                  struct err *e)
{
    const struct edit_spec x = { .at = keep, .wanted = wanted, .parameters = parameters };
    return store_extend(s, job, &x, e);
}

static void texts_are_extended_and_forked(void)
{
    static int32_t more[3] = { 9, 8, 7 };
    struct err e = {0};
    struct claim c;
    struct given_text add = { .ids = more, .n = 3, .text = "Two", .bytes = 3 };
    struct span_list sp;
    struct job_list l;
    int32_t *ids;
    size_t n;
    int64_t fork1, fork2;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    int64_t job = rig_submit(s, 3000), w = rig_worker(s);
    CHECK(extend(s, job, 0, 10, NULL, &e) == -1 &&
              strstr(e.msg, "queued or running"),
          "%s", e.msg);
    CHECK(rig_claim(s, w, 0, &c) == 1 && rig_commit(s, &c, 3000, &(struct job_end){ .state = JOB_DONE,
        .finish_reason = "stop" }, &e) == 0);
    CHECK(extend(s, job, 3001, 4000, NULL, &e) == -1 &&
              store_extend(s, job, &(struct edit_spec){ .at = 3000, .add = add, .wanted = 3002 },
                           &e) == -1 &&
              strstr(e.msg, "would have 3003"),
          "%s", e.msg);
    /* the last token was EOS */
    const struct edit_spec two = { .at = 2999, .add = add, .wanted = 4000, .paused = true };
    CHECK(store_extend(s, job, &two, &e) == 0, "%s", e.msg);
    CHECK(rig_state(s, job) == JOB_PAUSED);
    CHECK(store_tokens(s, job, 0, SIZE_MAX, &ids, &n, &e) == 0 && n == 3002 && starts(ids, job, 2999) &&
              memcmp(ids + 2999, more, sizeof more) == 0,
          "%s", e.msg);
    free(ids);
    CHECK(store_spans(s, job, &sp, &e) == 0 && sp.n == 1 && sp.v[0].start == 2999 && sp.v[0].n == 3 &&
          sp.v[0].bytes == 3 && strcmp(sp.v[0].text, "Two") == 0);
    span_list_free(&sp);
    CHECK(rig_claim(s, w, job, &c) == 1 && c.end.tokens == 3002 && c.wanted == 4000);
    CHECK(store_fork(s, job, &(struct edit_spec){ .at = 3001, .seed = 5, .add = add, .wanted = 5000,
        .parameters = "{}" }, &fork1, &e) == 0, "a running one too: %s", e.msg);
    CHECK(store_fork(s, fork1, &(struct edit_spec){ .at = 3003, .seed = 6, .wanted = 5000 }, &fork2, &e) == 0,
          "%s", e.msg);
    CHECK(store_fork(s, fork1, &(struct edit_spec){ .at = 3005, .seed = 6, .wanted = 5000 }, &fork2,
                     &e) == -1, "%s", e.msg);
    CHECK(store_fork(s, fork1, &(struct edit_spec){ .at = 0, .seed = 6, .wanted = 50 }, &fork2, &e) == 0,
          "%s", e.msg);
    fork2 = 3;
    CHECK(store_tokens(s, fork2, 2998, SIZE_MAX, &ids, &n, &e) == 0 && n == 5 &&
              ids[0] == rig_token(job, 2998) && ids[1] == 9 && ids[2] == 8 && ids[3] == 9 && ids[4] == 8,
          "%s", e.msg);
    free(ids);
    /* shared 0, given 2999, given 3001, shared 3001 */
    CHECK(store_spans(s, fork2, &sp, &e) == 0 && sp.n == 4, "%zu", sp.n);
    CHECK(strcmp(sp.v[0].kind, "shared") == 0 && sp.v[0].n == 3001 && sp.v[0].parent == job);
    CHECK(strcmp(sp.v[1].kind, "given") == 0 && sp.v[1].start == 2999 && sp.v[1].n == 2 && !sp.v[1].text,
          "cut: its text is no more as given");
    CHECK(sp.v[2].start == 3001 && sp.v[2].n == 2 && sp.v[3].start == 3001 && sp.v[3].n == 2 &&
          sp.v[3].parent == fork1);
    span_list_free(&sp);
    CHECK(store_jobs(s, (int64_t[]){ fork1, fork2, 4 }, 3, &l, &e) == 0 && l.n == 3);
    CHECK(l.v[0].seed == 5 && l.v[0].parent == job && l.v[0].parent_at == 3001 && l.v[0].given == 5 &&
          l.v[0].tokens == 3004 && strcmp(l.v[0].numerics, "cpu-1") == 0);
    CHECK(l.v[1].given == 4 && !l.v[2].numerics && l.v[2].tokens == 0);
    job_list_free(&l);
    struct job_input in;
    CHECK(store_input(s, fork2, &in, &e) == 0 && strcmp(in.parameters, "{}") && in.n_prompt == 5);
    job_input_free(&in);
    /* a fork takes along the parts before its place */
    CHECK(parts_are(s, fork1, "3001={} ") && parts_are(s, fork2, "3001={} ") && parts_are(s, 4, ""));
    CHECK(store_change(s, CHANGE_PAUSE, 0, &job, 1, NULL, &e) == 0 &&
              extend(s, job, 1000, 1000, NULL, &e) == 0 &&
              rig_text_is(s, job, 1000),
          "%s", e.msg);
    /* new parameters begin a part; without them the last part's hold on, also if the text is cut before it */
    CHECK(store_change(s, CHANGE_PAUSE, 0, &job, 1, NULL, &e) == 0 &&
              extend(s, job, 900, 1000, "[1]", &e) == 0 && parts_are(s, job, "900=[1] ") &&
              store_change(s, CHANGE_PAUSE, 0, &job, 1, NULL, &e) == 0 &&
              extend(s, job, 800, 1000, NULL, &e) == 0 && parts_are(s, job, "800=[1] ") &&
              store_change(s, CHANGE_PAUSE, 0, &job, 1, NULL, &e) == 0 &&
              extend(s, job, 700, 1000, "[2]", &e) == 0 && parts_are(s, job, "700=[2] "),
          "%s", e.msg);
    CHECK(store_change(s, CHANGE_PAUSE, 0, &job, 1, NULL, &e) == 0 && extend(s, job, 0, 10, NULL, &e) == 0 &&
              rig_text_is(s, job, 0),
          "%s", e.msg);
    CHECK(store_check(s, &e) == 0, "%s", e.msg);
    store_close(s);
}

static void damage_to_a_text_is_located(void)
{
    static const struct { const char *sql, *says;
    } cases[] = {
        { "UPDATE chunk SET data = zeroblob(length(data)) WHERE start = 512",
          "chunk 1 (tokens from 512 on) is damaged: its checksum" },
        { "UPDATE chunk SET crc = crc + 1 WHERE start = 0", "chunk 0" },
        { "DELETE FROM chunk WHERE start = 512", "a chunk is missing" },
        { "DELETE FROM chunk WHERE start = 1024", "tokens 1024 to 1200 are missing" },
        { "UPDATE chunk SET n = 1000 WHERE start = 512", "it has 1000 tokens, 512 were expected" },
        { "UPDATE chunk SET n = -1 WHERE start = 512", "chunk 1" },
        { "UPDATE chunk SET link = zeroblob(32) WHERE start = 512", "its hash does not follow" },
        { "UPDATE chunk SET link = x'00' WHERE start = 1024", "its hash does not follow" },
        { "CREATE TEMP TABLE x AS SELECT * FROM chunk WHERE start = 0; UPDATE chunk SET crc = (SELECT crc "
          "FROM x), data = (SELECT data FROM x) WHERE start = 512",
          "chunk 1 (tokens from 512 on) is damaged: its hash" },
        { "UPDATE job SET tokens = 1024; DELETE FROM chunk WHERE start = 1024",
          "differs from the hash in its row" },
        { "UPDATE job SET tokens = 9999", "it has 176 tokens, 512 were expected" },
        { "UPDATE job SET link = zeroblob(32)", "differs from the hash in its row" },
        { "UPDATE job SET tokens = -1", "row of job 1 is damaged" },
        { "UPDATE job SET prompt_tokens = 4", "prompt of job 1 is damaged" },
        { "UPDATE input SET ids = zeroblob(4)", "prompt of job 1 is damaged" },
    };
    struct err e = {0};
    struct claim c;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    int64_t job = rig_submit(s, 5000), w = rig_worker(s);
    CHECK(rig_claim(s, w, 0, &c) == 1 && rig_commit(s, &c, 1200, &(struct job_end){ .state = JOB_PAUSED },
        &e) == 0);
    char *good;
    size_t n;
    store_close(s);
    CHECK(file_read(&good, &n, rig_path, 1 << 24, &e) == 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t *ids;
        size_t k;
        rig_write(good, n);
        rig_sql(cases[i].sql);
        s = rig_open(STORE_WRITE);
        CHECK(store_check(s, &e) == -1, "case %zu", i);
        CHECK(store_tokens(s, job, 0, SIZE_MAX, &ids, &k, &e) == -1 && strstr(e.msg, cases[i].says),
              "case %zu: %s", i, e.msg);
        int64_t w2 = rig_worker(s);
        CHECK(store_claim(s, &(struct claim_request){ .worker = w2, .job = job }, &c, &e) == 1 &&
              store_begin(s, &c,
            "cpu-1", "fp", false, &ids, &e) == -1, "nothing is written after it");
        store_close(s);
    }
    rig_write(good, n);
    rig_sql("UPDATE chunk SET data = zeroblob(length(data)) WHERE start = 1024");
    s = rig_open(STORE_READ);
    int32_t *ids;
    CHECK(store_tokens(s, job, 0, 1024, &ids, &n, &e) == 0 && n == 1024 && starts(ids, job, n),
          "what is before the damage can be read");
    free(ids);
    store_close(s);
    free(good);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void long_texts_and_large_batches_are_quick(void)
{
    enum { JOBS = 10000, TOKENS = 100000 };
    struct err e = {0};
    struct job_spec *v = calloc(JOBS, sizeof *v);
    int64_t *ids = calloc(JOBS, sizeof *ids), w;
    char (*names)[16] = calloc(JOBS, sizeof *names);
    struct claim c;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    for (int i = 0; i < JOBS; i++) {
        snprintf(names[i], sizeof *names, "line-%d", i);
        v[i] = rig_job(TOKENS);
        v[i].custom_id = names[i];
        v[i].identity = names[i];
        v[i].identity_bytes = strlen(names[i]);
    }
    double t = clock_seconds(), cpu = cpu_seconds();
    CHECK(store_submit(s, "big", v, JOBS, ids, NULL, NULL, &e) == 0, "%s", e.msg);
    double submit = clock_seconds() - t;
    struct job_list l;
    int32_t *tokens;
    size_t n;
    t = clock_seconds();
    CHECK(store_jobs(s, ids, JOBS, &l, &e) == 0 && l.n == JOBS);
    double list = clock_seconds() - t;
    job_list_free(&l);
    w = rig_worker(s);
    t = clock_seconds();
    CHECK(store_claim(s, &(struct claim_request){ .worker = w, .model = "/m/one" }, &c, &e) == 1);
    double claim = clock_seconds() - t;
    CHECK(store_begin(s, &c, "cpu-1", "fp", false, &tokens, &e) == 0);
    free(tokens);
    int64_t page = rig_sql("PRAGMA page_size"), before = rig_sql("PRAGMA page_count");
    CHECK(rig_commit(s, &c, TOKENS, NULL, &e) == 0);
    int64_t bytes = (rig_sql("PRAGMA page_count") - before) * page;
    t = clock_seconds();
    CHECK(store_tokens(s, c.job, 0, SIZE_MAX, &tokens, &n, &e) == 0 && n == TOKENS &&
              starts(tokens, c.job, n),
          "%s", e.msg);
    double read = clock_seconds() - t;
    free(tokens);
    t = clock_seconds();
    for (int i = 0; i < JOBS; i++) {
        struct job_input in;
        CHECK(store_input(s, ids[i], &in, &e) == 0 && store_tokens(s, ids[i], 0, 10, &tokens, &n, &e) == 0);
        job_input_free(&in);
        free(tokens);
    }
    double export = clock_seconds() - t;
    printf("    %d inputs and texts read one by one in %.2f s\n", JOBS, export);
    printf("    %d jobs submitted in %.2f s, listed in %.2f s, one claimed in %.4f s; %d random tokens: %lld "
           "bytes, read back and checked in %.3f s\n",
           JOBS, submit, list, claim, TOKENS, (long long)bytes, read);
    cpu = cpu_seconds() - cpu;           /* CPU time: other programs do not matter */
    CHECK(cpu < 10, "%.2f s of CPU time for all of it", cpu);
    store_close(s);
    free(v);
    free(ids);
    free(names);
}

int main(void)
{
    RUN(submitted_jobs_can_be_read_back);
    RUN(a_batch_name_makes_submitting_idempotent);
    RUN(selections_select_the_named_jobs);
    RUN(verbs_change_only_jobs_in_the_right_state);
    RUN(removed_jobs_leave_nothing_in_the_file);
    RUN(a_text_grows_and_can_be_read_in_parts);
    RUN(figures_add_up);
    RUN(texts_are_extended_and_forked);
    RUN(damage_to_a_text_is_located);
    RUN(long_texts_and_large_batches_are_quick);
    rig_end();
    return test_end();
}
