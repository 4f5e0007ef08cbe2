/* Notices about a model and a prompt. Start at model_notices. */
#include "src/request/model_notices.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/output.h"
#include "src/model/config_tensors.h"
#include "src/model/gguf_model.h"

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
    if (config_unread_tensors(&g->config, &g->tensors, add_name, &l) || !l.n)
        return;
    request_notice(o, "%s: %zu %s not part of such a model and count for nothing: %s%s", g->dir, l.n,
                   plural(l.n, "tensor is", "tensors are"), l.text, l.n > NAMES_SHOWN ? ", .." : "");
}

void model_notices(const struct engine *g, const struct options *o)
{
    char text[400];
    if (o->quiet)
        return;
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
    struct gguf file;
    struct err ignored;
    int fd;
    if (gguf_open_first(&file, &fd, g->dir, &ignored))
        return;
    gguf_notice(text, sizeof text, &file, &g->config);
    if (*text)
        request_notice(o, "%s: %s", g->dir, text);
    gguf_close(&file);
    close(fd);
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
