/* longhand run: one text, from a prompt to its end, straight to the output. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/cmd.h"
#include "src/cmd_draft.h"
#include "src/cmd_sampling.h"
#include "src/dry.h"
#include "src/decode.h"
#include "src/emit.h"

struct run {
    const struct options *o;
    struct engine engine;
    struct sampling sampling;
    struct decode_setup setup;
    char heads_file[PATH_BYTES];
    int32_t *prompt; size_t n_prompt;
    const char *chat_template;       /* its name; NULL: no chat */
    bool at_start;                   /* no text before: the first word keeps no leading space */
    struct decoder decoder;
    struct progress progress;
};

/* ---- before work starts ---- */

static int check_options(const struct options *o, struct err *e)
{
    if (!options_given(o, "tokens"))
        return err_set(e, ERR_INPUT, "run: --tokens N is missing");
    if (!o->prompt == !o->prompt_file)
        return err_set(e, ERR_INPUT, "run: %s", o->prompt ? "--prompt and --prompt-file: only one of them is allowed"
                                                          : "--prompt TEXT or --prompt-file FILE is missing");
    if (o->samples > 1 && (!o->output || strcmp(o->output, "-") == 0))
        return err_set(e, ERR_INPUT, "--samples %zu: more than one text needs -o FILE; text I goes to FILE.I", o->samples);
    if (o->stop.n > STOP_STRINGS_MAX)
        return err_set(e, ERR_INPUT, "--stop: %zu strings, at most %d are allowed", o->stop.n, STOP_STRINGS_MAX);
    for (size_t i = 0; i < o->stop.n; i++) {
        size_t n = strlen(o->stop.v[i]);
        if (n == 0 || n > STOP_STRING_BYTES_MAX)
            return err_set(e, ERR_INPUT, "--stop: a string of %zu bytes, 1 to %d are allowed", n, STOP_STRING_BYTES_MAX);
        if (text_check_utf8("--stop", o->stop.v[i], n, e))
            return -1;
    }
    return 0;
}

static int read_prompt(struct run *r, struct err *e)
{
    const struct options *o = r->o;
    char *text = NULL;
    size_t n;
    if (o->prompt) {
        n = strlen(o->prompt);
        if (text_check_utf8("--prompt", o->prompt, n, e))
            return -1;
    } else if (text_read_utf8(&text, &n, o->prompt_file, e)) {
        return -1;
    }
    int rc = prompt_encode(&r->prompt, &r->n_prompt, &r->chat_template, o, r->engine.dir, r->engine.tokenizer, text ? text : o->prompt, n, e);
    free(text);
    if (rc)
        return -1;
    r->at_start = n == 0 && !o->chat;
    if (r->n_prompt == 0)
        return err_set(e, ERR_INPUT, "%s: the prompt is empty and this model's tokenizer puts no token before a text; at least one token is needed",
                       o->prompt ? "--prompt" : o->prompt_file);
    return 0;
}

static int check_length(const struct run *r, struct err *e)
{
    const struct config *c = &r->engine.config;
    size_t whole = r->n_prompt + r->o->tokens;
    if (whole <= c->context)
        return 0;
    if (c->rope.type == ROPE_DYNAMIC)
        return err_set(e, ERR_INPUT, "%zu prompt tokens + --tokens %zu are beyond the %zu of this model's dynamic NTK scaling: past its original length "
                       "all earlier keys would have to turn again; --context-scaling yarn:F helps", r->n_prompt, r->o->tokens, c->context);
    if (r->o->allow_beyond_context)
        return 0;
    return err_set(e, ERR_INPUT, "%zu prompt tokens + --tokens %zu are beyond this model's context of %zu; fewer tokens, --context-scaling yarn:F "
                   "or --allow-beyond-context help", r->n_prompt, r->o->tokens, c->context);
}

static int check_memory(const struct run *r, struct err *e)
{
    struct memory_plan plan = {0};
    const size_t n_max = r->n_prompt + r->o->tokens;
    const struct heads usual = { .n = 4 };       /* before they are read */
    struct decode_setup setup = r->setup;
    setup.heads = setup.draft.drafters >> SOURCE_HEADS & 1 ? &usual : NULL;
    engine_plan(&plan, &r->engine, n_max, decode_work_rows(&setup, n_max), decode_verify_rows(&setup));
    decode_plan(&plan, &setup, &r->engine.model, n_max);
    memory_add(&plan, "DRY", dry_bytes(&r->sampling, r->engine.config.vocab));
    return memory_check(&plan, "fewer --tokens need less", e);
}

