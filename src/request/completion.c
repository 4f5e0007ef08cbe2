/* Shell completions, generated from the tables: verbs, the options of each verb, and the words or files
 * that are values of an option. Start at options_completion. */
#include <ctype.h>
#include <string.h>

#include "runs/store/selection.h"
#include "src/request/draft_options.h"
#include "src/request/options_impl.h"
#include "src/text/chat.h"

/* VALUE_NONE: the option has no value. VALUE_OTHER: the value cannot be completed. */
enum value { VALUE_NONE, VALUE_OTHER, VALUE_WORDS, VALUE_FILE, VALUE_DIR };

/* What each shell has for a value: formats of its words. */
static const struct { const char *bash, *zsh, *fish; } shells[] = {
    [VALUE_NONE] = { NULL, NULL, "" },
    [VALUE_OTHER] = { "other", " ", " -x" },
    [VALUE_WORDS] = { "words words='%s'", "(%s)", " -x -a '%s'" },
    [VALUE_FILE] = { "file", "_files", " -r -F" },
    [VALUE_DIR] = { "dir", "_files -/", " -x -a '(__fish_complete_directories)'" },
};

enum { WORDS_BYTES = 512 };

/* Adds the word that ends before one of the bytes of `ends`. */
static void add_word(char words[WORDS_BYTES], const char *s, const char *ends)
{
    const size_t at = strlen(words), n = strcspn(s, ends);
    assert(at + n + 2 < WORDS_BYTES);
    snprintf(words + at, WORDS_BYTES - at, "%s%.*s", at ? " " : "", (int)n, s);
}

/* The kind of an option's value. For VALUE_WORDS `words` gets the words, separated by spaces. */
static enum value value_of(const struct option *opt, char words[WORDS_BYTES])
{
    const char *name;
    *words = 0;
    if (!opt->arg || opt->flags & OPTIONAL)
        return VALUE_NONE;
    if (strncmp(opt->arg, "FILE", 4) == 0)
        return VALUE_FILE;
    if (strcmp(opt->arg, "DIR") == 0)
        return VALUE_DIR;
    if (strcmp(opt->name, "state") == 0)
        for (int s = 0; s < JOB_STATES; s++)
            add_word(words, job_state_name((enum job_state)s), "");
    if (strcmp(opt->name, "preset") == 0)
        for (size_t i = 0; (name = preset_name(i)); i++)
            add_word(words, name, "");
    if (strcmp(opt->name, "chat-template") == 0)
        for (const char *p = CHAT_NAMES; *p; p += strcspn(p, ","), p += strspn(p, ", "))
            add_word(words, p, ",");
    for (const char *p = opt->arg; strchr(opt->arg, '|') && *p; p += *p == '|') {
        /* LIST and N are placeholders, and [:N] may follow a word */
        if (islower((unsigned char)*p))
            add_word(words, p, "|[");
        p += strcspn(p, "|");
    }
    if (strcmp(opt->name, "drafter") == 0)
        for (enum drafter i = 0; i < DRAFTER_ADDED; i++)
            add_word(words, drafter_name(i), "");
    return *words ? VALUE_WORDS : VALUE_OTHER;
}

/* The kind of a verb's words, from its usage line: files if it names FILE outside an option, else `words`. */
static enum value words_of(const struct verb *v, char words[WORDS_BYTES])
{
    bool option = false;
    *words = 0;
    if (v->bit == VERB_HELP)
        for (const struct verb *other = verbs_table; other->name; other++)
            add_word(words, other->name, "");
    if (v->bit == VERB_TRAIN)
        for (const char *p = v->args; *p && *p != ' '; p += strcspn(p, "| "), p += *p == '|')
            add_word(words, p, "| ");
    for (const char *p = v->args; *p; p += strcspn(p, " "), p += strspn(p, " ")) {
        const char *bare = p + strspn(p, "([");
        if (strncmp(bare, "FILE", 4) == 0 && !option && !*words)
            return VALUE_FILE;
        option = bare[0] == '-';
    }
    return *words ? VALUE_WORDS : VALUE_OTHER;
}

