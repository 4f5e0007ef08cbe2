#!/bin/bash
# The commands on the emulated GPU: texts, queue, kills. DEVICE=cuda runs the same tests on a GPU.
. tests/cli/lib.inc
D=${DEVICE:-emulated}
M=build/data/models/llama3-old-bf16
[ $D = emulated ] && LONGHAND=$LONGHAND_TEST
L=$LONGHAND
G="-m $M -f $TMP/prompt --ignore-eos --device $D"
head -c 120 build/data/models/short.txt >"$TMP/prompt"
wait_for() { for i in $(seq $((1000 * slower))); do eval "$1" && return 0; sleep 0.02; done; return 1; }
tokens_of() { "$L" list "$1" | awk 'NR == 3 { split($3, a, "/"); print a[1] }'; }
state_of() { "$L" list "$1" | awk 'NR == 3 { print $2 }'; }
numerics_of() { "$L" show "$1" | awk '$1 == "numerics" { print $2 }'; }
case $D in emulated) ID='^emulated-2$' N=${TOKENS:-60};; *) ID='^cuda-' N=${TOKENS:-400};; esac

# Speculation under several settings writes the text of plain decoding.
"$L" run $G -n $N -s 7 --drafter none --format ids >"$TMP/plain" 2>"$TMP/err"; r=$?
[ $r = 0 ] && [ "$(wc -l <"$TMP/plain")" = $N ] && numerics_of 1 | grep -q "$ID"
result device_writes_a_text $? "exit $r: $(cat "$TMP/err"), $(numerics_of 1)"
"$L" run $G -n $N -s 7 --format ids -q >"$TMP/a"; same device_drafting_is_plain "$TMP/plain" "$TMP/a"
"$L" run $G -n $N -s 7 --drafter partial,ngram,suffix --tree 2,2,1 --draft-passes 2 --kv-sinks 2 \
    --kv-budget 40 --format ids -q >"$TMP/a"
same device_fixed_tree_is_plain "$TMP/plain" "$TMP/a"
"$L" run $G -n $N -s 8 --temperature 0 --penalty 1.2 --dry-multiplier 0.8 --drafter none --format ids -q \
    >"$TMP/b"
[ "$(wc -l <"$TMP/b")" = $N ]; result device_writes_a_greedy_text $? "$(wc -l <"$TMP/b")"
"$L" run $G -n $N -s 8 --temperature 0 --penalty 1.2 --dry-multiplier 0.8 --drafter ngram,suffix \
    --format ids -q >"$TMP/a"
same device_greedy_drafting_is_plain "$TMP/b" "$TMP/a"
differ device_settings_matter "$TMP/plain" "$TMP/b"
S="-n 20 -s 9 --samples 2 --min-p 0.02 --presence-penalty 0.3 --format ids -q"
"$L" run $G $S --drafter none -o "$TMP/one"
"$L" run $G $S --tree 3,2 --drafter partial,ngram -o "$TMP/two" --json-stats "$TMP/stats"
same device_sample_is_plain "$TMP/one.0" "$TMP/two.0"
same device_other_sample_is_plain "$TMP/one.1" "$TMP/two.1"

# Ids and scores cross to the host in a round; a row of logits would have thousands of bytes.
per_round=$(grep -o '"device_to_host_bytes_per_round": [0-9.]*' "$TMP/stats.0" | awk '{ print $2 }')
awk -v n="$per_round" 'BEGIN { exit !(n >= 16 && n < 600) }'
result device_logits_stay_there $? "$per_round bytes a round"
"$L" run $G --device cpu -n 4 --json-stats "$TMP/stats" -q >/dev/null &&
    grep -q '"verified_rows"' "$TMP/stats" && ! grep -q device_to_host "$TMP/stats"
result device_cpu_downloads_nothing $? "$(cat "$TMP/stats")"

# Repeated kills lose no token and do not change the text. The first kill is in the middle of the text.
id=$("$L" submit $G -n $N -s 7)
held 150 "'$L' text $id --format ids | grep -q ." "$L" run --resume $id --device $D --format ids -q; r=$?
before=$(tokens_of $id) lost=0 kills=0
[ $r = 137 ] && [ "$before" -lt $N ] && kills=1
for i in 1 2; do
    "$L" work -q --device $D --max-attempts 0 & pid=$!
    wait_for "[ \$(tokens_of $id) -gt $before ] || ! kill -0 $pid 2>/dev/null"
    kill -9 $pid 2>/dev/null && kills=$((kills + 1))
    wait $pid
    now=$(tokens_of $id); [ "$now" -ge "$before" ] || lost=1
    before=$now
