/* /v1/files: uploads for batches, and what batches wrote. Files lie in the folder STORE.files (0700). A file
 * is there, with its name and purpose in ID.json beside it, before its upload is answered. Ids are made here,
 * and a path is only made of an id that has the form of one. */
#pragma once
#include "runs/serve/http.h"

answer_fn answer_upload;
answer_fn answer_files;            /* ?limit, ?after, ?purpose */
answer_fn answer_file;
answer_fn answer_content;
answer_fn answer_delete_file;
/* Parts of an upload, for struct route. */
void take_upload(struct call *c, const char *bytes, size_t n);
void drop_upload(struct call *c);
