/* The page of a training: loss and accuracy over the steps, from the curves that the trainer writes. */
#pragma once
#include "src/base/base.h"

/* Writes the page of the curves in the CSV file `curves` to `path`. Without held-out text it shows the
 * training's own windows. ERR_INPUT: the file is not what the trainer writes. */
int train_page_write(const char *path, const char *curves, struct err *e);
