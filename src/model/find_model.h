/* Finds a model: a path, or the name of a model in a cache of Hugging Face's tools, llama.cpp, LM Studio or
 * Ollama (model_caches.h). */
#pragma once
#include "src/base/base.h"

/* Writes the Hugging Face directory or the GGUF file that `name` means to `dir`. A directory that holds
 * exactly one GGUF model, in one file or split, means this model. Messages call the name `what` ("--model").
 * ERR_INPUT when nothing has this name, or when several models have it; longhand never downloads a model. */
int find_model_dir(char dir[PATH_BYTES], const char *name, const char *what, struct err *e);

/* The same; name NULL: models/demo below the working directory, or below a folder that holds the program. */
int find_model_or_demo(char dir[PATH_BYTES], const char *name, const char *what, struct err *e);
