/* Numbers at their edges: whole numbers by their value, without a double between; a writer that copies
 * numbers of input; a writer without digits, which must not print a number. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "src/base/output.h"
#include "tests/test.h"

static struct json number(const char *s) { return (struct json){ .s = s, .end = s + strlen(s) }; }

static void whole_numbers_are_exact(void)
{
    static const struct { const char *text; uint64_t x; } good[] = {
        { "0", 0 }, { "4.0", 4 }, { "1e3", 1000 }, { "40e-1", 4 }, { "0.4e1", 4 }, { "0e99", 0 },
        { "0.000", 0 },
        { "18446744073709551615", UINT64_MAX }, { "18446744073709551615.000000", UINT64_MAX },
        { "1844674407370955161.5e1", UINT64_MAX }, { "184467440737095516150000E-4", UINT64_MAX },
        { "9007199254740993.0", 9007199254740993 }, { "1.000000000000000000000000000000000000000e0", 1 },
        { "00012", 12 },
    };
    static const char *const bad[] = {
        "", ".", "e", "1.", ".5", "4.5", "1e", "1e+", "1e-", "1e1.0", "1..0", "+1", "-1", "1e-1", "45e-1",
        "18446744073709551616", "1844674407370955161600e-2", "1e20", "1e99999999999999999999", "1 ",
        "92233720368547758080",
        "1e-99999999999999999999", "0x4", "true", "\"4\"", "[4]", "4.00000000000000000000000000000000000001",
    };
    uint64_t x;
    int64_t i;
    for (size_t k = 0; k < sizeof good / sizeof *good; k++) {
        const struct json v = number(good[k].text);
        CHECK(js_whole(&v, &x) && x == good[k].x, "%s", good[k].text);
    }
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        const struct json v = number(bad[k]);
        CHECK(!js_whole(&v, &x), "%s: %llu", bad[k], (unsigned long long)x);
    }
    const struct json least = number("-9223372036854775808.0"), less = number("-9223372036854775809");
    char digits[24];
    CHECK(js_i64(&least, &i) && i == INT64_MIN && !js_i64(&less, &i));
    CHECK(js_digits(&least, digits) && strcmp(digits, "-9223372036854775808") == 0, "%s", digits);
}

static void numbers_of_input_are_copied(void)
{
    static const char in[] = "{\"a\": [0.10000000000000000555, 1E+2, -0.0, 12345678901234567890123, 4.0]}";
    char *text;
    size_t n;
    struct json v;
    struct err e;
    FILE *f = memory_file(&text, &n);
    CHECK(js_check(&v, "", in, strlen(in), &e) == 0);
    jw_value(&(struct json_writer){ .f = f }, NULL, &v);
    CHECK(stream_end(f) == 0 && strcmp(text, in) == 0, "%s", text);
    free(text);
}

static void write_real(struct json_writer *w) { jw_real(w, NULL, 0.5); }
static void write_number(struct json_writer *w) { jw_number(w, NULL, 5); }

static void a_writer_without_digits_prints_no_number(void)
{
    void (*const writes[])(struct json_writer *) = { write_real, write_number };
    for (size_t k = 0; k < 2; k++) {
        int status = 0;
        const pid_t child = fork();
        if (child == 0) {
            signal(SIGABRT, SIG_DFL);
            fclose(stderr);
            writes[k](&(struct json_writer){ .f = stdout });
            _exit(0);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status) &&
              WTERMSIG(status) == SIGABRT, "status %d", status);
    }
}

static void seventeen_digits_are_as_few_as_needed(void)
{
    static const double x[] = { 0.8, 0.1 + 0.2, 1 / 3.0, 1e22, 5e-324, 0.256, 1.15 };
    char *text;
    size_t n;
    FILE *f = memory_file(&text, &n);
    jw_reals(&(struct json_writer){ .f = f, .digits = 17 }, NULL, x, sizeof x / sizeof *x);
    CHECK(stream_end(f) == 0 && strcmp(text, "[0.8, 0.30000000000000004, 0.3333333333333333, 1e22, "
                                             "4.94065645841247e-324, 0.256, 1.15]") == 0, "%s", text);
    free(text);
}

int main(void)
{
    RUN(whole_numbers_are_exact);
    RUN(numbers_of_input_are_copied);
    RUN(a_writer_without_digits_prints_no_number);
    RUN(seventeen_digits_are_as_few_as_needed);
    return test_end();
}
