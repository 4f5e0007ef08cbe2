/* Texts of jobs as files for other programs: text, ids, jsonl, openai-batch (INTERFACES).
 *
 * Jobs come in the order of their lines in the batch file, also where its parts are in several databases (--shard); batches and single jobs in the order of
 * their first number. `text` and `ids` are the bytes of
 * `longhand text`, one job after the other. `openai-batch` has one line for each request: the samples of one custom_id are its choices. A request
 * is told when all its samples are done; with a failed or cancelled one its response is null and its error says which. Others are left
 * out, but for `partial`, which shows what is there (finish_reason null). The other formats have texts that are done; with `partial` all.
 *
 * Nothing in the output depends on when it is written: the same jobs give the same bytes. The output is written line by line, aside, and takes its
 * name when it is whole. */
#pragma once
#include "runs/work/read_text.h"

struct export_source {                   /* of one database */
    struct store *store;
    const struct job_list *jobs;         /* one that was removed since is an error */
};

/* FORMAT_TEXT ..; output NULL: standard output */
struct export_options { int format; bool partial, gzip; const char *output; };
struct export_counts { size_t exported, left_out; };                                 /* jobs */

/* Several sources: jsonl lines have the path of the database under "db", ids of openai-batch begin with the source's number. */
int export_jobs(const struct export_options *o, const struct export_source *v, size_t n,
                struct export_counts *c, struct err *e);
