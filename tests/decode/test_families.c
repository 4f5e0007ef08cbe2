/* Losslessness of the families with recurrent states, with experts, with queries that grow, with windows of
 * frequencies of their own, with layers without RoPE, with longrope, with a further logit of each head,
 * with other heads in every second layer, with layers that read the cache of others, and with norms after
 * each part alone:
 * runs of one to four texts in common rounds. Each text has random sampling parameters and random drafters.
 * Between rounds a text is killed and resumed (from its tokens, or from snapshots), ends early and is
 * extended, or another text is forked from it. Texts that begin alike share rows and states. Every token
 * equals that of plain decoding.
 *
 *     test_families [--long [FAMILY]]     --long: 300 runs of each family, otherwise 3 */
#include "src/model/heads.h"
#include "src/model/mtp.h"
#include "kvmgr/prefix.h"
#include "src/decode/decode.h"
#include "src/decode/decoder_image.h"
#include "tests/oracle.h"
#include "tests/rig.h"
#include <inttypes.h>
#include <unistd.h>

static bool long_test;
static const char *only;

static const struct tiny families[] = {
    { "qwen3_5", "qwen3_5", 64, 80, 4, 2, 16, 200, 4, 0, DT_BF16, true,
      .key_heads = 2, .value_heads = 4, .key_dim = 24, .value_dim = 20, .mtp = true },
    { "qwen3_5_moe", "qwen3_5_moe", 48, 64, 4, 2, 16, 150, 4, 0, DT_BF16, false, 0, 7, 3, 24, 40,
      .key_heads = 2, .value_heads = 2, .key_dim = 16, .value_dim = 24, .mtp = true },
    { "qwen3_moe", "qwen3_moe", 64, 80, 4, 2, 16, 150, 3, 0, DT_BF16, false, 3, 9, 3, 40 },
    { "qwen2_moe", "qwen2_moe", 56, 80, 4, 2, 12, 90, 2, 0, DT_BF16, false, 2, 6, 3, 33, 47 },
    { "mixtral", "mixtral", 52, 51, 6, 3, 20, 90, 2, 70, DT_F32, true, 2, 5, 2, 51 },
    { "ministral3", "ministral3", 64, 80, 4, 2, 16, 150, 3, 0, DT_BF16, true },
    { "gemma3", "gemma3_text", 64, 80, 4, 2, 16, 150, 4, 70, DT_BF16, true, 2 },
    { "smollm3", "smollm3", 64, 80, 4, 2, 16, 150, 3, 0, DT_BF16, true, 2 },
    { "phi3", "phi3", 64, 80, 4, 2, 16, 150, 3, 90, DT_BF16, true, 2 },
    { "gpt_oss", "gpt_oss", 64, 48, 4, 2, 16, 150, 3, 70, DT_BF16, false, 2, 6, 3, 48 },
    { "gemma4", "gemma4_text", 64, 80, 4, 2, 16, 150, 4, 70, DT_BF16, true, 2 },
    { "gemma4_experts", "gemma4_text", 64, 80, 4, 2, 16, 150, 4, 70, DT_BF16, true, 2, 6, 2, 40 },
    { "gemma4_layers", "gemma4_text", 64, 80, 4, 2, 16, 150, 6, 70, DT_BF16, true, 2,
      .per_layer = 24, .kv_shared = 3 },
    { "olmo3", "olmo3", 64, 80, 4, 2, 16, 150, 4, 70, DT_BF16, false, 2 },
    { "granite", "granite", 64, 80, 4, 2, 16, 150, 3, 0, DT_BF16, true, 2 },
    { "exaone4", "exaone4", 64, 80, 4, 2, 24, 150, 4, 70, DT_BF16, false, 2 },
};
enum { FAMILIES = sizeof families / sizeof *families, RUNS = 300, RUNS_A_RIG = 50, TEXTS = 4,
       END = 330, LONGER = 1000, ROWS = 200, IMAGES = 4 };
#define BIT(x) (1u << DRAFTER_##x)

struct counts { size_t runs, texts, tokens, deep, kills, restored, extended, forked, shared, together,
                       by[N_DRAFTERS]; };

/* What the runs of a rig share. */
struct family {
    struct rig rig;
    struct heads heads;                  /* {0}: none */
    struct mtp mtp;
    struct round_buffers buffers;
    struct rng rng;
    struct counts n;
    char dir[4096];
    size_t prompt, end;                  /* of a model with windows: longer than its rings */
};

