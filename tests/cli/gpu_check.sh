#!/bin/bash
# scripts/gpu-check is skipped without a GPU. With LONG=1 its checks pass on the emulated GPU, and one failing
# check fails it.
. tests/cli/lib.inc
B=$(dirname "$LONGHAND")
make_tests()
{
    for t in test_device test_device_rows test_device_sample test_device_r1 test_forward test_graphs \
        test_snapshot test_train_gpu; do
        [ -x "$B/$t" ] || return 1
    done
}
if [ ! -f "$B/longhand" ] || ! make_tests; then
    skip gpu_check "the test programs are not built"; exit $failed
fi
CUDA_VISIBLE_DEVICES= scripts/gpu-check "$B" >"$TMP/out" 2>&1; r=$?
[ $r = 0 ] && tail -1 "$TMP/out" | grep -q '^skipped: .' && grep -q '^gpu  *skipped ' "$TMP/out" &&
    ! grep -q ' ok ' "$TMP/out"
result gpu_check_is_skipped_without_a_gpu $? "exit $r: $(tail -2 "$TMP/out")"
scripts/gpu-check --nonsense >"$TMP/out" 2>"$TMP/err"; r=$?; [ $r = 2 ] && [ "$(wc -l <"$TMP/err")" = 1 ]
result gpu_check_unknown_option $? "exit $r"
if [ -z "${LONG:-}" ]; then skip gpu_check_emulated "LONG=1 runs it"; exit $failed; fi
scripts/gpu-check --emulated "$B" >"$TMP/out" 2>&1; r=$?
[ $r = 0 ] && tail -1 "$TMP/out" | grep -q '^ok: 13 checks, 1 skipped$' &&
    grep -q '^tiny random  *rows ' "$TMP/out"
result gpu_check_emulated $? "exit $r: $(tail -3 "$TMP/out")"
mkdir "$TMP/broken"
for t in longhand longhand-test labbench test_device_rows test_device_sample test_device_r1 test_forward \
    test_graphs test_snapshot test_train_gpu; do
    ln -s "$(realpath "$B/$t")" "$TMP/broken/$t"
done
printf '#!/bin/sh\necho ok one\necho FAIL two\nexit 1\n' >"$TMP/broken/test_device"
chmod +x "$TMP/broken/test_device"
scripts/gpu-check --emulated "$TMP/broken" >"$TMP/out" 2>&1; r=$?
[ $r = 1 ] && tail -1 "$TMP/out" | grep -q '^FAILED: 1 of ' && grep -q '^products.*FAILED *1 of 2' "$TMP/out"
result gpu_check_fails_when_a_check_does $? "exit $r: $(tail -3 "$TMP/out")"
exit $failed
