#!/bin/bash
# Which job is which: names of single jobs, the columns of list, priorities, and jobs that repeat themselves.
. tests/cli/lib.inc
L=$LONGHAND
G=(-m "$MODEL" -s 1)
check a_job_has_a_name 0 '' submit "${G[@]}" -p "Once upon
  a time there was" -n 40 --name tale
[ "$(cat "$TMP/out")" = 1 ]; result submit_prints_its_number $? "$(cat "$TMP/out")"
check a_name_in_use_is_refused 2 'the name "tale" is in use: job 1 has it' submit "${G[@]}" -p x -n 5 \
    --name tale
check a_run_has_a_name 0 '' run "${G[@]}" -p x -n 5 -q --name short
cp "$TMP/out" "$TMP/short"; "$L" text @short >"$TMP/a"; same the_name_selects_the_job "$TMP/short" "$TMP/a"
check a_run_refuses_a_name_in_use 2 'the name "short" is in use: job 2 has it' run "${G[@]}" -p x -n 5 \
    --name short
check samples_have_the_names_of_one 0 '' submit "${G[@]}" -p "A" -n 30 --samples 3 --name many
check a_name_of_samples_is_in_use 2 'the name "many" is in use: job 3 has it' submit "${G[@]}" -p A -n 9 \
    --name many
printf '{"prompt": "x"}\n' >"$TMP/x.jsonl"
check a_batch_refuses_the_name_of_a_job 2 'the name "tale" is in use: job 1 has it' submit \
    --batch "$TMP/x.jsonl" \
    "${G[@]}" -n 5 --name tale
check a_name_has_no_slash 2 '^longhand: --name: a name of 3 bytes' submit "${G[@]}" -p x -n 5 --name a/b
"$L" work -q
[ "$("$L" list @many/2 | awk 'NR == 3 { print $1 }')" = 5 ]
result sample_2_is_called_2 $? "$("$L" list @many)"
"$L" list >"$TMP/list"
awk 'NR == 2' "$TMP/list" | grep -qE '^job +state +tokens +tokens/s +finish +age +model +name +prompt$' && \
    awk 'NR == 3' "$TMP/list" | grep \
        -qE '^ *1 +done +40/40 +[0-9.]+\*? +length +[0-9]+s +demo +@tale +Once upon a time there was$' &&
    awk 'NR == 4' "$TMP/list" | grep -qE '^ *2 +done +5/5 .* @short +x$' &&
        grep -q ' @many/2 .* A$' "$TMP/list"
result list_shows_name_age_rate_model_and_prompt $? "$(cat "$TMP/list")"
TERM=xterm python3 tests/cli/terminal.py bash -c "stty cols 64; exec '$L' list 1" </dev/null >"$TMP/tty"
tr -d '\r' <"$TMP/tty" | awk 'NR > 1 && length > 64 { bad = 1 } END { exit bad }' &&
    grep -qE '@tale +Once' "$TMP/tty" && ! grep -q 'was' "$TMP/tty"
tty_result list_is_as_wide_as_the_terminal $? "$(cat "$TMP/tty")"
numbers() { "$L" list "$@" --columns job | awk 'NR > 2' | tr -d ' ' | tr '\n' ' '; }
[ "$(numbers --sort tokens)" = "2 3 4 5 1 " ]; result list_sorts $? "$(numbers --sort tokens)"
[ "$(numbers --sort tokens --reverse --limit 2)" = "1 5 " ]
result list_turns_round_and_ends $? "$(numbers --sort tokens --reverse --limit 2)"
[ "$(numbers --limit 3)" = "1 2 3 " ]; result list_has_a_limit $? "$(numbers --limit 3)"
"$L" list @many/1 --columns name,seed,custom_id | awk 'NR == 3' | grep -qE '^@many/1 +1 +1$'
result list_has_other_columns $? "$("$L" list @many/1 --columns name,seed,custom_id)"
check an_unknown_column 2 "^longhand: --columns: 'size' is no column; job, state" list --columns job,size
check an_unknown_order 2 "^longhand: --sort: 'size' is no column; job, state" list --sort size
[ "$("$L" list --limit 2 --json | grep -c '"custom_id"')" = 2 ]; result json_has_the_limit $?

[ "$("$L" list @many --limit 1 | head -1 | grep -oE '[0-9]+ done|[0-9]+ of [0-9]+ tokens' | tr '\n' ,)" = \
    "3 done,90 of 90 tokens," ]
result list_counts_the_selected_jobs $? "$("$L" list @many --limit 1)"
"$L" list @tale --json | python3 -c 'import json, sys
j = json.load(sys.stdin)
assert j["counts"]["done"] == 1 and j["of"] == 40, j' 2>"$TMP/err"
result json_counts_the_selected_jobs $? "$(tail -1 "$TMP/err")"

