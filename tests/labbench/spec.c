/* Owns the spec points: their settings (struct spec_point), and the windows in which settings take turns on
 * one cache (struct session, struct state). Start at bench_spec, then measure_window. */
#include "tests/labbench/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/output.h"
#include "src/base/stopping.h"
#include "src/lab/bench.h"
#include "src/model/find_model.h"
#include "tests/labbench/learned.h"
#include "src/decode/weights.h"
#include "src/request/draft_options.h"
#include "src/request/model_options.h"

static const struct spec_setting table_settings[] = {
    SPEC_COMMON,
    { "tokenswift", "--preset tokenswift" },
    { "heads", "--drafter heads" },
    { "partial", "--drafter partial" },
    { "longspec", "--drafter longspec" },
    { "spire", "--drafter spire" },
    { "gumiho", "--drafter gumiho" },
    { "ngram", "--drafter ngram" },
    { "suffix", "--drafter suffix" },
};
static const struct spec_setting window_settings[] = { SPEC_COMMON };
#define LIST(x) x, sizeof x / sizeof *x

const struct spec_point spec_points[] = {
    { "spec", SPEC_LONG, LIST(table_settings), 100000, 10000, 400, 2, 200, { 2048, 4096, 8192 } },
    { "spec-short", SPEC_SHORT, LIST(table_settings), 1500, 1500, 1500, 5, 0, { 8192 } },
    { "spec-copy", SPEC_COPY, LIST(table_settings), 100000, 10000, 400, 2, 200, { 4096 } },
    { "spec-windows", SPEC_WINDOWS, LIST(window_settings), 100000, 10000, 1000, 5, 200, { 4096 } },
    { .name = NULL },
};
enum {
    SLICE = 125,
    FIXED_LEAD = 16,                 /* unmeasured tokens before a window, for settings that plan nothing */
    SETTLE = 10,                     /* unmeasured tokens of a later slice, which finds cold caches */
};
static const double PATIENCE = 2;    /* a setting this many times slower than plain decoding leaves the run */

/* ---- options ---- */

static const struct spec_point *point_named(const struct spec_point *p, const char *word)
{
    const size_t n = strcspn(word, ",");
    while (p->name && (strlen(p->name) != n || memcmp(word, p->name, n)))
        p++;
    return p->name ? p : NULL;
}

