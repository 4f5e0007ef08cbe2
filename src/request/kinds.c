/* The kinds of the values of options. Start at `kinds`, the table at the end; a section for each of its
 * columns comes before it. */
#include "src/request/kinds.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "src/model/device_choice.h"

/* The steps of the sampling chain as they were when jobs began to name them in the member "order". A later
 * step is not among them. */
enum { JOB_STEPS = 8 };
static const char *const job_step_names[JOB_STEPS] = { "bias", "penalties", "dry", "temperature", "top_k",
                                                       "top_p", "min_p", "eta" };

/* A word for js_whole and js_i64. */
static struct json number_of(const char *s, size_t n) { return (struct json){ .s = s, .end = s + n }; }

/* ---- rows ---- */

/* The words of a choice: its number; `n` bytes at the return value are word i; NULL after the last. */
static const char *option_word(const struct option *opt, int i, size_t *n)
{
    const char *p = opt->words ? opt->words : opt->arg;
    for (; i > 0 && *p; i--)
        p += strcspn(p, "|"), p += *p == '|';
    *n = strcspn(p, "|[");
    return *n ? p : NULL;
}

/* The value of a CHOICE: the word's index, and the number N of a word that is shown as WORD[:N] above it
 * (src/request/params.h). False: s is none of the words. */
static bool option_choice(const struct option *opt, const char *s, int *out)
{
    const char *word;
    size_t n;
    for (int i = 0; (word = option_word(opt, i, &n)); i++) {
        if (strncmp(word, s, n) != 0 || (s[n] && !(s[n] == ':' && word[n] == '[')))
            continue;
        const struct json digits = number_of(s + n + 1, s[n] ? strlen(s + n + 1) : 0);
        uint64_t number = 0;
        if (s[n] && (!js_whole(&digits, &number) || number < 1 || number > CHOICE_NUMBER_MAX))
            return false;
        *out = i | (int)number << CHOICE_BITS;
        return true;
    }
    return false;
}

bool option_in_range(const struct option *opt, double x)
{
    return x >= opt->min && x <= opt->max && !((opt->flags & ABOVE_MIN) && x == opt->min) &&
           !((opt->flags & BELOW_MAX) && x == opt->max) && !(opt->least > 0 && x != 0 && x < opt->least);
}

const char *option_range(char text[96], const struct option *opt)
{
    const char *kind = opt->kind == REAL ? "a number" : "a whole number";
    int n = snprintf(text, 96, "%s from %.10g to %.10g", kind, opt->min, opt->max);
    if (opt->flags & (ABOVE_MIN | BELOW_MAX))
        snprintf(text + n, 96 - (size_t)n, ", without %g", opt->flags & ABOVE_MIN ? opt->min : opt->max);
    else if (opt->least > 0)
        snprintf(text + n, 96 - (size_t)n, ", 0 or at least %g", opt->least);
    return text;
}

/* ---- parse ---- */

bool text_list_add(struct text_list *l, const char *s)
{
    const char **v = realloc(l->v, (l->n + 1) * sizeof *v);
    if (!v)
        return false;
    l->v = v;
    v[l->n++] = s;
    return true;
}

int parse_size(size_t *out, const char *name, const char *s, size_t min, size_t max, struct err *e)
{
    const struct json number = number_of(s, strlen(s));
    uint64_t v;
    if (!js_whole(&number, &v) || v < min || v > max)
        return err_set(e, ERR_INPUT, "%s: '%s' is not a whole number from %zu to %zu", name, s, min, max);
    *out = v;
    return 0;
}

int parse_count(size_t *out, const char *name, const char *s, size_t min, size_t max, struct err *e)
{
    char digits[64];
    const size_t n = strlen(s);
    const int unit = n && n < sizeof digits - 4 ? s[n - 1] | 0x20 : 0;
    if (unit != 'k' && unit != 'm')
        return parse_size(out, name, s, min, max, e);
    snprintf(digits, sizeof digits, "%.*se%d", (int)n - 1, s, unit == 'k' ? 3 : 6);
    if (parse_size(out, name, digits, min, max, e))
        return err_set(e, ERR_INPUT, "%s: '%s' is not a whole number from %zu to %zu", name, s, min, max);
    return 0;
}

