/* The folder of uploads and batches, STORE.files (0700), and their ids. */
#pragma once
#include "runs/serve/http.h"

enum { FILE_ID_BYTES = 32 };
#define FILE_PREFIX "file-"
#define BATCH_PREFIX "batch_"
#define PIECE_END ".part"
#define RESULTS_PREFIX "part-"
#define OUTPUT_END "-output"
#define ERRORS_END "-errors"

/* A new id. */
int  new_id(char id[FILE_ID_BYTES], const char *prefix);
/* Whether `id` is `prefix` and 16 hexadecimal digits, and then `end`. */
bool id_is(const char *id, const char *prefix, const char *end);
/* The path of a file of the folder: id, then `end`. The folder is made. */
int  file_path(char path[PATH_BYTES], const struct server *sv, const char *id, const char *end,
               struct err *e);
/* What ID.json says: an object. free(*text) if it was read. */
bool facts_read(const struct server *sv, const char *id, char **text, struct json *facts);
/* Writes it, durably. */
int  facts_write(const struct server *sv, const char *id, const struct row *rows, struct err *e);
/* Adds the ids of the files PREFIX*.json or, of batches, those of their results; free(l->v). The newest one
 * is the first. */
struct file_ids { char (*v)[FILE_ID_BYTES]; size_t n; };
int  list_ids(struct file_ids *l, const struct server *sv, const char *prefix, bool results, struct err *e);
/* Deletes the pieces of files that a killed server left: those that nobody has written to for a while. */
void folder_clean(const struct server *sv);
/* Answers with the object that `put` writes of c->id, or says that there is no such `what`. */
typedef bool put_fn(struct call *c, const char *id);
int  answer_one(struct call *c, const char *what, put_fn *put, struct err *e);
/* Answers with a list of these ids, the newest first, by the arguments `limit` and `after`. `put` writes one:
 * false if it is not wanted. */
int  answer_ids(struct call *c, struct file_ids *l, put_fn *put, struct err *e);
