/* Exports texts of jobs. Start at export_jobs: it puts the jobs in order and writes them one request at a
 * time. The formats of JSON have a section each. */
#include "runs/report/export.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "runs/report/csv.h"
#include "runs/report/export_logprobs.h"
#include "runs/store/figures.h"
#include "src/base/json.h"
#include "src/base/json_write.h"
#include "src/base/memory_file.h"
#include "src/base/output.h"
#include "src/base/stopping.h"
#include "src/text/loop.h"

/* A job to export. first, first_source: the first job of its batch, or the job itself. */
struct item {
    struct store *store;
    size_t source;
    const struct job *job;
    size_t first_source;
    int64_t first;
};

enum { DIGITS = 6, FIELDS_MAX = 40 };    /* digits of speeds and rates */

struct exporter {
    const struct export_options *o;
    size_t n_sources;
    struct item *v; size_t n;
    struct text_reader reader;
    const char *field[FIELDS_MAX]; size_t n_fields;  /* of jsonl and csv */
    char *names;                         /* owns them with --fields */
    struct sink out;
    z_stream z;
    bool deflating;
    struct export_counts *counts;
    struct text_before before;
};

static int no_memory(struct err *e) { return err_set(e, ERR_FAILED, "out of memory for an export"); }

/* ---- bytes out ---- */

static int deflate_out(struct exporter *x, const char *p, size_t n, int flush, struct err *e)
{
    unsigned char block[1 << 14];
    x->z.next_in = (unsigned char *)(uintptr_t)p;
    do {
        const size_t piece = MIN(n, (size_t)1 << 30);
        x->z.avail_in = (uInt)piece;
        n -= piece;
        do {
            x->z.next_out = block;
            x->z.avail_out = sizeof block;
            if (deflate(&x->z, n ? Z_NO_FLUSH : flush) == Z_STREAM_ERROR)
                return err_set(e, ERR_FAILED, "zlib: %s", x->z.msg ? x->z.msg : "stream error");
            if (sink_write(&x->out, block, sizeof block - x->z.avail_out, e))
                return -1;
        } while (x->z.avail_out == 0);
    } while (n);
    return 0;
}

static int put(struct exporter *x, const char *p, size_t n, struct err *e)
{
    return x->deflating ? deflate_out(x, p, n, Z_NO_FLUSH, e) : sink_write(&x->out, p, n, e);
}

/* ---- order ---- */

static int by_line(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    const struct job *j = x->job, *k = y->job;
    int d = (x->first_source > y->first_source) - (x->first_source < y->first_source);
    d = d ? d : (x->first > y->first) - (x->first < y->first);
    d = d ? d : (j->line > k->line) - (j->line < k->line);
    d = d || !j->custom_id || !k->custom_id ? d : strcmp(j->custom_id, k->custom_id);
    d = d ? d : (x->source > y->source) - (x->source < y->source);
    d = d ? d : (j->sample > k->sample) - (j->sample < k->sample);
    return d ? d : (j->id > k->id) - (j->id < k->id);
}

static bool same_batch(const struct item *a, const struct item *b)
{
    return a->job->batch && b->job->batch && strcmp(a->job->batch, b->job->batch) == 0;
}

static int by_batch(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    const char *p = x->job->batch ? x->job->batch : "", *q = y->job->batch ? y->job->batch : "";
    int d = strcmp(p, q);
    d = d ? d : (x->source > y->source) - (x->source < y->source);
    return d ? d : (x->job->id > y->job->id) - (x->job->id < y->job->id);
}

static void put_in_order(struct exporter *x)
{
    qsort(x->v, x->n, sizeof *x->v, by_batch);
    for (size_t i = 0; i < x->n; i++) {
        const bool goes_on = i && same_batch(&x->v[i], &x->v[i - 1]);
        x->v[i].first_source = goes_on ? x->v[i - 1].first_source : x->v[i].source;
        x->v[i].first = goes_on ? x->v[i - 1].first : x->v[i].job->id;
    }
    qsort(x->v, x->n, sizeof *x->v, by_line);
}