int parse_long(long *out, const char *name, const char *s, long min, long max, struct err *e)
{
    const struct json number = number_of(s, strlen(s));
    int64_t v;
    if (!js_i64(&number, &v) || v < min || v > max)
        return err_set(e, ERR_INPUT, "%s: '%s' is not a whole number from %ld to %ld", name, s, min, max);
    *out = v;
    return 0;
}

int parse_real(double *out, const char *name, const char *s, double min, double max, struct err *e)
{
    char *end = NULL;
    double v = s[strspn(s, "0123456789.eE+-")] ? NAN : strtod(s, &end);
    if (!end || *end || end == s || !(v >= min && v <= max))
        return err_set(e, ERR_INPUT, "%s: '%s' is not a number from %g to %g", name, s, min, max);
    *out = v;
    return 0;
}

int id_list_add(struct id_list *l, int32_t id, const char *name, struct err *e)
{
    for (size_t i = 0; i < l->n; i++)
        if (l->v[i] == id)
            return 0;
    if (l->n == STOP_IDS_MAX)
        return err_set(e, ERR_INPUT, "%s: at most %d different ids are allowed", name, STOP_IDS_MAX);
    l->v[l->n++] = id;
    return 0;
}

static int parse_flag(const struct given *g)
{
    *(bool *)g->at = !g->s || strcmp(g->s, "true") == 0;
    return 0;
}

static int parse_size_kind(const struct given *g)
{
    if (g->opt->word && strcmp(g->s, g->opt->word) == 0) {
        *(size_t *)g->at = 0;
        return 0;
    }
    return parse_count(g->at, g->name, g->s, (size_t)g->opt->min, (size_t)g->opt->max, g->e);
}

/* -1 draws a seed. */
static int parse_seed(const struct given *g)
{
    const struct json number = number_of(g->s, strlen(g->s));
    struct options *o = g->o;
    int64_t v;
    o->seed_drawn = js_i64(&number, &v) && v == -1;
    if (o->seed_drawn && getrandom(&o->seed, sizeof o->seed, 0) != sizeof o->seed)
        return err_set(g->e, ERR_FAILED, "cannot draw a seed: %s", strerror(errno));
    if (!o->seed_drawn && !js_whole(&number, &o->seed))
        return err_set(g->e, ERR_INPUT, "%s: '%s' is not a whole number from 0 to %" PRIu64 ", or -1 for a "
                       "seed drawn at random", g->name, g->s, UINT64_MAX);
    return 0;
}

/* A number of at least the row's `min`, which K, M, G or T multiplies by a power of 1,024. */
static int parse_bytes(const struct given *g)
{
    static const char units[] = "KMGT";
    const size_t n = strlen(g->s);
    const char *u = n && g->s[n - 1] > ' ' ? strchr(units, g->s[n - 1] & ~0x20) : NULL;
    const struct json number = number_of(g->s, n - (u != NULL));
    const uint64_t scale = u ? (uint64_t)1 << 10 * (u - units + 1) : 1, min = (uint64_t)g->opt->min;
    uint64_t v;
    if (!js_whole(&number, &v) || v < min || v > UINT64_MAX / scale)
        return err_set(g->e, ERR_INPUT, "%s: '%s' is not a number of bytes, like 500M, from %" PRIu64,
                       g->name, g->s, min);
    *(uint64_t *)g->at = v * scale;
    return 0;
}

static int parse_long_kind(const struct given *g)
{
    return parse_long(g->at, g->name, g->s, (long)g->opt->min, (long)g->opt->max, g->e);
}

