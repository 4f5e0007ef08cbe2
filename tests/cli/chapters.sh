#!/bin/bash
# Chapters: extend and fork with parameters of their own, and what reading, resuming and verifying make of
# them.
. tests/cli/lib.inc
L="$LONGHAND"
submit() { "$L" submit -m $MODEL -p Hello "$@" -q; }
text() { "$L" text "$@"; }

# Without new options a text of two runs is that of one.
submit -n 80 -s 3 >/dev/null; submit -n 50 -s 3 >/dev/null; "$L" work -q
check extend_says_what_to_run_next 0 'job 2 is queued: longhand run --resume 2 writes it' extend 2 \
    --tokens +30
"$L" work -q; text 1 >"$TMP/one"; text 2 >"$TMP/two"
same extend_without_options_is_one_longer_run "$TMP/one" "$TMP/two"

# With new options the first part stays, and the second follows them.
submit -n 50 -s 3 >/dev/null; "$L" work -q
check extend_takes_sampling_options 0 'job 3 is queued' extend 3 --tokens +30 --temp 0 --penalty 1.3
"$L" work -q; text 3 >"$TMP/three"
differ other_options_write_another_text "$TMP/one" "$TMP/three"
head -c 100 "$TMP/one" >"$TMP/a"; head -c 100 "$TMP/three" >"$TMP/b"
same the_tokens_before_stay "$TMP/a" "$TMP/b"
check verify_uses_the_parameters_of_each_part 0 '' verify 3 -q
grep -q '80 derived again: identical' "$TMP/out"; result every_token_is_derived $? "$(cat "$TMP/out")"
sql "DELETE FROM part WHERE job = 3" >/dev/null
check verify_needs_the_parts 1 'token 5[0-9] is' verify 3 -q

# An interrupted part resumes with its own parameters.
submit -n 50 -s 3 >/dev/null; "$L" work -q
"$L" extend 4 --tokens +30 --temp 0 --penalty 1.3 -q
"$L" run --resume 4 -q -o "$TMP/four"; same run_resume_uses_the_last_part "$TMP/three" "$TMP/four"
check extend_run_writes_the_text 0 '' extend 4 --tokens +20 --run -q
text 4 >"$TMP/text"; same extend_run_prints_the_text "$TMP/text" "$TMP/out"
check extend_keeps_the_last_parts_parameters 0 '' verify 4 -q

# --from-here prints what was not there before, the given text included.
text 4 >"$TMP/a"
"$L" extend 4 --tokens +9 --append " Chapter 2. " --run --from-here -o "$TMP/new" -q
cat "$TMP/a" "$TMP/new" >"$TMP/b"; text 4 >"$TMP/whole"
grep -q '^ Chapter 2' "$TMP/new" && cmp -s "$TMP/whole" "$TMP/b"
result extend_from_here_writes_the_new_part $? "$(cat "$TMP/new")"
check output_needs_run 2 'extend: --output needs --run' extend 4 --tokens +9 -o "$TMP/none"

check fork_takes_sampling_options 0 'job 5 is queued' fork 1 --at 20 --seed 3 --temp 0.3 --top-k 5
[ "$(cat "$TMP/out")" = 5 ]; result fork_prints_the_number $? "$(cat "$TMP/out")"
"$L" work -q
check verify_of_a_fork 0 '' verify 5 -q
"$L" fork 1 --at 20 --seed 9 --run -q --tokens 40 >"$TMP/fork" </dev/null; text 6 >"$TMP/text"
same fork_run_writes_the_text "$TMP/text" "$TMP/fork"

# A stop string of one part does not end another.
word=$(head -c 60 "$TMP/one" | tail -c 4)
submit -n 80 -s 3 --stop "$word" >/dev/null; "$L" work -q
check an_ended_text_would_end_again 2 'another --stop' extend 7 --tokens +9
check a_new_stop_string_goes_on 0 '' extend 7 --tokens +60 --stop '@@@' -q
"$L" work -q; text 7 | head -c 100 >"$TMP/a"; head -c 100 "$TMP/one" >"$TMP/b"
same the_text_runs_over_the_old_stop_string "$TMP/a" "$TMP/b"
check verify_after_another_stop_string 0 '' verify 7 -q

