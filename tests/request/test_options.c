/* The command line: spellings, ranges, the options of each verb, messages. */
#include "tests/test.h"
#include "src/request/job_params.h"
#include "src/request/options_impl.h"
#include "src/request/sampling_options.h"

static struct options o;
static struct err e;

/* Parses the words of `line`, which single spaces separate. */
static int parse(const char *line)
{
    static char text[1024], *argv[64];
    int argc = 0;
    snprintf(text, sizeof text, "longhand %s", line);
    for (char *p = strtok(text, " "); p; p = strtok(NULL, " "))
        argv[argc++] = p;
    argv[argc] = NULL;
    e = (struct err){0};
    return options_parse(&o, argc, argv, &e);
}

#define GOOD(line) CHECK(parse(line) == 0, "%s: %s", line, e.msg)
static void check_refused(const char *line, const char *part)
{
    int rc = parse(line);
    CHECK(rc == -1 && e.code == ERR_INPUT && strstr(e.msg, part) && !strchr(e.msg, '\n'), "%s: %d '%s'", line,
          rc, e.msg);
    if (rc == 0)
        options_free(&o);
}

static void options_have_their_defaults(void)
{
    GOOD("run");
    CHECK(o.verb->bit == VERB_RUN && o.job.sampling.min_keep == 1 && o.samples == 1 &&
          o.job.sampling.penalty_window == 1024 && o.job.sampling.min_tokens == 0);
    CHECK(o.job.compute == COMPUTE_BF16 && o.format == FORMAT_TEXT && o.progress == PROGRESS_AUTO &&
          o.generation_config == GENERATION_AUTO);
    CHECK(!options_given(&o, "min-keep") && !options_given(&o, "tokens") && !o.quiet && !o.model);
    options_free(&o);
    GOOD("");
    CHECK(o.verb->bit == VERB_HELP);
    options_free(&o);
}

static void options_are_spelled_in_every_way(void)
{
    const char *const lines[] = {
        "run --tokens 7 --seed 9", "run --tokens=7 -s9",         "run -n 7 -s 9",
        "run -n7 --seed=9",        "run --n_predict 7 --seed 9", "run --predict 7 -s 9",
        "run --max_tokens=7 -s 9", "run -n 5 -n 7 -s 9",         "run --max-tokens 7 --seed 9"
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        GOOD(lines[i]);
        CHECK(o.tokens == 7 && o.seed == 9 && options_given(&o, "tokens") && options_given(&o, "seed"), "%s",
              lines[i]);
        options_free(&o);
    }
    GOOD("run --seed 18446744073709551615 --temp 0.5 --top-k -1 --top_p .9 --repeat-penalty 1.1 "
         "--repeat-last-n -1 --file=- --stop a --stop b");
    const struct sampling *s = &o.job.sampling;
    CHECK(o.seed == UINT64_MAX && s->temperature == 0.5 && s->top_k == -1 && s->top_p == 0.9 &&
          s->penalty == 1.1 && s->penalty_window == -1);
    CHECK(!strcmp(o.prompt_file, "-") && o.job.stop.n == 2 && !strcmp(o.job.stop.v[1], "b"));
    options_free(&o);
    GOOD("run --compute f32 --format ids --progress json --generation-config none --drafter none --device "
         "cpu -q --ignore-eos");
    CHECK(o.job.compute == COMPUTE_F32 && o.format == FORMAT_IDS && o.progress == PROGRESS_JSON &&
          o.generation_config == GENERATION_NONE && o.quiet && o.job.sampling.ignore_eos);
    options_free(&o);
    GOOD("train heads --device cuda:1 --heads 2 --steps 5 --batch-windows 3");
    CHECK(o.device && !strcmp(o.device, "cuda:1") && o.heads == 2 && o.train_steps == 5 &&
          o.train_batch == 3);
    options_free(&o);
    GOOD("train heads");
    CHECK(o.device && !strcmp(o.device, "auto") && !options_given(&o, "device"));
    options_free(&o);
    GOOD("distinct a -- --json");
    CHECK(o.n_args == 2 && !strcmp(o.arg[1], "--json") && !o.json);
    options_free(&o);
    GOOD("score - --json");
    CHECK(o.n_args == 1 && !strcmp(o.arg[0], "-") && o.json);
    options_free(&o);
}

