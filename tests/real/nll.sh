#!/bin/bash
# Token ids, and the negative log-likelihood of each token, of four texts of 1,500 tokens: prose, a manual, C,
# and lines of many languages and forms. tests/make/make_real_fixture.py made the expected numbers: ids of the
# tokenizers library, likelihoods of the file's decoded weights in float32. Likelihoods are those of the first
# 2,000 bytes, with LONG=1 those of all.
. tests/real/lib.inc
for text in tests/real/texts/*.txt; do
    name=$(basename "$text" .txt)
    "$L" tokenize -m "$MODEL" "$text" >"$TMP/ids"
    python3 - "$text" ${LONG:+all} <<'PY' >"$TMP/text"
import sys
text = open(sys.argv[1], "rb").read()
sys.stdout.buffer.write(text if sys.argv[2:] else text[:2000].decode(errors="ignore").encode())
PY
    "$L" score -m "$MODEL" "$TMP/text" --per-token -q >"$TMP/nll"
    python3 - "$name" "$TMP/ids" "$TMP/nll" <<'PY' >"$TMP/why"
import hashlib, json, sys
name, ids_file, nll_file = sys.argv[1:]
want = json.load(open("tests/real/smollm2.json"))[name]
ids = open(ids_file).read()
rows = [line.split("\t") for line in open(nll_file)][:want["tokens"]]
if len(rows) < want["tokens"]:
    rows = rows[:-9]        # the last tokens of a part may be others
same = hashlib.sha256(ids.encode()).hexdigest() == want["ids_sha256"] and \
    ids.startswith("".join(row[0] + "\n" for row in rows))
off = [abs(float(row[1]) - 1e-4 * x) for row, x in zip(rows[1:], want["nll"])]
mean = sum(off) / len(off) if len(off) == len(rows) - 1 > 300 else 99
print(f"{name}: ids {'equal' if same else 'differ'}; of {len(rows)} tokens "
      f"nll off by {mean:.5f} on average, at most {max(off):.4f}")
sys.exit((0 if same else 1) + (0 if mean < 0.0015 and max(off) < 0.03 else 2))
PY
    r=$?
    sed 's/^/    /' "$TMP/why"
    [ $((r & 1)) = 0 ]; result "real_ids_of_$name" $? "$(cat "$TMP/why")"
    [ $((r & 2)) = 0 ]; result "real_nll_of_$name" $? "$(cat "$TMP/why")"
done
exit $failed
