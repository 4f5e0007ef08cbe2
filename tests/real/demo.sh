#!/bin/bash
# make demo MODEL=smollm2: three chapters, killed, resumed, verified.
. tests/real/lib.inc
LONGHAND=$L MODEL=smollm2 DEMO=$TMP/demo TOKENS=60 KILL_AT=1 bash scripts/demo.sh >"$TMP/out" 2>"$TMP/err" \
    </dev/null; rc=$?
[ $rc = 0 ] && [ "$(grep -c ', chain whole, .* derived again: identical' "$TMP/out")" = 3 ] &&
    [ -s "$TMP/demo/ch1.txt" ] && [ -s "$TMP/demo/ch3.txt" ] && [ -s "$TMP/demo/report.html" ]
result real_demo $? "exit $rc: $(tail -n 6 "$TMP/err" "$TMP/out")"
exit $failed