printf '\xef\xbb\xbf And then came the night.' >"$TMP/more"
check append_file 0 '' extend 1 --tokens +10 --append-file "$TMP/more" -q
text 1 | grep -q ' And then came the night\.'; result the_file_is_in_the_text $? "$(text 1)"
check append_and_append_file 2 'only one of them' extend 3 --tokens +10 --append-file "$TMP/more" --append x
printf 'a\0b' >"$TMP/nul"
check nul_in_an_appended_file 2 'nul: NUL at offset 1' extend 3 --tokens +10 --append-file "$TMP/nul"
check nul_in_a_prompt_file 2 'nul: NUL at offset 1' run -m $MODEL -f "$TMP/nul" -n 3
check a_bad_value_for_a_part 2 "--temp: .-1" extend 3 --tokens +10 --temp -1
: >"$TMP/empty"
check an_empty_prompt_file_has_a_notice 0 'empty: the prompt is empty' submit -m $MODEL -f "$TMP/empty" -n 3

# Places in a text.
"$L" text 3 --with-prompt >"$TMP/with"; { printf Hello; "$L" text 3; } >"$TMP/both"
same text_with_prompt "$TMP/with" "$TMP/both"
"$L" text 3 --find " the" >"$TMP/places"
"$L" text 3 --format ids | python3 -c 'import subprocess, sys
# The tokens of the phrase begin at the tokens that were named: the text before them, decoded, ends there.
program, model, places = sys.argv[1:]
ids = sys.stdin.read().split()
text = subprocess.run([program, "text", "3"], capture_output=True).stdout
want, at = [], text.find(b" the")
while at >= 0:
    for n in range(len(ids) + 1):
        part = subprocess.run([program, "tokenize", "-m", model, "--decode"],
                              input=" ".join(ids[:n]).encode(), capture_output=True).stdout
        if len(part) > at:
            break
    want.append(f"job 3: token {n - 1}, byte {at}\n")
    at = text.find(b" the", at + 1)
got = open(places).read()
assert want and got == "".join(want), (want, got)' "$L" $MODEL "$TMP/places"
result find_prints_the_places_of_a_phrase $? "$(cat "$TMP/places")"
"$L" text 1 3 --json --with-prompt >"$TMP/json"
"$L" text 1 >"$TMP/a"; "$L" text 3 >"$TMP/b"; "$L" text 3 --json --format ids >"$TMP/ids"
"$L" text 3 --format ids >"$TMP/plain"
python3 - "$TMP" <<'P' 2>"$TMP/err"
import json, sys
read = lambda n: open(f"{sys.argv[1]}/{n}").read()
v = json.loads(read("json"))
assert v == [{"job": n, "name": None, "prompt": "Hello", "text": read(t)} for n, t in ((1, "a"), (3, "b"))], v
ids, = json.loads(read("ids"))
assert ids == {"job": 3, "name": None, "ids": [int(x) for x in read("plain").split()], "given": []}, ids
P
result text_is_json $? "$(tail -1 "$TMP/err")"
check find_and_json 2 '--find and --json: only one of them' text 3 --find a --json
check find_without_a_place 1 'find: no such place' text 3 --find 'no such words'
check find_and_format 2 'only one of them' text 3 --find a --format ids

read -r _ _ _ token _ byte < <(sed -n 2p "$TMP/places"); token=${token%,}
id=$("$L" fork 3 --at-text " the" --occurrence 2 --seed 5 -n 90 -q)
[ "$(sql "SELECT n FROM span WHERE job = $id AND kind = 'shared'")" = "$token" ]
result fork_at_the_second_place $? "not $token: $(sql "SELECT n FROM span WHERE job = $id")"
"$L" text $id >"$TMP/a"; "$L" text 3 | head -c "$(wc -c <"$TMP/a")" >"$TMP/b"
same the_fork_has_the_text_before_the_phrase "$TMP/a" "$TMP/b"
# A phrase that begins inside a token: the token is not shared.
"$L" text 3 >"$TMP/t"; inside=$(tail -c +$((byte + 3)) "$TMP/t" | head -c 12)
n=$("$L" text 3 --find "$inside" | head -1 | sed 's/.*token \([0-9]*\).*/\1/')
id=$("$L" fork 3 --at-text "$inside" --seed 5 -n 90 -q)
[ "$(sql "SELECT n FROM span WHERE job = $id AND kind = 'shared'")" = "$n" ]
result fork_inside_a_token $? "$n"
check fork_at_a_phrase_that_is_not_there 2 'has "no such" 0 times, not 1$' fork 3 --at-text 'no such'
check fork_needs_a_place 2 'at TOKEN or --at-text PHRASE is missing' fork 3
check fork_has_one_place 2 'only one of them' fork 3 --at 3 --at-text x

