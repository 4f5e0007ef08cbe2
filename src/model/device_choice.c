/* --device: the words of the option, and the device that they choose for a model. Start at
 * device_choice_open. */
#include "src/model/device_choice.h"

#include <stdio.h>
#include <stdlib.h>
#include <pthread.h>
#include <string.h>

#include "src/base/notice.h"
#include "src/model/device_check.h"
#include "src/model/model.h"

#define TEXT_(x) #x
#define TEXT_OF(x) TEXT_(x)
#define CPU_ID(KV) "cpu-" TEXT_OF(NUMERICS_VERSION) "-" KV, "cpu-" TEXT_OF(NUMERICS_VERSION) "-" KV "-q1"
static const char *const cpu_ids[] = { CPU_ID("int16"), CPU_ID("bf16"), CPU_ID("int8"), CPU_ID("int4"),
                                       CPU_ID("f32") };

/* The kind of GPU that a word names. */
static const char *gpu_kind(const char *word) { return device_is_added(word) ? device_added->name : "cuda"; }

bool device_choice_is_all(const char *word)
{
    const char *kind = gpu_kind(word);
    return strncmp(word, kind, strlen(kind)) == 0 && strcmp(word + strlen(kind), ":all") == 0;
}

size_t device_choice_count(const char *word, char *why, size_t why_size)
{
    return device_is_added(word) ? device_added->count : device_cuda_count(why, why_size);
}

/* Whether a word is "KIND" or "KIND:N". */
static bool gpu_word(const char *word, size_t *ordinal)
{
    const char *kind = gpu_kind(word), *n = word + strlen(kind) + 1;
    *ordinal = 0;
    if (strcmp(word, kind) == 0)
        return true;
    if (strncmp(word, kind, strlen(kind)) || n[-1] != ':' || !*n || strlen(n) > 4 ||
        strspn(n, "0123456789") != strlen(n))
        return false;
    *ordinal = strtoul(n, NULL, 10);
    return true;
}

int device_choice_check(const char *spelled, const char *word, struct err *e)
{
    size_t ordinal;
    if (strcmp(word, "auto") && strcmp(word, "cpu") && !device_choice_is_all(word) &&
        !gpu_word(word, &ordinal))
        return err_set(e, ERR_INPUT, "%s: '%s' is not one of auto, cpu, cuda, cuda:N, cuda:all", spelled,
                       word);
    return 0;
}

/* Opens the GPU that the word names. */
static int open_gpu(struct device **dev, const char *word, struct err *e)
{
    char why[512] = "";
    size_t ordinal;
    if (device_choice_is_all(word))
        return err_set(e, ERR_INPUT,
                       "--device %s: several GPUs are for 'longhand work' (longhand submit, then longhand "
                       "work --device %s)", word, word);
    if (device_is_added(word))
        return device_added->open(dev, why, sizeof why) ? err_set(e, ERR_FAILED, "--device %s: %s", word, why)
                                                        : 0;
    gpu_word(word, &ordinal);
    if (device_cuda_open(dev, ordinal, why, sizeof why))
        return err_set(e, ERR_INPUT, "--device %s: %s (auto and cpu are available)", word, why);
    return 0;
}

/* What a model needs and the GPU does not compute with; NULL: nothing. */
static const char *lacks_of(const struct device *dev, const struct config *c)
{
    return c->n_experts && !dev->experts         ? "mixtures of experts"
           : config_is_hybrid(c) && !dev->delta  ? "recurrent states"
           : c->rope.growth != 0                 ? "queries that grow with the position"
           : c->residual_factor != 0             ? "factors of embeddings and logits"
           : c->layer[0].norms                      ? "models with norms after each part"
           : config_has_local(c)                 ? "layers without RoPE"
           : c->rotary < c->head_dim             ? "heads of which a part turns"
                                                 : NULL;
}

/* Checks that the GPU supports the types and the head size of the model. */
static int check_support(const struct device *dev, const struct device_choice_model *m, struct err *e)
{
    if (m->compute == DT_F32 && !dev->compute_f32)
        return err_set(e, ERR_INPUT, "%s: --compute f32 is not supported on this device; --device cpu "
                       "supports it", dev->name);
    if (m->kv != DT_OTHER && m->kv != dev->kv_type)
        return err_set(e, ERR_INPUT,
                       "%s: --kv-dtype %s is not supported on this device (auto and %s are); --device cpu "
                       "supports it", dev->name, kv_type_name(m->kv), kv_type_name(dev->kv_type));
    const struct tensor *t = model_quantised(m->tensors);
    if (t)
        return err_set(e, ERR_INPUT,
                       "%s: tensor \"%s\": weights of type %s are not supported on this device; --device cpu "
                       "supports them", dev->name, t->stored_name, t->dtype_name);
    const char *lacks = lacks_of(dev, m->config);
    if (lacks)
        return err_set(e, ERR_INPUT, "%s: %s (%s) are not supported on this device; --device cpu supports "
                       "them", dev->name, lacks, m->config->model_type);
    if (!dev->head_dim(dev, m->config->head_dim))
        return err_set(e, ERR_INPUT, "%s: heads of %zu dimensions are not supported on this device; --device "
                       "cpu supports them", dev->name, m->config->head_dim);
    return 0;
}

static bool tells_, in_json_;
void device_choice_tells(bool tells, bool json) { tells_ = tells, in_json_ = json; }