/* The settings that decide the text, once; behind everything that may still be refused, whose one line stands alone. */
static void announce(struct run *r)
{
    char own[256];
    bool drawn = !options_given(r->o, "seed");
    sampling_own_settings(own, sizeof own, r->o, &r->engine.config);
    if (r->o->quiet)
        return;
    if (r->progress.show == SHOW_JSON) {
        fprintf(stderr, "{\"phase\": \"start\", \"seed\": %" PRIu64 ", \"prompt_tokens\": %zu, \"tokens\": %zu, \"generation_config\": ", r->sampling.seed,
                r->n_prompt, r->o->tokens);
        put_json(stderr, own, strlen(own));
        fputs("}\n", stderr);
        return;
    }
    if (own[0])
        fprintf(stderr, "the model's own settings (generation_config.json): %s\n", own);
    if (r->chat_template)
        fprintf(stderr, "chat template: %s\n", r->chat_template);
    if (drawn)
        fprintf(stderr, "seed: %" PRIu64 "\n", r->sampling.seed);
    if (r->setup.draft.verifier == VERIFY_PAPER)
        fprintf(stderr, "--verifier paper: not lossless, this is not the text that the model alone would write\n");
}

/* ---- writing ---- */

static bool prefilling(void *ctx, size_t done, size_t of)
{
    struct progress *p = ctx;
    p->of = of;
    progress_at(p, done);
    return !stop_signal;
}

static int write_ids(struct sink *out, int32_t id, struct err *e)
{
    char line[16];
    int n = snprintf(line, sizeof line, "%" PRId32 "\n", id);
    return sink_write(out, line, (size_t)n, e);
}

static void say_repetition(struct run *r, const struct emit *m)
{
    struct repetition p;
    if (!loop_in(m->loop, &p) || r->o->quiet)
        return;
    progress_clear(&r->progress);
    if (r->o->progress == PROGRESS_JSON)
        fprintf(stderr, "{\"phase\": \"repetition\", \"start\": %zu, \"found\": %zu, \"period\": %zu}\n", p.start, p.found, p.period);
    else if (r->o->progress != PROGRESS_NONE || r->o->on_loop == ON_LOOP_STOP)
        fprintf(stderr, "the text repeats itself since token %zu, every %zu tokens%s\n", p.start, p.period,
                r->o->on_loop == ON_LOOP_STOP ? "; it ends here" : "; --on-loop stop would end it here");
}

/* Decode until the text ends, a signal comes or something fails. Bytes go out as they are made. */
static int write_tokens(struct run *r, struct emit *m, struct sink *out, struct err *e)
{
    struct decoder *d = &r->decoder;
    bool ids = r->o->format == FORMAT_IDS;
    const char *bytes;
    size_t n;
    while (m->finish == FINISH_NONE) {
        size_t next = d->n_tokens;
        if (stop_signal)
            return err_set(e, ERR_FAILED, "stopped by %s after %zu of %zu tokens", stop_signal_name(), m->n, r->o->tokens);
        if (decode_step(d, e))
            return -1;
        const size_t first = m->n;
        for (; next < d->n_tokens && m->finish == FINISH_NONE; next++) {
            size_t before = m->n, repetitions = m->repetitions;
            emit_token(m, d->tokens[next], &bytes, &n);
            if (ids ? m->n > before && write_ids(out, d->tokens[next], e) : n && sink_write(out, bytes, n, e))
                return -1;
            if (m->repetitions > repetitions)
                say_repetition(r, m);
        }
        decode_count(d, m->n - first);
        progress_at(&r->progress, m->n);
    }
    return 0;
}

