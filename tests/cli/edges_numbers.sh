#!/bin/bash
# Numbers pass through unread: what a user writes comes out with the same bits. tests/cli/edges_numbers.py sends
# random values through every form; LONG=1 sends 1,000 of each parameter.
. tests/cli/lib.inc
n=12; [ "${LONG:-}" = 1 ] && n=1000
python3 tests/cli/edges_numbers.py "$LONGHAND" "$MODEL" "$TMP" $n >"$TMP/asked" 2>&1; r=$?
cat "$TMP/asked"
! grep -q '^FAIL' "$TMP/asked" || failed=1
result numbers_pass_through $r "$(tail -3 "$TMP/asked")"
exit $failed
