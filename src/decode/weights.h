/* The weights of drafters, beside the model of an engine: which there are, and opening them. Each drafter has
 * a table for its own (struct drafter_weights). `heads` lie in the model's checkpoint or beside it (heads.h),
 * `mtp` lies in the checkpoint (mtp.h), others in the folder drafters/ (drafter_file.h); `model` is a folder
 * or file that the user names. */
#pragma once
#include "src/decode/decode.h"
#include "src/decode/engine.h"

/* Which weights are meant. */
struct weights_at {
    const struct drafter_ops *drafter;
    const char *path;                /* what the user named, else what `find` found, else NULL */
    const struct engine *g;
    bool int8;                       /* their matrices in 8 bits */
};
/* The weights of a drafter that has some. */
struct drafter_weights {
    bool on_devices;                 /* they work on a GPU, too */
    size_t size;                     /* of their struct; 0: that of the drafter's `kind` */
    /* What a user reads where the model has none, after the name of the model, and where they were made for
     * another model, after the name of the file. NULL: what weights.c says. */
    const char *missing, *foreign;
    /* Where the weights of a model lie, which it need not have in its own files. NULL: they lie there, and
     * `present` says whether a model has them. Both look at names and metadata only. */
    int  (*find)(const struct drafter_ops *o, char path[PATH_BYTES], const char *model, struct err *e);
    bool (*present)(const char *model);
    /* Whether `open` would find tensors that fit. Reads headers only, and needs no weights of the model. */
    int  (*check)(const struct weights_at *at, struct err *e);
    /* The bytes that they will hold, before they are read. path NULL: there are none, or they lie in the
     * model's own files. */
    size_t (*bytes)(const struct weights_at *at);
    /* Opens them, in a struct of zeros, for an engine whose model is loaded. After a failure they are
     * closed. */
    int  (*open)(void *weights, const struct weights_at *at, struct err *e);
    void (*close)(void *weights);
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
