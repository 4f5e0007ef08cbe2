#!/bin/bash
# longhand run: the text does not depend on threads, twins or its destination; where it ends; aliases.
. tests/cli/lib.inc
printf 'Once upon' >"$TMP/p"; (printf '\357\273\277'; cat "$TMP/p") >"$TMP/bom"
for f in p bom; do "$LONGHAND" run -m $MODEL -f "$TMP/$f" -n 20 -s 1 -q >"$TMP/$f.out"; done
same a_byte_order_mark_does_not_belong_to_the_prompt "$TMP/p.out" "$TMP/bom.out"
P=$TMP/prompt; head -c 300 models/demo/openings/portrait.txt >"$P"      # short: the plain C twin reads it too
G="run --model $MODEL --prompt-file $P --tokens 60 --seed 7 -q"
"$LONGHAND" $G >"$TMP/seed7" || fail run_writes_a_text "exit $?"
expected text_of_seed_7_is_as_expected "$TMP/seed7" seed7-int16.txt
"$LONGHAND" $G --kv-dtype bf16 >"$TMP/a"
expected text_of_seed_7_with_a_bf16_cache_is_as_expected "$TMP/a" seed7.txt
"$LONGHAND" $G --temperature 0 >"$TMP/greedy"
expected greedy_text_is_as_expected "$TMP/greedy" greedy-int16.txt
"$LONGHAND" $G --kv-dtype bf16 --temperature 0 >"$TMP/a"
expected greedy_text_with_a_bf16_cache_is_as_expected "$TMP/a" greedy.txt
"$LONGHAND" $G --temperature 0 --seed 8 >"$TMP/greedy2"
same greedy_does_not_depend_on_the_seed "$TMP/greedy" "$TMP/greedy2"
"$LONGHAND" $G --seed 8 >"$TMP/seed8"
differ another_seed_writes_another_text "$TMP/seed7" "$TMP/seed8"
for t in 1 2 5; do
    "$LONGHAND" $G -t $t >"$TMP/t"
    same text_is_the_same_with_${t}_threads "$TMP/seed7" "$TMP/t"
done
for isa in generic avx2 avx512; do
    LONGHAND_ISA=$isa "$LONGHAND" $G >"$TMP/t" 2>"$TMP/err"
    r=$?
    if [ $r = 2 ]; then
        skip text_is_the_same_on_$isa "$(head -c 200 "$TMP/err")"
    else
        same text_is_the_same_on_$isa "$TMP/seed7" "$TMP/t"
    fi
done
"$LONGHAND" $G --drafter none >"$TMP/t"; same drafter_none_is_plain "$TMP/seed7" "$TMP/t"
"$LONGHAND" $G --compute f32 >"$TMP/t" && [ -s "$TMP/t" ]; result f32_writes_a_text $? "exit"
"$LONGHAND" run -m $MODEL -f - -n60 -s7 -q <$P >"$TMP/t"
same prompt_from_standard_input "$TMP/seed7" "$TMP/t"
"$LONGHAND" run -m $MODEL --file=<(cat $P) --n-predict 60 --seed=7 --quiet >"$TMP/t"
same prompt_from_a_pipe_and_aliases "$TMP/seed7" "$TMP/t"
"$LONGHAND" run -m $MODEL -p "$(head -c 200 $P; echo x)" --max_tokens 60 -s7 -q >"$TMP/t"
differ another_prompt_another_text "$TMP/seed7" "$TMP/t"
"$LONGHAND" $G -o "$TMP/file" >"$TMP/t" && [ ! -s "$TMP/t" ] && [ -z "$(ls "$TMP" | grep part)" ]
result output_goes_only_to_the_file $? "exit or output"
for o in - /dev/stdout /dev/fd/1; do
    (echo before; "$LONGHAND" $G -o $o; echo after) >"$TMP/t"; (echo before; cat "$TMP/seed7"; echo after) \
        >"$TMP/a"
    same "output_to_${o}_stays_in_its_place" "$TMP/a" "$TMP/t"
done
if [ -w /dev/shm ]; then                         # a folder for files among the devices
    shm=/dev/shm/longhand-test-$$; echo old >"$shm"
    "$LONGHAND" $G -o "$shm" --force
    same output_in_dev_shm_replaces "$TMP/seed7" "$shm"
    rm -f "$shm"
    "$LONGHAND" $G -o "$shm"; same output_in_dev_shm_is_created "$TMP/seed7" "$shm"; rm -f "$shm"
