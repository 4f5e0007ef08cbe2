/* The table of figures, and how a figure follows from counts. Start at figures[]. */
#include "runs/store/figures.h"

#include <math.h>
#include <string.h>

/* ---- figures that are no quotient of two counts ---- */

static double ratio(double a, double b) { return b > 0 ? a / b : NAN; }

static double other(const struct counts *c)
{
    const double x = c->seconds - c->draft - c->verify - c->control;
    return x > 0 ? x : 0;
}

bool ran_alone(const struct counts *c) { return !(c->shareable > c->alone); }
static double alone(const struct counts *c) { return ran_alone(c); }
static double verified(const struct counts *c) { return c->rows - c->rounds; }
static double share_with_others(const struct counts *c)
{
    return ratio(c->shareable - c->alone, c->shareable);
}

/* The CPU time of the writing thread counts as if the decode loop had spent it. */
static double checkpoint_share(const struct counts *c)
{
    return ratio(c->put + c->commit_cpu, c->seconds + c->prefill_seconds);
}

static double snapshot_share(const struct counts *c)
{
    return ratio(c->snapshot_put + c->snapshot_cpu, c->seconds + c->prefill_seconds);
}

/* Tokens that were taken back took their time, but are no text. */
static double tokens_per_second(const struct counts *c) { return ratio(c->tokens - c->cut, c->seconds); }

/* ---- the table ---- */

#define OF(x)     { offsetof(struct counts, x), SIZE_MAX, NULL }
#define PER(x, y) { offsetof(struct counts, x), offsetof(struct counts, y), NULL }
#define BY(f)     { 0, SIZE_MAX, f }
#define COUNT     UNIT_COUNT
#define SECONDS   UNIT_SECONDS
#define SHARE     UNIT_SHARE

/* In the order of JSON and CSV. Three names of one figure, as of the time that checkpoints took, are three
 * rows. */