/* Says which device a word is, and why, unless that was said last. */
static void tell(const char *word, const char *device, const char *why)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;      /* serve checks batches on a thread */
    static char said[PATH_BYTES];
    char line[sizeof said];
    pthread_mutex_lock(&one);
    snprintf(line, sizeof line, "--device %s is %s: %s", word, device, why);
    if (tells_ && strcmp(line, said))
        notice(in_json_, (struct row[]){ NOTICE_TEXT("phase", "device"), NOTICE_TEXT("device", device),
                                         NOTICE_TEXT("because", why), NOTICE_END }, "%s", line);
    strcpy(said, line);
    pthread_mutex_unlock(&one);
}

/* The first GPU, for auto. */
static bool added_is_first(void) { return device_added && device_added->automatic; }
static int open_first(struct device **dev, char *why, size_t why_size)
{
    return added_is_first() ? device_added->open(dev, why, why_size)
                            : device_cuda_open(dev, 0, why, why_size);
}

/* auto: opens the first GPU if it has passed the check, and the weights leave a tenth of its memory for the
 * text. why: of the choice; "": there is no GPU. */
static bool open_auto(struct device **dev, const struct device_choice_model *m, bool begun_here, char *why,
                      size_t why_size)
{
    size_t weights, room;
    struct err e;
    if (!added_is_first() && !device_cuda_count(why, why_size)) {
        *why = device_cuda_is_refused() ? *why : 0;
        return false;
    }
    if (begun_here)
        snprintf(why, why_size, "the text began there");
    if (begun_here || open_first(dev, why, why_size))
        return false;
    room = (*dev)->bytes_free(*dev);
    if (check_support(*dev, m, &e) ||
        model_plan_bytes(m->config, m->tensors, m->compute, *dev, &weights, &e))
        snprintf(why, why_size, "%s", e.msg);
    else if (weights > room - room / 10)
        snprintf(why, why_size, "%s has %zu MiB free, and the weights need %zu MiB and a tenth more",
                 (*dev)->name, room >> 20, weights >> 20);
    else if (device_passed(*dev, open_first, why, why_size))
        return true;
    (*dev)->close(*dev);
    *dev = NULL;
    return false;
}

int device_choice_cpu_kv(enum dtype *kv, enum dtype compute, enum dtype wanted, struct err *e)
{
    *kv = compute == DT_F32 ? DT_F32 : wanted == DT_OTHER ? DT_I16 : wanted;
    if (compute == DT_F32 && wanted != DT_OTHER)
        return err_set(e, ERR_INPUT, "--kv-dtype %s: under --compute f32 the cache is f32 (auto)",
                       kv_type_name(wanted));
    return 0;
}

int device_choice_open(struct device **dev, const char *word, const char *numerics,
                       const struct device_choice_model *m, struct err *e)
{
    char why[PATH_BYTES + sizeof e->msg] = "";
    *dev = NULL;
    if (strcmp(word, "auto") && strcmp(word, "cpu")) {
        if (open_gpu(dev, word, e))
            return -1;
        if (!device_passed(*dev, NULL, why, sizeof why))
            tell(word, (*dev)->name, why);
        if (check_support(*dev, m, e) == 0)
            return 0;
        (*dev)->close(*dev);
        *dev = NULL;
        return -1;
    }
    const bool begun_here = numerics && strncmp(numerics, "cpu-", 4) == 0;
    const bool gpu = strcmp(word, "auto") == 0 && open_auto(dev, m, begun_here, why, sizeof why);
    if (*why)
        tell(word, gpu ? (*dev)->name : "the CPU", why);
    if (gpu)
        return 0;
    enum dtype kv;
    if (device_choice_cpu_kv(&kv, m->compute, m->kv, e))
        return -1;
    if (device_cpu_open(dev, m->ops, m->pool, kv, why, sizeof why))
        return err_set(e, ERR_FAILED, "%s", why);
    device_quantised(*dev, model_is_quantised(m->tensors));
    return 0;
}

int device_choice_numerics(const char *word, const char *id[DEVICE_CHOICE_IDS], size_t *n, struct err *e)
{
    static char gpu[32], of[16];                 /* the last answer: opening a GPU takes a while */
    struct device *dev;
    struct err why;
    const bool any = strcmp(word, "auto") == 0, cpu = any || strcmp(word, "cpu") == 0;
    *n = 0;
    if (cpu)
        for (size_t i = 0; i < sizeof cpu_ids / sizeof *cpu_ids; i++)
            id[(*n)++] = cpu_ids[i];
    if (cpu && !any)
        return 0;
    if (strcmp(of, word)) {
        char ignored[512];
        gpu[0] = 0;
        if (any ? open_first(&dev, ignored, sizeof ignored) == 0 : open_gpu(&dev, word, &why) == 0) {
            if (!any || device_passed(dev, open_first, ignored, sizeof ignored))
                snprintf(gpu, sizeof gpu, "%s", dev->numerics);
            dev->close(dev);
        } else if (!any) {
            *e = why;
            return -1;
        }
        snprintf(of, sizeof of, "%s", word);
    }
    if (gpu[0])
        id[(*n)++] = gpu;
    return 0;
}

bool device_choice_matches(const char *word, const char *device_numerics, const char *numerics)
{
    return strcmp(word, "auto") || !numerics || strcmp(device_numerics, numerics) == 0;
}
