/* Answers as server-sent events. */
#pragma once
#include "runs/serve/waiting.h"

/* The answer of a request as events. */
enum MHD_Result answer_stream(struct call *c, struct waiting *w);
