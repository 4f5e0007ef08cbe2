/* The interpreter of chat templates: texts equal jinja2's (tests/data/jinja); limits and errors; what it says
 * about a template. */
#include "src/base/json.h"
#include "src/text/jinja/jinja.h"
#include "tests/test.h"

enum { NOW = 1721952000 };                       /* 2024-07-26, as tests/make/jinja_reference.py */

static char *text_of(const struct json *v, size_t *n)
{
    char *s = malloc((size_t)(v->end - v->s) + 1);
    *n = js_unescape(v, s);
    s[*n] = 0;
    return s;
}

/* The text of a template; NULL: refused, and the reason is in *e. */
static char *render(const char *template, size_t n, const struct json *vars, size_t *n_out, struct err *e)
{
    struct jinja *t;
    char *out = NULL;
    *e = (struct err){0};
    if (jinja_open(&t, "t", template, n, e) == 0)
        jinja_render(t, vars, &(struct jinja_run){ .now = NOW }, &out, n_out, e);
    jinja_close(t);
    return out;
}

static void check_line(const char *file, size_t line, const struct json *root, const struct json *vars)
{
    struct json template, out;
    struct err e;
    size_t n, n_want = 0, n_got = 0;
    CHECK(js_get(root, "template", &template, &e) > 0 && js_get(root, "out", &out, &e) > 0);
    char *text = text_of(&template, &n), *want = js_kind(&out) == JS_STRING ? text_of(&out, &n_want) : NULL;
    char *got = render(text, n, vars, &n_got, &e);
    CHECK(!got == !want, "%s:%zu: %s: %s", file, line, text, got ? got : e.msg);
    CHECK(!got || !want || (n_got == n_want && !memcmp(got, want, n_got)), "%s:%zu: %s\n  got  %s\n  want %s",
          file, line, text, got, want);
    free(text);
    free(want);
    free(got);
}

static void check_file(const char *file, size_t least)
{
    FILE *f = fopen(file, "r");
    CHECK(f != NULL, "%s", file);
    if (!f)
        return;
    char *data = NULL, *vars_data = NULL;
    size_t cap = 0, line = 0;
    struct json root, vars = {0}, v;
    struct err e;
    for (ssize_t n; (n = getline(&data, &cap, f)) > 0;) {
        CHECK(js_check_with_nul(&root, file, data, (size_t)n, &e) == 0, "%s", e.msg);
        line++;
        if (js_get(&root, "vars", &v, &e) > 0) {
            free(vars_data);
            vars_data = data;
            vars = v;
            data = NULL;
            cap = 0;
        } else {
            check_line(file, line, &root, &vars);
        }
    }
    CHECK(line >= least, "%zu lines", line);
    free(data);
    free(vars_data);
    fclose(f);
}

static void equals_jinja2(void) { check_file("tests/data/jinja/templates.jsonl", 350); }
static void equals_jinja2_at_random(void) { check_file("tests/data/jinja/random.jsonl", 400); }

/* The template with `variables` gives `want`, or for NULL the one line `reason`. */
static void check(const char *template, const char *variables, const char *want, const char *reason)
{
    struct json vars;
    struct err e;
    size_t n;
    CHECK(js_check(&vars, "vars", variables, strlen(variables), &e) == 0);
    char *got = render(template, strlen(template), &vars, &n, &e);
    CHECK(want ? got && !strcmp(got, want) : !got, "%.60s: %.60s", template, got ? got : e.msg);
    CHECK(want || (e.code == ERR_INPUT && !strcmp(e.msg, reason)), "%.60s: %s", template, e.msg);
    free(got);
}

static void errors_name_the_line(void)
{
    check("a\n{{ x.y }}", "{}", NULL, "t, line 2: 'x' is undefined");
    check("{% for x in l recursive %}{% endfor %}", "{}", NULL,
          "t, line 1: recursive loops are not supported");
    check("\n\n{% include 'x' %}", "{}", NULL, "t, line 3: the statement 'include' is not supported");
    check("{% if x %}\n\n{{ raise_exception('Only ' ~ x) }}{% endif %}", "{\"x\":\"one\"}", NULL,
          "t, line 3: Only one");
    check("{{ 9223372036854775807 + 1 }}", "{}", NULL, "t, line 1: a result is beyond 64 bits");
    check("{{ x }}\n{% endif %}", "{}", NULL, "t, line 2: expected a statement, found 'endif'");
    check("\xff", "{}", NULL, "t: byte 0xff at offset 0 is not UTF-8");
}