"$L" list @tale @many/2 --json --columns job,state,tokens,rate,name,custom_id,prompt,age,error >"$TMP/a"
python3 - "$TMP/a" <<'PY' 2>"$TMP/err"
import json, sys
a, b = json.load(open(sys.argv[1]))["jobs"]
assert list(a) == ["job", "state", "tokens", "rate", "name", "custom_id", "prompt", "age", "error"], a
assert (a["job"], a["state"], a["tokens"], a["name"], a["custom_id"], a["error"]) == \
    (1, "done", 40, "@tale", None, None), a
assert a["prompt"] == "Once upon\n  a time there was" and a["rate"] > 0, a
assert b["custom_id"] == "2" and b["name"] == "@many/2", b
PY
result json_has_the_columns $? "$(tail -1 "$TMP/err")"

# priority: the last word, also below 0; a job that is written goes on
a=$("$L" submit "${G[@]}" -p a -n 5); b=$("$L" submit "${G[@]}" -p b -n 5)
c=$("$L" submit "${G[@]}" -p c -n 5)
check priority_is_the_last_word 0 '^1 job has priority 7$' priority $c 7
check priority_may_be_negative 0 '^1 job has priority -5$' priority $a -5
"$L" list --state queued --columns job,priority | awk 'NR > 2 { print $1, $2 }' | tr '\n' ' ' >"$TMP/a"
[ "$(cat "$TMP/a")" = "$a -5 $b 0 $c 7 " ]; result list_shows_priorities $? "$(cat "$TMP/a")"
"$L" work --parallel 1 2>&1 | sed -n 's/.*job \([0-9]*\): done.*/\1/p' | tr '\n' ' ' >"$TMP/a"
[ "$(cat "$TMP/a")" = "$c $b $a " ]; result jobs_are_written_by_priority $? "$(cat "$TMP/a")"
check priority_of_a_done_job 2 "job $a is done, and its priority means nothing" priority $a 3
check priority_needs_a_number 2 "^longhand: priority: P: 'high' is not a whole number" priority $a high
check priority_needs_jobs 2 'which jobs\?' priority 5
check priority_of_all 0 '^0 jobs have priority 1; the others are done or cancelled$' priority --all 1

# repetition in batches
printf '{"prompt": "Once upon a time", "custom_id": "r"}\n' >"$TMP/loop.jsonl"
"$L" submit --batch "$TMP/loop.jsonl" -m $MODEL -n 1500 --temperature 0 -q >/dev/null
"$L" work 2>"$TMP/err"; id=$("$L" list @loop/r --columns job | tail -1 | tr -d ' ')
grep -qE "job $id @loop/r: the text repeats itself since token [0-9]+, every [0-9]+ tokens\$" "$TMP/err"
result a_repetition_of_a_batch_is_a_line $? "$(cat "$TMP/err")"
"$L" submit --batch "$TMP/loop.jsonl" -m $MODEL -n 1500 --temperature 0 -q --on-loop stop --name stops \
    >/dev/null
"$L" work --progress json 2>"$TMP/json"
grep -q '"phase": "repetition", "job": [0-9]*, "name": "stops", "custom_id": "r", "start": ' "$TMP/json"
result a_repetition_in_json $? "$(cat "$TMP/json")"
"$L" export @loop --format jsonl >"$TMP/flat"; "$L" export @loop --format openai-batch >"$TMP/openai"
"$L" export @tale --format jsonl >"$TMP/none"; "$L" report @loop --json >"$TMP/report"
python3 - "$TMP" <<'PY' 2>"$TMP/err"
import json, sys
names = ("flat", "openai", "none", "report")
flat, openai, none, report = (json.load(open(f"{sys.argv[1]}/{n}")) for n in names)
r = flat["repetition"]
assert r["period"] > 0 and r["start"] == report["repetition"][0]["start"] and r["found"] > r["start"], r
assert openai["response"]["body"]["metrics"]["repetition"] == r and none["repetition"] is None
PY
result exports_have_the_repetition $? "$(tail -1 "$TMP/err")"
stops=$((id + 1))
[ "$(numbers --loops)" = "$id $stops " ] && [ "$(numbers --finish repetition)" = "$stops " ] &&
    [ "$(numbers --finish length --loops)" = "$id " ] && [ "$(numbers @stops @tale --loops)" = "$stops " ]
