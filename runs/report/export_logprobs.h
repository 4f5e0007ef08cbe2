/* The log-probabilities of a job's tokens, for exports. */
#pragma once
#include "runs/store/store.h"
#include "src/base/json_write.h"
#include "src/request/job_params.h"

struct token_logprobs {                  /* {0} is closed: the job has none */
    int32_t *ids; size_t n;              /* all tokens of the job */
    struct logprob *v; size_t best;      /* [n][1 + best], as store_logprobs */
};
/* p: the parameters of the job's first tokens; without --logprobs *l is {0}. */
int  token_logprobs_read(struct token_logprobs *l, struct store *s, const struct job *j,
                         const struct job_params *p, struct err *e);
void token_logprobs_close(struct token_logprobs *l);

/* TOKENS: an array with an object for each token. CHAT: the same as `content` of an object, as in an answer
 * of /v1/chat/completions. COMPLETION: parallel arrays. A token that was given has null. Tokens are texts as
 * they continue a text; bytes that are no code point alone become U+FFFD, and `bytes` has them. -inf is
 * written as -9999, as vLLM does. {0} is written as null. */
enum logprobs_form { LOGPROBS_TOKENS, LOGPROBS_CHAT, LOGPROBS_COMPLETION };
int token_logprobs_put(struct json_writer *w, const char *key, const struct token_logprobs *l,
                       const struct tokenizer *t, enum logprobs_form form, struct err *e);
