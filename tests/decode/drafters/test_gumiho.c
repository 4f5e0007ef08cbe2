/* Gumiho's drafter: its logits against PyTorch's, what candidates and heads see, its trees, and that its
 * state after many rounds and after a snapshot drafts what a state made from tokens drafts. And that the
 * published full-tree attention, which longhand leaves out, changes the text. */
#include "src/decode/decode.h"
#include "src/model/safetensors.h"
#include "tests/drafter_rig.h"
#include "tests/kv_exchange.h"
#include "tests/tiny_model.h"

static const struct tiny shape = { "gumiho-gqa", "llama", 48, 56, 4, 2, 16, 97, 3, 0, DT_F32, true, 0 };
enum { BEAM = 4, PROMPT = 30 };

static void cache_open(struct kv *kv, const struct rig *r, size_t n)
{
    struct err e = { 0 };
    const struct kv_size size = { r->dev->kv_type, GUMIHO_LAYERS, r->c.n_kv_heads, r->m.head_dim, n,
                                  BEAM, 0 };
    if (kv_open(kv, r->dev, &size, &e)) rig_die("cache", &e);
}

static float *fixture(const struct tensors *ts, const char *name)
{
    struct err e = { 0 };
    const struct tensor *t = tensors_find(ts, name);
    float *v = t ? must_alloc(t->bytes) : NULL;
    if (!t || t->dtype != DT_F32 || tensors_read(ts, t, v, 0, t->bytes, &e)) rig_die(name, &e);
    return v;
}

static double difference(const float *got, const float *want, size_t n)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++) worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
    return worst;
}

/* tests/make/make_gumiho_fixture.py. The pairs are read in two passes. */
static void logits_equal_those_of_pytorch(void)
{
    enum { N = 40, FIRST = 25, D = 32 };
    static const char path[] = "tests/data/gumiho_fixture.safetensors";
    struct rig r;
    struct gumiho g;
    struct tensors ts = { 0 };
    struct kv kv;
    struct err e = { 0 };
    int32_t token[N + 4];
    float hat[3][D];
    rig_open(&r, "build/data/models/llama2-bf16", DT_F32, best_twin(), 2, 64, 1024);
    if (drafter_open(&g.file, &gumiho_kind, path, &r.m, false, &e) || tensors_open_file(&ts, path, &e))
        rig_die(path, &e);
    const size_t vocab = r.c.vocab;
    float *tokens = fixture(&ts, "fixture.token"), *state = fixture(&ts, "fixture.state"),
          *serial = fixture(&ts, "fixture.serial"), *heads = fixture(&ts, "fixture.heads"),
          *got = must_alloc(10 * vocab * sizeof *got);
    for (size_t i = 0; i < N + 4; i++) token[i] = (int32_t)tokens[i];
    cache_open(&kv, &r, N);
    const struct gumiho_seq seq[] = {
        { .own = &kv, .n = FIRST, .token = token, .state = state, .step = D },
        { .own = &kv, .n = N - FIRST, .token = token + FIRST, .state = state + FIRST * D, .step = D,
          .out = hat[0] },
        { .own = &kv, .n = 2, .token = token + N, .state = hat[0], .candidates = true, .out = hat[1] },
    };
    const struct mat *head = &r.m.lm_head;
    CHECK(gumiho_serial(&g, NULL, &seq[0], 1, NULL) == 0 && gumiho_serial(&g, head, &seq[1], 1, got) == 0 &&
          gumiho_serial(&g, head, &seq[2], 1, got + vocab) == 0 && kv.n_past == N);
    const double worst = difference(got, serial, 3 * vocab);
    const struct gumiho_branch branch[2] = { { { hat[0], hat[1] }, { token[N], token[N + 2] } },
                                             { { hat[0], hat[2] }, { token[N + 1], token[N + 3] } } };
    CHECK(gumiho_heads(&g, head, branch, 2, GUMIHO_HEADS, got) == 0);
    const double worst_heads = difference(got, heads, 10 * vocab);
    printf("    largest difference %.2g, of the heads %.2g\n", worst, worst_heads);
    CHECK(worst <= 1e-3 && worst_heads <= 1e-3, "%g, %g", worst, worst_heads);
    free(tokens), free(state), free(serial), free(heads), free(got);
    kv_close(&kv), drafter_close(&g.file, &gumiho_kind), tensors_close(&ts), rig_close(&r);
}

