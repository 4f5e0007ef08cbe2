/* Drafters with weights of their own, most of them in files that training made for one model: which there
 * are, and opening them beside the model of an engine. `heads` lie in the model's checkpoint or beside it
 * (heads.h), `mtp` lies in the checkpoint (mtp.h), the others lie in the folder drafters/ (drafter_file.h);
 * `model` is a folder or file that the user names. */
#pragma once
#include "src/decode/decode.h"
#include "src/decode/engine.h"

/* Whether a drafter has weights of its own, and whether a user may name the file that has them. */
bool trained_is(enum source s);
bool trained_takes_file(enum source s);
/* Whether a model has the weights of a drafter. Looks at names and metadata only. */
bool trained_present(enum source s, const char *model);
/* Those of the drafters `present` (a bit each) that --drafter auto opens. One drafter that makes passes
 * drafts a fixed tree, so these do not join it. */
static inline unsigned trained_of_auto(unsigned present, bool fixed_tree)
{
    return fixed_tree ? present & 1u << SOURCE_HEADS : present;
}
/* Whether trained_open would find tensors that fit in the file (NULL: the one of the engine's model). Reads
 * headers only, and needs no weights of the model. */
int  trained_check(enum source s, const char *path, const struct engine *g, struct err *e);
/* The bytes that it will hold, before it is read; of `model` with the cache of one text. */
size_t trained_bytes(enum source s, const struct draft_settings *set, const char *path,
                     const struct engine *g);

/* Opens the drafter of an engine whose model is loaded; path NULL: the model's own file. */
int  trained_open(struct engine *g, enum source s, const struct draft_settings *set, const char *path,
                  struct err *e);
void trained_close(struct engine *g, enum source s);
/* Whether it is open, and whether its file names another model. */
bool trained_is_open(const struct engine *g, enum source s);
bool trained_is_foreign(const struct engine *g, enum source s);
/* The drafters of setup->draft that are open. */
void trained_setup(struct decode_setup *setup, struct engine *g);
