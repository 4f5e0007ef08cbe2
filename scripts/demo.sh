#!/bin/sh
# The main job on real input: a story that goes on from a book's opening. OPENING=FILE TOKENS=N SEED=S choose others.
set -e
cd "$(dirname "$0")/.."
opening=${OPENING:-models/demo/openings/portrait.txt}
tokens=${TOKENS:-2000}
printf '\n%s\n\n' "./longhand run --model models/demo --prompt-file $opening --tokens $tokens${SEED:+ --seed $SEED}" >&2
cat "$opening"
exec ./longhand run --model models/demo --prompt-file "$opening" --tokens "$tokens" ${SEED:+--seed "$SEED"}
