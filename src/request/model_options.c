/* Applies the options that name a model and its number formats.
 * Start at options_open_engine. */
#include "src/request/model_options.h"

#include "src/model/find_model.h"

int model_dir(char dir[PATH_BYTES], const struct options *o, struct err *e)
{
    if (!o->model || !*o->model)
        return err_set(e, ERR_INPUT, "%s: --model DIR is missing", o->verb->name);
    return find_model_dir(dir, o->model, "--model", e);
}

enum dtype option_compute(int compute) { return compute == COMPUTE_F32 ? DT_F32 : DT_BF16; }

enum dtype option_kv(int kv_dtype)
{
    return kv_dtype == KV_DTYPE_INT16 ? DT_I16 : kv_dtype == KV_DTYPE_BF16 ? DT_BF16 : DT_OTHER;
}

int options_open_engine(struct engine *g, const struct options *o, struct err *e)
{
    char dir[PATH_BYTES];
    if (model_dir(dir, o, e))
        return -1;
    return engine_open(g, &(struct engine_spec){ dir, option_compute(o->job.compute), o->job.scaling,
        o->threads, o->device, NULL, option_kv(o->job.kv_dtype), o->job.weights }, e);
}
