/* Snapshots of a decoder. A snapshot restores the state at its time, whatever the decoder wrote afterwards. A
 * file with a wrong bit, or of something else, is rejected and leaves the decoder unchanged. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

#include "src/decode/decoder_image.h"
#include "tests/device_open.h"
#include "tests/rig.h"

static char path[64];
static struct rig rig;
enum { PROMPT = 150, N_MAX = 460 };

static void put_file(const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f)) abort();
}
static size_t get_file(char **bytes)
{
    struct err e;
    size_t n;
    if (file_read(bytes, &n, path, (size_t)1 << 30, &e)) abort();
    return n;
}

/* ---- the file ---- */

enum { A = 700, B = (5 << 20) / 2, C = 3 };
static char a[A], b[B], c[C];
static const struct snapshot_part part_a[] = { { a, 300 }, { a + 300, 0 }, { a + 300, 400 } },
    part_b[] = { { b, B } }, part_c[] = { { c, C } };
static const struct snapshot_section small[] = { { "a", "bytes", part_a, 3 }, { "c", "three", part_c, 1 },
    { "none", "", NULL, 0 } }, large[] = { { "a", "bytes", part_a, 3 }, { "b", "many", part_b, 1 } };

static void write_sections(const struct snapshot_section *s, size_t n)
{
    struct snapshot_owner o;
    struct err e;
    memset(&o, 0, sizeof o);
    o.job = 7, o.tokens = 64;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && snapshot_write(fd, &o, s, n, NULL, &e) == 0, "%s", e.msg);
    close(fd);
}
static bool good(struct pool *pool)
{
    struct snapshot *f;
    struct err e;
    if (snapshot_open(&f, path, &e)) return false;
    bool ok = snapshot_check(f, pool, &e) == 0;
    snapshot_close(f);
    return ok;
}
static void sections_come_back(void)
{
    struct snapshot *f;
    struct err e;
    char *bytes, back[B], x[A];
    for (int threads = 0; threads < 3; threads += 2) {
        write_sections(large, 2);
        size_t n = get_file(&bytes);
        CHECK(n == snapshot_bytes(large, 2) && good(threads ? rig.pool : NULL));
        free(bytes);
        CHECK(snapshot_open(&f, path, &e) == 0 && snapshot_owner(f)->job == 7 &&
                  snapshot_owner(f)->tokens == 64,
              "%s", e.msg);
        CHECK(snapshot_size(f, "a", "bytes") == A && snapshot_size(f, "b", "many") == B &&
              !snapshot_size(f, "b", "bytes") && !snapshot_size(f, "x", "many"));
        memset(back, 0, B), memset(x, 0, A);
        /* the reader's parts may differ from the writer's */
        const struct snapshot_part to_b[] = { { back, 1000 }, { back + 1000, B - 1000 } },
            to_a[] = { { x, A } };
        CHECK(snapshot_read(f, &(struct snapshot_section){ "b", "many", to_b, 2 }, threads ? rig.pool : NULL,
                            &e) == 0 && memcmp(back, b, B) == 0);
        CHECK(snapshot_read(f, &(struct snapshot_section){ "a", "bytes", to_a, 1 }, NULL, &e) == 0 &&
              memcmp(x, a, A) == 0);
        snapshot_close(f);
    }
}
static void every_flipped_bit_is_seen(void)
{
    char *bytes;
    size_t n, missed = 0, flips = 0;
    write_sections(small, 3);
    n = get_file(&bytes);
    for (size_t i = 0; i < 8 * n; i++, flips++) {
        bytes[i / 8] ^= (char)(1 << i % 8);
        put_file(bytes, n);
        missed += good(NULL);
        bytes[i / 8] ^= (char)(1 << i % 8);
        /* fewer bytes of the empty end of the header's page */
        if (i >= 8 * 3000 && i < 8 * 4000 && i % 64 == 0) i += 57;
    }
    CHECK(missed == 0, "%zu of %zu", missed, flips);
    free(bytes);
    struct rng rng = { 3 };
    write_sections(large, 2);
    n = get_file(&bytes);
    for (size_t page = 0; page < n; page += 4096) {
        size_t i = page + rng_below(&rng, MIN((size_t)4096, n - page));
        char before = bytes[i];
        int fd = open(path, O_WRONLY);
        bytes[i] ^= (char)(1 << rng_below(&rng, 8));
        CHECK(pwrite(fd, bytes + i, 1, (off_t)i) == 1);
        missed += good(rig.pool);
        CHECK(pwrite(fd, &before, 1, (off_t)i) == 1);
        bytes[i] = before;
        close(fd);
    }
    CHECK(missed == 0 && good(rig.pool), "%zu pages", missed);
    free(bytes);
}
static void a_torn_file_is_seen(void)
{
    char *bytes, zero[4096] = { 0 };
    write_sections(small, 3);
    size_t n = get_file(&bytes), missed = 0;
    for (size_t k = 0; k < n; k += k < 4090 ? 13 : 1) {
        put_file(bytes, k);
        missed += good(NULL);
    }
    CHECK(missed == 0, "%zu shorter ones", missed);
    bytes = realloc(bytes, n + 1);
    bytes[n] = 0;
    put_file(bytes, n + 1);
    CHECK(!good(NULL), "longer");
    for (size_t at = 0; at < n; at += 4096) {      /* a page that never reached the disk */
        put_file(bytes, n);
        int fd = open(path, O_WRONLY);
        CHECK(pwrite(fd, zero, MIN(sizeof zero, n - at), (off_t)at) > 0);
        close(fd);
        CHECK(!good(NULL), "page at %zu", at);
    }
    free(bytes);
}

