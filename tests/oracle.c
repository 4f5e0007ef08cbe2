/* The drafter that knows the text (oracle.h). */
#include "tests/oracle.h"

static void propose_text(struct drafting *g)
{
    const struct oracle *o = g->set.added;
    const size_t vocab = g->model->config.vocab;
    const uint16_t cell = DRAFTER_ADDED * CELLS_PER_GUESS;
    uint32_t node = 0;
    for (size_t i = 0; o && i <= o->depth && g->n_tokens + i < o->n_tokens; i++) {
        const int32_t right = o->tokens[g->n_tokens + i];
        const int32_t wrong = (int32_t)(((size_t)right + 1 + i) % vocab);
        node = tree_add(g->tree, node, i < o->depth ? right : wrong, DRAFTER_ADDED, 0.99f, cell);
        if (!node)
            break;
    }
    if (g->set.n_width && node)
        tree_chain(g->tree, node);
}

static int oracle_expand(struct drafting *const *g, size_t n, bool *more, struct err *e)
{
    (void)e;
    for (size_t i = 0; i < n; i++) {
        more[i] = false;
        propose_text(g[i]);
    }
    return 0;
}

static void oracle_observe(struct drafting *g, const struct observed *o) { (void)g, (void)o; }

static size_t oracle_rows(const struct draft_settings *s, size_t n_text)
{
    (void)n_text;
    return s->added_rows;
}

static const struct drafter_ops oracle_ops = { .id = DRAFTER_ADDED, .name = "added", .tokenswift = true,
                                               .rows = oracle_rows, .expand = oracle_expand,
                                               .observe = oracle_observe };

__attribute__((constructor)) static void add_oracle(void) { drafters[DRAFTER_ADDED] = &oracle_ops; }
