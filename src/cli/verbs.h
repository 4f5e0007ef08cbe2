/* The verbs, and what several of them share: finding and opening a model, reading texts, writing output.
 *
 * Each cmd_* does one verb and returns 0, or -1 with the line that main prints and the exit code. */
#pragma once
#include <signal.h>
#include <stdatomic.h>
#include "src/model/memory_plan.h"
#include "src/model/heads.h"
#include "src/model/model.h"
#include "src/request/options.h"
#include "src/base/progress.h"
#include "src/text/tokenizer.h"

#define LONGHAND_VERSION "0.1.0"

int cmd_run(const struct options *o, struct err *e);
int cmd_score(const struct options *o, struct err *e);
int cmd_tokenize(const struct options *o, struct err *e);
int cmd_inspect(const struct options *o, struct err *e);
int cmd_distinct(const struct options *o, struct err *e);
int cmd_version(const struct options *o, struct err *e);
int cmd_help(const struct options *o, struct err *e);
int cmd_train(const struct options *o, struct err *e);
int cmd_report(const struct options *o, struct err *e);
int cmd_bench(const struct options *o, struct err *e);       /* src/bench/bench.c */
int cmd_submit(const struct options *o, struct err *e);
int cmd_work(const struct options *o, struct err *e);
/* src/cli/cmd_jobs.c: list, show, pause, resume, cancel, remove */
int cmd_list(const struct options *o, struct err *e);
int cmd_show(const struct options *o, struct err *e);
int cmd_change(const struct options *o, struct err *e);
int cmd_text(const struct options *o, struct err *e);        /* src/cli/cmd_text.c: text, tail */
int cmd_tail(const struct options *o, struct err *e);
int cmd_extend(const struct options *o, struct err *e);      /* src/cli/cmd_extend.c: extend, fork */
int cmd_fork(const struct options *o, struct err *e);
int cmd_export(const struct options *o, struct err *e);      /* src/cli/cmd_export.c, with run --batch */
int cmd_run_batch(const struct options *o, struct err *e);
int cmd_verify(const struct options *o, struct err *e);

/* ---- models ---- */

enum { PATH_BYTES = 4096 };

/* The directory that --model names: a directory, or org/name in the local Hugging Face cache. */
int model_dir(char dir[PATH_BYTES], const struct options *o, struct err *e);

/* The same for a name from elsewhere, which messages call `what`. */
int model_dir_of(char dir[PATH_BYTES], const char *name, const char *what, struct err *e);

/* Everything a verb needs to compute. {0} is closed. Opened in two steps so that what is cheap to check is
 * checked before weights are read. */
struct engine {
    struct heads heads;              /* where drafting wants them */
    char dir[PATH_BYTES];            /* as the user named it; `path`: absolute, links resolved */
    char path[PATH_BYTES], scaling[64];
    struct config config;
    struct tokenizer *tokenizer;
    const struct ops *ops;
    struct pool *pool;
    struct device *dev;
    enum dtype compute, kv;          /* as asked for; kv DT_OTHER: auto */
    struct tensors tensors;          /* headers only; closed again by engine_load */
    struct model model;              /* before engine_load: only what sizes are computed from */
    struct model int8;               /* where drafting wants it (engine_int8) */
    size_t weight_bytes;
    uint64_t stamp;                  /* model_stamp before anything was read */
};
/* Configuration (with --context-scaling), tokenizer, CPU twin, threads, headers of the weights. */
struct engine_spec {
    const char *dir; enum dtype compute;
    const char *scaling; size_t threads;           /* NULL: the model's own; 0: the default */
    const char *device, *numerics;                 /* see src/model/device_choice.h */
    enum dtype kv;                                 /* DT_OTHER: auto */
};
/* --compute, --kv-dtype */
enum dtype compute_of(const struct options *o);
enum dtype kv_of(int kv_dtype);                    /* DT_OTHER: auto */
int engine_open_spec(struct engine *g, const struct engine_spec *s, struct err *e);
int engine_open(struct engine *g, const struct options *o, struct err *e);
/* The weights, with progress; ERR_FAILED when a signal says to stop. */
int engine_load(struct engine *g, struct progress *p, struct err *e);
/* The model in 8 bits, unless it is there, with progress; a signal to stop ends it too. */
int engine_int8(struct engine *g, struct progress *p, struct err *e);
void engine_close(struct engine *g);

/* Weights, KV cache, workspace, logits and tokenizer of one decoder with `rows` rows in a pass, of which
 * `want` have logits (more than one: in a tree, with scratch for its nodes), and n_max positions. */
void engine_plan(struct memory_plan *plan, const struct engine *g, size_t n_max, size_t rows, size_t want);

/* ---- texts and output ---- */

/* The token ids of a prompt as the options want it: with --chat as a user's message through the chat template of the model in `dir`,
 * whose name goes to *template, otherwise the text itself (*template is NULL). free(*ids). */
int prompt_encode(int32_t **ids, size_t *n_ids, const char **template, const struct options *o,
                  const char *dir, const struct tokenizer *t, const char *text, size_t n, struct err *e);

enum { TEXT_BYTES_MAX = 1 << 30 };
/* All of a file, a pipe or ("-") standard input, with a NUL behind it; free(*data). */
int text_read(char **data, size_t *n, const char *path, struct err *e);
/* The same, and it must be UTF-8. */
int text_read_utf8(char **data, size_t *n, const char *path, struct err *e);
int text_check_utf8(const char *what, const char *s, size_t n, struct err *e);

/* Output of bytes: standard output, or a file that appears under its name when all is done. */
struct sink { int fd; char path[PATH_BYTES], temporary[PATH_BYTES]; };
int  sink_open(struct sink *s, const char *path, struct err *e);      /* NULL: standard output */
bool same_file(const char *a, const char *b);      /* Both are there, and one file. */
/* Whether what the options name to be written (--output, --json-stats, --curves) can be, is none that they name to be read or a file of their model, and no two are
 * one file (src/request/output_check.c); then of a model that is known only later; of one more file that belongs to `option`. ERR_INPUT with one line. */
int  outputs_check(const struct options *o, struct err *e);
int  outputs_check_model(const struct options *o, const char *dir, struct err *e);
int  output_check(const struct options *o, const char *option, const char *path, struct err *e);
int  sink_write(struct sink *s, const void *p, size_t n, struct err *e);
int  sink_finish(struct sink *s, struct err *e);                      /* fsync, rename */
/* Give up: what was written stays under the temporary name, which is removed if it is empty. */
void sink_abandon(struct sink *s);

/* n bytes, quoted; one that is no UTF-8, as names of files may have it, as the text \xNN */
void put_json(FILE *f, const char *s, size_t n);
/* Flush standard output and say whether everything arrived. Here and in sink_write a closed pipe is ERR_AGAIN. */
int  stdout_finish(struct err *e);

/* jansson puts a value for which there is no memory nowhere, and goes on. After json_watch its allocations that fail are noted; whoever
 * builds JSON asks behind it: -1 when some of it is missing. */
void json_watch(void);
int  json_whole(struct err *e);

/* ---- signals ---- */

/* SIGINT, SIGTERM, SIGHUP and SIGUSR1 set this to their number; the same one again ends the process, and so does another one more than a second later.
 * See src/base/stopping.h. */
extern atomic_int stop_signal;
void stop_signals_catch(void);
const char *stop_signal_name(void);
