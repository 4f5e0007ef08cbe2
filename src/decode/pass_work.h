/* The work of passes, in bytes and operations, from the shape of a model: what the throughput model
 * (throughput.h) and the forecasts of drafters (struct drafter_forecast) are made of. Attention costs 4
 * operations for each key, query head and head dimension. */
#pragma once
#include "src/decode/draft_settings.h"
#include "src/decode/planner.h"
#include "src/model/config.h"

/* The work of a pass. flops: operations of one row; kv_bytes: read of the cache of one text. weight_bytes:
 * read by every pass. expert_bytes: of all experts, of which a row reads the part expert_share; rows choose
 * independently, so that n rows read the part 1 - (1 - expert_share)^n. */
struct pass_work { double weight_bytes, kv_bytes, flops, expert_bytes, expert_share; };

/* What a drafter does in a round. */
struct draft_work {
    struct pass_work pass;           /* of the mean draft pass */
    /* of a draft pass, for each text; 0: the first reads the root, each further one the rows that the one
     * before added */
    double rows;
    /* rows that draft pass i adds to the verification pass; one each after the last of `widths` */
    size_t widths, width[PASSES_MAX];
    size_t passes;                   /* the most */
    bool fixed;                      /* always `passes` */
    double tokens[PASSES_MAX + 1];   /* of a round with so many draft passes, from 0 on */
};
/* Bytes of a weight, of a weight of drafts, and of a value of the cache. */
struct model_bytes { double weight, draft_weight, kv; };

/* What `plan` predicts of a drafter with. */
struct drafter_forecast {
    const char *name;                /* NULL: the drafter's */
    /* what a round yields where it was published; tokens 0: it depends on the text */
    double tokens; size_t passes; const char *where;
    /* the drafters and the fixed tree of the rounds that are measured; n_width 0: none are */
    struct { unsigned drafters; long draft_passes; size_t n_width, width[TREE_WIDTHS_MAX]; } tree;
    bool fixed;                      /* a round always makes `passes` draft passes */
    /* Fills in the mean draft pass and the rows that it adds. c: the model; small: the model that drafts. */
    void (*work)(struct draft_work *w, const struct config *c, const struct config *small,
                 const struct model_bytes *b, double keys);
};

/* A pass of one row over `layers` mean layers and the LM head; weights and values of the cache have `byte`
 * and `kv_byte` bytes. */
struct pass_work work_of_layers(const struct config *c, double layers, double byte, double kv_byte,
                                double keys);
/* Values of keys and values of a position in the mean layer. */
double work_layer_kv(const struct config *c);
/* Work that only a part of the passes has. */
struct pass_work work_part(struct pass_work w, double part);
/* Adds n weights, read in a pass of the drafter, times the part of its passes that read them. */
void work_add_weights(struct pass_work *w, double n, double byte, double part);
/* A pass of the whole model over `keys` cached positions, LM head included. */
struct pass_work throughput_model(const struct config *c, const struct model_bytes *b, double keys);
