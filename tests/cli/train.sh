#!/bin/bash
# train: its errors, its files, and that a killed training ends with the bytes of an undisturbed one.
. tests/cli/lib.inc
T="train heads --model $MODEL --data models/demo/openings/*.txt --window 256"
check train_knows_its_kinds 2 "'tails' is not heads, longspec, gumiho or spire" train tails --model $MODEL \
    --data x \
    --out y
check train_needs_a_word 2 "a word is missing" train --model $MODEL
check train_needs_data 2 "--data FILES... is missing" train heads --model $MODEL --out "$TMP/h"
check train_needs_out 2 "--out FILE is missing" $T
check train_names_a_missing_text 2 "/nonexistent: cannot open" $T --data /nonexistent --out "$TMP/h"
check train_window_too_small 2 "--window 40: at least 64 are needed" $T --window 40 --out "$TMP/h"
check train_window_beyond_the_context 2 "--window 131073 is beyond this model's context" $T --window 131073 \
    --out "$TMP/h"
check train_with_a_vocabulary_of_words 2 "--draft-vocab-size: 'many' is not a whole number" $T \
    --draft-vocab-size many --out "$TMP/h"
check train_17_heads 2 "'17' is not a whole number from 1 to 16" $T --heads 17 --out "$TMP/h"
printf 'short' >"$TMP/short"
check train_text_too_short 2 "no text of at least" \
    train heads --model $MODEL --data "$TMP/short" --out "$TMP/h"
check train_out_in_no_folder 2 "^longhand: --out: .*cannot write" $T --out /nonexistent/h --steps 1

S="--valid $MODEL/openings/portrait.txt --kind both --steps 12 --batch-windows 1 --lr 0.05 --valid-every 6"
S+=" --valid-windows 1 --seed 3"
"$LONGHAND" $T $S --out "$TMP/a.safetensors" --curves "$TMP/a.csv" >"$TMP/a.out" 2>"$TMP/a.err"
result train_ends_well $? "$(tail -1 "$TMP/a.err")"
[ -s "$TMP/a.safetensors" ] && [ -s "$TMP/a-independent.safetensors" ] &&
    [ ! -e "$TMP/a.safetensors.checkpoint" ] && [ "$(wc -l <"$TMP/a.out")" = 2 ]
result train_leaves_both_files_and_no_checkpoint $? "$(ls "$TMP")"
awk -F, '$3 == "chained" && $4 == "valid" && $5 == 2 { loss[n++] = $6 }
    END { exit !(n == 3 && loss[2] < loss[0] - 1) }' "$TMP/a.csv"
result train_lowers_the_loss_on_held_out_text $? "$(grep 'chained,valid,2' "$TMP/a.csv" | tr '\n' ' ')"

# A learning rate of 0 changes no weight: the output has the weights that training began with.
"$LONGHAND" $T --out "$TMP/c.safetensors" --from "$TMP/a.safetensors" --kind both --steps 1 --lr 0 -q \
    >/dev/null 2>"$TMP/c.err"
result train_begins_with_the_heads_of_a_file $? "$(tail -1 "$TMP/c.err")"
for k in "" -independent; do
    tail -c 399360 "$TMP/a$k.safetensors" >"$TMP/x"
    tail -c 399360 "$TMP/c$k.safetensors" >"$TMP/y"
    same "train_from_a_file_keeps_its_weights$k" "$TMP/x" "$TMP/y"
done
check train_from_other_heads 2 "3 chained heads, to be trained are 2 chained ones" \
    $T --out "$TMP/c.safetensors" --from "$TMP/a.safetensors" --heads 2 -q --force

