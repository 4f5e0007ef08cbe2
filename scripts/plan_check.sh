#!/usr/bin/env bash
# Compares what `longhand plan` predicts for models/demo on this machine with what drafters then do.
#
#   scripts/plan_check.sh LEARN CHECK [HARDWARE] [DIR]
#   LENGTHS="1000 8000" DRAFTERS="partial spire" TURNS=5 THREADS=1 scripts/plan_check.sh ..
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
DB=$DIR/check.db MODEL=models/demo TOKENS=1000 DRAFTERS=${DRAFTERS:-partial tokenswift longspec spire}
rm -f "$DB"*
jobs=0 threads=${THREADS:+--threads $THREADS}

# write NAME BOOK LENGTH SEED OPTIONS...: TOKENS tokens with LENGTH in their middle; their statistics are
# NAME.json, and $jobs is their job.
write() {
    local out=$DIR/$1.json bytes=$((($3 - TOKENS / 2) * 7 / 2))
    head -c "$bytes" "$2" | iconv -c -f utf-8 -t utf-8 >"$DIR/prompt"
    ./longhand run $threads --model $MODEL --db "$DB" --prompt-file "$DIR/prompt" \
        --tokens $TOKENS --ignore-eos --seed "$4" --temperature 1 --on-loop off --quiet \
        --json-stats "$out" "${@:5}" >"$DIR/text"
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
        write learned "$LEARN" "$length" 1 $(tree $d $([ $d = longspec ] && echo 5 || echo 4))
        known+=${known:+,}$d=@$jobs
    done
    ./longhand plan $threads --model $MODEL --hardware "$HARDWARE" --lengths "$length" --db "$DB" \
        --acceptance "$known" --drafter "${DRAFTERS// /,}" --json >"$DIR/plan.$length"
    python3 -c 'import json, sys
for r in json.load(open(sys.argv[1]))["plan"]:
    print(r["drafter"], r["draft_passes"], r["tokens_per_round"], r["seconds_per_round"], r["speedup"])
' "$DIR/plan.$length" | tee "$DIR/rows.$length"
    echo "| length | drafter | draft passes | tokens predicted | seen | speedup predicted | measured |"
    echo "|---|---|---|---|---|---|---|"
    for d in $DRAFTERS; do
        read -r passes tokens predicted < <(awk -v d="$d" '$1 == d { print $2, $3, $5 }' "$DIR/rows.$length")
        for turn in $(seq "${TURNS:-5}"); do
            write plain "$CHECK" "$length" "$turn" --drafter none
            write drafted "$CHECK" "$length" "$turn" $(tree "$d" "$passes")
            echo "$(number drafted tokens_per_second) $(number plain tokens_per_second)" \
                "$(number drafted mean_acceptance_length)"
        done >"$DIR/turns.$length.$d"
        read -r seen measured < <(python3 -c 'import statistics, sys
v = [list(map(float, x.split())) for x in sys.stdin]
print("%.2f %.3f" % (statistics.mean(x[2] for x in v), statistics.median(x[0] / x[1] for x in v)))' \
            <"$DIR/turns.$length.$d")
        printf '| %d | %s | %d | %.2f | %.2f | %.3f | %.3f |\n' "$length" "$d" "$passes" "$tokens" "$seen" \
            "$predicted" "$measured"
    done
done
