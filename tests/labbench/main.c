/* labbench: the program. It takes the options of `longhand bench`; lab.h says what it measures. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/labbench/lab.h"

static int run(const struct options *o, struct err *e)
{
    if (bench_spec_wanted(o->bench_points, lab_points))
        return bench_spec(o, lab_points, e);
    if (bench_spec_wanted(o->bench_points, spec_points))
        return bench_spec(o, spec_points, e);
    if (strcmp(o->device, "auto") && strcmp(o->device, "cpu"))
        return lab_device(o, e);
    return err_set(e, ERR_INPUT,
                   "give --device cuda[:N] or --points spec, spec-short, spec-copy, spec-windows or "
                   "spec-best; `longhand bench` measures the rest");
}

int main(int argc, char **argv)
{
    struct options o;
    struct err e = { 0 };
    char **args = calloc((size_t)argc + 2, sizeof *args);
    if (!args)
        return 1;
    args[0] = argv[0];
    args[1] = (char *)"bench";
    memcpy(args + 2, argv + 1, (size_t)(argc - 1) * sizeof *args);
    signal(SIGPIPE, SIG_IGN);
    int rc = options_parse(&o, argc + 1, args, &e);
    if (rc == 0) {
        rc = run(&o, &e);
        options_free(&o);
    }
    if (rc)
        fprintf(stderr, "labbench: %s\n", e.msg);
    free(args);
    return rc ? e.code : 0;
}
