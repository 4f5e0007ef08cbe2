#!/bin/bash
# labbench on a device: every point, on the kernels compiled as C, with a tiny model.
. tests/cli/lib.inc
LAB=$(dirname "$LONGHAND")/labbench
D=${DEVICE:-emulated}
out=$TMP/out err=$TMP/err

"$LAB" --device $D --points copy,decode,rows,draft,heads,prefill,train,depth=0,depth=70 >"$out" 2>"$err"; r=$?
[ $r = 0 ] && [ ! -s "$err" ] &&
    [ "$(grep -cE '^(tiny|8B) random +(decode|rows|draft|heads|prefill) ' "$out")" = 16 ]
result bench_device_has_all_points $? "exit $r: $(cat "$err" "$out" | head -20)"

awk '$3 == "rows" { ms[$4 " " $5] = $6; if (!($6 > 0)) bad = 1 }
     $3 == "decode" && $10 !~ /^[0-9.]+%$/ { bad = 1 }
     END { exit bad || !(ms["0 64"] > 0 && ms["70 64"] > 0) }' "$out"
result bench_device_times_are_positive $? "$(cat "$out")"

grep -qE 'resume +70 tokens: [0-9.]+ s by reading them again' "$out" &&
    grep -q '^random weights of .* made there in' "$out"
result bench_device_times_a_resume $? "$(tail -3 "$out")"

line='^(tiny|8B) random +train +[0-9]+ tokens a window, 3 heads: [0-9]*[1-9][0-9]*\.[0-9] tokens/s'
grep -qE "$line" "$out" || grep -q '^skipped: training of heads: .*cuBLAS' "$out"
result bench_device_measures_training $? "$(grep -i train "$out")"

"$LAB" --device $D --points copy,decode,depth=0,depth=70 --json >"$out" 2>"$err"; r=$?
[ $r = 0 ] && python3 - "$out" <<'END'
import json, sys
j = json.load(open(sys.argv[1]))
m = j["models"][0]
assert j["copy"] > 0 and [d["depth"] for d in m["depths"]] == [0, 70]
assert m["weight_bytes"] > 0 and m["row_bytes"] > 0
assert isinstance(m["weight_bytes"], int) and isinstance(m["row_bytes"], int)
for d in m["depths"]:
    share = (m["weight_bytes"] + d["depth"] * m["row_bytes"]) / d["decode_seconds"] / j["copy"]
    assert d["decode_seconds"] > 0 and abs(d["decode_share"] - share) < 1e-3
END
result bench_device_json $? "exit $r: $(head -c 600 "$out" "$err")"

"$LAB" --device $D --points kernels,modes,depth=0 --json >"$out" 2>"$err"; r=$?
[ $r = 0 ] && python3 - "$out" <<'END'
import json, sys
j = json.load(open(sys.argv[1]))
k = j["kernels"]
names = {"embed", "rmsnorm", "qkv", "o", "gate_up", "down", "lm_head", "rope", "swiglu", "gather", "sample",
         "kv_commit", "attend", "widen", "count", "kv_select", "kv_gather"}
assert {x["operation"] for x in k} == names
assert len({x["rows"] for x in k}) >= 2 and len({x["depth"] for x in k if x["operation"] == "attend"}) == 2
for x in k:
    assert x["seconds"] > 0 and abs(x["share"] - x["bytes"] / x["seconds"] / j["copy"]) < 1e-3
assert [m["model"].split(" ", 1)[1] for m in j["models"]] == ["random", "no overlap", "no graphs"]
assert all(d["decode_seconds"] > 0 for m in j["models"] for d in m["depths"])
END
result bench_device_kernels_and_modes $? "exit $r: $(tail -c 600 "$err" "$out")"

# A run that ends early leaves what it has measured; `profile` runs a round at each depth.
LONGHAND_EMULATED_FAIL=60 LABBENCH_JSON=$TMP/json "$LAB" --device emulated --points copy,decode \
    >/dev/null 2>"$err"
r=$?
[ $r != 0 ] && python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["copy"] > 0' "$TMP/json"
result bench_device_leaves_what_it_measured $? "exit $r: $(cat "$err")"
"$LAB" --device $D --points profile,depth=0,depth=70 >"$out" 2>"$err"
result bench_device_profile $? "$(cat "$err" "$out")"

LONGHAND=$LAB check bench_device_unknown_point 2 "allowed on a GPU: copy, decode" --device $D \
    --points nonsense
LONGHAND=$LAB check bench_device_depths_ascend 2 "depth: '0' is not a whole number from 71 to" --device $D \
    --points decode,depth=70,depth=0

if [ -z "${LONG:-}" ]; then skip bench_device_projection "LONG=1 runs it"; exit $failed; fi
"$LAB" --device $D --points project >"$out" 2>"$err"; r=$?
[ $r = 0 ] && [ "$(grep -c '^demo on real text, .* tokens a round' "$out")" = 3 ] &&
    [ "$(grep -c 'choice = decode - one row = [0-9.]* min$' "$out")" = 3 ] &&
    grep -q '^projection of .* not a measurement' "$out"
result bench_device_projection $? "exit $r: $(cat "$err" "$out" | tail -9)"
exit $failed
