/* The help and the man page, generated from the tables of options and verbs. Start at options_help and
 * options_man. */
#include <stdlib.h>
#include <string.h>

#include "kernels/ops.h"
#include "src/base/memory_file.h"
#include "src/base/version.h"
#include "src/decode/draft.h"
#include "src/request/batch_line.h"
#include "src/request/options_impl.h"

struct entry { const char *name, *text; };
static const struct entry environment[] = {
    { "LONGHAND_DB, XDG_STATE_HOME", "The store: the file itself, or the folder that contains "
                                     "longhand/longhand.db." },
    { "LONGHAND_MODEL", "The model, unless --model names one." },
    { "HF_HUB_CACHE, HF_HOME, LLAMA_CACHE, OLLAMA_MODELS", "Caches of other programs, in which --model looks "
                                                           "names up, beside the usual places." },
    { "XDG_CACHE_HOME", "The folder (~/.cache) of longhand/gpu-*, the results of the checks of GPUs." },
    { "LONGHAND_ISA=" TWIN_NAMES("|"), "Use this version of the CPU kernels. All versions write the same "
                                       "texts." },
    { "NO_COLOR, TERM", "NO_COLOR turns the colour of progress off. TERM=dumb shows progress in plain "
                        "lines." },
};
static const struct entry statuses[] = {
    { "0", "Done." },
    { "1", "Failed (work: at least one job failed)." },
    { "2", "Wrong usage or invalid input. One line on standard error says what is wrong, where, and what is "
           "allowed." },
    { "75", "Interrupted or out of time. The text so far is stored and can be continued." },
};
static const struct entry selectors[] = {
    { "7", "Job 7." }, { "5-90", "Jobs 5 to 90, as far as they exist." },
    { "@NAME", "The job with this name, or the jobs of this batch." },
    { "@NAME/ID", "The job of the batch with this custom_id." },
    { "--state STATE", "Jobs that are queued, running, paused, done, failed or cancelled." },
    { "--finish REASON", "Jobs whose text ended by length, stop or repetition." },
    { "--loops", "Jobs whose text repeats itself." },
    { "--shorter-than N, --longer-than N", "Jobs whose text has fewer, or more, tokens." },
    { "--distinct-below N:X", "Jobs whose text has a Distinct-N below X." },
    { "--repeats-above X", "Jobs in whose text more than the share X of the tokens repeat." },
    { "--all", "Every job." },
};
enum { TEXT_BYTES = 1024 };              /* the longest help of an option */
#define N(a) (sizeof (a) / sizeof *(a))
static const char alias[] = "Alias of resume.";
static const char example[] =
    "longhand run --model models/demo --prompt-file models/demo/openings/portrait.txt --tokens 2000";

/* ---- help ---- */

/* Prints a text in lines of at most WIDTH bytes. */
static void wrap(FILE *f, const char *text)
{
    enum { INDENT = 6, WIDTH = 100 };
    size_t col = 0;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, " ");
        if (col && col + 1 + n > WIDTH - INDENT) {
            fputc('\n', f);
            col = 0;
        }
        col += col ? (fputc(' ', f), n + 1) : (fprintf(f, "%*s", INDENT, ""), n);
        fwrite(p, 1, n, f);
        p += n + strspn(p + n, " ");
    }
    fputc('\n', f);
}

const char *option_help(const struct option *opt)
{
    static char text[800];
    char list[256];
    const char *at = strstr(opt->help, OPTION_DRAFTERS);
    if (!at)
        return opt->help;
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - opt->help), opt->help,
             drafter_list(list, ALL_DRAFTERS), at + strlen(OPTION_DRAFTERS));
    return text;
}

/* The help of an option and its default: of one verb, or of all of them (verb 0). */
static void text_of_option(char text[TEXT_BYTES], const struct option *opt, uint64_t verb)
{
    char names[256];
    const char *shown = opt->shown ? opt->shown : opt->kind == CHOICE ? NULL : opt->value;
    size_t n = (size_t)snprintf(text, TEXT_BYTES, "%s", option_help(opt));
    for (const struct clause *c = opt->of; c && c->verbs; c++) {
        shown = c->shown && c->verbs & verb ? c->shown : shown;
        if (c->help && (!verb || c->verbs & verb))
            n += (size_t)snprintf(text + n, TEXT_BYTES - n, " %s: %s.", option_verbs(names, c->verbs),
                                  c->help);
    }
    bool any = shown && *shown;
    if (any)
        n += (size_t)snprintf(text + n, TEXT_BYTES - n, " Default: %s", shown);
    for (const struct clause *c = opt->of; c && c->verbs && !verb; c++)
        if (c->shown) {
            n += (size_t)snprintf(text + n, TEXT_BYTES - n, "%s%s: %s", any ? "; " : " Default: ",
                                  option_verbs(names, c->verbs), c->shown);
            any = true;
        }
    n += (size_t)snprintf(text + n, TEXT_BYTES - n, "%s", any ? "." : "");
    assert(n < TEXT_BYTES);
}

