/* The limits of a template hold for all that a template can do, and several threads may render one.
 *
 *     every_builtin_counts_its_work   calls each row of the interpreter's tables with large arguments: the
 *                                     work that is counted covers the time that the call takes
 *     slow_templates_end              whole templates that once took minutes: each is rendered or refused in
 *                                     one line, within the limit of one second
 *     what_is_asked_of_a_template_is_quick    questions about a template do not walk over it again
 *     work_is_linear                  what needs no more: four times the text is about four times the work
 *     biases_are_linear               --logit-bias of many tokens, and a second bias of one of them
 *     threads_share_a_template        eight threads render one template to the same text
 */
#include <pthread.h>
#include <time.h>

#include "src/base/json.h"
#include "src/request/sampling_options.h"
#include "src/text/jinja/jinja_impl.h"
#include "tests/test.h"

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool is_long(void) { return getenv("LONG") && strcmp(getenv("LONG"), "1") == 0; }

/* ---- every builtin ---- */

/* N bytes of text in each argument, COUNT elements in each list. */
enum { N = 1 << 14, COUNT = 1000, KINDS = 12 };
/* What a call may take of the limits, so that it soon reaches them. */
enum { MOST_WORK = 3000000, MOST_MEMORY = 2 << 20 };
static const double FREE_SECONDS = 0.0005, SECONDS_PER_WORK = 20e-9;

static struct jinja run;
static struct err why;

static V repeated(const char *one, size_t n, const char *end)
{
    struct jj_text t = {0};
    while (t.n < n)
        jj_puts(&run, &t, one);
    jj_puts(&run, &t, end);
    return jj_text(&run, &t);
}

/* A large value of a kind; those of one kind differ only at their ends. Texts are made once. */
static V large(int kind, bool other);
static V kept(int kind, bool other)
{
    static V made[6][2];
    if (kind > 5)
        return large(kind, other);
    if (made[kind][other].kind == JJ_MISSING)
        made[kind][other] = large(kind, other);
    return made[kind][other];
}

static V large(int kind, bool other)
{
    V v, key;
    char name[24];
    switch (kind) {
    case 0: return repeated("a", N, other ? "b" : "");
    case 1: return repeated("b", other ? N / 2 : N, "");
    case 2: return repeated("\xc3\xa9", N, other ? "a" : "");
    case 3: return repeated("a ", N, "");
    case 4: return repeated(other ? "%s{}" : "{x}%d\n", N, "");
    case 5: return repeated("a", 200, "");
    case 6: return jj_int(other ? 3 : 50000);
    case 7: return jj_float(1.7976931348623157e308);
    case 8: case 9:
        v = jj_list(&run, kind == 8 ? JJ_LIST : JJ_TUPLE);
        for (int i = 0; i < COUNT; i++) {
            snprintf(name, sizeof name, "%07d", i * 7919 % COUNT);
            jj_append(&run, v.list, kind == 8 ? jj_int(i * 7919 % COUNT) : repeated(name, 8, ""));
        }
        return v;
    case 10:
        v = jj_dict(&run, JJ_DICT);
        for (int i = 0; i < COUNT; i++) {
            snprintf(name, sizeof name, "%07d", i * 7919 % COUNT);
            key = repeated(name, 8, "");
            jj_set(&run, v.dict, key, jj_float(i / 3.0));
        }
        return v;
    default:
        v = jj_list(&run, JJ_LIST);
        for (int i = 0; i < 100; i++)
            jj_append(&run, v.list, repeated("a", N / 100, other ? "b" : ""));
        return v;
    }
}

static int words(const char *text)
{
    int n = *text != 0;
    for (; *text; text++)
        n += *text == ' ';
    return n;
}

/* Calls the builtin, and walks over what it makes. */
static void call(const struct jj_builtin *b, V self, V *arg, size_t n)
{
    const struct jj_args a = { .list = { .v = arg, .n = n } };
    V x, made = jj_call_builtin(&run, b, self, &a);
    if (made.kind == JJ_ITER)
        while (jj_next(&run, made.iter, &x))
            ;
}

