/* Parses the command line into struct options. Start at options_parse; the rows of the options are in
 * options_table.c. */
#include "src/base/input.h"
#include "src/base/notice.h"
#include "src/request/options_impl.h"
#include "src/text/banned.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

const char *option_respell(char *name, char from, char to)
{
    for (char *p = name; (p = strchr(p, from));)
        *p = to;
    return name;
}

const char *option_member(char name[40], const struct option *opt)
{
    snprintf(name, 40, "%s", opt->member ? opt->member : opt->name);
    return option_respell(name, '-', '_');
}

bool option_short(const char **also, char form[3])
{
    for (size_t n; (n = strcspn(*also, " "));) {
        const char *word = *also;
        *also += n + strspn(word + n, " ");
        if (n == 2) {
            snprintf(form, 3, "%s", word);
            return true;
        }
    }
    return false;
}

const char *option_verbs(char out[256], uint64_t verbs)
{
    *out = 0;
    for (const struct verb *v = verbs_table; v->name; v++)
        if ((verbs & v->bit) && v->help) {
            size_t n = strlen(out);
            snprintf(out + n, 256 - n, "%s%s", n ? ", " : "", v->name);
        }
    return out;
}

/* ---- names ---- */

/* The number of edits (insert, delete, replace, swap neighbours) from a to b. A name of more than 40
 * characters is far from every other. */