static int parse_real_kind(const struct given *g)
{
    double x;
    char range[96];
    if (parse_real(&x, g->name, g->s, g->opt->min, g->opt->max, g->e) || !option_in_range(g->opt, x))
        return err_set(g->e, ERR_INPUT, "%s: '%s' is not %s", g->name, g->s, option_range(range, g->opt));
    *(double *)g->at = x;
    return 0;
}

static int parse_text(const struct given *g)
{
    *(const char **)g->at = g->s;
    return g->opt->field == offsetof(struct options, device) ? device_choice_check(g->name, g->s, g->e) : 0;
}

static int parse_list(const struct given *g)
{
    return text_list_add(g->at, g->s) ? 0 : err_set(g->e, ERR_FAILED, "out of memory");
}

static int parse_choice(const struct given *g)
{
    return option_choice(g->opt, g->s, g->at)
               ? 0
               : err_set(g->e, ERR_INPUT, strchr(g->opt->arg, '[') ? "%s: '%s' is not one of %s, N from 1 to "
                                                                     "%d"
                                                                   : "%s: '%s' is not one of %s",
                         g->name, g->s, g->opt->arg, CHOICE_NUMBER_MAX);
}

static int parse_widths(const struct given *g)
{
    struct draft_settings *d = g->at;
    d->n_width = 0;
    for (const char *p = g->s;; p++) {
        char number[24];
        size_t n = strcspn(p, ",");
        if (d->n_width == TREE_WIDTHS_MAX)
            return err_set(g->e, ERR_INPUT, "%s: '%s' is deeper than %d", g->name, g->s, TREE_WIDTHS_MAX);
        if (n == 0 || n >= sizeof number)
            return err_set(g->e, ERR_INPUT, "%s: '%s' is not a list of whole numbers like 1,3,3,3", g->name,
                           g->s);
        memcpy(number, p, n);
        number[n] = 0;
        if (parse_size(&d->width[d->n_width++], g->name, number, 1, RANK_MAX - 1, g->e))
            return -1;
        p += n;
        if (!*p)
            return 0;
    }
}

static int parse_id(const struct given *g)
{
    size_t id;
    if (parse_size(&id, g->name, g->s, 0, INT32_MAX, g->e))
        return -1;
    return id_list_add(g->at, (int32_t)id, g->name, g->e);
}

/* ---- read: stored parameters ---- */

void reader_bad(struct reader *r, const char *allowed)
{
    if (!r->failed && allowed)
        err_set(r->e, ERR_INPUT, "parameters: \"%s\" is not %s", r->m->name, allowed);
    else if (!r->failed)
        err_set(r->e, ERR_FAILED, "out of memory");
    r->failed = true;
}

static const char *copy_string(struct reader *r, const struct json *v)
{
    char *s = *r->room;
    *r->room += js_unescape(v, s) + 1;
    (*r->room)[-1] = 0;
    return s;
}

static void read_real(struct reader *r, const struct json *v, void *at)
{
    if (!js_double(v, at))
        reader_bad(r, "a number");
}

static void read_long(struct reader *r, const struct json *v, void *at)
{
    int64_t x = 0;
    if (js_kind(v) != JS_NUMBER || !js_i64(v, &x))
        reader_bad(r, "a whole number");
    else if (r->m->kind == SIZE && x < 0)
        reader_bad(r, "a whole number from 0");
    *(long *)at = x;
}

static void read_flag(struct reader *r, const struct json *v, void *at)
{
    const enum js_kind kind = js_kind(v);
    if (kind != JS_TRUE && kind != JS_FALSE)
        reader_bad(r, "true or false");
    *(bool *)at = kind == JS_TRUE;
}

static void read_text(struct reader *r, const struct json *v, void *at)
{
    if (js_kind(v) == JS_STRING)
        *(const char **)at = copy_string(r, v);
    else if (js_kind(v) != JS_NULL)
        reader_bad(r, "a text or null");
}

static void read_word(struct reader *r, const struct json *v, void *at)
{
    char *text = js_kind(v) == JS_STRING ? js_strdup(v) : NULL;
    if (!text || !option_choice(r->m->opt, text, at))
        reader_bad(r, "one of the words that are allowed");
    free(text);
}