done 2>/dev/null
[ $lost = 0 ] && [ $kills -ge 1 ]; result device_kills_lose_nothing $? "$kills kills, lost $lost, at $before"
"$L" work -q --device $D --kv-snapshot on --max-attempts 0 2>"$TMP/err"
"$L" text $id --format ids >"$TMP/a"; same device_killed_text_is_the_undisturbed_one "$TMP/plain" "$TMP/a"
[ ! -s "$TMP/err" ]; result device_quiet_is_quiet $? "$(cat "$TMP/err")"

# A text keeps its arithmetic.
id=$("$L" submit $G -n $N -s 7)
held 150 close "$L" run --resume $id --device $D --format ids -q 2>/dev/null
check device_other_arithmetic_refuses 2 "tokens made with numerics id .* here it is cpu-1-int16" run \
    --resume $id --device cpu
"$L" run --resume $id --device $D --format ids -q >"$TMP/a" 2>"$TMP/err"
same device_resume_continues "$TMP/plain" "$TMP/a"
"$L" verify 1 --device $D --sample 5 >"$TMP/out" 2>"$TMP/err" &&
    grep -q ', 5 derived again: identical' "$TMP/out"
result device_verifies_its_text $? "$(cat "$TMP/out" "$TMP/err")"
check device_cpu_cannot_verify_it 2 "made with numerics .* here it is cpu-1-int16" verify 1 --device cpu

# Snapshots of the device's cache: a killed job ends with the same bytes; a damaged snapshot is not used.
# (test_decoder_image tests snapshots of other arithmetic.)
shown() { "$L" show "$1" | grep -c "$2"; }
# The prompt fills a block of the cache, so the snapshot is made before the first token.
head -c 240 build/data/models/short.txt >"$TMP/prompt"
"$L" run $G -n $N -s 7 --drafter none --format ids -q >"$TMP/plain"
for how in kept damaged; do
    id=$("$L" submit $G -n $N -s 7)
    held 200 "'$L' show $id | grep -q 'snapshot of the KV cache' &&
        [ \$('$L' text $id --format ids | wc -l) -gt 10 ]" \
        "$L" run --resume $id --device $D --kv-snapshot on --format ids -q
    file=$(ls "$LONGHAND_DB.snapshots/$id"-*.kv 2>/dev/null)
    [ -s "$file" ]; result device_snapshot_is_there_$how $? "$("$L" show $id | tail -5)"
    [ $how = kept ] ||
        printf longhand | dd of="$file" bs=1 seek=$(($(wc -c <"$file") / 2)) conv=notrunc status=none
    "$L" work -q --device $D --kv-snapshot on --max-attempts 0
    [ "$(shown $id ' restored: [0-9]* of [0-9]* tokens of prompt and text from a snapshot')" = \
        $([ $how = kept ] && echo 1 || echo 0) ]
    result device_snapshot_used_$how $? "$("$L" show $id | tail -5)"
    if [ $how = damaged ]; then
        [ "$(shown $id 'notice: the snapshot is not used, the text is read again')" = 1 ]
        result device_snapshot_notice_$how $? "$("$L" show $id | tail -5)"
    fi
    "$L" text $id --format ids >"$TMP/a"; same device_snapshot_same_bytes_$how "$TMP/plain" "$TMP/a"
done

# Other commands.
head -c 400 build/data/models/short.txt >"$TMP/text"
"$L" score -m $M "$TMP/text" -q --device cpu >"$TMP/a"; "$L" score -m $M "$TMP/text" -q --device $D >"$TMP/b"
cat "$TMP/a" "$TMP/b" | awk '{ n[NR] = $1; nll[NR] = $6; d = nll[1] - nll[NR] }
    END { exit !(NR == 2 && n[1] == n[2] && n[1] > 50 && nll[1] > 0 && d * d < (0.005 * nll[1]) ^ 2) }'
result device_scores_as_the_cpu $? "$(cat "$TMP/a" "$TMP/b")"
check device_has_no_f32 2 "--compute f32 is not supported on this device" run $G -n 2 --compute f32
check device_has_no_means 2 "--kv-policy mean is not supported on this device; --device cpu supports it" \
    run $G -n 2 --kv-policy mean

# Training of heads: the losses are the CPU's; a killed training ends with the same bytes; a checkpoint stays
# on its kind of device.
if ! "$L" train heads -m $M --data "$TMP/text" --window 64 --heads 1 --steps 1 --device $D --out "$TMP/h" -q \
    >/dev/null 2>"$TMP/err" && grep -q cuBLAS "$TMP/err"; then
    [ "$(wc -l <"$TMP/err")" = 1 ] && grep -q -e '--device cpu' "$TMP/err"
    result device_training_names_missing_cublas $? "$(cat "$TMP/err")"
    skip device_trains_heads "$(cat "$TMP/err")"; exit $failed
