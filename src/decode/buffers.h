/* The buffers of rounds: the workspace of a pass and the logits of its rows. One set serves all decoders of a
 * model, in one round or in turn, and so does the cost model of its passes. */
#pragma once
#include "src/decode/planner.h"
#include "src/model/model.h"

struct round_buffers {               /* {0} is closed */
    const struct model *model;       /* borrowed */
    struct workspace *work;
    size_t n_max, pass_rows, verify_rows;    /* the longest text; rows of any pass; of a verification pass */
    /* the device's [verify_rows][vocab]: of draft passes, then of the verification pass */
    float *logits;
    size_t logits_bytes;
    struct cost_model costs;
    /* of the last pass of a prefill: seconds of a row, and the depth at which it ended; 0: none was made */
    double row_seconds; size_t row_depth;
};

/* pass_rows: the most rows of any pass, of which verify_rows may have logits. n_max: the longest text. */
int round_buffers_open(struct round_buffers *b, const struct model *m, size_t pass_rows, size_t verify_rows,
                       size_t n_max, struct err *e);
void round_buffers_close(struct round_buffers *b);