static const struct job *job_of(const void *item) { return ((const struct item *)item)->job; }

static bool same_request(const struct item *a, const struct item *b)
{
    return a->source == b->source && same_batch(a, b) && a->job->custom_id && b->job->custom_id &&
           strcmp(a->job->custom_id, b->job->custom_id) == 0;
}

/* ---- one job ---- */

struct exported {                        /* everything that is exported of one job; {0} is closed */
    struct job_input in;
    struct job_params params;
    /* of a chapter: its own prompt, with the place of the carried text in that of `in` */
    char *own; size_t carried; struct chapter chapter;
    struct placed_text text;
    const char *shown; size_t n_shown;   /* its answer; with --with-thinking all of it */
    struct counts counts; figure_lists list;
    bool drafts;                         /* the job may use some drafter */
    bool repeats; struct repetition repetition;
    struct token_logprobs logprobs;
};

static void exported_close(struct exported *t)
{
    job_input_free(&t->in);
    job_close(&t->params);
    free(t->own);
    chapter_free(&t->chapter);
    placed_text_free(&t->text);
    token_logprobs_close(&t->logprobs);
    *t = (struct exported){0};
}

static int read_shown(struct exporter *x, const struct item *i, struct exported *t, struct err *e)
{
    if (job_read_text(&x->reader, i->store, i->job, &t->text, e))
        return -1;
    const size_t from = x->o->with_thinking ? 0 : t->text.answer;
    x->counts->thinking += from && from == t->text.n && x->o->format != FORMAT_OPENAI;
    t->shown = t->text.text + from;
    t->n_shown = t->text.n - from;
    return 0;
}

/* Puts what a chapter read in place of its own prompt. A chat stays as the user wrote it. */
static int read_prompt(struct exporter *x, const struct item *i, struct exported *t, struct err *e)
{
    const struct job_input *in = &t->in;
    char *text = NULL, *own = NULL;
    size_t n;
    if (!i->job->after || t->params.chat)
        return 0;
    if (text_reader_open(&x->reader, i->store, i->job, &t->params, e) ||
        store_chapter(i->store, i->job->id, &t->chapter, e) ||
        tokenizer_decode(x->reader.tokenizer, &own, &t->carried, in->prompt_ids,
                         MIN(t->chapter.own, in->n_prompt), true, e) ||
        tokenizer_decode(x->reader.tokenizer, &text, &n, in->prompt_ids, in->n_prompt, true, e)) {
        free(own);
        return -1;
    }
    free(own);
    t->own = t->in.prompt;
    t->in.prompt = text;
    t->in.prompt_bytes = n;
    t->carried = MIN(t->carried, n);
    return 0;
}

static int read_exported(struct exporter *x, const struct item *i, struct exported *t, struct err *e)
{
    *t = (struct exported){0};
    if (store_read_begin(i->store, e))           /* one lock for all reads */
        return -1;
    int rc = store_input(i->store, i->job->id, &t->in, e) || job_parse(&t->params, t->in.parameters, e) ||
             read_shown(x, i, t, e) ||
             read_prompt(x, i, t, e) ||
             figures_read(&t->counts, t->list, i->store, i->job->id, e) ||
             token_logprobs_read(&t->logprobs, i->store, i->job, &t->params, e);
    const int repeats = rc ? 0 : store_repetition(i->store, i->job->id, &t->repetition, e);
    t->repeats = repeats == 1;
    store_read_end(i->store);
    if (rc || repeats < 0)
        return -1;
    t->drafts = t->params.drafter_auto || t->params.draft.drafters != 0;
    return 0;
}

/* A stop string is a text, an end-of-text token is its number. openai: a repetition is one, too. */
static struct value stop_reason(const struct job *j, const struct job_params *p, bool openai)
{
    const char *why = j->stop_reason;
    bool is_text = why && strspn(why, "0123456789") < strlen(why);
    for (size_t i = 0; why && i < p->stop.n; i++)
        is_text |= strcmp(p->stop.v[i], why) == 0;
    if (openai && job_is_cut_short(j))
        return (struct value)V_TEXT("repetition");
    return is_text || !why ? (struct value)V_TEXT(why) : (struct value)V_JSON(why);
}

