/* Owns the prompts of the spec points: texts that copy, made from templates, and beginnings of files. Start
 * at spec_prompts. */
#include "src/base/input.h"
#include "src/base/memory_file.h"
#include "tests/labbench/spec.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- texts that copy, equal on every machine ----
 * A text repeats `item`, and begins every `per_chapter` items with `chapter`. In both, # is a number from 1
 * on; `a|b` stands for one of the words, drawn anew for each item; $0 and $1 repeat the first and second
 * word. */

static const struct copied { const char *name; size_t per_chapter; const char *chapter, *item; } copied[] = {
    { "a list", SIZE_MAX, "An inventory of the goods of the house, taken room by room.\n\n",
      "No. #. One `candle|blanket|lantern|barrel of salt|length of rope|copper kettle|sack of flour|iron "
      "nail`, kept in `the upper store|the lower store|the cellar|the boat house`, `in good order|worn|to be "
      "mended|sold`; entered in the book by the steward.\n" },
    { "a play", 40, "\nSCENE #. A hall in the castle. Night.\n\n",
      "`|||[Enter a servant with a lantern.]\n|[They listen. A knock within.]\n``THE CAPTAIN|THE WIDOW|FIRST "
      "SERVANT|SECOND SERVANT`. `Who comes there at this hour of the night?|It is only the wind, my lord, it "
      "is only the wind.|I tell you that I heard a step upon the stair.|Shall I bring the lantern, my lord?|"
      "Bring the lantern, and be quick about it.|There is nobody here; there is nobody at all.|Then who was "
      "it that knocked three times at the door?`\n" },
    { "code", SIZE_MAX, "",
      "int `box|shelf|crate|cart`_set_`width|height|depth|weight|length|count`(struct $0 *self, int $1)\n{\n"
      "    if (self == NULL)\n        return -1;\n    if ($1 < 0)\n        return -1;\n"
      "    self->$1 = $1;\n    return 0;\n}\n\n"
      "int $0_get_$1(const struct $0 *self)\n{\n"
      "    if (self == NULL)\n        return -1;\n    return self->$1;\n}\n\n" },
};

static void write_item(FILE *f, const char *p, size_t number, uint64_t *random)
{
    struct slice word[4], *last = word;
    for (; *p; p++) {
        const struct slice *out = NULL;
        if (*p == '#')
            fprintf(f, "%zu", number);
        else if (*p == '$')
            out = &word[*++p - '0'];
        else if (*p == '`') {
            const char *end = strchr(p + 1, '`');
            size_t n = 1;
            for (const char *q = p; q < end; q++)
                n += *q == '|';
            *random = *random * 6364136223846793005u + 1442695040888963407u;
            for (n = (*random >> 33) % n, p++; n; n--)
                p = strchr(p, '|') + 1;
            *last = (struct slice){ p, strcspn(p, "|`") };
            out = last++;
            p = end;
        } else
            fputc(*p, f);
        if (out)
            fwrite(out->p, 1, out->n, f);
    }
}

/* ---- texts to tokens ---- */

/* Appends tokens to a text until it has n of them, with the drafting of auto and the sampling of the run. */
static int write_on(struct spec *s, int32_t *tokens, size_t have, size_t n, struct err *e)
{
    struct decoder d;
    struct decode_setup setup = { .weights[DRAFTER_HEADS] = s->engine.weights[DRAFTER_HEADS],
                                  .draft_model = engine_has_int8(&s->engine) };
    draft_defaults(&setup.draft);
    if (decode_open(&d, &s->engine.model, &s->sampling, &setup, tokens, have, n, e))
        return -1;
    int rc = decode_prefill(&d, 0, NULL, NULL, e);
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
    int32_t *grown;
    size_t have;
    if (s->n_texts == SPEC_TEXTS_MAX)
        return err_set(e, ERR_INPUT, "bench: more than %d texts", SPEC_TEXTS_MAX);
    struct spec_text *t = &s->text[s->n_texts++];
    snprintf(t->name, sizeof t->name, "%.63s", name);
    if (tokenizer_encode(s->engine.tokenizer, &t->prompt, &have, text, bytes, true, e))
        return -1;
    if (!(grown = realloc(t->prompt, MAX(n, have) * sizeof *grown + 1)))
        return err_set(e, ERR_FAILED, "bench: out of memory for a prompt of %zu tokens", n);
    t->prompt = grown;
    if (have == 0)
        return err_set(e, ERR_INPUT, "%s: no tokens", name);
    t->n_prompt = n;
    return have < n ? write_on(s, t->prompt, have, n, e) : 0;
}

static int copy_prompts(struct spec *s, struct err *e)
{
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        const struct copied *c = &copied[i];
        char *text = NULL;
        size_t n = 0, want = s->point.prompt[i % s->n_prompts];
        uint64_t random = 20261120 + i;
        FILE *f = memory_file(&text, &n);
        /* no tokenizer averages more bytes a token */
        for (size_t k = 0; f && fflush(f) == 0 && n < 8 * want; k++) {
            if (k % c->per_chapter == 0)
                write_item(f, c->chapter, k / c->per_chapter + 1, &random);
            write_item(f, c->item, k + 1, &random);
        }
        int rc = !f || stream_end(f) ? err_set(e, ERR_FAILED, "bench: out of memory")
                                     : add_prompt(s, c->name, text, n, want, e);
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
int spec_prompts(struct spec *s, struct err *e)
{
    const enum spec_kind kind = s->point.kind;
    const struct text_list *data = &s->o->data;
    char dir[PATH_BYTES + 16], path[PATH_BYTES + 300];
    struct dirent **found = NULL;
    int n_found = 0, rc = 0;
    if (kind == SPEC_COPY)
        return copy_prompts(s, e);
    snprintf(dir, sizeof dir, "%s/openings", s->engine.dir);
    if (!data->n && (n_found = scandir(dir, &found, name_is_text, alphasort)) <= 0)
        return err_set(e, ERR_INPUT, "bench: %s has no texts; --data FILES names texts", dir);
    const size_t n = data->n + (size_t)n_found, rows = s->full ? n : 1,
                 texts = s->full || kind == SPEC_LONG ? s->n_prompts
                         : kind == SPEC_SHORT         ? MIN(n, (size_t)3)
                                                      : 1;
    for (size_t i = 0; i < rows * texts && rc == 0; i++) {
        const size_t k = (s->full ? i / texts : i) % n;
        if (found)
            snprintf(path, sizeof path, "%s/%s", dir, found[k]->d_name);
        rc = file_prompt(s, found ? path : data->v[k], s->point.prompt[i % texts % s->n_prompts], e);
    }
    while (n_found)
        free(found[--n_found]);
    free(found);
    return rc;
}
