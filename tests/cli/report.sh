#!/bin/bash
# The page of a report in a browser: its plots contain their data, hostile names are text, nothing is loaded.
# Then the usage of the verb.
. tests/cli/lib.inc
check report_of_no_store 2 "no store here" report 1 --db "$TMP/none.db"
check report_one_format 2 "only one of them" report 1 --json --csv --db "$TMP/none.db"
browser=
for b in chromium chromium-browser google-chrome; do command -v $b >/dev/null && browser=$b && break; done
test=$(dirname "$LONGHAND")/test_report
if [ -z "$browser" ]; then skip page_in_a_browser "no chromium"; exit $failed; fi
if [ ! -x "$test" ]; then skip page_in_a_browser "$test is not built"; exit $failed; fi
"$test" --page "$TMP/page.html" >"$TMP/err"; result page_is_written $? "$(cat "$TMP/err")"
open_page() { timeout 60 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$TMP/profile" \
    "$@" "file://$TMP/page.html" 2>"$TMP/err"; }
open_page --dump-dom >"$TMP/dom"
if [ ! -s "$TMP/dom" ]; then skip page_in_a_browser \
    "$browser does not start here: $(tail -1 "$TMP/err" | tr -d '()' | cut -c 1-100)"; exit $failed; fi
attributes() { grep -o 'data-name="[^"]*" data-y="[^"]*"' "$1" | sed 's/&#60;/\&lt;/g;s/&#62;/\&gt;/g' |
    LC_ALL=C sort; }
attributes "$TMP/page.html" >"$TMP/a"; attributes "$TMP/dom" >"$TMP/b"
sed 's/&lt;/</g;s/&gt;/>/g' "$TMP/a" >"$TMP/a2"; sed 's/&lt;/</g;s/&gt;/>/g' "$TMP/b" >"$TMP/b2"
[ "$(wc -l <"$TMP/a2")" -gt 15 ]; result plots_have_data $? "$(wc -l <"$TMP/a2") lines"
same plots_read_back "$TMP/a2" "$TMP/b2"
grep -q 'data-name="length" data-y="4 4 4"' "$TMP/dom"; result acceptance_length_reads_back $? ""
! grep -qE '<(script|img|iframe|object|link)' "$TMP/dom"
result hostile_names_are_text $? "$(grep -oE '<(script|img|iframe|object|link).{0,60}' "$TMP/dom" | head -3)"
grep -q '&lt;img src=x onerror=alert(1)&gt;' "$TMP/dom"
result hostile_name_is_shown $? "$(grep -o 'img src.\{0,60\}' "$TMP/dom" | head -2)"
exit $failed
