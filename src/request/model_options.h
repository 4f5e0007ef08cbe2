/* Model, number formats and prompt from the command line. */
#pragma once
#include "src/decode/engine.h"
#include "src/request/options.h"
#include "src/text/chat.h"

/* The folder that --model names. ERR_INPUT when --model is missing or names no folder. */
int model_dir(char dir[PATH_BYTES], const struct options *o, struct err *e);
/* engine_open with the model, --compute, --kv-dtype, --context-scaling, --threads and --device. */
int options_open_engine(struct engine *g, const struct options *o, struct err *e);

enum dtype option_compute(int compute);                /* COMPUTE_* of --compute */
enum dtype option_kv(int kv_dtype);                    /* KV_DTYPE_* of --kv-dtype; DT_OTHER: auto */

/* A text of n bytes, to become the prompt of the model in `dir`. */
struct prompt_text {
    const char *dir; const struct tokenizer *tokenizer; const char *text; size_t n;
    const struct chat_message *messages; size_t n_messages;  /* --messages: they take the place of the text */
};

/* Encodes a prompt; free(*ids). With --chat the text is a user's message, and it goes through the chat
 * template of the model, whose chat_name goes to `template`; --messages go through it, too. Otherwise the text
 * is encoded as it stands, and `template` is "". */
int prompt_encode(int32_t **ids, size_t *n_ids, char template[CHAT_NAME_BYTES], const struct options *o,
                  const struct prompt_text *p, struct err *e);