/* An array of texts, or null for an empty list. */
static void read_texts(struct reader *r, const struct json *a, void *at)
{
    struct text_list *l = at;
    struct json v;
    if (js_kind(a) == JS_NULL)
        return;
    if (js_kind(a) != JS_ARRAY || !(l->v = calloc(js_count(a) + 1, sizeof *l->v))) {
        reader_bad(r, js_kind(a) == JS_ARRAY ? NULL : "an array of texts");
        return;
    }
    for (struct js_walk w = js_walk(a); js_next(&w, NULL, &v);)
        if (js_kind(&v) == JS_STRING)
            l->v[l->n++] = copy_string(r, &v);
        else
            reader_bad(r, "an array of texts");
}

static void read_ids(struct reader *r, const struct json *a, void *at)
{
    struct json v;
    size_t id;
    struct err ignored;
    if (js_kind(a) != JS_ARRAY)
        reader_bad(r, "an array of token ids");
    for (struct js_walk w = js_walk(a); !r->failed && js_next(&w, NULL, &v);)
        if (js_size(&v, 0, INT32_MAX, &id, &ignored) || id_list_add(at, (int32_t)id, r->m->name, &ignored))
            reader_bad(r, "an array of at most 64 token ids");
}

/* Ids ascend as texts, so that none comes twice. */
static void read_biases(struct reader *r, const struct json *o, void *at)
{
    struct sampling *s = &r->p->sampling;
    struct json id_text, v;
    const char *before = "";
    (void)at;                            /* the place of the words of a command line */
    if (js_kind(o) != JS_OBJECT || !(s->bias = calloc(js_count(o) + 1, sizeof *s->bias))) {
        reader_bad(r, js_kind(o) == JS_OBJECT ? NULL : "an object");
        return;
    }
    for (struct js_walk w = js_walk(o); js_next(&w, &id_text, &v);) {
        const char *name = copy_string(r, &id_text);
        const bool banned = js_is(&v, "-inf");
        struct err ignored;
        double bias = -INFINITY;
        size_t id;
        if (strcmp(before, name) >= 0 || parse_size(&id, r->m->name, name, 0, INT32_MAX, &ignored) ||
            !(banned || js_double(&v, &bias))) {
            reader_bad(r, "an object of token ids, in order, and numbers or \"-inf\"");
        } else {
            s->bias[s->n_bias].id = (int32_t)id;
            s->bias[s->n_bias++].bias = bias;
        }
        before = name;
    }
}

/* The steps run in one order. No option ever set another. */
static void read_order(struct reader *r, const struct json *a, void *at)
{
    struct json v;
    size_t n = 0;
    bool fixed = js_kind(a) == JS_ARRAY && js_count(a) == JOB_STEPS;
    (void)at;
    for (struct js_walk w = js_walk(a); fixed && js_next(&w, NULL, &v);)
        fixed = js_is(&v, job_step_names[n++]);
    if (!fixed)
        reader_bad(r, "the order of the steps of sampling: bias, penalties, dry, temperature, top_k, "
                         "top_p, min_p, eta");
}

static void read_drafters(struct reader *r, const struct json *v, void *at)
{
    struct job_params *p = r->p;
    const char *s = NULL;
    (void)at;
    read_text(r, v, &s);
    p->drafter_auto = s && strcmp(s, "auto") == 0;
    if (!p->drafter_auto)
        p->draft.drafters = 0;
    for (const char *w = s; w && !p->drafter_auto && strcmp(s, "none");) {
        size_t n = strcspn(w, ","), k = 0;
        while (k < DRAFTER_ADDED && !(strlen(drafter_name(k)) == n && memcmp(drafter_name(k), w, n) == 0))
            k++;
        if (k == DRAFTER_ADDED) {
            reader_bad(r, "auto, none or a list of drafters");
            return;
        }
        p->draft.drafters |= 1u << k;
        w = w[n] ? w + n + 1 : NULL;
    }
}

