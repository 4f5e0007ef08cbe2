/* The parameters of a job as one JSON object, which the store keeps: everything that decides its text except prompt, seed, sample number,
 * length and model, which have columns of their own; and how tokens are found, which does not decide it (except with --verifier paper).
 *
 *     submit   job_describe(&json, ...)  from the command line
 *              job_parse(&p, text)       the checks
 *     work     job_parse(&p, text)  job_bind(&p, job's columns, configuration, tokenizer)  p.sampling, p.draft
 *
 * Members are named after the flags, with _ for -; all are there, so that a later default changes no stored job. A member that this version
 * does not know is refused. Canonical: the same parameters are the same bytes (sorted keys, the shortest decimal that gives each number back).
 *
 *     "temperature" "top_k" "top_p" "min_p" "eta" "min_keep" "penalty" "penalty_window" "presence_penalty" "frequency_penalty"
 *     "dry_multiplier" "dry_base" "dry_allowed_length" "dry_penalty_last_n" "dry_sequence_breakers" (texts, null: the default ones)
 *     "logit_bias" {"ID": number or "-inf"} "order" ["bias", ..] "min_tokens" "ignore_eos" "stop" [..]
 *     "on_loop" "chat" (null, or {"template", "system", "thinking", "date"}: how the prompt became tokens, for the reader)
 *     "compute" "kv_dtype" (missing: bf16) "context_scaling" (null: the model's own) "allow_beyond_context"
 *     "drafting" {"drafter" ("auto", "none", a list) "heads_file" "tree" "ngram_k" "ngram_lead" "ngram_delay" "draft_passes"
 *                 "kv_policy" "kv_sinks" "kv_budget" "kv_fixed" "draft_weights" (missing: int8) "rows_max" "verifier"} */
#pragma once
#include <jansson.h>
#include "src/decode/draft.h"
#include "src/decode/engine.h"
#include "src/request/options.h"
#include "src/sample/sample.h"
#include "src/text/loop.h"
#include "src/text/tokenizer.h"

struct job_params {                  /* {0} is closed */
    json_t *json;                    /* owns the strings */
    struct sampling sampling;        /* without EOS ids, breakers and seed before job_bind */
    struct text_list stop, breakers; /* breakers.n == 0: the default ones, unless no_breakers */
    enum on_loop on_loop;
    bool chat;                       /* the text begins behind an opening of the assistant's turn */
    enum dtype compute, kv;          /* kv DT_OTHER: auto */
    const char *scaling;             /* or NULL */
    bool allow_beyond_context;
    struct draft_settings draft;
    bool drafter_auto;
    const char *heads_file;          /* or NULL: next to the model */
};

/* The object of a command line for this model; `sampling` is what sampling_from_options made of it. json_decref it. */
int job_describe(json_t **out, const struct options *o, const struct sampling *sampling,
                 const struct engine *g, size_t n_prompt, const char *chat_template, struct err *e);
/* Its text; free it. NULL without memory. */
char *job_text(const json_t *params);
/* From the stored text. Fails with ERR_INPUT naming the member. */
int  job_parse(struct job_params *p, const char *text, struct err *e);
void job_close(struct job_params *p);
/* What the model adds: EOS ids, breakers as tokens, heads of `auto`; seed and sample; the longest text (prompt included). Checks all against the vocabulary. */
int job_bind(struct job_params *p, const struct config *c, const struct tokenizer *t, const char *model_dir,
             uint64_t seed, uint32_t sample, size_t text_max, struct err *e);

/* Whether prompt and tokens fit the model's context: ERR_INPUT that names both and the options that help. */
int job_check_length(const struct config *c, size_t n_prompt, size_t tokens, bool allow_beyond,
                     struct err *e);
/* Whether the device has what the job drafts with, and the decoder, with the weights, fits into memory. `held`: bytes of weights that are there already. */
int job_check_memory(const struct job_params *p, const struct engine *g, size_t n_max, size_t held,
                     struct err *e);

/* Whether, with the weights in memory, it still fits beside so many more bytes, an eighth of what is available to spare, at least 32 MiB: for what it can do without. */
bool job_has_room(const struct job_params *p, const struct engine *g, size_t n_max, size_t bytes);

/* Token ids of text[0..n) as they are in the middle of a text; free(*ids). */
int job_encode_inside(const struct tokenizer *t, int32_t **ids, size_t *n_ids, const char *text, size_t n,
                      struct err *e);
