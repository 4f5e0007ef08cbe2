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
now=$("$LONGHAND" list $id --json |
    python3 -c 'import json, sys
j, = json.load(sys.stdin)["jobs"]
print(j["tokens"] - j["given_tokens"])')
[ "$now" -gt "$had" ] && [ "$now" -le $((had + 50)) ]
result extend_of_a_repetition_adds_tokens $? "$had, then $now"
check verify_of_an_extended_repetition 0 '' verify $id -q
# The share of words that repeat and the phrases, against a count of the exported text
"$LONGHAND" run -m $MODEL -p "The king" -n 2500 --temperature 0.5 -s 1 -q --name repeats >"$TMP/text"
"$LONGHAND" report @repeats --json >"$TMP/report"
python3 - "$TMP/text" "$TMP/report" <<'END' 2>"$TMP/err"
import json, re, sys
words = re.findall(r"[a-z0-9'\u2019]+", open(sys.argv[1]).read().lower())
grams = [tuple(words[i - 7:i + 1]) if i >= 7 else None for i in range(len(words))]
last, repeats = {}, 0
for i, gram in enumerate(grams):
    if gram:
        repeats += gram in last and i - last[gram] <= 2000
        last[gram] = i
r = json.load(open(sys.argv[2]))
assert len(words) == r["words"] and 0.05 < r["repeats"] < 0.95, (len(words), r["words"], r["repeats"])
assert abs(repeats / len(words) - r["repeats"]) < 1e-9, (repeats / len(words), r["repeats"])
ends = [round(w["repeats"] * 1e6) for w in r["windows"]]
assert len(ends) == 3 and max(ends) > r["repeats"] * 1e6 > min(ends), ends
text = " " + " ".join(words) + " "
assert len(r["phrases"]) == 5
copies = len(re.findall("(?<= )%s(?= )" % r["phrases"][0]["text"], text))
assert 3 <= r["phrases"][0]["count"] <= copies, (r["phrases"][0], copies)
END
result repeats_and_phrases_are_those_of_the_text $? "$(tail -1 "$TMP/err")"
share=$(grep -o '"repeats": [0-9.]*' "$TMP/report" | head -1 | cut -d' ' -f2)
[ "$("$LONGHAND" list @repeats --repeats-above "${share%?????}" | grep -c @repeats)" = 1 ]
result repeats_above_selects_it $?
"$LONGHAND" list @repeats --repeats-above 0.999 | grep -q @repeats; [ $? = 1 ]
result and_a_larger_share_does_not $?
check a_share_of_2_is_refused 2 'repeats-above.*from 0 to 1' list --repeats-above 2
exit $failed
