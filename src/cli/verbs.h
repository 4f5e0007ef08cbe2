/* The verbs of the command line. Each cmd_* runs one verb and returns 0, or -1 with the message and exit
 * code that main uses. */
#pragma once
#include "src/request/options.h"

typedef int verb_fn(const struct options *o, struct err *e);

verb_fn cmd_run, cmd_score, cmd_tokenize, cmd_inspect, cmd_distinct, cmd_help, cmd_train, cmd_report,
        cmd_work, cmd_submit, cmd_serve, cmd_list, cmd_convert, cmd_doctor, cmd_plan, cmd_verify;
/* cmd_jobs.c; cmd_change: pause, resume, cancel, remove */
verb_fn cmd_show, cmd_change, cmd_priority, cmd_redo;
verb_fn cmd_text, cmd_tail;                              /* cmd_text.c */
verb_fn cmd_edit;                                        /* cmd_extend.c: extend, fork */
verb_fn cmd_export, cmd_run_batch;                       /* cmd_export.c, with run --batch */
verb_fn cmd_du, cmd_compact, cmd_backup;                 /* cmd_upkeep.c */
int cmd_version(const struct options *o, const char *commit, struct err *e);
