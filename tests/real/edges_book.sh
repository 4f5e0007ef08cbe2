#!/bin/bash
# --preset story: a text of SmolLM2 does not collapse (scripts/collapse.py), and without the penalty it does.
# LONG=1: the book of examples/, of which every chapter ends by itself.
. tests/real/lib.inc
opening="The lake had frozen early that year, and the children of the village were the first to walk on it. \
Tomas went out farther than the others. Where the ice turned dark he found a glove."
story() { "$L" run -m "$MODEL" -p "$opening" -n 400 -s 2 --ignore-eos --preset story -q "$@"; }
story >"$TMP/with"
story --penalty 1 >"$TMP/without"
python3 scripts/collapse.py "$TMP/with" "$TMP/without" | sed "s|$TMP/||" >"$TMP/figures"
grep -qE '^with: .* collapse never, near 0\.0[0-9]$' "$TMP/figures" &&
    grep -qE '^without: .* (collapse [0-9]|near 0\.[1-9])' "$TMP/figures"
result real_story_does_not_collapse $? "$(cat "$TMP/figures")"

if [ -n "${LONG:-}" ]; then
    "$L" run --batch examples/book.jsonl -o "$TMP/out" -m "$MODEL" --preset story -s 1 -q
    for i in 1 2 3 4 5 6 7 8 9 10; do "$L" text @book/ch$i >"$TMP/ch$i"; done
    python3 scripts/collapse.py "$TMP"/ch? "$TMP/ch10" | sed "s|$TMP/||" | tee "$TMP/figures"
    [ "$(grep -cE ': [2-9][0-9]{2} words, collapse never, near 0\.0[0-9]$' "$TMP/figures")" = 10 ] &&
        [ "$("$L" list @book --finish stop | grep -c '@book/ch')" = 10 ]
    result real_the_book_of_the_example $? "$("$L" list)"
fi
exit $failed