static size_t edits(const char *a, const char *b)
{
    enum { MAX_NAME = 40 };
    size_t d[MAX_NAME + 1][MAX_NAME + 1], n = strlen(a), m = strlen(b);
    if (n > MAX_NAME || m > MAX_NAME)
        return SIZE_MAX;
    for (size_t i = 0; i <= n; i++)
        for (size_t j = 0; j <= m; j++) {
            size_t best = i && j ? d[i - 1][j - 1] + (a[i - 1] != b[j - 1]) : i + j;
            if (i && j)
                best = MIN(best, MIN(d[i - 1][j], d[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = MIN(best, d[i - 2][j - 2] + 1);
            d[i][j] = best;
        }
    return d[n][m];
}

/* The nearer of two names; best NULL: none yet. Only names that are closer than a third of their letters, or
 * 2, are worth an offer. */
static const char *nearer(const char *name, const char *best, const char *candidate)
{
    const size_t most = best ? edits(name, best) : MAX(strlen(name) / 3, (size_t)2) + 1;
    return edits(name, candidate) < most ? candidate : best;
}

/* The row of an option that is spelled "--name" or "-x": the row of this verb, else of any verb, else
 * NULL. */
static const struct option *option_find(const char *spelled, uint64_t verb)
{
    const struct option *other = NULL;
    for (const struct option *opt = options_table; opt->name; opt++)
        if (opt->verbs && ((strncmp(spelled, "--", 2) == 0 && strcmp(spelled + 2, opt->name) == 0) ||
                           option_is_listed(opt->also, spelled))) {
            if (opt->verbs & verb)
                return opt;
            other = other ? other : opt;
        }
    return other;
}

const struct option *option_named(const char *name, uint64_t verb)
{
    char spelled[64];
    snprintf(spelled, sizeof spelled, "--%s", name);
    return option_find(option_respell(spelled, '_', '-'), verb);
}

const struct verb *options_verb(const char *name)
{
    for (const struct verb *v = verbs_table; v->name; v++)
        if (strcmp(v->name, name) == 0)
            return v;
    return NULL;
}

static int find_verb(const struct verb **out, const char *name, struct err *e)
{
    const char *hint = option_hint(name, NULL), *best = NULL;
    if ((*out = options_verb(name)))
        return 0;
    if (hint)
        return err_set(e, ERR_INPUT, "there is no verb '%s': %s", name, hint);
    for (const struct verb *v = verbs_table; v->name; v++)
        best = nearer(name, best, v->name);
    if (best)
        return err_set(e, ERR_INPUT, "unknown verb '%s': did you mean '%s'?", name, best);
    return err_set(e, ERR_INPUT, "unknown verb '%s'; see longhand help", name);
}

const struct option *option_of_edit(const struct verb *verb, const char *name)
{
    const struct option *opt = option_named(name, verb->bit);
    const bool taken = opt && opt->verbs & verb->bit &&
                       (opt->flags & CHANGES ? !opt->arg || strcmp(opt->arg, "FILE") != 0
                                             : option_is_listed("tokens append at at-text occurrence seed "
                                                                "name replace follow", opt->name));
    return taken ? opt : NULL;
}

bool options_given(const struct options *o, const char *name)
{
    bool known = false, given = false;
    for (const struct option *opt = options_table; opt->name; opt++)
        if (strcmp(opt->name, name) == 0) {
            known = true;
            given |= o->given[opt - options_table];
        }
    assert(known);
    return given;
}

const char *option_of_alias(const char *word)
{
    char spelled[64];
    snprintf(spelled, sizeof spelled, "--%s", word);
    option_respell(spelled, '_', '-');
    for (const struct option *opt = options_table; opt->name; opt++)
        if (option_is_listed(opt->also, spelled))
            return opt->name;
    return NULL;
}

const char *options_of_job(const struct options *o)
{
    for (const struct option *opt = options_table; opt->name; opt++)
        if (o->given[opt - options_table] && (opt->verbs & VERBS_MAKE) == VERBS_MAKE &&
            !(opt->flags & MACHINE))
            return opt->name;
    return NULL;
}

/* ---- values ---- */

int options_assign(struct options *o, const char *name, const char *spelled, const char *value, struct err *e)
{
    const struct option *opt = option_named(name, o->verb->bit);
    assert(opt && (opt->verbs & o->verb->bit) && opt->kind != IDS && !option_texts(o, opt));
    o->given[opt - options_table] = 1;
    return option_set(o, opt, spelled, value, e);
}

/* ---- the command line ---- */

enum { NO_OPTION = 1, NO_EFFECT };

/* Sets the message of an option that the verb does not have. It names the option, but not the verb:
 * parse_words joins these. hint: what stands for the option; opt: it is one of other verbs; else NULL. */
static int no_option(const struct options *o, const struct option *opt, const char *hint, const char *spelled,
                     struct err *e)
{
    char list[256];
    const char *best = NULL;
    for (const struct option *other = options_table; other->name && strlen(spelled) > 3; other++)
        if (other->verbs & o->verb->bit && spelled[1] == '-')
            best = nearer(spelled + 2, best, other->name);
    if (hint)
        err_set(e, ERR_INPUT, "there is no option '%.40s': %s", spelled, hint);
    else if (opt)
        err_set(e, ERR_INPUT, "'%s' is an option of %s", spelled, option_verbs(list, opt->verbs));
    else if (best)
        err_set(e, ERR_INPUT, "unknown option '%.60s': did you mean '--%s'?", spelled, best);
    else
        err_set(e, ERR_INPUT, "unknown option '%.60s'; see longhand help %s", spelled, o->verb->name);
    return NO_OPTION;
}

static bool is_number(const char *w) { return w[*w == '-'] >= '0' && w[*w == '-'] <= '9'; }

/* Parses the option at argv[*i]. Its value is in the same word or in the next one. 0, NO_OPTION, NO_EFFECT
 * with a message that says so, or -1. */
static int parse_option(struct options *o, int argc, char **argv, int *i, struct err *e)
{
    char name[64], first[32];
    const char *word = argv[*i], *value = NULL;
    const bool is_long = word[1] == '-';
    /* "-hf" is one name, "-n5" a name and its value */
    const struct option *opt = is_long ? NULL : option_find(word, o->verb->bit);
    size_t n = is_long ? strcspn(word, "=") : opt ? strlen(word) : 2;
    if (n >= sizeof name)
        return no_option(o, NULL, NULL, word, e);
    snprintf(name, sizeof name, "%.*s", (int)n, word);
    option_respell(name, '_', '-');
    if (word[n])
        value = word + n + is_long;

    opt = opt ? opt : option_find(name, o->verb->bit);
    const bool own = opt && opt->verbs & o->verb->bit;
    const char *spelled = is_long ? name : word, *next = *i + 1 < argc ? argv[*i + 1] : "";
    char mark;
    const char *hint = option_hint(spelled, &mark);
    if (hint && (mark == '#' ? is_number(value ? value : next) : !own || !is_long)) {
        if (!mark)
            return no_option(o, NULL, hint, spelled, e);
        *i += !(is_long && value) && (mark == '=' ? *next != '-' || is_number(next)
                                      : mark == '~' ? option_is_listed("on off auto true false 1 0", next)
                                                    : mark == '#');
        err_set(e, ERR_INPUT, "'%s' changes nothing: %s", spelled, hint);
        return NO_EFFECT;
    }
    if (!own)
        return no_option(o, opt, NULL, opt ? name : spelled, e);
    if (opt->kind == FLAG) {
        if (value)
            return err_set(e, ERR_INPUT, "%s takes no value", name);
    } else if (!value && opt->flags & OPTIONAL) {
        snprintf(first, sizeof first, "%.*s", (int)strcspn(opt->arg, "|"), opt->arg);
        value = first;
    } else if (!value) {
        if (*i + 1 >= argc)
            return err_set(e, ERR_INPUT, "%s needs a value: %s", name, opt->arg);
        value = argv[++*i];
    }
    o->given[opt - options_table] = 1;
    if (option_set(o, opt, name, value, e)) {
        /* llama.cpp: -1 writes until the text ends, -2 until the context is full */
        if (opt->field == offsetof(struct options, tokens) &&
            (strcmp(value, "-1") == 0 || strcmp(value, "-2") == 0))
            err_set(e, ERR_INPUT,
                    "%s: '%s' is llama.cpp's word for no limit; without %s a text goes to its own end, at "
                    "most to the end of the context", name, value, name);
        return -1;
    }
    while (opt->kind == FILES && *i + 1 < argc && (argv[*i + 1][0] != '-' || !argv[*i + 1][1]))
        if (option_set(o, opt, name, argv[++*i], e))
            return -1;
    return 0;
}

/* Joins llama.cpp's --rope-scaling TYPE, --rope-scale F and --yarn-orig-ctx ORIG into one text. */
static int join_scaling(struct options *o, struct err *e)
{
    const char *type = o->job.scaling ? o->job.scaling : "yarn";
    const char *factor = o->rope_scale;
    double f;
    const bool whole = !o->job.scaling && factor && strchr(factor, ':');
    if (!o->yarn_orig_ctx && (!factor || whole)) {
        o->job.scaling = whole ? factor : strcmp(type, "none") ? o->job.scaling : NULL;
        return 0;
    }
    if (strcmp(type, "yarn") && strcmp(type, "linear"))
        return err_set(e, ERR_INPUT,
                       "--context-scaling: '%s' together with --rope-scale or --yarn-orig-ctx; yarn or "
                       "linear is allowed", type);
    if (!factor)
        return err_set(e, ERR_INPUT, "--yarn-orig-ctx needs --rope-scale F beside it");
    if (parse_real(&f, "--rope-scale", factor, 1, 1e6, e))
        return -1;
    snprintf(o->scaling_text, sizeof o->scaling_text, o->yarn_orig_ctx ? "%s:%s:%zu" : "%s:%s", type, factor,
             o->yarn_orig_ctx);
    o->job.scaling = o->scaling_text;
    return 0;
}

/* Translates llama.cpp's --cache-type-k and --cache-type-v. One of them alone is for both. */
static int join_cache_types(struct options *o, struct err *e)
{
    static const char *const words[][2] = { { "f16", "bf16" }, { "bf16", "bf16" }, { "q8_0", "int8" },
                                            { "q4_0", "int4" } };   /* llama.cpp's, and that of --kv-dtype */
    static const char *const names[] = { "--cache-type-k", "--cache-type-v" };
    const char *const types[] = { o->cache_k, o->cache_v }, *word[2] = { NULL, NULL };
    const int first = o->cache_k ? 0 : 1;
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < sizeof words / sizeof *words && types[i]; k++)
            word[i] = strcmp(types[i], words[k][0]) == 0 ? words[k][1] : word[i];
        if (types[i] && !word[i])
            return err_set(e, ERR_INPUT, "%s: '%s' is not one of f16, bf16, q8_0, q4_0", names[i], types[i]);
    }
    if (!types[first])
        return 0;
    if (word[0] && word[1] && strcmp(word[0], word[1]))
        return err_set(e, ERR_INPUT,
                       "--cache-type-k '%s' and --cache-type-v '%s' differ; f16, bf16, q8_0 or q4_0 is for "
                       "both", o->cache_k, o->cache_v);
    if (options_given(o, "kv-dtype"))
        return err_set(e, ERR_INPUT, "%s and --kv-dtype mean the same; one of them is allowed", names[first]);
    request_notice(o, "%s %s is --kv-dtype %s%s", names[first], types[first], word[first],
                   strcmp(word[first], "int4") ? "" : ": keys have 8 bits, values 4");
    return options_assign(o, "kv-dtype", names[first], word[first], e);
}

size_t option_unescape(char *to, const char *text)
{
    static const char names[] = "ntr\"'\\", bytes[] = "\n\t\r\"'\\";
    size_t n = 0;
    for (const char *p = text; *p; p++) {
        const char *name = *p == '\\' && p[1] ? strchr(names, p[1]) : NULL;
        to[n++] = name ? bytes[name - names] : *p;
        p += name != NULL;
    }
    to[n] = 0;
    return n;
}

static void unescape_word(const char *word)
{
    if (word)
        option_unescape((char *)(uintptr_t)word, word);
}

static void unescape_texts(struct options *o)
{
    unescape_word(o->prompt);
    unescape_word(o->append);
    for (size_t i = 0; i < o->job.stop.n; i++)
        unescape_word(o->job.stop.v[i]);
    for (size_t i = 0; i < o->job.banned.n; i++)
        unescape_word(o->job.banned.v[i]);
}

/* Adds the lines of --ban-phrases-file to the phrases. */
static int read_phrases(struct options *o, struct err *e)
{
    char where[PATH_BYTES + 32];
    const struct option *ban = option_find("--ban-phrase", o->verb->bit);
    size_t n, number = 0;
    if (!o->ban_file)
        return 0;
    if (text_read_prompt(&o->ban_lines, &n, o->ban_file, e))
        return -1;
    for (char *line = o->ban_lines, *next; *line; line = next) {
        const size_t length = strcspn(line, "\n");
        next = line + length + (line[length] != 0);
        line[length - (length && line[length - 1] == '\r')] = 0;
        snprintf(where, sizeof where, "%s: line %zu", o->ban_file, ++number);
        const char *phrase = line;
        if (*line && (banned_check(where, &phrase, 1, e) || option_set(o, ban, where, line, e)))
            return -1;
    }
    return 0;
}

/* The messages of options. */
struct refusals { char list[900]; size_t more; };      /* `more` have no room in the list */

static void add_refused(struct refusals *r, const char *message)
{
    const size_t n = strlen(r->list);
    if (strstr(r->list, message))
        return;
    if (n + strlen(message) + 3 > sizeof r->list)
        r->more++;
    else
        snprintf(r->list + n, sizeof r->list - n, "%s%s", n ? "; " : "", message);
}

static int parse_words(struct options *o, int argc, char **argv, struct err *e)
{
    bool only_words = false, refused = false;
    struct refusals r = {0}, none = {0};         /* none: that change nothing */
    struct err first = {0};              /* of a value */
    for (int i = 2; i < argc; i++) {
        const char *w = argv[i];
        const bool numbers = o->verb->bit == VERB_PRIORITY || refused;     /* below 0 may stand here */
        if (!only_words && strcmp(w, "--") == 0) {
            only_words = true;
        } else if (!only_words && w[0] == '-' && w[1] && !(numbers && is_number(w))) {
            const int rc = parse_option(o, argc, argv, &i, e);
            if (rc < 0 && !first.code)
                first = *e;
            if (rc > 0)
                add_refused(rc == NO_OPTION ? &r : &none, e->msg);
            refused = rc == NO_OPTION;
        } else {
            o->arg[o->n_args++] = w;
            refused = false;
        }
    }
    if (*r.list)
        return err_set(e, ERR_INPUT, r.more ? "%s: %s; and %zu more" : "%s: %s", o->verb->name, r.list,
                       r.more);
    if (first.code) {
        *e = first;
        return -1;
    }
    if (o->help)
        return 0;
    if (o->escape)
        unescape_texts(o);
    unescape_word(o->between);
    if (o->n_args > (size_t)o->verb->max_args)
        return err_set(e, ERR_INPUT, "%s: '%s' is one word too many; usage: longhand %s %s", o->verb->name,
                       o->arg[o->verb->max_args], o->verb->name, o->verb->args);
    if (o->n_args < (size_t)o->verb->min_args)
        return err_set(e, ERR_INPUT, "%s: a word is missing; usage: longhand %s %s", o->verb->name,
                       o->verb->name, o->verb->args);
    if (*none.list)
        request_notice(o, none.more ? "%s; and %zu more" : "%s", none.list, none.more);
    return read_phrases(o, e) || join_scaling(o, e) || join_cache_types(o, e) ? -1 : 0;
}

int options_parse(struct options *o, int argc, char **argv, struct err *e)
{
    const char *name = argc > 1 ? argv[1] : "help";
    *o = (struct options){0};
    sampling_defaults(&o->job.sampling);
    draft_defaults(&o->job.draft);
    for (const struct option *opt = options_table; opt->name; opt++)
        if (opt->value && option_set(o, opt, opt->name, opt->value, e))
            assert(!"a default is outside its range");
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    else if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        name = "help";
    else if (name[0] == '-')
        return err_set(e, ERR_INPUT, "'%s' where a verb must stand, as in longhand run %s; see longhand help",
                       name, name);
    if (find_verb(&o->verb, name, e))
        return -1;
    o->arg = calloc((size_t)argc + 1, sizeof *o->arg);
    if (!o->arg)
        return err_set(e, ERR_FAILED, "out of memory");
    if (parse_words(o, argc, argv, e)) {
        options_free(o);
        return -1;
    }
    return 0;
}

void options_free(struct options *o)
{
    free(o->arg);
    free(o->ban_lines);
    for (const struct option *opt = options_table; opt->name; opt++)
        if (opt->verbs && option_texts(o, opt)) {
            free(option_texts(o, opt)->v);
            option_texts(o, opt)->v = NULL;
        }
    *o = (struct options){0};
}

void request_notice(const struct options *o, const char *format, ...)
{
    char line[PATH_BYTES + 256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (!o->quiet)
        notice(o->progress == PROGRESS_JSON,
               (struct row[]){ NOTICE_TEXT("phase", "notice"), NOTICE_TEXT("message", line), NOTICE_END },
               "%s", line);
}
