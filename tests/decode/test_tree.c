/* The token tree against a naive one: a list of candidates, each with its whole path, its largest chance and
 * the product of those down from the root. Random proposals of small vocabularies, so that prefixes are
 * shared; chances with many ties. */
#include "src/decode/tree.h"
#include "tests/reference.h"
#include "tests/test.h"

/* ---- the naive tree: one entry per different path, in the order of first proposal ---- */

struct entry {
    int32_t path[TREE_DEPTH_MAX];
    size_t depth;
    unsigned sources;
    float p;
    uint16_t cell[N_DRAFTERS];
};
static struct entry list[TREE_POOL_MAX];
static size_t n_list;

static struct entry *find(const int32_t *path, size_t depth)
{
    for (size_t i = 0; i < n_list; i++)
        if (list[i].depth == depth && !memcmp(list[i].path, path, depth * sizeof *path)) return &list[i];
    return NULL;
}
static bool propose(const int32_t *parent, size_t depth, int32_t token, enum drafter source, float p,
                    uint16_t cell, size_t max_depth)
{
    int32_t path[TREE_DEPTH_MAX + 1];
    memcpy(path, parent, depth * sizeof *path);
    path[depth] = token;
    struct entry *x = find(path, depth + 1);
    p = p < 0 ? 0 : p > 1 ? 1 : p;
    if (!x) {
        if (n_list + 1 == TREE_POOL_MAX || depth + 1 > max_depth) return false;
        x = &list[n_list++];
        *x = (struct entry){ .depth = depth + 1, .p = p };
        memcpy(x->path, path, (depth + 1) * sizeof *path);
    }
    if (!(x->sources & 1u << source)) x->cell[source] = cell;
    x->sources |= 1u << source;
    if (p > x->p) x->p = p;
    return true;
}
static float reach_of(const struct entry *x)
{
    float reach = 1;
    for (size_t d = 1; d <= x->depth; d++) reach *= find(x->path, d)->p;
    return reach;
}

/* Whether the tree's pool is the list: node i + 1 is entry i. */
static bool same_pool(const struct tree *t)
{
    bool same = t->n == n_list + 1;
    for (size_t i = 1; same && i < t->n; i++) {
        const struct node *k = &t->node[i];
        const struct entry *x = &list[i - 1];
        int32_t path[TREE_DEPTH_MAX];
        tree_path(t, (uint32_t)i, path);
        same = k->depth == x->depth && k->parent < i && !memcmp(path, x->path, x->depth * sizeof *path) &&
               k->sources == x->sources && k->p == x->p && k->reach == reach_of(x) &&
               tree_child(t, k->parent, k->token) == i;
        for (size_t s = 0; s < N_DRAFTERS; s++)
            same &= !(x->sources >> s & 1) || k->cell[s] == x->cell[s];
    }
    return same;
}

/* The first `rows` - 1 entries by (reach descending, proposed first), in the order of proposal. */
static bool same_kept(const struct tree *t, size_t rows)
{
    static float reach[TREE_POOL_MAX];
    static bool keep[TREE_POOL_MAX];
    size_t want = MIN(MIN(rows, (size_t)TREE_ROWS_MAX) - 1, n_list), at = 1;
    for (size_t i = 0; i < n_list; i++) reach[i] = reach_of(&list[i]), keep[i] = false;
    for (size_t k = 0; k < want; k++) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < n_list; i++)
            if (!keep[i] && (best == SIZE_MAX || reach[i] > reach[best])) best = i;
        keep[best] = true;
    }
    if (t->n_kept != want + 1 || t->kept[0] != 0 || t->kept_parent[0] != -1 ||
        t->kept_token[0] != t->node[0].token)
        return false;
    for (size_t i = 0; i < n_list; i++)
        if (keep[i]) {
            int32_t up = t->kept_parent[at];
            if (t->kept[at] != i + 1 || t->kept_token[at] != t->node[i + 1].token || up < 0 ||
                (size_t)up >= at || t->kept[up] != t->node[i + 1].parent)
                return false; /* its parent is among the kept, and before it */
            at++;
        }
    return true;
}

static struct rng rng = { 5 };
static struct tree tree;

