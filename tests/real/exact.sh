#!/bin/bash
# --drafter auto writes the text of plain decoding, byte for byte: sampled prose, and a greedy list that
# repeats itself, where drafts come true.
. tests/real/lib.inc
tokens=${LONG:+8000}
tokens=${tokens:-400}
pair() # NAME ARGS..
{
    local name=$1
    shift
    for drafter in none auto; do
        "$L" run -m "$MODEL" "$@" -n "$tokens" --ignore-eos -q --drafter $drafter --format ids \
            --json-stats "$TMP/$drafter.json" >"$TMP/$drafter"
    done
    same "real_$name" "$TMP/none" "$TMP/auto"
    [ "$(wc -l <"$TMP/auto")" = "$tokens" ]; result "real_${name}_has_all_tokens" $? "$(wc -l <"$TMP/auto")"
}
pair auto_writes_the_prose_of_plain_decoding -s 3 --temperature 0.8 --min-p 0.05 --penalty 1.1 \
    -p "The old lighthouse keeper had not spoken to anyone for a year when"
pair auto_writes_the_repetition_of_plain_decoding -s 3 --temperature 0 --on-loop off \
    -p "One sheep, two sheep, three sheep, four sheep, five sheep,"
python3 -c 'import json, sys
s = json.load(open(sys.argv[1]))
print("    ", {k: s[k] for k in s if "pass" in k or "accept" in k})' "$TMP/auto.json"
exit $failed
