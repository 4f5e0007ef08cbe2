/* The tables of options and verbs, for the files that read them: options.c (parsing), options_help.c (help
 * and man page) and completion.c. */
#pragma once
#include "src/request/options.h"

enum option_kind { FLAG, SIZE, U64, BYTES, LONG, REAL, TEXT, LIST, FILES, CHOICE };
/* in the main help; in no help; the value may be missing and follows a =, else it is the first word */
enum { MAIN = 1, HIDDEN = 2, OPTIONAL = 4 };

struct option {
    const char *name;
    const char *also;                /* aliases, separated by spaces; "-x" is a short form */
    const char *arg;                 /* as the help shows it; the words of a CHOICE, separated by | */
    unsigned verbs;
    enum option_kind kind;
    size_t field;                    /* offset in struct options */
    const char *group;
    unsigned flags;
    const char *help;
    double min, max;                 /* of numbers */
    const char *value;               /* the default, parsed like a given value; NULL: zero */
    const char *shown;               /* the default as the help shows it; NULL: `value` */
};

/* Both tables end with a row without a name. An alias of a verb follows its verb and has no help. */
extern const struct option options_table[];
extern const struct verb verbs_table[];
/* The groups of options in the order of the help; NULL after the last. */
const char *option_group_at(size_t i);
/* In a help text: the drafters, as --drafter takes them. */
#define OPTION_DRAFTERS "@DRAFTERS"
/* The help text with its names filled in: of the last call. */
const char *option_help(const struct option *opt);
/* The default as the help shows it; NULL: none. */
const char *option_default(const struct option *opt);
/* "run, submit", without aliases. */
void option_verbs(char *out, size_t size, const struct option *opt);
