/* Finds the folder of a model: a path, or org/name in the local cache of Hugging Face's own tools. */
#pragma once
#include "src/base/base.h"

/* Writes the folder that `name` means to `dir`. Messages call the name `what` ("--model"). ERR_INPUT when
 * no such folder exists; longhand never downloads a model. */
int find_model_dir(char dir[PATH_BYTES], const char *name, const char *what, struct err *e);

/* The same; name NULL: models/demo below the working directory, or below a folder that holds the program. */
int find_model_or_demo(char dir[PATH_BYTES], const char *name, struct err *e);