const struct figure figures[] = {
    /* length */
    { "prompt_tokens", "prompt_tokens", NULL, COUNT, OF(prompt), IN_CSV },
    { "tokens", "tokens", NULL, COUNT, OF(generated), IN_CSV },
    { "given_tokens", "given_tokens", NULL, COUNT, OF(given), IN_CSV },
    { "wanted_tokens", "wanted_tokens", NULL, COUNT, OF(wanted), IN_CSV },
    { "made_tokens", "made_tokens", NULL, COUNT, OF(tokens), IN_CSV },
    { "retakes", "retakes", NULL, COUNT, OF(retakes), IN_CSV },
    { "cut_tokens", "cut_tokens", NULL, COUNT, OF(cut), IN_CSV },
    /* speed */
    { "seconds", "seconds", "seconds", SECONDS, OF(seconds),
      IN_CSV | IN_STATS | IN_WINDOWS | IN_STATS_WINDOWS, "longhand_decode_seconds_total", "Time of rounds." },
    { "prefill_seconds", "prefill_seconds", "prefill_seconds", SECONDS, OF(prefill_seconds),
      IN_CSV | IN_STATS, "longhand_prefill_seconds_total", "Time of prefills." },
    { "prefill_tokens", "prefill_tokens", "prefill_tokens", COUNT, OF(prefill_tokens), 0,
      "vllm:prompt_tokens_total", "Tokens read by prefill." },
    { "tokens_per_second", "tokens_per_second", NULL, UNIT_RATE, BY(tokens_per_second),
      IN_CSV | IN_STATS | IN_WINDOWS },
    { "worker_tokens_per_second", "worker_tokens_per_second", NULL, UNIT_RATE,
      PER(worker_tokens, worker_seconds), IN_CSV },
    { "share_alone", NULL, NULL, SHARE, PER(alone, shareable), IN_CSV },
    { "speedup", "speedup", NULL, UNIT_RATIO, OF(speedup), IN_CSV },
    { "speedup_estimate", "speedup_estimate", NULL, UNIT_RATIO, OF(estimate), IN_CSV },
    /* rounds */
    { "ran_alone", "ran_alone", NULL, UNIT_TRUTH, BY(alone), IN_CSV },
    { "rounds", "rounds", "rounds", COUNT, OF(rounds), IN_CSV | IN_STATS },
    { "mean_acceptance_length", "mean_acceptance_length", NULL, UNIT_RATIO, PER(tokens, rounds),
      IN_CSV | IN_STATS | IN_WINDOWS | IN_STATS_WINDOWS },
    { "alpha", "alpha", NULL, SHARE, PER(accepted, drafted_depth), IN_CSV | IN_STATS | IN_WINDOWS },
    { "beta", "beta", NULL, SHARE, PER(beta_accepted, beta_depth), IN_CSV | IN_STATS | IN_WINDOWS },
    { "drafted", "drafted", "drafted", COUNT, OF(drafted), IN_CSV | IN_STATS },
    { "verified_rows", "verified_rows", "verified_rows", COUNT, OF(rows), IN_CSV | IN_STATS },
    { "accepted", "accepted", "accepted", COUNT, OF(accepted), IN_CSV | IN_STATS,
      "vllm:spec_decode_num_accepted_tokens_total", "Candidates that were accepted." },
    { "draft_passes", "draft_passes", "draft_passes", COUNT, OF(draft_passes), IN_STATS },
    /* time */
    { "draft_seconds", "time.draft", "draft_seconds", SECONDS, OF(draft), IN_CSV | IN_STATS,
      "longhand_draft_seconds_total", "Time of rounds in drafters." },
    { "verify_seconds", "time.verify", "verify_seconds", SECONDS, OF(verify), IN_CSV | IN_STATS,
      "longhand_verify_seconds_total", "Time of rounds in verification passes." },
    { "time_of_checkpoints", "time.checkpoint", NULL, SECONDS, OF(put), IN_STATS },
    { "controller_seconds", "time.controller", "control_seconds", SECONDS, OF(control), IN_CSV | IN_STATS },
    { "other_seconds", "time.other", NULL, SECONDS, BY(other), IN_STATS },
    { "round_seconds_predicted", "seconds_per_round.predicted", NULL, UNIT_ROUND,
      PER(predicted, predicted_rounds), IN_CSV | IN_STATS },
    { "round_seconds_measured", "seconds_per_round.measured", NULL, UNIT_ROUND,
      PER(measured, predicted_rounds), IN_CSV | IN_STATS },
    { "predicted_rounds", "seconds_per_round.rounds", "predicted_rounds", COUNT, OF(predicted_rounds),
      IN_STATS },
    { "checkpoint_seconds", NULL, "checkpoint_put_seconds", SECONDS, OF(put), IN_CSV },
    { "checkpoints", "checkpoints.commits", "checkpoint_commits", COUNT, OF(commits), IN_CSV },
    { "checkpoint_write_seconds", "checkpoints.seconds", "checkpoint_seconds", SECONDS, OF(commit_seconds) },
    { "checkpoint_cpu_seconds", "checkpoints.cpu_seconds", "checkpoint_cpu_seconds", SECONDS,
      OF(commit_cpu) },
    { "checkpoint_put_seconds", "checkpoints.put_seconds", NULL, SECONDS, OF(put) },
    { "checkpoint_share", "checkpoints.share", NULL, SHARE, BY(checkpoint_share), IN_CSV },
    { "snapshots", "snapshots.made", "snapshots", COUNT, OF(snapshots), IN_CSV },
    { "snapshot_bytes", "snapshots.bytes", "snapshot_bytes", COUNT, OF(snapshot_bytes) },
    { "snapshot_seconds", "snapshots.seconds", "snapshot_seconds", SECONDS, OF(snapshot_seconds) },
    { "snapshot_cpu_seconds", "snapshots.cpu_seconds", "snapshot_cpu_seconds", SECONDS, OF(snapshot_cpu) },
    { "snapshot_put_seconds", "snapshots.put_seconds", "snapshot_put_seconds", SECONDS, OF(snapshot_put) },
    { "snapshot_share", "snapshots.share", NULL, SHARE, BY(snapshot_share), IN_CSV },
    { "restored_tokens", "snapshots.restored_tokens", "restored_tokens", COUNT, OF(restored), IN_CSV },
    { "restore_seconds", "snapshots.restore_seconds", "restore_seconds", SECONDS, OF(restore_seconds) },
    { "restore_saved_seconds", "snapshots.saved_seconds", "restore_saved_seconds", SECONDS, OF(saved),
      IN_CSV },
    { "refreshes", "refreshes", "refreshes", COUNT, OF(refreshes), IN_CSV | IN_STATS },
    { "resumes", "resumes", NULL, COUNT, OF(resumes), IN_CSV },
    /* the text */
    { "distinct_1", "1", NULL, SHARE, OF(distinct[0]), IN_CSV | IN_WINDOWS },
    { "distinct_2", "2", NULL, SHARE, OF(distinct[1]), IN_CSV | IN_WINDOWS },
    { "distinct_3", "3", NULL, SHARE, OF(distinct[2]), IN_CSV | IN_WINDOWS },
    { "distinct_4", "4", NULL, SHARE, OF(distinct[3]), IN_CSV | IN_WINDOWS },
    { "word_distinct_1", "1", NULL, SHARE, OF(words[0]), IN_CSV },
    { "word_distinct_2", "2", NULL, SHARE, OF(words[1]), IN_CSV },
    { "word_distinct_3", "3", NULL, SHARE, OF(words[2]), IN_CSV },
    { "word_distinct_4", "4", NULL, SHARE, OF(words[3]), IN_CSV },
    { "distinct_1_so_far", "1", NULL, SHARE, OF(so_far[0]), IN_WINDOWS },
    { "distinct_2_so_far", "2", NULL, SHARE, OF(so_far[1]), IN_WINDOWS },
    { "distinct_3_so_far", "3", NULL, SHARE, OF(so_far[2]), IN_WINDOWS },
    { "distinct_4_so_far", "4", NULL, SHARE, OF(so_far[3]), IN_WINDOWS },
    { "repetitions", NULL, NULL, COUNT, OF(repetitions), IN_CSV },
    { "repeats", "repeats", NULL, SHARE, OF(repeats), IN_CSV | IN_WINDOWS },
    /* counters that only other figures and people's tables need */
    { "round_tokens", NULL, "tokens", COUNT, OF(tokens), 0, "vllm:generation_tokens_total", "Tokens made." },
    { "rounds_drafted", "rounds_drafted", NULL, COUNT, OF(drafts), IN_CSV,
      "vllm:spec_decode_num_drafts_total", "Rounds that verified candidates." },
    { "verified", NULL, NULL, COUNT, BY(verified), 0, "vllm:spec_decode_num_draft_tokens_total",
      "Candidates that were verified." },
    { "drafted_depth", NULL, "drafted_depth", COUNT, OF(drafted_depth) },
    { "beta_accepted", NULL, "beta_accepted", COUNT, OF(beta_accepted) },
    { "plain_seconds", NULL, "plain_seconds", SECONDS, OF(plain) },
    { "predicted_seconds", NULL, "predicted_seconds", SECONDS, OF(predicted) },
    { "measured_seconds", NULL, "measured_seconds", SECONDS, OF(measured) },
    { "worker_tokens", NULL, "worker_tokens", COUNT, OF(worker_tokens) },
    { "worker_seconds", NULL, "worker_seconds", SECONDS, OF(worker_seconds) },
    { "share_with_others", NULL, NULL, SHARE, BY(share_with_others) },
    { NULL, NULL, NULL, COUNT, OF(tokens) },
};

