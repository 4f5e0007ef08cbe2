/* `labbench --points spec...`: drafting against plain decoding, of the same binary in the same run.
 *
 * Drafting changes neither the tokens nor the bits of the cache, so one cache serves every setting. At
 * sampled windows of a text, each setting writes the same tokens from the same place. The settings take
 * turns of a slice each, and every slice reverses their order, because a shared machine is faster at one
 * moment than at the next. `auto` writes the text between the windows, once. A window stands for the
 * stretch of text around it; cumulative figures are sums over these stretches.
 *
 * Every setting has its own decoder (planner, calibration, tables), which borrows the common cache. Before
 * a window, outside the measured time, the bench brings each decoder to the state that it would have had it
 * written the text itself: tables of 4-grams and matches take in the tokens; the partial cache is selected
 * at the length where its last refresh was due, and follows from there; costs of passes come from `auto`,
 * because they are the machine's. Each setting writes some tokens before the window unmeasured.
 *
 * Files: spec.c (texts, settings, windows), spec_text.c (prompts), spec_out.c (tables and
 * JSON). */
#pragma once
#include "src/decode/decode.h"
#include "src/decode/engine.h"
#include "src/request/options.h"

enum { SPEC_SETTINGS_MAX = 64, SPEC_TEXTS_MAX = 64, SPEC_MARKS = 5, SPEC_REPEAT_MAX = 1000 };
enum spec_kind { SPEC_LONG, SPEC_SHORT, SPEC_COPY, SPEC_WINDOWS };
/* The first settings of every list: plain decoding twice, as its own control, and auto, which writes the
 * text. */
enum { SPEC_PLAIN, SPEC_AGAIN, SPEC_AUTO, SPEC_OTHERS };

struct spec_run {                    /* figures of a setting in a window, per token */
    double seconds, draft, verify, control, rounds, rows, accepted, depth, passes;
};

struct spec_window {
    size_t from, tokens;             /* generated tokens before the window; its length */
    size_t lo, hi;                   /* the stretch that the window stands for */
    struct spec_run *run;            /* [n_settings][repeat] */
};

struct spec_text {
    char name[64];
    int32_t *prompt; size_t n_prompt;
    double prefill_seconds, seconds;             /* of the prefill; of everything */
    double own_seconds; size_t own_tokens;       /* of auto between the windows */
    struct spec_window *window; size_t n_windows;
    struct spec_run *run;                        /* of all windows */
};

struct spec_setting { const char *name, *flags; };     /* flags of the command line; "" is auto */

struct spec;
/* A word of --points and its defaults, which flags and further words of --points replace. The name NULL ends
 * a table. spec_points has the points of texts; lab_points (lab.h) has spec-best. */
struct spec_point {
    const char *name;
    enum spec_kind kind;
    const struct spec_setting *setting;
    size_t n_settings;
    size_t length;                   /* tokens of a text */
    size_t every, size;              /* tokens between windows, of a window */
    size_t repeat, lead;             /* runs of a window; unmeasured tokens before it */
    size_t prompt[8];                /* tokens of the prompts; 0 ends the list */
    void (*print)(const struct spec *s, const struct spec_text *t);      /* or NULL: the cumulative table */
};
extern const struct spec_point spec_points[];
#define SPEC_COMMON { "plain", "--drafter none" }, { "again", "--drafter none" }, { "auto", "" }

struct spec {
    struct spec_point point;
    const struct options *o;
    struct engine engine;
    struct sampling sampling;
    size_t slice, n_prompts;         /* tokens of a slice; lengths in point.prompt */
    bool int8;                       /* drafts may ask the model in 8 bits */
    bool full;                       /* every file with every prompt length */
    const char *only[SPEC_SETTINGS_MAX]; size_t n_only;
    struct spec_setting setting[SPEC_SETTINGS_MAX]; size_t n_settings;
    struct decode_setup setup[SPEC_SETTINGS_MAX];
    struct spec_text text[SPEC_TEXTS_MAX]; size_t n_texts;
};

/* Whether --points names a point of the table. */
bool bench_spec_wanted(const char *points, const struct spec_point *table);
int  bench_spec(const struct options *o, const struct spec_point *table, struct err *e);

/* Fills s->text with prompts: texts that copy, made here (SPEC_COPY), or the beginnings of files (--data,
 * else the model's `openings`). The model itself continues a file that is too short. */
int spec_prompts(struct spec *s, struct err *e);

/* Medians over the runs of a window, per token: figures of a setting; seconds of plain decoding. */
struct spec_run spec_setting_median(const struct spec *s, const struct spec_window *w, size_t setting);
double spec_plain_median(const struct spec *s, const struct spec_window *w);

void spec_print_head(const struct spec *s, const struct spec_text *t);
void spec_print_window(const struct spec *s, const struct spec_window *w);
void spec_print_text(const struct spec *s, const struct spec_text *t);
void spec_print_all(const struct spec *s);
void spec_print_json(const struct spec *s);