/* Where the text began to repeat itself; null: nowhere. at: room for the rows of the value. */
static struct value repetition_of(const struct exported *t, struct row at[4])
{
    const struct repetition *p = &t->repetition;
    at[0] = (struct row){ "start", NULL, V_UINT(p->start) };
    at[1] = (struct row){ "period", NULL, V_UINT(p->period) };
    at[2] = (struct row){ "found", NULL, V_UINT(p->found) };
    at[3] = (struct row){ 0 };
    return t->repeats ? (struct value)V_ROWS(at) : (struct value)V_TEXT(NULL);
}

/* ---- jsonl ---- */

/* The fields of a line, in their order, each with its value. The rate comes last, after whether it is marked,
 * so that lines of equal texts are equal up to these two. put_flat writes the metadata, whose members become
 * fields, too, and the log-probabilities. */
#define FIELDS(X) \
    X(custom_id, V_TEXT(j->custom_id)) X(prompt, V_BYTES(t->in.prompt, t->in.prompt_bytes)) \
    X(text, V_BYTES(t->shown, t->n_shown)) X(tokens, V_UINT(j->tokens - j->given)) \
    X(finish_reason, V_TEXT(j->finish_reason)) X(seed, V_UINT(j->seed)) X(seed_text, V_TEXT(seed)) \
    X(stop_reason, stop_reason(j, &t->params, false)) X(repetition, repetition_of(t, at)) \
    X(prompt_tokens, V_UINT(j->prompt_tokens)) X(sample, V_UINT(j->sample)) X(job, V_INT(j->id)) \
    X(name, V_TEXT(j->batch)) X(db, V_TEXT(store_path(i->store))) X(state, V_TEXT(job_state_name(j->state))) \
    X(error, V_TEXT(j->error)) X(own, V_TEXT(t->own && !t->chapter.prompted ? "" : t->own)) \
    X(carried, t->own ? (struct value)V_BYTES(t->in.prompt + t->carried, t->in.prompt_bytes - t->carried) \
                      : (struct value)V_TEXT(NULL)) \
    X(appended, V_TEXT(t->chapter.append)) X(metadata, V_TEXT(NULL))
#define LAST_FIELDS(X) \
    X(logprobs, V_TEXT(NULL)) X(ran_alone, V_BOOL(ran_alone(&t->counts))) \
    X(tokens_per_second, V_NUMBER(figure(&t->counts, "tokens_per_second")))
#define NAME_OF(name, ...) #name,
#define ROW_OF(name, ...) { #name, NULL, __VA_ARGS__ },
#define KEPT_ROW(name, ...) { #name, NULL, V_TEXT(t->params.kept[KEPT_##name]) },
static const char *const field_names[] = { FIELDS(NAME_OF) KEPT_FIELDS(NAME_OF) LAST_FIELDS(NAME_OF) };
enum { N_FIELDS = sizeof field_names / sizeof *field_names };

/* N_FIELDS: no field has the name. */
static size_t field_of(const char *name)
{
    size_t i = 0;
    while (i < N_FIELDS && strcmp(field_names[i], name))
        i++;
    return i;
}

static bool is_field(const char *field, const char *name) { return strcmp(field, name) == 0; }

/* Writes the metadata as it is, and its members beside the others, except those whose names are taken. */
static int put_metadata(struct json_writer *w, const struct exported *t, struct err *e)
{
    struct json all, key, v;
    const char *text = t->in.metadata;
    if (!text)
        return 0;
    if (js_check(&all, "metadata", text, strlen(text), e))
        return -1;
    jw_raw(w, "metadata", text, strlen(text));
    if (js_kind(&all) != JS_OBJECT)
        return 0;
    for (struct js_walk walk = js_walk(&all); js_next(&walk, &key, &v);) {
        char *name = js_strdup(&key);
        if (name && field_of(name) == N_FIELDS)
            jw_raw(w, name, v.s, (size_t)(v.end - v.s));
        free(name);
        if (!name)
            return no_memory(e);
    }
    return 0;
}