/* ---- the decoder ---- */

static struct partial *cache_of(struct decoder *d) { return d->own[DRAFTER_PARTIAL]; }

#define BIT(x) (1u << DRAFTER_##x)
static const struct setting { const char *name; unsigned drafters; size_t width[3],
                              n_width; enum kv_policy policy; size_t sinks, budget; } settings[] = {
    { "plain", 0, { 0 }, 0, KV_DYNAMIC, 16, 4096 },
    { "partial, dynamic", BIT(PARTIAL) | BIT(NGRAM), { 1, 3, 3 }, 3, KV_DYNAMIC, 8, 100 },
    { "partial, static", BIT(PARTIAL) | BIT(SUFFIX), { 2, 2 }, 2, KV_STATIC, 4, 90 },
    { "partial, window", BIT(PARTIAL), { 2, 2 }, 2, KV_WINDOW, 4, 64 },
    { "auto", BIT(PARTIAL) | BIT(NGRAM) | BIT(SUFFIX), { 0 }, 0, KV_AUTO, 4, 200 },
    { "partial, mean", BIT(PARTIAL), { 2, 2 }, 2, KV_MEAN, 4, 64 },
};
enum { N_SETTINGS = sizeof settings / sizeof *settings };

static struct snapshot_owner owner_of(int64_t job)
{
    struct snapshot_owner o;
    memset(&o, 0, sizeof o);
    o.job = job, o.attempt = 3;
    strcpy(o.fingerprint, "0123abcd"), strcpy(o.numerics, "cpu-1-bf16");
    return o;
}
static void open_decoder(struct decoder *d, const struct setting *x, const int32_t *prompt)
{
    struct decode_setup s = { 0 };
    struct sampling p;
    struct err e;
    draft_defaults(&s.draft);
    s.draft.drafters = x->drafters, s.draft.n_width = x->n_width, s.draft.kv_policy = x->policy,
    s.draft.kv_sinks = x->sinks, s.draft.kv_budget = x->budget;
    memcpy(s.draft.width, x->width, sizeof x->width);
    s.draft.kv_fixed = x->n_width > 0, s.draft.draft_passes = x->n_width ? 2 : -1;
    sampling_defaults(&p);
    p.seed = 5, p.min_p = 0.1, p.penalty = 1.2, p.penalty_window = 30, p.text_max = N_MAX;
    if (draft_check(&s.draft, &e) || decode_open(d, &rig.m, &p, &s, prompt, PROMPT, N_MAX, &e))
        rig_die("decoder", &e);
}
static void prefill(struct decoder *d)
{
    struct err e;
    if (decode_prefill(d, 0, NULL, NULL, &e)) rig_die("prefill", &e);
}
static void finish(struct decoder *d)
{
    struct err e;
    while (d->n_tokens < d->n_max)
        if (decode_step(d, &e)) rig_die("step", &e);
}

static void *write_image(void *image)
{
    static struct err e;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    int rc = image_write(image, fd, NULL, &e);
    if (rc) printf("    %s\n", e.msg);
    close(fd);
    return rc ? &e : NULL;
}

