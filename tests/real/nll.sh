#!/bin/bash
# Token ids, and the negative log-likelihood of each token, of four texts of 1,500 tokens: prose, a manual, C,
# and lines of many languages and forms. tests/make/make_real_fixture.py made the expected numbers: ids of the
# tokenizers library, likelihoods of the file's decoded weights in float32.
. tests/real/lib.inc
for text in tests/real/texts/*.txt; do
    name=$(basename "$text" .txt)
    "$L" tokenize -m "$MODEL" "$text" >"$TMP/ids"
    "$L" score -m "$MODEL" "$text" --per-token -q >"$TMP/nll"
    python3 - "$name" "$TMP/ids" "$TMP/nll" <<'PY' >"$TMP/why"
import hashlib, json, sys
name, ids_file, nll_file = sys.argv[1:]
want = json.load(open("tests/real/smollm2.json"))[name]
ids = open(ids_file).read()
rows = [line.split("\t") for line in open(nll_file)][:want["tokens"]]
same = hashlib.sha256(ids.encode()).hexdigest() == want["ids_sha256"] and \
    "".join(row[0] + "\n" for row in rows) == ids
off = [abs(float(row[1]) - 1e-4 * x) for row, x in zip(rows[1:], want["nll"])]
mean = sum(off) / len(off) if len(off) == want["tokens"] - 1 else 99
print(f"{name}: ids {'equal' if same else 'differ'}; "
      f"nll off by {mean:.5f} on average, at most {max(off):.4f}")
sys.exit((0 if same else 1) + (0 if mean < 0.0015 and max(off) < 0.03 else 2))
PY
    r=$?
    sed 's/^/    /' "$TMP/why"
    [ $((r & 1)) = 0 ]; result "real_ids_of_$name" $? "$(cat "$TMP/why")"
    [ $((r & 2)) = 0 ]; result "real_nll_of_$name" $? "$(cat "$TMP/why")"
done
exit $failed
