/* GET /: a page that shows the queue, and a text as it grows. It works without JavaScript: then a reload
 * shows what is new. */
#pragma once
#include "runs/serve/http.h"

enum MHD_Result answer_page(struct call *c);
