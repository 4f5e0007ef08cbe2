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
bad a_field_beside_a_plain_prompt '{"prompt": "x", "tempo": 0}' \
    'line 1: .*offset 16.*the field "tempo" is unknown'
bad a_plain_prompt_is_a_text '{"prompt": {"a": 1}}' 'line 1: .*prompt'
bad a_plain_custom_id_is_a_text '{"prompt": "x", "custom_id": 7}' 'custom_id .*allowed is a text of 1 to'
bad a_plain_number_is_in_use "$(printf '{"prompt": "x"}\n{"prompt": "y", "custom_id": "1"}')" \
    'line 2: custom_id: "1" is also in line 1'

printf 'Chapter "1" \\n\r\n\nChapter 3\nÄ 4' >"$TMP/prompts.txt"
"$L" submit --batch "$TMP/prompts.txt" "${O[@]}" 2>"$TMP/err"
grep -q \
    '3 of 3 lines are bad; nothing was queued (with --lines each line is a prompt, --csv reads a table)$' \
    "$TMP/err"
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
"$L" show @q/2 --json | grep -q '"prompt": "Why?"'
result each_line_is_a_message $? "$("$L" show @q/2 --json)"
check chat_and_a_line_with_a_url 2 'line 1: --chat is for lines' submit --batch "$TMP/long.jsonl" --name u \
    --chat \
    "${O[@]}" "${C[@]}"
check chat_and_ids 2 'line 1: .*with --chat a text is needed' submit --batch <(echo '{"prompt": [1, 2]}') \
    --name u \
    --chat "${O[@]}" "${C[@]}"
check system_needs_chat 2 '^longhand: --system needs --chat' submit --batch "$TMP/plain.jsonl" --system x \
    "${O[@]}"

# Short lines have the fields of a body; tables of CSV and TSV become such lines.
cat >"$TMP/table.csv" <<'J'
custom_id,prompt,max_tokens,temperature,lang,user
a,"Once, upon
a ""time""",5,0.7,en,007
b,Hello,6,,de,

c,Third,,1,fr,x
J
printf 'messages\tn\ttopic\nHi there\t2\tgreeting\n[{"role":"user","content":"u"}]\t\tx\n' >"$TMP/chats.tsv"
check a_table_is_a_batch 0 '@table: 3 new jobs' submit --batch "$TMP/table.csv" "${O[@]}"
check a_table_of_chats 0 '@chats: 3 new jobs' submit --batch "$TMP/chats.tsv" "${O[@]}" "${C[@]}"
"$L" export @table @chats --partial --format jsonl --fields custom_id,prompt,metadata,parameters.temperature \
    >"$TMP/rows"
python3 - "$TMP/rows" <<'P' 2>"$TMP/err"
import json, sys
v = [json.loads(l) for l in open(sys.argv[1])]
got = [(x["custom_id"], x["prompt"], x["metadata"], x["parameters.temperature"]) for x in v]
assert got == [("a", 'Once, upon\na "time"', {"lang": "en", "user": "007"}, 0.7),
               ("b", "Hello", {"lang": "de"}, 1), ("c", "Third", {"lang": "fr", "user": "x"}, 1),
               ("2", "Hi there", {"topic": "greeting"}, 1), ("2", "Hi there", {"topic": "greeting"}, 1),
               ("3", "u", {"topic": "x"}, 1)], got
P
result rows_are_requests $? "$(tail -1 "$TMP/err")"
# The samples of a line: @BATCH/custom_id/sample.
[ "$("$L" list @chats/2/1 --columns sample,name,prompt | tail -1 | tr -s ' ')" = " 1 @chats/2/1 Hi there" ] &&
    [ "$("$L" list @chats/2 --columns name | sed 1,2d | tr -d ' ' | tr '\n' ,)" = "@chats/2,@chats/2/1," ]
result samples_have_names $? "$("$L" list @chats --columns sample,name,prompt)"
check a_sample_that_is_not_there 2 'no job is selected by "@chats/2/7"' list @chats/2/7
"$L" work --max-jobs 99 2>"$TMP/log" && grep -q 'job [0-9]* @chats/2/1: done' "$TMP/log"
result logs_name_samples $? "$(head -3 "$TMP/log")"
cp "$TMP/table.csv" "$TMP/table"
check a_table_of_any_name 0 '@again: 3 new jobs' submit --batch "$TMP/table" --csv --name again "${O[@]}"
check a_table_again_is_the_same 0 '@table: 0 new jobs, 3 exist' submit --batch "$TMP/table.csv" "${O[@]}"
table() { printf "$1" >"$TMP/bad.csv"; }
bad_table()
{
    local name=$1 pattern=$2
    table "$3"
    check "$name" 2 "$pattern" submit --batch "$TMP/bad.csv" "${O[@]}"
}
bad_table a_table_without_prompts 'row 1: .*prompt or messages, with a comma between two; found a,b$' \
    'a,b\n1,2\n'
bad_table a_table_with_semicolons 'with a comma between two; found prompt;top_p$' 'prompt;top_p\n"a";0.5\n'
bad_table a_row_without_a_prompt 'row 2: body.prompt is missing$' 'prompt,top_p\n,0.9\n'
bad_table a_row_without_messages 'row 2: body.messages is missing$' 'messages,top_p\n,0.9\n'
bad_table a_quote_without_end 'row 2, column 1: the quote' 'prompt\n"a\n'
bad_table a_row_with_fewer_cells 'row 2: 1 cells, row 1 names 2' 'prompt,x\na\n'
bad_table a_bad_value_in_a_row 'row 2: .*top_p' 'prompt,top_p\na,9\n'
printf 'PAR1....' >"$TMP/p.parquet"
check parquet_is_refused_with_a_way_on 2 'python3 -c "import pandas' submit --batch "$TMP/p.parquet" "${O[@]}"
echo '{"prompt": "P", "topic": "x"}' >"$TMP/bad.jsonl"
check an_unknown_field_names_metadata 2 'field "topic" is unknown .* belongs into "metadata"' submit --batch \
    "$TMP/bad.jsonl" "${O[@]}"
cat >"$TMP/short.jsonl" <<'J'
{"messages": [{"role": "user", "content": "Q"}], "max_tokens": 3, "temperature": 0.5, "metadata": {"k": 1}}
{"prompt": "P", "custom_id": "p", "seed": 3, "top_p": 0.5}
J
cat >"$TMP/full.jsonl" <<J
{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "metadata": {"k": 1}, \
"body": {"messages": [{"role": "user", "content": "Q"}], "temperature": 0.5, "max_tokens": 3}}
{"custom_id": "p", "method": "POST", "url": "/v1/completions", \
"body": {"top_p": 0.5, "prompt": "P", "seed": 3}}
J
check short_lines_have_fields 0 '@short: 2 new' submit --batch "$TMP/short.jsonl" "${O[@]}" "${C[@]}"
check short_and_full_lines_are_the_same 0 '0 new jobs, 2 exist' submit --batch "$TMP/full.jsonl" \
    --name short "${O[@]}" "${C[@]}"
"$L" help batch >"$TMP/help"; "$L" help --man >"$TMP/man"
grep -q '^    max_completion_tokens   --tokens$' "$TMP/help" && grep -q 'max_completion_tokens' "$TMP/man"
result help_lists_the_fields_of_a_line $? "$(head -3 "$TMP/help")"
exit $failed
