/* The list of twins and the choice among them. A twin is one build of the table of operations (ops.h) for one
 * instruction set: generic.c, avx2.c and avx512.c. All twins compute the same bits, so the choice changes
 * speed alone. Start reading at ops_for_cpu. */
#include <stdlib.h>

#include "kernels/twins.h"

const struct ops *const ops_all[] = {
    &ops_generic,
#if defined(__x86_64__)
    &ops_avx2,
    &ops_avx512,
#endif
    NULL
};

const struct ops *ops_for_cpu(const char **why)
{
    const char *wanted = getenv("LONGHAND_ISA");
    const struct ops *best = NULL;
    *why = NULL;
    for (size_t i = 0; ops_all[i]; i++) {
        if (wanted && *wanted) {
            if (strcmp(wanted, ops_all[i]->name) == 0) {
                if (ops_all[i]->supported())
                    return ops_all[i];
                *why = "this CPU lacks its instructions";
                return NULL;
            }
        } else if (ops_all[i]->supported()) {
            best = ops_all[i];
        }
    }
    if (!best)
        *why = "no such twin in this build (" TWIN_NAMES(", ") ")";
    return best;
}
