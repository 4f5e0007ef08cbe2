#!/usr/bin/env bash
# Compares what `longhand plan` predicts for models/demo on this machine with what drafters then do.
#
#   scripts/plan_check.sh LEARN CHECK [HARDWARE] [DIR]
#   LENGTHS="1000 8000" TURNS=5 scripts/plan_check.sh ..
#
# LEARN and CHECK are two books that the model was not trained on. Acceptance, depth by depth, comes from
# texts of the same length that continue LEARN. With HARDWARE measured (the default) the plan measures passes
# and rounds of the model at other lengths, on texts of its own. The predictions for a length are printed
# before the first text of this length that continues CHECK is written. Each point is the median of TURNS
# turns of plain decoding and the drafter, with the tree that the prediction is about. Run it on an idle
# machine.
set -eu
LEARN=$1 CHECK=$2 HARDWARE=${3:-measured} DIR=${4:-$(mktemp -d)}
cd "$(dirname "$0")/.."
DB=$DIR/check.db MODEL=models/demo DRAFTERS="partial tokenswift longspec spire"
rm -f "$DB"*
jobs=0

# write NAME BOOK LENGTH TOKENS SEED OPTIONS...: TOKENS tokens with LENGTH in their middle; their statistics
# are NAME.json, and $jobs is their job.
write() {
    local out=$DIR/$1.json bytes=$((($3 - $4 / 2) * 7 / 2))
    head -c "$bytes" "$2" | iconv -c -f utf-8 -t utf-8 >"$DIR/prompt"
    ./longhand run --model $MODEL --db "$DB" --prompt-file "$DIR/prompt" --tokens "$4" --ignore-eos \
        --seed "$5" --temperature 1 --on-loop off --quiet --json-stats "$out" "${@:6}" >"$DIR/text"
    jobs=$((jobs + 1))
}
# tree DRAFTER PASSES: the options of a tree of so many draft passes; LongSpec's has 4, 16, 16, .. nodes.
tree() {
    local beam=4,4,1,1,1 chain=1,1,1,1
    case $1 in
    partial) echo "--drafter partial --tree 1 --draft-passes $2" ;;
    tokenswift) echo "--drafter heads,partial --tree 1,3,3,3" ;;
    longspec) echo "--drafter longspec --tree $(cut -d, -f"1-$2" <<<$beam)" ;;
    spire) echo "--drafter spire --tree $(cut -d, -f"1-$2" <<<$chain)" ;;
    esac
}
number() { sed -nE "s/.*\"$2\": ([0-9.e+-]+).*/\1/p" "$DIR/$1.json" | head -1; }

for length in ${LENGTHS:-1000 8000}; do
    # The plan takes tokens of a round of 4 passes, of longspec 5.
    known=
    for d in $DRAFTERS; do
        write learned "$LEARN" "$length" 1000 1 $(tree $d $([ $d = longspec ] && echo 5 || echo 4))
        known+=${known:+,}$d=@$jobs
    done
    ./longhand plan --model $MODEL --hardware "$HARDWARE" --lengths "$length" --db "$DB" \
        --acceptance "$known" --drafter "${DRAFTERS// /,}" | tee "$DIR/plan.$length"
    echo "| length | drafter | draft passes | tokens predicted | seen | speedup predicted | measured |"
    echo "|---|---|---|---|---|---|---|"
    for d in $DRAFTERS; do
        read -r passes tokens predicted < <(awk -v d="$d" '$3 == d { print $4, $6, $9 }' "$DIR/plan.$length")
        for turn in $(seq "${TURNS:-5}"); do
            write plain "$CHECK" "$length" 400 "$turn" --drafter none
            write drafted "$CHECK" "$length" 400 "$turn" $(tree "$d" "$passes")
            echo "$(number drafted tokens_per_second) $(number plain tokens_per_second)" \
                "$(number drafted mean_acceptance_length)"
        done >"$DIR/turns.$length.$d"
        read -r seen measured < <(python3 -c 'import statistics, sys
v = [list(map(float, x.split())) for x in sys.stdin]
print("%.2f %.2f" % (statistics.mean(x[2] for x in v), statistics.median(x[0] / x[1] for x in v)))' \
            <"$DIR/turns.$length.$d")
        echo "| $length | $d | $passes | $tokens | $seen | $predicted | $measured |"
    done
done