/* The time of one call, and the work counted for it; 0 on the way out by an error of the interpreter, too. */
static void check_call(const char *table, const struct jj_builtin *b, int self, const int *kinds, size_t n)
{
    static V arg[4];
    static double began;
    static uint64_t before;
    static size_t index;
    const size_t used = run.used;
    if (index++ % 7 && !is_long())       /* a sample of every builtin */
        return;
    run.depth = 0;
    run.work = (uint64_t)JJ_STEPS * JJ_STEP - MOST_WORK;
    run.look = 0;
    run.deadline = clock_seconds() + 1000;
    why = (struct err){0};
    if (!setjmp(run.failed)) {
        const V v = kept(self, false);
        for (size_t i = 0; i < n; i++)
            arg[i] = kept(kinds[i], true);
        if (n && b->params[0] == '*' && kinds[0] == 5)  /* of map and select: a filter or a test */
            arg[0] = jj_cstr(&run, "upper");
        before = run.work;
        began = cpu_seconds();
        call(b, v, arg, n);
    }
    const double took = cpu_seconds() - began;
    const uint64_t work = run.work - before;
    CHECK(took <= SLOWER * (FREE_SECONDS + SECONDS_PER_WORK * (double)work),
          "%s: %s of kind %d with %zu arguments (%d, %d, %d): %.1f ms, counted %.1f ms; %s", table, b->name,
          self, n, kinds[0], kinds[1], kinds[2], took * 1e3, (double)work * 1e-6, why.msg);
    run.used = used;
}

static void check_table(const char *name, const struct jj_builtin *b, int first, int last)
{
    for (; b->name; b++) {
        const int most = !b->f ? 0 : b->params[0] == '*' ? 2 : words(b->params);
        for (int self = first; b->f && self <= last; self++)
            for (int n = b->required; n <= MIN(most, 3); n++)
                for (int one = 0; one < (n ? KINDS : 1); one++)
                    for (int two = 0; two < (n > 1 ? KINDS : 1); two += n > 1 ? 3 : 1)
                        check_call(name, b, self, (int[]){ one, two, 6 }, (size_t)n);
    }
}

static void every_builtin_counts_its_work(void)
{
    struct jinja *t;
    CHECK(jinja_open(&t, "t", "x", 1, &why) == 0, "%s", why.msg);
    run = *t;
    run.e = &why;
    run.look = UINT64_MAX;
    run.used = JJ_ARENA - MOST_MEMORY;
    for (int i = 0; i < 12; i++)
        kept(i / 2, i % 2);
    check_table("methods of texts", jj_str_methods, 0, 5);
    check_table("methods of lists", jj_list_methods, 8, 8);
    check_table("methods of tuples", jj_tuple_methods, 9, 9);
    check_table("methods of dicts", jj_dict_methods, 10, 10);
    check_table("filters", jj_filters, 0, KINDS - 1);
    check_table("tests", jj_tests, 0, KINDS - 1);
    check_table("functions", jj_functions, 6, 6);
    jinja_close(t);
}

/* ---- whole templates ---- */

#define LOOP(statement) "{% for i in range(100000) %}{% for k in range(100000) %}" statement \
                        "{% endfor %}{% endfor %}"
/* {a} and {u} are texts of a million characters; {n} a nested tuple; {c} keys whose hashes collide. */
static const char setup[] =
    "{% set a = 'a' * 1000000 %}{% set u = '\xc3\xa9' * 1000000 %}{% set ns = namespace(x=(1,)) %}";
