/* The kinds of the values of options, a row each: how a command line, the body of a request and stored
 * parameters give a value, and how parameters store it. A new kind is a name in enum option_kind and a row
 * of `kinds`. */
#pragma once
#include "src/base/json.h"
#include "src/base/json_write.h"
#include "src/request/chat_options.h"
#include "src/request/options_impl.h"

/* A value of a command line: the word `s`, which goes to `at`, the place of the option in o. `name` begins
 * messages. s NULL: of a FLAG, which is set. */
struct given {
    struct options *o;
    const struct option *opt;
    void *at;
    const char *name, *s;
    struct err *e;
};

/* A member of stored parameters: its value has the kind of an option, and lies at `at` in struct job_params.
 * opt NULL: a TEXT that is no option. may_lack: older or other jobs have no such member; when_set: the member
 * is written only if it differs from its default. */
struct member {
    char name[40];
    enum option_kind kind;
    const struct option *opt;
    size_t at;
    bool when_set, may_lack;
};

/* Reads stored parameters. A reader keeps the first error and goes on with zeros, so that reading needs no
 * check after each member. */
struct reader {
    struct job_params *p;
    const struct member *m;          /* that is read now */
    char **room;                     /* where the next string goes; advances through job_params.strings */
    struct err *e; bool failed;
};
/* Sets the error: the member is not what is allowed; NULL: out of memory. */
void reader_bad(struct reader *r, const char *allowed);

/* Writes stored parameters from a command line, the parameters and the form of the prompt. name, opt, at: of
 * the member that is written now. */
struct writer {
    const struct options *o;
    const struct job_params *p;
    const struct chat_facts *chat;
    struct json_writer *w;
    const char *name;
    const struct option *opt;
    const void *at;
    bool failed;                     /* out of memory */
};

struct kind {
    int (*parse)(const struct given *g);         /* NULL: no option has the kind */
    unsigned json;                   /* of a body: the allowed enum js_kind, a bit each; 0: in no body */
    const char *allowed;             /* the same in words */
    void (*read)(struct reader *r, const struct json *v, void *at);
    void (*write)(struct writer *x);
    size_t size;                     /* of a value; 0: of a list */
    size_t count;                    /* of a list: the offset of its length */
    bool texts;                      /* the value is a struct text_list, whose array is malloc'ed */
};
extern const struct kind kinds[];

/* Whether two values of a kind are equal. Of lists only their lengths count. */
bool kind_equal(enum option_kind kind, const void *a, const void *b);
