/* Files of trained drafters: safetensors files whose __metadata__ names the kind of drafter and the model
 * that it was trained for (drafter_save, heads.h). Published checkpoints have tensors of the same names, and
 * no such metadata. */
#pragma once
#include "src/model/draft_vocab.h"

/* The file of a drafter in the folder drafters/ of a model: of the safetensors files there whose kind is this
 * one, or that have no kind and a name that begins with it, the first by name. ERR_INPUT: there is none. */
int drafter_find(char path[PATH_BYTES], const char *model, const char *kind, struct err *e);

/* What all trained drafters with such files have: the first member of the struct of each. {0} is
 * closed. */
struct drafter_file {
    const struct model *model;           /* borrowed */
    bool foreign;                        /* the file names another model: see drafter_open */
    char path[PATH_BYTES];
    struct draft_vocab vocab;
    size_t weight_bytes, plain_bytes;    /* of the matrices: as they are, and in 16 bits */
    void *mem; size_t mem_bytes;         /* weights, and the buffers of a pass */
    size_t used;                         /* private to a layout */
};
struct drafter_kind {
    const char *name;
    size_t size;                         /* of the drafter's struct */
    /* Gives all parts their places: drafter_part, drafter_matrix. */
    void (*layout)(struct drafter_file *f, bool int8);
    /* Reads the tensors into these places; with f->mem NULL only checks names and shapes. */
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

/* For layouts: the next part. `slot` is the address of a pointer; it becomes NULL as long as f->mem is. */
void drafter_part(struct drafter_file *f, void *slot, size_t bytes);
/* The next part is a matrix [n][k] of drafter_mat_type. */
void drafter_matrix(struct drafter_file *f, struct mat *w, size_t n, size_t k, bool int8);

/* A matrix [rows][cols] of a file with heads of `head` rows or columns (0: no heads), which a model pads to
 * `padded`. */
struct drafter_mat { const char *name; size_t rows, cols, head_rows, head_cols; };
/* Reads it into rows r0 .. of m, which has room for the padded rows and columns. m NULL: only checks name and
 * shape. */
int drafter_read_mat(const struct tensors *ts, const struct drafter_mat *t, size_t padded, struct mat *m,
                     size_t r0, struct device *dev, struct err *e);
/* The type of a drafter's matrices on the host. */
enum dtype drafter_mat_type(const struct model *m, bool int8);
/* Reads n matrices whose rows follow each other in `to`, of drafter_mat_type. to NULL: only checks. */
int drafter_read_product(struct mat *to, const struct tensors *ts, const struct drafter_mat *t, size_t n,
                         const struct model *m, struct err *e);
/* Reads a vector of n values, in heads of `head` that are padded (0: none), into the host's v. v NULL: only
 * checks. */
int drafter_read_vector(const struct tensors *ts, const char *name, size_t n, size_t head, size_t padded,
                        float *v, struct err *e);
