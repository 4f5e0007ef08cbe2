#!/bin/sh
# Re-makes on models/demo what can be re-made of the papers' tables (docs/paper.md).
#
#   scripts/paper.sh [DIR] [TOKENS]    DIR: where texts are kept, paper-out; TOKENS: length of a text, 20000
#   scripts/paper.sh DIR tables        write the tables of the texts that are there
#
# Texts with a fixed tree are slow on a CPU: SLOW is their length (TOKENS). A cell of a longer text is '-'.
#
# With BOOKS and HELD, folders of .txt files to train on and held out, it also makes the tables of acceptance
# in two held-out books (TWO, two names; 20 minutes, nearly all of it for the PREFIXES of 100,000 tokens), and
# of SPIRe's ablations (six trainings of STEPS steps, 200; 15 minutes). Without them these tables keep what
# DIR has.
#
# The script queues one text for each cell of a table and writes the texts one after the other. It can be
# stopped at any time: the same command goes on. Afterwards scripts/paper_tables.py writes the tables into
# docs/paper.md. Run it on an idle machine, because the tables hold speeds.
set -eu
cd "$(dirname "$0")/.."
DIR=${1:-paper-out} TOKENS=${2:-20000}
MODEL=models/demo DB=$DIR/paper.db SLOW=${SLOW:-$TOKENS} length=$TOKENS
mkdir -p "$DIR"

if [ "$TOKENS" = tables ]; then
    exec python3 scripts/paper_tables.py "$DB"
fi

