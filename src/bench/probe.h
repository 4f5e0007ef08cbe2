/* What this machine can do, measured: the two limits of a roofline (bytes a second, multiply-adds a second)
 * and the cost of what a product does not contain (exp2, maximum, conversion to bf16).
 *
 * A probe takes some milliseconds and is meant to be run between the things it is compared with: clocks and
 * neighbours change within seconds. Loops hold no branch on data, and use the widest form each name says. */
#pragma once
#include "kernels/pool.h"
#include "src/base/base.h"

/* Multiply-adds. bf16: two products per lane and instruction. PLAIN: what the compiler makes of a*b + c in C. I16: whole numbers, two products
 * per lane; ymm takes an addition besides. */
enum probe_mul { PROBE_MUL_PLAIN, PROBE_FMA_YMM, PROBE_FMA_ZMM, PROBE_BF16_YMM, PROBE_BF16_ZMM, PROBE_I16_YMM,
                 PROBE_I16_ZMM, PROBE_MULS };
const char *probe_mul_name(enum probe_mul k);
bool probe_mul_supported(enum probe_mul k);
/* FLOP/s (2 per multiply-add) over about `seconds`; p == NULL: the calling thread alone. */
double probe_mul_peak(enum probe_mul k, struct pool *p, double seconds);

/* Reading. A piece begins on a 64-byte boundary and has a multiple of 64 bytes; pieces are dealt to the threads
 * in order, so pieces of one thread should stand together (probe_cut). */
struct probe_piece { const char *p; size_t bytes; };
enum probe_read { PROBE_READ_PLAIN, PROBE_READ_PREFETCH, PROBE_READ_4_STREAMS, PROBE_READS };
const char *probe_read_name(enum probe_read how);
/* Bytes/s of sweeps over all pieces, one after the other for about `seconds` (at least one), without a warm-up. */
double probe_read_rate(const struct probe_piece *piece, size_t n, enum probe_read how, struct pool *p,
                       double seconds);
/* The fastest way to read these pieces now; it also brings into the caches what stays there. */
enum probe_read probe_read_best(const struct probe_piece *piece, size_t n, struct pool *p, double seconds);
/* Cut n_seg segments into pieces of at most PROBE_PIECE_MAX bytes, every thread getting its share of each segment. Returns
 * the number of pieces; out == NULL only counts. */
enum { PROBE_PIECE_MAX = 512 << 10 };
size_t probe_cut(struct probe_piece *out, const struct probe_piece *seg, size_t n_seg, size_t n_threads);

/* Seconds per element on one thread, operands in the first cache, with the vectors of an instruction set. */
enum probe_isa { PROBE_ISA_PLAIN, PROBE_ISA_AVX2, PROBE_ISA_AVX512 };
struct probe_costs { double exp2, max, convert; };
struct probe_costs probe_costs(enum probe_isa isa, double seconds);

/* Seconds of an empty pool_run with one item per thread: what every step of a pass pays. */
double probe_dispatch(struct pool *p, double seconds);
