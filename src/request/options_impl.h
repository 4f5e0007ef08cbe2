/* The option table as the files that print it see it: src/request/options_help.c (help, man page) and src/request/completion.c. */
#pragma once
#include "src/request/options.h"

enum option_kind { FLAG, SIZE, U64, BYTES, LONG, REAL, TEXT, LIST, FILES, CHOICE };
enum { MAIN = 1, HIDDEN = 2 };       /* shown in the main help; never shown */

struct option {
    const char *name;
    const char *also;                /* aliases, separated by spaces; "-x" is a short one */
    const char *arg;                 /* as the help shows it; the words of a CHOICE */
    unsigned verbs;
    enum option_kind kind;
    size_t field;                    /* offset in struct options */
    double min, max;                 /* of numbers */
    const char *value;               /* default, parsed as if given; NULL: zero */
    const char *shown;               /* what the help says the default is; NULL: `value` */
    const char *help;
    const char *group;
    unsigned flags;
};

/* Rows in the table's order; NULL behind the last. Verbs include aliases, whose help is NULL. */
const struct option *option_at(size_t i);
const struct verb *verb_at(size_t i);
/* Groups in the order in which they are shown; NULL behind the last. */
const char *option_group_at(size_t i);
/* The default as people are told it; NULL: none. */
const char *option_default(const struct option *opt);
/* "run, submit", without aliases. */
void option_verbs(char *out, size_t size, const struct option *opt);
