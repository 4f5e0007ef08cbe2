/* Reports of a store that this test fills: figures against independent counts; pages, tables and CSV with
 * hostile names and texts; and a report of a job while another connection writes it. */
#include <ctype.h>
#include <pthread.h>
#include <stdatomic.h>

#include "src/cli/cmd_store.h"
#include "runs/report/report.h"
#include "src/text/tokenizer.h"
#include "tests/json_at.h"
#include "tests/store_rig.h"

enum { LENGTH = 2500, LOOP_FROM = 1200, LOOP_TO = 1900, PERIOD = 12 };

static struct tokenizer *demo;
static struct store *store;
static int64_t worker, drafted_job, plain_job, hostile_job, extended_job;
static int32_t text_ids[LENGTH];

static const char hostile_name[] = "<img src=x onerror=alert(1)>&amp;\"'";
static const char hostile_id[] =
    "</script></style><script src=http://example.org/x.js></script>\x1b[31m\xe2\x80\xae"
    "txt";
static const char hostile_formula[] = "=HYPERLINK(\"http://example.org\",\"x\")";

static uint64_t state = 1;
static size_t random_below(size_t n)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (size_t)(state >> 33) % n;
}

/* The counters of a worker, with known sums. */
static void put_metrics(struct commit *b, struct metric *m, size_t start, double rounds, bool drafts,
                        const char *source)
{
    const double tokens = (double)b->n, drafted = drafts ? 3 * rounds : 0;
    const struct { const char *source, *name; unsigned index; double value;
    } all[] = {
        { "", "tokens", 0, tokens },
        { "", "rounds", 0, rounds },
        { "", "seconds", 0, 2.0 },
        { "", "draft_seconds", 0, drafts ? 0.25 : 0 },
        { "", "verify_seconds", 0, 1.5 },
        { "", "control_seconds", 0, 0.125 },
        { "", "predicted_rounds", 0, rounds - 4 },
        { "", "predicted_seconds", 0, 0.002 * (rounds - 4) },
        { "", "measured_seconds", 0, 0.003 * (rounds - 4) },
        { "", "verified_rows", 0, drafts ? 4 * rounds : rounds },
        { "", "checkpoint_commits", 0, 3 },
        { "", "checkpoint_put_seconds", 0, 0.01 },
        { "", "checkpoint_cpu_seconds", 0, 0.02 },
        { "", "prefill_seconds", 0, 0.5 },
        { "", "prefill_tokens", 0, 10 },
        { "", "drafted", 0, drafted },
        { "", "accepted", 0, tokens - rounds },
        { "", "drafted_depth", 0, drafted },
        { "", "beta_accepted", 0, 5 },
        { "", "reached", 1, rounds },
        { "", "accepted_at", 1, tokens - rounds },
        { "", "histogram", 2, rounds },
        { source, "drafted", 0, drafted },
        { source, "accepted", 0, tokens - rounds },
    };
    b->n_metrics = sizeof all / sizeof *all - (drafts ? 0 : 2);
    for (size_t i = 0; i < b->n_metrics; i++)
        m[i] = (struct metric){ start, all[i].source, all[i].name, all[i].index, all[i].value };
    b->metrics = m;
}

static int64_t make_job(const struct job_spec *spec, const char *batch, double rounds_of_1000, bool drafts,
                        const struct job_end *end)
{
    struct claim c;
    struct err e = {0};
    int64_t id = 0;
    CHECK(store_submit(store, batch, spec, 1, &id, NULL, NULL, &e) == 0, "%s", e.msg);
    CHECK(rig_claim(store, worker, id, &c) == 1);
    for (size_t at = 0; at < LENGTH; at += 1000) {
        struct metric m[32];
        struct round_row row = { .tokens = 3, .sources = "<b>ngram</b>", .depth = 3, .drafted = 9, .rows = 10,
                                 .accepted = 2, .draft_seconds = 0.001f, .verify_seconds = 0.002f,
                                 .start = at };
        struct commit b = { .ids = text_ids + at, .n = MIN((size_t)1000, LENGTH - at), .rounds = &row,
                            .n_rounds = 1, .end = at + 1000 >= LENGTH ? end : NULL };
        put_metrics(&b, m, at, rounds_of_1000 * (double)b.n / 1000, drafts, "heads<i>");
        CHECK(store_commit(store, &c, &b, &e) == 0, "%s", e.msg);
    }
    return id;
}

