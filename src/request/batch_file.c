/* A batch file: its name, its lines, and its jobs in the store. Start at batch_open and batch_submit;
 * check_stored compares with stored jobs. */
#include "src/request/batch_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "src/base/input.h"
#include "src/base/notice.h"
#include "src/base/stopping.h"
#include "src/model/fingerprint.h"
#include "src/request/model_options.h"
#include "src/request/request.h"
#include "src/request/sampling_options.h"

/* ---- the command line ---- */

static int check_options(const struct options *o, struct err *e)
{
    static const char *const others[] = { "prompt", "prompt-file", "messages" };
    if (o->replace)
        return err_set(e, ERR_INPUT,
                       "--batch and --replace: a batch keeps its name; --name gives another one");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (options_given(o, others[i]))
            return err_set(e, ERR_INPUT, "--batch and --%s: the lines of a batch have their own", others[i]);
    if (o->system && !o->chat)
        return err_set(e, ERR_INPUT, "--system needs --chat");
    return request_check_options_texts(o, e);
}

/* Parses --shard I/N; without the option it is 1/1. */
static int parse_shard(struct batch *b, struct err *e)
{
    char first[24];
    const char *shard = b->o->shard ? b->o->shard : "1/1", *slash = strchr(shard, '/');
    if (!slash || slash - shard >= (ptrdiff_t)sizeof first)
        return err_set(e, ERR_INPUT, "--shard: '%s' is not I/N, like 2/8", shard);
    snprintf(first, sizeof first, "%.*s", (int)(slash - shard), shard);
    return parse_size(&b->shards, "--shard: N", slash + 1, 1, 1000000, e) ||
           parse_size(&b->shard, "--shard: I", first, 1, b->shards, e) ? -1 : 0;
}

/* What is between the cells of a table; 0: the file has lines. */
static char separator_of(const struct options *o)
{
    const size_t n = strlen(o->batch);
    const char *end = n > 4 && !o->lines ? o->batch + n - 4 : "";
    if (strcasecmp(end, ".tsv") == 0)
        return '\t';
    return (o->csv && !o->lines) || strcasecmp(end, ".csv") == 0 ? ',' : 0;
}

/* Whether the path is a name, by which the same command finds its batch again: a shell gives every <(..) the
 * path /dev/fd/63. */
static bool is_named(const char *path)
{
    struct stat st;
    return strcmp(path, "-") && strncmp(path, "/dev/", 5) && strncmp(path, "/proc/", 6) &&
           (stat(path, &st) || S_ISREG(st.st_mode));
}

/* The batch is called --name, else like the file without folders and .jsonl (.txt with --lines). */
static int name_batch(struct batch *b, struct err *e)
{
    const char *end = b->o->lines ? ".txt" : b->separator == '\t' ? ".tsv" : b->separator ? ".csv" : ".jsonl";
    const size_t n_end = strlen(end);
    const char *path = b->o->batch, *slash = strrchr(path, '/'), *own = b->o->name;
    const char *name = own ? own : slash ? slash + 1 : path;
    size_t n = strlen(name);
    if (!own && !is_named(path))
        return err_set(e, ERR_INPUT, "--batch %s: only a regular file gives its name, --name NAME is needed",
                       path);
    if (!own && n > n_end && strcmp(name + n - n_end, end) == 0)
        n -= n_end;
    if (n >= sizeof b->name)
        return err_set(e, ERR_INPUT, "%s: a name of %zu bytes, at most %d are allowed",
                       own ? "--name" : "--batch", n, BATCH_NAME_BYTES_MAX);
    snprintf(b->name, sizeof b->name, "%.*s", (int)n, name);
    return batch_name_check(own ? "--name" : "--batch (--name gives it another)", b->name, e);
}

/* ---- the file ---- */