# One file per job.
cat >"$TMP/books.jsonl" <<J
{"custom_id": "one/../two", "method": "POST", "url": "/v1/completions", "body": {"prompt": "A",\
 "max_tokens": 4, "n": 2}}
{"custom_id": "one_.._two", "method": "POST", "url": "/v1/completions", "body": {"prompt": "B",\
 "max_tokens": 4}}
{"custom_id": ".h", "method": "POST", "url": "/v1/completions", "body": {"prompt": "C", "max_tokens": 4}}
J
"$L" submit -m $MODEL --batch "$TMP/books.jsonl" -s 2 -q >/dev/null; "$L" work -q
check export_dir 0 '' export @books 3 --format text --dir "$TMP/out.d"
(cd "$TMP/out.d" && ls -A) >"$TMP/names"
first=$(sql "SELECT min(id) FROM job WHERE custom_id LIKE 'one%'")
printf '%s\n' _h.txt job-3.txt "one_.._two-1.txt" "one_.._two-job$first.txt" \
    "one_.._two-job$((first + 2)).txt" | sort >"$TMP/want"
sort "$TMP/names" | cmp -s - "$TMP/want"; result names_have_safe_characters $? "$(cat "$TMP/names")"
"$L" text 3 | cmp -s - "$TMP/out.d/job-3.txt"; result a_file_has_the_text_of_its_job $? ""
rm "$TMP/out.d/_h.txt"
check no_file_is_overwritten 2 'exists, and no file is overwritten without --force; nothing was exported' \
    export @books --format text --dir "$TMP/out.d"
[ ! -e "$TMP/out.d/_h.txt" ]; result nothing_was_written $? ""
"$L" submit -m $MODEL -p A -n 4 -s 2 --samples 2 --name tale -q >/dev/null; "$L" work -q
"$L" export @tale --format text --dir "$TMP/tale.d" -q; names=$(ls "$TMP/tale.d" | xargs)
[ "$names" = "tale_0.txt tale_1.txt" ]; result samples_of_one_name_have_it_in_their_files $? "$names"

# A file that another process makes while files are being written stays.
"$L" submit -m $MODEL -p A -n 2 -s 2 --samples 60 --name race -q >/dev/null; "$L" work -q
python3 - "$L" "$TMP/race.d" <<'P' >"$TMP/race" 2>&1
import os, signal, subprocess, sys
program, folder = sys.argv[1:]
p = subprocess.Popen([program, "export", "@race", "--format", "text", "--dir", folder],
                     stderr=subprocess.PIPE)
while p.poll() is None and not os.path.exists(folder + "/race_0.txt"):
    pass
p.send_signal(signal.SIGSTOP)
with open(folder + "/race_59.txt", "x") as f:
    f.write("theirs")
p.send_signal(signal.SIGCONT)
message = p.stderr.read().decode()
assert p.wait() == 2 and "race_59.txt exists, and no file is overwritten" in message, message
assert open(folder + "/race_59.txt").read() == "theirs" and len(os.listdir(folder)) == 60
P
result a_file_that_appears_meanwhile_stays $? "$(tail -1 "$TMP/race")"
check dir_and_output 2 'only one of them' export 3 --format text --dir "$TMP/out.d" -o x

# Escapes.
id=$(submit -p 'A\tB\n\\n\d' -e -n 3)
[ "$(sql "SELECT hex(prompt) FROM input WHERE job = $id")" = 4109420A5C6E5C64 ]
result escapes_in_a_prompt $? "$(sql "SELECT hex(prompt) FROM input WHERE job = $id")"
id=$(submit -p 'A\n' -n 3)
[ "$(sql "SELECT hex(prompt) FROM input WHERE job = $id")" = 415C6E ]; result no_escapes_without_e $? ""
check a_stop_string_with_a_backslash_has_a_notice 0 '^--stop: a backslash stands for itself; -e' \
    submit -m $MODEL -p x -n 3 --stop 'a\n' --stop 'b\n'