static void make_store(void)
{
    static const char angle[] = "<b>&\"it's\" <script>alert('x')</script>";
    int32_t *piece;
    size_t n;
    struct err e = {0};
    struct job_end done = { .state = JOB_DONE, .finish_reason = "length" };
    struct job_end failed = { .state = JOB_FAILED, .error = "it broke: <script>\x1b[2J" };
    CHECK(tokenizer_encode(demo, &piece, &n, angle, sizeof angle - 1, false, &e) == 0 && n >= PERIOD, "%s",
          e.msg);
    for (size_t i = 0; i < LENGTH; i++)
        text_ids[i] = i >= LOOP_FROM && i < LOOP_TO ? piece[i % PERIOD] : (int32_t)(300 + random_below(3000));
    free(piece);
    rig_new();
    store = rig_open(STORE_CREATE);
    worker = rig_worker(store);
    struct job_spec j = rig_job(LENGTH);
    j.model = "models/demo";
    j.parameters = "{\"temperature\": 0.7, \"stop\": [\"</style><script>\"], \"top_k\": -1, \"drafting\": "
                   "{\"drafter\": \"heads\", \"tree\": [1, 3, 3]}}";
    drafted_job = make_job(&j, NULL, 250, true, &done);
    j.parameters =
        "{\"temperature\": 0.7, \"stop\": [\"</style><script>\"], \"top_k\": -1, \"drafting\": "
        "{\"drafter\": \"none\", \"tree\": []}}";
    plain_job = make_job(&j, NULL, 1000, false, &done);
    j.custom_id = hostile_id;
    j.identity = "x";
    j.identity_bytes = 1;
    j.model = hostile_formula;
    j.parameters = "{\"temperature\": 1.5, \"stop\": [\"@SUM(1)\"], \"drafting\": {\"drafter\": \"=1+1\", "
                   "\"tree\": []}}";
    hostile_job = make_job(&j, hostile_name, 250, true, &failed);
    j = rig_job(LENGTH);
    j.model = "models/demo";
    extended_job = make_job(&j, NULL, 250, true, &done);
    CHECK(store_extend(store, extended_job, &(struct edit_spec){ .at = LENGTH, .wanted = LENGTH + 700,
                       .add = { text_ids, 700, "given", 5 } }, &e) == 0, "%s", e.msg);
}

typedef int renderer(FILE *f, const struct reports *l, struct err *e);

/* The rendered report of jobs; free it. */
static char *report_of(const int64_t *ids, size_t n, const struct report_options *o, renderer *render)
{
    struct reports l;
    struct err e = {0};
    char *s = NULL;
    size_t bytes;
    if (reports_open(&l, &(struct report_from){ store, ids, n }, 1, o, &e)) {
        CHECK(false, "%s", e.msg);
        return strdup("");
    }
    FILE *f = open_memstream(&s, &bytes);
    CHECK(render(f, &l, &e) == 0, "%s", e.msg);
    fclose(f);
    CHECK(strlen(s) == bytes);
    reports_close(&l);
    return s;
}

/* ---- figures ---- */

static int by_gram(const void *a, const void *b) { return memcmp(a, b, 4 * sizeof(int32_t)); }

