#!/bin/bash
# --ban-phrase: no text has a banned phrase, in no case of its letters and wherever its tokens begin and end.
# Drafting, company, kills, extend and fork change nothing; verify knows the retakes. LONG=1 takes 100 texts.
. tests/cli/lib.inc
L=$LONGHAND
last() { sql "SELECT max(id) FROM job"; }

# phrases SEED: 100 pieces of the text on standard input, some in capital letters, one a line
phrases() { python3 -c 'import random, sys
text = sys.stdin.buffer.read().decode(); r = random.Random(sys.argv[1])
found = set()
for n in range(4000):
    at = r.randrange(len(text)); s = text[at:at + r.randint(1 if "\ufffd" in text else 4, 20)].split("\n")[0]
    s = s.split("\ufffd")[0]
    s = r.choice([s, s.upper() if len(s.upper()) == len(s) else s])
    if s.strip() and (len(s) > 3 or not s.isascii()) and len(s.encode()) <= 256: found.add(s)
print(*sorted(found, key=lambda s: r.random())[:100], sep="\n")' "$1"; }
# clean PHRASES TEXT: the text has none of the phrases
clean() { python3 -c 'import sys
def fold(s): return "".join(next((t for t in (c.casefold(), c.lower()) if len(t) == 1), c) for c in s)
text = fold(open(sys.argv[2], newline="").read())
bad = [p for p in open(sys.argv[1], newline="").read().split("\n") if p and fold(p) in text]
if bad or not text: print("in the text:", bad); sys.exit(1)' "$@"; }

# Text i: English at three temperatures; tokens of single bytes, which make emoji, CJK and broken text; the
# like of random models, the first of which decodes runs of byte tokens.
bytes='{"253":100,"246":100,"222":100,"160":100,"172":100,"116":100,"255":100,"3027":84,"64":82}'
runs='{"198":8,"172":8,"287":9,"286":9,"307":8}' tiny='{"127":6,"102":6,"68":6,"64":6}'
settings() { model=$MODEL; drafters="auto ngram heads partial"; case $(($1 % 6)) in
    0) words=(-p "Once upon a time" --temperature 0 --min-p 0) ;;
    1) words=(-p "The king" --temperature 0.7) ;;
    2) words=(-p "She said" --temperature 1.2 --stop "Chapter") ;;
    3) words=(-p "x" --temperature 4 --min-p 0 --logit-bias "$bytes") ;;
    4) model=build/data/models/llama2-bf16; words=(-p "x" --ignore-eos --logit-bias "$runs") ;;
    5) model=build/data/models/llama3-new-f16; words=(-p "x" --ignore-eos --logit-bias "$tiny") ;;
    esac; [ $model = $MODEL ] || drafters="auto ngram suffix partial"
    words+=(-m $model -n 400 -s "$1"); }
n=6; [ -z "${LONG:-}" ] || n=100
for ((i = 0; i < n; i++)); do
    settings $i
    "$L" run "${words[@]}" -q | phrases $i >"$TMP/phrases"
    words+=(--ban-phrases-file "$TMP/phrases")
    "$L" run "${words[@]}" -q --drafter none >"$TMP/plain"; plain=$(last)
    clean "$TMP/phrases" "$TMP/plain" >"$TMP/why"; result "no_phrase_in_text_$i" $? "$(cat "$TMP/why")"
    for d in $drafters; do "$L" submit "${words[@]}" -q --drafter $d >/dev/null; done
    "$L" work -q --parallel 4
    for ((id = plain + 1; id <= plain + 4; id++)); do
        "$L" text $id >"$TMP/a"; same "drafting_$((id - plain))_writes_text_$i" "$TMP/plain" "$TMP/a"
    done
    check "verify_of_text_$i" 0 '' verify -q "$plain"
    [ "$(sql "SELECT count(*) > 0 FROM retake WHERE job = $plain AND reason LIKE 'phrase: %'")" = 1 ]
    result "retakes_made_text_$i" $? "$("$L" show "$plain" | head -20)"
done

