/* The drafter of Gemma 4 (assistant.h): finding it, opening it beside its model, and its pass. Start reading
 * at assistant_open(). */
#include "src/model/assistant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/model/config_tensors.h"
#include "src/model/encode.h"
#include "src/model/model_caches.h"

/* ---- where it is ---- */

static bool is_assistant(const char *path)
{
    struct config *c = malloc(sizeof *c);
    struct stat st;
    struct err ignored;
    const bool is = c && stat(path, &st) == 0 && config_read_any(c, path, &ignored) == 0 && c->backbone;
    free(c);
    return is;
}

/* The drafter in a folder, itself or as its one GGUF file; or the one of that name in the caches. */
static bool find_in(char path[PATH_BYTES], const char *where, bool caches)
{
    char searched[600];
    struct model_fits *f = calloc(1, sizeof *f);
    struct stat st;
    struct err ignored;
    int rc = -1;
    if (f && caches)
        rc = model_fits_caches(f, where, searched, &ignored);
    else if (f && stat(where, &st) == 0 && S_ISDIR(st.st_mode))
        model_fits_folder(f, where), rc = 0;
    const bool found = rc == 0 && f->n == 1 && is_assistant(f->path);
    if (found)
        snprintf(path, PATH_BYTES, "%s", f->path);
    free(f);
    return found;
}

bool assistant_find(char path[PATH_BYTES], const char *model)
{
    const bool file = model_is_file(model);
    size_t n = strlen(model);
    while (n > 1 && model[n - 1] == '/')
        n--;
    const size_t stem = file && n > 5 && strcmp(model + n - 5, ".gguf") == 0 ? n - 5 : n;
    const char *slash = strrchr(model, '/');
    if (n + 32 > PATH_BYTES)
        return false;
    snprintf(path, PATH_BYTES, "%.*s-assistant.gguf", (int)stem, model);
    if (is_assistant(path))
        return true;
    char folder[PATH_BYTES], name[256];
    snprintf(folder, sizeof folder, "%.*s-assistant", (int)stem, model);
    if (find_in(path, folder, false))
        return true;
    if (!file)
        snprintf(folder, sizeof folder, "%.*s/assistant", (int)n, model);
    else
        snprintf(folder, sizeof folder, "%.*sassistant", slash ? (int)(slash + 1 - model) : 0, model);
    model_name(name, sizeof name - 16, model);
    strcat(name, "-assistant");
    return find_in(path, folder, false) || (strchr(name, '/') && find_in(path, name, true));
}

/* ---- opening ---- */

/* The layer of m whose cache a layer of the drafter reads; SIZE_MAX: there is none. */
static size_t source_of(const struct config *m, const struct config *c, size_t layer)
{
    size_t l = m->n_layers - m->kv_shared;
    while (l-- > 0)
        if (!m->layer[l].window == !c->layer[layer].window)
            return l;
    return SIZE_MAX;
}

/* Whether the drafter fits the model. Its heads become those of the caches that it reads. */
static int fit(struct config *c, const char *place, const struct config *m, struct err *e)
{
    if (!m->layer[0].scaled || !m->heads_differ)
        return err_set(e, ERR_INPUT, "--drafter: assistant:%s drafts for Gemma 4, not for %s models", place,
                       m->model_type);
    if (c->backbone != m->hidden || c->vocab != m->vocab)
        return err_set(e, ERR_INPUT, "--drafter: assistant:%s drafts for a model with states of %zu and %zu "
                       "tokens, the model has %zu and %zu", place, c->backbone, c->vocab, m->hidden,
                       m->vocab);
    for (size_t l = 0; l < c->n_layers; l++) {
        const size_t from = source_of(m, c, l);
        struct layer_spec *s = &c->layer[l];
        const char *kind = s->window ? "windowed" : "global";
        if (from == SIZE_MAX)
            return err_set(e, ERR_INPUT, "--drafter: assistant:%s: layer %zu is %s, and no layer of the "
                           "model is", place, l, kind);
        const struct layer_spec *g = &m->layer[from];
        if (s->head_dim != g->head_dim || c->n_heads % g->n_kv_heads)
            return err_set(e, ERR_INPUT, "--drafter: assistant:%s: layer %zu has %zu heads of %d "
                           "dimensions, the %s layers of the model have %u key/value heads of %d", place, l,
                           c->n_heads, s->head_dim, kind, g->n_kv_heads, g->head_dim);
        if (s->window && c->window > m->window)
            return err_set(e, ERR_INPUT, "--drafter: assistant:%s: a window of %zu, allowed is at most that "
                           "of the model, %zu", place, c->window, m->window);
        s->n_kv_heads = g->n_kv_heads;
    }
    c->n_kv_heads = m->n_kv_heads;
    return 0;
}

