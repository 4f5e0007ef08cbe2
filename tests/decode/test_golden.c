/* Golden hashes: logits of small models and texts of the demonstration model, under numerics version
 * NUMERICS_VERSION (kernels/ops.h). They are equal on every CPU. tests/golden.txt holds lines
 *
 *     VERSION NAME HASH        FNV-1a over logits (floats) or token ids (int32), little endian
 *
 * A changed definition must raise NUMERICS_VERSION; `test_golden --write >> tests/golden.txt` writes the new
 * lines. `test_golden --logits` omits the texts, for emulators. Lines of a published version are never
 * edited. Without --long the plain twin, and that of in_c_golden, compute every other quantised body, and
 * in_c_golden writes greedy texts only. */
#include "src/decode/decode.h"
#include "tests/rig.h"

static const char golden_file[] = "tests/golden.txt", demo[] = "models/demo";
static bool writing, long_test;

/* in_c_golden tests its twin alone, --write asks the plain one alone. */
static bool left_out(const struct ops *o)
{
    return writing ? o != ops_all[0] : in_c() && o != best_twin();
}

/* Compares the hash with the file; prints the line under --write. */
static void golden(const char *name, const struct ops *o, uint64_t hash)
{
    char line[256], want[64] = "";
    if (writing) {
        printf("%d %s %016llx\n", NUMERICS_VERSION, name, (unsigned long long)hash);
        return;
    }
    FILE *f = fopen(golden_file, "r");
    CHECK(f, "%s is missing", golden_file);
    while (f && fgets(line, sizeof line, f)) {
        int version;
        char of[128], value[64];
        if (sscanf(line, "%d %127s %63s", &version, of, value) == 3 && version == NUMERICS_VERSION &&
            !strcmp(of, name))
            strcpy(want, value);
    }
    if (f) fclose(f);
    snprintf(line, sizeof line, "%016llx", (unsigned long long)hash);
    CHECK(!strcmp(want, line),
          "%s, %s: %s, numerics version %d has %s: a definition changed, raise NUMERICS_VERSION", name,
          o->name, line, NUMERICS_VERSION, *want ? want : "none");
}

/* 40 rows at the start, then 12 rows at position 2,040 of a random cache: a block border, a chunk border, and
 * a window in some models. */
static uint64_t rig_hash(struct rig *rig, const char *name)
{
    struct rig r = *rig;
    struct kv kv;
    int32_t token[52];
    rig_kv(&r, &kv, 2100, 0);
    rig_tokens(token, 52, r.c.vocab, 77);
    float *logits = must_alloc(52 * r.c.vocab * sizeof *logits);
    rig_run(&r, &kv, token, 40, 40, logits, NULL);
    kv_truncate(&kv, 0);
    rig_inject(&kv, 2040, 78);
    rig_run(&r, &kv, token + 40, 12, 5, logits + 40 * r.c.vocab, NULL);
    uint64_t hash = hash64(HASH64_INIT, logits, 52 * r.c.vocab * sizeof *logits);
    double mean = 0, spread = 0, n = 52 * (double)r.c.vocab;   /* a hash of zeros would prove nothing */
    for (size_t i = 0; i < 52 * r.c.vocab; i++) mean += (double)logits[i] / n;
    for (size_t i = 0; i < 52 * r.c.vocab; i++)
        spread += ((double)logits[i] - mean) * ((double)logits[i] - mean) / n;
    CHECK(spread > 0.25 && spread < 1000, "%s: deviation of the logits %g", name, sqrt(spread));
    free(logits);
    kv_close(&kv), rig_close(rig);
    return hash;
}
static uint64_t logits_hash(const char *dir, enum dtype compute, enum dtype kind, const struct ops *o)
{
    struct rig r;
    rig_open_kv(&r, dir, compute, kind, o, 2, 40, 2100);
    return rig_hash(&r, dir);
}
static const enum dtype kinds[] = { DT_BF16, DT_F32, DT_I16, DT_I8, DT_I4 };    /* of caches */
static const char *const kind_name[] = { "compute-bf16", "compute-f32", "kv-int16", "kv-int8", "kv-int4" };

