/* Sampling settings from the command line, a preset and the model's generation_config.json, and the
 * breakers of DRY as tokens. Start at sampling_from_options. */
#include "src/request/sampling_options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "src/base/input.h"
#include "src/base/json.h"
#include "src/request/draft_options.h"
#include "src/request/options_impl.h"

/* ---- --logit-bias ---- */

static const double BIAS_MAX = 100;  /* the limit of OpenAI's API */

/* The biases that are read. place: of each token, its bias's number from 1 on; 0: none. */
struct biases { struct sampling *s; uint32_t *place; size_t vocab; };

/* A second bias for a token replaces the first. */
static int add_bias(struct biases *b, const char *id, double bias, struct err *e)
{
    struct sampling *s = b->s;
    size_t n;
    if (parse_size(&n, "--logit-bias: token id", id, 0, b->vocab - 1, e))
        return -1;
    if (!(bias == -INFINITY || fabs(bias) <= BIAS_MAX))
        return err_set(e, ERR_INPUT, "--logit-bias: %g for token %zu is not a number from -%g to %g, or -inf",
                       bias, n, BIAS_MAX, BIAS_MAX);
    if (!array_grow(&s->bias, s->n_bias, sizeof *s->bias))
        return err_set(e, ERR_FAILED, "out of memory");
    if (!b->place[n])
        b->place[n] = (uint32_t)++s->n_bias;
    s->bias[b->place[n] - 1].id = (int32_t)n;
    s->bias[b->place[n] - 1].bias = bias;
    return 0;
}

static int add_biases(struct biases *b, const char *text, struct err *e)
{
    struct json root, key, v;
    struct err why = { .msg = "other JSON" };
    const size_t before = b->s->n_bias;
    size_t n = 0;
    if (js_check(&root, "JSON", text, strlen(text), &why) || js_kind(&root) != JS_OBJECT)
        return err_set(e, ERR_INPUT, "--logit-bias: '%.200s' is not a JSON object {\"ID\": BIAS, ..}: %s",
                       text, why.msg);
    for (struct js_walk w = js_walk(&root); js_next(&w, &key, &v); n++) {
        double bias;
        char *id = js_strdup(&key);
        int rc = !id ? err_set(e, ERR_FAILED, "out of memory")
                 : !js_double(&v, &bias)
                     ? err_set(e, ERR_INPUT, "--logit-bias: the value of \"%s\" is not a number", id)
                     : add_bias(b, id, bias, e);
        free(id);
        if (rc)
            return -1;
    }
    if (before == 0 && b->s->n_bias < n)
        return err_set(e, ERR_INPUT,
                       "--logit-bias: '%.200s' is not a JSON object {\"ID\": BIAS, ..}: a token comes twice",
                       text);
    return 0;
}

static int parse_bias(struct biases *b, const char *text, struct err *e)
{
    char id[32];
    const char *colon = strchr(text, ':');
    double bias = -INFINITY;
    if (text[strspn(text, " \t\n")] == '{')
        return add_biases(b, text, e);
    if (!colon || colon - text >= (ptrdiff_t)sizeof id)
        return err_set(e, ERR_INPUT, "--logit-bias: '%s' is neither ID:BIAS nor a JSON object", text);
    snprintf(id, sizeof id, "%.*s", (int)(colon - text), text);
    if (strcmp(colon + 1, "-inf") && parse_real(&bias, "--logit-bias", colon + 1, -BIAS_MAX, BIAS_MAX, e))
        return -1;
    return add_bias(b, id, bias, e);
}

static const char not_sampled[] = "0";

/* The JSON that the model's own settings have for an option; not_sampled: the temperature of a model whose
 * do_sample is false. NULL: none, or the user or a preset gave the option. o: with the presets. */
static const char *models_own(const struct option *opt, const struct options *o, const struct config *c)
{
    const char *sample = config_generation(c, "do_sample");
    if (!opt->generation || o->given[opt - options_table])
        return NULL;
    if (opt->field == offsetof(struct options, job.sampling.temperature) && sample &&
        strcmp(sample, "false") == 0)
        return not_sampled;
    return config_generation(c, opt->generation);
}

static int apply_generation_config(struct options *o, const struct config *c, struct err *e)
{
    char name[64];
    const char *sample = config_generation(c, "do_sample");
    if (sample && strcmp(sample, "true") && strcmp(sample, "false"))
        return err_set(e, ERR_INPUT, "generation_config.json: do_sample: %s is neither true nor false",
                       sample);
    for (const struct option *opt = options_table; opt->name; opt++) {
        const char *own = models_own(opt, o, c);
        snprintf(name, sizeof name, "generation_config.json: %s", opt->generation ? opt->generation : "");
        if (own && option_set(o, opt, name, own, e))
            return -1;
        o->given[opt - options_table] |= own != NULL;
    }
    return 0;
}