static bool offered(const struct option *opt, const struct verb *v)
{
    return (opt->verbs & v->bit) && !(opt->flags & HIDDEN);
}

/* Prints the first sentence of a help text for a place inside single quotes. brackets: the text stands
 * inside [ ] of zsh. */
static void quoted(FILE *f, const char *s, bool brackets, const char *apostrophe)
{
    for (; *s && !(*s == '.' && (s[1] == ' ' || !s[1])) && *s != ';'; s++)
        if (*s == '\'')
            fputs(apostrophe, f);
        else
            fprintf(f, "%s%c", (brackets && strchr("[]:", *s)) || *s == '\\' ? "\\" : "", *s);
}

/* ---- bash ---- */

/* The case of one verb: its options, and the values of the option in $prev. */
static void bash_verb(FILE *f, const struct verb *v)
{
    char words[WORDS_BYTES], form[3];
    enum value value = words_of(v, words);
    fprintf(f, "    %s)\n        options='", v->name);
    const char *separator = "";
    for (const struct option *opt = options_table; opt->name; opt++)
        if (offered(opt, v)) {
            fprintf(f, "%s--%s", separator, opt->name);
            for (const char *p = opt->also; option_short(&p, form);)
                fprintf(f, " %s", form);
            separator = " ";
        }
    fputs("'\n", f);
    if (value == VALUE_FILE)
        fputs("        rest=file\n", f);
    else if (value == VALUE_WORDS)
        fprintf(f, "        rest=words rest_words='%s'\n", words);
    for (const struct option *opt = options_table; opt->name; opt++)
        if (offered(opt, v) && opt->kind == FILES)
            fprintf(f, "        [[ $last = --%s && $cur != -* ]] && prev=$last\n", opt->name);
    fputs("        case $prev in\n", f);
    for (const struct option *opt = options_table; opt->name; opt++) {
        if (!offered(opt, v) || (value = value_of(opt, words)) == VALUE_NONE)
            continue;
        fprintf(f, "        --%s", opt->name);
        for (const char *p = opt->also; *p; p += strcspn(p, " "), p += strspn(p, " "))
            fprintf(f, "|%.*s", (int)strcspn(p, " "), p);
        fputs(") kind=", f);
        fprintf(f, shells[value].bash, words);
        fputs(" ;;\n", f);
    }
    fputs("        esac ;;\n", f);
}

static void bash(FILE *f)
{
    fputs("# Completion of longhand's command line in bash: source this file, or put it into "
          "bash-completion's folder.\n"
          "_longhand()\n{\n"
          "    local i cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]} "
          "last options= kind= words= rest=none rest_words=\n"
          "    COMPREPLY=()\n"
          "    if [[ $cur = '=' ]]; then cur=                       # --name=VALUE comes as three words\n"
          "    elif [[ $prev = '=' && $COMP_CWORD -gt 2 ]]; then prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
          "    for ((i = COMP_CWORD - 1; i > 1; i--)); do [[ ${COMP_WORDS[i]} = -* ]] && break; done\n"
          "    last=${COMP_WORDS[i]}\n"
          "    if [[ $COMP_CWORD -eq 1 ]]; then\n        mapfile -t COMPREPLY < <(compgen -W '",
          f);
    for (const struct verb *v = verbs_table; v->name; v++)
        if (v->help)
            fprintf(f, "%s ", v->name);
    fputs("--help --version' -- \"$cur\")\n        return\n    fi\n    case $verb in\n", f);
    for (const struct verb *v = verbs_table; v->name; v++)
        bash_verb(f, v);
    fputs("    *) return ;;\n    esac\n"
          "    if [[ -z $kind && $cur = -* ]]; then kind=words words=$options\n"
          "    elif [[ -z $kind ]]; then kind=$rest words=$rest_words; fi\n"
          "    case $kind in\n"
          "    words) mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\") ;;\n"
          "    file) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\") ;;\n"
          "    dir) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- \"$cur\") ;;\n"
          "    esac\n}\ncomplete -F _longhand longhand\n", f);
}

/* ---- zsh ---- */