/* Writes the text of setting x. A thread writes a snapshot of its first tokens meanwhile. *tokens: their
 * number. lagging: the partial cache has not followed the last round, as between rounds. */
static void text_and_snapshot(struct decoder *d, struct image *m, const struct setting *x,
                              const int32_t *prompt, size_t at, bool lagging, size_t *tokens)
{
    struct err e;
    struct snapshot_owner o = owner_of(9);
    pthread_t t;
    void *failed;
    open_decoder(d, x, prompt);
    if (image_open(m, d, &o, &e)) rig_die("image", &e);
    prefill(d);
    while (d->n_tokens < at)
        if (decode_step(d, &e)) rig_die("step", &e);
    *tokens = d->n_tokens;
    size_t rows = image_rows(m, d->n_tokens);
    CHECK(rows % KV_BLOCK == 0 && rows <= d->kv.n_past && rows + KV_BLOCK > d->kv.n_past &&
          image_rows(m, 130) == 128);
    if (!lagging) partial_follow(d->own[DRAFTER_PARTIAL]);          /* as the next round would */
    CHECK(image_capture(m, 0, rows) > 0);
    pthread_create(&t, NULL, write_image, m);
    finish(d);
    pthread_join(t, &failed);
    CHECK(!failed);
}

static void the_text_goes_on_as_it_would_have(void)
{
    int32_t prompt[PROMPT];
    rig_tokens(prompt, PROMPT, rig.c.vocab, 4);
    for (size_t i = 0; i < N_SETTINGS; i++) {
        struct decoder whole, d;
        struct image kept, m;
        struct err e;
        size_t at;
        const struct setting *x = &settings[i];
        text_and_snapshot(&whole, &kept, x, prompt, 300, true, &at);
        const size_t cuts[] = { 257, at, 340, N_MAX - 1 };
        for (size_t k = 0; k < 4; k++) {
            struct snapshot_owner o = owner_of(9);
            o.attempt = 8;
            open_decoder(&d, x, prompt);
            if (image_open(&m, &d, &o, &e)) rig_die("image", &e);
            decode_append(&d, whole.tokens + PROMPT, cuts[k] - PROMPT);
            CHECK(image_restore(&m, path, &e) == 0, "%s, %zu: %s", x->name, cuts[k], e.msg);
            CHECK(d.kv.n_past == 256 && m.restored == 256 && rig_same_rows(&d.kv, &whole.kv, 0, 256), "%s",
                  x->name);
            prefill(&d);
            CHECK(d.count.prefill_tokens == cuts[k] - 1 - 256);
            image_restore_drafters(&m);
            const struct partial *p = d.own[DRAFTER_PARTIAL];
            if (x->drafters & BIT(PARTIAL) && x->n_width && cuts[k] >= at) {
                CHECK(p->filled, "%s", x->name);
                size_t newest = 0;           /* rows after the snapshot have replaced its slots */
                for (size_t slot = p->sinks; slot < p->budget; slot++)
                    newest += p->row[slot] == d.kv.n_past - 1;
                CHECK(p->policy == KV_MEAN ? p->n_far == p->n_seen - 4 - 30 : newest == 1 || cuts[k] == at,
                      "%s: %zu", x->name, newest);
                CHECK(p->n_seen == d.kv.n_past && !p->refreshes, "%s: taken over, not selected again",
                      x->name);
            }
            finish(&d);
            CHECK(memcmp(d.tokens, whole.tokens, N_MAX * sizeof *d.tokens) == 0, "%s, from %zu", x->name,
                  cuts[k]);
            CHECK(rig_same_rows(&d.kv, &whole.kv, 0,
                                d.kv.n_past < whole.kv.n_past ? d.kv.n_past : whole.kv.n_past),
                  "%s, from %zu", x->name, cuts[k]);
            image_close(&m), decode_close(&d);
        }
        image_close(&kept), decode_close(&whole);
    }
}