void describe_generation_config(char *text, size_t size, const struct options *o, const struct config *c)
{
    struct options x = *o;
    struct err ignored;
    size_t n = 0;
    text[0] = 0;
    if (!c->has_generation_config || o->generation_config == GENERATION_NONE ||
        preset_apply(&x, false, &ignored))
        return;
    for (const struct option *opt = options_table; opt->name && n < size; opt++) {
        const char *own = models_own(opt, &x, c);
        if (own == not_sampled)
            n += (size_t)snprintf(text + n, size - n, "do_sample false, so temperature 0");
        else if (own)
            n += (size_t)snprintf(text + n, size - n, "%s%s %.15g", n ? ", " : "", opt->name, atof(own));
    }
}

void notice_story(const struct options *o, const struct config *c)
{
    char text[160];
    struct options x = *o;
    struct err ignored;
    const bool uses = o->generation_config == GENERATION_AUTO && (!c || c->has_generation_config);
    const bool own = uses && c && preset_apply(&x, false, &ignored) == 0 &&
                     models_own(option_named("temperature", VERB_RUN), &x, c);
    if (preset_story(text, sizeof text, o, !own))
        request_notice(o, "--preset story: %s%s", *text ? text : "nothing",
                       uses && !c && !options_given(o, "temperature") ? " if the model has none" : "");
}

/* ---- the breakers of DRY ---- */

enum { BREAKER_BYTES_MAX = 40 };

/* The bytes of a breaker that a user gives. */
static int read_breaker(char out[2 * BREAKER_BYTES_MAX + 1], size_t *n, const char *text, struct err *e)
{
    const size_t bytes = strlen(text);
    if (text_check_utf8("--dry-sequence-breaker", text, bytes, e))
        return -1;
    /* an escape of two bytes becomes one */
    if (bytes > 2 * BREAKER_BYTES_MAX || (*n = option_unescape(out, text)) > BREAKER_BYTES_MAX)
        return err_set(e, ERR_INPUT, "--dry-sequence-breaker: a text of %zu bytes, at most %d are allowed",
                       bytes, BREAKER_BYTES_MAX);
    if (!*n)
        return err_set(e, ERR_INPUT, "--dry-sequence-breaker: a text of 0 bytes; none means no breakers");
    return 0;
}

static int add_breaker(struct sampling *s, int32_t first, const int32_t *rest, size_t n, struct err *e)
{
    if (!array_grow(&s->dry_breakers, s->n_dry_breakers, sizeof *s->dry_breakers))
        return err_set(e, ERR_FAILED, "out of memory");
    struct dry_breaker *v = (struct dry_breaker *)s->dry_breakers + s->n_dry_breakers++;
    *v = (struct dry_breaker){ .n = 1 + (uint32_t)MIN(n, (size_t)DRY_BREAKER_MAX - 1), .ids = { first } };
    for (uint32_t i = 1; i < v->n; i++)
        v->ids[i] = rest[i - 1];
    return 0;
}

int encode_inside(const struct tokenizer *t, int32_t **ids, size_t *n_ids, const char *text, size_t n,
                  struct err *e)
{
    int32_t *line = NULL, *both = NULL;
    size_t n_line = 0, n_both = 0;
    char *after = malloc(n + 2);
    if (!after)
        return err_set(e, ERR_FAILED, "out of memory for %zu bytes of text", n);
    after[0] = '\n';
    memcpy(after + 1, text, n);
    int rc = tokenizer_encode(t, &line, &n_line, after, 1, false, e) ||
             tokenizer_encode(t, &both, &n_both, after, n + 1, false, e) ? -1 : 0;
    free(after);
    if (rc == 0 && n_line <= n_both && memcmp(line, both, n_line * sizeof *line) == 0) {
        memmove(both, both + n_line, (n_both - n_line) * sizeof *both);
        *ids = both;
        *n_ids = n_both - n_line;
    } else {                             /* a token spans the newline and the text */
        free(both);
        rc = rc ? rc : tokenizer_encode(t, ids, n_ids, text, n, false, e);
    }
    free(line);
    return rc;
}

