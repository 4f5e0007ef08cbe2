/* A batch whose name is known: its stored jobs stay as they are. */
#pragma once
#include "src/request/batch.h"
#include "src/request/same_model.h"

/* Jobs that have the model of --model at another place. */
struct batch_moved { struct same_model same; int64_t *ids; size_t n; };
/* Refuses options of the command line that decide texts and that stored jobs of this name do not have. */
int batch_check_stored(const struct batch *b, struct store *s, struct batch_moved *m, struct err *e);
