/* Speculation and interruption never change the text: a matrix of tiny random models, drafters, trees,
 * temperatures, filters and penalties, and of ways to the end of a text. Each run's tokens equal those of
 * plain decoding. A run is one of
 *
 *     whole      from the first token to the last
 *     killed     the decoder is thrown away twice, and its last tokens with it; the next one reads the rest
 *     snapshot   the decoder is thrown away; the next one goes on with a snapshot that was written before
 *     together   in the rounds of up to eight other runs
 *
 * With two forms of the cache the trained drafters have a short vocabulary.
 *
 * Short: a sample of one model. --long: all models with four forms of the cache. */
#include <fcntl.h>

#include "src/model/heads.h"
#include "src/decode/decode.h"
#include "src/decode/decoder_image.h"
#include "src/decode/drafters/small_model.h"
#include "tests/drafter_rig.h"

enum { PROMPT_MAX = 100, TEXT = 80, TEXTS = 6, TOGETHER = 8 };
static bool long_test;

/* ---- what is tried ---- */

#define BIT(x) (1u << DRAFTER_##x)
static const struct { const char *name; unsigned drafters; } subjects[] = {
    { "heads", BIT(HEADS) }, { "partial", BIT(PARTIAL) }, { "ngram", BIT(NGRAM) }, { "suffix", BIT(SUFFIX) },
    { "longspec", BIT(LONGSPEC) }, { "gumiho", BIT(GUMIHO) }, { "spire", BIT(SPIRE) },
    { "model", BIT(MODEL) },
    { "all", BIT(HEADS) | BIT(PARTIAL) | BIT(NGRAM) | BIT(SUFFIX) | BIT(LONGSPEC) | BIT(GUMIHO) | BIT(SPIRE) |
             BIT(MODEL) },
};
enum { N_SUBJECTS = sizeof subjects / sizeof *subjects };
/* A tree of several drafters that make passes is the plan's: "all" is planned in each shape. */
static const struct { size_t width[5], n; } shapes[] = { { { 1, 1, 1, 1, 1 }, 5 }, { { 3, 2, 2 }, 3 },
                                                         { { 0 }, 0 } };
enum { N_SHAPES = sizeof shapes / sizeof *shapes, N_SETTINGS = N_SUBJECTS * N_SHAPES };
enum way { WHOLE, KILLED, SNAPSHOT, WITH_OTHERS, N_WAYS };

static struct { size_t runs[N_WAYS], tokens, rounds; } count[N_SUBJECTS];

/* Each of four temperatures with each of twelve filters and penalties. */
static struct sampling sampling_of(size_t i)
{
    static const double temperatures[] = { 0, 0.7, 1, 1.5 };
    struct sampling s;
    sampling_defaults(&s);
    s.seed = 500 + i, s.text_max = PROMPT_MAX + TEXT, s.temperature = temperatures[i % 4];
    switch (i / 4 % 12) {
    case 1: s.top_k = 20; break;
    case 2: s.top_p = 0.9; break;
    case 3: s.min_p = 0.05; break;
    case 4: s.eta = 0.01; break;
    case 5: s.penalty = 1.2, s.penalty_window = 30; break;
    case 6: s.presence = 0.4, s.penalty_window = -1; break;
    case 7: s.frequency = 0.2; break;
    case 8: s.dry_multiplier = 0.4, s.dry_base = 1.2; break;
    case 9: s.top_k = 40, s.top_p = 0.95, s.min_p = 0.02, s.eta = 0.001, s.penalty = 1.3,
        s.penalty_window = 9, s.presence = -0.2, s.frequency = 0.1, s.min_keep = 3; break;
    case 10: s.top_n_sigma = 1.2, s.typical = 0.8; break;
    case 11: s.xtc_probability = 0.6, s.xtc_threshold = 0.02; break;
    default: break;
    }
    return s;
}

/* ---- a model with its drafters ---- */

static struct rig rig;
static struct model int8;
static struct heads heads;
static struct longspec longspec;
static struct gumiho gumiho;
static struct spire spire;
static struct draft_model small;

