#!/bin/bash
# The tokens that end a text: --stop-id, a --stop that spells a control token, stop_token_ids of a body, and
# the EOS of a tokenizer that the configuration does not name.
. tests/cli/lib.inc
L="$LONGHAND"
# With this bias the model writes its control token 4094 in the middle of the text.
G=(-m $MODEL -p "Once upon a time" -s 3 --logit-bias 4094:8)
run() { "$L" run "${G[@]}" -n 60 -q "$@" 2>"$TMP/err"; }
run --format ids >"$TMP/whole"
at=$(grep -n -m1 '^4094$' "$TMP/whole" | cut -d: -f1)
[ "${at:-0}" -gt 9 ]; result the_token_comes_in_the_middle $? "$at"
head -$((at - 1)) "$TMP/whole" >"$TMP/want"
for words in "--stop <|begin_of_text|>" "--stop-id 4094" "--stop-id 7 --stop-id 4094" \
    "--stop-id 4094 --drafter ngram,suffix --tree 2,1,1" "--stop-id 4094 --ignore-eos"; do
    run --format ids $words --json-stats "$TMP/stats" >"$TMP/t"
    same "ends_before_the_token_${words// /_}" "$TMP/want" "$TMP/t"
done
grep -q '"finish_reason": "stop"' "$TMP/stats"
result the_end_is_a_stop $? "$(cat "$TMP/stats")"
run --stop-id 4094 >"$TMP/text"
run --format ids --min-tokens 60 --stop-id 4094 >"$TMP/t"
[ "$(wc -l <"$TMP/t")" = 60 ] && ! grep -q '^4094$' "$TMP/t"
result min_tokens_bans_a_stop_id $? "$(wc -l <"$TMP/t")"
check an_id_that_no_token_has 2 'stop_token_ids: 4096 is no token of this model, allowed are 0 to 4095' \
    submit "${G[@]}" -n 5 --stop-id 4096
check an_id_that_is_no_number 2 "stop-id: 'x' is not a whole number" submit "${G[@]}" -n 5 --stop-id x

line() { echo "{\"custom_id\": \"$1\", \"body\": {\"prompt\": \"Once upon a time\", $2,
    \"logit_bias\": {\"4094\": 8}, \"max_tokens\": 60, \"seed\": 3}, \"method\": \"POST\",
    \"url\": \"/v1/completions\"}" | tr -d '\n'; echo; }
{ line text '"stop": "<|begin_of_text|>"'; line list '"stop": ["zzz", "<|begin_of_text|>"]'
    line ids '"stop_token_ids": [4094]'; line none '"stop_token_ids": []'; } >"$TMP/b.jsonl"
"$L" submit -m $MODEL --batch "$TMP/b.jsonl" --name b -q >/dev/null 2>"$TMP/err"
result a_batch_with_stop_token_ids $? "$(cat "$TMP/err")"
"$L" work -q
for id in text list ids; do
    "$L" text @b/$id >"$TMP/t"; same "of_a_body_with_$id" "$TMP/text" "$TMP/t"
done
"$L" text @b/none --format ids >"$TMP/t"; same an_empty_list_ends_nothing "$TMP/whole" "$TMP/t"
"$L" export @b --format openai-batch | grep -q '"stop_reason": 4094'
result an_answer_has_the_id_as_its_stop_reason $? "$("$L" export @b --format openai-batch | head -1)"
line bad '"stop_token_ids": [-1]' >"$TMP/bad.jsonl"
check a_body_with_no_id 2 'body.stop_token_ids.* -1' submit -m $MODEL --batch "$TMP/bad.jsonl"

# A part of a text with other ends.
job=$("$L" submit "${G[@]}" -n 60 --stop "<|begin_of_text|>"); "$L" work -q
check the_text_would_end_again 2 'has ended by itself \(4094\)' extend $job --tokens +10
check another_stop_string_goes_on 0 '' extend $job --tokens +20 --stop zzz -q
"$L" work -q; "$L" text $job --format ids >"$TMP/t"
head -$((at + 19)) "$TMP/whole" >"$TMP/a"; same the_text_runs_over_its_old_end "$TMP/a" "$TMP/t"
check verify_after_another_end 0 '' verify $job -q
exit $failed
