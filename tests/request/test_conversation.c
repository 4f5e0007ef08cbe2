/* Thoughts of an answer, which the next turn of a chat does not read. Chats as a whole: tests/cli/book.sh. */
#include "tests/test.h"
#include "src/request/conversation.h"

static void a_thought_is_what_stands_before_its_end(void)
{
    static const struct { const char *prompt, *text, *answer; } v[] = {
        { "assistant\n", "Yes.", "Yes." },
        { "assistant\n", "<think>\nHm.\n</think>\n\nYes.", "Yes." },
        { "assistant\n<think>\n", "Hm.\n</think>\n\nYes.", "Yes." },
        { "assistant\n<think>\n", "Hm, and", "" },
        { "assistant\n", "<think>Hm, and", "" },
        { "assistant\n", "[THINK]Hm.[/THINK]Yes.", "Yes." },
        { "assistant\n", "<think>a</think><think>b</think> Yes.", "Yes." },
        { "assistant\n", "", "" },
    };
    for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
        const size_t n = strlen(v[i].text);
        const bool opened = conversation_opens_thought(v[i].prompt, strlen(v[i].prompt));
        const size_t at = conversation_thought(v[i].text, n, opened);
        CHECK(at <= n && strcmp(v[i].text + at, v[i].answer) == 0, "%s: %zu", v[i].text, at);
    }
}

int main(void)
{
    RUN(a_thought_is_what_stands_before_its_end);
    return test_end();
}
