/* The command line. Every option has one row in a table (options_table.c) that says how to parse the
 * option, which verbs take it, and what its help is. The help, the man page and the shell completions come
 * from the same rows.
 *
 *     struct options o;
 *     if (options_parse(&o, argc, argv, &e)) ...      one line, exit 2
 *     switch (o.verb->bit) ...
 *     options_free(&o);
 *
 * Spellings: --name VALUE, --name=VALUE, -n VALUE, -nVALUE. `_` in a long name means `-`. `--` ends the
 * options. The last use of an option counts, except for options that make lists. */
#pragma once
#include <limits.h>
#include <stdio.h>
#include "src/base/base.h"
#include "src/base/progress.h"
#include "src/request/params.h"

enum {
    VERB_RUN = 1, VERB_SCORE = 2, VERB_TOKENIZE = 4, VERB_INSPECT = 8, VERB_DISTINCT = 16, VERB_BENCH = 32,
    VERB_VERSION = 64, VERB_HELP = 128, VERB_TRAIN = 256, VERB_SUBMIT = 1 << 9, VERB_WORK = 1 << 10,
    VERB_LIST = 1 << 11, VERB_SHOW = 1 << 12, VERB_TEXT = 1 << 13, VERB_TAIL = 1 << 14, VERB_PAUSE = 1 << 15,
    VERB_RESUME = 1 << 16, VERB_CANCEL = 1 << 17, VERB_REMOVE = 1 << 18, VERB_EXTEND = 1 << 19,
    VERB_FORK = 1 << 20, VERB_REPORT = 1 << 21, VERB_EXPORT = 1 << 22, VERB_VERIFY = 1 << 23,
    VERB_CONVERT = 1 << 24, VERB_DOCTOR = 1 << 25, VERB_COMPACT = 1 << 26, VERB_DU = 1 << 27,
    VERB_BACKUP = 1 << 28, VERB_PRIORITY = 1 << 29, VERB_PLAN = 1 << 30, 
    VERB_REDO = 1ll << 31, VERB_SERVE = 1ll << 32,
    VERBS_UPKEEP = VERB_DOCTOR | VERB_COMPACT | VERB_BACKUP,
    VERBS_MAKE = VERB_RUN | VERB_SUBMIT, VERBS_CHAT = VERBS_MAKE | VERB_TOKENIZE,
    VERBS_BRANCH = VERB_EXTEND | VERB_FORK,
    VERBS_WRITE = VERBS_MAKE | VERB_SERVE, VERBS_SAMPLE = VERBS_WRITE | VERBS_BRANCH,
    VERBS_DRAFT = VERBS_WRITE | VERB_BENCH, VERBS_FORM = VERBS_WRITE | VERB_SCORE | VERB_INSPECT,
    VERBS_CHANGE = VERB_PAUSE | VERB_RESUME | VERB_CANCEL | VERB_REMOVE | VERB_PRIORITY,
    VERBS_SELECT = VERB_LIST | VERB_SHOW | VERB_TEXT | VERBS_CHANGE | VERB_REPORT | VERB_EXPORT |
                   VERB_DU | VERB_REDO,
    VERBS_QUEUE = VERB_WORK | VERB_SERVE, VERBS_COMPUTE = VERBS_QUEUE | VERB_RUN | VERB_VERIFY,
    VERBS_STORE = VERBS_WRITE | VERB_WORK | VERBS_SELECT | VERB_TAIL | VERB_EXTEND | VERB_FORK | VERB_VERIFY |
                  VERBS_UPKEEP | VERB_PLAN | VERB_SCORE,
    VERBS_MODEL = VERB_RUN | VERB_SCORE | VERB_INSPECT | VERB_BENCH | VERB_TOKENIZE | VERB_TRAIN |
                  VERB_CONVERT | VERB_PLAN,
};
enum { OPTIONS_MAX = 224 };

struct verb {
    const char *name; uint64_t bit;
    const char *args;                /* as the usage line shows them */
    const char *help;                /* one sentence; NULL: an alias of the verb above */
    int min_args, max_args;          /* words that are not options; INT_MAX: any number */
};

/* Values of choices: the index of the word in the row's argument "a|b|c". */
enum { FORMAT_TEXT, FORMAT_IDS, FORMAT_JSONL, FORMAT_CSV, FORMAT_OPENAI };
enum { PROMPT_MODEL, PROMPT_USER };
enum { GENERATION_AUTO, GENERATION_NONE };
enum { SHELL_BASH, SHELL_ZSH, SHELL_FISH };

struct options {
    const struct verb *verb;
    const char **arg; size_t n_args;             /* words that are not options */
    unsigned char given[OPTIONS_MAX];            /* by row of the table; see options_given */