static void logits_are_golden(void)
{
    for (size_t t = 0; t < N_TINY; t++) {
        char dir[4096], name[128];
        tiny_write(&tiny_models[t], dir);
        for (size_t kv = 0; kv < 5; kv++) {
            snprintf(name, sizeof name, "%s-%s", tiny_models[t].name, kind_name[kv]);
            FOR_TWINS(o) {
                if (left_out(o)) continue;
                golden(name, o, logits_hash(dir, kinds[kv] == DT_F32 ? DT_F32 : DT_BF16, kinds[kv], o));
            }
        }
        tiny_remove(dir);
    }
    FOR_TWINS(o) {
        if (left_out(o)) continue;
        golden("demo-compute-bf16", o, logits_hash(demo, DT_BF16, DT_BF16, o));
        golden("demo-kv-int16", o, logits_hash(demo, DT_BF16, DT_I16, o));
        golden("demo-kv-int8", o, logits_hash(demo, DT_BF16, DT_I8, o));
        golden("demo-kv-int4", o, logits_hash(demo, DT_BF16, DT_I4, o));
    }
}

/* Random models of each quantised type, with int16 activations and under f32. */
static void quantised_logits_are_golden(void)
{
    for (size_t i = 0; i < QUANT_BODIES; i++)
        for (int f32 = 0; f32 < 2; f32++)
            FOR_TWINS(o) {
                struct rig r;
                char name[64];
                const bool slow = o == ops_all[0] || in_c();
                if (left_out(o) || (!writing && !long_test && slow && (i + (size_t)f32) % 2)) continue;
                rig_open(&r, quant_bodies[i].name, f32 ? DT_F32 : DT_BF16, o, 2, 64, 2100);
                snprintf(name, sizeof name, "%s-%s", quant_bodies[i].name, f32 ? "f32-q1" : "int16-q1");
                golden(name, o, rig_hash(&r, name));
            }
}

/* 200 tokens after a prompt of 30 ids. */
static void text_of(const char *name, enum dtype kv, const struct sampling *p)
{
    enum { PROMPT = 30, TOKENS = 200 };
    const char *why;
    const struct ops *o = ops_for_cpu(&why);
    struct rig r;
    struct decoder d = { 0 };
    struct err e = { 0 };
    int32_t prompt[PROMPT];
    CHECK(o, "%s", why);
    if (!o) return;
    rig_open_kv(&r, demo, DT_BF16, kv, o, pool_default_threads(), 1, 64);
    rig_tokens(prompt, PROMPT, r.c.vocab - 2, 79);
    prompt[0] = r.c.bos;
    CHECK(!decode_open(&d, &r.m, p, NULL, prompt, PROMPT, PROMPT + TOKENS, &e), "%s", e.msg);
    CHECK(decode_prefill(&d, 0, NULL, NULL, &e) == 0, "%s", e.msg);
    while (d.n_tokens < d.n_max)
        if (decode_step(&d, &e)) { CHECK(false, "%s", e.msg); break; }
    size_t distinct = 0;
    for (size_t i = PROMPT; i < d.n_tokens; i++) {
        bool seen = false;
        for (size_t j = PROMPT; j < i; j++) seen |= d.tokens[i] == d.tokens[j];
        distinct += !seen;
    }
    CHECK(distinct >= 5, "%zu different tokens", distinct);
    golden(name, o, hash64(HASH64_INIT, d.tokens + PROMPT, TOKENS * sizeof *d.tokens));
    decode_close(&d);
    rig_close(&r);
}
static void text(const char *name, const struct sampling *p)
{
    char int16[128];
    text_of(name, DT_BF16, p);
    snprintf(int16, sizeof int16, "%s-kv-int16", name);
    text_of(int16, DT_I16, p);
}
static void texts_are_golden(void)
{
    struct sampling p;
    sampling_defaults(&p);
    p.temperature = 0;
    text("demo-text-greedy", &p);
    if (in_c() && !long_test) return;
    p.temperature = 1, p.min_p = 0.05, p.seed = 42;
    text("demo-text-sampled", &p);
    p.top_p = 0.9, p.top_k = 40, p.eta = 0.0003, p.penalty = 1.2, p.presence = 0.1, p.frequency = 0.05,
    p.temperature = 1.3, p.sample = 3;
    text("demo-text-filtered", &p);
}

int main(int argc, char **argv)
{
    writing = argc > 1 && !strcmp(argv[1], "--write");
    long_test = argc > 1 && !strcmp(argv[1], "--long");
    if (writing) {
        logits_are_golden();
        quantised_logits_are_golden();
        texts_are_golden();
        return 0;
    }
    RUN(logits_are_golden);
    RUN(quantised_logits_are_golden);
    if (argc < 2 || strcmp(argv[1], "--logits"))
        RUN(texts_are_golden);
    return test_end();
}
