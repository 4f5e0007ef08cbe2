#!/bin/bash
# longhand plan: tables, JSON, pages, the paper's cells, acceptances of jobs, and bad input.
. "$(dirname "$0")/lib.inc"
L=$LONGHAND

"$L" plan --paper spire >"$TMP/paper"
rc=$?
[ $rc = 0 ] && grep -q '^432 of 432 cells equal' "$TMP/paper" && grep -qE '^ +64 .* 2\.78 ' "$TMP/paper"
result all_cells_of_the_paper $? "rc $rc, $(tail -1 "$TMP/paper")"

"$L" plan --hardware h200 --lengths 1000,100000 --batch-sizes 1,8 --json >"$TMP/json"
python3 - "$TMP/json" <<'EOF'
import json, sys
d = json.load(open(sys.argv[1]))
rows = {(r["length"], r["texts"], r["drafter"]): r for r in d["plan"]}
assert len(d["plan"]) == 2 * 2 * 6 and d["flops"] == 989e12
for (length, texts, name), r in rows.items():
    plain = rows[length, texts, "none"]
    assert abs(r["speedup"] - r["tokens_per_second"] / plain["tokens_per_second"]) < 1e-4 * r["speedup"], r
    assert abs(texts * r["tokens_per_round"] / r["seconds_per_round"] / r["tokens_per_second"] - 1) < 1e-4, r
# 8B weights in bf16 are read in 3.1 ms, and a cache of 100,000 tokens needs as long again
assert 300 < rows[1000, 1, "none"]["tokens_per_second"] < 320
assert 160 < rows[100000, 1, "none"]["tokens_per_second"] < 180
EOF
result plan_as_json $? "$(head -c 300 "$TMP/json")"

"$L" plan --hardware 1000:50 --html -o "$TMP/plan.html" && grep -q '<svg' "$TMP/plan.html" &&
    grep -q 'default-src .none' "$TMP/plan.html" && grep -q longspec "$TMP/plan.html"
result plan_as_a_page $?

"$L" run -q -m models/demo -p One --tokens 60 --seed 1 --drafter suffix --temp 0 >/dev/null
"$L" plan --hardware zen4 --model models/demo --lengths 1000 --acceptance suffix=@1 >"$TMP/out"
grep -qE 'suffix .* tokens in 16 passes \(job 1\)' "$TMP/out"
result acceptance_of_a_job $? "$(cat "$TMP/out")"

# a job with a fixed tree shows the tokens of a round with fewer passes, too
"$L" run -q -m models/demo -p One --tokens 60 --seed 1 --drafter spire --tree 1,1,1,1 \
    --json-stats "$TMP/stats" >/dev/null
"$L" plan --hardware zen4 --model models/demo --lengths 1000 --acceptance spire=@2 --drafter spire \
    --json >"$TMP/json"
python3 - "$TMP/json" "$TMP/stats" <<'PY'
import json, sys
spire = json.load(open(sys.argv[1]))["plan"][1]
s = json.load(open(sys.argv[2]))
by_depth = 1 + sum(s["accepted_per_depth"][:spire["draft_passes"]]) / s["rounds"]
assert abs(spire["tokens_per_round"] - by_depth) < 1e-4, (spire, by_depth)
PY
result acceptance_of_a_job_by_depth $? "$(cat "$TMP/json")"

# the last word about a drafter counts: chains of 4 with 2 tokens a round
for a in spire=2 spire=@2,spire=2; do
    "$L" plan --hardware zen4 --model models/demo --lengths 1000 --acceptance $a --drafter spire >"$TMP/$a"
done
cmp "$TMP/spire=2" "$TMP/spire=@2,spire=2" && grep -q 'spire  *2.00 tokens' "$TMP/spire=2"
result last_acceptance_counts $?

# Measured with the model: a draft pass over the whole text takes about as long as a pass, suffix has none.
"$L" plan --model models/demo --lengths 300 --acceptance partial=1.2,suffix=2 --drafter partial,suffix \
    --json >"$TMP/json"
