#!/bin/bash
# The log of work: a first line, lines with date and time, the progress of the whole queue, and a worker that
# makes no progress.
. tests/cli/lib.inc
L=$LONGHAND
export TERM=xterm
G=(-m "$MODEL" -p "Chapter 1" --ignore-eos -s 1 --drafter none)
day='^[0-9]{4}-[0-9][0-9]-[0-9][0-9] [0-9:]{8} '
batch() # FILE LINES TOKENS
{
    for i in $(seq "$2"); do
        printf '{"custom_id": "ch%s", "method": "POST", "url": "/v1/completions", "body": {%s}}\n' "$i" \
            "\"prompt\": \"Chapter $i\", \"max_tokens\": $3, \"ignore_eos\": true"
    done >"$1"
}
batch "$TMP/book.jsonl" 3 20
"$L" submit --batch "$TMP/book.jsonl" -m $MODEL -q >/dev/null
"$L" work 2>"$TMP/err" </dev/null
! grep -qvE "$day" "$TMP/err" && [ "$(wc -l <"$TMP/err")" = 7 ]
result log_lines_have_date_and_time $? "$(cat "$TMP/err")"
"$L" version >"$TMP/version"
commit=$(sed -n 's/^commit: //p' "$TMP/version")
if git rev-parse -q --verify HEAD >/dev/null 2>&1; then git cat-file -e "${commit%-dirty}^{commit}"
else [ "$commit" = "not known" ]; fi
result version_names_the_commit $? "$commit"
head -1 "$TMP/err" | grep \
    -qE "${day}$(head -1 "$TMP/version"): store $LONGHAND_DB, model $(realpath $MODEL), \
device cpu \($(sed -n 's/^chosen: //p' "$TMP/version")\), [1-9][0-9]* threads\$"
result the_first_line_names_version_store_model_device_threads $? "$(head -1 "$TMP/err")"
[ "$(grep -cE "${day}job [123] @book/ch[123]: begins at token 0 of 20\$" "$TMP/err")" = 3 ] &&
    [ "$(grep -cE "${day}job [123] @book/ch[123]: done, 20 of 20 tokens, " "$TMP/err")" = 3 ]
result a_job_begins_and_ends_with_its_custom_id_and_the_time $? "$(cat "$TMP/err")"
"$L" work --watch 2>"$TMP/err" </dev/null & pid=$!
for i in $(seq $((200 * slower))); do [ -s "$TMP/err" ] && break; sleep 0.05; done
kill -TERM $pid; wait $pid
! grep -qvE "$day" "$TMP/err" && grep -q 'model none' "$TMP/err"
result a_worker_without_jobs_says_who_it_is $? "$(cat "$TMP/err")"
python3 tests/cli/terminal.py "$L" work </dev/null >"$TMP/tty"
grep -q "no job is waiting" "$TMP/tty" && ! grep -qE "$day" "$TMP/tty"
tty_result a_terminal_needs_no_time $? "$(cat -v "$TMP/tty")"
rm "$LONGHAND_DB"
"$L" run --batch "$TMP/book.jsonl" -o "$TMP/out" -m $MODEL --progress json 2>"$TMP/json" </dev/null
python3 - "$TMP/json" <<'PY' 2>"$TMP/err"
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
def of(phase): return [l for l in lines if l["phase"] == phase]
assert of("worker")[0]["version"] and of("worker")[0]["threads"] >= 1
assert sorted(l["custom_id"] for l in of("begins")) == sorted(l["custom_id"] for l in of("done")) == \
    ["ch1", "ch2", "ch3"]
q = of("queue")[0]
assert (q["name"], q["jobs"], q["done"], q["tokens"], q["of"]) == ("book", 3, 0, 0, 60), q
PY
result the_log_in_json $? "$(tail -1 "$TMP/err") $(cat "$TMP/json")"

# A worker that is stopped before its first plain line is due, at a moment when it does not write to the
# store, and whose last commits are made older. Then it goes on.
batch "$TMP/long.jsonl" 2 90000
"$L" run --batch "$TMP/long.jsonl" -m $MODEL -o "$TMP/long" 2>"$TMP/err" </dev/null & pid=$!
for i in $(seq $((400 * slower))); do
    [ "$("$L" list @long --json 2>"$TMP/list" | grep -c '^ *"tokens_per_second": [1-9]')" -ge 3 ] && break
    sleep 0.05
done
"$L" list @long >"$TMP/list"; ! grep -q 'no progress' "$TMP/list"
result a_worker_that_writes_makes_progress $? "$(cat "$TMP/list")"
for i in $(seq 20); do
    kill -STOP $pid
    python3 -c 'import sqlite3, sys
c = sqlite3.connect(sys.argv[1], timeout=1)
c.execute("UPDATE job SET updated = updated - 30")
c.commit()' "$LONGHAND_DB" 2>"$TMP/busy" && break
    kill -CONT $pid; sleep 0.1
done
"$L" list @long >"$TMP/list"; "$L" show @long/ch1 >"$TMP/show"; "$L" list @long --json >"$TMP/list.json"
kill -CONT $pid
[ "$(grep -cE 'no progress for 3[0-9] s' "$TMP/list")" = 2 ] && ! head -1 "$TMP/list" | grep -q 'tokens/s' &&
    grep -q 'process.*no progress for 3[0-9] s' "$TMP/show" &&
        grep -q '"no_progress_seconds": 3' "$TMP/list.json"
result a_stopped_worker_makes_no_progress $? "$(cat "$TMP/list" "$TMP/show")"
for i in $(seq $((400 * slower))); do grep -q 'of 2 jobs' "$TMP/err" && break; sleep 0.05; done
"$L" list @long >"$TMP/list"; ! grep -q 'no progress' "$TMP/list"
result it_goes_on $? "$(cat "$TMP/list")"
kill -TERM $pid; wait $pid
done_so_far='0 of 2 jobs, [1-9][0-9]* of 180000 tokens \([0-9.]+ %\)'
grep -qE "${day}@long: $done_so_far, [0-9.]+ tokens/s, [0-9:]+ left\$" "$TMP/err"
result a_batch_shows_done_of_total_rate_and_eta $? "$(cat "$TMP/err")"
exit $failed
