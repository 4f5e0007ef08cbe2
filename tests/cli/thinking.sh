#!/bin/bash
# --thinking-budget: the mark that ends a thought comes after so many tokens. Its place is a function of the
# tokens: drafting, a worker and extend give the same text.
. tests/cli/lib.inc
T='{% for m in messages %}{{ m.content }} {% endfor %}<think>'
C='{% for m in messages %}{{ m.content }} {% endfor %}{% if thinking %}<think></think>{% endif %}'
ids() { "$LONGHAND" text "$1" --format ids | tr '\n' ' '; }
R="-m $MODEL -n 60 -s 3 -q -p The_king"
mark=$(printf '</think>' | "$LONGHAND" tokenize -m $MODEL - | tail -n +2 | tr '\n' ' ')     # after BOS

"$LONGHAND" run $R --chat --chat-template "$T" --name free >"$TMP/free"
for drafter in none auto ngram,suffix heads,partial; do
    "$LONGHAND" run $R --chat --chat-template "$T" --thinking-budget 20 --drafter $drafter \
        --name "b-$drafter" >"$TMP/$drafter"
    same "the_mark_is_exact_with_$drafter" "$TMP/none" "$TMP/$drafter"
done
a=($(ids @free)) b=($(ids @b-none)) m=($mark)
[ "${a[*]:0:20}" = "${b[*]:0:20}" ] && [ "${b[*]:20:${#m[@]}}" = "${m[*]}" ]
result the_mark_comes_after_the_budget $? "${b[*]}; mark ${m[*]}"
[ "$(grep -o '</think>' "$TMP/none" | wc -l)" = 1 ]; result and_once $? "$(cat "$TMP/none")"
"$LONGHAND" verify @b-auto -q; result it_is_verified $?

"$LONGHAND" submit ${R/-n 60/-n 22} --chat --chat-template "$T" --thinking-budget 20 --name part >/dev/null
"$LONGHAND" work -q; "$LONGHAND" extend @part --tokens +38 --run -q >/dev/null
"$LONGHAND" text @part --with-thinking >"$TMP/extended"
same a_text_cut_inside_the_mark_goes_on "$TMP/none" "$TMP/extended"

"$LONGHAND" run $R --chat --chat-template "$C" --thinking on --name closed >"$TMP/closed"
"$LONGHAND" run $R --chat --chat-template "$C" --thinking on --thinking-budget 5 >"$TMP/no_thought"
same a_thought_that_the_prompt_ended_has_no_budget "$TMP/closed" "$TMP/no_thought"
"$LONGHAND" run $R --thinking-budget 0 --thinking-end ' So it is.' >"$TMP/at_once"
[ "$(head -c 10 "$TMP/at_once")" = ' So it is.' ]
result an_own_mark_and_no_thought_at_all $? "$(cat "$TMP/at_once")"
printf '%s' '{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"seed": 3, ' \
    '"messages": [{"role": "user", "content": "The_king"}], "thinking_token_budget": 20}}' >"$TMP/line"
"$LONGHAND" run -m $MODEL -n 60 -q --chat-template "$T" --batch "$TMP/line" -o "$TMP/answer" --name line
"$LONGHAND" text @line --with-thinking >"$TMP/of_line"; same a_batch_line_has_it "$TMP/none" "$TMP/of_line"
"$LONGHAND" show @line >"$TMP/show"; grep -q 'thinking_budget": 20.*</think>' "$TMP/show"
result a_job_stores_the_mark $? "$(grep parameters "$TMP/show")"
# Texts and exports have the answer alone; tail shows all. Distinct-n is that of the answer.
"$LONGHAND" report @free --json >"$TMP/a"; grep -q '"distinct": {"tokens": {"1": null' "$TMP/a"
result a_text_of_thought_has_no_distinct_n $? "$(grep distinct "$TMP/a" | head -3)"
python3 -c '
import re, sys
text = open(sys.argv[1], "rb").read()
open(sys.argv[2], "wb").write(re.sub(rb"(?s).*</think>\s*", b"", text, 1))' "$TMP/none" "$TMP/want"
"$LONGHAND" text @b-none >"$TMP/a"; same a_text_is_the_answer "$TMP/want" "$TMP/a"
"$LONGHAND" tail @b-none --from 0 >"$TMP/a"; same tail_shows_the_thought "$TMP/none" "$TMP/a"
"$LONGHAND" export @b-none --format text >"$TMP/a"; same an_export_is_the_answer "$TMP/want" "$TMP/a"
"$LONGHAND" export @b-none --format text --with-thinking >"$TMP/a"
same an_export_with_thinking "$TMP/none" "$TMP/a"
python3 - "$TMP/want" "$TMP/none" "$TMP/answer" <(
    "$LONGHAND" text @b-none --json; "$LONGHAND" export @b-none --format jsonl --fields text) <<'PY'
import json, sys
want, whole = (open(f, encoding="utf-8", errors="replace", newline="").read() for f in sys.argv[1:3])
answer = json.load(open(sys.argv[3]))["response"]["body"]["choices"][0]["message"]
lines = open(sys.argv[4]).read()
text, end = json.JSONDecoder().raw_decode(lines)
assert text[0]["text"] == want, text
assert json.loads(lines[end:])["text"] == want, lines
assert answer["content"] == want and whole.startswith(answer["reasoning_content"]), answer
assert "</think>" in answer["reasoning_content"], answer
PY
result json_has_the_answer $?
check a_text_that_ends_in_thought 0 \
    '^job 1: the text has no answer after its thoughts; --with-thinking shows them$' text 1
[ -z "$("$LONGHAND" text 1 2>/dev/null)" ]; result a_text_without_an_answer_is_empty $?
check exports_that_end_in_thought 0 '^1 text has no answer after its thoughts' \
    export 1 --format text -o "$TMP/e"
check a_folder_of_exports_says_so 0 '^1 text has no answer' export 1 --format text --dir "$TMP/dir"
"$LONGHAND" extend @free --append '</think> So it was.' --tokens +30 --run -q >/dev/null 2>&1
"$LONGHAND" text @free | head -c 10 >"$TMP/a"; printf 'So it was.' >"$TMP/b"
same a_given_mark_ends_a_thought "$TMP/a" "$TMP/b"
"$LONGHAND" report @free --json >"$TMP/a"; ! grep -q '"distinct": {"tokens": {"1": null' "$TMP/a"
result a_given_mark_counts_for_distinct_n $? "$(grep -o '"distinct": {[^}]*}' "$TMP/a")"
"$LONGHAND" text @b-none --find "$(head -c 9 "$TMP/want" | tr -d '\n')" >"$TMP/a"
grep -q 'byte 0$' "$TMP/a"; result places_are_those_of_the_answer $? "$(cat "$TMP/a")"
"$LONGHAND" text @closed >"$TMP/a"
same a_thought_that_the_prompt_ended_is_no_thought "$TMP/closed" "$TMP/a"
check without_a_mark_it_is_refused 2 '^longhand: --thinking-budget: .*--thinking-end TEXT' run $R \
    --thinking-budget 9
check a_long_mark_is_refused 2 'thinking-end: a mark of .* tokens' run $R --thinking-budget 9 \
    --thinking-end "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
exit $failed
