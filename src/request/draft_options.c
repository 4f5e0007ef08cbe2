/* Reads the options of drafting into struct draft_settings. Start at draft_from_options. */
#include "src/request/draft_options.h"
#include "src/request/options_impl.h"
#include "src/decode/weights.h"
#include "src/decode/verify_published.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A preset is a list of options. TokenSwift's code keeps 20 tokens through every filter, which changes texts;
 * the rows of its Table 11 are settings of sampling. MagicDec: chains of the model over a window with a sink.
 * Medusa: a tree of heads on the verified hidden state. Story, the last one, drafts nothing and may stand
 * beside another; `own`: options that the model's own settings override. */
#define TOKENSWIFT "heads,partial,ngram", "tree=1,3,3,3 draft-passes=1 min-keep=20"
#define TABLE_11 TOKENSWIFT " temperature=1 top-k=0 eta=0 penalty-window=1024 "
static const struct preset { const char *name, *drafter, *options, *own; } presets[] = {
    { "tokenswift", TOKENSWIFT },
    { "magicdec", "partial", "tree=1 draft-passes=4 kv-policy=window kv-sinks=1 kv-budget=257" },
    { "medusa", "heads", "tree=5,3,2" },
    { "table11-llama3.1-8b", TABLE_11 "top-p=1 min-p=0.1 penalty=1.2" },
    { "table11-yarn-llama2-7b-128k", TABLE_11 "top-p=0.9 min-p=0 penalty=1.15" },
    { "table11-qwen2.5-1.5b", TABLE_11 "top-p=0.9 min-p=0 penalty=1.15" },
    { "table11-qwen2.5-7b", TABLE_11 "top-p=1 min-p=0.05 penalty=1.15" },
    { "table11-qwen2.5-14b", TABLE_11 "top-p=1 min-p=0.05 penalty=1.13" },
    { "story", NULL, "penalty=1.1 penalty-window=256 min-p=0.05 dry-multiplier=0.8 on-loop=retake",
      "temperature=0.8" },
};
enum { N_PRESETS = sizeof presets / sizeof *presets, STORY = N_PRESETS - 1 };

const char *preset_name(size_t i) { return i < N_PRESETS ? presets[i].name : NULL; }

/* The presets that --preset lists, as bits. */
static int find_presets(const struct options *o, unsigned *set, struct err *e)
{
    char list[256] = "";
    *set = 0;
    for (const char *p = o->preset; p;) {
        const size_t n = strcspn(p, ",");
        size_t i = 0;
        while (i < N_PRESETS && !(strlen(presets[i].name) == n && memcmp(p, presets[i].name, n) == 0))
            i++;
        for (size_t k = 0, at = 0; k < N_PRESETS && i == N_PRESETS; k++)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", k ? ", " : "", presets[k].name);
        if (i == N_PRESETS)
            return err_set(e, ERR_INPUT, "--preset: '%.*s' is not one of %s", (int)n, p, list);
        if (i != STORY && *set & ((1u << STORY) - 1))
            return err_set(e, ERR_INPUT, "--preset: '%s': only story may stand beside another", o->preset);
        *set |= 1u << i;
        p = p[n] ? p + n + 1 : NULL;
    }
    return 0;
}

struct pair { char name[32], value[64]; };

/* Reads the next NAME=VALUE of a list of options. */
static bool next_pair(const char **list, struct pair *x)
{
    int n = 0;
    const bool any = *list && sscanf(*list, " %31[^=]=%63s%n", x->name, x->value, &n) == 2;
    *list = any ? *list + n : NULL;
    return any;
}

int preset_apply(struct options *o, bool own, struct err *e)
{
    struct pair x;
    char spelled[40];
    unsigned set;
    if (find_presets(o, &set, e))
        return -1;
    for (size_t i = 0; i < N_PRESETS; i++) {
        if (!(set >> i & 1))
            continue;
        if (!own && presets[i].drafter && strcmp(o->job.drafter, "auto") == 0)
            o->job.drafter = presets[i].drafter;
        for (const char *list = own ? presets[i].own : presets[i].options; next_pair(&list, &x);) {
            snprintf(spelled, sizeof spelled, "--%s", x.name);
            const struct option *opt = option_named(x.name, VERB_RUN);
            if (!options_given(o, x.name) && option_set(o, opt, spelled, x.value, e))
                return -1;
            o->given[opt - options_table] = 1;
        }
    }
    return 0;
}

bool preset_story(char *text, size_t size, const struct options *o, bool own)
{
    struct pair x;
    struct err ignored;
    unsigned set;
    size_t n = 0;
    text[0] = 0;
    if (find_presets(o, &set, &ignored) || !(set >> STORY))
        return false;
    for (int i = 0; i < 1 + own; i++)
        for (const char *list = i ? presets[STORY].own : presets[STORY].options; next_pair(&list, &x);)
            if (!options_given(o, x.name))
                n += (size_t)snprintf(text + n, size - n, "%s%s %s", n ? ", " : "", x.name, x.value);
    return true;
}

