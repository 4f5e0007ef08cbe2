/* The fields of a job, a row each: how users name a field, how its value is read from a line, and the column
 * that has it. Loops over these lists are
 *
 *     line_fields.c    lines of a batch, rows of CSV and bodies of requests, into struct job_spec; help batch
 *     store_jobs.c     the statements that write and read the columns
 *     job_params.c, job_sheet.c, export.c     the fields without a column (KEPT_FIELDS)
 *
 * What show, list and export say of the other fields are rows of job_sheet.c and export.c.
 *
 * X(letter, member, name, where, reader, help)
 *     letter     the type of the value, as in struct db_column; a text is 't' in a list that owns its strings
 *                (struct job), and 's' where it is malloc'ed (struct job_input)
 *     member     the name of the column, of the place in struct job_spec, and of that in the struct that has
 *                the field when it is read
 *     name       in lines, where FIELD_* say; NULL: no line has the field, or an option stands for it, and
 *                options_table.c has its name
 *     reader     read_READER of line_fields.c takes the value
 *     help       of `longhand help batch` */
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
    X('n', line, NULL, 0, none, NULL) \
    X('t', custom_id, "custom_id", FIELD_BESIDE | FIELD_TEXT, custom_id, \
      "name of the request: @BATCH/custom_id") \
    X('d', sample, NULL, 0, none, NULL) \
    X('t', model, "model", FIELD_BODY, text, "the model, if the command line has no --model") \
    X('t', fingerprint, NULL, 0, none, NULL) \
    X('z', seed, NULL, 0, none, NULL) \
    X('z', wanted, NULL, 0, none, NULL) \
    X('z', prompt_tokens, NULL, 0, none, NULL) \
    X('d', priority, NULL, 0, none, NULL)

/* In the table `input`. The prompt has a length beside it, so the store writes and reads it by itself. */
#define PROMPT_FIELD(X) \
    X('s', prompt, "prompt", FIELD_COMPLETIONS | FIELD_TEXT | FIELD_WHOLE, input, \
      "a text, or a list of token ids")
#define INPUT_FIELDS(X) \
    X('s', chat, "messages", FIELD_CHAT, input, "a chat: role and content of each message") \
    X('s', parameters, NULL, 0, none, NULL) \
    X('s', metadata, "metadata", FIELD_BODY | FIELD_BESIDE, metadata, \
      "any JSON; exports and reports have it")

/* X(name, where, help): texts without a column. They are members of `parameters`, written only where a line
 * has them, and lie in struct job_params. The names differ from those of the other members and of the fields
 * of an export. */
#define KEPT_FIELDS(X) \
    /* rows, each with a backslash at its end */

#define KEPT_NUMBER(name, ...) KEPT_##name,
enum { KEPT_FIELDS(KEPT_NUMBER) N_KEPT };
