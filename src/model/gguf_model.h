/* A GGUF file as a model: its configuration and its tensors under the names of Hugging Face. The
 * architectures are those of families/families.h. Others, and every key that changes the numbers and that
 * longhand does not know, are refused by name. The value heads of a hybrid keep the order of the file (struct
 * delta_config). A file split into parts (NAME-00001-of-00003.gguf) is given by its first part. */
#pragma once
#include "src/model/config.h"
#include "src/model/gguf.h"
#include "src/model/tensors.h"

enum { GGUF_PARTS_MAX = 1000 };

struct gguf_model {                      /* {0} is closed */
    struct tensors ts;                   /* the open files, and their tensors */
    size_t n; struct gguf *part;         /* the header of each file; metadata of the model are in part[0] */
    struct config config;
};

/* Opens all parts, checks configuration and names, and reads no weights. */
int gguf_model_open(struct gguf_model *m, const char *path, struct err *e);
/* Opens only the file that holds the metadata: one that is no part of a split file, or the first part. */
int gguf_open_first(struct gguf_model *m, const char *path, struct err *e);
void gguf_model_close(struct gguf_model *m);
/* Closes m except for its tensors, which the caller owns then. */
struct tensors gguf_take_tensors(struct gguf_model *m);
/* Writes the metadata that gguf_config reads back as c. ERR_INPUT: GGUF has no key for a setting of c.
 * drafts: the file has a draft layer after the others. divisor receives rope_freqs.weight [head_dim/2];
 * *has_divisor: whether c needs it. */
struct gguf_out;
int gguf_put_config(struct gguf_out *o, const struct config *c, bool drafts, float *divisor,
                    bool *has_divisor, struct err *e);
/* The number of files that the name of the first one tells: 3 for NAME-00001-of-00003.gguf, else 1; and their
 * names. */
size_t gguf_parts(const char *first);
char *gguf_part_path(char *path, size_t size, const char *first, size_t part, size_t parts);

/* The configuration that the metadata of g describe; biases, tying and rope_freqs are those of tensors
 * (gguf_model_open). */
int gguf_config(struct config *c, const struct gguf *g, struct err *e);

/* The small files that a Hugging Face directory of the same model has: config.json, generation_config.json
 * (only where longhand wrote the file), tokenizer.json, tokenizer_config.json (bos_token, eos_token,
 * chat_template). *data is NULL for others; the caller frees it. */
int gguf_small_file(char **data, size_t *n, const struct gguf *g, const char *name, struct err *e);
/* What a user should know of the ids of a GGUF file, in one line; "": nothing. Ids that are no token's are
 * ignored, and tokens end a text because of their names, as in llama.cpp. */
void gguf_notice(char *out, size_t size, const struct gguf *g, const struct config *c);
/* Writes tokenizer.json (gguf_tokenizer.c, for gguf_small_file). 1 or -1. */
struct json_writer;
int gguf_tokenizer(struct json_writer *w, const struct gguf *g, struct err *e);
