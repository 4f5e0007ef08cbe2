#!/bin/bash
# Jobs whose model cannot be read for a moment stay in the queue, and --model names a new place.
. tests/cli/lib.inc
L="$LONGHAND"
copy() { mkdir -p "$1"; cp $MODEL/*.json $MODEL/*.safetensors "$1"; }
state() { "$L" list "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["jobs"][0]["state"])'; }
submit() { "$L" submit -q -m "$1" -p "Once upon a time" -n 20 -s "$2" --threads 1; }
copy "$TMP/a"; copy "$TMP/b"
one=$(submit "$TMP/a" 1); two=$(submit "$TMP/b" 2); three=$(submit "$TMP/a" 3)
mv "$TMP/a" "$TMP/gone"

# The worker writes the other job, and says once that two jobs wait.
check work_with_a_missing_model 1 'stay queued because their model cannot be read' work --threads 1 --progress plain
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
exit $failed
