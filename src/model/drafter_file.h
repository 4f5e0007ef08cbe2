/* Files of trained drafters: safetensors files. __metadata__ of a file of `train` has the kind of drafter,
 * hidden_size, vocab_size, and model, the heads_fingerprint of the model that it was trained for
 * (drafter_save, heads.h). Published checkpoints have tensors of the same names, and no such metadata. */
#pragma once
#include "src/model/draft_vocab.h"

/* The file of a drafter in the folder drafters/ of a model: of the safetensors files there whose kind is this
 * one, or that have no kind and a name that begins with it, the first by name. ERR_INPUT: there is none. */
int drafter_find(char path[PATH_BYTES], const char *model, const char *kind, struct err *e);

/* What all trained drafters with such files have: the first member of the struct of each. {0} is
 * closed. */
struct drafter_file {
    const struct drafter_kind *kind;
    const struct model *model;           /* borrowed */
    bool foreign;                        /* the file names another model: see drafter_open */
    char path[PATH_BYTES];
    struct draft_vocab vocab;
    size_t weight_bytes, plain_bytes;    /* of the matrices: as they are, and in 16 bits */
    void *mem; size_t mem_bytes;         /* weights, and the buffers of a pass */
    struct drafter_list *list;           /* private: while one runs */
};
struct drafter_kind {
    const char *name;
    size_t size;                         /* of the drafter's struct */
    /* Lists all parts, tensors in the order of files: drafter_tensors, drafter_part. Parts get their places,
     * are checked, read or saved by the same list. */
    void (*list)(struct drafter_file *f);
    /* NULL, or reads what is in no list, before the tensors; with f->mem NULL only checks. */
    int  (*read)(struct drafter_file *f, const struct tensors *ts, struct err *e);
};
/* path: a safetensors file; NULL: the one in the model's folder drafters/ (drafter_find). int8: keeps the
 * matrices in 8 bits. Only with host_memory. ERR_INPUT for a file that does not fit, or was trained for
 * another model; of a quantised model, whose weights are not those of training, such a file is `foreign`.
 * The metadata of the model is compared where the model's weights are there. */
int  drafter_open(struct drafter_file *f, const struct drafter_kind *k, const char *path,
                  const struct model *m, bool int8, struct err *e);
void drafter_close(struct drafter_file *f, const struct drafter_kind *k);
/* The bytes that drafter_open takes, without the LM head of a short vocabulary. Uses the model's config,
 * device and compute. */
size_t drafter_bytes(const struct drafter_kind *k, const struct model *m, bool int8);
/* Whether drafter_open would find tensors there that fit. Reads headers only. Of the model, whose weights
 * are not read, it uses config, device and compute. weights: the model's files, with which the model that the
 * drafter was trained for is compared; NULL: not compared. */
int  drafter_check(const struct drafter_kind *k, const char *path, const struct model *m,
                   const struct tensors *weights, struct err *e);
/* Writes the file of a trained drafter of model m. f: its struct, whose tensors are the host's floats, with
 * heads that are not padded. v, note: as drafter_save. Matrices are written in BF16, the rest in F32. */
int  drafter_write(struct drafter_file *f, const struct drafter_kind *k, const char *path,
                   const struct model *m, const struct draft_vocab *v, const char *note, struct err *e);

/* For lists: a tensor of a file, [rows][cols], or a vector (cols 0). It has heads of `head_rows` rows or
 * head_cols columns (0: none), which the model pads. */
struct drafter_tensor { const char *name; size_t rows, cols, head_rows, head_cols; };
/* The next part are n tensors whose rows follow each other. slot: of matrices a struct mat, of
 * drafter_mat_type, and of vectors the address of a pointer to the host's floats. Names follow `prefix`. */
void drafter_tensors(struct drafter_file *f, void *slot, const char *prefix, const struct drafter_tensor *t,
                     size_t n);
#define DRAFTER_TENSORS(f, slot, prefix, ...)                                   \
    drafter_tensors(f, slot, prefix, (const struct drafter_tensor[]){ __VA_ARGS__ }, \
                    sizeof((const struct drafter_tensor[]){ __VA_ARGS__ }) / sizeof(struct drafter_tensor))
/* The next part has no tensor. `slot` is the address of a pointer; it becomes NULL as long as f->mem is. */
void drafter_part(struct drafter_file *f, void *slot, size_t bytes);
/* The next tensor is only written. */
void drafter_put(struct drafter_file *f, const char *name, enum dtype type, size_t rows, size_t cols,
                 const float *data);
