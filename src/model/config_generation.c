/* generation_config.json: its members, for the table of options, and settings that are not implemented. */
#include <stdio.h>
#include <string.h>

#include "src/model/config.h"
#include "src/model/config_keys.h"

/* Settings of generation_config.json that change the sampled token. */
static const struct foreign generation_keys[] = {
    { "epsilon_cutoff", ZERO }, { "top_h", NULL_ONLY }, { "num_beams", ONE },
    { "penalty_alpha", ZERO }, { "no_repeat_ngram_size", ZERO }, { "encoder_no_repeat_ngram_size", ZERO },
    { "encoder_repetition_penalty", ONE }, { "bad_words_ids", EMPTY }, { "force_words_ids", EMPTY },
    { "constraints", EMPTY }, { "sequence_bias", EMPTY }, { "suppress_tokens", EMPTY },
    { "begin_suppress_tokens", EMPTY }, { "forced_bos_token_id", NULL_ONLY },
    { "forced_eos_token_id", NULL_ONLY }, { "guidance_scale", ONE }, { "min_length", ZERO },
    { "min_new_tokens", ZERO }, { "exponential_decay_length_penalty", NULL_ONLY },
    { "watermarking_config", NULL_ONLY }, { "dola_layers", NULL_ONLY }, { "stop_strings", EMPTY },
};

int config_read_generation(struct config *c, const struct json *root, struct err *e)
{
    struct json key, v;
    int found;
    for (struct js_walk w = js_walk(root); js_next(&w, &key, &v);) {
        struct generation_member *m = &c->generation[c->n_generation];
        bool control;
        size_t n = (size_t)(v.end - v.s);
        if (js_length(&key, &control) >= sizeof m->key || js_kind(&v) == JS_NULL || js_kind(&v) == JS_ARRAY ||
            js_kind(&v) == JS_OBJECT)
            continue;
        m->key[js_unescape(&key, m->key)] = 0;
        if (js_get(root, m->key, &v, e) < 0)
            return -1;
        if (++c->n_generation == CONFIG_GENERATION_MAX)
            return js_bad(root, e, "allowed are fewer than %d settings", CONFIG_GENERATION_MAX);
        snprintf(m->value, sizeof m->value, "%.*s", (int)MIN(n, sizeof m->value - 1), v.s);
    }
    for (size_t i = 0; i < sizeof generation_keys / sizeof *generation_keys && !*c->generation_unknown; i++) {
        found = js_get(root, generation_keys[i].key, &v, e);
        if (found < 0)
            return -1;
        int n = (int)MIN(v.end - v.s, 40);
        if (found && !is_neutral(&v, generation_keys[i].neutral))
            snprintf(c->generation_unknown, sizeof c->generation_unknown, "%s %.*s", generation_keys[i].key,
                     n, v.s);
    }
    return 0;
}

const char *config_generation(const struct config *c, const char *key)
{
    for (size_t i = 0; i < c->n_generation; i++)
        if (strcmp(c->generation[i].key, key) == 0)
            return c->generation[i].value;
    return NULL;
}
