/* Rotary frequencies, step by step as transformers' modeling_rope_utils computes them in float32. Powers
 * and logarithms (kernels/exp_d.h) are rounded where torch rounds. Start at config_rope. */
#include <math.h>
#include <string.h>

#include "kernels/exp_d.h"
#include "src/model/config.h"

static const double pi = 3.14159265358979323846;
static double pow_d(double base, double e) { return exp_d(e * log_d(base)); }

static double floor_d(double x)
{
    if (!(x > -4503599627370496.0 && x < 4503599627370496.0))
        return x;      /* already whole */
    double t = (double)(int64_t)x;
    return t > x ? t - 1 : t;
}

/* The factor on cos and sin that YaRN derives from a scale. */
static double yarn_mscale(double scale, double mscale)
{
    return scale <= 1 ? 1 : 0.1 * mscale * log_d(scale) + 1;
}

/* The (fractional) number of the pair of dimensions that turns `rotations` times within the original
 * length. */
static double yarn_dim(double rotations, const struct config *c)
{
    return (double)c->rotary * log_d((double)c->rope.original / (rotations * 2 * pi)) /
           (2 * log_d(c->rope.theta));
}

static void yarn(const struct config *c, const float *power, float *inv_freq, float *attention_factor)
{
    const struct rope_config *r = &c->rope;
    double low = yarn_dim(r->beta_fast, c), high = yarn_dim(r->beta_slow, c), factor = r->attention_factor;
    if (factor == 0)
        factor = r->mscale != 0 && r->mscale_all_dim != 0
                     ? yarn_mscale(r->factor, r->mscale) / yarn_mscale(r->factor, r->mscale_all_dim)
                     : yarn_mscale(r->factor, 1);
    *attention_factor = (float)factor;
    if (r->truncate) {
        low = floor_d(low);
        high = -floor_d(-high);
    }
    low = MAX(low, 0);
    high = MIN(high, (double)c->rotary - 1);
    if (low == high)
        high += 0.001;
    const float from = (float)low, span = (float)(high - low);
    for (size_t i = 0; i < c->rotary / 2; i++) {
        float ramp = ((float)i - from) / span;
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        float keep = 1 - ramp;               /* 1: the frequency stays; 0: it is divided by factor */
        float stretched = 1 / ((float)r->factor * power[i]), plain = 1 / power[i];
        float a = stretched * (1 - keep), b = plain * keep;
        inv_freq[i] = a + b;
    }
}

/* torch computes scalar / tensor as reciprocal times scalar: two roundings. */
static float over(float scalar, float x)
{
    float r = 1 / x;
    return r * scalar;
}

static void llama3(const struct config *c, float *inv_freq)
{
    const struct rope_config *r = &c->rope;
    const float original = (float)r->original, factor = (float)r->factor, low = (float)r->low_freq_factor;
    const float low_wavelen = (float)((double)r->original / r->low_freq_factor);
    const float high_wavelen = (float)((double)r->original / r->high_freq_factor);
    const float span = (float)(r->high_freq_factor - r->low_freq_factor);
    for (size_t i = 0; i < c->rotary / 2; i++) {
        float wavelen = over((float)(2 * pi), inv_freq[i]);
        if (wavelen > low_wavelen) {
            inv_freq[i] = inv_freq[i] / factor;
        } else if (!(wavelen < high_wavelen)) {
            float turns = over(original, wavelen), smooth = (turns - low) / span;
            float a = (1 - smooth) * inv_freq[i], b = smooth * inv_freq[i];
            a = a / factor;
            inv_freq[i] = a + b;
        }
    }
}

static void longrope(const struct config *c, const float *power, float *inv_freq, float *attention_factor)
{
    const struct rope_config *r = &c->rope;
    const float *divisor = r->shorter ? r->short_divisor : r->divisor;
    *attention_factor = r->attention_factor != 0 ? (float)r->attention_factor
                        : r->factor <= 1 ? 1
                        : (float)sqrt(1 + log_d(r->factor) / log_d((double)r->original));
    for (size_t i = 0; i < c->rotary / 2; i++)
        inv_freq[i] = 1 / (divisor[i] * power[i]);
}

void rope_powers(const struct config *c, float *power)
{
    const struct rope_config *r = &c->rope;
    const size_t dim = c->rotary;
    double base = r->theta;
    assert(dim % 2 == 0 && dim >= 2 && dim <= HEAD_DIM_MAX && base >= 1);
    /* Within the original length the dynamic base is theta times a power of 1, where rounding may change
     * the 1. */
    if (r->type == ROPE_DYNAMIC) {
        double length = (double)c->max_position;
        base *= pow_d(r->factor * length / length - (r->factor - 1), (double)dim / (double)(dim - 2));
    }
    base = (double)(float)base;
    for (size_t i = 0; i < dim / 2; i++)
        power[i] = (float)pow_d(base, (float)(2 * i) / (float)dim);
}

void rope_frequencies(const struct config *c, const float *power, float *inv_freq, float *attention_factor)
{
    *attention_factor = 1;
    for (size_t i = 0; i < c->rotary / 2; i++)
        inv_freq[i] = 1 / power[i];
    if (c->rope.type == ROPE_LINEAR)
        for (size_t i = 0; i < c->rotary / 2; i++)
            inv_freq[i] = inv_freq[i] / (float)c->rope.factor;
    if (c->rope.type == ROPE_DIVIDED)
        for (size_t i = 0; i < c->rotary / 2; i++)
            inv_freq[i] = inv_freq[i] / c->rope.divisor[i];
    if (c->rope.type == ROPE_YARN)
        yarn(c, power, inv_freq, attention_factor);
    if (c->rope.type == ROPE_LLAMA3)
        llama3(c, inv_freq);
    if (c->rope.type == ROPE_LONG)
        longrope(c, power, inv_freq, attention_factor);
}

bool config_rope_local(const struct config *c, float *inv_freq)
{
    struct config local = *c;
    float factor;
    local.rope = (struct rope_config){ .theta = c->rope.local_theta };
    local.rotary = config_local_rotary(c);
    if (c->rope.local_theta != 0)
        config_rope(&local, inv_freq, &factor);
    else
        memset(inv_freq, 0, local.rotary / 2 * sizeof *inv_freq);
    return config_has_local(c);
}

void config_rope(const struct config *c, float *inv_freq, float *attention_factor)
{
    float power[HEAD_DIM_MAX / 2];
    rope_powers(c, power);
    rope_frequencies(c, power, inv_freq, attention_factor);
}
