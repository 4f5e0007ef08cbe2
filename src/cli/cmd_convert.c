/* longhand convert: a Hugging Face directory becomes a GGUF file. struct convert holds the call; start at
 * cmd_convert. Threads read and encode slabs of rows; the slabs are written in order. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/pool.h"
#include "src/base/output.h"
#include "src/base/stopping.h"
#include "src/cli/verbs.h"
#include "src/model/config_tensors.h"
#include "src/model/encode.h"
#include "src/model/families/family.h"
#include "src/model/gguf_form.h"
#include "src/model/gguf_model.h"
#include "src/model/gguf_write.h"
#include "src/model/views.h"
#include "src/request/model_options.h"
#include "src/text/chat.h"
#include "src/text/tokenizer_gguf.h"

enum { SLAB_BYTES = 4 << 20, FILE_MAX = 128 << 20 };

/* A tensor of the model; the experts of a layer follow each other in one tensor of the file, and so do the
 * parts of joined tensors (views.h). rows: of the tensor of the file. ends: its bytes, if it ends
 * here; 0: it goes on. */
struct piece { const struct tensor *t; size_t experts, rows, ends; };
/* A tensor of the configuration: divisors of frequencies. */
struct extra { const char *name; const float *x; };
enum { EXTRAS_MAX = 2 };
struct slab { const struct tensor *t; size_t row, rows, ends; bool failed; struct err e; };

struct convert {
    const struct options *o;
    char dir[PATH_BYTES];
    struct config config;
    struct tensors ts;
    struct tokenizer *tokenizer;
    float divisor[HEAD_DIM_MAX / 2]; bool has_divisor;
    struct extra extra[EXTRAS_MAX]; size_t n_extras;
    struct gguf_out out;
    struct piece *piece; size_t n_pieces;
    struct pool *pool;
    struct slab *slab; char *room;       /* [threads]; [threads][SLAB_BYTES] */
    struct sink sink;
    struct progress progress;
    size_t done;
};

/* ---- the header ---- */

/* A hybrid may have a layer that drafts (MTP). */
static bool has_draft_layer(const struct convert *c)
{
    return config_is_hybrid(&c->config) && tensors_find(&c->ts, "mtp.fc.weight");
}

static void name_in_file(const struct convert *c, char *to, size_t size, const char *name)
{
    family_gguf_name(to, size, name, c->config.family, c->config.n_layers);
}

/* Tensors without a name in GGUF, such as drafting heads, and a second copy of tied weights stay out. */
static bool is_used(const struct convert *c, const struct tensor *t)
{
    char name[TENSOR_NAME_SHOWN] = "";
    name_in_file(c, name, sizeof name, t->name);
    return *name && !(c->config.tied && strcmp(t->name, "lm_head.weight") == 0);
}

/* Lists the parts of a joined tensor. */
static int list_joined(struct convert *c, const struct tensor *first, const char *const *part, size_t n,
                       struct err *e)
{
    const char *s = strstr(first->name, part[0]);
    size_t rows = 0, bytes = 0;
    for (size_t k = 0; k < n; k++) {
        char name[TENSOR_NAME_SHOWN];
        snprintf(name, sizeof name, "%.*s%s%s", (int)(s - first->name), first->name, part[k],
                 s + strlen(part[0]));
        const struct tensor *t = tensors_find(&c->ts, name);
        if (!t)
            return err_set(e, ERR_INPUT, "%s: tensor \"%s\" is missing", c->ts.path[first->shard], name);
        rows += t->dim[0];
        bytes += t->bytes;
        c->piece[c->n_pieces++] = (struct piece){ t, 0, rows, k + 1 == n ? bytes : 0 };
    }
    return 0;
}

/* Lists the pieces in the order of the file. */
static int list_pieces(struct convert *c, struct err *e)
{
    static const char first[] = ".mlp.experts.0.", any[] = ".mlp.experts.";
    const bool joins = c->config.family->joined;
    c->piece = malloc((c->ts.n + 1) * sizeof *c->piece);
    if (!c->piece)
        return err_set(e, ERR_FAILED, "out of memory for a list of %zu tensors", c->ts.n);
    for (size_t i = 0; i < c->ts.n; i++) {
        const struct tensor *t = &c->ts.t[i];
        const char *at = strstr(t->name, first), *part[JOINED_MAX];
        const size_t n = at ? c->config.n_experts : 1, parts = joins ? joined_parts(t->name, part) : 0;
        if (!is_used(c, t) || (!at && strstr(t->name, any)) || (joins && joined_follows(t->name)))
            continue;
        if (parts && list_joined(c, t, part, parts, e))
            return -1;
        if (parts)
            continue;
        if (!t->bytes)
            return err_set(e, ERR_INPUT, "%s: tensor \"%s\" has no elements", c->ts.path[t->shard], t->name);
        for (size_t k = 0; k < n; k++) {
            char name[TENSOR_NAME_SHOWN];
            snprintf(name, sizeof name, "%.*s%s%zu.%s", at ? (int)(at - t->name) : 0, t->name, any, k,
                     at ? at + strlen(first) : "");
            const struct tensor *x = at ? tensors_find(&c->ts, name) : t;
            if (!x || x->n_dims != t->n_dims || memcmp(x->dim, t->dim, t->n_dims * sizeof *t->dim))
                return err_set(e, ERR_INPUT, "%s: tensor \"%s\" is missing or has another shape than %s",
                               c->ts.path[t->shard], name, t->name);
            c->piece[c->n_pieces++] =
                (struct piece){ x, at ? n : 0, t->dim[0], k + 1 == n ? n * t->bytes : 0 };
        }
    }
    return 0;
}

