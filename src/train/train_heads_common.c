/* What training of heads does in the same way on the CPU (train_heads.c) and on a GPU (train_heads_gpu.c):
 * random weights, scores, and the file. train_heads_impl.h declares it; start there. */
#include "src/train/train_heads_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "src/model/heads.h"

/* ---- weights ---- */

/* The next uniform number in (0, 1), by splitmix64. */
static double uniform(uint64_t *s)
{
    uint64_t z = *s += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return ((double)((z ^ z >> 31) >> 11) + 0.5) * 0x1p-53;
}

void train_heads_random(struct module *u)
{
    const struct trainer *t = u->self;
    uint64_t s = t->seed;
    for (size_t i = 0; i < u->n_matrix; i++)
        u->w[i] = (float)(0.02 * sqrt(-2 * log(uniform(&s))) * cos(6.283185307179586 * uniform(&s)));
    for (size_t i = u->n_matrix; i < u->n_params; i++)
        u->w[i] = 1;
}

/* ---- scores ---- */

void train_heads_score(const struct trainer *t, const struct train_window *win, size_t r0, size_t rows,
                       const struct xent *loss, struct train_score *score)
{
    for (size_t j = 0; j < t->n * rows; j++) {
        const size_t k = j / rows;
        const struct xent *x = &loss[j];
        if (r0 + j % rows >= positions(win, k))
            continue;
        score[k].n++;
        score[k].loss += log((double)x->sum) + ((double)x->top - (double)x->at);
        score[k].top1 += x->above < 1;
        score[k].top3 += x->above < 3;
    }
}

/* ---- saving ---- */

/* Writes the entry of heads.K.NAME.weight: d x d numbers of type BF16, or with dims 1 d floats. */
static void put_tensor(struct json_writer *w, size_t k, const char *name, size_t dims, size_t d, size_t at,
                       size_t bytes)
{
    char key[64];
    snprintf(key, sizeof key, "heads.%zu.%s.weight", k, name);
    jw_open(w, key, '{');
    jw_text(w, "dtype", dims == 2 ? "BF16" : "F32");
    jw_open(w, "shape", '[');
    for (size_t i = 0; i < dims; i++)
        jw_uint(w, NULL, d);
    jw_close(w, ']');
    jw_open(w, "data_offsets", '[');
    jw_uint(w, NULL, at);
    jw_uint(w, NULL, at + bytes);
    jw_close(w, ']');
    jw_close(w, '}');
}

/* Write the JSON header of a safetensors file with the heads, padded to a multiple of 8 bytes. */
static void write_header(FILE *f, const struct trainer *t, const char *note, const size_t *size)
{
    static const char *const norms[] = { "input_layernorm", "post_layernorm" };
    const size_t d = t->d, w_bytes = d * d * sizeof(uint16_t), g_bytes = d * sizeof(float);
    struct json_writer w = { .f = f, .style = JW_COMPACT };
    size_t at = 0;
    jw_open(&w, NULL, '{');
    jw_open(&w, "__metadata__", '{');                /* its values must be strings */
    jw_text(&w, "kind", t->chained ? "chained" : "independent");
    jw_format(&w, "hidden_size", "\"%zu\"", d);
    jw_format(&w, "vocab_size", "\"%zu\"", t->m->config.vocab);
    jw_format(&w, "model", "\"%016" PRIx64 "\"", heads_fingerprint(t->m));
    jw_text(&w, "training", note);
    jw_close(&w, '}');
    for (size_t k = 0; k < t->n; k++, at += w_bytes)
        put_tensor(&w, k, "linear", 2, d, at, w_bytes);
    for (size_t k = 0; k < 2 * t->n; k++, at += g_bytes)
        put_tensor(&w, k / 2, norms[k % 2], 1, d, at, g_bytes);
    jw_close(&w, '}');
    while (fflush(f) == 0 && *size % 8)
        fputc(' ', f);
}

int train_heads_save(const struct module *u, const char *path, const char *note, struct err *e)
{
    const struct trainer *t = u->self;
    const size_t w_bytes = t->n * t->d * t->d * sizeof(uint16_t), g_bytes = 2 * t->n * t->d * sizeof(float);
    char *header = NULL;
    size_t size = 0;
    uint16_t *w = malloc(w_bytes);
    FILE *f = memory_file(&header, &size);
    if (w && f)
        write_header(f, t, note, &size);
    const bool written = f && stream_end(f) == 0;
    int rc;
    if (w && written) {
        unsigned char length[8];
        for (int i = 0; i < 8; i++)
            length[i] = (unsigned char)(size >> 8 * i);
        for (size_t i = 0; i < u->n_matrix; i++)
            w[i] = f32_to_bf16(u->w[i]);
        const struct slice part[] = { { length, 8 }, { header, size }, { w, w_bytes },
                                      { u->w + u->n_matrix, g_bytes } };
        rc = file_write(path, part, 4, e);
    } else {
        rc = err_set(e, ERR_FAILED, "%s: out of memory", path);
    }
    free(header);
    free(w);
    return rc;
}