[ "$(wc -l <"$TMP/err")" = 1 ]; result the_notice_comes_once $? "$(cat "$TMP/err")"
check no_notice_with_e 0 '' submit -m $MODEL -p x -n 3 --stop 'a\n' -e
[[ $(sql "SELECT parameters FROM input WHERE job = $(cat "$TMP/out")") == *'"a\n"'* ]]
result escapes_in_a_stop_string $? "$(cat "$TMP/out")"
cat >"$TMP/b.jsonl" <<'J'
{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x\\n", "max_tokens": 3}}
J
check a_batch_with_escapes 0 '' submit -m $MODEL --batch "$TMP/b.jsonl" -e -q
[ "$(sql "SELECT hex(prompt) FROM input ORDER BY job")" = 785C6E ]; result json_is_not_unescaped $? ""

# Conversations.
cat >"$TMP/m.json" <<'J'
[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Who?"},
 {"role": "assistant", "content": "Ahab."}, {"role": "user", "content": [{"type": "text", "text": "Why?"}]}]
J
python3 - "$TMP/m.json" "$TMP/c.jsonl" <<'P'
import json, sys
m = json.load(open(sys.argv[1]))
json.dump({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
           "body": {"messages": m, "max_tokens": 12, "seed": 4}}, open(sys.argv[2], "w"))
P
"$L" run -m $MODEL --messages "$TMP/m.json" --chat-template chatml -n 12 -s 4 -q >"$TMP/run"
"$L" run -m $MODEL --batch "$TMP/c.jsonl" --chat-template chatml -q -o "$TMP/c.out"
python3 -c 'import json, sys
sys.stdout.write(json.load(open(sys.argv[1]))["response"]["body"]["choices"][0]["message"]["content"])' \
    "$TMP/c.out" >"$TMP/content"
same messages_are_the_chat_of_a_batch "$TMP/run" "$TMP/content"
# --with-prompt prints what the model read, however the prompt came; =user what the user wrote.
echo '[{"role": "user", "content": "Tell me."}]' >"$TMP/one.json"
chat="$("$L" submit -m $MODEL -p "Tell me." --chat --chat-template chatml -n 5 -s 4 -q)"
list="$("$L" submit -m $MODEL --messages "$TMP/one.json" --chat-template chatml -n 5 -s 4 -q)"
printf '<|im_start|>user\nTell me.<|im_end|>\n<|im_start|>assistant\n' >"$TMP/read"
printf 'Tell me.\n\n' >"$TMP/wrote"            # an empty line stands before the answer
for id in $chat $list; do
    "$L" text $id --with-prompt >"$TMP/a"; same with_prompt_of_chat_$id "$TMP/read" "$TMP/a"
    "$L" text $id --with-prompt=user >"$TMP/a"; same with_prompt_of_user_$id "$TMP/wrote" "$TMP/a"
done
[ "$("$L" list $list --columns prompt | tail -1 | tr -d ' ')" = Tellme. ]
result list_has_what_the_user_wrote $? "$("$L" list $list --columns prompt)"
check with_prompt_of_another_kind 2 "'all' is not one of model\|user" text $list --with-prompt=all
check messages_and_prompt 2 'messages and --prompt: only one' \
    run -m $MODEL --messages "$TMP/m.json" --chat-template chatml -n 3 -p x
echo '[{"role": "user"}]' >"$TMP/bad.json"
check bad_messages 2 'bad.json: .*role and content' \
    run -m $MODEL --messages "$TMP/bad.json" --chat-template chatml -n 3
echo '[{"role": "user", "content": "a\u0000b"}]' >"$TMP/bad.json"
check nul_in_messages 2 'bad.json: .*offset 32.*u0000' \
    run -m $MODEL --messages "$TMP/bad.json" --chat-template chatml -n 3

# Requests that longhand cannot answer.
request() { printf '{"custom_id": "a", "method": "POST", "url": "/v1/completions", '
    printf '"body": {"prompt": "%s", "max_tokens": 3%s}}\n' "$1" "$2"; }
for f in '"logprobs": -1' '"logprobs": true' '"prompt_logprobs": 0' '"top_logprobs": 5' \
    '"return_token_ids": true'; do
    request x ", $f" >"$TMP/l.jsonl"
    name=${f%%:*}
    check "refused_${name//\"/}_${f##* }" 2 "line 1.*body.${name//\"/}" submit -m $MODEL \
        --batch "$TMP/l.jsonl"
done
request x ', "logprobs": null' >"$TMP/l.jsonl"
check null_is_no_field 0 '' submit -m $MODEL --batch "$TMP/l.jsonl" -q
request 'a\u0000b' '' >"$TMP/n.jsonl"
check nul_in_a_batch 2 'line 1.*offset.*u0000' submit -m $MODEL --batch "$TMP/n.jsonl"

# A job that cannot begin stays as it was: a finished text stays finished, and no fork appears.
stays()                     # NAME PATTERN ARGUMENTS..
{
    local name=$1 pattern=$2; shift 2
    "$L" show $id --json >"$TMP/a"; "$L" list --json | grep -o '"job":' | wc -l >"$TMP/c"
    "$L" "$@" --run >"$TMP/out" 2>"$TMP/err"; local rc=$?
    [ $rc != 0 ] && grep -q -- "$pattern" "$TMP/err" && "$L" show $id --json | cmp -s "$TMP/a" - &&
        "$L" list --json | grep -o '"job":' | wc -l | cmp -s "$TMP/c" -
    result "$name" $? "exit $rc: $(head -c 300 "$TMP/err")"
}
cp -r $MODEL "$TMP/m"
id=$("$L" submit -m "$TMP/m" -p Hello -n 20 -s 3 --drafter heads --allow-beyond-context -q)
"$L" run --resume $id -q >/dev/null
stays extend_to_no_folder 'nosuch' extend $id --tokens +5 -o "$TMP/nosuch/x"
stays extend_onto_a_file 'a file that is there already' extend $id --tokens +5 -o "$TMP/m/config.json"
stays extend_onto_the_model 'of the model' extend $id --tokens +5 -o "$TMP/m/config.json" --force
stays extend_without_memory 'memory' extend $id --tokens +900000000
mv "$TMP/m/model.safetensors" "$TMP/weights"
stays extend_without_weights 'model.safetensors' extend $id --tokens +5
stays fork_without_weights 'model.safetensors' fork $id --at 5
python3 - "$TMP" <<'P'
import sys
b = bytearray(open(sys.argv[1] + "/weights", "rb").read()); b[-1] ^= 1
open(sys.argv[1] + "/m/model.safetensors", "wb").write(b)
P
stays extend_with_another_model 'made with model' extend $id --tokens +5
stays fork_with_another_model 'made with model' fork $id --at 5
mv "$TMP/weights" "$TMP/m/model.safetensors"
mv "$TMP/m/heads.safetensors" "$TMP/heads"
stays extend_without_its_drafter 'heads' extend $id --tokens +5
mv "$TMP/m" "$TMP/moved"
stays extend_without_the_folder 'No such file' extend $id --tokens +5
mv "$TMP/moved" "$TMP/m"; mv "$TMP/heads" "$TMP/m/heads.safetensors"
check extend_with_everything 0 '' extend $id --tokens +5 --run -q
check and_verify 0 '' verify $id -q

# Names of chapters, and texts of several jobs.
O=(-m $MODEL -p Hello -n 12 -s 3 -q)
"$L" submit "${O[@]}" --name novel >/dev/null; "$L" run --resume @novel -q >/dev/null
check a_name_in_use 2 'in use: job [0-9]+ has it; longhand run --resume @novel goes on.*--replace' \
    submit "${O[@]}" --name novel
"$L" text @novel >"$TMP/old"; id=$("$L" list @novel --columns job | tail -1 | tr -d ' ')
"$L" run -m $MODEL -p Other -n 12 -s 4 -q --name novel --replace >"$TMP/new"
"$L" text @novel >"$TMP/a"; same the_name_is_of_the_new_text "$TMP/new" "$TMP/a"
"$L" text $id >"$TMP/a"; same the_old_text_has_its_number "$TMP/old" "$TMP/a"
check replace_needs_a_name 2 '--replace needs --name' submit "${O[@]}" --replace
printf '{"prompt": "a", "custom_id": "x"}\n' >"$TMP/onebatch.jsonl"
"$L" run --batch "$TMP/onebatch.jsonl" -m $MODEL -n 3 -q -o "$TMP/b.out"
check a_batch_keeps_its_name 2 '@onebatch is a batch of 1 job' submit "${O[@]}" --name onebatch --replace
check extend_gives_a_name 0 '' extend $id --tokens +5 --name first --run -q
check fork_takes_no_name_in_use 2 'in use' fork $id --at 3 --name first
check fork_gives_a_name 0 '' fork $id --at 3 --name second --run -q
check fork_takes_a_name 0 '' fork $id --at 3 --name first --replace --run -q
[ "$("$L" list @first --columns job | tail -1 | tr -d ' ')" != $id ]; result fork_took_the_name $?
check a_custom_id_stays 2 'has a custom_id of a batch' extend @onebatch/x --tokens +3 --name c
{ "$L" text @second; printf '\n***\n'; "$L" text @first; } >"$TMP/a"
"$L" text @second @first --between '\n***\n' >"$TMP/b"; same texts_with_a_line_between "$TMP/a" "$TMP/b"
"$L" export @second @first --format text --between '\n***\n' >"$TMP/b"
same exports_with_a_line_between "$TMP/a" "$TMP/b"
{ printf '# second\n\n'; "$L" text @second; printf '\n\n# first\n\n'; "$L" text @first; } >"$TMP/a"
"$L" text @second @first --headings >"$TMP/b"; same texts_with_headings "$TMP/a" "$TMP/b"
"$L" export @second @first --format text --headings >"$TMP/b"; same exports_with_headings "$TMP/a" "$TMP/b"
check headings_are_for_texts 2 'headings is for' export @first --format csv --headings
exit $failed
