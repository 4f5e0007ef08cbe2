/* Layers with a window are rings: texts several times longer than them. Every text equals that of a cache
 * whose rings are as long as the text. Cuts, forks, shared beginnings and snapshots come before and after the
 * rows left the rings. */
#include "kvmgr/prefix.h"
#include "src/decode/decode.h"
#include "src/decode/decoder_image.h"
#include "tests/oracle.h"
#include "tests/rig.h"
#include <unistd.h>

#define BIT(x) (1u << DRAFTER_##x)
enum { WINDOW = 40, BACK = 64, END = 1400, PROMPT = 700, WHOLE = PROMPT / KV_BLOCK * KV_BLOCK,
       RING = ((WINDOW + RING_PASS + BACK + 63) / 64 + 1) * 64 };
static const struct tiny models[] = {
    { "mistral", "mistral", 64, 80, 4, 2, 16, 150, 2, WINDOW, DT_BF16, true },       /* rings alone */
    { "gemma3", "gemma3_text", 64, 80, 4, 2, 16, 150, 4, WINDOW, DT_BF16, true },
    { "gemma4", "gemma4_text", 64, 80, 4, 2, 16, 150, 4, WINDOW, DT_BF16, true },
};
enum { MODELS = sizeof models / sizeof *models };

static struct rig r;
static char dir[4096];
static struct sampling p;
static int32_t text[END], other[END];    /* of plain decoding without rings; with another end */

static void open_decoder(struct decoder *d, const struct decode_setup *s, const int32_t *tokens, size_t n,
                         size_t n_max)
{
    struct err e;
    if (decode_open(d, &r.m, &p, s, tokens, PROMPT, n_max, &e)) rig_die("open", &e);
    decode_append(d, tokens + PROMPT, n - PROMPT);
}
static void read_text(struct decoder *d)
{
    struct err e;
    if (decode_prefill(d, 0, NULL, NULL, &e)) rig_die("prefill", &e);
}
static void write_to(struct decoder *d, size_t n)
{
    struct err e;
    while (d->n_tokens < n)
        if (decode_step(d, &e)) rig_die("step", &e);
}
static void check(const struct decoder *d, const int32_t *truth, const char *what)
{
    size_t i = 0;
    while (i < d->n_tokens && d->tokens[i] == truth[i]) i++;
    CHECK(i == d->n_tokens, "%s: token %zu of %zu differs", what, i, d->n_tokens);
}
static void without_rings(int32_t *tokens, size_t n, size_t end)
{
    const struct decode_setup s = { .back = end };
    struct decoder d;
    open_decoder(&d, &s, tokens, n, end);
    CHECK(d.kv.ring == (end + 63) / 64);
    read_text(&d), write_to(&d, end);
    memcpy(tokens, d.tokens, end * sizeof *tokens);
    decode_close(&d);
}
static void open_model(size_t i, enum dtype kv)
{
    tiny_write(&models[i], dir);
    rig_open_kv(&r, dir, kv == DT_F32 ? DT_F32 : DT_BF16, kv, best_twin(), 2, 8, 64);
    sampling_defaults(&p);
    p.temperature = 0.9, p.seed = 7 + i, p.text_max = 8000;
    rig_tokens(text, PROMPT, r.c.vocab, 40 + i);
    memcpy(text + 300, text, 200 * sizeof *text);
    without_rings(text, PROMPT, END);
    memcpy(other, text, sizeof other);
    other[PROMPT - 20] ^= 1, other[PROMPT - 10] ^= 1;    /* 680 tokens in common */
    without_rings(other, PROMPT, END);
}
static void close_model(void) { rig_close(&r), tiny_remove(dir); }

/* The rings of the default size: kept bytes do not grow with the text. Plain decoding, trees of an oracle and
 * draft passes over partial copies of rows that left the rings. */
