#!/bin/bash
# Signals and closed pipes end a run with exit code 75, full disks with 1. The text so far has been written,
# and the job can be resumed.
. tests/cli/lib.inc
P=models/demo/openings/portrait.txt
"$LONGHAND" run -m $MODEL -f $P -n 400 -s 7 -q >"$TMP/whole"
for s in INT TERM HUP USR1; do
    rm -f "$TMP/t"
    # A background process ignores SIGINT; env restores the default action.
    env --default-signal=INT,HUP "$LONGHAND" run -m $MODEL -f $P -n 100000 -s 7 >"$TMP/t" 2>"$TMP/err" &
    pid=$!
    for i in $(seq $((600 * slower))); do
        [ -n "$(find "$TMP" -name t -size +20c)" ] && break; sleep 0.05
    done
    kill -$s $pid
    wait $pid
    r=$?
    n=$(wc -c <"$TMP/t"); m=$(wc -c <"$TMP/whole"); k=$((n < m ? n : m))
    [ $r = 75 ] && grep -q "stopped by SIG$s after [0-9]* of 100000 tokens" "$TMP/err" && [ "$n" -gt 20 ] &&
        cmp -s -n $k "$TMP/t" "$TMP/whole"
    result sig${s,,}_ends_the_run_with_75_and_a_true_beginning $? "exit $r, $n bytes: $(tail -1 "$TMP/err")"
done
"$LONGHAND" run -m $MODEL -f $P -n 100000 -s 7 -o "$TMP/file" -q 2>"$TMP/err" &
pid=$!
for i in $(seq $((600 * slower))); do
    [ -n "$(find "$TMP" -name 'file.part-*' -size +20c)" ] && break; sleep 0.05
done
kill -TERM $pid; wait $pid; r=$?
part=$(ls "$TMP"/file.part-*)
[ $r = 75 ] && [ ! -e "$TMP/file" ] && grep -q "the text so far is in $part" "$TMP/err" &&
    cmp -s -n 20 "$part" "$TMP/whole"
result interrupted_output_keeps_its_temporary_name $? "exit $r: $(cat "$TMP/err")"

"$LONGHAND" run -m $MODEL -f $P -n 5000 -s 7 -q 2>"$TMP/err" | head -c 10 >"$TMP/t"
r=${PIPESTATUS[0]}
head -c 10 "$TMP/whole" >"$TMP/a"
[ $r = 75 ] && grep -q 'standard output was closed' "$TMP/err"
result closed_pipe_ends_the_run_with_75 $? "exit $r: $(cat "$TMP/err")"
same closed_pipe_received_the_beginning "$TMP/t" "$TMP/a"
# Verbs that only print: the reader closes the pipe, or the disk is full.
for v in "list" "list --json" "text --all" "show --all" "report --all" "help --all" \
    "export --all --format jsonl --partial"; do
    exec 3> >(exec true); wait $!                # a pipe whose reader is gone
    "$LONGHAND" $v >&3 2>"$TMP/err"; r=$?; exec 3>&-
    [ $r = 0 ] && [ ! -s "$TMP/err" ]
    result "closed_pipe_ends_${v// /_}_silently" $? "exit $r: $(cat "$TMP/err")"
    [ -w /dev/full ] || continue
    "$LONGHAND" $v >/dev/full 2>"$TMP/err"; r=$?
    [ $r = 1 ] && grep -q '^longhand: standard output: cannot write: No space left' "$TMP/err"
    result "full_disk_ends_${v// /_}_with_1" $? "exit $r: $(cat "$TMP/err")"
done
(ulimit -f 1; "$LONGHAND" help --all >"$TMP/t" 2>"$TMP/err"); r=$?
[ $r = 1 ] && grep -q '^longhand: standard output: cannot write: File too large' "$TMP/err"
result a_limit_of_file_size_ends_help_with_1 $? "exit $r: $(cat "$TMP/err")"
if [ -w /dev/full ]; then
    "$LONGHAND" submit -m $MODEL -p x -n 5 >/dev/full 2>"$TMP/err"; r=$?
    id=$(sed -n 's/^longhand: job \([0-9]*\) is in the queue: .*No space left.*/\1/p' "$TMP/err")
    [ $r = 1 ] && "$LONGHAND" remove -q "${id:-0}"
    result a_job_whose_number_was_not_printed_is_named $? "exit $r: $(cat "$TMP/err")"
    "$LONGHAND" submit -m $MODEL -p x -n 5 --samples 3 >/dev/full 2>"$TMP/err"; r=$?
    [ $r = 1 ] &&
        grep -q "^longhand: jobs $((id + 1)) to $((id + 3)) are in the queue: .*No space left" "$TMP/err" &&
        "$LONGHAND" list $((id + 3)) >/dev/null
    result jobs_whose_numbers_were_not_printed_are_named $? "exit $r $(cat "$TMP/err")"
    "$LONGHAND" run -m $MODEL -f $P -n 50 -s 7 -q >/dev/full 2>"$TMP/err"; r=$?
    [ $r = 1 ] && grep -q 'No space left' "$TMP/err"; result full_disk_ends_the_run_with_1 $? "exit $r"
    "$LONGHAND" help >/dev/full 2>"$TMP/err"; r=$?
    [ $r = 1 ]; result full_disk_is_noticed_by_help $? "exit $r"
