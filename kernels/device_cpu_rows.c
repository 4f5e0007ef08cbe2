/* Work on the rows of a pass, shared out over the threads of the device `cpu`. */
#include "kernels/device_cpu.h"
#include "kernels/pool.h"
#include "src/base/base.h"

enum { ROWS_ALONE = 8,               /* with fewer rows the small steps do not wake threads */
       ROWS_PIECE = 4 };

struct row_job { const struct cpu *c; row_step *step; const void *args; size_t n; };

static void row_item(void *ctx, size_t i, size_t thread)
{
    const struct row_job *j = ctx;
    (void)thread;
    j->step(j->c, j->args, i * ROWS_PIECE, MIN((i + 1) * ROWS_PIECE, j->n));
}

void cpu_each_row(const struct cpu *c, row_step *step, const void *args, size_t n)
{
    struct row_job j = { c, step, args, n };
    if (n < ROWS_ALONE)
        step(c, args, 0, n);
    else
        pool_run(c->pool, (n + ROWS_PIECE - 1) / ROWS_PIECE, row_item, &j);
}

void cpu_note(const struct cpu *c, size_t place, size_t row)
{
    const uint64_t word = (uint64_t)place << 32 | row;
    _Atomic uint64_t *bad = (_Atomic uint64_t *)&c->bad;
    for (uint64_t was = atomic_load(bad); word < was && !atomic_compare_exchange_weak(bad, &was, word);)
        ;
}
