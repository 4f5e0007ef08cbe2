#!/bin/bash
# score, tokenize, inspect and distinct: formats, exact values, exit codes.
. tests/cli/lib.inc
P=models/demo/openings/portrait.txt

"$LONGHAND" score -m $MODEL $P --json -q >"$TMP/score" &&
    grep -qE '^\{"tokens": [0-9]+, "scored": [0-9]+, "nll": [0-9.]+, "perplexity": [0-9.]+\}$' "$TMP/score"
result score_json_has_its_fields $? "$(cat "$TMP/score")"
"$LONGHAND" score -m $MODEL $P --json --per-token -q -t 5 >"$TMP/per"
[ -s "$TMP/per" ] && [ "$(sed 's/, "token_ids.*//' "$TMP/per")" = "$(sed 's/}$//' "$TMP/score")" ]
result per_token_has_the_same_sum_with_5_threads $? "$(head -c 200 "$TMP/per")"
n=$(sed 's/.*"tokens": \([0-9]*\).*/\1/' "$TMP/score")
sed 's/.*"token_ids": \[\([^]]*\)\].*/\1/; s/, /\n/g' "$TMP/per" >"$TMP/ids"
sed 's/.*"token_nll": \[\([^]]*\)\].*/\1/; s/, /\n/g' "$TMP/per" >"$TMP/nll"
[ "$(wc -l <"$TMP/ids")" = "$n" ] && [ "$(wc -l <"$TMP/nll")" = $((n - 1)) ]
result per_token_has_n_ids_and_n_minus_1_values $? "$n"
"$LONGHAND" tokenize -m $MODEL $P >"$TMP/t"; same score_scores_the_tokens_of_the_text "$TMP/ids" "$TMP/t"
awk '{ s += $1 } END { printf "%.3f\n", s }' "$TMP/nll" >"$TMP/a"; printf '%.3f\n' \
    "$(sed 's/.*"nll": \([0-9.]*\),.*/\1/' "$TMP/score")" >"$TMP/b"
same per_token_values_sum_to_nll "$TMP/a" "$TMP/b"
"$LONGHAND" score -m $MODEL $P --json --per-token --window 100 -q |
    sed 's/.*"token_nll": \[\([^]]*\)\].*/\1/; s/, /\n/g' >"$TMP/w"
[ "$(grep -n null "$TMP/w" | head -2 | tr '\n' ' ')" = "100:null 200:null " ] &&
    cmp -s <(head -99 "$TMP/w") <(head -99 "$TMP/nll") && ! cmp -s "$TMP/w" "$TMP/nll"
result windows_score_all_but_their_first_token $? "$(grep -n null "$TMP/w" | head -3 | tr '\n' ' ')"
"$LONGHAND" score -m $MODEL - --json -q <$P >"$TMP/t"; same score_reads_standard_input "$TMP/score" "$TMP/t"
: >"$TMP/empty"
check score_needs_two_tokens 2 "1 token, at least 2 are needed" score -m $MODEL "$TMP/empty"
printf 'a\xff' >"$TMP/bad"
check score_invalid_utf8 2 "invalid UTF-8 at offset 1" score -m $MODEL "$TMP/bad"
check score_window_beyond_the_context 2 "beyond this model's context of 131072" score -m $MODEL $P --window \
    131073

cat >"$TMP/in.jsonl" <<'END'
"It was the best of times"
""
"caf\u00e9 caf\u00c9 \ud83d\ude00 \"q\" \\ \/ \t\n \u0000"
 "<|end_of_text|> inside <|begin_of_text|>" 
"naïve — 😀"
END
"$LONGHAND" tokenize -m $MODEL --jsonl "$TMP/in.jsonl" >"$TMP/ids.jsonl" &&
    [ "$(wc -l <"$TMP/ids.jsonl")" = 5 ] && [ "$(sed -n 2p "$TMP/ids.jsonl")" = "[4094]" ]
result jsonl_has_one_array_per_line $? "$(sed -n 2p "$TMP/ids.jsonl")"
"$LONGHAND" tokenize -m $MODEL --jsonl --decode "$TMP/ids.jsonl" >"$TMP/back.jsonl"
cat >"$TMP/want.jsonl" <<'END'
"It was the best of times"
""
"café cafÉ 😀 \"q\" \\ / \t\n \u0000"
" inside "
"naïve — 😀"
END
same jsonl_decodes_back_without_special_tokens "$TMP/back.jsonl" "$TMP/want.jsonl"
"$LONGHAND" tokenize -m $MODEL $P | "$LONGHAND" tokenize -m $MODEL --decode >"$TMP/t"
same ids_of_a_file_decode_to_it "$TMP/t" $P
J="tokenize -m $MODEL --jsonl"
for line in 'x' '"a' '"\ud800"' '"\x"' '"a" "b"' '["a"]' '"\u12"' ''; do
    printf '"good"\n%s\n' "$line" >"$TMP/j"
    "$LONGHAND" $J "$TMP/j" >"$TMP/out" 2>"$TMP/err"; r=$?
    [ $r = 2 ] && grep -q 'line 2: .*offset [0-9]' "$TMP/err" && [ "$(wc -l <"$TMP/out")" = 1 ]
    result "jsonl_refuses_<$line>" $? "exit $r: $(cat "$TMP/err")"
done
for line in '[1,]' '[1 2]' '[-1]' '[1.5]' '[99999999999]' '[4096]' '[1' '{}' '[01]'; do
    printf '%s\n' "$line" >"$TMP/j"
    "$LONGHAND" $J --decode "$TMP/j" >"$TMP/out" 2>"$TMP/err"; r=$?
    [ $r = 2 ] && [ "$(wc -l <"$TMP/err")" = 1 ]
    result "jsonl_decode_refuses_<$line>" $? "exit $r: $(cat "$TMP/err")"
done
printf '"ok"\n"ab\xff"\n' >"$TMP/j"
"$LONGHAND" $J "$TMP/j" >/dev/null 2>"$TMP/err"; r=$?
[ $r = 2 ] && grep -q 'line 2: offset 3: byte 0xff is not UTF-8' "$TMP/err"
result jsonl_invalid_utf8_has_its_offset $? "exit $r: $(cat "$TMP/err")"

"$LONGHAND" inspect -m $MODEL --tokens 1000 >"$TMP/t" && grep -qE '^missing +nothing' "$TMP/t" &&
    grep -qE '^KV cache +3168 bytes per token .int16.' "$TMP/t"
result inspect_describes_the_model $? "$(tail -2 "$TMP/t")"
mkdir "$TMP/model" && cp $MODEL/*.json "$TMP/model"
"$LONGHAND" inspect -m "$TMP/model" --json >"$TMP/t" 2>"$TMP/err"; r=$?
[ $r = 2 ] && grep -q '"missing": \["model.safetensors"\]' "$TMP/t" &&
    grep -q '"parameters": 5475584' "$TMP/t" && [ "$(wc -l <"$TMP/err")" = 1 ]
result inspect_names_missing_files_and_describes_the_rest $? "exit $r: $(cat "$TMP/err")"
check run_refuses_a_model_without_weights 2 "model.safetensors" run -m "$TMP/model" -p x -n 5
rm "$TMP/model/tokenizer.json"; cp $MODEL/model.safetensors "$TMP/model"
check run_refuses_a_model_without_a_tokenizer 2 "tokenizer.json" run -m "$TMP/model" -p x -n 5
rm "$TMP/model/config.json"
check inspect_refuses_a_folder_without_config 2 "config.json" inspect -m "$TMP/model"

# The name in Greek, without its first and last letter, whose forms vary.
sisyphus='\xce\xaf\xcf\x83\xcf\x85\xcf\x86\xce\xbf'
printf "It's It\xe2\x80\x99s IT'S stra\xc3\x9fe STRASSE 42 x-42, \xce\xa3$sisyphus\xcf\x82" >"$TMP/d"
printf " \xcf\x83$sisyphus\xcf\x83 e\xcc\x81 e" >>"$TMP/d"
"$LONGHAND" distinct --json "$TMP/d" | sed 's/.*"n_words"/"n_words"/' >"$TMP/t"
expected distinct_folds_case_and_keeps_apostrophes "$TMP/t" distinct.json
check distinct_invalid_utf8 2 "invalid UTF-8 at offset 1" distinct "$TMP/bad"
check distinct_of_a_missing_file 2 "/nonexistent: cannot open" distinct /nonexistent
"$LONGHAND" distinct --json "$TMP/d" "$TMP/empty" | tail -1 |
    grep -q '"words": {"1": null, "2": null, "3": null, "4": null}}\]$'
result distinct_of_an_empty_file_is_null_and_of_several_an_array $? "json"

# Added tokens that only tokenizer_config.json has are tokens, as in transformers, if their ids are free.
mkdir "$TMP/added"
cp build/data/models/llama3-old-bf16/tokenizer.json "$TMP/added"
added() { printf 'the<|tool|>sea' | "$LONGHAND" tokenize -m "$TMP/added" | tr '\n' ' '; }
flags='"lstrip": false, "normalized": false, "rstrip": false, "single_word": false, "special": false'
before=$(added)
printf '{"added_tokens_decoder": {"318": {"content": "<|begin|>", %s}, "320": {"content": "<|tool|>", %s}}}' \
    "$flags" "$flags" >"$TMP/added/tokenizer_config.json"
after=$(added)
[ "$(wc -w <<<"$before")" -gt 8 ] && grep -q '^318 [0-9 ]* 320 [0-9 ]*$' <<<"$after"
result added_tokens_of_the_configuration $? "$before, then $after"
sed -i 's/"320"/"7"/' "$TMP/added/tokenizer_config.json"
[ "$(added)" = "$before" ]
result an_added_token_with_an_id_in_use_is_none $? "$(added)"
exit $failed