# interrupt SIGNAL OUT STEPS OPTIONS...: send SIGNAL to a training after STEPS steps, set $status to its exit
# status.
interrupt()
{
    local signal=$1 out=$2 wanted=$3 pid steps i
    shift 3
    "$LONGHAND" $T $S --out "$out.safetensors" --curves "$out.csv" --checkpoint-every 0 -q "$@" \
        >/dev/null 2>"$out.err" &
    pid=$!
    for i in $(seq 1000); do
        steps=$(grep -c 'chained,train,0' "$out.csv" 2>/dev/null)
        [ "${steps:-0}" -ge $wanted ] && [ -e "$out.safetensors.checkpoint" ] && break
        kill -0 $pid 2>/dev/null || break
        sleep 0.01
    done
    kill -$signal $pid 2>/dev/null
    wait $pid 2>/dev/null
    status=$?
}
interrupt TERM "$TMP/d" 1 --steps 100000
grep -q 'stopped after step [0-9]* of 100000; the same command continues from' "$TMP/d.err" &&
    [ $status = 75 ] && [ -e "$TMP/d.safetensors.checkpoint" ]
result a_stopped_training_exits_with_75 $? "exit $status: $(cat "$TMP/d.err")"

# Killed between steps 3 and 11, and again, with other numbers of threads.
for t in 1 2; do interrupt KILL "$TMP/b" $((3 * t)) -t $t; done
[ -e "$TMP/b.safetensors.checkpoint" ] && [ ! -e "$TMP/b.safetensors" ]
result a_killed_training_leaves_a_checkpoint $? "$(ls "$TMP"; cat "$TMP/b.err")"
check train_refuses_the_checkpoint_of_other_settings 2 "made with other settings" $T $S --lr 0.06 \
    --out "$TMP/b.safetensors" --curves "$TMP/b.csv" -q
"$LONGHAND" $T $S --out "$TMP/b.safetensors" --curves "$TMP/b.csv" >"$TMP/b.out" 2>/dev/null
same a_killed_training_ends_with_the_same_heads "$TMP/a.safetensors" "$TMP/b.safetensors"
same a_killed_training_ends_with_the_same_independent_heads \
    "$TMP/a-independent.safetensors" "$TMP/b-independent.safetensors"
same a_killed_training_ends_with_the_same_curves "$TMP/a.csv" "$TMP/b.csv"

# ---- drafters of one module ----