/* A member of the metadata or of the parameters, named "metadata.NAME" or "parameters.NAME"; null: there is
 * none. */
static int put_member(struct json_writer *w, const char *name, const struct exported *t, struct err *e)
{
    struct json all, v;
    const char *text = *name == 'm' ? t->in.metadata : t->in.parameters, *dot = strchr(name, '.');
    if (text && js_check(&all, "export", text, strlen(text), e))
        return -1;
    if (text && js_kind(&all) == JS_OBJECT && js_get(&all, dot + 1, &v, e) == 1)
        jw_raw(w, name, v.s, (size_t)(v.end - v.s));
    else
        jw_null(w, name);
    return 0;
}

/* Writes a job as one object: all fields, or those of --fields in their order. */
static int put_flat(const struct exporter *x, FILE *f, const struct item *i, const struct exported *t,
                    struct err *e)
{
    const struct job *j = i->job;
    struct json_writer w = { .f = f, .digits = DIGITS };
    struct row at[4];
    char seed[24];
    snprintf(seed, sizeof seed, "%" PRIu64, j->seed);
    const struct row rows[N_FIELDS] = { FIELDS(ROW_OF) KEPT_FIELDS(KEPT_ROW) LAST_FIELDS(ROW_OF) };
    int rc = 0;
    jw_open(&w, NULL, '{');
    for (size_t k = 0; k < x->n_fields && rc == 0; k++) {
        const char *name = x->field[k];
        if (field_of(name) == N_FIELDS)
            rc = put_member(&w, name, t, e);
        else if (is_field(name, "metadata") && !x->o->fields && x->o->format == FORMAT_JSONL)
            rc = put_metadata(&w, t, e);
        else if (is_field(name, "metadata") && t->in.metadata)
            jw_raw(&w, name, t->in.metadata, strlen(t->in.metadata));
        else if (is_field(name, "logprobs") && (t->logprobs.v || x->o->fields))
            rc = token_logprobs_put(&w, name, &t->logprobs, x->reader.tokenizer, LOGPROBS_TOKENS, e);
        else if (!is_field(name, "logprobs"))
            sheet_members(&w, (struct row[]){ rows[field_of(name)], { 0 } });
    }
    jw_close(&w, '}');
    fputc('\n', f);
    return rc;
}

static int no_field(const char *name, struct err *e)
{
    char list[700] = "";
    for (size_t i = 0; i < N_FIELDS; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s%s",
                 i + 1 == N_FIELDS ? " and " : i ? ", " : "", field_names[i],
                 is_field(field_names[i], "metadata") ? ", metadata.NAME, parameters.NAME" : "");
    return err_set(e, ERR_INPUT, "--fields: \"%.60s\" is no field; allowed are %s", name, list);
}

/* The fields of --fields, else all; "db" only with several databases. */
static int find_fields(struct exporter *x, struct err *e)
{
    const char *const fields = x->o->fields;
    if (!fields) {
        for (size_t k = 0; k < N_FIELDS; k++)
            if ((!is_field(field_names[k], "db") || x->n_sources > 1) &&
                ((!is_field(field_names[k], "logprobs") && !is_field(field_names[k], "seed_text")) ||
                 x->o->format == FORMAT_JSONL))
                x->field[x->n_fields++] = field_names[k];
        return 0;
    }
    if (x->o->format != FORMAT_JSONL && x->o->format != FORMAT_CSV)
        return err_set(e, ERR_INPUT, "--fields needs --format jsonl or csv");
    if (!(x->names = strdup(fields)))
        return no_memory(e);
    for (char *p = x->names, *end; p; p = end) {
        if ((end = strchr(p, ',')))
            *end++ = 0;
        if (field_of(p) == N_FIELDS && (strncmp(p, "metadata.", 9) || !p[9]) &&
            (strncmp(p, "parameters.", 11) || !p[11]))
            return no_field(p, e);
        for (size_t k = 0; k < x->n_fields; k++)
            if (strcmp(x->field[k], p) == 0)
                return err_set(e, ERR_INPUT, "--fields: \"%.60s\" is given twice", p);
        if (x->n_fields == FIELDS_MAX)
            return err_set(e, ERR_INPUT, "--fields: more than %d fields", FIELDS_MAX);
        x->field[x->n_fields++] = p;
    }
    return 0;
}