static void zsh_spec(FILE *f, const struct option *opt, const char *spelled)
{
    const bool alone = !opt->arg || opt->flags & OPTIONAL || opt->kind == FILES;
    const char *attach = alone ? "" : spelled[1] == '-' ? "=" : "+";
    char words[WORDS_BYTES];
    const enum value value = value_of(opt, words);
    fprintf(f, " \\\n            '%s%s%s[", opt->kind == LIST || opt->kind == FILES ? "*" : "", spelled,
            attach);
    quoted(f, option_help(opt), true, "'\\''");
    fputs("]", f);
    if (value != VALUE_NONE) {
        fputs(opt->kind == FILES ? ":*-*:" : ":", f);
        for (const char *p = opt->arg; *p; p++)
            fprintf(f, "%s%c", *p == ':' ? "\\" : "", *p);
        fputs(":", f);
        fprintf(f, shells[value].zsh, words);
    }
    fputs("'", f);
}

static void zsh_verb(FILE *f, const struct verb *v)
{
    char words[WORDS_BYTES], name[80], form[3];
    enum value value = words_of(v, words);
    fprintf(f, "    %s)\n        _arguments -S", v->name);
    for (const struct option *opt = options_table; opt->name; opt++)
        if (offered(opt, v)) {
            snprintf(name, sizeof name, "--%s", opt->name);
            zsh_spec(f, opt, name);
            for (const char *p = opt->also; option_short(&p, form);)
                zsh_spec(f, opt, form);
        }
    fputs(" \\\n            '*: :", f);
    fprintf(f, shells[value].zsh, words);
    fputs("' ;;\n", f);
}

static void zsh(FILE *f)
{
    fputs("#compdef longhand\n# Completion of longhand's command line in zsh: put this file as _longhand "
          "into a folder of $fpath.\n"
          "_longhand()\n{\n    local verb\n    local -a verbs\n    verbs=(",
          f);
    for (const struct verb *v = verbs_table; v->name; v++)
        if (v->help) {
            fprintf(f, "\n        '%s:", v->name);
            quoted(f, v->help, false, "'\\''");
            fputs("'", f);
        }
    fputs(")\n    if (( CURRENT == 2 )); then\n        _describe -t verbs verb verbs\n        return\n    "
          "fi\n    verb=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $verb in\n",
          f);
    for (const struct verb *v = verbs_table; v->name; v++)
        zsh_verb(f, v);
    fputs("    esac\n}\nif [[ $funcstack[1] = _longhand ]]; then _longhand \"$@\"; else compdef _longhand "
          "longhand; fi\n",
          f);
}

/* ---- fish ---- */

static void fish_verb(FILE *f, const struct verb *v)
{
    static const char seen[] = "complete -c longhand -n '__fish_seen_subcommand_from";
    char words[WORDS_BYTES], form[3];
    enum value value = words_of(v, words);
    if (value != VALUE_OTHER)
        fprintf(f, value == VALUE_FILE ? "%s %s' -F\n" : "%s %s' -a '%s'\n", seen, v->name, words);
    for (const struct option *opt = options_table; opt->name; opt++)
        if (offered(opt, v)) {
            fprintf(f, "%s %s' -l %s", seen, v->name, opt->name);
            for (const char *p = opt->also; option_short(&p, form);)
                fprintf(f, " -s %c", form[1]);
            value = value_of(opt, words);
            fprintf(f, shells[value].fish, words);
            fputs(" -d '", f);
            quoted(f, option_help(opt), false, "\\'");
            fputs("'\n", f);
        }
}

static void fish(FILE *f)
{
    fputs("# Completion of longhand's command line in fish: put this file as longhand.fish into "
          "~/.config/fish/completions.\ncomplete -c longhand -f\n",
          f);
    for (const struct verb *v = verbs_table; v->name; v++) {
        if (v->help) {
            fprintf(f, "complete -c longhand -n __fish_use_subcommand -a %s -d '", v->name);
            quoted(f, v->help, false, "\\'");
            fputs("'\n", f);
        }
        fish_verb(f, v);
    }
}

void options_completion(FILE *f, int shell)
{
    (shell == SHELL_BASH ? bash : shell == SHELL_ZSH ? zsh : fish)(f);
}
