/* --device: the device that computes. The option is one of these words:
 *
 *   auto      the first GPU if its kernels have passed the check (device_check.h) and it can hold the model,
 *             else the CPU. On a machine with a GPU a line says which, and why. A job that has begun
 *             continues on the kind of device that its numerics id names
 *   cpu       the CPU
 *   cuda      the first GPU
 *   cuda:N    GPU N
 *   cuda:all  `work` alone: a worker for each GPU
 *
 * The words of an added kind of device (device_added in kernels/device.h) have the same form: KIND, KIND:N,
 * KIND:all. */
#pragma once
#include "src/model/config.h"
#include "src/model/model_files.h"

struct device;
struct pool;
struct ops;

enum { DEVICE_CHOICE_IDS = 11 };

/* What the device must hold. */
struct device_choice_model {
    const struct config *config;
    const struct tensors *tensors;
    enum dtype compute, kv;              /* kv DT_OTHER: auto */
    const struct ops *ops;
    struct pool *pool;
};

/* The type of a cache on the CPU. ERR_INPUT if both --compute f32 and a type of --kv-dtype are given. */
int device_choice_cpu_kv(enum dtype *kv, enum dtype compute, enum dtype wanted, struct err *e);

/* Whether the word means every GPU. */
bool device_choice_is_all(const char *word);
/* The number of GPUs; for 0, `why` says the reason. The call starts CUDA: not for a process that forks
 * later. */
size_t device_choice_count(const char *word, char *why, size_t why_size);
/* ERR_INPUT unless `word` is one of the words above. The message calls the option `spelled`. */
int device_choice_check(const char *spelled, const char *word, struct err *e);
/* Whether the choice of auto is told, as a line or as JSON. */
void device_choice_tells(bool tells, bool json);
/* Opens the device for a model. numerics: the job's id, or NULL. ERR_INPUT with one line if this machine
 * lacks the device or the device cannot hold the model. */
int device_choice_open(struct device **dev, const char *word, const char *numerics,
                       const struct device_choice_model *m, struct err *e);
/* The n numerics ids that texts can be made with under that word on this machine. The strings are static.
 * Errors as device_choice_open. */
int device_choice_numerics(const char *word, const char *id[DEVICE_CHOICE_IDS], size_t *n, struct err *e);
/* Whether a device of numerics id `device_numerics` suits the word and a job of `numerics` (NULL: not
 * begun). */
bool device_choice_matches(const char *word, const char *device_numerics, const char *numerics);