static const struct { const char *name, *text; bool slow; } slow[] = {
    { "strip", "{{ ('b'*40000).strip('a'*40000 ~ 'b') }}" },
    { "strip of 8 MB", "{{ ('b'*4000000).strip('a'*4000000 ~ 'b') | length }}" },
    { "strip of other letters", "{{ u.strip(u ~ 'a') | length }}" },
    { "trim", "{{ a | trim(u ~ 'a') | length }}" },
    { "rfind", "{{ a.rfind('a' * 10000 ~ 'b' ~ 'a' * 10000) }}" },
    { "rsplit", "{{ a.rsplit('a' ~ 'ab' * 4000 ~ 'a') | length }}" },
    { "split", "{{ ('a ' * 1000000).split() | length }}" },
    { "rsplit of words", "{{ ('a ' * 1000000).rsplit() | length }}" },
    { "count", "{{ a.count('a' * 200 ~ 'b') }}{{ a.count('b' ~ 'a' * 200) }}"
               "{{ a.count('a' * 5000 ~ 'b') }}" },
    { "find", LOOP("{% set r = a.find('b') %}") },
    { "in", LOOP("{% set r = 'b' in a %}") },
    { "case", LOOP("{% set r = a.isupper() %}{% set r = u.islower() %}"), true },
    { "isalpha", LOOP("{% set r = u.isalpha() %}"), true },
    { "wordcount", LOOP("{% set r = u | wordcount %}"), true },
    { "items of a text", LOOP("{% set r = u[999999] %}"), true },
    { "key", "{% set d = {} %}" LOOP("{% set r = d.get(a) %}") },
    { "nested key", "{% for i in range(150) %}{% set ns.x = (ns.x, ns.x) %}{% endfor %}{% set d = {} %}"
                    "{{ d.get(ns.x) }}" },
    { "equal", "{% set b = 'a' * 1000000 %}" LOOP("{% set r = a == b %}"), true },
    { "prefix", "{% set b = 'a' * 1000000 %}" LOOP("{% set r = a.startswith(b) %}"), true },
    { "iterators", "{% for i in range(100000) %}{% set ns.x = ns.x | select %}{% endfor %}"
                   "{{ ns.x | list }}" },
    { "keywords", "{% macro f() %}{{ kwargs }}{% endmacro %}{% set d = dict(keys) %}{{ f(**d) | length }}" },
    { "formats", "{% set d = dict(keys) %}{{ ('{k19999}' * 20000).format(**d) | length }}" },
    { "numbers", "{{ '%9999999d' * 100000 % ((1,) * 100000) }}" },
    { "precision", "{{ ('%.999f' * 1000000) % ((1.5,) * 1000000) }}" },
    { "colliding keys", "{% set d = dict(colliding) %}{{ d | length }}" },
    { "sorted JSON", "{{ dict(keys) | tojson(sort_keys=true) | length }}" },
    { "nested JSON", "{% for i in range(30) %}"
                     "{% set r = ('[' * 60 ~ '\"' ~ a ~ '\"' ~ ']' * 60) | from_json %}{% endfor %}", true },
    { "dates", "{{ strftime_now('%j' * 1000000) }}" },
    { "repr", "{% for i in range(100) %}{% set r = [a] | string %}{% endfor %}", true },
    { "upper", "{% for i in range(100) %}{% set r = u | upper %}{% endfor %}", true },
};

/* Pairs of names; pairs of numbers whose hashes meet in one place of a table. */
static char *variables_of(size_t *n)
{
    enum { COLLIDING = 20000 };
    FILE *f = open_memstream(&(char *){ NULL }, n);
    static char *text;
    fclose(f);
    f = open_memstream(&text, n);
    fputs("{\"keys\": [", f);
    for (int i = 0; i < COLLIDING; i++)
        fprintf(f, "%s[\"k%d\", %d]", i ? "," : "", i * 7919 % COLLIDING, i);
    fputs("], \"colliding\": [", f);
    int64_t number = 0;
    for (int i = 0; i < COLLIDING; number++)
        if ((hash64(HASH64_INIT, &number, 8) & 0x1ffff) < 512)
            fprintf(f, "%s[%lld, 1]", i++ ? "," : "", (long long)number);
    fputs("]}", f);
    fclose(f);
    return text;
}

