/* An interpreter for the part of Jinja2 (3.1) that chat templates use.
 *
 *     struct jinja *t;
 *     if (jinja_open(&t, "chat_template.jinja", text, n, e)) ...
 *     if (jinja_render(t, &variables, &how, &out, &n_out, e)) ...         variables: a JSON object
 *     free(out); jinja_close(t);
 *
 * A template renders to the bytes that jinja2 makes with the environment of transformers: the immutable
 * sandbox, trim_blocks, lstrip_blocks, loopcontrols, the functions raise_exception and strftime_now, the
 * filter tojson without HTML escapes, and generation blocks. tests/make/make_jinja_fixtures.py renders the
 * fixtures of the test with jinja2, tests/make/jinja_random.py compares random templates.
 *
 * Statements: if, for with `if` and else, set (names, unpacking, namespace attributes, blocks), macro, filter
 * blocks, with, print, break, continue, generation, raw. Refused by name: recursive loops, call, do, block,
 * extends, include, import, from, autoescape.
 *
 * Values are those of Python. These differ from jinja2:
 *   - Whole numbers have 64 bits; a result beyond them is an error.
 *   - append and pop change lists and dicts. transformers' sandbox refuses them, other engines have them, and
 *     templates use them. from_json parses a text, for the same reason.
 *   - Functions, methods, macros, loops and iterators have no text: to print one is an error.
 *   - str.format knows {}, {0} and {name}; `%` of a text knows %s, %r, %d, %i, %f, %x and %%.
 *   - A text marked by safe escapes what + joins to it, as in jinja2; every other use drops the mark.
 *   - A slice of a number is an error, also where jinja2 folds constants to an undefined.
 *
 * A template comes from strangers. It has one second, 10 million steps, one arena of 64 MiB, 16 MiB of
 * output, and 200 levels of calls, brackets, printed lists and iterators. A range has at most 100,000
 * numbers. A step is work of about 64 ns, so long texts and lists are many steps. Each limit, and every other
 * error, is one line: "NAME, line 3: reason", ERR_INPUT. */
#pragma once
#include <time.h>

#include "src/base/json.h"

struct jinja;

struct jinja_run {
    time_t now;                  /* of strftime_now, in UTC */
};

/* Parses text[0..n), which is copied. `name` stands in messages and is borrowed. */
int  jinja_open(struct jinja **t, const char *name, const char *text, size_t n, struct err *e);
void jinja_close(struct jinja *t);

/* Renders the template with the members of `variables`, an object. *out has n_out bytes of UTF-8 and a NUL;
 * the caller frees it. Several threads may render one template, and ask what follows about it. */
int jinja_render(const struct jinja *t, const struct json *variables, const struct jinja_run *run,
                 char **out, size_t *n_out, struct err *e);

/* Whether an expression of the template names the variable. */
bool jinja_names(const struct jinja *t, const char *variable);
/* Whether the template has the word as a name, an attribute, or a whole text in quotes. */
bool jinja_mentions(const struct jinja *t, const char *word);
/* Whether the template has a loop over, or takes an element of, a value called `content`, of an object or
 * in a variable of that name; also of a variable that was set from one. */
bool jinja_loops_over_content(const struct jinja *t);
/* Calls take(ctx, text, n) for every text of the template: its data and its string constants. */
void jinja_texts(const struct jinja *t, void (*take)(void *ctx, const char *text, size_t n), void *ctx);