static const struct { const char *counter, *json; } lists[LISTS] = {
    [LIST_JOBS] = { "jobs", "rounds_by_jobs" },
    [LIST_REACHED] = { "reached", "reached_per_depth" },
    [LIST_ACCEPTED] = { "accepted_at", "accepted_per_depth" },
    [LIST_HISTOGRAM] = { "histogram", "acceptance_histogram" },
};

/* ---- counting ---- */

static double *field(struct counts *c, size_t at) { return (double *)(void *)((char *)c + at); }

void figures_count(struct counts *c, figure_lists list, const struct metric *m)
{
    if (m->source[0])
        return;
    for (const struct figure *f = figures; f->name; f++)
        if (f->counter && *f->counter == *m->name && strcmp(m->name, f->counter) == 0) {
            *field(c, f->how.part) += m->value;
            return;
        }
    for (size_t i = 0; list && i < LISTS && m->index < FIGURE_DEPTHS; i++)
        if (strcmp(m->name, lists[i].counter) == 0)
            list[i][m->index] += m->value;
}

struct sums { struct counts *counts; double (*list)[FIGURE_DEPTHS]; };

static void add_stat(void *ctx, size_t k, const char *source, const char *name, unsigned index, double value)
{
    struct sums *s = ctx;
    (void)k;
    if (value != 0)
        figures_count(s->counts, s->list, &(struct metric){ 0, source, name, index, value });
}

void figures_add_stats(struct counts *c, figure_lists list, const struct draft_stats *s)
{
    stats_each(s, add_stat, &(struct sums){ c, list });
    c->put += s->put;
}

