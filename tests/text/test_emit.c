/* Emission compared with brute force: the rules applied to the whole text, for every way to cut it into
 * tokens.
 *
 * The vocabulary holds every string of 1 to 4 bytes out of a, b and the two bytes of U+00E9, then two end
 * tokens. Any cut of a text over {a, b, e acute} is therefore a list of tokens, even a cut inside a code
 * point. */
#include "src/text/emit.h"
#include "tests/test.h"

enum { LETTERS = 4, STRINGS = 4 + 16 + 64 + 256, EOS_1 = STRINGS, EOS_2, SPECIAL, VOCAB };
static const char letters[LETTERS] = { 'a', 'b', '\xc3', '\xa9' };
static struct tokenizer *byte_level, *byte_run;

static int32_t id_of(const char *s, size_t n)
{
    int32_t id = 0;
    for (size_t i = 0; i < n; i++)
        for (int32_t l = 0; l < LETTERS; l++)
            if (s[i] == letters[l])
                id = id * LETTERS + l + 1;      /* bijective base 4: lengths need no offset */
    return id - 1;
}

/* The vocabulary as byte-level BPE, where printable Latin-1 bytes are their own characters. */
static int open_byte_level(struct err *e)
{
    char *json = malloc(1 << 16), *p = json;
    static const char *const names[LETTERS] = { "a", "b", "\u00c3", "\u00a9" };
    p += sprintf(p, "{\"version\":\"1.0\",\"added_tokens\":[");
    for (int i = EOS_1; i < VOCAB; i++)
        p += sprintf(
            p,
            "%s{\"id\":%d,\"content\":\"<%d>\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
            "\"normalized\":false,\"special\":true}",
            i > EOS_1 ? "," : "", i, i);
    p += sprintf(p, "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":"
                    "false,\"trim_offsets\":true,"
                    "\"use_regex\":true},\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\",\"add_"
                    "prefix_space\":true,"
                    "\"trim_offsets\":true,\"use_regex\":true},\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int id = 0; id < STRINGS; id++) {
        int digits[4], n = 0;
        for (int k = id + 1; k > 0; k = (k - 1) / LETTERS)
            digits[n++] = (k - 1) % LETTERS;
        p += sprintf(p, "%s\"", id ? "," : "");
        while (n > 0)
            p += sprintf(p, "%s", names[digits[--n]]);
        p += sprintf(p, "\":%d", id);
    }
    p += sprintf(p, "},\"merges\":[]}}");
    int rc = tokenizer_parse(&byte_level, "byte-level", json, (size_t)(p - json), VOCAB, e);
    free(json);
    return rc;
}

/* SentencePiece-style with byte tokens: <0x00>..<0xFF>, then "_" (a space) and "x". */
enum { RUN_SPACE = 257, RUN_X, RUN_EOS, RUN_VOCAB };
static int open_byte_run(struct err *e)
{
    char *json = malloc(1 << 16), *p = json;
    p += sprintf(p, "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":0,\"content\":\"<unk>\","
                 "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
                 "\"special\":true},{\"id\":%d,\"content\":\"</s>\",\"single_word\":false,"
                 "\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}],", RUN_EOS);
    p += sprintf(p, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","
                 "\"prepend\":\"\u2581\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
                 "\"content\":\"\u2581\"}]},\"pre_tokenizer\":null,\"post_processor\":null,"
                 "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
                 "\"pattern\":{\"String\":\"\u2581\"},"
                 "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\","
                 "\"content\":\" \",\"start\":1,\"stop\":0}]},\"model\":{\"type\":\"BPE\","
                 "\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true,\"vocab\":{\"<unk>\":0");
    for (int i = 0; i < 256; i++)
        p += sprintf(p, ",\"<0x%02X>\":%d", (unsigned)i, i + 1);
    p += sprintf(p, ",\"\u2581\":%d,\"x\":%d,\"</s>\":%d},\"merges\":[]}}", RUN_SPACE, RUN_X, RUN_EOS);
    int rc = tokenizer_parse(&byte_run, "byte-run", json, (size_t)(p - json), RUN_VOCAB, e);
    free(json);
    return rc;
}

