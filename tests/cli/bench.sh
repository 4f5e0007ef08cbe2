#!/bin/bash
# bench --points texts: one row of each of several texts. Each text reads a cache of its own.
. tests/cli/lib.inc
"$LONGHAND" bench --points demo,quick,decode,rows,texts,m=3,depth=0,depth=70 --repeat 1 --json >"$TMP/out" \
    2>"$TMP/err" && python3 - "$TMP/out" >"$TMP/why" 2>&1 <<'END'
import json, sys
points = {(p["point"], p["depth"], p["rows"]): p for p in json.load(open(sys.argv[1]))["points"]}
assert {k for k in points if k[0] == "texts"} == {("texts", 0, 3), ("texts", 70, 3)}, points.keys()
bytes = {k: p["bytes"] for k, p in points.items()}
assert bytes["texts", 0, 3] == bytes["rows", 0, 3]          # three new keys, of one text or of three
key = (bytes["rows", 70, 3] - bytes["rows", 0, 3]) / 70
assert bytes["texts", 70, 3] - bytes["rows", 70, 3] == 2 * 70 * key > 0
assert all(p["seconds"] > 0 and 0 < p["share"] <= 1 for p in points.values())
END
result bench_measures_several_texts $? "$(cat "$TMP/err" "$TMP/why")"
exit $failed
