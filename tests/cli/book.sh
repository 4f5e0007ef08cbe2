#!/bin/bash
# Books: lines of a batch that continue others ("after"). Their checks, their order, and that every chapter is
# the one of an undisturbed run.
. tests/cli/lib.inc
L=$LONGHAND
D=models/demo
line() { printf '%s\n' "$@"; }

# ---- a book of ten chapters: undisturbed, and killed again and again ----
book() # CARRY
{
    echo '{"custom_id": "ch1", "prompt": "The history of the sea.", "max_tokens": 150}'
    for i in 2 3 4 5 6 7 8 9 10; do
        printf '{"custom_id": "ch%d", "after": "ch%d", %s"append": "\\n\\nChapter %d\\n\\n"' \
            $i $((i - 1)) "$1" $i
        [ $i -gt 4 ] && printf ', "prompt": "The history of the sea."'
        echo '}'
    done
}
book '"carry": 60, ' >"$TMP/book.jsonl"
submit() { "$L" submit --batch "$TMP/book.jsonl" -m $D --seed 4 --ignore-eos "$@" >/dev/null 2>"$TMP/err"; }
LONGHAND_DB=$TMP/whole.db
submit -q; result submit_a_book $? "$(cat "$TMP/err")"
"$L" list | tail -9 | grep -c 'waits for ch[1-9]$' >"$TMP/a"
[ "$(cat "$TMP/a")" = 9 ]; result chapters_wait $? "$("$L" list)"
check a_waiting_chapter_cannot_be_resumed 2 'job 2 continues job 1, which is queued: it begins when' \
    run --resume @book/ch2
"$L" work -q 2>"$TMP/err"; result work_writes_a_book $? "$(cat "$TMP/err")"
"$L" export @book --format ids -o "$TMP/whole"; "$L" text @book >"$TMP/text"
made() # SEL..: how many tokens the model made
{
    "$L" text "$@" --json --format ids | python3 -c 'import json, sys
print(sum(len(j["ids"]) - sum(g["tokens"] for g in j["given"]) for j in json.load(sys.stdin)))'
}
[ "$(made @book)" = 1500 ]; result each_chapter_has_its_length $? "$(made @book) ids"
[ "$(grep -c '^Chapter [0-9]*$' "$TMP/text")" = 9 ]; result headings_are_in_the_text $? "$(cat "$TMP/text")"
for i in 2 3 10; do check verify_chapter_$i 0 '' verify @book/ch$i -q; done
# the prompt of a chapter: its own, then the last 60 tokens of the text before
"$L" text @book/ch4 --format ids --with-prompt >"$TMP/a"; "$L" text @book/ch5 --format ids --with-prompt \
    >"$TMP/b"
own=$("$L" tokenize -m $D <<<"The history of the sea." | wc -w)
python3 - "$TMP" "$("$L" list @book/ch5 --json | python3 -c \
    'import json, sys; print(json.load(sys.stdin)["jobs"][0]["prompt_tokens"])')" <<'P'
import sys
a, b = (open(f"{sys.argv[1]}/{n}").read().split() for n in "ab")
prompt = b[:int(sys.argv[2])]
assert 40 < len(prompt) <= 75, len(prompt)
carried = next(n for n in range(len(prompt), 0, -1) if prompt[-n:] == a[-n:])
assert 45 <= carried <= 60 and len(prompt) - carried < 15, (carried, len(prompt))
P
result the_prompt_ends_with_the_carried_text $? "$own"

LONGHAND_DB=$TMP/killed.db
submit -q
kills=0
for i in $(seq 80); do
    "$L" work -q --threads 1 --max-attempts 0 2>/dev/null & a=$!
    "$L" work -q --threads 1 --max-attempts 0 2>/dev/null & b=$!
    sleep 0.$((RANDOM % 20 + 10))
    kill -9 $((RANDOM % 2 ? a : b)) 2>/dev/null && kills=$((kills + 1))
    sleep 0.0$((RANDOM % 9))
    kill -9 $a $b 2>/dev/null
    wait $a $b 2>/dev/null
    [ "$("$L" list | head -1 | cut -d, -f4)" = ' 10 done' ] && break