    struct job_params job;                       /* parameters of a job, as far as the words give them */
    const char *model, *prompt, *prompt_file, *output;
    const char *ban_file; char *ban_lines;       /* what its phrases in job.banned are parts of */
    const char *rope_scale; size_t yarn_orig_ctx;  /* llama.cpp's parts of job.scaling */
    const char *cache_k, *cache_v;                 /* llama.cpp's parts of job.kv_dtype */
    bool repair;
    const char *messages;
    bool chat, escape;
    const char *system, *chat_template, *chat_kwargs, *chat_date;
    int thinking;                                /* enum chat_thinking */
    size_t tokens, samples, threads, window;
    uint64_t seed;
    bool seed_drawn;                             /* it was given as -1 */
    struct text_list logit_bias;
    bool quiet, json, per_token, jsonl, decode, render, all, help;
    int generation_config, format, progress, convert_weights;
    const char *shape, *hardware, *lengths, *batch_sizes, *acceptance, *drafters, *paper;   /* plan */
    const char *device, *preset, *json_stats;
    const char *bench_points; size_t repeat;     /* bench */
    struct text_list data, valid;                /* train */
    const char *curves, *train_from;
    size_t heads, draft_vocab, train_steps, train_batch, train_warmup, valid_every, valid_windows;
    double train_rate, train_decay, train_clip, checkpoint_seconds;
    int train_kind, train_ablation;
    struct text_list db, by, grid;               /* jobs */
    size_t limit, shorter, longer;
    const char *sort, *columns, *finish, *distinct_below, *repeats_above;
    bool reverse, loops, lines, keep, replace, headings, requests;
    const char *batch, *name, *shard, *state, *append, *append_file, *after, *at_text, *find, *between, *dir,
        *older_than, *fields;
    const char *more_tokens, *resume;
    long priority;
    double max_time;
    int kv_snapshot;                             /* enum kv_snapshot of runs/work/snapshot_policy.h */
    uint64_t kv_snapshot_max, max_store;
    const char *parallel;            /* auto, or a number */
    uint64_t max_memory;             /* 0: no limit of its own */
    const char *metrics;             /* file; NULL: none */
    size_t max_jobs, max_attempts, from, at, occurrence, sample, carry;
    int with_prompt;
    bool with_thinking;
    bool shared_db, shared_group, run_now, from_here, accept_change, rounds, until_empty, watch, follow;
    bool partial, gzip, csv, html, force, windows;
    int export_format;
    const char *host, *api_key_file;             /* serve */
    bool forget;
    size_t port, max_connections;
    uint64_t max_body;
    uint64_t max_upload;
    struct text_list allow_host, cors;
    /* of the requests of a server: the only name of a model that a body may have, NULL: any; bytes of host
     * memory that the process holds for the model and its texts, in which a job may find room, 0: none */
    const char *served; size_t held;
    bool man; int completion;                    /* help */
    char scaling_text[64];                       /* job.scaling, joined from its parts */
};

/* Parses a command line. Fails with ERR_INPUT and one line; for an unknown name the line offers the
 * nearest name. */
int  options_parse(struct options *o, int argc, char **argv, struct err *e);
void options_free(struct options *o);

/* Whether the command line has the option of this long name. */
bool options_given(const struct options *o, const char *name);
/* The name of the option that has the alias --word: "temperature" of "temp". NULL: none has it. */
const char *option_of_alias(const char *word);
/* An option of the command line that belongs to a new job, as of `submit`; NULL: none. An existing job has
 * its own. */
const char *options_of_job(const struct options *o);

/* Sets an option of o's verb as if the command line had it. Requests of a batch use this: their fields
 * have the ranges of the options. `spelled` is the name in messages. A flag takes "true" and "false". A
 * text is borrowed. Not for lists. */
int options_assign(struct options *o, const char *name, const char *spelled, const char *value,
                   struct err *e);

/* NULL when no verb has this name. */
const struct verb *options_verb(const char *name);

/* verb NULL: the main help; with `all` every verb and option. */
void options_help(FILE *f, const struct verb *verb, bool all);
/* The man page, and the script that completes command lines in a shell (SHELL_*). */
void options_man(FILE *f);
void options_completion(FILE *f, int shell);

/* One line on standard error, unless --quiet. */
void request_notice(const struct options *o, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Parses all of `s` as a number in [min, max]. `name` begins the message. */
int parse_size(size_t *out, const char *name, const char *s, size_t min, size_t max, struct err *e);
/* The same of a number that k (thousands) or m (millions) may follow. */
int parse_count(size_t *out, const char *name, const char *s, size_t min, size_t max, struct err *e);
int parse_long(long *out, const char *name, const char *s, long min, long max, struct err *e);
/* Adds a text, which is borrowed, to a list whose array is malloc'ed. False: no memory. */
bool text_list_add(struct text_list *l, const char *s);
/* Adds an id that the list lacks. `name` begins the message if there are too many. */
int id_list_add(struct id_list *l, int32_t id, const char *name, struct err *e);
int parse_real(double *out, const char *name, const char *s, double min, double max, struct err *e);