/* ---- csv ---- */

/* The values of an object: texts as they are, null as an empty cell, the rest as JSON. */
static int put_cells(FILE *f, const struct json *object, struct err *e)
{
    struct json key, v;
    size_t cells = 0;
    bool control;
    for (struct js_walk walk = js_walk(object); js_next(&walk, &key, &v);) {
        if (cells++)
            fputc(',', f);
        if (js_kind(&v) == JS_STRING) {
            char *text = malloc(js_length(&v, &control) + 1);
            if (!text)
                return no_memory(e);
            csv_cell(f, text, js_unescape(&v, text));
            free(text);
        } else if (js_kind(&v) == JS_NUMBER) {
            fwrite(v.s, 1, (size_t)(v.end - v.s), f);
        } else if (js_kind(&v) != JS_NULL) {
            csv_cell(f, v.s, (size_t)(v.end - v.s));
        }
    }
    fputs("\r\n", f);
    return 0;
}

/* The line of a job has the values of its line in jsonl. */
static int put_csv(const struct exporter *x, FILE *f, const struct item *i, const struct exported *t,
                   struct err *e)
{
    char *line = NULL;
    size_t n = 0;
    struct json root;
    FILE *m = memory_file(&line, &n);
    int rc = m ? put_flat(x, m, i, t, e) : no_memory(e);
    if (m && stream_end(m) && rc == 0)
        rc = no_memory(e);
    if (rc == 0)
        rc = js_check_with_nul(&root, "export", line, n, e) || put_cells(f, &root, e) ? -1 : 0;
    free(line);
    return rc;
}

/* ---- openai-batch ---- */

/* all: the samples of a request as one; its repetition is that of the first sample that repeats itself. */
static void put_metrics(struct json_writer *w, const struct exported *all, uint64_t seed)
{
    const struct counts *c = &all->counts;
    const double *histogram = all->list[LIST_HISTOGRAM], verified = figure(c, "verified");
    /* the deepest candidate that was verified; the histogram counts rounds by their tokens, with the bonus
     * token */
    const size_t depth = MAX(MAX(figure_list_end(histogram), (size_t)2) - 2,
                             figure_list_end(all->list[LIST_REACHED]) - 1);
    jw_open(w, "metrics", '{');
    jw_wide(w, "seed", seed);
    struct row at[4];
    sheet_members(w, (struct row[]){ { "repetition", NULL, repetition_of(all, at) }, { 0 } });
    if (!all->drafts || !(c->rounds > 0)) {
        jw_null(w, "speculative_decoding");
        jw_close(w, '}');
        return;
    }
    jw_open(w, "speculative_decoding", '{');
    jw_number(w, "mean_acceptance_length", figure(c, "mean_acceptance_length"));
    jw_number(w, "draft_acceptance_rate", verified > 0 ? c->accepted / verified : 0);
    jw_open(w, "acceptance_histogram", '[');
    for (size_t i = 0; i <= depth; i++)
        jw_number(w, NULL, histogram[i + 1]);
    jw_close(w, ']');
    jw_number(w, "num_spec_steps", c->rounds);
    jw_number(w, "num_accepted_draft_tokens", c->accepted);
    jw_number(w, "num_draft_tokens", verified);
    jw_uint(w, "num_spec_tokens", depth);
    jw_close(w, '}');
    jw_close(w, '}');
}

void export_put_said(struct json_writer *w, const struct said *s)
{
    const struct row message[] = {
        { "role", NULL, V_TEXT("assistant"), .unless = s->delta && !s->begins },
        { "content", NULL, V_BYTES(s->text, s->n), .unless = !s->text },
        { "reasoning_content", NULL, V_BYTES(s->thought, s->n_thought), .unless = !s->n_thought },
        { "refusal", NULL, V_TEXT(NULL), .unless = s->delta },
        { 0 } };
    sheet_members(w, (struct row[]){
        { s->delta ? "delta" : "message", NULL, V_ROWS(message), .unless = !s->chat },
        { "text", NULL, V_BYTES(s->text ? s->text : "", s->n), .unless = s->chat },
        { 0 } });
}