static uint64_t state = 1;
static size_t random_below(size_t n)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (size_t)(state >> 33) % n;
}

/* Writes n code points of the alphabet and returns the number of bytes. */
static size_t random_text(char *s, size_t n)
{
    size_t at = 0;
    while (n--) {
        size_t l = random_below(3);
        s[at++] = letters[l];
        if (l == 2)
            s[at++] = letters[3];
    }
    s[at] = 0;
    return at;
}

/* Applies the rules to a whole text whose tokens end at ends[0..n_tokens). */
struct want { size_t text, tokens; enum finish finish; const char *stop; };

static struct want brute(const char *s, const size_t *ends, size_t n_tokens, const struct emit_rules *r)
{
    struct want w = { 0, MIN(n_tokens, r->tokens), n_tokens >= r->tokens ? FINISH_LENGTH : FINISH_NONE,
                      NULL };
    size_t n = w.tokens ? ends[w.tokens - 1] : 0;
    w.text = n;
    for (size_t end = 1; end <= n && !w.stop; end++)
        for (size_t i = 0; i < r->n_stop; i++) {
            size_t k = strlen(r->stop[i]);
            if (k <= end && !memcmp(s + end - k, r->stop[i], k) && (!w.stop || k > strlen(w.stop))) {
                w.stop = r->stop[i];
                w.text = end - k;
                w.finish = FINISH_STOP;
                for (w.tokens = 1; ends[w.tokens - 1] < end; w.tokens++)
                    ;
            }
        }
    return w;
}

/* The bytes of a text of n that must be held: the longest end that begins a stop string, or half a code
 * point. */
static size_t brute_held(const char *s, size_t n, const struct emit_rules *r)
{
    size_t half = n && s[n - 1] == letters[2], most = 0;
    for (size_t i = 0; i < r->n_stop; i++)
        for (size_t k = 1; k < strlen(r->stop[i]) && k <= n - half; k++)
            if (!memcmp(s + n - half - k, r->stop[i], k))
                most = MAX(most, k);
    return most + half;
}

/* Emits s cut at ends[] and compares the output and the held bytes at each step. False at the first
 * difference. */
static bool check_cut(const char *s, const size_t *ends, size_t n_tokens, const struct emit_rules *r)
{
    struct emit m;
    struct err e;
    struct want w = brute(s, ends, n_tokens, r);
    char got[256];
    size_t n_got = 0, n, from = 0;
    const char *out;
    bool good = !emit_open(&m, r, byte_level, true, &e);
    for (size_t i = 0; good && i < n_tokens && m.finish == FINISH_NONE; from = ends[i++]) {
        emit_token(&m, id_of(s + from, ends[i] - from), &out, &n);
        memcpy(got + n_got, out, n);
        n_got += n;
        if (m.finish == FINISH_NONE && n_got != ends[i] - brute_held(s, ends[i], r))
            good = false;
    }
    if (good && m.finish == FINISH_NONE) {
        emit_flush(&m, &out, &n);
        memcpy(got + n_got, out, n);
        n_got += n;
    }
    /* an end inside a code point gives U+FFFD */
    bool half = w.text && !w.stop && s[w.text - 1] == letters[2];
    size_t same = half ? w.text - 1 : w.text;
    good = good && n_got == same + 3 * half && !memcmp(got, s, same) &&
           (!half || !memcmp(got + same, "\xef\xbf\xbd", 3)) && m.n == w.tokens && m.finish == w.finish &&
           m.stop_string == w.stop && m.stop_token == -1;
    emit_close(&m);
    return good;
}

static const char *const stop_sets[][4] = {
    { NULL }, { "a" }, { "ab" }, { "aa" }, { "aab", "ab" }, { "b", "aab" }, { "abab", "bab\u00e9" },
    { "\u00e9" }, { "\u00e9\u00e9a" },
    { "aabaa", "baab", "abb" }, { "aaaa", "aaab", "ba" }, { "abcd" }, { "a\u00e9b", "\u00e9b", "b" },
};

