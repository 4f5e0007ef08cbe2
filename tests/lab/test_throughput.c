/* The throughput model: SPIRe's 432 cells, passes that either limit bounds, rounds whose best plan is known,
 * and costs that were measured. */
#include <math.h>
#include "src/lab/throughput.h"
#include "tests/test.h"

static void all_cells_of_spire(void)
{
    size_t equal = 0;
    for (size_t g = 0; g < SPIRE_GRIDS; g++)
        for (size_t d = 0; d < SPIRE_DRAFTS; d++)
            for (size_t b = 0; b < SPIRE_BATCHES; b++)
                for (size_t l = 0; l < SPIRE_LENGTHS; l++) {
                    const double x = spire_speedup(g, d, b, l);
                    const bool same = rint(x * 1e4) == spire_golden[g][d][b][l];
                    CHECK(same, "grid %zu, %s, batch %d, length %zu: %.6f", g, spire_drafts[d], 1 << b, l, x);
                    equal += same;
                }
    CHECK(equal == 432, "%zu cells", equal);
}

/* A machine whose limits meet at 4 rows: passes of fewer rows take the time of their bytes. */
static void either_limit_bounds_a_pass(void)
{
    const struct machine m = { .flops = 400, .bandwidth = 100 };
    const struct pass_cost w = { .weights = 90, .key = 10, .keys = 1, .flops = 100 };
    CHECK(throughput_pass(&m, &w, 1, 1) == 1 && throughput_pass(&m, &w, 1, 4) == 1);
    CHECK(throughput_pass(&m, &w, 1, 8) == 2);
    CHECK(throughput_pass(&m, &w, 2, 1) == 1.1);         /* the weights once, two caches */
    CHECK(throughput_pass(&m, &w, 8, 2) == 4);
}

static void chance_gives_the_tokens_back(void)
{
    CHECK(near(throughput_chance(1 + 0.5 + 0.25, 2), 0.5, 1e-12, 0));
    CHECK(throughput_chance(1, 4) < 1e-12 && near(throughput_chance(5, 4), 1, 1e-12, 0));
}

/* Draft passes of a tenth of a pass: with chance c a further pass pays while c^k is worth its price. */
static void the_number_of_passes_is_the_best(void)
{
    const struct machine m = { .flops = 1e9, .bandwidth = 100 };
    const struct pass_cost target = { .weights = 100, .flops = 1 };
    for (int c = 1; c <= 9; c++) {
        struct forecast f = { .passes = 12 };
        struct drafting d = { &f, { .weights = 10, .flops = 1 }, { 1 } };
        double best = 0, tokens = 1;
        for (int k = 1; k <= 12; k++) {
            d.tokens[k] = tokens += pow(c / 10.0, k);
            best = fmax(best, tokens / (1 + 0.1 * k));
        }
        const struct throughput t = throughput_round(&m, &target, &d, 1);
        CHECK(near(t.speedup, best, 0, 1e-12), "chance %d/10: %g, best %g", c, t.speedup, best);
        f.fixed = true;
        CHECK(throughput_round(&m, &target, &d, 1).passes == 12);
    }
}

/* Llama 3 8B has 6,979,584,000 weights in its layers with the norms (SPIRe, appendix), and an LM head. */
static void a_pass_reads_the_model(void)
{
    struct config c = { .n_layers = 32, .hidden = 4096, .ffn = 14336, .n_heads = 32, .n_kv_heads = 8,
                        .head_dim = 128, .vocab = 128256 };
    const struct model_bytes b = { .weight = 2, .draft_weight = 1, .kv = 2 };
    config_layers(&c);
    const struct pass_cost w = forecast_pass(&c, &b, 1000);
    CHECK(w.weights == 2 * (6979584000.0 - 32 * 2 * 4096 + 128256.0 * 4096));
    CHECK(w.key == 2.0 * 65536 && w.keys == 1000);
    for (enum drafter k = 0; k < N_DRAFTERS; k++) {
        if (!forecast_of(k))
            continue;
        const struct pass_cost d = forecast_draft(k, &c, &c, &b, 1000);
        CHECK(k == DRAFTER_SUFFIX || d.weights > 0);
        CHECK(d.weights <= w.weights, "%s", forecast_of(k)->name);
    }
}