else
    skip full_disk_ends_the_run_with_1 "no /dev/full"
fi
"$LONGHAND" run -m $MODEL -p x -n 5 -s 7 -q >&- 2>"$TMP/err"; r=$?
[ $r = 1 ] && grep -q 'cannot write' "$TMP/err"
result closed_standard_output_is_an_error $? "exit $r: $(cat "$TMP/err")"
"$LONGHAND" run -m $MODEL -p x -n 5 -s 7 -o "$TMP/o" 2>&- &&
    "$LONGHAND" run -m $MODEL -p x -n 5 -s 7 -q >"$TMP/t" && cmp -s "$TMP/t" "$TMP/o"
result closed_standard_error_does_not_get_into_the_output $? "differs"

# A worker that has nothing to do leaves nothing to others.
watch() # ARGS..: a worker that has said that it begins
{
    "$LONGHAND" work --watch "$@" 2>"$TMP/err" & pid=$!
    for i in $(seq $((200 * slower))); do [ -s "$TMP/err" ] && break; sleep 0.05; done
}
"$LONGHAND" cancel --all -q 2>"$TMP/err"
watch; sleep 0.2; kill -TERM $pid; wait $pid; r=$?
[ $r = 0 ] && tail -1 "$TMP/err" | grep -q 'stopped by SIGTERM; no job is waiting$'
result watch_without_work_ends_with_0 $? "exit $r: $(cat "$TMP/err")"
id=$("$LONGHAND" submit -m $MODEL -f $P -n 100000 -s 7)
watch
for i in $(seq $((200 * slower))); do
    "$LONGHAND" list $id | grep -q ' running .* [1-9]' && break; sleep 0.05
done
watch2=$pid; cp "$TMP/err" "$TMP/first"; watch; sleep 0.2; kill -TERM $pid; wait $pid; r=$?
[ $r = 0 ]; result watch_beside_a_worker_that_writes_ends_with_0 $? "exit $r: $(cat "$TMP/err")"
kill -TERM $watch2; wait $watch2; r=$?
[ $r = 75 ]; result watch_with_work_ends_with_75 $? "exit $r: $(cat "$TMP/first")"
"$LONGHAND" cancel $id -q

# While another program holds the database, a notice says that longhand waits for it. A second Ctrl-C
# ends the program, and the job can still be resumed.
holder()
{
    python3 -c '
import os, sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=60)
db.execute("BEGIN EXCLUSIVE")
open(sys.argv[2], "w").close()
while os.path.exists(sys.argv[2]): time.sleep(0.02)' "$LONGHAND_DB" "$TMP/held" & holds=$!
    for i in $(seq 600); do [ -e "$TMP/held" ] && break; sleep 0.05; done
}
for form in plain json other; do
    rm -f "$TMP/t"
    env --default-signal=INT,HUP "$LONGHAND" run -m $MODEL -f $P -n 100000 -s 7 --kv-snapshot off --progress \
        ${form/other/plain} >"$TMP/t" 2>"$TMP/err" &
    pid=$!
    for i in $(seq 600); do [ -n "$(find "$TMP" -name t -size +20c)" ] && break; sleep 0.05; done
    holder
    kill -INT $pid
    [ $form = other ] && kill -HUP $pid            # a pair counts as one signal
    if [ $form = json ]; then
        words='"phase": "stopping", "waiting_for": "the database"'
    else
        words='^stopping: waiting for the database; a second Ctrl-C leaves at once'
    fi
    for i in $(seq 100); do grep -q "$words" "$TMP/err" && break; sleep 0.05; done
    grep -q "$words" "$TMP/err" && kill -0 $pid
    result the_notice_names_the_database_$form $? "$(cat "$TMP/err")"
    if [ $form = plain ]; then                     # the database is free again, so the end is clean
        rm "$TMP/held"; wait $holds $pid; r=$?
        [ $r = 75 ] && tail -1 "$TMP/err" | grep -q 'stopped by SIGINT after'
        result the_run_then_ends_cleanly $? "exit $r: $(cat "$TMP/err")"
    elif [ $form = other ]; then                   # a second later any signal counts as the second
        sleep 1.2; kill -TERM $pid; wait $pid; r=$?
        [ $r = 143 ]; result a_later_signal_ends_the_run_at_once $? "exit $r: $(cat "$TMP/err")"
        rm "$TMP/held"; wait $holds
    else
        kill -INT $pid; wait $pid; r=$?
        [ $r = 130 ]; result a_second_signal_ends_the_run_at_once $? "exit $r: $(cat "$TMP/err")"
        rm "$TMP/held"; wait $holds
    fi
    id=$(sed -n 's/^job: //p; s/.*"phase": "start", "job": \([0-9]*\).*/\1/p' "$TMP/err")
    "$LONGHAND" run --resume $id -q 2>"$TMP/err" | head -c $(wc -c <"$TMP/whole") >"$TMP/a"
    same the_job_is_resumed_$form "$TMP/whole" "$TMP/a"
done
exit $failed