/* Distinct-n by sorting. */
static double brute_distinct(const int32_t *t, size_t from, size_t to, size_t n)
{
    static int32_t gram[LENGTH][4];
    size_t k = 0, different = 0;
    for (size_t i = from; i + n <= to; i++, k++) {
        memset(gram[k], 0, sizeof gram[k]);
        memcpy(gram[k], t + i, n * sizeof *t);
    }
    qsort(gram, k, sizeof *gram, by_gram);
    for (size_t i = 0; i < k; i++)
        different += i == 0 || by_gram(gram[i], gram[i - 1]);
    return (double)different / (double)k;
}

struct parsed { char *text; struct json root; };

static struct parsed json_of(const int64_t *ids, size_t n, const struct report_options *o)
{
    struct parsed p = { .text = report_of(ids, n, o, report_json) };
    struct err e = {0};
    CHECK(js_check(&p.root, "report", p.text, strlen(p.text), &e) == 0, "%s", e.msg);
    return p;
}

static double distinct_at(const struct json *v, const char *list, size_t n)
{
    char path[64];
    snprintf(path, sizeof path, "%s.%zu", list, n);
    return number_at(v, path);
}

/* A damaged store: the report has no parameters, and the other figures. */
static void parameters_that_are_no_object_become_an_empty_one(void)
{
    static char *const damaged[] = { "", "1", "[1]", "{\"temperature\": 1", "x{" };
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        struct job_spec j = rig_job(LENGTH);
        struct err e = {0};
        int64_t id = 0;
        j.parameters = damaged[i];
        CHECK(store_submit(store, NULL, &j, 1, &id, NULL, NULL, &e) == 0, "%s", e.msg);
        struct parsed p = json_of(&id, 1, &(struct report_options){0});
        struct json v = json_at(&p.root, "parameters");
        CHECK(v.s && js_kind(&v) == JS_OBJECT && js_count(&v) == 0 && number_at(&p.root, "tokens") == 0,
              "\"%s\": %s", damaged[i], p.text);
        free(p.text);
    }
}