done
"$L" work -q --max-attempts 0
"$L" export @book --format ids -o "$TMP/resumed"
[ $kills -gt 2 ]; result the_book_was_killed $? "$kills kills"
same a_killed_book_is_the_undisturbed_one "$TMP/whole" "$TMP/resumed"
"$L" text @book >"$TMP/a"; same and_so_is_its_text "$TMP/text" "$TMP/a"
check doctor_finds_nothing 0 '' doctor

# ---- lines that are refused, before anything is queued ----
LONGHAND_DB=$TMP/bad.db
bad() # NAME PATTERN LINES..
{
    local name=$1 pattern=$2; shift 2
    line "$@" >"$TMP/bad.jsonl"
    check "$name" 2 "$pattern" submit --batch "$TMP/bad.jsonl" -m $D -n 20 -q
}
one='{"custom_id": "a", "prompt": "x"}'
bad itself 'line 2: after: "b" is this line itself' "$one" '{"custom_id": "b", "after": "b"}'
bad itself_by_its_whole_name 'line 2: after: "b" is this line itself' "$one" \
    '{"custom_id": "b", "after": "@bad/b"}'
bad unknown 'line 2: after: "z" is no custom_id of this file, and no job is @bad/z' "$one" \
    '{"custom_id": "b", "after": "z"}'
bad unknown_batch 'line 1: after: "@no/z" is no custom_id' '{"custom_id": "b", "after": "@no/z"}'
bad append_alone 'line 1: append needs after' '{"custom_id": "b", "prompt": "x", "append": "y"}'
bad carry_alone 'line 1: carry needs after' '{"custom_id": "b", "prompt": "x", "carry": 0}'
bad carry_below_0 'line 2: carry.*-1' "$one" '{"custom_id": "b", "after": "a", "carry": -1}'
bad carry_is_no_text 'line 2: carry' "$one" '{"custom_id": "b", "after": "a", "carry": "all"}'
bad after_twice 'line 2: after.*it stands twice' "$one" '{"custom_id": "b", "after": "a", "after": "c"}'
bad samples 'line 2: 2 samples of a line with after' "$one" '{"custom_id": "b", "after": "a", "n": 2}'
bad samples_before 'line 2: after: "a" has 2 samples' '{"custom_id": "a", "prompt": "x", "n": 2}' \
    '{"custom_id": "b", "after": "a"}'
bad beyond_the_context 'line 2: .*context' "$one" \
    '{"custom_id": "b", "after": "a", "max_tokens": 1000000}'
bad after_inside_the_body 'line 2: body .*"after"' "$one" '{"custom_id": "b", "body": {"after": "a"}}'
line '{"custom_id": "a", "prompt": "x", "after": "c"}' '{"custom_id": "b", "after": "a"}' \
    '{"custom_id": "c", "after": "b"}' '{"custom_id": "d", "after": "c"}' >"$TMP/bad.jsonl"
"$L" submit --batch "$TMP/bad.jsonl" -m $D -n 20 2>"$TMP/err"; r=$?
[ $r = 2 ] && [ "$(grep -c 'line [123]: after: ".*waits for itself' "$TMP/err")" = 3 ] &&
    grep -q '3 of 4 lines are bad' "$TMP/err"; result circles_are_refused $? "exit $r: $(cat "$TMP/err")"
[ "$("$L" list | wc -l)" = 1 ]; result nothing_was_queued $? "$("$L" list)"

# ---- forms ----
LONGHAND_DB=$TMP/forms.db
line '{"custom_id": "d", "after": "@forms/c", "max_tokens": 9}' \
    '{"custom_id": "c", "after": "b", "body": {"max_tokens": 5}}' \
    '{"custom_id": "b", "method": "POST", "url": "/v1/completions", "after": "a", "carry": 4,
 "body": {"prompt": "y"}}' '{"custom_id": "a", "body": {"prompt": "x", "max_tokens": 7}}' | tr '\n' '~' |
    sed 's/,~ /, /g' | tr '~' '\n' >"$TMP/forms.jsonl"
check lines_need_no_method 0 '4 new jobs' submit --batch "$TMP/forms.jsonl" -m $D -s 1
sed 's/"max_tokens"/"user": "me", "max_tokens"/' "$TMP/forms.jsonl" >"$TMP/notes.jsonl"
check fields_of_chapters_are_counted_once 0 'ignored in 3 lines' \
    submit --batch "$TMP/notes.jsonl" --db "$TMP/notes.db" --name forms -m $D -s 1
