#!/bin/bash
# Batches: the input and output files of the OpenAI Batch API, bad lines, names, interruptions, exports.
. tests/cli/lib.inc
L="$LONGHAND"
B=tests/cli/batch_files.py
python3 $B good 200 >"$TMP/in.jsonl" || { fail batch_files "python3 cannot make the files"; exit 1; }
normal() { python3 $B normal "$1"; }

# 200 lines and their results. The same command again writes the same file without new jobs.
"$L" run --batch "$TMP/in.jsonl" -o "$TMP/out.jsonl" -m $MODEL -n 7 --seed 11 -q 2>"$TMP/err"; r=$?
[ $r = 0 ] && [ ! -s "$TMP/err" ]; result run_batch $? "exit $r: $(head -c 300 "$TMP/err")"
python3 $B check "$TMP/in.jsonl" "$TMP/out.jsonl" 7 11 >"$TMP/err" 2>&1
result batch_output_answers_its_input $? "$(tail -3 "$TMP/err")"
cp "$TMP/out.jsonl" "$TMP/first"; "$L" run --batch "$TMP/in.jsonl" -o "$TMP/out.jsonl" -m $MODEL -n 7 -q
same run_batch_again_is_the_same_file "$TMP/first" "$TMP/out.jsonl"
out=$(python3 scripts/check_openai_batch.py "$TMP/out.jsonl" 2>&1); r=$?
if [ $r = 77 ]; then skip outputs_parse_with_the_openai_package "$out"; else result \
    outputs_parse_with_the_openai_package $r "$out"; fi