static void json_has_the_figures(void)
{
    static const char *const names[] = { "job",
                                         "name",
                                         "custom_id",
                                         "state",
                                         "finish_reason",
                                         "model",
                                         "seed",
                                         "parameters",
                                         "numerics",
                                         "prompt_tokens",
                                         "tokens",
                                         "given_tokens",
                                         "seconds",
                                         "prefill_seconds",
                                         "tokens_per_second",
                                         "rounds",
                                         "mean_acceptance_length",
                                         "alpha",
                                         "beta",
                                         "drafted",
                                         "verified_rows",
                                         "accepted",
                                         "reached_per_depth",
                                         "accepted_per_depth",
                                         "acceptance_histogram",
                                         "sources",
                                         "time",
                                         "refreshes",
                                         "resumes",
                                         "distinct",
                                         "repetition",
                                         "windows" };
    struct parsed p = json_of(&drafted_job, 1, &(struct report_options){ .rounds = true });
    const struct json *o = &p.root;
    const double rounds = LENGTH / 4.0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK(json_at(o, names[i]).s, "%s", names[i]);
    CHECK(number_at(o, "job") == (double)drafted_job && number_at(o, "tokens") == LENGTH &&
          number_at(o, "given_tokens") == 0);
    CHECK(near(number_at(o, "seconds"), 6, 1e-9, 0) &&
          near(number_at(o, "tokens_per_second"), LENGTH / 6.0, 1e-6, 0) &&
          near(number_at(o, "prefill_seconds"), 1.5, 1e-9, 0));
    CHECK(number_at(o, "rounds") == rounds && near(number_at(o, "mean_acceptance_length"), 4, 1e-9, 0));
    CHECK(near(number_at(o, "alpha"), (LENGTH - rounds) / (3 * rounds), 1e-9, 0) &&
          near(number_at(o, "beta"), 15 / (3 * rounds), 1e-9, 0));
    CHECK(number_at(o, "verified_rows") == 4 * rounds &&
          number_at(o, "sources.heads<i>.accepted") == LENGTH - rounds);
    CHECK(near(number_at(o, "time.draft"), 0.75, 1e-9, 0) &&
          near(number_at(o, "time.checkpoint"), 0.03, 1e-9, 0) &&
          near(number_at(o, "time.other"), 6 - 0.75 - 4.5 - 0.375, 1e-9, 0));
    CHECK(number_at(o, "seconds_per_round.rounds") == rounds - 12 &&
          near(number_at(o, "seconds_per_round.predicted"), 0.002, 1e-9, 0) &&
          near(number_at(o, "seconds_per_round.measured"), 0.003, 1e-9, 0));
    CHECK(count_at(o, "windows") == 3);
    for (size_t i = 0; i < 3; i++) {
        char path[32];
        snprintf(path, sizeof path, "windows.%zu", i);
        const struct json v = json_at(o, path);
        size_t from = i * 1000, to = MIN(from + 1000, (size_t)LENGTH);
        CHECK(v.s && number_at(&v, "start") == (double)from &&
              number_at(&v, "tokens") == (double)(to - from) && number_at(&v, "seconds") == 2);
        for (size_t n = 1; n <= 4 && v.s; n++) {
            CHECK(near(distinct_at(&v, "distinct", n), brute_distinct(text_ids, from, to, n), 1e-9, 0),
                  "window %zu, n %zu: %f", i, n, distinct_at(&v, "distinct", n));
            CHECK(near(distinct_at(&v, "distinct_so_far", n), brute_distinct(text_ids, 0, to, n), 1e-9, 0));
            CHECK(
                near(distinct_at(o, "distinct.tokens", n), brute_distinct(text_ids, 0, LENGTH, n), 1e-9, 0));
        }
    }
    CHECK(count_at(o, "repetition") == 1);
    CHECK(number_at(o, "repetition.0.start") == LOOP_FROM + PERIOD &&
              number_at(o, "repetition.0.end") == LOOP_TO && number_at(o, "repetition.0.period") == PERIOD,
          "%f to %f", number_at(o, "repetition.0.start"), number_at(o, "repetition.0.end"));
    char *excerpt = text_at(o, "repetition.0.excerpt");
    CHECK(excerpt && strstr(excerpt, "script"), "%s", excerpt ? excerpt : "none");
    CHECK(count_at(o, "round_list") == 3 && null_at(o, "speedup"));
    free(excerpt);
    free(p.text);
}

static void speedup_is_measured_against_plain(void)
{
    int64_t ids[2] = { drafted_job, plain_job };
    struct parsed p = json_of(ids, 2, &(struct report_options){0});
    const struct json *a = &p.root;
    CHECK(js_count(a) == 2);
    CHECK(near(number_at(a, "0.speedup"), 1, 1e-9, 0) && number_at(a, "0.plain_job") == (double)plain_job);
    CHECK(null_at(a, "1.speedup") && number_at(a, "1.mean_acceptance_length") == 1);
    CHECK(null_at(a, "1.beta"));
    free(p.text);
}

/* A job that had company in its passes has no speedup, and is none to compare with. */
static void only_jobs_that_ran_alone_are_compared(void)
{
    int64_t ids[2] = { drafted_job, plain_job };
    char sql[300];
    for (size_t k = 0; k < 2; k++) {
        snprintf(sql, sizeof sql,
                 "INSERT INTO metric VALUES (%" PRId64 ", 0, '', 'jobs', 1, 30), "
                 "(%" PRId64 ", 0, '', 'jobs', 8, 90), (%" PRId64 ", 0, '', 'worker_tokens', 0, 4000), "
                 "(%" PRId64 ", 0, '', 'worker_seconds', 0, 5)", ids[k], ids[k], ids[k], ids[k]);
        rig_sql(sql);
        struct parsed p = json_of(ids, 2, &(struct report_options){0});
        CHECK(null_at(&p.root, "0.speedup") && null_at(&p.root, "0.plain_job"));
        const struct json shared = json_at(&p.root, k ? "1" : "0");
        CHECK(shared.s && near(number_at(&shared, "worker_tokens_per_second"), 800, 1e-6, 0) &&
              count_at(&shared, "rounds_by_jobs") == 8 && number_at(&shared, "rounds_by_jobs.7") == 90);
        free(p.text);
        char *table = report_of(ids, 2, &(struct report_options){0}, report_table);
        CHECK(strstr(table, "only jobs that ran alone"), "%s", table);
        free(table);
        table = report_of(&ids[k], 1, &(struct report_options){0}, report_table);
        CHECK(strstr(table, "800.0 tokens/s of all jobs meanwhile; passes 25.0 % with 1 job, 75.0 % with 8 "
                            "jobs") && strstr(table, "not compared"), "%s", table);
        free(table);
        rig_sql("DELETE FROM metric WHERE name IN ('jobs', 'worker_tokens', 'worker_seconds')");
    }
}