# job NAME PROMPT OPTIONS...: queue a text of this name, unless it is there.
job() {
    name=$1 prompt=$2
    shift 2
    ./longhand list "@$name" --db "$DB" >"$DIR/listed" 2>&1 ||
        ./longhand submit --model "$MODEL" --db "$DB" --name "$name" --prompt-file "$DIR/prompt-$prompt" \
            --tokens "$length" --ignore-eos --seed 1 --on-loop off --quiet "$@" >"$DIR/listed"
}
slow() {
    length=$SLOW
    job "$@"
    length=$TOKENS
}
# pair NAME PROMPT OPTIONS...: a text drafted as in TokenSwift, and the same text with plain decoding.
pair() {
    pair=$1
    slow "$@" --preset tokenswift
    shift
    job "$pair-plain" "$@" --min-keep 20 --drafter none
}
# options DRAFTER TREE: a drafter that proposes the tree. 4-grams propose one or two chains of three tokens,
# and suffix one chain of up to 16.
options() {
    case $1 in
    none) echo "--drafter none" ;;
    partial) echo "--drafter partial --tree $2 --draft-passes 3" ;;
    model) echo "--drafter model:$MODEL --tree $2" ;;
    ngram) echo "--drafter ngram --tree $2 --ngram-delay 0 --ngram-k $(echo "$2" | cut -d, -f2)" ;;
    *) echo "--drafter $1 --tree $2" ;;
    esac
}
# accepted HOW DRAFTER TREE BOOK PREFIX: 400 tokens after a prefix of a held-out book, and the file of their
# statistics. HOW: queued, for a worker, whose texts share the cache of their prefix, so that it is read once;
# written, the file of such a text; alone, both, for a drafter that reads every row of the prefix itself.
accepted() {
    out=$DIR/accepted-$2-$3-$4-$5.json
    [ ! -s "$out" ] || return 0
    # shellcheck disable=SC2046
    case $1 in
    queued) job "$2-$3-$4-$5" "held-$4-$5" --temperature 1 $(options "$2" "$3") ;;
    written) ./longhand report "@$2-$3-$4-$5" --db "$DB" --json -o "$out" ;;
    alone)
        job "$2-$3-$4-$5" "held-$4-$5" --temperature 1 $(options "$2" "$3")
        work
        accepted written "$2" "$3" "$4" "$5"
        ;;
    esac
}
# trained ABLATION: a SPIRe drafter, with its scores on held-out text. It goes on where it was stopped.
trained() {
    [ -s "$DIR/spire-$1.safetensors" ] ||
        ./longhand train spire --model "$MODEL" --data "$BOOKS"/*.txt --valid "$HELD"/*.txt --ablate "$1" \
            --window 1024 --batch-windows 2 --learning-rate 3e-3 --warmup 50 --steps "${STEPS:-200}" \
            --valid-every "${STEPS:-200}" --valid-windows 32 --curves "$DIR/spire-$1.csv" \
            --out "$DIR/spire-$1.safetensors" --quiet
}
work() { ./longhand work --until-empty --parallel 1 --db "$DB"; }

# The prompts: the first 2,048, 4,096 and 8,192 tokens of a text that the model itself continues.
LLAMA="--temperature 1 --top-k 0 --top-p 1 --min-p 0.1 --penalty 1.2 --penalty-window 1024"
if ! [ -s "$DIR/prompt-8192" ]; then
    cp models/demo/openings/portrait.txt "$DIR/prompt-opening"
    length=8000
    # shellcheck disable=SC2086
    job opening opening $LLAMA
    length=$TOKENS
    work
    ./longhand text @opening --with-prompt --db "$DB" >"$DIR/opening.txt"
    for n in 2048 4096 8192; do
        ./longhand tokenize --model $MODEL "$DIR/opening.txt" | tr ' ,[]' '\n\n\n\n' | grep . | head -n $n |
            ./longhand tokenize --model $MODEL --decode >"$DIR/prompt-$n.part"
        mv "$DIR/prompt-$n.part" "$DIR/prompt-$n"
    done
fi

# TokenSwift, Tables 3 and 5 and Figure 3. Medusa*: independent heads under TokenSwift's tree.
for n in 2048 4096 8192; do
    # shellcheck disable=SC2086
    {
        pair t3-$n $n $LLAMA
        slow t3-$n-paper $n $LLAMA --preset tokenswift --verifier paper
        slow t3-$n-medusa $n $LLAMA --min-keep 20 --drafter heads:$MODEL/heads-independent.safetensors \
            --tree 3,3,3
        job t3-$n-auto $n $LLAMA --min-keep 20
    }
done
for policy in full static dynamic; do
    # shellcheck disable=SC2086
    slow t5-$policy 4096 $LLAMA --preset tokenswift --ngram-k 0 --kv-policy $policy
done
# Table 6: three filters, with and without the penalty. Table 8: the penalty's value. Table 9: temperatures.
for penalty in 1 1.2; do
    SAMPLING="--temperature 1 --top-k 0 --penalty $penalty --penalty-window 1024"
    # shellcheck disable=SC2086
    {
        pair t6-top-p-$penalty 4096 $SAMPLING --top-p 0.9 --min-p 0
        pair t6-eta-$penalty 4096 $SAMPLING --top-p 1 --min-p 0 --eta 0.0002
        pair t6-min-p-$penalty 4096 $SAMPLING --top-p 1 --min-p 0.1
    }
done
for penalty in 1 1.1 1.2 1.3 1.4 1.5; do
    job t8-$penalty 4096 --temperature 1 --top-k 0 --top-p 1 --min-p 0.1 --penalty $penalty \
        --penalty-window 1024 --min-keep 20
done
for temperature in 0.4 0.6 0.8 1 1.2; do
    pair t9-$temperature 4096 --temperature $temperature --top-k 0 --top-p 0.9 --min-p 0 --penalty 1.2 \
        --penalty-window 1024
done
work

# Acceptance with 4 and 8 rows of a pass, the root among them. The texts of plain decoding say what a one-row
# pass takes.
if [ -n "${HELD:-}" ]; then
    DB=$DIR/accepted.db length=400
    for book in ${TWO:-elizabeth-gaskell-north-and-south john-muir-the-mountains-of-california}; do
        for n in ${PREFIXES:-1024 8192 32768 100000}; do
            [ -s "$DIR/prompt-held-$book-$n" ] || {
                ./longhand tokenize --model $MODEL "$HELD/$book.txt" | tr ' ,[]' '\n\n\n\n' | grep . |
                    head -n $n | ./longhand tokenize --model $MODEL --decode >"$DIR/held.part"
                mv "$DIR/held.part" "$DIR/prompt-held-$book-$n"
            }
            for how in queued written; do
                accepted $how none 1 "$book" $n
                for d in longspec heads partial model ngram suffix; do
                    accepted $how $d 1,1,1 "$book" $n
                    accepted $how $d 1,2,2 "$book" $n
                done
                [ $how = written ] || work
            done
            for d in gumiho spire; do
                accepted alone $d 1,1,1 "$book" $n
                accepted alone $d 1,2,2 "$book" $n
            done
        done
    done
    DB=$DIR/paper.db length=$TOKENS
fi
if [ -n "${BOOKS:-}" ] && [ -n "${HELD:-}" ]; then
    for ablation in none random distill hard no-feedback no-activations; do
        trained $ablation
    done
fi
exec python3 scripts/paper_tables.py "$DB"
