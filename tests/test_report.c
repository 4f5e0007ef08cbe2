/* Reports from a store made here: figures against independent counts, and pages, tables and CSV with hostile names and texts in them. */
#include <ctype.h>
#include <jansson.h>

#include "src/cli/cmd_store.h"
#include "runs/report/report.h"
#include "src/text/tokenizer.h"
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

/* Counters as the worker keeps them, so that every sum is known. */
static void put_metrics(struct commit *b, struct metric *m, size_t start, double rounds, bool drafts,
                        const char *source)
{
    double tokens = (double)b->n;
    struct metric all[] = {
        { start, "", "tokens", 0, tokens }, { start, "", "rounds", 0, rounds }, { start, "", "seconds", 0,
            2.0 }, { start, "", "draft_seconds", 0, drafts ? 0.25 : 0 },
        { start, "", "verify_seconds", 0, 1.5 }, { start, "", "control_seconds", 0, 0.125 }, { start, "",
            "verified_rows", 0, drafts ? 4 * rounds : rounds },
        { start, "", "checkpoint_commits", 0, 3 }, { start, "", "checkpoint_put_seconds", 0, 0.01 },
        { start, "", "checkpoint_cpu_seconds", 0, 0.02 },
        { start, "", "prefill_seconds", 0, 0.5 }, { start, "", "prefill_tokens", 0, 10 }, { start, "",
            "drafted", 0, drafts ? 3 * rounds : 0 },
        { start, "", "accepted", 0, tokens - rounds }, { start, "", "drafted_depth", 0, drafts ? 3 * rounds
            : 0 }, { start, "", "beta_accepted", 0, 5 },
        { start, "", "reached", 1, rounds }, { start, "", "accepted_at", 1, tokens - rounds }, { start, "",
            "histogram", 2, rounds },
        { start, source, "drafted", 0, drafts ? 3 * rounds : 0 }, { start, source, "accepted", 0,
            tokens - rounds },
    };
    b->n_metrics = sizeof all / sizeof *all - (drafts ? 0 : 2);
    memcpy(m, all, sizeof all);
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
        "{\"temperature\": 0.7, \"stop\": [], \"drafting\": {\"drafter\": \"none\", \"tree\": []}}";
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
    CHECK(store_extend(store, extended_job, LENGTH, &(struct given_text){ text_ids, 700, "given", 5 },
                       LENGTH + 700, false, &e) == 0, "%s", e.msg);
}

typedef int renderer(FILE *f, const struct reports *l, struct err *e);

/* The report of jobs as bytes; free it. */
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