/* The model drafts for itself: its window makes the difference. */
static void small_open(const char *dir)
{
    struct err e;
    const struct model_setup s = { .config = &rig.c, .compute = rig.m.compute, .dev = rig.dev,
                                   .ops = rig.m.ops, .pool = rig.pool };
    if (model_open(&small.own, dir, &s, &e) ||
        workspace_open(&small.work, &small.own, SMALL_ROWS, SMALL_SLOTS, &e))
        rig_die("small model", &e);
    small.row_bytes = SMALL_ROWS * rig.c.vocab * sizeof(float);
    small.rows = mem_alloc(small.row_bytes);
}

/* Whether the trained drafters of a model with this cache have a short vocabulary. */
static bool brief(enum dtype kv) { return kv == DT_I8 || kv == DT_F32; }

static void open_all(size_t model, enum dtype kv)
{
    struct tiny t = tiny_models[model];
    char dir[4096];
    struct err e;
    t.heads_inside = 3;
    tiny_write(&t, dir);
    rig_open_kv(&rig, dir, kv == DT_F32 ? DT_F32 : DT_BF16, kv, best_twin(), 2, 8, 64);
    if (heads_open(&heads, dir, &rig.m, &e) || model_quantize(&int8, &rig.m, NULL, NULL, NULL, &e))
        rig_die("heads", &e);
    longspec_rig_open(&longspec, &rig, true, model, NULL);
    gumiho_rig_open(&gumiho, &rig, true, model);
    if (!rig.c.layer[0].qk_norm)
        spire_rig_open(&spire, &rig, true, model);
    for (int i = 0; i < 4 && brief(kv); i++)
        if (i != 3 || spire.file.mem)
            rig_shorten((struct draft_vocab *[]){ &heads.vocab, &longspec.file.vocab, &gumiho.file.vocab,
                                                  &spire.file.vocab }[i], &rig, kv == DT_I8, rig.c.vocab / 2);
    small_open(dir);
    tiny_remove(dir);
}
static void close_all(void)
{
    heads_close(&heads);
    drafter_close(&longspec.file, &longspec_kind);
    drafter_close(&gumiho.file, &gumiho_kind);
    drafter_close(&spire.file, &spire_kind);
    draft_model_close(&small);
    model_close(&int8);
    rig_close(&rig);
}

static struct decode_setup setup_of(size_t setting, size_t text, struct round_buffers *buffers)
{
    static const enum kv_policy policies[] = { KV_DYNAMIC, KV_WINDOW, KV_STATIC, KV_MEAN, KV_FULL };
    const size_t d = setting / N_SHAPES, shape = d == N_SUBJECTS - 1 ? N_SHAPES - 1 : setting % N_SHAPES;
    struct decode_setup s = { .buffers = buffers };
    draft_defaults(&s.draft);
    s.draft.drafters = subjects[d].drafters & ~(spire.file.mem ? 0 : BIT(SPIRE)) & draft_of_config(&rig.c);
    memcpy(s.draft.width, shapes[shape].width, sizeof shapes[shape].width);
    s.draft.n_width = shapes[shape].n, s.draft.draft_passes = 1 + (long)(text % 3);
    s.draft.kv_policy = s.draft.n_width ? policies[text % 5] : KV_AUTO;
    s.draft.kv_sinks = 4, s.draft.kv_budget = 40, s.draft.kv_fixed = s.draft.n_width > 0;
    s.weights[DRAFTER_HEADS] = s.draft.drafters & BIT(HEADS) ? &heads : NULL;
    s.weights[DRAFTER_LONGSPEC] = s.draft.drafters & BIT(LONGSPEC) ? &longspec : NULL;
    s.weights[DRAFTER_GUMIHO] = s.draft.drafters & BIT(GUMIHO) ? &gumiho : NULL;
    s.weights[DRAFTER_SPIRE] = s.draft.drafters & BIT(SPIRE) ? &spire : NULL;
    s.weights[DRAFTER_MODEL] = s.draft.drafters & BIT(MODEL) ? &small : NULL;
    s.draft_model = text % 2 ? &int8 : NULL;
    return s;
}

/* ---- a run ---- */

