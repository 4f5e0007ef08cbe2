#!/bin/bash
# The queue: submit, work and the verbs about jobs. After an interruption of any kind the text equals that of
# an undisturbed run.
. tests/cli/lib.inc
check work_reports_an_empty_queue 0 "$LONGHAND_DB: no job is waiting\$" work
check quiet_work_reports_nothing 0 '' work -q
mkdir "$TMP/gone"; cp $MODEL/*.json "$TMP/gone"; cp $MODEL/*.safetensors "$TMP/gone"
id=$("$LONGHAND" submit -m "$TMP/gone" -p x -n 5); rm -r "$TMP/gone"
check an_empty_text_needs_no_model 0 '' text $id; [ ! -s "$TMP/out" ]
result an_empty_text_is_empty $? "$(cat "$TMP/out")"; rm -f "$LONGHAND_DB"
P=$TMP/prompt; head -c 300 models/demo/openings/portrait.txt >"$P"
G="-m $MODEL -f $P"
L="$LONGHAND"
wait_for() { for i in $(seq $((400 * slower))); do eval "$1" && return 0; sleep 0.02; done; return 1; }
tokens_of() { "$L" list "$1" | awk 'NR == 3 { split($3, a, "/"); print a[1] }'; }
# assert_json NAME EXPRESSION ARGS...: the program's JSON output j fulfils a Python expression.
assert_json()
{
    local name=$1 expression=$2
    shift 2
    "$L" "$@" | python3 -c 'import json, sys
j = json.load(sys.stdin)
assert eval(sys.argv[1]), j' "$expression" 2>"$TMP/err"
    result "$name" $? "$(tail -1 "$TMP/err")"
}
state_of() { "$L" list "$1" | awk 'NR == 3 { print $2 }'; }

# run makes a job; submit and work write the same bytes
"$L" run $G -n 300 -s 7 >"$TMP/whole" 2>"$TMP/err"
grep -q '^job: 1$' "$TMP/err"; result run_prints_its_job $? "$(cat "$TMP/err")"
"$L" text 1 >"$TMP/a"; same text_has_the_bytes_of_run "$TMP/whole" "$TMP/a"
[ "$("$L" submit $G -n 300 -s 7)" = 2 ] && [ "$(state_of 2)" = queued ] && [ "$("$L" text 2 | wc -c)" = 0 ]
result submit_prints_the_number $? "$(state_of 2)"
"$L" work -q 2>"$TMP/err"; r=$?
[ $r = 0 ] && [ ! -s "$TMP/err" ]; result work_ends_when_the_queue_is_empty $? "exit $r: $(cat "$TMP/err")"
"$L" text 2 >"$TMP/a"; same work_writes_the_bytes_of_run "$TMP/whole" "$TMP/a"
"$L" run $G -n 300 -s 7 -q --format ids >"$TMP/ids"; "$L" text 1 --format ids >"$TMP/a"
same ids_are_those_of_run "$TMP/ids" "$TMP/a"
"$L" tail 1 --from 0 >"$TMP/a"; same tail_from_0_is_the_text "$TMP/whole" "$TMP/a"
"$L" tail 1 --from 0 --format ids >"$TMP/a"; same tail_ids_from_0_are_all "$TMP/ids" "$TMP/a"
"$L" tail 1 >"$TMP/a"; n=$(wc -c <"$TMP/a"); tail -c "$n" "$TMP/whole" >"$TMP/b"
[ "$n" -gt 50 ] && [ "$n" -lt "$(wc -c <"$TMP/whole")" ]; result tail_is_a_part $? "$n bytes"
same tail_is_the_end "$TMP/a" "$TMP/b"
"$L" list >"$TMP/out"
head -1 "$TMP/out" |
    grep -q '0 queued, 0 running, 0 paused, 3 done, 0 failed, 0 cancelled; 900 of 900 tokens'
result list_begins_with_counts $? "$(head -1 "$TMP/out")"
assert_json show_json \
    'j["job"] == 2 and j["state"] == "done" and j["tokens"] == 300 and j["seed"] == 7' show 2 --json
assert_json show_json_has_parameters \
    'j["parameters"]["min_p"] == 0.05 and j["numerics"].startswith("cpu-")' show 2 --json
assert_json show_json_has_events \
    '[e["kind"] for e in j["events"]] == ["submitted", "claimed", "done"]' show 2 --json

# kills at random moments, before and long after the first new token: every acknowledged token stays
"$L" run $G -n 2000 -s 8 -q --ignore-eos >"$TMP/long"
id=$("$L" submit $G -n 2000 -s 8 --ignore-eos)
kills=0 lost=0 before=0
[ -n "${LONG:-}" ] && n_kills=20 || n_kills=8
for i in $(seq $n_kills); do
    "$L" work -q --max-attempts 0 & pid=$!
    [ $((RANDOM % 3)) = 0 ] || wait_for "[ \$(tokens_of $id) -gt $before ]"
    sleep $((i % 7 == 0)).$((RANDOM % 3))$((RANDOM % 10))
    kill -9 $pid 2>/dev/null && kills=$((kills + 1))
    wait $pid
    now=$(tokens_of $id); [ "$now" -ge "$before" ] || lost=1
    before=$now
    "$L" text $id >"$TMP/a"; n=$(wc -c <"$TMP/a"); cmp -s -n "$n" "$TMP/a" "$TMP/long" || lost=2
    if [ "$now" -ge 2000 ]; then
        cmp -s "$TMP/a" "$TMP/long" || lost=3
        before=0; id=$("$L" submit $G -n 2000 -s 8 --ignore-eos)
    fi
done 2>/dev/null
[ $lost = 0 ] && [ $kills -ge 3 ]
result kills_lose_nothing_that_was_stored $? "$kills kills, lost $lost, at $before"
echo "    $kills kills up to token $before"
"$L" work -q
"$L" text $id >"$TMP/a"; same killed_text_equals_the_undisturbed_one "$TMP/long" "$TMP/a"

# signals: checkpoint, exit code 75, and both ways to continue
for s in INT TERM HUP USR1; do
    id=$("$L" submit $G -n 100000 -s 8 --ignore-eos)
    env --default-signal=INT,HUP "$L" work -q 2>"$TMP/err" & pid=$!
    wait_for "[ \$(tokens_of $id) -gt 0 ]"; kill -$s $pid; wait $pid; r=$?
    [ $r = 75 ] && [ "$(state_of $id)" = queued ] && [ "$(tokens_of $id)" -lt 100000 ]
    result work_leaves_with_75_at_sig${s,,} $? "exit $r, $(state_of $id): $(cat "$TMP/err")"
    "$L" cancel $id -q
done
env --default-signal=INT "$L" run $G -n 2000 -s 8 --ignore-eos >"$TMP/first" 2>"$TMP/err" & pid=$!
wait_for "[ -s '$TMP/first' ]"; kill -INT $pid; wait $pid; r=$?
id=$(sed -n 's/^job: //p' "$TMP/err")
[ $r = 75 ] && grep -q "longhand run --resume $id continues" "$TMP/err" && [ "$(state_of $id)" = paused ]
result run_names_the_command_to_resume $? "exit $r: $(cat "$TMP/err")"
check work_names_paused_jobs 0 ': no job is waiting; longhand resume queues paused ones \(1\)' work
"$L" work -q; [ "$(state_of $id)" = paused ]
result an_interrupted_run_waits_for_its_user $? "$(state_of $id)"
"$L" text $id >"$TMP/a"; same the_store_has_the_output_of_run "$TMP/first" "$TMP/a"
"$L" run --resume $id --from-here -q >"$TMP/rest"; cat "$TMP/first" "$TMP/rest" >"$TMP/a"
same resume_from_here_writes_the_rest "$TMP/long" "$TMP/a"
check report_of_rounds_that_were_not_stored 0 '^no rounds are stored; run or work with --rounds keeps them$' \
    report $id --rounds
check resume_of_no_job 2 'there is no job 999' run --resume 999
check resume_with_another_sampling 2 'and --top-p: the job has its own' run --resume $id --top-p 0.5
check resume_with_another_length_of_context 2 'and --context-scaling: the job has its own' run --resume $id \
    --threads 1 -q --context-scaling yarn:2
check resume_with_a_prompt 2 'the job has its own' run --resume $id -p x

printf '{"custom_id": "one", "method": "POST", "url": "/v1/completions", "body": %s}\n' \
    '{"prompt": "x", "max_tokens": 9}' >"$TMP/book.jsonl"
"$L" submit --batch "$TMP/book.jsonl" -m $MODEL -q >/dev/null; "$L" run --resume @book/one -q >"$TMP/a"
"$L" text @book/one >"$TMP/b"; [ -s "$TMP/b" ]; result resume_by_name $? "$(cat "$TMP/b")"
same resume_by_name_is_that_job "$TMP/a" "$TMP/b"

# a killed worker: list and show say so, without its speed and ETA
id=$("$L" submit $G -n 100000 -s 8 --ignore-eos)
"$L" work -q & pid=$!
wait_for "[ \$(tokens_of $id) -gt 600 ]"
assert_json list_json_knows_a_living_worker \
    'j["jobs"][0]["state"] == "running" and j["jobs"][0]["worker_ended"] is False' list $id --json
kill -9 $pid; wait $pid 2>/dev/null
"$L" list $id >"$TMP/a"
[ "$(state_of $id)" = running ] && grep -q 'its process has ended, longhand work continues it' "$TMP/a" &&
    ! grep -q 'tokens/s,' "$TMP/a"; result list_knows_a_dead_worker $? "$(cat "$TMP/a")"
assert_json list_json_knows_a_dead_worker \
    'j["jobs"][0]["worker_ended"] is True and j["jobs"][0]["tokens_per_second"] is None' list $id --json
assert_json list_json_has_no_eta_of_a_dead_worker \
    'not j["tokens_per_second"] and j["eta_seconds"] is None' list $id --json
"$L" show $id | grep -q '^worker  *its process has ended'; result show_knows_a_dead_worker $?
check resume_of_a_dead_worker_names_work 2 \
    'is running, not paused or failed; its process has ended, and longhand work continues it' resume $id
"$L" cancel $id -q

# seeds of 64 bits are numbers in JSON
"$L" submit $G -n 3 -s 18446744073709551615 -q >/dev/null; id=$("$L" submit $G -n 3 -s 9223372036854775808)
assert_json large_seeds_are_numbers '[x["seed"] for x in j["jobs"][-2:]] == [2**64 - 1, 2**63]' list --json
assert_json seeds_equal_their_text 'all(str(x["seed"]) == x["seed_text"] for x in j["jobs"])' list --json
assert_json show_has_large_seeds 'j["seed"] == 2**63' show $id --json
"$L" remove -q $((id - 1)) $id
printf '{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": %s, "metadata": %s}\n' \
    '{"prompt": "x", "max_tokens": 3}' '{"seed": null, "seed_text": "none"}' >"$TMP/seed.jsonl"
"$L" submit --batch "$TMP/seed.jsonl" -m $MODEL -q >/dev/null
assert_json metadata_called_seed_stay \
    'j["metadata"] == {"seed": None, "seed_text": "none"} and str(j["seed"]) == j["seed_text"]' \
    show @seed --json
"$L" remove -q @seed

# limits of a shift
id=$("$L" submit $G -n 100000 -s 8 --ignore-eos); id2=$("$L" submit $G -n 20 -s 8 --priority 5)
"$L" work --max-jobs 1 -q; [ "$(state_of $id2)" = done ] && [ "$(tokens_of $id)" = 0 ]
result priority_and_max_jobs $? "$(state_of $id2)"
"$L" work --max-time 2 -q 2>"$TMP/err"; r=$?
[ $r = 75 ] && [ "$(state_of $id)" = queued ] && [ "$(tokens_of $id)" -gt 0 ]
result max_time_leaves_with_75 $? "exit $r: $(cat "$TMP/err")"

# tail of a text that does not grow ends with its reader
("$L" tail $id -f --from 0 2>"$TMP/err"; echo $? >"$TMP/rc") | head -c 1 >"$TMP/a" & pid=$!
wait_for "[ -s '$TMP/rc' ]"; [ "$(cat "$TMP/rc")" = 0 ] && [ -s "$TMP/a" ] && [ ! -s "$TMP/err" ]
result tail_leaves_with_its_reader $? "exit $(cat "$TMP/rc"): $(cat "$TMP/err")"
kill $pid 2>/dev/null; wait $pid

# pause, cancel and remove stop a running job within about a second; pause and cancel keep its text
for v in pause cancel remove; do
    [ $v = pause ] || id=$("$L" submit $G -n 100000 -s 8 --ignore-eos)
    before=$(tokens_of $id)
    "$L" work 2>"$TMP/err" & pid=$!
    wait_for "[ \$(tokens_of $id) -gt $before ]"
    if [ $v = remove ]; then
        check remove_of_a_running_job 2 "1 of 1 job .the first is job $id. is being written" remove $id
        v="remove --force"
    fi
    start=$(date +%s%N); "$L" $v $id -q; wait $pid; r=$?; v=${v%% *}
    ms=$((($(date +%s%N) - start) / 1000000))
    [ $r = 0 ] && [ $ms -lt $((3000 * slower)) ]
    result ${v}_stops_the_worker $? "exit $r, $ms ms: $(cat "$TMP/err")"
    if [ $v = remove ]; then check removed_job_is_gone 2 "there is no job $id" text $id
    else
        [ "$(state_of $id)" = ${v/%pause/pause}$([ $v = pause ] && echo d || echo led) ]
        result ${v}_is_its_state $? "$(state_of $id)"
        "$L" text $id >"$TMP/a"; n=$(wc -c <"$TMP/a"); m=$(wc -c <"$TMP/long")
        [ "$n" -gt 0 ] && cmp -s -n $((n < m ? n : m)) "$TMP/a" "$TMP/long"
        result text_after_${v} $? "$n bytes"
    fi
    [ $v = pause ] && "$L" cancel $id -q
done
check cancel_of_a_cancelled_job 2 'is done, not queued' cancel $id2

# two workers on one queue: every job once, all texts right
ids=$(for i in $(seq 8); do "$L" submit $G -n 300 -s 7; done)
"$L" work -q & a=$!; "$L" work -q & b=$!; wait $a; ra=$?; wait $b; rb=$?
bad=0
for id in $ids; do
    "$L" text $id | cmp -s - "$TMP/whole" || bad=$((bad + 1))
    [ "$("$L" show $id --json | grep -c '"kind": "claimed"')" = 1 ] || bad=$((bad + 10))
done
[ $ra = 0 ] && [ $rb = 0 ] && [ $bad = 0 ]; result two_workers_share_a_queue $? "exits $ra $rb, bad $bad"

# a failed job has an error, keeps its text, can be retried
mkdir "$TMP/model"
for f in config.json generation_config.json tokenizer.json model.safetensors; do
    cp "$MODEL/$f" "$TMP/model/"
done
id=$("$L" submit -m "$TMP/model" -f "$P" -n 300 -s 7)
parameters=$(sql "SELECT parameters FROM input WHERE job = $id")
sql "UPDATE input SET parameters = '{}' WHERE job = $id"
"$L" work -q 2>"$TMP/err"; r=$?
[ $r = 1 ] && [ "$(state_of $id)" = failed ] && "$L" show $id | grep -q '^error  *parameters: .*missing'
result work_fails_a_job_without_parameters $? "exit $r, $(state_of $id)"
sql "UPDATE input SET parameters = '$parameters' WHERE job = $id"
"$L" retry $id -q && "$L" work -q && "$L" text $id >"$TMP/a"; same retry_continues "$TMP/whole" "$TMP/a"
id=$("$L" submit -m "$TMP/model" -f "$P" -n 100000 -s 8 --ignore-eos)
"$L" work -q 2>/dev/null & pid=$!
wait_for "[ \$(tokens_of $id) -gt 50 ]"; kill -TERM $pid; wait $pid
printf '{"eos_token_id": 4095}' >"$TMP/model/generation_config.json"      # changes the fingerprint
"$L" work -q 2>"$TMP/err"; r=$?
[ $r = 1 ] && [ "$(state_of $id)" = failed ] && "$L" show $id | grep -q 'made with model'
result another_model_fails_the_job $? "exit $r, $(state_of $id)"
begins()
{
    "$L" text $id >"$TMP/a"; n=$(wc -c <"$TMP/a"); m=$(wc -c <"$TMP/long")
    [ "$n" -gt 0 ] && cmp -s -n $((n < m ? n : m)) "$TMP/a" "$TMP/long"
}
begins; result text_of_a_failed_job_is_readable $? "$n bytes"
check run_with_another_model_names_the_difference 2 'made with model .*--accept-numerics-change' \
    run --resume $id -q
before=$(tokens_of $id); "$L" retry $id -q; "$L" work -q --accept-numerics-change --max-time 3 2>/dev/null
[ "$(tokens_of $id)" -gt "$before" ] && begins
result an_accepted_change_continues $? "$before, $(tokens_of $id)"
"$L" cancel $id -q
"$L" show $id | grep -q 'numerics changed\|instead of'
result accepted_change_is_recorded $? "$("$L" show $id | tail -4)"

# a text begun with another arithmetic: a worker without that arithmetic leaves the job and says so;
# --accept-numerics-change takes it
id=$("$L" submit $G -n 40 -s 7); "$L" work -q; "$L" extend $id --tokens +20
python3 -c 'import sqlite3, sys
c = sqlite3.connect(sys.argv[1])
c.execute("UPDATE job SET numerics = \"cuda-9-bf16\" WHERE id = ?", (sys.argv[2],))
c.commit()' "$LONGHAND_DB" $id
check work_names_jobs_of_other_arithmetic 0 \
    " 1 job stays queued that other arithmetic began \(job $id: cuda-9-bf16, here it is cpu-1-int16\)" work
check work_names_jobs_of_other_arithmetic_in_json 0 \
    '^\{"phase": "not for this worker", "jobs": 1, "job": '$id', ' work --progress json
[ "$(state_of $id)" = queued ] && [ "$(tokens_of $id)" = 40 ]
result other_arithmetic_stays $? "$(state_of $id)"
"$L" work -q --accept-numerics-change
[ "$(state_of $id)" = done ] && "$L" show $id | grep -q 'accepted change: .*cuda-9-bf16'
result work_takes_other_arithmetic_with_the_option $? "$("$L" show $id | tail -3)"

# the cache type is part of the arithmetic; old jobs without a cache type have bf16
bf16=$("$L" submit $G -n 60 -s 7 --kv-dtype bf16); old=$("$L" submit $G -n 60 -s 7)
f32=$("$L" submit $G -n 60 -s 7 --compute f32); int16=$("$L" submit $G -n 60 -s 7 --kv-dtype int16)
python3 -c 'import json, sqlite3, sys
c = sqlite3.connect(sys.argv[1])
for job in sys.argv[2:]:
    p = json.loads(c.execute("SELECT parameters FROM input WHERE job = ?", (job,)).fetchone()[0])
    assert p.pop("kv_dtype") == "auto"
    c.execute("UPDATE input SET parameters = ? WHERE job = ?", (json.dumps(p), job))
c.commit()' "$LONGHAND_DB" $old $f32; result the_parameters_name_the_cache_type $?
"$L" work -q
for id in $bf16 $old $f32 $int16; do
    "$L" show $id --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["numerics"])'
done | tr '\n' ' ' >"$TMP/a"
[ "$(cat "$TMP/a")" = "cpu-1-bf16 cpu-1-bf16 cpu-1-f32 cpu-1-int16 " ]
result each_cache_has_its_numerics_id $? "$(cat "$TMP/a")"
"$L" text $bf16 --format ids >"$TMP/a"; "$L" text $old --format ids >"$TMP/b"
same a_job_without_a_kv_dtype_is_bf16 "$TMP/a" "$TMP/b"
check f32_has_its_own_cache 2 '--kv-dtype int16: under --compute f32 the cache is f32' run $G -n 5 \
    --compute f32 --kv-dtype int16
LONGHAND=$LONGHAND_TEST check a_device_without_int16_rejects_it 2 \
    '--kv-dtype int16 is not supported on this device .auto and bf16 are.' run $G -n 5 --device emulated \
        --kv-dtype int16

# extend and fork
id=$("$L" submit $G -n 150 -s 7); "$L" work -q; "$L" extend $id --tokens +150; "$L" work -q
"$L" text $id >"$TMP/a"; same extend_equals_one_longer_run "$TMP/whole" "$TMP/a"
check extend_needs_a_plus 2 "--tokens \+N is needed" extend $id --tokens 5
fork=$("$L" fork $id --at 100 --seed 7); "$L" work -q; "$L" text $fork >"$TMP/a"
same fork_with_the_same_seed_is_the_same "$TMP/whole" "$TMP/a"
fork=$("$L" fork $id --at 100 --tokens 200); "$L" work -q; "$L" text $fork --format ids >"$TMP/a"
head -100 "$TMP/ids" >"$TMP/b"; head -100 "$TMP/a" >"$TMP/c"; same fork_shares_the_beginning "$TMP/b" "$TMP/c"
[ "$(wc -l <"$TMP/a")" = 200 ]; result fork_has_its_length $? "$(wc -l <"$TMP/a")"
head -200 "$TMP/ids" >"$TMP/b"; differ fork_draws_a_seed "$TMP/a" "$TMP/b"
check fork_beyond_the_end 2 '--at 9999: job .* has 300 tokens' fork $id --at 9999
word=$(tr -c 'a-z' '\n' <"$TMP/whole" | grep -E '^.{4,}' | sed -n 5p)
id=$("$L" submit $G -n 300 -s 7 --stop "$word"); "$L" work -q; "$L" text $id >"$TMP/before"
check extend_of_a_stopped_text 2 'has ended by itself' extend $id --tokens +20
"$L" extend $id --tokens +20 --append "

Chapter $word

" && "$L" work -q; "$L" text $id >"$TMP/a"
end=$("$L" submit $G -n 300 -s 7 --stop "$word"); "$L" work -q; n=$(tokens_of $end)
check fork_after_the_end_of_a_stopped_text 2 \
    "--at $n: job $end has ended by itself .*--at [0-9]+ leaves the end out" fork $end --at $n
at=$(sed -n 's/.*--at \([0-9]*\) leaves.*/\1/p' "$TMP/err")
fork=$("$L" fork $end --at "$at" --seed 8 --append ' and'); "$L" work -q; "$L" text $fork >"$TMP/c"
(cat "$TMP/before"; printf ' and') >"$TMP/b"
[ "$at" -gt 0 ] && [ "$(wc -c <"$TMP/c")" -gt "$(wc -c <"$TMP/b")" ]
result fork_before_the_end_continues $? "at $at: $(cat "$TMP/c")"
(cat "$TMP/before"; printf '\n\nChapter %s\n\n' "$word") >"$TMP/b"
cmp -s -n "$(wc -c <"$TMP/b")" "$TMP/b" "$TMP/a" && [ "$(wc -c <"$TMP/a")" -gt "$(wc -c <"$TMP/b")" ]
result append_follows_the_text_before_the_stop_string $? "$(cat "$TMP/a")"
# Ids are those of the text, given tokens too, so --from and --at count them; JSON marks the given ones.
"$L" text $id --format ids >"$TMP/a"
"$L" text $id --json --format ids >"$TMP/json"; "$L" list $id --json >"$TMP/list"
python3 - "$TMP" <<'PY' 2>"$TMP/err"
import json, sys
job, = json.load(open(sys.argv[1] + "/list"))["jobs"]
text, = json.load(open(sys.argv[1] + "/json"))
mark, = text["given"]
ids = [int(x) for x in open(sys.argv[1] + "/a")]
assert len(ids) == job["tokens"] and ids == text["ids"] and mark["tokens"] == job["given_tokens"] > 3, mark
print(*ids[mark["start"]:mark["start"] + mark["tokens"]], sep="\n", file=open(sys.argv[1] + "/given", "w"))
print(mark["start"], file=open(sys.argv[1] + "/start", "w"))
PY
result ids_are_those_of_the_text $? "$(tail -1 "$TMP/err")"
printf '\n\nChapter %s\n\n' "$word" >"$TMP/b"; "$L" tokenize -m "$TMP/model" --decode "$TMP/given" |
    tail -c "$(wc -c <"$TMP/b")" >"$TMP/c"       # the first one may begin with bytes before the stop string
