/* Applies the options that name a model and its number formats.
 * Start at options_open_engine. */
#include "src/request/model_options.h"

#include <stdlib.h>

#include "src/model/find_model.h"

const char *model_of_options(const struct options *o, const char **what)
{
    const char *variable = getenv("LONGHAND_MODEL");
    *what = o->model ? "--model" : "LONGHAND_MODEL";
    return o->model ? o->model : variable && *variable ? variable : NULL;
}

/* The message shows the way to a first text. */
static int no_model(const struct options *o, struct err *e)
{
    char demo[PATH_BYTES], small[PATH_BYTES + 40] = "";
    struct err ignored;
    if (find_model_or_demo(demo, NULL, "", &ignored) == 0)
        snprintf(small, sizeof small, "; --model %s is a small one to begin with", demo);
    return err_set(e, ERR_INPUT,
                   "%s: --model is missing: the path of a Hugging Face directory or GGUF file, or a name in "
                   "a cache, org/name of Hugging Face, llama.cpp or LM Studio, name:tag of Ollama%s; "
                   "LONGHAND_MODEL names a model for all commands", o->verb->name, small);
}

int model_dir(char dir[PATH_BYTES], const struct options *o, struct err *e)
{
    const char *what, *name = model_of_options(o, &what);
    return name ? find_model_dir(dir, name, what, e) : no_model(o, e);
}

enum dtype option_compute(int compute) { return compute == COMPUTE_F32 ? DT_F32 : DT_BF16; }

enum dtype option_kv(int kv_dtype)
{
    static const enum dtype types[] = { DT_OTHER, DT_I16, DT_BF16, DT_I8, DT_I4 };
    return types[kv_dtype];
}

int options_open_engine(struct engine *g, const struct options *o, struct err *e)
{
    char dir[PATH_BYTES];
    if (model_dir(dir, o, e))
        return -1;
    return engine_open(g, &(struct engine_spec){ dir, option_compute(o->job.compute), o->job.scaling,
        o->threads, o->device, NULL, option_kv(o->job.kv_dtype), o->job.weights }, e);
}
