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

# A permanent error fails a job.
four=$(submit "$TMP/a" 4); echo '{}' >"$TMP/a/config.json"
"$L" work --threads 1 2>/dev/null; [ "$(state $four)" = failed ]
result a_permanent_error_fails_the_job $? "$(state $four)"

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

# A model with another tokenizer never continues a text.
"$L" extend $id --tokens +20
check resume_says_where_the_model_is_now 0 "^1 job: the model is at $TMP/e now$" resume $id --model "$TMP/e"
cp -r "$TMP/e" "$TMP/f"; echo " " >>"$TMP/f/tokenizer.json"
check a_changed_model_is_refused 2 'has the fingerprint' resume $id --model "$TMP/f"
check a_changed_model_can_be_accepted 0 '' resume -q $id --model "$TMP/f" --accept-numerics-change
check a_changed_tokenizer_cannot 1 'has another tokenizer' work --threads 1 --accept-numerics-change
exit $failed
