/* Jobs whose texts begin alike share the blocks of their caches, in a worker of this process: the texts are
 * those of plain passes, blocks are freed once, memory is counted once, and a beginning is read once. */
#include "runs/work/schedule.h"
#include "src/cli/verbs.h"
#include "tests/reference.h"
#include "tests/store_rig.h"

#define TINY "build/data/models/llama2-bf16"

/* Run a verb of the command line without its output. */
static int verb(int (*run)(const struct options *, struct err *), const char *words)
{
    static char text[1000];
    char *argv[40] = { (char *)"longhand" }, *save = NULL;
    int argc = 1, quiet = open("/dev/null", O_WRONLY), out = dup(1);
    struct options o;
    struct err e = {0};
    snprintf(text, sizeof text, "%s --db %s", words, rig_path);
    for (char *w = strtok_r(text, " ", &save); w && argc < 39; w = strtok_r(NULL, " ", &save))
        argv[argc++] = w;
    fflush(stdout);
    dup2(quiet, 1);
    int rc = options_parse(&o, argc, argv, &e) || run(&o, &e) ? -1 : 0;
    options_free(&o);
    fflush(stdout);
    dup2(out, 1);
    close(out);
    close(quiet);
    CHECK(rc == 0, "%s: %s", words, e.msg);
    return rc;
}

static int64_t counter(int64_t job, const char *name)
{
    char sql[200];
    snprintf(sql, sizeof sql, "SELECT ifnull((SELECT sum(value) FROM metric WHERE job = %" PRId64
             " AND source = '' AND name = '%s'), 0)", job, name);
    return rig_sql(sql);
}

/* A prompt of n tokens, equal for equal `text` up to the last `own` tokens. */
static void make_prompt(int32_t *ids, size_t n, unsigned text, size_t own, unsigned mine)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)(5 + (i * 7919 + i / 13 * 31 + text + (i >= n - own ? 100 + mine : 0)) % 200);
}

struct wish { size_t n_prompt, own; unsigned mine; size_t wanted; };

/* A new store with these jobs, 1 .. n; `options`: how each is to be written. */
static struct store *queue(const struct wish *x, size_t n, const char *options)
{
    struct err e = {0};
    struct job_input in;
    struct job_list l;
    int64_t one = 1, ids[16];
    struct job_spec v[16];
    char words[300];
    rig_new();
    snprintf(words, sizeof words,
             "submit -m " TINY " -p the -n 9 -s 7 --ignore-eos --allow-beyond-context %s", options);
    verb(cmd_submit, words);
    struct store *s = rig_open(STORE_WRITE);
    CHECK(store_input(s, one, &in, &e) == 0 && store_jobs(s, &one, 1, &l, &e) == 0 && l.n == 1, "%s", e.msg);
    for (size_t i = 0; i < n; i++) {
        int32_t *prompt = malloc(x[i].n_prompt * sizeof *prompt);
        make_prompt(prompt, x[i].n_prompt, 0, x[i].own, x[i].mine);
        v[i] = (struct job_spec){ .parameters = in.parameters, .model = l.v[0].model, .prompt = "the",
                                  .prompt_bytes = 3, .prompt_ids = prompt, .prompt_tokens = x[i].n_prompt,
                                  .seed = 7, .sample = (uint32_t)i, .wanted = x[i].wanted };
    }
    CHECK(store_change(s, CHANGE_REMOVE, 0, &one, 1, NULL, &e) == 0 &&
              store_submit(s, NULL, v, n, ids, NULL, NULL, &e) == 0,
          "%s", e.msg);
    CHECK(ids[0] == 2);
    for (size_t i = 0; i < n; i++)
        free((int32_t *)v[i].prompt_ids);
    job_input_free(&in);
    job_list_free(&l);
    return s;
}

static void work(struct worker *w, size_t parallel,
                 void (*ended)(void *, int64_t, const struct job *, size_t, const struct work_result *))
{
    struct err e = {0};
    const struct schedule_options o = { .how = { .state_if_stopped = JOB_QUEUED }, .parallel = parallel,
                                        .ended = ended, .ctx = w };
    CHECK(schedule_queue(w, &o, &e) == 0, "%s", e.msg);
}

static void open_worker(struct worker *w, struct store *s, const char *device)
{
    struct err e = {0};
    *w = (struct worker){ .device = device, .threads = 2, .quiet = true };
    CHECK(worker_open(w, s, &e) == 0, "%s", e.msg);
}