static int put_texts(struct convert *c, struct err *e)
{
    char path[PATH_BYTES + 40], *json, *generation, *chat;
    size_t n, n_generation;
    if (model_file_read(&json, &n, path, sizeof path, c->dir, "tokenizer.json", FILE_MAX, e))
        return -1;
    int rc = tokenizer_put_gguf(&c->out, c->tokenizer, json, n, c->config.vocab, e);
    free(json);
    if (rc || model_file_read(&generation, &n_generation, path, sizeof path, c->dir, "generation_config.json",
                              FILE_MAX, e))
        return -1;
    if (generation)
        gguf_put_text(&c->out, "longhand.generation_config", generation, n_generation);
    free(generation);
    if (chat_template_text(&chat, c->dir, e))
        return -1;
    if (chat)
        gguf_put_text(&c->out, "tokenizer.chat_template", chat, strlen(chat));
    free(chat);
    return 0;
}

static int put_tensors(struct convert *c, struct err *e)
{
    const struct gguf_type *f32 = gguf_types;
    for (size_t i = 0; i < c->n_pieces; i++) {
        const struct tensor *t = c->piece[i].t;
        const size_t experts = c->piece[i].experts;
        char name[TENSOR_NAME_SHOWN] = "";
        size_t dim[GGUF_DIMS_MAX];
        if (!c->piece[i].ends)
            continue;
        name_in_file(c, name, sizeof name, t->name);
        if (strlen(name) > GGUF_NAME_MAX || t->n_dims < 1 || t->n_dims > 2)
            return err_set(e, ERR_INPUT, "%s: tensor \"%s\": %zu dimensions, allowed are 1 and 2",
                           c->ts.path[t->shard], t->name, t->n_dims);
        for (size_t k = 0; k < t->n_dims; k++)
            dim[k] = t->dim[t->n_dims - 1 - k];
        dim[t->n_dims - 1] = c->piece[i].rows;
        dim[t->n_dims] = experts;
        /* a vector in the file */
        const bool row = t->n_dims == 2 && strstr(t->name, ".shared_expert_gate.");
        gguf_put_tensor(&c->out, name, dim, t->n_dims - row + (experts > 0), t->encoded);
    }
    if (c->has_divisor)
        c->extra[c->n_extras++] = (struct extra){ "rope_freqs.weight", c->divisor };
    if (c->config.rope.type == ROPE_LONG) {
        c->extra[c->n_extras++] = (struct extra){ "rope_factors_long.weight", c->config.rope.divisor };
        c->extra[c->n_extras++] = (struct extra){ "rope_factors_short.weight", c->config.rope.short_divisor };
    }
    for (size_t i = 0; i < c->n_extras; i++)
        gguf_put_tensor(&c->out, c->extra[i].name, &(size_t){ c->config.rotary / 2 }, 1, f32);
    return 0;
}

/* ---- the data ---- */

/* Rows that a slab may end after. A vector is one row. */
static size_t rows_of(const struct tensor *t) { return t->n_dims == 2 ? t->dim[0] : 1; }

/* Reads and encodes the rows of a slab, in the form that GGUF has (gguf_form.h). */
static void encode_slab(void *ctx, size_t i, size_t thread)
{
    struct convert *c = ctx;
    struct slab *s = &c->slab[i];
    char *to = c->room + i * SLAB_BYTES;
    (void)thread;
    s->failed = gguf_form_read(&c->ts, s->t, &c->config, to, s->row, s->rows, &s->e) != 0;
}

static int write_padding(struct convert *c, size_t n, struct err *e)
{
    static const char zeros[GGUF_PAD];
    return sink_write(&c->sink, zeros, gguf_padded(n) - n, e);
}

static int write_slabs(struct convert *c, size_t n, struct err *e)
{
    pool_run(c->pool, n, encode_slab, c);
    for (size_t i = 0; i < n; i++) {
        const struct tensor *t = c->slab[i].t;
        const size_t rows = rows_of(t), bytes = c->slab[i].rows * (t->bytes / rows);
        if (c->slab[i].failed) {
            *e = c->slab[i].e;
            return -1;
        }
        if (sink_write(&c->sink, c->room + i * SLAB_BYTES, bytes, e) ||
            (c->slab[i].row + c->slab[i].rows == rows && c->slab[i].ends &&
             write_padding(c, c->slab[i].ends, e)))
            return -1;
        c->done += bytes;
    }
    progress_at(&c->progress, c->done);
    return stop_signal
               ? err_set(e, ERR_AGAIN, "stopped by %s before the file was complete", stop_signal_name())
               : 0;
}

