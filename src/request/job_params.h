/* The parameters of a job: one JSON object that the store keeps with the job. The object holds every
 * setting that decides the text, except prompt, seed, sample number, length and model, which have their
 * own columns in the store. It also holds the settings of drafting, which decide only the speed (except
 * with --verifier paper).
 *
 *     submit:  job_describe(&text, ...)     options -> stored text
 *              job_parse(&p, text)          the same checks that a worker makes
 *     work:    job_parse(&p, text)
 *              job_bind(&p, ...)            with the job's model; then p.sampling and p.draft are ready
 *
 * Members are the rows of the table of options with STORED, under `member` or the option's name with _ for -,
 * and the rows of KEPT_FIELDS (runs/store/job_fields.h). Every member is written, so that a later change of a
 * default changes no stored job; a parameter that longhand got later (WHEN_SET) is written only where it is
 * set. job_parse refuses a member that this version does not know, and a job that lacks one.
 * The text is canonical: equal parameters are equal bytes. Members are sorted by name, and a real has the
 * fewest digits that give it back exactly. These have a form of their own:
 *
 *     "dry_sequence_breakers"  array of texts; null: the default breakers
 *     "logit_bias"             {"ID": number or "-inf"}
 *     "order"                  ["bias", ..]: the steps of the sampling chain; another order is refused
 *     "stop_token_ids" [..]    of --stop-id, and control tokens that "stop" spells
 *     "eos_token_ids" [..]     EOS ids of the tokenizer that the configuration lacks
 *     "chat"                   null, or the form of the prompt: {"template", "system", "thinking", "date",
 *                               "effort" and "kwargs" (only if given)}; template: a name or a SHA-256
 *     "kv_dtype"               a job without it was stored by an older version and uses bf16
 *     "tokenizer"              SHA-256 of the tokenizer.json that made the prompt's ids; older jobs have none
 *     "drafting"               {"drafter": "auto", "none" or a list, "NAME_file" of drafters, ..} */
#pragma once
#include "src/decode/draft.h"
#include "src/decode/engine.h"
#include "src/request/options.h"
#include "src/sample/sample.h"
#include "src/text/tokenizer.h"

struct chat_facts;
struct member;
enum { MEMBERS_MAX = 64 };
/* The members (kinds.h) of the object, or of "drafting" within it, in the order of their names. */
const struct member *job_members(bool drafting, size_t *n);
/* Writes the parameters of a command line for model g into *text; free(*text). p begins as those of the
 * command line with the sampling of sampling_from_options, and gets those of drafting and of the model. */
int job_describe(char **text, struct job_params *p, const struct options *o, const struct engine *g,
                 size_t n_prompt, const struct chat_facts *chat, struct err *e);
/* Writes the parameters `old`, which job_parse took, with the sampling options, --stop, --stop-id,
 * --ban-phrase, --on-loop and --drafter (auto or none) of a command line in the places of theirs;
 * free(*text). --stop or --stop-id alone replaces the stop ids of both. *text is NULL if the command line
 * has none of them. The result is not checked yet. */
int  job_change(char **text, const char *old, const struct options *o, const struct tokenizer *t,
                size_t vocab, struct err *e);
/* The ids that end a text with these parameters. c: eos and n_eos of the model. */
void job_ends(struct text_ends *x, const struct job_params *p, const struct config *c);
/* Reads a stored text. Fails with an ERR_INPUT that names the member. */
int  job_parse(struct job_params *p, const char *text, struct err *e);
void job_close(struct job_params *p);
/* With `auto`: adds the trained drafters that the model's folder has, and removes those that the model cannot
 * have. */
void job_bind_drafters(struct job_params *p, const struct config *c, const char *model_dir);
/* Adds what depends on the model (EOS ids, breakers as tokens, job_bind_drafters) and on the job (seed,
 * sample), and checks the sampling settings against the vocabulary. text_max: the longest text in tokens,
 * prompt included. */
struct job_binding { uint64_t seed; uint32_t sample; size_t text_max; };
int job_bind(struct job_params *p, const struct config *c, const struct tokenizer *t, const char *model_dir,
             const struct job_binding *b, struct err *e);

/* Checks that prompt and tokens fit the model's context. The ERR_INPUT names both and the options that
 * help. */
int job_check_length(const struct config *c, size_t n_prompt, size_t tokens, bool allow_beyond,
                     struct err *e);
/* Adds to the plan what the job needs of its own: KV cache less n_shared blocks, decoder, drafters, DRY. */
void job_plan(struct memory_plan *plan, const struct job_params *p, const struct engine *g, size_t n_max,
              size_t n_shared);
/* Adds what it shares with other jobs of the model: the weights (always the first item) and the buffers of
 * passes of at least `rows` rows; the trained drafters that are not in memory. */
void job_plan_shared(struct memory_plan *plan, const struct job_params *p, const struct engine *g,
                     size_t n_max, size_t rows);
void job_plan_trained(struct memory_plan *plan, const struct job_params *p, const struct engine *g);
/* Checks that the device supports the job's drafting, and that the decoder fits into memory together with
 * the weights. held: bytes of the weights that are in memory already. */
int job_check_memory(const struct job_params *p, const struct engine *g, size_t n_max, size_t held,
                     struct err *e);
/* The longest text from n_min to n_max tokens, prompt included, that job_has_room; n_min if none has. */
size_t job_length_in_memory(const struct job_params *p, const struct engine *g, size_t n_min, size_t n_max,
                            size_t held);
/* The same check of a job that may wait for others to end: this process holds `held` bytes of the host's
 * memory for the model and its jobs. max_memory: --max-memory; 0: what the machine has. */
int job_check_beside(const struct job_params *p, const struct engine *g, size_t n_max, size_t held,
                     size_t max_memory, struct err *e);
/* Whether the model and the decoder fit into memory, with an eighth of the available memory to spare, at
 * least 32 MiB. held: as job_check_memory. */
bool job_has_room(const struct job_params *p, const struct engine *g, size_t n_max, size_t n_shared,
                  size_t held);

/* Whether jobs with these stored parameters write the same text, given the same prompt, seed, sample, length
 * and model: all parameters that decide the text are equal. Parameters of drafting do not count. */
bool job_same_text(const char *a, const char *b);
/* Calls `found` with the name of each parameter of `now` that comes from an option of the command line,
 * decides the text, and differs in `stored`. The names are static. */
typedef void job_difference(void *ctx, const char *name);
int job_differences(const char *stored, const char *now, const struct options *o, job_difference *found,
                    void *ctx, struct err *e);