# A phrase of the last tokens: they are taken back at the end, and in an extension over the border of a chunk
# of the store, as in the longer run.
king=(-m $MODEL -p "The king" -s 5)
"$L" run "${king[@]}" -n 514 -q >"$TMP/short"; "$L" run "${king[@]}" -n 520 -q >"$TMP/longer"
"$L" run "${king[@]}" -n 514 --ban-phrase "$(tail -c 12 "$TMP/short")" -q >"$TMP/a"; id=$(last)
[ "$(sql "SELECT max(length) FROM retake WHERE job = $id")" = 514 ]
result the_end_is_taken_back $? "$("$L" show "$id" | head -9)"
phrase=$(tail -c 35 "$TMP/longer"); printf '%s\n' "$phrase" >"$TMP/phrases"
"$L" run "${king[@]}" -n 540 --ban-phrase "$phrase" -q >"$TMP/long"
clean "$TMP/phrases" "$TMP/long" >"$TMP/why"; result no_phrase_after_a_chunk $? "$(cat "$TMP/why")"
"$L" run "${king[@]}" -n 514 --ban-phrase "$phrase" -q >"$TMP/a"; id=$(last)
same a_part_of_a_phrase_may_end_a_text "$TMP/short" "$TMP/a"
"$L" extend "$id" --tokens +26 -q; "$L" work -q; "$L" text "$id" >"$TMP/a"
same extend_equals_the_longer_run "$TMP/long" "$TMP/a"
[ "$(sql "SELECT count(*) FROM retake WHERE job = $id AND at < 512 AND length > 514")" -gt 0 ]
result a_retake_crosses_the_chunk $? "$("$L" show "$id" | head -9)"
check verify_of_an_extension 0 '' verify -q "$id"

# kill -9; a fork of the text, and one with other phrases; what is given stays
printf '%s\n' ' the king' 'and the' 'of his' '"' ' that ' >"$TMP/phrases"
ban=(-m $MODEL -p "The king" -s 3 -n 3000 --temperature 0.8 --ban-phrases-file "$TMP/phrases")
"$L" run "${ban[@]}" --drafter none -q >"$TMP/plain"; plain=$(last)
id=$("$L" submit "${ban[@]}")
{ for i in 2 3 4 5 6 7 8 9; do
    timeout -s KILL "0.$i" "$L" work -q --kv-snapshot on --max-attempts 0 >/dev/null
done; } 2>/dev/null
[ "$(sql "SELECT attempt FROM job WHERE id = $id")" -gt 2 ]
result the_job_was_killed $? "$("$L" show "$id" | head -9)"
"$L" work -q --kv-snapshot on --max-attempts 0; "$L" text "$id" >"$TMP/a"
same a_killed_job_writes_the_same_text "$TMP/plain" "$TMP/a"
clean "$TMP/phrases" "$TMP/a" >"$TMP/why"; result no_phrase_in_a_killed_text $? "$(cat "$TMP/why")"
[ "$(sql "SELECT count(*) FROM (SELECT number, at, token, reason FROM retake WHERE job = $id EXCEPT
    SELECT number, at, token, reason FROM retake WHERE job = $plain)")" = 0 ]
result its_retakes_are_the_same $? "$(sql 'SELECT count(*) FROM retake')"
at=$(sql "SELECT at + 1 FROM retake WHERE job = $plain AND at > 900 LIMIT 1")
fork=$("$L" fork "$plain" --at "$at" --seed 5 --tokens 1500 2>/dev/null); "$L" work -q
"$L" text "$fork" >"$TMP/a"; clean "$TMP/phrases" "$TMP/a" >"$TMP/why"
result no_phrase_in_a_fork $? "$(cat "$TMP/why")"
check verify_of_a_fork 0 '' verify -q "$fork"
free=$("$L" fork "$plain" --at "$at" --ban-phrases-file /dev/null --tokens 1500 2>/dev/null); "$L" work -q
"$L" text "$free" >"$TMP/a"; ! clean "$TMP/phrases" "$TMP/a" >/dev/null
result a_fork_may_drop_the_phrases $? "$("$L" show "$free" | head -20)"
check verify_of_a_fork_without 0 '' verify -q "$free"
given=$("$L" fork "$plain" --at "$at" --append ' the king and the' --tokens 1500 2>/dev/null); "$L" work -q
"$L" text "$given" | grep -q ' the king and the'
result given_text_may_have_a_phrase $? "$("$L" text "$given" | tail -c 300)"
"$L" text "$given" | sed 's/ the king and the/@/' >"$TMP/a"; clean "$TMP/phrases" "$TMP/a" >"$TMP/why"
result its_own_text_has_none $? "$(cat "$TMP/why")"
check verify_of_given_text 0 '' verify -q "$given"
"$L" run "${king[@]}" -n 900 --temperature 0.1 --on-loop retake:4 --ban-phrase "of the" -q >"$TMP/a"
id=$(last)
[ "$(sql "SELECT count(DISTINCT reason = 'loop') FROM retake WHERE job = $id")" = 2 ]
result loops_and_phrases_together $? "$("$L" show "$id" | head -30)"
check verify_of_both 0 '' verify -q "$id"
check doctor_finds_nothing 0 '' doctor