same json_marks_the_given_ids "$TMP/b" "$TMP/c"
start=$(cat "$TMP/start")
"$L" tail $id --from "$start" --format ids | head -n "$(wc -l <"$TMP/given")" >"$TMP/b"
same tail_counts_given_tokens "$TMP/given" "$TMP/b"
"$L" tail $id --from 0 --format ids >"$TMP/b"; same tail_ids_are_those_of_the_text "$TMP/a" "$TMP/b"
"$L" export $id --format ids >"$TMP/b"; same export_ids_are_those_of_the_text "$TMP/a" "$TMP/b"
"$L" run --resume $id --format ids -q >"$TMP/b"; same run_ids_are_those_of_the_text "$TMP/a" "$TMP/b"
fork=$("$L" fork $id --at $((start + 2)) --tokens $((start + 40)))
"$L" pause "$fork" -q; "$L" run --resume "$fork" --format ids -q >"$TMP/b"
head -$((start + 2)) "$TMP/a" >"$TMP/c"; head -$((start + 2)) "$TMP/b" >"$TMP/d"
same a_fork_within_given_tokens_begins_with_them "$TMP/c" "$TMP/d"
id=$("$L" submit -m "$TMP/model" -f "$P" -n 60 -s 7); "$L" work -q 2>/dev/null; mv "$TMP/model" "$TMP/gone"
"$L" text $id --format ids >"$TMP/b"; "$L" tail $id --from 0 --format ids >"$TMP/a"
same tail_ids_need_no_model "$TMP/b" "$TMP/a"
"$L" tail $id --from 55 --format ids -f >"$TMP/a"; tail -5 "$TMP/b" >"$TMP/c"
same tail_ids_follow_ends_with_the_text "$TMP/c" "$TMP/a"
sql "DELETE FROM model"                  # as in a store of an older longhand
check tail_text_of_an_older_store_needs_the_model 2 'format ids needs none' tail $id