static void report_ignored(const struct batch *b)
{
    const struct batch_notes *notes = &b->notes;
    char names[800];
    batch_notes_text(names, sizeof names, notes);
    if (notes->no_length)
        request_notice(b->o, "%s: %zu %s%s no max_tokens: %s to %s own end, at most to the end of the "
                       "context%s", b->file, notes->no_length, b->row,
                       plural(notes->no_length, " has", "s have"),
                       plural(notes->no_length, "its text goes", "their texts go"),
                       plural(notes->no_length, "its", "their"),
                       notes->less ? " or as far as memory holds" : "");
    if (!*names || b->o->quiet)
        return;
    notice(b->o->progress == PROGRESS_JSON,
           (struct row[]){ NOTICE_TEXT("phase", "fields passed over"), NOTICE_UINT("lines", notes->lines),
                           NOTICE_TEXT("fields", names), NOTICE_END },
           "%s: ignored in %zu %s%s, because they do not change a text: %s", b->file, notes->lines, b->row,
           plural(notes->lines, "", "s"), names);
}

static int read_text_lines(struct batch *b, const char *text, size_t n, struct err *e)
{
    size_t line = 0;
    for (const char *p = text, *end = text + n; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((stop ? stop : end) - p);
        const bool blank = strspn(p, " \t\r") == len;          /* a NUL follows the text */
        line++;
        if (!blank && batch_take_line(b, line, p, len, e))
            return -1;
        p += len + (stop != NULL);
    }
    return 0;
}

/* -1 if lines were bad. table: all were, and the file is perhaps of another kind. */
static int check_bad(const struct batch *b, bool table, struct err *e)
{
    if (b->bad > 1)
        err_set(e, ERR_INPUT, "%s: %zu of %zu %ss are bad%s; nothing was queued%s", b->file, b->bad, b->lines,
                b->row, b->bad > BATCH_ERRORS_SHOWN ? ", the first 20 are above" : "",
                table ? " (with --lines each line is a prompt, --csv reads a table)" : "");
    return b->bad ? -1 : 0;
}

/* Reads every line. A single bad line is *e alone, of several *e is their number. */
static int read_lines(struct batch *b, const char *text, size_t n, struct err *e)
{
    /* a byte order mark belongs to the file, not to its first line */
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3;
        n -= 3;
    }
    if (n >= 4 && memcmp(text, "PAR1", 4) == 0)
        return err_set(e, ERR_INPUT,
                       "%s: a Parquet file. This makes lines of JSON of it: python3 -c \"import pandas; "
                       "pandas.read_parquet('%s')[['prompt']].to_json('%s.jsonl', orient='records', "
                       "lines=True)\"", b->file, b->file, b->file);
    if ((b->separator ? batch_read_rows : read_text_lines)(b, text, n, e) ||
        batch_chain(b, NULL, e) ||
        check_bad(b, b->bad == b->lines && !b->o->lines && !b->separator && *text != '{', e))
        return -1;
    if (!b->lines)
        return err_set(e, ERR_INPUT, "%s: the file contains no request", b->file);
    report_ignored(b);
    return 0;
}

int batch_open(struct batch *b, const struct options *o, struct err *e)
{
    char *text = NULL;
    size_t n;
    struct batch_model *m;
    _Static_assert(BATCH_ERRORS_SHOWN == 20, "read_lines names the number");
    *b = (struct batch){ .o = o,
                         /* clients know no path */
                         .file = o->served ? strrchr(o->batch, '/') + 1 : input_name(o->batch),
                         .row = separator_of(o) ? "row" : "line",
                         .separator = separator_of(o),
                         .seed = o->seed };
    if (check_options(o, e) || parse_shard(b, e) || name_batch(b, e))
        return -1;
    notice_story(o, NULL);
    if (!options_given(o, "seed") && getrandom(&b->seed, sizeof b->seed, 0) != sizeof b->seed)
        return err_set(e, ERR_FAILED, "cannot draw a seed: %s; --seed gives one", strerror(errno));
    if (!(b->model = calloc(BATCH_MODELS_MAX, sizeof *b->model)))
        return batch_no_memory(e);
    if (o->model && batch_find_model(b, &m, o->model, "--model", e))
        return -1;
    if (text_read(&text, &n, o->batch, e))
        return -1;
    int rc = read_lines(b, text, n, e);
    free(text);
    return rc;
}

