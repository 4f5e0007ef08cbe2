/* The drafter that knows the text (oracle.h). */
#include "tests/oracle.h"

static void oracle_expand(struct decoder *d)
{
    const struct oracle *o = d->set.draft.added;
    const size_t vocab = d->model->config.vocab;
    const uint16_t cell = DRAFTER_ADDED * CELLS_PER_GUESS;
    uint32_t node = 0;
    for (size_t i = 0; o && i <= o->depth && d->n_tokens + i < o->n_tokens; i++) {
        const int32_t right = o->tokens[d->n_tokens + i];
        const int32_t wrong = (int32_t)(((size_t)right + 1 + i) % vocab);
        node = tree_add(d->round.tree, node, i < o->depth ? right : wrong, DRAFTER_ADDED, 0.99f, cell);
        if (!node)
            break;
    }
    if (d->set.draft.n_width && node)
        tree_chain(d->round.tree, node);
}

static size_t oracle_rows(const struct draft_settings *s, size_t n_text)
{
    (void)n_text;
    return s->added_rows;
}

static const struct drafter_ops oracle_ops = { .id = DRAFTER_ADDED, .name = "added",
                                               .rows = oracle_rows, .expand = oracle_expand };

__attribute__((constructor)) static void add_oracle(void) { drafters[DRAFTER_ADDED] = &oracle_ops; }
