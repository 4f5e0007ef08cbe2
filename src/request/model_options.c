/* Applies the options that name a model and its number formats, and prints notices about the model. Start at
 * options_open_engine and model_notices. */
#include "src/request/model_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/output.h"
#include "src/model/config_tensors.h"
#include "src/model/find_model.h"
#include "src/model/gguf_model.h"
#include "src/request/draft_options.h"

const char *model_of_options(const struct options *o, const char **what)
{
    const char *variable = getenv("LONGHAND_MODEL");
    *what = o->model ? "--model" : "LONGHAND_MODEL";
    return o->model ? o->model : variable && *variable ? variable : NULL;
}

int model_dir(char dir[PATH_BYTES], const struct options *o, struct err *e)
{
    char demo[PATH_BYTES], small[PATH_BYTES + 40] = "";
    struct err ignored;
    const char *what, *name = model_of_options(o, &what);
    if (name)
        return find_model_dir(dir, name, what, e);
    /* the message shows the way to a first text */
    if (find_model_or_demo(demo, NULL, "", &ignored) == 0)
        snprintf(small, sizeof small, "; --model %s is a small one to begin with", demo);
    return err_set(e, ERR_INPUT,
                   "%s: --model is missing: the path of a Hugging Face directory or GGUF file, or a name in "
                   "a cache, org/name of Hugging Face, llama.cpp or LM Studio, name:tag of Ollama%s; "
                   "LONGHAND_MODEL names a model for all commands", o->verb->name, small);
}

enum dtype option_compute(int compute) { return compute == COMPUTE_F32 ? DT_F32 : DT_BF16; }

enum dtype option_kv(int kv_dtype)
{
    static const enum dtype types[] = { DT_OTHER, DT_I16, DT_BF16, DT_I8, DT_I4 };
    return types[kv_dtype];
}

int engine_of_options(struct engine *g, const struct options *o, const char *dir, struct err *e)
{
    return engine_open(g, &(struct engine_spec){ dir, option_compute(o->job.compute), o->job.scaling,
        o->threads, o->device, NULL, option_kv(o->job.kv_dtype), o->job.weights }, e);
}

int options_open_engine(struct engine *g, const struct options *o, struct err *e)
{
    char dir[PATH_BYTES];
    return model_dir(dir, o, e) || engine_of_options(g, o, dir, e) ? -1 : 0;
}

/* ---- notices ---- */

enum { NAMES_SHOWN = 3 };
struct names { char text[400]; size_t n, bytes; };

static void add_name(void *ctx, const char *name)
{
    struct names *l = ctx;
    if (l->n++ < NAMES_SHOWN)
        l->bytes += (size_t)snprintf(l->text + l->bytes, sizeof l->text - l->bytes, "%s%.100s",
                                     l->bytes ? ", " : "", name);
}

/* The text of a token, for a message. */
static void token_text(char text[80], const struct engine *g, int32_t id)
{
    char *bytes = NULL;
    size_t n;
    struct err ignored;
    if (tokenizer_decode(g->tokenizer, &bytes, &n, &id, 1, false, &ignored))
        bytes = NULL;
    terminal_text(text, 80, bytes ? bytes : "");
    free(bytes);
}

static void tensors_notice(const struct engine *g, const struct options *o)
{
    struct names l = { .n = 0 };
    config_unread_tensors(&g->config, &g->tensors, add_name, &l);
    if (l.n)
        request_notice(o, "%s: %zu %s not part of such a model and count for nothing: %s%s", g->dir, l.n,
                       plural(l.n, "tensor is", "tensors are"), l.text, l.n > NAMES_SHOWN ? ", .." : "");
}

void model_notices(const struct engine *g, const struct options *o)
{
    char text[400];
    if (o->quiet)
        return;
    if (!o->grid.n)                      /* of a grid each combination has its own */
        draft_notices(o, g, "");
    if (g->own_eos >= 0) {
        token_text(text, g, g->own_eos);
        request_notice(o, "%s (%d), the eos_token of tokenizer_config.json, ends a text, too: config.json "
                          "names another", text, (int)g->own_eos);
    }
    if (!model_is_file(g->dir)) {
        if (g->config.no_token_key)
            request_notice(o, "%s: %s %" PRId64 " is no token and counts for nothing", g->dir,
                           g->config.no_token_key, g->config.no_token);
        tensors_notice(g, o);
        return;
    }
    struct gguf_model file;
    struct err ignored;
    if (gguf_open_first(&file, g->dir, &ignored))
        return;
    gguf_notice(text, sizeof text, file.part, &g->config);
    if (*text)
        request_notice(o, "%s: %s", g->dir, text);
    gguf_model_close(&file);
}

bool begins_with_bos_twice(const struct engine *g, const int32_t *ids, size_t n)
{
    const int32_t bos = tokenizer_bos(g->tokenizer);
    return bos >= 0 && n > 1 && ids[0] == bos && ids[1] == bos;
}

void bos_notice(const struct engine *g, const struct options *o, size_t prompts)
{
    char text[80];
    token_text(text, g, tokenizer_bos(g->tokenizer));
    request_notice(o, "%zu %s with %s, which the tokenizer adds, too: the model reads it twice", prompts,
                   plural(prompts, "prompt begins", "prompts begin"), text);
}