/* A text: what it must become, and the decoder that writes it. */
struct text {
    struct sampling p;
    int32_t tokens[LONGER];              /* of plain decoding */
    size_t n_prompt, given, end;         /* given: tokens from a fork's original, too */
    size_t next;                         /* something happens once the text has so many tokens */
    struct oracle oracle;
    struct decoder d;
    struct image image;
    size_t rows[IMAGES], n_images;       /* rows up to which each snapshot goes */
    bool live;
};

/* ---- what is tried ---- */

static void any_sampling(struct sampling *p, struct rng *g)
{
    static const double temperatures[] = { 0, 0.3, 0.7, 1, 1.5 };
    sampling_defaults(p);
    p->seed = rng_next(g), p->temperature = temperatures[rng_below(g, 5)], p->text_max = LONGER;
    if (!rng_below(g, 3)) p->top_k = 1 + (long)rng_below(g, 40);
    if (!rng_below(g, 3)) p->top_p = 0.5 + 0.05 * (double)rng_below(g, 10);
    if (!rng_below(g, 3)) p->min_p = 0.1, p->min_keep = 1 + rng_below(g, 5);
    if (!rng_below(g, 4)) p->eta = 0.0004;
    if (!rng_below(g, 5)) p->top_n_sigma = 2;
    if (!rng_below(g, 5)) p->typical = 0.9;
    if (!rng_below(g, 5)) p->xtc_probability = 0.5, p->xtc_threshold = 0.05;
    if (!rng_below(g, 3)) p->penalty = 1.2, p->penalty_window = rng_below(g, 2) ? 30 : -1;
    if (!rng_below(g, 4)) p->presence = 0.3, p->frequency = 0.1;
    if (!rng_below(g, 4)) p->dry_multiplier = 0.3, p->dry_base = 1.2;
}

static void any_drafters(struct family *f, struct decode_setup *s, struct text *t, struct prefix_match begin,
                         struct prefixes *list)
{
    static const unsigned of[] = { 0, BIT(NGRAM), BIT(SUFFIX), BIT(NGRAM) | BIT(SUFFIX), BIT(HEADS),
                                   BIT(PARTIAL), BIT(ADDED), BIT(ADDED) | BIT(NGRAM) | BIT(SUFFIX),
                                   BIT(MTP), BIT(MTP) | BIT(ADDED) | BIT(SUFFIX) };
    static const size_t budgets[] = { 48, 100, 4096 };
    struct rng *g = &f->rng;
    const size_t kinds = sizeof of / sizeof *of - (f->mtp.draft.work ? 0 : 2), kind = rng_below(g, kinds + 1);
    *s = (struct decode_setup){ .buffers = &f->buffers, .back = 1 + rng_below(g, 150),
                                .start = { begin.kv, begin.n_rows, &list->total, begin.n_split } };
    draft_defaults(&s->draft);
    struct draft_settings *d = &s->draft;
    if (kind < kinds) d->drafters = of[kind];
    d->drafters &= draft_of_config(&f->rig.c);
    if (!f->heads.n) d->drafters &= ~BIT(HEADS);
    d->n_width = rng_below(g, 4);        /* 0: as planned */
    for (size_t i = 0; i < d->n_width; i++) d->width[i] = 1 + rng_below(g, 3);
    d->draft_passes = d->n_width ? 1 + (long)rng_below(g, 2) : -1;
    d->ngram_lead = (enum ngram_lead)rng_below(g, 3), d->ngram_k = 1 + rng_below(g, 4);
    d->kv_sinks = 16, d->kv_budget = budgets[rng_below(g, 3)], d->kv_fixed = d->n_width > 0;
    if (d->kv_fixed) d->kv_policy = (enum kv_policy)rng_below(g, KV_AUTO);
    t->oracle = (struct oracle){ rng_below(g, 9), t->tokens, t->end };
    oracle_set(d, &t->oracle);
    s->weights[DRAFTER_HEADS] = d->drafters & BIT(HEADS) ? &f->heads : NULL;
    s->weights[DRAFTER_MTP] = d->drafters & BIT(MTP) ? &f->mtp : NULL;
    for (size_t i = 0; i < N_DRAFTERS; i++) f->n.by[i] += d->drafters >> i & 1;
}

