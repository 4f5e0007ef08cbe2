/* Probes of the machine: the two limits of a roofline (bytes a second, multiply-adds a second), and the
 * cost of the work outside products (exp2, maximum, conversion to bf16).
 *
 * Clocks and neighbours change within seconds, so a probe takes some milliseconds and runs between the
 * passes that it is compared with. Loops branch on no data. Each uses the widest form of the instruction
 * that it is named after. */
#pragma once
#include "kernels/ops.h"
#include "kernels/pool.h"
#include "src/base/base.h"

/* Multiply-adds. BF16 and I16 make two products for each 32-bit lane; I16_YMM needs an extra addition.
 * PLAIN is what the compiler makes of a*b + c in C. */
enum probe_mul { PROBE_MUL_PLAIN, PROBE_FMA_YMM, PROBE_FMA_ZMM, PROBE_BF16_ZMM, PROBE_I16_YMM,
                 PROBE_I16_ZMM, PROBE_MULS };
const char *probe_mul_name(enum probe_mul k);
bool probe_mul_supported(enum probe_mul k);
/* FLOP/s (2 per multiply-add) over about `seconds`; p == NULL: the calling thread alone. */
double probe_mul_peak(enum probe_mul k, struct pool *p, double seconds);

/* Reading. A piece begins on a 64-byte boundary and its size is a multiple of 64 bytes. Threads get pieces in
 * order, so the pieces of one thread are neighbours in the list (probe_cut). */
struct probe_piece { const char *p; size_t bytes; };
struct probe_pieces { struct probe_piece *v; size_t n; };
enum probe_read { PROBE_READ_PLAIN, PROBE_READ_PREFETCH, PROBE_READ_4_STREAMS, PROBE_READS };
const char *probe_read_name(enum probe_read how);
/* Bytes/s of whole sweeps over all pieces, repeated for about `seconds` (at least once), without a warm-up.
 */
double probe_read_rate(const struct probe_pieces *m, enum probe_read how, struct pool *p, double seconds);
/* The fastest way to read these pieces now. As a side effect, what fits the caches is in them afterwards. */
enum probe_read probe_read_best(const struct probe_pieces *m, struct pool *p, double seconds);
/* Cuts segments into small pieces; every thread gets its share of each segment. free(m->v). */
int probe_cut(struct probe_pieces *m, const struct probe_pieces *segments, size_t n_threads, struct err *e);

/* Seconds per element of this twin's own operations on one thread, operands in the first cache level. exp2:
 * what a softmax takes beside its maximum and the conversion of its result. */
struct probe_costs { double exp2, max, convert; };
struct probe_costs probe_costs(const struct ops *o, double seconds);

/* Seconds of an empty pool_run with one item per thread: the fixed price of every step of a pass. */
double probe_dispatch(struct pool *p, double seconds);
