/* What training of heads does in the same way on the CPU (train_heads.c) and on a GPU (train_heads_gpu.c):
 * random weights, scores, and the file. train_heads_impl.h declares it. */
#include "src/train/train_heads_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

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

/* Write the JSON header of a safetensors file with the heads, padded to a multiple of 8 bytes. */
static void write_header(FILE *f, const struct trainer *t, const char *note, const size_t *size)
{
    static const char *const norms[] = { "input_layernorm", "post_layernorm" };
    const size_t d = t->d, w_bytes = d * d * sizeof(uint16_t), g_bytes = d * sizeof(float);
    size_t at = 0;
    fprintf(f, "{\"__metadata__\":{\"kind\":\"%s\",\"hidden_size\":\"%zu\",\"vocab_size\":\"%zu\"",
            t->chained ? "chained" : "independent", d, t->m->config.vocab);
    fprintf(f, ",\"model\":\"%016llx\",\"training\":\"%s\"}",
            (unsigned long long)heads_fingerprint(t->m), note);
    for (size_t k = 0; k < t->n; k++, at += w_bytes)
        fprintf(f, ",\"heads.%zu.linear.weight\":{\"dtype\":\"BF16\",\"shape\":[%zu,%zu],"
                   "\"data_offsets\":[%zu,%zu]}", k, d, d, at, at + w_bytes);
    for (size_t k = 0; k < 2 * t->n; k++, at += g_bytes)
        fprintf(f, ",\"heads.%zu.%s.weight\":{\"dtype\":\"F32\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}",
                k / 2, norms[k % 2], d, at, at + g_bytes);
    fputc('}', f);
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