static void given_tokens_do_not_count(void)
{
    struct parsed p = json_of(&extended_job, 1, &(struct report_options){0});
    CHECK(number_at(&p.root, "tokens") == LENGTH && number_at(&p.root, "given_tokens") == 700);
    CHECK(near(number_at(&p.root, "distinct.tokens.2"), brute_distinct(text_ids, 0, LENGTH, 2), 1e-9, 0));
    free(p.text);
}

static void a_lost_model_costs_only_words(void)
{
    struct parsed p = json_of(&hostile_job, 1, &(struct report_options){0});
    char *id = text_at(&p.root, "custom_id");
    CHECK(null_at(&p.root, "distinct.words") && number_at(&p.root, "tokens") == LENGTH);
    CHECK(count_at(&p.root, "repetition") == 1 && null_at(&p.root, "repetition.0.excerpt"));
    CHECK(id && strcmp(id, hostile_id) == 0, "JSON has the custom_id unchanged");
    free(id);
    free(p.text);
}

static void by_a_parameter(void)
{
    int64_t ids[3] = { drafted_job, plain_job, hostile_job };
    struct parsed p = json_of(ids, 3, &(struct report_options){ .by = "temperature" });
    const struct json *a = &p.root;
    CHECK(js_count(a) == 2);
    CHECK(number_at(a, "0.temperature") == 0.7 && number_at(a, "0.n") == 2, "numbers are numbers");
    CHECK(near(number_at(a, "0.acceptance length.mean"), 2.5, 1e-9, 0) &&
          near(number_at(a, "0.acceptance length.sd"), sqrt(4.5), 1e-9, 0));
    CHECK(near(number_at(a, "0.distinct-2.mean"), brute_distinct(text_ids, 0, LENGTH, 2), 1e-9, 0));
    CHECK(null_at(a, "1.tokens/s.sd"), "one job has no deviation");
    free(p.text);
    p = json_of(ids, 3, &(struct report_options){ .by = "temperature,drafter" });
    char *drafter = text_at(a, "0.drafter");
    CHECK(js_count(a) >= 2 && number_at(a, "0.temperature") == 0.7 && drafter && *drafter);
    CHECK(number_at(a, "0.loops.n") == number_at(a, "0.n") && js_kind(&p.root) == JS_ARRAY);
    CHECK(json_at(a, "0.speedup.mean").s && json_at(a, "0.distinct-4.n").s && json_at(a, "0.alpha.sd").s);
    free(drafter);
    free(p.text);
    p = json_of(ids, 3, &(struct report_options){ .by = "top-k" });
    CHECK(js_count(a) >= 1 && json_at(a, "0.top-k").s, "as the option is spelled");
    free(p.text);
    struct reports l;
    struct err e = {0};
    CHECK(reports_open(&l, &(struct report_from){ store, ids, 3 }, 1,
                       &(struct report_options){ .by = "nothing" }, &e) == -1 &&
              e.code == ERR_INPUT && strstr(e.msg, "drafting.drafter"),
          "%s", e.msg);
}

