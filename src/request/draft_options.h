/* Settings of drafting from the command line: --drafter, --preset, --tree and related options. */
#pragma once
#include "src/decode/draft.h"
#include "src/request/options.h"

/* The names of the presets; NULL after the last. */
const char *preset_name(size_t i);
/* Applies the sampling settings of --preset: temperature, filters, penalty and min-keep. Given options
 * override them later. ERR_INPUT with the list of presets for an unknown name. */
int preset_sampling(struct sampling *s, const struct options *o, struct err *e);

/* Whether the model's directory contains drafting heads. The answer for the last directory is cached,
 * because every line of a batch asks. */
bool draft_model_has_heads(const char *dir);
/* Reads and checks the settings. heads_file: the FILE of `heads:FILE`, or "" for heads next to the model.
 * `auto` includes heads when the model's directory contains some. */
int draft_from_options(struct draft_settings *s, char heads_file[PATH_BYTES], const struct options *o,
                       const char *model_dir, size_t n_prompt, struct err *e);