/* ---- a batch whose name is known: its stored jobs stay as they are ---- */

/* The last fingerprint of a folder, for the next job; {0}: none yet. */
struct measured { char path[PATH_BYTES], fingerprint[FINGERPRINT_BYTES]; enum weights weights; };
/* What the command line and the stored jobs of this name say differently. */
enum { DIFFERENCES_MAX = 48 };
struct differences {
    size_t n; struct { const char *name; size_t jobs; } v[DIFFERENCES_MAX];
    int64_t *moved; size_t n_moved;      /* jobs that have the model of --model at another place */
    struct measured here, there;         /* that model, and the one of a job */
};

static void add_difference(void *ctx, const char *name)
{
    struct differences *d = ctx;
    size_t i = 0;
    while (i < d->n && strcmp(d->v[i].name, name))
        i++;
    if (i == DIFFERENCES_MAX)
        return;
    d->n = MAX(d->n, i + 1);
    d->v[i].name = name;
    d->v[i].jobs++;
}

static int measure(struct measured *m, const char *path, enum weights weights, struct pool *pool,
                   struct err *e)
{
    if (strcmp(m->path, path) == 0 && m->weights == weights)
        return 0;
    m->path[0] = 0;
    int rc = model_fingerprint(m->fingerprint, NULL, path, weights, pool, not_stopped, NULL, e);
    if (rc > 0)
        return err_set(e, ERR_AGAIN, "stopped by %s before %s was read", stop_signal_name(), path);
    if (rc == 0)
        snprintf(m->path, sizeof m->path, "%s", path);
    m->weights = weights;
    return rc;
}

/* Whether a stored job that has its model at another place has the very model of --model. 1: the job's
 * fingerprint is the model's. A job that has not begun has none: then the model at its place counts, and if
 * that cannot be read, the tokenizer of its prompt. 0: another model; -1: this one cannot be read, or a stop
 * signal (ERR_AGAIN). */
static int same_model(const struct engine *g, struct differences *d, const struct stored_request *r,
                      struct err *e)
{
    struct job_params p;
    struct err why;
    if (job_parse(&p, r->parameters, &why))      /* a damaged job fails when it begins */
        return 0;
    const bool known = p.tokenizer != NULL,
               same = known && strcmp(p.tokenizer, tokenizer_sha(g->tokenizer)) == 0;
    const enum weights weights = p.weights;
    const char *was = r->fingerprint;
    job_close(&p);
    if (!was && known && !same)
        return 0;
    if (!was && measure(&d->there, r->model, weights, g->pool, &why)) {
        if (why.code == ERR_AGAIN)
            *e = why;
        return why.code == ERR_AGAIN ? -1 : same;
    }
    if (measure(&d->here, g->path, weights, g->pool, e))
        return -1;
    return strcmp(was ? was : d->there.fingerprint, d->here.fingerprint) == 0;
}

static int compare_with_stored(const struct batch *b, const struct job_spec *j,
                               const struct stored_request *r, struct differences *d, struct err *e)
{
    const struct options *o = b->o;
    if (options_given(o, "tokens") && !r->extended && r->wanted != j->wanted)
        add_difference(d, "tokens");
    if (options_given(o, "seed") && !j->seed_drawn && r->seed != j->seed)
        add_difference(d, "seed");
    if (options_given(o, "model") && strcmp(r->model, j->model)) {
        const int same = same_model(&b->model->engine, d, r, e);
        if (same < 0)
            return -1;
        if (same)
            d->moved[d->n_moved++] = r->job;
        else
            add_difference(d, "model");
    }
    return j->refusal ? 0 : job_differences(r->parameters, j->parameters, o, add_difference, d, e);
}

