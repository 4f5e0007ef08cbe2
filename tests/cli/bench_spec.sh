#!/bin/bash
# labbench --points spec...: every setting writes the tokens of plain decoding (it compares them), and the
# output has its figures.
. tests/cli/lib.inc
LAB=$(dirname "$LONGHAND")/labbench
SMALL="prompt=300,window=100,every=400,slice=40"

# NAME PATTERN ARGUMENTS...: labbench refuses these with exit 2 and a message.
check_lab()
{
    local name=$1 pattern=$2 code
    shift 2
    "$LAB" "$@" >"$TMP/out" 2>"$TMP/err"
    code=$?
    [ $code = 2 ] && grep -q "$pattern" "$TMP/err"
    result "$name" $? "exit $code: $(cat "$TMP/err")"
}

"$LAB" --points spec,$SMALL --tokens 800 --repeat 1 --json >"$TMP/spec" 2>"$TMP/err" &&
    python3 - "$TMP/spec" >"$TMP/out" 2>&1 <<'END'
import json, sys
j = json.load(open(sys.argv[1]))
names = ["plain", "again", "auto", "tokenswift", "heads", "partial", "longspec", "spire", "gumiho",
         "ngram", "suffix"]
assert list(j["settings"]) == names and len(j["texts"]) == 1 and j["slice"] == 40
t = j["texts"][0]
assert [w["from"] for w in t["windows"]] == [150, 550]
assert [w["stands_for"] for w in t["windows"]] == [[0, 400], [400, 800]]
for w in t["windows"]:
    for n in names:
        s = w["settings"][n]
        assert s["seconds_per_token"] > 0 and s["tokens_per_round"] >= 1 and len(s["runs"]) == 1, (n, s)
    assert w["settings"]["plain"]["tokens_per_round"] == 1
    swift = w["settings"]["tokenswift"]
    assert swift["tokens_per_round"] > 1.5 and swift["rows_per_round"] > 20
total = {(c["setting"], c["tokens"]): c for c in t["cumulative"]}
assert sorted({n for _, n in total}) == [160, 320, 480, 640, 800]
whole = total["tokenswift", 800]
parts = [400 * w["settings"]["tokenswift"]["seconds_per_token"] for w in t["windows"]]
assert abs(whole["seconds"] - sum(parts)) < 1e-3 * whole["seconds"]
END
result spec_has_every_setting_and_its_sums $? "$(cat "$TMP/err" "$TMP/out")"

"$LAB" --points spec-best,$SMALL,set=chain3/256,set=heads-1 --tokens 800 --repeat 2 --drafter partial \
    --tree 2,1 >"$TMP/out" 2>"$TMP/err" &&
    grep -q '^the whole text: auto' "$TMP/out" && grep -q '  given .*the flags of this command' "$TMP/out"
result spec_best_compares_auto_with_fixed_settings $? "$(cat "$TMP/err")"

"$LAB" --points spec-copy,prompt=300,window=100,every=200,set=suffix --tokens 200 --repeat 1 \
    >"$TMP/out" 2>"$TMP/err" &&
    [ "$(grep -cE '^spec-copy: (a list|a play|code), 300 prompt tokens' "$TMP/out")" = 3 ]
result spec_copy_has_three_texts $? "$(cat "$TMP/err")"

"$LAB" --points spec-short,prompt=300 --tokens 60 --repeat 3 --data models/demo/openings/m*.txt \
    >"$TMP/out" 2>"$TMP/err" &&
    [ "$(grep -c '^spec-short: m' "$TMP/out")" = 2 ]
result spec_short_takes_each_file $? "$(cat "$TMP/err")"

"$LAB" --points spec-copy,prompt=400,window=100,every=200,set=suffix --tokens 200 --repeat 1 \
    --temperature 0 --penalty 1 --json >"$TMP/copy" 2>"$TMP/err" && python3 - "$TMP/copy" <<'END'
import json, sys
rows = [c for t in json.load(open(sys.argv[1]))["texts"] for c in t["cumulative"]]
sys.exit(not any(c["setting"] == "suffix" and c["tokens_per_round"] > 1.5 for c in rows))
END
result spec_copy_repeats_itself_without_a_penalty $? "$(cat "$TMP/err" "$TMP/copy")"

check_lab spec_points_stand_alone 'spec and spec-copy: only one spec point at a time' --points spec,spec-copy
check_lab spec_words_are_checked '"depth=5"; allowed with spec: every=N' --points spec,depth=5
check_lab spec_slices_are_checked "slice: '10' is not a whole number from 20 to 1000000" \
    --points spec,slice=10
check_lab spec_fits_the_context 'beyond this model.s context of 131072' --points spec --tokens 131072
exit $failed
