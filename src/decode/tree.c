/* The token tree of a round (tree.h): adding candidates, and keeping the likeliest. Start reading at
 * tree_add(). */
#include "src/decode/tree.h"
#include "src/sample/sampling.h"

_Static_assert((int)TREE_DEPTH_MAX <= (int)SAMPLE_PATH_MAX, "the sampler accepts every path of the tree");

void tree_start(struct tree *t, int32_t root, size_t max_depth)
{
    t->n = 1;
    t->n_kept = t->n_chains = 0;
    t->max_depth = MIN(max_depth, (size_t)TREE_DEPTH_MAX);
    t->node[0] = (struct node){ .token = root, .p = 1, .reach = 1 };
}

uint32_t tree_child(const struct tree *t, uint32_t parent, int32_t token)
{
    uint32_t i = t->node[parent].first;
    while (i && t->node[i].token != token)
        i = t->node[i].next;
    return i;
}

uint32_t tree_best_child(const struct tree *t, uint32_t parent)
{
    uint32_t best = 0;
    for (uint32_t c = t->node[parent].first; c; c = t->node[c].next)
        if (!best || t->node[c].p > t->node[best].p)
            best = c;
    return best;
}

/* The chance of a node grew: updates the reach of its subtree. */
static void reach_down(struct tree *t, uint32_t i)
{
    t->node[i].reach = t->node[t->node[i].parent].reach * t->node[i].p;
    for (uint32_t c = t->node[i].first; c; c = t->node[c].next)
        reach_down(t, c);
}

uint32_t tree_add(struct tree *t, uint32_t parent, int32_t token, enum drafter source, float p, uint16_t cell)
{
    assert(parent < t->n);
    p = p < 0 ? 0 : p > 1 ? 1 : p;
    uint32_t i = tree_child(t, parent, token);
    if (!i) {
        if (t->n == TREE_POOL_MAX || t->node[parent].depth == t->max_depth)
            return 0;
        i = (uint32_t)t->n++;
        t->node[i] = (struct node){ .token = token, .parent = parent, .depth = t->node[parent].depth + 1,
                                    .p = -1 };
        uint32_t *last = &t->node[parent].first;     /* siblings in the order of proposal */
        while (*last)
            last = &t->node[*last].next;
        *last = i;
    }
    struct node *n = &t->node[i];
    if (!(n->sources >> source & 1)) {
        n->sources |= 1u << source;
        n->cell[source] = cell;
    }
    if (p > n->p) {
        n->p = p;
        reach_down(t, i);
    }
    return i;
}

void tree_chain(struct tree *t, uint32_t node)
{
    if (t->n_chains < TREE_CHAINS_MAX)
        t->chain[t->n_chains++] = node;
}

size_t tree_reaches(const struct tree *t, float *reach)
{
    /* Shell sort: tens of nodes, rarely thousands */
    static const size_t gap[] = { 301, 132, 57, 23, 10, 4, 1 };
    const size_t n = t->n - 1;
    for (size_t i = 0; i < n; i++)
        reach[i] = t->node[i + 1].reach;
    for (size_t g = 0; g < sizeof gap / sizeof *gap; g++)
        for (size_t i = gap[g]; i < n; i++) {
            float x = reach[i];
            size_t j = i;
            for (; j >= gap[g] && reach[j - gap[g]] < x; j -= gap[g])
                reach[j] = reach[j - gap[g]];
            reach[j] = x;
        }
    return n;
}

void tree_keep(struct tree *t, size_t rows)
{
    float reach[TREE_POOL_MAX];
    assert(rows >= 1);
    size_t n = tree_reaches(t, reach), want = MIN(MIN(rows, (size_t)TREE_ROWS_MAX) - 1, n);
    float bar = want ? reach[want - 1] : 2;
    size_t above = 0, ties;
    for (size_t i = 0; i < want; i++)
        above += reach[i] > bar;
    ties = want - above;
    t->n_kept = 0;
    for (size_t i = 0; i < t->n; i++) {
        struct node *k = &t->node[i];
        k->row = -1;
        /* of equal nodes the first; an ancestor has at least the reach of its descendants and stands before
         * them */
        if (i > 0 && !(k->reach > bar) && !(k->reach == bar && ties > 0))
            continue;
        if (i > 0 && t->node[k->parent].row < 0)
            continue;
        if (i > 0 && k->reach == bar)
            ties--;
        t->kept[t->n_kept] = (uint32_t)i;
        t->kept_token[t->n_kept] = k->token;
        t->kept_parent[t->n_kept] = i ? t->node[k->parent].row : -1;
        k->row = (int32_t)t->n_kept++;
    }
}

void tree_path(const struct tree *t, uint32_t node, int32_t *path)
{
    for (; node; node = t->node[node].parent)
        path[t->node[node].depth - 1] = t->node[node].token;
}

bool tree_is_chain(const struct tree *t)
{
    for (size_t i = 1; i < t->n_kept; i++)
        if (t->kept_parent[i] != (int32_t)i - 1)
            return false;
    return true;
}