static void long_texts(void)
{
    enum { LONG = 6500 };
    static const enum dtype kinds[] = { DT_I16, DT_I8, DT_F32 };
    static int32_t tokens[LONG];
    for (size_t i = 0; i < MODELS; i++) {
        struct decoder d;
        open_model(i, kinds[i]);
        memcpy(tokens, text, PROMPT * sizeof *tokens);
        without_rings(tokens, PROMPT, LONG);
        const struct oracle all = { 4, tokens, LONG };
        for (int k = 0; k < 4; k++) {
            struct decode_setup s = { 0 };
            draft_defaults(&s.draft);
            s.draft.drafters = (unsigned[]){ 0, BIT(ADDED) | BIT(NGRAM), BIT(PARTIAL), BIT(PARTIAL) }[k];
            s.draft.kv_sinks = 16, s.draft.kv_budget = 300, s.draft.kv_fixed = true;
            s.draft.kv_policy = k == 3 ? KV_MEAN : KV_DYNAMIC;
            if (k == 1) oracle_set(&s.draft, &all);
            if (k) s.draft.n_width = 2, s.draft.width[0] = s.draft.width[1] = 2, s.draft.draft_passes = 2;
            s.draft.drafters &= draft_of_config(&r.c);
            open_decoder(&d, &s, tokens, k ? PROMPT + 3500 : PROMPT, LONG);
            CHECK(d.kv.ring == (WINDOW + RING_PASS + RING_BACK + 63) / 64 + 1);
            read_text(&d), write_to(&d, LONG);
            check(&d, tokens, "long");
            decode_close(&d);
        }
        close_model();
    }
}

/* As `score` computes them: the logits of every row, with rings and without, of a text and of another one in
 * the same cache. */
static void logits(void)
{
    enum { N = 3000, ROWS = 64 };
    static const enum dtype kinds[] = { DT_I16, DT_I4, DT_BF16 };
    static int32_t token[2][N];
    for (size_t i = 0; i < MODELS; i++) {
        struct kv kv[2];
        struct err e;
        tiny_write(&models[i], dir);
        rig_open_kv(&r, dir, DT_BF16, kinds[i], best_twin(), 2, ROWS, N);
        const size_t n = (size_t)N * r.c.vocab;
        float *x = must_alloc(n * sizeof *x), *y = must_alloc(n * sizeof *y);
        struct kv_size size = model_text_cache(&r.m, N, 0);
        CHECK(!kv_open(&kv[0], NULL, &size, &e) && kv[0].ring * KV_BLOCK < N, "%s", e.msg);
        rig_kv(&r, &kv[1], N, 0);
        for (size_t k = 0; k < 2; k++) {
            rig_tokens(token[k], N, r.c.vocab, 3 + k);
            kv_truncate(&kv[0], 0), kv_truncate(&kv[1], 0);
            rig_run(&r, &kv[0], token[k], N, ROWS, x, NULL);
            rig_run(&r, &kv[1], token[k], N, ROWS, y, NULL);
            CHECK(!memcmp(x, y, n * sizeof *x), "%s, text %zu", models[i].name, k);
        }
        kv_close(&kv[0]), kv_close(&kv[1]), free(x), free(y);
        close_model();
    }
}

/* A cut to `to` tokens of a text of `from`: rows that remain. */
static void cut(struct decoder *d, size_t from, size_t to, size_t remain)
{
    write_to(d, from);
    decode_cut(d, to, NULL, 0);
    CHECK(d->kv.n_past == remain, "%zu tokens cut to %zu: %zu rows, not %zu", from, to, d->kv.n_past, remain);
    read_text(d), write_to(d, from);
    check(d, text, "after a cut");
}
static void cuts(void)
{
    for (size_t i = 0; i < MODELS; i++)
        for (int marked = 0; marked < 2; marked++) {
            struct kv_total total = { 0 };
            struct decode_setup s = { .cuts = true, .back = BACK };
            struct decoder d;
            open_model(i, DT_I16);
            s.start.total = marked ? &total : NULL;
            const size_t mark = marked ? (PROMPT - 1) / 64 * 64 : 0;
            draft_defaults(&s.draft);
            open_decoder(&d, &s, text, PROMPT, END);
            CHECK(d.kv.ring * 64 == RING, "%zu", d.kv.ring);
            read_text(&d);
            cut(&d, 760, 720, 719);
            cut(&d, 800, PROMPT, PROMPT - 1);
            cut(&d, 1200, 1200 - BACK, 1199 - BACK);
            cut(&d, 1210, 1150, 1149);           /* a cut after a cut */
            cut(&d, 1300, 760, mark);
            cut(&d, END, PROMPT, mark);
            const size_t least = d.kv.n_past - RING + 2 * 64 + WINDOW;
            decode_cut(&d, least, NULL, 0);      /* what the ring holds is not read again */
            CHECK(d.kv.n_past == least - 1);
            decode_cut(&d, least - 128, NULL, 0);    /* rows that n_written no longer shows have left it */
            CHECK(d.kv.n_past == mark);
            read_text(&d), write_to(&d, END);
            check(&d, text, "after two cuts");
            decode_close(&d);
            CHECK(total.runs == 0 && total.bytes == 0);
            close_model();
        }
}

