/* Which recorded passes are kept (kernels/cuda/graphs.h), and that texts do not depend on it. */
#include "kernels/cuda/graphs.h"
#include "src/decode/decode.h"
#include "tests/oracle.h"
#include "tests/device_open.h"
#include "tests/rig.h"

static int mark[2 * GRAPHS_MAX];             /* their addresses stand for graphs */

static void graphs_are_found_by_key(void)
{
    static struct graphs g;
    void *old;
    for (size_t i = 0; i < 5; i++) {
        CHECK(graphs_find(&g, 100 + i) == NULL && graphs_room(&g, &old) && !old);
        graphs_keep(&g, 100 + i, &mark[i], 10);
    }
    for (size_t i = 0; i < 5; i++)
        CHECK(graphs_find(&g, 104 - i) == &mark[4 - i]);
    CHECK(g.n == 5 && g.bytes == 50 && g.passes == 10);
}

/* Full by number or by bytes: the graph unused for the longest time makes room when it is stale; otherwise
 * nothing is recorded. */
static void a_stale_graph_makes_room(void)
{
    for (int by_bytes = 0; by_bytes < 2; by_bytes++) {
        static struct graphs g;
        void *old;
        const size_t n = by_bytes ? 8 : GRAPHS_MAX, bytes = by_bytes ? GRAPHS_BYTES / 8 : 1;
        g = (struct graphs){ 0 };
        for (size_t i = 0; i < n; i++) {
            graphs_find(&g, i + 1);
            CHECK(graphs_room(&g, &old) && !old, "%zu of %zu", i, n);
            graphs_keep(&g, i + 1, &mark[i], bytes);
        }
        CHECK(graphs_find(&g, 9999) == NULL && !graphs_room(&g, &old) && !old && g.n == n);
        for (size_t i = 0; i < GRAPHS_STALE; i++)
            for (size_t k = 0; k < n; k++)
                if (k != 3)
                    CHECK(graphs_find(&g, k + 1) == &mark[k]);
        CHECK(graphs_room(&g, &old) && old == &mark[3] && g.n == n - 1 && g.bytes == (n - 1) * bytes &&
              graphs_find(&g, 4) == NULL);
        graphs_keep(&g, 9999, &mark[n], bytes);
        CHECK(graphs_find(&g, 9999) == &mark[n] && !graphs_room(&g, &old));
        for (size_t k = 0; k < n; k++)
            CHECK(k == 3 || graphs_find(&g, k + 1) == &mark[k], "%zu", k);
    }
}

/* A small graph does not make room for a large one: the kept graphs stay below the plan, except for the last
 * one. */
static void a_small_one_is_not_room_enough(void)
{
    static struct graphs g;
    void *old;
    graphs_find(&g, 1), graphs_keep(&g, 1, &mark[0], 10);
    graphs_find(&g, 2), graphs_keep(&g, 2, &mark[1], GRAPHS_BYTES);
    g.passes += GRAPHS_STALE;
    CHECK(!graphs_room(&g, &old) && old == &mark[0] && g.n == 1);
    CHECK(graphs_room(&g, &old) && old == &mark[1] && g.n == 0 && g.bytes == 0);
}

/* With memory for no recorded pass, for two, and for all, the text is the same. The second of two consecutive
 * texts uses the first one's graphs. */
static void a_text_does_not_depend_on_graphs(void)
{
    enum { PROMPT = 40, TEXT = 40 };
    static const char *const room[] = { NULL, "0", "2" };
    int32_t text[3][PROMPT + TEXT];
    size_t played[3];
    for (size_t i = 0; i < sizeof room / sizeof *room; i++) {
        struct rig r = { 0 };
        struct decoder d;
        struct decode_setup setup = { 0 };
        struct sampling p;
        struct err e = { 0 };
        char dir[4096];
        if (room[i]) setenv("LONGHAND_EMULATED_GRAPHS", room[i], 1);
        tiny_write(&tiny_models[0], dir);
        r.pool = pool_open(1);
        if (test_device_open(&r.dev, e.msg, sizeof e.msg)) rig_die("device", &e);
        if (config_read(&r.c, dir, &e) ||
            model_open(&r.m, dir, &(struct model_setup){ &r.c, DT_BF16, r.dev, best_twin(), r.pool }, &e))
            rig_die("model", &e);
        sampling_defaults(&p);
        p.seed = 6, p.text_max = PROMPT + TEXT;
        rig_tokens(text[i], PROMPT, r.c.vocab, 3);
        draft_defaults(&setup.draft);
        setup.draft.drafters = 1u << DRAFTER_PARTIAL | 1u << DRAFTER_NGRAM | 1u << DRAFTER_ADDED;
        setup.draft.width[0] = 2, setup.draft.width[1] = 1, setup.draft.n_width = 2,
        setup.draft.draft_passes = 1;
        setup.draft.kv_sinks = 2, setup.draft.kv_budget = 20, setup.draft.kv_fixed = true;
        oracle_set(&setup.draft, &(struct oracle){ 2, text[0], i ? PROMPT + TEXT : 0 });
        if (decode_open(&d, &r.m, &p, &setup, text[i], PROMPT, PROMPT + TEXT, &e)) rig_die("decoder", &e);
        for (int again = 0; again < 2; again++) {
            if (again && decode_restart(&d, PROMPT, &p, &e)) rig_die("restart", &e);
            if (decode_prefill(&d, 0, NULL, NULL, &e)) rig_die("prefill", &e);
            while (d.n_tokens < d.n_max)
                if (decode_step(&d, &e)) rig_die("round", &e);
            if (!again) memcpy(text[i], d.tokens, sizeof text[i]);
            CHECK(memcmp(text[i], d.tokens, sizeof text[i]) == 0 &&
                      memcmp(text[0], text[i], sizeof text[i]) == 0,
                  "room for %s graphs, time %d", room[i] ? room[i] : "all", again);
        }
        played[i] = r.dev->played;
        decode_close(&d), rig_close(&r), tiny_remove(dir);
        unsetenv("LONGHAND_EMULATED_GRAPHS");
    }
    if (!test_on_gpu())                              /* only the emulated GPU limits graphs by this setting */
        CHECK(played[0] > played[2] && played[1] == 0, "played %zu, %zu, %zu times", played[0], played[2],
              played[1]);
}

