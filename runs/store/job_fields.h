/* The fields of a job that the store keeps, a row each: how users name a field, how its value is read from
 * a line, and the column that has it. A field passes through these loops:
 *
 *     lines of a batch, rows of CSV, bodies     src/request/batch_line.c, into struct job_spec
 *     the store                                 store_jobs.c writes the columns and reads them
 *     show, export                              runs/report
 *
 * X(letter, member, column, name, where, reader, help)
 *     letter, member   the type and the place (struct db_column) in struct job_spec, and in the struct that
 *                      has the field when it is read: struct job or struct job_input
 *     name, where      in lines; NULL and 0: lines have no such field, or have it by an option: then
 *                      options_table.c has its name
 *     reader           read_READER of batch_line.c takes its value
 *     help             of `longhand help batch` */
#pragma once

enum {
    FIELD_COMPLETIONS = 1, FIELD_CHAT = 2, FIELD_BODY = 3,   /* in the body of such a request */
    FIELD_BESIDE = 4,                /* beside the body; a short line has such fields, too */
    FIELD_TEXT = 8,                  /* a cell of CSV is a text, whatever it looks like */
    FIELD_WHOLE = 16,                /* a whole number, or an array of such */
    FIELD_READ = 32,                 /* batch_line_field: neither refused nor ignored */
};

/* In the table `job`. */
#define JOB_FIELDS(X) \
    X('n', line, "line", NULL, 0, none, NULL) \
    X('t', custom_id, "custom_id", "custom_id", FIELD_BESIDE | FIELD_TEXT, custom_id, \
      "name of the request: @BATCH/custom_id") \
    X('d', sample, "sample", NULL, 0, none, NULL) \
    X('t', model, "model", "model", FIELD_BODY, text, "--model of this line") \
    X('t', fingerprint, "fingerprint", NULL, 0, none, NULL) \
    X('z', seed, "seed", NULL, 0, none, NULL) \
    X('z', wanted, "wanted", NULL, 0, none, NULL) \
    X('z', prompt_tokens, "prompt_tokens", NULL, 0, none, NULL) \
    X('d', priority, "priority", NULL, 0, none, NULL)

/* In the table `input`. The prompt has a length beside it, so the store writes and reads it by itself. */
#define PROMPT_FIELD(X) \
    X('s', prompt, "prompt", "prompt", FIELD_COMPLETIONS | FIELD_TEXT | FIELD_WHOLE, prompt, \
      "a text, or a list of token ids")
#define INPUT_FIELDS(X) \
    X('s', chat, "chat", "messages", FIELD_CHAT, messages, "a chat: role and content of each message") \
    X('s', parameters, "parameters", NULL, 0, none, NULL) \
    X('s', metadata, "metadata", "metadata", FIELD_BODY | FIELD_BESIDE, metadata, \
      "any JSON; exports and reports have it")

/* Texts without a column: members of `parameters`, written only where a line has them. Their values lie in
 * struct job_params; a line, show and export need nothing but the row. */
#define KEPT_FIELDS(X) \
    /* X(name, where, help) */

#define KEPT_NUMBER(name, ...) KEPT_##name,
enum { KEPT_FIELDS(KEPT_NUMBER) N_KEPT };