static void open_sharing(struct decoder *d, struct prefixes *list, const int32_t *tokens, size_t n,
                         size_t rows)
{
    const struct prefix_match m = prefix_find(list, tokens, n);
    struct decode_setup s = { .back = BACK,
                              .start = { m.kv, m.n_rows, &list->total, m.n_split } };
    draft_defaults(&s.draft);
    CHECK(m.n_rows == rows, "%zu rows shared, not %zu", m.n_rows, rows);
    open_decoder(d, &s, tokens, n, END);
    prefix_join(list, &d->kv, d->tokens, &d->n_tokens);
    read_text(d);
    CHECK(d->count.prefill_tokens == n - 1 - m.n_rows);
}
/* Beginnings are shared while the rings hold them, then up to the mark, of a kept cache, too. */
static void shared_beginnings(void)
{
    for (size_t i = 0; i < MODELS; i++) {
        struct prefixes list = { 0 };
        struct decoder d[6];
        struct kv kv;
        int32_t *tokens;
        open_model(i, DT_I16);
        open_sharing(&d[0], &list, text, PROMPT, 0);
        open_sharing(&d[1], &list, other, PROMPT, 640);         /* its rings hold the split */
        write_to(&d[0], 1300);
        open_sharing(&d[2], &list, text, 1290, 1280);            /* a fork */
        open_sharing(&d[3], &list, text, 900, 640);              /* that has left them: from the mark */
        write_to(&d[0], END), write_to(&d[1], END), write_to(&d[3], END);
        for (int k = 0; k < 2; k++) {
            prefix_leave(&list, &d[k].kv);
            decode_close_but(&d[k], &kv, &tokens);
            d[k] = (struct decoder){ .tokens = tokens, .n_tokens = END };
            if (k == 0) check(&d[k], text, "the first");
            else check(&d[k], other, "another end");
            d[k] = (struct decoder){ 0 };
            prefix_keep(&list, &kv, tokens);
        }
        prefix_leave(&list, &d[3].kv), check(&d[3], text, "from the mark"), decode_close(&d[3]);
        open_sharing(&d[4], &list, other, 900, 640);             /* of a kept cache */
        open_sharing(&d[5], &list, other, END - 10, (END - 11) / 64 * 64);
        for (int k = 2; k < 6; k++) {
            if (k == 3) continue;
            write_to(&d[k], END), check(&d[k], k == 2 ? text : other, "a late one");
            prefix_leave(&list, &d[k].kv), decode_close(&d[k]);
        }
        prefix_close(&list);
        close_model();
    }
}

/* A cut below the rings of a text leaves the rows that another text shares. */
static void a_cut_of_a_text_that_lends(void)
{
    for (size_t i = 1; i < MODELS; i++) {
        struct prefixes list = { 0 };
        struct decode_setup s = { .cuts = true, .back = BACK, .start = { .total = &list.total } };
        struct decoder a, b;
        const size_t lent = 890;             /* as a worker lends: rows before the last settled token's */
        open_model(i, DT_I16);
        draft_defaults(&s.draft);
        open_decoder(&a, &s, text, PROMPT, END);
        prefix_join(&list, &a.kv, a.tokens, &lent);
        read_text(&a), write_to(&a, 900);
        open_sharing(&b, &list, text, 890, 832);
        write_to(&a, END);
        decode_cut(&a, 900, NULL, 0);
        CHECK(a.kv.n_past == 640 && b.kv.n_shared * KV_BLOCK == 832);
        write_to(&b, END), check(&b, text, "the one that borrows");
        read_text(&a), write_to(&a, END), check(&a, text, "the one that lends");
        prefix_leave(&list, &a.kv), prefix_leave(&list, &b.kv);
        decode_close(&a), decode_close(&b);
        prefix_close(&list);
        close_model();
    }
}

