#!/bin/bash
# --on-loop: a text that falls into repetition, as greedy decoding of a small model does. Its end depends on
# its tokens alone, not on drafting.
. tests/cli/lib.inc
run() { "$LONGHAND" run -m $MODEL -p "Once upon a time" -n 1500 --temperature 0 -s 1 "$@" 2>"$TMP/err"; }
run >"$TMP/warn"; [ $? = 0 ] && [ "$(grep -c repeats "$TMP/err")" = 1 ] &&
    grep -q 'the text repeats itself since token [0-9]*, every [0-9]* tokens; --on-loop stop' "$TMP/err"
result warn_is_the_default_and_says_it_once $? "$(cat "$TMP/err")"
run --on-loop off >"$TMP/off"; ! grep -q repeats "$TMP/err"; result off_says_nothing $? "$(cat "$TMP/err")"
same warn_and_off_write_the_same "$TMP/warn" "$TMP/off"
run --on-loop stop --json-stats "$TMP/stats" >"$TMP/stop"; [ $? = 0 ] &&
    grep -q '"finish_reason": "repetition"' "$TMP/stats" && grep -q 'it ends here' "$TMP/err"
result stop_ends_with_repetition $? "$(cat "$TMP/err")"
n=$(wc -c <"$TMP/stop")
[ "$n" -lt "$(wc -c <"$TMP/warn")" ] && cmp -s -n "$n" "$TMP/stop" "$TMP/warn"
result stop_writes_the_beginning $? "$n bytes"
for d in none ngram heads partial,suffix; do
    run --on-loop stop --drafter $d >"$TMP/$d"
    same "the_end_does_not_depend_on_drafting_$d" "$TMP/stop" "$TMP/$d"
done
# extend of a text that the rule ended: the text would end there again, so extend needs a text to append, and
# continues after it
id=$("$LONGHAND" submit -m $MODEL -p "Once upon a time" -n 1500 --temperature 0 -s 1 --on-loop stop)
"$LONGHAND" work -q
"$LONGHAND" text $id >"$TMP/a"; same a_job_ends_where_run_does "$TMP/stop" "$TMP/a"
"$LONGHAND" show $id | grep -q 'finish reason repetition'
result a_job_ends_with_repetition $? "$("$LONGHAND" show $id | head -1)"
check extend_of_a_repetition_needs_a_text 2 'has ended by itself \(repetition\)' extend $id --tokens +50
had=$("$LONGHAND" text $id --format ids | wc -l)
"$LONGHAND" extend $id --tokens +50 --append "

CHAPTER II. The captain's daughter

" && "$LONGHAND" work -q; "$LONGHAND" text $id >"$TMP/a"
(cat "$TMP/stop"; printf "\n\nCHAPTER II. The captain's daughter\n\n") >"$TMP/b"; n=$(wc -c <"$TMP/b")
cmp -s -n "$n" "$TMP/a" "$TMP/b" && [ "$(wc -c <"$TMP/a")" -gt "$n" ]
result extend_continues_after_a_repetition $? "$n bytes: $(cmp -n "$n" "$TMP/a" "$TMP/b" 2>&1)"
now=$("$LONGHAND" text $id --format ids | wc -l); [ "$now" -gt "$had" ] && [ "$now" -le $((had + 50)) ]
result extend_of_a_repetition_adds_tokens $? "$had, then $now"
check verify_of_an_extended_repetition 0 '' verify $id -q
exit $failed
