/* Figures of a report that follow from its sums, and the name of its job. */
#include "runs/report/report.h"

#include <inttypes.h>
#include <math.h>

static double ratio(double a, double b) { return b > 0 ? a / b : NAN; }
double report_speed(const struct report_sum *s) { return ratio(s->tokens, s->seconds); }
double report_acceptance(const struct report_sum *s) { return ratio(s->tokens, s->rounds); }
double report_worker_speed(const struct report_sum *s) { return ratio(s->worker_tokens, s->worker_seconds); }
double report_with(const struct report *r, size_t n)
{
    double all = 0, more = 0;
    for (size_t i = 1; i < REPORT_DEPTHS; i++) {
        all += r->with[i];
        more += i > 1 ? r->with[i] : 0;
    }
    return ratio(n ? r->with[n] : more, all);
}
bool report_ran_alone(const struct report *r) { return !(report_with(r, 0) > 0); }
double report_round_predicted(const struct report_sum *s) { return ratio(s->predicted, s->predicted_rounds); }
double report_round_measured(const struct report_sum *s) { return ratio(s->measured, s->predicted_rounds); }
double report_alpha(const struct report_sum *s) { return ratio(s->accepted, s->drafted_depth); }
double report_beta(const struct report *r, const struct report_sum *s)
{
    return r->tree_fixed ? ratio(s->beta_accepted, s->drafted_depth) : NAN;
}
double report_snapshot_share(const struct report *r)
{
    return ratio(r->sum.snapshot_put + r->sum.snapshot_cpu, r->sum.seconds + r->sum.prefill_seconds);
}
double report_checkpoint_share(const struct report *r)
{
    return ratio(r->sum.put + r->sum.commit_cpu, r->sum.seconds + r->sum.prefill_seconds);
}

void report_name(const struct report *r, char *out, size_t size)
{
    const struct job *j = r->job;
    int n = snprintf(out, size, "%s%s%s%s", j->batch ? "@" : "", j->batch ? j->batch : "",
                     j->batch && j->custom_id ? "/" : "", j->custom_id ? j->custom_id : "");
    if (r->db && (size_t)n < size) {
        if (n == 0)
            n = snprintf(out, size, "job %" PRId64, j->id);
        snprintf(out + n, size - (size_t)n, " in %s", r->db);
    }
}