/* ---- a text ---- */

/* Writes tokens[from..end) by plain decoding. */
static void write_plain(struct family *f, struct text *t, size_t from)
{
    struct decoder d;
    struct err e;
    const struct decode_setup s = { .buffers = &f->buffers, .back = LONGER };
    if (decode_open(&d, &f->rig.m, &t->p, &s, t->tokens, t->n_prompt, t->end, &e)) rig_die("plain", &e);
    decode_append(&d, t->tokens + t->n_prompt, from - t->n_prompt);
    if (decode_prefill(&d, 0, NULL, NULL, &e)) rig_die("plain prefill", &e);
    while (d.n_tokens < t->end)
        if (decode_step(&d, &e)) rig_die("plain step", &e);
    memcpy(t->tokens, d.tokens, t->end * sizeof *t->tokens);
    decode_close(&d);
}

static const char *image_path(const struct family *f, const struct text *t, size_t i)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s/image-%" PRIu64 "-%zu", f->dir, t->p.seed, i);
    return path;
}

/* Opens the decoder with the first n of the tokens, of at most n_max; reads them, from snapshots too. */
static void open_text(struct family *f, struct text *t, struct prefixes *list, size_t n, size_t n_max)
{
    static const struct snapshot_owner owner = { .job = 3, .attempt = 1, .fingerprint = "f",
                                                 .numerics = "n" };
    struct decode_setup s;
    struct err e;
    const struct prefix_match m = prefix_find(list, t->tokens, t->n_images ? 0 : n);
    any_drafters(f, &s, t, m, list);
    if (decode_open(&t->d, &f->rig.m, &t->p, &s, t->tokens, t->n_prompt, n_max, &e)) rig_die("open", &e);
    decode_append(&t->d, t->tokens + t->n_prompt, n - t->n_prompt);
    if (image_open(&t->image, &t->d, &owner, &e)) rig_die("image", &e);
    for (size_t i = 0; i < t->n_images; i++) {
        CHECK(image_restore(&t->image, image_path(f, t, i), &e) == 0 && t->d.kv.n_past == t->rows[i], "%s",
              e.msg);
        f->n.restored++;
    }
    prefix_join(list, &t->d.kv, t->d.tokens, &t->d.n_tokens);
    if (decode_prefill(&t->d, 0, NULL, NULL, &e)) rig_die("prefill", &e);
    image_restore_drafters(&t->image);
    f->n.shared += m.n_rows;
    t->live = true;
}

/* keep: others may begin with the rows of the text. */
static void close_text(struct text *t, struct prefixes *list, bool keep)
{
    struct kv kv;
    int32_t *tokens;
    image_close(&t->image);
    prefix_leave(list, &t->d.kv);
    if (keep) {
        decode_close_but(&t->d, &kv, &tokens);
        prefix_keep(list, &kv, tokens);
    } else {
        decode_close(&t->d);
    }
    t->live = false;
}

static void take_image(struct family *f, struct text *t)
{
    struct err e;
    const size_t from = t->n_images ? t->rows[t->n_images - 1] : 0,
                 rows = image_rows(&t->image, t->d.n_tokens);
    const size_t whole = t->d.kv.n_past / KV_BLOCK * KV_BLOCK;
    CHECK(t->image.exact || !whole || image_rows(&t->image, whole) < whole);
    if (rows <= from || t->n_images == IMAGES || t->d.kv.n_shared)
        return;
    FILE *file = fopen(image_path(f, t, t->n_images), "wb");
    CHECK(file && image_capture(&t->image, from, rows) > 0 &&
          image_write(&t->image, fileno(file), NULL, &e) == 0, "%s", e.msg);
    if (file) fclose(file);
    t->rows[t->n_images++] = rows;
}

/* The process ends: tokens that no checkpoint has are lost, those of a snapshot are not. */
static void kill_text(struct family *f, struct text *t, struct prefixes *list)
{
    const size_t has = t->d.n_tokens, saved = t->n_images ? t->rows[t->n_images - 1] + 1 : 0,
                 least = MAX(t->given, saved), n = least + rng_below(&f->rng, has - least + 1);
    assert(least <= has);
    close_text(t, list, false);
    open_text(f, t, list, n, t->end);
    f->n.kills++;
}