/* The seconds of a template, which renders or is refused in one line. */
static double seconds_of(const char *text, size_t n, const struct json *vars, char *message, size_t size)
{
    struct jinja *t;
    struct err e = {0};
    char *out = NULL;
    size_t n_out;
    const double began = cpu_seconds();
    int rc = jinja_open(&t, "t", text, n, &e);
    if (rc == 0)
        rc = jinja_render(t, vars, &(struct jinja_run){ 0 }, &out, &n_out, &e);
    const double took = cpu_seconds() - began;
    CHECK((rc == 0) == (out != NULL) && !strchr(e.msg, '\n') && (rc == 0 || e.code == ERR_INPUT), "%s",
          e.msg);
    snprintf(message, size, "%s", rc ? e.msg : "rendered");
    free(out);
    jinja_close(t);
    return took;
}

static void slow_templates_end(void)
{
    size_t n;
    char *json = variables_of(&n), text[2000], message[1100];
    struct json vars;
    struct err e;
    CHECK(js_check(&vars, "vars", json, n, &e) == 0, "%s", e.msg);
    for (size_t i = 0; i < sizeof slow / sizeof *slow; i++) {
        if (slow[i].slow && !is_long())
            continue;
        snprintf(text, sizeof text, "%s%s", setup, slow[i].text);
        const double took = seconds_of(text, strlen(text), &vars, message, sizeof message);
        CHECK(took < 2 * SLOWER, "%s: %.2f s: %s", slow[i].name, took, message);
        if (getenv("VERBOSE"))
            printf("    %-24s %.2f s  %s\n", slow[i].name, took, message);
    }
    free(json);
}

/* Templates of many names and words: what parses them, and what asks about them. */
static char *many_names(size_t n, const char *format, const char *end)
{
    char *text = malloc(n * 60 + 100), *p = text;
    for (size_t i = 0; i < n; i++)
        p += sprintf(p, format, i, i);  /* a form may take the number once */
    strcpy(p, end);
    return text;
}

static void what_is_asked_of_a_template_is_quick(void)
{
    enum { NAMES = 20000, QUESTIONS = 20000 };
    struct json vars;
    struct err e;
    struct jinja *t;
    char message[1100], name[24];
    CHECK(js_check(&vars, "vars", "{}", 2, &e) == 0, "%s", e.msg);
    char *text = many_names(NAMES, "{%% set a%zu = content %%}", "");
    double took = seconds_of(text, strlen(text), &vars, message, sizeof message);
    CHECK(took < 2 * SLOWER, "names: %.2f s: %s", took, message);
    free(text);
    text = many_names(NAMES, "{{ a.b%zu }}", "");
    CHECK(jinja_open(&t, "t", text, strlen(text), &e) == 0, "%s", e.msg);
    double began = cpu_seconds();
    for (int i = 0; i < QUESTIONS; i++) {
        snprintf(name, sizeof name, "b%d", i);
        CHECK(jinja_mentions(t, name) && !jinja_names(t, name));
    }
    took = cpu_seconds() - began;
    CHECK(took < 0.5 * SLOWER, "%d questions: %.2f s", QUESTIONS, took);
    jinja_close(t);
    free(text);
    text = many_names(1500, "{%% set b.x = content %%}{%% for i in a[%zu] %%}{%% endfor %%}", "");
    CHECK(jinja_open(&t, "t", text, strlen(text), &e) == 0, "%s", e.msg);
    CHECK(!jinja_loops_over_content(t));
    jinja_close(t);
    free(text);
    text = many_names(700, "{%% set a%zu = content %%}{{ b%zu }}", "{% for i in a3 %}{% endfor %}");
    CHECK(jinja_open(&t, "t", text, strlen(text), &e) == 0, "%s", e.msg);
    CHECK(jinja_loops_over_content(t));
    jinja_close(t);
    free(text);
}

/* ---- linear work ---- */

static double seconds_of_form(const char *form, int n)
{
    char text[200], message[1100];
    struct json vars;
    struct err e;
    double least = 1e9;
    CHECK(js_check(&vars, "vars", "{}", 2, &e) == 0);
    snprintf(text, sizeof text, form, n, n);
    for (int k = 0; k < 3; k++)                         /* the quickest of three */
        least = MIN(least, seconds_of(text, strlen(text), &vars, message, sizeof message));
    CHECK(strcmp(message, "rendered") == 0, "%s: %s", text, message);
    return least;
}

