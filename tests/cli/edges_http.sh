#!/bin/bash
# serve at the edges of HTTP: paths in messages, uploads in pieces, the end of a request, idle and slow
# connections, /metrics. tests/cli/edges_http.py starts the servers and asks.
. tests/cli/lib.inc
# asks PARTS: in a folder of their own
asks()
{
    mkdir "$TMP/$1"
    LONG=${LONG:-} SLOWER=$slower python3 tests/cli/edges_http.py "$LONGHAND" "$MODEL" "$TMP/$1" "$1" \
        >"$TMP/$1/asked" 2>&1
    echo "exit $?" >>"$TMP/$1/asked"
}
asks late & asks metrics & asks ends,uploads,paths,crowds; wait   # the first two wait most of the time
for part in late metrics ends,uploads,paths,crowds; do
    cat "$TMP/$part/asked"
    ! grep -q '^FAIL' "$TMP/$part/asked" || failed=1
    tail -1 "$TMP/$part/asked" | grep -q '^exit 0'
    result "edges_http_$part" $? "$(tail -3 "$TMP/$part/asked")"
done
exit $failed