/* Reads the configuration and the headers of the weights, and checks them. */
static int open_headers(struct config *c, struct tensors *ts, enum weights *w, const char *place,
                        const struct model *m, struct err *e)
{
    if (!m->dev->host_memory)
        return err_set(e, ERR_INPUT, "%s: --drafter assistant is not supported on this device; --device cpu "
                                     "supports it", m->dev->name);
    if (config_read_any(c, place, e))
        return -1;
    if (!c->backbone)
        return err_set(e, ERR_INPUT, "--drafter: assistant:%s is a model, not a drafter of Gemma 4: "
                                     "model:%s drafts with it", place, place);
    if (fit(c, place, &m->config, e) || tensors_open(ts, place, e))
        return -1;
    const bool quantised = model_is_quantised(ts);
    *w = m->dev->quantised && !quantised ? WEIGHTS_Q8_0 : WEIGHTS_AS_IS;
    int rc = config_check_tensors(c, ts, e);
    if (rc == 0 && quantised && !m->dev->quantised)
        rc = err_set(e, ERR_INPUT, "--drafter: assistant:%s: its weights are quantised, and those of the "
                                   "model are not", place);
    if (rc == 0 && *w != WEIGHTS_AS_IS)
        rc = tensors_encode(ts, *w, c->tied, e);
    if (rc)
        tensors_close(ts);
    return rc;
}

static size_t output_bytes(const struct config *c) { return ASSISTANT_ROWS * c->backbone * sizeof(float); }

int assistant_check(const char *place, const struct model *m, bool int8, size_t *bytes, struct err *e)
{
    struct config *c = malloc(sizeof *c);
    struct tensors ts = { 0 };
    enum weights w;
    size_t weights = 0;
    if (!c)
        return err_set(e, ERR_FAILED, "%s: out of memory", place);
    int rc = open_headers(c, &ts, &w, place, m, e);
    if (rc == 0) {
        rc = model_plan_bytes(c, &ts, m->compute, m->dev, &weights, e);
        tensors_close(&ts);
    }
    if (rc == 0 && bytes)
        *bytes = draft_model_bytes(c, weights, output_bytes(c), m, int8, 0, 0);
    free(c);
    return rc;
}

int assistant_open(struct draft_model *t, const char *place, const struct model *m, bool int8, struct err *e)
{
    struct tensors ts = { 0 };
    struct config c;
    enum weights w;
    *t = (struct draft_model){ 0 };
    if (open_headers(&c, &ts, &w, place, m, e))
        return -1;
    tensors_close(&ts);
    if (draft_model_open(t, place, &c, w, output_bytes(&c), m, e))
        return -1;
    for (size_t l = 0; l < c.n_layers; l++)          /* they read the caches of m */
        t->own.layers[l].slot = source_of(&m->config, &c, l);
    t->own.head_dim = m->head_dim;
    if (draft_model_quantize(t, int8, e) == 0)
        return 0;
    draft_model_close(t);
    return -1;
}

/* ---- the pass ---- */

void assistant_input(const struct model *m, int32_t token, const float *h, float *input)
{
    const size_t d = m->config.hidden;
    model_embedding(m, token, input);
    for (size_t i = 0; i < d; i++)
        input[i] *= m->embed_scale;
    memcpy(input + d, h, d * sizeof *h);
}

int assistant_forward(struct draft_model *t, struct pass_seq *seqs, size_t n_seqs)
{
    const struct tap tap = { TAP_HIDDEN, 0, t->rows };
    struct err ignored;
    return model_forward(draft_model_of(t), t->work, seqs, n_seqs, &tap, 1, &ignored);
}
