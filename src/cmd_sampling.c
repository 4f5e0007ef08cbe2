#include "src/cmd_sampling.h"
#include "src/cmd_draft.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const double BIAS_MAX = 100;  /* as the API that the field comes from */

/* One bias; the last one given for a token counts. */
static int add_bias(struct sampling *s, const char *id, double bias, size_t vocab, struct err *e)
{
    size_t n, i = 0;
    if (parse_size(&n, "--logit-bias: token id", id, 0, vocab - 1, e))
        return -1;
    if (!(bias == -INFINITY || fabs(bias) <= BIAS_MAX))
        return err_set(e, ERR_INPUT, "--logit-bias: %g for token %zu is not a number from -%g to %g, or -inf", bias, n, BIAS_MAX, BIAS_MAX);
    while (i < s->n_bias && s->bias[i].id != (int32_t)n)
        i++;
    if (i == s->n_bias) {
        void *p = realloc(s->bias, (s->n_bias + 1) * sizeof *s->bias);
        if (!p)
            return err_set(e, ERR_FAILED, "out of memory");
        s->bias = p;
        s->n_bias++;
    }
    s->bias[i].id = (int32_t)n;
    s->bias[i].bias = (float)bias;
    return 0;
}

static int bias_object(struct sampling *s, const char *text, size_t vocab, struct err *e)
{
    json_error_t je;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &je), *v;
    const char *key;
    int r = 0;
    if (!json_is_object(root)) {
        json_decref(root);
        return err_set(e, ERR_INPUT, "--logit-bias: '%.200s' is not a JSON object {\"ID\": BIAS, ..}: %s", text, root ? "other JSON" : je.text);
    }
    json_object_foreach(root, key, v) {
        if (!json_is_number(v))
            r = err_set(e, ERR_INPUT, "--logit-bias: the value of \"%s\" is not a number", key);
        else
            r = add_bias(s, key, json_number_value(v), vocab, e);
        if (r)
            break;
    }
    json_decref(root);
    return r;
}

static int parse_bias(struct sampling *s, const char *text, size_t vocab, struct err *e)
{
    char id[32];
    const char *colon = strchr(text, ':');
    double bias = -INFINITY;
    if (text[strspn(text, " \t\n")] == '{')
        return bias_object(s, text, vocab, e);
    if (!colon || colon - text >= (ptrdiff_t)sizeof id)
        return err_set(e, ERR_INPUT, "--logit-bias: '%s' is neither ID:BIAS nor a JSON object", text);
    memcpy(id, text, (size_t)(colon - text));
    id[colon - text] = 0;
    if (strcmp(colon + 1, "-inf") && parse_real(&bias, "--logit-bias", colon + 1, -BIAS_MAX, BIAS_MAX, e))
        return -1;
    return add_bias(s, id, bias, vocab, e);
}

static void take_own_settings(struct sampling *s, const struct config *c)
{
    if (!isnan(c->temperature))
        s->temperature = c->temperature;
    if (c->do_sample_known && !c->do_sample)
        s->temperature = 0;
    if (c->top_k > 0)
        s->top_k = c->top_k;
    if (!isnan(c->top_p))
        s->top_p = c->top_p;
    if (!isnan(c->min_p))
        s->min_p = c->min_p;
    if (!isnan(c->eta))
        s->eta = c->eta;
    if (!isnan(c->repetition_penalty))
        s->penalty = c->repetition_penalty;
}

void sampling_own_settings(char *text, size_t size, const struct options *o, const struct config *c)
{
    const struct { const char *name; double v; } own[] = {
        { "temperature", c->temperature }, { "top-k", c->top_k > 0 ? (double)c->top_k : NAN }, { "top-p", c->top_p },
        { "min-p", c->min_p }, { "eta", c->eta }, { "penalty", c->repetition_penalty },
    };
    size_t n = 0;
    text[0] = 0;
    if (!c->has_generation_config || o->generation_config == GENERATION_NONE)
        return;
    if (c->do_sample_known && !c->do_sample)
        n += (size_t)snprintf(text, size, "do_sample false, so temperature 0");
    for (size_t i = 0; i < sizeof own / sizeof *own && n < size; i++)
        if (!isnan(own[i].v) && !(i == 0 && n))
            n += (size_t)snprintf(text + n, size - n, "%s%s %g", n ? ", " : "", own[i].name, own[i].v);
}

int sampling_from_options(struct sampling *s, const struct options *o, const struct config *c, struct err *e)
{
    sampling_defaults(s);
    if (c->has_generation_config && o->generation_config == GENERATION_AUTO) {
        if (*c->generation_unknown)
            return err_set(e, ERR_INPUT, "generation_config.json: %s is a setting that is not implemented; --generation-config none "
                           "takes the neutral settings instead", c->generation_unknown);
        take_own_settings(s, c);
    }
    if (preset_sampling(s, o, e))
        return -1;
    if (options_given(o, "temperature")) s->temperature = o->temperature;
    if (options_given(o, "top-k")) s->top_k = o->top_k;
    if (options_given(o, "top-p")) s->top_p = o->top_p;
    if (options_given(o, "min-p")) s->min_p = o->min_p;
    if (options_given(o, "eta")) s->eta = o->eta;
    if (options_given(o, "penalty")) s->penalty = o->penalty;
    if (!o->preset || options_given(o, "min-keep")) s->min_keep = o->min_keep;
    if (!o->preset || options_given(o, "penalty-window")) s->penalty_window = o->penalty_window;
    s->presence = o->presence;
    s->frequency = o->frequency;
    s->min_tokens = o->min_tokens;
    s->ignore_eos = o->ignore_eos;
    s->eos = c->eos;
    s->n_eos = c->n_eos;
    s->seed = o->seed;
    if (!options_given(o, "seed") && getrandom(&s->seed, sizeof s->seed, 0) != sizeof s->seed)
        return err_set(e, ERR_FAILED, "cannot draw a seed: %s; --seed gives one", strerror(errno));
    for (size_t i = 0; i < o->logit_bias.n; i++)
        if (parse_bias(s, o->logit_bias.v[i], c->vocab, e))
            return -1;
    return sampling_check(s, c->vocab, e);
}

void sampling_free(struct sampling *s)
{
    free(s->bias);
    s->bias = NULL;
    s->n_bias = 0;
}
