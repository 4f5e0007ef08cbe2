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
 * Medusa: a tree of heads on the verified hidden state. */
#define TOKENSWIFT "heads,partial,ngram", "tree=1,3,3,3 draft-passes=1 min-keep=20"
#define TABLE_11 TOKENSWIFT " temperature=1 top-k=0 eta=0 penalty-window=1024 "
static const struct preset { const char *name, *drafter, *options; } presets[] = {
    { "tokenswift", TOKENSWIFT },
    { "magicdec", "partial", "tree=1 draft-passes=4 kv-policy=window kv-sinks=1 kv-budget=257" },
    { "medusa", "heads", "tree=5,3,2" },
    { "table11-llama3.1-8b", TABLE_11 "top-p=1 min-p=0.1 penalty=1.2" },
    { "table11-yarn-llama2-7b-128k", TABLE_11 "top-p=0.9 min-p=0 penalty=1.15" },
    { "table11-qwen2.5-1.5b", TABLE_11 "top-p=0.9 min-p=0 penalty=1.15" },
    { "table11-qwen2.5-7b", TABLE_11 "top-p=1 min-p=0.05 penalty=1.15" },
    { "table11-qwen2.5-14b", TABLE_11 "top-p=1 min-p=0.05 penalty=1.13" },
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

const char *preset_name(size_t i) { return i < N_PRESETS ? presets[i].name : NULL; }

int preset_apply(struct options *o, struct err *e)
{
    const struct preset *found = NULL;
    char list[256] = "", name[32], spelled[40], value[64];
    for (size_t i = 0; o->preset && i < N_PRESETS; i++) {
        size_t n = strlen(list);
        if (strcmp(o->preset, presets[i].name) == 0)
            found = &presets[i];
        snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", presets[i].name);
    }
    if (o->preset && !found)
        return err_set(e, ERR_INPUT, "--preset: '%s' is not one of %s", o->preset, list);
    if (found && strcmp(o->job.drafter, "auto") == 0)
        o->job.drafter = found->drafter;
    for (const char *p = found ? found->options : ""; sscanf(p, "%31[^=]=%63s", name, value) == 2;) {
        snprintf(spelled, sizeof spelled, "--%s", name);
        if (!options_given(o, name) && option_set(o, option_find(spelled, VERB_RUN), spelled, value, e))
            return -1;
        p += strlen(name) + 1 + strlen(value);
        p += *p == ' ';
    }
    return 0;
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
    struct options x = *o;
    memset(files, 0, sizeof *files);
    if (preset_apply(&x, e))
        return -1;
    *s = x.job.draft;
    s->kv_fixed = o->preset || options_given(o, "kv-budget") || options_given(o, "tree");
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
    if (s->drafters == 1u << DRAFTER_PARTIAL && s->n_width > 1 && !options_given(&x, "draft-passes") &&
        s->draft_passes < (long)s->n_width)
        request_notice(o, "--tree has %zu depths, and one draft pass of partial fills one depth; "
                       "--draft-passes %zu fills all", s->n_width, s->n_width);
    return draft_check(s, e);
}
