#!/bin/sh
# The perplexity of models/demo on whole books is within 0.1 % of that of transformers, which
# tests/data/demo_valid_nll.json records for windows of 32,768 tokens. CORPUS=DIR names the folder with
# valid/*.txt; without it the test is skipped. LONGHAND is the program, by default ./longhand. The test takes
# about a quarter of an hour on two cores.
set -u
here=$(dirname "$0")
longhand=${LONGHAND:-./longhand} store=$here/data/demo_valid_nll.json model=$here/../models/demo failed=0

if [ -z "${CORPUS:-}" ]; then
    echo "skip perplexity (CORPUS is not set: the folder that has valid/*.txt)"
    exit 0
fi

# name, digest, tokens, scored tokens and nll of each book, from one key per line
books=$(awk -F'"' '
    / *"[^"]*\.txt": /  { if (name) print name, sha, tokens, scored, nll; name = $2; scored = 0; nll = 0 }
    / *"sha256": /      { sha = $4 }
    / *"tokens": /      { tokens = $3; gsub(/[^0-9]/, "", tokens) }
    / *"scored": /      { n = $3; gsub(/[^0-9]/, "", n); scored += n }
    / *"nll": /         { x = $3; gsub(/[^0-9.]/, "", x); nll += x }
    END                 { if (name) printf "%s %s %s %d %.6f\n", name, sha, tokens, scored, nll }' \
    OFMT=%.6f CONVFMT=%.6f "$store")
[ -n "$books" ] || { echo "FAIL perplexity ($store names no book)"; exit 1; }
window=$(sed -n 's/.*"window": *\([0-9]*\).*/\1/p' "$store")

while read -r name sha tokens scored nll; do
    file=$CORPUS/valid/$name
    if [ ! -f "$file" ]; then
        echo "skip perplexity_of_$name (not in $CORPUS/valid)"
        continue
    fi
    if [ "$(sha256sum < "$file" | cut -d' ' -f1)" != "$sha" ]; then
        echo "skip perplexity_of_$name (not the edition that transformers scored)"
        continue
    fi
    line=$("$longhand" score --model "$model" "$file" --window "$window" --json -q) || line=
    if printf '%s\n' "$line" | awk -v want_n="$tokens" -v want="$nll" -v scored="$scored" -v name="$name" '
        { all = all $0 }
        function number(key) {
            if (!match(all, "\"" key "\": *[0-9.eE+-]+")) return -1
            return substr(all, RSTART + length(key) + 3, RLENGTH - length(key) - 3) + 0
        }
        END {
            off = exp((number("nll") - want) / scored) - 1
            printf "    %s: %d tokens, perplexity %.4f, transformers %.4f, off by %+.4f %%\n", name,
                number("tokens"), number("perplexity"), exp(want / scored), 100 * off
            ok = number("tokens") == want_n && off <= 1e-3 && off >= -1e-3
            exit !(ok && number("perplexity") / exp(want / scored) - 1 <= 1e-3)
        }'; then
        echo "ok perplexity_of_$name"
    else
        echo "FAIL perplexity_of_$name"
        failed=1
    fi
done <<END
$books
END
exit $failed
