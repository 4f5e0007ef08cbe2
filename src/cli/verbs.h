/* The verbs of the command line. Each cmd_* runs one verb and returns 0, or -1 with the message and exit
 * code that main uses. */
#pragma once
#include "src/request/options.h"

int cmd_run(const struct options *o, struct err *e);
int cmd_score(const struct options *o, struct err *e);
int cmd_tokenize(const struct options *o, struct err *e);
int cmd_inspect(const struct options *o, struct err *e);
int cmd_distinct(const struct options *o, struct err *e);
int cmd_version(const struct options *o, const char *commit, struct err *e);
int cmd_help(const struct options *o, struct err *e);
int cmd_train(const struct options *o, struct err *e);
int cmd_report(const struct options *o, struct err *e);
int cmd_submit(const struct options *o, struct err *e);
int cmd_work(const struct options *o, struct err *e);
int cmd_serve(const struct options *o, struct err *e);
int cmd_list(const struct options *o, struct err *e);
/* src/cli/cmd_jobs.c: show, pause, resume, cancel, remove, priority, redo */
int cmd_show(const struct options *o, struct err *e);
int cmd_change(const struct options *o, struct err *e);
int cmd_priority(const struct options *o, struct err *e);
int cmd_redo(const struct options *o, struct err *e);
int cmd_text(const struct options *o, struct err *e);        /* src/cli/cmd_text.c: text, tail */
int cmd_tail(const struct options *o, struct err *e);
int cmd_edit(const struct options *o, struct err *e);        /* src/cli/cmd_extend.c: extend, fork */
int cmd_export(const struct options *o, struct err *e);      /* src/cli/cmd_export.c, with run --batch */
int cmd_run_batch(const struct options *o, struct err *e);
int cmd_convert(const struct options *o, struct err *e);
int cmd_du(const struct options *o, struct err *e);          /* src/cli/cmd_upkeep.c: du, compact, backup */
int cmd_compact(const struct options *o, struct err *e);
int cmd_backup(const struct options *o, struct err *e);
int cmd_doctor(const struct options *o, struct err *e);
int cmd_plan(const struct options *o, struct err *e);
int cmd_verify(const struct options *o, struct err *e);