struct text { struct sampling p; int32_t tokens[PROMPT_MAX + TEXT]; size_t n_prompt, n; };
static struct text text[TEXTS];

static void open_run(struct decoder *d, size_t setting, size_t t, struct round_buffers *buffers)
{
    const struct decode_setup s = setup_of(setting, t, buffers);
    struct err e;
    if (draft_check(&s.draft, &e) ||
        decode_open(d, &rig.m, &text[t].p, &s, text[t].tokens, text[t].n_prompt, text[t].n, &e))
        rig_die(subjects[setting / N_SHAPES].name, &e);
}
static void prefill(struct decoder *d)
{
    struct err e;
    if (decode_prefill(d, 0, NULL, NULL, &e)) rig_die("prefill", &e);
}
static void rounds_until(struct decoder *d, size_t setting, size_t n_tokens)
{
    struct err e;
    while (d->n_tokens < n_tokens) {
        const size_t before = d->n_tokens;
        if (decode_step(d, &e)) rig_die("round", &e);
        count[setting / N_SHAPES].tokens += d->n_tokens - before;
        count[setting / N_SHAPES].rounds++;
    }
}
static void check_run(const struct decoder *d, size_t model, size_t setting, size_t t, enum way way)
{
    static const char *const ways[] = { "whole", "killed", "snapshot", "together" };
    size_t same = 0;
    while (same < text[t].n && d->tokens[same] == text[t].tokens[same]) same++;
    CHECK(same == text[t].n, "%s, %s, shape %zu, seed %zu, %s: token %zu differs", tiny_models[model].name,
          subjects[setting / N_SHAPES].name, setting % N_SHAPES, (size_t)text[t].p.seed, ways[way], same);
    count[setting / N_SHAPES].runs[way]++;
}

/* Throws the decoder away. The next one has the text that was left, `lost` tokens fewer. */
static void begin_again(struct decoder *d, size_t setting, size_t t, size_t lost)
{
    const size_t from = text[t].n_prompt, n = MAX(d->n_tokens - lost, from) - from;
    int32_t written[TEXT];
    memcpy(written, d->tokens + from, n * sizeof *written);
    decode_close(d);
    open_run(d, setting, t, NULL);
    decode_append(d, written, n);
}

static void go_on_from_a_snapshot(struct decoder *d, size_t setting, size_t t, size_t until)
{
    struct snapshot_owner owner;
    struct image kept, m;
    struct err e;
    char path[32];
    drafter_temporary(path);
    const int fd = open(path, O_RDWR);
    memset(&owner, 0, sizeof owner);
    owner.job = 1;
    if (image_open(&kept, d, &owner, &e)) rig_die("image", &e);
    image_capture(&kept, 0, image_rows(&kept, d->n_tokens));
    if (fd < 0 || image_write(&kept, fd, NULL, &e)) rig_die("snapshot", &e);
    image_close(&kept);
    rounds_until(d, setting, until);
    begin_again(d, setting, t, 0);
    if (image_open(&m, d, &owner, &e)) rig_die("image", &e);
    CHECK(image_restore(&m, path, &e) == 0 && m.restored >= KV_BLOCK, "%s", e.msg);
    prefill(d);
    image_restore_drafters(&m);
    image_close(&m);
    close(fd), unlink(path);
}

static void one_run(size_t model, size_t setting, size_t t, enum way way)
{
    const size_t from = text[t].n_prompt, third = (text[t].n - from) / 3;
    struct decoder d;
    open_run(&d, setting, t, NULL);
    prefill(&d);
    for (size_t k = 1; k <= 2 && way == KILLED; k++) {
        rounds_until(&d, setting, from + k * third - setting % 7);
        begin_again(&d, setting, t, (setting + t) % 4);
        prefill(&d);
    }
    if (way == SNAPSHOT) {
        rounds_until(&d, setting, from + third);
        go_on_from_a_snapshot(&d, setting, t, from + 2 * third - setting % 7);
    }
    rounds_until(&d, setting, text[t].n);
    check_run(&d, model, setting, t, way);
    decode_close(&d);
}