/* One proposal below a random node. ties: chances out of a few values. */
static void one_more(size_t vocab, bool ties, size_t max_depth)
{
    uint32_t parent =
        (uint32_t)rng_below(&rng, 3) ? (uint32_t)rng_below(&rng, tree.n) : (uint32_t)(tree.n - 1);
    int32_t token = (int32_t)rng_below(&rng, vocab), path[TREE_DEPTH_MAX];
    enum drafter s = (enum drafter)rng_below(&rng, N_DRAFTERS);
    float p =
        ties ? (float)rng_below(&rng, 5) / 4 : (float)rng_below(&rng, 1 << 20) / (1 << 20) * 1.2f - 0.1f;
    uint16_t cell = (uint16_t)rng_below(&rng, 500);
    size_t depth = tree.node[parent].depth;
    tree_path(&tree, parent, path);
    bool want = propose(path, depth, token, s, p, cell, max_depth);
    uint32_t got = tree_add(&tree, parent, token, s, p, cell);
    CHECK((got != 0) == want, "node %u", got);
    if (got) CHECK(tree.node[got].parent == parent && tree.node[got].token == token);
}

static void random_proposals_equal_the_naive_tree(void)
{
    for (size_t i = 0; i < 60 && !test_failed_; i++) {
        size_t n = 1 + rng_below(&rng, i % 10 == 9 ? 700 : 90), vocab = 2 + rng_below(&rng, 6),
               depth = i % 4 == 3 ? rng_below(&rng, 5) : 20;
        tree_start(&tree, 77, depth);
        n_list = 0;
        for (size_t k = 0; k < n; k++) one_more(vocab, i % 2, depth);
        CHECK(same_pool(&tree), "tree %zu", i);
        for (size_t rows = 1; rows <= n_list + 3 && !test_failed_;
             rows += 1 + (n_list > 100) * rng_below(&rng, 40)) {
            tree_keep(&tree, rows);
            CHECK(same_kept(&tree, rows), "tree %zu of %zu nodes, %zu rows", i, tree.n, rows);
        }
        float reach[TREE_POOL_MAX];
        CHECK(tree_reaches(&tree, reach) == n_list);
        double sum = 0;
        for (size_t k = 0; k < n_list; k++) {
            CHECK(k == 0 || reach[k] <= reach[k - 1]);
            sum += (double)reach[k] - reach_of(&list[k]);
        }
        CHECK(fabs(sum) < 1e-6, "other numbers: %g", sum);
    }
}

/* All chances equal: nodes are kept as they were proposed, and an ancestor is among them whatever the number
 * of rows. */
static void ties_go_to_the_first_proposed(void)
{
    tree_start(&tree, 1, 32);
    n_list = 0;
    for (size_t i = 0; i < 400; i++) one_more(3, true, 32);
    for (size_t i = 0; i < n_list; i++) {                /* every p is raised to 1 */
        int32_t path[TREE_DEPTH_MAX];
        uint32_t up = tree.node[i + 1].parent;
        tree_path(&tree, up, path);
        propose(path, tree.node[up].depth, tree.node[i + 1].token, DRAFTER_ADDED, 1, 3, 32);
        CHECK(tree_add(&tree, up, tree.node[i + 1].token, DRAFTER_ADDED, 1, 3) == i + 1);
    }
    CHECK(same_pool(&tree));
    for (size_t rows = 1; rows <= tree.n; rows++) {
        tree_keep(&tree, rows);
        for (size_t i = 0; i < rows; i++) CHECK(tree.kept[i] == i);
    }
}