# names that are not UTF-8 are shown, and JSON stays valid
strange=$TMP/$(printf 'caf\351'); mkdir "$strange"; cp $MODEL/*.json $MODEL/model.safetensors "$strange"
id=$("$L" submit -m "$strange" -p x -n 5 -s 1); "$L" work -q; "$L" text $id >"$strange/text"
("$L" list $id --json; "$L" show $id --json; "$L" report $id --json; "$L" export $id --format openai-batch; \
    "$L" inspect -m "$strange" --json; "$L" distinct --json "$strange/text") >"$TMP/a" 2>"$TMP/err"
python3 -c '
import json, sys
s, at, n = open(sys.argv[1], encoding="utf-8").read(), 0, 0
while s[at:].strip():
    at += len(s[at:]) - len(s[at:].lstrip())
    v, at = json.JSONDecoder().raw_decode(s, at)
    assert "caf\\\\xe9" in json.dumps(v), v
    n += 1
assert n == 6, n' "$TMP/a" 2>>"$TMP/err"; result names_that_are_no_utf8 $? "$(tail -1 "$TMP/err")"

# unusable stores
check no_store_here 2 'there is no store here' list --db "$TMP/none.db"
echo "not a database, but long enough to be looked at closely" >"$TMP/foreign"; cp "$TMP/foreign" "$TMP/a"
check foreign_store 2 'foreign' list --db "$TMP/foreign"
same foreign_store_is_left_alone "$TMP/foreign" "$TMP/a"
check store_in_no_folder 2 'there is no folder of this name' run $G -n 5 -q --db /proc/none/x.db

# An estimate before the work begins, from the last job of the model on this machine.
export LONGHAND_DB=$TMP/estimate.db
"$L" submit $G -n 40 -s 1 >/dev/null 2>"$TMP/err"; ! grep -q 'about' "$TMP/err"
result no_estimate_without_a_job $? "$(cat "$TMP/err")"
"$L" work -q
check submit_says_how_long 0 'about .* of work at the speed of the last job of this model' \
    submit $G -n 3m --allow-beyond-context -s 1
"$L" submit -m $MODEL --grid seed=1,2 -p x -n 400 --name g -q >/dev/null 2>"$TMP/err"; [ ! -s "$TMP/err" ]
result less_than_a_minute_is_not_said $? "$(cat "$TMP/err")"
"$L" list | sed -n 1p >"$TMP/a"; 
grep -q '; 40 of 3000840 tokens, about [0-9].* at the speed of the last job$' "$TMP/a"
result list_says_how_long $? "$(cat "$TMP/a")"
assert_json the_estimate_is_tokens_by_speed 'abs(j["estimate_seconds"] * [x for x in j["jobs"]
    if x["job"] == 1][0]["tokens_per_second"] / 3000800 - 1) < 0.01' list --json
exit $failed