check the_same_again 0 '0 new jobs, 4 exist' submit --batch "$TMP/forms.jsonl" -m $D -s 1
sed 's/"carry": 4/"carry": 5/' "$TMP/forms.jsonl" >"$TMP/other.jsonl"
check another_carry_is_another_request 2 'line 3: custom_id "b" is in @forms already' \
    submit --batch "$TMP/other.jsonl" --name forms -m $D -s 1 -q
"$L" work -q
[ "$("$L" list --columns tokens | tail -4 | xargs)" = '9/9 5/5 7/7 7/7' ]
result lengths_without_max_tokens_are_those_of_the_line_before $? "$("$L" list)"
{ "$L" text @forms/b --format ids --with-prompt; } >"$TMP/a"
"$L" text @forms/c --format ids --with-prompt | head -n -5 >"$TMP/b"
same without_prompt_and_carry_all_is_carried "$TMP/a" "$TMP/b"
line '{"custom_id": "e", "after": "d", "carry": 3, "prompt": "z"}' >"$TMP/more.jsonl"
check a_line_may_continue_a_stored_job 0 '1 new job' submit --batch "$TMP/more.jsonl" --name forms -m $D -s 1
"$L" work -q; [ "$("$L" list @forms/e --columns state | tail -1)" = done ]
result and_is_written $? "$("$L" list)"


# ---- order, gaps ----
"$L" text @forms/a >"$TMP/a"; "$L" text @forms/b >"$TMP/b"; "$L" text @forms/c >"$TMP/c"
{ cat "$TMP/a"; echo; echo; cat "$TMP/b"; echo; echo; cat "$TMP/c"; } >"$TMP/want"
chapters=(@forms/c @forms/b @forms/a)
"$L" text "${chapters[@]}" >"$TMP/got"; same text_has_the_order_of_the_chain "$TMP/want" "$TMP/got"
"$L" export "${chapters[@]}" --format text -o "$TMP/got"; same and_so_has_export "$TMP/want" "$TMP/got"
cat "$TMP/a" "$TMP/b" "$TMP/c" >"$TMP/want"
"$L" text "${chapters[@]}" --between '' >"$TMP/got"; same without_a_gap "$TMP/want" "$TMP/got"
LONGHAND_DB=$TMP/whole.db "$L" text @book >"$TMP/got"
python3 - "$TMP/got" <<'P' 2>"$TMP/err"
import sys
t = open(sys.argv[1]).read()
for i in range(2, 11):
    at = t.index(f"\n\nChapter {i}\n")
    assert t[at - 2:at] != "\n\n", t[at - 20:at + 20]
P
result one_blank_line_between_chapters $? "$(tail -1 "$TMP/err")"

# ---- several books: the one that has begun goes on ----
LONGHAND_DB=$TMP/order.db
line '{"custom_id": "a1", "prompt": "x"}' '{"custom_id": "b1", "prompt": "x"}' \
    '{"custom_id": "a2", "after": "a1", "carry": 9}' '{"custom_id": "b2", "after": "b1", "carry": 9}' \
    '{"custom_id": "a3", "after": "a2", "carry": 9}' '{"custom_id": "b3", "after": "b2", "carry": 9}' \
    >"$TMP/mixed.jsonl"
"$L" submit --batch "$TMP/mixed.jsonl" -m $D -n 5 -s 1 -q >/dev/null
"$L" work --parallel 1 2>&1 | grep -o 'mixed/[ab][123]: begins' | cut -c 7-8 | xargs >"$TMP/a"
[ "$(cat "$TMP/a")" = 'a1 a2 a3 b1 b2 b3' ]; result depth_first $? "$(cat "$TMP/a")"
for i in 1 2; do
    "$L" submit --batch "$TMP/mixed.jsonl" --shard $i/2 -m $D -n 5 -s 1 -q --db "$TMP/part$i.db" >/dev/null
    "$L" list --db "$TMP/part$i.db" --columns custom_id | tail -n +3 | xargs
done >"$TMP/a"
printf 'a1 a2 a3\nb1 b2 b3\n' | cmp -s - "$TMP/a"; result a_chain_is_in_one_shard $? "$(cat "$TMP/a")"

