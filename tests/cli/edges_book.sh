#!/bin/bash
# Books: the last line names the texts that the loop rule cut short; batches of an older preset story; the
# figures of scripts/collapse.py. tests/real/edges_book.sh has what needs a model that writes prose.
. tests/cli/lib.inc
L=$LONGHAND
loops="-m $MODEL -s 1 --temperature 0"

# ---- the last line ----
# last NAME EXIT LINE ARGS..: exit status and last line on standard error, without the time of a log
last()
{
    local name=$1 want=$2 line=$3 rc
    shift 3
    "$L" "$@" >"$TMP/out" 2>"$TMP/err" </dev/null; rc=$?
    [ $rc = "$want" ] && tail -n 1 "$TMP/err" | sed -E 's/^[0-9-]{10} [0-9:]{8} //' | grep -qxF -- "$line"
    result "$name" $? "exit $rc: $(tail -n 3 "$TMP/err")"
}
one='1 text was cut short by the loop rule: job'
last run_names_it 0 "$one 1 @tale" run $loops -p "The sea" -n 600 --on-loop retake:1 --name tale
last and_with_stop 0 "$one 2" run $loops -p "The sea" -n 600 --on-loop stop
last without_progress 0 "$one 3" run $loops -p "The sea" -n 600 --on-loop stop --progress none
last in_json 0 '{"phase": "cut short", "jobs": 1, "first": "4"}' \
    run $loops -p "The sea" -n 600 --on-loop stop --progress json
last resume_of_a_text_that_is_done 0 "$one 1 @tale" run --resume @tale
last samples 0 '2 texts were cut short by the loop rule: job 5 @two/0, 6 @two/1' \
    run $loops -p "The sea" -n 600 --on-loop retake:1 --samples 2 --name two -o "$TMP/two"
last extend_run 0 "$one 1 @tale" extend @tale --tokens +400 --run --append " The sea. The sea. The sea."
check quiet_is_quiet 0 '' run $loops -p "The sea" -n 600 --on-loop stop -q
"$L" run $loops -p "The sea" -n 20 --on-loop stop >/dev/null 2>"$TMP/err"; ! grep -q 'cut short' "$TMP/err"
result a_whole_text_is_not_named $? "$(cat "$TMP/err")"

for i in 1 2 3 4 5 6 7; do echo "{\"custom_id\": \"ch$i\", \"prompt\": \"The sea\"}"; done >"$TMP/b.jsonl"
echo '{"custom_id": "whole", "prompt": "The sea", "max_tokens": 9}' >>"$TMP/b.jsonl"
export LONGHAND_DB=$TMP/batch.db
some='7 texts were cut short by the loop rule: job 1 @b/ch1, 2 @b/ch2, 3 @b/ch3, 4 @b/ch4, 5 @b/ch5, ..'
run="run --batch $TMP/b.jsonl -o $TMP/b.out $loops -n 300 --on-loop retake:1"
"$L" submit --batch "$TMP/b.jsonl" $loops -n 300 --on-loop retake:1 -q >/dev/null
last work_that_stops_early 0 "2 texts were cut short by the loop rule: job 1 @b/ch1, 2 @b/ch2" \
    work --parallel 1 --max-jobs 2