# drafter NAME LEARNING_RATE DROP: train, kill, continue. The held-out loss of the last output must fall by
# DROP.
drafter()
{
    local name=$1 T="train $1 --model $MODEL --data $MODEL/openings/*.txt --window 256" S pid i
    check ${name}_takes_no_heads 2 "--from, --kind and --heads are for train heads" $T --heads 2 \
        --out "$TMP/l"
    S="--valid $MODEL/openings/portrait.txt --steps 12 --batch-windows 2 --lr $2 --warmup 2 --valid-every 6"
    S+=" --valid-windows 2 --seed 3"
    "$LONGHAND" $T $S --out "$TMP/l.safetensors" --curves "$TMP/l.csv" >"$TMP/l.out" 2>"$TMP/l.err"
    result ${name}_ends_well $? "$(tail -1 "$TMP/l.err")"
    awk -F, -v name=$name -v drop=$3 '$3 == name && $4 == "valid" { if ($5 == 0) n++; loss[n] = $6 }
        END { exit !(n == 3 && loss[3] < loss[1] - drop) }' "$TMP/l.csv"
    result ${name}_lowers_the_loss_of_its_last_output $? "$(grep valid "$TMP/l.csv" | tr '\n' ' ')"
    "$LONGHAND" $T $S --out "$TMP/m.safetensors" --curves "$TMP/m.csv" --checkpoint-every 0 -q >/dev/null \
        2>"$TMP/m.err" &
    pid=$!
    for i in $(seq 1000); do
        [ "$(grep -c "$name,train,0" "$TMP/m.csv" 2>/dev/null)" -ge 4 ] 2>/dev/null && break
        kill -0 $pid 2>/dev/null || break
        sleep 0.01
    done
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ -e "$TMP/m.safetensors.checkpoint" ]; result ${name}_was_killed $?
    "$LONGHAND" $T $S --out "$TMP/m.safetensors" --curves "$TMP/m.csv" --threads 1 -q >/dev/null 2>&1
    same ${name}_killed_and_continued "$TMP/l.safetensors" "$TMP/m.safetensors"
    same ${name}_curves_continued "$TMP/l.csv" "$TMP/m.csv"
    rm -f "$TMP"/[lm].*
}
drafter longspec 0.002 0.5
drafter gumiho 0.002 0.1
drafter spire 0.002 0.5
# The page of a training: a line for each output, with the numbers of the curves at their steps.
for k in "heads --kind both" gumiho spire; do
    "$LONGHAND" train $k --model $MODEL --data $MODEL/openings/*.txt --valid $MODEL/openings/portrait.txt \
        --valid-windows 1 --valid-every 2 --window 128 --steps 5 -q --html --force \
        --out "$TMP/h" >"$TMP/err" 2>&1 &&
        python3 - "$TMP/h.csv" "$TMP/h.html" 2>>"$TMP/err" <<'E'
import csv, re, sys
rows, page = list(csv.DictReader(open(sys.argv[1]))), open(sys.argv[2]).read()
parts = re.split("<h2>", page)[1:]
assert len(parts) == len({r["module"] for r in rows}) and "http-equiv" in page
for part in parts:
    name = part[:part.index("<")]
    valid = [r for r in rows if r["module"] == name and r["text"] == "valid"]
    lines = re.findall('data-name="([^"]*)" data-y="([^"]*)" d="([^"]*)"', part)
    outputs, steps = 1 + max(int(r["output"]) for r in valid), [0, 2, 4, 5]
    shown = ["loss", "top1"] + ["accepted"] * (name == "spire")
    assert len(lines) == 2 + len(shown) * outputs, lines
    for _, _, d in lines[1:]:
        x = [float(p.split()[0]) for p in re.split("[ML]", d)[1:]]
        assert all(abs((v - x[0]) / (x[-1] - x[0]) - s / 5) < 1e-3 for v, s in zip(x, steps)), (x, steps)
    for i in range(outputs):
        for of, at in zip(shown, (2, 2 + outputs, 2 + 2 * outputs)):
            want = [float(r[of]) for r in valid if int(r["output"]) == i]
            got = [float(y) for y in lines[at + i][1].split()]
            assert lines[at + i][0] == f"output {i + 1}" and len(got) == len(steps), lines
            assert all(abs(a - b) <= 1e-5 * abs(b) + 1e-9 for a, b in zip(got, want)), (got, want)
    def total(text, first, last):
        return sum(float(r["loss"]) for r in rows
                   if r["module"] == name and r["text"] == text and first <= int(r["step"]) <= last)
    held_out = [total("valid", s, s) for s in steps]
    training = [total("train", a + 1, b) / (b - a) for a, b in zip(steps, steps[1:])]
    got = [line[1].split() for line in lines[:2]]
    assert [line[0] for line in lines[:2]] == ["in training", "held-out text"] and got[0].pop(0) == "-", lines
    for a, b in (got[0], training), (got[1], held_out):
        assert len(a) == len(b) and all(abs(float(x) - y) < 1e-3 for x, y in zip(a, b)), (a, b)
E
    result a_page_of_the_curves_of_${k%% *} $? "$(tail -3 "$TMP/err")"
done
check ablations_are_for_spire 2 "--ablate is for train spire" train longspec --model $MODEL --data x --out y \
    --ablate hard
T="train spire --model $MODEL --data $MODEL/openings/*.txt --window 256 --steps 1 -q --valid-every 9"
"$LONGHAND" $T --valid "$MODEL/openings/portrait.txt" --valid-windows 1 --out "$TMP/s" >"$TMP/whole" 2>&1
for a in random distill hard no-feedback no-activations; do
    "$LONGHAND" $T --valid "$MODEL/openings/portrait.txt" --valid-windows 1 --out "$TMP/s" --ablate $a \
        --force >"$TMP/$a" 2>&1 && ! cmp -s "$TMP/$a" "$TMP/whole"
    result spire_without_a_part_differs:_$a $? "$(cat "$TMP/$a")"
done
exit $failed
