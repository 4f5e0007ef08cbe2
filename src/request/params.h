/* The parameters of a job, as the command line, a line of a batch and a stored job give them. Those that
 * users set have a row in the table of options (options_table.c), which says where they lie here.
 * job_params.h has the functions. */
#pragma once
#include "runs/store/job_fields.h"
#include "src/decode/draft.h"
#include "src/model/config.h"
#include "src/model/tensors.h"
#include "src/sample/sampling.h"
#include "src/text/loop.h"

struct text_list { const char **v; size_t n; };
enum { STOP_IDS_MAX = 64, TEXT_ENDS_MAX = CONFIG_EOS_MAX + 2 * STOP_IDS_MAX };
struct id_list { int32_t v[STOP_IDS_MAX]; size_t n; };

/* The ids that end a text before them: n_eos end-of-text ids, then n_stop ids of --stop-id and --stop. */
struct text_ends { int32_t id[TEXT_ENDS_MAX]; size_t n_eos, n_stop; };

/* Values of choices: the index of the word in the row's argument "a|b|c[:N]", and above it the number N, 0
 * where none is given. */
enum { CHOICE_BITS = 8, CHOICE_NUMBER_MAX = 1000 };
enum { COMPUTE_BF16, COMPUTE_F32 };
enum { KV_DTYPE_AUTO, KV_DTYPE_INT16, KV_DTYPE_BF16, KV_DTYPE_INT8, KV_DTYPE_INT4 };

struct job_params {                  /* {0} is closed */
    char *strings;                   /* of a stored job: owns every text below */
    struct sampling sampling;        /* job_bind adds EOS ids, breakers and seed */
    struct text_list stop, breakers; /* breakers.n == 0: the default breakers */
    struct text_list banned;         /* phrases (src/text/banned.h) */
    struct id_list stop_ids;         /* of --stop-id, and the control tokens that --stop spells */
    struct id_list eos_ids;          /* EOS of the tokenizer that the configuration does not name */
    struct text_ends ends;           /* of all lists; job_bind */
    int on_loop;                     /* enum on_loop; above it the retakes of a series, 0: RETAKES */
    long logprobs;                   /* keep those of each token, and of so many best ones; -1: none */
    bool chat;                       /* the text follows the opening of the assistant's turn */
    int compute, kv_dtype;           /* COMPUTE_*, KV_DTYPE_* */
    enum weights weights;
    const char *tokenizer;           /* SHA-256 of the tokenizer.json; NULL: not known */
    const char *thinking_start, *thinking_end;   /* marks of a thought; NULL: none */
    const char *scaling;             /* --context-scaling; NULL: the model's own */
    bool allow_beyond_context;
    bool alone;                      /* the worker writes the job alone, so that its speed can be compared */
    struct draft_settings draft;     /* kv_budget 0: the length of the prompt, until a prompt is known */
    const char *drafter;             /* --drafter; NULL in a stored job */
    bool drafter_auto;
    const char *kept[N_KEPT + 1];    /* of KEPT_FIELDS, in their order; NULL: the job has none */
    const char *file[N_DRAFTERS];     /* of trained drafters; NULL: the model's own */
};

static inline enum on_loop params_on_loop(const struct job_params *p)
{
    return (enum on_loop)(p->on_loop & ((1 << CHOICE_BITS) - 1));
}
/* The option that lets the job take its text back (src/text/retake.h); NULL: none. */
static inline const char *params_retake_option(const struct job_params *p)
{
    return params_on_loop(p) == ON_LOOP_RETAKE ? "--on-loop retake" : p->banned.n ? "--ban-phrase" : NULL;
}
