#!/bin/bash
# Gemma 4: drafts, kills, several texts at once, fork and other forms of the weights change no byte of a text.
# tests/model/test_logits compares its logits with transformers.
. tests/cli/lib.inc
M=build/data/models/gemma4-bf16 X=build/data/models/gemma4-experts-f32 T=build/data/models/middle.txt
N=1000
job() { "$LONGHAND" $1 -m $M --prompt "The ship went on and on and on" -n $N -s 3 -q --ignore-eos "${@:2}"; }
score() { "$LONGHAND" score -m "$@" $T --json --per-token -q; }

job run --drafter none --format ids >"$TMP/whole"
[ "$(wc -l <"$TMP/whole")" = $N ]; result a_text_of_many_windows $?
for d in auto ngram partial "model:$M"; do
    job run --drafter $d --format ids -t 2 >"$TMP/a"
    same "drafts_of_${d%%:*}_change_nothing" "$TMP/whole" "$TMP/a"
done
head -600 "$TMP/whole" >"$TMP/short"
for p in static dynamic mean; do
    job run --drafter partial,ngram --tree 3,2 --kv-policy $p --format ids -n 600 >"$TMP/a"
    same "trees_over_kv_${p}_change_nothing" "$TMP/short" "$TMP/a"
done
job run --drafter none --format ids --temperature 0 -n 300 >"$TMP/a"
job run --format ids --temperature 0 -n 300 >"$TMP/b"
same drafts_of_the_likeliest_change_nothing "$TMP/a" "$TMP/b"

# killed and continued; several texts at once; a fork
job submit --db "$TMP/k.db" >"$TMP/id"
held 300 "[ \$('$LONGHAND' text 1 --db '$TMP/k.db' --format ids | wc -l) -gt 40 ]" \
    "$LONGHAND" run --resume 1 --db "$TMP/k.db" --format ids -q
some=$("$LONGHAND" text 1 --db "$TMP/k.db" --format ids 2>/dev/null | wc -l); [ "$some" -lt $N ]
result killed_before_its_end $? "$some tokens"
"$LONGHAND" work -q --db "$TMP/k.db"; "$LONGHAND" text 1 --db "$TMP/k.db" --format ids >"$TMP/a"
same killed_and_continued "$TMP/whole" "$TMP/a"
"$LONGHAND" verify 1 --db "$TMP/k.db" >"$TMP/v" 2>&1; grep -q identical "$TMP/v"
result verify_makes_it_again $? "$(cat "$TMP/v")"
job submit --db "$TMP/s.db" -n 600 --samples 3 >"$TMP/id"; "$LONGHAND" work -q --db "$TMP/s.db" --parallel 3
"$LONGHAND" text 1 --db "$TMP/s.db" --format ids >"$TMP/a"; same several_texts_at_once "$TMP/short" "$TMP/a"

# experts, and the file of a model: all types of weights, and the choice of them for the directory
"$LONGHAND" run -m $X --prompt "The ship" -n 300 -s 3 -q --ignore-eos --format ids --drafter none >"$TMP/a"
"$LONGHAND" run -m $X --prompt "The ship" -n 300 -s 3 -q --ignore-eos --format ids >"$TMP/b"
same drafts_change_nothing_with_experts "$TMP/a" "$TMP/b"
for w in q8_0 q4_0; do
    "$LONGHAND" convert -m $X --weights $w -o "$TMP/$w.gguf" -q
    score "$TMP/$w.gguf" >"$TMP/a"; score $X --weights $w >"$TMP/b"
    same "weights_of_${w}_are_those_of_the_file" "$TMP/a" "$TMP/b"
done

"$LONGHAND" inspect -m $M --json >"$TMP/a"
grep -q '"kv_heads_by_layer": \[2, 1, 2, 1\], "head_dim_by_layer": \[16, 32, 16, 32\]' "$TMP/a"
result inspect_names_the_heads $? "$(head -c 600 "$TMP/a")"
check drafters_of_one_kind_of_heads 2 "not for gemma4 models, whose layers have different heads" \
    run -m $M --prompt x -n 1 --drafter spire:none
check training_of_one_kind_of_heads 2 "models whose layers have different heads .gemma4. are not supported" \
    train spire -m $M --data $T --out "$TMP/spire"
if [ -x "$LONGHAND_TEST" ]; then
    LONGHAND=$LONGHAND_TEST check gpu_refuses_gemma4 2 \
        'norms after each part .gemma4. are not supported on this device; --device cpu supports them' \
        run -m $M --prompt x -n 1 --device emulated
fi