static void options_refuse_what_they_do_not_take(void)
{
    check_refused("run --tokens 0", "'0' is not a whole number from 1 to");
    check_refused("run --tokens +5", "'+5'");
    check_refused("run --tokens 4.5", "'4.5' is not a whole number from 1 to 1000000000");
    check_refused("run --tokens 1e-1", "'1e-1'");
    check_refused("run --seed -2", "'-2' is not a whole number from 0 to 18446744073709551615");
    check_refused("run --seed 18446744073709551616", "18446744073709551616");
    check_refused("run --temp inf", "'inf' is not a number from 0 to");
    check_refused("run --temp 1x", "'1x'");
    check_refused("run --temp .", "'.'");
    check_refused("run --top-p 1.0001", "from 0 to 1");
    check_refused("run --threads 513", "from 1 to 512");
    check_refused("run --penalty 0", "--penalty");
    check_refused("run --progress fancy", "auto|plain|json|none");
    check_refused("run --kv-dtype int2", "'int2' is not one of");
    check_refused("run --weights int4", "not one of");
    check_refused("run --per-token", "is an option of score");
    check_refused("tokenize --device cpu", "is an option of");
    check_refused("train heads --device", "--device needs a value");
    check_refused("run --tempature 1", "did you mean '--temperature'");
    check_refused("run -x", "unknown option '-x'");
    check_refused("run a", "one word too many");
    check_refused("tokenize a b", "one word too many");
    check_refused("distinct", "a word is missing");
    check_refused("paint", "unknown verb 'paint'");
    check_refused("tokenise", "did you mean 'tokenize'");
    check_refused("run --ngram-lead none", "first|all|root");
    check_refused("run --kv-policy some", "full|static|dynamic|window|mean");
    check_refused("run --an-option-with-a-name-that-is-much-longer-than-any-that-could-be-meant-by-it 1",
        "unknown option");
}

