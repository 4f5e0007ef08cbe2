/* config.json and generation_config.json: the same understanding as transformers, and its rope frequencies. */
#include "src/config.h"
#include "src/config_tensors.h"
#include "src/rope.h"
#include "tests/test.h"

static int parse(struct config *c, const char *json, const char *generation, struct err *e)
{
    return config_parse(c, "config.json", json, strlen(json), "generation_config.json", generation, generation ? strlen(generation) : 0, e);
}

/* Distance in float32 steps of two positive floats. */
static int64_t ulps(float a, uint32_t b)
{
    union { float f; uint32_t u; } x = { a };
    return llabs((int64_t)x.u - (int64_t)b);
}

static size_t n_cases, n_powers, n_exact, n_values;

static void compare_shape(const struct config *c, const char *want, const char *json)
{
    char layers[CONFIG_LAYERS_MAX + 1], got[CONFIG_LAYERS_MAX + 256];
    bool any = memchr(c->windowed, 1, c->n_layers) != NULL;
    for (size_t l = 0; l < c->n_layers; l++)
        layers[l] = (char)('0' + c->windowed[l]);
    layers[c->n_layers] = 0;
    snprintf(got, sizeof got, "%zu %zu %zu %zu %zu %zu %zu %zu %d %zu %s %g %d %d", c->vocab, c->hidden, c->ffn, c->n_layers, c->n_heads, c->n_kv_heads,
             c->head_dim, c->max_position, c->tied, c->window, layers, c->rms_eps, c->bos, c->n_eos ? c->eos[0] : -1);
    CHECK(strcmp(got, want) == 0, "\n  %s\n  got  %s\n  want %s", json, got, want);
    CHECK(any ? c->window > 0 : true, "%s", json);
}

/* Floats in hex into x[0..max); their number. */
static size_t read_hex(char *hex, uint32_t *x, size_t max)
{
    size_t n = 0;
    for (char *p = strtok(hex, " \n"); p; p = strtok(NULL, " \n"))
        if (n < max)
            x[n++] = (uint32_t)strtoul(p, NULL, 16);
    return n;
}

/* Powers are within one float32 step of torch's; from torch's powers on, every bit is the same. */
static void compare_rope(const struct config *c, char *rope, char *powers, const char *json)
{
    uint32_t want[HEAD_DIM_MAX / 2 + 1], torch[HEAD_DIM_MAX / 2];
    float power[HEAD_DIM_MAX / 2], inv_freq[HEAD_DIM_MAX / 2], factor;
    size_t n = c->head_dim / 2;
    CHECK(read_hex(rope, want, HEAD_DIM_MAX / 2 + 1) == n + 1 && read_hex(powers, torch, HEAD_DIM_MAX / 2) == n, "%s", json);
    rope_powers(c, power);
    for (size_t i = 0; i < n; i++) {
        n_exact += ulps(power[i], torch[i]) == 0;
        n_powers++;
        CHECK(ulps(power[i], torch[i]) <= 1, "%s: power %zu is %a", json, i, (double)power[i]);
        memcpy(&power[i], &torch[i], 4);
    }
    rope_frequencies(c, power, inv_freq, &factor);
    n_values += n + 1;
    CHECK(ulps(factor, want[0]) == 0, "%s: factor %a, want %08x", json, (double)factor, want[0]);
    for (size_t i = 0; i < n; i++)
        CHECK(ulps(inv_freq[i], want[i + 1]) == 0, "%s: frequency %zu is %a, want %08x", json, i, (double)inv_freq[i], want[i + 1]);
}

/* CONFIG_FIXTURE names another file of scripts/make_config_fixture.py. */
static void as_transformers(void)
{
    const char *path = getenv("CONFIG_FIXTURE");
    FILE *f = fopen(path ? path : "tests/data/config_fixture.txt", "r");
    char *line = NULL;
    size_t size = 0;
    CHECK(f, "no fixture");
    while (f && getline(&line, &size, f) > 0) {
        char *json = line, *shape = strchr(json, '\t');
        char *rope = shape ? strchr(shape + 1, '\t') : NULL, *powers = rope ? strchr(rope + 1, '\t') : NULL;
        struct config c;
        struct err e;
        CHECK(powers, "bad line");
        if (!powers)
            break;
        *shape++ = *rope++ = *powers++ = 0;
        n_cases++;
        int r = parse(&c, json, NULL, &e);
        CHECK(r == 0, "%s: %s", json, e.msg);
        if (r)
            continue;
        compare_shape(&c, shape, json);
        compare_rope(&c, rope, powers, json);
    }
    free(line);
    if (f)
        fclose(f);
    CHECK(n_cases >= 60, "%zu cases", n_cases);
    printf("    %zu configurations; %zu of %zu powers are torch's, the others one float32 step off; all %zu values behind them equal\n", n_cases,
           n_exact, n_powers, n_values);
}

int main(void)
{
    RUN(as_transformers);
    return test_end();
}
