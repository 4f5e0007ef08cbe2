#!/bin/bash
# work --device cuda:all with two emulated GPUs: a worker for each GPU, one queue, one signal for all workers,
# the worst exit code.
. tests/cli/lib.inc
M=build/data/models/llama3-old-bf16
LONGHAND=$LONGHAND_TEST L=$LONGHAND_TEST
head -c 60 build/data/models/short.txt >"$TMP/prompt"
G="-m $M -f $TMP/prompt --ignore-eos --device emulated --drafter none"
wait_for() { for i in $(seq 3000); do eval "$1" && return 0; sleep 0.02; done; return 1; }
in_state() { "$L" list --all | awk -v s=$1 'NR > 2 && $2 == s { n++ } END { print n + 0 }'; }
children() { cat /proc/$1/task/$1/children 2>/dev/null; }
gone()
{
    for p in "$@"; do [ ! -e /proc/$p ] || grep -q '^State:.Z' /proc/$p/status 2>/dev/null || return 1; done
}

for s in 1 2 3; do
    "$L" run $G -n 6 -s $s -q --format ids >"$TMP/plain$s"; "$L" submit $G -n 6 -s $s >"$TMP/id$s"
done
"$L" work --device emulated:all --progress none 2>"$TMP/err"; r=$?
[ $r = 0 ] && [ "$(in_state done)" = 6 ]; result all_devices_empty_the_queue $? "exit $r: $(cat "$TMP/err")"
bad=; for s in 1 2 3; do "$L" text $(cat "$TMP/id$s") --format ids >"$TMP/a"
[ -s "$TMP/a" ] && cmp -s "$TMP/a" "$TMP/plain$s" || bad="$bad $s"; done
[ -z "$bad" ]; result all_devices_write_the_same_texts $? "$bad"

# Two workers run at the same time; a signal to the parent stops both.
a=$("$L" submit $G -n 3000 -s 1); b=$("$L" submit $G -n 3000 -s 2)
"$L" work -q --device emulated:all 2>"$TMP/err" & pid=$!
wait_for "[ \$(in_state running) = 2 ]"; result all_devices_work_at_once $? "$("$L" list --all)"
kids=$(children $pid); kill -TERM $pid; wait $pid; r=$?
[ $r = 75 ] && [ "$(in_state running)" = 0 ] && [ "$(in_state queued)" = 2 ] &&
    [ "$(echo $kids | wc -w)" = 2 ] && gone $kids
result all_devices_stop_at_one_signal $? "exit $r: $(cat "$TMP/err"; "$L" list --all)"

# Both workers fail: the worst exit code. A killed parent takes its workers with it.
LONGHAND_EMULATED_FAIL=5 "$L" work -q --device emulated:all 2>"$TMP/err"; r=$?
[ $r = 1 ] && grep -q 'longhand: emulated:[01]: job .* it is queued again' "$TMP/err" &&
    tail -1 "$TMP/err" | grep -q '[12] of 2 workers failed or stopped'
result all_devices_return_the_worst_code $? "exit $r: $(cat "$TMP/err")"
"$L" work -q --device emulated:all 2>/dev/null & pid=$!
wait_for "[ \$(in_state running) = 2 ]"; kids=$(children $pid)
kill -9 $pid; wait $pid 2>/dev/null
[ "$(echo $kids | wc -w)" = 2 ] && wait_for "gone $kids"
result all_devices_end_with_the_first $? "$kids: $(for p in $kids; do cat "/proc/$p/stat"; done 2>&1)"
# The parent sees its workers end even if it was started with SIGCHLD ignored, as some supervisors do.
timeout -s KILL $((60 * slower)) env --ignore-signal=CHLD "$L" work -q --device emulated:all --max-time 1 \
    2>"$TMP/err"
r=$?
[ $r = 75 ] || [ $r = 0 ]; result all_devices_end_where_children_are_ignored $? "exit $r: $(cat "$TMP/err")"
exit $failed
