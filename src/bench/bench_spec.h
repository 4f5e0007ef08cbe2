/* `longhand bench --points spec...`: drafting against plain decoding of the same binary in the same run.
 *
 * Drafting changes neither tokens nor the bits of the cache, so one cache can serve every setting: at sampled windows of a text each
 * setting makes the same tokens from the same place, in turns of a slice each, the order turned round at every slice: a machine that others use too
 * is faster at one moment than at the next, and what is compared has to lie near each other. The text between windows is written once, by
 * `auto`. A window stands for the stretch of text around it; sums over these stretches are the cumulative figures.
 *
 * Every setting has a decoder of its own (controller, calibration, tables) and the one cache on loan. Before a window, outside the
 * measured time, it is brought to where it would be had it written the text itself: tables of 4-grams and matches follow the tokens; the partial
 * cache is selected at the length at which its last refresh was due and follows from there; the costs of passes, which are the
 * machine's, are those that `auto` has learned. Some tokens before the window are made unmeasured.
 *
 * Three files: bench_spec.c (which texts and settings; the windows), bench_spec_text.c (prompts), bench_spec_out.c (tables, JSON). */
#pragma once
#include "src/decode/decode.h"
#include "src/decode/engine.h"
#include "src/request/options.h"

enum { SPEC_SETTINGS_MAX = 64, SPEC_TEXTS_MAX = 64, SPEC_MARKS = 5 };
enum spec_kind { SPEC_LONG, SPEC_SHORT, SPEC_COPY, SPEC_WINDOWS };
/* The first settings of every list: plain twice, as each other's control, and the one that writes the text. */
enum { SPEC_PLAIN, SPEC_AGAIN, SPEC_AUTO, SPEC_OTHERS };

struct spec_run {                    /* of a setting over a window: per token */
    double seconds, draft, verify, control, rounds, rows, accepted, depth, passes;
};

struct spec_window {
    size_t from, tokens;             /* generated tokens before it; its length */
    size_t lo, hi;                   /* the stretch that it stands for */
    struct spec_run *run;            /* [n_settings][repeat] */
};

struct spec_text {
    char name[64];
    int32_t *prompt; size_t n_prompt;
    double prefill_seconds, seconds;             /* of the bench, in all */
    double own_seconds; size_t own_tokens;       /* auto between the windows */
    struct spec_window *window; size_t n_windows;
};

struct spec_setting { const char *name, *flags; };     /* flags: of the command line; "" is auto */

/* A word of --points. A table of them ends with name NULL; spec_points are those of `longhand bench`. */
struct spec;
struct spec_point {
    const char *name;
    enum spec_kind kind;
    const struct spec_setting *setting;
    size_t n_settings, length, every, size, repeat, lead, prompt[3];
    void (*print)(const struct spec *s, const struct spec_text *t);      /* instead of the table of marks */
};
extern const struct spec_point spec_points[];
#define SPEC_COMMON { "plain", "--drafter none" }, { "again", "--drafter none" }, { "auto", "" }

struct spec {
    enum spec_kind kind;
    void (*print)(const struct spec *s, const struct spec_text *t);
    const char *point;               /* the word */
    const struct options *o;
    struct engine engine;
    struct sampling sampling;
    /* tokens of a text, between windows, of a window, of a slice; runs; unmeasured tokens before a window */
    size_t length, every, size, slice, repeat, lead;
    size_t prompt[8], n_prompts;
    bool int8;                       /* drafts that want it have the model in 8 bits */
    bool full;                       /* every file with every length of prompt */
    const char *only[SPEC_SETTINGS_MAX]; size_t n_only;
    struct spec_setting setting[SPEC_SETTINGS_MAX]; size_t n_settings;
    struct decode_setup setup[SPEC_SETTINGS_MAX];
    struct spec_text text[SPEC_TEXTS_MAX]; size_t n_texts;
};

/* Whether --points asks for this. */
bool bench_spec_wanted(const char *points, const struct spec_point *table);
int  bench_spec(const struct options *o, const struct spec_point *table, struct err *e);

/* Prompts, as the kind of the point wants them: of the files (--data, else the model's `openings`), each of a length, or copy-heavy ones made
 * here. A file too short is written on by the model, with the sampling of the run. Into s->text. */
int spec_prompts(struct spec *s, struct err *e);

/* Of a setting in a window: medians over the repetitions, per token; seconds of plain decoding. */
struct spec_run spec_setting_median(const struct spec *s, const struct spec_window *w, size_t setting);
double spec_plain_median(const struct spec *s, const struct spec_window *w);

void spec_print_head(const struct spec *s, const struct spec_text *t);
void spec_print_window(const struct spec *s, const struct spec_window *w);
void spec_print_text(const struct spec *s, const struct spec_text *t);
void spec_print_all(const struct spec *s);
void spec_print_json(const struct spec *s);