static struct emit_rules rules_of(size_t set, size_t tokens)
{
    struct emit_rules r = { .tokens = tokens, .stop = stop_sets[set] };
    while (r.n_stop < 4 && stop_sets[set][r.n_stop])
        r.n_stop++;
    return r;
}

static void emit_equals_brute_force_for_every_cut(void)
{
    size_t cases = 0, stopped = 0;
    for (size_t set = 0; set < sizeof stop_sets / sizeof *stop_sets; set++)
        for (int i = 0; i < 60; i++) {
            char s[64];
            size_t n = random_text(s, 2 + random_below(6)), tokens = i % 3 ? 100 : 1 + random_below(6);
            n = MIN(n, 9);
            struct emit_rules r = rules_of(set, tokens);
            for (unsigned cuts = 0; cuts < 1u << (n - 1); cuts++) {
                size_t ends[64], n_ends = 0, last = 0;
                for (size_t at = 1; at <= n; at++)
                    if (at == n || cuts >> (at - 1) & 1 || at - last == 4)
                        last = ends[n_ends++] = at;
                CHECK(check_cut(s, ends, n_ends, &r), "text \"%.*s\", stop set %zu, cut %x, %zu tokens",
                      (int)n, s, set, cuts, tokens);
                if (test_failed_)
                    return;
                cases++;
                stopped += brute(s, ends, n_ends, &r).stop != NULL;
            }
        }
    CHECK(cases > 20000 && stopped > cases / 4 && stopped < cases, "%zu of %zu", stopped, cases);
}

static void emit_equals_brute_force_on_long_texts(void)
{
    for (int i = 0; i < 20000 && !test_failed_; i++) {
        char s[160], stops[3][24];
        const char *stop[3] = { stops[0], stops[1], stops[2] };
        size_t n = random_text(s, 70), ends[160], n_ends = 0;
        struct emit_rules r = { .tokens = i % 5 ? 1000 : random_below(40) + 1, .stop = stop,
                                .n_stop = random_below(4) };
        for (size_t k = 0; k < r.n_stop; k++)
            random_text(stops[k], 2 + random_below(7));
        for (size_t at = 0; at < n; ) {
            at += 1 + random_below(4);
            ends[n_ends++] = at = MIN(n, at);
        }
        CHECK(check_cut(s, ends, n_ends, &r), "text %d", i);
    }
}

/* Checks the checker: it must find wrong results, or the two tests above are worthless. */
static void check_cut_notices_differences(void)
{
    const size_t ends[] = { 1, 2, 3 };
    struct emit_rules r = rules_of(2, 100);
    CHECK(check_cut("abb", ends, 3, &r));
    struct want w = brute("abb", ends, 3, &r);
    CHECK(w.text == 0 && w.tokens == 2 && w.finish == FINISH_STOP);
    r.n_stop = 0;
    w = brute("abb", ends, 3, &r);
    CHECK(w.text == 3 && w.tokens == 3 && w.finish == FINISH_NONE);
    CHECK(brute_held("xa", 2, &(struct emit_rules){ .stop = stop_sets[2], .n_stop = 1 }) == 1);
}

