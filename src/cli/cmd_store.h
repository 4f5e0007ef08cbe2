/* What the verbs about jobs share: the store that --db names, the jobs that words name, texts on their way to people. */
#pragma once
#include "runs/store/store.h"
#include "runs/work/read_text.h"
#include "src/request/options.h"

/* --db, else LONGHAND_DB, else the default path; a notice about its file system goes to stderr. */
int store_from_options(struct store **s, const struct options *o, enum store_mode mode, struct err *e);
/* The jobs of the command line's words, --state and --all, ascending; `every` without any of them: all. Free both lists. */
int jobs_from_options(struct store *s, const struct options *o, bool every, int64_t **ids,
                      struct job_list *jobs, struct err *e);
/* The databases of list, report and export: --db may be given several times. {0} is closed. */
struct store_part { struct store *store; int64_t *ids; struct job_list jobs; };   /* ids[jobs.n]: of the selected jobs, ascending */
struct store_parts { struct store_part *v; size_t n; };
/* Opened for reading, and the jobs that are selected in each: a number, range or name must be in one of them at least. */
int  parts_from_options(struct store_parts *p, const struct options *o, bool every, struct err *e);
void parts_close(struct store_parts *p);
/* One job by a single word. */
int job_from_word(struct store *s, const char *word, struct job_list *jobs, struct err *e);

/* `work`, on the jobs of one batch or (NULL) all: 0 when there are no more to take; else -1 with the line and the exit code that `work` ends with, ERR_FAILED
 * also when the only thing wrong is that jobs failed. */
int work_queue(const struct options *o, struct store *s, const char *batch, struct err *e);
/* `--device cuda:all`: `work` in a process for each GPU (src/cli/work_all.c). Before a store is open and a thread is started. */
typedef int work_fn(const struct options *o, struct err *e);
int work_all(const struct options *o, work_fn *work, struct err *e);