/* How the text was made, as `report --json` tells it (INTERFACES): the fields that a single run has. Of several texts, text I's go to FILE.I. */
static int write_stats(const struct run *r, const struct emit *m, struct err *e)
{
    const struct draft_stats *s = &r->decoder.stats;
    char path[PATH_BYTES];
    snprintf(path, sizeof path, r->o->samples > 1 ? "%s.%u" : "%s", r->o->json_stats, (unsigned)r->sampling.sample);
    FILE *f = fopen(path, "w");
    if (!f)
        return err_set(e, ERR_FAILED, "--json-stats: %s: cannot write: %s", path, strerror(errno));
    fprintf(f, "{\"finish_reason\": \"%s\", \"model\": ", finish_name(m->finish));
    put_json(f, r->engine.dir, strlen(r->engine.dir));
    fprintf(f, ", \"seed\": %" PRIu64 ", \"lossless\": %s, \"prompt_tokens\": %zu, \"tokens\": %zu, \"seconds\": %.6f, \"prefill_seconds\": %.6f, "
            "\"tokens_per_second\": %.3f, ", r->sampling.seed, r->setup.draft.verifier == VERIFY_PAPER ? "false" : "true", r->n_prompt, m->n, s->seconds,
            r->decoder.count.prefill_seconds, s->seconds > 0 ? (double)s->tokens / s->seconds : 0);
    stats_json(f, s, r->setup.draft.n_width > 0);
    fputs("}\n", f);
    if (ferror(f) | fclose(f))
        return err_set(e, ERR_FAILED, "--json-stats: %s: cannot write: %s", path, strerror(errno));
    return 0;
}

static void last_line_json(const struct run *r, const struct emit *m, double seconds)
{
    fprintf(stderr, "{\"phase\": \"done\", \"tokens\": %zu, \"of\": %zu, \"finish_reason\": \"%s\", \"stop_reason\": ", m->n, r->o->tokens,
            finish_name(m->finish));
    if (m->stop_string)
        put_json(stderr, m->stop_string, strlen(m->stop_string));
    else if (m->finish == FINISH_STOP)
        fprintf(stderr, "%" PRId32, m->stop_token);
    else
        fputs("null", stderr);
    fprintf(stderr, ", \"seconds\": %.3f, \"tokens_per_second\": %.3f, \"prompt_tokens\": %zu, \"prefill_seconds\": %.3f}\n", seconds,
            seconds > 0 ? (double)m->n / seconds : 0, r->n_prompt, r->decoder.count.prefill_seconds);
}

static void last_line(const struct run *r, const struct emit *m, double seconds)
{
    char speed[96];
    const struct draft_stats *s = &r->decoder.stats;
    int n = snprintf(speed, sizeof speed, "%.2f s, %.1f tokens/s", seconds, seconds > 0 ? (double)m->n / seconds : 0);
    if (r->setup.draft.drafters && s->rounds)
        snprintf(speed + n, sizeof speed - (size_t)n, ", %.2f tokens a pass", (double)s->tokens / (double)s->rounds);
    if (r->o->quiet)
        return;
    if (r->o->progress == PROGRESS_JSON)
        last_line_json(r, m, seconds);
    else if (m->stop_string)
        fprintf(stderr, "stop string after %zu of %zu tokens, %s\n", m->n, r->o->tokens, speed);
    else if (m->finish == FINISH_STOP)
        fprintf(stderr, "end of text (token %" PRId32 ") after %zu of %zu tokens, %s; --ignore-eos or --min-tokens N goes on\n", m->stop_token, m->n,
                r->o->tokens, speed);
    else if (r->o->progress != PROGRESS_NONE)
        fprintf(stderr, "%zu tokens, %s\n", m->n, speed);
}

/* One text into one output. */
static int write_text(struct run *r, struct sink *out, struct err *e)
{
    const struct config *c = &r->engine.config;
    struct emit_rules rules = { .tokens = r->o->tokens, .eos = c->eos, .n_eos = c->n_eos, .ignore_eos = r->o->ignore_eos, .stop = r->o->stop.v,
                                .n_stop = r->o->stop.n, .on_loop = (enum on_loop)r->o->on_loop };
    struct emit m;
    const char *bytes;
    size_t n;
    bool to_terminal = out->fd == STDOUT_FILENO && isatty(STDOUT_FILENO);
    if (emit_open(&m, &rules, r->engine.tokenizer, r->at_start, e))
        return -1;
    if (to_terminal && r->progress.show == SHOW_LINE)
        progress_stop(&r->progress);
    progress_phase(&r->progress, "writing", "tokens", r->o->tokens);
    int rc = write_tokens(r, &m, out, e);
    double seconds = progress_seconds(&r->progress);
    progress_clear(&r->progress);
    if (rc && !out->closed_pipe && r->o->format == FORMAT_TEXT) {
        struct err ignored;                      /* the first failure is the one to tell */
        emit_flush(&m, &bytes, &n);
        if (n)
            sink_write(out, bytes, n, &ignored);
    }
    if (rc && out->closed_pipe)
        err_set(e, ERR_FAILED, "standard output was closed after %zu of %zu tokens", m.n, r->o->tokens);
    if (to_terminal && m.n)
        fputc('\n', stderr);                     /* what follows begins on a line of its own */
    if (rc == 0)
        rc = sink_finish(out, e);
    if (rc == 0)
        last_line(r, &m, seconds);
    if (rc == 0 && r->o->json_stats)
        rc = write_stats(r, &m, e);
    emit_close(&m);
    return rc;
}

