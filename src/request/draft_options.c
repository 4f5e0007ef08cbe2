/* Reads the options of drafting into struct draft_settings. Start at draft_from_options. */
#include "src/request/draft_options.h"
#include "src/decode/weights.h"
#include "src/decode/verify_published.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The drafting of a paper. TokenSwift: and the rows of its Table 11; 0 means that the paper gives no value.
 * Its code keeps 20 tokens through every filter, which changes texts. MagicDec: chains of the model over a
 * window with a sink. Medusa: a tree of heads on the verified hidden state. */
struct preset_drafting { unsigned drafters; const char *tree; long passes;
                         enum kv_policy policy; size_t sinks, budget; };
static const struct preset_drafting
    tokenswift = { 1u << DRAFTER_HEADS | 1u << DRAFTER_PARTIAL | 1u << DRAFTER_NGRAM, "1,3,3,3", 1, KV_AUTO,
                   16, 4096 },
    magicdec = { 1u << DRAFTER_PARTIAL, "1", 4, KV_WINDOW, 1, 257 },
    medusa = { 1u << DRAFTER_HEADS, "5,3,2", -1, KV_AUTO, 16, 4096 };
static const struct preset { const char *name; const struct preset_drafting *drafting;
                             double temperature, top_p, min_p, penalty; long window; } presets[] = {
    { "tokenswift", &tokenswift, 0, 0, 0, 0, 0 },
    { "magicdec", &magicdec, 0, 0, 0, 0, 0 },
    { "medusa", &medusa, 0, 0, 0, 0, 0 },
    { "table11-llama3.1-8b", &tokenswift, 1, 0, 0.1, 1.2, 1024 },
    { "table11-yarn-llama2-7b-128k", &tokenswift, 1, 0.9, 0, 1.15, 1024 },
    { "table11-qwen2.5-1.5b", &tokenswift, 1, 0.9, 0, 1.15, 1024 },
    { "table11-qwen2.5-7b", &tokenswift, 1, 0, 0.05, 1.15, 1024 },
    { "table11-qwen2.5-14b", &tokenswift, 1, 0, 0.05, 1.13, 1024 },
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

const char *preset_name(size_t i) { return i < N_PRESETS ? presets[i].name : NULL; }

static int find_preset(const struct preset **out, const struct options *o, struct err *e)
{
    char list[256] = "";
    *out = NULL;
    for (size_t i = 0; o->preset && i < N_PRESETS; i++) {
        size_t n = strlen(list);
        if (strcmp(o->preset, presets[i].name) == 0)
            *out = &presets[i];
        snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", presets[i].name);
    }
    if (o->preset && !*out)
        return err_set(e, ERR_INPUT, "--preset: '%s' is not one of %s", o->preset, list);
    return 0;
}

int preset_sampling(struct sampling *s, const struct options *o, struct err *e)
{
    const struct preset *p;
    if (find_preset(&p, o, e))
        return -1;
    if (!p || p->drafting != &tokenswift)
        return 0;
    s->min_keep = 20;
    if (p->temperature == 0)
        return 0;
    s->temperature = p->temperature;
    s->top_k = 0;
    s->eta = 0;
    s->top_p = p->top_p > 0 ? p->top_p : 1;
    s->min_p = p->min_p;
    s->penalty = p->penalty;
    s->penalty_window = p->window;
    return 0;
}

static int parse_tree(struct draft_settings *s, const char *text, struct err *e)
{
    s->n_width = 0;
    for (const char *p = text;; p++) {
        char number[24];
        size_t n = strcspn(p, ",");
        if (s->n_width == TREE_WIDTHS_MAX)
            return err_set(e, ERR_INPUT, "--tree: '%s' is deeper than %d", text, TREE_WIDTHS_MAX);
        if (n == 0 || n >= sizeof number)
            return err_set(e, ERR_INPUT, "--tree: '%s' is not a list of whole numbers like 1,3,3,3", text);
        memcpy(number, p, n);
        number[n] = 0;
        if (parse_size(&s->width[s->n_width++], "--tree", number, 1, RANK_MAX - 1, e))
            return -1;
        p += n;
        if (!*p)
            return 0;
    }
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
        if (file) {
            memcpy(files->path[known], p + name + 1, file);
            files->path[known][file] = 0;
        }
        s->drafters |= 1u << known;
        p += n;
        if (!*p)
            return 0;
    }
}

static int parse_budget(struct draft_settings *s, const char *text, size_t n_prompt, struct err *e)
{
    if (strcmp(text, "prompt"))
        return parse_size(&s->kv_budget, "--kv-budget", text, 2, 1000000000, e);
    s->kv_budget = MAX(n_prompt, s->kv_sinks + 1);
    return 0;
}

unsigned draft_of_model(const char *dir)
{
    static char last[PATH_BYTES];
    static unsigned had;
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
    const struct preset *preset;
    draft_defaults(s);
    memset(files, 0, sizeof *files);
    if (find_preset(&preset, o, e))
        return -1;
    if (preset) {
        const struct preset_drafting *d = preset->drafting;
        s->drafters = d->drafters;
        s->draft_passes = d->passes;
        s->kv_policy = d->policy, s->kv_sinks = d->sinks, s->kv_budget = d->budget;
        if (parse_tree(s, d->tree, e))
            return -1;
    }
    if (strcmp(o->drafter, "none") == 0) {
        s->drafters = 0;
    } else if (strcmp(o->drafter, "auto")) {
        if (parse_drafters(s, files, o->drafter, e))
            return -1;
    } else if (!preset) {
        s->drafters |= weights_of_auto(draft_of_model(model_dir), o->tree != NULL);
    }
    if (options_given(o, "kv-sinks")) s->kv_sinks = o->kv_sinks;
    if (options_given(o, "ngram-k")) s->ngram_k = o->ngram_k;
    if (options_given(o, "ngram-lead")) s->ngram_lead = (enum ngram_lead)o->ngram_lead;
    if (options_given(o, "ngram-delay")) s->ngram_delay = (long)o->ngram_delay;
    if (options_given(o, "draft-passes")) s->draft_passes = (long)o->draft_passes;
    static const enum kv_policy policy[] = { KV_FULL, KV_STATIC, KV_DYNAMIC, KV_WINDOW, KV_MEAN };
    if (options_given(o, "kv-policy")) s->kv_policy = policy[o->kv_policy];
    if (options_given(o, "draft-weights")) s->weights = (enum draft_weights)o->draft_weights;
    s->verifier = (enum verifier)o->verifier;
    s->kv_fixed = preset || o->kv_budget || o->tree;
    if ((o->tree && parse_tree(s, o->tree, e)) ||
        (o->kv_budget && parse_budget(s, o->kv_budget, n_prompt, e)))
        return -1;
    if (!s->drafters)
        return verify_published_check(s, e);
    if (s->draft_passes == 0)
        s->drafters &= ~(1u << DRAFTER_PARTIAL);
    return draft_check(s, e);
}