fi
T="train heads -m $M --data $TMP/text --window 64 --heads 2 --steps 5 --batch-windows 1 --lr 0.02 --seed 3 -q"
"$L" $T --device cpu --out "$TMP/c" --curves "$TMP/c.csv" >/dev/null
"$L" $T --device $D --out "$TMP/g" --curves "$TMP/g.csv" >/dev/null 2>"$TMP/err"
result device_trains_heads $? "$(cat "$TMP/err")"
paste -d, "$TMP/c.csv" "$TMP/g.csv" | awk -F, 'NR > 1 {
        n++; d = $6 - $16; if ($3 != $13 || $5 != $15 || d * d > 0.005 ^ 2) bad = 1
        if (n == 1) first = $16
        last = $16
    }
    END { exit bad || n != 10 || !(last < first) }'
result device_learns_as_the_cpu $? "$(paste -d' ' "$TMP/c.csv" "$TMP/g.csv")"
"$L" $T --device cpu --out "$TMP/vc" --curves "$TMP/vc.csv" --draft-vocab-size 40 >/dev/null
"$L" $T --device $D --out "$TMP/vg" --curves "$TMP/vg.csv" --draft-vocab-size 40 >/dev/null 2>"$TMP/err" &&
    "$L" run $G -n 40 -s 7 -q --drafter none >"$TMP/a" &&
    "$L" run $G -n 40 -s 7 -q --drafter heads:$TMP/vg --tree 2,1 --json-stats "$TMP/s" >"$TMP/b" 2>&1 &&
    cmp -s "$TMP/a" "$TMP/b" && grep -q '"heads": {"drafted": [1-9]' "$TMP/s" &&
    paste -d, "$TMP/vc.csv" "$TMP/vg.csv" |
        awk -F, 'NR > 1 { n++; d = $6 - $16; bad += d * d > 0.02 ^ 2 } END { exit bad || n != 10 }'
result device_guesses_a_short_vocabulary $? "$(cat "$TMP/err" "$TMP/s" "$TMP/vc.csv" "$TMP/vg.csv")"
# The emulated GPU stops the process in the middle.
LONGHAND_EMULATED_STOP=200 "$L" $T --device $D --out "$TMP/h" --curves "$TMP/h.csv" --checkpoint-every 0 \
    >/dev/null 2>&1 & pid=$!
wait_for "[ \$(grep -c train,0 '$TMP/h.csv') -ge 2 ] && [ -e '$TMP/h.checkpoint' ] || ! kill -0 $pid" \
    2>/dev/null
kill -9 $pid 2>/dev/null; wait $pid 2>/dev/null
if [ ! -e "$TMP/h.checkpoint" ]; then skip device_checkpoint_is_not_the_cpus \
    "the heads were trained before it could be killed"
else check device_checkpoint_is_not_the_cpus 2 "or on another kind of device" $T --device cpu --out "$TMP/h" \
    --curves "$TMP/h.csv"
fi
"$L" $T --device $D --out "$TMP/h" --curves "$TMP/h.csv" --force >/dev/null
same device_killed_training_ends_with_the_same_heads "$TMP/g" "$TMP/h"
same device_killed_training_ends_with_the_same_curves "$TMP/g.csv" "$TMP/h.csv"
if [ $D = emulated ]; then
    LONGHAND_EMULATED_MEMORY=3000000 check device_training_is_sized_first 2 \
        "this needs .* MiB of memory on emulated GPU .weights .*, heads .*, .* free there" $T --device $D \
        --out "$TMP/x"
    LONGHAND_EMULATED_FAIL=200 check device_error_stops_a_training 1 "emulated GPU: .* call 200" $T \
        --device $D --out "$TMP/x"
    [ -e "$TMP/x.checkpoint" ] && [ ! -e "$TMP/x" ]
    result device_error_leaves_the_checkpoint $? "$(ls "$TMP")"
    "$L" $T --device $D --out "$TMP/x" >/dev/null; same device_continues_after_an_error "$TMP/g" "$TMP/x"
fi
"$L" $T --device $D --from "$TMP/g" --steps 1 --lr 0 --out "$TMP/i" >/dev/null
for f in g i; do tail -c $((2 * (48 * 48 * 2 + 2 * 48 * 4))) "$TMP/$f" >"$TMP/$f.w"; done
same device_training_begins_with_the_heads_of_a_file "$TMP/g.w" "$TMP/i.w"
exit $failed
