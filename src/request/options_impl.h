/* The tables of options and verbs, for the files that read them: options.c (parsing), options_help.c (help
 * and man page) and completion.c. */
#pragma once
#include "src/request/options.h"

/* The kind of a value. Lists may be given several times. The kinds from CHAT_FORM on occur in stored
 * parameters alone. */
enum option_kind { FLAG, SIZE, SEED, BYTES, LONG, REAL, TEXT, LIST, FILES, CHOICE, WIDTHS, DRAFTERS, BIASES,
                   IDS, CHAT_FORM, DRAFTING_FORM, ORDER };

enum {
    MAIN = 1, HIDDEN = 2,            /* in the main help; in no help */
    OPTIONAL = 1 << 14,              /* the value may be missing and follows a =, else it is the first word */
    BODY = 4,                        /* the body of a request has a field of this name, with _ for - */
    GRID = 8,                        /* --grid may vary it: it decides sampling, drafting or length */
    MACHINE = 16,                    /* of the machine that computes, not of a job */
    STORED = 32,                     /* a member of stored parameters */
    DRAFT = 64,                      /* within the member "drafting" */
    LATER = 128,                     /* jobs of older versions lack the member */
    WHEN_SET = 256,                  /* the member is written only where it differs from its default */
    NULL_IF_EMPTY = 512,             /* an empty list is stored as null */
    DECIDES = 1024,                  /* the text depends on it */
    CHANGES = 2048,                  /* extend and fork may change it */
    ABOVE_MIN = 4096, BELOW_MAX = 8192,   /* the range of a REAL is without its least or greatest number */
    CHANGED = STORED | DECIDES | CHANGES, SAMPLED = CHANGED | BODY | GRID, DRAFTED = STORED | DRAFT | GRID,
};

/* What the help says of some verbs alone, and their default. */
struct clause { uint64_t verbs; const char *help, *shown; };

struct option {
    const char *name;
    const char *also;                /* aliases, separated by spaces; "-x" is a short form */
    const char *arg;                 /* as the help shows it; the words of a CHOICE, separated by | */
    uint64_t verbs;                  /* 0: no option, but a member of stored parameters */
    enum option_kind kind;
    size_t field;                    /* offset in struct options */
    const char *group;
    unsigned flags;
    const char *help;
    double min, max;                 /* of numbers; max: the texts of a LIST in a body */
    const char *value;               /* the default, parsed like a given value; NULL: zero */
    const char *shown;               /* the default as the help shows it; NULL: `value`, of a CHOICE none */
    const struct clause *of;         /* of some verbs; ends with verbs 0 */
    const char *fields;              /* further fields of a body, separated by spaces */
    const char *member;              /* of stored parameters; NULL: the name with _ for - */
    const char *generation;          /* the member of generation_config.json that sets it; NULL: none */
    const char *words;               /* of a CHOICE, if the help does not show all; NULL: arg */
    double least;                    /* of a REAL: the least number but 0 */
    const char *word;                /* of a SIZE: this word stands for 0 */
};

/* Both tables end with a row without a name. An alias of a verb follows its verb and has no help. */
extern const struct option options_table[];
extern const struct verb verbs_table[];
/* The row of an option of this verb, else of any verb, else NULL. name: without dashes, with _ or - between
 * words: "temp", "top_p". */
const struct option *option_named(const char *name, uint64_t verb);
/* Puts `to` in the place of each `from`, and returns name. */
const char *option_respell(char *name, char from, char to);
/* The row of an option of extend or fork that a client of a server may give, under this name or with _ for
 * -: none that opens a file or is of the machine; NULL. */
const struct option *option_of_edit(const struct verb *verb, const char *name);
/* What stands for an option ("--ctx-size", "-c") or a verb of another program; NULL: nothing. mark, which may
 * be NULL: of an option that is taken (options_hints.c), else 0. */
const char *option_hint(const char *word, char *mark);
/* Whether `name` is a word of a list such as `also`, or with commas. */
bool option_is_listed(const char *list, const char *name);
/* Whether a number is in the range of a row, and the range in words: "a number from 0 to 1, without 0". */
bool option_in_range(const struct option *opt, double x);
const char *option_range(char text[96], const struct option *opt);
/* The place of an option's value. */
static inline void *option_place(struct options *o, const struct option *opt)
{
    return (char *)o + opt->field;
}
/* Parses a value into its place in o (kinds.c). `spelled` begins messages. */
int option_set(struct options *o, const struct option *opt, const char *spelled, const char *value,
               struct err *e);
/* The texts of an option that is a list of them, whose array is malloc'ed; NULL: it has another kind. */
struct text_list *option_texts(struct options *o, const struct option *opt);
/* The next short form ("-x") of the aliases, from *also on. False after the last one. */
bool option_short(const char **also, char form[3]);
/* Writes a text with the bytes of its escapes and a NUL to `to`, which may be the text; returns their number.
 * Other backslashes stay, as in llama.cpp. */
size_t option_unescape(char *to, const char *text);
/* The groups of options in the order of the help; NULL after the last. */
const char *option_group_at(size_t i);
/* In a help text: the drafters, as --drafter takes them. */
#define OPTION_DRAFTERS "@DRAFTERS"
/* The help text with its names filled in: of the last call. */
const char *option_help(const struct option *opt);
/* The name of the member of stored parameters. */
const char *option_member(char name[40], const struct option *opt);
/* "run, submit": the names of verbs, without aliases. Returns out. */
const char *option_verbs(char out[256], uint64_t verbs);
