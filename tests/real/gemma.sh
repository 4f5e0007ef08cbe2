#!/bin/bash
# Gemma 3 270M in Q4_K_M: ids and likelihoods of texts beyond its window of 512 are those that
# tests/make/make_real_gemma.py wrote; drafts and a kill change no byte.
FILE=gemma-3-270m-Q4_K_M.gguf FETCHES='scripts/real-models.sh gemma'
. tests/real/lib.inc
real_likelihoods gemma 0.003 3500
tokens=${LONG:+3000}
tokens=${tokens:-140}
g() { "$L" "$@" -m "$MODEL" -n "$tokens" --ignore-eos -q -s 3 -p "$prompt" --db "$TMP/g.db"; }
prompt="The old lighthouse keeper had not spoken to anyone for a year when"
g run --drafter none --temperature 0.8 --format ids >"$TMP/a"; g run --temperature 0.8 --format ids >"$TMP/b"
same real_gemma_drafts_change_no_prose "$TMP/a" "$TMP/b"
[ "$(wc -l <"$TMP/b")" = "$tokens" ]; result real_gemma_has_all_tokens $?
prompt="One sheep, two sheep, three sheep, four sheep, five sheep,"
set -- --temperature 0 --on-loop off --format ids
g run --drafter none "$@" >"$TMP/a"; g run "$@" --json-stats "$TMP/s" >"$TMP/b"
same real_gemma_drafts_change_no_repetition "$TMP/a" "$TMP/b"
python3 -c 'import json, sys; print("    ", json.load(open(sys.argv[1]))["mean_acceptance_length"])' "$TMP/s"
g submit --temperature 0 --on-loop off >"$TMP/id"
id=$(grep -o '[0-9]*' "$TMP/id" | head -1)
held 400 "[ \$('$L' text $id --db '$TMP/g.db' --format ids | wc -l) -gt 20 ]" \
    "$L" run --resume "$id" --db "$TMP/g.db" --format ids -q
"$L" work -q --db "$TMP/g.db"; "$L" text "$id" --db "$TMP/g.db" --format ids >"$TMP/b"
same real_gemma_killed_and_continued "$TMP/a" "$TMP/b"
exit $failed
