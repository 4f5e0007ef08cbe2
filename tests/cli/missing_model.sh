#!/bin/bash
# Jobs whose model cannot be read for a moment stay in the queue, and --model names a new place.
. tests/cli/lib.inc
L="$LONGHAND"
copy() { mkdir -p "$1"; cp $MODEL/*.json $MODEL/*.safetensors "$1"; }
state() { "$L" list "$1" --json | python3 -c 'import json, sys
print(json.load(sys.stdin)["jobs"][0]["state"])'; }
submit() { "$L" submit -q -m "$1" -p "Once upon a time" -n 20 -s "$2" --threads 1; }
copy "$TMP/a"; copy "$TMP/b"
one=$(submit "$TMP/a" 1); two=$(submit "$TMP/b" 2); three=$(submit "$TMP/a" 3)
mv "$TMP/a" "$TMP/gone"

# The worker writes the other job, and says once that two jobs wait.
check work_with_a_missing_model 1 'stay queued because their model cannot be read' \
    work --threads 1 --progress plain
[ "$(state $one) $(state $two) $(state $three)" = "queued done queued" ]
result jobs_of_a_missing_model_stay_queued $? "$(state $one) $(state $two) $(state $three)"
[ "$(grep -c 'stays queued after' "$TMP/err")" = 1 ]; result said_once $? "$(cat "$TMP/err")"
for i in 1 2 3 4; do "$L" work --threads 1 --max-attempts 2 2>/dev/null; done
[ "$(state $one)" = queued ]; result waiting_is_no_attempt $? "$(state $one)"
mv "$TMP/gone" "$TMP/a"; rm "$TMP/a/tokenizer.json"
check unreadable_file_of_a_model 1 'tokenizer.json: cannot open' work --threads 1
[ "$(state $one)" = queued ]; result a_missing_file_leaves_jobs_queued $? "$(state $one)"

# --watch looks again.
"$L" work --watch --threads 1 --progress plain 2>"$TMP/watch" & pid=$!
for i in $(seq 100); do grep -q 'stays queued' "$TMP/watch" && break; sleep 0.1; done
cp $MODEL/tokenizer.json "$TMP/a"
for i in $(seq 200); do [ "$(state $three)" = done ] && break; sleep 0.1; done
kill $pid; wait $pid
[ "$(state $one) $(state $three)" = "done done" ]; result watch_looks_again $? "$(cat "$TMP/watch")"
[ "$(grep -c 'stays queued' "$TMP/watch")" = 1 ]; result watch_says_it_once $? "$(cat "$TMP/watch")"

# Files that are not whole, or not those of one model, may be on their way.
# Waiting leaves no trace in the job.
four=$(submit "$TMP/a" 4); "$L" show $four --json | grep -v '"updated"' >"$TMP/before"
other_place='work --model PATH and resume [0-9]+ --model PATH name another place'
for half in "{" "{}" ""; do
    printf '%s' "$half" >"$TMP/a/config.json"
    check "half_a_config_waits_${#half}" 1 \
        'job [0-9]+: stays queued after 0 of 20 tokens: .*; '"$other_place" \
        work --threads 1
done
cp $MODEL/config.json "$TMP/a"; head -c 100000 $MODEL/tokenizer.json >"$TMP/a/tokenizer.json"
check half_a_tokenizer_waits 1 'stays queued' work --threads 1
cp $MODEL/tokenizer.json "$TMP/a"; head -c 300000 $MODEL/model.safetensors >"$TMP/a/model.safetensors"
check half_the_weights_wait 1 'stays queued' work --threads 1
"$L" show $four --json | grep -v '"updated"' | diff "$TMP/before" - >"$TMP/diff"
result waiting_leaves_no_trace $? "$(cat "$TMP/diff")"
mv "$TMP/a" "$TMP/gone"
check says_where_it_looked 1 "stays queued after 0 of 20 tokens: model $TMP/a: No such file" work --threads 1
! grep -q -- '--model:' "$TMP/err"; result names_no_option_that_nobody_gave $? "$(cat "$TMP/err")"
mv "$TMP/gone" "$TMP/a"; cp $MODEL/model.safetensors "$TMP/a"
check the_job_goes_on_when_they_are_whole 0 '' work -q --threads 1
[ "$(state $four)" = done ]; result and_is_done $? "$(state $four)"

# A permanent error fails a job.
bad=$(submit "$TMP/a" 4); sql "UPDATE input SET parameters = '{}' WHERE job = $bad"
"$L" work --threads 1 2>/dev/null; [ "$(state $bad)" = failed ]
result a_permanent_error_fails_the_job $? "$(state $bad)"

# ---- another tokenizer under a job that has not begun ----
copy "$TMP/t"; five=$(submit "$TMP/t" 4)
python3 - "$TMP/t/tokenizer.json" <<'P'
import json, sys
t = json.load(open(sys.argv[1])); v = t["model"]["vocab"]
a, b = [k for k in v if k.isalpha() and len(k) == 4][:2]; v[a], v[b] = v[b], v[a]
json.dump(t, open(sys.argv[1], "w"))
P
check another_tokenizer_fails_the_job 1 \
    'was submitted with the tokenizer [0-9a-f]{16}\.\., and .* has [0-9a-f]{16}\.\. now' work --threads 1
[ "$(state $five)" = failed ]; result the_job_is_failed $? "$(state $five)"
check another_tokenizer_is_refused_at_a_new_place 2 'submitted with another tokenizer' \
    resume $five --model "$TMP/t"
[ "$(state $five)" = failed ]; result a_refused_resume_changes_nothing $? "$(state $five)"
check another_tokenizer_can_be_accepted 0 '' resume -q $five --model "$TMP/t" --accept-numerics-change
check and_is_not_asked_again 0 '' work -q --threads 1
[ "$(state $five)" = done ]; result the_accepted_job_is_done $? "$(state $five)"
old=$(submit "$TMP/t" 4); cp $MODEL/tokenizer.json "$TMP/t"
sql "UPDATE input SET parameters = json_remove(parameters, '\$.tokenizer') WHERE job = $old"
check a_job_of_an_older_version_is_accepted 0 '' work -q --threads 1
# other weights: nothing was written yet
six=$(submit "$TMP/t" 5); python3 - "$TMP/t/model.safetensors" <<'P'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(-1, 2); b = f.read(1); f.seek(-1, 2); f.write(bytes([b[0] ^ 2]))
P
check other_weights_of_a_job_that_has_not_begun 0 '' work -q --threads 1
[ "$(state $old) $(state $six)" = "done done" ]; result both_are_done $? "$(state $old) $(state $six)"

# ---- --model: a new place ----
copy "$TMP/c"; copy "$TMP/other"
python3 - "$TMP/other/model.safetensors" <<'P'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(-1, 2); b = f.read(1); f.seek(-1, 2); f.write(bytes([b[0] ^ 1]))
P
id=$(submit "$TMP/c" 5); begun=$(submit "$TMP/c" 6); half=$(submit "$TMP/c" 7)
"$L" work -q --threads 1 --max-jobs 2 2>/dev/null; "$L" pause -q $half; mv "$TMP/c" "$TMP/d"
"$L" text $id >"$TMP/before"
check work_takes_no_other_model 2 'no job of this store has its fingerprint' \
    work --model "$TMP/other" --threads 1
check resume_takes_no_other_model 2 'has the fingerprint [0-9a-f]+, and this one has [0-9a-f]+' \
    extend $id --tokens +20 --model "$TMP/other"
check resume_at_the_new_place 0 '1 job queued again' resume $half --model "$TMP/d"
check work_at_the_new_place 0 '' work -q --threads 1
check extend_at_the_new_place 0 'job [0-9]+ is queued' extend $id --tokens +20 --model "$TMP/d"
fork=$("$L" fork $id --at 10 --seed 9 --model "$TMP/d"); "$L" work -q --threads 1
[ "$(state $half) $(state $id) $(state $fork)" = "done done done" ]
result the_jobs_go_on $? "$(state $half) $(state $id) $(state $fork)"
"$L" run -q -m "$TMP/d" -p "Once upon a time" -n 40 -s 5 --threads 1 >"$TMP/whole" 2>/dev/null
"$L" text $id >"$TMP/now"; same the_text_is_that_of_one_run "$TMP/whole" "$TMP/now"
# work --model: all jobs of the model, in a copy of the store at another place
"$L" extend $id --tokens +20; "$L" extend $half --tokens +20; mv "$TMP/d" "$TMP/e"
cp "$LONGHAND_DB" "$TMP/copy.db"; export LONGHAND_DB=$TMP/copy.db
check work_model_moves_all_jobs 0 '' work -q --threads 1 --model "$TMP/e"
[ "$(state $half) $(state $id)" = "done done" ]
result a_copied_store_goes_on $? "$(state $half) $(state $id)"

# Jobs that have not begun: work --model as resume --model
copy "$TMP/n1"; copy "$TMP/n2"; n1=$(submit "$TMP/n1" 8); n2=$(submit "$TMP/n2" 8); mv "$TMP/n1" "$TMP/n3"
check work_model_of_jobs_that_have_not_begun 0 '' work -q --threads 1 --model "$TMP/n3"
[ "$(state $n1) $(state $n2)" = "done done" ]; result they_are_written $? "$(state $n1) $(state $n2)"
[ "$("$L" show $n2 --json | grep -c "$TMP/n2")" = 1 ]; result others_stay_where_they_are $?

# Another model that is accepted is not asked for twice, and a refused command changes nothing.
"$L" show $half --json >"$TMP/before"
check extend_with_too_many_tokens 2 'beyond this model' extend $half --tokens +999999999 \
    --model "$TMP/other" \
    --accept-numerics-change
check extend_without_tokens 2 'needed' extend $half --model "$TMP/other" --accept-numerics-change
"$L" show $half --json | diff "$TMP/before" - >"$TMP/diff"
result a_refused_extend_changes_nothing $? "$(cat "$TMP/diff")"
child=$("$L" fork $half --at 10 --seed 3 --model "$TMP/other" --accept-numerics-change 2>/dev/null)
"$L" show $half --json | diff "$TMP/before" - >"$TMP/diff"
result a_fork_leaves_its_parent $? "$(cat "$TMP/diff")"
"$L" extend -q $half --tokens +20 --model "$TMP/other" --accept-numerics-change
check an_accepted_model_is_not_asked_twice 0 '' work -q --threads 1
[ "$(state $half) $(state $child)" = "done done" ]
result accepted_jobs_are_done $? "$(state $half) $(state $child)"
"$L" verify $half >"$TMP/verify" &&
    grep -q '60 tokens, chain whole, 20 derived again: identical' "$TMP/verify"
result verify_leaves_out_tokens_of_the_other_model $? "$(cat "$TMP/verify")"
"$L" verify $child >"$TMP/verify" && grep -q '30 derived again: identical' "$TMP/verify"
result verify_of_the_fork $? "$(cat "$TMP/verify")"

# A batch that is submitted again with its model at another place: the jobs move along.
copy "$TMP/p1"
printf '{"prompt": "Once %s", "custom_id": "%s"}\n' a a b b >"$TMP/moves.jsonl"
again() { "$L" submit --batch "$TMP/moves.jsonl" -q -n 10 --threads 1 -m "$@"; }
places() { "$L" list @moves --json | python3 -c 'import json, sys
print(*sorted({j["model"] for j in json.load(sys.stdin)["jobs"]}))'; }
again "$TMP/p1" >/dev/null; "$L" work -q --threads 1 --max-jobs 1 2>/dev/null; cp -r "$TMP/p1" "$TMP/p2"
sed 's/Once b/Twice b/' "$TMP/moves.jsonl" >"$TMP/other.jsonl"
check a_batch_again_with_another_prompt 2 'line 2' submit --batch "$TMP/other.jsonl" --name moves -n 10 \
    -m "$TMP/p2"
[ "$(places)" = "$TMP/p1" ]; result a_refused_batch_moves_nothing $? "$(places)"
again "$TMP/p2" >/dev/null 2>"$TMP/err"
result a_batch_again_with_the_model_at_another_place $? "$(cat "$TMP/err")"
[ "$(places)" = "$TMP/p2" ]; result its_jobs_move_along $? "$(places)"
check a_batch_again_with_another_model 2 'other options: model \(2 jobs\)' \
    submit --batch "$TMP/moves.jsonl" -n 10 -m "$TMP/other"
again "$TMP/other" --keep >/dev/null; [ "$(places)" = "$TMP/p2" ]; result keep_moves_nothing $? "$(places)"
mv "$TMP/p2" "$TMP/p3"; echo >>"$TMP/p3/tokenizer.json"
check a_batch_again_with_another_tokenizer 2 'other options: model \(2 jobs\)' \
    submit --batch "$TMP/moves.jsonl" -n 10 -m "$TMP/p3"
again "$TMP/p1" >/dev/null 2>"$TMP/err"
[ "$(places)" = "$TMP/p1" ]; result also_from_a_place_that_is_gone $? "$(cat "$TMP/err") $(places)"
check the_batch_is_written_there 0 '' work -q --threads 1

# A model with another tokenizer never continues a text.
"$L" extend $id --tokens +20
check resume_says_where_the_model_is_now 0 "^1 job: the model is at $TMP/e now$" resume $id --model "$TMP/e"
cp -r "$TMP/e" "$TMP/f"; echo " " >>"$TMP/f/tokenizer.json"
check a_changed_model_is_refused 2 'has the fingerprint' resume $id --model "$TMP/f"
check a_changed_tokenizer_is_never_accepted 2 'has another tokenizer' \
    resume -q $id --model "$TMP/f" --accept-numerics-change
exit $failed
