/* Texts of jobs as files for other programs: text, ids, jsonl, csv, openai-batch.
 *
 * Jobs have the order of their lines in the batch file, even if --shard spread the batch over several
 * databases. Batches and single jobs are ordered by their first number. In `text` chapters of one database
 * follow the text that they continue. `text` and `ids` are the bytes of `longhand text`, one job after the
 * other. `openai-batch` has one line for each request: the samples of
 * one custom_id are its choices. A request is exported when all its samples are done. If a sample failed
 * or was cancelled, the response is null and the error names the sample. Other requests are left out,
 * unless `partial` is set: then their texts so far are exported, with finish_reason null. The other
 * formats export finished texts, and with `partial` all texts.
 *
 * `prompt` is what the model read, in a chat what the user wrote. Its parts are beside it: of a chapter `own`
 * is what the user wrote for it, `carried` the rest, and `appended` what its text begins with.
 *
 * A line of jsonl or csv has the fields of `fields` in this order, or all fields, of which whether the
 * job ran alone and its rate come last. "metadata.NAME" is a member of the metadata, "parameters.NAME" one of
 * the stored parameters. Lines of csv end in CR LF, and a text that a spreadsheet would compute begins with
 * an apostrophe.
 *
 * Texts of chats have no thoughts before the answer. openai-batch has them as reasoning_content.
 *
 * The output depends only on the jobs, not on the time of the export. It is written line by line to a
 * temporary file, which takes its name when it is complete. */
#pragma once
#include "runs/work/read_text.h"

struct export_source {                   /* of one database */
    struct store *store;
    const struct job_list *jobs;         /* a job that was removed meanwhile is an error */
};

/* FORMAT_TEXT ..; output NULL: standard output */
struct export_options {
    int format;
    bool partial, gzip;
    const char *output;
    const char *fields;                  /* of jsonl and csv: "custom_id,text"; NULL: all */
    bool is_new;                         /* ERR_INPUT if `output` is there; no file is replaced */
    bool force, only_checks;             /* replaces any file, else an earlier export; writes nothing */
    const char *between; bool headings;  /* of text: export_text_begins */
    bool with_thinking;                  /* the text of a chat begins with its thoughts */
    const char *model;                   /* of openai-batch: the name of the model; NULL: its path */
};
/* jobs; thinking: of those exported the ones without an answer after their thoughts, which are left out */
struct export_counts { size_t exported, left_out, thinking; };

/* What stands before the text of a job: after another text `between` (NULL: with headings an empty line;
 * before a chapter that continues that text, as many newlines as an empty line needs; else nothing), and the
 * heading, "# NAME" and an empty line. text: NULL if it is not printed as text. free(*begins). */
struct text_before { size_t n; int64_t job; size_t newlines; };      /* texts; the last one; its last bytes */
int export_text_begins(char **begins, struct text_before *before, const struct job *job, const char *text,
                       size_t n, const char *between, bool headings, struct err *e);
/* The text before has n more bytes. */
void export_text_grows(struct text_before *before, const char *text, size_t n);
struct json_writer;
/* Members of OpenAI's answers, also of a server. Of a choice what it says, the message of a chat or its part
 * in an event (delta), else a text; why it ended; and the usage of an answer. */
struct said {
    bool chat, delta, begins;            /* begins: the first part */
    const char *text; size_t n;          /* NULL: none in this part */
    const char *thought; size_t n_thought;
};
void export_put_said(struct json_writer *w, const struct said *s);
void export_put_end(struct json_writer *w, const struct job *j, const struct job_params *p);
void export_put_usage(struct json_writer *w, size_t prompt, size_t made);
/* With several sources jsonl lines have the path of the database under "db", and ids of openai-batch begin
 * with the number of the source. */
int export_jobs(const struct export_options *o, const struct export_source *v, size_t n,
                struct export_counts *c, struct err *e);