static void open_tiny(struct rig *r, struct gumiho *g, enum dtype compute, bool int8)
{
    char dir[4096];
    tiny_write(&shape, dir);
    rig_open(r, dir, compute, best_twin(), 2, 256, 700);
    tiny_remove(dir);
    gumiho_rig_open(g, r, int8, 3);
}
static void close_tiny(struct rig *r, struct gumiho *g)
{
    drafter_close(&g->file, &gumiho_kind);
    rig_close(r);
}

/* Candidates of one depth do not see each other, nor do texts of one pass, and a head's guess depends on both
 * tokens of its path: all have the bits of passes of their own. */
static void candidates_and_texts_do_not_mix(void)
{
    enum { D = 48, V = 97 };
    struct rig r;
    struct gumiho g;
    struct kv kv[2];
    static float state[2][9 * D], hat[2][D], below[2][BEAM * D], alone[D], logits[2 * BEAM * V], one[5 * V],
        heads[4 * 5 * V];
    struct rng rng = { 5 };
    int32_t token[16];
    open_tiny(&r, &g, DT_BF16, true);
    rig_tokens(token, 16, V, 2);
    struct gumiho_seq first[2], second[2];
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < 9 * D; k++) state[i][k] = rng_normal(&rng);
        cache_open(&kv[i], &r, 64);
        first[i] = (struct gumiho_seq){ .own = &kv[i], .first = 100 * i, .n = 5 + 4 * i, .token = token + i,
                                        .state = state[i], .step = D, .out = hat[i] };
        second[i] = (struct gumiho_seq){ .own = &kv[i], .first = 100 * i, .n = BEAM, .token = token + 9 - i,
                                         .state = hat[i], .candidates = true, .out = below[i] };
    }
    CHECK(gumiho_serial(&g, &r.m.lm_head, first, 2, logits) == 0);
    for (size_t i = 0; i < 2; i++) {
        struct gumiho_seq x = first[i];
        kv_truncate(&kv[i], 0);
        x.out = alone;
        CHECK(gumiho_serial(&g, &r.m.lm_head, &x, 1, one) == 0);
        CHECK(!memcmp(alone, hat[i], sizeof alone) && !memcmp(one, logits + i * V, V * 4), "text %zu", i);
    }
    CHECK(gumiho_serial(&g, &r.m.lm_head, second, 2, logits) == 0);
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < BEAM; k++) {
            struct gumiho_seq x = second[i];
            x.n = 1, x.token += k, x.out = alone;
            CHECK(gumiho_serial(&g, &r.m.lm_head, &x, 1, one) == 0);
            CHECK(!memcmp(alone, below[i] + k * D, sizeof alone) &&
                  !memcmp(one, logits + (i * BEAM + k) * V, V * 4), "text %zu, candidate %zu", i, k);
        }
    /* the same second token after two first ones, and the other way round */
    const struct gumiho_branch branch[4] = { { { hat[0], below[0] }, { token[9], 7 } },
                                             { { hat[0], below[0] }, { token[10], 7 } },
                                             { { hat[0], below[0] }, { token[9], 8 } },
                                             { { hat[0], below[0] }, { token[9], 7 } } };
    CHECK(gumiho_heads(&g, &r.m.lm_head, branch, 4, 5, heads) == 0);
    for (size_t k = 1; k < 4; k++)
        CHECK((memcmp(heads, heads + k * 5 * V, 5 * V * 4) == 0) == (k == 3), "branch %zu", k);
    CHECK(gumiho_heads(&g, &r.m.lm_head, branch + 1, 1, 2, one) == 0);
    CHECK(!memcmp(one, heads + 5 * V, 2 * V * 4), "fewer heads and branches");
    for (size_t i = 0; i < 2; i++) kv_close(&kv[i]);
    close_tiny(&r, &g);
}