last run_batch_names_those_of_earlier_calls 0 "$some" $run
last and_when_nothing_is_left 0 "$some" $run
[ "$(grep -c 'cut short' "$TMP/err")" = 1 ]; result once $? "$(cat "$TMP/err")"
first=${some#*job } first=${first%, ..}
last run_batch_in_json 0 "{\"phase\": \"cut short\", \"jobs\": 7, \"first\": \"$first\"}" $run --progress json
check run_batch_quiet 0 '' $run -q
"$L" submit --batch "$TMP/b.jsonl" --name c $loops -n 300 --on-loop stop -q >/dev/null
last work_until_empty 0 \
    '7 texts were cut short by the loop rule: job 9 @c/ch1, 10 @c/ch2, 11 @c/ch3, 12 @c/ch4, 13 @c/ch5, ..' \
    work --until-empty --parallel 1
"$L" submit -p "The sea" --name late $loops -n 300 --on-loop stop -q >/dev/null
"$L" submit -p "The sea" --name fails $loops -n 300 -q >/dev/null
"$L" work --watch 2>"$TMP/err" & worker=$!
for i in $(seq 200); do "$L" list @fails | grep -q ' done ' && break; sleep 0.05; done
kill -TERM $worker; wait $worker
tail -n 1 "$TMP/err" | grep -q "$one 17 @late\$"; result watch $? "$(tail -n 3 "$TMP/err")"

# ---- a server ----
export LONGHAND_DB=$TMP/serve.db
"$L" serve -m $MODEL --port 0 >"$TMP/out" 2>"$TMP/err" & server=$!
for i in $(seq 200); do
    url=$(grep -hoE 'http://[0-9.:]+' "$TMP/out" "$TMP/err" | head -n 1)
    [ -n "$url" ] && break
    sleep 0.05
done
python3 - "$url" <<'P' 2>"$TMP/why"
import json, sys, urllib.request
body = {"prompt": "The sea", "max_tokens": 300, "temperature": 0, "seed": 1, "on_loop": "stop"}
r = urllib.request.Request(sys.argv[1] + "/v1/completions", json.dumps(body).encode(),
                           {"Content-Type": "application/json"})
assert json.load(urllib.request.urlopen(r, timeout=60))["choices"][0]["stop_reason"] == "repetition"
P
kill -TERM $server; wait $server
tail -n 1 "$TMP/err" | grep -q "$one 1"; result serve $? "$(cat "$TMP/why" "$TMP/out"; tail -n 3 "$TMP/err")"

# ---- a batch of the time when story had no penalty ----
export LONGHAND_DB=$TMP/old.db
for i in 1 2 3; do echo "{\"custom_id\": \"ch$i\", \"prompt\": \"The sea\"}"; done >"$TMP/s.jsonl"
older="--min-p 0.05 --dry-multiplier 0.8 --on-loop retake"
story="-m $MODEL -n 40 -s 1 --preset story"
old() { "$L" submit --batch "$TMP/s.jsonl" --name "$1" -m $MODEL -n 40 -s 1 $older "${@:2}" -q >/dev/null; }
penalties()
{
    "$L" report "@$1" --json | python3 -c 'import json, sys
print(*("{penalty}/{penalty_window}".format(**j["parameters"]) for j in json.load(sys.stdin)))'
}
old s; "$L" work -q --parallel 1 --max-jobs 1
check the_same_command_continues 0 '^@s: 0 new jobs, 3 exist' \
    run --batch "$TMP/s.jsonl" -o "$TMP/s.out" $story
[ "$(penalties s)" = "1/1024 1/1024 1/1024" ] && [ "$(wc -l <"$TMP/s.out")" = 3 ]
result and_its_jobs_keep_their_settings $? "$(penalties s)"
"$L" submit --batch "$TMP/s.jsonl" --name same -m $MODEL -n 40 -s 1 $older -q >/dev/null; "$L" work -q
"$L" text @s >"$TMP/a"; "$L" text @same >"$TMP/b"; same and_their_texts "$TMP/a" "$TMP/b"
old windowed --penalty-window 512
check also_with_a_window 0 '' submit --batch "$TMP/s.jsonl" --name windowed $story --penalty-window 512 -q
check what_the_command_gives_is_compared 2 'with other options: penalty \(3 jobs\)' \
    submit --batch "$TMP/s.jsonl" --name s $story --penalty 1.3 -q
check a_window_is_compared 2 'with other options: penalty_window \(3 jobs\)' \
    submit --batch "$TMP/s.jsonl" --name s $story --penalty-window 99 -q
old other --min-p 0.2
check the_rest_of_the_preset_is_compared 2 'with other options: min_p \(3 jobs\)' \
    submit --batch "$TMP/s.jsonl" --name other $story -q
old table --penalty 1.2
check another_preset_is_compared 2 'with other options: .*penalty \(3 jobs\)' \
    submit --batch "$TMP/s.jsonl" --name table -m $MODEL -n 40 -s 1 --preset table11-qwen2.5-7b -q
check a_new_batch 0 '' submit --batch "$TMP/s.jsonl" --name new $story -q
[ "$(penalties new)" = "1.1/256 1.1/256 1.1/256" ]; result has_the_penalty $? "$(penalties new)"

# ---- the figures ----
python3 - "$TMP" <<'P'
import sys
w = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(200)]
def put(name, text): open(f"{sys.argv[1]}/{name}", "w").write(text)
put("whole", " ".join(w))
put("edge", " ".join(w[:150] + (w[:42] * 3)[:100]))             # 42 different words are enough
put("late", " ".join(w[:150] + (w[150:191] * 3)[:100]))         # 41 are too few: the last window alone
put("loop", "The sea is the sea. " * 40)
put("list", "".join(f"{i}. The ship comes to harbour {i}.\n" for i in range(1, 40)))
put("near", "She took a lamp up the stairs. The sea was calm! \"She took a lamp down the stairs,\" he said.")
P
(cd "$TMP" && python3 "$OLDPWD/scripts/collapse.py" whole edge late loop list near) >"$TMP/got"
cat >"$TMP/want" <<'E'
whole: 200 words, collapse never, near 0.00
edge: 250 words, collapse never, near 0.00
late: 250 words, collapse 151, near 0.00
loop: 200 words, collapse 1, near 0.97
list: 273 words, collapse 1, near 0.97
near: 20 words, collapse never, near 0.33
E
same figures "$TMP/want" "$TMP/got"; diff "$TMP/want" "$TMP/got"
exit $failed
