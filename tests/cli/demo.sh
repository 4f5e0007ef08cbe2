#!/bin/bash
# The steps of `make demo`, with shorter texts.
. tests/cli/lib.inc
export LONGHAND
DEMO=$TMP/demo TOKENS=3000 KILL_AT=1 SEED=3 bash scripts/demo.sh >"$TMP/out" 2>"$TMP/err" </dev/null; rc=$?
[ $rc = 0 ] && [ "$(grep -c ': 3000 tokens, chain whole, 3000 derived again: identical' "$TMP/out")" = 2 ]
result the_demonstration_ends_with_identical_texts $? "exit $rc: $(cat "$TMP/err" "$TMP/out" | tail -6)"
resumes=$("$LONGHAND" list 1-2 --db "$TMP/demo/longhand.db" --json |
    python3 -c 'import json,sys; print(sum(j["resumes"] for j in json.load(sys.stdin)["jobs"]))')
grep -q 'kill -9: the program is gone' "$TMP/out" && [ "$resumes" -ge 1 ]
result the_demonstration_was_killed_and_resumed $? "$(grep -A3 kill "$TMP/out")"
[ -s "$TMP/demo/portrait.txt" ] && [ -s "$TMP/demo/malay.txt" ] &&
    grep -q "^The report, with plots: file://.*/demo/report.html$" "$TMP/out" &&
    grep -q '</html>' "$TMP/demo/report.html"
result the_demonstration_leaves_a_report $? "$(ls "$TMP/demo")"
[ ! -e "$LONGHAND_DB" ]; result the_demonstration_has_a_store_of_its_own $? "$LONGHAND_DB exists"
exit $failed