/* Two sequences in one prefill pass, without logits, as 33 + 95 rows and as 95 + 33 rows. The passes have the
 * same number of rows and of attention tiles, but the tiles fall into other slabs: one graph cannot serve
 * both. */
static void a_graph_belongs_to_the_rows_of_each_sequence(void)
{
    enum { ROWS = 128, SEQS = 2 };
    static const size_t n[3][SEQS] = { { 33, 95 }, { 95, 33 }, { 33, 95 } };
    char dir[4096];
    struct rig r = { .pool = pool_open(1) };
    struct err e = { 0 };
    int32_t token[SEQS][ROWS];
    tiny_write(&tiny_models[0], dir);
    if (test_device_open(&r.dev, e.msg, sizeof e.msg)) rig_die("device", &e);
    if (config_read(&r.c, dir, &e) ||
        model_open(&r.m, dir, &(struct model_setup){ &r.c, DT_BF16, r.dev, best_twin(), r.pool }, &e) ||
        workspace_open(&r.w, &r.m, ROWS, ROWS, &e))
        rig_die("model", &e);
    const size_t vocab = r.c.vocab, bytes = vocab * sizeof(float);
    float *logits = r.dev->alloc(r.dev, bytes), *got = malloc(bytes), *alone = malloc(bytes);
    for (size_t i = 0; i < SEQS; i++)
        rig_tokens(token[i], ROWS, vocab, i + 1);
    struct kv kv[SEQS + 1];
    for (size_t i = 0; i <= SEQS; i++)
        rig_kv(&r, &kv[i], ROWS, 0);
    for (size_t k = 0; k < sizeof n / sizeof *n; k++) {
        struct pass_seq both[SEQS];
        for (size_t i = 0; i < SEQS; i++) {
            kv_truncate(&kv[i], 0);
            both[i] = (struct pass_seq){ .kv = &kv[i], .n = n[k][i], .token = token[i] };
        }
        if (model_forward(&r.m, r.w, both, SEQS, NULL, 0, &e)) rig_die("pass of two sequences", &e);
        for (size_t i = 0; i < SEQS; i++) {
            kv_advance(&kv[i], n[k][i]);
            kv_truncate(&kv[SEQS], 0);
            struct pass_seq one = { .kv = &kv[SEQS], .n = n[k][i], .token = token[i] };
            if (model_forward(&r.m, r.w, &one, 1, NULL, 0, &e)) rig_die("pass of one sequence", &e);
            kv_advance(&kv[SEQS], n[k][i]);
            for (size_t of_both = 0; of_both < 2; of_both++) {
                struct pass_seq next = { .kv = of_both ? &kv[i] : &kv[SEQS], .n = 1, .token = token[i],
                                         .logits = logits };
                if (model_forward(&r.m, r.w, &next, 1, NULL, 0, &e)) rig_die("pass of one row", &e);
                r.dev->download(r.dev, of_both ? got : alone, logits, bytes);
            }
            CHECK(memcmp(got, alone, bytes) == 0, "sequence %zu of a pass of %zu + %zu rows", i, n[k][0],
                  n[k][1]);
        }
    }
    for (size_t i = 0; i <= SEQS; i++)
        kv_close(&kv[i]);
    r.dev->free(r.dev, logits, bytes);
    free(got), free(alone), rig_close(&r), tiny_remove(dir);
}

int main(void)
{
    struct device *d;
    char why[256];
    RUN(graphs_are_found_by_key);
    RUN(a_stale_graph_makes_room);
    RUN(a_small_one_is_not_room_enough);
    if (test_device_open(&d, why, sizeof why)) {
        printf("skip a_text_does_not_depend_on_graphs (%s)\n", why);
        printf("skip a_graph_belongs_to_the_rows_of_each_sequence (%s)\n", why);
        return test_end();
    }
    d->close(d);
    RUN(a_text_does_not_depend_on_graphs);
    RUN(a_graph_belongs_to_the_rows_of_each_sequence);
    return test_end();
}
