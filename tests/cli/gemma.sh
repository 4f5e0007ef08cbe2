#!/bin/bash
# Gemma 3: drafts, kills, several texts at once, fork and other forms of the weights change no byte of a text.
# tests/model/test_logits compares its logits with transformers.
. tests/cli/lib.inc
M=build/data/models/gemma3-bf16 P=build/data/models/gemma3-plain-bf16 T=build/data/models/middle.txt
N=1000
job() { "$LONGHAND" $1 -m $M --prompt "The ship went on and on and on" -n $N -s 3 -q --ignore-eos "${@:2}"; }
score() { "$LONGHAND" score -m "$@" $T --json --per-token -q; }

job run --drafter none --format ids >"$TMP/whole"
[ "$(wc -l <"$TMP/whole")" = $N ]; result a_text_of_many_windows $?
for d in auto ngram partial suffix ngram,suffix,partial "model:$M"; do
    job run --drafter $d --format ids -t 2 >"$TMP/a"
    same "drafts_of_${d%%:*}_change_nothing" "$TMP/whole" "$TMP/a"
done
head -600 "$TMP/whole" >"$TMP/short"
for p in static dynamic window mean; do
    job run --drafter partial,ngram --tree 3,2 --kv-policy $p --format ids -n 600 >"$TMP/a"
    same "trees_over_kv_${p}_change_nothing" "$TMP/short" "$TMP/a"
done
job run --drafter none --format ids --compute f32 -n 300 >"$TMP/a"
job run --drafter auto --format ids --compute f32 -n 300 >"$TMP/b"
same drafts_in_f32_change_nothing "$TMP/a" "$TMP/b"

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
"$LONGHAND" fork 1 --db "$TMP/k.db" --at 300 -n 400 -q >/dev/null 2>"$TMP/err"
"$LONGHAND" work -q --db "$TMP/k.db"
"$LONGHAND" text 2 --db "$TMP/k.db" --format ids 2>>"$TMP/err" | head -300 >"$TMP/a"
head -300 "$TMP/whole" >"$TMP/b"; same a_fork_begins_alike "$TMP/b" "$TMP/a"

# as a file: all types of weights, and the choice of them for the directory
for w in q8_0 q4_0; do
    "$LONGHAND" convert -m $P --weights $w -o "$TMP/$w.gguf" -q
    score "$TMP/$w.gguf" >"$TMP/a"; score $P --weights $w >"$TMP/b"
    same "weights_of_${w}_are_those_of_the_file" "$TMP/a" "$TMP/b"
done
F=$TMP/q8_0.gguf
file() { "$LONGHAND" run -m "$F" --prompt "The ship" -n 600 -s 3 -q --ignore-eos --format ids "$@"; }
file --drafter none >"$TMP/a"; file >"$TMP/b"; same drafts_of_the_file_change_nothing "$TMP/a" "$TMP/b"
check a_scale_without_a_key 2 "this query_pre_attn_scalar cannot be written to a GGUF file" \
    convert -m $M -o "$TMP/no.gguf"

"$LONGHAND" inspect -m $M --json >"$TMP/a"
grep -q '"architecture": "gemma3".*"sliding_window": 100' "$TMP/a"
result inspect_names_the_window $? "$(head -c 600 "$TMP/a")"
check scaled_positions 2 "the positions of this gemma3 model are scaled already" \
    run -m $M --prompt x -n 1 --context-scaling linear:2
if [ -x "$LONGHAND_TEST" ]; then
    LONGHAND=$LONGHAND_TEST check gpu_refuses_gemma 2 \
        'norms after each part .gemma3. are not supported on this device; --device cpu supports them' \
        run -m $M --prompt x -n 1 --device emulated
    LONGHAND=$LONGHAND_TEST check gpu_refuses_smollm3 2 \
        'layers without RoPE .smollm3. are not supported on this device; --device cpu supports them' \
        run -m build/data/models/smollm3-bf16 --prompt x -n 1 --device emulated
fi