static const char *image_path(size_t i)
{
    static char path[4200];
    snprintf(path, sizeof path, "%s/image-%zu", dir, i);
    return path;
}
/* Snapshots while a text is written, and a text that goes on with one, two or three of them. */
static void snapshots(void)
{
    static const struct snapshot_owner owner = { .job = 3, .attempt = 1, .fingerprint = "f",
                                                 .numerics = "n" };
    static const size_t at[] = { 750, 1100, 1380 };
    struct err e;
    for (size_t i = 0; i < MODELS; i++) {
        const struct decode_setup s = { .back = BACK };
        struct decoder d;
        struct image image;
        size_t rows[4] = { 0 };
        open_model(i, DT_I16);
        open_decoder(&d, &s, text, PROMPT, END);
        if (image_open(&image, &d, &owner, &e)) rig_die("image", &e);
        read_text(&d);
        for (size_t k = 0; k < 3; k++) {
            const size_t old = WHOLE;
            write_to(&d, at[k]);
            rows[k + 1] = image_rows(&image, at[k]);
            CHECK(rows[k + 1] == (at[k] - 1) / 64 * 64);
            image.most = &old;               /* the rings do not hold the windows there any more */
            CHECK(image_rows(&image, at[k]) == (k ? 0 : old));
            image.most = NULL;
            FILE *file = fopen(image_path(k), "wb");
            const uint64_t bytes = file ? image_capture(&image, rows[k], rows[k + 1]) : 0;
            write_to(&d, MIN(at[k] + 15, (size_t)END));  /* the captured rows leave the rings meanwhile */
            CHECK(bytes && image_write(&image, fileno(file), NULL, &e) == 0, "%s", e.msg);
            if (file) fclose(file);
        }
        image_close(&image), decode_close(&d);
        for (size_t n = 1; n <= 3; n++) {
            open_decoder(&d, &s, text, at[n - 1] + 1, END);
            if (image_open(&image, &d, &owner, &e)) rig_die("image", &e);
            for (size_t k = 0; k < n; k++)
                CHECK(image_restore(&image, image_path(k), &e) == 0, "%s", e.msg);
            CHECK(d.kv.n_past == rows[n]);
            read_text(&d), write_to(&d, END);
            check(&d, text, "from a snapshot");
            image_close(&image), decode_close(&d);
        }
        for (size_t k = 0; k < 3; k++) unlink(image_path(k));
        close_model();
    }
}

/* A cache of rings has the same bytes for texts of any length; other layers grow. */
static void bytes_of_rings(void)
{
    open_model(0, DT_I16);
    struct kv_size a = model_text_cache(&r.m, 8192, 0), b = model_text_cache(&r.m, 32768, 0);
    CHECK(kv_bytes(&a) == kv_bytes(&b) && kv_bytes(&a) < 8192 * (size_t)model_kv_bytes(&r.m));
    a = model_text_cache(&r.m, 320, 0);
    CHECK(kv_bytes(&a) == 320 * (size_t)model_kv_bytes(&r.m));
    close_model();
    open_model(1, DT_I16);
    a = model_text_cache(&r.m, 8192, 0), b = model_text_cache(&r.m, 32768, 0);
    CHECK(kv_bytes(&b) - kv_bytes(&a) == (32768 - 8192) * (size_t)model_kv_bytes(&r.m) / 2);
    close_model();
}

int main(void)
{
    RUN(bytes_of_rings);
    RUN(logits);
    RUN(cuts);
    RUN(shared_beginnings);
    RUN(a_cut_of_a_text_that_lends);
    RUN(snapshots);
    RUN(long_texts);
    return test_end();
}