static void thousands_and_millions_are_numbers(void)
{
    const struct { const char *line; size_t tokens;
    } cases[] = {
        { "run -n 100k", 100000 }, { "run -n100K", 100000 }, { "run --tokens=2M", 2000000 },
        { "fork 1 --tokens 3k", 3000 }, { "run --max-new-tokens 7", 7 }, { "run -n 1000m", 1000000000 },
        { "run -n 4.0", 4 }, { "run -n 1e3", 1000 }, { "run -n 1.5k", 1500 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GOOD(cases[i].line);
        CHECK(o.tokens == cases[i].tokens, "%s: %zu", cases[i].line, o.tokens);
        options_free(&o);
    }
    check_refused("run -n 1001m", "-n: '1001m' is not a whole number from 1 to 1000000000");
    check_refused("run -n 0k", "'0k' is not a whole number from 1 to");
    check_refused("run -n k", "'k' is not a whole number");
    check_refused("run -n 1kk", "'1kk' is not a whole number");
    check_refused("run -n 99999999999999999999k", "99999999999999999999k");
    check_refused("run --seed 1k", "'1k' is not a whole number");
}

static void all_unknown_options_are_in_one_message(void)
{
    check_refused("run --no-jinja -r x -n 5 -ngl 99 --tempature -1 --window 9 --no-jinja",
                  "run: there is no option '--no-jinja': --chat runs the model's chat template, which is "
                  "Jinja; there is no option '-r': --stop TEXT ends a text; there is no option '-ngl': "
                  "--device cuda computes all layers on a GPU; unknown option '--tempature': did you mean "
                  "'--temperature'?; '--window' is an option of score");
    /* an unknown option comes before a bad value, on whichever side it stands */
    check_refused("run --tokens x --zzzzzz", "run: unknown option '--zzzzzz'; see longhand help run");
    check_refused("run --zzzzzz 1 --tokens x", "run: unknown option '--zzzzzz'");
    check_refused("run --tokens x --seed y", "--tokens: 'x'");
    CHECK(!strstr(e.msg, "seed"));
    char line[900] = "run";
    for (int i = 0; i < 60; i++)
        snprintf(line + strlen(line), sizeof line - strlen(line), " --zzzzz%d", i);
    check_refused(line, "--zzzzz0'");
    check_refused(line, "longhand help run; and 4");
    check_refused("chat", "there is no verb 'chat': longhand run --chat");
    check_refused("server --port 8080", "there is no verb 'server': longhand serve answers OpenAI");
}

static void names_of_several_letters_have_one_dash(void)
{
    GOOD("run -hf org/name -n 5");
    CHECK(o.model && !strcmp(o.model, "org/name") && o.tokens == 5);
    options_free(&o);
    GOOD("submit --hf-repo org/name");
    CHECK(o.model && !strcmp(o.model, "org/name"));
    options_free(&o);
    GOOD("work -hf org/name:Q8_0");
    CHECK(o.model && !strcmp(o.model, "org/name:Q8_0"));
    options_free(&o);
}

static void scaling_is_joined_from_its_parts(void)
{
    const struct { const char *line, *want;
    } cases[] = {
        { "run --context-scaling yarn:4", "yarn:4" },
        { "run --rope-scaling yarn:4:1024", "yarn:4:1024" },
        { "run --rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 1024", "yarn:4:1024" },
        { "run --rope-scale 4", "yarn:4" },
        { "run --rope-scaling linear --rope-scale 2.5", "linear:2.5" },
        { "run --rope-scale yarn:8", "yarn:8" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        GOOD(cases[i].line);
        CHECK(o.job.scaling && !strcmp(o.job.scaling, cases[i].want), "%s: %s", cases[i].line,
              o.job.scaling);
        options_free(&o);
    }
    GOOD("run --rope-scaling none");
    CHECK(!o.job.scaling);
    options_free(&o);
    check_refused("run --yarn-orig-ctx 1024", "needs --rope-scale");
    check_refused("run --rope-scale 0.5", "from 1 to");
    check_refused("run --rope-scaling yarn:2 --rope-scale 4", "together with");
}

/* text with `value` in the place of the number of a member, or with the member where it has none; free it. */
static char *with_number(const char *text, const char *member, double value)
{
    char key[48], *out = NULL;
    snprintf(key, sizeof key, "\"%s\": ", member);
    const char *at = strstr(text, key);
    if (!at) {
        if (asprintf(&out, "{%s%.17g, %s", key, value, text + 1) < 0)
            abort();
        return out;
    }
    at += strlen(key);
    if (asprintf(&out, "%.*s%.17g%s", (int)(at - text), text, value, at + strcspn(at, ",}")) < 0)
        abort();
    return out;
}

/* A number of a stored job that its row does not allow is refused. The message has member and range. */
static void stored_numbers_have_the_ranges_of_options(void)
{
    static char text[8192];
    struct job_params p;
    size_t refused = 0;
    FILE *f = fopen("tests/pins/parameters", "r");
    while (f && fgets(text, sizeof text, f) && *text != '{')
        ;
    CHECK(f && job_parse(&p, text, &e) == 0, "%s", e.msg);
    job_close(&p);
    for (const struct option *opt = options_table; opt->name; opt++) {
        if (!(opt->flags & DECIDES) || (opt->kind != REAL && opt->kind != LONG && opt->kind != SIZE))
            continue;
        const double bad[] = { opt->min - 1, opt->max + 1, opt->flags & ABOVE_MIN ? opt->min : opt->max + 2,
                               opt->flags & BELOW_MAX ? opt->max : opt->max + 2,
                               opt->least > 0 ? opt->least / 2 : opt->max + 2 };
        const double good[] = { opt->flags & ABOVE_MIN ? opt->max : opt->min,
                                opt->flags & BELOW_MAX ? opt->min : opt->max };
        char member[40], part[80];
        snprintf(part, sizeof part, "parameters: \"%s\" is not a", option_member(member, opt));
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            char *other = with_number(text, member, bad[i]);
            CHECK(other && job_parse(&p, other, &e) == -1 && !strncmp(e.msg, part, strlen(part)) &&
                      strstr(e.msg, "number from"), "%s %g: %s", member, bad[i], e.msg);
            refused++;
            free(other);
        }
        for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
            char *other = with_number(text, member, good[i]);
            CHECK(other && job_parse(&p, other, &e) == 0, "%s %g: %s", member, good[i], e.msg);
            job_close(&p);
            free(other);
        }
    }
    CHECK(refused >= 5 * 14, "%zu", refused);
    if (f)
        fclose(f);
}