static int write_data(struct convert *c, struct err *e)
{
    const size_t threads = pool_threads(c->pool);
    size_t n = 0;
    for (size_t i = 0; i < c->n_pieces; i++) {
        const struct tensor *t = c->piece[i].t;
        const size_t rows = rows_of(t), row = t->bytes / rows, some = SLAB_BYTES / row;
        if (some == 0)
            return err_set(e, ERR_INPUT, "tensor \"%s\": rows of %zu bytes, at most %d are allowed", t->name,
                           row, SLAB_BYTES);
        for (size_t r = 0; r < rows; r += some) {
            c->slab[n++] = (struct slab){ .t = t, .row = r, .rows = MIN(some, rows - r),
                                            .ends = c->piece[i].ends };
            if (n == threads && write_slabs(c, n, e))
                return -1;
            n = n == threads ? 0 : n;
        }
    }
    if (n && write_slabs(c, n, e))
        return -1;
    const size_t bytes = c->config.rotary / 2 * sizeof *c->divisor;
    for (size_t i = 0; i < c->n_extras; i++)
        if (sink_write(&c->sink, c->extra[i].x, bytes, e) || write_padding(c, bytes, e))
            return -1;
    return 0;
}

/* ---- the call ---- */

static int write_file(struct convert *c, struct err *e)
{
    char *header;
    size_t n;
    const size_t threads = pool_threads(c->pool);
    c->slab = calloc(threads, sizeof *c->slab);
    c->room = malloc(threads * SLAB_BYTES);
    if (!c->slab || !c->room)
        return err_set(e, ERR_FAILED, "out of memory for %zu threads", threads);
    if (gguf_out_header(&c->out, &header, &n, e))
        return -1;
    progress_phase(&c->progress, "converting", "bytes", c->out.data_bytes);
    int rc = sink_write(&c->sink, header, n, e) || write_data(c, e) ? -1 : 0;
    free(header);
    progress_clear(&c->progress);
    return rc || sink_finish(&c->sink, e) ? -1 : 0;
}

/* The EOS of a GGUF file is that of the tokenizer. The ids of config.json end a text, too. */
static void put_eos_first(struct config *c, int32_t eos)
{
    size_t i = 0;
    while (i < c->n_eos && c->eos[i] != eos)
        i++;
    if (eos < 0 || i == CONFIG_EOS_MAX)
        return;
    c->n_eos = MAX(c->n_eos, i + 1);
    memmove(c->eos + 1, c->eos, i * sizeof *c->eos);
    c->eos[0] = eos;
}

static int open_model(struct convert *c, struct err *e)
{
    /* as the option lists them */
    static const enum weights of[] = { WEIGHTS_BF16, WEIGHTS_Q8_0, WEIGHTS_Q4_0 };
    if (model_dir(c->dir, c->o, e))
        return -1;
    if (model_is_file(c->dir))
        return err_set(e, ERR_INPUT,
                       "--model: %s is a GGUF file already; convert takes a Hugging Face directory", c->dir);
    if (config_read(&c->config, c->dir, e) || tensors_open(&c->ts, c->dir, e) ||
        config_check_tensors(&c->config, &c->ts, e) ||
        tokenizer_open(&c->tokenizer, c->dir, c->config.vocab, e) ||
        tensors_encode(&c->ts, of[c->o->convert_weights], c->config.tied, e))
        return -1;
    /* A GGUF file has one BOS, which begins every text. config.json may name another one. */
    const int32_t bos = tokenizer_bos(c->tokenizer);
    c->config.bos = bos >= 0 ? bos : c->config.bos;
    put_eos_first(&c->config, tokenizer_eos(c->tokenizer, c->dir));
    return 0;
}

int cmd_convert(const struct options *o, struct err *e)
{
    struct convert c = { .o = o };
    if (!o->output || strcmp(o->output, "-") == 0)
        return err_set(e, ERR_INPUT, "convert: -o FILE.gguf is missing");
    stop_signals_catch();
    progress_open(&c.progress, o->progress, o->quiet);
    int rc = open_model(&c, e) || gguf_out_open(&c.out, e) ? -1 : 0;
    if (rc == 0)
        rc = gguf_put_config(&c.out, &c.config, has_draft_layer(&c), c.divisor, &c.has_divisor, e) ||
             put_texts(&c, e) || list_pieces(&c, e) || put_tensors(&c, e) ? -1 : 0;
    if (rc == 0 && !(c.pool = pool_open(o->threads ? o->threads : pool_default_threads())))
        rc = err_set(e, ERR_FAILED, "--threads: cannot start the threads");
    if (rc == 0 && (rc = sink_open(&c.sink, o->output, e)) == 0 && (rc = write_file(&c, e)) != 0) {
        unlink(c.sink.temporary);
        sink_abandon(&c.sink);
    }
    if (c.pool)
        pool_close(c.pool);
    gguf_out_close(&c.out);
    tokenizer_close(c.tokenizer);
    tensors_close(&c.ts);
    free(c.piece);
    free(c.slab);
    free(c.room);
    return rc;
}
