/* Tries forms of a KV cache by fake quantisation: rows take the form, then the int16 form of the cache. Link
 * it in place of kv_store (tests/make/kv_forms.sh), and set
 *
 *   KV_FORM=K,V,ROTATE,GROUP,FIT   bits of K and of V, 0: int16; 1 to rotate each head; values that share a
 *                                  scale, 0: the whole row; 0: scale by maximum, 1: by least squares
 *   KV_PLANT=TIMES,PAIR            while a key takes the form, channel 5 is an outlier, with PAIR 1 also its
 *                                  partner of RoPE; as in a model whose queries are smaller there */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels/ops.h"

void __real_kv_store(void *dst, enum dtype t, const float *k, const float *v, size_t d);
void __wrap_kv_store(void *dst, enum dtype t, const float *k, const float *v, size_t d);

static int form[5], plant[2];

static void read_settings(void)
{
    static int read;
    const char *s = getenv("KV_FORM"), *p = getenv("KV_PLANT");
    if (read++)
        return;
    if (s && sscanf(s, "%d,%d,%d,%d,%d", &form[0], &form[1], &form[2], &form[3], &form[4]) != 5)
        abort();
    if (p && sscanf(p, "%d,%d", &plant[0], &plant[1]) != 2)
        abort();
}

static void outlier(float *x, size_t d, float times)
{
    x[5] *= times;
    x[5 + d / 2] *= plant[1] ? times : 1;
}

static void rotate(float *x, size_t d)
{
    const size_t n = d & (~d + 1);
    for (size_t at = 0; at < d; at += n)
        for (size_t half = 1; half < n; half *= 2)
            for (size_t i = 0; i < n; i++)
                if (!(i & half)) {
                    float *a = x + at + i, *b = a + half, sum = *a + *b;
                    *b = *a - *b;
                    *a = sum;
                }
    for (size_t i = 0; i < d; i++)
        x[i] /= sqrtf((float)n);
}

static double error_of(const float *x, size_t n, float u, float most)
{
    double e = 0;
    for (size_t i = 0; i < n; i++) {
        const float q = fminf(fmaxf(rintf(x[i] / u), -most), most) * u;
        e += (double)(x[i] - q) * (double)(x[i] - q);
    }
    return e;
}

static void quantise(float *x, size_t n, int bits)
{
    const float most = (float)((1 << (bits - 1)) - 1);
    float top = 0;
    for (size_t i = 0; i < n; i++)
        top = fmaxf(top, fabsf(x[i]));
    if (top == 0)
        return;
    float u = top / most, best = u;
    for (int i = 0; form[4] && i < 20; i++) {            /* the scale of least error */
        const float at = u * (1 - 0.025f * (float)i);
        best = error_of(x, n, at, most) < error_of(x, n, best, most) ? at : best;
    }
    for (size_t i = 0; i < n; i++)
        x[i] = fminf(fmaxf(rintf(x[i] / best), -most), most) * best;
}

static void take_form(float *x, size_t d, int bits)
{
    const size_t n = form[3] ? (size_t)form[3] : d;
    if (!bits)
        return;
    if (form[2])
        rotate(x, d);
    for (size_t i = 0; i < d; i += n)
        quantise(x + i, n, bits);
    if (form[2])
        rotate(x, d);
}

void __wrap_kv_store(void *dst, enum dtype t, const float *k, const float *v, size_t d)
{
    float a[512], b[512];
    read_settings();
    memcpy(a, k, d * sizeof *a);
    memcpy(b, v, d * sizeof *b);
    if (plant[0])
        outlier(a, d, (float)plant[0]);
    take_form(a, d, form[0]);
    take_form(b, d, form[1]);
    if (plant[0])
        outlier(a, d, 1 / (float)plant[0]);
    __real_kv_store(dst, t, a, b, d);
}