# ---- a failed chapter: those after it wait and say so, until it is resumed ----
LONGHAND_DB=$TMP/failed.db
line '{"custom_id": "ch1", "prompt": "x"}' '{"custom_id": "ch2", "after": "ch1", "carry": 9}' \
    '{"custom_id": "ch3", "after": "ch2", "carry": 9}' >"$TMP/f.jsonl"
again() { "$L" submit --batch "$TMP/f.jsonl" -m $D -n 5 -s 1 -q >/dev/null; }
states() { "$L" list --columns state | tail -3 | xargs; }
again; "$L" work -q --max-jobs 1
sql "UPDATE job SET state = 'failed', error = 'no luck' WHERE id = 2" >/dev/null
"$L" list | tail -1 | grep -q 'waits for ch2, failed$'; result list_says_that_it_waits $? "$("$L" list)"
check until_empty_names_those_that_wait 1 '1 chapter waits: job 3 @f/ch3 for ch2 \(failed\)' \
    work --until-empty
grep -q 'longhand: 1 chapter waits for a job that failed; longhand resume' "$TMP/err"
result and_what_to_do $? "$(cat "$TMP/err")"
check remove_of_what_others_wait_for 2 '1 chapter waits for these jobs \(job 3 for job 2\); nothing' remove 2
check remove_of_all_together 0 '2 jobs removed' remove 2 3
again; sql "UPDATE job SET state = 'failed' WHERE custom_id = 'ch2'" >/dev/null; "$L" work -q 2>"$TMP/err"
"$L" resume @f/ch2 -q; check resume_releases_it 0 '' work -q
[ "$(states)" = 'done done done' ]; result all_are_done $? "$("$L" list)"
check remove_of_what_was_continued 0 '1 job removed' remove @f/ch1
"$L" remove @f/ch2 @f/ch3 -q; again; "$L" cancel @f/ch1 -q
check a_cancelled_job_is_no_failure 0 '2 chapters wait: job .* for ch1 \(cancelled\), .* for ch2 \(queued\)' \
    work --until-empty
"$L" remove @f/ch1 --force -q; "$L" list | grep -q 'waits for job [0-9]*, removed$'
result remove_by_force $? "$("$L" list)"
again; "$L" work -q; [ "$(states)" = 'done done done' ]
result a_line_that_is_queued_again_is_waited_for $? "$("$L" list)"

# ---- submit --after ----
LONGHAND_DB=$TMP/single.db
"$L" submit -m $D -p "The sea" -n 12 -s 3 -q >/dev/null
check submit_after 0 '' submit -m $D --after 1 --carry 8 --append "II. " -p "The land" -s 3 -q
check submit_after_without_a_prompt 0 '' submit -m $D --after 2 -s 3 -q
"$L" work -q
"$L" text 2 | head -c 4 >"$TMP/a"; printf 'II. ' | cmp -s - "$TMP/a"
result append_is_first $? "$("$L" text 2)"
[ "$(made 3)" = 12 ] && [ "$(made 2)" = 12 ] && [ "$("$L" text 2 --format ids | wc -l)" -gt 12 ]
result the_length_is_that_of_the_job_before $? "$("$L" list)"
check carry_needs_after 2 'submit: --carry needs --after' submit -m $D -p x -n 3 --carry 5
check after_has_one_sample 2 'a chapter is one text' submit -m $D -p x -n 3 --after 1 --samples 2
check after_nothing 2 'there is no job 77' submit -m $D -p x -n 3 --after 77
check after_and_batch 2 '--after and --batch' submit -m $D --after 1 --batch "$TMP/f.jsonl"

# ---- chats go on ----
LONGHAND_DB=$TMP/chat.db
say() { printf '{"custom_id": "%s", %s"messages": [%s], "max_tokens": 12}\n' "$1" "$2" "$3"; }
user() { printf '{"role": "user", "content": "%s"}' "$1"; }
system='{"role": "system", "content": "Be brief."}'
{ say c1 '' "$system, $(user One.)"; say c2 '"after": "c1", ' "$(user Two.)"
  say c3 '"after": "c2", "carry": 5, ' "$system, $(user Three.)"
  say c4 '"after": "c3", ' "$(user Four.)"; } >"$TMP/talk.jsonl"
