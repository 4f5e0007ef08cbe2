#!/bin/bash
# Batches of plain prompts: JSON lines without a body, and text with one prompt a line.
. tests/cli/lib.inc
L=$LONGHAND
O=(-m "$MODEL" -n 12 -s 3)
cat >"$TMP/book.jsonl" <<'J'
{"prompt": "Chapter 1"}
{"custom_id": "two", "prompt": "Chapter \"2\"", "metadata": {"page": 7}}

{"prompt": "Chapter 3", "custom_id": null}
J
check plain_lines_are_a_batch 0 '@book: 3 new jobs' submit --batch "$TMP/book.jsonl" "${O[@]}"
"$L" work -q; "$L" export @book --format jsonl >"$TMP/out"
python3 - "$TMP/out" <<'PY' 2>"$TMP/err"
import json, sys
v = [json.loads(l) for l in open(sys.argv[1])]
want = [("1", "Chapter 1"), ("two", 'Chapter "2"'), ("4", "Chapter 3")]
assert [(x["custom_id"], x["prompt"]) for x in v] == want, v
assert v[1]["metadata"] == {"page": 7} and v[1]["page"] == 7 and all(x["tokens"] == 12 for x in v), v
PY
result a_plain_line_without_custom_id_has_its_number $? "$(tail -1 "$TMP/err")"
printf '{"custom_id": "%s", "method": "POST", "url": "/v1/completions", "body": {"prompt": "%s"}}\n' \
    1 "Chapter 1" >"$TMP/full.jsonl"
check a_plain_line_equals_its_long_form 0 '@book: 0 new jobs, 1 exists already and stays unchanged' submit \
    --batch "$TMP/full.jsonl" "${O[@]}" \
    --name book
bad() { printf '%s\n' "$2" >"$TMP/bad.jsonl"; check "$1" 2 "$3" submit --batch "$TMP/bad.jsonl" "${O[@]}"; }
bad a_field_beside_a_plain_prompt '{"prompt": "x", "temperature": 0}' \
    'line 1: offset 16: the field "temperature" .* prompt, where custom_id and metadata are allowed'
bad a_plain_prompt_is_a_text '{"prompt": {"a": 1}}' 'line 1: .*prompt'
bad a_plain_custom_id_is_a_text '{"prompt": "x", "custom_id": 7}' 'custom_id .*allowed is a text of 1 to'
bad a_plain_number_is_in_use "$(printf '{"prompt": "x"}\n{"prompt": "y", "custom_id": "1"}')" \
    'line 2: custom_id: "1" is also in line 1'

printf 'Chapter "1" \\n\r\n\nChapter 3\nÄ 4' >"$TMP/prompts.txt"
"$L" submit --batch "$TMP/prompts.txt" "${O[@]}" 2>"$TMP/err"
grep -q '3 of 3 lines are bad; nothing was queued (with --lines each line is a prompt)$' "$TMP/err"
result text_without_lines_has_a_hint $? "$(tail -1 "$TMP/err")"
check lines_are_a_batch 0 '@prompts: 3 new jobs' submit --batch "$TMP/prompts.txt" --lines "${O[@]}"
"$L" show @prompts --json | python3 -c 'import json, sys
v = [(x["custom_id"], x["prompt"]) for x in json.load(sys.stdin)]
assert v == [("1", "Chapter \"1\" \\n"), ("3", "Chapter 3"), ("4", "Ä 4")], v' 2>"$TMP/err"
result each_line_is_a_prompt $? "$(tail -1 "$TMP/err")"
check run_takes_lines_too 0 '' run --batch "$TMP/prompts.txt" --lines "${O[@]}" -o "$TMP/o" -q
[ "$(grep -c '"status_code": 200' "$TMP/o")" = 3 ]; result lines_have_answers $? "$(cat "$TMP/o")"
printf 'good\nb\377d\n' >"$TMP/prompts.txt"
check a_line_that_is_not_utf8 2 'line 2: .*offset 1' submit --batch "$TMP/prompts.txt" --lines "${O[@]}" \
    --name u
printf 'good\nb\0d\n' >"$TMP/prompts.txt"
check a_line_with_nul 2 'line 2: .*NUL.*1' submit --batch "$TMP/prompts.txt" --lines "${O[@]}" --name u
check lines_need_a_batch 2 '--lines needs --batch' submit "${O[@]}" -p x --lines

# --chat: each prompt is the message of a user.
printf '{"prompt": "Who \\"A\\"?", "custom_id": "a"}\n' >"$TMP/plain.jsonl"
tr -d '\n' >"$TMP/long.jsonl" <<'J'
{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [
{"role": "system", "content": "Be \"brief\"."}, {"role": "user", "content": "Who \"A\"?"}]}}
J
C=(--chat-template chatml)
check a_batch_of_prompts_may_be_a_chat 0 '@c: 1 new job$' submit --batch "$TMP/plain.jsonl" --name c \
    --chat --system 'Be "brief".' "${O[@]}" "${C[@]}"
check the_chat_equals_its_long_form 0 '@c: 0 new jobs, 1 exists' submit --batch "$TMP/long.jsonl" --name c \
    "${O[@]}" "${C[@]}"
"$L" submit --batch "$TMP/long.jsonl" --name long "${O[@]}" "${C[@]}" -q >/dev/null; "$L" work -q
"$L" text @c >"$TMP/a"; "$L" text @long >"$TMP/b"
same the_chat_writes_the_text_of_its_long_form "$TMP/a" "$TMP/b"
printf 'Who?\nWhy?\n' >"$TMP/q.txt"
check lines_may_be_chats 0 '@q: 2 new jobs' submit --batch "$TMP/q.txt" --lines --chat "${O[@]}" "${C[@]}"
"$L" show @q/2 --json | grep -q '"prompt": "Why?"'; result each_line_is_a_message $? "$("$L" show @q/2 --json)"
check chat_and_a_line_with_a_url 2 'line 1: --chat is for lines' submit --batch "$TMP/long.jsonl" --name u \
    --chat \
    "${O[@]}" "${C[@]}"
check chat_and_ids 2 'line 1: .*with --chat a text is needed' submit --batch <(echo '{"prompt": [1, 2]}') \
    --name u \
    --chat "${O[@]}" "${C[@]}"
check system_needs_chat 2 '^longhand: --system needs --chat' submit --batch "$TMP/plain.jsonl" --system x \
    "${O[@]}"
exit $failed