/* A cache that drops old rows keeps the bytes of the others. */
static void the_last_rows_move_to_the_front(void)
{
    enum { N = 200, KEEP = 77, D = 48 };
    struct rig r;
    struct gumiho g;
    struct kv kv;
    static float state[N * D];
    int32_t token[N];
    struct rng rng = { 8 };
    open_tiny(&r, &g, DT_BF16, false);
    rig_tokens(token, N, r.c.vocab, 2);
    for (size_t k = 0; k < N * D; k++) state[k] = rng_normal(&rng);
    cache_open(&kv, &r, N);
    for (size_t i = 0; i < N; i += 40) {
        const struct gumiho_seq x = { .own = &kv, .n = 40, .token = token + i, .state = state + i * D,
                                      .step = D };
        CHECK(gumiho_serial(&g, NULL, &x, 1, NULL) == 0);
    }
    const size_t bytes = kv_rows_bytes(&kv, KEEP);
    char *before = must_alloc(bytes), *after = must_alloc(bytes);
    kv_exchange(&kv, N - KEEP, KEEP, before, false);
    kv_keep_last(&kv, KEEP);
    kv_exchange(&kv, 0, KEEP, after, false);
    CHECK(kv.n_past == KEEP && !memcmp(before, after, bytes));
    kv_exchange(&kv, 9, KEEP, before, true);
    kv_exchange(&kv, 9, KEEP, after, false);
    CHECK(!memcmp(before, after, bytes));
    free(before), free(after);
    kv_close(&kv);
    close_tiny(&r, &g);
}

static void decoder_open_at(struct decoder *d, const struct rig *r, struct gumiho *g, const int32_t *token,
                            size_t n, bool planned, double temperature)
{
    static const size_t width[] = { 2, 2, 1, 1, 1 };
    struct sampling p;
    struct decode_setup x = { .weights[DRAFTER_GUMIHO] = g };
    struct err e = { 0 };
    draft_defaults(&x.draft);
    sampling_defaults(&p);
    p.text_max = 600, p.temperature = temperature;
    x.draft.drafters = 1u << DRAFTER_GUMIHO;
    x.draft.n_width = planned ? 0 : 5, x.draft.draft_passes = planned ? 3 : -1;
    memcpy(x.draft.width, width, sizeof width);
    if (decode_open(d, &r->m, &p, &x, token, n, 600, &e) || decode_prefill(d, 0, NULL, NULL, &e))
        rig_die("decoder", &e);
}

static void decoder_open(struct decoder *d, const struct rig *r, struct gumiho *g, const int32_t *token,
                         size_t n, bool planned)
{
    decoder_open_at(d, r, g, token, n, planned, 1.2);
}

static int32_t largest(const float *logits, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++) best = logits[i] > logits[best] ? i : best;
    return (int32_t)best;
}

/* At temperature 0, the tree of the first round against passes of the drafter for one path at a time: the
 * guess below a path of two is that of the heads after both of its tokens, the parent's and its own. */
