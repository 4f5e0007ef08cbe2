/* The JSON writer: number formats, values that become null, styles, and text that is not UTF-8. */
#include <math.h>
#include <stdlib.h>

#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "src/base/output.h"
#include "tests/test.h"

static char *text;
static size_t n_text;

static FILE *begin(void)
{
    FILE *f = memory_file(&text, &n_text);
    if (!f)
        abort();
    return f;
}

static void wrote(FILE *f, const char *expected)
{
    CHECK(stream_end(f) == 0 && strcmp(text, expected) == 0, "%s", text);
    free(text);
}

static void numbers_keep_their_format_and_become_null_if_not_finite(void)
{
    FILE *f = begin();
    struct json_writer w = jw_begin(f, JW_LINE, 4);
    jw_format(&w, "a", "%.3f", 1.5);
    jw_format(&w, "b", "%.3f", (double)NAN);
    jw_format(&w, "c", "%.17g", (double)-INFINITY);
    jw_format(&w, "d", "%.0f", 1e15);
    jw_real(&w, "e", 2);
    jw_real(&w, "f", 1e-5);
    jw_number(&w, "g", 2);
    jw_number(&w, "h", 3338.9999);
    jw_number(&w, "i", NAN);
    jw_uint(&w, "j", UINT64_MAX);
    jw_int(&w, "k", INT64_MIN);
    jw_end(&w);
    wrote(f, "{\"a\": 1.500, \"b\": null, \"c\": null, \"d\": 1000000000000000, \"e\": 2.0, \"f\": 1e-5, "
             "\"g\": 2, \"h\": 3339, \"i\": null, \"j\": 18446744073709551615, "
             "\"k\": -9223372036854775808}\n");
}

static void write_list(struct json_writer w)
{
    jw_open(&w, NULL, '[');
    for (int i = 0; i < 2; i++) {
        jw_open(&w, NULL, '{');
        jw_int(&w, "i", i);
        jw_open(&w, "none", '[');
        jw_close(&w, ']');
        jw_close(&w, '}');
    }
    jw_close(&w, ']');
}

static void styles_separate_members_and_elements(void)
{
    static const char *const expected[] = {
        [JW_LINE] = "[{\"i\": 0, \"none\": []}, {\"i\": 1, \"none\": []}]",
        [JW_COMPACT] = "[{\"i\":0,\"none\":[]},{\"i\":1,\"none\":[]}]",
        [JW_INDENTED] = "[\n {\n  \"i\": 0,\n  \"none\": []\n },\n {\n  \"i\": 1,\n  \"none\": []\n }\n]",
        [JW_LIST] = "[{\"i\": 0, \"none\": []},\n {\"i\": 1, \"none\": []}]",
    };
    for (int k = JW_LINE; k <= JW_LIST; k++) {
        FILE *f = begin();
        write_list((struct json_writer){ .f = f, .style = (enum jw_style)k });
        wrote(f, expected[k]);
    }
}

static void texts_are_escaped_and_json_in_texts_stays_json(void)
{
    FILE *f = begin();
    struct json_writer w = jw_begin(f, JW_LINE, 6);
    jw_text(&w, "a", "\"\\\n\x01\xff\xc3\xa4");
    jw_text(&w, "b", NULL);
    jw_parsed(&w, "c", " {\"x\":[1.50, true]} ");
    jw_parsed(&w, "d", "{x}");
    jw_parsed(&w, "e", NULL);
    jw_end(&w);
    wrote(f, "{\"a\": \"\\\"\\\\\\n\\u0001\\\\xff\xc3\xa4\", \"b\": null, \"c\": {\"x\": [1.50, true]}, "
             "\"d\": \"{x}\", \"e\": null}\n");
}

int main(void)
{
    RUN(numbers_keep_their_format_and_become_null_if_not_finite);
    RUN(styles_separate_members_and_elements);
    RUN(texts_are_escaped_and_json_in_texts_stays_json);
    return test_end();
}
