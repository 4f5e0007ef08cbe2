/* --device: where to compute. `auto` is the first GPU where there is one that can hold the model, else the CPU: silently, a text says in
 * its job which arithmetic made it. A job that has begun goes on, under `auto`, on the kind of device that its numerics id names.
 *
 * A word is "auto", "cpu", "cuda" (the first GPU), "cuda:N", "cuda:all" (`work` alone: a worker for each GPU).
 * Words of an added kind of device (kernels/device.h) have the same form. */
#pragma once
#include "src/model/config.h"
#include "src/model/safetensors.h"

struct device;
struct pool;
struct ops;

enum { DEVICE_CHOICE_IDS = 4 };
/* kv DT_OTHER: auto */
struct device_choice_model { const struct config *config; const struct tensors *tensors; enum dtype compute,
                     kv; const struct ops *ops; struct pool *pool; };

/* What a cache on the CPU holds. ERR_INPUT where --compute f32 and a type of --kv-dtype are both asked for. */
int device_choice_cpu_kv(enum dtype *kv, enum dtype compute, enum dtype wanted, struct err *e);

/* Whether the word means every GPU; how many there are (0: why). Counting begins with CUDA: not in a process that forks later. */
bool device_choice_is_all(const char *word);
size_t device_choice_count(const char *word, char *why, size_t why_size);
/* ERR_INPUT unless it is such a word; `spelled` is what the message calls the option. */
int device_choice_check(const char *spelled, const char *word, struct err *e);
/* Open the device for a model. numerics: of the job, or NULL. ERR_INPUT, one line, where the word asks for what is not here. */
int device_choice_open(struct device **dev, const char *word, const char *numerics, const struct device_choice_model *m,
               struct err *e);
/* The numerics ids that texts can be made with under that word here: n of them, static. ERR_INPUT as device_choice_open. */
int device_choice_numerics(const char *word, const char *id[DEVICE_CHOICE_IDS], size_t *n, struct err *e);
/* Whether a device of this numerics id is what the word means for a job of `numerics` (NULL: not begun). */
bool device_choice_matches(const char *word, const char *device_numerics, const char *numerics);