static void runs_together(size_t model, const size_t (*run)[2], size_t n)
{
    struct decoder d[TOGETHER];
    struct round_buffers shared;
    struct err e;
    if (round_buffers_open(&shared, &rig.m, PREFILL_ROWS, 600, 400, &e)) rig_die("buffers", &e);
    for (size_t i = 0; i < n; i++) {
        open_run(&d[i], run[i][0], run[i][1], &shared);
        prefill(&d[i]);
    }
    for (size_t n_live = n; n_live;) {
        struct decoder *live[TOGETHER];
        n_live = 0;
        for (size_t i = 0; i < n; i++)
            if (d[i].n_tokens < text[run[i][1]].n) live[n_live++] = &d[i];
        if (n_live && decode_round(live, n_live, &e)) rig_die("round", &e);
    }
    for (size_t i = 0; i < n; i++) {
        check_run(&d[i], model, run[i][0], run[i][1], WITH_OTHERS);
        decode_close(&d[i]);
    }
    round_buffers_close(&shared);
}

/* ---- the matrix ---- */

static void plain_text(struct text *t, size_t i)
{
    struct decoder d;
    struct err e;
    t->p = sampling_of(i);
    t->n_prompt = 66 + i * 7 % 34, t->n = t->n_prompt + TEXT;
    rig_tokens(t->tokens, t->n_prompt, rig.c.vocab, i + 5);
    if (decode_open(&d, &rig.m, &t->p, NULL, t->tokens, t->n_prompt, t->n, &e)) rig_die("plain", &e);
    prefill(&d);
    while (d.n_tokens < t->n)
        if (decode_step(&d, &e)) rig_die("plain round", &e);
    memcpy(t->tokens, d.tokens, t->n * sizeof *t->tokens);
    decode_close(&d);
}

/* Every drafter and shape with `texts` samplings, the first of which is `first`. */
static void runs_of_a_model(size_t model, enum dtype kv, size_t texts, size_t first)
{
    size_t run[TOGETHER][2], n = 0;
    open_all(model, kv);
    for (size_t t = 0; t < texts; t++) plain_text(&text[t], first + t);
    for (size_t t = 0; t < texts; t++)
        for (size_t s = 0; s < N_SETTINGS; s++) {
            const enum way way = (enum way)((s + t + first) % N_WAYS);
            if (subjects[s / N_SHAPES].drafters == BIT(SPIRE) && !spire.file.mem)
                continue;
            if (way != WITH_OTHERS) {
                one_run(model, s, t, way);
                continue;
            }
            run[n][0] = s, run[n++][1] = t;
            if (n == TOGETHER)
                runs_together(model, run, n), n = 0;
        }
    if (n)
        runs_together(model, run, n);
    close_all();
}

static void every_run_writes_the_plain_text(void)
{
    size_t all = 0, group = 0;
    for (size_t m = 0; m < (long_test ? N_TINY : 1); m++)
        for (size_t kv = 0; kv < (long_test ? 4 : 3); kv++, group++)
            runs_of_a_model(m, (enum dtype[]){ DT_I16, DT_I8, DT_I4, DT_F32 }[kv], long_test ? TEXTS : 1,
                            long_test ? group * TEXTS : kv);
    for (size_t d = 0; d < N_SUBJECTS; d++) {
        const size_t *r = count[d].runs;
        printf("    %-8s %4zu whole, %4zu killed, %4zu snapshot, %4zu together; %.2f tokens a round alone\n",
               subjects[d].name, r[WHOLE], r[KILLED], r[SNAPSHOT], r[WITH_OTHERS],
               (double)count[d].tokens / (double)count[d].rounds);
        CHECK(r[WHOLE] && r[KILLED] && r[SNAPSHOT] && r[WITH_OTHERS] && count[d].tokens > count[d].rounds);
        all += r[WHOLE] + r[KILLED] + r[SNAPSHOT] + r[WITH_OTHERS];
    }
    printf("    %zu runs\n", all);
    CHECK(all >= (long_test ? 2000 : 50), "%zu", all);
}

int main(int argc, char **argv)
{
    long_test = argc > 1 && !strcmp(argv[1], "--long");
    RUN(every_run_writes_the_plain_text);
    return test_end();
}