/* verb 0: of all verbs */
static void help_option(FILE *f, const struct option *opt, uint64_t verb)
{
    char text[TEXT_BYTES], list[256], form[3];
    text_of_option(text, opt, verb);
    fputs("  ", f);
    for (const char *p = opt->also; option_short(&p, form);)
        fprintf(f, "%s, ", form);
    fprintf(f, opt->flags & OPTIONAL ? "--%s[=%s]" : opt->arg ? "--%s %s" : "--%s", opt->name, opt->arg);
    if (!verb && !(opt->verbs & VERB_RUN) && ~opt->verbs & VERBS_SELECT)
        fprintf(f, "   (%s)", option_verbs(list, opt->verbs));
    fputc('\n', f);
    wrap(f, text);
}

/* need: flags that the options have. */
static void help_options(FILE *f, uint64_t verb, unsigned need)
{
    const char *group;
    for (size_t g = 0; (group = option_group_at(g)); g++) {
        bool any = false;
        for (const struct option *opt = options_table; opt->name; opt++) {
            if (opt->group != group || (opt->flags & HIDDEN) || (verb && !(opt->verbs & verb)) ||
                (opt->flags & need) != need)
                continue;
            if (!any)
                fprintf(f, "\n%s\n", group);
            any = true;
            help_option(f, opt, verb);
        }
    }
}

void options_help(FILE *f, const struct verb *verb, bool all)
{
    if (verb) {
        fprintf(f, "usage: longhand %s %s\n\n%s\n", verb->name, verb->args,
                verb->help ? verb->help : alias);
        help_options(f, verb->bit, 0);
        return;
    }
    fprintf(f, "usage: longhand VERB [options]\n\n  %s\n\n", example);
    for (const struct verb *v = verbs_table; v->name; v++)
        if (v->help)                             /* aliases have no help */
            fprintf(f, "  %-9s %s\n", v->name, v->help);
    help_options(f, all ? 0 : VERB_RUN, all ? 0 : MAIN);
    if (!all) {
        fputs("\nlonghand help VERB shows the options of a verb, longhand help --all shows everything.\n", f);
    } else {
        fputs("\nJobs (SEL)\n", f);
        for (size_t i = 0; i < N(selectors); i++)
            fprintf(f, "  %-15s  %s\n", selectors[i].name, selectors[i].text);
        fputs("\nEnvironment\n", f);
        for (size_t i = 0; i < N(environment); i++) {
            fprintf(f, "  %s\n", environment[i].name);
            wrap(f, environment[i].text);
        }
    }
    fputs("\nStandard output carries text and data only; messages go to standard error.\n"
          "Exit status: 0 done, 1 failed, 2 wrong usage or invalid input, 75 interrupted:\n"
          "the text so far is stored and can be continued.\n",
          f);
}

/* ---- man page ---- */

/* Escapes a text for troff. A point or an apostrophe at its start would begin a request. */
static void troff(FILE *f, const char *s)
{
    static const char from[] = "\\-\"'^~`", *const to[] = { "e", "-", "(dq", "(aq", "(ha", "(ti", "(ga" };
    fputs(*s == '.' || *s == '\'' ? "\\&" : "", f);
    for (const char *at; *s; s++)
        if ((at = strchr(from, *s)))
            fprintf(f, "\\%s", to[at - from]);
        else
            fputc(*s, f);
}

static void troff_line(FILE *f, const char *s)
{
    troff(f, s);
    fputc('\n', f);
}

static void section(FILE *f, const char *request, const char *title)
{
    fprintf(f, ".%s \"", request);
    troff(f, title);
    fputs("\"\n", f);
}

/* A bold tag with an argument, which may be NULL. */
static void tag_line(FILE *f, const char *tag, const char *arg, bool optional)
{
    fputs("\\fB", f);
    troff(f, tag);
    fputs("\\fR", f);
    if (arg) {
        fputs(optional ? "[=\\fI" : " \\fI", f);
        troff(f, arg);
        fputs(optional ? "\\fR]" : "\\fR", f);
    }
    fputc('\n', f);
}

/* A paragraph below a tag. */
static void tagged(FILE *f, const char *tag, const char *arg, const char *text)
{
    fputs(".TP\n", f);
    tag_line(f, tag, arg, false);
    troff_line(f, text);
}