/* Rows of several consecutive files. With one bad file the text is read again from its start. */
static void files_follow_each_other(void)
{
    enum { AT_FIRST = 2 * KV_BLOCK };
    int32_t prompt[PROMPT];
    rig_tokens(prompt, PROMPT, rig.c.vocab, 4);
    const struct setting *x = &settings[1];
    struct decoder whole, d;
    struct image kept, m;
    struct err e = { 0 };
    struct snapshot_owner o = owner_of(9);
    char first[sizeof path], second[sizeof path];
    size_t at;
    text_and_snapshot(&whole, &kept, x, prompt, 300, true, &at);
    snprintf(first, sizeof first, "%s", path);
    snprintf(path + strlen(path), sizeof path - strlen(path), ".2");
    snprintf(second, sizeof second, "%s", path);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s", i ? second : first);
        CHECK(image_capture(&kept, i ? AT_FIRST : 0, i ? 256 : AT_FIRST) > 0);
        CHECK(write_image(&kept) == NULL);
    }
    for (int damaged = 0; damaged < 2; damaged++) {
        open_decoder(&d, x, prompt);
        if (image_open(&m, &d, &o, &e)) rig_die("image", &e);
        decode_append(&d, whole.tokens + PROMPT, at - PROMPT);
        CHECK(image_restore(&m, second, &e) == -1 && strstr(e.msg, "from token 128 on, not from 0") &&
                  d.kv.n_past == 0,
              "%s", e.msg);
        CHECK(image_restore(&m, first, &e) == 0 && d.kv.n_past == AT_FIRST && m.restored == AT_FIRST, "%s",
              e.msg);
        if (damaged) {
            int fd = open(second, O_RDWR);
            char byte = 0;
            CHECK(pread(fd, &byte, 1, 5000) == 1 && (byte ^= 1, pwrite(fd, &byte, 1, 5000) == 1));
            close(fd);
        }
        CHECK(image_restore(&m, second, &e) == (damaged ? -1 : 0), "%s", e.msg);
        const size_t rows = damaged ? AT_FIRST : 256;
        CHECK(d.kv.n_past == rows && m.restored == rows && rig_same_rows(&d.kv, &whole.kv, 0, rows),
              "%zu rows", d.kv.n_past);
        CHECK(image_restore(&m, first, &e) == -1 && d.kv.n_past == rows, "once more");
        prefill(&d);
        CHECK(d.count.prefill_tokens == at - 1 - rows);
        image_restore_drafters(&m);
        finish(&d);
        CHECK(memcmp(d.tokens, whole.tokens, N_MAX * sizeof *d.tokens) == 0);
        image_close(&m), decode_close(&d);
    }
    image_close(&kept), decode_close(&whole);
    unlink(second);
    snprintf(path, sizeof path, "%s", first);
}

/* Restoring gives the saved selection, and saving it again gives the same bytes. */
static void the_selection_comes_back(void)
{
    int32_t prompt[PROMPT];
    char *again;
    rig_tokens(prompt, PROMPT, rig.c.vocab, 4);
    for (size_t i = 1; i < N_SETTINGS; i++) {
        if (!settings[i].n_width) continue;
        struct decoder whole, d;
        struct image kept, m;
        struct err e;
        size_t at;
        text_and_snapshot(&whole, &kept, &settings[i], prompt, 300, false, &at);
        struct snapshot_owner o = owner_of(9);
        open_decoder(&d, &settings[i], prompt);
        if (image_open(&m, &d, &o, &e)) rig_die("image", &e);
        decode_append(&d, whole.tokens + PROMPT, at - PROMPT);
        CHECK(image_restore(&m, path, &e) == 0, "%s", e.msg);
        prefill(&d);
        image_restore_drafters(&m);
        size_t k = 0, compared = 0;
        for (; k < N_DRAFTERS; k++) {
            if (!kept.state[k].n) continue;
            again = malloc(kept.state[k].room);
            size_t n = drafters[k]->snapshot.save(&d, again);
            CHECK(n == kept.state[k].n && memcmp(again, kept.state[k].p, n) == 0, "%s: %zu of %zu bytes",
                  settings[i].name, n, kept.state[k].n);
            const struct partial *p = d.own[DRAFTER_PARTIAL];
            if (p->policy == KV_MEAN)        /* computed again: tests/kvmgr/test_partial.c */
                CHECK(p->filled && p->kv.bias && p->n_far == d.kv.n_past - 4 - 30 &&
                      p->kv.n_past == 4 + 30 + (p->n_far + p->group - 1) / p->group);
            for (size_t h = 0; h < p->kv.n_kv_heads && p->policy != KV_MEAN; h++)
                for (size_t slot = 0; slot < p->budget; slot++) {
                    float x[2 * HEAD_DIM_MAX], y[2 * HEAD_DIM_MAX];
                    size_t row = p->row[h * p->budget_max + slot];
                    kv_get(x, p->kv.type, p->kv.head_dim, slot % KV_BLOCK, kv_block(&p->kv, 0, h, slot));
                    kv_get(y, p->kv.type, p->kv.head_dim, row % KV_BLOCK, kv_block(&d.kv, 0, h, row));
                    CHECK(memcmp(x, y, kv_row_bytes(p->kv.type, p->kv.head_dim)) == 0, "slot %zu", slot);
                }
            CHECK(!drafters[k]->snapshot.load(&d, again, n - 1) &&
                      !drafters[k]->snapshot.load(&d, again, 3),
                  "a shorter one");
            memset(again + n - 4, 0xff, 4);
            CHECK(!drafters[k]->snapshot.load(&d, again, n), "a row that is not there");
            compared++;
            free(again);
        }
        CHECK(compared == 1, "%s", settings[i].name);
        image_close(&m), decode_close(&d), image_close(&kept), decode_close(&whole);
    }
}

