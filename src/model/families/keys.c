/* Keys of models, read and written as their tables say. Start at keys_read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/model/families/family.h"

bool in_list(const char *const *list, const char *word)
{
    while (list && *list && strcmp(*list, word))
        list++;
    return list && *list;
}

double family_missing(const struct family *f, const char *key, double otherwise)
{
    for (const struct missing *m = f->missing; m && m->key; m++)
        if (strcmp(m->key, key) == 0)
            return m->value;
    return otherwise;
}

bool has_key(const struct key *k, const char *key)
{
    while (k && (k->hf || k->gguf) && !(k->hf && strcmp(k->hf, key) == 0) &&
           !(k->gguf && strcmp(k->gguf, key) == 0))
        k++;
    return k && (k->hf || k->gguf);
}

bool family_reads(const struct family *f, const char *key)
{
    bool reads = in_list(f->reads, key) || has_key(f->yarn_keys, key);
    for (size_t i = 0; i < SECTIONS; i++)
        reads |= f->section[i] && has_key(f->section[i]->keys, key);
    return reads;
}

static void *field_of(const struct config *c, const struct key *k) { return (char *)(uintptr_t)c + k->field; }

/* ---- config.json -> struct config ---- */

static int read_size_key(const struct reading *r, const struct key *k, double missing)
{
    struct json v;
    size_t *x = field_of(r->c, k);
    const double hi = k->hi == HI_HEADS ? (double)r->c->n_heads : k->hi == HI_EXPERTS ? EXPERTS_MAX : k->hi;
    const int found = (k->rules & NULLS && missing == 0 ? get_value : js_get)(r->root, k->hf, &v, r->e);
    if (found == 0 && !(k->rules & KEEPS))
        *x = (size_t)missing;
    if (found == 1 && k->rules & NULL_ZERO && is_null(&v)) {
        *x = 0;
        return 0;
    }
    return found == 1 ? js_size(&v, k->lo > 0, (size_t)hi, x, r->e) : found;
}

int keys_read(const struct reading *r, const struct key *k)
{
    for (; k && (k->hf || k->gguf); k++) {
        if (!k->hf || k->rules & UNREAD)
            continue;
        const double missing = family_missing(r->f, k->hf, k->missing);
        void *x = field_of(r->c, k);
        if (k->kind == KEY_SIZE   ? read_size_key(r, k, missing)
            : k->kind == KEY_REAL ? get_real(r->root, k->hf, missing, k->lo, k->hi, x, r->e)
                                  : get_bool(r->root, k->hf, missing != 0, x, r->e))
            return -1;
    }
    return 0;
}

/* ---- GGUF -> struct config ---- */

const char *gguf_key(char key[KEY_BYTES], const struct family *f, const char *name)
{
    snprintf(key, KEY_BYTES, "%s.%s", f->gguf, name);
    return key;
}

int read_uint(const struct getting *m, const char *name, size_t layers, size_t lo, size_t hi, size_t *x)
{
    return gguf_uint(m->g, KEY(m, name), layers, lo, hi, x, m->e);
}

int need_uint(const struct getting *m, const char *name, size_t layers, size_t hi, size_t *x)
{
    return gguf_need(m->g, KEY(m, name), read_uint(m, name, layers, 1, hi, x), m->e);
}

int read_real(const struct getting *m, const char *name, double lo, double hi, double *x)
{
    return gguf_real(m->g, KEY(m, name), lo, hi, x, m->e);
}

int keys_get(const struct getting *m, const struct key *k)
{
    for (; k && (k->hf || k->gguf); k++) {
        void *x = field_of(m->c, k);
        const bool needed = k->rules & NEEDED;
        const double lo = k->rules & NONZERO && !needed && k->kind == KEY_SIZE ? 0 : k->lo,
                     hi = k->hi == HI_HEADS     ? (double)m->c->n_heads
                          : k->hi == HI_EXPERTS ? (double)m->c->n_experts
                                                : k->hi;
        if (!k->gguf || in_list(m->f->reads, k->gguf))
            continue;
        if (k->kind == KEY_SIZE)
            *(size_t *)x = 0;
        else
            *(double *)x = k->missing;
        const int found = k->kind == KEY_SIZE ? read_uint(m, k->gguf, k->rules & EACH ? m->blocks : 0,
                                                          (size_t)lo, (size_t)hi, x)
                                              : read_real(m, k->gguf, lo, hi, x);
        if (found < 0 || (needed && gguf_need(m->g, KEY(m, k->gguf), found, m->e)))
            return -1;
    }
    return 0;
}

/* ---- struct config -> config.json ---- */

void write_float(struct json_writer *w, const char *key, double x)
{
    char text[40];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtof(text, NULL) == (float)x)
            break;
    }
    jw_raw(w, key, text, strlen(text));
}

static double value_of(const struct config *c, const struct key *k)
{
    const void *x = field_of(c, k);
    return k->kind == KEY_SIZE   ? (double)*(const size_t *)x
           : k->kind == KEY_REAL ? *(const double *)x
                                 : *(const bool *)x;
}

void keys_write(const struct writing *w, const struct key *k)
{
    for (; k && (k->hf || k->gguf); k++) {
        const double x = value_of(w->c, k);
        if (!k->hf || k->rules & UNWRITTEN || (k->rules & NONZERO && x == 0))
            continue;
        if (k->kind == KEY_SIZE)
            jw_uint(w->w, k->hf, (uint64_t)x);
        else if (k->kind == KEY_REAL)
            write_float(w->w, k->hf, x);
        else
            jw_bool(w->w, k->hf, x != 0);
    }
}

/* ---- struct config -> GGUF ---- */

void put_uint(const struct putting *p, const char *name, size_t x)
{
    gguf_put_uint(p->o, KEY(p, name), x);
}

void put_real(const struct putting *p, const char *name, double x)
{
    gguf_put_real(p->o, KEY(p, name), x);
}

void put_text(const struct putting *p, const char *name, const char *s)
{
    gguf_put_text(p->o, KEY(p, name), s, strlen(s));
}

int put_lacks(const struct putting *p, const char *what)
{
    return err_set(p->e, ERR_INPUT, "config.json: %s cannot be written to a GGUF file", what);
}

void keys_put(const struct putting *p, const struct key *k)
{
    for (; k && (k->hf || k->gguf); k++) {
        const double x = value_of(p->c, k);
        if (!k->gguf || in_list(p->f->reads, k->gguf) || (k->rules & NONZERO && x == 0))
            continue;
        if (k->kind == KEY_SIZE)
            put_uint(p, k->gguf, (size_t)x + (k->field == offsetof(struct config, n_layers) && p->drafts));
        else
            put_real(p, k->gguf, x);
    }
}