static void guesses_after(struct rig *r, struct gumiho *g, const int32_t *token, size_t *paths, size_t *other)
{
    enum { N = PROMPT, D = 48, V = 97 };
    struct decoder d;
    struct kv target, own;
    struct err e = { 0 };
    static float hidden[N * D], last[V], hat[D], below[D], logits[5 * V];
    decoder_open_at(&d, r, g, token, N, false, 0);
    CHECK(decode_step(&d, &e) == 0, "%s", e.msg);
    const struct tree *t = d.round.tree;
    rig_kv(r, &target, N, 0);
    const struct tap tap = { TAP_HIDDEN, 0, hidden };
    struct pass_seq pass = { .kv = &target, .n = N - 1, .token = token, .logits = last };
    if (model_forward(&r->m, r->w, &pass, 1, &tap, 1, &e)) rig_die("pass", &e);
    cache_open(&own, r, N);
    const struct gumiho_seq pairs = { .own = &own, .n = N - 1, .token = token + 1, .state = hidden, .step = D,
                                      .out = hat };
    CHECK(gumiho_serial(g, &r->m.lm_head, &pairs, 1, logits) == 0);
    CHECK(tree_child(t, 0, largest(logits, V)));
    for (uint32_t i = 1; i < t->n; i++) {
        const struct node *x = &t->node[i], *parent = &t->node[x->parent];
        if (x->depth != 2)
            continue;
        const struct gumiho_seq one = { .own = &own, .n = 1, .token = &parent->token, .state = hat,
                                        .candidates = true, .out = below };
        CHECK(gumiho_serial(g, &r->m.lm_head, &one, 1, logits) == 0);
        CHECK(tree_child(t, x->parent, largest(logits, V)), "node %u", i);
        const struct gumiho_branch branch = { { hat, below }, { parent->token, x->token } };
        CHECK(gumiho_heads(g, &r->m.lm_head, &branch, 1, 3, logits) == 0);
        uint32_t at = i;
        for (size_t k = 0; k < 3 && at; k++)
            CHECK((at = tree_child(t, at, largest(logits + k * V, V))) != 0, "node %u, head %zu", i, k);
        const uint32_t sibling = parent->next ? parent->next : t->node[0].first;
        struct gumiho_branch wrong = branch;
        wrong.token[0] = t->node[sibling].token;
        CHECK(gumiho_heads(g, &r->m.lm_head, &wrong, 1, 3, logits) == 0);
        at = i;
        for (size_t k = 0; k < 3 && at; k++) at = tree_child(t, at, largest(logits + k * V, V));
        *other += !at;
        ++*paths;
    }
    kv_close(&target), kv_close(&own);
    decode_close(&d);
}
static void guesses_follow_their_own_path(void)
{
    enum { TEXTS = 8 };
    struct rig r;
    struct gumiho g;
    int32_t token[PROMPT];
    size_t paths = 0, other = 0;
    open_tiny(&r, &g, DT_BF16, true);
    for (size_t i = 0; i < TEXTS; i++) {
        rig_tokens(token, PROMPT, r.c.vocab, 4 + i);
        guesses_after(&r, &g, token, &paths, &other);
    }
    CHECK(paths == 4 * TEXTS && other > 3, "%zu paths, %zu depend on the parent's token", paths, other);
    close_tiny(&r, &g);
}

/* Candidates of tree a that are in tree b. */
static size_t shared(const struct tree *a, const struct tree *b)
{
    size_t n = 0;
    for (uint32_t i = 1; i < a->n; i++) {
        int32_t path[TREE_DEPTH_MAX];
        uint32_t at = 0;
        tree_path(a, i, path);
        for (size_t k = 0; k < a->node[i].depth && (k == 0 || at); k++) at = tree_child(b, at, path[k]);
        n += at != 0;
    }
    return n;
}

/* A decoder that wrote a text, one that read it, and one with the saved state of the first draft the same. */
static void drafts_follow_from_tokens(void)
{
    struct rig r;
    struct gumiho g;
    struct decoder d, x;
    struct err e = { 0 };
    int32_t token[30];
    size_t compared = 0;
    open_tiny(&r, &g, DT_BF16, true);
    rig_tokens(token, 30, r.c.vocab, 4);
    decoder_open(&d, &r, &g, token, 30, false);
    char *state = must_alloc(drafter_gumiho.snapshot.bytes(&d));
    for (size_t round = 0; d.n_tokens < 560; round++) {
        const bool now = round % 40 == 39;
        if (now) {
            decoder_open(&x, &r, &g, d.tokens, d.n_tokens, false);
            const size_t n = drafter_gumiho.snapshot.save(&d, state);
            CHECK(n > 1000, "%zu bytes", n);
            if (round % 80 == 39) {
                drafter_gumiho.reset(&x);
                CHECK(!drafter_gumiho.passes->prepare(&x) &&
                      !drafter_gumiho.snapshot.load(&x, state, n - 1) &&
                      drafter_gumiho.snapshot.load(&x, state, n));
            }
            CHECK(decode_step(&x, &e) == 0, "%s", e.msg);
        }
        CHECK(decode_step(&d, &e) == 0, "%s", e.msg);
        if (now) {
            const struct tree *t = d.round.tree;
            CHECK(t->n == 1 + 2 + 4 * 4 && x.round.tree->n == t->n && shared(t, x.round.tree) == t->n - 1,
                  "round %zu: %zu and %zu nodes, %zu shared", round, t->n, x.round.tree->n,
                  shared(t, x.round.tree));
            decode_close(&x);
            compared++;
        }
    }
    CHECK(compared > 5, "%zu", compared);
    free(state);
    decode_close(&d);
    close_tiny(&r, &g);
}