static void eos_ends_the_text_and_is_in_neither(void)
{
    static const int32_t eos[] = { EOS_2, EOS_1 };
    static const char *const stop[] = { "ab" };
    struct emit_rules r = { .tokens = 10, .eos = eos, .n_eos = 2, .stop = stop, .n_stop = 1 };
    struct emit m;
    struct err e;
    const char *out;
    size_t n;
    CHECK(!emit_open(&m, &r, byte_level, true, &e));
    emit_token(&m, id_of("ba", 2), &out, &n);
    CHECK(n == 1 && out[0] == 'b', "the a may begin a stop string");
    emit_token(&m, EOS_1, &out, &n);
    CHECK(n == 1 && out[0] == 'a' && m.finish == FINISH_STOP && m.stop_token == EOS_1 && !m.stop_string &&
          m.n == 1);
    emit_close(&m);
    r.ignore_eos = true;                                   /* EOS is an ordinary token without text */
    CHECK(!emit_open(&m, &r, byte_level, true, &e));
    emit_token(&m, id_of("a", 1), &out, &n);
    CHECK(n == 0);
    emit_token(&m, EOS_1, &out, &n);
    CHECK(n == 0 && m.finish == FINISH_NONE && m.n == 2);
    emit_token(&m, id_of("b", 1), &out, &n);               /* a special token does not interrupt a stop
                                                            * string */
    CHECK(n == 0 && m.finish == FINISH_STOP && m.stop_string == stop[0] && m.stop_token == -1 && m.n == 3);
    emit_close(&m);
    emit_close(&m);
}

static void length_releases_what_is_held(void)
{
    static const char *const stop[] = { "ab" };
    struct emit_rules r = { .tokens = 2, .stop = stop, .n_stop = 1 };
    struct emit m;
    struct err e;
    const char *out;
    size_t n;
    CHECK(!emit_open(&m, &r, byte_level, true, &e));
    emit_token(&m, id_of("b", 1), &out, &n);
    emit_token(&m, id_of("ba", 2), &out, &n);
    CHECK(n == 2 && !memcmp(out, "ba", 2) && m.finish == FINISH_LENGTH && m.n == 2);
    emit_close(&m);
    CHECK(!emit_open(&m, &r, byte_level, true, &e));       /* a stop string at the last token counts as a
                                                            * stop */
    emit_token(&m, id_of("a", 1), &out, &n);
    emit_token(&m, id_of("ba", 2), &out, &n);
    CHECK(n == 0 && m.finish == FINISH_STOP && m.n == 2);
    emit_close(&m);
    r.tokens = 0;
    CHECK(!emit_open(&m, &r, byte_level, true, &e) && m.finish == FINISH_LENGTH && m.n == 0);
    emit_close(&m);
}

/* Neither a stop string nor the loop rule ends a text before its minimum, wherever the string begins. */
static void nothing_ends_a_text_before_its_minimum(void)
{
    static const char *const stop[] = { "aba" };
    for (size_t min = 0; min <= 6; min++) {
        struct emit_rules r = { .tokens = 200, .stop = stop, .n_stop = 1, .min_tokens = min };
        struct emit m;
        struct err e;
        const char *out;
        size_t n, shown = 0;
        CHECK(!emit_open(&m, &r, byte_level, true, &e));
        for (size_t i = 0; m.finish == FINISH_NONE && i < 20; i++, shown += n)
            emit_token(&m, id_of(&"ab"[i % 2], 1), &out, &n);
        /* "aba" is complete at tokens 3, 5, 7 */
        const size_t ends = min <= 3 ? 3 : min <= 5 ? 5 : 7;
        CHECK(m.finish == FINISH_STOP && m.n == ends && shown == ends - 3, "minimum %zu: %zu tokens", min,
              m.n);
        emit_close(&m);
    }
    for (size_t min = 0; min <= 400; min += 400) {
        struct emit_rules r = { .tokens = 500, .on_loop = ON_LOOP_STOP, .min_tokens = min };
        struct emit m;
        struct err e;
        const char *out;
        size_t n;
        CHECK(!emit_open(&m, &r, byte_level, true, &e));
        for (size_t i = 0; m.finish == FINISH_NONE; i++)
            emit_token(&m, id_of(&"ab"[i % 2], 1), &out, &n);
        CHECK(m.finish == (min ? FINISH_LENGTH : FINISH_REPETITION) && m.repetitions == 1, "minimum %zu",
              min);
        emit_close(&m);
    }
}