void export_put_end(struct json_writer *w, const struct job *j, const struct job_params *p)
{
    jw_text(w, "finish_reason", job_is_cut_short(j) ? "stop" : j->finish_reason);
    sheet_members(w, (struct row[]){ { "stop_reason", NULL, stop_reason(j, p, true) }, { 0 } });
}

void export_put_usage(struct json_writer *w, size_t prompt, size_t made)
{
    jw_open(w, "usage", '{');
    jw_uint(w, "prompt_tokens", prompt);
    jw_uint(w, "completion_tokens", made);
    jw_uint(w, "total_tokens", prompt + made);
    jw_close(w, '}');
}

static int put_choice(const struct exporter *x, struct json_writer *w, const struct job *j,
                      const struct exported *t, struct err *e)
{
    jw_open(w, NULL, '{');
    jw_uint(w, "index", j->sample);
    export_put_said(w, &(struct said){ .chat = t->params.chat, .text = t->shown, .n = t->n_shown,
                                       .thought = t->text.text, .n_thought = t->text.n - t->n_shown });
    const int rc = token_logprobs_put(w, "logprobs", &t->logprobs, x->reader.tokenizer,
                                      t->params.chat ? LOGPROBS_CHAT : LOGPROBS_COMPLETION, e);
    export_put_end(w, j, &t->params);
    jw_close(w, '}');
    return rc;
}

/* Opens "response", its body, and the list of choices. */
static void begin_response(struct json_writer *w, const struct job *j, const char *id, const char *model,
                           bool chat)
{
    char text[80];
    jw_open(w, "response", '{');
    jw_int(w, "status_code", 200);
    snprintf(text, sizeof text, "longhand-batch-%s", id);
    jw_text(w, "request_id", text);
    jw_open(w, "body", '{');
    snprintf(text, sizeof text, "%s-%s", chat ? "chatcmpl" : "cmpl", id);
    jw_text(w, "id", text);
    jw_text(w, "object", chat ? "chat.completion" : "text_completion");
    jw_number(w, "created", floor(j->created));
    jw_text(w, "model", model ? model : j->model);
    jw_open(w, "choices", '[');
}

/* v[0..n): the samples of the request. */
static int put_response(struct exporter *x, struct json_writer *w, const struct item *v, size_t n,
                        const char *id, struct err *e)
{
    struct exported all = {0};           /* no texts */
    size_t made = 0;
    for (size_t i = 0; i < n; i++) {
        struct exported t;
        int rc = read_exported(x, &v[i], &t, e);
        if (rc == 0 && i == 0)
            begin_response(w, v->job, id, x->o->model, t.params.chat);
        if (rc == 0)
            rc = put_choice(x, w, v[i].job, &t, e);
        made += v[i].job->tokens - v[i].job->given;
        if (t.repeats && !all.repeats)
            all.repetition = t.repetition;
        all.repeats |= t.repeats;
        all.drafts |= t.drafts;
        figures_add(&all.counts, all.list, &t.counts, t.list);
        exported_close(&t);
        if (rc)
            return -1;
    }
    jw_close(w, ']');
    export_put_usage(w, v->job->prompt_tokens, made);
    put_metrics(w, &all, v->job->seed);
    jw_close(w, '}');
    jw_close(w, '}');
    jw_null(w, "error");
    return 0;
}

static bool is_over(const struct job *j) { return j->state == JOB_FAILED || j->state == JOB_CANCELLED; }

static void put_error(struct json_writer *w, const struct job *j, size_t n)
{
    char sample[40] = "", text[1200];
    if (n > 1)
        snprintf(sample, sizeof sample, "sample %" PRIu32 ": ", j->sample);
    snprintf(text, sizeof text, "%s%.1100s", sample,
             j->error                    ? j->error
             : j->state == JOB_CANCELLED ? "the job was cancelled"
                                         : "the job failed");
    jw_null(w, "response");
    jw_open(w, "error", '{');
    jw_text(w, "code", job_state_name(j->state));
    jw_bytes(w, "message", text, utf8_valid_prefix(text, strlen(text)));
    jw_close(w, '}');
}

