/* What `plan` knows of the drafters, and what passes cost by the shape of a model (struct pass_cost of
 * src/decode/cost_model.h). Attention costs 4 operations for each key, query head and head dimension. */
#pragma once
#include "src/decode/draft_settings.h"
#include "src/decode/planner.h"
#include "src/model/config.h"

struct forecast {
    const char *name;                /* in `plan` */
    size_t passes; bool fixed;       /* draft passes of a round: at most, or always so many */
    /* what a round yields where it was published; tokens 0: it depends on the text */
    double tokens; const char *where;
    /* rows of a draft pass for each text; 0: the first reads the root, each further one the rows that the one
     * before added */
    double rows;
    /* rows that draft pass i adds to the verification pass; one each after the last of `widths` */
    size_t widths, width[PASSES_MAX];
    /* the drafters and the fixed tree of the rounds that are measured; n_width 0: none are */
    struct { unsigned drafters; long draft_passes; size_t n_width, width[TREE_WIDTHS_MAX]; } tree;
};
/* The forecast of a drafter. NULL: it has none. */
const struct forecast *forecast_of(enum drafter d);

/* Bytes of a weight, of a weight of drafts, and of a value of the cache. */
struct model_bytes { double weight, draft_weight, kv; };
/* A pass of the whole model over `keys` cached positions, LM head included. */
struct pass_cost forecast_pass(const struct config *c, const struct model_bytes *b, double keys);
/* The mean draft pass of a drafter that has a forecast, for the model `c`. small: the model that drafts. */
struct pass_cost forecast_draft(enum drafter d, const struct config *c, const struct config *small,
                                const struct model_bytes *b, double keys);