static void read_widths(struct reader *r, const struct json *tree, void *at)
{
    struct draft_settings *d = at;
    struct json v;
    int64_t width = 0;
    d->n_width = 0;
    if (js_kind(tree) != JS_ARRAY) {
        reader_bad(r, "an array of whole numbers");
        return;
    }
    for (struct js_walk w = js_walk(tree); js_next(&w, NULL, &v);)
        if (js_kind(&v) != JS_NUMBER || !js_i64(&v, &width) || width < 1 || d->n_width == TREE_WIDTHS_MAX)
            reader_bad(r, "an array of whole numbers, at most 16");
        else
            d->width[d->n_width++] = (size_t)width;
}

static void read_chat(struct reader *r, const struct json *v, void *at)
{
    (void)at;
    r->p->chat = js_kind(v) != JS_NULL;
}

/* ---- write: stored parameters ---- */

static void write_flag(struct writer *x) { jw_bool(x->w, x->name, *(const bool *)x->at); }
static void write_size(struct writer *x) { jw_uint(x->w, x->name, *(const size_t *)x->at); }
static void write_long(struct writer *x) { jw_int(x->w, x->name, *(const long *)x->at); }
static void write_real(struct writer *x) { jw_number(x->w, x->name, *(const double *)x->at); }
static void write_text(struct writer *x) { jw_text(x->w, x->name, *(const char *const *)x->at); }

static void write_word(struct writer *x)
{
    const int value = *(const int *)x->at, more = value >> CHOICE_BITS;
    char text[48];
    size_t n;
    const char *word = option_word(x->opt, value & ((1 << CHOICE_BITS) - 1), &n);
    snprintf(text, sizeof text, more ? "%.*s:%d" : "%.*s", (int)n, word, more);
    jw_text(x->w, x->name, text);
}

static void write_texts(struct writer *x)
{
    const struct text_list *l = x->at;
    if (l->n == 0 && (x->opt->flags & NULL_IF_EMPTY)) {
        jw_null(x->w, x->name);
        return;
    }
    jw_open(x->w, x->name, '[');
    for (size_t i = 0; i < l->n; i++)
        jw_text(x->w, NULL, l->v[i]);
    jw_close(x->w, ']');
}

static void write_ids(struct writer *x)
{
    const struct id_list *l = x->at;
    jw_open(x->w, x->name, '[');
    for (size_t i = 0; i < l->n; i++)
        jw_int(x->w, NULL, l->v[i]);
    jw_close(x->w, ']');
}

static void write_widths(struct writer *x)
{
    const struct draft_settings *d = x->at;
    jw_open(x->w, x->name, '[');
    for (size_t i = 0; i < d->n_width; i++)
        jw_uint(x->w, NULL, d->width[i]);
    jw_close(x->w, ']');
}

struct named_bias { char id[12]; double bias; };

static int by_id_text(const void *a, const void *b)
{
    return strcmp(((const struct named_bias *)a)->id, ((const struct named_bias *)b)->id);
}

static void write_biases(struct writer *x)
{
    const struct sampling *s = &x->p->sampling;
    struct named_bias *b = calloc(s->n_bias + 1, sizeof *b);
    if (!b) {
        x->failed = true;
        return;
    }
    for (size_t i = 0; i < s->n_bias; i++) {
        snprintf(b[i].id, sizeof b[i].id, "%d", (int)s->bias[i].id);
        b[i].bias = s->bias[i].bias;
    }
    qsort(b, s->n_bias, sizeof *b, by_id_text);
    jw_open(x->w, x->name, '{');
    for (size_t i = 0; i < s->n_bias; i++)
        if (isinf(b[i].bias))
            jw_text(x->w, b[i].id, "-inf");
        else
            jw_number(x->w, b[i].id, b[i].bias);
    jw_close(x->w, '}');
    free(b);
}

