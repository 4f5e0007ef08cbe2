/* Settings of drafting from the command line: --drafter, --tree and related options; --preset. */
#pragma once
#include "src/decode/draft.h"
#include "src/decode/engine.h"
#include "src/request/options.h"

/* The names of the presets; NULL after the last. */
const char *preset_name(size_t i);
/* Sets the options of --preset, NAME or NAME,story, that are not given, and counts them as given. own: those
 * that the model's own settings override. ERR_INPUT with the list of presets for an unknown name. */
int preset_apply(struct options *o, bool own, struct err *e);
/* "min-p 0.05, on-loop retake": what the preset story sets. own: also what the model's own settings override.
 * False: --preset has no story. */
bool preset_story(char *text, size_t size, const struct options *o, bool own);

/* The FILE of NAME:FILE for each drafter; "": the model's own. */
struct drafter_files { char path[N_DRAFTERS][PATH_BYTES]; };

/* The trained drafters (src/decode/weights.h) whose files the model has, bit per source. The answer for the
 * last model is cached, because every line of a batch asks. */
unsigned draft_of_model(const char *dir);
/* Reads and checks the settings. `auto` includes the trained drafters of the model. */
int draft_from_options(struct draft_settings *s, struct drafter_files *files, const struct options *o,
                       const char *model_dir, size_t n_prompt, struct err *e);
/* Lines on standard error, after `prefix`, about options that do nothing with these drafters. */
void draft_notices(const struct options *o, const struct engine *g, const char *prefix);