check submit_a_talk 0 '' submit --batch "$TMP/talk.jsonl" -m $D --chat-template chatml -s 5 -q --ignore-eos
check a_talk_is_written 0 '' work -q
python3 - "$L" <<'P' 2>"$TMP/err"
import json, subprocess, sys
def out(*a): return subprocess.run([sys.argv[1], *a], capture_output=True, check=True).stdout.decode()
jobs = [json.loads(out("text", f"@talk/c{i}", "--json", "--with-prompt"))[0] for i in (1, 2, 3, 4)]
turn = lambda role, text: f"<|im_start|>{role}\n{text}<|im_end|>\n"
answer = [j["text"] for j in jobs]
last = jobs[2]["prompt"].split("assistant\n")[1].split("<|im_end|>")[0]
assert 0 < len(last) < len(answer[1]) and answer[1].endswith(last), (last, answer[1])
opens = "<|im_start|>assistant\n"
want = [turn("system", "Be brief.") + turn("user", "One.")]
want.append(want[0] + turn("assistant", answer[0]) + turn("user", "Two."))
want.append(turn("system", "Be brief.") + turn("assistant", last) + turn("user", "Three."))
want.append(want[2] + turn("assistant", answer[2]) + turn("user", "Four."))
for j, w in zip(jobs, want):
    assert j["prompt"] == w + opens, (j["prompt"], w)
P
result the_answers_are_messages $? "$(tail -1 "$TMP/err")"
for i in 2 4; do check verify_answer_$i 0 '' verify @talk/c$i -q; done
say c5 '"after": "c1", "append": "x", ' "$(user Two.)" >"$TMP/bad.jsonl"
check append_in_a_chat 2 'line 1: append: a chat has no given text' submit --batch "$TMP/bad.jsonl" -m $D \
    -n 3 --chat-template chatml -q
check submit_after_an_answer 0 '' submit -m $D --chat --chat-template chatml -p 'Five.' --after @talk/c4 -q
"$L" work -q
"$L" text @talk/c4 --with-prompt >"$TMP/a"
printf '<|im_end|>\n<|im_start|>user\nFive.<|im_end|>\n<|im_start|>assistant\n' >>"$TMP/a"
"$L" text 5 --with-prompt | head -c "$(wc -c <"$TMP/a")" >"$TMP/b"
same the_talk_goes_on_from_the_command_line "$TMP/a" "$TMP/b"
# ---- the example ----
python3 examples/outline.py >"$TMP/book.jsonl"; same the_example_is_that_of_its_outline examples/book.jsonl \
    "$TMP/book.jsonl"
LONGHAND_DB=$TMP/example.db
python3 examples/outline.py 30 40 20 >"$TMP/book.jsonl"
check the_example_runs 0 '' run --batch "$TMP/book.jsonl" -o "$TMP/book.out" -m $D -s 1 -q \
    --chat-template chatml
check the_book_is_exported 0 '' export @book --format text --headings -o "$TMP/book.txt" -q
[ "$(grep -c '^# ch[0-9]*$' "$TMP/book.txt")" = 10 ] && [ "$(wc -l <"$TMP/book.out")" = 10 ]
result the_book_has_its_chapters $? "$(cat "$TMP/book.txt")"

# ---- an older text; a new book from a chapter on; what goes on with a text that is not done ----
LONGHAND_DB=$TMP/follow.db
line '{"custom_id": "ch1", "prompt": "The sea", "max_tokens": 20}' \
    '{"custom_id": "ch2", "after": "ch1", "carry": 9, "append": "\n\nII.\n"}' \
    '{"custom_id": "ch3", "after": "ch2", "carry": 9, "append": "\n\nIII.\n", "prompt": "The land"}' \
    '{"custom_id": "ch4", "after": "ch3", "append": "\n\nIV.\n"}' >"$TMP/old.jsonl"
"$L" submit --batch "$TMP/old.jsonl" -m $D -s 7 --ignore-eos -q >/dev/null; "$L" work -q
"$L" text @old --between '' >"$TMP/before"
check fork_follow 0 '' fork @old/ch3 --seed 9 --follow --name new -q
[ "$("$L" list @new --columns custom_id,state | tail -4 | awk '{print $1, $2}' | xargs)" = \
    'ch1 done ch2 done ch3 queued ch4 queued' ]
