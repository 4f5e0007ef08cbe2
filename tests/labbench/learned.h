/* What a decoder has learned about its machine and its text. `longhand bench` runs several settings in turns
 * over one text; before each turn a setting gets back what it had learned itself. */
#pragma once
#include "src/decode/decode.h"

struct learned {
    struct planner planner;
    struct cost_model costs;
    struct calibration calibration;
    size_t current_cache;
};

void learned_save(struct learned *x, const struct decoder *d);
void learned_restore(struct decoder *d, const struct learned *x);
/* `writer` wrote a stretch of the text that x has not seen. x takes the costs of passes from it, which are
 * the machine's, and trusts its older observations of its own drafts less. */
void learned_catch_up(struct learned *x, const struct learned *writer);