static void man_option(FILE *f, const struct option *opt)
{
    char text[TEXT_BYTES], list[256], tag[64], form[3];
    text_of_option(text, opt, 0);
    snprintf(tag, sizeof tag, "--%s", opt->name);
    fputs(".TP\n", f);
    for (const char *p = opt->also; option_short(&p, form);)
        fprintf(f, "\\fB\\-%c\\fR, ", form[1]);
    tag_line(f, tag, opt->arg, opt->flags & OPTIONAL);
    troff_line(f, text);
    fprintf(f, ".br\n(%s)\n", opt->verbs == (uint64_t)VERBS_STORE ? "every verb about jobs"
                                                                : option_verbs(list, opt->verbs));
}

static void man_options(FILE *f)
{
    const char *group;
    section(f, "SH", "OPTIONS");
    troff_line(f, "A value follows in the same word (--name=VALUE, -nVALUE) or in the next one. The last "
                  "use of an option counts, except for options that make lists. The verbs that take an "
                  "option are in brackets.");
    for (size_t g = 0; (group = option_group_at(g)); g++) {
        section(f, "SS", group);
        for (const struct option *opt = options_table; opt->name; opt++)
            if (opt->group == group && !(opt->flags & HIDDEN))
                man_option(f, opt);
    }
}

static void man_verbs(FILE *f)
{
    section(f, "SH", "VERBS");
    for (const struct verb *v = verbs_table; v->name; v++)
        tagged(f, v->name, v->help ? v->args : NULL, v->help ? v->help : alias);
    section(f, "SH", "JOBS");
    troff_line(f, "Jobs are numbered from 1 in each store. Verbs about jobs take any number of these (SEL):");
    for (size_t i = 0; i < N(selectors); i++)
        tagged(f, selectors[i].name, NULL, selectors[i].text);
}

/* The lines of longhand help batch as they are. */
static void man_batch(FILE *f)
{
    char *text = NULL, *next;
    size_t n;
    FILE *lines = memory_file(&text, &n);
    section(f, "SH", "BATCH FILES");
    if (!lines)
        return;
    batch_line_help(lines);
    if (stream_end(lines) == 0) {
        fputs(".nf\n", f);
        for (char *line = text; (next = strchr(line, '\n')); line = next + 1) {
            *next = 0;
            troff_line(f, line);
        }
        fputs(".fi\n", f);
        free(text);
    }
}

void options_man(FILE *f)
{
    fprintf(f, ".TH LONGHAND 1 \"\" \"longhand %s\" \"User Commands\"\n", LONGHAND_VERSION);
    section(f, "SH", "NAME");
    fputs("longhand \\- write book\\-length text with a language model\n", f);
    section(f, "SH", "SYNOPSIS");
    fputs(".B longhand\n.I VERB\n[options]\n.br\n.B longhand help\n[\\fIVERB\\fR | \\fB\\-\\-all\\fR]\n", f);
    section(f, "SH", "DESCRIPTION");
    troff_line(f, "longhand writes texts of 100,000 tokens and more with a Hugging Face model, on one "
                  "machine. Every text is a job in a store: run writes a text at once, submit queues it, "
                  "and work writes the queued texts. A signal, a crash or a power cut costs at most a "
                  "second of work. The text then continues where it stopped, with the same bytes. The "
                  "model drafts tokens ahead and verifies them, which makes long texts faster and never "
                  "changes them.");
    fputs(".P\nStandard output carries text and data only, standard error carries progress and messages.\n",
          f);
    man_verbs(f);
    man_options(f);
    man_batch(f);
    section(f, "SH", "ENVIRONMENT");
    for (size_t i = 0; i < N(environment); i++)
        tagged(f, environment[i].name, NULL, environment[i].text);
    section(f, "SH", "EXIT STATUS");
    for (size_t i = 0; i < N(statuses); i++)
        tagged(f, statuses[i].name, NULL, statuses[i].text);
    section(f, "SH", "SIGNALS");
    troff_line(f, "After SIGINT, SIGTERM, SIGHUP, SIGUSR1 or when standard output is closed the program "
                  "stores the text and exits with status 75. The same signal again, or another one more "
                  "than a second later, ends it at once.");
    section(f, "SH", "FILES");
    tagged(f, "~/.local/state/longhand/longhand.db", NULL,
           "The store, unless --db or the environment names another file. Prompts and texts stay in it until "
           "longhand remove deletes them.");
    section(f, "SH", "EXAMPLES");
    const char *const lines[] = { example,
                                  "longhand submit --model DIR --prompt-file opening.txt --tokens 100000",
                                  "longhand work", "longhand text 1 -o book.txt",
                                  "longhand report 1 --html -o page.html" };
    fputs(".nf\n", f);
    for (size_t i = 0; i < N(lines); i++)
        troff_line(f, lines[i]);
    fputs(".fi\n", f);
}