/* What the planner keeps of a tree is closed under ancestors; the five heads guess below two candidates. */
static void trees_are_reranked(void)
{
    struct rig r;
    struct gumiho g;
    struct decoder d;
    struct err e = { 0 };
    int32_t token[30];
    size_t deepest = 0, rows = 0;
    open_tiny(&r, &g, DT_BF16, true);
    rig_tokens(token, 30, r.c.vocab, 4);
    decoder_open(&d, &r, &g, token, 30, true);
    while (d.n_tokens < 590) {
        CHECK(decode_step(&d, &e) == 0, "%s", e.msg);
        const struct tree *t = d.round.tree;
        for (size_t i = 1; i < t->n_kept; i++) {
            const struct node *k = &t->node[t->kept[i]];
            CHECK(t->kept_parent[i] >= 0 && t->kept[t->kept_parent[i]] == k->parent);
        }
        for (size_t i = 1; i < t->n; i++) deepest = MAX(deepest, (size_t)t->node[i].depth);
        rows = MAX(rows, t->n_kept);
    }
    printf("    depth %zu, at most %zu rows\n", deepest, rows);
    CHECK(deepest > 2 && deepest <= 2 + GUMIHO_HEADS && rows > 3);
    decode_close(&d);
    close_tiny(&r, &g);
}

/* ---- the published full-tree attention (drafters.md, C4) ---- */

enum { FTA_NODES = 12, FTA_DEPTH = 4, FTA_TEXT = 300, FTA_VOCAB = 97 };
struct fta_tree { int32_t token[FTA_NODES], parent[FTA_NODES]; size_t depth[FTA_NODES]; };

static bool fta_has_child(const struct fta_tree *t, int32_t parent, int32_t token)
{
    for (size_t i = 1; i < FTA_NODES; i++)
        if (t->parent[i] == parent && (token < 0 || t->token[i] == token)) return true;
    return false;
}

/* A tree as heads make it: every other node of a depth has the right token of its depth, whatever tokens are
 * above it. next: the text after the root. */
static void fta_grow(struct fta_tree *t, int32_t root, const int32_t *next, struct rng *rng)
{
    memset(t, 0, sizeof *t);
    t->token[0] = root;
    for (size_t i = 0; i < FTA_NODES; i++) t->parent[i] = -1;
    for (size_t i = 1; i < FTA_NODES; i++) {
        size_t of = rng_below(rng, i);
        while (t->depth[of] == FTA_DEPTH) of = (size_t)t->parent[of];
        const size_t depth = t->depth[of] + 1;
        int32_t token = rng_below(rng, 2) ? next[depth - 1] : (int32_t)rng_below(rng, FTA_VOCAB);
        while (fta_has_child(t, (int32_t)of, token)) token = (token + 1) % FTA_VOCAB;
        t->parent[i] = (int32_t)of, t->token[i] = token, t->depth[i] = depth;
    }
}

/* The exact walk: the target's own tokens down the tree. Returns their number. */
static size_t fta_exact(const struct fta_tree *t, const float *logits, int32_t *out)
{
    for (size_t n = 0, at = 0;; n++) {
        const int32_t token = out[n] = largest(logits + at * FTA_VOCAB, FTA_VOCAB);
        size_t i = 1;
        while (i < FTA_NODES && !(t->parent[i] == (int32_t)at && t->token[i] == token)) i++;
        if (i == FTA_NODES) return n + 1;
        at = i;
    }
}

/* The published walk: a path that ends early goes on with the node of each further depth that most paths
 * have. The path with the most tokens that its nodes' own logits agree with wins. */
