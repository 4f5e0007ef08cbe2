#!/bin/bash
# Run every test program of a build, those in IN_C, then the tests of the command line. Each prints lines "ok NAME", "FAIL NAME" or "skip NAME
# (why)"; a program that ends otherwise than with 0, without such a FAIL, is one. The last lines: the twins this machine
# could not run, and "N passed, N failed, N skipped".
build=$1
log=$(mktemp)
found=$(mktemp -d)                    # what sanitizers say, also of programs whose output a test does not look at
trap 'rm -rf "$log" "$found"' EXIT
export LONGHAND=$build/longhand
[ -x "$LONGHAND" ] || { echo "FAIL run-tests ($LONGHAND is not there)"; exit 1; }

run()
{
    local name=$1 from said
    shift
    said=$(grep -c 'Sanitizer:\|runtime error:' "$log")
    from=$(grep -c '^FAIL' "$log")
    echo "== $name"
    "$@" 2>&1 | tee -a "$log"
    local rc=${PIPESTATUS[0]}
    if [ "$rc" != 0 ] && [ "$(grep -c '^FAIL' "$log")" = "$from" ]; then
        echo "FAIL $name (exit code $rc)" | tee -a "$log"
    fi
    if [ -n "$(ls -A "$found")" ] || [ "$(grep -c 'Sanitizer:\|runtime error:' "$log")" != "$said" ]; then
        cat "$found"/* 2>/dev/null
        rm -f "$found"/*
        echo "FAIL $name (a sanitizer's finding)" | tee -a "$log"
    fi
}

for t in tests/test_*.c; do
    name=$(basename "$t" .c)
    run "$name" "$build/$name" ${LONG:+--long}
done
for t in $IN_C; do
    run "test_${t##*/in_c_}, the AVX-512 twin in C" "$t"
done
# Not for the programs above: they print it, and the calls that some of them put in front of the C library's are no place for a sanitizer that opens its log.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}log_path=$found/said TSAN_OPTIONS=${TSAN_OPTIONS:+$TSAN_OPTIONS:}log_path=$found/said
export UBSAN_OPTIONS=${UBSAN_OPTIONS:+$UBSAN_OPTIONS:}print_stacktrace=1:log_path=$found/said
for t in tests/*.sh tests/cli/*.sh; do
    run "$t" bash "$t"
done

echo
grep '^twin not run' "$log" | sort -u
passed=$(grep -c '^ok ' "$log") failed=$(grep -c '^FAIL' "$log") skipped=$(grep -c '^skip ' "$log")
grep '^skip ' "$log"
grep '^FAIL' "$log"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