/* ---- a job that is being written ---- */

enum { COMMITS = 2400, COMMITTED = 1, REPORTS = 150 };
struct committer { struct store *s; struct claim c; atomic_bool stop; int commits; };

static void *commit_on(void *ctx)
{
    struct committer *x = ctx;
    struct err e = {0};
    for (; x->commits < COMMITS && !x->stop; x->commits++) {
        struct metric m = { (size_t)x->commits * COMMITTED / METRIC_WINDOW * METRIC_WINDOW, "", "tokens", 0,
                            COMMITTED };
        struct commit b = {
            .ids = text_ids + x->commits * COMMITTED, .n = COMMITTED, .metrics = &m, .n_metrics = 1
        };
        if (store_commit(x->s, &x->c, &b, &e))
            abort();
    }
    return NULL;
}

/* The row, the counters and the tokens of a report are from one moment, though another connection commits. */
static void a_report_is_of_one_moment(void)
{
    struct err e = {0};
    struct reports l;
    pthread_t thread;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    struct job_spec spec = rig_job(COMMITS * COMMITTED + 1);
    struct committer x = { .s = rig_open(STORE_WRITE) };
    int64_t id = 0;
    spec.model = "models/demo";
    CHECK(store_submit(s, NULL, &spec, 1, &id, NULL, NULL, &e) == 0, "%s", e.msg);
    CHECK(rig_claim(x.s, rig_worker(x.s), id, &x.c) == 1);
    CHECK(pthread_create(&thread, NULL, commit_on, &x) == 0);
    size_t last = 0, grew = 0;
    for (int i = 0; i < REPORTS; i++) {
        if (reports_open(&l, &(struct report_from){ s, &id, 1 }, 1, &(struct report_options){0}, &e)) {
            CHECK(false, "%s", e.msg);
            break;
        }
        const struct report *r = l.v;
        CHECK(l.n == 1 && r->tokens == r->job->tokens && r->sum.tokens == (double)r->job->tokens,
              "row %zu, text %zu, counters %.0f", r->job->tokens, r->tokens, r->sum.tokens);
        grew += r->tokens > last;
        last = r->tokens;
        reports_close(&l);
    }
    x.stop = true;
    pthread_join(thread, NULL);
    CHECK(grew >= 2, "the job grew between %zu reports, %d commits", grew, x.commits);
    store_close(x.s);
    store_close(s);
}

/* ---- pages ---- */

static bool is_void(const char *name) { return !strcmp(name, "meta") || !strcmp(name, "br"); }

/* A strict reader. Elements close in order, attributes are quoted, every & begins a reference, and nothing
 * loads anything. Returns the number of elements. */
static size_t read_page(const char *s)
{
    char stack[64][16];
    size_t depth = 0, elements = 0;
    for (const char *p = s; *p; p++) {
        unsigned char c = (unsigned char)*p;
        CHECK(c >= 0x20 || c == '\n', "a control byte at %zu", (size_t)(p - s));
        if (c == '&')
            CHECK(p[1] == '#' || isalpha((unsigned char)p[1]), "%.20s", p);
        CHECK(c != '>', "%.40s", p);
        if (c != '<')
            continue;
        bool closes = p[1] == '/';
        char name[16] = "";
        size_t n = 0;
        p += 1 + closes;
        if (*p == '!') {                         /* the document type */
            p = strchr(p, '>');
            continue;
        }
        while (isalnum((unsigned char)*p) && n < 15)
            name[n++] = *p++;
        CHECK(n > 0 && strcmp(name, "script") && strcmp(name, "img") && strcmp(name, "iframe") &&
                  strcmp(name, "link"),
              "<%s", name);
        while (*p == ' ') {
            char attribute[32] = "";
            size_t k = 0;
            for (p++; (isalnum((unsigned char)*p) || *p == '-') && k < 31; p++)
                attribute[k++] = *p;
            CHECK(k > 0 && p[0] == '=' && p[1] == '"', "<%s %s", name, attribute);
            CHECK(strncmp(attribute, "on", 2) && strcmp(attribute, "src") && strcmp(attribute, "style"),
                  "<%s %s", name, attribute);
            CHECK(strcmp(attribute, "href") || p[2] == '#', "href leaves the page");
            p = strchr(p + 2, '"');
            CHECK(p != NULL);
            if (!p++)
                return 0;
        }
        bool empty = *p == '/';
        p += empty;
        CHECK(*p == '>', "<%s ...%.20s", name, p);
        if (closes) {
            CHECK(depth > 0 && strcmp(stack[depth - 1], name) == 0, "</%s> closes <%s>", name,
                  depth ? stack[depth - 1] : "nothing");
            if (!depth--)
                return 0;
        } else {
            elements++;
            if (!empty && !is_void(name)) {
                CHECK(depth < 64);
                strcpy(stack[depth % 64], name);
                depth++;
            }
        }
    }
    CHECK(depth == 0, "%s is open at the end", depth ? stack[depth - 1] : "");
    return elements;
}