void figures_add(struct counts *c, figure_lists list, const struct counts *more, figure_lists more_list)
{
    for (size_t at = 0; at < offsetof(struct counts, prompt); at += sizeof(double))
        *field(c, at) += *(const double *)(const void *)((const char *)more + at);
    for (size_t i = 0; list && i < LISTS; i++)
        for (size_t k = 0; k < FIGURE_DEPTHS; k++)
            list[i][k] += more_list[i][k];
}

void figures_complete(struct counts *c, figure_lists list, bool tree_fixed)
{
    c->beta_depth = tree_fixed ? c->drafted_depth : 0;
    if (!list)
        return;
    c->shareable = 0;
    for (size_t i = 1; i < FIGURE_DEPTHS; i++)
        c->shareable += list[LIST_JOBS][i];
    c->alone = list[LIST_JOBS][1];
    c->drafts = list[LIST_REACHED][1];
}

int figures_read(struct counts *c, figure_lists list, struct store *s, int64_t job, struct err *e)
{
    struct metric_list l = {0};
    size_t n, cut;
    *c = (struct counts){ .speedup = NAN, .estimate = NAN };
    memset(list, 0, sizeof(figure_lists));
    if (store_retake_cost(s, job, &n, &cut, e) || store_metrics(s, job, &l, e))
        return -1;
    c->retakes = (double)n;
    c->cut = (double)cut;
    for (size_t i = 0; i < l.n; i++)
        figures_count(c, list, &l.v[i]);
    figures_complete(c, list, false);
    metric_list_free(&l);
    return 0;
}

/* ---- values ---- */

double figure_value(const struct figure *f, const struct counts *c)
{
    const char *at = (const char *)c;
    if (f->how.by)
        return f->how.by(c);
    const double part = *(const double *)(const void *)(at + f->how.part);
    return f->how.of == SIZE_MAX ? part : ratio(part, *(const double *)(const void *)(at + f->how.of));
}

const struct figure *figure_find(const char *name)
{
    const struct figure *f = figures;
    while (f->name && strcmp(f->name, name))
        f++;
    assert(f->name);
    return f;
}

double figure(const struct counts *c, const char *name) { return figure_value(figure_find(name), c); }

size_t figure_list_end(const double v[FIGURE_DEPTHS])
{
    size_t n = FIGURE_DEPTHS;
    while (n > 1 && v[n - 1] == 0)
        n--;
    return n;
}

/* ---- JSON ---- */

/* The digits of --json-stats. Shares that are undefined are null there, other figures are 0. */
static const int stats_digits[] = { [UNIT_SECONDS] = 6, [UNIT_ROUND] = 9, [UNIT_RATE] = 3, [UNIT_RATIO] = 4,
                                    [UNIT_SHARE] = 4 };

static void put_figure(struct json_writer *w, const char *name, const struct figure *f, double x, bool stats)
{
    if (f->unit == UNIT_COUNT)
        jw_int(w, name, llround(x));
    else if (f->unit == UNIT_TRUTH)
        jw_bool(w, name, x != 0);
    else if (stats)
        jw_format(w, name, "%.*f", stats_digits[f->unit], isnan(x) && f->unit != UNIT_SHARE ? 0 : x);
    else
        jw_real(w, name, x);
}

void figures_json(struct json_writer *w, const struct counts *c, const char *from, const char *to,
                  unsigned where)
{
    const struct figure *end = figure_find(to) + 1;
    char object[32] = "";
    for (const struct figure *f = figure_find(from); f < end; f++) {
        if (!f->json || (where && !(f->where & where)))
            continue;
        const char *dot = strchr(f->json, '.');
        const size_t n = dot ? (size_t)(dot - f->json) : 0;
        if (strlen(object) != n || memcmp(object, f->json, n)) {
            if (*object)
                jw_close(w, '}');
            snprintf(object, sizeof object, "%.*s", (int)n, f->json);
            if (*object)
                jw_open(w, object, '{');
        }
        put_figure(w, dot ? dot + 1 : f->json, f, figure_value(f, c),
                   where & (IN_STATS | IN_STATS_WINDOWS));
    }
    if (*object)
        jw_close(w, '}');
}

void figures_json_lists(struct json_writer *w, figure_lists list, enum figure_list from)
{
    for (int k = from; k < LISTS; k++) {
        jw_open(w, lists[k].json, '[');
        for (size_t i = 1, end = figure_list_end(list[k]); i < end; i++)
            jw_int(w, NULL, llround(list[k][i]));
        jw_close(w, ']');
    }
}