/* A new text that begins with a part of another one and has a seed of its own. */
static void fork_text(struct family *f, struct text *to, const struct text *from, struct prefixes *list)
{
    const size_t n = from->n_prompt + rng_below(&f->rng, from->d.n_tokens - from->n_prompt + 1);
    *to = (struct text){ .p = from->p, .n_prompt = from->n_prompt, .given = n, .end = f->end };
    memcpy(to->tokens, from->tokens, n * sizeof *to->tokens);
    to->p.seed = rng_next(&f->rng);
    write_plain(f, to, n);
    open_text(f, to, list, n, f->end);
    f->n.forked++;
}

/* ---- a run ---- */

static void start_texts(struct family *f, struct text *t, size_t n, struct prefixes *list)
{
    struct rng *g = &f->rng;
    for (size_t i = 0; i < n; i++) {
        t[i] = (struct text){ .n_prompt = 20 + rng_below(g, f->prompt - 20), .end = f->end };
        any_sampling(&t[i].p, g);
        if (i && rng_below(g, 2)) {      /* begins like the first text */
            memcpy(t[i].tokens, t[0].tokens, sizeof t[0].tokens);
            t[i].n_prompt = MAX(t[i].n_prompt, t[0].n_prompt);
        } else {
            rig_tokens(t[i].tokens, f->prompt, f->rig.c.vocab, rng_next(g));
            memcpy(t[i].tokens + t[i].n_prompt / 2, t[i].tokens, t[i].n_prompt / 3 * sizeof *t[i].tokens);
        }
        t[i].given = t[i].n_prompt;
        write_plain(f, &t[i], t[i].n_prompt);
        open_text(f, &t[i], list, t[i].n_prompt, t[i].n_prompt + 1 + rng_below(g, f->end - t[i].n_prompt));
    }
}

/* What happens to a text between two rounds. */
static void disturb(struct family *f, struct text *t, size_t i, struct prefixes *list)
{
    struct text *free_one = NULL;
    if (t[i].d.n_tokens == t[i].d.n_max) {
        const size_t n = t[i].d.n_tokens;
        close_text(&t[i], list, rng_below(&f->rng, 2));
        if (n < t[i].end)
            open_text(f, &t[i], list, n, t[i].end), f->n.extended++;
        return;
    }
    if (t[i].d.n_tokens < t[i].next)
        return;
    t[i].next = t[i].d.n_tokens + 10 + rng_below(&f->rng, f->end / 4);
    for (size_t k = 0; k < TEXTS; k++)
        if (!t[k].end) free_one = &t[k];
    switch (rng_below(&f->rng, 4)) {
    case 0: kill_text(f, &t[i], list); break;
    case 1: if (free_one) fork_text(f, free_one, &t[i], list); break;
    default: take_image(f, &t[i]); break;
    }
}

static void run_texts(struct family *f, size_t number)
{
    struct text *t = calloc(TEXTS, sizeof *t);
    struct decoder *list[TEXTS];
    struct prefixes alike = { 0 };
    size_t at[TEXTS], who[TEXTS];
    struct err e;
    f->rng = (struct rng){ 1000003 * number + 17 };
    start_texts(f, t, 1 + rng_below(&f->rng, TEXTS), &alike);
    for (size_t n = 1; n > 0;) {
        n = 0;
        for (size_t i = 0; i < TEXTS; i++)
            if (t[i].live) who[n] = i, at[n] = t[i].d.n_tokens, list[n++] = &t[i].d;
        if (n && decode_round(list, n, &e)) rig_die("round", &e);
        f->n.together += n > 1;
        for (size_t k = 0; k < n; k++) {
            const struct text *x = &t[who[k]];
            f->n.deep += x->d.n_tokens - at[k] > 3, f->n.tokens += x->d.n_tokens - at[k];
            const bool same = !memcmp(x->d.tokens, x->tokens, x->d.n_tokens * sizeof *x->tokens);
            CHECK(same, "run %zu, text %zu of %zu differs after %zu tokens", number, who[k], n, at[k]);
            if (!same) exit(1);
        }
        for (size_t k = 0; k < n; k++)
            disturb(f, t, who[k], &alike);
    }
    for (size_t i = 0; i < TEXTS; i++) {
        f->n.texts += t[i].end > 0;
        for (size_t k = 0; k < t[i].n_images; k++) unlink(image_path(f, &t[i], k));
    }
    prefix_close(&alike);
    free(t);
    f->n.runs++;
}

