/* The files of a model, in any format. A model lies in a directory as Hugging Face publishes it, or in a GGUF
 * file, or in several: then the path is that of the first. A path that is no directory means a GGUF file. */
#pragma once
#include "src/model/config.h"
#include "src/model/tensors.h"

bool model_is_file(const char *place);
/* Reads the configuration of the model at `place`; errors as config_parse. A drafter of Gemma 4, which is no
 * model by itself, is refused, but not by config_read_any. */
int config_read(struct config *c, const char *place, struct err *e);
int config_read_any(struct config *c, const char *place, struct err *e);
/* Opens its tensors. ERR_INPUT names the file, the tensor and the value. */
int tensors_open(struct tensors *ts, const char *place, struct err *e);
/* Whether a model has a tensor of that name. */
bool tensors_have(const char *place, const char *name);
/* And encodes them as --weights says. tied: the model's. */
int tensors_open_as(struct tensors *ts, const char *place, enum weights w, bool tied, struct err *e);
/* Reads a small file of a model by the name that Hugging Face gives it. *data is NULL if there is none. A
 * GGUF model has config.json, generation_config.json, tokenizer.json and tokenizer_config.json, made from its
 * metadata. `path` receives what messages call the file. */
int model_file_read(char **data, size_t *n, char *path, size_t size, const char *place, const char *name,
                    size_t max, struct err *e);
/* The absolute path of a model: a link to a directory is resolved, a link to a file keeps its name, because
 * the parts of a split file have names like it. 0, or -1 and errno. */
int model_absolute_path(char path[PATH_BYTES], const char *place);
