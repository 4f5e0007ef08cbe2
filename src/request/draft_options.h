/* Drafting from the command line: --drafter, --preset, --tree and the rest into struct draft_settings. */
#pragma once
#include "src/decode/draft.h"
#include "src/request/options.h"

/* The presets by name; NULL behind the last. */
const char *preset_name(size_t i);
/* What --preset says of sampling, before the flags given by hand: temperature, filters, penalty, min-keep. Unknown: ERR_INPUT with the list. */
int preset_sampling(struct sampling *s, const struct options *o, struct err *e);

/* Whether the directory has heads; the same one again is not looked at again (the lines of a batch ask one by one). */
bool draft_model_has_heads(const char *dir);
/* Settings of drafting, checked. heads_file: what `heads:FILE` named, or "" (next to the model). `auto` takes heads where the model directory has them. */
int draft_from_options(struct draft_settings *s, char heads_file[PATH_BYTES], const struct options *o,
                       const char *model_dir, size_t n_prompt, struct err *e);
