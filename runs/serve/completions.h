/* POST /v1/completions and /v1/chat/completions: a request becomes jobs, and the answer is read from the
 * store, at once or as a stream of events. */
#pragma once
#include "runs/serve/http.h"

enum MHD_Result answer_completions(struct call *c);
enum MHD_Result answer_chat(struct call *c);
