#!/bin/bash
# scripts/run-tests.sh: which programs it runs, and that no failure goes unnoticed. Every case runs it in a
# folder of its own with small programs in the place of the tests.
. tests/cli/lib.inc
runner=$(realpath scripts/run-tests.sh)
unset LONG ONLY KEEP JOBS LIMIT TEST_SHARD TEST_ONLY CPUS SLOT

# A folder with two scripts that pass, a C program of two shards, and a program of IN_C.
begin()
{
    rm -rf "$TMP/tree"
    mkdir -p "$TMP/tree/tests/cli" "$TMP/tree/build"
    cd "$TMP/tree" || exit 1
    mkdir -p tests/base; touch tests/base/test_shards.c
    echo 'test_shards 3 2 check' >tests/plan.txt
    echo 'echo "ok script"' | tee tests/top.sh >tests/cli/good.sh
    printf '#!/bin/bash\necho "ok part_${TEST_SHARD/\\//_of_}$1"\n' >build/test_shards
    printf '#!/bin/bash\necho "ok in_c$1"\n' >build/in_c_one
    touch build/longhand
    chmod +x build/*
}
run() { JOBS=2 IN_C=in_c_one timeout 60 bash "$runner" build "$@" >"$TMP/log" 2>&1; }

# NAME PATTERN: the run fails, and a line FAIL matches. The failure is in tests/cli/bad.sh or another program.
fails()
{
    run; local rc=$?
    [ $rc = 1 ] && grep -qE "^FAIL $2" "$TMP/log"
    result "$1" $? "exit $rc: $(tail -4 "$TMP/log" | tr '\n' '|')"
}

begin; run; r=$?
[ $r = 0 ] && grep -qx '5 passed, 0 failed, 0 skipped' "$TMP/log" && grep -q '^test_shards 1/2' "$TMP/log" &&
    grep -q '^test_shards 2/2' "$TMP/log"
result every_program_runs_once $? "exit $r: $(cat "$TMP/log")"
KEEP=$TMP/kept LONG=1 run; r=$?
[ $r = 0 ] && [ "$(cat "$TMP"/kept/*.log | sort | tr '\n' ' ')" = \
    'ok in_c--long ok part_1_of_2--long ok part_2_of_2--long ok script ok script ' ]
result every_program_runs_once_in_its_long_form $? "exit $r: $(cat "$TMP"/kept/*.log)"
begin; echo 'tests/cli/good.sh 9 1' >>tests/plan.txt; run check; r=$?
[ $r = 0 ] && grep -qx '4 passed, 0 failed, 0 skipped' "$TMP/log"
result check_leaves_out_what_the_plan_says $? "exit $r: $(cat "$TMP/log")"

begin; echo 'echo "ok a"; echo "FAIL b"; exit 0' >tests/cli/bad.sh; fails a_fail_line_fails_the_run b
begin; echo 'echo "ok a"; exit 3' >tests/cli/bad.sh
fails an_exit_status_fails_the_run 'tests/cli/bad.sh \(exit status 3\)'
begin; echo 'echo "ok a"; kill -SEGV $$' >tests/cli/bad.sh
fails a_crash_fails_the_run 'tests/cli/bad.sh \(exit status 139\)'
begin; rm build/test_shards; fails a_missing_program_fails_the_run 'test_shards \(exit status 12[67]\)'
begin; rm build/in_c_one; fails a_missing_program_of_a_twin_fails_the_run 'in_c_one \(exit status 12[67]\)'
begin; echo 'echo "ok a"; echo "==1==ERROR: AddressSanitizer: x"' >tests/cli/bad.sh
fails a_printed_sanitizer_finding_fails_the_run 'tests/cli/bad.sh \(sanitizer finding\)'
begin; echo 'echo "ok a"; echo x >"${ASAN_OPTIONS##*log_path=}.1"' >tests/cli/bad.sh
fails a_logged_sanitizer_finding_fails_the_run 'tests/cli/bad.sh \(sanitizer finding\)'
begin; echo 'echo "ok a"; exec sleep 50' >tests/cli/bad.sh; export LIMIT=1
fails a_hanging_program_fails_the_run 'tests/cli/bad.sh \(it did not end within 1 s\)'
unset LIMIT
# The runner's own process for a program is killed, for example for lack of memory.
begin; echo 'echo "ok a"; kill -9 $(cut -d" " -f4 /proc/$PPID/stat) $PPID; sleep 1' >tests/cli/bad.sh
fails a_lost_program_fails_the_run 'tests/cli/bad.sh all \(it was not run to its end\)'
rm -rf "$TMP/tree"/*; mkdir -p build tests/cli; touch build/longhand tests/plan.txt; chmod +x build/longhand
IN_C= bash "$runner" build >"$TMP/log" 2>&1; [ $? = 1 ]; result no_test_at_all_fails_the_run $? ""
cd / || exit 1
exit $failed