/* Qwen3-30B-A3B has 128 experts in 48 layers, 8 for a token; without the embedding it has 30.22e9 weights, of
 * which a token uses 3.04e9. Of a hybrid one layer in four reads a cache. */
static void experts_and_states_are_counted(void)
{
    struct config c = { .n_layers = 48, .hidden = 2048, .n_heads = 32, .n_kv_heads = 4, .head_dim = 128,
                        .vocab = 151936, .n_experts = 128, .experts_used = 8, .expert_ffn = 768 };
    const struct model_bytes b = { .weight = 1, .draft_weight = 1, .kv = 2 };
    for (size_t l = 0; l < c.n_layers; l++)
        c.layer[l].experts = true;
    config_layers(&c);
    struct pass_cost w = forecast_pass(&c, &b, 0);
    CHECK(near(w.weights + w.experts, 30.22e9, 0.01e9, 0), "%g", w.weights + w.experts);
    CHECK(near(w.flops / 2, 3.04e9, 0.01e9, 0), "%g", w.flops / 2);
    const struct machine m = { 1e30, 1 };
    CHECK(near(throughput_pass(&m, &w, 1, 1), w.flops / 2, 1, 0));
    const double two = w.weights + w.experts * (1 - 15.0 / 16 * 15 / 16);
    CHECK(near(throughput_pass(&m, &w, 2, 1), two, 1, 0) && near(throughput_pass(&m, &w, 1, 2), two, 1, 0));
    w = forecast_pass(&c, &b, 1000);
    c.delta = (struct delta_config){ 16, 32, 128, 128, 4 };
    for (size_t l = 0; l < c.n_layers; l++)
        c.layer[l] = (struct layer_spec){ .gated = true, .experts = true,
                                          .mixer = l % 4 == 3 ? MIXER_ATTENTION : MIXER_DELTA };
    config_layers(&c);
    const struct pass_cost h = forecast_pass(&c, &b, 1000);
    CHECK(h.key * 4 == w.key && h.experts == w.experts);
    const double attention = 2048 * (3 * 32 * 128.0 + 8 * 128), state = 2048 * (8192 + 2 * 4096 + 64.0);
    CHECK(near(h.weights, 12 * attention + 36 * state + 48 * 128 * 2048.0 + 151936 * 2048.0, 1, 0), "%f",
          h.weights);
}

/* LongSpec's second pass reads the four rows that the first one added. */
static void draft_passes_read_what_the_pass_before_added(void)
{
    const struct machine m = { .flops = 1, .bandwidth = 1e9 };
    const struct pass_cost target = { .flops = 1 };
    struct forecast f = { .passes = 3, .fixed = true, .widths = 3, .width = { 4, 16, 16 } };
    struct drafting d = { &f, { .flops = 10 } };
    throughput_tokens(&d, 2, 3);
    struct throughput t = throughput_round(&m, &target, &d, 1);
    CHECK(near(t.seconds, 10 * (1 + 4 + 16) + 37, 1e-9, 0) && t.rows == 37, "%g s", t.seconds);
    f.rows = 2;
    t = throughput_round(&m, &target, &d, 1);
    CHECK(near(t.seconds, 10 * 6 + 37, 1e-9, 0), "%g s", t.seconds);
}

/* A model of 1,000 bytes and 1 byte a position, of which a pass of r rows takes 1 + (r - 1)/10 seconds a byte
 * at 100 tokens and twice as long at 300. */
static double pass_of(size_t rows, double length, double slow)
{
    return slow * (1 + ((double)rows - 1) / 10) * (1000 + length);
}

