/* Owns the prompts of the spec points: texts that copy, made by three small generators, and beginnings of
 * files. Start at spec_prompts. */
#include "src/base/input.h"
#include "src/bench/bench_spec.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts that copy, equal on every machine ---- */

struct words { FILE *f; uint64_t random; };      /* a text in progress */

static size_t random_below(struct words *w, size_t n)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (size_t)(w->random >> 33) % n;
}

#define PICK(w, list) list[random_below(w, sizeof list / sizeof *list)]

static void write_list(struct words *w, size_t bytes)
{
    static const char *const thing[] = { "candle", "blanket", "lantern", "barrel of salt", "length of rope",
                                         "copper kettle", "sack of flour", "iron nail" };
    static const char *const place[] = { "the upper store", "the lower store", "the cellar",
                                         "the boat house" };
    static const char *const state[] = { "in good order", "worn", "to be mended", "sold" };
    fputs("An inventory of the goods of the house, taken room by room.\n\n", w->f);
    for (size_t i = 1; (size_t)ftell(w->f) < bytes; i++)
        fprintf(w->f, "No. %zu. One %s, kept in %s, %s; entered in the book by the steward.\n", i,
                PICK(w, thing), PICK(w, place), PICK(w, state));
}

static void write_play(struct words *w, size_t bytes)
{
    static const char *const who[] = { "THE CAPTAIN", "THE WIDOW", "FIRST SERVANT", "SECOND SERVANT" };
    static const char *const line[] = { "Who comes there at this hour of the night?",
                                        "It is only the wind, my lord, it is only the wind.",
                                        "I tell you that I heard a step upon the stair.",
                                        "Shall I bring the lantern, my lord?",
                                        "Bring the lantern, and be quick about it.",
                                        "There is nobody here; there is nobody at all.",
                                        "Then who was it that knocked three times at the door?" };
    static const char *const act[] = { "", "", "", "[Enter a servant with a lantern.]\n",
                                       "[They listen. A knock within.]\n" };
    for (size_t i = 0; (size_t)ftell(w->f) < bytes; i++) {
        if (i % 40 == 0)
            fprintf(w->f, "\nSCENE %zu. A hall in the castle. Night.\n\n", i / 40 + 1);
        fprintf(w->f, "%s%s. %s\n", PICK(w, act), PICK(w, who), PICK(w, line));
    }
}

static void write_code(struct words *w, size_t bytes)
{
    static const char *const field[] = { "width", "height", "depth", "weight", "length", "count" };
    static const char *const kind[] = { "box", "shelf", "crate", "cart" };
    for (size_t i = 0; (size_t)ftell(w->f) < bytes; i++) {
        const char *k = PICK(w, kind), *f = PICK(w, field);
        fprintf(w->f,
                "int %s_set_%s(struct %s *self, int %s)\n{\n"
                "    if (self == NULL)\n        return -1;\n    if (%s < 0)\n        return -1;\n"
                "    self->%s = %s;\n    return 0;\n}\n\n"
                "int %s_get_%s(const struct %s *self)\n{\n"
                "    if (self == NULL)\n        return -1;\n    return self->%s;\n}\n\n",
                k, f, k, f, f, f, f, k, f, k, f);
    }
}

/* ---- texts to tokens ---- */

static struct spec_text *add_text(struct spec *s, const char *name, struct err *e)
{
    if (s->n_texts == SPEC_TEXTS_MAX) {
        err_set(e, ERR_INPUT, "bench: more than %d texts", SPEC_TEXTS_MAX);
        return NULL;
    }
    struct spec_text *t = &s->text[s->n_texts++];
    snprintf(t->name, sizeof t->name, "%.63s", name);
    return t;
}

/* Appends tokens to a text until it has n of them, with the drafting of auto and the sampling of the run. */
static int write_on(struct spec *s, int32_t *tokens, size_t have, size_t n, struct err *e)
{
    struct decoder d;
    struct decode_setup setup = { .heads = s->engine.heads.n ? &s->engine.heads : NULL,
                                  .draft_model = s->engine.int8.mem ? &s->engine.int8 : NULL };
    draft_defaults(&setup.draft);
    if (decode_open(&d, &s->engine.model, &s->sampling, &setup, tokens, have, n, e))
        return -1;
    int rc = decode_prefill(&d, NULL, NULL, e);
    while (rc == 0 && d.n_tokens < n)
        rc = decode_step(&d, e);
    memcpy(tokens, d.tokens, d.n_tokens * sizeof *tokens);
    decode_close(&d);
    return rc;
}

