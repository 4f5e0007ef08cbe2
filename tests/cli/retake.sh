#!/bin/bash
# --on-loop retake: a repetition is taken back, and the text goes on. Drafting, kills and other workers change
# nothing; verify, fork, extend and doctor know the retakes.
. tests/cli/lib.inc
L=$LONGHAND
make_() { "$L" submit -m $MODEL -p "Once upon a time" -n "${N:-1500}" --temperature "${T:-0.3}" --min-p 0 \
    -s 1 --on-loop "${RULE:-retake}" "$@"; }
sql() { sqlite3 "$LONGHAND_DB" "$1" 2>/dev/null || python3 -c 'import sqlite3, sys
c = sqlite3.connect(sys.argv[1]); r = c.execute(sys.argv[2]).fetchall(); c.commit()
print("\n".join("|".join(map(str, x)) for x in r))' "$LONGHAND_DB" "$1"; }

# 10 texts that loop, 200 with LONG=1: drafting changes no text, and no retake
lines=10 every=2
[ -z "$LONG" ] || lines=200 every=1
python3 - "$lines" >"$TMP/loops.jsonl" <<'P'
import json, sys
words = "The sea|My father|In the morning|There was no|It is said that|He had|She was|When the".split("|")
for i in range(int(sys.argv[1])):
    body = {"prompt": f"{words[i % 8]} ", "seed": i, "max_tokens": 500, "temperature": i % 3 / 5, "min_p": 0,
            "on_loop": ["retake:1", "retake:8", "retake"][i // 3 % 3]}
    print(json.dumps({"custom_id": f"l{i}", "body": body}))
P
drafters=(auto ngram heads partial suffix) wrong=0 made=0
for k in 0 1 2 3 4; do
    sed -n "$((k + 1))~5p" "$TMP/loops.jsonl" >"$TMP/q.jsonl"
    for d in none "${drafters[k]}"; do
        "$L" submit --batch "$TMP/q.jsonl" -m $MODEL -q --drafter "$d" --name "$k-$d" >/dev/null
    done
done
"$L" work -q
loop_rows() # NAME: its retakes
{
    sql "SELECT custom_id, at, token, length FROM retake JOIN job ON job.id = job
        WHERE batch = (SELECT id FROM batch WHERE name = '$1') ORDER BY line, number"
}
for k in 0 1 2 3 4; do
    d=${drafters[k]}
    for q in none "$d"; do
        "$L" export "@$k-$q" --format ids -o "$TMP/$q.ids" --force
        loop_rows "$k-$q" >"$TMP/$q.rows"
    done
    same "${d}_changes_no_text_that_loops" "$TMP/none.ids" "$TMP/$d.ids"
    same "${d}_changes_no_retake" "$TMP/none.rows" "$TMP/$d.rows"
    made=$((made + $(wc -l <"$TMP/none.rows")))
    for id in $("$L" list "@$k-$d" --columns job | sed -n "3~${every}p"); do
        "$L" verify -q "$id" >/dev/null 2>&1 || wrong=$((wrong + 1))
    done
done
[ $made -ge "$lines" ]; result texts_that_loop_have_retakes $? "$made retakes"
[ $wrong = 0 ]; result verify_derives_texts_that_loop $? "$wrong differ"

# a text that is killed again and again equals the undisturbed one, with snapshots of its cache
export N=1200 T=0 RULE=retake:6
plain=$(make_ --drafter none); "$L" work -q; "$L" text "$plain" >"$TMP/plain"
id=$(make_)
{ for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
    timeout -s KILL "$((i / 5)).$((i % 5 * 2))5" "$L" work -q --kv-snapshot on --max-attempts 0 >/dev/null
done; } 2>/dev/null
"$L" work -q --kv-snapshot on --max-attempts 0; "$L" text "$id" >"$TMP/a"
same a_killed_job_makes_the_same_retakes "$TMP/plain" "$TMP/a"
[ "$(sql "SELECT count(*) FROM (SELECT number, at, token, length FROM retake WHERE job = $id EXCEPT
    SELECT number, at, token, length FROM retake WHERE job = $plain)")" = 0 ]
result its_retakes_are_the_same $? "$(sql 'SELECT * FROM retake')"
check verify_of_a_killed_job 0 '' verify -q "$id"

# an extension equals the longer run; a pipe gets the text once, although tokens were taken back
N=700 RULE=retake:8 T=0.2; short=$(make_ --top-k 3); "$L" work -q
N=1500 long=$(N=1500 make_ --top-k 3); "$L" extend "$short" --tokens +800 -q; "$L" work -q
"$L" text "$long" >"$TMP/long"; "$L" text "$short" >"$TMP/a"
same extend_equals_the_longer_run "$TMP/long" "$TMP/a"
"$L" run -m $MODEL -p "Once upon a time" -n 1500 --temperature 0.2 --top-k 3 --min-p 0 -s 1 \
    --on-loop retake:8 -q >"$TMP/a"
same a_pipe_gets_the_text_once "$TMP/long" "$TMP/a"
last=$(make_ --top-k 3 -n 1500); "$L" tail -f "$last" --from 0 >"$TMP/a" & follower=$!
"$L" work -q; wait $follower
same tail_follows_settled_text "$TMP/long" "$TMP/a"

# forks of a text while it is written, with its samples beside it; each equals a run of its own
T=0.3 N=1000; a=$(make_ --samples 3 --top-k 3 --name family | tail -1)
"$L" work -q --parallel 3; "$L" text @family >"$TMP/a"
for i in 0 1 2; do
    "$L" text "@family/$i" >"$TMP/a" 2>/dev/null || "$L" list @family >&2
    check "verify_of_sample_$i" 0 '' verify -q "@family/$i"
done
at=$(sql "SELECT max(at) + 1 FROM retake
    WHERE job = $plain AND at < (SELECT tokens FROM job WHERE id = $plain)")
fork=$("$L" fork "$plain" --at "${at:-1}" --seed 5 --tokens 600 2>/dev/null)
"$L" work -q
check verify_of_a_fork 0 '' verify -q "${fork:-none}"

# the retake that ends a text is stored with the end: a text whose output failed there resumes as undisturbed
rows() { sql "SELECT number, at, token, length FROM retake WHERE job = $1 ORDER BY number"; }
export N=1500 T=0 RULE=retake:1
whole=$(make_); "$L" work -q; "$L" text "$whole" >"$TMP/plain"; rows "$whole" >"$TMP/plain.rows"
"$L" run -m $MODEL -p "Once upon a time" -n 1500 --temperature 0 --min-p 0 -s 1 --on-loop retake:1 -q \
    >/dev/full 2>"$TMP/err"
cut=$(sql "SELECT max(id) FROM job"); "$L" run --resume "$cut" -q >/dev/null
"$L" text "$cut" >"$TMP/a"; rows "$cut" >"$TMP/a.rows"
same a_failed_output_changes_no_text "$TMP/plain" "$TMP/a"
same and_no_retake "$TMP/plain.rows" "$TMP/a.rows"

# a stop string that the token at which the rule fires completes ends the text
fires=$(sql "SELECT length FROM retake WHERE job = $whole ORDER BY number LIMIT 1")
off=$(RULE=off N=$fires make_); "$L" work -q; "$L" text "$off" >"$TMP/plain"
stop=$(tail -c 4 "$TMP/plain"); truncate -s -4 "$TMP/plain"
id=$(make_ --min-tokens "$fires" --stop "$stop"); "$L" work -q; "$L" text "$id" >"$TMP/a"
same a_stop_string_goes_before_the_loop_rule "$TMP/plain" "$TMP/a"

# a retake that dropped others leaves gaps in the numbers; the next ones have numbers of their own
T=0.2 N=700 RULE=retake:8; id=$(make_ --top-k 3); "$L" work -q
check no_from_here_where_the_end_may_be_taken_back 2 'leave out --from-here' \
    extend "$id" --tokens +100 --run --from-here
sql "UPDATE retake SET number = number + 1001 WHERE job = $id" >/dev/null
sql "UPDATE retake SET number = number - 1000 WHERE job = $id" >/dev/null
"$L" extend "$id" --tokens +800 -q; "$L" work -q; "$L" text "$id" >"$TMP/a"
same gaps_in_the_numbers_stop_no_job "$TMP/long" "$TMP/a"
check doctor_finds_nothing 0 '' doctor

# tokens of another model are not cut
first=$(sql "SELECT (at + length) / 2 FROM retake WHERE job = $plain ORDER BY number LIMIT 1")
"$L" convert -m $MODEL -o "$TMP/q8.gguf" --weights q8_0 -q
moved=$(N=$first T=0 RULE=retake:6 make_); "$L" work -q
"$L" extend "$moved" --tokens +600 --model "$TMP/q8.gguf" --accept-numerics-change -q
"$L" work -q --accept-numerics-change
cut=$(sql "SELECT min(at) FROM retake WHERE job = $moved")
[ -n "$cut" ] && [ "$cut" -ge "$first" ]
result tokens_of_another_model_are_not_cut $? "cut to '$cut', the model changed at $first"

# a retake without its row
sql "DELETE FROM retake WHERE job = $id AND number = (SELECT max(number) FROM retake WHERE job = $id)" \
    >/dev/null
check doctor_finds_a_missing_retake 1 'findings?$' doctor
grep -q "job $id: the hash of its [0-9]* tokens and its retakes differs" "$TMP/out"
result and_names_it $? "$(cat "$TMP/out")"

# what cannot be
check retake_needs_a_number 2 "'retake:x' is not one of warn.stop.off.retake" \
    submit -m $MODEL -p x --on-loop retake:x
check retake_has_a_range 2 'N from 1 to 1000' submit -m $MODEL -p x --on-loop retake:1001
check only_retake_has_a_number 2 'is not one of' submit -m $MODEL -p x --on-loop stop:3
check no_retakes_with_the_published_verifier 2 'retake: --verifier paper cannot' \
    submit -m $MODEL -p x -n 20 --on-loop retake --preset tokenswift --verifier paper
exit $failed