/* Plain passes over every text that is done give its tokens. */
static void texts_are_plain(int64_t last, const char *device)
{
    char words[100];
    for (int64_t job = 2; job <= last; job++) {
        snprintf(words, sizeof words, "SELECT count(*) FROM job WHERE id = %" PRId64 " AND state = 'done'",
                 job);
        if (!rig_sql(words))
            continue;
        snprintf(words, sizeof words, "verify %" PRId64 " --device %s", job, device);
        verb(cmd_verify, words);
    }
}

/* At the end of the first job, one sharer is paused, one removed, and one forked. */
static void disturb(void *ctx, int64_t id, const struct job *job, size_t wanted, const struct work_result *r)
{
    struct worker *w = ctx;
    struct err e = {0};
    int64_t paused = 3, removed = 4;
    (void)job, (void)wanted;
    CHECK(r->end == WORK_DONE || r->end == WORK_LOST, "job %" PRId64 ": %s", id, r->why.msg);
    if (id != 2)
        return;
    CHECK(w->n_jobs > 3, "%zu jobs run", w->n_jobs);
    CHECK(store_change(w->store, CHANGE_PAUSE, 0, &paused, 1, NULL, &e) == 0 &&
              store_change(w->store, CHANGE_REMOVE, 0, &removed, 1, NULL, &e) == 0, "%s", e.msg);
    verb(cmd_edit, "fork 5 --at 1 -n 40");
}

/* p: tokens of the common prompt; n: of most texts. The first text ends when all others have begun. */
static void storm(const char *device, const char *options, size_t p, size_t n)
{
    const struct wish x[] = { { p, 0, 0, 10 }, { p, 0, 0, n }, { p + 10, 20, 1, n },
                              { p + 33, 40, 2, n }, { p, 0, 0, n }, { 90, 90, 3, n } };
    const int64_t same = (int64_t)p - 1;
    struct store *s = queue(x, 6, options);
    struct worker w;
    struct err e = {0};
    int64_t job = 3;
    open_worker(&w, s, device);
    work(&w, 6, disturb);
    CHECK(store_change(s, CHANGE_RESUME, 0, &job, 1, NULL, &e) == 0, "%s", e.msg);
    work(&w, 6, NULL);
    CHECK(rig_sql("SELECT count(*) FROM job WHERE state = 'done'") == 6);
    CHECK(counter(3, "shared_tokens") >= same && counter(5, "shared_tokens") == same - 6 &&
              counter(6, "shared_tokens") == same && counter(7, "shared_tokens") == 0 &&
              counter(8, "shared_tokens") == same + 34,
          "%s: %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, device, counter(3, "shared_tokens"),
          counter(5, "shared_tokens"), counter(6, "shared_tokens"), counter(8, "shared_tokens"));
    texts_are_plain(8, device);
    CHECK(w.n_jobs == 0 && w.prefixes.total.runs == w.prefixes.n && w.prefixes.n > 0);
    worker_close(&w);                    /* asserts that every run was freed once */
    store_close(s);
}

static void sharers_come_and_go(void)
{
    FOR_TWINS(o) {
        setenv("LONGHAND_ISA", o->name, 1);
        storm("cpu", "--drafter none", 300, 150);
        storm("cpu", "--drafter ngram,partial", 300, 150);
    }
    unsetenv("LONGHAND_ISA");
    storm("emulated", "--drafter none", 80, 24);
}

/* Eight samples of 200 tokens after a prompt of 8,000. */
static void memory_of_samples(void)
{
    struct wish x[8];
    size_t bytes[2];
    for (size_t i = 0; i < 8; i++)
        x[i] = (struct wish){ 8000, 0, 0, 200 };
    for (size_t k = 0; k < 2; k++) {
        struct store *s = queue(x, k ? 8 : 1, "--drafter none");
        struct worker w;
        open_worker(&w, s, "cpu");
        work(&w, 8, NULL);
        bytes[k] = w.prefixes.total.bytes;       /* the caches of ended jobs stay */
        CHECK(w.prefixes.total.runs == (k ? 8 : 1));
        int64_t read = 0;
        for (int64_t job = 2; job < (k ? 10 : 3); job++)
            read += counter(job, "prefill_tokens");
        CHECK(read == 7999, "%" PRId64 " tokens were read", read);
        worker_close(&w);
        store_close(s);
    }
    CHECK(bytes[1] <= bytes[0] * 13 / 10, "%zu bytes, one sample has %zu", bytes[1], bytes[0]);
    printf("    %.3f times the cache bytes of one sample\n", (double)bytes[1] / (double)bytes[0]);
}