/* Means need the host's memory: a device rejects them, and `auto` works without them. */
static void means_are_refused(const int32_t *prompt)
{
    struct decoder d;
    struct decode_setup s = { 0 };
    struct sampling p;
    struct err e = { 0 };
    draft_defaults(&s.draft);
    s.draft.drafters = BIT(PARTIAL), s.draft.kv_budget = 60;
    sampling_defaults(&p);
    for (int mean = 0; mean < 2; mean++) {
        s.draft.kv_policy = mean ? KV_MEAN : KV_AUTO;
        int rc = decode_open(&d, &rig.m, &p, &s, prompt, PROMPT, N_MAX, &e);
        CHECK(mean ? rc == -1 && e.code == ERR_INPUT && strstr(e.msg, "--kv-policy mean is not supported")
                   : rc == 0 && d.cache[0].policy == KV_WINDOW,
              "%s", e.msg);
        if (rc == 0) decode_close(&d);
    }
}

/* On a device, whose list of selected rows differs from the host's: the same slots, and the learned
 * budget. */
static void the_selection_comes_back_on_a_device(void)
{
    enum { TEXT = 25, END = 32 };
    static const struct setting of[] = {
        { "dynamic", BIT(PARTIAL), { 1, 1 }, 2, KV_DYNAMIC, 3, 40 },
        { "static", BIT(PARTIAL), { 1, 1 }, 2, KV_STATIC, 2, 33 },
        { "window", BIT(PARTIAL), { 1, 1 }, 2, KV_WINDOW, 4, 30 },
        { "auto", BIT(PARTIAL), { 0 }, 0, KV_AUTO, 4, 60 },
    };
    char dir[4096], why[256];
    struct rig r = { 0 };
    struct err e = { 0 };
    int32_t prompt[PROMPT];
    if (test_device_open(&r.dev, why, sizeof why)) {
        printf("skip the_selection_comes_back_on_a_device (%s)\n", why);
        return;
    }
    tiny_write(&tiny_models[0], dir);
    r.pool = pool_open(1);
    if (config_read(&r.c, dir, &e) ||
        model_open(&r.m, dir, &(struct model_setup){ &r.c, DT_BF16, r.dev, best_twin(), r.pool }, &e))
        rig_die("model", &e);
    const struct rig host = rig;
    rig = r;                                     /* for open_decoder */
    rig_tokens(prompt, PROMPT, r.c.vocab, 4);
    means_are_refused(prompt);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct decoder d[2];
        struct image m[2];
        struct snapshot_owner o = owner_of(9);
        char *state[2];
        size_t n[2], drafter = DRAFTER_PARTIAL, bytes;
        for (int k = 0; k < 2; k++) {
            open_decoder(&d[k], &of[i], prompt);
            if (image_open(&m[k], &d[k], &o, &e)) rig_die("image", &e);
            struct partial *p = d[k].own[DRAFTER_PARTIAL];
            if (k == 0) {
                prefill(&d[0]);
                while (d[0].n_tokens < PROMPT + TEXT || (of[i].n_width && p->n_recent < 3))
                    if (decode_step(&d[0], &e)) rig_die("step", &e);
                partial_follow(p);
                CHECK(image_capture(&m[0], 0, image_rows(&m[0], d[0].n_tokens)) > 0 && !write_image(&m[0]));
                CHECK(!of[i].n_width || (p->filled && p->n_recent > 0), "%s: %zu recent rows", of[i].name,
                      p->n_recent);
            } else {
                decode_append(&d[1], d[0].tokens + PROMPT, d[0].n_tokens - PROMPT);
                CHECK(image_restore(&m[1], path, &e) == 0, "%s: %s", of[i].name, e.msg);
                prefill(&d[1]);
                image_restore_drafters(&m[1]);
                CHECK(p->filled == cache_of(&d[0])->filled && p->refreshes == 0 &&
                          d[1].current_cache == d[0].current_cache &&
                          memcmp(d[1].planner.cache, d[0].planner.cache,
                                 sizeof d[0].planner.cache) == 0,
                      "%s: selected anew, or another budget", of[i].name);
            }
            bytes = p->kv.layer_bytes * p->kv.n_layers;
            state[k] = malloc(m[k].state[drafter].room + bytes);
            n[k] = drafters[drafter]->snapshot.save(&d[k], state[k]);
            CHECK(n[k] <= m[k].state[drafter].room && (n[k] > 0) == p->filled &&
                  r.dev->download(r.dev, state[k] + n[k], p->kv.base, bytes) == 0);
        }
        CHECK(n[0] == n[1] && (n[0] || !of[i].n_width) && memcmp(state[0], state[1], n[0]) == 0,
              "%s: another selection", of[i].name);
        const struct partial *p = d[0].own[DRAFTER_PARTIAL];
        for (size_t l = 0; l < p->kv.n_layers && n[0]; l++)
            for (size_t h = 0; h < p->kv.n_kv_heads; h++)
                /* the bytes of all slots below the budget: K, and V 64 rows further on */
                for (size_t slot = 0; slot < p->budget; slot++) {
                    const size_t row = p->kv.head_dim * 2,
                                 at = n[0] + l * p->kv.layer_bytes + h * p->kv.head_bytes +
                                      slot / KV_BLOCK * p->kv.block_bytes + slot % KV_BLOCK * row;
                    CHECK(memcmp(state[0] + at, state[1] + at, row) == 0 &&
                              memcmp(state[0] + at + KV_BLOCK * row, state[1] + at + KV_BLOCK * row, row) ==
                                  0,
                          "%s: slot %zu", of[i].name, slot);
                }
        for (int k = 0; k < 2; k++)
            while (d[k].n_tokens < PROMPT + END)
                if (decode_step(&d[k], &e)) rig_die("step", &e);
        CHECK(memcmp(d[0].tokens, d[1].tokens, (PROMPT + END) * sizeof *d[0].tokens) == 0 &&
                  cache_of(&d[0])->refreshes >= cache_of(&d[1])->refreshes,
              "%s", of[i].name);
        for (int k = 0; k < 2; k++)
            free(state[k]), image_close(&m[k]), decode_close(&d[k]);
    }
    rig = host;
    rig_close(&r), tiny_remove(dir);
}

