/* The weights of drafters, beside the model of an engine: which there are, and opening them. Each drafter has
 * a table for its own (struct drafter_weights). `heads` lie in the model's checkpoint or beside it (heads.h),
 * `mtp` lies in the checkpoint (mtp.h), others in the folder drafters/ (drafter_file.h); `model` is a folder
 * or file that the user names. */
#pragma once
#include "src/decode/decode.h"
#include "src/decode/engine.h"

/* The weights of a drafter that has some. `o` is the drafter. */
struct drafter_weights {
    bool on_devices;                 /* they work on a GPU, too */
    /* What a user reads where the model has none, after the name of the model, and where they were made for
     * another model, after the name of the file. NULL: what weights.c says. */
    const char *missing, *foreign;
    /* Whether a model has them. Looks at names and metadata only. */
    bool (*present)(const struct drafter_ops *o, const char *model);
    /* Whether `open` would find tensors that fit in the file (NULL: the model's own). Reads headers only, and
     * needs no weights of the model. */
    int  (*check)(const struct drafter_ops *o, const char *path, const struct engine *g, struct err *e);
    /* The bytes that they will hold, before they are read. int8: their matrices in 8 bits. */
    size_t (*bytes)(const struct drafter_ops *o, const char *path, const struct engine *g, bool int8);
    /* Opens them for an engine whose model is loaded. NULL: *e says why. */
    void *(*open)(const struct drafter_ops *o, const char *path, const struct engine *g, bool int8,
                  struct err *e);
    void (*close)(const struct drafter_ops *o, void *weights);
    /* Whether they were made for another model. NULL: never. */
    bool (*is_foreign)(const void *weights);
    /* Bytes of those that lie in the model's own files, whose headers are open; 0: there are none. NULL: they
     * lie elsewhere. */
    size_t (*of_model)(const struct engine *g);
};

static inline bool weights_has(enum drafter d) { return drafters[d] && drafters[d]->weights; }
/* Whether a model has the weights of a drafter. Looks at names and metadata only. */
bool weights_present(enum drafter d, const char *model);
/* Those of the drafters `present` (a bit each) that --drafter auto opens. One drafter that makes passes
 * drafts a fixed tree, so others do not join it. */
unsigned weights_of_auto(unsigned present, bool fixed_tree);
/* Whether weights_open would find tensors that fit in the file (NULL: the one of the engine's model). Reads
 * headers only, and needs no weights of the model. */
int  weights_check(enum drafter d, const char *path, const struct engine *g, struct err *e);
/* What a user reads where a model has none, without the option. */
int  weights_missing(enum drafter d, const char *option, const char *model, struct err *e);
/* The bytes that they will hold, before they are read; of `model` with the cache of one text. */
size_t weights_bytes(enum drafter d, const struct draft_settings *set, const char *path,
                     const struct engine *g);

/* Opens the weights of a drafter of an engine whose model is loaded, in g->weights; path NULL: the model's
 * own file. */
int  weights_open(struct engine *g, enum drafter d, const struct draft_settings *set, const char *path,
                  struct err *e);
void weights_close(struct engine *g, enum drafter d);
/* Whether they were made for another model, and what a user reads then. */
bool weights_are_foreign(const struct engine *g, enum drafter d);
void weights_foreign_line(char *line, size_t n, enum drafter d, const char *path);
/* The weights of the drafters of setup->draft that are open. */
void weights_setup(struct decode_setup *setup, struct engine *g);