fi
same output_file_holds_the_text "$TMP/seed7" "$TMP/file"
"$LONGHAND" $G --temp 1 --min_p 0.05 --generation-config none >"$TMP/t"
same models_own_settings_equal_the_flags "$TMP/seed7" "$TMP/t"
"$LONGHAND" $G --generation-config none >"$TMP/t"; differ neutral_settings_differ "$TMP/seed7" "$TMP/t"
"$LONGHAND" $G --temp 0 --repeat-penalty 1.3 --repeat-last-n 64 >"$TMP/a"
"$LONGHAND" $G --temperature 0 --penalty 1.3 --penalty-window 64 >"$TMP/t"
same penalty_aliases "$TMP/a" "$TMP/t"; differ penalty_changes_the_text "$TMP/greedy" "$TMP/t"
"$LONGHAND" $G --samples 2 -o "$TMP/many"
same sample_0_is_the_plain_seed "$TMP/seed7" "$TMP/many.0"
differ sample_1_is_another_text "$TMP/seed7" "$TMP/many.1"

"$LONGHAND" $G --format ids >"$TMP/ids"
[ "$(grep -cE '^[0-9]+$' "$TMP/ids")" = 60 ] && [ "$(wc -l <"$TMP/ids")" = 60 ]
result ids_are_one_number_per_line $? "$(head -3 "$TMP/ids")"
first=$(head -1 "$TMP/ids")
"$LONGHAND" $G --format ids --logit-bias "$first:-inf" >"$TMP/t"; [ "$(head -1 "$TMP/t")" != "$first" ]
result banned_token_never_appears $? "$first"
"$LONGHAND" $G --format ids --logit-bias "{\"77\": 100}" >"$TMP/t"; [ "$(sort -u "$TMP/t")" = 77 ]
result biased_token_always_appears $? "$(head -3 "$TMP/t")"

# A stop string: the text ends before it.
word=$(tr -c 'a-z' '\n' <"$TMP/seed7" | grep -E '^.{4,}' | sed -n 5p)
"$LONGHAND" $G --stop "$word" >"$TMP/t"; r=$?
awk -v RS='\001' -v w="$word" '{ printf "%s", substr($0, 1, index($0, w) - 1) }' "$TMP/seed7" >"$TMP/want"
[ $r = 0 ] && cmp -s "$TMP/want" "$TMP/t"; result text_ends_before_the_stop_string $? "exit $r, stop '$word'"

# An early end of text, forced by a bias: the last line names both lengths.
"$LONGHAND" run -m $MODEL -p x -n 50 -s 1 --logit-bias 4095:100 >"$TMP/t" 2>"$TMP/err"
[ ! -s "$TMP/t" ] && tail -1 "$TMP/err" | grep -q 'token 4095.* after 0 of 50 tokens'
result early_end_of_text_is_reported $? "$(tail -1 "$TMP/err")"
"$LONGHAND" run -m $MODEL -p x -n 50 -s 1 --logit-bias 4095:100 --min-tokens 9 --format ids -q >"$TMP/t"; [ \
    "$(wc -l <"$TMP/t")" = 9 ]
result min_tokens_bans_the_end $? "$(wc -l <"$TMP/t")"
"$LONGHAND" run -m $MODEL -p x -n 50 -s 1 --logit-bias 4095:100 --ignore-eos --format ids -q >"$TMP/t"; [ \
    "$(wc -l <"$TMP/t")" = 50 ]
result ignore_eos_continues $? "$(wc -l <"$TMP/t")"

# Standard error: the settings once, a drawn seed, the speed at the end; nothing with -q; JSON lines.
"$LONGHAND" run -m $MODEL -p x -n 5 >"$TMP/t" 2>"$TMP/err"
grep -q 'generation_config.json): temperature 1, min-p 0.05' "$TMP/err" && tail -1 "$TMP/err" |
    grep -qE '^5 tokens, [0-9.]+ s, [0-9.]+ tokens/s, [0-9.]+ tokens a pass$'
result standard_error_has_settings_and_speed $? "$(cat "$TMP/err")"
seed=$(sed -n 's/^seed: //p' "$TMP/err")
"$LONGHAND" run -m $MODEL -p x -n 5 -q -s "$seed" >"$TMP/a"
same a_drawn_seed_writes_the_text_again "$TMP/t" "$TMP/a"
"$LONGHAND" run -m $MODEL -p x -n 5 -q >/dev/null 2>"$TMP/err"; [ ! -s "$TMP/err" ]
result quiet_prints_nothing $? "$(cat "$TMP/err")"
"$LONGHAND" run -m $MODEL -p x -n 5 --progress json >/dev/null 2>"$TMP/err"
! grep -qvE '^\{.*\}$' "$TMP/err" && tail -1 "$TMP/err" |
    grep -q '"phase": "done", "tokens": 5, "of": 5, "finish_reason": "length"'
