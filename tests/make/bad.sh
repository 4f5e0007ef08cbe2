#!/bin/sh
# bad.sh [ARCHIVE]: write tests/data/bad.tar.gz, the malformed files of models and tokenizers.
# tests/data/bad_expected.txt, which is kept by hand, has the line of each refusal.
cd "$(dirname "$0")/../.." || exit
set -e
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
python3 tests/make/bad_inputs.py "$files"
python3 tests/make/bad_tokenizers.py "$files/tokenizer"
tests/make/pack.sh "$files" "${1:-tests/data/bad.tar.gz}"