python3 - "$TMP/json" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
plain, draft, chain = d["plan"]
assert d["measured_lengths"] == [256, 512] and "flops" not in d
assert (plain["drafter"], draft["drafter"], chain["drafter"]) == ("none", "partial", "suffix")
assert 0 < plain["seconds_per_round"] <= chain["seconds_per_round"]
assert draft["seconds_per_round"] > 1.2 * plain["seconds_per_round"] and draft["rows"] == 2
by_seconds = draft["tokens_per_round"] * plain["seconds_per_round"] / draft["seconds_per_round"]
assert abs(draft["speedup"] / by_seconds - 1) < 1e-4
PY
result measured_with_the_model $? "$(head -c 900 "$TMP/json")"

# a hybrid is planned by the machine's two numbers (probing the machine takes 2 s)
if [ "${LONG:-0}" = 1 ]; then
    "$L" plan --model build/data/models/qwen35moe-fused-bf16 --drafter mtp --lengths 300 >"$TMP/out"
    grep -q 'this machine, measured: .* GFLOP/s' "$TMP/out" && grep -q '^costs  *limits' "$TMP/out"
    result hybrid_by_the_machine $? "$(cat "$TMP/out")"
fi

# half the bytes of the weights: nearly twice as fast
for w in as-is q8_0; do
    "$L" plan --hardware h100 --lengths 1 --weights $w | awk '$3 == "none" { print $8 }'
done | paste -sd' ' >"$TMP/out"
awk '{ exit !($2 / $1 > 1.85 && $2 / $1 < 1.9) }' "$TMP/out"
result fewer_bytes_are_faster $? "$(cat "$TMP/out")"

# a model's own bytes a weight: 18 for 32 weights, and some of more bits
"$L" convert -m build/data/models/mistral-nowindow-f16 --weights q4_0 -o "$TMP/q4.gguf" -q
for m in build/data/models/mistral-nowindow-f16 "$TMP/q4.gguf"; do
    "$L" plan --hardware 1000:50 --lengths 1 --drafter suffix --acceptance suffix=2 --model "$m" --json
done >"$TMP/json"
python3 - "$TMP/json" "$TMP/q4.gguf" <<'PY'
import json, os, sys
f16, q4 = map(json.loads, open(sys.argv[1]))
assert f16["bytes_per_weight"] == 2 and 0.56 < q4["bytes_per_weight"] < 1.1, q4
faster = q4["plan"][0]["tokens_per_second"] / f16["plan"][0]["tokens_per_second"]
assert abs(faster / (2 / q4["bytes_per_weight"]) - 1) < 0.1, faster
PY
result a_models_own_bytes_a_weight $? "$(cut -c 1-300 "$TMP/json")"

check model_without_shape 2 "--acceptance: model needs --drafter model:SHAPE" \
    plan --acceptance model=2 --hardware h100
check unknown_hardware 2 "--hardware: 'tpu' is not h100" plan --hardware tpu
check unknown_shape 2 "--shape: unknown shape 'x' .*llama3-8b" plan --hardware h100 --shape x
check unknown_drafter 2 "--drafter: 'eagle' is not one of tokenswift, partial" plan --hardware h100 \
    --drafter eagle
check model_without_a_shape 2 'model needs a shape' plan --hardware h100 --drafter model
check suffix_needs_an_acceptance 2 'suffix needs --acceptance' plan --hardware h100 --drafter suffix
check acceptance_too_high 2 'spire=6: 4 draft passes make at most 5' plan --hardware h100 --acceptance spire=6
check lengths_are_numbers 2 "--lengths" plan --hardware h100 --lengths 1,x
check unknown_paper 2 "--paper: 'eagle' is not spire" plan --paper eagle
check model_or_shape 2 'only one of them' plan --hardware h100 --shape llama3-8b --model models/demo
exit $failed