/* Seconds come back where they were measured, lie between them in between, and follow the bytes beyond. */
static void measured_costs_are_interpolated(void)
{
    static struct measured_rounds m;
    const struct planner_experts none = { 0 };
    struct round_seconds s;
    const struct forecast f = { .passes = 3, .widths = 1, .width = { 4 } };
    struct drafting w = { &f, { .weights = 50 } };
    m = (struct measured_rounds){ .length = { 100, 300 }, .rest = { 7, 9 } };
    m.draft[DRAFTER_SPIRE].most = 3;
    m.draft[DRAFTER_SPIRE].reads = (struct pass_cost){ .weights = 100, .key = 1, .keys = 200 };
    for (size_t i = 0; i < 2; i++) {
        cost_start(&m.pass[i], 1000, 1, &none);
        for (size_t k = 0; k < COST_SIZES; k++)
            cost_measured(&m.pass[i], k, m.length[i],
                          pass_of(cost_rows(k), (double)m.length[i], i ? 2 : 1));
        for (size_t k = 1; k <= 3; k++)
            m.draft[DRAFTER_SPIRE].seconds[i][k] = (double)k * (i ? 300 : 200);
    }
    for (size_t i = 0; i < 2; i++) {
        throughput_measured(&s, &m, DRAFTER_SPIRE, &w, m.length[i], 1);
        CHECK(near(s.plain, m.rest[i] + pass_of(1, (double)m.length[i], i ? 2 : 1), 0, 1e-9), "%g", s.plain);
        for (size_t k = 1; k <= 3; k++) {
            const double pass = m.rest[i] + pass_of(4 + k, (double)m.length[i], i ? 2 : 1);
            CHECK(near(s.pass[k], pass, 0, 1e-9), "pass %zu: %g, not %g", k, s.pass[k], pass);
            CHECK(near(s.draft[k], (double)k * (i ? 300 : 200), 0, 1e-9), "%zu drafts: %g", k, s.draft[k]);
        }
    }
    throughput_measured(&s, &m, DRAFTER_SPIRE, &w, 200, 1);        /* the middle */
    CHECK(near(s.plain, 8 + pass_of(1, 200, 1.5), 0, 1e-9), "%g", s.plain);
    CHECK(near(s.draft[2], 2 * 300, 0, 1e-9), "%g", s.draft[2]); /* 200 for 200 bytes, 300 for 300 */
    throughput_measured(&s, &m, DRAFTER_SPIRE, &w, 50, 1);
    CHECK(near(s.plain, 7 + pass_of(1, 50, 1), 0, 1e-9) && near(s.draft[1], 150, 0, 1e-9));
    throughput_measured(&s, &m, DRAFTER_SPIRE, &w, 3000, 1);
    CHECK(near(s.plain, 9 + pass_of(1, 3000, 2), 0, 1e-9) && near(s.draft[1], 300, 0, 1e-9));
    throughput_measured(&s, &m, DRAFTER_LONGSPEC, &w, 100, 1);     /* not measured: 50 bytes a pass */
    CHECK(near(s.draft[2], 2 * 50, 0, 1e-9), "%g", s.draft[2]);
    /* two texts read the weights once in a pass of two rows, and each its own cache */
    throughput_measured(&s, &m, DRAFTER_SPIRE, &w, 100, 2);
    CHECK(near(s.plain, 2 * 7 + 1.1 * 1000 + 2 * 100, 0, 1e-9), "%g", s.plain);
    CHECK(near(s.draft[1], 1.1 * 100 + 2 * 100, 0, 1e-9), "%g", s.draft[1]);
}

/* Acceptance that falls with depth makes shorter rounds the best ones. */
static void tokens_by_depth_decide_the_passes(void)
{
    struct forecast f = { .passes = 4 };
    struct drafting d = { &f, .tokens = { 1, 1.9, 2.0, 2.05, 2.1 } };
    struct round_seconds s = { .plain = 1, .draft = { 0, 0.2, 0.4, 0.6, 0.8 }, .pass = { 1, 1, 1, 1, 1 } };
    struct throughput t = throughput_best(&s, &d, 1);
    CHECK(t.passes == 1 && near(t.speedup, 1.9 / 1.2, 0, 1e-9), "%zu passes, %g", t.passes, t.speedup);
    f.fixed = true;
    t = throughput_best(&s, &d, 1);
    CHECK(t.passes == 4 && near(t.speedup, 2.1 / 1.8, 0, 1e-9), "%zu passes, %g", t.passes, t.speedup);
}

int main(void)
{
    RUN(all_cells_of_spire);
    RUN(either_limit_bounds_a_pass);
    RUN(chance_gives_the_tokens_back);
    RUN(the_number_of_passes_is_the_best);
    RUN(a_pass_reads_the_model);
    RUN(draft_passes_read_what_the_pass_before_added);
    RUN(measured_costs_are_interpolated);
    RUN(tokens_by_depth_decide_the_passes);
    RUN(experts_and_states_are_counted);
    return test_end();
}
