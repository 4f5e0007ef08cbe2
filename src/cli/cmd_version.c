/* longhand version, help. Start at cmd_version and cmd_help. */
#include <stdlib.h>
#include <string.h>

#include "kernels/device.h"
#include "src/base/output.h"
#include "src/base/version.h"
#include "src/cli/verbs.h"
#include "src/request/batch_line.h"

int cmd_version(const struct options *o, const char *commit, struct err *e)
{
    char images[128];
    const char *why = "";
    const struct ops *chosen = ops_for_cpu(&why);
    (void)o;
    if (!chosen)
        return err_set(e, ERR_INPUT, "LONGHAND_ISA '%s': %s", getenv("LONGHAND_ISA"), why);
    printf("longhand %s\ncommit: %s\nnumerics: cpu-%d\ntwins:", LONGHAND_VERSION, commit, NUMERICS_VERSION);
    for (size_t i = 0; ops_all[i]; i++)
        printf(" %s%s", ops_all[i]->name, ops_all[i]->supported() ? "" : " (not on this CPU)");
    device_cuda_images(images, sizeof images);
    printf("\nchosen: %s\ncuda: %s\n", chosen->name, *images ? images : "not built");
    if (*images) {
        char no[256] = "";
        const size_t n = device_cuda_count(no, sizeof no);
        if (n)
            printf("gpus: %zu\n", n);
        else
            printf("gpus: none, --device auto is the CPU (%s)\n", no);
    }
    return stdout_finish(e);
}

int cmd_help(const struct options *o, struct err *e)
{
    const struct verb *v = NULL;
    const bool batch = o->n_args && strcmp(o->arg[0], "batch") == 0;
    if (o->n_args && !batch && !(v = options_verb(o->arg[0])))
        return err_set(e, ERR_INPUT, "help: unknown verb '%s'; see longhand help", o->arg[0]);
    if ((o->n_args > 0) + o->all + o->man + options_given(o, "completion") > 1)
        return err_set(e, ERR_INPUT,
                       "help: VERB, --all, --man and --completion: only one of them is allowed");
    if (batch)
        batch_line_help(stdout);
    else if (o->man)
        options_man(stdout);
    else if (options_given(o, "completion"))
        options_completion(stdout, o->completion);
    else
        options_help(stdout, v, o->all);
    return stdout_finish(e);
}