/* Parses a list of drafters: NAME or NAME:FILE. */
static int parse_drafters(struct draft_settings *s, struct drafter_files *files, const char *text,
                          struct err *e)
{
    char list[256];
    s->drafters = 0;
    for (const char *p = text;; p++) {
        const size_t n = strcspn(p, ","), name = MIN(n, strcspn(p, ":")), file = n - MIN(n, name + 1);
        size_t known = N_DRAFTERS;
        for (size_t i = 0; i < DRAFTER_ADDED; i++)
            if (strlen(drafters[i]->name) == name && memcmp(p, drafters[i]->name, name) == 0 &&
                (name == n || (file && file < PATH_BYTES && drafters[i]->option != OPTION_NONE)))
                known = i;
        if (known == N_DRAFTERS)
            return err_set(e, ERR_INPUT, "--drafter: '%.*s' is not one of auto, none, %s", (int)n, p,
                           drafter_list(list, ALL_DRAFTERS));
        if (file)
            snprintf(files->path[known], PATH_BYTES, "%.*s", (int)file, p + name + 1);
        s->drafters |= 1u << known;
        p += n;
        if (!*p)
            return 0;
    }
}

unsigned draft_of_model(const char *dir)
{
    static _Thread_local char last[PATH_BYTES];
    static _Thread_local unsigned had;
    if (!last[0] || strcmp(last, dir)) {
        had = 0;
        for (size_t i = 0; i < N_DRAFTERS; i++)
            had |= (unsigned)weights_present((enum drafter)i, dir) << i;
        snprintf(last, sizeof last, "%s", dir);
    }
    return had;
}

int draft_from_options(struct draft_settings *s, struct drafter_files *files, const struct options *o,
                       const char *model_dir, size_t n_prompt, struct err *e)
{
    struct options x = *o;
    memset(files, 0, sizeof *files);
    if (preset_apply(&x, false, e))
        return -1;
    *s = x.job.draft;
    s->kv_fixed = s->n_width || options_given(o, "kv-budget");
    if (s->kv_budget == 0)
        s->kv_budget = MAX(n_prompt, s->kv_sinks + 1);
    if (strcmp(x.job.drafter, "none") == 0)
        s->drafters = 0;
    else if (strcmp(x.job.drafter, "auto") == 0)
        s->drafters |= weights_of_auto(draft_of_model(model_dir), s->n_width > 0);
    else if (parse_drafters(s, files, x.job.drafter, e))
        return -1;
    if (!s->drafters)
        return verify_published_check(s, e);
    if (s->draft_passes == 0)
        s->drafters &= ~(1u << DRAFTER_PARTIAL);
    return draft_check(s, e);
}

/* Options, and the drafters that they are for. */
#define BIT(d) (1u << DRAFTER_##d)
#define WEIGHTS (ALL_DRAFTERS & ~(BIT(NGRAM) | BIT(SUFFIX)))
static const struct { const char *options; unsigned drafters; } uses[] = {
    { "tree", ALL_DRAFTERS },
    { "ngram-k ngram-lead ngram-delay", BIT(NGRAM) },
    { "draft-passes", WEIGHTS & ~BIT(HEADS) },
    { "kv-budget kv-sinks", BIT(PARTIAL) | BIT(MODEL) | BIT(MTP) },
    { "kv-policy", BIT(PARTIAL) },
    { "draft-weights", WEIGHTS },
};

void draft_notices(const struct options *o, const struct engine *g, const char *prefix)
{
    char text[600] = "", list[256];
    struct options x = *o;
    struct draft_settings s;
    struct drafter_files files;
    struct err ignored;
    if (preset_apply(&x, false, &ignored) || draft_from_options(&s, &files, o, g->dir, 1, &ignored))
        return;
    if (strcmp(x.job.drafter, "auto") == 0)
        s.drafters &= draft_of_config(&g->config);
    for (const struct option *opt = options_table; opt->name; opt++)
        for (size_t i = 0, n = strlen(text); i < sizeof uses / sizeof *uses; i++)
            if (x.given[opt - options_table] && option_is_listed(uses[i].options, opt->name) &&
                !(s.drafters & uses[i].drafters))
                snprintf(text + n, sizeof text - n, "%s--%s (for %s)", n ? ", " : "", opt->name,
                         i ? drafter_list(list, uses[i].drafters) : "any drafter");
    if (*text)
        request_notice(o, "%swith --drafter %s this changes nothing: %s", prefix, x.job.drafter, text);
    if (s.drafters == BIT(PARTIAL) && s.n_width > 1 && !options_given(o, "draft-passes") &&
        s.draft_passes < (long)s.n_width)
        request_notice(o, "%s--tree has %zu depths, and one draft pass of partial fills one depth; "
                       "--draft-passes %zu fills all", prefix, s.n_width, s.n_width);
}