result the_new_book_has_all_chapters $? "$("$L" list @new --columns custom_id,state)"
"$L" list @new | tail -1 | grep -q 'waits for ch3$'; result the_last_one_waits $? "$("$L" list @new)"
"$L" work -q
for i in 1 2; do "$L" text @old/ch$i >"$TMP/a"; "$L" text @new/ch$i >"$TMP/b"
    same copy_of_chapter_$i "$TMP/a" "$TMP/b"; done
for i in 3 4; do "$L" text @old/ch$i >"$TMP/a"; "$L" text @new/ch$i >"$TMP/b"
    differ another_chapter_$i "$TMP/a" "$TMP/b"; head -3 "$TMP/a" >"$TMP/c"; head -3 "$TMP/b" >"$TMP/d"
    same with_the_heading_of_chapter_$i "$TMP/c" "$TMP/d"
    check verify_new_chapter_$i 0 '' verify @new/ch$i -q; done
"$L" text @new/ch3 --with-prompt >"$TMP/a"
"$L" text @new/ch4 --with-prompt | head -c "$(wc -c <"$TMP/a")" >"$TMP/b"
same the_new_chapter_continues_the_new_text "$TMP/a" "$TMP/b"
"$L" text @old --between '' >"$TMP/after"; same the_old_book_stays "$TMP/before" "$TMP/after"
check doctor_of_both_books 0 '' doctor
# a book whose first chapter continues another book that has a chapter of the same name
line '{"custom_id": "ch1", "after": "@old/ch2", "max_tokens": 9}' >"$TMP/sequel.jsonl"
"$L" submit --batch "$TMP/sequel.jsonl" -m $D -s 7 --ignore-eos -q >/dev/null; "$L" work -q
check a_name_that_two_chapters_have 0 '' fork @sequel/ch1 --follow --name both -q
names=$("$L" list @both --columns custom_id | tail -3 | xargs)
[[ $names =~ ^ch1\ ch2\ ch1-[0-9]+$ ]]; result the_second_one_gets_its_number $? "$names"
# copies of chapters that were taken back; a short text that ended by itself
line '{"custom_id": "a", "prompt": "Once upon a time", "max_tokens": 900}' \
    '{"custom_id": "b", "after": "a", "carry": 20, "max_tokens": 5}' >"$TMP/taken.jsonl"
"$L" submit --batch "$TMP/taken.jsonl" -m $D -s 1 --ignore-eos --temperature 0.2 --on-loop retake:4 \
    --name taken -q >/dev/null; "$L" work -q
"$L" show @taken/a | grep -q 'retake'; result a_chapter_with_retakes $? "$("$L" show @taken/a | head -20)"
check follow_copies_retakes 0 '' fork @taken/b --follow --name again -q
"$L" text @taken/a >"$TMP/a"; "$L" text @again/a >"$TMP/b"; same the_copy_is_readable "$TMP/a" "$TMP/b"
check doctor_of_the_copy 0 '' doctor
context=$("$L" inspect -m $D --json | grep -o '"context": [0-9]*' | cut -d' ' -f2)
line "{\"custom_id\": \"x\", \"prompt\": \"The sea\", \"stop\": \" the\", \"max_tokens\": $((context - 9))}" \
    >"$TMP/short.jsonl"
"$L" submit --batch "$TMP/short.jsonl" -m $D -s 7 -q >/dev/null; "$L" work -q
check a_short_text_leaves_room 0 '' submit --after @short/x -m $D --tokens 40 -q
check follow_needs_a_name 2 'fork: --follow needs --name' fork @old/ch3 --follow
check follow_takes_no_name 2 'the name "new" is in use' fork @old/ch3 --follow --name new
"$L" redo @new/ch3 -q >/dev/null 2>"$TMP/err"; "$L" work -q
"$L" extend @old/ch1 --tokens +5 -q; "$L" work -q
"$L" list @old/ch2 | tail -1 | grep -q 'older text of ch1$'
result list_names_an_older_text $? "$("$L" list @old)"
id=$("$L" submit -m $D -p "The sea" -n 12 -s 3 -q)
check extend_of_a_queued_job 0 'goes on with the text of job' extend $id --tokens +8 --append " And"
next=$(cat "$TMP/out"); "$L" work -q
"$L" text $id --format ids --with-prompt >"$TMP/a"
"$L" text $next --format ids >"$TMP/own"
"$L" text $next --format ids --with-prompt | head -n "-$(wc -l <"$TMP/own")" >"$TMP/b"
same it_reads_the_whole_text "$TMP/a" "$TMP/b"
"$L" text $next | grep -q '^ And'; result and_begins_with_what_was_appended $? "$("$L" text $next)"
"$L" report @old --html >"$TMP/page"
[ "$(grep -c 'The book as one curve' "$TMP/page")" = 1 ] &&
    [ "$(grep -o 'stroke-dasharray="3 3"[^<]*<title>job [0-9]* ch[234]</title>' "$TMP/page" | wc -l)" -ge 3 ]