# the field of a body, alone and in a list; the option's are the default
{ echo '{"prompt": "The king", "custom_id": "one", "banned_strings": "THE"}'
  echo '{"prompt": "The king", "custom_id": "list", "banned_strings": ["the", "\ud83d\ude00"]}'
  echo '{"prompt": "The king", "custom_id": "none", "banned_strings": []}'
  echo '{"prompt": "The king", "custom_id": "default"}'; } >"$TMP/b.jsonl"
"$L" submit --batch "$TMP/b.jsonl" -m $MODEL -n 60 -s 1 --ban-phrase a -q >/dev/null
for x in 'one|["THE"]' 'list|["the","😀"]' 'none|' 'default|["a"]'; do
    got=$(sql "SELECT ifnull(json_extract(parameters, '\$.banned_strings'), '') FROM input
        JOIN job ON id = job WHERE custom_id = '${x%%|*}'")
    [ "$got" = "${x#*|}" ]; result "body_${x%%|*}" $? "$got"
done
"$L" work -q
echo the >"$TMP/phrases"; "$L" text @b/one >"$TMP/a"
clean "$TMP/phrases" "$TMP/a" >"$TMP/why"; result body_text $? "$(cat "$TMP/why")"
"$L" report "$plain" | grep -q "taken back, the phrase 'and the' since token"
result a_report_names_the_phrase $? "$("$L" report "$plain" | head -30)"
[ "$("$L" show "$plain" | grep -c 'taken back, the phrase')" = 40 ] &&
    [ "$("$L" show "$plain" --json | grep -c '"reason": "phrase"')" -gt 60 ]
result the_last_retakes_are_shown $? "$("$L" show "$plain" | head -60)"

# on a terminal each token is shown at once, and a line says what is taken back
python3 tests/cli/terminal.py "$L" run "${king[@]}" -n 60 --ban-phrase ' of the' </dev/null >"$TMP/tty"
grep -q "^\[the text has the phrase ' of the'; its last [0-9]* tokens are taken back\]" "$TMP/tty" &&
    grep -q ' of.$' "$TMP/tty"
tty_result a_terminal_shows_a_retake $? "$(cat "$TMP/tty")"

# what cannot be
long=$(printf 'a%.0s' $(seq 257)); x=(submit -m $MODEL -p x -n 20)
check an_empty_phrase 2 '--ban-phrase: a phrase of 0 bytes, 1 to 256 are allowed' "${x[@]}" --ban-phrase ''
check a_long_phrase 2 '--ban-phrase: a phrase of 257 bytes' "${x[@]}" --ban-phrase "$long"
check no_utf8 2 '--ban-phrase: invalid UTF-8' "${x[@]}" --ban-phrase $'\xff'
check a_replacement 2 'has U.FFFD' "${x[@]}" --ban-phrase $'\xef\xbf\xbd'
printf 'a\r\n\n%s\n' "$long" >"$TMP/bad"
check a_long_line 2 'bad: line 3: a phrase of 257 bytes' "${x[@]}" --ban-phrases-file "$TMP/bad"
check no_file 2 'none: cannot open' "${x[@]}" --ban-phrases-file "$TMP/none"
seq 1001 >"$TMP/bad"
check too_many 2 '1001 phrases, at most 1000 are allowed' "${x[@]}" --ban-phrases-file "$TMP/bad"
echo '{"prompt": "x", "banned_strings": [""]}' >"$TMP/bad"
check an_empty_field 2 'body.banned_strings: a phrase of 0 bytes' submit -m $MODEL --batch "$TMP/bad"
echo '{"prompt": "x", "banned_strings": 3}' >"$TMP/bad"
check a_number 2 'banned_strings.*allowed is a text or an array of texts' submit -m $MODEL --batch "$TMP/bad"
check no_published_verifier 2 '--ban-phrase: --verifier paper cannot' \
    "${x[@]}" --ban-phrase x --preset tokenswift --verifier paper
printf '%s\n' {a..z} {0..9} ' ' . , - '"' "'" ';' : '!' '?' '(' ')' '*' _ >"$TMP/bad"
check no_letters 1 "the banned phrase '.*' cannot be avoided: 256 tokens are forbidden at token [0-9]" \
    run "${king[@]}" -n 50 --temperature 0 --ban-phrases-file "$TMP/bad" --ban-phrase '\n' -e -q
sql "DELETE FROM retake WHERE job = $plain AND number = 3" >/dev/null
check doctor_finds_a_missing_retake 1 'findings?$' doctor
exit $failed
