/* A request for a text, checked and ready to be stored. `submit`, `run` and every line of a batch make
 * one. */
#pragma once
#include "runs/store/store.h"
#include "src/request/job_params.h"
#include "src/request/chat_options.h"

struct request {                     /* {0} is closed */
    const struct options *o;
    struct job_spec job;             /* owns prompt, prompt_ids, parameters (job_params.h) and chat
                                      * (chat_options.h); `wanted`: see request_describe */
    size_t n_carried, n_given;       /* of a chapter: carried tokens at most; given ones of the text */
    struct chat_facts chat;
    bool less;                       /* fewer than the context has room for, because of the memory */
    struct sampling sampling;        /* with the seed, drawn or given */
};

/* What a new job continues: job, carry, append; and how long that one can become. */
struct request_after { struct chapter_spec chapter; struct job_lengths before; };

/* Opens g (configuration, tokenizer and headers; no weights) and checks everything that needs no weights.
 * after: NULL, or what the job continues. */
int  request_open(struct request *r, const struct options *o, struct engine *g,
                  const struct request_after *after, struct err *e);
void request_close(struct request *r);

/* The prompt of a chat becomes the request's; what the user wrote is the prompt that is stored. */
void request_take_chat(struct request *r, struct chat_prompt *p);
/* Makes the ids of the prompt's text. specials: with BOS. */
int  request_encode(struct request *r, const struct tokenizer *t, bool specials, struct err *e);
/* The two steps of request_open that follow prompt and ids. request_describe checks the length and writes
 * the parameters. Without --tokens the text may grow to the end of the context. request_check refuses what a
 * worker would refuse; it depends only on parameters and length, and with DRY it walks over the vocabulary.
 * Without --tokens it takes r->job.wanted back to what memory holds. */
int  request_describe(struct request *r, const struct engine *g, struct err *e);
int  request_check(struct request *r, const struct engine *g, struct err *e);
/* Makes a request a chapter, before request_describe: the most tokens that it can get. */
int  request_continues(struct request *r, const struct request_after *after, bool chat,
                       const struct tokenizer *t, struct err *e);
/* The job of sample number i; its texts stay those of the request. */
struct job_spec request_job(const struct request *r, const struct engine *g, size_t i);
/* Stores --samples jobs in one transaction; ids [o->samples]. */
int request_submit(const struct request *r, const struct engine *g, struct store *s, bool paused,
                   int64_t *ids, struct err *e);
/* Says that a chat model in a GGUF file, which names no sampling settings, would be sampled at temperature 1
 * without filters. Whether it said so. */
bool request_notice_unfiltered(const struct request *r, const struct engine *g);
/* Checks the texts of --stop, with a notice of a backslash without --escape, and those of --ban-phrase. */
int  request_check_options_texts(const struct options *o, struct err *e);
/* The text of --append or --append-file; NULL: there is none. free(*text). */
int  append_from_options(const struct options *o, char **text, size_t *n, struct err *e);
