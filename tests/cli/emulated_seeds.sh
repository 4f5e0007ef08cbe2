#!/bin/bash
# LONG=1: the tests of the kernels under other orders of threads and blocks on the emulated GPU. `make test`
# runs one order.
. tests/cli/lib.inc
B=$(dirname "$LONGHAND")
if [ -z "${LONG:-}" ]; then skip emulated_seeds "LONG=1 runs it"; exit $failed; fi
for t in test_device test_device_every test_device_rows test_device_sample test_device_r1 test_device_shapes \
    test_graphs; do
    bad=
    for seed in $(seq 1 12); do
        LONGHAND_EMULATED_SEED=$seed "$B/$t" >"$TMP/log" 2>&1 || bad="$bad $seed"
    done
    [ -z "$bad" ]; result "emulated_seeds_$t" $? "seeds$bad: $(tail -3 "$TMP/log")"
done
exit $failed
