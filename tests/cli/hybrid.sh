#!/bin/bash
# Hybrids: drafts, kills, snapshots, several texts at once, fork and extend change no byte of a text.
. tests/cli/lib.inc
M=tests/data/models/qwen35-equal-f32
N=2500
job() { "$LONGHAND" $1 -m $M --prompt "The ship went on and on and on" -n $N -s 3 -q --ignore-eos "${@:2}"; }

job run --drafter none --format ids >"$TMP/whole"
for d in auto ngram suffix; do
    job run --drafter $d --format ids >"$TMP/a"; same "drafts_of_${d}_change_nothing" "$TMP/whole" "$TMP/a"
done
job run --drafter ngram,suffix --tree 3,2,2 --format ids >"$TMP/a"
same trees_change_nothing "$TMP/whole" "$TMP/a"
for d in partial heads longspec spire gumiho; do
    check "drafter_${d}_is_refused" 2 "--drafter $d: not for qwen3_5 models, .*ngram, suffix" \
        run -m $M --prompt x -n 9 --drafter $d
done

for k in heads longspec gumiho spire; do
    check "training_${k}_is_refused" 2 "train $k: no trained drafter supports models .*recurrent states" \
        train $k --model $M --data models/demo/openings/portrait.txt --out "$TMP/drafter"
done

# kill -9 while the text is being written; then another process completes it, with snapshots and without.
for w in on off; do
    export LONGHAND_DB=$TMP/$w.db
    id=$(job submit)
    held 300 "[ \$('$LONGHAND' text $id --format ids | wc -l) -gt 40 ]" \
        "$LONGHAND" run --resume "$id" --format ids -q --kv-snapshot $w; r=$?
    some=$("$LONGHAND" text "$id" --format ids | wc -l)
    [ $r = 137 ] && [ "$some" -gt 40 ] && [ "$some" -lt $N ]
    result "killed_before_its_end_$w" $? "exit $r, $some tokens"
    "$LONGHAND" work -q --kv-snapshot $w 2>"$TMP/err"; "$LONGHAND" text "$id" --format ids >"$TMP/a"
    same "killed_and_continued_$w" "$TMP/whole" "$TMP/a"
    [ ! -s "$TMP/err" ]; result "no_notice_$w" $? "$(cat "$TMP/err")"
done

# A clean stop makes a snapshot at any position, and the next process goes on from there.
export LONGHAND_DB=$TMP/stop.db
held 900 close "$LONGHAND" run -m $M --prompt "The ship went on and on and on" -n $N -s 3 --ignore-eos \
    --progress none --kv-snapshot on --format ids 2>"$TMP/err"
id=$(sed -n 's/^job: //p' "$TMP/err"); "$LONGHAND" resume "$id" -q
"$LONGHAND" work -q --kv-snapshot on; "$LONGHAND" text "$id" --format ids >"$TMP/a"
same stopped_and_continued "$TMP/whole" "$TMP/a"
"$LONGHAND" show "$id" | grep -q '  restored: .* tokens of prompt and text from a snapshot'
result the_snapshot_was_used $? "$("$LONGHAND" show "$id" | tail -5)"

# Three texts of one prompt: the later ones begin with the rows and the states of the first.
export LONGHAND_DB=$TMP/alike.db
head -c 300 models/demo/openings/portrait.txt >"$TMP/prompt"
"$LONGHAND" submit -m $M -f "$TMP/prompt" -n 300 -s 5 --samples 3 --ignore-eos -q >/dev/null
"$LONGHAND" work -q 2>"$TMP/err"; result work_on_samples $? "$(cat "$TMP/err")"
for i in 1 2 3; do check "verify_sample_$i" 0 '' verify $i -q; done

# Four texts at once, of which two begin alike; then a longer form of one, and a branch of another.
export LONGHAND_DB=$TMP/many.db
for s in 3 4; do
    "$LONGHAND" submit -m $M --prompt "The ship went on and on and on" -n 600 -s $s --ignore-eos -q >/dev/null
    "$LONGHAND" submit -m $M --prompt "A lamp $s" -n 500 -s $s --ignore-eos -q >/dev/null
done
"$LONGHAND" work -q --parallel 4 2>"$TMP/err"; result work_on_four $? "$(cat "$TMP/err")"
for i in 1 2 3 4; do
    check "verify_$i" 0 '' verify $i -q
done
"$LONGHAND" extend 1 --tokens +300 -q >"$TMP/out" 2>"$TMP/err"; "$LONGHAND" work -q
"$LONGHAND" text 1 --format ids >"$TMP/a"; head -900 "$TMP/whole" >"$TMP/b"
same extended_text_is_that_of_a_longer_job "$TMP/b" "$TMP/a"
