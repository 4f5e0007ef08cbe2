#!/bin/bash
# Snapshots of the KV cache: a continued job ends with the same bytes with a snapshot, without one, and with a
# bad one. A failure of a snapshot costs no more than a line. LONG=1: a book that is killed every 20 s.
. tests/cli/lib.inc
P=$TMP/prompt; head -c 300 models/demo/openings/portrait.txt >"$P"
G="-m $MODEL -f $P --ignore-eos -s 8"
L="$LONGHAND"; DIR=$LONGHAND_DB.snapshots
tokens_of() { "$L" list "$1" | awk 'NR == 3 { split($3, a, "/"); print a[1] }'; }
# rows that the next attempt need not read
kept_of() { "$L" show "$1" --json | sed -n 's/.*"snapshot_tokens": \([0-9]*\).*/\1/p'; }
files() { ls "$DIR" 2>/dev/null | wc -l; }
shown() { "$L" show "$id" | grep -c "$1"; }
# A job that stops after about N bytes because its reader ends, and then waits in the queue.
stopped_job()
{
    held "$1" close "$L" run $G -n 400 --progress none $W "${@:2}" 2>"$TMP/err"
    id=$(sed -n 's/^job: //p' "$TMP/err"); "$L" resume $id -q
}

"$L" run $G -n 400 -q --kv-snapshot off >"$TMP/whole"
for d in none auto partial,ngram; do
    D=; [ $d = partial,ngram ] && D="--tree 1,3 --kv-budget 128 --kv-policy dynamic"
    for W in "--kv-snapshot on" "--kv-snapshot off"; do
        w=${W##* }
        stopped_job 700 --drafter $d $D
        [ $w = off ] ||
            { "$L" show $id | grep -q 'snapshot of the KV cache: the first 1\?[0-9]* tokens' && [ \
            "$("$L" show $id --json | grep -c '"snapshot_tokens": [0-9]')" = 1 ]; result \
            "show_names_its_snapshot_$d" $? "$("$L" show $id | tail -7)"; }
        [ "$(files)" = $([ $w = on ] && echo 1 || echo 0) ]
        result "files_when_${w}_$d" $? "$(files) files: $(cat "$TMP/err")"
        "$L" work -q $W 2>"$TMP/err"; [ ! -s "$TMP/err" ]; result "no_notice_${w}_$d" $? "$(cat "$TMP/err")"
        "$L" text $id >"$TMP/a"; same "the_same_bytes_${w}_$d" "$TMP/whole" "$TMP/a"
        [ "$(shown '  restored: .* of .* tokens of prompt and text from a snapshot')" = \
            $([ $w = on ] && echo 1 || echo 0) ]
        result "show_counts_${w}_$d" $? "$("$L" show $id | tail -4)"
        "$L" report $id --json | python3 -c '
import json, sys
s, on = json.load(sys.stdin)["snapshots"], sys.argv[1] == "on"
if on:
    assert s["made"] >= 1 and s["bytes"] > 100000 and s["cpu_seconds"] > 0, s
    assert s["restored_tokens"] >= 64 and s["restore_seconds"] > 0, s
else:
    assert not (s["made"] or s["restored_tokens"]), s' $w
        result "report_counts_${w}_$d" $? "$("$L" report $id --json | grep -A12 '"snapshots"')"
        [ $w = off ] ||
            { "$L" report $id | grep -q '^restored  *[0-9]* tokens from snapshots'
              result "report_names_them_$d" $? "$("$L" report $id | head -20)"; }
        [ ! -e "$DIR" ]; result "nothing_is_left_${w}_$d" $? "$(ls "$DIR" 2>/dev/null)"
    done
done
stopped_job 300; [ "$(files)" = 0 ]; result a_short_text_has_none_by_itself $? "$(files)"; "$L" remove $id -q

# Bad snapshots: one notice, the same bytes, and the file is deleted.
W="--kv-snapshot on"
bad()
{
    local name=$1 pattern=$2 file
    stopped_job 300
    file=$(ls "$DIR"/$id-*.kv); size=$(stat -c %s "$file")
    eval "$3"
    "$L" work -q $W 2>"$TMP/err"; r=$?             # -q: notices are not errors
    [ $r = 0 ] && [ ! -s "$TMP/err" ] &&
        "$L" show $id | grep -q "notice: the snapshot is not used, the text is read again: .*$pattern"
    result "${name}_is_noted" $? "exit $r: $(cat "$TMP/err"; "$L" show $id | tail -4)"
    "$L" text $id >"$TMP/a"; same "${name}_changes_nothing" "$TMP/whole" "$TMP/a"
    [ ! -e "$DIR" ]; result "${name}_is_gone" $? "$(ls "$DIR" 2>/dev/null)"
}
bad torn 'bytes, .* are in the header' 'truncate -s $((size / 2)) "$file"'
bad empty 'not a snapshot, or an unfinished one' ': >"$file"'
bad flipped 'section .* is damaged' 'python3 -c "
import sys
f = open(sys.argv[1], \"r+b\"); f.seek(int(sys.argv[2]) // 2)
c = f.read(1); f.seek(-1, 1); f.write(bytes([c[0] ^ 4]))" "$file" $size'
bad missing 'No such file' 'rm "$file"'
bad a_fifo 'not a regular file' 'rm "$file"; mkfifo "$file"'
keep=$id; stopped_job 300; cp "$DIR"/$id-*.kv "$TMP/other"; "$L" cancel $id -q; [ ! -e "$DIR" ]
result cancel_deletes_it $? "$(ls "$DIR" 2>/dev/null)"
bad foreign "of job $id, not" 'cp "$TMP/other" "$file"'
stopped_job 300; "$L" work 2>"$TMP/err"; "$L" text $id | cmp -s - "$TMP/whole"
result auto_uses_a_snapshot $? "$(cat "$TMP/err")"
stopped_job 300; file=$(ls "$DIR"/$id-*.kv); : >"$file"; "$L" work $W --progress json 2>"$TMP/err"
[ "$(grep -c '"phase": "notice".*not used' "$TMP/err")" = 1 ] &&
    grep -q '"phase": "reading prompt and text"' "$TMP/err"
result notice_and_rebuild_as_json $? "$(cat "$TMP/err")"
stopped_job 300; file=$(ls "$DIR"/$id-*.kv); : >"$file"; "$L" work $W --progress none 2>"$TMP/err"
[ "$(grep -c "job $id: the snapshot is not used" "$TMP/err")" = 1 ]
result a_notice_is_one_line $? "$(cat "$TMP/err")"
stopped_job 300; "$L" pause $id -q; "$L" remove $id -q
[ ! -e "$DIR" ]; result remove_deletes_it $? "$(ls "$DIR" 2>/dev/null)"

# Stopped while it reads a long prompt: the snapshot keeps the rows that were read.
cat models/demo/openings/*.txt models/demo/openings/*.txt models/demo/openings/*.txt | head -c 20000 \
    >"$TMP/prompt-long"
id=$("$L" submit -m $MODEL -f "$TMP/prompt-long" --ignore-eos -s 8 -n 5)
"$L" work $W --progress json 2>"$TMP/err" & pid=$!
while kill -0 $pid 2>/dev/null && ! grep -q '"phase": "reading the prompt"' "$TMP/err"; do sleep 0.02; done
kill -TERM $pid; wait $pid; [ "$(tokens_of $id)" = 0 ] && [ "$(files)" = 1 ]
result a_prompt_is_kept_too $? "$(cat "$TMP/err")"
"$L" work -q $W; [ "$(shown ' restored: .* from a snapshot')" = 1 ] && [ "$(tokens_of $id)" = 5 ]
result and_not_read_again $? "$("$L" show $id | tail -4)"
"$L" text $id >"$TMP/a"
"$L" run -m $MODEL -f "$TMP/prompt-long" --ignore-eos -s 8 -n 5 -q --kv-snapshot off >"$TMP/b"
same and_changes_nothing "$TMP/b" "$TMP/a"
# Killed while it reads a prompt: the rows are kept, too. With the slow twin.
id=$("$L" submit -m $MODEL -f "$TMP/prompt-long" --ignore-eos -s 8 -n 5)
LONGHAND_ISA=generic "$L" work -q $W & pid=$!
while kill -0 $pid && [ "$(shown 'snapshot of the KV cache')" = 0 ]; do sleep 0.02; done 2>/dev/null
kill -9 $pid; wait $pid 2>/dev/null; [ "$(tokens_of $id)" = 0 ]
result killed_while_it_reads $? "$(tokens_of $id)"
"$L" work -q $W; [ "$(shown ' restored: .* from a snapshot')" = 1 ]
result a_kill_while_reading_keeps_the_snapshot $? "$("$L" show $id | tail -4)"
"$L" text $id >"$TMP/a"; same and_does_not_change_it "$TMP/b" "$TMP/a"

# No folder for snapshots.
: >"$DIR"; stopped_job 300; "$L" work -q $W; "$L" text $id >"$TMP/a"
same no_folder_changes_nothing "$TMP/whole" "$TMP/a"
[ "$(shown 'notice: no snapshot was made: .*Not a directory\|notice: no snapshot was made: .*File exists')" \
    -ge 1 ]
result no_folder_is_noted $? "$("$L" show $id | tail -5)"; rm "$DIR"
# The worker tries again after 2 s, with one notice, and succeeds when a folder exists. The slow twin writes
# for long enough.
: >"$DIR"; id=$("$L" submit $G -n 100000)
LONGHAND_ISA=generic "$L" work --kv-snapshot on --progress none 2>"$TMP/err" & pid=$!
for i in $(seq 400); do [ "$(shown 'notice: no snapshot was made')" = 1 ] && break; sleep 0.05; done
sleep 2.5; rm "$DIR"
for i in $(seq 400); do
    [ "$(files)" -ge 1 ] && [ "$(shown 'snapshot of the KV cache')" = 1 ] && break; sleep 0.05
done
[ "$(files)" -ge 1 ]; result a_failed_one_is_tried_again $? "$("$L" show $id | tail -5)"
kill -TERM $pid; wait $pid
[ "$(grep -c 'no snapshot was made' "$TMP/err")" = 1 ] && [ "$(shown 'notice: ')" = 1 ]
result with_one_notice $? "$(cat "$TMP/err"; "$L" show $id | tail -5)"; "$L" remove $id -q
W="--kv-snapshot on --kv-snapshot-max 100K"; stopped_job 300
[ ! -e "$DIR" ] && [ "$(shown 'more than --kv-snapshot-max')" -ge 1 ]
result snapshot_max $? "$("$L" show $id | tail -3)"; "$L" remove $id -q
check snapshot_max_is_bytes 2 "'1.5G' is not a number of bytes" work --kv-snapshot-max 1.5G
check snapshot_words 2 "auto\|on\|off" work --kv-snapshot yes
W="--kv-snapshot on"
cat >"$TMP/full.sh" <<'X'
mount -t tmpfs -o size=2m none "$1" && dd if=/dev/zero of="$1/fill" bs=1k count=1400 status=none || exit 99
export LONGHAND_DB=$1/t.db
python3 tests/cli/held.py 700 close "$LONGHAND" run $2 -n 400 --progress none --kv-snapshot on 2>"$1.err"
"$LONGHAND" run --resume 1 -q --kv-snapshot on >"$1.text" 2>>"$1.err" || exit 2
"$LONGHAND" show 1 >"$1.show"
X
mkdir "$TMP/disk"
LONGHAND=$(realpath "$LONGHAND") unshare -rm bash "$TMP/full.sh" "$TMP/disk" "$G" 2>/dev/null; r=$?
if [ $r = 99 ] || [ $r = 1 ]; then skip a_full_disk_costs_a_notice "unshare cannot mount here"
else [ $r = 0 ] && cmp -s "$TMP/disk.text" "$TMP/whole" &&
    grep -q 'notice: no snapshot was made' "$TMP/disk.show"
result a_full_disk_costs_a_notice $? "exit $r: $(cat "$TMP/disk.err" "$TMP/disk.show")"; fi

# Repeated kills, also in the middle of snapshots: every attempt continues where the last one ended. The first
# kill waits for a snapshot and some text. The others come at random moments of the slow twin.
state_of() { "$L" list $id | awk 'NR == 3 { print $2 }'; }
finished()
{
    echo "    $1: $kills attempts, $idle of them without a token, $(shown ' restored: ') from a snapshot"
    [ "$(state_of)" = done ]; result "${1}_finishes" $? "at $(tokens_of $id): $("$L" show $id | tail -4)"
}
"$L" run $G -n 200 -q --kv-snapshot off >"$TMP/long"
id=$("$L" submit $G -n 200) kills=1 idle=0
held 300 "'$L' show $id | grep -q 'snapshot of the KV cache' && '$L' text $id | grep -q ." \
    "$L" run --resume $id -q --kv-snapshot on; r=$?
before=$(tokens_of $id); [ $r = 137 ] && [ "$before" -gt 0 ] && [ "$before" -lt 200 ]
result a_job_is_killed_in_the_middle $? "exit $r, at $before"
while [ "$(state_of)" != done ] && [ $kills -lt 4 ]; do
    LONGHAND_ISA=generic "$L" work -q --kv-snapshot on & pid=$!
    while kill -0 $pid && [ "$(tokens_of $id)" -le $before ]; do sleep 0.02; done
    sleep 0.$((RANDOM % 8)); kill -9 $pid; wait $pid
    before=$(tokens_of $id) kills=$((kills + 1))
done 2>/dev/null
"$L" work -q --kv-snapshot on
finished a_job_killed_all_the_time
"$L" text $id >"$TMP/a"; same a_job_killed_all_the_time_has_the_same_bytes "$TMP/long" "$TMP/a"
[ "$(shown ' restored: ')" -ge 1 ]; result kills_leave_snapshots $? "$("$L" show $id | tail -5)"
[ ! -e "$DIR" ]; result kills_leave_no_file $? "$(ls "$DIR" 2>/dev/null)"
if [ -n "${LONG:-}" ]; then
    start=$(date +%s%N)                          # a minute or two of work at this machine's speed
    "$L" run $G -n 2000 -q --kv-snapshot off >"$TMP/long"
    n=$((2000 * 60 * 1000000000 / ($(date +%s%N) - start))); n=$((n < 4000 ? 4000 : n > 40000 ? 40000 : n))
    "$L" run $G -n $n -q --kv-snapshot off >"$TMP/long"
    id=$("$L" submit $G -n $n) kills=0 idle=0 before=0 stuck=0 kept_before=0
    while [ "$(state_of)" != done ] && [ "$(state_of)" != failed ]; do
        timeout -s KILL $((20 * slower)) "$L" work -q
        now=$(tokens_of $id) kept=$(kept_of $id); kept=${kept:-0}
        [ "$now" -gt "$before" ] || idle=$((idle + 1))
        [ "$now" -gt "$before" ] || [ "$kept" -gt "$kept_before" ] ||
            { stuck=$((stuck + 1)); echo \
            "    attempt $((kills + 1)): $before tokens, $kept_before rows before, $now and $kept after it"; }
        before=$now kept_before=$kept kills=$((kills + 1))
    done 2>/dev/null
    echo "    a book of $n tokens"; finished a_book_killed_every_20_seconds
    [ $kills -ge 2 ] && [ $stuck = 0 ]
    result attempts_of_20_seconds_make_progress $? \
        "$stuck of $kills attempts wrote nothing and read nothing that the next one has"
    "$L" text $id >"$TMP/a"; same a_killed_book_has_the_same_bytes "$TMP/long" "$TMP/a"
    # A prompt that takes several attempts to read: each attempt but the first hands on rows.
    for i in $(seq 60); do cat models/demo/openings/*.txt; done | head -c 120000 >"$TMP/prompt-long"
    start=$SECONDS
    "$L" run -m $MODEL -f "$TMP/prompt-long" --ignore-eos -s 8 -n 5 -q --kv-snapshot off >"$TMP/b"
    start=$((SECONDS - start))
    id=$("$L" submit -m $MODEL -f "$TMP/prompt-long" --ignore-eos -s 8 -n 5) kills=0 stuck=0 kept_before=0 \
        way=
    while [ "$(state_of)" != done ] && [ "$(state_of)" != failed ]; do
        timeout -s KILL 12 "$L" work -q --max-attempts 3
        kept=$(kept_of $id); kept=${kept:-0}
        [ "$(state_of)" = done ] || [ $kills = 0 ] || [ "$kept" -gt "$kept_before" ] || stuck=$((stuck + 1))
        kept_before=$kept way="$way $kept" kills=$((kills + 1))
    done 2>/dev/null
    echo "    a prompt that is read in $start s: $kills attempts of 12 s, rows after each:$way"
    [ "$(state_of)" = done ] && { [ $kills -ge 3 ] || [ $start -lt 24 ]; } && [ $stuck = 0 ]
    result attempts_of_12_seconds_make_progress $? \
        "$(state_of), $stuck of $kills attempts handed nothing on: $("$L" show $id | tail -4)"
    "$L" text $id >"$TMP/a"; same a_prompt_read_in_many_attempts_changes_nothing "$TMP/b" "$TMP/a"
else
    skip a_book_killed_every_20_seconds "LONG=1 runs it"
fi
exit $failed