static int write_sample(struct run *r, size_t sample, struct sink *out, struct err *e)
{
    int rc;
    if (sample > 0) {
        r->sampling.sample = (uint32_t)sample;
        if (decode_restart(&r->decoder, r->n_prompt, &r->sampling, e))
            return -1;
    }
    progress_phase(&r->progress, "reading the prompt", "tokens", r->n_prompt - 1);
    rc = decode_prefill(&r->decoder, prefilling, &r->progress, e);
    if (rc == 0)
        rc = write_text(r, out, e);
    else if (rc > 0)
        rc = err_set(e, ERR_FAILED, "stopped by %s while reading the prompt", stop_signal_name());
    progress_clear(&r->progress);
    if (rc == 0)
        return 0;
    sink_abandon(out);
    if (out->temporary[0]) {
        size_t n = strlen(e->msg);
        snprintf(e->msg + n, sizeof e->msg - n, "; the text so far is in %s", out->temporary);
    }
    return -1;
}

static int open_output(struct sink *out, const struct options *o, size_t sample, struct err *e)
{
    char path[PATH_BYTES];
    if (o->samples == 1 || !o->output)
        return sink_open(out, o->output, e);
    snprintf(path, sizeof path, "%s.%zu", o->output, sample);
    return sink_open(out, path, e);
}

static int prepare(struct run *r, struct err *e)
{
    struct engine *g = &r->engine;
    if (check_options(r->o, e) || engine_open(g, r->o, e) || read_prompt(r, e) || check_length(r, e) ||
        sampling_from_options(&r->sampling, r->o, &g->config, g->tokenizer, r->n_prompt + r->o->tokens, e) ||
        draft_from_options(&r->setup.draft, r->heads_file, r->o, g->dir, r->n_prompt, e) || check_memory(r, e))
        return -1;
    progress_open(&r->progress, r->o->progress, r->o->quiet);
    return 0;
}

static int load(struct run *r, struct err *e)
{
    if (engine_load(&r->engine, &r->progress, e))
        return -1;
    if (stop_signal)
        return err_set(e, ERR_FAILED, "stopped by %s while loading the model", stop_signal_name());
    if (r->setup.draft.drafters >> SOURCE_HEADS & 1) {
        if (heads_open(&r->engine.heads, r->heads_file[0] ? r->heads_file : NULL, &r->engine.model, e))
            return -1;
        r->setup.heads = &r->engine.heads;
    }
    if (decode_open(&r->decoder, &r->engine.model, &r->sampling, &r->setup, r->prompt, r->n_prompt, r->n_prompt + r->o->tokens, e))
        return -1;
    progress_clear(&r->progress);
    announce(r);
    return 0;
}

int cmd_run(const struct options *o, struct err *e)
{
    struct run r = { .o = o };
    struct sink out = { .fd = STDOUT_FILENO };
    stop_signals_catch();
    int rc = prepare(&r, e);
    for (size_t i = 0; i < o->samples && rc == 0; i++) {
        rc = open_output(&out, o, i, e);
        if (rc == 0 && i == 0 && load(&r, e)) {
            progress_clear(&r.progress);
            sink_abandon(&out);
            rc = -1;
        } else if (rc == 0) {
            rc = write_sample(&r, i, &out, e);
        }
    }
    decode_close(&r.decoder);
    sampling_free(&r.sampling);
    free(r.prompt);
    engine_close(&r.engine);
    return rc;
}