/* A node that turns out likelier lifts everything below it, and may bring it into the kept set. */
static void a_raised_chance_reaches_down(void)
{
    tree_start(&tree, 1, 8);
    uint32_t a = tree_add(&tree, 0, 10, DRAFTER_NGRAM, 0.1f, 0),
             b = tree_add(&tree, a, 11, DRAFTER_NGRAM, 0.9f, 0);
    uint32_t c = tree_add(&tree, b, 12, DRAFTER_NGRAM, 0.5f, 0),
             d = tree_add(&tree, 0, 20, DRAFTER_HEADS, 0.3f, 0);
    tree_keep(&tree, 2);
    CHECK(tree.kept[1] == d);
    CHECK(tree_add(&tree, 0, 10, DRAFTER_PARTIAL, 0.8f, 5) == a &&
          tree.node[a].sources == (1u << DRAFTER_NGRAM | 1u << DRAFTER_PARTIAL));
    CHECK(tree.node[a].reach == 0.8f && tree.node[b].reach == 0.8f * 0.9f &&
          tree.node[c].reach == 0.8f * 0.9f * 0.5f);
    CHECK(tree_add(&tree, 0, 10, DRAFTER_SUFFIX, 0.2f, 0) == a && tree.node[a].p == 0.8f,
          "the largest counts");
    tree_keep(&tree, 4);
    CHECK(tree.n_kept == 4 && tree.kept[1] == a && tree.kept[2] == b && tree.kept[3] == c);
    CHECK(tree_is_chain(&tree));
    tree_keep(&tree, 5);
    CHECK(!tree_is_chain(&tree) && tree.kept_parent[4] == 0);
    CHECK(tree_add(&tree, 0, 30, DRAFTER_ADDED, 7, 0) && tree.node[5].p == 1, "clamped");
    CHECK(tree_add(&tree, 0, 31, DRAFTER_ADDED, -7, 0) && tree.node[6].p == 0);
}

static void limits(void)
{
    tree_start(&tree, 1, 0);
    CHECK(!tree_add(&tree, 0, 5, DRAFTER_ADDED, 1, 0) && tree.n == 1, "the text ends here");
    tree_keep(&tree, 100);
    CHECK(tree.n_kept == 1 && tree_is_chain(&tree));
    tree_start(&tree, 1, 1000);
    uint32_t at = 0;
    for (size_t d = 1; d <= TREE_DEPTH_MAX; d++)
        CHECK((at = tree_add(&tree, at, (int32_t)d, DRAFTER_ADDED, 1, 0)) == d);
    CHECK(!tree_add(&tree, at, 9, DRAFTER_ADDED, 1, 0), "as deep as it gets");
    for (int32_t i = 0; tree.n < TREE_POOL_MAX; i++)
        CHECK(tree_add(&tree, 0, 100 + i, DRAFTER_ADDED, 0.5f, 0) == tree.n - 1);
    CHECK(!tree_add(&tree, 0, 99, DRAFTER_ADDED, 1, 0) && tree.n == TREE_POOL_MAX, "full");
    CHECK(tree_add(&tree, 0, 100, DRAFTER_HEADS, 0.7f, 0) == TREE_DEPTH_MAX + 1,
          "one that is there is found in a full pool");
    tree_keep(&tree, 1000000);
    CHECK(tree.n_kept == TREE_ROWS_MAX && tree.kept[TREE_DEPTH_MAX] == TREE_DEPTH_MAX);
}

/* Chains end at the nodes they were told, internal ones and the same one twice included; too many are left
 * out. */
static void chains_are_kept_as_proposed(void)
{
    tree_start(&tree, 1, 8);
    uint32_t a = tree_add(&tree, 0, 1, DRAFTER_NGRAM, 0.5f, 0),
             b = tree_add(&tree, a, 2, DRAFTER_NGRAM, 0.5f, 0);
    const uint32_t want[] = { b, a, b };
    for (size_t i = 0; i < 3; i++) tree_chain(&tree, want[i]);
    CHECK(tree.n_chains == 3 && !memcmp(tree.chain, want, sizeof want));
    for (size_t i = 0; i < TREE_CHAINS_MAX; i++) tree_chain(&tree, a);
    CHECK(tree.n_chains == TREE_CHAINS_MAX);
    tree_start(&tree, 2, 8);
    CHECK(tree.n_chains == 0 && tree.n == 1 && tree.node[0].token == 2);
}

int main(void)
{
    RUN(random_proposals_equal_the_naive_tree);
    RUN(ties_go_to_the_first_proposed);
    RUN(a_raised_chance_reaches_down);
    RUN(limits);
    RUN(chains_are_kept_as_proposed);
    return test_end();
}