id=$("$L" list --json | python3 -c 'import json, sys
print(next(j["job"] for j in json.load(sys.stdin)["jobs"] if j["custom_id"] == "r0"))')
seed=$("$L" show "@in/r0" --json | sed -n 's/.*"seed_text": "\([0-9]*\)".*/\1/p')
"$L" run -m $MODEL -p "Chapter 0. It was a dark night and" -n 7 --seed "$seed" -q >"$TMP/a"
"$L" text "@in/r0" >"$TMP/b"; same line_writes_what_run_writes "$TMP/a" "$TMP/b"

# exports: texts and ids equal those of `text`; selection, order, gzip, partial
"$L" export @in --format ids >"$TMP/a"; "$L" text @in --format ids >"$TMP/b"
same export_ids "$TMP/a" "$TMP/b"
"$L" export @in --format text -o "$TMP/a" --force; "$L" text @in >"$TMP/b"; same export_text "$TMP/a" "$TMP/b"
"$L" export @in --format openai-batch --gzip -o "$TMP/a.gz" && gzip -dc "$TMP/a.gz" >"$TMP/a"
same export_gzip "$TMP/first" "$TMP/a"
"$L" export @in --format jsonl >"$TMP/flat"
python3 $B flat "$TMP/in.jsonl" "$TMP/first" "$TMP/flat" >"$TMP/err" 2>&1
result export_jsonl $? "$(tail -3 "$TMP/err")"
[ "$("$L" export "@in/r3" "@in/r1" --format openai-batch | grep -o '"custom_id": "[^"]*"' | tr -d '\n')" = \
    '"custom_id": "r1""custom_id": "r3"' ]; result export_has_the_order_of_lines $? ""
echo old >"$TMP/private"; chmod 600 "$TMP/private"; 
"$L" export @in/r1 --format text -o "$TMP/private" --force
[ "$(stat -c %a "$TMP/private")" = 600 ] && ! grep -q old "$TMP/private"
result output_keeps_the_mode_of_its_file $? "$(stat -c %a "$TMP/private")"
check export_needs_a_format 2 'text, ids, jsonl, csv and openai-batch' export @in
check export_of_nothing 2 'no job is selected by "@in/none"' export @in/none --format text
python3 $B distinct "$TMP/flat" "$L" "@in" >"$TMP/err" 2>&1
result distinct_n_of_a_report_is_that_of_the_exported_ids $? "$(tail -3 "$TMP/err")"

# An output replaces a file, but never the database or the batch itself. A bad output fails before the work.
cp "$LONGHAND_DB" "$TMP/kept.db"; cp "$TMP/in.jsonl" "$TMP/kept.jsonl"; ln -s "$LONGHAND_DB" "$TMP/link.db"
check output_is_the_database 2 'longhand.db is a database' export @in --format jsonl -o "$LONGHAND_DB"
check output_is_a_link_to_the_database 2 'link.db is a database' run -m $MODEL -p x -n 2 -q -o \
    "$TMP/link.db"
check statistics_are_the_database 2 'json-stats: .*longhand.db is a database' run -m $MODEL -p x -n 2 -q \
    --json-stats "$LONGHAND_DB"
same database_is_left_alone "$LONGHAND_DB" "$TMP/kept.db"
check output_is_the_batch 2 'in.jsonl is the file of --batch' run --batch "$TMP/in.jsonl" -o "$TMP/in.jsonl" \
    -m $MODEL -n 7 -q
same batch_is_left_alone "$TMP/in.jsonl" "$TMP/kept.jsonl"
check output_without_a_name 2 "output: '' is not the name of a file" run --batch "$TMP/in.jsonl" -o '' -m \
    $MODEL -n 7 -q --db "$TMP/unmade.db"
[ ! -e "$TMP/unmade.db" ]; result nothing_is_made_then $? ""

# names: only new requests are added; a line with another body is refused, and then nothing is added
(cat "$TMP/in.jsonl"; python3 $B line new 1) >"$TMP/more.jsonl"
[ "$("$L" submit --batch "$TMP/more.jsonl" --name in -m $MODEL -n 7 2>"$TMP/err")" = in ] &&
    grep -q '@in: 1 new job, ' "$TMP/err" && [ "$("$L" list --state queued | grep -c '@in/new')" = 1 ]
result submitting_a_name_again_adds_new_lines $? "$(cat "$TMP/err")"
sed 's/"It was a dark night 1 and"/"Another one"/;s/Chapter 1\./Chapter one./' "$TMP/more.jsonl" \
    >"$TMP/other.jsonl"; python3 $B line newer 1 >>"$TMP/other.jsonl"
check another_body_is_refused 2 'other.jsonl: line 2: custom_id "r1" is in @in already' submit --batch \
    "$TMP/other.jsonl" --name in -m $MODEL -n 7 -q
check nothing_was_added_then 2 'no job is selected' list @in/newer
python3 $B reorder "$TMP/more.jsonl" >"$TMP/swapped.jsonl"
"$L" submit --batch "$TMP/swapped.jsonl" --name in -m $MODEL -n 7 2>"$TMP/err" >/dev/null
grep -q '@in: 0 new jobs' "$TMP/err"; result order_of_members_is_not_the_body $? "$(cat "$TMP/err")"
tac "$TMP/more.jsonl" >"$TMP/turned.jsonl"
"$L" submit --batch "$TMP/turned.jsonl" --name in -m $MODEL -n 7 -q >/dev/null
ids_of() { python3 -c \
    'import json, sys; print(*dict.fromkeys(json.loads(l)["custom_id"] for l in open(sys.argv[1])))' "$1"; }
"$L" export @in --format jsonl --partial >"$TMP/a"
[ "$(ids_of "$TMP/a")" = "$(ids_of "$TMP/turned.jsonl")" ] && [ "$(ids_of "$TMP/a" | wc -w)" = 201 ]
result export_has_the_order_of_the_latest_file $? "$(ids_of "$TMP/a" | head -c 100)"
check what_is_left_out_is_told 0 '^1 job is not done and was left out; --partial exports its text so far' \
    export @in/new --format openai-batch
check quiet_export 0 '' export @in/new --format openai-batch -q
"$L" cancel @in/new -q
"$L" export @in/new --format openai-batch | grep -q '"response": null, "error": {"code": "cancelled"'
result cancelled_line_is_an_error $? ""
(P=$(readlink -f "$L"); cd "$TMP" && cp in.jsonl books.jsonl &&
    "$P" submit --batch books.jsonl -m "$OLDPWD/$MODEL" -n 7 -q --db "$TMP/names.db") >"$TMP/a"
[ "$(cat "$TMP/a")" = books ]; result batch_is_named_after_its_file $? "$(cat "$TMP/a")"

# A second submission reports no settings that it did not use. A request keeps its samples.
"$L" submit --batch "$TMP/more.jsonl" --name in -m $MODEL -n 7 2>"$TMP/err" >/dev/null
[ "$(wc -l <"$TMP/err")" = 2 ] && ! grep -q 'seed\|own settings' "$TMP/err"
result nothing_new_has_no_seed $? "$(cat "$TMP/err")"
check samples_stay 2 \
    'line 1: custom_id "r0" is in @in already .job 1. without sample 1; the number of samples' submit \
    --batch "$TMP/in.jsonl" -m $MODEL -n 7 -q --samples 2
"$L" remove @in/new -q
"$L" submit --batch "$TMP/more.jsonl" --name in -m $MODEL -n 7 2>&1 >/dev/null | grep -q '@in: 1 new job, '
result removed_line_is_queued_again $? ""; "$L" cancel @in/new -q

# shards: every line is in one of them; lines are numbered over the whole file
for i in 1 2 3; do "$L" submit --batch "$TMP/in.jsonl" --shard $i/3 -m $MODEL -n 7 -s 11 -q --db \
    "$TMP/shard$i.db" >/dev/null; done
"$L" list --db "$TMP/shard1.db" --db "$TMP/shard2.db" --db "$TMP/shard3.db" --json | python3 -c '
import json, sys
d = json.load(sys.stdin); n = {}
for j in d["jobs"]: n.setdefault(j["db"], set()).add(int(j["custom_id"][1:]))
a, b, c = (n[p] for p in sorted(n))
assert a | b | c == set(range(200)) and not a & b and not b & c and not a & c, n
assert 0 in a and 1 in b and 2 in c and 3 in a, n
assert d["counts"]["queued"] == len(d["jobs"]) > 200 and len(d["databases"]) == 3, d["counts"]' 2>"$TMP/err"
result shards_share_the_lines $? "$(tail -2 "$TMP/err")"
shards=(--db "$TMP/shard1.db" --db "$TMP/shard2.db" --db "$TMP/shard3.db")
"$L" list "${shards[@]}" --limit 5 --columns job >"$TMP/a"
[ "$(grep -cE '^ *[0-9]+$' "$TMP/a")" = 5 ]; result the_limit_is_for_all_databases $? "$(cat "$TMP/a")"
"$L" list "${shards[@]}" --sort custom_id --limit 5 --json --columns custom_id,job | python3 -c '
import json, sys
jobs = json.load(sys.stdin)["jobs"]
assert all(sorted(j) == ["custom_id", "db", "job"] for j in jobs), jobs
assert sorted(j["custom_id"] for j in jobs) == ["r0", "r1", "r10", "r100", "r101"], jobs' 2>"$TMP/err"
result the_limit_keeps_the_first_of_all_databases $? "$(tail -1 "$TMP/err")"
"$L" report 1 2 --db "$TMP/shard1.db" --db "$TMP/shard2.db" --json | python3 -c '
import json, sys
r = json.load(sys.stdin)
assert [(j["job"], j["db"][-9:]) for j in r] == [(1, "shard1.db"), (2, "shard1.db"),
                                                  (1, "shard2.db"), (2, "shard2.db")], r' 2>"$TMP/err"
result report_of_several_databases $? "$(tail -1 "$TMP/err")"
"$L" report @in/r0 @in/r1 --db "$TMP/shard1.db" --db "$TMP/shard2.db" >"$TMP/a"
grep -q "@in/r0 in .*/shard1.db" "$TMP/a" && grep -q "@in/r1 in .*/shard2.db" "$TMP/a" &&
    [ "$(wc -l <"$TMP/a")" = 4 ]; result a_name_may_be_in_one_of_them $? "$(cat "$TMP/a")"
"$L" report 1 --db "$TMP/shard1.db" --db "$TMP/shard2.db" --html >"$TMP/a"
[ "$(grep -o 'id="job-[^"]*"' "$TMP/a" | sort -u | wc -l)" = 2 ]
result anchors_of_several_databases_differ $? "$(grep -o 'id="job-[^"]*"' "$TMP/a")"
"$L" export 1 --partial --format jsonl --db "$TMP/shard1.db" --db "$TMP/shard2.db" |
    grep -c '"db": ".*shard[12].db"' >"$TMP/a"; [ "$(cat "$TMP/a")" = 2 ]
    result export_of_several_databases $? "$(cat "$TMP/a")"
check a_name_in_none_of_them 2 'no job is selected by "@in/r2"' report @in/r2 --db "$TMP/shard1.db" --db \
    "$TMP/shard2.db"
check the_same_database_twice 2 'is given twice' list --db "$TMP/shard1.db" --db \
    "$TMP/../$(basename "$TMP")/shard1.db"
"$L" export @in --format openai-batch --partial --db "$TMP/shard3.db" --db "$TMP/shard1.db" \
    --db "$TMP/shard2.db" >"$TMP/a"
python3 -c '
import json, sys
assert [json.loads(l)["custom_id"] for l in open(sys.argv[1])] == [f"r{i}" for i in range(200)]' "$TMP/a" \
    2>"$TMP/err"
result shards_come_out_as_one_batch $? "$(tail -1 "$TMP/err")"
check shard_beyond 2 "shard: I: '4' is not a whole number from 1 to 3" submit --batch "$TMP/in.jsonl" \
    --shard 4/3 -m $MODEL
check several_databases_are_for_reading 2 'is given 2 times, one database is allowed' pause --all --db \
    "$TMP/shard1.db" --db "$TMP/shard2.db"

# A field of the body replaces the option, even if it is an empty list. Only JSON's escapes are decoded.
lists() { "$L" show "$1" --json |
    python3 -c \
    'import json, sys
p = json.load(sys.stdin)
p = (p[0] if isinstance(p, list) else p)["parameters"]
print(p["dry_sequence_breakers"], p["stop"])'; }
python3 -c 'import json
for i, (b, s) in enumerate([([], []), (["\n", "\\n"], ["x"]), (None, None)]):
    body = {"prompt": "x", "dry_multiplier": 1, "dry_sequence_breakers": b, "stop": s}
    print(json.dumps({"custom_id": f"l{i}", "method": "POST", "url": "/v1/completions", "body": body}))' \
    >"$TMP/lists.jsonl"
"$L" submit --batch "$TMP/lists.jsonl" -m $MODEL -n 3 --stop end --dry-sequence-breaker ';' -q >/dev/null
[ "$(lists @lists/l0)$(lists @lists/l1)$(lists @lists/l2)" = \
    "['none'] []['\\n', '\\\\\\\\n'] ['x'][';'] ['end']" ]
    result lists_are_instead_of_the_command_lines $? "$(lists @lists/l0)$(lists @lists/l1)$(lists @lists/l2)"

python3 $B line meta 1 | sed 's/}}$/}, "metadata": {"id": 12345678901234567890}}/' >"$TMP/meta.jsonl"
"$L" submit --batch "$TMP/meta.jsonl" -m $MODEL -q >/dev/null
"$L" show @meta --json >"$TMP/a"; "$L" export @meta --partial --format jsonl >"$TMP/b"
python3 -c \
    'import json, sys; assert json.load(open(sys.argv[1]))["metadata"] == {"id": 12345678901234567890}' \
    "$TMP/a" && grep -q '"metadata": {"id": 12345678901234567890}' "$TMP/b"
    result large_numbers_stay_in_metadata $? "$(grep metadata "$TMP/a")"

# chat: options of the command line are defaults for the lines; the template decides what the model reads
chat_line() # ID FIELDS
{
    echo "{\"custom_id\": \"$1\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\"," \
        "\"body\": {\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]$2}}"
}
echo "{% for m in messages %}<|im_start|>{{ m.role + '\n' + m.content }}<|im_end|>{{ '\n' }}{% endfor %}\
<|im_start|>assistant{{ '\n' + ('' if enable_thinking else '<think>\n\n</think>\n\n') }}" >"$TMP/think.jinja"
(chat_line t ', "chat_template_kwargs": {"enable_thinking": true}'; chat_line o '') >"$TMP/chat.jsonl"
"$L" submit --batch "$TMP/chat.jsonl" -m $MODEL -n 3 --chat-template "$TMP/think.jinja" --thinking off \
    -q >/dev/null &&
    "$L" text @chat --with-prompt --json | python3 -c '
import json, sys
a, b = (x["prompt"] for x in json.load(sys.stdin))
assert a == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", a
assert b == a + "<think>\n\n</think>\n\n", b' \
    2>"$TMP/err"
result options_are_defaults_of_chat_lines $? "$(tail -1 "$TMP/err")"
[ "$("$L" export @chat --format csv --partial --fields prompt | sort -u | tr '\r\n' '  ')" = "Hi  prompt  " ]
result exports_have_what_the_user_wrote $? "$("$L" export @chat --format csv --partial --fields prompt)"
"$L" run --chat --chat-template "$TMP/think.jinja" --thinking off -p Hi -m $MODEL -n 3 -s 2 -q >"$TMP/a"
python3 -c \
    'import json, sys
l = json.loads(open(sys.argv[1]).readlines()[1])
l["body"]["seed"] = 2
print(json.dumps(l))' "$TMP/chat.jsonl" >"$TMP/chat2.jsonl"
"$L" run --batch "$TMP/chat2.jsonl" -o "$TMP/out2" -m $MODEL -n 3 \
    --chat-template "$TMP/think.jinja" --thinking off -q
"$L" text @chat2 >"$TMP/b"; same chat_line_writes_what_run_writes "$TMP/a" "$TMP/b"
check chat_switch_that_a_template_lacks 0 '^chat template chatml never names enable_thinking$' \
    submit --batch <(head -1 "$TMP/chat.jsonl") --name sw -m $MODEL -n 3 --chat-template chatml
python3 - "$TMP/chat.jsonl" >"$TMP/tools.jsonl" <<'P'
import json, sys
l = json.loads(open(sys.argv[1]).readline())
l["body"].update(tools=[{"type": "function", "function": {"name": "f"}}], reasoning_effort="low",
                 documents=[{"title": "T"}], chat_template_kwargs={"mood": "bad"}, chat_template=
                 "{{ tools[0].function.name }} {{ reasoning_effort }} {{ documents[0].title }} "
                 "{{ mood }} {{ zest }}")
print(json.dumps(l))
P
"$L" submit --batch "$TMP/tools.jsonl" -m $MODEL -n 3 --chat-template-kwargs '{"mood": "good", "zest": 1}' \
    -q >/dev/null
"$L" text @tools --with-prompt | grep -q 'f low T bad 1'
    result tools_and_variables_reach_the_template $? "$("$L" text @tools --with-prompt)"
tail -1 "$TMP/chat.jsonl" >"$TMP/gone.jsonl"
"$L" submit --batch "$TMP/gone.jsonl" -m $MODEL -n 3 -s 9 --chat-template chatml -q >/dev/null
python3 - "$LONGHAND_DB" <<'P'
import sqlite3, sys
with sqlite3.connect(sys.argv[1], timeout=60) as db:
    n = db.execute("""UPDATE input SET parameters = replace(parameters, '"chatml"', '"qwen3"')
                      WHERE job = (SELECT max(id) FROM job)""").rowcount
assert n == 1
P
check a_job_keeps_a_template_of_an_older_version 0 '@gone: 0 new jobs, 1 exists' submit \
    --batch "$TMP/gone.jsonl" -m $MODEL -n 3 -s 9 --chat-template qwen3 --thinking on
check a_new_job_has_no_template_of_an_older_version 2 \
    "line 1: chat template 'qwen3': this version has it no more" \
    submit --batch "$TMP/gone.jsonl" --name gone2 -m $MODEL -n 3 --chat-template qwen3
check a_path_is_no_template_of_a_body 2 'line 1: body.chat_template: .*unknown, allowed are chatml' \
    submit --batch <(sed "s|{{ tools.*zest }}|$TMP/think.jinja|" "$TMP/tools.jsonl") --name pa -m $MODEL -n 3

# bad lines: a message names each line and what is wrong, and nothing is queued
for i in 20 0; do
    python3 $B bad $i >"$TMP/bad.jsonl"
    "$L" submit --batch "$TMP/bad.jsonl" -m $MODEL -n 7 --db "$TMP/bad.db" >"$TMP/out" 2>"$TMP/err"; r=$?
    [ $r = 2 ] && [ ! -s "$TMP/out" ] && [ ! -e "$TMP/bad.db" ]
    result bad_lines_queue_nothing_$i $? "exit $r"
    python3 $B bad-lines "$TMP/err" $i >"$TMP/a" 2>&1; result bad_lines_are_named_$i $? "$(tail -3 "$TMP/a")"
done
sed -n 3p "$TMP/bad.jsonl" >"$TMP/one.jsonl"
check one_bad_line_is_one_line 2 'one.jsonl: line 1: ' submit --batch "$TMP/one.jsonl" -m $MODEL -n 7
echo '{"custom_id": "a", "url": "/v1/completions", "method": "POST", "body": {"prompt": "x", "top_p": 0}}' \
    >"$TMP/zero.jsonl"
echo '{"prompt": "x", "reasoning": null, "verbosity": "medium"}' >"$TMP/null.jsonl"
check an_unknown_field_that_is_null_is_absent 0 '' submit --batch "$TMP/null.jsonl" -m $MODEL -n 7 -q
check a_pipe_names_no_batch 2 '^longhand: --batch /dev/fd/[0-9]*: only a regular file gives its name' \
    submit --batch <(echo '{"prompt": "x"}') -m $MODEL -n 7
check nor_does_standard_input 2 '^longhand: --batch -: only a regular file' submit --batch - -m $MODEL -n 7
check top_p_of_zero_in_a_body_has_one_range 2 \
    "line 1: body.top_p: '0' is not a number from 0 to 1, without 0$" \
    submit --batch "$TMP/zero.jsonl" -m $MODEL -n 7
for i in $(seq 30); do echo '{}'; done >"$TMP/many.jsonl"
"$L" submit --batch "$TMP/many.jsonl" -m $MODEL 2>"$TMP/err"
[ "$(wc -l <"$TMP/err")" = 21 ] && grep -q '30 of 30 lines are bad, the first 20 are above' "$TMP/err"
result many_bad_lines_are_cut $? "$(wc -l <"$TMP/err")"
: >"$TMP/empty.jsonl"; check empty_batch 2 'no request' submit --batch "$TMP/empty.jsonl" -m $MODEL
check batch_and_prompt 2 'batch and --prompt' submit --batch "$TMP/in.jsonl" -p x -m $MODEL
check batch_of_no_file 2 'none.jsonl: cannot open' submit --batch "$TMP/none.jsonl" -m $MODEL
check name_with_a_slash 2 'without /' submit --batch "$TMP/in.jsonl" --name a/b -m $MODEL

# A failed job is the error of its line; the other lines have texts.
mkdir "$TMP/model"; cp $MODEL/*.json $MODEL/model.safetensors "$TMP/model/"
python3 $B line x 2 >"$TMP/fails.jsonl"
sed "s#\"max_tokens\"#\"model\": \"$TMP/model\", \"max_tokens\"#;s/r0/broken/" <(python3 $B line broken 1) \
    >>"$TMP/fails.jsonl"
sed -i "1,2s#\"max_tokens\"#\"model\": \"$MODEL\", \"max_tokens\"#" "$TMP/fails.jsonl"
"$L" submit --batch "$TMP/fails.jsonl" -n 7 -q --db "$TMP/f.db" >/dev/null
echo >>"$TMP/model/tokenizer.json"; "$L" work -q --db "$TMP/f.db" 2>/dev/null
cp $MODEL/tokenizer.json "$TMP/model/"
"$L" run --batch "$TMP/fails.jsonl" -o "$TMP/f.jsonl" -n 7 -q --db "$TMP/f.db" 2>"$TMP/err"; r=$?
[ $r = 1 ] && [ "$(wc -l <"$TMP/f.jsonl")" = 3 ] && sed -n 3p "$TMP/f.jsonl" |
    grep -q '"custom_id": "broken", "response": null, "error": {"code": "failed", .*with the tokenizer' \
    && [ "$(grep -c '"error": null' "$TMP/f.jsonl")" = 2 ]
result failed_line_is_an_error $? "exit $r: $(cat "$TMP/err")"

# Killed again and again, and stopped by a signal: the same command continues, and writes what an undisturbed
# command writes.
python3 $B line k 10 | sed 's/"max_tokens": [0-9]*/"max_tokens": 300, "ignore_eos": true/' >"$TMP/k.jsonl"
"$L" run --batch "$TMP/k.jsonl" -o "$TMP/calm.jsonl" -m $MODEL -s 5 -q --db "$TMP/calm.db"
again="run --batch $TMP/k.jsonl -o $TMP/k.out -m $MODEL -s 5 -q --db $TMP/k.db"
tokens_of() { local n=$("$L" list --db "$TMP/$1" 2>/dev/null | sed -n '1s/.*; \([0-9]*\) of .*/\1/p')
echo ${n:-0}; }
wait_for() { for i in $(seq $((1000 * slower))); do eval "$1" && return 0; sleep 0.02; done; return 1; }
# Kill process $1 when more than $2 tokens are stored. The database is locked meanwhile, and a job is left, so
# that the process cannot have begun the output, which a kill would leave unfinished. Prints the tokens.
kill_after_tokens()
{
    python3 -c '
import os, signal, sqlite3, sys, time
pid, before, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
while not os.path.exists(path): time.sleep(0.005)
db = sqlite3.connect(path, isolation_level=None, timeout=60)
while True:
    try:
        db.execute("BEGIN EXCLUSIVE")
        tokens, left = db.execute("SELECT sum(tokens), sum(state != \"done\") FROM job").fetchone()
        if left == 0: sys.exit(1)
        if tokens is not None and tokens > before:
            os.kill(pid, signal.SIGKILL)
            print(tokens)
            break
        db.execute("ROLLBACK")
    except sqlite3.OperationalError: pass        # the tables do not exist yet
    time.sleep(0.005)' "$@" "$TMP/k.db"
}
kills=0 before=0                         # a job's first token is stored at once: two kills are sure
while [ $kills -lt 5 ]; do
    "$L" $again & pid=$!
    now=$(kill_after_tokens $pid $((before + RANDOM % (kills < 2 ? 8 : 100)))) || break
    wait $pid
    kills=$((kills + 1)) before=$now
done 2>/dev/null
wait
"$L" $again
"$L" text @k --db "$TMP/k.db" >"$TMP/a"; "$L" text @k --db "$TMP/calm.db" >"$TMP/b"
same killed_batch_writes_the_same_texts "$TMP/a" "$TMP/b"
normal "$TMP/k.out" >"$TMP/a"; normal "$TMP/calm.jsonl" >"$TMP/b"; [ -s "$TMP/a" ] && [ $kills -ge 2 ]
result batch_was_killed $? "$kills kills"; same killed_batch_has_the_same_output "$TMP/a" "$TMP/b"
[ "$(ls "$TMP" | grep -c 'k.out.part')" = 0 ]; result kills_leave_no_pieces $? "$(ls "$TMP" | grep part)"
rm -f "$TMP/s.db" "$TMP/s.out"
env --default-signal=INT "$L" run --batch "$TMP/k.jsonl" -o "$TMP/s.out" -m $MODEL -s 5 -q --db "$TMP/s.db" \
    2>"$TMP/err" & pid=$!
wait_for '[ "$(tokens_of s.db)" -gt 0 ]'
kill -INT $pid; wait $pid; r=$?
[ $r = 75 ] && grep -q 'jobs of @k are left, the same command continues' "$TMP/err" && [ ! -e "$TMP/s.out" ]
result stopped_batch_says_how_it_goes_on $? "exit $r: $(cat "$TMP/err")"
"$L" export @k --format openai-batch --partial --db "$TMP/s.db" >"$TMP/a"
[ "$(wc -l <"$TMP/a")" = 10 ] && grep -q '"finish_reason": null' "$TMP/a"
result partial_shows_what_is_there $? "$(wc -l <"$TMP/a")"
"$L" run --batch "$TMP/k.jsonl" -o "$TMP/s.out" -m $MODEL -s 5 -q --db "$TMP/s.db"
normal "$TMP/s.out" >"$TMP/a"; same stopped_batch_goes_on "$TMP/b" "$TMP/a"

# Large batches: one transaction, and the model is read once. Processor seconds do not depend on other load.
n=1000; [ -z "${LONG:-}" ] || n=10000
python3 $B line big $n >"$TMP/big.jsonl"
timed() { local TIMEFORMAT='%U %S'; time_of=$({ time "$@" >"$TMP/out" 2>"$TMP/err" </dev/null; } 2>&1)
r=$?; ms=$(echo "$time_of" | awk '{ print int(1000 * ($1 + $2)) }'); }
timed "$L" submit --batch "$TMP/big.jsonl" -m $MODEL -q --db "$TMP/big.db"
[ $r = 0 ] && [ "$ms" -lt $((10000 * slower)) ]
result large_batch_is_submitted_in_seconds $? "$r, $ms ms"; a=$ms
timed "$L" list --db "$TMP/big.db"
[ $r = 0 ] && [ "$ms" -lt $((5000 * slower)) ] && [ "$(wc -l <"$TMP/out")" = $((n + 2)) ]
result large_batch_is_listed_in_seconds $? "$r, $ms ms"; b=$ms
timed "$L" export @big --format openai-batch --partial --db "$TMP/big.db"
[ $r = 0 ] && [ "$ms" -lt $((10000 * slower)) ] && [ "$(wc -l <"$TMP/out")" = $n ]
result large_batch_is_exported_in_seconds $? "$r, $ms ms"
echo "    $n lines: submit $a ms, list $b ms, export $ms ms of processors"
# A file from Windows has a byte order mark, and its lines end with CR LF.
(printf '\357\273\277'
 printf '{"custom_id": "%s", "method": "POST", "url": "/v1/completions", "body": %s}\r\n' \
     a '{"prompt": "x", "max_tokens": 4}' b '{"prompt": "x", "max_tokens": 4}') >"$TMP/windows.jsonl"
"$LONGHAND" run --batch "$TMP/windows.jsonl" -m $MODEL -o "$TMP/windows.out" -q 2>"$TMP/err" &&
    [ "$(grep -c '"status_code": 200' "$TMP/windows.out")" = 2 ]
    result a_batch_file_from_windows $? "$(cat "$TMP/err")"
exit $failed