static void write_chat(struct writer *x)
{
    const struct chat_facts *c = x->chat;
    const struct options *o = x->o;
    if (!*c->template) {
        jw_null(x->w, x->name);
        return;
    }
    jw_open(x->w, x->name, '{');
    jw_text(x->w, "date", *c->day ? c->day : NULL);
    if (o->thinking >= CHAT_EFFORT_LOW)
        jw_text(x->w, "effort", chat_efforts[o->thinking - CHAT_EFFORT_LOW]);
    if (o->chat_kwargs)
        jw_parsed(x->w, "kwargs", o->chat_kwargs);
    jw_text(x->w, "system", o->system);
    jw_text(x->w, "template", c->template);
    jw_bool(x->w, "thinking", o->thinking != CHAT_THINKING_OFF);
    jw_close(x->w, '}');
}

static void write_drafters(struct writer *x)
{
    char text[128] = "";
    for (size_t i = 0; i < DRAFTER_ADDED; i++)
        if (x->p->draft.drafters >> i & 1)
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s", *text ? "," : "",
                     drafter_name(i));
    jw_text(x->w, x->name, x->p->drafter_auto ? "auto" : *text ? text : "none");
}

static void write_order(struct writer *x)
{
    jw_open(x->w, x->name, '[');
    for (size_t i = 0; i < JOB_STEPS; i++)
        jw_text(x->w, NULL, job_step_names[i]);
    jw_close(x->w, ']');
}

/* ---- the table ---- */

enum { BOOL = 1 << JS_TRUE | 1 << JS_FALSE, NUMBER = 1 << JS_NUMBER, STRING = 1 << JS_STRING,
       ARRAY = 1 << JS_ARRAY, OBJECT = 1 << JS_OBJECT };
#define TEXTS .count = offsetof(struct text_list, n), .texts = true

const struct kind kinds[] = {
    [FLAG] = { parse_flag, BOOL, "true or false", read_flag, write_flag, sizeof(bool) },
    [SIZE] = { parse_size_kind, NUMBER, "a number", read_long, write_size, sizeof(size_t) },
    [LONG] = { parse_long_kind, NUMBER, "a number", read_long, write_long, sizeof(long) },
    [REAL] = { parse_real_kind, NUMBER, "a number", read_real, write_real, sizeof(double) },
    [SEED] = { parse_seed, NUMBER, "a number" },
    [BYTES] = { parse_bytes },
    [TEXT] = { parse_text, STRING, "a text", read_text, write_text, sizeof(char *) },
    [CHOICE] = { parse_choice, STRING, "a text", read_word, write_word, sizeof(int) },
    [LIST] = { parse_list, STRING | ARRAY, "a text or an array of texts", read_texts, write_texts, TEXTS },
    [FILES] = { parse_list, TEXTS },
    [BIASES] = { parse_list, STRING | OBJECT, "an object {\"ID\": BIAS, ..}", read_biases, write_biases,
                 TEXTS },
    [IDS] = { parse_id, ARRAY, "an array of token ids", read_ids, write_ids,
              .count = offsetof(struct id_list, n) },
    [WIDTHS] = { parse_widths, .read = read_widths, .write = write_widths },
    [DRAFTERS] = { parse_text, .read = read_drafters, .write = write_drafters },
    [CHAT_FORM] = { .read = read_chat, .write = write_chat },
    [ORDER] = { .read = read_order, .write = write_order },
    [DRAFTING_FORM] = { 0 },             /* an object of members: job_params.c */
};

int option_set(struct options *o, const struct option *opt, const char *spelled, const char *s, struct err *e)
{
    const struct given g = { o, opt, option_place(o, opt), spelled, s, e };
    return kinds[opt->kind].parse(&g);
}

struct text_list *option_texts(struct options *o, const struct option *opt)
{
    return kinds[opt->kind].texts ? option_place(o, opt) : NULL;
}

bool kind_equal(enum option_kind kind, const void *a, const void *b)
{
    const struct kind *k = &kinds[kind];
    return memcmp((const char *)a + k->count, (const char *)b + k->count, k->size ? k->size : sizeof(size_t))
           == 0;
}