/* The line of a request with the samples v[0..n). *shown: whether the request is exported. */
static int put_request(struct exporter *x, FILE *f, const struct item *v, size_t n, bool *shown,
                       struct err *e)
{
    const struct job *bad = NULL;
    size_t done = 0;
    char id[40], text[60];
    for (size_t i = 0; i < n; i++) {
        done += v[i].job->state == JOB_DONE;
        bad = bad || !is_over(v[i].job) ? bad : v[i].job;
    }
    *shown = bad || done == n || x->o->partial;
    if (!*shown)
        return 0;
    if (x->n_sources > 1)
        snprintf(id, sizeof id, "%zu-%" PRId64, v->source + 1, v->job->id);
    else
        snprintf(id, sizeof id, "%" PRId64, v->job->id);
    struct json_writer w = { .f = f, .digits = DIGITS };
    snprintf(text, sizeof text, "longhand-%s", id);
    jw_open(&w, NULL, '{');
    jw_text(&w, "id", text);
    jw_text(&w, "custom_id", v->job->custom_id);
    if (bad)
        put_error(&w, bad, n);
    else if (put_response(x, &w, v, n, id, e))
        return -1;
    jw_close(&w, '}');
    fputc('\n', f);
    return 0;
}

/* ---- all formats ---- */