bool bench_spec_wanted(const char *points, const struct spec_point *table)
{
    for (const char *p = points; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (point_named(table, p))
            return true;
    return false;
}

/* Reads a word of the point: every=N, window=N, slice=N, lead=N, prompt=N (several), set=NAME (several),
 * full. */
static int parse_word(struct spec *s, const char *word, struct err *e)
{
    struct spec_point *p = &s->point;
    const struct { const char *name; size_t *to, least, most; } number[] = {
        { "--points every", &p->every, 1, 1000000000 }, { "--points window", &p->size, 1, 1000000 },
        { "--points slice", &s->slice, 2 * SETTLE, 1000000 }, { "--points lead", &p->lead, 0, 1000000 },
        { "--points prompt", &p->prompt[s->n_prompts % 8], 1, 1000000 },
    };
    for (size_t k = 0; k < sizeof number / sizeof *number; k++) {
        const char *key = strchr(number[k].name, ' ') + 1;
        const size_t n = strlen(key);
        if (strncmp(word, key, n) || word[n] != '=' || (s->n_prompts == 8 && number[k].to == p->prompt))
            continue;
        s->n_prompts += number[k].to == &p->prompt[s->n_prompts];
        return parse_size(number[k].to, number[k].name, word + n + 1, number[k].least, number[k].most, e);
    }
    if (strcmp(word, "full") == 0)
        s->full = true;
    else if (strncmp(word, "set=", 4) == 0 && s->n_only < SPEC_SETTINGS_MAX)
        s->only[s->n_only++] = word + 4;
    else
        return err_set(e, ERR_INPUT,
                       "--points: \"%s\"; allowed with %s: every=N, window=N, slice=N, lead=N, prompt=N, "
                       "set=NAME, full",
                       word, p->name);
    return 0;
}

static int parse_points(struct spec *s, char *list, const struct spec_point *table, struct err *e)
{
    const struct spec_point *point = NULL, *named;
    struct spec_point *p = &s->point;
    char *at = NULL;
    for (const char *w = list; *w; w += strcspn(w, ","), w += *w == ',')
        if ((named = point_named(table, w))) {
            if (point)
                return err_set(e, ERR_INPUT, "--points: %s and %s: only one spec point at a time",
                               point->name, named->name);
            point = named;
        }
    *p = *point;
    p->every = 0;
    s->slice = SLICE;
    for (char *word = strtok_r(list, ",", &at); word; word = strtok_r(NULL, ",", &at))
        if (!point_named(table, word) && parse_word(s, word, e))
            return -1;
    if (!s->n_prompts)
        while (s->n_prompts < 8 && p->prompt[s->n_prompts])
            s->n_prompts++;
    p->length = s->o->tokens ? s->o->tokens : p->length;
    p->size = MIN(p->size, p->length);
    if (!p->every)
        p->every = MIN(point->every, p->kind == SPEC_SHORT ? p->length : p->length / 5);
    p->every = MAX(p->every, p->size);
    p->repeat = s->o->repeat ? MIN(s->o->repeat, (size_t)SPEC_REPEAT_MAX) : p->repeat;
    return 0;
}

/* The settings of the point that --points wants and the device supports: a GPU supports no means of rows
 * (draft_check_model). One more setting stands for the drafting flags of this command. */
static void select_settings(struct spec *s)
{
    static const char *const flags[] = { "drafter", "tree", "ngram-k", "ngram-lead", "ngram-delay",
                                         "draft-passes", "kv-budget", "kv-sinks", "kv-policy",
                                         "draft-weights" };
    bool given = false;
    for (size_t i = 0; i < s->point.n_settings; i++) {
        const struct spec_setting *x = &s->point.setting[i];
        bool wanted = i < SPEC_OTHERS || !s->n_only;
        for (size_t j = 0; j < s->n_only; j++)
            wanted |= strcmp(s->only[j], x->name) == 0;
        if (wanted && (s->engine.dev->host_memory || !strstr(x->flags, "--kv-policy mean")))
            s->setting[s->n_settings++] = *x;
    }
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        given |= options_given(s->o, flags[i]);
    if (given)
        s->setting[s->n_settings++] = (struct spec_setting){ "given", NULL };
    assert(s->n_settings <= SPEC_SETTINGS_MAX);
}

/* Drafting of one setting, from its flags by the parser of the command line. */
static int read_setting(struct spec *s, size_t i, size_t n_prompt, struct err *e)
{
    static struct drafter_files none;    /* models' own files */
    char text[256], *word[32] = { (char *)"longhand", (char *)"bench" }, *at = NULL;
    int n = 2;
    struct options o;
    struct decode_setup *d = &s->setup[i];
    if (!s->setting[i].flags)
        return draft_from_options(&d->draft, &none, s->o, s->engine.dir, n_prompt, e);
    snprintf(text, sizeof text, "%s", s->setting[i].flags);
    for (char *w = strtok_r(text, " ", &at); w && n < 32; w = strtok_r(NULL, " ", &at))
        word[n++] = w;
    int rc = options_parse(&o, n, word, e) ||
             draft_from_options(&d->draft, &none, &o, s->engine.dir, n_prompt, e);
    options_free(&o);
    return rc ? -1 : 0;
}

/* The sampling of TokenSwift's Table 11, row Llama 3.1. --preset overrides it (and keeps 20 tokens, for
 * plain decoding too); flags of the command override both. */
static int read_sampling(struct spec *s, struct err *e)
{
    struct options x = *s->o;
    if (!options_given(&x, "min-p")) x.job.sampling.min_p = 0.1;
    if (!options_given(&x, "penalty")) x.job.sampling.penalty = 1.2;
    if (preset_apply(&x, false, e))
        return -1;
    s->sampling = x.job.sampling;
    s->sampling.seed = options_given(s->o, "seed") ? s->o->seed : 1;
    s->sampling.ignore_eos = true;
    s->sampling.eos = s->engine.config.eos;
    s->sampling.n_eos = s->engine.config.n_eos;
    return sampling_check(&s->sampling, s->engine.config.vocab, e) ? -1 : 0;
}

/* ---- the state of a setting ---- */

/* What a setting has learned, and the length at which its partial cache was last selected (0: not
 * selected). */
struct state {
    struct learned learned;
    size_t budget, selected;
    enum kv_policy policy;
};

struct session {                     /* one text under measurement */
    struct spec *s;
    struct spec_text *t;
    struct kv kv;                    /* one decoder at a time borrows the cache */
    struct round_buffers buffers;
    int32_t *tokens; size_t n_tokens, n_max;     /* the text as far as any setting wrote it */
    struct decoder *d;               /* [n_settings] */
    struct state *state;             /* [n_settings][repeat], at the beginning of a window */
    double slowest;                  /* seconds that a slice may take */
};

static void save_state(struct state *x, const struct decoder *d)
{
    learned_save(&x->learned, d);
    const struct partial *p = d->own[DRAFTER_PARTIAL];
    x->budget = p ? p->budget : 0;
    x->policy = p ? p->policy : KV_FULL;
    x->selected = p && p->filled && kv_selects(p->policy) ? p->n_seen - p->n_recent : 0;
}

/* Brings a setting that did not write the text since its last window to the state that it would have, had
 * it written the text up to the length n_past. */
static void catch_up(struct state *x, const struct decoder *d, const struct state *writer, size_t n_past)
{
    const struct partial *p = d->own[DRAFTER_PARTIAL];
    learned_catch_up(&x->learned, &writer->learned);
    if (!p || !p->work || n_past <= x->budget || !kv_selects(x->policy))
        return;
    if (!x->selected)
        x->selected = MAX(x->budget + 1, d->n_prompt - 1);
    if (x->selected >= n_past)           /* the next pass is the first that selects */
        x->selected = 0;
    while (x->selected && x->policy == KV_DYNAMIC && x->selected + x->budget - p->sinks < n_past)
        x->selected += x->budget - p->sinks;
}

/* Selects the partial cache as the pass at the length x->selected did, and lets it follow from there. */
static int restore_partial(struct session *b, struct decoder *d, const struct state *x, struct err *e)
{
    static const int32_t root[] = { -1 };
    static const uint8_t none[] = { 0 };
    struct partial *p = d->own[DRAFTER_PARTIAL];
    const size_t n_past = d->kv.n_past;
    if (!p || !p->work)
        return 0;
    p->budget = x->budget;
    p->policy = x->policy;
    p->filled = false;
    p->n_recent = 0;
    p->n_seen = n_past;
    p->kv.n_past = 0;
    if (x->selected && x->selected <= n_past) {
        /* A tree pass: its row goes to the scratch, and the cache does not change. */
        struct pass_seq seq = { .kv = &d->kv, .n = 1, .token = &b->tokens[x->selected], .parent = root,
                                .want = none,
                                .scored = partial_select, .scored_ctx = p };
        d->kv.n_past = x->selected;
        int rc = model_forward(d->model, d->set.buffers->work, &seq, 1, NULL, 0, e);
        d->kv.n_past = n_past;
        if (rc)
            return -1;
    }
    partial_follow(p);
    return 0;
}

/* ---- windows ---- */

/* Puts the decoder at the first n tokens, in the state x. */
static int place(struct session *b, struct decoder *d, const struct state *x, size_t n, struct err *e)
{
    memcpy(d->tokens, b->tokens, n * sizeof *d->tokens);
    d->n_tokens = n;
    d->kv.n_past = b->kv.n_past;
    d->kv.n_written = b->kv.n_written;
    if (decode_restart(d, n, &b->s->sampling, e))
        return -1;
    learned_restore(d, &x->learned);
    return restore_partial(b, d, x, e);
}

/* Checks the tokens of this setting against the text, and appends new ones to it. */
static int check_tokens(struct session *b, const struct decoder *d, size_t i, size_t from, struct err *e)
{
    for (size_t n = from; n < MIN(d->n_tokens, b->n_tokens); n++)
        if (d->tokens[n] != b->tokens[n])
            return err_set(e, ERR_FAILED,
                           "bench: %s: %s: token %zu of the text is %d, with another setting %d: drafting "
                           "changed the text",
                           b->t->name, b->s->setting[i].name, n - b->t->n_prompt, d->tokens[n], b->tokens[n]);
    if (d->n_tokens > b->n_tokens) {
        memcpy(b->tokens + b->n_tokens, d->tokens + b->n_tokens,
               (d->n_tokens - b->n_tokens) * sizeof *b->tokens);
        b->n_tokens = d->n_tokens;
    }
    b->kv.n_past = d->kv.n_past;
    b->kv.n_written = d->kv.n_written;
    return stop_signal ? err_set(e, ERR_FAILED, "bench: stopped by %s", stop_signal_name()) : 0;
}

/* Takes the cache as the last decoder left it. Its committed rows equal this decoder's own, so this one
 * continues where it stood. */
static int adopt_cache(struct session *b, struct decoder *d, struct err *e)
{
    const size_t own = d->n_tokens - 1;
    d->kv.n_past = b->kv.n_past;
    d->kv.n_written = b->kv.n_written;
    kv_truncate(&d->kv, MIN(own, d->kv.n_past));     /* drops guesses */
    return d->kv.n_past < own ? decode_prefill(d, 0, NULL, NULL, e) : 0;
}

/* The measured part of a setting in one run. */
struct turn { double seconds; size_t tokens; bool out; };

/* Setting i writes one slice, up to the token `end`. Tokens before `from` are not measured, nor are the
 * first rounds of a later slice, which find the caches as another setting left them. */
static int run_slice(struct session *b, size_t i, size_t from, size_t end, struct turn *turn, struct err *e)
{
    struct decoder *d = &b->d[i];
    const size_t known = d->n_tokens;
    double seconds = 0;
    if (adopt_cache(b, d, e))
        return -1;
    from = MIN(MAX(from, known + (turn->tokens ? SETTLE : 0)), end);
    while (d->n_tokens < from)
        if (decode_step(d, e))
            return -1;
    const size_t first = d->n_tokens;
    const double begin = clock_seconds();
    while (d->n_tokens < end && !turn->out) {
        if (decode_step(d, e))
            return -1;
        decode_add_stats(d, d->round.tokens);
        seconds = clock_seconds() - begin;
        turn->out = i > SPEC_AUTO && seconds > b->slowest;
    }
    if (i == SPEC_PLAIN || i == SPEC_AGAIN)
        b->slowest = PATIENCE * seconds;
    turn->seconds += seconds;
    turn->tokens += d->n_tokens - first;
    return check_tokens(b, d, i, known, e);
}

static struct spec_run run_of(const struct decoder *d, const struct turn *turn)
{
    const struct draft_stats *st = &d->stats;
    const double n = (double)MAX(turn->tokens, (size_t)1);
    return (struct spec_run){
        .seconds = turn->seconds / n, .draft = st->draft / n, .verify = st->verify / n,
        .control = st->control / n,
        .rounds = (double)st->rounds / n, .rows = (double)st->verified_rows / n,
        .accepted = (double)st->accepted / n,
        .depth = (double)st->drafted_depth / n, .passes = (double)st->draft_passes / n,
    };
}

/* The writer continues to token n from where it stands, in the state that its last window left. */
static int write_to(struct session *b, size_t n, struct err *e)
{
    struct decoder *d = &b->d[SPEC_AUTO];
    size_t from = d->n_tokens;
    double begin = clock_seconds();
    if (adopt_cache(b, d, e))
        return -1;
    while (d->n_tokens < n)
        if (decode_step(d, e))
            return -1;
    b->t->own_tokens += d->n_tokens - from;
    b->t->own_seconds += clock_seconds() - begin;
    return check_tokens(b, d, SPEC_AUTO, from, e);
}

/* Where setting i begins, so that it is warm at `start`. Settings that plan, and did not write the text,
 * get a longer lead: on the way they try again what they would have tried many times since. */
static size_t begin_at(const struct session *b, size_t i, size_t start, bool first)
{
    const struct spec *s = b->s;
    const struct draft_settings *draft = &s->setup[i].draft;
    const bool fixed = !draft->drafters || draft->n_width;
    const size_t lead = fixed || i == SPEC_AUTO ? MIN(s->point.lead, (size_t)FIXED_LEAD)
                        : first                 ? 4 * s->point.lead
                                                : s->point.lead;
    return MAX(b->t->n_prompt, start - MIN(lead, start));
}

static int measure_window(struct session *b, size_t k, struct err *e)
{
    struct spec *s = b->s;
    struct spec_window *w = &b->t->window[k];
    const size_t n = s->n_settings, at = b->t->n_prompt + w->from, end = at + w->tokens,
                 from = begin_at(b, SPEC_AUTO, at, k == 0);
    size_t begin[SPEC_SETTINGS_MAX];
    /* Where windows touch, every run continues with what it has learned itself. */
    const bool apart = from > b->d[SPEC_AUTO].n_tokens;
    if (apart && write_to(b, from, e))
        return -1;
    const size_t start = MAX(at, b->d[SPEC_AUTO].n_tokens);
    for (size_t i = 0; i < n; i++) {
        begin[i] = i == SPEC_AUTO ? b->d[i].n_tokens : begin_at(b, i, start, k == 0);
        for (size_t r = 0; r < s->point.repeat; r++) {
            struct state *x = &b->state[i * s->point.repeat + r];
            if (apart)
                save_state(x, &b->d[i]);
            if (i != SPEC_AUTO)
                catch_up(x, &b->d[i], &b->state[SPEC_AUTO * s->point.repeat + r], begin[i] - 1);
        }
    }
    for (size_t r = 0; r < s->point.repeat; r++) {
        struct turn turn[SPEC_SETTINGS_MAX] = {0};
        for (size_t i = 0; i < n; i++)
            if (place(b, &b->d[i], &b->state[i * s->point.repeat + r], begin[i], e) ||
                run_slice(b, i, start, start, &turn[i], e))
                return -1;
        for (size_t to = start, way = r; to < end; way++) {
            to = MIN(to + s->slice, end);
            for (size_t j = 0; j < n; j++) {
                /* plain, the others, plain again; the next slice in reverse */
                const size_t nth = way % 2 ? n - 1 - j : j;
                const size_t i = nth == 0 ? SPEC_PLAIN : nth == n - 1 ? SPEC_AGAIN : nth + 1;
                if (!turn[i].out && run_slice(b, i, start, to, &turn[i], e))
                    return -1;
            }
        }
        for (size_t i = 0; i < n; i++) {
            w->run[i * s->point.repeat + r] = run_of(&b->d[i], &turn[i]);
            save_state(&b->state[i * s->point.repeat + r], &b->d[i]);
        }
    }
    if (!s->o->json)
        spec_print_window(s, w);
    return 0;
}

/* Windows are the middles of stretches of `every` tokens. */
static int plan_windows(struct spec *s, struct spec_text *t, struct err *e)
{
    const size_t n = (s->point.length + s->point.every - 1) / s->point.every,
                 runs = s->n_settings * s->point.repeat;
    t->window = calloc(n, sizeof *t->window);
    t->run = calloc(n * runs, sizeof *t->run);
    for (size_t i = 0; t->window && t->run && i < n; i++) {
        struct spec_window *w = &t->window[t->n_windows++];
        w->lo = i * s->point.every;
        w->hi = MIN(w->lo + s->point.every, s->point.length);
        w->tokens = MIN(s->point.size, w->hi - w->lo);
        w->from = w->lo + (w->hi - w->lo - w->tokens) / 2;
        w->run = t->run + i * runs;
    }
    return t->n_windows ? 0 : err_set(e, ERR_FAILED, "bench: out of memory for windows");
}

/* Gives back the cache's own blocks, and uses those of `from`, a cache of the same size without shared
 * blocks. */
static void kv_lend(struct kv *kv, const struct kv *from)
{
    struct kv own = { .dev = kv->dev, .run = malloc(sizeof *own.run), .n_runs = 1 };
    assert(own.run && kv->n_runs == 1 && from->n_runs == 1 && kv->layer_bytes == from->layer_bytes);
    own.run[0] = kv->run[0];
    kv_close(&own);
    kv->run[0] = from->run[0];
    kv->run[0]->refs++;
    kv->base = from->base;
}

/* All decoders use one cache (kv_lend). The decoders also share the other buffers: the addresses of buffers
 * change the time of a short pass by a tenth and more, which is no setting's merit. */
static int open_decoders(struct session *b, struct err *e)
{
    struct spec *s = b->s;
    const struct model *m = &s->engine.model;
    size_t rows = 1, work_rows = 1;
    b->n_max = b->t->n_prompt + s->point.length + 4 * TREE_DEPTH_MAX;   /* no setting meets the end */
    b->d = calloc(s->n_settings, sizeof *b->d);
    b->state = calloc(s->n_settings * s->point.repeat, sizeof *b->state);
    b->tokens = calloc(b->n_max, sizeof *b->tokens);
    if (!b->d || !b->state || !b->tokens)
        return err_set(e, ERR_FAILED, "bench: out of memory for %zu decoders", s->n_settings);
    memcpy(b->tokens, b->t->prompt, b->t->n_prompt * sizeof *b->tokens);
    b->n_tokens = b->t->n_prompt;
    const struct kv_size cache = model_cache(m, b->n_max, 0);
    if (kv_open(&b->kv, m->dev, &cache, e))
        return -1;
    for (size_t i = 0; i < s->n_settings; i++) {
        if (read_setting(s, i, b->t->n_prompt, e))
            return err_while(e, "bench: %s", s->setting[i].name);
        weights_setup(&s->setup[i], &s->engine);
        s->setup[i].draft_model =
            s->int8 && draft_wants_int8(&s->setup[i].draft, m->dev) ? &s->engine.int8 : NULL;
        s->setup[i].buffers = &b->buffers;
        rows = MAX(rows, draft_rows(&s->setup[i].draft));
        work_rows = MAX(work_rows, decode_work_rows(&s->setup[i].draft, b->n_max));
    }
    if (round_buffers_open(&b->buffers, m, work_rows, rows, b->n_max, e))
        return -1;
    for (size_t i = 0; i < s->n_settings; i++) {
        if (decode_open(&b->d[i], m, &s->sampling, &s->setup[i], b->t->prompt, b->t->n_prompt, b->n_max, e))
            return -1;
        for (size_t k = 0; k < s->point.repeat; k++)
            save_state(&b->state[i * s->point.repeat + k], &b->d[i]);
        kv_lend(&b->d[i].kv, &b->kv);
    }
    return 0;
}

static int measure_text(struct spec *s, struct spec_text *t, struct err *e)
{
    struct session b = { .s = s, .t = t };
    const double start = clock_seconds();
    int rc = plan_windows(s, t, e) || open_decoders(&b, e) ||
             decode_prefill(&b.d[SPEC_AUTO], 0, NULL, NULL, e);
    if (rc == 0) {
        b.kv.n_written = b.d[SPEC_AUTO].kv.n_written;
        t->prefill_seconds = b.d[SPEC_AUTO].count.prefill_seconds;
        if (!s->o->json)
            spec_print_head(s, t);
    }
    for (size_t k = 0; k < t->n_windows && rc == 0; k++)
        rc = measure_window(&b, k, e);
    for (size_t i = 0; b.d && i < s->n_settings; i++)
        decode_close(&b.d[i]);
    t->seconds = clock_seconds() - start;
    kv_close(&b.kv);
    round_buffers_close(&b.buffers);
    free(b.d);
    free(b.state);
    free(b.tokens);
    return rc ? -1 : 0;
}

/* ---- opening and running ---- */

/* Selects and reads the settings, and checks that the model and all their decoders fit the memory. */
static int check(struct spec *s, struct err *e)
{
    struct memory_plan plan = {0}, each = {0};
    struct device *dev = s->engine.dev;
    const struct model *m = &s->engine.model;
    const struct config *c = &s->engine.config;
    size_t n_max = 4 * TREE_DEPTH_MAX, longest = 0;
    for (size_t i = 0; i < s->n_prompts; i++)
        longest = MAX(longest, s->point.prompt[i]);
    n_max += longest + s->point.length;
    if (n_max > c->context)
        return err_set(e, ERR_INPUT,
                       "bench: %zu prompt tokens + --tokens %zu are beyond this model's context of %zu",
                       longest, s->point.length, c->context);
    engine_plan(&plan, &s->engine, n_max, PREFILL_ROWS, 1);
    select_settings(s);
    for (size_t i = 0; i < s->n_settings; i++) {
        struct decode_setup *d = &s->setup[i];
        if (read_setting(s, i, longest, e))
            return err_while(e, "bench: %s", s->setting[i].name);
        const size_t rows = draft_rows(&d->draft);
        const struct kv_size nodes = model_cache(m, KV_BLOCK, rows);
        s->int8 |= draft_wants_int8(&d->draft, dev);
        each.n = 0;                      /* only the totals matter */
        decode_plan(&each, d, m, n_max);
        memory_plan_add_on(&each, dev, "", workspace_bytes(m, decode_work_rows(&d->draft, n_max), n_max));
        memory_plan_add_on(&each, dev, "", rows * c->vocab * sizeof(float));
        memory_plan_add_on(&each, dev, "", kv_bytes(&nodes));
    }
    memory_plan_add(&plan, "decoders", each.total);
    if (each.device_total)
        memory_plan_add_on(&plan, dev, "decoders", each.device_total);
    if (memory_plan_check(&plan, "fewer --tokens need less", e))
        return -1;
    memory_plan_add(&plan, "model in 8 bits", model_quantized_bytes(c, dev));
    s->int8 = s->int8 && memory_plan_check(&plan, "", e) == 0;
    return 0;
}

static int load(struct spec *s, struct err *e)
{
    struct progress none;
    progress_open(&none, PROGRESS_NONE, true);
    if (check(s, e) || engine_load(&s->engine, NULL, &none, e))
        return -1;
    for (size_t i = 0; i < s->n_settings; i++)
        for (size_t k = 0; k < N_DRAFTERS; k++)
            if (weights_has((enum drafter)k) && s->setup[i].draft.drafters >> k & 1 &&
                !s->engine.weights[k] &&
                weights_open(&s->engine, (enum drafter)k, &s->setup[i].draft, NULL, e))
                return -1;
    s->int8 = s->int8 && engine_int8(&s->engine, 0, &none, e) == 0;
    return 0;
}

/* The decoders of a text share its cache, and states are not shared. */
static int refuse_hybrid(const struct spec *s, struct err *e)
{
    return config_is_hybrid(&s->engine.config)
               ? err_set(e, ERR_INPUT,
                         "bench: drafting is not measured for models with recurrent states (%s)",
                         s->engine.config.model_type)
               : 0;
}

int bench_spec(const struct options *o, const struct spec_point *table, struct err *e)
{
    char dir[PATH_BYTES];
    struct options own = *o;
    static struct spec spec;
    struct spec *s = &spec;
    char *list = strdup(o->bench_points);
    if (!list)
        return err_set(e, ERR_FAILED, "bench: out of memory");
    s->o = o;
    stop_signals_catch();
    own.model = dir;
    int rc = find_model_or_demo(dir, o->model, "--model", e) || parse_points(s, list, table, e) ||
             options_open_engine(&s->engine, &own, e) || refuse_hybrid(s, e) || read_sampling(s, e) ||
             load(s, e) || spec_prompts(s, e);
    for (size_t i = 0; i < s->n_texts && rc == 0; i++) {
        rc = measure_text(s, &s->text[i], e);
        if (rc == 0 && !o->json)
            spec_print_text(s, &s->text[i]);
    }
    if (rc == 0 && o->json)
        spec_print_json(s);
    else if (rc == 0)
        spec_print_all(s);
    rc = rc || stdout_finish(e) ? -1 : 0;
    for (size_t i = 0; i < s->n_texts; i++) {
        free(s->text[i].run);
        free(s->text[i].window);
        free(s->text[i].prompt);
    }
    engine_close(&s->engine);
    free(list);
    return rc;
}
