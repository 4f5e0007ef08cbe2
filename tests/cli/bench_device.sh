#!/bin/bash
# longhand bench on a device: every point of it on the kernels compiled as C, with a tiny model.
. tests/cli/lib.inc
LAB=$(dirname "$LONGHAND")/labbench
D=${DEVICE:-emulated}
"$LAB" --device $D --points copy,decode,rows,draft,heads,prefill,train,depth=0,depth=70 >"$TMP/out" 2>"$TMP/err"; r=$?
[ $r = 0 ] && [ ! -s "$TMP/err" ] && [ "$(grep -cE '^(tiny|8B) random +(decode|rows|draft|heads|prefill) ' "$TMP/out")" = 12 ]; result bench_device_has_all_points $? "exit $r: $(cat "$TMP/err" "$TMP/out" | head -20)"
awk '$3 == "rows" { ms[$4 " " $5] = $6; if (!($6 > 0)) bad = 1 } $3 == "decode" && $10 !~ /^[0-9.]+%$/ { bad = 1 } END { exit bad || !(ms["0 64"] > 0 && ms["70 64"] > 0) }' "$TMP/out"; result bench_device_times_are_positive $? "$(cat "$TMP/out")"
grep -qE 'resume +70 tokens: [0-9.]+ s by reading them again' "$TMP/out" && grep -q '^random weights of .* made there in' "$TMP/out"; result bench_device_says_what_a_resume_takes $? "$(tail -3 "$TMP/out")"
grep -qE '^(tiny|8B) random +train +[0-9]+ tokens a window, 3 heads: [0-9]*[1-9][0-9]*\.[0-9] tokens/s' "$TMP/out" || grep -q '^skipped: training of heads: .*cuBLAS' "$TMP/out"; result bench_device_measures_training $? "$(grep -i train "$TMP/out")"
"$LAB" --device $D --points copy,decode,depth=0,depth=70 --json >"$TMP/out" 2>"$TMP/err"; r=$?
[ $r = 0 ] && python3 -c 'import json, sys
j = json.load(open(sys.argv[1])); m = j["models"][0]
assert j["copy"] > 0 and [d["depth"] for d in m["depths"]] == [0, 70] and m["weight_bytes"] > 0 and m["row_bytes"] > 0
assert all(d["decode_seconds"] > 0 and abs(d["decode_share"] - (m["weight_bytes"] + d["depth"] * m["row_bytes"]) / d["decode_seconds"] / j["copy"]) < 1e-3 for d in m["depths"])' "$TMP/out"; result bench_device_json $? "exit $r: $(head -c 600 "$TMP/out" "$TMP/err")"
LONGHAND=$LAB check bench_device_unknown_point 2 "allowed on a GPU: copy, decode" --device $D --points nonsense
LONGHAND=$LAB check bench_device_depths_ascend 2 "depth: '0' is not a whole number from 71 to" --device $D --points decode,depth=70,depth=0
if [ -z "${LONG:-}" ]; then skip bench_device_projection "LONG=1 runs it"; exit $failed; fi
"$LAB" --device $D --points project >"$TMP/out" 2>"$TMP/err"; r=$?
[ $r = 0 ] && [ "$(grep -c '^demo on real text, .* tokens a round' "$TMP/out")" = 3 ] && [ "$(grep -c 'choice = decode - one row = [0-9.]* min$' "$TMP/out")" = 3 ] &&
    grep -q '^projection of .* not a measurement' "$TMP/out"; result bench_device_projection $? "exit $r: $(cat "$TMP/err" "$TMP/out" | tail -9)"
exit $failed