/* Adds every breaker that begins with token `id`, whose text is word[0, n_word). */
static int breakers_of_token(struct sampling *s, const struct tokenizer *t, int32_t id, const char *word,
                             size_t n_word, const char *text, size_t n, struct err *e)
{
    if (memmem(word, n_word, text, n))
        return add_breaker(s, id, NULL, 0, e);
    /* the last k bytes of the token begin the breaker */
    for (size_t k = MIN(n - 1, n_word); k > 0; k--) {
        int32_t *rest = NULL;
        size_t n_rest = 0;
        if (memcmp(word + n_word - k, text, k) || ((unsigned char)text[k] & 0xC0) == 0x80)
            continue;
        int rc = encode_inside(t, &rest, &n_rest, text + k, n - k, e) ||
                 add_breaker(s, id, rest, n_rest, e) ? -1 : 0;
        free(rest);
        if (rc)
            return -1;
    }
    return 0;
}

static int by_first_token(const void *a, const void *b)
{
    const struct dry_breaker *x = a, *y = b;
    return (x->ids[0] > y->ids[0]) - (x->ids[0] < y->ids[0]);
}

int sampling_breakers(struct sampling *s, const struct text_list *given, const struct tokenizer *t,
                      struct err *e)
{
    static const char *defaults[] = { "\n", ":", "\"", "*" };
    const struct text_list list = given->n ? *given : (struct text_list){ defaults,
        sizeof defaults / sizeof *defaults };
    char text[2 * BREAKER_BYTES_MAX + 1], *word = malloc(2 * decode_stream_max(t));
    int r = word ? 0 : err_set(e, ERR_FAILED, "out of memory");
    free((void *)s->dry_breakers);
    s->dry_breakers = NULL;
    s->n_dry_breakers = 0;
    for (size_t i = 0; i < list.n && r == 0; i++) {
        size_t n = 0;
        if (!strcmp(list.v[i], "none"))
            continue;
        r = read_breaker(text, &n, list.v[i], e);
        for (size_t id = 0; id < tokenizer_size(t) && r == 0; id++) {
            struct decode_stream one;
            decode_stream_start(&one, t, false, false);
            size_t n_word = decode_stream_push(&one, (int32_t)id, word);
            n_word += decode_stream_flush(&one, word + n_word);
            r = breakers_of_token(s, t, (int32_t)id, word, n_word, text, n, e);
        }
    }
    free(word);
    if (s->n_dry_breakers)
        qsort((void *)s->dry_breakers, s->n_dry_breakers, sizeof *s->dry_breakers, by_first_token);
    return r;
}

int sampling_biases(struct sampling *s, const struct options *o, size_t vocab, struct err *e)
{
    struct biases b = { s, calloc(o->logit_bias.n ? vocab : 1, sizeof *b.place), vocab };
    int rc = b.place ? 0 : err_set(e, ERR_FAILED, "out of memory");
    for (size_t i = 0; i < o->logit_bias.n && rc == 0; i++)
        rc = parse_bias(&b, o->logit_bias.v[i], e);
    free(b.place);
    return rc;
}

int sampling_from_options(struct sampling *s, const struct options *o, const struct config *c,
                          const struct tokenizer *t, size_t text_max, struct err *e)
{
    struct options x = *o;
    memset(s, 0, sizeof *s);
    if (preset_apply(&x, false, e))
        return -1;
    if (c->has_generation_config && o->generation_config == GENERATION_AUTO) {
        if (*c->generation_unknown)
            return err_set(e, ERR_INPUT,
                           "generation_config.json: %s is a setting that is not implemented; "
                           "--generation-config none takes the neutral settings instead",
                           c->generation_unknown);
        if (apply_generation_config(&x, c, e))
            return -1;
    }
    if (preset_apply(&x, true, e))
        return -1;
    *s = x.job.sampling;
    s->text_max = text_max;
    /* the store keeps them before a tokenizer sees them */
    for (size_t i = 0; i < o->job.breakers.n; i++)
        if (text_check_utf8("--dry-sequence-breaker", o->job.breakers.v[i], strlen(o->job.breakers.v[i]), e))
            return -1;
    if (s->dry_multiplier != 0 && t && sampling_breakers(s, &o->job.breakers, t, e))
        return -1;
    s->eos = c->eos;
    s->n_eos = c->n_eos;
    s->seed = o->seed;
    if (!options_given(o, "seed") && getrandom(&s->seed, sizeof s->seed, 0) != sizeof s->seed)
        return err_set(e, ERR_FAILED, "cannot draw a seed: %s; --seed gives one", strerror(errno));
    return sampling_biases(s, o, c->vocab, e) || sampling_check(s, c->vocab, e) ? -1 : 0;
}

void sampling_free(struct sampling *s)
{
    free(s->bias);
    free((void *)s->dry_breakers);
    s->bias = NULL;
    s->dry_breakers = NULL;
    s->n_bias = s->n_dry_breakers = 0;
}
