#!/bin/bash
# --on-loop: a text that falls into repetition, as greedy decoding of a small model does, ends where its tokens say, however they were drafted.
. tests/cli/lib.inc
run() { "$LONGHAND" run -m $MODEL -p "Once upon a time" -n 1500 --temperature 0 -s 1 "$@" 2>"$TMP/err"; }
run >"$TMP/warn"; [ $? = 0 ] && grep -q 'the text repeats itself since token [0-9]*, every [0-9]* tokens; --on-loop stop' "$TMP/err" && [ "$(grep -c repeats "$TMP/err")" = 1 ]
result warn_is_the_default_and_says_it_once $? "$(cat "$TMP/err")"
run --on-loop off >"$TMP/off"; ! grep -q repeats "$TMP/err"; result off_says_nothing $? "$(cat "$TMP/err")"
same warn_and_off_write_the_same "$TMP/warn" "$TMP/off"
run --on-loop stop --json-stats "$TMP/stats" >"$TMP/stop"; [ $? = 0 ] && grep -q '"finish_reason": "repetition"' "$TMP/stats" && grep -q 'it ends here' "$TMP/err"
result stop_ends_with_repetition $? "$(cat "$TMP/err")"
n=$(wc -c <"$TMP/stop")
[ "$n" -lt "$(wc -c <"$TMP/warn")" ] && cmp -s -n "$n" "$TMP/stop" "$TMP/warn"; result stop_writes_the_beginning $? "$n bytes"
for d in none ngram heads partial,suffix; do
    run --on-loop stop --drafter $d >"$TMP/$d"
    same "the_end_does_not_depend_on_drafting_$d" "$TMP/stop" "$TMP/$d"
done
exit $failed