static size_t fta_published(const struct fta_tree *t, const float *logits, int32_t *out)
{
    size_t path[FTA_NODES][FTA_DEPTH + 1] = { 0 }, usual[FTA_DEPTH + 1] = { 0 }, n_paths = 0, deepest = 0,
           best = 0;
    size_t seen[FTA_NODES] = { 0 };
    for (size_t leaf = 1; leaf < FTA_NODES; leaf++) {
        if (fta_has_child(t, (int32_t)leaf, -1)) continue;
        for (size_t i = leaf; i; i = (size_t)t->parent[i]) path[n_paths][t->depth[i]] = i, seen[i]++;
        deepest = MAX(deepest, t->depth[leaf]);
        n_paths++;
    }
    for (size_t i = 1; i < FTA_NODES; i++)
        if (seen[i] > seen[usual[t->depth[i]]] || !usual[t->depth[i]]) usual[t->depth[i]] = i;
    for (size_t p = 0; p < n_paths; p++) {
        size_t n = 0;
        for (size_t k = 1; k <= deepest; k++)
            if (!path[p][k]) path[p][k] = usual[k];
        while (n < deepest &&
               t->token[path[p][n + 1]] == largest(logits + path[p][n] * FTA_VOCAB, FTA_VOCAB)) n++;
        if (n + 1 <= best) continue;
        best = n + 1;
        for (size_t k = 0; k < best; k++) out[k] = largest(logits + path[p][k] * FTA_VOCAB, FTA_VOCAB);
    }
    return best;
}

/* At temperature 0, after beginnings of one text: the exact walk gives the tokens of plain decoding, and the
 * published one does not, because a borrowed node was computed under other tokens. So longhand leaves it
 * out. */
static void published_full_tree_attention_changes_the_text(void)
{
    struct rig r;
    struct gumiho g;
    struct kv kv;
    static float logits[FTA_NODES * FTA_VOCAB];
    int32_t text[FTA_TEXT], plain[FTA_DEPTH + 1], exact[FTA_DEPTH + 1], published[FTA_DEPTH + 1];
    struct rng rng = { 21 };
    size_t wrong = 0, exact_wrong = 0, exact_tokens = 0, tokens = 0;
    open_tiny(&r, &g, DT_BF16, false);
    rig_kv(&r, &kv, FTA_TEXT + FTA_DEPTH + 1, FTA_NODES);
    rig_tokens(text, FTA_TEXT, FTA_VOCAB, 6);
    for (size_t p = 0; p < FTA_TEXT; p++) {
        struct fta_tree t;
        for (size_t k = 0; k <= FTA_DEPTH; k++) {
            rig_run(&r, &kv, k ? &plain[k - 1] : &text[p], 1, 1, NULL, logits);
            plain[k] = largest(logits, FTA_VOCAB);
        }
        kv_truncate(&kv, p);
        fta_grow(&t, text[p], plain, &rng);
        rig_pass(&r, &kv, t.token, t.parent, FTA_NODES, logits, true);
        const size_t n = fta_exact(&t, logits, exact), more = fta_published(&t, logits, published);
        exact_wrong += memcmp(exact, plain, n * sizeof *plain) != 0;
        wrong += memcmp(published, plain, more * sizeof *plain) != 0;
        exact_tokens += n, tokens += more;
        rig_run(&r, &kv, &text[p], 1, 1, NULL, logits);
    }
    printf("    %d rounds: exact %.2f tokens; published %.2f, in %zu rounds not those of plain decoding\n",
           FTA_TEXT, (double)exact_tokens / FTA_TEXT, (double)tokens / FTA_TEXT, wrong);
    CHECK(exact_wrong == 0 && wrong > 0 && tokens > exact_tokens, "%zu", exact_wrong);
    kv_close(&kv);
    close_tiny(&r, &g);
}

int main(void)
{
    RUN(logits_equal_those_of_pytorch);
    RUN(candidates_and_texts_do_not_mix);
    RUN(the_last_rows_move_to_the_front);
    RUN(guesses_follow_their_own_path);
    RUN(drafts_follow_from_tokens);
    RUN(trees_are_reranked);
    RUN(published_full_tree_attention_changes_the_text);
    return test_end();
}