/* The message contains `why`, and the cache is unchanged. */
static void refused(struct decoder *d, struct image *m, const char *why)
{
    struct err e = { 0 };
    struct kv *kv = &d->kv;
    CHECK(image_restore(m, path, &e) == -1 && strstr(e.msg, why), "%s: %s", why, e.msg);
    size_t other = 0;
    for (size_t i = 0; i < kv->layer_bytes * kv->n_layers; i++)
        other += kv->base[i] != 0;
    CHECK(kv->n_past == 0 && other == 0 && !m->restored, "%s: %zu bytes", why, other);
}

static void foreign_snapshots_are_rejected(void)
{
    const struct setting *x = &settings[1];
    int32_t prompt[PROMPT];
    struct decoder whole, d;
    struct image kept, m;
    struct err e;
    size_t at;
    rig_tokens(prompt, PROMPT, rig.c.vocab, 4);
    text_and_snapshot(&whole, &kept, x, prompt, 300, false, &at);
    for (int i = 0; i < 8; i++) {
        static const char *const why[] = { "of job 9, not 10", "another model",
                                           "other arithmetic, cpu-1-bf16, not cpu-2-bf16",
                                               "another context scaling", "another text", "another text",
                                           "of 256 tokens, the text has 256", "No such file" };
        struct snapshot_owner o = owner_of(i == 0 ? 10 : 9);
        if (i == 1) o.fingerprint[0] = 'f';
        if (i == 2) o.numerics[4] = '2';
        if (i == 3) strcpy(o.context, "yarn:4");
        open_decoder(&d, x, prompt);
        decode_append(&d, whole.tokens + PROMPT, (i == 6 ? 256 : at) - PROMPT);
        if (i == 4) d.tokens[255] ^= 1;
        if (i == 5) d.tokens[0] ^= 1;
        if (image_open(&m, &d, &o, &e)) rig_die("image", &e);
        if (i == 7) unlink(path);
        refused(&d, &m, why[i]);
        if (i == 3 || i == 7) {              /* afterwards the text is read */
            prefill(&d);
            finish(&d);
            CHECK(memcmp(d.tokens, whole.tokens, N_MAX * sizeof *d.tokens) == 0);
        }
        image_close(&m), decode_close(&d);
    }
    write_image(&kept);
    struct snapshot_owner o = owner_of(9);   /* another geometry of the cache under the same names */
    open_decoder(&d, x, prompt);
    decode_append(&d, whole.tokens + PROMPT, at - PROMPT);
    if (image_open(&m, &d, &o, &e)) rig_die("image", &e);
    m.shape[0] ^= 1;
    refused(&d, &m, "no rows of a cache");
    m.shape[0] ^= 1;
    char *bytes;                             /* damaged in the middle of the rows */
    size_t n = get_file(&bytes);
    bytes[n / 2] ^= 16;
    put_file(bytes, n);
    refused(&d, &m, "section kv is damaged");
    put_file(bytes, n - 1);
    refused(&d, &m, "bytes");
    bytes[n / 2] ^= 16;
    put_file(bytes, n);
    free(bytes);
    CHECK(image_restore(&m, path, &e) == 0, "%s", e.msg);
    image_close(&m), decode_close(&d);
    image_close(&kept), decode_close(&whole);
}

