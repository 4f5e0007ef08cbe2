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

# ---- the EOS of a tokenizer that config.json does not name ----
D=$TMP/eos
mkdir "$D"; cp $MODEL/*.json $MODEL/model.safetensors "$D"
sed -i 's/"eos_token": "[^"]*"/"eos_token": {"content": "<|begin_of_text|>", "special": true}/' \
    "$D/tokenizer_config.json"
E=("${G[@]}"); E[1]=$D
"$L" run "${E[@]}" -n 60 --format ids 2>"$TMP/err" >"$TMP/t"
same the_eos_of_the_tokenizer_ends_a_text "$TMP/want" "$TMP/t"
said='^<|begin_of_text|> (4094), the eos_token of tokenizer_config.json, ends a text, too'
[ "$(grep -c "$said" "$TMP/err")" = 1 ]
result and_it_is_said_once $? "$(cat "$TMP/err")"
"$L" run "${E[@]}" -n 60 --format ids -q --ignore-eos >"$TMP/t"
[ "$(wc -l <"$TMP/t")" = 60 ] && ! grep -q '^4094$' "$TMP/t"
result ignore_eos_bans_it $? "$(wc -l <"$TMP/t")"
line a '"stop": "zzz"' >"$TMP/e.jsonl"; line b '"stop": "zzz"' >>"$TMP/e.jsonl"
"$L" submit -m "$D" --batch "$TMP/e.jsonl" --name e >/dev/null 2>"$TMP/err"
[ "$(grep -c 'ends a text, too' "$TMP/err")" = 1 ]; result a_batch_says_it_once $? "$(cat "$TMP/err")"
"$L" convert -m "$D" --weights bf16 -o "$TMP/eos.gguf" -q
E[1]=$TMP/eos.gguf
"$L" run "${E[@]}" -n 60 --format ids -q >"$TMP/t"; same the_same_from_a_gguf_file "$TMP/want" "$TMP/t"
# The old end counts as before: both are end-of-text ids of the file.
"$L" run -m "$TMP/eos.gguf" -p Once -s 3 --logit-bias 4095:100 -n 9 --format ids -q >"$TMP/t"
[ ! -s "$TMP/t" ]; result and_so_does_the_other_end $? "$(cat "$TMP/t")"

# ---- notices: what loads, but says two things ----
python3 - "$TMP/eos.gguf" "$TMP/odd.gguf" "$TMP/minus.gguf" <<'P'
import sys
b = bytearray(open(sys.argv[1], "rb").read())
at = b.index(b"tokenizer.ggml.eos_token_id") + len("tokenizer.ggml.eos_token_id") + 4
b[at:at + 4] = (32000).to_bytes(4, "little")
open(sys.argv[2], "wb").write(b)
b[at - 4:at + 4] = b"\5\0\0\0" + b"\xff" * 4       # an int32
open(sys.argv[3], "wb").write(b)
P
check an_id_that_is_no_token_of_a_gguf 0 \
    'odd.gguf: tokenizer.ggml.eos_token_id is 32000, which is no token and counts for nothing' \
    submit -m "$TMP/odd.gguf" -p Once -n 3
check an_id_below_zero 0 'minus.gguf: tokenizer.ggml.eos_token_id is -1, which is no token' \
    submit -m "$TMP/minus.gguf" -p Once -n 3
sed -i.old 's/"eos_token_id": 4095/"eos_token_id": [4095, 32000]/' "$D/config.json"
check an_id_that_is_no_token_of_a_folder 0 'eos: eos_token_id 32000 is no token and counts for nothing$' \
    submit -m "$D" -p Once -n 3
mv "$D/config.json.old" "$D/config.json"
python3 - $MODEL/model.safetensors "$D/model.safetensors" <<'P'
import json, sys
b = open(sys.argv[1], "rb").read()
n = int.from_bytes(b[:8], "little")
head, data = json.loads(b[8:8 + n]), b[8 + n:]
for name in ["model.layers.6.input_layernorm.weight"] + [
        f"model.layers.0.self_attn.q_proj.{x}" for x in ("bias", "lora_A.weight", "lora_B.weight")]:
    head[name] = {"dtype": "BF16", "shape": [4], "data_offsets": [len(data), len(data) + 8]}
    data += bytes(8)
head = json.dumps(head).encode()
head += b" " * (-len(head) % 8)
open(sys.argv[2], "wb").write(len(head).to_bytes(8, "little") + head + data)
P
check tensors_that_nothing_reads 0 \
    "eos: 4 tensors are not part of such a model and count for nothing: .*q_proj.bias" \
    submit -m "$D" -p Once -n 3
check a_prompt_that_begins_with_bos 0 \
    '^1 prompt begins with <.begin_of_text.>, which the tokenizer adds, too' \
    submit -m $MODEL -p '<|begin_of_text|>Once' -n 3
echo '{"prompt": "<|begin_of_text|>Once", "max_tokens": 3}' >"$TMP/bos.jsonl"
check and_of_a_batch 0 '1 prompt begins with <.begin_of_text.>' submit -m $MODEL --batch "$TMP/bos.jsonl"
check no_notice_without_cause 0 '' submit -m $MODEL -p Once -n 3
exit $failed