/* Each rig has another twin, arithmetic and number of threads. */
static void open_family(struct family *f, const struct tiny *t, size_t i)
{
    struct err e;
    const struct ops *twin = best_twin();
    if (i % 3 == 1) { FOR_TWINS(o) if (o != best_twin()) twin = o; }
    tiny_write(t, f->dir);
    f->end = t->window ? LONGER : END, f->prompt = f->end / 2 - 15;
    rig_open(&f->rig, f->dir, i % 2 ? DT_F32 : DT_BF16, twin, 1 + i % 2, 8, 64);
    f->heads = (struct heads){ 0 };
    if (t->heads_inside && heads_open(&f->heads, NULL, &f->rig.m, &e)) rig_die("heads", &e);
    if (t->mtp && mtp_open(&f->mtp, &f->rig.m, f->dir, WEIGHTS_AS_IS, i % 2, &e)) rig_die("layer", &e);
    if (round_buffers_open(&f->buffers, &f->rig.m, PREFILL_ROWS, ROWS * TEXTS, f->end, &e))
        rig_die("buffers", &e);
}

static void close_family(struct family *f)
{
    round_buffers_close(&f->buffers);
    heads_close(&f->heads);
    mtp_close(&f->mtp);
    rig_close(&f->rig);
    tiny_remove(f->dir);
}

static void runs_of(size_t i)
{
    static struct family f;
    const size_t runs = long_test ? RUNS : 3;
    if (only && strcmp(only, families[i].name)) SKIP("not asked for");
    f = (struct family){ 0 };
    for (size_t n = 0; n < runs; n++) {
        if (n % RUNS_A_RIG == 0) open_family(&f, &families[i], n / RUNS_A_RIG);
        run_texts(&f, RUNS * i + n);
        if (n + 1 == runs || (n + 1) % RUNS_A_RIG == 0) close_family(&f);
    }
    const struct counts *c = &f.n;
    printf("    %s: %zu runs of %zu texts, %zu tokens (%zu rounds of several texts, %zu that accepted 3 or "
           "more); %zu kills, %zu snapshots restored, %zu extended, %zu forked, %zu rows shared\n",
           families[i].name, c->runs, c->texts, c->tokens, c->together, c->deep, c->kills, c->restored,
           c->extended, c->forked, c->shared);
    printf("    drafters:");
    for (size_t k = 0; k < N_DRAFTERS; k++)
        if (c->by[k]) printf(" %s %zu", drafter_name(k), c->by[k]);
    printf("\n");
    CHECK(c->runs == runs && c->deep > 0 && c->together > 0 && c->kills > 0 && c->restored > 0 &&
          c->extended > 0 && c->forked > 0 && c->shared > 0);
}

static void qwen3_5(void) { runs_of(0); }
static void qwen3_5_moe(void) { runs_of(1); }
static void qwen3_moe(void) { runs_of(2); }
static void qwen2_moe(void) { runs_of(3); }
static void mixtral(void) { runs_of(4); }
static void ministral3(void) { runs_of(5); }
static void gemma3(void) { runs_of(6); }
static void smollm3(void) { runs_of(7); }
static void phi3(void) { runs_of(8); }
static void gpt_oss(void) { runs_of(9); }
static void gemma4(void) { runs_of(10); }
static void gemma4_experts(void) { runs_of(11); }
static void gemma4_layers(void) { runs_of(12); }
static void olmo3(void) { runs_of(13); }
static void granite(void) { runs_of(14); }
static void exaone4(void) { runs_of(15); }

int main(int argc, char **argv)
{
    long_test = argc > 1 && !strcmp(argv[1], "--long");
    only = argc > 2 ? argv[2] : NULL;
    RUN(qwen3_5);
    RUN(qwen3_5_moe);
    RUN(qwen3_moe);
    RUN(qwen2_moe);
    RUN(mixtral);
    RUN(ministral3);
    RUN(gemma3);
    RUN(smollm3);
    RUN(phi3);
    RUN(gpt_oss);
    RUN(gemma4);
    RUN(gemma4_experts);
    RUN(gemma4_layers);
    RUN(olmo3);
    RUN(granite);
    RUN(exaone4);
    return test_end();
}