/* Writes v[0..n): one job, or the samples of one request. */
static int render(struct exporter *x, FILE *f, const struct item *v, size_t n, bool *shown, struct err *e)
{
    struct exported t = {0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    int rc = 0;
    if (x->o->format == FORMAT_OPENAI)
        return put_request(x, f, v, n, shown, e);
    *shown = v->job->state == JOB_DONE || x->o->partial;
    if (!*shown)
        return 0;
    if (x->o->format == FORMAT_IDS) {
        rc = store_tokens(v->store, v->job->id, 0, v->job->tokens, &ids, &n_ids, e);
        for (size_t i = 0; i < n_ids && rc == 0; i++)
            fprintf(f, "%" PRId32 "\n", ids[i]);
        free(ids);
    } else if (x->o->format == FORMAT_TEXT) {
        char *begins = NULL;
        rc = read_shown(x, v, &t, e) ||
             export_text_begins(&begins, &x->before, v->job, t.shown, t.n_shown, x->o->between,
                                x->o->headings, e) ? -1 : 0;
        if (rc == 0) {
            fputs(begins, f);
            fwrite(t.shown, 1, t.n_shown, f);
        }
        free(begins);
    } else {
        rc = read_exported(x, v, &t, e);
        rc = rc ? rc : (x->o->format == FORMAT_CSV ? put_csv : put_flat)(x, f, v, &t, e);
    }
    exported_close(&t);
    return rc;
}

void export_text_grows(struct text_before *before, const char *text, size_t n)
{
    size_t newlines = 0;
    while (newlines < MIN(n, (size_t)2) && text[n - 1 - newlines] == '\n')
        newlines++;
    before->newlines = newlines < n ? newlines : MIN(before->newlines + n, (size_t)2);
}

int export_text_begins(char **begins, struct text_before *before, const struct job *job, const char *text,
                       size_t n, const char *between, bool headings, struct err *e)
{
    char number[40], sample[JOB_SAMPLE_BYTES];
    size_t newlines = text ? before->newlines : 2;
    while (n && newlines < 2 && text[newlines - before->newlines] == '\n')
        newlines++;
    const bool follows = before->n && job->after && job->after == before->job;
    snprintf(number, sizeof number, "job %" PRId64, job->id);
    job_sample(sample, job);
    const char *name = job->custom_id ? job->custom_id : job->batch ? job->batch : number;
    const char *gap = !before->n ? "" : between ? between : headings ? "\n\n"
                      : follows  ? "\n\n" + newlines : "";
    *before = (struct text_before){ before->n + 1, job->id, 0 };
    export_text_grows(before, text, n);
    const int made = headings ? asprintf(begins, "%s# %s%s\n\n", gap, name, sample)
                           : asprintf(begins, "%s", gap);
    return made < 0 ? err_set(e, ERR_FAILED, "out of memory for a heading") : 0;
}

static int write_csv_head(struct exporter *x, struct err *e)
{
    char *bytes = NULL;
    size_t n = 0;
    FILE *f = memory_file(&bytes, &n);
    for (size_t k = 0; f && k < x->n_fields; k++) {
        fputs(k ? "," : "", f);
        csv_cell(f, x->field[k], strlen(x->field[k]));
    }
    if (f)
        fputs("\r\n", f);
    int rc = !f || stream_end(f) ? no_memory(e) : put(x, bytes, n, e);
    free(bytes);
    return rc;
}

static int write_all(struct exporter *x, struct err *e)
{
    const bool grouped = x->o->format == FORMAT_OPENAI;
    int rc = 0;
    for (size_t i = 0, n; i < x->n && rc == 0; i += n) {
        char *bytes = NULL;
        size_t n_bytes = 0;
        bool shown = false;
        FILE *f = memory_file(&bytes, &n_bytes);
        if (!f)
            return no_memory(e);
        for (n = 1; grouped && i + n < x->n && same_request(&x->v[i], &x->v[i + n]);)
            n++;
        if (stop_signal)
            rc = err_set(e, ERR_AGAIN, "stopped by %s; nothing was exported", stop_signal_name());
        rc = rc ? rc : render(x, f, &x->v[i], n, &shown, e);
        if (stream_end(f) && rc == 0)
            rc = no_memory(e);
        rc = rc ? rc : put(x, bytes, n_bytes, e);
        *(shown ? &x->counts->exported : &x->counts->left_out) += n;
        free(bytes);
    }
    return rc;
}

static int open_output(struct exporter *x, struct err *e)
{
    if ((x->o->is_new ? sink_open_new : sink_open)(&x->out, x->o->output, e))
        return -1;
    x->out.earlier = x->o->force                                ? EARLIER_ANY
                     : x->o->gzip || x->o->format <= FORMAT_IDS ? EARLIER_TEXT : EARLIER_LINES;
    if (x->o->gzip &&
        deflateInit2(&x->z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        sink_abandon(&x->out);
        return no_memory(e);
    }
    x->deflating = x->o->gzip;
    return 0;
}

int export_jobs(const struct export_options *o, const struct export_source *v, size_t n,
                struct export_counts *c, struct err *e)
{
    struct exporter x = { .o = o, .n_sources = n, .counts = c };
    size_t jobs = 0;
    *c = (struct export_counts){0};
    for (size_t i = 0; i < n; i++)
        jobs += v[i].jobs->n;
    if (!(x.v = calloc(jobs + 1, sizeof *x.v)))
        return no_memory(e);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < v[i].jobs->n; k++)
            x.v[x.n++] = (struct item){ v[i].store, i, &v[i].jobs->v[k], 0 };
    put_in_order(&x);
    int rc = n == 1 && o->format == FORMAT_TEXT ? jobs_in_chains(x.v, x.n, sizeof *x.v, job_of, e) : 0;
    rc = rc || find_fields(&x, e) || open_output(&x, e) ? -1 : 0;
    if (rc == 0) {
        rc = o->format == FORMAT_CSV ? write_csv_head(&x, e) : 0;
        rc = rc ? rc : write_all(&x, e);
        if (rc == 0 && x.deflating)
            rc = deflate_out(&x, "", 0, Z_FINISH, e);
        if (rc == 0 && o->only_checks)
            rc = sink_check(&x.out, e);
        if (rc || o->only_checks)
            sink_discard(&x.out);    /* the store still has everything, so half an export is of no use */
        rc = rc ? rc : sink_finish(&x.out, e);
        sink_abandon(&x.out);
    }
    if (x.deflating)
        deflateEnd(&x.z);
    text_reader_close(&x.reader);
    free(x.names);
    free(x.v);
    return rc;
}
