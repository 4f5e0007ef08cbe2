#!/bin/bash
# bench --points texts: one row of each of several texts. Each text reads a cache of its own.
. tests/cli/lib.inc
# On a loaded machine the probes of the roofline can miss the machine's speed. The points count all the same.
measure()                            # ARGS..: one repetition, as JSON in $TMP/out
{
    "$LONGHAND" bench "$@" --repeat 1 --json >"$TMP/out" 2>"$TMP/err" || grep -q 'above 100 %' "$TMP/err"
}
measure --points quick,decode,rows,texts,m=3,depth=0,depth=70 && python3 - "$TMP/out" >"$TMP/why" 2>&1 <<'END'
import json, sys
points = {(p["point"], p["depth"], p["rows"]): p for p in json.load(open(sys.argv[1]))["points"]}
assert {k for k in points if k[0] == "texts"} == {("texts", 0, 3), ("texts", 70, 3)}, points.keys()
bytes = {k: p["bytes"] for k, p in points.items()}
assert bytes["texts", 0, 3] == bytes["rows", 0, 3]          # three new keys, of one text or of three
key = (bytes["rows", 70, 3] - bytes["rows", 0, 3]) / 70
assert bytes["texts", 70, 3] - bytes["rows", 70, 3] == 2 * 70 * key > 0
assert all(p["seconds"] > 0 and p["share"] > 0 for p in points.values())
END
result bench_measures_several_texts $? "$(cat "$TMP/err" "$TMP/why")"
# A prefill has more rows than a pass of a round, and no more than the bench has tokens for.
for n in 64 2049 x; do
    "$LONGHAND" bench --points prefill=$n 2>>"$TMP/prefill"
    echo "exit $?" >>"$TMP/prefill"
done
bad="longhand: --points: '\(64\|2049\|x\)' is not a whole number from 65 to 2048"
[ "$(grep -cx "$bad" "$TMP/prefill")" = 3 ] &&
    [ "$(grep -cx "exit 2" "$TMP/prefill")" = 3 ]
result bench_checks_the_rows_of_a_prefill $? "$(cat "$TMP/prefill")"
# A hybrid: a position adds keys in layers of attention alone, and a text adds the states of the other layers.
H=build/data/models/qwen35-equal-f32
measure --model $H --points quick,rows,texts,m=1,m=3,depth=0,depth=70 &&
    python3 - "$TMP/out" $H/config.json >"$TMP/why" 2>&1 <<'END'
import json, sys
bytes = {(p["point"], p["depth"], p["rows"]): p["bytes"] for p in json.load(open(sys.argv[1]))["points"]}
c = json.load(open(sys.argv[2]))
attention = c["layer_types"].count("full_attention")
row = c["head_dim"] * 2 + 4                                 # int16, and a scale
assert bytes["rows", 70, 1] - bytes["rows", 0, 1] == 70 * attention * c["num_key_value_heads"] * 2 * row
keys, values = c["linear_num_key_heads"] * c["linear_key_head_dim"], c["linear_num_value_heads"]
state = values * c["linear_key_head_dim"] * 16              # value heads of 14 columns take 16
inputs = (c["linear_conv_kernel_dim"] - 1) * (2 * keys + values * c["linear_value_head_dim"])
layers = c["layer_types"].count("linear_attention")
assert bytes["texts", 0, 3] - bytes["rows", 0, 3] == 2 * layers * (state + inputs) * 4
END
result bench_counts_states_of_hybrids $? "$(cat "$TMP/err" "$TMP/why")"
# profile: the operations of a pass are the whole pass. A hybrid has states and attention.
measure --model $H --points quick,decode,profile,depth=70 --threads 2 &&
    python3 - "$TMP/out" >"$TMP/why" 2>&1 <<'END'
import json, sys
p, = json.load(open(sys.argv[1]))["points"]
op = {o["operation"]: o for o in p["operations"]}
assert abs(sum(o["seconds"] for o in op.values()) / p["profiled_seconds"] - 1) < 1e-6, op
used = {"matrices", "head", "attention", "states", "rope", "norms", "activation", "other"}
assert {k for k, o in op.items() if o["seconds"] > 0} == used, op
for name, o in op.items():
    assert 0 <= o["busy_seconds"] <= 2.1 * o["seconds"], (name, o)
assert op["matrices"]["bytes"] > op["head"]["bytes"] > 0 == op["norms"]["bytes"], op
read = sum(op[k]["bytes"] for k in ("matrices", "head", "attention"))
assert read == p["bytes"], (read, p)
END
result a_profile_has_every_operation_of_a_pass $? "$(cat "$TMP/err" "$TMP/why")"
# A point of the engine: counts are whole numbers.
measure --model build/data/models/qwen3-bf16 --points prefill && python3 - "$TMP/out" >"$TMP/why" 2>&1 <<'END'
import json, sys
p, = json.load(open(sys.argv[1]))["points"]
for key in "depth", "rows", "bytes", "flops", "samples", "clean":
    assert isinstance(p[key], int), (key, p[key])
assert p["point"] == "prefill" and p["bytes"] > 0 and p["flops"] > 0 and p["seconds"] > 0, p
END
result a_point_has_counts_as_whole_numbers $? "$(cat "$TMP/err" "$TMP/why")"
# drafted: a text that drafting writes, at each depth, beside decode.
measure --points quick,decode,drafted,depth=0,depth=300 && python3 - "$TMP/out" >"$TMP/why" 2>&1 <<'END'
import json, sys
points = json.load(open(sys.argv[1]))["points"]
assert [(p["point"], p["depth"]) for p in points] == [("decode", 0), ("decode", 300), ("drafted", 0),
                                                      ("drafted", 300)], points
for p in points[2:]:
    assert p["tokens_per_pass"] >= 1 and p["tokens_per_second"] > 0, p
END
result bench_measures_drafted_decoding $? "$(cat "$TMP/err" "$TMP/why")"
exit $failed