/* Refuses options of the command line that decide texts and that stored jobs of this name do not have. */
static int check_stored(const struct batch *b, struct store *s, struct differences *d, struct err *e)
{
    char list[600] = "";
    for (size_t i = 0; i < b->n; i++) {
        struct stored_request r;
        int rc = store_request(s, b->name, b->spec[i].custom_id, b->spec[i].sample, &r, e);
        if (rc == 1) {
            rc = compare_with_stored(b, &b->spec[i], &r, d, e);
            stored_request_free(&r);
        }
        if (rc < 0)
            return -1;
    }
    for (size_t i = 0, at = 0; i < d->n && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s (%zu %s)", i ? ", " : "", d->v[i].name,
                               d->v[i].jobs, plural(d->v[i].jobs, "job", "jobs"));
    return d->n ? err_set(e, ERR_INPUT, "@%s: jobs of this name were queued with other options: %s; --keep "
                          "keeps the jobs as they are, --name NAME queues new ones", b->name, list)
                : 0;
}

/* ---- storing ---- */

/* Reports how many jobs are new, and the settings of the new texts that are not in the lines. */
static void report_submitted(const struct batch *b)
{
    const bool json = b->o->progress == PROGRESS_JSON;
    const size_t there = b->n - b->n_new;
    char own[256], rest[80] = "";
    if (b->o->quiet)
        return;
    if (there)
        snprintf(rest, sizeof rest, ", %zu %s", there,
                 plural(there, "exists already and stays unchanged", "exist already and stay unchanged"));
    notice(json, (struct row[]){ NOTICE_TEXT("phase", "submitted"), NOTICE_TEXT("name", b->name),
                                 NOTICE_UINT("jobs", b->n), NOTICE_UINT("new", b->n_new),
                                 { "seed", NULL, V_WIDE(b->seed), .unless = !b->n_new }, NOTICE_END },
           "@%s: %zu new %s%s", b->name, b->n_new, plural(b->n_new, "job", "jobs"), rest);
    for (const struct batch_model *m = b->model; m < b->model + b->n_models && b->n_new; m++) {
        chat_notes_print(&m->chat_notes, b->o);
        model_notices(&m->engine, b->o);
        if (m->bos_twice)
            bos_notice(&m->engine, b->o, m->bos_twice);
        describe_generation_config(own, sizeof own, b->o, &m->engine.config);
        if (*own || json)
            notice(json, (struct row[]){ NOTICE_TEXT("phase", "settings"), NOTICE_TEXT("model", m->name),
                                         NOTICE_TEXT("generation_config", own), NOTICE_END },
                   "the model's own settings (generation_config.json)%s%s: %s", b->n_models > 1 ? " of " : "",
                   b->n_models > 1 ? m->name : "", own);
    }
    if (b->n_new && !json && (b->o->seed_drawn || !options_given(b->o, "seed")))
        fprintf(stderr, "seed: %" PRIu64 "\n", b->seed);
}

int batch_submit(struct batch *b, struct store *s, struct err *e)
{
    size_t bad;
    if (batch_chain(b, s, e) || check_bad(b, false, e))
        return -1;
    const struct engine *g = &b->model->engine;      /* --model is the model of every line */
    struct differences d = { .moved = calloc(b->n + 1, sizeof *d.moved) };
    const struct model_place place = { g->path, d.here.fingerprint, false };
    bool *is_new = calloc(b->n + 1, sizeof *is_new);
    b->ids = calloc(b->n + 1, sizeof *b->ids);
    int rc = d.moved && is_new && b->ids ? 0 : batch_no_memory(e);
    if (rc == 0 && !b->o->keep)
        rc = check_stored(b, s, &d, e);
    if (rc == 0 && b->n && (rc = store_submit(s, b->name, b->spec, b->n, b->ids, is_new, &bad, e)) != 0 &&
        e->code == ERR_INPUT && bad < b->n)
        err_while(e, "%s: %s %zu", b->file, b->row, b->spec[bad].line);
    if (rc == 0 && d.n_moved)
        rc = store_model_move(s, d.moved, d.n_moved, &place, e);
    b->n_new = 0;
    for (size_t i = 0; rc == 0 && i < b->n; i++)
        b->n_new += is_new[i];
    if (rc == 0)
        report_submitted(b);
    free(d.moved);
    free(is_new);
    return rc;
}