static void pages_are_well_formed_and_harmless(void)
{
    int64_t ids[4] = { drafted_job, plain_job, hostile_job, extended_job };
    for (size_t n = 1; n <= 4; n++) {
        char *s = report_of(ids + (n == 1 ? 2 : 0), n,
                            &(struct report_options){ .rounds = true, .by = n == 4 ? NULL : "drafter" },
                            report_html);
        CHECK(read_page(s) > 100);
        CHECK(strstr(s, "Content-Security-Policy") && strstr(s, "default-src 'none'") &&
              !strstr(s, "http://example.org/x.js></") && !strstr(s, "\x1b"));
        CHECK(!strstr(s, "\xe2\x80\xae"), "a mark that turns the line is shown by its number");
        free(s);
    }
}

static void plots_hold_their_data(void)
{
    char *s = report_of(&drafted_job, 1, &(struct report_options){0}, report_html), want[64];
    const char *at = strstr(s, "data-name=\"length\" data-y=\"");
    CHECK(at && strncmp(at + strlen("data-name=\"length\" data-y=\""), "4 4 4\"", 6) == 0);
    snprintf(want, sizeof want, "data-name=\"Distinct-2\" data-y=\"%.6g ",
             brute_distinct(text_ids, 0, 1000, 2));
    CHECK(strstr(s, want), "%s", want);
    CHECK(strstr(s, "data-name=\"heads&#60;i&#62;\" data-y=\"0.75 0.75 0.75\""));
    CHECK(strstr(s, "predicted 2.000 ms, measured 3.000 ms"));
    at = strstr(s, "<blockquote><bdi>");
    CHECK(strstr(s, "1 found</b>") && at && strstr(at, "b&#62;&#38;"), "the excerpt: %.200s",
          at ? at : "none");
    free(s);
}

/* ---- tables ---- */

static void csv_is_rectangular_and_no_formula(void)
{
    int64_t ids[4] = { drafted_job, plain_job, hostile_job, extended_job };
    char *s = report_of(ids, 4, &(struct report_options){0}, report_csv);
    size_t cells = 1, first = 0, lines = 0;
    bool quoted = false, begins = true;
    for (const char *p = s; *p; p++) {
        if (begins && strchr("=+-@", *p))
            CHECK(isdigit((unsigned char)p[1]), "a formula: %.30s", p);
        if (begins && *p == '"')
            CHECK(!strchr("=+-@", p[1]), "a formula: %.30s", p);
        begins = false;
        if (*p == '"')
            quoted = !quoted;
        if (quoted)
            continue;
        cells += *p == ',';
        begins = *p == ',' || *p == '\n';
        if (*p == '\n') {
            first = first ? first : cells;
            CHECK(cells == first, "line %zu has %zu cells, the first %zu", lines, cells, first);
            cells = 1;
            lines++;
        }
    }
    CHECK(lines == 5 && !quoted && strstr(s, "\"'=HYPERLINK(\"\"http") && strstr(s, ",drafting.drafter"));
    free(s);
    s = report_of(ids, 2, &(struct report_options){ .rounds = true }, report_csv);
    CHECK(strncmp(s, "job,start,tokens,", 17) == 0 && strstr(s, ",2000,3,"));
    free(s);
}