result loops_and_finish_select $? "$(numbers --loops), $(numbers --finish repetition)"
"$L" export --loops --format ids | cmp -s - <("$L" text $id $stops --format ids)
result export_takes_loops $? "differs"
[ "$("$L" report --loops --json | grep -c '"job"')" = 2 ]
result report_takes_loops $? "$("$L" report --loops)"
check resume_takes_finish 0 '0 jobs queued again; the others were not paused or failed' resume --finish length
lengths()
{
    "$L" list --columns job,tokens "$@" | sed 1,2d | awk '{ split($2, t, "/"); print t[1] }' | sort -nu |
        tr '\n' ' '
}
all=$(lengths); small=${all%% *}
[ -n "$small" ] && [ "$(lengths --shorter-than $((small + 1)))" = "$small " ] &&
    [ "$small $(lengths --longer-than "$small")" = "$all" ] &&
    [ -z "$(lengths --shorter-than 1 --longer-than 1)" ]
result selection_by_length $? "all $all, short $(lengths --shorter-than $((small + 1)))"
# by Distinct-n and by repetition, as report has them
"$L" report --all --csv >"$TMP/csv"
by_distinct=$(python3 -c 'import csv, sys
rows = csv.DictReader(open(sys.argv[1]))
print("".join(r["job"] + " " for r in rows if float(r["distinct_2"] or 2) < 0.9))' "$TMP/csv")
[ -n "$by_distinct" ] && [ "$(numbers --distinct-below 2:0.9)" = "$by_distinct" ]
result selection_by_distinct $? "$(numbers --distinct-below 2:0.9), not $by_distinct"
[ "$(numbers --repeats-above 0.3)" = "$id $stops " ] && [ -z "$(numbers --repeats-above 1)" ] &&
    [ "$("$L" export --all --repeats-above 0.3 --format jsonl 2>/dev/null | wc -l)" = 2 ]
result selection_by_repeats $? "$(numbers --repeats-above 0.3)"
check a_distinct_without_n 2 "^longhand: --distinct-below: '0.9' is not N:X" list --distinct-below 0.9
check repeats_are_a_share 2 "^longhand: --repeats-above: '3' is not a number" list --repeats-above 3

# redo: rejected texts again, under the next sample number
"$L" text @many/1 >"$TMP/before"
check redo_queues_a_sample 0 '^1 text queued again under another sample number$' redo @many/1
again=$(cat "$TMP/out")
"$L" list @many/3 --columns job,state,sample | tail -1 | grep -qE "^ *$again +queued +3\$"
result a_redone_sample_has_the_next_number $? "$("$L" list @many --columns job,state,sample,name)"
check redo_once 2 'job [0-9]* is done and was redone before' redo @many/1
check redo_needs_an_end 2 'job [0-9]* is queued, not done' redo @many/3
"$L" work -q; "$L" text @many/1 >"$TMP/a"; "$L" text @many/3 >"$TMP/b"
same the_old_sample_stays "$TMP/before" "$TMP/a"; differ the_new_sample_is_another_text "$TMP/a" "$TMP/b"
check a_redone_sample_may_be_redone 0 '1 text queued again' redo @many/3
"$L" list @many/4 --columns sample | tail -1 | grep -q 4; result the_chain_of_samples $? "$("$L" list @many)"
check redo_with_a_seed 0 '' redo @many/0 --seed 77 -q
[ "$("$L" list @many/5 --columns seed | tail -1 | tr -d ' ')" = 77 ]
result redo_takes_a_seed $? "$(cat "$TMP/out")"
check a_text_is_extended 0 'queued' extend @short --tokens +3 --append "and"
"$L" work -q
check redo_refuses_given_text 2 'goes on with given text or other parameters; longhand fork' redo @short
printf 'custom_id,prompt\na,Once\nb,The\n' >"$TMP/two.csv"
"$L" submit --batch "$TMP/two.csv" "${G[@]}" -n 6 --samples 2 -q >/dev/null; "$L" work -q
check redo_of_a_batch 0 '^4 texts queued again' redo @two --seed 5
[ "$("$L" list @two --state queued --columns name,sample | sed 1,2d | tr -s ' ' | tr '\n' ,)" = \
    "@two/a/2 2,@two/a/3 3,@two/b/2 2,@two/b/3 3," ] &&
    [ "$("$L" list @two --state queued --columns seed | sed 1,2d | sort -u | wc -l)" = 2 ]
result redone_lines_have_names_and_seeds $? "$("$L" list @two --columns name,sample,seed)"
"$L" work -q
check the_batch_again_is_the_same 0 '@two: 0 new jobs, 4 exist' submit --batch "$TMP/two.csv" "${G[@]}" -n 6 \
    --samples 2
check an_unknown_finish 2 '^longhand: --finish "loop": allowed are length, stop, repetition' list \
    --finish loop
check remove_takes_loops 0 '2 jobs removed' remove --loops
exit $failed
