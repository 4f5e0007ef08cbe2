/* Plain C attention is near a double-precision reference with the same roundings.
 *
 * Bound. The reference rounds p to act (where p weighs V; the sum of weights uses p before rounding) and the
 * result to act; everything else is exact. A score is d fused steps: |ds| <= d * 2^-24 * sum|q k|, plus half
 * an ulp for s - m'. A weight thus moves by dp <= p * (ln2 * 2 ds + 2^-21) before it is rounded. Where that
 * can move it over a rounding border of bf16 (the test tries both neighbours) it moves by the whole step.
 * Sums over n keys add n * 2^-24 of sum p|v| and of sum p; each chunk adds 4 * 2^-24. The quotient moves by
 * (d_num + |out| d_den) / den. In int16, q, K and V have the values of their whole numbers; a score moves by
 * four roundings, and a weight also by half a unit of its block. int8 and int4 are as int16, and the output
 * is rotated: its bound is the sum of the bounds of the elements that it is a sum of. */
#include "tests/kernels/attn_problem.h"

/* The largest error of row r, query head j of KV head h, as a share of its bound; infinite when an output
 * exceeds the bound. */
static double reference_row(const struct problem *p, const void *out, size_t h, size_t r, size_t j,
                            bool quiet)
{
    const size_t d = p->a.head_dim, lo = p->lo[r], hi = p->hi[r];
    const size_t q = (h * p->a.m + r) * p->group + j;
    const enum dtype act = out_type(p);
    double *num = must_alloc(d * sizeof *num), *mass = must_alloc(d * sizeof *mass),
           *slip = must_alloc(d * sizeof *slip);
    double den = 0, den_slip = 0, top = -INFINITY, worst = 0;
    size_t blocks = 0, chunk = (size_t)-1;
    double s[KV_BLOCK], ds[KV_BLOCK], chunk_top = -INFINITY;
    for (size_t b = lo / KV_BLOCK; b * KV_BLOCK < hi; b++, blocks++) {
        size_t from = b * KV_BLOCK > lo ? b * KV_BLOCK : lo,
               to = (b + 1) * KV_BLOCK < hi ? (b + 1) * KV_BLOCK : hi;
        if (b * KV_BLOCK / KV_CHUNK != chunk)              /* a chunk begins without a maximum */
            chunk = b * KV_BLOCK / KV_CHUNK, chunk_top = -INFINITY;
        for (size_t pos = from; pos < to; pos++) {
            double sum = 0, absolute = 0;
            for (size_t i = 0; i < d; i++) {
                double x = query_at(p, q, i) * stored_at(p, stored_row(p, h, pos), i);
                sum += x, absolute += fabs(x);
            }
            s[pos - from] = sum, ds[pos - from] = whole(p) ? 4 * 0x1p-24 * fabs(sum)
                                                                      : ((double)d + 1) * 0x1p-24 * absolute;
            chunk_top = fmax(chunk_top, sum);
        }
        double new_top = fmax(top, chunk_top), scale = isfinite(top) ? exp2(top - new_top) : 0;
        for (size_t i = 0; i < d; i++) num[i] *= scale, mass[i] *= scale, slip[i] *= scale;
        den *= scale, den_slip *= scale, top = new_top;
        /* p is rounded relative to the maximum of its own chunk so far */
        double lift = exp2(chunk_top - top);
        double most = 0, all = 0;                          /* of weights times the units of the values */
        for (size_t pos = from; pos < to; pos++) {
            double w = exp2(s[pos - from] - chunk_top) * (double)unit_of(p, stored_row(p, h, pos), d);
            most = fmax(most, w), all += w;
        }
        double half_unit = whole(p) ? 0.501 * fmax(fmax(most / 32767, all / 261888), 0x1p-100) : 0;
        for (size_t pos = from; pos < to; pos++) {
            double x = exp2(s[pos - from] - chunk_top),
                   rel = 0.7 * (2 * ds[pos - from] + 0x1p-23 * fabs(s[pos - from] - chunk_top)) + 0x1p-21;
            double w = whole(p) ? x : act_round(p->a.type, (float)x),
                   up = act_round(p->a.type, (float)(x * (1 + rel))),
                   down = act_round(p->a.type, (float)(x * (1 - rel)));
            double step = (p->a.type == DT_BF16 ? fmax(up - w, w - down) : x * rel) * lift;
            w *= lift, den += x * lift, den_slip += x * rel * lift;
            for (size_t i = 0; i < d; i++) {
                double v = stored_at(p, stored_row(p, h, pos), d + i);
                num[i] += w * v, mass[i] += w * fabs(v),
                    slip[i] += step * fabs(v) +
                               half_unit * lift * fabs(v) / (double)unit_of(p, stored_row(p, h, pos), d);
            }
        }
    }
    double sums = ((double)(hi - lo) + 8 * (double)(blocks + 4)) * 0x1p-24;
    for (size_t i = 0; i < d; i++) {
        num[i] /= den;
        slip[i] = (slip[i] + sums * mass[i] + fabs(num[i]) * (den_slip + sums * den)) / den +
                  0x1p-22 * fabs(num[i]) + 1e-30;
    }
    const size_t n = kv_form(p->a.type).rotated ? kv_rotation(d) : 1;
    for (size_t i = 0; i < d; i++) {
        double want = 0, tol = 0;
        for (size_t k = 0; k < n; k++) {                   /* the matrix is -1 to the power of common bits */
            const size_t from = i / n * n + k;
            want += __builtin_parityl(k & i % n) ? -num[from] : num[from];
            tol += slip[from] + (n > 1 ? 0x1p-20 * fabs(num[from]) : 0);
        }
        float got = act_get(act, out, (r * p->a.n_heads + h * p->group + j) * d + i);
        bool good = act_near(act, got, want, tol);
        CHECK(good || quiet, "row %zu head %zu dim %zu: %g, reference %g, bound %g", r, h * p->group + j, i,
              (double)got, want, tol);
        if (!good)
            worst = INFINITY;
        double round = act == DT_BF16 ? 0x1p-8 * fabs(want) : 0;
        worst = fmax(worst, fabs((double)got - want) / (tol + round));
    }
    free(num), free(mass), free(slip);
    return worst;
}
static void plain_c_is_near_the_reference(void)
{
    struct rng rng = { 31 };
    for (size_t i = 0; i < 25; i++) {
        struct problem p;
        double worst = 0;
        size_t n = i < 10 ? 1 + rng_below(&rng, 300) : i < 20 ? 2040 + rng_below(&rng, 300) : 4300;
        problem_open(&p, kind(i), 3, 1, 2, dims[(i + i / 5) % 5], n, 0, &rng);
        for (size_t r = 0; r < 3; r++)
            p.hi[r] = n - (r && n > 10 ? r * 3 : 0), p.lo[r] = r == 2 ? p.hi[r] / 3 : 0;
        void *out = attend(ops_all[0], &p, 3);
        for (size_t r = 0; r < 3; r++)
            for (size_t j = 0; j < 2; j++)
                worst = fmax(worst, reference_row(&p, out, 0, r, j, false));
        printf("    %s head_dim %zu keys %zu: worst error %.2f of the bound\n", kv_type_name(kind(i)),
               p.a.head_dim, n, worst);
        guard_free(out);
        problem_close(&p);
    }
}
/* The reference must reject a result that is off by one key, or it proves nothing. */
static void reference_notices_a_missing_key(void)
{
    struct rng rng = { 32 };
    for (size_t i = 0; i < 5; i++) {
        struct problem p;
        problem_open(&p, kind(i), 1, 1, 1, 64, 200, 0, &rng);
        p.hi[0] = 200;
        attractive_row(&p, stored_row(&p, 0, 199), 0, &rng);
        put(&p, 0, 199, stored_row(&p, 0, 199));
        void *out = attend(ops_all[0], &p, 1);
        p.hi[0] = 199;
        CHECK(reference_row(&p, out, 0, 0, 0, true) > 1);
        guard_free(out);
        problem_close(&p);
    }
}

int main(void)
{
    RUN(plain_c_is_near_the_reference);
    RUN(reference_notices_a_missing_key);
    return test_end();
}
