/* What the twins of the table share before they differ. */
#pragma once
#include <math.h>
#include <string.h>

#include "kernels/ops.h"

#define MIN_(a, b) ((a) < (b) ? (a) : (b))

enum { TILE_ROWS_MAX = 8 };      /* rows of the largest tile of any twin */

extern const struct ops ops_generic, ops_avx2, ops_avx512;