static void the_estimate_grows_with_the_text(void)
{
    int32_t prompt[PROMPT];
    struct decoder d;
    struct image m;
    struct err e;
    struct snapshot_owner o = owner_of(1);
    rig_tokens(prompt, PROMPT, rig.c.vocab, 4);
    open_decoder(&d, &settings[0], prompt);
    if (image_open(&m, &d, &o, &e)) rig_die("image", &e);
    CHECK(image_rebuild_seconds(&m, 1000) == 0, "nothing is known");
    prefill(&d);
    double t = image_rebuild_seconds(&m, PROMPT - 1);
    CHECK(fabs(t - d.count.prefill_seconds) < 1e-9, "%g %g", t, d.count.prefill_seconds);
    CHECK(image_rebuild_seconds(&m, 10000) > 60 * t &&
              image_rebuild_seconds(&m, 20000) > 2 * image_rebuild_seconds(&m, 10000),
          "and attention more than that");
    d.count.prefill_tokens = 10;
    CHECK(image_rebuild_seconds(&m, 1000) == 0, "too few to know");
    for (size_t i = 0; i < 100; i++) {
        if (decode_step(&d, &e)) rig_die("step", &e);
        decode_add_stats(&d, 1);
    }
    CHECK(image_rebuild_seconds(&m, 1000) > 0);
    image_close(&m), decode_close(&d);
}

int main(void)
{
    char dir[4096];
    struct tiny model = tiny_models[0];
    struct rng rng = { 1 };
    snprintf(path, sizeof path, "%s/longhand-snapshot-XXXXXX",
             access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    int fd = mkstemp(path);
    if (fd < 0) return 1;
    close(fd);
    for (size_t i = 0; i < A; i++) a[i] = (char)rng_next(&rng);
    for (size_t i = 0; i < B; i++) b[i] = (char)rng_next(&rng);
    tiny_write(&model, dir);
    rig_open(&rig, dir, DT_BF16, best_twin(), 2, 256, 1024);
    RUN(sections_come_back);
    RUN(every_flipped_bit_is_seen);
    RUN(a_torn_file_is_seen);
    RUN(the_text_goes_on_as_it_would_have);
    RUN(files_follow_each_other);
    RUN(the_selection_comes_back);
    RUN(the_selection_comes_back_on_a_device);
    RUN(foreign_snapshots_are_rejected);
    RUN(the_estimate_grows_with_the_text);
    rig_close(&rig);
    tiny_remove(dir);
    unlink(path);
    return test_end();
}