static void work_is_linear(void)
{
    static const char *const forms[] = {
        "{{ ('b' * %d).strip('a' * %d ~ 'b') | length }}", "{{ ('a ' * %d).split() | length + 0 * %d }}",
        "{{ ('a ' * %d).rsplit() | length + 0 * %d }}",
        "{{ ('\xc3\xa9' * %d).strip('\xc3\xa8' * %d ~ '\xc3\xa9') | length }}",
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const double one = seconds_of_form(forms[i], 60000), four = seconds_of_form(forms[i], 240000);
        CHECK(four < 10 * one + 0.005, "%s: %.2f ms, of a quarter %.2f ms", forms[i], four * 1e3, one * 1e3);
    }
}

/* The seconds that the biases of n tokens take. */
static double seconds_of_biases(size_t n)
{
    enum { VOCAB = 262144 };
    char *text = many_names(n, ",\"%zu\": 1", "}");
    const char *list[] = { text, "7:-2", "7:3" };
    struct options o = { .logit_bias = { list, 3 } };
    struct sampling s = {0};
    struct err e;
    text[0] = '{';
    const double began = cpu_seconds();
    CHECK(sampling_biases(&s, &o, VOCAB, &e) == 0, "%s", e.msg);
    const double took = cpu_seconds() - began;
    CHECK(s.n_bias == n && s.bias[7].id == 7 && s.bias[7].bias == 3 && s.bias[n - 1].bias == 1);
    sampling_free(&s);
    free(text);
    return took;
}

static void biases_are_linear(void)
{
    const double one = seconds_of_biases(30000), four = seconds_of_biases(120000);
    CHECK(four < 9 * one + 0.005, "%.1f ms, of a quarter %.1f ms", four * 1e3, one * 1e3);
}

/* ---- threads ---- */

static struct jinja *shared;
static void *render_shared(void *number)
{
    char vars[100], *out, want[100];
    size_t n;
    struct json root;
    struct err e;
    const long k = (long)(intptr_t)number;
    bool *right = calloc(1, sizeof *right);
    snprintf(vars, sizeof vars, "{\"k\": %ld, \"messages\": [{\"content\": \"t%ld\"}]}", k, k);
    snprintf(want, sizeof want, "t%ld: %ld", k, k * 4950);
    *right = js_check(&root, "vars", vars, strlen(vars), &e) == 0;
    for (int i = 0; i < 50 && *right; i++) {
        *right = !jinja_loops_over_content(shared) && jinja_names(shared, "messages") &&
                 jinja_render(shared, &root, &(struct jinja_run){ 0 }, &out, &n, &e) == 0;
        if (*right) {
            *right = strcmp(out, want) == 0;
            free(out);
        }
    }
    return right;
}

static void threads_share_a_template(void)
{
    static const char text[] = "{% set ns = namespace(n=0) %}"
                               "{% for m in messages %}{{ m.content }}: {% endfor %}"
                               "{% for i in range(100) %}{% set ns.n = ns.n + i * k %}{% endfor %}{{ ns.n }}";
    pthread_t thread[8];
    void *right;
    struct err e;
    CHECK(jinja_open(&shared, "t", text, sizeof text - 1, &e) == 0, "%s", e.msg);
    for (intptr_t i = 0; i < 8; i++)
        pthread_create(&thread[i], NULL, render_shared, (void *)i);
    for (int i = 0; i < 8; i++) {
        pthread_join(thread[i], &right);
        CHECK(*(bool *)right, "thread %d", i);
        free(right);
    }
    jinja_close(shared);
}

int main(void)
{
    RUN(every_builtin_counts_its_work);
    RUN(slow_templates_end);
    RUN(what_is_asked_of_a_template_is_quick);
    RUN(work_is_linear);
    RUN(biases_are_linear);
    RUN(threads_share_a_template);
    return test_end();
}