result a_report_of_a_book_is_one_curve $? "$(grep -o '<title>[^<]*' "$TMP/page")"
[ "$(grep -o 'data-y="[^"]*"' "$TMP/page" | head -1 | tr ' ' '\n' | wc -l)" = 4 ]
result with_a_point_of_each_chapter $? "$(grep -o 'data-y="[^"]*"' "$TMP/page" | head -1)"

# ---- what is carried ----
LONGHAND_DB=$TMP/carried.db
four='Four five six seven eight nine ten eleven twelve thirteen.'
line '{"custom_id": "s1", "prompt": "The history of the sea. Chapter 1.", "max_tokens": 60, "stop": " the"}' \
    '{"custom_id": "s2", "after": "s1", "carry": 1000, "max_tokens": 10}' \
    '{"custom_id": "p1", "prompt": "x", "max_tokens": 1}' \
    "{\"custom_id\": \"p2\", \"after\": \"p1\", \"append\": \"One two three four five.\\n\\n$four\"}" \
    '{"custom_id": "p3", "after": "p2", "carry": 17}' '{"custom_id": "p4", "after": "p2", "carry": 20}' \
    '{"custom_id": "none", "after": "p2", "carry": 0, "prompt": "y"}' >"$TMP/c.jsonl"
"$L" submit --batch "$TMP/c.jsonl" -m $D -s 4 -q >/dev/null; "$L" work -q
"$L" text @c/s1 >"$TMP/a"; "$L" text @c/s2 --with-prompt | head -c "$(wc -c <"$TMP/a")" >"$TMP/b"
[ "$("$L" list @c/s1 --columns finish | tail -1)" = stop ] && cmp -s "$TMP/a" "$TMP/b"
result a_stop_string_is_not_carried $? "$(cat "$TMP/a") and $("$L" text @c/s2 --with-prompt)"
[ "$("$L" text @c/p3 --with-prompt | head -c 58)" = "$four" ]
result a_paragraph_begins_the_carried_text $? "$("$L" text @c/p3 --with-prompt)"
"$L" text @c/p4 --with-prompt | grep -q 'four five\.$'
result unless_it_begins_after_the_first_quarter $? "$("$L" text @c/p4 --with-prompt)"
[ "$("$L" text @c/none --with-prompt | head -c 1)" = y ] &&
    [ "$("$L" list @c/none --json | grep -o '"prompt_tokens": [0-9]*')" = '"prompt_tokens": 2' ]
result carry_0_carries_nothing $? "$("$L" text @c/none --with-prompt)"
line "{\"custom_id\": \"d\", \"prompt\": \"The sea\", \"max_tokens\": 30, \"model\": \"$PWD/$D\"}" \
    "{\"custom_id\": \"o\", \"after\": \"d\", \"carry\": 12, \"max_tokens\": 9, \"model\": \"$PWD/$MODEL\"}" \
    >"$TMP/models.jsonl"
"$L" submit --batch "$TMP/models.jsonl" -s 4 -q --ignore-eos >/dev/null; "$L" work -q
read -r n < <("$L" list @models/o --json | grep -o '"prompt_tokens": [0-9]*' | grep -o '[0-9]*$')
end=$("$L" text @models/d | tail -c 4); prompt=$("$L" text @models/o --with-prompt)
[[ $n -ge 12 && $n -le 13 && $prompt == *"$end"* ]]
result another_tokenizer_reads_the_text_anew $? "$n tokens: $prompt, not $end"
check verify_with_another_tokenizer 0 '' verify @models/o -q
exit $failed