static double number(const json_t *o, const char *a, const char *b)
{
    const json_t *v = json_object_get(o, a);
    v = b ? json_object_get(v, b) : v;
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static json_t *json_of(const int64_t *ids, size_t n, const struct report_options *o)
{
    char *s = report_of(ids, n, o, report_json);
    json_error_t why;
    json_t *v = json_loads(s, JSON_REJECT_DUPLICATES, &why);
    if (!v) {                                    /* a seed of 64 bits is no number for Jansson */
        char *at = strstr(s, "18446744073709551612");
        CHECK(at != NULL, "%s in %s", why.text, s);
        while (at) {
            memset(at, ' ', 10);
            at = strstr(at, "18446744073709551612");
        }
        v = json_loads(s, JSON_REJECT_DUPLICATES, &why);
        CHECK(v != NULL, "%s at %d", why.text, why.position);
    }
    free(s);
    return v;
}

static void json_has_the_figures(void)
{
    json_t *o = json_of(&drafted_job, 1, &(struct report_options){ .rounds = true });
    static const char *const names[] = { "job", "name", "custom_id", "state", "finish_reason", "model",
                                         "seed", "parameters", "numerics", "prompt_tokens", "tokens",
                                             "given_tokens",
        "seconds", "prefill_seconds", "tokens_per_second", "rounds", "mean_acceptance_length", "alpha",
            "beta", "drafted", "verified_rows", "accepted", "reached_per_depth",
        "accepted_per_depth", "acceptance_histogram", "sources", "time", "refreshes", "resumes", "distinct",
            "repetition", "windows" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK(json_object_get(o, names[i]), "%s", names[i]);
    const double rounds = LENGTH / 4.0;
    CHECK(number(o, "job", NULL) == (double)drafted_job && number(o, "tokens", NULL) == LENGTH &&
          number(o, "given_tokens", NULL) == 0);
    CHECK(near(number(o, "seconds", NULL), 6, 1e-9, 0) &&
          near(number(o, "tokens_per_second", NULL), LENGTH / 6.0, 1e-6, 0) &&
          near(number(o, "prefill_seconds", NULL), 1.5, 1e-9, 0));
    CHECK(number(o, "rounds", NULL) == rounds && near(number(o, "mean_acceptance_length", NULL), 4, 1e-9, 0));
    CHECK(near(number(o, "alpha", NULL), (LENGTH - rounds) / (3 * rounds), 1e-9, 0) &&
          near(number(o, "beta", NULL), 15 / (3 * rounds), 1e-9, 0));
    CHECK(number(o, "verified_rows", NULL) == 4 * rounds &&
          number(json_object_get(o, "sources"), "heads<i>", "accepted") == LENGTH - rounds);
    CHECK(near(number(o, "time", "draft"), 0.75, 1e-9, 0) &&
          near(number(o, "time", "checkpoint"), 0.03, 1e-9, 0) &&
          near(number(o, "time", "other"), 6 - 0.75 - 4.5 - 0.375, 1e-9, 0));
    json_t *w = json_object_get(o, "windows"), *r = json_array_get(json_object_get(o, "repetition"), 0);
    CHECK(json_array_size(w) == 3);
    for (size_t i = 0; i < 3; i++) {
        json_t *v = json_array_get(w, i);
        size_t from = i * 1000, to = MIN(from + 1000, (size_t)LENGTH);
        CHECK(number(v, "start", NULL) == (double)from && number(v, "tokens", NULL) == (double)(to - from) &&
              number(v, "seconds", NULL) == 2);
        for (size_t n = 1; n <= 4; n++) {
            char k[2] = { (char)('0' + n), 0 };
            CHECK(near(number(v, "distinct", k), brute_distinct(text_ids, from, to, n), 1e-9, 0),
                  "window %zu, n %zu: %f", i, n, number(v, "distinct", k));
            CHECK(near(number(v, "distinct_so_far", k), brute_distinct(text_ids, 0, to, n), 1e-9, 0));
            CHECK(near(json_number_value(
                           json_object_get(json_object_get(json_object_get(o, "distinct"), "tokens"), k)),
                       brute_distinct(text_ids, 0, LENGTH, n), 1e-9, 0));
        }
    }
    CHECK(json_array_size(json_object_get(o, "repetition")) == 1);
    CHECK(number(r, "start", NULL) == LOOP_FROM + PERIOD && number(r, "end", NULL) == LOOP_TO &&
              number(r, "period", NULL) == PERIOD,
          "%f to %f", number(r, "start", NULL), number(r, "end", NULL));
    CHECK(strstr(json_string_value(json_object_get(r, "excerpt")), "script"), "%s",
          json_string_value(json_object_get(r, "excerpt")));
    CHECK(json_array_size(json_object_get(o, "round_list")) == 3 &&
          json_is_null(json_object_get(o, "speedup")));
    json_decref(o);
}

static void speedup_is_measured_against_plain(void)
{
    int64_t ids[2] = { drafted_job, plain_job };
    json_t *a = json_of(ids, 2, &(struct report_options){0});
    CHECK(json_array_size(a) == 2);
    CHECK(near(number(json_array_get(a, 0), "speedup", NULL), 1, 1e-9, 0) &&
          number(json_array_get(a, 0), "plain_job", NULL) == (double)plain_job);
    CHECK(json_is_null(json_object_get(json_array_get(a, 1), "speedup")) &&
          number(json_array_get(a, 1), "mean_acceptance_length", NULL) == 1);
    CHECK(json_is_null(json_object_get(json_array_get(a, 1), "beta")));
    json_decref(a);
}

static void given_tokens_do_not_count(void)
{
    json_t *o = json_of(&extended_job, 1, &(struct report_options){0});
    CHECK(number(o, "tokens", NULL) == LENGTH && number(o, "given_tokens", NULL) == 700);
    CHECK(near(
        json_number_value(json_object_get(json_object_get(json_object_get(o, "distinct"), "tokens"), "2")),
        brute_distinct(text_ids, 0, LENGTH, 2), 1e-9, 0));
    json_decref(o);
}

static void a_lost_model_costs_only_words(void)
{
    json_t *o = json_of(&hostile_job, 1, &(struct report_options){0});
    CHECK(json_is_null(json_object_get(json_object_get(o, "distinct"), "words")) &&
          number(o, "tokens", NULL) == LENGTH);
    CHECK(json_array_size(json_object_get(o, "repetition")) == 1 &&
          json_is_null(json_object_get(json_array_get(json_object_get(o, "repetition"), 0), "excerpt")));
    CHECK(strcmp(json_string_value(json_object_get(o, "custom_id")), hostile_id) == 0,
          "JSON has it as it is");
    json_decref(o);
}

static void by_a_parameter(void)
{
    int64_t ids[3] = { drafted_job, plain_job, hostile_job };
    json_t *a = json_of(ids, 3, &(struct report_options){ .by = "temperature" });
    CHECK(json_array_size(a) == 2);
    json_t *g = json_array_get(a, 0);
    CHECK(strcmp(json_string_value(json_object_get(g, "temperature")), "0.7") == 0 &&
          number(g, "n", NULL) == 2);
    CHECK(near(number(g, "acceptance length", "mean"), 2.5, 1e-9, 0) &&
          near(number(g, "acceptance length", "sd"), sqrt(4.5), 1e-9, 0));
    CHECK(near(number(g, "distinct-2", "mean"), brute_distinct(text_ids, 0, LENGTH, 2), 1e-9, 0));
    CHECK(isnan(number(json_array_get(a, 1), "tokens/s", "sd")), "one job has no deviation");
    json_decref(a);
    a = json_of(ids, 3, &(struct report_options){ .by = "top-k" });
    CHECK(json_array_size(a) >= 1 && json_object_get(json_array_get(a, 0), "top-k"),
          "as the option is spelled");
    json_decref(a);
    struct reports l;
    struct err e = {0};
    CHECK(reports_open(&l, &(struct report_from){ store, ids, 3 }, 1,
                       &(struct report_options){ .by = "nothing" }, &e) == -1 && e.code == ERR_INPUT &&
                           strstr(e.msg, "drafting.drafter"), "%s", e.msg);
}

/* ---- pages ---- */

static bool is_void(const char *name) { return !strcmp(name, "meta") || !strcmp(name, "br"); }

/* A strict reader: elements are closed in order, attributes quoted, every & begins a reference; nothing loads anything. Returns how many elements. */
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
        char *s = report_of(ids + (n == 1 ? 2 : 0), n, &(struct report_options){ .rounds = true, .by = n == 4
            ? NULL : "drafter" }, report_html);
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
    CHECK(strstr(s, "repetition  tokens 1212 to 1900, every 12 tokens: ") &&
              strstr(s, "acceptance length 4.00"),
          "%s", s);
    free(s);
}

/* A page for a browser to read (tests/cli/report.sh). */
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

/* An export of a job that is being written: its row and its text are of the same moment. */
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
    CHECK(job_read_ids(s, &before.v[0], &ids, &n, &e) == 0 && n == 150, "%zu tokens: %s", n, e.msg);
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
    RUN(speedup_is_measured_against_plain);
    RUN(given_tokens_do_not_count);
    RUN(a_lost_model_costs_only_words);
    RUN(by_a_parameter);
    RUN(pages_are_well_formed_and_harmless);
    RUN(plots_hold_their_data);
    RUN(csv_is_rectangular_and_no_formula);
    RUN(tables_are_safe_for_terminals);
    store_close(store);
    RUN(a_text_is_that_of_its_row);
    rig_end();
    tokenizer_close(demo);
    return test_end();
}
