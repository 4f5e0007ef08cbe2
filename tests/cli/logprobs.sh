#!/bin/bash
# --logprobs: the model's own log-probabilities, the same for all drafters, after kills, forks and extensions,
# and those of score; in exports and answers. score JOB.
. tests/cli/lib.inc
L=$LONGHAND
G=(-m $MODEL -p "Once upon a time" -s 1 --ignore-eos)
fields() { "$L" export "$1" --format jsonl --fields logprobs; }
"$L" run "${G[@]}" -n 700 --logprobs 5 --drafter none --name none -q >"$TMP/none.txt"
"$L" run "${G[@]}" -n 700 --drafter none -q >"$TMP/plain.txt"
same logprobs_change_no_text "$TMP/plain.txt" "$TMP/none.txt"
fields @none >"$TMP/none"
for d in auto "heads,ngram --tree 3,2,2" "suffix" "partial --tree 2,2 --draft-passes 2"; do
    name=${d%%[, ]*}
    "$L" run "${G[@]}" -n 700 --logprobs 5 --drafter $d --name $name -q >/dev/null
    fields @$name >"$TMP/$name"; same the_logprobs_of_$name "$TMP/none" "$TMP/$name"
done
"$L" submit "${G[@]}" -n 700 --logprobs 5 --samples 2 --name many >/dev/null
"$L" submit "${G[@]}" -n 700 --logprobs 5 --temperature 0.3 --penalty 1.1 --name cold >/dev/null
"$L" work --max-time 0.5 -q 2>/dev/null; "$L" work --max-time 0.5 -q 2>/dev/null; "$L" work -q
fields @many/0 >"$TMP/many"; same logprobs_of_shared_and_stopped_jobs "$TMP/none" "$TMP/many"

# score: to the digits of the export; settings of sampling do not count
for n in none cold; do
    fields @$n >"$TMP/a"; "$L" score @$n --json --per-token >"$TMP/b"
    python3 - "$TMP" <<'P' 2>"$TMP/err"
import json, sys
a = json.load(open(sys.argv[1] + "/a"))["logprobs"]
nll = json.load(open(sys.argv[1] + "/b"))["token_nll"]
assert len(a) == 700 and len(nll) > 700, (len(a), len(nll))
assert max(abs(x["logprob"] + y) for x, y in zip(a, nll[-700:])) <= 0.5001e-4
for x in a:
    top = [t["logprob"] for t in x["top_logprobs"]]
    assert len(top) == 5 and top == sorted(top, reverse=True) and x["logprob"] <= top[0] <= 0, x
    assert all(t["id"] != x["id"] or t["logprob"] == x["logprob"] for t in x["top_logprobs"]), x
P
    result "logprobs_of_${n}_are_those_of_score" $? "$(tail -1 "$TMP/err")"
done
check score_takes_a_number 0 '' score 1
grep -q '^70[1-9] tokens, 700 scored, nll ' "$TMP/out"; result score_of_a_job $? "$(cat "$TMP/out")"
check score_of_an_unknown_job 2 'no job is selected by "@nobody"' score @nobody
check score_of_a_file_needs_a_model 2 'score: --model is missing' score README.md
LONGHAND_MODEL=$MODEL check score_of_a_file_by_the_model_of_the_environment 0 '' score README.md
check score_with_another_model 2 'the model has another tokenizer than the job' score 1 \
    -m build/data/models/qwen2-tied-bf16
bytes=$(sql "SELECT sum(length(data)) FROM logprob WHERE job = 1")
[ "$bytes" -lt $((700 * 24)) ]; result logprobs_are_compact $? "$bytes bytes for 700 tokens"

# a fork shares those before its place; given tokens have none; an extension goes on
"$L" fork @none --at 300 --tokens 320 --append "the" --name fork -q --run >/dev/null
fields @fork >"$TMP/fork"
"$L" run "${G[@]}" -n 600 --logprobs 5 --name short -q >/dev/null
"$L" extend @short --tokens +100 -q --run >/dev/null
fields @short >"$TMP/short"; same an_extended_text_has_the_same "$TMP/none" "$TMP/short"
python3 - "$TMP" <<'P' 2>"$TMP/err"
import json, sys
a, b = (json.load(open(f"{sys.argv[1]}/{n}"))["logprobs"] for n in ("none", "fork"))
assert a[:300] == b[:300] and b[300] is None and all(b[301:]) and len(b) == 320, b[295:]
P
result a_fork_has_those_of_its_parent $? "$(tail -1 "$TMP/err")"

# batches: the fields of both APIs, and their answers
cat >"$TMP/b.jsonl" <<'J'
{"custom_id": "c", "prompt": "The king", "logprobs": 2, "max_tokens": 5, "seed": 1}
{"custom_id": "m", "messages": [{"role": "user", "content": "Hi"}], "logprobs": true, "top_logprobs": 3}
{"custom_id": "own", "messages": [{"role": "user", "content": "Hi"}], "logprobs": true}
{"custom_id": "off", "prompt": "The king", "max_tokens": 5, "seed": 1}
J
"$L" run --batch "$TMP/b.jsonl" -m $MODEL --ignore-eos --chat-template chatml -s 1 -n 5 -o "$TMP/answers" -q
python3 - "$TMP/answers" <<'P' 2>"$TMP/err"
import json, sys
v = {}
for l in open(sys.argv[1]):
    x = json.loads(l)
    v[x["custom_id"]] = x["response"]["body"]["choices"][0]
c = v["c"]["logprobs"]
assert "".join(c["tokens"]) == v["c"]["text"] == v["off"]["text"], c
assert len(c["token_logprobs"]) == 5 and all(1 <= len(t) <= 2 for t in c["top_logprobs"]), c
m = v["m"]["logprobs"]["content"]
assert "".join(t["token"] for t in m) == v["m"]["message"]["content"], m
assert all(len(t["top_logprobs"]) == 3 and t["logprob"] <= t["top_logprobs"][0]["logprob"] for t in m), m
assert all(t["top_logprobs"] == [] and t["logprob"] < 0 for t in v["own"]["logprobs"]["content"])
assert v["off"]["logprobs"] is None
P
result answers_have_logprobs $? "$(tail -1 "$TMP/err")"
check too_many_logprobs 2 '--logprobs: .21. is not a whole number from -1 to 20' run "${G[@]}" -n 5 \
    --logprobs 21
check logprobs_of_the_published_verifier 2 '--logprobs and --verifier paper' run "${G[@]}" -n 5 \
    --logprobs 1 --preset tokenswift --verifier paper
exit $failed
