#!/usr/bin/env bash
# Compares what `longhand plan` predicts for models/demo on this machine with what drafters then do.
#
#   scripts/plan_check.sh LEARN CHECK [HARDWARE] [DIR]
#
# LEARN and CHECK are two books that the model was not trained on. Acceptance comes from texts that continue
# LEARN, and HARDWARE (measured) from probes of the machine. Predictions are printed before the first text
# that continues CHECK is written. Each point is the median of three turns of plain decoding and the drafter,
# with the tree that the prediction is about: two lengths, four drafters. Run it on an idle machine.
set -eu
LEARN=$1 CHECK=$2 HARDWARE=${3:-measured} DIR=${4:-$(mktemp -d)}
cd "$(dirname "$0")/.."
DB=$DIR/check.db MODEL=models/demo LENGTHS="1000 8000"
rm -f "$DB"

# write NAME BOOK LENGTH SEED OPTIONS...: 400 tokens after about LENGTH - 200; their statistics are NAME.json.
write() {
    local out=$DIR/$1.json bytes=$((($3 - 200) * 7 / 2))
    head -c "$bytes" "$2" | iconv -c -f utf-8 -t utf-8 >"$DIR/prompt"
    ./longhand run --model $MODEL --db "$DB" --prompt-file "$DIR/prompt" --tokens 400 --ignore-eos \
        --seed "$4" --temperature 1 --on-loop off --quiet --json-stats "$out" "${@:5}" >"$DIR/text"
}
# tree DRAFTER PASSES: the options of a tree of so many draft passes.
tree() {
    local beam=4,16,16,16,16 chain=1,1,1,1
    case $1 in
    partial) echo "--drafter partial --tree 1 --draft-passes $2" ;;
    tokenswift) echo "--drafter heads,partial --tree 1,3,3,3" ;;
    longspec) echo "--drafter longspec --tree $(cut -d, -f"1-$2" <<<$beam)" ;;
    spire) echo "--drafter spire --tree $(cut -d, -f"1-$2" <<<$chain)" ;;
    esac
}
number() { sed -nE "s/.*\"$2\": ([0-9.e+-]+).*/\1/p" "$DIR/$1.json" | head -1; }

# The plan takes tokens of a round of 4 passes, of longspec 5.
known=
for d in partial tokenswift longspec spire; do
    write "learned-$d" "$LEARN" 1000 1 $(tree $d $([ $d = longspec ] && echo 5 || echo 4))
    known+=${known:+,}$d=$(number "learned-$d" mean_acceptance_length)
done
echo "acceptance: $known"
./longhand plan --model $MODEL --hardware "$HARDWARE" --lengths "${LENGTHS/ /,}" --acceptance "$known" \
    --drafter partial,tokenswift,longspec,spire | tee "$DIR/plan"
echo "| length | drafter | draft passes | predicted | measured |"
echo "|---|---|---|---|---|"
for length in $LENGTHS; do
    for d in partial tokenswift longspec spire; do
        read -r passes predicted < <(awk -v l="$length" -v d="$d" '$1 == l && $3 == d { print $4, $9 }' \
            "$DIR/plan")
        for turn in 1 2 3; do
            write plain "$CHECK" "$length" "$turn" --drafter none
            write drafted "$CHECK" "$length" "$turn" $(tree "$d" "$passes")
            echo "$(number drafted tokens_per_second) $(number plain tokens_per_second)"
        done | awk '{ print $1 / $2 }' | sort -g | sed -n 2p >"$DIR/median"
        echo "| $length | $d | $passes | $predicted | $(cat "$DIR/median") |"
    done
done
