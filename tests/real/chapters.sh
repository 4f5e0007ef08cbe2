#!/bin/bash
# A book whose chapters continue each other: two workers are killed again and again, and every chapter equals
# that of an undisturbed run. LONG=1: 40 chapters of 800 tokens with 600 carried ones, 30 kills; CHAPTERS,
# TOKENS and KILLS give other numbers.
. tests/real/lib.inc
chapters=${CHAPTERS:-${LONG:+40}} tokens=${TOKENS:-${LONG:+800}} kills=${KILLS:-${LONG:+30}}
chapters=${chapters:-4} tokens=${tokens:-120} kills=${kills:-4}
python3 - "$chapters" "$tokens" >"$TMP/book.jsonl" <<'P'
import json, sys
chapters, tokens = int(sys.argv[1]), int(sys.argv[2])
outline = "A novel about a lighthouse keeper, her brother and a ship that does not come. Plain prose."
for i in range(1, chapters + 1):
    line = {"custom_id": f"ch{i}", "prompt": f"{outline}\n\n", "max_tokens": tokens}
    if i > 1:
        line |= {"after": f"ch{i - 1}", "carry": tokens * 3 // 4, "append": f"\n\nChapter {i}\n\n"}
    print(json.dumps(line))
P
queue() # submits the book to the store of LONGHAND_DB
{
    "$L" submit --batch "$TMP/book.jsonl" -m "$MODEL" -s 5 --temperature 0.8 --min-p 0.05 --ignore-eos -q \
        >/dev/null
}
written() { "$L" list --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["tokens"])'; }
made() # CHAPTER: the tokens that the model made; its ids have the heading, too
{
    "$L" text "$1" --json --format ids | python3 -c 'import json, sys
j = json.load(sys.stdin)[0]
print(len(j["ids"]) - sum(g["tokens"] for g in j["given"]))'
}
LONGHAND_DB=$TMP/whole.db
queue; SECONDS=0
"$L" work -q
whole=$SECONDS

LONGHAND_DB=$TMP/killed.db
queue; SECONDS=0
all=$((chapters * tokens)) killed=0
for k in $(seq "$kills"); do
    "$L" work -q --max-attempts 0 2>"$TMP/a.err" & a=$!
    "$L" work -q --max-attempts 0 2>"$TMP/b.err" & b=$!
    while kill -0 $a 2>/dev/null && kill -0 $b 2>/dev/null &&
        [ "$(written)" -lt $((all * k / (kills + 1))) ]; do
        sleep 0.2
    done
    kill -9 $a 2>/dev/null && killed=$((killed + 1))
    sleep 0.$((RANDOM % 9))
    kill -9 $b 2>/dev/null && killed=$((killed + 1))
    wait $a $b 2>/dev/null
done
"$L" work -q --max-attempts 0
printf '     %d chapters of %d tokens: %d s undisturbed, %d s with %d kills\n' "$chapters" "$tokens" \
    "$whole" $SECONDS "$killed"
[ $killed -ge "$kills" ]; result real_book_is_killed $? "$killed kills"
differs=0
for i in $(seq "$chapters"); do
    for f in ids text; do
        LONGHAND_DB=$TMP/whole.db "$L" text "@book/ch$i" --format $f --with-prompt >"$TMP/a"
        LONGHAND_DB=$TMP/killed.db "$L" text "@book/ch$i" --format $f --with-prompt >"$TMP/b"
        cmp -s "$TMP/a" "$TMP/b" || differs=$((differs + 1))
    done
    [ "$(made "@book/ch$i")" = "$tokens" ] || differs=$((differs + 1))
done
[ $differs = 0 ]
result real_chapters_equal_those_of_an_undisturbed_run $? "$differs of $((3 * chapters)) differ"
for i in 2 "$chapters"; do check "real_verify_chapter_$i" 0 '' verify "@book/ch$i" -q; done
exit $failed
