/* Files of trained drafters: safetensors files whose __metadata__ names the kind of drafter and the model
 * that it was trained for (drafter_save, heads.h). Published checkpoints have tensors of the same names, and
 * no such metadata. */
#pragma once
#include "src/model/model.h"

/* The file of a drafter in the folder drafters/ of a model: of the safetensors files there whose kind is this
 * one, or that have no kind and a name that begins with it, the first by name. ERR_INPUT: there is none. */
int drafter_find(char path[PATH_BYTES], const char *model, const char *kind, struct err *e);

/* Opens a drafter's file and checks its metadata: kind, sizes, model. The metadata of the model is compared
 * where its weights are there. *foreign: a file of another model, for a model with quantised weights, which
 * are not those of the training; elsewhere it is ERR_INPUT. */
int drafter_open(struct tensors *ts, const char *path, const char *kind, const struct model *m, bool *foreign,
                 struct err *e);

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