/* What transformers refuses and templates need: lists and dicts change, and JSON is parsed. */
static void changes_lists(void)
{
    check("{% set l = [1] %}{% set _ = l.append(2) %}{{ l.pop(0) }}{{ l }}", "{}", "1[2]", NULL);
    check("{% set d = {'a': 1, 'b': 2} %}{{ d.pop('a') }}{{ d }}{{ d.pop('q', 3) }}", "{}", "1{'b': 2}3",
          NULL);
    check("{{ ('{\"a\": [1, null]}'|from_json).a }}", "{}", "[1, None]", NULL);
}

static void limits(void)
{
    char deep[4000];
    check("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "{}", NULL,
          "t, line 1: more than 200 calls in each other");
    check("{% set l = [1] %}{% set _ = l.append(l) %}{{ l }}", "{}", NULL, "t, line 1: more than 200 levels");
    check("{{ range(100001) }}", "{}", NULL, "t, line 1: a range has at most 100000 numbers");
    check("{% set a = 'x' * 1000000 %}{% for i in range(20) %}{{ a }}{% endfor %}", "{}", NULL,
          "t, line 1: the prompt has more than 16 MiB");
    check("{% set ns = namespace(a='x') %}{% for i in range(30) %}{% set ns.a = ns.a + ns.a %}{% endfor %}",
          "{}", NULL, "t, line 1: the template needs more than 64 MiB of memory");
    for (int brackets = 0; brackets < 2; brackets++) {
        snprintf(deep, sizeof deep, "{{ %0*d }}", 1000, 0);
        memset(deep + 3, brackets ? '(' : '-', 1000);
        check(deep, "{}", NULL,
              brackets ? "t, line 1: more than 200 brackets" : "t, line 1: more than 200 levels");
    }
}

/* Ten million steps or one second, whichever comes first. */
static void has_an_end(void)
{
    static const char endless[] =
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}";
    struct json vars;
    struct err e;
    size_t n;
    CHECK(js_check(&vars, "vars", "{}", 2, &e) == 0);
    CHECK(!render(endless, strlen(endless), &vars, &n, &e));
    CHECK(strstr(e.msg, "t, line 1: the template takes ") != NULL, "%s", e.msg);
}

static struct jinja *parsed(const char *template)
{
    struct jinja *t;
    struct err e;
    CHECK(jinja_open(&t, "t", template, strlen(template), &e) == 0, "%s", e.msg);
    return t;
}

static bool loops(const char *template)
{
    struct jinja *t = parsed(template);
    const bool yes = jinja_loops_over_content(t);
    jinja_close(t);
    return yes;
}

static void count_marks(void *ctx, const char *text, size_t n)
{
    *(int *)ctx += memmem(text, n, "<|x|>", 5) != NULL;
}

static void describes_a_template(void)
{
    struct jinja *t = parsed("<|x|>{% if enable_thinking %}{{ m['<|x|>'] }}{{ '{{ other }}' }}{% endif %}");
    int marks = 0;
    jinja_texts(t, count_marks, &marks);
    CHECK(marks == 2, "%d", marks);
    CHECK(jinja_names(t, "enable_thinking") && jinja_names(t, "m") && !jinja_names(t, "other"));
    jinja_close(t);
    CHECK(loops("{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}"));
    CHECK(loops(
        "{% for m in messages %}{% set c = m['content'] %}{% for p in c %}{{ p }}{% endfor %}{% endfor %}"));
    CHECK(loops("{{ messages[0].content[0].text }}"));
    CHECK(!loops("{% for m in messages %}{{ m.content }}{% endfor %}"));
}

int main(void)
{
    RUN(equals_jinja2);
    RUN(equals_jinja2_at_random);
    RUN(errors_name_the_line);
    RUN(changes_lists);
    RUN(limits);
    RUN(has_an_end);
    RUN(describes_a_template);
    return test_end();
}