result progress_json_is_json_lines $? "$(tail -1 "$TMP/err")"

# The model's own settings: do_sample false is greedy, a flag wins, none is neutral.
mkdir "$TMP/greedy_model" && for f in config.json tokenizer.json model.safetensors; do
    ln -s "$(realpath $MODEL)/$f" "$TMP/greedy_model/$f"
done
echo '{"do_sample": false, "temperature": 0.7, "top_k": 3, "eos_token_id": 4095}' \
    >"$TMP/greedy_model/generation_config.json"
H="run --model $TMP/greedy_model --prompt-file $P --tokens 60 --seed 7"
"$LONGHAND" $H >"$TMP/t" 2>"$TMP/err"; same do_sample_false_is_greedy "$TMP/greedy" "$TMP/t"
grep -q 'do_sample false, so temperature 0, top-k 3' "$TMP/err"
result do_sample_false_is_reported $? "$(cat "$TMP/err")"
"$LONGHAND" $H --temp 0.9 2>"$TMP/err" >"$TMP/t"; grep -q '(generation_config.json): top-k 3$' "$TMP/err"
result settings_that_flags_replace_are_not_reported $? "$(cat "$TMP/err")"
"$LONGHAND" $H --generation-config none -q >"$TMP/a"
"$LONGHAND" $H --temperature 1 --top-k 0 -q >"$TMP/t"
same flags_win_over_the_models_settings "$TMP/a" "$TMP/t"
rm "$TMP/greedy_model/generation_config.json"
"$LONGHAND" $H -q >"$TMP/t"
same without_model_settings_temperature_is_1 "$TMP/a" "$TMP/t"

# Lengths: dynamic NTK ends at its original length in every case; the other forms of RoPE go beyond the
# context when allowed.
D=build/data/models/llama-dynamic-old-bf16
check dynamic_ntk_is_refused_beyond_its_length 2 'dynamic NTK.*earlier keys would have to turn' run -m $D -p \
    x -n 10000 --allow-beyond-context
check score_beyond_the_context 2 'tokens are beyond this model.s context of 2560; --window N' score -m \
    build/data/models/llama-linear-old-bf16 build/data/models/long.txt
"$LONGHAND" run -m build/data/models/llama-linear-old-bf16 -p x -n 2700 -s 1 -q --ignore-eos \
    --allow-beyond-context --format ids >"$TMP/t"; [ "$(wc -l <"$TMP/t")" = 2700 ]
result beyond_the_context_when_allowed $? "$(wc -l <"$TMP/t")"
"$LONGHAND" run -m build/data/models/llama-linear-old-bf16 -p x -n 2700 -s 1 -q --ignore-eos \
    --context-scaling yarn:4 --format ids >"$TMP/a"; [ "$(wc -l <"$TMP/a")" = 2700 ]
result scaled_context_holds_more $? "$(wc -l <"$TMP/a")"
"$LONGHAND" run -m build/data/models/llama-linear-old-bf16 -p x -n 2700 -s 1 -q --ignore-eos --rope-scaling \
    yarn --rope-scale 4 --format ids >"$TMP/b"
same rope_scaling_is_an_alias "$TMP/a" "$TMP/b"
differ scaling_changes_the_text "$TMP/a" "$TMP/t"

# A model in the Hugging Face cache.
mkdir -p "$TMP/hub/models--org--name/refs" "$TMP/hub/models--org--name/snapshots" &&
    printf abc123 >"$TMP/hub/models--org--name/refs/main"
ln -s "$(realpath $MODEL)" "$TMP/hub/models--org--name/snapshots/abc123"
HF_HUB_CACHE="$TMP/hub" "$LONGHAND" run -m org/name -f $P -n60 -s7 -q >"$TMP/t"
same model_from_the_cache "$TMP/seed7" "$TMP/t"

# A container may hide the boot_id, which tells a dead worker from a living one of another boot.
hide='mount --bind /dev/null /proc/sys/kernel/random/boot_id && exec "$@"'
if unshare -rm bash -c "$hide" _ true 2>/dev/null; then
    "$LONGHAND" run -m $MODEL -p x -n 30 -s 1 -q >"$TMP/a"
    unshare -rm bash -c "$hide" _ "$LONGHAND" run -m $MODEL -p x -n 30 -s 1 -q >"$TMP/b" 2>"$TMP/err"
    same a_text_without_a_boot_id "$TMP/a" "$TMP/b"
else
    skip a_text_without_a_boot_id "no mount namespace"
fi
exit $failed
