#!/bin/bash
# Texts longer than the rings of layers with a window (kvmgr/kv.h): drafts, kills with snapshots, samples with
# a common prompt, forks and retakes change no byte. tests/decode/test_rings compares them with caches without
# rings.
. tests/cli/lib.inc
N=4000
job() { "$LONGHAND" $1 -m build/data/models/$m --prompt "The ship went on and on" -n $N -s 3 -q --ignore-eos \
    "${@:2}"; }
text() { "$LONGHAND" text "$1" --format ids; }
models="gemma3-bf16 gptoss-bf16"
[ -z "$LONG" ] || models="$models gemma4-bf16 mistral-window-bf16"
for m in $models; do
    name=${m%%-*}; export LONGHAND_DB=$TMP/$name.db
    job run --drafter none --format ids >"$TMP/plain"
    job run --format ids -t 2 >"$TMP/a"; same "${name}_drafts_change_nothing" "$TMP/plain" "$TMP/a"
    job run --drafter partial,ngram --tree 3,2 --kv-budget 512 --format ids >"$TMP/a"
    same "${name}_trees_change_nothing" "$TMP/plain" "$TMP/a"
    job run --drafter none --kv-dtype int8 --format ids >"$TMP/a"
    job run --kv-dtype int8 --format ids >"$TMP/b"; same "${name}_drafts_over_int8" "$TMP/a" "$TMP/b"

    id=$(job submit)
    { for i in 08 12 16 2 24 28 32; do
        timeout -s KILL "0.$i" "$LONGHAND" work -q --kv-snapshot on --max-attempts 0 >/dev/null
    done; } 2>/dev/null
    "$LONGHAND" work -q --kv-snapshot on --max-attempts 0; text "$id" >"$TMP/a"
    same "${name}_killed_and_continued" "$TMP/plain" "$TMP/a"
    fork=$("$LONGHAND" fork "$id" --at 3700 -n 5000 --seed 5 2>/dev/null)
    job submit --samples 8 --name eight >"$TMP/ids"; "$LONGHAND" work -q --parallel 8
    text @eight/0 >"$TMP/a"; same "${name}_eight_samples" "$TMP/plain" "$TMP/a"
    check "${name}_verify_of_another_sample" 0 '' verify -q @eight/5
    check "${name}_verify_of_a_fork" 0 '' verify -q "$fork"

    for d in none auto; do
        id=$(job submit --drafter $d --temperature 0.3 --min-p 0 --on-loop retake:6); "$LONGHAND" work -q
        text "$id" >"$TMP/$d"
    done
    same "${name}_drafts_change_no_retake" "$TMP/none" "$TMP/auto"
    check "${name}_verify_of_retakes" 0 '' verify -q "$id"
done
exit $failed