/* A job that writes; two jobs with a common beginning join, of which one reads it. */
static void a_beginning_is_read_once(void)
{
    static const struct wish x[] = { { 20, 20, 1, 600 }, { 3000, 10, 2, 20 }, { 3000, 10, 3, 20 } };
    struct store *s = queue(x, 3, "--drafter none");
    struct worker w;
    open_worker(&w, s, "cpu");
    work(&w, 3, NULL);
    CHECK(counter(3, "prefill_tokens") == 2999 && counter(4, "prefill_tokens") == 9,
          "%" PRId64 " and %" PRId64, counter(3, "prefill_tokens"), counter(4, "prefill_tokens"));
    texts_are_plain(4, "cpu");
    worker_close(&w);
    store_close(s);
}

/* Two jobs that end; then one is extended, and one forked after 20 tokens. Both read nothing again: their
 * texts begin as those of ended jobs, whose caches stay. A third worker, with none, reads it all. */
static void extended_and_forked(void)
{
    static const struct wish x[] = { { 400, 30, 1, 40 }, { 400, 30, 2, 40 } };
    struct store *s = queue(x, 2, "--drafter none");
    struct worker w;
    open_worker(&w, s, "cpu");
    work(&w, 2, NULL);
    verb(cmd_edit, "extend 2 -n +30");
    verb(cmd_edit, "fork 3 --at 20 -n 50");
    const int64_t before = counter(2, "prefill_tokens"), shared = counter(2, "shared_tokens");
    work(&w, 2, NULL);
    CHECK(rig_sql("SELECT count(*) FROM job WHERE state = 'done'") == 3);
    CHECK(counter(2, "prefill_tokens") == before && counter(2, "shared_tokens") == shared + 400 + 40 - 1,
          "%" PRId64 " read, %" PRId64 " shared", counter(2, "prefill_tokens") - before,
          counter(2, "shared_tokens") - shared);
    CHECK(counter(4, "prefill_tokens") == 0 && counter(4, "shared_tokens") == 400 + 20 - 1,
          "%" PRId64 " read, %" PRId64 " shared", counter(4, "prefill_tokens"), counter(4, "shared_tokens"));
    texts_are_plain(4, "cpu");
    worker_close(&w);
    verb(cmd_edit, "extend 4 -n +10");
    open_worker(&w, s, "cpu");
    work(&w, 2, NULL);
    CHECK(counter(4, "prefill_tokens") == 400 + 50 - 1 && counter(4, "shared_tokens") == 400 + 20 - 1);
    texts_are_plain(4, "cpu");
    worker_close(&w);
    store_close(s);
}

static void a_beginning_gives_way(void)
{
    static const struct wish x[] = { { 2000, 0, 0, 100 }, { 2000, 2000, 5, 100 } };
    struct store *s = queue(x, 2, "--drafter none");
    struct worker w;
    struct err e = {0};
    int64_t second = 3;
    open_worker(&w, s, "cpu");
    CHECK(store_change(s, CHANGE_PAUSE, 0, &second, 1, NULL, &e) == 0, "%s", e.msg);
    work(&w, 1, NULL);
    const size_t one = w.prefixes.total.bytes;
    w.max_memory = w.reserved + 3 * one / 2 + ((size_t)4 << 20);
    CHECK(w.prefixes.n == 1 && store_change(s, CHANGE_RESUME, 0, &second, 1, NULL, &e) == 0, "%s", e.msg);
    work(&w, 1, NULL);
    CHECK(rig_sql("SELECT count(*) FROM job WHERE state = 'done'") == 2);
    CHECK(w.prefixes.total.bytes <= w.max_memory && (w.prefixes.n == 1 || 2 * one < w.max_memory),
          "%zu caches", w.prefixes.n);
    worker_close(&w);
    store_close(s);
}

int main(void)
{
    RUN(sharers_come_and_go);
    RUN(memory_of_samples);
    RUN(a_beginning_is_read_once);
    RUN(extended_and_forked);
    RUN(a_beginning_gives_way);
    rig_end();
    return test_end();
}