/* A run of byte tokens becomes text only when it ends, and may then hold a stop string. */
static void byte_runs_are_searched_when_they_end(void)
{
    static const char *const stop[] = { "\n\n" };
    static const int32_t eos[] = { RUN_EOS };
    struct emit m;
    struct err e;
    const char *out;
    for (int how = 0; how < 3; how++) {
        struct emit_rules r = { .tokens = how == 1 ? 3 : 10, .eos = eos, .n_eos = 1, .stop = stop,
                                .n_stop = 1 };
        char got[64];
        size_t n_got = 0, n;
        int32_t ids[4] = { RUN_X, '\n' + 1, '\n' + 1, how == 0 ? RUN_EOS : RUN_X };
        CHECK(!emit_open(&m, &r, byte_run, false, &e));
        for (int i = 0; i < 4 && m.finish == FINISH_NONE; i++) {
            emit_token(&m, ids[i], &out, &n);
            memcpy(got + n_got, out, n);
            n_got += n;
        }
        CHECK(n_got == 1 && got[0] == 'x' && m.finish == FINISH_STOP && m.stop_string == stop[0] &&
                  m.stop_token == -1,
              "%d: %zu bytes", how, n_got);
        emit_close(&m);
    }
}

static void bad_stop_strings_are_refused(void)
{
    static char large[STOP_STRING_BYTES_MAX + 2];
    const char *stop[STOP_STRINGS_MAX + 1];
    static const struct { const char *s, *says; } bad[] = {
        { "", "--stop: a string of 0 bytes, 1 to 1024 are allowed" },
        { "a\xc3", "--stop: invalid UTF-8 at offset 1 (byte 0xc3)" },
        { large, "--stop: a string of 1025 bytes, 1 to 1024 are allowed" },
    };
    struct emit m;
    struct err e;
    memset(large, 'a', STOP_STRING_BYTES_MAX + 1);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct emit_rules r = { .tokens = 1, .stop = &bad[i].s, .n_stop = 1 };
        CHECK(emit_open(&m, &r, byte_level, true, &e) == -1 && e.code == ERR_INPUT &&
                  !strcmp(e.msg, bad[i].says),
              "%s", e.msg);
    }
    for (size_t i = 0; i <= STOP_STRINGS_MAX; i++)
        stop[i] = large + i + 1;                           /* strings of the maximal length */
    struct emit_rules r = { .tokens = 9, .stop = stop, .n_stop = STOP_STRINGS_MAX + 1 };
    CHECK(emit_open(&m, &r, byte_level, true, &e) == -1 &&
              !strcmp(e.msg, "--stop: 65 strings, at most 64 are allowed"),
          "%s", e.msg);
    r.n_stop = STOP_STRINGS_MAX;
    r.tokens = 2000;
    CHECK(!emit_open(&m, &r, byte_level, true, &e));
    const char *out;
    size_t n, tokens = 0, shown = 0;
    while (m.finish == FINISH_NONE) {
        emit_token(&m, id_of("aaaa", 4), &out, &n);
        tokens++;
        shown += n;
    }
    size_t shortest = STOP_STRING_BYTES_MAX + 1 - STOP_STRINGS_MAX;
    CHECK(m.finish == FINISH_STOP && tokens == (shortest + 3) / 4 && shown == 0, "%zu tokens, %zu bytes",
          tokens, shown);
    emit_close(&m);
}

int main(void)
{
    struct err e;
    if (open_byte_level(&e) || open_byte_run(&e)) {
        printf("FAIL tokenizers of the test: %s\n", e.msg);
        return 1;
    }
    RUN(check_cut_notices_differences);
    RUN(emit_equals_brute_force_for_every_cut);
    RUN(emit_equals_brute_force_on_long_texts);
    RUN(eos_ends_the_text_and_is_in_neither);
    RUN(length_releases_what_is_held);
    RUN(nothing_ends_a_text_before_its_minimum);
    RUN(byte_runs_are_searched_when_they_end);
    RUN(bad_stop_strings_are_refused);
    tokenizer_close(byte_level);
    tokenizer_close(byte_run);
    return test_end();
}
