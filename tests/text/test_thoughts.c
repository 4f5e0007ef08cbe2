/* Where the answer of a model that thinks begins. Texts of jobs: tests/cli/thinking.sh. */
#include "tests/test.h"
#include "src/text/thoughts.h"

/* The answer of a text under a tokenizer; the text is given token by token. */
static void check_answer(const struct tokenizer *t, const char *prompt, const char *text, const char *answer)
{
    struct err e = { 0 };
    struct thoughts x;
    int32_t *before, *ids;
    size_t n_before, n, total = 0;
    char shown[512] = "", *bytes = malloc(decode_stream_max(t));
    struct decode_stream d;
    if (tokenizer_encode(t, &before, &n_before, prompt, strlen(prompt), false, &e) ||
        tokenizer_encode(t, &ids, &n, text, strlen(text), false, &e) ||
        thoughts_begin(&x, t, before, n_before, &e)) {
        CHECK(false, "%s", e.msg);
        return;
    }
    decode_stream_start(&d, t, false, true);
    for (size_t i = 0; i < n; i++) {
        const size_t some = decode_stream_push(&d, ids[i], bytes);
        memcpy(shown + total, bytes, some);
        total += some;
        thoughts_token(&x, ids[i], total + d.n_held);
    }
    shown[total] = 0;
    const char *got = shown + (x.state == THOUGHTS_OPEN ? total : MIN(x.begins, total));
    while (*got && thoughts_trims(&x, *got))
        got++;
    CHECK(strcmp(got, answer) == 0, "%s|%s: '%s', needed is '%s'", prompt, text, got, answer);
    thoughts_end(&x);
    free(before);
    free(ids);
    free(bytes);
}

static const struct { const char *prompt, *text, *answer; } cases[] = {
    { "assistant\n", "Yes.", "Yes." },
    { "assistant\n", " <b> Yes.", " <b> Yes." },
    { "assistant\n", "<think>\nHm.\n</think>\n\nYes.", "Yes." },
    { "assistant\n", "\n<think>\nHm.\n</think>\n\nYes.", "Yes." },
    { "assistant\n<think>\n", "Hm.\n</think>\n\nYes.", "Yes." },
    { "assistant\n<think>\n", "Hm, and", "" },
    { "assistant\n<think>\n\n</think>\n\n", "Yes.", "Yes." },
    { "assistant\n", "<think>Hm, and", "" },
    { "assistant\n", "<thin", "<thin" },
    { "assistant\n", "[THINK]Hm.[/THINK]Yes.", "Yes." },
    { "assistant\n", "[THINK]Hm.</think>Yes.", "" },
    { "assistant\n", "<think>a</think><think>b</think> Yes.", "Yes." },
    { "assistant\n", "<think>a</think>Yes. <think>b</think> No.", "Yes. <think>b</think> No." },
    { "assistant\n", "Yes. </think> No.", "Yes. </think> No." },
    { "assistant\n",
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.", "Yes." },
    { "assistant", "<|channel|>final<|message|>Yes.", "Yes." },
    { "assistant\n", "", "" },
};

/* Writes text with every `from` replaced by `to` into out, which has room. */
static void replaced(char *out, const char *text, const char *from, const char *to)
{
    for (const char *p; (p = strstr(text, from)); text = p + strlen(from))
        out += sprintf(out, "%.*s%s", (int)(p - text), text, to);
    strcpy(out, text);
}

/* Opens the tokenizer of models/demo. special: its special tokens are the marks of a thought. */
static struct tokenizer *open_demo(bool special)
{
    struct err e = { 0 };
    struct tokenizer *t = NULL;
    char *json, *text, *renamed;
    size_t n;
    CHECK(file_read(&json, &n, "models/demo/tokenizer.json", 10 << 20, &e) == 0, "%s", e.msg);
    text = malloc(2 * n);
    renamed = malloc(2 * n);
    memcpy(text, json, n);
    text[n] = 0;
    if (special) {
        replaced(renamed, text, "<|begin_of_text|>", "<|START_THINKING|>");
        replaced(text, renamed, "<|end_of_text|>", "<|END_THINKING|>");
    }
    CHECK(tokenizer_parse(&t, "demo", text, strlen(text), SIZE_MAX, &e) == 0, "%s", e.msg);
    free(json);
    free(text);
    free(renamed);
    return t;
}

static void marks_of_ordinary_tokens(void)
{
    struct tokenizer *t = open_demo(false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_answer(t, cases[i].prompt, cases[i].text, cases[i].answer);
    tokenizer_close(t);
}

/* They have no bytes in the text. */
static void marks_of_special_tokens(void)
{
    struct tokenizer *t = open_demo(true);
    check_answer(t, "Hi", "<|START_THINKING|>Hm.<|END_THINKING|> Yes.", "Yes.");
    check_answer(t, "Hi<|START_THINKING|>", "Hm.<|END_THINKING|>Yes.<|END_THINKING|> No.", "Yes. No.");
    check_answer(t, "Hi", "<|END_THINKING|>Yes.", "Yes.");
    check_answer(t, "Hi", "<|START_THINKING|>Hm.", "");
    check_answer(t, "Hi", "<|START_THINKING|><|END_THINKING|>\nYes.", "Yes.");
    tokenizer_close(t);
}

int main(void)
{
    RUN(marks_of_ordinary_tokens);
    RUN(marks_of_special_tokens);
    return test_end();
}