static void tables_are_safe_for_terminals(void)
{
    int64_t ids[4] = { drafted_job, plain_job, hostile_job, extended_job };
    for (size_t n = 1; n <= 4; n += 3) {
        char *s = report_of(ids + (n == 1 ? 2 : 0), n, &(struct report_options){ .rounds = true },
                            report_table);
        for (const char *p = s; *p; p++)
            CHECK((unsigned char)*p >= 0x20 || *p == '\n', "byte %02x", (unsigned)(unsigned char)*p);
        free(s);
    }
    char *s = report_of(&drafted_job, 1, &(struct report_options){0}, report_table);
    CHECK(strstr(s, "  1212  ") && strstr(s, "  1900  every 12  ") && strstr(s, "acceptance length 4.00") &&
              strstr(s, "predicted 2.000 ms, measured 3.000 ms ("),
          "%s", s);
    free(s);
}

/* Writes a page for a browser (tests/cli/report_page.sh). */
static int write_page(const char *path)
{
    int64_t ids[2] = { drafted_job, hostile_job };
    char *s = report_of(ids, 2, &(struct report_options){ .by = "drafter" }, report_html);
    FILE *f = fopen(path, "w");
    int rc = !f || fputs(s, f) < 0;
    rc |= f && fclose(f);
    free(s);
    store_close(store);
    rig_end();
    return rc;
}

/* An export of a job that is being written has as many tokens as the job's row. */
static void a_text_is_that_of_its_row(void)
{
    struct err e = {0};
    struct claim c;
    struct job_list before = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    rig_new();
    struct store *s = rig_open(STORE_CREATE);
    const int64_t job = rig_submit(s, 400);
    CHECK(rig_claim(s, rig_worker(s), job, &c) == 1 && rig_commit(s, &c, 150, NULL, &e) == 0, "%s", e.msg);
    CHECK(store_jobs(s, &job, 1, &before, &e) == 0 && before.n == 1 && before.v[0].tokens == 150, "%s",
          e.msg);
    CHECK(rig_commit(s, &c, 200, NULL, &e) == 0, "%s", e.msg);
    CHECK(store_tokens(s, before.v[0].id, 0, before.v[0].tokens, &ids, &n, &e) == 0 && n == 150,
          "%zu tokens: %s", n, e.msg);
    free(ids);
    job_list_free(&before);
    store_close(s);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    if (tokenizer_open(&demo, "models/demo", SIZE_MAX, &e)) {
        printf("FAIL test_report (%s)\n", e.msg);
        return 1;
    }
    if (argc == 3 && strcmp(argv[1], "--page") == 0) {
        make_store();
        return write_page(argv[2]);
    }
    RUN(make_store);
    RUN(json_has_the_figures);
    RUN(parameters_that_are_no_object_become_an_empty_one);
    RUN(speedup_is_measured_against_plain);
    RUN(only_jobs_that_ran_alone_are_compared);
    RUN(given_tokens_do_not_count);
    RUN(a_lost_model_costs_only_words);
    RUN(by_a_parameter);
    RUN(pages_are_well_formed_and_harmless);
    RUN(plots_hold_their_data);
    RUN(csv_is_rectangular_and_no_formula);
    RUN(tables_are_safe_for_terminals);
    store_close(store);
    RUN(a_report_is_of_one_moment);
    RUN(a_text_is_that_of_its_row);
    rig_end();
    tokenizer_close(demo);
    return test_end();
}