/* Every listed option has a help sentence, and every verb's help can be printed. */
static void help_covers_the_table(void)
{
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    options_help(f, NULL, true);
    options_help(f, options_verb("bench"), false);
    fclose(f);
    CHECK(strstr(text, "--presence-penalty X") && strstr(text, "--context-scaling yarn:F[:ORIG]") &&
          strstr(text, "-m, --model DIR"));
    CHECK(!strstr(text, "--repeat-penalty") && strstr(text, "--kv-snapshot auto|on|off") &&
          strstr(text, "--db FILE"));
    for (char *p = strtok(text, "\n"); p; p = strtok(NULL, "\n"))
        CHECK(strlen(p) <= 110, "%s", p);
    free(text);
    CHECK(!options_verb("paint") && options_verb("run") && options_verb("retry"));
}

/* The ranges of the table hold for the settings of a model too, unless the user leaves them out. */
static void generation_config_is_read_by_the_table(void)
{
    static const char model[] = "{\"model_type\": \"llama\", \"hidden_size\": 64, "
                                "\"intermediate_size\": 128, "
                                "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"vocab_size\": 100, "
                                "\"num_key_value_heads\": 2, \"max_position_embeddings\": 512}";
    static const struct { const char *json, *said; } bad[] = {
        { "{\"temperature\": -0.1}", "temperature: '-0.1'" },
        { "{\"temperature\": \"hot\"}", "temperature: '\"hot" },
        { "{\"temperature\": 1e400}", "temperature: '1e400'" }, { "{\"top_p\": 1.5}", "top_p: '1.5'" },
        { "{\"min_p\": -0.1}", "min_p: '-0.1'" }, { "{\"eta_cutoff\": 2}", "eta_cutoff: '2'" },
        { "{\"typical_p\": 0}", "typical_p: '0'" },
        { "{\"repetition_penalty\": 0}", "repetition_penalty: '0'" },
        { "{\"top_k\": 50.5}", "top_k: '50.5'" },
        { "{\"do_sample\": \"yes\"}", "do_sample: \"yes\"" },
    };
    struct config c;
    struct sampling s;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int none = 0; none < 2; none++) {
            GOOD(none ? "run -s 1 --generation-config none" : "run -s 1");
            CHECK(config_parse(&c, "config.json", model, strlen(model), "g", bad[i].json, strlen(bad[i].json),
                               &e) == 0, "%s", e.msg);
            int rc = sampling_from_options(&s, &o, &c, NULL, 100, &e);
            CHECK(none ? rc == 0 : rc == -1 && strstr(e.msg, "generation_config.json: ") == e.msg &&
                  strstr(e.msg, bad[i].said), "%s: %d '%s'", bad[i].json, rc, e.msg);
            if (rc == 0)
                sampling_free(&s);
            options_free(&o);
        }
}

int main(void)
{
    RUN(options_have_their_defaults);
    RUN(generation_config_is_read_by_the_table);
    RUN(options_are_spelled_in_every_way);
    RUN(options_refuse_what_they_do_not_take);
    RUN(thousands_and_millions_are_numbers);
    RUN(all_unknown_options_are_in_one_message);
    RUN(names_of_several_letters_have_one_dash);
    RUN(scaling_is_joined_from_its_parts);
    RUN(stored_numbers_have_the_ranges_of_options);
    RUN(help_covers_the_table);
    return test_end();
}
