/* POST /v1/completions and /v1/chat/completions: a request becomes jobs, and the answer is read from the
 * store, at once or as a stream of events. */
#pragma once
#include "runs/serve/http.h"

answer_fn answer_completions;
answer_fn answer_chat;

/* Ends a request, as struct route's drop: no job stays that nobody waits for, unless it has a key. */
void drop_waiting(struct call *c);

/* The body of a request for a text. */
struct body { const char *text; size_t n; bool chat; };
/* Queues its text as `submit --name` does: a job that nobody waits for. */
int queue_body(struct server *sv, const struct body *body, const char *name, int64_t *id, struct err *e);
/* The tokens of its prompt; free(*ids). */
int body_tokens(struct server *sv, const struct body *body, int32_t **ids, size_t *n, struct err *e);