/* The first n tokens of a text. The model continues a shorter text. */
static int add_prompt(struct spec *s, const char *name, const char *text, size_t bytes, size_t n,
                     struct err *e)
{
    int32_t *ids, *grown;
    size_t have;
    struct spec_text *t = add_text(s, name, e);
    if (!t || tokenizer_encode(s->engine.tokenizer, &ids, &have, text, bytes, true, e))
        return -1;
    grown = realloc(ids, MAX(n, have) * sizeof *ids + 1);
    t->prompt = grown ? grown : ids;
    if (!grown)
        return err_set(e, ERR_FAILED, "bench: out of memory for a prompt of %zu tokens", n);
    if (have == 0)
        return err_set(e, ERR_INPUT, "%s: no tokens", name);
    t->n_prompt = n;
    return have < n ? write_on(s, t->prompt, have, n, e) : 0;
}

static int copy_prompts(struct spec *s, struct err *e)
{
    static const struct { const char *name; void (*write)(struct words *, size_t); } kinds[] = {
        { "a list", write_list }, { "a play", write_play }, { "code", write_code },
    };
    for (size_t i = 0; i < 3; i++) {
        char *text = NULL;
        size_t n = 0, want = s->point.prompt[i % s->n_prompts];
        struct words w = { open_memstream(&text, &n), 20261120 + i };
        if (!w.f)
            return err_set(e, ERR_FAILED, "bench: out of memory");
        kinds[i].write(&w, 8 * want);                /* no tokenizer averages more bytes a token */
        if (fclose(w.f))
            return err_set(e, ERR_FAILED, "bench: out of memory");
        int rc = add_prompt(s, kinds[i].name, text, n, want, e);
        free(text);
        if (rc)
            return -1;
    }
    return 0;
}

static int file_prompt(struct spec *s, const char *path, size_t n, struct err *e)
{
    char *text;
    size_t bytes;
    const char *base = strrchr(path, '/');
    if (text_read_utf8(&text, &bytes, path, e))
        return -1;
    int rc = add_prompt(s, base ? base + 1 : path, text, bytes, n, e);
    free(text);
    return rc;
}

static int name_is_text(const struct dirent *d)
{
    size_t n = strlen(d->d_name);
    return n > 4 && strcmp(d->d_name + n - 4, ".txt") == 0;
}

/* Each prompt length with a file of its own; with `full`, every length with every file. The short point: up
 * to three files. */
static int file_prompts(struct spec *s, const char *const *path, size_t n, struct err *e)
{
    const size_t rows = s->full ? n : 1, texts = s->full                 ? s->n_prompts
                                               : s->point.kind == SPEC_LONG  ? s->n_prompts
                                               : s->point.kind == SPEC_SHORT ? MIN(n, (size_t)3)
                                                                       : 1;
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < texts; i++)
            if (file_prompt(s, path[(s->full ? r : i) % n], s->point.prompt[i % s->n_prompts], e))
                return -1;
    return 0;
}

int spec_prompts(struct spec *s, struct err *e)
{
    char dir[PATH_BYTES + 16];
    struct dirent **found;
    if (s->point.kind == SPEC_COPY)
        return copy_prompts(s, e);
    if (s->o->data.n)
        return file_prompts(s, s->o->data.v, s->o->data.n, e);
    snprintf(dir, sizeof dir, "%s/openings", s->engine.dir);
    int n = scandir(dir, &found, name_is_text, alphasort);
    if (n <= 0)
        return err_set(e, ERR_INPUT, "bench: %s has no texts; --data FILES names texts", dir);
    char (*path)[PATH_BYTES + 280] = calloc((size_t)n, sizeof *path);
    const char **list = calloc((size_t)n, sizeof *list);
    int rc = path && list ? 0 : err_set(e, ERR_FAILED, "bench: out of memory");
    for (int i = 0; i < n; i++) {
        if (!rc) {
            snprintf(path[i], sizeof *path, "%s/%s", dir, found[i]->d_name);
            list[i] = path[i];
        }
        free(found[i]);
    }
    free(found);
    rc = rc ? rc : file_prompts(s, list, (size_t)n, e);
    free(path);
    free(list);
    return rc;
}
